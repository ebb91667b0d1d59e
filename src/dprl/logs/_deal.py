"""Which of some groups go to the first side of a split."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_number
from dprl.errors import LogError

__all__ = ["deal"]


def deal(n: int, fraction: float, seed: int) -> NDArray[np.bool_]:
    """bool (n,): which of n groups go to the first side, about `fraction` of them, at least one."""
    check_number("fraction", fraction, "(0, 1)")
    if n < 2:
        raise LogError(
            f"a log of {n} group cannot be split in two.",
            do="Groups (or episodes) are never torn apart; read more of them.",
        )
    chosen = np.zeros(n, bool)
    first = min(max(round(fraction * n), 1), n - 1)
    chosen[np.random.default_rng(seed).permutation(n)[:first]] = True
    return chosen
