"""The behaviour experiment: SPIBB with the true behaviour policy, and with an estimated one.

SPIBB's guarantee needs the true behaviour policy, which nobody has in practice: it is estimated
from the log. DPRL does not need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core import plot
from dprl._core.table import Table
from dprl.envs import rooms, soft
from dprl_studies.harness import Experiment, Row, Rows, Setting
from dprl_studies.paper.contest import blocks, pivot, rows_of, summarise
from dprl_studies.paper.lines import draw

__all__ = ["EXPERIMENT"]

GRIDS = {"rooms": rooms, "soft": soft}
CONTESTANTS: tuple[Setting, ...] = (
    *(
        {"learner": "SPIBB", "n_min": n, "behavior": behavior}
        for n in (5, 20)
        for behavior in ("true", "estimated")
    ),
    *({"learner": "DPRL", "n_min": n, "contrast": True} for n in (5, 20)),
)


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per grid, log size and block of data sets; `quick` takes fewer of the last two."""
    sizes, datasets = ((10, 50, 100), 50) if quick else ((10, 25, 50, 100, 500), 500)
    return [
        task
        for grid in GRIDS
        for n in sizes
        for task in blocks({"grid": grid, "n": n}, datasets, seed)
    ]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: every contestant on every data set of the block."""
    return rows_of(GRIDS[setting["grid"]](), setting, CONTESTANTS)


def summary(rows: Rows) -> Table:
    """One row per grid, log size and contestant: mean and CVaR 5 % of the exact value."""
    return summarise(rows, "SPIBB with true and with estimated behaviour")


def figure(rows: Rows) -> Any:
    """One row of panels per grid: CVaR 5 % and mean of the value against the number of episodes."""
    table = summary(rows)
    names = list(dict.fromkeys(table["contestant"]))
    figure, axes = plot.grid(len(GRIDS), 2, width=4.2)
    for row, name in zip(axes, GRIDS, strict=True):
        for axis, column, title in zip(row, ("cvar", "mean"), ("CVaR 5 %", "mean"), strict=True):
            draw(axis, table, name, column, names)
            axis.set_title(f"{name}: {title} of the value")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "behavior", "What does SPIBB lose when the behaviour must be estimated?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
