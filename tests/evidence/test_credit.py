"""Credit: a slow oracle, and what the two ends of λ are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from conftest import random_episodes, to_log
from dprl.evidence.excursions import credit
from dprl.logs.returns import returns

GAMMA = st.sampled_from([0.3, 0.9, 0.99, 1.0])
LAMBDA = st.sampled_from([0.0, 0.3, 0.9, 1.0])


def slowly(log, gamma, lam, V):
    """The definition, as two sums."""
    e = np.zeros(log.n_steps)
    for first, last in zip(log.starts[:-1], log.starts[1:], strict=True):
        after = [*V[first + 1 : last], 0.0]
        delta = log.reward[first:last] + gamma * np.array(after) - V[first:last]
        for t in range(last - first):
            e[first + t] = sum((gamma * lam) ** k * d for k, d in enumerate(delta[t:]))
    return e


def tried(seed):
    log = to_log(random_episodes(seed))
    return log, np.random.default_rng(seed).normal(size=log.n_steps)


@given(st.integers(0, 200), GAMMA, LAMBDA)
def test_it_is_the_sum_of_surprises(seed, gamma, lam):
    log, V = tried(seed)
    np.testing.assert_allclose(
        credit(log, gamma, lam, V), slowly(log, gamma, lam, V), rtol=1e-12, atol=1e-12
    )


@given(st.integers(0, 200), GAMMA)
def test_lambda_one_is_the_return_less_the_value(seed, gamma):
    log, V = tried(seed)
    np.testing.assert_allclose(
        credit(log, gamma, 1.0, V), returns(log, gamma) - V, rtol=1e-12, atol=1e-12
    )


@given(st.integers(0, 200), GAMMA)
def test_lambda_zero_is_the_surprise_of_one_step(seed, gamma):
    log, V = tried(seed)
    after = np.append(V[1:], 0.0)
    after[log.starts[1:] - 1] = 0.0
    np.testing.assert_array_equal(credit(log, gamma, 0.0, V), log.reward + gamma * after - V)


@given(st.integers(0, 200), GAMMA, LAMBDA)
def test_an_episode_knows_nothing_of_the_others(seed, gamma, lam):
    log, V = tried(seed)
    whole = credit(log, gamma, lam, V)
    for e in range(log.n_episodes):
        rows = slice(log.starts[e], log.starts[e + 1])
        np.testing.assert_array_equal(credit(log.take([e]), gamma, lam, V[rows]), whole[rows])


def test_true_values_leave_no_credit_where_nothing_is_left_to_chance():
    log = to_log([[(t, "a", 1.0) for t in range(5)]] * 2)
    V = returns(log, 0.9)
    for lam in (0.0, 0.5, 1.0):
        np.testing.assert_allclose(credit(log, 0.9, lam, V), 0.0, atol=1e-12)


def test_bad_input_is_refused_in_words():
    log = to_log([[(0, "a", 1.0), (1, "b", 0.0)]])
    for gamma, lam, V, words in (
        (0.0, 0.5, [0, 0], "gamma must be a number in"),
        (1.0, 1.1, [0, 0], "lam must be a number in"),
        (1.0, 0.5, [0, 0, 0], r"V must be 2 numbers, one per row of the log; got an array of \(3,\)"),
        (1.0, 0.5, [[0], [0]], "V must be 2 numbers"),
        (1.0, 0.5, ["x", "y"], "V must be 2 numbers"),
        (1.0, 0.5, [0, np.nan], "V is not a finite number on 1 of 2 rows"),
    ):  # fmt: skip
        with pytest.raises(dprl.ParameterError, match=words):
            credit(log, gamma, lam, V)
    with pytest.raises(dprl.LogError, match="1 of 1 episodes were cut"):
        credit(to_log([[(0, "a", 1.0)]], [True]), 1.0, 0.5, [0.0])
    huge = replace(log, reward=np.full(2, 1e308))
    with pytest.raises(dprl.LogError, match="not a finite number"):
        credit(huge, 1.0, 1.0, [0.0, 0.0])
