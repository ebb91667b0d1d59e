"""States with categories: labels become the codes of a policy.

A policy keeps the labels of every category. A label that it does not have becomes an infinite
number, which satisfies no condition of any rule; a missing one becomes NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import option, worded
from dprl.errors import LogError, ParameterError, PolicyError
from dprl.logs._categories import TRUTH, TRUTH_WORDS, Levels, label_text
from dprl.logs._columns import NUMBER

__all__ = ["UNSEEN", "CodedFeatures", "codes_for", "mixed_features_of"]

Floats: TypeAlias = NDArray[np.float64]

UNSEEN = np.inf
"""The code of a label that a policy does not have."""

NUMBERS = int | float | np.integer | np.floating


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
    return np.asarray(column, object) if np.ndim(column) == 0 else np.array([*column], object)


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
        table[i] = [*row]
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
            codes[i] = TRUTH_WORDS.get(text.lower(), UNSEEN) if truth else place.get(text, UNSEEN)
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
        table = np.array([*(place.get(label, UNSEEN) for label in theirs), np.nan])
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
            "Read the log as the training log was read ({categorical} names columns of labels).",
            categorical=option("categorical"),
        ),
    )
