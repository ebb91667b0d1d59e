"""The rows of Parquet files as SQL sees them: labels in one form, so that rows can be sorted.

A column of labels becomes whole numbers (kind "int" or "bool") or text, exactly the labels that
`dprl.read` makes of it; a missing one becomes NULL. Nothing here holds more than a few rows or the
distinct labels of a small column. SQL sorts, codes and leaves out rows; it judges none: that is the
business of the rules of `dprl.logs._rules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, worded
from dprl.errors import LogError, ParameterError
from dprl.logs._columns import Coded, Columns, one_label
from dprl.logs._files import Files
from dprl.logs._scans import literal
from dprl.logs._sources import choose, quoted
from dprl.logs._times import times
from dprl.logs.columns import ROLES
from dprl.logs.log import Label

__all__ = ["EP", "GROUP", "STATE", "TIME", "Column", "Table", "sql_name"]

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
    """

    def __init__(
        self, paths: Any, roles: Mapping[str, Any], settings: Mapping[str, Any], folder: Path
    ) -> None:
        self.files = Files(paths, None, settings=settings, folders=[folder])
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
        if kind in WHOLE:
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
        number = f"CAST({cell} AS DOUBLE)"
        return f"CASE WHEN NOT isnan({number}) THEN {number} END"

    def _time(self, name: str, kind: str, cell: str) -> Column:
        if kind in WHOLE and kind != "UBIGINT":
            return Column(name, "int", f"CAST({cell} AS BIGINT)")
        if kind in ("FLOAT", "DOUBLE"):
            return Column(name, "number", f"CASE WHEN NOT isnan({cell}) THEN {cell}::DOUBLE END")
        if kind == "DATE" or kind.startswith("TIMESTAMP"):
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
            "(FROM read_parquet(?, hive_partitioning=false, file_row_number=true) "
            "WHERE file_row_number BETWEEN ? AND ?)"
        )
        queries: list[tuple[str, list[Any]]] = []
        for file in self.files.files:
            counted = self.files.run(
                "SELECT sum(num_rows) FROM parquet_file_metadata(?)", [literal(file)]
            ).fetchone()
            queries += [
                (self.select(scan=piece), [literal(file), first, first + rows - 1])
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
        """The labels of a large column of text that have the same normal form as another."""
        word, scan = sql_name(role), self.select()
        odd = f"SELECT 1 FROM ({scan}) WHERE strlen({word}) <> length({word}) LIMIT 1"
        if self.one(odd) is None:
            return []
        rows = self.all(
            f"SELECT list(DISTINCT v) FROM (SELECT {word} AS v FROM ({scan})) "
            "GROUP BY nfc_normalize(v) HAVING count(DISTINCT v) > 1"
        )
        return sorted(label for row in rows for label in row[0])

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
