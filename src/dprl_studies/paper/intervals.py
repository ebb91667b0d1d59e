"""The intervals experiment: how often the intervals of `dprl.evaluate` contain the truth.

For every log a policy is learned from another log of the same problem and evaluated on this one;
its true value is known exactly. A 95 % interval should contain the true value in 95 of 100 logs. In
the rooms grid it cannot: hardly any episode follows the suggestions through all four doors, so the
effective sample size of the episodes that the policy would change is near 0. The evaluation warns
of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.envs.care import care_pathway
from dprl.envs.forest import forest
from dprl.envs.gridworld import rooms
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation.estimators import ESTIMATORS
from dprl.evaluation.result import ENOUGH
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.reading.tables import Row, Rows
from dprl_studies.harness import Experiment, Setting, by, table_of

WORLDS = {"forest": (forest, 20), "care pathway": (care_pathway, 50), "rooms": (rooms, 20)}
SIZES = {"forest": (200, 1_000), "care pathway": (200, 1_000), "rooms": (500,)}
TRAIN, LOGS, BLOCK, DRAWS, LEVEL = 1_000, 300, 25, 1_000, 0.95


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per problem, log size and block of logs; `quick` takes fewer logs."""
    logs, block = (20, 10) if quick else (LOGS, BLOCK)
    return [
        {"world": world, "episodes": n, "first": LOGS * seed + i,
         "last": LOGS * seed + min(i + block, logs)}
        for world, sizes in SIZES.items()
        for n in sizes
        for i in range(0, logs, block)
    ]  # fmt: skip


def run(setting: Setting) -> list[Row]:
    """One row per log, estimator, and behaviour policy (estimated from the log, or given)."""
    make, n_min = WORLDS[setting["world"]]
    mdp = make()
    learner = DPRLDiscrete(n_min=n_min, gamma=mdp.gamma, cut="terminal")
    rows = []
    for log in range(setting["first"], setting["last"]):
        policy = learner.fit(mdp.sample(TRAIN, seed=2 * log))
        held_out = mdp.sample(setting["episodes"], seed=2 * log + 1)
        truth, usual = mdp.value(policy), mdp.value()
        for how, behavior in (("estimated", None), ("given", mdp.behavior)):
            evaluation = evaluate(
                policy, held_out, behavior=behavior, level=LEVEL, draws=DRAWS, seed=log
            )
            for name in ESTIMATORS:
                e = evaluation[name]
                rows.append(
                    {
                        "world": setting["world"], "episodes": setting["episodes"], "log": log,
                        "behavior": how, "estimator": name, "truth": truth, "usual": usual,
                        "value": e["value"], "value_low": e["value_low"],
                        "value_high": e["value_high"], "difference": e["difference"],
                        "difference_low": e["difference_low"],
                        "difference_high": e["difference_high"],
                        "ess_change": evaluation.facts["ess_change"],
                        "followers": evaluation.facts["followers_change"],
                    }
                )  # fmt: skip
    return rows


def summary(rows: Rows) -> Table:
    """One row per problem, log size, behaviour and estimator: coverage, bias and width."""
    gain = rows["truth"] - rows["usual"]
    with np.errstate(invalid="ignore"):
        held = (rows["difference_low"] <= gain) & (gain <= rows["difference_high"])
        held_value = (rows["value_low"] <= rows["truth"]) & (rows["truth"] <= rows["value_high"])
    told = {
        **rows, "held": held, "held_value": held_value, "error": rows["difference"] - gain,
        "width": rows["difference_high"] - rows["difference_low"],
    }  # fmt: skip
    lines = []
    for (world, n, how, name), part in by(told, "world", "episodes", "behavior", "estimator"):
        exists = np.isfinite(part["difference_low"])
        some = exists.any()
        lines.append({
            "world": world, "episodes": n, "behavior": how, "estimator": name,
            "coverage": float(part["held"][exists].mean()) if some else np.nan,
            "coverage_value": float(part["held_value"][exists].mean()) if some else np.nan,
            "bias": float(np.nanmean(part["error"][exists])) if some else np.nan,
            "width": float(part["width"][exists].mean()) if some else np.nan,
            "exists": float(exists.mean()), "logs": len(exists),
            "ess_change": float(np.median(part["ess_change"])),
        })  # fmt: skip
    return table_of(
        lines,
        f"Share of logs whose {100 * LEVEL:g} % interval holds the truth",
        "coverage: of the difference to usual practice; coverage_value: of the policy's value;"
        " bias: mean error of the difference; exists: share of logs for which there is an interval "
        "(coverage is over these); ess_change: median effective sample size where it matters.",
    )


def brief(table: Table) -> Table:
    """The rows whose behaviour policy is estimated from the log, as it is for most users."""
    names = ("world", "episodes", "estimator", "coverage", "bias", "width", "ess_change")
    lines = [{k: row[k] for k in names} for row in table if row["behavior"] == "estimated"]
    return table_of(lines, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """One panel per problem and log size: coverage of each estimator's interval."""
    table = summary(rows)
    cases = [(world, n) for world, sizes in SIZES.items() for n in sizes]
    figure, axes = plot.grid(1, len(cases), width=2.6, height=3.2)
    for axis, (world, n) in zip(axes[0], cases, strict=True):
        for k, (how, marker) in enumerate((("estimated", "o"), ("given", "D"))):
            series = [
                r for r in table
                if (r["world"], r["episodes"], r["behavior"]) == (world, n, how)
            ]  # fmt: skip
            y = np.array([r["coverage"] for r in series], float)
            N = max(series[0]["logs"], 1)
            error = 2 * np.sqrt(np.clip(y * (1 - y), 0, None) / N)
            place = np.arange(len(series)) + 0.2 * (k - 0.5)
            axis.errorbar(
                y, place, xerr=error, fmt=marker, ms=4, color=("#0072b2", "#d55e00")[k],
                label=f"behaviour {how}",
            )  # fmt: skip
        axis.axvline(LEVEL, color="#333333", lw=1, ls=(0, (4, 3)), zorder=1)
        axis.set_yticks(range(len(ESTIMATORS)), [*ESTIMATORS] if axis is axes[0, 0] else [])
        axis.set_ylim(len(ESTIMATORS) - 0.5, -0.5)
        ess = series[0]["ess_change"]
        axis.set_title(f"{world}, {n:,} episodes\nESS where it matters {ess:.0f}", fontsize=8.5)
        axis.set(xlim=(-0.03, 1.03), xlabel="coverage")
        if ess < ENOUGH:
            axis.set_facecolor("#f6f1ea")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8,
        title=f"shaded: rests on fewer than {ENOUGH}, and says so", title_fontsize=8,
    )  # fmt: skip
    return figure


EXPERIMENT = Experiment(
    "intervals", "How often do the intervals of an evaluation hold the truth?",
    settings, run, summary, figure, brief,
)  # fmt: skip
