"""The estimates with their intervals: percentiles of a bootstrap over groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.bootstrap import percentiles
from dprl.evaluation._estimators import BEHAVIOR, ESTIMATORS, Weighted
from dprl.evaluation._on_cluster import drawn_there

__all__ = ["MODEL", "ends_of", "estimated"]

Floats = NDArray[np.float64]
Progress = Callable[[str, float], None]

MODEL = ("DM", "DR", "WDR")
"""The estimates that need a model of values."""


def _drawn(weighted: Weighted, draws: int, seed: int, cluster: Any, tell: Progress) -> Floats:
    """The bootstrap draws of the estimates, float64 (draws, 8)."""
    if cluster is not None:
        return drawn_there(weighted, draws, seed, cluster, tell)
    parts, done = [], 0
    for part in weighted.draws(draws, seed):
        parts.append(part)
        done += len(part)
        tell("bootstrap", done / draws)
    return np.concatenate(parts)


def estimated(
    weighted: Weighted,
    level: float,
    draws: int,
    seed: int,
    model: bool,
    speaks: bool,
    cluster: Any,
    tell: Progress,
) -> tuple[dict[str, dict[str, float]], dict[str, float], float, Floats]:
    """Estimates and usual practice with intervals, share of undefined draws, and all draws."""
    point = weighted.estimates()[0]
    tell("bootstrap", 0.0)
    drawn = _drawn(weighted, draws, seed, cluster, tell)
    undefined = float(np.isnan(drawn).any(axis=1).mean())

    rows = {}
    for k, name in enumerate(ESTIMATORS):
        row: dict[str, float] = {}
        for what, off in (("difference", 1.0), ("value", 0.0)):
            exists = model or name not in MODEL
            numbers = (np.nan, np.nan, np.nan)
            if exists:
                bare = name == "DM" and speaks
                interval = (
                    (np.nan, np.nan)
                    if bare
                    else ends_of(drawn[:, k] - off * drawn[:, BEHAVIOR], level)
                )
                numbers = (float(point[k] - off * point[BEHAVIOR]), *interval)
            row |= dict(zip((what, f"{what}_low", f"{what}_high"), numbers, strict=True))
        rows[name] = row
    low, high = ends_of(drawn[:, BEHAVIOR], level)
    return rows, {"value": float(point[BEHAVIOR]), "low": low, "high": high}, undefined, drawn


def ends_of(values: Floats, level: float) -> tuple[float, float]:
    """The percentile interval of draws; NaN where too many of them do not exist."""
    good = values[~np.isnan(values)]
    if len(values) - len(good) > (1 - level) / 2 * len(values):
        return np.nan, np.nan
    return percentiles(good, level)
