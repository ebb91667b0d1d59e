"""Returns at first visits of some states, one by one, wherever the rows are.

What cannot be told from sums (signs drawn for each group, outcomes at their worst) needs the
outcomes themselves. They are gathered for the states that are asked for, chunk by chunk, and put in
the order of the log: 24 bytes for each of these visits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl.logs.log import Log
from dprl.logs.returns import returns
from dprl.logs.source import Chunk, Source
from dprl.logs.treated import columns_in_order
from dprl.logs.visits import first_visits

__all__ = ["FirstReturns", "first_returns"]

Bools: TypeAlias = NDArray[np.bool_]


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


def _listed(chunk: Chunk, log: Log, states: Bools, gamma: float) -> tuple[NDArray[Any], ...]:
    """State, action, return and group of the first visits of some states in one chunk."""
    rows = np.flatnonzero(first_visits(log) & states[log.codes()])
    group = np.repeat(chunk.left(log)[log.group], log.lengths)[rows]
    return log.codes()[rows], log.action[rows], returns(log, gamma)[rows], group


def first_returns(
    source: Source | Log, states: Bools, gamma: float, cut: Cut | None = None
) -> FirstReturns:
    """The first visits of some states, bool (S,), in a log with labelled states."""
    columns = columns_in_order(source, _listed, states, gamma, cut=cut, gamma=gamma)
    order = np.argsort(columns[0], kind="stable")
    return FirstReturns(*(column[order] for column in columns))
