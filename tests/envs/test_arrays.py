"""Problems from arrays and from gymnasium: every shape is the same problem, wrong ones are named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import dprl
from dprl.envs import from_arrays, from_gym, random_mdp

MDP = random_mdp(0)
S, A = MDP.behavior.shape
DENSE = MDP.P.toarray().reshape(S, A, S)


@pytest.mark.parametrize(
    "P",
    [
        DENSE,
        DENSE.tolist(),
        MDP.P,
        [DENSE[:, a] for a in range(A)],
        [sparse.csr_matrix(DENSE[:, a]) for a in range(A)],
    ],
    ids=["dense", "lists", "sparse", "by action", "sparse by action"],
)
def test_every_shape_is_the_same_problem(P):
    own = from_arrays(P, MDP.R, gamma=MDP.gamma, behavior=MDP.behavior, states=MDP.states)
    assert own.value() == pytest.approx(MDP.value(), rel=1e-12)
    assert own.sample(20, seed=0).states == MDP.states


def test_as_many_actions_as_states_are_not_mixed_up():
    P = np.zeros((2, 2, 2))
    P[0, 1, 1] = 1.0  # from 0, action 1 leads to 1
    R = np.array([[0.0, 0.0], [1.0, 1.0]])
    assert from_arrays(P, R, gamma=1.0).optimal[1][0] == 1
    assert from_arrays([P[:, 0], P[:, 1]], R, gamma=1.0).optimal[1][0] == 1


def test_rewards_by_next_state_are_averaged_and_an_ending_pays_nothing():
    R = np.random.default_rng(0).random((S, A, S))
    own = from_arrays(DENSE, R, gamma=0.9)
    assert np.allclose(own.R, (DENSE * R).sum(axis=2))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"P": DENSE[:, :, :5]}, r"P must have shape \(states, actions, states\)"),
        ({"P": MDP.P[:7]}, r"got \(7, 30\)"),
        ({"P": 3}, r"got \(\)"),
        ({"P": 2 * DENSE}, "no probabilities"),
        ({"R": MDP.R[:3]}, r"R must have shape \(30, 4\) or \(30, 4, 30\); got \(3, 4\)"),
        ({"start": [1.0, 0.0]}, "start must have shape"),
        ({"behavior": np.ones((4, 30))}, "behavior must have shape"),
        ({"actions": ["a"]}, "P is of 4 actions; got 1 labels"),
    ],
)
def test_wrong_shapes_are_named(wrong, words):
    with pytest.raises(dprl.ParameterError, match=words):
        from_arrays(**{"P": DENSE, "R": MDP.R, "gamma": 0.9, **wrong})


def test_the_frozen_lake_has_its_known_value():
    gymnasium = pytest.importorskip("gymnasium")
    lake = from_gym(gymnasium.make("FrozenLake-v1"), gamma=0.99)
    assert lake.optimal[0][0] == pytest.approx(0.5420, abs=1e-4)  # as published for γ = .99
    assert lake.sample(30, seed=0).n_actions == 4
    with pytest.raises(dprl.ParameterError, match="carries no table of transitions"):
        from_gym(gymnasium.make("CartPole-v1"), gamma=0.99)
