"""A model of what people do, or of what follows, that is added from here is used like the others."""

from __future__ import annotations

import numpy as np
import pytest
from test_contest import ward

import dprl
from dprl.errors import ParameterError
from dprl.evidence.models import NUISANCES, Nuisance, register
from dprl.evidence.nuisances import fit_nuisances


def shares(inputs):
    from sklearn.dummy import DummyClassifier

    return inputs.prepared(DummyClassifier(strategy="prior"))


def mean(inputs):
    from sklearn.dummy import DummyRegressor

    return inputs.prepared(DummyRegressor())


@pytest.fixture
def added():
    """Two more models, for as long as a test runs."""
    register(Nuisance("shares", "actions", shares))
    register(Nuisance("mean", "values", mean))
    yield
    del NUISANCES["shares"], NUISANCES["mean"]


def test_a_model_of_what_people_do_is_weighed_with_the_others(added):
    fitted = fit_nuisances(ward(), 1.0)
    assert fitted.losses["model"] == [
        "logistic", "products", "splines", "functions", "boosting", "shares", "stack", "shares alone",
    ]  # fmt: skip
    assert fitted.losses["weight"][5] < 0.2  # features tell much here
    few = fit_nuisances(ward(), 1.0, behavior_models=["shares"])
    assert few.losses["model"] == ["shares", "stack", "shares alone"]


def test_a_model_of_what_follows_is_asked_for_by_name(added):
    log = ward()
    plain, named = (fit_nuisances(log, 1.0, value_model=v) for v in (None, "mean"))
    assert len(np.unique(named.V)) == 4  # one mean for each fold
    assert len(np.unique(plain.V)) > 4
    assert (plain.b == named.b).all()


@pytest.mark.slow
def test_evaluation_and_learners_use_it(added):
    train, test = ward(seed=0), ward(seed=1)
    policy = dprl.CallablePolicy(lambda x: np.ones(len(x), int), actions=(0, 1))
    result = dprl.evaluate(policy, test, gamma=1.0, draws=20, values=False)
    assert result.facts["behavior"] == "6 models weighed, 5 folds by group"
    rules = dprl.Rules(gamma=1.0, n_min=20).fit(train)
    assert rules.actions == train.actions


def test_a_name_is_taken_once(added):
    with pytest.raises(ParameterError, match="'mean' already"):
        register(Nuisance("mean", "values", mean))
