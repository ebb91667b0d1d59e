"""Which files a path stands for, and the SQL that reads exactly these files and their columns.

DuckDB would take brackets in a name for a pattern, `~` for the home folder and a folder called
`r=99` for a column that replaces the file's own `r`. Here a name is only a name, and folders become
columns only if the user asks for it.
"""

from __future__ import annotations

import csv
import glob
import gzip
import itertools
import os
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from dprl._core.database import of_half
from dprl._core.words import either, worded
from dprl.errors import LogError
from dprl.logs.reading.frames import quoted, refuse_twins
from dprl.logs.reading.text import SAY_ENCODING, Text, named_columns

Run: TypeAlias = Callable[[str, Sequence[Any]], Any]
"""A function that runs SQL with its values."""
Folders: TypeAlias = Mapping[str, str | None]
"""The columns that the folders of a file name: name → value, None where it is missing."""
Node = TypeVar("Node")

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name other programs give to the folder of rows whose value is missing."""
LONGEST_LINE = 2_000_000
"""The most bytes a line of a CSV file may have."""
MOST_COLUMNS = 20_000
"""The most columns a file may have."""
PIECE = 1 << 20
"""Bytes of a file that are read at a time."""


# -- files -------------------------------------------------------------------------------------


def open_files(paths: Any) -> tuple[list[str], str]:
    """The files the paths stand for, sorted within each pattern, and 'csv' or 'parquet'."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    files: list[str] = []
    for path in (os.fspath(p) for p in given):
        if Path(path).is_dir():
            refuse_managed([Path(path)])
            raise LogError(
                f"{path!r} is a folder.", do=f"Name its files: {os.path.join(path, '*.parquet')!r}."
            )
        exists = os.path.lexists(path)
        matches = [path] if exists else sorted(glob.glob(path, recursive=True))
        if not matches:
            raise LogError(f"there is no file {path!r}.", do="Check the path or the pattern.")
        files += matches
    if not files:
        raise LogError("no file was named.")
    kinds = {_kind(f) for f in files}
    if len(kinds) > 1:
        raise LogError("CSV and Parquet files cannot be read together.", files[0])
    for file in files:
        if not Path(file).is_file():  # it is read more than once: a pipe would run dry
            raise LogError(
                f"{file!r} is not a file with content of its own.",
                do="Name an ordinary file: a folder, a pipe or a link to nothing cannot be read.",
            )
    real = [os.path.realpath(f) for f in files]
    if kinds == {"parquet"}:
        refuse_managed(above for f in (*files, *real) for above in Path(f).absolute().parents)
    for i, file in enumerate(real):
        if file in real[:i]:
            raise LogError(
                f"{files[i]!r} is named twice.",
                do="Name each file once, or its rows would count twice.",
            )
    return files, kinds.pop()


MANAGED = {
    "_delta_log": "a Delta Lake", ".hoodie": "a Hudi", "metadata/*.metadata.json": "an Iceberg",
}  # fmt: skip
"""What a folder has in it where its files are a table with a history → of which kind it is."""


def refuse_managed(folders: Iterable[Path]) -> None:
    """Refuse the folder of a table whose files also hold rows that it no longer has."""
    for folder, (sign, kind) in itertools.product(dict.fromkeys(folders), MANAGED.items()):
        found = next(folder.glob(sign), None)
        if found is not None:
            raise LogError(
                f"{str(folder)!r} is {kind} table: its files also hold rows that were deleted or "
                "replaced, and only its own records say which.",
                str(found),
                worded(
                    "Read it with the library of its format and {choice}write its rows to Parquet "
                    "files elsewhere.",
                    choice=either("hand the table over (dprl.scan, dprl.from_frame), or ", ""),
                ),
            )


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


def literal(file: str | os.PathLike[str]) -> str:
    """A path that DuckDB reads literally: stars, brackets and tildes have no meaning in it."""
    whole = os.path.join(os.getcwd(), os.fspath(file))
    special = any(ch in whole for ch in "*?[")
    if special and os.sep != "\\" and "\\" in whole:
        raise LogError(
            f"{whole!r} has a backslash and one of * ? [ in its name, and cannot be read.",
            do="Rename it, or the folder it is in.",
        )
    return "".join(f"[{ch}]" if ch in "*?[" else ch for ch in whole)


# -- columns -----------------------------------------------------------------------------------


def header(file: str, text: Text | None = None) -> tuple[str, tuple[str, ...]]:
    """The separator and the column names of a CSV file.

    DuckDB would guess both, and may skip rows to make its guess fit; the first line is read
    instead.
    """
    opener = gzip.open if file.lower().endswith(".gz") else open
    try:
        written = (text or Text()).of_header
        with opener(file, "rt", encoding=written, newline="") as stream:
            line = stream.readline(LONGEST_LINE + 1)
            if len(line) > LONGEST_LINE:
                raise csv.Error(f"the first line is longer than {LONGEST_LINE:,} characters")
            counts = {sep: line.count(sep) for sep in (",", "\t", ";", "|")}
            separator = max(counts, key=lambda sep: counts[sep])
            if text is not None and text.delimiter:
                separator = text.delimiter
            names = named_columns(next(csv.reader([line], delimiter=separator), []))
    except (OSError, EOFError, zlib.error, UnicodeError, csv.Error) as error:
        raise _no_csv(file, error) from error
    refuse_twins(names, repr(os.path.basename(file)))
    if not names:
        raise LogError(
            f"{os.path.basename(file)!r} is empty.", do="The first line must name the columns."
        )
    _refuse_wide(names, file)
    return separator, tuple(names)


def _refuse_wide(names: Sequence[str], file: str) -> None:
    """Refuse more columns than DuckDB opens in seconds: its time grows with their square."""
    if len(names) > MOST_COLUMNS:
        raise LogError(
            f"{os.path.basename(file)!r} has {len(names):,} columns; at most {MOST_COLUMNS:,} can "
            "be read.",
            f"column {MOST_COLUMNS + 1:,}: {names[MOST_COLUMNS][:80]!r}",
            "Write a file with the columns that are needed (cut -d, -f1-20 does so for CSV).",
        )


def columns_of_files(
    files: Sequence[str], kind: str, run: Run, encoding: str = "utf-8"
) -> dict[str, tuple[str, ...]]:
    """File → the names of its columns; a file with two columns of one name is refused."""
    if kind == "csv":
        return {file: header(file, Text(encoding=encoding))[1] for file in files}
    rows = run(
        "SELECT file_name, name, num_children FROM parquet_schema(?)",
        [[literal(file) for file in files]],
    ).fetchall()
    columns: dict[str, tuple[str, ...]] = {}
    for file, nodes in itertools.groupby(rows, lambda row: row[0]):
        columns[file] = _outermost([(name, children or 0) for _, name, children in nodes])
        refuse_twins(columns[file], repr(os.path.basename(file)))
        _refuse_wide(columns[file], file)
    return columns


def halves(files: Sequence[str], run: Run) -> dict[str, str]:
    """Parquet file → what makes `SELECT *` turn its floats of 16 bits into decimals; '' for none.

    DuckDB calls them FLOAT: 0.3 would be 0.30004883, which is above 0.3.
    """
    rows = run(
        "SELECT file_name, name, num_children, contains(coalesce(logical_type, ''), 'Float16') "
        "FROM parquet_schema(?)",
        [[literal(file) for file in dict.fromkeys(files)]],
    ).fetchall()
    found = {}
    for file, nodes in itertools.groupby(rows, lambda row: os.path.abspath(row[0])):
        columns = _outermost([((name, half), children or 0) for _, name, children, half in nodes])
        turned = [f"{of_half(quoted(c))} AS {quoted(c)}" for c, half in columns if half]
        found[file] = f" REPLACE ({', '.join(turned)})" if turned else ""
    return {file: found[os.path.abspath(file)] for file in files}


def _outermost(nodes: Sequence[tuple[Node, int]]) -> tuple[Node, ...]:
    """The columns among a Parquet file's nodes (name, children); a list or struct is one."""
    names, inside = [], 0
    for name, children in nodes[1:]:
        if not inside:
            names.append(name)
        inside += children - (inside > 0)
    return tuple(names)


def folder_columns(file: str) -> Folders:
    """The columns in a file's path: 'ward=3/year=2024/t.csv' has ward and year."""
    columns: dict[str, str | None] = {}
    for folder in Path(file).parts[:-1]:
        name, _, value = folder.partition("=")
        if not name or "=" not in folder or "=" in value:
            continue
        value = urllib.parse.unquote(value)
        before = len(columns)
        columns[urllib.parse.unquote(name)] = None if value == NO_VALUE else value
        if len({column.lower() for column in columns}) == before:
            raise LogError(
                f"two folders of one path are called {name!r}.", file, "Rename one of them."
            )
    return columns


def _check_folders(given: Mapping[str, Folders], held: Mapping[str, Sequence[str]]) -> None:
    """Refuse folders that cannot become columns.

    Either no folder names a column, or the files do not name the same ones, or the files have them.
    """
    first, folders = next(iter(given.items()))
    if not any(given.values()):
        raise LogError(
            "no folder is called NAME=VALUE, and folders were to become columns.",
            first,
            worded(
                "Name the files with their folders, as in 'year=*/*.parquet'; or leave out "
                "{partitions=True}."
            ),
        )
    for file, others in given.items():
        if set(others) != set(folders):
            raise LogError(
                "the folders of two files do not name the same columns.",
                f"{first!r} has {', '.join(folders) or 'none'}; "
                f"{file!r} has {', '.join(others) or 'none'}",
                "Every file must lie in folders of the same names.",
            )
    folder_names = {name.lower(): name for name in folders}
    for file, names in held.items():
        for name in names:
            if name.lower() in folder_names:
                raise LogError(
                    f"the folders give a column {folder_names[name.lower()]!r}, and the files have "
                    f"{name!r} already.",
                    file,
                    worded("Rename the folder or the column, or leave out {partitions=True}."),
                )


# -- SQL ---------------------------------------------------------------------------------------


def scan_csv(
    files: Sequence[str], missing: Sequence[str], partitions: bool, text: Text
) -> tuple[str, list[Any]]:
    """SQL, and its values, that reads CSV files as text; columns are matched by name."""
    headers = {file: header(file, text) for file in files}
    for file in files:
        refuse_long_end(file)
    words = ", ".join(quoted(word, "'") for word in missing)

    def scan(alike: Sequence[str]) -> str:
        separator, names = headers[alike[0]]
        columns = ", ".join(f"{quoted(name, chr(39))}: 'VARCHAR'" for name in names)
        return (
            "read_csv(?, auto_detect=false, header=true, skip=0, "
            f"delim={quoted(separator, chr(39))}, quote='\"', escape='\"', nullstr=[{words}], "
            f"hive_partitioning=false, max_line_size={LONGEST_LINE}, "
            f"encoding={quoted(text.encoding, chr(39))}, columns={{{columns}}})"
        )

    held = {file: names for file, (_, names) in headers.items()}
    return _union(files, scan, lambda file: headers[file], held, missing, partitions)


def scan_parquet(
    files: Sequence[str], missing: Sequence[str], partitions: bool, run: Run
) -> tuple[str, list[Any]]:
    """SQL, and its values, that reads Parquet files; columns are matched by name."""
    held, turned = columns_of_files(files, "parquet", run), halves(files, run)

    def scan(alike: Sequence[str]) -> str:
        names = ", ".join(quoted(literal(file), "'") for file in alike)  # a view takes no values
        read = f"read_parquet([{names}], union_by_name=true, hive_partitioning=false)"
        return f"(SELECT *{turned[alike[0]]} FROM {read})" if turned[alike[0]] else read

    return _union(files, scan, turned.__getitem__, held, missing, partitions)[0], []


def _union(
    files: Sequence[str],
    scan: Callable[[Sequence[str]], str],
    style: Callable[[str], Any],
    held: Mapping[str, Sequence[str]],
    missing: Sequence[str],
    partitions: bool,
) -> tuple[str, list[Any]]:
    """One scan for each run of files with the same style and folders, in the order of the files."""
    folders = {file: folder_columns(file) if partitions else {} for file in files}
    if partitions:
        _check_folders(folders, held)
    scans: list[str] = []
    values: list[list[str]] = []
    for _, run in itertools.groupby(files, lambda file: (style(file), folders[file])):
        alike = list(run)
        more = "".join(
            f", {_text(value, missing)} AS {quoted(name)}"
            for name, value in sorted(folders[alike[0]].items())
        )
        scans.append(f"SELECT *{more} FROM {scan(alike)}")
        values.append([literal(file) for file in alike])
    return " UNION ALL BY NAME ".join(scans), values


def _text(value: str | None, missing: Iterable[str]) -> str:
    gone = value is None or value in missing
    return f"CAST({'NULL' if gone else quoted(str(value), chr(39))} AS VARCHAR)"


def scan_table(file: Path, run: Run) -> str:
    """SQL that reads one table with a header; CSV as text, with the separator of its header.

    Nothing is guessed from the first rows: a quoted comma may come a million rows later.
    """
    where, name = quoted(literal(file), "'"), str(file)
    if file.name.lower().endswith(".parquet"):
        refuse_managed(file.absolute().parents)
        columns_of_files([name], "parquet", run)
        read = f"read_parquet({where}, hive_partitioning=false)"
        return f"(SELECT *{turned} FROM {read})" if (turned := halves([name], run)[name]) else read
    separator, names = header(name)
    columns = ", ".join(f"{quoted(column, chr(39))}: 'VARCHAR'" for column in names)
    packed = name.lower().endswith(".gz")  # too large to be unpacked for its end alone
    if not packed:
        refuse_long_end(name)
    return (
        f"read_csv({where}, auto_detect = false, header = true, nullstr = '', quote = '\"', "
        f"escape = '\"', delim = {quoted(separator, chr(39))}, max_line_size = {LONGEST_LINE}, "
        f"hive_partitioning = false, parallel = {str(not packed).lower()}, columns = {{{columns}}})"
    )


def refuse_long_end(file: str) -> None:
    """Refuse a CSV file whose last line is too long: DuckDB may drop that line silently.

    A compressed file is decompressed for this, piece by piece.
    """
    packed = file.lower().endswith(".gz")
    try:
        with gzip.open(file) if packed else open(file, "rb") as stream:
            if not packed:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - LONGEST_LINE - PIECE))
            length, ended = 0, False  # of the last line with anything in it so far
            while piece := stream.read(PIECE):
                words = piece.rstrip(b"\r\n")
                if words:
                    begin = max(words.rfind(b"\n"), words.rfind(b"\r")) + 1
                    length = len(words) - begin + (0 if begin or ended else length)
                    ended = False
                ended = ended or len(words) < len(piece)
    except (OSError, EOFError, zlib.error) as error:
        raise _no_csv(file, error) from error
    if length > LONGEST_LINE:
        raise LogError(
            f"the last line of {os.path.basename(file)!r} is longer than {LONGEST_LINE:,} bytes.",
            file,
            "Leave its longest column out, or write a Parquet file.",
        )


def _no_csv(file: str, error: Exception) -> LogError:
    return LogError(
        f"{os.path.basename(file)!r} could not be read as CSV.", str(error)[:200], SAY_ENCODING
    )
