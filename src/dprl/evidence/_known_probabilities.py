"""Probabilities of actions that a log knows: a trial, or a rule with a lottery.

A log says with which probability p the action taken was taken (`Log.propensity`), on some rows or
on all. There b of the action taken is p, and the other actions share 1 - p in proportion to an
estimate. With two actions nothing is left to estimate.

Where some rows are known and others are not, two ways of deciding may be mixed in one log (patients
of a trial and patients outside of it). So whether p is known is one more input of the models, and
they are weighed by the rows for which an estimate is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import say
from dprl.evidence._nuisance_models import Floats
from dprl.logs.log import Log

__all__ = ["Known", "Source", "source_note"]

Bools: TypeAlias = NDArray[np.bool_]
Source: TypeAlias = Literal["known", "mixed", "estimated"]


@dataclass(frozen=True, eq=False)
class Known:
    """What a log knows of the probabilities of actions.

    Attributes:
        p: float64 (N,), probability of the action taken; NaN where it is unknown.
        settled: bool (N,), the rows on which p leaves nothing to estimate.
    """

    p: Floats
    settled: Bools

    @classmethod
    def of(cls, log: Log, menu: Bools | None) -> Known | None:
        """What the log knows; None where that is nothing. `menu` is bool (N, A), None: all."""
        if log.propensity is None or np.isnan(log.propensity).all():
            return None
        p = log.propensity
        possible = np.full(log.n_steps, log.n_actions) if menu is None else menu.sum(axis=1)
        return cls(p, ~np.isnan(p) & ((p == 1) | (possible <= 2)))

    @property
    def at(self) -> Bools:
        """bool (N,), the rows on which the probability of the action taken is known."""
        return ~np.isnan(self.p)

    @property
    def source(self) -> Source:
        """Whether all is known, or part of it is estimated."""
        return "known" if self.settled.all() else "mixed"

    @property
    def words(self) -> str:
        """Its line in the table of losses."""
        return f"known on {100 * float(self.at.mean()):.3g} % of rows"

    def used_in(self, b: Floats, log: Log) -> Floats:
        """Probabilities (N, A): known where they are, elsewhere the estimates b (N, A)."""
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


def source_note(source: Source, logged: Known | None, log: Log) -> str:
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
