"""Kinds of values in a spec: what each key may hold, and errors that name the line of the TOML."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from typing import Any

from dprl._core.checks import is_number
from dprl.errors import ParameterError

__all__ = ["Path", "SpecError", "check_fields", "microseconds", "option", "tidy"]

Path = tuple[str | int, ...]
"""Where a key stands in a spec: ("feature", 2, "within") is that key of the third feature."""

HOUR = 3_600_000_000
"""Microseconds of an hour."""
UNITS = {
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": HOUR, "hour": HOUR, "hours": HOUR,
    "d": 24 * HOUR, "day": 24 * HOUR, "days": 24 * HOUR,
    "week": 168 * HOUR, "weeks": 168 * HOUR,
}  # fmt: skip
LONGEST = 200 * 366 * 24 * HOUR
"""The longest duration, about 200 years."""


class SpecError(ParameterError):
    """A spec of events cannot be used as it is."""


def option(kind: str, *default: Any) -> Any:
    """A field of a spec: its kind (see `check_fields`), and its default if it has one."""
    return field(default=default[0] if default else MISSING, metadata={"kind": kind})


def tidy(table: Any) -> None:
    """Make lists tuples, and one text where several may stand a tuple of it."""
    for each in fields(table):
        kind = each.metadata.get("kind", "")
        value = getattr(table, each.name)
        if kind == "texts" and isinstance(value, str):
            object.__setattr__(table, each.name, (value,))
        elif isinstance(value, list):
            object.__setattr__(table, each.name, tuple(value))


def microseconds(text: str) -> int:
    """A duration such as "4 h" in microseconds; a ValueError if it is none."""
    match = re.fullmatch(
        r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", text if isinstance(text, str) else ""
    )
    if match is None or match[2] not in UNITS:
        raise ValueError(text)
    return round(float(match[1]) * UNITS[match[2]])


def place(spec_lines: Mapping[Path, tuple[int, str]] | None, path: Path) -> str:
    """Where a key is: the line of the TOML file if there is one, else its path in words."""
    for length in range(len(path), 0, -1):
        if spec_lines and path[:length] in spec_lines:
            number, text = spec_lines[path[:length]]
            return f"line {number}: {text.strip()}"
    words = [f"number {part + 1}" if isinstance(part, int) else part for part in path]
    return ", ".join(map(str, words))


def refuse(lines: Any, path: Path, what: str, do: str = "") -> SpecError:
    """The error for one key of a spec."""
    return SpecError(what, place(lines, path), do)


def check_fields(table: Any, path: Path, lines: Any) -> None:
    """Refuse values that are not of the kind of their field."""
    for each in fields(table):
        kind = each.metadata.get("kind")
        if kind is None or kind in ("table", "parts"):
            continue
        value = getattr(table, each.name)
        problem = _problem(kind, value)
        if problem:
            what = f"{each.name} must be {problem}; got {value!r}."
            raise refuse(lines, (*path, each.name), what, _advice(kind, value))


def _advice(kind: str, value: Any) -> str:
    if kind.startswith(("duration", "reach")) and (is_number(value) or isinstance(value, str)):
        return 'Write a number and a unit: "30 min", "4 h", "2 days".'
    return ""


def _problem(kind: str, value: Any) -> str:
    """What the value must be, if it is not that; else an empty text."""
    if kind.endswith(" or nothing"):
        if value is None or value == "":
            return ""
        kind = kind.removesuffix(" or nothing")
    if " | " in kind:
        words = kind.split(" | ")
        *first, last = map(repr, words)
        fine = isinstance(value, str) and value in words
        return "" if fine else f"{', '.join(first)} or {last}"
    test, words_for = KINDS[kind]
    return "" if test(value) else words_for


def _is_duration(value: Any) -> bool:
    try:
        return 0 <= microseconds(value) <= LONGEST
    except ValueError:
        return False


def _numbers(value: Any) -> bool:
    return isinstance(value, tuple) and all(is_number(x) and math.isfinite(x) for x in value)


KINDS: Mapping[str, tuple[Any, str]] = {
    "text": (lambda v: isinstance(v, str) and v.strip() != "", "text, not empty"),
    "any text": (lambda v: isinstance(v, str), "text"),
    "texts": (
        lambda v: isinstance(v, tuple) and all(isinstance(x, str) and x.strip() for x in v),
        "text, or a list of texts",
    ),
    "duration": (_is_duration, "a duration, not negative, such as '4 h'"),
    "reach": (
        lambda v: v in ("episode", "history") or _is_duration(v),
        "a duration such as '24 h', 'episode' or 'history'",
    ),
    "number": (lambda v: is_number(v) and math.isfinite(v), "a number"),
    "places": (
        lambda v: is_number(v) and v == int(v) and 0 <= v <= 18,
        "a whole number from 0 to 18",
    ),
    "flag": (lambda v: isinstance(v, bool), "true or false"),
    "pair": (
        lambda v: v is None or (_numbers(v) and len(v) == 2 and v[0] <= v[1]),
        "two numbers, the smaller first",
    ),
    "rising": (
        lambda v: _numbers(v) and all(a < b for a, b in itertools.pairwise(v)),
        "a list of rising numbers",
    ),
}  # fmt: skip
"""Kind of a value → (whether a value is of it, what it must be)."""
