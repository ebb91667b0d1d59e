r"""The aggregate tree: boxes around boxes around blocks of points, and what happened in each.

Points are halved again and again across the dimension they vary in most, until 128 remain: a leaf,
one block. 16 neighbouring leaves share a parent, 16 parents a grandparent, up to one root. The
halving is always at a multiple of 128 points and leaves whole families on either side, so the tree
needs no pointers: leaf l belongs to parent l // 16, and so on; all leaves but the last are full.

A parent keeps the boxes of its 16 children side by side, so a query is held against all of them in
one vectorised loop. The nearest corner of a box is as near as any point in it can be, the farthest
as far,

    near² = \sum_i max(low_i - q_i, q_i - high_i, 0)²
    far²  = \sum_i max(q_i - low_i, high_i - q_i)²

near² > r²: skip the box. far² <= r²: all of it counts at once, by the sums it keeps. Otherwise look
inside. Coordinates are those of `dprl.neighbors.sketch`, so r is widened, or narrowed, by the bound
of their error: a box may be opened in vain, never skipped or counted wrongly.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.compiled import compiled
from dprl.evidence import COUNT, SQUARE, SUM, WORDS
from dprl.neighbors.blocks import LANES, Blocks, fill_blocks
from dprl.neighbors.sketch import STEP

__all__ = ["FAN", "Boxes", "add_up_boxes", "children", "grow", "leaf_of", "no_boxes"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FAN = 16
"""Children of a parent; a power of two."""

SAMPLE = 256
"""Points looked at to find the widest dimension."""


class Boxes(NamedTuple):
    """The families of a tree over L leaves, bottom level first, the root last.

    Attributes:
        low: float64 (F, D, FAN), lower corners of the children; D = d rounded up.
        high: float64 (F, D, FAN), upper corners.
        size: int64 (F,), how many children a family has.
        child: int64 (F,), the first child: a leaf in the lowest level, else a family.
        n_lowest: int64 (1,), families of the lowest level.
        half: float64 (F,), half the diagonal of the smallest child: a smaller ball holds none.
        slots: int64 (F, FAN, 2), the slots of every child, first and last + 1.
        split: int64 (L,), across which dimension the points left and right of leaf l were parted.
        value: float64 (L,), and where.
    """

    low: Floats
    high: Floats
    size: Ints
    child: Ints
    n_lowest: Ints
    half: Floats
    slots: Ints
    split: Ints
    value: Floats


@compiled
def _widest(w: Floats, row: NDArray[np.int32], first: int, last: int) -> int:  # pragma: no cover
    """The dimension in which the points in these slots vary most, by a sample of them."""
    step, best, widest = max(1, (last - first) // SAMPLE), 0, -1.0
    for i in range(w.shape[1]):
        origin, n, total, square = w[row[first], i], 0, 0.0, 0.0
        for slot in range(first, last, step):
            v = w[row[slot], i] - origin
            n, total, square = n + 1, total + v, square + v * v
        if square - total * total / n > widest:
            best, widest = i, square - total * total / n
    return best


@compiled
def _part(
    key: Floats, row: NDArray[np.int32], first: int, last: int, middle: int
) -> None:  # pragma: no cover - compiled
    """Reorder slots so that no key before `middle` exceeds one from it on (quickselect)."""
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
def _half(leaves: int) -> int:  # pragma: no cover - compiled
    """How many of several leaves go left: the largest power of two that leaves some right."""
    half = 1
    while 2 * half < leaves:
        half *= 2
    return half


@compiled
def _arrange(
    w: Floats, row: NDArray[np.int32], key: Floats, split: Ints, value: Floats
) -> None:  # pragma: no cover - compiled
    """Sort rows into leaves, in place."""
    todo = np.empty((128, 2), np.int64)
    todo[0, 0], todo[0, 1] = 0, len(split)
    top = 1
    while top:
        top -= 1
        a, b = todo[top, 0], todo[top, 1]
        if b - a < 2:
            continue
        m = a + _half(b - a)
        first, last, middle = a * LANES, min(b * LANES, len(w)), m * LANES
        i = _widest(w, row, first, last)
        for slot in range(first, last):
            key[slot] = w[row[slot], i]
        _part(key, row, first, last, middle)
        split[m], value[m] = i, key[middle]
        todo[top, 0], todo[top, 1] = a, m
        todo[top + 1, 0], todo[top + 1, 1] = m, b
        top += 2


@compiled
def _enclose(
    boxes: Boxes, leaf_low: Floats, leaf_high: Floats, n: int
) -> None:  # pragma: no cover - compiled
    """Boxes and slots of all families, from the boxes (L, d) of the leaves."""
    d, lowest = leaf_low.shape[1], boxes.n_lowest[0]
    for f in range(len(boxes.size)):
        boxes.half[f] = np.inf
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
                    low, high = leaf_low[x, i], leaf_high[x, i]
                else:
                    low, high = np.inf, -np.inf
                    for k in range(boxes.size[x]):
                        low, high = min(low, boxes.low[x, i, k]), max(high, boxes.high[x, i, k])
                boxes.low[f, i, c], boxes.high[f, i, c] = low, high
                diagonal += (high - low) * (high - low)
            boxes.half[f] = min(boxes.half[f], 0.5 * np.sqrt(diagonal))


def _room(n_leaves: int, width: int) -> Boxes:
    """Families over so many leaves, boxes still empty."""
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
        np.zeros((F, width, FAN)), np.zeros((F, width, FAN)), np.array(size), np.array(child),
        np.array([-(-n_leaves // FAN)]), np.zeros(F), np.zeros((F, FAN, 2), np.int64),
        np.zeros(n_leaves, np.int64), np.zeros(n_leaves),
    )  # fmt: skip


def grow(z: Floats, w: Floats) -> tuple[Blocks, Boxes]:
    """The tree over points z (N, d), in search coordinates w (N, D), its leaves as blocks."""
    boxes = _room(-(-len(z) // LANES), w.shape[1])
    row = np.arange(len(z), dtype=np.int32)
    _arrange(w, row, np.empty(len(z)), boxes.split, boxes.value)
    blocks, low, high = fill_blocks(z, w, row)
    _enclose(boxes, low, high, len(z))
    return blocks, boxes


def no_boxes() -> Boxes:
    """A tree of no families, where brute force needs none."""
    none, ints = np.zeros((0, 0, 0)), np.zeros(0, np.int64)
    slots = np.zeros((0, 0, 0), np.int64)
    return Boxes(none, none, ints, ints, ints, np.zeros(0), slots, ints, np.zeros(0))


@compiled
def add_up_boxes(
    boxes: Boxes, action: NDArray[np.int32], amount: Ints, total: Ints
) -> None:  # pragma: no cover - compiled
    """Fill total (F, FAN, A, WORDS): count, sum and square by action in every child.

    action (N,) and amount (N, 2) in the order of the slots.
    """
    lowest = boxes.n_lowest[0]
    for f in range(len(boxes.size)):
        for c in range(boxes.size[f]):
            if f < lowest:
                for slot in range(boxes.slots[f, c, 0], boxes.slots[f, c, 1]):
                    a = action[slot]
                    total[f, c, a, COUNT] += 1
                    total[f, c, a, SUM] += amount[slot, 0]
                    total[f, c, a, SQUARE] += amount[slot, 1]
            else:
                x = boxes.child[f] + c
                for k in range(boxes.size[x]):
                    for a in range(total.shape[2]):
                        for w in range(WORDS):
                            total[f, c, a, w] += total[x, k, a, w]


@compiled
def leaf_of(boxes: Boxes, w: Floats, leaf: Ints) -> None:  # pragma: no cover - compiled
    """Fill leaf (Q,) with the leaf in whose region each query (Q, D) lies."""
    for q in range(len(w)):
        a, b = 0, len(boxes.split)
        while b - a > 1:
            m = a + _half(b - a)
            if w[q, boxes.split[m]] < boxes.value[m]:
                b = m
            else:
                a = m
        leaf[q] = a


@compiled
def children(
    low: Floats,
    high: Floats,
    f: int,
    w: Floats,
    q: int,
    near: Floats,
    far: Floats,
    farthest: bool,
) -> None:  # pragma: no cover - compiled
    """Fill near (FAN,), and far where asked: squared distances of f's children to w[q]."""
    for k in range(FAN):
        near[k] = 0.0
    for i in range(0, w.shape[1], STEP):
        a, b, c, d = w[q, i], w[q, i + 1], w[q, i + 2], w[q, i + 3]
        for k in range(FAN):
            s = max(low[f, i, k] - a, a - high[f, i, k], 0.0)
            t = max(low[f, i + 1, k] - b, b - high[f, i + 1, k], 0.0)
            u = max(low[f, i + 2, k] - c, c - high[f, i + 2, k], 0.0)
            v = max(low[f, i + 3, k] - d, d - high[f, i + 3, k], 0.0)
            near[k] += s * s + t * t + u * u + v * v
    if not farthest:
        return
    for k in range(FAN):
        far[k] = 0.0
    for i in range(0, w.shape[1], STEP):
        a, b, c, d = w[q, i], w[q, i + 1], w[q, i + 2], w[q, i + 3]
        for k in range(FAN):
            s = max(a - low[f, i, k], high[f, i, k] - a)
            t = max(b - low[f, i + 1, k], high[f, i + 1, k] - b)
            u = max(c - low[f, i + 2, k], high[f, i + 2, k] - c)
            v = max(d - low[f, i + 3, k], high[f, i + 3, k] - d)
            far[k] += s * s + t * t + u * u + v * v
