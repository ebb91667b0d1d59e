"""Judging by playing: the first game of each of some copies, with seeds no log was played with.

At every step a policy speaks or defers; deferred steps are played by the behaviour, which takes the
expert's action with probability .5, else the medium's. With probability .001 any action is taken.
All chance of step t follows from (seed, t), so policies meet the same chance, and one that never
speaks plays exactly what the behaviour plays.

A `Judge` remembers what was seen in games already played. A policy that would have done in all of a
game what was done there plays that very game: it is asked about the remembered states, and only
games in which it differs somewhere are played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_number, check_whole
from dprl.logs._files import Progress
from dprl.policies._protocol import is_drawn
from dprl.studies.atari.collecting import mixed
from dprl.studies.atari.encoding import Encoder
from dprl.studies.atari.games import COPIES, Games, Make, chance, first_seed
from dprl.studies.atari.networks import QNetwork

__all__ = [
    "EPSILON",
    "Judge",
    "Mixture",
    "Played",
    "Player",
    "Represented",
    "Track",
    "play",
    "silent",
]

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


@dataclass(frozen=True, eq=False)
class Represented:
    """A policy over the representation as a player; asked about all copies at once.

    Attributes:
        policy: With `choices`, `at` or `probabilities`.
        encoder: Pictures → states.
    """

    policy: Any
    encoder: Encoder

    @property
    def certain(self) -> bool:
        """Whether its answers follow from the state alone."""
        return hasattr(self.policy, "choices") or not is_drawn(self.policy)

    def answers(self, x: NDArray[np.float64], u: NDArray[np.float64]) -> Ints:
        """Actions (k,) at states x (k, d), -1 for DEFER."""
        if hasattr(self.policy, "choices"):
            return np.asarray(self.policy.choices(x), np.int64)
        if not is_drawn(self.policy):
            return np.asarray(self.policy.at(x).choice, np.int64)
        heap = self.policy.probabilities(x).cumsum(axis=1)
        return np.asarray((heap < u[:, None] * heap[:, -1:]).sum(axis=1), np.int64)

    def __call__(self, seen: NDArray[np.uint8], u: NDArray[np.float64]) -> Ints:
        """As a Player."""
        return self.answers(self.encoder.states(seen), u)


@dataclass(frozen=True, eq=False)
class Track:
    """What was met and done in n games, one after the other; N steps in all.

    Attributes:
        score: float64 (n,).
        steps: int64 (n,).
        cut: bool (n,).
        x: float64 (N, d), states; of no columns if nobody looked.
        said: int64 (N,), the player's answers, -1 for DEFER.
        done: int64 (N,), what was done, chance at large left out.
    """

    score: NDArray[np.float64]
    steps: Ints
    cut: NDArray[np.bool_]
    x: NDArray[np.float64]
    said: Ints
    done: Ints

    def rows(self, game: int) -> slice:
        """Where a game's steps are."""
        end = int(self.steps[: game + 1].sum())
        return slice(end - int(self.steps[game]), end)

    def played(self) -> Played:
        """The scores."""
        deferred = [int((self.said[self.rows(i)] < 0).sum()) for i in range(len(self.steps))]
        return Played(self.score, self.steps, np.array(deferred, np.int64), self.cut)


class Judge:
    """Plays the same games, with the same chance, with one player after the other.

    Args:
        mixture: Who acts where a player defers.
        game: Its name.
        encoder: Encoder of the states to remember; without it no play is shared, nor with players
            that have another.
        episodes: Games, side by side.
        seed: Seed of the games and of all chance; never that of a collection.
        epsilon: Probability of an action at random.
        make: What plays.
    """

    def __init__(
        self, mixture: Mixture, game: str, *, encoder: Encoder | None = None, episodes: int = 20,
        seed: int = 0, epsilon: float = EPSILON, make: Make = Games,
    ) -> None:  # fmt: skip
        episodes = check_whole("episodes", episodes, 1, COPIES)
        check_number("epsilon", epsilon, "[0, 1]")
        self.mixture, self.game, self.encoder = mixture, game, encoder
        self.episodes, self.seed, self.epsilon = episodes, seed, epsilon
        self.games = make(game, episodes)
        self.tracks: list[Track] = []

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *error: object) -> None:
        self.games.close()

    def track(self, player: Player, progress: Progress | None = None) -> Track:
        """What this player does in every game, played where nobody did the same before."""
        found: dict[int, tuple[Track, Ints]] = {}
        # Remembered states are those of this judge's encoder: another's would be misread.
        known = player is silent
        if isinstance(player, Represented):
            known = player.encoder is self.encoder
        if isinstance(player, Represented) and player.certain and known:
            for track in reversed(self.tracks):
                for game in range(self.episodes):
                    if game not in found:
                        said = _same(player, track, game)
                        if said is not None:
                            found[game] = track, said
        rest = np.array([i for i in range(self.episodes) if i not in found], np.int64)
        if len(rest):
            new = self._play(player, rest, progress)
            found |= {int(i): (new, new.said[new.rows(int(i))]) for i in rest}
        pick = [(found[i][0], i, found[i][0].rows(i)) for i in range(self.episodes)]
        whole = Track(
            np.array([t.score[i] for t, i, _ in pick]), np.array([t.steps[i] for t, i, _ in pick]),
            np.array([t.cut[i] for t, i, _ in pick]), np.concatenate([t.x[r] for t, _, r in pick]),
            np.concatenate([found[i][1] for i in range(self.episodes)]),
            np.concatenate([t.done[r] for t, _, r in pick]),
        )  # fmt: skip
        if known and whole.x.shape[1]:
            self.tracks.append(whole)
        return whole

    def _play(self, player: Player, on: Ints, progress: Progress | None) -> Track:
        """Play these games."""
        n = self.episodes
        score, cut, steps = np.zeros(n), np.zeros(n, bool), np.zeros(n, np.int64)
        kept: list[tuple[Ints, Any, Ints, Ints]] = []
        seen, t, asked = self.games.reset(first_seed("judge", self.seed)), 0, len(on)
        while len(on):
            u = chance("judge", self.seed, t).random((4, n))[:, on]
            if isinstance(player, Represented):
                x = player.encoder.states(seen[on])
                said = player.answers(x, u[0])
            else:
                said = player(seen[on], u[0])
                look = self.encoder if player is silent else None
                x = np.zeros((len(on), 0)) if look is None else look.states(seen[on])
            quiet, done = said < 0, said.copy()
            if quiet.any():
                done[quiet] = self.mixture.actions(seen[on[quiet]], u[1, quiet])
            action = np.zeros(n, np.int64)
            at_random = (u[3] * self.games.n_actions).astype(np.int64)
            action[on] = np.where(u[2] < self.epsilon, at_random, done)
            moment = self.games.step(action, on)
            live = ~moment.began[on]  # a new game began: the one that counts was over before
            on = on[live]
            kept.append((on, x[live], said[live], done[live]))
            score[on] += moment.reward[on]
            cut[on] |= moment.cut[on]
            steps[on] += 1
            seen, t = moment.seen, t + 1
            if progress is not None:
                progress(f"judging {self.game}", 1 - len(on) / asked)
        who, x, said, done = (np.concatenate([k[i] for k in kept]) for i in range(4))
        order = np.argsort(who, kind="stable")
        return Track(score, steps, cut, x[order], said[order], done[order])


GLANCE = 64


def _same(player: Represented, track: Track, game: int) -> Ints | None:
    """The player's answers to a game of a track, if it does there what was done."""
    where, said = track.rows(game), []
    for part in (slice(where.start, min(where.start + GLANCE, where.stop)),
                 slice(min(where.start + GLANCE, where.stop), where.stop)):  # fmt: skip
        x = track.x[part]
        now = player.answers(x, np.zeros(len(x))) if len(x) else np.zeros(0, np.int64)
        # Where it defers and the track did not, what the mixture would have done is not known.
        alike = np.where(now < 0, track.said[part] < 0, now == track.done[part])
        if not alike.all():
            return None
        said.append(now)
    return np.concatenate(said)


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
        player: The player that is judged.
        mixture: The behaviour, which acts where the player defers.
        game: Name of the game.
        episodes: Number of games, played side by side.
        seed: Seed of the games and of all chance; never that of a collection.
        epsilon: Probability of an action at random.
        make: What plays.
        progress: Called with the stage's name and the share of games that are over.
    """
    how: dict[str, Any] = {"episodes": episodes, "seed": seed, "epsilon": epsilon, "make": make}
    with Judge(mixture, game, **how) as judge:
        return judge.track(player, progress).played()
