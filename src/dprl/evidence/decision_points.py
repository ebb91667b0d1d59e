"""Decision points: the states where the log has enough evidence (the paper's Eq. 1 = Eq. 6).

    allowed(s,a) := n(s,a) >= n_min  and  Q̂(s,a) >= V̂(s)
                    and (contrast)  n(s) - m(s,a) >= n_min

A state is a decision point when some action is allowed; everywhere else the policy says DEFER.
Raising n_min never adds an allowed pair.

Departures from the paper:

* `contrast` is ours, and on by default: enough trajectories must have done *otherwise* at s.
  Without it, the rule may recommend the usual action because of two or three rare alternatives.
  It only makes the allowed set smaller, so every guarantee still holds. `contrast=False` is the
  paper's rule.
* Q̂ >= V̂ is decided on integer sums (see `dprl.evidence.counts`), so ties are ties. Returns
  that are equal on paper may still differ by rounding: a difference of up to 1e-9 of the size of
  the returns at s (the root of their mean square) counts as equal. This is a share and not an
  amount, so that multiplying all rewards by a positive number changes no decision.
* Actions that are not always available in a state are never allowed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import check_n_min

if TYPE_CHECKING:
    from dprl.evidence.counts import Evidence


TOLERANCE = 1e-9
"""The share of the size of the returns at a state that counts as a rounding error."""


def allowed(
    evidence: Evidence,
    n_min: float,
    *,
    contrast: bool = True,
    available: Bools | None = None,
) -> Bools:
    """Eq. 1: the pairs (s, a) that a policy may choose.

    Args:
        evidence: The evidence of a log with S states and A actions.
        n_min: Trajectories an action needs before it may be chosen: a whole number >= 1, or
            infinity.
        contrast: Whether n_min trajectories must also have done something else in the state.
            Default True; False is the paper's rule.
        available: bool (S, A), pairs that are always available. Default None: all.

    Returns:
        bool (S, A). A state with an allowed action is a decision point.

    Raises:
        ParameterError: If `n_min` is not a whole number >= 1 or infinity.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence import allowed, counts
        >>> evidence = counts.evidence(risky_arms().sample(1_000, seed=0), gamma=1.0)
        >>> [evidence.actions[a] for a in allowed(evidence, n_min=50)[0].nonzero()[0]]
        ['b1']
    """
    pairs = enough(evidence, n_min, contrast=contrast, available=available)
    return np.asarray(pairs & evidence.not_worse(TOLERANCE))


def enough(
    evidence: Evidence,
    n_min: float,
    *,
    contrast: bool = True,
    available: Bools | None = None,
) -> Bools:
    """The part of Eq. 1 that only counts: pairs (S, A) with enough trajectories, whatever came.

    Arguments are those of `allowed`.
    """
    n_min = check_n_min(n_min)
    pairs = evidence.n_pair >= n_min
    if contrast:
        pairs &= evidence.n_others >= n_min
    if available is not None:
        pairs[:, : available.shape[1]] &= available
    if evidence.rest:
        pairs[:, -1] = False
    return np.asarray(pairs)


def best_rows(q: Floats, first: Ints) -> Ints:
    """The row with the largest q of each decision point; the first of those equal to rounding.

    q (rows,); rows first[p]:first[p + 1] belong to point p.
    """
    if len(first) == 1:
        return np.empty(0, np.int64)
    top = np.maximum.reduceat(q, first[:-1])
    is_top = q >= np.repeat(top - 1e-14 * np.abs(top), np.diff(first))
    place = np.where(is_top, np.arange(len(q)), len(q))
    return np.asarray(np.minimum.reduceat(place, first[:-1]))


def best_choice(q: Floats, pairs: Bools) -> Codes:
    """The allowed action with the largest q (S, A) in each state, int32 (S,); -1 without one.

    A pair whose q is NaN (its digits are lost) is not chosen.
    """
    pairs = pairs & ~np.isnan(q)
    choice = np.full(len(q), -1, np.int32)
    points = np.flatnonzero(pairs.any(axis=1))
    first = np.concatenate(([0], np.cumsum(pairs.sum(axis=1)[points])))
    choice[points] = np.nonzero(pairs)[1][best_rows(q[pairs], first)]
    return choice
