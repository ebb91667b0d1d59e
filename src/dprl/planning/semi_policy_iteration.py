r"""Exact policy iteration over the decision points (the paper's Algorithm 1, lines 6 and on).

    V = R̃_π + D_π V        evaluate, exactly (sparse)
    q = R̃ + D V            look one decision ahead
    π(p) ← argmax q        improve, where that is better by more than 1e-10 of its size

Starts at argmax Q̂ over allowed actions (lowest index on ties) and stops when the policy is stable.
Any policy made of allowed actions keeps the guarantee, so the planner may choose freely among them.

Departures: the 1e-10 is a share of the size of the terms that q is made of, |R̃| + D|V|, so that
multiplying all rewards by a positive number changes no choice, and a huge value somewhere hides no
improvement elsewhere. A gain that is small beside other values must also exceed what rounding
elsewhere could have brought about (`dprl._core.linear.doubt`), or the loop might never end.
With γ = 1 the starting policy may circle for ever although every trajectory ended (only first
occurrences are counted): such points start with an allowed action that leads on towards an end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.linear import doubt, leaks, solve
from dprl.errors import PlanError
from dprl.evidence.decision_points import best_rows
from dprl.planning.semi_mdp import SemiMDP

__all__ = ["Plan", "evaluate", "look_ahead", "policy_iteration"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BETTER, CLOSE = 1e-10, 1e-6
ROUNDS = 1_000


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


def evaluate(semi: SemiMDP, rows: Ints) -> Floats:
    """V = R̃_π + D_π V at the decision points, for the policy that chose `rows`."""
    return solve(semi.D[rows], semi.R[rows])


def look_ahead(semi: SemiMDP, V: Floats) -> Floats:
    """q = R̃ + D V for every row."""
    return np.asarray(semi.R + semi.D @ V)


def _able_to_end(semi: SemiMDP, rows: Ints) -> Ints:
    """`rows`, changed at points that would never reach an end to a row that leads towards one."""
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
    """The best plan over allowed actions; Q (rows,) is Q̂ of each row, where it starts."""
    rows = _able_to_end(semi, best_rows(Q, semi.first))
    for rounds in range(ROUNDS):
        V = evaluate(semi, rows)
        q = look_ahead(semi, V)
        best = best_rows(q, semi.first)
        size = np.abs(semi.R) + semi.D @ np.abs(V)  # of the terms q is made of
        gain = q[best] - q[rows]
        margin = BETTER * np.maximum(size[best], size[rows])
        better = gain > margin
        if (better & (gain < CLOSE * size.max(initial=0))).any():  # it may be rounding from afar
            far = semi.D @ doubt(semi.D[rows], semi.R[rows], V)
            better = gain > margin + far[best] + far[rows]
        if not better.any():
            return Plan(rows, V, q, rounds)
        rows = np.where(better, best, rows)
    raise PlanError(
        f"policy iteration did not settle in {ROUNDS:,} rounds over {len(semi.points):,} points.",
        do="Use a smaller gamma, or plan=False.",
    )
