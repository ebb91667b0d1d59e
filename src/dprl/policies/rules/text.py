"""What a policy made of rules says about them: decisions, sentences, tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dprl._core.arrays import DIVIDED, Bools, is_divided
from dprl._core.inference import gamma_words
from dprl._core.table import Table, many
from dprl._core.words import Said, joined, say, sentences, word
from dprl.errors import DprlError
from dprl.logs.log import Label
from dprl.policies.certificate import AVOIDING, down
from dprl.policies.explain import NONE, Explanation, divided_words
from dprl.policies.protocol import PAIRS, STATES, Decisions, Kind, empty, pi_of
from dprl.policies.rules.rule import (
    Rule,
    evidence_words,
    groups_by,
    imbalance_words,
    interval_words,
    short_number,
    usual_of,
)

if TYPE_CHECKING:
    from dprl.policies.protocol import DeferringPolicy
    from dprl.policies.rules.policy import RulePolicy


NOTE = say(
    "Rules are asked in this order, and the first that holds speaks. advantage: what the "
    "suggestion brought\nover doing otherwise where the rule holds; low and high hold for all "
    "rules at once (large-sample),\nexcept for rules narrowed after looking. groups came there "
    "among those that certified, groups_proposed\nin the half that proposed, if one did. "
    "gamma_star (Γ*): up to this factor an unrecorded cause may move the odds\nof the "
    "suggestion, the features being equal, and the rule stays certified."
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
    choice, avoid = (np.full(len(rules), -1, np.int32) for _ in range(2))
    for r, rule in enumerate(rules):
        named, took = actions.index(rule.action), "groups_others" if rule.avoids else "groups_took"
        parts["m"][r] = parts["n"][r] = groups_by(rule.facts, actions)
        parts["n"][r, named] = max(parts["m"][r, named], rule.facts.get(took) or 0)
        parts["allowed"][r, named] = not rule.avoids
        if not rule.silent:
            (avoid if rule.avoids else choice)[r] = named
    return Decisions(
        states=[rule.words for rule in rules], actions=actions, choice=choice, avoid=avoid,
        pi=pi_of(choice, len(actions)), terms=policy.terms,
        reasons=np.array([_reason(policy, r) for r in range(len(rules))], object), **parts,
    )  # fmt: skip


def shown(policy: RulePolicy, rule: Rule) -> dict[str, Any]:
    """What is on record about a rule, in the direction of the outcome."""
    outcome = policy.terms.measured
    facts = outcome.facts(rule.facts)
    if outcome.falls and facts.get("returns"):
        mean, low, high = map(outcome.shown, facts["returns"])
        facts["returns"] = [mean, high, low]
    return facts


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
            "DEFER (its suggestion, {suggested}, is not approved)", suggested=rule.says
        )
    usual, share = usual_first(rule.facts)
    done = split_of(rule.facts)
    if not done and share is not None:
        done = say("usually {usual}, {share:.0f} %", usual=usual, share=100 * share)
    tail = (" (", done, ")") if done else ()
    late = (say(" [narrowed after looking]"),) if rule.narrowed else ()
    says = Said("{action}", "", {"action": rule.says})
    return joined("", (r + 1, ". ", head)), joined("", (says, *tail, *late))


def rule_sentence(policy: RulePolicy, r: int) -> str:
    """Rule number r as a sentence."""
    rule = policy.rules[r]
    brought = "" if rule.silent else _brought(policy, rule)
    said = joined(": ", rule_parts(policy, r))
    said = joined("", (said, "; ", brought, ".") if brought else (said, "."))
    return str(policy.terms.called.said(said)) if policy.terms.called else said


def _brought(policy: RulePolicy, rule: Rule) -> str:
    """What a rule brought for large samples, and what is proved of it where it has a proof."""
    parts = [interval_words(shown(policy, rule), delta_of(policy))]
    outcome = policy.terms.measured
    grade = None if policy.certificate is None else policy.certificate.grade
    low = None if grade is None else rule.facts.get(GATED[grade][0][0])
    if low is not None:
        parts.append(
            say(
                "{grade} at first decisions there: {at_least} {low:+.3g} over doing otherwise",
                grade=word(str(grade)),
                at_least=outcome.at_least,
                low=outcome.shown(down(low)),
            )
        )
    if rule.facts.get("gamma_star") is not None and not by_lot(policy):
        parts.append(joined("", ("Γ* = ", gamma_words(rule.facts["gamma_star"]))))
    return joined("; ", (part for part in parts if part))


def by_lot(policy: RulePolicy) -> bool:
    """Whether all actions of the training log were given with known chances: nothing is hidden."""
    return policy.provenance.get("probabilities") == "known"


def one_decision(policy: RulePolicy) -> bool:
    """Whether every episode of the training log has one decision, so that none follows."""
    made = policy.provenance
    return made.get("steps") is not None and made.get("steps") == made.get("episodes")


def record(policy: RulePolicy, rule: Rule) -> str:
    """What is on record about a rule, in words; '' if nothing is."""
    usual, share = usual_first(rule.facts)
    facts = []
    if share is not None:
        facts = [
            say("usually done there is {usual} ({share:.0f} %)", usual=usual, share=100 * share)
        ]
    if split_of(rule.facts):
        facts = [split_of(rule.facts)]
    facts += evidence_words(shown(policy, rule), policy.terms.counted)
    brought = _brought(policy, rule)
    return joined("; ", [*facts, brought] if brought else facts)


def explanation(policy: RulePolicy, r: int, state: Label, excepted: int = -1) -> Explanation:
    """Why the policy answers as it does in a state where rule number r is the first (-1: none).

    `excepted` is the number of a rule of which the state is an exception (-1: of none).
    """
    if r < 0:
        reason = policy.terms.unseen if excepted < 0 else _not_here(policy, excepted)
        return Explanation(state, "defer", None, reason, 0, None, NONE)
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
        called=policy.terms.called,
        caption="What is done where the rule holds"
        if split_of(rule.facts)
        else "What is usually done where the rule holds",
        identifiers=frozenset({"action"}),
    )
    return Explanation(
        state=state,
        kind=Kind(here.kind[r]).word,
        suggested=None if rule.silent else rule.says,
        reason=_reason(policy, r),
        episodes=int(groups.sum()),
        value=None,
        actions=rows if shares else NONE,
    )


def _reason(policy: RulePolicy, r: int) -> str:
    """Why the policy answers as it does where rule number r is the first that holds."""
    rule = policy.rules[r]
    words = joined("", (f"Rule {r + 1}: ", where(policy, r), "."))
    if rule.silent:
        words += " Its suggestion is not among those that were approved."
    tail = policy.terms.called.said(record(policy, rule))
    return joined("", (words, " ", tail[0].upper(), tail[1:], ".")) if tail else words


def _not_here(policy: RulePolicy, r: int) -> str:
    """Why a rule does not hold in its exceptions."""
    return say(
        "Rule {n} does not apply here: the record shows hardly anybody who was given {action}, or "
        "hardly anybody who was not.",
        n=r + 1,
        action=policy.rules[r].action,
    )


def _verdict(rule: Rule, action: Label) -> str:
    if action != rule.action:
        return ""
    if rule.silent:
        return "not approved"
    return "to be avoided" if rule.avoids else "suggested"


def rule_table(policy: RulePolicy, which: Bools, what: str) -> Table:
    """Some of the rules, a line each."""
    rows = np.flatnonzero(which).tolist()
    rules = [policy.rules[r] for r in rows]
    usual = [usual_first(rule.facts) for rule in rules]
    balance = [rule.facts.get("balance") or ("", None) for rule in rules]
    narrowed = [rule.narrowed for rule in rules]
    more: tuple[tuple[str, ...], str] = ((), "")
    if policy.certificate is not None:
        more = GATED[policy.certificate.grade]
        if policy.terms.measured.falls:
            more = more[0], more[1].replace("_low", "_high").replace("at least", "at most")
    on_record = (*ON_RECORD, *more[0])
    table = Table(
        {
            "rule": [r + 1 for r in rows],
            "where": [where(policy, r) for r in rows],
            "usual": [action for action, _ in usual],
            "usual_share": [share for _, share in usual],
            "suggested": [rule.says for rule in rules],
            **{name: [rule.facts.get(name) for rule in rules] for name in on_record},
            "imbalance": [difference for _, difference in balance],
            "imbalance_of": [feature for feature, _ in balance],
            **({"narrowed": narrowed} if any(narrowed) else {}),
        },
        caption=many(rows, what),
        note=NOTE + more[1] if rows else "",
        identifiers=frozenset({"rule", "where", "usual", "suggested", "imbalance_of"}),
        first=("rule", "where", "suggested", "usual", "advantage", "low", "high", "groups"),
        called=policy.terms.called,
        in_short="advantage: over doing otherwise where the rule holds; low and high hold for all "
        "rules at once (large-sample).",
    )
    return policy.terms.measured.table(table)


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
            "rule": r + 1, "where": where(policy, r), "suggested": rule.says, "share": share,
            "changes": changed,
            "per change": share * gain / changed if on_record and changed else None,
            "changes in all": changed_in_all if on_record else None,
            "brings in all": brought_in_all if on_record else None,
        })  # fmt: skip
    names = ("rule", "where", "suggested", "share", "changes", "per change", "changes in all",
             "brings in all")  # fmt: skip
    table = Table(
        {name: [line[name] for line in lines] for name in names},
        caption=say("What the rules bring, one change at a time"),
        note=say(
            "share: steps where the rule holds. changes: steps that would change. per change and "
            "brings in all:\nover usual practice, in units of returns; the last per step of the "
            "log."
        ),
        identifiers=frozenset({"rule", "where", "suggested"}),
        called=policy.terms.called,
    )
    return policy.terms.measured.table(table, ("per change", "brings in all"))


def bands(policy: RulePolicy) -> list[dict[str, Any]]:
    """The rules as a page shows them, one band each."""
    return [
        {
            "sentence": joined(": ", rule_parts(policy, r)),
            "silent": rule.silent,
            "narrowed": rule.narrowed,
            "evidence": joined("; ", evidence_words(facts, policy.terms.counted)),
            **{name: facts.get(name) for name in ("advantage", "low", "high")},
        }
        for r, rule in enumerate(policy.rules)
        for facts in [shown(policy, rule)]
    ]


# -- what is stated of all rules at once, and what is not, in sentences ----------------------------

WHOLE = say("Where only the first suggestion of an episode is followed")
"""How the note of all rules together begins in files of 0.2.0 and before."""
IN_PART = say(
    "What these rules bring together is not stated: the learner said that of all of its rules, "
    "and some were not approved or were narrowed."
)

ASSUMED = {
    "estimated": say(
        "It assumes that the features tell all that decided who got what, and that models of it "
        "come closer as they see more."
    ),
    "mixed": say(
        "Where probabilities of actions are estimated, it assumes that the features tell all that "
        "decided who got what, and that models of it come closer as they see more."
    ),
    "known": say(
        "The probabilities of actions are known (randomised): it does not assume that the "
        "features tell all that decided who got what."
    ),
}
"""Where the probabilities of actions come from → what a claim assumes about the features."""


def delta_of(policy: RulePolicy) -> float | None:
    """The probability with which what is stated of the rules may be wrong, if it is on record."""
    delta = policy.parameters.get("delta")
    good = isinstance(delta, int | float) and not isinstance(delta, bool) and 0 < delta < 1
    return float(delta) if good and delta is not None else None


def claim(policy: RulePolicy) -> str:
    """What is claimed of the rules: all of them followed at every decision, and each by itself."""
    delta = delta_of(policy)
    covered = [r for r, rule in enumerate(policy.rules, 1) if not rule.silent and not rule.narrowed]
    if not covered or delta is None:
        return ""
    whole = _of_the_whole(policy)
    alone = _each(policy, covered, delta, bool(whole))
    if not whole and not alone:
        return ""
    grade = (
        say("Large-sample,") if policy.certificate is None else say("Beyond that, large-sample and")
    )
    source = str(policy.provenance.get("probabilities", "estimated"))
    return sentences(
        say(
            "{grade} not proved: with confidence about {delta:g} %,",
            grade=grade,
            delta=100 * (1 - delta),
        ),
        joined(" ", (part for part in (whole, alone) if part)),
        _unless([policy.rules[r - 1] for r in covered]),
        _meant(policy),
        AVOIDING if any(policy.rules[r - 1].avoids for r in covered) else "",
        joined(
            "",
            (
                ASSUMED.get(source, ASSUMED["estimated"]),
                _hidden([policy.rules[r - 1] for r in covered], source),
            ),
        ),
    )


def _unless(rules: Sequence[Rule]) -> str:
    """What no log can tell: what did not happen to those who did as suggested."""
    took = [n for n in (rule.facts.get("groups_took") for rule in rules) if isinstance(n, int)]
    if not took:
        return ""
    return say(
        "It holds unless something that has not happened in {n:,} cases happens.", n=min(took)
    )


def _meant(policy: RulePolicy) -> str:
    """Of which decisions anything is claimed; '' where that is not on record."""
    record = policy.provenance.get("rules")
    eta = record.get("eta") if isinstance(record, Mapping) else None
    if not isinstance(record, Mapping) or not isinstance(eta, int | float):
        return ""
    whole = record.get("whole")
    facts: Mapping[str, Any] = whole if isinstance(whole, Mapping) else {}
    allowed, learning = facts.get("untreated"), facts.get("learning")
    return sentences(
        say(
            "It is about decisions like those of which at least {eta:.0f} % went either way: where "
            "the record shows fewer, the rules do not apply, and of places too small to show it "
            "nothing is known.",
            eta=100 * eta,
        ),
        say(
            "Lower ends allow for the largest group among whom nobody did as suggested, as if all "
            "of them would fare as the worst on record, or worse."
        )
        if isinstance(allowed, int | float) and allowed > 0
        else "",
        say(
            "They allow for what models of practice do not know yet, too: with half of the "
            "patients to learn from they would say more."
        )
        if isinstance(learning, int | float) and learning > 0
        else "",
    )


def _of_the_whole(policy: RulePolicy) -> str:
    """What following all rules at every decision brings; '' where that is not claimed of these."""
    record = policy.provenance.get("rules")
    whole = record.get("whole") if isinstance(record, Mapping) else None
    if not isinstance(whole, Mapping) or not whole.get("sound") or _in_part(policy):
        return ""
    gain, low = whole.get("gain"), whole.get("low")
    if not isinstance(gain, int | float) or not isinstance(low, int | float) or low <= 0:
        return ""
    outcome = policy.terms.measured
    numbers = {
        "at_least": outcome.at_least, "low": outcome.shown(low), "gain": outcome.shown(gain)
    }  # fmt: skip
    alone = one_decision(policy)
    return sentences(
        say(
            "following these rules brings {at_least} {low:+.3g} over usual practice "
            "({gain:+.3g} as estimated).",
            **numbers,
        )
        if alone
        else say(
            "following these rules at every decision brings {at_least} {low:+.3g} an episode over "
            "usual practice ({gain:+.3g} as estimated).",
            **numbers,
        ),
        ""
        if whole.get("exact") or alone
        else say(
            "Too few followed all of them to the end, so this supposes that what follows depends "
            "on the features, the step and how often the suggestions were taken before."
        ),
        "" if whole.get("exact") or alone else told_low(),
    )


def told_low() -> str:
    """How to read an estimate of a whole that few follow."""
    return say("The estimate is drawn towards usual practice: it is too low more often than not.")


def _each(policy: RulePolicy, covered: Sequence[int], delta: float, beside: bool) -> str:
    """What is claimed of rules by themselves; `beside` a claim about all of them."""
    margin, facts = policy.parameters.get("margin") or 0, [r.facts for r in policy.rules]
    sure = [r for r in covered if _is_sure(facts[r - 1], delta, margin)]
    grouped = [r for r in covered if r not in sure and _is_sure_together(facts[r - 1], delta)]
    if (not sure and not grouped) or (not beside and len(sure) + len(grouped) < len(covered)):
        return ""
    more: str = policy.terms.measured.more
    if margin:
        more = say("{x} {more}", x=short_number(margin), more=more)
    parts = []
    if sure:
        others = say(" that was not narrowed") if _narrowed(policy) else ""
        which = (
            say("every rule{others}", others=others)
            if len(sure) == len(covered)
            else _numbered(sure)
        )
        text = (
            say(
                "The suggestion of {which} brought {more} than doing otherwise did, on average "
                "where the rule holds.",
                which=which,
                more=more,
            )
            if beside and one_decision(policy)
            else say(
                "By itself (one decision, usual practice otherwise), the suggestion of {which} "
                "brought {more} than doing otherwise did, on average over the decisions where the "
                "rule holds.",
                which=which,
                more=more,
            )
            if beside
            else say(
                "the suggestion of {which} brought {more} than doing otherwise did, on average "
                "over the decisions where the rule holds (one decision, usual practice otherwise).",
                which=which,
                more=more,
            )
        )
        parts.append(text)
    if grouped:
        parts.append(
            say(
                "The suggestion of {which} did so where it is the same action, in all of its "
                "situations together.",
                which=_numbered(grouped),
            )
        )
    silent = [r for r in covered if r not in sure and r not in grouped]
    if silent:
        parts.append(
            say(
                "Of {which} alone nothing is claimed, only as part of the whole.",
                which=_numbered(silent),
            )
        )
    lam = _lam(policy)
    if lam is not None and lam < 1:
        parts.append(
            say(
                "That of single rules supposes that what follows depends on the features and on "
                "what was done before (λ = {lam:g}).",
                lam=lam,
            )
        )
    return joined(" ", parts)


def _lam(policy: RulePolicy) -> float | None:
    """λ of the division that certified, if it is on record."""
    record = policy.provenance.get("rules")
    if not isinstance(record, Mapping) or not isinstance(record.get("divisions"), list | tuple):
        return None
    for one in record["divisions"]:
        if isinstance(one, Mapping) and one.get("seed") == record.get("division"):
            lam = one.get("lam")
            return float(lam) if isinstance(lam, int | float) else None
    return None


def _numbered(numbers: Sequence[int]) -> str:
    """Rules by their numbers: rule 2, or rules 1, 3 and 4."""
    one = len(numbers) == 1
    which = joined(say(" and "), [", ".join(map(str, numbers[:-1])), str(numbers[-1])][one:])
    return say("rule {which}", which=which) if one else say("rules {which}", which=which)


def _hidden(covered: Sequence[Rule], source: str) -> str:
    """How strong an unrecorded cause must be to undo the claim; '' where it is not on record."""
    stars = [rule.facts.get("gamma_star") for rule in covered]
    least = min((star for star in stars if star is not None), default=None)
    if least is None or None in stars or source == "known":
        return ""
    which = "" if len(covered) == 1 else say(", the least of these rules,")
    return say(
        " It could be false if an unrecorded cause moved the odds of a suggestion, the features "
        "being equal, by a larger factor than Γ* = {gamma_words}{which} at one decision.",
        gamma_words=gamma_words(least),
        which=which,
    )


def stated(policy: RulePolicy) -> tuple[str, ...]:
    """What is stated of all rules at once, what of none, and what the learner noted."""
    proof = policy.certificate
    proved = "" if proof is None else proof.claim
    if all(rule.silent for rule in policy.rules):
        return (proved,) if proved else ()
    notes = policy.provenance.get("notes")
    noted = [n for n in notes if isinstance(n, str)] if isinstance(notes, list | tuple) else []
    in_part = ""
    if _in_part(policy):
        record, of_some = policy.provenance.get("rules"), len(noted)
        noted = [note for note in noted if not note.startswith(WHOLE)]
        said = isinstance(record, Mapping) and record.get("whole")
        in_part = IN_PART if said or len(noted) < of_some else ""
    about = (claim(policy), *policy.conditions)
    return tuple(
        s for s in (_clock(policy), proved, *about, _exception(policy), in_part, *noted) if s
    )


def _in_part(policy: RulePolicy) -> bool:
    """Whether some rule is silent or narrowed, so that what was said of all does not hold."""
    return any(rule.silent or rule.narrowed for rule in policy.rules)


def _clock(policy: RulePolicy) -> str:
    """Of which clock the dates in rules are; '' where no rule asks for a date."""
    days = () if policy.encoding is None else policy.encoding.days
    if not any(c.feature in days for rule in policy.rules for c in rule.conditions):
        return ""
    return say(
        "Dates in the rules are in UTC where those of the log have a zone, and as the log has them "
        "where they have none."
    )


def _narrowed(policy: RulePolicy) -> list[int]:
    """The numbers, from 1, of rules that speak and were narrowed."""
    return [r for r, rule in enumerate(policy.rules, 1) if rule.narrowed and not rule.silent]


def _exception(policy: RulePolicy) -> str:
    """What is said of rules that were narrowed; '' where none was."""
    numbers = _narrowed(policy)
    if not numbers:
        return ""
    one = len(numbers) == 1
    which = joined(say(" and "), [", ".join(map(str, numbers[:-1])), str(numbers[-1])][one:])
    return (
        sentences(
            say("Rule {n} was narrowed after looking at the groups that certify.", n=which),
            say(
                "Its numbers are of the narrower region alone, not adjusted for the choice: no "
                "statement about all rules at once covers it."
            ),
        )
        if one
        else sentences(
            say(
                "Rules {which} were narrowed after looking at the groups that certify.", which=which
            ),
            say(
                "Their numbers are of the narrower region alone, not adjusted for the choice: no "
                "statement about all rules at once covers them."
            ),
        )
    )


def _is_sure_together(facts: Mapping[str, Any], delta: float) -> bool:
    """Whether its action passes in all of its situations together."""
    together = facts.get("together")
    return isinstance(together, list | tuple) and len(together) == 4 and together[3] <= delta


def _is_sure(facts: Mapping[str, Any], delta: float, margin: float) -> bool:
    """Whether what is on record about a rule passes its own test."""
    low, p = facts.get("low"), facts.get("p")
    return p <= delta if p is not None else low is not None and low > margin


# -- what pages show of one rule: its sentence, and every number on record about it ----------------


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
    rule, delta = policy.rules[r], delta_of(policy)
    facts = shown(policy, rule)
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


# -- candidates that were not certified: what they brought as estimated, and why they are silent ---
#
# A learner of rules tests more regions than it issues. Those that did not pass are on record with
# the policy; they are shown apart from the rules and never act.

NAMES = ("advantage", "low", "high", "p", "groups", "groups_took")
CAPTION = say("Not issued: candidates that were not certified")
REJECTED_NOTE = say(
    "These regions were proposed and tested with the rules; none of them acts. advantage: what "
    "the action brought\nover doing otherwise there, as estimated; low and high hold for all "
    "candidates at once (large-sample)."
)
FEW = say("too few groups with it, or without it")
UNSURE = say("not surely better than doing otherwise")
NOT_GATED = say("passed the learner's test, not the gate's")
DIFFER = say("those who took it differ from the others")
WHOLE_UNSURE = say("not surely better followed at every decision, with the others")
UNTOLD = say("the record cannot tell: who was treated depends on more than our model of it")
LEARNS = say("the record cannot tell: it brings less, the more models of practice learn")
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
    table = Table(
        {
            "where": [rule.words for rule in rules],
            "suggested": [rule.says for rule in rules],
            **{name: [rule.facts.get(name) for rule in rules] for name in NAMES},
            "why": [_why(policy, rule) for rule in rules],
        },
        caption=CAPTION,
        note=REJECTED_NOTE,
        identifiers=frozenset({"where", "suggested", "why"}),
        called=policy.terms.called,
    )
    return policy.terms.measured.table(table)


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
    if rule.facts.get("doubt"):
        return UNTOLD
    if rule.facts.get("struck"):
        return DIFFER
    learning, low = rule.facts.get("learning"), rule.facts.get("low")
    if learning and low is not None and low <= 0 < low + learning:
        return LEARNS
    if policy.certificate is not None and p is not None and delta is not None and p <= delta:
        return NOT_GATED
    if rule.facts.get("passed"):
        return WHOLE_UNSURE
    return UNSURE if p is None or delta is None or p > delta else FEW


# -- what is said of rules that were just learned --------------------------------------------------


def facts_of_rules(policy: RulePolicy) -> dict[str, Any]:
    """The rules, what is stated and noted, what they bring, and how they came about.

    Args:
        policy: A policy of `dprl.Rules`.
    """
    record = policy.provenance["rules"]
    rules = json.loads(policy.to_json_rules())
    for written, rule in zip(rules["rules"], policy.rules, strict=True):
        written["facts"] = shown(policy, rule)
    return {
        "rules": rules,
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
        return f"{policy.details()}\n\n{policy.worth()}\n\n{tables}"
    return "\n".join(
        ["No rule was certified: the policy defers everywhere.", *policy.provenance["notes"], "",
         tables]
    )  # fmt: skip
