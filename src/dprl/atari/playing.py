"""Judging by playing: the first game of each of some copies, with seeds no log was played with.

At every step a policy speaks or defers; deferred steps are played by the behaviour, which takes the
expert's action with probability .5, else the medium's. With probability .001 any action is taken.
All chance of step t follows from (seed, t), so policies meet the same chance, and one that never
speaks plays exactly what the behaviour plays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.atari.collecting import mixed
from dprl.atari.encoding import Encoder
from dprl.atari.games import COPIES, Games, Make, chance, first_seed
from dprl.atari.networks import QNetwork
from dprl.errors import ParameterError
from dprl.files import Progress

__all__ = ["EPSILON", "Mixture", "Played", "Player", "play", "represented", "silent"]

EPSILON = 0.001

Ints: TypeAlias = NDArray[np.int64]
Player: TypeAlias = Callable[[NDArray[np.uint8], NDArray[np.float64]], Ints]
"""(pictures (k, 4, 84, 84), uniform numbers (k,)) → actions (k,); -1 for DEFER."""


@dataclass(frozen=True)
class Mixture:
    """The behaviour.

    Attributes:
        expert: Acts with probability .5.
        medium: Acts otherwise.
    """

    expert: QNetwork
    medium: QNetwork

    def actions(self, seen: NDArray[np.uint8], u: NDArray[np.float64]) -> Ints:
        """What it does, given uniform numbers u (k,)."""
        return mixed(self.expert, self.medium, seen, u)


@dataclass(frozen=True, eq=False)
class Played:
    """What came of it, a game each.

    Attributes:
        score: float64 (n,), rewards added up, unclipped.
        steps: int64 (n,).
        deferred: int64 (n,), steps left to the behaviour.
        cut: bool (n,), stopped for its length.
    """

    score: NDArray[np.float64]
    steps: Ints
    deferred: Ints
    cut: NDArray[np.bool_]


def silent(seen: NDArray[np.uint8], u: NDArray[np.float64]) -> Ints:
    """The player that always defers: the behaviour."""
    return np.full(len(seen), -1, np.int64)


def represented(policy: Any, encoder: Encoder) -> Player:
    """A policy over the representation as a player; asked about all copies at once."""

    def player(seen: NDArray[np.uint8], u: NDArray[np.float64]) -> Ints:
        x = encoder.states(seen)
        if hasattr(policy, "choices"):
            return np.asarray(policy.choices(x), np.int64)
        if hasattr(policy, "at"):
            return np.asarray(policy.at(x).choice, np.int64)
        heap = policy.probabilities(x).cumsum(axis=1)
        return np.asarray((heap < u[:, None] * heap[:, -1:]).sum(axis=1), np.int64)

    return player


def play(
    player: Player,
    mixture: Mixture,
    game: str,
    *,
    episodes: int = 20,
    seed: int = 0,
    epsilon: float = EPSILON,
    make: Make = Games,
    progress: Progress | None = None,
) -> Played:
    """Play whole games.

    Args:
        player: Who is judged.
        mixture: Who acts where the player defers.
        game: Its name.
        episodes: Games, side by side.
        seed: Of the games and of all chance; never that of a collection.
        epsilon: Probability of an action at random.
        make: What plays.
        progress: Called with the stage's name and the share of games that are over.
    """
    if not 1 <= episodes <= COPIES:
        raise ParameterError(f"episodes must lie in 1..{COPIES}; got {episodes!r}.")
    if not 0 <= epsilon <= 1:
        raise ParameterError(f"epsilon must lie in [0, 1]; got {epsilon!r}.")
    games = make(game, episodes)
    score, cut = np.zeros(episodes), np.zeros(episodes, bool)
    steps, deferred = np.zeros(episodes, np.int64), np.zeros(episodes, np.int64)
    on, t = np.arange(episodes), 0
    try:
        seen = games.reset(first_seed("judge", seed))
        while len(on):
            u = chance("judge", seed, t).random((4, episodes))[:, on]
            said = player(seen[on], u[0])
            quiet = said < 0
            if quiet.any():
                said = said.copy()
                said[quiet] = mixture.actions(seen[on[quiet]], u[1, quiet])
            said = np.where(u[2] < epsilon, (u[3] * games.n_actions).astype(np.int64), said)
            action = np.zeros(episodes, np.int64)
            action[on] = said
            moment = games.step(action)
            live = ~moment.began[on]  # a new game began: the one that counts was over before
            on, quiet = on[live], quiet[live]
            score[on] += moment.reward[on]
            cut[on] |= moment.cut[on]
            steps[on] += 1
            deferred[on] += quiet
            seen, t = moment.seen, t + 1
            if progress is not None:
                progress(f"judging {game}", 1 - len(on) / episodes)
    finally:
        games.close()
    return Played(score, steps, deferred, cut)
