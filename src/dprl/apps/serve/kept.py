"""Copies of the policies that were taken over, in a folder that the processes of a server share.

A process that starts later must start with the policy that is served, whatever has become of the
file since. So a policy is copied first, with its signature, and read from the copy: what is served
and what is kept are the same bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SIGNATURE", "Kept"]

SIGNATURE = ".minisig"
"""What the name of a policy's signature ends with."""


@dataclass(frozen=True)
class Kept:
    """A folder of copies; the file `current` names the one that is served.

    Attributes:
        folder: The folder.
    """

    folder: Path

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
