"""The finding: what a policy would change and what came of it, in words a reader needs first.

The page, and whoever writes one, begin with it: a title, a sentence, a table of claims
(`dprl.apps.reports.changes.Claim`), and what to be careful about, the worst first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dprl._core.arrays import DIVIDED
from dprl._core.html.catalogue import known
from dprl._core.words import joined, say, say_many, sentences, word
from dprl.apps.reports.changes import Claim, Described
from dprl.evaluation.result import ENOUGH

if TYPE_CHECKING:
    from dprl.evaluation.result import Evaluation

# Apart: words alone, which whoever writes a page of claims needs before its numbers.

TOLD = 3
"""Claims that the title tells, and situations that are named in one breath."""
NOTHING = say("Nothing to change is sure: usual practice stays, in every situation.")
EVERYWHERE = "everywhere"
"""What a rule without conditions says of where it holds."""
ROOM = 90
"""Largest number of characters of the situations that are named so."""


def title_of(described: Described) -> str:
    """What to do, for whom, instead of what: the title of a page."""
    claims = described.claims
    if not claims:
        if described.scattered:
            return say("Other actions here and there, in no simple region")
        if described.steps["confirmed"]:
            return say("What is usually done, always, where the record tells enough")
        return NOTHING
    said = [_sentence(claim, described) for claim in claims[:TOLD]]
    more = len(claims) - TOLD
    if more > 0:
        said.append(say_many("And {n:,} more change.", "And {n:,} more changes.", more))
    return sentences(*said)


def _sentence(claim: Claim, described: Described) -> str:
    where = _where(claim, described)
    action = word_of(claim.suggested)
    if claim.always:
        return say(
            "{where}: always {action}, not only in {share:.0f} %.",
            where=where,
            action=action,
            share=100 * claim.share,
        )
    usual = [u for u in claim.usual if u != DIVIDED]
    warned = any(described[key].avoid is not None for key in claim.changes)
    if warned or not usual or len(usual) > TOLD:
        return say("{where}: {action}.", where=where, action=action)
    others = joined(say(" or "), map(word_of, usual))
    return say("{where}: {action}, not {usual}.", where=where, action=action, usual=others)


def word_of(label: object) -> str:
    """A label of an action, which may be long."""
    text = label if isinstance(label, str) else str(label)
    return text if len(text) <= ROOM else f"{text[: ROOM - 1]}…"


def places_of(claim: Claim, described: Described) -> str:
    """Where a claim applies: its situations, or how many of them."""
    places = tuple(map(_briefly, claim.situations))
    if _named(places):
        return places[0] if len(places) == 1 else joined(say(" or "), places)
    if described.log.state is None:
        return say_many("{n:,} situation", "{n:,} situations", len(places))
    return say("{k:,} of {n:,} situations", k=len(places), n=described.log.n_states)


BUT = "{where}, but not where {what}"
"""What a rule with exceptions says of where it holds; its card tells them."""


def _briefly(place: str) -> str:
    """A situation without its exceptions: where hardly anybody was given one or the other."""
    if getattr(place, "message", "") != BUT:
        return place
    return say("{where} (with exceptions)", where=place.values["where"])  # type: ignore[attr-defined]


def _named(places: Sequence[str]) -> bool:
    """Whether its situations can be named in one breath; a single one always is."""
    return len(places) == 1 or (len(places) <= TOLD and sum(map(len, places)) <= ROOM)


def _where(claim: Claim, described: Described) -> str:
    """The same at the beginning of a sentence."""
    places = places_of(claim, described)
    if not _named([*map(_briefly, claim.situations)]):
        return say("In {places}", places=places)
    if places.startswith(f"{EVERYWHERE} ("):
        return say("Everywhere (with exceptions)")
    return say("Everywhere") if places == EVERYWHERE else say("When {places}", places=places)


def verdict_of(judged: Evaluation | None, described: Described) -> str:
    """What the log says of the whole policy, in a sentence."""
    if described.seen or judged is None:
        seen = word(described.seen)
        return sentences(
            say("There is no held-out check: {seen}.", seen=seen),
            say("Whatever this log says below flatters the policy."),
        )
    if not judged.facts["spoken"]:
        return say("In this log the policy says nothing: it is usual practice itself.")
    row = judged.rows[judged.headline]
    if known(row["difference"]) is None:
        return say("This log cannot tell: there is no estimate.")
    ends = (row[f"difference{end}"] for end in ("", "_low", "_high"))
    verdict, gain = judged.outcome.apart(*ends)
    facts, unit = judged.facts, judged.unit
    if facts["ess_differs"] < ENOUGH and facts["reached"]:
        return say(
            "This log cannot tell: {gain}, but that rests on an effective sample of {ess:.1f}, "
            "fewer than {enough}.",
            gain=gain,
            ess=facts["ess_differs"],
            enough=ENOUGH,
        )
    said = {"n": facts[unit], "unit": word(unit), "gain": gain}
    if verdict == "better":
        return (
            say("{n:,} {unit} that judge it agree: {gain}.", **said)
            if described.unsure
            else say("{n:,} {unit} it has not seen agree: {gain}.", **said)
        )
    if verdict == "worse":
        return say("{n:,} {unit} that judge it contradict it, so do not act on it: {gain}.", **said)
    if verdict == "unsure":
        return say(
            "{n:,} {unit} that judge it do not confirm it, so do not act on it yet: {gain}.",
            **said,
        )
    return say("This log cannot tell: {gain}.", gain=gain)


def randomised(described: Described) -> bool:
    """Whether every action of the log was given by lot with a chance that is on record."""
    chances = described.log.propensity
    return chances is not None and bool((chances == chances).all()) and described.log.n_steps > 0


def cautions_of(judged: Evaluation | None, described: Described, notes: Sequence[str]) -> list[str]:
    """What a reader must be careful about, the worst first; each once."""
    policy, found = described.policy, list[str]()
    acts = bool(described.claims) or bool(described.scattered)
    if judged is not None and judged.outside[judged.headline] == "value":
        found.append(
            say("The estimate is a value outside the range of returns: it cannot be right.")
        )
    markov = policy.provenance.get("markov")
    if markov is not None and not markov["ok"] and policy.stated:
        found.append(policy.stated[-1])
    groups = None if judged is None else judged.subgroups
    if groups is not None and groups.loses:
        found += groups.warnings()[:1]
    balance = described.balance if judged is None else judged.balance
    if balance is not None and balance.worst():
        found += balance.warnings()[:1]
    found += () if judged is None else judged.warnings
    found += () if balance is None else balance.warnings()
    found += notes
    if described.divided:
        found.append(
            say(
                "Practice is divided at {share:.0f} % of the decisions: no action has half of the "
                "share there, and what is suggested is compared with all that is done, together.",
                share=100 * described.divided,
            )
        )
    luck = getattr(policy, "luck", None)
    if luck is not None and luck.caution:
        found.append(luck.words)
    elif acts and proof_of(described) == "none":
        found.append(
            say(
                "Nothing here is proved: the policy has not been through the gate, and some of its "
                "changes may owe their place to luck."
            )
        )
    if acts and not randomised(described):
        found.append(
            say(
                "What was not recorded cannot be seen: if sicker patients got an action, it looks "
                "bad; if fitter ones did, it looks good."
            )
        )
    return list(dict.fromkeys(found))


def proof_of(described: Described) -> str:
    """The grade of what is claimed: "proved", "large-sample", "vacuous", "assumed" or "none"."""
    certificate, rules = described.policy.certificate, described.rules
    if certificate is not None:
        return "vacuous" if certificate.vacuous else certificate.grade
    if rules is not None and rules.claim:
        return "large-sample"
    return "assumed" if described.sure_in else "none"


def grade_of(claim: Claim, described: Described) -> str:
    """How sure the claim of a row is, by what made the policy; '' where nothing is claimed."""
    grade = proof_of(described)
    if grade in ("none", "vacuous"):
        return ""
    if grade == "assumed" or described.rules is not None:
        return grade
    certificate = described.policy.certificate
    assert certificate is not None
    if certificate.mode == "policy":
        return grade
    rows = {row["state"] for row in certificate.rows}
    states = [described[key].state for key in claim.changes]
    return grade if states and all(state in rows for state in states) else ""
