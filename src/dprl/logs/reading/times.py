"""Columns of times: numbers or dates, those with a zone in UTC and beside their local clock."""

from __future__ import annotations

import datetime
import decimal
import importlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError

# --- Times with a zone: ordered by their moment, shown as they were written down
#
# A moment is kept in UTC, so that the order is right also when clocks are set back. Beside it is
# kept how far the local clock was ahead of UTC, in seconds: with both, 02:30+02:00 and 02:30+01:00
# of the same night keep their order and their appearance.

TEXT = (
    r"^(.*\d:\d\d.*?)\s*"
    r"(?:[zZ]|[uU][tT][cC]|[+-]\d\d(?::?\d\d(?::?\d\d)?)?|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+)$"
)
"""A time of day written with its zone; the first group is the local time."""


PLACE = r"[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+$"
"""A zone by its place, such as Europe/Berlin, at the end of a time."""


def plainly(c: str) -> str:
    """SQL: whether a text begins with a digit, and ends with one or with a zone of one meaning.

    DuckDB also takes 'epoch', 'infinity', and abbreviations: BST for Bangladesh, CET for summer.
    """
    cell = f"trim({c})"
    return (
        f"(left({cell}, 1) BETWEEN '0' AND '9' AND (right({cell}, 1) BETWEEN '0' AND '9' "
        f"OR regexp_matches({cell}, '{TEXT}')))"
    )


@dataclass(frozen=True)
class Zoned:
    """A column of times with a zone.

    Attributes:
        moment: datetime64 (N,), in UTC.
        offset: (N,), the seconds by which the local clock was ahead of UTC.
    """

    moment: NDArray[Any]
    offset: NDArray[Any]


def charted(time: Any, offset: int | None = None) -> str:
    """A time as it was written down: numbers unchanged, dates without empty fractions, zone last.

    Args:
        time: A number, or a datetime64 (in UTC if it has a zone).
        offset: Seconds by which the local clock was ahead of UTC. Default None: no zone.
    """
    if not isinstance(time, np.datetime64):
        return str(time)
    wall = time if offset is None else time + np.timedelta64(int(offset), "s")
    return re.sub(r"\.0+$", "", str(wall)).replace("T", " ") + _suffix(offset)


def written(time: NDArray[Any], offset: NDArray[Any]) -> NDArray[Any]:
    """Times (N,) and their offsets (N,) as text that can be read back without a change."""
    moment = time.astype("datetime64[us]")  # the finest unit that every reader accepts
    wall = np.datetime_as_string(moment + offset.astype("timedelta64[s]"))
    different, which = np.unique(offset, return_inverse=True)
    ends = np.array([_suffix(int(x)) for x in different])
    text = np.empty(len(time), object)
    text[:] = np.char.add(wall, ends[which]).tolist()
    return text


def _suffix(offset: int | None) -> str:
    """The zone as text, such as +02:00; empty without one."""
    if offset is None:
        return ""
    hours, rest = divmod(abs(int(offset)), 3600)
    seconds = f":{rest % 60:02}" if rest % 60 else ""
    return f"{'-' if offset < 0 else '+'}{hours:02}:{rest // 60:02}{seconds}"


def zone_of(files: Sequence[str], column: str, run: Callable[[str, list[Any]], Any]) -> str | None:
    """The zone a Parquet column was written in; None if the files do not say, or disagree.

    Parquet keeps only moments; pandas and Arrow store the zone in notes beside them.

    Args:
        files: The Parquet files.
        column: The name of the column.
        run: A function that runs SQL with values.
    """
    zones = {_noted(file, column, run) for file in files}
    return zones.pop() if len(zones) == 1 else None


def refuse_two_kinds(
    files: Sequence[str], column: str, run: Callable[[str, list[Any]], Any]
) -> None:
    """Refuse Parquet files of which some have times with a zone and others without.

    Args:
        files: The Parquet files, as DuckDB takes them.
        column: The name of the column.
        run: A function that runs SQL with values.
    """
    if len(files) < 2:
        return
    rows = run(
        "SELECT min(file_name), contains(coalesce(logical_type, ''), 'UTC=1') AS zoned "
        "FROM parquet_schema(?) WHERE name = ? GROUP BY zoned ORDER BY zoned",
        [list(files), column],
    ).fetchall()
    if len(rows) > 1:
        raise LogError(
            f"{column!r} has a time zone in some files and none in others.",
            f"with one: {rows[1][0]}; without: {rows[0][0]}",
            "Write all of them the same way: which is meant cannot be guessed.",
        )


def _noted(file: str, column: str, run: Callable[[str, list[Any]], Any]) -> str | None:
    """The zone that pandas or Arrow noted for a column of a file; None without a note."""
    rows = run("SELECT key, value FROM parquet_kv_metadata(?)", [file]).fetchall()
    notes = {bytes(key): bytes(value) for key, value in rows}
    try:
        for column_note in json.loads(notes[b"pandas"])["columns"]:
            if column_note["name"] == column and column_note["metadata"]["timezone"]:
                return str(column_note["metadata"]["timezone"])
    except (KeyError, TypeError, ValueError):  # no note of pandas', or one of another kind
        pass
    if b"ARROW:schema" not in notes:
        return None
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
        kind = parquet.read_schema(file).field(column).type
    except (ImportError, OSError, KeyError, ValueError):
        return None
    zone = getattr(kind, "tz", None)
    return None if zone is None else str(zone)


# --- Columns of times: numbers or dates, those with a zone in UTC and beside their local clock


def times(
    values: Any, name: str, missing: NDArray[np.bool_] | None = None
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.int32] | None]:
    """A column of times in a form that can be sorted: numbers or dates, those with a zone in UTC.

    Returns:
        The times (N,); bool (N,), where they are missing; and int32 (N,), the seconds by which the
        local clock was ahead of UTC (None if the times have no zone).
    """
    if isinstance(values, Zoned):
        moments, gone, _ = times(values.moment, name, missing)
        offset = np.ma.filled(np.ma.asarray(values.offset), 0)
        return moments, gone, np.where(gone, 0, offset).astype(np.int32)
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
        values = values.data
    array = np.asarray(values)
    gone = np.broadcast_to(np.False_, (len(array),)) if missing is None else missing
    if array.dtype.kind == "O":
        gone = gone | np.array([v is None or v != v for v in array.tolist()], bool)
        present = [v for v, g in zip(array.tolist(), gone.tolist(), strict=True) if not g]
        if all(isinstance(v, datetime.date) for v in present):
            dates = np.full(len(array), np.datetime64(0, "us"))
            dates[~gone] = np.array([_naive(v) for v in present], "datetime64[us]")
            return dates, gone, _offsets(present, gone, name)
        if all(isinstance(v, datetime.timedelta) for v in present):
            lasted = np.zeros(len(array), "timedelta64[us]")
            lasted[~gone] = present
            return lasted, gone, None
        if all(isinstance(v, int | float | decimal.Decimal | np.number) for v in present):
            whole = all(isinstance(v, int | np.integer) for v in present)
            plain = np.zeros(len(array), np.int64 if whole else np.float64)
            try:
                plain[~gone] = present
            except OverflowError:
                raise LogError(
                    f"{name!r} holds a number that is too large for a time.",
                    str(max(present, key=abs)),
                    "Whole numbers have at most 64 bits: count from a later beginning.",
                ) from None
            return times(plain, name, gone)
    if array.dtype.kind not in "iufmMb":
        raise LogError(
            f"{name!r} must be numbers or dates; it holds text.",
            f"row 1: {str(array[0])[:40]!r}",
            "Text sorts '10' before '9': convert it to a number or a date.",
        )
    if array.dtype.kind == "f" and np.isinf(array).any():
        row = int(np.argmax(np.isinf(array)))
        raise LogError(
            f"{name!r} holds a time that is infinite.",
            f"row {row + 1:,}: {array[row]}",
            "Mend it, or leave the row out.",
        )
    if array.dtype.kind in "fmM" and array.size:
        absent = np.isnan(array) if array.dtype.kind == "f" else np.isnat(array)
        gone = gone | absent if absent.any() else gone
    return array, gone, None


def _offsets(
    dates: list[datetime.date], gone: NDArray[np.bool_], name: str
) -> NDArray[np.int32] | None:
    """Seconds ahead of UTC (N,) of the dates that are not missing; None if none has a zone."""
    ahead = [v.utcoffset() if isinstance(v, datetime.datetime) else None for v in dates]
    offsets = [a for a in ahead if a is not None]
    if not offsets:
        return None
    if len(offsets) < len(ahead):
        refuse_mixed(name, len(offsets), len(ahead))
    offset = np.zeros(len(gone), np.int32)
    offset[~gone] = [round(a.total_seconds()) for a in offsets]
    return offset


def refuse_mixed(name: str, zoned: int, total: int) -> NoReturn:
    """Refuse a column where only some times have a zone: their order cannot be known."""
    raise LogError(
        f"{name!r} has a time zone in {zoned:,} of {total:,} times, and none in the others.",
        do="Write the zone of all of them, or of none.",
    )


def _naive(value: datetime.date) -> datetime.date:
    """A date in UTC, without its zone."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value
