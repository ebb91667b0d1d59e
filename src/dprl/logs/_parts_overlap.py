"""The sample of the groups of a log in parts (see `dprl.logs._overlap`)."""

from __future__ import annotations

import heapq
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.logs._overlap import KEPT, KEYED, alike_of, contents, keyed_marks
from dprl.logs.log import Log
from dprl.logs.parts import Applied, LogInParts, Share

__all__ = ["sketch_of_parts"]

Beginnings = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""How groups begin, ascending, and how many groups begin so."""


def marks_of_part(log: Log, digest: str) -> list[str]:
    """The smallest marks of the groups of one part, ascending."""
    content = contents(log, np.arange(len(log.groups)))
    return heapq.nsmallest(KEPT, keyed_marks(log, content, digest))


def fewest(one: list[str], other: list[str]) -> list[str]:
    """The smallest marks of two parts together."""
    return heapq.nsmallest(KEPT, [*one, *other])


def beginnings_of_part(log: Log, low: int, high: int) -> Beginnings:
    """How the groups of one part begin, and how many so; only from `low` to `high`, inclusive."""
    content = contents(log, np.arange(len(log.groups)))
    inside = content[(content >= np.uint64(low)) & (content <= np.uint64(high))]
    values, counts = np.unique(inside, return_counts=True)
    return values, counts.astype(np.int64)


def add_beginnings(one: Beginnings, other: Beginnings) -> Beginnings:
    """The beginnings of two parts together."""
    values, place = np.unique(np.concatenate([one[0], other[0]]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, place, np.concatenate([one[1], other[1]]))
    return values, counts


def sketch_of_parts(parts: LogInParts, progress: Share | None = None) -> dict[str, Any]:
    """The sample of the groups of a log in parts, equal to that of the whole log.

    Beginnings of groups are 64 bits that look random: they are compared range by range, so that no
    more of them are held at once than the log allows.
    """
    marks = parts.reduce(Applied(marks_of_part, fewest, (parts.digest(),)), progress)
    passes = max(1, -(-2 * parts.n_groups // parts.rows))
    edges = [(1 << 64) * i // passes for i in range(passes + 1)]
    pairs = 0
    for low, above in itertools.pairwise(edges):
        _, counts = parts.reduce(Applied(beginnings_of_part, add_beginnings, (low, above - 1)))
        pairs += int((counts * (counts - 1)).sum())
    return {"version": KEYED, "alike": alike_of(parts.n_groups, pairs), "kept": marks}
