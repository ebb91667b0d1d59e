r"""The aggregate tree: boxes around boxes around blocks of points, with sums for each box.

Points are divided again and again until 128 remain: a leaf, one block. The cut is made in the
dimension, and at the place, that removes most of the sum of squares about the mean, judged by a
sample: between two clusters, or between the hours with a drug and those without, rather than in the
middle. It is moved to the next multiple of 128 points, so that all leaves but the last are full,
and to a multiple of 16 leaves where many are left. 16 neighbouring leaves share a parent, 16
parents a grandparent, up to one root: the tree needs no pointers.

A parent keeps the boxes of its 16 children together, so that a query is compared with all of them
in one vectorised loop. No point of a box can be nearer than its nearest corner, or farther than its
farthest corner,

    near² = \sum_i max(low_i - q_i, q_i - high_i, 0)²
    far²  = \sum_i max(q_i - low_i, high_i - q_i)²

near² > r²: skip the box. far² <= r²: the whole box counts at once, by the sums it keeps. Otherwise
look inside. Coordinates are those of `dprl.evidence.neighbors.metric`, so r is widened, or
narrowed, by the bound of their error: a box may be opened in vain, but is never skipped or counted
wrongly.
"""

from __future__ import annotations

# Apart: kernels; the engine may be asked without them.
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints, Singles
from dprl._core.compiled import bit, compiled, fused
from dprl._core.exact import COUNT
from dprl.evidence.counts import FIRST, LATER
from dprl.evidence.neighbors.metric import STEP, U2, Asked

# --- Points in blocks of 128, laid out for the processor, and the rule that decides what is near
#
# **The rule.** Point x lies in the closed ball of radius r around q when
#
#     ((x_1 - q_1)^2 + (x_2 - q_2)^2) + ... <= r · r
#
# in float64, summed in this order, no operations fused. Every path of the engine gives the answer
# of this rule (`within`), so answers cannot depend on backend, block size or threads.
#
# **The filter.** Deciding every pair this way would be slow, so a block also keeps its points in
# float32, relative to a centre c it shares with its neighbours, and dimension-major, so that a
# plain loop over 128 lanes becomes vector instructions (in the coordinates of
# `dprl.evidence.neighbors.metric`, right to E₀). With y = fl32(x - c), p = fl32(q - c), δ the
# distance, u = 2^-24,
#
#     | ||y - p|| - δ |  <=  u (||x - c|| + ||q - c||) + E₀  <=  E,   E := 2u (reach + ||q - c||)
#     + E₀
#
# and the float32 sum s of D squares is ||y - p||² to a factor 1 ± (D + 8) u. Hence, with
# κ := 2u (D + 8), twice what is needed and more than the roundings of the thresholds themselves,
#
#     s <= (r - E)² (1 - κ)  is surely inside,   s > (r + E)² (1 + κ)  surely outside;
#
# for the few in between `within` decides.

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

    p: Singles
    low: Singles
    high: Singles
    s: Singles
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
    x: Singles


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
    w: Floats, q: int, centre: Floats, g: int, p: Singles, k: int
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
    x: Singles, p: Singles, k: int, s: Singles, i: Any, end: int
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
    x: Singles,
    p: Singles,
    ks: Ints,
    s: Singles,
    i: Any,
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
def _any(s: Singles, high: Singles, ks: Ints) -> bool:  # pragma: no cover - compiled
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
        for k in range(4):
            start = np.float32(0.0 if k < n else np.inf)
            for lane in range(LANES):
                s[k, lane] = start
        i = 0
        for step in (EARLY, 2 * EARLY, D):  # most of a distance shows in the first dimensions
            end = min(step, D)
            if i < end:
                if i and not _any(s, high, ks):
                    break
                if n == 1:
                    _squares(x, p, ks[0], s, np.int64(i), end)
                else:
                    _squares4(x, p, ks, s, np.int64(i), end)
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


# --- The aggregate tree: boxes around boxes around blocks of points, with sums for each box

LEAST = 1e-44
"""More than float32 loses of a number near 0."""

SAMPLE, BINS = 256, 32
"""The number of points used to find a cut, and of cuts tried in each dimension."""

WHOLE = 4 * FAN
"""With up to this many leaves, a cut may go through a family."""

LOPSIDED = 16
"""The most cuts above a leaf that may divide off less than an eighth, so no tree grows too deep."""


class Boxes(NamedTuple):
    """The families of a tree over L leaves, lowest level first, the root last.

    A family is a parent with up to FAN children.

    Attributes:
        low: float32 (F, D, FAN), lower corners of the children, rounded outward; D = d rounded up.
        high: float32 (F, D, FAN), upper corners of the children, rounded outward.
        size: int64 (F,), the number of children of a family.
        child: int64 (F,), the first child: a leaf in the lowest level, else a family.
        n_lowest: int64 (1,), the number of families in the lowest level.
        half: float64 (F, FAN), half the diagonal of every child: no ball with a smaller radius
            holds it.
        slots: int64 (F, FAN, 2), the slots of every child, as first and last + 1.
        split: int64 (L,), the dimension in which the points left and right of leaf l were divided.
        value: float64 (L,), the coordinate at which they were divided.
        below: int64 (L, 2), the cuts that divide the left and the right side again; 0: none. The
            very first cut is below[0, 0].
    """

    low: Singles
    high: Singles
    size: Ints
    child: Ints
    n_lowest: Ints
    half: Floats
    slots: Ints
    split: Ints
    value: Floats
    below: Ints


@compiled
def _cut(
    w: Floats, row: NDArray[np.int32], first: int, last: int, bins: Floats
) -> tuple[int, float, float]:  # pragma: no cover - compiled
    """In which dimension to divide the points in these slots, which share goes left, and where.

    The cut that removes most of the sum of squares about the mean, judged by a sample. No cut
    removes more than there is, so dimensions that vary less than the best cut so far are not tried.
    """
    step = max(1, (last - first) // SAMPLE)
    n, best, gain, share, edge = len(range(first, last, step)), 0, 0.0, 0.5, np.nan
    for i in range(w.shape[1]):
        origin, total, square = w[row[first], i], 0.0, 0.0
        low = high = 0.0
        for slot in range(first, last, step):
            v = w[row[slot], i] - origin
            total, square = total + v, square + v * v
            low, high = min(low, v), max(high, v)
        mean = total / n
        if square - total * mean <= gain or not low < high:
            continue
        for b in range(len(bins)):
            bins[b, 0] = bins[b, 1] = 0.0
        scale = BINS * (1 - 1e-9) / (high - low)
        for slot in range(first, last, step):
            v = w[row[slot], i] - origin
            k = int((v - low) * scale)
            bins[k, 0] += 1.0
            bins[k, 1] += v - mean
        m = left = 0.0
        for k in range(BINS - 1):
            m, left = m + bins[k, 0], left + bins[k, 1]
            if 0 < m < n and left * left * (1 / m + 1 / (n - m)) > gain:
                best, gain, share = i, left * left * (1 / m + 1 / (n - m)), m / n
                edge = origin + low + (k + 1) / scale
    return best, share, edge


@compiled
def _part(
    key: Floats, row: NDArray[np.int32], first: int, last: int, middle: int
) -> None:  # pragma: no cover - compiled
    """Reorder slots so that no key before `middle` exceeds a key from it on (quickselect)."""
    low, high = first, last - 1
    while low < high:
        a, b, c = key[low], key[(low + high) >> 1], key[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while key[i] < pivot:
                i += 1
            while key[j] > pivot:
                j -= 1
            if i <= j:
                key[i], key[j] = key[j], key[i]
                row[i], row[j] = row[j], row[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@compiled
def _arrange(
    w: Floats, row: NDArray[np.int32], key: Floats, split: Ints, value: Floats, below: Ints
) -> None:  # pragma: no cover - compiled
    """Sort rows into leaves, in place."""
    todo, bins = np.empty((256, 4), np.int64), np.empty((BINS, 2))
    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = 0, len(split), LOPSIDED, 0
    top = 1
    while top:
        top -= 1
        a, b, lopsided, above = todo[top, 0], todo[top, 1], todo[top, 2], todo[top, 3]
        if b - a < 2:
            continue
        first, last = a * LANES, min(b * LANES, len(w))
        i, share, edge = _cut(w, row, first, last, bins)
        unit = 1  # cuts leave whole families on either side
        while unit * WHOLE < b - a:
            unit *= FAN
        families = -(-(b - a) // unit)
        few = families // 8 if lopsided == 0 else 1
        m = max(1, few, min(families - 1, families - few, int(share * (b - a) / unit + 0.5)))
        m = a + m * unit
        if min(m - a, b - m) < (b - a) // 8:
            lopsided -= 1
        middle = m * LANES
        for slot in range(first, last):
            key[slot] = w[row[slot], i]
        _part(key, row, first, last, middle)
        split[m], value[m] = i, edge if abs(m - a - share * (b - a)) <= unit else key[middle]
        below[abs(above), 1 if above < 0 else 0] = m
        todo[top, 0], todo[top, 1], todo[top, 2], todo[top, 3] = a, m, lopsided, m
        top += 1
        todo[top, 0], todo[top, 1], todo[top, 2], todo[top, 3] = m, b, lopsided, -m
        top += 1


@compiled
def _outward(v: float) -> np.float32:  # pragma: no cover - compiled
    """v or a little more, in float32: the difference is larger than the rounding error."""
    return np.float32(v + U2 * abs(v) + (LEAST if v else 0.0))


@compiled
def _enclose(
    boxes: Boxes, leaf_low: Floats, leaf_high: Floats, n: int
) -> None:  # pragma: no cover - compiled
    """Compute the boxes and slots of all families from the boxes (L, d) of the leaves."""
    d, lowest = leaf_low.shape[1], boxes.n_lowest[0]
    for f in range(len(boxes.size)):
        for c in range(boxes.size[f]):
            x = boxes.child[f] + c
            if f < lowest:
                boxes.slots[f, c, 0] = x * LANES
                boxes.slots[f, c, 1] = min((x + 1) * LANES, n)
            else:
                boxes.slots[f, c, 0] = boxes.slots[x, 0, 0]
                boxes.slots[f, c, 1] = boxes.slots[x, boxes.size[x] - 1, 1]
            diagonal = 0.0
            for i in range(d):
                if f < lowest:
                    low, high = -_outward(-leaf_low[x, i]), _outward(leaf_high[x, i])
                else:
                    low, high = boxes.low[x, i, 0], boxes.high[x, i, 0]
                    for k in range(1, boxes.size[x]):
                        low, high = min(low, boxes.low[x, i, k]), max(high, boxes.high[x, i, k])
                boxes.low[f, i, c], boxes.high[f, i, c] = low, high
                diagonal += (float(high) - float(low)) ** 2
            boxes.half[f, c] = 0.5 * np.sqrt(diagonal)


def _room(n_leaves: int, width: int) -> Boxes:
    """Families over this many leaves, with empty boxes."""
    size: list[int] = []
    child: list[int] = []
    below, base, start = n_leaves, 0, 0
    while True:
        families = -(-below // FAN)
        size += [min(FAN, below - f * FAN) for f in range(families)]
        child += [base + f * FAN for f in range(families)]
        if families == 1:
            break
        base, below, start = start, families, start + families
    F = len(size)
    return Boxes(
        np.zeros((F, width, FAN), np.float32), np.zeros((F, width, FAN), np.float32),
        np.array(size), np.array(child),
        np.array([-(-n_leaves // FAN)]), np.zeros((F, FAN)), np.zeros((F, FAN, 2), np.int64),
        np.zeros(n_leaves, np.int64), np.zeros(n_leaves), np.zeros((n_leaves, 2), np.int64),
    )  # fmt: skip


def grow(z: Floats, w: Floats) -> tuple[Blocks, Boxes]:
    """The tree over points z (N, d) with search coordinates w (N, D), and its leaves as blocks."""
    boxes = _room(-(-len(z) // LANES), w.shape[1])
    row = np.arange(len(z), dtype=np.int32)
    _arrange(w, row, np.empty(len(z)), boxes.split, boxes.value, boxes.below)
    blocks, low, high = fill_blocks(z, w, row)
    _enclose(boxes, low, high, len(z))
    return blocks, boxes


def no_boxes() -> Boxes:
    """A tree without families, for brute force."""
    none, ints = np.zeros((0, 0, 0), np.float32), np.zeros(0, np.int64)
    slots = np.zeros((0, 0, 0), np.int64)
    below = np.zeros((0, 2), np.int64)
    return Boxes(none, none, ints, ints, ints, np.zeros((0, 0)), slots, ints, np.zeros(0), below)


@compiled
def add_up_boxes(
    boxes: Boxes,
    action: NDArray[np.int32],
    amount: Ints,
    value: Floats,
    total: Ints,
    extent: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill total (F, FAN, A, W) and extent (F, FAN, 2) of every child.

    These are count and digits by action, and the smallest and largest value. action (N,),
    amount (N, W - 1) and value (N,) are in the order of the slots.
    """
    lowest = boxes.n_lowest[0]
    for f in range(len(boxes.size)):
        for c in range(boxes.size[f]):
            extent[f, c, 0], extent[f, c, 1] = np.inf, -np.inf
            if f < lowest:
                for slot in range(boxes.slots[f, c, 0], boxes.slots[f, c, 1]):
                    a = action[slot]
                    total[f, c, a, COUNT] += 1
                    for w in range(amount.shape[1]):
                        total[f, c, a, 1 + w] += amount[slot, w]
                    extent[f, c, 0] = min(extent[f, c, 0], value[slot])
                    extent[f, c, 1] = max(extent[f, c, 1], value[slot])
            else:
                x = boxes.child[f] + c
                for k in range(boxes.size[x]):
                    for a in range(total.shape[2]):
                        for w in range(total.shape[3]):
                            total[f, c, a, w] += total[x, k, a, w]
                    extent[f, c, 0] = min(extent[f, c, 0], extent[x, k, 0])
                    extent[f, c, 1] = max(extent[f, c, 1], extent[x, k, 1])


@fused
def _beyond(s: np.float32, t: np.float32) -> np.float32:  # pragma: no cover - compiled
    """The largest of s, t and 0."""
    s = s if s > t else t
    return s if s > 0 else np.float32(0)


@compiled
def leaf_of(boxes: Boxes, w: Floats, leaf: Ints) -> None:  # pragma: no cover - compiled
    """Fill leaf (Q,) with the leaf in whose region each query (Q, D) lies."""
    for q in range(len(w)):
        m = boxes.below[0, 0]
        while m:
            if w[q, boxes.split[m]] < boxes.value[m]:
                m = boxes.below[m, 0]
            else:
                leaf[q] = m
                m = boxes.below[m, 1]


@fused
def children(
    low: Singles, high: Singles, f: int, p: Singles, q: int, near: Singles
) -> None:  # pragma: no cover - compiled
    """Fill near (FAN,): squared distances from p[q] to the nearest corners of f's children."""
    for k in range(FAN):
        near[k] = 0
    for i in range(0, p.shape[1], STEP):
        a, b, c, d = p[q, i], p[q, i + 1], p[q, i + 2], p[q, i + 3]
        for k in range(FAN):
            s = _beyond(low[f, i, k] - a, a - high[f, i, k])
            t = _beyond(low[f, i + 1, k] - b, b - high[f, i + 1, k])
            u = _beyond(low[f, i + 2, k] - c, c - high[f, i + 2, k])
            v = _beyond(low[f, i + 3, k] - d, d - high[f, i + 3, k])
            near[k] = near[k] + s * s + t * t + u * u + v * v


@fused
def farthest(
    low: Singles, high: Singles, f: int, k: int, p: Singles, q: int
) -> np.float32:  # pragma: no cover - compiled
    """The squared distance from p[q] to the farthest corner of f's child k."""
    total = np.float32(0)
    for i in range(p.shape[1]):
        s, t = p[q, i] - low[f, i, k], high[f, i, k] - p[q, i]
        s = s if s > t else t
        total = total + s * s
    return total


# --- Which points lie in the balls around a block of queries, and their sums
#
# First every query goes down the tree by itself, and only notes which leaves it must look into,
# with one bit per query. Then every noted leaf is scanned for all of its queries while it is in the
# nearest cache. The points that are found go one of two ways:
#
# * `visits="all"`: directly into sums by action (for a box wholly inside, its own sums).
# * otherwise rows are marked in a bitmap, one per query, and read back in the order of the log.
#   There, rows of a trajectory are next to each other, so one pass with one stamp per action finds
#   its first row in the ball and the first row of every further action: no sorting, no sets.

LOW6 = 63


class Cargo(NamedTuple):
    """The data that belong to the points.

    Attributes:
        action: int32 (N,), the actions: in the order of the slots if all are added, else of the
            rows.
        amount: int64 (N, W - 1), the digits of the return and of its square; same order.
        value: float64 (N,), the return; same order.
        episode: int64 (N,), the trajectory, in the order of the rows.
        slot: int32 (N,), the slot of every row; (0,) where not needed.
        total: int64 (F, FAN, A, W), sums over every box; (0, 0, 0, 0) where not needed.
        extent: float64 (F, FAN, 2), smallest and largest return of every box; or (0, 0, 0).
    """

    action: NDArray[np.int32]
    amount: Ints
    value: Floats
    episode: Ints
    slot: NDArray[np.int32]
    total: Ints
    extent: Floats


@compiled
def _mark(marks: Bits, pages: Bits, k: int, row: int) -> None:  # pragma: no cover - compiled
    """Set the bit of a row in bitmap k, and that of its word in the summary."""
    word = row >> 6
    marks[k, word] |= ONE << np.uint64(row & LOW6)
    pages[k, word >> 6] |= ONE << np.uint64(word & LOW6)


@compiled
def _add(
    out: Ints, q: int, action: NDArray[np.int32], amount: Ints, i: int, sign: int
) -> None:  # pragma: no cover - compiled
    """Add point i to out[q] (A, W), or subtract it if sign is -1."""
    a = np.uint32(action[i])  # unsigned, so numba need not handle negative indices
    out[q, a, COUNT] += sign
    for j in range(amount.shape[1]):
        out[q, a, 1 + j] += sign * amount[i, j]


@compiled
def _widen(span: Floats, q: int, low: float, high: float) -> None:  # pragma: no cover - compiled
    """Widen span[q] to hold low and high as well; it is NaN before it holds anything."""
    if not low >= span[q, 0]:
        span[q, 0] = low
    if not high <= span[q, 1]:
        span[q, 1] = high


@compiled
def _find(
    blocks: Blocks,
    boxes: Boxes,
    cargo: Cargo,
    asked: Asked,
    chosen: Ints,
    adding: bool,
    words: Ints,
    span: Floats,
    marks: Bits,
    pages: Bits,
    want: Bits,
    desk: Desk,
) -> None:  # pragma: no cover - compiled
    """Find the neighbours of the queries `chosen`, at most QUERIES of them.

    adding: whether to add them to words (Q, A, W) and span (Q, 2) of the queries, or else to mark
        them in marks (n, N / 64) and pages.
    want (B,): which queries must look into which block; zero before and after.
    """
    near = np.empty(FAN, np.float32)
    todo = np.empty(16 * FAN, np.int64)
    low, high, size, child, half, slots = boxes[0], boxes[1], boxes[2], boxes[3], boxes[5], boxes[6]
    p, skips, wholes, row, total = asked.p, asked.skip, asked.whole, blocks.row, cargo.total
    action, amount, hits, value = cargo.action, cargo.amount, desk.hits, cargo.value
    radius, extent = asked.radius, cargo.extent
    if len(size) == 0:
        every = ~np.uint64(0) >> np.uint64(QUERIES - len(chosen))
        for b in range(len(want)):
            want[b] = every
    else:
        lowest = boxes.n_lowest[0]
        for k in range(len(chosen)):
            q, mine = chosen[k], ONE << np.uint64(k)
            skip, whole = skips[q], wholes[q]
            todo[0], top = len(size) - 1, 1
            while top:
                top -= 1
                f = todo[top]
                children(low, high, f, p, q, near)
                for c in range(size[f]):
                    if near[c] > skip:
                        continue
                    if half[f, c] <= radius and farthest(low, high, f, c, p, q) <= whole:
                        if adding:
                            for a in range(words.shape[1]):
                                for i in range(words.shape[2]):
                                    words[q, a, i] += total[f, c, a, i]
                            _widen(span, q, extent[f, c, 0], extent[f, c, 1])
                        else:
                            for slot in range(slots[f, c, 0], slots[f, c, 1]):
                                _mark(marks, pages, k, row[slot])
                    elif f < lowest:
                        want[child[f] + c] |= mine
                    else:
                        todo[top] = child[f] + c
                        top += 1
    for b in range(len(want)):
        if b % FAN == 0:
            left = np.uint64(0)
            for i in range(b, min(b + FAN, len(want))):
                left |= want[i]
            place(blocks, b // FAN, asked, chosen, left, desk)
        left = want[b]
        want[b] = np.uint64(0)
        if left:
            left = scan(blocks, b, asked, chosen, left, desk)
        while left:
            k = bit(left)
            left &= left - ONE
            q = chosen[k]
            for word in range(hits.shape[1]):
                lanes, first = hits[k, word], b * LANES + 64 * word
                while lanes and adding:
                    i = first + bit(lanes)
                    _add(words, q, action, amount, i, 1)
                    _widen(span, q, value[i], value[i])
                    lanes &= lanes - ONE
                while lanes:
                    _mark(marks, pages, k, row[first + bit(lanes)])
                    lanes &= lanes - ONE


@compiled
def _read(
    marks: NDArray[np.uint64], pages: NDArray[np.uint64], rows: NDArray[np.int32]
) -> int:  # pragma: no cover - compiled
    """Write the marked rows of one bitmap in ascending order, clear it, and return their number."""
    n = 0
    for page in range(len(pages)):
        words = pages[page]
        pages[page] = np.uint64(0)
        while words:
            word = (page << 6) + bit(words)
            words &= words - ONE
            left = marks[word]
            marks[word] = np.uint64(0)
            while left:
                rows[n] = (word << 6) + bit(left)
                n += 1
                left &= left - ONE
    return n


@compiled
def add_all(
    blocks: Blocks,
    boxes: Boxes,
    cargo: Cargo,
    asked: Asked,
    order: Ints,
    own: Ints,
    words: Ints,
    span: Floats,
) -> None:  # pragma: no cover - compiled
    """Add every neighbour of the queries `order` to words (Q, A, W) and span (Q, 2).

    own (Q, 2): the rows of the trajectory each query leaves out. They were counted in sums, so
    those within the radius are subtracted again, exactly, since sums are integers. The span may
    still include their returns.
    """
    limit, action, amount = asked.radius * asked.radius, cargo.action, cargo.amount
    z, asked_z, slot = blocks.z, asked.z, cargo.slot
    want, desk = np.zeros(len(blocks.x), np.uint64), new_desk(asked.w.shape[1])
    marks = np.zeros((0, 0), np.uint64)
    for first in range(0, len(order), QUERIES):
        chosen = order[first : first + QUERIES]
        _find(blocks, boxes, cargo, asked, chosen, True, words, span, marks, marks, want, desk)
        for q in chosen:
            for row in range(own[q, 0], own[q, 1]):
                if within(z, row, asked_z, q, limit):
                    _add(words, q, action, amount, slot[row], -1)


@compiled
def add_first(
    blocks: Blocks,
    boxes: Boxes,
    cargo: Cargo,
    asked: Asked,
    order: Ints,
    own: Ints,
    block: int,
    words: Ints,
    span: Floats,
) -> None:  # pragma: no cover - compiled
    """Add the first neighbours of every trajectory to words (2, Q, A, W).

    Its first row in the ball goes to FIRST of its action and to span (Q, 2), the first row of each
    further action to LATER. Rows own[q, 0]:own[q, 1] do not count for query q.
    """
    N, A = len(blocks.z), words.shape[2]
    want, desk = np.zeros(len(blocks.x), np.uint64), new_desk(asked.w.shape[1])
    marks = np.zeros((block, (N + LOW6) >> 6), np.uint64)
    pages = np.zeros((block, (marks.shape[1] + LOW6) >> 6), np.uint64)
    rows = np.empty(N, np.int32)
    stamp = np.empty(A, np.int64)
    action, amount, episode, value = cargo.action, cargo.amount, cargo.episode, cargo.value
    first_words, later_words = words[FIRST], words[LATER]
    for first in range(0, len(order), block):
        chosen = order[first : first + block]
        _find(
            blocks, boxes, cargo, asked, chosen, False, first_words, span, marks, pages, want, desk
        )
        for k in range(len(chosen)):
            q = chosen[k]
            for a in range(len(stamp)):
                stamp[a] = -1
            last = np.int64(-1)
            for i in range(_read(marks[k], pages[k], rows)):
                row = rows[i]
                if own[q, 0] <= row < own[q, 1]:
                    continue
                e, a = episode[row], action[row]
                if e != last:
                    _add(first_words, q, action, amount, row, 1)
                    _widen(span, q, value[row], value[row])
                elif stamp[a] != e:
                    _add(later_words, q, action, amount, row, 1)
                last = stamp[a] = e


@compiled
def list_rows(
    blocks: Blocks,
    boxes: Boxes,
    cargo: Cargo,
    asked: Asked,
    order: Ints,
    block: int,
    count: Ints,
) -> NDArray[np.int32]:  # pragma: no cover - compiled
    """The neighbours of the queries `order`, one query after the other, rows ascending.

    count (len(order),) receives the number of neighbours of each query.
    """
    N = len(blocks.z)
    want, desk = np.zeros(len(blocks.x), np.uint64), new_desk(asked.w.shape[1])
    marks = np.zeros((block, (N + LOW6) >> 6), np.uint64)
    pages = np.zeros((block, (marks.shape[1] + LOW6) >> 6), np.uint64)
    words, span = np.zeros((0, 0, 0), np.int64), np.zeros((0, 0))
    rows = np.empty(max(N, 1024), np.int32)
    n = 0
    for first in range(0, len(order), block):
        chosen = order[first : first + block]
        _find(blocks, boxes, cargo, asked, chosen, False, words, span, marks, pages, want, desk)
        for k in range(len(chosen)):
            if len(rows) - n < N:
                longer = np.empty(2 * len(rows), np.int32)
                for i in range(n):
                    longer[i] = rows[i]
                rows = longer
            count[first + k] = _read(marks[k], pages[k], rows[n:])
            n += count[first + k]
    return rows[:n].copy()
