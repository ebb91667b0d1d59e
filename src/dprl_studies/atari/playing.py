"""Evaluating policies by playing, in games that were never logged or trained on.

The first game of each of some copies counts. At every step a policy takes an action or defers;
where it defers, the behaviour acts: it takes the expert's action with probability .5, else the
medium network's. With probability .001 a random action is taken instead. Everything random in step
t follows from the seed and t. So all policies meet the same random numbers, and one that always
defers plays exactly as the behaviour does.

A `Judge` remembers the states of the games it has played. For a new policy it first compares what
the policy would do at these states with what was done. Where both are the same in all of a game,
the result of that game is the same too; only the other games are played.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import check_number, check_whole
from dprl.logs.reading.files import Progress
from dprl.policies.protocol import is_drawn
from dprl_studies.atari.collecting import mixed
from dprl_studies.atari.encoding import Encoder
from dprl_studies.atari.games import COPIES, Games, Make, chance, first_seed
from dprl_studies.atari.networks import QNetwork

EPSILON = 0.001
"""Probability of a random action in a step, by default."""

Player: TypeAlias = Callable[[NDArray[np.uint8], Floats], Ints]
"""A function (pictures, random numbers) → actions, called at every step with the k running games.

Pictures are uint8 (k, 4, 84, 84), random numbers float64 (k,) and uniform in [0, 1), actions int64
(k,), -1 for DEFER.
"""


@dataclass(frozen=True)
class Mixture:
    """The behaviour: at each step one of two networks acts, each with probability .5.

    Attributes:
        expert: The network that acts where the random number is below .5.
        medium: The network that acts otherwise.

    Example:
        >>> mixture = Mixture(QNetwork.random(6, seed=1), QNetwork.random(6, seed=2))
        >>> mixture.expert.n_actions
        6
    """

    expert: QNetwork
    medium: QNetwork

    def actions(self, seen: NDArray[np.uint8], u: Floats) -> Ints:
        """The actions of the mixture; needs torch.

        Args:
            seen: uint8 (k, 4, 84, 84), the pictures.
            u: float64 (k,), random numbers, uniform in [0, 1).

        Returns:
            int64 (k,), the actions.

        Example:
            >>> mixture = Mixture(QNetwork.random(6, seed=1), QNetwork.random(6, seed=2))
            >>> seen = np.zeros((2, 4, 84, 84), np.uint8)
            >>> mixture.actions(seen, np.array([0.2, 0.7])).shape  # doctest: +SKIP
            (2,)
        """
        return mixed(self.expert, self.medium, seen, u)


@dataclass(frozen=True, eq=False)
class Played:
    """The results of n games.

    Attributes:
        score: float64 (n,), the sum of the rewards of each game, as the game gives them.
        steps: int64 (n,), the number of decisions of each game.
        deferred: int64 (n,), the number of decisions at which the player deferred.
        cut: bool (n,), whether the game was stopped because it reached its largest length.

    Example:
        >>> no = np.array([False])
        >>> Played(np.array([21.0]), np.array([1_700]), np.array([1_500]), no).score.mean()
        np.float64(21.0)
    """

    score: Floats
    steps: Ints
    deferred: Ints
    cut: Bools


def silent(seen: NDArray[np.uint8], u: Floats) -> Ints:
    """The player that always defers, so that the behaviour plays.

    Args:
        seen: uint8 (k, 4, 84, 84), the pictures; not used.
        u: float64 (k,), random numbers; not used.

    Returns:
        int64 (k,), all -1.

    Example:
        >>> silent(np.zeros((2, 4, 84, 84), np.uint8), np.zeros(2))
        array([-1, -1])
    """
    return np.full(len(seen), -1, np.int64)


@dataclass(frozen=True, eq=False)
class Represented:
    """A player that acts by a policy over the states that an encoder makes of pictures.

    Attributes:
        policy: The policy. It has a method `choices(x)` that returns actions (k,), -1 for DEFER, or
            it is a `Policy` with `at(x)`, or it has `probabilities(x)` that returns (k, A).
        encoder: The encoder that turns pictures into states.

    Example:
        >>> import dprl
        >>> from dprl_studies.atari import MostFrequent
        >>> from dprl_studies.atari.networks import first_weights
        >>> weights = first_weights(np.random.default_rng(0), {"e1": 512, "e2": 32})
        >>> one, mean = np.ones(32, np.float32), np.zeros((84, 84), np.float32)
        >>> weights |= {"norm.weight": one, "norm.bias": 0 * one}
        >>> weights |= {"mean": mean, "deviation": one[0]}
        >>> encoder = Encoder(weights, {"objective": "return"})
        >>> log = dprl.from_arrays(
        ...     episode=[0, 1], state=[[0.0] * 16, [0.5] * 16], action=[0, 1], reward=[1, 0]
        ... )
        >>> policy = MostFrequent(n_min=1, radius=0.1).fit(log)
        >>> player = Represented(policy, encoder)
        >>> player.certain
        True
    """

    policy: Any
    encoder: Encoder

    @property
    def certain(self) -> bool:
        """Whether the answers depend on the state alone, not on random numbers."""
        return hasattr(self.policy, "choices") or not is_drawn(self.policy)

    def answers(self, x: Floats, u: Floats) -> Ints:
        """The actions of the policy at some states.

        Args:
            x: float64 (k, d), the states.
            u: float64 (k,), random numbers, uniform in [0, 1), with which a policy that has
                probabilities draws its actions; other policies do not use them.

        Returns:
            int64 (k,), the actions, -1 for DEFER.

        Example:
            >>> import dprl
            >>> from dprl_studies.atari import MostFrequent
            >>> from dprl_studies.atari.networks import first_weights
            >>> weights = first_weights(np.random.default_rng(0), {"e1": 512, "e2": 32})
            >>> one, mean = np.ones(32, np.float32), np.zeros((84, 84), np.float32)
            >>> weights |= {"norm.weight": one, "norm.bias": 0 * one}
            >>> weights |= {"mean": mean, "deviation": one[0]}
            >>> encoder = Encoder(weights, {"objective": "return"})
            >>> log = dprl.from_arrays(
            ...     episode=[0, 1], state=[[0.0] * 16, [0.5] * 16], action=[0, 1], reward=[1, 0]
            ... )
            >>> policy = MostFrequent(n_min=1, radius=0.1).fit(log)
            >>> player = Represented(policy, encoder)
            >>> player.answers(np.array([[0.5] * 16, [0.9] * 16]), np.zeros(2))
            array([ 1, -1])
        """
        if hasattr(self.policy, "choices"):
            return np.asarray(self.policy.choices(x), np.int64)
        if not is_drawn(self.policy):
            return np.asarray(self.policy.at(x).choice, np.int64)
        heap = self.policy.probabilities(x).cumsum(axis=1)
        return np.asarray((heap < u[:, None] * heap[:, -1:]).sum(axis=1), np.int64)

    def __call__(self, seen: NDArray[np.uint8], u: Floats) -> Ints:
        """The actions, int64 (k,), at pictures uint8 (k, 4, 84, 84); -1 for DEFER."""
        return self.answers(self.encoder.states(seen), u)


@dataclass(frozen=True, eq=False)
class Track:
    """All decisions of n games, game after game: N decisions in all.

    Attributes:
        score: float64 (n,), the sum of the rewards of each game.
        steps: int64 (n,), the number of decisions of each game.
        cut: bool (n,), whether the game was stopped because it reached its largest length.
        x: float64 (N, d), the states; d = 0 if no encoder was used.
        answer: int64 (N,), the answers of the player, -1 for DEFER.
        done: int64 (N,), the action of the player, or of the behaviour where the player deferred.
            Where a random action was taken instead, it is not shown here.

    Example:
        >>> one, nothing = np.array([1.0]), np.zeros((3, 0))
        >>> answer, done = np.array([2, -1, 2]), np.array([2, 0, 2])
        >>> track = Track(one, np.array([3]), np.array([False]), nothing, answer, done)
        >>> track.played().deferred
        array([1])
    """

    score: Floats
    steps: Ints
    cut: Bools
    x: Floats
    answer: Ints
    done: Ints

    def rows(self, game: int) -> slice:
        """The decisions of one game.

        Args:
            game: Number of the game, from 0.

        Returns:
            A slice into `x`, `answer` and `done`.

        Example:
            >>> two, nothing = np.array([1.0, 0.0]), np.zeros((3, 0))
            >>> answer, done = np.array([2, -1, 2]), np.array([2, 0, 2])
            >>> Track(two, np.array([1, 2]), two > 9, nothing, answer, done).rows(1)
            slice(1, 3, None)
        """
        end = int(self.steps[: game + 1].sum())
        return slice(end - int(self.steps[game]), end)

    def played(self) -> Played:
        """The results of the games.

        Returns:
            Scores, numbers of decisions and of deferrals, and which games were stopped.

        Example:
            >>> two, nothing = np.array([1.0, 0.0]), np.zeros((3, 0))
            >>> answer, done = np.array([2, -1, 2]), np.array([2, 0, 2])
            >>> Track(two, np.array([1, 2]), two > 9, nothing, answer, done).played().score
            array([1., 0.])
        """
        deferred = [int((self.answer[self.rows(i)] < 0).sum()) for i in range(len(self.steps))]
        return Played(self.score, self.steps, np.array(deferred, np.int64), self.cut)


class Judge:
    """Plays the same games, with the same random numbers, with one player after another.

    Use it in a `with` block, which closes the games at its end. Needs torch, and ale-py unless
    `make` is given.

    Args:
        mixture: The behaviour, which acts where a player defers.
        game: Name of the game.
        encoder: Encoder of the states that are remembered. Games are reused only for players with
            this very encoder. Default None: no game is reused.
        episodes: Number of games, which are played at the same time, from 1 to 4,096. Default 20.
        seed: Seed of the games and of everything random, from 0 to 131,071. Games with it differ
            from those that `collect` and `train_dqn` play, whatever their seeds. Default 0.
        epsilon: Probability of a random action in a step, between 0 and 1. Default 0.001.
        make: Function (game, copies) → the games to play in. Default: `Games`, the emulator.

    Raises:
        ParameterError: There is no such game, or an argument is outside its range.
        PackageError: ale-py is not installed.

    Example:
        >>> mixture = Mixture(QNetwork.random(6, seed=1), QNetwork.random(6, seed=2))
        >>> with Judge(mixture, "pong", episodes=2) as judge:  # doctest: +SKIP
        ...     judge.track(silent).played().score
        array([-21., -21.])
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
        """All decisions of a player in every game.

        Games in which an earlier player of this judge did the same are reused; the others are
        played.

        Args:
            player: The player.
            progress: Called with the name of the stage and the share of games that are over.
                Default None.

        Returns:
            The decisions and scores; `played()` of it sums them up.

        Example:
            >>> mixture = Mixture(QNetwork.random(6, seed=1), QNetwork.random(6, seed=2))
            >>> with Judge(mixture, "pong", episodes=2) as judge:  # doctest: +SKIP
            ...     track = judge.track(silent)
            >>> len(track.done) == track.steps.sum()  # doctest: +SKIP
            np.True_
        """
        result_of: dict[int, tuple[Track, Ints]] = {}
        # Remembered states are made by this judge's own encoder; a player with another encoder
        # would take them for other states.
        own_states = player is silent
        if isinstance(player, Represented):
            own_states = player.encoder is self.encoder
        if isinstance(player, Represented) and player.certain and own_states:
            for track in reversed(self.tracks):
                for game in range(self.episodes):
                    if game not in result_of:
                        answer = _same(player, track, game)
                        if answer is not None:
                            result_of[game] = track, answer
        rest = np.array([i for i in range(self.episodes) if i not in result_of], np.int64)
        if len(rest):
            new = self._play(player, rest, progress)
            result_of |= {int(i): (new, new.answer[new.rows(int(i))]) for i in rest}
        pick = [(result_of[i][0], i, result_of[i][0].rows(i)) for i in range(self.episodes)]
        whole = Track(
            np.array([t.score[i] for t, i, _ in pick]), np.array([t.steps[i] for t, i, _ in pick]),
            np.array([t.cut[i] for t, i, _ in pick]), np.concatenate([t.x[r] for t, _, r in pick]),
            np.concatenate([result_of[i][1] for i in range(self.episodes)]),
            np.concatenate([t.done[r] for t, _, r in pick]),
        )  # fmt: skip
        if own_states and whole.x.shape[1]:
            self.tracks.append(whole)
        return whole

    def _play(self, player: Player, on: Ints, progress: Progress | None) -> Track:
        """Play some of the games.

        Args:
            player: The player.
            on: int64 (k,), the numbers of the games to play.
            progress: Called with the name of the stage and the share of games that are over.

        Returns:
            The decisions of these games; the other games have no decisions in it.
        """
        n = self.episodes
        score, cut, steps = np.zeros(n), np.zeros(n, bool), np.zeros(n, np.int64)
        decisions: list[tuple[Ints, Any, Ints, Ints]] = []
        seen, t, asked = self.games.reset(first_seed("judge", self.seed)), 0, len(on)
        while len(on):
            u = chance("judge", self.seed, t).random((4, n))[:, on]
            if isinstance(player, Represented):
                x = player.encoder.states(seen[on])
                answer = player.answers(x, u[0])
            else:
                answer = player(seen[on], u[0])
                look = self.encoder if player is silent else None
                x = np.zeros((len(on), 0)) if look is None else look.states(seen[on])
            quiet, done = answer < 0, answer.copy()
            if quiet.any():
                done[quiet] = self.mixture.actions(seen[on[quiet]], u[1, quiet])
            action = np.zeros(n, np.int64)
            at_random = (u[3] * self.games.n_actions).astype(np.int64)
            action[on] = np.where(u[2] < self.epsilon, at_random, done)
            moment = self.games.step(action, on)
            live = ~moment.began[on]  # a new game began: the one that counts was over before
            on = on[live]
            decisions.append((on, x[live], answer[live], done[live]))
            score[on] += moment.reward[on]
            cut[on] |= moment.cut[on]
            steps[on] += 1
            seen, t = moment.seen, t + 1
            if progress is not None:
                progress(f"judging {self.game}", 1 - len(on) / asked)
        who, x, answer, done = (np.concatenate([step[i] for step in decisions]) for i in range(4))
        order = np.argsort(who, kind="stable")
        return Track(score, steps, cut, x[order], answer[order], done[order])


GLANCE = 64
"""Number of decisions of a game that are compared first; a difference there saves the rest."""


def _same(player: Represented, track: Track, game: int) -> Ints | None:
    """The answers of a player to the states of a game, if it would have done what was done there.

    Args:
        player: A player whose answers depend on the state alone.
        track: Games that were played, with states of the player's encoder.
        game: Number of the game.

    Returns:
        int64 (number of decisions,), -1 for DEFER; None if the player would have done otherwise.
    """
    where, answers = track.rows(game), []
    for part in (slice(where.start, min(where.start + GLANCE, where.stop)),
                 slice(min(where.start + GLANCE, where.stop), where.stop)):  # fmt: skip
        x = track.x[part]
        now = player.answers(x, np.zeros(len(x))) if len(x) else np.zeros(0, np.int64)
        # Where it defers and the track did not, what the mixture would have done is not known.
        alike = np.where(now < 0, track.answer[part] < 0, now == track.done[part])
        if not alike.all():
            return None
        answers.append(now)
    return np.concatenate(answers)


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
    """Play whole games with one player; needs torch, and ale-py unless `make` is given.

    Args:
        player: The player that is evaluated: a `Represented` policy, or a function (pictures,
            random numbers) → actions, -1 for DEFER.
        mixture: The behaviour, which acts where the player defers.
        game: Name of the game.
        episodes: Number of games, which are played at the same time, from 1 to 4,096. Default 20.
        seed: Seed of the games and of everything random, from 0 to 131,071. Games with it differ
            from those that `collect` and `train_dqn` play, whatever their seeds. Default 0.
        epsilon: Probability of a random action in a step, between 0 and 1. Default 0.001.
        make: Function (game, copies) → the games to play in. Default: `Games`, the emulator.
        progress: Called with the name of the stage and the share of games that are over. Default
            None.

    Returns:
        Scores, numbers of decisions and of deferrals, and which games were stopped.

    Raises:
        ParameterError: There is no such game, or an argument is outside its range.
        PackageError: torch or ale-py is not installed.

    Example:
        >>> mixture = Mixture(QNetwork.random(6, seed=1), QNetwork.random(6, seed=2))
        >>> play(silent, mixture, "pong", episodes=2).score  # doctest: +SKIP
        array([-21., -21.])
    """
    how: dict[str, Any] = {"episodes": episodes, "seed": seed, "epsilon": epsilon, "make": make}
    with Judge(mixture, game, **how) as judge:
        return judge.track(player, progress).played()
