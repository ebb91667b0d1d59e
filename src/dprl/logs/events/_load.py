"""From the user's files to tables of DuckDB: codes, roles, subjects, and events in parts.

Tables: `codes` (id, code, n), `roles` (role, id, rank: which codes each place of the spec means),
`subjects` (subject, last: the time of the last row of any code), and the events that some place
means, dealt by subject into parts that fit into memory, each a table or a Parquet file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl.errors import LogError
from dprl.logs._findings import Finding
from dprl.logs._text import fold
from dprl.logs.events._build_findings import code_findings
from dprl.logs.events._codes import resolve
from dprl.logs.events._database import text
from dprl.logs.events._fields import place
from dprl.logs.events._moments import how_to_write
from dprl.logs.events._source import SAY_IN_SOURCE, event_rows

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["PER_PART", "Loaded", "load"]

PER_PART = 4_000_000
"""Events of one part: what is worked on at once. Results do not depend on it."""
PLACES = 12
"""Decimal places of values that are added, where the spec does not say: exact in any order."""


@dataclass(frozen=True)
class Loaded:
    """What was read.

    Attributes:
        parts: SQL of the events of each part: subject, t, u, k, id, v. A subject is in the part
            of number hash(subject) % len(parts).
        counts: Name of a count → rows or subjects, for the flow.
        dates: Whether times are dates, and not numbers.
        findings: What is to be said about the codes of the spec and of the data.
    """

    parts: tuple[str, ...]
    counts: dict[str, int]
    dates: bool
    findings: tuple[Finding, ...]


def load(con: Any, spec: Spec, files: Sequence[str], folder: Path, only: Any = None) -> Loaded:
    """Read the events that a spec needs.

    Args:
        con: A DuckDB connection.
        spec: The spec.
        files: The files of events; for OMOP the folder or the DuckDB file.
        folder: A folder for parts on disk.
        only: One subject, if only its events are wanted. Default None: all.

    Raises:
        LogError: A row cannot be understood, or a code is in no row.
    """
    with _rows_of(con, spec, files) as rows:
        con.execute(f"CREATE VIEW {'raw_rows' if spec.source.labels else 'rows'} AS {rows}")
        if spec.source.labels:
            _fold_codes(con, spec.source.labels)
        return _load_rows(con, spec, folder, only)


@contextmanager
def _rows_of(con: Any, spec: Spec, files: Sequence[str]) -> Iterator[str]:
    """Give SQL of the events, in the form of `dprl.logs.events._source`."""
    if spec.source.preset == "omop":
        from dprl.logs.events._omop import omop_rows

        yield omop_rows(con, files)
    else:
        with event_rows(con, spec, files) as rows:
            yield rows


def _fold_codes(con: Any, labels: str) -> None:
    """Make the view `rows`, in which codes are trimmed or written small, as was asked."""
    codes = [row[0] for row in con.execute("SELECT DISTINCT code FROM raw_rows").fetchall()]
    con.execute("CREATE TEMP TABLE folds (code VARCHAR, plain VARCHAR)")
    _insert(con, "folds", [(code, fold(code, labels)) for code in codes if code is not None])
    con.execute(
        "CREATE VIEW rows AS SELECT r.* REPLACE (f.plain AS code) FROM raw_rows AS r "
        "LEFT JOIN folds AS f ON r.code = f.code"
    )


def _insert(con: Any, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows into a table, many at once."""
    for start in range(0, len(rows), 1000):
        some = rows[start : start + 1000]
        marks = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
        con.execute(f"INSERT INTO {table} VALUES {marks}", [x for row in some for x in row])


def _load_rows(con: Any, spec: Spec, folder: Path, only: Any) -> Loaded:
    """Make the tables of this module from the view `rows`."""
    _read_codes(con, spec)
    rows_of = dict(con.execute("SELECT code, n FROM codes WHERE id > 0 ORDER BY id").fetchall())
    con.execute("CREATE TABLE roles (role VARCHAR, id INTEGER, rank INTEGER)")
    named = resolve(spec, list(rows_of))
    findings = code_findings(spec, rows_of, [code for _, code, _ in named])
    _read_roles(con, named, spec)
    con.execute(
        "CREATE TABLE subjects AS SELECT subject, max(t) AS last FROM rows GROUP BY subject"
    )
    counts = {
        "events": _one(con, "SELECT sum(n)::BIGINT FROM codes"),
        "static": _one(con, "SELECT sum(n_static)::BIGINT FROM codes"),
        "subjects": _one(con, "SELECT count(*) FROM subjects"),
        "used": _one(con, "SELECT sum(n)::BIGINT FROM codes WHERE id IN (SELECT id FROM roles)"),
    }
    distinct = "DISTINCT " if spec.source.duplicates == "drop" else ""
    mine = ""
    if only is not None:
        con.execute("SET VARIABLE only_subject = ?", [str(only)])
        mine = " AND CAST(subject AS VARCHAR) = getvariable('only_subject')"
    used = (
        f"SELECT {distinct}subject, t, u, k, c.id, v FROM rows JOIN codes AS c USING (code) "
        f"WHERE c.id IN (SELECT id FROM roles){mine}"
    )
    n_parts = 1 if only is not None else -(-counts["used"] // PER_PART) or 1
    parts: tuple[str, ...]
    if n_parts == 1:
        con.execute(f"CREATE TABLE events AS {used}")
        parts = ("SELECT * FROM events",)
    else:
        con.execute(
            f"COPY (SELECT *, CAST(hash(subject) % {n_parts} AS INTEGER) AS part FROM ({used})) "
            f"TO {text(str(folder))} (FORMAT parquet, PARTITION_BY (part), COMPRESSION lz4)"
        )
        con.execute(f"CREATE TABLE events AS SELECT * FROM ({used}) LIMIT 0")
        parts = tuple(
            f"SELECT subject, t, u, k, id, v FROM read_parquet("
            f"{text(str(folder / f'part={i}' / '*.parquet'))}, hive_partitioning = false)"
            if (folder / f"part={i}").is_dir()
            else "SELECT * FROM events"
            for i in range(n_parts)
        )
    _check_values(con, spec, parts)
    return Loaded(parts, counts, spec.source.time_unit == "", tuple(findings))


def _one(con: Any, sql: str) -> int:
    return int(con.execute(sql).fetchone()[0] or 0)


def _read_codes(con: Any, spec: Spec) -> None:
    """Make the table `codes`, and refuse rows that cannot be understood."""
    import duckdb

    try:
        con.execute(
            "CREATE TABLE codes AS SELECT CAST(row_number() OVER (ORDER BY code NULLS FIRST) AS "
            "INTEGER) AS id, * FROM (SELECT code, count(*) AS n, count(*) - count(t) AS n_static, "
            "count(*) FILTER (WHERE subject IS NULL) AS n_nobody, "
            "count(*) FILTER (WHERE bad_time) AS n_bad_time, "
            "count(*) FILTER (WHERE zoned) AS n_zoned, count(*) FILTER (WHERE bad_value) AS n_bad, "
            "count(*) FILTER (WHERE u < t) AS n_backward, "
            "count(*) FILTER (WHERE mixed) AS n_mixed, min(odd_value) AS odd_value "
            "FROM rows GROUP BY code)"
        )
    except duckdb.Error as error:
        raise LogError(
            "the events could not be read.",
            str(error).splitlines()[0][:200],
            f"Open the file and look at the place named. {SAY_IN_SOURCE}",
        ) from error
    total, static, nobody, bad, zoned, backward, mixed = con.execute(
        "SELECT coalesce(sum(n), 0)::BIGINT, sum(n_static)::BIGINT, sum(n_nobody)::BIGINT, "
        "sum(n_bad_time)::BIGINT, sum(n_zoned)::BIGINT, sum(n_backward)::BIGINT, "
        "sum(n_mixed)::BIGINT FROM codes"
    ).fetchone()
    if not total:
        raise LogError("there are no events.", do="The files have columns and no rows.")
    no_code = _one(con, "SELECT sum(n) FROM codes WHERE code IS NULL")
    con.execute("INSERT INTO codes (id, code, n, n_static, n_bad) VALUES (0, '', 0, 0, 0)")
    source = spec.source
    if nobody:
        raise LogError(
            f"{source.subject!r} is missing on {nobody:,} of {total:,} rows.",
            _first(con, "subject IS NULL"),
            "Every event is about somebody.",
        )
    if no_code:
        raise LogError(
            f"{source.code!r} is missing on {no_code:,} of {total:,} rows.",
            _first(con, "code IS NULL"),
            "Every event needs a code.",
        )
    if bad:
        odd = con.execute(
            "SELECT odd_time FROM rows WHERE bad_time ORDER BY subject, t, code LIMIT 1"
        ).fetchone()[0]
        raise LogError(
            f"{bad:,} of {total:,} rows have a time that cannot be read.",
            _first(con, "bad_time") + (f": {odd[:40]!r}" if odd else ""),
            how_to_write(odd or "", spec),
        )
    if zoned and zoned < total - static:
        raise LogError(
            f"{source.time!r} has a time zone on {zoned:,} of {total - static:,} rows.",
            _first(con, "NOT zoned AND t IS NOT NULL"),
            "Write all of them the same way: which is meant cannot be guessed.",
        )
    if mixed:
        raise LogError(
            f"{mixed:,} of {total:,} rows have a time zone in one of their times and none in "
            "another.",
            _first(con, "mixed"),
            "Write all of them the same way: which is meant cannot be guessed.",
        )
    if backward:
        raise LogError(
            f"{backward:,} of {total:,} rows end before they begin.",
            _first(con, "u < t"),
            "Mend them, or leave their end empty.",
        )


def _first(con: Any, where: str) -> str:
    """The first of the rows for which a condition holds, in words."""
    row = con.execute(
        f"SELECT CAST(subject AS VARCHAR), CAST(make_timestamp(t) AS VARCHAR), code FROM rows "
        f"WHERE {where} ORDER BY subject, t, code LIMIT 1"
    ).fetchone()
    return f"subject {row[0] or '?'}, time {row[1] or '?'}, code {row[2] or '?'}"


def _read_roles(con: Any, rows: Sequence[tuple[str, str, int]], spec: Spec) -> None:
    """Fill the table `roles`; codes of intervals that are made get ids below 0."""
    made = {interval.name: -i - 1 for i, interval in enumerate(spec.intervals)}
    if made:
        con.executemany(
            "INSERT INTO codes (id, code, n, n_static, n_bad) VALUES (?, ?, 0, 0, 0)",
            [[number, name] for name, number in made.items()],
        )
    con.execute("CREATE TEMP TABLE named (role VARCHAR, code VARCHAR, rank INTEGER)")
    _insert(con, "named", rows)
    con.execute("INSERT INTO roles SELECT role, id, rank FROM named JOIN codes USING (code)")


VALUED = ("last", "mean", "min", "max", "sum", "slope", "dose", "amount")
ADDED = ("mean", "sum", "dose", "amount")


def _check_values(con: Any, spec: Spec, parts: Sequence[str]) -> None:
    """Refuse values that are no numbers, infinite, or of a size that cannot be added exactly."""
    takes = [(f"f{i}", ("feature", i), f) for i, f in enumerate(spec.features)]
    takes += [(f"a{i}", ("action", "part", i), p) for i, p in enumerate(spec.action.parts)]  # type: ignore[misc]
    takes += [(f"r{i}", ("reward", i), r) for i, r in enumerate(spec.rewards)]  # type: ignore[misc]
    sizes: dict[str, tuple[Any, ...]] | None = None
    for role, path, table in takes:
        if table.take not in VALUED or not table.codes:
            continue
        bad = con.execute(
            "SELECT code, n_bad, n, odd_value FROM codes JOIN roles USING (id) WHERE role = ? "
            "AND n_bad > 0 ORDER BY code LIMIT 1",
            [role],
        ).fetchone()
        where = place(spec.lines, (*path, "codes"))
        if bad is not None:
            odd = str(bad[3] or "")
            comma = spec.source.decimal == "." and re.fullmatch(r"\s*[+-]?\d+,\d+\s*", odd)
            raise LogError(
                f"{bad[1]:,} of {bad[2]:,} rows of {bad[0]!r} have a value that is no number.",
                f"{where}; such as {odd[:40]!r}" if odd else where,
                'Say decimal = "," in [source] if the comma is before the fraction.'
                if comma
                else "Take 'count', 'any' or 'ever' of it, or mend the values.",
            )
        if sizes is None:
            sizes = _sizes(con, parts)
        low, high = table.valid or (float("-inf"), float("inf"))
        for code, infinite, largest, smallest in sizes.get(role, ()):
            if infinite and table.valid is None:
                raise LogError(
                    f"{infinite:,} rows of {code!r} have an infinite value.",
                    where,
                    "Say which values count: valid = [0, 500].",
                )
            places = getattr(table, "places", PLACES)
            least, most = 10.0 ** (6 - places), 10.0 ** (32 - places)
            if table.take in ADDED and (
                ((largest or 0) >= most and max(abs(low), abs(high)) >= most)
                or ((smallest or most) < least and low < least and high > -least)
            ):
                size = largest if (largest or 0) >= most else smallest
                raise LogError(
                    f"{code!r} has a value of size {size:g}, too far from 1 to be added exactly.",
                    where,
                    f"Values that are added lie between {least:g} and {most:g}: change the "
                    "unit, or say which values count with valid = [low, high].",
                )


def _sizes(con: Any, parts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Role → (code, infinite rows, largest size, smallest size above 0) of each of its codes."""
    every = " UNION ALL ".join(f"SELECT id, v FROM ({part})" for part in parts)
    rows = con.execute(
        "SELECT role, code, infinite, largest, smallest FROM roles JOIN codes USING (id) JOIN "
        "(SELECT id, count(*) FILTER (WHERE isinf(v)) AS infinite, "
        "max(abs(v)) FILTER (WHERE isfinite(v)) AS largest, "
        f"min(abs(v)) FILTER (WHERE v <> 0) AS smallest FROM ({every}) GROUP BY id) USING (id) "
        "ORDER BY role, code"
    ).fetchall()
    by_role: dict[str, tuple[Any, ...]] = {}
    for role, *facts in rows:
        by_role[role] = (*by_role.get(role, ()), tuple(facts))
    return by_role
