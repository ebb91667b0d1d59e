r"""Seven estimates of the value of a policy, from trajectories of another policy.

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

In the sum ∑_e w_t of WPDIS and WDR a finished trajectory keeps its last weight: its return is
known, and leaving it out would give its share of the average to longer trajectories. At a deferred
step the recursion of DR is v_t = r_t + γ v_{t+1}, and that of DM is the same. For a policy that
never speaks all seven estimates are the mean return, to the last bit.

Resampling: a bootstrap draw takes groups with replacement, which gives every group a count, and
every mean and sum above is taken with these counts (`dprl.evaluation._resampling`). The ratios and
the model stay as they are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.blas import single_thread
from dprl._core.bootstrap import counts
from dprl._core.compiled import compiled, in_parts
from dprl.evaluation._resampling import LANES, Sums, sums_by_group

__all__ = ["ESTIMATORS", "Weighted", "importance_weights"]

Floats = NDArray[np.float64]

ESTIMATORS = ("IS", "WIS", "PDIS", "WPDIS", "DM", "DR", "WDR")
IS, WIS, PDIS, WPDIS, DM, DR, WDR, BEHAVIOR = range(8)

LARGEST = 1e100
"""Largest weight (and largest value in the recursion of DR): its square must be finite."""


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
    """Fill w (N,) and single (E, 8): the estimates from each trajectory alone.

    The columns of the normalised estimates (WIS, WPDIS, WDR), which need all trajectories, are left
    as they are.
    """
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


@dataclass(frozen=True, eq=False)
class Weighted:
    """Trajectories with their importance weights; made by `importance_weights`.

    Attributes:
        starts: int64 (E + 1,), the first row of each trajectory, and N at the end.
        group: int32 (E,), group of each trajectory, codes 0..G-1.
        reward: float64 (N,), reward of each step.
        gamma: Discount per step.
        Q: float64 (N,), Q̂(s_t, a_t).
        V: float64 (N,), V̂(s_t).
        w: float64 (N,), cumulative weights w_t.
        single: float64 (E, 8), the estimates from each trajectory alone (columns as in
            `ESTIMATORS`, then the return); 0 for WIS, WPDIS and WDR, which need all trajectories.
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
        """G, the number of groups."""
        return int(self.group.max()) + 1

    @property
    def final(self) -> Floats:
        """float64 (E,): the weight of each whole trajectory, w at its last step."""
        return self.w[self.starts[1:] - 1]

    def estimates(self, weights: NDArray[Any] | None = None) -> Floats:
        """float64 (B, 8): the seven estimates and the behaviour's mean return.

        Args:
            weights: (B, G), how often each group counts in each of B draws. Default None:
                one draw (B = 1) in which every group counts once.
        """
        weights = np.ones((1, self.n_groups)) if weights is None else weights
        out = np.empty((len(weights), 8))
        sums = self._sums

        def part(first: int, last: int) -> None:
            for row in range(first, last, LANES):
                here = slice(row, min(row + LANES, last))
                out[here] = sums.estimates(weights[here])

        blocks = -(-len(weights) // LANES)
        edges = np.linspace(0, blocks, min(8, blocks) + 1).astype(int) * LANES
        with single_thread():
            in_parts(part, list(itertools.pairwise(np.minimum(edges, len(weights)).tolist())))
        if sums.same:
            out[:, [WPDIS, WDR]] = out[:, [BEHAVIOR, BEHAVIOR]]
        return out

    @functools.cached_property
    def _sums(self) -> Sums:
        """What every draw needs of the groups."""
        return sums_by_group(
            self.starts, self.group, self.n_groups, self.reward, self.gamma, self.Q, self.V,
            self.w, self.single,
        )  # fmt: skip

    def draws(self, n: int, seed: int, after: int = 0) -> Iterator[Floats]:
        """n bootstrap draws of the estimates, by group; yields parts, float64 (k, 8).

        The first `after` draws of this seed are left out.
        """
        drawn = counts(self.n_groups, n, seed, after, kind=np.uint16, together=2 * LANES)
        return map(self.estimates, drawn)


def importance_weights(
    starts: NDArray[np.int64],
    group: NDArray[np.int32],
    reward: Floats,
    gamma: float,
    ratio: Floats,
    speaks: NDArray[np.bool_],
    Q: Floats,
    V: Floats,
) -> Weighted:
    """Give every trajectory its importance weights.

    Args:
        starts: int64 (E + 1,), the first row of each trajectory, and N at the end.
        group: int32 (E,), codes 0..G-1; the trajectories of a group are resampled together.
        reward: float64 (N,), reward of each step.
        gamma: Discount per step, in (0, 1].
        ratio: float64 (N,), π / π_b of the action that was taken; 1 where the policy defers.
        speaks: bool (N,), false where the policy defers.
        Q: float64 (N,), Q̂ of the state and the action that was taken.
        V: float64 (N,), V̂ of the state; equal to Q where the policy defers.

    Returns:
        The trajectories with their weights.
    """
    w, single = np.empty(len(reward)), np.zeros((len(starts) - 1, 8))
    _weigh(starts, reward, float(gamma), ratio, speaks, Q, V, w, single)
    return Weighted(starts, group, reward, float(gamma), Q, V, w, single)
