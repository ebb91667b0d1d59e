"""A log in parts: a log that need not fit into memory (see `dprl.logs.source`).

A part is an ordinary `Log` of some of the groups, all of them whole. Parts follow the order of the
groups; their states and actions are coded by the labels of the *whole* log, their episodes and
groups are their own. A statistic of the log is computed chunk by chunk by an `executor`: in this
process, one part after another, or on a cluster, where another executor does the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from dprl._core.cluster import connect
from dprl._core.table import many
from dprl.logs.censoring import none_is_left
from dprl.logs.log import Log, check_log
from dprl.logs.source import Chunk, LogFacts, Share, Statistic, as_source, needs_rows

T = TypeVar("T")
Job: TypeAlias = Callable[..., Any]
Merge: TypeAlias = Callable[[Any, Any], Any]


class Part(Protocol):
    """Where a part comes from: a small object that can be pickled."""

    def read(self) -> Chunk:
        """The part, read anew at every call."""
        ...


Executor: TypeAlias = Callable[[Sequence[Part], Job, Merge, tuple[Any, ...], Share | None], Any]
"""What applies a job to what every part reads, and merges the results; see `in_turn`."""


def in_turn(
    sources: Sequence[Part],
    job: Job,
    merge: Merge,
    shared: tuple[Any, ...],
    progress: Share | None,
) -> Any:
    """Apply a job to one part after another, in this process; a result of None is left out.

    Args:
        sources: The parts.
        job: Called with the chunk of a part and the shared values; an importable function.
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
        result = job(source.read(), *shared)
        if result is not None:
            total = result if total is None else merge(total, result)
    if progress is not None:
        progress(1.0)
    return total


def _nothing() -> None:
    """There are no files to remove."""


def _statistic_of(chunk: Chunk, statistic: Statistic[T]) -> T | None:
    """The value of a statistic for one chunk: the job of every executor."""
    return statistic.of(chunk)


@dataclass(frozen=True, eq=False, kw_only=True)
class LogInParts(LogFacts):
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

    sources: tuple[Part, ...]
    content: str
    rows: int = 1_000_000
    executor: Executor = field(default_factory=lambda: in_turn)
    close: Callable[[], None] = field(default_factory=lambda: _nothing)

    def __len__(self) -> int:
        return len(self.sources)

    def __enter__(self) -> LogInParts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def facts(self) -> LogFacts:
        """What the log says about itself as a whole."""
        return self

    @property
    def room(self) -> int:
        """About how many rows or returns may be held at once."""
        return self.rows

    @property
    def sealed(self) -> str:
        """Nothing: its parts can be read again."""
        return ""

    def _repr_html_(self) -> str:
        from dprl._core.table import in_notebook

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
        return self.sources[i].read().log

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """A statistic of the log: computed of every part, and merged.

        Args:
            statistic: What is asked for; see `dprl.logs.source.Statistic`. Its class must be
                importable, so that it can run in another process.
            progress: Called with the share of the parts that is done, 0 to 1. Default None.

        Returns:
            The merged value.

        Raises:
            LogError: If no part has anything to add: no episode of it is left.

        Example:
            >>> import dprl
            >>> from dprl.evidence.counts import Counts
            >>> from dprl.logs.parts import parts_of
            >>> parts = parts_of(dprl.envs.risky_arms().sample(100, seed=0), rows=50)
            >>> int(parts.reduce(Counts(gamma=1.0)).steps.sum())
            200
        """
        result: T | None = self.executor(
            self.sources, _statistic_of, statistic.merge, (statistic,), progress
        )
        if result is None:
            raise none_is_left(self.n_episodes)
        return result


@dataclass(frozen=True)
class _Held:
    """A part that is in memory."""

    held: Log
    first_group: int
    first_row: int

    def read(self) -> Chunk:
        return Chunk(self.held, self.first_group, self.first_row)


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
    pieces = [log.take(np.flatnonzero(number == i)) for i in range(int(number.max()) + 1)]
    groups = np.cumsum([0, *(len(piece.groups) for piece in pieces)]).tolist()
    steps = np.cumsum([0, *(piece.n_steps for piece in pieces)]).tolist()
    return LogInParts(
        **vars(LogFacts.of(log)),
        sources=tuple(map(_Held, pieces, groups, steps)),
        content=log.digest(),
        rows=max(rows, 1),
    )


PER_WORKER = 4
"""Parts per worker of a log that was in memory: a slow worker then delays little."""
ROOM = 4_000_000
"""Returns that this process may hold at once, about 40 MB, however small the parts are."""
LEAST = 10_000
"""Rows of the smallest part that is worth sending."""


@contextlib.contextmanager
def on_cluster(log: Log | LogInParts, cluster: Any) -> Iterator[LogInParts]:
    """A log whose parts are computed with on a cluster, for as long as the block lasts.

    Parts of a log that is in files are read by the workers, which must see the same files. A log in
    memory is divided and sent to the workers once; they keep their parts for as long as the work
    lasts.

    Args:
        log: A log in memory or in parts.
        cluster: A `distributed.Client`, an address, "local" or "local:2", or a number of workers;
            see `dprl._core.cluster.connect`.

    Yields:
        The same log in parts.

    Raises:
        LogError: If the log is empty, or in memory with features as states.
        ClusterError: If the cluster does not answer.
    """
    source = as_source(log)
    with connect(cluster) as there:
        if isinstance(source, LogInParts):
            yield replace(source, executor=there.reduce, rows=max(source.rows, ROOM))
            return
        held = needs_rows(source, "what is sent to a cluster")
        parts = parts_of(held, max(LEAST, -(-held.n_steps // (PER_WORKER * there.workers()))))
        yield replace(
            parts, sources=there.keep(parts.sources), executor=there.reduce, rows=held.n_steps
        )
