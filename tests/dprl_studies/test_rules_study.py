"""The experiment on rules: its worlds, its parts, its table and figure."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from dprl.policies.rules.rule import Condition, Rule
from dprl_studies.paper import experiment
from dprl_studies.paper.rules import (
    SHAPES,
    in_trial,
    null_log,
    run,
    settings,
    stroke_rows,
    stroke_trial,
    thinned,
)


@pytest.mark.parametrize("shape", SHAPES)
def test_actions_depend_on_features_and_change_nothing(shape):
    """Who took an action differs from who did not; what follows, given the features, does not."""
    log = null_log(shape, seed=3, groups=4_000)
    x, first = np.asarray(log.features), log.starts[:-1]
    took = log.action[first] == 0
    apart = np.abs(x[first][took].mean(axis=0) - x[first][~took].mean(axis=0))
    assert apart.max() > 0.2
    # the reward of the same step is explained by features 0 to 2 alone
    design = np.column_stack([np.tanh(x[:, 0] * x[:, 1]), x[:, 2], np.ones(log.n_steps)])
    if shape == "drift":
        design = np.column_stack([design, np.tile(np.arange(6), 4_000)])
    left = log.reward - design @ np.linalg.lstsq(design, log.reward, rcond=None)[0]
    means = [left[log.action == a].mean() for a in range(4)]
    assert np.ptp(means) < 0.02
    moved = x[first + 1, 5]
    gap = moved[took].mean() - moved[~took].mean() - 0.63 * (
        x[first, 2][took].mean() - x[first, 2][~took].mean()
    )  # fmt: skip
    assert (gap > 0.5) == (shape == "surrogate")


def trial_file(folder, n=1_000, effect=0.0):
    """A made trial in the layout of the International Stroke Trial: the young recover."""
    rng = np.random.default_rng(0)
    age, aspirin = rng.integers(40, 95, n), rng.random(n) < 0.5
    well = rng.random(n) < np.clip(0.9 - (age - 40) / 60 + effect * aspirin, 0.02, 0.98)
    table = {
        "AGE": age, "RSBP": rng.integers(100, 220, n), "RDELAY": rng.integers(1, 48, n),
        "RCONSC": np.where(rng.random(n) < 0.8, "F", "D"), "SEX": np.where(rng.random(n) < 0.5, "M", "F"),
        "RXASP": np.where(aspirin, "Y", "N"), "OCCODE": np.where(well, 4, np.where(rng.random(n) < 0.05, 9, 1)),
    }  # fmt: skip
    path = folder / "trial.parquet"
    with duckdb.connect() as con:
        con.register("t", {k: np.asarray(v, object) if v.dtype.kind == "U" else v for k, v in table.items()})  # fmt: skip
        con.execute(f"COPY (SELECT * FROM t) TO '{path}' (FORMAT parquet)")
    return path


@pytest.mark.slow
def test_a_thinned_trial_misleads_only_who_does_not_see_age(tmp_path):
    path = trial_file(tmp_path)
    trial = stroke_trial(path)
    assert trial.n_episodes < 1_000  # unknown outcomes are left out
    log = trial.take(thinned(trial, 0))
    aspirin = log.action == log.actions.index("aspirin")
    assert log.reward[aspirin].mean() - log.reward[~aspirin].mean() > 0.1
    age, hidden = stroke_rows(path, seed=0)
    assert age["study"] == "stroke, with age"
    assert not age["issued"]
    assert hidden["issued"]
    assert hidden["false"] == 1


def test_what_the_whole_trial_says_of_a_rule(tmp_path):
    trial = stroke_trial(trial_file(tmp_path, n=4_000, effect=0.15))
    rule = Rule((Condition("age", "at most", 70.0),), "aspirin", {})
    difference, low, high = in_trial(rule, trial)
    assert low < 0.15 < high
    assert low < difference < high


def test_parts_and_settings():
    quick = settings(True, 0)
    whole = settings(False, 0)
    assert {t["part"] for t in quick} == {"nothing works", "intensive care", "point mass"}
    logs = [t for t in whole if t["part"] == "nothing works"]
    assert sum(t["last"] - t["first"] for t in logs) == 400 * len(SHAPES)
    wards = {(t["stays"], t["dataset"]) for t in whole if t["part"] == "intensive care"}
    assert wards >= {(2_000, d) for d in range(10)}


@pytest.mark.slow
def test_a_small_run_makes_a_table_and_a_figure():
    study = experiment("rules", tables=None, trials=None)
    made = run(
        {"part": "nothing works", "shape": "linear", "first": 0, "last": 1, "groups": 60, "seed": 5}
    )
    care = {**made[0], "study": "intensive care", "n": 2_000, "value": 40.0, "usual": 38.0,
            "best": 42.0}  # fmt: skip
    rows = {name: np.array([row[name] for row in [*made, care, {**care, "value": 37.0}]])
            for name in made[0]}  # fmt: skip
    table = {(r["study"], r["method"]): r for r in study.summary(rows)}
    assert table["intensive care", "Rules"]["gained"] == pytest.approx((0.5 - 0.25) / 2)
    assert table["intensive care", "Rules"]["worst"] == pytest.approx(-0.25)
    assert table["intensive care", "Rules"]["below usual"] == 1
    assert table["nothing works: linear", "Rules"]["logs"] == 1
    assert len(study.figure(rows).axes) == 2
