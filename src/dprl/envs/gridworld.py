"""GridWorld: a 10 x 10 grid crossed by an expert who is careless at four cells.

Row 0 on top, start (9, 0), goal (0, 9). Actions 0..3: up, right, down, left.
With .9 the intended move, with .1 a uniform one of the four; bumping stays. Acting in the goal cell
pays U[.5, 1.5] and ends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl.envs.mdp import FiniteMDP

__all__ = ["open_grid", "rooms", "soft"]

SIZE = 10
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ACTIONS = ("up", "right", "down", "left")
DOORS = {(1, 2): 3, (3, 4): 6, (5, 6): 2, (7, 8): 5}
"""Thin walls between these columns, each open at one row."""
CARELESS_ROOMS = ((3, 1), (6, 3), (2, 5), (5, 7))
CARELESS_OPEN = ((6, 0), (3, 0), (1, 3), (1, 6))


def _cell(row: int, column: int) -> int:
    return row * SIZE + column


def _moved(row: int, column: int, action: int, walls: bool) -> int:
    """The cell an intended move leads to; bumping stays."""
    to_row, to_column = row + MOVES[action][0], column + MOVES[action][1]
    if not (0 <= to_row < SIZE and 0 <= to_column < SIZE):
        return _cell(row, column)
    crossing = (min(column, to_column), max(column, to_column))
    if walls and crossing in DOORS and row != DOORS[crossing]:
        return _cell(row, column)
    return _cell(to_row, to_column)


def _grid(name: str, walls: bool) -> FiniteMDP:
    n, goal = SIZE * SIZE, _cell(0, SIZE - 1)
    P = np.zeros((n, 4, n))
    for s in range(n):
        if s == goal:
            continue
        ends = [_moved(s // SIZE, s % SIZE, a, walls) for a in range(4)]
        for a in range(4):
            P[s, a, ends[a]] += 0.9
            for b in range(4):
                P[s, a, ends[b]] += 0.1 / 4
    low, high = np.zeros((n, 4)), np.zeros((n, 4))
    low[goal], high[goal] = 0.5, 1.5
    return FiniteMDP(
        name=name,
        states=tuple(f"r{s // SIZE}c{s % SIZE}" for s in range(n)),
        actions=ACTIONS,
        P=sparse.csr_array(P.reshape(n * 4, n)),
        low=low,
        high=high,
        start=np.eye(n)[_cell(SIZE - 1, 0)],
        behavior=np.full((n, 4), 0.25),
        gamma=0.99,
        max_steps=500,
    )


def _careless(
    grid: FiniteMDP, cells: tuple[tuple[int, int], ...], expert: NDArray[np.float64]
) -> FiniteMDP:
    """The expert's policy, but at `cells` the worst action with .9 and the best with .1."""
    V, best = grid.optimal
    worst = grid.action_values(V).argmin(axis=1)
    behavior = expert.copy()
    places = [_cell(*c) for c in cells]
    for s in places:
        behavior[s] = 0.0
        behavior[s, worst[s]] += 0.9
        behavior[s, best[s]] += 0.1
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
