"""A noisy point mass in a square: continuous states, four moves, an expert careless in a strip.

The mass starts on the left, moves .1 a step in a chosen direction with Gaussian noise of .03, and
wants to reach the goal disc on the right (reward 1, ends). A pit in the middle ends the episode
with nothing. The expert walks around the pit below it and then to the goal, but in the strip
.25 < x < .4 takes the wrong way, up, four times out of five.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import ParameterError
from dprl.logs.log import CUT, TERMINAL, Log
from dprl.policies._protocol import is_drawn

__all__ = ["PointMass"]

Floats = NDArray[np.float64]
MOVES = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])
STEP, NOISE = 0.1, 0.03
GOAL, GOAL_RADIUS = np.array([0.9, 0.5]), 0.1
PIT, PIT_RADIUS = np.array([0.55, 0.6]), 0.18
STRIP = (0.25, 0.4)


@dataclass(frozen=True)
class PointMass:
    """The point mass.

    Attributes:
        gamma: Discount.
        max_steps: Episodes are cut after so many steps.
        carelessness: Chance of the wrong move in the strip.
    """

    gamma: float = 0.97
    max_steps: int = 60
    carelessness: float = 0.8

    actions = ("up", "right", "down", "left")
    feature_names = ("x", "y")

    def behavior(self, s: Floats) -> Floats:
        """π_b(a|s), float64 (k, 4), at states (k, 2): .97 the expert's move, .01 each other."""
        x, y = s[:, 0], s[:, 1]
        move = np.where((x < 0.78) & (y > 0.3), 2, 1)  # go down first, then right below the pit
        move = np.where((x >= 0.78) & (y < GOAL[1] - 0.05), 0, move)  # then up to the goal
        pi = np.full((len(s), 4), 0.01)
        pi[np.arange(len(s)), move] += 0.96
        careless = (x > STRIP[0]) & (x < STRIP[1])
        pi[careless] = (1 - self.carelessness) / 3
        pi[careless, 0] = self.carelessness
        return pi

    def roll_out(
        self, n: int, seed: int, choose: Callable[[Floats, np.random.Generator], NDArray[np.int64]]
    ) -> tuple[list[Floats], list[NDArray[np.int64]], list[NDArray[np.int64]], Floats, Floats]:
        """Play n episodes in lockstep with `choose(states, rng)` → actions.

        Returns for each step the states, actions and who was still playing; and the reward and
        the number of steps of each episode.
        """
        if n < 1:
            raise ParameterError(f"n must be at least 1 episode; got {n!r}.")
        rng = np.random.default_rng(seed)
        s = np.column_stack([rng.uniform(0.02, 0.15, n), rng.uniform(0.3, 0.7, n)])
        alive, reward, length = np.arange(n), np.zeros(n), np.zeros(n)
        states, actions, players = [], [], []
        for _ in range(self.max_steps):
            if not len(alive):
                break
            a = choose(s, rng)
            states.append(s)
            actions.append(a)
            players.append(alive)
            length[alive] += 1
            s = np.clip(s + STEP * MOVES[a] + NOISE * rng.normal(size=s.shape), 0, 1)
            home = ((s - GOAL) ** 2).sum(axis=1) <= GOAL_RADIUS**2
            fell = ((s - PIT) ** 2).sum(axis=1) <= PIT_RADIUS**2
            reward[alive[home]] = 1.0
            on = ~(home | fell)
            s, alive = s[on], alive[on]
        length[alive] = np.inf  # cut: nothing came of it
        return states, actions, players, reward, length

    def _as_people_do(self, s: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
        u = rng.random((len(s), 1))
        return np.asarray((u > np.cumsum(self.behavior(s), axis=1)).sum(axis=1).clip(0, 3))

    def sample(self, n: int, *, seed: int) -> Log:
        """Draw n episodes of the behaviour. Same seed, same log."""
        states, actions, players, reward, length = self.roll_out(n, seed, self._as_people_do)
        episode = np.concatenate(players)
        time = np.concatenate([np.full(len(p), t) for t, p in enumerate(players)])
        order = np.lexsort((time, episode))
        counts = np.bincount(episode, minlength=n)
        last = np.cumsum(counts) - 1
        paid = np.zeros(len(episode))
        paid[last] = reward
        return Log(
            starts=np.concatenate(([0], np.cumsum(counts))),
            action=np.concatenate(actions)[order].astype(np.int32),
            reward=paid,
            actions=self.actions,
            features=np.concatenate(states)[order],
            feature_names=self.feature_names,
            ended=np.where(np.isinf(length), CUT, TERMINAL),
        )

    def value(self, policy: Any = None, *, n: int = 4_000, seed: int = 0) -> tuple[float, float]:
        """ρ(π) by n episodes of play, and its standard error; the behaviour's without a policy.

        Where the policy defers, the behaviour acts.
        """

        def choose(s: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
            usual = self._as_people_do(s, rng)
            if policy is None:
                return usual
            if is_drawn(policy):
                pi = np.cumsum(policy.probabilities(s), axis=1)
                return np.asarray((rng.random((len(s), 1)) > pi).sum(axis=1).clip(0, 3))
            choice = policy.at(s).choice
            return np.where(choice >= 0, choice, usual)

        *_, reward, length = self.roll_out(n, seed, choose)
        G = reward * self.gamma ** (np.minimum(length, self.max_steps) - 1)
        return float(G.mean()), float(G.std() / np.sqrt(n))
