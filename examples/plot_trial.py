"""
A trial, and a hospital
=======================

The same patients, with treatment by lot and by habit.

In the International Stroke Trial (doi 10.7488/ds/104) aspirin was given by lot, and it did next to
nothing for who was well six months later. Keep the old seldom if treated and the young seldom if
not, and the same trial looks like a hospital in which the young get aspirin: there the treated do
better, because they are younger. The figure shows what DPRL says of giving aspirin, with age among
the states and without. Where age is recorded nowhere, a suggestion is even certified, and its Γ*
says how strong an unrecorded cause would undo it: not very. ::

    python examples/plot_trial.py trial.png ist.parquet

Without a file of the trial a small table of the same shape is made.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import dprl
from dprl._core import plot

AGES = [0, 60, 70, 80, 120]


def made_trial(n: int = 6_000, seed: int = 0) -> pd.DataFrame:
    """Invented patients in the columns of the trial; aspirin does nothing, the young recover."""
    rng = np.random.default_rng(seed)
    age = np.clip(np.rint(rng.normal(72, 11, n)), 30, 99).astype(int)
    awake = rng.choice(["F", "D", "U"], n, p=[0.77, 0.22, 0.01])
    chance = np.clip(0.75 - 0.015 * (age - 50) - 0.2 * (awake != "F"), 0.02, 0.98)
    well = rng.random(n) < chance
    return pd.DataFrame({
        "AGE": age, "RCONSC": awake,
        "RXASP": rng.choice(["N", "Y"], n),
        "OCCODE": np.where(well, 4, np.where(rng.random(n) < 0.01, 9, 1)),
    })


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """One decision a patient: what was known and given, by which chance, and how it went."""
    rows = rows[rows["OCCODE"].between(1, 4)].reset_index(drop=True)  # others are not known
    return pd.DataFrame({
        "patient": np.arange(len(rows)),
        "awake": np.where(rows["RCONSC"] == "F", "fully", "drowsy"),
        "age": pd.cut(rows["AGE"], AGES, labels=["to 60", "to 70", "to 80", "older"]).astype(str),
        "years": rows["AGE"],
        "aspirin": rows["RXASP"].map({"Y": "aspirin", "N": "none"}),
        "well": rows["OCCODE"].isin([3, 4]).astype(float),
        "chance": 0.5,
    })


def as_in_a_hospital(rows: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """The patients that are kept: the treated mostly young, the others mostly old; by no lot."""
    old = 1 / (1 + np.exp(-(rows["years"] - 72) / 6))
    keep = 0.1 + 0.8 * np.where(rows["aspirin"] == "aspirin", 1 - old, old)
    kept = np.random.default_rng(seed).random(len(rows)) < keep
    return rows[kept].drop(columns="chance")


def log_of(rows: pd.DataFrame, state: list[str]) -> dprl.Log:
    """The rows as a log with these columns as the state."""
    by_lot = {"propensity": "chance"} if "chance" in rows else {}
    log = dprl.from_frame(
        rows, episode="patient", state=state, action="aspirin", reward="well", also=(), **by_lot
    )
    return log.joined()


def main(out: str | None = None, file: str | None = None) -> dict[str, dict[str, float]]:
    """Draw the figure; for each log the difference that it shows, and the one of the trial."""
    named = file is not None and Path(file).is_file()
    trial = prepared(pd.read_parquet(file) if named else made_trial())
    hospital = as_in_a_hospital(trial)
    views = {
        "by lot (the trial)": (trial, ["awake", "age"]),
        "by habit, age in the state": (hospital, ["awake", "age"]),
        "by habit, age nowhere": (hospital, ["awake"]),
    }
    shown = {}
    for name, (rows, state) in views.items():
        log = log_of(rows, state)
        everybody = dprl.CallablePolicy(
            lambda s: ["aspirin"] * len(s), actions=log.actions, trained_on=[]
        )
        row = dprl.evaluate(everybody, log, gamma=1.0, draws=400)["DR"]
        gated = dprl.gate(dprl.DPRLDiscrete(n_min=50, gamma=1.0), log, value_range=(0, 1))
        strongest = [fact["gamma_star"] for fact in gated.certificate.rows]
        shown[name] = {
            "difference": row["difference"], "low": row["difference_low"],
            "high": row["difference_high"], "certified": len(strongest),
            "gamma_star": max(strongest, default=1.0),
        }
        print(f"{name}: {row['difference']:+.3f}, certified suggestions: {len(strongest)}")
    with plot.look():
        figure, axes = plot.grid(1, 1, width=6.4, height=2.6)
        panel = axes[0][0]
        panel.axvline(0, color="#777777", linewidth=0.8)
        for i, facts in enumerate(shown.values()):
            colour = "#0072b2" if i < 2 else "#d55e00"
            panel.plot([facts["low"], facts["high"]], [-i, -i], color=colour)
            panel.plot(facts["difference"], -i, "o", color=colour)
            words = "no suggestion certified"
            if facts["certified"]:
                words = f"{facts['certified']} certified; Γ* {facts['gamma_star']:.2f}"
            panel.text(facts["high"], -i, f"   {words}", va="center", fontsize=8)
        panel.set_yticks(-np.arange(len(shown)), list(shown))
        panel.set_ylim(0.5 - len(shown), 0.5)
        panel.set_xlim(right=panel.get_xlim()[1] + 0.045)
        panel.set_title("aspirin for everybody: share that is well, less that of practice")
    if out is not None:
        figure.savefig(out, dpi=110)
    return shown


if __name__ == "__main__":
    main(*sys.argv[1:3])
