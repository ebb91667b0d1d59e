"""Main effects of a trial: every arm against one reference, on all patients."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl.evaluation._effects import against_everyone, for_everyone


def trial(n=600, effects=(0.0, 0.4), seed=0, steps=1, arms=None, labels=False, **more):
    """Arms by lot, alike for all; `effects` of each at every step."""
    rng = np.random.default_rng(seed)
    K = len(effects)
    arms = arms or [f"arm{k}" for k in range(K)]
    x = np.repeat(rng.normal(size=(n, 2)), steps, axis=0)
    arm = rng.integers(K, size=n * steps)
    last = np.arange(n * steps) % steps == steps - 1
    total = np.add.reduceat(np.array(effects)[arm], np.arange(0, n * steps, steps))
    y = np.where(last, np.repeat(total + 2 * x[::steps, 0] + rng.normal(size=n), steps), 0.0)
    given = {
        "episode": np.repeat(range(n), steps), "action": np.array(arms)[arm], "reward": y,
        "state": [f"s{int(v)}" for v in x[:, 0] > 0] if labels else x,
        "propensity": np.full(n * steps, 1 / K),
    }  # fmt: skip
    return dprl.from_arrays(**(given | more))


def test_without_features_that_tell_it_is_the_difference_of_means():
    rng = np.random.default_rng(1)
    drug = np.arange(400) % 2 == 0
    y = drug + rng.normal(size=400)
    log = dprl.from_arrays(
        episode=range(400), state=["all"] * 400, action=np.where(drug, "drug", "placebo"),
        reward=y, propensity=np.full(400, 0.5),
    )  # fmt: skip
    row = dprl.effects(log).rows[0]
    assert row["difference"] == pytest.approx(y[drug].mean() - y[~drug].mean(), abs=0.005)
    se = np.sqrt(y[drug].var(ddof=1) / 200 + y[~drug].var(ddof=1) / 200)
    assert row["low"] == pytest.approx(row["difference"] - 1.96 * se, abs=0.02)


def test_features_take_out_what_they_explain():
    plain = trial(state=np.zeros((600, 2)))
    wide, short = dprl.effects(plain).rows[0], dprl.effects(trial()).rows[0]
    assert short["high"] - short["low"] < 0.7 * (wide["high"] - wide["low"])
    assert short["low"] < 0.2 < short["high"]  # over usual practice, half of 0.4


def test_against_usual_practice_the_arms_that_are_surely_worse_are_named():
    found = dprl.effects(trial(1_200, (-1.0, 0.4, 0.4, 0.6)))
    assert found.best == "arm3"
    assert ". Not arm0: the return lower by " in found.finding()
    assert found.finding().endswith(" with arm0.")
    assert found.named == ("arm3", "arm0")
    found = dprl.effects(trial(1_200, (-1.0, 0.4, 0.4, 0.4)), versus="arm3")
    assert found.finding().startswith("Not arm0: the return lower by ")
    found = dprl.effects(trial(1_200, (-1.0, -0.9, 0.4, 0.6), called={"action": {"arm0": "Old"}}))
    assert "Not arm1, Old: " in found.finding()
    assert found.finding().endswith(" with Old.")
    assert found.named == (found.best, "arm0")  # of arm1 the finding tells no number


def test_the_better_of_four_arms_is_found_against_a_declared_one():
    found = dprl.effects(trial(1_200, (0.0, 0.1, 0.0, 0.8)), versus="arm0")
    assert (found.best, found.reference) == ("arm3", "arm0")
    assert [row["verdict"] for row in found.rows] == ["better", "unsure", "unsure"]
    assert "arm3 instead of arm0, for everyone" in str(found)
    assert len(str(found).splitlines()) <= 8
    assert len(found.table()) == 3


@pytest.mark.parametrize("labels", [False, True])
def test_several_decisions_are_the_same_arm_at_each(labels):
    found = dprl.effects(trial(3_000, (0.0, 0.5), steps=2, labels=labels), versus="arm0")
    row = found.rows[0]
    assert row["groups"] < 1_000  # a quarter took it both times
    assert row["low"] < 1.0 < row["high"]
    assert found.best == "arm1"


def test_less_is_better_where_that_was_declared():
    log = trial(effects=(0.0, -0.8), better="lower", outcome="pain", arms=["placebo", "drug"])
    row = dprl.effects(log).rows[0]
    assert row["verdict"] == "better"
    assert row["high"] < 0
    assert "pain lower by" in str(dprl.effects(log))


def test_an_arm_of_a_few_is_not_judged():
    log = trial(200)
    few = log.take(np.flatnonzero((log.action[log.starts[:-1]] == 0) | (np.arange(200) < 8)))
    rows = dprl.effects(few, versus="arm0").rows
    assert (rows[0]["verdict"], rows[0]["low"]) == ("too few", None)
    assert "too few to tell" in str(dprl.effects(few, versus="arm0"))


def test_ten_of_ten_are_not_sure_of_themselves():
    """Without the error of both arms together an arm that did not vary would have none."""
    y = np.r_[np.ones(10), np.arange(190) % 20 > 0]
    drug = np.arange(200) < 10
    log = dprl.from_arrays(
        episode=range(200), state=["all"] * 200, action=np.where(drug, "drug", "placebo"),
        reward=y.astype(float), propensity=np.where(drug, 0.05, 0.95),
    )  # fmt: skip
    assert dprl.effects(log).best is None


def test_groups_are_what_counts():
    once = trial(300)
    rows = np.tile(np.arange(300), 4)
    again = dprl.from_arrays(
        episode=range(1_200), group=rows, state=once.features[rows],
        action=np.array(once.actions)[once.action[rows]], reward=once.reward[rows],
        propensity=np.full(1_200, 0.5),
    )  # fmt: skip
    one, four = dprl.effects(once).rows[0], dprl.effects(again).rows[0]
    assert four["high"] - four["low"] > 0.8 * (one["high"] - one["low"])


def test_another_seed_hardly_moves_it():
    log = trial(300)
    rows = [dprl.effects(log, seed=seed).rows[0] for seed in range(6)]
    width = rows[0]["high"] - rows[0]["low"]
    assert np.ptp([row["difference"] for row in rows]) < width / 20


@pytest.mark.parametrize("labels", [False, True])
def test_the_policy_for_everyone(labels, tmp_path):
    log = trial(labels=labels)
    found = dprl.effects(log)
    policy = for_everyone(log, found, gamma=1.0)
    policy.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.digest() == policy.digest()
    assert again.act(["s0", "s1"] if labels else [[0.0, 0.0]])[0] == "arm1"
    with pytest.raises(dprl.PolicyError):
        dprl.evaluate(again, log)  # all patients have judged it


def test_a_split_is_compared_with_one_arm_for_everyone():
    log = trial(4_000, (0.0, 0.4))
    rule = {"conditions": [{"feature": "x0", "kind": "above", "value": 0.0}], "suggested": "arm0"}
    policy = dprl.RulePolicy(
        states=(), actions=log.actions, parameters={"gamma": 1.0}, provenance={"log": None},
        feature_names=log.feature_names, rules=(rule,),
    )  # fmt: skip
    mean, se = against_everyone(policy, log, 1, 1.0, None)
    assert mean == pytest.approx(-0.2, abs=3 * se)  # half of them lose 0.4
    assert se < 0.1
    assert against_everyone(policy, log, 0, 1.0, None) is None  # it says the same


def test_a_log_that_is_no_trial_is_refused():
    log = trial(propensity=None)
    with pytest.raises(dprl.LogError, match="chances of all arms"):
        dprl.effects(log)
    with pytest.raises(dprl.ParameterError, match="names no arm"):
        dprl.effects(trial(), versus="arm9")


@pytest.mark.slow
def test_nothing_is_found_where_nothing_works():
    found = [dprl.effects(trial(120, (0.0,) * 4, seed=s)).best is not None for s in range(200)]
    assert sum(found) <= 12  # 2.5 % are 5


def test_an_arm_that_long_episodes_hardly_ever_kept_to_is_not_judged():
    """Those who always had it had few decisions, and little comes of few decisions."""
    rng = np.random.default_rng(2_000)
    lengths = rng.integers(1, 5, 2_000)
    chance = np.array([0.6, 0.3, 0.1])
    drawn = rng.choice(3, lengths.sum(), p=chance)
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(2_000), lengths), state=["all"] * len(drawn),
        action=np.array(["nothing", "banner", "coupon"])[drawn], propensity=chance[drawn],
        reward=0.5 + 0.1 * (drawn == 2) + rng.normal(size=len(drawn)),  # a coupon helps
    )  # fmt: skip
    found = {row["arm"]: row for row in dprl.effects(log).rows}
    assert found["coupon"]["groups"] > 30
    assert (found["coupon"]["verdict"], found["coupon"]["low"]) == ("too few", None)
    assert found["nothing"]["low"] is not None
    few = dprl.effects(log.take(range(60)))  # too few of every arm: said, not raised
    assert {row["verdict"] for row in few.rows} == {"too few"}
    assert "No arm" in few.finding()
