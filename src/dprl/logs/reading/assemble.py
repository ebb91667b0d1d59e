"""From columns to a Log: check the rows, drop episodes, sort, and code labels."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import many
from dprl.errors import CutWarning, LabelWarning, LogError, MissingWarning
from dprl.logs.checking.findings import CheckResult, Finding, Whole, sorted_findings
from dprl.logs.checking.labels import LABEL_RULES, Vocabulary, called_as_answers
from dprl.logs.checking.rows import (
    SEEN_LAST,
    RowFindings,
    ending,
    missing_rows,
    rows_after_end,
    with_zeros,
    zeros_before_the_end,
)
from dprl.logs.checking.whole_log import log_findings
from dprl.logs.design import designed
from dprl.logs.encoding.categories import only_used
from dprl.logs.encoding.doses import column_label
from dprl.logs.encoding.gaps import GONE, label_taken, refuse_medians, whole_numbers
from dprl.logs.follow_up import follow, lost_by, lost_finding, refuse_blind
from dprl.logs.log import Label, Log
from dprl.logs.outcome import Outcome
from dprl.logs.reading.also import Also
from dprl.logs.reading.columns import Coded, Columns, blocks, is_large
from dprl.logs.reading.options import Reading
from dprl.logs.survival import survived
from dprl.logs.unseen import SEEN, completed


def build(columns: Columns, reading: Reading) -> Log:
    """The log of these columns; the first error is raised, and what should be known is told."""
    report = examine(columns, reading)
    announce(report.findings, stacklevel=5)
    if not isinstance(report.log, Log):  # cannot happen; it must not pass unnoticed if it does
        raise LogError("no log could be made of these rows.")
    return report.log


def announce(findings: Sequence[Finding], stacklevel: int) -> None:
    """Raise the first error; warn of what was done to a log, or is most likely not meant.

    Args:
        findings: The findings, errors first.
        stacklevel: As `warnings.warn` takes it.
    """
    for finding in findings:
        if finding.level == "error":
            raise finding.error()
        if finding.rule == "missing":  # dropped as requested, but never silently
            warnings.warn(finding.what, MissingWarning, stacklevel=stacklevel)
        if finding.rule in ("spellings", "numbers_twice"):  # not merged, but never silently
            words = f"{finding.what} First: {finding.where}."
            warnings.warn(words, LabelWarning, stacklevel=stacklevel)
        told = ("lost_outcomes", "beyond_follow_up")
        if finding.rule in told and finding.level == "warning":
            warnings.warn(f"{finding.what} {finding.do}", CutWarning, stacklevel=stacklevel)
        if finding.rule == "many_actions" and "numbers" in finding.what:  # doses, most likely
            warnings.warn(f"{finding.what} {finding.do}", LabelWarning, stacklevel=stacklevel)


def examine(columns: Columns, reading: Reading) -> CheckResult:
    """Everything the rules find, and the log if one can be made.

    Args:
        columns: The rows of the source.
        reading: What was declared about them.
    """
    c, words = declared_columns(columns, reading)
    findings: list[Finding] = []
    n_dropped = 0
    refuse_medians(words, _columns_of_labels(c))
    dropping = {name for name, word in words.items() if word == "drop-episodes"}
    if dropping and c.n and not (c.episode.codes < 0).any():
        before = len(c.episode.labels)
        c, dropped = _without_missing(c, only=dropping)
        findings += dropped
        n_dropped = before - len(c.episode.labels)
    c = _weighed(with_zeros(_flagged(c, words), words), words)
    rows = RowFindings()
    rows.add(c)
    findings += rows.findings(c.place, c)
    vocabulary = Vocabulary.of(c)
    findings += [f for rule in LABEL_RULES if (f := rule(vocabulary)) is not None]
    log = None
    errors = {f.rule for f in findings if f.level == "error"}
    if errors == {"missing"}:
        # check the other rows too, so that one report shows everything
        c, _ = _without_missing(zeros_before_the_end(c), features=False)
        errors = set() if c.n else errors
    if not errors:
        order = _order(c)
        early, unsaid = rows_after_end(c, order)
        if late := early or unsaid:
            whole = Whole(c.n, len(c.episode.labels), c.place, lambda: None)
            findings.append(late.finding("error", "rows_after_end", whole))
        else:
            log = replace(log_of(c, order), dropped=n_dropped)
            log = designed(log, reading.declared_design, reading.chances, reading.strata or "")
            try:
                if reading.time_to_event is not None:
                    log = survived(log, reading.time_to_event)
                if SEEN in log.more:
                    log = completed(log)
            except LogError as no:  # what nobody saw, and nothing tells
                findings.append(Finding("error", "unseen", no.what, no.where, do=no.do))
                return CheckResult(sorted_findings(findings), None)
            if reading.window is not None:
                refuse_blind(log)
                longer, log = log, follow(log, str(reading.window))
                findings.append(lost_finding(lost_by(longer, reading.window), reading.window))
            findings += log_findings(log)
    return CheckResult(sorted_findings(findings), log)


def declared_columns(columns: Columns, reading: Reading) -> tuple[Columns, dict[str, Any]]:
    """The columns with what was declared about them, and what to do about gaps, by column."""
    names, asked = reading.named(columns.names), reading.time_to_event
    if asked is not None and columns.ended is not None and columns.n:
        own = columns.ended
        rows = np.bincount(own.codes[own.codes >= 0], minlength=len(own.labels))
        labels = asked.meant(own.labels, rows.tolist(), tuple(reading.events or ()))
        columns = replace(columns, ended=Coded(own.codes, tuple(labels)))
    return replace(
        columns,
        events=tuple(reading.events or ()),
        names=names,
        declared=reading.declared,
        bounds=reading.reward_range,
    ), names.get("missing", {})


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


def _weighed(c: Columns, words: Mapping[str, str]) -> Columns:
    """The columns with rewards as they were measured beside them, where they are completed."""
    name = str(c.names["reward"])
    if words.get(name) != "weights":
        return c
    gone = np.isnan(c.reward)
    if "survival" in c.names and gone.any():
        raise LogError(
            f"the time {name!r} is missing on {many(int(gone.sum()), 'row')}, and weights complete "
            "what was measured once, not a time.",
            c.place(int(np.argmax(gone))),
            SEEN_LAST,
        )
    c = zeros_before_the_end(c)
    measured = {**c.more, SEEN: c.reward.copy()}
    return replace(c, reward=np.where(np.isnan(c.reward), 0.0, c.reward), more=measured)


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
        several = column_label(c.names["action"])
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
    place = c.place(int(np.argmax(rows)))
    return _rows(c, keep), [dropped_finding(int(bad.sum()), len(bad), list(where), place)]


def dropped_finding(dropped: int, episodes: int, columns: list[str], place: str) -> Finding:
    """How many episodes were dropped for missing values; an error where none is left."""
    none_left = dropped == episodes
    return Finding(
        "error" if none_left else "note",
        "missing",
        f"{dropped:,} of {episodes:,} episodes were dropped for missing values in "
        f"{', '.join(map(repr, columns))}.",
        place,
        "None is left: fill the missing values." if none_left else "",
    )


def _rows(c: Columns, keep: NDArray[np.bool_]) -> Columns:
    """The rows to keep; labels that no longer occur are removed."""

    def kept(name: str, column: Any) -> Any:
        if isinstance(column, Coded) and name != "ended":  # which may be missing but on last rows
            used, codes = np.unique(column.codes[keep], return_inverse=True)
            gaps = int(len(used) > 0 and used[0] < 0)  # code -1 is a gap, and stays one
            labels = tuple(column.labels[u] for u in used[gaps:])
            return Coded((codes - gaps).astype(np.int32), labels)
        if isinstance(column, Coded):
            return Coded(column.codes[keep], column.labels)
        return column[keep]

    by_row = {f.name: getattr(c, f.name) for f in fields(c)}
    by_row = {k: v for k, v in by_row.items() if isinstance(v, Coded | np.ndarray | Also)}
    result = replace(
        c,
        **{name: kept(name, column) for name, column in by_row.items()},
        more={name: column[keep] for name, column in c.more.items()},
    )
    if result.features is None:
        return result
    features, levels = only_used(result.features, c.levels)
    return replace(result, features=features, levels=levels)


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
        from dprl.logs.reading.loops import gather

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
    table = np.array([*(place.get(label, -1) for label in column.labels), -1], np.int32)
    return Coded(table[column.codes], tuple(declared))


def declared_labels(c: Columns) -> tuple[Coded | None, Coded, NDArray[np.bool_] | None]:
    """States and actions coded by the labels that were declared, and the menus (M, A)."""
    actions = c.declared.get("action")
    if c.available is not None and actions is None:
        offered = {label for menu in c.available.labels for label in menu}
        actions = sorted(offered.union(c.action.labels))
    odd = None if actions is None else called_as_answers(column_label(c.names["action"]), actions)
    if odd is not None:
        raise odd.error()
    action = _declared(c.action, actions)
    state = None if c.state is None else _declared(c.state, c.declared.get("state"))
    menus = None
    if c.available is not None:
        rows = [[a in menu for a in action.labels] for menu in c.available.labels]
        menus = np.array(rows, bool).reshape(len(rows), len(action.labels))
    return state, action, menus


def log_of(c: Columns, order: NDArray[Any] | None) -> Log:
    """The log of these columns, with the rows in this order (None: as they are)."""
    own_codes = c.fresh or order is None  # codes are written to by none, and moved only if fresh
    codes = c.episode.codes
    starts = _first_rows(codes if order is None else _moved(codes, order, False))
    state, action, menus = declared_labels(c)
    last = np.append(starts[1:], c.n) - 1
    first, last = (starts, last) if order is None else (order[starts], order[last])
    ended = ending(c)[last]
    features = _moved(c.features, order, c.fresh)
    if features is not None and np.isnan(_plain_zeros(features).sum()):
        features[np.isnan(features)] = np.nan  # one kind of NaN, so that equal logs are equal
    further = {"propensity": c.propensity, **c.more}
    numbers = {name: _moved(column, order, c.fresh) for name, column in further.items()}
    for column in numbers.values():
        if column is not None:
            column[np.isnan(column)] = np.nan
    return Log(
        starts=np.append(starts, c.n),
        action=_moved(action.codes, order, own_codes),
        reward=_plain_zeros(Outcome.of(c.names).shown(_moved(c.reward, order, c.fresh))),
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
        propensity=numbers.pop("propensity"),
        more=numbers,
        also=c.also if c.also is None or order is None else c.also[order],
        events=c.events,
    )
