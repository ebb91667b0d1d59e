"""Rows written to and read from Parquet files: the data behind a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.database import connect
from dprl._core.disk import replacing
from dprl.logs._scans import literal
from dprl.logs._sources import quoted

__all__ = ["Row", "Rows", "read_rows", "write_rows"]

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
