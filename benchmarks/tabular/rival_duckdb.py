"""The DuckDB way: SQL windows and group-bys over Arrow columns.

`run` takes the discounted return from the numpy helper (the fastest); `run_sql` computes it in
SQL as well. SQL has no recursive window, and gamma^t-weighted cumulative sums lose precision on
long episodes. So G is made inside blocks of steps short enough for the weights to stay above one
half, and the blocks of an episode are chained by a recursive query.
"""

from __future__ import annotations

import math

import duckdb
import numpy as np
import pyarrow as pa
from rival_numpy_tuned import returns_to_go
from scipy import sparse
from synthetic import Result, allowed_pairs

RETURNS = """
create temp table piece as
select i, episode, state, action, t // {size} as block, t % {size} as j,
    sum(reward * power({gamma}, t % {size})) over (
        partition by episode, t // {size} order by t desc rows unbounded preceding) as part
from (select *, i - start as t from log);

create temp table chain as
with recursive head as (
    select episode, block, part, lead(block) over (
        partition by episode order by block) is null as last
    from piece where j = 0
), walk as (
    select episode, block, part as g from head where last
    union all
    select h.episode, h.block, h.part + power({gamma}, {size}) * w.g
    from walk w join head h on h.episode = w.episode and h.block = w.block - 1
)
select * from walk;

create temp view returns as
select p.i, p.episode, p.state, p.action,
    p.part / power({gamma}, p.j) + coalesce(power({gamma}, {size} - p.j) * c.g, 0) as g
from piece p left join chain c on c.episode = p.episode and c.block = p.block + 1;
"""

FIRSTS = """
create temp table steps as
select i, episode, state, state * {n_actions} + action as pair, g,
    lag(state) over (partition by episode order by state, i)
        is distinct from state as first_state,
    lag(state * {n_actions} + action) over (partition by episode order by state, action, i)
        is distinct from state * {n_actions} + action as first_pair
from {source}
"""

EVIDENCE = """
select pair, count(*) as n, sum(g) as q_sum, sum(g * g) as q_sumsq,
    count(*) filter (first_state) as m,
    coalesce(sum(g) filter (first_state), 0) as v_sum,
    coalesce(sum(g * g) filter (first_state), 0) as v_sumsq
from steps where first_pair group by pair
"""

SEGMENTS = """
create temp table segments as
select r.row, z.k, z.g - coalesce(power({gamma}, z.k) * z.g_next, 0) as gain, z.column_next
from (
    select pair, first_pair, g,
        case when e_next = episode then i_next - i end as k,
        case when e_next = episode then g_next end as g_next,
        column_next
    from (
        select s.pair, s.first_pair, s.g, s.i, s.episode,
            lead(s.i) over w as i_next, lead(s.g) over w as g_next,
            lead(s.episode) over w as e_next, lead(p."column") over w as column_next
        from steps s join points p on s.state = p.state
        window w as (order by s.i)
    )
) z join allowed r on z.pair = r.pair
where z.first_pair
"""

ENTRIES = """
select row, column_next as "column", power({gamma}, k) as value from segments where k is not null
"""


def solve(con, source: str, data: dict, gamma: float, n_min: int) -> Result:
    """The work after G: `source` names a relation with i, episode, state, action, g."""
    shape = n_states, n_actions = data["n_states"], data["n_actions"]
    con.execute(FIRSTS.format(n_actions=n_actions, source=source))
    table = con.execute(EVIDENCE).fetchnumpy()
    found = {}
    for name in ("n", "m", "q_sum", "q_sumsq", "v_sum", "v_sumsq"):
        full = np.zeros(n_states * n_actions, np.int64 if name in "nm" else float)
        full[table["pair"]] = table[name]
        found[name] = full.reshape(shape)
    del table

    n = found["n"]
    allowed = allowed_pairs(n, found["m"], found["q_sum"], found["v_sum"], n_min)
    point = np.flatnonzero(allowed.any(axis=1)).astype(np.int32)
    pair = np.flatnonzero(allowed).astype(np.int32)
    order = np.arange(len(pair), dtype=np.int32)
    con.register("points", pa.table({"state": point, "column": order[: len(point)]}))
    con.register("allowed", pa.table({"pair": pair, "row": order}))
    con.execute(SEGMENTS.format(gamma=gamma))
    con.execute("drop table steps")
    gains = con.execute("select row, sum(gain) as gain from segments group by row").fetchnumpy()
    total = np.zeros(len(pair))
    total[gains["row"]] = gains["gain"]
    entries = con.execute(ENTRIES.format(gamma=gamma)).fetchnumpy()
    count = n[allowed]
    where = entries["row"], entries["column"]
    D = sparse.coo_matrix((entries["value"], where), (len(pair), len(point))).tocsr()
    D.data /= np.repeat(count, np.diff(D.indptr))
    return Result(**found, R=total / count, D=D)


def columns(data: dict) -> dict:
    """Step number and episode besides state and action."""
    starts = data["starts"]
    lengths = np.diff(starts)
    return {
        "i": np.arange(len(data["state"]), dtype=np.int32),
        "episode": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
        "state": data["state"],
        "action": data["action"],
    }


def run(data: dict, gamma: float, n_min: int) -> Result:
    """G by the numpy helper, the rest in SQL."""
    g = returns_to_go(data["reward"], data["starts"], gamma)
    with duckdb.connect() as con:
        con.register("log", pa.table(columns(data) | {"g": g}))
        return solve(con, "log", data, gamma, n_min)


def run_sql(data: dict, gamma: float, n_min: int) -> Result:
    """Everything in SQL."""
    starts = data["starts"]
    size = max(1, min(1024, int(math.log(0.5) / math.log(gamma)))) if gamma < 1 else 1024
    start = np.repeat(starts[:-1].astype(np.int32), np.diff(starts))
    log = columns(data) | {"reward": data["reward"], "start": start}
    with duckdb.connect() as con:
        con.register("log", pa.table(log))
        con.execute(RETURNS.format(gamma=repr(float(gamma)), size=size))
        return solve(con, "returns", data, gamma, n_min)
