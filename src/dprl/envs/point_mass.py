"""A noisy point mass in a square: continuous states, four moves, an expert careless in a strip.

The mass starts on the left, moves .1 per step in a chosen direction with Gaussian noise of .03, and
should reach the goal disc on the right (reward 1, ends the episode). A pit in the middle ends the
episode with nothing. The expert walks around the pit, below it, and then to the goal; but in the
strip .25 < x < .4 the expert takes the wrong way, up, four times out of five.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_whole
from dprl.logs.log import CUT, TERMINAL, Log
from dprl.policies.protocol import is_drawn

MOVES = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])
STEP, NOISE = 0.1, 0.03
GOAL, GOAL_RADIUS = np.array([0.9, 0.5]), 0.1
PIT, PIT_RADIUS = np.array([0.55, 0.6]), 0.18
STRIP = (0.25, 0.4)


@dataclass(frozen=True)
class PointMass:
    """The point mass: features x and y in [0, 1]; actions up, right, down and left.

    Attributes:
        gamma: Discount in (0, 1]. Default 0.97.
        max_steps: Episodes are cut after this many steps. Default 60.
        carelessness: Probability of the wrong move in the strip. Default 0.8.

    Example:
        >>> from dprl.envs import PointMass
        >>> PointMass().sample(100, seed=0)
        Log: 100 episodes · ... steps · 2 features · 4 actions...
    """

    gamma: float = 0.97
    max_steps: int = 60
    carelessness: float = 0.8

    actions = ("up", "right", "down", "left")
    feature_names = ("x", "y")

    def behavior(self, s: Floats) -> Floats:
        """π_b(a|s) of the expert: .97 for the expert's move, .01 for each other one.

        Args:
            s: float64 (k, 2), the states.

        Returns:
            float64 (k, 4).

        Example:
            >>> import numpy as np
            >>> from dprl.envs import PointMass
            >>> PointMass().behavior(np.array([[0.1, 0.5]])).round(2).tolist()
            [[0.01, 0.01, 0.97, 0.01]]
        """
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
        self, n: int, seed: int, choose: Callable[[Floats, np.random.Generator], Ints]
    ) -> tuple[list[Floats], list[Ints], list[Ints], Floats, Floats]:
        """Play n episodes at the same time.

        Args:
            n: The number of episodes, at least 1.
            seed: Seed of the random draws.
            choose: A function of the states (k, 2) and the random generator that returns the
                actions (k,).

        Returns:
            Three lists with one entry per step (the states, the actions, and the episodes that were
            still going on), and two arrays (n,): the reward of each episode, and its number of
            steps (infinity if it was cut).

        Raises:
            ParameterError: If `n` is less than 1.

        Example:
            >>> import numpy as np
            >>> from dprl.envs import PointMass
            >>> states, *_, reward, length = PointMass().roll_out(
            ...     5, seed=0, choose=lambda s, rng: np.ones(len(s), int)
            ... )
            >>> states[0].shape
            (5, 2)
        """
        n = check_whole("n", n, 1)
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
        length[alive] = np.inf  # cut: the goal was not reached
        return states, actions, players, reward, length

    def _as_people_do(self, s: Floats, rng: np.random.Generator) -> Ints:
        u = rng.random((len(s), 1))
        return np.asarray((u > np.cumsum(self.behavior(s), axis=1)).sum(axis=1).clip(0, 3))

    def sample(self, n: int, *, seed: int) -> Log:
        """Draw episodes of the behaviour. The same seed gives the same log.

        Args:
            n: The number of episodes, at least 1.
            seed: Seed of the random draws.

        Returns:
            The log.

        Example:
            >>> from dprl.envs import PointMass
            >>> PointMass().sample(10, seed=0).feature_names
            ('x', 'y')
        """
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
        """ρ(π), the expected discounted return, estimated by playing.

        Args:
            policy: A fitted policy; where it defers, the behaviour acts. Default None: the
                behaviour.
            n: The number of episodes to play. Default 4,000.
            seed: Seed of the random draws. Default 0.

        Returns:
            The estimate and its standard error.

        Example:
            >>> from dprl.envs import PointMass
            >>> value, error = PointMass().value(n=500)
            >>> bool(0 < value < 1), bool(error < 0.03)
            (True, True)
        """

        def choose(s: Floats, rng: np.random.Generator) -> Ints:
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
