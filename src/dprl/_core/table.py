"""Table: a few rows for people, as text, HTML, dicts, JSON or any dataframe; and what has some."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dprl._core.optional import needed
from dprl._core.words import either, worded
from dprl.errors import ParameterError

# --- One of a thing, or several: the form of a word that its number asks for


def form(n: int | Sized, one: str, other: str) -> str:
    """The word for one thing, or the word for another number of them.

    Args:
        n: The number, or the things themselves.
        one: The word for one: "was".
        other: The word for any other number: "were".

    Example:
        >>> form(1, "was", "were"), form(0, "was", "were"), form(["a", "b"], "was", "were")
        ('was', 'were', 'were')
    """
    return one if (len(n) if isinstance(n, Sized) else n) == 1 else other


def many(n: int | Sized, one: str, other: str = "") -> str:
    """A number and what it counts: "1 episode", "2,000 episodes".

    Args:
        n: The number, or the things themselves.
        one: What one of them is called; a plural that ends in s will do ("episodes").
        other: What several are called. Default "": the same with an s.

    Example:
        >>> many(1, "episode"), many(2000, "episodes"), many(0, "category", "categories")
        ('1 episode', '2,000 episodes', '0 categories')
    """
    n = len(n) if isinstance(n, Sized) else n
    one = one if other else one.removesuffix("s")
    return f"{n:,} {form(n, one, other or f'{one}s')}"


def first_few(
    things: Iterable[Any], most: int, more: str = " and {n:,} more", between: str = ", "
) -> str:
    """The first of some things, and how many more there are.

    Args:
        things: The things.
        most: How many of them are named at most.
        more: What is said of the others, where there are any: {n} of them.
        between: What stands between two things.

    Example:
        >>> first_few("abcd", 4), first_few("abcd", 2), first_few("abcd", 3, ", …")
        ('a, b, c, d', 'a, b and 2 more', 'a, b, c, …')
    """
    words = [str(thing) for thing in things]
    rest = len(words) - most
    return between.join(words[:most]) + (more.format(n=rest) if rest > 0 else "")


# --- Table: a few rows for people, as text, HTML, dicts, JSON or any dataframe

MOST_COLUMNS = 8
"""Columns that are printed at most, where a table says which come first."""
BACKENDS = ("pandas", "polars", "pyarrow")


def to_json_value(value: Any) -> Any:
    """A value JSON can hold: numpy scalars become Python's, NaN and infinities become None."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(v) for v in value]
    return value


_compact = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_sorted = json.JSONEncoder(allow_nan=False, separators=(",", ":"), sort_keys=True).encode


def compact(value: Any, *, sort: bool = False) -> str:
    """A value as JSON on one line, in ASCII; what `to_json_value` changes is changed first.

    Args:
        value: The value; its keys are text.
        sort: Whether members are in the order of their names. Default False.
    """
    encode = _sorted if sort else _compact
    try:  # values of JSON alone, as nearly all are, need no look at each
        return encode(value)
    except (TypeError, ValueError):
        return encode(to_json_value(value))


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if code != 10}
CONTROLS |= {code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
CONTROLS |= {9: "\\t", 13: "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029", 0x200E: "\\u200e"}
CONTROLS |= {0x200F: "\\u200f", 0xFEFF: "\\ufeff"}
"""Characters that move the cursor, colour or turn around what a terminal shows, as visible text."""


def harmless(text: str) -> str:
    """A text of several lines, with everything that a terminal would obey made visible."""
    return text.translate(CONTROLS)


def printable(value: Any) -> str:
    """A value on one line, with everything that a terminal would obey made visible."""
    return harmless(str(value)).replace("\n", "\\n")


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with in a spreadsheet; the last four are wide forms of the first."""


def no_formula(text: str) -> str:
    """The text, changed so that a spreadsheet does not take it for a formula."""
    return f"'{text}" if text.startswith(FORMULA) or text.lstrip().startswith(FORMULA) else text


def _text(value: Any) -> str:
    """A value as people read it: – for a missing value, commas in large whole numbers."""
    value = to_json_value(value)
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1e4 or 0 < abs(value) < 1e-3 else f"{value:.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(value)


@dataclass(frozen=True)
class Table:
    """Named columns of equal length; printed as text, and as HTML in a notebook.

    Attributes:
        columns: Column name → values, in the order of the columns.
        caption: One line above the table. Default empty.
        note: What a reader must know to read the table correctly, below it. Default empty.
        identifiers: Columns whose whole numbers are names and not quantities (they are shown
            without thousands commas). Default none.
        first: The columns that are printed, the most important first: at most eight of them, and
            none that is equal in every row; `details` prints all. Default: all are printed.
        in_short: What stands below these columns in place of the note. Default empty.
        called: What people call columns and values (`dprl.logs.called`); what is exported holds
            them as they are. Default None: the same.

    Example:
        >>> import dprl
        >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
        >>> print(table)
        Visits
        state      n
        ill    1,200
        well       8
        >>> len(table), table["n"]
        (2, [1200, 8])
    """

    columns: Mapping[str, Sequence[Any]]
    caption: str = ""
    note: str = ""
    identifiers: frozenset[str] = field(default=frozenset())
    first: tuple[str, ...] = ()
    in_short: str = ""
    called: Any = None

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
            >>> import dprl
            >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
            >>> table.to_dicts()
            [{'state': 'ill', 'n': 1200}, {'state': 'well', 'n': 8}]
        """
        names = list(self.columns)
        return [
            dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)
        ]

    def to_json(self) -> str:
        """The rows as a JSON array.

        Returns:
            JSON text; NaN and infinities become null.

        Example:
            >>> import dprl
            >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
            >>> table.to_json()
            '[{"state": "ill", "n": 1200}, {"state": "well", "n": 8}]'
        """
        return json.dumps(to_json_value(self.to_dicts()), ensure_ascii=False)

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows as a dataframe.

        Args:
            backend: The library: "pandas" (the default), "polars" or "pyarrow".

        Returns:
            A dataframe of that library.

        Raises:
            ParameterError: If the library is not one of the three.
            PackageError: If it is not installed.

        Example:
            >>> import dprl
            >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
            >>> list(table.to_frame("pandas").columns)
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
            >>> import dprl
            >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
            >>> print(table.to_markdown().splitlines()[2])
            | state | n |
        """
        lines = [f"{self.caption}\n"] if self.caption else []
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|" + "---|" * len(self.columns))
        lines += ["| " + " | ".join(cells) + " |" for cells in self.cells()]
        return "\n".join(lines) + (f"\n\n{self.note}" if self.note else "") + "\n"

    def cells(self) -> list[list[str]]:
        """The rows as people read them.

        Returns:
            One list of texts per row.

        Example:
            >>> import dprl
            >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
            >>> table.cells()
            [['ill', '1,200'], ['well', '8']]
        """
        return [list(row) for row in zip(*self._cells(), strict=True)]

    def shown(self, name: str, row: int) -> Any:
        """A value as people call it.

        Args:
            name: Its column.
            row: The number of its row, from 0.

        Returns:
            The value, or what people call it.

        Example:
            >>> import dprl
            >>> dprl.Table({"state": ["ill", "well"]}).shown("state", 1)
            'well'
        """
        value = self.columns[name][row]
        return self.called.cell(name, value) if self.called else value

    def _cells(self) -> list[list[str]]:
        """The columns as texts people read."""
        text = {name: printable if name in self.identifiers else _text for name in self.columns}
        return [
            [text[name](self.shown(name, row)) for row in range(len(values))]
            for name, values in self.columns.items()
        ]

    def numeric(self) -> list[bool]:
        """Which columns hold quantities, and are aligned to the right.

        Returns:
            One truth value per column.

        Example:
            >>> import dprl
            >>> table = dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}, caption="Visits")
            >>> table.numeric()
            [False, True]
        """
        return [
            name not in self.identifiers
            and all(isinstance(to_json_value(v), int | float | None) for v in x)
            for name, x in self.columns.items()
        ]

    def _printed(self) -> Table:
        """The table with the columns that are printed."""
        told = [n for n in self.first if n in self.columns and self._tells(n)][:MOST_COLUMNS]
        kept = {n: values for n, values in self.columns.items() if n in told}
        if not len(self) or not kept or len(kept) == len(self.columns):
            return self
        left = len(self.columns) - len(kept)
        rest = f"{many(left, 'further column')}: changes().details(), or --details."
        note = "\n".join(filter(None, (self.in_short, rest)))
        return replace(self, columns=kept, note=note, first=())

    def _tells(self, name: str) -> bool:
        """Whether a column is not equal in every row; what names a row tells always."""
        values = self.columns[name]
        named = name in self.identifiers and name != "usual"
        return named or len(values) < 2 or any(v != values[0] for v in values)

    def __str__(self) -> str:
        return self._printed().details()

    def details(self) -> str:
        """The table with all of its columns, as text.

        Returns:
            The text that is printed where no columns come first.

        Example:
            >>> import dprl
            >>> print(dprl.Table({"state": ["ill", "well"], "n": [1200, 8]}).details())
            state      n
            ill    1,200
            well       8
        """
        lines = [self.caption] if self.caption else []
        if len(self):
            cells, right, titles = self._cells(), self.numeric(), [*map(printable, self.columns)]
            width = [
                max([len(name), *map(len, column)])
                for name, column in zip(titles, cells, strict=True)
            ]
            rows = [titles, *map(list, zip(*cells, strict=True))]
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


# --- How nouns without a page of their own show themselves in a notebook


def in_notebook(head: str, lines: Iterable[str] = (), tables: Iterable[Table] = ()) -> str:
    """A heading, some sentences and some tables as HTML; every value is escaped.

    Args:
        head: The first line, which says what it is.
        lines: Sentences below it; a line break within one is kept.
        tables: Tables below them; those without rows are left out.
    """
    from dprl._core.html import visible  # tables are read where nobody writes pages

    def text(words: str) -> str:
        return html.escape(str(visible(words))).replace("\n", "<br>")

    shown = "".join(f"<p>{text(line)}</p>" for line in lines if line)
    return (
        f"<div><p><strong>{text(head)}</strong></p>{shown}"
        + "".join(table._repr_html_() for table in tables if len(table))
        + "</div>"
    )


# --- The answer first: at most eight lines, and how to see the rest

SHORT = 8
"""Lines that are printed at most, unless somebody asks for the details."""


def in_short(lines: Iterable[str], name: str) -> list[str]:
    """The first lines, and a last one that says how to see all that is left.

    Args:
        lines: What there is to say, the verdict first; a line break begins another line.
        name: What Python calls the result: "evaluation".
    """
    each = [
        part for line in lines if line for part in (line.split("\n") if "\n" in line else [line])
    ]
    rest = worded("{how} shows everything.", how=either(f"{name}.details()", "--details"))
    return [*each[: SHORT - 1], rest]


# --- What results share: a table for people, values for machines, a page in a notebook


class Result:
    """A result that is a table, with sentences beside it.

    A subclass has `table` and `to_dict`; it may have sentences (`lines`) and warnings, and it says
    in `HEAD` what a notebook writes above it.
    """

    HEAD: ClassVar[str] = ""

    def table(self) -> Table:
        """The result as a table.

        Returns:
            One row per thing that was looked at; where there is one thing, its numbers.

        Example:
            >>> import dprl
            >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
            >>> result.table()["past"][0]
            'action 2 before'
        """
        facts = {k: v for k, v in self.to_dict().items() if isinstance(v, str | int | float)}
        return Table({name: [value] for name, value in facts.items()})

    def to_dict(self) -> dict[str, Any]:
        """Everything as values that JSON can carry; None where a number does not exist.

        Returns:
            Name → value.

        Example:
            >>> import dprl
            >>> dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0).to_dict()["ok"]
            False
        """
        raise NotImplementedError

    def to_json(self) -> str:
        """The same as `to_dict`, as a JSON object.

        Returns:
            JSON text.

        Example:
            >>> import dprl
            >>> dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0).to_json()[:12]
            '{"ok": false'
        """
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def to_frame(self, backend: str = "pandas") -> Any:
        """The table as a dataframe.

        Args:
            backend: The library to use: "pandas" (default), "polars" or "pyarrow".

        Returns:
            A dataframe (pyarrow: a table) with the rows of `table`.

        Raises:
            ParameterError: There is no such backend.
            PackageError: The library is not installed.

        Example:
            >>> import dprl
            >>> log = dprl.envs.delayed().sample(200, seed=0)
            >>> dprl.markov_check(log, 1.0).to_frame("pyarrow").num_columns
            8
        """
        return self.table().to_frame(backend)

    def _warned(self) -> list[str]:
        """The warnings of a result that has some, one per line."""
        warnings: Any = getattr(self, "warnings", ())
        return [f"warning: {line}" for line in (warnings() if callable(warnings) else warnings)]

    def brief(self) -> list[str]:
        """What is printed of it: at most eight lines, the verdict first.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
            >>> result.brief() == str(result).splitlines()
            True
        """
        return self.details().splitlines()

    def details(self) -> str:
        """Everything that there is to say, as text.

        Returns:
            The table, the sentences beside it, and the warnings.

        Example:
            >>> import dprl
            >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
            >>> "action 2 before" in result.details()
            True
        """
        parts = ["\n".join(lines) for lines in (self._said(), self._warned()) if lines]
        return "\n\n".join([str(self.table()), *parts])

    def _said(self) -> list[str]:
        """The sentences of a result that has some."""
        lines: Any = getattr(self, "lines", ())
        return list(lines() if callable(lines) else lines)

    def _heading(self) -> str:
        """What a notebook writes above the result."""
        return self.HEAD

    def _tables(self) -> list[Table]:
        """The tables that a notebook shows."""
        return [self.table()]

    def __str__(self) -> str:
        return "\n".join(self.brief())

    def _repr_html_(self) -> str:
        return in_notebook(self._heading(), [*self._said(), *self._warned()], self._tables())
