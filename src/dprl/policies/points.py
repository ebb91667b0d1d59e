"""What finds the neighbours of a place for a policy that keeps its training points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_number
from dprl.evidence.neighbors.engine import Engine, Points, greedy_net
from dprl.policies.neighbors import NeighborPolicy

# --- Keeping less than all the data, and knowing what it costs
#
# **Pruning** is lossless. A state s can be a decision point only if some action has n_min
# trajectories within r of it; those lie within 2r of any point within r of s. So a point without
# n_min trajectories of some action within 2r of it is never within r of a decision point, and every
# decision, with all the evidence behind it, is the same without it. (Counts shown where the policy
# defers may be smaller, and a summary over its own points no longer counts those that went.)
#
# **Micro-clusters** move points to the centre of a net of radius ρ = tol·r/2. Who is within r of
# the moved points was within r(1 + tol/2), and everybody within r(1 - tol/2) still is: the answer
# is one for a radius, point by point, within r(1 ± tol/2). Counting by trajectory, of the rows of
# one trajectory with one action in one cluster only the first can ever count: the rest go.

SLACK = 1e-9
"""2r is taken a little larger, so that rounding of distances cannot lose a point."""


@dataclass(frozen=True)
class Compression:
    """A smaller policy and what became of the points.

    Attributes:
        policy: The smaller policy.
        before: Points of the original.
        after: Points of the smaller one.
        places: Different places among them.
    """

    policy: NeighborPolicy
    before: int
    after: int
    places: int

    @property
    def ratio(self) -> float:
        """Numbers kept (coordinates of places, four numbers a point) over numbers there were."""
        d = self.policy.z.shape[1]
        return float((self.places * d + 4 * self.after) / (self.before * (d + 4)))

    def changed(self, original: NeighborPolicy, states: Any) -> float:
        """Share of states at which the smaller policy answers otherwise.

        Args:
            original: The policy before.
            states: (k, d) features, or a table with these columns.

        Returns:
            A share of the k states, from 0 to 1.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> dprl.prune(policy).changed(policy, [[0.0], [9.0]])
            0.0
        """
        one, two = original.at(states).choice, self.policy.at(states).choice
        return float((one != two).mean())


def _kept(policy: NeighborPolicy, rows: Ints, z: Floats) -> NeighborPolicy:
    return replace(
        policy, z=z[rows], action=policy.action[rows], G=policy.G[rows],
        worth=policy.worth[rows], episode=policy.episode[rows], menu=policy.menu[rows],
    )  # fmt: skip


def _noted_loss(policy: NeighborPolicy, **what: Any) -> NeighborPolicy:
    """The policy, saying of itself what was done to it."""
    return replace(policy, parameters={**policy.parameters, **what})


def _report(before: NeighborPolicy, after: NeighborPolicy) -> Compression:
    places = len(np.unique(after.z, axis=0))
    return Compression(after, len(before.z), len(after.z), places)


def prune(policy: NeighborPolicy) -> Compression:
    """The policy without the points that no decision can depend on; its decisions stay the same.

    Args:
        policy: A policy over numeric features.

    Returns:
        The smaller policy as `.policy`, and the numbers of points `.before` and `.after`.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=range(60), state=[[0.0], [0.5]] * 30,
        ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
        ... )
        >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
        >>> small = dprl.prune(policy)
        >>> small.changed(policy, [[0.0], [9.0]])
        0.0
    """
    reach = 2 * float(policy.parameters["radius"]) * (1 + SLACK)
    evidence = policy.returns_engine.evidence(policy.z, reach, visits=policy.visits)
    rows = np.flatnonzero((evidence.n_pair >= policy.n_min).any(axis=1))
    if not len(rows):
        rows = np.arange(1)  # a policy that defers everywhere keeps one point to say so
    return _report(policy, _noted_loss(_kept(policy, rows, policy.z), pruned=True))


def compress(policy: NeighborPolicy, tol: float = 0.1) -> Compression:
    """Pruning, then micro-clusters: answers as for a radius within r(1 ± tol/2).

    Args:
        policy: A policy over numeric features, with radius r.
        tol: How far the radius may be off, as a share of r, in [0, 1). Default 0.1.

    Returns:
        The smaller policy as `.policy`, and the numbers of points `.before` and `.after`.

    Raises:
        ParameterError: `tol` is outside [0, 1).

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=range(60), state=[[0.0], [0.5]] * 30,
        ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
        ... )
        >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
        >>> small = dprl.compress(policy, tol=0.2)
        >>> small.policy.act([0.0])
        'drug'
    """
    check_number("tol", tol, "[0, 1)")
    small = prune(policy).policy
    rho = tol * float(policy.parameters["radius"]) / 2
    centre = greedy_net(small.returns_engine, rho)
    rows = np.arange(len(small.z))
    if policy.visits == "first":
        key = np.stack([small.episode, centre, small.action, small.menu])
        rows = np.sort(np.unique(key, axis=1, return_index=True)[1])
    return _report(policy, _noted_loss(_kept(small, rows, small.z[centre]), tol=float(tol)))


# --- What finds the neighbours of a place for a policy that keeps its training points


@dataclass(frozen=True, eq=False)
class Engines:
    """What finds the neighbours of a place among a policy's training points.

    Attributes:
        returns: Finds what came of actions around a place.
        menus: Finds what was on offer there: menus in place of actions. None where everything was
            always on offer.
    """

    returns: Engine
    menus: Engine | None

    @classmethod
    def of(cls, policy: NeighborPolicy, device: str | None = None) -> Self:
        """Engines over the points of a policy; `device` as in `Engine.build`."""
        p, gamma = policy, float(policy.parameters["gamma"])
        points = Points(p.z, p.action, p.G, p.episode, gamma, p.actions)
        offered = Points(p.z, p.menu, p.G, p.episode)
        menus = None if p.menus.all() else Engine.build(offered, len(p.menus), device=device)
        return cls(Engine.build(points, len(p.actions), device=device), menus)

    def over(self, z: Floats) -> bool:
        """Whether these are engines over the points z (N, d')."""
        ours = self.returns.points.z
        return ours.shape == z.shape and np.shares_memory(ours, z)


def unnamed_points(policy: NeighborPolicy) -> dict[str, Any]:
    """The points with episodes numbered by what they hold, whatever order they came in."""
    episodes, first = np.unique(policy.episode, return_index=True)
    ends = np.append(first[1:], len(policy.episode))
    rows = [np.arange(a, b) for a, b in zip(first, ends, strict=True)]
    names = ("z", "action", "G", "worth", "menu")

    def content(e: int) -> bytes:
        return b"".join(np.ascontiguousarray(getattr(policy, n)[rows[e]]).tobytes() for n in names)

    order = sorted(range(len(episodes)), key=content)
    moved = np.concatenate([rows[e] for e in order])
    number = np.repeat(np.arange(len(order)), [len(rows[e]) for e in order]).astype(np.int64)
    arrays = {name: getattr(policy, name)[moved] for name in names}
    return {**arrays, "episode": number, "episodes": tuple(range(len(order)))}
