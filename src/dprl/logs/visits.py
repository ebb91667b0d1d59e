"""First visits: the rows at which a group comes to a place for the first time.

One pass over the rows, and one number for each place: the group that came there last. Nothing has
to be cleared between groups. What else is counted at first visits (returns in exact sums, bins,
comparisons) starts from these rows; only `dprl.evidence.tabular` finds them together with the first
occurrences of pairs, in the pass that measures returns.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.logs.log import Log

__all__ = ["first_of", "first_visits"]


@compiled
def _mark(
    starts: NDArray[np.int64],
    place: NDArray[np.int32] | NDArray[np.int64],
    group: NDArray[np.int32],
    last: NDArray[np.int32],
    first: NDArray[np.bool_],
) -> None:  # pragma: no cover - compiled
    """Mark the rows where a group comes to a place for the first time; last (places,) are -1."""
    for e in range(len(starts) - 1):
        for t in range(starts[e], starts[e + 1]):
            first[t] = last[place[t]] != group[e]
            last[place[t]] = group[e]


def first_of(
    log: Log,
    place: NDArray[np.int32] | NDArray[np.int64],
    n_places: int,
    *,
    by_episode: bool = False,
) -> NDArray[np.bool_]:
    """The rows at which a group comes to a place for the first time.

    Args:
        log: A log whose groups lie together (`Log.gathered`).
        place: (N,) whole numbers from 0 on, where each row is: a state, a pair, a cell.
        n_places: How many places there are.
        by_episode: Whether every episode counts by itself, whatever its group. Default False.

    Returns:
        bool (N,).
    """
    first = np.empty(log.n_steps, np.bool_)
    group = np.arange(log.n_episodes, dtype=np.int32) if by_episode else log.group
    _mark(log.starts, place, group, np.full(n_places, -1, np.int32), first)
    return first


def first_visits(log: Log) -> NDArray[np.bool_]:
    """bool (N,): rows of a gathered log at which a group comes to a state for the first time."""
    return first_of(log, log.codes(), log.n_states)
