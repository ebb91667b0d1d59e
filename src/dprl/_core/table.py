"""Table: a handful of rows for people, as text, HTML, dicts, JSON or any dataframe."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dprl._core.optional import needed
from dprl.errors import ParameterError

__all__ = ["Table", "plain"]

BACKENDS = ("pandas", "polars", "pyarrow")


def plain(value: Any) -> Any:
    """A value that JSON can carry: numpy scalars become Python's, NaN and infinities None."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _text(value: Any) -> str:
    value = plain(value)
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1e4 or 0 < abs(value) < 1e-3 else f"{value:.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True)
class Table:
    """Named columns of equal length; `len`, iteration (rows as dicts) and table[name] work.

    Attributes:
        columns: Column name → values, in order.
        caption: One line above the table. Default: empty.
        note: What a reader must know to read the table correctly, shown below it. Default: empty.
        identifiers: Names of the columns whose whole numbers are names, not quantities: they are
            printed without thousands commas. Default: none.

    Example:
        >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
        >>> print(table)
        Two states
        state       n
        fever   1,200
        stable     30
        >>> table["n"]
        [1200, 30]
    """

    columns: Mapping[str, Sequence[Any]]
    caption: str = ""
    note: str = ""
    identifiers: frozenset[str] = field(default=frozenset())

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_dicts())

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows, each as a dict.

        Returns:
            One dict per row: column name → value.

        Example:
            >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
            >>> table.to_dicts()[1]
            {'state': 'stable', 'n': 30}
        """
        names = list(self.columns)
        return [
            dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)
        ]

    def to_json(self) -> str:
        """The rows as a JSON array of objects; NaN and infinities become null.

        Returns:
            JSON text.

        Example:
            >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
            >>> table.to_json()
            '[{"state": "fever", "n": 1200}, {"state": "stable", "n": 30}]'
        """
        return json.dumps(plain(self.to_dicts()), ensure_ascii=False)

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows as a dataframe.

        Args:
            backend: The library to use: "pandas" (default), "polars" or "pyarrow".

        Returns:
            A dataframe (pyarrow: a table) of that library.

        Raises:
            ParameterError: There is no such backend.
            PackageError: The library is not installed.

        Example:
            >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
            >>> table.to_frame("pyarrow").column_names
            ['state', 'n']
        """
        import narwhals as nw

        if isinstance(backend, str):
            if backend not in BACKENDS:
                raise ParameterError(
                    f"to_frame() knows no library {backend!r}.",
                    do=f"Libraries: {', '.join(BACKENDS)}.",
                )
            needed(backend, f"to_frame({backend!r})", backend)
        data = {name: list(values) for name, values in self.columns.items()}
        frame = nw.from_dict(data, backend=backend)  # type: ignore[arg-type]
        return frame.to_native()

    def to_markdown(self) -> str:
        """The table as Markdown, with its caption and note.

        Returns:
            Markdown text.

        Example:
            >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
            >>> print(table.to_markdown())
            Two states
            <BLANKLINE>
            | state | n |
            |---|---|
            | fever | 1,200 |
            | stable | 30 |
            <BLANKLINE>
        """
        lines = [f"{self.caption}\n"] if self.caption else []
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "---|" * len(self.columns))
        lines += ["| " + " | ".join(cells) + " |" for cells in self.cells()]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "") + "\n"

    def cells(self) -> list[list[str]]:
        """The rows as text, as they are printed.

        Returns:
            One list of strings per row.

        Example:
            >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
            >>> table.cells()
            [['fever', '1,200'], ['stable', '30']]
        """
        return [list(row) for row in zip(*self._cells(), strict=True)]

    def _cells(self) -> list[list[str]]:
        return [
            [str(v) if name in self.identifiers else _text(v) for v in values]
            for name, values in self.columns.items()
        ]

    def numeric(self) -> list[bool]:
        """Which columns hold quantities; these are aligned to the right.

        Returns:
            One bool per column.

        Example:
            >>> table = Table({"state": ["fever", "stable"], "n": [1200, 30]}, "Two states")
            >>> table.numeric()
            [False, True]
        """
        return [
            name not in self.identifiers
            and all(isinstance(plain(v), int | float | None) for v in x)
            for name, x in self.columns.items()
        ]

    def __str__(self) -> str:
        lines = [self.caption] if self.caption else []
        if len(self):
            cells, right = self._cells(), self.numeric()
            width = [
                max([len(name), *map(len, column)])
                for name, column in zip(self.columns, cells, strict=True)
            ]
            rows = [list(self.columns), *map(list, zip(*cells, strict=True))]
            lines += [
                "  ".join(
                    cell.rjust(w) if r else cell.ljust(w)
                    for cell, w, r in zip(row, width, right, strict=True)
                ).rstrip()
                for row in rows
            ]
        else:
            lines.append("(no rows)")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            end = tag.split(maxsplit=1)[0]
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{end}>" for c in cells) + "</tr>"

        head = row(list(self.columns), 'th scope="col"')
        body = "".join(row(list(cells), "td") for cells in zip(*self._cells(), strict=True))
        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody></table>{note}"
