r"""Summaries of repeated measurements: mean, CVaR, IQM, and bootstrap intervals of them.

    CVaR_q = mean of the lowest ceil(q N) values        (what the unlucky datasets get)
    IQM    = mean of the middle half                    (Agarwal et al., NeurIPS 2021)

The bootstrap resamples whole values, within strata where strata are given; its result depends on
the seed alone. Mean, CVaR and IQM work along the last axis of arrays of any shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dprl._core.arrays import Floats
from dprl._core.bootstrap import percentiles, picks
from dprl._core.checks import check_level, check_number, check_seed, check_whole
from dprl.errors import ParameterError

__all__ = ["bootstrap", "cvar", "interval", "iqm", "mean"]

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
    """Mean along the last axis.

    Args:
        values: Array of any shape with at least one value along the last axis, none missing.

    Returns:
        float64, the shape of `values` without the last axis.

    Raises:
        ParameterError: There is no value, or a value is missing (NaN).

    Example:
        >>> float(mean([1.0, 2.0, 6.0]))
        3.0
    """
    return np.asarray(_values(values).mean(axis=-1))


def cvar(values: ArrayLike, share: float = 0.05) -> Floats:
    """CVaR: the mean of the lowest ceil(share · N) values along the last axis.

    Args:
        values: Array of any shape with N values along the last axis, none missing.
        share: Share of the values to average, in (0, 1]. Default 0.05.

    Returns:
        float64, the shape of `values` without the last axis.

    Raises:
        ParameterError: `share` is outside (0, 1], there is no value, or a value is missing.

    Example:
        >>> float(cvar([5.0, 1.0, 3.0, 9.0], share=0.5))
        2.0
    """
    check_number("share", share, "(0, 1]")
    array = _values(values)
    n = array.shape[-1]
    count = max(1, math.ceil(round(share * n, 9)))
    return np.asarray(np.partition(array, count - 1, axis=-1)[..., :count].mean(axis=-1))


def iqm(values: ArrayLike) -> Floats:
    """Interquartile mean: the mean of the middle half along the last axis.

    A quarter of the values (the number is rounded down) is left out at each end.

    Args:
        values: Array of any shape with at least one value along the last axis, none missing.

    Returns:
        float64, the shape of `values` without the last axis.

    Raises:
        ParameterError: There is no value, or a value is missing.

    Example:
        >>> float(iqm([100.0, 2.0, 4.0, -100.0]))
        3.0
    """
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
    """A statistic of many resamples of the values, drawn with replacement.

    Args:
        values: float64 (N,), none missing.
        statistic: A function that takes an array (repeats, N) and returns (repeats,), such as
            `mean`, `cvar` or `iqm`.
        seed: Seed of the resamples.
        repeats: Number of resamples, at least 1. Default 1,000.
        strata: Labels (N,); a value is replaced only by values with the same label. Default None:
            one stratum.

    Returns:
        float64 (repeats,), the statistic of each resample.

    Raises:
        ParameterError: The values are not one-dimensional or some are missing, `repeats` is below
            1, or the strata do not fit the values.

    Example:
        >>> bootstrap([1.0, 2.0, 6.0], mean, seed=0, repeats=4).shape
        (4,)
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
    """Percentile bootstrap interval of a statistic.

    Args:
        values: float64 (N,), none missing.
        statistic: A function as in `bootstrap`.
        seed: Seed of the resamples.
        level: Coverage that the interval aims at, in (0, 1). Default 0.95.
        repeats: Number of resamples, at least 1. Default 1,000.
        strata: Labels (N,) as in `bootstrap`. Default None.

    Returns:
        The lower and the upper end.

    Raises:
        ParameterError: `level` is outside (0, 1), or `bootstrap` refuses the values.

    Example:
        >>> low, high = interval([1.0, 2.0, 3.0, 4.0], mean, seed=0)
        >>> 1.0 <= low < 2.5 < high <= 4.0
        True
    """
    check_level(level)
    draws = bootstrap(values, statistic, seed=seed, repeats=repeats, strata=strata)
    return percentiles(draws, level)
