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
from collections.abc import Generator, Iterator, Mapping, Sequence
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
CUT = "lines were cut off the audit, or changed, while it was written to"
SEGMENT = 1 << 25
"""Bytes after which an audit goes on in a new file; it also does with each new day, UTC."""
CHECKED = 2 * SEGMENT
"""Bytes at the end of an audit whose chain is checked when the service starts."""
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
        self._end = b"", -1  # the last chain, and the size, as this process left them
        self._whole_until = 0  # no new file is tried before this size
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
        while not self._added(texts):
            pass

    def _added(self, texts: Sequence[str]) -> bool:
        """Add entries; False where the audit goes on in another file, which is open now."""
        with locked(self._handle):
            if self._continued():
                self._follow()
                return False
            self.failing = self.lost
            if self.failing:
                raise OSError(errno.ENOENT, self.failing)
            size, time = os.fstat(self._handle).st_size, now()
            chain, whole = self._end[0], True
            if size != self._end[1]:  # another process wrote
                chain, whole = _tail(self._handle, size)
            if whole and self._is_full(size, time) and self._begin(chain, time):
                self._follow()
                return False
            texts = [*self._withdrawn(), *texts]
            if size == 0 and (before := segments(self.path)):  # its beginning was moved away
                chain = _last_chain(before[-1])
                texts = [_first(chain, len(before) + 1), *texts]
            lines = [] if whole else [b""]
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
            self._end = chain, os.fstat(self._handle).st_size
            self._undone, self.failing = [], ""
        return True

    @property
    def lost(self) -> str:
        """Why nobody would find what is added: the file was moved, removed or cut; '' if not."""
        if not self._is(self.path, otherwise=True) and not self._continued():
            return MOVED
        chain, size = self._end
        if size < 0 or not self._is(self.path, otherwise=True):
            return ""
        kept = os.pread(self._handle, len(chain), size - len(chain) - len(b'"}\n'))
        return "" if kept == chain else CUT

    # -- from one file to the next ---------------------------------------------------------------

    def _is(self, path: Path, *, otherwise: bool = False) -> bool:
        """Whether this is the file that is open; `otherwise` where nobody may look."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._handle))
        except FileNotFoundError:
            return False
        except OSError:  # the folder cannot be looked into now; writing says more
            return otherwise

    def _continued(self) -> bool:
        """Whether another process began the next file: ours is one of those before it."""
        if self._is(self.path, otherwise=True):
            return False
        return self.path.exists() and any(map(self._is, reversed(segments(self.path))))

    def _is_full(self, size: int, time: str) -> bool:
        """Whether the next line belongs into a new file."""
        day = os.pread(self._handle, len(time), len(BEGINNING)).decode("ascii", "replace")[:10]
        return size > self._whole_until and (size >= SEGMENT or "2" < day < time[:10])

    def _begin(self, chain: bytes, time: str) -> bool:
        """Begin the next file, which follows from this one; False where the system refuses.

        The name never is without a file: this one gets a second name first.
        """
        before = segments(self.path)
        if before and self._is(before[-1]):  # a crash came here between the two steps
            name = before.pop()
        else:
            number = 1 + max((int(path.suffix[1:]) for path in before), default=0)
            name = self.path.with_name(f"{self.path.name}.{number:06d}")
        text = timed(_first(chain, int(name.suffix[1:]) + 1), time).encode()[:-1]
        part = self.path.with_name(f"{self.path.name}.new")
        try:
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                write_all(handle, text + b',"chain":"' + chained(chain, text) + b'"}\n')
                os.fsync(handle)
            finally:
                os.close(handle)
            if not name.exists():
                os.link(self.path, name)
            part.replace(self.path)
        except OSError:  # a full disk, or a file that may only grow: go on in this one for now
            with contextlib.suppress(OSError):
                part.unlink()
            self._whole_until = os.fstat(self._handle).st_size + SEGMENT // 16
            return False
        return True

    def _follow(self) -> None:
        """Go on in the file that has the name now."""
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND)
        self._end, self._whole_until = (b"", -1), 0
        os.dup2(handle, self._handle, inheritable=False)
        os.close(handle)

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
        self._end = b"", -1
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


def segments(path: str | os.PathLike[str]) -> list[Path]:
    """The files of an audit before the one that has its name, in their order."""
    path = Path(path)
    named = re.compile(re.escape(path.name) + r"\.[0-9]{6,}")
    with contextlib.suppress(OSError):
        found = [p for p in path.absolute().parent.iterdir() if named.fullmatch(p.name)]
        return sorted(found, key=lambda p: int(p.suffix[1:]))
    return []


def _first(chain: bytes, number: int) -> str:
    """The entry that a file begins with which goes on where another ended."""
    return compact({"event": "segment", "number": number, "after": chain.decode()})


def _last_chain(path: Path) -> bytes:
    """The last chain of a file."""
    with path.open("rb") as file:
        return _tail(file.fileno(), os.fstat(file.fileno()).st_size)[0]


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
        chain: Chain of that line; where there is none, what the first line follows from.
        events: Event → number of lines.
        policies: Digest of a policy → its answers; a policy that answered nothing is there, too.
        has: Whether a chain that was asked for is the chain of a line; None where none was.
        files: Number of files.
        place: The file of the broken line, and its number in it; '' where there is none.
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
    files: int = 0
    place: str = ""

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


def read_audit(
    path: str | os.PathLike[str], chain: str = "", most: int | None = None
) -> AuditFacts:
    """Read an audit through all its files, up to the first line whose chain does not fit.

    Numbers of lines count through all files that are there; the first of them may go on where one
    ended that was put elsewhere.

    The service may go on writing meanwhile: what it adds after the beginning is not read.

    Args:
        path: The file.
        chain: A chain that one of the lines must have. Default: none is asked for.
        most: Bytes at the end of the last file that are read alone. Default None: everything.

    Returns:
        What the lines tell. Lines that were cut off the end do not show: what is left is a whole
        chain, unless `chain` was kept elsewhere.

    Raises:
        ParameterError: The file cannot be read, or is no ordinary file.
    """
    facts = AuditFacts(has=False if chain else None)
    with contextlib.closing(_lines_of_files(path, most, facts)) as lines:
        for number, (place, line) in enumerate(lines, 1):
            text = line.rstrip(b"\n")
            facts.place = place
            if number == 1 and not facts.chain:
                facts.chain = _chain_before(text)
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
            if match[1] != chained(facts.chain.encode(), text[: match.start()]) or entry is None:
                facts.broken, facts.why = number, "its chain does not fit"
                break
            facts.lines, facts.chain = facts.lines + 1, match[1].decode()
            facts.has = facts.has or (facts.chain == chain if chain else None)
            facts._note(entry)
        else:
            facts.place = ""
    return facts


def _lines_of_files(
    path: str | os.PathLike[str], most: int | None, facts: AuditFacts
) -> Generator[tuple[str, bytes]]:
    """The lines of all files, each with its place; those that are there now."""
    with _opened(path) as last:
        for earlier in segments(path) if most is None else ():
            with _opened(earlier) as file:
                if os.path.samestat(os.fstat(file.fileno()), os.fstat(last.fileno())):
                    break  # the last one has a second name by now
                facts.files += 1
                yield from _placed(earlier.name, file)
        facts.files += 1
        size = size_of(last.fileno())
        if most is not None and size > most:
            last.seek(size - most)
            last.readline()
            facts.chain = _tail(last.fileno(), last.tell())[0].decode()
        yield from _placed(Path(path).name, last)


def _placed(name: str, file: BinaryIO) -> Iterator[tuple[str, bytes]]:
    for number, line in enumerate(_lines(file), 1):
        yield f"{name}, line {number:,}", line


def _chain_before(text: bytes) -> str:
    """What the first line that is read follows from: nothing, or a file that is elsewhere."""
    entry = _entry(text) or {}
    return str(entry["after"]) if entry.get("event") == "segment" and "after" in entry else ""


def check_audit(path: str | os.PathLike[str], most: int | None = None) -> dict[str, int]:
    """Read an audit through and see that no line was changed, or taken out before the last.

    Lines that were cut off the end do not show: what is left is a whole chain.

    Args:
        path: The file.
        most: Bytes at the end of the last file that are read alone. Default None: everything.

    Returns:
        `lines`, the number of whole lines, and `torn`, the number of lines that a crash cut short.

    Raises:
        ParameterError: The file cannot be read, or is no ordinary file.
        PolicyError: A line does not follow from the one before it.
    """
    facts = read_audit(path, most=most)
    if facts.broken is not None:
        raise PolicyError(
            f"{Path(path).name!r} was changed by other hands.",
            f"{facts.place}: {facts.why}",
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
    left = size_of(file.fileno()) - file.tell()
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
