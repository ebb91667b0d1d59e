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

Scholl, Dietrich, Otte, Udluft (*Safe Policy Improvement Approaches on Discrete Markov Decision
Processes*, ICAART 2022) have two variants:

* Lower (`limit="raised"`): only what an action gains is paid for, ∑_a e(s,a) max(0, π - π_b) <= ε.
* Advantageous (`advantageous=True`): also ∑_a Q̂_b(s,a) (π - π_b) >= 0 in every state, with Q̂_b the
  values of π_b (here in the model, there mean returns). The approximate step keeps an account of
  it: a transfer that lowers it must find something there. The exact one is a linear programme.

Here as there mass never moves to pairs that were not seen; here it does not leave them either.

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
from dprl._core.checks import Cut, check_choice, check_flag, check_number
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
        limit: "both" (the default): what is taken from an action and what is given to one is paid
            for; "raised": only what is given (Lower-Soft-SPIBB).
        advantageous: Whether every state must also gain at the values of the behaviour
            (Advantageous Soft-SPIBB). Default False.
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
    limit: Literal["both", "raised"] = "both"
    advantageous: bool = False
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("epsilon", self.epsilon, "[0, infinity)")
        check_number("delta", self.delta, "(0, 1]")
        check_choice(
            "step", self.step, ("approximate", "exact", "published"),
            do="'approximate' and 'exact' keep to the budget, 'published' may not.",
        )  # fmt: skip
        check_choice("limit", self.limit, ("both", "raised"))
        check_flag("advantageous", self.advantageous)

    def _plan(self, model: Model) -> Floats:
        """The best policy of the model that the budgets permit."""
        pi_b = behavior_of(model, self.behavior)
        e, epsilon = doubt(model, self.delta), float(self.epsilon)
        mdp = known_mdp(model, self.gamma)
        giving, Qb = np.zeros_like(e) if self.limit == "raised" else e, np.zeros_like(e)
        if self.advantageous:
            Qb = np.where(model.seen, mdp.action_values(mdp.state_values(pi_b)), 0.0)
        if self.step == "exact" and self.advantageous:
            return improve(mdp, pi_b, lambda Q: _programme(Q, Qb, pi_b, giving, e, epsilon))
        if self.step == "exact":
            return improve(mdp, pi_b, lambda Q: _exact(Q, pi_b, giving, e, epsilon))
        stop, half = self.step == "approximate", 1.0 if self.limit == "raised" else 2.0
        return improve(
            mdp, pi_b, lambda Q: _approximate(Q, Qb, pi_b, giving, e, epsilon, half, stop)
        )


def doubt(model: Model, delta: float) -> Floats:
    """The uncertainty e(s,a) (S, A), infinite for a pair that was never seen."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.sqrt(2 * math.log(2 * model.n.size / delta) / model.n))


@compiled
def _approximate(
    Q: Floats, Qb: Floats, pi_b: Floats, giving: Floats, e: Floats, epsilon: float, half: float,
    stop: bool,
) -> Floats:  # pragma: no cover - compiled  # fmt: skip
    """The paper's greedy step, all (S, A); with `stop` no transfer spends more than is left.

    A unit that an action gives costs `giving`; each side may spend left / half at once. Transfers
    keep ∑ Qb (π - π_b) from 0 on.
    """
    S, A = Q.shape
    pi = pi_b.copy()
    ratio = np.empty(A)  # what a unit of mass brings, over the receiver's doubt
    for s in range(S):
        left, account = epsilon, 0.0
        for i in np.argsort(Q[s], kind="mergesort"):
            mine = pi[s, i] if np.isfinite(e[s, i]) else 0.0
            if giving[s, i] > 0:
                mine = min(mine, left / (half * giving[s, i]))
            if mine <= 0:
                continue
            for j in range(A):
                ratio[j] = (Q[s, j] - Q[s, i]) / e[s, j]
            for j in np.argsort(-ratio, kind="mergesort"):
                if ratio[j] <= 0 or mine <= 0 or left <= 0:
                    break
                mass = min(mine, left / (half * e[s, j]))
                if stop:
                    mass = min(mass, left / (giving[s, i] + e[s, j]))
                brings = Qb[s, j] - Qb[s, i]
                if brings < 0:
                    mass = min(mass, account / -brings)
                account = max(account + mass * brings, 0.0)
                mine -= mass
                pi[s, i] -= mass
                pi[s, j] += mass
                left -= mass * (giving[s, i] + e[s, j])
    return np.maximum(pi, 0.0)


@compiled
def _exact(
    Q: Floats, pi_b: Floats, giving: Floats, e: Floats, epsilon: float
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
                offer[i], price[i] = _next_offer(Q[s], giving[s], e[s], i, i)
        while left > 0:
            i = int(np.argmax(price))
            if price[i] <= 0:
                break
            to = offer[i]
            # Mass that has left its owner is paid for; going on from there costs the difference.
            unit = e[s, to] + (giving[s, i] if at[i] == i else -e[s, at[i]])
            mass = min(pi_b[s, i], left / unit)
            pi[s, at[i]] -= mass
            pi[s, to] += mass
            left -= mass * unit
            if mass < pi_b[s, i]:
                break
            at[i] = to
            offer[i], price[i] = _next_offer(Q[s], giving[s], e[s], i, to)
    return np.maximum(pi, 0.0)


@compiled
def _next_offer(
    Q: Floats, giving: Floats, e: Floats, i: int, at: int
) -> tuple[int, float]:  # pragma: no cover - compiled
    """The steepest way up from where donor i's mass lies, and its slope; slope 0 if there is none.

    That is the next edge of the upper hull of (-giving_i, Q_i) and all (e_j, Q_j); of several
    points on one edge the nearest comes first.
    """
    x = -giving[i] if at == i else e[at]
    to, best = -1, 0.0
    for j in range(len(Q)):
        if np.isfinite(e[j]) and e[j] > x and Q[j] > Q[at]:
            slope = (Q[j] - Q[at]) / (e[j] - x)
            if slope > best or (slope == best and to >= 0 and e[j] < e[to]):
                to, best = j, slope
    return to, best


def _programme(
    Q: Floats, Qb: Floats, pi_b: Floats, giving: Floats, e: Floats, epsilon: float
) -> Floats:
    """max ∑ π Q within the budget of every state that also gains at the values Qb, all (S, A)."""
    from scipy.optimize import linprog

    pi = pi_b.copy()
    for s in np.flatnonzero(np.isfinite(e).any(axis=1)):
        own = np.flatnonzero(np.isfinite(e[s]))
        q, b = Q[s, own], Qb[s, own]
        found = linprog(  # π = π_b + raised - lowered
            np.concatenate((-q, q)),
            A_ub=[np.concatenate((e[s, own], giving[s, own])), np.concatenate((-b, b))],
            b_ub=[epsilon, 0.0],
            A_eq=[np.concatenate((np.ones(len(own)), -np.ones(len(own))))],
            b_eq=[0.0],
            bounds=[(0, None)] * len(own) + [(0, p) for p in pi_b[s, own]],
        )
        if found.status == 0 and found.fun < 0:
            raised, lowered = found.x.reshape(2, -1)
            new = np.maximum(pi_b[s, own] + raised - lowered, 0.0)
            pi[s, own] = new * (pi_b[s, own].sum() / new.sum())
    return pi
