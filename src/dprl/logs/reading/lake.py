"""Tables that are no files: the snapshot of a lake, the answer of a query, a stream of batches.

Delta Lake, Iceberg, object stores and warehouses have libraries of their own that know which rows a
table has today; what these hand over is taken as it is. A log in memory takes it whole; a log in
parts has it written once, batch by batch, to a Parquet file in its private folder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from dprl._core.database import connect
from dprl.errors import LogError

HANDED_OVER = "table.parquet"
"""The file that a table is written to."""
PARQUET = re.compile(r"\.(parquet|pq)$|[*\]]$", re.IGNORECASE)
"""What a name of Parquet files, or a pattern for them, ends in."""


def is_table(source: Any) -> bool:
    """Whether this is a table, not paths of files.

    Example:
        >>> import duckdb
        >>> is_table("logs/*.parquet"), is_table(["a.parquet"]), is_table(duckdb.sql("SELECT 1"))
        (False, False, True)
    """
    if isinstance(source, str | os.PathLike | list | tuple):
        return False
    ways = ("sink_parquet", "write_parquet", "to_parquet", "scanner", "__arrow_c_stream__")
    return any(hasattr(source, way) for way in ways)


def gathered(source: Any) -> Any:
    """The table with its rows in memory, if it is an Arrow dataset or stream; else itself.

    Args:
        source: Any table.

    Returns:
        What `dprl.from_frame` takes.
    """
    if hasattr(source, "scanner") and hasattr(source, "to_table"):
        return source.to_table()
    if hasattr(source, "read_all"):
        return source.read_all()
    return source


def written_out(source: Any, folder: Path) -> Path:
    """Write a table's rows, in their order, to a Parquet file, without holding all of them.

    Args:
        source: A polars frame (lazy ones are collected in batches), a DuckDB relation, an Arrow
            table, dataset or stream of batches, or anything that exports an Arrow stream.
        folder: Where the file is made.

    Returns:
        The file.

    Raises:
        LogError: The table cannot be read to its end.

    Example:
        >>> import duckdb, pathlib
        >>> written_out(duckdb.sql("SELECT 1 AS id"), pathlib.Path(".")).name
        'table.parquet'
    """
    refuse_files_of_lake(source)
    path = folder / HANDED_OVER
    try:
        if hasattr(source, "sink_parquet"):
            source.sink_parquet(path)
        elif hasattr(source, "write_parquet"):
            source.write_parquet(str(path))
        else:
            with connect() as con:
                con.execute("SET preserve_insertion_order = true; SET TimeZone = 'UTC'")
                make = con.from_arrow if _is_arrow(source) else con.from_df
                make(source).write_parquet(str(path))
    except (OSError, MemoryError):
        raise  # the disk is full: said elsewhere
    except Exception as error:
        raise LogError(
            f"the {type(source).__name__} could not be read.",
            f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            "Read it with its own library first, to see whether it is whole.",
        ) from error
    return path


def refuse_files_of_lake(source: Any) -> None:
    """Refuse a DuckDB relation that reads the Parquet files of a lake one by one.

    Files that stand in a view are not seen; `delta_scan` and `iceberg_scan` name folders.
    """
    if hasattr(source, "sql_query"):
        from dprl.logs.reading.paths import refuse_managed  # which reads frames, which come here

        # DuckDB 1.3 quotes a file in FROM like a name.
        found = re.finditer(r"""(['"])((?:(?!\1).|\1\1)+)\1""", source.sql_query())
        words = (one[2].replace(2 * one[1], one[1]) for one in found)
        files = (Path(word) for word in words if PARQUET.search(word))
        refuse_managed(above for file in files for above in file.absolute().parents)


def _is_arrow(source: Any) -> bool:
    """Whether this is Arrow's; data frames of pandas export streams too, but keep an index."""
    return not hasattr(source, "iloc")
