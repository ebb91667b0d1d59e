"""Episodes of other libraries, by their shape; a Log comes out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import doubles
from dprl.errors import LogError
from dprl.logs._io import from_arrays
from dprl.logs.encoding.gaps import Missing
from dprl.logs.log import Label, Log
from dprl.logs.reading.options import documented_arrays

Row = tuple[Label, Any, Any, Any, Any]
"""Of one episode: its label, observations, actions, rewards, and whether it ended of itself."""


def _episodes(rows: Iterable[Row], **options: Any) -> Log:
    """A log from the rows of all episodes; options as `from_arrays` takes them.

    The observation after the last step is left out: nothing was decided there.
    """
    episode: list[Label] = []
    state, action, reward, ended = [], [], [], []
    shapes: dict[tuple[int, ...], Label] = {}
    for label, observations, taken, rewards, finished in rows:
        earned = _rewards(label, rewards)
        n = len(earned)
        observed = _observed(label, observations, n)
        shapes.setdefault(observed.shape[1:], label)
        if len(shapes) > 1:
            raise LogError(
                f"observations have different shapes: {_one_of(next(iter(shapes)))} per step in "
                f"episode {next(iter(shapes.values()))!r}, {_one_of(observed.shape[1:])} in "
                f"episode {label!r}.",
                f"episode {label!r}",
                "Give every step of every episode the same numbers.",
            )
        episode += [label] * n
        state.append(observed[:n].reshape(n, -1))
        action.append(_chosen(label, taken, n))
        reward.append(earned)
        ended.append(np.full(n, _finished(label, finished, n)))
    if not episode:
        raise LogError("the dataset holds no episodes.")
    text = [i for i, values in enumerate(state) if values.dtype.kind in "US"]
    if 0 < len(text) < len(state):
        raise LogError(
            f"observations are text in {len(text):,} of {len(state):,} episodes, numbers in the "
            "others.",
            do="Give text everywhere, or numbers everywhere.",
        )
    states = np.concatenate(state)
    plain = () in shapes and states.dtype.kind != "f"
    is_label = states.shape[1] == 1 and (plain or states.dtype.kind in "iu")
    return from_arrays(
        episode=episode,
        state=states[:, 0] if is_label else states,
        action=np.concatenate(action),
        reward=np.concatenate(reward),
        ended=np.concatenate(ended),
        **options,
    )


def _one_of(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "one value"


def _array(values: Any) -> NDArray[Any]:
    """The values as a plain array; of no dimension if they are none."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths
        return np.array(None)


def _rewards(label: Label, rewards: Any) -> NDArray[np.float64]:
    """(T,) the rewards of an episode of T steps."""
    try:
        earned = doubles(rewards)
    except (TypeError, ValueError):
        earned = np.array(np.nan)
    if not earned.ndim or earned.size != len(earned):
        raise LogError(
            f"episode {label!r} has rewards that are not one number per step: "
            + (f"their shape is {earned.shape}." if earned.ndim else "they are no array."),
            f"episode {label!r}",
            "Give one number per step; weigh several goals into one first.",
        )
    if not len(earned):
        raise LogError(
            f"episode {label!r} has no steps.", f"episode {label!r}", "Leave such episodes out."
        )
    return earned.reshape(-1)


def _observed(label: Label, observations: Any, n: int) -> NDArray[Any]:
    """(T, …) or (T + 1, …) the observations of an episode of T = n steps."""
    observed = _array(observations)
    if observed.dtype == object:
        observed = np.array(None)
    parts = isinstance(observations, tuple) and observed.ndim > 1  # (all of one, all of the next)
    if isinstance(observations, Mapping) or parts or not observed.ndim:
        raise LogError(
            f"episode {label!r} has no plain array of observations, one per reward, but a "
            f"{type(observations).__name__}{'' if observed.ndim else ' that is not one array'}.",
            f"episode {label!r}",
            "Flatten observations to one label or one row of numbers per step.",
        )
    if len(observed) not in (n, n + 1) or not observed.size:
        raise LogError(
            f"episode {label!r} has {len(observed)} observations (shape {observed.shape}) for {n} "
            f"steps; {n} or {n + 1} are expected.",
            f"episode {label!r}",
            "Give one observation per step, and one after the last step or none.",
        )
    return observed


def _chosen(label: Label, taken: Any, n: int) -> NDArray[Any]:
    """(T,) the actions of an episode of T = n steps."""
    chosen = _array(taken)
    if chosen.size != n or chosen.shape[:1] != (n,):
        raise LogError(
            f"episode {label!r} has {n} rewards and {chosen.size if chosen.ndim else 'no array of'}"
            f" action numbers{f' of shape {chosen.shape}' if chosen.ndim > 1 else ''}.",
            f"episode {label!r}",
            "Actions must be discrete, one number per step.",
        )
    return chosen.reshape(n)


def _finished(label: Label, flags: Any, n: int) -> bool:
    """Whether an episode of n steps ended of itself: from one flag, or from one per step."""
    flag = _array(flags)
    if not np.isin(flag, (0, 1)).all() or (flag.ndim and (flag.size, len(flag)) != (n, n)):
        raise LogError(
            f"episode {label!r} does not say whether it ended of itself by true or false: "
            + (f"{flag.size} values for {n} steps." if flag.size != n else "other values."),
            f"episode {label!r}",
            "Give true or false: one per step, or one for the episode where the library has that.",
        )
    early = np.flatnonzero(flag.reshape(-1)[:-1])
    if len(early):
        raise LogError(
            f"episode {label!r} ended {len(early) + 1} times or goes on after its end.",
            f"step {early[0]} of {n} of episode {label!r}",
            "Give every episode as an item of its own.",
        )
    return bool(flag.reshape(-1)[-1])


def _one(flag: Any) -> NDArray[Any]:
    """A flag without dimensions, where it is one flag."""
    array = _array(flag)
    return array.reshape(()) if array.size == 1 else array


def _items(dataset: Any, episodes: Any, parts: Sequence[str], load: str) -> Iterator[Any]:
    """The episodes of a dataset, each with the parts it must have."""
    try:
        items = None if isinstance(dataset, str) else iter(episodes)
    except TypeError:
        items = None
    if items is None:
        what = f"the text {dataset!r}" if isinstance(dataset, str) else type(dataset).__name__
        raise LogError(
            f"{what} is not a dataset: it holds no episodes.",
            do=f"Give a dataset, or a list of episodes: {load}.",
        )
    for i, item in enumerate(items):
        gone = [part for part in parts if not hasattr(item, part)]
        if gone:
            raise LogError(
                f"an episode, a {type(item).__name__}, has no {', '.join(gone)}.",
                f"item {i} of the dataset",
                f"Every episode needs the attributes {', '.join(parts)}"
                + (": types.SimpleNamespace(**episode)." if isinstance(item, Mapping) else "."),
            )
        yield item


def _identity(name: Any, place: int, places: dict[int, int]) -> int:
    """The id of the episode at a place, which no episode before it has."""
    try:
        label = int(name)
        whole = isinstance(name, str) or bool(label == name)
    except (TypeError, ValueError, OverflowError):
        label, whole = place, False
    if not whole:
        raise LogError(
            f"an episode has the id {name!r}, which is not a whole number.",
            f"item {place} of the dataset",
            "Number the episodes, or leave the ids out.",
        )
    if label in places:
        raise LogError(
            f"two episodes have the id {label}: items {places[label]} and {place} of the dataset.",
            f"item {place} of the dataset",
            "Give every episode an id of its own, or leave the ids out: they are numbered then.",
        )
    places[label] = place
    return label


@documented_arrays
def from_minari(  # noqa: D417  (see `documented`)
    dataset: Any,
    *,
    actions: Sequence[Label] | None = None,
    action_bins: Any = None,
    missing: Missing = "error",
    feature_names: Sequence[str] | None = None,
) -> Log:
    """A log from a Minari dataset, or from any iterable of episodes shaped like Minari's.

    A log has one state per decision. The observation after the last step, of which Minari keeps
    one, is left out: nothing was decided there, and no learner takes its value. An episode that was
    truncated is a cut one; say with `cut` how a learner treats it.

    Args:
        dataset: Episodes of T steps with `observations` (T + 1), `actions`, `rewards`,
            `terminations` and `truncations` (T each). Observations are one label, or one row of
            numbers, per step. One item is one episode: an `id` may occur once; without ids the
            episodes are numbered.
        feature_names: The names of the features. Default None: x0, x1, ….

    Returns:
        The log. One whole number or text per step becomes a state label, anything else features.

    Raises:
        LogError: If two episodes have one id, observations are not plain arrays of T or T + 1 rows,
            actions are not discrete, rewards are not one number per step, or a part is missing.

    Example:
        >>> from types import SimpleNamespace
        >>> import dprl
        >>> episode = SimpleNamespace(
        ...     id=0, observations=[3, 5, 5], actions=[0, 1], rewards=[0.0, 1.0],
        ...     terminations=[False, True], truncations=[False, False],
        ... )
        >>> dprl.from_minari([episode])
        Log: 1 episode · 2 steps · 2 states · 2 actions
    """
    episodes = dataset.iterate_episodes() if hasattr(dataset, "iterate_episodes") else dataset
    parts = ("observations", "actions", "rewards", "terminations")
    items = _items(dataset, episodes, parts, "minari.load_dataset(name) loads one")
    places: dict[int, int] = {}
    return _episodes(
        (
            (_identity(getattr(e, "id", i), i, places), e.observations, e.actions, e.rewards,
             np.atleast_1d(_array(e.terminations)))
            for i, e in enumerate(items)
        ),
        actions=actions, action_bins=action_bins, missing=missing, feature_names=feature_names,
    )  # fmt: skip


@documented_arrays
def from_d3rlpy(  # noqa: D417  (see `documented`)
    dataset: Any,
    *,
    actions: Sequence[Label] | None = None,
    action_bins: Any = None,
    missing: Missing = "error",
    feature_names: Sequence[str] | None = None,
) -> Log:
    """A log from a d3rlpy dataset, or from any iterable of episodes shaped like d3rlpy's.

    A log has one state per decision. An observation after the last step, where there is one, is
    left out: nothing was decided there, and no learner takes its value. An episode that did not
    terminate is a cut one; say with `cut` how a learner treats it.

    Args:
        dataset: An object with `episodes`, or the episodes themselves. Each has T steps, with
            `observations`, `actions`, `rewards` (T each) and `terminated`.
        feature_names: The names of the features. Default None: x0, x1, ….

    Returns:
        The log. One whole number or text per step becomes a state label, anything else features.

    Raises:
        LogError: If observations are not plain arrays of T or T + 1 rows, actions are not discrete,
            rewards are not one number per step, or a part of an episode is missing.

    Example:
        >>> from types import SimpleNamespace
        >>> import dprl
        >>> episode = SimpleNamespace(
        ...     observations=[[0.1, 2.0], [0.3, 1.0]], actions=[0, 1], rewards=[0.0, 1.0],
        ...     terminated=True,
        ... )
        >>> dprl.from_d3rlpy([episode])
        Log: 1 episode · 2 steps · 2 features · 2 actions
    """
    episodes = getattr(dataset, "episodes", dataset)
    parts = ("observations", "actions", "rewards", "terminated")
    load = "d3rlpy.dataset.MDPDataset(observations, actions, rewards, terminals) makes one"
    return _episodes(
        (
            (i, e.observations, e.actions, e.rewards, _one(e.terminated))
            for i, e in enumerate(_items(dataset, episodes, parts, load))
        ),
        actions=actions, action_bins=action_bins, missing=missing, feature_names=feature_names,
    )  # fmt: skip
