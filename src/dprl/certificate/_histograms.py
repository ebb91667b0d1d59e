r"""Histograms of the returns at first visits: all that the gate's e-values need.

For every state s and action a there is a histogram of the returns of the trajectories that took a
at their first visit of s. It covers the range [g_lo, g_hi] of returns, which is known beforehand,
in units of 1/400 of that range. A return x is either a whole number k of units or lies between k
and k + 1, and each of these cases has a bin:

    bin 2k      x = k/400               as x: k/400     as 1 - y: 1 - k/400
    bin 2k + 1  k/400 < x < (k+1)/400   as x: k/400     as 1 - y: 1 - (k+1)/400

so both x and 1 - y can be rounded *down* from one histogram, which keeps an e-value valid.
Counts are whole numbers: histograms of parts of a log (split between groups) add up to the
histograms of the whole, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_gamma, check_range
from dprl._core.words import argument, worded
from dprl.errors import LogError
from dprl.logs.log import Label, Log
from dprl.logs.returns import refuse_outside, returns
from dprl.logs.visits import first_visits

__all__ = ["BINS", "UNITS", "Histograms", "binned", "checked_returns", "histograms"]

Ints = NDArray[np.int64]

UNITS = 400
BINS = 2 * UNITS + 1


@dataclass(frozen=True, eq=False)
class Histograms:
    """Returns at first visits by state, action and bin; immutable.

    Attributes:
        keys: int64 (n,), rising: (s·A + a)·BINS + bin, for the bins that are not empty.
        counts: int64 (n,), number of groups in the bin.
        states: The state labels, in the order of s.
        actions: The action labels, in the order of a.
        gamma: Discount of the returns.
        value_range: (g_lo, g_hi), the lowest and highest return, known beforehand.
        n_groups: Number of groups (episodes, where no group was given) in the log.
    """

    keys: Ints
    counts: Ints
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    value_range: tuple[float, float]
    n_groups: int

    def merge(self, other: Histograms) -> Histograms:
        """The histograms of two parts of a log together, where no group is in both parts."""
        for name in ("states", "actions", "gamma", "value_range"):
            if getattr(self, name) != getattr(other, name):
                raise LogError(
                    f"histograms with different {name} cannot be merged.",
                    do=worded(
                        "Read or split the parts from one log; use one gamma and one "
                        "{value_range}.",
                        value_range=argument("value_range"),
                    ),
                )
        keys, place = np.unique(np.concatenate((self.keys, other.keys)), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, place, np.concatenate((self.counts, other.counts)))
        return replace(self, keys=keys, counts=counts, n_groups=self.n_groups + other.n_groups)


def checked_returns(
    log: Log, gamma: float, value_range: tuple[float, float]
) -> NDArray[np.float64]:
    """The return to go of every row, float64 (N,).

    Raises:
        LogError: A return lies outside value_range.
    """
    G = returns(log, gamma)
    refuse_outside(log, G, value_range)
    return G


def histograms(log: Log, gamma: float, value_range: tuple[float, float]) -> Histograms:
    """Histograms of a settled log with discrete states.

    Args:
        log: The log; where it has groups, a group counts once per state.
        gamma: Discount per step, in (0, 1].
        value_range: (lowest, highest) return there can be, known beforehand.

    Raises:
        LogError: A return lies outside value_range.
    """
    gamma, (low, high) = check_gamma(gamma), check_range(value_range)
    log = log.gathered()
    G = checked_returns(log, gamma, (low, high))
    rows = np.flatnonzero(first_visits(log))
    pair = log.codes()[rows].astype(np.int64) * log.n_actions + log.action[rows]
    n = len(np.unique(log.group))
    return binned(pair, G[rows], (low, high), gamma, log.states, log.actions, n)


def binned(
    pair: Ints,
    values: NDArray[np.float64],
    value_range: tuple[float, float],
    gamma: float,
    states: tuple[Label, ...],
    actions: tuple[Label, ...],
    n_groups: int,
) -> Histograms:
    """Histograms of values (n,), each of the pair s·A + a in `pair` (n,)."""
    low, high = value_range
    z = np.clip((values - low) * (UNITS / (high - low)), 0, UNITS)
    unit = np.floor(z).astype(np.int64)
    keys, counts = np.unique(pair * BINS + 2 * unit + (z > unit), return_counts=True)
    return Histograms(keys, counts, states, actions, gamma, (low, high), n_groups)
