"""A world in which actions do nothing but depend on the features: whatever is found is false."""

from __future__ import annotations

import numpy as np

import dprl

WEIGHTS = 0.8 * np.array(
    [[1, -1, 0, 0, 0.5, 0], [0, 1, 1, 0, 0, -0.5], [-1, 0, 0, 0.5, 0, 0.5], [0, 0, -1, 1, 0, 0]]
)


def null_world(seed, groups=400, steps=20, drift=0.0, pay=0.0):
    """A log, and the true probabilities of its actions (N, 4): a logistic model of the features.

    `drift` makes the first action likelier as the episode goes on; `pay` is added to every reward.
    """
    random = np.random.default_rng([7, seed])
    x = random.normal(size=(groups, 6))
    X, a, r, b = [], [], [], []
    for t in range(steps):
        odds = np.exp(x @ WEIGHTS.T + drift * np.array([1, 0, 0, 0]) * (t / steps - 0.5))
        p = odds / odds.sum(axis=1, keepdims=True)
        X.append(x)
        b.append(p)
        a.append((random.random((groups, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 3))
        r.append(np.tanh(x[:, 0] * x[:, 1]) + 0.5 * x[:, 2] + random.normal(0, 0.3, groups) + pay)
        x = 0.9 * x + 0.44 * random.normal(size=x.shape)
    log = dprl.from_arrays(
        episode=np.repeat(np.arange(groups), steps),
        state=np.stack(X, 1).reshape(-1, 6), action=np.stack(a, 1).ravel(),
        reward=np.stack(r, 1).ravel(),
    )  # fmt: skip
    return log, np.stack(b, 1).reshape(-1, 4)
