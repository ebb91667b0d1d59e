"""Solve x = b + A x for a sparse A that loses mass (a discount, an end); the same bits always."""

from __future__ import annotations

import itertools
import os
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.arrays import Bools, Floats, Singles
from dprl._core.compiled import compiled, in_parts
from dprl.errors import PlanError

# --- X = B + A X for very many right-hand sides, in single precision, with what is left over
#
# Columns lie in blocks of `WIDTH`: an array is (blocks, n, WIDTH), so that a row of a block is read
# at once and a block stays in the cache. Blocks do not mix, so each may run on its own thread, and
# no bit depends on how many threads there are.
#
# The solution need not be exact, because what it lacks is measured. With the residual E = B + A X -
# X, in double precision, the error is (I - A)^-1 E, and since (I - A)^-1 >= 0, by the triangle
# inequality in the mean square over columns
#
#     rms of the error at row i  <=  ((I - A)^-1 ρ)(i),       ρ(j) = rms over columns of E(j)
#
# `solve_blocks` returns ρ, with the rounding of B and of E itself added to it, and
# `dprl._core.linear.solve_above` makes a bound of that.

Ints32: TypeAlias = NDArray[np.int32]
Matrix: TypeAlias = sparse.csr_array | Floats
"""What says which unknown depends on which: CSR, or dense where there are few (`compact`)."""

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


# --- Solve x = b + A x for a sparse A that loses mass (a discount, an end); the same bits always

DIRECT, QUICK = 2_000, 200
"""The most unknowns for which LU comes first: where bits matter, and where time does.

The fill-in of LU can grow with the square of their number; where it does not, LU is fast.
"""


FEW = 64
"""The most unknowns of a system that is solved as a dense one; no BLAS uses threads for so few."""


def compact(A: sparse.csr_array, most: int = FEW) -> Matrix:
    """A as a dense array where it has few columns: to read a sparse one costs more than zeros."""
    return A.toarray() if A.shape[1] <= most else A


def leaks(A: Matrix) -> Bools:
    """bool (n,): unknowns from which mass is lost sooner or later; others have no finite value."""
    reached = np.asarray(1 - A.sum(axis=1) > 1e-12)
    while not reached.all():
        more = reached | (A @ reached.astype(np.float64) > 0)
        if (more == reached).all():
            break
        reached = more
    return reached


def _less(A: Matrix) -> Matrix:
    """I - A."""
    if isinstance(A, np.ndarray):
        return np.asarray(np.eye(len(A)) - A)
    return (sparse.eye_array(A.shape[0], format="csr") - A).tocsr()


def solve(A: Matrix, b: Floats, *, quick: bool = False) -> Floats:
    """x with x = b + A x, to a residual of 1e-13 of its size. A: (n, n) >= 0, b: (n,).

    quick: Whether to try iteration before LU; then the last bits may be others.

    Unknowns from which no mass is ever lost are 0 if every b among them is 0: going round in a
    circle without end and without reward is worth nothing. They lead nowhere else, so the others
    are solved without them.
    """
    if not len(b):
        return b.copy()
    ends = leaks(A)
    if not ends.all() and not b[~ends].any():
        x = np.zeros(len(b))
        x[ends] = solve(A[ends][:, ends], b[ends], quick=quick)
        return x
    system = _less(A)
    stuck = np.flatnonzero(~ends)
    if len(stuck):
        raise PlanError(
            f"a value is not defined for {len(stuck):,} of {len(b):,} states: nothing ever ends.",
            f"unknown {stuck[0]}",
            "With gamma = 1 every choice must lead to an end; use a gamma below 1 (0.999, say).",
        ).at(stuck.tolist())
    direct = QUICK if quick else DIRECT
    if len(b) > direct and not isinstance(system, np.ndarray):
        return np.asarray(sum(_solved(system, part, direct) for part in _by_size(b)))
    return _solved(system, b, direct)


def doubt(A: Matrix, b: Floats, x: Floats) -> Floats:
    """How far each entry of x may be from the solution of x = b + A x, (n,); A >= 0.

    (I - A)^-1 has no negative entry, so it turns the size of what is left over, |b + A x - x| and
    the rounding in computing it, into a bound for every entry by itself.
    """
    rounding = 8 * np.finfo(np.float64).eps * (np.abs(b) + A @ np.abs(x) + np.abs(x))
    return np.asarray(np.abs(solve(A, np.abs(b + A @ x - x) + rounding)))


def _by_size(b: Floats) -> list[Floats]:
    """b as a sum of vectors whose entries are 0 or of similar size, within a factor of 2^30.

    An iterative solution is accurate relative to its largest entry. Solved separately, a huge entry
    costs no accuracy in the unknowns that do not depend on it.
    """
    exponent = np.frexp(np.where(b == 0, 1.0, b))[1]
    band = np.where(b == 0, exponent.max(), exponent)
    band = (band.max() - band) // 30
    return [np.where(band == k, b, 0.0) for k in np.unique(band)]


def _solved(system: Matrix, b: Floats, direct: int = DIRECT) -> Floats:
    """x with `system` x = b; up to `direct` unknowns by LU at once."""
    few = len(b) <= direct or isinstance(system, np.ndarray)
    rounds, steps = (3, 60) if len(b) <= DIRECT else (8, 500)
    x = _direct(system, b) if few else _iterative(system, b, rounds=rounds, steps=steps)
    if _settled(system, b, x):
        return x
    x = _direct(system, b)
    if not _settled(system, b, x):
        raise PlanError(
            f"a linear system of {len(b):,} unknowns could not be solved to rounding.",
            do="Returns of very different sizes, or gamma too close to 1: use a smaller one.",
        )
    return x


def _settled(system: Matrix, b: Floats, x: Floats) -> bool:
    """Whether x solves the system to rounding."""
    size = max(float(np.abs(b).max()), float(np.abs(x).max()))
    return bool(np.isfinite(x).all() and np.abs(b - system @ x).max() <= 1e-13 * size)


def _direct(system: Matrix, b: Floats) -> Floats:
    """The solution by LU, improved once where that helps; NaN where the matrix is singular."""
    if isinstance(system, np.ndarray):
        try:
            x = np.asarray(np.linalg.solve(system, b), np.float64)
        except np.linalg.LinAlgError:
            return np.full(len(b), np.nan)
        settled = _settled(system, b, x)
        return np.asarray(x if settled else x + np.linalg.solve(system, b - system @ x))
    from scipy.sparse.linalg import splu

    try:
        factors = splu(system.tocsc())
    except RuntimeError:
        return np.full(len(b), np.nan)
    x = factors.solve(b)
    return np.asarray(x + factors.solve(b - system @ x))


def _iterative(
    system: Matrix, b: Floats, close: float = 0.0, rounds: int = 8, steps: int = 500
) -> Floats:
    """The solution by BiCGSTAB, restarted on its own residual, until that is at most `close`.

    It is written out here because its sums must not depend on how many threads a BLAS uses: numpy's
    add.reduce is pairwise and always the same.
    """

    def dot(u: Floats, v: Floats) -> float:
        return float(np.add.reduce(u * v))

    x = b.copy()
    for _ in range(rounds):
        r = b - system @ x
        if _settled(system, b, x) or np.abs(r).max() <= close:
            break
        shadow, p = r.copy(), r.copy()
        rho = dot(shadow, r)
        goal = rho * 1e-28
        for _ in range(steps):
            if rho == 0 or dot(r, r) <= goal or (close and np.abs(r).max() <= close):
                break
            v = system @ p
            alpha = rho / dot(shadow, v)
            s = r - alpha * v
            t = system @ s
            tt = dot(t, t)
            omega = dot(t, s) / tt if tt > 0 else 0.0
            x = x + alpha * p + omega * s
            r = s - omega * t
            new = dot(shadow, r)
            if omega == 0 or not np.isfinite(new):
                break
            p = r + (new / rho) * (alpha / omega) * (p - omega * v)
            rho = new
    return np.asarray(x)


def solve_above(A: Matrix, b: Floats) -> Floats:
    """x (n,), a little above the solution of x = b + A x in every entry. A >= 0, b >= 0.

    x solves the system with b + c for a constant c > 0, to a residual of at most c. So
    x - A x >= b, and (I - A)^-1 >= 0 makes of that x >= (I - A)^-1 b.
    """
    system = _less(A)
    c = 0.05 * float(b.mean()) if len(b) else 0.0
    if c == 0:
        return np.zeros(len(b))
    x = _iterative(system, b + c, close=c / 2)
    if not np.abs(b + c - system @ x).max() <= 0.9 * c:
        x = _solved(system, b + c)
    return np.asarray(np.maximum(x, b))


def solve_left(A: Matrix, b: Floats) -> Floats:
    """x with x = b + x A, (n,), where (I - A) has an inverse."""
    system = _less(A).T
    return _solved(system if isinstance(system, np.ndarray) else system.tocsr(), b, QUICK)


def solve_many(A: sparse.csr_array, B: Floats, start: Floats | None = None) -> Floats:
    """X with X = B + A X, to a residual of 1e-8 of each column's size. B, X: (n, k).

    Each column by BiCGSTAB, all at once, from `start` (default: B). Columns do not mix, so a
    column's bits do not depend on the others.
    """
    system = _less(A)

    def dot(U: Floats, V: Floats) -> Floats:
        return np.asarray((U * V).sum(axis=0))

    X = np.ascontiguousarray(B if start is None else start, np.float64).copy()
    goal = 1e-16 * np.maximum(dot(B, B), 1e-300)
    for _ in range(8):
        residual = B - system @ X
        if (dot(residual, residual) <= goal).all():
            return X
        shadow, P = residual.copy(), residual.copy()
        rho = dot(shadow, residual)
        for _ in range(200):
            active = dot(residual, residual) > goal
            if not active.any():
                break
            V = system @ P
            alpha = np.where(active, _ratio(rho, dot(shadow, V)), 0.0)
            S = residual - alpha * V
            T = system @ S
            omega = np.where(active, _ratio(dot(T, S), dot(T, T)), 0.0)
            X += alpha * P + omega * S
            residual = np.where(active, S - omega * T, residual)
            new = dot(shadow, residual)
            if not np.isfinite(new).all():
                break
            P = residual + _ratio(new, rho) * _ratio(alpha, omega) * (P - omega * V)
            rho = new
    residual = B - system @ X
    if not (dot(residual, residual) <= 1e4 * goal).all():
        raise PlanError(
            f"linear systems of {len(B):,} unknowns could not be solved.",
            do="Gamma too close to 1: use a smaller one.",
        )
    return X


def _ratio(a: Floats, b: Floats) -> Floats:
    """a / b, 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)
