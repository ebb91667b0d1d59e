"""The GridWorld experiment: an expert who is careless in four cells, or noisy everywhere.

The expert is careless in the grids *rooms* and *open* and noisy in the grid *soft*. The layouts are
ours: the paper shows its own in a picture only, and gives size, noise, rewards and discount.

The figure has five panels per grid: the map; two shares against n_min; CVaR 5 % and mean of the
value against n_min; and both against the number of episodes; below it small multiples of CVaR 5 %.
The two shares are, for the filters of DPRL and of PQI with the same threshold on its counts: that
of careless cells in which the filter allows the optimal action, and, among cells where the policy
names an action and the expert takes more than one, that in which the named action is truly better
than usual practice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.envs import open_grid, rooms, soft
from dprl.envs.gridworld import DOORS, SIZE
from dprl.logs.reading.tables import Row, Rows
from dprl.planning.finite_mdp import FiniteMDP
from dprl_studies.harness import Setting
from dprl_studies.paper.contest import (
    CHOSEN,
    SURE,
    contest,
    draw,
    leading,
    made_of,
    multiples,
    summarise,
)
from dprl_studies.paper.contests import GRID as N_MIN
from dprl_studies.paper.contests import LAST, TO_THE_END, dprl, rivals

GRIDS = {"rooms": rooms, "open": open_grid, "soft": soft}
CONTESTANTS: tuple[Setting, ...] = (
    *SURE,
    *dprl(N_MIN),
    *TO_THE_END,
    *rivals(N_MIN, (0.002, 0.0002), (0.01, 0.05, 0.1), N_MIN),
    *LAST,
)


def bias_and_variance(mdp: FiniteMDP, notes: dict[str, Any]) -> Row:
    """Two shares that describe a filter on counts; NaN for learners without one.

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
    ("DPRL paper", "careless_found", "careless cell found",
     {"color": "#e69f00", "ls": "-", "lw": 3.6, "marker": "^", "ms": 8, "mfc": "white"}),
    ("DPRL paper", "chose_better", "better where it speaks",
     {"color": "#e69f00", "ls": (0, (4, 2)), "lw": 2.2, "marker": "v", "ms": 6, "mfc": "white"}),
    ("DPRL contrast", "careless_found", "careless cell found",
     {"color": "#0072b2", "ls": "-", "lw": 1.5, "marker": "o", "ms": 4}),
    ("DPRL contrast", "chose_better", "better where it speaks",
     {"color": "#0072b2", "ls": (0, (1, 1.6)), "lw": 1.8, "marker": "s", "ms": 4}),
    ("PQI", "careless_found", "careless cell found",
     {"color": "#009e73", "ls": "-", "lw": 1.0, "marker": "P", "ms": 5}),
    ("PQI", "chose_better", "better where it speaks",
     {"color": "#009e73", "ls": (0, (6, 1)), "lw": 1.0, "marker": "X", "ms": 5}),
)  # fmt: skip
"""The lines of `_draw_rule`: filter, column, its meaning, and how it is drawn. Each has a colour, a
dash, a width and a marker by which it is told apart where lines cover each other."""


def _draw_rule(axis: Any, rows: Rows, name: str, n: int) -> None:
    """Draw the two shares of `bias_and_variance` against n_min, for logs of n episodes.

    Markers of one n_min stand beside each other, because the lines often have the same value.
    """
    for place, (rule, column, meaning, look) in enumerate(RULE_LINES):
        y = [
            known.mean() if len(known := some[~np.isnan(some)]) else np.nan
            for n_min in N_MIN
            for some in [
                rows[column][
                    (rows["problem"] == name)
                    & (rows["n"] == n)
                    & (rows["contestant"] == f"{rule}, n_min {n_min}")
                ]
            ]
        ]
        x = np.arange(len(N_MIN)) + 0.1 * (place - 2.5)
        axis.plot(x, y, label=f"{rule}: {meaning}", **look)
    axis.set_xticks(range(len(N_MIN)), [str(n_min) for n_min in N_MIN])
    axis.set(ylim=(-0.05, 1.08), xlabel="n_min", title=f"{name}: the filter at {n} episodes")


FILTERS = ("DPRL contrast", "DPRL paper", "SPIBB", "SPIBB, behavior true", "PQI")
"""Families with a threshold n_min, as `dprl_studies.paper.contest.families` calls them."""


def _draw_n_min(axis: Any, table: Table, name: str, n: int, column: str) -> None:
    """Draw a column of the summary against n_min, one line per family, for logs of n episodes."""
    lines = [row for row in table if row["problem"] == name and row["n"] == n]
    at = {row["contestant"]: row for row in lines}
    looks = plot.style(FILTERS)
    for family in FILTERS:
        first, _, rest = family.partition(", ")
        mine = [at[", ".join([f"{first}, n_min {k}", *[rest] * bool(rest)])] for k in N_MIN]
        y, low, high = (
            [r[key] for r in mine] for key in (column, f"{column}_low", f"{column}_high")
        )
        plot.curve(axis, np.arange(len(N_MIN)), y, low, high, family, looks[family])
    plot.reference(axis, lines[0]["behavior"], "usual practice")
    plot.reference(axis, lines[0]["best"], "best policy")
    axis.set_xticks(range(len(N_MIN)), [str(n_min) for n_min in N_MIN])
    words = "CVaR 5 %" if column == "cvar" else "mean"
    axis.set(xlabel="n_min", title=f"{name}: {words} at {n} episodes")


def figure(rows: Rows) -> Any:
    """Two rows of panels per grid; see the module."""
    table = summarise(rows, "GridWorld")
    names = leading(table)
    sizes = sorted(set(rows["n"].tolist()))
    n = 25 if 25 in sizes else sizes[len(sizes) // 2]
    grids = [g for g in GRIDS if g in rows["problem"]]
    figure = plot.blank(23, 7.2 * len(grids))
    plot.caption(figure, f"Layouts are ours. {CHOSEN} Bands: {made_of(rows)}")
    heights = [4.2, 3.0] * len(grids)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)
    for i, name in enumerate(grids):
        row = parts[2 * i, 0].subplots(1, 6)
        _draw_map(row[0], name)
        _draw_rule(row[1], rows, name, n)
        for axis, column in zip(row[2:4], ("cvar", "mean"), strict=True):
            _draw_n_min(axis, table, name, n, column)
        for axis, column, title in zip(
            row[4:], ("cvar", "mean"), ("CVaR 5 %", "mean"), strict=True
        ):
            draw(axis, table, name, column, names)
            axis.set_title(f"{name}: {title} of the value")
        for axis in (row[1], row[2]):
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.15), "ncols": 2}
            axis.legend(fontsize=6.5, handlelength=4, **below)
        parts[2 * i, 0].legend(
            *row[4].get_legend_handles_labels(), loc="outside right center", fontsize=7.5
        )
        multiples(parts[2 * i + 1, 0], table, name, columns=13)
    return figure


EXPERIMENT = contest(
    "gridworld", "Who finds the four careless cells, and at what risk?", "GridWorld", GRIDS,
    CONTESTANTS, sizes=((10, 25, 50, 100, 500), (10, 50, 100)), datasets=(500, 10),
    also=bias_and_variance, figure=figure,
)  # fmt: skip
