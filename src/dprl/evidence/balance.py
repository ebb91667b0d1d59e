"""Balance: do those who took a suggestion differ from the others in what the state leaves out?

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.table import Result, Table, to_json_value
from dprl._core.words import joined, option, say, sentences, word
from dprl.evidence.nuisances import OVERLAP
from dprl.logs.log import Label, Log
from dprl.logs.reading.also import Also

# --- What a comparison of those who took a suggestion with the others gives, and its words

LARGE = 0.1
"""A standardised difference above this is large, by custom."""
ALL = "all changes together"
"""The name of what is compared over all changes."""
NAMED = 3
"""Differences that one sentence names."""
SHOWN = 12
"""Differences that a table shows."""
CLEARLY = 0.5
"""Below this share of comparable decisions there is a warning."""


@dataclass(frozen=True)
class Difference:
    """How those who took a suggestion differ from the others in one column.

    Attributes:
        change: Where, in words.
        column: The column, or a column and one of its labels.
        words: What those who took it have: "a higher age".
        took: Number of groups (episodes) that took it and have a value.
        others: Number of the others that have one.
        mean_took: Their mean (a share, for labels), weighted where there are weights.
        mean_others: The mean of the others.
        before: The difference in standard deviations, before weighting.
        after: The same after weighting; None where nothing was weighted.
        error: Standard error of `after`, or of `before` where nothing was weighted.
    """

    change: str
    column: str
    words: str
    took: int
    others: int
    mean_took: float
    mean_others: float
    before: float
    after: float | None
    error: float

    @property
    def size(self) -> float:
        """How large the difference is after weighting, where there is weighting; from 0."""
        return abs(self.before if self.after is None else self.after)

    def sure(self, bound: float) -> bool:
        """Whether it is large, and more than `bound` standard errors."""
        return self.size > LARGE and self.size > bound * self.error


@dataclass(frozen=True)
class ComparedChange:
    """One change: how many are compared, and in what they differ, worst first.

    Attributes:
        number: Its place among the changes that were given.
        words: Where and what, in words.
        took: Number of groups (episodes) that took the suggestion at their first decision there.
        others: Number of those that did otherwise.
        clear: Share of these decisions at which both were likely enough to compare; None where no
            chances are known.
        rows: The differences; empty where a side has fewer than ten.
    """

    number: int
    words: str
    took: int
    others: int
    clear: float | None
    rows: tuple[Difference, ...]


@dataclass(frozen=True)
class Balance(Result):
    """Whether those who took suggestions differ from the others in what the state leaves out.

    Attributes:
        rows: The differences over all changes together, worst first.
        changes: Every change alone, those with the most groups first.
        took: Number of groups (episodes) that took the suggestion at their first change.
        others: Number of those that did otherwise.
        clear: Share of these decisions at which both were likely enough to compare.
        ess: Effective numbers of the two sides after weighting.
        bound: Standard errors beyond which a difference is no accident.
        unit: "episodes" or "groups".
        weighted: Whether the chances of usual practice were known or estimated.
        copies: Columns that say exactly who took the suggestion; they are not compared.
        left_changes: Number of changes that are compared only together with the others.
        columns: The columns of the table that were compared.
        left_out: Column → why it was not.
    """

    HEAD: ClassVar[str] = "Who took the suggestions?"

    rows: tuple[Difference, ...]
    changes: tuple[ComparedChange, ...]
    took: int
    others: int
    clear: float | None
    ess: tuple[float, float]
    bound: float
    unit: str
    weighted: bool
    copies: tuple[str, ...]
    left_changes: int
    columns: tuple[str, ...]
    left_out: Mapping[str, str]

    def worst(self) -> list[Difference]:
        """The differences that are large and no accident, of all changes and of each, worst first.

        A column counts once for all changes together, and a single change is named only for
        columns that are not among these.
        """
        together = [row for row in self.rows if row.sure(self.bound)]
        named = {row.column for row in together}
        alone = [
            row
            for one in self.changes
            for row in one.rows
            if row.sure(self.bound) and row.column not in named
        ]
        return together + sorted(alone, key=lambda row: -row.size)

    def table(self, most: int = SHOWN) -> Table:
        """The largest differences over all changes together, worst first.

        Args:
            most: Number of rows at most. Default 12.
        """
        rows = self.rows[:most]
        columns: dict[str, Sequence[Any]] = {
            "column": [row.column for row in rows],
            "took it": [row.mean_took for row in rows],
            "did otherwise": [row.mean_others for row in rows],
            "before": [row.before for row in rows],
            "after": [row.after for row in rows],
            "remark": [self.mark(row) for row in rows],
        }
        more = len(self.rows) - len(rows)
        return Table(
            columns,
            f"Columns that are not in the state: {self.took:,} {self.unit} took the suggestion at "
            f"their first change, {self.others:,} did otherwise",
            note="before, after: difference of the means in standard deviations, before and after "
            + (
                "weighting by the chance of what was done"
                if self.weighted
                else "comparing within each change"
            )
            + f"; above {LARGE:g} is large. Means are those after."
            + (f" {more:,} smaller differences are not shown." if more else ""),
        )

    def mark(self, row: Difference) -> str:
        """A word on a difference: "differs", "may be chance", or nothing."""
        if row.sure(self.bound):
            return "differs"
        return "large, may be chance" if row.size > LARGE else ""

    def warnings(self) -> list[str]:
        """What a reader must be careful about, one sentence each."""
        cautions, worst = [], self.worst()
        if worst:
            named = joined("; ", (_named(row) for row in worst[:NAMED]))
            if len(worst) > NAMED:
                named = say("{names}; and {n} more", names=named, n=len(worst) - NAMED)
            cautions.append(
                sentences(
                    say(
                        "those who took the suggestion differ from the others in what the state "
                        "leaves out: {named}.",
                        named=named,
                    ),
                    say(
                        "What looks like the work of the suggestion may be this: put such a "
                        "column into the state if it was known before the decision."
                    ),
                )
            )
        soft = [r for r in self.rows if r.size > LARGE and not r.sure(self.bound)]
        if soft:
            who = say("{column} differs", column=soft[0].column)
            if len(soft) > 1:
                who = say(
                    "{soft} columns differ (most {column}, by {size:.2f})",
                    soft=len(soft),
                    column=soft[0].column,
                    size=soft[0].size,
                )
            cautions.append(
                say(
                    "{who} by more than {large:g} standard deviations between those who took the "
                    "suggestion and the others; with so few {unit} that may be chance.",
                    who=who,
                    large=LARGE,
                    unit=word(self.unit),
                )
            )
        if self.weighted and self.clear is not None and self.clear < CLEARLY:
            cautions.append(
                say(
                    "at only {p:.0f} % of the decisions that would change are both the suggestion "
                    "and its alternatives likely enough ({o:g} %) to compare.",
                    p=100 * self.clear,
                    o=100 * OVERLAP,
                )
            )
        return cautions

    def lines(self) -> list[str]:
        """Facts beside the table, in sentences: what was compared, and what was not."""
        if not self.columns:
            reasons = joined("; ", map(word, dict.fromkeys(self.left_out.values())))
            return [
                say(
                    "No column beside the state was compared: {list} ({also}).",
                    list=reasons,
                    also=option("also"),
                )
            ]
        lines = []
        if not self.rows:
            lines.append(
                say("Nothing can be compared beside the state: the policy changes nothing here.")
                if not self.took + self.others
                else say(
                    "Nothing can be compared beside the state: {a:,} took the suggestion and "
                    "{b:,} did otherwise.",
                    a=self.took,
                    b=self.others,
                )
            )
        elif self.clear is not None and self.weighted:
            lines.append(
                say(
                    "Overlap: at {p:.1f} % of the first changes both the suggestion and its "
                    "alternatives had a chance of {o:g} % or more; after weighting they count as "
                    "{a:.1f} {unit} that took it and {b:.1f} that did not.",
                    p=100 * self.clear,
                    o=100 * OVERLAP,
                    a=self.ess[0],
                    unit=word(self.unit),
                    b=self.ess[1],
                )
            )
        if self.copies:
            lines.append(
                say(
                    "Not compared, for it says exactly who took the suggestion: {columns} "
                    "(another name of the action, or recorded after it).",
                    columns=joined(", ", self.copies),
                )
            )
        if self.left_out:
            why = [
                joined("", (name, " (", word(reason), ")"))
                for name, reason in self.left_out.items()
            ]
            names = joined(", ", why[:4])
            if len(why) > 4:
                names = say("{names} and {n} more", names=names, n=len(why) - 4)
            lines.append(say("Left out of the comparison: {names}.", names=names))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        facts = asdict(self)
        facts["warnings"] = self.warnings()
        return dict(to_json_value(facts))


def _named(row: Difference) -> str:
    """A difference in words and numbers."""
    size = say("{size:.2f} standard deviations", size=row.size)
    if row.after is not None and f"{row.size:.2f}" != f"{abs(row.before):.2f}":
        size = say(
            "{size:.2f} standard deviations after weighting, {before:.2f} before",
            size=row.size,
            before=abs(row.before),
        )
    where = "" if row.change == ALL else say("; in {change}", change=row.change)
    return joined("", (row.words, " (", size, where, ")"))


# --- Balance: do those who took a suggestion differ from the others in what the state leaves out?

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
        chance: float64, that of this action at these rows, where the policy need not name it at all
            of them. Default None: as for all changes together.
    """

    words: str
    rows: Ints
    action: int
    chance: Floats | None = None

    def side(self, side: _Side, chance: Floats | None, done: Floats | None) -> _Side:
        """The first decisions in it, `side`, with their chances."""
        if done is not None and np.isnan(done[side.rows]).any():
            done = None  # outside of what is compared together, it need not be on record
        if self.chance is None or chance is None:
            return side.with_chance(chance, done)
        return replace(side.with_chance(None, done), p=self.at(side.rows))

    def at(self, rows: Ints) -> Floats:
        """float64, its own chances at some of its rows."""
        assert self.chance is not None
        return np.asarray(self.chance[np.searchsorted(self.rows, rows)])


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
    together: Sequence[Compared] | None = None,
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
        together: What is compared all together, where `changes` are not all of it. Default None:
            `changes`.

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
    every = changes if together is None else together
    whole = _together(log, group, every, chance).with_chance(None, done)
    rows, copies = _differences(also, step, ALL, whole)
    order = sorted(range(len(changes)), key=lambda i: (-len(sides[i].rows), i))
    singles = []
    for i in order[:MOST_CHANGES]:
        one = changes[i].side(sides[i], chance, done)
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
