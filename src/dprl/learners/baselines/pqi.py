r"""Pessimistic Q-iteration: plan among frequent pairs, assume the worst of all others.

Liu, Swaminathan, Agarwal, Brunskill: *Provably Good Batch Off-Policy Reinforcement Learning Without
Great Exploration*, NeurIPS 2020. With the filter ζ(s,a) = 1{ n(s,a)/|D| >= b }, |D| transitions:

    Q(s,a) = R̂(s,a) + γ ∑_{s'} P̂(s'|s,a) V(s')
    V(s)   = max over a with ζ(s,a) of Q(s,a);   r_min/(1-γ) where nothing is supported
    π(s)   = argmax over a with ζ(s,a) of Q(s,a);  uniform where nothing is supported

END is worth 0. Solved by exact policy iteration over the supported actions; the lowest of equals.

Departures from the paper, which takes rewards in [0, 1] and max_a ζ Q, so that an unsupported
action stands for 0: with rewards of any sign the floor is r_min/(1-γ), and it counts only where no
action is supported. With γ = 1 the floor is 0, and r_min < 0 has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_number
from dprl.errors import ParameterError
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import best_choices, known_mdp, one_hot
from dprl.planning.model import Model


@dataclass(frozen=True, kw_only=True)
class PQI(TabularBaseline):
    """PQI for labelled states.

    Attributes:
        b: The share of all transitions that a pair needs to be supported, in (0, 1].
        gamma: Discount in (0, 1].
        r_min: The smallest possible reward; a state without supported actions is worth r_min/(1-γ).
            Default 0.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import PQI
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = PQI(b=0.002, gamma=1.0).fit(problem.sample(1_000, seed=0))
        >>> round(problem.value(policy), 3)
        0.693
    """

    b: float
    gamma: float
    r_min: float = 0.0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("b", self.b, "(0, 1]")
        check_number("r_min", self.r_min, "(-infinity, infinity)")
        if self.gamma == 1 and self.r_min < 0:
            raise ParameterError(
                f"with gamma = 1 and r_min = {self.r_min!r} the value floor is minus infinity.",
                do="Use a gamma below 1 (0.999, say), or r_min=0.",
            )

    @property
    def floor(self) -> float:
        """The value of a state in which no action is supported."""
        return 0.0 if self.gamma == 1 else float(self.r_min / (1 - self.gamma))

    def _plan(self, model: Model) -> Floats:
        """The best supported action of each state; uniform where no action is supported."""
        supported = model.n / max(int(model.n.sum()), 1) >= self.b
        choice, _, _ = best_choices(known_mdp(model, self.gamma), supported, self.floor)
        return one_hot(choice, np.any(supported, axis=1), model.n.shape[1])
