r"""Has practice changed? An e-process of "actions are taken as often as they were".

Of a state let o be how often each of A actions was taken in the log that a policy comes from, and n
how often since then, one group one vote. If all were drawn with the same probabilities p, whatever
they are, the likelihood is at most that of the best p, and

    E = M(o) M(n) / max_p ∏ p_a^(o_a + n_a)

M the probability of a sequence with such counts under a Dirichlet prior of ½ for every action
(Krichevsky and Trofimov). M(o) M(n) / ∏ p_a^(o_a + n_a) is a martingale for the true p, so E is at
most one: P(E ever reaches 1/α) <= α however often one looks. Nothing is taken from tables of the
normal distribution, and p need not be known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

__all__ = ["log_drift"]

Floats = NDArray[np.float64]
PRIOR = 0.5
"""What every action counts for before it was ever seen."""


def _log_mixed(counts: Floats) -> Floats:
    """Natural logarithm of M for counts (S, A), one per state."""
    A, n = counts.shape[1], counts.sum(axis=1)
    each = (gammaln(counts + PRIOR) - gammaln(PRIOR)).sum(axis=1)
    return np.asarray(each + gammaln(A * PRIOR) - gammaln(n + A * PRIOR))


def log_drift(before: Any, since: Any) -> Floats:
    """Natural logarithm of the e-value of "actions are taken as often as they were", by state.

    Args:
        before: (S, A), groups that took each action at their first visit, in the log of a policy.
        since: (S, A), the same of groups that came later.
    """
    o, n = np.asarray(before, np.float64), np.asarray(since, np.float64)
    both = o + n
    total = both.sum(axis=1, keepdims=True)
    best = xlogy(both, both / np.maximum(total, 1.0)).sum(axis=1)
    return np.asarray(_log_mixed(o) + _log_mixed(n) - best)
