"""What the service writes down: a log of requests and answers, and an audit that only grows.

The log (`--log`) is for operators. Its lines are written by a thread, so a slow reader holds up no
answer; lines that find no room are counted and lost.

The audit (`--audit`) is for those who must know later what was answered. An answer is on disk
before it is given: where it cannot be stored, it is not given. Several processes may write to one
audit; they take turns by a lock on the file. Each line ends with a SHA-256 over itself and the one
before, so a line that was changed, or taken out before the last, shows (`check_audit`). Lines cut
off the end do not show. It protects against accidents; who can write to the file could compute a
new chain.

Both are JSON lines. A state is written as a hash of its values, never as it is, unless asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import queue
import re
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dprl._core.disk import KINDS, check_target
from dprl._core.table import to_json_value
from dprl.errors import ParameterError, PolicyError

try:
    import fcntl
except ImportError:  # not on this system: then only one process writes
    fcntl = None  # type: ignore[assignment]

__all__ = ["Audit", "Journal", "Records", "check_audit", "input_hash"]

ROOM = 10_000
"""Largest number of lines of the log that wait to be written."""
CHAIN = re.compile(rb',"chain":"([0-9a-f]{64})"\}$')
TAIL = 1 << 16
LOG_HOW = "Name with --log a file in a folder that exists, or - for standard output."
AUDIT_HOW = "Name with --audit a file in a folder that exists."
CARDS = ("card", "suggestion")
"""What an entry names only where there was a card: not where the policy deferred."""


def now() -> str:
    """The time, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def line_of(entry: dict[str, Any]) -> str:
    """An entry as one line of JSON in ASCII."""
    return json.dumps(to_json_value(entry), allow_nan=False, separators=(",", ":"))


def input_hash(state: Any, key: bytes = b"") -> str:
    """A hash of a state's values: the same for the same values, in whatever order.

    Without a key it is a plain SHA-256, and who can guess the values can check the guess.
    """
    text = json.dumps(to_json_value(state), sort_keys=True, separators=(",", ":")).encode()
    if key:
        return "hmac-sha256:" + hmac.new(key, text, hashlib.sha256).hexdigest()
    return "sha256:" + hashlib.sha256(text).hexdigest()


def _check_ordinary(path: str | os.PathLike[str], what: str, do: str) -> None:
    """Refuse a pipe, a device or a socket before it is opened: some wait, some never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # it does not exist, or opening it will say why not
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        kind = next((words for test, words in KINDS if test(mode)), "something else")
        raise ParameterError(f"{what} must be an ordinary file.", f"{str(path)!r} is {kind}", do)


class Journal:
    """The log: lines go into a queue, and a thread writes them.

    Args:
        target: A file that lines are added to; "-" is standard output.

    Attributes:
        lost: Number of lines that could not be written.
    """

    def __init__(self, target: str) -> None:
        self.lost = 0
        if target != "-":
            _check_ordinary(target, "the log", LOG_HOW)
        self._lines: queue.Queue[str | None] = queue.Queue(ROOM)
        try:
            self._handle = (
                os.dup(sys.stdout.fileno())
                if target == "-"
                else os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            )
        except OSError as error:
            raise ParameterError(
                f"the log cannot be written to {target!r}: {error.strerror}.",
                do=LOG_HOW,
            ) from error
        self._thread = threading.Thread(target=self._write, name="dprl-log", daemon=True)
        self._thread.start()

    def put(self, entry: dict[str, Any]) -> None:
        """Have a line written soon."""
        try:
            self._lines.put_nowait(line_of({"time": now(), **entry}))
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Write what waits, for at most two seconds, and close the file."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(2.0)
        if not self._thread.is_alive():
            with contextlib.suppress(OSError):
                os.close(self._handle)

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:  # one write per line: lines of several processes do not mix
                _write_all(self._handle, line.encode() + b"\n")
            except OSError:  # a full disk, or a reader that has gone
                self.lost += 1


def _chained(before: bytes, text: bytes) -> bytes:
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
        _check_ordinary(self.path, "the audit", AUDIT_HOW)
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
            size = os.fstat(self._handle).st_size
            if size != self._size:  # another process wrote
                self._last, whole = _tail(self._handle, size)
            else:
                whole = True
            entries = self._withdrawn() + entries
            chain, lines = self._last, [] if whole else [b""]
            for entry in entries:
                text = line_of({"time": now(), **entry}).encode()[:-1]
                chain = _chained(chain, text)
                lines.append(text + b',"chain":"' + chain + b'"}')
            try:
                _write_all(self._handle, b"\n".join(lines) + b"\n")
                os.fsync(self._handle)
            except OSError as error:
                self._take_back(size, entries)
                self.failing = error.strerror or str(error)
                raise
            self._last, self._size = chain, os.fstat(self._handle).st_size
            self._undone, self.failing = [], ""

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


@dataclass(frozen=True)
class Records:
    """What is written down, and how.

    Attributes:
        journal: The log of requests and answers; None where there is none.
        audit: The audit of answers; None where there is none.
        states: Whether states are written as they are, besides their hash.
        key: Key of the hash of a state; empty for a plain SHA-256.
    """

    journal: Journal | None = None
    audit: Audit | None = None
    states: bool = False
    key: bytes = b""

    async def put(self, entries: list[dict[str, Any]]) -> None:
        """Write entries to the audit, then to the log; an OSError where the audit has no room."""
        if self.audit is not None:
            await self.audit.store(entries)
        if self.journal is not None:
            for entry in entries:
                self.journal.put(entry)

    def of_answers(
        self,
        about: Mapping[str, Any],
        states: Sequence[Any],
        answers: Sequence[Mapping[str, Any]],
        seconds: float,
    ) -> list[dict[str, Any]]:
        """One entry per answer; a reason is left out, because it may name a feature's value."""
        if self.audit is None and self.journal is None:
            return []
        return [
            {
                "event": "answer",
                **{k: v for k, v in about.items() if k not in CARDS or not answer["defer"]},
                "state": place,
                "input": input_hash(state, self.key),
                **{k: answer[k] for k in ("action", "defer", "kind", "in_range")},
                "seconds": round(seconds, 6),
                **({"features": state} if self.states else {}),
            }
            for place, (state, answer) in enumerate(zip(states, answers, strict=True))
        ]

    def close(self) -> None:
        """Write what waits, and close the files."""
        if self.journal is not None:
            self.journal.close()
        if self.audit is not None:
            self.audit.close()


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _tail(handle: int, size: int) -> tuple[bytes, bool]:
    """The chain of the last whole line, and whether the file ends with a whole line."""
    span = TAIL
    while True:
        begin = max(0, size - span)
        data = os.pread(handle, size - begin, begin)
        lines = data.split(b"\n")
        for line in reversed(lines[1:-1] if begin else lines[:-1]):
            match = CHAIN.search(line)
            if match:
                return match[1], data.endswith(b"\n")
        if begin == 0:
            return b"", not data or data.endswith(b"\n")
        span *= 4


def check_audit(path: str | os.PathLike[str]) -> dict[str, int]:
    """Read an audit through and see that no line was changed, or taken out before the last.

    Lines that were cut off the end do not show: what is left is a whole chain.

    Args:
        path: The file.

    Returns:
        `lines`, the number of whole lines, and `torn`, the number of lines that a crash cut short.

    Raises:
        ParameterError: The file cannot be read, or is no ordinary file.
        PolicyError: A line does not follow from the one before it.
    """
    before, lines, torn = b"", 0, 0
    _check_ordinary(path, "the audit", AUDIT_HOW)
    try:
        file = Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise ParameterError(
            f"the audit {str(path)!r} cannot be read: {error.strerror}."
        ) from error
    with file:
        for number, line in enumerate(file, 1):
            text = line.rstrip(b"\n")
            match = CHAIN.search(text)
            if match is None:
                torn += 1
            elif match[1] == _chained(before, text[: match.start()]):
                before, lines = match[1], lines + 1
            else:
                raise PolicyError(
                    f"{Path(path).name!r} was changed by other hands.",
                    f"line {number}: its chain does not fit",
                    "Go back to a copy, or name another file with --audit.",
                )
    return {"lines": lines, "torn": torn}
