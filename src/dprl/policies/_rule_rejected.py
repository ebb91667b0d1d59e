"""The candidates that were not certified: what they brought as estimated, and why they say nothing.

A learner of rules tests more regions than it issues. Those that did not pass are on record with the
policy; they are shown apart from the rules and never act.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dprl._core.table import Table
from dprl._core.words import say
from dprl.errors import DprlError
from dprl.policies._rule import Rule
from dprl.policies._rule_claim import delta_of

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["not_issued"]

NAMES = ("advantage", "low", "high", "p", "groups", "groups_took")
CAPTION = say("Not issued: candidates that were not certified")
NOTE = say(
    "These regions were proposed and tested with the rules; none of them acts. advantage: what "
    "the action brought\nover doing otherwise there, as estimated; low and high hold for all "
    "candidates at once (large-sample)."
)
FEW = say("too few groups with it, or without it")
UNSURE = say("not surely better than doing otherwise")
GATED = say("passed the learner's test, not the gate's")
DIFFER = say("those who took it differ from the others")
"""Why a candidate was not issued."""


def not_issued(policy: RulePolicy) -> Table:
    """The candidates of a policy that were tested and not certified, the highest low first.

    Args:
        policy: A policy made of rules.

    Returns:
        One line for each: where it holds, what it would suggest, the estimate with its interval, p,
        the groups behind it, and why it was not issued. Empty where none is on record.
    """
    issued = {_key(rule) for rule in policy.rules}
    before = {str(rule.facts.get("narrowed_from")) for rule in policy.rules if rule.narrowed}
    rules = [r for r in _tested(policy) if _key(r) not in issued and r.words not in before]
    rules.sort(key=lambda rule: -_low(rule))
    return Table(
        {
            "where": [rule.words for rule in rules],
            "suggested": [rule.suggested for rule in rules],
            **{name: [rule.facts.get(name) for rule in rules] for name in NAMES},
            "why": [_why(policy, rule) for rule in rules],
        },
        caption=CAPTION,
        note=NOTE,
        identifiers=frozenset({"where", "suggested", "why"}),
    )


def _tested(policy: RulePolicy) -> tuple[Rule, ...]:
    """All candidates on record; none where there is no record, or it is damaged."""
    record = policy.provenance.get("rules")
    tested: Any = record.get("tested") if isinstance(record, Mapping) else None
    if not isinstance(tested, list):
        return ()
    try:
        return tuple(Rule.from_dict(rule) for rule in tested)
    except (DprlError, KeyError, TypeError, ValueError):
        return ()


def _key(rule: Rule) -> tuple[str, str]:
    return rule.words, str(rule.suggested)


def _low(rule: Rule) -> float:
    low = rule.facts.get("low")
    return float("-inf") if low is None else float(low)


def _why(policy: RulePolicy, rule: Rule) -> str:
    p, delta = rule.facts.get("p"), delta_of(policy)
    if rule.facts.get("struck"):
        return DIFFER
    if p is None or delta is None or p > delta:
        return UNSURE
    return FEW if policy.certificate is None else GATED
