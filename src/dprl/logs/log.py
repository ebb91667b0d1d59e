"""Log: what people decided and what happened afterwards, as flat read-only columns.

A trajectory is a sequence (s_t, a_t, r_t), t = 0..T-1, and r_t belongs to (s_t, a_t). Rows are
sorted by episode and time; episode e owns rows ``starts[e]:starts[e + 1]``. States and actions are
codes into tuples of labels (sorted when they are read from a source, so the order of the source's
rows does not matter).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import doubles, frozen
from dprl._core.checks import check_number
from dprl._core.labels import Labels, few_as_tuple, labels_at
from dprl._core.table import Table, first_few, in_notebook, many
from dprl._core.words import api, either, worded
from dprl.errors import LogError, ParameterError
from dprl.logs.outcome import Outcome
from dprl.logs.reading.times import charted

if TYPE_CHECKING:
    from dprl.logs.reading.also import Also
    from dprl.logs.source import LogFacts, Statistic


# --- Which of some groups go to the first side of a split


def deal(n: int, fraction: float, seed: int, turn: float = 0.0) -> NDArray[np.bool_]:
    """bool (n,): which of n groups go to the first side, about `fraction` of them, at least one.

    `turn`, in [0, 1), goes on so far on the circle of groups that the seed draws: over turns at
    equal distances every group is about equally often on the other side.
    """
    check_number("fraction", fraction, "(0, 1)")
    if n < 2:
        raise LogError(
            f"a log of {n} group cannot be split in two.",
            do="Groups (or episodes) are never torn apart; read more of them.",
        )
    chosen = np.zeros(n, bool)
    first = min(max(round(fraction * n), 1), n - 1)
    order = np.roll(np.random.default_rng(seed).permutation(n), -round(turn * n))
    chosen[order[:first]] = True
    return chosen


# --- How a log shows itself in a notebook: its size, how its episodes ended, what was done

SHOWN = 12
"""Actions and features that are listed at most."""


def log_shown(log: Log) -> str:
    """The log as HTML."""
    counts = np.bincount(log.action, minlength=log.n_actions)
    order = np.argsort(-counts, kind="stable")[:SHOWN]
    steps = max(log.n_steps, 1)
    actions = Table(
        {
            "action": [str(log.actions[a]) for a in order],
            "steps": counts[order].tolist(),
            "share": (counts[order] / steps).tolist(),
        },
        "What was done" + (f" ({SHOWN} of {log.n_actions:,} actions)" * (log.n_actions > SHOWN)),
    )
    lines = []
    if log.n_steps:
        low, high = log.outcome.ends(log.reward.min(), log.reward.max())
        lines.append(f"Rewards from {low:g} to {high:g}.")
    if log.feature_names:
        lines.append(f"Features: {first_few(log.feature_names, SHOWN)}.")
    return in_notebook(repr(log), lines, [actions])


# --- The columns of a log: whether they agree with each other, and a form that equal logs share


def rising(labels: Sequence[Any]) -> bool:
    """Whether labels are of one kind, sorted, and none is there twice: without a set of them."""
    if isinstance(labels, Labels):
        return labels.rising
    if set(map(type, labels)) not in ({int}, {str}):
        return False
    return all(map(operator.lt, labels, itertools.islice(labels, 1, None)))


def repeated(labels: Sequence[Any]) -> bool:
    """Whether a label is there twice."""
    if isinstance(labels, Labels):
        return not labels.at(labels.order()).rising
    return len(set(labels)) != len(labels)


def canonical(
    codes: NDArray[np.int32], labels: Sequence[Any]
) -> tuple[NDArray[np.int32], Sequence[Any]]:
    """The same column coded by the sorted labels that occur: unused labels do not matter."""
    if isinstance(labels, Labels):
        every = np.bincount(codes, minlength=len(labels)) > 0
        if labels.rising and every.all():
            return codes, labels
        at = np.flatnonzero(every) if labels.rising else labels.order()
        at = at[every[at]]
        place = np.zeros(len(labels), np.int32)
        place[at] = np.arange(len(at), dtype=np.int32)
        return place[codes], labels.at(at)
    used = np.flatnonzero(np.bincount(codes, minlength=len(labels))).tolist()
    order = (
        used
        if rising(labels)
        else sorted(used, key=lambda i: (isinstance(labels[i], str), labels[i]))
    )
    table = np.zeros(len(labels), np.int32)
    table[order] = np.arange(len(order), dtype=np.int32)
    return table[codes], [labels[i] for i in order]


def canonical_ends(
    ended: NDArray[np.uint8], events: Sequence[str]
) -> tuple[NDArray[np.uint8], list[str]]:
    """How episodes ended, with competing events coded by the sorted names that occur."""
    at = ended > CUT
    if not at.any():
        return ended, []
    codes, used = canonical((ended[at] - CUT - 1).astype(np.int32), events)
    result = ended.copy()
    result[at] = codes + CUT + 1
    return result, list(used)


def canonical_features(
    features: NDArray[np.float64], levels: Sequence[tuple[str, ...] | None]
) -> tuple[NDArray[np.float64], list[Any]]:
    """The same features coded by the sorted labels that occur: unused labels do not matter."""
    matrix, used = features.copy(), [None] * len(levels)
    for j, labels in enumerate(levels):
        if labels is not None:
            at = ~np.isnan(features[:, j])
            codes, used[j] = canonical(features[at, j].astype(np.int32), labels)  # type: ignore[call-overload]
            matrix[at, j] = codes
    return matrix, used


def validate(log: Log) -> None:
    """Refuse a log that contradicts itself, so that other code can trust every Log."""
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

    for name, column in [*((name, getattr(log, name)) for name in BY_ROW), *log.more.items()]:
        if column is not None and len(column) != n:
            refuse(f"'{name}' has {len(column):,} rows, 'action' {n:,}")
    for name in ("episodes", "group", "ended"):
        if len(getattr(log, name)) != len(starts) - 1:
            refuse(f"'{name}' must have one entry per episode")
    if not all(isinstance(name, str) for name in log.events) or len(set(log.events)) < len(
        log.events
    ):
        refuse("'events' must be names, each once")
    if len(log.ended) and log.ended.max() > CUT + len(log.events):
        refuse(f"'ended' has codes outside 0..{CUT + len(log.events)}")
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
            refuse("`menus` needs one column per action")
    for name, size in sizes:
        column = getattr(log, name)
        if len(column) and not 0 <= column.min() <= column.max() < size:
            refuse(f"'{name}' has codes outside 0..{size - 1}")
    for name in ("states", "actions", "episodes", "groups", "feature_names"):
        labels = getattr(log, name)
        if name == "groups" and labels is log.episodes:
            continue
        if not rising(labels) and repeated(labels):
            refuse(f"'{name}' repeats a label")
    if n and not (np.isfinite(log.reward.min()) and np.isfinite(log.reward.max())):
        refuse("'reward' holds a value that is not finite")
    if log.features is not None and np.isinf(log.features).any():
        refuse("'features' hold a value that is infinite")
    if log.propensity is not None:
        p = log.propensity[~np.isnan(log.propensity)]
        if log.propensity.ndim != 1 or not ((p > 0) & (p <= 1)).all():
            refuse("'propensity' holds a value that is not above 0 and at most 1")
    if log.levels:
        _validate_levels(log, refuse)


def _validate_levels(log: Log, refuse: Callable[[str], None]) -> None:
    """Refuse categories whose codes have no label."""
    assert log.features is not None
    if len(log.levels) != len(log.feature_names):
        refuse(f"{len(log.levels)} levels for {len(log.feature_names)} features")
    for name, labels, column in zip(log.feature_names, log.levels, log.features.T, strict=True):
        if labels is None:
            continue
        if not all(isinstance(label, str) for label in labels) or list(labels) != sorted(
            set(labels)
        ):
            refuse(f"the levels of {name!r} are not sorted labels of text, each once")
        codes = column[~np.isnan(column)]
        if len(codes) and not (
            (codes == np.rint(codes)).all() and codes.min() >= 0 and codes.max() < len(labels)
        ):
            refuse(f"{name!r} has codes outside 0..{len(labels) - 1}")


# --- Log: what people decided and what happened afterwards, as flat read-only columns

Label: TypeAlias = str | int | bool
T = TypeVar("T")

DEFERRAL = "DEFER"
"""What policies say where they name no action, so that no action can be called so."""
WHOLE_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,40})(\.0*)?\s*", re.ASCII)
"""A whole number, in any of the forms in which files write it."""


def label_key(label: Label) -> int | str:
    """The one form in which labels are compared across sources: 7, "7", "7.0" and "007" are one.

    A label that is no whole number is its text without spaces around it.
    """
    if not isinstance(label, str):
        return int(label)
    number = WHOLE_NUMBER.fullmatch(label)
    value = 0 if number is None else int(number[1])
    return label.strip() if number is None or abs(value) >= 2**63 else value


BY_ROW = (
    "action", "reward", "state", "features", "time", "offset", "available", "propensity", "also",
)  # fmt: skip
"""The fields of a log that have one entry per row."""

UNKNOWN, TERMINAL, CUT, EVENT = 0, 1, 2, 3
"""How an episode ended.

UNKNOWN: not recorded, treated as terminal. TERMINAL: the process ended. CUT: observation stopped.
From EVENT on: a competing event ended the process (death while waiting for a transplant, say). That
is an end, with what the reward says, and not a cut: nothing comes after it.
"""


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

    Make one with `dprl.read`, `dprl.from_frame`, `dprl.from_arrays` or one of their siblings.
    Below, N is the number of rows (steps), E of episodes, A of actions, d of features, M of
    distinct menus.

    Attributes:
        starts: int64 (E + 1,), the first row of each episode, and N as the last entry.
        action: int32 (N,), codes into `actions`.
        reward: float64 (N,), the reward of each row, in the user's own unit; with the sign changed
            where less is better (`outcome`), so that larger is better here.
        actions: The action labels. Where two actions are equally good, the earlier label wins.
        state: int32 (N,), codes into `states`; None where states are features.
        states: The state labels; empty where states are features.
        features: float64 (N, d), one row of features per step, NaN where one is missing; None where
            states are labels.
        feature_names: The d names of the features.
        levels: For each feature None where it is a number, else its sorted labels: such a feature
            is a category, and its column of `features` holds codes into them. () where all
            features are numbers.
        episodes: The E episode labels, sorted; from 100,000 on as arrays (a sequence that is equal
            to the tuple). Default 0, 1, ….
        group: int32 (E,), codes into `groups`: the group each episode belongs to. By default every
            episode is its own group.
        groups: The group labels, sorted; held like `episodes`.
        time: (N,) numbers or dates (in UTC where they have a zone); None where the order of the
            rows was the time.
        offset: int32 (N,), the seconds by which the local clock was ahead of UTC; None where times
            have no zone. `clock` uses it to show a time as it was written down.
        available: int32 (N,), codes into the rows of `menus`: the actions that were available at
            each step; None where the log does not say.
        menus: bool (M, A), the distinct sets of available actions; None without `available`.
        ended: uint8 (E,), how each episode ended: UNKNOWN, TERMINAL, CUT, or EVENT + i for the
            competing event `events[i]`. Default UNKNOWN.
        columns: Which source column played which part, for messages and provenance; "follow_up" is
            the time for which every episode is followed, if one was set.
        propensity: float64 (N,), the probability with which the action taken was taken, above 0
            and at most 1, NaN where it is unknown; None where the log does not say.
        also: Further columns of the table, which are not in the state: to look for confounding and
            for groups that a policy harms. No learner sees them, and they do not count in
            `digest`. None where there are none.
        events: Names of the competing events with which an episode can end.
        dropped: Number of episodes of the source that were left out for missing values, as was
            asked; 0 for a part of a log. It does not count in `digest`.
        more: Role → float64 (N,), of columns whose role has no field of its own here (see
            `dprl.logs.roles`), NaN where missing.

    Raises:
        LogError: If the columns contradict each other (different lengths, codes without a label).

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=["anna", "anna", "ben"], state=["ill", "better", "ill"],
        ...     action=["drug", "wait", "wait"], reward=[0.0, 1.0, 0.0],
        ... )
        >>> log
        Log: 2 episodes · 3 steps · 2 states · 2 actions
        >>> log.states, log.state.tolist()
        (('better', 'ill'), [1, 0, 1])
    """

    starts: NDArray[np.int64]
    action: NDArray[np.int32]
    reward: NDArray[np.float64]
    actions: tuple[Label, ...]
    state: NDArray[np.int32] | None = None
    states: tuple[Label, ...] = ()
    features: NDArray[np.float64] | None = None
    feature_names: tuple[str, ...] = ()
    episodes: Sequence[Label] = ()
    group: NDArray[np.int32] = field(default=None)  # type: ignore[arg-type]
    groups: Sequence[Label] = ()
    time: NDArray[Any] | None = None
    offset: NDArray[np.int32] | None = None
    available: NDArray[np.int32] | None = None
    menus: NDArray[np.bool_] | None = None
    ended: NDArray[np.uint8] = field(default=None)  # type: ignore[arg-type]
    columns: Mapping[str, Any] = field(default_factory=dict)
    levels: tuple[tuple[str, ...] | None, ...] = ()
    propensity: NDArray[np.float64] | None = None
    events: tuple[str, ...] = ()
    also: Also | None = None
    dropped: int = 0
    more: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        def array(name: str, dtype: Any) -> None:
            if getattr(self, name) is not None:
                put(name, frozen(np.ascontiguousarray(getattr(self, name), dtype)))

        n = len(self.starts) - 1
        if not self.episodes:
            put("episodes", few_as_tuple(Labels(np.arange(n))))
        if self.group is None:
            put("group", np.arange(n))
            put("groups", self.episodes)
        if self.ended is None:
            put("ended", np.zeros(n))
        for name in ("action", "state", "group", "available", "offset"):
            array(name, np.int32)
        for name in ("reward", "features", "propensity"):
            if getattr(self, name) is not None:
                put(name, frozen(np.ascontiguousarray(doubles(getattr(self, name), copy=False))))
        array("starts", np.int64)
        array("menus", np.bool_)
        array("ended", np.uint8)
        if self.time is not None:
            put("time", frozen(np.asarray(self.time)))
        put("columns", Facts(self.columns))
        numbers = {k: np.ascontiguousarray(doubles(v, copy=False)) for k, v in self.more.items()}
        put("more", Facts({k: frozen(v) for k, v in numbers.items()}))
        levels = tuple(None if own is None else tuple(own) for own in self.levels)
        numeric = self.features is None or all(own is None for own in levels)
        put("levels", () if numeric else levels)
        validate(self)

    @property
    def n_episodes(self) -> int:
        """Number of episodes."""
        return len(self.starts) - 1

    @property
    def n_groups(self) -> int:
        """Number of groups; as many as episodes where every episode is its own group."""
        return len(self.groups)

    @property
    def n_steps(self) -> int:
        """Number of rows; one row is one decision."""
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
        """int64 (E,), the number of rows of each episode."""
        return np.diff(self.starts)

    @property
    def cut_episodes(self) -> NDArray[np.int64]:
        """int64, the positions of the episodes that were cut (observation stopped early)."""
        return np.flatnonzero(self.ended == CUT)

    @property
    def outcome(self) -> Outcome:
        """What the rewards are, and which way is better, as declared."""
        return Outcome.of(self.columns)

    @property
    def follow_up(self) -> str | None:
        """The time for which every episode is followed, such as "10 steps"; None without one."""
        return self.columns.get("follow_up")

    @property
    def endings(self) -> dict[str, int]:
        """How many episodes ended in which way: "terminal", "cut", each event, "not said"."""
        counts = np.bincount(self.ended, minlength=EVENT + len(self.events))
        return named_endings(counts, self.events)

    @functools.cached_property
    def missing(self) -> NDArray[np.int64]:
        """int64 (d,), the number of rows on which each feature is missing."""
        if self.features is None:
            return np.zeros(0, np.int64)
        if not np.isnan(self.features.sum()):
            return np.zeros(self.features.shape[1], np.int64)
        columns = (np.count_nonzero(np.isnan(column)) for column in self.features.T)
        return np.fromiter(columns, np.int64, self.features.shape[1])

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """Name of every feature that is a category → its labels, in the order of their codes."""
        own = zip(self.feature_names, self.levels, strict=True) if self.levels else ()
        return {name: labels for name, labels in own if labels is not None}

    def describe(self, by: str | None = "action") -> Table:
        """Table 1: who was there, by what was done at the first decision.

        Args:
            by: "action", the name of a column of labels (of the state, or in `also`), or None for
                all together. Default "action".

        Returns:
            One row for each number: mean and standard deviation of columns of numbers, the share of
            each label (the twelve most frequent), the share that is missing; all, each side, and
            the largest difference between two sides in standard deviations. It exports like every
            table: `to_frame`, `to_json`, `to_markdown`.

        Raises:
            ParameterError: There is no such column, or it has too many labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(1000, seed=0)
            >>> table = log.describe()
            >>> table["what"][0], table["all"][0]
            ('number', 1000)
        """
        from dprl.logs.describing import table_one

        return table_one(self, by)

    def curves(self, times: Sequence[float] | None = None) -> Table:
        """Kaplan-Meier curves, or with "risk" Aalen-Johansen ones, by action of first decisions.

        Args:
            times: The times that are asked about. Default None: twelve, evenly apart, up to the
                horizon.

        Returns:
            One row for each action and time: how many are still followed then, how many had an
            event or were censored until then, the share, and a 95 % interval (of its log-log).

        Raises:
            ParameterError: The log has no time to event.

        Example:
            >>> import dprl, pandas
            >>> frame = pandas.DataFrame({"id": [1, 2, 3, 4], "sex": ["f", "m", "f", "m"],
            ...     "arm": ["a", "a", "b", "b"], "days": [9, 3, 8, 2], "died": [0, 1, 1, 1]})
            >>> log = dprl.from_frame(frame, episode="id", state="sex", action="arm",
            ...                       survival=("days", "died"), horizon=5)
            >>> log.curves([5])["share"]
            [0.5, 0.5]
        """
        from dprl.logs.survival import curves

        return curves(self, times)

    def _repr_html_(self) -> str:
        return log_shown(self)

    def __repr__(self) -> str:
        kind = many(self.n_states, "state")
        if self.state is None:
            kind = many(self.feature_names, "feature")
        if self.levels:
            kind += f" ({many(self.categories, 'category', 'categories')})"
        if self.missing.any():
            kind += f" · {many(int(self.missing.sum()), 'value')} missing"
        grouped = f" · {many(self.groups, 'group')}" if self.groups != self.episodes else ""
        cut = len(self.cut_episodes)
        return (
            f"Log: {many(self.n_episodes, 'episode')}{grouped} · {many(self.n_steps, 'step')} · "
            f"{kind} · {many(self.n_actions, 'action')}"
            + (f" · {many(cut, 'episode')} cut" if cut else "")
            + (f" · followed for {self.follow_up}" if self.follow_up else "")
        )

    def followed(self, follow_up: Any) -> Log:
        """The log in which every episode is followed for the same time, from its first row on.

        Rows after that time are left out, and returns are of the rows that remain: it is another
        question that is asked of the log, and policies and certificates say which. An episode that
        was cut later is not cut any more; one that was cut before still is.

        Args:
            follow_up: A whole number of steps, or text such as "10 steps", "72 units" (of a time
                column of numbers) or "30 days" (of dates).

        Returns:
            The shorter log; its `follow_up` is the time.

        Raises:
            ParameterError: If it is no time.
            LogError: If it is in units that the log's times do not have, longer than a time that
                was set before, or if no outcome is left.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 1, 1, 2], state=[0] * 4, action=[0] * 4, reward=[1, 2, 4, 8],
            ...     ended=["cut"] * 4,
            ... )
            >>> log.followed(2)
            Log: 2 episodes · 3 steps · 1 state · 1 action · 1 episode cut · followed for 2 steps
        """
        from dprl.logs.follow_up import followed

        return followed(self, follow_up)

    def joined(self) -> Log:
        """The log whose states are labels: its categories joined, as in "sex=f · ward=a".

        `dprl.DPRLDiscrete` and `dprl.Confident` do so by themselves where all features are
        categories. How it was done is in `columns["encoding"]`, and a policy keeps it.

        Returns:
            The log with one label for each combination that occurs; this log where states are
            labels.

        Raises:
            LogError: If a feature holds numbers, or is missing somewhere and not flagged.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 2], state=[["f", "a"], ["m", "a"]], action=["x", "y"],
            ...     reward=[0, 1], feature_names=["sex", "ward"],
            ... )
            >>> log.joined().states
            ('sex=f · ward=a', 'sex=m · ward=a')
        """
        from dprl.logs.encoding.encoder import joined

        return joined(self)

    def indicators(self) -> Log:
        """The log in which every category is a column of 0 and 1 per label, such as "ward=a".

        Gaps are filled as was declared when the log was read (`missing=`), by the medians of this
        log. `dprl.DPRLContinuous` does both by itself. How it was done is in `columns["encoding"]`,
        and a policy keeps it.

        Returns:
            The log with numbers alone; this log where there is nothing to do.

        Raises:
            LogError: If a category is missing somewhere and nothing was declared about it, or a
                number that is to be filled is missing everywhere.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 2], state=[[60, "a"], [70, "b"]], action=["x", "y"],
            ...     reward=[0, 1], feature_names=["age", "ward"],
            ... )
            >>> log.indicators().feature_names
            ('age', 'ward=a', 'ward=b')
        """
        from dprl.logs.encoding.encoder import with_indicators

        return with_indicators(self)

    def codes(self) -> NDArray[np.int32]:
        """The state codes of a log whose states are labels.

        Returns:
            int32 (N,), codes into `states`.

        Raises:
            LogError: If the states of this log are features.

        Example:
            >>> from dprl.envs import risky_arms
            >>> log = risky_arms().sample(2, seed=0)
            >>> [log.states[code] for code in log.codes()]
            ['s0', 's-b2', 's0', 's-b2']
        """
        if self.state is None:
            raise LogError(
                f"this log's states are {len(self.feature_names)} numeric features, not labels.",
                f"features {', '.join(self.feature_names[:4])}",
                worded(
                    "A discrete learner needs one label: pass {state='name'} when reading{choice}.",
                    choice=either(", or join categories into one: log.joined()", ""),
                ),
            )
        return self.state

    def __len__(self) -> int:
        return self.n_episodes

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Log]:
        """Its episodes one after another, each as a log of its own."""
        return (self.take([e]) for e in range(self.n_episodes))

    def to_frame(self, backend: str = "pandas") -> Any:
        """The log as a dataframe: one row per step, in the columns it was read from.

        Args:
            backend: The library: "pandas" (the default), "polars" or "pyarrow".

        Returns:
            A dataframe of that library.

        Raises:
            ParameterError: If the library is not one of the three.
            PackageError: If it is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.risky_arms().sample(5, seed=0)
            >>> list(log.to_frame("pyarrow").column_names)[:4]
            ['episode', 'time', 'state', 'action']
        """
        from dprl.logs._io import written_columns

        return Table(written_columns(self)).to_frame(backend)

    def take(self, episodes: Sequence[int] | NDArray[Any]) -> Log:
        """The log of some of the episodes; the labels of states and actions stay as they are.

        Args:
            episodes: Positions of the episodes, from 0 to E - 1, in any order; repeats count once.

        Returns:
            A log of these episodes, in their order in this log.

        Raises:
            ParameterError: If a position lies outside 0 to E - 1.

        Example:
            >>> from dprl.envs import risky_arms
            >>> risky_arms().sample(100, seed=0).take([3, 0])
            Log: 2 episodes · 4 steps · 11 states · 10 actions
        """
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
        part = replace(
            self,
            dropped=0,
            starts=np.concatenate(([0], np.cumsum(self.lengths[chosen]))),
            **self.at_rows(rows),
            episodes=labels_at(self.episodes, chosen),
            group=group.astype(np.int32),
            groups=labels_at(self.groups, codes),
            ended=self.ended[chosen],
        )
        if "unseen" not in self.columns:
            return part
        from dprl.logs.unseen import unseen_in

        facts = {**self.columns["unseen"], "rows": unseen_in(part)}
        return replace(part, columns={**self.columns, "unseen": facts})

    def at_rows(self, rows: NDArray[Any]) -> dict[str, Any]:
        """All columns that have one entry per row, at some of the rows.

        Args:
            rows: Which rows: their numbers, or bool (N,).

        Returns:
            Name → the column at these rows, None where the log has no such column.

        Example:
            >>> from dprl.envs import risky_arms
            >>> len(risky_arms().sample(5, seed=0).at_rows([0, 2])["reward"])
            2
        """
        columns = {name: getattr(self, name) for name in BY_ROW}
        kept = {k: None if column is None else column[rows] for k, column in columns.items()}
        return {**kept, "more": {k: column[rows] for k, column in self.more.items()}}

    def clock(self, row: int) -> str:
        """The time of a row as it was written down.

        Args:
            row: Number of the row, from 0 to N - 1.

        Returns:
            The time as text, in the zone it was recorded in. Without times, the position of the row
            in its episode, counted from 0.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 1], time=[10, 20], state=["a", "b"], action=["x", "x"],
            ...     reward=[0, 1],
            ... )
            >>> log.clock(1)
            '20'
        """
        if self.time is None:
            return str(row - int(self.starts[np.searchsorted(self.starts, row, "right") - 1]))
        return charted(self.time[row], None if self.offset is None else int(self.offset[row]))

    def gathered(self) -> Log:
        """The same log with the episodes of a group next to each other, as counting by group needs.

        Within a group, episodes are ordered by the time of their first row if the log has times,
        and keep their order otherwise.

        Returns:
            The reordered log; this log itself where nothing has to move.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 2, 3], group=["b", "a", "b"], state=[0, 0, 0], action=[0, 1, 0],
            ...     reward=[0, 1, 0],
            ... )
            >>> log.gathered().episodes
            (2, 1, 3)
        """
        return self.in_order(in_group_order(self))

    def in_order(self, order: NDArray[np.int64]) -> Log:
        """The same log with its episodes in another order; this log itself where none moves.

        Args:
            order: int64 (E,), the positions of the episodes, each once.

        Returns:
            The reordered log.

        Example:
            >>> from dprl.envs import risky_arms
            >>> risky_arms().sample(3, seed=0).in_order(np.array([2, 0, 1])).episodes
            (2, 0, 1)
        """
        if (order == np.arange(self.n_episodes)).all():
            return self
        lengths = self.lengths[order]
        ends = np.cumsum(lengths)
        rows = np.repeat(self.starts[:-1][order] - (ends - lengths), lengths)
        rows += np.arange(self.n_steps)
        return replace(
            self,
            starts=np.concatenate(([0], ends)),
            **self.at_rows(rows),
            episodes=labels_at(self.episodes, order),
            group=self.group[order],
            ended=self.ended[order],
        )

    def split(self, fraction: float = 0.5, *, seed: int) -> tuple[Log, Log]:
        """Two logs: about `fraction` of the groups, and the rest.

        Whole groups go to one side, never single rows (a group is an episode where no group column
        was given). The same groups and the same seed give the same split, whatever the order of the
        source.

        Args:
            fraction: Share of the groups in the first log, strictly between 0 and 1. Default 0.5.
            seed: Seed of the random draw.

        Returns:
            The two logs. Each has at least one group.

        Raises:
            ParameterError: If `fraction` is not strictly between 0 and 1.
            LogError: If there are fewer than two groups.

        Example:
            >>> from dprl.envs import risky_arms
            >>> train, test = risky_arms().sample(100, seed=0).split(0.8, seed=1)
            >>> train.n_episodes, test.n_episodes
            (80, 20)
        """
        side = deal(len(self.groups), fraction, seed)[self.group]
        return self.take(np.flatnonzero(side)), self.take(np.flatnonzero(~side))

    @property
    def facts(self) -> LogFacts:
        """What the log says about itself as a whole, as logs that are not in memory do too."""
        from dprl.logs.source import LogFacts

        return LogFacts.of(self)

    def reduce(self, statistic: Statistic[T], progress: Callable[[float], None] | None = None) -> T:
        """A statistic of the log, which is one chunk (see `dprl.logs.source`).

        Args:
            statistic: What is asked for.
            progress: Called with the share of the work that is done, 0 to 1. Default None.

        Returns:
            Its value.

        Raises:
            LogError: If no episode is left for it.

        Example:
            >>> from dprl.envs import risky_arms
            >>> from dprl.evidence.counts import Counts
            >>> int(risky_arms().sample(100, seed=0).reduce(Counts(gamma=1.0)).steps.sum())
            200
        """
        from dprl.logs.source import Chunk

        return Chunk(self).reduce(statistic, progress)

    def digest(self) -> str:
        """SHA-256 of the content: equal for equal logs, whatever file or table they came from.

        The columns in `also` do not count: they change nothing that is learned.

        Returns:
            64 hexadecimal digits.

        Example:
            >>> from dprl.envs import risky_arms
            >>> risky_arms().sample(5, seed=0).digest() == risky_arms().sample(5, seed=0).digest()
            True
        """
        return self._digest

    @functools.cached_property
    def _digest(self) -> str:
        total = hashlib.sha256(b"dprl-log-1")

        def add(name: str, column: NDArray[Any] | None, labels: Sequence[Any] = ()) -> None:
            total.update(f"|{name}|".encode())
            for words in (
                labels.as_json()
                if isinstance(labels, Labels)
                else (json.dumps(labels, ensure_ascii=True).encode(),)
            ):
                total.update(words)
            if column is not None:
                total.update(str(column.shape).encode())
                total.update(column.astype(column.dtype.newbyteorder("<"), copy=False).data)

        add("starts", self.starts, self.episodes)
        add("group", *canonical(self.group, self.groups))
        add("ended", *canonical_ends(self.ended, self.events))
        if self.state is not None:
            add("state", *canonical(self.state, self.states))
        features, used = self.features, list[Any]()
        if features is not None and self.levels:
            features, used = canonical_features(features, self.levels)
        add("features", features, self.feature_names)
        if used:
            add("levels", None, used)
        add("action", *canonical(self.action, self.actions))
        add("reward", self.reward)
        if self.available is not None and self.menus is not None:
            offers = [sorted(str(self.actions[a]) for a in np.flatnonzero(m)) for m in self.menus]
            add("available", *canonical(self.available, [tuple(x) for x in offers]))
        if self.propensity is not None:
            add("propensity", self.propensity)
        for name in sorted(self.more):
            add(name, self.more[name])
        return total.hexdigest()


def named_endings(counts: NDArray[np.int64], events: Sequence[str]) -> dict[str, int]:
    """How many episodes ended in which way, by name, from counts by code; none that did not."""
    names = ("not said", "terminal", "cut", *events)
    ways = dict(zip(names, counts.tolist(), strict=True))
    return {name: ways[name] for name in (*names[1:], names[0]) if ways[name]}


def in_group_order(log: Log) -> NDArray[np.int64]:
    """int64 (E,): the episodes group by group, and in a group in the order they happened.

    That is by the time of their first row if the log has times, else as they are in the log.
    """
    keys: tuple[NDArray[Any], ...] = (log.group,)
    if log.time is not None and len(log.groups) < log.n_episodes:
        keys = (log.time[log.starts[:-1]], log.group)
    return np.lexsort(keys)


def check_log(log: object) -> None:
    """Refuse an object that is not a log, and a log without episodes."""
    if type(log).__name__ == "LogInParts":
        raise ParameterError(
            "what was asked for needs the log in memory; this one is in parts.",
            repr(log),
            worded(
                "{choice}, or take some of its parts. {learner} and Confident fit a log in parts.",
                choice=either("Read it with dprl.read", "Leave out --out-of-core"),
                learner=api("DPRLDiscrete"),
            ),
        )
    if not isinstance(log, Log):
        raise ParameterError(
            f"a log is needed; got an object of type {type(log).__name__}.",
            do="Make a log of it with dprl.read (files), dprl.from_frame or dprl.from_arrays.",
        )
    if not log.n_episodes:
        raise LogError("the log holds no episodes.", do="Read a log with at least one.")
