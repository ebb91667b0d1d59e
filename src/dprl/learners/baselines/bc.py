r"""Behaviour cloning: do what was done, in the proportions it was done.

    π(a|s) = π̂_b(a|s) = n(s,a) / n(s)

Pomerleau: *Efficient training of artificial neural networks for autonomous navigation*, Neural
Computation 3(1), 1991. Uniform in states that were never visited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl.learners.baselines._policy_of import policy_of
from dprl.logs.log import Log
from dprl.planning.model import Model, estimate
from dprl.policies.stochastic import StochasticPolicy

__all__ = ["BC"]


@dataclass(frozen=True, kw_only=True)
class BC:
    """Behaviour cloning; nothing to set."""

    def fit(self, log: Log) -> StochasticPolicy:
        """The behaviour this log shows."""
        return policy_of(self, {}, log, self.plan(estimate(log, 1.0, "terminal")))

    def plan(self, model: Model) -> NDArray[np.float64]:
        """π (S, A) from a model of the log."""
        return model.mdp.behavior
