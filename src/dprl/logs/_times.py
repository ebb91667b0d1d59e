"""Columns of times: numbers or dates, those with a zone in UTC and beside their local clock."""

from __future__ import annotations

import datetime
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dprl._core.zones import Zoned
from dprl.errors import LogError

__all__ = ["refuse_mixed", "times"]


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
        if all(isinstance(v, int | float) for v in present):
            whole = all(isinstance(v, int) for v in present)
            plain = np.zeros(len(array), np.int64 if whole else np.float64)
            plain[~gone] = present
            return plain, gone, None
    if array.dtype.kind not in "iufmMb":
        raise LogError(
            f"{name!r} must be numbers or dates; it holds text.",
            f"row 1: {str(array[0])[:40]!r}",
            "Text sorts '10' before '9': convert it to a number or a date.",
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
