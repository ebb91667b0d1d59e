"""What a reader should know of fitted nuisances, in sentences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl._core.words import say, sentences
from dprl.evidence._cross_fit import Fit
from dprl.evidence._nuisance_models import FLOOR, Floats, Model
from dprl.logs.log import Log

__all__ = ["OVERLAP", "fit_notes", "quality_notes"]

OVERLAP = 0.02
"""The least probability at which an action can be compared with the others."""
BARELY = 0.01
"""Nats per row by which a model has to be better than the shares of actions alone."""
MISPLACED = 0.05
"""Misplaced probability from which on the probabilities are called badly calibrated."""
NAMED = 5


def _names(log: Log, codes: NDArray[np.int64]) -> str:
    names = ", ".join(repr(log.actions[a]) for a in codes[:NAMED])
    return names + (", …" if len(codes) > NAMED else "")


def fit_notes(log: Log, fits: list[Fit], models: list[Model]) -> list[str]:
    """About the fits: rows left out to save time, actions that models of behaviour never saw.

    Args:
        log: The log.
        fits: The rounds of fitting.
        models: The model of values, then those of what people do (none where that is given).
    """
    notes = []
    rows = max(len(fit.train()) for fit in fits)
    for most in sorted({model.most for model in models if model.most < rows}):
        names = ", ".join(model.name for model in models if model.most == most)
        notes.append(
            say(
                "Fitted on a random part of the training groups, at most {a:,} rows of up to "
                "{b:,} (whole groups): {names}.",
                a=most,
                b=rows,
                names=names,
            )
        )
    unseen = np.zeros((len(fits), log.n_actions), bool)
    taken = _taken(log, np.arange(log.n_steps))
    for most in {model.most for model in models[1:]}:
        unseen |= [taken & ~_taken(log, fit.train(most)) for fit in fits]
    if unseen.any():
        notes.append(
            f"Some actions were never taken in the training rows of {unseen.any(axis=1).sum()} of "
            f"{len(fits)} fits; the models give them a probability of about {FLOOR} there: "
            f"{_names(log, np.flatnonzero(unseen.any(axis=0)))}."
        )
    return notes


def _taken(log: Log, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which actions were taken in these rows, bool (A,)."""
    return np.bincount(log.action[rows], minlength=log.n_actions) > 0


def quality_notes(log: Log, losses: Table, b: Floats, *, given: bool = False) -> list[str]:
    """About the probabilities: do features tell anything, are they calibrated, is there a choice.

    Args:
        log: The log.
        losses: The table of `Nuisances`; the last line is the shares alone, the one before it b.
        b: float64 (N, A), the probabilities.
        given: Whether they are known: then features need not tell them. Default False.
    """
    notes = []
    loss, alone = losses["log-loss"][-2:]
    if alone - loss < BARELY and not given:
        notes.append(
            sentences(
                say(
                    "The features hardly tell which action is taken: the held-out log-loss is "
                    "{a:.3f} with them and {b:.3f} without.",
                    a=loss,
                    b=alone,
                ),
                say(
                    "Either actions were nearly random, or what people went by is not in the "
                    "features."
                ),
            )
        )
    wrong = losses["misplaced"][-2]
    if wrong > MISPLACED:
        notes.append(
            f"The probabilities of actions are badly calibrated: {wrong:.1%} of the probability is "
            "in the wrong place. Comparisons of actions lean on them."
            + (" Known ones must be of the action that was taken, not of one action." * given)
        )
    possible = b >= OVERLAP
    settled = float((possible.sum(axis=1) < 2).mean())
    if settled >= 0.1:
        notes.append(
            f"Poor overlap: on {settled:.0%} of the rows only one action has a probability of at "
            f"least {OVERLAP}. Nothing can be compared there."
        )
    taken = _taken(log, np.arange(log.n_steps))
    rare = np.flatnonzero(taken & (possible.mean(axis=0) < 0.1))
    if len(rare):
        notes.append(
            f"Poor overlap: {len(rare)} of {int(taken.sum())} actions have a probability of at "
            f"least {OVERLAP} on fewer than 10 % of the rows, and can be suggested there at most: "
            f"{_names(log, rare)}."
        )
    return notes
