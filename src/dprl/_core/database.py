"""Connections to DuckDB: no extension is ever fetched or loaded, and files only where said."""

from __future__ import annotations

import contextlib
import glob
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
"""What is needed (Parquet, JSON, time zones) is part of DuckDB; nothing comes from elsewhere."""


def connect(
    path: str | os.PathLike[str] = ":memory:",
    *,
    folders: Iterable[str | os.PathLike[str]] | None = None,
    files: Iterable[str | os.PathLike[str]] | None = None,
) -> Any:
    """A connection that fetches no extension, whatever a query or a file asks for.

    Args:
        path: The file of the database. Default: in memory.
        folders: The folders that its queries may read and write, by names with all links resolved;
            () for none at all. Default None: whatever the user may, until `confine` is called.
        files: The single files that its queries may read and write besides. Default None: none
            where there are folders, else whatever the user may.
    """
    import duckdb

    con = duckdb.connect(os.fspath(path), config=dict(SETTINGS))
    if folders is not None or files is not None:
        confine(con, folders=folders or (), files=files or ())
    return con


def confine(
    con: Any,
    *,
    folders: Iterable[str | os.PathLike[str]] = (),
    files: Iterable[str | os.PathLike[str]] = (),
) -> None:
    """From now on let a connection read and write these alone, its own database, and its spill.

    This cannot be undone. What depends on where files lie (`temp_directory`) must be set before.

    Args:
        con: The connection.
        folders: Folders with all that is in them, by names with all links resolved.
        files: Single files, by the names that queries use.
    """
    real = _outermost({os.path.realpath(folder) for folder in folders})
    named = {os.path.join(os.getcwd(), os.fspath(file)) for file in files}
    con.execute(f"SET allowed_directories = {_as_queries_write(real)}")
    con.execute(f"SET allowed_paths = {_as_queries_write(named)}")
    con.execute("SET enable_external_access = false")


@contextlib.contextmanager
def watched(con: Any, tell: Callable[[float], None] | None) -> Iterator[None]:
    """Tell how much of the query inside is done, a few times a second, to whoever listens."""
    if tell is None:
        yield
        return
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            tell(max(0.0, con.query_progress()) / 100)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    tell(1.0)


def of_float(column: str) -> str:
    """SQL of a column of type FLOAT as DOUBLE, in the decimals it stands for (`arrays.doubles`)."""
    wide = f"CAST({column} AS DOUBLE)"
    result = wide
    for digits in (7, 6):
        text = f"format('{{:.{digits}g}}', {wide})"
        same = f"CAST({text} AS FLOAT) = {column}"
        result = f"CASE WHEN {same} THEN CAST({text} AS DOUBLE) ELSE {result} END"
    return f"CASE WHEN {column} = trunc({column}) THEN {wide} ELSE {result} END"


def of_half(column: str) -> str:
    """SQL of a float of 16 bits, which DuckDB reads as FLOAT, as the decimal it stands for."""
    wide = f"CAST({column} AS DOUBLE)"
    away = f"pow(2, greatest(floor(log2(nullif(abs({wide}), 0))), -14) - 11)"  # to the next, halved
    result = wide
    for digits in (4, 3):
        short = f"CAST(format('{{:.{digits}g}}', {wide}) AS DOUBLE)"
        result = f"CASE WHEN abs({short} - {wide}) < {away} THEN {short} ELSE {result} END"
    return f"CASE WHEN {column} = trunc({column}) THEN {wide} ELSE {result} END"


def of_text(column: str, decimal: str) -> str:
    """SQL of the number that text stands for, as DOUBLE; NULL where it stands for none.

    Args:
        column: SQL of the text.
        decimal: The mark before the fraction; where it is a comma, a point is in no number.
    """
    if decimal == ".":
        return f"TRY_CAST({column} AS DOUBLE)"
    plain = f"CASE WHEN contains({column}, '.') THEN NULL ELSE replace({column}, ',', '.') END"
    return f"TRY_CAST({plain} AS DOUBLE)"


def _outermost(folders: set[str]) -> set[str]:
    """Folders that lie in no other of them: early versions look at the nearest folder alone."""
    return {folder for folder in folders if not any(map(folders.__contains__, _above(folder)))}


def _above(folder: str) -> Iterator[str]:
    """The folders that a folder lies in."""
    while (parent := os.path.dirname(folder)) != folder:
        folder = parent
        yield folder


def _as_queries_write(names: Iterable[str]) -> str:
    """A list in SQL of names, as they are and as queries write them: without any pattern."""
    given = set(names)
    both = sorted(given | {glob.escape(name) for name in given})
    return "[" + ", ".join("'" + name.replace("'", "''") + "'" for name in both) + "]"
