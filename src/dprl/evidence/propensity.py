"""What recorded probabilities of actions say of a state, a cell or the region of a rule.

A log may record with which probability the action taken was taken (`Log.propensity`). A gate
compares, within a place, those who took an action with those who did not. That is fair where all
who came there had the same probability of it, and the record shows whether they had:

* *The same for all.* Then p, which the bounds of an advantage need, is known, not estimated.
* *They differ.* Whoever was likelier to take the action may also fare otherwise: the comparison
  is not fair, and nothing is certified there. With two actions the odds of the action move by a
  known factor r within the place, which is what an unrecorded cause of strength Γ = r does: where
  the claim allows for a Γ of r or more it is made all the same.

Only the probability of the action *taken* is on record, so with three actions or more r is not
known.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.words import option, say, say_many, sentences, word, worded
from dprl.errors import BalanceWarning
from dprl.logs.censoring import outside
from dprl.logs.design import all_chances
from dprl.logs.log import Log
from dprl.logs.source import Chunk, Source

# --- Probabilities of actions that a log knows: a trial, or a rule with a lottery
#
# A log says with which probability p the action taken was taken (`Log.propensity`), on some rows or
# on all. There b of the action taken is p, and the other actions share 1 - p in proportion to an
# estimate. With two actions nothing is left to estimate.
#
# With more, nothing is either where the chances of all arms follow from those on record, as in a
# trial
# (`dprl.logs.design`).
#
# Where some rows are known and others are not, two ways of deciding may be mixed in one log
# (patients of a trial and patients outside of it). So whether p is known is one more input of the
# models, and they are weighed by the rows for which an estimate is needed.

Origin: TypeAlias = Literal["known", "mixed", "estimated"]


@dataclass(frozen=True, eq=False)
class Known:
    """What a log knows of the probabilities of actions.

    Attributes:
        p: float64 (N,), probability of the action taken; NaN where it is unknown.
        settled: bool (N,), the rows on which p leaves nothing to estimate.
        every: float64 (N, A), the chances of all actions; None where they do not follow from p.
    """

    p: Floats
    settled: Bools
    every: Floats | None = None

    @classmethod
    def of(cls, log: Log, menu: Bools | None) -> Known | None:
        """What the log knows; None where that is nothing. `menu` is bool (N, A), None: all."""
        if log.propensity is None or np.isnan(log.propensity).all():
            return None
        p, every = log.propensity, all_chances(log)
        if every is not None:
            return cls(p, np.ones(log.n_steps, bool), every)
        possible = np.full(log.n_steps, log.n_actions) if menu is None else menu.sum(axis=1)
        return cls(p, ~np.isnan(p) & ((p == 1) | (possible <= 2)))

    @property
    def at(self) -> Bools:
        """bool (N,), the rows on which the probability of the action taken is known."""
        return ~np.isnan(self.p)

    @property
    def source(self) -> Origin:
        """Whether all is known, or part of it is estimated."""
        return "known" if self.settled.all() else "mixed"

    @property
    def words(self) -> str:
        """Its line in the table of losses."""
        return f"known on {100 * float(self.at.mean()):.3g} % of rows"

    def used_in(self, b: Floats, log: Log) -> Floats:
        """Probabilities (N, A): known where they are, elsewhere the estimates b (N, A)."""
        if self.every is not None:
            return self.every.copy()
        rows = np.flatnonzero(self.at)
        taken, p, places = log.action[rows], self.p[rows], np.arange(len(rows))
        others = b[rows]
        others[places, taken] = 0.0
        total = others.sum(axis=1)
        alone = total <= 0
        others = others / np.where(alone, 1.0, total)[:, None] * (1 - p)[:, None]
        others[places, taken] = np.where(alone, 1.0, p)
        result = b.copy()
        result[rows] = others
        return result


def source_note(source: Origin, logged: Known | None, log: Log) -> str:
    """Where the probabilities of actions come from, in a sentence."""
    if source == "known":
        return say(
            "Randomised: the probabilities of actions are known on all {n:,} rows and used as "
            "they are.",
            n=log.n_steps,
        )
    if logged is None:
        return say(
            "Not randomised as far as the log says: the probabilities of actions are estimated "
            "from the features."
        )
    if logged.at.all():
        return say(
            "Mixed: the probability of the action taken is known on all rows; how the other {n} "
            "actions share the rest is estimated from the features.",
            n=log.n_actions - 1,
        )
    return say(
        "Mixed: the probability of the action taken is known on {k:,} of {n:,} rows; on the "
        "others the probabilities are estimated from the features.",
        k=int(logged.at.sum()),
        n=log.n_steps,
    )


# --- What recorded probabilities of actions say of a state, a cell or the region of a rule

EQUAL = 1e-6
"""Probabilities that differ by a smaller share are the same one, written differently."""

WORTH_ALLOWING = 3.0
"""Up to this factor of the odds, to allow for it is worth an advice."""


@dataclass(frozen=True, eq=False)
class RecordedPropensity:
    """The recorded probabilities of actions, place by place.

    Attributes:
        low: float64 (S, A), the smallest on record where the action was taken; inf where none is.
        high: float64 (S, A), the largest; -inf where none is on record.
        complete: bool (S,), whether all rows of the place have one.
    """

    low: Floats
    high: Floats
    complete: Bools

    @classmethod
    def of(cls, log: Log) -> RecordedPropensity | None:
        """Those of a log with labelled states; None where it records none.

        Args:
            log: The log; its states may be cells or regions.
        """
        if log.propensity is None:
            return None
        S, A = log.n_states, log.n_actions
        on_record, state = ~np.isnan(log.propensity), log.codes().astype(np.int64)
        pair, p = (state * A + log.action)[on_record], log.propensity[on_record]
        low, high = np.full(S * A, np.inf), np.full(S * A, -np.inf)
        np.minimum.at(low, pair, p)
        np.maximum.at(high, pair, p)
        complete = np.bincount(state[~on_record], minlength=S) == 0
        return cls(low.reshape(S, A), high.reshape(S, A), complete)

    def merge(self, other: RecordedPropensity) -> RecordedPropensity:
        """Those of two parts of a log together."""
        return RecordedPropensity(
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            self.complete & other.complete,
        )

    @property
    def same(self) -> Bools:
        """bool (S,): whether each action has one and the same probability, where on record."""
        with np.errstate(invalid="ignore"):
            return np.asarray(~(self.high - self.low > EQUAL * self.high).any(axis=1))

    @property
    def p(self) -> Floats:
        """float64 (S, A): the probability of the action, NaN where it is not known for all rows."""
        certain = (self.same & self.complete)[:, None] & np.isfinite(self.high)
        return np.where(certain, self.high, np.nan)

    @property
    def odds_ratio(self) -> Floats:
        """float64 (S,): by how much the odds of an action differ within the place; inf: unknown."""
        ratio = np.where(self.same, 1.0, np.inf)
        if self.low.shape[1] == 2:
            least = np.minimum(self.low[:, 0], 1 - self.high[:, 1])
            most = np.maximum(self.high[:, 0], 1 - self.low[:, 1])
            with np.errstate(divide="ignore", invalid="ignore"):
                odds = most / (1 - most) * (1 - least) / least
            usable = ~self.same & self.complete & np.isfinite(odds)
            ratio[usable] = odds[usable]
        return ratio

    def fair(self, confounding: float) -> Bools:
        """bool (S,): where takers may be compared with others, for a claim that allows for Γ."""
        return np.asarray(self.odds_ratio <= confounding * (1 + EQUAL))

    def words(self, place: str, confounding: float, grade: str) -> str:
        """What follows for a certificate, in a sentence or two.

        Args:
            place: Where takers are compared with others: "state", "cell" or "region of a rule".
            confounding: Γ, the strength of an unrecorded cause that the claim allows for.
            grade: "proved", or "large-sample", which allows for no Γ.
        """
        differs = ~self.same
        if not differs.any():
            return say(
                "Within a {place} they are the same for all, as the log records them: takers and "
                "others may be compared.",
                place=word(place),
            )
        several = int(differs.sum())
        where = {
            "state": say_many("{n:,} state", "{n:,} states", several),
            "cell": say_many("{n:,} cell", "{n:,} cells", several),
            "region of a rule": say_many(
                "{n:,} region of a rule", "{n:,} regions of a rule", several
            ),
        }[place]
        left_out = int((~self.fair(confounding)).sum())
        if not left_out:
            most = float(self.odds_ratio[differs].max())
            return say(
                "In {where} they differ from row to row, by at most a factor of {most:.2f} in the "
                "odds; the claim allows for {confounding:g}.",
                where=where,
                most=most,
                confounding=confounding,
            )
        least = float(self.odds_ratio[differs].min())
        advice = say("With {mode} probabilities may differ.", mode=option("mode", "policy"))
        if least <= WORTH_ALLOWING and grade == "proved":
            advice = sentences(
                say(
                    "With {confounding} or more the claim allows for some of it.",
                    confounding=option("confounding", float(np.ceil(least * 100) / 100)),
                ),
                advice,
            )
        return sentences(
            say_many(
                "In {where} they differ from row to row, so that takers and others cannot be "
                "compared there: {n:,} of them gets no suggestion.",
                "In {where} they differ from row to row, so that takers and others cannot be "
                "compared there: {n:,} of them get no suggestion.",
                left_out,
                where=where,
            ),
            advice,
        )


@dataclass(frozen=True)
class ChancesOf:
    """The recorded probabilities of actions, as a statistic of a log."""

    def of(self, chunk: Chunk) -> RecordedPropensity | None:
        """Those of one chunk."""
        return RecordedPropensity.of(chunk.log)

    def merge(self, one: RecordedPropensity, other: RecordedPropensity) -> RecordedPropensity:
        """Those of two chunks together."""
        return one.merge(other)


def warn_of_choosing(source: Source) -> None:
    """Warn where recorded probabilities show that takers were chosen, which a learner passes over.

    Args:
        source: A log with labelled states, wherever its rows are.
    """
    facts = source.facts
    if not facts.has_propensity:
        return
    chances = source.reduce(ChancesOf())
    if chances.same.all():
        return
    several = np.flatnonzero(~chances.same)
    warnings.warn(
        worded(
            "in {several:,} of {n_states:,} states, {states} first, the recorded probabilities "
            "differ from row to row: who took an action there was chosen by something that the "
            "state does not hold. This learner compares takers with others as if not. Put what "
            "decided into the state, or use {dprl.Rules}, which uses the probabilities; "
            "{dprl.evaluate} does too.",
            several=len(several),
            n_states=facts.n_states,
            states=repr(str(facts.states[several[0]])),
        ),
        BalanceWarning,
        stacklevel=outside(),
    )
