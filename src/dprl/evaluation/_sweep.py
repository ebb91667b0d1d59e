r"""Which n_min, which radius? Every setting fitted once, judged on the same held-out log.

A sweep fits the learner to `train` with each setting, evaluates each policy on `valid`, and shows
what each would change, what that seems to be worth, and on how many followers the estimate rests.
It chooses nothing by itself: `pick` takes a rule with a name and a sentence, which goes with the
policy.

The winner of a sweep is lucky. Its estimate on `valid` is the best of several noisy ones, and says
too much by about as much as they are noisy. So a picked policy remembers both logs, and
`dprl.evaluate` refuses them: judge it on episodes the sweep never saw.

What settings share is done once: evidence, neighbours within a radius, the behaviour of `valid`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core.checks import check_choice, check_delta, check_range
from dprl._core.table import Table, to_json_value
from dprl.certificate._gate import gate
from dprl.errors import ParameterError, PolicyError
from dprl.evaluation._behavior import Behavior
from dprl.evaluation._estimators import ESTIMATORS
from dprl.evaluation._evaluate import MODEL, evaluate
from dprl.evaluation._result import ENOUGH, Evaluation
from dprl.learners._variants import fitted, grid_of
from dprl.logs._overlap import TOO_MUCH, shared, sketch
from dprl.logs._parquet import Row, write_rows
from dprl.logs.log import Log, check_log

__all__ = ["RULES", "Sweep", "sweep"]

Progress = Callable[[str, float], None]


def _cautious(row: Row) -> tuple[float, ...] | None:
    good = row["difference_low"] > 0 and min(row["ess"], row["ess_differs"]) >= ENOUGH
    return (row["n_min"], -(row.get("radius") or 0.0)) if good else None


def _lower_end(row: Row) -> tuple[float, ...] | None:
    good = row["difference_low"] > 0 and min(row["ess"], row["ess_differs"]) >= ENOUGH
    return (row["difference_low"],) if good else None


def _bold(row: Row) -> tuple[float, ...] | None:
    good = row["difference_low"] > 0 and min(row["ess"], row["ess_differs"]) >= ENOUGH
    return (row["differs"],) if good else None


_PASSES = (
    f"whose interval of the difference lies above 0 and whose effective sample size where it "
    f"matters is at least {ENOUGH}"
)
RULES: Mapping[str, tuple[str, Callable[[Row], tuple[float, ...] | None]]] = {
    "cautious": (f"the largest n_min (then the smallest radius) {_PASSES}", _cautious),
    "lower-end": (f"the largest lower end of the interval, among settings {_PASSES}", _lower_end),
    "bold": (f"the most steps at which it differs from practice, among settings {_PASSES}", _bold),
}
"""Name → the rule in words, and the rank of a row: None where it does not pass, largest first."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """What each setting would change, and what that seems to be worth; made by `dprl.sweep`.

    Attributes:
        rows: One a setting: the setting, changes, confirmations, the shares of `valid`'s steps
            deferred, changed and where the policy differs from practice, who reached such a step
            and who followed, the effective sample size over all and where it matters, the
            estimate, its interval, and what of its value lies outside the range of returns (see
            `Evaluation.outside`); and, where asked for, how many suggestions are certified and the
            gain certified for them.
        policies: The policy of each setting.
        evaluations: Its evaluation on `valid`.
        estimator: Which estimate the rows hold.
        train: Digest of the log the policies were learned from.
        valid: Digest of the log they were judged on.
        sample: Of its groups, by which another log is known to share some (`dprl.logs._overlap`).
    """

    rows: tuple[Row, ...]
    policies: tuple[Any, ...]
    evaluations: tuple[Evaluation, ...]
    estimator: str
    train: str
    valid: str
    sample: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.rows)

    def table(self) -> Table:
        """One setting a row."""
        first = self.evaluations[0]
        b, level = first.behavior, first.settings["level"]
        marked = any(row["outside"] for row in self.rows)
        return Table(
            {name: [row[name] for row in self.rows] for name in self.rows[0]},
            f"{len(self)} settings, judged on {first.facts['episodes']:,} held-out episodes; usual "
            f"practice gets {b['value']:.3f} ({b['low']:.3f} to {b['high']:.3f})",
            note=f"difference to usual practice by {self.estimator}, {100 * level:g} % interval of "
            "each row alone. The best of several is lucky: judge what you pick on episodes this "
            "sweep never saw."
            + (" outside: what of the value no return in the log reaches." if marked else ""),
        )

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def to_json(self) -> str:
        """The rows, and which logs they come from, as a JSON object."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_dict(self) -> dict[str, Any]:
        """The rows, and which logs they come from, as plain data."""
        return {
            "estimator": self.estimator,
            "train": self.train,
            "valid": self.valid,
            "behavior": to_json_value(dict(self.evaluations[0].behavior)),
            "settings": to_json_value(list(self.rows)),
        }

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows as a dataframe of the library named: 'pandas', 'polars' or 'pyarrow'."""
        return self.table().to_frame(backend)

    # -- choosing ----------------------------------------------------------------------------

    def pick(self, rule: str | Callable[[Sequence[Row]], int | None]) -> Any:
        """The policy a stated rule chooses; it remembers the rule, and both logs.

        Args:
            rule: "cautious", "lower-end" or "bold" (`dprl.evaluation._sweep.RULES` says what they
                mean), or a function of the rows that gives the place of one of them, or None.
        """
        if isinstance(rule, str):
            if rule not in RULES:
                raise ParameterError(
                    f"there is no rule {rule!r}.",
                    do="Rules: " + "; ".join(f"{n}: {words}" for n, (words, _) in RULES.items()),
                )
            name, (words, rank) = rule, RULES[rule]
            ranked = [(r, -i) for i, row in enumerate(self.rows) if (r := rank(row)) is not None]
            chosen = -max(ranked)[1] if ranked else None
        else:
            name = getattr(rule, "__name__", "a function")
            words, chosen = (rule.__doc__ or "a rule of your own").strip(), rule(self.rows)
        if chosen is None:
            best = max(self.rows, key=lambda row: _number(row["difference_low"]))
            raise PolicyError(
                f"no setting passes the rule {name!r}: {words}.",
                f"{_words(best)} comes closest, {best['difference']:+.3f} "
                f"({best['difference_low']:+.3f} to {best['difference_high']:+.3f}), effective "
                f"sample size {best['ess_differs']:.1f}",
                "Keep to usual practice, or get more data.",
            )
        if not 0 <= chosen < len(self):
            raise ParameterError(f"the rule chose row {chosen} of {len(self)}.")
        policy: Any = self.policies[chosen]
        if not (is_dataclass(type(policy)) and hasattr(policy, "provenance")):
            raise PolicyError(
                f"a {type(policy).__name__} cannot remember which logs it was chosen by.",
                _words(self.rows[chosen]),
                "Let fit(log) return one of dprl's policies, such as dprl.CallablePolicy(model, "
                f"actions=log.actions); or take policies[{chosen}] of the sweep, and judge it on "
                "episodes the sweep never saw.",
            )
        origin = {
            "train": self.train, "valid": self.valid, "settings": len(self), "rule": name,
            "words": words, "estimator": self.estimator, "sample": dict(self.sample),
        }  # fmt: skip
        return replace(policy, provenance={**policy.provenance, "sweep": origin})

    # -- the picture -------------------------------------------------------------------------

    def plot(self, path: str | Path | None = None) -> Any:
        """The trade-off as a matplotlib figure: gain, how much is said, on how many it rests.

        Args:
            path: Where to write it, .png, .svg or .pdf; its rows go beside it as .parquet.
        """
        from dprl._core import plot

        with plot.look():
            figure = _figure(self)
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(list(self.rows)), Path(path).with_suffix(".parquet"))
        return figure


def sweep(
    learner: Any,
    train: Log,
    valid: Log,
    *,
    n_min: Sequence[float],
    radius: Sequence[float] | None = None,
    estimator: str | None = None,
    behavior: Behavior | Any | None = None,
    level: float = 0.95,
    draws: int = 2_000,
    seed: int = 0,
    clip: float = 0.01,
    values: bool = True,
    delta: float | None = None,
    value_range: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Fit a learner with every setting, and judge each policy on the same held-out log.

    Args:
        learner: `dprl.DPRLDiscrete`, `dprl.DPRLContinuous`, a rival with these settings, or one of
            your own: anything with `fit(log)` that returns a policy and is a dataclass with these
            settings, or has a method `with_settings(n_min=...)` that returns such a learner.
            Everything else about it stays.
        train: What the policies are learned from.
        valid: What they are judged on; no episode of `train`.
        n_min: Values to try.
        radius: Values to try, where states are features.
        estimator: Which estimate the rows hold; DR by default, WPDIS without `values`.
        behavior: Of `valid`, as in `dprl.evaluate`; estimated once by default.
        level: Of the intervals.
        draws: Of the bootstrap.
        seed: Of the bootstrap, the folds and the trees.
        clip: As in `dprl.evaluate`.
        values: Fit Q̂ for every setting, which DM, DR and WDR need.
        delta: Certify each policy on `train` too (`dprl.gate`), so that with probability 1 - delta
            every claim of the sweep holds: it is shared among the settings.
        value_range: Range of returns, which that needs.
        progress: Called with the stage's name and the share of it that is done.
    """
    estimator = estimator or ("DR" if values else "WPDIS")
    usable = [e for e in ESTIMATORS if values or e not in MODEL]
    why = "" if values else "DM, DR and WDR need values=True."
    check_choice("estimator", estimator, usable, do=why)
    settings = grid_of(learner, n_min, radius)
    if delta is not None:
        check_delta(delta)
        check_range(value_range)
    elif value_range is not None:
        raise ParameterError("value_range is for certificates.", do="Name a delta too.")
    check_log(train)
    check_log(valid)
    in_both = (
        1.0 if train.digest() == valid.digest() else shared(sketch(train), train.digest(), valid)
    )
    if in_both > TOO_MUCH:
        raise ParameterError(
            f"about {100 * in_both:.0f} % of train and valid is the same: every setting would "
            "flatter itself.",
            do="Split the log by whole groups: train, valid = log.split(0.5, seed=0), "
            "or dprl split.",
        )
    if not isinstance(behavior, Behavior):
        behavior = (
            Behavior.fit(valid, seed=seed) if behavior is None else Behavior.given(valid, behavior)
        )
    tell = progress or (lambda stage, share: None)
    rows, policies, evaluations = [], [], []
    tell("settings", 0.0)
    for setting, policy in zip(settings, fitted(learner, train, settings), strict=True):
        found = evaluate(
            policy, valid, gamma=_gamma(learner, policy), behavior=behavior, level=level,
            draws=draws, seed=seed, clip=clip, values=values,
        )  # fmt: skip
        row = {**setting, **_row(policy, found, estimator)}
        if delta is not None:
            proved = gate(
                policy, train, delta=delta / len(settings), value_range=value_range, seed=seed
            ).certificate
            row["certified"] = 0 if proved is None else len(proved.rows)
            row["certified_gain"] = 0.0 if proved is None else proved.gain or 0.0
        rows.append(row)
        policies.append(policy)
        evaluations.append(found)
        tell("settings", len(rows) / len(settings))
    return Sweep(
        tuple(rows), tuple(policies), tuple(evaluations), estimator, train.digest(), valid.digest(),
        sketch(valid),
    )  # fmt: skip


def _gamma(learner: Any, policy: Any) -> float | None:
    """The learner's discount; None where the policy has its own."""
    own: float | None = getattr(learner, "gamma", None)
    if own is None and "gamma" not in getattr(policy, "parameters", {}):
        raise ParameterError(
            f"neither {type(learner).__name__} nor its policy says how to discount.",
            do="Give the learner an attribute gamma, or its policy parameters={'gamma': 0.99}.",
        )
    return own


def _row(policy: Any, found: Evaluation, estimator: str) -> Row:
    facts, estimate = found.facts, found[estimator]
    summary = policy.summary() if hasattr(policy, "summary") else {}
    summary = summary if isinstance(summary, Mapping) else {}
    return {
        "changes": summary.get("changes"),
        "confirmations": summary.get("confirmations"),
        "deferred": 1 - facts["spoken"],
        "changed": facts["changed"],
        "differs": facts["differs"],
        "reached": facts["reached"],
        "followers": facts["followers"],
        "ess": facts["ess"],
        "ess_differs": facts["ess_differs"],
        "difference": estimate["difference"],
        "difference_low": estimate["difference_low"],
        "difference_high": estimate["difference_high"],
        "outside": found.outside[estimator],
    }


def _number(value: float) -> float:
    return -np.inf if np.isnan(value) else value


def _words(row: Row) -> str:
    radius = f", radius {row['radius']:g}" if "radius" in row else ""
    return f"n_min {row['n_min']:g}{radius}"


COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#777777")


def _figure(found: Sweep) -> Any:
    """Three panels over one setting, a line for each value of the other."""
    from dprl._core import plot

    radii = list(dict.fromkeys(row.get("radius") for row in found.rows))
    n_mins = list(dict.fromkeys(row["n_min"] for row in found.rows))
    x_name, lines_name = ("n_min", "radius") if len(n_mins) >= len(radii) else ("radius", "n_min")
    ticks = sorted({row[x_name] for row in found.rows})
    figure, axes = plot.grid(1, 3, width=3.6, height=3.2)
    lines = [None] if radii == [None] else (radii if lines_name == "radius" else n_mins)
    for k, value in enumerate(lines):
        rows = [r for r in found.rows if value is None or r[lines_name] == value]
        rows.sort(key=lambda r: r[x_name])
        x = np.array([ticks.index(r[x_name]) for r in rows])
        aside = x + 0.12 * (k - (len(lines) - 1) / 2)
        y, low, high = (
            np.array([r[key] for r in rows], float)
            for key in ("difference", "difference_low", "difference_high")
        )
        look = {"color": COLORS[k % len(COLORS)], "marker": plot.MARKERS[k % 8], "ms": 4, "lw": 1.2}
        label = None if value is None else f"{lines_name} {value:g}"
        axes[0, 0].errorbar(
            aside, y, yerr=np.abs([y - low, high - y]), capsize=2, label=label, **look
        )
        few = np.array([r["reached"] > 0 and r["ess_differs"] < ENOUGH for r in rows])
        hollow = {**look, "mfc": "white", "lw": 0, "zorder": 3}
        axes[0, 0].plot(aside[few], y[few], **hollow)
        axes[0, 1].plot(x, [100 * r["deferred"] for r in rows], **look)
        reached = np.array([r["reached"] > 0 for r in rows])
        axes[0, 2].plot(x[reached], [r["ess_differs"] for r in rows if r["reached"]], **look)
    for axis in axes[0]:
        axis.set_xticks(range(len(ticks)), [f"{t:g}" for t in ticks])
        axis.set_xlabel(x_name)
    plot.reference(axes[0, 0], 0.0, "usual practice")
    plot.reference(axes[0, 2], ENOUGH, f"{ENOUGH}: less is too few")
    axes[0, 0].set_title(f"difference to usual practice ({found.estimator})")
    axes[0, 0].set_ylabel(f"hollow: rests on fewer than {ENOUGH}")
    axes[0, 1].set_title("steps deferred, %")
    axes[0, 1].set_ylim(-3, 103)
    axes[0, 2].set_title("effective sample size where it matters")
    axes[0, 2].set_ylim(bottom=0)
    if len(lines) > 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    return figure
