"""Actions from numbers and from several columns: doses cut into ranges, columns put together.

A dose is a number, and a policy compares actions that were taken often. So a column of doses is cut
at edges e_1 < … < e_k into "at most e_1", "above e_1 to e_2", …, "above e_k". The edges are given,
or they are quantiles of the doses in the log at hand; then they are kept with the log and with a
policy fitted to it, and later logs are cut at the same places. A label says its whole range with
all digits, so equal labels of two logs mean equal ranges.

Several columns together are one action: "bolus=yes · pressor=above 0 to 0.1".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.words import either, worded
from dprl.errors import LogError
from dprl.logs.encoding.categories import label_text
from dprl.logs.reading.columns import Coded

Cuts: TypeAlias = Mapping[str, int | tuple[float, ...]]
"""Action column → the number of ranges of equal size, or the edges between ranges."""

BETWEEN = " · "
"""What stands between the parts of a label that is made of several columns."""
MOST_RANGES = 100
"""The most ranges that a dose may be cut into."""
HOW = worded(
    "Give a number of ranges with about as many rows each ({action_bins=4}), or the edges between "
    "them ({choice}).",
    choice=either("action_bins=[0, 0.1, 0.3]", "--action-bins 0,0.1,0.3"),
)


def column_label(name: Any) -> str:
    """The name of a column, or of several columns that have one role together."""
    return str(name) if isinstance(name, str) else " and ".join(map(str, name))


def checked_bins(given: Any, names: Any) -> dict[str, int | tuple[float, ...]]:
    """What `action_bins` asks for, by action column; refused where that makes no sense.

    Args:
        given: A number of ranges, edges, or a mapping from columns to either; None for nothing.
        names: The action column, or a list of them.
    """
    if given is None:
        return {}
    columns = [names] if isinstance(names, str) else list(names)
    if not isinstance(given, Mapping):
        if len(columns) > 1:
            raise LogError(
                f"there are {len(columns)} action columns, and action_bins does not say which one "
                "it is for.",
                ", ".join(map(repr, columns)),
                worded(
                    "Name it: {choice}.",
                    choice=either(
                        f"action_bins={{{columns[0]!r}: 4}}", f"--action-bins {columns[0]}=4"
                    ),
                ),
            )
        given = {columns[0]: given}
    bins: dict[str, int | tuple[float, ...]] = {}
    for name, asked in given.items():
        if name not in columns:
            raise LogError(
                worded(
                    "{action_bins} is given for {name}, which is no action column.", name=repr(name)
                ),
                f"action columns: {', '.join(map(repr, columns))}",
                "Name one of them.",
            )
        bins[str(name)] = _checked(asked, str(name))
    return bins


def _checked(asked: Any, name: str) -> int | tuple[float, ...]:
    """A number of ranges, or edges; refused if it is neither."""
    if isinstance(asked, bool | str | float):
        raise LogError(f"the bins of {name!r} are neither a number nor edges.", repr(asked), HOW)
    if isinstance(asked, int | np.integer):
        if not 2 <= asked <= MOST_RANGES:
            raise LogError(
                f"{name!r} is to be cut into {asked:,} ranges; there can be 2 to {MOST_RANGES}.",
                do=HOW,
            )
        return int(asked)
    try:
        edges = tuple(float(edge) for edge in asked)
    except (TypeError, ValueError):
        raise LogError(
            f"the bins of {name!r} are neither a number nor edges.", repr(asked)[:80], HOW
        ) from None
    if not edges or not all(map(math.isfinite, edges)):
        raise LogError(f"the edges of {name!r} must be finite numbers.", repr(asked)[:80], HOW)
    if any(low >= high for low, high in itertools.pairwise(edges)):
        raise LogError(
            f"the edges of {name!r} do not rise.",
            ", ".join(map(_written, edges)),
            "Write them from the smallest to the largest, each once.",
        )
    if len(edges) >= MOST_RANGES:
        raise LogError(f"{name!r} has {len(edges):,} edges; there can be {MOST_RANGES - 1}.")
    return edges


def fitted_edges(values: Floats, ranges: int, name: str) -> tuple[float, ...]:
    """Edges that put about as many rows into each range; each edge is a dose that occurs.

    Where many rows have one dose (none, mostly) it gets a range of its own, and there may be fewer
    ranges than asked for.
    """
    present = np.sort(values[~np.isnan(values)])
    if not len(present) or present[0] == present[-1]:
        only = _written(float(present[0])) if len(present) else "nothing"
        raise LogError(
            f"{name!r} cannot be cut into {ranges} ranges: all of its rows hold {only}.",
            do="Name another action column; there is nothing to compare in this one.",
        )
    places = [math.ceil(i * len(present) / ranges) - 1 for i in range(1, ranges)]
    edges = {float(present[place]) for place in places if present[place] < present[-1]}
    return tuple(sorted(edges or {float(present[0])}))


def _written(number: float) -> str:
    """A number with all its digits: 0.1, 5, -2.25."""
    return repr(number + 0.0).removesuffix(".0")


def range_labels(edges: Sequence[float]) -> tuple[str, ...]:
    """The labels of the ranges between edges, from the lowest to the highest."""
    ends = [_written(float(edge)) for edge in edges]
    middle = [f"above {a} to {b}" for a, b in itertools.pairwise(ends)]
    return (f"at most {ends[0]}", *middle, f"above {ends[-1]}")


def cut(values: Floats, edges: Sequence[float]) -> Coded:
    """Numbers as the labels of their ranges, in the order of the ranges; those that occur."""
    gone = np.isnan(values)
    place = np.searchsorted(np.asarray(edges, np.float64), values, side="left")
    used = np.unique(place[~gone])
    table = np.full(len(edges) + 1, -1, np.int32)
    table[used] = np.arange(len(used))
    labels = range_labels(edges)
    return Coded(
        np.where(gone, np.int32(-1), table[place]), tuple(labels[place] for place in used.tolist())
    )


def actions_of(
    names: Any,
    asked: Mapping[str, int | tuple[float, ...]],
    coded: Callable[[str], Coded],
    number: Callable[[str], Floats],
) -> tuple[Coded, dict[str, list[float]], bool]:
    """The column of actions, the edges it was cut at, and whether a range holds several doses.

    Args:
        names: The action column, or a list of them.
        asked: The columns to cut, and into what, as `checked_bins` gives it.
        coded: Column name → its labels.
        number: Column name → its numbers, NaN where missing.
    """
    parts: list[Coded] = []
    edges: dict[str, list[float]] = {}
    pooled = False
    columns = [names] if isinstance(names, str) else list(names)
    for name in columns:
        if name not in asked:
            parts.append(coded(name))
            continue
        values = number(name)
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise LogError(
                f"{name!r} is infinite on {len(infinite):,} of {len(values):,} rows.",
                f"row {infinite[0] + 1:,}",
                "Replace it by a number, or leave it empty.",
            )
        how = asked[name]
        chosen = fitted_edges(values, how, name) if isinstance(how, int) else how
        parts.append(cut(values, chosen))
        edges[name] = list(chosen)
        different = np.unique(values[~np.isnan(values)])
        pooled |= len(different) > len(parts[-1].labels)
    if len(parts) == 1:
        return parts[0], edges, pooled
    if len({len(part.codes) for part in parts}) > 1:
        raise LogError("the action columns have different numbers of rows.")
    return _together(parts, columns), edges, pooled


def _together(parts: Sequence[Coded], columns: Sequence[str]) -> Coded:
    """Several columns as one: a label for each combination that occurs, in the columns' order."""
    gone = np.logical_or.reduce([part.codes < 0 for part in parts])
    place = np.zeros(len(gone), np.int64)
    for part in parts:
        place = place * max(len(part.labels), 1) + np.maximum(part.codes, 0)
    used, codes = np.unique(place[~gone], return_inverse=True)
    labels = []
    for combination in used.tolist():
        words, code = [], combination
        for part, name in zip(reversed(parts), reversed(columns), strict=True):
            code, own = divmod(code, max(len(part.labels), 1))
            words.append(f"{name}={label_text(part.labels[own])}")
        labels.append(BETWEEN.join(reversed(words)))
    result = np.full(len(gone), -1, np.int32)
    result[~gone] = codes
    return Coded(result, tuple(labels))


def several_actions(data: dict[str, Any], action: Mapping[str, Any]) -> Any:
    """Put action columns under their own names into `data`; their names, or the only one."""
    del data["action"]
    names = [str(name) for name in action]
    for name, values in zip(names, action.values(), strict=True):
        if name in data:
            raise LogError(
                f"the action column {name!r} is not the only column of that name.",
                do="Give every action column a name of its own, and none of episode, state, …",
            )
        data[name] = values
    if not names:
        raise LogError("a log needs an action column.", do="Name at least one.")
    return names if len(names) > 1 else names[0]
