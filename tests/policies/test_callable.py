"""Anything with `predict` as a policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dprl
from dprl.errors import PolicyError


def test_a_scikit_learn_classifier():
    import pandas as pd
    from sklearn.tree import DecisionTreeClassifier

    world = dprl.envs.PointMass()
    log = world.sample(100, seed=2)
    x = pd.DataFrame(log.features[:, ::-1], columns=["y", "x"])
    model = DecisionTreeClassifier(max_depth=3, random_state=0)
    model.fit(x, [log.actions[a] for a in log.action])
    policy = dprl.CallablePolicy(model, actions=log.actions)
    assert policy.feature_names == ("y", "x")
    assert (
        policy.act({"x": 0.3, "y": 0.9}) == model.predict(pd.DataFrame({"y": [0.9], "x": [0.3]}))[0]
    )
    usual = np.full((log.n_steps, log.n_actions), 1 / log.n_actions)
    found = dprl.evaluate(
        policy, log, gamma=0.97, cut="terminal", draws=20, values=False, behavior=usual
    )
    assert found.facts["spoken"] == 1
    named = np.mean(model.predict(x) == np.array(log.actions)[log.action])
    assert found.facts["suggested_done"] == pytest.approx(named)


class Pair:
    """As stable-baselines3: predict gives (actions, state)."""

    def predict(self, x):
        return (x[:, :1] > 0.5).astype(np.int64), None


class Exploring:
    """As stable-baselines3's PPO: it draws its actions unless told not to."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def predict(self, x, state=None, deterministic=False):
        best = (x[:, 0] > 0.5).astype(np.int64)
        return (best if deterministic else self.rng.integers(0, 2, len(x))), state


def test_models_that_explore_are_told_not_to():
    x = np.random.default_rng(1).random((300, 2))
    policy = dprl.CallablePolicy(Exploring(), actions=("a", "b"), answers="codes")
    assert policy.choice(x).tolist() == (x[:, 0] > 0.5).astype(int).tolist()
    drawn = dprl.CallablePolicy(
        lambda states: Exploring.predict(model, states)[0], actions=("a", "b"), answers="codes"
    )
    model = Exploring()
    with pytest.raises(PolicyError, match="differently each time"):
        drawn.choice(x)


def test_codes_pairs_and_functions():
    world = dprl.envs.PointMass()
    log = world.sample(50, seed=2)
    policy = dprl.CallablePolicy(
        Pair(), actions=log.actions, answers="codes", parameters={"gamma": 0.97}
    )
    assert policy.choice(np.array([[0.6, 0], [0.1, 0]])).tolist() == [1, 0]
    usual = np.full((log.n_steps, log.n_actions), 1 / log.n_actions)
    dprl.evaluate(policy, log, cut="terminal", draws=10, values=False, behavior=usual)

    def rule(states):
        return [None if s in ("stable", "going home") else "fluids" for s in states]

    mdp = dprl.envs.care_pathway()
    careful = dprl.CallablePolicy(rule, actions=mdp.actions)
    assert careful.act(["stable", "worse"]) == [dprl.DEFER, "fluids"]
    assert careful.act("worse") == "fluids"
    log = mdp.sample(200, seed=0)
    found = dprl.evaluate(careful, log, gamma=1, draws=10)
    silent = np.isin(log.codes(), [mdp.states.index(s) for s in ("stable", "going home")])
    assert found.facts["spoken"] == pytest.approx(1 - silent.mean())
    assert mdp.value(careful) == pytest.approx(mdp.value(target_of(mdp, careful)))


def target_of(mdp, policy):
    answers = policy.act(list(mdp.states))
    return np.array([
        mdp.behavior[i] if a is dprl.DEFER else np.eye(len(mdp.actions))[mdp.actions.index(a)]
        for i, a in enumerate(answers)
    ])  # fmt: skip


def test_predictions_that_are_no_actions():
    bad = [
        (lambda s: [7] * len(s), "labels", "predicted 7, which is no action"),
        (lambda s: [True] * len(s), "labels", "predicted True"),
        (lambda s: [2] * len(s), "codes", "no code from 0 to 1"),
        (lambda s: [0.5] * len(s), "codes", "predicted 0.5"),
        (lambda s: [0], "codes", "predicted .1,. for 3 states"),
        (lambda s: np.zeros((len(s), 2)), "codes", "one action a state"),
    ]
    for model, answers, words in bad:
        policy = dprl.CallablePolicy(model, actions=(0, 1), answers=answers)
        with pytest.raises(PolicyError, match=words):
            policy.act([1, 2, 3])
    with pytest.raises(PolicyError, match="no predict"):
        dprl.CallablePolicy(3, actions=(0, 1))
    with pytest.raises(PolicyError, match="different labels"):
        dprl.CallablePolicy(len, actions=())
    with pytest.raises(PolicyError, match="'labels' or 'codes'"):
        dprl.CallablePolicy(len, actions=(1,), answers="both")


# -- the logs it was trained on ----------------------------------------------------------------


@pytest.fixture(scope="module")
def halves():
    return dprl.envs.care_pathway().sample(400, seed=0).split(0.5, seed=0)


def fluids(**more):
    return dprl.CallablePolicy(
        lambda states: ["fluids"] * len(states),
        actions=dprl.envs.care_pathway().actions,
        parameters={"gamma": 1.0},
        **more,
    )


def judged(policy, log, **more):
    return dprl.evaluate(policy, log, draws=5, values=False, **more)


def test_the_logs_it_was_trained_on_are_refused(halves):
    train, test = halves
    policy = fluids(trained_on=train)
    with pytest.raises(PolicyError, match="this is the log the policy was learned from"):
        judged(policy, train)
    part = train.split(0.5, seed=1)[0]
    with pytest.raises(PolicyError, match="also in the log the policy was learned from"):
        judged(policy, part)
    assert not [w for w in judged(policy, test).warnings if "cannot be told" in w]
    assert any("flatters it" in w for w in judged(policy, train, allow_seen=True).warnings)
    with pytest.raises(PolicyError, match="this is the log the policy was learned from"):
        dprl.sensitivity(policy, train)


def test_every_log_of_several_is_refused(halves):
    first, second = halves[0].split(0.5, seed=1)
    policy = fluids(trained_on=[first, second])
    for log in (first, second):
        with pytest.raises(PolicyError, match="the policy was learned from"):
            judged(policy, log)
    judged(policy, halves[1])


def test_what_is_not_known_is_said(halves):
    (words,) = [w for w in judged(fluids(), halves[0]).warnings if "cannot be told" in w]
    assert "trained_on=log" in words
    written = fluids(trained_on=[])  # a protocol: no log was used
    assert not [w for w in judged(written, halves[0]).warnings if "cannot be told" in w]
    with pytest.raises(PolicyError, match="a log, or a list of logs; got a str"):
        fluids(trained_on="train.csv")


def test_what_was_declared_stays_when_something_else_changes(halves):
    from dataclasses import replace

    policy = replace(fluids(trained_on=halves[0]), parameters={"gamma": 0.9})
    assert policy.provenance["log"] == halves[0].digest()
    assert policy.provenance["episodes"] == 200


def test_a_policy_of_ones_own_is_no_better_known(halves):
    class Own:
        actions = ("fluids", "antibiotics")

        def probabilities(self, states):
            return np.tile([1.0, 0.0], (len(states), 1))

    found = judged(Own(), halves[0], gamma=1.0)
    assert [w for w in found.warnings if "cannot be told" in w]


def test_a_distribution_of_ones_own_says_what_it_was_trained_on(tmp_path):
    """Then its training log is refused, also after it was saved; without a word it is warned of."""
    log = dprl.envs.care_pathway().sample(300, seed=0)
    like = dprl.baselines.BC().fit(log)
    facts = {
        "states": like.states,
        "actions": like.actions,
        "parameters": {"gamma": 1.0},
        "pi": like.pi,
    }
    own = dprl.StochasticPolicy(**facts, provenance={"by": "me"}, trained_on=log)
    assert own.provenance["by"] == "me"
    own.save(tmp_path / "own.dprl")
    for policy in (own, replace(own), dprl.StochasticPolicy.load(tmp_path / "own.dprl")):
        with pytest.raises(dprl.DprlError, match="learned from"):
            dprl.evaluate(policy, log, draws=10)
    silent = dprl.StochasticPolicy(**facts, provenance={})
    warned = dprl.evaluate(silent, log, draws=10).warnings
    assert any("StochasticPolicy" in words and "cannot be told" in words for words in warned)
    none = dprl.StochasticPolicy(**facts, provenance={}, trained_on=[])
    assert not any("cannot be told" in w for w in dprl.evaluate(none, log, draws=10).warnings)
