"""Evidence of a log with discrete states: one pass, no object per step.

Per episode two loops, short and free of branches so that the processor keeps many rows in flight:
forwards, each state is asked whether it was seen in this episode and with which actions (a stamp
and a few bits a state: no set, no table of pairs, nothing to clear between episodes), which says
where a row's return belongs; backwards, the return is built up and added there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl.compiled import compiled, in_parts, parts
from dprl.errors import LogError, ParameterError
from dprl.evidence import COUNT, FIRST, LATER, SQUARE, SUM, WORDS, Evidence, Units, Visits
from dprl.limits import need_for_pairs
from dprl.log import Log
from dprl.returns import span

__all__ = ["Occurrences", "availability", "check_gamma", "check_visits", "evidence", "tally"]

LARGEST_TABLE = 1 << 28
"""Pairs (s, a) above which a dense table of accumulators would not fit an ordinary machine."""


@compiled
def _add_up(
    starts: NDArray[np.int64],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    reward: NDArray[np.float64],
    gamma: float,
    scale: float,
    square_scale: float,
    centre: float,
    every_visit: bool,
    n_actions: int,
    group: NDArray[np.int32],
    seen: NDArray[np.int32],
    words: NDArray[np.int64],
    counts: NDArray[np.bool_],
) -> None:  # pragma: no cover - compiled
    """Add the episodes of `starts` to the accumulators.

    group (E,): whose episode it is; episodes of a group lie side by side and count as one.
    seen (S·W, 2), W = ceil(A / 32): for each state and each 32 actions, the last group that came
        there and bits of the actions it took.
    words (2·S·A + 1, WORDS): FIRST of all pairs, then LATER, then a place for what does not count.
    counts (N,): whether a row is the first occurrence of its pair in its episode.
    """
    width = (n_actions + 31) >> 5
    longest = 0
    for e in range(len(starts) - 1):
        longest = max(longest, starts[e + 1] - starts[e])
    cell = np.empty(longest, np.int64)
    waste = np.int64(len(words) - 1)
    later = waste >> 1
    for e in range(len(starts) - 1):
        begin, length, stamp = starts[e], starts[e + 1] - starts[e], group[e]
        for t in range(length):
            s, a = np.int64(state[begin + t]), np.int64(action[begin + t])
            pair, here = s * n_actions + a, s * width
            there, bit = here + (a >> 5), np.int32(1) << np.int32(a & 31)
            came = seen[here, 0] == stamp
            seen[here, 0] = stamp
            seen[here, 1] = seen[here, 1] if came else np.int32(0)
            taken = seen[there, 1] if seen[there, 0] == stamp else np.int32(0)
            seen[there, 0] = stamp
            seen[there, 1] = taken | bit
            new = every_visit | (not came)
            fresh = new | (taken & bit == 0)
            cell[t] = pair if new else (pair + later if fresh else waste)
            counts[begin + t] = fresh
        G = 0.0
        for t in range(length - 1, -1, -1):
            G = reward[begin + t] + gamma * G
            c = cell[t]
            words[c, COUNT] += 1
            words[c, SUM] += np.int64(np.rint(G * scale))
            words[c, SQUARE] += np.int64(np.rint((G - centre) * (G - centre) * square_scale))


def check_gamma(gamma: float) -> float:
    """The discount as a float, or a ParameterError."""
    number = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not (number and 0 < gamma <= 1):
        raise ParameterError(f"gamma must lie in (0, 1]; got {gamma!r}.")
    return float(gamma)


def check_visits(visits: str) -> None:
    """Refuse a way of counting that does not exist."""
    if visits not in ("first", "all"):
        raise ParameterError(f"visits must be 'first' or 'all'; got {visits!r}.")


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Which rows of a log were counted, remembered for the semi-MDP.

    Attributes:
        counted: bool (N,), first occurrences of their pair in their episode.
        ranges: The parts of the log, as ranges of episodes.
        n: For each part int64 (S, A), how many rows of each pair were counted in it.
    """

    counted: NDArray[np.bool_]
    ranges: tuple[tuple[int, int], ...]
    n: tuple[NDArray[np.int64], ...]


def evidence(
    log: Log,
    gamma: float,
    *,
    visits: Visits = "first",
    units: Units | None = None,
    threads: int | None = None,
) -> Evidence:
    """Evidence of a log with discrete states.

    Args:
        log: The log.
        gamma: Discount in (0, 1].
        visits: "first" counts trajectories; "all" counts visits and carries no certificate.
        units: Of the sums; by default the finest this log allows. Parts to be merged share theirs:
            Units.holding(span of the returns of all parts, trajectories of all parts).
        threads: How many; by default the cores at hand. The answer does not depend on it.
    """
    return tally(log.gathered(), gamma, visits=visits, units=units, threads=threads)[0]


def tally(
    log: Log,
    gamma: float,
    *,
    visits: Visits = "first",
    units: Units | None = None,
    threads: int | None = None,
) -> tuple[Evidence, Occurrences]:
    """`evidence`, and which rows it counted; of a gathered log."""
    gamma = check_gamma(gamma)
    check_visits(visits)
    state = log.codes()
    S, A = log.n_states, log.n_actions
    if S * A > LARGEST_TABLE:
        raise LogError(
            f"{S:,} states x {A:,} actions are too many for one table.",
            do="Merge states that are never told apart in practice, or use features and a radius.",
        )
    need_for_pairs(S, A, per_pair=32)  # the counts, and the sums that every use of them makes
    units = _units(log, gamma, visits, units)
    counted = np.empty(log.n_steps, np.bool_)

    def part(first: int, last: int) -> NDArray[np.int64]:
        words = np.zeros((2 * S * A + 1, WORDS), np.int64)
        seen = np.full((S * ((A + 31) // 32), 2), -1, np.int32)
        _add_up(
            log.starts[first : last + 1], state, log.action, log.reward, gamma, 1 / units.sum,
            1 / units.square, units.centre, visits == "all", A, log.group[first:last], seen,
            words, counted,
        )  # fmt: skip
        return words[:-1].reshape(2, S, A, WORDS)

    ranges = _whole_groups(log, threads)
    found = in_parts(part, ranges)
    n = tuple(words[FIRST, ..., COUNT] + words[LATER, ..., COUNT] for words in found)
    total, *rest = found
    for words in rest:
        total += words
    total.setflags(write=False)
    known = Evidence(total, log.states, log.actions, gamma, units, visits, log.n_episodes)
    return known, Occurrences(counted, tuple(ranges), n)


def _whole_groups(log: Log, threads: int | None) -> list[tuple[int, int]]:
    """Ranges of episodes of about equal rows that tear no group apart."""
    if (np.diff(log.group) < 0).any():
        raise ParameterError(
            "episodes of a group must lie side by side to be counted.",
            do="Use log.gathered(), as the learners do.",
        )
    edges = np.append(np.flatnonzero(np.append(True, np.diff(log.group) != 0)), log.n_episodes)
    if not log.n_episodes:
        edges = np.zeros(1, np.int64)
    return [(int(edges[a]), int(edges[b])) for a, b in parts(log.starts[edges], threads)]


def _units(log: Log, gamma: float, visits: Visits, units: Units | None) -> Units:
    """The units asked for, if this log fits them; else the finest it allows."""
    times = log.n_episodes if visits == "first" else log.n_steps
    finest = Units.holding(span(log, gamma), times)
    if units is not None and not units.hold(finest):
        raise ParameterError(
            f"{units} would overflow: this log needs {finest}.",
            do="Use Units.holding(span of returns, trajectories) of all parts together.",
        )
    return units or finest


def availability(log: Log) -> NDArray[np.bool_] | None:
    """bool (S, A): actions available on *every* visit of a state; None where the log does not say.

    Where rows of one state disagree, an action counts as available only if it always was: a policy
    must never name what may not be on offer.
    """
    if log.available is None or log.menus is None:
        return None
    seen = np.zeros((log.n_states, len(log.menus)), bool)
    seen[log.codes(), log.available] = True
    refused = seen.astype(np.float32) @ (~log.menus).astype(np.float32)
    return np.asarray(refused == 0)
