r"""Plain model-based RL: the best policy of the maximum-likelihood MDP, taken at its word.

    Q*(s,a) = R̂(s,a) + γ ∑_{s'} P̂(s'|s,a) max_{a' seen} Q*(s',a')        π(s) = argmax_{a seen} Q*

Sutton and Barto: *Reinforcement Learning*, 2nd edition, 2018, section 4.3, on certainty-equivalence
estimates. It knows no doubt: one lucky visit is as good as a thousand. Only actions that were seen
in a state may be chosen there; the lowest of equals; uniform in states that were never visited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_cut, check_gamma
from dprl.learners.baselines._policy_of import policy_of
from dprl.logs.log import Log
from dprl.planning.model import Model, estimate
from dprl.planning.policy_iteration import best_choices, known_mdp, one_hot
from dprl.policies.stochastic import StochasticPolicy

__all__ = ["RL"]


@dataclass(frozen=True, kw_only=True)
class RL:
    """Greedy on the maximum-likelihood MDP.

    Attributes:
        gamma: Discount in (0, 1].
        cut: What to do with cut episodes: "drop", "bootstrap", "terminal", or None to be warned.
    """

    gamma: float
    cut: Cut | None = None

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_cut(self.cut)

    def plan(self, model: Model) -> NDArray[np.float64]:
        """π (S, A): the best seen action in every state of the model."""
        choice, _, _ = best_choices(known_mdp(model, self.gamma), model.seen)
        return one_hot(choice, model.visited, model.n.shape[1])

    def fit(self, log: Log) -> StochasticPolicy:
        """The policy that is best if the log is the whole truth."""
        pi = self.plan(estimate(log, self.gamma, self.cut))
        return policy_of(self, {"gamma": float(self.gamma), "cut": self.cut}, log, pi)
