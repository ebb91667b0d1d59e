"""Evaluation: the estimated value of a policy, how sure it is, and warnings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dprl._core import plot
from dprl._core.html.catalogue import known
from dprl._core.table import SHORT, Result, Table, in_short, many, to_json_value
from dprl._core.words import duration, joined, say, say_many, sentences, word
from dprl.evidence.nuisances import doubt_notes
from dprl.evidence.propensity import RecordedPropensity
from dprl.logs.log import Log
from dprl.logs.outcome import UNDECLARED, Outcome, digits_of, in_digits
from dprl.logs.reading.tables import write_rows
from dprl.logs.source import DROPS, UNRELATED, WEIGHED, unseen_words
from dprl.policies.explain import window_words
from dprl.policies.familiar import never_saw
from dprl.policies.held_out import HeldOut
from dprl.policies.protocol import Policy

if TYPE_CHECKING:
    from dprl.evaluation.subgroups import Subgroups
    from dprl.evidence.balance import Balance


# --- Evaluation: the estimated value of a policy, how sure it is, and warnings in words

TOLERANCE = 0.01
"""Total variation distance above which a mixed policy counts as different from practice."""

FEW_BLIND, BLIND = 0.01, 0.05
"""Chance to meet an action that nobody took there above which a warning is given, and above which
no estimate has an interval."""
VERDICTS = {
    "better": "Better than usual practice", "worse": "Worse than usual practice",
    "unsure": "Not surely different from usual practice", "unknown": "This log cannot tell",
}  # fmt: skip
"""What the interval of the headline says → the beginning of the answer."""
WHY = {
    "WDR": "weights corrected by a model", "DR": "one decision an episode",
    "WIS": "weights alone, no model",
}  # fmt: skip
"""Estimator that leads → why, in a few words."""
ENOUGH = 30
"""With a smaller effective sample size where it matters, no estimate should be relied on, and those
by weights alone have no interval."""


def judged_by(facts: Mapping[str, Any]) -> float:
    """The effective sample size behind the intervals: where the policy differs from practice."""
    return float(facts["ess_differs"] if facts["reached"] else facts["groups"])


def widened(facts: Mapping[str, Any]) -> float:
    """By how much intervals are wider at each end: what actions that nobody took can matter."""
    return float(facts["unsupported"] * (facts["highest"] - facts["lowest"]))


@dataclass(frozen=True, eq=False)
class Evaluation(Result):
    """Estimates of a policy's value, beside that of usual practice; from `dprl.evaluate`.

    Attributes:
        rows: Estimator → its numbers in units of returns: difference (to usual practice),
            difference_low, difference_high, value, value_low, value_high; NaN where an estimate
            does not exist.
        behavior: The value of usual practice, in units of returns: value, low, high.
        facts: Numbers beside the estimates: episodes, groups, steps; the shares of steps at which
            the policy speaks (`spoken`), suggests an action other than the usual one (`changed`) or
            the usual one (`confirmed`), and at which its action probabilities differ from practice
            (`differs`, see `dprl.evaluation.divergence`); how many groups reach a step at which it
            differs and how many of them follow the policy at all such steps (`reached`,
            `followers`), the same for changes alone (`reached_change`, `followers_change`); the
            effective sample size over all groups, over those that reach a step at which it differs,
            and over those that reach a change (`ess`, `ess_differs`, `ess_change`); whether it
            mixes actions (`mixed`); the chance that whoever follows it meets an action that nobody
            took there (`unsupported`, see `dprl.evaluation.divergence`): above .01 it is warned of,
            above .05 no estimate has an interval; the range of returns (`lowest`, `highest`) and
            where it comes from (`range`: "declared" or "log"); whether the record refutes the model
            of practice (`refuted`: no estimate has an interval then); weights, clipping,
            calibration.
        warnings: What a reader must be careful about, one sentence each.
        settings: gamma, level, draws, seed, cut, clip, and the digests of policy, log and the
            columns in `log.also`.
        balance: Whether those who took the suggestions differ from the others in columns that are
            not in the state; None where the log has no such columns.
        subgroups: The difference in every subgroup; None where none were asked for (`by=`).
        outcome: What the returns are; all numbers are in its direction, as it was declared.
        rules: The difference where each rule speaks, and where all rules do that suggest the same;
            None where the policy is not made of rules, or episodes have several decisions.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> evaluation = dprl.evaluate(policy, test, draws=200)
        >>> sorted(evaluation.rows)
        ['DM', 'DR', 'IS', 'PDIS', 'WDR', 'WIS', 'WPDIS']
        >>> round(evaluation.behavior["value"], 3)
        0.854
    """

    rows: Mapping[str, Mapping[str, float]]
    behavior: Mapping[str, float]
    facts: Mapping[str, Any]
    warnings: tuple[str, ...]
    settings: Mapping[str, Any]
    balance: Balance | None = None
    subgroups: Subgroups | None = None
    outcome: Outcome = UNDECLARED
    rules: Subgroups | None = None

    def turned(self) -> Evaluation:
        """The numbers in the other direction: the user's for those that are computed, and back.

        Returns:
            The same evaluation where more of the outcome is better.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> evaluation.turned() is evaluation
            True
        """
        if not self.outcome.falls:
            return self
        facts = self.outcome.facts
        return replace(
            self,
            rows={name: facts(row) for name, row in self.rows.items()},
            behavior=facts(self.behavior),
            facts=facts(self.facts),
        )

    @property
    def how(self) -> dict[str, str]:
        """How each estimator works, in a few words.

        Returns:
            Estimator → words.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> dprl.evaluate(policy, test, draws=200).how["DM"]
            'a model of values alone'
        """
        from dprl.evaluation.estimators import ASKED, ESTIMATORS

        known = {**ASKED, **ESTIMATORS}
        return {name: known[name].words for name in self.rows if name in known}

    @property
    def headline(self) -> str:
        """The estimator that leads: WDR, DR where episodes have one step, WIS without values.

        Returns:
            Its name; see `dprl.evaluation.estimators`.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> dprl.evaluate(policy, test, draws=200).headline
            'WDR'
        """
        from dprl.evaluation.estimators import headline

        several = self.facts["steps"] > self.facts["episodes"]
        name = headline(True, several)
        exists = np.isfinite(self.rows[name]["difference"])
        return name if exists else headline(False, several)

    def answer(self) -> str:
        """What the policy brings, by the estimator that leads, in a sentence.

        Returns:
            The sentence.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> print(dprl.evaluate(policy, test, draws=200).answer())  # doctest: +ELLIPSIS
            Difference to usual practice (WDR): +0.1... (95 % interval ... to ...).
        """
        name, row = self.headline, self.rows[self.headline]
        numbers = {"name": name, "difference": in_digits(row["difference"], sign="+")}
        if not np.isfinite(row["difference"]):
            return say("Difference to usual practice: there is no estimate.")
        if not np.isfinite(row["difference_low"]):
            return say(
                "Difference to usual practice ({name}): {difference}, without an interval.",
                **numbers,
            )
        return say(
            "Difference to usual practice ({name}): {difference} ({level:g} % interval "
            "{low} to {high}).",
            **numbers,
            level=100 * self.settings["level"],
            low=in_digits(row["difference_low"], sign="+"),
            high=in_digits(row["difference_high"], sign="+"),
        )

    def __getitem__(self, estimator: str) -> Mapping[str, float]:
        """The numbers of one estimator, for example evaluation["DR"]["difference"]."""
        return self.rows[estimator]

    def table(self) -> Table:
        """The estimates, one row per estimator.

        Returns:
            A table with the columns estimator, difference (to usual practice), its interval, value,
            its interval, behavior (the value of usual practice) and outside (see `outside`).

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> evaluation.table()["estimator"]
            ['IS', 'WIS', 'PDIS', 'WPDIS', 'DM', 'DR', 'WDR']
        """
        names = list(self.rows)
        first = self.rows[names[0]]
        columns: dict[str, Any] = {"estimator": names}
        columns |= {k: [self.rows[name][k] for name in names] for k in first}
        columns["behavior"] = [self.behavior["value"]] * len(names)
        columns["outside"] = [self.outside[name] for name in names]
        unit, f = self.unit, self.facts
        count = many(f["episodes"], "episode")
        count += f" of {many(f['groups'], 'group')}" if unit == "groups" else ""
        b, marked = self.behavior, any(self.outside.values())
        return Table(
            columns,
            f"{count}, {many(f['steps'], 'step')}; usual practice gets "
            f"{in_digits(b['value'])} ({in_digits(b['low'])} to {in_digits(b['high'])})",
            note=f"{self.ends()} gamma {self.settings['gamma']:g}."
            + (f"\noutside: what of the value lies outside {self._range}." if marked else ""),
        )

    def ends(self) -> str:
        """How the intervals come about, and which estimates have none, in sentences.

        Returns:
            The sentences.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> dprl.evaluate(policy, test, draws=200).ends().endswith("PDIS, WPDIS, DM.")
            True
        """
        from dprl.evaluation.estimators import names_of

        f = self.facts
        bare = [n for n, row in self.rows.items() if not np.isfinite(row["difference_low"])]
        if len(bare) == len(self.rows):
            return say("No estimate has an interval.")
        wider, alone = widened(f), {name for name in names_of(values=False) if name in self.rows}
        return sentences(
            say(
                "Intervals: {level:g} %, from {draws:,} bootstraps over {unit} and Student's t at "
                "an effective sample size of {ess:.1f}.",
                level=100 * self.settings["level"],
                draws=self.settings["draws"],
                unit=word(self.unit),
                ess=judged_by(f),
            ),
            say(
                "They are wider by {wider:.3g} at each end, for actions that nobody took there.",
                wider=wider,
            )
            if wider
            else "",
            ""
            if alone <= {*bare} or not f["reached"]
            else say("Those of weights alone reach as far as that of {lead}.", lead=self.headline)
            if self.headline not in alone
            else say("Weights alone make them too short where few rows carry much of the weight."),
            say("Without an interval: {names}.", names=", ".join(bare)) if bare else "",
            say(
                "{lead} is the mean of {n} divisions of the log, each of which learned and "
                "judged anew; its interval counts how far they are apart.",
                lead=self.headline,
                n=self.settings["divisions"],
            )
            if self.settings.get("divisions")
            else "",
        )

    def amid(self, others: Sequence[Sequence[float]]) -> Evaluation:
        """The same with the mean of several divisions as its headline.

        Each division of a log into those who learn and those who judge gives another estimate of
        what such a policy brings: their mean is told, and the mean of the squares of what its end
        and the division itself are off goes into the interval. A mean, as divisions that take turns
        judge every group about equally often: what is luck of a division cancels in it.

        Args:
            others: Difference, lower and upper end of the other divisions.

        Returns:
            The evaluation; itself where it has no interval, or there are no others.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> judged = dprl.evaluate(policy, test, draws=50)
            >>> own = judged["WDR"]["difference"]
            >>> mean = judged.amid([(0.5, 0.4, 0.6)] * 2)["WDR"]["difference"]
            >>> round(mean - (own + 0.5 + 0.5) / 3, 9)
            0.0
        """
        row = dict(self.rows[self.headline])
        names = ("difference", "difference_low", "difference_high")
        all_of = np.array([[row[name] for name in names], *others], np.float64)
        if not others or not np.isfinite(all_of[0]).all():
            return self
        middle = float(all_of[:, 0].mean())
        off = (all_of[:, 0] - middle) ** 2
        down, up = (
            float(np.sqrt(np.mean((all_of[:, 0] - all_of[:, k]) ** 2 + off))) for k in (1, 2)
        )
        shift = middle - row["difference"]
        wide = {"value_low": -down, "value_high": up}
        row["value"] += shift
        row |= {name: row["value"] + more for name, more in wide.items()}
        row |= dict(zip(names, (middle, middle - down, middle + up), strict=True))
        return replace(
            self,
            rows={**self.rows, self.headline: row},
            settings={**self.settings, "divisions": len(all_of)},
        )

    @property
    def outside(self) -> dict[str, str]:
        """Whether estimates lie outside the range of returns, where no true value can lie.

        Returns:
            Estimator → "value" (the estimate itself lies outside), "interval" (only an end of its
            interval does) or "" (nothing does).

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> evaluation.outside["IS"], evaluation.outside["WDR"]
            ('', '')
        """
        low, high = self.facts["lowest"], self.facts["highest"]
        slack = 1e-9 * max(abs(low), abs(high), high - low)

        def out(*numbers: float) -> bool:  # what does not exist is not outside
            return any(v < low - slack or v > high + slack for v in numbers)

        return {
            name: "value"
            if out(row["value"])
            else "interval" * out(row["value_low"], row["value_high"])
            for name, row in self.rows.items()
        }

    @property
    def _range(self) -> str:
        """The range of returns in words."""
        f = self.facts
        where = say("as declared") if f["range"] == "declared" else say("those of this log")
        return say(
            "the returns there can be ({lowest:.4g} to {highest:.4g}, {where})",
            lowest=f["lowest"],
            highest=f["highest"],
            where=where,
        )

    def impossible(self) -> list[str]:
        """A warning about estimates that lie outside the range of returns.

        Returns:
            One sentence, or an empty list where no estimate lies outside.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> evaluation.impossible()
            []
        """
        names = [name for name, what in self.outside.items() if what == "value"]
        if not names:
            return []
        listed = joined(
            ", ", (say("{name} ({v:.3g})", name=n, v=self.rows[n]["value"]) for n in names)
        )
        return [
            sentences(
                say("outside {range}: {listed}.", range=self._range, listed=listed),
                say(
                    "No mean of returns lies there: the weights, or the model, do not fit this log."
                ),
                say("Do not read them as values."),
            )
        ]

    @property
    def unit(self) -> str:
        """What is resampled and counted as one.

        Returns:
            "episodes", or "groups" where the log has groups of several episodes.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> evaluation.unit
            'episodes'
        """
        return str(self.facts["unit"])

    def lines(self) -> list[str]:
        """The facts beside the estimates, in sentences.

        Returns:
            Sentences on how often the policy speaks, how many follow it, the effective sample
            sizes, the weights and the behaviour; an empty list for a policy that never speaks.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> print(evaluation.lines()[2])  # doctest: +ELLIPSIS
            Effective sample size: 78.3 of 500 episodes overall, 27.0 of 289 where it matters ...
        """
        f, unit = self.facts, self.unit
        if not f["spoken"]:
            return []
        show_changes = bool(f["reached_change"]) and f["differs"] > f["changed"]
        change = say(
            "A change: {r:,} reach one, {f:,} of them {followed}.",
            r=f["reached_change"],
            f=f["followers_change"],
            followed=self._followed,
        )
        size = say(
            "; {ess_change:.1f} of {reached_change:,} that reach a change",
            ess_change=f["ess_change"],
            reached_change=f["reached_change"],
        )
        return [
            self._speaks(),
            sentences(
                say(
                    "{r:,} of {n:,} {unit} reach a step at which it differs; {f:,} of them "
                    "{followed}.",
                    r=f["reached"],
                    n=f[unit],
                    unit=word(unit),
                    f=f["followers"],
                    followed=self._followed,
                ),
                change if show_changes else "",
            ),
            say(
                "Effective sample size: {ess:.1f} of {f:,} {unit} overall, {ess_differs:.1f} of "
                "{reached:,} where it matters (those that reach a step at which it differs){size}.",
                ess=f["ess"],
                f=f[unit],
                unit=word(unit),
                ess_differs=f["ess_differs"],
                reached=f["reached"],
                size=size if show_changes else "",
            ),
            say(
                "Weights: mean {m:.3f} (1 is expected), largest {l:.3g}; {p:.1f} % of the "
                "probabilities behind them were raised to {c:g}.",
                m=f["mean_weight"],
                l=f["largest_weight"],
                p=100 * f["clipped"],
                c=self.settings["clip"],
            ),
            *self._recorded(),
            *self._practice(),
        ]

    def _recorded(self) -> list[str]:
        """Where the chances behind the weights are known, in a sentence."""
        share = self.facts.get("recorded", 0.0)
        if not share:
            return []
        where = say("all steps") if share == 1 else say("{p:.1f} % of steps", p=100 * share)
        return [
            (
                say(
                    "The log records at {where} with which chance the action was taken; the "
                    "weights use it as it is.",
                    where=word(where),
                )
                if share == 1
                else say(
                    "The log records at {where} with which chance the action was taken; the "
                    "weights use it as it is, and estimate the rest.",
                    where=word(where),
                )
            )
        ]

    def _practice(self) -> list[str]:
        """How well the model of practice foretells; nothing where all chances are on record."""
        f = self.facts
        if f.get("recorded", 0.0) == 1:
            return []
        return [
            say(
                "Behaviour ({how}): probability misplaced {m:.3f} a step, log loss {l:.3f}; what "
                "the policy suggests was expected at {e:.1f} % and done at {d:.1f} % of the steps "
                "at which it speaks.",
                how=word(f["behavior"]),
                m=f["misplaced"],
                l=f["log_loss"],
                e=100 * f["suggested_expected"],
                d=100 * f["suggested_done"],
            ),
        ]

    def _speaks(self) -> str:
        """How often the policy speaks, and how often that differs from practice."""
        f = self.facts
        split = f.get("divided", 0.0)
        names = say(
            ", at {split:.1f} % practice is divided and it names one action (the difference is to "
            "the mixture of all that is done there)",
            split=100 * split,
        )
        sentence = sentences(
            say(
                "It speaks at {spoken:.1f} % of steps: at {split:.1f} % it changes the usual "
                "action{names}, at {confirmed:.1f} % it confirms it.",
                spoken=100 * f["spoken"],
                split=100 * (f["changed"] - split),
                names=names if split else "",
                confirmed=100 * f["confirmed"],
            ),
            say(
                "Its action probabilities differ from practice at {differs:.1f} % of steps",
                differs=100 * f["differs"],
            ),
        )
        if f["mixed"]:
            sentence += say(" (by more than {tolerance:g} in all)", tolerance=TOLERANCE)
        if f["differs"] > f["changed"]:
            sentence += say(": doing the usual action always is a change of what is done")
        return joined("", (sentence, "."))

    @property
    def _followed(self) -> str:
        """What a follower did at the steps at which the policy differs."""
        if self.facts["mixed"]:
            return say("did nothing there that the policy never does")
        return say("took the suggestion at every one they reached")

    def brief(self) -> list[str]:
        """What is printed of it: the verdict, one estimate, and what to be careful about.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> print(dprl.evaluate(policy, test, draws=200).brief()[0])  # doctest: +ELLIPSIS
            Better than usual practice: the return higher by ...
        """
        f, row, name = self.facts, self.rows[self.headline], self.headline
        verdict, words = self.outcome.apart(*(row[f"difference{e}"] for e in ("", "_low", "_high")))
        if not f["spoken"]:
            lines = ["The policy speaks nowhere in this log: it is usual practice itself."]
        elif not np.isfinite(row["difference"]):
            lines = ["This log cannot tell: there is no estimate."]
        else:
            lines = [f"{VERDICTS[verdict]}: {words}."]
            digits = digits_of(self.behavior["high"] - self.behavior["low"])
            values = [self.behavior[k] for k in ("value", "low", "high")]
            usual, low, high = (in_digits(value, digits) for value in values)
            count = many(f["episodes"], "held-out episode")
            lines += [
                f"Usual practice: {usual}{self.outcome.measured} ({low} to {high}); {count}, "
                f"{f['reached']:,} of {f[self.unit]:,} {self.unit} reach a step at which it "
                "differs.",
                f"Estimated by {name} ({WHY[name]}), {100 * self.settings['level']:g} % interval; "
                f"effective sample {judged_by(f):.1f}.",
            ]
        shown = [f"warning: {line}" for line in self.warnings]
        if len(shown) > (room := SHORT - 1 - len(lines)):
            more = len(shown) - room + 1
            shown = [*shown[: room - 1], f"and {many(more, 'further warning')}"]
        return in_short([*lines, *shown], "evaluation")

    def details(self) -> str:
        """All estimates, what they rest on, and every warning, as text.

        Returns:
            The answer, the table of estimators, and the sentences beside it.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> "estimator" in dprl.evaluate(policy, test, draws=200).details()
            True
        """
        warned = [f"warning: {line}" for line in self.warnings]
        beside: list[str] = []
        if self.subgroups is not None:
            beside.append(str(self.subgroups.table()))
        if self.balance is not None:
            shown = [str(self.balance.table())] if self.balance.rows else []
            beside.append(joined("\n", [*shown, *self.balance.lines()]))
        parts = [joined("\n", self.lines()), *beside, joined("\n", warned)]
        return joined("\n\n", [self.answer(), str(self.table()), *filter(None, parts)])

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        row = {name: known(value) for name, value in self.rows[self.headline].items()}
        return pages.snippet("evaluation", evaluation=self, brief=self.brief(), row=row)

    def plot(self, path: str | Path | None = None) -> Any:
        """All estimates of the difference to usual practice as a matplotlib figure (extra `plot`).

        Args:
            path: File to write the figure to, .png, .svg or .pdf; the rows are written beside it as
                .parquet. Default None: nothing is written.

        Returns:
            The figure: a line for each estimate that exists, the one that leads first and full.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> len(dprl.evaluate(policy, test, draws=200).plot().axes)
            1
        """
        first, how = self.headline, self.how
        rows = [
            {
                "words": f"{name}: {how.get(name, name)}",
                "kind": "leads" if name == first else "other",
                "estimator": name, "advantage": row["difference"], "proved": None,
                **{
                    end: row["difference"] if known(row[f"difference_{end}"]) is None
                    else row[f"difference_{end}"]
                    for end in ("low", "high")
                },
            }
            for name, row in sorted(self.rows.items(), key=lambda own: own[0] != first)
            if known(row["difference"]) is not None
        ]  # fmt: skip
        level = f"{100 * self.settings['level']:g} %"
        kinds = {"leads": f"the one to read, with its interval of {level}", "other": "others"}
        with plot.look():
            figure = plot.forest(rows, "difference to usual practice", kinds, self.outcome.falls)
            if path is not None:
                plot.save(figure, Path(path))
                shown = self.table().to_dicts()
                write_rows(to_json_value(shown), Path(path).with_suffix(".parquet"))
        return figure

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry; None where an estimate does not exist.

        Returns:
            The keys estimates (one dict per estimator), behavior, facts, warnings, settings,
            balance and subgroups (None where there are none).

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> evaluation = dprl.evaluate(policy, test, draws=200)
            >>> list(evaluation.to_dict())
            ['estimates', 'behavior', 'facts', 'warnings', 'settings', 'balance', 'subgroups']
        """
        return {
            "estimates": to_json_value(self.table().to_dicts()),
            "behavior": to_json_value(dict(self.behavior)),
            "facts": to_json_value(dict(self.facts)),
            "warnings": list(self.warnings),
            "settings": to_json_value(dict(self.settings)),
            "balance": None if self.balance is None else self.balance.to_dict(),
            "subgroups": None if self.subgroups is None else self.subgroups.to_dict(),
        }


# --- The warnings of an evaluation, in words

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
    return say("hardly anybody took at steps like that (more likely than not less than 5 %)")


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
                "The estimates here take that into account; the advantage of a single change in "
                "training does not."
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
    if unseen := unseen_words(log.columns):
        cautions.append(unseen)
    elif cut == "ipcw" and len(log.cut_episodes):
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
    if facts["reached"] and not facts["ess_differs"]:
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
    if 0 < facts["ess_differs"] < ENOUGH:
        cautions.append(
            say(
                "the effective sample size where it matters is {ess:.1f}, below {enough}: "
                "estimates rest on few {unit}, and those by weights alone have no interval.",
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
    if facts["refuted"]:
        cautions.append(
            sentences(
                say("the record cannot tell: no estimate has an interval."),
                *doubt_notes(log, held.doubt),
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
    if facts["unsupported"] > FEW_BLIND and facts["ess_differs"]:
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
