"""Which column of a table is what: a proposal, with reasons, for a person to read and mend.

Roles that decide what is learned (the action, the reward) are proposed by name alone, never from
numbers: what looks like a reward may be anything. Where no name says it, the proposal leaves the
role open and lists the columns that could have it. The rest goes by names and by what the rows
show: an episode's rows lie together, times rise within it, a group holds whole episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dprl.logs._proposal_facts import ColumnFacts, TableFacts, look, may_name
from dprl.logs._proposal_words import LATER, PLACES, WORDS
from dprl.logs._text import is_unnamed
from dprl.logs.columns import NAMES

__all__ = ["ColumnFacts", "Proposal", "TableFacts", "look", "propose"]

FEW_ACTIONS = 60
"""Most labels of a column that can be the action."""
FEW_STATES = 200
"""Most labels of a column that can be a state by itself."""
ALONE = 0.5
"""A column of text with more labels than this share of the rows names rows; it describes none."""
SHORT = 50
"""Episodes of at most so many rows are short: an outcome at their end is not discounted."""


@dataclass(frozen=True)
class Proposal:
    """Which column is what.

    Attributes:
        columns: Role → column, or columns for a state of features.
        reasons: Role → why, in a few words.
        open: Required roles that no column has → the columns that could have it.
        left_out: Column → why it is in no role.
        rows: How many rows were looked at.
        single: Whether every episode has one row.
        candidates: Role → the columns that could have it too, those that fit best by name first.
        outcome: Whether the reward is one outcome, on the last row of short episodes alone.
        zeros: Whether the reward is missing on the other rows, so that it must be said to be 0.
        fixing: Columns that fix the action → the share of rows on which they tell it.
    """

    columns: dict[str, str | list[str]]
    reasons: dict[str, str]
    open: dict[str, list[str]]
    left_out: dict[str, str]
    rows: int
    single: bool
    candidates: dict[str, list[str]] = field(default_factory=dict)
    outcome: bool = False
    zeros: bool = False
    fixing: dict[str, float] = field(default_factory=dict)


def propose(table: TableFacts, given: Mapping[str, Any] | None = None) -> Proposal:
    """Propose which column is what.

    Args:
        table: What is to be seen of the table.
        given: Role → column (or columns), as far as the user has said it; taken as it is.
    """
    work = _Work(table, dict(given or {}))
    work.identify()
    for role in ("ended", "propensity"):
        work.by_name(role)
    work.by_name("action", least=True)
    work.by_name("reward")
    fixing = work.describe()
    reward = work.facts.get(str(work.columns.get("reward")))
    outcome = work.is_outcome(reward)
    return Proposal(
        work.columns, work.reasons, work.open, work.left_out, table.rows, work.single(),
        work.candidates(), outcome, outcome and reward is not None and reward.missing > 0, fixing,
    )  # fmt: skip


class _Work:
    """A proposal in the making."""

    def __init__(self, table: TableFacts, given: dict[str, Any]) -> None:
        self.table = table
        self.facts = {c.name: c for c in table.columns}
        self.columns: dict[str, Any] = given
        self.reasons = dict.fromkeys(given, "as you said")
        self.open: dict[str, list[str]] = {}
        self.left_out: dict[str, str] = {}

    def free(self) -> list[ColumnFacts]:
        """The columns without a role so far."""
        taken = set()
        for value in self.columns.values():
            taken |= {value} if isinstance(value, str) else set(value)
        return [c for c in self.table.columns if c.name not in taken]

    def single(self) -> bool:
        """Whether every episode has one row."""
        episode = self.facts.get(str(self.columns.get("episode")))
        return episode is not None and episode.values == self.table.rows

    def may_be(self, role: str, c: ColumnFacts) -> bool:
        """Whether what the rows show of a column lets it have a role, whatever its name is."""
        episode = str(self.columns.get("episode"))
        if role == "episode":
            lies_together = c.turns == c.values < self.table.rows and c.kind in ("whole", "text")
            return may_name(c, self.table.rows) or (lies_together and not c.missing)
        if role == "group":
            return (episode, c.name) in self.table.nested
        if role == "time":
            rises = self.table.within.get((c.name, episode), 0.0) == 1.0
            return not self.single() and (c.kind == "time" or rises)
        if role == "ended":
            return c.kind in ("flag", "text", "whole") and 1 < c.values <= 10
        if role == "propensity":
            return c.low is not None and c.low > 0 and (c.high or 2.0) <= 1
        if role == "action":
            return 1 < c.values <= FEW_ACTIONS and c.kind != "time"
        if role == "reward":
            return c.kind in ("number", "whole") and (c.missing == 0 or self.is_outcome(c))
        return role == "state" and not self._unfit(c)

    def is_outcome(self, c: ColumnFacts | None) -> bool:
        """Whether a reward stands on the last row of short episodes alone."""
        episode = str(self.columns.get("episode"))
        if c is None or self.single():
            return False
        return (
            self.table.at_end.get((c.name, episode)) == 1.0
            and 1 < self.table.longest.get(episode, 0) <= SHORT
        )

    def candidates(self) -> dict[str, list[str]]:
        """The columns that could have a role too, for every role."""
        able: dict[str, list[str]] = {}
        for role in NAMES:
            own = self.columns.get(role, ())
            names = {own} if isinstance(own, str) else set(own)
            naming = {str(self.columns.get(one)) for one in ("episode", "group", "time")}
            among = self.free() if role == "state" else list(self.table.columns)
            if role in ("action", "reward", "ended", "propensity"):
                among = [c for c in among if c.name not in naming]
            others = [c for c in among if c.name not in names and self.may_be(role, c)]
            scores = {c.name: c.named(role) if role in WORDS else 0 for c in others}
            if others:
                able[role] = sorted(scores, key=lambda name: -scores[name])
        return able

    def put(self, role: str, column: str, why: str) -> None:
        self.columns[role], self.reasons[role] = column, why

    def identify(self) -> None:
        """Episode, group and time: what names rows, and what orders them."""
        if "episode" not in self.columns:
            names = [c for c in self.free() if may_name(c, self.table.rows)]
            names = [c for c in names if not set(c.words) & set(PLACES)]
            if not names:
                self.open["episode"] = [
                    c.name for c in self.free() if c.kind in ("whole", "text") and not c.missing
                ]
            else:
                # rows that lie together, then the word for it, then the finest
                best = max(names, key=lambda c: (
                    c.turns == c.values < self.table.rows, c.named("episode"), c.values,
                ))  # fmt: skip
                self.put("episode", best.name, self._of_episode(best))
        episode = self.columns.get("episode")
        if isinstance(episode, str):
            if "group" not in self.columns:
                around = [
                    c for c in self.free()
                    if (episode, c.name) in self.table.nested
                    and (c.named("group") or c.words[-1:] == ["id"])
                ]  # fmt: skip
                if around:
                    best = max(around, key=lambda c: c.values)
                    why = f"each {episode} belongs to one; what it holds stays together"
                    self.put("group", best.name, why)
            self._order(episode)

    def _of_episode(self, column: ColumnFacts) -> str:
        each = self.table.rows / max(column.values, 1)
        if column.values == self.table.rows:
            return "a value of its own in every row: one decision each"
        together = ", its rows lie together" if column.turns == column.values else ""
        return f"{column.values:,} values, {each:.1f} rows each{together}"

    def _order(self, episode: str) -> None:
        if "time" in self.columns or self.single():
            return
        rising = [
            (c.named("time"), self.table.within.get((c.name, episode), 0.0), c) for c in self.free()
        ]
        good = [one for one in rising if one[0] and one[1] == 1.0]
        if good:
            best = max(good, key=lambda one: (one[0], one[1]))[2]
            self.put("time", best.name, f"rises from row to row within every {episode}")
            return
        dates = [c.name for score, share, c in rising if score and share > 0 and c.kind == "time"]
        if len(dates) == 1:
            self.put("time", dates[0], "by its name; the rows are not in its order")

    def by_name(self, role: str, least: bool = False) -> None:
        """The column whose name is the role's; left open, with candidates, if it is required."""
        if role in self.columns:
            return
        able = [c for c in self.free() if self.may_be(role, c)]
        named = [c for c in able if c.named(role)]
        if named:
            order = sorted(named, key=lambda c: (-c.named(role), c.values if least else 0))
            best = order[0]
            if len(order) > 1 and order[1].named(role) == best.named(role) and role in (
                "action", "reward",
            ):  # fmt: skip
                self.open[role] = [c.name for c in order]
                return
            self.put(role, best.name, f"by its name; {self._range(best)}")
        elif role in ("action", "reward"):
            self.open[role] = [c.name for c in able]

    @staticmethod
    def _range(column: ColumnFacts) -> str:
        if column.kind == "number" and column.low is not None:
            return f"from {column.low:g} to {column.high:g}"
        return f"{column.values:,} values"

    def describe(self) -> dict[str, float]:
        """The state: a column that is one by name, or all that describe a row beforehand.

        Columns that fix the action are no part of it, unless the user said so; they are returned.
        """
        free = self.free()
        if self.open:  # what is asked for first is no part of a state
            return {}
        if "state" in self.columns:
            own = self.columns["state"]
            return self._fixing([own] if isinstance(own, str) else list(own))
        labels = [
            c for c in free
            if c.named("state") and c.kind in ("text", "whole", "flag") and c.values <= FEW_STATES
            and not c.missing
        ]  # fmt: skip
        if labels:
            best = max(labels, key=lambda c: c.named("state"))
            self.put("state", best.name, f"by its name; {best.values:,} labels")
            for c in free:
                if c is not best:
                    self.left_out[c.name] = "not needed beside a state by name; it is compared"
            return self._fixing([best.name])
        features = []
        for c in free:
            why = self._unfit(c)
            if why:
                self.left_out[c.name] = why
            else:
                features.append(c.name)
        fixing = self._fixing(features)
        for name, share in fixing.items():
            features.remove(name)
            self.left_out[name] = (
                f"it tells the action on {share:.1%} of rows: what was given, not why?"
            )
        if features:
            self.columns["state"] = features
            self.reasons["state"] = "all others: take out what is known only after the decision"
        else:
            self.open["state"] = [c.name for c in free]
        return fixing

    def _fixing(self, columns: list[str]) -> dict[str, float]:
        """Those of the columns that fix the action, where that is one column."""
        action = self.columns.get("action")
        return self.table.fixing(columns, action) if isinstance(action, str) else {}

    def _unfit(self, c: ColumnFacts) -> str:
        """Why a column is no part of a state; '' if it is one."""
        if is_unnamed(c.name):
            return "it has no name: often the number of the row"
        if set(c.words) & set(LATER):
            return "its name is one of what is known afterwards"
        if c.values <= 1:
            return "it has one value only" if c.values else "it is empty"
        if c.kind == "other":
            return "neither numbers nor labels"
        if c.kind == "time":
            return "a date"
        if c.kind == "text" and c.values > min(FEW_STATES, ALONE * self.table.rows):
            return "free text or an identifier"
        if c.words[-1:] == ["id"] or c.named("group"):
            return "by its name an identifier"
        return ""
