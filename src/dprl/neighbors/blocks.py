r"""Points in blocks of 128, laid out for the processor, and the one rule that decides who is near.

**The rule.** Point x lies in the closed ball of radius r around q when

    ((x_1 - q_1)^2 + (x_2 - q_2)^2) + ... <= r · r

in float64, summed in this order, no operations fused. Every path of the engine gives the answer of
this rule (`within`), so answers cannot depend on backend, block size or threads.

**The filter.** Deciding every pair this way would be slow, so a block also keeps its points in
float32, relative to its centre c and dimension-major, so that a plain loop over 128 lanes becomes
vector instructions. With y = fl32(x - c), p = fl32(q - c), δ the distance, u = 2^-24,

    | ||y - p|| - δ |  <=  u (||x - c|| + ||q - c||)  <=  E / 2,   E := 2u (reach + ||q - c||)

and the float32 sum s of D squares is ||y - p||² to a factor 1 ± (D + 8) u. Hence, with
κ := 2u (D + 8), twice what is needed and more than the roundings of the thresholds themselves,

    s <= (r - E)² (1 - κ)  is surely inside,   s > (r + E)² (1 + κ)  surely outside;

the few in between are asked of `within`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.compiled import compiled, fused

__all__ = ["LANES", "ONE", "QUERIES", "STEP", "Bits", "Blocks", "bit", "empty_blocks",
           "fill_blocks", "hits", "within"]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Bits: TypeAlias = NDArray[np.uint64]

LANES = 128
"""Points in a block."""

QUERIES = 64
"""Queries answered together: one bit of a word each."""

STEP = 4
"""Dimensions added to the sums at a time."""

U2 = 2.0**-23
SMALL, BIG = 1e-15, 1e18
"""Radii outside these would leave the range of float32: the filter then decides nothing."""

ONE = np.uint64(1)
PRIME = np.uint64(67)
PLACE = np.zeros(67, np.int64)  # 2^k mod 67 are all different: which k was it?
PLACE[[pow(2, k, 67) for k in range(64)]] = np.arange(64)


class Blocks(NamedTuple):
    """N points in B blocks.

    Attributes:
        z: float64 (N, d), in log order.
        row: int32 (B · LANES,), which row lies in every slot; -1 in the padding at the end.
        centre: float64 (B, d).
        reach: float64 (B,), the largest ||x - centre||.
        x: float32 (B, D, LANES), x - centre, D = d rounded up; +inf in the padding.
    """

    z: Floats
    row: NDArray[np.int32]
    centre: Floats
    reach: Floats
    x: NDArray[np.float32]


def empty_blocks(z: Floats, row: NDArray[np.int32]) -> Blocks:
    """Room for the points `z` in the order `row` (N,)."""
    (n, d), n_blocks = z.shape, -(-len(row) // LANES)
    slots = np.full(n_blocks * LANES, -1, np.int32)
    slots[:n] = row
    width = -(-d // STEP) * STEP
    return Blocks(
        z, slots, np.zeros((n_blocks, d)), np.zeros(n_blocks),
        np.zeros((n_blocks, width, LANES), np.float32),
    )  # fmt: skip


@compiled
def fill_blocks(blocks: Blocks, low: Floats, high: Floats) -> None:  # pragma: no cover - compiled
    """Write centres, reaches and float32 coordinates; low, high (B, d) receive the boxes."""
    n, d = blocks.z.shape
    z, row = blocks.z, blocks.row
    for b in range(len(blocks.reach)):
        first, last = b * LANES, min((b + 1) * LANES, n)
        for i in range(d):
            low[b, i] = high[b, i] = z[row[first], i]
        for slot in range(first + 1, last):
            for i in range(d):
                v = z[row[slot], i]
                low[b, i] = v if v < low[b, i] else low[b, i]
                high[b, i] = v if v > high[b, i] else high[b, i]
        for i in range(d):
            blocks.centre[b, i] = low[b, i] + 0.5 * (high[b, i] - low[b, i])
        for slot in range(first, last):
            total = 0.0
            for i in range(d):
                y = z[row[slot], i] - blocks.centre[b, i]
                blocks.x[b, i, slot - first] = y
                total += y * y
            blocks.reach[b] = max(blocks.reach[b], np.sqrt(total))
        for lane in range(last - first, LANES):
            blocks.x[b, 0, lane] = np.inf


@compiled
def within(z: Floats, row: int, q: Floats, limit: float) -> bool:  # pragma: no cover - compiled
    """The rule: whether the squared distance of z[row] (d,) and q (d,) is at most `limit`."""
    total = 0.0
    for i in range(z.shape[1]):
        t = z[row, i] - q[i]
        total += t * t
        if total > limit:  # sums of squares never fall
            return False
    return total <= limit


@compiled
def bit(word: np.uint64) -> int:  # pragma: no cover - compiled
    """The place of the lowest bit of a word that has one."""
    return int(PLACE[(word ^ (word & (word - ONE))) % PRIME])


@fused
def _squares(
    x: NDArray[np.float32],
    p: NDArray[np.float32],
    high: np.float32,
    s: NDArray[np.float32],
) -> bool:  # pragma: no cover - compiled
    """Fill s (LANES,) with ||x - p||² in float32, x (D, LANES), p (D,); False: all above `high`."""
    for lane in range(LANES):
        s[lane] = 0
    for i in range(0, len(p), STEP):
        a, b, c, d = p[i], p[i + 1], p[i + 2], p[i + 3]
        for lane in range(LANES):
            t, u = x[i, lane] - a, x[i + 1, lane] - b
            v, w = x[i + 2, lane] - c, x[i + 3, lane] - d
            s[lane] += (t * t + u * u) + (v * v + w * w)
        if i & 4:
            near = 0
            for lane in range(LANES):
                near += s[lane] <= high
            if near == 0:
                return False
    return True


@compiled
def hits(
    blocks: Blocks,
    b: int,
    q: Floats,
    radius: float,
    p: NDArray[np.float32],
    s: NDArray[np.float32],
    found: NDArray[np.int32],
) -> int:  # pragma: no cover - compiled
    """Fill `found` with the rows of block b within `radius` of q (d,); returns how many.

    p (D,) and s (LANES,) are scratch; p must be 0 beyond d.
    """
    n, d = blocks.z.shape
    norm = 0.0
    for i in range(d):
        t = q[i] - blocks.centre[b, i]
        p[i] = t
        norm += t * t
    E = U2 * (blocks.reach[b] + np.sqrt(norm))
    kappa = U2 * (len(p) + 8)
    low, high = np.float32(-1.0), np.float32(np.inf)
    if SMALL < radius < BIG:
        high = np.float32((radius + E) ** 2 * (1 + kappa))
        if radius > E:
            low = np.float32((radius - E) ** 2 * (1 - kappa))
    if not _squares(blocks.x[b], p, high, s):
        return 0
    limit = radius * radius
    first, k = b * LANES, 0
    for lane in range(min(LANES, n - first)):
        if s[lane] <= high:
            row = blocks.row[first + lane]
            if s[lane] <= low or within(blocks.z, row, q, limit):
                found[k] = row
                k += 1
    return k
