"""Nets: few centres such that every point lies within a radius of one of them; and core points.

A *core point* has at least n_min trajectories that took the same action within r of it (the cores
of DBSCAN, counted by trajectory). M(r, n_min), the number in the paper's Theorem 2, is the number
of centres of a greedy r-net over the core points: each row in turn becomes a centre unless an
earlier centre is within r. Two centres are farther apart than r, but their balls may overlap, so M
may exceed N / n_min (points on a line, five in each ball: every third point is a centre).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.evidence.neighbors.engine import Engine

CHUNK = 1_024


@compiled
def _cover(
    candidates: NDArray[np.int64],
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    wanted: NDArray[np.bool_],
    centre: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """Each candidate in turn becomes a centre unless covered; it then covers its neighbours."""
    for i in range(len(candidates)):
        if centre[candidates[i]] >= 0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            if wanted[rows[p]] and centre[rows[p]] < 0:
                centre[rows[p]] = candidates[i]


def greedy_net(
    engine: Engine, radius: float, wanted: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """The centre of every wanted row, int64 (N,): a row within `radius` of it; -1 if not wanted.

    Rows are taken in their order, so the net does not depend on chunks or threads.
    """
    N = len(engine.points)
    if wanted is None:
        wanted = np.ones(N, bool)
    centre = np.full(N, -1, np.int64)
    after = 0
    while True:
        left = np.flatnonzero(wanted[after:] & (centre[after:] < 0))[:CHUNK] + after
        if not len(left):
            return centre
        indptr, rows = engine.neighbors(engine.points.z[left], radius)
        _cover(left, indptr, rows, wanted, centre)
        after = int(left[-1]) + 1


def core_points(engine: Engine, radius: float, n_min: float) -> NDArray[np.bool_]:
    """bool (N,): rows with at least n_min trajectories of one action within `radius`."""
    evidence = engine.evidence(engine.points.z, radius, visits="first")
    return np.asarray((evidence.n_pair >= n_min).any(axis=1))


def net_size(engine: Engine, radius: float, n_min: float) -> int:
    """M(r, n_min): the number of centres of the greedy r-net over the core points."""
    centre = greedy_net(engine, radius, core_points(engine, radius, n_min))
    return len(np.unique(centre[centre >= 0]))


@compiled
def _nearest(
    z: NDArray[np.float64],
    queries: NDArray[np.float64],
    indptr: NDArray[np.int64],
    rows: NDArray[np.int32],
    nearest: NDArray[np.int64],
) -> None:  # pragma: no cover - compiled
    """The nearest of each query's rows, the first of equals; -1 where a query has no rows."""
    for q in range(len(queries)):
        best = np.inf
        nearest[q] = -1
        for p in range(indptr[q], indptr[q + 1]):
            distance = 0.0
            for i in range(z.shape[1]):
                distance += (z[rows[p], i] - queries[q, i]) * (z[rows[p], i] - queries[q, i])
            if distance < best:
                best = distance
                nearest[q] = rows[p]


def nearest_centres(
    centres: Engine, queries: NDArray[np.float64], radius: float
) -> NDArray[np.int64]:
    """The nearest centre of each query within `radius`, int64 (Q,); -1 if all are farther."""
    nearest = np.empty(len(queries), np.int64)
    for start in range(0, len(queries), CHUNK * 16):
        chunk = slice(start, start + CHUNK * 16)
        indptr, rows = centres.neighbors(queries[chunk], radius)
        _nearest(centres.points.z, queries[chunk], indptr, rows, nearest[chunk])
    return nearest
