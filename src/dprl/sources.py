"""Where rows come from: files through DuckDB, any dataframe through narwhals, plain arrays."""

from __future__ import annotations

import difflib
import fnmatch
import glob
import json
import os
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
    encode_menus,
    numbers,
    recode,
    tidy_labels,
    times,
)
from dprl.errors import LogError

__all__ = ["Progress", "TableFile", "columns_of", "frame_columns", "open_files", "read_columns"]

Progress: TypeAlias = Callable[[str, float], None]
"""Called with the stage's name and the share of it that is done, 0 to 1."""

Raw: TypeAlias = tuple[Any, NDArray[np.bool_] | None]
LABELS = ("episode", "state", "action", "group", "ended")


def choose(
    parts: Mapping[str, str | Sequence[str] | None], columns: Sequence[str]
) -> dict[str, Any]:
    """Part → existing column name; features (a list, or a pattern such as 'x_*') → a list."""
    chosen: dict[str, Any] = {}
    for part, name in parts.items():
        if name is None:
            continue
        if not isinstance(name, str):
            names = [found for pattern in name for found in _matching(pattern, columns, part)]
            chosen[part] = list(dict.fromkeys(names))
        elif part == "state" and name not in columns and any(ch in name for ch in "*?["):
            chosen[part] = _matching(name, columns, part)
        else:
            chosen[part] = _matching(name, columns, part)[0]
    flat = [n for v in chosen.values() for n in (v if isinstance(v, list) else [v])]
    for name in flat:
        if flat.count(name) > 1:
            parts_of = [p for p, v in chosen.items() if name == v or name in v]
            raise LogError(f"column {name!r} is used for {' and '.join(parts_of)}.")
    return chosen


def _matching(name: str, columns: Sequence[str], part: str) -> list[str]:
    if name in columns:
        return [name]
    found = fnmatch.filter(columns, name) if any(ch in name for ch in "*?[") else []
    if not found:
        near = difflib.get_close_matches(name, columns, n=1)
        raise LogError(
            f"there is no column {name!r} for {part}.",
            f"the columns are {', '.join(map(repr, columns[:12]))}",
            f"Did you mean {near[0]!r}?" if near else f"Name the right one with {part}=.",
        )
    return found


def columns_of(names: Mapping[str, Any], get: Callable[[str], Raw]) -> Columns:
    """Columns from a function that gives (values, where missing) of a named column."""

    def coded(part: str) -> Coded | None:
        if part not in names:
            return None
        values, gone = get(names[part])
        if isinstance(values, Coded):
            return values
        return encode(values, str(names[part]), gone)

    features, state = None, None
    feature_names: tuple[str, ...] = ()
    if isinstance(names["state"], list):
        feature_names = tuple(names["state"])
        features = np.column_stack([numbers(*_named(get, n)) for n in feature_names])
    else:
        state = coded("state")
    reward = numbers(*_named(get, names["reward"]))
    time, time_missing = None, None
    if "time" in names:
        time, time_missing = times(*_named(get, names["time"]))
    episode, action = coded("episode"), coded("action")
    if episode is None or action is None:
        raise LogError("a log needs an episode and an action column.")
    available = None
    if "available" in names:
        values, gone = get(names["available"])
        available = _in_words_of(action, encode_menus(values, str(names["available"]), gone))
    lengths = {len(reward), len(episode.codes), len(action.codes)}
    lengths |= {len(x) for x in (features, time) if x is not None}
    lengths |= {len(x.codes) for x in (state, available) if x is not None}
    if len(lengths) > 1:
        raise LogError(
            f"the columns have different lengths: {', '.join(map(str, sorted(lengths)))} rows."
        )
    return Columns(
        names, episode, action, reward,
        state=state, features=features, time=time, time_missing=time_missing,
        group=coded("group"), available=available, ended=coded("ended"),
        feature_names=feature_names,
    )  # fmt: skip


def _named(get: Callable[[str], Raw], name: str) -> tuple[Any, str, NDArray[np.bool_] | None]:
    values, gone = get(name)
    return values, name, gone


def _in_words_of(action: Coded, menus: Coded) -> Coded:
    """Menus read as text, in whole numbers where the actions are whole numbers."""
    if not action.labels or isinstance(action.labels[0], str):
        return Coded(menus.codes, tuple(tuple(map(str, menu)) for menu in menus.labels))
    tidy = tidy_labels([x for menu in menus.labels for x in menu if isinstance(x, str)])
    return Coded(menus.codes, tuple(tuple(tidy.get(x, x) for x in menu) for menu in menus.labels))


# -- dataframes ---------------------------------------------------------------------------------


def frame_columns(frame: Any, parts: Mapping[str, Any]) -> Columns:
    """Columns of a pandas, polars, Arrow, DuckDB or any other frame narwhals knows."""
    if hasattr(frame, "fetchnumpy") and hasattr(frame, "project"):  # a DuckDB relation
        names = choose(parts, frame.columns)

        def from_relation(name: str) -> Raw:
            quoted = '"' + name.replace('"', '""') + '"'
            values = frame.project(quoted).fetchnumpy()[name]
            if isinstance(values, np.ma.MaskedArray):
                return values.data, np.ma.getmaskarray(values)
            return values, None

        return columns_of(names, from_relation)
    import narwhals as nw

    try:
        table = nw.from_native(frame)
    except TypeError as error:
        raise LogError(
            f"a {type(frame).__name__} is not a dataframe.",
            do="Pass a pandas, polars, Arrow or DuckDB table, or use dprl.from_arrays.",
        ) from error
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    names = choose(parts, table.columns)

    def from_frame(name: str) -> Raw:
        series = table.get_column(name)
        gone = series.is_null().to_numpy().astype(bool)
        if isinstance(series.dtype, nw.Categorical | nw.Enum):
            series = series.cast(nw.String)
        if isinstance(series.dtype, nw.Datetime) and series.dtype.time_zone:
            series = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        if series.dtype.is_numeric() and not isinstance(series.dtype, nw.Decimal):
            if gone.any() and series.dtype.is_integer():
                series = series.fill_null(0)
            return series.to_numpy(), gone
        if isinstance(series.dtype, nw.Datetime | nw.Duration):
            return series.to_numpy(), gone
        values = np.empty(len(series), object)
        values[:] = series.to_list()
        return values, gone

    return columns_of(names, from_frame)


# -- files --------------------------------------------------------------------------------------


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
    kinds = {_kind(f) for f in files}
    if len(kinds) > 1:
        raise LogError("CSV and Parquet files cannot be read together.", files[0])
    return files, kinds.pop()


def _kind(file: str) -> str:
    name = file.lower()
    for end in (".gz", ".zst"):
        name = name.removesuffix(end)
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith((".csv", ".tsv", ".txt")):
        return "csv"
    raise LogError(
        f"{file!r} is neither CSV nor Parquet by its name.",
        do="Files end in .csv, .tsv, .csv.gz or .parquet; other tables go through from_frame.",
    )


class _Files:
    """A DuckDB connection over files, with the columns asked for in one table, as they came."""

    def __init__(self, paths: Any, progress: Progress | None) -> None:
        import duckdb

        self.files, self.kind = open_files(paths)
        self.error = duckdb.Error
        self.con = duckdb.connect()
        self.con.execute("SET preserve_insertion_order = true")
        self.con.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
        self.progress = progress
        if self.kind == "csv":
            words = ", ".join(f"'{w}'" for w in MISSING_WORDS)
            self.scan = (
                f"read_csv(?, union_by_name=true, all_varchar=true, header=true, nullstr=[{words}])"
            )
        else:
            self.scan = "read_parquet(?, union_by_name=true)"
        rows = self.run(f"DESCRIBE SELECT * FROM {self.scan}", [self.files]).fetchall()
        self.types: dict[str, str] = {row[0]: str(row[1]) for row in rows}

    def run(self, sql: str, values: Sequence[Any] = ()) -> Any:
        try:
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

    def load(self, names: Iterable[str]) -> None:
        """Read the columns into table `raw`, where they are called c0, c1 and so on."""
        self.place = {name: f"c{i}" for i, name in enumerate(names)}
        select = ", ".join(
            '"' + name.replace('"', '""') + f'" AS {c}' for name, c in self.place.items()
        )
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                if self.progress is not None:
                    self.progress("reading", max(0.0, self.con.query_progress()) / 100)

        watcher = threading.Thread(target=watch, daemon=True)
        if self.progress is not None:
            watcher.start()
        try:
            self.run(f"CREATE TEMP TABLE raw AS SELECT {select} FROM {self.scan}", [self.files])
        finally:
            done.set()
        if self.progress is not None:
            watcher.join()
            self.progress("reading", 1.0)

    def fetch(self, expression: str) -> Any:
        return self.run(f"SELECT {expression} AS v FROM raw").fetchnumpy()["v"]

    def labels(self, name: str) -> Coded:
        """A column of labels, coded inside DuckDB: no Python object a row."""
        c, kind = self.place[name], self.types[name]
        if kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER",
                    "BOOLEAN", "FLOAT", "DOUBLE"):  # fmt: skip
            return encode(self.fetch(c), name)
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "BLOB")):
            raise LogError(
                f"{name!r} holds {kind.lower()} values, which are not labels.",
                do="Labels are text, whole numbers, or true and false.",
            )
        text = f"CAST({c} AS VARCHAR)"
        self.run(
            f"CREATE OR REPLACE TYPE label_{c} AS ENUM "
            f"(SELECT DISTINCT {text} FROM raw WHERE {c} IS NOT NULL)"
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
        if kind != "VARCHAR":
            return self.fetch(f"CAST({c} AS TIMESTAMP)" if "TIME" in kind or kind == "DATE" else c)
        row = self.run(
            f"SELECT count({c}), count(*) FILTER (regexp_full_match({c}, '[+-]?\\d{{1,18}}')), "
            f"count(TRY_CAST({c} AS DOUBLE)), count(TRY_CAST({c} AS TIMESTAMP)) FROM raw"
        ).fetchone()
        for count, as_type in zip(row[1:], ("BIGINT", "DOUBLE", "TIMESTAMP"), strict=True):
            if count == row[0]:
                return self.fetch(f"CAST({c} AS {as_type})")
        return self.fetch(c)

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


class TableFile(_Files):
    """A whole CSV or Parquet table in memory, to be answered row by row and written again."""

    def __init__(self, path: str) -> None:
        super().__init__(path, None)
        self.load(self.types)

    def states(self, name: str, text: bool) -> list[Any]:
        """A column of states as text or as whole numbers; None where missing."""
        name = choose({"state": name}, list(self.types))["state"]
        if not text:
            column = self.labels(name)
            if column.labels and isinstance(column.labels[0], str):
                raise LogError(
                    f"{name!r} must hold whole numbers, as the policy's states do.",
                    f"{column.labels[0]!r}",
                    "Use the labels the policy was fitted on.",
                )
        else:
            column = encode(self.fetch(f"CAST({self.place[name]} AS VARCHAR)"), name)
        labels = [*column.labels, None]
        return [labels[code] for code in column.codes.tolist()]

    def write_with(self, name: str, words: list[str], path: Path, kind: str) -> None:
        """Write every column as it came, and one more called `name`."""
        if name in self.types:
            raise LogError(
                f"the table has a column {name!r} already.", do="Choose another with --column."
            )
        if kind not in (".csv", ".parquet"):
            raise LogError(f"{kind!r} is not a kind of table to write.", do="Use .csv or .parquet.")
        answers = np.empty(len(words), object)
        answers[:] = words
        self.con.register("answers", {"v": answers})
        quoted = {n: '"' + n.replace('"', '""') + '"' for n in (*self.types, name)}
        columns = ", ".join(f"{c} AS {quoted[n]}" for n, c in self.place.items())
        style = "FORMAT parquet" if kind == ".parquet" else "FORMAT csv, HEADER"
        target = str(path).replace("'", "''")
        self.run(
            f"COPY (SELECT {columns}, v AS {quoted[name]} FROM raw POSITIONAL JOIN answers) "
            f"TO '{target}' ({style})"
        )
