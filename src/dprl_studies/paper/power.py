"""The power experiment: who proves an improvement, from how many episodes on, and is it one?

The gate takes any learner's policy. Here it certifies suggestions of SPIBB, beside high-confidence
policy improvement (HCPI), which tests a policy as a whole by importance sampling, and the confident
learner's bound; all at the same δ, on the same logs. What is called proved holds for samples of any
size and knows the range of returns, the rest are approximations. HCPI is given the true behaviour,
as its paper has it; so where it falls back to that, practice goes on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl import envs
from dprl._core import plot
from dprl._core.table import Table
from dprl.apps.contest import METRICS, contest
from dprl.baselines import HCPI, SPIBB
from dprl.certificate import gate
from dprl.learners.confident import Confident
from dprl.logs.log import Log
from dprl.logs.reading.tables import Row, Rows
from dprl_studies.harness import Experiment, Setting, by, plain_page, table_of

DELTA, BLOCK = 0.05, 20
LOGS = {50: 400, 100: 400, 200: 400, 500: 400, 1_000: 200, 2_000: 100, 5_000: 100}
"""Number of episodes → how many logs; the large ones are dear."""


@dataclass(frozen=True)
class Gated:
    """A learner whose suggestions the gate certifies, as one learner.

    Attributes:
        learner: The learner that proposes.
        given: Arguments of `dprl.gate`.

    Example:
        >>> log = envs.care_pathway().sample(2_000, seed=0)
        >>> Gated(SPIBB(gamma=1.0, n_min=10), LARGE).fit(log).act("fever")
        'antibiotics'
    """

    learner: Any
    given: dict[str, Any]

    def fit(self, log: Log) -> Any:
        """The certified part of what the learner suggests.

        Args:
            log: The log.

        Returns:
            The gated policy.

        Example:
            >>> log = envs.care_pathway().sample(2_000, seed=0)
            >>> Gated(SPIBB(gamma=1.0, n_min=10), LARGE).fit(log).certificate.grade
            'large-sample'
        """
        return gate(self.learner, log, delta=DELTA, **self.given)


WORLDS: dict[str, Callable[[], Any]] = {
    "care pathway": envs.care_pathway, "risky arms": envs.risky_arms, "forest": envs.forest,
    "small grid": envs.small_grid,
}  # fmt: skip
"""Name → problem; returns lie between 0 and 1 in all."""
LARGE: dict[str, Any] = {"grade": "large-sample"}
PROVED: dict[str, Any] = {"value_range": (0.0, 1.0)}
LEARNERS: dict[str, Callable[[Any], Any]] = {
    "gate": lambda w: Gated(SPIBB(gamma=w.gamma, n_min=10), LARGE),
    "HCPI": lambda w: HCPI(gamma=w.gamma, delta=DELTA, behavior=w.behavior),
    "gate, proved": lambda w: Gated(SPIBB(gamma=w.gamma, n_min=10), PROVED),
    "HCPI, proved": lambda w: HCPI(
        gamma=w.gamma, delta=DELTA, bound="concentration", behavior=w.behavior, **PROVED
    ),
    "Confident": lambda w: Confident(gamma=w.gamma, risk=DELTA),
}
"""Name → from a problem to the learner."""


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per problem, size and block of logs."""
    logs = dict.fromkeys(list(LOGS)[:5], 4) if quick else LOGS
    return [
        {"world": world, "n": n, "seed": seed, "first": first, "last": min(first + BLOCK, logs[n])}
        for first in range(0, max(logs.values()), BLOCK)
        for n in logs
        for world in WORLDS
        if first < logs[n]
    ]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: a row per log and learner, as `dprl.contest` makes them."""
    found = contest(
        {setting["world"]: WORLDS[setting["world"]]}, LEARNERS, sizes=[setting["n"]],
        datasets=range(setting["first"], setting["last"]), seed=setting["seed"],
    )  # fmt: skip
    kept = ("problem", "n", "dataset", "learner", "value", "practice", "best", "changed", "failed")
    return [{name: row[name] for name in kept} for row in found.rows]


def summary(rows: Rows) -> Table:
    """One row per problem, size and learner."""
    lines = []
    for (problem, n, learner), part in by(rows, "problem", "n", "learner"):
        own = [
            dict(zip(part, values, strict=True))
            for values in zip(*(column.tolist() for column in part.values()), strict=True)
        ]
        lines.append({
            "problem": problem, "n": n, "learner": learner, "logs": len(own),
            "issued": float(np.mean(np.abs(part["value"] - part["practice"]) > 1e-9)),
            "gain": METRICS["mean"](own), "below": METRICS["below"](own),
            "failed": float(np.mean(part["failed"] != "")),
        })  # fmt: skip
    return table_of(
        lines, f"Who proves an improvement, at δ = {DELTA:g}",
        "issued: share of logs in which what is issued is better or worse than practice; gain: "
        "mean of the true gain over all logs, in shares of what the best policy gains; below: "
        "share of logs in which what is issued is worse than practice, δ at most if the claim "
        "holds; failed: share of logs on which it could not learn.",
    )  # fmt: skip


def brief(table: Table) -> Table:
    """One row per problem and learner: the gain at every size, and the worst share below."""
    cells = {(r["problem"], r["learner"], r["n"]): r for r in table}
    lines = []
    for problem, learner in dict.fromkeys((a, b) for a, b, _ in cells):
        own = {n: r for (a, b, n), r in cells.items() if (a, b) == (problem, learner)}
        lines.append({
            "problem": problem, "learner": learner,
            **{f"{n:,}": own[n]["gain"] if n in own else np.nan for n in LOGS},
            "below": max(r["below"] for r in own.values()),
        })  # fmt: skip
    return table_of(lines, table.caption, "Mean gain by number of episodes; below: worst size.")


def figure(rows: Rows) -> Any:
    """A panel per problem: mean gain against the number of episodes, a line per learner."""
    table = summary(rows)
    problems = list(dict.fromkeys(table["problem"]))
    drawn, axes = plot.grid(1, len(problems), width=2.8, height=2.7)
    looks = plot.style(list(LEARNERS))
    for axis, problem in zip(axes[0], problems, strict=True):
        for name in LEARNERS:
            line = [r for r in table if (r["problem"], r["learner"]) == (problem, name)]
            x, y = [r["n"] for r in line], [r["gain"] for r in line]
            plot.curve(axis, x, y, y, y, name, looks[name])
        axis.set(xscale="log", ylim=(-0.1, 1.05), title=problem, xlabel="episodes in the log")
    axes[0, 0].set_ylabel("mean gain, in shares of the best")
    drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    logs = sorted({r["logs"] for r in table})
    number = f"{logs[0]:,} to {logs[-1]:,}" if len(logs) > 1 else f"{logs[0]:,}"
    plot.caption(
        drawn, f"True gain of what is issued at δ = {DELTA:g}: means over {number} logs a point."
    )
    return drawn


EXPERIMENT = Experiment(
    "power", "Who proves an improvement, from how many episodes on, and is it one?",
    settings, run, summary, figure, brief, plain_page(summary, brief),
)  # fmt: skip
