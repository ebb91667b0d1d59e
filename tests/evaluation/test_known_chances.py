"""Chances that the log records are used by evaluation as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import dprl


def trial(seed=0, n=600, gone=0):
    """One decision each in one state; the drug was given with a chance that varies by patient."""
    rng = np.random.default_rng(seed)
    chance = rng.choice([0.1, 0.5, 0.8], n)
    drug = rng.random(n) < chance
    reward = 0.3 * drug + 0.5 * (chance > 0.4) + rng.normal(0, 0.1, n)
    taken = np.where(drug, chance, 1 - chance)
    taken[:gone] = np.nan
    return dprl.from_arrays(
        episode=range(n), state=["ill"] * n, action=np.where(drug, "drug", "wait"), reward=reward,
        propensity=taken,
    )  # fmt: skip


def policy():
    made = dprl.from_arrays(
        episode=range(40), state=["ill"] * 40, action=["drug"] * 15 + ["wait"] * 25,
        reward=[1.0] * 15 + [0.0] * 25,
    )  # fmt: skip
    return dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(made)


@pytest.mark.parametrize("gone", [0, 200])
def test_weights_are_one_over_what_is_recorded(gone):
    log = trial(gone=gone)
    drug = log.action == log.actions.index("drug")
    plain = dprl.evaluate(policy(), log, behavior=dprl.Behavior.fit(log), draws=50)
    result = dprl.evaluate(policy(), log, draws=50)
    estimated = np.maximum(dprl.Behavior.fit(log).took(), 0.01)
    chance = np.where(np.isnan(log.propensity), estimated, log.propensity)
    assert result["IS"]["value"] == pytest.approx(np.mean(drug / chance * log.reward), rel=1e-12)
    assert result.facts["recorded"] == pytest.approx(1 - gone / log.n_steps)
    where = "all steps" if not gone else "66.7 % of steps"
    assert f"The log records at {where} with which chance" in result.details()
    assert "The log records" not in str(plain)
    assert plain.facts["recorded"] == 0


def test_they_are_not_raised():
    log = trial()
    small = np.where(log.propensity == log.propensity.min(), 0.001, log.propensity)
    rare = dprl.from_arrays(
        episode=range(log.n_steps), state=["ill"] * log.n_steps,
        action=[log.actions[a] for a in log.action], reward=log.reward, propensity=small,
    )  # fmt: skip
    result = dprl.evaluate(policy(), rare, draws=50)
    assert result.facts["clipped"] == 0
    assert result.facts["largest_weight"] == pytest.approx(1000)


def test_they_take_away_what_the_state_hides():
    """Who got the drug differed in a way the state does not tell; the truth is .3 + .5 · 2/3."""
    log = trial(n=60_000)
    truth = 0.3 + 0.5 * 2 / 3
    known = dprl.evaluate(policy(), log, draws=50)["IS"]
    blind = dprl.evaluate(policy(), log, behavior=dprl.Behavior.fit(log), draws=50)["IS"]
    assert known["value_low"] < truth < known["value_high"]
    assert blind["value_low"] > truth + 0.05


def test_a_behaviour_that_is_given_wins():
    log = trial()
    given = dprl.evaluate(policy(), log, behavior=np.full((1, 2), 0.5), draws=50)
    drug = log.action == log.actions.index("drug")
    assert given["IS"]["value"] == pytest.approx(np.mean(drug / 0.5 * log.reward))
    assert given.facts["recorded"] == 0


def sites(seed=0, n=1200, gone=0):
    """Three arms in one state; which is likely depends on the site, which is not in the state."""
    rng = np.random.default_rng(seed)
    north = rng.random(n) < 0.5
    chances = np.where(north[:, None], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6])
    arm = (rng.random(n)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    taken = chances[np.arange(n), arm]
    taken[:gone] = np.nan
    return dprl.from_arrays(
        episode=range(n), state=["ill"] * n, action=np.array(["drug", "half", "wait"])[arm],
        reward=(arm == 0) + rng.normal(0, 0.1, n), propensity=taken,
        also={"site": np.where(north, "north", "south")},
    )  # fmt: skip


def test_balance_is_weighted_by_what_is_recorded():
    log = sites()
    result = dprl.evaluate(policy(), log, draws=50)
    drug = log.action == log.actions.index("drug")
    south = log.also.numbers(0, np.arange(log.n_steps))
    apart = [np.average(south[side], weights=1 / log.propensity[side]) for side in (drug, ~drug)]
    row = result.balance.rows[0]
    assert row.column == "site south"
    assert abs(row.before) > 0.5
    assert row.after == pytest.approx((apart[0] - apart[1]) / south.std())
    assert abs(row.after) < 0.1
    assert not any("what the state leaves out" in words for words in result.warnings)


def test_balance_with_chances_on_some_rows_alone_is_weighted_by_estimates():
    log = sites(gone=1)
    assert abs(dprl.evaluate(policy(), log, draws=50).balance.rows[0].after) > 0.5


def lots(p, n=800):
    """One decision each, half of them for the drug; `p` is on record."""
    drug = np.arange(n) % 2 == 0
    return dprl.from_arrays(
        episode=range(n), state=["ill"] * n, action=np.where(drug, "drug", "wait"),
        reward=drug.astype(float), propensity=[p] * n,
    )  # fmt: skip


def test_chances_that_are_not_those_of_the_log_are_warned_of():
    wrong = dprl.evaluate(policy(), lots(0.6), draws=50)
    assert wrong.facts["mean_weight"] == pytest.approx(0.5 / 0.6)
    assert any("where 1 is expected" in words for words in wrong.warnings)
    right = dprl.evaluate(policy(), lots(0.5), draws=50)
    assert not any("mean weight" in words for words in right.warnings)


@dataclass
class Drug:
    """The drug, whatever comes."""

    n_min: int = 1
    gamma: float = 1.0

    def fit(self, log):
        return dprl.CallablePolicy(lambda s: ["drug"] * len(s), log.actions, trained_on=log)


def test_a_sweep_and_a_comparison_use_what_is_recorded():
    log = sites()
    train, valid = log.split(0.5, seed=0)
    policy = Drug().fit(train)
    alone = dprl.evaluate(policy, valid, gamma=1.0, draws=50)
    assert alone.facts["recorded"] == 1
    swept = dprl.sweep(Drug(), train, valid, n_min=[1], draws=50).evaluations[0]
    assert dict(swept["DR"]) == dict(alone["DR"])
    assert swept.facts["recorded"] == 1
    beside = dprl.compare({"drug": policy}, valid, gamma=1.0, draws=50).evaluations["drug"]
    assert dict(beside["DR"]) == dict(alone["DR"])
    given = np.array([[0.4, 0.25, 0.35]])
    swept = dprl.sweep(Drug(), train, valid, n_min=[1], behavior=given, draws=50).evaluations[0]
    assert swept.facts["behavior"] == "given"


@pytest.mark.parametrize("steps", [1, 2])
def test_bounds_begin_with_what_is_recorded(steps):
    log = sites()
    if steps == 2:  # two decisions an episode
        log = dprl.from_arrays(
            episode=np.arange(log.n_steps) // 2, state=["ill"] * log.n_steps,
            action=[log.actions[a] for a in log.action], reward=log.reward,
            propensity=log.propensity,
        )  # fmt: skip
    policy = dprl.CallablePolicy(lambda s: ["drug"] * len(s), log.actions, trained_on=[])
    bounds = dprl.sensitivity(policy, log, discount=1.0, gamma=[1, 1.5], draws=20, yardstick=False)
    drug = log.action == log.actions.index("drug")
    one = bounds.rows[0]
    if steps == 1:
        odds = 1 / log.propensity[drug] - 1
        guess = np.average(log.reward[drug], weights=odds)
        expected = np.mean(np.where(drug, log.reward, guess))
        assert bounds.facts["sharp"] is False
    else:
        expected = dprl.evaluate(policy, log, gamma=1.0, draws=20)["WIS"]["value"]
    assert one["value_min"] == pytest.approx(expected)
    assert one["value_max"] == pytest.approx(expected)
    assert "those of: the record" in bounds.details()
    assert bounds.rows[1]["value_min"] < expected < bounds.rows[1]["value_max"]
    model = dprl.Behavior.fit(log)
    estimated = dprl.sensitivity(
        policy, log, discount=1.0, gamma=1, draws=20, yardstick=False, behavior=model
    )
    assert estimated.facts["behavior"] == model.how
    assert estimated.rows[0]["value_min"] != pytest.approx(expected)


def test_single_changes_of_those_who_were_chosen_are_warned_of():
    warned = dprl.evaluate(policy(), sites(), draws=20).warnings
    assert any("differ from row to row in 1 of 1 states" in words for words in warned)
    warned = dprl.evaluate(policy(), lots(0.5), draws=20).warnings
    assert not any("from row to row" in words for words in warned)
