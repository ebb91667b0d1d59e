"""Report: what was written, and the main numbers of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl._core import html as pages
from dprl._core.plural import form, many
from dprl._core.words import say, sentences
from dprl.evaluation._result import ENOUGH, Evaluation

__all__ = ["Report", "headline_of"]


def headline_of(judged: Evaluation | None) -> tuple[str, Mapping[str, float]] | None:
    """The estimate that is shown first: DR, or WPDIS where no model of values was fitted."""
    if judged is None:
        return None
    name = "DR" if math.isfinite(judged["DR"]["difference"]) else "WPDIS"
    return name, judged[name]


@dataclass(frozen=True)
class Report:
    """A report that was written; returned by `dprl.report`.

    Attributes:
        path: The file.
        bytes: Size of the file, in bytes.
        changes: Number of changes that the policy makes.
        whole: Number of changes that are told in full.
        listed: Number of further changes that have one line each.
        confirmed: Share of the log's decisions at which the policy suggests the usual action.
        not_done: Share of the log's decisions at which the policy suggests an action (usual or not)
            and another was taken.
        seen: Why the log is not a held-out check, in words; '' where it is one.
        evaluation: The evaluation of the policy on the log; None where the policy has seen the log.
        scattered: Number of the log's decisions that the policy changes, but that lie in no region
            simple enough to tell; they are counted by change, not described.
        divided: Share of the log's decisions at which the policy names an action and practice is
            divided: no action has half of the share there.
        gaps: On how many rows of the log each column of the state is missing, by the action taken
            ("rows", "actions", "columns"); None where nothing is missing.
        card: The model card beside the report; None where there is none.
        to_fill_in: Items of the standard that are still to fill in; empty without a standard.
    """

    path: Path
    bytes: int
    changes: int
    whole: int
    listed: int
    confirmed: float
    not_done: float
    seen: str
    evaluation: Evaluation | None
    scattered: int = 0
    divided: float = 0.0
    gaps: Mapping[str, Any] | None = None
    card: Path | None = None
    to_fill_in: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry."""
        judged = self.evaluation
        return {
            **vars(self),
            "path": str(self.path),
            "card": None if self.card is None else str(self.card),
            "to_fill_in": list(self.to_fill_in),
            "evaluation": None if judged is None else judged.to_dict(),
        }

    def __str__(self) -> str:
        summary = many(self.changes, "change")
        if self.whole < self.changes:
            summary += f", {self.whole:,} told in full"
        if self.scattered:
            summary += (
                f" told by region; {many(self.scattered, 'further decision')} "
                f"{form(self.scattered, 'changes', 'change')} in no simple region"
            )
        if self.confirmed:
            summary += (
                f"; confirms what is usually done in {pages.percent(self.confirmed)} of decisions "
                f"(something else was done than it says in {pages.percent(self.not_done)})"
            )
        lines = [f"{summary} → {self.path} ({self.bytes / 1000:.0f} kB)"]
        if self.divided:
            lines.insert(0, self._split())
        if self.card is not None:
            blank = len(self.to_fill_in)
            lines.append(
                f"Model card → {self.card}; "
                + (f"{many(blank, 'item')} of the standard to fill in: "
                   f"{', '.join(self.to_fill_in)}." if blank else "no item left to fill in.")
            )  # fmt: skip
        lines += self._careful()
        if self.seen:
            lines.append(f"No held-out check: {self.seen}.")
        return "\n".join(lines)

    def _careful(self) -> list[str]:
        """That held-out episodes say little about the policy, where that is so."""
        facts: Mapping[str, Any] = {} if self.evaluation is None else self.evaluation.facts
        if not facts.get("reached") or facts["ess_differs"] >= ENOUGH:
            return []
        return [
            sentences(
                say(
                    "The held-out estimate rests on few: the effective sample size where it "
                    "matters is {ess_differs:.1f} of {many}, below {enough}.",
                    ess_differs=facts["ess_differs"],
                    many=many(facts["reached"], facts["unit"]),
                    enough=ENOUGH,
                ),
                say("Do not rely on it."),
            )
        ]

    def _split(self) -> str:
        """That practice is divided, and what held-out episodes say against the mixture."""
        words = f"Practice is divided at {pages.percent(self.divided)} of decisions"
        headline = headline_of(self.evaluation)
        if headline is None or self.evaluation is None:
            return f"{words}: what is suggested is compared with the mixture of all that is done."
        name, row = headline
        ends = "without an interval"
        if math.isfinite(row["difference_low"]):
            ends = (
                f"{100 * self.evaluation.settings['level']:g} % interval "
                f"{row['difference_low']:+.3g} to {row['difference_high']:+.3g}"
            )
        difference = f"{row['difference']:+.3g}, {ends}."
        return f"{words}; difference to the mixture of all that is done ({name}): {difference}"
