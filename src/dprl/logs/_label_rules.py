"""Labels that look the same to a person but differ for a computer: reported, never merged."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from dprl.logs._columns import Coded, Columns
from dprl.logs._doses import called
from dprl.logs._findings import Finding
from dprl.logs._text import fold

__all__ = ["look_alikes", "merged_labels", "spelled_twice", "spellings"]


def _text(column: Coded | None) -> tuple[str, ...]:
    """The labels of a column of text; an empty tuple for any other column."""
    if column is None or not column.labels or not isinstance(column.labels[0], str):
        return ()
    return column.labels


def spelled_twice(labels: Sequence[Any]) -> tuple[int, str] | None:
    """How many labels are another label in different code points, and the first two; None for none.

    'é' can be one code point, or an 'e' and an accent (Unicode calls the two forms NFC and NFD).
    """
    if not labels or not isinstance(labels[0], str) or all(map(str.isascii, labels)):
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
    """One word in two Unicode spellings: two patients or actions where there is only one."""
    for part in ("episode", "group", "action", "state"):
        twins = spelled_twice(_text(getattr(c, part)))
        if twins is not None:
            n, example = twins
            labels = f"{n:,} label{'s' * (n != 1)}"
            return Finding(
                "warning",
                "spellings",
                f"{called(c.names[part])!r} has {labels} that only Unicode spelling tells from "
                "another.",
                example,
                "They are counted apart; if they mean the same, write both in one form (NFC).",
            )
    return None


def merged_labels(c: Columns) -> Finding | None:
    """Labels that became one because they were to be trimmed or written small."""
    if not c.merged:
        return None
    each = [
        f"{before:,} labels of {name!r} became {after:,}" for name, before, after, _ in c.merged
    ]
    return Finding(
        "note",
        "merged_labels",
        f"labels were written alike, as was asked: {', '.join(each)}.",
        c.merged[0][3],
        "Look whether they mean the same. A policy writes labels alike too.",
    )


def look_alikes(c: Columns) -> Finding | None:
    """Labels that differ only in case, surrounding space or the form of their characters."""
    for part in ("action", "state"):
        seen: dict[str, str] = {}
        for label in _text(getattr(c, part)):
            normal_form = unicodedata.normalize("NFKC", label)
            twin = seen.setdefault(" ".join(normal_form.split()).casefold(), label)
            if twin != label and not spelled_twice((twin, label)):
                return Finding(
                    "warning",
                    "look_alikes",
                    f"{called(c.names[part])!r} has labels that differ only in case, spaces or the "
                    "form of characters.",
                    f"{twin!r} and {label!r}",
                    "They are counted apart; if they mean the same, make them the same"
                    + (
                        ': labels="trim,casefold" (--labels trim,casefold) does so.'
                        if fold(twin, "trim,casefold") == fold(label, "trim,casefold")
                        else "."
                    ),
                )
    return None
