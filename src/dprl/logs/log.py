"""Log: what people decided and what came of it, as flat frozen columns.

A trajectory is a sequence (s_t, a_t, r_t), t = 0..T-1, and r_t belongs to (s_t, a_t). Rows lie
sorted by episode and time; episode e owns rows ``starts[e]:starts[e + 1]``. States and actions are
codes into tuples of labels (sorted when read from a source, so the order of its rows leaves no
trace).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_number
from dprl._core.zones import charted
from dprl.errors import LogError, ParameterError

__all__ = ["CUT", "TERMINAL", "UNKNOWN", "Cut", "Facts", "Label", "Log", "check_log", "deal"]

Label: TypeAlias = str | int | bool

UNKNOWN, TERMINAL, CUT = 0, 1, 2
"""How an episode ended: not said (taken as terminal), the process ended, we stopped looking."""


class Facts(Mapping[str, Any]):
    """A read-only mapping that can be copied and pickled."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)

    def __getitem__(self, name: str) -> Any:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __repr__(self) -> str:
        return repr(self._facts)


@dataclass(frozen=True, eq=False)
class Log:
    """Logged decisions; immutable.

    Build one with `dprl.read`, `dprl.from_frame`, `dprl.from_arrays` and their siblings.

    Attributes:
        starts: int64 (E + 1,), the first row of each episode, and the number of rows N.
        action: int32 (N,), codes into `actions`.
        reward: float64 (N,).
        actions: The action labels; the lowest of equals wins a tie.
        state: int32 (N,), codes into `states`; None where states are features.
        states: The state labels.
        features: float64 (N, d); None where states are labels.
        feature_names: The d names of the features.
        episodes: The E episode labels, sorted.
        group: int32 (E,), codes into `groups`; without a group column every episode is its own.
        groups: The group labels, sorted.
        time: (N,) numbers or dates (in UTC where they have a zone), or None where the rows' order
            was the time.
        offset: int32 (N,), seconds the clock on the wall was ahead of UTC, or None where times have
            no zone: `clock` shows a time as it was charted.
        available: int32 (N,), codes into the rows of `menus`, or None.
        menus: bool (M, A), the distinct sets of available actions, or None.
        ended: uint8 (E,), UNKNOWN, TERMINAL or CUT.
        columns: Which source column played which part, for messages and provenance.
    """

    starts: NDArray[np.int64]
    action: NDArray[np.int32]
    reward: NDArray[np.float64]
    actions: tuple[Label, ...]
    state: NDArray[np.int32] | None = None
    states: tuple[Label, ...] = ()
    features: NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] = ()
    episodes: tuple[Label, ...] = ()
    group: NDArray[np.int32] = field(default=None)  # type: ignore[arg-type]
    groups: tuple[Label, ...] = ()
    time: NDArray[Any] | None = None
    offset: NDArray[np.int32] | None = None
    available: NDArray[np.int32] | None = None
    menus: NDArray[np.bool_] | None = None
    ended: NDArray[np.uint8] = field(default=None)  # type: ignore[arg-type]
    columns: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        def array(name: str, dtype: Any) -> None:
            if getattr(self, name) is not None:
                put(name, _frozen(np.ascontiguousarray(getattr(self, name), dtype)))

        n = len(self.starts) - 1
        if not self.episodes:
            put("episodes", tuple(range(n)))
        if self.group is None:
            put("group", np.arange(n))
            put("groups", self.episodes)
        if self.ended is None:
            put("ended", np.zeros(n))
        for name in ("action", "state", "group", "available", "offset"):
            array(name, np.int32)
        for name in ("reward", "features"):
            array(name, np.float64)
        array("starts", np.int64)
        array("menus", np.bool_)
        array("ended", np.uint8)
        if self.time is not None:
            put("time", _frozen(np.asarray(self.time)))
        put("columns", Facts(self.columns))
        _validate(self)

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.starts) - 1

    @property
    def n_steps(self) -> int:
        """Number of rows."""
        return len(self.action)

    @property
    def n_states(self) -> int:
        """Number of state labels (0 where states are features)."""
        return len(self.states)

    @property
    def n_actions(self) -> int:
        """Number of action labels."""
        return len(self.actions)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64 (E,), rows per episode."""
        return np.diff(self.starts)

    @property
    def cut_episodes(self) -> NDArray[np.int64]:
        """The episodes we stopped looking at."""
        return np.flatnonzero(self.ended == CUT)

    def __repr__(self) -> str:
        kind = (
            f"{self.n_states:,} states"
            if self.state is not None
            else f"{len(self.feature_names)} features"
        )
        grouped = f" · {len(self.groups):,} groups" if self.groups != self.episodes else ""
        cut = len(self.cut_episodes)
        return (
            f"Log: {self.n_episodes:,} episodes{grouped} · {self.n_steps:,} steps · {kind} · "
            f"{self.n_actions} actions" + (f" · {cut:,} episodes cut" if cut else "")
        )

    def codes(self) -> NDArray[np.int32]:
        """The state codes, int32 (N,); refuses a log whose states are features."""
        if self.state is None:
            raise LogError(
                f"this log's states are {len(self.feature_names)} numeric features, not labels.",
                f"features {', '.join(self.feature_names[:4])}",
                "A discrete learner needs one label column: pass state='name' when reading.",
            )
        return self.state

    def take(self, episodes: Sequence[int] | NDArray[Any]) -> Log:
        """The log of the episodes at these positions; labels of states and actions stay."""
        chosen = np.unique(np.asarray(episodes, np.int64))
        if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < self.n_episodes:
            raise ParameterError(
                f"episode positions run from 0 to {self.n_episodes - 1}; "
                f"got {chosen[0]}..{chosen[-1]}."
            )
        keep = np.zeros(self.n_episodes, bool)
        keep[chosen] = True
        rows = np.repeat(keep, self.lengths)
        codes, group = np.unique(self.group[chosen], return_inverse=True)

        def pick(column: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if column is None else column[rows]

        return replace(
            self,
            starts=np.concatenate(([0], np.cumsum(self.lengths[chosen]))),
            action=self.action[rows],
            reward=self.reward[rows],
            state=pick(self.state),
            features=pick(self.features),
            time=pick(self.time),
            offset=pick(self.offset),
            available=pick(self.available),
            episodes=tuple(self.episodes[e] for e in chosen),
            group=group.astype(np.int32),
            groups=tuple(self.groups[g] for g in codes),
            ended=self.ended[chosen],
        )

    def clock(self, row: int) -> str:
        """The time of a row as it was charted; without times its place in the episode."""
        if self.time is None:
            return str(row - int(self.starts[np.searchsorted(self.starts, row, "right") - 1]))
        return charted(self.time[row], None if self.offset is None else int(self.offset[row]))

    def gathered(self) -> Log:
        """The same log with the episodes of a group side by side, as counting by group needs.

        Within a group by the time of their first rows, where the log has times, then as they were.
        """
        keys: tuple[NDArray[Any], ...] = (self.group,)
        if self.time is not None and len(self.groups) < self.n_episodes:
            keys = (self.time[self.starts[:-1]], self.group)
        order = np.lexsort(keys)
        if (order == np.arange(self.n_episodes)).all():
            return self
        lengths = self.lengths[order]
        ends = np.cumsum(lengths)
        rows = np.repeat(self.starts[:-1][order] - (ends - lengths), lengths)
        rows += np.arange(self.n_steps)

        def moved(column: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if column is None else column[rows]

        return replace(
            self,
            starts=np.concatenate(([0], ends)),
            action=self.action[rows],
            reward=self.reward[rows],
            state=moved(self.state),
            features=moved(self.features),
            time=moved(self.time),
            offset=moved(self.offset),
            available=moved(self.available),
            episodes=tuple(self.episodes[e] for e in order),
            group=self.group[order],
            ended=self.ended[order],
        )

    def split(self, fraction: float = 0.5, *, seed: int) -> tuple[Log, Log]:
        """Two logs: about `fraction` of the groups, and the rest.

        Whole groups go to one side (a group is an episode where no group column was given), never
        rows. The same groups and seed give the same split, whatever the order of the source.
        """
        side = deal(len(self.groups), fraction, seed)[self.group]
        return self.take(np.flatnonzero(side)), self.take(np.flatnonzero(~side))

    def digest(self) -> str:
        """SHA-256 of the content: equal for equal logs, whatever file or frame they came from."""
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        total = hashlib.sha256(b"dprl-log-1")

        def add(name: str, column: NDArray[Any] | None, labels: Sequence[Any] = ()) -> None:
            total.update(f"|{name}|{json.dumps(labels, ensure_ascii=True)}".encode())
            if column is not None:
                total.update(str(column.shape).encode())
                total.update(column.astype(column.dtype.newbyteorder("<"), copy=False).data)

        add("starts", self.starts, self.episodes)
        add("group", *_canonical(self.group, self.groups))
        add("ended", self.ended)
        if self.state is not None:
            add("state", *_canonical(self.state, self.states))
        add("features", self.features, self.feature_names)
        add("action", *_canonical(self.action, self.actions))
        add("reward", self.reward)
        if self.available is not None and self.menus is not None:
            offers = [sorted(str(self.actions[a]) for a in np.flatnonzero(m)) for m in self.menus]
            add("available", *_canonical(self.available, [tuple(x) for x in offers]))
        return total.hexdigest()


def _canonical(
    codes: NDArray[np.int32], labels: Sequence[Any]
) -> tuple[NDArray[np.int32], list[Any]]:
    """The same column with the labels that occur, sorted: unused labels leave no trace."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(labels))).tolist()
    order = sorted(used, key=lambda i: labels[i])
    table = np.zeros(len(labels), np.int32)
    table[order] = np.arange(len(order), dtype=np.int32)
    return table[codes], [labels[i] for i in order]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: the owner of the memory keeps its own rights."""
    view = array.view()
    view.setflags(write=False)
    return view


def _validate(log: Log) -> None:
    """Refuse a log that contradicts itself: a Log that exists can be trusted everywhere below."""
    n, starts = len(log.action), log.starts

    def refuse(what: str) -> None:
        raise LogError(f"a log cannot be made of these columns: {what}.")

    if starts.ndim != 1 or not len(starts) or starts[0] != 0 or starts[-1] != n:
        refuse("`starts` must run from 0 to the number of rows")
    if np.any(np.diff(starts) < 1):
        refuse("every episode needs at least one row")
    if (log.state is None) == (log.features is None):
        refuse("states are either labels or features")
    if log.offset is not None and (log.time is None or log.time.dtype.kind != "M"):
        refuse("`offset` needs times that are dates")
    for name in ("reward", "state", "features", "time", "offset", "available"):
        column = getattr(log, name)
        if column is not None and len(column) != n:
            refuse(f"'{name}' has {len(column):,} rows, 'action' {n:,}")
    for name in ("episodes", "group", "ended"):
        if len(getattr(log, name)) != len(starts) - 1:
            refuse(f"'{name}' must have one entry an episode")
    if log.features is not None and log.features.shape[1:] != (len(log.feature_names),):
        refuse(f"{len(log.feature_names)} feature names for an array of {log.features.shape}")
    if (log.available is None) != (log.menus is None):
        refuse("`available` and `menus` come together")
    sizes = [("action", len(log.actions)), ("group", len(log.groups))]
    if log.state is not None:
        sizes.append(("state", len(log.states)))
    if log.menus is not None:
        sizes.append(("available", len(log.menus)))
        if log.menus.shape[1:] != (len(log.actions),):
            refuse("`menus` needs one column an action")
    for name, size in sizes:
        column = getattr(log, name)
        if len(column) and not 0 <= column.min() <= column.max() < size:
            refuse(f"'{name}' has codes outside 0..{size - 1}")
    for name in ("states", "actions", "episodes", "groups", "feature_names"):
        labels = getattr(log, name)
        if len(set(labels)) != len(labels):
            refuse(f"'{name}' repeats a label")
    if not np.isfinite(log.reward).all():
        refuse("'reward' holds a value that is not finite")
    if log.features is not None and not np.isfinite(log.features).all():
        refuse("'features' hold a value that is not finite")


def deal(n: int, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which of n groups go to the first side, about `fraction` of them; each side gets some."""
    check_number("fraction", fraction, "(0, 1)")
    if n < 2:
        raise LogError(
            f"a log of {n} group cannot be split in two.",
            do="Groups (or episodes) are never torn apart; read more of them.",
        )
    chosen = np.zeros(n, bool)
    first = min(max(round(fraction * n), 1), n - 1)
    chosen[np.random.default_rng(seed).permutation(n)[:first]] = True
    return chosen


def check_log(log: object) -> None:
    """Refuse what is no log, or an empty one."""
    if not isinstance(log, Log):
        raise ParameterError(
            f"a log is needed; got an object of type {type(log).__name__}.",
            do="Make a log of it with dprl.read (files), dprl.from_frame or dprl.from_arrays.",
        )
    if not log.n_episodes:
        raise LogError("the log holds no episodes.", do="Read a log with at least one.")
