"""What a comparison of those who took a suggestion with the others gives, and its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from dprl._core.results import Result
from dprl._core.table import Table, to_json_value
from dprl._core.words import joined, option, say, sentences, word
from dprl.evidence._nuisance_notes import OVERLAP

__all__ = ["ALL", "LARGE", "Balance", "ComparedChange", "Difference"]

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
