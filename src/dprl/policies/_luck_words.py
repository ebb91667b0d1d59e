"""What is said of the changes that luck alone would make (`dprl.planning.luck`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dprl._core.words import say, say_many, sentences, word

__all__ = ["Luck", "luck_words", "wrong_luck"]

MORE = ("points",)
"""Numbers that only some have."""
NUMBERS = ("changes", "expected", "survive", "rate", "draws", "states")
"""The numbers that are kept of it."""
WARY = say("Luck may explain most of them: the gate keeps only what a log proves.")
"""What is added where most changes may be luck."""


@dataclass(frozen=True)
class Luck:
    """How far luck explains the changes of a policy, in words.

    Attributes:
        sentence: How many changes there are, how many luck alone would make, how many survive.
        caution: What to beware of, if luck may explain more than half of the changes; else ''.
    """

    sentence: str
    caution: str = ""

    @property
    def words(self) -> str:
        """The sentence, with the caution if there is one."""
        return sentences(self.sentence, self.caution)


def luck_words(facts: Mapping[str, Any] | None, *, part: bool = False) -> Luck | None:
    """What to say of luck; None where nothing is recorded, or nothing would change.

    Args:
        facts: What `dprl.planning.luck.luck_of` returned.
        part: Whether the policy is only a part of the one that this is about.
    """
    if facts is None:
        return None
    if "skipped" in facts:
        return Luck(
            say(
                "How many of its changes are luck was not counted: {why}.",
                why=word(facts["skipped"]),
            )
        )
    changes, expected, survive = facts["changes"], facts["expected"], facts["survive"]
    if not changes:
        return None
    about = (
        say("{expected:,.0f}", expected=expected)
        if expected >= 9.95
        else say("{expected:.1f}", expected=expected)
    )
    made = say_many("{n:,} change", "{n:,} changes", changes)
    if "points" in facts and part:
        made = say(
            "At {states:,} of {points:,} training points the policy it was taken from makes "
            "{changes}",
            states=facts["states"],
            points=facts["points"],
            changes=made,
        )
    elif "points" in facts:
        made = say(
            "At {states:,} of {points:,} training points it makes {changes}",
            states=facts["states"],
            points=facts["points"],
            changes=made,
        )
    elif part:
        made = say("The policy it was taken from makes {changes}", changes=made)
    sentence = say_many(
        "{made}; if no action mattered, luck alone would make about {about}; {n:,} survives a "
        "false-discovery rate of {rate:g} %.",
        "{made}; if no action mattered, luck alone would make about {about}; {n:,} survive a "
        "false-discovery rate of {rate:g} %.",
        survive,
        made=made,
        about=about,
        rate=100 * facts["rate"],
    )
    wary = 2 * expected > changes > 2 * survive
    return Luck(sentence, WARY if wary else "")


def wrong_luck(facts: Any) -> str:
    """What is wrong with what a file records of luck, in words; '' if nothing is."""
    if not isinstance(facts, Mapping):
        return f"what it records of luck is {facts!r}"
    if "skipped" in facts:
        return "" if isinstance(facts["skipped"], str) else "luck was skipped for no reason"
    for name in (*NUMBERS, *(more for more in MORE if more in facts)):
        value: Any = facts.get(name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value < math.inf):
            return f"{name!r} of its luck is {value!r}"
    return ""
