"""GridWorld: a grid crossed by an expert who is careless at a few cells.

10 x 10, row 0 on top, start (9, 0), goal (0, 9). Actions 0..3: up, right, down, left.
With .9 the intended move, with .1 a uniform one of the four; bumping stays. Acting in the goal cell
pays U[.5, 1.5] and ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl.planning.finite_mdp import FiniteMDP

__all__ = ["open_grid", "rooms", "small_grid", "soft"]

SIZE = 10
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ACTIONS = ("up", "right", "down", "left")
DOORS = {(1, 2): 3, (3, 4): 6, (5, 6): 2, (7, 8): 5}
"""Thin walls between these columns, each open at one row."""
CARELESS_ROOMS = ((3, 1), (6, 3), (2, 5), (5, 7))
CARELESS_OPEN = ((6, 0), (3, 0), (1, 3), (1, 6))
SMALL = 6
CARELESS_SMALL = ((3, 0), (1, 0), (0, 2))


def _moved(row: int, column: int, action: int, walls: bool, size: int) -> int:
    """The cell an intended move leads to; bumping stays."""
    to_row, to_column = row + MOVES[action][0], column + MOVES[action][1]
    if not (0 <= to_row < size and 0 <= to_column < size):
        return row * size + column
    crossing = (min(column, to_column), max(column, to_column))
    if walls and crossing in DOORS and row != DOORS[crossing]:
        return row * size + column
    return to_row * size + to_column


def _grid(name: str, walls: bool, size: int = SIZE) -> FiniteMDP:
    n, goal = size * size, size - 1
    P = np.zeros((n, 4, n))
    for s in range(n):
        if s == goal:
            continue
        ends = [_moved(s // size, s % size, a, walls, size) for a in range(4)]
        for a in range(4):
            P[s, a, ends[a]] += 0.9
            for b in range(4):
                P[s, a, ends[b]] += 0.1 / 4
    low, high = np.zeros((n, 4)), np.zeros((n, 4))
    low[goal], high[goal] = 0.5, 1.5
    return FiniteMDP(
        name=name,
        states=tuple(f"r{s // size}c{s % size}" for s in range(n)),
        actions=ACTIONS,
        P=sparse.csr_array(P.reshape(n * 4, n)),
        low=low,
        high=high,
        start=np.eye(n)[n - size],
        behavior=np.full((n, 4), 0.25),
        gamma=0.99,
        max_steps=500,
    )


def _careless(
    grid: FiniteMDP,
    cells: tuple[tuple[int, int], ...],
    expert: NDArray[np.float64],
    lucid: float = 0.1,
) -> FiniteMDP:
    """The expert's policy, but at `cells` the best action with `lucid`, else the worst."""
    V, best = grid.optimal
    worst = grid.action_values(V).argmin(axis=1)
    behavior = expert.copy()
    places = [grid.states.index(f"r{row}c{column}") for row, column in cells]
    for s in places:
        behavior[s] = 0.0
        behavior[s, worst[s]] += 1 - lucid
        behavior[s, best[s]] += lucid
    return replace(
        grid, behavior=behavior, notes={"careless": tuple(grid.states[s] for s in places)}
    )


def rooms() -> FiniteMDP:
    """Five rooms behind thin walls; careless at the four doors. ρ_b = .38760, V* = .71637."""
    grid = _grid("rooms", walls=True)
    return _careless(grid, CARELESS_ROOMS, np.eye(4)[grid.optimal[1]])


def open_grid() -> FiniteMDP:
    """The same without walls; careless at four other cells. ρ_b = .66137, V* = .81995."""
    grid = _grid("open", walls=False)
    return _careless(grid, CARELESS_OPEN, np.eye(4)[grid.optimal[1]])


def soft() -> FiniteMDP:
    """Rooms whose expert is noisy everywhere: .6 optimal + .4 uniform. ρ_b = .2278."""
    grid = _grid("soft", walls=True)
    return _careless(grid, CARELESS_ROOMS, 0.6 * np.eye(4)[grid.optimal[1]] + 0.1)


def small_grid() -> FiniteMDP:
    """6 x 6 without walls, a little noisy, careless at three cells; γ = .95, the goal pays 1.

    Small enough for a certificate to say something after some hundred episodes.
    """
    grid = _grid("small grid", walls=False, size=SMALL)
    goal = np.zeros_like(grid.low)
    goal[SMALL - 1] = 1.0
    grid = replace(grid, low=goal, high=goal, gamma=0.95)
    return _careless(grid, CARELESS_SMALL, 0.9 * np.eye(4)[grid.optimal[1]] + 0.025, 0.2)
