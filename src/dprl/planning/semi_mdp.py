r"""The elevated semi-MDP over decision points (the paper's Algorithm 2), with END.

Source of a segment: the first occurrence of (s, a) in a trajectory, s a decision point and a
allowed there. It ends at the next decision point *occupied* in that trajectory, k >= 1 steps later
(a state seen before counts, and so does s itself), or at the absorbing END state of value 0 if none
follows. Its reward is the discounted sum in between, G_t - γ^k G_{t'}. Then

    R̃(s,a)    = mean of segment rewards over all segments from (s,a), END included
    D(s,a,s') = mean of γ^k · 1{ends in s'}              (this is P̃·γ̃; END contributes 0)

A pair with n(s,a) >= n_min has exactly n(s,a) segments, so no row is ever 0/0, and the size of each
row is known before the pass: each segment is written directly into its row (a counting sort), and
each row is added up once, exactly (see `dprl._core.exact`). No hash table is needed.

Departures from the paper's pseudocode, which overwrites the set of decision points, counts the
reward at t' twice and drops the reward after the last decision point: see the docs' table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.exact import SUMS
from dprl._core.exact_moments import mean_of_row
from dprl.evidence._evidence import Evidence
from dprl.evidence.tabular import Occurrences
from dprl.logs.log import Label, Log
from dprl.logs.returns import powers

__all__ = ["SemiMDP", "elevate", "segments_of"]


@dataclass(frozen=True, eq=False)
class SemiMDP:
    """The P decision points of a log, their allowed actions, and what follows them; immutable.

    One row belongs to one allowed pair of a decision point and an action.

    Attributes:
        points: int64 (P,), state codes of the decision points, ascending.
        labels: The P state labels of the decision points.
        first: int64 (P + 1,), rows first[p]:first[p + 1] belong to decision point p.
        action: int64 (rows,), the action of each row, ascending within a decision point.
        R: float64 (rows,), R̃(s,a), the mean reward of the segments of a row, in the unit of
            rewards.
        D: CSR (rows, P), D(s,a,s'), the mean discount of the segments that end in s'.
        n: int64 (rows,), the number of segments of each row.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence import allowed, tabular
        >>> from dprl.planning import elevate
        >>> log = risky_arms().sample(1_000, seed=0)
        >>> evidence, occurrences = tabular.count(log, gamma=1.0)
        >>> semi = elevate(log, evidence, occurrences, allowed(evidence, n_min=92))
        >>> semi.labels, [log.actions[a] for a in semi.action]
        (('s0',), ['b1'])
    """

    points: NDArray[np.int64]
    labels: tuple[Label, ...]
    first: NDArray[np.int64]
    action: NDArray[np.int64]
    R: NDArray[np.float64]
    D: sparse.csr_array
    n: NDArray[np.int64]


@compiled
def _scatter(
    starts: NDArray[np.int64],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    reward: NDArray[np.float64],
    counted: NDArray[np.bool_],
    gamma: float,
    point: NDArray[np.int32],
    row: NDArray[np.int32],
    rows: NDArray[np.int64],
    segments: NDArray[np.int32],
    rewards: NDArray[np.float64],
) -> None:  # pragma: no cover - compiled
    """Write the end, the length and the reward of each segment into its row.

    point (S,): number of the decision point, or -1. row (S, A): number of an allowed pair; for any
        other pair, the number of allowed pairs.
    rows (rows,): next free place of each row in `segments` and `rewards`.
    segments (n, 2): where a segment ends (-1 for END) and after how many steps.
    rewards (n,): the discounted reward of each segment.
    """
    longest = 0
    for e in range(len(starts) - 1):
        longest = max(longest, starts[e + 1] - starts[e])
    whence, whither = np.empty(longest + 1, np.int32), np.empty(longest + 1, np.int32)
    steps, gain = np.empty(longest + 1, np.int32), np.empty(longest + 1)
    none = len(rows)
    for e in range(len(starts) - 1):
        end, at = np.int32(-1), starts[e + 1]
        total = 0.0  # discounted rewards from here up to, not including, the decision point ahead
        written = 0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):  # no branch: write, then keep or not
            total = reward[t] + gamma * total
            r, p = row[state[t], action[t]], point[state[t]]
            whence[written], whither[written] = r, end
            steps[written], gain[written] = at - t, total
            written += (r != none) & counted[t]
            end = p if p >= 0 else end
            at = t if p >= 0 else at
            total = 0.0 if p >= 0 else total
        for i in range(written):
            r = whence[i]
            place = rows[r]
            segments[place, 0] = whither[i]
            segments[place, 1] = steps[i]
            rewards[place] = gain[i]
            rows[r] = place + 1


@compiled
def _average(
    begin: NDArray[np.int64], rewards: NDArray[np.float64], R: NDArray[np.float64]
) -> None:  # pragma: no cover - compiled
    """R̃ of every row: the exact mean of the rewards of its segments, rounded once."""
    bits = rewards.view(np.int64)
    words, digits = np.zeros((1, 1 + SUMS), np.int64), np.zeros(SUMS + 4, np.int64)
    for r in range(len(begin) - 1):
        R[r] = mean_of_row(rewards, bits, begin[r], begin[r + 1], words, digits)


@compiled
def _count_ends(
    begin: NDArray[np.int64], segments: NDArray[np.int32], n_points: int, ends: NDArray[np.int64]
) -> None:  # pragma: no cover - compiled
    """ends (rows,): the number of different decision points that the segments of a row end in."""
    last = np.full(n_points + 1, -1, np.int32)  # the place before the first takes END
    for r in range(len(begin) - 1):
        different = 0
        last[0] = r
        for i in range(begin[r], begin[r + 1]):
            p = segments[i, 0] + 1
            different += last[p] != r
            last[p] = r
        ends[r] = different


@compiled
def _gather(
    begin: NDArray[np.int64],
    segments: NDArray[np.int32],
    n_points: int,
    fixed: NDArray[np.int64],
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    total: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Add up the segments of each row by where they end: columns and sums of a CSR matrix."""
    place = np.full(n_points, -1, np.int64)
    for r in range(len(begin) - 1):
        filled = indptr[r]
        for i in range(begin[r], begin[r + 1]):
            p = segments[i, 0]
            if p < 0:
                continue
            if place[p] < indptr[r]:
                place[p] = filled
                indices[filled] = p
                filled += 1
            total[place[p]] += fixed[segments[i, 1]]


def elevate(
    log: Log, evidence: Evidence, occurrences: Occurrences, allowed: NDArray[np.bool_]
) -> SemiMDP:
    """Alg. 2: the semi-MDP of a log over its decision points.

    Args:
        log: A gathered log (see `Log.gathered`) with S states and A actions.
        evidence: Its evidence, from `dprl.evidence.tabular.count`.
        occurrences: The rows that were counted, from the same call.
        allowed: bool (S, A), the pairs that may be chosen.

    Returns:
        The semi-MDP; without decision points if no pair is allowed.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence import allowed, tabular
        >>> from dprl.planning import elevate
        >>> log = risky_arms().sample(1_000, seed=0)
        >>> evidence, occurrences = tabular.count(log, gamma=1.0)
        >>> semi = elevate(log, evidence, occurrences, allowed(evidence, n_min=92))
        >>> semi.n.tolist(), semi.R.round(2).tolist()
        ([94], [0.69])
    """
    gamma, state = evidence.gamma, log.codes()
    points = np.flatnonzero(allowed.any(axis=1))
    pairs = np.flatnonzero(allowed)
    point = np.full(log.n_states, -1, np.int32)
    point[points] = np.arange(len(points))
    row = np.full(allowed.shape, len(pairs), np.int32)
    row.ravel()[pairs] = np.arange(len(pairs))

    # Each part of the log has its own places within the rows, so the episodes' order is kept.
    counts = [n.ravel()[pairs] for n in occurrences.n]
    n = np.asarray(sum(counts))
    begin = np.concatenate(([0], np.cumsum(n)))
    segments, rewards = np.empty((begin[-1], 2), np.int32), np.empty(begin[-1])
    places = np.cumsum([begin[:-1], *counts[:-1]], axis=0)
    place_of = dict(zip(occurrences.ranges, places, strict=True))

    def scatter(first: int, last: int) -> None:
        _scatter(
            log.starts[first : last + 1], state, log.action, log.reward, occurrences.counted,
            gamma, point, row, place_of[first, last].copy(), segments, rewards,
        )  # fmt: skip

    in_parts(scatter, list(occurrences.ranges))
    R, ranges = np.empty(len(pairs)), parts(begin, len(occurrences.ranges))
    in_parts(lambda lo, hi: _average(begin[lo : hi + 1], rewards, R[lo:hi]), ranges)

    # γ^k as integers too; the largest row decides how fine they can be without overflow.
    bits = min(52, 62 - int(n.max(initial=1)).bit_length())
    power = powers(gamma, int(log.lengths.max(initial=0)))
    fixed = np.rint(np.ldexp(power, bits)).astype(np.int64)
    ends = np.empty(len(pairs), np.int64)
    in_parts(
        lambda lo, hi: _count_ends(begin[lo : hi + 1], segments, len(points), ends[lo:hi]), ranges
    )
    indptr = np.concatenate(([0], np.cumsum(ends)))
    indices, total = np.empty(indptr[-1], np.int32), np.zeros(indptr[-1], np.int64)
    in_parts(
        lambda lo, hi: _gather(
            begin[lo : hi + 1], segments, len(points), fixed, indptr[lo : hi + 1], indices, total
        ),
        ranges,
    )
    share = np.ldexp(total.astype(np.float64), -bits) / np.repeat(n, ends)
    D = sparse.csr_array((share, indices, indptr), shape=(len(pairs), len(points)))
    D.sort_indices()  # sums over a row must not depend on the order of episodes
    return SemiMDP(
        points=points,
        labels=tuple(log.states[p] for p in points),
        first=np.concatenate(([0], np.cumsum(allowed[points].sum(axis=1)))),
        action=pairs % allowed.shape[1] if allowed.size else pairs,
        R=R,
        D=D,
        n=n,
    )


def segments_of(
    log: Log,
    gamma: float,
    counted: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
    points: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
    """The segments that begin in counted rows of a gathered log, pair by pair.

    Args:
        log: The log, with S states and A actions.
        gamma: Discount per step.
        counted: bool (N,), rows that are the source of a segment if their pair is allowed.
        allowed: bool (S, A), the pairs that may be chosen.
        points: bool (S, A), true in states where segments end. Default None: the allowed pairs.

    Returns:
        Of each segment the number of the decision point where it ends (-1 for END) and its steps,
        (n, 2); its reward (n,); and begin (rows + 1,), where the segments of each allowed pair are.
    """
    ends = np.flatnonzero((allowed if points is None else points).any(axis=1))
    pairs = np.flatnonzero(allowed)
    point = np.full(log.n_states, -1, np.int32)
    point[ends] = np.arange(len(ends))
    row = np.full(allowed.shape, len(pairs), np.int32)
    row.ravel()[pairs] = np.arange(len(pairs))
    source = np.flatnonzero(counted)
    of_row = row[log.codes()[source], log.action[source]]
    n = np.bincount(of_row, minlength=len(pairs) + 1)[: len(pairs)]
    begin = np.concatenate(([0], np.cumsum(n))).astype(np.int64)
    segments, rewards = np.empty((begin[-1], 2), np.int32), np.empty(begin[-1])
    _scatter(
        log.starts, log.codes(), log.action, log.reward, counted, gamma, point, row,
        begin[:-1].copy(), segments, rewards,
    )  # fmt: skip
    return segments, rewards, begin
