"""Labels that look the same to a person but differ for a computer: reported, never merged."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from dprl._core.words import option, worded
from dprl.logs._columns import Coded, Columns
from dprl.logs._doses import called
from dprl.logs._findings import Finding
from dprl.logs._text import fold

__all__ = ["look_alikes", "merged_labels", "spelled_twice", "spellings", "texts"]


def _text(column: Coded | None) -> tuple[str, ...]:
    """The labels of a column of text; an empty tuple for any other column."""
    if column is None or not column.labels or not isinstance(column.labels[0], str):
        return ()
    return column.labels


def texts(c: Columns, *parts: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name of the column, labels) of the columns of text in `parts`, then of all categories."""
    for part in parts:
        labels = _text(getattr(c, part))
        if labels:
            yield called(c.names[part]), labels
    for name, levels in zip(c.feature_names, c.levels, strict=False):
        if levels and isinstance(levels[0], str):
            yield name, levels


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
    for name, column in texts(c, "episode", "group", "action", "state"):
        twins = spelled_twice(column)
        if twins is not None:
            n, example = twins
            labels = f"{n:,} label{'s' * (n != 1)}"
            return Finding(
                "warning",
                "spellings",
                f"{name!r} has {labels} that only Unicode spelling tells from another.",
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
    pairs = {}
    for name, labels in texts(c, "action", "state"):
        seen: dict[str, str] = {}
        for label in labels:
            normal_form = unicodedata.normalize("NFKC", label)
            twin = seen.setdefault(" ".join(normal_form.split()).casefold(), label)
            if twin != label and not spelled_twice((twin, label)):
                pairs[name] = (twin, label)
                break
    if not pairs:
        return None
    names = list(map(repr, pairs))
    listed = (
        f"{', '.join(names[:-1])} and {names[-1]} have" if len(names) > 1 else f"{names[0]} has"
    )
    twin, label = next(iter(pairs.values()))
    folded = all(
        fold(one, "trim,casefold") == fold(other, "trim,casefold") for one, other in pairs.values()
    )
    return Finding(
        "warning",
        "look_alikes",
        f"{listed} labels that differ only in case, spaces or the form of characters.",
        f"{twin!r} and {label!r}",
        "They are counted apart; if they mean the same, make them the same"
        + (
            worded(": {labels} does so.", labels=option("labels", "trim,casefold"))
            if folded
            else "."
        ),
    )
