r"""Keeping less than all the data, and knowing what it costs.

**Pruning** is lossless. A state s can be a decision point only if some action has n_min
trajectories within r of it; those lie within 2r of any point within r of s. So a point without
n_min trajectories of some action within 2r of it is never within r of a decision point, and every
decision, with all the evidence behind it, is the same without it. (Counts shown where the policy
defers may be smaller, and a summary over its own points no longer counts those that went.)

**Micro-clusters** move points to the centre of a net of radius ρ = tol·r/2. Who is within r of the
moved points was within r(1 + tol/2), and everybody within r(1 - tol/2) still is: the answer is one
for a radius, point by point, within r(1 ± tol/2). Counting by trajectory, of the rows of one
trajectory with one action in one cluster only the first can ever count: the rest go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_number
from dprl.evidence.neighbors._net import greedy_net
from dprl.policies.neighbors import NeighborPolicy

__all__ = ["Compression", "compress", "prune"]

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


def _kept(
    policy: NeighborPolicy, rows: NDArray[np.int64], z: NDArray[np.float64]
) -> NeighborPolicy:
    return replace(
        policy, z=z[rows], action=policy.action[rows], G=policy.G[rows],
        worth=policy.worth[rows], episode=policy.episode[rows], menu=policy.menu[rows],
    )  # fmt: skip


def _noted(policy: NeighborPolicy, **what: Any) -> NeighborPolicy:
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
    return _report(policy, _noted(_kept(policy, rows, policy.z), pruned=True))


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
    return _report(policy, _noted(_kept(small, rows, small.z[centre]), tol=float(tol)))
