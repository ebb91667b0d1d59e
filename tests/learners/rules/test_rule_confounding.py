"""Γ* of rules: large-sample, by the same t, in worlds with an unrecorded cause of known strength."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.learners.rules.search import Scores, rule_breakdown
from helpers.hidden_cause import HiddenCause

QUICK = {
    "behavior_models": [("logistic", LogisticRegression())],
    "value_model": LinearRegression(),
}


@pytest.fixture(scope="module")
def deceived():
    """Treatment does nothing; an unrecorded cause of Γ = 1.6 makes it look good everywhere."""
    log = HiddenCause(gamma=1.6, states=("mild",)).sample(3_000, seed=0, numbers=True)
    return dprl.Rules(gamma=1.0, depth=1, splits=1).fit(log, **QUICK), log


def test_a_rule_that_is_false_prints_a_gamma_star_below_the_truth(deceived):
    policy, _ = deceived
    (rule,) = policy.rules
    assert rule.suggested == "treat"
    assert 1 < rule.facts["gamma_star"] < rule.facts["gamma_point"] < 1.6
    star = f"Γ* = {np.floor(100 * rule.facts['gamma_star']) / 100:.2f}"
    assert star in policy.stated[0]  # where the claim is
    assert star in str(policy)
    assert policy.changes()["gamma_star"] == [rule.facts["gamma_star"]]


def test_gamma_star_is_kept_in_the_file_and_checked(deceived, tmp_path):
    policy, _ = deceived
    policy.save(tmp_path / "rules.dprl")
    again = dprl.load(tmp_path / "rules.dprl")
    assert again.rules[0].facts["gamma_star"] == policy.rules[0].facts["gamma_star"]
    from dprl.policies.rules.rule import Rule

    with pytest.raises(dprl.PolicyError, match="gamma_star"):
        Rule((), "treat", {"gamma_star": 0.5})


def scores_of(log, b):
    """Scores with known probabilities of usual practice, and mean outcomes as values."""
    V = np.full(log.n_steps, log.reward.mean())
    table = np.empty((log.n_steps, 2))
    treat = log.actions.index("treat")
    table[:, treat], table[:, 1 - treat] = b, 1 - b
    return Scores.of(log, V, table, 1.0, 1.0), treat


def test_two_valued_outcomes_come_near_the_closed_form():
    world = HiddenCause(gamma=1.3, effect=0.1, states=("mild",))
    log = world.sample(20_000, seed=1, numbers=True)
    scores, treat = scores_of(log, world.p["mild"])
    halves = [scores.at(np.flatnonzero(scores.rows % 2 == k)) for k in (0, 1)]
    m, n, _ = world.means("mild")
    sharp = max(m / n, (1 - n) / (1 - m))
    star, point = rule_breakdown(*halves, treat, width=2.0, margin=0.0)
    assert point == pytest.approx(sharp, rel=0.06)
    assert 1 + 0.6 * (sharp - 1) < star < point
    with_margin, _ = rule_breakdown(*halves, treat, width=2.0, margin=0.05)
    assert with_margin < star
    assert rule_breakdown(*halves, treat, width=2.0, margin=0.9) == (None, None)
    assert rule_breakdown(*halves, treat, width=np.nan, margin=0.0)[0] is None


def test_few_logs_at_the_true_gamma_are_deceived():
    """The unrecorded cause is the outcome itself: no other of its strength deceives more."""
    _at_the_bound(40)


@pytest.mark.slow
def test_few_of_many_logs_at_the_true_gamma_are_deceived():
    _at_the_bound(400)


def _at_the_bound(logs):
    took, gamma, size = 0.6, 1.5, 800
    others = max(took / gamma, 1 - gamma * (1 - took))
    reached = 0
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        treated = rng.random(size) < 0.5
        log = dprl.from_arrays(
            episode=np.arange(size), state=np.zeros((size, 1)), feature_names=["x"],
            action=np.where(treated, "treat", "wait"),
            reward=(rng.random(size) < np.where(treated, took, others)).astype(float),
        )  # fmt: skip
        scores, treat = scores_of(log, 0.5)
        halves = [scores.at(np.flatnonzero(scores.rows % 2 == k)) for k in (0, 1)]
        star, _ = rule_breakdown(*halves, treat, width=1.2816, margin=0.0)  # level 10 %
        reached += star is not None and star >= gamma
    assert reached <= 0.1 * logs + 2 * np.sqrt(0.09 * logs)


def test_the_gate_over_rules_asks_for_gamma_too(deceived):
    policy, log = deceived
    plain = dprl.gate(policy, log, value_range=(0, 1)).certificate
    (row,) = plain.rows
    assert 1 < row["gamma_star"] < 1.6
    assert "Γ* = " in plain.claim
    strict = dprl.gate(policy, log, value_range=(0, 1), confounding=1.6).certificate
    assert strict.vacuous
    assert any("factor of 1.6 at most" in words for words in strict.assumptions)


def test_rules_from_another_log_try_fixed_thresholds(deceived):
    policy, _ = deceived
    fresh = HiddenCause(gamma=1.6, states=("mild",)).sample(3_000, seed=9, numbers=True)
    episodes = np.arange(10_000, 13_000)
    fresh = dprl.from_arrays(
        episode=episodes, state=np.asarray(fresh.features), feature_names=fresh.feature_names,
        action=[fresh.actions[a] for a in fresh.action], reward=fresh.reward,
    )  # fmt: skip
    (row,) = dprl.gate(policy, fresh, value_range=(0, 1)).certificate.rows
    assert 1 < row["gamma_star"] < 1.6
