"""Intervals for the difference of two means that hold for few and for extreme outcomes.

x are returns of those who took an action, y of those who did otherwise, and [low, high] is the
range of both together. A t interval relies on the observed spread, and ten successes of ten have
none.

* **two values** (each return is `low` or `high`: died or lived): Newcombe's interval from the score
  intervals of both shares, d ∓ √((p_x - l_x)² + (u_y - p_y)²), with the continuity correction
  (Newcombe: *Interval estimation for the difference between independent proportions*, 1998, method
  11; without the correction, method 10, one failure of 10 where 1 in 100 fail is left out);
* **other returns**: both sides are given two more returns, one `low` and one `high`, and Welch's
  interval is computed with the resulting mean and variance, but the original count and degrees of
  freedom. Agresti and Coull do the same for a share: a side that by chance saw no extreme outcome
  learns of it from the other side. With many returns the two do not matter;
* **other returns, one by one** (`contrast_of`): a range grows with every rare return, and two more
  at its ends can make an interval several times too wide. So where both sides have a spread each
  end is the nearer one of the above and of t intervals, plain and with Hall's correction for
  skewness (Hall: *On the removal of skewness by transformation*, 1992). There a side learns its
  variance, where that is larger, and its skewness also from both sides together, which count as
  many returns as their kurtosis: about so many it takes to meet one that makes the tail;
* **all returns equal**: no interval, since nothing shows how they would vary.

How often they contain the truth was measured: `dprl reproduce contrasts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.words import say

# --- What an unrecorded cause could do to a mean: the marginal sensitivity model
#
# An unrecorded cause is something that moved both decisions and outcomes and is not in the state.
# Let p be the probability of an action given the state, and p_u the one given the state and that
# cause. The model (Tan, JASA 2006) bounds how far they are apart by one number Γ >= 1:
#
#     1/Γ <= [p_u / (1 - p_u)] / [p / (1 - p)] <= Γ          (Γ = 1: no unrecorded cause)
#
# Let x be the outcomes of those who took the action and y the outcomes of those who did not, in one
# state. What the others would have had with the action is E[r x] for some weights r of mean 1 that
# lie in [1/Γ, Γ]. For every number θ
#
#     E[r x] >= E φ(x),   φ(x) = x/Γ + (1 - 1/Γ) (θ - (1 + Γ) (θ - x)_+)
#
# because r (x - θ) >= (x - θ)_+ / Γ - Γ (θ - x)_+. It is an equality for θ = the 1/(1 + Γ) quantile
# of x and the worst r, so the bound is sharp there (Dorn and Guo, JASA 2022). φ rises with x and
# falls with Γ. The advantage of the action over usual practice is (1 - p)(E[r x] - E y), so it is
# above 0 where E φ(x) > E y. Γ* is the smallest Γ at which it could be 0: for outcomes 0 and 1 with
# means m and n it is max(m/n, (1 - n)/(1 - m)).
#
# Where only the mean and the standard deviation s of x are on record, the Cauchy-Schwarz inequality
# gives E[r x] >= E x - s (√Γ - 1/√Γ), whatever the shape of the outcomes, hence Γ* >= exp(2
# asinh((E x - E y) / 2s)). φ is concave, so among outcomes with one mean and one range those that
# lie at its two ends are the worst.

MOST: Final = 20.0
"""The largest Γ that is looked at: a Γ* of this size means "this or more"."""
GAMMAS: Final[Floats] = np.append(1.02 ** np.arange(int(np.log(MOST) / np.log(1.02)) + 1), MOST)
"""Values of Γ at which claims are tested, fixed beforehand: 1, then steps of 2 %, up to MOST."""


def worst_case(x: ArrayLike, theta: ArrayLike, gamma: float) -> Floats:
    """φ(x): numbers whose mean is at most the worst mean that an unrecorded cause allows.

    Args:
        x: Outcomes (n,) of those who took the action.
        theta: θ, one number or one for each outcome; it must not be chosen with these outcomes
            where a test of them follows.
        gamma: Γ, at least 1.

    Returns:
        float64 (n,).
    """
    values, theta = np.asarray(x, np.float64), np.asarray(theta, np.float64)
    if gamma == 1:
        return values  # to the last bit
    below = np.maximum(theta - values, 0.0)
    return np.asarray(theta + np.maximum(values - theta, 0.0) / gamma - gamma * below)


def threshold(x: ArrayLike, gamma: float, weight: ArrayLike | None = None) -> float:
    """θ at which the bound is sharp: the smallest outcome with a share >= 1/(1 + Γ) up to it.

    Args:
        x: Outcomes (n,), at least one.
        gamma: Γ, at least 1.
        weight: Weights (n,), at least 0. Default None: all the same.
    """
    values = np.asarray(x, np.float64)
    order = np.argsort(values, kind="stable")
    weights = np.ones(len(values)) if weight is None else np.asarray(weight, np.float64)
    up_to = np.cumsum(weights[order])
    place = np.searchsorted(up_to, up_to[-1] / (1 + gamma) * (1 - 1e-12))
    return float(values[order[min(int(place), len(values) - 1)]])


def lowest_mean(x: ArrayLike, gamma: float, weight: ArrayLike | None = None) -> float:
    """The smallest mean of r x over weights r in [1/Γ, Γ] of mean 1: the sharp bound in a sample.

    Args:
        x: Outcomes (n,), at least one.
        gamma: Γ, at least 1.
        weight: Weights (n,), at least 0, not all 0. Default None: all the same.
    """
    worst = worst_case(x, threshold(x, gamma, weight), gamma)
    return float(np.average(worst, weights=None if weight is None else np.asarray(weight)))


def breakdown(x: ArrayLike, usual: float) -> float:
    """Γ* as estimated: the smallest Γ at which the mean of x could be no more than `usual`.

    It has no allowance for chance. For outcomes in two values it is max(m/n, (1 - n)/(1 - m)).

    Args:
        x: Outcomes (n,) of those who took the action.
        usual: Mean outcome of those who did not.

    Returns:
        A number from 1 to MOST; 1 where x is not better, MOST where it takes MOST or more.
    """
    values = np.asarray(x, np.float64)
    if not len(values) or not np.isfinite(usual) or lowest_mean(values, 1.0) <= usual:
        return 1.0
    if lowest_mean(values, MOST) > usual:
        return MOST
    low, high = 1.0, MOST
    for _ in range(50):
        middle = float(np.sqrt(low * high))
        above = lowest_mean(values, middle) > usual
        low, high = (middle, high) if above else (low, middle)
    return low


def breakdown_of_moments(mean: Any, sd: Any, usual: Any, lowest: Any, highest: Any) -> Floats:
    """The least that Γ* is as estimated, where only moments and the range are on record.

    The larger of two bounds, each for outcomes of any shape: the one from the standard deviation
    and the one of outcomes in two values, the lowest and the highest (no other outcomes with this
    mean and range are worse). So it is exact where outcomes have two values.

    Args:
        mean: Mean outcome of those who took the action.
        sd: Their standard deviation; NaN where it is not known.
        usual: Mean outcome of those who did not.
        lowest: The lowest outcome there was; NaN where it is not known.
        highest: The highest outcome there was; NaN where it is not known.

    Returns:
        float64 of the shape of the arguments: from 1 to MOST, NaN where a mean is not known.
    """
    m, s, y, low, high = (np.asarray(v, np.float64) for v in (mean, sd, usual, lowest, highest))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        by_spread = np.exp(2 * np.arcsinh((m - y) / (2 * s)))
        by_range = np.fmax((m - low) / (y - low), (high - y) / (high - m))
        within = (low <= y) & (y <= high) & (low <= m) & (m <= high)
        result = np.fmax(np.where(s > 0, by_spread, 1.0), np.where(within, by_range, 1.0))
        result = np.where(m > y, np.clip(np.nan_to_num(result, nan=1.0), 1.0, MOST), 1.0)
    return np.asarray(np.where(np.isfinite(m) & np.isfinite(y), result, np.nan))


def gamma_words(gamma: float) -> str:
    """Γ* as it is printed, rounded down: "1.28", or "20 or more"."""
    if gamma >= MOST:
        return say("{most:g} or more", most=MOST)
    return say("{gamma:.2f}", gamma=np.floor(100 * gamma + 1e-9) / 100)


# --- Several means at once, from groups: step-down max-t with multipliers (large-sample)
#
# Group g contributes u_gk to the error of mean k (0 where it has no part in it), so that
#
#     se_k² = ∑_g u_gk²          T_k = (mean_k - null) / se_k
#
# Under no benefit T is nearly normal with the correlations of u. They are drawn by giving every
# group a random sign ξ_g. With m* = ∑_g ξ_g u_gk the mean of a draw, its own standard error, from
# the G_k groups that have a part in it, is √(se_k² - m*²/G_k), so
#
#     T*_k = m* / √(se_k² - m*²/G_k)
#
# since T, too, is divided by an error that the same groups tell: with 50 groups T is above 3 more
# than twice as often as m*/se_k, and as often as T*. The adjusted p-value of the largest T compares
# it with the maximum of all T*, that of the next with the maximum of the remaining ones, and so on,
# never smaller than the one before (Romano and Wolf, 2005).

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


# --- Intervals for the difference of two means that hold for few and for extreme outcomes

LEVEL = 0.95
"""The coverage that the intervals aim at."""
SAME = 1e-9
"""Differences of variances up to this share of the squared range are rounding errors."""


def welch(
    n_x: Any, mean_x: Any, sd_x: Any, n_y: Any, mean_y: Any, sd_y: Any, level: float = LEVEL
) -> tuple[Floats, Floats]:
    """Welch's two-sided t interval for E x - E y.

    Args:
        n_x: The number of x. All arguments are numbers, or arrays of one shape.
        mean_x: Their mean.
        sd_x: Their standard deviation.
        n_y: The number of y.
        mean_y: Their mean.
        sd_y: Their standard deviation.
        level: The coverage to aim at, between 0 and 1. Default 0.95.

    Returns:
        The lower and the upper end; NaN where a side has fewer than two.
    """
    from scipy.special import stdtrit

    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        u, v = sd_x / np.sqrt(n_x), sd_y / np.sqrt(n_y)
        error = np.hypot(u, v)
        a, b = u / error, v / error
        freedom = 1 / (a**4 / (n_x - 1) + b**4 / (n_y - 1))
        half = np.where(error > 0, stdtrit(freedom, (1 + level) / 2) * error, error)
        middle = np.asarray(mean_x - mean_y)
    return middle - half, middle + half


def _score(n: Any, p: Any, z: float) -> tuple[Floats, Floats]:
    """Wilson's score interval of a share p of n, with the continuity correction."""
    q, scale = 1 - p, 2 * (n + z * z)
    down = z * np.sqrt(np.maximum(z * z - 2 - 1 / n + 4 * p * (n * q + 1), 0)) + 1
    up = z * np.sqrt(np.maximum(z * z + 2 - 1 / n + 4 * p * (n * q - 1), 0)) + 1
    low = np.where(p <= 0, 0.0, np.maximum((2 * n * p + z * z - down) / scale, 0))
    high = np.where(p >= 1, 1.0, np.minimum((2 * n * p + z * z + up) / scale, 1))
    return np.minimum(low, p), np.maximum(high, p)


def newcombe(n_x: Any, p_x: Any, n_y: Any, p_y: Any, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Newcombe's interval for the difference p_x - p_y of two shares, continuity corrected.

    Args:
        n_x: The number of x. All arguments are numbers, or arrays of one shape.
        p_x: The share of successes among them.
        n_y: The number of y.
        p_y: The share of successes among them.
        level: The coverage to aim at, between 0 and 1. Default 0.95.

    Returns:
        The lower and the upper end; NaN where a side is empty.
    """
    from scipy.special import ndtri

    z = float(ndtri((1 + level) / 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        low_x, high_x = _score(n_x, p_x, z)
        low_y, high_y = _score(n_y, p_y, z)
        middle = np.asarray(p_x - p_y)
        return middle - np.hypot(p_x - low_x, high_y - p_y), middle + np.hypot(
            high_x - p_x, p_y - low_y
        )


def _is_two_valued(n: Floats, p: Floats, s: Floats) -> Bools:
    """Whether returns in [0, 1] with mean p and standard deviation s are all 0 or 1.

    This is so if Σ x(1 - x) = 0, that is s²·(n - 1)/n = p(1 - p).
    """
    seen = np.where(n > 1, s * s * (n - 1) / n, 0.0)
    return np.asarray(np.abs(seen - p * (1 - p)) <= SAME)


def _with_both_ends(n: Floats, p: Floats, s: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of returns in [0, 1] and two more returns, 0 and 1."""
    mean = (n * p + 1) / (n + 2)
    total = (n - 1) * s * s + n * (p - mean) ** 2 + mean**2 + (1 - mean) ** 2
    return mean, np.sqrt(total / (n + 1))


def contrast(
    n_x: Any, mean_x: Any, sd_x: Any, n_y: Any, mean_y: Any, sd_y: Any, low: Any, high: Any,
    level: float = LEVEL,
) -> tuple[Floats, Floats]:  # fmt: skip
    """An interval for E x - E y that holds for few and for extreme outcomes.

    Args:
        n_x: The number of x. All arguments are numbers, or arrays of one shape.
        mean_x: Their mean.
        sd_x: Their standard deviation.
        n_y: The number of y.
        mean_y: Their mean.
        sd_y: Their standard deviation.
        low: The smallest return of both sides, or the smallest possible one; NaN where not known.
        high: The largest return of both sides, or the largest possible one; NaN where not known.
        level: The coverage to aim at, between 0 and 1. Default 0.95.

    Returns:
        The lower and the upper end. NaN where all returns are equal, or a side has none, or only
        one of more than two values; without a range also where a side shows no spread.
    """
    n_x, mean_x, sd_x, n_y, mean_y, sd_y, low, high = np.broadcast_arrays(
        *(np.asarray(v, np.float64) for v in (n_x, mean_x, sd_x, n_y, mean_y, sd_y, low, high))
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        size = high - low
        p_x, p_y = (np.clip((m - low) / size, 0, 1) for m in (mean_x, mean_y))
        s_x, s_y = sd_x / size, sd_y / size
        two = _is_two_valued(n_x, p_x, s_x) & _is_two_valued(n_y, p_y, s_y)
        shares = newcombe(n_x, p_x, n_y, p_y, level)
        both = (n_x, *_with_both_ends(n_x, p_x, s_x), n_y, *_with_both_ends(n_y, p_y, s_y))
        wide = welch(*both, level)
        without_range = welch(n_x, mean_x, sd_x, n_y, mean_y, sd_y, level)
        unseen = ~(sd_x > 0) | ~(sd_y > 0)
        ends = [
            np.where(np.isnan(size), np.where(unseen, np.nan, p), size * np.where(two, share, w))
            for p, share, w in zip(without_range, shares, wide, strict=True)
        ]
    return ends[0], ends[1]


def contrast_of(x: Floats, y: Floats, level: float = LEVEL) -> tuple[float, float]:
    """An interval for E x - E y from samples (n,) and (k,); NaN if there is none."""
    if not len(x) or not len(y):
        return float("nan"), float("nan")
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    if low == high:
        return float("nan"), float("nan")
    sides = [(v - low) / (high - low) for v in (x, y)]
    facts = [(len(v), v.mean(), v.std(ddof=1) if len(v) > 1 else np.nan) for v in sides]
    ends = contrast(*facts[0], *facts[1], 0.0, 1.0, level)
    apart = [v for v, (_, _, sd) in zip(sides, facts, strict=True) if sd > 0]
    if len(apart) == 2 and not np.isin(np.concatenate(apart), (0.0, 1.0)).all():
        learned = _with_the_other(apart, level)
        ends = np.maximum(ends[0], learned[0]), np.minimum(ends[1], learned[1])
    return (high - low) * float(ends[0]), (high - low) * float(ends[1])


def _with_the_other(sides: list[Floats], level: float) -> tuple[float, float]:
    """The hull of t intervals, plain and corrected for skewness, in which sides learn from both."""
    from scipy.special import stdtrit

    n = np.array([len(v) for v in sides], np.float64)
    power = np.array([[((v - v.mean()) ** k).sum() for v in sides] for k in (2, 3, 4)])
    square, cube, fourth = power.sum(axis=1) / n.sum()
    both = fourth / square**2
    own = power[0] / (n - 1)
    shared = (power[0] + both * square * n.sum() / (n.sum() - 2)) / (n - 1 + both)
    parts, alone = np.maximum(own, shared) / n, own / n
    error = float(np.sqrt(parts.sum()))
    t = float(stdtrit(alone.sum() ** 2 / (alone**2 / (n - 1)).sum(), (1 + level) / 2))
    ends = [t, -t]
    for third in (power[1] / n, (power[1] + both * cube) / (n + both)):
        skew = float(np.clip((third[0] / n[0] ** 2 - third[1] / n[1] ** 2) / error**3, -3, 3))
        if abs(skew) > 1e-6:
            ends += [3 / skew * (np.cbrt(1 + skew * (z - skew / 6)) - 1) for z in (t, -t)]
    middle = float(sides[0].mean() - sides[1].mean())
    return middle - error * float(max(ends)), middle - error * float(min(ends))
