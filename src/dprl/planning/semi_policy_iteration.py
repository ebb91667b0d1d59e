"""Exact policy iteration over the decision points (the paper's Algorithm 1, from line 6).

    V = R̃_π + D_π V        evaluate, exactly (sparse)
    q = R̃ + D V            look one decision ahead
    π(p) ← argmax q        improve, where that is better by more than 1e-10 of its size

It starts at argmax Q̂ over allowed actions (the first one on ties) and stops when the policy is
stable. Any policy made of allowed actions keeps the guarantee, so the planner may choose freely
among them.

Departures: the 1e-10 is a share of the size of the terms of q, |R̃| + D|V|, so that multiplying all
rewards by a positive number changes no choice, and a huge value at one point hides no improvement
at another. With γ = 1 the starting policy may never end although every trajectory ended (only first
occurrences are counted): such points start with an allowed action that leads towards an end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.linear import leaks, solve
from dprl.errors import PlanError
from dprl.evidence.decision_points import best_rows
from dprl.planning.semi_mdp import SemiMDP

__all__ = ["Plan", "evaluate", "look_ahead", "policy_iteration"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BETTER = 1e-10
ROUNDS = 1_000


@dataclass(frozen=True, eq=False)
class Plan:
    """The result of policy iteration.

    Attributes:
        rows: int64 (P,), the chosen row of the semi-MDP at each decision point.
        V: float64 (P,), the value of the plan at each decision point.
        q: float64 (rows,), the value of each allowed action if the plan is followed afterwards.
        rounds: The number of improvements.
    """

    rows: Ints
    V: Floats
    q: Floats
    rounds: int


def evaluate(semi: SemiMDP, rows: Ints) -> Floats:
    """V = R̃_π + D_π V at the decision points, for the policy that chose `rows`."""
    return solve(semi.D[rows], semi.R[rows])


def look_ahead(semi: SemiMDP, V: Floats) -> Floats:
    """q = R̃ + D V for every row."""
    return np.asarray(semi.R + semi.D @ V)


def _able_to_end(semi: SemiMDP, rows: Ints) -> Ints:
    """`rows`, changed to lead towards an end at points that would never reach one."""
    rows = rows.copy()
    ends = leaks(semi.D[rows])
    leak = 1 - semi.D.sum(axis=1) > 1e-12
    while not ends.all():
        onward = leak | (semi.D @ ends.astype(np.float64) > 0)
        first = best_rows(onward.astype(np.float64), semi.first)
        moved = ~ends & onward[first]
        if not moved.any():
            stuck = np.flatnonzero(~ends)
            raise PlanError(
                f"no allowed choice ever leads to an end from {len(stuck):,} of "
                f"{len(ends):,} decision points.",
                f"state {semi.labels[stuck[0]]!r}",
                "Use a gamma below 1 (0.999, say), or plan=False.",
            )
        rows[moved] = first[moved]
        ends |= moved
    return rows


def policy_iteration(semi: SemiMDP, Q: Floats) -> Plan:
    """The best plan over allowed actions; it starts from Q (rows,), which is Q̂ of each row."""
    rows = _able_to_end(semi, best_rows(Q, semi.first))
    for rounds in range(ROUNDS):
        V = evaluate(semi, rows)
        q = look_ahead(semi, V)
        best = best_rows(q, semi.first)
        size = np.abs(semi.R) + semi.D @ np.abs(V)  # of the terms q is made of
        better = q[best] > q[rows] + BETTER * np.maximum(size[best], size[rows])
        if not better.any():
            return Plan(rows, V, q, rounds)
        rows = np.where(better, best, rows)
    raise PlanError(
        f"policy iteration did not settle in {ROUNDS:,} rounds over {len(semi.points):,} points.",
        do="Use a smaller gamma, or plan=False.",
    )
