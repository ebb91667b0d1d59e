r"""Points in blocks of 128, laid out for the processor, and the rule that decides what is near.

**The rule.** Point x lies in the closed ball of radius r around q when

    ((x_1 - q_1)^2 + (x_2 - q_2)^2) + ... <= r · r

in float64, summed in this order, no operations fused. Every path of the engine gives the answer of
this rule (`within`), so answers cannot depend on backend, block size or threads.

**The filter.** Deciding every pair this way would be slow, so a block also keeps its points in
float32, relative to a centre c it shares with its neighbours, and dimension-major, so that a
plain loop over 128 lanes becomes vector instructions (in the coordinates of
`dprl.evidence.neighbors._rotation`, right to E₀). With y = fl32(x - c), p = fl32(q - c), δ the
distance, u = 2^-24,

    | ||y - p|| - δ |  <=  u (||x - c|| + ||q - c||) + E₀  <=  E,   E := 2u (reach + ||q - c||) + E₀

and the float32 sum s of D squares is ||y - p||² to a factor 1 ± (D + 8) u. Hence, with
κ := 2u (D + 8), twice what is needed and more than the roundings of the thresholds themselves,

    s <= (r - E)² (1 - κ)  is surely inside,   s > (r + E)² (1 + κ)  surely outside;

for the few in between `within` decides.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import bit, compiled, fused
from dprl.evidence.neighbors._rotation import STEP, U2, Asked

__all__ = ["FAN", "LANES", "ONE", "QUERIES", "Bits", "Blocks", "Desk",
           "fill_blocks", "new_desk", "place", "scan", "within"]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bits: TypeAlias = NDArray[np.uint64]

LANES = 128
"""The number of points in a block."""

QUERIES = 64
"""The number of queries answered together: each is one bit of a word."""

FAN = 16
"""The number of blocks that share a centre, and a parent in a tree; a power of two."""

EARLY = 8
"""The number of dimensions after which a scan first checks whether any lane is left."""

SMALL, BIG = 1e-15, 1e18
"""Radii outside these would leave the range of float32: the filter then decides nothing."""

ONE = np.uint64(1)
GATHER = np.uint64(0x0102040810204080)
"""Times this, eight bytes of 0 or 1 become eight bits of the highest byte, the first one lowest."""


class Desk(NamedTuple):
    """Working memory of a scan for QUERIES queries.

    Attributes:
        p: float32 (QUERIES, D), queries relative to the current centre.
        low: float32 (QUERIES,), squared distances up to this are surely inside.
        high: float32 (QUERIES,), squared distances above this are surely outside.
        s: float32 (4, LANES), squared distances of four queries.
        flag: uint8 (LANES,), 0 or 1 for each lane.
        eight: uint64 (LANES / 8,), the same bytes, eight at a time.
        hits: uint64 (QUERIES, LANES / 64), the lanes found, one bit each.
    """

    p: NDArray[np.float32]
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    s: NDArray[np.float32]
    flag: NDArray[np.uint8]
    eight: Bits
    hits: Bits


@compiled
def new_desk(width: int) -> Desk:  # pragma: no cover - compiled
    """Working memory to scan blocks with this many dimensions."""
    eight = np.zeros(LANES // 8, np.uint64)
    return Desk(
        np.zeros((QUERIES, width), np.float32), np.zeros(QUERIES, np.float32),
        np.zeros(QUERIES, np.float32), np.zeros((4, LANES), np.float32),
        eight.view(np.uint8), eight, np.zeros((QUERIES, LANES // 64), np.uint64),
    )  # fmt: skip


class Blocks(NamedTuple):
    """N points in B blocks.

    Attributes:
        z: float64 (N, d), the points in log order.
        row: int32 (B · LANES,), the row in every slot; -1 in the padding at the end.
        centre: float64 (B / FAN, D), the centre of each FAN blocks, in search coordinates, D = d
            rounded up.
        reach: float64 (B / FAN,), the largest ||x - centre|| in these blocks.
        x: float32 (B, D, LANES), x - centre; +inf in the padding.
    """

    z: Floats
    row: NDArray[np.int32]
    centre: Floats
    reach: Floats
    x: NDArray[np.float32]


def fill_blocks(z: Floats, w: Floats, row: NDArray[np.int32]) -> tuple[Blocks, Floats, Floats]:
    """Blocks of the points in the order `row` (N,), and the corners (B, D) of their boxes.

    z (N, d): the points. w (N, D): the same in search coordinates.
    """
    n_blocks, width = -(-len(row) // LANES), w.shape[1]
    slots = np.full(n_blocks * LANES, -1, np.int32)
    slots[: len(row)] = row
    x = np.zeros((n_blocks, width, LANES), np.float32)
    groups = -(-n_blocks // FAN)
    blocks = Blocks(z, slots, np.zeros((groups, width)), np.zeros(groups), x)
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
    for b in range(len(low)):
        first, last = b * LANES, min((b + 1) * LANES, n)
        for i in range(width):
            low[b, i] = high[b, i] = w[row[first], i]
        for slot in range(first + 1, last):
            for i in range(width):
                v = w[row[slot], i]
                low[b, i] = v if v < low[b, i] else low[b, i]
                high[b, i] = v if v > high[b, i] else high[b, i]
    for g in range(len(blocks.reach)):
        blocks_here = range(g * FAN, min((g + 1) * FAN, len(low)))
        for i in range(width):
            least, most = low[g * FAN, i], high[g * FAN, i]
            for b in blocks_here:
                least, most = min(least, low[b, i]), max(most, high[b, i])
            blocks.centre[g, i] = least + 0.5 * (most - least)
        for b in blocks_here:
            first, last = b * LANES, min((b + 1) * LANES, n)
            for slot in range(first, last):
                total = 0.0
                for i in range(width):
                    y = w[row[slot], i] - blocks.centre[g, i]
                    blocks.x[b, i, slot - first] = y
                    total += y * y
                blocks.reach[g] = max(blocks.reach[g], np.sqrt(total))
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


@fused
def _relative(
    w: Floats, q: int, centre: Floats, g: int, p: NDArray[np.float32], k: int
) -> float:  # pragma: no cover - compiled
    """p[k] = w[q] - centre[g] in float32; returns its length.

    Rows are passed by number, here and below: a view of an array costs more than a short loop.
    """
    norm = np.float32(0.0)
    for i in range(p.shape[1]):
        t = np.float32(w[q, i] - centre[g, i])
        p[k, i] = t
        norm += t * t
    return float(np.sqrt(norm))


@compiled
def place(
    blocks: Blocks, g: int, asked: Asked, chosen: Ints, left: np.uint64, desk: Desk
) -> None:  # pragma: no cover - compiled
    """Place the queries chosen[k], k a bit of `left`, relative to the centre of blocks g."""
    w, slack, radius, centre, reach = (
        asked.w,
        asked.slack,
        asked.radius,
        blocks.centre,
        blocks.reach,
    )
    p, low, high = desk.p, desk.low, desk.high
    kappa = U2 * (p.shape[1] + 8)
    while left:
        k = bit(left)
        left &= left - ONE
        spread = reach[g] + _relative(w, chosen[k], centre, g, p, k)
        low[k], high[k] = np.float32(-1.0), np.float32(np.inf)
        if SMALL < radius < BIG:
            E = U2 * spread + slack[chosen[k]]
            high[k] = np.float32((radius + E) ** 2 * (1 + kappa))
            if radius > E:
                low[k] = np.float32((radius - E) ** 2 * (1 - kappa))


@fused
def _squares(
    x: NDArray[np.float32], p: NDArray[np.float32], k: int, s: NDArray[np.float32], i: int, end: int
) -> None:  # pragma: no cover - compiled
    """Add to s[0] (LANES,) the squares of x - p[k] in dimensions i to end; x (D, LANES)."""
    out = s[0]
    while i < end:
        a, b, c, d = p[k, i], p[k, i + 1], p[k, i + 2], p[k, i + 3]
        for lane in range(LANES):
            t, u, v, w = x[i, lane] - a, x[i + 1, lane] - b, x[i + 2, lane] - c, x[i + 3, lane] - d
            out[lane] = out[lane] + t * t + u * u + v * v + w * w
        i += STEP


@fused
def _squares4(
    x: NDArray[np.float32],
    p: NDArray[np.float32],
    ks: Ints,
    s: NDArray[np.float32],
    i: int,
    end: int,
) -> None:  # pragma: no cover - compiled
    """`_squares` for four queries p[ks[0]] to p[ks[3]]: every point is loaded once for four."""
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    k, j, m, n = ks[0], ks[1], ks[2], ks[3]
    while i < end:
        a0, b0, c0, d0 = p[k, i], p[k, i + 1], p[k, i + 2], p[k, i + 3]
        a1, b1, c1, d1 = p[j, i], p[j, i + 1], p[j, i + 2], p[j, i + 3]
        a2, b2, c2, d2 = p[m, i], p[m, i + 1], p[m, i + 2], p[m, i + 3]
        a3, b3, c3, d3 = p[n, i], p[n, i + 1], p[n, i + 2], p[n, i + 3]
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
        i += STEP


@compiled
def _any(
    s: NDArray[np.float32], high: NDArray[np.float32], ks: Ints
) -> bool:  # pragma: no cover - compiled
    """Whether any lane of the four queries is not surely outside."""
    h0, h1, h2, h3 = high[ks[0]], high[ks[1]], high[ks[2]], high[ks[3]]
    near = False
    for lane in range(LANES):
        near |= (s[0, lane] <= h0) | (s[1, lane] <= h1) | (s[2, lane] <= h2) | (s[3, lane] <= h3)
    return near


@compiled
def scan(
    blocks: Blocks, b: int, asked: Asked, chosen: Ints, left: np.uint64, desk: Desk
) -> np.uint64:  # pragma: no cover - compiled
    """Find the lanes of block b that lie in the balls of the queries chosen[k], k a bit of `left`.

    The queries have been placed before. Returns which of them found any lane, and fills desk.hits
    for those.
    """
    # Local names: taking an array out of a tuple in a loop would count references in the loop.
    x, rows, z, asked_z = blocks.x[b], blocks.row, blocks.z, asked.z
    p, low, high, s, flag, eight, hits = desk
    first, filled, limit = b * LANES, len(z) - b * LANES, asked.radius * asked.radius
    ks, D, any_found = np.zeros(4, np.int64), p.shape[1], np.uint64(0)
    while left:
        n = 0
        while left and n < 4:
            ks[n] = bit(left)
            left &= left - ONE
            n += 1
        s[:n], s[n:], i = 0, np.inf, 0
        for step in (EARLY, 2 * EARLY, D):  # most of a distance shows in the first dimensions
            end = min(step, D)
            if i < end:
                if i and not _any(s, high, ks):
                    break
                if n == 1:
                    _squares(x, p, ks[0], s, i, end)
                else:
                    _squares4(x, p, ks, s, i, end)
                i = end
        if i < D:
            continue
        for j in range(n):
            k = ks[j]
            inside, outside = low[k], high[k]
            some = doubt = False
            for lane in range(LANES):
                some |= s[j, lane] <= outside
                doubt |= (s[j, lane] <= outside) & (s[j, lane] > inside)
            if not some:
                continue
            for lane in range(LANES):
                flag[lane] = s[j, lane] <= outside
            for half in range(LANES // 64):
                near = np.uint64(0)
                for i in range(8):
                    byte = (eight[8 * half + i] * GATHER) >> np.uint64(56)
                    near |= byte << np.uint64(8 * i)
                if doubt:
                    maybe = near
                    while maybe:
                        lane = 64 * half + bit(maybe)
                        if s[j, lane] > inside and (
                            lane >= filled
                            or not within(z, rows[first + lane], asked_z, chosen[k], limit)
                        ):
                            near &= ~(maybe & ~(maybe - ONE))
                        maybe &= maybe - ONE
                hits[k, half] = near
                if near:
                    any_found |= ONE << np.uint64(k)
    return any_found
