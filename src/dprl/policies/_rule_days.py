"""Rules over dates: a feature that is days since 1970-01-01 is told as a date.

The number of a condition stays what it is. Which features are dates is known to the policy alone,
from how the columns of its log became features.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dprl.policies._rule import Rule

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["dated", "days_told", "with_dates"]


def dated(rule: Rule, days: Collection[str]) -> Rule:
    """The rule whose words tell dates of these features; all else is the same."""
    if all(c.day == (c.feature in days) for c in rule.conditions):
        return rule
    return replace(
        rule, conditions=tuple(replace(c, day=c.feature in days) for c in rule.conditions)
    )


def days_told(policy: RulePolicy) -> tuple[str, ...]:
    """The features that the words of a policy tell as dates.

    None where its certificate names them by the number of days. A certificate is about rules by
    their words; such a one was made before words told dates.
    """
    return _told(policy, policy.rules)


def with_dates(policy: RulePolicy, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules of a policy, whose words tell dates where `days_told` says so."""
    days = _told(policy, rules)
    return tuple(dated(rule, days) for rule in rules)


def _told(policy: RulePolicy, rules: Sequence[Rule]) -> tuple[str, ...]:
    days = () if policy.encoding is None else tuple(policy.encoding.days)
    issued = {} if policy.certificate is None else policy.certificate.issued
    by_number = [dated(rule, ()).words for rule in rules]
    by_date = [dated(rule, days).words for rule in rules]
    old = any(a in issued and b not in issued for a, b in zip(by_number, by_date, strict=True))
    return () if old else days
