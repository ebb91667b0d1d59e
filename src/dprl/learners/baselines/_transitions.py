"""A log of features as transitions (z, a, r, z'), from which the baselines over features learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_cut, check_gamma
from dprl._core.words import either, option, worded
from dprl.errors import LogError, ParameterError
from dprl.evidence.neighbors.metric import FittedMetric, Metric
from dprl.evidence.neighbors.samples import Points
from dprl.logs._censoring import settle
from dprl.logs._feature_input import plain_features
from dprl.logs.log import Log, check_log
from dprl.policies._base import provenance_of

__all__ = [
    "Transitions",
    "check_problem",
    "described",
    "transitions",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Transitions:
    """The N steps of a log; within an episode, row i + 1 follows row i.

    Attributes:
        points: Coordinates, actions, returns to go and episodes of the steps.
        reward: float64 (N,), the reward of each step.
        last: bool (N,), the steps that end an episode.
        gamma: Discount in (0, 1].
        n_actions: A, the number of actions.
        metric: The metric that gave the coordinates.
        centre: float64 (d',), the mean of the coordinates. Forests compute in float32, and
            subtracting the mean keeps digits.
    """

    points: Points
    reward: Floats
    last: NDArray[np.bool_]
    gamma: float
    n_actions: int
    metric: FittedMetric
    centre: Floats

    def __len__(self) -> int:
        return len(self.reward)

    def targets(self, V: Floats) -> Floats:
        """r + γ V(next), (N,), from the value V (N,) of the state of every step; r at an end."""
        ahead = np.append(V[1:], 0.0)
        return np.asarray(self.reward + self.gamma * np.where(self.last, 0.0, ahead))


def check_problem(gamma: float, cut: Cut | None, metric: object) -> None:
    """Refuse settings that no learner over features can have."""
    check_gamma(gamma)
    check_cut(cut)
    if cut == "bootstrap":
        raise ParameterError(
            worded("{cut} needs labelled states.", cut=option("cut", "bootstrap")),
            do=worded(
                "Use {choice}.", choice=either("cut='drop' or 'terminal'", "--cut drop or terminal")
            ),
        )
    if not isinstance(metric, Metric):
        raise ParameterError(
            f"metric must be a Metric; got {metric!r}.",
            do=worded("Metric({scale}), say.", scale=option("scale", "std")),
        )


def transitions(log: Log, metric: Metric, gamma: float, cut: Cut | None) -> Transitions:
    """The steps of a log whose states are features."""
    check_log(log)
    if log.available is not None:
        raise LogError(
            "the baselines do not take into account which actions were available.",
            do=worded(
                "Read the log without {available}, and see that what they suggest can be done.",
                available=option("available"),
            ),
        )
    fitted = metric.fit(log)
    log = settle(log, gamma, cut).gathered()
    last = np.zeros(log.n_steps, bool)
    last[log.starts[1:] - 1] = True
    points = Points.of(log, fitted, gamma)
    centre = points.z.mean(axis=0)
    return Transitions(points, log.reward, last, gamma, log.n_actions, fitted, centre)


def described(
    learner: Any, settings: dict[str, Any], log: Log, data: Transitions, **facts: Any
) -> dict[str, Any]:
    """The fields that every `FeaturePolicy` has, for a policy fitted to this log."""
    x = plain_features(log)
    return {
        "states": (),
        "actions": log.actions,
        "parameters": {"learner": type(learner).__name__, **settings},
        "provenance": provenance_of(
            log,
            steps_used=len(data),
            notes=list(data.metric.notes),
            ranges=np.stack([x.min(axis=0), x.max(axis=0)], axis=1).tolist(),
            **facts,
        ),
        "feature_names": log.feature_names,
        "scale": data.metric.scale,
        "weight": data.metric.weight,
    }
