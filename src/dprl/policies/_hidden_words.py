"""How strong an unrecorded cause must be to undo a change, as far as a policy has it on record."""

from __future__ import annotations

from typing import Any

from dprl._core.confounding import breakdown_of_moments
from dprl.policies._decisions import Decisions

__all__ = ["HIDDEN", "hidden_point"]

HIDDEN = (
    "gamma_point (Γ*, as estimated, without allowance for chance): an unrecorded cause that moves "
    "the odds of the\nsuggestion by a larger factor, the state being equal, could make the "
    "advantage disappear; 20 means 20 or more."
)


def hidden_point(here: Decisions, s: Any, a: Any) -> Any:
    """Γ* of A(s,a) as estimated: exact for outcomes in two values, else the least that it is.

    `dprl._core.confounding` has the reasons.
    """
    return breakdown_of_moments(
        here.took_mean[s, a], here.took_sd[s, a], here.others_mean[s, a], here.lowest[s],
        here.highest[s],
    )  # fmt: skip
