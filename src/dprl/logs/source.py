"""One way to compute with a log, wherever its rows are.

A log can be in memory, in parts on disk, on the workers of a cluster, or at sites that share no
rows. Learners, planners and gates do not care: they ask a `Source` for a `Statistic`.

    source.reduce(statistic)     the statistic of every chunk, merged

A **chunk** is an ordinary `Log` of whole groups, coded by the labels of the *whole* log. A log in
memory is one chunk. A **statistic** is a small frozen object that can be pickled: `of(chunk)` is
its value for one chunk, `merge(one, other)` that of two together. A merge is exact and does not
depend on the order (whole numbers, exact sums, extremes, tables by chunk), so nothing that is
learned depends on how many chunks there are, or on where they are.

What truly needs all rows at once says so with `needs_rows`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools
from dprl._core.checks import Cut, check_cut
from dprl._core.cluster import connect
from dprl._core.table import many
from dprl._core.words import either, option, say, say_many, sentences, worded
from dprl.errors import LogError, ParameterError
from dprl.logs.encoding.encoder import labelled
from dprl.logs.log import CUT, Facts, Label, Log, check_log
from dprl.logs.outcome import Outcome

if TYPE_CHECKING:
    from dprl.logs.censoring import Reads

# --- One way to compute with a log, wherever its rows are

T = TypeVar("T")
U = TypeVar("U")
Share: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class LogFacts:
    """What a log says about itself as a whole, without its rows.

    Attributes:
        actions: The action labels of the whole log.
        states: The state labels of the whole log.
        n_episodes: Number of episodes.
        n_groups: Number of groups; as many as episodes where every episode is its own group.
        n_steps: Number of rows.
        longest: Rows of the longest episode.
        ended: int64 (3 + number of events,), how many episodes ended in each way, by code.
        cut_steps: Number of rows of cut episodes.
        first_cut: The label of the first cut episode; None where none was cut.
        grouped: Whether the log has groups that are not just its episodes.
        menus: bool (M, A), the distinct sets of available actions; None where the log does not say.
        events: Names of the competing events with which an episode can end.
        columns: Which source column played which part.
        has_propensity: Whether the log says with which chance actions were taken.
    """

    actions: tuple[Label, ...]
    states: tuple[Label, ...]
    n_episodes: int
    n_groups: int
    n_steps: int
    longest: int
    ended: NDArray[np.int64]
    cut_steps: int = 0
    first_cut: Label | None = None
    grouped: bool = False
    menus: Bools | None = None
    events: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    has_propensity: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", Facts(self.columns))

    @classmethod
    def of(cls, log: Log) -> LogFacts:
        """The facts of a log in memory."""
        cut = log.cut_episodes
        return LogFacts(
            actions=log.actions,
            states=log.states,
            n_episodes=log.n_episodes,
            n_groups=len(log.groups),
            n_steps=log.n_steps,
            longest=int(log.lengths.max(initial=0)),
            ended=np.bincount(log.ended, minlength=3 + len(log.events)),
            cut_steps=int(log.lengths[cut].sum()),
            first_cut=log.episodes[cut[0]] if len(cut) else None,
            grouped=log.groups != log.episodes,
            menus=log.menus,
            events=log.events,
            columns=log.columns,
            has_propensity=log.propensity is not None,
        )

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
    def outcome(self) -> Outcome:
        """What the rewards are, and which way is better, as declared."""
        return Outcome.of(self.columns)

    @property
    def follow_up(self) -> str | None:
        """The time for which every episode is followed, such as "10 steps"; None without one."""
        return self.columns.get("follow_up")


class Statistic(Protocol[T]):
    """What is computed of a log, chunk by chunk: frozen, possible to pickle, a small result."""

    def of(self, chunk: Chunk) -> T | None:
        """The value for one chunk; None says that the chunk has nothing to add."""
        ...

    def merge(self, one: T, other: T) -> T:
        """The value for two chunks together: exact, whatever the order."""
        ...


class Source(Protocol):
    """A log, wherever its rows are."""

    @property
    def facts(self) -> LogFacts:
        """What the log says about itself as a whole."""
        ...

    @property
    def room(self) -> int | None:
        """About how many rows or returns may be held at once; None where all rows are here."""
        ...

    @property
    def sealed(self) -> str:
        """Why its rows cannot be looked at again, in words; "" where they can."""
        ...

    def digest(self) -> str:
        """The digest of the whole log, as `Log.digest` has it."""
        ...

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """The statistic of the whole log.

        Args:
            statistic: What is asked for.
            progress: Called with the share of the work that is done, 0 to 1. Default None.

        Raises:
            LogError: If no chunk has anything to add: no episode of it is left.
            ParameterError: If the statistic cannot be told of this source.
        """
        ...


@dataclass(frozen=True, eq=False)
class Chunk:
    """Whole groups of a log, with the codes of the whole log; a log in memory is one chunk.

    A chunk remembers what was made of it (`once`), so that what several statistics need is made
    once. It is a `Source` itself.

    Attributes:
        log: The rows.
        first_group: How many groups of the whole log are in chunks before this one.
        first_row: How many rows are.
    """

    log: Log
    first_group: int = 0
    first_row: int = 0
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return repr(self.log)

    @functools.cached_property
    def facts(self) -> LogFacts:
        """What the chunk says about itself as a whole."""
        return LogFacts.of(self.log)

    @property
    def room(self) -> int | None:
        """None: all rows are here."""
        return None

    @property
    def sealed(self) -> str:
        """Nothing: all rows are here."""
        return ""

    def digest(self) -> str:
        """The digest of the log."""
        return self.log.digest()

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """The statistic of this chunk; there is no progress to tell of in between."""
        result = statistic.of(self)
        if result is None:
            from dprl.logs.censoring import none_is_left

            raise none_is_left(self.log.n_episodes)
        return result

    def once(self, make: Callable[[], U], *key: Any) -> U:
        """What `make` returns, made once for each key; keys are compared, and must be hashable."""
        if key not in self._made:
            self._made[key] = make()
        result: U = self._made[key]
        return result

    def treated(self, cut: Cut | None, gamma: float = 1.0, reads: Reads = "returns") -> Log | None:
        """The log with its cut episodes treated, gathered; None if no episode of it is left.

        Args:
            cut: A treatment that `check_treatment` let pass. Groups are whole, so what comes after
                a cut episode is in the chunk too.
            gamma: Discount in (0, 1]; "bootstrap" and "ipcw" need it. Default 1.
            reads: What is read of the result, as in `dprl.logs.censoring.treat_cut`.
        """
        if not len(self.log.cut_episodes):
            return self.once(self.log.gathered, "gathered")
        return self.once(lambda: self._treated(cut, gamma, reads), "treated", cut, gamma, reads)

    def _treated(self, cut: Cut | None, gamma: float, reads: Reads) -> Log | None:
        from dprl.logs.censoring import from_cut_on, treat_cut  # policies act without a compiler

        # All of a chunk may be cut while others have episodes left: `reduce` refuses if none has.
        lost = from_cut_on(self.log) if cut in DROPS and reads != "rewards" else ()
        if len(lost) == self.log.n_episodes:
            return None
        return treat_cut(self.log, gamma, cut or "terminal", reads=reads).gathered()

    def left(self, treated: Log) -> NDArray[np.int64]:
        """int64 (g,): numbers in the whole log of the groups of a treated log."""
        own = self.log.groups
        if len(treated.groups) == len(own):
            return self.first_group + np.arange(len(own))
        number = {label: i for i, label in enumerate(own)}
        at = np.fromiter((number[g] for g in treated.groups), np.int64, len(treated.groups))
        return self.first_group + at

    def some(
        self, groups: Bools, cut: Cut | None, gamma: float = 1.0, reads: Reads = "returns"
    ) -> Log | None:
        """The treated log of some groups; None if no episode of them is left.

        Args:
            groups: bool (number of groups of the whole log,), the groups that are asked for.
            cut: As in `treated`.
            gamma: As in `treated`.
            reads: As in `treated`.
        """
        asked, key = (groups, cut, gamma, reads), "some"
        last, some = self._made.get(key, ((None,), None))
        if last[0] is not groups or last[1:] != asked[1:]:  # only the last ones are kept
            some, treated = None, self.treated(cut, gamma, reads)
            inside = () if treated is None else groups[self.left(treated)][treated.group]
            if treated is not None and np.any(inside):
                some = treated.take(np.flatnonzero(inside))
            self._made[key] = asked, some
        result: Log | None = some
        return result


@dataclass(frozen=True)
class Both:
    """Two statistics in one pass over the log."""

    one: Statistic[Any]
    other: Statistic[Any]

    def of(self, chunk: Chunk) -> tuple[Any, Any] | None:
        """Both values for one chunk; None where neither has anything to add."""
        both = self.one.of(chunk), self.other.of(chunk)
        return None if both[0] is both[1] is None else both

    def merge(self, one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
        """Both values for two chunks together."""
        return (
            merged(self.one, one[0], other[0]),
            merged(self.other, one[1], other[1]),
        )


def merged(statistic: Statistic[T], one: T | None, other: T | None) -> T | None:
    """Two values of a statistic together, where None has nothing to add."""
    if one is None or other is None:
        return other if one is None else one
    return statistic.merge(one, other)


def as_source(log: Any) -> Source:
    """A log of labelled states, as a source.

    A log in memory becomes one chunk, which remembers what was made of it for as long as it is
    held; where its states are categories they are joined. Everything else that can reduce is a
    source already.

    Raises:
        LogError: If the log is empty or has features as states.
        ParameterError: If it is no log.
    """
    if isinstance(log, Log) or not hasattr(type(log), "reduce"):
        check_log(log)
        log = labelled(log)
        log.codes()
        return Chunk(log)
    if not log.facts.n_episodes:
        raise LogError("the log holds no episodes.", do="Read a log with at least one.")
    source: Source = log
    return source


def check_settings(source: Source, settings: Mapping[str, Any]) -> None:
    """Refuse a learner's settings where a source was counted with others."""
    agreed = getattr(source, "check_settings", None)
    if agreed is not None:
        agreed(settings)


def stage(progress: Callable[[str, float], None] | None, name: str) -> Share | None:
    """The progress of one pass over a log, under a name."""
    if progress is None:
        return None
    return lambda share: progress(name, share)


def needs_rows(source: Source | Log, what: str, do: str = "") -> Log:
    """The log in memory, for what needs all rows at once; refuses where they are elsewhere.

    Args:
        source: The source.
        what: What needs them, as the beginning of a sentence: "evidence='excursions'".
        do: What can be done instead. Default "": to read the log with dprl.read.

    Raises:
        ParameterError: If the rows are in parts, on a cluster or at sites.
    """
    if isinstance(source, Chunk):
        return source.log
    if isinstance(source, Log):
        return source
    raise ParameterError(
        worded("{what} needs the whole log in memory.", what=what),
        repr(source),
        do
        or worded(
            "{choice}.",
            choice=either(
                "Read the log with dprl.read (without --out-of-core)", "Leave out --out-of-core"
            ),
        ),
    )


def check_treatment(source: Source, cut: Cut | None) -> None:
    """Refuse a treatment of cut episodes that needs the whole log at once; warn where none is set.

    Args:
        source: The source.
        cut: The treatment, or None for "terminal" with a warning.

    Raises:
        ParameterError: If episodes were cut, the treatment is "ipcw" or "bootstrap", and the rows
            are not all here.
    """
    check_cut(cut)
    facts = source.facts
    if not facts.n_cut:
        return
    if cut in ("ipcw", "bootstrap") and not isinstance(source, Chunk):
        raise ParameterError(
            worded(
                "{n_cut:,} of {n_episodes:,} episodes were cut, and {cut} needs the whole log in "
                "memory.",
                n_cut=facts.n_cut,
                n_episodes=facts.n_episodes,
                cut=option("cut", cut),
            ),
            f"episode {facts.first_cut!r}",
            worded(
                "{choice}, follow all for a fixed time ({follow_up=}), or choose {choice2}.",
                choice=either(
                    "Read the log with dprl.read (without --out-of-core)", "Leave out --out-of-core"
                ),
                choice2=either(
                    "cut='terminal' or 'drop-unrelated'", "--cut terminal or drop-unrelated"
                ),
            ),
        )
    if cut is None:
        from dprl.logs.censoring import warn_as_terminal

        warn_as_terminal(facts.n_cut, facts.n_episodes, facts.cut_steps, facts.n_steps)


def check_claim(cut: Cut | str | None, log: Log | LogInParts | Source, what: str) -> None:
    """Refuse to claim something from a log whose cut episodes are dropped without a declaration.

    Args:
        cut: The treatment of cut episodes.
        log: The log before they are treated, wherever its rows are.
        what: What makes the claim, as the beginning of a sentence: "a certificate".
    """
    if cut != "drop":
        return
    facts = LogFacts.of(log) if isinstance(log, Log) else log.facts
    if not facts.n_cut:
        return
    raise LogError(
        f"{facts.n_cut:,} of {facts.n_episodes:,} episodes were cut and would be left out: {what} "
        "would be about those that are left, and the longer an episode, the likelier it was cut.",
        f"episode {facts.first_cut!r}",
        worded(
            "Declare it if {unrelated}: {cut='drop-unrelated'}. Otherwise follow every episode for "
            "a fixed time ({follow_up=}), or use {cut='ipcw'} where it is offered.",
            unrelated=UNRELATED,
        ),
    )


# --- Functions of a log with its cut episodes treated, as statistics (see `dprl.logs.source`)
#
# `OfTreated` puts the values of chunks together by a merge that is exact. What must stay in the
# order of the log, because it is added up in that order, or drawn for one group after another, is
# gathered with `columns_in_order`.


@dataclass(frozen=True, eq=False)
class OfTreated(Generic[T]):
    """A function of the treated log of every chunk, gathered; values are put together by `join`.

    Attributes:
        make: Called with the log of a chunk and with `given`; an importable function.
        given: Further arguments of `make`.
        join: Called with two values; exact, whatever the order; an importable function.
        cut: What is done with cut episodes. Default None: there are none.
        gamma: Discount per step. Default 1.
    """

    make: Callable[..., T]
    given: tuple[Any, ...]
    join: Callable[[T, T], T]
    cut: Cut | None = None
    gamma: float = 1.0

    def of(self, chunk: Chunk) -> T | None:
        """The value for one chunk."""
        log = chunk.treated(self.cut, self.gamma)
        return None if log is None else self.make(log, *self.given)

    def merge(self, one: T, other: T) -> T:
        """The value for two chunks together."""
        return self.join(one, other)


@dataclass(frozen=True, eq=False)
class _ByChunk(Generic[T]):
    """First group of a chunk → what a function makes of the chunk and its treated log."""

    make: Callable[..., T]
    given: tuple[Any, ...]
    cut: Cut | None
    gamma: float

    def of(self, chunk: Chunk) -> dict[int, T] | None:
        log = chunk.treated(self.cut, self.gamma)
        return None if log is None else {chunk.first_group: self.make(chunk, log, *self.given)}

    def merge(self, one: dict[int, T], other: dict[int, T]) -> dict[int, T]:
        return one | other


def in_order(
    source: Source | Log,
    make: Callable[..., T],
    *given: Any,
    cut: Cut | None = None,
    gamma: float = 1.0,
) -> list[T]:
    """What a function makes of every chunk, in the order of the log.

    Args:
        source: The log, wherever its rows are.
        make: Called with a chunk, its treated and gathered log, and `given`; an importable
            function.
        *given: Further arguments of `make`.
        cut: What is done with cut episodes. Default None: there are none.
        gamma: Discount per step. Default 1.
    """
    by_chunk = source.reduce(_ByChunk(make, given, cut, gamma))
    return [by_chunk[first] for first in sorted(by_chunk)]


def columns_in_order(
    source: Source | Log,
    make: Callable[..., tuple[NDArray[Any], ...]],
    *given: Any,
    cut: Cut | None = None,
    gamma: float = 1.0,
) -> tuple[NDArray[Any], ...]:
    """The columns that a function makes of every chunk, put end to end in the order of the log.

    Arguments are those of `in_order`; `make` returns arrays, as many for every chunk.
    """
    parts = in_order(source, make, *given, cut=cut, gamma=gamma)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


# --- Whether actions were randomised, as far as a log says, in a sentence


def chances_words(log: Log) -> str:
    """Randomised, mixed or estimated: how far the log knows the probabilities of actions."""
    n = 0 if log.propensity is None else int((~np.isnan(log.propensity)).sum())
    return recorded_words(n, log.n_steps)


def recorded_words(known_rows: int, n: int) -> str:
    """The same of a log that records the probability of the action taken on so many of n rows."""
    if not known_rows:
        return say(
            "Not randomised as far as this log says: it does not record with which probabilities "
            "actions were taken; where they are needed they are estimated."
        )
    if known_rows == n:
        return say(
            "Randomised: this log records on all {n:,} rows with which probability the action was "
            "taken.",
            n=n,
        )
    return say(
        "Mixed: this log records on {k:,} of {n:,} rows with which probability the action was "
        "taken; elsewhere probabilities are estimated where they are needed.",
        k=known_rows,
        n=n,
    )


# --- What treatments of cut episodes assume, in words that certificates, policies and pages share

DROPS = ("drop", "drop-unrelated")
"""The treatments that leave cut episodes out."""

UNRELATED = say("whether an episode was cut depends neither on its length nor on its outcome")
"""What ``"drop-unrelated"`` declares."""

WEIGHED = sentences(
    say(
        "what is seen counts by the inverse of the chance to be followed so far, estimated by "
        "step, state and action with a logistic model, cross-fitted by group "
        "(inverse-probability-of-censoring weights, large-sample)."
    ),
    say("It is assumed that no more than these tells who was cut."),
)
"""What "ipcw" does and assumes."""

COMPLETED = sentences(
    say(
        "they are completed by two models, of who was seen and of what comes, from state and "
        "action (cross-fitted by group, large-sample)."
    ),
    say("It is assumed that no more than these tells both who was seen and what came."),
)
"""What is done about outcomes that were not seen (`dprl.logs.unseen`), and assumed."""


def unseen_words(columns: Mapping[str, Any]) -> str:
    """How many outcomes of a log with these columns were not seen, and what is done.

    Args:
        columns: The columns of a log, or those that a policy keeps.

    Returns:
        A sentence; '' where outcomes are as they were recorded. Of a part of a log in which all
        were seen it says 0: its outcomes were weighed for others all the same.
    """
    if not columns.get("unseen"):
        return ""
    n = int(columns["unseen"].get("rows", 0))
    return say_many(
        "{n:,} outcome was not seen: {completed}", "{n:,} outcomes were not seen: {completed}", n,
        completed=COMPLETED,
    )  # fmt: skip


def refuse_completed(source: Any, do: str = "") -> None:
    """Refuse a proof where outcomes were not seen: what completes them is estimated.

    Args:
        source: A log, wherever its rows are.
        do: What to do about it. Default "": ask for large samples.
    """
    columns = source.facts.columns if hasattr(source, "facts") else {}
    if unseen_words(columns):
        raise LogError(
            f"{columns['unseen']['rows']:,} outcomes of this log were not seen; what completes "
            "them is estimated, so nothing can be proved from them.",
            do=do or worded("Say {grade}.", grade=option("grade", "large-sample")),
        )


# --- A log in parts: a log that need not fit into memory (see `dprl.logs.source`)
#
# A part is an ordinary `Log` of some of the groups, all of them whole. Parts follow the order of
# the groups; their states and actions are coded by the labels of the *whole* log, their episodes
# and groups are their own. A statistic of the log is computed chunk by chunk by an `executor`: in
# this process, one part after another, or on a cluster, where another executor does the same.

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
        >>> from dprl.logs.source import parts_of
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
            >>> from dprl.logs.source import parts_of
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
            >>> from dprl.logs.source import parts_of
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
            >>> from dprl.logs.source import parts_of
            >>> parts = parts_of(dprl.envs.risky_arms().sample(100, seed=0), rows=50)
            >>> int(parts.reduce(Counts(gamma=1.0)).steps.sum())
            200
        """
        result: T | None = self.executor(
            self.sources, _statistic_of, statistic.merge, (statistic,), progress
        )
        if result is None:
            from dprl.logs.censoring import none_is_left

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
        >>> from dprl.logs.source import parts_of
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
