"""The Polars way: windows over the sorted episode column, one group-by, one shift."""

from __future__ import annotations

import numpy as np
import polars as pl
from rival_numpy_tuned import returns_to_go
from scipy import sparse
from synthetic import Result, allowed_pairs


def moments(steps: pl.DataFrame, wanted: list[pl.Expr], shape):
    """Count, sum and sum of squares of g per pair, dense, for each filter in `wanted`."""
    square = pl.col("g") * pl.col("g")
    tables = [
        steps.lazy()
        .filter(x)
        .group_by("pair")
        .agg(count=pl.len(), total=pl.col("g").sum(), square=square.sum())
        for x in wanted
    ]
    for table in pl.collect_all(tables, engine="streaming"):
        for name, dtype in (("count", np.int64), ("total", float), ("square", float)):
            out = np.zeros(shape[0] * shape[1], dtype)
            out[table["pair"].to_numpy()] = table[name].to_numpy()
            yield out.reshape(shape)


def run(data: dict, gamma: float, n_min: int) -> Result:
    """Everything, in Polars; G by the numpy helper, duplicates of D summed by scipy."""
    starts = data["starts"]
    shape = n_states, n_actions = data["n_states"], data["n_actions"]
    lengths = np.diff(starts)
    c = pl.col
    steps = pl.DataFrame(
        {
            "episode": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
            "state": data["state"],
            "pair": data["state"] * np.int32(n_actions) + data["action"],
            "g": returns_to_go(data["reward"], starts, gamma),
        }
    ).with_columns(c("episode").set_sorted())
    firsts = (
        steps.group_by("episode", maintain_order=True)
        .agg(
            first_state=c("state").is_first_distinct(),
            first_pair=c("pair").is_first_distinct(),
        )
        .select(c("first_state", "first_pair").explode())
    )
    steps = steps.hstack(firsts)
    del firsts
    # Pair moments are the state moments plus those of the later first occurrences.
    later = c("first_pair") & ~c("first_state")
    m, v_sum, v_sumsq, n, q_sum, q_sumsq = moments(steps, [c("first_state"), later], shape)
    n += m
    q_sum += v_sum
    q_sumsq += v_sumsq

    allowed = allowed_pairs(n, m, q_sum, v_sum, n_min)
    is_point = allowed.any(axis=1)
    n_rows, n_points = int(allowed.sum()), int(is_point.sum())
    point = pl.Series("point", is_point)
    column = pl.Series("column", np.cumsum(is_point) - 1, dtype=pl.Int32)
    row = pl.Series("row", np.cumsum(allowed) - 1, dtype=pl.Int32)
    good = pl.Series("good", allowed.ravel())
    power = pl.Series("power", gamma ** np.arange(lengths.max() + 1))
    goes_on = c("episode").shift(-1) == c("episode")
    segments = (
        steps.lazy()
        .select("episode", "state", "pair", "g", "first_pair")
        .with_row_index("i")
        .filter(pl.lit(point).gather(c("state")))
        .select(
            "pair",
            "g",
            "first_pair",
            k=pl.when(goes_on).then(c("i").shift(-1) - c("i")),
            g_next=c("g").shift(-1),
            column=pl.lit(column).gather(c("state").shift(-1)),
        )
        .filter(c("first_pair") & pl.lit(good).gather(c("pair")))
        .select(
            "g",
            "g_next",
            row=pl.lit(row).gather(c("pair")),
            column=pl.when(c("k").is_not_null()).then(c("column")),
            discount=pl.lit(power).gather(c("k")),
        )
        .with_columns(gain=c("g") - (c("discount") * c("g_next")).fill_null(0.0))
        .select("row", "column", "discount", "gain")
        .collect()
    )
    del steps
    count = n[allowed]
    gains = segments.lazy().group_by("row").agg(c("gain").sum()).collect(engine="streaming")
    R = np.zeros(n_rows)
    R[gains["row"].to_numpy()] = gains["gain"].to_numpy()
    segments = segments.select("row", "column", "discount").drop_nulls("discount")
    where = segments["row"].to_numpy(), segments["column"].to_numpy()
    D = sparse.coo_matrix((segments["discount"].to_numpy(), where), (n_rows, n_points)).tocsr()
    D.data /= np.repeat(count, np.diff(D.indptr))
    return Result(n, m, q_sum, q_sumsq, v_sum, v_sumsq, R / count, D)
