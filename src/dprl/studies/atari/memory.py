r"""What a network in training has seen: a ring of the last steps of n copies of a game.

Each picture is kept once, on the device that learns; what else is known of a step (its action, its
reward, how far the game had come) stays with the processor, which draws. A transition is five
pictures in a row: four that were seen, four that were seen after.

On disk a round is a file, written once, for as long as the ring holds any of it.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError
from dprl.studies.atari.games import optional
from dprl.studies.atari.networks import read_arrays, write_arrays

__all__ = ["Memory"]

STACK, SIDE = 4, 84
FACTS = ("age", "action", "reward", "ended", "whole")


class Memory:
    """The last `length` steps of n copies."""

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
        """New games: nothing leads from the last slot to this one."""
        self._put(seen, np.ones(self.n, bool))

    def add(self, action: Any, reward: Any, ended: Any, began: Any, seen: Any) -> None:
        """What was done in the last slot, and what it led to."""
        here = (self.count - 1) % self.length
        self.action[here], self.reward[here] = action, np.sign(reward)
        self.ended[here], self.whole[here] = ended, ~began
        self._put(seen, began)

    def _put(self, seen: NDArray[np.uint8], new: NDArray[np.bool_]) -> None:
        here, before = self.count % self.length, (self.count - 1) % self.length
        self.pixels[here] = self._there(seen[:, -1])
        self.age[here] = np.where(new, 0, self.age[before] + 1)
        self.whole[here] = False
        self.count += 1

    def _there(self, values: NDArray[Any]) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def draw(self, rng: np.random.Generator, k: int) -> tuple[Any, Any, Any, Any]:
        """k transitions: pictures (k, 5, 84, 84), action, reward, ended."""
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
        known = self.age[here, i][:, None] >= back  # before a game began all is black
        flat = self.pixels.view(self.length * self.n, -1)
        pictures = flat[self._there(at.ravel())].view(k, STACK + 1, SIDE, SIDE)
        pictures *= self._there(known[:, :, None, None])
        return (
            pictures, self._there(self.action[here, i]), self._there(self.reward[here, i]),
            self._there(self.ended[here, i]),
        )  # fmt: skip

    # -- kept on disk ------------------------------------------------------------------------

    def save(self, folder: Path) -> None:
        """Write what came since the last time."""
        first = max(self.written, self.count - self.length)
        at = np.arange(first, self.count) % self.length
        arrays = {name: getattr(self, name)[at] for name in FACTS}
        pixels = self.pixels[self._there(at)].cpu().numpy()
        write_arrays(folder / f"memory-{first:012}.npz", {**arrays, "pixels": pixels}, {})
        self.written = self.count

    def tidy(self, folder: Path) -> None:
        """Remove what the ring no longer holds."""
        files = sorted(folder.glob("memory-*.npz"))
        for path, after in itertools.pairwise(files):
            if _first(after) <= self.count - self.length:
                path.unlink()

    def load(self, folder: Path, count: int) -> None:
        """What the ring held after `count` slots."""
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
            self.pixels[self._there(at)] = self._there(arrays["pixels"][:n])
            reached = max(reached, _first(path) + n)
        if reached < count:
            raise PolicyError(
                f"{str(folder)!r} lacks a part of what was seen in training.",
                f"steps from {reached * self.n:,} on",
                "Train anew in another folder.",
            )
        self.count = self.written = count


def _first(path: Path) -> int:
    return int(path.stem.split("-")[1])
