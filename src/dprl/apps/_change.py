"""Change: one thing a policy would do otherwise, with what stands behind it and past cases."""

from __future__ import annotations

from dataclasses import dataclass

from dprl.evidence.decision_points import TOLERANCE
from dprl.logs.log import Label
from dprl.policies._regions import Region

__all__ = ["Case", "Change", "Check"]


@dataclass(frozen=True)
class Check:
    """What the log says about a change.

    Attributes:
        took: Episodes (groups) whose first step in the situation took the suggestion.
        others: Those that did otherwise.
        got: Mean return of those that took it; None where nobody did.
        got_others: And of the others.
        advantage: The mean return of those that took it less that of all; None without either.
        low: Its approximate 95 % interval; None where a side has one return, or all equal.
        high: And its other end.
    """

    took: int
    others: int
    got: float | None
    got_others: float | None
    advantage: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Change:
    """One thing a policy would do otherwise.

    Attributes:
        key: A short name of it that depends on what it says alone.
        situation: Where, in words.
        state: The state's label; None where it is a region.
        region: The region; None where it is a state.
        usual: What is usually done there.
        suggested: What the policy suggests.
        shares: (action, share of episodes that took it there first), largest first.
        counted: What the counts count: "episodes", "groups" or "visits".
        episodes: Of the training log, that took the suggestion at their first visit.
        others: And that did otherwise.
        value_first: Mean return of those that took it at their first visit.
        value_usual: And with usual practice.
        rule_difference: What the rule looked at: the mean return of all that ever took it there,
            from the first time they did, less that of usual practice.
        rule_episodes: How many these are.
        advantage: The difference to usual practice at first visits: value_first - value_usual. It
            is another quantity than rule_difference, and may differ from it even in sign.
        low: Its approximate 95 % interval, of this change alone; None where there is none.
        high: And its other end.
        planned: What the suggestion is worth if the plan is followed from there on; None where
            there is no plan.
        typical: (name, value) of a typical state; empty for labels.
        steps: The log's steps at which the policy makes this change.
        met: Episodes (groups) of the log that meet it.
        purity: Share of the log's steps in the situation at which the change is made.
        check: What the log says.
    """

    key: str
    situation: str
    state: Label | None
    region: Region | None
    usual: Label
    suggested: Label
    shares: tuple[tuple[Label, float], ...]
    counted: str
    episodes: int
    others: int
    value_first: float
    value_usual: float
    rule_difference: float
    rule_episodes: int
    advantage: float
    low: float | None
    high: float | None
    planned: float | None
    typical: tuple[tuple[str, float], ...]
    steps: int
    met: int
    purity: float
    check: Check

    @property
    def below(self) -> bool:
        """Whether the plan's value of the suggestion lies below usual practice."""
        if self.planned is None:
            return False
        size = max(abs(self.planned), abs(self.value_usual))
        return self.value_usual - self.planned > TOLERANCE * size


@dataclass(frozen=True)
class Case:
    """One past step in a situation.

    Attributes:
        episode: Whose.
        time: When, as the log says it.
        action: What was done.
        outcome: The return that followed.
        cut: Whether we stopped looking before its end.
        after: What was done next, in a few words.
        features: (name, value) of the state; empty for labels.
    """

    episode: Label
    time: str
    action: Label
    outcome: float
    cut: bool
    after: str
    features: tuple[tuple[str, float], ...] = ()
