"""Trials as people have them, from the table to the report: made ones of their shape, and the real ones.

The real files are not part of this project; where they are absent the tests skip.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

DATA = Path(os.environ.get("DPRL_DATA", Path(__file__).parents[4] / "shared" / "data")) / "trials"
LABELS = ("--n-min", "30", "--gamma", "1")


def stroke(rng, n=900):
    """Aspirin (half) and heparin (none half, low and medium a quarter each), by lot."""
    age = np.clip(np.rint(rng.normal(72, 11, n)), 16, 99)
    return pd.DataFrame({
        "AGE": age, "SEX": rng.choice(["F", "M"], n), "RCONSC": rng.choice(["F", "D", "U"], n, p=[0.75, 0.2, 0.05]),
        "STYPE": rng.choice(["PACS", "LACS", "TACS", "POCS"], n), "RXASP": rng.choice(["N", "Y"], n),
        "RXHEP": rng.choice(["N", "L", "M", "H"], n, p=[0.5, 0.24, 0.24, 0.02]),
        "OCCODE": np.where(rng.random(n) < 0.9 - age / 130, 4, rng.choice([1, 2, 9], n, p=[0.4, 0.58, 0.02])),
    })  # fmt: skip


def with_stroke_outcome(rows):
    rows = rows[rows["OCCODE"].between(1, 4)].reset_index(drop=True)
    heparin = rows["RXHEP"].map({"N": 0.5, "L": 0.25, "M": 0.25})  # H is of the pilot: not known
    return rows.assign(patient=np.arange(len(rows)), well=(rows["OCCODE"] >= 3).astype(int),
                       p=0.5, p_both=0.5 * heparin)  # fmt: skip


def two_stages(rng, n=210):
    """Two decisions a person, by lot; the second knows one number more."""
    base = rng.normal(36, 4, n)
    rows = pd.DataFrame({
        "id": np.repeat(np.arange(n), 2), "stage": np.tile([1, 2], n),
        "gender": np.repeat(rng.integers(0, 2, n), 2), "parentBMI": np.repeat(rng.normal(32, 4, n), 2),
        "baselineBMI": np.repeat(base, 2), "action": rng.choice(["CD", "MR"], 2 * n),
    })  # fmt: skip
    last = rows["stage"] == 2
    rows["month4BMI"] = np.where(last, rows["baselineBMI"] - 1, np.nan)
    rows["reward"] = np.where(last, rng.normal(6, 8, 2 * n), 0.0)
    rows["ended"] = last
    return rows


def shown_items(rng, n=2_000):
    """Items shown with a chance that is on record; a click comes seldom."""
    return pd.DataFrame({
        "timestamp": pd.date_range("2019-11-24", periods=n, freq="min", tz="UTC").astype(str),
        "item_id": rng.integers(0, 34, n), "position": rng.integers(1, 4, n),
        "click": (rng.random(n) < 0.005).astype(int), "propensity_score": 1 / 34,
        "user_feature_0": rng.choice(["4ae3", "81ce", "cef3"], n),
        "user_feature_1": rng.choice(["03a5", "2d03", "8b50", "f1c2"], n),
    })  # fmt: skip


def real(name):
    file = DATA / f"{name}.parquet"
    if not file.is_file():
        pytest.skip(f"{file} is absent: the trial is not part of the project (see DPRL_DATA)")
    return pd.read_parquet(file)


def halves(rows, episode, rng):
    """Two tables of different episodes."""
    aside = rng.random(int(rows[episode].max()) + 1) < 0.4
    return rows[~aside[rows[episode]]], rows[aside[rows[episode]]]


def through(run, tmp_path, train, test, columns, settings):
    """Through check, fit, evaluate and report; what they printed."""
    train.to_csv(tmp_path / "train.csv", index=False)
    test.to_csv(tmp_path / "test.csv", index=False)
    printed = {}
    for name, command in {
        "check": ("check", "train.csv", *columns, "--details"),
        "fit": ("fit", "train.csv", *columns, *settings, "--out", "policy.dprl"),
        "evaluate": ("evaluate", "policy.dprl", "test.csv", "--draws", "50", "--details"),
        "report": ("report", "policy.dprl", "test.csv", "--draws", "50", "--out", "report.html"),
    }.items():
        code, out, err = run(*command)
        assert code == 0, (name, out, err)
        printed[name] = out + err
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    return printed, page


def named(**columns):
    pairs = [
        (f"--{role}", name)
        for role, names in columns.items()
        for name in (names if isinstance(names, list) else [names])
    ]
    return [word for pair in pairs for word in pair]


SOURCES = [pytest.param(False, id="made"), pytest.param(True, id="real")]


@pytest.mark.slow
@pytest.mark.parametrize("is_real", SOURCES)
def test_stroke_labels(run, tmp_path, is_real):
    rng = np.random.default_rng(0)
    rows = with_stroke_outcome(real("ist") if is_real else stroke(rng))
    train, test = halves(rows, "patient", rng)
    columns = named(
        episode="patient",
        state=["RCONSC", "SEX"],
        action="RXASP",
        reward="well",
        propensity="p",
        also="AGE",
    )
    printed, page = through(run, tmp_path, train, test, columns, LABELS)
    assert "'p' is known on" in printed["check"]
    if is_real:
        assert "Luck may explain" in printed["fit"]
    assert "Randomised: " in page


@pytest.mark.slow
@pytest.mark.parametrize("is_real", SOURCES)
def test_stroke_with_two_treatments_and_a_chance_that_is_known_in_part(run, tmp_path, is_real):
    rng = np.random.default_rng(1)
    rows = with_stroke_outcome(
        real("ist").sample(1_500, random_state=0) if is_real else stroke(rng)
    )
    train, test = halves(rows, "patient", rng)
    columns = named(episode="patient", state=["AGE", "SEX"], action=["RXASP", "RXHEP"], reward="well",
                    propensity="p_both", also="STYPE")  # fmt: skip
    _, page = through(
        run, tmp_path, train, test, columns, ("--radius", "1", "--n-min", "20", "--gamma", "1")
    )
    assert "Mixed: " in page
    assert "ractice is divided" in page


@pytest.mark.slow
@pytest.mark.parametrize("is_real", SOURCES)
def test_two_stages(run, tmp_path, is_real):
    rng = np.random.default_rng(2)
    rows = (real("bmi_smart_long") if is_real else two_stages(rng)).assign(p=0.5)
    train, test = halves(rows, "id", rng)
    columns = named(episode="id", time="stage", state=["baselineBMI", "parentBMI", "gender"], action="action",
                    reward="reward", propensity="p", ended="ended")  # fmt: skip
    _, page = through(
        run, tmp_path, train, test, columns, ("--radius", "1", "--n-min", "10", "--gamma", "1")
    )
    assert "Randomised: " in page


@pytest.mark.slow
@pytest.mark.parametrize("is_real", SOURCES)
def test_items_shown_by_a_lottery(run, tmp_path, is_real):
    rng = np.random.default_rng(3)
    train, test = (
        (real("obd_bts_men"), real("obd_random_men"))
        if is_real
        else (shown_items(rng), shown_items(rng))
    )
    train, test = (
        train.assign(shown=np.arange(len(train))),
        test.assign(shown=-1 - np.arange(len(test))),
    )
    columns = named(
        episode="shown",
        state="position",
        action="item_id",
        reward="click",
        propensity="propensity_score",
    )
    printed, page = through(run, tmp_path, train, test, columns, LABELS)
    assert "Randomised: " in page
    if is_real:  # nobody of those who saw what it suggests clicked
        assert "had the return 0: resampling shows no spread" in printed["evaluate"]
        assert "resampling shows no spread" in page


@pytest.mark.slow
@pytest.mark.parametrize("is_real", SOURCES)
def test_rules_of_a_trial_with_categories(run, tmp_path, is_real):
    rng = np.random.default_rng(4)
    rows = with_stroke_outcome(
        real("ist").sample(1_500, random_state=0) if is_real else stroke(rng)
    )
    train, test = halves(rows, "patient", rng)
    columns = named(episode="patient", state=["AGE", "SEX", "STYPE"], action="RXASP", reward="well",
                    propensity="p", also="none")  # fmt: skip
    settings = ("--learner", "rules", "--gamma", "1", "--splits", "1", "--folds", "2")
    printed, page = through(run, tmp_path, train, test, columns, settings)
    assert "Randomised: " in printed["fit"]
    assert "usual practice gets" in printed["evaluate"]
    assert "Randomised: " in page
