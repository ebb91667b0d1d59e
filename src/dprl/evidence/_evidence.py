r"""Evidence: what a log says about every state and pair, in exact sums.

For every state s and pair (s, a), counted by trajectory and not by visit (by group where the log
has groups, such as a patient with several stays):

| symbol | meaning |
|---|---|
| n(s), V̂(s) | trajectories that visit s; mean of G at the first visit of s |
| n(s,a), Q̂(s,a) | trajectories that contain (s,a); mean of G at the first occurrence of (s,a) |
| m(s,a) | trajectories whose action at the first visit of s is a, with their G |

**Evidence is a monoid.** Returns and their squares are added as whole digits, each pair in a window
of its own (see `dprl._core.exact`): any chunking, any number of threads and any tree of merges
gives the same bits, a tie Q̂ = V̂ is a tie and is not decided by rounding, and a huge return of one
pair does not change any other pair. Where returns of one pair differ so much in size that digits
are lost, its mean and standard deviation are NaN, with a warning.

Each pair owns two accumulators: FIRST (its return at a first visit of s) and
LATER (its first occurrence when s was visited before, with another action). m counts FIRST,
n(s,a) counts both, n(s) sums FIRST over actions.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Visits
from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.exact import COUNT, LIMIT, NOTHING, SUMS, add_window
from dprl._core.exact_moments import moments, not_below
from dprl.errors import LogError, PrecisionWarning
from dprl.logs.log import Label

__all__ = ["COUNT", "FIRST", "LATER", "Evidence", "Moments", "check_summands"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Exponents: TypeAlias = NDArray[np.int16]
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
        >>> from dprl.evidence import tabular
        >>> log = dprl.from_arrays(
        ...     episode=[1, 1, 2, 3], state=["ill", "well", "ill", "ill"],
        ...     action=["drug", "wait", "wait", "drug"], reward=[0, 1, 0, 1],
        ... )
        >>> evidence = tabular.evidence(log, gamma=1.0)
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
        highest, lowest = NOTHING, 30_000
        for i in range(each):
            cell = begin + i * step
            if top[cell] != NOTHING:
                highest, lowest = max(highest, top[cell]), min(lowest, bottom[cell])
        tops[k], bottoms[k] = highest, lowest
        for i in range(each):
            cell = begin + i * step
            add_window(words, k, highest, sums, source, cell, top[cell], 1)


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
            highest, lowest = NOTHING, 30_000
            for b in range(s * A, s * A + A):
                if b != cell and top[b] != NOTHING:
                    highest, lowest = max(highest, top[b]), min(lowest, bottom[b])
            tops[cell], bottoms[cell] = highest, lowest
            if highest == whole[s]:
                words[cell] += state[s]
                add_window(words, cell, highest, sums, first, cell, top[cell], -1)
                continue
            for b in range(s * A, s * A + A):
                if b != cell:
                    add_window(words, cell, highest, sums, first, b, top[b], 1)


@compiled
def _compare(
    pair: Ints, top: Exponents, state: Ints, tops: Exponents, sums: int, out: NDArray[np.bool_]
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
        add_window(words, cell, top[cell], sums, source, cell, origin[cell], 1)


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
            action they took (`dprl.evidence._site_evidence`). Default False.

    Example:
        >>> import dprl
        >>> from dprl.evidence import tabular
        >>> log = dprl.from_arrays(
        ...     episode=[1, 1, 2, 3], state=["ill", "well", "ill", "ill"],
        ...     action=["drug", "wait", "wait", "drug"], reward=[0, 1, 0, 1],
        ... )
        >>> evidence = tabular.evidence(log, gamma=1.0)
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
        _join(words, self.top.ravel(), self.bottom.ravel(), self.sums, 2, len(room[0]), *room)
        return room

    @functools.cached_property
    def _state(self) -> Sums:
        room = self._room(len(self.states))
        _join(*self._flat(FIRST), self.sums, len(self.actions), 1, *room)
        return room

    def _moments(self, sums: Sums, shape: tuple[int, ...]) -> Moments:
        words, top, bottom = sums
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
        _join_others(*self._flat(FIRST), self.sums, len(self.actions), state, whole, *room)
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

    def not_worse(self, tolerance: float) -> NDArray[np.bool_]:
        """Where Q̂(s,a) >= V̂(s), or is smaller by no more than a rounding error.

        Q̂ >= V̂ is decided exactly, by cross-multiplying the integer sums.

        Args:
            tolerance: The share of the size of the returns at s (the root of their mean square)
                that counts as a rounding error, at least 0.

        Returns:
            bool (S, A); false where a pair was never seen.

        Example:
            >>> import dprl
            >>> from dprl.evidence import tabular
            >>> log = dprl.from_arrays(
            ...     episode=[1, 1, 2, 3], state=["ill", "well", "ill", "ill"],
            ...     action=["drug", "wait", "wait", "drug"], reward=[0, 1, 0, 1],
            ... )
            >>> evidence = tabular.evidence(log, gamma=1.0)
            >>> evidence.not_worse(1e-9).tolist()
            [[True, False], [False, True]]
        """
        out = np.empty(self._shape, np.bool_)
        _compare(*self._pair[:2], *self._state[:2], self.sums, out)
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
            >>> from dprl.evidence import tabular
            >>> log = risky_arms().sample(100, seed=0)
            >>> first = tabular.evidence(log.take(range(40)), gamma=1.0)
            >>> second = tabular.evidence(log.take(range(40, 100)), gamma=1.0)
            >>> whole = tabular.evidence(log, gamma=1.0)
            >>> bool((first.merge(second).state.n == whole.state.n).all())
            True
        """
        for name in ("states", "actions", "gamma", "visits", "sums", "rest"):
            if getattr(self, name) != getattr(other, name):
                raise LogError(
                    f"evidence with different {name} cannot be merged.",
                    do="Read or split the parts from one log, and use one gamma and one counting.",
                )
        check_summands(self.n_episodes + other.n_episodes)
        top = np.maximum(self.top, other.top)
        words = np.zeros_like(self.words)
        flat = words.reshape(-1, words.shape[-1])
        for part in (self, other):
            _raise(flat, part.words.reshape(flat.shape), part.top.ravel(), top.ravel(), self.sums)
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


def check_summands(n: int) -> None:
    """Refuse more returns than an exact sum can hold."""
    if n >= LIMIT:
        raise LogError(
            f"evidence can hold fewer than 2^30 returns per state; this log may have {n:,}.",
            do="Fit to a part of it.",
        )
