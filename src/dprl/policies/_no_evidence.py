"""What is said of a policy that keeps no evidence: what it does, and no more."""

from __future__ import annotations

from dprl._core.table import Table
from dprl._core.words import api, worded
from dprl.errors import PolicyError
from dprl.logs.log import Label
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._explain import NONE, Explanation

__all__ = ["explain_without_evidence", "no_record"]


def explain_without_evidence(here: Decisions, s: int, state: Label, learner: str) -> Explanation:
    """Explain decision number `s` of a policy that keeps no evidence."""
    chosen = int(here.choice[s])
    kind = Kind(here.kind[s]).word
    if chosen < 0:
        return Explanation(state, kind, None, f"{learner} names no action here.", 0, None, NONE)
    action, chance = here.actions[chosen], here.pi[s, chosen]
    why = (
        f"{learner} takes {action} here with probability {chance:.3f}. It keeps no record of what "
        "was usually done, or of what came of it."
    )
    rows = Table(
        {"action": list(here.actions), "probability": here.pi[s].tolist()},
        caption=f"What {learner} does here",
        identifiers=frozenset({"action"}),
    )
    return Explanation(state, kind, action, why, 0, None, rows)


def no_record(learner: str) -> PolicyError:
    """Why a policy that keeps no evidence lists no changes."""
    return PolicyError(
        f"a policy of {learner} keeps no record of usual practice: it cannot say what it changes.",
        do=worded(
            "Only DPRL's policies list changes; judge this one with {command}.",
            command=api("dprl.evaluate"),
        ),
    )
