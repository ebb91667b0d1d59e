"""Exact policy iteration in V-space, over the policies a learner may choose from.

    V = R_π + γ P_π V     evaluate, exactly (sparse)
    Q = R + γ P V         look one step ahead
    π(·|s) ← the best permitted distribution in Q, where it is better by more than 1e-10 of its size

(Howard: *Dynamic Programming and Markov Processes*, 1960.) The size is that of the terms of Q, |R|
+ γ P|V|: multiplying all rewards by a positive number changes no choice, and a huge value in one
state hides no improvement in another.

With γ = 1 a policy may go round in a circle without end. A circle that earns nothing is worth 0
(see `dprl._core.linear`); a circle that earns something has no value and raises an error. A strict
improvement on a policy that ends also ends, unless its circle earns something. It is therefore
enough to start from policies that end, and to break ties only among actions that still do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.linear import leaks, solve
from dprl.errors import ParameterError, PlanError
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.model import Model

__all__ = ["best_choices", "improve", "known_mdp", "lowest_best", "margin", "one_hot"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BETTER = 1e-10
ROUNDS = 1_000


def known_mdp(model: Model, gamma: float) -> FiniteMDP:
    """The model's MDP; an error if it was estimated with another discount than the learner's."""
    known = model.mdp.gamma
    if known != gamma:
        raise ParameterError(
            f"the model was estimated with gamma = {known!r}; this learner has {gamma!r}.",
            do="Estimate the model with the learner's gamma.",
        )
    return model.mdp


def margin(V: Floats) -> float:
    """The least difference between values of this size that is not a rounding error."""
    return BETTER * float(np.abs(V).max(initial=0))


def margins(mdp: FiniteMDP, V: Floats) -> Floats:
    """float64 (S,): the least difference of Q = R + γ P V that is not a rounding error."""
    size = np.abs(mdp.R) + mdp.gamma * (mdp.P @ np.abs(V)).reshape(mdp.R.shape)
    return np.asarray(BETTER * size.max(axis=1))


def lowest_best(Q: Floats, allowed: Bools, slack: float | Floats) -> Ints:
    """The first allowed action of each state whose value is within `slack` of the best, (S,).

    It is 0 where no action is allowed. slack: one number, or (S, 1).
    """
    q = np.where(allowed, Q, -np.inf)
    return np.asarray((q >= q.max(axis=1, keepdims=True) - slack).argmax(axis=1))


def one_hot(choice: Ints, chosen: Bools, A: int) -> Floats:
    """π (S, A) that takes `choice` in states with a choice, and is uniform elsewhere."""
    return np.where(chosen[:, None], np.eye(A)[choice], 1 / A)


def improve(mdp: FiniteMDP, pi: Floats, step: Callable[[Floats], Floats]) -> Floats:
    """The best policy that `step` can reach from π (S, A).

    `step(Q)` is the best permitted distribution of every state. States where it is not better keep
    their distribution, so the starting policy remains wherever nothing is better.
    """
    for _ in range(ROUNDS):
        V = mdp.state_values(pi)
        Q = mdp.action_values(V)
        new = step(Q)
        better = ((new - pi) * Q).sum(axis=1) > margins(mdp, V)
        if not better.any():
            return pi
        pi = np.where(better[:, None], new, pi)
    raise _unsettled(mdp)


def best_choices(mdp: FiniteMDP, allowed: Bools, floor: float = 0.0) -> tuple[Ints, Floats, Floats]:
    """The best deterministic policy among allowed pairs, and its values.

    States without an allowed pair are worth `floor`, and their choice is 0.

    Args:
        mdp: The problem, with S states and A actions.
        allowed: bool (S, A), the pairs that may be chosen.
        floor: Value of a state where no action is allowed. Default 0.

    Returns:
        choice (S,), the first action on ties; V (S,); Q (S, A) = R + γ P V of every pair.
    """
    some, states, R = np.any(allowed, axis=1), np.arange(len(allowed)), mdp.R
    choice = lowest_best(mdp.action_values(mdp.state_values()), allowed, 0.0)
    if mdp.gamma == 1:
        choice = _able_to_end(mdp, choice, allowed)
    for _ in range(ROUNDS):
        V = solve(_moves(mdp, choice, some), np.where(some, R[states, choice], floor))
        Q = mdp.action_values(V)
        slack = margins(mdp, V)
        best = lowest_best(Q, allowed, 0.0)
        better = some & (Q[states, best] > Q[states, choice] + slack)
        if not better.any():
            return _settle_ties(mdp, choice, lowest_best(Q, allowed, slack[:, None]), some), V, Q
        choice = np.where(better, best, choice)
    raise _unsettled(mdp)


def _moves(mdp: FiniteMDP, choice: Ints, some: Bools) -> sparse.csr_array:
    """γ P_π (S, S), with empty rows where no action is allowed."""
    P = mdp.P[np.arange(len(choice)) * len(mdp.actions) + choice]
    P.data *= np.repeat(np.where(some, mdp.gamma, 0.0), np.diff(P.indptr))
    return P


def _able_to_end(mdp: FiniteMDP, choice: Ints, allowed: Bools) -> Ints:
    """`choice`, changed to lead towards an end wherever an allowed pair makes that possible."""
    ends = leaks(_moves(mdp, choice, np.any(allowed, axis=1)))
    leak = np.asarray(1 - mdp.P.sum(axis=1) > 1e-12)
    while not ends.all():
        onward = allowed & (leak | (mdp.P @ ends.astype(np.float64) > 0)).reshape(allowed.shape)
        moved = ~ends & onward.any(axis=1)
        if not moved.any():
            break
        choice = np.where(moved, onward.argmax(axis=1), choice)
        ends = ends | moved
    return choice


def _settle_ties(mdp: FiniteMDP, settled: Ints, lowest: Ints, some: Bools) -> Ints:
    """`lowest`, or `settled` where with γ = 1 the first of equal actions would never end."""
    if mdp.gamma < 1:
        return lowest
    ends, choice = leaks(_moves(mdp, settled, some)), lowest
    while (stuck := ends & ~leaks(_moves(mdp, choice, some))).any():
        choice = np.where(stuck, settled, choice)
    return choice


def _unsettled(mdp: FiniteMDP) -> PlanError:
    """The error that policy iteration did not come to an end."""
    return PlanError(
        f"policy iteration did not settle in {ROUNDS:,} rounds over {len(mdp.states):,} states.",
        do="Use a smaller gamma.",
    )
