"""Copies of one Atari game that take their steps together, by the NoFrameskip protocol.

A picture is four grey frames of 84 x 84 pixels. An action is held for four frames, of which the
maximum of the last two is seen. A game begins with up to 30 idle frames, and with FIRE if it waits
for that. Actions are not sticky, a game has at most 108,000 frames, and rewards are not changed.

When a life is lost, the step is marked `ended` and the same game goes on (the emulator's option
`episodic_life` would restart it). After the end of a game, the next step begins a new game and
ignores its action: it is no transition and is marked `began`. So whether a lost life was the last
one is known one step later.

Playing for a log, for evaluation and for training uses seeds from three ranges without overlap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import check_seed
from dprl._core.optional import needed
from dprl.errors import ParameterError

GAMES = ("qbert", "pong", "freeway", "bowling", "amidar")
"""The games of the paper."""

LONGEST = 108_000
"""Largest number of frames of a game: half an hour at 60 frames per second."""

PARTS = {"collect": 0, "judge": 1, "train": 2}
"""What a game is played for → number of its range of seeds."""

ROOM, COPIES = 1 << 29, 1 << 12
"""Length of a range of seeds, and number of copies of a game that one seed allows."""

Frame: TypeAlias = NDArray[np.uint8]


class Moment(NamedTuple):
    """What a step led to, in each of n copies of a game.

    Attributes:
        seen: uint8 (n, 4, 84, 84), the picture after the step; its newest frame is the last.
        reward: float64 (n,), the reward of the step, as the game gives it.
        ended: bool (n,), whether a life or the game ended.
        cut: bool (n,), whether the game was stopped because it reached its largest length.
        began: bool (n,), whether a new game began instead: then the step is no transition.
    """

    seen: Frame
    reward: Floats
    ended: Bools
    cut: Bools
    began: Bools


class Playable(Protocol):
    """The interface of `Games`, for anything that can be played instead of an emulator.

    Attributes:
        n: Number of copies.
        n_actions: Number of actions.
    """

    n: int
    n_actions: int

    def reset(self, seed: int) -> Frame:
        """Begin a new game in each copy; see `Games.reset`."""

    def step(self, actions: NDArray[Any], on: Ints | None = None) -> Moment:
        """Take one action in each copy; see `Games.step`."""

    def send(self, actions: NDArray[Any], on: Ints | None = None) -> None:
        """Start a step; see `Games.send`."""

    def receive(self) -> Moment:
        """Finish the step that was started; see `Games.receive`."""

    def close(self) -> None:
        """Release the resources."""


Make: TypeAlias = Callable[[str, int], Playable]
"""A function (name of a game, number of copies) → something that can be played."""


class Games:
    """Copies of an Atari game, each with an emulator of its own (needs the package ale-py).

    Args:
        game: Name of the game, such as "pong".
        n: Number of copies.
        longest: Largest number of frames of a game; it is stopped there. Default 108,000.

    Raises:
        ParameterError: There is no such game.
        PackageError: ale-py is not installed.

    Example:
        >>> games = Games("pong", 2)  # doctest: +SKIP
        >>> games.n_actions  # doctest: +SKIP
        6
        >>> games.close()  # doctest: +SKIP
    """

    def __init__(self, game: str, n: int, *, longest: int = LONGEST) -> None:
        vector = optional("ale_py.vector_env", "ale-py")
        roms = optional("ale_py.roms", "ale-py")
        if game not in roms.get_all_rom_ids():
            raise ParameterError(
                f"there is no game {game!r}.", do=f"The study's: {', '.join(GAMES)}."
            )
        self._envs = [
            vector.AtariVectorEnv(
                game, 1, num_threads=1, max_num_frames_per_episode=longest, reward_clipping=False,
                life_loss_info=True,
            )
            for _ in range(n)
        ]  # fmt: skip
        self.n, self.n_actions = n, int(self._envs[0].single_action_space.n)
        self._clock = np.zeros(n, np.int64)
        self._on: list[int] = []

    def reset(self, seed: int) -> Frame:
        """Begin a new game in each copy.

        Args:
            seed: Seed of the first copy; copy i has seed + i.

        Returns:
            uint8 (n, 4, 84, 84), the first picture of each copy.

        Example:
            >>> games = Games("pong", 2)  # doctest: +SKIP
            >>> games.reset(seed=0).shape  # doctest: +SKIP
            (2, 4, 84, 84)
            >>> games.close()  # doctest: +SKIP
        """
        begun = [env.reset(seed=int(seed) + i) for i, env in enumerate(self._envs)]
        self._clock = np.array([facts["episode_frame_number"][0] for _, facts in begun])
        return np.concatenate([seen for seen, _ in begun])

    def step(self, actions: NDArray[Any], on: Ints | None = None) -> Moment:
        """Take one action in each copy.

        Args:
            actions: Whole numbers (n,), the action of each copy.
            on: int64 (k,), the copies that take a step; the others wait, and their rows of the
                result mean nothing. Default None: all copies.

        Returns:
            What the step led to in each copy.

        Example:
            >>> games = Games("pong", 2)  # doctest: +SKIP
            >>> first = games.reset(seed=0)  # doctest: +SKIP
            >>> games.step(np.array([0, 2])).reward  # doctest: +SKIP
            array([0., 0.])
            >>> games.close()  # doctest: +SKIP
        """
        self.send(actions, on)
        return self.receive()

    def send(self, actions: NDArray[Any], on: Ints | None = None) -> None:
        """Start a step and return at once; `receive` finishes it.

        Args:
            actions: Whole numbers (n,), the action of each copy.
            on: int64 (k,), the copies that take a step. Default None: all copies.

        Example:
            >>> games = Games("pong", 2)  # doctest: +SKIP
            >>> first = games.reset(seed=0)  # doctest: +SKIP
            >>> games.send(np.array([0, 2]))  # doctest: +SKIP
            >>> moment = games.receive()  # doctest: +SKIP
            >>> games.close()  # doctest: +SKIP
        """
        self._on = list(range(self.n)) if on is None else on.tolist()
        for i in self._on:
            self._envs[i].send(np.asarray(actions[i : i + 1], np.int64))

    def receive(self) -> Moment:
        """Wait for the end of the step that `send` started.

        Returns:
            What the step led to in each copy; rows of copies that took no step mean nothing.

        Example:
            >>> games = Games("pong", 2)  # doctest: +SKIP
            >>> first = games.reset(seed=0)  # doctest: +SKIP
            >>> games.send(np.array([0, 2]))  # doctest: +SKIP
            >>> games.receive().seen.shape  # doctest: +SKIP
            (2, 4, 84, 84)
            >>> games.close()  # doctest: +SKIP
        """
        seen = np.zeros((self.n, 4, 84, 84), np.uint8)
        reward = np.zeros(self.n)
        ended, cut, began = np.zeros((3, self.n), bool)
        for i in self._on:
            seen[i : i + 1], reward[i], ended[i], cut[i], facts = (
                x if k in (0, 4) else x[0] for k, x in enumerate(self._envs[i].recv())
            )
            clock = facts["episode_frame_number"][0]
            began[i], self._clock[i] = clock < self._clock[i], clock
        return Moment(seen, reward, ended, cut, began)

    def close(self) -> None:
        """Release the emulators; the games cannot be played any more.

        Example:
            >>> games = Games("pong", 1)  # doctest: +SKIP
            >>> games.close()  # doctest: +SKIP
        """
        for env in self._envs:
            env.close()


def first_seed(part: str, seed: int) -> int:
    """The emulator's seed of the first copy; up to 4,096 copies follow it.

    Args:
        part: What is played for: "collect", "judge" or "train". Their seeds do not overlap.
        seed: The user's seed, from 0 to 131,071.

    Returns:
        The seed; two seeds of the user are 4,096 apart.

    Raises:
        ParameterError: The seed is out of range.

    Example:
        >>> first_seed("collect", 0), first_seed("collect", 1), first_seed("judge", 0)
        (0, 4096, 536870912)
    """
    return PARTS[part] * ROOM + check_seed(seed, ROOM // COPIES - 1) * COPIES


def chance(part: str, seed: int, t: int) -> np.random.Generator:
    """The random generator for everything random in one step.

    Args:
        part: What is played for: "collect", "judge" or "train".
        seed: The user's seed.
        t: Number of the step.

    Returns:
        A generator that depends on these three alone.

    Example:
        >>> bool(chance("judge", 0, 5).random() == chance("judge", 0, 5).random())
        True
    """
    return np.random.default_rng([PARTS[part], seed, t])


def optional(module: str, package: str) -> Any:
    """Import a module that the extra `atari` installs.

    Args:
        module: Name of the module.
        package: Name of the package that holds it, for the message.

    Returns:
        The module.

    Raises:
        PackageError: It is not installed.

    Example:
        >>> optional("json", "json").dumps([1])
        '[1]'
    """
    return needed(module, "the Atari study", "dprl[atari]", package)
