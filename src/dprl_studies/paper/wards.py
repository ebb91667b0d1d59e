"""How far estimates from logged decisions are from the truth, over simulated intensive-care wards.

The hypotension study has one ward, and one number beside the truth says little about an estimator.
Here every ward is simulated anew: patients are split as in the study, learners learn from a quarter
of them, and all estimators judge the policies on half of them. The truth is found by playing policy
and clinician among the same new patients. Treatment costs what `dprl.icu.Costs()` says.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.inference import LEVEL
from dprl._core.table import Table
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation.estimators import ESTIMATORS
from dprl.evidence.behavior import Behavior
from dprl.logs.reading.tables import Row, Rows
from dprl_studies import icu
from dprl_studies.harness import Experiment, Setting, by, plain_page, table_of
from dprl_studies.icu.simulation import true_value
from dprl_studies.paper.claims import clopper_pearson
from dprl_studies.paper.hypotension import FOLLOWED, GAMMA, label, learner

WARDS, STAYS, PLAYED = 20, 150, 400

JUDGED: tuple[Setting, ...] = (
    {"learner": "DPRL", "n_min": 10},
    *({"learner": "DPRL paper", "n_min": n} for n in (10, 30, 50)),
    {"learner": "BC"},
)  # fmt: skip
"""Learners whose policies are judged, with their settings: quick to learn, since most of a ward's
time goes to the model of how its patients were treated."""

SHOWN = 20.0
"""Errors beyond this are drawn at the edge of the figure."""


def ward(stays: int, seed: int, **preparing: Any) -> Any:
    """A simulated ward, split into logs for learning and for judging.

    Args:
        stays: How many stays to simulate.
        seed: Seed of the patients and of the split.
        **preparing: Further options of `dprl.icu.prepare`, such as the reward.

    Returns:
        What `dprl.icu.prepare` gives.

    Example:
        >>> ward(40, seed=0).train.features.shape[1]
        29
    """
    with tempfile.TemporaryDirectory() as folder:
        icu.simulate(Path(folder) / "tables", stays=stays, seed=seed)
        built = icu.build(Path(folder) / "tables", Path(folder) / "stays.parquet")
        return icu.prepare(icu.read_stays(built.path), seed=seed, costs=icu.Costs(), **preparing)


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per ward."""
    stays, played = (200, 100) if quick else (STAYS, PLAYED)
    return [
        {"ward": i, "stays": stays, "played": played, "quick": quick, "seed": seed}
        for i in range(2 if quick else WARDS)
    ]


def run(setting: Setting) -> list[Row]:
    """One row per contestant and estimator: what it said of the gain, and the true gain."""
    seed = 1_000 * setting["seed"] + setting["ward"]
    data = ward(setting["stays"], seed)
    behavior = Behavior.fit(data.test, seed=seed)
    play: dict[str, Any] = {"gamma": GAMMA, "stays": setting["played"], "seed": seed}
    usual = true_value(None, data.preparation, **play)[0]
    rows: list[Row] = []
    for contestant in JUDGED[:3:2] if setting["quick"] else JUDGED:
        policy = learner(contestant, data.train.n_steps, setting["quick"], seed).fit(data.train)
        said = evaluate(
            policy, data.test, gamma=GAMMA, cut="terminal", behavior=behavior, seed=seed
        )
        truth = true_value(policy, data.preparation, **play)[0] - usual
        for name in ESTIMATORS:
            told = said[name]
            rows.append({
                "ward": setting["ward"], "contestant": label(contestant), "estimator": name,
                "headline": name == said.headline, "truth": truth,
                **{k: told[k] for k in ("difference", "difference_low", "difference_high")},
                "ess_change": float(said.facts["ess_change"]),
                "changed": float(said.facts["changed"]), "seed": seed,
            })  # fmt: skip
    return rows


def _line(part: Rows) -> dict[str, Any]:
    """Error, bias and coverage of estimates, over those that exist."""
    error = np.asarray(part["difference"], np.float64) - np.asarray(part["truth"], np.float64)
    there = np.isfinite(error)
    low, high = (np.asarray(part[f"difference_{end}"], np.float64) for end in ("low", "high"))
    given = np.isfinite(low) & np.isfinite(high)
    held = given & (low <= part["truth"]) & (part["truth"] <= high)
    ends = clopper_pearson(int(held.sum()), int(given.sum())) if given.any() else (0.0, 1.0)
    return {
        "estimates": int(there.sum()),
        "error": float(np.sqrt((error[there] ** 2).mean())) if there.any() else np.nan,
        "bias": float(error[there].mean()) if there.any() else np.nan,
        "intervals": int(given.sum()),
        "coverage": float(held[given].mean()) if given.any() else np.nan,
        "coverage_low": float(ends[0]), "coverage_high": float(ends[1]),
        "width": float(np.median((high - low)[given])) if given.any() else np.nan,
    }  # fmt: skip


def summary(rows: Rows) -> Table:
    """One row per contestant and estimator, over the wards."""
    lines = []
    for (contestant, name), part in by(rows, "contestant", "estimator"):
        lines.append({
            "contestant": contestant, "estimator": name, "gain": float(np.mean(part["truth"])),
            "ess_change": float(np.median(part["ess_change"])), **_line(part),
        })  # fmt: skip
    return table_of(
        lines,
        f"Estimated against true gain in {len(set(rows['ward']))} simulated wards",
        f"gain: true, mean over wards; error: root mean square of estimate minus truth; coverage: "
        f"share of {100 * LEVEL:g} % intervals that hold the truth, with its Clopper-Pearson "
        f"interval; ess_change: median effective sample size where something changes; below "
        f"{FOLLOWED} an estimate rests on its model.",
    )


def brief(table: Table) -> Table:
    """The columns that fit on a screen."""
    names = ("contestant", "estimator", "gain", "error", "bias", "coverage", "width", "ess_change")
    return Table({n: table[n] for n in names}, table.caption, table.note)


def figure(rows: Rows) -> Any:
    """One panel per contestant: error of the estimators, a point per ward."""
    names = list(dict.fromkeys(rows["contestant"]))
    told = list(dict.fromkeys(rows["estimator"]))
    figure, axes = plot.grid(-(-len(names) // 3), 3, width=3.2, height=2.2)
    ink = plot.PALETTE["DPRL contrast"]
    for axis, contestant in zip(axes.flat, names, strict=False):
        mine = rows["contestant"] == contestant
        for y, name in enumerate(told):
            at = mine & (rows["estimator"] == name)
            error = np.asarray(rows["difference"][at] - rows["truth"][at], np.float64)
            shown = np.clip(error, -SHOWN, SHOWN)
            axis.plot(shown, np.full(error.size, y), "o", ms=3, alpha=0.5, color=ink)
        axis.axvline(0, color="#333333", lw=1)
        axis.set_yticks(range(len(told)), told)
        axis.set(title=contestant, xlim=(-SHOWN * 1.05, SHOWN * 1.05))
    for axis in list(axes.flat)[len(names) :]:
        axis.set_visible(False)
    wards = len(set(rows["ward"].tolist()))
    plot.caption(
        figure,
        f"Estimated less true gain, a point for each of {wards} simulated wards; beyond "
        f"±{SHOWN:g} at the edge.",
    )
    return figure


EXPERIMENT = Experiment(
    "wards", "How far are estimates from the truth in intensive care?",
    settings, run, summary, figure, brief, plain_page(summary, brief),
)  # fmt: skip
