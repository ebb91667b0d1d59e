"""Evaluation of policies of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from small_world import DEFERRING, GAMMA, small_world, target

import dprl
from conftest import to_log
from dprl.errors import ParameterError, PolicyError
from dprl.evaluation.estimators import ESTIMATORS
from dprl.evaluation.values import evaluate_q
from dprl.policies.held_out import PolicyAtSteps
from dprl.policies.stochastic import StochasticPolicy


def test_rivals_and_labels_in_another_order(care):
    mdp, _, log = care
    rival = dprl.learners.baselines.SPIBB(n_min=20, gamma=1.0).fit(mdp.sample(1_000, seed=3))
    found = dprl.evaluate(rival, log, draws=20)
    order, cols = [3, 1, 0, 2, 7, 5, 4, 6], [2, 0, 3, 1]
    moved = StochasticPolicy(
        states=tuple(rival.states[i] for i in order), actions=tuple(rival.actions[i] for i in cols),
        parameters=rival.parameters, provenance=rival.provenance, pi=rival.pi[np.ix_(order, cols)],
    )  # fmt: skip
    again = dprl.evaluate(moved, log, draws=20)
    for name in ESTIMATORS:
        assert again[name]["value"] == pytest.approx(found[name]["value"], rel=1e-9)
    assert found.facts["spoken"] == 1


def test_a_policy_without_gamma_must_be_told(care):
    mdp, _, log = care
    clone = dprl.learners.baselines.BC().fit(mdp.sample(500, seed=3))
    with pytest.raises(ParameterError, match="knows no gamma"):
        dprl.evaluate(clone, log)
    found = dprl.evaluate(clone, log, gamma=1, draws=20)
    assert found["WIS"]["value"] == pytest.approx(found.behavior["value"], abs=0.05)
    assert found.facts["reached_change"] == 0
    assert found.facts["followers"] == found.facts["reached"]  # it does whatever is done


def test_states_never_seen_are_deferred_and_said(care):
    _, policy, _ = care
    log = to_log([[("fever", "watch", 0.0), ("elsewhere", "watch", 1.0)]] * 10)
    found = dprl.evaluate(policy, log, draws=20)
    assert found.facts["spoken"] == 0.5
    assert any("50.0 % of steps are in states the policy never saw" in w for w in found.warnings)


@pytest.mark.slow
def test_features():
    world = dprl.envs.PointMass()
    train, log = world.sample(300, seed=1), world.sample(300, seed=2)
    learner = dprl.DPRLContinuous(
        n_min=10, radius=0.06, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    policy = learner.fit(train)
    found = dprl.evaluate(policy, log, draws=200)
    here = policy.at(log.features)
    assert found.facts["spoken"] == pytest.approx((here.choice >= 0).mean())
    gain = world.value(policy)[0] - world.value()[0]
    assert abs(found["DR"]["difference"] - gain) < 0.2
    # Few follow it (an effective sample of 2), and much of what it names nobody does: no interval.
    assert found.facts["ess_differs"] < 30
    assert found.facts["unsupported"] > 0.05
    assert np.isnan(found["DR"]["difference_low"])
    assert any("hardly anybody took" in line for line in found.warnings)
    assert found.facts["misplaced"] < 0.08
    again = dprl.evaluate(policy, log, draws=200)
    assert again.to_json() == found.to_json()
    other = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        features=log.features[:, ::-1].copy(), feature_names=("y", "x"), ended=log.ended,
    )  # fmt: skip
    swapped = dprl.evaluate(policy, other, draws=20, values=False)
    assert swapped.facts["reached"] == found.facts["reached"]
    renamed = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        features=log.features, feature_names=("x", "z"),
    )  # fmt: skip
    with pytest.raises(PolicyError, match="needs the feature 'y'"):
        dprl.evaluate(policy, renamed)


def test_features_where_trees_know_everything():
    """With few distinct points, trees grown to the end are tables."""
    mdp = small_world()
    log = mdp.sample(400, seed=1)
    features = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward, actions=log.actions,
        features=log.codes()[:, None].astype(float), feature_names=("s",),
    )  # fmt: skip
    pi, speaks = target(mdp, DEFERRING)
    pi = np.where(speaks[:, None], pi, 0.0)
    code = log.codes().astype(np.int64)
    by_table = evaluate_q(log, PolicyAtSteps(pi, speaks, None, code, log.actions), GAMMA, folds=4)
    rows = PolicyAtSteps(pi[code], speaks[code], None, np.arange(log.n_steps), log.actions)
    by_trees = evaluate_q(features, rows, GAMMA, folds=4, trees=3)
    assert np.abs(by_trees.Q - by_table.Q).max() < 1e-6
    assert np.abs(by_trees.V - by_table.V).max() < 1e-6
