"""How a sweep judges the policy of one setting, here or on a worker of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias

from dprl.certificate._gate import gate
from dprl.errors import ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._result import Evaluation
from dprl.evaluation._sweep_rules import row_of
from dprl.evidence.behavior import Behavior
from dprl.learners._variants import fitted
from dprl.logs._parquet import Row
from dprl.logs.log import Log
from dprl.policies._base import origin_of_training

__all__ = ["Judge", "Judged", "fit_and_judge"]

Judged: TypeAlias = tuple[Row, Any, Evaluation]
"""The row of a setting, its policy and its evaluation."""


@dataclass(frozen=True)
class Judge:
    """How the policy of a setting is judged: the arguments of `sweep`; `delta` of one setting."""

    estimator: str
    behavior: Behavior | None
    level: float
    draws: int
    seed: int
    clip: float
    values: bool
    delta: float | None
    value_range: tuple[float, float] | None

    def __call__(
        self, learner: Any, setting: Mapping[str, Any], policy: Any, train: Any, valid: Log
    ) -> Judged:
        """The row of a setting, its policy and its evaluation."""
        policy = _trained_on(policy, train)
        evaluation = evaluate(
            policy, valid, gamma=_gamma(learner, policy), behavior=self.behavior, level=self.level,
            draws=self.draws, seed=self.seed, clip=self.clip, values=self.values,
        )  # fmt: skip
        row = {**setting, **row_of(policy, evaluation, self.estimator)}
        if self.delta is not None:
            # who differs in what is for the one that is picked
            bare = replace(train, also=None) if isinstance(train, Log) else train
            proved = gate(
                policy, bare, delta=self.delta, value_range=self.value_range, seed=self.seed
            ).certificate
            row["certified"] = 0 if proved is None else len(proved.rows)
            row["certified_gain"] = 0.0 if proved is None else proved.gain or 0.0
        return row, policy, evaluation


def fit_and_judge(
    setting: Mapping[str, Any], judge: Judge, learner: Any, train: Any, valid: Log
) -> Judged:
    """A setting fitted and judged; called on a worker of a cluster."""
    row, policy, evaluation = judge(
        learner, setting, next(iter(fitted(learner, train, [setting]))), train, valid
    )
    bare = replace(policy) if is_dataclass(policy) and not isinstance(policy, type) else policy
    return row, bare, evaluation  # bare: without engines, which are large and soon built again


def _trained_on(policy: Any, train: Any) -> Any:
    """The policy with a record of `train`, where it can keep one and has none of its own."""
    if not is_dataclass(policy) or isinstance(policy, type) or not isinstance(train, Log):
        return policy
    origin = getattr(policy, "provenance", None)
    if not isinstance(origin, Mapping) or "log" in origin:
        return policy
    return replace(policy, provenance={**origin, **origin_of_training(train)})


def _gamma(learner: Any, policy: Any) -> float | None:
    """The learner's discount; None where the policy has its own."""
    own: float | None = getattr(learner, "gamma", None)
    if own is None and "gamma" not in getattr(policy, "parameters", {}):
        raise ParameterError(
            f"neither {type(learner).__name__} nor its policy says how to discount.",
            do="Give the learner an attribute gamma, or its policy parameters={'gamma': 0.99}.",
        )
    return own
