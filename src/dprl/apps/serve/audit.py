"""The audit: a record of answers that only grows, in a file of JSON lines.

An answer is on disk before it is given: where it cannot be stored, it is not given. Several
processes may write to one audit; they take turns by a lock on the file. Each line ends with a
SHA-256 over itself and the one before, so a line that was changed, or taken out before the last,
shows (`dprl.apps.serve.audit`). Lines cut off the end do not show. It protects against
accidents; who can write to the file could compute a new chain.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import hmac
import json
import math
import os
import queue
import re
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from dprl._core.disk import KINDS, check_target, locked
from dprl._core.table import compact
from dprl.errors import ParameterError, PolicyError

# --- The audit: a record of answers that only grows, in a file of JSON lines

try:
    import resource
except ImportError:  # not on this system
    resource = None  # type: ignore[assignment]


CHAIN = re.compile(rb',"chain":"([0-9a-f]{64})"\}$')
TAIL = 1 << 16
MOVED = "the audit was moved or removed while it was written to"
AUDIT_HOW = "Name with --audit a file in a folder that exists."


def now() -> str:
    """The time, UTC, ISO 8601 with microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def timed(text: str, time: str) -> str:
    """A line: the text of an entry, which is JSON, with the time before its members."""
    return f'{{"time":"{time}",{text[1:]}'


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
        self._waiting: list[tuple[Sequence[str], asyncio.Future[None]]] = []
        self._busy: asyncio.Task[None] | None = None

    async def store(self, texts: Sequence[str]) -> None:
        """Store entries; they are on disk when this returns, or an OSError says that they are not.

        Whoever stores at the same time shares one write.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((texts, done))
        if self._busy is None:
            self._busy = asyncio.create_task(self._drain())
        await done

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self.add, [text for texts, _ in batch for text in texts])
            except Exception as error:
                for _, done in batch:
                    if not done.done():
                        done.set_exception(OSError(str(error)))
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)
        self._busy = None

    def append(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Add entries to the file; an OSError where they are not stored."""
        self.add([compact(entry) for entry in entries])

    def add(self, texts: Sequence[str]) -> None:
        """Add entries that are JSON already; an OSError where they are not stored."""
        with locked(self._handle):
            if self.moved:
                self.failing = MOVED
                raise OSError(errno.ENOENT, MOVED)
            size = os.fstat(self._handle).st_size
            if size != self._size:  # another process wrote
                self._last, whole = _tail(self._handle, size)
            else:
                whole = True
            texts = [*self._withdrawn(), *texts]
            chain, lines = self._last, [] if whole else [b""]
            time = now()
            for entry in texts:
                text = timed(entry, time).encode()[:-1]
                chain = chained(chain, text)
                lines.append(text + b',"chain":"' + chain + b'"}')
            try:
                write_all(self._handle, b"\n".join(lines) + b"\n")
                os.fsync(self._handle)
            except OSError as error:
                self._take_back(size, texts)
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

    def _withdrawn(self) -> list[str]:
        undone = {"event": "not given", "requests": self._undone}
        return [compact(undone)] if self._undone else []

    def _take_back(self, size: int, texts: Sequence[str]) -> None:
        """Leave no half line behind, nor a line about an answer that is not given."""
        self._size = -1
        try:
            os.ftruncate(self._handle, size)
        except OSError:  # the file may only grow: say later what does not hold
            entries = map(json.loads, texts)
            self._undone += [str(e["request"]) for e in entries if "request" in e]

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            os.close(self._handle)


def size_of(handle: int) -> int:
    """The size of an audit, in bytes, while nobody is in the middle of a line."""
    with locked(handle, shared=True):
        return os.fstat(handle).st_size


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


# --- An audit read through: does its chain hold, and what does it tell?
#
# Every line must follow from the one before it. Three things are told apart:
#
# * a line that a crash cut short: it is the beginning of a line, without its end, and the lines
#   after it follow from the one before it. Its answer was never given.
# * a line that was changed, put in, or taken out: there the chain is broken.
# * a line that has no chain, but is whole: nothing that the service writes. It was put in or
#   changed.

BEGINNING = b'{"time":"'
"""What every line of an audit begins with."""
SHOWN = 10
"""Of so many torn lines the numbers are kept; more are only counted."""


@dataclass
class Answered:
    """The answers of one policy.

    Attributes:
        answers: Number of answers.
        first: Time of the first of them; '' where there is none.
        last: Time of the last of them; '' where there is none.
    """

    answers: int = 0
    first: str = ""
    last: str = ""


@dataclass
class AuditFacts:
    """What an audit holds, as far as its chain.

    Attributes:
        lines: Number of lines whose chain fits.
        torn: Number of lines that a crash cut short.
        torn_at: Numbers of the first of these lines, from 1.
        ends_torn: Whether the last line is one of them.
        broken: Number of the first line whose chain does not fit; None where all of them fit.
        why: What is wrong with that line.
        first: Time of the first line; '' where there is none.
        last: Time of the last line whose chain fits.
        chain: Chain of that line.
        events: Event → number of lines.
        policies: Digest of a policy → its answers; a policy that answered nothing is there, too.
        has: Whether a chain that was asked for is the chain of a line; None where none was.
    """

    lines: int = 0
    torn: int = 0
    torn_at: list[int] = field(default_factory=list)
    ends_torn: bool = False
    broken: int | None = None
    why: str = ""
    first: str = ""
    last: str = ""
    chain: str = ""
    events: Counter[str] = field(default_factory=Counter)
    policies: dict[str, Answered] = field(default_factory=dict)
    has: bool | None = None

    @property
    def answers(self) -> int:
        """Number of answers."""
        return self.events["answer"]

    @property
    def ok(self) -> bool:
        """Whether the chain holds to the end, and has the chain that was asked for."""
        return self.broken is None and self.has is not False

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        facts = {
            **vars(self),
            "events": dict(self.events),
            "policies": {digest: vars(answered) for digest, answered in self.policies.items()},
        }
        return {"ok": self.ok, "answers": self.answers, **facts}

    def _note(self, entry: dict[str, Any]) -> None:
        time, event = str(entry.get("time", "")), str(entry.get("event", ""))
        self.first, self.last = self.first or time, time
        self.events[event] += 1
        digest = entry.get("policy")
        if isinstance(digest, str):
            answered = self.policies.setdefault(digest, Answered())
            if event == "answer":
                answered.answers += 1
                answered.first, answered.last = answered.first or time, time


def read_audit(path: str | os.PathLike[str], chain: str = "") -> AuditFacts:
    """Read an audit through, up to the first line whose chain does not fit.

    The service may go on writing meanwhile: what it adds after the beginning is not read.

    Args:
        path: The file.
        chain: A chain that one of the lines must have. Default: none is asked for.

    Returns:
        What the lines tell. Lines that were cut off the end do not show: what is left is a whole
        chain, unless `chain` was kept elsewhere.

    Raises:
        ParameterError: The file cannot be read, or is no ordinary file.
    """
    facts = AuditFacts(has=False if chain else None)
    before = b""
    with _opened(path) as file:
        for number, line in enumerate(_lines(file), 1):
            text = line.rstrip(b"\n")
            match = CHAIN.search(text)
            facts.ends_torn = match is None
            if match is None:
                facts.why = _not_torn(text)
                if facts.why:
                    facts.broken = number
                    break
                facts.torn += 1
                facts.torn_at += [number] if facts.torn <= SHOWN else []
                continue
            entry = _entry(text)
            if match[1] != chained(before, text[: match.start()]) or entry is None:
                facts.broken, facts.why = number, "its chain does not fit"
                break
            before = match[1]
            facts.lines, facts.chain = facts.lines + 1, before.decode()
            facts.has = facts.has or (facts.chain == chain if chain else None)
            facts._note(entry)
    return facts


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
    facts = read_audit(path)
    if facts.broken is not None:
        raise PolicyError(
            f"{Path(path).name!r} was changed by other hands.",
            f"line {facts.broken}: {facts.why}",
            "Go back to a copy, or name another file with --audit.",
        )
    return {"lines": facts.lines, "torn": facts.torn}


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    check_ordinary(path, "the audit", AUDIT_HOW)
    try:
        with Path(path).open("rb") as file:
            yield file
    except OSError as error:
        raise ParameterError(
            f"the audit {str(path)!r} cannot be read: {error.strerror}."
        ) from error


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines that are there now; one that is just being written is waited for."""
    left = size_of(file.fileno())
    while left > 0 and (line := file.readline(left)):
        left -= len(line)
        yield line


def _entry(text: bytes) -> dict[str, Any] | None:
    """The entry of a line; None where it is no object of JSON."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _not_torn(text: bytes) -> str:
    """Why a line without a chain is no line that a crash cut short; '' where it may be one."""
    if _entry(text) is not None:
        return "it is whole, but has no chain"
    written = text.rstrip(b"\0")  # a disk may leave zeros where the end of a line was to be
    if not written.startswith(BEGINNING) and not BEGINNING.startswith(written):
        return "it is not the beginning of a line of an audit"
    return ""


# --- What the service writes down: a log of requests and answers, and an audit that only grows
#
# The log (`--log`) is for operators. Its lines are written by a thread, so a slow reader holds up
# no answer; lines that find no room are counted and lost.
#
# The audit (`--audit`) is for those who must know later what was answered
# (`dprl.apps.serve.audit`).
#
# Both are JSON lines. A state is written as a hash of its values, never as it is, unless asked.

ROOM = 10_000
"""Largest number of lines of the log that wait to be written."""
AT_ONCE = 8
"""Lines of the log in one write: a pipe takes 4,096 bytes without mixing those of processes."""
LOG_HOW = "Name with --log a file in a folder that exists, or - for standard output."
CARDS = ("card", "suggestion")
ANSWERED = ("action", "avoid", "defer", "kind", "in_range")
"""What an entry names only where there was a card: not where the policy deferred."""


def input_hash(state: Any, key: bytes = b"") -> str:
    """A hash of a state's values: the same for the same values, in whatever order.

    Without a key it is a plain SHA-256, and who can guess the values can check the guess.
    """
    text = compact(state, sort=True).encode()
    if key:
        return "hmac-sha256:" + hmac.new(key, text, hashlib.sha256).hexdigest()
    return "sha256:" + hashlib.sha256(text).hexdigest()


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
            check_ordinary(target, "the log", LOG_HOW)
        self._blocks: queue.SimpleQueue[list[str] | None] = queue.SimpleQueue()
        self._room = ROOM
        self._lock = threading.Lock()
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

    def put(self, entry: Mapping[str, Any]) -> None:
        """Have a line written soon."""
        self.add([compact(entry)])

    def add(self, texts: Sequence[str]) -> None:
        """Have entries written soon that are JSON already, as many as there is room for."""
        with self._lock:
            kept = texts[: self._room]
            self._room -= len(kept)
            self.lost += len(texts) - len(kept)
        time = now()
        if kept:
            self._blocks.put([timed(text, time) for text in kept])

    def close(self) -> None:
        """Write what waits, for at most two seconds, and close the file."""
        self._blocks.put(None)
        self._thread.join(2.0)
        if not self._thread.is_alive():
            with contextlib.suppress(OSError):
                os.close(self._handle)

    def _write(self) -> None:
        while (lines := self._blocks.get()) is not None:
            lost = 0
            for first in range(0, len(lines), AT_ONCE):
                part = lines[first : first + AT_ONCE]
                try:  # whole lines at once: those of several processes do not mix
                    write_all(self._handle, "".join(f"{line}\n" for line in part).encode())
                except OSError:  # a full disk, or a reader that has gone
                    lost += len(part)
            with self._lock:
                self._room += len(lines)
                self.lost += lost


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
        if self.audit is None and self.journal is None:
            return
        texts = [compact(entry) for entry in entries]
        if self.audit is not None:
            await self.audit.store(texts)
        if self.journal is not None:
            self.journal.add(texts)

    def of_answers(
        self,
        about: Mapping[str, Any],
        states: Sequence[Any],
        answers: Sequence[Mapping[str, Any]],
        seconds: float,
        first: int = 0,
    ) -> list[dict[str, Any]]:
        """One entry per answer; a reason is left out, because it may name a feature's value."""
        if self.audit is None and self.journal is None:
            return []
        silent = {k: v for k, v in about.items() if k not in CARDS}
        return [
            {
                "event": "answer",
                **(silent if answer["defer"] else about),
                "state": place,
                "input": input_hash(state, self.key),
                **{k: answer[k] for k in ANSWERED if k in answer},
                "seconds": round(seconds, 6),
                **({"features": state} if self.states else {}),
            }
            for place, (state, answer) in enumerate(zip(states, answers, strict=True), first)
        ]

    def close(self) -> None:
        """Write what waits, and close the files."""
        if self.journal is not None:
            self.journal.close()
        if self.audit is not None:
            self.audit.close()
