"""The GridWorld experiment: an expert who is careless in four cells, or noisy everywhere.

The expert is careless in the grids *rooms* and *open* and noisy in the grid *soft*. The figure has
four panels per grid: the map; two numbers for DPRL's rule against n_min; CVaR 5 % and mean of the
value against the number of episodes. The two numbers are the share of careless cells in which the
rule allows the optimal action, and, among cells where the policy names an action and the expert
takes more than one, the share in which the named action is truly better than usual practice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl._core import plot
from dprl.envs import open_grid, rooms, soft
from dprl.envs.gridworld import DOORS, SIZE
from dprl.logs.reading.tables import Row, Rows
from dprl.planning.finite_mdp import FiniteMDP
from dprl_studies.harness import Setting
from dprl_studies.paper.contest import SURE, contest, draw, summarise
from dprl_studies.paper.contests import LAST, dprl, rivals

GRIDS = {"rooms": rooms, "open": open_grid, "soft": soft}
N_MIN = (1, 2, 5, 10, 20, 30)
CONTESTANTS: tuple[Setting, ...] = (
    *SURE,
    *dprl(N_MIN),
    *rivals(N_MIN, (0.002, 0.0002), (0.01, 0.05, 0.1)),
    *LAST,
)
SHOWN = ("Confident, risk 0.01", "Confident, risk 0.002", "DPRL contrast, n_min 5",
         "DPRL contrast, n_min 20", "DPRL paper, n_min 5",
         "DPRL paper, n_min 20", "SPIBB, n_min 5", "SPIBB, n_min 20", "PQI, b 0.0002",
         "CQL, alpha 0.01", "CQL, alpha 0.1", "BC", "RL")  # fmt: skip
"""The contestants that the figure shows."""


def bias_and_variance(mdp: FiniteMDP, notes: dict[str, Any]) -> Row:
    """Two shares that describe DPRL's rule; NaN for other learners.

    `careless_found` is the share of careless cells whose optimal action is allowed; `chose_better`
    is the share of cells with a truly better action, among those where the policy names an action
    and the expert takes more than one. `notes` are those of `dprl_studies.paper.contest.compete`.
    """
    allowed = better = np.nan
    if "pairs" in notes:
        careless = [mdp.states.index(c) for c in mdp.notes["careless"]]
        allowed = float(notes["pairs"][careless, mdp.optimal[1][careless]].mean())
        V = mdp.state_values()
        gain = mdp.action_values(V) - V[:, None]
        contested = np.flatnonzero((notes["choice"] >= 0) & ((mdp.behavior > 0).sum(axis=1) > 1))
        if len(contested):
            better = float((gain[contested, notes["choice"][contested]] > 0).mean())
    return {"careless_found": allowed, "chose_better": better}


def _draw_map(axis: Any, name: str) -> None:
    """Draw a grid with its walls, start, goal, careless cells and optimal actions."""
    mdp = GRIDS[name]()
    best = mdp.optimal[1].reshape(SIZE, SIZE)
    arrows = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
    axis.set(xlim=(-0.5, SIZE - 0.5), ylim=(SIZE - 0.5, -0.5), aspect="equal", xticks=[], yticks=[])
    axis.grid(False)
    for cell in mdp.notes["careless"]:
        row, column = (int(x) for x in cell[1:].split("c"))
        axis.add_patch(_square(column, row, "#f5c6a5"))
    axis.add_patch(_square(0, SIZE - 1, "#d9e7f5"))
    axis.add_patch(_square(SIZE - 1, 0, "#cfe8cf"))
    y, x = np.mgrid[:SIZE, :SIZE]
    u, v = arrows[best][..., 0], arrows[best][..., 1]
    axis.quiver(x, y, u, v, color="#888888", pivot="mid", scale=22, width=0.006)
    if name != "open":
        for (left, _), door in DOORS.items():
            for row in range(SIZE):
                if row != door:
                    axis.plot([left + 0.5] * 2, [row - 0.5, row + 0.5], color="black", lw=2)
    axis.set_title(f"{name}: start blue, goal green, careless orange", fontsize=8.5)


def _square(column: int, row: int, color: str) -> Any:
    """A coloured square that fills one cell of the map."""
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="none")


RULE_LINES = (
    ("paper", "careless_found", "careless cell found",
     {"color": "#e69f00", "ls": "-", "lw": 3.6, "marker": "^", "ms": 8, "mfc": "white"}),
    ("paper", "chose_better", "better where it speaks",
     {"color": "#e69f00", "ls": (0, (4, 2)), "lw": 2.2, "marker": "v", "ms": 6, "mfc": "white"}),
    ("contrast", "careless_found", "careless cell found",
     {"color": "#0072b2", "ls": "-", "lw": 1.5, "marker": "o", "ms": 4}),
    ("contrast", "chose_better", "better where it speaks",
     {"color": "#0072b2", "ls": (0, (1, 1.6)), "lw": 1.8, "marker": "s", "ms": 4}),
)  # fmt: skip
"""The lines of `_draw_rule`: rule, column, its meaning, and how it is drawn. Each has a colour, a
dash, a width and a marker by which it is told apart where lines cover each other."""


def _draw_rule(axis: Any, rows: Rows, name: str, n: int) -> None:
    """Draw the two shares of `bias_and_variance` against n_min, for logs of n episodes.

    Markers of one n_min stand beside each other, because the lines often have the same value.
    """
    for place, (rule, column, meaning, look) in enumerate(RULE_LINES):
        y = [
            np.nanmean(
                rows[column][
                    (rows["problem"] == name)
                    & (rows["n"] == n)
                    & (rows["contestant"] == f"DPRL {rule}, n_min {n_min}")
                ]
            )
            for n_min in N_MIN
        ]
        x = np.arange(len(N_MIN)) + 0.14 * (place - 1.5)
        axis.plot(x, y, label=f"{rule}: {meaning}", **look)
    axis.set_xticks(range(len(N_MIN)), [str(n_min) for n_min in N_MIN])
    axis.set(ylim=(-0.05, 1.08), xlabel="n_min", title=f"{name}: the rule at {n} episodes")


def figure(rows: Rows) -> Any:
    """One row of four panels per grid; see the module."""
    table = summarise(rows, "GridWorld")
    names = [n for n in SHOWN if n in table["contestant"]]
    sizes = sorted(set(rows["n"].tolist()))
    n = 50 if 50 in sizes else sizes[len(sizes) // 2]
    grids = [g for g in GRIDS if g in rows["problem"]]
    figure, axes = plot.grid(len(grids), 4, width=3.9, height=3.5)
    for row, name in zip(axes, grids, strict=True):
        _draw_map(row[0], name)
        with np.errstate(invalid="ignore"):
            _draw_rule(row[1], rows, name, n)
        for axis, column, title in zip(
            row[2:], ("cvar", "mean"), ("CVaR 5 %", "mean"), strict=True
        ):
            draw(axis, table, name, column, names)
            axis.set_title(f"{name}: {title} of the value")
    axes[0, 1].legend(fontsize=7.5, loc="lower left", handlelength=4.5)
    figure.legend(*axes[0, 2].get_legend_handles_labels(), loc="outside right center", fontsize=7.5)
    return figure


EXPERIMENT = contest(
    "gridworld", "Who finds the four careless cells, and at what risk?", "GridWorld", GRIDS,
    CONTESTANTS, sizes=((10, 25, 50, 100, 500), (10, 50, 100)), datasets=(500, 10),
    also=bias_and_variance, figure=figure,
)  # fmt: skip
