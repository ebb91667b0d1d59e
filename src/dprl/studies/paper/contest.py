"""Many learners on many logs of one problem, each judged by its exact value.

Contestants are data: {"learner": name, settings...}. What they can share is computed once a log:
the evidence for DPRL, the maximum-likelihood MDP for its rivals.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.certificate._gate import gate
from dprl.evaluation import stats
from dprl.evidence.decision_points import allowed
from dprl.evidence.tabular import count
from dprl.learners.baselines import BC, CQL, PQI, RL, SPIBB
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._censoring import settle
from dprl.logs.log import Log
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.model import estimate
from dprl.studies.harness import Row, Rows, Setting

__all__ = ["BLOCK", "VALUES", "blocks", "compete", "label", "pivot", "rows_of", "summarise"]

BLOCK = 25
"""Datasets a task: small enough to lose little when killed, large enough to be worth a process."""

CUT: Final = "terminal"
"""Sampled episodes that reach the step limit; at gamma .99 after 500 steps little is lost."""


VALUES: Final = {
    "forest": (0.0, 1.0),
    "risky_arms": (0.0, 1.0),
    "small grid": (0.0, 1.0),
    "dense chain": (-0.8, 8.8),
}
"""Range of returns of each problem, as somebody who knows its rules would state it."""


def label(contestant: Setting) -> str:
    """What a contestant is called in tables and figures."""
    words = {k: v for k, v in contestant.items() if k != "learner"}
    name = str(contestant["learner"])
    if name == "gate":
        name = "DPRL gate"
    if name == "DPRL":
        rule = "contrast" if words.pop("contrast") else "paper"
        name = f"DPRL {rule}"
    return name + "".join(f", {k} {v}" for k, v in words.items())


def blocks(base: Setting, datasets: int, seed: int) -> list[Setting]:
    """The setting cut into tasks of BLOCK datasets."""
    return [
        {**base, "seed": seed, "first": i, "last": min(i + BLOCK, datasets)}
        for i in range(0, datasets, BLOCK)
    ]


def mdp_seed(setting: Setting, dataset: int) -> int:
    """The seed of one dataset: its own for every size and seed, shared by all contestants."""
    words = [dataset, int(setting["n"]), int(setting.get("seed", 0))]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def compete(
    mdp: FiniteMDP, log: Log, contestants: Sequence[Setting]
) -> list[tuple[NDArray[np.float64], dict[str, Any]]]:
    """π (S, A) of each contestant, deferrals resolved to the true behaviour, and what it noted.

    A contestant plans with the problem's gamma unless its settings name another.
    """
    shared = functools.cache(lambda gamma: (count(log, gamma), estimate(log, gamma, CUT)))
    answers = []
    for contestant in contestants:
        words = {k: v for k, v in contestant.items() if k != "learner"}
        words.setdefault("gamma", mdp.gamma)
        (known, occurrences), model = shared(words["gamma"])
        notes: dict[str, Any] = {"points": 0, "changes": 0}
        match contestant["learner"]:
            case "DPRL":
                learner = DPRLDiscrete(cut=CUT, **words)
                pairs = allowed(known, learner.n_min, contrast=learner.contrast)
                choice, _ = learner.choose(log, known, occurrences, pairs)
                speaks = np.flatnonzero(choice >= 0)
                pi = mdp.behavior.copy()
                pi[speaks] = np.eye(log.n_actions)[choice[speaks]]
                usual = known.took.n[speaks].argmax(axis=1)
                notes = {"points": len(speaks), "changes": int((choice[speaks] != usual).sum())}
                notes["pairs"], notes["choice"] = pairs, choice
            case "gate":
                learner = DPRLDiscrete(cut=CUT, n_min=words["n_min"], gamma=words["gamma"])
                gated = gate(
                    learner, log, value_range=VALUES[mdp.name], mode=words["mode"],
                    states_fixed=words["mode"] == "in-sample",
                )  # fmt: skip
                pi = mdp._matrix(gated)
                notes = {"points": int((gated.kind > 0).sum()),
                         "changes": int((gated.kind == 2).sum())}  # fmt: skip
            case "BC":
                pi = BC().plan(model)
            case "RL":
                pi = RL(cut=CUT, **words).plan(model)
            case "SPIBB":
                if words.pop("behavior", None) == "true":
                    words["behavior"] = mdp.behavior
                pi = SPIBB(cut=CUT, **words).plan(model)
            case "PQI":
                pi = PQI(cut=CUT, **words).plan(model)
            case "CQL":
                pi = CQL(cut=CUT, **words).plan(model)
            case other:
                raise ValueError(f"no contestant is called {other!r}")
        answers.append((pi, notes))
    return answers


def rows_of(
    mdp: FiniteMDP,
    setting: Setting,
    contestants: Sequence[Setting],
    also: Callable[[FiniteMDP, dict[str, Any]], Row] = lambda mdp, notes: {},
) -> list[Row]:
    """The rows of one task: every dataset of its block, every contestant.

    `also` adds columns from what a contestant noted.
    """
    behavior, rows = mdp.value(), []
    for dataset in range(setting["first"], setting["last"]):
        log = settle(mdp.sample(setting["n"], seed=mdp_seed(setting, dataset)), mdp.gamma, CUT)
        for contestant, (pi, notes) in zip(
            contestants, compete(mdp, log, contestants), strict=True
        ):
            rows.append({
                "problem": mdp.name, "n": setting["n"], "dataset": dataset,
                "learner": str(contestant["learner"]), "contestant": label(contestant),
                "n_min": float(contestant.get("n_min", np.nan)),
                "value": mdp.value(pi), "behavior": behavior,
                "points": notes["points"], "changes": notes["changes"], **also(mdp, notes),
            })  # fmt: skip
    return rows


def summarise(rows: Rows, caption: str, seed: int = 0) -> Table:
    """Mean and CVaR 5 % over datasets, with bootstrap standard errors, beside the behaviour."""
    keys = list(zip(rows["problem"], rows["n"], rows["contestant"], strict=True))
    order = list(dict.fromkeys(keys))
    place = {key: i for i, key in enumerate(order)}
    group = np.array([place[key] for key in keys])
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("problem", "n", "contestant", "datasets", "mean", "mean_se", "cvar", "cvar_se",
                     "behavior", "below")
    }  # fmt: skip
    for i, (problem, n, contestant) in enumerate(order):
        values = rows["value"][group == i]
        behavior = float(rows["behavior"][group == i][0])
        for name, value in {
            "problem": str(problem), "n": int(n), "contestant": str(contestant),
            "datasets": len(values), "mean": float(stats.mean(values)),
            "mean_se": float(stats.bootstrap(values, stats.mean, seed=seed, repeats=400).std()),
            "cvar": float(stats.cvar(values)),
            "cvar_se": float(stats.bootstrap(values, stats.cvar, seed=seed, repeats=400).std()),
            "behavior": behavior, "below": float((values < behavior - 1e-9).mean()),
        }.items():  # fmt: skip
            columns[name].append(value)
    return Table(
        columns,
        caption,
        note="mean and CVaR 5 % (mean of the lowest ceil(.05 N) values) of the exact value over "
        "datasets, with bootstrap standard errors; behavior: the exact value of usual practice; "
        "below: share of datasets whose policy is worse than that.",
    )


def pivot(table: Table) -> Table:
    """A line a contestant, a column a size: mean / CVaR 5 %."""
    sizes = sorted(set(table["n"]))
    cells = {(r["problem"], r["contestant"], r["n"]): r for r in table}
    lines = list(dict.fromkeys((r["problem"], r["contestant"]) for r in table))
    behavior = {r["problem"]: r["behavior"] for r in table}
    columns: dict[str, list[Any]] = {
        "problem": [p for p, _ in lines],
        "contestant": [c for _, c in lines],
    }
    for n in sizes:
        found = [cells.get((*line, n)) for line in lines]
        columns[f"n = {n:,}"] = [
            "" if r is None else f"{r['mean']:.3f} / {r['cvar']:.3f}" for r in found
        ]
    words = ", ".join(f"{p} {v:.3f}" for p, v in behavior.items())
    return Table(
        columns,
        table.caption,
        f"mean / CVaR 5 % of the exact value over {min(table['datasets'])} datasets; "
        f"usual practice: {words}",
    )
