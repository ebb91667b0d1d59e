"""Numbers of a policy that contradict its own rule: a file that holds them is refused.

A digest says that a file is whole, not that anybody computed what is in it. What is checked here
follows from the stored numbers alone, whatever the log was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dprl.policies._rule import Rule
    from dprl.policies._tabled import Tabled

__all__ = ["wrong_choice", "wrong_rule"]

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
        return (
            f"it suggests {_where(policy, speaks[first])} with n = {policy.n[at][first]:,}, and "
            f"its n_min is {need:,g}"
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
