"""Labels that a person takes for one and a computer for two: told, never merged."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from dprl.logs._columns import Coded, Columns
from dprl.logs._findings import Finding

__all__ = ["look_alikes", "spelled_twice", "spellings"]


def _text(column: Coded | None) -> tuple[str, ...]:
    """The labels of a column of text; none of any other."""
    if column is None or not column.labels or not isinstance(column.labels[0], str):
        return ()
    return column.labels


def spelled_twice(labels: Sequence[Any]) -> tuple[int, str] | None:
    """How many labels are another one in other code points, and the first two; None for none.

    'é' can be one code point or an 'e' and an accent (Unicode calls it NFC and NFD).
    """
    if all(not isinstance(label, str) or label.isascii() for label in labels):
        return None
    seen: dict[str, str] = {}
    twins = []
    for label in labels:
        first = seen.setdefault(unicodedata.normalize("NFC", label), label)
        if first != label:
            twins.append((first, label))
    if not twins:
        return None
    first, second = twins[0]
    return len(twins), f"{first!r}, written as {first!a} and as {second!a}"


def spellings(c: Columns) -> Finding | None:
    """One word in two spellings of Unicode: two patients, two actions, where one was meant."""
    for part in ("episode", "group", "action", "state"):
        found = spelled_twice(_text(getattr(c, part)))
        if found is not None:
            n, example = found
            labels = f"{n:,} label{'s' * (n != 1)}"
            return Finding(
                "warning",
                "spellings",
                f"{c.names[part]!r} has {labels} that only Unicode spelling tells from another.",
                example,
                "They are counted apart; if they mean the same, write both in one form (NFC).",
            )
    return None


def look_alikes(c: Columns) -> Finding | None:
    """Labels that differ only in case, surrounding space or the form of their characters."""
    for part in ("action", "state"):
        seen: dict[str, str] = {}
        for label in _text(getattr(c, part)):
            plain = unicodedata.normalize("NFKC", label)
            twin = seen.setdefault(" ".join(plain.split()).casefold(), label)
            if twin != label and not spelled_twice((twin, label)):
                return Finding(
                    "warning",
                    "look_alikes",
                    f"{c.names[part]!r} has labels that differ only in case, spaces or the form "
                    "of characters.",
                    f"{twin!r} and {label!r}",
                    "They are counted apart; if they mean the same, make them the same.",
                )
    return None
