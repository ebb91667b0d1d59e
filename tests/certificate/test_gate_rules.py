"""The gate over rules: what is proved, what is struck, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.certificate.rules import imbalance

QUICK = {
    "behavior_models": [("logistic", LogisticRegression())],
    "value_model": LinearRegression(),
}
UNIT = {"value_range": (0.0, 1.0)}
RULES = dprl.Rules(gamma=1.0)


def ward(seed, n=1_500, effect=0.4, by_age=0.0, age_counts=0.0, first=0, **more):
    """The drug helps where pressure is above .2 and harms elsewhere; by_age: who gets it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    drug = rng.random(n) < 1 / (1 + np.exp(0.4 - by_age * x[:, 2]))
    chance = 0.5 + effect * drug * np.where(x[:, 0] > 0.2, 1, -1) + age_counts * x[:, 2]
    return dprl.from_arrays(
        episode=np.arange(first, first + n), state=x, action=np.where(drug, "drug", "wait"),
        reward=(rng.random(n) < np.clip(chance, 0, 1)).astype(float),
        feature_names=["pressure", "lactate", "age"], **more,
    )  # fmt: skip


LOG = ward(0)


@pytest.fixture(scope="module")
def policy():
    return RULES.fit(LOG, **QUICK)


@pytest.fixture(scope="module")
def gated(policy):
    return dprl.gate(policy, LOG, **UNIT)


@pytest.mark.slow
def test_a_randomised_ward_is_proved(policy, gated):
    assert gated.act([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]) == ["drug", "wait"]
    certificate = gated.certificate
    assert certificate.mode == "split"
    assert certificate.gain is None
    assert certificate.issued == {rule.words: rule.suggested for rule in gated.rules}
    for rule, row in zip(gated.rules, certificate.rows, strict=True):
        assert rule.facts["grade"] == "proved"
        assert 0 < rule.facts["proved_low"] == row["low"] < 0.4
        assert rule.facts["log10_e"] == row["log10_e"] > 1
        assert rule.facts["p"] <= 0.05  # the large-sample grade stays on record
        assert 0 < row["advantage_low"] < row["low"] < row["difference"]
    tested = gated.provenance["rules"]["tested"]
    assert len(tested) == certificate.tested[0] == len(policy.provenance["rules"]["tested"])


def test_both_grades_are_said(policy, gated):
    text = str(gated)
    low = f"{math.floor(1e3 * gated.rules[0].facts['proved_low']) / 1e3:+.3g}"
    assert f"proved at first decisions there: at least {low} over doing otherwise" in text
    assert "With probability at least 95 %, each of the" in text
    assert "Beyond that, large-sample and not proved: with confidence about 95 %" in text
    assert "no worse" not in text  # nothing is proved of all rules followed together
    assert "at every decision" not in text  # which was about the rules before the gate
    assert "following these rules brings at least" in str(policy)
    assert "proved at" not in str(policy)
    words = gated.certificate.details()
    assert "10 ways to propose share the level" in words
    assert "as if drawn by lot" in words
    assert "no worse" not in words
    assert "Lower bounds on what the policy gains" not in words
    assert gated.changes()["proved_low"] == [
        rule.facts["proved_low"] for rule in gated.rules if rule.suggested == "drug"
    ]
    assert "proved_low" not in policy.changes().columns


def test_for_large_samples_nothing_is_called_proved(policy):
    large = dprl.gate(policy, LOG, grade="large-sample")
    certificate = large.certificate
    assert (certificate.grade, certificate.value_range) == ("large-sample", None)
    assert large.act([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]) == ["drug", "wait"]
    for rule, row in zip(large.rules, certificate.rows, strict=True):
        assert rule.facts["grade"] == "large-sample"
        assert 0 <= rule.facts["gate_low"] == row["low"] < 0.8
        assert rule.facts["gate_p"] == row["p"] <= 0.05
        assert "gamma_star" not in row
        assert "proved_low" not in rule.facts
    assert certificate.claim.startswith("Large-sample, not proved")
    assert "range" not in " ".join(certificate.assumptions)
    for text in (certificate.details(), large.details()):
        assert "proved" not in text.replace("not proved", "")
    again = dprl.gate(large, LOG, **UNIT)
    assert again.certificate.grade == "proved"
    assert all("gate_low" not in rule.facts for rule in again.rules)


def log_e(x, y, d):
    """log E(d) of returns that are 0 or 1, in closed form: of each fraction only counts matter."""
    fractions = np.geomspace(0.01, 0.95, 12)
    ratio = math.log(95) / 11

    def product(ones, zeros, mean):
        return ones * np.log1p(fractions * (1 / mean - 1)) + zeros * np.log1p(-fractions)

    least = math.inf
    for i in range(400):
        m, u = i / 400, min((i + 1) / 400 + d, 1.0)
        X, Y = product(x.sum(), (1 - x).sum(), u), product((1 - y).sum(), y.sum(), 1 - m)
        shift = round(math.log(len(x) / len(y) * (1 - m) / max(m, 1 / 400)) / ratio)
        apart = np.logaddexp.reduce(X) + np.logaddexp.reduce(Y) - 2 * math.log(12)
        both = np.logaddexp.reduce(X + Y[np.clip(np.arange(12) + shift, 0, 11)]) - math.log(12)
        least = min(least, np.logaddexp(apart, both) - math.log(2))
    return least


def test_the_level_and_an_e_value_from_their_definition(policy, gated):
    """One region by hand: its half, its first visits, its e-value; δ is shared by ten searches."""
    facts = policy.provenance["rules"]
    order = np.random.default_rng(facts["division"]).permutation(LOG.n_episodes)
    certifies = np.ones(LOG.n_episodes, bool)
    certifies[order[: LOG.n_episodes // 2]] = False
    rule = gated.rules[0]
    (condition,) = rule.conditions
    pressure = np.asarray(LOG.features)[:, 0]
    low = condition.kind == "at most"
    inside = certifies & ((pressure <= condition.value) == low)
    took = np.array(LOG.actions)[LOG.action] == rule.suggested
    x, y = LOG.reward[inside & took], LOG.reward[inside & ~took]
    row = gated.certificate.rows[0]
    assert (row["n"], row["others"]) == (len(x), len(y))
    assert row["difference"] == pytest.approx(x.mean() - y.mean())
    assert row["log10_e"] == pytest.approx(log_e(x, y, 0.0) / math.log(10))
    nats = -math.log(0.9 * 0.05 / 10 / len(facts["tested"]))
    assert log_e(x, y, row["low"]) >= nats - 1e-9
    assert log_e(x, y, row["low"] + 1 / 400) < nats
    one = replace(policy, parameters={**policy.parameters, "splits": 1})
    record = {**facts, "divisions": facts["divisions"][:1]}
    one = replace(one, provenance={**policy.provenance, "rules": record})
    assert dprl.gate(one, LOG, **UNIT).certificate.rows[0]["low"] > row["low"]


def test_all_proposals_are_tested_whatever_the_other_test_said(policy):
    facts = policy.provenance["rules"]
    silent = replace(policy, rules=())
    assert dprl.gate(silent, LOG, **UNIT).certificate.issued
    more = {"conditions": [{"feature": "pressure", "kind": "missing"}], "suggested": "drug",
            "facts": {"groups": 0, "groups_took": 0}, "silent": False}  # fmt: skip
    record = {**facts, "tested": [*facts["tested"], more]}
    wider = replace(policy, provenance={**policy.provenance, "rules": record})
    one, two = (dprl.gate(p, LOG, **UNIT).certificate for p in (policy, wider))
    assert two.tested[0] == one.tested[0] + 1
    assert two.rows[0]["low"] < one.rows[0]["low"]


@pytest.mark.slow
def test_a_learner_is_fitted_first():
    gated = dprl.gate(dprl.Rules(gamma=1.0, splits=1, depth=1, lam=1.0), ward(3, 600), **UNIT)
    assert gated.certificate.issued
    assert "3 ways to propose share" in gated.certificate.details()  # two and everyone


@pytest.mark.slow
def test_confounding_in_the_features_strikes():
    """Younger people get the drug and do better anyhow: whole returns are no proof."""
    log = ward(1, by_age=-1.5, age_counts=-0.15)
    policy = RULES.fit(log, **QUICK)
    assert {rule.suggested for rule in policy.rules} >= {"drug"}
    gated = dprl.gate(policy, log, **UNIT)
    assert "drug" not in gated.certificate.issued.values()
    (note,) = [n for n in gated.certificate.notes if "Not issued: drug where pressure" in n]
    assert "had a lower age than others (by 0." in note  # those it hardly applies to are left out
    assert "standard deviations within the region)" in note
    struck = [r for r in gated.provenance["rules"]["tested"] if r["facts"].get("struck")]
    assert struck
    assert {r["facts"]["grade"] for r in struck} == {"large-sample"}


def test_balance_by_hand():
    took = np.repeat([True, False], 200)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    step = np.zeros(400)
    assert imbalance(x, ("age", "pressure"), (), step, took) is None
    older = x + 0.5 * took[:, None] * [1, 0]
    difference = imbalance(older, ("age", "pressure"), (), step, took)
    sd = older[:, 0].std()
    assert difference.words == "a higher age"
    assert difference.size == pytest.approx((older[:200, 0].mean() - older[200:, 0].mean()) / sd)
    assert imbalance(x, ("a", "b"), (), 2.0 * ~took, took).words == "an earlier step of the episode"
    gone = x.copy()
    gone[:80, 1] = np.nan
    assert imbalance(gone, ("a", "b"), (), step, took).words == "b missing more often"
    codes = np.stack((x[:, 0], np.where(took, 0.0, rng.integers(2, size=400))), axis=1)
    levels = (None, ("HDU", "ICU"))
    assert imbalance(codes, ("a", "ward"), levels, step, took).words == "ward HDU more often"
    few = slice(150, 250, 10)
    assert imbalance(older[few], ("age", "pressure"), (), step[few], took[few]) is None


def test_chance_alone_rarely_strikes():
    struck = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, took = rng.normal(size=(300, 5)), rng.random(300) < 0.4
        struck += imbalance(x, tuple("abcde"), (), rng.random(300), took) is not None
    assert struck <= 10


def test_another_log_certifies_with_all_of_it(policy):
    other = ward(7, 900, first=10_000)
    gated = dprl.gate(policy, other, **UNIT)
    certificate = gated.certificate
    assert certificate.issued
    assert certificate.groups == 900
    assert certificate.log == gated.provenance["log"] == other.digest()
    assert any("learned from another log" in note for note in certificate.notes)
    assert sum(row["n"] + row["others"] for row in certificate.rows) == 900
    assert gated.provenance["proposed"]["log"] == LOG.digest()
    assert sum(rule.facts["steps"] for rule in gated.rules) == 900
    assert "those of the log that the rules were learned from" in gated.details()
    for log in (other, LOG):  # it has seen both
        with pytest.raises(dprl.PolicyError, match="log the policy was learned from"):
            dprl.evaluate(gated, log)
        with pytest.raises(dprl.PolicyError, match="cannot be told apart"):
            dprl.gate(gated, log, **UNIT)


def test_a_log_that_shares_groups_is_refused(policy):
    part = LOG.take(np.arange(1_200))
    with pytest.raises(dprl.PolicyError, match="cannot be told apart"):
        dprl.gate(policy, part, **UNIT)


def test_halves_that_are_not_those_on_record_are_refused(policy):
    facts = policy.provenance["rules"]
    wrong = replace(
        policy,
        provenance={**policy.provenance, "rules": {**facts, "division": facts["division"] + 7}},
    )
    with pytest.raises(dprl.PolicyError, match="cannot be made again") as error:
        dprl.gate(wrong, LOG, **UNIT)
    assert "on record are" in str(error.value)


def test_damaged_records_are_refused(policy):
    facts = policy.provenance["rules"]
    for wrong in (
        {**facts, "divisions": facts["divisions"][:1]},  # fewer than share the level
        {**facts, "tested": [*facts["tested"], facts["tested"][0]]},  # regions overlap
        {k: v for k, v in facts.items() if k != "tested"},
    ):
        broken = replace(policy, provenance={**policy.provenance, "rules": wrong})
        with pytest.raises(dprl.PolicyError, match="damaged"):
            dprl.gate(broken, LOG, **UNIT)
    for without in (
        dprl.public_copy(policy),
        replace(policy, provenance={k: v for k, v in policy.provenance.items() if k != "rules"}),
        replace(policy, parameters={"gamma": 1.0}),
    ):
        with pytest.raises(dprl.ParameterError, match="no record"):
            dprl.gate(without, LOG, **UNIT)


def test_settings_that_rules_have_no_use_for(policy):
    for more, word in (
        ({"mode": "in-sample", "states": ["s"]}, "in-sample"),
        ({"split": [True] * LOG.n_episodes}, "split"),
        ({"horizon": 3}, "horizon"),
    ):
        with pytest.raises(dprl.ParameterError, match=word):
            dprl.gate(policy, LOG, **UNIT, **more)
    with pytest.raises(dprl.LogError, match="outside value_range"):
        dprl.gate(policy, LOG, value_range=(0.0, 0.5))


@pytest.mark.slow
def test_cut_episodes_need_a_treatment():
    ended = np.ones(1_500, bool)
    ended[::10] = False
    log = ward(0, ended=ended)
    learner = dprl.Rules(gamma=1.0, splits=1, depth=1, lam=1.0)
    with pytest.raises(dprl.LogError, match="no treatment is stated"):
        dprl.gate(learner, log, **UNIT)
    with pytest.warns(dprl.CutWarning):
        policy = learner.fit(log, **QUICK)
    with pytest.raises(dprl.LogError, match="no treatment is stated"):
        dprl.gate(policy, log, **UNIT)
    with pytest.raises(dprl.LogError, match="150 of 1,500 episodes were cut and would be left out"):
        replace(learner, cut="drop").fit(log, **QUICK)
    left_out = "150 cut episodes were left out"
    for cut, words in (("drop-unrelated", left_out), ("terminal", "count as ended")):
        policy = replace(learner, cut=cut).fit(log, **QUICK)
        assert words in dprl.gate(policy, log, **UNIT).certificate.details()


def test_margin_and_n_min(policy, gated):
    least = min(row["advantage_low"] for row in gated.certificate.rows)
    some = dprl.gate(policy, LOG, margin=least + 1e-6, **UNIT).certificate
    assert len(some.rows) == len(gated.certificate.rows) - 1
    assert f"by more than {least + 1e-6:g} each" in some.claim
    high = replace(policy, parameters={**policy.parameters, "n_min": 700})
    assert dprl.gate(high, LOG, **UNIT).certificate.vacuous


def test_what_was_not_always_on_offer_is_not_issued(policy):
    offers = ["drug|wait"] * 1_500
    rng = np.random.default_rng(0)
    log = ward(9, first=10_000, available=offers)
    assert "drug" in dprl.gate(policy, log, **UNIT).certificate.issued.values()
    waits = np.flatnonzero(np.array(log.actions)[log.action] == "wait")
    for row in rng.choice(waits, 40):
        offers[row] = "wait"
    log = ward(9, first=10_000, available=offers)
    assert "drug" not in dprl.gate(policy, log, **UNIT).certificate.issued.values()


def test_first_visits_go_by_group():
    """Many steps and episodes of a patient in a region are one vote."""
    rng = np.random.default_rng(2)
    n, steps = 600, 6
    x = np.repeat(rng.normal(size=n), steps)[:, None]
    drug = rng.random(n * steps) < 0.5
    episode = np.arange(n * steps) // 2
    reward = 0.3 * drug + 0.2 * (rng.random(n * steps) < 0.5)
    log = dprl.from_arrays(
        episode=episode, state=x, action=np.where(drug, "drug", "wait"), reward=reward,
        group=np.arange(n * steps) // steps, feature_names=["pressure"],
    )  # fmt: skip
    policy = dprl.Rules(gamma=1.0, splits=1, depth=1, lam=1.0).fit(log, **QUICK)
    certificate = dprl.gate(policy, log, **UNIT).certificate
    assert certificate.issued
    assert policy.provenance["rules"]["division"] == -1  # the drug helps everyone: all certify
    told = certificate.details()
    assert "all groups certified it" in told
    assert "half that" not in told
    assert "One half" not in told
    assert sum(row["n"] + row["others"] for row in certificate.rows) <= n
    assert any("first visit of the region of a rule counts" in a for a in certificate.assumptions)


def test_it_travels_with_the_policy(gated, tmp_path):
    gated.save(tmp_path / "gated.dprl")
    again = dprl.load(tmp_path / "gated.dprl")
    assert again.digest() == gated.digest()
    assert again.certificate.details() == gated.certificate.details()
    assert str(again) == str(gated)
    assert again._repr_html_()
    assert "nothing is claimed" not in again.certificate._repr_html_()
    public = dprl.public_copy(gated)
    assert public.certificate.issued == gated.certificate.issued
    assert public.certificate.log == public.provenance["log"] == "withheld"
    once_more = dprl.gate(again, LOG, **UNIT)
    assert once_more.certificate.rows == gated.certificate.rows


def test_a_certificate_of_other_rules_is_refused(policy, gated):
    for parts in (
        {"rules": gated.rules[:1]},
        {"rules": tuple(replace(rule, silent=True) for rule in gated.rules)},
        {"provenance": {**gated.provenance, "log": "another"}},
        {"parameters": {**gated.parameters, "gamma": 0.5}},
        {"rules": tuple(replace(r, facts={"groups": 3}) for r in gated.rules)},
    ):
        with pytest.raises(dprl.PolicyError, match="its certificate is about"):
            replace(gated, **parts)
    with pytest.raises(dprl.PolicyError, match="grade"):
        replace(gated.rules[0], facts={"grade": "certain"})


def test_what_people_approve_is_restated_and_gated(policy, gated):
    changes = gated.situations(LOG)
    words = next(r.words for r in gated.rules if r.suggested == "drug")
    assert [c.state for c in changes] == [words]
    limited = gated.limited_to(changes, by="two nurses")
    assert limited.certificate.issued == {words: "drug"}
    assert limited.certificate.gain is None
    assert "Restated for 1 of 2 certified suggestions." in limited.certificate.notes
    none = gated.limited_to([])
    assert none.certificate.vacuous
    assert none.act([1.0, 0.0, 0.0]) is dprl.DEFER
    late = dprl.gate(policy.limited_to(changes), LOG, **UNIT)
    assert late.certificate.issued == {words: "drug"}
    assert late.certificate.tested == gated.certificate.tested
    assert dprl.gate(policy.limited_to([]), LOG, **UNIT).certificate.vacuous


def test_nothing_proposed_is_vacuous():
    log = ward(4, 300, effect=0.0)
    policy = dprl.Rules(gamma=1.0, splits=1, lam=1.0, depth=1, n_min=200).fit(log, **QUICK)
    assert not policy.provenance["rules"]["tested"]
    gated = dprl.gate(policy, log, **UNIT)
    assert gated.certificate.vacuous
    assert str(gated).startswith("Elsewhere: DEFER.\nVACUOUS")


def test_the_command(run, tmp_path):
    import duckdb

    path = str(tmp_path / "log.parquet")
    names = [*LOG.feature_names, "patient", "drug", "score"]
    columns = [*np.asarray(LOG.features).T, np.arange(LOG.n_episodes),
               np.array(LOG.actions)[LOG.action], LOG.reward]  # fmt: skip
    with duckdb.connect() as con:
        con.register("steps", {n: np.asarray(c) for n, c in zip(names, columns, strict=True)})
        con.execute(f"COPY (FROM steps) TO '{path}'")
    log = dprl.read(
        path, episode="patient", state=list(LOG.feature_names), action="drug", reward="score"
    )
    dprl.Rules(gamma=1.0, splits=1, depth=1, lam=1.0).fit(log, **QUICK).save(tmp_path / "r.dprl")
    asked = ("gate", tmp_path / "r.dprl", path, "--lowest", 0, "--highest", 1)
    code, out, _ = run(*asked, "--out", tmp_path / "gated.dprl")
    assert code == 0
    assert "proved at first decisions there: at least" in out
    code, out, _ = run(*asked, "--out", tmp_path / "gated.dprl", "--json")
    facts = json.loads(out)
    assert facts["certificate"]["rows"]
    assert dprl.load(tmp_path / "gated.dprl").certificate.issued
    code, _, err = run(*asked, "--out", tmp_path / "not.dprl", "--horizon", 3)
    assert code == 1
    assert "takes no horizon" in err
    assert not (tmp_path / "not.dprl").exists()


@pytest.mark.slow
def test_claims_hold_over_many_logs():
    """Small logs in which nothing works: something is issued in at most δ of them.

    If it were in a third of them, these 100 logs would show it 99 times in 100.
    """
    learner = dprl.Rules(gamma=1.0, lam=1.0, depth=1, n_min=5, splits=2)
    false = 0
    for seed in range(100):
        log = ward(seed, 120, effect=0.0)
        false += bool(dprl.gate(learner.fit(log, **QUICK), log, delta=0.2, **UNIT).rules)
    assert false <= 0.2 * 100
