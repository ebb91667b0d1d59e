"""Where a change is made, read from the words of the library and said in another language.

The words are conditions of a rule ("ward is ICU or HDU and age above 60"), ranges of features ("age
60 to under 70 · lactate = 2"), or a cell with its centre. Names of features and labels stay as they
are, numbers are written as the language does. Words that are none of these have no translation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

__all__ = ["NUMBER", "QUOTED", "conditions", "situation"]

NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
QUOTED = r'"(?:[^"\\]|\\.)*"'
"""A label in quotation marks."""
LABEL = rf"(?:[^\W_][\w.+/-]*|{QUOTED})"
"""A label as sentences write it: one plain word, or in quotation marks."""
EACH = rf"(?:^| or | nor )({LABEL})"
"""Each of several labels in a row."""
CELL = re.compile(r"cell (\d+): all states nearest to (.+?)(; in this log .+)?", re.DOTALL)
LISTED = {
    "where.is": "where.or", "where.is-not": "where.or", "where.neither": "where.nor",
}  # fmt: skip
"""Messages whose places hold labels, which stay as they are → what stands between two of them."""

DATE = r"\d{4}-\d\d-\d\d(?: [\d:.]+)?"
"""A date as sentences write it, with the time where it is not midnight."""
AS_IS = ("where.dates", "where.after", "where.not-after", "where.equals")
"""Messages whose places hold a date or a label, which stay as they are."""

N = f"({NUMBER.pattern})"
CONDITIONS = {
    f"(?:is )?at most {N}": "where.at-most",
    f"(?:is )?above {N}": "where.above",
    f"(?:is )?not after ({DATE})": "where.not-after",
    f"(?:is )?after ({DATE})": "where.after",
    "(?:is )?missing": "where.missing",
    "(?:is )?known": "where.known",
    f"(?:is )?not ({LABEL})": "where.is-not",
    f"(?:is )?neither ({LABEL}(?: nor {LABEL})+)": "where.neither",
    f"is ({LABEL}(?: or {LABEL})*)": "where.is",
}
RANGES = {
    f"{N} to under {N}": "where.range",
    f"= {N}": "where.equal",
    f"({DATE}) to under ({DATE})": "where.dates",
    "missing": "where.missing",
    "known": "where.known",
    f"is not ({LABEL})": "where.is-not",
    f"is ({LABEL})": "where.is",
}
CENTRE = {
    f"= {N}": "where.equal",
    f"= ({DATE})": "where.equals",
    f"= ({LABEL})": "where.equals",
}
"""Kinds of words about one feature → the message that says them."""

Numbers = Callable[[str], str]
"""A function that writes a number as the language does."""


def situation(
    words: str, features: Sequence[str], messages: Mapping[str, str], numbers: Numbers
) -> str | None:
    """A cell, ranges of features, or the conditions of a rule; None where it is none of them.

    Args:
        words: The words of the library.
        features: Names of the features.
        messages: Key → message of the language.
        numbers: Writes a number as the language does.
    """
    if cell := CELL.fullmatch(words):
        near = _pieces(cell[2], ", ", features, CENTRE, messages, numbers)
        here = ""
        if cell[3]:
            ranges = _ranges(cell[3].removeprefix("; in this log "), features, messages, numbers)
            if ranges is None:
                return None
            here = ranges
        if near is None:
            return None
        key = "where.cell-log" if here else "where.cell"
        return messages[key].format(n=cell[1], near=near, here=here)
    head, later, _ = words.partition(", where no earlier rule holds")
    own = _ranges(head, features, messages, numbers)
    own = own or conditions(head, features, messages, numbers)
    return own if own is None or not later else messages["where.otherwise"].format(where=own)


def conditions(
    words: str, features: Sequence[str] | None, messages: Mapping[str, str], numbers: Numbers
) -> str | None:
    """The conditions of a rule; without `features` any words may be the name of one."""
    if words == "everywhere":
        return messages["where.anywhere"]
    return _pieces(words, " and ", features, CONDITIONS, messages, numbers)


def _ranges(
    words: str, features: Sequence[str], messages: Mapping[str, str], numbers: Numbers
) -> str | None:
    if words == "anywhere":
        return messages["where.anywhere"]
    return _pieces(words, " · ", features, RANGES, messages, numbers)


def _pieces(
    words: str,
    between: str,
    features: Sequence[str] | None,
    kinds: Mapping[str, str],
    messages: Mapping[str, str],
    numbers: Numbers,
) -> str | None:
    """Words about one feature after the other: its name and a kind of words, each of `kinds`.

    A feature that was just named need not be named again: "age above 60 and at most 70". None where
    something is else.
    """
    names = ".+?"
    if features is not None:
        names = "|".join(map(re.escape, sorted(features, key=len, reverse=True)))
    any_kind, end = (
        "|".join(re.sub(r"(?<!\\)\((?!\?)", "(?:", k) for k in kinds),
        re.escape(between),
    )
    again = re.compile(rf"(?P<rest>{any_kind})(?={end}|$)", re.DOTALL)
    named = re.compile(rf"(?P<name>{names}) (?P<rest>{any_kind})(?={end}|$)", re.DOTALL)
    pieces: list[str] = []
    at = 0
    while at < len(words):
        hit = (again.match(words, at) if pieces else None) or named.match(words, at)
        if hit is None:
            return None
        name = f"{hit['name']} " if "name" in hit.groupdict() else ""
        pieces.append(name + _piece(hit["rest"], kinds, messages, numbers))
        at = hit.end() + len(between)
    return messages[f"where.{'and' if between == ' and ' else 'also'}"].join(pieces) or None


def _piece(
    words: str, kinds: Mapping[str, str], messages: Mapping[str, str], numbers: Numbers
) -> str:
    """What is said about one feature, without its name."""
    key, own = next(
        (key, hit) for kind, key in kinds.items() if (hit := re.fullmatch(kind, words, re.DOTALL))
    )
    places = {}
    for i, place in enumerate(own.groups()):
        places[f"x{i}"] = place if key in AS_IS else numbers(place)
        if key in LISTED:
            places[f"x{i}"] = messages[LISTED[key]].join(re.findall(EACH, place))
    return messages[key].format(**places)
