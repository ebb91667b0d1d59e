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
look inside. Coordinates are those of `dprl.evidence.neighbors._rotation`, so r is widened, or
narrowed, by the bound of their error: a box may be opened in vain, but is never skipped or counted
wrongly.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled, fused
from dprl.evidence._evidence import COUNT
from dprl.evidence.neighbors._rotation import STEP, U2
from dprl.evidence.neighbors._scan_blocks import FAN, LANES, Blocks, fill_blocks

__all__ = ["Boxes", "add_up_boxes", "children", "farthest", "grow", "leaf_of", "no_boxes"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Singles: TypeAlias = NDArray[np.float32]

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
        bins[:] = 0.0
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
