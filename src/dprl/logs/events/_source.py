"""Rows of the user's files in one form, whatever they are called and however times are written.

The form, one row per event: subject, t (microseconds since 1970 in UTC; NULL for static rows), u
(the end; NULL where there is none), k (when it could be read), code, v (a number or NULL), and
marks of rows that cannot be understood: bad_time, bad_value, zoned (its time has a time zone),
mixed (only some of its times have one), and odd_time and odd_value (what is written there).

Moments with a time zone are taken in UTC; moments without one as they are, or in the zone that the
source names. A date without an hour is known when the day is over, and an end without an hour is
the end of that day. A row is never known before its time; one whose column `known` is empty never
is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dprl.errors import LogError
from dprl.logs._columns import MISSING_WORDS
from dprl.logs._recoded import Recoded
from dprl.logs._scans import literal, open_files, scan_csv, scan_parquet
from dprl.logs._sources import no_column, quoted
from dprl.logs._text import SAY_ENCODING, Text
from dprl.logs.events._database import text, unsigned_zero
from dprl.logs.events._fields import place
from dprl.logs.events._moments import (
    Moment,
    Written,
    check_written,
    decimal_number,
    moment,
    written_of,
)

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["event_rows", "scan"]

SAY_IN_SOURCE = (
    "CSV files are UTF-8 text; where they are written otherwise, say how in [source]: encoding = "
    '"cp1252" for most files from Windows, "latin-1", "utf-16" or another.'
)
"""What to do about events whose letters cannot be read."""


@contextmanager
def scan(files: Any, run: Any, words: Text) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Give SQL that reads CSV (as text) or Parquet files, the files, and the type of each column.

    In the block alone: CSV files in encodings that DuckDB does not have are read from copies.
    """
    import duckdb

    names, kind = open_files(files)
    copies = None
    if kind == "csv":
        try:
            read = names
            if words.foreign(names):
                spill = run("SELECT current_setting('temp_directory')").fetchone()[0]
                room = os.path.realpath(os.path.dirname(spill))  # where the connection may read
                copies = Recoded(names, words.encoding, room)
                read, words = copies.files, replace(words, encoding="utf-8")
            sql, values = scan_csv(read, MISSING_WORDS, False, words)
        except LogError as error:
            do = SAY_IN_SOURCE if error.do == SAY_ENCODING else error.do
            raise LogError(error.what, error.where, do) from error
    try:
        if kind == "parquet":
            sql, values = scan_parquet(names, MISSING_WORDS, False, run)
        for value in values:
            literals = f"[{', '.join(map(text, value))}]"
            for reader in ("read_csv(?", "read_parquet(?"):
                sql = sql.replace(reader, reader[:-1] + literals, 1)
        try:
            kinds = {row[0]: str(row[1]) for row in run(f"DESCRIBE {sql}").fetchall()}
        except duckdb.Error as error:
            raise LogError("the events could not be read.", str(error).splitlines()[0][:200],
                           "Every file needs the same columns.") from error  # fmt: skip
        yield sql, names, kinds
    finally:
        if copies is not None:
            copies.remove()


@contextmanager
def event_rows(con: Any, spec: Spec, files: Sequence[str]) -> Iterator[str]:
    """Give SQL of all events in the form of this module; it can be run in the block alone.

    Raises:
        LogError: Files cannot be read, a column is missing, or times are of two kinds.
        SpecError: The zone does not exist, or the format of dates cannot be read.
    """
    source = spec.source
    if not files:
        raise LogError(
            "no file of events is named.",
            place(spec.lines, ("source", "files")),
            'Write files = "events/*.parquet" in [source], or name them.',
        )
    check_written(con, spec)
    written = written_of(source)
    with scan(files, con.execute, written.text) as (rows, names, kinds):
        yield _named(con, spec, rows, names, kinds, written)


def _named(
    con: Any,
    spec: Spec,
    rows: str,
    names: Sequence[str],
    kinds: Mapping[str, str],
    written: Written,
) -> str:
    """SQL of rows in the form of this module, from the columns that the spec names."""
    source = spec.source
    wanted = {
        part: getattr(source, part) for part in ("subject", "time", "code", "value", "end", "known")
    }
    if source.preset == "meds" and wanted["value"] not in kinds:
        wanted["value"] = ""  # the column is optional in MEDS
    for part, name in wanted.items():
        if name and name not in kinds:
            wrong = no_column(name, list(kinds), part)
            raise LogError(
                wrong.what,
                wrong.where,
                f'Name the right one: {part} = "..." in [source].'
                if "--" in wrong.do
                else wrong.do,
            )
    if names[0].lower().endswith((".parquet", ".pq")):
        _refuse_two_kinds(
            con, names, [wanted[part] for part in ("time", "end", "known") if wanted[part]]
        )
    unit_place = place(spec.lines, ("source", "time_unit"))
    return canonical(
        rows,
        {part: quoted(name) if name else "" for part, name in wanted.items()},
        {part: kinds.get(name, "") for part, name in wanted.items()},
        source.time_unit,
        unit_place,
        written,
    )


def canonical(
    rows: str,
    columns: Mapping[str, str],
    kinds: Mapping[str, str],
    unit: str,
    where: str,
    written: Written,
) -> str:
    """SQL of rows in the form of this module, from columns and their types."""
    time = moment(columns["time"], kinds["time"], unit, where, written)
    end = readable = Moment("CAST(NULL AS BIGINT)")
    if columns["end"]:
        end = moment(columns["end"], kinds["end"], unit, where, written)
    if columns["known"]:
        readable = moment(columns["known"], kinds["known"], unit, where, written)
    mixed = [
        f"({columns[part]} IS NOT NULL AND {one.zoned} <> {time.zoned})"
        for part, one in (("end", end), ("known", readable))
        if columns[part]
    ]
    odd_times = [
        f"CASE WHEN {one.bad} THEN CAST({columns[part]} AS VARCHAR) END"
        for part, one in (("time", time), ("end", end), ("known", readable))
        if columns[part]
    ]
    value, bad_value, odd_value = "CAST(NULL AS DOUBLE)", "false", "CAST(NULL AS VARCHAR)"
    if columns["value"]:
        value = decimal_number(columns["value"], kinds["value"], written.text.decimal)
        odd_value = f"CASE WHEN {value} IS NULL THEN CAST({columns['value']} AS VARCHAR) END"
        bad_value = f"({columns['value']} IS NOT NULL AND {value} IS NULL)"
    seen = readable if columns["known"] else time
    return (
        f"SELECT {columns['subject']} AS subject, {time.micros} AS t, "
        f"{end.over} AS u, "
        f"CASE WHEN {seen.micros} IS NOT NULL "
        f"THEN greatest({time.micros}, {seen.over}) END AS k, "
        f"CAST({columns['code']} AS VARCHAR) AS code, "
        f"CASE WHEN isnan({value}) THEN NULL ELSE {unsigned_zero(value)} END AS v, "
        f"({time.bad} OR {end.bad} OR {readable.bad}) AS bad_time, {bad_value} AS bad_value, "
        f"{time.zoned} AS zoned, {' OR '.join(mixed) or 'false'} AS mixed, "
        f"coalesce({', '.join(odd_times)}) AS odd_time, {odd_value} AS odd_value FROM ({rows})"
    )


def _refuse_two_kinds(con: Any, files: Sequence[str], columns: Sequence[str]) -> None:
    """Refuse Parquet files of which some have times with a zone and others without."""
    for column in columns:
        rows = con.execute(
            "SELECT min(file_name), contains(coalesce(logical_type, ''), 'UTC=1') AS zoned "
            "FROM parquet_schema(?) WHERE name = ? GROUP BY zoned ORDER BY zoned",
            [[literal(file) for file in files], column],
        ).fetchall()
        if len(rows) > 1:
            raise LogError(
                f"{column!r} has a time zone in some files and none in others.",
                f"with one: {rows[1][0]}; without: {rows[0][0]}",
                "Write all of them the same way: which is meant cannot be guessed.",
            )
