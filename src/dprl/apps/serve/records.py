"""What the service writes down: a log of requests and answers, and an audit that only grows.

The log (`--log`) is for operators. Its lines are written by a thread, so a slow reader holds up no
answer; lines that find no room are counted and lost.

The audit (`--audit`) is for those who must know later what was answered
(`dprl.apps.serve.audit`).

Both are JSON lines. A state is written as a hash of its values, never as it is, unless asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dprl._core.table import to_json_value
from dprl.apps.serve.audit import Audit, check_ordinary, line_of, now, write_all
from dprl.apps.serve.audit_reading import check_audit
from dprl.errors import ParameterError

__all__ = ["Audit", "Journal", "Records", "check_audit", "input_hash"]

ROOM = 10_000
"""Largest number of lines of the log that wait to be written."""
LOG_HOW = "Name with --log a file in a folder that exists, or - for standard output."
CARDS = ("card", "suggestion")
"""What an entry names only where there was a card: not where the policy deferred."""


def input_hash(state: Any, key: bytes = b"") -> str:
    """A hash of a state's values: the same for the same values, in whatever order.

    Without a key it is a plain SHA-256, and who can guess the values can check the guess.
    """
    text = json.dumps(to_json_value(state), sort_keys=True, separators=(",", ":")).encode()
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
                write_all(self._handle, line.encode() + b"\n")
            except OSError:  # a full disk, or a reader that has gone
                self.lost += 1


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
