"""A chain with dense rewards: eight decisions in a row, each of them paid at once.

Step i pays U[0, 1] for the usual action (probability .7); the other action pays U[g, 1 + g], with
g = +.2 at even steps and -.2 at odd steps. Nothing else depends on the action, so the advantage of
the other action is .7 g everywhere, and returns lie in [-.8, 8.8].
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.planning.finite_mdp import FiniteMDP

LENGTH, GAP, USUAL = 8, 0.2, 0.7


def dense_chain() -> FiniteMDP:
    """The chain with dense rewards, γ = 1. The behaviour is worth 4, the best policy 4.8.

    Returns:
        The problem, with 8 states and 2 actions; `notes["better"]` names the states where the other
        action is better.

    Example:
        >>> from dprl.envs import dense_chain
        >>> chain = dense_chain()
        >>> round(chain.value(), 6), round(chain.optimal[0][0], 6)
        (4.0, np.float64(4.8))
    """
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
