"""The forest: one choice at the root, long chains after it, and few visits of each chain."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.errors import ParameterError
from dprl.planning.finite_mdp import FiniteMDP


def forest(chains: int = 10, depth: int = 3, eps: float = 0.1, gamma: float = 0.99) -> FiniteMDP:
    """One choice in state s0, followed by chains in which all actions are alike.

    Action a0 leads to one of `chains` chains that pay U[.65, .75] on leaving their last state, a1
    to a single chain that pays .55, a2 to one of `chains` chains that pay U[0, 1]. The behaviour at
    s0 is (eps, 1 - 2 eps, eps), and uniform inside the chains.

    Args:
        chains: The number of chains after a0 and after a2, at least 1. Default 10.
        depth: The number of states of a chain, at least 1. Default 3.
        eps: Probability of a0 and of a2 in the behaviour, in (0, 0.5). Default 0.1.
        gamma: Discount in (0, 1]. Default 0.99.

    Returns:
        The problem; the best action at s0 is a0.

    Raises:
        ParameterError: If a number is outside its range.

    Example:
        >>> from dprl.envs import forest
        >>> len(forest(chains=2, depth=3).states)
        16
    """
    if chains < 1 or depth < 1 or not 0 < eps < 0.5:
        raise ParameterError(
            f"forest needs chains >= 1, depth >= 1 and 0 < eps < .5; "
            f"got {chains!r}, {depth!r}, {eps!r}."
        )
    kinds = [("a", chains, 0.65, 0.75), ("b", 1, 0.55, 0.55), ("c", chains, 0.0, 1.0)]
    names = ["s0"]
    low, high = [np.zeros(3)], [np.zeros(3)]
    rows, columns, chances = [], [], []
    for action, (letter, copies, least, most) in enumerate(kinds):
        for copy in range(copies):
            rows.append(action)
            columns.append(len(names))
            chances.append(1 / copies)
            for d in range(depth):
                s = len(names)
                names.append(f"{letter}{copy:03d}-{d}")
                last = d == depth - 1
                low.append(np.full(3, least if last else 0.0))
                high.append(np.full(3, most if last else 0.0))
                if not last:
                    rows += [s * 3 + a for a in range(3)]
                    columns += [s + 1] * 3
                    chances += [1.0] * 3
    n = len(names)
    behavior = np.full((n, 3), 1 / 3)
    behavior[0] = eps, 1 - 2 * eps, eps
    return FiniteMDP(
        name="forest",
        states=tuple(names),
        actions=("a0", "a1", "a2"),
        P=sparse.csr_array((chances, (rows, columns)), shape=(n * 3, n)),
        low=np.array(low),
        high=np.array(high),
        start=np.eye(n)[0],
        behavior=behavior,
        gamma=gamma,
        max_steps=depth + 1,
        notes={"decision": "s0", "best": "a0"},
    )
