"""A dense-reward chain: eight decisions in a row, every one of them paid at once.

Step i pays U[0, 1] for the usual action (probability .7); the other pays U[g, 1 + g], g = +.2 at
even steps and -.2 at odd ones. Nothing else depends on what is done, so the advantage of the other
action is .7 g everywhere, and returns lie in [-.8, 8.8].
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.planning.finite_mdp import FiniteMDP

__all__ = ["dense_chain"]

LENGTH, GAP, USUAL = 8, 0.2, 0.7


def dense_chain() -> FiniteMDP:
    """The chain; ρ_b = 4 and the best policy is worth 4.8, at γ = 1."""
    gap = np.where(np.arange(LENGTH) % 2 == 0, GAP, -GAP)
    low = np.stack((np.zeros(LENGTH), gap), axis=1)
    rows = np.arange(2 * (LENGTH - 1))
    P = sparse.csr_array((np.ones(len(rows)), (rows, rows // 2 + 1)), shape=(2 * LENGTH, LENGTH))
    return FiniteMDP(
        name="dense chain",
        states=tuple(f"step {i}" for i in range(LENGTH)),
        actions=("usual", "other"),
        P=P,
        low=low,
        high=low + 1,
        start=np.eye(LENGTH)[0],
        behavior=np.tile([USUAL, 1 - USUAL], (LENGTH, 1)),
        gamma=1.0,
        max_steps=LENGTH + 1,
        notes={"better": tuple(f"step {i}" for i in range(0, LENGTH, 2))},
    )
