"""Rules about the rows of a source; each rule is one small function.

A rule looks at the columns and returns a `Finding` or None. An error stops the reading, with the
finding as its three-line message; a warning or a note goes into the report of `dprl.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import option, worded
from dprl.logs._columns import Coded, Columns
from dprl.logs._doses import called
from dprl.logs._ending_rules import ended_unknown
from dprl.logs._findings import Finding
from dprl.logs._label_rules import look_alikes, merged_labels, spellings
from dprl.logs._near_labels import near_labels
from dprl.logs._probability_rules import propensity_alone, propensity_outside
from dprl.logs._reward_gaps import at_the_end, outcome_advice
from dprl.logs._row_facts import blocks, is_large, some_missing
from dprl.logs.columns import ROLES

__all__ = ["ROW_RULES", "missing_rows", "outside", "unknown_labels"]

LARGEST_REWARD = 1e100


def _touched(c: Columns, rows: NDArray[np.bool_]) -> int:
    return len(np.unique(c.episode.codes[rows]))


def _first(rows: NDArray[np.bool_]) -> int:
    return int(np.argmax(rows))


def missing_rows(c: Columns, features: bool = True) -> dict[str, NDArray[np.bool_]]:
    """Column name → bool (N,), for every column with a missing value; features only if asked."""
    where_missing = {}
    for role in ROLES:
        part = role.name
        column = getattr(c, part)
        labelled = role.holds in ("labels", "menus") and column is not None
        if labelled and some_missing(column):
            where_missing[called(c.names[part])] = column.codes < 0
    if np.isnan(c.reward_span).any():
        where_missing[str(c.names["reward"])] = np.isnan(c.reward)
    if c.time_missing is not None:
        where_missing[str(c.names["time"])] = c.time_missing
    if features and c.features is not None:
        for j, name in enumerate(c.feature_names):
            where_missing[name] = np.isnan(c.features[:, j])
    return {name: rows for name, rows in where_missing.items() if rows.any()}


def no_rows(c: Columns) -> Finding | None:
    """The source has no rows."""
    if c.n:
        return None
    return Finding("error", "no_rows", "the source holds no rows.", do="Check the file or query.")


def episode_missing(c: Columns) -> Finding | None:
    """A row without an episode belongs to nobody."""
    if not some_missing(c.episode):
        return None
    rows = c.episode.codes < 0
    return Finding(
        "error",
        "episode_missing",
        f"{c.names['episode']!r} is missing on {rows.sum():,} of {c.n:,} rows.",
        c.place(_first(rows)),
        "A row without an episode belongs nowhere: fill it, or delete these rows.",
    )


def missing(c: Columns) -> Finding | None:
    """A value is missing in a column other than the episode and the features."""
    where_missing = {
        k: rows for k, rows in missing_rows(c, False).items() if k != c.names["episode"]
    }
    if not where_missing:
        return None
    (name, first), *others = where_missing.items()
    also = "".join(f", {k!r} on {rows.sum():,}" for k, rows in others[:4])
    also += f", {len(others) - 4:,} more columns on some" if len(others) > 4 else ""
    rows = np.logical_or.reduce(list(where_missing.values()))
    n = _touched(c, rows)
    return Finding(
        "error",
        "missing",
        f"{name!r} is missing on {first.sum():,} of {c.n:,} rows{also}.",
        f"{c.place(_first(first))}; {n:,} episode{'s' * (n != 1)} touched.",
        (outcome_advice(at_the_end(c), name) if name == c.names["reward"] else "")
        or worded(
            "A return is a whole tail of an episode. Fill it, or leave such episodes out: "
            "{missing}.",
            missing=option("missing", "drop-episodes"),
        ),
    )


def not_finite(c: Columns) -> Finding | None:
    """A reward or a feature is infinite."""
    columns = [] if np.isfinite(c.reward_span).all() else [(str(c.names["reward"]), c.reward)]
    if c.features is not None:
        columns += [(name, c.features[:, j]) for j, name in enumerate(c.feature_names)]
    for name, values in columns:
        rows = np.isinf(values)
        if rows.any():
            return Finding(
                "error",
                "not_finite",
                f"{name!r} is infinite on {rows.sum():,} of {c.n:,} rows.",
                c.place(_first(rows)),
                "Replace it by a number, or leave it empty.",
            )
    return None


def reward_too_large(c: Columns) -> Finding | None:
    """A reward is larger than sums of squares can hold."""
    if np.abs(c.reward_span).max() <= LARGEST_REWARD:  # false where one is missing
        return None
    with np.errstate(invalid="ignore"):
        rows = (np.abs(c.reward) > LARGEST_REWARD) & np.isfinite(c.reward)
    if not rows.any():
        return None
    row = _first(rows)
    return Finding(
        "error",
        "reward_too_large",
        f"{c.names['reward']!r} is beyond ±{LARGEST_REWARD:.0e} on {rows.sum():,} of {c.n:,} rows.",
        f"{c.place(row)}: {c.reward[row]:g}",
        "This looks like a code for 'missing'; leave such cells empty.",
    )


def group_changes(c: Columns) -> Finding | None:
    """Rows of one episode name different groups."""
    if c.group is None or not c.n or not _may_change(c.episode, c.group):
        return None
    has_both = (c.episode.codes >= 0) & (c.group.codes >= 0)
    if not has_both.any():
        return None
    group_of_episode = np.full(len(c.episode.labels), -1, np.int64)
    group_of_episode[c.episode.codes[has_both]] = c.group.codes[has_both]
    rows = has_both & (group_of_episode[c.episode.codes] != c.group.codes)
    if not rows.any():
        return None
    n = _touched(c, rows)
    return Finding(
        "error",
        "group_changes",
        f"{c.names['group']!r} changes within {n:,} episode{'s' * (n != 1)}.",
        c.place(_first(rows)),
        "A group is one or more whole episodes (a patient with several stays).",
    )


def _may_change(episode: Coded, group: Coded) -> bool:
    """Whether rows of one episode may name different groups; for few rows nobody looks."""
    if not is_large(len(episode.codes)):
        return True
    from dprl.logs._code_loops import group_changes_within

    of_episode = np.full(len(episode.labels), -1, np.int32)
    return bool(group_changes_within(episode.codes, group.codes, of_episode))


def action_unavailable(c: Columns) -> Finding | None:
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
    if not rows.any():
        return None
    row = _first(rows)
    return Finding(
        "error",
        "action_unavailable",
        f"an action not in {c.names['available']!r} was taken on {rows.sum():,} of {c.n:,} rows.",
        f"{c.place(row)}: took {actions[c.action.codes[row]]!r}, available "
        f"{', '.join(map(str, c.available.labels[c.available.codes[row]])) or 'nothing'}",
        "Mend the available column, or leave it out.",
    )


def order_of_rows(c: Columns) -> Finding | None:
    """Rows are not sorted: harmless with a time column, an error without one."""
    if c.in_order:
        return None
    e = c.episode.codes
    if c.time is None:
        back = np.flatnonzero(np.diff(e) != 0) + 1
        runs = len(back) + (c.n > 0)
        if runs == len(np.unique(e)):
            return None
        first = np.zeros(c.n, bool)
        first[np.unique(e, return_index=True)[1]] = True
        again = np.append(False, e[1:] != e[:-1]) & ~first
        return Finding(
            "error",
            "order_of_rows",
            f"rows of an episode do not stand together ({runs:,} runs of rows, "
            f"{len(np.unique(e)):,} episodes), and no time column was named.",
            c.place(_first(again)),
            "Name a time column, sort the rows, or give episodes of different files different ids.",
        )
    if c.by_time is not None and not c.by_time.moved:
        return None
    rows = _out_of_order(c)
    if not rows.any():
        return None
    return Finding(
        "note",
        "order_of_rows",
        f"{rows.sum():,} of {c.n:,} rows are not in the order of {c.names['time']!r}.",
        c.place(_first(rows)),
        "They were sorted by it.",
    )


def _out_of_order(c: Columns) -> NDArray[np.bool_]:
    """bool (N,): the rows that come before the row of their episode that is written before them."""
    assert c.time is not None
    e, order = c.episode.codes, c.by_episode
    if order is None:
        timed = np.flatnonzero(e >= 0 if c.time_missing is None else (e >= 0) & ~c.time_missing)
        order = timed[np.argsort(e[timed], kind="stable")]
    rows = np.zeros(c.n, bool)
    for a, b in blocks(len(order)):  # each beside the row before of its episode
        here, before = order[max(a, 1) : b], order[max(a, 1) - 1 : b - 1]
        rows[here] = (e[here] == e[before]) & (c.time[here] < c.time[before])
    return rows


def duplicate_times(c: Columns) -> Finding | None:
    """Two rows of one episode have the same time."""
    if c.time is None or c.n < 2 or c.in_order:
        return None
    if c.by_time is not None and not c.by_time.twins:
        return None
    timed = np.flatnonzero(~c.time_missing) if c.time_missing is not None else np.arange(c.n)
    order = timed[np.lexsort((c.time[timed], c.episode.codes[timed]))]
    e, t = c.episode.codes[order], c.time[order]
    twin = np.flatnonzero((e[1:] == e[:-1]) & (t[1:] == t[:-1]) & (e[1:] >= 0))
    if not len(twin):
        return None
    first, second = order[twin], order[twin + 1]
    at = int(np.argmin(second))
    n = len(np.unique(e[twin]))
    return Finding(
        "error",
        "duplicate_times",
        f"{len(twin):,} rows share {c.names['episode']!r} and {c.names['time']!r} with another.",
        f"{c.place(int(second[at]))}, same as row {int(first[at]) + 1:,}; {n:,} "
        f"episode{'s' * (n != 1)} touched.",
        "There can be one decision per time: merge these rows, or make the times finer.",
    )


def unknown_labels(c: Columns, part: str, declared: Sequence[Any] | None) -> Finding | None:
    """A label that is not among those the user declared."""
    column: Coded | None = getattr(c, part)
    if declared is None or column is None:
        return None
    declared_labels = set(declared)
    new = np.array([label not in declared_labels for label in column.labels] + [False], bool)
    if not new.any():
        return None
    rows = new[column.codes]
    if not rows.any():
        return None
    row = _first(rows)
    return Finding(
        "error",
        "unknown_labels",
        f"{called(c.names[part])!r} holds {int(new.sum()):,} labels that were not declared "
        f"({rows.sum():,} of {c.n:,} rows).",
        f"{c.place(row)}: {column.labels[column.codes[row]]!r}",
        f"Add them to {part}s=, or mend the rows.",
    )


def outside(c: Columns, bounds: tuple[float, float] | None) -> Finding | None:
    """A reward outside the range the user declared."""
    low, high = c.reward_span
    if bounds is None or (bounds[0] <= low and high <= bounds[1]):
        return None
    rows = (c.reward < bounds[0]) | (c.reward > bounds[1])
    if not rows.any():
        return None
    row = _first(rows)
    return Finding(
        "error",
        "outside",
        f"{c.names['reward']!r} leaves the declared range {bounds[0]:g}..{bounds[1]:g} on "
        f"{rows.sum():,} of {c.n:,} rows.",
        f"{c.place(row)}: {c.reward[row]:g}",
        "Mend these rows, or declare the range that is true.",
    )


ROW_RULES: Sequence[Callable[[Columns], Finding | None]] = (
    no_rows,
    episode_missing,
    missing,
    not_finite,
    reward_too_large,
    duplicate_times,
    group_changes,
    action_unavailable,
    propensity_outside,
    propensity_alone,
    ended_unknown,
    order_of_rows,
    spellings,
    look_alikes,
    merged_labels,
    near_labels,
)
