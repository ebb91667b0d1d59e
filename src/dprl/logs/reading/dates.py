"""Dates as people write them: the order of day and month is declared, never guessed.

ISO dates (2024-02-01, with or without a time and a zone) are always understood. Others need
`dates`: "day-first", "month-first" or a format of Python's strptime. Years have four digits.

A date in a state becomes a number: days since SINCE, in UTC where it has a zone.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, option, worded
from dprl.errors import LogError, ParameterError
from dprl.logs.encoding.gaps import is_gone
from dprl.logs.reading.times import Zoned, refuse_mixed

SINCE = "1970-01-01"
"""The day from which the days of a date are counted."""
ISO = r"\s*[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([ T].*)?"
"""A date that begins with its year."""
ODD = r"\s*[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{2}|[0-9]{4})([ T,].*)?"
"""A date of which nobody can know whether the day or the month comes first."""
CLOCK = r"(?:[ T,]\s*(\d{1,2}):(\d\d)(?::(\d\d)(?:\.(\d{1,6})\d*)?)?)?"
ZONE = r"\s*(Z|z|[+-]\d\d(?::?\d\d)?)?"
NUMBERS = re.compile(r"\s*(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})" + CLOCK + ZONE + r"\s*")
PLACES = {"iso": (1, 2, 3), "day-first": (3, 2, 1), "month-first": (3, 1, 2)}
"""Where year, month and day stand."""


@dataclass(frozen=True)
class Days:
    """A column of dates as numbers.

    Attributes:
        values: float64 (N,), days since SINCE; NaN where one is missing.
    """

    values: NDArray[np.float64]


def check_dates(dates: Any) -> str:
    """How dates are written, as it was declared; refused where it is nothing of the kind."""
    form = isinstance(dates, str) and "%" in dates
    if not form and dates not in PLACES:
        raise ParameterError(
            "dates must be 'iso', 'day-first', 'month-first' or a format with %.",
            repr(dates),
            worded(
                "For 31.12.2024 say {dates}; for other forms a format of strptime, such as "
                "{choice}.",
                dates=option("dates", "day-first"),
                choice=either("dates='%d %b %Y'", "--dates '%d %b %Y'"),
            ),
        )
    parts = set(re.findall(r"%(.)", dates)) if form else set()
    twice = [part for part in sorted(parts) if len(re.findall(f"%{part}", dates)) > 1]
    whole = bool(parts & set("cx"))
    for wrong, what, do in (
        (twice, f"this format of dates has %{''.join(twice[:1])} twice.", "Say each part once."),
        ("y" in parts or "x" in parts, "a year of two digits (%y) does not say its century.",
         "Write years with four digits (%Y)."),
        (form and not parts & set("YGc"), "this format of dates has no year.",
         "Every date needs one (%Y): without it all are of one year."),
        ("d" in parts and not parts & set("mbBc"), "this format of dates has days and no month.",
         "Say where the month stands: %m, %b or %B."),
        ("I" in parts and "p" not in parts, "hours from 1 to 12 (%I) without %p say them twice.",
         "Say where AM or PM stands (%p), or take %H for hours from 0 to 23."),
        ("p" in parts and "I" not in parts, "%p is not looked at where hours are %H: 2 PM was 2.",
         "Take %I for hours from 1 to 12."),
        ("M" in parts and not parts & set("HI"), "this format of dates has minutes and no hour.",
         "Say where the hour stands: %H, or %I with %p."),
        ("S" in parts and "M" not in parts, "this format of dates has seconds and no minutes.",
         "Say where the minutes stand: %M (%m is the month)."),
        (parts & set("HI") and not parts & set("dju") and not whole
         and not (parts & set("UW") and parts & set("aAw")),
         "this format of dates has hours and no day.", "Say where the day stands: %d or %j."),
        (parts & set("UW") and not parts & set("aAw"),
         "weeks (%U, %W) without a day of the week are not looked at: every date is January 1.",
         "Say where the day of the week stands: %w, %a or %A."),
        (parts & set("aAw") and not parts & set("UWVdj") and not whole,
         "a day of the week says no date without a week or a day of the month.",
         "Say where these stand: %d with %m, or %W."),
        ("Z" in parts, "the name of a zone (%Z) would be left out, and the moment be wrong.",
         "Write the offset of the zone (%z, as in +02:00)."),
    ):  # fmt: skip
        if wrong:
            raise ParameterError(what, repr(dates), do)
    return str(dates)


def _moment(text: str, dates: str) -> datetime.datetime | None:
    """The time a text stands for; None where it stands for none, or for one that UTC has not."""
    try:
        time = _written(text, dates)
        if time is not None and time.tzinfo is not None:
            time.astimezone(datetime.UTC)
    except (OverflowError, ValueError):  # before the year 1 or after 9999, or no such zone
        return None
    return time


def _written(text: str, dates: str) -> datetime.datetime | None:
    """The time that is written, in its own zone."""
    if "%" in dates:
        try:
            return datetime.datetime.strptime(text.strip(), dates)
        except ValueError:
            pass
    match = NUMBERS.fullmatch(text)
    if match is None:
        return None
    iso = re.match(ISO, text) is not None
    if not iso and dates not in ("day-first", "month-first"):
        return None
    order = PLACES["iso" if iso else dates]
    year, month, day = (match.group(place) for place in order)
    if len(year) != 4:
        return None
    hour, minute, second, fraction, zone = match.groups()[3:]
    try:
        naive = datetime.datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0),
            int((fraction or "0").ljust(6, "0")),
        )  # fmt: skip
    except ValueError:
        return None
    return naive if zone is None else naive.replace(tzinfo=_zone(zone))


def _zone(text: str) -> datetime.timezone:
    if text in "Zz":
        return datetime.UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 18 or int(digits[2:]) > 59:  # as in files: no clock is so far ahead
        raise ValueError(text)
    ahead = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return datetime.timezone(-ahead if text[0] == "-" else ahead)


def moments(
    texts: Sequence[str], dates: str, name: str
) -> tuple[NDArray[Any], NDArray[np.int32] | None]:
    """Texts as datetime64[us] (k,) in UTC, and the seconds (k,) ahead of it; None without zones.

    Raises:
        LogError: If a text is no date as declared, or only some have a zone.
    """
    parsed = []
    for text in texts:
        time = _moment(text, dates)
        if time is None:
            raise LogError(
                f"{name!r} holds {text[:40]!r}, which is no date as declared.",
                f"dates={dates!r}",
                worded(
                    "Mend it (a year has four digits), or declare how dates are written: {dates}, "
                    "'month-first', or a format such as '%d %b %Y'; where they are labels, name "
                    "the column in {categorical}.",
                    dates=option("dates", "day-first"),
                    categorical=option("categorical"),
                ),
            )
        parsed.append(time)
    ahead = [time.utcoffset() for time in parsed]
    zoned = sum(one is not None for one in ahead)
    if 0 < zoned < len(parsed):
        refuse_mixed(name, zoned, len(parsed))
    plain = [
        time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)
        for time in parsed
    ]
    array = np.array(plain, "datetime64[us]")
    if not zoned:
        return array, None
    return array, np.array([0 if a is None else round(a.total_seconds()) for a in ahead], np.int32)


def refuse_undeclared(name: str, text: str, where: str) -> None:
    """Refuse a date whose order of day and month is not declared."""
    raise LogError(
        f"{name!r} holds dates such as {text[:40]!r}, and nothing says whether the day or the "
        "month comes first.",
        where,
        worded(
            "Declare it: {dates} or {dates2}; years need four digits. ISO dates (2024-02-01) need "
            "nothing; where they are labels, name the column in {categorical}.",
            dates=option("dates", "day-first"),
            dates2=option("dates", "month-first"),
            categorical=option("categorical"),
        ),
    )


def days_of(times: Any) -> NDArray[np.float64]:
    """Times (k,) of datetime64 as days since SINCE; NaN where one is missing."""
    array = np.asarray(times).astype("datetime64[us]")
    days = array.astype(np.int64) / 86_400e6
    days[np.isnat(array)] = np.nan
    return np.asarray(days)


def times_on(days: NDArray[np.float64]) -> NDArray[Any]:
    """Days since SINCE (k,) as datetime64[us]; NaT where one is missing."""
    gone = np.isnan(days)
    whole = np.rint(np.where(gone, 0.0, days) * 86_400e6).astype(np.int64)
    times = whole.astype("datetime64[us]")
    times[gone] = np.datetime64("NaT")
    return times


def day_of(value: Any, dates: str, name: str) -> Any:
    """One value of a column of dates as days; a number, and a gap, stay as they are."""
    if isinstance(value, np.datetime64):
        return value if np.isnat(value) else float(days_of([value])[0])
    if is_gone(value):
        return None
    if isinstance(value, str):
        return float(days_of(moments([value], dates, name)[0])[0])
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, datetime.date):
        return float(days_of(np.array([value], "datetime64[us]"))[0])
    return value


def on_day(days: float) -> str:
    """Days since SINCE as a date, with the time where it is not midnight."""
    time = np.datetime64(round(days * 86_400e6), "us")
    return re.sub(r"(T00:00:00)?(\.0+)?$", "", str(time)).replace("T", " ")


def object_days(values: Iterable[Any], name: str) -> NDArray[np.float64] | None:
    """Python dates as days, NaN for gaps; None where something else is among them, or all gaps."""
    listed = list(values)
    present = [value for value in listed if not is_gone(value)]
    if not present or not all(isinstance(value, datetime.date) for value in present):
        return None
    zoned = sum(getattr(value, "tzinfo", None) is not None for value in present)
    if 0 < zoned < len(present):
        refuse_mixed(name, zoned, len(present))
    days = [day_of(value, "iso", name) for value in listed]
    return np.array([np.nan if day is None else day for day in days], np.float64)


def text_days(words: Sequence[str], dates: str, name: str) -> NDArray[np.float64] | None:
    """Different texts (k,) of a column as days; None where none of them looks like a date.

    Raises:
        LogError: If day or month may come first and it is not declared, or only some are dates.
    """
    odd = [word for word in words if re.fullmatch(ODD, word)]
    iso = sum(re.fullmatch(ISO, word) is not None for word in words)
    formed = "%" in dates and any(_moment(word, dates) is not None for word in words)
    if not (odd or iso or formed):
        return None
    if odd and dates == "iso":
        refuse_undeclared(name, odd[0], "")
    return days_of(moments(words, dates, name)[0])


def text_times(values: Any, gone: Any, dates: str, name: str) -> Any:
    """A column of text (N,) as times, where it is dates; None where it is anything else.

    Returns:
        datetime64 (N,), masked where missing, or `Zoned` where the texts have a zone.
    """
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "OUT":
        return None
    hidden = np.zeros(len(array), bool) if gone is None else np.asarray(gone)
    listed = array.tolist()
    if not isinstance(next((one for one in listed if not is_gone(one)), None), str):
        return None
    empty = [hide or is_gone(one) for one, hide in zip(listed, hidden.tolist(), strict=True)]
    words = list(dict.fromkeys(one for one, hide in zip(listed, empty, strict=True) if not hide))
    if not words or not all(isinstance(word, str) for word in words):
        return None
    if text_days(words, dates, name) is None:
        return None
    times, ahead = moments(words, dates, name)
    place = {word: i for i, word in enumerate(words)}
    codes = np.array([0 if e else place[one] for one, e in zip(listed, empty, strict=True)])
    column = np.ma.MaskedArray(times[codes], empty)
    return column if ahead is None else Zoned(column, ahead[codes])
