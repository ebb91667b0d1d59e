"""CSV and Parquet files, read by DuckDB: everything as it stands there, nothing guessed."""

from __future__ import annotations

import csv
import glob
import gzip
import itertools
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.columns import (
    MISSING_WORDS,
    Coded,
    Columns,
    encode,
    numbers,
    recode,
    refuse_mixed,
    tidy_labels,
)
from dprl.errors import LogError, interruptible
from dprl.sources import Raw, choose, columns_of, quoted
from dprl.zones import TEXT, Zoned, zone_of

__all__ = ["Progress", "TableFile", "read_columns"]

Progress: TypeAlias = Callable[[str, float], None]
"""Called with the stage's name and the share of it that is done, 0 to 1."""


def open_files(paths: Any) -> tuple[list[str], str]:
    """The files meant, sorted within each pattern, and 'csv' or 'parquet'."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files: list[str] = []
    for path in (os.fspath(p) for p in given):
        if Path(path).is_dir():
            raise LogError(
                f"{path!r} is a folder.", do=f"Name its files: {os.path.join(path, '*.parquet')!r}."
            )
        found = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
        if not found:
            raise LogError(f"there is no file {path!r}.", do="Check the path or the pattern.")
        files += found
    if not files:
        raise LogError("no file was named.")
    real = [os.path.realpath(f) for f in files]
    for i, file in enumerate(real):
        if file in real[:i]:
            raise LogError(
                f"{files[i]!r} is named twice.", do="Each file once, or its rows count double."
            )
    kinds = {_kind(f) for f in files}
    if len(kinds) > 1:
        raise LogError("CSV and Parquet files cannot be read together.", files[0])
    return files, kinds.pop()


def _kind(file: str) -> str:
    name = file.lower()
    name = name.removesuffix(".gz")
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith((".csv", ".tsv", ".txt")):
        return "csv"
    raise LogError(
        f"{file!r} is neither CSV nor Parquet by its name.",
        do="Files end in .csv, .tsv, .csv.gz or .parquet; other tables go through from_frame.",
    )


def _header(file: str) -> tuple[str, tuple[str, ...]]:
    """The separator and the column names of a CSV file.

    DuckDB would guess both, and may skip rows to make a guess fit: better to read the first line.
    """
    opener = gzip.open if file.lower().endswith(".gz") else open
    try:
        with opener(file, "rt", encoding="utf-8-sig", newline="") as stream:
            line = stream.readline()
            counts = {sep: line.count(sep) for sep in (",", "\t", ";", "|")}
            separator = max(counts, key=lambda sep: counts[sep])
            names = next(csv.reader([line], delimiter=separator), [])
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise LogError(
            f"{os.path.basename(file)!r} could not be read as CSV.", str(error)[:200],
            "CSV files are UTF-8 text with the column names in the first line.",
        ) from error  # fmt: skip
    alike: dict[str, str] = {}
    for name in names:
        if name.lower() in alike:  # DuckDB takes R for r
            two = f"two columns {name!r}"
            if name != alike[name.lower()]:
                two = f"columns {alike[name.lower()]!r} and {name!r}, which differ in case alone"
            raise LogError(f"{os.path.basename(file)!r} has {two}.", do="Rename one of them.")
        alike[name.lower()] = name
    if not names:
        raise LogError(
            f"{os.path.basename(file)!r} is empty.", do="The first line must name the columns."
        )
    return separator, tuple(names)


def _scan_csv(files: list[str], missing: Iterable[str]) -> tuple[str, list[Any]]:
    """SQL, and its values, that reads CSV files as text, column by name."""
    words = ", ".join(f"'{w}'" for w in missing)
    scans: list[str] = []
    values: list[list[str]] = []
    for (separator, names), some in itertools.groupby(files, _header):
        columns = ", ".join(f"{quoted(name, chr(39))}: 'VARCHAR'" for name in names)
        scans.append(
            "SELECT * FROM read_csv(?, auto_detect=false, header=true, skip=0, "
            f"delim={quoted(separator, chr(39))}, quote='\"', escape='\"', nullstr=[{words}], "
            f"columns={{{columns}}})"
        )
        values.append([_literal(file) for file in some])
    return " UNION ALL BY NAME ".join(scans), values


def _literal(file: str) -> str:
    """A path whose stars and brackets DuckDB takes as they are."""
    return "".join(f"[{ch}]" if ch in "*?[" else ch for ch in file)


class _Files:
    """A DuckDB connection over files, with the columns asked for in one table, as they came."""

    def __init__(
        self, paths: Any, progress: Progress | None, missing: Iterable[str] = MISSING_WORDS
    ) -> None:
        import duckdb

        self.files, self.kind = open_files(paths)
        self.error = duckdb.Error
        self.con = duckdb.connect()
        self.con.execute("SET preserve_insertion_order = true; SET TimeZone = 'UTC'")
        self.con.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
        self.progress = progress
        self.scan = "SELECT * FROM read_parquet(?, union_by_name=true)"
        self.values: list[Any] = [[_literal(file) for file in self.files]]
        if self.kind == "csv":
            self.scan, self.values = _scan_csv(self.files, missing)
        rows = self.run(f"DESCRIBE {self.scan}", self.values).fetchall()
        self.types: dict[str, str] = {row[0]: str(row[1]) for row in rows}

    def run(self, sql: str, values: Sequence[Any] = ()) -> Any:
        try:
            with interruptible():
                return self.con.execute(sql, list(values))
        except self.error as error:
            reason = str(error).splitlines()[0]
            raise LogError(
                f"{os.path.basename(self.files[0])!r}"
                + (f" and {len(self.files) - 1} more" if len(self.files) > 1 else "")
                + f" could not be read as {self.kind.upper()}.",
                reason[:200],
                "Open the file and look at the place named; every row needs the same columns.",
            ) from error

    def every_file_has(self, names: Iterable[str]) -> None:
        """Refuse a file without a column that others have: its rows would count as missing."""
        if len(self.files) < 2:
            return
        if self.kind == "csv":
            held = {file: set(_header(file)[1]) for file in self.files}
        else:
            rows = self.run("SELECT file_name, name FROM parquet_schema(?)", self.values).fetchall()
            held = {file: set() for file, _ in rows}
            for file, name in rows:
                held[file].add(name)
        for file, columns in held.items():
            known = {column.lower() for column in columns}  # DuckDB takes R for r
            for name in names:
                if name.lower() not in known:
                    raise LogError(
                        f"{os.path.basename(file)!r} has no column {name!r}, which others have.",
                        f"its columns are {', '.join(map(repr, sorted(columns)[:12]))}",
                        "Every file needs every column that is named.",
                    )

    def load(self, names: Iterable[str]) -> None:
        """Read the columns into table `raw`, where they are called c0, c1 and so on."""
        self.place = {name: f"c{i}" for i, name in enumerate(names)}
        select = ", ".join(f"{quoted(name)} AS {c}" for name, c in self.place.items())
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                if self.progress is not None:
                    self.progress("reading", max(0.0, self.con.query_progress()) / 100)

        watcher = threading.Thread(target=watch, daemon=True)
        if self.progress is not None:
            watcher.start()
        try:
            self.run(f"CREATE TEMP TABLE raw AS SELECT {select} FROM ({self.scan})", self.values)
        finally:
            done.set()
            if self.progress is not None:
                watcher.join()
        if self.progress is not None:
            self.progress("reading", 1.0)

    def fetch(self, expression: str) -> Any:
        with interruptible():
            return self.run(f"SELECT {expression} AS v FROM raw").fetchnumpy()["v"]

    def labels(self, name: str) -> Coded:
        """A column of labels, coded inside DuckDB: no Python object a row."""
        c, kind = self.place[name], self.types[name]
        if kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
                    "UBIGINT", "BOOLEAN", "FLOAT", "DOUBLE"):  # fmt: skip
            return encode(self.fetch(c), name)
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "BLOB")):
            raise LogError(
                f"{name!r} holds {kind.lower()} values, which are not labels.",
                do="Labels are text, whole numbers, or true and false.",
            )
        text = f"nullif(CAST({c} AS VARCHAR), '')"
        self.run(
            f"CREATE OR REPLACE TYPE label_{c} AS ENUM "
            f"(SELECT DISTINCT {text} FROM raw WHERE {text} IS NOT NULL)"
        )
        rows = self.run(f"SELECT unnest(enum_range(NULL::label_{c}))").fetchall()
        words = [row[0] for row in rows]
        codes = self.fetch(f"coalesce(enum_code(CAST({text} AS label_{c}))::INTEGER, -1)")
        tidy = tidy_labels(words) if self.kind == "csv" or kind == "HUGEINT" else {}
        return recode(np.asarray(codes), [tidy.get(w, w) for w in words], name)

    def number(self, name: str) -> Any:
        c = self.place[name]
        if self.types[name] == "VARCHAR":
            bad = self.run(
                f"SELECT rowid, {c} FROM raw WHERE {c} IS NOT NULL AND TRY_CAST({c} AS DOUBLE) "
                "IS NULL ORDER BY rowid LIMIT 1"
            ).fetchone()
            if bad is not None:
                raise LogError(
                    f"{name!r} must be numbers; it holds {bad[1][:40]!r}.",
                    f"row {bad[0] + 1:,}",
                    "Convert it to numbers (1.5, not 1,5); a missing value is an empty cell.",
                )
        return self.fetch(f"CAST({c} AS DOUBLE)")

    def time(self, name: str) -> Any:
        c, kind = self.place[name], self.types[name]
        if kind == "TIMESTAMP WITH TIME ZONE":
            return self._charted(c, zone_of(self.files, name, self.run) or "UTC")
        if kind != "VARCHAR":
            return self.fetch(f"CAST({c} AS TIMESTAMP)" if "TIME" in kind or kind == "DATE" else c)
        moment = f"CAST(CAST({c} AS TIMESTAMPTZ) AS TIMESTAMP)"  # in UTC, whatever its offset
        row = self.run(
            f"SELECT count({c}), count(*) FILTER (regexp_full_match({c}, '[+-]?\\d{{1,18}}')), "
            f"count(TRY_CAST({c} AS DOUBLE)), count(TRY_CAST({c} AS TIMESTAMPTZ)) FROM raw"
        ).fetchone()
        casts = (f"CAST({c} AS BIGINT)", f"CAST({c} AS DOUBLE)", moment)
        for count, cast in zip(row[1:], casts, strict=True):
            if count == row[0]:
                return self._zoned(name, c, moment) if cast is moment else self.fetch(cast)
        return self.fetch(c)

    def _zoned(self, name: str, c: str, moment: str) -> Any:
        """Times written as text, with the zone each is written with."""
        form = quoted(TEXT, chr(39))
        all_of_them, zoned = self.run(
            f"SELECT count({c}), count(*) FILTER (regexp_matches({c}, {form})) FROM raw"
        ).fetchone()
        if not zoned:
            return self.fetch(moment)
        if zoned < all_of_them:
            refuse_mixed(name, zoned, all_of_them)
        wall = f"TRY_CAST(regexp_extract({c}, {form}, 1) AS TIMESTAMP)"
        return Zoned(self.fetch(moment), self.fetch(f"date_diff('second', {moment}, {wall})"))

    def _charted(self, c: str, zone: str) -> Zoned:
        """Moments (column `c`) with the clock of a zone."""
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

    def menus(self, name: str) -> Raw:
        c, kind = self.place[name], self.types[name]
        if kind.endswith("]"):
            lists = [None if x is None else json.loads(x) for x in self.fetch(f"to_json({c})")]
            return lists, None
        values = self.fetch(c)
        return np.ma.getdata(values), np.ma.getmaskarray(values)


def read_columns(paths: Any, parts: Mapping[str, Any], progress: Progress | None) -> Columns:
    """Columns of CSV or Parquet files."""
    files = _Files(paths, progress)
    names = choose(parts, list(files.types))
    role = {name: part for part, v in names.items() for name in (v if isinstance(v, list) else [v])}
    files.every_file_has(role)
    files.load(role)

    def get(name: str) -> Raw:
        part = role[name]
        if part == "available":
            return files.menus(name)
        if part == "time":
            return files.time(name), None
        if part == "reward" or isinstance(names[part], list):
            return files.number(name), None
        return files.labels(name), None

    return columns_of(names, get)


def _meaning(word: str, kind: type) -> Any:
    """The whole number or truth value a word stands for, None where it stands for none."""
    if kind is bool:
        return {"true": True, "false": False}.get(word.lower())
    number = tidy_labels([word])[word]
    return None if isinstance(number, str) else number


class TableFile(_Files):
    """A whole CSV or Parquet table in memory, to be answered row by row and written again."""

    def __init__(self, paths: Any, progress: Progress | None = None) -> None:
        super().__init__(paths, progress, missing=[""])  # 'NA' is handed back as 'NA'
        self.every_file_has(self.types)
        self.load(self.types)

    def states(self, name: str, kind: type) -> list[Any]:
        """A column of states as text, whole numbers or truth values; None where missing."""
        name = choose({"state": name}, list(self.types))["state"]
        if kind is str:
            column = encode(self.fetch(f"CAST({self.place[name]} AS VARCHAR)"), name)
        else:
            column = self.labels(name)
        labels: list[Any] = [*column.labels, None]
        if kind is not str and column.labels and isinstance(column.labels[0], str):
            read = [_meaning(label, kind) for label in column.labels]
            wrong = np.flatnonzero(np.array([*(x is None for x in read), False])[column.codes])
            if len(wrong):
                what = "true or false" if kind is bool else "whole numbers"
                raise LogError(
                    f"{name!r} must hold {what}, as the policy's states do.",
                    f"row {wrong[0] + 1:,}: {labels[column.codes[wrong[0]]]!r}",
                    "Use the labels the policy was fitted on; a missing one is an empty cell.",
                )
            labels = [*read, None]
        return [labels[code] for code in column.codes.tolist()]

    def features(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Numeric columns (N, d); a state with a missing feature is refused."""
        found = [choose({"state": name}, list(self.types))["state"] for name in names]
        x = np.column_stack([numbers(self.number(name), name) for name in found])
        gone = np.flatnonzero(np.isnan(x).any(axis=1))
        if len(gone):
            name = names[int(np.argmax(np.isnan(x[gone[0]])))]
            raise LogError(
                f"a feature is missing on {len(gone):,} of {len(x):,} rows, such as {name!r}.",
                f"row {gone[0] + 1:,}",
                "A distance needs every feature: fill it, or leave these rows out.",
            )
        return x

    def write_with(self, name: str, words: list[str], path: Path, kind: str) -> None:
        """Write every column as it came, and one more called `name`."""
        answers = np.empty(len(words), object)
        answers[:] = words
        self._write(answers, f", v AS {quoted(name)}", "", path, kind)

    def write_rows(self, chosen: NDArray[np.bool_], path: Path, kind: str) -> None:
        """Write the rows chosen (N,), every column as it came."""
        self._write(chosen, "", "WHERE v", path, kind)

    def _write(self, v: NDArray[Any], more: str, where: str, path: Path, kind: str) -> None:
        if kind not in (".csv", ".parquet"):
            raise LogError(f"{kind!r} is not a kind of table to write.", do="Use .csv or .parquet.")
        self.con.register("beside", {"v": v})
        columns = ", ".join(f"{c} AS {quoted(n)}" for n, c in self.place.items())
        style = "FORMAT parquet" if kind == ".parquet" else "FORMAT csv, HEADER"
        self.run(
            f"COPY (SELECT {columns}{more} FROM raw POSITIONAL JOIN beside {where}) "
            f"TO {quoted(str(path), chr(39))} ({style})"
        )
