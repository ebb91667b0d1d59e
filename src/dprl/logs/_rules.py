"""Rules about the rows of a source; each rule is one small function, registered where it stands.

A rule looks at a chunk of rows (whole episodes; in memory all rows at once) and returns what it
`Found`, or None. What it found in several chunks adds up, so that the same function judges a log in
memory and one that is read in parts. An error stops the reading, with the finding as its three-line
message; a warning or a note goes into the report of `dprl.check`. For a new rule: one function
with `row_rule` above it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.plural import many
from dprl._core.words import either, option, worded
from dprl.logs._columns import Coded, Columns
from dprl.logs._doses import column_label
from dprl.logs._ending_rules import ending
from dprl.logs._findings import Finding, Found, Level, Whole
from dprl.logs._reward_gaps import AtTheEnd, at_the_end, outcome_advice
from dprl.logs._row_facts import blocks, is_large, some_missing
from dprl.logs.columns import ROLES
from dprl.logs.log import UNKNOWN

__all__ = ["NO_ROWS", "ROW_RULES", "RowFindings", "missing_rows", "row_rule"]

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


def missing_rows(c: Columns, features: bool = True) -> dict[str, NDArray[np.bool_]]:
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


@row_rule("no_outcome")
def no_outcome(c: Columns) -> Found | None:
    """An episode has no reward at all, where missing rewards are to be 0."""
    if c.no_outcome is None:
        return None
    return c.found(
        c.no_outcome,
        "{name!r} is missing on every row of {touched_number:,} of {episodes:,} episodes: their "
        "outcome is not known.",
        do="Unknown is not 0. Leave these episodes out of the file, or write their outcome (0 "
        "where it is 0).",
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
    """

    by_column: dict[str, tuple[int, int]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    reward: str = ""

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
            (outcome_advice(whole.outcomes(), name) if name == self.reward else "")
            or worded(
                "A return is a whole tail of an episode. Fill it, or leave such episodes out: "
                "{missing}.",
                missing=option("missing", "drop-episodes"),
            ),
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
        reward=str(c.names["reward"]),
    )  # fmt: skip


# -- rewards -----------------------------------------------------------------------------------


@row_rule("not_finite")
def not_finite(c: Columns) -> Found | None:
    """A reward, a feature or a number of a further role is infinite."""
    columns = [] if np.isfinite(c.reward_span).all() else [(str(c.names["reward"]), c.reward)]
    columns += [(str(c.names[part]), values) for part, values in c.more.items()]
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
    from dprl.logs._code_loops import group_changes_within

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
