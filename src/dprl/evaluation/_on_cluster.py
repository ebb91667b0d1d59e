"""Evaluation on a cluster: blocks of bootstrap draws are tasks.

A block of draws depends on the seed and on its place alone, so the numbers are those of one
process, to the last bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.cluster_start import connect
from dprl.evaluation._estimators import Weighted

__all__ = ["drawn_there"]

Floats = NDArray[np.float64]

TASKS = 4
"""Blocks of draws per worker: a slow worker then delays little."""


def _block(place: tuple[int, int], weighted: Weighted, seed: int) -> Floats:
    """The draws of a block, from the first to before the last: float64 (k, 8)."""
    first, last = place
    return np.concatenate(list(weighted.draws(last - first, seed, after=first)))


def drawn_there(
    weighted: Weighted, draws: int, seed: int, cluster: Any, tell: Callable[[str, float], None]
) -> Floats:
    """All bootstrap draws of the estimates, made on a cluster: float64 (draws, 8)."""
    drawn, done = np.empty((draws, 8)), 0
    with connect(cluster) as there:
        blocks = min(draws, TASKS * there.workers())
        places = list(itertools.pairwise(np.linspace(0, draws, blocks + 1).astype(int).tolist()))
        for i, part in there.map(_block, places, (weighted, seed)):
            drawn[slice(*places[i])] = part
            done += len(part)
            tell("bootstrap", done / draws)
    return drawn
