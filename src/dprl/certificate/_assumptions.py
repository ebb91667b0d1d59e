"""What a certificate assumes, in words that fit its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dprl._core.words import duration, option, say, say_many, sentences, word
from dprl.certificate._confounding import as_in_the_state
from dprl.evidence._lots import Chances
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._cut_words import UNRELATED
from dprl.logs._probability_words import chances_words
from dprl.logs.log import Log

if TYPE_CHECKING:
    from dprl.certificate._gate_steps import Asked

__all__ = ["Counting", "assumptions", "by_lot", "group_order", "independent", "returns_words",
           "settling", "windowed"]  # fmt: skip


@dataclass(frozen=True)
class Counting:
    """How visits of labelled states were counted, and what the user declared.

    Attributes:
        markov: Whether the Markov property is claimed, so that all visits of an episode count.
        declared: Number of states that were fixed beforehand; None where none were declared.
    """

    markov: bool
    declared: int | None

    def by_all_visits(self, asked: Asked) -> bool:
        """Whether all visits of an episode count as evidence, or a group's first visits alone."""
        return self.markov and asked.confounding == 1 and asked.grade == "proved"


def assumptions(
    learner: DPRLDiscrete | DPRLContinuous,
    log: Log,
    asked: Asked,
    counting: Counting | None,
    chances: Chances | None = None,
) -> tuple[str, ...]:
    """The assumptions of a certificate, one sentence each; without `counting`, over cells."""
    fixed = say("Gamma, n_min, and what makes a state were chosen without the returns of this log.")
    if asked.value_range is not None:
        fixed = say(
            "Gamma, n_min, the range and what makes a state were chosen without the returns of "
            "this log."
        )
    if counting is not None and counting.declared is not None:
        actions = say_many("{n:,} action", "{n:,} actions", log.n_actions)
        fixed = say_many(
            "The list of {n:,} state, the {actions}, gamma, n_min and the range were fixed "
            "without looking at returns (declared by the user).",
            "The list of {n:,} states, the {actions}, gamma, n_min and the range were fixed "
            "without looking at returns (declared by the user).",
            counting.declared,
            actions=actions,
        )
    markov = say("It also holds all of the past that matters for what follows.")
    if counting is not None and counting.markov:
        markov = (
            sentences(
                say(
                    "Markov: it also holds all of the past that matters for what follows, "
                    "whenever it is visited."
                ),
                say(
                    "All visits of an episode count ({markov} does without this claim).",
                    markov=option("markov", False),
                ),
            )
            if counting.by_all_visits(asked)
            else (
                say(
                    "Markov: it also holds all of the past that matters for what follows, "
                    "whenever it is visited; for large samples a group's first visit of a state "
                    "counts."
                )
                if asked.grade != "proved"
                else say(
                    "Markov: it also holds all of the past that matters for what follows, "
                    "whenever it is visited; at this Γ a group's first visit of a state counts."
                )
            )
        )
    elif counting is not None:
        markov = say(
            "The Markov property is not claimed: only the first visit of a state counts, and "
            "nothing is said about later ones."
        )
    words = [
        independent(log),
        as_in_the_state(asked.confounding),
        *by_lot(log, "state" if counting is not None else "cell", chances, asked),
        markov,
        say("Practice was the same throughout, and stays so wherever the policy defers."),
        settling(log, learner.cut),
        *returns_words(asked),
        fixed,
    ]
    if isinstance(learner, DPRLContinuous):
        words.append(
            say(
                "Within a cell each action is worth the same and taken as often everywhere (see "
                "eps* for how nearly; the gain is for exactly the same)."
            )
        )
    words += windowed(log)
    ordered = say("a state counts, and the gain is that of first episodes.")
    if counting is not None and not counting.markov:
        ordered = say("a state counts.")
    elif counting is not None and asked.grade == "proved":
        ordered = say(
            "a state makes that episode, and no other, count for it; the gain is that of first "
            "episodes."
        )
    words += group_order(log, ordered)
    return tuple(words)


def returns_words(asked: Asked) -> list[str]:
    """What is assumed of the returns: their range, and for large samples that nothing is hidden."""
    words = []
    if asked.value_range is not None:
        low, high = asked.value_range
        words.append(say("Every return lies within {a:g}..{b:g}, known beforehand.", a=low, b=high))
    if asked.grade == "large-sample":
        words.append(
            say(
                "Means of returns are nearly normal: no return is so rare and so far from the "
                "others that the log has not met it."
            )
        )
    return words


def independent(log: Log) -> str:
    """The assumption that groups (or episodes) have nothing to do with each other."""
    if log.groups == log.episodes:
        return say("Episodes are independent of each other.")
    return say("Groups are independent of each other.")


def by_lot(log: Log, place: str, chances: Chances | None, asked: Asked) -> list[str]:
    """What the log records of the probabilities of actions; nothing where it records none.

    Args:
        log: The log.
        place: Where takers are compared with others: "state", "cell" or "region of a rule".
        chances: The probabilities place by place; None where there are no rows to look at.
        asked: The settings of the gate.
    """
    words = getattr(log, "recorded", None)  # logs in parts, and of sites, have no rows to look at
    if words is None:
        words = "" if log.propensity is None else chances_words(log)
    if not words:
        return []
    if chances is not None:
        return [sentences(words, chances.words(place, asked.confounding, asked.grade))]
    return [
        sentences(
            words,
            say(
                "The certificate does not use these probabilities: it needs that within a {place} "
                "they are the same for all.",
                place=word(place),
            ),
        )
    ]


def settling(log: Log, cut: str | None) -> str:
    """What is assumed of episodes that were cut, or of all where none was."""
    n = len(log.cut_episodes)
    if len(log.groups) >= log.n_episodes:
        dropped = say_many(
            "{n:,} cut episode was left out: {unrelated} (declared by the user).",
            "{n:,} cut episodes were left out: {unrelated} (declared by the user).",
            n,
            unrelated=UNRELATED,
        )
    else:
        dropped = say_many(
            "{n:,} cut episode was left out, with all later ones of its group: {unrelated} "
            "(declared by the user).",
            "{n:,} cut episodes were left out, with all later ones of their groups: {unrelated} "
            "(declared by the user).",
            n,
            unrelated=UNRELATED,
        )
    ended = {
        "drop-unrelated": dropped,
        "terminal": say_many(
            "{n:,} cut episode counts as ended: the value meant is what was collected until the "
            "cut, and how long that is depends on the state alone.",
            "{n:,} cut episodes count as ended: the value meant is what was collected until the "
            "cut, and how long that is depends on the state alone.",
            n,
        ),
    }
    return ended[str(cut)] if n else say("No episode was cut short by what was about to come.")


def windowed(log: Log) -> list[str]:
    """What returns are of, where every episode is followed for a fixed time."""
    if log.follow_up is None:
        return []
    return [
        sentences(
            say(
                "Returns are of the first {window} of an episode (chosen without looking at "
                "returns).",
                window=duration(log.follow_up),
            ),
            say("How much of that time is left is part of the state, or does not matter."),
        )
    ]


def group_order(log: Log, counted: str) -> list[str]:
    """What is assumed of the order of a group's episodes; nothing where a group is an episode."""
    if log.groups == log.episodes or len(log.groups) >= log.n_episodes:
        return []
    return [
        (
            say(
                "Episodes of a group come in the order they happened (by time, then by label); a "
                "group's first visit of {counted}",
                counted=counted,
            )
            if log.time is not None
            else say(
                "Episodes of a group come in the order they happened (by label); a group's first "
                "visit of {counted}",
                counted=counted,
            )
        )
    ]
