"""Which n_min, which radius, which risk? Every setting is fitted and judged on one held-out log.

A sweep fits the learner to `train` with each setting, evaluates each policy on `valid`, and shows
what each would change, what that seems to be worth, and on how many followers the estimate rests.
It chooses nothing by itself: `pick` takes a rule with a name and a description, which are stored in
the policy.

The winner of a sweep is lucky. Its estimate on `valid` is the best of several noisy ones, so it is
too high by about as much as they vary. So a picked policy remembers both logs, and `dprl.evaluate`
refuses them: judge it on episodes that the sweep never saw.

Work that settings share is done once: evidence, neighbours within a radius, and the behaviour of
`valid`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from dprl._core import plot
from dprl._core.checks import check_delta, check_range
from dprl._core.cluster import connect
from dprl._core.table import Result, Table, in_notebook, in_short, many, to_json_value
from dprl._core.words import either, worded
from dprl.certificate._gate import gate
from dprl.errors import DprlError, ParameterError, PolicyError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation.estimators import ESTIMATORS, check_estimator
from dprl.evaluation.result import BLIND, ENOUGH, FEW_BLIND, Evaluation, weights_off
from dprl.evidence.behavior import Behavior
from dprl.logs.encoding.encoder import encoded_like, labelled, with_indicators
from dprl.logs.log import Log, check_log
from dprl.logs.outcome import Outcome
from dprl.logs.overlap import TOO_MUCH, shared, sketch
from dprl.logs.reading.tables import Row, write_rows
from dprl.logs.source import Source, as_source
from dprl.policies.base import origin_of_training
from dprl.policies.held_out import rows_of

# --- The rows of a sweep, and the named rules by which it picks one


def _passes(row: Row) -> bool:
    enough = min(row["ess"], row["ess_differs"]) >= ENOUGH
    return bool(row["difference_low"] > 0 and enough and not row.get("weights_off"))


def _cautious(row: Row) -> tuple[float, ...] | None:
    fewest = -row.get("differs", 0.0)
    return (row.get("n_min", 0), -(row.get("radius") or 0.0), fewest) if _passes(row) else None


def _lower_end(row: Row) -> tuple[float, ...] | None:
    return (row["difference_low"],) if _passes(row) else None


def _bold(row: Row) -> tuple[float, ...] | None:
    return (row["differs"],) if _passes(row) else None


_PASSES = (
    f"whose interval of the difference lies above 0 and whose effective sample size where it "
    f"matters is at least {ENOUGH} (and, of IS, PDIS and WPDIS, whose weights have mean 1)"
)
RULES: Mapping[str, tuple[str, Callable[[Row], tuple[float, ...] | None]]] = {
    "cautious": (
        worded(
            "the largest {n_min} (then the smallest radius, then the fewest steps at which it "
            "differs from practice) {passes}",
            passes=_PASSES,
        ),
        _cautious,
    ),
    "lower-end": (f"the largest lower end of the interval, among settings {_PASSES}", _lower_end),
    "bold": (f"the most steps at which it differs from practice, among settings {_PASSES}", _bold),
}
"""Name → the rule in words, and a function that ranks a row.

The row with the largest rank is picked; the rank is None for a row that does not pass.
"""


COLUMNS = (
    "changes", "confirmations", "deferred", "changed", "differs", "reached", "followers", "ess",
    "ess_differs", "difference", "difference_low", "difference_high", "unsupported", "outside",
    "weights_off", "certified", "certified_gain",
)  # fmt: skip
"""The columns of a row that are no settings."""


def row_of(policy: Any, evaluation: Evaluation, estimator: str) -> Row:
    """The row of one setting: what its policy would do, and its evaluation by one estimator."""
    facts, estimate = evaluation.facts, evaluation[estimator]
    summary = policy.summary() if hasattr(policy, "summary") else {}
    off = ESTIMATORS[estimator].moves_with_weight and weights_off(facts)
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
        "unsupported": facts["unsupported"],
        "outside": evaluation.outside[estimator],
        "weights_off": f"mean {facts['mean_weight']:.2f}" if off else "",
    }


def closeness(row: Row) -> tuple[int, float]:
    """How close a row that no rule picks comes to passing: the larger, the closer.

    Where the interval lies above 0, only sample size (or the mean weight) is missing, and the
    largest sample is the closest. Then come rows with enough of it, then the others, each by
    the lower end; a row without an interval is the farthest.
    """
    low, size = row["difference_low"], min(row["ess"], row["ess_differs"])
    if np.isnan(low):
        return 0, 0.0
    return (3, size) if low > 0 else (2 if size >= ENOUGH else 1, low)


def setting_words(row: Row, names: Sequence[str]) -> str:
    """The setting of a row, in words: the values of the settings of these names."""
    return ", ".join(f"{name} {value_words(row[name])}" for name in names)


def value_words(value: Any) -> str:
    """One value of a setting, in words."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:g}" if number else str(value)


# --- The figure of a sweep: what each setting gains, how often it defers, on how many it rests

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#777777")


def figure_of(swept: Sweep) -> Any:
    """Three panels; the x axis is one setting, with one line for each combination of the others."""
    tried = {name: list(dict.fromkeys(row[name] for row in swept.rows)) for name in swept.varied}
    x_name = max(reversed(swept.varied), key=lambda name: len(tried[name]))
    others = [name for name in swept.varied if name != x_name]
    ticks = _in_order(tried[x_name])
    figure, axes = plot.grid(1, 3, width=3.6, height=3.2)
    lines = list(dict.fromkeys(tuple(row[name] for name in others) for row in swept.rows))
    for k, line in enumerate(lines):
        rows = [r for r in swept.rows if tuple(r[name] for name in others) == line]
        rows.sort(key=lambda r: ticks.index(r[x_name]))
        x = np.array([ticks.index(r[x_name]) for r in rows])
        aside = x + 0.12 * (k - (len(lines) - 1) / 2)
        y, low, high = (
            np.array([r[key] for r in rows], float)
            for key in ("difference", "difference_low", "difference_high")
        )
        look = {"color": COLORS[k % len(COLORS)], "marker": plot.MARKERS[k % 8], "ms": 4, "lw": 1.2}
        label = setting_words(rows[0], others) or None
        axes[0, 0].errorbar(
            aside, y, yerr=np.abs([y - low, high - y]), capsize=2, label=label, **look
        )
        few = np.array([r["reached"] > 0 and r["ess_differs"] < ENOUGH for r in rows])
        hollow = {**look, "mfc": "white", "lw": 0, "zorder": 3}
        axes[0, 0].plot(aside[few], y[few], **hollow)
        for place, height, row in zip(aside, y, rows, strict=True):
            if row["unsupported"] > FEW_BLIND:  # above BLIND there is no interval either
                axes[0, 0].annotate(
                    f"{100 * row['unsupported']:.0f} % unsupported", (place, height), (0, 6),
                    textcoords="offset points", ha="center", fontsize=7, color=look["color"],
                )  # fmt: skip
        axes[0, 1].plot(x, [100 * r["deferred"] for r in rows], **look)
        reached = np.array([r["reached"] > 0 for r in rows])
        axes[0, 2].plot(x[reached], [r["ess_differs"] for r in rows if r["reached"]], **look)
    for axis in axes[0]:
        axis.set_xticks(range(len(ticks)), [value_words(t) for t in ticks])
        axis.set_xlabel(x_name)
    plot.reference(axes[0, 0], 0.0, "usual practice")
    plot.reference(axes[0, 2], ENOUGH, f"{ENOUGH}: less is too few")
    axes[0, 0].set_title(f"difference to usual practice ({swept.estimator})")
    axes[0, 0].set_ylabel(f"hollow: rests on fewer than {ENOUGH}")
    axes[0, 1].set_title("steps deferred, %")
    axes[0, 1].set_ylim(-3, 103)
    axes[0, 2].set_title("effective sample size where it matters")
    axes[0, 2].set_ylim(bottom=0)
    if len(lines) > 1:
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _in_order(values: list[Any]) -> list[Any]:
    """Numbers from the smallest to the largest; words, and what is mixed, as they were given."""
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return sorted(values) if numbers else values


# --- A learner with other settings: one of dprl's, or one of your own
#
# A learner is anything with `fit(log)` that returns a policy. To try several settings, it must be
#
# * a dataclass with a field for each setting, which `dataclasses.replace` fills; or
# * an object with a method `with_settings(**settings)` that returns a learner with these settings,
#   and does not change the object itself.
#
# A learner that can share work between settings also has `fit_each(log, settings)`, which yields a
# policy for each of them. Where it cannot share them all, `SHARED` names those that it can;
# settings that differ in others are fitted apart.

NEEDS = (
    "A learner has fit(log), and is a dataclass with the fields {names}, or has a method "
    "with_settings({names}) that returns such a learner."
)


JUDGED_BY = ("gamma", "cut")
"""Settings that say what a policy is judged by: they must be the same for all."""


def grid_of(
    learner: Any,
    n_min: Sequence[float] | None,
    radius: Sequence[float] | None,
    params: Mapping[str, Sequence[Any]] | None = None,
) -> list[dict[str, Any]]:
    """Every setting, grouped by `params`, then by radius; the learner's checks are run on each."""
    if params is not None and not isinstance(params, Mapping):
        raise ParameterError(
            f"params must be a dict of names and lists; got {params!r}.",
            do='params={"risk": [0.01, 0.05]}',
        )
    grid: dict[str, Sequence[Any]] = dict(params or {})
    for name, given in (("radius", radius), ("n_min", n_min)):
        if given is not None and name in grid:
            raise ParameterError(f"{name} is given twice: by itself and in params.")
        values = grid.pop(name, None) if given is None else given
        if values is not None:
            grid[name] = values
    if not grid:
        raise ParameterError(
            "there is nothing to vary.",
            do=worded('Say {n_min}=[10, 20, 50], or params={{"risk": [...]}}.'),
        )
    for name in JUDGED_BY:
        if name in grid:
            raise ParameterError(
                f"{name} cannot be varied: it says what a policy is judged by, and all settings "
                "must be judged alike.",
                f"{name}: {grid[name]!r}",
                f"Make one sweep per {name}.",
            )
    _check_learner(learner, list(grid))
    for name, values in grid.items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise ParameterError(f"{name} must be a list of values to try; got {values!r}.")
        grid[name] = [value.item() if hasattr(value, "item") else value for value in values]
        for value in grid[name]:
            if not isinstance(value, int | float | str | None):
                raise ParameterError(
                    f"{name} can be varied over numbers, words, True, False and None; got a "
                    f"{type(value).__name__}.",
                    do=worded("Sweep each such setting alone: {dprl.sweep}(learner with it, ...)."),
                )
        if len(set(grid[name])) != len(grid[name]):
            raise ParameterError(f"{name} lists a value twice: {list(grid[name])!r}.")
    together = getattr(learner, "SHARED", ())
    grid = dict(sorted(grid.items(), key=lambda item: item[0] in together))
    settings = [dict(zip(grid, place, strict=True)) for place in itertools.product(*grid.values())]
    for setting in settings:
        variant(learner, setting)
    return settings


def _check_learner(learner: Any, names: Sequence[str]) -> None:
    """Refuse an object that cannot be fitted, or that does not have these settings."""
    if isinstance(learner, type):
        raise ParameterError(
            f"{learner.__name__} is a class, not a learner.",
            do=f"Make one and pass that: {learner.__name__}(...).",
        )
    kind, needs = type(learner).__name__, NEEDS.format(names=", ".join(names))
    if not callable(getattr(learner, "fit", None)):
        raise ParameterError(f"{kind} has no {names[-1]} to vary: it is no learner.", do=needs)
    if hasattr(learner, "with_settings"):
        return
    field_names = {field.name for field in fields(learner)} if is_dataclass(learner) else set()
    for name in names:
        if name not in field_names:
            has = f"Its settings are {', '.join(sorted(field_names))}." if field_names else needs
            raise ParameterError(f"{kind} has no {name} to vary.", do=has)


def variant(learner: Any, setting: Mapping[str, Any]) -> Any:
    """The learner with these settings; everything else about it stays the same."""
    try:
        if hasattr(learner, "with_settings"):
            learner_set = learner.with_settings(**setting)
        else:
            learner_set = replace(learner, **setting)
    except DprlError:
        raise
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{type(learner).__name__} cannot be given {_words(setting)}.",
            f"{type(error).__name__}: {error}",
            NEEDS.format(names=", ".join(setting)),
        ) from error
    if not callable(getattr(learner_set, "fit", None)):
        raise ParameterError(
            f"with_settings of {type(learner).__name__} returned a {type(learner_set).__name__}, "
            "which has no fit.",
            _words(setting),
            "It must return a learner: an object with fit(log).",
        )
    return learner_set


def fitted(learner: Any, train: Log, settings: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    """The policy of every setting, from shared evidence if the learner can share it."""
    if hasattr(learner, "fit_each"):
        names = getattr(learner, "SHARED", None)
        parts = [_divided(setting, names) for setting in settings]
        for apart, some in itertools.groupby(parts, key=lambda part: part[0]):
            learner_set = variant(learner, apart) if apart else learner
            yield from learner_set.fit_each(train, [together for _, together in some])
    else:
        for setting in settings:
            yield variant(learner, setting).fit(train)


def _divided(
    setting: Mapping[str, Any], names: Sequence[str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that must be fitted apart, and those of these names; all, if there are none."""
    together = {k: v for k, v in setting.items() if names is None or k in names}
    return {k: v for k, v in setting.items() if k not in together}, together


def _words(setting: Mapping[str, Any]) -> str:
    """The settings as text, for messages."""
    return ", ".join(f"{name} = {value!r}" for name, value in setting.items())


# --- Which n_min, which radius, which risk? Every setting is fitted and judged on one held-out
# log

Progress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class Sweep(Result):
    """What each setting would change, and what that seems to be worth; made by `dprl.sweep`.

    Attributes:
        rows: One row per setting: what was varied (n_min, radius, any other), changes and
            confirmations (numbers of states), the shares of `valid`'s steps that are deferred,
            changed, and at which the policy differs from practice (`differs`), how many groups
            reached such a step and how many followed, the effective sample size over all and where
            it matters, the estimated difference with its interval in units of returns, the chance
            that whoever follows the policy meets an action that nobody took there (`unsupported`;
            above .05 there is no interval), what lies outside the range of returns (see
            `Evaluation.outside`), and, of IS, PDIS and WPDIS, a mean weight that is not 1
            (`weights_off`; '' where it is, give or take chance). With `delta`, also the
            number of certified suggestions and their certified gain.
        policies: The policy of each setting.
        evaluations: The evaluation of each policy on `valid`.
        estimator: The estimator that the rows show.
        train: Digest of the log that the policies were learned from.
        valid: Digest of the log that they were judged on.
        sample: A sample of the groups of `valid`, by which `dprl.evaluate` recognises another log
            that shares groups with it (`dprl.logs.overlap`).
        varied: The names of the settings that were varied.

    Example:
        >>> import dprl
        >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> swept = dprl.sweep(learner, train, valid, n_min=[10, 40], draws=100)
        >>> len(swept), swept.estimator
        (2, 'WDR')
    """

    rows: tuple[Row, ...]
    policies: tuple[Any, ...]
    evaluations: tuple[Evaluation, ...]
    estimator: str
    train: str
    valid: str
    sample: Mapping[str, Any]
    varied: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def outcome(self) -> Outcome:
        """What the returns are; differences are in its direction."""
        return self.evaluations[0].outcome

    def table(self) -> Table:
        """The rows as a table, one row per setting.

        Returns:
            A table; its columns are the keys of `rows`.

        Example:
            >>> import dprl
            >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> swept = dprl.sweep(learner, train, valid, n_min=[10, 40], draws=100)
            >>> swept.table()["n_min"], swept.table()["changes"]
            ([10, 40], [5, 2])
        """
        first = self.evaluations[0]
        b, level = first.behavior, first.settings["level"]
        marked = any(row["outside"] for row in self.rows)
        blind = any(row["unsupported"] > BLIND for row in self.rows)
        return Table(
            {name: [row[name] for row in self.rows] for name in self.rows[0]},
            f"{many(self, 'setting')}, judged on "
            f"{many(first.facts['episodes'], 'held-out episode')}; usual "
            f"practice gets {b['value']:.3f} ({b['low']:.3f} to {b['high']:.3f})",
            note=f"difference to usual practice by {self.estimator}, {100 * level:g} % interval of "
            "each row alone. The best of several is lucky: judge what you pick on episodes this "
            "sweep never saw."
            + (" outside: what of the value no return in the log reaches." if marked else "")
            + (
                f" weights_off: weights should have mean 1, and {self.estimator} is off by as much."
                if any(row["weights_off"] for row in self.rows)
                else ""
            )
            + (
                " unsupported: the chance to meet an action that nobody took there; above "
                f"{100 * BLIND:g} % there is no interval."
                if blind
                else ""
            ),
        )

    def _repr_html_(self) -> str:
        figure = plot.embedded(self.plot, "The settings: difference, share deferred, sample.")
        return in_notebook(self.brief()[0], self.brief()[1:]) + (
            figure or self.table()._repr_html_()
        )

    def brief(self) -> list[str]:
        """What is printed of it: what the cautious rule picks, and the settings that come next.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> swept = dprl.sweep(learner, train, test, n_min=[20, 50], draws=100)
            >>> len(swept.brief()) <= 8
            True
        """
        computed = [self.outcome.facts(row) for row in self.rows]
        ranked = [(rank, -i) for i, row in enumerate(computed) if (rank := _cautious(row))]
        order = sorted(range(len(self)), key=lambda i: closeness(computed[i]), reverse=True)
        first = [-max(ranked)[1]] if ranked else []
        order = [*first, *(i for i in order if i not in first)]
        said = "'cautious' picks" if ranked else "No setting is surely better; closest is"
        lines = []
        for place, i in enumerate(order[:4]):
            row = self.rows[i]
            ends = (row[f"difference{end}"] for end in ("", "_low", "_high"))
            _, words = self.outcome.apart(*ends)
            head = f"{said} " if place == 0 else "  "
            lines.append(
                f"{head}{setting_words(row, self.varied)}: {words}; differs at "
                f"{100 * row['differs']:.0f} % of steps."
            )
        rest = len(order) - 4
        return in_short([
            *lines, f"  and {many(rest, 'more setting')}" if rest > 0 else "",
            f"{many(self, 'setting')}, by {self.estimator}. The best of several is lucky: judge "
            "what you pick on episodes this sweep never saw.",
        ], "sweep")  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The rows, and the digests of the logs, as values that JSON can carry.

        Returns:
            The keys estimator, train, valid, behavior and settings (one dict per setting).

        Example:
            >>> import dprl
            >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> swept = dprl.sweep(learner, train, valid, n_min=[10, 40], draws=100)
            >>> list(swept.to_dict())
            ['estimator', 'train', 'valid', 'behavior', 'settings']
        """
        return {
            "estimator": self.estimator,
            "train": self.train,
            "valid": self.valid,
            "behavior": to_json_value(dict(self.evaluations[0].behavior)),
            "settings": to_json_value(list(self.rows)),
        }

    # -- choosing ----------------------------------------------------------------------------

    def pick(self, rule: str | Callable[[Sequence[Row]], int | None]) -> Any:
        """The policy that a stated rule chooses; the policy remembers the rule and both logs.

        Settings pass the named rules if the interval of their difference lies above 0 and their
        effective sample size where it matters is at least 30.

        Args:
            rule: "cautious" (among settings that pass: the largest n_min, then the smallest
                radius, then the fewest steps at which it differs from practice), "lower-end" (the
                largest lower end of the interval), "bold" (the most steps at which it differs from
                practice); or a function that takes the rows and returns the place of one of them,
                or None.

        Returns:
            The policy of the chosen setting.

        Raises:
            ParameterError: There is no such rule, or a function chose a row that does not exist.
            PolicyError: No setting passes the rule, or the policy cannot store where it came from.

        Example:
            >>> import dprl
            >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> swept = dprl.sweep(learner, train, valid, n_min=[10, 40], draws=100)
            >>> swept.pick("cautious").parameters["n_min"]
            40
        """
        computed = [self.outcome.facts(row) for row in self.rows]  # larger is better
        if isinstance(rule, str):
            if rule not in RULES:
                raise ParameterError(
                    f"there is no rule {rule!r}.",
                    do="Rules: " + "; ".join(f"{n}: {words}" for n, (words, _) in RULES.items()),
                )
            name, (words, rank) = rule, RULES[rule]
            ranked = [(r, -i) for i, row in enumerate(computed) if (r := rank(row)) is not None]
            chosen = -max(ranked)[1] if ranked else None
        else:
            name = getattr(rule, "__name__", "a function")
            words, chosen = (rule.__doc__ or "a rule of your own").strip(), rule(self.rows)
        if chosen is None:
            best = self.rows[max(range(len(self)), key=lambda i: closeness(computed[i]))]
            raise PolicyError(
                f"no setting passes the rule {name!r}: {words}.",
                f"{setting_words(best, self.varied)} comes closest, {best['difference']:+.3f} "
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
                setting_words(self.rows[chosen], self.varied),
                worded(
                    "Let fit(log) return one of dprl's policies, such as "
                    "dprl.CallablePolicy(model, {choice}); or take policies[{chosen}] of the "
                    "sweep, and judge it on episodes the sweep never saw.",
                    choice=either("actions=log.actions", "--actions log.actions"),
                    chosen=chosen,
                ),
            )
        origin = {
            "train": self.train, "valid": self.valid, "settings": len(self), "rule": name,
            "words": words, "estimator": self.estimator, "sample": dict(self.sample),
        }  # fmt: skip
        return replace(policy, provenance={**policy.provenance, "sweep": origin})

    # -- the picture -------------------------------------------------------------------------

    def plot(self, path: str | Path | None = None) -> Any:
        """The settings as a matplotlib figure with three panels (needs the extra `plot`).

        The panels: the difference to usual practice, the share of steps deferred, and the effective
        sample size where it matters. Where more than 1 % of those who follow a policy would meet an
        action that nobody took there, the share stands at its difference.

        Args:
            path: File to write the figure to, .png, .svg or .pdf; the rows are written beside it as
                .parquet. Default None: nothing is written.

        Returns:
            The figure.

        Raises:
            PackageError: matplotlib is not installed.

        Example:
            >>> import dprl
            >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
            >>> swept = dprl.sweep(learner, train, valid, n_min=[10, 40], draws=100)
            >>> len(swept.plot().axes)
            3
        """
        with plot.look():
            figure = figure_of(self)
            if path is not None:
                plot.save(figure, Path(path))
                write_rows(to_json_value(list(self.rows)), Path(path).with_suffix(".parquet"))
        return figure


def sweep(
    learner: Any,
    train: Any,
    valid: Log | Source,
    *,
    n_min: Sequence[float] | None = None,
    radius: Sequence[float] | None = None,
    params: Mapping[str, Sequence[Any]] | None = None,
    estimator: str | None = None,
    behavior: Behavior | Any | None = None,
    level: float = 0.95,
    draws: int = 2_000,
    seed: int = 0,
    clip: float = 0.01,
    values: bool = True,
    delta: float | None = None,
    value_range: tuple[float, float] | None = None,
    cluster: Any = None,
    progress: Progress | None = None,
) -> Sweep:
    """Fit a learner with every setting, and judge each policy on the same held-out log.

    Args:
        learner: `dprl.DPRLDiscrete`, `dprl.DPRLContinuous`, a rival with these settings, or one of
            your own: anything with `fit(log)` that returns a policy and is a dataclass with these
            settings, or has a method `with_settings(n_min=...)` that returns such a learner.
            Its other settings stay as they are.
        train: The log that the policies are learned from, in memory or, for learners that take one,
            in parts.
        valid: The log that they are judged on, in memory or in parts; it must share no group with
            `train`.
        n_min: Values of n_min to try. Default None: the learner's own.
        radius: Values of the radius to try, for features. Default None: the learner's own.
        params: Any other settings of the learner, and the values of each to try: numbers, words,
            True, False or None, such as {"risk": [0.01, 0.05], "evidence": ["model", "returns"]}.
            All combinations are tried. gamma and cut cannot be varied: all policies are judged by
            the same. Default None: no others.
        estimator: The estimator that the rows show. Default None: "WDR" ("DR" where episodes have
            one step), or "WIS" where `values` is False.
        behavior: The behaviour of `valid`, as in `dprl.evaluate`. Default None: as recorded in the
            log's `propensity`; without it, estimated once.
        level: Coverage of the intervals, in (0, 1). Default 0.95.
        draws: Number of bootstrap draws, a whole number from 1. Default 2,000.
        seed: Seed of the bootstrap, the folds and the models. Default 0.
        clip: Least value of an estimated probability, as in `dprl.evaluate`. Default 0.01.
        values: Whether to fit Q̂ for every setting, which DM, DR and WDR need. Default True.
        delta: Certify each policy on `train` as well (`dprl.gate`); with probability 1 - delta all
            certificates of the sweep hold, since delta is divided among the settings. Default None:
            no certificates.
        value_range: (lowest, highest) return there can be; required with `delta`. Default None.
        cluster: Where each setting is fitted and judged: a `distributed.Client`, the address of a
            Dask scheduler, "local" or "local:2"; the numbers are the same. Default None: here.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The rows, policies and evaluations of all settings.

    Raises:
        ParameterError: An argument is outside its range, the learner lacks a setting, or `train`
            and `valid` have too much in common.
        ClusterError: The cluster cannot do the work.

    Example:
        >>> import dprl
        >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> swept = sweep(learner, train, valid, n_min=[10, 40], draws=100)
        >>> [round(row["difference"], 2) for row in swept.rows]
        [0.08, 0.08]
    """
    valid = rows_of(valid)
    estimator = check_estimator(estimator, values, valid, interval=False)
    settings = grid_of(learner, n_min, radius, params)
    _refuse_columns(settings[0])
    if delta is not None:
        check_delta(delta)
        check_range(value_range)
    elif value_range is not None:
        raise ParameterError(
            worded("{value_range} is for certificates."),
            do="Name a delta too.",
        )
    if not isinstance(train, Log):
        train = as_source(train)
    else:
        check_log(train)
        train = (labelled if getattr(learner, "radius", None) is None else with_indicators)(train)
    columns = (train if isinstance(train, Log) else train.facts).columns
    valid = encoded_like(valid, columns)  # once, as every policy will take it
    in_both = (
        1.0 if train.digest() == valid.digest() else shared(sketch(train), train.digest(), valid)
    )
    if in_both > TOO_MUCH:
        raise ParameterError(
            f"about {100 * in_both:.0f} % of train and valid is the same: every setting would "
            "flatter itself.",
            do=worded(
                "Split the log by whole groups: {command}.",
                command=either("train, valid = log.split(0.5, seed=0)", "dprl split"),
            ),
        )
    if behavior is None and valid.propensity is None:  # else as recorded: `evaluate` knows how
        behavior = Behavior.fit(valid, seed=seed)
    elif behavior is not None and not isinstance(behavior, Behavior):
        behavior = Behavior.given(valid, behavior)
    tell = progress or (lambda stage, share: None)
    options = {"behavior": behavior, "level": level, "draws": draws, "seed": seed, "clip": clip}
    claim = None
    if delta is not None:
        claim = {"delta": delta / len(settings), "value_range": value_range, "seed": seed}
    judge = Judge(estimator, {**options, "values": values}, claim)
    tell("settings", 0.0)
    judged: dict[int, Judged] = {}
    numbered: Iterable[tuple[int, Judged]]
    with contextlib.ExitStack() as stack:
        if cluster is None:
            policies = fitted(learner, train, settings)
            numbered = enumerate(
                judge(learner, setting, policy, train, valid)
                for setting, policy in zip(settings, policies, strict=True)
            )
        else:
            there = stack.enter_context(connect(cluster))
            numbered = there.map(fit_and_judge, settings, (judge, learner, train, valid))
        for i, one in numbered:
            judged[i] = one
            tell("settings", len(judged) / len(settings))
    rows, made, evaluations = zip(*(judged[i] for i in range(len(settings))), strict=True)
    return Sweep(
        rows, made, evaluations, estimator, train.digest(), valid.digest(), sketch(valid),
        tuple(settings[0]),
    )  # fmt: skip


def _refuse_columns(setting: Mapping[str, Any]) -> None:
    """Refuse a setting that is called as a column of the rows is."""
    for name in setting:
        if name in COLUMNS:
            raise ParameterError(
                f"a setting cannot be called {name!r}: the table has a column of that name.",
                do="Call it otherwise in your learner.",
            )


# -- one setting ----------------------------------------------------------------------------------


Judged: TypeAlias = tuple[Row, Any, Evaluation]
"""The row of a setting, its policy and its evaluation."""


@dataclass(frozen=True)
class Judge:
    """How the policy of a setting is judged, here or on a worker of a cluster.

    Attributes:
        estimator: The estimator that the rows show.
        options: Arguments of `evaluate`.
        claim: Arguments of `gate`, with the delta of one setting; None: no certificates.
    """

    estimator: str
    options: Mapping[str, Any]
    claim: Mapping[str, Any] | None

    def __call__(
        self, learner: Any, setting: Mapping[str, Any], policy: Any, train: Any, valid: Log
    ) -> Judged:
        """The row of a setting, its policy and its evaluation."""
        policy = _trained_on(policy, train)
        evaluation = evaluate(policy, valid, gamma=_gamma(learner, policy), **self.options)
        row = {**setting, **row_of(policy, evaluation, self.estimator)}
        if self.claim is not None:
            # who differs in what is for the one that is picked
            bare = replace(train, also=None) if isinstance(train, Log) else train
            proved = gate(policy, bare, **self.claim).certificate
            row["certified"] = 0 if proved is None else len(proved.rows)
            row["certified_gain"] = 0.0 if proved is None else proved.gain or 0.0
        return row, policy, evaluation


def fit_and_judge(
    setting: Mapping[str, Any], judge: Judge, learner: Any, train: Any, valid: Log
) -> Judged:
    """A setting fitted and judged; called on a worker of a cluster."""
    row, policy, evaluation = judge(
        learner, setting, next(iter(fitted(learner, train, [setting]))), train, valid
    )
    bare = replace(policy) if is_dataclass(policy) and not isinstance(policy, type) else policy
    return row, bare, evaluation  # bare: without engines, which are large and soon built again


def _trained_on(policy: Any, train: Any) -> Any:
    """The policy with a record of `train`, where it can keep one and has none of its own."""
    if not is_dataclass(policy) or isinstance(policy, type) or not isinstance(train, Log):
        return policy
    origin = getattr(policy, "provenance", None)
    if not isinstance(origin, Mapping) or "log" in origin:
        return policy
    return replace(policy, provenance={**origin, **origin_of_training(train)})


def _gamma(learner: Any, policy: Any) -> float | None:
    """The learner's discount; None where the policy has its own."""
    own: float | None = getattr(learner, "gamma", None)
    if own is None and "gamma" not in getattr(policy, "parameters", {}):
        raise ParameterError(
            f"neither {type(learner).__name__} nor its policy says how to discount.",
            do="Give the learner an attribute gamma, or its policy parameters={'gamma': 0.99}.",
        )
    return own
