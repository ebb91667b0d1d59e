"""What a certificate says of its log, and what it assumes, in words that fit the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dprl._core.checks import Cut
from dprl._core.plural import form, many
from dprl.certificate._settings import GateSettings
from dprl.evidence._lots import Chances
from dprl.logs._cut_words import UNRELATED
from dprl.logs._probability_words import recorded_words
from dprl.logs.log import Log
from dprl.logs.source import Chunk, LogFacts, Source

__all__ = ["LogRecord", "as_if_by_lot", "as_in_the_state", "by_lot", "of_states", "resting_on"]


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
    chances: Chances | None = None
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

    def of(self, chunk: Chunk) -> tuple[int, bool, int, Chances | None]:
        log = chunk.log
        rows = 0 if log.propensity is None else int((~np.isnan(log.propensity)).sum())
        steps = np.bincount(log.group, weights=log.lengths).max(initial=0)
        labelled = log.propensity is not None and log.state is not None
        treated = chunk.treated(self.cut) if labelled else None
        chances = None if treated is None else Chances.of(treated)
        return rows, log.time is not None, int(steps), chances

    def merge(
        self,
        one: tuple[int, bool, int, Chances | None],
        other: tuple[int, bool, int, Chances | None],
    ) -> tuple[int, bool, int, Chances | None]:
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
    unit = "Groups" if facts.grouped else "Episodes"
    return (
        f"{unit} are independent of each other.",
        *decisions,
        practice,
        _treated_words(facts, n, cut),
        *_returns_words(settings),
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
    with_range = " the range and" if settings.value_range is not None else " and"
    fixed = (
        f"Gamma, n_min,{with_range} what makes a state were chosen without the returns of this log."
    )
    if declared is not None:
        fixed = (
            f"The list of {many(declared, 'state')}, the "
            f"{many(record.facts.n_actions, 'action')}, gamma, n_min and the range were fixed "
            "without looking at returns (declared by the user)."
        )
    ordered = "a state counts, and the gain is that of first episodes."
    if cells:
        markov = "It also holds all of the past that matters for what follows."
    elif settings.markov:
        markov = (
            "Markov: it also holds all of the past that matters for what follows, whenever it is "
            "visited"
            + (
                ". All visits of an episode count (markov=False does without this claim)."
                if settings.by_all_visits
                else "; for large samples a group's first visit of a state counts."
                if settings.grade != "proved"
                else "; at this Γ a group's first visit of a state counts."
            )
        )
        if settings.grade == "proved":
            ordered = (
                "a state makes that episode, and no other, count for it; the gain is that of first "
                "episodes."
            )
    else:
        markov = (
            "The Markov property is not claimed: only the first visit of a state counts, and "
            "nothing is said about later ones."
        )
        ordered = "a state counts."
    within = (
        "Within a cell each action is worth the same and taken as often everywhere (see eps* for "
        "how nearly; the gain is for exactly the same)."
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
        practice="Practice was the same throughout, and stays so wherever the policy defers.",
        chosen=[fixed, *([within] if cells else [])],
        ordered=ordered,
    )


def as_in_the_state(confounding: float) -> str:
    """What a certificate assumes about decisions, beside the state they were made in."""
    if confounding == 1:
        return "The state holds all that decisions were based on: no unmeasured confounding."
    return (
        "What decisions were based on beside the state moved the odds of the suggestion, the state "
        f"being equal, by a factor of {confounding:g} at most, and anew at every decision: "
        "unrecorded causes of several decisions have nothing to do with each other."
    )


def as_if_by_lot(confounding: float) -> str:
    """What a certificate over rules assumes about decisions in the region of a rule."""
    lot = (
        "did not depend on anything the outcome depends on: it was as if drawn by lot."
        if confounding == 1
        else "was as if drawn by lot, with odds that anything the outcome depends on moved by a "
        f"factor of {confounding:g} at most."
    )
    return (
        f"Where a rule holds, whether its action was taken at a first decision there {lot} "
        "(Features of those who took it and of others were compared; what was not measured was "
        "not.)"
    )


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
        return [f"{record.recorded} {words}"]
    return [
        f"{record.recorded} The certificate does not use these probabilities: it needs that "
        f"within a {place} they are the same for all."
    ]


def _returns_words(settings: GateSettings) -> list[str]:
    """What is assumed of the returns: their range, and for large samples that nothing is hidden."""
    words = []
    if settings.value_range is not None:
        low, high = settings.value_range
        words.append(f"Every return lies within {low:g}..{high:g}, known beforehand.")
    if settings.grade == "large-sample":
        words.append(
            "Means of returns are nearly normal: no return is so rare and so far from the others "
            "that the log has not met it."
        )
    return words


def _treated_words(facts: LogFacts, n: int, cut: str | None) -> str:
    """What is assumed of episodes that were cut, or of all where none was."""
    later = f", with all later ones of {form(n, 'its group', 'their groups')}"
    later = "" if facts.n_groups >= facts.n_episodes else later
    ended = {
        "drop-unrelated": f"{many(n, 'cut episode')} {form(n, 'was', 'were')} left out{later}: "
        f"{UNRELATED} (declared by the user).",
        "terminal": f"{many(n, 'cut episode')} {form(n, 'counts', 'count')} as ended: the value "
        "meant is what was collected until the cut, and how long that is depends on the state "
        "alone.",
    }
    return ended[str(cut)] if n else "No episode was cut short by what was about to come."


def _windowed(facts: LogFacts) -> list[str]:
    """What returns are of, where every episode is followed for a fixed time."""
    if facts.follow_up is None:
        return []
    return [
        f"Returns are of the first {facts.follow_up} of an episode (chosen without looking at "
        "returns). How much of that time is left is part of the state, or does not matter."
    ]


def _group_order(record: LogRecord, counted: str) -> list[str]:
    """What is assumed of the order of a group's episodes; nothing where a group is an episode."""
    facts = record.facts
    if not facts.grouped or facts.n_groups >= facts.n_episodes:
        return []
    return [
        "Episodes of a group come in the order they happened"
        + (" (by time, then by label)" if record.timed else " (by label)")
        + f"; a group's first visit of {counted}"
    ]
