"""What must hold of the source of a spec: where the events are, and how they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl.errors import ParameterError
from dprl.logs._text import Text, check_labels
from dprl.logs.events._fields import UNITS, refuse

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["check_source"]


def check_source(spec: Spec) -> None:
    """Refuse a source whose keys are not what they must be, with the line of the key."""
    source, lines = spec.source, spec.lines
    if source.time_unit and source.time_unit not in UNITS:
        raise refuse(
            lines,
            ("source", "time_unit"),
            f"time_unit must be one of {', '.join(UNITS)}; got {source.time_unit!r}.",
        )
    written = ("decimal", "encoding", "dates", "labels", "delimiter")
    for key in written:
        try:
            Text(**{key: getattr(source, key)})
        except ParameterError as error:
            raise refuse(lines, ("source", key), error.what, _in_source(key)) from error
    object.__setattr__(source, "labels", check_labels(source.labels))
    if source.time_zone and source.time_unit:
        raise refuse(
            lines,
            ("source", "time_zone"),
            "times are numbers (time_unit), and numbers have no time zone.",
            "Leave one of the two out.",
        )
    for key in ("decimal", "encoding", "dates", "time_zone", "delimiter"):
        if source.preset == "omop" and getattr(source, key) != getattr(type(source), key):
            raise refuse(
                lines,
                ("source", key),
                f"OMOP tables are read as the CDM writes them: they take no {key!r}.",
                "Leave it out, or write the tables again.",
            )
    if source.preset == "omop" and len(source.files) > 1:
        raise refuse(
            lines,
            ("source", "files"),
            f"OMOP tables are in one folder or one DuckDB file; got {len(source.files)}.",
        )


def _in_source(key: str) -> str:
    """What to write in [source] for one key of how its text is written."""
    return {
        "decimal": 'Write decimal = "," or ".".',
        "encoding": 'Write encoding = "cp1252" (Windows), "latin-1", "utf-16" or another that '
        "Python has.",
        "dates": 'Write dates = "day-first", "month-first", or a format with a year of four digits '
        'such as "%d %b %Y".',
        "labels": 'Write labels = "trim", "casefold" or "trim,casefold".',
        "delimiter": 'Write the character between two cells: delimiter = ";".',
    }[key]
