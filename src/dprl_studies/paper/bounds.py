"""The bounds experiment: what the published guarantees say about a policy of DPRL.

The problems are forests of 10 to 50 chains, with 10,000 episodes in each log, and the grids *rooms*
and *open* with 1,000; n_min is 1, 10 or 100. Each guarantee is a lower bound on the gain over usual
practice. Returns lie in [0, 1] in the forest and in [0, 1.5] on a grid, so no policy can lose more
than that: a bound below says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.certificate.bounds import published
from dprl.envs import forest, open_grid, rooms
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.censoring import treat_cut
from dprl.logs.reading.tables import Row, Rows
from dprl_studies.harness import Experiment, Setting, by, table_of

CHAINS, N_MIN, EPISODES, TRIALS, B, DELTA = (10, 20, 30, 50), (1, 10, 100), 10_000, 50, 0.02, 0.05
GRIDS = {"rooms": rooms, "open": open_grid}
HIGHEST = 1.5
"""The highest return on a grid; in the forest it is 1."""

WALKS, FEWER = 1_000, 10
"""Episodes of a log, and logs, on a grid, whose episodes are about ten times as long."""
COLORS = {
    "DPRL": "#0072b2",
    "SPIBB T": "#d55e00",
    "SPIBB, two successors, beta": "#56b4e9",
    "SPIBB, two": "#e69f00",
    "PQI": "#009e73",
    "Count-MORL": "#cc79a7",
}


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per problem and n_min, with 50 logs each, 10 on grids (5 and 1 if `quick`)."""

    def logs(number: int) -> Setting:
        return {"first": number * seed, "last": number * seed + (number // 10 if quick else number)}

    forests = [{"chains": k, "n_min": n, **logs(TRIALS)} for k in CHAINS for n in N_MIN]
    return forests + [{"grid": g, "n_min": n, **logs(FEWER)} for g in GRIDS for n in N_MIN]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: all bounds for the policy learned from each log."""
    grid = setting.get("grid")
    mdp = GRIDS[grid]() if grid else forest(chains=setting["chains"])
    learner = DPRLDiscrete(n_min=setting["n_min"], gamma=mdp.gamma)
    rows = []
    for trial in range(setting["first"], setting["last"]):
        log = mdp.sample(WALKS if grid else EPISODES, seed=trial)
        log = treat_cut(log, mdp.gamma, "terminal")
        policy = learner.fit(log)
        gain = mdp.value(policy) - mdp.value()
        table = published(
            log, policy, n_min=setting["n_min"], gamma=mdp.gamma,
            v_max=HIGHEST if grid else 1.0, delta=DELTA, b=B,
        )  # fmt: skip
        rows += [
            {
                "problem": mdp.name, "states": len(mdp.states), "n_min": setting["n_min"],
                "trial": trial, "bound": row["bound"], "value": row["value"],
                "trivial": row["trivial"], "vacuous": bool(row["vacuous"]), "true_gain": gain,
            }
            for row in table
        ]  # fmt: skip
    return rows


def summary(rows: Rows) -> Table:
    """One row per problem, n_min, number of states and bound: the median over the logs."""
    lines = [
        {
            "problem": problem, "n_min": n_min, "states": states, "bound": bound,
            "median": float(np.median(part["value"])), "trivial": float(part["trivial"][0]),
            "vacuous": float(part["vacuous"].mean()), "true_gain": float(part["true_gain"].mean()),
        }
        for (problem, n_min, states, bound), part in by(rows, "problem", "n_min", "states", "bound")
    ]  # fmt: skip
    lines.sort(key=lambda line: (line["problem"], line["n_min"], line["states"]))
    return table_of(
        lines,
        "Published lower bounds on the gain over usual practice: forest, "
        f"{EPISODES:,} episodes, and grids, {WALKS:,}",
        "median over trials; vacuous: share of trials in which the bound says no more than "
        "the trivial one; true_gain: what the policy really gains, on average.",
    )


def brief(table: Table) -> Table:
    """Medians only: one row per problem, number of states and bound, one column per n_min."""
    cells = {(r["problem"], r["states"], r["bound"], r["n_min"]): r["median"] for r in table}
    lines = [
        {"problem": problem, "states": states, "bound": bound,
         **{f"n_min = {n}": cells.get((problem, states, bound, n), np.nan) for n in N_MIN}}
        for problem, states, bound in dict.fromkeys(key[:3] for key in cells)
    ]  # fmt: skip
    return table_of(lines, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """One panel per n_min: the guaranteed loss against the number of states, on a log scale."""
    table = summary(rows)
    figure, axes = plot.grid(1, len(N_MIN), width=3.6, height=3.6)
    for axis, n_min in zip(axes[0], N_MIN, strict=True):
        panel = [row for row in table if row["n_min"] == n_min and row["problem"] == "forest"]
        for bound in dict.fromkeys(row["bound"] for row in panel):
            line = [row for row in panel if row["bound"] == bound]
            color = next((c for name, c in COLORS.items() if bound.startswith(name)), "#777777")
            x, y = [r["states"] for r in line], [-r["median"] for r in line]
            axis.plot(x, y, marker="o", ms=4, color=color, label=bound)
            ends = [
                np.quantile(part["value"], (0.025, 0.975))
                for states in x
                for part in [_of(rows, problem="forest", n_min=n_min, bound=bound, states=states)]
            ]
            axis.fill_between(x, *(-np.array(ends).T), color=color, alpha=0.15, linewidth=0)
        plot.reference(axis, 1.0, "trivial: below this line nothing is said")
        axis.set(yscale="log", xlabel="states", title=f"n_min = {n_min}")
        axis.invert_yaxis()
    axes[0, 0].set_ylabel("guaranteed loss (log scale, less is up)")
    logs = len(set(rows["trial"][rows["problem"] == "forest"].tolist()))
    plot.caption(figure, f"Medians over {logs:,} logs of the forest, bands: their 2.5 to 97.5 %.")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


def _of(rows: Rows, **where: Any) -> Rows:
    """The rows with these values."""
    at = np.logical_and.reduce([rows[name] == value for name, value in where.items()])
    return {name: column[at] for name, column in rows.items()}


EXPERIMENT = Experiment(
    "bounds", "Which of the published guarantees says anything at all?",
    settings, run, summary, figure, brief,
)  # fmt: skip
