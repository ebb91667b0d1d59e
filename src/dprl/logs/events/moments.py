"""Columns of times as SQL: numbers with a unit, dates of a file's own type, and dates as text.

ISO dates (2024-03-01, with or without an hour and a zone) are always understood. Other dates are
read as the source declares (`dates`), as `dprl.read` reads them. A time without a zone is taken as
it is, or as the local time of the zone that the source names (`time_zone`).
"""

from __future__ import annotations

import datetime
import glob
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.checks import check_threads, wrong
from dprl._core.database import confine, connect, of_float, of_text
from dprl._core.disk import prefix_in
from dprl.errors import LogError
from dprl.logs.events.spec import HOUR, UNITS, SpecError, place
from dprl.logs.reading.columns import MISSING_WORDS, WHOLE
from dprl.logs.reading.dates import ODD
from dprl.logs.reading.files import Recoded
from dprl.logs.reading.frames import no_column, quoted
from dprl.logs.reading.paths import literal, open_files, scan_csv, scan_parquet
from dprl.logs.reading.text import SAY_ENCODING, Text
from dprl.logs.reading.times import TEXT, plainly, refuse_two_kinds

if TYPE_CHECKING:
    from dprl.logs.events.spec import Source, Spec


# --- A DuckDB database in a temporary folder, with a limit of memory


def text(word: str) -> str:
    """A text as SQL needs it."""
    return quoted(word, "'")


def number(value: float | None) -> str:
    """A number as SQL needs it, to the last bit."""
    return "CAST(NULL AS DOUBLE)" if value is None else f"CAST('{float(value)!r}' AS DOUBLE)"


def unsigned_zero(value: str) -> str:
    """SQL of a number in which a zero has no sign: -0.0 and 0.0 are one number, with other bits."""
    return f"CASE WHEN {value} = 0 THEN CAST(0 AS DOUBLE) ELSE {value} END"


def whole_label(column: str, kind: str) -> str:
    """SQL of a label, in which 1.0 is 1: pandas writes so beside a gap, and some files do not."""
    if kind not in ("VARCHAR", "FLOAT", "DOUBLE"):
        return column
    words = column if kind == "VARCHAR" else f"CAST({column} AS VARCHAR)"
    whole = f"regexp_replace({words}, '^(0|-?[1-9][0-9]{{0,14}})\\.0+$', '\\1')"
    number = f"TRY_CAST({words} AS DOUBLE)"  # R writes 1e+05
    large = f"CASE WHEN abs({number}) < {WHOLE[1]} AND {number} = round({number}) THEN {number} END"
    large = f"coalesce(CAST(CAST({large} AS BIGINT) AS VARCHAR), {words})"
    return (
        f"CASE WHEN contains({words}, 'e+') THEN {large} "
        f"WHEN suffix({words}, '0') THEN {whole} ELSE {words} END"
    )


def label_number(column: str) -> str:
    """SQL of a label as text, in the one form in which labels are compared (`label_key`)."""
    form = r"^\s*\+?(-?)0*([0-9]+)(\.0*)?\s*$"
    return f"regexp_replace(trim(CAST({column} AS VARCHAR)), '{form}', '\\1\\2')"


@contextmanager
def database(
    memory: str,
    threads: int | None,
    temp: Any,
    name: str,
    reads: Iterable[str | os.PathLike[str]] = (),
    writes: Iterable[str | os.PathLike[str]] = (),
) -> Iterator[Any]:
    """Open a DuckDB database in a temporary folder, which is removed at the end of the block.

    Its queries can reach nothing but this folder and what is named here.

    Args:
        memory: Limit of DuckDB's memory, such as "4GB"; what does not fit goes to disk.
        threads: Number of threads; None: DuckDB's own.
        temp: Folder in which the temporary folder is made; None: the system's.
        name: Name of the database, for the names of files.
        reads: Files, patterns and folders that it reads. Default: none.
        writes: Folders that it writes to. Default: none.

    Raises:
        ParameterError: The limit of memory or the number of threads is none.
    """
    import duckdb

    where = None if temp is None else os.path.abspath(temp)  # DuckDB takes ~ for the home folder
    with tempfile.TemporaryDirectory(prefix=prefix_in(where, name), dir=where) as place:
        con = connect(str(Path(place) / f"{name}.duckdb"))
        try:
            con.execute(f"SET temp_directory = {text(str(Path(place) / 'spill'))}")
            con.execute("SET preserve_insertion_order = false")
            con.execute("SET enable_progress_bar = false")
            con.execute("SET TimeZone = 'UTC'")
            try:
                con.execute(f"SET memory_limit = {text(memory)}")
            except duckdb.Error as error:
                raise wrong("memory", "a size such as 4GB", memory) from error
            if (cores := check_threads(threads)) is not None:
                con.execute(f"SET threads = {cores}")
            confine(con, files=_reached(reads), folders=[place, *writes])
            yield con
        finally:
            con.close()


def _reached(names: Iterable[str | os.PathLike[str]]) -> list[Path | str]:
    """The files that names, patterns and folders stand for, by the names that queries use."""
    files: list[Path | str] = []
    for given in names:
        name = os.fspath(given)
        for path in [name] if os.path.lexists(name) else glob.glob(name, recursive=True):
            if os.path.isdir(path):
                files += Path(path).iterdir()
            else:
                whole = Path(path).absolute()
                files += [path, whole, f"{whole}.wal"]  # the last: of an attached DuckDB file
    return files


# --- Columns of times as SQL: numbers with a unit, dates of a file's own type, and dates as text

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
ORDERS = {"day-first": r"\3-\2-\1 ", "month-first": r"\3-\1-\2 "}
"""How year, month and day are put in the order of ISO."""
HOURS = ("%H", "%I", "%c", "%X", "%T", "%R")
"""Parts of a format that say the hour."""


@dataclass(frozen=True)
class Written:
    """How the times and numbers of a source are written.

    Attributes:
        text: Decimal mark, encoding, dates, labels and delimiter. Default: as usual.
        zone: Zone of the times that have none of their own, such as "Europe/Berlin". Default "":
            they are taken as they are.
    """

    text: Text = field(default_factory=Text)
    zone: str = ""


def written_of(source: Source) -> Written:
    """How the times and numbers of a source are written."""
    words = Text(source.decimal, source.encoding, source.dates, source.labels, source.delimiter)
    return Written(words, source.time_zone)


@dataclass(frozen=True)
class Moment:
    """A column of times, as SQL.

    Attributes:
        micros: Microseconds since 1970; NULL where the time is missing or cannot be read.
        day: Whether only the day is given.
        bad: Whether there is a value, and it is no time.
        zoned: Whether its zone is known.
        next_day: Microseconds since 1970 at which the day of the time is over. Default "": a day
            has 24 hours.
    """

    micros: str
    day: str = "false"
    bad: str = "false"
    zoned: str = "false"
    next_day: str = ""

    @property
    def over(self) -> str:
        """SQL of the moment itself, or of the end of the day where only the day is given."""
        if self.day == "false":
            return self.micros
        next_day = self.next_day or f"{self.micros} + {DAY}"
        return f"CASE WHEN {self.day} THEN {next_day} ELSE {self.micros} END"


def moment(column: str, kind: str, unit: str, where: str, written: Written | None = None) -> Moment:
    """A column of times as SQL.

    Args:
        column: Its name in SQL.
        kind: Its type in DuckDB.
        unit: The unit of numbers; "" if times are dates.
        where: The place of the unit in the spec, for messages.
        written: How times are written. Default None: ISO dates, without a zone to assume.

    Raises:
        LogError: The column holds numbers without a unit, dates with one, or something else.
    """
    how = written or Written()
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
        value = decimal_number(column, kind, how.text.decimal)
        micros = f"TRY_CAST(round({value} * {UNITS[unit]}) AS BIGINT)"
        return Moment(micros, bad=f"({column} IS NOT NULL AND {micros} IS NULL)")
    if kind == "VARCHAR":
        return _of_text(column, how)
    if kind == "DATE":
        local = f"CAST({column} AS TIMESTAMP)"
        return _in_zone(local, "true", f"(NOT isfinite({column}))", how.zone)
    if kind == "TIMESTAMP WITH TIME ZONE":
        parsed = f"CAST({column} AS TIMESTAMPTZ)"
        return Moment(_micros(parsed), bad=f"(NOT isfinite({parsed}))", zoned="true")
    if kind.startswith("TIMESTAMP"):
        local = f"CAST({column} AS TIMESTAMP)"
        return _in_zone(local, "false", f"(NOT isfinite({local}))", how.zone)
    raise LogError(
        f"{column} holds {kind.lower()} values, which are not times.",
        where,
        "Name a column of dates, or of numbers with time_unit.",
    )


def decimal_number(column: str, kind: str, decimal: str) -> str:
    """SQL of the number that a column holds, or that its text stands for; NULL where there is none.

    With a decimal comma, a point is no part of a number: 1.234 may be a thousand and more.
    """
    if kind == "FLOAT":
        return of_float(column)
    return of_text(column, decimal if kind == "VARCHAR" else ".")


def _of_text(column: str, how: Written) -> Moment:
    """A column of dates that are written as text."""
    dates = how.text.dates
    iso = column
    if dates in ORDERS:
        form = r"^\s*(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?:\s*$|[ T,]\s*)"
        iso = f"trim(regexp_replace({column}, {text(form)}, {text(ORDERS[dates])}))"
    # older versions of DuckDB want seconds where there is a zone
    whole = f"regexp_replace({iso}, '([ T]\\d\\d?:\\d\\d)(\\s*(Z|[+-]\\d))', '\\1:00\\2')"
    zoned = f"coalesce(regexp_matches({column}, {text(TEXT)}), false)"
    day = f"regexp_full_match({iso}, '\\s*\\d{{4}}[-/]\\d\\d?[-/]\\d\\d?\\s*')"
    moment_of = f"CASE WHEN {plainly(column)} THEN TRY_CAST({whole} AS TIMESTAMPTZ) END"
    local = f"TRY_CAST({whole} AS TIMESTAMP)"
    if "%" in dates:
        formed = f"try_strptime({column}, {text(dates)})"
        formed = f"CASE WHEN year({formed}) >= 1000 THEN {formed} END"  # 24 is no year
        has_zone, has_hour = "%z" in dates, any(part in dates for part in HOURS)
        moment_of = f"coalesce(CAST({formed} AS TIMESTAMPTZ), {moment_of})"
        local = f"coalesce(CAST({formed} AS TIMESTAMP), {local})"
        zoned = f"CASE WHEN {formed} IS NOT NULL THEN {str(has_zone).lower()} ELSE {zoned} END"
        day = f"CASE WHEN {formed} IS NOT NULL THEN {str(not has_hour).lower()} ELSE {day} END"
    bad = f"({column} IS NOT NULL AND NOT coalesce(isfinite({moment_of}), false))"
    if not how.zone:
        return Moment(_micros(moment_of), day, bad, zoned)
    here = _in_zone(local, day, bad, how.zone)
    micros = f"CASE WHEN {zoned} THEN {_micros(moment_of)} ELSE {here.micros} END"
    return Moment(micros, day, bad, "true", here.next_day)


def _in_zone(local: str, day: str, bad: str, zone: str) -> Moment:
    """Times without a zone: as they are, or as local times of `zone`."""
    if not zone:
        return Moment(_micros(local), day, bad)

    def in_utc(time: str) -> str:
        return f"CASE WHEN isfinite({local}) THEN epoch_us(timezone({text(zone)}, {time})) END"

    # the day of a change of clocks has 23 or 25 hours
    return Moment(in_utc(local), day, bad, "true", in_utc(f"{local} + INTERVAL 1 DAY"))


def _micros(parsed: str) -> str:
    return f"CASE WHEN isfinite({parsed}) THEN epoch_us({parsed}) END"


PROBES = (
    datetime.datetime(2024, 2, 1, 7, 5, 9),
    datetime.datetime(1999, 11, 30, 23, 59, 58),
    datetime.datetime(2003, 4, 5),
)
"""Moments by which it is tried whether a format means here what it means in Python."""


def check_written(con: Any, spec: Spec) -> None:
    """Refuse a zone that does not exist, and a format of dates that DuckDB reads otherwise.

    Raises:
        SpecError: With the line of the key.
    """
    import duckdb

    source = spec.source
    if source.time_zone:
        names = con.execute(
            "SELECT count(*) FROM pg_timezone_names() WHERE name = ?", [source.time_zone]
        ).fetchone()
        if not names[0]:
            raise SpecError(
                f"there is no time zone {source.time_zone!r}.",
                place(spec.lines, ("source", "time_zone")),
                'Name one of the IANA list: "Europe/Berlin", "America/New_York", "UTC".',
            )
    if "%" not in source.dates:
        return
    for probe in PROBES:
        zoned = probe.replace(tzinfo=datetime.UTC)
        try:
            words = zoned.strftime(source.dates)
            meant = datetime.datetime.strptime(words, source.dates).replace(tzinfo=datetime.UTC)
            row = con.execute(
                "SELECT epoch_us(try_strptime(?, ?))", [words, source.dates]
            ).fetchone()
            fine = meant.date() == probe.date() and row[0] == (meant - EPOCH) // datetime.timedelta(
                microseconds=1
            )
        except (ValueError, duckdb.Error):
            fine = False
        if not fine:
            raise SpecError(
                f"dates of the form {source.dates!r} cannot be read.",
                place(spec.lines, ("source", "dates")),
                'Use the parts %d %m %Y %b %B %H %I %p %M %S %f %z, as in "%d %b %Y %H:%M", or '
                '"day-first" or "month-first".',
            )


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def how_to_write(first: str, spec: Spec) -> str:
    """What to do about a time that cannot be read, of which the text is known."""
    if spec.source.dates == "iso" and re.fullmatch(ODD, first):
        return (
            'Say which comes first: dates = "day-first" or "month-first" in [source]; years need '
            "four digits."
        )
    return (
        "Write times like 2024-03-01 07:30:00, or say how they are written: dates = "
        '"day-first", or a format such as "%d %b %Y %H:%M", in [source]; zones as +01:00 (BST and '
        "CET have several meanings). Leave static rows empty."
    )


# --- Rows of the user's files in one form, whatever they are called and however times are written
#
# The form, one row per event: subject, t (microseconds since 1970 in UTC; NULL for static rows), u
# (the end; NULL where there is none), k (when it could be read), code, v (a number or NULL), and
# marks of rows that cannot be understood: bad_time, bad_value, zoned (its time has a time zone),
# mixed (only some of its times have one), and odd_time and odd_value (what is written there).
#
# Moments with a time zone are taken in UTC; moments without one as they are, or in the zone that
# the source names. A date without an hour is known when the day is over, and an end without an hour
# is the end of that day. A row is never known before its time; one whose column `known` is empty
# never is.

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
        for part in ("time", "end", "known"):
            if wanted[part]:
                refuse_two_kinds([literal(file) for file in names], wanted[part], con.execute)
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
    code = columns["code"]  # text may be a code such as 250.0, and no number
    code = code if kinds["code"] == "VARCHAR" else whole_label(code, kinds["code"])
    return (
        f"SELECT {whole_label(columns['subject'], kinds['subject'])} AS subject, "
        f"{time.micros} AS t, "
        f"{end.over} AS u, "
        f"CASE WHEN {seen.micros} IS NOT NULL "
        f"THEN greatest({time.micros}, {seen.over}) END AS k, "
        f"CAST({code} AS VARCHAR) AS code, "
        f"CASE WHEN isnan({value}) THEN NULL ELSE {unsigned_zero(value)} END AS v, "
        f"({time.bad} OR {end.bad} OR {readable.bad}) AS bad_time, {bad_value} AS bad_value, "
        f"{time.zoned} AS zoned, {' OR '.join(mixed) or 'false'} AS mixed, "
        f"coalesce({', '.join(odd_times)}) AS odd_time, {odd_value} AS odd_value FROM ({rows})"
    )
