r"""How near is near, and the control without which a win means nothing.

Radius, from the learners' log and without a look at returns:

    radius = median over states of the distance to the 30th nearest state of other games

so that half of the states have 30 neighbours, five for each of six actions. The paper's 1e-4 and
1e-3 are reported beside it.

`MostFrequent` has DPRL's neighbours and threshold and ignores what came of actions: it says what
was mostly done nearby, if that was done n_min times, else DEFER. What DPRL gains beyond it is due
to its advantage test; the rest is the majority vote of a mixture of players.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_whole
from dprl.errors import LogError
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.continuous import DPRLContinuous
from dprl.logs.log import Log
from dprl.policies.neighbors import NeighborPolicy

__all__ = ["Majority", "MostFrequent", "choose_radius", "never_speaks"]


ENOUGH, LOOKED = 30, 500
"""Neighbours wanted, and states at which they are sought."""


def choose_radius(log: Log, enough: int = ENOUGH) -> float:
    """The median distance to the `enough`-th nearest state of other games."""
    check_whole("enough", enough, 1)
    x, game = _states(log), np.repeat(log.group, log.lengths)
    reach = []
    for i in np.unique(np.linspace(0, len(x) - 1, LOOKED).astype(int)):
        apart = ((x[game != game[i]] - x[i]) ** 2).sum(axis=1)
        if len(apart) >= enough:
            reach.append(float(np.sqrt(np.partition(apart, enough - 1)[enough - 1])))
    if not reach:
        raise LogError(f"no state has {enough:,} states of other games: there is no radius.",
                       do="Collect more games.")  # fmt: skip
    return float(np.median(reach))


def _states(log: Log) -> NDArray[np.float64]:
    if log.features is None:
        raise LogError("a radius needs states of features.")
    return log.features


def never_speaks(policy: NeighborPolicy) -> bool:
    """Whether no state whatever can have n_min neighbours of one action.

    If the ball of radius r around some state holds them, the ball of radius 2r around each of them
    does: so it is enough to look at the training points.
    """
    around = 2 * float(policy.parameters["radius"]) * (1 + 1e-9)
    known = policy.returns_engine.evidence(policy.z, around, visits=policy.visits)
    return bool(known.n_pair.max() < policy.n_min)


@dataclass(frozen=True, kw_only=True)
class MostFrequent:
    """The count-only control.

    Attributes:
        n_min: Neighbours an action needs.
        radius: How far they may be.
        visits: "first" counts trajectories, "all" every neighbour.
    """

    n_min: float
    radius: float
    visits: Literal["first", "all"] = "all"

    def fit(self, log: Log) -> Majority:
        """The neighbours of this log."""
        near = DPRLContinuous(
            n_min=self.n_min, radius=self.radius, gamma=1.0, metric=Metric(scale="none"),
            visits=self.visits, contrast=False, plan=False, cut="terminal",
        )  # fmt: skip
        return Majority(near.fit(log))


@dataclass(frozen=True, eq=False)
class Majority:
    """What was mostly done nearby.

    Attributes:
        near: The policy whose neighbours are counted; what came of them is not looked at.
    """

    near: NeighborPolicy

    def choices(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """The action for each state (k, d), the lowest of equals; -1 for DEFER."""
        known, _ = self.near.allowed_at(np.asarray(x, np.float64), None)
        n = known.n_pair
        return np.where(n.max(axis=1) >= self.near.n_min, n.argmax(axis=1), -1)
