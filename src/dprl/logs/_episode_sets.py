"""Episodes of other libraries, by their shape; a Log comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dprl.errors import LogError
from dprl.logs._io import from_arrays
from dprl.logs.log import Label, Log

__all__ = ["from_d3rlpy", "from_minari"]


def _episodes(
    rows: Iterable[tuple[Label, Any, Any, Any, bool]], actions: Sequence[Label] | None
) -> Log:
    """A log from (label, observations, actions, rewards, finished) of each episode."""
    episode: list[Label] = []
    state, action, reward, ended = [], [], [], []
    for label, observations, taken, rewards, finished in rows:
        n = len(rewards)
        observed = np.asarray(observations)
        if isinstance(observations, Mapping) or observed.dtype == object or len(observed) < n:
            raise LogError(
                f"episode {label!r} has no plain array of observations, one per reward.",
                do="Flatten observations to one label or one row of numbers per step.",
            )
        chosen = np.asarray(taken)
        if chosen.size != n:
            raise LogError(
                f"episode {label!r} has {n} rewards and {chosen.size} action numbers.",
                do="Actions must be discrete, one number per step.",
            )
        episode += [label] * n
        flat = observed[:n].reshape(n, -1) if observed.ndim > 1 else observed[:n]
        state.append(flat[:, 0] if flat.ndim > 1 and flat.shape[1] == 1
                     and flat.dtype.kind in "iu" else flat)  # fmt: skip
        action.append(chosen.reshape(n))
        reward.append(np.asarray(rewards, np.float64).reshape(n))
        ended.append(np.full(n, finished))
    if not episode:
        raise LogError("the dataset holds no episodes.")
    features = state[0].ndim > 1 or state[0].dtype.kind == "f"
    states = np.concatenate(state)
    return from_arrays(
        episode=episode,
        state=states.reshape(len(states), -1) if features else states,
        action=np.concatenate(action),
        reward=np.concatenate(reward),
        ended=np.concatenate(ended),
        actions=actions,
    )


def from_minari(dataset: Any, *, actions: Sequence[Label] | None = None) -> Log:
    """A log from a Minari dataset, or from any iterable of episodes shaped like Minari's.

    Args:
        dataset: Episodes of T steps with `observations` (T + 1), `actions`, `rewards`,
            `terminations` and `truncations` (T each). Observations are one label, or one row of
            numbers, per step.
        actions: The action labels that may occur; any other is an error. Default None: all that
            occur.

    Returns:
        The log. One whole number or text per step becomes a state label, anything else features.

    Raises:
        LogError: If observations are not plain arrays, or actions are not discrete.

    Example:
        >>> from types import SimpleNamespace
        >>> import dprl
        >>> episode = SimpleNamespace(
        ...     id=0, observations=[3, 5, 5], actions=[0, 1], rewards=[0.0, 1.0],
        ...     terminations=[False, True], truncations=[False, False],
        ... )
        >>> dprl.from_minari([episode])
        Log: 1 episodes · 2 steps · 2 states · 2 actions
    """
    episodes = dataset.iterate_episodes() if hasattr(dataset, "iterate_episodes") else dataset

    def rows() -> Iterable[tuple[Label, Any, Any, Any, bool]]:
        for i, e in enumerate(episodes):
            label = getattr(e, "id", i)
            finished = bool(len(e.terminations) and e.terminations[-1])
            yield int(label), e.observations, e.actions, e.rewards, finished

    return _episodes(rows(), actions)


def from_d3rlpy(dataset: Any, *, actions: Sequence[Label] | None = None) -> Log:
    """A log from a d3rlpy dataset, or from any iterable of episodes shaped like d3rlpy's.

    Args:
        dataset: An object with `episodes`, or the episodes themselves. Each has T steps, with
            `observations`, `actions`, `rewards` (T each) and `terminated`.
        actions: The action labels that may occur; any other is an error. Default None: all that
            occur.

    Returns:
        The log. One whole number or text per step becomes a state label, anything else features.

    Raises:
        LogError: If observations are not plain arrays, or actions are not discrete.

    Example:
        >>> from types import SimpleNamespace
        >>> import dprl
        >>> episode = SimpleNamespace(
        ...     observations=[[0.1, 2.0], [0.3, 1.0]], actions=[0, 1], rewards=[0.0, 1.0],
        ...     terminated=True,
        ... )
        >>> dprl.from_d3rlpy([episode])
        Log: 1 episodes · 2 steps · 2 features · 2 actions
    """
    episodes = getattr(dataset, "episodes", dataset)
    return _episodes(
        (
            (i, e.observations, e.actions, e.rewards, bool(e.terminated))
            for i, e in enumerate(episodes)
        ),
        actions,
    )
