r"""Evidence: what a log says about every state and pair, in exact sums.

For every state s and pair (s, a), counted by trajectory and not by visit (where the log has
groups, a patient with several stays, by group):

| symbol | meaning |
|---|---|
| n(s), V̂(s) | trajectories that visit s; mean of G at the first visit of s |
| n(s,a), Q̂(s,a) | trajectories that contain (s,a); mean of G at the first occurrence of (s,a) |
| m(s,a) | trajectories whose action at the first visit of s is a, with their G |

**Evidence is a monoid.** Returns are added as integers, round(G / unit), with the smallest power of
two for a unit that cannot overflow (for a million trajectories 2^-42 of the largest return).
Integer sums do not depend on their order, so any chunking, any number of threads and any tree of
merges gives the same bits, and a tie Q̂ = V̂ is a tie, not a coin tossed by rounding.

Each pair owns two accumulators: FIRST (its return at a first visit of s) and
LATER (its first occurrence when s was visited before, with another action). m counts FIRST,
n(s,a) counts both, n(s) sums FIRST over actions.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError, ParameterError
from dprl.log import Label

__all__ = ["COUNT", "FIRST", "LATER", "SQUARE", "SUM", "WORDS", "Evidence", "Moments", "Units",
           "Visits"]  # fmt: skip

Visits: TypeAlias = Literal["first", "all"]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FIRST, LATER = 0, 1
COUNT, SUM, SQUARE = range(3)
WORDS = 3
HALF = 31


@dataclass(frozen=True)
class Units:
    """How returns become integers.

    Attributes:
        sum: What one count of a sum is worth, a power of two.
        square: What one count of a sum of squares is worth, a power of two.
        centre: Squares are of G - centre: returns far from 0 keep the digits of their variance.
        low: No return may be smaller.
        high: No return may be larger.
        times: No more returns than this may be added up.
    """

    sum: float
    square: float
    centre: float
    low: float
    high: float
    times: int

    @classmethod
    def holding(cls, span: tuple[float, float], times: int) -> Units:
        """The finest units in which so many returns, all within `span`, can be added up."""
        low, high = map(float, span)
        if not 0 <= times < 1 << HALF:
            raise ParameterError(f"evidence holds up to 2^31 trajectories; got {times:,}.")
        if not low <= high:
            raise ParameterError(f"a span runs from its low to its high end; got {span!r}.")
        centre = low + (high - low) / 2
        far = max(high - centre, centre - low)
        return cls(
            unit_for(max(abs(low), abs(high)), times), unit_for(far * far, times),
            centre, low, high, times,
        )  # fmt: skip

    def hold(self, other: Units) -> bool:
        """Whether whatever fits `other` fits these too."""
        return self.low <= other.low and self.high >= other.high and self.times >= other.times


def unit_for(largest: float, times: int) -> float:
    """The smallest power of two u in which `times` values up to `largest` add to below 2^62."""
    exponent = math.frexp(largest)[1] + max(times, 1).bit_length() - 62 if largest > 0 else -1000
    return math.ldexp(1.0, max(exponent, -1000))  # 1/u must be finite too


@dataclass(frozen=True)
class Moments:
    """Count, mean and variance of groups of returns, arrays of one shape.

    Attributes:
        n: int64, how many.
        mean: float64, NaN where n = 0.
        variance: float64, the unbiased sample variance, NaN where n < 2.
    """

    n: Ints
    mean: Floats
    variance: Floats


def _moments(words: Ints, units: Units) -> Moments:
    """Moments of accumulators (..., WORDS)."""
    n = words[..., COUNT]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = words[..., SUM] * units.sum / n
        square = words[..., SQUARE] * units.square / n
        spread = square - (mean - units.centre) ** 2
        # Below what rounding can resolve: equal returns have no variance.
        blur = 4 * units.square + 2.0**-49 * square
        variance = np.where(spread <= blur, 0.0, spread) * n / (n - 1)
    return Moments(n, mean, np.where(n > 1, variance, np.nan))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Exact sufficient statistics of a log for decision points; immutable.

    Attributes:
        words: int64 (2, S, A, WORDS), the accumulators, FIRST and LATER.
        states: State labels.
        actions: Action labels.
        gamma: The discount of the returns.
        units: What the integer sums are worth.
        visits: "first" (by trajectory) or "all" (by visit, carries no certificate).
        n_episodes: Trajectories behind it.
    """

    words: Ints
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    units: Units
    visits: Visits
    n_episodes: int

    @property
    def _first(self) -> Ints:
        return np.asarray(self.words[FIRST])

    @functools.cached_property
    def _state(self) -> Ints:
        return np.asarray(self._first.sum(axis=1))

    @functools.cached_property
    def _pair(self) -> Ints:
        return np.asarray(self._first + self.words[LATER])

    @functools.cached_property
    def pair(self) -> Moments:
        """n(s,a) and Q̂(s,a), shape (S, A)."""
        return _moments(self._pair, self.units)

    @functools.cached_property
    def state(self) -> Moments:
        """n(s) and V̂(s), shape (S,)."""
        return _moments(self._state, self.units)

    @functools.cached_property
    def took(self) -> Moments:
        """First visits of s where a was taken: m(s,a) and their returns, shape (S, A)."""
        return _moments(self._first, self.units)

    @functools.cached_property
    def others(self) -> Moments:
        """First visits of s where another action was taken: n(s) - m(s,a), shape (S, A)."""
        return _moments(self._state[:, None] - self._first, self.units)

    @property
    def n_pair(self) -> Ints:
        """n(s,a), shape (S, A)."""
        return np.asarray(self._pair[..., COUNT])

    @property
    def n_others(self) -> Ints:
        """n(s) - m(s,a), shape (S, A)."""
        return np.asarray(self._state[:, None, COUNT] - self._first[..., COUNT])

    def not_worse(self, tolerance: float) -> NDArray[np.bool_]:
        """Where Q̂(s,a) >= V̂(s), or falls short by no more than `tolerance`; bool (S, A).

        Q̂ >= V̂ is decided exactly, by cross-multiplying the integer sums.
        """
        pair, state = self._pair, self._state[:, None]
        n, total = pair[..., COUNT], state[..., COUNT]
        mask = (1 << HALF) - 1
        low = (pair[..., SUM] & mask) * total - (state[..., SUM] & mask) * n
        high = (pair[..., SUM] >> HALF) * total - (state[..., SUM] >> HALF) * n
        exact = high + (low >> HALF) >= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = state[..., SUM] / total - pair[..., SUM] / n
        return np.asarray((n > 0) & (exact | (gap * self.units.sum <= tolerance)))

    def merge(self, other: Evidence) -> Evidence:
        """The evidence of both parts of a log (split between episodes) together.

        In the units of the whole (pass `units=` to `dprl.tabular.evidence`) the result equals the
        evidence of the whole to the last bit; otherwise units that hold both are found, and the
        result is right to rounding.
        """
        for name in ("states", "actions", "gamma", "visits"):
            if getattr(self, name) != getattr(other, name):
                raise LogError(
                    f"evidence with different {name} cannot be merged.",
                    do="Read or split the parts from one log, and use one gamma and one counting.",
                )
        a, b = self.units, other.units
        counted = int(self._state[:, COUNT].max(initial=0) + other._state[:, COUNT].max(initial=0))
        units = a
        if a != b or counted > a.times:
            times = max(counted, a.times, b.times)
            units = Units.holding((min(a.low, b.low), max(a.high, b.high)), times)
        return replace(
            self,
            words=_in_units(self, units) + _in_units(other, units),
            units=units,
            n_episodes=self.n_episodes + other.n_episodes,
        )


def _in_units(evidence: Evidence, units: Units) -> Ints:
    """The accumulators, expressed in other units."""
    old = evidence.units
    if units == old:
        return evidence.words
    words = evidence.words.copy()
    n, total = words[..., COUNT], words[..., SUM] * old.sum
    moved = old.centre - units.centre
    square = words[..., SQUARE] * old.square + moved * (2 * (total - n * old.centre) + n * moved)
    words[..., SUM] = np.rint(total / units.sum)
    words[..., SQUARE] = np.rint(np.maximum(square, 0.0) / units.square)
    return words
