"""Rules about the rows of a source; each rule is one small function, registered where it stands.

A rule looks at a chunk of rows (whole episodes; in memory all rows at once) and returns what it
`Found`, or None. What it found in several chunks adds up, so that the same function judges a log in
memory and one that is read in parts. An error stops the reading, with the finding as its three-line
message; a warning or a note goes into the report of `dprl.check`. For a new rule: one function
with `row_rule` above it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools
from dprl._core.table import many
from dprl._core.words import either, worded
from dprl.errors import ParameterError
from dprl.logs.checking.findings import Finding, Found, Level, Whole
from dprl.logs.encoding.doses import column_label
from dprl.logs.log import CUT, EVENT, TERMINAL, UNKNOWN
from dprl.logs.reading.columns import Coded, Columns, blocks, is_large, some_missing
from dprl.logs.roles import ROLES

# --- How an episode ended, as a column says it: terminal, cut, or a competing event
#
# A competing event (death while waiting for a transplant; a move to another arm of the pathway)
# ends an episode as surely as the end that was waited for: what its rewards say is its outcome, and
# nothing comes after. It is not a cut, after which something came that was not seen. Whoever codes
# such events as censored asks what would happen if nobody died.

ENDINGS: dict[Any, int] = {
    1: TERMINAL, "1": TERMINAL, "true": TERMINAL, "terminal": TERMINAL,
    "terminated": TERMINAL, "yes": TERMINAL,
    0: CUT, "0": CUT, "false": CUT, "cut": CUT, "truncated": CUT, "no": CUT, "censored": CUT,
}  # fmt: skip


def check_events(events: Any) -> tuple[str, ...]:
    """The names of competing events, sorted; a ParameterError where they cannot be that."""
    if events is None:
        return ()
    given = [events] if isinstance(events, str) else list(events)
    names = sorted({str(name).strip() for name in given})
    taken = [name for name in names if name.lower() in ENDINGS]
    if taken or "" in names or len({name.lower() for name in names}) < len(names):
        raise ParameterError(
            "events must be names of competing events, each once; got "
            f"{', '.join(map(repr, given))}.",
            f"{taken[0]!r} says already how an episode ended" if taken else "",
            worded(
                "Name what else can end an episode: {choice}.",
                choice=either("events=['death']", "--events death"),
            ),
        )
    if len(names) > 200:
        raise ParameterError(f"there can be at most 200 competing events; got {len(names):,}.")
    return tuple(names)


def ending(c: Columns) -> NDArray[np.uint8]:
    """uint8 (N,): TERMINAL, CUT, an event, or UNKNOWN (missing, or a word that means none)."""
    if c.ended is None:
        return np.zeros(c.n, np.uint8)
    return np.array([*meanings(c.ended.labels, c.events), UNKNOWN], np.uint8)[c.ended.codes]


def meanings(labels: Iterable[Any], events: Sequence[str]) -> list[int]:
    """What labels of the column of endings mean: TERMINAL, CUT, an event, or UNKNOWN for none."""
    codes = {name.lower(): EVENT + i for i, name in enumerate(events)}

    def meaning(label: Any) -> int:
        word = label.strip().lower() if isinstance(label, str) else label
        return ENDINGS.get(word, codes.get(str(word), UNKNOWN))

    return [meaning(label) for label in labels]


def rows_after_end(c: Columns, order: NDArray[Any] | None) -> tuple[Found | None, Found | None]:
    """A terminal mark before the last row of an episode, and a last row that says nothing.

    `order` sorts rows by episode and time; without one the rows are sorted already.

    A mark that is repeated on every row of an episode is a property of the episode, and accepted.
    """
    if c.ended is None:
        return None, None
    mark, e = ending(c), c.episode.codes
    if order is not None:
        mark, e = mark[order], e[order]
    last = np.append(e[1:] != e[:-1], True)
    whole = np.ones(len(c.episode.labels), bool)
    is_end = (mark == TERMINAL) | (mark >= EVENT)
    whole[e[~is_end]] = False
    early = is_end & ~last & ~whole[e]
    unsaid = last & (mark == UNKNOWN)

    def found(rows: Bools, what: str, do: str) -> Found | None:
        at = np.zeros(c.n, bool)
        at[np.flatnonzero(rows) if order is None else order[rows]] = True
        return c.found(at, f"{{name!r}}: {what} in {{touched}}.", do=do, name=c.names["ended"])

    do = "Write terminal or cut there."
    if "survival" in c.names:
        do = "Write there who was censored (0) and what happened, or leave such episodes out."
    return (
        found(early, "rows follow a terminal mark", "Start a new episode after each end."),
        found(unsaid, "the last row does not say how it ended", do),
    )


# --- Rewards that are missing: outcomes that are recorded at the end of an episode alone
#
# `missing={"score": "zero"}` says that a missing reward is 0. An episode without any reward is
# refused all the same: that its outcome is unknown does not make it 0.

ELSEWHERE = 0.01
"""At most this share of the other rows may have a reward where outcomes are at the end."""


class AtTheEnd(NamedTuple):
    """Where the rewards of a log are.

    Attributes:
        last: Number of episodes with a reward on their last row.
        episodes: Number of episodes.
        elsewhere: Number of rows with a reward that are not the last of their episode.
        others: Number of rows that are not the last of their episode.
    """

    last: int
    episodes: int
    elsewhere: int
    others: int

    def plus(self, other: AtTheEnd) -> AtTheEnd:
        """Where the rewards of two chunks of a log are."""
        return AtTheEnd(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def is_outcome(self) -> bool:
        """Whether the rewards are outcomes: on last rows, and (nearly) nowhere else."""
        return self.last > 0 and self.others > 0 and self.elsewhere <= ELSEWHERE * self.others


def _last_rows(c: Columns) -> Bools | None:
    """bool (N,): the last row of each episode; None where that is not known."""
    if not c.n or (c.episode.codes < 0).any():
        return None
    if c.time_missing is not None and c.time_missing.any():
        return None
    e = c.episode.codes
    if c.in_order:
        return np.append(e[1:] != e[:-1], True)
    order = np.argsort(e, kind="stable") if c.time is None else np.lexsort((c.time, e))
    last = np.zeros(c.n, bool)
    last[order[np.append(e[order][1:] != e[order][:-1], True)]] = True
    return last


def at_the_end(c: Columns) -> AtTheEnd | None:
    """Where the rewards are; None where the order of rows is not known."""
    last = _last_rows(c)
    if last is None:
        return None
    recorded = ~np.isnan(c.reward)
    return AtTheEnd(
        int((recorded & last).sum()),
        int(last.sum()),
        int((recorded & ~last).sum()),
        int((~last).sum()),
    )


def outcome_advice(where: AtTheEnd | None, name: str) -> str:
    """What to do about rewards that are recorded at the end alone; '' where they are not."""
    if where is None or not where.is_outcome:
        return ""
    without = where.episodes - where.last
    lost = (
        f" {without:,} episode{'s' * (without != 1)} without an outcome: leave them out of the "
        "file, or write it."
        if without
        else ""
    )
    return worded(
        "It is there on the last row of {last:,} of {episodes:,} episodes, and on {elsewhere:,} "
        "of {others:,} other rows: an outcome. If the reward before it is 0, say so: "
        "{choice}.{lost}",
        last=where.last,
        episodes=where.episodes,
        elsewhere=where.elsewhere,
        others=where.others,
        choice=either(f'missing={{"{name}": "zero"}}', f"--missing {name}=zero"),
        lost=lost,
    )


def with_zeros(c: Columns, words: Mapping[str, str]) -> Columns:
    """The columns in which a missing reward is 0, where that was asked for.

    Rows of episodes that have no reward at all are in `no_outcome`, and refused by a rule.
    """
    if words.get(str(c.names["reward"])) != "zero" or not np.isnan(c.reward_span).any():
        return c
    gone = np.isnan(c.reward)
    e = c.episode.codes
    some = np.zeros(len(c.episode.labels) + 1, bool)
    some[e[~gone]] = True
    some[-1] = True  # of rows without an episode
    return replace(c, reward=np.where(gone, 0.0, c.reward), no_outcome=~some[e])


def zeros_before_the_end(c: Columns) -> Columns:
    """The columns in which rewards before the last row are 0, where rewards are outcomes."""
    if not np.isnan(c.reward_span).any():
        return c
    where, last = at_the_end(c), _last_rows(c)
    if where is None or last is None or not where.is_outcome:
        return c
    return replace(c, reward=np.where(np.isnan(c.reward) & ~last, 0.0, c.reward))


# --- Rules about the rows of a source; each rule is one small function, registered where it
# stands

LARGEST_REWARD = 1e100
NO_ROWS = Finding("error", "no_rows", "the source holds no rows.", do="Check the file or query.")


@dataclass(frozen=True)
class RowRule:
    """A rule about rows: its name, how bad it is, and the function that asks a chunk."""

    key: str
    level: Level
    ask: Callable[[Columns], Found | None]


ROW_RULES: list[RowRule] = []
"""All rules about rows, in the order in which their errors are raised."""


def row_rule(key: str, level: Level = "error") -> Callable[[Any], Any]:
    """Register the function below as a rule about rows."""

    def register(ask: Callable[[Columns], Found | None]) -> Callable[[Columns], Found | None]:
        ROW_RULES.append(RowRule(key, level, ask))
        return ask

    return register


@dataclass
class RowFindings:
    """What the rules found in the chunks that were added so far.

    Attributes:
        levels: The levels of the rules that are asked.
        n: Number of rows.
        episodes: Number of episodes.
        found: Place of a rule in `ROW_RULES` → what it found.
    """

    levels: Collection[Level] = ("error", "warning", "note")
    n: int = 0
    episodes: int = 0
    found: dict[int, Found] = field(default_factory=dict)
    _outcomes: AtTheEnd | None = field(default_factory=lambda: AtTheEnd(0, 0, 0, 0))

    def add(self, c: Columns) -> None:
        """Ask all rules about a chunk."""
        self.n += c.n
        self.episodes += len(c.episode.labels)
        if c.number is not None:  # one of several: on which rows rewards are may be asked later
            own, before = at_the_end(c), self._outcomes
            self._outcomes = None if own is None or before is None else before.plus(own)
        for i, rule in enumerate(ROW_RULES):
            new = rule.ask(c) if rule.level in self.levels else None
            if new is not None:
                self.found[i] = self.found[i] + new if i in self.found else new

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(ROW_RULES[i].level == "error" for i in self.found)

    def findings(self, place: Callable[[int], str], c: Columns | None = None) -> list[Finding]:
        """The findings about all rows, in the order of the rules.

        Args:
            place: Says where a row is, by its number in the source, from 0.
            c: The only chunk, where there is but one. Default None.
        """
        if not self.n:
            return [NO_ROWS]
        whole = Whole(
            self.n, self.episodes, place, lambda: self._outcomes if c is None else at_the_end(c)
        )
        return [
            hits.finding(ROW_RULES[i].level, ROW_RULES[i].key, whole)
            for i, hits in sorted(self.found.items())
        ]


# -- missing values ----------------------------------------------------------------------------


def missing_rows(c: Columns, features: bool = True) -> dict[str, Bools]:
    """Column name → bool (N,), for every column with a missing value; features only if asked."""
    where_missing = {}
    for role in ROLES:
        column = getattr(c, role.name) if role.holds in ("labels", "menus") else None
        if column is not None and some_missing(column):
            where_missing[column_label(c.names[role.name])] = column.codes < 0
    if np.isnan(c.reward_span).any():
        where_missing[str(c.names["reward"])] = np.isnan(c.reward)
    if c.time_missing is not None:
        where_missing[str(c.names["time"])] = c.time_missing
    if features and c.features is not None:
        for j, name in enumerate(c.feature_names):
            where_missing[name] = np.isnan(c.features[:, j])
    return {name: rows for name, rows in where_missing.items() if rows.any()}


SEEN_LAST = "Write the last time at which they were seen, as censored."
"""What to do about a time to event that is missing."""


@row_rule("no_outcome")
def no_outcome(c: Columns) -> Found | None:
    """An episode has no reward at all, where missing rewards are to be 0."""
    if c.no_outcome is None:
        return None
    return c.found(
        c.no_outcome,
        "{name!r} is missing on every row of {touched_number:,} of {episodes:,} episodes: their "
        "outcome is not known.",
        do=SEEN_LAST
        if "survival" in c.names
        else "Unknown is not 0. Write weights in place of zero, which weighs those that were "
        "measured, or write their outcome (0 where it is 0).",
        name=str(c.names["reward"]),
    )


@row_rule("episode_missing")
def episode_missing(c: Columns) -> Found | None:
    """A row without an episode belongs to nobody."""
    if not some_missing(c.episode):
        return None
    return c.found(
        c.episode.codes < 0,
        "{name!r} is missing on {rows:,} of {n:,} rows.",
        do="A row without an episode belongs nowhere: fill it, or delete these rows.",
        name=c.names["episode"],
    )


@dataclass(frozen=True)
class _Gaps(Found):
    """Missing values of several columns, of which the first is named in full.

    Attributes:
        by_column: Name → number of rows on which it is missing, and the first of them.
        order: The names of all columns, in the order in which they are told.
        reward: The name of the column of rewards.
        timed: Whether these are times to an event.
    """

    by_column: dict[str, tuple[int, int]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    reward: str = ""
    timed: bool = False

    def __add__(self, other: Any) -> Any:
        counts = dict(self.by_column)
        for name, (rows, first) in other.by_column.items():
            before = counts.get(name, (0, first))
            counts[name] = (before[0] + rows, min(before[1], first))
        return replace(self, by_column=counts, touched=self.touched + other.touched)

    def finding(self, level: Level, rule: str, whole: Whole) -> Finding:
        (name, (rows, first)), *others = sorted(
            self.by_column.items(), key=lambda item: self.order.index(item[0])
        )
        also = "".join(f", {k!r} on {count:,}" for k, (count, _) in others[:4])
        also += f", {len(others) - 4:,} more columns on some" if len(others) > 4 else ""
        return Finding(
            level,
            rule,
            f"{name!r} is missing on {rows:,} of {whole.n:,} rows{also}.",
            f"{whole.place(first)}; {many(self.touched, 'episode')} touched.",
            (outcome_advice(whole.outcomes(), name) or self._weights(name))
            if name == self.reward
            else worded(
                "A return is a whole tail of an episode. Fill it, or leave such episodes out: "
                "{missing='drop-episodes'}."
            ),
        )

    def _weights(self, name: str) -> str:
        """What to do about an outcome that was not measured."""
        if self.timed:
            return SEEN_LAST
        return worded(
            "Weigh those that were measured ({weights}), or fill it. To leave such episodes out "
            "({missing='drop-episodes'}) compares those who stayed.",
            weights=either(f"missing={{{name!r}: 'weights'}}", f"--missing {name}=weights"),
        )


@row_rule("missing")
def missing(c: Columns) -> Found | None:
    """A value is missing in a column other than the episode and the features."""
    where_missing = missing_rows(c, False)
    where_missing.pop(str(c.names["episode"]), None)
    if not where_missing:
        return None
    rows = np.logical_or.reduce(list(where_missing.values()))
    every = c.found(rows, "{touched}")
    assert every is not None
    by_column = {
        name: (int(gone.sum()), c.first(gone) if c.number is None else int(c.number[gone].min()))
        for name, gone in where_missing.items()
    }
    roles = [*(r.name for r in ROLES if r.holds in ("labels", "menus")), "reward", "time"]
    order = tuple(column_label(c.names[part]) for part in roles if part in c.names)
    return _Gaps(
        every.rows, every.first, "", touched=every.touched, by_column=by_column, order=order,
        reward=str(c.names["reward"]), timed="survival" in c.names,
    )  # fmt: skip


# -- rewards -----------------------------------------------------------------------------------


@row_rule("not_finite")
def not_finite(c: Columns) -> Found | None:
    """A reward, a feature or a number of a further role is infinite."""
    columns = [] if np.isfinite(c.reward_span).all() else [(str(c.names["reward"]), c.reward)]
    columns += [(str(c.names.get(part, part)), values) for part, values in c.more.items()]
    if c.features is not None:
        columns += [(name, c.features[:, j]) for j, name in enumerate(c.feature_names)]
    what = "{name!r} is infinite on {rows:,} of {n:,} rows."
    do = "Replace it by a number, or leave it empty."
    each = (c.found(np.isinf(values), what, do=do, name=name) for name, values in columns)
    return next((hits for hits in each if hits is not None), None)


@row_rule("reward_too_large")
def reward_too_large(c: Columns) -> Found | None:
    """A reward is larger than sums of squares can hold."""
    if np.abs(c.reward_span).max() <= LARGEST_REWARD:  # false where one is missing
        return None
    with np.errstate(invalid="ignore"):
        rows = (np.abs(c.reward) > LARGEST_REWARD) & np.isfinite(c.reward)
    return c.found(
        rows,
        f"{{name!r}} is beyond ±{LARGEST_REWARD:.0e} on {{rows:,}} of {{n:,}} rows.",
        "{place}: {value:g}",
        "This looks like a code for 'missing'; leave such cells empty.",
        name=c.names["reward"],
        value=c.reward.__getitem__,
    )


# -- episodes ----------------------------------------------------------------------------------


@row_rule("duplicate_times")
def duplicate_times(c: Columns) -> Found | None:
    """Two rows of one episode have the same time."""
    if c.time is None or c.n < 2 or c.in_order:
        return None
    if c.by_time is not None and not c.by_time.twins:
        return None
    timed = np.flatnonzero(~c.time_missing) if c.time_missing is not None else np.arange(c.n)
    number = np.arange(c.n) if c.number is None else c.number
    order = timed[np.lexsort((number[timed], c.time[timed], c.episode.codes[timed]))]
    e, t = c.episode.codes[order], c.time[order]
    twin = np.flatnonzero((e[1:] == e[:-1]) & (t[1:] == t[:-1]) & (e[1:] >= 0))
    if not len(twin):
        return None
    first, second = number[order[twin]], number[order[twin + 1]]
    at = int(np.argmin(second))
    return Found(
        len(twin),
        int(second[at]),
        "{rows:,} rows share {episode!r} and {time!r} with another.",
        "{place}, same as row {same:,}; {touched} touched.",
        "There can be one decision per time: merge these rows, or make the times finer.",
        len(np.unique(e[twin])),
        {"episode": c.names["episode"], "time": c.names["time"], "same": int(first[at]) + 1},
    )


@row_rule("group_changes")
def group_changes(c: Columns) -> Found | None:
    """Rows of one episode name different groups."""
    if c.group is None or not c.n or not _may_change(c, c.group):
        return None
    has_both = (c.episode.codes >= 0) & (c.group.codes >= 0)
    if not has_both.any():
        return None
    at = np.flatnonzero(has_both)
    if c.number is not None:
        at = at[np.argsort(c.number[at])]  # the group of an episode is that of its last row
    group_of_episode = np.full(len(c.episode.labels), -1, np.int64)
    group_of_episode[c.episode.codes[at]] = c.group.codes[at]
    rows = has_both & (group_of_episode[c.episode.codes] != c.group.codes)
    return c.found(
        rows,
        "{name!r} changes within {touched}.",
        do="A group is one or more whole episodes (a patient with several stays).",
        name=c.names["group"],
    )


def _may_change(c: Columns, group: Coded) -> bool:
    """Whether rows of one episode may name different groups; for few rows nobody looks."""
    if not is_large(c.n):
        return True
    episode = c.episode
    if c.number is not None:  # rows of an episode stand together in a chunk
        same = episode.codes[1:] == episode.codes[:-1]
        return bool((same & (group.codes[1:] != group.codes[:-1])).any())
    from dprl.logs.reading.loops import group_changes_within

    of_episode = np.full(len(episode.labels), -1, np.int32)
    return bool(group_changes_within(episode.codes, group.codes, of_episode))


# -- actions, and the chance with which they were taken ------------------------------------------


@row_rule("action_unavailable")
def action_unavailable(c: Columns) -> Found | None:
    """An action was taken that the log says was not available."""
    if c.available is None or not c.n:
        return None
    actions = c.action.labels
    menus = np.array([[a in menu for a in actions] for menu in c.available.labels], bool).reshape(
        len(c.available.labels), len(actions)
    )
    has_both = (c.action.codes >= 0) & (c.available.codes >= 0)
    rows = np.zeros(c.n, bool)
    rows[has_both] = ~menus[c.available.codes[has_both], c.action.codes[has_both]]
    menu = c.available.at
    return c.found(
        rows,
        "an action not in {name!r} was taken on {rows:,} of {n:,} rows.",
        "{place}: took {took!r}, available {menu}",
        "Mend the available column, or leave it out.",
        name=c.names["available"],
        took=c.action.at,
        menu=lambda row: ", ".join(map(str, menu(row))) or "nothing",
    )


@row_rule("propensity_outside")
def propensity_outside(c: Columns) -> Found | None:
    """A chance of what was done that is no chance: 0 or less, or above 1."""
    if c.propensity is None:
        return None
    with np.errstate(invalid="ignore"):
        rows = ~np.isnan(c.propensity) & ~((c.propensity > 0) & (c.propensity <= 1))
    return c.found(
        rows,
        "{name!r} is not above 0 and at most 1 on {rows:,} of {n:,} rows.",
        "{place}: {value:g}",
        "It is the chance with which the action taken was taken; leave it empty where it is "
        "unknown.",
        name=c.names["propensity"],
        value=c.propensity.__getitem__,
    )


@row_rule("propensity_alone")
def propensity_alone(c: Columns) -> Found | None:
    """A chance below 1 of the only action that was available."""
    if c.propensity is None or c.available is None:
        return None
    alone = np.array([len(menu) == 1 for menu in c.available.labels] + [False], bool)
    with np.errstate(invalid="ignore"):
        rows = alone[c.available.codes] & (c.propensity < 1)
    return c.found(
        rows,
        "{name!r} is below 1 where only one action is in {menus!r}, on {rows:,} of {n:,} rows.",
        "{place}: {value:g}",
        "What nothing else could replace was done with chance 1: mend one of the two columns.",
        name=c.names["propensity"],
        menus=c.names["available"],
        value=c.propensity.__getitem__,
    )


@row_rule("ended_unknown")
def ended_unknown(c: Columns) -> Found | None:
    """The ended column holds a word that means neither terminal nor cut, nor an event."""
    if c.ended is None:
        return None
    rows = (ending(c) == UNKNOWN) & (c.ended.codes >= 0)
    word = c.ended.at
    return c.found(
        rows,
        "{name!r} holds {word!r}, which is neither terminal nor cut{besides} ({rows:,} of {n:,} "
        "rows).",
        do=worded(
            "Write terminal or cut (also true or false; censored means cut) on the last row of "
            "each episode. If it is an event that ends an episode, name it: {choice}.",
            choice=either("events=[{event!r}]", "--events {event!r}"),
        ),
        name=c.names["ended"],
        word=word,
        event=lambda row: str(word(row)),
        besides="".join(f" nor {name}" for name in c.events),
    )


# -- the order of rows ---------------------------------------------------------------------------


@row_rule("order_of_rows")
def rows_apart(c: Columns) -> Found | None:
    """Rows of an episode do not stand together, and no time says how they follow each other."""
    if c.time is not None or (c.number is None and c.in_order):
        return None
    e = c.episode.codes
    if c.number is None:  # as in the source: a run begins where the episode changes
        begins = np.append(np.ones(min(c.n, 1), bool), e[1:] != e[:-1])
    else:  # by episode: a run begins where a number is left out
        begins = np.append(np.ones(min(c.n, 1), bool), np.diff(c.number) != 1)
        begins[1:] |= e[1:] != e[:-1]
    begins[np.unique(e, return_index=True)[1]] = False
    return c.found(
        begins,
        "rows of an episode do not stand together ({runs:,} runs of rows, {episodes:,} episodes), "
        "and no time column was named.",
        do="Name a time column, sort the rows, or give episodes of different files different ids.",
    )


@row_rule("order_of_rows", "note")
def out_of_order(c: Columns) -> Found | None:
    """Rows that are not in the order of their times: sorted, and harmless."""
    if c.time is None or (c.number is None and c.in_order):
        return None
    if c.number is None and c.by_time is not None and not c.by_time.moved:
        return None
    e, order = c.episode.codes, c.by_episode if c.number is None else None
    if order is None:
        timed = np.flatnonzero(e >= 0 if c.time_missing is None else (e >= 0) & ~c.time_missing)
        keys = e[timed] if c.number is None else (c.number[timed], e[timed])
        order = timed[np.argsort(keys, kind="stable") if c.number is None else np.lexsort(keys)]
    rows = np.zeros(c.n, bool)
    for a, b in blocks(len(order)):  # each beside the row of its episode that is written before it
        here, before = order[max(a, 1) : b], order[max(a, 1) - 1 : b - 1]
        rows[here] = (e[here] == e[before]) & (c.time[here] < c.time[before])
    return c.found(
        rows,
        "{rows:,} of {n:,} rows are not in the order of {name!r}.",
        do="They were sorted by it.",
        name=c.names["time"],
    )


# -- what was declared ---------------------------------------------------------------------------


def _undeclared(c: Columns, part: str) -> Found | None:
    """Labels that are not among those the user declared."""
    column: Coded | None = getattr(c, part)
    if part not in c.declared or column is None:
        return None
    declared = set(c.declared[part])
    new = np.array([label not in declared for label in column.labels] + [False], bool)
    rows = new[column.codes]
    return c.found(
        rows,
        "{name!r} holds {labels:,} labels that were not declared ({rows:,} of {n:,} rows).",
        "{place}: {label!r}",
        f"Add them to {part}s=, or mend the rows.",
        name=column_label(c.names[part]),
        labels=int(new.sum()),
        label=column.at,
    )


@row_rule("unknown_labels")
def unknown_states(c: Columns) -> Found | None:
    """A state that is not among those the user declared."""
    return _undeclared(c, "state")


@row_rule("unknown_labels")
def unknown_actions(c: Columns) -> Found | None:
    """An action that is not among those the user declared."""
    return _undeclared(c, "action")


@row_rule("outside")
def outside(c: Columns) -> Found | None:
    """A reward outside the range the user declared."""
    low, high = c.reward_span
    if c.bounds is None or (c.bounds[0] <= low and high <= c.bounds[1]):
        return None
    rows = (c.reward < c.bounds[0]) | (c.reward > c.bounds[1])
    return c.found(
        rows,
        "{name!r} leaves the declared range {low:g}..{high:g} on {rows:,} of {n:,} rows.",
        "{place}: {value:g}",
        "Mend these rows, or declare the range that is true.",
        name=c.names["reward"],
        low=c.bounds[0],
        high=c.bounds[1],
        value=c.reward.__getitem__,
    )
