"""Feedback on cards: read as CDS Hooks 2.0 has it, and compared with the cards that were given.

Which cards were given is in the audit, whatever process gave them. Feedback on another card is
stored all the same (an older audit may hold the card), and marked.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dprl.apps.serve.replies import RefusedError
from dprl.errors import DprlError

__all__ = ["cards_given", "identifier", "marked", "read_feedback"]

MOST_FEEDBACK, COMMENT = 100, 4000
BLOCK, FAR_BACK = 1 << 20, 1 << 28
"""Bytes of the audit that are read at once, and that are looked through at most, from its end."""
OUTCOMES = ("accepted", "overridden")
SHAPE = "See 'Feedback' in CDS Hooks 2.0, and GET /openapi.json."


def read_feedback(body: Mapping[str, Any], service: str) -> list[dict[str, Any]]:
    """What is to be stored of feedback; a RefusedError (400) where it has another shape.

    Args:
        body: The body of the request.
        service: The id of the service.
    """
    given = body.get("feedback")
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_FEEDBACK:
        raise _odd(f"'feedback' must be an array of 1 to {MOST_FEEDBACK} entries.", "feedback")
    return [{"service": service, **_entry(one, f"feedback[{i}]")} for i, one in enumerate(given)]


def _entry(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _odd("feedback must be an object.", where)
    entry: dict[str, Any] = {"card": _own_id(given.get("card"), f"{where}.card")}
    entry["outcome"] = given.get("outcome")
    if entry["outcome"] not in OUTCOMES:
        raise _odd("the outcome must be 'accepted' or 'overridden'.", f"{where}.outcome")
    entry["outcome_time"] = _moment(given.get("outcomeTimestamp"), f"{where}.outcomeTimestamp")
    accepted, place = given.get("acceptedSuggestions"), f"{where}.acceptedSuggestions"
    if entry["outcome"] == "accepted":
        if not isinstance(accepted, list) or not 1 <= len(accepted) <= MOST_FEEDBACK:
            raise _odd("an accepted card needs the suggestions that were accepted.", place)
        entry["suggestions"] = [
            _own_id(one.get("id") if isinstance(one, Mapping) else None, f"{place}[{i}].id")
            for i, one in enumerate(accepted)
        ]
        if given.get("overrideReason") is not None:
            raise _odd("an accepted card has no reason for not following it.",
                       f"{where}.overrideReason")  # fmt: skip
        return entry
    if accepted:
        raise _odd("an overridden card has no accepted suggestions.", place)
    if given.get("overrideReason") is not None:
        entry["override"] = _override(given["overrideReason"], f"{where}.overrideReason")
    return entry


def _override(given: Any, where: str) -> dict[str, str]:
    reason = given.get("reason", {}) if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(reason, Mapping):
        raise _odd("an override reason must be an object with 'reason' or 'userComment'.", where)
    texts = {
        **{k: reason[k] for k in ("code", "system", "display") if k in reason},
        **({"comment": given["userComment"]} if "userComment" in given else {}),
    }
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > COMMENT:
            raise _odd(f"{name!r} must be text of at most {COMMENT:,} characters.", where)
    if "code" not in texts and not texts.get("comment"):
        raise _odd("an override reason needs the code of a reason, or a comment.", where)
    return texts


def _odd(what: str, where: str) -> RefusedError:
    """The refusal of feedback that has another shape than the specification's."""
    return RefusedError(400, "feedback", DprlError(what, where, SHAPE))


def identifier(given: Any) -> str:
    """An id as UUIDs are written; a ValueError for anything else: ids must be found again."""
    if not isinstance(given, str) or len(given) > 45:
        raise ValueError
    return str(uuid.UUID(given))


def _own_id(given: Any, where: str) -> str:
    try:
        return identifier(given)
    except ValueError:
        raise _odd("an id must be a UUID.", where) from None


def _moment(given: Any, where: str) -> str:
    try:
        if not isinstance(given, str) or "T" not in given or len(given) > 40:
            raise ValueError
        time = datetime.fromisoformat(given)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise _odd("a time must be written as 2021-12-11T10:05:31Z.", where) from None


# -- the cards that were given ---------------------------------------------------------------------


def cards_given(
    path: str | os.PathLike[str], asked: Collection[str]
) -> tuple[dict[str, str], bool]:
    """Card → its suggestion ('' where it had none), for those of the ids `asked` that were given.

    The audit is read from its end, at most FAR_BACK bytes of it, until all of them are there.

    Returns:
        The cards, and whether any other was certainly not given: the whole audit was read.
    """
    cards: dict[str, str] = {}
    wanted = re.compile(b"|".join(re.escape(f'"card":"{card}"'.encode()) for card in asked))
    with Path(path).open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        first, rest = max(0, end - FAR_BACK), b""
        while end > first and len(cards) < len(asked):
            begin = max(first, end - BLOCK)
            file.seek(begin)
            block = file.read(end - begin) + rest
            head, _, whole = block.partition(b"\n") if begin else (b"", b"", block)
            rest, end = head, begin
            if wanted.search(whole):
                for line in whole.split(b"\n"):
                    if wanted.search(line):
                        _add_card(line, cards)
    return cards, first == 0


def _add_card(line: bytes, cards: dict[str, str]) -> None:
    """Note the card that a line of the audit says was given."""
    try:
        entry = json.loads(line)
    except ValueError:  # a line that a crash cut short
        return
    if isinstance(entry, dict) and entry.get("event") in ("answer", "no answer"):
        cards[str(entry["card"])] = str(entry.get("suggestion", ""))


def marked(
    entries: list[dict[str, Any]], cards: Mapping[str, str], whole: bool
) -> list[dict[str, Any]]:
    """Entries of feedback with "given": whether their card, and its suggestion, was given here.

    Args:
        entries: What `read_feedback` returned.
        cards: The cards that were given, each with its suggestion.
        whole: Whether any other card was certainly not given; else "given" is None.
    """
    result = []
    for entry in entries:
        given: bool | None = None
        if entry["card"] in cards:
            own = cards[entry["card"]]
            given = all(one == own for one in entry.get("suggestions", ()))
        elif whole:
            given = False
        result.append({**entry, "given": given})
    return result
