r"""Balance: do those who took a suggestion differ from the others in what the state leaves out?

A policy compares those who took an action in a state with those who did not. If they differ in
something that the state does not hold (age, say), the difference of their returns may be that of
their ages. So every further column of the table (`Log.also`), and the number of the step in its
episode, is compared where the policy makes a change:

    d = (mean of those who took the suggestion - mean of the others) / standard deviation of all

before weighting, and after each decision is weighted by 1 / chance of what was done there (as in
importance sampling; the recorded chance, where the log has it at all of them): what weighting
leaves over is what the estimates cannot have taken out. Every group counts once per change, at its
first decision there, so that a column that never changes within a patient is not counted a hundred
times. A label is compared as a column of 0 and 1, and so is "missing".

A difference is large above `LARGE`, by custom. It is called *sure* if it is also beyond what chance
gives when so many columns are compared: more than 3 standard errors, and more than Bonferroni's
bound at 5 %. Columns that were recorded after the decision may differ because of it; leave them out
(`also=`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dprl._core.words import joined, say, sentences
from dprl.evidence._balance_result import ALL, LARGE, Balance, ComparedChange, Difference
from dprl.evidence._nuisance_notes import OVERLAP
from dprl.logs._also import Also
from dprl.logs.log import Label, Log

__all__ = ["ALL", "LARGE", "Balance", "Compared", "ComparedChange", "Difference", "balance",
           "changes_in", "comparable"]  # fmt: skip

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

CLIP = 0.01
"""Chances are raised to this, so that no decision weighs more than 100."""
SIDE = 10
"""Least number on each side of a single change; with fewer it is not compared."""
MOST_CHANGES = 200
"""Changes that are compared one by one, those with the most groups; all count together."""


@dataclass(frozen=True, eq=False)
class Compared:
    """One change that is looked at.

    Attributes:
        words: Where and what, in words.
        rows: int64, the steps of the log at which the policy makes the change, in order.
        action: Code of the suggested action in the log; -1 where the log does not know it.
    """

    words: str
    rows: Ints
    action: int


def changes_in(log: Log, rows: Ints, suggested: Ints, actions: Sequence[Label]) -> list[Compared]:
    """The suggestions at some steps of a log: one per state and action; over features, per action.

    Args:
        log: The log.
        rows: int64, the steps, in order.
        suggested: int64 (N,), the action suggested at each step, a code into `actions`.
        actions: The action labels; those of the log come first.
    """
    if not len(rows):
        return []
    place = np.zeros(len(rows), np.int64) if log.state is None else log.state[rows].astype(np.int64)
    key = place * len(actions) + suggested[rows]
    order = np.argsort(key, kind="stable")
    begins = np.flatnonzero(np.diff(key[order], prepend=key[order[0]] - 1))
    keys, parts = key[order[begins]], np.split(rows[order], begins[1:])
    changes = []
    for key, part in zip(keys.tolist(), parts, strict=True):
        state, action = divmod(key, len(actions))
        words = str(actions[action])
        if log.state is not None:
            words = joined("", (log.states[state], ": ", words))
        changes.append(Compared(words, part, action if action < log.n_actions else -1))
    return changes


def comparable(log: Log) -> bool:
    """Whether the log has further columns, or left some out: else there is nothing to compare."""
    return log.also is not None and bool(log.also.names or log.also.left_out)


def balance(
    log: Log,
    changes: Sequence[Compared],
    chance: Floats | None = None,
    done: Floats | None = None,
) -> Balance | None:
    """Compare those who took the suggestions with the others, over all columns in `log.also`.

    Args:
        log: The log; its rows are those that `changes` name.
        changes: The changes of a policy.
        chance: float64 (N,), the chance of the suggested action at each step (only the steps of
            the changes are read). Default None: the share that took it, change by change.
        done: float64 (N,), the chance of what was done at each step, where it is on record (only
            the steps of the changes are read): the weights then are one over it, and `chance`
            tells of the overlap alone. Default None: `chance`, and 1 - `chance` of the others.

    Returns:
        The differences, worst first; None where the log has no further columns and left none out.

    Example:
        >>> import numpy as np, dprl
        >>> log = dprl.from_arrays(
        ...     episode=range(400), state=["ill"] * 400, action=["drug", "wait"] * 200,
        ...     reward=[1.0, 0.0] * 200, also={"age": [70 + i % 7 - i % 2 * 9 for i in range(400)]},
        ... )
        >>> one = Compared("ill: drug", np.arange(400), log.actions.index("drug"))
        >>> result = balance(log, [one])
        >>> result.rows[0].words
        'a higher age'
    """
    also = log.also
    if also is None or not comparable(log):
        return None
    unit = "episodes" if len(log.groups) == log.n_episodes else "groups"
    group = np.repeat(log.group, log.lengths)
    step = _steps(log)
    sides = [_Side.of(log, group, one.rows, np.full(len(one.rows), one.action)) for one in changes]
    whole = _together(log, group, changes, sides, chance).with_chance(None, done)
    rows, copies = _differences(also, step, ALL, whole)
    order = sorted(range(len(changes)), key=lambda i: (-len(sides[i].rows), i))
    singles = []
    for i in order[:MOST_CHANGES]:
        one = sides[i].with_chance(chance, done)
        ours: tuple[Difference, ...] = ()
        if min(one.counts) >= SIDE:
            ours, others = _differences(also, step, changes[i].words, one)
            copies |= others
        singles.append(ComparedChange(i, changes[i].words, *one.counts, one.clear, ours))
    compared = len(rows) + sum(len(one.rows) for one in singles)
    bound = max(3.0, float(norm.isf(0.025 / max(compared, 1))))
    return Balance(
        rows=rows, changes=tuple(singles), took=whole.counts[0], others=whole.counts[1],
        clear=whole.clear, ess=whole.ess, bound=bound, unit=unit, weighted=chance is not None,
        copies=tuple(sorted(copies)), left_changes=max(len(changes) - MOST_CHANGES, 0),
        columns=also.names, left_out=dict(also.left_out),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Side:
    """The first decision of every group in one change, who took the suggestion, its chance.

    `done` is the chance of what was done, where it is on record.
    """

    rows: Ints
    took: Bools
    p: Floats | None = None
    done: Floats | None = None

    @classmethod
    def of(cls, log: Log, group: NDArray[Any], rows: Ints, suggested: Ints) -> _Side:
        """The first of `rows`, in ascending order, in every group."""
        first = np.sort(np.unique(group[rows], return_index=True)[1])
        return cls(rows[first], log.action[rows[first]] == suggested[first])

    @property
    def counts(self) -> tuple[int, int]:
        """How many took the suggestion, and how many did not."""
        return int(self.took.sum()), int((~self.took).sum())

    def with_chance(self, chance: Floats | None, done: Floats | None = None) -> _Side:
        return _Side(
            self.rows,
            self.took,
            self.p if chance is None else chance[self.rows],
            self.done if done is None else done[self.rows],
        )

    @property
    def clear(self) -> float | None:
        """Share of the decisions at which both sides are likely enough to compare."""
        if self.p is None or not len(self.p):
            return None
        return float(((self.p >= OVERLAP) & (self.p <= 1 - OVERLAP)).mean())

    @property
    def weight(self) -> Floats:
        """1 / chance of what was done; 0 where a share of 0 or 1 leaves nothing to compare."""
        if self.p is None:
            return np.ones(len(self.rows))
        if self.done is not None:
            return np.asarray(np.where(self.done < 1, 1 / np.maximum(self.done, CLIP), 0.0))
        p = np.clip(np.where(self.took, self.p, 1 - self.p), CLIP, 1)
        return np.asarray(np.where((self.p > 0) & (self.p < 1), 1 / p, 0.0))

    @property
    def ess(self) -> tuple[float, float]:
        """Effective numbers of takers and of others after weighting."""
        sizes = []
        for side in (self.took, ~self.took):
            w = self.weight[side]
            sizes.append(float(w.sum() ** 2 / (w * w).sum()) if w.any() else 0.0)
        return sizes[0], sizes[1]


def _together(
    log: Log,
    group: NDArray[Any],
    changes: Sequence[Compared],
    sides: Sequence[_Side],
    chance: Floats | None,
) -> _Side:
    """The first changed decision of every group, all changes together."""
    if not changes:
        return _Side(np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0))
    rows = np.concatenate([one.rows for one in changes])
    which = np.repeat(np.arange(len(changes)), [len(one.rows) for one in changes])
    order = np.argsort(rows, kind="stable")
    rows, which = rows[order], which[order]
    suggested = np.array([one.action for one in changes])[which]
    whole = _Side.of(log, group, rows, suggested)
    if chance is not None:
        return whole.with_chance(chance)
    here = which[np.searchsorted(rows, whole.rows)]
    taken = np.bincount(here[whole.took], minlength=len(changes))
    met = np.maximum(np.bincount(here, minlength=len(changes)), 1)
    return _Side(whole.rows, whole.took, (taken / met)[here])


def _steps(log: Log) -> Floats:
    """float64 (N,), the number of the step in its episode."""
    return (np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)).astype(np.float64)


def _differences(
    also: Also, step: Floats, words: str, side: _Side
) -> tuple[tuple[Difference, ...], set[str]]:
    """All columns compared, worst first; and those that only repeat who took the suggestion."""
    rows: list[Difference] = []
    copies: set[str] = set()
    weight = None if side.p is None else side.weight
    for name, more, less, x in _columns(also, step, side.rows):
        measured = ~np.isnan(x)
        took, others = measured & side.took, measured & ~side.took
        counts = int(took.sum()), int(others.sum())
        spread = float(x[measured].std()) if measured.any() else 0.0
        if min(counts) < 2 or not spread:
            continue
        if not x[took].std() and not x[others].std() and min(counts) >= SIDE:
            copies.add(name)
            continue
        before, error, means = _apart(x, took, others, np.ones(len(x)))
        after = None
        if weight is not None:
            if not (weight[took].any() and weight[others].any()):
                continue
            after, error, means = _apart(x, took, others, weight)
        signed = before if after is None else after
        rows.append(
            Difference(
                change=words, column=name, words=more if signed > 0 else less, took=counts[0],
                others=counts[1], mean_took=means[0], mean_others=means[1],
                before=before / spread, after=None if after is None else after / spread,
                error=error / spread,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: -row.size)), copies


def _apart(
    x: Floats, took: Bools, others: Bools, weight: Floats
) -> tuple[float, float, tuple[float, float]]:
    """Difference of the weighted means, its standard error, and the two means."""
    means, variance = [], 0.0
    for side in (took, others):
        w = weight[side] / weight[side].sum()
        mean = float((w * x[side]).sum())
        n = max(int((w > 0).sum()), 2)
        variance += float((w * w * (x[side] - mean) ** 2).sum()) * n / (n - 1)
        means.append(mean)
    return means[0] - means[1], float(np.sqrt(variance)), (means[0], means[1])


def _columns(also: Also, step: Floats, rows: Ints) -> Iterator[tuple[str, str, str, Floats]]:
    """(name, words where takers have more, where they have less, numbers) to compare."""
    for j, name in enumerate(also.names):
        x = also.numbers(j, rows)
        gone = np.isnan(x)
        if gone.any() and not gone.all():
            gap = say("{column} missing", column=name)
            yield gap, *_often(gap), gone.astype(np.float64)
        labels = also.levels[j]
        if labels is None:
            yield (
                name,
                say("a higher {column}", column=name),
                say("a lower {column}", column=name),
                x,
            )
            continue
        codes = np.unique(x[~gone]).astype(np.int64).tolist()
        for code in codes[1:] if len(codes) == 2 else codes:  # of two labels one says it all
            label = sentences(name, labels[code])
            yield label, *_often(label), np.where(gone, np.nan, x == code)
    later = say("a later step of the episode"), say("an earlier step of the episode")
    yield say("step of the episode"), *later, step[rows]


def _often(what: str) -> tuple[str, str]:
    return say("{what} more often", what=what), say("{what} less often", what=what)
