"""A narrower rule: what the half that certified says of it, and what is refused."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.learners import HeldOut
from dprl.logs.log import deal

MODELS = {
    "behavior_models": [("logistic", LogisticRegression())],
    "value_model": LinearRegression(),
}
WARDS = np.array(["HDU", "ICU", "ward"])


def world(seed=0, n=600):
    """The drug helps where pressure is high, and most where it is very high."""
    rng = np.random.default_rng(seed)
    pressure, age, code = rng.normal(size=n), rng.normal(size=n), rng.integers(0, 3, n)
    drug = rng.random(n) < 0.4
    gain = drug * np.where(pressure > 0, 1.0 + (pressure > 1), -1.0)
    log = dprl.from_frame(
        pd.DataFrame({
            "stay": np.arange(n), "pressure": pressure, "age": age, "unit": WARDS[code],
            "drug": np.where(drug, "drug", "wait"), "score": gain + rng.normal(size=n),
        }),
        episode="stay", state=["pressure", "age", "unit"], action="drug", reward="score",
    )  # fmt: skip
    return log, np.tile([0.4, 0.6], (n, 1))


@pytest.fixture(scope="module")
def fitted():
    """With probabilities that are known and no model of values that matters: closed forms hold."""
    log, b = world()
    given = {"propensity": b, "value_model": LinearRegression()}
    policy = dprl.Rules(gamma=1.0, depth=1, splits=2, lam=1.0).fit(log, **given)
    return log, given, policy, HeldOut.of(policy, log, **given)


def drug_rule(policy):
    """The number of the rule that suggests the drug, and its threshold."""
    number = next(r for r, rule in enumerate(policy.rules, 1) if rule.suggested == "drug")
    (condition,) = policy.rules[number - 1].conditions
    assert (condition.feature, condition.kind) == ("pressure", "above")
    return number, condition.value


def above(value):
    return {"feature": "pressure", "kind": "above", "value": value}


ICU = {"feature": "unit", "kind": "in", "labels": ["ICU"]}


def test_it_is_the_closed_form(fitted):
    """One step an episode, b known: ψ = (1{drug} - b) / b(1 - b) · e, the mean by groups."""
    log, _, policy, half = fitted
    number, _ = drug_rule(policy)
    facts = half.facts(number, [above(1.0), ICU])
    x = np.asarray(log.features)
    inside = deal(len(log.groups), 0.5, policy.provenance["rules"]["division"])
    code = log.categories["unit"].index("ICU")
    region = (x[:, 0] > 1.0) & (x[:, 2] == code)
    here = region & ~inside
    took = log.action == log.actions.index("drug")
    psi = half.certifies.psi[np.searchsorted(half.certifies.rows, np.flatnonzero(here)), 0]
    assert log.actions[0] == "drug"
    n, mean, se = here.sum(), psi.mean(), psi.std(ddof=1) / np.sqrt(here.sum())
    assert facts["advantage"] == pytest.approx(mean)
    assert facts["se"] == pytest.approx(se)
    width = student.ppf(0.95, n - 1) * se
    assert (facts["low"], facts["high"]) == pytest.approx((mean - width, mean + width))
    assert facts["p"] == pytest.approx(student.sf(mean / se, n - 1))
    assert facts["groups"] == n
    assert facts["groups_took"] == (here & took).sum()
    assert facts["groups_others"] == (here & ~took).sum()
    assert facts["groups_proposed"] == (region & inside).sum()
    assert facts["steps"] == region.sum()
    assert facts["share"] == pytest.approx(n / (~inside).sum())
    assert facts["changed"] == pytest.approx((here & ~took).sum() / (~inside).sum())
    assert facts["returns"][0] == pytest.approx(mean)  # λ = 1 is whole returns
    # and e is what was brought less what a line expects of this state
    weight = (took[here] - 0.4) / 0.24
    assert np.corrcoef(psi / weight, log.reward[here])[0, 1] > 0.9


def test_the_policy_says_that_it_was_narrowed(fitted, tmp_path):
    log, given, policy, half = fitted
    number, cut = drug_rule(policy)
    narrow = dprl.narrow(policy, log, number, [above(cut + 0.4)], **given)
    rule = narrow.rules[number - 1]
    assert rule.words == f"pressure above {cut + 0.4!r}"
    assert rule.narrowed
    assert rule.facts["narrowed_from"] == policy.rules[number - 1].words
    assert rule.facts["advantage"] == half.facts(number, [above(cut + 0.4)])["advantage"]
    assert rule.facts["advantage"] > policy.rules[number - 1].facts["advantage"]
    assert "narrowed after looking" in narrow.sentences()[number - 1]
    assert "for this rule alone" in narrow.sentences()[number - 1]
    assert "every rule that was not narrowed" in narrow.claim
    assert any(f"Rule {number} was narrowed after looking" in line for line in narrow.stated)
    assert not any(line.startswith("Where only the first") for line in narrow.stated)
    assert narrow.changes()["narrowed"][number - 1] is True
    assert narrow.digest() != policy.digest()
    assert narrow.provenance["narrowed"][0]["policy"] == policy.digest()
    narrow.save(tmp_path / "n.dprl")
    again = dprl.load(tmp_path / "n.dprl")
    assert again.rules == narrow.rules
    assert again.stated == narrow.stated
    assert "narrowed" not in policy.changes().columns
    # narrowed once more: the certified rule stays the one it came from
    twice = HeldOut.of(again, log, **given).narrow(number, [above(cut + 0.6)])
    assert twice.rules[number - 1].facts["narrowed_from"] == policy.rules[number - 1].words
    assert len(twice.provenance["narrowed"]) == 2
    with pytest.raises(dprl.ParameterError, match="not narrower"):
        again.narrowed(number, [above(cut + 0.2)], {})


def test_it_says_less_and_nothing_else(fitted):
    """Inside the narrower rule the same answer, outside DEFER, other rules untouched; exports agree."""
    log, _, policy, half = fitted
    number, cut = drug_rule(policy)
    narrow = half.narrow(number, [above(cut + 0.3), {**ICU, "labels": ["HDU", "ICU"]}])
    rows = log.features
    states = [
        {"pressure": float(p), "age": float(a), "unit": log.categories["unit"][int(u)]}
        for p, a, u in rows
    ]
    expected = [
        dprl.DEFER if say == "drug" and (s["pressure"] <= cut + 0.3 or s["unit"] == "ward") else say
        for say, s in zip((policy.act(s) for s in states), states, strict=True)
    ]
    assert [narrow.act(s) for s in states] == expected
    names = {}
    exec(narrow.to_python(), names)
    assert [names["suggest"](s) or dprl.DEFER for s in states] == expected
    kept = json.loads(narrow.to_json_rules())["rules"][number - 1]
    assert kept["facts"]["narrowed"] is True
    duckdb = pytest.importorskip("duckdb")
    con = duckdb.connect()
    con.execute("CREATE TABLE stays (pressure DOUBLE, age DOUBLE, unit VARCHAR)")
    con.executemany("INSERT INTO stays VALUES (?, ?, ?)", [list(s.values()) for s in states[:50]])
    got = [row[-1] or dprl.DEFER for row in con.execute(narrow.to_sql()).fetchall()]
    assert got == expected[:50]


def test_the_tree_stays_a_tree(fitted):
    from dprl.policies.rules.tree import tree_of

    _, _, policy, half = fitted
    number, cut = drug_rule(policy)
    assert tree_of(policy) is not None
    assert (
        tree_of(half.narrow(number, [above(cut + 0.3), ICU | {"labels": ["ICU", "ward"]}]))
        is not None
    )


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([], "holds only where pressure above"),
        ([above(-9.0)], "holds only where pressure above"),
        ([ICU], "holds only where pressure above"),
        ([{"feature": "pressure", "kind": "known"}], "holds only where pressure above"),
        ([{"feature": "pressure", "kind": "missing"}], "holds only where pressure above"),
        ("above 3", "a list of conditions"),
        (above(1.0), "a list of conditions"),
    ],
)
def test_what_is_not_narrower_is_refused(fitted, conditions, words):
    _, _, policy, half = fitted
    number, _ = drug_rule(policy)
    with pytest.raises(dprl.ParameterError, match=words) as caught:
        half.facts(number, conditions)
    assert caught.value.do
    with pytest.raises(dprl.ParameterError, match=words):
        policy.narrowed(number, conditions, {})


def test_what_says_nothing_new_is_refused(fitted):
    _, _, policy, half = fitted
    number, cut = drug_rule(policy)
    every = {"feature": "unit", "kind": "in", "labels": list(WARDS)}
    with pytest.raises(dprl.ParameterError, match="already asks all of it"):
        half.facts(number, [above(cut)])
    assert half.facts(number, [above(cut), every])["groups"] > 0  # it leaves missing wards out
    with pytest.raises(dprl.PolicyError, match="no feature"):
        half.facts(number, [above(cut), {"feature": "x", "kind": "known"}])
    with pytest.raises(dprl.PolicyError, match="no label"):
        half.facts(number, [above(cut), {**ICU, "labels": ["ER"]}])
    with pytest.raises(dprl.PolicyError, match="no state can satisfy"):
        half.facts(number, [above(cut), {"feature": "pressure", "kind": "at most", "value": cut}])
    for strange in (0, 9, True, "1", 1.0):
        with pytest.raises(dprl.ParameterError, match="there is no rule"):
            half.facts(strange, [above(2.0)])


def test_too_few_are_told_and_not_suggested(fitted):
    _, _, policy, half = fitted
    number, _ = drug_rule(policy)
    few = half.facts(number, [above(2.2)])
    assert few["groups_took"] < 20
    with pytest.raises(dprl.ParameterError, match="too few to tell"):
        half.narrow(number, [above(2.2)])
    nobody = half.facts(number, [above(99.0)])
    assert nobody["groups"] == nobody["steps"] == 0
    assert nobody["advantage"] is nobody["low"] is nobody["gain"] is None


def test_another_log_or_other_models_are_refused(fitted):
    log, given, policy, _ = fitted
    number, cut = drug_rule(policy)
    with pytest.raises(dprl.LogError, match="this is another"):
        dprl.narrow(policy, world(1)[0], number, [above(cut + 1)], **given)
    with pytest.raises(dprl.PolicyError, match="does not come out again") as caught:
        dprl.narrow(policy, log, number, [above(cut + 1)], **MODELS)
    assert "on record" in caught.value.where
    made_up = dataclasses.replace(policy, provenance={"log": log.digest()})
    with pytest.raises(dprl.PolicyError, match="does not say which half"):
        HeldOut.of(made_up, log)


def test_a_later_rule_does_not_take_over():
    """Where two rules overlap, narrowing the first would let the second speak in its place."""
    rules = [
        {"conditions": [above(0.0)], "suggested": "a"}, {"conditions": [], "suggested": "b"},
    ]  # fmt: skip
    policy = dprl.RulePolicy(
        states=(), actions=("a", "b"), parameters={}, provenance={}, feature_names=("pressure",),
        rules=rules,
    )  # fmt: skip
    with pytest.raises(dprl.ParameterError, match="rule 2 would speak where it did"):
        policy.narrowed(1, [above(1.0)], {})
    assert policy.narrowed(2, [above(1.0)], {}).act([[0.5], [-1.0]]) == ["a", dprl.DEFER]


@pytest.mark.slow
def test_our_own_models_come_out_again(tmp_path):
    """From a file, with the default models and the settings that the file holds."""
    log, _ = world(2, 600)
    dprl.Rules(gamma=1.0, depth=1, splits=1).fit(log).save(tmp_path / "p.dprl")
    policy = dprl.load(tmp_path / "p.dprl")
    stages = []
    half = HeldOut.of(policy, log, progress=lambda stage, share: stages.append(stage))
    assert stages
    assert policy.rules
    assert half.policy is policy
