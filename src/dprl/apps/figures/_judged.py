"""Figures of how a policy is judged: sweep, sensitivity, calibration, balance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dprl._core import plot
from dprl._core.table import Table
from dprl.apps.figures._figure import BLUE, ORANGE, Figure
from dprl.errors import ParameterError
from dprl.evaluation._result import Evaluation
from dprl.evaluation._sensitivity_result import Sensitivity
from dprl.evaluation._sweep import Sweep
from dprl.evidence._balance_result import LARGE, Balance
from dprl.evidence.behavior import Behavior

__all__ = ["balance", "calibration", "sensitivity", "sweep"]


def sweep(swept: Sweep) -> Figure:
    """What each setting of a sweep gains, how often it defers, and on how many it rests.

    Args:
        swept: The result of `dprl.sweep`.

    Returns:
        A figure with one row per setting, those of `swept.table()`.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> dprl.figures.sweep(dprl.sweep(learner, train, test, n_min=[20, 50]))
        <Figure: sweep, 2 rows>
    """
    words = "What each setting gains over usual practice, how often it defers, and its sample."
    return Figure("sweep", swept.table(), words, swept.plot)


def sensitivity(result: Sensitivity) -> Figure:
    """What is left of a gain by the strength Γ of an unrecorded cause.

    Args:
        result: The result of `dprl.sensitivity`.

    Returns:
        A figure with one row per Γ, those of `result.table()`.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> dprl.figures.sensitivity(dprl.sensitivity(policy, test, gamma=[1, 2], draws=100))
        <Figure: sensitivity, 2 rows>
    """
    return Figure("sensitivity", result.table(), " ".join(result.lines()), result.plot)


def calibration(behavior: Behavior) -> Figure:
    """Whether what usual practice was expected to do is what it did.

    Args:
        behavior: A model of usual practice, from `dprl.Behavior.fit`.

    Returns:
        A figure with one row per bin of probability: chance, times, expected and happened (as
        shares of the cases in the bin), low and high (Wilson's interval of 95 % of happened).

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> figure = dprl.figures.calibration(dprl.Behavior.fit(log))
        >>> list(figure.table.columns)
        ['chance', 'times', 'expected', 'happened', 'low', 'high']
    """
    rows = []
    for row in behavior.calibration().to_dicts():
        times, share = row["times"], row["happened"] / row["times"]
        low, high = _wilson(share, times)
        rows.append(
            {"chance": row["chance"], "times": times, "expected": row["expected"] / times,
             "happened": share, "low": low, "high": high}
        )  # fmt: skip
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = (
        "How often actions were expected and how often they happened; on the line, the model of "
        "usual practice is right."
    )
    return Figure("calibration", table, words, lambda: _calibration(rows))


def _wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a share of n cases."""
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * float(np.sqrt(share * (1 - share) / n + z * z / (4 * n * n)))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _calibration(rows: Sequence[dict[str, Any]]) -> Any:
    figure, axes = plot.grid(1, 1, width=4.4, height=4.0)
    axis = axes[0, 0]
    axis.plot([0, 1], [0, 1], color="#333333", lw=1, ls=(0, (4, 3)), label="as expected")
    x, y = (np.array([row[name] for row in rows]) for name in ("expected", "happened"))
    reach = np.abs([y - [row["low"] for row in rows], [row["high"] for row in rows] - y])
    axis.errorbar(x, y, yerr=reach, fmt="o", color=BLUE, ms=5, capsize=3, label="usual practice")
    axis.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axis.set(xlabel="expected share of an action", ylabel="share in which it happened")
    axis.legend(loc="upper left")
    return figure


def balance(result: Evaluation | Balance, most: int = 15) -> Figure:
    """In what those who took the suggestions differ from the others, before and after weighting.

    Args:
        result: An evaluation (`dprl.evaluate`) of a log with columns that are not in the state, or
            its `balance`.
        most: Columns at most, the largest differences first. Default 15.

    Returns:
        A figure with one row per column: column, before and after (difference in standard
        deviations; after is None where nothing was weighted), error (standard error of the last).

    Raises:
        ParameterError: There is nothing to compare.

    Example:
        >>> import dprl, pandas as pd
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> rows = pd.DataFrame({
        ...     "patient": range(400), "state": "ill", "action": rng.choice(["drug", "wait"], 400),
        ...     "age": rng.normal(70, 9, 400),
        ... })
        >>> rows["reward"] = (rows.action == "drug") * 1.0
        >>> log = dprl.from_frame(rows, episode="patient", state="state", action="action",
        ...                       reward="reward", also=["age"])
        >>> train, test = log.split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> dprl.figures.balance(dprl.evaluate(policy, test, draws=100)).table["column"]
        ['age']
    """
    compared = result.balance if isinstance(result, Evaluation) else result
    if compared is None or not compared.rows:
        raise ParameterError(
            "there is nothing to compare: the log has no columns beside the state, or too few "
            "took the suggestions.",
            do="Name further columns with also=[...] when the log is read.",
        )
    rows = [
        {"column": row.column, "before": row.before, "after": row.after, "error": row.error}
        for row in compared.rows[:most]
    ]
    table = Table({name: [row[name] for row in rows] for name in rows[0]})
    words = (
        "Differences between those who took the suggestions and the others, in standard "
        f"deviations; above {LARGE:g} they are large by custom."
    )
    return Figure("balance", table, words, lambda: _balance(rows))


def _balance(rows: Sequence[dict[str, Any]]) -> Any:
    figure, axes = plot.grid(1, 1, width=5.8, height=max(1.8, 1.1 + 0.3 * len(rows)))
    axis = axes[0, 0]
    axis.axvspan(-LARGE, LARGE, color="#e9edf0", lw=0, zorder=0)
    axis.axvline(0, color="#333333", lw=1)
    for y, row in enumerate(rows):
        axis.plot(row["before"], 0.18 - y, "D", color=ORANGE, mfc="white", ms=6)
        if row["after"] is not None:
            axis.errorbar(
                row["after"], -y - 0.12, xerr=2 * row["error"], fmt="o", color=BLUE, capsize=3
            )
    axis.plot([], [], "D", color=ORANGE, mfc="white", label="before weighting")
    if any(row["after"] is not None for row in rows):
        axis.plot([], [], "o", color=BLUE, label="after, ± 2 standard errors")
    axis.set_yticks([-y for y in range(len(rows))], [row["column"] for row in rows])
    axis.set(xlabel=f"difference in standard deviations (grey: below {LARGE:g})")
    axis.set_ylim(-len(rows) + 0.4, 0.6)
    figure.legend(loc="outside upper left", ncols=2, fontsize=8)
    return figure
