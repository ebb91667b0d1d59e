"""Columns of features: numbers stay numbers, and text becomes categories.

A category is a feature whose values are labels ("ward" with "ICU" and "HDU"). The matrix of
features holds the place of the label among the sorted labels, as a float, and NaN where it is
missing.

A column of text is a category only if none of its values looks like a number: one "high" in a
column of numbers, or decimal commas, are mistakes and not labels. Where numbers are labels (codes
of wards), the column is declared with `categorical`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, option, worded
from dprl.errors import LogError
from dprl.logs._columns import NUMBER, Coded, encode, numbers, recode
from dprl.logs._dates import Days, days_of, object_days, text_days, text_times
from dprl.logs._text import Text, fold

__all__ = [
    "MOST_LEVELS", "TRUTH", "TRUTH_WORDS", "Levels", "as_category", "check_declared",
    "feature_columns", "folded", "label_text", "not_numbers", "only_used", "refuse_numbers",
    "row_labels",
]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Levels: TypeAlias = tuple[tuple[str, ...] | None, ...]
"""For each feature its sorted labels, or None where it is a number; () where all are numbers."""

MOST_LEVELS = 1_000
"""The most labels a category may have: a column with more is an identifier or free text."""
TRUTH = ("false", "true")
"""The labels of a column of truth values; their codes are the numbers 0 and 1."""
TRUTH_WORDS = {"false": 0.0, "0": 0.0, "0.0": 0.0, "true": 1.0, "1": 1.0, "1.0": 1.0}
"""How truth values are written, in small letters, and their codes."""
COMMA = re.compile(r"[<>=~≤≥]*\s*[+-]?[0-9]+([.,][0-9]+)?")
"""A number with a decimal comma, or with a sign of comparison in front of it."""
FRACTION = re.compile(r"[+-]?[0-9]*,[0-9]+")
"""A number that has a comma where its fraction may begin."""
BEYOND = re.compile(r"[<>=~≤≥]+\s*[+-]?[0-9.,]+")
"""A number with a sign of comparison: a value beyond what could be measured."""


def label_text(label: Any) -> str:
    """A label as categories write it: text as it is, whole numbers in digits, true or false."""
    if isinstance(label, bool | np.bool_):
        return TRUTH[bool(label)]
    return str(label)


def check_declared(
    categorical: Collection[str], names: Any, also: Collection[str] = ()
) -> frozenset[str]:
    """The columns declared as categories; refused where one is no feature and not in `also`."""
    if isinstance(categorical, str):
        categorical = [categorical]
    features = names if isinstance(names, list) else []
    strange = [name for name in categorical if name not in features and name not in also]
    if strange:
        raise LogError(
            f"{strange[0]!r} was declared a category and is no feature of this log.",
            f"the features are {', '.join(map(repr, features[:12]))}" if features else "",
            worded(
                "Name it among the states too ({choice}); a single column of labels needs no "
                "{categorical}.",
                choice=either("state=[...]", "--state"),
                categorical=option("categorical"),
            ),
        )
    return frozenset(categorical)


def as_category(column: Coded, name: str) -> tuple[Floats, tuple[str, ...]]:
    """Codes as floats, NaN where missing, into sorted labels of text."""
    texts = [label_text(label) for label in column.labels]
    if all(text.lower() in TRUTH for text in texts):
        texts = [text.lower() for text in texts]  # files write True, TRUE and true
    levels = tuple(sorted(set(texts)))
    if levels and set(levels) <= set(TRUTH):
        levels = TRUTH
    if len(levels) > MOST_LEVELS:
        raise LogError(
            f"the feature {name!r} holds {len(levels):,} different labels; a category has at most "
            f"{MOST_LEVELS:,}.",
            ", ".join(map(repr, levels[:4])),
            "Leave it out, or put its labels into fewer groups.",
        )
    place = {text: code for code, text in enumerate(levels)}
    table = np.array([*(place[text] for text in texts), np.nan], np.float64)
    return table[column.codes], levels


def folded(column: Coded, how: str, name: str) -> tuple[Coded, list[tuple[str, int, int, str]]]:
    """A column whose labels are written as was asked, and what became one by it.

    A label of spaces alone is missing after trimming.
    """
    words = [fold(label, how) for label in column.labels]
    if words == list(column.labels):
        return column, []
    kept = [word for word in words if word != ""]
    coded = recode(np.arange(len(kept)), kept, name)
    place = iter(coded.codes.tolist())
    table = np.array([*(-1 if word == "" else next(place) for word in words), -1], np.int32)
    new = Coded(table[column.codes], coded.labels)
    if len(new.labels) == len(kept):
        return new, []
    first = next(word for word in kept if kept.count(word) > 1)
    alike = [repr(a) for a, b in zip(column.labels, words, strict=True) if b == first]
    return new, [(name, len(column.labels), len(new.labels), f"{', '.join(alike[:4])} → {first!r}")]


def refuse_numbers(labels: Iterable[str], name: str, decimal: str = "") -> None:
    """Refuse labels of a feature if one looks like a number: it may be a mistake in a number.

    Args:
        labels: The labels.
        name: The feature.
        decimal: The mark before fractions in the file. Default "": there is no file.
    """
    for label in labels:
        if NUMBER.fullmatch(label.strip()) or COMMA.fullmatch(label.strip()):
            raise not_numbers(name, label, "", decimal)


def not_numbers(name: str, text: str, where: str, decimal: str = "") -> LogError:
    """The error that a feature holds text where there should be numbers."""
    example = "1,5, not 1.5" if decimal == "," else "1.5, not 1,5"
    do = f"Convert it to numbers ({example}; a missing value is an empty cell)"
    if BEYOND.fullmatch(text.strip()):
        do = worded(
            "Write a number of your choice for a value beyond what was measured, or leave the "
            "cell empty and say what to do about missing values ({missing})",
            missing=option("missing"),
        )
    elif decimal == "." and FRACTION.fullmatch(text.strip()):
        do = worded("Where this is a decimal comma, say {decimal}", decimal=option("decimal", ","))
    return LogError(
        f"{name!r} must be numbers; it holds {text[:40]!r}.",
        where,
        worded(
            "{do}; where its values are labels, say so: {choice}.",
            do=do,
            choice=either(f"categorical=[{name!r}]", "--categorical"),
        ),
    )


def feature_columns(
    columns: Iterable[tuple[str, Any, NDArray[np.bool_] | None]],
    declared: Collection[str],
    text: Text | None = None,
    merged: list[tuple[str, int, int, str]] | None = None,
) -> tuple[Floats, Levels, list[str]]:
    """The matrix of features (N, d), their levels, and the names of those that are dates.

    Args:
        columns: Name, values and where they are missing, of each feature. Values that are `Coded`
            are labels.
        declared: The features whose values are labels, whatever they look like.
        text: How dates and labels are written. Default None: as usual.
        merged: Gets the columns whose labels became one (`folded`). Default None: nobody asks.
    """
    written = text or Text()
    matrix: list[Floats] = []
    dated: list[str] = []
    levels: list[tuple[str, ...] | None] = []
    for name, values, gone in columns:
        days = None if name in declared else _days(values, gone, written.dates, name)
        if days is not None:
            matrix.append(days)
            levels.append(None)
            dated.append(name)
            continue
        coded = values if isinstance(values, Coded) else None
        if coded is None and (name in declared or _holds_labels(values, gone)):
            coded = encode(values, name, gone)
            if name not in declared:
                refuse_numbers((x for x in coded.labels if isinstance(x, str)), name)
        if coded is None:
            matrix.append(numbers(values, name, gone))
            levels.append(None)
        else:
            coded, merges = folded(coded, written.labels, name)
            if merged is not None:
                merged.extend(merges)
            codes, own = as_category(coded, name)
            matrix.append(codes)
            levels.append(own)
    if len({len(column) for column in matrix}) > 1:
        raise LogError("the features have different numbers of rows.")
    return np.column_stack(matrix), tuple(levels) if any(levels) else (), dated


def _days(values: Any, gone: NDArray[np.bool_] | None, dates: str, name: str) -> Floats | None:
    """A column of dates as days; None where it holds something else."""
    if isinstance(values, Days):
        return values.values
    if isinstance(values, Coded):
        words = [word for word in values.labels if isinstance(word, str)]
        days = text_days(words, dates, name) if len(words) == len(values.labels) else None
        return None if days is None else np.append(days, np.nan)[values.codes]
    array = np.asarray(values)
    if array.dtype.kind == "M":
        days = days_of(array)
    elif array.dtype.kind == "O" and array.ndim == 1:
        hidden = (
            [None if h else v for v, h in zip(array, gone, strict=True)]
            if gone is not None
            else array
        )
        days = object_days(hidden, name)
        if days is None:
            times = text_times(array, gone, dates, name)
            moment = getattr(times, "moment", times)
            days = None if times is None else days_of(np.ma.filled(moment, np.datetime64("NaT")))
    else:
        days = None
    if days is not None and gone is not None:
        days[gone] = np.nan
    return days


def _holds_labels(values: Any, gone: NDArray[np.bool_] | None) -> bool:
    """Whether a column is text alone, or truth values alone."""
    array = np.asarray(values)
    if array.dtype.kind != "O":
        return array.dtype.kind in "bUT"
    if array.ndim != 1:
        return False
    hidden = np.zeros(len(array), bool) if gone is None else gone
    seen = False
    for value, missing in zip(array.tolist(), hidden.tolist(), strict=True):
        if missing or value is None or value != value:
            continue
        if not isinstance(value, str | bool | np.bool_):
            return False
        seen = True
    return seen


def only_used(features: Floats, levels: Levels) -> tuple[Floats, Levels]:
    """Features and levels without the labels that no row has; truth values stay as they are."""
    if not levels:
        return features, levels
    matrix, fewer = features.copy(), list(levels)
    for j, own in enumerate(levels):
        if own is None or own == TRUTH:
            continue
        known_codes = features[:, j][~np.isnan(features[:, j])].astype(np.int64)
        used = np.unique(known_codes)
        matrix[~np.isnan(features[:, j]), j] = np.searchsorted(used, known_codes)
        fewer[j] = tuple(own[code] for code in used)
    return matrix, tuple(fewer)


def row_labels(labels: Sequence[str], column: Floats) -> NDArray[Any]:
    """The labels (N,) of a column of codes; None where it is missing."""
    table = np.array([*labels, None], object)
    gone = np.isnan(column)
    return np.asarray(table[np.where(gone, len(labels), np.nan_to_num(column)).astype(np.int64)])
