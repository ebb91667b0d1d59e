"""The confident learner's own claims: its bound, and what happens where the state is not enough.

For every log: the gain that the learner states, the lower end that ignores the choice, the bound
that pays for it, and the gain in truth. And the delayed world, in which the state hides what an
action does later: how often each kind of evidence suggests harm, and how often the check of the
state says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.envs import (
    care_pathway,
    delayed,
    forest,
    icu_sepsis,
    open_grid,
    random_mdp,
    risky_arms,
    rooms,
    soft,
)
from dprl.learners.confident import Confident
from dprl.logs.reading.tables import Row, Rows
from dprl.planning.advantages import Gain
from dprl.planning.markov import markov_check
from dprl_studies.harness import Experiment, Setting, by, table_of
from dprl_studies.paper.claims import clopper_pearson
from dprl_studies.paper.contest import blocks, mdp_seed

WORLDS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "rooms": (rooms, (10, 50, 100)),
    "open": (open_grid, (50, 100)),
    "soft": (soft, (10, 50, 100)),
    "forest": (forest, (100, 500)),
    "risky arms": (risky_arms, (100, 500)),
    "care pathway": (care_pathway, (200, 500)),
    "random MDPs": (random_mdp, (100,)),
    "ICU-Sepsis": (icu_sepsis, (5_000,)),
}
"""World → the problem and the numbers of episodes in a log."""

RISKS = (0.01, 0.05)
KINDS: dict[str, Setting] = {
    "model": {"evidence": "model"},
    "model, veto": {"evidence": "model", "veto": True},
    "excursions": {"evidence": "excursions"},
    "returns": {"evidence": "returns"},
}
"""What is tried in the delayed world."""


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per world, size and block of data sets; `quick` takes fewer of each."""
    worlds = ("rooms", "risky arms") if quick else tuple(WORLDS)
    tasks = []
    for world in worlds:
        datasets = 8 if quick else 8 if world == "ICU-Sepsis" else 400
        for n in WORLDS[world][1][:1] if quick else WORLDS[world][1]:
            tasks += blocks({"world": world, "n": n}, datasets, seed)
    return tasks + blocks({"world": "delayed", "n": 200}, 8 if quick else 200, seed)


def run(setting: Setting) -> list[Row]:
    """The rows of one task: each data set at each risk, or with each kind of evidence."""
    rows = []
    for dataset in range(setting["first"], setting["last"]):
        seed = mdp_seed(setting, dataset)
        if setting["world"] == "delayed":
            rows += _hidden(setting, dataset, seed)
            continue
        make = WORLDS[setting["world"]][0]
        mdp = make(1_000 * setting["seed"] + dataset % 20) if make is random_mdp else make()
        log, usual = mdp.sample(setting["n"], seed=seed), mdp.value()
        for risk in RISKS:
            learner = Confident(
                gamma=mdp.gamma, risk=risk, promise=False, cut="terminal", check=False
            )
            policy = learner.fit(log)
            facts = policy.gain or {}
            plain = np.nan
            if facts:
                plain = Gain(facts["estimate"], facts["se"], facts["df"]).low(risk)
            rows.append({
                "world": setting["world"], "n": setting["n"], "dataset": dataset, "risk": risk,
                "kind": "model", "issued": bool(facts), "harmful": False,
                "estimate": facts.get("estimate", np.nan), "plain": plain,
                "bound": facts.get("low", np.nan), "gain": mdp.value(policy) - usual,
                "warned": False,
            })  # fmt: skip
    return rows


def _hidden(setting: Setting, dataset: int, seed: int) -> list[Row]:
    """The delayed world with each kind of evidence."""
    world = delayed()
    log, rows = world.sample(setting["n"], seed=seed), []
    warned = not markov_check(log, world.gamma).ok
    for kind, options in KINDS.items():
        learner = Confident(
            gamma=world.gamma, risk=0.01, promise=False, splits=0, check=False, **options
        )
        policy = learner.fit(log)
        gain = world.value(policy) - world.value()
        rows.append({
            "world": "delayed", "n": setting["n"], "dataset": dataset, "risk": 0.01, "kind": kind,
            "issued": bool((policy.choice >= 0).any()), "harmful": gain < -1e-9,
            "estimate": np.nan, "plain": np.nan, "bound": np.nan, "gain": gain,
            "warned": warned,
        })  # fmt: skip
    return rows


def summary(rows: Rows) -> Table:
    """One row per world, size, risk and kind: how often each bound is above the truth."""
    lines = []
    for (world, n, risk, kind), part in by(rows, "world", "n", "risk", "kind"):
        issued = np.asarray(part["issued"], bool)
        gain = part["gain"][issued]
        stated = issued & np.isfinite(part["bound"])
        share = part["bound"][stated] / part["gain"][stated]
        lines.append({
            "world": world, "n": n, "risk": risk, "kind": kind,
            "logs": len(issued), "issued": float(np.mean(part["issued"])),
            "gain": float(np.median(gain)) if len(gain) else np.nan,
            "plain_above": _share(part["plain"] > part["gain"], part["plain"]),
            "bound_above": _share(part["bound"] > part["gain"], part["bound"]),
            "vouched": float(np.median(share)) if len(share) else np.nan,
            "harmful": float(np.mean(part["gain"] < -1e-9)),
            "warned": float(np.mean(part["warned"])),
        })  # fmt: skip
    return table_of(
        lines,
        "The confident learner: what it states, and the truth",
        "issued: share of logs in which it suggests anything; gain: median true gain there; "
        "plain_above, bound_above: share of all logs in which the lower end that ignores the "
        "choice, and the bound that is printed, lie above the true gain; vouched: median of bound "
        "/ true gain; harmful: share of logs whose policy is worse than usual practice; warned: "
        "share in which the check of the state speaks up (delayed world).",
    )


def _share(above: Any, stated: Any) -> float:
    """The share of logs in which a stated bound lies above; NaN where none is stated."""
    return float(np.mean(above)) if np.isfinite(stated).any() else np.nan


def figure(rows: Rows) -> Any:
    """Left: how often each bound is above the truth. Right: the share of the gain vouched for."""
    table = summary(rows)
    lines = [r for r in table if r["world"] != "delayed" and r["risk"] == RISKS[0]]
    names = [f"{r['world']}, {r['n']:,}" for r in lines]
    at = np.arange(len(lines))
    figure, axes = plot.grid(1, 2, width=4.8, height=4.2)
    left, right = axes[0]
    for shift, column, words, color in (
        (-0.2, "plain_above", "ignores the choice", "#d55e00"),
        (0.2, "bound_above", "pays for the choice", "#0072b2"),
    ):
        share = np.nan_to_num([r[column] for r in lines])
        counts = [(round(s * r["logs"]), r["logs"]) for s, r in zip(share, lines, strict=True)]
        error = np.abs(np.array([clopper_pearson(*count) for count in counts]).T - share)
        left.barh(at + shift, share, 0.38, xerr=error, error_kw={"lw": 0.8, "ecolor": "#555555"},
                  label=words, color=color)  # fmt: skip
    left.axvline(RISKS[0], color="black", lw=1)
    left.set(yticks=at, yticklabels=names, title=f"bound above the truth, risk {RISKS[0]:g}")
    left.invert_yaxis()
    left.legend(fontsize=7.5)
    right.barh(at, np.maximum([r["vouched"] for r in lines], 0), 0.6, color="#0072b2")
    right.axvline(0.5, color="black", lw=1, ls="--")
    right.set(yticks=at, yticklabels=[""] * len(at), xlim=(0, 1),
              title="median share of the true gain vouched for")  # fmt: skip
    right.invert_yaxis()
    few, most = min(r["logs"] for r in lines), max(r["logs"] for r in lines)
    plot.caption(
        figure,
        f"{most:,} logs a line{f' ({few:,} at least)' * (few < most)}. Whiskers: 95 % "
        "Clopper-Pearson.",
    )
    return figure


EXPERIMENT = Experiment(
    "confident", "Does the confident learner's bound hold, and what does it vouch for?",
    settings, run, summary, figure,
)  # fmt: skip
