"""The command line where states are features."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import dprl
from conftest import options


@pytest.fixture
def stays(run, tmp_path):
    """A table of features with a decision worth changing, and a policy fitted to it."""
    rng = np.random.default_rng(4)
    n = 400
    pressure = rng.uniform(40, 100, n)
    drug = np.where(rng.random(n) < 0.3, "fluids", "wait")
    good = (pressure < 65) == (drug == "fluids")
    pd.DataFrame({
        "stay": range(n), "x_pressure": pressure, "x_lactate": rng.uniform(0, 5, n), "drug": drug,
        "score": good + 0.2 * rng.normal(size=n),
    }).to_parquet("stays.parquet")  # fmt: skip
    columns = {"episode": "stay", "state": "x_*", "action": "drug", "reward": "score"}
    fit = ["fit", "stays.parquet", *options(columns), "--n-min", 5, "--gamma", 1, "--radius", 0.5]
    code, out, err = run(*fit)
    assert code == 0, err
    return fit, out


def test_features(run, stays):
    _, out = stays
    assert "400 points · 2 features" in out
    assert "training points would change" in out
    code, out, _ = run("explain", "policy.dprl", "x_pressure=50,x_lactate=2")
    assert code == 0
    assert out.startswith("x_pressure = 50, x_lactate = 2: suggests fluids")
    code, out, _ = run("explain", "policy.dprl", "x_pressure=50,x_lactate=2", "--cases", "--json")
    assert len(json.loads(out)["similar"]) == 8
    states = "id,x_lactate,x_pressure\n1,2,50\n2,2,90\n3,2,900\n"
    code, out, _ = run("act", "policy.dprl", stdin=states)
    assert out.splitlines()[1:] == ["1,2,50,fluids", "2,2,90,wait", "3,2,900,DEFER"]
    code, out, _ = run("act", "policy.dprl", "--json", stdin=states)
    first = json.loads(out)["rows_out"][0]
    assert first == {"state": {"x_pressure": 50, "x_lactate": 2}, "suggested": "fluids"}
    code, out, _ = run("changes", "policy.dprl", "--json")
    assert {"stay", "x_pressure"} - set(json.loads(out)["rows"][0]) == {"stay"}


def test_features_and_their_settings(run, stays):
    fit, _ = stays
    code, _, _ = run(
        *fit, "--scale", "robust", "--weight", "x_lactate=0", "--visits", "all", "--no-plan"
    )
    assert code == 0
    settings = dprl.load("policy.dprl").parameters
    assert settings["metric"] == {"scale": "robust", "weights": {"x_lactate": 0.0}}
    assert settings["visits"] == "all"
    assert settings["plan"] is False


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["explain", "policy.dprl", "x_pressure"], None, "a state is written NAME=VALUE"),
        (
            ["explain", "policy.dprl", "x_pressure=50"],
            None,
            "a state needs the feature 'x_lactate'",
        ),
        (
            ["act", "policy.dprl"],
            "x_pressure,x_lactate\n50,\n",
            "a feature is missing on 1 of 1 rows",
        ),
        (
            ["act", "policy.dprl"],
            "x_pressure,x_lactate\n50,high\n",
            "must be numbers; it holds 'high'",
        ),
        (["act", "policy.dprl"], "x_pressure\n50\n", "there is no column 'x_lactate'"),
    ],
)
def test_features_refused(run, stays, arguments, stdin, message):
    code, _, err = run(*arguments, stdin=stdin)
    assert (code, message in err) == (1, True)


def test_with_a_radius_labels_become_indicators(run, visits, tmp_path):
    path, columns = visits
    fit = ["fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9]
    assert run(*fit, "--radius", 1)[0] == 0
    policy = dprl.load(tmp_path / "policy.dprl")
    assert policy.feature_names == ("stage=mild", "stage=severe")


def test_rivals_have_no_changes(run, visits):
    path, columns = visits
    dprl.learners.baselines.BC().fit(dprl.read(path, **columns)).save("bc.dprl")
    code, _, err = run("changes", "bc.dprl")
    assert (code, "holds a policy of BC" in err) == (1, True)


@pytest.mark.slow
def test_features_want_a_radius_and_a_radius_features(run, stays):
    fit, _ = stays
    code, _, err = run(*fit[:-2])
    assert (code, "2 features, and no radius is given" in err) == (1, True)
    code, _, err = run(*fit[:-2], "--weight", "x_lactate=2")
    assert (code, "--weight and --scale are for features" in err) == (1, True)
    one = ["x_pressure" if token == "x_*" else token for token in fit]
    code, out, _ = run(*one)
    assert (code, "400 points · 1 feature ·" in out) == (0, True)
    code, _, err = run("explain", "policy.dprl", "x_pressure=50,x_other=2")
    assert (code, "'x_other' is no feature" in err) == (1, True)
    code, _, err = run("explain", "policy.dprl", "x_pressure=50,x_pressure=2")
    assert (code, "given twice" in err) == (1, True)


def test_a_column_of_states_is_not_for_features(run, stays):
    code, out, err = run("act", "policy.dprl", "--state", "x_map", stdin="x_map,x_lactate\n60,1\n")
    assert (code, out) == (1, "")
    assert "a state of this policy is 2 features, not 'x_map'" in err
