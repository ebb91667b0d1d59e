"""A log in parts: a log that need not fit into memory, and one way to compute with it.

A part is an ordinary `Log` of some of the groups, all of them whole. Parts follow the order of the
groups; their states and actions are coded by the labels of the *whole* log, their episodes and
groups are their own. What is learned from a log in parts is learned with `reduce` alone: a job is
applied to every part, and the results are merged. A merge must be exact and must not depend on the
order (whole numbers, exact sums, extremes, tables by part), so that nothing depends on how many
parts there are, or on where they are read: in this process, one after another, or on a cluster,
where another `executor` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.plural import many
from dprl.logs.log import CUT, Facts, Label, Log, check_log

__all__ = ["Executor", "LogInParts", "Source", "in_turn", "parts_of"]

R = TypeVar("R")
Job: TypeAlias = Callable[..., Any]
Merge: TypeAlias = Callable[[Any, Any], Any]
Share: TypeAlias = Callable[[float], None]


class Source(Protocol):
    """Where a part comes from: a small object that can be pickled."""

    def log(self) -> Log:
        """The part, read anew at every call."""
        ...


Executor: TypeAlias = Callable[[Sequence[Source], Job, Merge, tuple[Any, ...], Share | None], Any]
"""What applies a job to the log of every source and merges the results; see `in_turn`."""


def in_turn(
    sources: Sequence[Source],
    job: Job,
    merge: Merge,
    shared: tuple[Any, ...],
    progress: Share | None,
) -> Any:
    """Apply a job to one part after another, in this process; a result of None is left out.

    Args:
        sources: The parts.
        job: Called with the log of a part and the shared values; an importable function.
        merge: Called with two results; its own result is one too.
        shared: Values that every call gets.
        progress: Called with the share of the parts that is done, 0 to 1; None for silence.

    Returns:
        The merged result; None if no part had one.
    """
    total = None
    for i, source in enumerate(sources):
        if progress is not None:
            progress(i / len(sources))
        result = job(source.log(), *shared)
        if result is not None:
            total = result if total is None else merge(total, result)
    if progress is not None:
        progress(1.0)
    return total


def _nothing() -> None:
    """There are no files to remove."""


@dataclass(frozen=True, eq=False)
class LogInParts:
    """A log in parts; immutable. Made by `dprl.scan`.

    It has what a `Log` says about itself as a whole, and no rows: rows are in the parts. Close it,
    or use it in a `with` block, to remove its temporary files at once.

    Attributes:
        sources: Where the parts come from, in the order of the groups.
        actions: The action labels of the whole log.
        states: The state labels of the whole log.
        n_episodes: Number of episodes.
        n_groups: Number of groups; as many as episodes where every episode is its own group.
        n_steps: Number of rows.
        longest: Rows of the longest episode.
        ended: int64 (3 + number of events,), how many episodes ended in each way, by code.
        content: The digest of the whole log, as `Log.digest` has it.
        cut_steps: Number of rows of cut episodes.
        first_cut: The label of the first cut episode; None where none was cut.
        grouped: Whether the log has a group column.
        menus: bool (M, A), the distinct sets of available actions; None where the log does not say.
        events: Names of the competing events with which an episode can end.
        columns: Which source column played which part.
        has_propensity: Whether the log says with which chance actions were taken.
        rows: About how many rows (or returns) may be held in memory at once; a part has about so
            many.
        executor: What runs the jobs. Default: this process, one part after another.
        close: Called to remove temporary files. Default: there are none.

    Example:
        >>> import dprl
        >>> from dprl.logs.parts import parts_of
        >>> parts = parts_of(dprl.envs.risky_arms().sample(100, seed=0), rows=50)
        >>> parts, len(parts)
        (Log in parts: 100 episodes · 200 steps · 11 states · 10 actions, 4)
    """

    sources: tuple[Source, ...]
    actions: tuple[Label, ...]
    states: tuple[Label, ...]
    n_episodes: int
    n_groups: int
    n_steps: int
    longest: int
    ended: NDArray[np.int64]
    content: str
    cut_steps: int = 0
    first_cut: Label | None = None
    grouped: bool = False
    menus: NDArray[np.bool_] | None = None
    events: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    has_propensity: bool = False
    rows: int = 1_000_000
    executor: Executor = field(default_factory=lambda: in_turn)
    close: Callable[[], None] = field(default_factory=lambda: _nothing)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", Facts(self.columns))

    def __len__(self) -> int:
        return len(self.sources)

    def __enter__(self) -> LogInParts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def n_states(self) -> int:
        """Number of state labels."""
        return len(self.states)

    @property
    def n_actions(self) -> int:
        """Number of action labels."""
        return len(self.actions)

    @property
    def n_cut(self) -> int:
        """Number of episodes that were cut (observation stopped early)."""
        return int(self.ended[CUT])

    @property
    def follow_up(self) -> str | None:
        """The time for which every episode is followed, such as "10 steps"; None without one."""
        return self.columns.get("follow_up")

    def _repr_html_(self) -> str:
        from dprl._core.notebook import in_notebook

        return in_notebook(repr(self))

    def __repr__(self) -> str:
        return (
            f"Log in parts: {many(self.n_episodes, 'episode')}"
            + (f" · {many(self.n_groups, 'group')}" if self.grouped else "")
            + f" · {many(self.n_steps, 'step')} · {many(self.n_states, 'state')}"
            + f" · {many(self.n_actions, 'action')}"
            + (f" · {many(self.n_cut, 'episode')} cut" if self.n_cut else "")
            + (f" · followed for {self.follow_up}" if self.follow_up else "")
        )

    def digest(self) -> str:
        """SHA-256 of the content, equal to that of the same log in memory.

        Returns:
            64 hexadecimal digits.

        Example:
            >>> import dprl
            >>> from dprl.logs.parts import parts_of
            >>> log = dprl.envs.risky_arms().sample(100, seed=0)
            >>> parts_of(log, rows=50).digest() == log.digest()
            True
        """
        return self.content

    def part(self, i: int) -> Log:
        """One part, as an ordinary log.

        Args:
            i: Number of the part, from 0 to len(parts) - 1.

        Returns:
            The log of the groups of this part. Its states and actions have the codes and labels of
            the whole log; its episodes and groups are its own.

        Example:
            >>> import dprl
            >>> from dprl.logs.parts import parts_of
            >>> parts_of(dprl.envs.risky_arms().sample(100, seed=0), rows=50).part(3)
            Log: 25 episodes · 50 steps · 11 states · 10 actions
        """
        return self.sources[i].log()

    def reduce(self, job: Job, merge: Merge, *shared: Any, progress: Share | None = None) -> Any:
        """Apply a job to every part, and merge the results.

        Args:
            job: Called with the log of a part and the shared values. An importable function (not a
                lambda, not one defined inside another), so that it can run in another process; its
                result must be small and must be possible to pickle. None says that the part has
                nothing to add.
            merge: Called with two results, in any order; returns their sum, exactly.
            *shared: Values that every call of the job gets.
            progress: Called with the share of the parts that is done, 0 to 1. Default None.

        Returns:
            The merged result; None if no part had one.

        Example:
            >>> import operator
            >>> import dprl
            >>> from dprl.logs.parts import parts_of
            >>> parts = parts_of(dprl.envs.risky_arms().sample(100, seed=0), rows=50)
            >>> parts.reduce(operator.attrgetter("n_steps"), operator.add)
            200
        """
        return self.executor(self.sources, job, merge, shared, progress)


@dataclass(frozen=True)
class _Held:
    """A part that is in memory."""

    held: Log

    def log(self) -> Log:
        return self.held


def parts_of(log: Log, rows: int) -> LogInParts:
    """A log in memory as a log in parts: to compare the two, or to hand parts to other machines.

    Args:
        log: A log whose states are labels.
        rows: About how many rows a part has, at least 1; no group is divided.

    Returns:
        The log in parts.

    Raises:
        LogError: If the log is empty or has features as states.

    Example:
        >>> import dprl
        >>> from dprl.logs.parts import parts_of
        >>> parts_of(dprl.envs.risky_arms().sample(100, seed=0), rows=50)
        Log in parts: 100 episodes · 200 steps · 11 states · 10 actions
    """
    check_log(log)
    log.codes()
    by_group = np.bincount(log.group, weights=log.lengths, minlength=len(log.groups))
    before = np.concatenate(([0.0], np.cumsum(by_group)[:-1]))
    number = (before // max(rows, 1)).astype(np.int64)  # the part of each group
    number = np.unique(number, return_inverse=True)[1][log.group]
    sources = tuple(
        _Held(log.take(np.flatnonzero(number == i))) for i in range(int(number.max()) + 1)
    )
    cut = log.cut_episodes
    return LogInParts(
        sources=sources,
        actions=log.actions,
        states=log.states,
        n_episodes=log.n_episodes,
        n_groups=len(log.groups),
        n_steps=log.n_steps,
        longest=int(log.lengths.max()),
        ended=np.bincount(log.ended, minlength=3 + len(log.events)),
        content=log.digest(),
        cut_steps=int(log.lengths[cut].sum()),
        first_cut=log.episodes[cut[0]] if len(cut) else None,
        grouped=log.groups != log.episodes,
        menus=log.menus,
        events=log.events,
        columns=log.columns,
        has_propensity=log.propensity is not None,
        rows=max(rows, 1),
    )
