"""TableFile: a whole CSV or Parquet table that is answered row by row and written again."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.database import connect
from dprl._core.disk import (
    check_target,
    prefix_in,
    refuse_overwrite,
    replacing,
    said_if_short,
    together,
)
from dprl._core.table import FORMULA, no_formula
from dprl._core.words import option, worded
from dprl.errors import LabelWarning, LogError, interruptible
from dprl.logs.checking.labels import one_number, spelled_twice
from dprl.logs.encoding.categories import Levels, label_text
from dprl.logs.log import deal
from dprl.logs.reading.columns import MISSING_WORDS, Coded, encode, numbers, tidy_labels
from dprl.logs.reading.dates import Days
from dprl.logs.reading.files import Files, Progress, written_in
from dprl.logs.reading.frames import choose, no_column, one_column, quoted
from dprl.logs.reading.paths import literal
from dprl.logs.reading.text import Text

# --- TableFile: a whole CSV or Parquet table that is answered row by row and written again


def _meaning(word: str, kind: type) -> Any:
    """The whole number or truth value that a word stands for; None if it stands for neither."""
    if kind is bool:
        return {"true": True, "false": False}.get(word.lower())
    number = tidy_labels([word])[word]
    return None if isinstance(number, str) else number


class TableFile(Files):
    """A whole CSV or Parquet table, to be answered row by row and written again.

    It can be written to the folder `out`, and to `room`, a temporary folder that goes with it.
    """

    def __init__(
        self,
        paths: Any,
        progress: Progress | None = None,
        partitions: bool = False,
        text: Text | None = None,
        out: Path | None = None,
    ) -> None:
        self.room = Path(tempfile.mkdtemp(prefix=prefix_in(None, "table"))).resolve()
        weakref.finalize(self, shutil.rmtree, self.room, ignore_errors=True)
        folders = [self.room] if out is None else [self.room, out]
        # 'NA' is handed back as 'NA'
        super().__init__(paths, progress, [""], partitions, text, folders)
        self.encoding = (text or Text()).encoding  # of the files, not of copies in UTF-8
        self.every_file_has(self.types)
        self.load(self.types)
        self.written = dict(self.place)  # columns as they are handed back

    def read_gaps(self, labels: Collection[Any] = ()) -> None:
        """Read words such as 'NA' as missing, as in a log; not those that are `labels`."""
        if self.kind != "csv":
            return
        words = [quoted(word, chr(39)) for word in MISSING_WORDS if word and word not in labels]
        for name, c in self.written.items():
            if self.types[name] == "VARCHAR" and words:
                self.place[name] = f"(CASE WHEN {c} IN ({', '.join(words)}) THEN NULL ELSE {c} END)"

    def states(self, name: str, kind: type) -> list[Any]:
        """A column of states as text, whole numbers or truth values; None where missing."""
        name = one_column(name, list(self.types), "state")
        if kind is str:
            column = encode(self.fetch(f"CAST({self.place[name]} AS VARCHAR)"), name)
        else:
            column = self.labels(name)
        labels: list[Any] = [*column.labels, None]
        if kind is not str and column.labels and isinstance(column.labels[0], str):
            meanings = [_meaning(label, kind) for label in column.labels]
            wrong = np.flatnonzero(np.array([*(x is None for x in meanings), False])[column.codes])
            if len(wrong):
                what = "true or false" if kind is bool else "whole numbers"
                raise LogError(
                    f"{name!r} must hold {what}, as the policy's states do.",
                    f"row {wrong[0] + 1:,}: {labels[column.codes[wrong[0]]]!r}",
                    "Use the labels the policy was fitted on; a missing one is an empty cell.",
                )
            labels = [*meanings, None]
        return [labels[code] for code in column.codes.tolist()]

    def features(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Numeric columns (N, d); a row with a missing feature is refused."""
        for name in names:
            if name not in self.types:
                raise no_column(name, list(self.types), "state")
        x = np.column_stack([numbers(self.number(name), name) for name in names])
        gone = np.flatnonzero(np.isnan(x).any(axis=1))
        if len(gone):
            name = names[int(np.argmax(np.isnan(x[gone[0]])))]
            raise LogError(
                f"a feature is missing on {len(gone):,} of {len(x):,} rows, such as {name!r}.",
                f"row {gone[0] + 1:,}",
                "A distance needs every feature: fill it, or leave these rows out.",
            )
        return x

    def mixed_features(
        self, names: Sequence[str], levels: Levels, days: Collection[str] = ()
    ) -> dict[str, list[Any]]:
        """Feature → its numbers, days or labels; None where one is missing.

        Args:
            names: The features.
            levels: The labels of each that is a category, None for numbers.
            days: The features that are dates. Default (): none.
        """
        columns: dict[str, list[Any]] = {}
        for j, name in enumerate(names):
            if name not in self.types:
                raise no_column(name, list(self.types), "state")
            if levels and levels[j] is not None:
                coded = self.labels(name)
                texts = [*map(label_text, coded.labels), None]
                columns[name] = [texts[code] for code in coded.codes.tolist()]
            else:
                x = self.days(name) if name in days else numbers(self.number(name), name)
                columns[name] = [None if value != value else value for value in x.tolist()]
        return columns

    def days(self, name: str) -> NDArray[np.float64]:
        """A column of dates as days; numbers are days already."""
        column = self.feature(name, False)
        if isinstance(column, Coded) and column.labels:
            raise LogError(
                f"{name!r} must be dates; it holds {str(column.labels[0])[:40]!r}.",
                do="Write them as in the training log, or as 2024-02-01.",
            )
        return column.values if isinstance(column, Days) else np.asarray(column, np.float64)

    def write_with(
        self, name: str, words: list[str], path: Path, kind: str, guard: bool = False,
        called: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Write every column unchanged, and one more column called `name`.

        Where they are `called` something else, that is beside them in a column "`name`_called".
        With `guard`, text in a CSV file that a spreadsheet would take for a formula gets a ' before
        it; numbers stay as they are.
        """
        guard = guard and kind == ".csv"
        more, beside = "", {}
        for own, title, texts in (("v", name, words), ("w", f"{name}_called", called)):
            if texts is not None:
                beside[own] = np.empty(len(texts), object)
                beside[own][:] = texts
                new = _no_formula(own) if guard else own
                more += f", {new} AS {quoted(no_formula(title) if guard else title)}"
        self._write(beside, more, "", path, kind, guard)

    def write_rows(self, chosen: NDArray[np.bool_], path: Path, kind: str) -> None:
        """Write the rows where `chosen` (N,) is true, every column unchanged.

        A CSV file is written in the encoding of the files that were read, separated by commas.
        """
        encoding = self.encoding if kind == ".csv" else "utf-8"
        with written_in(encoding, path, self.room) as plain:
            self._write({"v": chosen}, "", "WHERE v", plain, kind)

    def _write(
        self,
        beside: Mapping[str, NDArray[Any]],
        more: str,
        where: str,
        path: Path,
        kind: str,
        guard: bool = False,
    ) -> None:
        if kind not in (".csv", ".parquet"):
            raise LogError(f"{kind!r} is not a kind of table to write.", do="Use .csv or .parquet.")
        self.con.register("beside", dict(beside))
        columns = ", ".join(
            f"{_no_formula(c)} AS {quoted(no_formula(n))}" if guard else f"{c} AS {quoted(n)}"
            for n, c in self.written.items()
        )
        style = "FORMAT parquet" if kind == ".parquet" else "FORMAT csv, HEADER"
        sql = (
            f"COPY (SELECT {columns}{more} FROM raw POSITIONAL JOIN beside {where}) "
            f"TO {quoted(str(path), chr(39))} ({style})"
        )
        try:
            with interruptible(), said_if_short("writing the table", str(path)):
                self.con.execute(sql)
            if self.kind == "parquet":  # read again, and put beside what was read before
                self.refuse_changed()
        except self.error as error:
            reason = str(error).splitlines()[0][:200]
            raise LogError("the table could not be written.", reason) from error


WITH_COMMA = r" *[+\-]?[0-9.]*,[0-9]+([eE][+\-]?[0-9]+)? *"
"""A number with a decimal comma (-0,5 or -1.234,5): DuckDB does not take it for one."""


def _no_formula(column: str) -> str:
    """SQL: text that is no number and begins like a formula, with a ' before it."""
    signs = "".join(FORMULA).replace("-", "\\-")
    return (
        f"CASE WHEN regexp_matches({column}::VARCHAR, '^\\s*[{signs}]') "
        f"AND try_cast({column}::VARCHAR AS DOUBLE) IS NULL "
        f"AND NOT regexp_full_match({column}::VARCHAR, '{WITH_COMMA}') "
        f"THEN chr(39) || {column}::VARCHAR ELSE {column}::VARCHAR END"
    )


# --- A table split in two: some episodes to learn from, the others to evaluate on

NAMES = ("train", "test")


def split_table(
    files: Sequence[str],
    by: str,
    folder: Path,
    *,
    fraction: float,
    seed: int,
    group: str | None = None,
    partitions: bool = False,
    encoding: str = "utf-8",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a train and a test table of whole episodes or groups, with every column unchanged.

    The sides are those of `Log.split` with the same seed.

    Args:
        files: CSV or Parquet files.
        by: The column whose values stay together.
        folder: The folder to write both tables to; it is created if it does not exist.
        fraction: Share of the values that goes to train, in (0, 1).
        seed: Seed of the random draw.
        group: A column no value of which may come to both sides. Default None.
        partitions: Whether folders named NAME=VALUE become columns; they are written like the
            others. Default False.
        encoding: How the letters of CSV files are written; both tables are written so too.
            Default "utf-8".
        progress: Called with the name of a stage and the share of it that is done. Default None.

    Returns:
        The column, fraction and seed used; for each side its file and its numbers of values and
        rows.

    Raises:
        LogError: If `by` is missing somewhere, or a group would come to both sides.
    """
    for side in NAMES:
        check_target(*(folder / f"{side}{ending}" for ending in (".csv", ".parquet")))
    table = TableFile(list(files), progress, partitions, Text(encoding=encoding), folder)
    name = choose({"by": by}, list(table.types))["by"]
    column = table.labels(name)
    gone = np.flatnonzero(column.codes < 0)
    if len(gone):
        raise LogError(
            f"{name!r} is missing on {len(gone):,} of {len(column.codes):,} rows.",
            f"row {gone[0] + 1:,}",
            "A row that belongs to nobody can go to neither side: fill it, or leave it out.",
        )
    for twice, how in (
        (spelled_twice(column.labels), "only Unicode spelling tells from another"),
        (one_number(column.labels), "are the number of another"),
    ):
        if twice is not None:
            warnings.warn(
                f"{name!r} has {twice[0]:,} labels that {how}; "
                f"they may come to different sides. First: {twice[1]}.",
                LabelWarning,
                stacklevel=2,
            )
    first = deal(len(column.labels), fraction, seed)
    if group is not None:
        _refuse_divided(table, name, group, first[column.codes])
    ending = f".{table.kind}"
    paths = [folder / f"{side}{ending}" for side in NAMES]
    for path in paths:
        refuse_overwrite(path, *files)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LogError(f"the folder {str(folder)!r} cannot be made.", str(error)) from error
    summary: dict[str, Any] = {"by": name, "fraction": fraction, "seed": seed}
    with together():
        for side, path, side_values in zip(NAMES, paths, (first, ~first), strict=True):
            chosen = side_values[column.codes]
            with replacing(path) as part:
                table.write_rows(chosen, part, ending)
            summary[side] = {
                "file": str(path),
                "kept": int(side_values.sum()),
                "rows": int(chosen.sum()),
            }
    return summary


def _refuse_divided(table: TableFile, by: str, group: str, first: NDArray[np.bool_]) -> None:
    """Refuse sides that share a group; `first` (N,) is true for rows of the first side."""
    name = choose({"group": group}, list(table.types))["group"]
    column = table.labels(name)
    known = column.codes >= 0
    sides = np.zeros((2, len(column.labels)), bool)
    sides[first[known].astype(int), column.codes[known]] = True
    both = np.flatnonzero(sides.all(axis=0))
    if len(both):
        raise LogError(
            f"{by!r} would put {len(both):,} of {len(column.labels):,} of {name!r} on both sides.",
            f"{name}={column.labels[both[0]]}",
            worded("Split by whole groups: {by}.", by=option("by", name)),
        )


# --- Rows written to and read from Parquet files: the data behind a figure

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[str, NDArray[Any]]
"""Column name → values; all columns have the same length."""


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows that share their keys as a Parquet file."""
    names = list(rows[0])
    data = {name: _column([row[name] for row in rows]) for name in names}
    with replacing(path) as part, connect(folders=[part.parent]) as con:
        con.register("data", data)
        con.execute(
            f"COPY (SELECT * FROM data) TO {quoted(str(part), chr(39))} "
            "(FORMAT parquet, COMPRESSION zstd)"
        )


def _column(values: list[Any]) -> NDArray[Any]:
    """A column DuckDB accepts: numbers as numbers, text as objects."""
    if any(isinstance(v, str) for v in values):
        column = np.empty(len(values), object)
        column[:] = values
        return column
    return np.asarray(values)


def read_rows(paths: Sequence[Path]) -> Rows:
    """The rows of Parquet files, in the order of the files."""
    with connect(files=[path.resolve() for path in paths]) as con:
        parts = [
            con.execute(
                "SELECT * FROM read_parquet(?, hive_partitioning=false)", [literal(path.resolve())]
            ).fetchnumpy()
            for path in paths
        ]
    # DuckDB returns a NaN as a masked 0.
    return {
        name: np.concatenate([np.ma.filled(p[name], np.nan) if np.ma.is_masked(p[name])
                              else np.asarray(p[name]) for p in parts])
        for name in parts[0]
    }  # fmt: skip
