"""The file of a monitor: what was seen since a policy was made, one line for every addition.

The first line says which policy and which settings; every further line is one addition: a mark for
each group, counts of visits, and the claims as they stood then. Lines are only ever added. Each
ends with a digest of itself and the line before, so a changed file is refused, and a line that was
not written to the end (a full disk, a power cut) is recognised and left out.

Marks are keyed hashes of the group's label, so that a group that comes again is not counted twice.
The key is in the file: who has it can test whether a known label is in it. It holds no labels, no
times of patients and no rewards, but counts of small groups: keep it as private as the policy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dprl._core.disk import append, check_target, replacing
from dprl.errors import PolicyError
from dprl.logs.log import Label

__all__ = ["Record", "marks_of"]

FORMAT = "dprl monitor 1"


def marks_of(groups: Sequence[Label], salt: str) -> list[str]:
    """One mark of 64 bits per group label; text and numbers differ."""
    key = bytes.fromhex(salt)
    kinds = ("t" if isinstance(g, str) else "n" for g in groups)
    words = (g if isinstance(g, str) else str(int(g)) for g in groups)
    return [
        hashlib.blake2b(
            f"{kind}{word}".encode("utf-8", "surrogatepass"), key=key, digest_size=8
        ).hexdigest()
        for kind, word in zip(kinds, words, strict=True)
    ]


class Record:
    """The lines of the file of a monitor.

    Attributes:
        path: The file; None while nothing is to be written.
        head: The first line: the policy and the settings.
        additions: One entry per addition.
        torn: Whether the last line of the file was not written to the end, and was left out.
    """

    def __init__(self, path: Path | None, head: dict[str, Any]) -> None:
        self.path, self.head, self.torn = path, head, False
        self.additions: list[dict[str, Any]] = []

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a file; refuse one that is damaged or of another kind."""
        lines = path.read_bytes().split(b"\n")
        torn = lines.pop() != b""
        entries, before = [], ""
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                check = entry.pop("check")
            except (ValueError, AttributeError, KeyError, RecursionError):
                raise _damaged(path, number) from None
            if check != _check(entry, before):
                raise _damaged(path, number)
            entries.append(entry)
            before = check
        if not entries or entries[0].get("format") != FORMAT:
            raise PolicyError(
                f"{str(path)!r} is not the file of a monitor.",
                do="Name another file (--record); it is made where there is none.",
            )
        record = cls(path, entries[0])
        record.additions, record.torn = entries[1:], torn
        return record

    def add(self, entry: dict[str, Any]) -> None:
        """Add one entry, in memory and to the file."""
        self.additions.append(entry)
        if self.path is None:
            return
        try:
            if len(self.additions) == 1 or self.torn or not self.path.exists():
                self.write(self.path)
            else:
                append(self.path, self._lines()[-1])
        except BaseException:
            self.additions.pop()  # it is not in the file
            raise

    def write(self, path: Path) -> None:
        """Write all of it to a file, which is replaced as a whole."""
        check_target(path)
        with replacing(path) as part:
            part.write_bytes(b"".join(self._lines()))
        self.path, self.torn = path, False

    def marks(self) -> set[str]:
        """The marks of all groups."""
        return {mark for entry in self.additions for mark in entry["groups"]}

    def _lines(self) -> list[bytes]:
        lines, before = [], ""
        for entry in (self.head, *self.additions):
            before = _check(entry, before)
            lines.append(json.dumps({**entry, "check": before}, ensure_ascii=True).encode() + b"\n")
        return lines


def _check(entry: dict[str, Any], before: str) -> str:
    text = before + json.dumps(entry, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _damaged(path: Path, number: int) -> PolicyError:
    return PolicyError(
        f"the file of a monitor was changed or is damaged, at line {number}.",
        str(path),
        "Take a copy from before, or begin again with another file and add all logs.",
    )


def together(one: Record, other: Record) -> Iterable[dict[str, Any]]:
    """The additions of two records of one policy, earlier ones first."""
    return sorted((*one.additions, *other.additions), key=lambda entry: str(entry["when"]))
