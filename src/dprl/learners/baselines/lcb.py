r"""Pessimistic value iteration: plan with a lower confidence bound of every reward.

Rashidinejad, Zhu, Ma, Jiao, Russell: *Bridging Offline Reinforcement Learning and Imitation
Learning*, NeurIPS 2021 (VI-LCB); Jin, Yang, Wang: *Is Pessimism Provably Efficient for Offline
RL?*, ICML 2021 (PEVI):

    p(s,a) = c σ sqrt( ln(2|S||A|/δ) / (2 n(s,a)) )
    V(s)   = max over seen a of  max( R̂(s,a) - p(s,a) + γ ∑_s' P̂(s'|s,a) V(s'),  v_min )
    π(s)   = the action that attains it

n counts every visit. σ is the scale of values: the larger of the range and the size of V̂ of usual
practice. v_min = min(0, smallest of these values). Where every action is worth v_min the one with
the smallest penalty is taken, the most usual one.

Departures from the papers, which take c as what a proof needs and rewards in [0, 1]: c is a
setting, the scale is taken from the log, and the fixed point is found by exact policy iteration
(with giving up for v_min as one more choice) instead of by iterating values. Uniform in states that
were never visited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_number
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import best_or_floor, known_mdp, one_hot
from dprl.planning.model import Model


@dataclass(frozen=True, kw_only=True)
class LCB(TabularBaseline):
    """Pessimistic value iteration for labelled states.

    Attributes:
        gamma: Discount in (0, 1].
        c: How many times the penalty of a bound is taken off, at least 0. Default 0.1.
        delta: The δ of the bound, in (0, 1]. Default 0.05.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import LCB
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = LCB(gamma=0.95, c=0.2).fit(problem.sample(100, seed=0))
        >>> round(problem.value(policy), 2)  # usual practice: 3.0
        4.65
    """

    gamma: float
    c: float = 0.1
    delta: float = 0.05
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("c", self.c, "[0, infinity)")
        check_number("delta", self.delta, "(0, 1]")

    def _plan(self, model: Model) -> Floats:
        """The best policy of the model with penalised rewards."""
        mdp = known_mdp(model, self.gamma)
        usual = model.usual
        V = usual[model.visited]
        scale = max(float(np.ptp(V)), float(np.abs(V).max()))
        n = np.maximum(model.n, 1)
        penalty = self.c * scale * np.sqrt(np.log(2 * n.size / self.delta) / (2 * n))
        R = np.where(model.seen, mdp.R - penalty, 0.0)
        choice, _ = best_or_floor(mdp, R, model.seen, min(0.0, float(V.min())), usual)
        choice = np.where(choice < 0, model.n.argmax(axis=1), choice)
        return one_hot(choice, model.visited, model.n.shape[1])
