"""What the past of a visit may tell: earlier actions, states and rewards, and the step's number.

Each candidate divides visits into categories; category 0 is "none", where the episode had not
begun. Numbers are binned by quantiles of the whole log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import N_, say, say_many, word
from dprl.logs.log import Log

__all__ = ["Candidate", "Kind", "bins", "candidates", "within_cells"]

Kind: TypeAlias = Literal["action", "state", "reward", "step"]
Codes: TypeAlias = NDArray[np.int32]

MOST_BINS = 5
NUMBERS = (
    N_("no"), N_("one"), N_("two"), N_("three"), N_("four"), N_("five"), N_("six"), N_("seven"),
    N_("eight"), N_("nine"),
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One thing in the past that may tell what comes next.

    Attributes:
        kind: What it is.
        lag: How many steps before; 0 for the number of the step.
        code: int32 (M,), the category of each visit.
        words: What people call each category.
    """

    kind: Kind
    lag: int
    code: Codes
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """A short name for tables."""
        return "step number" if self.kind == "step" else f"{self.kind} {self.lag} before"

    @property
    def phrase(self) -> str:
        """What it is, within a sentence."""
        if self.kind == "step":
            return say("the number of the step in its episode")
        count = word(NUMBERS[self.lag]) if self.lag < len(NUMBERS) else str(self.lag)
        what = {
            "action": say("the action"),
            "state": say("the state"),
            "reward": say("the reward"),
        }[self.kind]
        return say_many(
            "{what} {count} step before",
            "{what} {count} steps before",
            self.lag,
            what=what,
            count=count,
        )


def bins(values: NDArray[np.float64]) -> tuple[Codes, tuple[str, ...]]:
    """At most five bins of about equal shares, and a text for each; equal values share a bin."""
    distinct = np.unique(values)
    if len(distinct) <= MOST_BINS:
        code = np.searchsorted(distinct, values)
    else:
        shares = np.arange(1, MOST_BINS) / MOST_BINS
        edges = np.unique(np.quantile(values, shares, method="inverted_cdf"))
        ways = [np.searchsorted(edges, values, side=side) for side in ("left", "right")]
        code = max(ways, key=lambda way: len(np.unique(way)))  # the first of equals
        code = np.unique(code, return_inverse=True)[1]
    n = int(code.max()) + 1 if len(code) else 0
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, code, values)
    np.maximum.at(high, code, values)
    words = tuple(
        f"{a:.4g}" if a == b else f"{a:.4g} to {b:.4g}"
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    )
    return code.astype(np.int32), words


def candidates(log: Log, rows: NDArray[np.int64], lags: int) -> list[Candidate]:
    """The candidates at some rows of a log whose states are labels."""
    begin = np.repeat(log.starts[:-1], log.lengths)
    step = np.arange(log.n_steps) - begin
    reward, reward_words = bins(log.reward)
    number, number_words = bins((step + 1).astype(np.float64))
    columns: list[tuple[Kind, Codes, tuple[str, ...]]] = [
        ("action", log.action, tuple(repr(label) for label in log.actions)),
        ("state", log.codes(), tuple(repr(label) for label in log.states)),
        ("reward", reward, tuple(f"a reward of {word}" for word in reward_words)),
    ]
    made: list[Candidate] = []
    for lag in range(1, lags + 1):
        inside = step[rows] >= lag
        for kind, column, words in columns:
            code = np.zeros(len(rows), np.int32)
            code[inside] = column[rows[inside] - lag] + 1
            made.append(Candidate(kind, lag, code, ("none (the episode had not begun)", *words)))
    steps = tuple(f"step {word}" for word in number_words)
    return [*made, Candidate("step", 0, number[rows], steps)]


def within_cells(
    cell: NDArray[np.int64], code: Codes, n_categories: int
) -> tuple[Codes, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Categories numbered from 0 within each cell.

    Args:
        cell: int64 (M,), sorted numbers of cells, each of 0..C-1 at least once.
        code: int32 (M,), the category of each visit.
        n_categories: The number of categories.

    Returns:
        The number of each visit's category within its cell (M,); and for all categories of all
        cells, one after another: where each cell's begin (C + 1,), their code, their size.
    """
    key = cell * n_categories + code
    keys, inverse, size = np.unique(key, return_inverse=True, return_counts=True)
    begin = np.searchsorted(keys // n_categories, np.arange(cell[-1] + 2))
    return (inverse - begin[cell]).astype(np.int32), begin, keys % n_categories, size
