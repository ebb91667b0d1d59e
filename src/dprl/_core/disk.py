"""Writing a file so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from dprl._core.leftovers import SET, beside, clean
from dprl._core.limits import said_if_short
from dprl._core.steps import STEPS
from dprl.errors import ParameterError

__all__ = ["append", "check_target", "expand_paths", "refuse_overwrite", "replacing", "together"]


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


def append(path: Path, line: bytes) -> None:
    """Add a line to a file and wait until it is on the disk; after an error it is not added."""
    with (
        said_if_short(f"a line of {path.name!r}", str(path), ParameterError),
        path.open("ab", buffering=0) as stream,
    ):
        length = stream.seek(0, os.SEEK_END)
        try:
            STEPS.append(stream, line)
        except BaseException:
            stream.truncate(length)
            raise


@dataclass
class _Ready:
    """A file that is written and synced, and waits to be put in its place."""

    part: Path
    target: Path
    old: Path | None = None


_TOGETHER: ContextVar[list[_Ready] | None] = ContextVar("_TOGETHER", default=None)
"""The files of the set that is being written, if there is one."""


@contextmanager
def replacing(path: str | os.PathLike[str], *, private: bool = False) -> Iterator[Path]:
    """Give a temporary path next to `path`; if all goes well it replaces `path` at the end.

    After any error `path` is unchanged and the temporary file is removed. If `path` exists and is
    not an ordinary file (a device, a pipe, a link, a folder) it is refused, not replaced. Inside
    `together` it is replaced at the end of the whole set.

    Args:
        path: The file to write.
        private: Whether nobody but its owner may read it. Default False: as the file it replaces,
            or as the user's other files.
    """
    target = Path(path)
    check_target(target)
    with said_if_short(f"writing {target.name!r}", str(target), ParameterError):
        clean(target.parent)
        whole = target.parent.resolve() / target.name  # DuckDB may be confined to this folder
        ready = _Ready(beside(whole, "part"), target)
        try:
            STEPS.create(ready.part)
            yield ready.part
            STEPS.written(ready.part)
            STEPS.sync(ready.part)
            STEPS.mode(ready.part, 0o600 if private else _mode(target))
            waiting = _TOGETHER.get()
            if waiting is None:
                _put([ready])
            else:
                waiting.append(ready)
        except BaseException:
            _drop([ready])
            raise


@contextmanager
def together() -> Iterator[None]:
    """Files written inside with `replacing` appear all together at the end, or not at all.

    After an error all of them are as they were. If the process is killed while they are put in
    their places, the next run that writes into the folder completes the set.
    """
    if _TOGETHER.get() is not None:  # a set within a set is part of it
        yield
        return
    waiting: list[_Ready] = []
    token = _TOGETHER.set(waiting)
    try:
        yield
        where = str(waiting[0].target) if waiting else ""
        with said_if_short("writing the files", where, ParameterError):
            _put(waiting)
    except BaseException:
        _drop(waiting)
        raise
    finally:
        _TOGETHER.reset(token)


def _put(files: list[_Ready]) -> None:
    """Put files in their places: all, or none after an error."""
    check_target(*(one.target for one in files))  # something may have appeared in the meantime
    folders = sorted({one.target.parent for one in files})
    names = {one.target.name for one in files}
    journal = None
    if len(files) > 1:
        for one in files:
            if one.target.exists():
                one.old = beside(one.target, "old")
                STEPS.link(one.target, one.old)
        if len(folders) == 1 and len(names) == len(files):
            journal = _journal(files)
    try:
        for one in files:
            STEPS.rename(one.part, one.target)
    except BaseException:
        if len(files) > 1:
            _take_back(files, journal)
        raise
    _settle(folders, files)
    for path in (journal, *(one.old for one in files)):
        if path is not None:
            STEPS.remove(path)


def _take_back(files: list[_Ready], journal: Path | None) -> None:
    """Make everything as it was. If even that fails, the next run completes the set instead."""
    try:
        for one in reversed(files):
            if one.part.exists():
                continue  # it was not moved
            STEPS.rename(one.target, one.part)
            if one.old is not None:
                STEPS.rename(one.old, one.target)
        if journal is not None:
            STEPS.remove(journal)
    except BaseException:
        if journal is not None:
            files.clear()  # nothing of the set may be removed now
        raise


def _journal(files: list[_Ready]) -> Path:
    """Write which files belong together: from now on the set is complete, whatever happens."""
    path = beside(files[0].target.with_name("files"), SET)
    part = beside(files[0].target.with_name("files"), "part")
    try:
        STEPS.create(part)
        part.write_text(json.dumps([[one.part.name, one.target.name] for one in files]))
        STEPS.written(part)
        STEPS.sync(part)
        STEPS.rename(part, path)
        STEPS.sync_folder(path.parent)
    except BaseException:
        for left in (path, part):
            STEPS.remove(left)
        raise
    return path


def _settle(folders: list[Path], files: list[_Ready]) -> None:
    """Wait until the new names are on the disk; say so if the disk does not confirm it."""
    try:
        for folder in folders:
            STEPS.sync_folder(folder)
    except OSError as error:
        raise ParameterError(
            f"{', '.join(repr(one.target.name) for one in files)}: written, but the disk did not "
            "confirm it.",
            f"{folder}: {error.strerror or error}",
            "It may be lost if the machine stops now. Check the disk, then write again.",
        ) from error


def _drop(files: list[_Ready]) -> None:
    """Remove what was written and is not wanted; a disk that cannot even do that is let be."""
    for one in files:
        for path in (one.part, one.old):
            if path is not None:
                with contextlib.suppress(OSError):
                    STEPS.remove(path)
