r"""Points in blocks of 128, laid out for the processor, and the one rule that decides who is near.

**The rule.** Point x lies in the closed ball of radius r around q when

    ((x_1 - q_1)^2 + (x_2 - q_2)^2) + ... <= r · r

in float64, summed in this order, no operations fused. Every path of the engine gives the answer of
this rule (`within`), so answers cannot depend on backend, block size or threads.

**The filter.** Deciding every pair this way would be slow, so a block also keeps its points in
float32, relative to its centre c and dimension-major, so that a plain loop over 128 lanes becomes
vector instructions (in the coordinates of `dprl.neighbors.sketch`, right to E₀). With
y = fl32(x - c), p = fl32(q - c), δ the distance, u = 2^-24,

    | ||y - p|| - δ |  <=  u (||x - c|| + ||q - c||) + E₀  <=  E,   E := 2u (reach + ||q - c||) + E₀

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
from dprl.neighbors.sketch import STEP, Asked

__all__ = ["LANES", "ONE", "QUERIES", "Bits", "Blocks", "Desk", "bit",
           "fill_blocks", "new_desk", "scan", "within"]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]

LANES = 128
"""Points in a block."""

QUERIES = 64
"""Queries answered together: one bit of a word each."""

GROUP = 16
"""Lanes looked at one by one when any of them may be near."""

U2 = 2.0**-23
SMALL, BIG = 1e-15, 1e18
"""Radii outside these would leave the range of float32: the filter then decides nothing."""

ONE = np.uint64(1)
PRIME = np.uint64(67)
PLACE = np.zeros(67, np.int64)  # 2^k mod 67 are all different: which k was it?
PLACE[[pow(2, k, 67) for k in range(64)]] = np.arange(64)


class Desk(NamedTuple):
    """Scratch of a scan.

    Attributes:
        p: float32 (4, D), four queries relative to the block's centre.
        s: float32 (4, LANES), their squared distances.
        low: float32 (4,), up to where s is surely inside.
        high: float32 (4,), above which it is surely outside.
        found: int32 (QUERIES · LANES,), slots found, one query after the other.
        n_found: int64 (QUERIES,), how many of them each query has.
    """

    p: NDArray[np.float32]
    s: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    found: NDArray[np.int32]
    n_found: Ints


@compiled
def new_desk(width: int) -> Desk:  # pragma: no cover - compiled
    """Room to scan blocks of so many dimensions."""
    return Desk(
        np.zeros((4, width), np.float32), np.zeros((4, LANES), np.float32),
        np.zeros(4, np.float32), np.zeros(4, np.float32),
        np.zeros(QUERIES * LANES, np.int32), np.zeros(QUERIES, np.int64),
    )  # fmt: skip


class Blocks(NamedTuple):
    """N points in B blocks.

    Attributes:
        z: float64 (N, d), in log order.
        row: int32 (B · LANES,), which row lies in every slot; -1 in the padding at the end.
        centre: float64 (B, D), in search coordinates, D = d rounded up.
        reach: float64 (B,), the largest ||x - centre||.
        x: float32 (B, D, LANES), x - centre; +inf in the padding.
    """

    z: Floats
    row: NDArray[np.int32]
    centre: Floats
    reach: Floats
    x: NDArray[np.float32]


def fill_blocks(z: Floats, w: Floats, row: NDArray[np.int32]) -> tuple[Blocks, Floats, Floats]:
    """Blocks of the points in the order `row` (N,), and the corners (B, D) of their boxes.

    z (N, d): the points. w (N, D): in search coordinates.
    """
    n_blocks, width = -(-len(row) // LANES), w.shape[1]
    slots = np.full(n_blocks * LANES, -1, np.int32)
    slots[: len(row)] = row
    x = np.zeros((n_blocks, width, LANES), np.float32)
    blocks = Blocks(z, slots, np.zeros((n_blocks, width)), np.zeros(n_blocks), x)
    low, high = np.empty((n_blocks, width)), np.empty((n_blocks, width))
    _fill(blocks, w, low, high)
    return blocks, low, high


@compiled
def _fill(
    blocks: Blocks, w: Floats, low: Floats, high: Floats
) -> None:  # pragma: no cover - compiled
    """Write centres, reaches, float32 coordinates and boxes."""
    n, width = w.shape
    row = blocks.row
    for b in range(len(blocks.reach)):
        first, last = b * LANES, min((b + 1) * LANES, n)
        for i in range(width):
            low[b, i] = high[b, i] = w[row[first], i]
        for slot in range(first + 1, last):
            for i in range(width):
                v = w[row[slot], i]
                low[b, i] = v if v < low[b, i] else low[b, i]
                high[b, i] = v if v > high[b, i] else high[b, i]
        for i in range(width):
            blocks.centre[b, i] = low[b, i] + 0.5 * (high[b, i] - low[b, i])
        for slot in range(first, last):
            total = 0.0
            for i in range(width):
                y = w[row[slot], i] - blocks.centre[b, i]
                blocks.x[b, i, slot - first] = y
                total += y * y
            blocks.reach[b] = max(blocks.reach[b], np.sqrt(total))
        for lane in range(last - first, LANES):
            blocks.x[b, 0, lane] = np.inf


@compiled
def within(
    z: Floats, row: int, queries: Floats, q: int, limit: float
) -> bool:  # pragma: no cover - compiled
    """The rule: whether the squared distance of z[row] and queries[q] is at most `limit`."""
    total = 0.0
    for i in range(z.shape[1]):
        t = z[row, i] - queries[q, i]
        total += t * t
        if total > limit:  # sums of squares never fall
            return False
    return total <= limit


@compiled
def bit(word: np.uint64) -> int:  # pragma: no cover - compiled
    """The place of the lowest bit of a word that has one."""
    return int(PLACE[(word ^ (word & (word - ONE))) % PRIME])


@fused
def _relative(
    w: Floats, q: int, centre: Floats, b: int, p: NDArray[np.float32], k: int
) -> float:  # pragma: no cover - compiled
    """p[k] = w[q] - centre[b] in float32; returns its length.

    Rows are named by number, here and below: a view of an array costs more than a short loop.
    """
    norm = np.float32(0.0)
    for i in range(p.shape[1]):
        t = np.float32(w[q, i] - centre[b, i])
        p[k, i] = t
        norm += t * t
    return float(np.sqrt(norm))


@fused
def _squares(
    x: NDArray[np.float32],
    p: NDArray[np.float32],
    s: NDArray[np.float32],
    high: NDArray[np.float32],
) -> bool:  # pragma: no cover - compiled
    """s[0] (LANES,) = ||x - p[0]||² in float32, x (D, LANES); False once all exceed high[0]."""
    out, far = s[0], high[0]
    for lane in range(LANES):
        out[lane] = 0
    for i in range(0, p.shape[1], STEP):
        a, b, c, d = p[0, i], p[0, i + 1], p[0, i + 2], p[0, i + 3]
        for lane in range(LANES):
            t, u, v, w = x[i, lane] - a, x[i + 1, lane] - b, x[i + 2, lane] - c, x[i + 3, lane] - d
            out[lane] = out[lane] + t * t + u * u + v * v + w * w
        if i in (STEP, 3 * STEP):
            near = np.int32(0)
            for lane in range(LANES):
                near = np.int32(near + np.int32(out[lane] <= far))
            if near == 0:
                return False
    return True


@fused
def _squares4(
    x: NDArray[np.float32],
    p: NDArray[np.float32],
    s: NDArray[np.float32],
    high: NDArray[np.float32],
) -> bool:  # pragma: no cover - compiled
    """`_squares` for four queries, p (4, D), s (4, LANES): every point is loaded once for four."""
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    h0, h1, h2, h3 = high[0], high[1], high[2], high[3]
    for lane in range(LANES):
        s0[lane] = s1[lane] = s2[lane] = s3[lane] = 0
    for i in range(0, p.shape[1], STEP):
        a0, b0, c0, d0 = p[0, i], p[0, i + 1], p[0, i + 2], p[0, i + 3]
        a1, b1, c1, d1 = p[1, i], p[1, i + 1], p[1, i + 2], p[1, i + 3]
        a2, b2, c2, d2 = p[2, i], p[2, i + 1], p[2, i + 2], p[2, i + 3]
        a3, b3, c3, d3 = p[3, i], p[3, i + 1], p[3, i + 2], p[3, i + 3]
        for lane in range(LANES):
            a, b, c, d = x[i, lane], x[i + 1, lane], x[i + 2, lane], x[i + 3, lane]
            t, u, v, w = a - a0, b - b0, c - c0, d - d0
            s0[lane] = s0[lane] + t * t + u * u + v * v + w * w
            t, u, v, w = a - a1, b - b1, c - c1, d - d1
            s1[lane] = s1[lane] + t * t + u * u + v * v + w * w
            t, u, v, w = a - a2, b - b2, c - c2, d - d2
            s2[lane] = s2[lane] + t * t + u * u + v * v + w * w
            t, u, v, w = a - a3, b - b3, c - c3, d - d3
            s3[lane] = s3[lane] + t * t + u * u + v * v + w * w
        if i in (STEP, 3 * STEP):
            near = np.int32(0)
            for lane in range(LANES):
                near = np.int32(
                    near + np.int32(s0[lane] <= h0) + np.int32(s1[lane] <= h1)
                    + np.int32(s2[lane] <= h2) + np.int32(s3[lane] <= h3)
                )  # fmt: skip
            if near == 0:
                return False
    return True


@compiled
def _thresholds(
    radius: float, slack: float, spread: float, width: int
) -> tuple[np.float32, np.float32]:  # pragma: no cover - compiled
    """Where s is surely inside (<= low), surely outside (> high); spread = reach + ||q - c||."""
    low, high = np.float32(-1.0), np.float32(np.inf)
    if SMALL < radius < BIG:
        E, kappa = U2 * spread + slack, U2 * (width + 8)
        high = np.float32((radius + E) ** 2 * (1 + kappa))
        if radius > E:
            low = np.float32((radius - E) ** 2 * (1 - kappa))
    return low, high


@compiled
def scan(
    blocks: Blocks, b: int, asked: Asked, chosen: Ints, left: np.uint64, desk: Desk
) -> int:  # pragma: no cover - compiled
    """Find the slots of block b that lie in the balls of the queries chosen[k], k a bit of `left`.

    Fills desk.found and desk.n_found of these k; returns how many slots in all.
    """
    # Names for everything: taking an array out of a tuple in a loop would count references there.
    x, rows, z, centre, reach = blocks.x[b], blocks.row, blocks.z, blocks.centre, blocks.reach[b]
    p, s, low, high, found, n_found = desk
    asked_z, w, slack, radius = asked.z, asked.w, asked.slack, asked.radius
    first, filled, limit = b * LANES, len(z) - b * LANES, radius * radius
    ks, lanes = np.empty(4, np.int64), np.empty(LANES + 1, np.int64)
    total = 0
    while left:
        n = 0
        while left and n < 4:
            ks[n] = bit(left)
            left &= left - ONE
            n_found[ks[n]] = 0
            q = chosen[ks[n]]
            spread = reach + _relative(w, q, centre, b, p, n)
            low[n], high[n] = _thresholds(radius, slack[q], spread, p.shape[1])
            n += 1
        for k in range(n, 4):
            high[k] = -1.0
        if not (_squares(x, p, s, high) if n == 1 else _squares4(x, p, s, high)):
            continue
        for k in range(n):
            near = np.int32(0)
            for lane in range(LANES):
                near = np.int32(near + np.int32(s[k, lane] <= high[k]))
            if near == 0:
                continue
            start, m = total, 0
            for begin in range(0, min(LANES, filled), GROUP):
                near = np.int32(0)
                for lane in range(begin, begin + GROUP):
                    near = np.int32(near + np.int32(s[k, lane] <= high[k]))
                if near:
                    for lane in range(begin, begin + GROUP):  # no branches: most guesses fail
                        lanes[m] = lane
                        m += s[k, lane] <= high[k]
            for i in range(m):
                if lanes[i] < filled:
                    slot, sure = first + lanes[i], s[k, lanes[i]] <= low[k]
                    if sure or within(z, rows[slot], asked_z, chosen[ks[k]], limit):
                        found[total] = slot
                        total += 1
            n_found[ks[k]] = total - start
    return total
