"""CSV and Parquet files, read by DuckDB: every value as the file holds it, nothing guessed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gzip
import json
import os
import re
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import doubles
from dprl._core.database import confine, connect, of_text, watched
from dprl._core.disk import prefix_in, said_if_short
from dprl._core.labels import Labels, Words, few_as_tuple
from dprl._core.words import option, worded
from dprl.errors import LogError, ParameterError, interruptible
from dprl.logs.encoding.categories import BEYOND, check_declared, not_numbers, refuse_numbers
from dprl.logs.encoding.doses import checked_bins
from dprl.logs.reading.also import FIRST, LABELS, PEEK, AlsoNames, FreeTextError, also_names
from dprl.logs.reading.columns import (
    MISSING_WORDS,
    WHOLE,
    Coded,
    Columns,
    encode,
    is_large,
    no_number,
    recode,
    refuse_fractions,
    refuse_rounded,
    sorted_labels,
    tidy_labels,
)
from dprl.logs.reading.dates import ODD, Days, days_of, moments, refuse_undeclared, text_days
from dprl.logs.reading.frames import Raw, chosen_names, columns_of, quoted, roles_of
from dprl.logs.reading.options import Reading
from dprl.logs.reading.paths import (
    columns_of_files,
    folder_columns,
    literal,
    open_files,
    scan_csv,
    scan_parquet,
)
from dprl.logs.reading.text import SAY_ENCODING, Text
from dprl.logs.reading.times import (
    PLACE,
    TEXT,
    Zoned,
    plainly,
    refuse_mixed,
    refuse_two_kinds,
    zone_of,
)
from dprl.logs.roles import ROLES

# --- One column of a query, batch by batch, as DuckDB computes it: nothing is held twice
#
# DuckDB hands over its rows through the Arrow C stream interface: a few C structures with pointers
# to plain arrays. Reading them takes ctypes and numpy alone, no other package.

TYPES = {
    b"c": "i1", b"C": "u1", b"s": "i2", b"S": "u2", b"i": "i4", b"I": "u4", b"l": "i8", b"L": "u8",
    b"f": "f4", b"g": "f8", b"tsu:": "M8[us]", b"u": "U",
}  # fmt: skip
"""Arrow's letters for the types that are read here → numpy's; U is text, as offsets and bytes."""


class _Schema(ctypes.Structure):
    """What a column holds: `format` is its type."""


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    """Some rows: `buffers` of a column are the bits of present values, and the values."""


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    """Functions that give the schema, the next rows, and the words of an error."""


_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.c_void_p)),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]


class StreamError(Exception):
    """DuckDB stopped in the middle of a query, and this is what it says."""


class Batch(NamedTuple):
    """Some rows of a column. The arrays may be used until the next batch is asked for.

    Attributes:
        values: (k,) as DuckDB holds them; a missing value can be any number. Of text: (k + 1,),
            where the word of each row begins and ends in `data`.
        missing: bool (k,), where values are missing; None where none is.
        data: uint8, the bytes of text; None of other columns.
    """

    values: NDArray[Any]
    missing: NDArray[np.bool_] | None
    data: NDArray[np.uint8] | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.values) - (self.data is not None)


def _stream_of(capsule: Any) -> _Stream:
    """The structure inside a capsule; it lives as long as the capsule does."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"arrow_array_stream")
    return _Stream.from_address(address)


def batches(relation: Any, text: bool = False) -> Iterator[Batch] | None:
    """The batches of a DuckDB relation of one column, in the order of its rows.

    Args:
        relation: The relation; its query runs while the batches are taken.
        text: Whether the column is to be text, and nothing else.

    Returns:
        The batches; None where the column is of a type, or DuckDB of a version, that is not read
        here.

    Raises:
        StreamError: While batches are taken, if DuckDB fails.
        MemoryError: If it fails for want of memory.
    """
    if not hasattr(relation, "__arrow_c_stream__"):
        return None
    rows, types = _together(relation)
    if len(types) != 1 or types[0] is None or (types[0].kind == "U") != text:
        return None
    return (columns[0] for columns in rows)


def _together(relation: Any) -> tuple[Iterator[list[Batch]], list[np.dtype[Any] | None]]:
    """The batches of all columns of a relation, and their types, None where one is not read."""
    capsule = relation.__arrow_c_stream__()
    stream = _stream_of(capsule)
    schema = _Schema()
    if stream.get_schema(ctypes.byref(stream), ctypes.addressof(schema)):
        raise _failure(stream)
    letters = [schema.children[i].contents.format for i in range(schema.n_children)]
    schema.release(ctypes.byref(schema))
    types = [np.dtype(TYPES[letter]) if letter in TYPES else None for letter in letters]
    return _batches(capsule, stream, [kind or np.dtype("u1") for kind in types]), types


def _failure(stream: _Stream) -> Exception:
    """The error with what DuckDB says about it."""
    words = (stream.get_last_error(ctypes.byref(stream)) or b"").decode("utf-8", "replace")
    return MemoryError(words) if words.startswith("Out of Memory") else StreamError(words)


def _batches(
    capsule: Any, stream: _Stream, types: Sequence[np.dtype[Any]]
) -> Iterator[list[Batch]]:
    """The batches of a stream; `capsule` is kept until all are taken."""
    while True:
        rows = _Array()
        if stream.get_next(ctypes.byref(stream), ctypes.addressof(rows)):
            raise _failure(stream)
        if not rows.release:  # the end
            return
        try:
            if rows.length:
                yield [_batch(rows, i, dtype) for i, dtype in enumerate(types)]
        finally:
            rows.release(ctypes.byref(rows))


def _batch(rows: _Array, i: int, dtype: np.dtype[Any]) -> Batch:
    """Column i of these rows, without a copy."""
    column, n = rows.children[i].contents, rows.length
    first = rows.offset + column.offset
    data = None
    if dtype.kind == "U":
        values = _view(column.buffers[1], first + n + 1, np.dtype(np.int32))[first:]
        data = _view(column.buffers[2], int(values[-1]), np.dtype(np.uint8))
    else:
        values = _view(column.buffers[1], first + n, dtype)[first:]
    if column.null_count == 0 or not column.buffers[0]:
        return Batch(values, None, data)
    bits = _view(column.buffers[0], (first + n + 7) // 8, np.dtype(np.uint8))
    missing = np.unpackbits(bits, count=first + n, bitorder="little")[first:] == 0
    return Batch(values, missing if missing.any() else None, data)


def _view(address: int, n: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """`n` values of memory that belongs to DuckDB."""
    if not n:
        return np.zeros(0, dtype)
    memory = (ctypes.c_char * (n * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory).cast("B"), dtype)


# --- Columns of files as arrays: DuckDB reads, and each batch goes straight to where it is wanted
#
# Of Parquet files every column is read on its own, when it is asked for: nothing is held twice. CSV
# files are read once, into a table, since every line holds all columns.

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
    taken: dict[str, Any]
    later: str = ""
    text: Text

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
        """Errors of DuckDB inside as errors of three lines; `raw` is made first where it is due."""
        if self.later:
            sql, self.later = self.later, ""
            with self._watched():
                self.run(sql, self.values)
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

    def load(self, names: Iterable[str], plain: Mapping[str, str] | None = None) -> None:
        """Make `raw` with the columns, where they are called c0, c1 and so on.

        Args:
            names: The columns.
            plain: What each of them holds, "words", "numbers" or "whole": then large CSV files are
                taken in one pass, and `raw` is made only where something is not as it should be.
        """
        self.place = {name: f"c{i}" for i, name in enumerate(names)}
        select = ", ".join(f"{quoted(name)} AS {c}" for name, c in self.place.items())
        if self.kind == "csv":
            rows = self._take(plain) if plain else -1
            self.later = f"CREATE TEMP TABLE raw AS SELECT {select} FROM ({self.scan})"
            if rows >= 0:
                self.rows = rows
                return
        else:
            self.run(f"CREATE TEMP VIEW raw AS SELECT {select} FROM ({self.scan})")
        self.count_rows()

    def _take(self, plain: Mapping[str, str]) -> int:
        """Take all columns in one pass, into `taken`; how many rows that were, -1 if it failed."""
        if sum(map(os.path.getsize, self.files)) < STREAMED:
            return -1
        from dprl._core.letters import whole_numbers

        asked = {
            c: f"CASE WHEN {quoted(name)} IS NULL THEN 'NaN'::DOUBLE ELSE "
            f"{of_text(quoted(name), self.text.decimal)} END"
            if plain[name] == "numbers"
            else quoted(name)
            for name, c in self.place.items()
        }
        sql = f"SELECT {', '.join(f'{one} AS {c}' for c, one in asked.items())} FROM ({self.scan})"
        kinds, words = list(plain.values()), {c: Words() for c in asked}
        values: dict[str, list[NDArray[Any]]] = {c: [] for c in asked}
        for few in (" LIMIT 1000", ""):  # the first rows say whether it is worth trying
            n = 0
            with self._watched(), self._reading():
                for batch in _together(self.con.sql(sql + few, params=self.values))[0]:
                    for (c, kept), kind, b in zip(values.items(), kinds, batch, strict=True):
                        gone = np.zeros(0, bool) if b.missing is None else b.missing
                        if kind == "numbers":
                            if len(gone):
                                return -1
                            kept.append(b.values.copy())
                            continue
                        assert b.data is not None
                        new: Any = np.empty(b.n, np.int64 if kind == "whole" else np.int32)
                        kept.append(new)
                        if kind == "words":
                            words[c].add(b.values, b.data, b.missing, new)
                        elif len(gone) or whole_numbers(b.values, b.data, gone, False, new) >= 0:
                            return -1
                    n += batch[0].n
            if few:
                words, values = {c: Words() for c in asked}, {c: [] for c in asked}
        for c, kind in zip(asked, kinds, strict=True):
            column = np.concatenate(values.pop(c) or [np.zeros(0)])
            self.taken[c] = (column, words.pop(c).labels()) if kind == "words" else column
        return n

    def count_rows(self) -> None:
        """Count the rows of `raw`; whoever makes it must call this before a column is fetched."""
        self.rows = int(self.one_row("SELECT count(*) FROM raw")[0])

    def _watched(self) -> contextlib.AbstractContextManager[None]:
        """Report how much of the query inside is done."""
        progress = self.progress
        return watched(self.con, progress and functools.partial(progress, "reading"))

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

    def _batches(self, expression: str, text: bool = False) -> Iterator[tuple[slice, Batch]]:
        """The batches of an expression, each with its rows; none for types that are not plain.

        Every row comes once, or an error is raised. Text comes where it is asked for.
        """
        with self._reading():
            parts = batches(self.con.sql(f"SELECT {expression} AS v FROM raw"), text)
            first = 0
            for batch in parts or ():
                rows = slice(first, first + batch.n)
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
        """float64 (N,), an expression of numbers, NaN where missing; how many are missing."""
        values, gone = np.empty(self.rows), 0
        for rows, batch in self._batches(expression):
            values[rows] = doubles(batch.values, copy=False)
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

    def words(self, expression: str) -> tuple[NDArray[np.int32], Sequence[str]]:
        """int32 (N,), each row's text as a code, -1 where missing or empty; the texts by code."""
        if expression in self.taken:
            result: tuple[NDArray[np.int32], Labels] = self.taken.pop(expression)
            return result
        codes = np.full(self.rows, -1, np.int32)
        if not is_large(self.rows):
            with self._reading():
                column = self.con.execute(f"SELECT {expression} AS v FROM raw").fetchnumpy()["v"]
            gone = np.ma.getmaskarray(column).tolist()
            index: dict[str, int] = {}
            for i, word in enumerate(np.ma.getdata(column).tolist()):
                if not gone[i] and word:
                    codes[i] = index.setdefault(word, len(index))
            return codes, tuple(index)
        words = Words(self.rows)
        for rows, batch in self._batches(expression, text=True):
            assert batch.data is not None
            words.add(batch.values, batch.data, batch.missing, codes[rows])
        return codes, words.labels()

    def whole_numbers(self, expression: str, name: str, many: bool) -> Coded:
        """A column of whole numbers as labels: in their order, code -1 where missing."""
        if not is_large(self.rows):
            return encode(self.fetch(expression), name)
        low, high = self.one_row(f"SELECT min({expression}), max({expression}) FROM raw")
        if low is None or max(high, -low) > WHOLE[0]:
            return encode(self.fetch(expression), name)
        if high - low < max(self.rows, FEW):
            coded = self._by_table(f"CAST({expression} AS BIGINT)", low, high, many)
            if coded is not None:
                return coded
        words, codes = Words(self.rows), np.empty(self.rows, np.int32)
        for rows, batch in self._batches(f"CAST({expression} AS BIGINT)"):
            ends = np.arange(0, 8 * batch.n + 1, 8)
            words.add(ends, batch.values.view(np.uint8), batch.missing, codes[rows])
        return sorted_labels(codes, Labels(words.labels().data.view(np.int64)), many)

    def _by_table(self, expression: str, low: int, high: int, many: bool) -> Coded | None:
        """Whole numbers from `low` to `high`, coded by a table; None if there are others."""
        from dprl.logs.reading.loops import fill, replace_codes

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
        return Coded(codes, few_as_tuple(Labels(places + low), many))


# --- CSV files in encodings that DuckDB does not know: by way of UTF-8, in a private folder

PIECE = 1 << 20
"""Characters that are written again at a time."""


class Recoded:
    """Copies of files in UTF-8; they are removed when nothing refers to this any more.

    They are in a private folder in `room`. Default None: the system's place for temporary files.

    Attributes:
        files: The copies, in the order of the files and under the same names.
    """

    def __init__(self, files: Sequence[str], encoding: str, room: str | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix=prefix_in(room, "utf8"), dir=room))
        self.remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.files: list[str] = []
        try:
            for i, file in enumerate(files):
                name = os.path.basename(file)
                packed = name.lower().endswith(".gz")
                copy = folder / str(i) / (name[:-3] if packed else name)
                copy.parent.mkdir()
                with said_if_short("the file as UTF-8", str(folder)):
                    _copy(file, copy, encoding, packed)
                self.files.append(str(copy))
        except BaseException:
            self.remove()
            raise


def _copy(file: str, copy: Path, encoding: str, packed: bool) -> None:
    """Write one file again as UTF-8; a LogError names what cannot be read."""
    try:
        with contextlib.ExitStack() as stack:
            opener = gzip.open if packed else open
            source = stack.enter_context(opener(file, "rt", encoding=encoding, newline=""))
            target = stack.enter_context(copy.open("w", encoding="utf-8", newline=""))
            while piece := source.read(PIECE):
                target.write(piece)
    except (UnicodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise LogError(
            f"{os.path.basename(file)!r} is not text in {encoding}.",
            str(error)[:200],
            worded(
                "Declare the encoding it is written in ({encoding=}), or write it again as UTF-8."
            ),
        ) from error


@contextlib.contextmanager
def written_in(encoding: str, path: Path, room: Path) -> Iterator[Path]:
    """Give a path for text in UTF-8; at the end `path` holds the same text in `encoding`.

    For UTF-8 that is `path` itself; else it is in a folder in `room`.
    """
    if encoding == "utf-8":
        yield path
        return
    with tempfile.TemporaryDirectory(prefix=prefix_in(room, "utf8"), dir=room) as folder:
        plain = Path(folder) / "table.csv"
        yield plain
        try:
            with (
                said_if_short("writing the table", str(path)),
                plain.open(encoding="utf-8", newline="") as source,
                path.open("w", encoding=encoding, newline="") as target,
            ):
                while piece := source.read(PIECE):
                    target.write(piece)
        except UnicodeEncodeError as error:  # the names of folders need not be in this encoding
            raise LogError(
                f"the table cannot be written in {encoding}, the encoding of its files.",
                str(error)[:200],
                "Leave --partitions out, or write the files again as UTF-8.",
            ) from error


# --- Columns of times in files: numbers, dates of a file's own type, and dates written as text


class FileTimes(Fetch):
    """A DuckDB connection over files, with their columns of times and numbers in text."""

    decimal: str
    types: dict[str, str]
    place: dict[str, str]

    def double(self, c: str) -> str:
        """SQL for the number that text stands for; NULL where it stands for none.

        With a decimal comma, a point is no part of a number: 1.234 may be a thousand and more.
        """
        return of_text(c, self.decimal)

    def time(self, name: str) -> Any:
        """A column of times, with the zone in which they were written down."""
        c, kind = self.place[name], self.types[name]
        if kind == "DATE" or kind.startswith("TIMESTAMP"):
            self._refuse_other_times(name, c)
        if kind == "TIMESTAMP WITH TIME ZONE":
            return self._charted(c, zone_of(self.files, name, self.run) or "UTC")
        if kind != "VARCHAR":
            return self.fetch(f"CAST({c} AS TIMESTAMP)" if "TIME" in kind or kind == "DATE" else c)
        whole = None if "%" in self.text.dates else self._digits(c)
        if whole is not None:
            return whole
        moment = f"CAST(CAST({c} AS TIMESTAMPTZ) AS TIMESTAMP)"  # in UTC, whatever its offset
        row = self.one_row(
            f"SELECT count({c}), count(*) FILTER (regexp_full_match({c}, '[+-]?\\d{{1,18}}')), "
            f"count({self.double(c)}), count(TRY_CAST({c} AS TIMESTAMPTZ)), "
            f"count(*) FILTER (TRY_CAST({c} AS TIMESTAMPTZ) IS NOT NULL AND NOT {plainly(c)}) "
            "FROM raw"
        )
        *row, loose = row
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
                if cast is moment and loose:
                    self._refuse_loose(name, c)
                return self._zoned(name, c, moment) if cast is moment else self.fetch(cast)
        return self.fetch(c)

    def _digits(self, c: str) -> Any:
        """A column of text as whole numbers; None where a text is none, or there are few rows."""
        if c in self.taken:
            return self.taken.pop(c)
        if not is_large(self.rows):
            return None
        from dprl._core.letters import whole_numbers

        values, gone = np.empty(self.rows, np.int64), np.zeros(self.rows, bool)
        for rows, batch in self._batches(c, text=True):
            here = np.zeros(0, bool) if batch.missing is None else batch.missing
            assert batch.data is not None
            if whole_numbers(batch.values, batch.data, here, False, values[rows]) >= 0:
                return None
            gone[rows] = False if batch.missing is None else batch.missing
        return np.ma.MaskedArray(values, gone) if gone.any() else values

    def _refuse_other_times(self, name: str, c: str) -> None:
        """Refuse dates that are infinite, and files with and without a zone together."""
        if self.kind == "parquet":
            refuse_two_kinds([literal(file) for file in self.files], name, self.run)
        row = self.first_row(f"NOT isfinite({c})")
        if row is not None:
            raise LogError(
                f"{name!r} holds a time that is infinite.",
                f"row {row + 1:,}",
                "Mend it, or leave the row out.",
            )

    def _refuse_loose(self, name: str, c: str) -> None:
        """Refuse text that DuckDB takes for a time, and nobody can know for which."""
        row = self.first_row(f"NOT {plainly(c)}")
        assert row is not None
        raise LogError(
            f"{name!r} holds {str(self.value_at(c, row))[:40]!r}, which is no moment for certain.",
            f"row {row + 1:,}",
            "Write times like 2024-07-01 10:00:00, zones as an offset (+01:00) or by their place "
            "(Europe/Berlin): abbreviations such as BST and CET have several meanings.",
        )

    def _declared(self, name: str, c: str) -> Any:
        """Times written as was declared; None where none of them is a date."""
        codes, words = self.words(c)
        coded = recode(codes, list(words), name)
        codes, texts = coded.codes, coded.labels
        if text_days(texts, self.text.dates, name) is None:
            return None
        times, ahead = moments(texts, self.text.dates, name)
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
        self._refuse_twice(name, c, wall)
        return Zoned(self.fetch(moment), self.fetch(f"date_diff('second', {moment}, {wall})"))

    def _refuse_twice(self, name: str, c: str, wall: str) -> None:
        """Refuse a local time of a place that came twice, or never, in the night of a change."""
        place = quoted(PLACE, chr(39))
        if not self.one_row(f"SELECT bool_or(regexp_matches({c}, {place})) FROM raw")[0]:
            return
        moment, zone = f"CAST({c} AS TIMESTAMPTZ)", f"regexp_extract({c}, {place})"
        other = " OR ".join(
            f"timezone({zone}, {moment} {sign} INTERVAL 1 HOUR) = {wall}" for sign in "+-"
        )
        row = self.first_row(
            f"CASE WHEN regexp_matches({c}, {place}) THEN {other} "
            f"OR timezone({zone}, {moment}) <> {wall} END"
        )
        if row is not None:
            raise LogError(
                f"{name!r} holds {str(self.value_at(c, row))[:40]!r}, a local time that comes "
                "twice or never where clocks are changed.",
                f"row {row + 1:,}",
                "Write the offset of the zone (+01:00) in place of its name.",
            )

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


# --- CSV and Parquet files, read by DuckDB: every value as the file holds it, nothing guessed

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

        self.text, self.taken = text or Text(), {}
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

    def labels(self, name: str, fractions: bool = True, many: bool = False) -> Coded:
        """A column of labels, coded so that no Python object is made per row.

        If `fractions` is false, a column of numbers such as 0.5 is refused, also when they are
        text. With `many`, labels may be arrays (`Labels`): no object is made for each of them.
        """
        c, kind = self.place[name], self.types[name]
        if kind in WHOLE_NUMBERS:
            return self.whole_numbers(c, name, many)
        if kind in ("FLOAT", "DOUBLE") and not self._fractions(c):
            return self.whole_numbers(f"CAST(nullif({c}, 'NaN'::{kind}) AS BIGINT)", name, many)
        if kind in ("BOOLEAN", "FLOAT", "DOUBLE"):
            return encode(self.fetch(c), name)
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "BLOB")):
            raise LogError(
                f"{name!r} holds {kind.lower()} values, which are not labels.",
                do="Labels are text, whole numbers, or true and false.",
            )
        text = c if kind == "VARCHAR" else f"CAST({c} AS VARCHAR)"
        codes, words = self.words(text)
        from_text = self.kind == "csv" or name in self.folders  # text that may stand for numbers
        number = kind in ("HUGEINT", "UHUGEINT") or kind.startswith("DECIMAL")
        if isinstance(words, Labels) and not number:
            plain = words.tidied() if from_text else words
            if plain is not None:
                return sorted_labels(codes, plain, many)
        words = list(words)
        if number or (from_text and not fractions):
            refuse_fractions(words, name)
        if from_text:
            refuse_rounded(words, name)
        labels: list[Any] = words
        if from_text or number:
            tidy = tidy_labels(words)
            labels = [tidy[word] for word in words]
        return recode(codes, labels, name)

    def _fractions(self, c: str) -> bool:
        """Whether a column of floats holds one that is no label, or too large to be one."""
        odd = f"NOT isnan({c}) AND (abs({c}) > {WHOLE[1]} OR {c} != round({c}))"
        return bool(self.one_row(f"SELECT count(*) FILTER ({odd}) FROM raw")[0])

    def _is_duration(self, name: str) -> bool:
        """Whether a Parquet column holds durations, which its types show as whole numbers."""
        if self.types[name] not in ("BIGINT", "INTERVAL"):
            return False
        if find_spec("pyarrow") is not None:
            schema = import_module("pyarrow.parquet").read_schema(self.files[0])
            return name in schema.names and str(schema.field(name).type).startswith("duration")
        kept = self.run(
            "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = 'pandas'",
            [self.files[0]],
        ).fetchall()
        columns = json.loads(kept[0][0]).get("columns", []) if kept else []
        return any(
            one.get("name") == name and "timedelta" in str(one.get("numpy_type"))
            for one in columns
        )  # fmt: skip

    def number(self, name: str) -> Any:
        """A column of numbers, NaN where one is missing."""
        c = self.place[name]
        if self.kind == "parquet" and self._is_duration(name):
            raise no_number(name, os.path.basename(self.files[0]))
        if self.types[name] != "VARCHAR":
            short = self.types[name] == "FLOAT"
            return self.number_or_nan(c if short else f"CAST({c} AS DOUBLE)")[0]
        if c in self.taken:
            return self.taken.pop(c)
        values, gone = self.number_or_nan(f"{self.double(c)}")
        if gone > self.one_row(f"SELECT count(*) - count({c}) FROM raw")[0]:
            text, row = self._no_number(c)
            do = "With a decimal comma it is 1,5, not 1.5"
            if BEYOND.fullmatch(text.strip()):
                do = "Write a number of your choice for a value beyond what was measured"
            elif self.decimal == ".":
                do = worded("Convert it to numbers (1.5, not 1,5), or say {decimal=','}")
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
            self._refuse_other_times(name, c)
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
            self._refuse_other_times(name, c)
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
                raise FreeTextError(
                    [row[0] for row in self.run(f"SELECT {c} FROM raw LIMIT {FIRST}").fetchall()]
                )
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
        """A column of sets of actions: lists, or text with | between the actions."""
        c, kind = self.place[name], self.types[name]
        if kind.endswith("]"):
            lists = [None if x is None else json.loads(x) for x in self.fetch(f"to_json({c})")]
            return lists, None
        values = self.fetch(c)
        return np.ma.getdata(values), np.ma.getmaskarray(values)


STREAMED = 1 << 23
"""Bytes from which on a CSV file of plain columns is taken in one pass, without a table."""


def _plain(
    names: Mapping[str, Any], role: Mapping[str, str], cuts: Any, files: Files
) -> dict[str, str] | None:
    """What each column holds where all are labels, numbers and steps; else None."""
    holds = {own.name: own.holds for own in ROLES}
    kinds = {"labels": "words", "numbers": "numbers", "probabilities": "numbers", "times": "whole"}
    plain = {
        name: "numbers" if name in cuts else kinds.get(holds[part], "")
        for name, part in role.items()
    }
    odd = isinstance(names["state"], list) or "%" in files.text.dates or not all(plain.values())
    return None if odd else plain


def read_columns(paths: Any, reading: Reading, progress: Progress | None) -> Columns:
    """The columns of CSV or Parquet files."""
    files = Files(paths, progress, partitions=reading.partitions, text=reading.text)
    names = chosen_names(reading, list(files.types))
    role = roles_of(names)
    further = also_names(reading.also, list(files.types), role, files.about_rows)
    if not further.asked:
        further = files.only_common(further)
    declared = check_declared(reading.categorical or (), names["state"], further.names)
    cuts = checked_bins(reading.action_bins, names["action"])
    files.every_file_has([*role, *further.names])
    files.load([*role, *further.names], None if further.names else _plain(names, role, cuts, files))

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
        many = part in ("episode", "group")
        return files.labels(name, fractions=part not in ("state", "action"), many=many), None

    with said_if_short(f"reading {files.name}"):
        columns = columns_of(names, get, reading, further, fresh=True, text=files.text)
    if files.kind == "parquet":
        files.refuse_changed()
        if progress is not None:
            progress("reading", 1.0)
    return columns
