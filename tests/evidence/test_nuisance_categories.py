"""Models of usual practice use labels as labels, and missing values as such."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import dprl
from dprl.evidence.models import Inputs, usual_behavior_models, usual_value_models
from dprl.evidence.nuisances import fit_nuisances

WARDS = np.array(["a", "b", "c", "d", "e"])
CHANCE = np.array([0.9, 0.1, 0.9, 0.1, 0.5])
"""Of taking the drug in each ward: no order of the wards explains it."""


def ward_log(seed=0, n=1_200, gone=0.15):
    random = np.random.default_rng(seed)
    ward = random.integers(5, size=n)
    missing = random.random(n) < gone
    chance = np.where(missing, 0.2, CHANCE[ward])
    drug = random.random(n) < chance
    names = WARDS[ward].astype(object)
    names[missing] = None
    age = random.normal(60, 10, n)
    age[random.random(n) < 0.1] = np.nan
    state = np.empty((n, 2), object)
    state[:, 0], state[:, 1] = names, age
    log = dprl.from_arrays(
        episode=np.arange(n), state=state, action=np.where(drug, "drug", "wait"), reward=random.normal(size=n) + ward,
        feature_names=["ward", "age"],
    )  # fmt: skip
    return log, chance


def test_each_model_learns_the_wards():
    log, chance = ward_log()
    fitted = fit_nuisances(log, 1.0, categories=True, threads=1)
    assert np.abs(fitted.b[:, 0] - chance).mean() < 0.06
    losses = dict(zip(fitted.losses["model"], fitted.losses["log-loss"], strict=True))
    truth = -(chance * np.log(chance) + (1 - chance) * np.log(1 - chance)).mean()
    for model in ("logistic", "boosting", "stack"):
        assert losses[model] < truth + 0.06
    assert losses["shares alone"] > truth + 0.15
    assert losses["products"] < losses["shares alone"] - 0.1


def test_who_would_take_codes_for_numbers_is_refused():
    log, _ = ward_log(n=200)
    with pytest.raises(
        dprl.LogError, match="feature 'ward' is a category of 5 labels, not a number"
    ):
        fit_nuisances(log, 1.0)


def test_models_of_users_get_a_column_for_each_label():
    log, chance = ward_log(gone=0.2)
    log = dprl.from_arrays(
        episode=np.arange(log.n_steps),
        state=np.array([None if np.isnan(c) else WARDS[int(c)] for c in log.features[:, 0]], object)[:, None],
        action=[log.actions[a] for a in log.action], reward=log.reward, feature_names=["ward"],
    )  # fmt: skip
    fitted = fit_nuisances(
        log, 1.0, categories=True, step=False, threads=1,
        behavior_models=[("logistic", LogisticRegression(C=100.0))], value_model=LinearRegression(),
    )  # fmt: skip
    assert np.abs(fitted.b[:, 0] - chance).mean() < 0.05
    values = [fitted.V[log.features[:, 0] == code].mean() for code in range(5)]
    np.testing.assert_allclose(values, range(5), atol=0.2)


def test_the_order_of_the_wards_does_not_matter():
    """Codes are names: renamed labels give the logistic regression the same probabilities."""
    random = np.random.default_rng(0)
    x = np.column_stack([random.integers(4, size=400), random.normal(size=400)]).astype(float)
    x[:30, 0] = np.nan
    x[20:60, 1] = np.nan
    y = random.integers(2, size=400)
    other = np.array([2.0, 0.0, 3.0, 1.0, np.nan])
    renamed = x.copy()
    renamed[:, 0] = other[np.where(np.isnan(x[:, 0]), 4, x[:, 0]).astype(int)]
    logistic = usual_behavior_models(Inputs(True, (4, 0)))[0].estimator
    one = logistic.fit(x, y).predict_proba(x)
    two = logistic.fit(renamed, y).predict_proba(renamed)
    np.testing.assert_allclose(one, two, atol=1e-3)


@pytest.mark.parametrize("labels", [(3,), (3, 0), (0, 3)])
def test_labels_alone_and_columns_that_are_missing_everywhere(labels):
    random = np.random.default_rng(0)
    x = random.integers(3, size=(90, len(labels))).astype(float)
    x[:, -1] = np.nan
    y = random.integers(2, size=90)
    for model in usual_behavior_models(Inputs(True, labels)):
        assert np.isfinite(model.estimator.fit(x, y).predict_proba(x)).all()
    for model_of_values in usual_value_models(Inputs(True, labels)):
        assert np.isfinite(model_of_values.estimator.fit(x, y).predict(x)).all()
    asked = x.copy()
    asked[:, labels.index(3)] = 2.0  # a label that training did not have, or seldom
    assert np.isfinite(model.estimator.predict_proba(asked)).all()
