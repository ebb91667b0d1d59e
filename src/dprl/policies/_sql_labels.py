"""Labels in SQL: names and texts quoted, and labels read as the policy reads them.

A policy that folds labels (`labels="trim,casefold"`) folds every row that it is asked about. SQL
has no casefold. So each character that folds to a part of some label is replaced by what it folds
to; a text with any other character that would be folded equals no label in any case.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence

from dprl.errors import PolicyError
from dprl.logs._categories import TRUTH

__all__ = ["identifier", "sql_reader", "sql_text"]

WHOLE = re.compile(r"-?[0-9]+")


def identifier(name: str) -> str:
    """The name of a table or a column, quoted."""
    if not isinstance(name, str) or not name:
        raise PolicyError("a table or a column needs a name.", repr(name), "Name it.")
    return '"' + _writable(name).replace('"', '""') + '"'


def sql_text(text: str) -> str:
    """A text, quoted."""
    return "'" + _writable(text).replace("'", "''") + "'"


def _writable(text: str) -> str:
    """The text; refused where it holds what no query can: NUL, or half a character."""
    if "\0" in text or any("\ud800" <= ch <= "\udfff" for ch in text):
        raise PolicyError(
            "a name or a label cannot be written in SQL.",
            ascii(text)[:200],
            "Rename it and fit the policy again.",
        )
    return text


@functools.cache
def _folding() -> tuple[tuple[str, str], ...]:
    """Every character that casefold changes, and what it becomes."""
    every = (chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i <= 0xDFFF)
    return tuple((ch, ch.casefold()) for ch in every if ch.casefold() != ch)


@functools.cache
def _spaces() -> str:
    """An expression of every character that Python takes for white space."""
    codes = [i for i in range(sys.maxunicode + 1) if chr(i).isspace()]
    return " || ".join(f"chr({code})" for code in codes)


def sql_reader(name: str, labels: Sequence[str], fold: str) -> str:
    """An expression of DuckDB for the label in a column: text, folded as `fold` says.

    Args:
        name: The column.
        labels: The labels of the policy.
        fold: What is done to labels first: "trim", "casefold", both, or "".
    """
    column = identifier(name)
    text = f"CAST({column} AS VARCHAR)"
    whole = labels == TRUTH or any(WHOLE.fullmatch(label) for label in labels)
    if whole:  # beside gaps they are doubles
        number = f"nullif(regexp_replace({text}, '\\.0$', ''), 'nan')"
        text = f"CASE WHEN typeof({column}) IN ('DOUBLE', 'FLOAT') THEN {number} ELSE {text} END"
    if "trim" in fold:
        text = f"trim({text}, {_spaces()})"
    if "casefold" in fold:
        folds = [(ch, to) for ch, to in _folding() if any(to in label for label in labels)]
        single = [(ch, to) for ch, to in folds if len(to) == 1]
        for ch, to in folds:
            if len(to) > 1:
                text = f"replace({text}, {sql_text(ch)}, {sql_text(to)})"
        if single:
            ends = (sql_text("".join(part)) for part in zip(*single, strict=True))
            text = f"translate({text}, {', '.join(ends)})"
    return text
