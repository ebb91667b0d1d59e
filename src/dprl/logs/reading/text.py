"""How the text of CSV files is written, where that is not as usual: declared, never guessed."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dprl._core.words import worded
from dprl.errors import ParameterError
from dprl.logs.reading.dates import check_dates

ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "utf-16": "utf-16"}
"""Python's name of an encoding → DuckDB's name of it."""
FOLDS = ("trim", "casefold")
"""What can be done to labels, in the order it is done."""
SAY_ENCODING = worded(
    "CSV files are UTF-8 text with the column names in the first line; where they are written "
    "otherwise, say how: {encoding='cp1252'} for most files from Windows, 'latin-1', 'utf-16' or "
    "another."
)
"""What to do about a CSV file whose letters cannot be read."""
UNNAMED = "unnamed column "
"""How a column without a name is called, with its number from 1."""


@dataclass(frozen=True)
class Text:
    """How the text of CSV files is written.

    Attributes:
        decimal: The mark before the fraction of a number: "." or ",". Default ".".
        encoding: How letters are written: "utf-8", "latin-1", "utf-16", "cp1252" (Windows), or
            another encoding of text that Python has. Default "utf-8".
        dates: How dates are written: "iso", "day-first", "month-first" or a format of strptime.
            Default "iso".
        labels: What is done to labels: "trim" (no spaces around them), "casefold" (small letters),
            or both, "trim,casefold". Default "": nothing.
        delimiter: The character between two cells, of files of events. Default "": that of , ; |
            and tab which the first line has most often.

    Raises:
        ParameterError: If it is something else.
    """

    decimal: str = "."
    encoding: str = "utf-8"
    dates: str = "iso"
    labels: str = ""
    delimiter: str = ""

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise ParameterError(
                "decimal must be '.' or ','.",
                repr(self.decimal),
                worded("Say {decimal=','}."),
            )
        name = _name_of(self.encoding)
        if not name:
            raise ParameterError(
                "this encoding of text cannot be read.",
                repr(self.encoding),
                "Declare 'utf-8', 'cp1252' (Windows), 'latin-1' (most old files of Western "
                "Europe), 'utf-16' or another that Python has, or write the file again as UTF-8.",
            )
        object.__setattr__(self, "encoding", ENCODINGS.get(name, name))
        check_dates(self.dates)
        object.__setattr__(self, "labels", check_labels(self.labels))
        mark = self.delimiter
        if mark != "" and not (isinstance(mark, str) and len(mark) == 1 and mark not in '"\n\r'):
            raise ParameterError(
                "delimiter must be one character.",
                repr(mark),
                "Write the character between two cells, such as ';' or a tab.",
            )

    def foreign(self, files: Iterable[str]) -> bool:
        """Whether files must be written again as UTF-8 before they can be read."""
        packed = any(file.lower().endswith(".gz") for file in files)
        return self.encoding not in ENCODINGS.values() or (packed and self.encoding == "utf-16")

    @property
    def of_header(self) -> str:
        """Python's name of the encoding, for the first line, which may begin with a mark."""
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


def _name_of(encoding: Any) -> str:
    """Python's name of an encoding of text in which 0, a and a comma are themselves; '' if none."""
    try:
        name = codecs.lookup(encoding).name
        plain = "0a,".encode(name)
        good = plain == b"0a," or (name.startswith(("utf-16", "utf-32")) and plain.decode(name))
    except (LookupError, TypeError, ValueError, AttributeError):
        return ""
    return "utf-8" if good and name == "utf-8-sig" else name if good else ""


def check_labels(labels: Any) -> str:
    """What is to be done to labels, in one order; refused where it is nothing of the kind."""
    words = labels.split(",") if isinstance(labels, str) else list(labels or ())
    asked = {word.strip() for word in words if isinstance(word, str) and word.strip()}
    if not asked <= set(FOLDS) or not all(isinstance(word, str) for word in words):
        raise ParameterError(
            "labels must be 'trim', 'casefold' or 'trim,casefold'.",
            repr(labels),
            "trim takes away spaces around labels, casefold makes their letters small "
            "(--labels trim,casefold).",
        )
    return ",".join(word for word in FOLDS if word in asked)


def fold(label: Any, how: str) -> Any:
    """A label as `labels` wants it; labels that are not text stay as they are."""
    if not how or not isinstance(label, str):
        return label
    text = label.strip() if "trim" in how else label
    return text.casefold() if "casefold" in how else text


def named_columns(names: list[str]) -> list[str]:
    """The names of columns, with one for those that have none (an index that pandas wrote)."""
    return [name if name.strip() else f"{UNNAMED}{i + 1}" for i, name in enumerate(names)]


def is_unnamed(name: str) -> bool:
    """Whether a column had no name in its file: most likely an index, which says nothing."""
    return name.startswith((UNNAMED, "Unnamed: "))
