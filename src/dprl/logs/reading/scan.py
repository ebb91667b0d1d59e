"""`dprl.scan`: Parquet files larger than memory become a log in parts.

Rows are read piece by piece. If they are in the order of a log already (by episode and time), they
are stored as they come; if not, DuckDB sorts them under the memory limit, on disk where they do not
fit. What is stored are flat files of codes in a private folder, which is removed at the end.
"""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.database import of_float, watched
from dprl._core.disk import available_memory, prefix_in, said_if_short
from dprl._core.words import either, worded
from dprl.errors import LogError, ParameterError
from dprl.logs.checking.findings import CheckResult, Finding, Found, Level, Whole, sorted_findings
from dprl.logs.checking.labels import LABEL_RULES, LabelSet, Vocabulary
from dprl.logs.checking.rows import NO_ROWS, RowFindings, rows_after_end, with_zeros
from dprl.logs.checking.whole_log import log_findings
from dprl.logs.encoding.gaps import GONE, Missing, label_taken, refuse_medians, whole_numbers
from dprl.logs.follow_up import Lost, follow, lost_by, lost_finding
from dprl.logs.log import WHOLE_NUMBER, Label
from dprl.logs.reading.assemble import (
    announce,
    declared_columns,
    declared_labels,
    dropped_finding,
    log_of,
)
from dprl.logs.reading.columns import Coded, Columns, encode_menus, one_label, tidy_labels
from dprl.logs.reading.files import Files, Progress
from dprl.logs.reading.frames import choose, in_words_of, quoted
from dprl.logs.reading.lake import is_table, written_out
from dprl.logs.reading.options import OPTIONS, Reading, documented
from dprl.logs.reading.paths import halves, literal
from dprl.logs.reading.store import Layout, Writer, digest_of
from dprl.logs.reading.times import refuse_two_kinds, times
from dprl.logs.roles import ROLES, further_roles
from dprl.logs.source import LogInParts

# --- The rows of Parquet files as SQL sees them: labels in one form, so that rows can be sorted
#
# A column of labels becomes whole numbers (kind "int" or "bool") or text, exactly the labels that
# `dprl.read` makes of it; a missing one becomes NULL. Nothing here holds more than a few rows or
# the distinct labels of a small column. SQL sorts, codes and leaves out rows; it judges none: that
# is the business of the rules of `dprl.logs.checking.rows`.

WHOLE = (
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
)  # fmt: skip
"""Types of whole numbers."""
MOST_LABELS = 4_000_000
"""The most different values of a column of states, actions, menus or endings."""
NEAR = 1 << 20
"""Whole numbers within a range of this size are looked up in a table."""


def sql_name(role: str) -> str:
    """The name that the column of a role has in queries."""
    return f"c_{role}"


EP, TIME, GROUP, REWARD, STATE = map(sql_name, ("episode", "time", "group", "reward", "state"))


@dataclass(frozen=True)
class Column:
    """One column of the table.

    Attributes:
        name: Its name in the files.
        kind: "int", "bool" or "text" of labels; "number"; "int", "number" or "date" of times;
            "menu".
        sql: The expression that gives its value, NULL where it is missing.
    """

    name: str
    kind: str
    sql: str

    def labels(self, values: list[Any]) -> tuple[Label, ...]:
        """The labels that values stand for."""
        return tuple(map(bool, values) if self.kind == "bool" else values)


class Table:
    """The rows of Parquet files, with the columns that have a role.

    Args:
        paths: The files, as `dprl.read` takes them.
        roles: Role → name of its column, or None.
        settings: SQL settings of the connection (memory limit, folder for temporary files).
        folder: A folder for what does not fit into memory; besides the files, the connection can
            reach this alone.
        partitions: Whether folders named NAME=VALUE are columns too. Default False.
    """

    def __init__(
        self,
        paths: Any,
        roles: Mapping[str, Any],
        settings: Mapping[str, Any],
        folder: Path,
        partitions: bool = False,
    ) -> None:
        self.files = Files(paths, None, partitions=partitions, settings=settings, folders=[folder])
        if self.files.kind != "parquet":
            raise ParameterError(
                "only Parquet files can be read in parts.",
                self.files.files[0],
                "Convert them once: duckdb -c \"COPY (FROM 'log.csv') TO 'log.parquet'\".",
            )
        self.dropping = False
        self.whole: dict[str, NDArray[np.int64]] = {}
        self.words: set[str] = set()
        self._near: dict[str, NDArray[np.int32]] = {}
        self.names = choose(roles, list(self.files.types))
        if isinstance(self.names["state"], list):
            raise ParameterError(
                f"the state is {len(self.names['state'])} columns, and a log in parts needs one "
                "column of labels.",
                ", ".join(self.names["state"][:4]),
                worded(
                    "Name one column of state labels, or {choice}.",
                    choice=either("read the log with dprl.read", "leave out --out-of-core"),
                ),
            )
        self.files.every_file_has(list(self.names.values()))
        self.columns = {role: self._column(role, name) for role, name in self.names.items()}

    def close(self) -> None:
        """Give back what the connection holds."""
        self.files.con.close()

    # -- columns ------------------------------------------------------------------------------

    def _column(self, role: str, name: str) -> Column:
        kind, cell = self.files.types[name], f"CAST({quoted(name)} AS {self.files.types[name]})"
        holds = next(own.holds for own in ROLES if own.name == role)
        if holds in ("numbers", "probabilities"):
            return Column(name, "number", self._number(name, kind, cell))
        if holds == "times":
            return self._time(name, kind, cell)
        if holds == "menus":
            text = f"CAST(to_json({cell}) AS VARCHAR)" if kind.endswith("]") else cell
            return Column(name, "menu", text)
        if kind in WHOLE or (name in self.files.folders and self._whole(name)):
            return Column(name, "int", f"CAST({cell} AS BIGINT)")
        if kind == "BOOLEAN":
            return Column(name, "bool", f"CAST({cell} AS BIGINT)")
        if kind in ("FLOAT", "DOUBLE"):
            odd = self.one(
                f"SELECT {cell} FROM ({self.scan}) WHERE NOT isnan({cell}) AND "
                f"({cell} <> round({cell}) OR abs({cell}) > {2.0**53}) LIMIT 1"
            )
            if odd is not None:
                one_label(float(odd[0]), name)
            return Column(
                name, "int", f"CASE WHEN NOT isnan({cell}) THEN CAST({cell} AS BIGINT) END"
            )
        if kind.startswith(("DECIMAL", "HUGEINT", "UHUGEINT")):
            raise LogError(
                f"{name!r} holds {kind.lower()} values, and labels of a log in parts are text, "
                "whole numbers of up to 64 bits, or true and false.",
                do="Write it as BIGINT or as text.",
            )
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "BLOB")):
            raise LogError(
                f"{name!r} holds {kind.lower()} values, which are not labels.",
                do="Labels are text, whole numbers, or true and false.",
            )
        return Column(name, "text", f"nullif(CAST({cell} AS VARCHAR), '')")

    def _whole(self, name: str) -> bool:
        """Whether the folders' values of a column, which are text, stand for whole numbers."""
        words = self.all(f"SELECT DISTINCT {quoted(name)} FROM ({self.scan})")
        labels = tidy_labels([word for (word,) in words if word]).values()
        return all(isinstance(label, int) for label in labels)

    def _number(self, name: str, kind: str, cell: str) -> str:
        if kind == "VARCHAR":
            bad = self.one(
                f"SELECT rn, v FROM (SELECT row_number() OVER () AS rn, {cell} AS v FROM "
                f"({self.scan})) WHERE v IS NOT NULL AND TRY_CAST(v AS DOUBLE) IS NULL LIMIT 1"
            )
            if bad is not None:
                raise LogError(
                    f"{name!r} must be numbers; it holds {bad[1][:40]!r}.",
                    f"row {bad[0]:,}",
                    "Convert it to numbers (1.5, not 1,5); a missing value is an empty cell.",
                )
        number = of_float(cell) if kind == "FLOAT" else f"CAST({cell} AS DOUBLE)"
        return f"CASE WHEN NOT isnan({number}) THEN {number} END"

    def _time(self, name: str, kind: str, cell: str) -> Column:
        dates = kind == "DATE" or kind.startswith("TIMESTAMP")
        if dates:
            refuse_two_kinds([literal(file) for file in self.files.files], name, self.files.run)
        if dates or kind in ("FLOAT", "DOUBLE"):
            beyond = f"NOT isfinite({cell})" if dates else f"isinf({cell})"
            n = self.one(f"SELECT count(*) FILTER ({beyond}) FROM ({self.scan})")[0]
            if n:
                raise LogError(
                    f"{name!r} holds a time that is infinite on {n:,} rows.",
                    do="Mend it, or leave the rows out.",
                )
        if kind in WHOLE and kind != "UBIGINT":
            return Column(name, "int", f"CAST({cell} AS BIGINT)")
        if kind in ("FLOAT", "DOUBLE"):
            number = of_float(cell) if kind == "FLOAT" else cell
            return Column(name, "number", f"CASE WHEN NOT isnan({cell}) THEN {number} END")
        if dates:
            return Column(name, "date", f"epoch_us(CAST({cell} AS TIMESTAMP))")
        raise LogError(
            f"{name!r} holds {kind.lower()} values, and times of a log in parts are numbers or "
            "dates.",
            do="Write it as whole numbers, DOUBLE, DATE or TIMESTAMP.",
        )

    # -- SQL ----------------------------------------------------------------------------------

    @property
    def scan(self) -> str:
        """SQL that reads all rows, in their order; its values are `self.files.values`."""
        return self.files.scan

    def one(self, sql: str) -> Any:
        """The first row of a query over `scan`; None if there is none."""
        return self.files.run(sql, self.files.values).fetchone()

    def all(self, sql: str) -> list[Any]:
        """All rows of a query over `scan`."""
        return list(self.files.run(sql, self.files.values).fetchall())

    def select(self, scan: str = "", listed: str = "") -> str:
        """SQL that gives every column its name of `sql_name`; dropped rows are not in it.

        Their order is that of the files only as long as nothing was dropped: see `numbered`.

        Args:
            scan: What to read. Default: all rows.
            listed: What is given beside them.
        """
        own = ", ".join(f"{c.sql} AS {sql_name(role)}" for role, c in self.columns.items())
        rows = f"SELECT {own}{listed} FROM {scan or f'({self.scan})'}"
        return f"FROM ({rows}) WHERE {EP} NOT IN (FROM dropped)" if self.dropping else rows

    @property
    def numbered(self) -> str:
        """SQL of all rows with `rn`, their number from 0 in the order of the files.

        Rows that were dropped do not count.
        """
        rows = self.select(listed=", row_number() OVER () - 1 AS rn")
        if not self.dropping:
            return rows
        return f"SELECT * REPLACE (row_number() OVER (ORDER BY rn) - 1 AS rn) FROM ({rows})"

    def gaps(self, roles: Sequence[str]) -> tuple[int, int]:
        """On how many rows a value of some roles is missing, and the number of the first."""
        missing = " OR ".join(f"{sql_name(role)} IS NULL" for role in roles)
        n, first = self.one(f"SELECT count(*), min(rn) FROM ({self.numbered}) WHERE {missing}")
        return int(n), int(first or 0)

    def drop(self, roles: Sequence[str]) -> tuple[int, int]:
        """Drop the episodes in which a value of these roles is missing.

        Returns how many were dropped, and how many there were.
        """
        rows = self.select()
        missing = " OR ".join(f"{sql_name(role)} IS NULL" for role in roles)
        self.files.run(
            f"CREATE TEMP TABLE dropped AS SELECT DISTINCT {EP} FROM ({rows}) WHERE {missing}",
            self.files.values,
        )
        of = int(self.one(f"SELECT count(DISTINCT {EP}) FROM ({rows})")[0])
        self.dropping = True
        return int(self.files.run("SELECT count(*) FROM dropped").fetchone()[0]), of

    def with_label(self, role: str, label: str) -> None:
        """Give missing values of a column of text this label."""
        column = self.columns[role]
        sql = f"coalesce({column.sql}, {quoted(label, chr(39))})"
        self.columns[role] = replace(column, sql=sql)

    @property
    def in_pieces(self) -> bool:
        """Whether files can be read piece by piece, in their order: nothing is in the way."""
        return not self.dropping and "file_row_number" not in map(str.lower, self.files.types)

    def has(self, role: str) -> bool:
        """Whether there is a column of a role."""
        return role in self.columns

    def labels(self, role: str) -> list[Any]:
        """The distinct values of a column, ascending, none missing; few enough to be held."""
        c = self.columns[role]
        rows = self.all(
            f"SELECT DISTINCT {sql_name(role)} AS v FROM ({self.select()}) WHERE v IS NOT NULL "
            f"LIMIT {MOST_LABELS + 1}"
        )
        if len(rows) > MOST_LABELS:
            raise LogError(
                f"{c.name!r} has more than {MOST_LABELS:,} different values, too many to be held.",
                do="Look whether it is the right column; merge labels that are never told apart in "
                "practice.",
            )
        return sorted(row[0] for row in rows)

    def place(self, row: int) -> str:
        """The place of a row (its number from 0), in the words of messages."""
        wanted = [self.names[part] for part in ("episode", "time") if part in self.names]
        files = self.files
        files.place, files.rows = {name: f"c{i}" for i, name in enumerate(wanted)}, 1
        cells = "".join(f", {quoted(name)} AS {c}" for name, c in files.place.items())
        rows = self.select(listed=f"{cells}, row_number() OVER () - 1 AS rn")
        files.run(
            f"CREATE OR REPLACE TEMP TABLE raw AS SELECT {', '.join(files.place.values())} "
            f"FROM ({rows}) ORDER BY rn LIMIT 1 OFFSET {row}",
            files.values,
        )
        files.count_rows()
        nothing = Coded(np.zeros(1, np.int32), ("",))
        time, gone, offset = None, None, None
        if "time" in self.names:
            time, gone, offset = times(files.time(self.names["time"]), self.names["time"])
        one = Columns(
            self.names, files.labels(self.names["episode"]), nothing, np.zeros(1), time=time,
            time_missing=gone, offset=offset,
        )  # fmt: skip
        return one.place(0).replace("row 1 (", f"row {row + 1:,} (", 1)

    def chunks(self, rows: int) -> list[tuple[str, list[Any]]]:
        """Queries, with their values, that together give all rows in the order of the files.

        Args:
            rows: The most rows of one of them.
        """
        piece = (
            "(SELECT *{} FROM read_parquet(?, hive_partitioning=false, file_row_number=true) "
            "WHERE file_row_number BETWEEN ? AND ?)"
        )
        queries: list[tuple[str, list[Any]]] = []
        turned = halves(self.files.files, self.files.run)
        for file in self.files.files:
            counted = self.files.run(
                "SELECT sum(num_rows) FROM parquet_file_metadata(?)", [literal(file)]
            ).fetchone()
            queries += [
                (
                    self.select(scan=piece.format(turned[file])),
                    [literal(file), first, first + rows - 1],
                )
                for first in range(0, int(counted[0] or 0), rows)
            ]
        return queries

    # -- codes --------------------------------------------------------------------------------

    def enumerate(self, role: str) -> list[Any]:
        """Let SQL turn the values of a column into codes, ascending; the values."""
        values = self.labels(role)
        if self.columns[role].kind in ("int", "bool"):
            self.whole[role] = np.array(values, np.int64)
        elif values:
            name = sql_name(role)
            self.files.run(
                f"CREATE TEMP TABLE words_{name} AS SELECT unnest(?::VARCHAR[]) AS v", [values]
            )
            self.files.run(
                f"CREATE TYPE code_{name} AS ENUM (SELECT v FROM words_{name} ORDER BY v)"
            )
            self.words.add(role)
        return values

    def coded(self) -> str:
        """SQL expressions of all columns, with codes where labels were enumerated."""
        listed = []
        for role in self.columns:
            name = sql_name(role)
            if role in self.words:
                name = f"enum_code(CAST({name} AS code_{name}))::INTEGER AS {name}"
            if role != "group":
                listed.append(name)
        return ", ".join(listed)

    def codes(self, role: str, values: NDArray[Any]) -> NDArray[np.int32]:
        """The codes of values of a column as `coded` gives them; -1 where one is missing."""
        gone, values = np.ma.getmaskarray(values), np.ma.getdata(values)
        numbers = self.whole.get(role)
        if numbers is None:
            codes = values.astype(np.int32) if role in self.words else np.full(len(values), -1)
        elif not len(numbers):
            codes = np.full(len(values), -1)
        elif int(numbers[-1]) - int(numbers[0]) > NEAR:
            codes = np.searchsorted(numbers, values)
        else:
            if role not in self._near:
                self._near[role] = np.zeros(int(numbers[-1] - numbers[0]) + 1, np.int32)
                self._near[role][numbers - numbers[0]] = np.arange(len(numbers))
            inside = np.where(gone, numbers[0], values) if gone.any() else values
            codes = self._near[role][inside - numbers[0]]
        codes = np.asarray(codes, np.int32)
        if gone.any():
            codes = np.where(gone, np.int32(-1), codes)
        return codes

    def twins(self, role: str) -> list[str]:
        """The labels of a large column of text that are another in Unicode, or the same number."""
        word, scan = sql_name(role), self.select()
        found: set[str] = set()
        for odd, form in (
            ("strlen(v) <> length(v)", "nfc_normalize(v)"),
            (
                "NOT regexp_full_match(v, '-?[1-9][0-9]*|0')"
                f" AND regexp_full_match(v, '{WHOLE_NUMBER.pattern}')",
                f"try_cast(regexp_extract(v, '{WHOLE_NUMBER.pattern}', 1) AS HUGEINT)",
            ),
        ):
            rows = f"FROM (SELECT {word} AS v FROM ({scan}))"
            if self.one(f"SELECT 1 {rows} WHERE {odd} LIMIT 1") is not None:
                several = self.all(
                    f"SELECT list(DISTINCT v) {rows} WHERE {form} IS NOT NULL "
                    f"GROUP BY {form} HAVING count(DISTINCT v) > 1"
                )
                found.update(label for row in several for label in row[0])
        return sorted(found)

    def usual_reward(self) -> float:
        """The reward that half of the rows or more have, 0 for a missing one; 0 for no such."""
        row = self.one(
            f"SELECT v, 2 * k >= sum(k) OVER () FROM (SELECT coalesce({REWARD}, 0.0) + 0.0 AS v, "
            f"count(*) AS k FROM ({self.select()}) GROUP BY ALL) ORDER BY k DESC, v LIMIT 1"
        )
        return float(row[0]) if row is not None and row[1] else 0.0

    def fetch(self, sql: str, values: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """The columns of a query as arrays, masked where a value is missing."""
        rows: dict[str, NDArray[Any]] = self.files.run(sql, values).fetchnumpy()
        return rows


# --- From a table of rows to a log in parts: sorted, judged chunk by chunk, and stored
#
# Rows are read piece by piece, whole episodes at a time. Each chunk becomes `Columns`, as a source
# in memory does, and the same rules judge it: what they find adds up. Once a rule is broken nothing
# more is stored, and the other chunks are read for the numbers of the message alone.

Rows = dict[str, NDArray[Any]]
Queries = list[tuple[str, list[Any]]]


@dataclass(frozen=True, eq=False)
class ScanSettings:
    """What was asked of `scan`.

    Attributes:
        reading: How the log is read.
        rows: About how many rows a part has.
        levels: The levels of the rules about rows that are asked.
    """

    reading: Reading
    rows: int
    levels: tuple[Level, ...] = ("error", "warning")


class _UnsortedError(Exception):
    """Rows do not come in the order of a log."""


def _joined(one: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """Two pieces of a column; masked where either has a missing value."""
    if not (np.ma.isMaskedArray(one) or np.ma.isMaskedArray(other)):
        return np.concatenate([one, other])
    return np.ma.concatenate([one, other])  # type: ignore[no-untyped-call, no-any-return]


@dataclass(eq=False)
class Making:
    """Makes a log in parts from a table.

    Attributes:
        findings: What was found, once the parts were made or refused.
    """

    table: Table
    asked: ScanSettings
    folder: Path
    progress: Progress | None
    findings: list[Finding] = field(default_factory=list)
    lost: Lost = field(default_factory=Lost)
    usual: float | None = None
    labels: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def parts(self) -> LogInParts | None:
        """The log in parts; None where an error was found."""
        table, reading = self.table, self.asked.reading
        self.tell("checking", 0.0)
        self.n = int(table.one(f"SELECT count(*) FROM ({table.scan})")[0])
        if not self.n:
            self.findings.append(NO_ROWS)
            return None
        self.about = replace(self.nothing(), names=table.names)
        self.about, self.words = declared_columns(self.about, reading)
        if not self.fill_gaps():
            return None
        self.enumerate()
        writer, n_groups = None, 0
        if not table.has("group") and table.in_pieces:
            with contextlib.suppress(_UnsortedError):
                writer = self.store(table.chunks(self.piece), "as_read")
            if writer is None:
                shutil.rmtree(self.folder / "as_read")
        if writer is None:
            n_groups = self.sort()
            writer = self.store(self.sorted_chunks(), "by_episode", n_groups)
        if not self.judged():
            writer.close(0)
            return None
        stored = writer.close(n_groups or writer.n_episodes)
        self.tell("digest", 0.0)
        content = digest_of(writer)
        if not writer.in_order:  # groups lie apart: sort once more, by group
            with self.watched("sorting by group"):
                self.run(
                    f"CREATE TABLE store.grouped AS FROM store.sorted ORDER BY gc, {EP}, "
                    f"{TIME if table.has('time') else 'rn'}"
                )
            self.run("DROP TABLE store.sorted")
            shutil.rmtree(self.folder / "by_episode")
            first = writer.first_cut
            writer = self.store(self.sorted_chunks("grouped"), "by_group", n_groups)
            stored = writer.close(n_groups)
            writer.first_cut = first
        layout = writer.layout
        return LogInParts(
            sources=tuple(part.marked() for part in stored),
            actions=layout.actions,
            states=layout.states,
            n_episodes=writer.n_episodes,
            n_groups=writer.n_groups,
            n_steps=writer.n_steps,
            longest=writer.longest,
            ended=writer.ended,
            content=content,
            cut_steps=writer.cut_steps,
            first_cut=writer.first_cut,
            grouped=self.grouped(),
            menus=layout.menus,
            events=layout.events,
            columns=layout.columns,
            has_propensity=table.has("propensity"),
            rows=self.asked.rows,
        )

    # -- before rows are read -----------------------------------------------------------------

    def nothing(self) -> Columns:
        """The columns of no rows."""
        none = Coded(np.zeros(0, np.int32), ())
        return Columns({}, none, none, np.zeros(0), state=none)

    def fill_gaps(self) -> bool:
        """Leave out episodes and label states that miss a value, as asked; False if none is left.

        Raises:
            LogError: States have the label of a missing one already, or are no text.
        """
        table, words = self.table, self.words
        refuse_medians(words, [table.names["state"]])
        required = [r.name for r in ROLES if r.holds in ("labels", "menus") and table.has(r.name)]
        required += ["reward", *(["time"] if table.has("time") else [])]
        dropping = {name for name, how in words.items() if how == "drop-episodes"}
        roles = [r for r in required if table.names[r] in dropping and table.gaps([r])[0]]
        if roles and not table.gaps(["episode"])[0]:  # a row without an episode is an error
            place = table.place(table.gaps(roles)[1])
            names = [str(table.names[role]) for role in roles]
            self.findings.append(dropped_finding(*table.drop(roles), names, place))
            if self.findings[-1].level == "error":
                return False
        name = table.names["state"]
        gaps, first = table.gaps(["state"]) if words.get(name) == "flag" else (0, 0)
        if gaps:
            if table.columns["state"].kind != "text":
                raise whole_numbers(name, gaps, table.place(first))
            if GONE in table.labels("state"):
                raise label_taken(name, gaps, table.place(first))
            table.with_label("state", GONE)
        return True

    def enumerate(self) -> None:
        """Find the labels of all columns but episodes and groups, which are not held."""
        table = self.table
        for role in ("state", "action", "ended", "available"):
            if table.has(role):
                self.labels[role] = table.columns[role].labels(table.enumerate(role))
        if table.has("available"):
            name, raw = table.names["available"], list(self.labels["available"])
            if table.files.types[name].endswith("]"):
                raw = [json.loads(v) for v in raw]
            action = Coded(np.empty(0, np.int32), self.labels["action"])
            self.menus = in_words_of(action, encode_menus(raw, name))

    def grouped(self) -> bool:
        """Whether groups are not just the episodes under the same labels."""
        columns = self.table.columns
        if not self.table.has("group") or columns["group"].kind != columns["episode"].kind:
            return self.table.has("group")
        different = f"SELECT 1 FROM ({self.table.select()}) WHERE {GROUP} <> {EP} LIMIT 1"
        return self.table.one(different) is not None

    @property
    def piece(self) -> int:
        """How many rows are read at a time."""
        return max(min(self.asked.rows // 2, 1_000_000), 1_000)

    def tell(self, stage: str, share: float) -> None:
        """Say how far a stage is, 0 to 1, to whoever listens."""
        if self.progress is not None:
            self.progress(stage, share)

    def run(self, sql: str) -> Any:
        """Ask DuckDB."""
        return self.table.files.run(sql)

    # -- rows ---------------------------------------------------------------------------------

    def sort(self) -> int:
        """Sort the rows by episode and time into a table on disk; the number of groups, or 0."""
        self.run(f"ATTACH {quoted(str(self.folder / 'rows.duckdb'), chr(39))} AS store")
        table, values = self.table, self.table.files.values
        rn = "rn::INTEGER AS rn" if self.n < 2**31 else "rn"  # less to sort
        source, more, n_groups = table.numbered, f", {rn}", 0
        if table.has("group"):
            table.files.run(
                f"CREATE TABLE store.groups AS SELECT {GROUP}, (row_number() OVER (ORDER BY "
                f"{GROUP}) - 1)::INTEGER AS gc FROM (SELECT DISTINCT {GROUP} FROM "
                f"({table.select()}) WHERE {GROUP} IS NOT NULL) ORDER BY {GROUP}",
                values,
            )
            n_groups = int(self.run("SELECT count(*) FROM store.groups").fetchone()[0])
            source, more = f"FROM ({source}) LEFT JOIN store.groups USING ({GROUP})", f", {rn}, gc"
        order = TIME if table.has("time") else "rn"
        with self.watched("sorting"):
            table.files.run(
                f"CREATE TABLE store.sorted AS SELECT {table.coded()}{more} FROM ({source}) "
                f"ORDER BY {EP}, {order}",
                values,
            )
        self.n = int(self.run("SELECT count(*) FROM store.sorted").fetchone()[0])
        return n_groups

    def watched(self, stage: str) -> contextlib.AbstractContextManager[None]:
        """Tell how far the query inside is, a few times a second."""
        self.tell(stage, 0.0)
        tell = functools.partial(self.tell, stage) if self.progress is not None else None
        return watched(self.table.files.con, tell)

    def sorted_chunks(self, name: str = "sorted") -> Queries:
        """Queries that read a sorted table piece by piece."""
        return [
            (f"FROM store.{name} WHERE rowid BETWEEN ? AND ?", [i, i + self.piece - 1])
            for i in range(0, self.n, self.piece)
        ]

    def store(self, queries: Queries, name: str, n_groups: int = 0) -> Writer:
        """Judge and write the rows of some queries, which together are in the order of a log."""
        self.lost = Lost()
        judge = name != "by_group"  # those were judged before
        if judge:
            self.found, self.late = (
                RowFindings(self.asked.levels),
                list[tuple[Found | None, Found | None]](),
            )
            self.counts = {role: np.zeros(len(own), np.int64) for role, own in self.labels.items()}
        writer = Writer(self.layout(str(self.folder / name)), self.asked.rows)
        with contextlib.ExitStack() as undo:
            undo.callback(lambda: [stream.close() for stream in writer.streams.values()])
            for i in range(0, n_groups, self.piece):
                labels = self.run(
                    f"SELECT {GROUP} FROM store.groups WHERE rowid BETWEEN {i} AND "
                    f"{i + self.piece - 1}"
                ).fetchnumpy()[GROUP]
                writer.put_labels("group", np.ma.getdata(labels).tolist())
            for rows in self.blocks(queries, as_read=name == "as_read"):
                c = with_zeros(self.columns(rows), self.words)
                if judge:
                    self.judge(c)
                if not (self.found.failed or self.late):
                    self.write(writer, c)
            undo.pop_all()
        return writer

    def blocks(self, queries: Queries, as_read: bool) -> Iterator[Rows]:
        """The rows of some queries, whole episodes at a time; what is not sorted is noticed."""
        rest: Rows | None = None
        read = 0
        for i, (sql, values) in enumerate(queries):
            self.tell("reading", i / len(queries))
            coded = f"SELECT {self.table.coded()} FROM ({sql})" if as_read else sql
            rows = self.table.fetch(coded, values)
            n = len(rows[EP])
            if as_read:
                rows["rn"] = np.arange(read, read + n)
                read += n
            if rest is not None:
                rows = {k: _joined(rest[k], v) for k, v in rows.items()}
            begins = self.begins(rows, as_read)
            end = int(begins[-1]) if len(begins) else 0
            rest = {k: v[end:] for k, v in rows.items()}
            if end:
                yield {k: v[:end] for k, v in rows.items()}
        self.tell("reading", 1.0)
        if rest is not None and len(rest[EP]):
            yield rest

    def begins(self, rows: Rows, as_read: bool) -> NDArray[np.int64]:
        """The rows with which an episode begins; as they are read, they must be in order."""
        ep, gone = np.ma.getdata(rows[EP]), np.ma.getmaskarray(rows[EP])
        same = (ep[1:] == ep[:-1]) & ~gone[1:] & ~gone[:-1] | gone[1:] & gone[:-1]
        if as_read:
            if gone.any() or bool((~same & (ep[1:] < ep[:-1])).any()):
                raise _UnsortedError
            if self.table.has("time"):
                time = np.ma.getdata(rows[TIME])
                if np.ma.is_masked(rows[TIME]) or bool((same & (time[1:] < time[:-1])).any()):
                    raise _UnsortedError
        return np.flatnonzero(~same) + 1

    def columns(self, rows: Rows) -> Columns:
        """Some whole episodes, as a source in memory has them."""
        table = self.table
        begins = np.append(0, self.begins(rows, False))
        gone = np.ma.getmaskarray(rows[EP])
        codes = np.zeros(len(gone), np.int32)
        codes[begins[1:]] = 1
        codes = np.cumsum(codes, dtype=np.int32)
        codes[gone] = -1
        names = np.ma.getdata(rows[EP])[begins[~gone[begins]]].tolist()

        def coded(role: str) -> Coded | None:
            own = table.has(role)
            return (
                Coded(table.codes(role, rows[sql_name(role)]), self.labels[role]) if own else None
            )

        def number(role: str) -> NDArray[np.float64]:
            return np.asarray(np.ma.filled(rows[sql_name(role)], np.nan), np.float64)

        time, available, action = None, None, coded("action")
        if table.has("time"):
            time = np.ma.getdata(rows[TIME])
            time = time.view("M8[us]") if table.columns["time"].kind == "date" else time
        if table.has("available"):
            own = np.append(self.menus.codes, np.int32(-1))
            codes_of_menus = own[table.codes("available", rows[sql_name("available")])]
            available = Coded(codes_of_menus, self.menus.labels)
        assert action is not None
        return replace(
            self.about,
            episode=Coded(codes, table.columns["episode"].labels(names)),
            action=action,
            reward=number("reward"),
            state=coded("state"),
            time=time,
            time_missing=None if time is None else np.ma.getmaskarray(rows[TIME]),
            group=Coded(np.ma.filled(rows["gc"], -1), ()) if "gc" in rows else None,
            available=available,
            ended=coded("ended"),
            propensity=number("propensity") if table.has("propensity") else None,
            more={r.name: number(r.name) for r in further_roles() if table.has(r.name)},
            number=np.asarray(rows["rn"], np.int64),
            fresh=True,
        )

    # -- what is found ------------------------------------------------------------------------

    def judge(self, c: Columns) -> None:
        """Ask the rules about a chunk."""
        self.found.add(c)
        for role, own in (("action", c.action), ("state", c.state)):
            if own is not None:
                used = own.codes[own.codes >= 0] if own.codes.min() < 0 else own.codes
                self.counts[role] += np.bincount(used, minlength=len(own.labels))
        if not self.found.failed and any(late := rows_after_end(c, None)):
            self.late.append(late)

    def judged(self) -> bool:
        """Note the findings about all chunks; whether none is an error."""
        table = self.table
        self.findings += self.found.findings(table.place)
        sets = []
        for role in ("episode", "group", "action", "state"):
            if table.has(role) and table.columns[role].kind == "text":
                held = role in self.labels
                labels = self.labels[role] if held else table.twins(role)
                counts = self.counts[role] if held else np.zeros(len(labels), np.int64)
                sets.append(LabelSet(role, str(table.names[role]), labels, lambda n=counts: n))  # type: ignore[misc]
        self.findings += [f for rule in LABEL_RULES if (f := rule(Vocabulary(sets))) is not None]
        if any(f.level == "error" for f in self.findings):
            return False
        if self.late:
            early = [one for one, _ in self.late if one is not None]
            unsaid = [two for _, two in self.late if two is not None]
            total: Found = functools.reduce(operator.add, early or unsaid)
            whole = Whole(self.found.n, self.found.episodes, table.place, lambda: None)
            self.findings.append(total.finding("error", "rows_after_end", whole))
            return False
        if self.asked.reading.window is not None:
            self.findings.append(lost_finding(self.lost, self.asked.reading.window))
        return not any(f.level == "error" for f in self.findings)

    # -- what is stored -----------------------------------------------------------------------

    def layout(self, folder: str) -> Layout:
        """What all parts share."""
        table, reading = self.table, self.asked.reading
        none = replace(
            self.about,
            action=Coded(np.zeros(0, np.int32), self.labels["action"]),
            state=Coded(np.zeros(0, np.int32), self.labels["state"]),
            available=Coded(np.zeros(0, np.int32), self.menus.labels)
            if table.has("available") else None,
        )  # fmt: skip
        columns = dict(none.names)
        if reading.window is not None:
            columns["follow_up"] = str(reading.window)
        state, action, menus = declared_labels(none)
        assert state is not None
        time = table.columns["time"].kind if table.has("time") else ""
        return Layout(
            folder=folder,
            states=state.labels,
            actions=action.labels,
            columns=columns,
            menus=menus,
            events=none.events,
            kinds={r: table.columns[r].kind for r in ("episode", "group") if table.has(r)},
            time={"int": "i8", "number": "f8", "date": "i8"}[time]
            if time and table.has("group") else "",
            by_row=tuple(r.name for r in ROLES if r.stored and table.has(r.name)),
        )  # fmt: skip

    def write(self, writer: Writer, c: Columns) -> None:
        """Write some whole episodes."""
        log, window = log_of(replace(c, group=None), None), self.asked.reading.window
        if window is not None:
            if self.usual is None:
                self.usual = self.table.usual_reward()
            self.lost += lost_by(log, window, self.usual)
            log = follow(log, str(window))
        first = np.flatnonzero(np.append(True, c.episode.codes[1:] != c.episode.codes[:-1]))
        writer.add(log, None if c.group is None else c.group.codes[first])


# --- `dprl.scan`: Parquet files larger than memory become a log in parts

SHARE = 0.5
"""The share of free memory that is used if no limit is given."""
LEAST = 256 << 20
"""The smallest memory limit, in bytes."""
PER_ROW = 500
"""Bytes of the memory limit for each row of a part: a row takes far less, but is not alone."""
IN_MEMORY = (
    "also", "categorical", "action_bins", "decimal", "encoding", "dates", "labels",
    "design", "versus", "chances", "strata", "survival", "horizon", "target",
    "guard", "costs",
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
    partitions: bool = False,
    outcome: str = "",
    unit: str = "",
    better: str = "",
    called: Any = None,
    memory: str | float | None = None,
    rows: int | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> LogInParts:
    """Read logged decisions that need not fit into memory, from Parquet files or a lake.

    Files may be unsorted, and episodes may span files. All checks of `dprl.read` are made, with the
    same errors. The rows are stored in a private folder for temporary files (about 20 bytes a row,
    three times that while unsorted rows are sorted), which is removed when the result is closed.

    Args:
        paths: A file, a pattern such as ``'logs/*.parquet'``, or several of either. Or a table that
            need not fit into memory either: an Arrow dataset or stream of batches (Delta Lake,
            Iceberg and object stores come as these), a DuckDB relation, a polars LazyFrame. Its
            rows are written once to the private folder.
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
    private = Path(tempfile.mkdtemp(prefix=prefix_in(folder, "parts"), dir=folder))
    remove = weakref.finalize(asked, shutil.rmtree, private, ignore_errors=True)
    settings = {
        "memory_limit": f"{int(0.45 * limit) >> 20}MiB",
        "temp_directory": private / "spill",
    }
    try:
        with said_if_short("the parts of the log", str(private)):
            files = written_out(paths, private) if is_table(paths) else paths
            table = Table(files, reading.columns, settings, private, reading.partitions)
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
