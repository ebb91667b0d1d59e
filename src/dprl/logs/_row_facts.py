"""What the checks of a log ask of its rows, each computed once: by no more passes than needed."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Coded", "RowFacts", "blocks", "is_large", "some_missing"]

LARGE = 100_000
"""From so many rows on, compiled loops pay for the time it takes to load them."""

BLOCK = 1 << 16
"""Rows that are looked at together."""


def blocks(n: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, few enough of them at a time that all steps of a check stay in the cache."""
    for first in range(0, n, BLOCK):
        yield first, min(first + BLOCK, n)


def some_missing(column: Coded) -> bool:
    """Whether a label is missing."""
    return bool(len(column.codes)) and bool(column.codes.min() < 0)


def is_large(rows: int) -> bool:
    """Whether a column of so many rows is worth compiled loops."""
    return rows >= LARGE


@dataclass(frozen=True)
class Coded:
    """A column of labels: codes (N,) into `labels`, -1 where missing."""

    codes: NDArray[np.int32]
    labels: tuple[Any, ...]

    def at(self, row: int) -> Any:
        """The label of a row, which is not missing."""
        return self.labels[self.codes[row]]


class ByTime(NamedTuple):
    """Rows in the order of their episode and time.

    Attributes:
        order: (N,), the row that comes first, second and so on.
        moved: Whether rows of an episode do not follow each other in time.
        twins: Whether two rows of an episode have the same time.
    """

    order: NDArray[Any]
    moved: bool
    twins: bool


class RowFacts:
    """Facts about the rows of a source, computed when they are asked for first."""

    episode: Coded
    reward: NDArray[np.float64]
    time: NDArray[Any] | None
    time_missing: NDArray[np.bool_] | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.reward)

    @functools.cached_property
    def reward_span(self) -> tuple[float, float]:
        """The smallest and the largest reward; NaN where one is missing, 0 without rows."""
        if not self.n:
            return 0.0, 0.0
        return float(self.reward.min()), float(self.reward.max())

    @functools.cached_property
    def _incomplete(self) -> bool:
        """Whether an episode or a time is missing somewhere, or it is not known."""
        if self.time is not None and (self.time_missing is None or self.time_missing.any()):
            return True
        return some_missing(self.episode)

    @functools.cached_property
    def in_order(self) -> bool:
        """Whether no episode or time is missing, and rows stand by episode and rising time."""
        if self._incomplete:
            return False
        e, t = self.episode.codes, self.time
        for a, b in blocks(self.n):
            before, here = slice(max(a, 1) - 1, b - 1), slice(max(a, 1), b)
            right = e[here] > e[before]
            right |= (e[here] == e[before]) if t is None else (
                (e[here] == e[before]) & (t[here] > t[before])
            )  # fmt: skip
            if not right.all():
                return False
        return True

    @property
    def _loops_apply(self) -> bool:
        """Whether compiled loops sort these rows: many rows, nothing missing, plain times."""
        too_fine = self.time is not None and self.time.dtype.itemsize > 8
        return is_large(self.n) and not self._incomplete and not too_fine

    def _sort_episodes(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The order of `by_episode`, and where each episode ends in it."""
        from dprl.logs._code_loops import by_episode

        order = np.empty(self.n, np.int32 if self.n < 2**31 else np.int64)
        ends = np.zeros(len(self.episode.labels) + 1, np.int64)
        by_episode(self.episode.codes, ends, order)
        return order, ends

    @property
    def by_episode(self) -> NDArray[Any] | None:
        """The order that brings the rows of an episode together, as they follow each other.

        None for few rows, and where an episode or a time is missing. Not kept: it is large.
        """
        return self._sort_episodes()[0] if self._loops_apply else None

    @functools.cached_property
    def by_time(self) -> ByTime | None:
        """The order that sorts rows by episode and time; None where `by_episode` is, or no time."""
        if not self._loops_apply or self.time is None:
            return None
        from dprl.logs._code_loops import sort_within

        order, ends = self._sort_episodes()
        time = self.time
        if time.dtype.kind in "mM":
            time = time.view(np.int64)
        elif time.dtype not in (np.float64, np.uint64):
            time = time.astype(np.float64 if time.dtype.kind == "f" else np.int64, copy=False)
        return ByTime(order, *sort_within(time, ends, order))
