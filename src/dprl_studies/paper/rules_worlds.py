"""Worlds in which actions do nothing, for the experiment `rules`.

Six features move by themselves; which of four actions is taken depends on them, in a different way
in each shape; rewards depend on features and not on actions. So every rule that is certified is
false.

    linear      probabilities by a linear score of the features
    steps       probabilities jump where two features cross thresholds: no smooth model fits
    waves       probabilities go up and down with a feature: no straight line fits
    drift       one action grows likelier during the episode, and so do the rewards
    surrogate   an action moves a feature that goes with the outcome, and does not move the outcome

The last is a trap for credit with λ < 1: the model of values sees the feature improve and expects a
better outcome that never comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dprl.logs._io import from_arrays
from dprl.logs.log import Log

__all__ = ["SHAPES", "null_log"]

SHAPES = ("linear", "steps", "waves", "drift", "surrogate")
ACTIONS, FEATURES = 4, 6
WEIGHTS = 0.8 * np.array([
    [1, -1, 0, 0, 0.5, 0], [0, 1, 1, 0, 0, -0.5], [-1, 0, 0, 0.5, 0, 0.5], [0, 0, -1, 1, 0, 0],
])  # fmt: skip
"""Linear scores of the four actions."""


def _scores(shape: str, x: NDArray[np.float64], step: int) -> NDArray[np.float64]:
    """What makes each action likely, (n, 4): the exponents of its odds."""
    if shape == "steps":
        jump = np.where(x[:, [0]] > 0.3, 1.5, 0.0) * np.array([1, 0, 0, -1])
        both = np.where((x[:, [1]] > 0) & (x[:, [2]] < 0.5), 1.2, 0.0) * np.array([0, 1, -1, 0])
        return np.asarray(jump + both)
    if shape == "waves":
        return np.asarray(np.sin(2 * x[:, :4]) * 1.2 + 0.6 * (x[:, [4]] ** 2 - 1) * [1, 0, -1, 0])
    drift = 0.25 * step if shape == "drift" else 0.0
    return np.asarray(x @ WEIGHTS.T + drift * np.array([1, 0, 0, 0]))


def null_log(shape: str, seed: int | Sequence[int], groups: int = 300, steps: int = 6) -> Log:
    """A log in which no action changes any outcome.

    Args:
        shape: One of `SHAPES`.
        seed: Seed of everything random, a whole number or several.
        groups: Number of groups, each with one episode. Default 300.
        steps: Steps per episode. Default 6.

    Returns:
        The log, with six features and four actions.

    Example:
        >>> null_log("linear", seed=0, groups=3)
        Log: 3 episodes · 18 steps · 6 features · 4 actions
    """
    rng = np.random.default_rng([SHAPES.index(shape), *np.atleast_1d(seed).tolist()])
    x = rng.normal(size=(groups, FEATURES))
    states, actions, rewards = [], [], []
    for step in range(steps):
        odds = np.exp(_scores(shape, x, step))
        likely = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1)
        action = (rng.random((groups, 1)) > likely).sum(axis=1).clip(0, ACTIONS - 1)
        pay = np.tanh(x[:, 0] * x[:, 1]) + 0.5 * x[:, 2] + rng.normal(0, 0.3, groups)
        if shape == "drift":
            pay = pay + 0.3 * step
        states.append(x)
        actions.append(action)
        rewards.append(pay)
        x = 0.9 * x + 0.44 * rng.normal(size=x.shape)
        if shape == "surrogate":  # feature 5 follows the outcome, and what is done
            x[:, 5] = 0.7 * x[:, 2] + 0.7 * (action == 0) + 0.4 * rng.normal(size=groups)
    return from_arrays(
        episode=np.repeat(np.arange(groups), steps),
        state=np.stack(states, axis=1).reshape(-1, FEATURES),
        action=np.stack(actions, axis=1).ravel(),
        reward=np.stack(rewards, axis=1).ravel(),
    )
