r"""X = B + A X for very many right-hand sides, in single precision, with what is left over.

Columns lie in blocks of `WIDTH`: an array is (blocks, n, WIDTH), so that a row of a block is read
at once and a block stays in the cache. Blocks do not mix, so each may run on its own thread, and
no bit depends on how many threads there are.

The solution need not be exact, because what it lacks is measured. With the residual
E = B + A X - X, in double precision, the error is (I - A)^-1 E, and since (I - A)^-1 >= 0, by the
triangle inequality in the mean square over columns

    rms of the error at row i  <=  ((I - A)^-1 ρ)(i),       ρ(j) = rms over columns of E(j)

`solve_blocks` returns ρ, with the rounding of B and of E itself added to it, and
`dprl._core.linear.solve_above` makes a bound of that.
"""

from __future__ import annotations

import itertools
import os
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.compiled import compiled, in_parts

__all__ = ["WIDTH", "each_block", "solve_blocks"]

Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Ints32: TypeAlias = NDArray[np.int32]

WIDTH = 32
"""Columns of a block."""
STEPS, RESTARTS = 60, 6
"""The most steps of one run of BiCGSTAB, and the most runs."""
ROUNDING_OF_B, ROUNDING = 1e-7, 1e-13
"""More than the relative rounding of B to single precision, and of a residual."""


def each_block(blocks: int) -> list[tuple[int, int]]:
    """Ranges of blocks, one for each core."""
    threads = min(os.cpu_count() or 1, blocks)
    edges = np.linspace(0, blocks, threads + 1).astype(np.int64).tolist()
    return list(itertools.pairwise(edges))


@compiled
def left_over(
    indptr: Ints32, indices: Ints32, data: Floats, B: Singles, X: Singles, E: Singles,
    squares: Floats, size: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill E = B + A X - X of one block, squares (n,) of its rows and size (WIDTH,) of columns."""
    n, width = X.shape
    row = np.empty(width)
    size[:] = 0.0
    for i in range(n):
        for k in range(width):
            row[k] = np.float64(B[i, k]) - np.float64(X[i, k])
        for j in range(indptr[i], indptr[i + 1]):
            other, weight = X[indices[j]], data[j]
            for k in range(width):
                row[k] += weight * other[k]
        total = 0.0
        for k in range(width):
            total += row[k] * row[k]
            size[k] += row[k] * row[k]
            E[i, k] = np.float32(row[k])
        squares[i] = total


@compiled
def iterate_block(
    indptr: Ints32, indices: Ints32, data: Singles, X: Singles, r: Singles, size: Floats,
    goal: Floats, steps: int,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """BiCGSTAB on the columns of one block, until all are at most `goal` (WIDTH,) in square.

    X and its residual r (n, WIDTH) are changed in place; size (WIDTH,) are the squares of r.
    """
    n, width = X.shape
    shadow, p, v, t = r.copy(), r.copy(), np.empty_like(r), np.empty_like(r)
    rho, rest = size.copy(), size.copy()
    one, two, new = np.empty(width), np.empty(width), np.empty(width)
    alpha, omega = np.empty(width, np.float32), np.empty(width, np.float32)
    beta = np.empty(width, np.float32)
    for _ in range(steps):
        active = rest > goal
        if not active.any():
            break
        one[:] = 0.0
        for i in range(n):
            row, own, mirror = v[i], p[i], shadow[i]
            for k in range(width):
                row[k] = own[k]
            for j in range(indptr[i], indptr[i + 1]):
                other, weight = p[indices[j]], data[j]
                for k in range(width):
                    row[k] -= weight * other[k]
            for k in range(width):
                one[k] += np.float64(mirror[k]) * np.float64(row[k])
        for k in range(width):
            alpha[k] = rho[k] / one[k] if active[k] and one[k] != 0 else 0.0
        for i in range(n):
            row, step = r[i], v[i]
            for k in range(width):
                row[k] -= alpha[k] * step[k]
        one[:], two[:] = 0.0, 0.0
        for i in range(n):
            row, own = t[i], r[i]
            for k in range(width):
                row[k] = own[k]
            for j in range(indptr[i], indptr[i + 1]):
                other, weight = r[indices[j]], data[j]
                for k in range(width):
                    row[k] -= weight * other[k]
            for k in range(width):
                one[k] += np.float64(row[k]) * np.float64(own[k])
                two[k] += np.float64(row[k]) * np.float64(row[k])
        for k in range(width):
            omega[k] = one[k] / two[k] if active[k] and two[k] > 0 else 0.0
        new[:] = 0.0
        one[:] = 0.0
        for i in range(n):
            x, row, step, last, mirror = X[i], r[i], p[i], t[i], shadow[i]
            for k in range(width):
                x[k] += alpha[k] * step[k] + omega[k] * row[k]
                row[k] -= omega[k] * last[k]
                new[k] += np.float64(mirror[k]) * np.float64(row[k])
                one[k] += np.float64(row[k]) * np.float64(row[k])
        finite = True
        for k in range(width):
            fine = active[k] and rho[k] != 0 and omega[k] != 0
            beta[k] = (new[k] / rho[k]) * (alpha[k] / omega[k]) if fine else 0.0
            if active[k]:
                rho[k], rest[k] = new[k], one[k]
            finite = finite and np.isfinite(one[k]) and np.isfinite(beta[k])
        if not finite:
            break
        for i in range(n):
            row, step, last = r[i], p[i], v[i]
            for k in range(width):
                step[k] = row[k] + beta[k] * (step[k] - omega[k] * last[k])


def solve_blocks(
    A: sparse.csr_array, B: Singles, start: Singles | None, tolerance: float
) -> tuple[Singles, Floats]:
    """X (blocks, n, WIDTH) with X = B + A X, about, and ρ (n,), what is left of each row.

    Args:
        A: CSR (n, n) >= 0.
        B: float32 (blocks, n, WIDTH).
        start: Where to begin; None begins with B.
        tolerance: The residual of each column aimed at, relative to the size of the column of B.
            It may be missed: ρ says by how much.
    """
    indptr, indices = A.indptr.astype(np.int32), A.indices.astype(np.int32)
    data, single = A.data, A.data.astype(np.float32)
    X = (B if start is None else start).copy()
    blocks, n, width = B.shape
    squares = np.empty((blocks, n))

    def solve(begin: int, end: int) -> None:
        size, E = np.empty(width), np.empty((n, width), np.float32)
        for block in range(begin, end):
            mine, rows = X[block], squares[block]
            goal = tolerance**2 * (B[block].astype(np.float64) ** 2).sum(axis=0)
            left_over(indptr, indices, data, B[block], mine, E, rows, size)
            for _ in range(RESTARTS):
                if (size <= goal).all():
                    break
                before, was, much = mine.copy(), rows.copy(), size.sum()
                # a little less: the recursive residual drifts from the true one
                iterate_block(indptr, indices, single, mine, E, size.copy(), 0.5 * goal, STEPS)
                left_over(indptr, indices, data, B[block], mine, E, rows, size)
                if not size.sum() < 0.9 * much:  # no better, or not finite
                    if not size.sum() < much:
                        mine[:], rows[:] = before, was
                    break

    in_parts(solve, each_block(blocks))
    columns = blocks * width

    def rms(Y: Singles) -> Floats:
        return np.asarray(np.sqrt(np.einsum("bik,bik->i", Y, Y, dtype=np.float64) / columns))

    of_X = rms(X)
    rounding = ROUNDING_OF_B * rms(B) + ROUNDING * (of_X + A @ of_X) + 1e-40
    return X, np.sqrt(squares.sum(axis=0) / columns) + rounding
