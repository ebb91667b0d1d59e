"""Evidence of a log wherever its rows are: counted chunk by chunk, merged exactly.

`Counts` is the statistic (see `dprl.logs.source`), `Counted` its value, and `count_source` asks for
it after refusing what cannot be counted.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Codes, Exponents, Floats, Ints, frozen
from dprl._core.checks import Cut, Visits, check_gamma, check_threads, check_visits
from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.disk import need_for_pairs
from dprl._core.exact import (
    COUNT,
    LIMIT,
    NOTHING,
    SQUARES,
    SUMS,
    add_float,
    add_window,
    lowest_bit,
    moments,
    not_below,
    raise_window,
    top_of,
)
from dprl.errors import LogError, ParameterError, PrecisionWarning
from dprl.logs.censoring import Reads, none_is_left
from dprl.logs.log import Label, Log
from dprl.logs.returns import refuse_overflow
from dprl.logs.source import Chunk, Share, Source, check_treatment

# --- Evidence: what a log says about every state and pair, in exact sums
#
# For every state s and pair (s, a), counted by trajectory and not by visit (by group where the log
# has groups, such as a patient with several stays):
#
# | symbol | meaning | |---|---| | n(s), V̂(s) | trajectories that visit s; mean of G at the first
# visit of s | | n(s,a), Q̂(s,a) | trajectories that contain (s,a); mean of G at the first
# occurrence of (s,a) | | m(s,a) | trajectories whose action at the first visit of s is a, with
# their G |
#
# **Evidence is a monoid.** Returns and their squares are added as whole digits, each pair in a
# window of its own (see `dprl._core.exact`): any chunking, any number of threads and any tree of
# merges gives the same bits, a tie Q̂ = V̂ is a tie and is not decided by rounding, and a huge
# return of one pair does not change any other pair. Where returns of one pair differ so much in
# size that digits are lost, its mean and standard deviation are NaN, with a warning.
#
# Each pair owns two accumulators: FIRST (its return at a first visit of s) and
# LATER (its first occurrence when s was visited before, with another action). m counts FIRST,
# n(s,a) counts both, n(s) sums FIRST over actions.

Sums: TypeAlias = tuple[Ints, Exponents, Exponents]

FIRST, LATER = 0, 1


@dataclass(frozen=True)
class Moments:
    """Count, mean and standard deviation of groups of returns; arrays of one shape.

    Attributes:
        n: int64, the number of returns.
        mean: float64, in the unit of the rewards; NaN where n = 0 or where precision was lost.
        sd: float64, the sample standard deviation (with n - 1); NaN where n < 2 or where precision
            was lost. 0 means that all returns are equal, to the last bit.

    Example:
        >>> import dprl
        >>> from dprl.evidence import counts
        >>> log = dprl.from_arrays(
        ...     episode=[1, 1, 2, 3], state=["ill", "well", "ill", "ill"],
        ...     action=["drug", "wait", "wait", "drug"], reward=[0, 1, 0, 1],
        ... )
        >>> evidence = counts.evidence(log, gamma=1.0)
        >>> evidence.state.n.tolist(), evidence.state.mean.round(3).tolist()
        ([3, 1], [0.667, 1.0])
    """

    n: Ints
    mean: Floats
    sd: Floats


@compiled
def _join(
    source: Ints, top: Exponents, bottom: Exponents, sums: int, each: int, step: int, words: Ints,
    tops: Exponents, bottoms: Exponents,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Add up accumulators: words[k], with its window, becomes the sum of `each` of them.

    They are source[k·each + i] for step 1 (the actions of a state), and source[k + i·step]
    otherwise (FIRST and LATER of a pair).
    """
    for k in range(len(words)):
        begin = k * each if step == 1 else k
        highest, lowest, plus = np.int64(NOTHING), np.int64(30_000), np.int64(1)
        for i in range(each):
            cell = begin + i * step
            if top[cell] != NOTHING:
                highest = highest if highest > top[cell] else top[cell]
                lowest = lowest if lowest < bottom[cell] else bottom[cell]
        tops[k], bottoms[k] = highest, lowest
        for i in range(each):
            cell = begin + i * step
            add_window(words, k, highest, sums, source, cell, top[cell], plus)


@compiled
def _join_others(
    first: Ints, top: Exponents, bottom: Exponents, sums: int, A: int, state: Ints,
    whole: Exponents, words: Ints, tops: Exponents, bottoms: Exponents,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Add up, for every pair, the other actions of its state: words (S·A, W) and its windows.

    Subtracting the pair from its state is exact, unless the pair alone made the window that high:
    then the other actions are added up again, in a window of their own.
    """
    for s in range(len(state)):
        for cell in range(s * A, s * A + A):
            highest, lowest, plus = np.int64(NOTHING), np.int64(30_000), np.int64(1)
            for b in range(s * A, s * A + A):
                if b != cell and top[b] != NOTHING:
                    highest = highest if highest > top[b] else top[b]
                    lowest = lowest if lowest < bottom[b] else bottom[b]
            tops[cell], bottoms[cell] = highest, lowest
            if highest == whole[s]:
                for j in range(words.shape[1]):
                    words[cell, j] += state[s, j]
                add_window(words, cell, highest, sums, first, cell, top[cell], -plus)
                continue
            for b in range(s * A, s * A + A):
                if b != cell:
                    add_window(words, cell, highest, sums, first, b, top[b], plus)


@compiled
def _compare(
    pair: Ints, top: Exponents, state: Ints, tops: Exponents, sums: int, out: Bools
) -> None:  # pragma: no cover - compiled
    """Where Q̂(s,a) >= V̂(s), exactly: out (S, A)."""
    S, A = out.shape
    room = np.zeros((2, pair.shape[1]), np.int64)
    for s in range(S):
        for a in range(A):
            cell = s * A + a
            out[s, a] = pair[cell, COUNT] > 0 and not_below(
                pair, cell, top[cell], state, s, tops[s], sums, room
            )


@compiled
def _raise(
    words: Ints, source: Ints, origin: Exponents, top: Exponents, sums: int
) -> None:  # pragma: no cover - compiled
    """Add source (cells, W) with windows at `origin` (cells,) to words, whose windows are `top`."""
    for cell in range(len(words)):
        add_window(words, cell, np.int64(top[cell]), sums, source, cell, origin[cell], np.int64(1))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Exact sufficient statistics of a log for decision points; immutable.

    Below, S is the number of states, A of actions, W the width of one accumulator in words.

    Attributes:
        words: int64 (2, S, A, W), the accumulators FIRST and LATER. Each holds a count, then the
            digits of the sum of returns, then the digits of the sum of their squares (see
            `dprl._core.exact`).
        top: int16 (2, S, A), the highest bit of any return in each accumulator: where the window of
            its digits begins.
        bottom: int16 (2, S, A), the lowest bit of any return in each accumulator.
        span: float64 (S, 2), the smallest and the largest return at a first visit; NaN without
            visits.
        states: The S state labels.
        actions: The A action labels.
        gamma: The discount of the returns, in (0, 1].
        visits: "first" (counted by trajectory) or "all" (by visit; carries no certificate).
        n_episodes: The number of episodes behind it.
        sums: How many words hold the digits of a sum; the remaining words are for squares.
        rest: Whether the last action is none: first visits of groups of which it is not said which
            action they took (`dprl.evidence.sites.evidence`). Default False.

    Example:
        >>> import dprl
        >>> from dprl.evidence import counts
        >>> log = dprl.from_arrays(
        ...     episode=[1, 1, 2, 3], state=["ill", "well", "ill", "ill"],
        ...     action=["drug", "wait", "wait", "drug"], reward=[0, 1, 0, 1],
        ... )
        >>> evidence = counts.evidence(log, gamma=1.0)
        >>> evidence.actions, evidence.pair.n.tolist()
        (('drug', 'wait'), [[2, 1], [0, 1]])
        >>> evidence.pair.mean.tolist()
        [[1.0, 0.0], [nan, 1.0]]
    """

    words: Ints
    top: Exponents
    bottom: Exponents
    span: Floats
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    visits: Visits
    n_episodes: int
    sums: int = field(default=SUMS)
    rest: bool = False

    def _flat(self, which: int) -> Sums:
        """The accumulators FIRST or LATER (S·A, W) with their windows (S·A,)."""
        words = np.ascontiguousarray(self.words[which]).reshape(-1, self.words.shape[-1])
        return words, self.top[which].ravel(), self.bottom[which].ravel()

    def _room(self, n: int) -> Sums:
        """Empty accumulators (n, W) with their windows (n,)."""
        words = np.zeros((n, self.words.shape[-1]), np.int64)
        return words, np.empty(n, np.int16), np.empty(n, np.int16)

    @functools.cached_property
    def _pair(self) -> Sums:
        room = self._room(len(self.states) * len(self.actions))
        words = np.ascontiguousarray(self.words).reshape(-1, self.words.shape[-1])
        source = _to_read((words, self.top.ravel(), self.bottom.ravel()))
        _join(*source, self.sums, 2, len(room[0]), *room)
        return room

    @functools.cached_property
    def _state(self) -> Sums:
        room = self._room(len(self.states))
        _join(*_to_read(self._flat(FIRST)), self.sums, len(self.actions), 1, *room)
        return room

    def _moments(self, sums: Sums, shape: tuple[int, ...]) -> Moments:
        words, top, bottom = _to_read(sums)
        out, lost = np.empty((len(words), 2)), np.empty(len(words), np.bool_)
        in_parts(
            lambda a, b: moments(words[a:b], top[a:b], bottom[a:b], self.sums, out[a:b], lost[a:b]),
            parts(np.arange(len(words) + 1)),
        )
        if lost.any():
            places = np.unique(np.flatnonzero(lost) // (len(lost) // len(self.states)))
            warnings.warn(
                f"returns in {len(places):,} of {len(self.states):,} states differ so much in size "
                f"that digits are lost (first: {self.states[places[0]]!r}); their values are NaN.",
                PrecisionWarning,
                stacklevel=2,
            )
        n = words[:, COUNT].reshape(shape)
        return Moments(n, out[:, 0].reshape(shape), out[:, 1].reshape(shape))

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.states), len(self.actions)

    @functools.cached_property
    def pair(self) -> Moments:
        """n(s,a) and Q̂(s,a), shape (S, A)."""
        return self._moments(self._pair, self._shape)

    @functools.cached_property
    def state(self) -> Moments:
        """n(s) and V̂(s), shape (S,)."""
        return self._moments(self._state, (len(self.states),))

    @functools.cached_property
    def took(self) -> Moments:
        """First visits of s where a was taken: m(s,a) and their returns, shape (S, A)."""
        return self._moments(self._flat(FIRST), self._shape)

    @functools.cached_property
    def others(self) -> Moments:
        """First visits of s where another action was taken: n(s) - m(s,a), shape (S, A)."""
        state, whole, _ = self._state
        room = self._room(len(self.states) * len(self.actions))
        first = _to_read(self._flat(FIRST))
        _join_others(*first, self.sums, len(self.actions), state, whole, *room)
        return self._moments(room, self._shape)

    @property
    def n_pair(self) -> Ints:
        """n(s,a), shape (S, A)."""
        return np.asarray(self.words[..., COUNT].sum(axis=0))

    @property
    def n_first(self) -> Ints:
        """n(s), the first visits of each state, shape (S,)."""
        return np.asarray(self.words[FIRST, ..., COUNT].sum(axis=1))

    @property
    def n_others(self) -> Ints:
        """n(s) - m(s,a), shape (S, A).

        Groups of which it is not said which action they took do not count as having done
        otherwise: they may have taken the very action.
        """
        first = self.words[FIRST, ..., COUNT]
        stated = first[:, :-1] if self.rest else first
        return np.asarray(stated.sum(axis=1, keepdims=True) - first)

    def not_worse(self, tolerance: float) -> Bools:
        """Where Q̂(s,a) >= V̂(s), or is smaller by no more than a rounding error.

        Q̂ >= V̂ is decided exactly, by cross-multiplying the integer sums.

        Args:
            tolerance: The share of the size of the returns at s (the root of their mean square)
                that counts as a rounding error, at least 0.

        Returns:
            bool (S, A); false where a pair was never seen.

        Example:
            >>> import dprl
            >>> from dprl.evidence import counts
            >>> log = dprl.from_arrays(
            ...     episode=[1, 1, 2, 3], state=["ill", "well", "ill", "ill"],
            ...     action=["drug", "wait", "wait", "drug"], reward=[0, 1, 0, 1],
            ... )
            >>> evidence = counts.evidence(log, gamma=1.0)
            >>> evidence.not_worse(1e-9).tolist()
            [[True, False], [False, True]]
        """
        out = np.empty(self._shape, np.bool_)
        pair, state = _to_read(self._pair), _to_read(self._state)
        _compare(*pair[:2], *state[:2], self.sums, out)
        V, sd = self.state.mean[:, None], np.nan_to_num(self.state.sd)[:, None]
        with np.errstate(invalid="ignore"):
            near = V - self.pair.mean <= tolerance * np.hypot(V, sd)
        return np.asarray((self.n_pair > 0) & (out | near))

    def merge(self, other: Evidence) -> Evidence:
        """The evidence of two parts of a log together, if the log was split between episodes.

        It equals the evidence of the whole log to the last bit.

        Args:
            other: The evidence of the other part, with the same labels, discount and way of
                counting.

        Returns:
            The merged evidence.

        Raises:
            LogError: If labels, discount or way of counting differ, or the sum would hold too many
                returns.

        Example:
            >>> from dprl.envs import risky_arms
            >>> from dprl.evidence import counts
            >>> log = risky_arms().sample(100, seed=0)
            >>> first = counts.evidence(log.take(range(40)), gamma=1.0)
            >>> second = counts.evidence(log.take(range(40, 100)), gamma=1.0)
            >>> whole = counts.evidence(log, gamma=1.0)
            >>> bool((first.merge(second).state.n == whole.state.n).all())
            True
        """
        for name in ("states", "actions", "gamma", "visits", "sums", "rest"):
            if getattr(self, name) != getattr(other, name):
                raise LogError(
                    f"evidence with different {name} cannot be merged.",
                    do="Read or split the parts from one log, and use one gamma and one counting.",
                )
        top = np.maximum(self.top, other.top)
        words = np.zeros_like(self.words)
        flat = words.reshape(-1, words.shape[-1])
        for part in (self, other):
            own = part.words.reshape(flat.shape), part.top.ravel(), part.bottom.ravel()
            _raise(flat, *_to_read(own)[:2], top.ravel(), self.sums)
        refuse_full(words[..., COUNT], self.states)
        words.setflags(write=False)
        return replace(
            self,
            words=words,
            top=top,
            bottom=np.minimum(self.bottom, other.bottom),
            span=np.stack(
                [
                    np.fmin(self.span[:, 0], other.span[:, 0]),
                    np.fmax(self.span[:, 1], other.span[:, 1]),
                ],
                axis=1,
            ),
            n_episodes=self.n_episodes + other.n_episodes,
        )


def _to_read(sums: Sums) -> Sums:
    """The same arrays, not to be written to: so machine code is of one kind, and compiled once."""
    return frozen(sums[0]), frozen(sums[1]), frozen(sums[2])


def refuse_full(n: Ints, states: Sequence[Label]) -> None:
    """Refuse sums that hold more than they can: a log may be of any size, one state may not.

    Args:
        n: int64 (…, S, A), how many returns each accumulator holds.
        states: The S state labels.
    """
    n = n.sum(axis=-1)
    n = n.sum(axis=tuple(range(n.ndim - 1)))
    if n.max(initial=0) >= LIMIT:
        raise LogError(
            "evidence can hold fewer than 2^30 returns of one state.",
            f"state {states[int(n.argmax())]!r} has {n.max():,}",
            "Fit to a part of the log, or tell this state apart by more of what is known.",
        )


# --- Evidence of a log with discrete states: two passes over the rows, no Python object per step
#
# The first pass finds, for each row, where its return belongs: each state keeps a stamp of the last
# group that visited it and bits for the actions taken there, so nothing has to be cleared between
# episodes. Going backwards through the episode it computes the returns, and writes those that
# count, each with its accumulator, side by side with others of the same range of states. The second
# pass adds them up, as digits (see `dprl._core.exact`), range by range: the accumulators of a range
# stay in the cache, where those of all states would be met at random in the memory. A window is
# raised when a larger return comes, which drops what the window of all of them never had.

LARGEST_TABLE = 1 << 26
"""The most pairs (s, a) for which a dense table of accumulators fits an ordinary machine."""
BLOCK = 1 << 23
"""About so many rows are written aside before they are added: 12 bytes each."""
IN_CACHE = 1 << 12
"""About so many pairs are added at a time: their accumulators stay in the cache of a core."""


@compiled
def _rows_of_ranges(
    state: Codes, first: int, last: int, shift: int, out: Ints
) -> None:  # pragma: no cover - compiled
    for t in range(first, last):
        out[state[t] >> shift] += 1


@compiled
def _scatter(
    starts: Ints,
    state: Codes,
    action: Codes,
    reward: Floats,
    gamma: float,
    every_visit: bool,
    n_actions: int,
    group: Codes,
    seen: Codes,
    role: NDArray[np.uint8],
    shift: int,
    at: Ints,
    place: NDArray[np.uint32],
    returns: Floats,
) -> int:  # pragma: no cover - compiled
    """Find out which rows count, and write their returns to the places of their states.

    group (E,): the group of each episode. Episodes of a group follow each other and count as one.
    seen (S·W, 2), W = ceil(A / 32): for each state and each 32 actions, the last group that came
        to the state, and bits for the actions it took.
    role (N,): 1 where a row belongs to FIRST of its pair, 2 to LATER, 0 where it does not count.
    at: where the next row of each range of 2^shift states is written. If empty, none is.
    place, returns: 2·(s·A + a), 1 more for LATER, and the return, of the rows that count.

    Returns the last row whose return is not finite, or -1.
    """
    width = (n_actions + 31) >> 5
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
            if (bits[0] >> 52) & 0x7FF == 0x7FF:
                return t
            if role[t] == 0 or len(at) == 0:
                continue
            s = np.int64(state[t])
            k = at[s >> shift]
            place[k] = np.uint32(2 * (s * n_actions + action[t]) + role[t] - 1)
            returns[k] = tail[0]
            at[s >> shift] = k + 1
    return -1


@compiled
def _add_up(
    place: NDArray[np.uint32],
    returns: Floats,
    n_actions: int,
    top: Exponents,
    bottom: Exponents,
    words: Ints,
    span: Floats,
    n: Ints,
) -> None:  # pragma: no cover - compiled
    """Add returns to the accumulators of their places.

    place, returns: as `_scatter` wrote them.
    words (2·S·A, 1 + SUMS + SQUARES): FIRST of all pairs, then LATER.
    top, bottom (2·S·A,): the highest and the lowest bit of the returns of FIRST, then of LATER.
    span (S, 2): the smallest and the largest return of FIRST, inf and -inf before there is one.
    n (S·A,): how many returns of each pair were added.
    """
    later = np.int64(len(words) >> 1)
    bits = returns.view(np.int64)
    by = np.uint32(n_actions)
    for k in range(len(place)):
        pair, late, b = place[k] >> np.uint32(1), place[k] & np.uint32(1), bits[k]
        cell, s = np.int64(pair) + later * np.int64(late), np.int64(pair // by)
        n[pair] += 1
        low, high = (math.inf, -math.inf) if late else (returns[k], returns[k])
        span[s, 0] = low if low < span[s, 0] else span[s, 0]  # written so, these are no jumps,
        span[s, 1] = high if high > span[s, 1] else span[s, 1]  # which nobody could foretell
        words[cell, COUNT] += 1
        highest = top_of(b)
        if highest == NOTHING:
            continue
        if highest > top[cell]:
            raise_window(words, cell, np.int64(SUMS), top[cell], highest)
            top[cell] = highest
        low_bit = lowest_bit(b)
        bottom[cell] = low_bit if low_bit < bottom[cell] else bottom[cell]
        add_float(words, cell, np.int64(top[cell]), SUMS, SQUARES, b)  # of its own: a sixth faster


@dataclass(frozen=True, eq=False)
class Occurrences:
    """Which rows of a log were counted; the semi-MDP needs to know.

    Attributes:
        first: bool (N,), rows that are the first visit of their state by their group.
        counted: bool (N,), rows that are the first occurrence of their pair in their episode.
        ranges: The parts of the log that were counted at the same time, as ranges of episodes.
        n: For each part int64 (S, A), the number of rows of each pair that were counted in it.
    """

    first: Bools
    counted: Bools
    ranges: tuple[tuple[int, int], ...]
    n: tuple[Ints, ...]


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
    S, A = log.n_states, log.n_actions
    if S * A > LARGEST_TABLE:
        raise LogError(
            f"{S:,} states x {A:,} actions are too many for one table.",
            do="Merge states that are never told apart in practice, or use features and a radius.",
        )
    need_for_pairs(S, A, per_pair=16 * (1 + SUMS + SQUARES))
    ranges = _whole_groups(log, threads)
    role = np.empty(log.n_steps, np.uint8)
    words = np.zeros((2 * S * A, 1 + SUMS + SQUARES), np.int64)
    top, bottom = np.full(2 * S * A, NOTHING, np.int16), np.full(2 * S * A, 30_000, np.int16)
    span, n = np.full((S, 2), (np.inf, -np.inf)), np.zeros((len(ranges), S * A), np.int64)

    def add(i: int, place: NDArray[np.uint32], returns: Floats) -> None:
        _add_up(place, returns, A, top, bottom, words, span, n[i])

    _walk(log, gamma, visits == "all", ranges, role, add)
    total = words.reshape(2, S, A, -1)
    refuse_full(total[..., COUNT], log.states)
    span[np.isinf(span)] = np.nan
    for array in (total, top, bottom, span):
        array.setflags(write=False)
    gathered_evidence = Evidence(
        total, top.reshape(2, S, A), bottom.reshape(2, S, A), span, log.states, log.actions, gamma,
        visits, log.n_episodes,
    )  # fmt: skip
    counted = tuple(n.reshape(len(ranges), S, A))
    return gathered_evidence, Occurrences(role == 1, role > 0, tuple(ranges), counted)


def occurrences_of(log: Log, gamma: float, visits: Visits) -> tuple[Occurrences, Ints]:
    """The rows of a gathered log that `count` counts, without their returns; first visits (S,)."""
    S, A, state = log.n_states, log.n_actions, log.codes()
    role, ranges = np.empty(log.n_steps, np.uint8), _whole_groups(log, None)
    _walk(log, gamma, visits == "all", ranges, role)
    counted, n = role > 0, []
    for first, last in ranges:
        rows = slice(log.starts[first], log.starts[last])
        pair = state[rows][counted[rows]].astype(np.int64) * A + log.action[rows][counted[rows]]
        n.append(np.bincount(pair, minlength=S * A).reshape(S, A))
    first = role == 1
    visited = np.bincount(state[first], minlength=S)
    return Occurrences(first, counted, tuple(ranges), tuple(n)), visited


Take: TypeAlias = Callable[[int, NDArray[np.uint32], Floats], None]


def _walk(
    log: Log,
    gamma: float,
    every_visit: bool,
    ranges: list[tuple[int, int]],
    role: NDArray[np.uint8],
    take: Take | None = None,
) -> None:
    """Fill role (N,): whether each row belongs to FIRST (1), to LATER (2), or does not count (0).

    The places and returns of the rows that count are given to `take`, with the number of their
    range of episodes: block by block, one range of states after the other, and never at the same
    time for two parts of one range of states.
    """
    S, A, n = log.n_states, log.n_actions, len(ranges)
    seen = [np.full((S * ((A + 31) // 32), 2), -1, np.int32) for _ in ranges]
    few = IN_CACHE // A if n == 1 else min(IN_CACHE // A, S // (4 * n))
    shift = max(1, few).bit_length() - 1
    blocks = [_blocks(log.starts[a : b + 1], a, BLOCK // n) for a, b in ranges]
    for lot in itertools.zip_longest(*blocks, fillvalue=(0, 0)):
        rows = np.zeros((((S - 1) >> shift) + 1 if take else 0, n), np.int64)
        for i, (first, last) in enumerate(lot) if take else ():
            _rows_of_ranges(log.codes(), log.starts[first], log.starts[last], shift, rows[:, i])
        begin = np.append(0, np.cumsum(rows))
        at = begin[:-1].reshape(rows.shape).T.copy()
        place, returns = np.empty(begin[-1], np.uint32), np.empty(begin[-1])
        settings = (gamma, every_visit, A, shift, place, returns)
        in_parts(
            functools.partial(_scatter_lot, log, lot, seen, role, at, settings),
            [(i, i + 1) for i in range(n)],
        )
        if take:
            in_parts(
                functools.partial(_take_lot, take, begin, at, place, returns),
                parts(begin[::n], n),
            )


def _scatter_lot(
    log: Log,
    lot: tuple[tuple[int, int], ...],
    seen: list[Codes],
    role: NDArray[np.uint8],
    at: Ints,
    settings: tuple[Any, ...],
    i: int,
    _: int,
) -> None:
    """The first pass over block i of a lot of blocks."""
    (first, last), (gamma, every_visit, A, shift, place, returns) = lot[i], settings
    row = _scatter(
        log.starts[first : last + 1], log.codes(), log.action, log.reward, gamma, every_visit, A,
        log.group[first:last], seen[i], role, shift, at[i], place, returns,
    )  # fmt: skip
    if row >= 0:
        refuse_overflow(log, row)


def _take_lot(
    take: Take, begin: Ints, at: Ints, place: NDArray[np.uint32], returns: Floats, p: int, end: int
) -> None:
    """The second pass over ranges p to end of states; begin and at say where their rows are."""
    n = len(at)
    for k in range(p * n, end * n):
        mine = slice(begin[k], at[k % n, k // n])
        take(k % n, place[mine], returns[mine])


def _blocks(starts: Ints, first: int, rows: int) -> list[tuple[int, int]]:
    """Ranges of episodes, of which `first` is the first, of about so many rows or fewer."""
    begin = starts - starts[0]
    return [(first + a, first + b) for a, b in parts(begin, max(1, -(-int(begin[-1]) // rows)))]


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


def availability(log: Log) -> Bools | None:
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


def menus_seen(log: Log) -> Bools | None:
    """bool (S, M): the menus that were seen in each state; None if the log does not say."""
    if log.available is None or log.menus is None:
        return None
    seen = np.zeros((log.n_states, len(log.menus)), bool)
    seen[log.codes(), log.available] = True
    return seen


def always_available(seen: Bools, menus: Bools) -> Bools:
    """bool (S, A): actions that every menu seen in a state has; seen (S, M), menus (M, A)."""
    refused = seen.astype(np.float32) @ (~menus).astype(np.float32)
    return np.asarray(refused == 0)


# --- Evidence of a log wherever its rows are: counted chunk by chunk, merged exactly


@dataclass(frozen=True, eq=False)
class Counts:
    """The evidence of a log, and what else one pass over it can count.

    Attributes:
        gamma: Discount in (0, 1].
        visits: "first" counts trajectories, "all" visits. Default "first".
        cut: What is done with cut episodes. Default None: as "terminal".
        reads: What is read of the treated log, as in `dprl.logs.censoring.treat_cut`. Default
            "returns".
        groups: bool (groups of the whole log,), the groups that count. Default None: all.
    """

    gamma: float
    visits: Visits = "first"
    cut: Cut | None = None
    reads: Reads = "returns"
    groups: Bools | None = None

    def log(self, chunk: Chunk) -> Log | None:
        """The gathered log of a chunk whose rows count; None if there is none."""
        if self.groups is None:
            return chunk.treated(self.cut, self.gamma, self.reads)
        return chunk.some(self.groups, self.cut, self.gamma, self.reads)

    def counted(self, chunk: Chunk, log: Log) -> tuple[Evidence, Occurrences]:
        """Evidence of the log of a chunk, and the rows that were counted."""
        if self.groups is not None:
            return count(log, self.gamma, visits=self.visits)
        return chunk.once(lambda: count(log, self.gamma, visits=self.visits), "counted", *self._key)

    def occurrences(self, chunk: Chunk, log: Log) -> tuple[Occurrences, Ints]:
        """The rows that count, and first visits (S,) of each state; without their returns."""
        if self.groups is None and ("counted", *self._key) in chunk._made:
            evidence, rows = self.counted(chunk, log)
            return rows, evidence.n_first
        return occurrences_of(log, self.gamma, self.visits)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.gamma, self.visits, self.cut, self.reads

    def of(self, chunk: Chunk) -> Counted:
        """What is counted of one chunk."""
        menus, log = menus_seen(chunk.log), self.log(chunk)
        how = replace(self, groups=None)
        left = np.zeros(len(chunk.log.groups), bool)
        if log is None:
            steps = np.zeros(chunk.log.n_states, np.int64)
            return Counted(how, None, steps, 0, {chunk.first_group: left}, menus)
        left[chunk.left(log) - chunk.first_group] = True
        return Counted(
            how,
            self.counted(chunk, log)[0],
            np.bincount(log.codes(), minlength=log.n_states),
            int(log.lengths.max(initial=0)),
            {chunk.first_group: left},
            menus,
        )

    def merge(self, one: Counted, other: Counted) -> Counted:
        """What is counted of two chunks together."""
        return one.merge(other)


@dataclass(frozen=True, eq=False)
class Counted:
    """What is counted of a log, or of a part of it, in one pass.

    Attributes:
        how: How it was counted; without the groups that were asked for.
        sums: The evidence, once cut episodes are treated; None if no episode was left.
        steps: int64 (S,), the rows of each state that are left.
        longest: Rows of the longest episode that is left.
        groups: First group of a chunk → bool (its groups,), those that are left.
        menus: bool (S, M), the menus that were seen in each state, cut episodes included; None if
            the log does not say.
        offered: bool (S, A), pairs that were available on every visit, where that was counted in
            place of menus. Default None.
    """

    how: Counts
    sums: Evidence | None
    steps: Ints
    longest: int
    groups: dict[int, Bools]
    menus: Bools | None
    offered: Bools | None = None

    @property
    def evidence(self) -> Evidence:
        """The evidence; there is some."""
        assert self.sums is not None
        return self.sums

    @property
    def left(self) -> Bools:
        """bool (groups of the whole log,): those that are left once cut episodes are treated."""
        return np.concatenate([self.groups[first] for first in sorted(self.groups)])

    def available(self, source: Source) -> Bools | None:
        """bool (S, A): pairs that are always available; None if the log does not say."""
        if self.menus is None or source.facts.menus is None:
            return self.offered
        return always_available(self.menus, source.facts.menus)

    def merge(self, other: Counted) -> Counted:
        """What is counted of two chunks together; the same bits in any order."""
        both = [x for x in (self.sums, other.sums) if x is not None]
        evidence = both[0].merge(both[1]) if len(both) == 2 else next(iter(both), None)
        menus = None
        if self.menus is not None and other.menus is not None:
            menus = self.menus | other.menus
        return Counted(
            self.how,
            evidence,
            self.steps + other.steps,
            max(self.longest, other.longest),
            self.groups | other.groups,
            menus,
        )


def check_table(source: Source) -> None:
    """Refuse a log with too many pairs of states and actions for the memory of this machine."""
    facts = source.facts
    if facts.n_states * facts.n_actions <= LARGEST_TABLE:  # else refused for that
        need_for_pairs(facts.n_states, facts.n_actions)


def count_source(source: Source, how: Counts, progress: Share | None = None) -> Counted:
    """What is counted of a log, wherever its rows are.

    Args:
        source: The log.
        how: How to count.
        progress: Called with the share that is done. Default None.

    Raises:
        ParameterError: If the treatment of cut episodes needs the whole log at once.
        LogError: If no episode is left, or a return is not finite.
    """
    check_treatment(source, how.cut)
    counted = source.reduce(how, progress)
    if counted.sums is None:
        raise none_is_left(source.facts.n_episodes)
    return counted
