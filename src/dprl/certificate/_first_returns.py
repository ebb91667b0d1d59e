"""Returns at first visits of some states, one by one, wherever the rows are.

What cannot be told from sums (signs drawn for each group, outcomes at their worst) needs the
outcomes themselves. They are gathered for the states that are asked for, chunk by chunk, and put in
the order of the log: 24 bytes for each of these visits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl.certificate._histograms import first_visits
from dprl.logs.log import Log
from dprl.logs.returns import returns
from dprl.logs.source import Chunk, Source

__all__ = ["FirstReturns", "first_returns"]

Bools: TypeAlias = NDArray[np.bool_]
Columns: TypeAlias = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64],
                           NDArray[np.int64]]  # fmt: skip


@dataclass(frozen=True, eq=False)
class FirstReturns:
    """First visits of some states, by state and then in the order of the log.

    Attributes:
        state: int32 (n,), rising.
        action: int32 (n,), what was done.
        G: float64 (n,), the return from there on.
        group: int64 (n,), the number of the group.
    """

    state: NDArray[np.int32]
    action: NDArray[np.int32]
    G: NDArray[np.float64]
    group: NDArray[np.int64]

    def of_state(self, s: int) -> slice:
        """The visits of one state."""
        begin, end = np.searchsorted(self.state, (s, s + 1))
        return slice(int(begin), int(end))


@dataclass(frozen=True, eq=False)
class _Listed:
    """First group of a chunk → the columns of its first visits of some states."""

    states: Bools
    gamma: float
    cut: Cut | None

    def of(self, chunk: Chunk) -> dict[int, Columns] | None:
        log = chunk.treated(self.cut, self.gamma)
        if log is None:
            return None
        rows = np.flatnonzero(first_visits(log) & self.states[log.codes()])
        group = np.repeat(chunk.left(log)[log.group], log.lengths)[rows]
        G = returns(log, self.gamma)[rows]
        return {chunk.first_group: (log.codes()[rows], log.action[rows], G, group)}

    def merge(self, one: dict[int, Columns], other: dict[int, Columns]) -> dict[int, Columns]:
        return one | other


def first_returns(
    source: Source | Log, states: Bools, gamma: float, cut: Cut | None = None
) -> FirstReturns:
    """The first visits of some states, bool (S,), in a log with labelled states."""
    by_chunk = source.reduce(_Listed(states, gamma, cut))
    parts = [by_chunk[first] for first in sorted(by_chunk)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return FirstReturns(*(column[order] for column in columns))
