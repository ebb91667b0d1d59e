"""CSV and Parquet files, read by DuckDB: every value as the file holds it, nothing guessed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dprl._core.database import confine, connect
from dprl._core.limits import said_if_short
from dprl._core.words import option, worded
from dprl.errors import LogError, ParameterError
from dprl.logs._also import LABELS, PEEK, AlsoNames, also_names
from dprl.logs._categories import (
    BEYOND,
    check_declared,
    not_numbers,
    refuse_numbers,
)
from dprl.logs._columns import (
    MISSING_WORDS,
    WHOLE,
    Coded,
    Columns,
    encode,
    recode,
    refuse_fractions,
    tidy_labels,
)
from dprl.logs._dates import Days, days_of, text_days
from dprl.logs._doses import checked_bins
from dprl.logs._fetch import Progress
from dprl.logs._file_times import FileTimes
from dprl.logs._reading import Reading
from dprl.logs._recoded import Recoded
from dprl.logs._scans import columns_of_files, folder_columns, open_files, scan_csv, scan_parquet
from dprl.logs._sources import Raw, choose, columns_of, quoted
from dprl.logs._text import Text
from dprl.logs.columns import ROLES

__all__ = ["Files", "Progress", "read_columns"]

READABLE = r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*|BOOLEAN|VARCHAR|ENUM.*)$"
"""Types of columns that hold numbers or labels."""
WHOLE_NUMBERS = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
)  # fmt: skip
"""Types of columns that hold whole numbers of at most 64 bits."""
SHORT_CELL = 4
"""Bytes of a short cell of a CSV file, with its comma."""


class Files(FileTimes):
    """A DuckDB connection over files: every column as its role needs it.

    It can read these files alone, and read and write what is in `folders`; `settings` are SQL
    settings that must be made before that holds.
    """

    def __init__(
        self,
        paths: Any,
        progress: Progress | None,
        missing: Sequence[str] = MISSING_WORDS,
        partitions: bool = False,
        text: Text | None = None,
        folders: Iterable[str | os.PathLike[str]] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        import duckdb

        self.text = text or Text()
        self.decimal = self.text.decimal
        self.files, self.kind = open_files(paths)
        if self.kind == "csv" and self.text.foreign(self.files):
            if partitions:
                raise ParameterError(
                    f"folders become columns of files in UTF-8 only, not in {self.text.encoding}.",
                    worded(
                        "partitions, {encoding}", encoding=option("encoding", self.text.encoding)
                    ),
                    "Write the files again as UTF-8.",
                )
            self.copies = Recoded(self.files, self.text.encoding)  # kept as long as this is
            self.files, self.text = self.copies.files, replace(self.text, encoding="utf-8")
        self.error = duckdb.Error
        self.con = connect()
        self.con.execute("SET preserve_insertion_order = true; SET TimeZone = 'UTC'")
        self.con.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
        self.con.execute("SET parquet_metadata_cache = true")  # files are asked for each column
        for name, value in (settings or {}).items():
            self.con.execute(f"SET {name} = {quoted(str(value), chr(39))}")
        confine(self.con, files=self.files, folders=folders)
        self.as_opened = self.on_disk()
        self.progress = progress
        self.folders = folder_columns(self.files[0]) if partitions else {}
        if self.kind == "csv":
            self.scan, self.values = scan_csv(self.files, missing, partitions, self.text)
        else:
            self.scan, self.values = scan_parquet(self.files, missing, partitions, self.run)
        rows = self.run(f"DESCRIBE {self.scan}", self.values).fetchall()
        self.types: dict[str, str] = {row[0]: str(row[1]) for row in rows}

    def every_file_has(self, names: Iterable[str]) -> None:
        """Refuse a file that lacks a column others have: its rows would count as missing."""
        if len(self.files) < 2:
            return
        files = columns_of_files(self.files, self.kind, self.run, self.text.encoding)
        for file, columns in files.items():
            columns_in_file = {
                column.lower() for column in (*columns, *self.folders)
            }  # R is r to DuckDB
            for name in names:
                if name.lower() not in columns_in_file:
                    raise LogError(
                        f"{os.path.basename(file)!r} has no column {name!r}, which others have.",
                        f"its columns are {', '.join(map(repr, sorted(columns)[:12]))}",
                        "Every file needs every column that is named.",
                    )

    def labels(self, name: str, fractions: bool = True) -> Coded:
        """A column of labels, coded so that no Python object is made per row.

        If `fractions` is false, a column of numbers such as 0.5 is refused, also when they are
        text.
        """
        c, kind = self.place[name], self.types[name]
        if kind in WHOLE_NUMBERS:
            return self.whole_numbers(c, name)
        if kind in ("FLOAT", "DOUBLE") and not self._fractions(c):
            return self.whole_numbers(f"CAST(nullif({c}, 'NaN'::{kind}) AS BIGINT)", name)
        if kind in ("BOOLEAN", "FLOAT", "DOUBLE"):
            return encode(self.fetch(c), name)
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "BLOB")):
            raise LogError(
                f"{name!r} holds {kind.lower()} values, which are not labels.",
                do="Labels are text, whole numbers, or true and false.",
            )
        text = c if kind == "VARCHAR" else f"CAST({c} AS VARCHAR)"
        words, hashes = self.distinct(text)
        present = [word for word in words if word]  # neither missing nor empty
        from_text = self.kind == "csv" or name in self.folders  # text that may stand for numbers
        number = kind in ("HUGEINT", "UHUGEINT") or kind.startswith("DECIMAL")
        if number or (from_text and not fractions):
            refuse_fractions(present, name)
        labels: list[Any] = present
        if from_text or number:
            tidy = tidy_labels(present)
            labels = [tidy[word] for word in present]
        coded = recode(np.arange(len(present)), labels, name)
        code_of = np.full(len(words), -1, np.int32)
        code_of[np.fromiter(map(bool, words), bool, len(words))] = coded.codes
        return Coded(self.codes(text, hashes, code_of), coded.labels)

    def _fractions(self, c: str) -> bool:
        """Whether a column of floats holds one that is no label, or too large to be one."""
        odd = f"NOT isnan({c}) AND (abs({c}) > {WHOLE[1]} OR {c} != round({c}))"
        return bool(self.one_row(f"SELECT count(*) FILTER ({odd}) FROM raw")[0])

    def number(self, name: str) -> Any:
        """A column of numbers, NaN where one is missing."""
        c = self.place[name]
        if self.types[name] != "VARCHAR":
            return self.number_or_nan(f"CAST({c} AS DOUBLE)")[0]
        values, gone = self.number_or_nan(f"{self.double(c)}")
        if gone > self.one_row(f"SELECT count(*) - count({c}) FROM raw")[0]:
            text, row = self._no_number(c)
            do = "With a decimal comma it is 1,5, not 1.5"
            if BEYOND.fullmatch(text.strip()):
                do = "Write a number of your choice for a value beyond what was measured"
            elif self.decimal == ".":
                do = worded(
                    "Convert it to numbers (1.5, not 1,5), or say {decimal}",
                    decimal=option("decimal", ","),
                )
            raise LogError(
                f"{name!r} must be numbers; it holds {text[:40]!r}.",
                f"row {row + 1:,}",
                f"{do}; a missing value is an empty cell.",
            )
        return values

    def _no_number(self, c: str) -> tuple[str, int]:
        """The first text of a column that is no number, and its row, counted from 0."""
        row = self.first_row(f"{c} IS NOT NULL AND {self.double(c)} IS NULL")
        assert row is not None
        return str(self.value_at(c, row)), row

    def feature(self, name: str, declared: bool) -> Any:
        """A column of numbers, or of labels (`Coded`) where it is declared or holds none."""
        c, kind = self.place[name], self.types[name]
        if declared or kind == "BOOLEAN" or kind.startswith("ENUM"):
            return self.labels(name)
        if kind == "DATE" or kind.startswith("TIMESTAMP"):  # in UTC where it has a zone
            times = np.ma.asarray(self.fetch(f"CAST({c} AS TIMESTAMP)"))
            return Days(days_of(np.ma.filled(times, np.datetime64("NaT"))))
        if kind != "VARCHAR":
            return self.number(name)
        texts, numeric, empty = self.one_row(
            f"SELECT count(nullif({c}, '')), count({self.double(c)}), "
            f"count(*) FILTER ({c} = '') FROM raw"
        )
        if not texts or (numeric == texts and not empty):
            return self.number_or_nan(self.double(f"nullif({c}, '')"))[0]
        if numeric:
            text, row = self._no_number(c)
            raise not_numbers(name, text, f"row {row + 1:,}", self.decimal)
        column = self.labels(name)
        days = text_days(list(map(str, column.labels)), self.text.dates, name)
        if days is not None:
            return Days(np.append(days, np.nan)[column.codes])
        refuse_numbers(map(str, column.labels), name, self.decimal)
        return column

    def further(self, name: str, declared: bool, asked: bool) -> Any:
        """A column that is in no role: numbers, labels, or dates in days since 1970.

        Unless it was `asked` for, text of too many labels is refused before it is read.
        """
        c, kind = self.place[name], self.types[name]
        if kind == "DATE" or kind.startswith("TIMESTAMP"):
            return self.fetch(f"epoch({c}) / 86400.0")
        if not declared and not re.match(READABLE, kind):
            raise LogError(
                f"{name!r} holds {kind.lower()} values.",
                do="Make it numbers or labels, or leave it out.",
            )
        if kind == "VARCHAR" and not (declared or asked):
            texts, numeric, labels = self.one_row(
                f"SELECT count(v), count({self.double('v')}), count(DISTINCT v) "
                f"FROM (SELECT nullif({c}, '') AS v FROM raw LIMIT {PEEK})"
            )
            if numeric < texts and labels > LABELS:
                raise LogError("free text or an identifier.")
        return self.feature(name, declared)

    def about_rows(self) -> int:
        """About how many rows there are; of CSV files by their size, without reading them."""
        if self.kind == "csv":
            columns = max(len(self.types), 1)
            return sum(map(os.path.getsize, self.files)) // (SHORT_CELL * columns)
        return int(self.one_row(f"SELECT count(*) FROM ({self.scan})")[0])

    def only_common(self, chosen: AlsoNames) -> AlsoNames:
        """Those of the columns that every file has."""
        if len(self.files) < 2 or not chosen.names:
            return chosen
        per_file = columns_of_files(self.files, self.kind, self.run, self.text.encoding).values()
        everywhere = [{c.lower() for c in (*columns, *self.folders)} for columns in per_file]
        names = [n for n in chosen.names if all(n.lower() in columns for columns in everywhere)]
        gone = {n: "not in every file" for n in chosen.names if n not in names}
        return AlsoNames(tuple(names), left_out={**chosen.left_out, **gone})

    def menus(self, name: str) -> Raw:
        c, kind = self.place[name], self.types[name]
        if kind.endswith("]"):
            lists = [None if x is None else json.loads(x) for x in self.fetch(f"to_json({c})")]
            return lists, None
        values = self.fetch(c)
        return np.ma.getdata(values), np.ma.getmaskarray(values)


def read_columns(paths: Any, reading: Reading, progress: Progress | None) -> Columns:
    """The columns of CSV or Parquet files."""
    files = Files(paths, progress, partitions=reading.partitions, text=reading.text)
    names = choose(reading.columns, list(files.types))
    role = {name: part for part, v in names.items() for name in (v if isinstance(v, list) else [v])}
    further = also_names(reading.also, list(files.types), role, files.about_rows)
    if not further.asked:
        further = files.only_common(further)
    declared = check_declared(reading.categorical or (), names["state"], further.names)
    cuts = checked_bins(reading.action_bins, names["action"])
    files.every_file_has([*role, *further.names])
    files.load([*role, *further.names])

    def get(name: str) -> Raw:
        values = column(name)
        files.columns_read += 1
        return values

    def column(name: str) -> Raw:
        if name not in role:
            return files.further(name, name in declared, further.asked), None
        part = role[name]
        holds = next(own.holds for own in ROLES if own.name == part)
        if holds == "menus":
            return files.menus(name)
        if holds == "times":
            return files.time(name), None
        if holds in ("numbers", "probabilities") or name in cuts:
            return files.number(name), None
        if part == "state" and isinstance(names[part], list):
            return files.feature(name, name in declared), None
        return files.labels(name, fractions=part not in ("state", "action")), None

    with said_if_short(f"reading {files.name}"):
        columns = columns_of(names, get, reading, further, fresh=True, text=files.text)
    if files.kind == "parquet":
        files.refuse_changed()
        if progress is not None:
            progress("reading", 1.0)
    return columns
