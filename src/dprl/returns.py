r"""Returns to go, one episode at a time.

    G_t = \sum_{k \ge t} \gamma^{k-t} r_k

computed backwards (G_t = r_t + γ G_{t+1}): a γ^t-weighted cumulative sum turns to NaN once
T·|ln γ| passes about 690, and loses digits long before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl.compiled import compiled, in_parts, parts
from dprl.log import Log

__all__ = ["fill_returns", "largest_return", "powers", "returns"]


@compiled
def fill_returns(
    reward: NDArray[np.float64], gamma: float, G: NDArray[np.float64]
) -> None:  # pragma: no cover - compiled
    """Fill G (T,) with the returns to go of one episode's rewards (T,)."""
    tail = 0.0
    for t in range(len(reward) - 1, -1, -1):
        tail = reward[t] + gamma * tail
        G[t] = tail


@compiled
def _fill_all(
    starts: NDArray[np.int64],
    reward: NDArray[np.float64],
    gamma: float,
    G: NDArray[np.float64],
) -> None:  # pragma: no cover - compiled
    for e in range(len(starts) - 1):
        fill_returns(reward[starts[e] : starts[e + 1]], gamma, G[starts[e] : starts[e + 1]])


@compiled
def _largest(
    starts: NDArray[np.int64], reward: NDArray[np.float64], gamma: float
) -> float:  # pragma: no cover - compiled
    most = 0.0
    for e in range(len(starts) - 1):
        tail = 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            tail = reward[t] + gamma * tail
            most = max(most, abs(tail))
    return most


def returns(log: Log, gamma: float) -> NDArray[np.float64]:
    """G_t for every row of the log, float64 (N,)."""
    G = np.empty(log.n_steps)
    _fill_all(log.starts, log.reward, float(gamma), G)
    return G


def largest_return(log: Log, gamma: float) -> float:
    """max |G_t| over the rows of the log."""
    found = in_parts(
        lambda first, last: _largest(log.starts[first : last + 1], log.reward, float(gamma)),
        parts(log.starts),
    )
    return float(max(found, default=0.0))


def powers(gamma: float, length: int) -> NDArray[np.float64]:
    """γ^0 .. γ^length, float64 (length + 1,)."""
    return np.power(float(gamma), np.arange(length + 1, dtype=np.float64))
