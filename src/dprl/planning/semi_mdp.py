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

**Segments are a monoid**, as evidence is: rewards are exact sums and discounts whole numbers, so
the segments of the parts of a log can be merged in any order, and give the same semi-MDP to the
last bit: `SegmentsOf` is the statistic of them (`dprl.logs.source`).

**With endings pooled** (`segments="pooled"`, the default of `DPRLDiscrete`): the same, but the
share p(s,a) of segments that reach no further decision point is moved towards that of all allowed
actions of s, p(s):

    p̂(s,a) = (n p(s,a) + k p(s)) / (n + k),     k = Σ p(s)(1 - p(s)) / Σ ((p(s,a) - p(s))² - noise)

k, by moments over all rows, is small where shares within states differ by more than their noise
p(s)(1 - p(s))(1/n(s,a) - 1/n(s)). Rows whose share differs by more than two standard errors keep
their own: they lead to the end, or away from it. What is earned on either way is the row's own mean
(the state's where none of the row's segments ends).

**As Section 4 of the paper says it** (`segments="text"`: "only considering first visits"), segments
begin and end at first visits of states, and those that reach no further decision point are left out
of sums and counts. A pair without any has an empty row of value 0.

**As the pseudocode of the appendix is printed** (`segments="printed"`, for comparison only): the
same, but the set of decision points is replaced, episode by episode, by those of the episode, and
the reward at t' belongs to the segment that ends there, too, so that it counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import SegmentRule
from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.exact import COUNT, NOTHING, SUMS, add_float, add_window, means_of_sums, top_of
from dprl.evidence.counts import Counted, Counts, Occurrences
from dprl.logs.log import Label, Log
from dprl.logs.returns import powers
from dprl.logs.source import Chunk, Share, Source

ONWARD, ENDED = 0, 1  # segments that reach a decision point, and those that reach END
FIRST_VISITS, TWICE, DROPPED = ("text", "printed"), ("printed",), ("text", "printed", "onward")
"""Readings of Algorithm 2 in which only first visits begin and end segments, in which the reward
where one ends is part of it, and in which those that reach END are dropped. "onward" is no reading:
"pooled" needs what *end* is without such segments."""


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
        n: int64 (rows,), the number of segments of each row; 0 only if those that end are dropped.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence import allowed
        >>> from dprl.evidence.counts import Counts, count_source
        >>> from dprl.logs.source import as_source
        >>> from dprl.planning import build_semi_mdp
        >>> log = risky_arms().sample(1_000, seed=0)
        >>> source = as_source(log)
        >>> counted = count_source(source, Counts(gamma=1.0))
        >>> semi = build_semi_mdp(source, counted, allowed(counted.evidence, n_min=92))
        >>> semi.labels, [log.actions[a] for a in semi.action]
        (('s0',), ['b1'])
    """

    points: Ints
    labels: tuple[Label, ...]
    first: Ints
    action: Ints
    R: Floats
    D: sparse.csr_array
    n: Ints


@compiled
def _scatter(
    starts: Ints,
    state: Codes,
    action: Codes,
    reward: Floats,
    counted: Bools,
    first: Bools,
    only_first: bool,
    twice: bool,
    gamma: float,
    point: Codes,
    row: Codes,
    rows: Ints,
    segments: Codes,
    rewards: Floats,
) -> None:  # pragma: no cover - compiled
    """Write the end, the length and the reward of each segment into its row.

    first (N,): first visits; with only_first no other row begins or ends a segment.
    twice: whether the reward at the decision point where a segment ends is part of it, too.
    point (S,): number of the decision point, or -1. row (S, A): number of an allowed pair; for any
        other pair, the number of allowed pairs.
    rows (rows,): next free place of each row in `segments` and `rewards`.
    segments (n, 2): where a segment ends (-1 for END) and after how many steps.
    rewards (n,): the discounted reward of each segment.
    """
    longest = 0
    for e in range(len(starts) - 1):
        size = starts[e + 1] - starts[e]
        longest = size if size > longest else longest
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
            here = not only_first or first[t]
            p = p if here else np.int32(-1)
            whence[written], whither[written] = r, end if here else np.int32(-1)
            steps[written], gain[written] = at - t, total
            written += (r != none) & counted[t]
            end = p if p >= 0 else end
            at = t if p >= 0 else at
            total = (reward[t] if twice else 0.0) if p >= 0 else total
        for i in range(written):
            r = whence[i]
            place = rows[r]
            segments[place, 0] = whither[i]
            segments[place, 1] = steps[i]
            rewards[place] = gain[i]
            rows[r] = place + 1


@compiled
def _add_rewards(
    begin: Ints,
    segments: Codes,
    ended: bool,
    bits: Ints,
    top: NDArray[np.int16],
    words: Ints,
) -> None:  # pragma: no cover - compiled
    """Add up the rewards (given by their bits) of some segments of every row, exactly.

    ended: whether those that reach END, or the others. words (rows, 1 + SUMS): the sums, all 0
    before. top (rows,): their windows, found here.
    """
    for r in range(len(begin) - 1):
        highest: Any = np.int64(NOTHING)
        sums, none = np.int64(SUMS), np.int64(0)
        for i in range(begin[r], begin[r + 1]):
            high = top_of(bits[i])
            if (segments[i, 0] < 0) == ended and high > highest:
                highest = high
        top[r] = highest
        for i in range(begin[r], begin[r + 1]):
            if (segments[i, 0] < 0) == ended:
                add_float(words, r, highest, sums, none, bits[i])
                words[r, COUNT] += 1


@compiled
def _add_sums(
    words: Ints,
    top: NDArray[np.int16],
    source: Ints,
    origin: NDArray[np.int16],
) -> None:  # pragma: no cover - compiled
    """Add sums source (rows, 1 + SUMS) with windows `origin` to words, whose windows are `top`."""
    for r in range(len(words)):
        high, sums = np.int64(top[r]), np.int64(SUMS)
        add_window(words, r, high, sums, source, r, origin[r], np.int64(1))


@compiled
def _count_ends(
    begin: Ints, segments: Codes, n_points: int, ends: Ints
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
    begin: Ints,
    segments: Codes,
    n_points: int,
    fixed: Ints,
    indptr: Ints,
    indices: Codes,
    total: Ints,
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


@dataclass(frozen=True, eq=False)
class Segments:
    """The segments of a log, or of a part of it, added up by row and by where they end.

    Attributes:
        words: int64 (2, rows, 1 + SUMS), the number of segments of each row that reach a decision
            point (ONWARD) and END (ENDED), and the digits of the sums of their rewards.
        top: int16 (2, rows), where the windows of these digits begin.
        ends: int64 (entries,), row·P + p for every decision point p in which segments of a row end,
            ascending.
        total: int64 (entries,), the sum of their discounts, as `discounts` gives them.
    """

    words: Ints
    top: NDArray[np.int16]
    ends: Ints
    total: Ints

    def merge(self, other: Segments) -> Segments:
        """The segments of two parts of a log together; the same bits in any order."""
        top, words = np.maximum(self.top, other.top), np.zeros_like(self.words)
        for part in (self, other):
            for side in (ONWARD, ENDED):
                _add_sums(words[side], top[side], part.words[side], part.top[side])
        ends, place = np.unique(np.concatenate([self.ends, other.ends]), return_inverse=True)
        total = np.zeros(len(ends), np.int64)
        total[place[: len(self.ends)]] = self.total
        total[place[len(self.ends) :]] += other.total
        return Segments(words, top, ends, total)

    def semi_mdp(
        self, states: tuple[Label, ...], allowed: Bools, bits: int, segments: SegmentRule | str
    ) -> SemiMDP:
        """The semi-MDP of these segments, over the allowed pairs (S, A) they were counted for."""
        if segments == "pooled":
            end, onward = (self.semi_mdp(states, allowed, bits, s) for s in ("end", "onward"))
            return pool_ends(end, onward)
        points, pairs = np.flatnonzero(allowed.any(axis=1)), np.flatnonzero(allowed)
        words, top = self.words[ONWARD], self.top[ONWARD]
        if segments not in DROPPED:
            words, top = np.zeros_like(words), self.top.max(axis=0)
            for side in (ONWARD, ENDED):
                _add_sums(words, top, self.words[side], self.top[side])
        n = words[:, COUNT].copy()
        R = np.empty(len(pairs))
        means_of_sums(words, top, R)
        R[n == 0] = 0.0
        row, column = np.divmod(self.ends, max(len(points), 1))
        share = np.ldexp(self.total.astype(np.float64), -bits) / n[row]
        indptr = np.searchsorted(row, np.arange(len(pairs) + 1))
        return SemiMDP(
            points=points,
            labels=tuple(states[p] for p in points),
            first=np.concatenate(([0], np.cumsum(allowed[points].sum(axis=1)))),
            action=pairs % allowed.shape[1] if allowed.size else pairs,
            R=R,
            D=sparse.csr_array((share, column, indptr), shape=(len(pairs), len(points))),
            n=n,
        )


def discounts(gamma: float, longest: int, n: Ints) -> tuple[Ints, int]:
    """γ^0 … γ^longest as whole numbers int64 (longest + 1,), and by how many bits they are moved.

    n (rows,): the number of segments of each row. The largest row decides how fine the numbers can
    be without overflow.
    """
    bits = min(52, 62 - int(n.max(initial=1)).bit_length())
    return np.rint(np.ldexp(powers(gamma, longest), bits)).astype(np.int64), bits


def _numbered(points: Ints, allowed: Bools) -> tuple[Codes, Codes]:
    """`point` (S,) and `row` (S, A) as `_scatter` takes them, for these decision points."""
    pairs = np.flatnonzero(allowed)
    point = np.full(len(allowed), -1, np.int32)
    point[points] = np.arange(len(points))
    row = np.full(allowed.shape, len(pairs), np.int32)
    row.ravel()[pairs] = np.arange(len(pairs))
    return point, row


def count_segments(
    log: Log,
    gamma: float,
    occurrences: Occurrences,
    allowed: Bools,
    fixed: Ints,
    segments: str = "end",
) -> Segments:
    """The segments of a gathered log, or of a part of one, between its decision points.

    Args:
        log: A gathered log (see `Log.gathered`) with S states and A actions.
        gamma: Discount in (0, 1].
        occurrences: The rows that were counted, from `dprl.evidence.counts.count`.
        allowed: bool (S, A), the pairs that may be chosen.
        fixed: Discounts as whole numbers, from `discounts`.
        segments: A reading of Algorithm 2: where segments begin and end. Default "end".
    """
    points, pairs = np.flatnonzero(allowed.any(axis=1)), np.flatnonzero(allowed)
    point, row = _numbered(points, allowed)

    # Each range of episodes has its own places within the rows, so that ranges run side by side.
    counts = [n.ravel()[pairs] for n in occurrences.n]
    begin = np.concatenate(([0], np.cumsum(np.asarray(sum(counts)))))
    found, rewards = np.empty((begin[-1], 2), np.int32), np.empty(begin[-1])
    places = np.cumsum([begin[:-1], *counts[:-1]], axis=0)
    place_of = dict(zip(occurrences.ranges, places, strict=True))

    def scatter(first: int, last: int) -> None:
        _scatter(
            log.starts[first : last + 1], log.codes(), log.action, log.reward, occurrences.counted,
            occurrences.first, segments in FIRST_VISITS, segments in TWICE, gamma, point, row,
            place_of[first, last].copy(), found, rewards,
        )  # fmt: skip

    in_parts(scatter, list(occurrences.ranges))
    ranges, bits = parts(begin, len(occurrences.ranges)), rewards.view(np.int64)
    words, top = np.zeros((2, len(pairs), 1 + SUMS), np.int64), np.empty((2, len(pairs)), np.int16)

    def add(lo: int, hi: int) -> None:
        for side in (ONWARD, ENDED):
            into = top[side, lo:hi], words[side, lo:hi]
            _add_rewards(begin[lo : hi + 1], found, side == ENDED, bits, *into)

    in_parts(add, ranges)
    different = np.empty(len(pairs), np.int64)
    in_parts(
        lambda lo, hi: _count_ends(begin[lo : hi + 1], found, len(points), different[lo:hi]),
        ranges,
    )
    indptr = np.concatenate(([0], np.cumsum(different)))
    indices, total = np.empty(indptr[-1], np.int32), np.zeros(indptr[-1], np.int64)
    in_parts(
        lambda lo, hi: _gather(
            begin[lo : hi + 1], found, len(points), fixed, indptr[lo : hi + 1], indices, total
        ),
        ranges,
    )
    ends = np.repeat(np.arange(len(pairs)), different) * len(points) + indices
    order = np.argsort(ends)
    return Segments(words, top, ends[order], total[order])


class Moved(Protocol):
    """Other actions for the rows of a log: what luck might have made of it."""

    def of(
        self, chunk: Chunk, log: Log, how: Counts, occurrences: Occurrences, first: Ints
    ) -> tuple[Log, Occurrences]:
        """The log of a chunk with its actions moved, and the rows that count then."""
        ...


@dataclass(frozen=True, eq=False)
class SegmentsOf:
    """The segments of a log between its decision points; a statistic of it.

    Attributes:
        how: How evidence was counted; the same rows are the sources of segments.
        allowed: bool (S, A), the pairs that may be chosen.
        fixed: Discounts as whole numbers, from `discounts`.
        moved: Other actions for its rows; None for those of the log. Default None.
        segments: A reading of Algorithm 2: where segments begin and end. Default "end".
    """

    how: Counts
    allowed: Bools
    fixed: Ints
    moved: Moved | None = None
    segments: str = "end"

    def of(self, chunk: Chunk) -> Segments | None:
        """The segments of one chunk."""
        log = self.how.log(chunk)
        if log is None:
            return None
        occurrences, first = self.how.occurrences(chunk, log)
        if self.moved is not None:
            log, occurrences = self.moved.of(chunk, log, self.how, occurrences, first)
        return count_segments(
            log, self.how.gamma, occurrences, self.allowed, self.fixed, self.segments
        )

    def merge(self, one: Segments, other: Segments) -> Segments:
        """The segments of two chunks together."""
        return one.merge(other)


def build_semi_mdp(
    source: Source,
    counted: Counted,
    allowed: Bools,
    progress: Share | None = None,
    moved: Moved | None = None,
    segments: SegmentRule = "end",
) -> SemiMDP:
    """Alg. 2: the semi-MDP of a log over its decision points.

    Args:
        source: The log, wherever its rows are, with S states and A actions.
        counted: What was counted of it.
        allowed: bool (S, A), the pairs that may be chosen.
        progress: Called with the share that is done. Default None.
        moved: Other actions for its rows. Default None: those of the log.
        segments: "end", "pooled", "text" or "printed": where segments begin and end, and whether
            the shares that reach END are pooled. Default "end".

    Returns:
        The semi-MDP; without decision points if no pair is allowed.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence import allowed
        >>> from dprl.evidence.counts import Counts, count_source
        >>> from dprl.logs.source import as_source
        >>> from dprl.planning import build_semi_mdp
        >>> source = as_source(risky_arms().sample(1_000, seed=0))
        >>> counted = count_source(source, Counts(gamma=1.0))
        >>> semi = build_semi_mdp(source, counted, allowed(counted.evidence, n_min=92))
        >>> semi.n.tolist(), semi.R.round(2).tolist()
        ([94], [0.69])
    """
    how = counted.how
    fixed, bits = discounts(how.gamma, counted.longest, counted.evidence.n_pair[allowed])
    found = source.reduce(SegmentsOf(how, allowed, fixed, moved, segments), progress)
    return found.semi_mdp(source.facts.states, allowed, bits, segments)


def pool_ends(end: SemiMDP, onward: SemiMDP) -> SemiMDP:
    """A semi-MDP whose shares of segments that reach END are pooled within states.

    Args:
        end: The semi-MDP with END.
        onward: The same without the segments that reach END.

    Returns:
        The semi-MDP with p̂ in place of p; see the module.

    Example:
        >>> half = SemiMDP(
        ...     points=np.array([0]), labels=("s",), first=np.array([0, 2]), action=np.arange(2),
        ...     R=np.ones(2), D=sparse.csr_array([[0.5], [0.4]]), n=np.array([20, 20]),
        ... )
        >>> onward = replace(half, D=sparse.csr_array([[1.0], [1.0]]), n=np.array([10, 8]))
        >>> pool_ends(half, onward).D.toarray().ravel().round(3).tolist()
        [0.45, 0.45]
    """
    if not len(end.n):
        return end
    state = np.repeat(np.arange(len(end.points)), np.diff(end.first))
    ended, paid = end.n - onward.n, end.n * end.R - onward.n * onward.R
    n, n_ended, all_paid = (np.bincount(state, x)[state] for x in (end.n, ended, paid))
    own, shared = ended / end.n, n_ended / n
    spread, noise = (own - shared) ** 2, shared * (1 - shared) * (1 / end.n - 1 / n)
    k = (shared * (1 - shared)).sum() / max((spread - noise).sum(), 1e-9)
    pooled = (ended + k * shared) / (end.n + k)
    p = np.where((spread > 4 * noise) | (onward.n == 0), own, pooled)
    last = np.where(ended > 0, paid / np.maximum(ended, 1), all_paid / np.maximum(n_ended, 1))
    D = sparse.csr_array(onward.D.multiply((1 - p)[:, None]))
    return replace(end, R=(1 - p) * onward.R + p * last, D=D)


def segments_of(
    log: Log,
    gamma: float,
    counted: Bools,
    allowed: Bools,
    points: Bools | None = None,
) -> tuple[Codes, Floats, Ints]:
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
    point, row = _numbered(ends, allowed)
    source = np.flatnonzero(counted)
    of_row = row[log.codes()[source], log.action[source]]
    n = np.bincount(of_row, minlength=len(pairs) + 1)[: len(pairs)]
    begin = np.concatenate(([0], np.cumsum(n))).astype(np.int64)
    segments, rewards = np.empty((begin[-1], 2), np.int32), np.empty(begin[-1])
    _scatter(
        log.starts, log.codes(), log.action, log.reward, counted, counted, False, False, gamma,
        point, row, begin[:-1].copy(), segments, rewards,
    )  # fmt: skip
    return segments, rewards, begin
