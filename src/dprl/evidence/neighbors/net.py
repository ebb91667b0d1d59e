"""Nets: few centres such that every point lies within a radius of one of them; and core points.

A *core point* has at least n_min trajectories that took one action within r of it (the cores of
DBSCAN, counted by trajectory); a *core pair* is a row whose own action is such an action. The
paper's M(r, n_min) covers pairs of state and action, and pairs with different actions are
infinitely far apart: so M is the number of centres of a greedy r-net over the core pairs of each
action, added up. Each row in turn becomes a centre unless an earlier centre is within r. Two
centres are farther apart than r, but their balls may overlap, so M may exceed N / n_min (points on
a line, five in each ball: every third point is a centre).

The paper proposes the volume that DBSCAN finds as an estimate of M: the volume of all balls around
core pairs, in balls. `core_volume` estimates it: of points drawn in the balls at random, a point
that lies in k of them counts 1/k.
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


def core_pairs(engine: Engine, radius: float, n_min: float) -> NDArray[np.bool_]:
    """bool (N,): rows with at least n_min trajectories of their own action within `radius`."""
    evidence = engine.evidence(engine.points.z, radius, visits="first")
    return np.asarray(evidence.n_pair[np.arange(len(engine.points)), engine.points.action] >= n_min)


def net_size(engine: Engine, radius: float, n_min: float) -> int:
    """M(r, n_min): centres of greedy r-nets over the core pairs, one net for each action."""
    core, action = core_pairs(engine, radius, n_min), engine.points.action
    nets = [greedy_net(engine, radius, core & (action == a)) for a in np.unique(action[core])]
    return sum(len(np.unique(centre[centre >= 0])) for centre in nets)


def core_volume(
    engine: Engine, radius: float, n_min: float, *, draws: int = 2_000, seed: int = 0
) -> float:
    """The volume of the balls around core pairs, in balls, the actions added up; an estimate.

    Args:
        engine: The points of a log.
        radius: r, in the metric of the points; above 0.
        n_min: Trajectories of its action that a core pair needs within `radius`.
        draws: How many random points are looked at for each action. Default 2,000.
        seed: Seed of these points. Default 0.
    """
    core, action = core_pairs(engine, radius, n_min), engine.points.action
    rng, z, total = np.random.default_rng(seed), engine.points.z, 0.0
    for a in np.unique(action[core]):
        own = core & (action == a)
        centre = z[rng.choice(np.flatnonzero(own), draws)]
        way = rng.normal(size=centre.shape)
        way *= (rng.random(draws) ** (1 / z.shape[1]) / np.linalg.norm(way, axis=1))[:, None]
        indptr, rows = engine.neighbors(centre + radius * way, radius)
        inside = np.concatenate(([0], np.cumsum(own[rows])))
        total += int(own.sum()) * float((1 / np.maximum(np.diff(inside[indptr]), 1)).mean())
    return total


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
