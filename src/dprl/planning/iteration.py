r"""Exact policy iteration, over decision points, pairs of an MDP or permitted distributions.

    V = R_π + D_π V       evaluate, exactly (sparse)
    q = R + D V           look one decision ahead
    π ← the best in q     improve, where that is better by more than 1e-10 of its size

(Howard: *Dynamic Programming and Markov Processes*, 1960.) One loop, `iterate`, serves all:

* `policy_iteration` over the elevated semi-MDP (the paper's Algorithm 1, lines 6 and on). It starts
  at argmax Q̂ over allowed actions. Any policy made of allowed actions keeps the guarantee, so the
  planner may choose freely among them.
* `best_choices` over the pairs of an MDP that a learner may choose from; `FiniteMDP.optimal` is
  this with every pair.
* `improve` over distributions, for learners that stay near the behaviour.
* `dprl.planning.sure_iteration` among actions that are surely better.

The size is that of the terms q is made of, |R| + D|V|: multiplying all rewards by a positive number
changes no choice, and a huge value somewhere hides no improvement elsewhere. A gain that is small
beside other values must also exceed what rounding elsewhere could have brought about
(`dprl._core.linear.doubt`), or the loop might never end. Equals go to the lowest action.

With γ = 1 a policy may circle for ever, and so may the start although every trajectory ended (only
first occurrences are counted). Circling that earns nothing is worth 0 (see `dprl._core.linear`),
circling that earns something has no value and raises. A strict improvement on a policy that ends
ends too, unless it circles at a profit, so it is enough to start from policies that end and to
break ties only among actions that still do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.linear import Matrix, compact, doubt, leaks, solve
from dprl._core.words import worded
from dprl.errors import ParameterError, PlanError
from dprl.evidence.decision_points import best_rows

if TYPE_CHECKING:
    from dprl.planning.finite_mdp import FiniteMDP
    from dprl.planning.model import Model
    from dprl.planning.semi_mdp import SemiMDP


P = TypeVar("P", bound=NDArray[np.generic])
E = TypeVar("E")

BETTER, CLOSE = 1e-10, 1e-6
ROUNDS = 1_000


class Rows(Protocol):
    """What there is to choose from; a `SemiMDP` is one.

    Attributes:
        first: int64 (n + 1,), rows first[i]:first[i + 1] are the choices at place i.
        R: float64 (rows,), the reward of each choice until the next place.
        D: (rows, n), the discounted chance that it leads to each place.
    """

    @property
    def first(self) -> Ints: ...
    @property
    def R(self) -> Floats: ...
    @property
    def D(self) -> Matrix: ...


@dataclass(frozen=True, eq=False)
class Plan:
    """A settled plan.

    Attributes:
        rows: int64 (P,), the chosen row of the semi-MDP at each decision point.
        V: float64 (P,), value of the plan at each decision point.
        q: float64 (rows,), value of each allowed action now and the plan afterwards.
        rounds: How many improvements it took.
    """

    rows: Ints
    V: Floats
    q: Floats
    rounds: int


def iterate(
    policy: P,
    evaluate: Callable[[P], E],
    look_ahead: Callable[[E], Floats],
    step: Callable[[P, E, Floats], tuple[P, Bools]],
    advice: str,
) -> tuple[P, E, Floats, int]:
    """The loop: evaluate, look ahead, improve, until nothing is better.

    Args:
        policy: Where it starts: an array whose first axis is the places.
        evaluate: What a policy is worth: V (n,), or V with what is known of its errors.
        look_ahead: q of every choice, from that.
        step: From a policy, its worth and q: the best policy in q, and where it is better by a
            margin.
        advice: What to do if it does not settle.

    Returns:
        The settled policy, its worth and q, and how many improvements it took.
    """
    for rounds in range(ROUNDS):
        V = evaluate(policy)
        q = look_ahead(V)
        best, better = step(policy, V, q)
        if not better.any():
            return policy, V, q, rounds
        policy = policy.copy()
        policy[better] = best[better]
    raise PlanError(
        f"policy iteration did not settle in {ROUNDS:,} rounds over {len(policy):,} states.",
        do=advice,
    )


# -- a choice of rows ------------------------------------------------------------------------------


def evaluate(semi: Rows, rows: Ints) -> Floats:
    """V = R_π + D_π V at every place, for the policy that chose `rows`."""
    return solve(semi.D[rows], semi.R[rows], quick=True)


def look_ahead(semi: Rows, V: Floats) -> Floats:
    """q = R + D V for every row."""
    return np.asarray(semi.R + semi.D @ V)


def _sizes(semi: Rows, V: Floats) -> Floats:
    """The size of the terms each q is made of, (rows,)."""
    return np.asarray(np.abs(semi.R) + semi.D @ np.abs(V))


def _plan(semi: Rows, rows: Ints, advice: str) -> Plan:
    """The best plan that starts from `rows`."""

    def step(rows: Ints, V: Floats, q: Floats) -> tuple[Ints, Bools]:
        best, size = best_rows(q, semi.first), _sizes(semi, V)
        gain, margin = q[best] - q[rows], BETTER * np.maximum(size[best], size[rows])
        better = gain > margin
        if (better & (gain < CLOSE * size.max(initial=0))).any():  # it may be rounding from afar
            far = semi.D @ doubt(semi.D[rows], semi.R[rows], V)
            better = gain > margin + far[best] + far[rows]
        return best, better

    return Plan(
        *iterate(
            rows, lambda rows: evaluate(semi, rows), lambda V: look_ahead(semi, V), step, advice
        )
    )


def _able_to_end(semi: Rows, rows: Ints) -> tuple[Ints, Bools]:
    """`rows`, led towards an end wherever a choice can be; and where they reach one, (n,)."""
    rows = rows.copy()
    ends = leaks(semi.D[rows])
    leak = np.asarray(1 - semi.D.sum(axis=1) > 1e-12)
    while not ends.all():
        onward = leak | (semi.D @ ends.astype(np.float64) > 0)
        first = best_rows(onward.astype(np.float64), semi.first)
        moved = ~ends & onward[first]
        if not moved.any():
            break
        rows[moved] = first[moved]
        ends |= moved
    return rows, ends


def policy_iteration(semi: SemiMDP, Q: Floats) -> Plan:
    """The best plan over allowed actions; Q (rows,) is Q̂ of each row, where it starts."""
    pairs = _Pairs(semi.first, semi.R, compact(semi.D))
    rows, ends = _able_to_end(pairs, best_rows(Q, pairs.first))
    if not ends.all():
        stuck = np.flatnonzero(~ends)
        raise PlanError(
            f"no allowed choice ever leads to an end from {len(stuck):,} of "
            f"{len(ends):,} decision points.",
            f"state {semi.labels[stuck[0]]!r}",
            worded("Use a gamma below 1 (0.999, say), or {plan=False}."),
        ).at(stuck.tolist())
    return _plan(pairs, rows, worded("Use a smaller gamma, or {plan=False}."))


# -- the pairs of an MDP ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Rows as they are; of an MDP its allowed pairs, and one that ends at once where none is."""

    first: Ints
    R: Floats
    D: Matrix


def _ahead(mdp: FiniteMDP, rows: Ints, discount: Floats) -> Matrix:
    """Discounted chances of the next states of some pairs, (rows, S)."""
    D = mdp.P[rows]
    D.data *= np.repeat(discount, np.diff(D.indptr))
    return compact(D)


def best_choices(mdp: FiniteMDP, allowed: Bools, floor: float = 0.0) -> tuple[Ints, Floats, Floats]:
    """The best deterministic policy among allowed pairs, and its values.

    States without an allowed pair are worth `floor`, and their choice is 0.

    Args:
        mdp: The problem.
        allowed: bool (S, A).
        floor: Value of a state where nothing is allowed.

    Returns:
        choice (S,), the lowest action on ties; V (S,); Q (S, A) = R + γ P V of every pair.
    """
    some = np.any(allowed, axis=1)
    offered = allowed.copy()
    offered[~some, 0] = True
    state, action = np.nonzero(offered)
    discount = np.where(some, mdp.gamma, 0.0)[state]
    D = _ahead(mdp, state * allowed.shape[1] + action, discount)
    R = np.where(some[state], mdp.R[state, action], floor)
    pairs = _Pairs(np.concatenate(([0], np.cumsum(offered.sum(axis=1)))), R, D)

    start = best_rows(mdp.action_values(mdp.state_values())[state, action], pairs.first)
    if mdp.gamma == 1:
        start, _ = _able_to_end(pairs, start)
    plan = _plan(pairs, start, "Use a smaller gamma.")
    rows = _lowest_of_equals(pairs, plan)
    if mdp.gamma == 1:
        rows = _still_ending(pairs, plan.rows, rows)
    return action[rows], plan.V, mdp.action_values(plan.V)


def best_or_floor(
    mdp: FiniteMDP, R: Floats, allowed: Bools, floor: float, V: Floats
) -> tuple[Ints, Floats]:
    """The best plan among allowed pairs where every state may also end and be worth `floor`.

        V(s) = max( floor, max over allowed a of R(s,a) + γ ∑_s' P(s'|s,a) V(s') )

    Without discount it is begun with a policy that ends, so that it never circles in vain.

    Args:
        mdp: The problem.
        R: float64 (S, A), rewards in place of its own.
        allowed: bool (S, A).
        floor: What ending is worth.
        V: float64 (S,), values to begin with.

    Returns:
        choice (S,), -1 where ending is best, the lowest action of equals; V (S,).
    """
    S, A = allowed.shape
    state, column = np.nonzero(np.column_stack((np.ones(S, bool), allowed)))
    action = column - 1
    discount = np.where(action < 0, 0.0, mdp.gamma)
    D = _ahead(mdp, state * A + np.maximum(action, 0), discount)
    worth = np.where(action < 0, floor, R[state, action])
    pairs = _Pairs(np.concatenate(([0], np.cumsum(1 + allowed.sum(axis=1)))), worth, D)
    start = best_rows(look_ahead(pairs, V), pairs.first)
    if mdp.gamma == 1:
        start, _ = _able_to_end(pairs, start)
    plan = _plan(pairs, start, "Use a smaller gamma.")
    return action[plan.rows], plan.V


def _lowest_of_equals(pairs: Rows, plan: Plan) -> Ints:
    """The lowest row of each place within the margin of its best, (n,)."""
    begin, count = pairs.first[:-1], np.diff(pairs.first)
    slack = BETTER * np.maximum.reduceat(_sizes(pairs, plan.V), begin)
    top = np.maximum.reduceat(plan.q, begin) - slack
    place = np.where(plan.q >= np.repeat(top, count), np.arange(len(plan.q)), len(plan.q))
    return np.asarray(np.minimum.reduceat(place, begin))


def _still_ending(pairs: Rows, settled: Ints, lowest: Ints) -> Ints:
    """`lowest`, but as `settled` where with γ = 1 the lowest of equals would circle for ever."""
    ends, rows = leaks(pairs.D[settled]), lowest
    while (stuck := ends & ~leaks(pairs.D[rows])).any():
        rows = np.where(stuck, settled, rows)
    return rows


# -- distributions ---------------------------------------------------------------------------------


def improve(mdp: FiniteMDP, pi: Floats, step: Callable[[Floats], Floats]) -> Floats:
    """The best policy that `step` can reach from π (S, A).

    `step(Q)` is the best permitted distribution of every state; states where it brings nothing
    keep what they have, so the start shows through wherever nothing is better.
    """

    def permitted(pi: Floats, V: Floats, Q: Floats) -> tuple[Floats, Bools]:
        best = step(Q)
        size = np.abs(mdp.R) + mdp.gamma * (mdp.P @ np.abs(V)).reshape(mdp.R.shape)
        gain, margin = ((best - pi) * Q).sum(axis=1), BETTER * size.max(axis=1)
        better = gain > margin
        if (better & (gain < CLOSE * size.max(initial=0))).any():
            far = doubt(mdp.moves(pi), (pi * mdp.R).sum(axis=1), V)
            away = mdp.gamma * (mdp.P @ far).reshape(mdp.R.shape).max(axis=1)
            better = gain > margin + 2 * away
        return best, better

    def evaluated(pi: Floats) -> Floats:
        return solve(compact(mdp.moves(pi)), (pi * mdp.R).sum(axis=1))

    advice = "Use a smaller gamma."
    return iterate(pi, evaluated, mdp.action_values, permitted, advice)[0]


# -- what the rivals share -------------------------------------------------------------------------


def known_mdp(model: Model, gamma: float) -> FiniteMDP:
    """The model's MDP, if it was estimated with the discount the learner plans with."""
    model_gamma = model.mdp.gamma
    if model_gamma != gamma:
        raise ParameterError(
            f"the model was estimated with gamma = {model_gamma!r}; this learner has {gamma!r}.",
            do="Estimate the model with the learner's gamma.",
        )
    return model.mdp


def margin(V: Floats) -> float:
    """What a difference among values of this size must exceed to be one."""
    return BETTER * float(np.abs(V).max(initial=0))


def lowest_best(Q: Floats, allowed: Bools, slack: float | Floats) -> Ints:
    """The lowest allowed action of each state within `slack` of its best, (S,); 0 if none is.

    slack: one number, or (S, 1).
    """
    q = np.where(allowed, Q, -np.inf)
    return np.asarray((q >= q.max(axis=1, keepdims=True) - slack).argmax(axis=1))


def one_hot(choice: Ints, chosen: Bools, A: int) -> Floats:
    """π (S, A) that takes `choice` where a choice was made, and is uniform elsewhere."""
    return np.where(chosen[:, None], np.eye(A)[choice], 1 / A)
