"""Nuisances: no row is answered for by its own group, and the better model gets the weight."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from null_world import null_world
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

import dprl
from dprl.evidence import models as _nuisance_models
from dprl.evidence.excursions import credit
from dprl.evidence.models import (
    CLOSE,
    FLOOR,
    floored,
    in_threads,
    log_loss,
    misplaced,
    plan_fits,
    stack_weights,
)
from dprl.evidence.nuisances import fit_nuisances

CHEAP = {"behavior_models": [("shares", DummyClassifier())], "value_model": DummyRegressor()}
LOGISTIC = [("logistic", LogisticRegression())]


def measured(seed=0, groups=24, steps=5, actions=3, d=2, **columns):
    random = np.random.default_rng(seed)
    n = groups * steps
    return dprl.from_arrays(
        **{
            "episode": np.repeat(np.arange(groups), steps),
            "state": random.normal(size=(n, d)),
            "action": random.integers(actions, size=n),
            "reward": random.normal(size=n),
        }
        | columns
    )


def with_features(log, features):
    """The log with other features, such as some that are missing."""
    return replace(log, features=features)


@lru_cache
def null_fit():
    log, b = null_world(0)
    return log, b, fit_nuisances(log, 0.99)


# -- nobody is answered for by the own group ---------------------------------------------------


class Spy(ClassifierMixin, BaseEstimator):
    """Fitted to groups (its first feature), it refuses to be asked about one of them."""

    seen: list = []  # noqa: RUF012 - shared by all copies on purpose

    def fit(self, x, y):
        self.classes_ = np.unique(y)
        self.groups_ = set(x[:, 0])
        return self

    def ask(self, x):
        asked = set(x[:, 0])
        assert not asked & self.groups_
        Spy.seen.append((frozenset(asked), frozenset(self.groups_)))

    def predict_proba(self, x):
        self.ask(x)
        return np.full((len(x), len(self.classes_)), 1 / len(self.classes_))


class ValueSpy(RegressorMixin, Spy):
    def predict(self, x):
        self.ask(x)
        return np.zeros(len(x))


@pytest.mark.parametrize("most", [10**6, 40])
def test_a_group_never_sees_a_model_that_was_fitted_on_it(most, monkeypatch):
    groups = np.repeat(np.arange(30) % 20, 4)  # some groups have two episodes
    log = measured(groups=30, steps=4, group=groups)
    log = replace(log, features=np.column_stack([groups, np.asarray(log.features)]), feature_names=("g", "x", "y"))  # fmt: skip
    monkeypatch.setattr(_nuisance_models.Model, "most", most)
    monkeypatch.setattr(_nuisance_models.Model.__init__, "__defaults__", (most,))
    Spy.seen.clear()
    fit_nuisances(log, 1.0, behavior_models=[("spy", Spy())], value_model=ValueSpy())
    assert len(Spy.seen) == 8
    everybody = set(range(20))
    for asked, fitted in Spy.seen:
        assert fitted <= everybody - asked
        if most > 40:
            assert fitted == everybody - asked
    counted = [g for asked, _ in Spy.seen for g in asked]
    assert sorted(counted) == sorted([*everybody, *everybody])  # each once by either model


def test_a_column_that_names_the_group_foretells_nothing():
    random = np.random.default_rng(0)
    habit = random.integers(2, size=60)  # each group always does the same
    luck = random.normal(size=60)
    group = np.repeat(np.arange(60), 10)
    log = measured(
        groups=60, steps=10, state=np.column_stack([group, random.normal(size=600)]),
        action=habit[group], reward=luck[group],
    )  # fmt: skip
    fitted = fit_nuisances(log, 1.0)
    own = ExtraTreesClassifier(random_state=0).fit(log.features, log.action)
    assert log_loss(floored(own.predict_proba(log.features)), log.action) < 0.01
    assert fitted.losses["log-loss"][3] > 0.55
    assert abs(np.corrcoef(fitted.V, luck[group])[0, 1]) < 0.3


@given(st.integers(0, 50), st.integers(2, 4), st.integers(8, 30), st.integers(1, 60))
def test_every_row_is_held_out_once_and_parts_are_whole_groups(seed, folds, groups, most):
    random = np.random.default_rng(seed)
    group = np.sort(random.integers(groups, size=100))
    group[:groups] = np.arange(groups)
    fits = plan_fits(group, groups, folds, seed)
    np.testing.assert_array_equal(np.sort(np.concatenate([f.held for f in fits])), np.arange(100))
    for fit in fits:
        part = fit.train(most)
        inside = np.unique(group[part])
        assert np.isin(group, inside).sum() == len(part)
        assert len(part) <= most or len(inside) == 1
        assert set(part) <= set(fit.train())
        assert not set(group[fit.train()]) & set(group[fit.held])


# -- the stack ---------------------------------------------------------------------------------


@given(st.integers(0, 100), st.integers(1, 4))
def test_weights_have_the_smallest_loss(seed, models):
    random = np.random.default_rng(seed)
    taken = random.beta(1, 1 + random.random(models) * 3, size=(50, models)).clip(1e-3)
    weights = stack_weights(taken)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    loss = -np.log(taken @ weights).mean()
    rivals = np.vstack([np.eye(models), random.dirichlet(np.full(models, 0.5), 200)])
    assert loss <= -np.log(taken @ rivals.T).mean(axis=0).min() + CLOSE


@pytest.mark.slow
def test_in_the_null_world_the_logistic_model_gets_the_weight():
    _, b, fitted = null_fit()
    table = {line["model"]: line for line in fitted.losses}
    loss = {name: line["log-loss"] for name, line in table.items()}
    assert (
        loss["stack"]
        <= min(loss[m] for m in ("logistic", "products", "splines", "functions", "boosting")) + 0.01
    )
    assert table["logistic"]["weight"] > 0.6
    assert loss["logistic"] < loss["boosting"] - 0.01
    assert loss["stack"] < loss["shares alone"] - 0.3
    assert table["stack"]["misplaced"] < 0.03
    assert np.sqrt(((fitted.b - b) ** 2).mean()) < 0.04
    assert len(fitted.notes) == 1
    assert "estimated from the features" in fitted.notes[0]


def test_where_trees_are_the_truth_they_get_the_weight():
    random = np.random.default_rng(1)
    x = random.normal(size=(3000, 3))
    likely = np.where((x[:, 0] > 0) ^ (x[:, 1] > 0), 0.9, 0.1)
    action = (random.random(3000) < likely).astype(int)
    log = measured(groups=300, steps=10, state=x, action=action, reward=np.zeros(3000))
    losses = fit_nuisances(log, 1.0, value_model=DummyRegressor()).losses
    assert losses["weight"][0] < 0.1
    best = min(losses["log-loss"][:5])
    assert losses["log-loss"][5] <= best + 0.01
    assert best < 0.45


@pytest.mark.slow
def test_the_step_is_a_cause_that_must_not_be_left_out():
    """Later steps earn less and take the first action more often: no effect, yet it seems so."""
    log, _ = null_world(3, drift=1.5, pay=1.0)
    t = {}
    for step in (True, False):
        fitted = fit_nuisances(log, 0.99, step=step, behavior_models=LOGISTIC)
        b = fitted.b[:, 0].clip(0.02, 0.98)
        psi = ((log.action == 0) - b) / (b * (1 - b)) * credit(log, 0.99, 0.9, fitted.V)
        sums = psi.reshape(-1, 20).sum(axis=1)
        t[step] = sums.mean() / sums.std() * np.sqrt(len(sums))
    assert abs(t[True]) < 3
    assert t[False] < -4


@pytest.mark.slow
def test_values_are_worth_having():
    log, _, fitted = null_fit()
    assert credit(log, 0.99, 0.9, fitted.V).var() < 0.4 * credit(log, 0.99, 1.0, 0 * fitted.V).var()


# -- probabilities -----------------------------------------------------------------------------


def test_an_action_that_training_never_saw_gets_the_floor():
    log = measured(groups=40, actions=2)
    action = np.array(log.action)
    action[:5] = 2  # by the first group alone
    log = replace(log, action=action, actions=(0, 1, 2))
    fitted = fit_nuisances(log, 1.0, **CHEAP)
    np.testing.assert_allclose(fitted.b[:5, 2], FLOOR / (1 + FLOOR), rtol=1e-12)
    np.testing.assert_allclose(fitted.b.sum(axis=1), 1.0, rtol=1e-12)
    assert fitted.b.min() >= FLOOR / (1 + 3 * FLOOR)
    assert any("never taken in the training rows of 1 of 4 fits" in note for note in fitted.notes)


def test_what_was_not_available_has_no_probability():
    log = measured(groups=40)
    offers = np.array([[True, True, True], [True, True, False]])
    log = replace(log, menus=offers, available=np.where(log.action == 2, 0, 1))
    b = fit_nuisances(log, 1.0, **CHEAP).b
    assert (b[log.action != 2, 2] == 0).all()
    assert (b[log.action == 2] > 0).all()
    np.testing.assert_allclose(b.sum(axis=1), 1.0, rtol=1e-12)
    wrong = replace(log, available=np.ones(200, int))
    with pytest.raises(dprl.LogError, match="not available"):
        fit_nuisances(wrong, 1.0, **CHEAP)


def test_probabilities_that_are_given_are_used_as_they_are():
    log = measured()
    given_b = np.random.default_rng(0).dirichlet(np.ones(3), log.n_steps)
    fitted = fit_nuisances(log, 1.0, propensity=given_b)
    np.testing.assert_array_equal(fitted.b, given_b)
    assert fitted.losses["model"] == ["given", "shares alone"]
    assert fitted.losses["log-loss"][0] == log_loss(given_b, log.action)


def test_misplaced_probability():
    half_half = np.full((10, 2), 0.5)
    assert misplaced(half_half, np.arange(10) % 2) == 0
    sure = np.tile([1.0, 0.0], (10, 1))
    assert misplaced(sure, np.ones(10, int)) == 1
    assert misplaced(sure, np.zeros(10, int)) == 0


def test_notes_say_what_is_wrong():
    log = measured(groups=60)
    nothing = fit_nuisances(log, 1.0, behavior_models=LOGISTIC).notes
    assert any("hardly tell which action is taken" in note for note in nothing)
    sure = np.full((log.n_steps, 3), 0.005)
    sure[np.arange(log.n_steps), log.action] = 0.99
    assert any(
        "on 100% of the rows only one action" in note
        for note in fit_nuisances(log, 1.0, propensity=sure).notes
    )
    off = np.tile([0.98, 0.01, 0.01], (log.n_steps, 1))
    notes = fit_nuisances(log, 1.0, propensity=off).notes
    assert any("badly calibrated" in note for note in notes)
    assert any("2 of 3 actions have a probability" in note and "1, 2" in note for note in notes)


def test_rows_that_are_left_out_are_said(monkeypatch):
    monkeypatch.setattr(_nuisance_models.Model.__init__, "__defaults__", (50,))
    log = measured()
    (note,) = (n for n in fit_nuisances(log, 1.0, **CHEAP).notes if "part" in n)
    assert note == (
        "Fitted on a random part of the training groups, at most 50 rows of up to 90 (whole "
        "groups): value_model, shares."
    )


# -- the same again ----------------------------------------------------------------------------


def same(one, two):
    return (
        one.V.tobytes() == two.V.tobytes()
        and one.b.tobytes() == two.b.tobytes()
        and one.losses == two.losses
        and one.notes == two.notes
    )


def test_the_seed_decides_and_threads_do_not():
    log = measured(actions=2)
    one = fit_nuisances(log, 0.9, seed=3, threads=1)
    assert same(one, fit_nuisances(log, 0.9, seed=3, threads=3))
    assert not same(one, fit_nuisances(log, 0.9, seed=4))


def test_models_of_users_are_seeded_and_left_alone():
    log = measured()
    forest = ExtraTreesClassifier(5)
    options = {
        "behavior_models": [("f", forest)],
        "value_model": DummyRegressor(),
    }
    assert same(fit_nuisances(log, 1.0, **options), fit_nuisances(log, 1.0, **options))
    assert forest.random_state is None
    assert not hasattr(forest, "classes_")


def test_warnings_stay_as_they_were_whatever_threads_do_to_them():
    def lose_filters():  # as scikit-learn does to other threads now and then
        warnings.resetwarnings()
        warnings.warn("never mind", stacklevel=1)

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        before, show = list(warnings.filters), warnings.showwarning
        for threads in (1, 3):
            in_threads([lose_filters] * 8, threads)
            assert warnings.filters == before
            assert warnings.showwarning is show
        assert not heard
        warnings.warn("mind this", stacklevel=1)
        assert len(heard) == 1


def test_arrays_cannot_be_changed():
    log = measured()
    fitted = fit_nuisances(log, 1.0, **CHEAP)
    assert not fitted.V.flags.writeable
    assert not fitted.b.flags.writeable


# -- what is given -----------------------------------------------------------------------------


def test_missing_numbers_are_filled_in():
    log, _ = null_world(0, groups=40, steps=10)
    features = np.array(log.features)
    features[np.random.default_rng(0).random(features.shape) < 0.2] = np.nan
    features[:, 5] = np.nan
    gappy = with_features(log, features)
    fitted = fit_nuisances(gappy, 0.99)
    assert np.isfinite(fitted.V).all()
    assert np.isfinite(fitted.b).all()
    with pytest.raises(dprl.ParameterError) as error:
        fit_nuisances(gappy, 0.99, behavior_models=LOGISTIC)
    assert error.value.what == "the model 'logistic' could not be fitted and asked."
    assert "NaN" in error.value.where
    assert "fills in missing numbers" in error.value.do


def test_constant_and_tied_features_do_no_harm():
    log = measured(d=3)
    features = np.array(log.features)
    features[:, 0] = 4.0
    features[:, 1] = features[:, 1] > 1.5
    features[:, 2] += 1.7e9  # such as a time in seconds
    shifted = fit_nuisances(replace(log, features=features), 1.0)
    features[:, 2] -= 1.7e9
    plain = fit_nuisances(replace(log, features=features), 1.0)
    np.testing.assert_allclose(shifted.V, plain.V, atol=0.05)
    np.testing.assert_allclose(shifted.b, plain.b, atol=0.05)


class Odd(ClassifierMixin, BaseEstimator):
    def fit(self, x, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        return np.full((len(x), len(self.classes_)), 0.9)


class Wild(RegressorMixin, BaseEstimator):
    def fit(self, x, y):
        return self

    def predict(self, x):
        return np.full(len(x), np.inf)


def test_bad_parameters_are_refused_in_words():
    log = measured()
    good = dict(CHEAP)
    flat = np.full((log.n_steps, 3), 1 / 3)
    never = flat.copy()
    never[7] = [0.5, 0.5, 0.5] - 0.5 * (np.arange(3) == log.action[7])
    short = flat.copy()
    short[3, 0] = 0.2
    alone: dict = {}
    for options, words in (
        (good | {"folds": 1}, "folds must be a whole number"),
        (good | {"seed": -1}, "seed must be a whole number"),
        (good | {"step": "yes"}, "step must be true or false"),
        (good | {"threads": 0}, "threads must be a whole number"),
        (good | {"propensity": flat}, "both given"),
        (alone | {"propensity": flat[:, :2]}, r"shape \(120, 3\); got \(120, 2\)"),
        (alone | {"propensity": "x"}, r"shape \(120, 3\)"),
        (alone | {"propensity": -flat}, "no distribution over actions on 120 of 120 rows"),
        (alone | {"propensity": short}, "no distribution over actions on 1 of 120 rows"),
        (alone | {"propensity": flat * np.nan}, "no distribution over actions on 120 of 120 rows"),
        (alone | {"propensity": never}, "1 of 120 rows took an action whose propensity is 0"),
        (good | {"behavior_models": []}, "behavior_models must be pairs"),
        (good | {"behavior_models": LogisticRegression()}, "behavior_models must be pairs"),
        (good | {"behavior_models": [("x", DummyRegressor())]}, "behavior_models must be pairs"),
        (good | {"behavior_models": [("x", LogisticRegression)]}, "behavior_models must be pairs"),
        (good | {"behavior_models": LOGISTIC * 2}, "two of behavior_models have the name 'logistic'"),
        (good | {"behavior_models": [("odd", Odd())]}, "'odd' gives no probabilities"),
        (good | {"value_model": "forest"}, "value_model must be a regressor"),
        (good | {"value_model": Wild()}, "value_model says no finite number"),
    ):  # fmt: skip
        with pytest.raises(dprl.ParameterError, match=words) as error:
            fit_nuisances(log, 1.0, **options)
        assert error.value.what.endswith(".")
    with pytest.raises(dprl.ParameterError, match="gamma must be"):
        fit_nuisances(log, 1.5, **good)


def test_logs_that_cannot_do_are_refused_in_words():
    log = measured()
    labels = dprl.from_arrays(episode=[1, 2], state=["a", "b"], action=[0, 1], reward=[0, 1])
    one = replace(log, action=np.zeros(log.n_steps, int))
    cut = replace(log, ended=np.where(np.arange(24) == 5, 2, 1))
    few = log.take(np.arange(3))
    for wrong, words, where in (
        (labels, "2 labels, not numeric features", "states 'a', 'b'"),
        (one, "only one action was ever taken, on all 120 rows", "action 0"),
        (cut, "1 of 24 episodes were cut", "episode 5"),
        (few, "4 folds need at least 4 groups; got 3", ""),
    ):
        with pytest.raises(dprl.LogError, match=words) as error:
            fit_nuisances(wrong, 1.0, **CHEAP)
        assert error.value.where == where
        assert error.value.do
    with pytest.raises(dprl.ParameterError, match="a log is needed"):
        fit_nuisances([1], 1.0)
