"""Behaviour and values over features: few fits, the same on any number of threads, good numbers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import dprl
from dprl.envs import hard
from dprl.evaluation import values as _values
from dprl.evidence import behavior as practice
from dprl.evidence import nuisances as _contest
from dprl.evidence.behavior import Behavior
from dprl.evidence.models import floored, log_loss
from dprl.learners.baselines import fitted
from dprl.policies.held_out import acts

ALWAYS = dprl.CallablePolicy(lambda x: [1] * len(x), actions=(0, 1, 2))


def clinic(n=150, seed=0, steps=8):
    """Three actions; a line, a product and the step decide which is taken."""
    random = np.random.default_rng(seed)
    N, step = n * steps, np.tile(np.arange(steps), n)
    x = random.normal(size=(N, 4))
    score = np.column_stack([1.5 * x[:, 0], 2.0 * (x[:, 1] * x[:, 2] > 0), 0.4 * step - 1.5])
    action = (score + random.gumbel(size=score.shape)).argmax(axis=1)
    reward = x[:, 0] + (action == 1) + random.normal(size=N)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), steps), state=x, action=action, reward=reward
    )


def counted(monkeypatch, module, name):
    """Calls of a function of a module, from now on."""
    calls, function = [], getattr(module, name)

    def counting(*args, **options):
        calls.append(args)
        return function(*args, **options)

    monkeypatch.setattr(module, name, counting)
    return calls


@pytest.mark.parametrize(
    ("steps", "folds"),
    [(100, 5), (26_666, 5), (26_667, 4), (30_000, 3), (39_999, 3), (40_000, 2), (10**8, 2)],
)
def test_as_few_folds_as_leave_a_fit_its_steps(steps, folds):
    assert practice._usual_folds(SimpleNamespace(state=None, n_steps=steps)) == folds
    assert practice._usual_folds(SimpleNamespace(state=[0], n_steps=steps)) == 5


@pytest.mark.slow
def test_an_evaluation_fits_few_models(monkeypatch):
    """Of each of five ways to make folds: two folds of five models of the behaviour, and two
    forests of 20 trees a fold of the values."""
    fits = counted(monkeypatch, _contest, "probabilities")
    asked = []
    monkeypatch.setattr(practice, "MOST_ROWS", 600)
    monkeypatch.setattr(_values, "MOST", 200)
    grow = fitted.Regression.grow

    def growing(x, y, trees, seed, **shape):
        asked.append((len(x), trees))
        return grow(x, y, trees, seed, **shape)

    monkeypatch.setattr(fitted.Regression, "grow", growing)
    times = []
    policy = dprl.CallablePolicy(lambda x: times.append(len(x)) or [1] * len(x), actions=(0, 1, 2))
    log = clinic()
    dprl.evaluate(policy, log, gamma=0.9, draws=10)
    assert len(fits) == 2 * 5 * practice.REPEATS
    assert len(asked) <= 2 * _values.GROWN * practice.REPEATS
    assert all(rows <= 200 and trees == 20 for rows, trees in asked)
    assert sum(times) < 1.1 * log.n_steps  # asked once about every step, and some to check it


@pytest.mark.slow
def test_threads_do_not_decide():
    log = clinic()
    one, three = (Behavior.fit(log, seed=3, threads=n).table for n in (1, 3))
    assert np.array_equal(one, three)
    assert not np.array_equal(one, Behavior.fit(log, seed=4).table)
    said = acts(ALWAYS, log)
    alone, together = (_values.evaluate_q(log, said, 0.9, seed=3, threads=n) for n in (1, 2))
    assert np.array_equal(alone.Q, together.Q)
    assert np.array_equal(alone.V, together.V)


def test_values_of_a_fold_do_not_hear_its_own_rewards():
    log = clinic(60)
    said = acts(ALWAYS, log)
    fold = np.repeat(practice.folds_of(log, 2, 0), log.lengths)
    louder = dprl.Log(
        starts=log.starts, action=log.action, reward=log.reward + 10.0 * (fold == 1),
        actions=log.actions, features=log.features, feature_names=log.feature_names,
    )  # fmt: skip
    before, after = (_values.evaluate_q(one, said, 0.9) for one in (log, louder))
    assert np.array_equal(before.Q[fold == 1], after.Q[fold == 1])
    assert not np.array_equal(before.Q[fold == 0], after.Q[fold == 0])


@pytest.mark.slow
def test_probabilities_are_better_than_those_of_a_forest():
    from sklearn.ensemble import ExtraTreesClassifier

    log = clinic(300)
    fold = np.repeat(practice.folds_of(log, 5, 0), log.lengths)
    by_forest = np.empty((log.n_steps, 3))
    for k in range(5):
        forest = ExtraTreesClassifier(
            100, min_samples_leaf=10, max_features=None, random_state=0
        ).fit(log.features[fold != k], log.action[fold != k])
        by_forest[fold == k] = forest.predict_proba(log.features[fold == k])
    behavior = Behavior.fit(log)
    assert behavior.log_loss < log_loss(floored(by_forest), log.action) - 0.02
    assert behavior.misplaced < 0.05
    assert behavior.table.min() > 0
    assert behavior.table.sum(axis=1) == pytest.approx(1)
    assert behavior.how == "five models weighed, 5 folds by group"


def test_a_log_of_one_action_and_of_few_steps():
    same = dprl.from_arrays(
        episode=[0, 0, 1, 2], state=np.arange(8.0).reshape(4, 2), action=[0] * 4, reward=[0.0] * 4
    )
    assert Behavior.fit(same).table.tolist() == [[1.0]] * 4
    random = np.random.default_rng(0)
    for E in (2, 3, 5):
        few = dprl.from_arrays(
            episode=np.repeat(np.arange(E), 2), state=random.integers(0, 2, (2 * E, 2)) * 1.0,
            action=np.arange(2 * E) % 2, reward=np.zeros(2 * E),
        )  # fmt: skip
        assert (Behavior.fit(few).took() > 0).all()


def test_features_may_be_missing():
    log = clinic(20)
    x = np.array(log.features)
    x[3, 1] = np.nan
    holes = dprl.from_arrays(
        episode=np.repeat(np.arange(20), 8), state=x, action=log.action, reward=log.reward
    )
    table = Behavior.fit(holes).table
    assert np.isfinite(table).all()
    np.testing.assert_allclose(table.sum(axis=1), 1)


@pytest.mark.slow
def test_the_mean_of_several_divisions_moves_less_with_the_seed(monkeypatch):
    """And what is left of the spread is in the interval."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    drug = rng.random(150) < 1 / (1 + np.exp(-x[:, 0]))
    log = dprl.from_arrays(
        episode=range(150), state=x, action=np.where(drug, "drug", "wait"),
        reward=2 * x[:, 0] + drug + rng.normal(size=150),
    )  # fmt: skip
    policy = dprl.CallablePolicy(lambda x: ["drug"] * len(x), actions=("drug", "wait"))

    def judged():
        rows = [dprl.evaluate(policy, log, gamma=1.0, draws=50, seed=s)["DR"] for s in range(4)]
        return np.ptp([row["difference"] for row in rows])

    several = judged()
    monkeypatch.setattr(practice, "REPEATS", 1)
    assert several < judged()


@pytest.mark.slow
def test_errors_that_go_with_outcomes_leave_no_interval():
    """Where the policy acts; elsewhere, and where errors go with nothing, nothing changes."""
    log = hard.null("linear", "weak").sample(500, seed=0)
    policy = dprl.RulePolicy(
        states=(), actions=log.actions, parameters={"gamma": 1.0}, provenance={},
        feature_names=log.feature_names,
        rules=({"conditions": [{"feature": log.feature_names[0], "kind": "above", "value": 0.0}],
                "suggested": "treat"},),
    )  # fmt: skip
    fitted = Behavior.fit(log)
    here = np.asarray(log.features)[:, 0] > 0
    for at, refuted in ((here, True), (~here, False)):
        behavior = replace(fitted, foretold=np.where(at, log.action, 0.0))
        found = dprl.evaluate(policy, log, behavior=behavior, draws=50)
        bounds = dprl.sensitivity(policy, log, behavior=behavior, draws=50, yardstick=False)
        assert found.facts["refuted"] == refuted
        assert any("cannot tell" in words for words in found.warnings) == refuted
        assert np.isnan(found.rows[found.headline]["difference_low"]) == refuted
        assert (bounds.facts["unsure"] == "refuted") == refuted
