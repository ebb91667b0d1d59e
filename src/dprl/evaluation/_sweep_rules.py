"""The rows of a sweep, and the named rules by which it picks one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dprl._core.words import argument, worded
from dprl.evaluation._cautions import weights_off
from dprl.evaluation._result import ENOUGH, Evaluation
from dprl.evaluation.estimators import ESTIMATORS
from dprl.logs._parquet import Row

__all__ = ["COLUMNS", "RULES", "closeness", "row_of", "setting_words", "value_words"]


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
            n_min=argument("n_min"),
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
