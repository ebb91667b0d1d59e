"""Models that are hardly heard in a large log are fitted on one fold only; the answer is the same."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

import dprl
from dprl.evidence import nuisances as _contest
from dprl.evidence.nuisances import fit_nuisances


def ward(n=200, steps=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n * steps, 2))
    action = (rng.random(n * steps) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(int)
    return dprl.from_arrays(
        episode=np.repeat(np.arange(n), steps), state=x, action=action, reward=rng.normal(size=n * steps)
    )  # fmt: skip


MODELS = [("good", LogisticRegression()), ("bad", DummyClassifier(strategy="prior"))]


def counted(monkeypatch):
    names, real = [], _contest.probabilities

    def asked(model, *more):
        names.append(model.name)
        return real(model, *more)

    monkeypatch.setattr(_contest, "probabilities", asked)
    return names


def test_in_a_small_log_every_model_answers_for_every_fold(monkeypatch):
    names = counted(monkeypatch)
    fit_nuisances(ward(), 1.0, behavior_models=MODELS, threads=1)
    assert (names.count("good"), names.count("bad")) == (4, 4)


@pytest.mark.parametrize("threads", [1, 2])
def test_in_a_large_log_a_model_without_weight_answers_for_one_fold(monkeypatch, threads):
    monkeypatch.setattr(_contest, "ENOUGH", 100)
    names = counted(monkeypatch)
    log = ward()
    raced = fit_nuisances(log, 1.0, behavior_models=MODELS, threads=threads)
    assert (names.count("good"), names.count("bad")) == (4, 1)
    alone = fit_nuisances(log, 1.0, behavior_models=MODELS[:1], threads=1)
    assert (raced.b == alone.b).all()
    good, bad, stack, _ = raced.losses.to_dicts()
    assert (good["weight"], bad["weight"]) == (1.0, 0.0)
    assert stack["log-loss"] <= good["log-loss"] < bad["log-loss"]
    assert "answered for the first fold only" in str(raced.losses)


def test_two_models_that_are_both_heard_go_on(monkeypatch):
    monkeypatch.setattr(_contest, "ENOUGH", 100)
    names = counted(monkeypatch)
    twins = [("one", LogisticRegression()), ("other", LogisticRegression(C=0.9))]
    fit_nuisances(ward(), 1.0, behavior_models=twins)
    assert (names.count("one"), names.count("other")) == (4, 4)
