"""A warning where those who took what a gate issues differ in what the state leaves out.

A certificate is about the returns of those who took a suggestion and of those who did not. It
cannot see that they differ in a column that is not in the state, so the gate says it, and the notes
of the certificate keep it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dprl.errors import BalanceWarning
from dprl.evidence.balance import Balance, Compared, balance, changes_in
from dprl.logs._censoring import outside
from dprl.logs._encoding import encoded_like
from dprl.logs.log import Log

__all__ = ["differences_where_it_speaks", "warn_of_differences"]

P = ParamSpec("P")
Gated = TypeVar("Gated")


def warn_of_differences(gate: Callable[P, Gated]) -> Callable[P, Gated]:
    """A gate that also warns of differences between those who took what it issues and others."""

    @functools.wraps(gate)
    def gate_and_warn(*given: P.args, **named: P.kwargs) -> Gated:
        gated = gate(*given, **named)
        log: Any = named.get("log", given[1] if len(given) > 1 else None)
        compared = differences_where_it_speaks(gated, log)
        cautions = [] if compared is None else compared.warnings()
        for sentence in cautions:
            warnings.warn(sentence, BalanceWarning, stacklevel=outside())
        noted: Gated = _noted(gated, cautions)
        return noted

    return gate_and_warn


def _noted(gated: Any, cautions: list[str]) -> Any:
    """The policy, with these sentences among the notes of its certificate."""
    if gated.certificate is None or not cautions:
        return gated
    notes = [f"Be wary: {sentence}" for sentence in cautions]
    certificate = replace(gated.certificate, notes=(*gated.certificate.notes, *notes))
    return replace(gated, certificate=certificate)


def differences_where_it_speaks(policy: Any, log: Log) -> Balance | None:
    """Compare those who took the suggestions of a policy with the others, at all its suggestions.

    In labelled states a confirmation of usual practice counts as a suggestion: a gate claims that
    it improves.

    Args:
        policy: A policy that can defer.
        log: The log that certified it.
    """
    if getattr(log, "also", None) is None:  # sites that share no rows have no other columns
        return None
    log = encoded_like(log, policy.provenance.get("columns", {})).gathered()
    place = {label: code for code, label in enumerate(log.actions)}
    code = np.array([*(place.get(label, -1) for label in policy.actions), -1])
    if policy.changes_by != "state":
        situations = [(one, int(code[one.here.choice[one.s]])) for one in policy.situations(log)]
        return balance(
            log,
            [
                Compared(f"{one.words}: {log.actions[a]}", one.rows, a)
                for one, a in situations
                if a >= 0
            ],
        )
    states, row = policy.space.of_log(log)
    suggested = code[policy.at(states).choice][row]
    return balance(log, changes_in(log, np.flatnonzero(suggested >= 0), suggested, log.actions))
