r"""Times with a zone: ordered by the moment they mean, shown as they were charted.

A moment is kept in UTC, so that the order is right also when clocks go back. Beside it stands how
far the clock on the wall was ahead of UTC, in seconds: with both, 02:30+02:00 and 02:30+01:00 of
the same night keep their order and their look.
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
"""A time of day written with its zone; the first group is what the clock on the wall said."""


@dataclass(frozen=True)
class Zoned:
    """A column of times with a zone.

    Attributes:
        moment: datetime64 (N,), in UTC.
        offset: (N,), seconds that the clock on the wall was ahead of UTC.
    """

    moment: NDArray[Any]
    offset: NDArray[Any]


def charted(time: Any, offset: int | None = None) -> str:
    """A time as it was charted: a number as it is, a date without empty fractions, its zone last.

    Args:
        time: A number, or a datetime64 (in UTC where it has a zone).
        offset: Seconds that the clock on the wall was ahead of UTC; None without a zone.
    """
    if not isinstance(time, np.datetime64):
        return str(time)
    wall = time if offset is None else time + np.timedelta64(int(offset), "s")
    return re.sub(r"\.0+$", "", str(wall)).replace("T", " ") + _suffix(offset)


def written(time: NDArray[Any], offset: NDArray[Any]) -> NDArray[Any]:
    """Times (N,) and their offsets (N,) as text that comes back as it is."""
    moment = time.astype("datetime64[us]")  # as fine as any reader takes it
    wall = np.datetime_as_string(moment + offset.astype("timedelta64[s]"))
    different, which = np.unique(offset, return_inverse=True)
    ends = np.array([_suffix(int(x)) for x in different])
    text = np.empty(len(time), object)
    text[:] = np.char.add(wall, ends[which]).tolist()
    return text


def _suffix(offset: int | None) -> str:
    """+02:00."""
    if offset is None:
        return ""
    hours, rest = divmod(abs(int(offset)), 3600)
    seconds = f":{rest % 60:02}" if rest % 60 else ""
    return f"{'-' if offset < 0 else '+'}{hours:02}:{rest // 60:02}{seconds}"


def zone_of(files: Sequence[str], column: str, run: Callable[[str, list[Any]], Any]) -> str | None:
    """The zone a Parquet column was written in; None where the files do not say, or not the same.

    Parquet keeps moments alone; pandas and Arrow leave the zone in notes beside them.

    Args:
        files: The files.
        column: Its name.
        run: Runs SQL with values.
    """
    found = {_noted(file, column, run) for file in files}
    return found.pop() if len(found) == 1 else None


def _noted(file: str, column: str, run: Callable[[str, list[Any]], Any]) -> str | None:
    rows = run("SELECT key, value FROM parquet_kv_metadata(?)", [file]).fetchall()
    notes = {bytes(key): bytes(value) for key, value in rows}
    try:
        for one in json.loads(notes[b"pandas"])["columns"]:
            if one["name"] == column and one["metadata"]["timezone"]:
                return str(one["metadata"]["timezone"])
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
