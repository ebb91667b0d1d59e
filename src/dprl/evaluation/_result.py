"""Evaluation: what a held-out log says a policy is worth, how sure, and what to be wary of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dprl._core.table import Table, to_json_value

__all__ = ["ENOUGH", "TOLERANCE", "Evaluation"]

TOLERANCE = 0.01
"""Probability that may lie elsewhere before a distribution counts as another than practice's."""

ENOUGH = 30
"""Effective sample size where it matters below which no estimate should be leaned on."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Seven estimates of a policy's value beside the behaviour's; made by `dprl.evaluate`.

    Attributes:
        rows: estimator → difference (to usual practice), difference_low, difference_high, value,
            value_low, value_high; NaN where an estimate does not exist.
        behavior: What usual practice got: value, low, high.
        facts: Numbers beside the estimates: episodes, groups, steps; the shares of steps at which
            the policy speaks (`spoken`), suggests another action than the usual one (`changed`) or
            that one (`confirmed`), and at which its action probabilities differ from practice
            (`differs`, see `dprl.evaluation._matters`); who reaches a step at which it differs and
            who follows at all of them (`reached`, `followers`), the same for changes alone
            (`reached_change`, `followers_change`); the effective sample size over all, over those
            who reach a step at which it differs, and a change (`ess`, `ess_differs`,
            `ess_change`); whether it mixes actions (`mixed`); the range of returns (`lowest`,
            `highest`) and where it is from (`range`: "declared" or "log"); weights, clipping,
            calibration.
        warnings: What to be wary of, in words.
        settings: gamma, level, draws, seed, cut, clip, and the digests of policy and log.
    """

    HOW: ClassVar[Mapping[str, str]] = {
        "IS": "importance weights",
        "WIS": "importance weights, normalised",
        "PDIS": "weights decision by decision",
        "WPDIS": "weights decision by decision, normalised",
        "DM": "a model of values alone",
        "DR": "the model, corrected by weights",
        "WDR": "the model, corrected by normalised weights",
    }
    """The estimators in words."""

    rows: Mapping[str, Mapping[str, float]]
    behavior: Mapping[str, float]
    facts: Mapping[str, Any]
    warnings: tuple[str, ...]
    settings: Mapping[str, Any]

    def __getitem__(self, estimator: str) -> Mapping[str, float]:
        """One estimator's numbers: evaluation["DR"]["difference"]."""
        return self.rows[estimator]

    def table(self) -> Table:
        """The estimates, one a row; the difference to usual practice is the headline."""
        names = list(self.rows)
        first = self.rows[names[0]]
        columns: dict[str, Any] = {"estimator": names}
        columns |= {k: [self.rows[name][k] for name in names] for k in first}
        columns["behavior"] = [self.behavior["value"]] * len(names)
        columns["outside"] = [self.outside[name] for name in names]
        unit, f = self.unit, self.facts
        count = f"{f['episodes']:,} episodes" + (
            f" of {f['groups']:,} groups" if unit == "groups" else ""
        )
        b, marked = self.behavior, any(self.outside.values())
        return Table(
            columns,
            f"{count}, {f['steps']:,} steps; usual practice gets {b['value']:.3f} "
            f"({b['low']:.3f} to {b['high']:.3f})",
            note=f"_low, _high: {100 * self.settings['level']:g} % percentile intervals of "
            f"{self.settings['draws']:,} bootstraps over {unit} (DM has none: its error is the "
            f"model's); gamma {self.settings['gamma']:g}."
            + (f"\noutside: what of the value lies outside {self._range}." if marked else ""),
        )

    @property
    def outside(self) -> dict[str, str]:
        """Estimator → what of its value lies outside the range of returns.

        "value": the estimate itself; "interval": an end of its interval only; "": nothing.
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
        where = "as declared" if f["range"] == "declared" else "those of this log"
        return f"the returns there can be ({f['lowest']:.4g} to {f['highest']:.4g}, {where})"

    def impossible(self) -> list[str]:
        """What to say about estimates that lie outside the range of returns, if any does."""
        names = [name for name, what in self.outside.items() if what == "value"]
        if not names:
            return []
        told = ", ".join(f"{name} ({self.rows[name]['value']:.3g})" for name in names)
        return [
            f"outside {self._range}: {told}. No mean of returns lies there: the weights, or the "
            "model, do not fit this log. Do not read them as values."
        ]

    @property
    def unit(self) -> str:
        """What is resampled and counted as one: "episodes" or "groups"."""
        return str(self.facts["unit"])

    def lines(self) -> list[str]:
        """What stands beside the estimates, in sentences."""
        f, unit = self.facts, self.unit
        if not f["spoken"]:
            return []
        some = bool(f["reached_change"]) and f["differs"] > f["changed"]
        change = f" A change: {f['reached_change']:,} reach one, {f['followers_change']:,} of them "
        change += f"{self._followed}."
        size = f"; {f['ess_change']:.1f} of {f['reached_change']:,} that reach a change"
        return [
            self._speaks(),
            f"{f['reached']:,} of {f[unit]:,} {unit} reach a step at which it differs; "
            f"{f['followers']:,} of them {self._followed}."
            f"{change if some else ''}",
            f"Effective sample size: {f['ess']:.1f} of {f[unit]:,} {unit} overall, "
            f"{f['ess_differs']:.1f} of {f['reached']:,} where it matters (those that reach a step "
            f"at which it differs){size if some else ''}.",
            f"Weights: mean {f['mean_weight']:.3f} (1 is expected), largest "
            f"{f['largest_weight']:.3g}; {100 * f['clipped']:.1f} % of the probabilities behind "
            f"them were raised to {self.settings['clip']:g}.",
            f"Behaviour ({f['behavior']}): probability misplaced {f['misplaced']:.3f} a step, log "
            f"loss {f['log_loss']:.3f}; what the policy suggests was expected at "
            f"{100 * f['suggested_expected']:.1f} % and done at {100 * f['suggested_done']:.1f} % "
            "of the steps at which it speaks.",
        ]

    def _speaks(self) -> str:
        """How much it says, and how much of that is not what practice does already."""
        f = self.facts
        said = (
            f"It speaks at {100 * f['spoken']:.1f} % of steps: at {100 * f['changed']:.1f} % it "
            f"changes the usual action, at {100 * f['confirmed']:.1f} % it confirms it. Its action "
            f"probabilities differ from practice at {100 * f['differs']:.1f} % of steps"
        )
        if f["mixed"]:
            said += f" (by more than {TOLERANCE:g} in all)"
        if f["differs"] > f["changed"]:
            said += ": doing the usual action always is a change of what is done"
        return f"{said}."

    @property
    def _followed(self) -> str:
        """What a follower did at the steps that count."""
        if self.facts["mixed"]:
            return "did nothing there that the policy never does"
        return "took the suggestion at every one they reached"

    def __str__(self) -> str:
        said = [f"warning: {line}" for line in self.warnings]
        parts = ["\n".join(lines) for lines in (self.lines(), said) if lines]
        return "\n\n".join([str(self.table()), *parts])

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet("evaluation", evaluation=self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data; None where an estimate does not exist."""
        return {
            "estimates": to_json_value(self.table().to_dicts()),
            "behavior": to_json_value(dict(self.behavior)),
            "facts": to_json_value(dict(self.facts)),
            "warnings": list(self.warnings),
            "settings": to_json_value(dict(self.settings)),
        }

    def to_json(self) -> str:
        """Everything, as a JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_frame(self, backend: str = "pandas") -> Any:
        """The estimates as a dataframe of the library named: 'pandas', 'polars' or 'pyarrow'."""
        return self.table().to_frame(backend)
