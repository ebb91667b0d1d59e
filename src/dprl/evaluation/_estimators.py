r"""Seven estimates of what a policy is worth, from trajectories of another one.

Trajectory e has steps (s_t, a_t, r_t), t = 0..T-1, ratios ρ_t = π(a_t|s_t) / π_b(a_t|s_t), and
ρ_t = 1 exactly where the policy defers; w_t = ρ_0 ⋯ ρ_t, w_{-1} = 1. Q̂ and V̂ are a model's values
of π; at a deferred step V̂(s_t) = Q̂(s_t, a_t), since a_t is what the policy itself would have done.
With n trajectories and u_t = n w_t / ∑_e w_t:

    IS      mean of  w_{T-1} ∑_t γ^t r_t
    WIS     ∑_e w_{T-1} G / ∑_e w_{T-1}
    PDIS    mean of  ∑_t γ^t w_t r_t
    WPDIS   mean of  ∑_t γ^t u_t r_t
    DM      mean of  the rewards before the first step at which the policy speaks, then V̂ of it
    DR      mean of  v_0,   v_t = V̂(s_t) + ρ_t (r_t + γ v_{t+1} - Q̂(s_t, a_t))     (Jiang & Li 2016)
    WDR     mean of  ∑_t γ^t (u_t r_t + u_{t-1} V̂(s_t) - u_t Q̂(s_t, a_t))  (Thomas & Brunskill 2016)

In ∑_e w_t of WPDIS and WDR a trajectory that has finished stays with its last weight: its return is
known, and leaving it out would hand its share of the average to longer ones. At a deferred step the
recursion of DR reads v_t = r_t + γ v_{t+1}: it passes through, and so does DM. Every sum runs
backwards as returns do, so a policy that never speaks gets the mean return itself, to the last bit,
from all seven.

Resampling: a draw gives every group a count (groups with replacement), and every mean and sum above
is taken with these counts. The ratios and the model stay as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.bootstrap import counts
from dprl._core.compiled import compiled, in_parts

__all__ = ["ESTIMATORS", "Weighted", "weigh"]

Floats = NDArray[np.float64]

ESTIMATORS = ("IS", "WIS", "PDIS", "WPDIS", "DM", "DR", "WDR")
IS, WIS, PDIS, WPDIS, DM, DR, WDR, BEHAVIOR = range(8)

LARGEST = 1e100
"""Weights (and the recursion of DR) end here: their squares must still be numbers."""


@compiled
def _weigh(
    starts: NDArray[np.int64],
    reward: Floats,
    gamma: float,
    ratio: Floats,
    speaks: NDArray[np.bool_],
    Q: Floats,
    V: Floats,
    w: Floats,
    single: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill w (N,) and what every trajectory says alone, single (E, 8); the weighted ones stay."""
    for e in range(len(starts) - 1):
        begin, end = starts[e], starts[e + 1]
        weight = 1.0
        for i in range(begin, end):
            weight = min(weight * ratio[i], LARGEST)
            w[i] = weight
        G, pdis, dm, dr = 0.0, 0.0, 0.0, 0.0
        for i in range(end - 1, begin - 1, -1):
            G = reward[i] + gamma * G
            pdis = w[i] * reward[i] + gamma * pdis
            if speaks[i]:
                dm = V[i]
                dr = V[i] + ratio[i] * (reward[i] + gamma * dr - Q[i])
                dr = min(max(dr, -LARGEST), LARGEST)
            else:
                dm = reward[i] + gamma * dm
                dr = reward[i] + gamma * dr
        single[e, IS], single[e, PDIS], single[e, DM], single[e, DR] = weight * G, pdis, dm, dr
        single[e, BEHAVIOR] = G


@compiled
def _resample(
    starts: NDArray[np.int64],
    group: NDArray[np.int32],
    reward: Floats,
    gamma: float,
    Q: Floats,
    V: Floats,
    w: Floats,
    single: Floats,
    counts: Floats,
    out: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill out (B, 8) with the estimates under counts (B, G) of the groups."""
    longest = 0
    for e in range(len(starts) - 1):
        longest = max(longest, starts[e + 1] - starts[e])
    total, left = np.empty(longest), np.empty(longest + 1)
    for b in range(len(counts)):
        total[:], left[:] = 0.0, 0.0
        n = 0.0
        for e in range(len(starts) - 1):
            c = counts[b, group[e]]
            if c == 0.0:
                continue
            begin, end = starts[e], starts[e + 1]
            n += c
            for i in range(begin, end):
                total[i - begin] += c * w[i]
            left[end - begin] += c * w[end - 1]  # finished: its weight stays from here on
        gone = 0.0
        for t in range(longest):
            gone += left[t]
            total[t] += gone
        sums = np.zeros(8)
        for e in range(len(starts) - 1):
            c = counts[b, group[e]]
            if c == 0.0:
                continue
            begin, end = starts[e], starts[e + 1]
            wpdis, wdr, u = 0.0, 0.0, 0.0
            if w[end - 1] > 0.0:
                u = n * w[end - 1] / total[end - 1 - begin]
            for i in range(end - 1, begin - 1, -1):
                before = 1.0
                if i > begin:
                    before = n * w[i - 1] / total[i - 1 - begin] if w[i - 1] > 0.0 else 0.0
                wpdis = u * reward[i] + gamma * wpdis
                wdr = (u * reward[i] + (before * V[i] - u * Q[i])) + gamma * wdr
                u = before
            sums[WIS] += c * single[e, IS]
            sums[WPDIS] += c * wpdis
            sums[WDR] += c * wdr
            for k in (IS, PDIS, DM, DR, BEHAVIOR):
                sums[k] += c * single[e, k]
        for k in range(8):
            out[b, k] = sums[k] / (total[longest - 1] if k == WIS else n)
        if total[longest - 1] == 0.0:  # nobody's weight is left: there is nothing to average
            out[b, WIS], out[b, WPDIS], out[b, WDR] = np.nan, np.nan, np.nan


@dataclass(frozen=True, eq=False)
class Weighted:
    """Trajectories with their weights, ready to be averaged; made by `weigh`.

    Attributes:
        starts: int64 (E + 1,).
        group: int32 (E,), codes 0..G-1.
        reward: float64 (N,).
        gamma: Discount.
        Q: float64 (N,), Q̂(s_t, a_t).
        V: float64 (N,), V̂(s_t).
        w: float64 (N,), cumulative weights.
        single: float64 (E, 8), what each trajectory says alone.
    """

    starts: NDArray[np.int64]
    group: NDArray[np.int32]
    reward: Floats
    gamma: float
    Q: Floats
    V: Floats
    w: Floats
    single: Floats

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.group.max()) + 1

    @property
    def final(self) -> Floats:
        """float64 (E,): the weight of each whole trajectory."""
        return self.w[self.starts[1:] - 1]

    def estimates(self, weights: Floats | None = None) -> Floats:
        """float64 (B, 8): the seven estimates and the behaviour's mean return.

        weights (B, G): how often each group counts; once each by default, and then B is 1.
        """
        weights = np.ones((1, self.n_groups)) if weights is None else weights
        out = np.empty((len(weights), 8))

        def part(first: int, last: int) -> None:
            _resample(
                self.starts, self.group, self.reward, self.gamma, self.Q, self.V, self.w,
                self.single, weights[first:last], out[first:last],
            )  # fmt: skip

        edges = np.linspace(0, len(weights), min(8, len(weights)) + 1).astype(int).tolist()
        in_parts(part, list(itertools.pairwise(edges)))
        return out

    def draws(self, n: int, seed: int) -> Iterator[Floats]:
        """n draws of the estimates by group, float64 (some, 8) at a time."""
        return map(self.estimates, counts(self.n_groups, n, seed))


def weigh(
    starts: NDArray[np.int64],
    group: NDArray[np.int32],
    reward: Floats,
    gamma: float,
    ratio: Floats,
    speaks: NDArray[np.bool_],
    Q: Floats,
    V: Floats,
) -> Weighted:
    """Weigh trajectories.

    Args:
        starts: int64 (E + 1,), the first row of each trajectory, and N.
        group: int32 (E,), codes 0..G-1 of who is resampled as one.
        reward: float64 (N,).
        gamma: Discount.
        ratio: float64 (N,), π / π_b of what was done; 1 where the policy defers.
        speaks: bool (N,), where it does not defer.
        Q: float64 (N,), Q̂ of what was done.
        V: float64 (N,), V̂; equal to Q where the policy defers.
    """
    w, single = np.empty(len(reward)), np.zeros((len(starts) - 1, 8))
    _weigh(starts, reward, float(gamma), ratio, speaks, Q, V, w, single)
    return Weighted(starts, group, reward, float(gamma), Q, V, w, single)
