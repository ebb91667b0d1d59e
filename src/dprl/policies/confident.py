"""ConfidentPolicy: a policy over labels that says how sure it is, of each change and of all."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dprl._core.arrays import Floats
from dprl._core.words import joined, say
from dprl.logs.log import Facts
from dprl.policies.protocol import Decisions, Estimates, Terms
from dprl.policies.table import (
    Approved,
    TablePolicy,
    changed_labels,
    first_line,
    in_a_line,
    limit_states,
    steps_of,
)

SURE_IN = {
    "model": say("the maximum-likelihood model of the log"),
    "excursions": say("the returns to the same state"),
    "returns": say("the returns of first visits"),
}
"""Evidence → what a suggestion had to be surely better in, in words."""

ASSUMES = {
    "model": say(
        "It assumes that the state tells all that matters for what comes next (the Markov "
        "property), in every state, and that nothing unrecorded moves both what people do and how "
        "it ends."
    ),
    "excursions": say(
        "It assumes that a state, where the policy makes a suggestion, tells all that matters for "
        "what comes next there, and that nothing unrecorded moves both what people do and how it "
        "ends; nothing else is assumed about the other states."
    ),
    "returns": say(
        "It assumes nothing about how states follow each other (whole returns are compared), but "
        "that nothing unrecorded moves both what people do and how it ends."
    ),
}
"""Evidence → what it assumes, in one sentence."""

NOTHING = (
    say(
        "Nothing is promised: it was issued because the lower end of its own gain, which ignores "
        "that it was chosen, is above 0."
    ),
)
"""What is said of a policy without a promise that no halves have chosen."""
NOT_PROMISED = (
    say(
        "Nothing is promised: it was issued because it did best on halves of the log that had not "
        "chosen it."
    ),
)
"""What is said of a policy without a promise that was chosen by halves."""
ONE_BY_ONE = say(
    "Each suggestion was compared with usual practice by itself; nothing is promised of the policy "
    "as a whole."
)
"""What is said of evidence that decides one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class ConfidentPolicy(TablePolicy):
    """A deferring policy over labelled states with the doubt about every suggestion; immutable.

    Attributes:
        states: State labels, S of them.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        choice: int32 (S,), the chosen action's code, -1 for DEFER.
        allowed: bool (S, A), the pairs it chose.
        steps: int64 (S,), rows of the training log in each state.
        n: int64 (S, A), n(s,a): trajectories that contain the pair.
        m: int64 (S, A), trajectories that took a at their first visit of s.
        Q: float64 (S, A), Q̂(s,a); NaN where n = 0.
        V: float64 (S,), V̂(s); NaN where s was never visited.
        took_mean: float64 (S, A), mean return of first visits that took a.
        took_sd: float64 (S, A), sample standard deviation of these returns.
        others_mean: float64 (S, A), mean return of first visits that did otherwise.
        others_sd: float64 (S, A), sample standard deviation of these returns.
        lowest: float64 (S,), smallest return at a first visit of s; NaN where never visited.
        highest: float64 (S,), largest return at a first visit of s; NaN where never visited.
        planned: float64 (S, A), value of taking a now and following the plan after; NaN if not
            allowed. Equal to Q̂ where the learner did not plan.
        advantage: float64 (S, A), what the action brings over usual practice in the state, the
            rest of the policy being followed; in units of returns, NaN where it was never seen.
        advantage_se: float64 (S, A), the standard error of `advantage`.
        gain: What the whole policy brings over usual practice: "estimate", "se" (with groups in it;
            "se_by_visits" as if visits were independent), "df", "risk", "low" (the bound that pays
            for the choice; None where none was asked for), "member" (which candidate it is; files
            of older versions have "doubt"), "optimism" (how many standard errors too high such
            estimates were on halves), "brought" (what the choice of one half brought in the other,
            on average), "halves" (how many they are means of) and "cases" (trajectories behind its
            rarest suggestion); with `worst` that and "unseen", what is taken off for it; and
            "elsewhere", what is taken off for rare losses that an action had in other states.
            None where it defers everywhere, and where the evidence gives no gain; what was not
            issued is in provenance["withheld"].
        avoid: None: it says what to take, never what to avoid. Default None.
        certificate: What is proved about it, where it went through `dprl.gate`. Default None.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.Confident(gamma=1.0).fit(log)
        >>> policy.act(["fever", "going home"])
        ['antibiotics', DEFER]
        >>> policy.gain["low"] > 0
        True
    """

    KIND: ClassVar[str] = "confident"
    ARRAYS: ClassVar[Mapping[str, str]] = {
        **TablePolicy.ARRAYS, "advantage": "float64 SA", "advantage_se": "float64 SA",
    }  # fmt: skip

    advantage: Floats = field(kw_only=True)
    advantage_se: Floats = field(kw_only=True)
    gain: Mapping[str, Any] | None = field(kw_only=True)  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parameters.get("evidence") not in SURE_IN:
            self._refuse(f"its evidence is {self.parameters.get('evidence')!r}")
        if not (self.gain is None or isinstance(self.gain, Facts)):
            self._refuse("its gain is no table of numbers")
        if self.gain is not None and not {"estimate", "se", "low", "risk"} <= set(self.gain):
            self._refuse("its gain lacks a number")
        withheld = self.provenance.get(
            "withheld", {"estimate": 0.0, "se": 0.0, "low": 0.0, "risk": 0.5}
        )
        if not isinstance(withheld, Mapping) or not {"estimate", "se", "low", "risk"} <= set(
            withheld
        ):
            self._refuse("what it records of a gain that is not issued lacks a number")
        checked = self.provenance.get("markov", {"ok": True})
        if not isinstance(checked, Mapping) or not isinstance(checked.get("ok"), bool):
            self._refuse("what it records of the Markov check is no record")

    @property
    def terms(self) -> Terms:
        """On which terms it decides."""
        return replace(super().terms, sure=SURE_IN[self.parameters["evidence"]])

    @functools.cached_property
    def decisions(self) -> Decisions:
        """Its decisions in all of its S states, in their order."""
        here = super().decisions
        return replace(here, estimates=Estimates(self.advantage, self.advantage_se))

    @property
    def stated(self) -> tuple[str, ...]:
        """What its learner states about it: its gain, what that assumes, what was checked."""
        assumed = ASSUMES[self.parameters["evidence"]], *self.conditions
        return (*self._gain_words(), *self._left_out(), *assumed, *self._check_words())

    def _left_out(self) -> tuple[str, ...]:
        """Which candidates did not compete, because there were too many states."""
        out = self.provenance.get("left_out")
        if not out:
            return ()
        n, total = out
        words = say(
            "With so many states {n:,} of {total:,} candidates were left out: those that cost "
            "most.",
            n=n,
            total=total,
        )
        return (words,)

    def _gain_words(self) -> tuple[str, ...]:
        promise = self.parameters.get("promise")  # None in files of 0.2.0
        if self.gain is None:
            return self._why_not() if promise is not None else ()
        low = self.gain["low"]
        words = self._brings(self.gain)
        if low is None:
            return (say("{words}; that pays nothing for having chosen it.", words=words), *NOTHING)
        sure = self._sure(self.gain)
        if not self.gain.get("halves", 1):
            told = say(
                "{words}; {sure} (large-sample; no half of the log chose anything that the other "
                "could judge, so nothing is taken off for having chosen it).",
                words=words,
                sure=sure,
            )
        elif "worst" in self.gain:
            told = say(
                "{words}; choosing and judging on different halves, {sure} (large-sample), though "
                "a return of {worst:g} may happen that has not happened yet.",
                words=words,
                sure=sure,
                worst=self.terms.measured.shown(self.gain["worst"]),
            )
        elif "cases" in self.gain:
            told = say(
                "{words}; choosing and judging on different halves, {sure} (large-sample), unless "
                "something that has not happened in {n:,} cases happens.",
                words=words,
                sure=sure,
                n=self.gain["cases"],
            )
        else:
            told = say(
                "{words}; choosing and judging on different halves, {sure} (large-sample).",
                words=words,
                sure=sure,
            )
        if promise is not False:
            return (told,)
        return (told, *(NOT_PROMISED if "member" in self.gain else NOTHING))

    def _brings(self, gain: Mapping[str, Any]) -> str:
        """What the model says that a policy brings."""
        brings = self.terms.measured.shown(gain["estimate"])
        if self.provenance.get("markov", {}).get("ok", True):
            return say(
                "In {model} the policy brings {estimate:+.3g} over usual practice (standard error "
                "{se:.2g})",
                model=SURE_IN["model"],
                estimate=brings,
                se=gain["se"],
            )
        return say(
            "If the state is enough (a test speaks against it, see below), in {model} the policy "
            "brings {estimate:+.3g} over usual practice (standard error {se:.2g})",
            model=SURE_IN["model"],
            estimate=brings,
            se=gain["se"],
        )

    def _sure(self, gain: Mapping[str, Any]) -> str:
        """How much of it is sure; it has a lower end."""
        outcome, risk = self.terms.measured, gain["risk"]
        low = outcome.shown(gain["low"])
        if gain["low"] > 0:
            return say(
                "{at_least} {low:+.3g} with confidence {risk:g} %",
                at_least=outcome.at_least,
                low=low,
                risk=100 * (1 - risk),
            )
        return say(
            "no gain with confidence {risk:g} % ({end} {low:+.3g})",
            risk=100 * (1 - risk),
            end=say("upper end") if outcome.falls else say("lower end"),
            low=low,
        )

    def _why_not(self) -> tuple[str, ...]:
        """Why nothing is issued, or nothing promised, where no gain is stated."""
        if self.parameters["evidence"] != "model":
            return (ONE_BY_ONE,)
        withheld = self.provenance.get("withheld")
        if withheld is None:
            return ()
        words = self._brings(withheld)
        if not self.provenance.get("markov", {}).get("ok", True):
            return (
                say(
                    "Nothing is issued, because a test speaks against the state being enough for a "
                    "promise. {words}.",
                    words=words,
                ),
            )
        if withheld["low"] is None:
            return (
                say(
                    "Nothing is issued. {words}, but no half of the log chose anything that the "
                    "other could judge.",
                    words=words,
                ),
            )
        return (
            say(
                "Nothing is issued, because no gain is sure. {words}; {sure} (large-sample).",
                words=words,
                sure=self._sure(withheld),
            ),
        )

    def _check_words(self) -> tuple[str, ...]:
        words = self.provenance.get("markov", {}).get("words", "")
        return (words,) if words else ()

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> ConfidentPolicy:
        """The policy with these of its changes alone; elsewhere it defers.

        Args:
            approved: The changes to keep, each with a `state` or a `region`, such as what
                `situations` returns. An empty list leaves a policy that makes no change.
            noted: Facts to add to the provenance, such as who approved.

        Returns:
            The limited policy. Its gain is not stated: the estimate was of the whole. `advantage`
            stays as it was, the rest of the *whole* policy being followed.

        Raises:
            ParameterError: The policy changes nothing in a state that is named.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.Confident(gamma=1.0).fit(log)
            >>> policy.limited_to(policy.situations(log)[:1]).gain is None
            True
        """
        states = [change.state for change in approved if change.state is not None]
        return replace(limit_states(self, states, **noted), gain=None)

    def learned(self) -> dict[str, Any]:
        """What `dprl fit` says of it: the gain too.

        Returns:
            Name → fact.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> list(dprl.Confident(gamma=1.0).fit(log).learned())
            ['gain', 'stated']
        """
        return {"gain": self.gain_shown, **super().learned()}

    @property
    def gain_shown(self) -> dict[str, Any] | None:
        """Its gain in the direction of the outcome."""
        amounts = ("estimate", "low", "worst", "brought")
        return None if self.gain is None else self.terms.measured.facts(self.gain, amounts)

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet(
            "policy",
            text="\n".join(str(self).splitlines()[: self.HEAD]),
            steps=steps_of(self.summary()),
            changes=self._changed(),
            certificate=self.certificate,
            sure=self,
        )

    def __str__(self) -> str:
        line = in_a_line(self.summary(), "state")
        return joined(
            "\n", (first_line(self, self.decisions, changed_labels(self)), line, *self.stated)
        )
