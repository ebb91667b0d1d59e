"""What is said of a policy that compares credit in place of returns (`dprl.evidence.credit`)."""

from __future__ import annotations

from dprl._core.words import say, sentences

__all__ = ["credit_assumes", "credit_note", "credit_stated"]


def credit_assumes(lam: float) -> str:
    """What a comparison of credit with this λ assumes, in words."""
    if lam == 1:
        return say(
            "λ = 1 takes the foretold value of the state off the whole return: it assumes no more "
            "than returns do, also where the model is wrong."
        )
    ahead = (
        say("counts the reward of one step and trusts the model for all that comes after")
        if lam == 0
        else say(
            "counts a surprise k steps later {lam:g}^k times, so an effect that shows later than "
            "about {lam2:.3g} steps is seen only if the model sees it coming",
            lam=lam,
            lam2=1 / (1 - lam),
        )
    )
    return sentences(
        say(
            "λ = {lam:g} {ahead}: it assumes that the model of values is right, and that the "
            "features tell all that matters for what comes next (the Markov property).",
            lam=lam,
            ahead=ahead,
        ),
        say(
            "Where that fails, comparisons are wrong however long the log is; λ = 1 does not need "
            "it."
        ),
    )


def credit_stated(lam: float) -> tuple[str, ...]:
    """What must be known about a policy that was learned with credit, in sentences."""
    return (
        sentences(
            say(
                "It compares credit (λ = {lam:g}), not returns: how much better things went than "
                "a model of usual practice, fitted on others, foretold there.",
                lam=lam,
            ),
            say(
                "Values are advantages over that model, about 0 where things go as usual; "
                "differences are in the unit of returns."
            ),
        ),
        credit_assumes(lam),
    )


def credit_note(lam: float) -> str:
    """How to read the values of a table of such a policy."""
    return (
        f"value, value_usual and planned are credits (λ = {lam:g}), not returns: how much better "
        "things went than\na model of usual practice foretold, about 0 where they go as usual. "
        "Differences are in the unit of returns."
    )
