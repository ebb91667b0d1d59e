"""A synthetic log, the result every method returns, and the small parts that all methods share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

FIELDS = ("n", "m", "q_sum", "q_sumsq", "v_sum", "v_sumsq")


@dataclass
class Result:
    """Evidence per (state, action), shape (S, A), and the elevated semi-MDP of the allowed pairs.

    `n`, `q_sum`, `q_sumsq`: G at the first occurrence of (s, a) in each episode.
    `m`, `v_sum`, `v_sumsq`: G at the first visits of s whose action is a.
    `R`: mean segment reward per allowed pair, in (state, action) order.
    `D`: CSR, allowed pairs x decision points, mean of gamma^k 1{the segment ends there}.
    """

    n: np.ndarray
    m: np.ndarray
    q_sum: np.ndarray
    q_sumsq: np.ndarray
    v_sum: np.ndarray
    v_sumsq: np.ndarray
    R: np.ndarray
    D: sparse.csr_matrix


def make_log(
    n_steps: int,
    n_states: int = 50_000,
    n_actions: int = 8,
    mean_length: int = 60,
    seed: int = 0,
) -> dict:
    """A deterministic log of exactly `n_steps` steps in episodes of geometric length.

    An episode stays in a neighbourhood of states for about 20 steps, then moves to another one;
    neighbourhoods are drawn with a skewed popularity, states near their centre are more likely,
    and now and then a state simply persists. So states come back inside an episode and visit
    counts are far from even. Each state has its own order of preferred actions. Labels of states
    are shuffled: neighbours in the process are not neighbours in memory.
    """
    rng = np.random.default_rng(seed)
    lengths = [np.zeros(0, np.int64)]
    total = 0
    while total < n_steps:
        more = rng.geometric(1 / mean_length, size=n_steps // mean_length + 16)
        lengths.append(more)
        total += int(more.sum())
    ends = np.cumsum(np.concatenate(lengths))
    ends = ends[: np.searchsorted(ends, n_steps, side="left") + 1]
    ends[-1] = n_steps
    starts = np.concatenate([[0], ends]).astype(np.int64)

    fresh = np.zeros(n_steps, bool)
    fresh[starts[:-1]] = True
    moves = fresh | (rng.random(n_steps) < 0.05)
    centres = (n_states * rng.random(int(moves.sum())) ** 2.2).astype(np.int64)
    offset = (-30.0 * np.log1p(-rng.random(n_steps))).astype(np.int64)
    place = (centres[np.cumsum(moves) - 1] + offset) % n_states
    del offset, centres
    drawn = np.flatnonzero(moves | (rng.random(n_steps) > 0.08))
    stay = np.zeros(n_steps, np.int64)
    stay[drawn[1:]] = 1
    place = place[drawn[np.cumsum(stay)]]
    del drawn, stay, moves, fresh
    state = rng.permutation(n_states).astype(np.int32)[place]
    del place

    chance = 0.5 ** np.arange(n_actions)
    rank = np.searchsorted(np.cumsum(chance / chance.sum()), rng.random(n_steps)).astype(np.int32)
    np.minimum(rank, n_actions - 1, out=rank)
    favourite = rng.integers(n_actions, size=n_states, dtype=np.int32)
    action = (favourite[state] + rank) % np.int32(n_actions)
    del rank
    effect = 0.1 + 0.3 * rng.standard_normal(n_states * n_actions)
    reward = effect[state * np.int64(n_actions) + action] + rng.standard_normal(n_steps)
    return {
        "state": state,
        "action": action.astype(np.int32),
        "reward": reward,
        "starts": starts,
        "n_states": n_states,
        "n_actions": n_actions,
    }


def allowed_pairs(n, m, q_sum, v_sum, n_min: int) -> np.ndarray:
    """The contrast rule: n >= n_min, Q >= V - 1e-9 and n(s) - m >= n_min; a bool array (S, A)."""
    n_state = m.sum(axis=1)
    v = v_sum.sum(axis=1) / np.maximum(n_state, 1)
    q = q_sum / np.maximum(n, 1)
    return (n >= n_min) & (q >= v[:, None] - 1e-9) & (n_state[:, None] - m >= n_min)


def checksums(result: Result) -> dict:
    """A few numbers that must agree between methods (relative 1e-9)."""
    out = {name: float(getattr(result, name).sum()) for name in FIELDS}
    out["R"] = float(result.R.sum())
    out["D"] = float(result.D.sum())
    out["D_nnz"] = int(result.D.nnz)
    out["pairs"], out["decision_points"] = result.D.shape
    # Position-dependent sums: a wrong order of rows or columns shows here.
    rows, cols = result.D.shape
    out["R_order"] = float(result.R @ np.linspace(0.5, 1.5, rows))
    out["D_order"] = float((result.D @ np.linspace(0.5, 1.5, cols)) @ np.linspace(1.5, 0.5, rows))
    return out
