"""Evaluation and sweep on a cluster give the numbers of one process, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import dprl
from dprl._core import bootstrap

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def halves():
    return dprl.envs.care_pathway().sample(1_000, seed=5).split(0.5, seed=0)


@pytest.mark.parametrize(("draws", "after"), [(7, 0), (7, 3), (20, 19), (5, 5)])
def test_later_draws_do_not_depend_on_who_made_the_first(draws, after):
    whole = np.concatenate(list(bootstrap.counts(11, draws + after, seed=4)))
    later = np.concatenate(list(bootstrap.counts(11, draws, seed=4, after=after)))
    assert (later == whole[after:]).all()


@pytest.mark.slow
def test_evaluation(two, halves):
    train, test = halves
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    shares = []
    here = dprl.evaluate(policy, test, draws=301, by=None)
    away = dprl.evaluate(
        policy, test, draws=301, cluster=two, progress=lambda *told: shares.append(told)
    )
    assert away.to_dict() == here.to_dict()
    assert shares[-1] == ("bootstrap", 1.0)
    assert dprl.evaluate(policy, test, draws=1, cluster=two).rows == (
        dprl.evaluate(policy, test, draws=1).rows
    )


@pytest.mark.slow
def test_sweep(two, halves):
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    asked = {"n_min": [10, 30], "draws": 100, "delta": 0.1, "value_range": (-3, 3)}
    here = dprl.sweep(learner, *halves, **asked)
    away = dprl.sweep(learner, *halves, **asked, cluster=two)
    assert away.to_dict() == here.to_dict()
    for one, other in zip(away.policies, here.policies, strict=True):
        assert one.digest() == other.digest()
    assert away.pick("bold").digest() == here.pick("bold").digest()


@pytest.mark.slow
def test_sweep_over_features(two):
    halves = dprl.envs.PointMass().sample(60, seed=0).split(0.5, seed=0)
    learner = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=0.97, cut="terminal", plan=False)
    asked = {"n_min": [3], "radius": [0.3, 0.5], "draws": 50, "values": False}
    here, away = (dprl.sweep(learner, *halves, **asked, cluster=c) for c in (None, two))
    assert away.to_dict() == here.to_dict()
    assert [p.digest() for p in away.policies] == [p.digest() for p in here.policies]
