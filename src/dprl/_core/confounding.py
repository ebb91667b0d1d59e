r"""What an unrecorded cause could do to a mean: the marginal sensitivity model.

An unrecorded cause is something that moved both decisions and outcomes and is not in the state. Let
p be the probability of an action given the state, and p_u the one given the state and that cause.
The model (Tan, JASA 2006) bounds how far they are apart by one number Γ >= 1:

    1/Γ <= [p_u / (1 - p_u)] / [p / (1 - p)] <= Γ          (Γ = 1: no unrecorded cause)

Let x be the outcomes of those who took the action and y the outcomes of those who did not, in one
state. What the others would have had with the action is E[r x] for some weights r of mean 1 that
lie in [1/Γ, Γ]. For every number θ

    E[r x] >= E φ(x),   φ(x) = x/Γ + (1 - 1/Γ) (θ - (1 + Γ) (θ - x)_+)

because r (x - θ) >= (x - θ)_+ / Γ - Γ (θ - x)_+. It is an equality for θ = the 1/(1 + Γ) quantile
of x and the worst r, so the bound is sharp there (Dorn and Guo, JASA 2022). φ rises with x and
falls with Γ. The advantage of the action over usual practice is (1 - p)(E[r x] - E y), so it is
above 0 where E φ(x) > E y. Γ* is the smallest Γ at which it could be 0: for outcomes 0 and 1 with
means m and n it is max(m/n, (1 - n)/(1 - m)).

Where only the mean and the standard deviation s of x are on record, the Cauchy-Schwarz inequality
gives E[r x] >= E x - s (√Γ - 1/√Γ), whatever the shape of the outcomes, hence
Γ* >= exp(2 asinh((E x - E y) / 2s)). φ is concave, so among outcomes with one mean and one range
those that lie at its two ends are the worst.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl._core.words import say

__all__ = [
    "GAMMAS",
    "MOST",
    "breakdown",
    "breakdown_of_moments",
    "gamma_words",
    "lowest_mean",
    "threshold",
    "worst_case",
]

Floats: TypeAlias = NDArray[np.float64]

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


def breakdown(x: ArrayLike, usual: float, weight: ArrayLike | None = None) -> float:
    """Γ* as estimated: the smallest Γ at which the mean of x could be no more than `usual`.

    It has no allowance for chance. For outcomes in two values it is max(m/n, (1 - n)/(1 - m)).

    Args:
        x: Outcomes (n,) of those who took the action.
        usual: Mean outcome of those who did not.
        weight: Weights (n,) of the outcomes. Default None: all the same.

    Returns:
        A number from 1 to MOST; 1 where x is not better, MOST where it takes MOST or more.
    """
    values = np.asarray(x, np.float64)
    if not len(values) or not np.isfinite(usual) or lowest_mean(values, 1.0, weight) <= usual:
        return 1.0
    if lowest_mean(values, MOST, weight) > usual:
        return MOST
    low, high = 1.0, MOST
    for _ in range(50):
        middle = float(np.sqrt(low * high))
        above = lowest_mean(values, middle, weight) > usual
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
