"""Policy files of this version, of every kind, with what each answers: written once at a release.

    python tests/policies/make_golden.py            into tests/policies/golden/VERSION

`test_golden.py` opens them with every later version. A network needs torch; without it the file of the
network is left out, and this says so.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dprl

FOLDER = Path(__file__).parent / "golden" / dprl.__version__
SPOTS = [[float(p), float(q)] for p in (45, 55, 62, 70, 85) for q in (0.5, 2.5, 4.5)]
WARDS = ("ICU", "HDU", "ward")


def labelled() -> dprl.Log:
    return dprl.envs.care_pathway().sample(3000, seed=7)


def features(seed: int = 5, groups: int = 300) -> dprl.Log:
    """Two numbers a state; fluids help where the pressure is low."""
    rng = np.random.default_rng(seed)
    state = np.column_stack([rng.uniform(40, 90, groups), rng.uniform(0, 5, groups)])
    action = rng.integers(0, 2, groups)
    reward = np.where(action == 1, state[:, 0] < 65, 0.4) + 0.2 * rng.normal(size=groups)
    return dprl.from_arrays(
        episode=np.arange(groups), time=np.zeros(groups), state=state,
        action=np.where(action == 1, "fluids", "watch"), reward=reward,
        feature_names=["pressure", "lactate"],
    )  # fmt: skip


def mixed(seed: int = 9, groups: int = 600, gaps: bool = True) -> dprl.Log:
    """A number with gaps, a ward, a date and a flag; a bolus helps in the ICU."""
    pandas = __import__("pandas")
    rng = np.random.default_rng(seed)
    ward = rng.choice(WARDS, groups)
    lactate = np.round(rng.uniform(0, 6, groups), 2)
    action = rng.choice(["bolus", "none"], groups)
    good = np.where(action == "bolus", (ward == "ICU") & (lactate > 2), 0.4)
    table = pandas.DataFrame({
        "episode": np.arange(groups), "time": 0, "ward": ward,
        "lactate": np.where(gaps & (rng.random(groups) < 0.1), np.nan, lactate),
        "admitted": pandas.Timestamp("2026-01-01") + pandas.to_timedelta(rng.integers(0, 300, groups), "D"),
        "old": rng.random(groups) < 0.5, "action": action,
        "reward": good + 0.2 * rng.normal(size=groups),
    })  # fmt: skip
    return dprl.from_frame(
        table, episode="episode", time="time", state=["ward", "lactate", "admitted", "old"],
        action="action", reward="reward", missing="flag" if gaps else "error",
    )  # fmt: skip


def rows_of_the_mixed() -> list[dict[str, Any]]:
    return [
        {"ward": ward, "lactate": lactate, "admitted": "2026-05-01", "old": old}
        for ward in (*WARDS, "corridor") for lactate in (0.5, 3.0, None) for old in (True, False)
    ]  # fmt: skip


def kinds() -> Iterator[tuple[str, Callable[[], Any], list[Any]]]:
    """Name, how it is made, and the states that are asked about."""
    care, places = labelled(), features()
    labels = [str(state) for state in care.states]
    first, second = care.split(seed=1)
    plain = dprl.DPRLDiscrete(n_min=10, gamma=0.95)
    near = dprl.DPRLContinuous(n_min=10, radius=0.5, gamma=0.95, plan=False)
    yield "tabular", lambda: plain.fit(care), labels
    yield "confident", lambda: dprl.Confident(gamma=0.95).fit(care), labels
    yield "gated", lambda: dprl.gate(plain, care, delta=0.2, value_range=(0, 1)), labels
    yield (
        "large-sample",
        lambda: dprl.gate(plain.fit(first), second, delta=0.1, grade="large-sample"),
        labels,
    )
    yield "stochastic", lambda: dprl.baselines.SPIBB(n_min=10, gamma=0.95).fit(care), labels
    yield "neighbors", lambda: near.fit(places), SPOTS
    yield "compressed", lambda: dprl.compress(near.fit(places)).policy, SPOTS
    yield (
        "cells",
        lambda: dprl.gate(near, features(groups=4000), delta=0.2, value_range=(-1, 2)),
        SPOTS,
    )
    yield "rules", lambda: dprl.Rules(gamma=1.0, depth=2).fit(mixed()), rows_of_the_mixed()
    yield (
        "mixed",
        lambda: dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0, plan=False).fit(mixed()),
        rows_of_the_mixed(),
    )
    if importlib.util.find_spec("torch"):
        yield (
            "network",
            lambda: dprl.baselines.DeepCQL(alpha=1.0, gamma=0.95, steps=200).fit(places),
            SPOTS,
        )


def main() -> None:
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists: files of a version are written once")
    FOLDER.mkdir()
    expected = {}
    for name, make, states in kinds():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy = make()
        policy.save(FOLDER / f"{name}.dprl")
        answers = [str(answer) for answer in dprl.load(FOLDER / f"{name}.dprl").act(states)]
        kind = type(policy).__name__
        expected[name] = {"kind": kind, "states": states, "act": answers}
        print(f"{name:14s} {kind:18s} {len(set(answers))} kinds of answers")
    if "network" not in expected:
        print("no file of a network: torch is not installed")
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
