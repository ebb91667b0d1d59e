"""What is usually done in a state, in words; or that practice is divided there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core.practice import DIVIDED
from dprl._core.words import joined, say
from dprl.logs.log import Label
from dprl.policies._decisions import Decisions

__all__ = ["MIXTURE", "compared_with", "divided_words", "shares_at", "two_sides", "usual_words"]

MIXTURE = (
    f"{DIVIDED}: no action has half of the share there, so there is no usual one. value_usual is "
    "what all\nactions together got, each by its share (the mixture), and whatever is suggested "
    "there is a change."
)
SHOWN = 4
"""Number of actions that are named where practice is divided."""


def usual_words(here: Decisions, s: int) -> Label:
    """The usual action of a state: 'a or b' where both have half, DIVIDED where none has."""
    if here.divided[s]:
        return DIVIDED
    first = np.flatnonzero(here.m[s] == here.m[s].max())
    if len(first) == 1:
        label: Label = here.actions[first[0]]
        return label
    return joined(say(" or "), (str(here.actions[a]) for a in first))


def compared_with(here: Decisions, s: int) -> str:
    """With what a suggestion in state number `s` is compared."""
    return "all that was done there together" if here.divided[s] else "usual practice"


def shares_at(here: Decisions, s: int) -> list[tuple[Label, float]]:
    """The actions of state number `s` and their shares at first visits, the largest first."""
    order = np.argsort(-here.m[s], kind="stable").tolist()
    total = int(here.m[s].sum())
    return [(here.actions[a], int(here.m[s, a]) / total) for a in order if here.m[s, a]]


def divided_words(shares: Sequence[tuple[Any, float]]) -> str:
    """That practice is divided, and how; `shares` are (action, share), the largest first."""
    named = [
        say("{action} {share:.0f} %", action=str(action), share=100 * share)
        for action, share in shares[:SHOWN]
    ]
    more = len(shares) - SHOWN
    if more > 0:
        rest = 100 * sum(s for _, s in shares[SHOWN:])
        named.append(say("{n:,} more {share:.0f} %", n=more, share=rest))
    return joined(": ", (DIVIDED, joined(", ", named)))


def two_sides(here: Decisions, s: int, a: int) -> str:
    """How many took action `a` in state `s` and how many did otherwise, both of the same visits.

    Those who ever took it are more than those who took it at their first visit: only the latter
    can be put beside those who did otherwise then.
    """
    took, others = int(here.m[s, a]), int(here.m[s].sum() - here.m[s, a])
    which = "of all visits" if here.terms.counted == "visits" else "at their first visit"
    return f"{which} {took:,} took it and {others:,} did otherwise"
