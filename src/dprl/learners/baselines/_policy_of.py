"""The policy that a baseline over labelled states returns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.logs.log import Log
from dprl.policies._base import provenance_of
from dprl.policies.stochastic import StochasticPolicy

__all__ = ["policy_of"]

Floats = NDArray[np.float64]


def policy_of(learner: Any, settings: dict[str, Any], log: Log, pi: Floats) -> StochasticPolicy:
    """The policy π of a learner, with its settings and the provenance of its log."""
    return StochasticPolicy(
        states=log.states,
        actions=log.actions,
        parameters={"learner": type(learner).__name__, **settings},
        provenance=provenance_of(log),
        pi=pi,
    )
