"""The rules of `dprl.read` about rows, asked by SQL: the same errors in the same words.

Each rule looks at all files without holding their rows. What only shows once rows are sorted
(duplicate times, groups that change, rows after an end) is noticed while they are stored; then the
rule here says where.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from dprl._core.words import either, option, worded
from dprl.errors import LogError
from dprl.logs._ending_rules import ENDINGS
from dprl.logs._parts_gaps import required_roles, rewards_at_the_end, rows_where
from dprl.logs._parts_table import SHORT, Table
from dprl.logs._reward_gaps import outcome_advice
from dprl.logs._rules import LARGEST_REWARD
from dprl.logs._sources import quoted
from dprl.logs.log import Label

__all__ = ["check_rows", "check_sorted", "check_values", "unsaid_or_early"]


def _many(n: int) -> str:
    return f"{n:,} episode{'s' * (n != 1)}"


def _one_of(values: Collection[Any]) -> str:
    """Values in brackets, as SQL needs them behind IN."""
    words = (quoted(v, "'") if isinstance(v, str) else str(int(v)) for v in values)
    return f"({', '.join(words)})"


def _value(table: Table, column: str, row: int) -> float:
    return float(table.one(f"SELECT {column} FROM ({table.numbered}) WHERE rn = {row}")[0])


def check_rows(table: Table) -> int:
    """Refuse rows that are missing something, or a reward that is no number; the number of rows."""
    asked = required_roles(table)
    counts = ", ".join(f"count(*) - count({SHORT[role]})" for role in asked)
    limit = f"NOT isinf(rw) AND abs(rw) > {LARGEST_REWARD!r}"
    n, infinite, large, *missing = table.one(
        f"SELECT count(*), count(*) FILTER (isinf(rw)), count(*) FILTER ({limit}), {counts} "
        f"FROM ({table.select()})"
    )
    if not n:
        raise LogError("the source holds no rows.", do="Check the file or query.")
    gone = {role: k for role, k in zip(asked, missing, strict=True) if k}
    name = {role: c.name for role, c in table.columns.items()}
    if k := gone.pop("episode", 0):
        raise LogError(
            f"{name['episode']!r} is missing on {k:,} of {n:,} rows.",
            table.place(rows_where(table, "ep IS NULL")[1]),
            "A row without an episode belongs nowhere: fill it, or delete these rows.",
        )
    if gone:
        _refuse_missing(table, gone, n)
    if infinite:
        raise LogError(
            f"{name['reward']!r} is infinite on {infinite:,} of {n:,} rows.",
            table.place(rows_where(table, "isinf(rw)")[1]),
            "Replace it by a number, or leave it empty.",
        )
    if large:
        row = rows_where(table, limit)[1]
        raise LogError(
            f"{name['reward']!r} is beyond ±{LARGEST_REWARD:.0e} on {large:,} of {n:,} rows.",
            f"{table.place(row)}: {_value(table, 'rw', row):g}",
            "This looks like a code for 'missing'; leave such cells empty.",
        )
    return int(n)


def _refuse_missing(table: Table, gone: Mapping[str, int], n: int) -> NoReturn:
    (role, first), *others = gone.items()
    name = {role: c.name for role, c in table.columns.items()}
    also = "".join(f", {name[r]!r} on {k:,}" for r, k in others[:4])
    also += f", {len(others) - 4:,} more columns on some" if len(others) > 4 else ""
    touched = rows_where(table, " OR ".join(f"{SHORT[r]} IS NULL" for r in gone))[2]
    raise LogError(
        f"{name[role]!r} is missing on {first:,} of {n:,} rows{also}.",
        f"{table.place(rows_where(table, f'{SHORT[role]} IS NULL')[1])}; {_many(touched)} touched.",
        (outcome_advice(rewards_at_the_end(table), name[role]) if role == "reward" else "")
        or worded(
            "A return is a whole tail of an episode. Fill it, or leave such episodes out: "
            "{missing}.",
            missing=option("missing", "drop-episodes"),
        ),
    )


def check_values(
    table: Table,
    n: int,
    menus: Mapping[str, tuple[Any, ...]],
    endings: Mapping[Any, int],
    declared: Mapping[str, tuple[Sequence[Any], Sequence[Label] | None]],
    bounds: tuple[float, float] | None,
    events: Sequence[str],
) -> None:
    """Refuse values that contradict each other, or what the user declared.

    Args:
        table: The rows.
        n: How many there are.
        menus: Value of the column of available actions → the actions.
        endings: Value of the column of endings → its meaning, 0 for none.
        declared: "state" and "action" → the values that occur, and those that may; None for any.
        bounds: Smallest and largest possible reward; None for any.
        events: Names of the competing events.
    """
    name = {role: c.name for role, c in table.columns.items()}
    if table.has("available"):
        _check_menus(table, n, menus)
    if table.has("propensity"):
        _check_chances(table, n, menus)
    words = [word for word, meaning in endings.items() if not meaning]
    if words:
        check_sorted(table)
        count, row, _ = rows_where(table, f"en IN {_one_of(words)}")
        raw = table.one(f"SELECT en FROM ({table.numbered}) WHERE rn = {row}")[0]
        word = table.columns["ended"].label(raw)
        besides = "".join(f" nor {event}" for event in events)
        raise LogError(
            f"{name['ended']!r} holds {word!r}, "
            f"which is neither terminal nor cut{besides} ({count:,} of {n:,} rows).",
            table.place(row),
            worded(
                "Write terminal or cut (also true or false; censored means cut) on the last row "
                "of each episode. If it is an event that ends an episode, name it: {choice}.",
                choice=either(f"events=[{str(word)!r}]", f"--events {word!s}"),
            ),
        )
    if not table.has("time"):
        _check_runs(table)
    for role, (values, may_occur) in declared.items():
        new = [] if may_occur is None else [v for v in values if v not in set(may_occur)]
        if new:
            check_sorted(table)
            count, row, _ = rows_where(table, f"{SHORT[role]} IN {_one_of(new)}")
            raw = table.one(f"SELECT {SHORT[role]} FROM ({table.numbered}) WHERE rn = {row}")[0]
            raise LogError(
                f"{name[role]!r} holds {len(new):,} labels that were not declared "
                f"({count:,} of {n:,} rows).",
                f"{table.place(row)}: {table.columns[role].label(raw)!r}",
                f"Add them to {role}s=, or mend the rows.",
            )
    if bounds is not None:
        count, row, _ = rows_where(table, f"rw < {float(bounds[0])!r} OR rw > {float(bounds[1])!r}")
        if count:
            check_sorted(table)
            raise LogError(
                f"{name['reward']!r} leaves the declared range {bounds[0]:g}..{bounds[1]:g} on "
                f"{count:,} of {n:,} rows.",
                f"{table.place(row)}: {_value(table, 'rw', row):g}",
                "Mend these rows, or declare the range that is true.",
            )


def _check_menus(table: Table, n: int, menus: Mapping[str, tuple[Any, ...]]) -> None:
    column = table.columns["action"]
    pairs = table.all(f"SELECT DISTINCT ac, av FROM ({table.select()})")
    wrong = [(ac, av) for ac, av in pairs if column.label(ac) not in menus[av]]
    if not wrong:
        return
    check_sorted(table)
    some = " OR ".join(f"(ac = {_one_of([a])} AND av = {_one_of([m])})" for a, m in wrong)
    count, row, _ = rows_where(table, some)
    taken, offer = table.one(f"SELECT ac, av FROM ({table.numbered}) WHERE rn = {row}")
    raise LogError(
        f"an action not in {table.names['available']!r} was taken on {count:,} of {n:,} rows.",
        f"{table.place(row)}: took {column.label(taken)!r}, available "
        f"{', '.join(map(str, menus[offer])) or 'nothing'}",
        "Mend the available column, or leave it out.",
    )


def _check_chances(table: Table, n: int, menus: Mapping[str, tuple[Any, ...]]) -> None:
    name = table.names["propensity"]
    alone = [value for value, menu in menus.items() if len(menu) == 1]
    rules = [
        (
            "pr <= 0 OR pr > 1",
            f"{name!r} is not above 0 and at most 1 on {{count:,}} of {n:,} rows.",
            "It is the chance with which the action taken was taken; leave it empty where it is "
            "unknown.",
        )
    ]
    if alone:
        rules.append(
            (
                f"pr < 1 AND av IN {_one_of(alone)}",
                f"{name!r} is below 1 where only one action is in "
                f"{table.names['available']!r}, on {{count:,}} of {n:,} rows.",
                "What nothing else could replace was done with chance 1: mend one of the two "
                "columns.",
            )
        )
    for condition, what, do in rules:
        count, row, _ = rows_where(table, condition)
        if count:
            check_sorted(table)
            where = f"{table.place(row)}: {_value(table, 'pr', row):g}"
            raise LogError(what.format(count=count), where, do)


def _check_runs(table: Table) -> None:
    """Refuse rows of an episode that do not stand together where there is no time column."""
    begins = (
        f"SELECT rn, ep FROM (SELECT rn, ep, lag(ep) OVER (ORDER BY rn) AS before FROM "
        f"({table.numbered})) WHERE before IS NULL OR ep <> before"
    )
    runs, episodes = table.one(f"SELECT count(*), count(DISTINCT ep) FROM ({begins})")
    if runs == episodes:
        return
    row = table.one(
        f"SELECT min(rn) FROM (SELECT rn, row_number() OVER (PARTITION BY ep ORDER BY rn) AS k "
        f"FROM ({begins})) WHERE k > 1"
    )[0]
    raise LogError(
        f"rows of an episode do not stand together ({runs:,} runs of rows, "
        f"{episodes:,} episodes), and no time column was named.",
        table.place(int(row)),
        "Name a time column, sort the rows, or give episodes of different files different ids.",
    )


def check_sorted(table: Table) -> None:
    """Refuse two rows of an episode with one time, and an episode of two groups."""
    if table.has("time"):
        _check_times(table)
    if table.has("group"):
        _check_groups(table)


def _check_times(table: Table) -> None:
    twice = f"SELECT ep, ti, count(*) AS k FROM ({table.select()}) GROUP BY ep, ti HAVING k > 1"
    twins, episodes = table.one(f"SELECT sum(k - 1), count(DISTINCT ep) FROM ({twice})")
    if not twins:
        return
    values = [*table.files.values, *table.files.values]
    first, second = table.files.run(
        f"SELECT before, rn FROM (SELECT rn, lag(rn) OVER (PARTITION BY ep, ti ORDER BY rn) AS "
        f"before FROM ({table.numbered}) SEMI JOIN ({twice}) USING (ep, ti)) "
        "WHERE before IS NOT NULL ORDER BY rn LIMIT 1",
        values,
    ).fetchone()
    raise LogError(
        f"{int(twins):,} rows share {table.names['episode']!r} and {table.names['time']!r} with "
        "another.",
        f"{table.place(int(second))}, same as row {int(first):,}; {_many(int(episodes))} touched.",
        "There can be one decision per time: merge these rows, or make the times finer.",
    )


def _check_groups(table: Table) -> None:
    last = (
        f"SELECT ep, arg_max(gr, rn) AS own FROM ({table.numbered}) GROUP BY ep "
        "HAVING min(gr) <> max(gr)"
    )
    values = [*table.files.values, *table.files.values]
    row, episodes = table.files.run(
        f"SELECT min(rn), count(DISTINCT ep) FROM ({table.numbered}) JOIN ({last}) USING (ep) "
        "WHERE gr <> own",
        values,
    ).fetchone()
    if not episodes:
        return
    raise LogError(
        f"{table.names['group']!r} changes within {_many(int(episodes))}.",
        table.place(int(row)),
        "A group is one or more whole episodes (a patient with several stays).",
    )


def unsaid_or_early(table: Table, endings: Mapping[Any, int]) -> None:
    """Refuse rows after the end of an episode, and a last row that does not say how it ended."""
    ends = [word for word, meaning in endings.items() if meaning and meaning != ENDINGS["cut"]]
    is_end = f"coalesce(en IN {_one_of(ends)}, false)" if ends else "false"
    order = "ti" if table.has("time") else "rn"
    marked = (
        f"SELECT rn, ep, en, {is_end} AS is_end, {order} = max({order}) OVER (PARTITION BY ep) AS "
        f"is_last, bool_and({is_end}) OVER (PARTITION BY ep) AS whole FROM ({table.numbered})"
    )
    for condition, what, do in (
        ("is_end AND NOT is_last AND NOT whole", "rows follow a terminal mark",
         "Start a new episode after each end."),
        ("is_last AND en IS NULL", "the last row does not say how it ended",
         "Write terminal or cut there."),
    ):  # fmt: skip
        row, episodes = table.one(
            f"SELECT min(rn), count(DISTINCT ep) FROM ({marked}) WHERE {condition}"
        )
        if episodes:
            raise LogError(
                f"{table.names['ended']!r}: {what} in {_many(int(episodes))}.",
                table.place(int(row)),
                do,
            )
