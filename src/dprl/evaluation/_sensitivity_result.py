"""Sensitivity: bounds on a policy's worth by the strength of an unrecorded cause, and a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dprl._core.confounding import gamma_words
from dprl._core.plural import many
from dprl._core.results import Result
from dprl._core.table import Table, to_json_value
from dprl._core.words import api, worded
from dprl.evaluation._yardstick import CHANCE, SHARE
from dprl.logs._parquet import write_rows

__all__ = ["Sensitivity"]


@dataclass(frozen=True, eq=False)
class Sensitivity(Result):
    """What is left of a policy's gain at each strength Γ of an unrecorded cause.

    From `dprl.sensitivity`.

    Attributes:
        rows: One row per Γ: gamma; difference_min and difference_max, the bounds on the difference
            to usual practice as estimated; difference_low and difference_high, the same with
            sampling error (the lower end of the lower bound, the upper end of the upper bound);
            value_min, value_max, value_low and value_high of the policy's value; and vacuous, true
            where the bounds say next to nothing. In units of returns.
        gamma_star: Γ* of the gain with sampling error: up to this Γ difference_low is above 0. From
            1 to 20, which means "or more"; None where there is no gain even at Γ = 1.
        gamma_point: Γ* of the gain as estimated: up to this Γ difference_min is above 0.
        yardstick: What hiding each recorded column would be, one dict each: column, where ("state",
            "table" for one that is not in the state, "chance" for random numbers) and gamma.
        facts: episodes, groups, the share of steps at which the policy differs from practice
            (differs), episodes that reach one (reached), the most such steps in an episode
            (decisions), the estimate at Γ = 1 (estimator: "WIS", or "means" where no episode has
            more than one such step), whether the bounds are the sharp ones of the sample (sharp:
            labelled states, one decision), the effective number of those who did as the policy says
            (ess), the share of those who did otherwise in a state in which nobody took the
            suggestion (untaken), the value of usual practice (usual), and the range of returns
            (lowest, highest, range).
        warnings: What a reader must be careful about, one sentence each.
        settings: discount, level, draws, seed, cut, clip, and the digest of the log.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> result = dprl.sensitivity(policy, test, gamma=[1, 2], draws=100)
        >>> len(result.rows)
        2
    """

    HEAD: ClassVar[str] = "Unrecorded causes"

    rows: tuple[Mapping[str, Any], ...]
    gamma_star: float | None
    gamma_point: float | None
    yardstick: tuple[Mapping[str, Any], ...]
    facts: Mapping[str, Any]
    warnings: tuple[str, ...]
    settings: Mapping[str, Any]

    def table(self) -> Table:
        """The bounds, one row per Γ.

        Returns:
            A table with the keys of `rows` as columns.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> dprl.sensitivity(policy, test, gamma=[1, 2], draws=100).table()["gamma"]
            [1.0, 2.0]
        """
        f, s = self.facts, self.settings
        kind = "one decision" if f["decisions"] <= 1 else "several decisions"
        kind = f"{'sharp ' * f['sharp']}bounds for {kind}"
        return Table(
            {name: [row[name] for row in self.rows] for name in self.rows[0]},
            caption=f"{many(f['episodes'], 'episode')}; usual practice gets {f['usual']:.3f}; "
            f"{kind}",
            note="gamma (Γ): the factor by which an unrecorded cause may move the odds of an "
            "action, the state being equal.\n_min, _max: bounds as estimated. _low, _high: with "
            f"sampling error, {100 * s['level']:g} % percentiles of {s['draws']:,} bootstraps over "
            f"groups\n(probabilities are those of: {f['behavior']}). {self._start()}",
        )

    def _start(self) -> str:
        """Which estimate the bounds begin with, in a sentence."""
        if self.facts["estimator"] == "WIS":
            which = worded("the estimate WIS of {command}", command=api("dprl.evaluate"))
        else:
            which = "the mean of those who took the suggestion, weighted to stand for all"
        return f"At Γ = 1 they are {which}; it uses\nno model of values, so it may differ from DR."

    def lines(self) -> list[str]:
        """What the bounds say, in sentences.

        Returns:
            The sentences: Γ* of the gain, vacuous bounds, and the yardstick.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> result = dprl.sensitivity(policy, test, gamma=[1, 2], draws=100)
            >>> result.lines()[0].startswith("The gain could be none")
            True
        """
        return [*_star_lines(self), *_vacuous_lines(self), *_yardstick_lines(self)]

    def to_dict(self) -> dict[str, Any]:
        """All attributes as values that JSON can carry.

        Returns:
            Attribute name → value, and the sentences as "lines".

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> result = dprl.sensitivity(policy, test, gamma=[1, 2], draws=100)
            >>> sorted(result.to_dict())[:3]
            ['facts', 'gamma_point', 'gamma_star']
        """
        names = ("rows", "gamma_star", "gamma_point", "yardstick", "facts", "warnings", "settings")
        result: dict[str, Any] = to_json_value({name: getattr(self, name) for name in names})
        return {**result, "lines": self.lines()}

    def plot(self, path: str | Path | None = None) -> Any:
        """The bounds as a matplotlib figure (needs the extra `plot`).

        The left panel has the difference to usual practice by Γ: the bounds, and around them the
        sampling error. The right panel has the yardstick, where there is one.

        Args:
            path: File to write the figure to, .png, .svg or .pdf; the rows are written beside it as
                .parquet. Default None: nothing is written.

        Returns:
            The figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
            >>> len(dprl.sensitivity(policy, test, gamma=[1, 2], draws=100).plot().axes)
            2
        """
        from dprl._core import plot

        with plot.look():
            figure = _figure(self)
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(list(self.rows)), Path(path).with_suffix(".parquet"))
        return figure

    def __repr__(self) -> str:
        star = "none" if self.gamma_star is None else gamma_words(self.gamma_star)
        return f"<Sensitivity: {len(self.rows)} values of Γ, Γ* {star}>"


def _star_lines(result: Sensitivity) -> list[str]:
    """Γ* of the gain, in a sentence."""
    if not result.facts["reached"]:
        return ["The policy differs from practice nowhere in this log: there is nothing to bound."]
    if result.gamma_point is None:
        return ["There is no gain even without an unrecorded cause (Γ = 1)."]
    point = gamma_words(result.gamma_point)
    level = f"{100 * result.settings['level']:g} %"
    if result.gamma_star is None:
        return [
            "The gain is not sure even without an unrecorded cause: its interval holds 0. As "
            f"estimated, it could be none from Γ = {point} on."
        ]
    return [
        "The gain could be none if an unrecorded cause moved the odds of a suggestion, the state "
        f"being equal, by a larger factor than Γ* = {gamma_words(result.gamma_star)} (with "
        f"sampling error, {level}), or than {point} as estimated."
    ]


def _vacuous_lines(result: Sensitivity) -> list[str]:
    strengths = [f"{row['gamma']:g}" for row in result.rows if row["vacuous"]]
    if not strengths:
        return []
    return [f"VACUOUS at Γ = {', '.join(strengths)}: the bounds there say next to nothing."]


def _yardstick_lines(result: Sensitivity) -> list[str]:
    """What hiding the strongest columns would be, in sentences."""
    chance = next((row for row in result.yardstick if row["column"] == CHANCE), None)
    columns = [row for row in result.yardstick if row is not chance]
    lines = []
    for row in columns[:3]:
        how = "hiding" if row["where"] == "state" else "not having (it is not in the state)"
        lines.append(f"Yardstick: {how} {row['column']} alone would be Γ = {row['gamma']:.2f}.")
    if columns:
        lines.append(
            f"(At {100 * SHARE:.0f} % of the decisions it moves the odds of the suggestion by no "
            f"more. A column of {CHANCE} gives {chance['gamma']:.2f}.)"
            if chance is not None
            else ""
        )
    return [line for line in lines if line]


def _figure(result: Sensitivity) -> Any:
    from dprl._core import plot

    columns = result.yardstick[:12]
    figure, axes = plot.grid(1, 2, width=4.2, height=3.2)
    axis, right = axes[0]
    x = np.array([row["gamma"] for row in result.rows])
    low, bottom, top, high = (
        np.array([row[f"difference_{name}"] for row in result.rows], float)
        for name in ("low", "min", "max", "high")
    )
    axis.fill_between(x, low, high, color="#0072b2", alpha=0.12, linewidth=0)
    axis.plot(x, bottom, color="#0072b2", marker="o", ms=4, lw=1.4, label="bounds, as estimated")
    axis.plot(x, top, color="#0072b2", marker="o", ms=4, lw=1.4)
    axis.plot(x, low, color="#0072b2", lw=0.8, ls="--", label="with sampling error")
    axis.plot(x, high, color="#0072b2", lw=0.8, ls="--")
    plot.reference(axis, 0.0, "usual practice")
    axis.set_xlabel("Γ, strength of an unrecorded cause")
    axis.set_title("difference to usual practice")
    axis.legend(fontsize=7.5)
    names = [str(row["column"]) for row in columns][::-1]
    gammas = [row["gamma"] for row in columns][::-1]
    right.barh(range(len(names)), [g - 1 for g in gammas], left=1, color="#e69f00", height=0.6)
    right.set_yticks(range(len(names)), names)
    right.set_title("what hiding a column would be, as Γ")
    right.set_xlim(left=1)
    return figure
