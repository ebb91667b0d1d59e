"""The intervals experiment: how often the intervals of `dprl.evaluate` contain the truth.

For every log a policy is evaluated that was learned from another log of the same world and whose
true gain is known. A 95 % interval should contain the true gain in 95 of 100 logs. The
worlds are those of `dprl.envs.hard`, which were made without looking at how estimators work. In the
rooms grid it cannot: hardly any episode follows the suggestions through all four doors, so that
there is no interval, and the evaluation says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.envs.gridworld import rooms
from dprl.envs.hard import WORLDS, Listed, MarkovWorld
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation.estimators import ESTIMATORS
from dprl.evaluation.result import ENOUGH
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.reading.tables import Row, Rows
from dprl_studies.harness import Experiment, Setting, by, plain_page, table_of
from dprl_studies.paper.claims import clopper_pearson

PLACES = (
    "care pathway, 1000", "forest, 500", "habits, 1500", "near ties, 3000",
    "trial one arm worse, 2100", "patients effect, 60 x 20", "heavy tails labels effect, 800",
    "wet chicken, 1000", "doses labels, 1000 x 4", "rooms, 500",
)  # fmt: skip
"""Worlds of `dprl.envs.hard` over labels whose assumptions evaluations make, and the rooms grid.
Worlds over features take a hundred times as long: the claims have them, with fewer logs."""
FIRST, LOGS, BLOCK, DRAWS, LEVEL, N_MIN = 50_000, 200, 20, 500, 0.95, 20


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per world and block of logs; `quick` takes fewer logs."""
    logs, block = (2, 2) if quick else (LOGS, BLOCK)
    begin = FIRST + LOGS * seed
    return [
        {"world": world, "first": begin + i, "last": begin + min(i + block, logs)}
        for world in PLACES
        for i in range(0, logs, block)
    ]


def _place(name: str) -> Listed:
    if name == "rooms, 500":
        return Listed(lambda: MarkovWorld("rooms", rooms()), 500)
    return WORLDS[name]


def run(setting: Setting) -> list[Row]:
    """One row per log and estimator."""
    place = _place(setting["world"])
    world, rows = place.make(), []
    for log in range(setting["first"], setting["last"]):
        held_out = world.sample(place.groups, seed=2 * log + 1)
        train = world.sample(place.groups, seed=2 * log)
        policy = DPRLDiscrete(n_min=N_MIN, gamma=world.gamma, cut="terminal").fit(train)
        truth = world.gain(policy)
        evaluation = evaluate(policy, held_out, level=LEVEL, draws=DRAWS, seed=log)
        for name in ESTIMATORS:
            e = evaluation[name]
            rows.append(
                {
                    "world": setting["world"], "log": log, "estimator": name,
                    "leads": name == evaluation.headline, "truth": truth.value,
                    "error": truth.error, "difference": e["difference"],
                    "difference_low": e["difference_low"],
                    "difference_high": e["difference_high"],
                    "ess": evaluation.facts["ess_differs"],
                    "unsupported": evaluation.facts["unsupported"],
                }
            )  # fmt: skip
    return rows


def summary(rows: Rows) -> Table:
    """One row per world and estimator: coverage where the effective sample is enough, and width."""
    off = 3 * rows["error"]  # of the truth, where it is simulated
    with np.errstate(invalid="ignore"):
        held = rows["difference_low"] - off <= rows["truth"]
        held &= rows["truth"] <= rows["difference_high"] + off
    told = {
        **rows, "held": held, "missed": rows["difference"] - rows["truth"],
        "width": rows["difference_high"] - rows["difference_low"],
    }  # fmt: skip
    lines = []
    for (world, name), part in by(told, "world", "estimator"):
        exists = np.isfinite(part["difference_low"])
        use = exists & (part["ess"] >= ENOUGH)
        some = use.any()
        lines.append({
            "world": world, "estimator": name, "leads": bool(part["leads"].any()),
            "coverage": float(part["held"][use].mean()) if some else np.nan,
            "coverage_all": float(part["held"][exists].mean()) if exists.any() else np.nan,
            "bias": float(part["missed"][use].mean()) if some else np.nan,
            "width": float(part["width"][use].mean()) if some else np.nan,
            "counted": int(use.sum()), "exists": float(exists.mean()), "logs": len(exists),
            "ess": float(np.median(part["ess"])),
        })  # fmt: skip
    return table_of(
        lines,
        f"Share of logs whose {100 * LEVEL:g} % interval of the difference holds the truth",
        "coverage, bias (mean error) and width: of the `counted` logs that have an interval and an "
        f"effective sample size where it matters of at least {ENOUGH}; coverage_all: of all that "
        "have an interval, a share `exists`; ess: median of that size; leads: the estimator that "
        "`dprl.evaluate` shows first.",
    )


def brief(table: Table) -> Table:
    """The estimators that lead."""
    names = ("world", "estimator", "coverage", "bias", "width", "counted", "exists", "ess")
    lines = [{k: row[k] for k in names} for row in table if row["leads"]]
    return table_of(lines, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """Coverage of each estimator's interval by world, where the effective sample is enough."""
    every = summary(rows)
    enough = min(5, max(every["counted"]))  # a quick look has fewer logs
    table = [row for row in every if row["counted"] >= enough]
    worlds = list(dict.fromkeys(row["world"] for row in table))
    figure, axes = plot.grid(1, 1, width=7.2, height=0.32 * len(worlds) + 1.4)
    axis = axes[0, 0]
    shown = {"WIS": "#999999", "WPDIS": "#e69f00", "DR": "#56b4e9", "WDR": "#0072b2"}
    for k, (name, color) in enumerate(shown.items()):
        mine = [row for row in table if row["estimator"] == name]
        y = np.array([worlds.index(row["world"]) for row in mine]) + 0.16 * (k - 1.5)
        x = np.array([row["coverage"] for row in mine])
        ends = [
            clopper_pearson(round(row["coverage"] * row["counted"]), row["counted"]) for row in mine
        ]
        error = np.abs(np.array(ends).reshape(-1, 2).T - x)
        axis.errorbar(x, y, xerr=error, fmt="o", ms=3.5, color=color, label=name)
    axis.axvline(LEVEL, color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
    axis.set_yticks(range(len(worlds)), worlds)
    axis.set_ylim(len(worlds) - 0.5, -0.5)
    axis.set(xlim=(-0.03, 1.03), xlabel="coverage")
    logs = max(row["logs"] for row in every)
    plot.caption(
        figure,
        f"{logs:,} logs a world; of those with an effective sample of {ENOUGH} or more. "
        "Whiskers: 95 % Clopper-Pearson.",
    )
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


EXPERIMENT = Experiment(
    "intervals", "How often do the intervals of an evaluation hold the truth?",
    settings, run, summary, figure, brief, plain_page(summary, brief),
)  # fmt: skip
