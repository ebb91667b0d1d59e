r"""A yardstick for Γ from the log itself: what hiding a recorded column would be.

Nobody knows how strong an unrecorded cause is, but recorded ones can be measured. Let p be the
probability of the suggestion as a model says it from all columns of the state, and p' the one
without column j. Their odds ratio

    ρ = max(o/o', o'/o),   o = p/(1 - p)

at a decision says by how much hiding j moves the odds of treatment there. A column that is not in
the state is added instead, which says by how much it *does* move them. The summary is the `SHARE`
quantile over the decisions at which the policy differs from practice. Γ bounds every decision, but
the largest ρ of a sample is made by a few odd rows and by the noise of the model; so nine of ten
decisions must be within it.

The model is a logistic regression on lines and splines of each column (that of
`dprl.evidence._nuisance_models`), fitted to one half of the groups and asked about the other, and
the reverse. Models are noisy: a column of pure chance, added in the same way, is shown beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.evidence._cross_fit import Fit, gathered, in_threads, plan_fits
from dprl.evidence._nuisance_models import NUISANCES, Inputs, probabilities
from dprl.logs.log import Log

__all__ = ["CHANCE", "SHARE", "yardstick"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARE = 0.9
"""The share of decisions at which hiding the column moves the odds by no more than is said."""
CHANCE = "pure chance"
"""What the column of random numbers is called."""
LEAST = 40
"""With fewer decisions, or fewer that took or did not take the suggestion than half of it: none."""
EDGE = 1e-3
"""Probabilities are kept this far from 0 and 1 before odds are taken."""


@dataclass(frozen=True, eq=False)
class _Column:
    """A column: its numbers (n,), or codes of labels; how many labels, 0 for numbers."""

    name: str
    values: Floats
    labels: int = 0
    in_state: bool = True


def yardstick(
    log: Log,
    rows: Ints,
    suggested: Ints,
    seed: int,
    tell: Callable[[str, float], None],
) -> list[dict[str, Any]]:
    """What hiding each column would be, the largest first, with pure chance among them.

    Args:
        log: The log.
        rows: int64 (n,), the steps at which the policy differs from practice.
        suggested: int64 (n,), the code of the suggestion at each of them.
        seed: Seed of the halves and of the column of chance.
        tell: Called with the name of the stage and the share of it that is done.

    Returns:
        One dict per column: column, where ("state", "table" for one that is not in the state, or
        "chance") and gamma; an empty list where there are too few decisions.
    """
    took = (log.action[rows] == suggested).astype(np.int64)
    enough = len(rows) >= LEAST and LEAST / 2 <= took.sum() <= len(rows) - LEAST / 2
    group = np.unique(np.repeat(log.group, log.lengths)[rows], return_inverse=True)[1]
    if not enough or group.max() < 1:
        return []
    kept = [*_state(log, rows), *_suggestion(suggested)]
    further = _further(log, rows)
    chance = _Column(CHANCE, np.random.default_rng(seed).normal(size=len(rows)), in_state=False)
    fits = plan_fits(group.astype(np.int64), int(group.max()) + 1, 2, seed)
    models = [(c, [other for other in kept if other is not c]) for c in kept if c.name]
    models += [(column, [*kept, column]) for column in (*further, chance)]
    full = _log_odds(kept, took, fits)
    result = []
    for i, (column, inputs) in enumerate(models):
        tell("yardstick", i / len(models))
        moved = np.abs(full - _log_odds(inputs, took, fits))
        where = "chance" if column is chance else "state" if column.in_state else "table"
        gamma = float(np.exp(np.quantile(moved, SHARE)))
        result.append({"column": column.name, "where": where, "gamma": gamma})
    return sorted(result, key=lambda row: -row["gamma"])


def _log_odds(columns: Sequence[_Column], took: Ints, fits: Sequence[Fit]) -> Floats:
    """float64 (n,): log odds of taking the suggestion, each half of the groups from the other."""
    if not columns:
        share = np.clip(took.mean(), EDGE, 1 - EDGE)
        return np.full(len(took), np.log(share / (1 - share)))
    x = np.column_stack([column.values for column in columns]).astype(np.float64)
    numbers = [j for j, column in enumerate(columns) if not column.labels]
    kinds = Inputs(bool(np.isnan(x[:, numbers]).any()), tuple(c.labels for c in columns))
    model = NUISANCES["logistic"].model(kinds)
    answers = in_threads([partial(probabilities, model, x, took, 2, fit) for fit in fits])
    p = np.clip(gathered(fits, answers)[:, 1], EDGE, 1 - EDGE)
    return np.asarray(np.log(p / (1 - p)))


def _state(log: Log, rows: Ints) -> list[_Column]:
    """The columns of the state; labelled states are one column of labels."""
    if log.features is None:
        codes, places = np.unique(log.codes()[rows], return_inverse=True)
        name = log.columns.get("state")
        return [_Column(name if isinstance(name, str) else "state", _floats(places), len(codes))]
    levels = log.levels or (None,) * len(log.feature_names)
    return [
        _Column(name, log.features[rows, j], 0 if own is None else len(own))
        for j, (name, own) in enumerate(zip(log.feature_names, levels, strict=True))
    ]


def _suggestion(suggested: Ints) -> list[_Column]:
    """The suggestion as a nameless column that is always there; none where it is always one."""
    codes, places = np.unique(suggested, return_inverse=True)
    return [_Column("", _floats(places), len(codes))] if len(codes) > 1 else []


def _further(log: Log, rows: Ints) -> list[_Column]:
    """Columns of the table that are not in the state, where the log carries them."""
    also = getattr(log, "also", None)
    if also is None:
        return []
    return [
        _Column(name, also.numbers(j, rows), 0 if own is None else len(own), in_state=False)
        for j, (name, own) in enumerate(zip(also.names, also.levels, strict=True))
    ]


def _floats(codes: NDArray[Any]) -> Floats:
    return np.asarray(codes, np.float64)
