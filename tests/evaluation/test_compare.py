"""Several policies on one log: paired differences, all intervals at once."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dprl
from dprl.envs.hard import WORLDS as HARD
from dprl.errors import ParameterError, PolicyError
from dprl_studies.paper.claims import target


@pytest.fixture(scope="module")
def care():
    mdp = dprl.envs.care_pathway()
    train, test = mdp.sample(1_500, seed=3), mdp.sample(1_000, seed=4)
    policies = {
        "bold": dprl.DPRLDiscrete(n_min=10, gamma=1.0).fit(train),
        "shy": dprl.DPRLDiscrete(n_min=100, gamma=1.0).fit(train),
    }
    return mdp, train, test, policies


@pytest.fixture(scope="module")
def compared(care):
    *_, test, policies = care
    return dprl.compare(policies, test, draws=500)


def test_every_difference_is_that_of_the_evaluations(care, compared):
    *_, test, policies = care
    alone = {name: dprl.evaluate(p, test, draws=500) for name, p in policies.items()}
    gain = {name: e["WDR"]["difference"] for name, e in alone.items()} | {"usual practice": 0.0}
    pairs = [("bold", "usual practice"), ("shy", "usual practice"), ("bold", "shy")]
    assert [(row["first"], row["second"]) for row in compared.rows] == pairs
    for row in compared.rows:
        assert row["difference"] == pytest.approx(gain[row["first"]] - gain[row["second"]])
        assert row["low"] < row["difference"] < row["high"]
    for name, e in alone.items():
        assert compared.evaluations[name].rows == e.rows


def test_one_pair_with_practice_has_the_interval_of_evaluate(care):
    *_, test, policies = care
    row = dprl.compare({"bold": policies["bold"]}, test, draws=500).rows[0]
    alone = dprl.evaluate(policies["bold"], test, draws=500)["WDR"]
    ends = (alone["difference_low"], alone["difference_high"])
    assert (row["low"], row["high"]) == pytest.approx(ends, rel=1e-12)


@pytest.mark.parametrize("estimator", ["WDR", "DR", "WIS"])
def test_the_error_of_the_models_is_in_a_pair_too(estimator):
    """Few follow, four decisions: draws alone said "better" where `evaluate` was not sure."""
    world = HARD["null labels strong, 500 x 4"].make()
    log, always = world.sample(500, seed=3), target(world)
    alone = dprl.evaluate(always, log, draws=200)[estimator]
    (row,) = dprl.compare({"it": always}, log, draws=200, estimator=estimator).rows
    ends = alone["difference_low"], alone["difference_high"]
    assert (row["low"], row["high"]) == pytest.approx(ends, nan_ok=True)
    assert row["better"] == ""


def test_more_rows_make_longer_intervals_of_a_stated_level(care, compared):
    *_, test, policies = care
    (few,) = [r for r in dprl.compare(policies, test, against="shy", draws=500).rows
              if r["first"] == "bold"]  # fmt: skip
    many = compared.rows[2]
    assert many["low"] < few["low"]
    assert few["high"] < many["high"]
    assert compared.level_of_one == pytest.approx(1 - 0.05 / 3)
    same = dprl.compare(policies, test, level=1 - 3 * 0.05 / 2, draws=500).rows[2]
    assert (same["low"], same["high"]) == (few["low"], few["high"])  # 2 rows at .05, 3 at .075


def test_a_policy_does_not_differ_from_itself(care):
    *_, test, policies = care
    compared = dprl.compare([policies["bold"], policies["bold"]], test, draws=50, values=False)
    row = compared.rows[2]
    assert (row["first"], row["second"]) == ("DPRLDiscrete", "DPRLDiscrete 2")
    assert (row["difference"], row["low"], row["high"], row["better"]) == (0, 0, 0, "")


def test_draws_are_paired():
    """They differ in `t` alone, and all the luck is in `s`: paired, the difference is sure."""
    rng = np.random.default_rng(0)
    n = 600
    state, action = np.where(rng.random(n) < 0.8, "s", "t"), rng.choice(["a", "b"], n)
    reward = np.where(state == "s", rng.normal(0, 10, n), np.where(action == "a", 0.1, 0.0))
    log = dprl.from_arrays(episode=np.arange(n), state=state, action=action, reward=reward)

    def policy(at_t):
        return dprl.CallablePolicy(
            lambda states: ["a" if s == "s" else at_t for s in states], ("a", "b"), trained_on=[]
        )

    compared = dprl.compare(
        {"a": policy("a"), "b": policy("b")}, log, gamma=1.0, estimator="IS", values=False
    )
    row = compared.rows[2]
    assert row["better"] == "a"
    assert row["high"] - row["low"] < 0.02
    wide = compared.evaluations["a"]["IS"]
    assert wide["value_high"] - wide["value_low"] > 1


def test_what_has_no_interval_alone_has_none_in_a_pair(care):
    _, train, test, policies = care
    blind = dprl.baselines.PQI(b=0.1, gamma=1.0).fit(train)
    rows = dprl.compare({**policies, "blind": blind}, test, draws=50, values=False).rows
    for row in rows:
        assert np.isnan(row["low"]) == ("blind" in (row["first"], row["second"]))
        if np.isnan(row["low"]):
            assert row["better"] == ""


def test_words_json_frame_and_notebook(care, compared):
    text = str(compared)
    assert "all 3 intervals hold at once with 95 %" in text
    facts = json.loads(compared.to_json())
    assert len(facts["pairs"]) == 3
    assert set(facts["policies"]) == {"bold", "shy"}
    assert compared.to_frame().shape == (3, 6)
    assert "bold" in compared._repr_html_()
    silent = dprl.DPRLDiscrete(n_min=10**6, gamma=1.0).fit(care[1])
    alone = dprl.compare({"silent": silent}, care[2], values=False, draws=20)
    assert alone.warnings[0].startswith("silent: the policy speaks nowhere")


def test_what_cannot_be_compared_is_said(care):
    _, train, test, policies = care
    other = dprl.DPRLDiscrete(n_min=10, gamma=0.9).fit(train)
    with pytest.raises(ParameterError, match="different gamma"):
        dprl.compare({"one": policies["bold"], "two": other}, test)
    dprl.compare({"one": policies["bold"], "two": other}, test, gamma=1.0, draws=5, values=False)
    with pytest.raises(ParameterError, match="against"):
        dprl.compare(policies, test, against="brave")
    with pytest.raises(ParameterError, match="estimator"):
        dprl.compare(policies, test, estimator="DM")
    with pytest.raises(ParameterError, match="no policy to compare"):
        dprl.compare({}, test)
    with pytest.raises(ParameterError, match="a dict of names"):
        dprl.compare(policies["bold"], test)
    with pytest.raises(ParameterError, match="may be called"):
        dprl.compare({"usual practice": policies["bold"]}, test)
    with pytest.raises(PolicyError, match="learned from"):
        dprl.compare(policies, train)


@pytest.mark.slow
def test_all_intervals_hold_at_once_as_often_as_stated():
    """Two equal arms and a better one; 120 logs, six intervals each."""
    arms, truth = ("a", "b", "c"), {"a": 0.5, "b": 0.5, "c": 0.65}
    policies = {
        a: dprl.CallablePolicy(lambda s, a=a: [a] * len(s), actions=arms, trained_on=[])
        for a in arms
    }
    usual = np.mean(list(truth.values()))
    wrong = sure = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        action = rng.choice(arms, 600)
        reward = (rng.random(600) < [truth[a] for a in action]).astype(float)
        log = dprl.from_arrays(
            episode=np.arange(600), state=["s"] * 600, action=action, reward=reward
        )
        rows = dprl.compare(
            policies, log, gamma=1.0, estimator="WIS", values=False, draws=1_000
        ).rows
        exact = [truth[r["first"]] - truth.get(r["second"], usual) for r in rows]
        wrong += any(not r["low"] <= d <= r["high"] for r, d in zip(rows, exact, strict=True))
        sure += any(r["better"] == "c" for r in rows)
    assert wrong <= 14  # at most 6 are expected; more than 14 would happen once in 500
    assert sure > 60
