"""Copies of the policies that were taken over, in a folder that the processes of a server share.

A process that starts later must start with the policy that is served, whatever has become of the
file since. So a policy is copied first, with its signature, and read from the copy: what is served
and what is kept are the same bytes.

A file that was put in place is not looked at before SIGHUP asks for it. So the folder also counts
how often that was asked, and how much of it is done: a process that was just starting then, and did
not hear it, sees that and looks at the files. Every other process leaves them alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SIGNATURE", "Kept"]

SIGNATURE = ".minisig"
"""What the name of a policy's signature ends with."""
COUNT = struct.Struct("<q")
ASKED, DONE = 0, COUNT.size
"""Places in the file of counts: how often SIGHUP came, and up to which time it was followed."""


@dataclass(frozen=True)
class Kept:
    """A folder of copies; the file `current` names the one that is served.

    Attributes:
        folder: The folder.
        begun: What `done` was before this process read the policy that it starts with.
    """

    folder: Path
    begun: int = 0

    def copy(self, path: str | os.PathLike[str]) -> Path:
        """A copy of a policy file and of its signature, if it has one; `take` or `drop` it."""
        inside = Path(tempfile.mkdtemp(dir=self.folder, prefix="policy-"))
        target = inside / Path(path).name
        try:
            shutil.copyfile(path, target)
            signature = Path(f"{os.fspath(path)}{SIGNATURE}")
            if signature.is_file():
                shutil.copyfile(signature, f"{target}{SIGNATURE}")
        except BaseException:
            shutil.rmtree(inside, ignore_errors=True)
            raise
        return target

    def drop(self, copy: Path) -> None:
        """Remove a copy."""
        shutil.rmtree(copy.parent, ignore_errors=True)

    def take(self, copy: Path) -> None:
        """Let processes start with this copy from now on; of earlier ones the last few stay."""
        handle, part = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(handle, "w") as file:
            file.write(str(copy))
        Path(part).replace(self.folder / "current")
        copies = sorted(self.folder.glob("policy-*"), key=lambda p: p.stat().st_mtime_ns)
        for old in copies[:-10]:  # others may be about to be taken, or being read
            if old != copy.parent:
                shutil.rmtree(old, ignore_errors=True)

    def current(self) -> Path:
        """The copy that processes start with."""
        return Path((self.folder / "current").read_text())

    def count(self) -> None:
        """Begin to count. The file has its full size from here on: a full disk does not matter."""
        self._counts.write_bytes(bytes(2 * COUNT.size))

    def ask(self) -> None:
        """Count that all processes are asked to look at the files."""
        self._write(ASKED, self.asked + 1)

    def follow(self, number: int) -> None:
        """Say that the first `number` times are followed: what they brought is kept here."""
        if number > self.done:
            self._write(DONE, number)

    @property
    def asked(self) -> int:
        """How often the processes were asked to look at the files."""
        return self._read(ASKED)

    @property
    def done(self) -> int:
        """How many of these times are followed."""
        return self._read(DONE)

    @property
    def _counts(self) -> Path:
        return self.folder / "counts"

    def _read(self, place: int) -> int:
        try:
            data = self._counts.read_bytes()
        except OSError:
            return 0
        return int(COUNT.unpack_from(data, place)[0])

    def _write(self, place: int, number: int) -> None:
        with contextlib.suppress(OSError):
            handle = os.open(self._counts, os.O_WRONLY)
            try:
                os.pwrite(handle, COUNT.pack(number), place)
            finally:
                os.close(handle)
