"""What finds the neighbours of a place for a policy that keeps its training points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dprl.evidence.neighbors.engine import Engine
from dprl.evidence.neighbors.samples import Points

if TYPE_CHECKING:
    from dprl.policies.neighbors import NeighborPolicy

__all__ = ["Engines"]


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
    def of(cls, policy: NeighborPolicy) -> Self:
        """Engines over the points of a policy."""
        p, gamma = policy, float(policy.parameters["gamma"])
        points = Points(p.z, p.action, p.G, p.episode, gamma, p.actions)
        offered = Points(p.z, p.menu, p.G, p.episode)
        menus = None if p.menus.all() else Engine.build(offered, len(p.menus))
        return cls(Engine.build(points, len(p.actions)), menus)

    def over(self, z: NDArray[np.float64]) -> bool:
        """Whether these are engines over the points z (N, d')."""
        ours = self.returns.points.z
        return ours.shape == z.shape and np.shares_memory(ours, z)
