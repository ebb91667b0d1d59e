r"""Bootstrap draws of the seven estimates, many at a time.

A draw gives every group g a count c_g. Everything a draw needs is a sum over groups of c_g times a
number of the group, so these numbers are added up once, before the first draw:

    W_gt = ∑_e w_t              weights at step t; a finished trajectory keeps its last one
    A_gt = γ^t ∑_e w_t r_t
    B_gt = γ^t ∑_e w_t (r_t - Q̂_t)
    C_gt = γ^t ∑_e w_{t-1} V̂_t

(e: the trajectories of g). With N = ∑_g c_g (trajectories of g) and W_t = ∑_g c_g W_gt, A_t alike,

    WPDIS = ∑_t A_t / W_t
    WDR   = C_0 / N + ∑_t B_t / W_t + ∑_{t>0} C_t / W_{t-1}

So a draw has no division per step of the log, and `LANES` draws share one pass over the numbers:
the processor multiplies a number by several counts at once. Every draw is added up in the order of
the groups, whatever it shares the pass with, so the answer does not depend on threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled

__all__ = ["LANES", "Sums", "resample", "sums_by_group"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LANES = 16
"""Draws that share one pass over the log."""
OWN = np.array([0, 2, 4, 5, 7])
"""The columns of `Weighted.single` that are estimates of their own: IS, PDIS, DM, DR, return."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What the draws need of G groups; made by `sums_by_group`.

    Attributes:
        offset: int64 (G + 1,), where the steps of each group begin in `by_step`, and their number
            M. A group has as many steps as its longest trajectory.
        by_step: float64 (M, 4), the columns W, A, B and C; (M, 2) where there is no model: then B
            is A, and C is 0.
        alone: float64 (G, 6), sums of the estimates from single trajectories (the columns `OWN` of
            `Weighted.single`), and the number of trajectories.
        same: Whether the policy does what was done at all steps, with ratio 1 and V̂ = Q̂: then the
            estimates are the mean return, to the last bit.
    """

    offset: Ints
    by_step: Floats
    alone: Floats
    same: bool


def sums_by_group(
    starts: Ints,
    group: NDArray[np.int32],
    n_groups: int,
    reward: Floats,
    gamma: float,
    Q: Floats,
    V: Floats,
    w: Floats,
    single: Floats,
) -> Sums:
    """Add up what the draws need, by group.

    Args:
        starts: int64 (E + 1,), the first row of each trajectory, and N at the end.
        group: int32 (E,), group of each trajectory, codes 0..G-1.
        n_groups: G, the number of groups.
        reward: float64 (N,), reward of each step.
        gamma: Discount per step.
        Q: float64 (N,), Q̂(s_t, a_t).
        V: float64 (N,), V̂(s_t).
        w: float64 (N,), cumulative weights w_t.
        single: float64 (E, 8), the estimates from each trajectory alone.

    Returns:
        The sums.
    """
    longest = np.zeros(n_groups, np.int64)
    np.maximum.at(longest, group, np.diff(starts))
    offset = np.concatenate(([0], np.cumsum(longest)))
    model = bool(Q.any() or V.any())
    by_step = np.zeros((int(offset[-1]), 4 if model else 2))
    alone = np.zeros((n_groups, len(OWN) + 1))
    _add_up(starts, group, reward, gamma, Q, V, w, single, offset, by_step, alone)
    same = bool((w == 1).all() and (V == Q).all())
    return Sums(offset, by_step, alone, same)


@compiled
def _add_up(
    starts: Ints,
    group: NDArray[np.int32],
    reward: Floats,
    gamma: float,
    Q: Floats,
    V: Floats,
    w: Floats,
    single: Floats,
    offset: Ints,
    by_step: Floats,
    alone: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill `by_step` and `alone`, which are zero."""
    model = by_step.shape[1] == 4
    for e in range(len(starts) - 1):
        g, begin, end = group[e], starts[e], starts[e + 1]
        for k in range(len(OWN)):
            alone[g, k] += single[e, OWN[k]]
        alone[g, len(OWN)] += 1.0
        discount, before = 1.0, 1.0
        for t in range(offset[g + 1] - offset[g]):
            i, at = begin + t, offset[g] + t
            if i >= end:
                by_step[at, 0] += w[end - 1]
                continue
            by_step[at, 0] += w[i]
            by_step[at, 1] += discount * (w[i] * reward[i])
            if model:
                by_step[at, 2] += discount * (w[i] * (reward[i] - Q[i]))
                by_step[at, 3] += discount * (before * V[i])
            discount, before = discount * gamma, w[i]


@compiled
def _add(to: Floats, c: Floats, x: float) -> None:  # pragma: no cover - compiled
    """Add c times x; the loop over lanes is short and plain, so that it is done in few strokes."""
    for b in range(len(c)):
        to[b] += c[b] * x


@compiled
def resample(
    offset: Ints, by_step: Floats, alone: Floats, counts: Floats, out: Floats
) -> None:  # pragma: no cover - compiled
    """Fill out (B, 8) with the estimates under counts (B, G) of the groups.

    The columns of `out` are those of `ESTIMATORS` and the mean return.
    """
    WIS, WPDIS, WDR = 1, 3, 6
    G, columns, model = len(offset) - 1, by_step.shape[1], by_step.shape[1] == 4
    longest = 0
    for g in range(G):
        longest = max(longest, offset[g + 1] - offset[g])
    lanes = min(LANES, len(counts))
    steps = np.empty((longest, columns, lanes))
    left = np.empty((longest + 1, lanes))
    sums = np.empty((len(OWN) + 1, lanes))
    c = np.zeros(lanes)
    for first in range(0, len(counts), lanes):
        used = min(lanes, len(counts) - first)
        steps[:], left[:], sums[:] = 0.0, 0.0, 0.0
        for g in range(G):
            for b in range(used):
                c[b] = counts[first + b, g]
            begin, end = offset[g], offset[g + 1]
            for k in range(len(OWN) + 1):
                _add(sums[k], c, alone[g, k])
            for i in range(begin, end):
                for k in range(columns):
                    _add(steps[i - begin, k], c, by_step[i, k])
            _add(left[end - begin], c, by_step[end - 1, 0])  # they keep their weight
        for b in range(used):
            n = sums[len(OWN), b]
            gone, total, wpdis, wdr = 0.0, n, 0.0, 0.0
            for t in range(longest):
                gone += left[t, b]
                before, total = total, steps[t, 0, b] + gone
                if model and before > 0.0:
                    wdr += steps[t, 3, b] / before
                if total > 0.0:
                    wpdis += steps[t, 1, b] / total
                    if model:
                        wdr += steps[t, 2, b] / total
            row = out[first + b]
            for k in range(len(OWN)):
                row[OWN[k]] = sums[k, b] / n
            row[WIS] = sums[0, b] / total
            row[WPDIS] = wpdis
            row[WDR] = wdr if model else wpdis
            if total == 0.0:  # all weights are 0: there is nothing to average
                row[WIS], row[WPDIS], row[WDR] = np.nan, np.nan, np.nan
