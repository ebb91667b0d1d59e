"""Columns of times in files: numbers, dates of a file's own type, and dates written as text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dprl._core.zones import TEXT, Zoned, zone_of
from dprl.errors import LogError
from dprl.logs._dates import ODD, moments, refuse_undeclared, text_days
from dprl.logs._fetch import Fetch
from dprl.logs._sources import quoted
from dprl.logs._text import Text
from dprl.logs._times import refuse_mixed

__all__ = ["FileTimes"]


class FileTimes(Fetch):
    """A DuckDB connection over files, with their columns of times and numbers in text."""

    text: Text
    decimal: str
    types: dict[str, str]
    place: dict[str, str]

    def double(self, c: str) -> str:
        """SQL for the number that text stands for; NULL where it stands for none.

        With a decimal comma, a point is no part of a number: 1.234 may be a thousand and more.
        """
        if self.decimal == ".":
            return f"TRY_CAST({c} AS DOUBLE)"
        plain = f"CASE WHEN contains({c}, '.') THEN NULL ELSE replace({c}, ',', '.') END"
        return f"TRY_CAST({plain} AS DOUBLE)"

    def time(self, name: str) -> Any:
        c, kind = self.place[name], self.types[name]
        if kind == "TIMESTAMP WITH TIME ZONE":
            return self._charted(c, zone_of(self.files, name, self.run) or "UTC")
        if kind != "VARCHAR":
            return self.fetch(f"CAST({c} AS TIMESTAMP)" if "TIME" in kind or kind == "DATE" else c)
        moment = f"CAST(CAST({c} AS TIMESTAMPTZ) AS TIMESTAMP)"  # in UTC, whatever its offset
        row = self.one_row(
            f"SELECT count({c}), count(*) FILTER (regexp_full_match({c}, '[+-]?\\d{{1,18}}')), "
            f"count({self.double(c)}), count(TRY_CAST({c} AS TIMESTAMPTZ)) FROM raw"
        )
        odd = self.first_row(f"regexp_full_match({c}, {quoted(ODD, chr(39))})")
        if odd is not None and self.text.dates == "iso":
            refuse_undeclared(name, str(self.value_at(c, odd)), f"row {odd + 1:,}")
        if odd is not None or (
            self.text.dates != "iso" and (row[2] < row[0] or "%" in self.text.dates)
        ):
            times = self._declared(name, c)
            if times is not None:
                return times
        casts = (f"CAST({c} AS BIGINT)", self.double(c), moment)
        for count, cast in zip(row[1:], casts, strict=True):
            if count == row[0]:
                return self._zoned(name, c, moment) if cast is moment else self.fetch(cast)
        return self.fetch(c)

    def _declared(self, name: str, c: str) -> Any:
        """Times written as was declared; None where none of them is a date."""
        words, hashes = self.distinct(c)
        texts = [word for word in words if word]
        if text_days(texts, self.text.dates, name) is None:
            return None
        times, ahead = moments(texts, self.text.dates, name)
        place = {word: i for i, word in enumerate(texts)}
        code_of = np.array([place.get(word, -1) for word in words], np.int32)
        codes = self.codes(c, hashes, code_of)
        column = np.ma.MaskedArray(times[codes], codes < 0)
        return column if ahead is None else Zoned(column, ahead[codes])

    def _zoned(self, name: str, c: str, moment: str) -> Any:
        """Times written as text, each with the time zone it was written with."""
        form = quoted(TEXT, chr(39))
        all_of_them, zoned = self.one_row(
            f"SELECT count({c}), count(*) FILTER (regexp_matches({c}, {form})) FROM raw"
        )
        if not zoned:
            return self.fetch(moment)
        if zoned < all_of_them:
            refuse_mixed(name, zoned, all_of_them)
        wall = f"TRY_CAST(regexp_extract({c}, {form}, 1) AS TIMESTAMP)"
        return Zoned(self.fetch(moment), self.fetch(f"date_diff('second', {moment}, {wall})"))

    def _charted(self, c: str, zone: str) -> Zoned:
        """Moments (column `c`) together with the local time of a zone."""
        fixed = re.fullmatch(r"([+-])(\d\d):?(\d\d)", zone)
        moment = f"CAST({c} AS TIMESTAMP)"
        wall = f"timezone({quoted(zone, chr(39))}, {c})"
        if fixed is not None:
            sign, hours, minutes = fixed.groups()
            wall = f"{moment} + INTERVAL '{sign}{int(hours) * 60 + int(minutes)} minutes'"
        try:
            ahead = self.fetch(f"date_diff('second', {moment}, {wall})")
        except LogError:  # a zone by a name that DuckDB does not know: the moments are right
            ahead = self.fetch("0")
        return Zoned(self.fetch(moment), ahead)
