r"""Many differences of two means at once, for large samples: step-down max-t over groups.

For comparison k let x be the values on one side (returns where the action was taken), y those on
the other, one value per group, n_x and n_y of them, s_x² and s_y² their variances. With

    v_x = s_x²/n_x      v_y = s_y²/n_y      s² = ((n_x - 1) s_x² + (n_y - 1) s_y²) / (n_x + n_y - 2)

    T_k = (mean x - mean y) / se      se² = max( v_x + v_y,  s² (1/n_x + 1/n_y) )

The second number under the maximum is the variance of the difference where both sides vary alike,
as they do where there is no difference. It protects against a side that happened not to vary: 100
successes out of 100 tell little if one in fifty fails elsewhere, although s_x = 0.

Under "no difference" T is nearly normal, with the correlations that groups with a part in several
comparisons make. They are drawn by giving every group a random sign ξ_g. With m_x and m_y the sums
of the signed deviations from the means, divided by n_x and n_y,

    T*_k = (m_x - m_y) / √( v_x - m_x²/n_x + v_y - m_y²/n_y )

(each side is divided by the error that its own signed values show, so that a side of ten has the
tails of a sample of ten). So that the heavy tails of a small comparison do not make the others
pay, T and T* are put on one scale, that of a normal variable: with df the degrees of freedom of
Satterthwaite (Wallace, 1959)

    z(t) = sign(t) (8 df + 1)/(8 df + 3) √( df ln(1 + t²/df) )

The adjusted p-value of the largest z compares it with the maximum of all z*, that of the next with
the maximum of the remaining ones, and so on, never smaller than the one before (Romano and Wolf,
2005). Lower ends use the maximum of all z*. Comparisons with fewer than 10 values on a side are
left out beforehand; how many there are says nothing about their values.

Nothing here needs the range of the values. All of it is an approximation that gets better with more
values on either side: never *proved*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl.certificate._first_returns import first_returns
from dprl.logs.log import Log
from dprl.logs.source import Source

__all__ = ["LEAST", "Comparisons", "compare", "compare_pairs"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST = 20
"""Values on either side from which on the error of the approximation was measured."""

FEWEST = 10
"""Values that either side must have to be compared at all."""

DRAWS, MOST_DRAWS = 4_999, 199_999
"""Draws of signs: so many, and more where the level is small, up to the second number."""

AT_ONCE = 1 << 22
"""Number of signs that are kept in memory at once."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """K differences of means, mean x - mean y, judged together.

    Attributes:
        difference: float64 (K,), NaN where a side is empty.
        p: float64 (K,), adjusted for all K; 1 where a side has fewer than 10 values or nothing
            varies.
        low: float64 (K,), lower ends that hold for all K at once; -inf where p is 1 for the reasons
            above.
    """

    difference: Floats
    p: Floats
    low: Floats


def compare(
    which: Ints, is_x: Bools, value: Floats, group: Ints, count: int, *, level: float, ends: float,
    seed: int = 0,
) -> Comparisons:  # fmt: skip
    """Compare two sides, in `count` comparisons at once.

    Args:
        which: int64 (n,), the comparison that each value belongs to, 0..count-1.
        is_x: bool (n,), true for values of side x, false for side y.
        value: float64 (n,), the values; at most one per group in each comparison.
        group: int64 (n,), the group of each value, codes from 0.
        count: K, the number of comparisons.
        level: Level of the p-values, which says how many draws are needed.
        ends: Level of the lower ends, all K together.
        seed: Seed of the signs. Default 0.
    """
    side = which + count * ~is_x  # x of all comparisons, then y of all
    n = np.bincount(side, minlength=2 * count)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(side, weights=value, minlength=2 * count) / n
        squares = np.bincount(side, weights=(value - mean[side]) ** 2, minlength=2 * count)
        variance = squares / (n - 1) / n
        (n_x, n_y), (v_x, v_y) = n.reshape(2, -1), variance.reshape(2, -1)
        alike = squares.reshape(2, -1).sum(axis=0) / (n_x + n_y - 2) * (1 / n_x + 1 / n_y)
        se = np.sqrt(np.maximum(v_x + v_y, alike))
        difference = mean[:count] - mean[count:]
        t = difference / se
        df = (v_x + v_y) ** 2 / (v_x**2 / (n_x - 1) + v_y**2 / (n_y - 1))
        df = np.where(np.isfinite(df), df, n_x + n_y - 2)
    fine = (np.minimum(n_x, n_y) >= FEWEST) & (se > 0) & np.isfinite(t)
    p, low = np.ones(count), np.full(count, -np.inf)
    if fine.any():
        z = np.full(count, -np.inf)
        z[fine] = normal_scale(t[fine], df[fine])
        order = np.flatnonzero(fine)[np.argsort(-z[fine], kind="stable")]
        parts = _parts(side, group, (value - mean[side]), n, order, count)
        draws = int(min(max(DRAWS, math.ceil(40 / min(level, ends))), MOST_DRAWS))
        beyond, top = _draw(parts, n, variance, z[order], df[order], order, count, draws, seed)
        p[order] = np.maximum.accumulate((1 + beyond) / (draws + 1))
        critical = float(np.quantile(top, 1 - ends, method="higher"))
        low[order] = difference[order] - student_scale(critical, df[order]) * se[order]
    return Comparisons(difference, p, low)


def compare_pairs(
    source: Source | Log,
    gamma: float,
    wanted: Bools,
    *,
    level: float,
    ends: float,
    seed: int = 0,
    cut: Cut | None = None,
) -> Comparisons:
    """Returns of first visits that took an action against those that did not, for wanted pairs.

    Args:
        source: A log with labelled states.
        gamma: Discount per step, in (0, 1].
        wanted: bool (S, A), the pairs to compare; the result has them in their order.
        level: Level of the p-values.
        ends: Level of the lower ends, all pairs together.
        seed: Seed of the signs. Default 0.
        cut: What is done with cut episodes. Default None: there are none.
    """
    visits = first_returns(source, np.asarray(wanted.any(axis=1)), gamma, cut)
    pairs = np.argwhere(wanted)
    members = [np.arange(len(visits.G))[visits.of_state(s)] for s, _ in pairs]
    which = np.repeat(np.arange(len(pairs)), [len(m) for m in members])
    at = np.concatenate(members) if members else np.empty(0, np.int64)
    took = visits.action[at] == pairs[which, 1] if len(at) else np.empty(0, bool)
    return compare(
        which, took, visits.G[at], visits.group[at], len(pairs), level=level, ends=ends, seed=seed
    )


def normal_scale(t: Floats, df: Floats) -> Floats:
    """A value of Student's t as one of a normal variable that is exceeded as often (Wallace)."""
    return np.asarray(np.sign(t) * (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(t * t / df)))


def student_scale(z: float, df: Floats) -> Floats:
    """The inverse of `normal_scale`."""
    scaled = z * (8 * df + 3) / (8 * df + 1)
    with np.errstate(over="ignore"):
        return np.asarray(np.sign(z) * np.sqrt(df * np.expm1(scaled * scaled / df)))


def _parts(side: Ints, group: Ints, deviation: Floats, n: Ints, order: Ints, count: int) -> Any:
    """Sparse (2k, groups): what each group adds to the error of x, then of y, in this order."""
    from scipy.sparse import csr_array

    place = np.full(2 * count, -1, np.int64)
    place[order] = np.arange(len(order))
    place[order + count] = len(order) + np.arange(len(order))
    used = np.flatnonzero((place[side] >= 0) & (deviation != 0))
    size = n[side[used]].astype(np.float64)
    sign = np.where(side[used] < count, 1.0, -1.0)
    column = np.unique(group[used], return_inverse=True)[1].reshape(-1)
    share = sign * deviation[used] / np.sqrt(size * (size - 1))
    groups = int(column.max()) + 1 if len(column) else 1
    return csr_array((share, (place[side[used]], column)), shape=(2 * len(order), groups))


def _draw(
    parts: Any, n: Ints, variance: Floats, z: Floats, df: Floats, order: Ints, count: int,
    draws: int, seed: int,
) -> tuple[Ints, Floats]:  # fmt: skip
    """How many draws reach each z in the step-down order (k,), and the largest z* of each draw."""
    rng, k = np.random.default_rng(seed), len(order)
    both = np.concatenate((order, order + count))
    v, size = variance[both][:, None], n[both][:, None]
    groups = parts.shape[1]
    width = -(-groups // 8)
    several = int(min(1_024, max(16, AT_ONCE // groups)))
    beyond, tops = np.zeros(k, np.int64), []
    for begin in range(0, draws, several):
        now = min(several, draws - begin)
        bits = np.frombuffer(rng.bytes(now * width), np.uint8).reshape(now, width)
        signs = 2.0 * np.unpackbits(bits, axis=1, count=groups) - 1.0
        moved = parts @ signs.T
        left = np.maximum(v - moved**2 / size, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            T = (moved[:k] + moved[k:]) / np.sqrt(left[:k] + left[k:])
        T[np.isnan(T)] = np.inf
        highest = np.maximum.accumulate(normal_scale(T, df[:, None])[::-1], axis=0)[::-1]
        beyond += (highest >= z[:, None]).sum(axis=1)
        tops.append(highest[0])
    return beyond, np.concatenate(tops)
