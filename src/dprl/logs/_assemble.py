"""From columns to a Log: check the rows, drop episodes, sort, and code labels."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import CutWarning, LabelWarning, LogError, MissingWarning
from dprl.logs._categories import only_used
from dprl.logs._columns import Coded, Columns
from dprl.logs._doses import called
from dprl.logs._ending_rules import check_events, ending, rows_after_end
from dprl.logs._findings import CheckResult, Finding
from dprl.logs._follow_up import follow, window_of
from dprl.logs._gaps import (
    GONE,
    Missing,
    label_taken,
    missing_words,
    refuse_medians,
    whole_numbers,
)
from dprl.logs._log_rules import LOG_RULES
from dprl.logs._lost_outcomes import lost_by, lost_finding
from dprl.logs._reward_gaps import with_zeros, zeros_before_the_end
from dprl.logs._row_facts import blocks, is_large
from dprl.logs._rules import (
    ROW_RULES,
    missing_rows,
    outside,
    unknown_labels,
)
from dprl.logs.log import Label, Log

__all__ = ["build", "examine"]

ORDER = {"error": 0, "warning": 1, "note": 2}


def build(columns: Columns, **options: Any) -> Log:
    """The log of these columns; the first error is raised. Options as in `examine`."""
    report = examine(columns, **options)
    for finding in report.findings:
        if finding.level == "error":
            raise finding.error()
        if finding.rule == "missing":  # dropped as requested, but never silently
            warnings.warn(finding.what, MissingWarning, stacklevel=3)
        if finding.rule == "spellings":  # not merged, but never silently
            warnings.warn(f"{finding.what} First: {finding.where}.", LabelWarning, stacklevel=3)
        if finding.rule == "lost_outcomes" and finding.level == "warning":
            warnings.warn(f"{finding.what} {finding.do}", CutWarning, stacklevel=3)
        if finding.rule == "many_actions" and "numbers" in finding.what:  # doses, most likely
            warnings.warn(f"{finding.what} {finding.do}", LabelWarning, stacklevel=3)
    if report.log is None:  # cannot happen; it must not pass unnoticed if it does
        raise LogError("no log could be made of these rows.")
    return report.log


def examine(
    columns: Columns,
    *,
    missing: Missing = "error",
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    reward_range: tuple[float, float] | None = None,
    events: Sequence[str] | None = None,
    follow_up: Any = None,
) -> CheckResult:
    """Everything the rules find, and the log if one can be made.

    Args:
        columns: The rows of the source.
        missing: What to do about missing values, in a word or by column (`dprl.logs._gaps`).
            Default "error".
        states: The state labels that may occur, in their order; any other is an error. Default
            None: all that occur.
        actions: The same for actions; of equally good actions the one named first wins. Default
            None.
        reward_range: Smallest and largest possible reward; a reward outside is an error. Default
            None.
        events: Names of competing events in the column of endings. Default None: there are none.
        follow_up: For how long every episode is followed. Default None: to its end.
    """
    words = missing_words(missing, columns.names)
    names = check_events(events)
    window = None if follow_up is None else window_of(follow_up)
    named: dict[str, Any] = {"events": list(names)} if names else {}
    named |= {"missing": words} if words else {}
    c = replace(columns, events=names, names={**columns.names, **named})
    findings: list[Finding] = []
    n_dropped = 0
    refuse_medians(words, _columns_of_labels(c))
    dropping = {name for name, word in words.items() if word == "drop-episodes"}
    if dropping and c.n and not (c.episode.codes < 0).any():
        before = len(c.episode.labels)
        c, dropped = _without_missing(c, only=dropping)
        findings += dropped
        n_dropped = before - len(c.episode.labels)
    c = with_zeros(_flagged(c, words), words)
    findings += [f for rule in ROW_RULES if (f := rule(c)) is not None]
    for part, declared in (("state", states), ("action", actions)):
        if f := unknown_labels(c, part, declared):
            findings.append(f)
    if f := outside(c, reward_range):
        findings.append(f)
    log = None
    errors = {f.rule for f in findings if f.level == "error"}
    if errors == {"missing"}:
        # check the other rows too, so that one report shows everything
        c, _ = _without_missing(zeros_before_the_end(c), features=False)
        errors = set() if c.n else errors
    if not errors:
        order = _order(c)
        if f := rows_after_end(c, order):
            findings.append(f)
        else:
            log = replace(_log(c, order, states, actions), dropped=n_dropped)
            if window is not None:
                whole, log = log, follow(log, str(window))
                findings.append(lost_finding(lost_by(whole, window), window))
            findings += [f for rule in LOG_RULES if (f := rule(log)) is not None]
    return CheckResult(tuple(sorted(findings, key=lambda f: ORDER[f.level])), log)


def _columns_of_labels(c: Columns) -> list[str]:
    """The columns of the state that hold labels."""
    if c.state is not None:
        return [str(c.names["state"])]
    return [n for n, own in zip(c.feature_names, c.levels, strict=False) if own is not None]


def _flagged(c: Columns, words: Mapping[str, str]) -> Columns:
    """The columns in which a missing state is a label of its own, where that was asked for."""
    state, name = c.state, str(c.names["state"])
    if state is None or words.get(name) != "flag" or not (state.codes < 0).any():
        return c
    gone = state.codes < 0
    place_of_first = c.place(int(np.argmax(gone)))
    if GONE in state.labels:
        raise label_taken(name, int(gone.sum()), place_of_first)
    if not all(isinstance(label, str) for label in state.labels):
        raise whole_numbers(name, int(gone.sum()), place_of_first)
    labels = tuple(sorted((*state.labels, GONE)))
    place = [labels.index(label) for label in state.labels]
    table = np.array([*place, labels.index(GONE)], np.int32)
    return replace(c, state=Coded(table[state.codes], labels))


def _without_missing(
    c: Columns, features: bool = True, only: Collection[str] | None = None
) -> tuple[Columns, list[Finding]]:
    """The columns without episodes that have a missing value, and a finding about it.

    A feature that is missing counts only with `features`, and of all columns only those in `only`
    count (None: all).
    """
    rows = np.zeros(c.n, bool)
    where = missing_rows(c, features)
    if only is not None:
        several = called(c.names["action"])
        taken = c.names["action"]
        wanted = {*only, *([several] if isinstance(taken, list) and {*taken} & {*only} else [])}
        where = {name: gone for name, gone in where.items() if name in wanted}
    for missing_here in where.values():
        rows |= missing_here
    if not rows.any():
        return c, []
    bad = np.zeros(len(c.episode.labels), bool)
    bad[c.episode.codes[rows]] = True
    keep = ~bad[c.episode.codes]
    finding = Finding(
        "error" if not keep.any() else "note",
        "missing",
        f"{bad.sum():,} of {len(bad):,} episodes were dropped for missing values in "
        f"{', '.join(map(repr, where))}.",
        c.place(int(np.argmax(rows))),
        "None is left: fill the missing values." if not keep.any() else "",
    )
    return _rows(c, keep), [finding]


def _rows(c: Columns, keep: NDArray[np.bool_]) -> Columns:
    """The rows to keep; labels that no longer occur are removed."""

    def required(column: Coded) -> Coded:
        kept = column.codes[keep]
        used, codes = np.unique(kept, return_inverse=True)
        gaps = int(len(used) > 0 and used[0] < 0)  # code -1 is a gap, and stays one
        labels = tuple(column.labels[u] for u in used[gaps:])
        return Coded((codes - gaps).astype(np.int32), labels)

    def coded(column: Coded | None) -> Coded | None:
        return None if column is None else required(column)

    def rows_of(column: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if column is None else column[keep]

    ended = None
    if c.ended is not None:  # may be missing on all rows but the last
        ended = Coded(c.ended.codes[keep], c.ended.labels)
    features, levels = rows_of(c.features), c.levels
    if features is not None:
        features, levels = only_used(features, levels)
    return replace(
        c,
        episode=required(c.episode),
        action=required(c.action),
        state=coded(c.state),
        group=coded(c.group),
        available=coded(c.available),
        ended=ended,
        reward=c.reward[keep],
        features=features,
        levels=levels,
        time=rows_of(c.time),
        time_missing=rows_of(c.time_missing),
        offset=rows_of(c.offset),
        propensity=rows_of(c.propensity),
        also=None if c.also is None else c.also[keep],
    )


def _order(c: Columns) -> NDArray[Any] | None:
    """The order that sorts rows by episode and time (by row number where there is no time).

    None where they are in that order.
    """
    if c.in_order:
        return None
    e = c.episode.codes
    if c.time is None:
        order = c.by_episode
        return np.argsort(e, kind="stable") if order is None else order
    return np.lexsort((c.time, e)) if c.by_time is None else c.by_time.order


def _moved(column: Any, order: NDArray[Any] | None, fresh: bool) -> Any:
    """A column with its rows in this order; the array itself only if nobody else holds it."""
    if column is None:
        return None
    if order is None:
        return column if fresh else column.copy()
    if column.ndim > 1 or not is_large(len(order)) or column.dtype.kind not in "iufM":
        moved = column[order]
    else:
        from dprl.logs._code_loops import gather

        bits = np.int64 if column.dtype.kind == "M" else column.dtype
        moved = np.empty(len(order), column.dtype)
        gather(column.view(bits), order, moved.view(bits))
    if fresh and column.flags.writeable and column.flags.c_contiguous:
        column[...] = moved  # so that not all columns are held twice at a time
        return column
    return moved


def _first_rows(e: NDArray[np.int32]) -> NDArray[np.int64]:
    """The first row of each episode, of rows that stand by episode."""
    new = [np.zeros(1, np.int64)[: len(e)]]
    for a, b in blocks(len(e) - 1):
        new.append(np.flatnonzero(e[a + 1 : b + 1] != e[a:b]) + (a + 1))
    return np.concatenate(new)


def _plain_zeros(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """The column, in which -0.0 and 0.0 are one number."""
    column += 0.0
    return column


def _declared(column: Coded, declared: Sequence[Label] | None) -> Coded:
    """The column coded by the declared labels, in the order they were declared."""
    if declared is None:
        return column
    place = {label: i for i, label in enumerate(declared)}
    table = np.array([*(place[label] for label in column.labels), -1], np.int32)
    return Coded(table[column.codes], tuple(declared))


def _log(
    c: Columns,
    order: NDArray[Any] | None,
    states: Sequence[Label] | None,
    actions: Sequence[Label] | None,
) -> Log:
    """The log of these columns, with the rows in this order (None: as they are)."""
    own_codes = c.fresh or order is None  # codes are written to by none, and moved only if fresh
    codes = c.episode.codes
    starts = _first_rows(codes if order is None else _moved(codes, order, False))
    action, state = c.action, c.state
    if c.available is not None and actions is None:
        offered = {label for menu in c.available.labels for label in menu}
        actions = sorted(offered.union(action.labels))
    action = _declared(action, actions)
    state = None if state is None else _declared(state, states)
    menus = None
    if c.available is not None:
        rows = [[a in menu for a in action.labels] for menu in c.available.labels]
        menus = np.array(rows, bool).reshape(len(rows), len(action.labels))
    last = np.append(starts[1:], c.n) - 1
    first, last = (starts, last) if order is None else (order[starts], order[last])
    ended = ending(c)[last]
    features = _moved(c.features, order, c.fresh)
    if features is not None and np.isnan(_plain_zeros(features).sum()):
        features[np.isnan(features)] = np.nan  # one kind of NaN, so that equal logs are equal
    propensity = _moved(c.propensity, order, c.fresh)
    if propensity is not None:
        propensity[np.isnan(propensity)] = np.nan
    return Log(
        starts=np.append(starts, c.n),
        action=_moved(action.codes, order, own_codes),
        reward=_plain_zeros(_moved(c.reward, order, c.fresh)),
        actions=action.labels,
        state=None if state is None else _moved(state.codes, order, own_codes),
        states=() if state is None else state.labels,
        features=features,
        feature_names=c.feature_names,
        levels=c.levels,
        episodes=c.episode.labels,
        group=None if c.group is None else c.group.codes[first],  # type: ignore[arg-type]
        groups=() if c.group is None else c.group.labels,
        time=_moved(c.time, order, c.fresh),
        offset=_moved(c.offset, order, c.fresh),
        available=None if c.available is None else _moved(c.available.codes, order, own_codes),
        menus=menus,
        ended=ended,
        columns=c.names,
        propensity=propensity,
        also=c.also if c.also is None or order is None else c.also[order],
        events=c.events,
    )
