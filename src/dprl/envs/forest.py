"""The forest: one choice at the root, long chains after it, a count that spreads thin."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.errors import ParameterError
from dprl.planning.finite_mdp import FiniteMDP

__all__ = ["forest"]


def forest(chains: int = 10, depth: int = 3, eps: float = 0.1, gamma: float = 0.99) -> FiniteMDP:
    """s0 with three actions: a0 → one of K chains paying U[.65, .75] on leaving the last state,
    a1 → one chain paying .55, a2 → one of K chains paying U[0, 1]. Inside chains all actions are
    alike. Behaviour at s0: (eps, 1 - 2 eps, eps); inside chains uniform.
    """  # noqa: D205 - the sentence is the definition
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
