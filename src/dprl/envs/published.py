"""Two problems of the literature on safe policy improvement, with the values that were published.

* `maze`: the 5 x 5 grid of Laroche, Trichelair, Tachet des Combes (*Safe Policy Improvement with
  Baseline Bootstrapping*, ICML 2019). A step goes the intended way with .75, to either side with .1
  and back with .05; two thin walls; entering the far corner pays 1 and ends; γ = .95. Published:
  practice .40225, best policy .59774. Their practice is the softmax of values that they had learned
  and kept in a file; here it is that of Q*, at the temperature with the same value.
* `river`: the wet chicken of Scholl, Dietrich, Otte, Udluft (*Safe Policy Improvement Approaches on
  Discrete Markov Decision Processes*, ICAART 2022), a process that never ends: 5 x 5 places, a step
  pays how near the edge it leads, beyond it all begins again; γ = .95. Practice goes to the middle
  and holds there, and does anything with .1. Published: practice 29.75, best policy 43.08.
  `dprl.envs.hard.wet_chicken` is the same river with endings, in numbers of ours.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dprl._core.checks import check_number
from dprl.envs.arrays import from_arrays
from dprl.envs.random_mdp import softened
from dprl.planning.finite_mdp import FiniteMDP

SIZE = 5
WAYS = {"north": (0, 1), "east": (1, 0), "south": (0, -1), "west": (-1, 0)}
WALLS = {(2, 0), (2, 1), (2, 2), (3, 2), (3, 3)}
"""Places with a thin wall to the east."""
PRACTICE = 0.40225


def maze() -> FiniteMDP:
    """The 5 x 5 grid with two walls.

    Returns:
        The problem, γ = .95.

    Example:
        >>> from dprl.envs import maze
        >>> round(maze().value(), 5), round(float(maze().optimal[0][0]), 5)
        (0.40225, 0.59774)
    """
    n, goal = SIZE * SIZE, SIZE * SIZE - 1
    P, R = np.zeros((n, 4, n)), np.zeros((n, 4))
    for s in range(goal):
        x, y = s % SIZE, s // SIZE
        for b, (dx, dy) in enumerate(WAYS.values()):
            to_x, to_y = x + dx, y + dy
            walled = (min(x, to_x), y) in WALLS and dx != 0
            inside = 0 <= to_x < SIZE and 0 <= to_y < SIZE and not walled
            to = to_x + to_y * SIZE if inside else s
            for a in range(4):
                chance = (0.75, 0.1, 0.05, 0.1)[(b - a) % 4]
                if to == goal:
                    R[s, a] += chance
                else:
                    P[s, a, to] += chance
    labels = [f"x{s % SIZE} y{s // SIZE}" for s in range(n)]
    made = from_arrays(P, R, gamma=0.95, states=labels, actions=list(WAYS), name="maze")
    return softened(made, PRACTICE)


STROKES = {"drift": (0, 0), "hold": (-1, 0), "left": (0, -1), "paddle": (-2, 0), "right": (0, 1)}


def river(*, noise: float = 0.1, max_steps: int = 1_000) -> FiniteMDP:
    """The river above a waterfall.

    Args:
        noise: How often practice does anything at all, in [0, 1]. Default .1.
        max_steps: Sampled episodes are cut after this many steps. Default 1,000.

    Returns:
        The problem, γ = .95; it never ends.

    Example:
        >>> from dprl.envs import river
        >>> round(river().value(), 2), round(float(river().optimal[0][0]), 2)
        (29.75, 43.08)
    """
    check_number("noise", noise, "[0, 1]")
    n, A = SIZE * SIZE, len(STROKES)
    P, sense = np.zeros((n, A, n)), np.full(n, list(STROKES).index("drift"))
    for s in range(n):
        x, y = divmod(s, SIZE)  # down the river, and across
        fast = 3 * y / SIZE
        rough = 3.5 - fast
        for a, (along, side) in enumerate(STROKES.values()):
            across = min(max(y + side, 0), SIZE - 1)
            edges = np.arange(SIZE) + 0.5 - (x + along + fast - rough)
            below = np.clip(edges / (2 * rough), 0, 1)
            P[s, a, across + SIZE * np.arange(SIZE)] += np.diff(below, prepend=0.0)
            P[s, a, 0] += 1 - below[-1]
        stroke = (
            "paddle" if x > 2 else "right" if y < 2 else "left" if y > 2
            else "paddle" if x == 2 else "hold" if x == 1 else "drift"
        )  # fmt: skip
        sense[s] = list(STROKES).index(stroke)
    R = np.broadcast_to((np.arange(n) // SIZE).astype(np.float64), (n, A, n))
    behavior = (1 - noise) * np.eye(A)[sense] + noise / A
    labels = [f"x{s // SIZE} y{s % SIZE}" for s in range(n)]
    made = from_arrays(P, R, gamma=0.95, behavior=behavior, states=labels, actions=list(STROKES))
    return replace(made, name="river", max_steps=max_steps)
