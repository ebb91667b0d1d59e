r"""Summaries of many values of one thing: mean, CVaR, IQM, and how sure they are.

    CVaR_q = mean of the lowest ceil(q N) values        (what the unlucky datasets get)
    IQM    = mean of the middle half                    (Agarwal et al., NeurIPS 2021)

Bootstrap errors resample whole values, within strata where strata are given, and depend on the seed
alone. Everything works along the last axis of arrays of any shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl._core.bootstrap import percentiles, picks
from dprl._core.checks import check_level, check_number, check_seed, check_whole
from dprl.errors import ParameterError

__all__ = ["bootstrap", "cvar", "interval", "iqm", "mean"]

Floats = NDArray[np.float64]
Statistic = Callable[[ArrayLike], Floats]


def _values(values: ArrayLike) -> Floats:
    array = np.asarray(values, np.float64)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ParameterError("a statistic needs at least one value.")
    if np.isnan(array).any():
        raise ParameterError(
            f"{np.count_nonzero(np.isnan(array)):,} of {array.size:,} values are missing.",
            do="A statistic of what is left would flatter: find out why they are.",
        )
    return array


def mean(values: ArrayLike) -> Floats:
    """Mean along the last axis."""
    return np.asarray(_values(values).mean(axis=-1))


def cvar(values: ArrayLike, share: float = 0.05) -> Floats:
    """Mean of the lowest ceil(share · N) values along the last axis."""
    check_number("share", share, "(0, 1]")
    array = _values(values)
    n = array.shape[-1]
    count = max(1, math.ceil(round(share * n, 9)))
    return np.asarray(np.partition(array, count - 1, axis=-1)[..., :count].mean(axis=-1))


def iqm(values: ArrayLike) -> Floats:
    """Mean of the middle half along the last axis: a quarter, rounded down, goes off each end."""
    array = np.sort(_values(values), axis=-1)
    off = array.shape[-1] // 4
    return np.asarray(array[..., off : array.shape[-1] - off].mean(axis=-1))


def bootstrap(
    values: ArrayLike,
    statistic: Statistic,
    *,
    seed: int,
    repeats: int = 1_000,
    strata: ArrayLike | None = None,
) -> Floats:
    """The statistic of `repeats` resamples of values (N,), float64 (repeats,).

    Values of one stratum are replaced by values of the same stratum.
    """
    array = _values(values)
    if array.ndim != 1:
        raise ParameterError(f"bootstrap takes values of one dimension; got {array.shape}.")
    repeats = check_whole("repeats", repeats, 1)
    seed = check_seed(seed)
    if strata is None:
        return statistic(array[picks(len(array), repeats, seed)])
    labels = np.asarray(strata)
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ParameterError("a stratum is missing.")
    if labels.shape != array.shape:
        raise ParameterError(f"strata must be {array.shape}; got {labels.shape}.")
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return statistic(array[picks(len(array), repeats, seed, members)])


def interval(
    values: ArrayLike,
    statistic: Statistic,
    *,
    seed: int,
    level: float = 0.95,
    repeats: int = 1_000,
    strata: ArrayLike | None = None,
) -> tuple[float, float]:
    """Percentile bootstrap interval of the statistic of values (N,)."""
    check_level(level)
    draws = bootstrap(values, statistic, seed=seed, repeats=repeats, strata=strata)
    return percentiles(draws, level)
