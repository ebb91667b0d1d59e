"""Rules that say what not to do: proposed, certified, gated, written and read again."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from test_avoid import ARMS

import dprl
from dprl.learners.rules.search import Scores, several_left
from dprl.learners.rules.whole import Steps, folds_of


def trial(seed, good=(0.6, 0.79, 0.79, 0.79), n=500):
    """One decision by lot among four arms, with features that do not matter."""
    rng = np.random.default_rng(seed)
    arm = rng.permutation(np.repeat(np.arange(4), n))
    return dprl.from_arrays(
        episode=np.arange(4 * n), state=rng.normal(size=(4 * n, 2)), feature_names=["age", "cd4"],
        action=[ARMS[a] for a in arm],
        reward=(rng.random(4 * n) < np.array(good)[arm]).astype(float),
    )  # fmt: skip


@pytest.fixture(scope="module")
def warned():
    return dprl.Rules(gamma=1.0, depth=1, splits=1).fit(trial(0))


@pytest.mark.slow
def test_one_arm_is_worse_than_all_others(warned):
    (rule,) = warned.rules
    assert (rule.suggested, rule.action, rule.avoids) == (dprl.Avoid("ZDV"), "ZDV", True)
    assert warned.act([[0.0, 0.0]]) == [dprl.Avoid("ZDV")]
    assert 0 < rule.facts["low"] < 0.19
    assert rule.facts["groups_took"] > 2.5 * rule.facts["groups_others"]
    assert "“not” an action means anything else" in warned.claim
    whole = warned.provenance["rules"]["whole"]
    assert 0 < whole["low"] < 0.25 * 0.19 < whole["high"]


@pytest.mark.slow
def test_nothing_comes_of_a_null_trial():
    assert not dprl.Rules(gamma=1.0, depth=1, splits=1).fit(trial(1, (0.75,) * 4, 300)).rules


def test_scores_of_what_is_avoided():
    """-ψ_a is the score of "not a", and b_a (E y - E x) what it brings over usual practice."""
    log = trial(2, n=50)
    b = np.full((200, 4), 0.25)
    scores = Scores.of(log, np.zeros(200), b, 1.0, 1.0)
    took = log.action == 0
    x, y = log.reward[took].mean(), log.reward[~took].mean()
    assert scores.contrast(4)[0] == pytest.approx(y - x)
    assert scores.gains(4).mean() == pytest.approx(0.25 * (y - x))
    assert scores.groups_with(4) == scores.groups_with(0)[::-1] == (150, 50)
    assert (scores.follows(4) == ~took).all()
    assert several_left(scores, 4)
    few = log.take(np.flatnonzero(np.isin(log.action, (0, 1)) | (np.arange(200) < 20)))
    assert not several_left(Scores.of(few, *(np.zeros(few.n_steps), b[: few.n_steps]), 1.0, 1.0), 4)
    judged = Steps(log, np.zeros(200), b, 1.0).judged(np.full(200, 4), folds_of(200, None, 0))
    assert judged.exact
    assert judged.score.mean() == pytest.approx(y - log.reward.mean(), abs=0.02)


def test_it_is_listed_explained_and_kept(warned, tmp_path):
    (row,) = warned.changes()
    assert row["suggested"] == "not ZDV"
    told = warned.explain([0.0, 0.0])
    assert (told.kind, told.suggested) == ("avoid", "not ZDV")
    verdicts = dict(zip(told.actions["action"], told.actions["verdict"], strict=True))
    assert verdicts["ZDV"] == "to be avoided"
    assert "Everywhere: not ZDV" in warned.sentences()[0]
    warned.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == warned.digest()
    assert again.rules[0].suggested == dprl.Avoid("ZDV")
    assert dprl.RulePolicy.act(again, [[1.0, 1.0]]) == [dprl.Avoid("ZDV")]
    with pytest.raises(dprl.PolicyError, match="what to avoid"):
        type(warned.rules[0]).from_dict({**warned.rules[0].to_dict(), "avoid": 1})


def test_exports_say_it(warned):
    import duckdb

    table = duckdb.sql("SELECT 0.5 AS age, 0.1 AS cd4")  # noqa: F841
    assert duckdb.sql(warned.to_sql("table")).fetchall()[0][-1] == "not ZDV"
    space: dict = {}
    exec(warned.to_python(), space)
    assert space["suggest"]({"age": 0.5, "cd4": 0.1}) == "not ZDV"
    (rule,) = json.loads(warned.to_json_rules())["rules"]
    assert (rule["then"], rule["avoid"]) == (None, "ZDV")


@pytest.mark.slow
def test_it_is_gated_and_judged(warned):
    fresh = trial(5)
    gated = dprl.gate(warned, fresh, value_range=(0, 1))
    assert gated.certificate.issued == {"everywhere": dprl.Avoid("ZDV")}
    (row,) = gated.certificate.rows
    assert (row["n"], row["others"]) == (1_500, 500)
    assert 0 < row["low"] < row["difference"]
    large = dprl.gate(warned, fresh, grade="large-sample")
    assert large.certificate.issued == gated.certificate.issued
    mirror = replace(fresh, reward=1 - fresh.reward)
    assert dprl.gate(warned, mirror, value_range=(0, 1)).certificate.vacuous
    held = trial(6)
    found = dprl.evaluate(warned, held, draws=100)
    rest = held.reward[held.action != held.actions.index("ZDV")].mean()
    assert found["WIS"]["value"] == pytest.approx(rest, abs=0.02)


def test_it_may_be_narrowed(warned):
    asked = [{"feature": "age", "kind": "at most", "value": 0.5}]
    part = dprl.narrow(warned, trial(0), 1, asked)
    assert part.act([[0.0, 0.0], [1.0, 0.0]]) == [dprl.Avoid("ZDV"), dprl.DEFER]
