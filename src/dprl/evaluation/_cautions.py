"""The warnings of an evaluation, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dprl._core.words import duration, say, say_many, sentences, word
from dprl.evaluation._result import BLIND, ENOUGH, FEW_BLIND
from dprl.evidence._lots import RecordedPropensity
from dprl.logs._cut_words import DROPS, UNRELATED, WEIGHED
from dprl.logs.log import Log
from dprl.policies._explain import window_words
from dprl.policies._familiar import never_saw
from dprl.policies._protocol import Policy
from dprl.policies.held_out import HeldOut

__all__ = ["no_spread", "wary_of", "weights_off"]

FAR_OFF = 3.0
"""Standard errors between the mean weight and 1 above which there is a warning."""
OFTEN = 0.05
"""Share of clipped probabilities above which there is a warning."""


def _window(policy: Policy, log: Log) -> list[str]:
    """What is said of the time for which episodes are followed, here and in training."""
    words = [w] if (w := window_words(log.follow_up)) else []
    origin = getattr(policy, "provenance", None) or {}
    own = origin.get("columns", {}).get("follow_up")
    if origin and own != log.follow_up:
        words.append(
            say(
                "the policy was learned from episodes followed {own}, and these are followed "
                "{here}.",
                own=_followed(own),
                here=_followed(log.follow_up),
            )
        )
    return words


def _followed(window: str | None) -> str:
    """For how long episodes are followed."""
    return say("for {window}", window=duration(window)) if window else say("to their end")


def _nobody(facts: Mapping[str, Any], log: Log) -> str:
    """Of an action that is not supported: who took it not (`dprl.evaluation.divergence`)."""
    if facts["behavior"] == "given":
        return say("has no chance there in the behaviour given")
    if log.state is not None:
        return say("nobody took in its state")
    return say("hardly anybody took at steps like that (at most 3, and less than 2 %, in a region)")


def no_spread(followed: tuple[int, float] | None, level: float) -> list[str]:
    """A warning where all who followed had one and the same return; else nothing.

    Args:
        followed: How many episodes, and their return; None where returns differ.
        level: Coverage of the intervals.
    """
    if followed is None:
        return []
    n, value = followed
    most = 1 - (1 - level) ** (1 / n)
    return [
        sentences(
            say(
                "all {n:,} episodes that followed the policy had the return {v:g}: resampling "
                "shows no spread among them, and intervals are too short.",
                n=n,
                v=value,
            ),
            say(
                "A return that none of them had may still come in up to {p:.2g} % of such "
                "episodes (with {level:g} % confidence).",
                p=100 * most,
                level=100 * level,
            ),
        )
    ]


def weights_off(facts: Mapping[str, Any]) -> list[str]:
    """A warning where the weights do not have mean 1, beyond what chance explains; else nothing.

    Weights have a long tail. Where a log happens not to hold the few episodes with the largest
    ones, the rest have much the same weights: the effective sample size looks good, and only the
    mean tells that something is missing.
    """
    mean, ess = facts["mean_weight"], facts["ess"]
    if abs(mean - 1) > 0.5:
        return [
            say(
                "the mean weight is {w:.2f}, not 1: the behaviour is badly estimated where it "
                "matters, or too few follow.",
                w=mean,
            )
        ]
    if not ess or facts["unsupported"] > FEW_BLIND or facts["clipped"] > OFTEN:
        return []  # another warning says why
    error = mean * np.sqrt(max(1 / ess - 1 / facts["groups"], 0.0))
    if abs(mean - 1) <= max(FAR_OFF * error, 0.02):
        return []
    return [
        sentences(
            say(
                "the mean weight is {w:.2f} where 1 is expected, {z:.1f} standard errors away: "
                "{unit} that would count most are missing here by chance, or the chances behind "
                "the weights are not those of this log.",
                w=mean,
                z=abs(mean - 1) / error,
                unit=word(facts["unit"]),
            ),
            say("IS, PDIS and WPDIS are off by about as much, and no interval shows it."),
        )
    ]


def _another_practice(facts: Mapping[str, Any]) -> list[str]:
    """A warning where the behaviour given is plainly not that of the log; else nothing."""
    expected, done = facts["suggested_expected"], facts["suggested_done"]
    if facts["behavior"] != "given" or expected is None:
        return []
    steps = facts["spoken"] * facts["steps"]
    error = float(np.sqrt(expected * (1 - expected) / steps))  # at most: chances may vary
    if abs(done - expected) <= max(4 * error, 0.01):
        return []
    return [
        f"the behaviour given expects what the policy suggests at {100 * expected:.1f} % of the "
        f"steps at which it speaks, and it was done at {100 * done:.1f} %: that is not the "
        "practice of this log. Its rows must be in the order of log.states (or of the steps), its "
        "columns in that of log.actions."
    ]


def _chosen(facts: Mapping[str, Any], policy: Policy, log: Log) -> list[str]:
    """A warning where recorded chances show that those who took an action were chosen."""
    if not facts["recorded"] or log.state is None or not policy.knows_practice:
        return []
    chances = RecordedPropensity.of(log)
    several = 0 if chances is None else int((~chances.same).sum())
    if not several:
        return []
    return [
        sentences(
            say(
                "the recorded probabilities differ from row to row in {k:,} of {n:,} states: who "
                "took an action there was chosen by something that the state does not hold.",
                k=several,
                n=log.n_states,
            ),
            say(
                "The estimates for the whole policy take that into account; the advantage of a "
                "single change, in training and held out, does not."
            ),
        )
    ]


def wary_of(
    facts: Mapping[str, Any], held: HeldOut, undefined: float, trouble: str, draws: int
) -> list[str]:
    """The warnings of an evaluation.

    Args:
        facts: The facts of the evaluation (`Evaluation.facts`).
        held: The policy that was evaluated, and the log.
        undefined: Share of the bootstrap draws in which all weights were 0.
        trouble: Why there is no model of values, in words; '' where there is one.
        draws: Number of bootstrap draws.

    Returns:
        One sentence per warning.
    """
    policy, log, cut = held.policy, held.log, held.cut
    unit, cautions = facts["unit"], []
    states = set(policy.space.states)
    if states and log.state is not None:
        in_policy = np.array([s in states for s in log.states])
        strange = float((~in_policy)[log.codes()].mean())
        if strange > 0.01:
            cautions.append(never_saw(policy, strange))
    cautions += _window(policy, log)
    if cut in DROPS and len(log.cut_episodes):
        cautions.append(
            say(
                "{cut_episodes:,} of {n_episodes:,} episodes were cut and are left out: every "
                "number here is of the other {episodes:,}, and it is declared that {unrelated}.",
                cut_episodes=len(log.cut_episodes),
                n_episodes=log.n_episodes,
                episodes=facts["episodes"],
                unrelated=UNRELATED,
            )
        )
    if cut == "ipcw" and len(log.cut_episodes):
        cautions.append(
            sentences(
                say(
                    "{cut_episodes:,} of {n_episodes:,} episodes were cut: {weighed} Every "
                    "interval is for large samples and takes these chances as known.",
                    cut_episodes=len(log.cut_episodes),
                    n_episodes=log.n_episodes,
                    weighed=WEIGHED,
                ),
                say("DM is left out."),
            )
        )
    if cut == "bootstrap" and (n_cut := len(log.cut_episodes)):
        cautions.append(
            say_many(
                "{n:,} episode was cut: what comes after is put at usual practice, whatever the "
                "policy would do there.",
                "{n:,} episodes were cut: what comes after is put at usual practice, whatever the "
                "policy would do there.",
                n_cut,
            )
        )
    if facts["not_offered"]:
        cautions.append(
            say(
                "at {p:.1f} % of the steps at which the policy speaks its suggestion was not on "
                "offer: the estimates suppose that it was.",
                p=100 * facts["not_offered"],
            )
        )
    if not facts["spoken"]:
        return [
            *cautions,
            say("the policy speaks nowhere in this log: it is usual practice, exactly."),
        ]
    if not facts["reached"]:
        cautions.append(
            say(
                "wherever the policy speaks in this log, it says what practice does always "
                "already: this log says nothing about what it would do otherwise."
            )
        )
    elif not facts["reached_change"] and policy.may_change:
        cautions.append(
            say(
                "no {unit} reaches a change: this log says nothing about the changes.",
                unit=word(unit[:-1]),
            )
        )
    if facts["reached"] and not facts["followers"]:
        cautions.append(
            sentences(
                say(
                    "nobody followed the suggestions: {n:,} {unit} reach a step at which the "
                    "policy differs from practice, and none took the suggestion at every one.",
                    n=facts["reached"],
                    unit=word(unit),
                ),
                say(
                    "What would have happened is the model's guess, so no estimate has an interval."
                ),
            )
        )
    if facts["ess"] < ENOUGH <= min(facts["ess_differs"], facts["groups"]):
        cautions.append(
            say(
                "the effective sample size over all is {ess:.1f}, below {enough}: estimates rest "
                "on few {unit}.",
                ess=facts["ess"],
                enough=ENOUGH,
                unit=word(unit),
            )
        )
    if facts["followers"] and facts["ess_differs"] < ENOUGH:
        cautions.append(
            say(
                "the effective sample size where it matters is {ess:.1f}, below {enough}: "
                "estimates rest on few {unit}, and intervals are too short.",
                ess=facts["ess_differs"],
                enough=ENOUGH,
                unit=word(unit),
            )
        )
    elif facts["reached_change"] and facts["ess_change"] < ENOUGH <= facts["ess_differs"]:
        cautions.append(
            say(
                "the effective sample size of those that reach a change is {ess:.1f}, below "
                "{enough}: what the changes alone bring rests on few {unit}.",
                ess=facts["ess_change"],
                enough=ENOUGH,
                unit=word(unit),
            )
        )
    if undefined > 0:
        cautions.append(
            say(
                "in {k:,.0f} of {n:,} bootstrap draws nobody's weight was left; WIS, WPDIS and "
                "WDR do not exist there.",
                k=undefined * draws,
                n=draws,
            )
        )
    cautions += _chosen(facts, policy, log)
    cautions += _another_practice(facts)
    cautions += weights_off(facts)
    if facts["clipped"] > OFTEN:
        cautions.append(
            say(
                "{p:.0f} % of the probabilities behind the weights were clipped: the policy often "
                "does what is hardly ever done.",
                p=100 * facts["clipped"],
            )
        )
    if facts["unsupported"] > FEW_BLIND and facts["followers"]:
        ends = say(": no estimate has an interval") if facts["unsupported"] > BLIND else ""
        cautions.append(
            sentences(
                say(
                    "whoever follows the policy meets, in {unsupported:.1f} % of episodes, an "
                    "action that {nobody}.",
                    unsupported=100 * facts["unsupported"],
                    nobody=_nobody(facts, log),
                ),
                say(
                    "What follows it is in no row: IS and PDIS count it as 0, WIS and WPDIS leave "
                    "it out, the others guess it{ends}.",
                    ends=ends,
                ),
            )
        )
    if facts["guessed"] is not None and facts["guessed"] > 0.01:
        cautions.append(
            say(
                "at {p:.1f} % of the steps at which it speaks, the suggestion was never taken "
                "elsewhere in this log: DM, DR and WDR guess its value.",
                p=100 * facts["guessed"],
            )
        )
    if trouble:
        cautions.append(f"DM, DR and WDR are left out: {trouble}")
    return cautions
