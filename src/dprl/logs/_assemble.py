"""From columns to a Log: judge, drop, sort, code."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_choice
from dprl.errors import LabelWarning, LogError, MissingWarning
from dprl.logs._columns import Coded, Columns
from dprl.logs._findings import CheckResult, Finding
from dprl.logs._log_rules import LOG_RULES
from dprl.logs._rules import (
    ROW_RULES,
    ending,
    missing_rows,
    outside,
    rows_after_end,
    unknown_labels,
)
from dprl.logs.log import Label, Log

__all__ = ["Missing", "build", "examine"]

Missing: TypeAlias = Literal["error", "drop-episodes"]
ORDER = {"error": 0, "warning": 1, "note": 2}


def build(columns: Columns, **options: Any) -> Log:
    """The log of these columns, or the first error as a LogError. Options as in `examine`."""
    report = examine(columns, **options)
    for finding in report.findings:
        if finding.level == "error":
            raise finding.error()
        if finding.rule == "missing":  # dropped as asked, and never without a word
            warnings.warn(finding.what, MissingWarning, stacklevel=3)
        if finding.rule == "spellings":  # not merged, and never without a word
            warnings.warn(f"{finding.what} First: {finding.where}.", LabelWarning, stacklevel=3)
    if report.log is None:  # no error, no log: cannot happen, and must not pass if it does
        raise LogError("no log could be made of these rows.")
    return report.log


def examine(
    columns: Columns,
    *,
    missing: Missing = "error",
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    reward_range: tuple[float, float] | None = None,
) -> CheckResult:
    """Everything the rules find, and the log where one can be made.

    Args:
        columns: The rows.
        missing: "error", or "drop-episodes" to leave out every episode with a missing value.
        states: The state labels there are, in their order; any other is an error.
        actions: The same for actions; ties go to the one named first.
        reward_range: Smallest and largest possible reward; anything outside is an error.
    """
    check_choice("missing", missing, ("error", "drop-episodes"))
    c = columns
    found: list[Finding] = []
    if missing == "drop-episodes" and c.n and not (c.episode.codes < 0).any():
        c, dropped = _without_missing(c)
        found += dropped
    found += [f for rule in ROW_RULES if (f := rule(c)) is not None]
    for part, declared in (("state", states), ("action", actions)):
        if f := unknown_labels(c, part, declared):
            found.append(f)
    if f := outside(c, reward_range):
        found.append(f)
    log = None
    errors = {f.rule for f in found if f.level == "error"}
    if errors == {"missing"}:
        c, _ = _without_missing(c)  # look at the rest, so that one check shows all there is
        errors = set() if c.n else errors
    if not errors:
        order = _order(c)
        if f := rows_after_end(c, order):
            found.append(f)
        else:
            log = _log(c, order, states, actions)
            found += [f for rule in LOG_RULES if (f := rule(log)) is not None]
    return CheckResult(tuple(sorted(found, key=lambda f: ORDER[f.level])), log)


def _without_missing(c: Columns) -> tuple[Columns, list[Finding]]:
    rows = np.zeros(c.n, bool)
    where = missing_rows(c)
    for some in where.values():
        rows |= some
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
    """The rows to keep, with labels that no longer occur gone."""

    def required(column: Coded) -> Coded:
        used, codes = np.unique(column.codes[keep], return_inverse=True)
        return Coded(codes.astype(np.int32), tuple(column.labels[u] for u in used))

    def coded(column: Coded | None) -> Coded | None:
        return None if column is None else required(column)

    def plain(column: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if column is None else column[keep]

    ended = None
    if c.ended is not None:  # may be missing on all rows but the last
        ended = Coded(c.ended.codes[keep], c.ended.labels)
    return replace(
        c,
        episode=required(c.episode),
        action=required(c.action),
        state=coded(c.state),
        group=coded(c.group),
        available=coded(c.available),
        ended=ended,
        reward=c.reward[keep],
        features=plain(c.features),
        time=plain(c.time),
        time_missing=plain(c.time_missing),
        offset=plain(c.offset),
    )


def _order(c: Columns) -> NDArray[np.int64]:
    """The rows sorted by episode and time (or by their own order where there is no time)."""
    e = c.episode.codes
    rising = e[1:] >= e[:-1]
    if c.time is None:
        return np.arange(c.n) if rising.all() else np.argsort(e, kind="stable")
    if (rising & ((e[1:] > e[:-1]) | (c.time[1:] > c.time[:-1]))).all():
        return np.arange(c.n)
    return np.lexsort((c.time, e))


def _declared(column: Coded, declared: Sequence[Label] | None) -> Coded:
    """The column coded by the declared labels, in their order."""
    if declared is None:
        return column
    place = {label: i for i, label in enumerate(declared)}
    table = np.array([*(place[label] for label in column.labels), -1], np.int32)
    return Coded(table[column.codes], tuple(declared))


def _log(
    c: Columns,
    order: NDArray[np.int64],
    states: Sequence[Label] | None,
    actions: Sequence[Label] | None,
) -> Log:
    e = c.episode.codes[order]
    starts = np.flatnonzero(np.append(True, e[1:] != e[:-1]))
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
    last = order[np.append(starts[1:], len(order)) - 1]
    return Log(
        starts=np.append(starts, len(order)),
        action=action.codes[order],
        reward=c.reward[order] + 0.0,  # -0.0 and 0.0 are one number
        actions=action.labels,
        state=None if state is None else state.codes[order],
        states=() if state is None else state.labels,
        features=None if c.features is None else c.features[order] + 0.0,
        feature_names=c.feature_names,
        episodes=c.episode.labels,
        group=None if c.group is None else c.group.codes[order][starts],  # type: ignore[arg-type]
        groups=() if c.group is None else c.group.labels,
        time=None if c.time is None else c.time[order],
        offset=None if c.offset is None else c.offset[order],
        available=None if c.available is None else c.available.codes[order],
        menus=menus,
        ended=ending(c)[last],
        columns=c.names,
    )
