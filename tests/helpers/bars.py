"""A stand-in for an Atari game: a bright bar stands in one of three columns; name the column.

Lives last 3 to 6 steps, a game has two, and the step after its end begins a new one, whatever the
action: the rules of `dprl_studies.atari.games`. Everything follows from the seed, copy by copy.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dprl_studies.atari.games import Moment
from dprl_studies.atari.networks import QNetwork

LIVES = 2
EXPERT, MEDIUM = QNetwork.random(3, 1), QNetwork.random(3, 2)


class Stop(Exception):  # noqa: N818
    pass


def stop_at(share):
    """A progress that breaks off there."""

    def tell(stage, done):
        if done >= share:
            raise Stop

    return tell


class Bars:
    resets: ClassVar[list[range]] = []  # every seed any of them was begun with

    def __init__(self, game="bars", n=2, lives=LIVES):
        self.n, self.n_actions, self.lives = n, 3, lives

    def reset(self, seed):
        Bars.resets.append(range(seed, seed + self.n))
        self.rng = [np.random.default_rng(seed + i) for i in range(self.n)]
        self.seen = np.zeros((self.n, 4, 84, 84), np.uint8)
        self.over = np.zeros(self.n, bool)
        self.column, self.left = np.zeros(self.n, int), np.zeros((self.n, 2), int)
        for i in range(self.n):
            self._begin(i)
        return self.seen.copy()

    def _begin(self, i):
        self.seen[i] = 0
        self.left[i] = self.lives, self.rng[i].integers(3, 7)
        self._draw(i)

    def _draw(self, i):
        self.column[i] = self.rng[i].integers(3)
        picture = self.rng[i].integers(0, 30, (84, 84))
        picture[20:60, 4 + 27 * self.column[i] : 24 + 27 * self.column[i]] = 220
        self.seen[i, :3] = self.seen[i, 1:]
        self.seen[i, 3] = picture

    def step(self, actions, on=None):
        self.send(actions, on)
        return self.receive()

    def send(self, actions, on=None):
        self.sent = actions, on

    def receive(self):
        n, (actions, on) = self.n, self.sent
        reward, ended, began = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool)
        for i in range(n) if on is None else on:
            began[i] = self.over[i]
            if began[i]:
                self.over[i] = False
                self._begin(i)
                continue
            reward[i] = 2.0 if actions[i] == self.column[i] else -0.5
            self.left[i, 1] -= 1
            if self.left[i, 1] == 0:
                ended[i] = True
                self.left[i] = self.left[i, 0] - 1, self.rng[i].integers(3, 7)
                self.over[i] = self.left[i, 0] == 0
            self._draw(i)
        return Moment(self.seen.copy(), reward, ended, np.zeros(n, bool), began)

    def close(self):
        pass
