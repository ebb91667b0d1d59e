"""`Stays`: the decisions of some or all patients in a file that `build` wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core.database import connect
from dprl.errors import LogError, ParameterError
from dprl.logs._scans import columns_of_files, literal
from dprl.logs._sources import quoted
from dprl_studies.icu.dictionary import COLUMNS

__all__ = ["Stays", "read_stays"]


@dataclass(frozen=True)
class Stays:
    """The decisions of some or all patients of a file.

    Attributes:
        path: A file that `build` wrote.
        subjects: The identifiers of the patients, sorted.
        n_stays: Number of their stays.
        n_decisions: Number of their decisions.

    Example:
        >>> Stays(Path("stays.parquet"), (1, 2, 3), 4, 200)
        Stays: 4 stays of 3 patients · 200 decisions
    """

    path: Path
    subjects: tuple[int, ...]
    n_stays: int
    n_decisions: int

    def __repr__(self) -> str:
        return (
            f"Stays: {self.n_stays:,} stays of {len(self.subjects):,} patients · "
            f"{self.n_decisions:,} decisions"
        )

    def split(self, shares: Sequence[float] = (0.25, 0.25, 0.5), *, seed: int) -> tuple[Stays, ...]:
        """Split the patients at random; every patient is in exactly one part.

        Args:
            shares: Share of the patients in each part; above 0, adding up to 1. Default
                (0.25, 0.25, 0.5).
            seed: Seed of the split.

        Returns:
            One `Stays` per share.

        Raises:
            ParameterError: The shares are not above 0 or do not add up to 1.
            LogError: There are too few patients for so many parts.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> import dprl
            >>> temporary = tempfile.TemporaryDirectory()
            >>> folder = Path(temporary.name)
            >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
            >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
            >>> one, other = dprl.icu.read_stays(built.path).split((0.5, 0.5), seed=0)
            >>> one
            Stays: 6 stays of 6 patients · 327 decisions
            >>> temporary.cleanup()
        """
        if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ParameterError(f"shares must be above 0 and add up to 1; got {tuple(shares)!r}.")
        n = len(self.subjects)
        ends = np.round(np.cumsum(shares) * n).astype(int)
        if (np.diff(np.concatenate(([0], ends))) < 1).any():
            raise LogError(
                f"{n} patients cannot be split into {len(shares)} parts of {tuple(shares)}.",
                do="A patient is never torn apart; use fewer parts, or more patients.",
            )
        order = np.random.default_rng(seed).permutation(n)
        parts = np.split(order, ends[:-1])
        return tuple(_stays(self.path, [self.subjects[i] for i in part]) for part in parts)

    @contextmanager
    def open(self) -> Iterator[Any]:
        """Open a DuckDB connection for queries about these decisions; use it in a `with` block.

        The view `decisions` has one row per decision and the columns of `dprl.icu.dictionary()`,
        without the levels of the treatments and the reward, which a `Preparation` computes.

        Yields:
            The connection; it is closed at the end of the block.

        Example:
            >>> import dprl
            >>> tables = dprl.icu.simulate("tables", stays=12, seed=0)
            >>> built = dprl.icu.build("tables", "stays.parquet")
            >>> with dprl.icu.read_stays("stays.parquet").open() as con:
            ...     con.execute("SELECT count(*), max(hour) FROM decisions").fetchone()
            (675, 70)
        """
        computed = ("bolus", "vasopressor", "last_bolus", "last_vasopressor", "reward")
        names = ", ".join(name for name in COLUMNS if name not in computed)
        with connect(files=[self.path]) as con:
            con.execute("CREATE TABLE chosen AS SELECT unnest($1::BIGINT[]) AS subject_id",
                        [list(self.subjects)])  # fmt: skip
            con.execute(
                f"CREATE VIEW decisions AS SELECT {names} FROM "
                f"{_scan(self.path)} "
                "SEMI JOIN chosen USING (subject_id)"
            )
            yield con


def _scan(path: Path) -> str:
    """SQL that reads exactly this file (no pattern, no partitions)."""
    return f"read_parquet({quoted(literal(path), chr(39))}, hive_partitioning=false)"


def read_stays(path: str | os.PathLike[str]) -> Stays:
    """Open a file of decisions that `build` wrote; the rows stay on disk.

    Args:
        path: The Parquet file.

    Returns:
        The decisions of all its patients.

    Raises:
        LogError: There is no such file, it is not Parquet, or it lacks columns.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import dprl
        >>> temporary = tempfile.TemporaryDirectory()
        >>> folder = Path(temporary.name)
        >>> tables = dprl.icu.simulate(folder / "tables", stays=12, seed=0)
        >>> built = dprl.icu.build(folder / "tables", folder / "stays.parquet")
        >>> dprl.icu.read_stays(built.path)
        Stays: 12 stays of 11 patients · 675 decisions
        >>> temporary.cleanup()
    """
    import duckdb

    file = Path(path)
    if not file.is_file():
        raise LogError(f"there is no file {str(file)!r}.", do="Make it: dprl icu build.")
    try:
        real = file.resolve()
        with connect(files=[real]) as con:
            columns_of_files([str(real)], "parquet", con.execute)  # each column once
            in_file = {row[0] for row in con.sql(f"SELECT * FROM {_scan(real)}").description}
            missing = [name for name in COLUMNS if name not in in_file]
            if not missing:
                patients = con.execute(f"SELECT DISTINCT subject_id FROM {_scan(real)}").fetchall()
    except duckdb.Error as error:
        raise LogError(f"{str(file)!r} is no Parquet file.", str(error).splitlines()[0]) from error
    if missing:
        raise LogError(
            f"{str(file)!r} lacks {len(missing)} columns of a table of stays: "
            f"{', '.join(missing[:6])}.",
            do="Make it with dprl icu build.",
        )
    return _stays(file, [row[0] for row in patients])


def _stays(path: Path, subjects: Sequence[int]) -> Stays:
    """The stays of these patients, with their counts."""
    chosen = Stays(path, tuple(sorted(subjects)), 0, 0)
    with chosen.open() as con:
        n = con.execute("SELECT count(DISTINCT stay_id), count(*) FROM decisions").fetchone()
    return Stays(path, chosen.subjects, int(n[0]), int(n[1]))
