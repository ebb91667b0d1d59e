"""Features of a log for those who need plain numbers; states in whatever form they are passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, doubles, is_short, one_double
from dprl._core.words import either, worded
from dprl.errors import LogError, PolicyError
from dprl.logs.encoding.categories import TRUTH
from dprl.logs.log import Log


def place_of(log: Log, row: int) -> str:
    """Where a row of a log is, for messages: its episode, and its time or step."""
    episode = int(np.searchsorted(log.starts, row, "right")) - 1
    when = str(log.columns.get("time", "time")) if log.time is not None else "step"
    return (
        f"{log.columns.get('episode', 'episode')}={log.episodes[episode]}, {when}={log.clock(row)}"
    )


def plain_features(log: Log, names: Sequence[str] | None = None) -> Floats:
    """The features (N, d) of a log, refused where one is missing or a category.

    Distances, averages and most models need numbers: the code of a label is none, and NaN would
    spread through every sum. Truth values are the numbers 0 and 1.

    Args:
        log: A log whose states are features.
        names: The features that are needed, in order. Default None: all of the log.

    Raises:
        LogError: If states are labels, a feature is missing somewhere, or it is a category.
    """
    if log.features is None:
        raise LogError(
            f"this log's states are {log.n_states:,} labels, not numeric features.",
            do=worded(
                "Read the features as states: {choice}, or a pattern 'x_*'.",
                choice=either("state=['age', 'pressure']", "--state age --state pressure"),
            ),
        )
    places = (
        list(range(len(log.feature_names))) if names is None
        else columns_in(log.feature_names, names)
    )  # fmt: skip
    refuse_categories(log, places)
    for j in places:
        if log.missing[j]:
            raise LogError(
                f"feature {log.feature_names[j]!r} is missing on {log.missing[j]:,} of "
                f"{log.n_steps:,} rows.",
                place_of(log, int(np.argmax(np.isnan(log.features[:, j])))),
                worded(
                    "Fill it ({choice}{choice2}{choice3}), leave such episodes out "
                    "({missing='drop-episodes'}), or use {dprl.Rules}, which gives missing values "
                    "a side of their own.",
                    choice=either("read with ", ""),
                    choice2=either('missing="flag" or "median"', "--missing flag or median"),
                    choice3=either(", then log.indicators()", ""),
                ),
            )
    if places == list(range(len(log.feature_names))):
        return log.features
    return np.ascontiguousarray(log.features[:, places])


def refuse_categories(log: Log, places: Sequence[int] | None = None) -> None:
    """Refuse a log in which one of these features (all by default) is a category."""
    for j in (range(len(log.levels)) if places is None else places) if log.levels else ():
        labels = log.levels[j]
        if labels is not None and labels != TRUTH:
            raise LogError(
                f"feature {log.feature_names[j]!r} is a category of {len(labels):,} "
                f"label{'s' * (len(labels) != 1)}, not a number.",
                f"labels {', '.join(map(repr, labels[:4]))}",
                worded(
                    "Leave it out, make numbers of it (a column of 0 and 1 per label), or use "
                    "{dprl.Rules}, which takes labels."
                ),
            )


def without_numbers(log: Log) -> str:
    """Why the features of a log are not plain numbers, in a sentence; '' where they are, or labels.

    Args:
        log: A log.
    """
    if log.features is None:
        return ""
    try:
        plain_features(log)
    except LogError as error:
        return error.what
    return ""


def columns_in(have: Sequence[str], names: Sequence[str]) -> list[int]:
    """Positions of the features a policy needs among those a log has."""
    missing = [name for name in names if name not in have]
    if missing:
        raise PolicyError(
            f"the policy needs the feature {missing[0]!r}, which the log does not have.",
            do=f"The log has {', '.join(have)}.",
        )
    return [have.index(name) for name in names]


def features_of(states: Any, names: Sequence[str]) -> tuple[Floats, bool]:
    """States as an array (k, d), and whether a single state was passed.

    Args:
        states: (k, d) numbers in the order of `names`, or a table with these columns, or one state
            as a sequence or a mapping.
        names: The names of the d features.
    """
    feature_list = f"Features: {', '.join(names)}."
    if isinstance(states, Mapping) or hasattr(states, "columns"):
        columns = list(states) if isinstance(states, Mapping) else list(states.columns)
        missing = [name for name in names if name not in columns]
        if missing:
            given = f"given: {', '.join(map(str, columns[:8]))}"
            raise PolicyError(f"a state needs the feature {missing[0]!r}.", given, feature_list)
        columns_given = [_written(states[name]) for name in names]
        single = columns_given[0].ndim == 0
        states = np.column_stack([np.atleast_1d(p) for p in columns_given])
        given_as = states
    else:
        given_as, single = states, None
    try:
        array = _written(given_as)
        if array.dtype.kind == "c":
            raise TypeError
        numbers = np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise PolicyError("states must be numbers.", do=feature_list) from error
    return np.atleast_2d(numbers), numbers.ndim == 1 if single is None else single


def _written(values: Any) -> NDArray[Any]:
    """Values as an array; floats shorter than a double, beside longer ones too, as written."""
    if isinstance(values, list | tuple):
        values = [_written(x) if isinstance(x, list | tuple) else one_double(x) for x in values]
    array = np.asarray(values)
    return doubles(array) if is_short(array) else array
