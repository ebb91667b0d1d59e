r"""Returns to go, one episode at a time.

    G_t = \sum_{k \ge t} \gamma^{k-t} r_k

computed backwards (G_t = r_t + γ G_{t+1}): a γ^t-weighted cumulative sum turns to NaN once
T·|ln γ| passes about 690, and loses digits long before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.words import worded
from dprl.errors import LogError
from dprl.logs.log import Log

# --- First visits: the rows at which a group comes to a place for the first time
#
# One pass over the rows, and one number for each place: the group that came there last. Nothing has
# to be cleared between groups. What else is counted at first visits (returns in exact sums, bins,
# comparisons) starts from these rows; only `dprl.evidence.counts` finds them together with the
# first occurrences of pairs, in the pass that measures returns.


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


# --- Returns to go, one episode at a time


@compiled
def fill_returns(
    reward: NDArray[np.float64], gamma: float, G: NDArray[np.float64]
) -> None:  # pragma: no cover - compiled
    """Fill G (T,) with the returns to go of the rewards (T,) of one episode."""
    tail = 0.0
    for t in range(len(reward) - 1, -1, -1):
        tail = reward[t] + gamma * tail
        G[t] = tail


@compiled
def _fill_all(
    starts: NDArray[np.int64],
    reward: NDArray[np.float64],
    gamma: float,
    G: NDArray[np.float64],
) -> None:  # pragma: no cover - compiled
    for e in range(len(starts) - 1):
        fill_returns(reward[starts[e] : starts[e + 1]], gamma, G[starts[e] : starts[e + 1]])


@compiled
def _span(
    starts: NDArray[np.int64], reward: NDArray[np.float64], gamma: float
) -> tuple[float, float]:  # pragma: no cover - compiled
    low, high = np.inf, -np.inf
    for e in range(len(starts) - 1):
        tail = 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            tail = reward[t] + gamma * tail
            low, high = min(low, tail), max(high, tail)
    return low, high


def returns(log: Log, gamma: float) -> NDArray[np.float64]:
    """The return to go G_t of every row of a log.

    Args:
        log: The log, with N rows.
        gamma: Discount in (0, 1].

    Returns:
        float64 (N,), in the unit of the rewards.

    Raises:
        LogError: If rewards are so large that a return is not a finite number.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(episode=[1, 1], state=[0, 1], action=[0, 0], reward=[1, 2])
        >>> returns(log, gamma=0.5).tolist()
        [2.0, 2.0]
    """
    G = np.empty(log.n_steps)
    _fill_all(log.starts, log.reward, float(gamma), G)
    if not np.isfinite(G).all():
        refuse_overflow(log, int(np.flatnonzero(~np.isfinite(G))[-1]))
    return G


def refuse_overflow(log: Log, row: int) -> None:
    """Raise the error that the return of a row is too large for a floating-point number."""
    episode = int(np.searchsorted(log.starts, row, "right")) - 1
    raise LogError(
        "rewards are so large that a return is not a finite number.",
        f"episode {log.episodes[episode]!r}, from its row {row - int(log.starts[episode]) + 1} on",
        "Give rewards in a larger unit (divide them all by one number).",
    )


def refuse_outside(log: Log, G: NDArray[np.float64], value_range: tuple[float, float]) -> None:
    """Refuse a log with a return outside the range; G (N,) are the returns from every row on."""
    n, where = outside_range(log, G, value_range)
    if n:
        raise outside_error(n, len(G), log.outcome.ends(*value_range), where)


def outside_range(
    log: Log, G: NDArray[np.float64], value_range: tuple[float, float]
) -> tuple[int, str]:
    """How many returns lie outside the range, and where the first of them is."""
    low, high = value_range
    slack = 1e-9 * (high - low)
    outside = np.flatnonzero((low - slack > G) | (high + slack < G))
    if not len(outside):
        return 0, ""
    row = int(outside[0])
    e = int(np.searchsorted(log.starts, row, "right")) - 1
    shown = log.outcome.shown(G[row])
    where = f"episode {log.episodes[e]!r}, step {row - log.starts[e]}: return {shown:g}"
    return len(outside), where


def outside_error(n: int, rows: int, value_range: tuple[float, float], where: str) -> LogError:
    """The error that n of some returns lie outside the range."""
    low, high = value_range
    return LogError(
        worded(
            "{n:,} of {rows:,} returns lie outside {value_range} ({low:g}, {high:g}).",
            n=n,
            rows=rows,
            low=low,
            high=high,
        ),
        where,
        "The range must hold for every return there can be, or nothing is proved; widen it.",
    )


def span(log: Log, gamma: float) -> tuple[float, float]:
    """The smallest and the largest G_t of the log; (0, 0) where it is empty."""
    if not log.n_steps:
        return 0.0, 0.0
    extremes = in_parts(
        lambda first, last: _span(log.starts[first : last + 1], log.reward, float(gamma)),
        parts(log.starts),
    )
    return float(min(low for low, _ in extremes)), float(max(high for _, high in extremes))


def powers(gamma: float, length: int) -> NDArray[np.float64]:
    """γ^0, γ^1, …, γ^length: float64 (length + 1,)."""
    return np.power(float(gamma), np.arange(length + 1, dtype=np.float64))
