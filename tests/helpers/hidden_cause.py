"""Worlds with an unrecorded cause of known strength, with their true values."""

from __future__ import annotations

import numpy as np

import dprl


class HiddenCause:
    """One decision; an unrecorded cause u in {0, 1} moves treatment and outcome.

    Given the state, the odds of treatment given u lie within [1/Γ, Γ] of those without u, and one of
    them is at an end. Outcomes are 0 or 1; the treatment adds `effect` to their chance.
    """

    def __init__(self, gamma=1.5, effect=0.0, strength=0.4, states=("mild", "severe")):
        self.gamma, self.effect, self.states = gamma, effect, states
        self.p = dict(zip(states, np.linspace(0.35, 0.6, len(states)), strict=True))
        self.base = dict(zip(states, np.linspace(0.5, 0.3, len(states)), strict=True))
        self.strength = strength

    def chances(self, s):
        """P(u = 1), P(treated | u = 0) and P(treated | u = 1): the odds with u = 1 are Γ times."""
        p, g = self.p[s], self.gamma
        high = g * p / (1 - p + g * p)
        low = p / g / (1 - p + p / g)
        share = (p - low) / (high - low) if g > 1 else 0.5
        return share, low, high

    def outcome(self, s, u, treated):
        return self.base[s] + self.strength * (u - 0.5) + self.effect * treated

    def means(self, s):
        """m (takers), n (others) as seen in a log, and what takers' treatment would give others."""
        share, low, high = self.chances(s)
        weight = np.array([1 - share, share])
        t = np.array([low, high])
        x = self.outcome(s, np.array([0, 1]), 1)
        y = self.outcome(s, np.array([0, 1]), 0)
        m = (weight * t * x).sum() / (weight * t).sum()
        others = weight * (1 - t) / (weight * (1 - t)).sum()
        return m, (others * y).sum(), (others * x).sum()

    def advantage(self, s):
        """The true advantage of treating in state s over usual practice."""
        _, n, counterfactual = self.means(s)
        return (1 - self.p[s]) * (counterfactual - n)

    def sample(self, size, seed=0, numbers=False):
        rng = np.random.default_rng(seed)
        state = rng.integers(len(self.states), size=size)
        labels = np.array(self.states)[state]
        share, low, high = (np.array(c)[state] for c in
                            zip(*(self.chances(s) for s in self.states), strict=True))  # fmt: skip
        u = rng.random(size) < share
        treated = rng.random(size) < np.where(u, high, low)
        base = np.array([self.base[s] for s in self.states])[state]
        chance = base + self.strength * (u - 0.5) + self.effect * treated
        reward = (rng.random(size) < chance).astype(float)
        where = {"state": labels}
        if numbers:
            where = {"state": state[:, None].astype(float), "feature_names": ["severity"]}
        return dprl.from_arrays(
            episode=np.arange(size), action=np.where(treated, "treat", "wait"), reward=reward,
            **where,
        )  # fmt: skip
