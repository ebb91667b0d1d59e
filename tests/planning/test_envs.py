"""Environments: the constants, and exact values against simulation."""

from __future__ import annotations

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import dprl
from dprl import envs
from dprl.logs.returns import returns

ALL = ("forest", "risky_arms", "rooms", "open_grid", "soft", "care_pathway")


@pytest.mark.parametrize(
    ("name", "behavior", "best"),
    [
        ("forest", 0.54337, 0.6792093),
        ("risky_arms", 0.55440, 0.99 * 0.7),
        ("rooms", 0.38760, 0.71637),
        ("open_grid", 0.66137, 0.81995),
        ("soft", 0.2278, 0.71637),
    ],
)
def test_constants(name, behavior, best):
    env = getattr(envs, name)()
    places = 5e-5 if name == "soft" else 1e-5
    assert env.value() == pytest.approx(behavior, abs=places)
    assert env.start @ env.optimal[0] == pytest.approx(best, abs=1e-5)


def test_forest_action_values():
    env = envs.forest()
    assert env.action_values(env.state_values())[0] == pytest.approx(
        [0.6792, 0.5337, 0.4851], abs=5e-5
    )
    assert len(env.states) == 1 + 3 * (10 + 1 + 10)


def test_careless_cells_do_their_worst():
    env = envs.rooms()
    expected = {"r3c1": "down", "r6c3": "up", "r2c5": "down", "r5c7": "up"}
    assert env.notes["careless"] == tuple(expected)
    for cell, worst in expected.items():
        row = env.behavior[env.states.index(cell)]
        assert row[env.actions.index(worst)] == pytest.approx(0.9)
        assert row[env.actions.index("right")] == pytest.approx(0.1)
    assert envs.open_grid().notes["careless"] == ("r6c0", "r3c0", "r1c3", "r1c6")


@pytest.mark.parametrize("name", ALL)
def test_samples_have_the_exact_value(name):
    env = getattr(envs, name)()
    log = env.sample(4000, seed=1)
    G = returns(log, env.gamma)[log.starts[:-1]]
    assert G.mean() == pytest.approx(env.value(), abs=5 * G.std() / np.sqrt(len(G)))


@pytest.mark.parametrize("name", ALL)
def test_samples_depend_on_the_seed_alone(name):
    env = getattr(envs, name)()
    assert env.sample(50, seed=3).digest() == env.sample(50, seed=3).digest()
    assert env.sample(50, seed=3).digest() != env.sample(50, seed=4).digest()


def test_samples_follow_behaviour_and_transitions():
    env = envs.soft()
    log = env.sample(3000, seed=0)
    s, a = log.codes(), log.action
    seen = np.zeros(env.behavior.shape)
    np.add.at(seen, (s, a), 1)
    often = seen.sum(axis=1) > 2000
    share = seen[often] / seen[often].sum(axis=1, keepdims=True)
    assert np.abs(share - env.behavior[often]).max() < 0.05
    inside = np.ones(len(s), bool)
    inside[log.starts[1:] - 1] = False
    at = np.flatnonzero(inside)
    moves = np.zeros((len(env.states) * 4, len(env.states)))
    np.add.at(moves, (s[at] * 4 + a[at], s[at + 1]), 1)
    rows = moves.sum(axis=1) > 3000
    assert rows.any()
    assert (
        np.abs(moves[rows] / moves[rows].sum(axis=1, keepdims=True) - env.P.toarray()[rows]).max()
        < 0.04
    )


def test_long_episodes_are_cut_and_say_so():
    env = replace(envs.rooms(), max_steps=30)
    log = env.sample(100, seed=0)
    assert log.lengths.max() == 30
    assert set(log.ended[log.lengths == 30]) == {2}
    with pytest.warns(dprl.CutWarning, match="were cut, and are treated as if nothing came after"):
        dprl.DPRLDiscrete(n_min=5, gamma=0.99).fit(log)
    with pytest.raises(dprl.LogError, match="all 100 episodes were cut"):
        dprl.DPRLDiscrete(n_min=5, gamma=0.99, cut="drop").fit(
            replace(env, max_steps=5).sample(100, seed=0)
        )


def test_values_of_policies_and_of_matrices():
    env = envs.rooms()
    V, best = env.optimal
    assert env.value(np.eye(4)[best]) == pytest.approx(env.start @ V)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=0.99, cut="terminal").fit(env.sample(500, seed=1))
    assert env.value(policy) == pytest.approx(0.71637, abs=1e-5)
    assert {row["state"] for row in policy.changes()} == set(env.notes["careless"])
    never = dprl.DPRLDiscrete(n_min=10**9, gamma=0.99, cut="terminal").fit(env.sample(50, seed=1))
    assert env.value(never) == env.value()


def test_policy_from_a_file_has_its_actions_in_another_order(tmp_path):
    env = envs.rooms()
    log = env.sample(500, seed=1)
    dprl.write(log, tmp_path / "l.parquet")
    names = {p: p for p in ("episode", "time", "state", "action", "reward", "ended")}
    again = dprl.read(tmp_path / "l.parquet", **names)
    assert again.actions == ("down", "right", "up")  # sorted, and nobody ever went left
    learner = dprl.DPRLDiscrete(n_min=20, gamma=0.99, cut="terminal")
    assert env.value(learner.fit(again)) == pytest.approx(env.value(learner.fit(log)), abs=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_gymnasium_adapter(name):
    env = getattr(envs, name)().to_gym(seed=0)
    check_env(env, skip_render_check=True)
    assert isinstance(env, gymnasium.Env)


def test_gymnasium_adapter_has_the_same_value():
    mdp = envs.care_pathway()
    env, rng = mdp.to_gym(seed=5), np.random.default_rng(5)
    total, n = 0.0, 3000
    for _ in range(n):
        state, _ = env.reset()
        done = False
        while not done:
            action = rng.choice(len(mdp.actions), p=mdp.behavior[state])
            state, reward, terminated, truncated, info = env.step(action)
            assert info["label"] in mdp.states
            total += reward
            done = terminated or truncated
    assert total / n == pytest.approx(mdp.value(), abs=0.03)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: envs.forest(chains=0), "forest needs"),
        (lambda: envs.risky_arms(eps=0.7), "risky_arms needs"),
        (lambda: envs.rooms().sample(0, seed=0), "n must be a whole number, at least 1"),
        (lambda: envs.rooms().value(np.ones((2, 2))), r"shape \(100, 4\)"),
        (lambda: replace(envs.rooms(), start=np.ones(100)), "start must sum to 1"),
        (lambda: replace(envs.rooms(), behavior=np.ones((100, 4))), "behavior must sum to 1"),
        (lambda: replace(envs.rooms(), low=np.full((100, 4), 9.0)), "smallest reward exceeds"),
        (
            lambda: replace(envs.rooms(), P=envs.rooms().P * 2),
            "P has rows that are no probabilities",
        ),
    ],
)
def test_bad_settings(call, message):
    with pytest.raises(dprl.ParameterError, match=message):
        call()


def test_policy_with_foreign_actions():
    from conftest import to_log

    policy = dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(to_log([[("r0c0", "fly", 1.0)]] * 2))
    with pytest.raises(dprl.ParameterError, match="knows actions that rooms does not have"):
        envs.rooms().value(policy)


def test_point_mass():
    world = envs.PointMass()
    log = world.sample(200, seed=2)
    assert log.digest() == world.sample(200, seed=2).digest()
    assert log.features.shape == (log.n_steps, 2)
    assert set(np.unique(log.ended)) <= {1, 2}
    assert log.reward.sum() > 5
    assert set(np.unique(log.reward)) == {0.0, 1.0}
    value, error = world.value(n=4000, seed=1)
    G = returns(log, world.gamma)[log.starts[:-1]]
    assert G.mean() == pytest.approx(value, abs=4 * (error + G.std() / np.sqrt(200)))
    pi = world.behavior(log.features)
    assert pi.sum(axis=1) == pytest.approx(1)
    with pytest.raises(dprl.ParameterError, match="n must be a whole number, at least 1"):
        world.sample(0, seed=0)


@pytest.mark.slow
def test_gallery_example(tmp_path):
    import runpy
    from pathlib import Path

    script = Path(__file__).parent.parent.parent / "examples" / "plot_point_mass.py"
    values = runpy.run_path(str(script))["main"](str(tmp_path / "p.png"))
    assert values["usual practice"] == pytest.approx(0.160, abs=0.005)
    assert values["one step"] > 0.55
    assert values["planned"] > values["one step"]
    assert (tmp_path / "p.png").stat().st_size > 50_000
