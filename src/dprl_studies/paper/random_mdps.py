"""Twenty random problems and the care pathway: problems nobody chose because they suit a method.

The problems are `dprl.envs.random_mdp(0)` to `(19)`; the rule by which they are drawn is in that
module. Each is scaled so that usual practice is worth 0 and the best policy 1, so that they can be
averaged: a value below 0 is worse than usual practice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.envs import care_pathway, random_mdp
from dprl.planning.finite_mdp import FiniteMDP
from dprl_studies.harness import Experiment, Row, Rows, Setting
from dprl_studies.paper.contest import SURE, blocks, pivot, rows_of, summarise
from dprl_studies.paper.lines import draw

__all__ = ["EXPERIMENT"]

PROBLEMS, SIZES = 20, (20, 50, 100, 200, 500)
"""How many random problems, and the numbers of episodes in a log."""

CONTESTANTS: tuple[Setting, ...] = (
    *SURE,
    *({"learner": "DPRL", "n_min": n, "contrast": c} for c in (True, False) for n in (5, 20)),
    *({"learner": "SPIBB", "n_min": n} for n in (5, 20)),
    *({"learner": "PQI", "b": b} for b in (0.002,)),
    *({"learner": "CQL", "alpha": a} for a in (0.01, 0.1)),
    {"learner": "BC"},
    {"learner": "RL"},
)
"""The learners that are compared, with their settings; see `dprl_studies.paper.contest`."""

CARE, RANDOM = "care pathway", "random MDPs"


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per problem, log size and block of data sets; `quick` takes fewer of each."""
    problems, sizes, datasets = (3, (20, 100), 10) if quick else (PROBLEMS, SIZES, 25)
    tasks = [
        task
        for number in range(problems)
        for n in sizes
        for task in blocks({"number": number, "n": n}, datasets, seed)
    ]
    care = (100,) if quick else (50, 100, 200, 500, 1_000)
    return tasks + [
        task for n in care for task in blocks({"number": -1, "n": n}, 25 if quick else 500, seed)
    ]


def problem(number: int) -> FiniteMDP:
    """Random problem `number`, or the care pathway for -1.

    The care pathway has γ = .999: without discount some learners' plans never end in it.
    """
    return replace(care_pathway(), gamma=0.999) if number < 0 else random_mdp(number)


def run(setting: Setting) -> list[Row]:
    """The rows of one task; random problems are scaled to 0 (usual practice) .. 1 (the best)."""
    mdp, number = problem(setting["number"]), setting["number"]
    rows = rows_of(replace(mdp, name=CARE if number < 0 else RANDOM), setting, CONTESTANTS)
    usual = mdp.value()
    best = mdp.value(np.eye(len(mdp.actions))[mdp.optimal[1]])
    for row in rows:
        row["number"] = number
        if number >= 0:
            row["value"] = (row["value"] - usual) / (best - usual)
            row["behavior"] = 0.0
    return rows


def summary(rows: Rows) -> Table:
    """One row per problem, log size and contestant: mean and CVaR 5 % of the exact value."""
    return summarise(rows, "Random MDPs (usual practice 0, best 1) and the care pathway")


def figure(rows: Rows) -> Any:
    """CVaR 5 % and mean of the value against the number of episodes, for both kinds of problem."""
    table = summary(rows)
    names = list(dict.fromkeys(table["contestant"]))
    kinds = [kind for kind in (RANDOM, CARE) if kind in table["problem"]]
    figure, axes = plot.grid(len(kinds), 2, width=4.4, height=3.6)
    for line, kind in zip(axes, kinds, strict=True):
        for axis, column, words in zip(line, ("cvar", "mean"), ("CVaR 5 %", "mean"), strict=True):
            draw(axis, table, kind, column, names)
            axis.set_title(f"{kind}: {words} of the value")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=7.5)
    return figure


EXPERIMENT = Experiment(
    "random-mdps", "Who improves on an expert in problems that nobody chose?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
