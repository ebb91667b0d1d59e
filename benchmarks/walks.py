"""Logs of any size for the benchmark of the confident learner: a random Markov process, walked."""

from __future__ import annotations

import numpy as np

import dprl


def walks(
    S: int, steps: int, *, A: int = 8, successors: int = 4, length: int = 20, seed: int = 0
) -> dprl.Log:
    """A log of about `steps` steps.

    Every pair leads to `successors` random states with random probabilities. An episode goes on
    with probability 1 - 1 / length after each step. One state in three has an action that earns
    more; people prefer some actions over others in each state, for no reason.

    Args:
        S: The number of states.
        steps: About how many steps.
        A: The number of actions.
        successors: Next states of each pair.
        length: Mean steps of an episode.
        seed: Seed of the process and of the log.
    """
    rng = np.random.default_rng([seed, S])
    following = rng.integers(S, size=(S * A, successors), dtype=np.int32)
    chances = np.cumsum(rng.dirichlet(np.full(successors, 2.0), S * A), axis=1).astype(np.float32)
    worth = 0.1 * rng.standard_normal(S * A)
    better = np.flatnonzero(rng.random(S) < 1 / 3)
    worth[better * A + rng.integers(A, size=len(better))] += 0.5
    usual = np.cumsum(rng.dirichlet(np.full(A, 2.0), S), axis=1).astype(np.float32)

    lengths = np.minimum(rng.geometric(1 / length, max(steps // length, 1)), 10 * length)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    state = np.empty(starts[-1], np.int32)
    action = np.empty(starts[-1], np.int32)
    order = np.argsort(-lengths, kind="stable")  # the longest first: those that go on are a prefix
    first = starts[:-1][order]
    going_on = np.searchsorted(-lengths[order], -np.arange(1, lengths.max() + 1), side="right")
    here = rng.integers(S, size=len(lengths), dtype=np.int32)
    for t, n in enumerate(going_on.tolist()):
        here = here[:n]
        chosen = _drawn(usual, here, rng)
        pair = here * np.int32(A) + chosen
        state[first[:n] + t], action[first[:n] + t] = here, chosen
        here = following[pair, _drawn(chances, pair, rng)]
    reward = worth[state.astype(np.int64) * A + action] + rng.standard_normal(len(state))
    return dprl.Log(
        starts=starts, state=state, action=action, reward=reward,
        states=tuple(range(S)), actions=tuple(range(A)),
    )  # fmt: skip


def _drawn(cumulated: np.ndarray, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A draw from the distribution of each row, int32."""
    uniform = rng.random(len(row), np.float32)
    drawn = np.zeros(len(row), np.int32)
    for column in range(cumulated.shape[1] - 1):
        drawn += uniform >= cumulated[row, column]
    return drawn
