"""The gate for a policy as a whole: all of it is issued, or nothing.

`dprl.certificate._whole_bounds` has the bounds, for what is proved and for large samples. Here the
policy and the groups that certify it are kept apart, and the certificate is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import api, joined, say, sentences, worded
from dprl.certificate._assumptions import LogRecord, as_in_the_state, resting_on
from dprl.certificate._settings import GateSettings, check_cut, in_memory
from dprl.certificate._whole_bounds import WHOLE_LEAST, Met, bound_large_sample, bound_proved
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.evidence.tabular import evidence
from dprl.learners.confident import Confident
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._censoring import treat_cut
from dprl.logs._overlap import cannot_tell, seen, sketch
from dprl.logs.log import Log
from dprl.logs.returns import refuse_outside
from dprl.policies._certificate_kinds import WHOLE_POLICY
from dprl.policies._decisions import Kind
from dprl.policies._explain import usual_words
from dprl.policies._familiar import check_familiar
from dprl.policies.certificate import Certificate
from dprl.policies.table import TablePolicy

__all__ = ["gate_policy"]

Ints = NDArray[np.int64]


def gate_policy(proposal: Any, log: Any, settings: GateSettings) -> TablePolicy:
    """The whole policy with its certificate, or usual practice where the bound is not above margin.

    Args:
        proposal: A learner of labelled states, which is fitted to one half of the groups, or a
            policy that one has fitted to other groups.
        log: The log; where a policy is given, all of it certifies.
        settings: The settings of the gate.
    """
    log = in_memory(log, "mode='policy'")
    settings.check_policy(hasattr(proposal, "fit"))
    own = getattr(proposal, "parameters", {})
    check_cut(getattr(proposal, "cut", own.get("cut")), log)
    _check_proposal(proposal, log)
    if isinstance(proposal, DPRLDiscrete | Confident):
        inside = settings.sides(log)[log.group]
        policy = proposal.fit(log.take(np.flatnonzero(inside)))
        certifying = log.take(np.flatnonzero(~inside))
        learned = say("The policy was learned from one half of the groups.")
        notes = [sentences(learned, settings.split_note)]
    else:
        policy, certifying = proposal, log
        _refuse_seen(policy, log)
        notes = [*check_familiar(policy, log)]
        unsure = cannot_tell(policy.provenance)
        if unsure:
            told = joined("", (unsure, "."))
            notes.append(sentences(told, say("If it has, nothing here holds.")))
    policy = replace(policy, certificate=None)
    gamma, cut = float(policy.parameters["gamma"]), policy.parameters.get("cut")
    treated = treat_cut(certifying, gamma, cut).gathered()
    if not treated.n_episodes:
        raise LogError("no episode is left to certify with.", do="Read more, or drop fewer.")
    met = Met.of(treated, _choice(policy, treated), gamma)
    if settings.value_range is not None:
        refuse_outside(treated, met.G, settings.value_range)
    how = bound_proved if settings.grade == "proved" else bound_large_sample
    bound, facts = how(met, settings)
    issued = bool(len(met.row)) and bound > settings.margin
    origin = {
        **policy.provenance,
        "certified": {
            "log": certifying.digest(), "groups": len(certifying.groups),
            "sample": sketch(certifying),
        },
    }  # fmt: skip
    if not issued:
        notes.append(_why_not(met, bound, settings))
    gated = policy if issued else policy.limited_to([])
    gated = replace(gated, provenance=origin)
    rows = _rows(gated, treated, gamma) if issued else []
    others = facts["reached"] - facts["followers"]
    smallest = {"measured_from": WHOLE_LEAST, "smallest": min(facts["followers"], others)}
    return replace(
        gated,
        certificate=Certificate(
            mode=WHOLE_POLICY.name,
            delta=settings.delta,
            margin=settings.margin,
            value_range=settings.value_range,
            gamma=gamma,
            groups=len(treated.groups),
            tested=(1,),
            rows=tuple(rows),
            gain=float(bound) if issued else None,
            bounds={},
            assumptions=_assumptions(certifying, cut, settings, facts["probabilities"]),
            log=certifying.digest(),
            notes=tuple(notes),
            grade=settings.grade,
            approximation={} if settings.grade == "proved" else smallest,
            whole=facts,
            markov=False,  # whole episodes are weighed
        ),
    )


def _check_proposal(proposal: Any, log: Log) -> None:
    labelled = isinstance(proposal, DPRLDiscrete | Confident)
    labelled |= getattr(proposal, "changes_by", "") == "state"
    if not labelled or log.state is None:
        raise ParameterError(
            worded(
                "a gate for the whole policy is for labelled states, with {learner} or Confident.",
                learner=api("DPRLDiscrete"),
            ),
            f"got {type(proposal).__name__}" + ("" if labelled else " and no learner of labels"),
            worded(
                "Judge other policies with {command}, on groups they have never seen.",
                command=api("dprl.evaluate"),
            ),
        )


def _refuse_seen(policy: TablePolicy, log: Log) -> None:
    what = seen(policy.provenance, log)
    if what:
        raise PolicyError(
            f"{what}: a bound for the whole policy needs groups that had no part in choosing it.",
            f"log {log.digest()[:12]}",
            "Give a log of other groups (keep some aside before learning: log.split, or dprl "
            "split); or give the learner, which is then fitted to half of the groups.",
        )


def _choice(policy: TablePolicy, log: Log) -> Ints:
    """int64 (S,): the suggestion in each of the log's states as a code of the log.

    -1 where it defers, -2 where the log has no such action.
    """
    code = {label: i for i, label in enumerate(log.actions)}
    codes = np.array([code.get(label, -2) for label in policy.actions] or [-1], np.int64)
    choice = policy.at(log.states).choice
    return np.where(choice >= 0, codes[choice], -1)


# -- words -----------------------------------------------------------------------------------------


def _rows(policy: TablePolicy, log: Log, gamma: float) -> list[dict[str, Any]]:
    """One row per suggestion: what the log that certifies shows there, without a bound."""
    counted, here = evidence(log, gamma), policy.decisions
    state = {label: i for i, label in enumerate(log.states)}
    action = {label: i for i, label in enumerate(log.actions)}
    rows = []
    for s in np.flatnonzero(here.choice >= 0).tolist():
        suggested = policy.actions[here.choice[s]]
        i, a = state.get(policy.states[s], -1), action.get(suggested, -1)
        n = int(counted.took.n[i, a]) if min(i, a) >= 0 else 0
        others = int(counted.state.n[i]) - n if i >= 0 else 0
        apart = None
        if n and others:
            apart = float(counted.took.mean[i, a] - counted.others.mean[i, a])
        rows.append({
            "state": policy.states[s], "kind": Kind(here.kind[s]).word,
            "usual": usual_words(here, s), "suggested": suggested, "n": n, "others": others,
            "difference": apart,
        })  # fmt: skip
    return rows


def _why_not(met: Met, bound: float, settings: GateSettings) -> str:
    if not len(met.row):
        return say("The policy makes no suggestion in the groups that certify.")
    what = "0" if settings.margin == 0 else say("the margin of {margin:g}", margin=settings.margin)
    shown = "minus infinity" if np.isinf(bound) else f"{bound:.4g}"
    return say(
        "Not issued: the lower bound of the gain of the whole policy is {b}, not above {m}.",
        b=shown,
        m=what,
    )


def _assumptions(log: Log, cut: Any, settings: GateSettings, source: str) -> tuple[str, ...]:
    """The assumptions of a certificate of a whole policy, one sentence each."""
    record = LogRecord.of(log, cut)
    drawn = say("The probabilities of actions on record are those with which they were taken.")
    seen = say("In each state of a suggestion practice takes the suggestion now and then.")
    return resting_on(
        record,
        cut,
        settings,
        decisions=[
            *([record.recorded] if record.recorded else []),
            *([drawn] if source != "estimated" else []),
            *([as_in_the_state(settings.confounding)] if source != "known" else []),
        ],
        practice=say("Practice was the same throughout, and stays so wherever the policy defers."),
        chosen=[
            *([seen] if settings.grade == "large-sample" else []),
            say("The policy and its settings were chosen without the groups that certified."),
        ],
        ordered=say("a state counts, and the gain is that of first episodes."),
    )
