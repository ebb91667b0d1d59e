"""Why a policy is silent in a state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import say, word
from dprl.evidence.decision_points import TOLERANCE
from dprl.policies._decisions import Decisions

__all__ = ["not_worse", "rounding", "silences", "why_silent"]


def rounding(here: Decisions, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """float64 (k, 1): differences in the states `rows` up to which values count as equal."""
    m, mean, sd = here.m[rows], here.took_mean[rows], here.took_sd[rows]
    with np.errstate(invalid="ignore"):
        share = m / m.sum(axis=1, keepdims=True)
        size = np.hypot(np.nan_to_num(mean), np.nan_to_num(sd))
        scale = size.max(axis=1, keepdims=True, initial=0.0)
        within = np.where(scale > 0, size / scale, 0.0)
        size = scale * np.sqrt((share * within**2).sum(axis=1, keepdims=True))
    return np.asarray(TOLERANCE * np.nan_to_num(size))


def not_worse(here: Decisions, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool (k, A): Q̂ >= V̂ in the states `rows`, but for rounding (see `Evidence.not_worse`)."""
    with np.errstate(invalid="ignore"):
        return np.asarray(here.V[rows, None] - here.Q[rows] <= rounding(here, rows))


def silences(here: Decisions) -> tuple[str, ...]:
    """Why a policy may be silent, in the order of the codes of `why_silent`."""
    n_min, unit = f"{here.terms.n_min:,.0f}", here.terms.counted
    delta = here.terms.delta
    return (
        here.terms.elsewhere,
        say("What the evidence would allow here is not among the changes that were approved."),
        say("No action was taken here in at least n_min = {n} {unit}.", n=n_min, unit=word(unit)),
        say(
            "Fewer than n_min = {n} {unit} did anything but the usual here: there is nothing to "
            "compare with.",
            n=n_min,
            unit=word(unit),
        ),
        (
            say("What did better here was not always available.")
            if delta is None
            else say(
                "What did better here is not certified to be better at δ = {d:g}, or the "
                "certificate leaves it out.",
                d=delta,
            )
        ),
        (
            say("No action with enough evidence did better here than usual practice.")
            if here.estimates is None
            else say(
                "No action that may be suggested is surely better here than usual practice, in "
                "{where}.",
                where=word(here.terms.sure),
            )
        ),
    )


def why_silent(here: Decisions, rows: NDArray[np.int64]) -> NDArray[np.int8]:
    """int8: which of `silences` holds in each of the states `rows`, were the policy silent there.

    The first of them that does: not seen, not approved, too few took any action, too few did
    otherwise, what did better may not be suggested; else nothing did better.
    """
    m, n = here.m[rows], here.n[rows]
    enough = n >= here.terms.n_min
    compared = enough
    if here.terms.contrast:
        compared = enough & (m.sum(axis=1, keepdims=True) - m >= here.terms.n_min)
    better = compared & not_worse(here, rows)
    if here.estimates is not None:
        better = np.zeros_like(better)  # silent because nothing was sure, whatever first visits did
    barred = here.terms.approved & here.allowed[rows].any(axis=1)
    holds = [
        ~m.any(axis=1), barred, ~enough.any(axis=1), ~compared.any(axis=1), better.any(axis=1),
    ]  # fmt: skip
    return np.select(holds, range(len(holds)), len(holds)).astype(np.int8)
