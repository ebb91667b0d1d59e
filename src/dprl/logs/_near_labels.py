"""Labels that may be one word written twice ('noradrenaline', 'Noradrenalin'): pointed out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from dprl.logs._columns import Coded, Columns
from dprl.logs._doses import called
from dprl.logs._findings import Finding

__all__ = ["near_labels", "near_words"]

MOST = 200
"""Columns with more labels are not looked at: every pair would be compared."""
SHORT = 5
"""Words with fewer letters may well differ by one letter and mean different things."""
SHOWN = 3


def near_labels(c: Columns) -> Finding | None:
    """Labels that differ in one letter too many, or in two that changed places, with counts."""
    for name, column in _columns(c):
        if not 1 < len(column.labels) <= MOST or not isinstance(column.labels[0], str):
            continue
        words = [" ".join(str(label).split()).casefold() for label in column.labels]
        pairs = [
            (i, j)
            for (i, a), (j, b) in itertools.combinations(enumerate(words), 2)
            if near_words(a, b)
        ]
        if not pairs:
            continue
        rows = np.bincount(column.codes[column.codes >= 0], minlength=len(words))
        listed = [
            f"{column.labels[i]!r} ({rows[i]:,} rows) and {column.labels[j]!r} ({rows[j]:,})"
            for i, j in pairs[:SHOWN]
        ]
        more = f", {len(pairs) - SHOWN:,} more pairs" if len(pairs) > SHOWN else ""
        return Finding(
            "note",
            "near_labels",
            f"{name!r} has labels that may be one word written twice: {'; '.join(listed)}{more}.",
            do="They are counted apart; if they mean the same, make them the same.",
        )
    return None


def _columns(c: Columns) -> Iterator[tuple[str, Coded]]:
    """(name, column) of the action, of labelled states, and of every category of the state."""
    for part in ("action", "state"):
        column: Coded | None = getattr(c, part)
        if column is not None:
            yield called(c.names[part]), column
    for i, (name, levels) in enumerate(zip(c.feature_names, c.levels, strict=False)):
        if levels and c.features is not None:
            values = c.features[:, i]
            codes = np.where(np.isnan(values), -1, values).astype(np.int32)
            yield name, Coded(codes, levels)


def near_words(a: str, b: str) -> bool:
    """Whether one letter was left out, or two neighbours changed places."""
    if len(a) > len(b):
        a, b = b, a
    if len(a) < SHORT or len(b) - len(a) > 1 or a == b:
        return False
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(a) < len(b):
        return b[at].isalpha() and a[at:] == b[at + 1 :]
    swapped = a[:at] + a[at + 1 : at + 2] + a[at] + a[at + 2 :]
    return swapped == b and a[at : at + 2].isalpha()
