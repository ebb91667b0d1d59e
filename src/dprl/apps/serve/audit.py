"""The audit: a record of answers that only grows, in a file of JSON lines.

An answer is on disk before it is given: where it cannot be stored, it is not given. Several
processes may write to one audit; they take turns by a lock on the file. Each line ends with a
SHA-256 over itself and the one before, so a line that was changed, or taken out before the last,
shows (`dprl.apps.serve.audit_reading`). Lines cut off the end do not show. It protects against
accidents; who can write to the file could compute a new chain.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import math
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dprl._core.disk import KINDS, check_target
from dprl._core.table import to_json_value
from dprl.errors import ParameterError

try:
    import fcntl
except ImportError:  # not on this system: then only one process writes
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:  # not on this system
    resource = None  # type: ignore[assignment]

__all__ = ["Audit", "chained", "check_ordinary", "line_of", "now", "size_of", "write_all"]

CHAIN = re.compile(rb',"chain":"([0-9a-f]{64})"\}$')
TAIL = 1 << 16
MOVED = "the audit was moved or removed while it was written to"
AUDIT_HOW = "Name with --audit a file in a folder that exists."


def now() -> str:
    """The time, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def line_of(entry: dict[str, Any]) -> str:
    """An entry as one line of JSON in ASCII."""
    return json.dumps(to_json_value(entry), allow_nan=False, separators=(",", ":"))


def check_ordinary(path: str | os.PathLike[str], what: str, do: str) -> None:
    """Refuse a pipe, a device or a socket before it is opened: some wait, some never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # it does not exist, or opening it will say why not
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = next((words for test, words in KINDS if test(mode)), "something else")
        raise ParameterError(f"{what} must be an ordinary file.", f"{str(path)!r} is {kind}", do)


def write_all(handle: int, data: bytes) -> None:
    """Write all of it, or raise an OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def chained(before: bytes, text: bytes) -> bytes:
    """The chain of a line, given the chain of the line before."""
    return hashlib.sha256(before + b"\n" + text).hexdigest().encode()


class Audit:
    """An append-only record of answers, kept in a file of JSON lines.

    Args:
        path: The file; it is made where there is none, for its owner's eyes alone.

    Attributes:
        failing: Why the latest lines could not be stored; '' where they were.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.failing = Path(path), ""
        check_ordinary(self.path, "the audit", AUDIT_HOW)
        check_target(self.path)
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise ParameterError(
                f"the audit cannot be kept in {str(path)!r}: {error.strerror}.",
                do=AUDIT_HOW,
            ) from error
        self._last, self._size = b"", -1
        self._undone: list[str] = []
        self._waiting: list[tuple[list[dict[str, Any]], asyncio.Future[None]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def store(self, entries: list[dict[str, Any]]) -> None:
        """Store entries; they are on disk when this returns, or an OSError says that they are not.

        Whoever stores at the same time shares one write.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((entries, done))
        if self._busy is None:
            self._busy = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self.append, [e for entries, _ in batch for e in entries])
            except Exception as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(OSError(str(error)))
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        self._busy = None

    def append(self, entries: list[dict[str, Any]]) -> None:
        """Add entries to the file; an OSError where they are not stored."""
        with self._locked():
            if self.moved:
                self.failing = MOVED
                raise OSError(errno.ENOENT, MOVED)
            size = os.fstat(self._handle).st_size
            if size != self._size:  # another process wrote
                self._last, whole = _tail(self._handle, size)
            else:
                whole = True
            entries = self._withdrawn() + entries
            chain, lines = self._last, [] if whole else [b""]
            for entry in entries:
                text = line_of({"time": now(), **entry}).encode()[:-1]
                chain = chained(chain, text)
                lines.append(text + b',"chain":"' + chain + b'"}')
            try:
                write_all(self._handle, b"\n".join(lines) + b"\n")
                os.fsync(self._handle)
            except OSError as error:
                self._take_back(size, entries)
                self.failing = error.strerror or str(error)
                raise
            self._last, self._size = chain, os.fstat(self._handle).st_size
            self._undone, self.failing = [], ""

    @property
    def moved(self) -> bool:
        """Whether the file was moved or removed: then nobody would find what is added to it."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return True
        except OSError:  # the folder cannot be looked into now; writing says more
            return False
        return not os.path.samestat(there, os.fstat(self._handle))

    def room(self) -> float:
        """How many bytes the file can still grow by: room on its disk, and what limits allow.

        Quotas of a user do not show here. Infinity where the system does not say.
        """
        room = math.inf
        with contextlib.suppress(OSError, AttributeError):  # not on this system
            disk = os.fstatvfs(self._handle)
            if disk.f_blocks:  # some disks do not say how large they are
                room = float(disk.f_bavail * disk.f_frsize)
        if resource is not None:
            most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
            if most != resource.RLIM_INFINITY:
                room = min(room, float(max(0, most - os.fstat(self._handle).st_size)))
        return room

    def _withdrawn(self) -> list[dict[str, Any]]:
        return [{"event": "not given", "requests": self._undone}] if self._undone else []

    def _take_back(self, size: int, entries: list[dict[str, Any]]) -> None:
        """Leave no half line behind, nor a line about an answer that is not given."""
        self._size = -1
        try:
            os.ftruncate(self._handle, size)
        except OSError:  # the file may only grow: say later what does not hold
            self._undone += [str(e["request"]) for e in entries if "request" in e]

    @contextlib.contextmanager
    def _locked(self) -> Any:
        if fcntl is None:
            yield
            return
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self._handle)


def size_of(handle: int) -> int:
    """The size of an audit, in bytes, while nobody is in the middle of a line."""
    if fcntl is None:
        return os.fstat(handle).st_size
    fcntl.flock(handle, fcntl.LOCK_SH)
    try:
        return os.fstat(handle).st_size
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _tail(handle: int, size: int) -> tuple[bytes, bool]:
    """The chain of the last whole line, and whether the file ends with a newline.

    A line of which nothing but its newline is missing is whole, as it is for whoever reads it.
    """
    span = TAIL
    while True:
        begin = max(0, size - span)
        data = os.pread(handle, size - begin, begin)
        lines = data.split(b"\n")
        for line in reversed(lines[1:] if begin else lines):
            match = CHAIN.search(line)
            if match:
                return match[1], data.endswith(b"\n")
        if begin == 0:
            return b"", not data or data.endswith(b"\n")
        span *= 4
