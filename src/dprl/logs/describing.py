"""The columns of a log as they were read, and Table 1: who was there, by what was done.

Table 1 is about the first decision of every episode (of every group, where there are some): what
was known of a patient before anything was done. Nothing in it is weighted, and nothing tested; the
largest difference between two sides, in standard deviations, says in what they are not alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.table import Table, first_few, many
from dprl.errors import ParameterError
from dprl.logs.encoding.categories import TRUTH
from dprl.logs.encoding.encoder import FAR, Encoding, encoding_of
from dprl.logs.encoding.gaps import GONE
from dprl.logs.reading.dates import SINCE

if TYPE_CHECKING:
    from dprl.logs.log import Log

SIDES, LABELS = 12, 12
"""Sides that Table 1 compares at most, and labels of a column that have a line each."""


@dataclass(frozen=True, eq=False)
class Column:
    """One column at some rows: numbers (NaN where missing), or codes into labels.

    Attributes:
        name: Its name.
        values: float64 (k,), the numbers or codes.
        labels: What codes stand for; None where they are numbers.
    """

    name: str
    values: Floats
    labels: tuple[str, ...] | None


def columns_at(log: Log, rows: Ints) -> Iterator[Column]:
    """Every column of the state, then the further ones, at these rows.

    Args:
        log: The log.
        rows: Some of its rows.
    """
    if log.state is not None:
        name = log.columns.get("state", "state")
        name = name if isinstance(name, str) else "state"
        yield Column(name, log.state[rows].astype(np.float64), tuple(map(str, log.states)))
    elif log.features is not None:
        encoding = encoding_of(log.columns)
        days = log.columns.get("days", {})
        if encoding is not None and encoding.how == "indicators":
            own = [_as_read(encoding, name, log, rows) for name in encoding.columns]
        else:
            levels = log.levels or (None,) * len(log.feature_names)
            own = [
                Column(name, log.features[rows, j], levels[j])
                for j, name in enumerate(log.feature_names)
            ]
        for column in own:
            since = f" (days since {SINCE})" if column.name in days else ""
            yield replace(column, name=f"{column.name}{since}")
    if log.also is not None:
        for j, name in enumerate(log.also.names):
            yield Column(name, log.also.numbers(j, rows), log.also.levels[j])


def _as_read(encoding: Encoding, name: str, log: Log, rows: Ints) -> Column:
    """A column as the log had it before it became indicators: labels, and gaps where they show.

    A gap that the median filled, without a flag, cannot be told from a value.
    """
    labels = encoding.columns[name]
    places = [log.feature_names.index(feature) for feature in encoding.indicators(name)]
    x = np.asarray(log.features)[rows][:, places]
    if labels is None or (len(places) == 1 and labels[:2] == TRUTH):
        gone = (x[:, 0] == FAR) | (x[:, -1] == 1.0 if len(places) > 1 else False)
        levels = log.levels[places[0]] if labels is None and log.levels else labels
        return Column(name, np.where(gone, np.nan, x[:, 0]), levels)
    shown = [i for i, label in enumerate(labels) if label != GONE or not encoding.flagged(name)]
    marks = x[:, shown] == 1.0
    codes = np.where(marks.any(axis=1), marks.argmax(axis=1), np.nan)
    return Column(name, codes, tuple(labels[i] for i in shown))


def table_one(log: Log, by: str | None = "action") -> Table:
    """Table 1 of a log: every column at first decisions, by what was done or by another column.

    Args:
        log: The log.
        by: "action", a column of labels, or None for all alone.

    Raises:
        ParameterError: There is no such column, it holds numbers, or it has too many labels.
    """
    rows = _first(log)
    sides, code = _sides(log, rows, by)
    masks = [np.ones(len(rows), bool), *(code == k for k in range(len(sides)))]
    names = ["all", *(name if name not in ("all", "column", "what", "difference") else f"{name} "
                      for name in sides)]  # fmt: skip
    table: dict[str, list[Any]] = {"column": [], "what": []} | {name: [] for name in names}
    table["difference"] = []

    def add(column: str, what: str, values: Sequence[float], apart: float | None) -> None:
        table["column"].append(column)
        table["what"].append(what)
        for name, value in zip(names, values, strict=True):
            table[name].append(value)
        table["difference"].append(apart)

    unit = "episodes" if len(log.groups) == log.n_episodes else "groups"
    add(unit, "number", [int(mask.sum()) for mask in masks], None)
    for column in columns_at(log, rows):
        if column.name == by:
            continue
        for what, values, apart in _lines(column, masks):
            add(column.name, what, values, apart)
    beside = "" if by is None else f" by {by}"
    return Table(
        table,
        f"Table 1: {many(len(rows), unit[:-1])} at their first decision{beside}",
        note="difference: the largest one between two sides, in standard deviations; above 0.1 is "
        "large. Nothing is weighted or tested.",
        identifiers=frozenset({"column", "what"}),
    )


def _first(log: Log) -> Ints:
    """The first row of every episode, or of every group's first episode in the log."""
    first = log.starts[:-1][np.diff(log.starts) > 0]
    group = log.group[np.diff(log.starts) > 0]
    return np.asarray(np.sort(first[np.unique(group, return_index=True)[1]]))


def _sides(log: Log, rows: Ints, by: str | None) -> tuple[list[str], Ints]:
    """The names of the sides, and on which of them each row is; -1 where that is missing."""
    if by is None:
        return [], np.full(len(rows), -1)
    if by == "action":
        labels, code = [str(action) for action in log.actions], log.action[rows].astype(np.int64)
    else:
        columns = {one.name: one for one in columns_at(log, rows)}
        if by not in columns or columns[by].labels is None:
            known = ["action", *(name for name, one in columns.items() if one.labels is not None)]
            raise ParameterError(
                f"{by!r} is no column of labels of this log.",
                f"there are {first_few(known, SIDES)}",
                "Name one of them, or the action.",
                argument="by",
            )
        labels = list(columns[by].labels or ())
        code = np.nan_to_num(columns[by].values, nan=-1).astype(np.int64)
    used = np.unique(code[code >= 0])
    if len(used) > SIDES:
        raise ParameterError(
            f"{by!r} has {len(used)} labels, and a table compares at most {SIDES}.",
            do="Name a column with fewer labels.",
            argument="by",
        )
    place = np.full(len(labels) + 1, -1)
    place[used] = np.arange(len(used))
    return [labels[k] for k in used], place[code]


def _lines(
    column: Column, masks: Sequence[Bools]
) -> Iterator[tuple[str, list[float], float | None]]:
    """The lines of one column: (what, its value on every side, the largest difference)."""
    x, gone = column.values, np.isnan(column.values)
    sides = [x[mask & ~gone] for mask in masks]
    if column.labels is None:
        means = [_mean(side) for side in sides]
        deviations = [float(side.std(ddof=1)) if len(side) > 1 else np.nan for side in sides]
        pooled = float(np.sqrt(np.mean(np.square(deviations[1:])))) if len(sides) > 1 else 0.0
        yield "mean", means, _largest(means[1:], pooled)
        yield "sd", deviations, None
    else:
        codes, counts = np.unique(x[~gone].astype(np.int64), return_counts=True)
        for code in codes[np.argsort(-counts, kind="stable")][:LABELS].tolist():
            shares = [_mean(side == code) for side in sides]
            spread = [share * (1 - share) for share in shares[1:]]
            pooled = float(np.sqrt(np.mean(spread))) if spread else 0.0
            yield f"share {column.labels[code]}", shares, _largest(shares[1:], pooled)
    if gone.any():
        yield "missing", [_mean(gone[mask]) for mask in masks], None


def _mean(values: Floats | Bools) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _largest(values: Sequence[float], deviation: float) -> float | None:
    """The largest difference of two values in standard deviations; None where there is none."""
    there = [value for value in values if np.isfinite(value)]
    if len(there) < 2 or not deviation > 0:
        return None
    return (max(there) - min(there)) / deviation
