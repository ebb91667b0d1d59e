"""An estimator that is added from here is shown, resampled, written and chosen like the others."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dprl
from dprl.errors import ParameterError
from dprl.evaluation.bootstrap import Bootstrap
from dprl.evaluation.estimators import ESTIMATORS, Estimator, names_of, register


def largest_fifty(weighted):
    """Importance sampling with weights of at most 50, a number of each trajectory."""
    return np.minimum(weighted.final, 50.0) * weighted.returns


def halfway(totals):
    """Between WIS and usual practice: a function of the sums."""
    return (totals.alone["IS"] / totals.final + totals.alone["return"] / totals.n) / 2


@pytest.fixture
def added():
    """Two more estimators, for as long as a test runs: a mean over trajectories, and one of sums."""
    register(Estimator("CIS", "weights of at most 50", alone=largest_fifty))
    register(Estimator("HALF", "half of the way to WIS", halfway, normalised=True))
    yield
    del ESTIMATORS["CIS"], ESTIMATORS["HALF"]


@pytest.fixture(scope="module")
def halves():
    return dprl.envs.care_pathway().sample(1_600, seed=0).split(0.5, seed=0)


@pytest.fixture(scope="module")
def policy(halves):
    return dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(halves[0])


@pytest.fixture(scope="module")
def plain(policy, halves):
    """The evaluation without them."""
    return dprl.evaluate(policy, halves[1], draws=300)


def test_it_has_a_value_and_an_interval_and_moves_no_other_number(plain, policy, halves, added):
    result = dprl.evaluate(policy, halves[1], draws=300)
    assert list(result.rows) == [*plain.rows, "CIS", "HALF"]
    assert all(result[name] == plain[name] for name in plain.rows)  # to the last digit
    assert (result.behavior, result.facts) == (plain.behavior, plain.facts)
    row = result["CIS"]
    assert row["value_low"] < row["value"] < row["value_high"]
    # no weight of this log is as large as 50
    assert row["value"] == pytest.approx(plain["IS"]["value"], rel=1e-12)
    assert row["difference_low"] == pytest.approx(plain["IS"]["difference_low"], rel=1e-9)
    half = (plain["WIS"]["value"] + plain.behavior["value"]) / 2
    assert result["HALF"]["value"] == pytest.approx(half, rel=1e-12)


def test_it_is_in_the_table_in_json_in_html_and_in_a_report(policy, halves, added, tmp_path):
    result = dprl.evaluate(policy, halves[1], draws=50)
    assert result.table()["estimator"][-2:] == ["CIS", "HALF"]
    assert result.to_frame("pyarrow").num_rows == 9
    assert json.loads(result.to_json())["estimates"][-1]["estimator"] == "HALF"
    assert "weights of at most 50" in result._repr_html_()
    for lang in ("en", "de"):
        dprl.report(policy, halves[1], tmp_path / "report.html", draws=50, lang=lang)
        assert "half of the way to WIS" in (tmp_path / "report.html").read_text()


def test_policies_and_settings_are_compared_by_it(policy, halves, added):
    train, test = halves
    rows = dprl.compare([policy], test, estimator="HALF", draws=50).rows
    assert rows[0]["difference"] == dprl.evaluate(policy, test, draws=50)["HALF"]["difference"]
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    swept = dprl.sweep(learner, train, test, n_min=[20, 40], estimator="CIS", draws=50)
    assert swept.estimator == "CIS"
    assert np.isfinite(swept.rows[0]["difference_low"])


def test_it_is_on_the_command_line(policy, halves, added, run, tmp_path):
    policy.save(tmp_path / "policy.dprl")
    for log, name in zip(halves, ("train.csv", "held.csv"), strict=True):
        dprl.write(log, tmp_path / name)
    columns = [x for name in ("episode", "state", "action", "reward") for x in (f"--{name}", name)]
    code, out, said = run("evaluate", "policy.dprl", "held.csv", *columns, "--draws", 50, "--json")
    assert code == 0, said
    assert [row["estimator"] for row in json.loads(out)["estimates"]][-2:] == ["CIS", "HALF"]
    code, out, said = run(
        "sweep", "train.csv", "--valid", "held.csv", *columns, "--gamma", 1, "--n-min", 20, 40,
        "--estimator", "HALF", "--draws", 50, "--json",
    )  # fmt: skip
    assert code == 0, said
    assert json.loads(out)["estimator"] == "HALF"


def test_a_name_is_taken_once(added):
    with pytest.raises(ParameterError, match="'CIS' already"):
        register(Estimator("CIS", "again"))
    with pytest.raises(ParameterError, match="'return' already"):
        register(Estimator("return", "what was got"))


def test_what_each_needs_is_told_once():
    assert names_of(values=True) == ["DM", "DR", "WDR"]
    assert names_of(normalised=True) == ["WIS", "WPDIS", "WDR"]
    assert names_of(model_alone=True) == ["DM"]


def test_draws_can_be_of_some_estimators_alone(policy, halves):
    from dprl.evaluation.estimators import importance_weights

    log = halves[1]
    N = log.n_steps
    weighted = importance_weights(
        log.starts, log.group, log.reward, 1.0, np.ones(N), np.zeros(N, bool), *np.zeros((2, N))
    )
    some = Bootstrap(weighted, (ESTIMATORS["WIS"],)).estimates()
    assert some.names == ("WIS", "return")
    assert some.of("WIS") == some.of("return")
