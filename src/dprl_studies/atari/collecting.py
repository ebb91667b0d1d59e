"""Logged play: the seed and the actions of games, from which every picture can be made again.

Each step takes the expert's action with probability .5, else the medium network's. A collection
holds the seed, the actions, the rewards and where lives and games ended (about 5 bytes per step),
but no pictures. The emulator is deterministic, so playing the actions again gives the pictures; the
rewards and ends are compared each time. A collection that was interrupted is played again up to its
last step and then continued: it has the same bytes as one that was not interrupted.

In the log a trajectory ends where a life ends. The trajectories of one game form a group, which is
the unit of counting. Rewards are replaced by their signs, as when the networks were trained, so the
range of returns is known in advance: |G| <= 1/(1-γ). The last life of each copy is cut.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints, Singles
from dprl._core.checks import check_whole
from dprl.errors import LogError, ParameterError
from dprl.logs.log import CUT, TERMINAL, Log
from dprl.logs.reading.files import Progress
from dprl_studies.atari.games import Games, Make, Moment, Playable, chance, first_seed
from dprl_studies.atari.networks import QNetwork, read_arrays, write_arrays

COPIES = 8
"""Number of games that are played at the same time."""

SAVED = 5_000
"""Number of samples after which a collection is written to its file again."""

STACK = 4
"""Number of frames in a picture."""

CAME = ("reward", "ended", "cut", "began")
"""What is kept of a step beside its action."""


def _emulator() -> str:
    """The version of ale-py, or "none"."""
    try:
        return importlib.metadata.version("ale-py")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def mixed(expert: QNetwork, medium: QNetwork, seen: NDArray[np.uint8], u: Floats) -> Ints:
    """The action of a mixture of two networks: the expert's where u < .5, else the medium's.

    Args:
        expert: The first network.
        medium: The second network.
        seen: uint8 (k, 4, 84, 84), the pictures.
        u: float64 (k,), random numbers, uniform in [0, 1).

    Returns:
        int64 (k,), the actions.

    Example:
        >>> expert, medium = QNetwork.random(3, seed=1), QNetwork.random(3, seed=2)
        >>> seen = np.zeros((2, 4, 84, 84), np.uint8)
        >>> mixed(expert, medium, seen, np.array([0.2, 0.7])).shape  # doctest: +SKIP
        (2,)
    """
    action, strong = np.empty(len(seen), np.int64), u < 0.5
    for network, acts in ((expert, strong), (medium, ~strong)):
        if acts.any():
            action[acts] = network.actions(seen[acts])
    return action


@dataclass(frozen=True, eq=False)
class Collection:
    """Logged play: T steps of n copies of a game. A sample is one decision of one copy.

    Attributes:
        action: int8 (T, n), the action of each step.
        reward: float32 (T, n), the reward of each step, as the game gives it.
        ended: bool (T, n), whether a life or the game ended.
        cut: bool (T, n), whether the game was stopped because it reached its largest length.
        began: bool (T, n), whether a new game began instead: then the step is no sample.
        about: Facts by name: `game`, `seed`, `copies` (n), `samples` (number asked for),
            `n_actions`, and the digests of the networks and the version of the emulator.

    Raises:
        LogError: A fact is missing, or an array has the wrong shape or type.

    Example:
        >>> about = {"game": "bars", "seed": 0, "copies": 1, "samples": 3, "n_actions": 2}
        >>> no = np.zeros((3, 1), bool)
        >>> ended = np.array([[False], [True], [False]])
        >>> action = np.array([[0], [1], [1]], np.int8)
        >>> reward = np.array([[0], [5], [0]], np.float32)
        >>> played = Collection(action, reward, ended, no, no, about)
        >>> played.samples, played.complete
        (3, True)
    """

    action: NDArray[np.int8]
    reward: Singles
    ended: Bools
    cut: Bools
    began: Bools
    about: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name in ("seed", "copies", "samples", "n_actions"):
            if type(self.about.get(name)) is not int:
                raise LogError(
                    f"this is no collection: {name!r} is {self.about.get(name)!r}, no whole number."
                )
        shape = (len(self.action), self.about["copies"])
        kinds = dict.fromkeys(CAME, "b") | {"action": "i", "reward": "f"}
        for name, kind in kinds.items():
            column = getattr(self, name)
            if column.shape != shape or column.dtype.kind != kind:
                raise LogError(
                    f"this is no collection: {name!r} is {column.dtype} of shape {column.shape}, "
                    f"wanted {shape}."
                )

    @property
    def samples(self) -> int:
        """Number N of samples: all steps but those that began a game."""
        return int((~self.began).sum())

    @property
    def complete(self) -> bool:
        """Whether it has as many samples as were asked for."""
        return self.samples >= int(self.about["samples"])

    @classmethod
    def load(cls, path: Path) -> Collection:
        """Read a collection from a file.

        Args:
            path: A file that `save` wrote.

        Returns:
            The collection.

        Raises:
            PolicyError: There is no such file, or it is no npz of plain arrays.
            LogError: The file holds no collection.

        Example:
            >>> about = {"game": "bars", "seed": 0, "copies": 1, "samples": 3, "n_actions": 2}
            >>> no = np.zeros((3, 1), bool)
            >>> ended = np.array([[False], [True], [False]])
            >>> action = np.array([[0], [1], [1]], np.int8)
            >>> reward = np.array([[0], [5], [0]], np.float32)
            >>> played = Collection(action, reward, ended, no, no, about)
            >>> played.save(Path("collection.npz"))
            >>> Collection.load(Path("collection.npz")).samples
            3
        """
        arrays, about = read_arrays(path)
        missing = [n for n in ("action", *CAME) if n not in arrays]
        missing += [n for n in ("game", "seed", "copies", "samples", "n_actions") if n not in about]
        if missing:
            raise LogError(f"{str(path)!r} is no collection: {missing[0]!r} is missing.")
        return cls(about=about, **{n: arrays[n] for n in ("action", *CAME)})

    def save(self, path: Path) -> None:
        """Write the collection; an old file is replaced only when the new one is complete.

        Args:
            path: The npz file.

        Example:
            >>> about = {"game": "bars", "seed": 0, "copies": 1, "samples": 3, "n_actions": 2}
            >>> no = np.zeros((3, 1), bool)
            >>> ended = np.array([[False], [True], [False]])
            >>> action = np.array([[0], [1], [1]], np.int8)
            >>> reward = np.array([[0], [5], [0]], np.float32)
            >>> played = Collection(action, reward, ended, no, no, about)
            >>> played.save(Path("collection.npz"))
        """
        columns = {n: getattr(self, n) for n in ("action", *CAME)}
        write_arrays(path, columns, self.about, packed=True)

    # -- samples: copy by copy, in order of time ---------------------------------------------

    @functools.cached_property
    def rows(self) -> tuple[Ints, Ints]:
        """The copy and the step of each sample, int64 (N,) each."""
        copy, step = np.nonzero(~self.began.T)
        return copy, step

    def column(self, name: str) -> NDArray[Any]:
        """One column of the samples.

        Args:
            name: "action", "reward", "ended" or "cut".

        Returns:
            (N,), the value of each sample, copy by copy, in order of time.

        Example:
            >>> about = {"game": "bars", "seed": 0, "copies": 1, "samples": 3, "n_actions": 2}
            >>> no = np.zeros((3, 1), bool)
            >>> ended = np.array([[False], [True], [False]])
            >>> action = np.array([[0], [1], [1]], np.int8)
            >>> reward = np.array([[0], [5], [0]], np.float32)
            >>> played = Collection(action, reward, ended, no, no, about)
            >>> played.column("action").tolist()
            [0, 1, 1]
        """
        copy, step = self.rows
        return np.asarray(getattr(self, name)[step, copy])

    @functools.cached_property
    def games(self) -> Ints:
        """The number of the game that each sample belongs to, int64 (N,), from 0."""
        copy, step = self.rows
        number = np.cumsum(self.began, axis=0)[step, copy]
        _, games = np.unique(copy * (len(self.action) + 1) + number, return_inverse=True)
        return np.asarray(games, np.int64)

    def last(self) -> Bools:
        """Which samples end a trajectory.

        Returns:
            bool (N,): True where a life ends, a game is stopped, or the log of a game ends.

        Example:
            >>> about = {"game": "bars", "seed": 0, "copies": 1, "samples": 3, "n_actions": 2}
            >>> no = np.zeros((3, 1), bool)
            >>> ended = np.array([[False], [True], [False]])
            >>> action = np.array([[0], [1], [1]], np.int8)
            >>> reward = np.array([[0], [5], [0]], np.float32)
            >>> played = Collection(action, reward, ended, no, no, about)
            >>> played.last().tolist()
            [False, True, True]
        """
        other = np.append(self.games[1:] != self.games[:-1], True)
        return np.asarray(self.column("ended") | self.column("cut") | other)

    def log(self, features: NDArray[Any], games: Bools | None = None, *, clip: bool = True) -> Log:
        """The samples as a log; trajectories are lives, and groups are games.

        Args:
            features: Numbers (N, d), the state of each sample.
            games: bool (number of games,), the games to take. Default None: all.
            clip: Whether to replace rewards by their signs. Default True.

        Returns:
            The log.

        Raises:
            ParameterError: There are not as many states as samples.
            LogError: No game is chosen.

        Example:
            >>> about = {"game": "bars", "seed": 0, "copies": 1, "samples": 3, "n_actions": 2}
            >>> no = np.zeros((3, 1), bool)
            >>> ended = np.array([[False], [True], [False]])
            >>> action = np.array([[0], [1], [1]], np.int8)
            >>> reward = np.array([[0], [5], [0]], np.float32)
            >>> played = Collection(action, reward, ended, no, no, about)
            >>> played.log(np.zeros((3, 2)))
            Log: 2 episodes · 1 group · 3 steps · 2 features · 2 actions · 1 episode cut
        """
        n = len(self.games)
        if len(features) != n:
            raise ParameterError(f"{len(features):,} states are given for {n:,} samples.")
        keep = np.ones(n, bool) if games is None else np.asarray(games)[self.games]
        last, game = self.last()[keep], self.games[keep]
        if not len(last):
            raise LogError("no game is chosen.", do="Choose at least one.")
        ends = np.flatnonzero(last) + 1
        labels, group = np.unique(game[ends - 1], return_inverse=True)
        reward = self.column("reward")[keep].astype(np.float64)
        return Log(
            starts=np.concatenate(([0], ends)),
            action=self.column("action")[keep].astype(np.int32),
            reward=np.sign(reward) if clip else reward,
            actions=tuple(range(int(self.about["n_actions"]))),
            features=np.asarray(features, np.float64)[keep],
            feature_names=tuple(f"z{i}" for i in range(features.shape[1])),
            group=group.astype(np.int32),
            groups=tuple(int(g) for g in labels),
            ended=np.where(self.column("ended")[keep][ends - 1], TERMINAL, CUT),
        )

    # -- pictures ----------------------------------------------------------------------------

    def replay(self, make: Make = Games) -> Iterator[NDArray[np.uint8]]:
        """Play the actions again, and give the pictures.

        Args:
            make: Function (game, copies) → the games to play in. Default: `Games`, the emulator.

        Yields:
            uint8 (n, 4, 84, 84), T + 1 times: the pictures before each step, and after the last.

        Raises:
            LogError: A reward or an end differs from the collection.

        Example:
            >>> pair = QNetwork.random(6, seed=1), QNetwork.random(6, seed=2)
            >>> played = collect("pong", *pair, samples=16, copies=2)  # doctest: +SKIP
            >>> sum(1 for pictures in played.replay())  # doctest: +SKIP
            9
        """
        games = make(str(self.about["game"]), int(self.about["copies"]))
        try:
            yield from self._replayed(games)
        finally:
            games.close()

    def _replayed(self, games: Playable) -> Iterator[NDArray[np.uint8]]:
        """The pictures of `replay`, played in games that are given."""
        seen = games.reset(first_seed("collect", int(self.about["seed"])))
        yield seen
        for t, action in enumerate(self.action):
            moment = games.step(action)
            for name in CAME:
                now, then = getattr(moment, name), getattr(self, name)[t]
                if not np.array_equal(now, then):
                    copy = int(np.flatnonzero(now != then)[0])
                    raise LogError(
                        f"played again, the log of {self.about['game']} went another way.",
                        f"step {t:,}, copy {copy}: {name} {now[copy]} instead of {then[copy]}",
                        f"It was made with ale-py {self.about.get('emulator')}; this is "
                        f"{_emulator()}. Collect anew.",
                    )
            seen = moment.seen
            yield seen

    def frames(self, make: Make = Games, progress: Progress | None = None) -> Frames:
        """Play the actions again, and keep all pictures in memory (7 kB per step).

        Args:
            make: Function (game, copies) → the games to play in. Default: `Games`, the emulator.
            progress: Called with the name of the stage and the share of it that is done. Default
                None.

        Returns:
            The pictures.

        Raises:
            LogError: A reward or an end differs from the collection.

        Example:
            >>> pair = QNetwork.random(6, seed=1), QNetwork.random(6, seed=2)
            >>> played = collect("pong", *pair, samples=16, copies=2)  # doctest: +SKIP
            >>> len(played.frames())  # doctest: +SKIP
            16
        """
        T, n = self.action.shape
        report = progress or (lambda stage, share: None)
        age = np.zeros((n, T + 1), np.int64)
        for t in range(T):
            age[:, t + 1] = np.where(self.began[t], 0, age[:, t] + 1)
        pixels: NDArray[np.uint8] | None = None
        for t, seen in enumerate(self.replay(make)):
            if pixels is None:
                pixels = np.empty((n, T + 1, *seen.shape[2:]), np.uint8)
            pixels[:, t] = seen[:, -1]
            if t % 100 == 0:
                report("playing again", t / T)
        assert pixels is not None  # a replay yields what it began with
        return Frames(pixels, age, *self.rows)


@dataclass(frozen=True, eq=False)
class Frames:
    """The pictures of a collection; every frame is kept once.

    Attributes:
        pixels: uint8 (n, T + 1, 84, 84), the newest frame before each step, and after the last.
        age: int64 (n, T + 1), the number of steps since the game began. Frames before the beginning
            are black.
        copy: int64 (N,), the copy of the game that each sample belongs to.
        step: int64 (N,), the step of each sample.

    Example:
        >>> pixels = np.ones((1, 3, 84, 84), np.uint8)
        >>> frames = Frames(pixels, np.array([[0, 1, 2]]), np.array([0, 0]), np.array([0, 1]))
        >>> len(frames)
        2
    """

    pixels: NDArray[np.uint8]
    age: Ints
    copy: Ints
    step: Ints

    def __len__(self) -> int:
        return len(self.copy)

    def stacks(self, samples: Ints, ahead: int = 0) -> NDArray[np.uint8]:
        """The pictures of some samples.

        Args:
            samples: int64 (k,), numbers of samples.
            ahead: How many steps later the picture is taken. Default 0: before the sample's action.

        Returns:
            uint8 (k, 4, 84, 84), the newest frame last.

        Example:
            >>> pixels = np.ones((1, 3, 84, 84), np.uint8)
            >>> frames = Frames(pixels, np.array([[0, 1, 2]]), np.array([0, 0]), np.array([0, 1]))
            >>> frames.stacks(np.array([1]))[0, :, 0, 0].tolist()  # black before the game
            [0, 0, 1, 1]
        """
        copy, step = self.copy[samples], self.step[samples] + ahead
        pictures = np.zeros((len(copy), STACK, *self.pixels.shape[2:]), np.uint8)
        for back in range(STACK):
            in_game = self.age[copy, step] >= back
            pictures[in_game, STACK - 1 - back] = self.pixels[copy[in_game], step[in_game] - back]
        return pictures


def collect(
    game: str,
    expert: QNetwork,
    medium: QNetwork,
    *,
    samples: int = 100_000,
    seed: int = 0,
    path: Path | None = None,
    copies: int = COPIES,
    make: Make = Games,
    progress: Progress | None = None,
) -> Collection:
    """Play with a mixture of two networks, and log the actions, rewards and ends.

    Args:
        game: Name of the game.
        expert: The network whose action is taken with probability .5.
        medium: The network whose action is taken otherwise.
        samples: Number of decisions wanted, at least 1; a few more may be played, since all copies
            step together. Default 100,000.
        seed: Seed of the games and of the choice between the networks, from 0 to 131,071. Default
            0.
        path: A file in which the collection is saved while playing. If it exists and was begun with
            the same arguments, it is continued. Default None: it is not saved.
        copies: Number of games that are played at the same time. Default 8.
        make: Function (game, copies) → the games to play in. Default: `Games`, the emulator.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The collection.

    Raises:
        ParameterError: An argument is outside its range, or a network has another number of actions
            than the game.
        LogError: The file was begun with other arguments.
        PackageError: ale-py or torch is not installed.

    Example:
        >>> expert, medium = QNetwork.random(6, seed=1), QNetwork.random(6, seed=2)
        >>> collect("pong", expert, medium, samples=16, copies=2).samples  # doctest: +SKIP
        16
    """
    samples, copies = check_whole("samples", samples, 1), check_whole("copies", copies, 1)
    about = {
        "game": game, "seed": int(seed), "copies": int(copies), "samples": int(samples),
        "expert": expert.digest(), "medium": medium.digest(), "emulator": _emulator(),
    }  # fmt: skip
    first = first_seed("collect", seed)
    games = make(game, copies)
    for network in (expert, medium):
        if network.n_actions != games.n_actions:
            games.close()
            raise ParameterError(
                f"a network has {network.n_actions} actions, {game} {games.n_actions}.",
                do="Is it a network of another game?",
            )
    about["n_actions"] = games.n_actions
    report = progress or (lambda stage, share: None)
    try:
        done = None
        if path is not None and path.exists():
            done = Collection.load(path)
            _same_question(done, about, path)
            if done.complete:
                return done
        actions: list[NDArray[np.int8]] = []
        came: list[Moment] = []
        if done is not None:
            seen = deque(done._replayed(games), maxlen=1).pop()  # up to where it was
            actions = list(done.action)
            came = [_moment(done, t) for t in range(len(done.action))]
        else:
            seen = games.reset(first)
        played = sum(int((~m.began).sum()) for m in came)
        written = played
        while played < samples:
            u = chance("collect", seed, len(actions)).random(copies)
            action = mixed(expert, medium, seen, u).astype(np.int8)
            moment = games.step(action)
            seen = moment.seen
            actions.append(action)
            came.append(moment._replace(seen=seen[:0]))
            played += int((~moment.began).sum())
            report(f"playing {game}", played / samples)
            if path is not None and played - written >= SAVED:
                _gathered(actions, came, about).save(path)
                written = played
        collection = _gathered(actions, came, about)
        if path is not None:
            collection.save(path)
        return collection
    finally:
        games.close()


def _same_question(done: Collection, about: Mapping[str, Any], path: Path) -> None:
    """Refuse to continue a collection that was begun with other arguments."""
    for name, value in about.items():
        if done.about.get(name) != value:
            raise LogError(
                f"{str(path)!r} was begun for another question.",
                f"{name} {done.about.get(name)!r}, now {value!r}",
                "Name another file, or remove this one.",
            )


def _moment(done: Collection, t: int) -> Moment:
    """What step t of a collection led to, without pictures."""
    empty = np.zeros((0, STACK, 0, 0), np.uint8)
    return Moment(empty, done.reward[t].astype(np.float64), done.ended[t], done.cut[t],
                  done.began[t])  # fmt: skip


def _gathered(
    actions: list[NDArray[np.int8]], came: list[Moment], about: Mapping[str, Any]
) -> Collection:
    """The collection of these steps: their actions, and what each led to."""
    columns = {name: np.stack([getattr(m, name) for m in came]) for name in CAME}
    columns["reward"] = columns["reward"].astype(np.float32)
    return Collection(np.stack(actions), about=about, **columns)
