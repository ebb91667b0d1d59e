"""What treatments of cut episodes assume, in words that certificates, policies and pages share."""

from __future__ import annotations

import numpy as np

from dprl._core.words import say, sentences
from dprl.logs.log import Log

# --- Whether actions were randomised, as far as a log says, in a sentence


def chances_words(log: Log) -> str:
    """Randomised, mixed or estimated: how far the log knows the probabilities of actions."""
    n = 0 if log.propensity is None else int((~np.isnan(log.propensity)).sum())
    return recorded_words(n, log.n_steps)


def recorded_words(known_rows: int, n: int) -> str:
    """The same of a log that records the probability of the action taken on so many of n rows."""
    if not known_rows:
        return say(
            "Not randomised as far as this log says: it does not record with which probabilities "
            "actions were taken; where they are needed they are estimated."
        )
    if known_rows == n:
        return say(
            "Randomised: this log records on all {n:,} rows with which probability the action was "
            "taken.",
            n=n,
        )
    return say(
        "Mixed: this log records on {k:,} of {n:,} rows with which probability the action was "
        "taken; elsewhere probabilities are estimated where they are needed.",
        k=known_rows,
        n=n,
    )


# --- What treatments of cut episodes assume, in words that certificates, policies and pages share

DROPS = ("drop", "drop-unrelated")
"""The treatments that leave cut episodes out."""

UNRELATED = say("whether an episode was cut depends neither on its length nor on its outcome")
"""What ``"drop-unrelated"`` declares."""

WEIGHED = sentences(
    say(
        "what is seen counts by the inverse of the chance to be followed so far, estimated by "
        "step, state and action with a logistic model, cross-fitted by group "
        "(inverse-probability-of-censoring weights, large-sample)."
    ),
    say("It is assumed that no more than these tells who was cut."),
)
"""What "ipcw" does and assumes."""
