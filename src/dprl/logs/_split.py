"""A table split in two: some episodes to learn from, the others to evaluate on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core.disk import check_target, refuse_overwrite, replacing, together
from dprl.errors import LabelWarning, LogError
from dprl.logs._files import Progress
from dprl.logs._label_rules import spelled_twice
from dprl.logs._sources import choose
from dprl.logs._table_file import TableFile
from dprl.logs._text import Text
from dprl.logs.log import deal

__all__ = ["split_table"]

NAMES = ("train", "test")


def split_table(
    files: Sequence[str],
    by: str,
    folder: Path,
    *,
    fraction: float,
    seed: int,
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
        partitions: Whether folders named NAME=VALUE become columns; they are written like the
            others. Default False.
        encoding: How the letters of CSV files are written; both tables are written so too.
            Default "utf-8".
        progress: Called with the name of a stage and the share of it that is done. Default None.

    Returns:
        The column, fraction and seed used; for each side its file and its numbers of values and
        rows.
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
    twice = spelled_twice(column.labels)
    if twice is not None:
        warnings.warn(
            f"{name!r} has {twice[0]:,} labels that only Unicode spelling tells from another; "
            f"they may come to different sides. First: {twice[1]}.",
            LabelWarning,
            stacklevel=2,
        )
    first = deal(len(column.labels), fraction, seed)
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
