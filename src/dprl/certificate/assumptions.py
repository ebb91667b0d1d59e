"""What a certificate says of its log, and what it assumes, in words that fit the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dprl._core.checks import Cut
from dprl._core.words import duration, option, say, say_many, sentences, word
from dprl.certificate.settings import GateSettings
from dprl.evidence.propensity import RecordedPropensity
from dprl.logs.log import Log
from dprl.logs.outcome import Outcome
from dprl.logs.source import UNRELATED, Chunk, LogFacts, Source, recorded_words, unseen_words


@dataclass(frozen=True, eq=False)
class LogRecord:
    """What a certificate needs to know of a log beside its counts.

    Attributes:
        facts: What the log says about itself as a whole.
        log: Its digest.
        timed: Whether rows have times.
        recorded: What it records of the probabilities of actions, in words; '' where nothing.
        chances: The recorded probabilities, state by state; None where they are not used.
        group_steps: The most rows of a group; 0 where that is not known.
    """

    facts: LogFacts
    log: str
    timed: bool
    recorded: str
    chances: RecordedPropensity | None = None
    group_steps: int = 0

    @classmethod
    def of(cls, source: Source | Log, cut: Cut | None) -> LogRecord:
        """That of a log, wherever its rows are; `cut` is what is done with cut episodes."""
        rows, timed, group_steps, chances = source.reduce(_RowFacts(cut))
        words = recorded_words(rows, source.facts.n_steps) if source.facts.has_propensity else ""
        return cls(source.facts, source.digest(), timed, words, chances, group_steps)


@dataclass(frozen=True)
class _RowFacts:
    """Rows with a known probability, whether rows have times, the most rows of a group, chances."""

    cut: Cut | None

    def of(self, chunk: Chunk) -> tuple[int, bool, int, RecordedPropensity | None]:
        log = chunk.log
        rows = 0 if log.propensity is None else int((~np.isnan(log.propensity)).sum())
        steps = np.bincount(log.group, weights=log.lengths).max(initial=0)
        labelled = log.propensity is not None and log.state is not None
        treated = chunk.treated(self.cut) if labelled else None
        chances = None if treated is None else RecordedPropensity.of(treated)
        return rows, log.time is not None, int(steps), chances

    def merge(
        self,
        one: tuple[int, bool, int, RecordedPropensity | None],
        other: tuple[int, bool, int, RecordedPropensity | None],
    ) -> tuple[int, bool, int, RecordedPropensity | None]:
        both = [facts[3] for facts in (one, other) if facts[3] is not None]
        chances = both[0].merge(both[1]) if len(both) == 2 else next(iter(both), None)
        return one[0] + other[0], one[1] or other[1], max(one[2], other[2]), chances


def resting_on(
    record: LogRecord,
    cut: str | None,
    settings: GateSettings,
    *,
    decisions: Sequence[str],
    practice: str,
    chosen: Sequence[str],
    ordered: str,
) -> tuple[str, ...]:
    """The assumptions of a certificate, one sentence each, in the order of every certificate.

    Args:
        record: What is known of the log.
        cut: What was done with cut episodes.
        settings: The settings of the gate.
        decisions: What is assumed of how decisions were made.
        practice: What is assumed of practice over time.
        chosen: What was chosen without looking at returns, and more of the kind.
        ordered: What a group's first visit is of: "a state counts."
    """
    facts, n = record.facts, record.facts.n_cut
    independent = say("Episodes are independent of each other.")
    if facts.grouped:
        independent = say("Groups are independent of each other.")
    return (
        independent,
        *decisions,
        practice,
        unseen_words(facts.columns) or _treated_words(facts, n, cut),
        *_returns_words(settings, facts.outcome),
        *chosen,
        *_windowed(facts),
        *_group_order(record, ordered),
    )


def of_states(
    record: LogRecord,
    cut: str | None,
    settings: GateSettings,
    *,
    declared: int | None = None,
    cells: bool = False,
) -> tuple[str, ...]:
    """The assumptions of a certificate over labelled states, or over cells of features.

    Args:
        record: What is known of the log.
        cut: What was done with cut episodes.
        settings: The settings of the gate.
        declared: Number of states that were fixed beforehand; None where none were declared.
        cells: Whether states are cells of features.
    """
    fixed = say("Gamma, n_min, and what makes a state were chosen without the returns of this log.")
    if settings.value_range is not None:
        fixed = say(
            "Gamma, n_min, the range and what makes a state were chosen without the returns of "
            "this log."
        )
    if declared is not None:
        fixed = say_many(
            "The list of {n:,} state, the {actions}, gamma, n_min and the range were fixed "
            "without looking at returns (declared by the user).",
            "The list of {n:,} states, the {actions}, gamma, n_min and the range were fixed "
            "without looking at returns (declared by the user).",
            declared,
            actions=say_many("{n:,} action", "{n:,} actions", record.facts.n_actions),
        )
    ordered = say("a state counts, and the gain is that of first episodes.")
    if cells:
        markov = say("It also holds all of the past that matters for what follows.")
    elif settings.markov:
        markov = _markov_words(settings)
        if settings.grade == "proved":
            ordered = say(
                "a state makes that episode, and no other, count for it; the gain is that of first "
                "episodes."
            )
    else:
        markov = say(
            "The Markov property is not claimed: only the first visit of a state counts, and "
            "nothing is said about later ones."
        )
        ordered = say("a state counts.")
    within = say(
        "Within a cell each action is worth the same and taken as often everywhere (see "
        "eps* for how nearly; the gain is for exactly the same)."
    )
    return resting_on(
        record,
        cut,
        settings,
        decisions=[
            as_in_the_state(settings.confounding),
            *by_lot(record, "cell" if cells else "state", settings),
            markov,
        ],
        practice=say("Practice was the same throughout, and stays so wherever the policy defers."),
        chosen=[fixed, *([within] if cells else [])],
        ordered=ordered,
    )


def _markov_words(settings: GateSettings) -> str:
    """What is assumed where the Markov property is claimed."""
    if settings.by_all_visits:
        return sentences(
            say(
                "Markov: it also holds all of the past that matters for what follows, "
                "whenever it is visited."
            ),
            say(
                "All visits of an episode count ({markov} does without this claim).",
                markov=option("markov", False),
            ),
        )
    if settings.grade != "proved":
        return say(
            "Markov: it also holds all of the past that matters for what follows, "
            "whenever it is visited; for large samples a group's first visit of a state "
            "counts."
        )
    return say(
        "Markov: it also holds all of the past that matters for what follows, "
        "whenever it is visited; at this Γ a group's first visit of a state counts."
    )


def as_in_the_state(confounding: float) -> str:
    """What a certificate assumes about decisions, beside the state they were made in."""
    if confounding == 1:
        return say("The state holds all that decisions were based on: no unmeasured confounding.")
    return say(
        "What decisions were based on beside the state moved the odds of the suggestion, the "
        "state being equal, by a factor of {g:g} at most, and anew at every decision: unrecorded "
        "causes of several decisions have nothing to do with each other.",
        g=confounding,
    )


def as_if_by_lot(confounding: float) -> str:
    """What a certificate over rules assumes about decisions in the region of a rule."""
    if confounding == 1:
        lot = say(
            "Where a rule holds, whether its action was taken at a first decision there did not "
            "depend on anything the outcome depends on: it was as if drawn by lot."
        )
    else:
        lot = say(
            "Where a rule holds, whether its action was taken at a first decision there was as if "
            "drawn by lot, with odds that anything the outcome depends on moved by a factor of "
            "{g:g} at most.",
            g=confounding,
        )
    compared = say(
        "(Features of those who took it and of others were compared; what was not measured was "
        "not.)"
    )
    return sentences(lot, compared)


def by_lot(record: LogRecord, place: str, settings: GateSettings) -> list[str]:
    """What the log records of the probabilities of actions; nothing where it records none.

    Args:
        record: What is known of the log.
        place: Where takers are compared with others: "state", "cell" or "region of a rule".
        settings: The settings of the gate.
    """
    if not record.recorded:
        return []
    if record.chances is not None:
        words = record.chances.words(place, settings.confounding, settings.grade)
        return [sentences(record.recorded, words)]
    return [
        sentences(
            record.recorded,
            say(
                "The certificate does not use these probabilities: it needs that within a {place} "
                "they are the same for all.",
                place=word(place),
            ),
        )
    ]


def _returns_words(settings: GateSettings, outcome: Outcome) -> list[str]:
    """What is assumed of the returns: their range, and for large samples that nothing is hidden."""
    words = []
    if settings.value_range is not None:
        low, high = outcome.ends(*settings.value_range)
        words.append(say("Every return lies within {a:g}..{b:g}, known beforehand.", a=low, b=high))
    if settings.grade == "large-sample":
        words.append(
            say(
                "Means of returns are nearly normal: no return is so rare and so far from the "
                "others that the log has not met it."
            )
        )
    return words


def _treated_words(facts: LogFacts, n: int, cut: str | None) -> str:
    """What is assumed of episodes that were cut, or of all where none was."""
    if facts.n_groups >= facts.n_episodes:
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


def _windowed(facts: LogFacts) -> list[str]:
    """What returns are of, where every episode is followed for a fixed time."""
    if facts.follow_up is None:
        return []
    return [
        sentences(
            say(
                "Returns are of the first {window} of an episode (chosen without looking at "
                "returns).",
                window=duration(facts.follow_up),
            ),
            say("How much of that time is left is part of the state, or does not matter."),
        )
    ]


def _group_order(record: LogRecord, counted: str) -> list[str]:
    """What is assumed of the order of a group's episodes; nothing where a group is an episode."""
    facts = record.facts
    if not facts.grouped or facts.n_groups >= facts.n_episodes:
        return []
    return [
        (
            say(
                "Episodes of a group come in the order they happened (by time, then by label); a "
                "group's first visit of {counted}",
                counted=counted,
            )
            if record.timed
            else say(
                "Episodes of a group come in the order they happened (by label); a group's first "
                "visit of {counted}",
                counted=counted,
            )
        )
    ]
