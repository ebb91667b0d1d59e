"""The gate over rules: decide per region of a proposed rule.

`dprl.Rules` states its claim for large samples. Here the same proposals are tested exactly. One
half of the groups proposed K regions, each with an action; every step of the other half is labelled
by the region it lies in (regions do not overlap; a step in none has a label of its own), and the
labels are treated as the gate treats states: returns of first visits that took the action against
those that did not, one e-value per proposal, at level δ/S/K. The learner tried S divisions in
halves and kept the one whose certifying half looked best, so the level is shared among them: by the
union bound the chance that any of them proves what is false is at most δ. *All* K proposals are
tested, whatever the large-sample test said of them. On a log that the rules were not learned from
there is nothing to choose: all of it certifies, and S = 1.

**What is proved.** At a trajectory's first decision in the region, taking the action, and going on
as usual, is worth more than doing otherwise, on average. That is less than what is proved of
labels: nothing is said of parts of a region, of later decisions in it, nor of all rules together.

**What it assumes.** In the region, whether the action was taken does not depend on anything that
the outcome depends on, as if drawn by lot. Data can contradict that: where those who took it differ
from others in a feature (`dprl.certificate.rules`) the rule is not issued.
"""

from __future__ import annotations

# Apart: one kind of gate; the others are beside it.
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.words import say, say_many, sentences, word, worded
from dprl.certificate.assumptions import LogRecord, as_if_by_lot, by_lot, resting_on
from dprl.certificate.pair_tests import PairTests, by_returns, certificate_of, row_of, strength
from dprl.certificate.settings import GateSettings
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.evidence.counts import availability, evidence
from dprl.evidence.propensity import RecordedPropensity
from dprl.learners.rules.search import first_actions, shares
from dprl.logs.censoring import treat_cut
from dprl.logs.encoding.categories import Levels
from dprl.logs.log import Log, deal
from dprl.logs.overlap import cannot_tell, sealed_origin
from dprl.logs.returns import first_visits
from dprl.policies.base import provenance_of
from dprl.policies.certificate import SPLIT, Certificate
from dprl.policies.held_out import HeldOut
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.rule import Rule, dated, days_told, read_rules

# --- Whether those who took an action differ from others, where it should have been drawn by lot
#
# Features alone are compared, and when the step came in its episode; outcomes are never looked
# at.

LEAST, SURE = 0.1, 3.0
"""A feature differs where it does by more than LEAST standard deviations and SURE errors."""


@dataclass(frozen=True)
class Imbalance:
    """What differs most between those who took an action and those who did not.

    Attributes:
        words: What those who took it had, compared with others: "a higher age".
        size: The difference of the means, in standard deviations of all of them, above 0.
    """

    words: str
    size: float


def imbalance(
    x: Floats, names: tuple[str, ...], levels: Levels, step: Floats, took: Bools
) -> Imbalance | None:
    """The largest difference between two sets of independent states that is no accident.

    Args:
        x: float64 (n, d), features, one state per group; of categories, codes into their labels.
        names: The names of the d features.
        levels: The labels of categories, None for numbers; () where all are numbers.
        step: float64 (n,), the number of the step in its episode.
        took: bool (n,), whether the action was taken there.

    Returns:
        The difference; None where no feature differs by more than LEAST standard deviations and
        SURE standard errors.
    """
    worst: Imbalance | None = None
    for more, less, column in _columns(x, names, levels, step):
        measured = np.isfinite(column)
        sides = [column[measured & took], column[measured & ~took]]
        if min(len(side) for side in sides) < 2:
            continue
        difference = float(sides[0].mean() - sides[1].mean())
        spread = float(column[measured].std())
        error = float(np.sqrt(sum(side.var(ddof=1) / len(side) for side in sides)))
        if abs(difference) <= max(LEAST * spread, SURE * error) or not spread:
            continue
        size = abs(difference) / spread
        if worst is None or size > worst.size:
            worst = Imbalance(more if difference > 0 else less, size)
    return worst


def _columns(
    x: Floats, names: tuple[str, ...], levels: Levels, step: Floats
) -> Iterator[tuple[str, str, Floats]]:
    """(words where takers have more, where they have less, numbers) for all that is compared."""
    for j, name in enumerate(names):
        gone = np.isnan(x[:, j])
        if gone.any():
            yield (*_often(f"{name} missing"), gone.astype(np.float64))
        labels = levels[j] if levels else None
        if labels is None:
            yield f"a higher {name}", f"a lower {name}", x[:, j]
            continue
        measured = np.isfinite(x[:, j])
        for code, label in enumerate(labels):
            yield (*_often(f"{name} {label}"), np.where(measured, x[:, j] == code, np.nan))
    yield say("a later step of the episode"), say("an earlier step of the episode"), step


def _often(what: str) -> tuple[str, str]:
    return f"{what} more often", f"{what} less often"


# --- The gate over rules: decide per region of a proposed rule

EARLIER = ("grade", "proved_low", "struck", "log10_e", "gate_low", "gate_p")
"""What an earlier gate said of a rule."""
KEPT = ("approved", "quantiles")
"""What a gated policy keeps of the provenance of the policy that was gated."""

OF_ALL = (
    "One half of the groups proposed", "The same action for everyone",
    "Where only the first suggestion",
)  # fmt: skip
"""How notes begin that are about all rules that the learner issued, not about those proved."""


@dataclass(frozen=True, eq=False)
class _Part:
    """The part of a log that certifies.

    Attributes:
        log: The treated, gathered episodes that certify.
        region: int64 (N,), the proposal whose region each step is in; K where it is in none.
        x: float64 (N, d), the features in the order of the policy.
        divisions: S, the number of divisions in halves that share the level.
        words: Which part it is, in a sentence.
        proposing: The half that proposed, with regions as states; None for another log.
    """

    log: Log
    region: Ints
    x: Floats
    divisions: int
    words: str
    proposing: Log | None

    def labelled(self, regions: int) -> Log:
        """The log with regions as states: 0..K-1, and K for a step in none of them."""
        return _labelled(self.log, self.region, regions)

    def groups(self, r: int, action: int, took: bool | None = None) -> int:
        """Groups with a step in region r, or with one that took the action there or did not."""
        inside = self.region == r
        if took is not None:
            inside &= (self.log.action == action) == took
        return len(np.unique(np.repeat(self.log.group, self.log.lengths)[inside]))


def _labelled(log: Log, region: Ints, regions: int) -> Log:
    return replace(
        log, features=None, feature_names=(), levels=(), states=tuple(range(regions + 1)),
        state=region.astype(np.int32),
    )  # fmt: skip


def gate_rules(
    policy: RulePolicy, log: Log, settings: GateSettings, origin: Mapping[str, Any]
) -> RulePolicy:
    """The proposals of `dprl.Rules` that a log proves, as a policy with a certificate.

    Args:
        policy: A policy that `dprl.Rules` has fitted.
        log: The log it was fitted to, or one that shares no groups with it.
        settings: The settings of the gate.
        origin: What the provenance says more where the log is another one.
    """
    record, proposals = _proposals(policy)
    gamma, cut = float(policy.parameters["gamma"]), policy.parameters.get("cut")
    own = policy.provenance.get("log") == log.digest() and record.get("division") is not None
    if not own:
        HeldOut.meet(policy, log, claim="a certificate", refusal=TOLD_APART)
    treated = treat_cut(log, gamma, cut).gathered()
    part = _certifying(policy, treated, record, proposals, own)
    K, actions = len(proposals), part.log.actions
    labelled = part.labelled(K)
    A = len(actions)
    wanted = np.zeros((K + 1, 2 * A), bool)
    for r, rule in enumerate(proposals):
        if rule.action in actions:
            wanted[r, actions.index(rule.action) + A * rule.avoids] = True
    counted = evidence(labelled, gamma)
    log_record = replace(LogRecord.of(log, cut), chances=RecordedPropensity.of(labelled))
    tests = by_returns(
        labelled, counted, wanted, gamma, settings, max(1, K), 1 / part.divisions, part.proposing,
        log_record.chances,
    )  # fmt: skip
    enough = np.minimum(counted.took.n, counted.others.n) >= policy.n_min
    available = availability(labelled)
    enough &= True if available is None else available
    differs = _imbalances(part, labelled, proposals, policy)
    may_speak = _approved(policy)
    rules, notes, issued = [], [], []
    for r, rule in enumerate(proposals):
        facts = {k: v for k, v in rule.facts.items() if k not in EARLIER}
        facts |= {} if own else _counts(part, treated, policy, rule, r)
        passes = False
        if wanted[r].any():
            named = actions.index(rule.action)
            a = named + A * rule.avoids
            facts |= {
                "log10_e" if name == "log10_e" else "gate_p": value
                for name, value in strength(tests, r, a).items()
            }
            passes = bool(tests.pairs[r, a] and enough[r, named])
        difference = differs.get(r)
        if passes and difference is not None:
            facts["struck"] = _struck(rule, difference)
            notes.append(facts["struck"])
        elif passes and (may_speak is None or rule.words in may_speak):
            low = "proved_low" if settings.grade == "proved" else "gate_low"
            facts |= {"grade": settings.grade, low: float(tests.low[r, a])}
            issued.append(r)
        if "grade" not in facts:
            facts["grade"] = "large-sample" if _passed(rule, policy) else None
        rules.append(replace(rule, facts=facts))
    tested = {"tested": [rule.to_dict() for rule in rules]}
    facts_of_rules = {k: v for k, v in record.items() if k != "whole"} | tested
    if not own:
        facts_of_rules.pop("division", None)
    remaining = _noted(policy, own)
    made = (
        {**sealed_origin(policy.provenance), "notes": remaining, "rules": facts_of_rules}
        if own
        else {
            **provenance_of(log, treated, notes=remaining, ranges=policy.provenance.get("ranges")),
            **{k: policy.provenance[k] for k in KEPT if k in policy.provenance},
            **origin,
            "rules": facts_of_rules,
        }
    )
    gated = replace(
        policy, rules=tuple(replace(rules[r], silent=False) for r in issued), provenance=made,
        certificate=None,
    )  # fmt: skip
    words = (part.words, *notes)
    certificate = _certificate(gated, issued, tests, log_record, treated, settings, own, K, words)
    return replace(gated, certificate=certificate)


def _certificate(
    gated: RulePolicy,
    issued: Sequence[int],
    tests: PairTests,
    record: LogRecord,
    treated: Log,
    settings: GateSettings,
    own: bool,
    proposals: int,
    notes: Sequence[str],
) -> Certificate:
    """The certificate of the rules that were issued.

    Args:
        gated: The policy of these rules.
        issued: For each of its rules, which proposal it was.
        tests: What was tested of all proposals.
        record: What is known of the log.
        treated: The log with its cut episodes treated.
        settings: The settings of the gate.
        own: Whether it is the log that the rules were learned from.
        proposals: K, the number of rules that were tested.
        notes: Sentences for the reader.
    """
    rows = [
        row_of(
            [tests], r, treated.actions.index(rule.action) + len(treated.actions) * rule.avoids,
            rule.words, rule.action, gated.decisions, i,
        )
        for i, (r, rule) in enumerate(zip(issued, gated.rules, strict=True))
    ]  # fmt: skip
    with_range = say(", the range") if settings.value_range is not None else ""
    chosen = (
        say(
            "Gamma{range} and the settings of the rules were chosen without the returns "
            "of the groups that certified.",
            range=with_range,
        )
        if own
        else say(
            "Gamma{range} and the settings of the rules were chosen without the returns "
            "of this log.",
            range=with_range,
        )
    )
    return certificate_of(
        rows,
        [tests],
        record,
        settings,
        mode=SPLIT.name,
        gamma=float(gated.parameters["gamma"]),
        groups=len(treated.groups),
        gain=None,
        bounds={},
        assumptions=resting_on(
            record,
            gated.parameters.get("cut"),
            settings,
            decisions=[
                as_if_by_lot(settings.confounding),
                *by_lot(record, "region of a rule", settings),
            ],
            practice=say(
                "Practice was the same throughout, and goes on as usual after the decision."
            ),
            chosen=[chosen],
            ordered=say("the region of a rule counts."),
        ),
        notes=tuple(notes),
        cells={"rules": proposals},
    )


def _proposals(policy: RulePolicy) -> tuple[dict[str, Any], tuple[Rule, ...]]:
    """What is on record about how the rules were made, and all proposals."""
    record = policy.provenance.get("rules")
    public = policy.provenance.get("public")  # keeps what was claimed, not what was proposed
    if policy.parameters.get("learner") != "Rules" or public or not isinstance(record, Mapping):
        raise ParameterError(
            "a gate over rules needs all rules that were proposed, and this policy has no record "
            "of them.",
            cannot_tell(policy.provenance) or "its provenance says nothing about 'rules'",
            worded("Gate a policy as {dprl.Rules} has fitted it."),
        )
    try:
        dates = days_told(policy)
        proposals = tuple(dated(rule, dates) for rule in read_rules(record["tested"]))
        proposals = tuple(rule for rule in proposals if not rule.facts.get("doubt"))
        own_level = len(record["divisions"]) >= policy.parameters["splits"]
    except (KeyError, TypeError) as error:
        raise _damaged() from error
    strange = [r for r in proposals if r.action not in policy.actions]
    strange += [r for r in proposals for c in r.conditions if c.feature not in policy.feature_names]
    meeting = any(r.meets(earlier) for i, r in enumerate(proposals) for earlier in proposals[:i])
    if strange or meeting or not own_level:
        raise _damaged()
    return dict(record), proposals


def _damaged() -> PolicyError:
    return PolicyError(
        "the policy's record of the rules that were proposed is damaged.", do="Fit it again."
    )


TOLD_APART = (
    "which groups proposed the rules cannot be told apart from those that would certify them.",
    "Gate with exactly the log the rules were learned from, or with groups they have never seen.",
)
"""Why a log that shares groups with that of the rules is refused, and what to do."""


def _certifying(
    policy: RulePolicy,
    treated: Log,
    record: Mapping[str, Any],
    proposals: Sequence[Rule],
    own: bool,
) -> _Part:
    """The part of a treated log that certifies."""
    proposing: Log | None = None
    part, divisions = treated, 1
    words = say("The rules were learned from another log; all of this one certified them.")
    if own:
        divisions = len(record["divisions"]) * int(record.get("alternatives") or 1)
        if int(record["division"]) >= 0:  # else nobody proposed: all groups certify
            inside = deal(len(treated.groups), 0.5, int(record["division"]))
            part = treated.take(np.flatnonzero(~inside[treated.group]))
            proposing = treated.take(np.flatnonzero(inside[treated.group]))
            regions = _regions(policy, proposing, proposals)[1]
            proposing = _labelled(proposing, regions, len(proposals))
        words = (
            say(
                "The same action for everyone was proposed by no half: all groups certified it; "
                "{k} ways to propose share the level.",
                k=divisions,
            )
            if proposing is None
            else say_many(
                "One half of the groups proposed {n:,} rule, the other half certified it; {k} "
                "ways to propose share the level.",
                "One half of the groups proposed {n:,} rules, the other half certified them, all "
                "at once; {k} ways to propose share the level.",
                proposals,
                k=divisions,
            )
            if divisions > 1
            else say_many(
                "One half of the groups proposed {n:,} rule, the other half certified it.",
                "One half of the groups proposed {n:,} rules, the other half certified them, all "
                "at once.",
                proposals,
            )
        )
    if not part.n_episodes:
        raise LogError("no episode is left to certify with.", do="Read more, or drop fewer.")
    x, region = _regions(policy, part, proposals)
    result = _Part(part, region, x, divisions, words, proposing)
    if own:
        _check_half(result, proposals)
    return result


def _regions(policy: RulePolicy, log: Log, proposals: Sequence[Rule]) -> tuple[Floats, Ints]:
    """The features of a log in the order of the policy, and the region of each step."""
    x = np.asarray(policy.space.of_log(log)[0])
    region = np.full(log.n_steps, len(proposals), np.int64)
    for r, rule in enumerate(proposals):
        region[rule.matches(x, policy.feature_names, policy.levels)] = r
    return x, region


def _check_half(part: _Part, proposals: Sequence[Rule]) -> None:
    """Refuse where the half that certifies is not the one that the rules were tested on."""
    for r, rule in enumerate(proposals):
        a = part.log.actions.index(rule.action) if rule.action in part.log.actions else -1
        there = part.groups(r, a), part.groups(r, a, not rule.avoids)
        before = rule.facts.get("groups"), rule.facts.get("groups_took")
        if there != before:
            raise PolicyError(
                "the halves in which these rules were made cannot be made again from this log.",
                f"{rule.words}: {there[0]:,} groups, {there[1]:,} of which took {rule.says}; "
                f"on record are {before[0]} and {before[1]}",
                "Fit the rules again, or gate them with groups they have never seen.",
            )


def _imbalances(
    part: _Part, labelled: Log, proposals: Sequence[Rule], policy: RulePolicy
) -> dict[int, Imbalance]:
    """Proposal → what differs between takers and others at first visits of its region."""
    first, log = first_visits(labelled), part.log
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    result = {}
    for r, rule in enumerate(proposals):
        rows = np.flatnonzero(first & (part.region == r))
        took = np.array([log.actions[a] == rule.action for a in log.action[rows]], bool)
        took ^= rule.avoids
        difference = imbalance(
            part.x[rows], policy.feature_names, policy.levels, step[rows].astype(np.float64), took
        )
        if difference is not None:
            result[r] = difference
    return result


def _struck(rule: Rule, difference: Imbalance) -> str:
    return sentences(
        say("Not issued: {action} where {rule}.", action=rule.says, rule=word(rule.words)),
        say(
            "Those who took it there had {word} than others (by {size:.2f} standard deviations "
            "within the region), so it was not given as if by lot.",
            word=word(difference.words),
            size=difference.size,
        ),
    )


def _approved(policy: RulePolicy) -> set[str] | None:
    """The words of the rules that people approved; None where nobody was asked."""
    if "approved" not in policy.provenance:
        return None
    return {rule.words for rule in policy.rules if not rule.silent}


def _passed(rule: Rule, policy: RulePolicy) -> bool:
    """Whether a proposal passed the large-sample test of its learner."""
    p, delta = rule.facts.get("p"), policy.parameters.get("delta")
    groups = [rule.facts.get(name) or 0 for name in ("groups_took", "groups_others")]
    return p is not None and delta is not None and p <= delta and min(groups) >= policy.n_min


def _counts(part: _Part, treated: Log, policy: RulePolicy, rule: Rule, r: int) -> dict[str, Any]:
    """Who came to a region in a log that the rules were not learned from."""
    rows = np.flatnonzero(part.region == r)
    a = treated.actions.index(rule.action) if rule.action in treated.actions else -1
    theirs = set(policy.actions)
    return {
        "steps": len(rows),
        "groups": part.groups(r, a),
        "groups_took": part.groups(r, a, not rule.avoids),
        "groups_others": part.groups(r, a, rule.avoids),
        "groups_by_action": [p for p in first_actions(treated, rows) if p[0] in theirs],
        "share_usual": [p for p in shares(treated, rows) if p[0] in theirs],
    }


def _noted(policy: RulePolicy, own: bool) -> list[str]:
    """The learner's notes that remain true of the rules that are proved."""
    notes = policy.provenance.get("notes") or []
    kept = [n for n in notes if isinstance(n, str) and not n.startswith(OF_ALL)]
    if not own:
        kept.append(
            say("Intervals and p-values are those of the log that the rules were learned from.")
        )
    return kept
