"""Rows of the user's files in one form, whatever they are called and however times are written.

The form, one row per event: subject, t (microseconds since 1970 in UTC; NULL for static rows), u
(the end; NULL where there is none), k (when it could be read), code, v (a number or NULL), and
marks of rows that cannot be understood: bad_time, bad_value, zoned (its time has a time zone) and
mixed (only some of its times have one).

Moments with a time zone are taken in UTC; moments without one as they are. A date without an hour
is known when the day is over, and an end without an hour is the end of that day. A row is never
known before its time; one whose column `known` is empty never is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dprl._core.zones import TEXT
from dprl.errors import LogError
from dprl.logs._columns import MISSING_WORDS
from dprl.logs._scans import literal, open_files, scan_csv, scan_parquet
from dprl.logs._sources import no_column, quoted
from dprl.logs._text import Text
from dprl.logs.events._database import text, unsigned_zero
from dprl.logs.events._fields import HOUR, UNITS, place

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["DAY", "Moment", "event_rows", "moment", "scan"]

DAY = 24 * HOUR
NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "UTINYINT",
    "USMALLINT",
    "UINTEGER",
    "UBIGINT",
    "FLOAT",
    "DOUBLE",
)


@dataclass(frozen=True)
class Moment:
    """A column of times, as SQL.

    Attributes:
        micros: Microseconds since 1970; NULL where the time is missing or cannot be read.
        day: Whether only the day is given.
        bad: Whether there is a value, and it is no time.
        zoned: Whether it has a time zone.
    """

    micros: str
    day: str = "false"
    bad: str = "false"
    zoned: str = "false"


def moment(column: str, kind: str, unit: str, where: str) -> Moment:
    """A column of times as SQL.

    Args:
        column: Its name in SQL.
        kind: Its type in DuckDB.
        unit: The unit of numbers; "" if times are dates.
        where: The place of the unit in the spec, for messages.

    Raises:
        LogError: The column holds numbers without a unit, dates with one, or something else.
    """
    number = kind in NUMBERS or kind.startswith("DECIMAL")
    if unit and not number and kind != "VARCHAR":
        raise LogError(
            f"{column} holds dates, and time_unit is {unit!r}.",
            where,
            "Leave time_unit out: it is for times that are numbers.",
        )
    if number and not unit:
        raise LogError(
            f"{column} holds numbers, and their unit is not said.",
            where,
            'Write time_unit = "h" in [source].',
        )
    if unit:
        value = f"TRY_CAST({column} AS DOUBLE)"
        micros = f"TRY_CAST(round({value} * {UNITS[unit]}) AS BIGINT)"
        return Moment(micros, bad=f"({column} IS NOT NULL AND {micros} IS NULL)")
    if kind == "VARCHAR":
        # older versions of DuckDB want seconds where there is a zone
        whole = f"regexp_replace({column}, '([ T]\\d\\d?:\\d\\d)(\\s*(Z|[+-]\\d))', '\\1:00\\2')"
        parsed = f"TRY_CAST({whole} AS TIMESTAMPTZ)"
        day = f"regexp_full_match({column}, '\\s*\\d{{4}}-\\d\\d?-\\d\\d?\\s*')"
        zoned = f"coalesce(regexp_matches({column}, {text(TEXT)}), false)"
        bad = f"({column} IS NOT NULL AND NOT coalesce(isfinite({parsed}), false))"
        return Moment(_micros(parsed), day, bad, zoned)
    if kind == "DATE":
        parsed = f"CAST({column} AS TIMESTAMP)"
        return Moment(_micros(parsed), "true", f"(NOT isfinite({column}))")
    if kind.startswith("TIMESTAMP"):
        target = "TIMESTAMPTZ" if kind == "TIMESTAMP WITH TIME ZONE" else "TIMESTAMP"
        parsed = f"CAST({column} AS {target})"
        zoned = str(target == "TIMESTAMPTZ").lower()
        return Moment(_micros(parsed), bad=f"(NOT isfinite({parsed}))", zoned=zoned)
    raise LogError(
        f"{column} holds {kind.lower()} values, which are not times.",
        where,
        "Name a column of dates, or of numbers with time_unit.",
    )


def _micros(parsed: str) -> str:
    return f"CASE WHEN isfinite({parsed}) THEN epoch_us({parsed}) END"


def scan(files: Any, run: Any) -> tuple[str, list[str]]:
    """SQL that reads CSV (as text) or Parquet files, and the files."""
    names, kind = open_files(files)
    if kind == "csv":
        sql, values = scan_csv(names, MISSING_WORDS, False, Text())
    else:
        sql, values = scan_parquet(names, MISSING_WORDS, False, run)
    for value in values:
        literals = f"[{', '.join(map(text, value))}]"
        for reader in ("read_csv(?", "read_parquet(?"):
            sql = sql.replace(reader, reader[:-1] + literals, 1)
    return sql, names


def event_rows(con: Any, spec: Spec, files: Sequence[str]) -> str:
    """SQL of all events in the form of this module.

    Raises:
        LogError: Files cannot be read, a column is missing, or times are of two kinds.
    """
    import duckdb

    source = spec.source
    if not files:
        raise LogError(
            "no file of events is named.",
            place(spec.lines, ("source", "files")),
            'Write files = "events/*.parquet" in [source], or name them.',
        )
    try:
        rows, names = scan(files, con.execute)
        described = con.execute(f"DESCRIBE {rows}").fetchall()
    except duckdb.Error as error:
        raise LogError("the events could not be read.", str(error).splitlines()[0][:200],
                       "Every file needs the same columns.") from error  # fmt: skip
    kinds = {row[0]: str(row[1]) for row in described}
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
    )


def canonical(
    rows: str, columns: Mapping[str, str], kinds: Mapping[str, str], unit: str, where: str
) -> str:
    """SQL of rows in the form of this module, from columns and their types."""
    time = moment(columns["time"], kinds["time"], unit, where)
    end = readable = Moment("CAST(NULL AS BIGINT)")
    if columns["end"]:
        end = moment(columns["end"], kinds["end"], unit, where)
    if columns["known"]:
        readable = moment(columns["known"], kinds["known"], unit, where)
    mixed = [
        f"({columns[part]} IS NOT NULL AND {one.zoned} <> {time.zoned})"
        for part, one in (("end", end), ("known", readable))
        if columns[part]
    ]
    value, bad_value = "CAST(NULL AS DOUBLE)", "false"
    if columns["value"]:
        value = f"TRY_CAST({columns['value']} AS DOUBLE)"
        bad_value = f"({columns['value']} IS NOT NULL AND {value} IS NULL)"
    seen = readable if columns["known"] else time
    return (
        f"SELECT {columns['subject']} AS subject, {time.micros} AS t, "
        f"{end.micros} + {_over(end.day)} AS u, "
        f"CASE WHEN {seen.micros} IS NOT NULL "
        f"THEN greatest({time.micros}, {seen.micros} + {_over(seen.day)}) END AS k, "
        f"CAST({columns['code']} AS VARCHAR) AS code, "
        f"CASE WHEN isnan({value}) THEN NULL ELSE {unsigned_zero(value)} END AS v, "
        f"({time.bad} OR {end.bad} OR {readable.bad}) AS bad_time, {bad_value} AS bad_value, "
        f"{time.zoned} AS zoned, {' OR '.join(mixed) or 'false'} AS mixed FROM ({rows})"
    )


def _over(day: str) -> str:
    """SQL of the microseconds until a day is over, where only the day is given."""
    return "0" if day == "false" else f"CASE WHEN {day} THEN {DAY} ELSE 0 END"


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
