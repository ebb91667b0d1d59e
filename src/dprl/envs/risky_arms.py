"""Risky arms: a good rare arm, a fair usual one, and K rare arms that look good only by luck."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dprl.errors import ParameterError
from dprl.planning.finite_mdp import FiniteMDP


def risky_arms(risky: int = 8, eps: float = 0.1, gamma: float = 0.99) -> FiniteMDP:
    """State s0 with K + 2 actions; each leads to a state of its own, and leaving that state pays.

    Action b1 pays U[.5, .9] (behaviour: eps), b2 pays .55 (1 - 2 eps), and each of the K risky ones
    U[0, 1] (eps / K).

    Args:
        risky: K, the number of risky actions, at least 1. Default 8.
        eps: Probability of b1, and of all risky actions together, in (0, 0.5). Default 0.1.
        gamma: Discount in (0, 1]. Default 0.99.

    Returns:
        The problem; the best action at s0 is b1.

    Raises:
        ParameterError: If a number is outside its range.

    Example:
        >>> from dprl.envs import risky_arms
        >>> risky_arms(risky=2).actions
        ('b1', 'b2', 'r000', 'r001')
    """
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
