"""Options that say how a log is written, and what is done to its columns when it is read."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

__all__ = ["ActionBins", "Dates", "Decimal", "Labels", "Letters", "MissingWords"]

ActionBins = Annotated[
    list[str] | None,
    Parameter(
        help="Cut doses into ranges: a number of ranges with about as many rows each (4), or the "
        "edges between them (0,0.1,0.3; a single edge: '5,'); COLUMN=4 where several columns are "
        "the action. A policy keeps the edges.",
        negative="",
    ),
]
Decimal = Annotated[
    str | None,
    Parameter(help="Mark before the fraction of a number in CSV files: . (default) or ,"),
]
Letters = Annotated[
    str | None,
    Parameter(
        help="How the letters of CSV files are written: utf-8 (default), cp1252 (Windows), "
        "latin-1, utf-16 or another."
    ),
]
Dates = Annotated[
    str | None,
    Parameter(
        help="How dates are written: iso (default), day-first, month-first, or a format such as "
        "'%d %b %Y'. A policy keeps it."
    ),
]
Labels = Annotated[
    str | None,
    Parameter(
        help="What is done to labels: trim (no spaces around them), casefold (small letters), or "
        "trim,casefold. A policy keeps it."
    ),
]
MissingWords = Annotated[
    list[str] | None,
    Parameter(
        help="What to do about missing values: error (default), drop-episodes, median (of the "
        "training log), flag (the same, and a feature that says where; of labels, a label "
        "missing), or zero (of the reward). COLUMN=WORD for one column; repeat it for several. A "
        "policy keeps it.",
        negative="",
    ),
]
