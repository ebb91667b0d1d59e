"""A narrower rule: it holds in a part of the states where the rule held, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dprl.errors import ParameterError
from dprl.policies._rule import WITH_LABELS, Condition, Rule
from dprl.policies._rule_days import days_told

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["narrower", "place_of", "with_facts"]


def place_of(policy: RulePolicy, number: Any) -> int:
    """The place of a rule, from 0, by its number, from 1; a ParameterError if there is none."""
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 1 <= number <= len(policy.rules):
        raise ParameterError(
            f"there is no rule {str(number)[:40]!r}; the policy has {len(policy.rules)}.",
            do="Name a rule by its number, as sentences count: the first is 1.",
        )
    return int(number) - 1


def narrower(policy: RulePolicy, number: int, conditions: Iterable[Any]) -> Rule:
    """The rule with these conditions, without facts; a ParameterError if it is not narrower.

    Args:
        policy: The policy.
        number: The number of the rule, from 1.
        conditions: All that the narrower rule asks, as conditions or what their `to_dict` gives.

    Returns:
        The rule. It keeps the conditions of the old one, and adds those that are new: so the
        questions of a tree stay what they were.
    """
    old = policy.rules[place_of(policy, number)]
    if isinstance(conditions, str | bytes | Mapping) or not isinstance(conditions, Iterable):
        raise ParameterError(
            f"a narrower rule has a list of conditions; got {str(conditions)[:60]!r}.",
            do="Give what Rule.to_dict()['conditions'] looks like.",
        )
    asked = tuple(c if isinstance(c, Condition) else Condition.from_dict(c) for c in conditions)
    dates = days_told(policy)
    asked = tuple(replace(c, day=c.feature in dates) for c in asked)
    for condition in asked:
        policy.check_condition(condition)
    for condition in old.conditions:
        if not _follows(condition, asked, policy.levels_of(condition.feature)):
            words = " and ".join(c.words for c in asked) or "everywhere"
            raise ParameterError(
                f"this is not narrower: rule {number} holds only where {condition.words}.",
                words,
                "Raise or lower a threshold inwards, leave out labels, or add a condition.",
            )
    new = Rule((*old.conditions, *(c for c in asked if c not in old.conditions)), old.suggested,
               silent=old.silent)  # fmt: skip
    if all(_follows(c, old.conditions, policy.levels_of(c.feature)) for c in asked):
        raise ParameterError(
            f"this is not narrower: rule {number} already asks all of it.",
            old.words,
            "Raise or lower a threshold inwards, leave out labels, or add a condition.",
        )
    for later, other in enumerate(policy.rules[number:], number + 1):
        if old.meets(other):
            raise ParameterError(
                f"rule {number} cannot be narrowed: rule {later} would speak where it did.",
                other.words,
                "Narrow the later rule first, so that the two have no state in common.",
            )
    return new


def with_facts(old: Rule, new: Rule, facts: Mapping[str, Any]) -> Rule:
    """The narrower rule with what is on record about it, marked as narrowed after looking."""
    before = old.facts.get("narrowed_from") or old.words
    own = {**dict(facts), "narrowed": True, "narrowed_from": before}
    return Rule(new.conditions, new.suggested, own, new.silent)


def _follows(
    condition: Condition, asked: Sequence[Condition], levels: Sequence[str] | None
) -> bool:
    """Whether whatever satisfies all of `asked` satisfies a condition too."""
    own = [c for c in asked if c.feature == condition.feature]
    kinds = {c.kind for c in own}
    if condition.kind == "missing" or "missing" in kinds:
        return condition.kind == "missing" and "missing" in kinds
    if condition.kind == "known" or not own:
        return bool(own)
    if condition.kind in WITH_LABELS:
        every = set(levels or ())
        left = set(every)
        for c in own:
            left &= _accepted(c, every)
        return left <= _accepted(condition, every)
    ends = [c.value for c in own if c.kind == condition.kind]
    if condition.kind == "at most":
        return any(end <= condition.value for end in ends)
    return any(end >= condition.value for end in ends)


def _accepted(condition: Condition, every: set[str]) -> set[str]:
    """The labels of a category that satisfy a condition."""
    if condition.kind == "in":
        return every & set(condition.labels)
    return every - set(condition.labels) if condition.kind == "not in" else every
