"""What treatments of cut episodes assume, in words that certificates, policies and pages share."""

from __future__ import annotations

from dprl._core.words import say, sentences

__all__ = ["DROPS", "UNRELATED", "WEIGHED"]

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
