"""The candidates that were not certified: what they brought as estimated, and why they say nothing.

A learner of rules tests more regions than it issues. Those that did not pass are on record with the
policy; they are shown apart from the rules and never act.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dprl._core.table import Table
from dprl.errors import DprlError
from dprl.policies._rule import Rule
from dprl.policies._rule_claim import delta_of

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["facts_of_rules", "not_issued", "words_of_rules"]

NAMES = ("advantage", "low", "high", "p", "groups", "groups_took")
CAPTION = "Not issued: candidates that were not certified"
NOTE = (
    "These regions were proposed and tested with the rules; none of them acts. advantage: what the "
    "action brought\nover doing otherwise there, as estimated; low and high hold for all "
    "candidates at once (large-sample)."
)
FEW = "too few groups with it, or without it"
UNSURE = "not surely better than doing otherwise"
GATED = "passed the learner's test, not the gate's"
DIFFER = "those who took it differ from the others"
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


# -- what is said of rules that were just learned --------------------------------------------------


def facts_of_rules(policy: RulePolicy) -> dict[str, Any]:
    """The rules, what is stated and noted, what they bring, and how they came about.

    Args:
        policy: A policy of `dprl.Rules`.
    """
    record = policy.provenance["rules"]
    return {
        "rules": json.loads(policy.to_json_rules()),
        "stated": policy.stated,
        "notes": policy.provenance["notes"],
        "worth": policy.worth().to_dicts(),
        "not_issued": not_issued(policy).to_dicts(),
        "models": record["models"],
        "divisions": record["divisions"],
        "division": record["division"],
    }


def words_of_rules(policy: RulePolicy) -> str:
    """The rules as sentences with what is stated, what they bring, and the models behind them.

    Args:
        policy: A policy of `dprl.Rules`.
    """
    models = policy.provenance["rules"]["models"]
    table = Table(
        {name: [line.get(name) for line in models] for name in models[0]},
        caption="Probabilities of actions, judged on groups that the models have not seen",
        note="log-loss in nats per row; misplaced: 0 perfect, 1 all wrong.",
    )
    apart = not_issued(policy)
    tables = "\n\n".join(map(str, (apart, table) if len(apart) else (table,)))
    if policy.rules:
        return f"{policy}\n\n{policy.worth()}\n\n{tables}"
    return "\n".join(
        ["No rule was certified: the policy defers everywhere.", *policy.provenance["notes"], "",
         tables]
    )  # fmt: skip
