"""The numpy way without tuning: whole arrays, stable sorts, bincount, sparse COO to CSR."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from synthetic import Result, allowed_pairs


def returns_to_go(reward, starts, gamma: float) -> np.ndarray:
    """G by a loop back over time, vectorised across episodes (sorted by length, longest first)."""
    length = np.diff(starts)
    order = np.argsort(-length, kind="stable")
    at = starts[1:][order] - 1
    alive = np.searchsorted(-length[order], -np.arange(length.max()))
    g = np.empty(len(reward))
    carry = np.zeros(len(at))
    for count in alive.tolist():
        carry, at = carry[:count], at[:count]
        carry *= gamma
        carry += reward[at]
        g[at] = carry
        at -= 1
    return g


def first_of(key) -> np.ndarray:
    """Is this the first entry with its key? A stable sort; keys come nearly sorted by episode."""
    order = np.argsort(key, kind="stable")
    key = key[order]
    out = np.zeros(len(key), bool)
    out[order[:1]] = True
    out[order[1:][key[1:] != key[:-1]]] = True
    return out


def moments(pair, g, first, shape):
    """Count, sum and sum of squares of g per pair over the steps marked `first`."""
    pair, g = pair[first], g[first]
    size = shape[0] * shape[1]
    count = np.bincount(pair, minlength=size)
    total = np.bincount(pair, g, size)
    return count.reshape(shape), total.reshape(shape), np.bincount(pair, g * g, size).reshape(shape)


def run(data: dict, gamma: float, n_min: int) -> Result:
    """Everything, in plain numpy and scipy.sparse."""
    state, starts = data["state"], data["starts"]
    shape = n_states, n_actions = data["n_states"], data["n_actions"]
    g = returns_to_go(data["reward"], starts, gamma)
    pair = state * np.int64(n_actions)
    pair += data["action"]
    episode = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    m, v_sum, v_sumsq = moments(pair, g, first_of(episode * n_states + state), shape)
    first_pair = first_of(episode * (n_states * n_actions) + pair)
    n, q_sum, q_sumsq = moments(pair, g, first_pair, shape)

    allowed = allowed_pairs(n, m, q_sum, v_sum, n_min)
    is_point = allowed.any(axis=1)
    column = (np.cumsum(is_point) - 1).astype(np.int32)
    row = (np.cumsum(allowed) - 1).astype(np.int32)
    n_rows, n_points = int(allowed.sum()), int(is_point.sum())
    here = is_point[state]
    n_steps = len(state)
    step = np.int32 if n_steps < 2**31 else np.int64
    follow = np.full(n_steps + 1, n_steps, step)
    follow[:-1][here] = np.flatnonzero(here)
    follow = np.minimum.accumulate(follow[::-1])[::-1]
    source = np.flatnonzero(first_pair & allowed.ravel()[pair])
    del first_pair, here
    follow = follow[source + 1]
    source_row = row[pair[source]]
    gain = g[source]
    on = np.flatnonzero(follow < starts[1:][episode[source]])
    del pair, episode
    follow = follow[on]
    discount = gamma ** np.arange(np.diff(starts).max() + 1)
    discount = discount[follow - source[on]]
    gain[on] -= discount * g[follow]
    count = n[allowed]
    R = np.bincount(source_row, gain, n_rows) / count
    where = source_row[on], column[state[follow]]
    D = sparse.coo_matrix((discount, where), shape=(n_rows, n_points)).tocsr()
    D.data /= np.repeat(count, np.diff(D.indptr))
    return Result(n, m, q_sum, q_sumsq, v_sum, v_sumsq, R, D)
