"""How nouns without a page of their own show themselves in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable

from dprl._core import html as pages
from dprl._core.table import Table

__all__ = ["in_notebook"]


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
