"""`dprl split`: some patients or episodes to learn from, the rest to judge by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dprl._core.plural import many
from dprl.apps.cli._app import command
from dprl.apps.cli.console import caution, progress, show, warned
from dprl.apps.cli.options import FilesOfLog, Json, Partitions, Seed
from dprl.apps.cli.reading import Letters

__all__ = ["split"]


@command
def split(
    files: FilesOfLog,
    *,
    by: Annotated[str, Parameter(help="Column whose rows stay together: patient or episode.")],
    out: Annotated[Path, Parameter(help="A folder for train and test.")],
    fraction: Annotated[
        float, Parameter(help="Share of the patients or episodes to learn from.")
    ] = 0.5,
    seed: Seed = 0,
    partitions: Partitions = False,
    encoding: Letters = None,
    json: Json = False,
) -> int:
    """Split a table by whole patients or episodes: some to learn from, the rest to judge by.

    Writes train and test, CSV or Parquet as the table is, with every column as it came. CSV is
    written with commas between cells, in the encoding it was read in. The same values and seed
    give the same sides, whatever the order of the rows.

    Example: `dprl split visits.csv --by patient --out parts`

    Args:
        files: CSV or Parquet files, or patterns in quotes.
    """
    from dprl.logs._split import split_table

    with progress() as tell, warned() as cautions:
        sides = split_table(
            files,
            by,
            out,
            fraction=fraction,
            seed=seed,
            partitions=partitions,
            encoding=encoding or "utf-8",
            progress=tell,
        )
    lines = [
        f"{side:<5}  {sides[side]['kept']:,} of {by!r}, {many(sides[side]['rows'], 'row')}: "
        f"{sides[side]['file']}"
        for side in ("train", "test")
    ]
    if not json:
        caution(cautions)
    show({**sides, "warnings": cautions} if json else "\n".join(lines), json)
    return 0
