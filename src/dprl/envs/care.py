"""A small care pathway: eight situations on a ward, two habits worth changing.

The numbers are invented and the labels plausible: a first look at the method then needs neither a
grid nor a hospital. Going home alive pays 1, dying pays nothing; a death ends the episode.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.planning.finite_mdp import FiniteMDP

ACTIONS = ("antibiotics", "discharge", "fluids", "watch")
# situation → action → chances of (improving, stable, worse, intensive care, going home)
MOVES: dict[str, dict[str, tuple[float, float, float, float, float]]] = {
    "fever": {
        "antibiotics": (0.78, 0.14, 0.06, 0.00, 0.00),
        "fluids": (0.28, 0.30, 0.26, 0.06, 0.00),
        "watch": (0.36, 0.22, 0.28, 0.06, 0.00),
    },
    "low pressure": {
        "antibiotics": (0.30, 0.32, 0.28, 0.06, 0.00),
        "fluids": (0.62, 0.24, 0.10, 0.02, 0.00),
        "watch": (0.22, 0.30, 0.36, 0.08, 0.00),
    },
    "short of breath": {
        "antibiotics": (0.44, 0.34, 0.16, 0.04, 0.00),
        "fluids": (0.24, 0.34, 0.30, 0.10, 0.00),
        "watch": (0.46, 0.32, 0.16, 0.04, 0.00),
    },
    "stable": {
        "antibiotics": (0.42, 0.44, 0.12, 0.01, 0.00),
        "fluids": (0.38, 0.46, 0.14, 0.01, 0.00),
        "watch": (0.44, 0.42, 0.12, 0.01, 0.00),
    },
    "worse": {
        "antibiotics": (0.12, 0.18, 0.38, 0.18, 0.00),
        "fluids": (0.42, 0.30, 0.16, 0.08, 0.00),
        "watch": (0.08, 0.18, 0.42, 0.20, 0.00),
    },
    "intensive care": {
        "antibiotics": (0.18, 0.30, 0.20, 0.18, 0.00),
        "fluids": (0.20, 0.30, 0.20, 0.16, 0.00),
        "watch": (0.06, 0.16, 0.30, 0.24, 0.00),
    },
    "improving": {
        "antibiotics": (0.30, 0.10, 0.03, 0.00, 0.56),
        "fluids": (0.34, 0.10, 0.03, 0.00, 0.52),
        "watch": (0.26, 0.08, 0.02, 0.00, 0.63),
    },
}
HABITS: dict[str, tuple[float, float, float]] = {  # antibiotics, fluids, watch
    "fever": (0.23, 0.02, 0.75),
    "low pressure": (0.02, 0.96, 0.02),
    "short of breath": (0.02, 0.01, 0.97),
    "stable": (0.02, 0.01, 0.97),
    "worse": (0.74, 0.24, 0.02),
    "intensive care": (0.03, 0.95, 0.02),
    "improving": (0.01, 0.01, 0.98),
}
ARRIVALS = {"fever": 0.45, "low pressure": 0.30, "short of breath": 0.25}
NEXT = ("improving", "stable", "worse", "intensive care", "going home")


def care_pathway() -> FiniteMDP:
    """The care pathway, γ = 1.

    Usual practice watches a fever, and gives antibiotics to patients who get worse: both are habits
    worth changing.

    Returns:
        The problem, with 8 states and 4 actions; `notes["habits"]` names the two states.

    Example:
        >>> from dprl.envs import care_pathway
        >>> care_pathway().sample(100, seed=0)
        Log: 100 episodes · 441 steps · 8 states · 4 actions
    """
    states = (*MOVES, "going home")
    place = {name: i for i, name in enumerate(states)}
    n, A = len(states), len(ACTIONS)
    P = np.zeros((n, A, n))
    behavior = np.zeros((n, A))
    for name, moves in MOVES.items():
        for action, chances in moves.items():
            for target, chance in zip(NEXT, chances, strict=True):
                P[place[name], ACTIONS.index(action), place[target]] = chance
        behavior[place[name], [0, 2, 3]] = HABITS[name]
    behavior[place["going home"], ACTIONS.index("discharge")] = 1.0
    reward = np.zeros((n, A))
    reward[place["going home"], ACTIONS.index("discharge")] = 1.0
    start = np.zeros(n)
    for name, chance in ARRIVALS.items():
        start[place[name]] = chance
    return FiniteMDP(
        name="care pathway",
        states=states,
        actions=ACTIONS,
        P=sparse.csr_array(P.reshape(n * A, n)),
        low=reward,
        high=reward,
        start=start,
        behavior=behavior,
        gamma=1.0,
        max_steps=1_000,
        notes={"habits": ("fever", "worse")},
    )
