"""How far the headline of ``dprl study`` moves with the seed, as a share of its interval's width.

The same log is studied with ten seeds: they divide it, make the folds of the models and draw the
bootstrap. NHEFS comes with the package causaldata (a part of its source archive), the stroke trial
and the trial in two steps are read from a folder of `ist.parquet` and `bmi_smart_long.parquet`; a
data set whose file is missing is left out. Each row is written when it is there, and what is in
the file is not computed again.

    python benchmarks/stability.py rows.jsonl --trials FOLDER --nhefs nhefs.dta [--only ward ...]
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dprl

SEEDS = range(10)


def ward() -> dprl.Log:
    """Labels, several decisions: the ward of the demo."""
    return dprl.envs.care_pathway().sample(2_000, seed=11)


def people(n: int) -> dprl.Log:
    """Features, one decision: made people, of whom some are better off with the drug."""
    rng = np.random.default_rng(77)
    x = rng.normal(size=(n, 4))
    drug = rng.random(n) < 1 / (1 + np.exp(-0.7 * x[:, 0]))
    gain = drug * np.where(x[:, 1] > 0, 1.0, -0.8)
    return dprl.from_arrays(
        episode=range(n), state=x, action=np.where(drug, "drug", "wait"),
        reward=gain + 0.7 * x[:, 0] + rng.normal(size=n),
        feature_names=["age", "pressure", "lactate", "sodium"],
    )  # fmt: skip


def visits(n: int) -> dprl.Log:
    """Features, three decisions: what is done moves the next state, and the end is what counts."""
    rng = np.random.default_rng(78)
    x, total = rng.normal(size=n), np.zeros(n)
    steps = []
    for step in range(3):
        age = rng.normal(size=n) if step == 0 else steps[0][:, 1]
        drug = rng.random(n) < 1 / (1 + np.exp(-0.8 * x))
        total += drug * np.where(x > 0, 0.5, -0.4) + 0.2 * age
        steps.append(np.column_stack([x, age, drug]))
        x = 0.6 * x - 0.3 * drug + rng.normal(size=n) * 0.8
    rows = np.stack(steps, 1)
    reward = np.zeros((n, 3))
    reward[:, -1] = total + rng.normal(size=n)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), 3), state=rows[:, :, :2].reshape(-1, 2),
        action=np.where(rows[:, :, 2].ravel() > 0, "drug", "wait"), reward=reward.ravel(),
        feature_names=["severity", "age"],
    )  # fmt: skip


def nhefs(file: Path) -> dprl.Log:
    """Features, one decision: 1,566 people, who stopped smoking or not, and their weight."""
    state = ["sex", "race", "age", "education", "smokeintensity", "smokeyrs", "exercise", "active"]
    table = pd.read_stata(file)
    table = table[table["wt82_71"].notna()].reset_index(names="person")
    labels = ["sex", "race", "education", "exercise", "active"]
    table[labels] = table[labels].astype(str)
    table["quit"] = np.where(table["qsmk"] == 1, "stop", "go on")
    return dprl.from_frame(
        table, episode="person", state=[*state, "wt71"], action="quit", reward="wt82_71",
        better="lower", outcome="weight gain", unit="kg", categorical=labels, also=(),
    )  # fmt: skip


def stroke(file: Path, thinned: bool) -> dprl.Log:
    """Features, one decision: aspirin or not; thinned, the old were given it less often."""
    table = pd.read_parquet(file)
    table = table[table["OCCODE"].between(1, 4)].reset_index(names="patient")
    table["well"] = table["OCCODE"].isin([3, 4]).astype(float)
    if thinned:
        rng, given = np.random.default_rng(79), table["RXASP"] == "Y"
        kept = rng.random(len(table)) < np.where(given == (table["AGE"] < 72), 1.0, 0.45)
        table = table[kept].head(8_000).reset_index(drop=True)
    return dprl.from_frame(
        table, episode="patient", state=["AGE", "SEX", "RCONSC", "RSBP", "RDELAY"],
        action="RXASP", reward="well", also=(), **({} if thinned else {"design": "randomised"}),
    )  # fmt: skip


def smart(file: Path) -> dprl.Log:
    """Features, two decisions by lot: 210 young people, and how far their BMI fell."""
    return dprl.from_frame(
        pd.read_parquet(file).assign(share=0.5), episode="id", time="stage",
        state=["gender", "race", "parentBMI", "baselineBMI", "month4BMI"], missing="flag",
        action="action", reward="reward", propensity="share", also=(),
    )  # fmt: skip


def studied(log: dprl.Log, seed: int) -> dict[str, Any]:
    """The headline of one study."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = dprl.study(log, seed=seed)
    found: list[float | None] = [None] * 3
    if result.evaluation is not None:
        row = result.evaluation.rows[result.evaluation.headline]
        found = [row[f"difference{end}"] for end in ("", "_low", "_high")]
    elif result.effects is not None:
        row = max(result.effects.rows, key=lambda row: row["difference"])
        found = [row[name] for name in ("difference", "low", "high")]
    return {
        "seed": seed, "verdict": result.verdict, "finding": result.finding, "gain": found,
        "same": result.facts["same"], "divisions": result.facts["divisions"],
        "spread": result.facts["spread"],
    }  # fmt: skip


def told(name: str, rows: list[dict[str, Any]]) -> str:
    """A line of the table."""
    gains = np.array([row["gain"] for row in rows], float)
    known = gains[np.isfinite(gains).all(axis=1)]
    said = ", ".join(
        f"{v} in {sum(row['verdict'] == v for row in rows)}"
        for v in dict.fromkeys(row["verdict"] for row in rows)
    )
    if not len(known):
        return f"| {name} | {said} | – | – |"
    low, high = known[:, 0].min(), known[:, 0].max()
    moved = (high - low) / np.median(known[:, 2] - known[:, 1])
    return f"| {name} | {said} | {low:.3g} to {high:.3g} | {100 * moved:.0f} % |"


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("rows", type=Path)
    asked.add_argument("--trials", type=Path, default=Path("trials"))
    asked.add_argument("--nhefs", type=Path, default=Path("nhefs.dta"))
    asked.add_argument("--only", nargs="+")
    options = asked.parse_args()
    ist, two = options.trials / "ist.parquet", options.trials / "bmi_smart_long.parquet"
    sets: dict[str, tuple[Path | None, Callable[[], dprl.Log]]] = {
        "ward": (None, ward),
        "people": (None, lambda: people(1_600)),
        "more people": (None, lambda: people(10_000)),
        "visits": (None, lambda: visits(1_000)),
        "nhefs": (options.nhefs, lambda: nhefs(options.nhefs)),
        "smart": (two, lambda: smart(two)),
        "stroke": (ist, lambda: stroke(ist, False)),
        "stroke, thinned": (ist, lambda: stroke(ist, True)),
    }
    kept = options.rows.read_text().splitlines() if options.rows.exists() else []
    rows = [json.loads(line) for line in kept]
    for seed in SEEDS:
        for name, (file, make) in sets.items():
            if (file is not None and not file.is_file()) or name not in (options.only or sets):
                continue
            if any(row["data"] == name and row["seed"] == seed for row in rows):
                continue
            rows.append({"data": name, **studied(make(), seed)})
            with options.rows.open("a") as out:
                out.write(json.dumps(rows[-1]) + "\n")
    for name in sets:
        if mine := [row for row in rows if row["data"] == name]:
            print(told(name, mine))


if __name__ == "__main__":
    main()
