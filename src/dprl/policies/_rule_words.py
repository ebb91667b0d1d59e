"""What a policy made of rules says about them: decisions, sentences, tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl._core.confounding import gamma_words
from dprl._core.plural import many
from dprl._core.practice import DIVIDED, is_divided
from dprl._core.table import Table
from dprl._core.words import joined, say, word
from dprl.logs.log import Label
from dprl.policies._decisions import PAIRS, STATES, Decisions, Kind, empty, pi_of
from dprl.policies._explain import NONE, Explanation
from dprl.policies._practice_words import divided_words
from dprl.policies._rule import Rule
from dprl.policies._rule_claim import delta_of
from dprl.policies._rule_facts import evidence_words, groups_by, interval_words, usual_of
from dprl.policies.certificate import down

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = [
    "bands", "decisions_of", "explanation", "record", "rule_parts", "rule_sentence", "rule_table",
    "usual_first", "where", "worth",
]  # fmt: skip

NOTE = say(
    "Rules are asked in this order, and the first that holds speaks. advantage: what the "
    "suggestion brought\nover doing otherwise where the rule holds; low and high hold for all "
    "rules at once (large-sample),\nexcept for rules narrowed after looking. groups came there in "
    "the half that certified, groups_proposed\nin the half that proposed. gamma_star (Γ*): up to "
    "this factor an unrecorded cause may move the odds\nof the suggestion, the features being "
    "equal, and low stays above the margin."
)
GATED = {
    "proved": (
        ("proved_low", "log10_e"),
        "\nproved_low: what is proved of it at least, at first decisions there.",
    ),
    "large-sample": (
        ("gate_low", "gate_p"),
        "\ngate_low: what is certified of it at least for large samples, at first decisions there.",
    ),
}
"""Grade of a certificate → what is on record of it beside each rule, and a note on that."""
ON_RECORD = (
    "advantage", "low", "high", "p", "gamma_star", "groups", "groups_took", "groups_proposed",
    "steps", "overlap",
)  # fmt: skip


def decisions_of(policy: RulePolicy) -> Decisions:
    """One decision per rule: its suggestion, and the groups that came there by what they did."""
    rules, actions = policy.rules, policy.actions
    shape = (len(rules), len(actions))
    parts: dict[str, Any] = {
        name: np.full(shape if name in PAIRS else len(rules), empty(name), dtype)
        for name, dtype in (PAIRS | STATES).items()
    }
    choice = np.full(len(rules), -1, np.int32)
    for r, rule in enumerate(rules):
        suggested = actions.index(rule.suggested)
        parts["m"][r] = parts["n"][r] = groups_by(rule.facts, actions)
        parts["n"][r, suggested] = max(parts["m"][r, suggested], rule.facts.get("groups_took") or 0)
        parts["allowed"][r, suggested] = True
        choice[r] = -1 if rule.silent else suggested
    return Decisions(
        states=[rule.words for rule in rules], actions=actions, choice=choice,
        pi=pi_of(choice, len(actions)), terms=policy.terms,
        reasons=np.array([_reason(policy, r) for r in range(len(rules))], object), **parts,
    )  # fmt: skip


def where(policy: RulePolicy, r: int) -> str:
    """Where rule number r speaks, in words; an earlier rule may take part of its region."""
    rule = policy.rules[r]
    overlaps = any(rule.meets(earlier) for earlier in policy.rules[:r])
    return say("{where}, where no earlier rule holds", where=rule.words) if overlaps else rule.words


def usual_first(facts: Mapping[str, Any]) -> tuple[str, float | None]:
    """What is usually done where a rule holds, and its share; ('', None) if not on record.

    DIVIDED, and the largest share, where no action has half of the share.
    """
    shares = usual_of(facts)
    if not shares:
        return "", None
    largest = shares[0][1]
    if split_of(facts):
        return DIVIDED, largest
    return joined(
        say(" or "), (str(action) for action, share in shares if share == largest)
    ), largest


def split_of(facts: Mapping[str, Any]) -> str:
    """That practice is divided where a rule holds, and how; '' where an action has half."""
    shares = usual_of(facts)
    divided = bool(shares) and bool(is_divided(np.array([[share for _, share in shares]]))[0])
    return divided_words(shares) if divided else ""


def rule_parts(policy: RulePolicy, r: int) -> tuple[str, str]:
    """Rule number r in two parts, without a full stop: where it holds, and what it says."""
    rule = policy.rules[r]
    head = rule.sentence if where(policy, r) == rule.words else rule.next_sentence
    if rule.silent:
        return joined("", (r + 1, ". ", head)), say(
            "DEFER (its suggestion, {suggested}, is not approved)", suggested=rule.suggested
        )
    usual, share = usual_first(rule.facts)
    done = split_of(rule.facts)
    if not done and share is not None:
        done = say("usually {usual}, {share:.0f} %", usual=usual, share=100 * share)
    tail = (" (", done, ")") if done else ()
    late = (say(" [narrowed after looking]"),) if rule.narrowed else ()
    return joined("", (r + 1, ". ", head)), joined("", (rule.suggested, *tail, *late))


def rule_sentence(policy: RulePolicy, r: int) -> str:
    """Rule number r as a sentence."""
    rule = policy.rules[r]
    brought = "" if rule.silent else _brought(policy, rule)
    said = joined(": ", rule_parts(policy, r))
    return joined("", (said, "; ", brought, ".") if brought else (said, "."))


def _brought(policy: RulePolicy, rule: Rule) -> str:
    """What a rule brought for large samples, and what is proved of it where it has a proof."""
    parts = [interval_words(rule.facts, delta_of(policy))]
    grade = None if policy.certificate is None else policy.certificate.grade
    low = None if grade is None else rule.facts.get(GATED[grade][0][0])
    if low is not None:
        parts.append(
            say(
                "{grade} at first decisions there: at least {low:+.3g} over doing otherwise",
                grade=word(str(grade)),
                low=down(low),
            )
        )
    if rule.facts.get("gamma_star") is not None:
        parts.append(joined("", ("Γ* = ", gamma_words(rule.facts["gamma_star"]))))
    return joined("; ", (part for part in parts if part))


def record(policy: RulePolicy, rule: Rule) -> str:
    """What is on record about a rule, in words; '' if nothing is."""
    usual, share = usual_first(rule.facts)
    facts = [] if share is None else [f"usually done there is {usual} ({100 * share:.0f} %)"]
    if split_of(rule.facts):
        facts = [split_of(rule.facts)]
    facts += evidence_words(rule.facts, policy.terms.counted)
    brought = _brought(policy, rule)
    return joined("; ", [*facts, brought] if brought else facts)


def explanation(policy: RulePolicy, r: int, state: Label) -> Explanation:
    """Why the policy answers as it does in a state where rule number r is the first (-1: none)."""
    if r < 0:
        return Explanation(state, "defer", None, policy.terms.unseen, 0, None, NONE)
    rule, here, unit = policy.rules[r], policy.decisions, policy.terms.counted
    shares, groups = usual_of(rule.facts), here.m[r]
    counted: dict[str, list[int]] = {}
    if rule.facts.get("groups_by_action"):
        counted[unit] = [int(groups[policy.actions.index(action)]) for action, _ in shares]
    rows = Table(
        {
            "action": [action for action, _ in shares],
            "share": [share for _, share in shares],
            **counted,
            "verdict": [_verdict(rule, action) for action, _ in shares],
        },
        caption="What is done where the rule holds"
        if split_of(rule.facts)
        else "What is usually done where the rule holds",
        identifiers=frozenset({"action"}),
    )
    return Explanation(
        state=state,
        kind=Kind(here.kind[r]).word,
        suggested=None if rule.silent else rule.suggested,
        reason=_reason(policy, r),
        episodes=int(groups.sum()),
        value=None,
        actions=rows if shares else NONE,
    )


def _reason(policy: RulePolicy, r: int) -> str:
    """Why the policy answers as it does where rule number r is the first that holds."""
    rule = policy.rules[r]
    words = f"Rule {r + 1}: {where(policy, r)}."
    if rule.silent:
        words += " Its suggestion is not among those that were approved."
    tail = record(policy, rule)
    return joined("", (words, " ", tail[0].upper(), tail[1:], ".")) if tail else words


def _verdict(rule: Rule, action: Label) -> str:
    if action != rule.suggested:
        return ""
    return "not approved" if rule.silent else "suggested"


def rule_table(policy: RulePolicy, kind: Kind, what: str) -> Table:
    """The rules of one kind, a line each."""
    rows = np.flatnonzero(policy.decisions.kind == kind).tolist()
    rules = [policy.rules[r] for r in rows]
    usual = [usual_first(rule.facts) for rule in rules]
    balance = [rule.facts.get("balance") or ("", None) for rule in rules]
    narrowed = [rule.narrowed for rule in rules]
    more: tuple[tuple[str, ...], str] = ((), "")
    if policy.certificate is not None:
        more = GATED[policy.certificate.grade]
    on_record = (*ON_RECORD, *more[0])
    return Table(
        {
            "rule": [r + 1 for r in rows],
            "where": [where(policy, r) for r in rows],
            "usual": [action for action, _ in usual],
            "usual_share": [share for _, share in usual],
            "suggested": [rule.suggested for rule in rules],
            **{name: [rule.facts.get(name) for rule in rules] for name in on_record},
            "imbalance": [difference for _, difference in balance],
            "imbalance_of": [feature for feature, _ in balance],
            **({"narrowed": narrowed} if any(narrowed) else {}),
        },
        caption=many(rows, what),
        note=NOTE + more[1] if rows else "",
        identifiers=frozenset({"rule", "where", "usual", "suggested", "imbalance_of"}),
    )


def worth(policy: RulePolicy) -> Table:
    """What the rules that speak bring, against the share of decisions that they change."""
    lines: list[dict[str, Any]] = []
    changed_in_all = brought_in_all = 0.0
    for r, rule in enumerate(policy.rules):
        if rule.silent:
            continue
        numbers: tuple[Any, ...] = tuple(rule.facts.get(n) for n in ("share", "changed", "gain"))
        share, changed, gain = numbers
        on_record = None not in numbers
        if on_record:
            changed_in_all += changed
            brought_in_all += share * gain
        lines.append({
            "rule": r + 1, "where": where(policy, r), "suggested": rule.suggested, "share": share,
            "changes": changed,
            "per change": share * gain / changed if on_record and changed else None,
            "changes in all": changed_in_all if on_record else None,
            "brings in all": brought_in_all if on_record else None,
        })  # fmt: skip
    names = ("rule", "where", "suggested", "share", "changes", "per change", "changes in all",
             "brings in all")  # fmt: skip
    return Table(
        {name: [line[name] for line in lines] for name in names},
        caption=say("What the rules bring, one change at a time"),
        note=say(
            "share: steps where the rule holds. changes: steps that would change. per change and "
            "brings in all:\nover usual practice, in units of returns; the last per step of the "
            "log."
        ),
        identifiers=frozenset({"rule", "where", "suggested"}),
    )


def bands(policy: RulePolicy) -> list[dict[str, Any]]:
    """The rules as a page shows them, one band each."""
    return [
        {
            "sentence": joined(": ", rule_parts(policy, r)),
            "silent": rule.silent,
            "narrowed": rule.narrowed,
            "evidence": joined("; ", evidence_words(rule.facts, policy.terms.counted)),
            **{name: rule.facts.get(name) for name in ("advantage", "low", "high")},
        }
        for r, rule in enumerate(policy.rules)
    ]
