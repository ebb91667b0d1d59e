"""A FiniteMDP as a gymnasium environment: states and actions are their codes."""

from __future__ import annotations

# Apart: needs an optional package.
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from dprl.planning.finite_mdp import FiniteMDP


class FiniteMDPEnv(gymnasium.Env[Any, Any]):
    """Discrete observations and actions, rewards drawn on every visit."""

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own name

    def __init__(self, mdp: FiniteMDP) -> None:
        self.mdp = mdp
        self.observation_space = gymnasium.spaces.Discrete(len(mdp.states))
        self.action_space = gymnasium.spaces.Discrete(len(mdp.actions))
        self._state, self._steps = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed, options=options)
        self._state = int(self.np_random.choice(len(self.mdp.states), p=self.mdp.start))
        self._steps = 0
        return self._state, {"label": self.mdp.states[self._state]}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take an action; `terminated` if the process ends, `truncated` after max_steps steps."""
        s, a, mdp = self._state, int(action), self.mdp
        reward = float(self.np_random.uniform(mdp.low[s, a], mdp.high[s, a]))
        row = slice(*mdp.P.indptr[[s * len(mdp.actions) + a, s * len(mdp.actions) + a + 1]])
        rising = np.cumsum(mdp.P.data[row])
        place = int(np.searchsorted(rising, self.np_random.random(), side="right"))
        self._steps += 1
        terminated = place == len(rising)
        if not terminated:
            self._state = int(mdp.P.indices[row][place])
        truncated = not terminated and self._steps >= mdp.max_steps
        return self._state, reward, terminated, truncated, {"label": mdp.states[self._state]}


def make(mdp: FiniteMDP, seed: int | None) -> FiniteMDPEnv:
    """The environment; it is reset once if a seed is given."""
    env = FiniteMDPEnv(mdp)
    if seed is not None:
        env.reset(seed=seed)
    return env
