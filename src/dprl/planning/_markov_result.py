"""MarkovCheck: what the past tells beyond state and action, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from dprl._core.results import Result
from dprl._core.table import Table, to_json_value
from dprl._core.words import api, joined, say, worded
from dprl.logs.log import Label

__all__ = ["Comparison", "MarkovCheck"]


@dataclass(frozen=True)
class Comparison:
    """One thing in the past, and whether it tells what comes next.

    Attributes:
        past: What may tell: "action 1 before", say, or "step number".
        outcome: What it may tell: "what comes" (the reward plus the discounted value of the next
            state) or "the reward" alone.
        p: The p-value of this comparison alone; NaN where nothing could be compared.
        adjusted: The p-value adjusted for the number of comparisons (Holm); NaN as above.
        share: The share of the outcome's variance within cells that it explains beyond chance, from
            0 to 1; NaN as above.
        cells: How many cells (state and action) were compared.
        visits: How many visits stand behind it; one per group and cell.
        state: The state of the cell in which it tells most; None where nothing was compared.
        action: The action of that cell.
        sentence: What it tells there, in words.
    """

    past: str
    outcome: str
    p: float
    adjusted: float
    share: float
    cells: int
    visits: int
    state: Label | None
    action: Label | None
    sentence: str


@dataclass(frozen=True)
class MarkovCheck(Result):
    """The result of `dprl.markov_check`.

    Attributes:
        gamma: Discount of the values that were used.
        level: A finding needs an adjusted p-value of at most this.
        lags: How many steps back was looked; fewer than asked for where episodes are shorter.
        seed: Seed of the shuffles.
        permutations: How many shuffles were made.
        asked: How many were asked for.
        groups: How many groups the log holds.
        cells: How many cells (state and action) were compared in any way.
        visits: How many visits lie in these cells; one per group and cell.
        unknown: How many last visits of cut episodes have no known outcome and were left out.
        comparisons: One for each thing in the past and each outcome; what tells most comes first.

    Example:
        >>> import dprl
        >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
        >>> print(str(result).splitlines()[0])
        The state is not enough: given state and action, the past still tells what comes next.
    """

    HEAD: ClassVar[str] = "Is the state enough?"

    gamma: float
    level: float
    lags: int
    seed: int
    permutations: int
    asked: int
    groups: int
    cells: int
    visits: int
    unknown: int
    comparisons: tuple[Comparison, ...]

    @property
    def findings(self) -> tuple[Comparison, ...]:
        """The comparisons whose adjusted p-value is at most `level`, in their order."""
        return tuple(c for c in self.comparisons if c.adjusted <= self.level)

    @property
    def ok(self) -> bool:
        """Whether nothing was found. This proves nothing where little could be compared."""
        return not self.findings

    @property
    def lines(self) -> list[str]:
        """What was found, what it means and what to do, one sentence or two per line."""
        seen = (
            f"Compared: {_count(self.visits, 'visit')} in {_count(self.cells, 'cell')} (state and "
            f"action) of {_count(self.groups, 'group')}, looking {_count(self.lags, 'step')} back; "
            f"{self.permutations:,} shuffles."
        )
        if self.permutations < self.asked:
            seen += f" ({self.asked:,} were asked for; fewer are taken in large logs.)"
        if self.unknown:
            seen += (
                f" The last visits of {_count(self.unknown, 'cut episode')} have no known outcome "
                "and were left out."
            )
        if not self.ok:
            names = list(dict.fromkeys(c.past for c in self.findings))
            return [
                say(
                    "The state is not enough: given state and action, the past still tells what "
                    "comes next."
                ),
                *(c.sentence for c in self.findings[:3]),
                say(
                    "A policy that was planned in a model of these states may do harm: what an "
                    "action costs later is charged to whatever was done when the cost came."
                ),
                worded(
                    "Add what tells to the state ({join}) and check again, or use evidence that "
                    "does not need this: {learner} compares whole returns.",
                    join=", ".join(names),
                    learner=api("dprl.DPRLDiscrete"),
                ),
                seen,
            ]
        if not self.cells:
            return [
                say("Nothing could be compared: this does not say whether the state is enough."),
                "A cell (state and action) needs visits of several groups with different pasts "
                "and different outcomes.",
                seen,
            ]
        return [
            say("No sign that the past tells more than state and action do."),
            say(
                "This is no proof: a weak effect, one in states with few visits, one from further "
                "back or one that no recorded column tells of would not show."
            ),
            seen,
        ]

    def table(self) -> Table:
        """The comparisons as a table.

        Returns:
            One row per comparison; what tells most comes first.

        Example:
            >>> import dprl
            >>> log = dprl.envs.delayed().sample(200, seed=0)
            >>> dprl.markov_check(log, 1.0).table()["past"][0]
            'action 2 before'
        """
        rows = self.comparisons
        return Table(
            {
                "past": [c.past for c in rows],
                "may tell": [c.outcome for c in rows],
                "p": [c.p for c in rows],
                "adjusted p": [c.adjusted for c in rows],
                "share": [c.share for c in rows],
                "cells": [c.cells for c in rows],
                "visits": [c.visits for c in rows],
                "most in": [
                    "" if c.state is None else f"{c.state!r} with {c.action!r}" for c in rows
                ],
            },
            caption="What the past tells, given state and action",
            note="share: of the variance within state and action, beyond chance. Adjusted p: "
            "for the number of comparisons (Holm).",
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, in values that JSON can hold.

        Returns:
            All attributes, "ok" and "text" (the sentences); NaN becomes None.

        Example:
            >>> import dprl
            >>> log = dprl.envs.delayed().sample(200, seed=0)
            >>> dprl.markov_check(log, 1.0).to_dict()["ok"]
            False
        """
        return {"ok": self.ok, "text": self.lines, **to_json_value(asdict(self))}

    def __str__(self) -> str:
        return joined("\n", [*self.lines, "", str(self.table())])


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"
