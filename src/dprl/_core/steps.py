"""The single steps of writing a file: each can fail, and each can be the last before a crash.

`dprl._core.disk` writes through `STEPS` alone, so that a test can put something in its place that
fails at, or stops after, any one of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import IO

__all__ = ["STEPS", "Steps"]

NOT_FOR_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.EBADF)
"""What systems answer that cannot sync a folder."""


class Steps:
    """What is done to a disk, one call a step."""

    def create(self, path: Path) -> None:
        """Make a new empty file that nobody else can read."""
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def written(self, path: Path) -> None:
        """Somebody has written the content of a file."""

    def append(self, stream: IO[bytes], line: bytes) -> None:
        """Add a line to an open file, and wait until it is on the disk."""
        rest = memoryview(line)
        while rest:
            rest = rest[stream.write(rest) :]
        os.fsync(stream.fileno())

    def sync(self, path: Path) -> None:
        """Wait until the content of a file is on the disk."""
        with path.open("rb+") as stream:
            os.fsync(stream.fileno())

    def mode(self, path: Path, mode: int) -> None:
        """Set the permissions of a file."""
        path.chmod(mode)

    def link(self, path: Path, beside: Path) -> None:
        """Give a file a second name, or a copy where a disk has no second names."""
        try:
            os.link(path, beside)
        except OSError:
            shutil.copy2(path, beside)

    def rename(self, path: Path, target: Path) -> None:
        """Put a file in the place of another."""
        path.replace(target)

    def sync_folder(self, folder: Path) -> None:
        """Wait until the names in a folder are on the disk, where the system can do that."""
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError:  # a folder that may be written to and not be read; or not a POSIX system
            return
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in NOT_FOR_FOLDERS:
                raise
        finally:
            os.close(handle)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


STEPS = Steps()
"""The steps of this process."""
