"""How the text of CSV files is written, where that is not as usual: declared, never guessed."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from dprl.errors import ParameterError

__all__ = ["UNNAMED", "Text", "is_unnamed", "named_columns"]

ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "utf-16": "utf-16"}
"""Python's name of an encoding → DuckDB's name of it."""
UNNAMED = "unnamed column "
"""How a column without a name is called, with its number from 1."""


@dataclass(frozen=True)
class Text:
    """How the text of CSV files is written.

    Attributes:
        decimal: The mark before the fraction of a number: "." or ",". Default ".".
        encoding: How letters are written: "utf-8", "latin-1" or "utf-16". Default "utf-8".

    Raises:
        ParameterError: If it is something else.
    """

    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ParameterError(
                "decimal must be '.' or ','.", repr(self.decimal), "Say decimal=',' (--decimal ,)."
            )
        try:
            name = codecs.lookup(self.encoding).name
        except (LookupError, TypeError):
            name = ""
        if name not in ENCODINGS:
            raise ParameterError(
                "this encoding of text cannot be read.",
                repr(self.encoding),
                "Declare 'utf-8', 'latin-1' (most old files of Western Europe) or 'utf-16', or "
                "write the file again as UTF-8.",
            )
        object.__setattr__(self, "encoding", ENCODINGS[name])

    @property
    def of_header(self) -> str:
        """Python's name of the encoding, for the first line, which may begin with a mark."""
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


def named_columns(names: list[str]) -> list[str]:
    """The names of columns, with one for those that have none (an index that pandas wrote)."""
    return [name if name.strip() else f"{UNNAMED}{i + 1}" for i, name in enumerate(names)]


def is_unnamed(name: str) -> bool:
    """Whether a column had no name in its file: most likely an index, which says nothing."""
    return name.startswith((UNNAMED, "Unnamed: "))
