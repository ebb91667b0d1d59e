"""GridWorld: a grid that an expert crosses, careless at a few cells.

10 x 10 cells, row 0 on top, start (9, 0), goal (0, 9). Actions 0..3: up, right, down, left. With
probability .9 the intended move happens, with .1 a random one of the four; a move against a wall
does nothing. Acting in the goal cell pays U[.5, 1.5] and ends the episode.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from dprl._core.arrays import Floats
from dprl.planning.finite_mdp import FiniteMDP

SIZE = 10
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ACTIONS = ("up", "right", "down", "left")
DOORS = {(1, 2): 3, (3, 4): 6, (5, 6): 2, (7, 8): 5}
"""Thin walls: between which two columns → the row of the only door."""
CARELESS_ROOMS = ((3, 1), (6, 3), (2, 5), (5, 7))
CARELESS_OPEN = ((6, 0), (3, 0), (1, 3), (1, 6))
SMALL = 6
CARELESS_SMALL = ((3, 0), (1, 0), (0, 2))


def _moved(row: int, column: int, action: int, walls: bool, size: int) -> int:
    """The cell an intended move leads to; a move against a wall stays where it is."""
    to_row, to_column = row + MOVES[action][0], column + MOVES[action][1]
    if not (0 <= to_row < size and 0 <= to_column < size):
        return row * size + column
    crossing = (min(column, to_column), max(column, to_column))
    if walls and crossing in DOORS and row != DOORS[crossing]:
        return row * size + column
    return to_row * size + to_column


def _grid(name: str, walls: bool, size: int = SIZE) -> FiniteMDP:
    """A grid without an expert: its behaviour is uniform."""
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
    expert: Floats,
    lucid: float = 0.1,
) -> FiniteMDP:
    """The problem with the expert's policy as its behaviour, careless at `cells`.

    There the best action has only probability `lucid`, and the worst action the rest.
    """
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
    """Five rooms behind thin walls; the expert is careless at the four doors.

    Returns:
        The problem, γ = .99. The behaviour is worth .38760, the best policy .71637;
        `notes["careless"]` names the four cells.

    Example:
        >>> from dprl.envs import rooms
        >>> round(rooms().value(), 5), rooms().notes["careless"]
        (0.3876, ('r3c1', 'r6c3', 'r2c5', 'r5c7'))
    """
    grid = _grid("rooms", walls=True)
    return _careless(grid, CARELESS_ROOMS, np.eye(4)[grid.optimal[1]])


def open_grid() -> FiniteMDP:
    """The grid of `rooms` without walls; the expert is careless at four other cells.

    Returns:
        The problem, γ = .99. The behaviour is worth .66137, the best policy .81995.

    Example:
        >>> from dprl.envs import open_grid
        >>> round(open_grid().value(), 5)
        0.66137
    """
    grid = _grid("open", walls=False)
    return _careless(grid, CARELESS_OPEN, np.eye(4)[grid.optimal[1]])


def soft() -> FiniteMDP:
    """The grid of `rooms` with an expert who is noisy everywhere: .6 optimal + .4 uniform.

    Returns:
        The problem, γ = .99. The behaviour is worth .2278.

    Example:
        >>> from dprl.envs import soft
        >>> round(soft().value(), 4)
        0.2278
    """
    grid = _grid("soft", walls=True)
    return _careless(grid, CARELESS_ROOMS, 0.6 * np.eye(4)[grid.optimal[1]] + 0.1)


def small_grid() -> FiniteMDP:
    """6 x 6 cells without walls, a little noisy; the expert is careless at three cells.

    Small enough for a certificate to say something after a few hundred episodes.

    Returns:
        The problem, γ = .95; the goal pays 1.

    Example:
        >>> from dprl.envs import small_grid
        >>> len(small_grid().states)
        36
    """
    grid = _grid("small grid", walls=False, size=SMALL)
    goal = np.zeros_like(grid.low)
    goal[SMALL - 1] = 1.0
    grid = replace(grid, low=goal, high=goal, gamma=0.95)
    return _careless(grid, CARELESS_SMALL, 0.9 * np.eye(4)[grid.optimal[1]] + 0.025, 0.2)
