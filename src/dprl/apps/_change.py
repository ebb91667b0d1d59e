"""Change: one thing that a policy would do differently, with its evidence and past cases."""

from __future__ import annotations

from dataclasses import dataclass

from dprl._core.practice import DIVIDED
from dprl.evidence.decision_points import TOLERANCE
from dprl.logs.log import Label
from dprl.policies._regions import Region
from dprl.policies._rule_words import RuleRecord

__all__ = ["Case", "Change", "Check", "Sure"]


@dataclass(frozen=True)
class Check:
    """What a log says about one change.

    Attributes:
        took: Number of episodes (groups, where the log has them) that took the suggestion at their
            first step in the situation.
        others: Number of episodes (groups) that did otherwise there.
        got: Mean return of those that took it; None where nobody did.
        got_others: Mean return of the others; None where there are none.
        advantage: Mean return of those that took it minus the mean return of all; None where nobody
            took it or nobody did otherwise.
        low: Lower end of the approximate 95 % interval of the advantage; None where a side has only
            one return, or all returns are equal.
        high: Upper end of the same interval.
    """

    took: int
    others: int
    got: float | None
    got_others: float | None
    advantage: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Sure:
    """How sure a learner is of one change, where it asks that.

    Attributes:
        where: In what it had to be better, in short words: "the model", say.
        advantage: What the change brings over usual practice there, in units of returns.
        se: The standard error of the advantage.
        low: Lower end of its 95 % interval, for this change alone; None where there is none.
        high: Upper end of the same interval.
        episodes: Number of trajectories that contain the suggestion in this situation.
    """

    where: str
    advantage: float
    se: float
    low: float | None
    high: float | None
    episodes: int


@dataclass(frozen=True)
class Change:
    """One thing that a policy would do differently.

    Attributes:
        key: A short name of the change, computed only from what the change says.
        situation: Where the change applies, in words.
        state: The label of the state; None where the situation is a region.
        region: The region of features; None where the situation is a state.
        usual: The action that is usually taken there; "practice is divided" where none has half of
            the share.
        suggested: The action that the policy suggests.
        shares: (action, share of episodes that took it at their first visit), largest share first.
        counted: What the counts count: "episodes", "groups" or "visits".
        episodes: Number in the training log that took the suggestion at their first visit.
        others: Number in the training log that did otherwise at their first visit.
        value_first: Mean return of those that took the suggestion at their first visit.
        value_usual: Mean return of usual practice, from the first visit.
        rule_difference: The difference that the learner's rule compared: the mean return of all
            that ever took the suggestion there, from the first time they did, minus value_usual.
        rule_episodes: Number of episodes behind rule_difference.
        advantage: The difference to usual practice at first visits, value_first - value_usual. It
            is not the same quantity as rule_difference, and may even differ from it in sign.
        low: Lower end of the approximate 95 % interval of the advantage, for this change alone;
            None where there is no interval.
        high: Upper end of the same interval.
        planned: Value of the suggestion if the plan is followed afterwards; None where there is no
            plan.
        beyond: Whether `planned` lies beyond every return that was seen from there.
        typical: (name, value) of each feature of a typical state; empty for labels.
        steps: Number of steps of the log at which the policy makes this change.
        met: Number of episodes (groups) of the log that meet such a step.
        purity: Share of the log's steps in the situation at which the change is made.
        confirmed: Share of them at which the policy confirms the usual action.
        deferred: Share of them at which it is silent.
        check: What the log says about the change.
        sure: How sure the learner is of it; None for learners that do not ask. Where there is one,
            the learner decided by it, and the differences of returns are another look.
        rule: What is on record about the rule that makes the change; None where no rule does. It
            takes the place of the numbers in training.
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
    typical: tuple[tuple[str, float | str], ...]
    steps: int
    met: int
    purity: float
    check: Check
    sure: Sure | None = None
    rule: RuleRecord | None = None
    confirmed: float = 0.0
    deferred: float = 0.0
    beyond: bool = False

    @property
    def divided(self) -> bool:
        """Whether practice is divided there: no action has half of the share."""
        return self.usual == DIVIDED

    @property
    def drawn(self) -> tuple[float | None, ...]:
        """The differences that pages draw of it, besides those of a check."""
        if self.rule is not None:
            rule = self.rule
            return (rule.advantage, rule.low, rule.high, *(rule.returns or ()))
        sure = () if self.sure is None else (self.sure.advantage,)
        return (self.advantage, self.low, self.high, *sure)

    @property
    def otherwise(self) -> float:
        """Share of the log's steps in the situation at which the policy makes another change."""
        return max(1.0 - self.purity - self.confirmed - self.deferred, 0.0)

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
        episode: Label of the episode.
        time: Time of the step, as in the log.
        action: The action that was taken.
        outcome: The return from this step on.
        cut: Whether the episode was cut (recording stopped before its end).
        after: The actions that followed, in a few words.
        features: (name, value) of each feature of the state; empty for labels.
    """

    episode: Label
    time: str
    action: Label
    outcome: float
    cut: bool
    after: str
    features: tuple[tuple[str, float | str], ...] = ()
