"""Connections to DuckDB: no extension is ever fetched or loaded, and files only where said."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from typing import Any

__all__ = ["connect"]

SETTINGS = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
"""What is needed (Parquet, JSON, time zones) is part of DuckDB; nothing comes from elsewhere."""


def connect(
    path: str | os.PathLike[str] = ":memory:",
    *,
    folders: Iterable[str | os.PathLike[str]] | None = None,
) -> Any:
    """A connection that fetches no extension, whatever a query or a file asks for.

    Args:
        path: The file of the database. Default: in memory.
        folders: The folders that its queries may read and write, by names with all links resolved;
            () for none at all. Default None: whatever the user may.
    """
    import duckdb

    con = duckdb.connect(os.fspath(path), config=dict(SETTINGS))
    if folders is not None:
        real = {os.path.realpath(folder) for folder in folders}
        allowed = sorted(real | {glob.escape(folder) for folder in real})  # as queries write them
        names = ", ".join("'" + folder.replace("'", "''") + "'" for folder in allowed)
        con.execute(f"SET allowed_directories = [{names}]")
        con.execute("SET enable_external_access = false")
    return con
