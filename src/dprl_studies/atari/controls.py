r"""The rule for the radius, and a control that shows how much of a gain is due to counting alone.

The radius is chosen from the learners' log, without looking at returns:

    radius = median over states of the distance to the 30th nearest state of other games

So half of the states have 30 neighbours, five for each of six actions. The study also reports the
paper's radii, 1e-4 and 1e-3.

`MostFrequent` has the same neighbours and threshold as DPRL and ignores the returns: it takes the
most frequent action of the neighbours if at least n_min of them took it, else it defers. What DPRL
gains beyond it is due to the comparison of returns; the rest is due to the majority vote among the
actions of the mixture of players.
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
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Log
from dprl.policies.neighbors import NeighborPolicy

ENOUGH, LOOKED = 30, 500
"""Number of neighbours wanted, and number of states at which they are counted."""


def choose_radius(log: Log, enough: int = ENOUGH) -> float:
    """The median distance of a state to the `enough`-th nearest state of other games.

    Args:
        log: A log whose states are features and whose groups are games.
        enough: Number of neighbours that half of the states shall have, at least 1. Default 30.

    Returns:
        The radius, in the unit of the features.

    Raises:
        LogError: States are labels, or no state has so many states of other games.
        ParameterError: `enough` is below 1.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 0, 1, 1], time=[0, 1, 0, 1], state=[[0.0], [1.0], [3.0], [4.0]],
        ...     action=["a", "b", "a", "b"], reward=[0, 1, 0, 1],
        ... )
        >>> choose_radius(log, enough=1)
        2.5
    """
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
    """The features of a log, (N, d); refuses a log of labels."""
    if log.features is None:
        raise LogError("a radius needs states of features.")
    return plain_features(log)


def never_speaks(policy: NeighborPolicy) -> bool:
    """Whether a policy defers everywhere, since no state can have n_min neighbours of one action.

    If a state has n_min such neighbours within radius r, each of them has all of them within radius
    2r. So it is enough to count neighbours within 2r of the training points.

    Args:
        policy: A policy that `DPRLContinuous` learned.

    Returns:
        True if the policy defers at every possible state; False if that is not certain.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 0, 1, 1], time=[0, 1, 0, 1], state=[[0.0], [1.0], [3.0], [4.0]],
        ...     action=["a", "b", "a", "b"], reward=[0, 1, 0, 1],
        ... )
        >>> never_speaks(dprl.DPRLContinuous(n_min=3, radius=0.1, gamma=1.0).fit(log))
        True
    """
    around = 2 * float(policy.parameters["radius"]) * (1 + 1e-9)
    counted = policy.returns_engine.evidence(policy.z, around, visits=policy.visits)
    return bool(counted.n_pair.max() < policy.n_min)


@dataclass(frozen=True, kw_only=True)
class MostFrequent:
    """A learner that counts the actions of neighbours and ignores their returns.

    Attributes:
        n_min: Number of neighbours that must have taken an action.
        radius: Largest distance of a neighbour, in the unit of the features.
        visits: "all" (default) counts every neighbour; "first" counts groups (games).

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
        ...     action=["a", "a", "b"], reward=[0, 1, 0],
        ... )
        >>> MostFrequent(n_min=2, radius=1.0).fit(log).choices(np.array([[0.0], [5.0]]))
        array([ 0, -1])
    """

    n_min: float
    radius: float
    visits: Literal["first", "all"] = "all"

    def fit(self, log: Log) -> Majority:
        """Prepare the neighbours of a log.

        Args:
            log: The training log; its states are features.

        Returns:
            The policy.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
            ...     action=["a", "a", "b"], reward=[0, 1, 0],
            ... )
            >>> MostFrequent(n_min=1, radius=1.0).fit(log).choices(np.array([[5.0]]))
            array([1])
        """
        near = DPRLContinuous(
            n_min=self.n_min, radius=self.radius, gamma=1.0, metric=Metric(scale="none"),
            visits=self.visits, contrast=False, plan=False, cut="terminal",
        )  # fmt: skip
        return Majority(near.fit(log))


@dataclass(frozen=True, eq=False)
class Majority:
    """The policy of `MostFrequent`: the most frequent action among the neighbours.

    Attributes:
        near: The policy whose neighbours and n_min are used; its returns are not.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
        ...     action=["a", "a", "b"], reward=[0, 1, 0],
        ... )
        >>> MostFrequent(n_min=2, radius=1.0).fit(log).near.n_min
        2.0
    """

    near: NeighborPolicy

    def choices(self, x: NDArray[np.float64]) -> NDArray[np.int64]:
        """The most frequent action near each state.

        Args:
            x: float64 (k, d), the states.

        Returns:
            int64 (k,), the action (the lowest among equals), or -1 for DEFER.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[0, 1, 2], time=[0, 0, 0], state=[[0.0], [0.1], [5.0]],
            ...     action=["a", "a", "b"], reward=[0, 1, 0],
            ... )
            >>> MostFrequent(n_min=2, radius=1.0).fit(log).choices(np.array([[0.0]]))
            array([0])
        """
        counted, _ = self.near.allowed_at(np.asarray(x, np.float64), None)
        n = counted.n_pair
        return np.where(n.max(axis=1) >= self.near.n_min, n.argmax(axis=1), -1)
