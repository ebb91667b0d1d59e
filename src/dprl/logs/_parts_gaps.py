"""Missing values of a log in parts: dropped, flagged or 0, as `dprl.read` does; asked by SQL."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dprl.errors import LogError
from dprl.logs._gaps import GONE, label_taken, whole_numbers
from dprl.logs._parts_table import SHORT, Table
from dprl.logs._reward_gaps import AtTheEnd, no_outcome
from dprl.logs._sources import quoted
from dprl.logs.columns import ROLES

__all__ = [
    "drop_missing",
    "flag_missing",
    "required_roles",
    "rewards_at_the_end",
    "rows_where",
    "usual_in_parts",
    "zero_rewards",
]


def rows_where(table: Table, condition: str) -> tuple[int, int, int]:
    """How many rows meet a condition, the number of the first, and how many episodes they touch."""
    n, first, touched = table.one(
        f"SELECT count(*), min(rn), count(DISTINCT ep) FROM ({table.numbered}) WHERE {condition}"
    )
    return int(n), int(first or 0), int(touched)


def required_roles(table: Table) -> list[str]:
    """The roles whose values must not be missing, in the order in which they are named."""
    labels = [r.name for r in ROLES if r.holds in ("labels", "menus") and table.has(r.name)]
    return [*labels, "reward", *(["time"] if table.has("time") else [])]


def drop_missing(table: Table, columns: Collection[str]) -> str:
    """Drop the episodes in which a value is missing; what was dropped, in words, '' for nothing.

    Args:
        table: The rows.
        columns: The columns whose missing values count.
    """
    asked = required_roles(table)
    counts = ", ".join(f"count(*) - count({SHORT[role]})" for role in asked)
    gone = dict(zip(asked, table.one(f"SELECT {counts} FROM ({table.select()})"), strict=True))
    roles = [role for role, k in gone.items() if k and table.names[role] in columns]
    if gone["episode"] or not roles:
        return ""  # a row without an episode is an error
    condition = " OR ".join(f"{SHORT[role]} IS NULL" for role in roles)
    row = rows_where(table, condition)[1]
    place = table.place(row)
    dropped, episodes = table.drop(condition)
    names = ", ".join(repr(table.names[role]) for role in roles)
    words = f"{dropped:,} of {episodes:,} episodes were dropped for missing values in {names}."
    if dropped == episodes:
        raise LogError(words, place, "None is left: fill the missing values.")
    return words


def flag_missing(table: Table) -> None:
    """Give missing states a label of their own, as `dprl.read` does.

    Raises:
        LogError: The states have that label already, or they are no text.
    """
    column = table.columns["state"]
    gaps, row, _ = rows_where(table, "st IS NULL")
    if not gaps:
        return
    if column.kind != "text":
        raise whole_numbers(column.name, gaps, table.place(row))
    if table.one(f"SELECT 1 FROM ({table.select()}) WHERE st = {quoted(GONE, chr(39))} LIMIT 1"):
        raise label_taken(column.name, gaps, table.place(row))
    sql = f"coalesce({column.sql}, {quoted(GONE, chr(39))})"
    table.columns["state"] = replace(column, sql=sql)


def zero_rewards(table: Table) -> None:
    """Let a missing reward be 0, as `dprl.read` does.

    Raises:
        LogError: An episode has no reward at all.
    """
    column = table.columns["reward"]
    of_episodes = (
        f"SELECT ep, count(rw) AS k FROM ({table.select()}) WHERE ep IS NOT NULL GROUP BY ep"
    )
    episodes, without = table.one(f"SELECT count(*), count(*) FILTER (k = 0) FROM ({of_episodes})")
    if without:
        values = [*table.files.values, *table.files.values]
        row = table.files.run(
            f"SELECT min(rn) FROM ({table.numbered}) SEMI JOIN (FROM ({of_episodes}) WHERE k = 0) "
            "USING (ep)",
            values,
        ).fetchone()[0]
        raise no_outcome(column.name, int(without), int(episodes), table.place(int(row)))
    table.columns["reward"] = replace(column, sql=f"coalesce({column.sql}, 0.0)")


def rewards_at_the_end(table: Table) -> AtTheEnd:
    """On which rows rewards are recorded."""
    order = "ti" if table.has("time") else "rn"
    marked = (
        f"SELECT rw, {order} = max({order}) OVER (PARTITION BY ep) AS is_last "
        f"FROM ({table.numbered})"
    )
    counts = table.one(
        "SELECT count(rw) FILTER (is_last), count(*) FILTER (is_last), "
        f"count(rw) FILTER (NOT is_last), count(*) FILTER (NOT is_last) FROM ({marked})"
    )
    return AtTheEnd(*map(int, counts))


def usual_in_parts(table: Table) -> float:
    """The reward that half of the rows or more have; 0 where there is none."""
    row = table.one(
        f"SELECT rw, 2 * k >= sum(k) OVER () FROM (SELECT rw + 0.0 AS rw, count(*) AS k FROM "
        f"({table.select()}) GROUP BY ALL) ORDER BY k DESC, rw LIMIT 1"
    )
    return float(row[0]) if row is not None and row[1] else 0.0
