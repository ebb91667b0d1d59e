"""What results share: a table for people, values for machines, a page in a notebook."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, ClassVar

from dprl._core import html as pages
from dprl._core.table import Table
from dprl._core.words import either, worded

# --- How nouns without a page of their own show themselves in a notebook


def in_notebook(head: str, lines: Iterable[str] = (), tables: Iterable[Table] = ()) -> str:
    """A heading, some sentences and some tables as HTML; every value is escaped.

    Args:
        head: The first line, which says what it is.
        lines: Sentences below it; a line break within one is kept.
        tables: Tables below them; those without rows are left out.
    """

    def text(words: str) -> str:
        return html.escape(str(pages.visible(words))).replace("\n", "<br>")

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
            One row per thing that was looked at.

        Example:
            >>> import dprl
            >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
            >>> result.table()["past"][0]
            'action 2 before'
        """
        raise NotImplementedError

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
        """What is printed of it: at most eight lines, the verdict first."""
        return str(self).splitlines()

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

    def __str__(self) -> str:
        return self.details()

    def _repr_html_(self) -> str:

        return in_notebook(self._heading(), [*self._said(), *self._warned()], [self.table()])
