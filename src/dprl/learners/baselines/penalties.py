r"""Rivals that plan as if what was seen seldom were worse: by penalties, or worth the least.

    RaMDP   r̃(s,a) = R̂(s,a) - κ / sqrt(n(s,a))
    MOPO    r̃(s,a) = R̂(s,a) - λ u(s,a)
    R-MIN   V(s) = max( r_min/(1-γ),  max over a with n(s,a) >= n_min of  R̂(s,a) + γ ∑ P̂ V )

* Petrik, Ghavamzadeh, Chow: *Safe Policy Improvement by Minimizing Robust Baseline Regret*, NeurIPS
  2016, reward-adjusted MDPs. Kim, Oh: *Model-based Offline Reinforcement Learning with Count-based
  Conservatism*, ICML 2023 (Count-MORL), is the same in tables, where nothing has to be hashed: its
  β is κ.
* Yu, Thomas, Yu, Ermon, Zou, Levine, Finn, Ma: *MOPO: Model-based Offline Policy Optimization*,
  NeurIPS 2020. u is the disagreement of K models. In tables a model is a draw from the posterior of
  the chances of what follows (Dirichlet, a prior of 1 in all), and u its largest distance from P̂ in
  L1 times the scale of values.
* R-MIN is R-MAX (Brafman and Tennenholtz, JMLR 2002) turned round; Scholl, Dietrich, Otte, Udluft
  (*Safe Policy Improvement Approaches on Discrete Markov Decision Processes*, ICAART 2022) compare
  it.

n counts every visit. Only seen actions may be chosen; uniform in states that were never visited.
Where R-MIN would rather give up, the most usual action is taken. Policy iteration is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_n_min, check_number, check_seed, check_whole
from dprl.errors import ParameterError
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import best_choices, best_or_floor, known_mdp, one_hot
from dprl.planning.model import Model


def penalised(model: Model, penalty: Floats) -> Floats:
    """π (S, A), the best in the model with this taken off the rewards of seen pairs."""
    R = np.where(model.seen, model.mdp.R - penalty, 0.0)
    choice, _, _ = best_choices(replace(model.mdp, low=R, high=R), model.seen)
    return one_hot(choice, model.visited, model.n.shape[1])


@dataclass(frozen=True, kw_only=True)
class RaMDP(TabularBaseline):
    """Reward-adjusted MDPs for labelled states; in tables also Count-MORL.

    Attributes:
        gamma: Discount in (0, 1].
        kappa: What is taken off the reward of a pair that was seen once, at least 0, in units of
            rewards.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import RaMDP
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = RaMDP(gamma=0.95, kappa=0.5).fit(problem.sample(100, seed=0))
        >>> problem.value(policy) > problem.value()
        True
    """

    gamma: float
    kappa: float
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("kappa", self.kappa, "[0, infinity)")

    def _plan(self, model: Model) -> Floats:
        return penalised(model, self.kappa / np.sqrt(np.maximum(model.n, 1)))


@dataclass(frozen=True, kw_only=True)
class MOPO(TabularBaseline):
    """MOPO in tables: penalties by how far models that the log allows disagree.

    Attributes:
        gamma: Discount in (0, 1].
        lam: How many times the disagreement is taken off, at least 0. Default 0.1.
        models: How many models are drawn, at least 1. Default 5.
        seed: Seed of the models. Default 0.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import MOPO
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = MOPO(gamma=0.95).fit(problem.sample(100, seed=0))
        >>> problem.value(policy) > problem.value()
        True
    """

    gamma: float
    lam: float = 0.1
    models: int = 5
    seed: int = 0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("lam", self.lam, "[0, infinity)")
        check_whole("models", self.models, 1)
        check_seed(self.seed)

    def _plan(self, model: Model) -> Floats:
        V = model.mdp.state_values()[model.visited]
        scale = max(float(np.ptp(V)), float(np.abs(V).max()))
        return penalised(model, self.lam * scale * self.disagreement(model))

    def disagreement(self, model: Model) -> Floats:
        """How far the models drawn are from the estimated one at most, in L1.

        Args:
            model: The maximum-likelihood model of a log with S states and A actions.

        Returns:
            float64 (S, A), from 0 to 2.

        Example:
            >>> from dprl.baselines import MOPO
            >>> from dprl.envs import random_mdp
            >>> from dprl.planning import estimate
            >>> model = estimate(random_mdp(0).sample(100, seed=0), gamma=0.95)
            >>> MOPO(gamma=0.95).disagreement(model).shape
            (30, 4)
        """
        P, n = model.mdp.P, model.n.ravel()
        rows = np.repeat(np.arange(len(n)), np.diff(P.indptr))
        end = np.maximum(1 - P.sum(axis=1), 0.0)
        rng, most = np.random.default_rng(self.seed), np.zeros(len(n))
        for _ in range(self.models):
            seen, ended = rng.standard_gamma(P.data * n[rows]), rng.standard_gamma(end * n)
            elsewhere = rng.standard_gamma(np.ones(len(n)))  # the prior: what was not seen yet
            total = np.bincount(rows, seen, len(n)) + ended + elsewhere
            apart = np.bincount(rows, np.abs(seen / total[rows] - P.data), len(n))
            most = np.maximum(most, apart + np.abs(ended / total - end) + elsewhere / total)
        return most.reshape(model.n.shape)


@dataclass(frozen=True, kw_only=True)
class RMin(TabularBaseline):
    """R-MIN for labelled states: a pair seen too seldom is worth the least there can be.

    Attributes:
        n_min: The number of visits from which on a pair is known: a whole number >= 1, or infinity.
        gamma: Discount in (0, 1].
        r_min: The smallest possible reward; what is unknown is worth r_min/(1-γ). Default 0.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import RMin
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = RMin(n_min=5, gamma=0.95).fit(problem.sample(100, seed=0))
        >>> problem.value(policy) > problem.value()
        True
    """

    n_min: float
    gamma: float
    r_min: float = 0.0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_n_min(self.n_min)
        check_number("r_min", self.r_min, "(-infinity, infinity)")
        if self.gamma == 1 and self.r_min != 0:
            raise ParameterError(
                f"with gamma = 1 and r_min = {self.r_min!r} what is unknown has no value.",
                do="Use a gamma below 1 (0.999, say), or r_min=0.",
            )

    def _plan(self, model: Model) -> Floats:
        mdp = known_mdp(model, self.gamma)
        floor = 0.0 if self.gamma == 1 else float(self.r_min / (1 - self.gamma))
        known = model.n >= self.n_min
        choice, _ = best_or_floor(mdp, mdp.R, known, floor, mdp.state_values())
        choice = np.where(choice < 0, model.n.argmax(axis=1), choice)
        return one_hot(choice, model.visited, model.n.shape[1])
