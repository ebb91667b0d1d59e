"""Evidence of a log with discrete states: two passes over the rows, no Python object per step.

The first pass finds, for each row, where its return belongs: each state keeps a stamp of the last
group that visited it and bits for the actions taken there, so nothing has to be cleared between
episodes. Going backwards through the episode it then computes the returns, to find how large the
returns of every accumulator are. The second pass adds the returns up, as digits (see
`dprl._core.exact`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Visits, check_gamma, check_threads, check_visits
from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.exact import COUNT, NOTHING, SQUARES, SUMS, add_float, lowest_bit, top_of
from dprl._core.limits import need_for_pairs
from dprl.errors import LogError, ParameterError
from dprl.evidence._evidence import Evidence, check_summands
from dprl.logs.log import Log
from dprl.logs.returns import refuse_overflow

__all__ = [
    "Occurrences",
    "always_available",
    "availability",
    "count",
    "evidence",
    "menus_seen",
    "occurrences_of",
]

LARGEST_TABLE = 1 << 26
"""The most pairs (s, a) for which a dense table of accumulators fits an ordinary machine."""


@compiled
def _measure(
    starts: NDArray[np.int64],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    reward: NDArray[np.float64],
    gamma: float,
    every_visit: bool,
    n_actions: int,
    group: NDArray[np.int32],
    seen: NDArray[np.int32],
    role: NDArray[np.uint8],
    top: NDArray[np.int16],
    bottom: NDArray[np.int16],
) -> int:  # pragma: no cover - compiled
    """Find out which rows count, and how large the returns of every accumulator are.

    group (E,): the group of each episode. Episodes of a group follow each other and count as one.
    seen (S·W, 2), W = ceil(A / 32): for each state and each 32 actions, the last group that came
        to the state, and bits for the actions it took.
    role (N,): 1 where a row belongs to FIRST of its pair, 2 to LATER, 0 where it does not count.
    top, bottom (2·S·A,): the highest and lowest bit of the returns of FIRST, then of LATER.

    Returns the last row whose return is not finite, or -1.
    """
    width = (n_actions + 31) >> 5
    later = np.int64(len(top) >> 1)
    tail = np.zeros(1)
    bits = tail.view(np.int64)
    for e in range(len(starts) - 1):
        stamp = group[e]
        for t in range(starts[e], starts[e + 1]):
            s, a = np.int64(state[t]), np.int64(action[t])
            here = s * width
            there, bit = here + (a >> 5), np.int32(1) << np.int32(a & 31)
            came = seen[here, 0] == stamp
            seen[here, 0] = stamp
            seen[here, 1] = seen[here, 1] if came else np.int32(0)
            taken = seen[there, 1] if seen[there, 0] == stamp else np.int32(0)
            seen[there, 0] = stamp
            seen[there, 1] = taken | bit
            new = every_visit | (not came)
            fresh = new | (taken & bit == 0)
            role[t] = 1 if new else (2 if fresh else 0)
        tail[0] = 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            tail[0] = reward[t] + gamma * tail[0]
            highest = top_of(bits[0])
            if highest > 1023:
                return t
            if role[t] == 0 or highest == NOTHING:
                continue
            cell = np.int64(state[t]) * n_actions + action[t] + (later if role[t] == 2 else 0)
            top[cell] = max(top[cell], highest)
            bottom[cell] = min(bottom[cell], lowest_bit(bits[0]))
    return -1


@compiled
def _add_up(
    starts: NDArray[np.int64],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    reward: NDArray[np.float64],
    gamma: float,
    n_actions: int,
    role: NDArray[np.uint8],
    top: NDArray[np.int16],
    words: NDArray[np.int64],
    span: NDArray[np.float64],
) -> None:  # pragma: no cover - compiled
    """Add the returns of the episodes of `starts` to the accumulators.

    role (N,) and top (2·S·A,): as `_measure` found them.
    words (2·S·A, 1 + SUMS + SQUARES): FIRST of all pairs, then LATER.
    span (S, 2): the smallest and the largest return of FIRST, NaN before there is one.
    """
    later = np.int64(len(words) >> 1)
    tail = np.zeros(1)
    bits = tail.view(np.int64)
    for e in range(len(starts) - 1):
        tail[0] = 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            tail[0] = reward[t] + gamma * tail[0]
            if role[t] == 0:
                continue
            G, s = tail[0], np.int64(state[t])
            cell = s * n_actions + action[t]
            if role[t] == 1:
                if not span[s, 0] <= G:
                    span[s, 0] = G
                if not span[s, 1] >= G:
                    span[s, 1] = G
            else:
                cell += later
            words[cell, COUNT] += 1
            add_float(words, cell, top[cell], SUMS, SQUARES, bits[0])


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Which rows of a log were counted; the semi-MDP needs to know.

    Attributes:
        first: bool (N,), rows that are the first visit of their state by their group.
        counted: bool (N,), rows that are the first occurrence of their pair in their episode.
        ranges: The parts of the log that were counted at the same time, as ranges of episodes.
        n: For each part int64 (S, A), the number of rows of each pair that were counted in it.
    """

    first: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    ranges: tuple[tuple[int, int], ...]
    n: tuple[NDArray[np.int64], ...]


def evidence(
    log: Log, gamma: float, *, visits: Visits = "first", threads: int | None = None
) -> Evidence:
    """Evidence of a log with discrete states.

    Args:
        log: The log; its states are labels.
        gamma: Discount in (0, 1].
        visits: "first" counts trajectories; "all" counts visits and carries no certificate. Default
            "first".
        threads: Number of threads. Default None: one per core. The result does not depend on it.

    Returns:
        The evidence, over all states and actions of the log.

    Raises:
        LogError: If states are features, there are too many pairs, or a return is not finite.
        ParameterError: If `gamma` or `visits` is not allowed.

    Example:
        >>> from dprl.envs import risky_arms
        >>> evidence(risky_arms().sample(100, seed=0), gamma=0.99).state.n[0]
        np.int64(100)
    """
    return count(log.gathered(), gamma, visits=visits, threads=threads)[0]


def count(
    log: Log, gamma: float, *, visits: Visits = "first", threads: int | None = None
) -> tuple[Evidence, Occurrences]:
    """`evidence` of a gathered log, together with the rows that it counted."""
    gamma = check_gamma(gamma)
    check_visits(visits)
    threads = check_threads(threads)
    state = log.codes()
    S, A = log.n_states, log.n_actions
    if S * A > LARGEST_TABLE:
        raise LogError(
            f"{S:,} states x {A:,} actions are too many for one table.",
            do="Merge states that are never told apart in practice, or use features and a radius.",
        )
    need_for_pairs(S, A, per_pair=16 * (1 + SUMS + SQUARES))
    check_summands(log.n_episodes if visits == "first" else log.n_steps)
    role, ranges = np.empty(log.n_steps, np.uint8), _whole_groups(log, threads)
    top, bottom = _windows(log, gamma, visits == "all", ranges, role)

    def part(first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        words = np.zeros((2 * S * A, 1 + SUMS + SQUARES), np.int64)
        span = np.full((S, 2), np.nan)
        _add_up(
            log.starts[first : last + 1], state, log.action, log.reward, gamma, A, role, top, words,
            span,
        )  # fmt: skip
        return words.reshape(2, S, A, -1), span

    sums_of_parts = in_parts(part, ranges)
    n = tuple(words[..., COUNT].sum(axis=0) for words, _ in sums_of_parts)
    total, span = sums_of_parts[0]
    for words, other in sums_of_parts[1:]:
        total += words
        np.fmin(span[:, 0], other[:, 0], out=span[:, 0])
        np.fmax(span[:, 1], other[:, 1], out=span[:, 1])
    for array in (total, top, bottom, span):
        array.setflags(write=False)
    gathered_evidence = Evidence(
        total, top.reshape(2, S, A), bottom.reshape(2, S, A), span, log.states, log.actions, gamma,
        visits, log.n_episodes,
    )  # fmt: skip
    return gathered_evidence, Occurrences(role == 1, role > 0, tuple(ranges), n)


def occurrences_of(log: Log, gamma: float, visits: Visits) -> tuple[Occurrences, NDArray[np.int64]]:
    """The rows of a gathered log that `count` counts, without their returns; first visits (S,)."""
    S, A, state = log.n_states, log.n_actions, log.codes()
    role, ranges = np.empty(log.n_steps, np.uint8), _whole_groups(log, None)
    _windows(log, gamma, visits == "all", ranges, role)
    counted, n = role > 0, []
    for first, last in ranges:
        rows = slice(log.starts[first], log.starts[last])
        pair = state[rows][counted[rows]].astype(np.int64) * A + log.action[rows][counted[rows]]
        n.append(np.bincount(pair, minlength=S * A).reshape(S, A))
    first = role == 1
    visited = np.bincount(state[first], minlength=S)
    return Occurrences(first, counted, tuple(ranges), tuple(n)), visited


def _windows(
    log: Log,
    gamma: float,
    every_visit: bool,
    ranges: list[tuple[int, int]],
    role: NDArray[np.uint8],
) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """The highest and the lowest bit of the returns of every accumulator, int16 (2·S·A,).

    Fills role (N,): whether each row belongs to FIRST (1), to LATER (2), or does not count (0).
    """
    S, A = log.n_states, log.n_actions

    def part(first: int, last: int) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
        top, bottom = np.full(2 * S * A, NOTHING, np.int16), np.full(2 * S * A, 30_000, np.int16)
        seen = np.full((S * ((A + 31) // 32), 2), -1, np.int32)
        row = _measure(
            log.starts[first : last + 1], log.codes(), log.action, log.reward, gamma, every_visit,
            A, log.group[first:last], seen, role, top, bottom,
        )  # fmt: skip
        if row >= 0:
            refuse_overflow(log, row)
        return top, bottom

    bits_of_parts = in_parts(part, ranges)
    top, bottom = bits_of_parts[0]
    for highest, lowest in bits_of_parts[1:]:
        np.maximum(top, highest, out=top)
        np.minimum(bottom, lowest, out=bottom)
    return top, bottom


def _whole_groups(log: Log, threads: int | None) -> list[tuple[int, int]]:
    """Ranges of episodes with about equal numbers of rows; no group is divided."""
    if (np.diff(log.group) < 0).any():
        raise ParameterError(
            "episodes of a group must lie side by side to be counted.",
            do="Use log.gathered(), as the learners do.",
        )
    edges = np.append(np.flatnonzero(np.append(True, np.diff(log.group) != 0)), log.n_episodes)
    if not log.n_episodes:
        edges = np.zeros(1, np.int64)
    return [(int(edges[a]), int(edges[b])) for a, b in parts(log.starts[edges], threads)]


def availability(log: Log) -> NDArray[np.bool_] | None:
    """Actions that were available on *every* visit of a state; None if the log does not say.

    If rows of one state disagree, an action counts as available only if it always was: a policy
    must never name an action that may not be available.

    Args:
        log: The log, with S states and A actions.

    Returns:
        bool (S, A), or None.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[1, 2], state=["s", "s"], action=["a", "b"], reward=[0, 1],
        ...     available=["a|b|c", "a|b"],
        ... )
        >>> availability(log).tolist()
        [[True, True, False]]
    """
    seen = menus_seen(log)
    return None if seen is None or log.menus is None else always_available(seen, log.menus)


def menus_seen(log: Log) -> NDArray[np.bool_] | None:
    """bool (S, M): the menus that were seen in each state; None if the log does not say."""
    if log.available is None or log.menus is None:
        return None
    seen = np.zeros((log.n_states, len(log.menus)), bool)
    seen[log.codes(), log.available] = True
    return seen


def always_available(seen: NDArray[np.bool_], menus: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool (S, A): actions that every menu seen in a state has; seen (S, M), menus (M, A)."""
    refused = seen.astype(np.float32) @ (~menus).astype(np.float32)
    return np.asarray(refused == 0)
