"""What the baselines over labelled states share: from a log to a model, from a plan to a policy.

A baseline is a frozen dataclass of settings and its mathematics, `plan(model)`. The rest is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats
from dprl._core.checks import (
    MOST,
    Cut,
    check_cut,
    check_gamma,
    check_n_min,
    check_radius,
    check_whole,
)
from dprl._core.words import either, worded
from dprl.errors import ParameterError
from dprl.evidence.neighbors.engine import Points
from dprl.evidence.neighbors.metric import FittedMetric, Metric
from dprl.learners.registry import Settings
from dprl.logs.censoring import treat_cut
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Log, check_log
from dprl.planning.model import Model, estimate, refuse_menus
from dprl.policies.base import provenance_of
from dprl.policies.stochastic import StochasticPolicy

if TYPE_CHECKING:
    from dprl.policies.stochastic import FeaturePolicy


# --- What the baselines over labelled states share: from a log to a model, from a plan to a
# policy


class TabularBaseline(Settings, ABC):
    """A learner over labelled states that plans in the maximum-likelihood model of a log."""

    def __post_init__(self) -> None:
        if hasattr(self, "gamma"):
            check_gamma(self.gamma)
            check_cut(getattr(self, "cut", None))

    @abstractmethod
    def _plan(self, model: Model) -> Floats:
        """π(a|s), float64 (S, A), of a model with S states and A actions."""

    def plan(self, model: Model) -> Floats:
        """The policy that it plans in a model, as `fit` does in that of a log.

        Args:
            model: The maximum-likelihood model of a log with S states and A actions.

        Returns:
            π(a|s), float64 (S, A).

        Example:
            >>> from dprl.baselines import RL
            >>> from dprl.envs import risky_arms
            >>> from dprl.planning import estimate
            >>> model = estimate(risky_arms().sample(1_000, seed=0), gamma=1.0)
            >>> RL(gamma=1.0).plan(model).shape
            (11, 10)
        """
        return self._plan(model)

    def fit(self, log: Log) -> StochasticPolicy:
        """The policy that it plans in the model of a log.

        Args:
            log: The training log; its states are labels.

        Returns:
            The policy.

        Raises:
            LogError: If the log is empty, has features as states, or says which actions were
                available.

        Example:
            >>> from dprl.baselines import RL
            >>> from dprl.envs import risky_arms
            >>> log = risky_arms().sample(1_000, seed=0)
            >>> RL(gamma=1.0).fit(log).actions[:2]
            ('b1', 'b2')
        """
        # What has no discount does not look ahead: how episodes end does not matter to it.
        model = estimate(log, getattr(self, "gamma", 1.0), getattr(self, "cut", "terminal"))
        return StochasticPolicy(
            states=log.states,
            actions=log.actions,
            parameters=parameters_of(self),
            provenance=provenance_of(log),
            pi=self.plan(model),
        )


def parameters_of(learner: Any) -> dict[str, Any]:
    """The learner and its settings, as a policy file holds them."""
    return {
        "learner": type(learner).__name__,
        **{f.name: _kept(f.name, f.type, getattr(learner, f.name)) for f in fields(learner)},
    }


def _kept(name: str, kind: Any, value: Any) -> Any:
    """A setting as JSON holds it."""
    if name == "n_min":
        return None if math.isinf(value) else int(value)
    if isinstance(value, Metric):
        return value.words()
    if name == "behavior":
        return None if value is None else "given"
    return {"float": float, "int": int}[kind](value) if kind in ("float", "int") else value


# --- What the baselines over features share: a log as transitions (z, a, r, z'), and `fit`

Parts: TypeAlias = dict[str, Any]
Facts: TypeAlias = dict[str, Any]
Kind = TypeVar("Kind", bound="FeaturePolicy")


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


def transitions(log: Log, metric: Metric, gamma: float, cut: Cut | None) -> Transitions:
    """The steps of a log whose states are features."""
    check_log(log)
    refuse_menus(log)
    fitted = metric.fit(log)
    log = treat_cut(log, gamma, cut).gathered()
    last = np.zeros(log.n_steps, bool)
    last[log.starts[1:] - 1] = True
    points = Points.of(log, fitted, gamma)
    centre = points.z.mean(axis=0)
    return Transitions(points, log.reward, last, gamma, log.n_actions, fitted, centre)


class FeatureBaseline(Settings, ABC, Generic[Kind]):
    """A learner over features: settings, and `learned`, what is learned from transitions."""

    TAKES: ClassVar[str] = "features"

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            if hasattr(self, name):
                check(getattr(self, name))
        for name in WHOLE:
            if hasattr(self, name):
                check_whole(name, getattr(self, name), 0 if name == "seed" else 1, MOST)

    @abstractmethod
    def learned(self, data: Transitions) -> tuple[type[Kind], Parts, Facts]:
        """The kind of policy, its own parts, and facts about how it was learned."""

    def fit(self, log: Log) -> Kind:
        """The policy that is learned from the steps of a log.

        Args:
            log: The training log; its states are features.

        Returns:
            The policy.

        Raises:
            LogError: If the log is empty, has labels as states, or says which actions were
                available.

        Example:
            >>> from dprl.baselines import ForestBC
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> policy = ForestBC(trees=5).fit(log)
            >>> policy.actions
            ('up', 'right', 'down', 'left')
        """
        metric = getattr(self, "metric", Metric(scale="none"))
        data = transitions(
            log, metric, getattr(self, "gamma", 1.0), getattr(self, "cut", "terminal")
        )
        kind, parts, facts = self.learned(data)
        x = plain_features(log)
        origin = provenance_of(
            log,
            steps_used=len(data),
            notes=list(data.metric.notes),
            ranges=np.stack([x.min(axis=0), x.max(axis=0)], axis=1).tolist(),
            **facts,
        )
        return kind(
            states=(),
            actions=log.actions,
            parameters=parameters_of(self),
            provenance=origin,
            feature_names=log.feature_names,
            scale=data.metric.scale,
            weight=data.metric.weight,
            **parts,
        )


def _check_cut(cut: Cut | None) -> None:
    check_cut(cut)
    if cut == "bootstrap":
        raise ParameterError(
            worded("{cut='bootstrap'} needs labelled states."),
            do=worded(
                "Use {choice}.", choice=either("cut='drop' or 'terminal'", "--cut drop or terminal")
            ),
        )


def _check_metric(metric: object) -> None:
    if not isinstance(metric, Metric):
        raise ParameterError(
            f"metric must be a Metric; got {metric!r}.",
            do=worded("Metric({scale='std'}), say."),
        )


CHECKS: dict[str, Callable[[Any], Any]] = {
    "n_min": check_n_min, "gamma": check_gamma, "cut": _check_cut, "metric": _check_metric,
    "radius": check_radius,
}  # fmt: skip
"""Setting that several learners over features have → what refuses it."""
WHOLE = ("seed", "iterations", "trees", "steps", "batch")
"""Settings that are whole numbers."""
