"""--action-bins, --missing and --vary: what is asked of columns and settings, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dprl.errors import ParameterError

__all__ = ["bins_of", "tried", "words_of"]


def bins_of(given: list[str] | None) -> Any:
    """What --action-bins asks for, as `dprl.read` takes it: 4, '0,0.1' or 'COLUMN=0,0.1'."""
    if not given:
        return None
    bins: dict[str, Any] = {}
    for word in given:
        name, equals, asked = word.rpartition("=")
        if name in bins:
            whose = f" for {name!r}" if equals else ""
            raise ParameterError(f"--action-bins is given twice{whose}.", word, "Give it once.")
        bins[name] = _ranges(asked, word)
    if "" in bins and len(bins) > 1:
        raise ParameterError(
            "--action-bins names a column once, and once it does not.",
            ", ".join(given),
            "Name the column each time: --action-bins pressor=4 --action-bins bolus=0,500",
        )
    return bins.get("", bins)


def words_of(given: list[str] | None) -> Any:
    """What --missing asks for, as `dprl.read` takes it: 'flag', or 'COLUMN=flag' beside it."""
    if not given:
        return None
    words: dict[str, str] = {}
    for asked in given:
        name, equals, word = asked.rpartition("=")
        name = name if equals else "*"
        if name in words:
            whose = f" for {name!r}" if equals else ""
            raise ParameterError(f"--missing is given twice{whose}.", asked, "Give it once.")
        words[name] = word
    return words["*"] if list(words) == ["*"] else words


def _ranges(asked: str, word: str) -> Any:
    """A number of ranges, or edges."""
    from dprl.apps.cli.options import whole

    try:
        if "," not in asked:
            return whole(asked.strip())
        return [float(edge) for edge in asked.split(",") if edge.strip()]
    except ValueError:
        raise ParameterError(
            "--action-bins is a number of ranges, or edges with commas between them.",
            word,
            "For example --action-bins 4, --action-bins 0,0.1,0.3 or --action-bins '5,'.",
        ) from None


def tried(pairs: Sequence[str]) -> dict[str, list[Any]]:
    """NAME=VALUE,VALUE pairs as a dict of values to try: numbers, true, false, none, or words."""
    by_name: dict[str, list[Any]] = {}
    for pair in pairs:
        name, sign, values = pair.partition("=")
        name = name.strip().replace("-", "_")
        if not (name and sign and values.strip()):
            raise ParameterError(
                f"what to vary is written NAME=VALUE,VALUE; got {pair!r}.",
                do="--vary risk=0.01,0.05",
            )
        if name in by_name:
            raise ParameterError(f"{name!r} is given twice.")
        by_name[name] = [_value(word.strip()) for word in values.split(",")]
    return by_name


def _value(word: str) -> Any:
    """A value of a setting as it is written on the command line."""
    named = {"true": True, "false": False, "none": None}
    if word.lower() in named:
        return named[word.lower()]
    if re.fullmatch(r"[+-]?[0-9]+", word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        return word
