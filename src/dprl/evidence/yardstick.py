"""A yardstick for Γ from the log itself: what hiding a recorded column would be.

Nobody knows how strong an unrecorded cause is, but recorded ones can be measured. Let p be the
probability of the suggestion as a model says it from all columns of the state, and p' the one
without column j. Their odds ratio

    ρ = max(o/o', o'/o),   o = p/(1 - p)

at a decision says by how much hiding j moves the odds of treatment there. A column that is not in
the state is added instead, which says by how much it *does* move them. `gamma` is the `SHARE`
quantile over the decisions at which the policy differs from practice. Γ bounds every decision, but
the largest ρ of a sample is made by a few odd rows and by the noise of the model; so nine of ten
decisions must be within it. `per_sd` is the factor by which the odds move while a column of numbers
moves by one standard deviation and all others stay: a cause that lies so far apart between two
patients does that between them.

The model is a logistic regression on lines and splines of each column (`dprl.evidence.models`),
fitted to one half of the groups and asked about the other, and the reverse. Models are noisy, the
more so the more labels a column has or the odder its numbers are spread. So each column has its own
level of `chance`: the same column shuffled (between groups where it is the same all through a
group) and added to the columns that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints
from dprl._core.words import say
from dprl.evidence.models import (
    NUISANCES,
    Fit,
    Inputs,
    gathered,
    in_threads,
    plan_fits,
    probabilities,
)
from dprl.logs.log import Log

SHARE = 0.9
"""The share of decisions at which hiding the column moves the odds by no more than is said."""
SHUFFLES = 2
"""How often a column is shuffled for its level of chance."""
LEAST, MOST = 40, 5_000
"""With fewer decisions, or fewer that took or did not take the suggestion than half of it, there is
no yardstick; more are not looked at (whole groups, drawn at random)."""
EDGE = 1e-3
"""Probabilities are kept this far from 0 and 1 before odds are taken."""


@dataclass(frozen=True, eq=False)
class _Column:
    """A column: its numbers (n,), or codes of labels; how many labels, 0 for numbers."""

    name: str
    values: Floats
    labels: int = 0
    in_state: bool = True


def hidden_columns(
    log: Log,
    rows: Ints,
    suggested: Ints,
    seed: int,
    tell: Callable[[str, float], None] | None = None,
) -> list[dict[str, Any]]:
    """What hiding each column would be, the largest first.

    Args:
        log: The log.
        rows: int64 (n,), the steps at which the policy differs from practice.
        suggested: int64 (n,), the code of the suggestion at each of them.
        seed: Seed of the halves and of the shuffles.
        tell: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        One dict per column: column, where ("state", or "table" for one that is not in the state),
        gamma, per_sd (None for labels) and chance; an empty list where there are too few decisions.
    """
    rng = np.random.default_rng(seed)
    group = np.repeat(log.group, log.lengths)[rows].astype(np.int64)
    if len(rows) > MOST:
        chosen = np.cumsum(np.bincount(group)[order := rng.permutation(int(group.max()) + 1)])
        use = np.isin(group, order[: int(np.searchsorted(chosen, MOST)) + 1])
        rows, suggested, group = rows[use], suggested[use], group[use]
    took = (log.action[rows] == suggested).astype(np.int64)
    if not (len(rows) >= LEAST and LEAST / 2 <= took.sum() <= len(rows) - LEAST / 2):
        return []
    group = np.unique(group, return_inverse=True)[1].astype(np.int64)
    if group.max() < 1:
        return []
    kept = [*_state(log, rows), *_suggestion(suggested)]
    fits = plan_fits(group, int(group.max()) + 1, 2, seed)
    full = _log_odds(kept, took, fits)[0]
    measured, columns = [], [*(c for c in kept if c.name), *_further(log, rows)]
    for i, column in enumerate(columns):
        if tell is not None:
            tell("yardstick", i / len(columns))
        rest = [other for other in kept if other is not column]
        without = _log_odds(rest, took, fits)[0] if column.in_state else full
        asked = _log_odds([*rest, column], took, fits, moved=not column.labels)
        noise = [
            _factor(_log_odds([*rest, _shuffled(column, group, rng)], took, fits)[0] - without)
            for _ in range(SHUFFLES)
        ]
        measured.append({
            "column": column.name, "where": "state" if column.in_state else "table",
            "gamma": _factor(asked[0] - without),
            "per_sd": None if column.labels else float(np.exp(np.abs(asked[1] - asked[2]).mean())),
            "chance": float(np.exp(np.log(noise).mean())),
        })  # fmt: skip
    return sorted(measured, key=lambda row: -row["gamma"])


def yardstick_words(measured: Sequence[Mapping[str, Any]]) -> str:
    """What the strongest column would be, beside a Γ*, in a sentence; "" where none matters."""
    if not measured or measured[0]["gamma"] < 1.005:  # it would print as 1.00
        return ""
    row = measured[0]
    numbers = {"column": str(row["column"]), "gamma": row["gamma"], "chance": row["chance"]}
    far = say(" ({per_sd:.2f} for one standard deviation)", per_sd=row["per_sd"] or 1.0)
    far = far if row["per_sd"] is not None else ""
    if row["where"] == "state":
        return say(
            "To compare: hiding {column} alone would be Γ = {gamma:.2f}{far}; by chance it would "
            "be {chance:.2f}.",
            **numbers,
            far=far,
        )
    return say(
        "To compare: {column}, which is not in the state, is Γ = {gamma:.2f}{far}; by chance it "
        "would be {chance:.2f}.",
        **numbers,
        far=far,
    )


def _factor(moved: Floats) -> float:
    """The factor within which the odds move at `SHARE` of the decisions."""
    return float(np.exp(np.quantile(np.abs(moved), SHARE)))


def _shuffled(column: _Column, group: Ints, rng: np.random.Generator) -> _Column:
    """The column as pure chance would have it, in the same numbers."""
    first = np.unique(group, return_index=True)[1]
    of_group = column.values[first]
    same = np.array_equal(of_group[group], column.values, equal_nan=True)
    values = rng.permutation(of_group)[group] if same else rng.permutation(column.values)
    return replace(column, values=values)


def _log_odds(
    columns: Sequence[_Column], took: Ints, fits: Sequence[Fit], *, moved: bool = False
) -> Floats:
    """float64 (1, n): log odds of taking the suggestion, each half of the groups from the other.

    With `moved` (3, n): also if the last column were half a standard deviation more, and less.
    """
    n = len(took)
    if not columns:
        share = np.clip(took.mean(), EDGE, 1 - EDGE)
        return np.full((1, n), np.log(share / (1 - share)))
    x = np.column_stack([column.values for column in columns]).astype(np.float64)
    numbers = [j for j, column in enumerate(columns) if not column.labels]
    kinds = Inputs(bool(np.isnan(x[:, numbers]).any()), tuple(c.labels for c in columns))
    if moved:
        half = np.zeros(x.shape[1])
        half[-1] = np.nanstd(x[:, -1]) / 2
        x = np.concatenate([x, x + half, x - half])
        held = [np.concatenate([fit.held + k * n for k in range(3)]) for fit in fits]
        fits = [replace(fit, held=rows) for fit, rows in zip(fits, held, strict=True)]
    model = NUISANCES["splines"].model(kinds)
    answers = in_threads([partial(probabilities, model, x, took, 2, fit) for fit in fits])
    p = np.clip(gathered(fits, answers)[:, 1], EDGE, 1 - EDGE)
    return np.asarray(np.log(p / (1 - p))).reshape(-1, n)


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
