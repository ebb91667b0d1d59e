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
        ({"P": 2 * DENSE}, r"120 of 120 rows of P .*\n.*state 0, action 0, which adds up to"),
        ({"P": -DENSE}, "rows of P are no probabilities"),
        ({"P": DENSE * np.nan}, "rows of P are no probabilities"),
        ({"P": "chances"}, "P must be an array of numbers; got 'chances'"),
        ({"R": [[1.0], [1.0, 2.0]]}, "R must be an array of numbers"),
        ({"R": np.where(np.arange(4) == 2, np.nan, MDP.R)}, "30 of 120 .*\n.*state 0, action 2"),
        ({"start": np.full(30, 0.5)}, r"1 of 1 rows of start .*\n.*adds up to 15"),
        ({"behavior": np.ones((30, 4))}, r"30 of 30 rows of behavior .*\n.*state 0, which"),
        ({"actions": ["a", "b", "a", "c"]}, "1 of 4 labels of actions came before.*\n.*'a'"),
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


def test_published_values_are_reproduced():
    maze, river = dprl.envs.maze(), dprl.envs.river()
    assert maze.value() == pytest.approx(0.40225, abs=5e-6)
    assert maze.start @ maze.optimal[0] == pytest.approx(0.59774, abs=5e-6)
    assert river.value() == pytest.approx(29.75, abs=5e-3)
    assert river.start @ river.optimal[0] == pytest.approx(43.08, abs=5e-3)
    assert river.sample(1, seed=0).n_steps == 1_000


def test_random_problems_can_be_graded_and_end_by_action():
    graded = [random_mdp(3, practice=eta) for eta in (0.1, 0.5, 0.9)]
    best = graded[0].start @ graded[0].optimal[0]
    uniform = graded[0].value(np.full((30, 4), 0.25))
    shares = [(one.value() - uniform) / (best - uniform) for one in graded]
    assert shares == pytest.approx([0.1, 0.5, 0.9], abs=1e-6)
    assert (graded[1].P != random_mdp(3).P).nnz == 0
    ending = 1 - random_mdp(3, endings=True).P.sum(axis=1)
    assert ending.min() < 0.02
    assert 0.17 < ending.max() <= 0.2
    assert random_mdp(3, states=8, actions=3).R.shape == (8, 3)


def test_a_problem_is_printed_in_one_line():
    assert repr(dprl.envs.forest()) == "<FiniteMDP: forest · 64 states · 3 actions · γ = 0.99>"
