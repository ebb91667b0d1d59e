r"""Several models of what people do, weighed by how well they foretell rows they have not seen.

With p_m(t) the probability that model m gave to the action taken at row t, held out, the weights
minimise the held-out log-loss of the mixture,

    w = argmin over the simplex of   L(w) = - 1/N ∑_t ln ∑_m w_m p_m(t)

which is convex. The update w_m ← w_m · mean_t p_m(t) / ∑_k w_k p_k(t) (expectation-maximisation)
never raises L, and L(w) - min L <= max_m mean_t p_m(t) / mix(t) - 1: it stops when that is below
`CLOSE`. Nothing is random.

Calibration of probabilities b (N, A): each action at each row is a case; the cases are put into ten
equal bins of b. Of the cases given about p, did a share p happen? The misplaced probability is

    ∑_bins | times it happened - ∑ b | / (2 N)              (0 perfect, 1 all wrong)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.evidence._nuisance_models import FLOOR, Floats

__all__ = ["floored", "log_loss", "misplaced", "stack_weights"]

CLOSE = 1e-5
"""How far the log-loss of the weights may be above the smallest, in nats per row."""
ROUNDS = 5_000
"""Updates of the weights at most."""
BINS = 10


def floored(b: Floats, menu: NDArray[np.bool_] | None = None) -> Floats:
    """Every probability at least `FLOOR`, 0 where not available; rows divided by their sums.

    Args:
        b: float64 (N, A).
        menu: bool (N, A), the actions that were available. Default None: all.
    """
    raised = np.maximum(b, FLOOR)
    if menu is not None:
        raised = np.where(menu, raised, 0.0)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def stack_weights(taken: Floats) -> Floats:
    """Weights (M,) from 0 that add up to 1, with the smallest held-out log-loss.

    Args:
        taken: float64 (N, M), the probability that each model gave to the action taken; above 0.
    """
    weights = np.full(taken.shape[1], 1 / taken.shape[1])
    ratio = np.empty(taken.shape[1])
    taken = np.ascontiguousarray(taken)
    for _ in range(ROUNDS):
        _ratios(taken, weights, ratio)
        if ratio.max() - 1 <= CLOSE:
            break
        weights = weights * ratio
        weights /= weights.sum()
    return weights


@compiled
def _ratios(taken: Floats, weights: Floats, ratio: Floats) -> None:  # pragma: no cover - compiled
    """Fill ratio (M,): the mean over rows of what each model gave over what the mixture gave."""
    N, M = taken.shape
    ratio[:] = 0.0
    for t in range(N):
        mixed = taken[t, 0] * weights[0]
        for m in range(1, M):
            mixed += taken[t, m] * weights[m]
        for m in range(M):
            ratio[m] += taken[t, m] / mixed
    ratio /= N


def log_loss(b: Floats, action: NDArray[Any]) -> float:
    """Mean of -ln of the probability of the action taken, in nats per row; smaller is better."""
    return float(-np.log(b[np.arange(len(b)), action]).mean())


def misplaced(b: Floats, action: NDArray[Any]) -> float:
    """Calibration error of probabilities b (N, A): 0 is perfect, 1 is all wrong."""
    place = np.minimum((b * BINS).astype(np.int64), BINS - 1)
    expected = np.bincount(place.ravel(), weights=b.ravel(), minlength=BINS)
    happened = np.bincount(place[np.arange(len(b)), action], minlength=BINS)
    return float(np.abs(happened - expected).sum() / (2 * len(b)))
