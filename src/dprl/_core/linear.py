"""Solve x = b + A x for a sparse A that loses mass (a discount, an end); the same bits always."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl.errors import PlanError

__all__ = ["doubt", "leaks", "solve", "solve_above", "solve_left", "solve_many"]

DIRECT = 2_000
"""The most unknowns for a sparse LU: its fill-in can grow with the square of their number."""

Floats = NDArray[np.float64]


def leaks(A: sparse.csr_array) -> NDArray[np.bool_]:
    """bool (n,): unknowns from which mass is lost sooner or later; others have no finite value."""
    reached = np.asarray(1 - A.sum(axis=1) > 1e-12)
    while not reached.all():
        more = reached | (A @ reached.astype(np.float64) > 0)
        if (more == reached).all():
            break
        reached = more
    return reached


def solve(A: sparse.csr_array, b: Floats) -> Floats:
    """x with x = b + A x, to a residual of 1e-13 of its size. A: CSR (n, n) >= 0, b: (n,).

    Unknowns from which no mass is ever lost are 0 if every b among them is 0: going round in a
    circle without end and without reward is worth nothing. They lead nowhere else, so the others
    are solved without them.
    """
    if not len(b):
        return b.copy()
    ends = leaks(A)
    if not ends.all() and not b[~ends].any():
        x = np.zeros(len(b))
        x[ends] = solve(A[ends][:, ends], b[ends])
        return x
    system = (sparse.eye_array(len(b), format="csr") - A).tocsr()
    stuck = np.flatnonzero(~ends)
    if len(stuck):
        raise PlanError(
            f"a value is not defined for {len(stuck):,} of {len(b):,} states: nothing ever ends.",
            f"unknown {stuck[0]}",
            "With gamma = 1 every choice must lead to an end; use a gamma below 1 (0.999, say).",
        )
    if len(b) > DIRECT:
        return np.asarray(sum(_solved(system, part) for part in _by_size(b)))
    return _solved(system, b)


def doubt(A: sparse.csr_array, b: Floats, x: Floats) -> Floats:
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


def _solved(system: sparse.csr_array, b: Floats) -> Floats:
    """x with `system` x = b."""
    x = _direct(system, b) if len(b) <= DIRECT else _iterative(system, b)
    if _settled(system, b, x):
        return x
    x = _direct(system, b)
    if not _settled(system, b, x):
        raise PlanError(
            f"a linear system of {len(b):,} unknowns could not be solved to rounding.",
            do="Returns of very different sizes, or gamma too close to 1: use a smaller one.",
        )
    return x


def _settled(system: sparse.csr_array, b: Floats, x: Floats) -> bool:
    """Whether x solves the system to rounding."""
    size = max(float(np.abs(b).max()), float(np.abs(x).max()))
    return bool(np.isfinite(x).all() and np.abs(b - system @ x).max() <= 1e-13 * size)


def _direct(system: sparse.csr_array, b: Floats) -> Floats:
    """The solution by sparse LU, improved once; NaN where the matrix is singular."""
    from scipy.sparse.linalg import splu

    try:
        factors = splu(system.tocsc())
    except RuntimeError:
        return np.full(len(b), np.nan)
    x = factors.solve(b)
    return np.asarray(x + factors.solve(b - system @ x))


def _iterative(system: sparse.csr_array, b: Floats, close: float = 0.0) -> Floats:
    """The solution by BiCGSTAB, restarted on its own residual, until that is at most `close`.

    It is written out here because its sums must not depend on how many threads a BLAS uses: numpy's
    add.reduce is pairwise and always the same.
    """

    def dot(u: Floats, v: Floats) -> float:
        return float(np.add.reduce(u * v))

    x = b.copy()
    for _ in range(8):
        r = b - system @ x
        if _settled(system, b, x) or np.abs(r).max() <= close:
            break
        shadow, p = r.copy(), r.copy()
        rho = dot(shadow, r)
        goal = rho * 1e-28
        for _ in range(500):
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


def solve_above(A: sparse.csr_array, b: Floats) -> Floats:
    """x (n,), a little above the solution of x = b + A x in every entry. A >= 0, b >= 0.

    x solves the system with b + c for a constant c > 0, to a residual of at most c. So
    x - A x >= b, and (I - A)^-1 >= 0 makes of that x >= (I - A)^-1 b.
    """
    system = (sparse.eye_array(len(b), format="csr") - A).tocsr()
    c = 0.05 * float(b.mean()) if len(b) else 0.0
    if c == 0:
        return np.zeros(len(b))
    x = _iterative(system, b + c, close=c / 2)
    if not np.abs(b + c - system @ x).max() <= 0.9 * c:
        x = _solved(system, b + c)
    return np.asarray(np.maximum(x, b))


def solve_left(A: sparse.csr_array, b: Floats) -> Floats:
    """x with x = b + x A, (n,), where (I - A) has an inverse."""
    return _solved((sparse.eye_array(len(b), format="csr") - A).T.tocsr(), b)


def solve_many(A: sparse.csr_array, B: Floats, start: Floats | None = None) -> Floats:
    """X with X = B + A X, to a residual of 1e-8 of each column's size. B, X: (n, k).

    Each column by BiCGSTAB, all at once, from `start` (default: B). Columns do not mix, so a
    column's bits do not depend on the others.
    """
    system = (sparse.eye_array(len(B), format="csr") - A).tocsr()

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
