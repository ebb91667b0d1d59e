"""Blocked brute force: every block is compared, in log order.

It is for few points, or points without structure, where a tree would open nearly every leaf anyway.
The blocks, their filter and the rule are those of the tree, so the answers are the same bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl.evidence.neighbors._scan_blocks import Blocks, fill_blocks

__all__ = ["brute_blocks"]


def brute_blocks(z: NDArray[np.float64], w: NDArray[np.float64]) -> Blocks:
    """Blocks of the points (N, d) in their own order; w (N, D) are their search coordinates."""
    return fill_blocks(z, w, np.arange(len(z), dtype=np.int32))[0]
