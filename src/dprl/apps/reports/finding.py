"""The finding: what a policy would change and what came of it, in words a reader needs first.

The page, and whoever writes one, begin with it: a title, a sentence, a table of claims
(`dprl.apps.reports.changes.Claim`), and what to be careful about, the worst first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dprl._core.arrays import DIVIDED
from dprl._core.html.catalogue import known
from dprl._core.words import N_, joined, say, say_many, sentences, word
from dprl.apps.reports.changes import Check, Claim, Described
from dprl.evaluation.result import BLIND, ENOUGH, judged_by

if TYPE_CHECKING:
    from dprl.evaluation._effects import Effects
    from dprl.evaluation.result import Evaluation

# Apart: words alone, which whoever writes a page of claims needs before its numbers.

TOLD = 3
"""Claims that the title tells, and situations that are named in one breath."""
NOTHING = say("Nothing to change is sure: usual practice stays, in every situation.")
UNCONFIRMED = N_("Not confirmed: {what}")
AGAINST = ("leans against it", "contradicts")
"""What those who judge say of a claim that is told last."""
EVERYWHERE = "everywhere"
"""What a rule without conditions says of where it holds."""
ROOM = 90
"""Largest number of characters of the situations that are named so."""


def title_of(
    described: Described | None, judged: Evaluation | None = None, arms: Effects | None = None
) -> str:
    """What to do, for whom, instead of what: the title of a page, and the answer of a study.

    Args:
        described: What would change; None where nothing would.
        judged: What those who judge say of it; where they do not agree the title begins with that.
        arms: The arms of a trial, where it is about them alone.
    """
    if arms is not None:
        return arms.finding()
    if described is None:
        return NOTHING
    said = "" if judged is None or not judged.facts["spoken"] else agreement(judged)
    title = _title(described, doubts=said == "better" and described.weighed)
    if said == "worse":
        return say("Contradicted, not advised: {what}", what=title)
    if said and said != "better":
        return say(UNCONFIRMED, what=title)
    return title


def agreement(judged: Evaluation) -> str:
    """What those who judge say of the whole: "better", "worse", "unsure" or "unknown"."""
    if judged.facts["ess_differs"] < ENOUGH and judged.facts["reached"]:
        return "unknown"
    return judged.outcome.apart(*_ends(judged))[0]


def _ends(judged: Evaluation) -> list[float]:
    row = judged.rows[judged.headline]
    return [row[f"difference{end}"] for end in ("", "_low", "_high")]


def _title(described: Described, doubts: bool) -> str:
    """What is claimed; with `doubts`, what those who judge lean against comes last and says so."""
    against = [c for c in described.claims if doubts and verdict(c.check) in AGAINST]
    claims = [*(c for c in described.claims if c not in against), *against]
    if not claims:
        if described.scattered:
            return say("Other actions here and there, in no simple region")
        if described.steps["confirmed"]:
            return say("What is usually done, always, where the record tells enough")
        return NOTHING
    said = [_sentence(claim, described) for claim in claims[:TOLD]]
    said = [
        say(UNCONFIRMED, what=words) if claim in against else words
        for claim, words in zip(claims, said, strict=False)
    ]
    more = len(claims) - TOLD
    if more > 0:
        said.append(say_many("And {n:,} more change.", "And {n:,} more changes.", more))
    return sentences(*said)


SPEAK = 10
"""Least number on each side of a check; with fewer it says nothing."""


def verdict(check: Check) -> str:
    """The result of a check, in a word or two; the page has more of them."""
    if check.unfair:
        return "cannot compare"
    few = min(check.took, check.others) < SPEAK
    if few or check.advantage is None or check.low is None or check.high is None:
        return "cannot say"
    low, high = check.outcome.ends(check.low, check.high)  # larger is better
    if low > 0:
        return "agrees"
    if high < 0:
        return "contradicts"
    better = check.outcome.shown(check.advantage) > 0
    return "leans with it" if better else "leans against it"


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
    ends, facts, unit = _ends(judged), judged.facts, judged.unit
    if known(ends[0]) is None:
        return say("This log cannot tell: there is no estimate.")
    verdict, gain = judged.outcome.apart(*ends)
    if facts["ess_differs"] < ENOUGH and facts["reached"]:
        return say(
            "This log cannot tell: {gain}, but that rests on an effective sample of {ess:.1f}, "
            "fewer than {enough}.",
            gain=gain,
            ess=facts["ess_differs"],
            enough=ENOUGH,
        )
    said = {"n": facts[unit], "unit": word(unit), "gain": gain}
    if "divisions" in judged.settings:
        who = say("The others, in {k} divisions,", k=judged.settings["divisions"])
    elif verdict == "better" and not described.unsure:
        who = say("{n:,} {unit} it has not seen", **said)
    else:
        who = say("{n:,} {unit} that judge it", **said)
    if verdict == "better":
        return say("{who} agree: {gain}.", who=who, gain=gain)
    if verdict == "worse":
        return say("{who} contradict it, so do not act on it: {gain}.", who=who, gain=gain)
    if verdict == "unsure":
        return say("{who} do not confirm it, so do not act on it yet: {gain}.", who=who, gain=gain)
    why = _why_bare(facts)
    if why:
        return say("This log cannot tell: {gain}, because {why}.", gain=gain, why=why)
    return say("This log cannot tell: {gain}.", gain=gain)


def trial_of(arms: Effects, described: Described) -> str:
    """What judges the arms of a trial, in a sentence."""
    unit = "episodes" if len(described.log.groups) == described.log.n_episodes else "groups"
    return say(
        "Randomised trial: all {n:,} {unit} judge the arms, which were settled before anybody saw "
        "an outcome.",
        n=arms.groups,
        unit=word(unit),
    )


def grade_of_arms(arms: Effects) -> str:
    """How sure what is said of the arms of a trial is, as `proof_of` says it."""
    sure = any(row["verdict"] in ("better", "worse") for row in arms.rows)
    return "large-sample" if sure else "none"


def _why_bare(facts: Mapping[str, Any]) -> str:
    """Why an estimate has no interval; '' where it is not known."""
    if facts["refuted"]:
        return say("the record refutes the model of practice")
    if facts["unsupported"] > BLIND:
        return say(
            "in {share:.0f} % of {unit} it leads to what nobody did there",
            share=100 * facts["unsupported"],
            unit=word(facts["unit"]),
        )
    if judged_by(facts) < ENOUGH:
        return say("fewer than {enough} followed it (effective sample)", enough=ENOUGH)
    return ""


def randomised(described: Described) -> bool:
    """Whether every action of the log was given by lot with a chance that is on record."""
    chances = described.log.propensity
    return chances is not None and bool((chances == chances).all()) and described.log.n_steps > 0


def cautions_of(
    judged: Evaluation | None, described: Described, notes: Sequence[str],
    arms: Effects | None = None,
) -> list[str]:  # fmt: skip
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
    if described.divided and arms is None:
        found.append(
            say(
                "Practice is divided at {share:.0f} % of the decisions: no action has half of the "
                "share there, and what is suggested is compared with all that is done, together.",
                share=100 * described.divided,
            )
        )
    luck = getattr(policy, "luck", None)
    if arms is not None:
        pass  # nothing was chosen by looking
    elif luck is not None and luck.caution:
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
