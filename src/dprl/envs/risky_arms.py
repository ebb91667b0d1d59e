"""Risky arms: a good rare arm, a fair usual one, and K rare arms that only look good by luck."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.errors import ParameterError
from dprl.planning.finite_mdp import FiniteMDP

__all__ = ["risky_arms"]


def risky_arms(risky: int = 8, eps: float = 0.1, gamma: float = 0.99) -> FiniteMDP:
    """s0 with K + 2 actions, each to a state of its own whose leaving pays: b1 U[.5, .9] (chance
    eps), b2 .55 (1 - 2 eps), K risky ones U[0, 1] (eps / K each).
    """  # noqa: D205 - the sentence is the definition
    if risky < 1 or not 0 < eps < 0.5:
        raise ParameterError(
            f"risky_arms needs risky >= 1 and 0 < eps < .5; got {risky!r}, {eps!r}."
        )
    A = risky + 2
    actions = ("b1", "b2", *(f"r{k:03d}" for k in range(risky)))
    names = ("s0", *(f"s-{a}" for a in actions))
    low, high = np.zeros((A + 1, A)), np.zeros((A + 1, A))
    low[1], high[1] = 0.5, 0.9
    low[2] = high[2] = 0.55
    high[3:] = 1.0
    behavior = np.full((A + 1, A), 1 / A)
    behavior[0] = [eps, 1 - 2 * eps, *([eps / risky] * risky)]
    return FiniteMDP(
        name="risky_arms",
        states=names,
        actions=actions,
        P=sparse.csr_array(
            (np.ones(A), (np.arange(A), 1 + np.arange(A))), shape=((A + 1) * A, A + 1)
        ),
        low=low,
        high=high,
        start=np.eye(A + 1)[0],
        behavior=behavior,
        gamma=gamma,
        max_steps=2,
        notes={"decision": "s0", "best": "b1"},
    )
