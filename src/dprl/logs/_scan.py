"""`dprl.scan`: Parquet files larger than memory become a log in parts.

Rows are read piece by piece. If they are in the order of a log already (by episode and time), they
are stored as they come; if not, DuckDB sorts them under the memory limit, on disk where they do not
fit. What is stored are flat files of codes in a private folder, which is removed at the end.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dprl._core.limits import available_memory, said_if_short
from dprl._core.words import either, worded
from dprl.errors import ParameterError
from dprl.logs._assemble import announce
from dprl.logs._files import Progress
from dprl.logs._findings import CheckResult, Level, sorted_findings
from dprl.logs._gaps import Missing
from dprl.logs._log_rules import log_findings
from dprl.logs._parts_making import Making, ScanSettings
from dprl.logs._parts_table import Table
from dprl.logs._reading import OPTIONS, Reading, documented
from dprl.logs.log import Label
from dprl.logs.parts import LogInParts

__all__ = ["IN_MEMORY", "memory_of", "scan", "scanned"]

SHARE = 0.5
"""The share of free memory that is used if no limit is given."""
LEAST = 256 << 20
"""The smallest memory limit, in bytes."""
PER_ROW = 500
"""Bytes of the memory limit for each row of a part: a row takes far less, but is not alone."""
IN_MEMORY = (
    "also", "categorical", "partitions", "action_bins", "decimal", "encoding", "dates", "labels",
)  # fmt: skip
"""Options of reading that a log in parts does not have."""
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def memory_of(memory: str | float | None) -> int:
    """A memory limit in bytes: a number, text such as "2GB", or None for half of what is free."""
    if memory is None:
        free = available_memory()
        return max(LEAST, int(SHARE * free)) if free is not None else 2 << 30
    text = str(memory).strip().upper()
    number = text.rstrip("BKMGT ")
    try:
        size = float(number) * UNITS[text[len(number) :].strip()]
    except (KeyError, ValueError):
        size = float("nan")
    if not LEAST <= size < 2**62:
        raise ParameterError(
            f"memory must be a size of at least 256MB, such as '2GB'; got {memory!r}.",
            do="Leave it out for half of the memory that is free.",
        )
    return int(size)


@documented
def scan(  # noqa: D417  (see `documented`)
    paths: Any,
    *,
    episode: str,
    state: str,
    action: str,
    reward: str,
    time: str | None = None,
    group: str | None = None,
    available: str | None = None,
    ended: str | None = None,
    propensity: str | None = None,
    missing: Missing = "error",
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    reward_range: tuple[float, float] | None = None,
    events: Sequence[str] | None = None,
    follow_up: Any = None,
    memory: str | float | None = None,
    rows: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> LogInParts:
    """Read logged decisions that need not fit into memory, from Parquet files.

    Files may be unsorted, and episodes may span files. All checks of `dprl.read` are made, with the
    same errors. The rows are stored in a private folder for temporary files (about 20 bytes a row,
    three times that while unsorted rows are sorted), which is removed when the result is closed.

    Args:
        paths: A file, a pattern such as ``'logs/*.parquet'``, or several of either.
        state: Column of state labels.
        missing: What to do about missing values, as in `dprl.read`: "error" refuses them;
            "drop-episodes" leaves out the episodes that have one; "flag" gives a missing state a
            label of its own, "missing"; "zero" makes a missing reward 0. Or a mapping from columns
            or patterns to these words. "median" is for numbers of the state, of which a log in
            parts has none: its state is one column of labels. Default "error".
        memory: About how much memory may be used: bytes, or text such as "2GB", at least 256MB. The
            tables over states and actions come on top. Default None: half of what is free.
        rows: About how many rows a part has. Default None: as many as suit the memory.
        folder: Where the private folder is made. Default None: the system's place for temporary
            files (the variable TMPDIR).
        progress: Called with the name of a stage and the share of it that is done, 0 to 1. Default
            None.

    Returns:
        The log in parts. Close it, or use it in a `with` block, to remove its files.

    Raises:
        LogError: If the data cannot be used, as `dprl.read` says it; or if the disk is full.
        ParameterError: If something is asked for that needs the whole log in memory.

    Example:
        >>> import dprl
        >>> dprl.write(dprl.envs.risky_arms().sample(100, seed=0), "arms.parquet")
        >>> with dprl.scan("arms.parquet", episode="episode", time="time", state="state",
        ...                action="action", reward="reward", rows=50) as parts:
        ...     print(parts, len(parts))
        Log in parts: 100 episodes · 200 steps · 9 states · 10 actions 4
    """
    reading = Reading.of({**locals(), "also": ()})
    result = scanned(
        paths, reading, memory, rows, folder, progress, levels=("error", "warning"), sums=False
    )
    announce(result.findings, stacklevel=4)
    assert isinstance(result.log, LogInParts)
    return result.log


def scanned(
    paths: Any,
    reading: Reading,
    memory: str | float | None = None,
    rows: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    *,
    levels: tuple[Level, ...] = ("error", "warning", "note"),
    sums: bool = True,
) -> CheckResult:
    """What is found in Parquet files that are read in parts, and the log in parts if there is one.

    Args:
        paths: The files.
        reading: How they are read.
        memory: As in `scan`.
        rows: As in `scan`.
        folder: As in `scan`.
        progress: As in `scan`.
        levels: The levels of the rules about rows that are asked. Default: all.
        sums: Whether the rules about the log as a whole are asked too. Default True.
    """
    for name in IN_MEMORY:
        if getattr(reading, name) not in (OPTIONS[name].default, (), None):
            raise ParameterError(
                f"{name} is not possible with a log in parts.",
                f"{name}={getattr(reading, name)!r}",
                worded(
                    "Leave it out, or {choice}.",
                    choice=either("read the log with dprl.read", "leave out --out-of-core"),
                ),
            )
    limit = memory_of(memory)
    suits = max(1, min(limit // PER_ROW, 8_000_000))
    asked = ScanSettings(reading, suits if rows is None else max(int(rows), 1), levels)
    private = Path(tempfile.mkdtemp(prefix="dprl-parts-", dir=folder))
    remove = weakref.finalize(asked, shutil.rmtree, private, ignore_errors=True)
    settings = {
        "memory_limit": f"{int(0.45 * limit) >> 20}MiB",
        "temp_directory": private / "spill",
    }
    try:
        with said_if_short("the parts of the log", str(private)):
            table = Table(paths, reading.columns, settings, private)
            try:
                making = Making(table, asked, private, progress)
                made = making.parts()
            finally:
                table.close()
                for name in ("rows.duckdb", "rows.duckdb.wal"):
                    (private / name).unlink(missing_ok=True)
    except BaseException:
        remove()
        raise
    findings = making.findings
    if made is None:
        remove()
        return CheckResult(sorted_findings(findings), None)
    made = replace(made, close=_Closing(asked, remove))
    findings += log_findings(made) if sums else []
    return CheckResult(sorted_findings(findings), made)


@dataclass(frozen=True)
class _Closing:
    """Removes the private folder, at the latest when nothing refers to it any more."""

    asked: Any
    remove: Any

    def __call__(self) -> None:
        self.remove()

    def __reduce__(self) -> Any:  # another process must not remove the files
        return (_nothing, ())


def _nothing() -> Any:
    return _stay


def _stay() -> None:
    """Leave the files where they are."""
