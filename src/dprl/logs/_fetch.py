"""Columns of files as arrays: DuckDB reads, and each batch goes straight to where it is wanted.

Of Parquet files every column is read on its own, when it is asked for: nothing is held twice. CSV
files are read once, into a table, since every line holds all columns.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.limits import said_if_short
from dprl.errors import LogError, interruptible
from dprl.logs._columns import WHOLE, Coded, encode
from dprl.logs._row_facts import is_large
from dprl.logs._sources import quoted
from dprl.logs._stream import Batch, StreamError, batches
from dprl.logs._text import SAY_ENCODING

__all__ = ["Fetch", "Progress"]

Progress: TypeAlias = Callable[[str, float], None]
"""A function that is called with the name of a stage and the share of it that is done, 0 to 1."""

FEW = 1 << 20
"""Whole numbers that lie within so many are coded by a table, in a log of any size."""


class Fetch:
    """A DuckDB connection over files, with their columns as arrays."""

    files: list[str]
    kind: str
    con: Any
    error: Any
    scan: str
    values: list[Any]
    progress: Progress | None
    as_opened: list[tuple[int, int, int]]
    columns_read: int = 0

    @property
    def name(self) -> str:
        """The name messages use for the files."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{os.path.basename(self.files[0])!r}{more}"

    def run(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Run SQL; an error in it is one of the file."""
        with self._reading():
            return self.con.execute(sql, list(values))

    def one_row(self, sql: str) -> Any:
        """The only row of a query."""
        return self.run(sql).fetchall()[0]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Errors of DuckDB inside as errors of three lines."""
        try:
            with interruptible(), said_if_short(f"reading {self.name}"):
                yield
        except (self.error, StreamError) as error:
            reason = (str(error).splitlines() or [""])[0]
            if isinstance(error, StreamError) and "interrupted" in reason.lower():
                raise KeyboardInterrupt from error
            raise LogError(
                f"{self.name} could not be read as {self.kind.upper()}.",
                reason[:200],
                SAY_ENCODING
                if "not utf-8 encoded" in str(error)
                else "Open the file and look at the place named; every row needs the same columns.",
            ) from error

    def load(self, names: Iterable[str]) -> None:
        """Make `raw` with the columns, where they are called c0, c1 and so on."""
        self.place = {name: f"c{i}" for i, name in enumerate(names)}
        select = ", ".join(f"{quoted(name)} AS {c}" for name, c in self.place.items())
        if self.kind == "csv":
            with self._watched():
                self.run(
                    f"CREATE TEMP TABLE raw AS SELECT {select} FROM ({self.scan})", self.values
                )
        else:
            self.run(f"CREATE TEMP VIEW raw AS SELECT {select} FROM ({self.scan})")
        self.count_rows()

    def count_rows(self) -> None:
        """Count the rows of `raw`; whoever makes it must call this before a column is fetched."""
        self.rows = int(self.one_row("SELECT count(*) FROM raw")[0])

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Report how much of the query inside is done."""
        progress = self.progress
        if progress is None:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.2):
                progress("reading", max(0.0, self.con.query_progress()) / 100)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
        progress("reading", 1.0)

    def on_disk(self) -> list[tuple[int, int, int]]:
        """What tells whether a file was changed: which file it is, its size and its time."""
        facts = [os.stat(file) for file in self.files]
        return [(fact.st_ino, fact.st_size, fact.st_mtime_ns) for fact in facts]

    def refuse_changed(self) -> None:
        """Refuse files that were changed meanwhile: their columns might not belong together."""
        try:
            now = self.on_disk()
        except OSError:
            now = []
        if now != self.as_opened:
            raise LogError(
                f"{self.name} was changed while it was read.",
                do="Read it again when no other program writes to it.",
            )

    # -- columns -------------------------------------------------------------------------------

    def fetch(self, expression: str) -> Any:
        """The values of an expression, one per row; a masked array where some are missing."""
        values: Any = None
        gone: Any = None
        for rows, batch in self._batches(expression):
            if values is None:
                values = np.empty(self.rows, batch.values.dtype)
            values[rows] = batch.values
            if batch.missing is not None:
                gone = np.zeros(self.rows, bool) if gone is None else gone
                gone[rows] = batch.missing
        if values is None:  # no rows, or of a type that does not come in batches
            with self._reading():
                return self.con.execute(f"SELECT {expression} AS v FROM raw").fetchnumpy()["v"]
        return values if gone is None else np.ma.MaskedArray(values, gone)

    def _batches(self, expression: str) -> Iterator[tuple[slice, Batch]]:
        """The batches of an expression, each with its rows; none for types that are not plain.

        Every row comes once, or an error is raised.
        """
        with self._reading():
            parts = batches(self.con.sql(f"SELECT {expression} AS v FROM raw"))
            first = 0
            for batch in parts or ():
                rows = slice(first, first + len(batch.values))
                first = rows.stop
                if first <= self.rows:
                    yield rows, batch
                if self.progress is not None and self.kind == "parquet":
                    done = self.columns_read + first / self.rows
                    self.progress("reading", min(done / len(self.place), 0.99))
        if parts is not None and first != self.rows:
            self.refuse_changed()
            raise LogError(f"{self.name} has {self.rows:,} rows, and {first:,} in one column.")

    def number_or_nan(self, expression: str) -> tuple[NDArray[np.float64], int]:
        """float64 (N,), an expression of type DOUBLE, NaN where missing; how many are missing."""
        values, gone = np.empty(self.rows), 0
        for rows, batch in self._batches(expression):
            values[rows] = batch.values
            if batch.missing is not None:
                values[rows][batch.missing] = np.nan
                gone += int(np.count_nonzero(batch.missing))
        return values, gone

    def first_row(self, condition: str) -> int | None:
        """The first row where a condition holds, counted from 0; None where it never does."""
        for rows, batch in self._batches(f"CAST(coalesce({condition}, false) AS UTINYINT)"):
            if batch.values.any():
                return int(rows.start + np.argmax(batch.values))
        return None

    def value_at(self, c: str, row: int) -> Any:
        """The value of a column in one row, counted from 0."""
        return self.one_row(f"SELECT {c} FROM raw LIMIT 1 OFFSET {row}")[0]

    # -- labels --------------------------------------------------------------------------------

    def distinct(self, expression: str) -> tuple[list[Any], NDArray[np.uint64]]:
        """The different values in their order, None where one is missing, and DuckDB's hashes."""
        with self._reading():
            columns = self.con.execute(
                "SELECT v, hash(v) AS h "
                f"FROM (SELECT DISTINCT {expression} AS v FROM raw) ORDER BY v NULLS LAST"
            ).fetchnumpy()
        values = np.ma.getdata(columns["v"]).tolist()
        for i in np.flatnonzero(np.ma.getmaskarray(columns["v"])).tolist():
            values[i] = None
        return values, np.asarray(columns["h"], np.uint64)

    def codes(
        self, expression: str, hashes: NDArray[np.uint64], code_of: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """int32 (N,), the code of each row's value.

        Args:
            expression: The column; its values are those that `distinct` gave.
            hashes: uint64 (L,), the hash of each value, as `distinct` gave it.
            code_of: int32 (L,), the code of each value.
        """
        if not is_large(self.rows):
            return self._coded_by_words(expression, code_of)
        from dprl.logs._code_loops import find, place, slots_for

        slots = slots_for(len(hashes))
        strange = 0 if place(hashes, code_of, *slots) else 1  # two values have one hash
        codes = np.empty(self.rows, np.int32)
        if not strange:
            for rows, batch in self._batches(f"hash({expression})"):
                strange += find(batch.values, *slots, codes[rows])
        return self._coded_by_words(expression, code_of) if strange else codes

    def _coded_by_words(self, expression: str, code_of: NDArray[np.int32]) -> NDArray[np.int32]:
        """The same codes from the values themselves, not their hashes, which could be the same."""
        values, _ = self.distinct(expression)
        place_of = {value: int(code) for value, code in zip(values, code_of, strict=True)}
        with self._reading():
            column = self.con.execute(f"SELECT {expression} AS v FROM raw").fetchnumpy()["v"]
        gone = np.ma.getmaskarray(column).tolist()
        rows = zip(np.ma.getdata(column).tolist(), gone, strict=True)
        return np.array([place_of[None if missing else v] for v, missing in rows], np.int32)

    def whole_numbers(self, expression: str, name: str) -> Coded:
        """A column of whole numbers as labels: in their order, code -1 where missing."""
        if not is_large(self.rows):
            return encode(self.fetch(expression), name)
        low, high = self.one_row(f"SELECT min({expression}), max({expression}) FROM raw")
        if low is None or max(high, -low) > WHOLE[0]:
            return encode(self.fetch(expression), name)
        if high - low < max(self.rows, FEW):
            coded = self._by_table(f"CAST({expression} AS BIGINT)", low, high)
            if coded is not None:
                return coded
        values, hashes = self.distinct(expression)
        code_of = np.arange(len(values), dtype=np.int32)
        if values[-1] is None:  # missing ones come last
            values.pop()
            code_of[-1] = -1
        return Coded(self.codes(expression, hashes, code_of), tuple(values))

    def _by_table(self, expression: str, low: int, high: int) -> Coded | None:
        """Whole numbers from `low` to `high`, coded by a table; None if there are others."""
        from dprl.logs._code_loops import fill, replace_codes

        seen = np.zeros(high - low + 1, bool)
        codes = np.empty(self.rows, np.int32)
        for rows, batch in self._batches(expression):
            here, values = codes[rows], batch.values
            if batch.missing is not None:
                values = values[~batch.missing]
                here = np.empty(len(values), np.int32)
            if fill(values, low, here, seen):
                return None
            if batch.missing is not None:
                codes[rows][batch.missing] = -1
                codes[rows][~batch.missing] = here
        places = np.flatnonzero(seen)
        table = np.full(len(seen) + 1, -1, np.int32)
        table[places] = np.arange(len(places), dtype=np.int32)
        if len(places) < len(seen):
            replace_codes(codes, table)
        return Coded(codes, tuple((places + low).tolist()))
