"""Logs that do not fit into memory: whether a command reads its log in parts, and how."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dprl._core.database import connect
from dprl.apps.cli.console import complain
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from dprl.logs._files import Progress

__all__ = ["ScanOptions"]

PER_ROW = 150
"""About how many bytes of memory a row takes while a log is read and learned from."""


@Parameter(name="*")
@dataclass(kw_only=True)
class ScanOptions:
    """How much memory may be used, and whether the log is read in parts."""

    out_of_core: Annotated[
        bool | None,
        Parameter(
            help="Read Parquet files in parts, sorted on disk where needed: for logs larger than "
            "memory. The policy is the same, byte for byte. By default chosen if the log would "
            "not fit.",
        ),
    ] = None
    memory_limit: Annotated[
        str | None,
        Parameter(
            help="About how much memory may be used, such as 2GB; by default half of what is free. "
            "A log that would need more is read in parts."
        ),
    ] = None
    temp_folder: Annotated[
        str | None,
        Parameter(
            help="Where a log in parts keeps its temporary files; by default the system's place "
            "(TMPDIR)."
        ),
    ] = None

    def in_parts(self, files: list[str], able: bool, learns: bool = True) -> bool:
        """Whether the log is to be read in parts; a line says so if nobody asked for it.

        Args:
            files: The files of the log.
            able: Whether the command can use a log in parts.
            learns: Whether the command learns a policy. Default True.
        """
        from dprl._core.limits import available_memory, size_in_words
        from dprl.logs._scan import memory_of

        limit = None if self.memory_limit is None else memory_of(self.memory_limit)
        if self.out_of_core is not None:
            if self.out_of_core and not able:
                who = "only the learners dprl and confident read a log in parts, with"
                raise ParameterError(
                    f"{who if learns else 'a log in parts has'} one column of state labels and "
                    "one of actions.",
                    do="Leave --out-of-core out, or name one --state of labels, one --action, and "
                    f"no {'--radius or ' * learns}--action-bins.",
                )
            return self.out_of_core
        room = available_memory() if limit is None else limit
        rows = rows_in(files) if able and room is not None else 0
        if room is None or rows * PER_ROW <= room:
            return False
        free = "is free" if limit is None else "may be used"
        complain(
            f"note: {rows:,} rows need about {size_in_words(rows * PER_ROW)} of memory, and "
            f"{size_in_words(room)} {free}: the log is read in parts (--out-of-core)."
        )
        return True

    def arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments of `dprl.scan`; what a log in parts does not have is refused."""
        from dprl.logs._scan import IN_MEMORY

        given = [name for name in IN_MEMORY if options.get(name)]
        if given:
            raise ParameterError(
                f"--{given[0]} is not possible with a log in parts.",
                f"--{given[0]} {options[given[0]]}",
                "Leave it out, or leave --out-of-core out.",
            )
        own = {name: value for name, value in options.items() if name not in IN_MEMORY}
        return {**own, "memory": self.memory_limit, "folder": self.temp_folder}

    @contextlib.contextmanager
    def scanned(
        self, files: list[str], options: Mapping[str, Any], tell: Progress
    ) -> Iterator[Any]:
        """The log in parts; its temporary files are removed at the end, however it comes."""
        import dprl

        arguments = self.arguments(options)
        with ended_like_an_interrupt(), dprl.scan(files, **arguments, progress=tell) as parts:
            yield parts

    @contextlib.contextmanager
    def checked(
        self, files: list[str], options: Mapping[str, Any], tell: Progress
    ) -> Iterator[Any]:
        """What `dprl.check` finds in parts; temporary files are removed at the end."""
        import dprl

        arguments = self.arguments(options)
        with ended_like_an_interrupt(), contextlib.ExitStack() as undo:
            report = dprl.check(files, **arguments, progress=tell)
            if isinstance(report.log, dprl.LogInParts):
                undo.callback(report.log.close)
            yield report


def rows_in(files: list[str]) -> int:
    """How many rows Parquet files have, from their ends; 0 if that is not easily known."""
    import duckdb

    from dprl.errors import LogError
    from dprl.logs._scans import literal, open_files

    try:
        named, kind = open_files(files)
        if kind != "parquet":
            return 0
        real = [os.path.realpath(file) for file in named]
        with connect(files=real) as con:
            sql = "SELECT sum(num_rows) FROM parquet_file_metadata(?)"
            row = con.execute(sql, [[literal(file) for file in real]]).fetchone()
            return int(row[0] or 0) if row else 0
    except (LogError, duckdb.Error):  # reading them will say what is wrong
        return 0


@contextlib.contextmanager
def ended_like_an_interrupt() -> Iterator[None]:
    """Let a request to end the program (SIGTERM) clean up first, as Ctrl-C does."""

    def leave(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
