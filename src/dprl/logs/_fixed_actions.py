"""Columns that fix the action: the dose that was given, left among what is known beforehand.

Where a column tells the action, nothing can be compared: at one value of it everybody did the same.
A column tells the action if, of the errors that one makes by naming the most frequent action
always, nearly none is left by naming the most frequent action at each value of the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import option, worded
from dprl.logs._doses import column_label
from dprl.logs._findings import Finding
from dprl.logs.log import Log

__all__ = ["Telling", "fixed_actions", "telling"]

NEARLY = 0.95
"""A column that takes away this share of the errors fixes the action."""
ROWS = 200_000
"""The most rows that are looked at, spread over the log."""
EACH = 20
"""Rows that a value, or a range of values, has on average at least."""
RANGES = 256
"""The most ranges into which numbers are cut."""
SHOWN = 4


class Telling(NamedTuple):
    """How well a column tells the action.

    Attributes:
        right: Share of rows with the most frequent action of their value.
        usual: Share of rows with the most frequent action of all.
        values: Number of values, or of ranges of values.
    """

    right: float
    usual: float
    values: int

    @property
    def fixes(self) -> bool:
        """Whether the column fixes the action, completely or nearly."""
        return self.usual < 1 and 1 - self.right <= (1 - NEARLY) * (1 - self.usual)


def telling(column: NDArray[np.float64], action: NDArray[np.int32]) -> Telling | None:
    """How well a column tells the action; None where its values are too many to say so.

    Args:
        column: (N,), numbers or codes of labels; NaN where missing, which is a value of its own.
        action: (N,), codes of the actions.
    """
    n = len(column)
    most = min(RANGES, n // EACH)
    if most < 2:
        return None
    values, groups = np.unique(column, return_inverse=True)
    groups = groups.reshape(-1)
    if len(values) > most:
        edges = np.unique(np.nanquantile(column, np.linspace(0, 1, most)[1:-1]))
        groups = np.where(np.isnan(column), len(edges) + 1, np.searchsorted(edges, column))
    n_actions = int(action.max()) + 1
    cells, rows = np.unique(groups.astype(np.int64) * n_actions + action, return_counts=True)
    best = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(best, cells // n_actions, rows)
    usual = int(np.bincount(action).max())
    return Telling(int(best.sum()) / n, usual / n, int((best > 0).sum()))


def _columns(log: Log, rows: slice) -> Iterator[tuple[str, str, NDArray[np.float64]]]:
    """Where a column stands ("state" or "also"), its name, and its values."""
    if log.features is not None:
        for j, name in enumerate(log.feature_names):
            yield "state", name, log.features[rows, j]
    else:
        yield (
            "state",
            column_label(log.columns.get("state", "state")),
            log.codes()[rows].astype(float),
        )
    if log.also is not None:
        for j, name in enumerate(log.also.names):
            yield "also", name, log.also.numbers(j, rows)


def fixed_actions(log: Log) -> Finding | None:
    """Columns of the state, or beside it, that fix the action completely or nearly."""
    rows = slice(None, None, max(1, log.n_steps // ROWS))
    action = log.action[rows]
    telling_columns: dict[str, list[tuple[str, Telling]]] = {"state": [], "also": []}
    for where, name, column in _columns(log, rows):
        result = telling(column, action)
        if result is not None and result.fixes:
            telling_columns[where].append((name, result))
    of_state, beside = telling_columns["state"], telling_columns["also"]
    if not (of_state or beside):
        return None
    several = [*of_state, *beside]
    listed = [f"{name!r} ({result.right:.1%} of rows)" for name, result in several[:SHOWN]]
    more = f", {len(several) - SHOWN:,} more" if len(several) > SHOWN else ""
    taken = column_label(log.columns.get("action", "action"))
    usual = several[0][1].usual
    one = len(several) == 1
    advice = []
    if of_state:
        advice.append(
            f"Where it is what was given, or follows from it, take {_names(of_state)} out of the "
            "state: at one value of it nearly all did the same, and nothing can be compared."
        )
    if beside:
        advice.append(
            worded(
                "Leave {names} out of what is compared ({also}): it tells the action itself, not "
                "why it was taken.",
                names=_names(beside),
                also=option("also"),
            )
        )
    return Finding(
        "warning",
        "fixed_actions",
        f"{'a column fixes' if one else f'{len(several):,} columns fix'} the action {taken!r}: "
        f"{', '.join(listed)}{more} have the action that is usual at that value; the most frequent "
        f"action alone has {usual:.1%}.",
        do=" ".join(advice),
    )


def _names(columns: list[tuple[str, Telling]]) -> str:
    more = f" and {len(columns) - SHOWN:,} more" if len(columns) > SHOWN else ""
    return ", ".join(repr(name) for name, _ in columns[:SHOWN]) + more
