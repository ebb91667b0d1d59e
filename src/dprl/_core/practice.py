"""What is usually done in a state: the action with at least half of the share, if there is one.

Where no action has half of the share there is no usual practice: *practice is divided*. What is
suggested there is compared with all that was done there together, each action by its share (the
mixture), and naming any action is a change, the most frequent one too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import say

DIVIDED = say("practice is divided")
"""What stands in the place of the usual action where there is none."""

ROUNDING = 1e-9


def is_divided(m: NDArray[Any]) -> NDArray[np.bool_]:
    """bool (k,): no action has half of the share; m (k, A) are counts, or shares.

    False where nothing was ever done.
    """
    total, most = m.sum(axis=1), m.max(axis=1, initial=0)
    return np.asarray((total > 0) & (2 * most < total * (1 - ROUNDING)))


def unusual(m: NDArray[Any]) -> NDArray[np.bool_]:
    """bool (k, A): choosing the action would be a change; m (k, A) are counts, or shares.

    It is one unless the action is the single most frequent one and has half of the share.
    """
    most = m.max(axis=1, initial=0)[:, None]
    alone = ((m == most).sum(axis=1) == 1) & ~is_divided(m)
    return np.asarray((m < most) | ~alone[:, None])
