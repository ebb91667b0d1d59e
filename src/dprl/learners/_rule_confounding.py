r"""How strong an unrecorded cause must be to undo a rule (for `dprl.Rules`): Γ*, for large samples.

`dprl._core.confounding` explains Γ and φ. The mean of ψ_a over a region is that of

    1{a_t = a} e / b̂_a  -  1{a_t ≠ a} e / (1 - b̂_a)

At Γ the credit e of those who took a is replaced by φ(e); θ may be any function of the state that
the certifying half has not chosen. Two are looked at, with q the 1/(1 + Γ) quantile of the half
that proposed: θ = q for the credit itself, and θ = q - V̂ (q for what followed, e + V̂; sharp where
outcomes have two values). The half that proposed chooses between them. Γ* is the largest Γ up to
which the lower end of the mean stays above the margin: the same t, the same number of standard
errors.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.confounding import GAMMAS, threshold, worst_case
from dprl._core.max_t import cluster_parts
from dprl.evidence.nuisances import OVERLAP
from dprl.learners._rule_scores import Scores

__all__ = ["rule_breakdown"]

Floats: TypeAlias = NDArray[np.float64]


def rule_breakdown(
    here: Scores, there: Scores, a: int, *, width: float, margin: float
) -> tuple[float | None, float | None]:
    """Γ* of one rule: with its allowance for chance, and as estimated.

    Args:
        here: Scores in its region, of the half that certifies.
        there: Scores in its region, of the half that proposed.
        a: The code of the suggestion.
        width: How many standard errors lie between the contrast and its lower end.
        margin: What the contrast must exceed.

    Returns:
        (Γ*, Γ* as estimated), each from 1 to 20, which means "or more"; None where the claim does
        not even hold without an unrecorded cause, or nothing can be told.
    """
    return (
        _largest(here, there, a, width, margin) if np.isfinite(width) else None,
        _largest(here, there, a, 0.0, margin),
    )


def _largest(here: Scores, there: Scores, a: int, width: float, margin: float) -> float | None:
    """The largest of the fixed Γ up to which the lower end stays above the margin, without gap."""
    result = None
    if not len(here.rows):
        return None
    for gamma in GAMMAS:
        scores = _worst(here, a, float(gamma), _theta(there, a, float(gamma)))
        mean, parts = cluster_parts(scores, here.group, len(here.log.groups))
        if not mean - width * float(np.sqrt((parts**2).sum())) > margin:
            break
        result = float(gamma)
    return result


def _worst(scores: Scores, a: int, gamma: float, theta: tuple[float, float]) -> Floats:
    """float64 (n,), the scores of a at Γ; θ is theta[0] + theta[1]·V̂ at each step."""
    b, took = scores.b[:, a], scores.took == a
    fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
    safe = np.where(fine, b, 0.5)
    worst = worst_case(scores.e, theta[0] + theta[1] * scores.V, gamma)
    return np.asarray(np.where(fine, np.where(took, worst / safe, -scores.e / (1 - safe)), 0.0))


def _theta(there: Scores, a: int, gamma: float) -> tuple[float, float]:
    """The better of the two θ on the half that proposed: θ = first + second · V̂."""
    b, took = there.b[:, a], there.took == a
    use = took & (b >= OVERLAP) & (b <= 1 - OVERLAP)
    if not use.any():
        return 0.0, 0.0
    e, V, weight = there.e[use], there.V[use], 1 / b[use]
    both = (threshold(e, gamma, weight), 0.0), (threshold(e + V, gamma, weight), -1.0)
    means = [
        np.average(worst_case(e, first + second * V, gamma), weights=weight)
        for first, second in both
    ]
    return both[int(np.argmax(means))]
