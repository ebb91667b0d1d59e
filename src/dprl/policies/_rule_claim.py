"""What is stated of all rules at once, and what is not, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dprl._core.confounding import gamma_words
from dprl._core.words import joined, say, sentences
from dprl.policies._rule import Rule, short_number

if TYPE_CHECKING:
    from dprl.policies.rules import RulePolicy

__all__ = ["WHOLE", "claim", "delta_of", "stated"]

WHOLE = say("Where only the first suggestion of an episode is followed")
"""How the learner's note begins that is about all rules together, as they were issued."""
IN_PART = say(
    "What these rules bring together is not stated: the learner said that of all of its rules, "
    "and some were not approved or were narrowed."
)

ASSUMED = {
    "estimated": say("It assumes that the features tell all that decided who got what."),
    "mixed": say(
        "Where probabilities of actions are estimated, it assumes that the features tell all that "
        "decided who got what."
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
    """What holds for all rules that speak and were not narrowed; '' where nothing is claimed."""
    delta, margin = delta_of(policy), policy.parameters.get("margin") or 0
    covered = [rule for rule in policy.rules if not rule.silent and not rule.narrowed]
    if not covered or delta is None:
        return ""
    if not all(_is_sure(rule.facts, delta, margin) for rule in covered):
        return ""
    source = str(policy.provenance.get("probabilities", "estimated"))
    more = say("{x} more", x=short_number(margin)) if margin else say("more")
    others = say(" that was not narrowed") if _narrowed(policy) else ""
    grade = (
        say("Large-sample,") if policy.certificate is None else say("Beyond that, large-sample and")
    )
    return sentences(
        say(
            "{grade} not proved: with confidence about {delta:g} %, the suggestion of every "
            "rule{others} brought {more} than doing otherwise did, on average over the decisions "
            "where the rule holds.",
            grade=grade,
            delta=100 * (1 - delta),
            others=others,
            more=more,
        ),
        joined(
            "",
            (
                ASSUMED.get(source, ASSUMED["estimated"]),
                _hidden(covered, source),
            ),
        ),
    )


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
    if any(rule.silent or rule.narrowed for rule in policy.rules):
        noted = [IN_PART if note.startswith(WHOLE) else note for note in noted]
    about = (claim(policy), *policy.conditions)
    return tuple(s for s in (proved, *about, _exception(policy), *noted) if s)


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
            say("Rule {n} was narrowed after looking at the half that certifies.", n=which),
            say(
                "Its numbers are of the narrower region alone, not adjusted for the choice: no "
                "statement about all rules at once covers it."
            ),
        )
        if one
        else sentences(
            say(
                "Rules {which} were narrowed after looking at the half that certifies.", which=which
            ),
            say(
                "Their numbers are of the narrower region alone, not adjusted for the choice: no "
                "statement about all rules at once covers them."
            ),
        )
    )


def _is_sure(facts: Mapping[str, Any], delta: float, margin: float) -> bool:
    """Whether what is on record about a rule passes its own test."""
    low, p = facts.get("low"), facts.get("p")
    return p <= delta if p is not None else low is not None and low > margin
