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
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, doubles, is_short, one_double
from dprl._core.words import either, worded
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.logs.reading.columns import NUMBER, Coded, encode, known_as, numbers, recode
from dprl.logs.reading.dates import Days, days_of, object_days, text_days, text_times
from dprl.logs.reading.text import Text, fold

# --- Columns of features: numbers stay numbers, and text becomes categories

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
                "{categorical=}.",
                choice=either("state=[...]", "--state"),
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
            "Write a number of your choice for a value beyond what was measured, or leave the cell "
            "empty and say what to do about missing values ({missing=})"
        )
    elif decimal == "." and FRACTION.fullmatch(text.strip()):
        do = worded("Where this is a decimal comma, say {decimal=','}")
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
    columns: Iterable[tuple[str, Any, Bools | None]],
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


def _days(values: Any, gone: Bools | None, dates: str, name: str) -> Floats | None:
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


def _holds_labels(values: Any, gone: Bools | None) -> bool:
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


# --- States with categories: labels become the codes of a policy
#
# A policy keeps the labels of every category. A label that it does not have becomes an infinite
# number, which satisfies no condition of any rule; a missing one becomes NaN.

UNSEEN = np.inf
"""The code of a label that a policy does not have."""

NUMBERS = int | float | Decimal | np.integer | np.floating


class CodedFeatures(np.ndarray[Any, np.dtype[np.float64]]):
    """Features (k, d) in which categories are codes of the policy already."""


def mixed_features_of(states: Any, names: Sequence[str], levels: Levels) -> tuple[Floats, bool]:
    """States with categories as an array (k, d) of numbers and codes; whether it is a single one.

    Args:
        states: k rows of d values in the order of `names`, or a table with these columns, or one
            state as a sequence or a mapping. Categories are labels; None or NaN is missing.
        names: The names of the d features.
        levels: The labels of each feature that is a category, None for numbers.
    """
    if isinstance(states, CodedFeatures):
        return np.atleast_2d(states), states.ndim == 1
    feature_list = f"Features: {', '.join(names)}."
    if isinstance(states, Mapping) or hasattr(states, "columns"):
        given = list(states) if isinstance(states, Mapping) else list(states.columns)
        lacking = [name for name in names if name not in given]
        if lacking:
            raise PolicyError(
                f"a state needs the feature {lacking[0]!r}.",
                f"given: {', '.join(map(str, given[:8]))}",
                feature_list,
            )
        columns = [_objects(states[name]) for name in names]
        single = columns[0].ndim == 0
        columns = [np.atleast_1d(column) for column in columns]
    else:
        rows, single = _rows(states, len(names), feature_list)
        columns = list(rows.T)
    if len({len(column) for column in columns}) > 1:
        raise PolicyError("the features have different numbers of states.", do=feature_list)
    x = np.empty((len(columns[0]), len(names)))
    for j, (name, own, column) in enumerate(zip(names, levels, columns, strict=True)):
        if own is not None:
            x[:, j] = _codes(column, own, name)
            continue
        try:
            if any(isinstance(value, str | bytes | complex) for value in column.tolist()):
                raise TypeError
            x[:, j] = [np.nan if _gone(value) else float(value) for value in column.tolist()]
        except (TypeError, ValueError, OverflowError) as error:
            raise PolicyError(f"the feature {name!r} must be a number.", do=feature_list) from error
    return x.view(CodedFeatures), single


def _objects(column: Any) -> NDArray[Any]:
    """A column, or a single value, as an array of Python objects."""
    if np.ndim(column) == 0:
        return np.asarray(one_double(column), object)
    array = None if isinstance(column, list | tuple) else np.asarray(column)
    return np.array([*(doubles(array) if is_short(array) else map(one_double, column))], object)


def _rows(states: Any, d: int, feature_list: str) -> tuple[NDArray[Any], bool]:
    """Rows of d values as an array of objects (k, d), and whether it was a single row."""
    listed = hasattr(states, "__iter__") and not isinstance(states, str)
    rows = list(states) if listed else []
    inner = [row for row in rows if hasattr(row, "__len__") and not isinstance(row, str)]
    single = bool(rows) and not inner
    if single:
        rows = [rows]
    sizes = {len(row) if hasattr(row, "__len__") else 0 for row in rows}
    alike = single or len(inner) == len(rows)
    if not listed or not alike or any(isinstance(row, Mapping) for row in rows):
        raise PolicyError(
            "states must be rows of features, a table, or one mapping.", do=feature_list
        )
    if not sizes <= {d}:
        raise ParameterError(
            f"a state has {d} features; got {min(sizes - {d})} values.", do=feature_list
        )
    table = np.empty((len(rows), d), object)
    for i, row in enumerate(rows):
        table[i] = [*map(one_double, row)]
    return table, single


def _gone(value: Any) -> bool:
    """None, NaN, pandas' NA and the empty text."""
    if value is None or type(value).__name__ == "NAType":
        return True
    if isinstance(value, str):
        return value == ""
    return isinstance(value, float | np.floating) and bool(value != value)


def _codes(column: NDArray[Any], labels: tuple[str, ...], name: str) -> Floats:
    """The codes of labels; NaN where missing, UNSEEN where the policy has no such label."""
    place = {label: float(code) for code, label in enumerate(labels)}
    truth = labels == TRUTH
    numeric = any(NUMBER.fullmatch(label) for label in labels)
    codes = np.empty(len(column))
    for i, value in enumerate(column.tolist()):
        if _gone(value):
            codes[i] = np.nan
        elif isinstance(value, str | bool | np.bool_):
            text = label_text(value)
            codes[i] = (
                TRUTH_WORDS.get(text.lower(), UNSEEN)
                if truth
                else place.get(known_as(text, place), UNSEEN)
            )
        elif truth and isinstance(value, NUMBERS) and value in (0, 1):
            codes[i] = float(value)
        elif numeric and isinstance(value, NUMBERS) and float(value).is_integer():
            codes[i] = place.get(str(int(value)), UNSEEN)
        else:
            raise PolicyError(
                f"the feature {name!r} is a category; got {str(value)[:40]!r}, which is no label.",
                f"its labels look like {', '.join(map(repr, labels[:3]))}",
                "Give its label as text; None where it is missing.",
            )
    return codes


def codes_for(
    name: str, own: tuple[str, ...] | None, theirs: tuple[str, ...] | None, column: Floats
) -> Floats:
    """A column of a log in the codes of a policy; refused where one has numbers, the other labels.

    Args:
        name: The feature.
        own: The labels of the policy; None where the feature is a number there.
        theirs: The labels of the log; None where it is a number there.
        column: float64 (N,), the column of the log.
    """
    if own == theirs or bool(np.isnan(column).all()):
        return column
    if own is not None and theirs is not None:
        place = {label: code for code, label in enumerate(own)}
        known = (place.get(known_as(label, place), UNSEEN) for label in theirs)
        table = np.array([*known, np.nan])
        if own == TRUTH:
            known_words = [TRUTH_WORDS.get(label.lower(), UNSEEN) for label in theirs]
            table = np.array([*known_words, np.nan])
        gone = np.isnan(column)
        return table[np.where(gone, len(theirs), np.nan_to_num(column)).astype(np.int64)]
    present = column[~np.isnan(column)]
    if TRUTH in (own, theirs) and np.isin(present, (0.0, 1.0)).all():
        return column
    ours, other = ("a number", "a category") if own is None else ("a category", "a number")
    raise LogError(
        f"feature {name!r} is {ours} to the policy, and {other} in this log.",
        do=worded(
            "Read the log as the training log was read ({categorical=} names columns of labels)."
        ),
    )
