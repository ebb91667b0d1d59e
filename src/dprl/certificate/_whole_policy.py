"""The gate for a policy as a whole: all of it is issued, or nothing.

`dprl.certificate._whole_bounds` has the bounds, for what is proved and for large samples. Here the
policy and the groups that certify it are kept apart, and the certificate is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import api, joined, say, sentences, worded
from dprl.certificate._assumptions import (
    group_order,
    independent,
    returns_words,
    settling,
    windowed,
)
from dprl.certificate._confounding import as_in_the_state
from dprl.certificate._gate_steps import Asked, half_of
from dprl.certificate._histograms import refuse_outside
from dprl.certificate._whole_bounds import WHOLE_LEAST, Met, bound_large_sample, bound_proved
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.evidence.tabular import evidence
from dprl.learners.confident import Confident
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._censoring import settle
from dprl.logs._overlap import cannot_tell, seen, sketch
from dprl.logs._probability_words import chances_words
from dprl.logs.log import Log, check_log
from dprl.policies._decisions import Kind
from dprl.policies._explain import usual_words
from dprl.policies._familiar import check_familiar
from dprl.policies.certificate import Certificate
from dprl.policies.table import TablePolicy

__all__ = ["gate_policy"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def gate_policy(proposal: Any, log: Log, asked: Asked, sides: Callable[[], Bools] | None, note: str
                ) -> TablePolicy:  # fmt: skip
    """The whole policy with its certificate, or usual practice where the bound is not above margin.

    Args:
        proposal: A learner of labelled states, which is fitted to one half of the groups, or a
            policy that one has fitted to other groups.
        log: The log; where a policy is given, all of it certifies.
        asked: delta, value_range, margin and grade.
        sides: Gives bool (groups,), true for the groups that a learner is fitted to; None where
            the user stated a split.
        note: A sentence on how the groups were split, for the certificate.
    """
    check_log(log)
    _check_proposal(proposal, log)
    if isinstance(proposal, DPRLDiscrete | Confident):
        assert sides is not None  # a learner needs two halves
        inside = sides()
        policy = proposal.fit(half_of(log, log, inside, True))
        certifying = half_of(log, log, inside, False)
        notes = [sentences(say("The policy was learned from one half of the groups."), note)]
    else:
        policy, certifying = proposal, log
        _refuse_seen(policy, log)
        notes = [*check_familiar(policy, log)]
        unsure = cannot_tell(policy.provenance)
        notes += (
            [
                sentences(
                    joined(
                        "",
                        (
                            unsure,
                            ".",
                        ),
                    ),
                    say("If it has, nothing here holds."),
                )
            ]
            if unsure
            else []
        )
    policy = replace(policy, certificate=None)
    gamma, cut = float(policy.parameters["gamma"]), policy.parameters.get("cut")
    settled = settle(certifying, gamma, cut).gathered()
    if not settled.n_episodes:
        raise LogError("no episode is left to certify with.", do="Read more, or drop fewer.")
    met = Met.of(settled, _choice(policy, settled), gamma)
    if asked.value_range is not None:
        refuse_outside(settled, met.G, asked.value_range)
    bound, facts = (bound_proved if asked.grade == "proved" else bound_large_sample)(met, asked)
    issued = bool(len(met.row)) and bound > asked.margin
    origin = {
        **policy.provenance,
        "certified": {
            "log": certifying.digest(), "groups": len(certifying.groups),
            "sample": sketch(certifying),
        },
    }  # fmt: skip
    if not issued:
        notes.append(_why_not(met, bound, asked))
    gated = policy if issued else policy.limited_to([])
    gated = replace(gated, provenance=origin)
    rows = _rows(gated, settled, gamma) if issued else []
    others = facts["reached"] - facts["followers"]
    smallest = {"measured_from": WHOLE_LEAST, "smallest": min(facts["followers"], others)}
    return replace(
        gated,
        certificate=Certificate(
            mode="policy",
            delta=asked.delta,
            margin=asked.margin,
            value_range=asked.value_range,
            gamma=gamma,
            groups=len(settled.groups),
            tested=(1,),
            rows=tuple(rows),
            gain=float(bound) if issued else None,
            bounds={},
            assumptions=_assumptions(certifying, cut, asked, facts["probabilities"]),
            log=certifying.digest(),
            notes=tuple(notes),
            grade=asked.grade,
            approximation={} if asked.grade == "proved" else smallest,
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


def _why_not(met: Met, bound: float, asked: Asked) -> str:
    if not len(met.row):
        return say("The policy makes no suggestion in the groups that certify.")
    what = "0" if asked.margin == 0 else say("the margin of {margin:g}", margin=asked.margin)
    shown = "minus infinity" if np.isinf(bound) else f"{bound:.4g}"
    return say(
        "Not issued: the lower bound of the gain of the whole policy is {b}, not above {m}.",
        b=shown,
        m=what,
    )


def _assumptions(log: Log, cut: str | None, asked: Asked, source: str) -> tuple[str, ...]:
    """The assumptions of a certificate of a whole policy, one sentence each."""
    drawn = say("The probabilities of actions on record are those with which they were taken.")
    return (
        independent(log),
        *([chances_words(log)] if log.propensity is not None else []),
        *([drawn] if source != "estimated" else []),
        *([as_in_the_state(asked.confounding)] if source != "known" else []),
        say("Practice was the same throughout, and stays so wherever the policy defers."),
        settling(log, cut),
        *returns_words(asked),
        *([say("In each state of a suggestion practice takes the suggestion now and then.")]
          if asked.grade == "large-sample" else []),
        say("The policy and its settings were chosen without the groups that certified."),
        *windowed(log),
        *group_order(log, say("a state counts, and the gain is that of first episodes.")),
    )  # fmt: skip
