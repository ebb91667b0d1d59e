r"""Intervals for the difference of two means that hold for few and for extreme outcomes.

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
* **all returns equal**: no interval, since nothing shows how they would vary.

How often they contain the truth was measured: `dprl reproduce contrasts`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVEL", "contrast", "contrast_of", "newcombe", "welch"]

Floats: TypeAlias = NDArray[np.float64]

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


def _is_two_valued(n: Floats, p: Floats, s: Floats) -> NDArray[np.bool_]:
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
    """`contrast` of two samples of returns, (n,) and (k,); NaN if there is no interval."""
    if not len(x) or not len(y):
        return float("nan"), float("nan")
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    if low == high:
        return float("nan"), float("nan")
    sides = [(v - low) / (high - low) for v in (x, y)]
    facts = [(len(v), v.mean(), v.std(ddof=1) if len(v) > 1 else np.nan) for v in sides]
    ends = contrast(*facts[0], *facts[1], 0.0, 1.0, level)
    return (high - low) * float(ends[0]), (high - low) * float(ends[1])
