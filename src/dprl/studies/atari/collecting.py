"""Logged play: a seed and an action log, from which every frame can be had again.

Each step takes the expert's action with probability .5, else the medium network's. What is kept is
the seed, the actions and what came of them (about 5 bytes a step); pictures are had by playing the
actions again, since the emulator is deterministic, and what came of them is compared each time. A
collection that was stopped is played up to where it was, and goes on: the same bytes as one that
was not.

A trajectory ends where a life does; trajectories of one game form a group, which is what counts as
one. Rewards go into the log as their signs (as the networks learned them): then the range of
returns is known beforehand, |G| <= 1/(1-γ). The last life of each copy is cut.
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

from dprl._core.checks import check_whole
from dprl.errors import LogError, ParameterError
from dprl.logs._files import Progress
from dprl.logs.log import CUT, TERMINAL, Log
from dprl.studies.atari.games import Games, Make, Moment, Playable, chance, first_seed
from dprl.studies.atari.networks import QNetwork, read_arrays, write_arrays

__all__ = ["Collection", "Frames", "collect", "mixed"]

COPIES = 8
SAVED = 5_000
"""Samples between two writings."""

STACK = 4
CAME = ("reward", "ended", "cut", "began")
"""What is kept of a step beside its action."""


def _emulator() -> str:
    try:
        return importlib.metadata.version("ale-py")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def mixed(
    expert: QNetwork, medium: QNetwork, seen: NDArray[np.uint8], u: NDArray[np.float64]
) -> NDArray[np.int64]:
    """The expert's action where u < .5, else the medium's; each is asked only where it acts."""
    action, strong = np.empty(len(seen), np.int64), u < 0.5
    for network, some in ((expert, strong), (medium, ~strong)):
        if some.any():
            action[some] = network.actions(seen[some])
    return action


@dataclass(frozen=True, eq=False)
class Collection:
    """What was played; T steps of n copies of a game.

    Attributes:
        action: int8 (T, n).
        reward: float32 (T, n), unclipped.
        ended: bool (T, n), a life or a game ended.
        cut: bool (T, n), a game was stopped for its length.
        began: bool (T, n), a game began instead: no sample.
        about: Game, seed, copies, actions, samples asked for, networks' digests, emulator.
    """

    action: NDArray[np.int8]
    reward: NDArray[np.float32]
    ended: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    began: NDArray[np.bool_]
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
        """Decisions played."""
        return int((~self.began).sum())

    @property
    def complete(self) -> bool:
        """Whether it has what was asked for."""
        return self.samples >= int(self.about["samples"])

    @classmethod
    def load(cls, path: Path) -> Collection:
        """Read a collection."""
        arrays, about = read_arrays(path)
        missing = [n for n in ("action", *CAME) if n not in arrays]
        missing += [n for n in ("game", "seed", "copies", "samples", "n_actions") if n not in about]
        if missing:
            raise LogError(f"{str(path)!r} is no collection: {missing[0]!r} is missing.")
        return cls(about=about, **{n: arrays[n] for n in ("action", *CAME)})

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        columns = {n: getattr(self, n) for n in ("action", *CAME)}
        write_arrays(path, columns, self.about, packed=True)

    # -- rows: copy by copy, in time ---------------------------------------------------------

    @functools.cached_property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The copy and the step of each of N samples."""
        copy, step = np.nonzero(~self.began.T)
        return copy, step

    def column(self, name: str) -> NDArray[Any]:
        """`action`, `reward`, `ended` or `cut` by sample, (N,)."""
        copy, step = self.rows
        return np.asarray(getattr(self, name)[step, copy])

    @functools.cached_property
    def games(self) -> NDArray[np.int64]:
        """The game of each sample, int64 (N,), counted from 0."""
        copy, step = self.rows
        number = np.cumsum(self.began, axis=0)[step, copy]
        _, games = np.unique(copy * (len(self.action) + 1) + number, return_inverse=True)
        return np.asarray(games, np.int64)

    def last(self) -> NDArray[np.bool_]:
        """bool (N,): samples that end a trajectory."""
        other = np.append(self.games[1:] != self.games[:-1], True)
        return np.asarray(self.column("ended") | self.column("cut") | other)

    def log(
        self, features: NDArray[Any], games: NDArray[np.bool_] | None = None, *, clip: bool = True
    ) -> Log:
        """The samples as a log.

        Args:
            features: (N, d) numbers, a state each.
            games: bool (number of games,), which to take; all by default.
            clip: Take the sign of rewards.
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
        """What was seen before each step, and after the last: T + 1 times (n, 4, 84, 84).

        Raises LogError where another thing comes of an action than was written down.
        """
        games = make(str(self.about["game"]), int(self.about["copies"]))
        try:
            yield from self._replayed(games)
        finally:
            games.close()

    def _replayed(self, games: Playable) -> Iterator[NDArray[np.uint8]]:
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
        """Every picture of it, in memory (7 kB a step)."""
        T, n = self.action.shape
        say = progress or (lambda stage, share: None)
        age = np.zeros((n, T + 1), np.int64)
        for t in range(T):
            age[:, t + 1] = np.where(self.began[t], 0, age[:, t] + 1)
        pixels: NDArray[np.uint8] | None = None
        for t, seen in enumerate(self.replay(make)):
            if pixels is None:
                pixels = np.empty((n, T + 1, *seen.shape[2:]), np.uint8)
            pixels[:, t] = seen[:, -1]
            if t % 100 == 0:
                say("playing again", t / T)
        assert pixels is not None  # a replay yields what it began with
        return Frames(pixels, age, *self.rows)


@dataclass(frozen=True, eq=False)
class Frames:
    """Pictures of a collection, each kept once.

    Attributes:
        pixels: uint8 (n, T + 1, 84, 84), the newest frame before each step.
        age: int64 (n, T + 1), steps since its game began; there is nothing before that.
        copy: int64 (N,), of each sample.
        step: int64 (N,), of each sample.
    """

    pixels: NDArray[np.uint8]
    age: NDArray[np.int64]
    copy: NDArray[np.int64]
    step: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.copy)

    def stacks(self, samples: NDArray[np.int64], ahead: int = 0) -> NDArray[np.uint8]:
        """uint8 (k, 4, 84, 84): what was seen at these samples, or so many steps later."""
        copy, step = self.copy[samples], self.step[samples] + ahead
        found = np.zeros((len(copy), STACK, *self.pixels.shape[2:]), np.uint8)
        for back in range(STACK):
            there = self.age[copy, step] >= back
            found[there, STACK - 1 - back] = self.pixels[copy[there], step[there] - back]
        return found


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
    """Play, and write down what was done.

    Args:
        game: Name of the game.
        expert: The network whose action is taken with probability .5.
        medium: The network whose action is taken otherwise.
        samples: Number of decisions wanted; a few more may be played, since copies step together.
        seed: Seed of the games and of who acts.
        path: Where it is kept on the way; gone on with if it was begun for the same question.
        copies: Games side by side.
        make: What plays.
        progress: Called with the stage's name and the share of it that is done.
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
    say = progress or (lambda stage, share: None)
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
            say(f"playing {game}", played / samples)
            if path is not None and played - written >= SAVED:
                _gathered(actions, came, about).save(path)
                written = played
        found = _gathered(actions, came, about)
        if path is not None:
            found.save(path)
        return found
    finally:
        games.close()


def _same_question(done: Collection, about: Mapping[str, Any], path: Path) -> None:
    for name, value in about.items():
        if done.about.get(name) != value:
            raise LogError(
                f"{str(path)!r} was begun for another question.",
                f"{name} {done.about.get(name)!r}, now {value!r}",
                "Name another file, or remove this one.",
            )


def _moment(done: Collection, t: int) -> Moment:
    empty = np.zeros((0, STACK, 0, 0), np.uint8)
    return Moment(empty, done.reward[t].astype(np.float64), done.ended[t], done.cut[t],
                  done.began[t])  # fmt: skip


def _gathered(
    actions: list[NDArray[np.int8]], came: list[Moment], about: Mapping[str, Any]
) -> Collection:
    columns = {name: np.stack([getattr(m, name) for m in came]) for name in CAME}
    columns["reward"] = columns["reward"].astype(np.float32)
    return Collection(np.stack(actions), about=about, **columns)
