r"""Bounds on what a policy is worth when an unrecorded cause moved treatment by up to Γ.

`dprl._core.confounding` explains Γ and φ. There are two ways, both with sampling error from a
bootstrap over groups: percentiles of the lower bound for the lower end, of the upper bound for the
upper end (Zhao, Small and Bhattacharya, JRSS-B 2019).

**One decision** (`OneDecision`): no episode has more than one step at which the policy differs from
practice. Let b be the probability of the suggested action there and Y the (discounted) return from
there on. Those who took the suggestion keep what they got; what the others would have got is E[r Y]
over those who took it, so

    difference to usual practice = 1/N ∑ over those who did otherwise of (E[r Y | state] - Y)

and E[r Y | state] is at least the mean of φ(Y) of those who took the suggestion, each weighted by
(1 - b)/b. For labels the counts, the mean and θ (a quantile) are those of each state, so this is
the sharp bound of the sample. For features θ is one quantile of Y, or a model of Y and a quantile
of its errors, or a quantile of Y in each of five parts by that model, whichever bounds better:
every θ gives a valid bound, and the nearer it is to the quantile given the state, the nearer the
bound is to the sharp one (Dorn and Guo, JASA 2022). Upper
bounds are lower bounds of -Y, with the sign changed. θ, and b for features, are not estimated again
in each draw; the counts of states are.

**Several decisions** (`Several`): the weight of an episode is a product of 1 + (1/b - 1) r over its
steps at which the policy differs, so it lies between two products. Of all weights in between, those
with the lowest weighted mean return give the large weight to low returns and the small weight to
high ones; the turning point is found by trying all. It is valid, but not sharp, and with many
decisions it soon says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dprl._core.bootstrap import counts
from dprl._core.confounding import threshold, worst_case

__all__ = ["Bounds", "OneDecision", "Several", "resampled"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROOM = 4_000_000
"""Numbers (draws times episodes or states) held at a time."""
BINS = 5
"""Parts of about equal size, by a model of the outcome, that have a θ of their own."""


class Bounds(Protocol):
    """Bounds of a difference at any Γ, for the log and for draws of its groups."""

    @property
    def n_groups(self) -> int:
        """The number of groups."""
        ...

    @property
    def width(self) -> int:
        """Numbers that one draw needs at a time."""
        ...

    def at(self, gamma: float, weight: Floats) -> Floats:
        """float64 (B, 2), the lowest and the highest difference; weight (B, groups) are counts."""
        ...


def resampled(bounds: Bounds, gamma: float, draws: int, seed: int) -> Floats:
    """float64 (draws, 2): the bounds at Γ in draws of whole groups."""
    return np.concatenate([bounds.at(gamma, some) for some in _blocks(bounds, draws, seed)])


def _blocks(bounds: Bounds, draws: int, seed: int) -> Iterator[Floats]:
    """Counts (some, groups) of the draws, a few at a time."""
    at_once = max(1, ROOM // max(bounds.width, 1))
    for block in counts(bounds.n_groups, draws, seed):
        for first in range(0, len(block), at_once):
            yield block[first : first + at_once]


@dataclass(frozen=True, eq=False)
class OneDecision:
    """Episodes with at most one step at which the policy differs from practice.

    A *pair* is a state and an action that the policy may take there; for features there is one pair
    for all. E is the number of episodes, K of those that took an action of the policy at their
    differing step, J of pairs, M of entries in `mass`.

    Attributes:
        group: int64 (E,), the group of each episode.
        n_groups: The number of groups.
        returns: float64 (E,), the return of each episode.
        lost: float64 (E,), what of Y the policy does not keep: Y for those who did otherwise, 0 for
            those who followed, (1 - π) Y in between, 0 where it differs nowhere.
        Y: float64 (K,), the outcomes of those who took it.
        took: int64 (K,), their episodes.
        pair: int64 (K,), their pairs.
        weight: float64 (K,), their weights within the pair.
        mass: (episode, pair, number) int64, int64, float64 (M,): those who did otherwise.
        n_pairs: J.
        guess: float64 (K,), a model of Y; None for labels.
        ends: (lowest, highest) outcome, for a pair that nobody took.
    """

    group: Ints
    n_groups: int
    returns: Floats
    lost: Floats
    Y: Floats
    took: Ints
    pair: Ints
    weight: Floats
    mass: tuple[Ints, Ints, Floats]
    n_pairs: int
    guess: Floats | None
    ends: tuple[float, float]

    @property
    def width(self) -> int:
        """Numbers that one draw needs at a time."""
        return max(self.n_groups, self.n_pairs)

    @property
    def sample_size(self) -> float:
        """The effective number of those who took the suggestion."""
        total = float(self.weight.sum())
        return total**2 / float((self.weight**2).sum()) if total > 0 else 0.0

    @property
    def untaken(self) -> float:
        """The share of those who did otherwise for whom nobody took the suggestion."""
        _, pair, number = self.mass
        there = np.bincount(self.pair, minlength=self.n_pairs) > 0
        total = float(number.sum())
        return float(number[~there[pair]].sum()) / total if total else 0.0

    def at(self, gamma: float, weight: Floats) -> Floats:
        """The lowest and the highest difference at Γ, float64 (B, 2), for counts (B, groups)."""
        episodes = weight @ np.bincount(self.group, minlength=self.n_groups)
        lost = weight @ np.bincount(self.group, weights=self.lost, minlength=self.n_groups)
        where, pair, number = self.mass
        mass = weight @ self._by_group(where, pair, number)
        size = weight @ self._by_group(self.took, self.pair, self.weight)
        ends = []
        for sign, end in ((1.0, self.ends[0]), (-1.0, self.ends[1])):
            worst = sign * self._worst(sign * self.Y, sign, gamma)
            total = weight @ self._by_group(self.took, self.pair, self.weight * worst)
            with np.errstate(divide="ignore", invalid="ignore"):
                mean = np.where(size > 0, total / size, end)
            ends.append(((mass * mean).sum(axis=1) - lost) / episodes)
        return np.column_stack(ends)

    def _by_group(self, episode: Ints, pair: Ints, number: Floats) -> Any:
        """Numbers added up, (groups, pairs): sparse where there are many pairs."""
        from scipy.sparse import coo_array

        shape = (self.n_groups, self.n_pairs)
        sums = coo_array((number, (self.group[episode], pair)), shape=shape).tocsr()
        return sums.toarray() if self.n_groups * self.n_pairs <= ROOM else sums

    def _worst(self, x: Floats, sign: float, gamma: float) -> Floats:
        """float64 (K,): φ(x), with θ from x."""
        if gamma == 1 or not len(x):
            return x
        if self.guess is not None:
            guess = sign * self.guess
            by_size = np.searchsorted(np.quantile(guess, np.arange(1, BINS) / BINS), guess)
            tried = (
                worst_case(x, threshold(x, gamma, self.weight), gamma),
                worst_case(x, guess + threshold(x - guess, gamma, self.weight), gamma),
                worst_case(x, self._thresholds(x, by_size, gamma), gamma),
            )
            return max(tried, key=lambda worst: float(worst @ self.weight))
        return worst_case(x, self._thresholds(x, self.pair, gamma), gamma)

    def _thresholds(self, x: Floats, part: Ints, gamma: float) -> Floats:
        """float64 (K,): θ of each part of the outcomes x, from the outcomes in it."""
        theta = np.zeros(len(x))
        order = np.argsort(part, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(part[order])) + 1):
            theta[rows] = threshold(x[rows], gamma, self.weight[rows])
        return theta


@dataclass(frozen=True, eq=False)
class Several:
    """Episodes with several steps at which the policy differs from practice.

    Attributes:
        group: int64 (E,), the group of each episode.
        n_groups: The number of groups.
        returns: float64 (E,), the return of each episode.
        starts: int64 (E + 1,), where the differing steps of each episode begin in `share`, `odds`.
        share: float64 (n,), π of the action taken at each of these steps; 0: not followed.
        odds: float64 (n,), (1 - b)/b of the action taken.
    """

    group: Ints
    n_groups: int
    returns: Floats
    starts: Ints
    share: Floats
    odds: Floats

    @property
    def width(self) -> int:
        """Numbers that one draw needs at a time."""
        return len(self.returns)

    def at(self, gamma: float, weight: Floats) -> Floats:
        """The lowest and the highest difference at Γ, float64 (B, 2), for counts (B, groups)."""
        order = np.argsort(self.returns, kind="stable")
        low, high = (self._products(r)[order] for r in (1 / gamma, gamma))
        G = self.returns[order]
        times = weight[:, self.group[order]]
        usual = (times @ G) / times.sum(axis=1)
        lowest = np.fmin.reduce(_turning(times * high, times * low, G), axis=1)
        highest = np.fmax.reduce(_turning(times * low, times * high, G), axis=1)
        return np.asarray(np.column_stack((lowest, highest)) - usual[:, None])

    @property
    def sample_size(self) -> float:
        """The effective number of episodes, of those that reach a differing step, at Γ = 1."""
        weight = self._products(1.0)[np.diff(self.starts) > 0]
        total = float(weight.sum())
        return total**2 / float((weight**2).sum()) if total > 0 else 0.0

    def _products(self, r: float) -> Floats:
        """float64 (E,): the weights of the episodes if the cause does the same at all steps."""
        factors = self.share * (1 + self.odds * r)
        result = np.ones(len(self.returns))
        some = np.flatnonzero(np.diff(self.starts))
        if len(some):
            result[some] = np.multiply.reduceat(factors, self.starts[some])
        return result


def _turning(first: Floats, then: Floats, G: Floats) -> Floats:
    """float64 (B, E + 1): weighted means, weights `first` up to a point and `then` after it."""

    def sums(values: Floats) -> Floats:
        return np.concatenate((np.zeros((len(values), 1)), np.cumsum(values, axis=1)), axis=1)

    a, b = sums(first), sums(then)
    x, y = sums(first * G), sums(then * G)
    below = a + b[:, -1:] - b
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (x + y[:, -1:] - y) / below
    return np.asarray(np.where(below > 0, means, np.nan))
