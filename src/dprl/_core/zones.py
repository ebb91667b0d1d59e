"""Times with a zone: ordered by their moment, shown as they were written down.

A moment is kept in UTC, so that the order is right also when clocks are set back. Beside it is kept
how far the local clock was ahead of UTC, in seconds: with both, 02:30+02:00 and 02:30+01:00 of the
same night keep their order and their appearance.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TEXT", "Zoned", "charted", "written", "zone_of"]

TEXT = (
    r"^(.*\d:\d\d.*?)\s*"
    r"(?:[zZ]|[uU][tT][cC]|[+-]\d\d(?::?\d\d(?::?\d\d)?)?|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+)$"
)
"""A time of day written with its zone; the first group is the local time."""


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
