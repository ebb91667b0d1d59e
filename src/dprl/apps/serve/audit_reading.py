"""An audit read through: does its chain hold, and what does it tell?

Every line must follow from the one before it. Three things are told apart:

* a line that a crash cut short: it is the beginning of a line, without its end, and the lines after
  it follow from the one before it. Its answer was never given.
* a line that was changed, put in, or taken out: there the chain is broken.
* a line that has no chain, but is whole: nothing that the service writes. It was put in or changed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dprl.apps.serve.audit import AUDIT_HOW, CHAIN, chained, check_ordinary, size_of
from dprl.errors import ParameterError, PolicyError

__all__ = ["AuditFacts", "check_audit", "read_audit"]

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
