"""Whether those who took an action differ from others, where it should have been drawn by lot.

Features alone are compared, and when the step came in its episode; outcomes are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import say
from dprl.logs._categories import Levels

__all__ = ["Imbalance", "imbalance"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

LEAST, SURE = 0.1, 3.0
"""A feature differs where it does by more than LEAST standard deviations and SURE errors."""


@dataclass(frozen=True)
class Imbalance:
    """What differs most between those who took an action and those who did not.

    Attributes:
        words: What those who took it had, compared with others: "a higher age".
        size: The difference of the means, in standard deviations of all of them, above 0.
    """

    words: str
    size: float


def imbalance(
    x: Floats, names: tuple[str, ...], levels: Levels, step: Floats, took: Bools
) -> Imbalance | None:
    """The largest difference between two sets of independent states that is no accident.

    Args:
        x: float64 (n, d), features, one state per group; of categories, codes into their labels.
        names: The names of the d features.
        levels: The labels of categories, None for numbers; () where all are numbers.
        step: float64 (n,), the number of the step in its episode.
        took: bool (n,), whether the action was taken there.

    Returns:
        The difference; None where no feature differs by more than LEAST standard deviations and
        SURE standard errors.
    """
    worst: Imbalance | None = None
    for more, less, column in _columns(x, names, levels, step):
        measured = np.isfinite(column)
        sides = [column[measured & took], column[measured & ~took]]
        if min(len(side) for side in sides) < 2:
            continue
        difference = float(sides[0].mean() - sides[1].mean())
        spread = float(column[measured].std())
        error = float(np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides)))
        if abs(difference) <= max(LEAST * spread, SURE * error) or not spread:
            continue
        size = abs(difference) / spread
        if worst is None or size > worst.size:
            worst = Imbalance(more if difference > 0 else less, size)
    return worst


def _columns(
    x: Floats, names: tuple[str, ...], levels: Levels, step: Floats
) -> Iterator[tuple[str, str, Floats]]:
    """(words where takers have more, where they have less, numbers) for all that is compared."""
    for j, name in enumerate(names):
        gone = np.isnan(x[:, j])
        if gone.any():
            yield (*_often(f"{name} missing"), gone.astype(np.float64))
        labels = levels[j] if levels else None
        if labels is None:
            yield f"a higher {name}", f"a lower {name}", x[:, j]
            continue
        measured = np.isfinite(x[:, j])
        for code, label in enumerate(labels):
            yield (*_often(f"{name} {label}"), np.where(measured, x[:, j] == code, np.nan))
    yield say("a later step of the episode"), say("an earlier step of the episode"), step


def _often(what: str) -> tuple[str, str]:
    return f"{what} more often", f"{what} less often"
