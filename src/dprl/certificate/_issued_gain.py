r"""How much a policy gains that issues exactly what is certified, by how often it meets its states.

T is a set of states, each with one action, that *other groups proposed*: given those it is fixed.
Let b be usual practice and π_C the policy that does what T says in the states of C ⊆ T and as usual
everywhere else. Three things say how often π_C comes to a state of T, and the log of b tells all:

    h(s)      = E_b γ^τ 1{the first state of T that is met is s, after τ steps}
    K^π(t, s) = E_b γ^k 1{the next state of T after t is s, after k steps}, T's action taken at t
    K^b(t, s) = the same after any action at t

Between states of T and before the first of them π_C does as b does. So d(s), the discounted number
of visits of s under π_C, solves d = h + Kᵀ d, the rows of K from K^π in C and from K^b outside C,
where what follows a visit of a state of T depends on the past through that state alone. The
solution rises with h and K: lower bounds of those give a lower bound of d, and

    ρ(π_C) - ρ(b) = ∑_{s in C} d(s) A(s, T(s))  >=  ∑_{s in C} d_lo(s) A_lo(s)

All bounds hold at once, for every C ⊆ T: C may be chosen by the same data. Each entry is the mean
of numbers in [0, 1] that are seen one after the other (`lower_mean`); entries that were 0 among the
groups that proposed are bounded by 0, and cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.certificate._eprocess import lower_mean
from dprl.certificate._visits import counted_rows
from dprl.logs.log import Log

__all__ = ["Legs", "Meetings", "legs_of", "meetings"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


KEEP = 0.95
"""A certified state joins C while the bound stays above this share of the largest."""

TIE, MOST = 1e-12, 200
"""Differences below TIE are rounding; policy iteration ends after MOST steps at the latest."""


@dataclass(frozen=True, eq=False)
class Legs:
    """How often a leg led from one state of T to the next, in so many steps.

    The states of T have numbers 0..k-1. A row of `table` is (kind, source, to, gap, count); kind 0
    are ways to the first state of T (source is 0), 1 are legs that took T's action at the source,
    2 are other legs; `to` is k where no further state of T was met (gap is then 0).
    """

    k: int
    table: Ints
    gamma: float

    def seen(self, kinds: tuple[int, ...], source: int) -> tuple[Ints, Ints, Ints]:
        """(to, gap, count) of the legs of these kinds from a source."""
        rows = self.table[np.isin(self.table[:, 0], kinds) & (self.table[:, 1] == source)]
        return rows[:, 2], rows[:, 3], rows[:, 4]

    def merge(self, other: Legs) -> Legs:
        """The legs of two parts of a log together, where no group is in both parts."""
        both = np.concatenate((self.table, other.table))
        rows, place = np.unique(both[:, :4], axis=0, return_inverse=True)
        count = np.zeros(len(rows), np.int64)
        np.add.at(count, place.reshape(-1), both[:, 4])
        return Legs(self.k, np.column_stack((rows, count)), self.gamma)


@compiled
def _legs(
    starts: Ints, state: NDArray[np.int32], action: NDArray[np.int32], choice: NDArray[np.int32],
    number: Ints, counted: NDArray[np.bool_], first: NDArray[np.bool_], k: int, out: Ints,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Fill out (rows, 4) with (kind, source, to, gap) in one backward pass; returns how many."""
    n = 0
    for e in range(len(starts) - 1):
        to, at = k, -1
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            s = state[t]
            if number[s] < 0:
                continue
            if counted[t]:
                out[n, 0] = 1 if action[t] == choice[s] else 2
                out[n, 1], out[n, 2], out[n, 3] = number[s], to, at - t if to < k else 0
                n += 1
            to, at = number[s], t
        if first[e]:
            out[n, 0], out[n, 1], out[n, 2] = 0, 0, to
            out[n, 3] = at - starts[e] if to < k else 0
            n += 1
    return n


def legs_of(log: Log, choice: NDArray[np.int32], gamma: float) -> Legs:
    """The legs between states of T in a settled, gathered log.

    Args:
        log: The log. A group begins with its first episode, and the legs from a state are those of
            its first episode that visits the state.
        choice: int32 (S,), T: the action of each of its states, -1 elsewhere.
        gamma: Discount per step, in (0, 1].
    """
    speaks = np.flatnonzero(choice >= 0)
    number = np.full(log.n_states, -1, np.int64)
    number[speaks] = np.arange(len(speaks))
    first = np.zeros(log.n_episodes, bool)
    first[np.unique(log.group, return_index=True)[1]] = True
    out = np.empty((log.n_steps + log.n_episodes, 4), np.int64)
    counted = counted_rows(log, True)
    n = _legs(log.starts, log.codes(), log.action, choice, number, counted, first, len(speaks), out)
    rows, count = np.unique(out[:n], axis=0, return_counts=True)
    return Legs(len(speaks), np.column_stack((rows, count)), gamma)


@dataclass(frozen=True, eq=False)
class Meetings:
    """Lower bounds of h (k,), K^π and K^b (k, k), all at once.

    Attributes:
        h: How often a state of T is the first that is met, discounted.
        followed: K^π, after T's action.
        usual: K^b, after any action.
    """

    h: Floats
    followed: Floats
    usual: Floats

    def often(self, inside: Bools) -> Floats:
        """d_lo (k,): how often each state of T is met by the policy that speaks in C ⊆ T."""
        K = np.where(inside[:, None], self.followed, self.usual)
        return np.asarray(np.linalg.solve(np.eye(len(self.h)) - K.T, self.h))

    def best_part(self, low: Floats) -> tuple[Bools, float]:
        """The part C of T to issue, bool (k,), and its certified gain.

        To speak in a state is worth A_lo and leads on by K^π, to be silent is worth 0 and leads on
        by K^b: the C with the largest bound is found by policy iteration. Then further states speak
        while the bound stays above KEEP of the largest: what is certified of them is an
        improvement, and where they are silent only because of the errors of K, that is lost.

        Args:
            low: float64 (k,), A_lo in units of returns; below 0 where nothing is certified.
        """
        may = low >= 0
        gain = np.where(may, low, 0.0)
        inside, step = may.copy(), 0
        while True:
            K = np.where(inside[:, None], self.followed, self.usual)
            ahead = np.linalg.solve(np.eye(len(low)) - K, np.where(inside, gain, 0.0))
            speak, silent = gain + self.followed @ ahead, self.usual @ ahead
            better = np.where(inside, speak >= silent - TIE, speak > silent + TIE) & may
            if (better == inside).all() or step == MOST:
                break
            inside, step = better, step + 1
        worth = self.bound(inside, gain)
        least = KEEP * worth
        while (left := np.flatnonzero(may & ~inside)).size:
            more = worth + self._changes(inside, gain)[left]
            if more.max() < least:
                break
            inside[left[int(more.argmax())]] = True
            worth = self.bound(inside, gain)
        return inside, worth

    def _changes(self, inside: Bools, low: Floats) -> Floats:
        """(k,), how the bound changes if one more state speaks (the inverse of a changed row)."""
        K = np.where(inside[:, None], self.followed, self.usual)
        inverse = np.linalg.inv(np.eye(len(low)) - K)
        row = self.followed - self.usual
        ahead = inverse @ np.where(inside, low, 0.0)
        back = 1 - np.einsum("ij,ji->i", row, inverse)
        return np.asarray((self.h @ inverse) * (low + row @ ahead) / back)

    def bound(self, inside: Bools, low: Floats) -> float:
        """∑ d_lo A_lo over C."""
        return float((self.often(inside) * np.where(inside, low, 0.0)).sum())


def meetings(proposed: Legs, legs: Legs, level: float) -> Meetings:
    """Lower bounds of how often states of T are met.

    Args:
        proposed: The legs of the groups that proposed T; they say which entries are bounded.
        legs: The legs of other groups.
        level: Probability with which any of the bounds may fail.
    """
    k = legs.k
    kinds = {"h": ((0,), 1), "followed": ((1,), k), "usual": ((1, 2), k)}
    wanted = [
        (name, source, targets)
        for name, (kind, sources) in kinds.items()
        for source in range(sources)
        if len(targets := np.unique(proposed.seen(kind, source)[0])) and targets[0] < k
    ]
    bounds = {name: np.zeros((sources, k)) for name, (_, sources) in kinds.items()}
    n = sum(int((targets < k).sum()) for _, _, targets in wanted)
    nats = math.log(max(n, 1)) - math.log(level)
    for name, source, targets in wanted:
        ends, gap, count = legs.seen(kinds[name][0], source)
        discount = legs.gamma ** gap.astype(np.float64)
        for to in targets[targets < k]:
            bounds[name][source, to] = lower_mean(np.where(ends == to, discount, 0.0), count, nats)
    return Meetings(bounds["h"][0], bounds["followed"], bounds["usual"])
