"""Rules: what helps is found and certified, what does nothing is not, and bad input is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import dprl

ACTIONS = np.array(["drug", "wait"])


def ward(seed, n=500, effect=1.0, steps=1, spread=1.0):
    """Sicker people (lactate) get the drug more often; it helps where pressure is above .2."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, steps, 3))
    likely = 1 / (1 + np.exp(-x[..., 1]))
    drug = rng.random((n, steps)) < likely
    gain = effect * drug * np.where(x[..., 0] > 0.2, 1.0, -1.0)
    reward = gain - x[..., 1] + spread * rng.normal(size=(n, steps))
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(n), steps), state=x.reshape(-1, 3),
        action=np.where(drug, "drug", "wait").ravel(), reward=reward.ravel(),
        feature_names=["pressure", "lactate", "age"],
    )  # fmt: skip
    return log, np.stack((likely.ravel(), 1 - likely.ravel()), axis=1)


@pytest.fixture(scope="module")
def policy():
    return dprl.Rules(gamma=1.0).fit(ward(0)[0])


def test_it_finds_where_the_drug_helps(policy):
    x = np.random.default_rng(1).normal(size=(2_000, 3))
    answers = np.array([a if a is not dprl.DEFER else "" for a in policy.act(x)])
    right = np.where(x[:, 0] > 0.2, "drug", "wait")
    spoken = answers != ""
    assert spoken.mean() > 0.7
    assert (answers[spoken] == right[spoken]).mean() > 0.9


def test_what_is_told_of_a_rule(policy):
    for rule in policy.rules:
        facts = rule.facts
        assert facts["low"] > 0
        assert facts["low"] < facts["advantage"] < facts["high"]
        assert facts["p"] <= 0.05
        assert facts["groups_took"] >= 20
        assert facts["groups_others"] >= 20
        assert facts["groups_took"] <= facts["groups"] <= 250
        assert 0 < facts["overlap"] <= 1
        assert sum(share for _, share in facts["share_usual"]) == pytest.approx(1)
        assert sum(n for _, n in facts["groups_by_action"]) <= 500
        assert facts["balance"][1] < 0.5
    assert "half" in policy.provenance["notes"][0]


def test_the_contrast_is_near_the_truth():
    log, b = ward(3, n=3_000)
    policy = dprl.Rules(gamma=1.0, depth=1).fit(log, propensity=b)
    above = [r for r in policy.rules if r.suggested == "drug"]
    assert len(above) == 1
    assert above[0].facts["low"] < 1.0 < above[0].facts["high"]


def test_same_seed_same_bytes_another_seed_another_half(policy):
    log = ward(0)[0]
    assert dprl.Rules(gamma=1.0).fit(log).digest() == policy.digest()
    assert dprl.Rules(gamma=1.0, seed=1).fit(log).digest() != policy.digest()


def test_it_goes_through_a_file(policy, tmp_path):
    policy.save(tmp_path / "rules.dprl")
    again = dprl.load(tmp_path / "rules.dprl")
    x = np.random.default_rng(2).normal(size=(500, 3))
    assert again.act(x) == policy.act(x)
    assert again.digest() == policy.digest()


def test_a_margin_leaves_only_what_is_worth_it():
    log, b = ward(0)
    assert dprl.Rules(gamma=1.0).fit(log, propensity=b).rules
    assert not dprl.Rules(gamma=1.0, margin=5.0).fit(log, propensity=b).rules


def test_too_few_groups_behind_an_action_say_nothing():
    log, b = ward(0, n=60)
    assert not dprl.Rules(gamma=1.0, n_min=40).fit(log, propensity=b).rules


def test_groups_with_several_steps_count_once():
    log, b = ward(4, n=120, steps=5)
    policy = dprl.Rules(gamma=0.9, n_min=10).fit(log, propensity=b)
    assert policy.rules
    for rule in policy.rules:
        assert rule.facts["groups"] <= 60
        assert rule.facts["steps"] > rule.facts["groups"]


def test_own_models_may_be_brought():
    from sklearn.linear_model import LinearRegression, LogisticRegression

    log, _ = ward(0)
    policy = dprl.Rules(gamma=1.0).fit(
        log, behavior_models=[("mine", LogisticRegression())], value_model=LinearRegression()
    )
    assert policy.rules
    assert "mine" in str(policy.provenance["rules"]["models"])


def test_labels_are_refused():
    with pytest.raises(dprl.LogError) as error:
        dprl.Rules(gamma=1.0).fit(dprl.envs.care_pathway().sample(50, seed=0))
    assert "features" in error.value.what
    assert error.value.do


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 0.0), ("depth", 0), ("depth", 5), ("n_min", 1), ("delta", 0.0), ("delta", 1.0),
        ("margin", -1.0), ("margin", np.nan), ("lam", 1.5), ("cuts", 0), ("folds", 1),
        ("cut", "x"), ("seed", -1),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(name, value):
    with pytest.raises(dprl.ParameterError, match=name):
        dataclasses.replace(dprl.Rules(gamma=1.0), **{name: value})


@pytest.mark.slow
def test_where_actions_do_nothing_nothing_is_certified():
    """Actions depend on the features and do nothing: something is certified in about delta."""
    issued = 0
    for seed in range(60):
        log, _ = ward(1_000 + seed, n=200, effect=0.0, steps=3)
        issued += bool(dprl.Rules(gamma=0.9, folds=2).fit(log).rules)
    assert issued <= 8  # 3 expected at delta = .05; three standard errors
