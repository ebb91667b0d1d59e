r"""Which n_min, which radius, which risk? Every setting is fitted and judged on one held-out log.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from dprl._core.checks import check_delta, check_range
from dprl._core.cluster_start import connect
from dprl._core.plural import many
from dprl._core.results import Result
from dprl._core.table import Table, to_json_value
from dprl._core.words import argument, either, worded
from dprl.certificate._gate import gate
from dprl.errors import ParameterError, PolicyError
from dprl.evaluation._evaluate import evaluate
from dprl.evaluation._result import BLIND, Evaluation
from dprl.evaluation._sweep_rules import COLUMNS, RULES, closeness, row_of, setting_words
from dprl.evaluation.estimators import check_estimator
from dprl.evidence.behavior import Behavior
from dprl.learners._variants import fitted, grid_of
from dprl.logs._encoding import encoded_like, labelled, with_indicators
from dprl.logs._overlap import TOO_MUCH, shared, sketch
from dprl.logs._parquet import Row, write_rows
from dprl.logs.log import Log, check_log
from dprl.logs.source import Source, as_source
from dprl.policies._base import origin_of_training
from dprl.policies.held_out import rows_of

__all__ = ["RULES", "Sweep", "sweep"]

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
            that shares groups with it (`dprl.logs._overlap`).
        varied: The names of the settings that were varied.

    Example:
        >>> import dprl
        >>> train, valid = dprl.envs.care_pathway().sample(4000, seed=0).split(0.5, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> swept = dprl.sweep(learner, train, valid, n_min=[10, 40], draws=100)
        >>> len(swept), swept.estimator
        (2, 'DR')
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
        return self.table()._repr_html_()

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
            best = max(self.rows, key=closeness)
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
        from dprl._core import plot
        from dprl.evaluation._sweep_figure import figure_of

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
        estimator: The estimator that the rows show. Default None: "DR", or "WPDIS" where `values`
            is False.
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
        [0.37, 0.08]
    """
    estimator = check_estimator(estimator, values, interval=False)
    settings = grid_of(learner, n_min, radius, params)
    _refuse_columns(settings[0])
    if delta is not None:
        check_delta(delta)
        check_range(value_range)
    elif value_range is not None:
        raise ParameterError(
            worded("{value_range} is for certificates.", value_range=argument("value_range")),
            do="Name a delta too.",
        )
    if not isinstance(train, Log):
        train = as_source(train)
    else:
        check_log(train)
        train = (labelled if getattr(learner, "radius", None) is None else with_indicators)(train)
    columns = (train if isinstance(train, Log) else train.facts).columns
    valid = encoded_like(rows_of(valid), columns)  # once, as every policy will take it
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
