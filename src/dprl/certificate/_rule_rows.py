"""The certificate of a gate over rules: its rows, and what it assumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core.words import say
from dprl.certificate._assumptions import (
    by_lot,
    group_order,
    independent,
    returns_words,
    settling,
    windowed,
)
from dprl.certificate._confounding import as_if_by_lot
from dprl.certificate._gate_steps import Asked, Proven, approximation, strength
from dprl.evidence._lots import Chances
from dprl.logs.log import Log
from dprl.policies._decisions import Kind
from dprl.policies._explain import usual_words
from dprl.policies.certificate import Certificate
from dprl.policies.rules import RulePolicy

__all__ = ["rule_certificate"]


def rule_certificate(
    gated: RulePolicy,
    issued: Sequence[int],
    proof: Proven,
    log: Log,
    settled: Log,
    asked: Asked,
    own: bool,
    proposals: int,
    notes: Sequence[str],
) -> Certificate:
    """The certificate of the rules that were issued.

    Args:
        gated: The policy of these rules.
        issued: For each of its rules, which proposal it was.
        proof: What was tested of all proposals.
        log: The log as it was given.
        settled: The same with its cut episodes treated.
        asked: The settings of the gate.
        own: Whether it is the log that the rules were learned from.
        proposals: K, the number of rules that were tested.
        notes: Sentences for the reader.
    """
    rows = [_row(gated, i, proof, r, settled.actions) for i, r in enumerate(issued)]
    return Certificate(
        mode="split",
        delta=asked.delta,
        margin=asked.margin,
        value_range=asked.value_range,
        gamma=float(gated.parameters["gamma"]),
        groups=len(settled.groups),
        tested=(max(1, proposals),),
        rows=tuple(rows),
        gain=None,
        bounds={},
        assumptions=_assumptions(log, gated.parameters.get("cut"), asked, own, proof.chances),
        log=log.digest(),
        notes=tuple(notes),
        cells={"rules": proposals},
        confounding=asked.confounding,
        grade=asked.grade,
        approximation=approximation(asked, rows),
    )


def _row(
    gated: RulePolicy, i: int, proof: Proven, r: int, actions: Sequence[Any]
) -> dict[str, Any]:
    """What the certificate says of the rule at place i, which was proposal r."""
    rule, counted = gated.rules[i], proof.evidence
    at = (r, list(actions).index(rule.suggested))
    row = {
        "state": rule.words,
        "kind": Kind(gated.decisions.kind[i]).word,
        "usual": usual_words(gated.decisions, i),
        "suggested": rule.suggested,
        "n": int(counted.took.n[at]),
        "others": int(counted.others.n[at]),
        "difference": float(counted.took.mean[at] - counted.others.mean[at]),
        "low": float(proof.low[at]),
        "advantage_low": float(proof.advantage[at]),
        **strength(proof, *at),
    }
    if proof.gamma_star is not None and proof.gamma_point is not None:
        row["gamma_star"] = float(proof.gamma_star[at])
        row["gamma_point"] = float(proof.gamma_point[at])
    return row


def _assumptions(
    log: Log, cut: str | None, asked: Asked, own: bool, chances: Chances | None
) -> tuple[str, ...]:
    """The assumptions of a certificate over rules, one sentence each."""
    with_range = say(", the range") if asked.value_range is not None else ""
    return (
        independent(log),
        as_if_by_lot(asked.confounding),
        *by_lot(log, "region of a rule", chances, asked),
        say("Practice was the same throughout, and goes on as usual after the decision."),
        settling(log, cut),
        *returns_words(asked),
        (
            say(
                "Gamma{range} and the settings of the rules were chosen without the returns "
                "of the half that certified.",
                range=with_range,
            )
            if own
            else say(
                "Gamma{range} and the settings of the rules were chosen without the returns "
                "of this log.",
                range=with_range,
            )
        ),
        *windowed(log),
        *group_order(log, say("the region of a rule counts.")),
    )
