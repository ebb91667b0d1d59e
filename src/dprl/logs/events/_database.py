"""A DuckDB database in a temporary folder, with a limit of memory."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dprl._core.checks import check_threads, wrong
from dprl._core.database import confine, connect
from dprl.logs._sources import quoted

__all__ = ["database", "number", "text", "unsigned_zero"]


def text(word: str) -> str:
    """A text as SQL needs it."""
    return quoted(word, "'")


def number(value: float | None) -> str:
    """A number as SQL needs it, to the last bit."""
    return "CAST(NULL AS DOUBLE)" if value is None else f"CAST('{float(value)!r}' AS DOUBLE)"


def unsigned_zero(value: str) -> str:
    """SQL of a number in which a zero has no sign: -0.0 and 0.0 are one number, with other bits."""
    return f"CASE WHEN {value} = 0 THEN CAST(0 AS DOUBLE) ELSE {value} END"


@contextmanager
def database(
    memory: str,
    threads: int | None,
    temp: Any,
    name: str,
    reads: Iterable[str | os.PathLike[str]] = (),
    writes: Iterable[str | os.PathLike[str]] = (),
) -> Iterator[Any]:
    """Open a DuckDB database in a temporary folder, which is removed at the end of the block.

    Its queries can reach nothing but this folder and what is named here.

    Args:
        memory: Limit of DuckDB's memory, such as "4GB"; what does not fit goes to disk.
        threads: Number of threads; None: DuckDB's own.
        temp: Folder in which the temporary folder is made; None: the system's.
        name: Name of the database, for the names of files.
        reads: Files, patterns and folders that it reads. Default: none.
        writes: Folders that it writes to. Default: none.

    Raises:
        ParameterError: The limit of memory or the number of threads is none.
    """
    import duckdb

    where = None if temp is None else os.path.abspath(temp)  # DuckDB takes ~ for the home folder
    with tempfile.TemporaryDirectory(prefix=f"dprl-{name}-", dir=where) as place:
        con = connect(str(Path(place) / f"{name}.duckdb"))
        try:
            con.execute(f"SET temp_directory = {text(str(Path(place) / 'spill'))}")
            con.execute("SET preserve_insertion_order = false")
            con.execute("SET enable_progress_bar = false")
            con.execute("SET TimeZone = 'UTC'")
            try:
                con.execute(f"SET memory_limit = {text(memory)}")
            except duckdb.Error as error:
                raise wrong("memory", "a size such as 4GB", memory) from error
            if (cores := check_threads(threads)) is not None:
                con.execute(f"SET threads = {cores}")
            confine(con, files=_reached(reads), folders=[place, *writes])
            yield con
        finally:
            con.close()


def _reached(names: Iterable[str | os.PathLike[str]]) -> list[Path | str]:
    """The files that names, patterns and folders stand for, by the names that queries use."""
    files: list[Path | str] = []
    for given in names:
        name = os.fspath(given)
        for path in [name] if os.path.lexists(name) else glob.glob(name, recursive=True):
            if os.path.isdir(path):
                files += Path(path).iterdir()
            else:
                whole = Path(path).absolute()
                files += [path, whole, f"{whole}.wal"]  # the last: of an attached DuckDB file
    return files
