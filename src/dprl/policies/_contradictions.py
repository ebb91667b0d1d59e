"""Numbers of a policy that contradict its own rule: a file that holds them is refused.

A digest says that a file is whole, not that anybody computed what is in it. What is checked here
follows from the stored numbers alone, whatever the log was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl._core.words import argument, worded

if TYPE_CHECKING:
    from dprl.policies._rule import Rule
    from dprl.policies._tabled import Tabled
    from dprl.policies.certificate import Certificate

__all__ = ["wrong_certificate", "wrong_choice", "wrong_rule"]

CLOSE = 1e-6
"""Relative differences up to this are rounding."""
BY_COUNTS = ("DPRLDiscrete", "DPRLContinuous")
"""Learners that choose only actions that are not worse than the average there (Eq. 1)."""


def wrong_choice(policy: Tabled) -> str:
    """Which suggestion its own counts and values do not allow, in words; '' if all are."""
    speaks = np.flatnonzero(policy.choice >= 0)
    if not len(speaks):
        return ""
    at = speaks, policy.choice[speaks]
    need = max(1.0, policy.n_min)
    few = np.flatnonzero(policy.n[at] < need)
    if len(few):
        first = few[0]
        return worded(
            "it suggests {where} with n = {n:,}, and its {n_min} is {need:,g}",
            where=_where(policy, speaks[first]),
            n=policy.n[at][first],
            n_min=argument("n_min"),
            need=need,
        )
    Q, V = policy.Q[at], policy.V[speaks]
    unknown = np.flatnonzero(~np.isfinite(Q) | ~np.isfinite(V))
    if len(unknown):
        return (
            f"it suggests something in state {policy.states[speaks[unknown[0]]]!r} without a value"
        )
    if policy.parameters.get("learner") not in BY_COUNTS:
        return ""
    spread = np.nan_to_num(np.maximum(policy.took_sd[at], policy.others_sd[at]))
    worse = np.flatnonzero(V - CLOSE * (np.abs(Q) + np.abs(V) + spread) > Q)
    if len(worse):
        first = worse[0]
        return (
            f"it suggests {_where(policy, speaks[first])}, whose value {Q[first]:.4g} is below the "
            f"average {V[first]:.4g} there"
        )
    return ""


def _where(policy: Tabled, s: int) -> str:
    return f"{policy.actions[policy.choice[s]]!r} in state {policy.states[s]!r}"


def wrong_rule(rules: Sequence[Rule]) -> str:
    """Which rule speaks although nobody took its suggestion, in words; '' if none does."""
    for rule in rules:
        for name in ("groups", "groups_took"):
            if not rule.silent and rule.facts.get(name) == 0:
                return f"a rule speaks ({rule.words}) with {name} = 0"
    return ""


def wrong_certificate(certificate: Certificate) -> str:
    """Which claim does not follow from the numbers stored with it, in words; '' if all do."""
    for row in certificate.rows:
        where = f"state {row['state']!r}"
        if row["n"] < 1:
            return f"{where}: it is certified, and n = {row['n']}"
        if certificate.mode != "policy":
            wrong = _wrong_row(row, certificate)
            if wrong:
                return f"{where}: {wrong}"
    return ""


def _wrong_row(row: Mapping[str, Any], certificate: Certificate) -> str:
    delta, margin = certificate.delta, certificate.margin
    if certificate.grade == "proved":
        # The level is shared by the parts that certify, and by the pairs that each part tests.
        parts = len(certificate.tested) if certificate.mode == "swap-split" else 1
        pairs = max(1, min(certificate.tested, default=1))
        need = math.log10(max(1, parts) * pairs / delta)
        if row["log10_e"] < need - CLOSE:
            return f"log10_e = {row['log10_e']:.4g}, and δ = {delta:g} needs at least {need:.4g}"
    elif row["p"] > delta * (1 + CLOSE):
        return f"p = {row['p']:.4g}, and δ = {delta:g}"
    width = -certificate.trivial
    scale = CLOSE * (width if math.isfinite(width) else abs(row["low"]) + abs(row["difference"]))
    if row["low"] < -scale or row["low"] > width + scale or abs(row["difference"]) > width + scale:
        return f"low = {row['low']:.4g}, difference = {row['difference']:.4g}, range {width:.4g}"
    if row["advantage_low"] > row["low"] + scale or row["advantage_low"] < margin - scale:
        return (
            f"advantage_low = {row['advantage_low']:.4g}, low = {row['low']:.4g}, margin {margin:g}"
        )
    return ""
