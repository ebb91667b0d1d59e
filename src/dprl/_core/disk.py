"""Writing a file so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import glob
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dprl._core.limits import said_if_short
from dprl.errors import ParameterError

__all__ = ["check_target", "expand_paths", "refuse_overwrite", "replacing"]


KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def expand_paths(*names: str | os.PathLike[str]) -> set[Path]:
    """The files that names and patterns such as 'logs/*.csv' stand for, with links followed."""
    files = {Path(name).resolve() for name in names}
    for name in names:
        if not Path(name).exists():
            files |= {Path(file).resolve() for file in glob.glob(os.fspath(name), recursive=True)}
    return files


def refuse_overwrite(out: str | os.PathLike[str] | None, *read: str | os.PathLike[str]) -> None:
    """Refuse to write to a file that is also read, or to something that is not an ordinary file.

    Args:
        out: The file to be written; None if there is none.
        *read: Names and patterns of the files that are read.

    Raises:
        ParameterError: If `out` is one of the files that are read, or exists and is not a file.
    """
    if out is not None and Path(out).resolve() in expand_paths(*read):
        raise ParameterError(
            f"{str(out)!r} would be overwritten, and it is read.", do="Name another file to write."
        )
    if out is not None:
        check_target(out)


def check_target(*paths: str | os.PathLike[str]) -> None:
    """Refuse to write over something that exists and is not an ordinary file: it would be replaced.

    A link is not followed: who made it did not say that its target may be replaced.
    """
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:  # it does not exist, or writing it will say why not
            continue
        if stat.S_ISREG(mode):
            continue
        kind = next((words for test, words in KINDS if test(mode)), "something else than a file")
        where = f"it leads to {os.readlink(path)!r}" if stat.S_ISLNK(mode) else os.fspath(path)
        raise ParameterError(
            f"{os.fspath(path)!r} is {kind}, and would be replaced by a file.",
            where,
            "Name the file it leads to." if stat.S_ISLNK(mode) else "Name another file to write.",
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
    """Give a temporary path next to `path`; if all goes well it replaces `path` at the end.

    After any error `path` is unchanged and the temporary file is removed. If `path` exists and is
    not an ordinary file (a device, a pipe, a link, a folder) it is refused, not replaced.
    """
    target = Path(path)
    check_target(target)
    with said_if_short(f"writing {target.name!r}", str(target), ParameterError):
        handle, name = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part"
        )
        os.close(handle)
        part = Path(name)
        try:
            yield part
            with part.open("rb+") as stream:
                os.fsync(stream.fileno())
            part.chmod(_mode(target))
            check_target(target)  # it may have appeared in the meantime
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
