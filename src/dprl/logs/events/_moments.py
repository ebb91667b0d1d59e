"""Columns of times as SQL: numbers with a unit, dates of a file's own type, and dates as text.

ISO dates (2024-03-01, with or without an hour and a zone) are always understood. Other dates are
read as the source declares (`dates`), as `dprl.read` reads them. A time without a zone is taken as
it is, or as the local time of the zone that the source names (`time_zone`).
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dprl._core.zones import TEXT
from dprl.errors import LogError
from dprl.logs._dates import ODD
from dprl.logs._text import Text
from dprl.logs.events._database import text
from dprl.logs.events._fields import HOUR, UNITS, SpecError, place

if TYPE_CHECKING:
    from dprl.logs.events.spec import Source, Spec

__all__ = [
    "DAY",
    "Moment",
    "Written",
    "check_written",
    "decimal_number",
    "how_to_write",
    "moment",
    "written_of",
]

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
    if decimal == "." or kind != "VARCHAR":
        return f"TRY_CAST({column} AS DOUBLE)"
    plain = f"CASE WHEN contains({column}, '.') THEN NULL ELSE replace({column}, ',', '.') END"
    return f"TRY_CAST({plain} AS DOUBLE)"


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
    moment_of = f"TRY_CAST({whole} AS TIMESTAMPTZ)"
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
        '"day-first", or a format such as "%d %b %Y %H:%M", in [source]. Leave static rows empty.'
    )
