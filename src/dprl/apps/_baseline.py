"""Those who followed the policy where it first would have changed something, and the others.

Every group (episode, where there are no groups) of a log is described at the first of its decisions
at which the policy makes a change: what the state and the further columns of the table hold there.
Nothing is weighted; the table of balance does that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import to_json_value
from dprl.logs._categories import TRUTH
from dprl.logs._dates import SINCE
from dprl.logs._encoding import FAR, Encoding, encoding_of
from dprl.logs._gaps import GONE
from dprl.logs.log import Log

__all__ = ["Baseline", "BaselineRow", "baseline"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

MOST_LABELS = 6
"""Labels of one column that have a row of their own, the most frequent first."""
MOST_ROWS = 60
"""Rows of the table at most; how many more there are is told."""


@dataclass(frozen=True)
class BaselineRow:
    """One column (or one of its labels) in those who followed and in the others.

    Attributes:
        column: The column.
        label: One of its labels, whose share is told; None where the column holds numbers.
        followed: Mean, or share, of those who followed; None where nobody has a value.
        otherwise: The same of the others.
        sd_followed: Standard deviation of those who followed; None for labels.
        sd_otherwise: The same of the others.
        missing_followed: Number of those who followed that have no value.
        missing_otherwise: The same of the others.
        difference: Difference of the two means in standard deviations; None where it is not
            defined.
    """

    column: str
    label: str | None
    followed: float | None
    otherwise: float | None
    sd_followed: float | None
    sd_otherwise: float | None
    missing_followed: int
    missing_otherwise: int
    difference: float | None


@dataclass(frozen=True)
class Baseline:
    """The table of those who followed and the others.

    Attributes:
        unit: "episodes" or "groups".
        followed: Number that took the suggestion at their first change.
        otherwise: Number that did otherwise there.
        rows: One row per column of numbers, and per label of the others.
        left: Number of rows that are left out.
    """

    unit: str
    followed: int
    otherwise: int
    rows: tuple[BaselineRow, ...]
    left: int

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        return dict(to_json_value(asdict(self)))


def baseline(log: Log, changed: NDArray[np.bool_], took: NDArray[np.bool_]) -> Baseline:
    """Describe those who followed and the others.

    Args:
        log: The log, N rows.
        changed: bool (N,), where the policy makes a change.
        took: bool (N,), where what it says was done.
    """
    rows = np.flatnonzero(changed)
    episode = np.searchsorted(log.starts, rows, "right") - 1
    # The first of a group's rows is its first change.
    first = np.sort(rows[np.unique(log.group[episode], return_index=True)[1]])
    followed, others = first[took[first]], first[~took[first]]
    table = [row for one in _columns(log, first) for row in _rows(one, took[first])]
    unit = "episodes" if len(log.groups) == log.n_episodes else "groups"
    return Baseline(
        unit, len(followed), len(others), tuple(table[:MOST_ROWS]), max(len(table) - MOST_ROWS, 0)
    )


@dataclass(frozen=True, eq=False)
class _Column:
    """One column at some rows: numbers (NaN where missing), or codes into labels."""

    name: str
    values: Floats
    labels: tuple[str, ...] | None


def _columns(log: Log, rows: Ints) -> Iterator[_Column]:
    """Every column of the state, then the further ones, at these rows."""
    if log.state is not None:
        name = log.columns.get("state", "state")
        name = name if isinstance(name, str) else "state"
        yield _Column(name, log.state[rows].astype(np.float64), tuple(map(str, log.states)))
    elif log.features is not None:
        encoding = encoding_of(log.columns)
        days = log.columns.get("days", {})
        if encoding is not None and encoding.how == "indicators":
            own = [_as_read(encoding, name, log, rows) for name in encoding.columns]
        else:
            levels = log.levels or (None,) * len(log.feature_names)
            own = [
                _Column(name, log.features[rows, j], levels[j])
                for j, name in enumerate(log.feature_names)
            ]
        for column in own:
            since = f" (days since {SINCE})" if column.name in days else ""
            yield replace(column, name=f"{column.name}{since}")
    if log.also is not None:
        for j, name in enumerate(log.also.names):
            yield _Column(name, log.also.numbers(j, rows), log.also.levels[j])


def _as_read(encoding: Encoding, name: str, log: Log, rows: Ints) -> _Column:
    """A column as the log had it before it became indicators: labels, and gaps where they show.

    A gap that the median filled, without a flag, cannot be told from a value.
    """
    labels = encoding.columns[name]
    places = [log.feature_names.index(feature) for feature in encoding.indicators(name)]
    x = np.asarray(log.features)[rows][:, places]
    if labels is None or (len(places) == 1 and labels[:2] == TRUTH):
        gone = (x[:, 0] == FAR) | (x[:, -1] == 1.0 if len(places) > 1 else False)
        levels = log.levels[places[0]] if labels is None and log.levels else labels
        return _Column(name, np.where(gone, np.nan, x[:, 0]), levels)
    shown = [i for i, label in enumerate(labels) if label != GONE or not encoding.flagged(name)]
    marks = x[:, shown] == 1.0
    codes = np.where(marks.any(axis=1), marks.argmax(axis=1), np.nan)
    return _Column(name, codes, tuple(labels[i] for i in shown))


def _rows(column: _Column, took: NDArray[np.bool_]) -> Iterator[BaselineRow]:
    sides = column.values[took], column.values[~took]
    gone_a, gone_b = (int(np.isnan(side).sum()) for side in sides)
    a, b = (side[~np.isnan(side)] for side in sides)
    if column.labels is None:
        yield BaselineRow(
            column.name, None, _mean(a), _mean(b), _sd(a), _sd(b), gone_a, gone_b, _apart(a, b)
        )
        return
    codes = Counter(np.concatenate([a, b]).astype(np.int64).tolist())
    order = sorted(codes, key=lambda code: (-codes[code], code))
    for code in order[:MOST_LABELS]:
        x, y = (np.asarray(side == code, np.float64) for side in (a, b))
        yield BaselineRow(
            column.name,
            column.labels[code],
            _mean(x),
            _mean(y),
            None,
            None,
            gone_a,
            gone_b,
            _apart(x, y),
        )


def _mean(x: Floats) -> float | None:
    return float(x.mean()) if len(x) else None


def _sd(x: Floats) -> float | None:
    return float(x.std(ddof=1)) if len(x) > 1 else None


def _apart(x: Floats, y: Floats) -> float | None:
    """The difference of the means over the root of the mean variance."""
    if len(x) < 2 or len(y) < 2:
        return None
    spread = math.sqrt((float(x.var(ddof=1)) + float(y.var(ddof=1))) / 2)
    difference = float(x.mean() - y.mean())
    return difference / spread if spread > 0 else None if difference else 0.0
