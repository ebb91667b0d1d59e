r"""The replay memory of a network in training: the last steps of n copies of a game, in a ring.

Each frame is kept once, on the device that learns. Actions, rewards and the age of the game are in
the main memory, where transitions are drawn. A transition is five frames in a row: the first four
are the picture before the action, the last four the picture after it.

On disk each round of training is one file. It is written once and removed when the ring holds none
of its steps any more.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError
from dprl_studies.atari.games import optional
from dprl_studies.atari.networks import read_arrays, write_arrays

__all__ = ["Memory"]

STACK, SIDE = 4, 84
FACTS = ("age", "action", "reward", "ended", "whole")
"""What is kept of a step beside its frame."""


class Memory:
    """The last steps of n copies of a game (needs torch).

    Args:
        length: Number of steps kept of each copy.
        n: Number of copies.
        device: Where the frames are: "cpu" (default) or "cuda".

    Example:
        >>> memory = Memory(100, 2)  # doctest: +SKIP
        >>> memory.begin(np.zeros((2, 4, 84, 84), np.uint8))  # doctest: +SKIP
        >>> memory.count  # doctest: +SKIP
        1
    """

    def __init__(self, length: int, n: int, device: str = "cpu") -> None:
        self.torch, self.device = optional("torch", "torch"), device
        self.length, self.n, self.count = length, n, 0
        self.written = 0
        self.pixels = self.torch.zeros(
            (length, n, SIDE, SIDE), dtype=self.torch.uint8, device=device
        )
        self.age = np.zeros((length, n), np.int32)
        self.action = np.zeros((length, n), np.int64)
        self.reward = np.zeros((length, n), np.float32)
        self.ended = np.zeros((length, n), np.float32)
        self.whole = np.zeros((length, n), bool)  # what it led to is in the next slot

    def begin(self, seen: NDArray[np.uint8]) -> None:
        """Add the first pictures of new games; no transition leads to them.

        Args:
            seen: uint8 (n, 4, 84, 84), the first picture of each copy.
        """
        self._put(seen, np.ones(self.n, bool))

    def add(self, action: Any, reward: Any, ended: Any, began: Any, seen: Any) -> None:
        """Add one step of each copy.

        Args:
            action: Whole numbers (n,), the actions taken.
            reward: Numbers (n,), the rewards; their signs are kept.
            ended: bool (n,), whether a life or the game ended.
            began: bool (n,), whether a new game began instead: then it is no transition.
            seen: uint8 (n, 4, 84, 84), the pictures after the step.
        """
        here = (self.count - 1) % self.length
        self.action[here], self.reward[here] = action, np.sign(reward)
        self.ended[here], self.whole[here] = ended, ~began
        self._put(seen, began)

    def _put(self, seen: NDArray[np.uint8], new: NDArray[np.bool_]) -> None:
        """Write the newest frames to the next slot; `new` marks copies in which a game began."""
        here, before = self.count % self.length, (self.count - 1) % self.length
        self.pixels[here] = self._tensor(seen[:, -1])
        self.age[here] = np.where(new, 0, self.age[before] + 1)
        self.whole[here] = False
        self.count += 1

    def _tensor(self, values: NDArray[Any]) -> Any:
        """The values as a tensor on the device."""
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def draw(self, rng: np.random.Generator, k: int) -> tuple[Any, Any, Any, Any]:
        """Draw transitions at random, with replacement.

        Args:
            rng: The random generator.
            k: Number of transitions.

        Returns:
            Tensors: frames (k, 5, 84, 84), actions (k,), signs of rewards (k,), and 1 where a life
            or game ended, else 0 (k,).
        """
        low, slots, copies = max(0, self.count - self.length + STACK), [], []
        need = k
        while need:  # begun games and the newest slot are no transitions
            t = rng.integers(low, self.count, 2 * need)
            i = rng.integers(0, self.n, 2 * need)
            ok = np.flatnonzero(self.whole[t % self.length, i])[:need]
            slots.append(t[ok])
            copies.append(i[ok])
            need -= len(ok)
        t, i = np.concatenate(slots), np.concatenate(copies)
        here = t % self.length
        back = np.arange(STACK - 1, -2, -1)  # 3 pictures ago .. the next one
        at = (t[:, None] - back) % self.length * self.n + i[:, None]
        in_game = self.age[here, i][:, None] >= back  # before a game began all is black
        flat = self.pixels.view(self.length * self.n, -1)
        pictures = flat[self._tensor(at.ravel())].view(k, STACK + 1, SIDE, SIDE)
        pictures *= self._tensor(in_game[:, :, None, None])
        return (
            pictures, self._tensor(self.action[here, i]), self._tensor(self.reward[here, i]),
            self._tensor(self.ended[here, i]),
        )  # fmt: skip

    # -- kept on disk ------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write the steps since the last call to a new file in the folder."""
        first = max(self.written, self.count - self.length)
        at = np.arange(first, self.count) % self.length
        arrays = {name: getattr(self, name)[at] for name in FACTS}
        pixels = self.pixels[self._tensor(at)].cpu().numpy()
        write_arrays(folder / f"memory-{first:012}.npz", {**arrays, "pixels": pixels}, {})
        self.written = self.count

    def tidy(self, folder: Path) -> None:
        """Remove the files whose steps the ring no longer holds."""
        files = sorted(folder.glob("memory-*.npz"))
        for path, after in itertools.pairwise(files):
            if _first(after) <= self.count - self.length:
                path.unlink()

    def load(self, folder: Path, count: int) -> None:
        """Read the state of the ring after `count` steps from the files in the folder.

        Args:
            folder: Folder of the files that `save` wrote.
            count: Number of steps of each copy that had been added.

        Raises:
            PolicyError: A file is missing.
        """
        files = [path for path in sorted(folder.glob("memory-*.npz")) if _first(path) < count]
        reached = max(0, count - self.length)
        for path in files:
            if _first(path) > reached:  # a file is gone
                break
            arrays, _ = read_arrays(path)
            n = min(len(arrays["age"]), count - _first(path))
            at = np.arange(_first(path), _first(path) + n) % self.length
            for name in FACTS:
                getattr(self, name)[at] = arrays[name][:n]
            self.pixels[self._tensor(at)] = self._tensor(arrays["pixels"][:n])
            reached = max(reached, _first(path) + n)
        if reached < count:
            raise PolicyError(
                f"{str(folder)!r} lacks a part of what was seen in training.",
                f"steps from {reached * self.n:,} on",
                "Train anew in another folder.",
            )
        self.count = self.written = count


def _first(path: Path) -> int:
    """The number of the first step in a file, from its name."""
    return int(path.stem.split("-")[1])
