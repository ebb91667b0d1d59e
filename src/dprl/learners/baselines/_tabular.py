"""What the baselines over labelled states share: from a log to a model, from a plan to a policy.

A baseline is a frozen dataclass of settings and its mathematics, `plan(model)`. The rest is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_cut, check_gamma
from dprl.evidence.neighbors.metric import Metric
from dprl.logs.log import Log
from dprl.planning.model import Model, estimate
from dprl.policies._base import provenance_of
from dprl.policies.stochastic import StochasticPolicy

__all__ = ["TabularBaseline", "parameters_of"]


class TabularBaseline(ABC):
    """A learner over labelled states that plans in the maximum-likelihood model of a log."""

    def __post_init__(self) -> None:
        if hasattr(self, "gamma"):
            check_gamma(self.gamma)
            check_cut(getattr(self, "cut", None))

    @abstractmethod
    def plan(self, model: Model) -> NDArray[np.float64]:
        """π(a|s), float64 (S, A), of a model with S states and A actions."""

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
