"""Evaluation: the estimated value of a policy, how sure it is, and warnings in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dprl._core.plural import many
from dprl._core.results import Result
from dprl._core.table import Table, to_json_value
from dprl._core.words import joined, say, sentences, word

if TYPE_CHECKING:
    from dprl.evaluation._subgroups import Subgroups
    from dprl.evidence.balance import Balance

__all__ = ["BLIND", "ENOUGH", "FEW_BLIND", "TOLERANCE", "Evaluation"]

TOLERANCE = 0.01
"""Total variation distance above which a mixed policy counts as different from practice."""

FEW_BLIND, BLIND = 0.01, 0.05
"""Chance to meet an action that nobody took there above which a warning is given, and above which
no estimate has an interval."""
ENOUGH = 30
"""With a smaller effective sample size where it matters, no estimate should be relied on."""


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
            where it comes from (`range`: "declared" or "log"); weights, clipping, calibration.
        warnings: What a reader must be careful about, one sentence each.
        settings: gamma, level, draws, seed, cut, clip, and the digests of policy, log and the
            columns in `log.also`.
        balance: Whether those who took the suggestions differ from the others in columns that are
            not in the state; None where the log has no such columns.
        subgroups: The difference in every subgroup; None where none were asked for (`by=`).

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
        from dprl.evaluation.estimators import ESTIMATORS

        return {name: ESTIMATORS[name].words for name in self.rows if name in ESTIMATORS}

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
            f"{count}, {many(f['steps'], 'step')}; usual practice gets {b['value']:.3f} "
            f"({b['low']:.3f} to {b['high']:.3f})",
            note=f"_low, _high: {100 * self.settings['level']:g} % percentile intervals of "
            f"{self.settings['draws']:,} bootstraps over {unit} (DM has none: its error is the "
            f"model's); gamma {self.settings['gamma']:g}."
            + (f"\noutside: what of the value lies outside {self._range}." if marked else ""),
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
            >>> evaluation.outside["IS"], evaluation.outside["DR"]
            ('interval', '')
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

    def __str__(self) -> str:
        warned = [f"warning: {line}" for line in self.warnings]
        beside: list[str] = []
        if self.subgroups is not None:
            beside.append(str(self.subgroups.table()))
        if self.balance is not None:
            shown = [str(self.balance.table())] if self.balance.rows else []
            beside.append(joined("\n", [*shown, *self.balance.lines()]))
        parts = [joined("\n", self.lines()), *beside, joined("\n", warned)]
        return joined("\n\n", [str(self.table()), *(part for part in parts if part)])

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet("evaluation", evaluation=self)

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
