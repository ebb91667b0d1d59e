"""What a learner makes of logs of growing size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.checks import check_whole
from dprl._core.table import Table
from dprl.apps.figures._figure import BLUE, Figure
from dprl.errors import ParameterError
from dprl.evaluation._evaluate import evaluate
from dprl.logs.log import Log

__all__ = ["value_by_size"]


def value_by_size(
    learner: Any,
    train: Log,
    test: Log | None = None,
    *,
    sizes: Sequence[int],
    repeats: int = 5,
    seed: int = 0,
    value: Callable[[Any], float] | None = None,
    estimator: str = "WDR",
) -> Figure:
    """What a policy would be worth if the log were smaller: value against sample size.

    For each size the learner is fitted on that many groups of `train`, drawn anew for each repeat.

    Args:
        learner: Anything with `fit(log)` that returns a policy.
        train: The log to draw groups from.
        test: Episodes that are used by no fit; the difference to usual practice is estimated on
            them. Default None: `value` says what a policy is worth.
        sizes: Numbers of groups, each at most the number of groups in `train`.
        repeats: Fits per size, with other groups. Default 5.
        seed: Seed of who is drawn. Default 0.
        value: Takes a policy and returns its value, where the truth can be computed (`world.value`,
            say). Default None: estimated on `test`.
        estimator: Which estimate of `dprl.evaluate` counts. Default "WDR".

    Returns:
        A figure with one row per fit: size, repeat, value (the difference to usual practice, or
        what `value` returned) and deferred (share of the test steps, or of the training
        steps, at which it defers).

    Raises:
        ParameterError: Neither `test` nor `value` is given, or both; or a size is out of range.

    Example:
        >>> import dprl
        >>> world = dprl.envs.care_pathway()
        >>> figure = dprl.figures.value_by_size(
        ...     dprl.DPRLDiscrete(n_min=20, gamma=1.0), world.sample(800, seed=0),
        ...     sizes=[100, 800], repeats=2, value=world.value,
        ... )
        >>> figure.table["size"]
        [100, 100, 800, 800]
    """
    if (test is None) == (value is None):
        raise ParameterError(
            "say either on which log policies are judged, or how their value is computed.",
            do="test=..., or value=...",
        )
    groups = len(train.groups)
    counts = [check_whole("sizes", size, 1, groups) for size in sizes]
    repeats = check_whole("repeats", repeats, 1)
    group = np.asarray(train.group)
    rows = []
    for size in counts:
        for repeat in range(repeats):
            rng = np.random.default_rng((seed, size, repeat))
            drawn = np.zeros(groups, bool)
            drawn[rng.choice(groups, size, replace=False)] = True
            part = train.take(np.flatnonzero(drawn[group]))
            policy = learner.fit(part)
            spoken, worth = (
                _estimated(policy, test, estimator, seed)
                if test is not None
                else (_spoken(policy, part), float(value(policy)))  # type: ignore[misc]
            )
            rows.append({"size": size, "repeat": repeat, "value": worth, "deferred": 1 - spoken})
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    truth = value is not None
    words = f"{'Value' if truth else 'Estimated gain'} of policies from logs of growing size."
    return Figure("value_by_size", table, words, lambda: _drawn(rows, truth))


def _spoken(policy: Any, log: Log) -> float:
    """The share of the steps of a log at which a policy names an action."""
    states, row = policy.space.of_log(log)
    return float((policy.at(states).choice[row] >= 0).mean())


def _estimated(policy: Any, test: Log, estimator: str, seed: int) -> tuple[float, float]:
    """The share of steps at which a policy speaks, and its difference to usual practice."""
    result = evaluate(policy, test, draws=50, seed=seed)
    if estimator not in result.rows:
        raise ParameterError(
            f"there is no estimate {estimator!r}.", do=f"Estimates: {', '.join(result.rows)}."
        )
    return float(result.facts["spoken"]), float(result[estimator]["difference"])


def _drawn(rows: Sequence[dict[str, Any]], truth: bool) -> Any:
    sizes = sorted({row["size"] for row in rows})
    figure, axes = plot.grid(1, 2, width=4.0, height=3.2)
    for axis, name in zip(axes[0], ("value", "deferred"), strict=True):
        factor = 100 if name == "deferred" else 1
        parts = [[factor * r[name] for r in rows if r["size"] == size] for size in sizes]
        for size, part in zip(sizes, parts, strict=True):
            axis.plot([size] * len(part), part, "o", ms=4, color=BLUE, alpha=0.45, mew=0)
        axis.plot(sizes, [float(np.mean(part)) for part in parts], color=BLUE, lw=1.6)
        axis.set_xscale("log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.set_xlabel("groups in the log")
    axes[0, 0].set_title("value of the policy" if truth else "difference to usual practice")
    axes[0, 1].set_title("steps deferred, %")
    axes[0, 1].set_ylim(-3, 103)
    if not truth:
        plot.reference(axes[0, 0], 0.0, "usual practice")
    return figure
