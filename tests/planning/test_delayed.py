"""The world with a hidden delayed harm: exact values, and whom it deceives."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl import envs
from dprl.logs.returns import returns


def chances(world, drug):
    """π(a|s) over recorded states with these chances of the drug."""
    return np.stack((drug, 1 - drug), axis=1)


@pytest.mark.parametrize("settings", [{}, {"days": 3, "delay": 1, "cost": 0.5}, {"delay": 4}])
def test_values_follow_the_formula(settings):
    world = envs.delayed(**settings)
    days, length = len(world.notes["days"]), len(world.states)
    net = settings.get("gain", 0.25) - settings.get("cost", 1.0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        drug = rng.random(length)
        expected = length / 2 + net * drug[:days].sum()
        assert world.value(chances(world, drug)) == pytest.approx(expected, abs=1e-12)
    assert world.value() == pytest.approx(length / 2 + net * 0.3 * days, abs=1e-12)


def test_a_policy_that_defers_leaves_the_rest_to_the_behaviour():
    world = envs.delayed()
    log = world.sample(200, seed=0)
    silent = dprl.DPRLDiscrete(n_min=float("inf"), gamma=1.0).fit(log)
    assert world.value(silent) == pytest.approx(world.value(), abs=1e-12)
    drug = np.where(np.arange(8) < 6, 0.3, 0.0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    answers = policy.act(world.states)
    for day, answer in enumerate(answers):
        if answer is not dprl.DEFER:
            drug[day] = answer == "drug"
    assert any(answer is not dprl.DEFER for answer in answers)
    assert world.value(policy) == pytest.approx(world.value(chances(world, drug)), abs=1e-12)


def test_samples_have_the_exact_value_and_show_only_the_day():
    world = envs.delayed()
    drug = np.linspace(0, 1, 8)
    for policy in (None, chances(world, drug)):
        log = world.sample(4000, seed=1, policy=policy)
        G = returns(log, 1.0)[log.starts[:-1]]
        assert G.mean() == pytest.approx(world.value(policy), abs=5 * G.std() / np.sqrt(len(G)))
    assert log.states == tuple(f"day {i}" for i in range(1, 9))
    assert (log.codes().reshape(-1, 8) == np.arange(8)).all()
    assert world.sample(5, seed=3).digest() == world.sample(5, seed=3).digest()


def test_the_cost_comes_exactly_after_the_delay():
    world = envs.delayed(days=4, delay=3, gain=0.5, cost=10.0)
    log = world.sample(300, seed=0)
    given = (log.action == log.actions.index("drug")).reshape(-1, 7)
    reward = log.reward.reshape(-1, 7) - 0.5 * given
    owed = np.zeros_like(given)
    owed[:, 3:] = given[:, :4]
    assert ((reward < -5) == owed).all()
    assert not given[:, 4:].any()


def test_a_model_of_recorded_states_is_deceived_and_returns_are_not():
    world = envs.delayed()
    usual = world.value()
    by_model = by_returns = 0
    for seed in range(40):
        log = world.sample(200, seed=seed)
        model = dprl.baselines.SPIBB(n_min=20, gamma=1.0).fit(log)
        by_model += world.value(model) < usual - 1e-9
        policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        by_returns += "drug" in policy.act(world.notes["days"])
    assert by_model == 40
    assert by_returns == 0


def test_bad_numbers_and_policies_are_refused():
    for settings in ({"days": 0}, {"delay": 9}, {"delay": 0}, {"gain": -1}, {"cost": np.inf}):
        with pytest.raises(dprl.ParameterError, match=f"{next(iter(settings))} must be"):
            envs.delayed(**settings)
    with pytest.raises(dprl.ParameterError, match=r"shape \(8, 2\); got \(7, 2\)"):
        envs.delayed().value(np.ones((7, 2)))
    assert envs.delayed(gain=1.0, cost=0.5).notes["days"] == ()
