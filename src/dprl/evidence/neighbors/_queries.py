"""Which points lie in the balls around a block of queries, and their sums.

First every query goes down the tree by itself, and only notes which leaves it must look into, with
one bit per query. Then every noted leaf is scanned for all of its queries while it is in the
nearest cache. The points that are found go one of two ways:

* `visits="all"`: directly into sums by action (for a box wholly inside, its own sums).
* otherwise rows are marked in a bitmap, one per query, and read back in the order of the log.
  There, rows of a trajectory are next to each other, so one pass with one stamp per action finds
  its first row in the ball and the first row of every further action: no sorting, no sets.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import bit, compiled
from dprl.evidence._evidence import COUNT, FIRST, LATER
from dprl.evidence.neighbors._rotation import Asked
from dprl.evidence.neighbors._scan_blocks import (
    FAN,
    LANES,
    ONE,
    QUERIES,
    Bits,
    Blocks,
    Desk,
    new_desk,
    place,
    scan,
    within,
)
from dprl.evidence.neighbors._tree import Boxes, children, farthest

__all__ = ["Cargo", "add_all", "add_first", "list_rows"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SIX = np.uint64(6)
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
            stamp[:] = -1
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
                longer[:n] = rows[:n]
                rows = longer
            count[first + k] = _read(marks[k], pages[k], rows[n:])
            n += count[first + k]
    return rows[:n].copy()
