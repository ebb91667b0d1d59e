"""Counts of a log: steps changed outside of all regions or silent and why, episodes after a cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.apps._change import Change
from dprl.evidence.balance import Balance, Compared, balance
from dprl.logs._censoring import from_cut_on
from dprl.logs.log import Label, Log
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._explain import change_words, silences, why_silent
from dprl.policies._protocol import DeferringPolicy
from dprl.policies._situations import Situation

__all__ = ["after_cut", "compare", "outside_of", "scattered", "shown_at", "silent_steps"]

Ints: TypeAlias = NDArray[np.int64]


def after_cut(log: Log, settled: Log) -> Ints:
    """Positions of the episodes in `settled` that came after a cut one of their group in `log`."""
    late = {log.episodes[e] for e in from_cut_on(log)}
    return np.array([i for i, e in enumerate(settled.episodes) if e in late], np.int64)


def outside_of(log: Log, episodes: Ints, rows: Ints) -> Ints:
    """Those of `rows` that lie in none of these episodes."""
    if not len(episodes):
        return rows
    return rows[~np.isin(np.searchsorted(log.starts, rows, "right") - 1, episodes)]


def scattered(
    policy: DeferringPolicy, here: Decisions, situations: list[Situation]
) -> tuple[tuple[Label, Label, int], ...]:
    """The changes `here` at the log's steps that no region holds, the most steps first."""
    if policy.changes_by != "region":
        return ()
    covered = np.zeros(len(here.kind), bool)
    for one in situations:
        covered[one.made] = True
    words = change_words(here)
    steps = Counter(
        change for change, held in zip(words, covered, strict=True) if change and not held
    )
    order = sorted(steps, key=lambda c: (-steps[c], str(c[0]), str(c[1])))
    return tuple((*change, steps[change]) for change in order)


def silent_steps(here: Decisions, row: Ints) -> Counter[str]:
    """How many of the log's steps are silent why; row (N,): the decision at each step."""
    states, counts = np.unique(row[here.kind[row] == Kind.DEFER], return_counts=True)
    words, steps_by_reason = silences(here), Counter[str]()
    for why, count in zip(why_silent(here, states).tolist(), counts.tolist(), strict=True):
        steps_by_reason[words[why]] += count
    return steps_by_reason


def compare(log: Log, changes: Sequence[Change], rows: Sequence[Ints]) -> Balance | None:
    """Those who took the suggestions and the others; rows: the log's steps of each change."""
    code = {label: i for i, label in enumerate(log.actions)}
    compared = [
        Compared(f"{change.situation}: {change.suggested}", at, code.get(change.suggested, -1))
        for change, at in zip(changes, rows, strict=True)
    ]
    return balance(log, compared)


def shown_at(log: Log, row: int) -> tuple[tuple[str, float | str], ...]:
    """Name and value of every feature at a row: numbers, labels, or "missing"; () for labels."""
    if log.features is None:
        return ()
    shown: list[tuple[str, float | str]] = []
    for j, (name, value) in enumerate(
        zip(log.feature_names, log.features[row].tolist(), strict=True)
    ):
        labels = log.levels[j] if log.levels else None
        if np.isnan(value):
            shown.append((name, "missing"))
        else:
            shown.append((name, value if labels is None else labels[int(value)]))
    return tuple(shown)
