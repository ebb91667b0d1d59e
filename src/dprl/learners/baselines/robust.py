r"""Rivals that plan with what they do not know: the worst of all likely MDPs, or less a deviation.

**Robust MDP.** For each pair the worst of all distributions within an L1 ball about P̂:

    q(s,a) = R̂(s,a) + γ min { P·V : |P - P̂(s,a)|₁ <= e(s,a) }
    e(s,a) = c sqrt( 2 ( ln(S A / δ) + S ln 2 ) / n(s,a) ),  at most 2

(Iyengar 2005, Nilim and El Ghaoui 2005, with Weissman's radius).

**MBIE** (Strehl and Littman: *An Analysis of Model-Based Interval Estimation for MDPs*, JCSS 2008)
plans with an end of such intervals, of rewards too; there the best one, to explore, here the worst:

    R(s,a) = R̂(s,a) - c (r_max - r_min) sqrt( ln(2/δ') / (2 n) )
    e(s,a) = c sqrt( 2 ( ln(2^(S+1) - 2) - ln δ' ) / n ),  at most 2,      δ' = δ / (2 S A)

**DUIPI** (Schneegass, Hans, Udluft: *Uncertainty in Reinforcement Learning*, 2010) carries the
variances of P̂ along the Bellman equation, as if errors were independent, and maximises Q - ξ σ(Q):

    σ²V(s)   = ∑_a π(a|s)² σ²Q(s,a)
    σ²Q(s,a) = ∑_s' (γ P̂)² σ²V(s') + ∑_s' (R̂ + γ V(s'))² σ²P̂(s')
    π        ← 1/t of the way to the best action, in round t

P̂ and its variance P̂(1-P̂)/(n-1), at most 1/4, are frequentist; or those of a Dirichlet posterior
with a prior of α on every state. Mean rewards count as known, as in Scholl et al. (ICAART 2022).

n counts every visit, an ending is one more state with value 0. Only seen actions may be chosen;
uniform in states that were never visited. Values are iterated; with γ = 1 they may not settle,
which raises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_flag, check_number
from dprl.errors import ParameterError, PlanError
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import known_mdp, lowest_best, margin, one_hot
from dprl.planning.model import Model

SWEEPS, ROUNDS, CLOSE = 50_000, 5_000, 1e-10
DENSE = 2_000_000
"""Chances of a next state that DUIPI keeps at most."""


@dataclass(frozen=True, kw_only=True)
class RobustMDP(TabularBaseline):
    """The best policy against the worst MDP that the log allows, for labelled states.

    Attributes:
        gamma: Discount in (0, 1].
        delta: The δ of the radius, in (0, 1]. Default 0.05.
        c: How many times the radius is taken, at least 0; with 0 it is `RL`. Default 1.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import RobustMDP
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = RobustMDP(gamma=0.95, c=0.1).fit(problem.sample(100, seed=0))
        >>> problem.value(policy) > problem.value()
        True
    """

    gamma: float
    delta: float = 0.05
    c: float = 1.0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("delta", self.delta, "(0, 1]")
        check_number("c", self.c, "[0, infinity)")

    def _plan(self, model: Model) -> Floats:
        mdp = known_mdp(model, self.gamma)
        S, A = model.n.shape
        penalty, nats = self._intervals(model)
        e = np.minimum(self.c * np.sqrt(2 * nats / np.maximum(model.n, 1)), 2.0).ravel()
        P, V = mdp.P, np.zeros(S)
        rows = np.repeat(np.arange(S * A), np.diff(P.indptr))
        end = np.maximum(1 - P.sum(axis=1), 0.0)
        # The END of every pair comes after its successors, as one more with value 0.
        of = np.concatenate((rows, np.arange(S * A)))
        chance = np.concatenate((P.data, end))
        for _ in range(SWEEPS):
            ahead = np.concatenate((V[P.indices], np.zeros(S * A)))
            order = np.lexsort((-ahead, of))  # within each pair the best successors first
            p, v, pair = chance[order], ahead[order], of[order]
            total = np.cumsum(p) - p
            first = np.concatenate(([0], np.flatnonzero(np.diff(pair)) + 1))
            before = total - np.repeat(total[first], np.diff(np.append(first, len(pair))))
            taken = np.clip(e[pair] / 2 - before, 0.0, p)
            loss = np.bincount(pair, taken * (v - min(V.min(), 0.0)), S * A)
            Q = mdp.action_values(V) - penalty - self.gamma * loss.reshape(S, A)
            new = np.where(model.visited, np.where(model.seen, Q, -np.inf).max(axis=1), 0.0)
            if np.abs(new - V).max() <= CLOSE * max(float(np.abs(new).max()), 1.0):
                choice = lowest_best(Q, model.seen, max(margin(V), CLOSE))
                return one_hot(choice, model.visited, A)
            V = new
        raise PlanError("robust values did not settle.", do="Use a smaller gamma.")

    def _intervals(self, model: Model) -> tuple[Floats, float]:
        """What is taken off rewards, (S, A); and -ln of the level behind the radius e."""
        S, A = model.n.shape
        return np.zeros((S, A)), math.log(S * A / self.delta) + S * math.log(2)


@dataclass(frozen=True, kw_only=True)
class MBIE(RobustMDP):
    """Model-based interval estimation, turned to the careful side, for labelled states.

    Attributes:
        gamma: Discount in (0, 1].
        delta: The δ of all intervals together, in (0, 1]. Default 0.05.
        c: How many times their widths are taken, at least 0; with 0 it is `RL`. Default 1.
        span: The largest possible reward less the smallest, at least 0. Default None: of the mean
            rewards that were seen.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import MBIE
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = MBIE(gamma=0.95, c=0.1).fit(problem.sample(100, seed=0))
        >>> problem.value(policy) > problem.value()
        True
    """

    span: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.span is not None:
            check_number("span", self.span, "[0, infinity)")

    def _intervals(self, model: Model) -> tuple[Floats, float]:
        S, A = model.n.shape
        level = math.log(2 * S * A / self.delta)
        span = np.ptp(model.mdp.R[model.seen]) if self.span is None else self.span
        penalty = self.c * span * np.sqrt((math.log(2) + level) / (2 * np.maximum(model.n, 1)))
        return penalty, (S + 1) * math.log(2) + math.log1p(-(2.0**-S)) + level


@dataclass(frozen=True, kw_only=True)
class DUIPI(TabularBaseline):
    """Values less their own uncertainty, carried along the Bellman equation, for labelled states.

    Attributes:
        gamma: Discount in (0, 1].
        xi: How many standard deviations are taken off. Default 0.5.
        bayesian: Whether chances and variances are those of a posterior. Default False.
        alpha: Prior of every next state, above 0; for `bayesian`. Default 0.1.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import DUIPI
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = DUIPI(gamma=0.95, xi=0.1).fit(problem.sample(200, seed=0))
        >>> problem.value(policy) > problem.value()
        True
    """

    gamma: float
    xi: float = 0.5
    bayesian: bool = False
    alpha: float = 0.1
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("xi", self.xi, "(-infinity, infinity)")
        check_flag("bayesian", self.bayesian)
        check_number("alpha", self.alpha, "(0, infinity)")

    def _chances(self, model: Model) -> tuple[Floats, Floats]:
        """P̂ and its variance, (S·A, S + 1): the last column is END."""
        n = model.n.reshape(-1, 1)
        P = model.mdp.P.toarray()
        P = np.column_stack((P, np.where(n[:, 0] > 0, np.maximum(1 - P.sum(axis=1), 0), 0.0)))
        if self.bayesian:
            a = P * n + self.alpha
            total = a.sum(axis=1, keepdims=True)
            return a / total, a * (total - a) / (total**2 * (total + 1))
        return P, np.where(n > 1, np.minimum(P * (1 - P) / np.maximum(n - 1, 1), 0.25), 0.25)

    def _plan(self, model: Model) -> Floats:
        mdp = known_mdp(model, self.gamma)
        S, A = model.n.shape
        if S * A * (S + 1) > DENSE:
            raise ParameterError(
                f"{S:,} states x {A:,} actions are too many for DUIPI, which keeps all chances.",
                do=f"It takes {DENSE:,} chances of a next state at most.",
            )
        P, spread = self._chances(model)
        R, seen = mdp.R.ravel()[:, None], model.seen
        squared = P[:, :S] ** 2
        Q, var = np.zeros((S, A)), np.zeros((S, A))
        pi = np.full((S, A), 1 / A)
        for t in range(1, ROUNDS + 1):
            V = (pi * Q).sum(axis=1)
            y = R + self.gamma * np.append(V, 0.0)
            new = (P * y).sum(axis=1).reshape(S, A)
            var = (self.gamma**2 * squared @ (pi**2 * var).sum(axis=1)) + (y**2 * spread).sum(
                axis=1
            )
            var = np.minimum(var, 1e200).reshape(S, A)
            change, Q = float(np.abs(new - Q).max()), new
            best = lowest_best(Q - self.xi * np.sqrt(var), seen, 0.0)
            step = one_hot(best, model.visited, A) - pi
            pi = pi + step / t
            if t > 50 and change <= 1e-7 * max(float(np.abs(Q).max()), 1.0):
                break
        pi /= pi.sum(axis=1, keepdims=True)
        return np.asarray(np.where(model.visited[:, None], pi, 1 / A))
