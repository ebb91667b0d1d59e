r"""Several means at once, from groups: step-down max-t with multipliers (large-sample).

Group g contributes u_gk to the error of mean k (0 where it has no part in it), so that

    se_k² = ∑_g u_gk²          T_k = (mean_k - null) / se_k

Under no benefit T is nearly normal with the correlations of u. They are drawn by giving every group
a random sign ξ_g. With m* = ∑_g ξ_g u_gk the mean of a draw, its own standard error, from the G_k
groups that have a part in it, is √(se_k² - m*²/G_k), so

    T*_k = m* / √(se_k² - m*²/G_k)

since T, too, is divided by an error that the same groups tell: with 50 groups T is above 3 more
than twice as often as m*/se_k, and as often as T*. The adjusted p-value of the largest T compares
it with the maximum of all T*, that of the next with the maximum of the remaining ones, and so on,
never smaller than the one before (Romano and Wolf, 2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["MaxT", "cluster_parts", "max_t"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SOME = 1_024
"""Draws of signs that are kept in memory at once."""
SIGNS = 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1) - 1.0
"""float64 (256, 8), the signs that the bits of a byte stand for."""


@dataclass(frozen=True, eq=False)
class MaxT:
    """Means with simultaneous one-sided lower ends.

    Attributes:
        mean: float64 (K,).
        se: float64 (K,), by groups.
        t: float64 (K,), (mean - null) / se.
        p: float64 (K,), adjusted for all K; 1 where nothing varies.
        low: float64 (K,), lower ends that hold for all K at once at the level.
        high: float64 (K,), the same upwards.
    """

    mean: Floats
    se: Floats
    t: Floats
    p: Floats
    low: Floats
    high: Floats


def cluster_parts(values: Floats, group: Ints, n_groups: int) -> tuple[float, Floats]:
    """The mean of values (n,), and what each group adds to its error, (n_groups,)."""
    if not len(values):
        return float("nan"), np.zeros(n_groups)
    mean = float(values.mean())
    parts = np.bincount(group, weights=values - mean, minlength=n_groups) / len(values)
    groups = int((np.bincount(group) > 0).sum())
    return mean, parts * np.sqrt(groups / max(groups - 1, 1))


def max_t(
    mean: Floats,
    parts: Floats,
    *,
    level: float,
    null: float = 0.0,
    draws: int = 9_999,
    seed: int = 0,
) -> MaxT:
    """Adjusted p-values and simultaneous ends for "mean_k is above null".

    Args:
        mean: float64 (K,), the means.
        parts: float64 (G, K), what each group adds to the error of each mean.
        level: The chance that some claim is false, between 0 and 1.
        null: What a mean must exceed.
        draws: Number of draws of signs. Default 9,999.
        seed: Seed of the signs. Default 0.
    """
    K = len(mean)
    se = np.sqrt((parts**2).sum(axis=0))
    fine = (se > 0) & np.isfinite(mean)
    t = np.full(K, -np.inf)
    t[fine] = (mean[fine] - null) / se[fine]
    p, critical = np.ones(K), np.inf
    if fine.any():
        rng = np.random.default_rng(seed)
        scaled, T = parts[:, fine] / se[fine], np.empty((draws, int(fine.sum())))
        scaled = scaled[scaled.any(axis=1)]  # the signs of other groups do not matter
        width = -(-len(scaled) // 8)
        room = np.empty((min(SOME, draws), width, 8))
        for begin in range(0, draws, SOME):
            several = min(SOME, draws - begin)
            bits = np.frombuffer(rng.bytes(several * width), np.uint8).reshape(several, width)
            signs = np.take(SIGNS, bits, axis=0, out=room[:several], mode="clip")
            T[begin : begin + several] = signs.reshape(several, -1)[:, : len(scaled)] @ scaled
        groups = (parts[:, fine] != 0).sum(axis=0)
        with np.errstate(divide="ignore"):
            T /= np.sqrt(np.maximum(1 - T**2 / groups, 0.0))
        order = np.argsort(-t[fine], kind="stable")
        sorted_p, worst = np.empty(len(order)), 0.0
        tops = np.maximum.accumulate(T[:, order[::-1]], axis=1)[:, ::-1]
        for i, k in enumerate(order):
            beyond = 1 + int((tops[:, i] >= t[fine][k]).sum())
            worst = max(worst, beyond / (draws + 1))
            sorted_p[i] = worst
        within = np.empty(len(order))
        within[order] = sorted_p
        p[fine] = within
        critical = float(np.quantile(tops[:, 0], 1 - level, method="higher"))
    with np.errstate(invalid="ignore"):
        low, high = mean - critical * se, mean + critical * se
    return MaxT(mean, se, t, p, np.where(fine, low, -np.inf), np.where(fine, high, np.inf))
