"""Summaries against their definitions, and errors that mean what they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from dprl.evaluation import stats

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(VALUES, st.sampled_from([0.01, 0.05, 0.25, 0.5, 1.0]))
def test_cvar_is_the_mean_of_the_worst(values, share):
    worst = sorted(values)[: math.ceil(round(share * len(values), 9))]
    assert stats.cvar(values, share) == pytest.approx(np.mean(worst), abs=1e-6)
    assert stats.cvar(values, 1.0) == pytest.approx(stats.mean(values), abs=1e-6)
    assert stats.cvar(values, share) <= stats.mean(values) + 1e-6


def test_cvar_counts_up_and_not_by_rounding():
    assert stats.cvar(np.arange(500.0)) == pytest.approx(np.arange(25).mean())
    assert stats.cvar(np.arange(100.0), 0.07) == pytest.approx(3.0)  # .07 * 100 = 7.000000000000001
    assert stats.cvar([3.0, 1.0, 2.0]) == 1.0


def test_iqm():
    assert stats.iqm([100, 1, 2, 3, 4, 5, 6, -100]) == pytest.approx(3.5)
    assert stats.iqm([1, 2, 9]) == pytest.approx(4.0)
    assert stats.iqm(np.arange(12.0).reshape(2, 6)).tolist() == [2.5, 8.5]


def test_along_the_last_axis():
    rows = np.random.default_rng(0).normal(size=(3, 4, 50))
    for statistic in (stats.mean, stats.cvar, stats.iqm):
        together = statistic(rows)
        assert together.shape == (3, 4)
        assert together[1, 2] == pytest.approx(float(statistic(rows[1, 2])))


def test_bootstrap_depends_on_the_seed_alone():
    values = np.random.default_rng(1).normal(size=80)
    one = stats.bootstrap(values, stats.cvar, seed=3)
    assert np.array_equal(one, stats.bootstrap(values, stats.cvar, seed=3))
    assert not np.array_equal(one, stats.bootstrap(values, stats.cvar, seed=4))


def test_bootstrap_error_of_a_mean():
    values = np.random.default_rng(1).normal(size=400)
    draws = stats.bootstrap(values, stats.mean, seed=0, repeats=4000)
    assert draws.std() == pytest.approx(values.std() / 20, rel=0.05)


def test_strata_keep_their_share():
    values = np.array([0.0] * 30 + [1.0] * 10)
    assert (stats.bootstrap(values, stats.mean, seed=0, strata=values) == 0.25).all()
    assert stats.bootstrap(values, stats.mean, seed=0).std() > 0.05


def test_intervals_cover():
    rng = np.random.default_rng(2)
    hits = 0
    for seed in range(300):
        low, high = stats.interval(rng.normal(size=60), stats.mean, seed=seed, repeats=300)
        hits += low <= 0 <= high
    assert 0.9 <= hits / 300 <= 0.98


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.mean([]),
        lambda: stats.cvar([1.0], 0.0),
        lambda: stats.cvar([1.0], 1.5),
        lambda: stats.bootstrap([[1.0]], stats.mean, seed=0),
        lambda: stats.bootstrap([1.0], stats.mean, seed=0, repeats=0),
        lambda: stats.bootstrap([1.0], stats.mean, seed=0, strata=[1, 2]),
        lambda: stats.interval([1.0], stats.mean, seed=0, level=1.0),
    ],
)
def test_refusals(call):
    with pytest.raises(dprl.ParameterError):
        call()
