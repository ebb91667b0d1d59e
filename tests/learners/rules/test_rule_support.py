"""Rules are about those of whom the record shows that some were treated, and some were not."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import dprl
from dprl.envs.hard import contraindication
from dprl.learners.rules.search import LEARNING, Place, Scores, certify, untreated
from dprl.learners.rules.whole import Steps
from dprl.policies.rules.rule import Condition, Rule, Sum

LINES = {"value_model": LinearRegression()}


def known(world, log):
    """The probabilities of usual practice, which need not be estimated."""
    return {**LINES, "propensity": world.practice(np.asarray(log.features), 0, 0)}


@pytest.fixture(scope="module")
def treated():
    """14 % would lose 8 and are treated one time in 200, the others gain .6."""
    world = contraindication()
    log = world.sample(1_000, seed=11)
    rules = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0)
    return world, log, rules.fit(log, **known(world, log))


def test_a_rule_leaves_out_whom_hardly_anybody_treated(treated):
    world, log, policy = treated
    (rule,) = policy.rules
    assert rule.unless
    assert "but not where" in rule.words
    x = np.asarray(log.features)
    ruined = x[:, :3].sum(axis=1) > 1.9
    answers = np.array([a is not dprl.DEFER for a in policy.act(x)])
    assert answers[ruined].mean() < 0.15
    assert answers[~ruined].mean() > 0.5
    truth = world.effect(lambda states: policy.rule_of(states) == 0, "treat")
    assert 0 < rule.facts["low"] <= truth.value
    assert world.gain(policy).value > 0.1


def test_it_says_so_in_words(treated):
    policy = treated[2]
    assert "at least 5 % went either way" in policy.claim
    state = [3.0, 3.0, 3.0, 0.0]
    assert policy.act(state) is dprl.DEFER
    assert "hardly anybody who was given treat" in policy.explain(state).reason
    assert "hardly anybody" not in policy.explain([0.0, 0.0, 0.0, 0.0]).reason


def test_it_travels_with_the_policy(treated, tmp_path):
    _, log, policy = treated
    policy.save(tmp_path / "rules.dprl")
    again = dprl.load(tmp_path / "rules.dprl")
    assert again.rules == policy.rules
    x = np.asarray(log.features)
    assert again.act(x) == policy.act(x)
    names: dict = {}
    exec(policy.to_python(), names)
    rows = [dict(zip("abcd", row, strict=True)) for row in x.tolist()]
    assert [names["suggest"](row) or dprl.DEFER for row in rows] == policy.act(x)
    written = json.loads(policy.to_json_rules())
    assert written["version"] == 3
    assert written["rules"][0]["unless"] == policy.rules[0].to_dict()["unless"]


def test_a_narrower_rule_keeps_its_exceptions(treated):
    world, log, policy = treated
    narrow = dprl.narrow(
        policy, log, 1, [*policy.rules[0].conditions, Condition("d", "above", 0.0)],
        **known(world, log),
    )  # fmt: skip
    assert narrow.rules[0].unless == policy.rules[0].unless
    assert narrow.act([3.0, 3.0, 3.0, 1.0]) is dprl.DEFER


def test_the_gate_counts_only_those_the_rule_is_about(treated):
    _, log, policy = treated
    gated = dprl.gate(policy, log, grade="large-sample")
    inside = [a is not dprl.DEFER for a in policy.act(np.asarray(log.features))]
    for rule in gated.rules:
        assert rule.unless
        assert rule.facts["steps"] == sum(inside)


@pytest.mark.slow
def test_evaluate_sees_the_border_of_a_sum(treated):
    world, log, _ = treated
    everybody = dprl.RulePolicy(
        states=(), actions=world.actions, parameters={"gamma": 1.0}, provenance={},
        feature_names=world.feature_names, rules=(Rule((), "treat"),),
    )  # fmt: skip
    found = dprl.evaluate(everybody, log, draws=50, seed=0)
    assert found.facts["unsupported"] == pytest.approx(0.14, abs=0.04)
    assert np.isnan(found.rows[found.headline]["difference_low"])


def test_lower_ends_allow_for_a_group_without_takers():
    """Of 21 % nobody is treated: where they are not left out, each may lose twice the range."""
    rng = np.random.default_rng(5)
    x, drug = rng.normal(size=(300, 2)), rng.random(300) < 0.5
    score = rng.normal(size=300)
    for border, more in ((np.inf, 0.0), (0.8, 1.0)):
        took = drug & (x[:, 0] <= border)
        log = dprl.from_arrays(
            episode=range(300), state=x, action=np.where(took, "drug", "wait"), reward=score,
        )  # fmt: skip
        b = np.full((300, 2), [0.5, 0.5])
        scores = Scores.of(log, np.zeros(300), b, 1.0, 1.0)
        half = np.arange(300) < 150
        cost = untreated(scores.of_groups(half), scores.of_groups(~half), Place(()), 0)
        least = (x[:, 0] > border).mean() * 2 * np.ptp(score)
        assert least * more <= cost <= (1.3 * least + 0.01) * more
        nothing = Place((), ((Condition("x0", "above", 0.8),),))  # 0 but for the rest of a border
        assert untreated(scores, scores.of_groups(half & ~half), nothing, 0) < 0.3


def test_lower_ends_allow_for_what_models_of_practice_still_learn():
    """What models of half as many groups say more, beyond its error, is deducted 2.4 times."""
    rng = np.random.default_rng(2)
    drug, noise = rng.random(600) < 0.5, rng.normal(size=600)
    half, b = np.arange(600) < 300, np.full((600, 2), 0.5)

    def claims(more):
        def scored(effect):
            log = dprl.from_arrays(
                episode=range(600), state=np.zeros((600, 1)),
                action=np.where(drug, "drug", "wait"), reward=effect * drug + noise,
            )  # fmt: skip
            return log, Scores.of(log, np.zeros(600), b, 1.0, 1.0)

        log, scores = scored(0.6)
        own, steps = scores.of_groups(~half), Steps(log, np.zeros(600), b, 1.0)
        return certify(
            [(Place(()), log.actions.index("drug"))], scores.of_groups(half), own, own, steps,
            delta=0.05, splits=1, margin=0.0, n_min=20, gamma=1.0, seed=0,
            weaker=None if more is None else lambda: scored(0.6 + more)[1].of_groups(~half),
        )  # fmt: skip

    plain, same, little, much = (claims(more) for more in (None, 0.0, 0.05, 0.3))
    assert plain.whole["low"] == same.whole["low"] > little.whole["low"] > 0
    told = little.tested[0].facts
    assert 0.8 * 0.05 * LEARNING < told["learning"] < 0.05 * LEARNING
    assert told["low"] == pytest.approx(plain.tested[0].facts["low"] - told["learning"])
    assert told["advantage"] == pytest.approx(plain.tested[0].facts["advantage"])
    assert plain.issued
    assert not much.issued


def test_where_all_may_be_treated_there_are_no_exceptions():
    log = dprl.envs.hard.effect("plain", strength=0.0).sample(500, seed=1)
    policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log, **LINES)
    assert policy.rules
    assert not any(rule.unless for rule in policy.rules)


# -- exceptions by hand ---------------------------------------------------------------------------

BORDER = Sum((("a", 1.0, 0.0), ("b", -0.5, 2.0)), "above", 1.0)


def by_hand(*rules):
    return dprl.RulePolicy(
        states=(), actions=("drug", "wait"), parameters={}, provenance={}, feature_names=("a", "b"),
        rules=rules,
    )  # fmt: skip


def test_an_exception_defers_and_silences_later_rules():
    low = Condition("a", "above", -5.0)
    policy = by_hand(Rule((low,), "drug", unless=((BORDER,),)), Rule((), "wait"))
    nan, inf = float("nan"), float("inf")
    states = [[0.0, 0.0], [3.0, 0.0], [3.0, nan], [3.0, inf], [-9.0, 0.0], [2.0, 2.0]]
    assert policy.act(states) == ["drug", dprl.DEFER, dprl.DEFER, dprl.DEFER, "wait", "drug"]
    assert policy.rules[0].words == "a above -5, but not where a - 0.5·b above 1"
    assert policy.rules[0].sentence.startswith("If a is above -5, but not where")


@pytest.mark.parametrize(
    "unless",
    [
        [[]],
        [[{"sum": [], "kind": "above", "value": 1.0}]],
        [[{"sum": [["a", 1.0]], "kind": "above", "value": 1.0}]],
        [[{"sum": [["a", float("nan"), 0.0]], "kind": "above", "value": 1.0}]],
        [[{"sum": [["a", 1.0, 0.0]], "kind": "missing", "value": 1.0}]],
        [[{"sum": [["a", 1.0, 0.0]] * 2, "kind": "above", "value": 1.0}]],
        [[{"sum": [["z", 1.0, 0.0]], "kind": "above", "value": 1.0}]],
        [[{"sum": 3, "kind": "above", "value": 1.0}]],
        "a",
    ],
)
def test_a_damaged_exception_is_refused(unless):
    with pytest.raises(dprl.PolicyError):
        by_hand({"conditions": [], "suggested": "drug", "unless": unless})


def spoken(policy, rule, states):
    return policy.rule_of(states) == rule


@pytest.mark.slow
def test_a_slope_of_practice_does_not_hide_whom_it_leaves_out():
    """Where only takers were counted, rules did harm in all of these."""
    world = contraindication(above=3.1, loss=16.2, slope=1.0)
    gains = [
        world.gain(dprl.Rules(gamma=1.0, seed=seed).fit(world.sample(1_000, seed=seed))).value
        for seed in (2, 3, 7, 11)
    ]
    assert min(gains) >= 0
    assert np.mean(gains) > 0.5 * world.best


@pytest.mark.slow
def test_no_false_claim_where_some_are_hardly_ever_treated():
    """Ten logs at δ = .05: more than two false ones have a chance of 1 in 90."""
    world, false = contraindication(), 0
    for seed in range(10):
        policy = dprl.Rules(gamma=1.0, seed=seed).fit(world.sample(1_000, seed=900 + seed))
        for i, rule in enumerate(policy.rules):
            truth = world.effect(partial(spoken, policy, i), rule.suggested)
            low = rule.facts["low"]
            false += truth.value <= 0 or (low is not None and low > truth.value + 3 * truth.error)
    assert false <= 2
