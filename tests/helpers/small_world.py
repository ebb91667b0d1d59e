"""A small world, all of whose trajectories can be written down."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import sparse

from dprl.planning.finite_mdp import FiniteMDP

GAMMA = 0.9


def small_world(gamma=GAMMA):
    """Three states, two actions, at most four steps (the last state always ends)."""
    rng = np.random.default_rng(3)
    S, A = 3, 2
    P = np.zeros((S, A, S))
    P[0, 0] = [0.0, 0.5, 0.3]
    P[0, 1] = [0.0, 0.2, 0.6]
    P[1, 0] = [0.0, 0.0, 0.7]
    P[1, 1] = [0.0, 0.0, 0.4]
    R = np.round(rng.normal(size=(S, A)), 2)
    behavior = np.array([[0.7, 0.3], [0.4, 0.6], [0.8, 0.2]])
    return FiniteMDP(
        "small", (0, 1, 2), ("a", "b"), sparse.csr_array(P.reshape(S * A, S)), R, R,
        np.array([0.6, 0.3, 0.1]), behavior, gamma,
    )  # fmt: skip


def trajectories(mdp):
    """Every trajectory of the behaviour: (probability, [(s, a, r)])."""
    P = mdp.P.toarray().reshape(*mdp.R.shape, -1)
    found = []

    def go(s, chance, path):
        for a in range(mdp.R.shape[1]):
            p, now = chance * mdp.behavior[s, a], [*path, (s, a, mdp.R[s, a])]
            ends = 1 - P[s, a].sum()
            if ends > 1e-12:
                found.append((p * ends, now))
            for s2 in np.flatnonzero(P[s, a]):
                go(int(s2), p * P[s, a, s2], now)

    for s in np.flatnonzero(mdp.start):
        go(int(s), mdp.start[s], [])
    assert abs(sum(p for p, _ in found) - 1) < 1e-12
    return found


def columns(paths):
    starts = np.concatenate(([0], np.cumsum([len(p) for p in paths])))
    s, a, r = (np.array(x) for x in zip(*itertools.chain.from_iterable(paths), strict=True))
    return starts, s, a, r.astype(float)


DEFERRING = np.array([1, -1, 0])  # b in state 0, silent in state 1, a in state 2
MIXED = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])


def target(mdp, choice):
    """π with the behaviour where it defers, and where it speaks."""
    pi = mdp.behavior.copy()
    speaks = choice >= 0
    pi[speaks] = np.eye(2)[choice[speaks]]
    return pi, speaks
