"""Games: some copies of one Atari game, stepped together, by the NoFrameskip protocol.

Four grey frames of 84 x 84, an action held for four frames (the maximum of the last two is seen),
up to 30 idle frames at a start, FIRE where a game waits for it, no sticky actions, at most 108,000
frames a game, rewards as the game gives them.

A lost life is an end (`ended`) after which the same game goes on; the emulator's `episodic_life`
would restart it. After the end of a game the next step begins a new one and ignores its action:
that step is no transition (`began`). Whether an end was the last is known one step later, by that.

Seeds: playing for a log, playing to judge and playing to train draw from ranges that do not meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_seed
from dprl._core.optional import needed
from dprl.errors import ParameterError

__all__ = ["GAMES", "Games", "Moment", "Playable", "chance", "first_seed", "optional"]

GAMES = ("qbert", "pong", "freeway", "bowling", "amidar")
"""The paper's."""

LONGEST = 108_000
"""Frames of a game, at most: half an hour at 60 a second."""

PARTS = {"collect": 0, "judge": 1, "train": 2}
ROOM, COPIES = 1 << 29, 1 << 12

Frame: TypeAlias = NDArray[np.uint8]


class Moment(NamedTuple):
    """What a step led to, in each of n copies.

    Attributes:
        seen: uint8 (n, 4, 84, 84), the newest frame last.
        reward: float64 (n,), unclipped.
        ended: bool (n,), a life or a game ended here.
        cut: bool (n,), the game was stopped for its length.
        began: bool (n,), a new game began instead: no transition.
    """

    seen: Frame
    reward: NDArray[np.float64]
    ended: NDArray[np.bool_]
    cut: NDArray[np.bool_]
    began: NDArray[np.bool_]


class Playable(Protocol):
    """What plays: an emulator, or a stand-in."""

    n: int
    n_actions: int

    def reset(self, seed: int) -> Frame:
        """Begin anew; copy i with seed + i."""

    def step(self, actions: NDArray[Any], on: NDArray[np.int64] | None = None) -> Moment:
        """Take one action in each copy, or in these copies alone (the others' rows are void)."""

    def send(self, actions: NDArray[Any], on: NDArray[np.int64] | None = None) -> None:
        """The first half of a step: let the games go on."""

    def receive(self) -> Moment:
        """The second half: wait for what came of it."""

    def close(self) -> None:
        """Let go of it."""


Make: TypeAlias = Callable[[str, int], Playable]


class Games:
    """Copies of a game, an emulator each (ale-py's vector environment): idle ones cost nothing."""

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
        """Begin anew; copy i with seed + i."""
        begun = [env.reset(seed=int(seed) + i) for i, env in enumerate(self._envs)]
        self._clock = np.array([facts["episode_frame_number"][0] for _, facts in begun])
        return np.concatenate([seen for seen, _ in begun])

    def step(self, actions: NDArray[Any], on: NDArray[np.int64] | None = None) -> Moment:
        """Take one action in each copy, or in these copies alone (the others' rows are void)."""
        self.send(actions, on)
        return self.receive()

    def send(self, actions: NDArray[Any], on: NDArray[np.int64] | None = None) -> None:
        """The first half of a step: let the games go on."""
        self._on = list(range(self.n)) if on is None else on.tolist()
        for i in self._on:
            self._envs[i].send(np.asarray(actions[i : i + 1], np.int64))

    def receive(self) -> Moment:
        """The second half: wait for what came of it."""
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
        """Let go of the emulators."""
        for env in self._envs:
            env.close()


def first_seed(part: str, seed: int) -> int:
    """The emulator's seed of the first copy; 4,096 copies have seeds of their own.

    Args:
        part: "collect", "judge" or "train".
        seed: The user's, below 131,072.
    """
    return PARTS[part] * ROOM + check_seed(seed, ROOM // COPIES - 1) * COPIES


def chance(part: str, seed: int, t: int) -> np.random.Generator:
    """Where all chance of step t comes from; parts never share it."""
    return np.random.default_rng([PARTS[part], seed, t])


def optional(module: str, package: str) -> Any:
    """A module of the extra `atari`."""
    return needed(module, "the Atari study", "dprl[atari]", package)
