"""The pandas way: duplicated() on packed keys, group-by sums, shift."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rival_numpy_tuned import blocks, returns_to_go
from scipy import sparse
from synthetic import Result, allowed_pairs

BLOCK = 1 << 16


def first_visits(state, pair, starts, n_states: int, n_pairs: int):
    """First visits of states and of pairs, by `duplicated` in blocks whose hash table fits."""
    first_state = np.empty(len(state), bool)
    first_pair = np.empty(len(state), bool)
    for e0, e1, lo, hi in blocks(starts, BLOCK):
        episode = np.repeat(np.arange(e1 - e0), np.diff(starts[e0 : e1 + 1]))
        np.logical_not(
            pd.Series(episode * n_states + state[lo:hi]).duplicated().to_numpy(),
            out=first_state[lo:hi],
        )
        np.logical_not(
            pd.Series(episode * n_pairs + pair[lo:hi]).duplicated().to_numpy(),
            out=first_pair[lo:hi],
        )
    return first_state, first_pair


def moments(frame: pd.DataFrame, shape):
    """Count, sum and sum of squares of g per pair, dense."""
    frame = frame.assign(square=frame["g"] * frame["g"])
    table = frame.groupby("pair", sort=False).agg(
        count=("g", "size"), total=("g", "sum"), square=("square", "sum")
    )
    index = table.index.to_numpy()
    out = []
    for name, dtype in (("count", np.int64), ("total", float), ("square", float)):
        full = np.zeros(shape[0] * shape[1], dtype)
        full[index] = table[name].to_numpy()
        out.append(full.reshape(shape))
    return out


def run(data: dict, gamma: float, n_min: int) -> Result:
    """Everything, in pandas; G by the numpy helper, duplicates of D summed by scipy."""
    state, starts = data["state"], data["starts"]
    shape = n_states, n_actions = data["n_states"], data["n_actions"]
    lengths = np.diff(starts)
    pair = state * np.int32(n_actions) + data["action"]
    first_state, first_pair = first_visits(state, pair, starts, n_states, n_states * n_actions)
    steps = pd.DataFrame(
        {"pair": pair, "g": returns_to_go(data["reward"], starts, gamma)}, copy=False
    )
    # Pair moments are the state moments plus those of the later first occurrences.
    m, v_sum, v_sumsq = moments(steps[first_state], shape)
    n, q_sum, q_sumsq = moments(steps[first_pair & ~first_state], shape)
    n += m
    q_sum += v_sum
    q_sumsq += v_sumsq
    del first_state

    allowed = allowed_pairs(n, m, q_sum, v_sum, n_min)
    is_point = allowed.any(axis=1)
    n_rows, n_points = int(allowed.sum()), int(is_point.sum())
    column = (np.cumsum(is_point) - 1).astype(np.int32)
    row = np.where(allowed.ravel(), np.cumsum(allowed) - 1, -1).astype(np.int32)
    power = gamma ** np.arange(lengths.max() + 1)
    at = np.flatnonzero(is_point[state])
    points = pd.DataFrame(
        {
            "row": np.where(first_pair[at], row[pair[at]], np.int32(-1)),
            "column": column[state[at]],
            "g": steps["g"].to_numpy()[at],
            "at": at,
            "episode": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[at],
        },
        copy=False,
    )
    del steps, pair, first_pair, at
    k = points["at"].shift(-1, fill_value=0) - points["at"]
    k[points["episode"].shift(-1, fill_value=-1) != points["episode"]] = 0
    source = np.flatnonzero(points["row"] >= 0)
    row, k = points["row"].take(source), k.to_numpy()[source]
    column = points["column"].shift(-1, fill_value=0).to_numpy()[source]
    g_next = points["g"].shift(-1, fill_value=0.0).to_numpy()[source]
    discount = np.where(k > 0, power[k], 0.0)
    gain = points["g"].take(source) - discount * g_next
    del points, g_next, source
    count = n[allowed]
    R = gain.groupby(row).sum().to_numpy() / count
    on = np.flatnonzero(discount)
    where = row.to_numpy()[on], column[on]
    D = sparse.coo_matrix((discount[on], where), (n_rows, n_points)).tocsr()
    D.data /= np.repeat(count, np.diff(D.indptr))
    return Result(n, m, q_sum, q_sumsq, v_sum, v_sumsq, R, D)
