"""Writing a file so that a reader sees the old one or the new one, never half of it.

Everything is written under a temporary name beside its target, synced, and then renamed. Files that
belong together (`together`) are all written before the first is put in its place, and those they
replace are removed before that: so the files of two runs never stand side by side. A file that is
missing is seen, and one that belongs to another run is not.

Each step goes through `STEPS`, so that a test can put something in its place that fails at, or
stops after, any one of them. The temporary name of a file says who writes it, the machine and the
process; what no living process owns is removed by the next run that writes into the folder.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dprl.errors import DprlError, LogError, ParameterError

try:
    import fcntl
except ImportError:  # not on this system: then only one process may write
    fcntl = None  # type: ignore[assignment]

# --- Too little memory or disk space: reported in three lines, and before the work where possible

PER_PAIR = 232
"""The least bytes of memory a fit needs for each pair of state and action.

Exact sums take 160 of them; counts, means and deviations take the rest."""
PER_BALL = 64
"""The same for each training point and action, for a plan over features."""
SPARE = 64 << 20
"""Needs of fewer bytes than this are not checked."""
MEMINFO = Path("/proc/meminfo")
GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def shortage(error: BaseException, doing: str, where: str = "") -> tuple[str, str, str] | None:
    """Three lines for an error that says memory or disk ran out; None for any other error."""
    lines = str(error).splitlines() or [""]
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryException":
        free = available_memory()
        left = "memory ran out" if free is None else f"{size_in_words(free)} are free now"
        return (
            f"there is not enough memory for {doing}.",
            "; ".join(x for x in (where or lines[0][:200], left) if x),
            "Close other programs, use a machine with more memory, or take fewer rows or columns.",
        )
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    foreign = type(error).__module__.lstrip("_").startswith(("duckdb", "sqlite3"))
    words = str(error).lower()
    signs = ("no space left", "disk quota", "disk is full", "not enough disk space")
    if full or (foreign and any(sign in words for sign in signs)):
        return (
            f"the disk is full: no room for {doing}.",
            where or lines[0][:200],
            "Make room on it, or name a place on another disk. Nothing was changed.",
        )
    return None


@contextlib.contextmanager
def said_if_short(doing: str, where: str = "", kind: type[DprlError] = LogError) -> Iterator[None]:
    """Turn an error inside, if memory or disk ran out, into one with three lines."""
    try:
        yield
    except DprlError:
        raise
    except Exception as error:
        lines = shortage(error, doing, where)
        if lines is None:
            raise
        raise kind(*lines) from error


def need_memory(need: float, doing: str, where: str, do: str) -> None:
    """Refuse work that needs more memory than is free; `need` is its least need in bytes."""
    free = available_memory() if need > SPARE else None
    if free is not None and need > free:
        raise LogError(
            f"{doing} needs at least {size_in_words(need)} of memory, and {size_in_words(free)} "
            "are free.",
            where,
            do,
        )


def need_for_pairs(states: int, actions: int, per_pair: int = PER_PAIR) -> None:
    """Refuse tables over all states and actions that do not fit into memory."""
    need_memory(
        float(states) * actions * per_pair,
        f"a table of {states:,} states x {actions:,} actions",
        f"{states * actions:,} pairs, {per_pair} bytes each",
        "Merge states that are never told apart in practice, or use a machine with more memory.",
    )


def need_for_neighbors(rows: int, features: int, actions: int, plan: bool) -> None:
    """Refuse points of features that do not fit into memory; a plan needs more per point."""
    each = 8 * features + (PER_BALL * actions if plan else 0)
    need_memory(
        float(rows) * each,
        f"fitting {rows:,} rows of {features:,} features" + (" with a plan" if plan else ""),
        f"{rows:,} rows, {each:,} bytes each",
        "Leave plan out (--no-plan), take fewer episodes, or use a machine with more memory."
        if plan
        else "Take fewer episodes or features, or use a machine with more memory.",
    )


def available_memory() -> float | None:
    """Bytes a process can still get, swap included; None if the system does not say.

    It is the least of what the machine and the container (cgroup) allow. Cached files count as
    free, since the system drops them when memory is needed.
    """
    limits = [x for x in (_of_machine(), *_of_groups()) if x is not None]
    return min(limits, default=None)


def _of_machine() -> float | None:
    """Bytes that are free on the whole machine; None if it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        facts = {}
        for line in MEMINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            facts[name] = float(value.split()[0]) * 1024
        if "MemAvailable" in facts:
            return facts["MemAvailable"] + facts.get("SwapFree", 0.0)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return None


def _of_groups() -> Iterator[float]:
    """Bytes that each limit on the container of this process, or on an outer one, leaves."""
    for place, limit, used, swap in (
        ("", "memory.max", "memory.current", "memory.swap.max"),  # version 2 of cgroups
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ""),  # version 1
    ):
        for group in _groups_around(GROUPS / place, place):
            with contextlib.suppress(OSError, ValueError):
                most = float((group / limit).read_text())  # "max" is no limit, and no number
                taken = float((group / used).read_text())
                if most < 1 << 60:
                    yield most - taken + _freeable(group) + _swap(group / swap if swap else None)


def _groups_around(root: Path, controller: str) -> list[Path]:
    """The folders that may limit this process: that of its own group, and those above it."""
    with contextlib.suppress(OSError):
        for line in OWN_GROUP.read_text().splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            if controller in controllers.split(",") and ".." not in path:
                own = root / path.lstrip("/")
                return [own, *(p for p in own.parents if p.is_relative_to(root))]
    return [root]


def _freeable(group: Path) -> float:
    """Bytes of cached files, which the system drops when memory is needed."""
    with contextlib.suppress(OSError, ValueError):
        for line in (group / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in ("file", "total_cache", "cache"):
                return float(value)
    return 0.0


def _swap(limit: Path | None) -> float:
    """Swap the container may use: all of the machine's if it has no limit of its own."""
    if limit is not None:
        with contextlib.suppress(OSError, ValueError):
            return float(limit.read_text())
    with contextlib.suppress(OSError, ValueError, StopIteration, IndexError):
        lines = MEMINFO.read_text().splitlines()
        return float(next(x for x in lines if x.startswith("SwapFree")).split()[1]) * 1024
    return 0.0


def size_in_words(count: float) -> str:
    """A number of bytes for people: 1.5 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1e3:,.1f} kB"


# --- Writing a file so that a reader sees the old one or the new one, never half of it

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


NAME = re.compile(r"(?:tmp_)?\..+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.(part|old|set)")
"""A file that is being written (DuckDB writes to tmp_NAME first), or what earlier versions kept."""
FOLDER = re.compile(r"dprl-[a-z0-9]+-([0-9a-f]{8})-(\d+)-.+")
"""A folder for temporary files, which may hold rows of a log."""
DAY = 86_400.0
LONGEST = 120
"""Bytes of the name of a file that its temporary name repeats."""

CLEANED: set[tuple[int, Path]] = set()
"""The folders that this process has cleaned already."""


def _host() -> str:
    """A word for this machine or container."""
    return hashlib.sha256(platform.node().encode("utf-8", "replace")).hexdigest()[:8]


def beside(target: Path) -> Path:
    """A new name beside a file, which says who writes it."""
    short = target.name.encode("utf-8", "surrogateescape")[:LONGEST].decode("utf-8", "ignore")
    owner = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    return target.with_name(f".{short}.{owner}.part")


def _alive(process: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it belongs to somebody else, or cannot be asked about
        return True
    return True


def _left(path: Path) -> bool:
    """Whether nobody writes this file any more, and it is an ordinary one of this user."""
    named = NAME.fullmatch(path.name)
    try:
        facts = path.lstat()
    except OSError:
        return False
    if named is None or not stat.S_ISREG(facts.st_mode) or not _ours(facts):
        return False
    if named[1] == _host():
        return not _alive(int(named[2]))
    return time.time() - facts.st_mtime > DAY


def _ours(facts: os.stat_result) -> bool:
    """Whether something belongs to the user of this process, where the system says so."""
    return not hasattr(os, "geteuid") or facts.st_uid == os.geteuid()


def _names(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [Path(entry.path) for entry in entries if pattern.fullmatch(entry.name)]
    return []


def prefix_in(folder: str | os.PathLike[str] | None, kind: str) -> str:
    """What the name of a temporary folder begins with: who uses it, so that a kill leaves nothing.

    Folders of processes of this machine and user that are there no more are removed on the way.

    Args:
        folder: Where it will be made. Default None: the system's place for temporary files.
        kind: What is in it, a word of small letters and digits.
    """
    for path in _names(Path(tempfile.gettempdir() if folder is None else folder), FOLDER):
        named = FOLDER.fullmatch(path.name)
        with contextlib.suppress(OSError):
            facts = path.lstat()
            if (
                named is not None and named[1] == _host() and not _alive(int(named[2]))
                and stat.S_ISDIR(facts.st_mode) and _ours(facts)
            ):  # fmt: skip
                shutil.rmtree(path, ignore_errors=True)
    return f"dprl-{kind}-{_host()}-{os.getpid()}-"


def clean(folder: Path) -> None:
    """Remove the unfinished files that killed runs left; once a process."""
    key = (os.getpid(), folder.absolute())
    if key in CLEANED:
        return
    CLEANED.add(key)
    for path in _names(folder, NAME):
        if _left(path):
            with contextlib.suppress(OSError):
                STEPS.remove(path)


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


@contextmanager
def locked(handle: int, *, shared: bool = False) -> Iterator[None]:
    """Wait until no other process holds the open file (or folder), and hold it meanwhile.

    Args:
        handle: The file descriptor.
        shared: Whether others may hold it too, as long as all of them do so.
    """
    if fcntl is None:
        yield
        return
    fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Wait for other processes that change files of the same folder in this way.

    The folder is held, not the file, which is another one after it was replaced.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        with locked(handle):
            yield
    finally:
        os.close(handle)


@dataclass
class _Ready:
    """A file that is written and synced, and waits to be put in its place."""

    part: Path
    target: Path


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
        ready = _Ready(beside(whole), target)
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

    After an error while they are written all of them are as they were. If the process is killed
    while they are put in their places, in the order in which they were written, some are missing.
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
    try:
        if len(files) > 1:
            for one in reversed(files):
                STEPS.remove(one.target)
            for folder in folders:
                STEPS.sync_folder(folder)
        for one in files:
            STEPS.rename(one.part, one.target)
    except BaseException:
        for one in reversed(files) if len(files) > 1 else ():
            STEPS.remove(one.target)
        raise
    _settle(folders, files)


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
        with contextlib.suppress(OSError):
            STEPS.remove(one.part)
