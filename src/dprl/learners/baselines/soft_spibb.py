r"""SPIBB with soft baseline bootstrapping: change as much as the doubt about each action permits.

Nadjahi, Laroche, Tachet des Combes: *Safe Policy Improvement with Soft Baseline Bootstrapping*,
ECML 2019. The best policy of the maximum-likelihood MDP whose distance from the behaviour π_b,
weighed by what is not known of each action, stays within a budget in every state:

    ∑_a e(s,a) |π(a|s) - π_b(a|s)| <= ε        e(s,a) = sqrt( 2 ln(2|S||A|/δ) / n(s,a) )

n counts every visit; where n = 0, e is infinite and mass moves neither there nor away.

Moving a unit of mass from i to j brings Q_j - Q_i and costs e_i + e_j. The greedy step is

* exact: a linear programme with one budget. Put donors at (-e_i, Q_i) and receivers at (e_j, Q_j):
  a donor spends on the upper hull of (itself, receivers), whose edges are its offers, each with a
  price (the λ of the budget) no better than the one before. Taking offers from the best price down
  until the budget is met, the last in part, is the optimum (Sinha and Zoltners 1979).
* approximate (the paper's): donors i from the worst Q up. A donor may give min(π_i, E/(2 e_i)): E
  is what is left of the budget, and π_i all it holds by then, received mass included. It gives to
  the better actions j in order of (Q_j - Q_i)/e_j, to each what it may still give but at most
  E/(2 e_j), and every unit of mass takes e_i + e_j from E: half of the budget is for each side.

Departures from the paper:

* The paper limits a donor once, before it gives. A donor with e_i < e_j that goes on to a second
  receiver can then spend more than is left, and the step is outside its own constraint: with
  Q = (0, 10, 1), e = (1, 2, .5), π_b = (.9, .05, .05) and ε = .8 it costs .9. Here no transfer
  spends more than E, so that the constraint holds; where the paper's step keeps to E, ours is the
  same. step="published" is the paper's to the letter, to compare with the authors' results.
* Mass never moves between actions of equal Q (the paper leaves open how equals are sorted).
* Policy iteration starts at π_b and a state moves only where the step is strictly better than what
  it has: the approximate step is no maximum, and could otherwise go round in circles.
* States that were never visited keep a behaviour that is given; π̂_b is uniform there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_choice, check_number
from dprl._core.compiled import compiled
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import improve, known_mdp
from dprl.planning.model import Model, behavior_of


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftSPIBB(TabularBaseline):
    """Soft-SPIBB for labelled states.

    Attributes:
        epsilon: The budget ε of every state, at least 0.
        gamma: Discount in (0, 1].
        delta: The δ in the uncertainty of a pair, in (0, 1]. Default 0.05; the authors use 1.
        step: "approximate" (the default) is the paper's greedy step, stopped where the budget ends;
            "exact" solves the linear programme; "published" is the paper's greedy step to the
            letter, which may exceed the budget.
        behavior: float64 (S, A), π_b if it is known, in the order of log.states and log.actions.
            Default None: it is estimated from the log.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import SoftSPIBB
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = SoftSPIBB(epsilon=0.5, gamma=1.0).fit(problem.sample(1_000, seed=0))
        >>> round(problem.value(policy), 3)
        0.632
    """

    epsilon: float
    gamma: float
    delta: float = 0.05
    step: Literal["approximate", "exact", "published"] = "approximate"
    behavior: Floats | None = None
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("epsilon", self.epsilon, "[0, infinity)")
        check_number("delta", self.delta, "(0, 1]")
        check_choice(
            "step", self.step, ("approximate", "exact", "published"),
            do="'approximate' and 'exact' keep to the budget, 'published' may not.",
        )  # fmt: skip

    def plan(self, model: Model) -> Floats:
        """The best policy of the model that the budgets permit.

        Args:
            model: The maximum-likelihood model of a log with S states and A actions.

        Returns:
            π(a|s), float64 (S, A).

        Example:
            >>> from dprl.baselines import SoftSPIBB
            >>> from dprl.envs import risky_arms
            >>> from dprl.planning import estimate
            >>> model = estimate(risky_arms().sample(1_000, seed=0), gamma=1.0)
            >>> SoftSPIBB(epsilon=0.5, gamma=1.0).plan(model).shape
            (11, 10)
        """
        pi_b = behavior_of(model, self.behavior)
        e, epsilon = doubt(model, self.delta), float(self.epsilon)
        mdp = known_mdp(model, self.gamma)
        if self.step == "exact":
            return improve(mdp, pi_b, lambda Q: _exact(Q, pi_b, e, epsilon))
        stop = self.step == "approximate"
        return improve(mdp, pi_b, lambda Q: _approximate(Q, pi_b, e, epsilon, stop))


def doubt(model: Model, delta: float) -> Floats:
    """The uncertainty e(s,a) (S, A), infinite for a pair that was never seen."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.sqrt(2 * math.log(2 * model.n.size / delta) / model.n))


@compiled
def _approximate(
    Q: Floats, pi_b: Floats, e: Floats, epsilon: float, stop: bool
) -> Floats:  # pragma: no cover - compiled
    """The paper's greedy step, all (S, A); with `stop` no transfer spends more than is left."""
    S, A = Q.shape
    pi = pi_b.copy()
    ratio = np.empty(A)  # what a unit of mass brings, over the receiver's doubt
    for s in range(S):
        left = epsilon
        for i in np.argsort(Q[s], kind="mergesort"):
            mine = min(pi[s, i], left / (2 * e[s, i]))  # 0 where i was never seen
            if mine <= 0:
                continue
            for j in range(A):
                ratio[j] = (Q[s, j] - Q[s, i]) / e[s, j]
            for j in np.argsort(-ratio, kind="mergesort"):
                if ratio[j] <= 0 or mine <= 0 or left <= 0:
                    break
                mass = min(mine, left / (2 * e[s, j]))
                if stop:
                    mass = min(mass, left / (e[s, i] + e[s, j]))
                mine -= mass
                pi[s, i] -= mass
                pi[s, j] += mass
                left -= mass * (e[s, i] + e[s, j])
    return np.maximum(pi, 0.0)


@compiled
def _exact(
    Q: Floats, pi_b: Floats, e: Floats, epsilon: float
) -> Floats:  # pragma: no cover - compiled
    """max ∑ π Q within the budget of every state, all (S, A)."""
    S, A = Q.shape
    pi = pi_b.copy()
    at = np.empty(A, np.int64)  # where each donor's mass lies by now
    offer = np.empty(A, np.int64)  # where it would go next
    price = np.empty(A)  # what a unit of budget spent there brings
    for s in range(S):
        left = epsilon
        for i in range(A):
            at[i], price[i] = i, 0.0
            if pi_b[s, i] > 0 and np.isfinite(e[s, i]):
                offer[i], price[i] = _next_offer(Q[s], e[s], i, i)
        while left > 0:
            i = int(np.argmax(price))
            if price[i] <= 0:
                break
            to = offer[i]
            # Mass that has left its owner is paid for; going on from there costs the difference.
            unit = e[s, to] + (e[s, i] if at[i] == i else -e[s, at[i]])
            mass = min(pi_b[s, i], left / unit)
            pi[s, at[i]] -= mass
            pi[s, to] += mass
            left -= mass * unit
            if mass < pi_b[s, i]:
                break
            at[i] = to
            offer[i], price[i] = _next_offer(Q[s], e[s], i, to)
    return np.maximum(pi, 0.0)


@compiled
def _next_offer(
    Q: Floats, e: Floats, i: int, at: int
) -> tuple[int, float]:  # pragma: no cover - compiled
    """The steepest way up from where donor i's mass lies, and its slope; slope 0 if there is none.

    That is the next edge of the upper hull of (-e_i, Q_i) and all (e_j, Q_j); of several points on
    one edge the nearest comes first.
    """
    x = -e[i] if at == i else e[at]
    to, best = -1, 0.0
    for j in range(len(Q)):
        if np.isfinite(e[j]) and e[j] > x and Q[j] > Q[at]:
            slope = (Q[j] - Q[at]) / (e[j] - x)
            if slope > best or (slope == best and to >= 0 and e[j] < e[to]):
                to, best = j, slope
    return to, best
