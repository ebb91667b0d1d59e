"""Shuffles within cells: how unequal the means of some categories would be by chance alone.

Visits are sorted by cell; cell c owns rows first[c]:first[c + 1]. For standardized outcomes x of a
cell (mean 0, variance 1 with divisor n - 1) and a division of its visits into categories k,

    T = ∑_k (∑_{i in k} x_i)² / n_k

is the sum of squares between categories in units of the cell's variance; its mean over all shuffles
is the number of categories less one. Every number of a shuffle follows from the seed, the
number of the shuffle and the number of the cell, and cells are added in their order, so threads
cannot change a result.
"""

from __future__ import annotations

import itertools
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled, in_parts

__all__ = ["by_chance", "in_cells"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]

STEP, LEFT, RIGHT = (
    np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
)  # fmt: skip
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
UNIT = 1.0 / (1 << 53)


@compiled
def _mixed(word: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """A word in which every bit depends on every bit of the given one."""
    word = (word ^ (word >> S30)) * LEFT
    word = (word ^ (word >> S27)) * RIGHT
    return word ^ (word >> S31)


@compiled
def _shuffle(x: Floats, word: np.uint64) -> None:  # pragma: no cover - compiled
    """Shuffle the columns of x (outcomes, n) in place; the order follows from the word alone."""
    for i in range(x.shape[1] - 1, 0, -1):
        word = word + STEP
        j = int(float(_mixed(word) >> S11) * UNIT * (i + 1))
        for k in range(x.shape[0]):
            kept = x[k, i]
            x[k, i] = x[k, j]
            x[k, j] = kept


@compiled
def _between(
    x: Floats, label: Codes, size: Floats, sums: Floats
) -> float:  # pragma: no cover - compiled
    """∑_k (sum of x in category k)² / (its size); `sums` is room to work in."""
    for k in range(len(size)):
        sums[k] = 0.0
    for i in range(len(x)):
        sums[label[i]] += x[i]
    total = 0.0
    for k in range(len(size)):
        total += sums[k] * sums[k] / size[k]
    return total


@compiled
def _statistics(
    x: Floats,
    label: Codes,
    size: Floats,
    room: Ints,
    first: Ints,
    start: np.uint64,
    shuffles: Ints,
    total: Floats,
    cells: Floats,
) -> None:  # pragma: no cover - compiled
    """T of every outcome and candidate, for each of some shuffles; number -1 shuffles nothing.

    Args:
        x: (outcomes, M), standardized; 0 throughout a cell in which an outcome does not count.
        label: (candidates, M), categories numbered from 0 within each cell; all 0 in a cell in
            which the candidate does not count.
        size: The number of visits of each category: cell by cell, candidate by candidate.
        room: (cells · candidates + 1,), where the categories of each of these begin in `size`.
        first: (cells + 1,), the first row of each cell.
        start: The seed, mixed.
        shuffles: (B,), the numbers of the shuffles.
        total: (B, outcomes, candidates), to which the sum over cells is added.
        cells: (outcomes, candidates, cells): T of each cell, of the last of the shuffles.
    """
    n_candidates = label.shape[0]
    sums = np.empty(np.max(np.diff(room)))
    for c in range(len(first) - 1):
        if room[c * n_candidates] == room[(c + 1) * n_candidates]:
            continue
        low, high = first[c], first[c + 1]
        seed = _mixed(start + STEP * np.uint64(c + 1))
        for b in range(len(shuffles)):
            shuffled = x[:, low:high].copy()
            if shuffles[b] >= 0:
                _shuffle(shuffled, _mixed(seed ^ (STEP * np.uint64(shuffles[b] + 1))))
            for q in range(n_candidates):
                at = c * n_candidates + q
                if room[at + 1] - room[at] < 2:
                    continue
                for o in range(x.shape[0]):
                    value = _between(
                        shuffled[o], label[q, low:high], size[room[at] : room[at + 1]], sums
                    )
                    total[b, o, q] += value
                    cells[o, q, c] = value


def _run(
    x: Floats, label: Codes, size: Floats, room: Ints, first: Ints, seed: int, shuffles: Ints
) -> tuple[Floats, Floats]:
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    total = np.zeros((len(shuffles), len(x), len(label)))
    cells = np.zeros((len(x), len(label), len(first) - 1))
    _statistics(x, label, size, room, first, start, shuffles, total, cells)
    return total, cells


def in_cells(x: Floats, label: Codes, size: Floats, room: Ints, first: Ints) -> Floats:
    """T as observed: (outcomes, candidates, cells). Arguments as in `_statistics`."""
    return _run(x, label, size, room, first, 0, np.array([-1]))[1]


def by_chance(
    x: Floats,
    label: Codes,
    size: Floats,
    room: Ints,
    first: Ints,
    *,
    seed: int,
    permutations: int,
    threads: int,
) -> tuple[Floats, Floats]:
    """T as observed (outcomes, candidates), and of every shuffle (B, outcomes, candidates)."""
    observed = _run(x, label, size, room, first, seed, np.array([-1]))[0][0]
    edges = np.linspace(0, permutations, threads + 1).astype(np.int64).tolist()
    ranges = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
    shuffled = in_parts(
        lambda a, b: _run(x, label, size, room, first, seed, np.arange(a, b))[0], ranges
    )
    return observed, np.concatenate(shuffled)
