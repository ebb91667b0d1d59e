"""What finds the neighbours of a place for a policy that keeps its training points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dprl.evidence.neighbors.engine import Engine
from dprl.evidence.neighbors.samples import Points

if TYPE_CHECKING:
    from dprl.policies.neighbors import NeighborPolicy

__all__ = ["Engines", "unnamed_points"]


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

    def over(self, z: NDArray[np.float64]) -> bool:
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
