"""Writing a file so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dprl.errors import ParameterError

__all__ = ["keep_apart", "meant", "replacing"]


def meant(*names: str | os.PathLike[str]) -> set[Path]:
    """The files that names and patterns such as 'logs/*.csv' stand for, links followed."""
    found = {Path(name).resolve() for name in names}
    for name in names:
        if not Path(name).exists():
            found |= {Path(file).resolve() for file in glob.glob(os.fspath(name), recursive=True)}
    return found


def keep_apart(out: str | os.PathLike[str] | None, *read: str | os.PathLike[str]) -> None:
    """Refuse to write over a file that is read: a log cannot be had again."""
    if out is not None and Path(out).resolve() in meant(*read):
        raise ParameterError(
            f"{str(out)!r} would be overwritten, and it is read.", do="Name another file to write."
        )


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those a new file gets."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside `path`; on a clean exit it takes `path`'s place.

    Whatever fails inside leaves `path` as it was and removes the temporary file.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as stream:
            os.fsync(stream.fileno())
        part.chmod(_mode(target))
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
