"""What pages show of one rule: its sentence, and every number on record about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from dprl._core.words import say
from dprl.policies._rule_claim import delta_of
from dprl.policies._rule_facts import imbalance_words
from dprl.policies._rule_words import rule_parts

if TYPE_CHECKING:
    from dprl.policies._protocol import DeferringPolicy
    from dprl.policies.rules import RulePolicy

__all__ = ["RuleRecord", "record_of", "rules_of"]


@dataclass(frozen=True)
class RuleRecord:
    """One rule as pages show it; numbers that are not on record are None.

    Attributes:
        number: Its number, from 1.
        sentence: Where it holds, what it suggests and what is usually done there.
        silent: Whether it may not speak.
        narrowed: Whether it was narrowed after looking, so that what is stated of all rules at once
            does not cover it.
        narrowed_from: Where it held before; '' if it was not narrowed.
        advantage: What the suggestion brought over doing otherwise, in the half that certified.
        low: Lower end of its interval.
        high: Upper end of its interval.
        p: Its p-value; adjusted for all rules unless it was narrowed.
        level: With which confidence each end holds, in words: "95 %"; '' if not on record.
        scope: For what the ends hold, in words.
        groups: Groups of the half that certified which came there.
        took: Those of them that took the suggestion there.
        others: Those of them that did otherwise there.
        proposed: Groups of the half that proposed which came there.
        unit: What is counted: "episodes" or "groups".
        overlap: Share of the steps there at which the suggestion could be judged.
        imbalance: What differs most between takers and others after weighting, and by how many
            standard deviations.
        warning: The same as a warning; '' where it is small.
        returns: The contrast of whole returns with its ends, of this rule alone.
    """

    number: int
    sentence: str
    silent: bool
    narrowed: bool
    narrowed_from: str
    advantage: float | None
    low: float | None
    high: float | None
    p: float | None
    level: str
    scope: str
    groups: int | None
    took: int | None
    others: int | None
    proposed: int | None
    unit: str
    overlap: float | None
    imbalance: tuple[str, float] | None
    warning: str
    returns: tuple[float, float | None, float | None] | None


def record_of(policy: RulePolicy, r: int) -> RuleRecord:
    """What pages show of rule number r, from 0."""
    rule, facts, delta = policy.rules[r], policy.rules[r].facts, delta_of(policy)
    balance, returns = facts.get("balance"), facts.get("returns")
    return RuleRecord(
        number=r + 1,
        sentence=": ".join(rule_parts(policy, r)),
        silent=rule.silent,
        narrowed=rule.narrowed,
        narrowed_from=facts.get("narrowed_from") or "",
        **{name: facts.get(name) for name in ("advantage", "low", "high", "p")},
        level="" if delta is None else f"{100 * (1 - delta):g} %",
        scope=(
            say("this rule alone, narrowed after looking")
            if rule.narrowed
            else say("all rules at once")
        ),
        groups=facts.get("groups"),
        took=facts.get("groups_took"),
        others=facts.get("groups_others"),
        proposed=facts.get("groups_proposed"),
        unit=policy.terms.counted,
        overlap=facts.get("overlap"),
        imbalance=None if balance is None else (balance[0], float(balance[1])),
        warning=imbalance_words(facts),
        returns=_whole(returns),
    )


def rules_of(policy: DeferringPolicy) -> RulePolicy | None:
    """The policy, where its changes are rules; else None."""
    return cast("RulePolicy", policy) if policy.changes_by == "rule" else None


def _whole(returns: Any) -> tuple[float, float | None, float | None] | None:
    if returns is None or returns[0] is None:
        return None
    return returns[0], returns[1], returns[2]
