r"""How near is near, and the control without which a win means nothing.

Radius: states one step apart in the same game are the same situation for our purpose, so

    radius = median over steps of the learners' log of |φ(s_t) - φ(s_{t+1})|

It looks at no return. The paper's 1e-4 and 1e-3 are reported beside it.

`MostFrequent` has DPRL's neighbours and threshold and ignores what came of actions: it says what
was mostly done nearby, if that was done n_min times, else DEFER. What DPRL gains beyond it is due
to its advantage test; the rest is the majority vote of a mixture of players.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dprl.continuous import DPRLContinuous
from dprl.errors import LogError, ParameterError
from dprl.log import Log
from dprl.neighbor_policy import NeighborPolicy
from dprl.neighbors.metric import Metric

__all__ = ["Majority", "MostFrequent", "step_radius"]


def step_radius(log: Log, quantile: float = 0.5) -> float:
    """A quantile of the distances between consecutive states of one trajectory."""
    if not 0 <= quantile <= 1:
        raise ParameterError(f"quantile must lie in [0, 1]; got {quantile!r}.")
    if log.features is None:
        raise LogError("a radius needs states of features.")
    inside = np.ones(log.n_steps, bool)
    inside[log.starts[1:] - 1] = False
    if not inside.any():
        raise LogError("no trajectory has two steps: there is no distance to take.")
    apart = np.sqrt((np.diff(log.features, axis=0) ** 2).sum(axis=1))[inside[:-1]]
    return float(np.quantile(apart, quantile))


@dataclass(frozen=True, kw_only=True)
class MostFrequent:
    """The count-only control.

    Attributes:
        n_min: Neighbours an action needs.
        radius: How far they may be.
        neighbors: "first" counts trajectories, "all" every neighbour.
    """

    n_min: float
    radius: float
    neighbors: Literal["first", "all"] = "all"

    def fit(self, log: Log) -> Majority:
        """The neighbours of this log."""
        near = DPRLContinuous(
            n_min=self.n_min, radius=self.radius, gamma=1.0, metric=Metric(scale="none"),
            neighbors=self.neighbors, contrast=False, cut="terminal",
        )  # fmt: skip
        return Majority(near.fit(log))


@dataclass(frozen=True, eq=False)
class Majority:
    """What was mostly done nearby.

    Attributes:
        near: Whose neighbours are counted; what came of them is not looked at.
    """

    near: NeighborPolicy

    def choices(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """The action for each state (k, d), the lowest of equals; -1 for DEFER."""
        known, _ = self.near.allowed_at(np.asarray(x, np.float64), None)
        n = known.n_pair
        return np.where(n.max(axis=1) >= self.near.n_min, n.argmax(axis=1), -1)
