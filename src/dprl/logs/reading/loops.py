"""Hot loops of reading: labels become codes, and rows are brought into order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled


@compiled
def fill(
    values: NDArray[np.int64], low: int, codes: NDArray[np.int32], seen: NDArray[np.bool_]
) -> int:
    """Write value - low of every row, and mark it as seen; the result counts values beyond.

    Args:
        values: int64 (n,), whole numbers.
        low: The smallest of them.
        codes: int32 (n,), written.
        seen: bool (m,), marked; m is more than the largest value - low.
    """
    high = low + len(seen) - 1
    beyond = 0
    for i in range(len(values)):
        if values[i] < low or values[i] > high:
            beyond += 1
        else:
            codes[i] = values[i] - low
            seen[codes[i]] = True
    return beyond


@compiled
def replace_codes(codes: NDArray[np.int32], table: NDArray[np.int32]) -> None:
    """Replace every code by its entry in a table; a negative code counts from the table's end."""
    for i in range(len(codes)):
        codes[i] = table[codes[i]]


@compiled
def by_episode(episode: NDArray[np.int32], ends: NDArray[np.int64], order: NDArray[Any]) -> None:
    """Write the order that sorts rows by their episode and leaves the rows of one as they are.

    Args:
        episode: int32 (N,), codes of the episodes, none negative.
        ends: int64 (E + 1,), zeros; written: the place after the last row of each episode.
        order: int32 or int64 (N,), written.
    """
    for i in range(len(episode)):
        ends[episode[i] + 1] += 1
    for e in range(1, len(ends)):
        ends[e] += ends[e - 1]
    for i in range(len(episode)):
        e = episode[i]
        order[ends[e]] = i
        ends[e] += 1


@compiled
def sort_within(
    time: NDArray[Any], ends: NDArray[np.int64], order: NDArray[Any]
) -> tuple[bool, bool]:
    """Sort the rows of every episode by time; rows of one time stay as they are.

    Args:
        time: int64, uint64 or float64 (N,), not sorted; none is NaN.
        ends: int64 (E + 1,), as `by_episode` wrote it.
        order: (N,), as `by_episode` wrote it; sorted further.

    Returns:
        Whether a row had to move, and whether two rows of an episode have the same time.
    """
    moved, twins, first = False, False, 0
    for e in range(len(ends) - 1):
        last = ends[e]
        rising = True
        for i in range(first + 1, last):
            if time[order[i]] < time[order[i - 1]]:
                rising = False
                break
        if not rising:
            moved = True
            rows = order[first:last].copy()
            times = np.empty(last - first, time.dtype)
            for i in range(last - first):
                times[i] = time[rows[i]]
            places = np.argsort(times, kind="mergesort")
            for i in range(last - first):
                order[first + i] = rows[places[i]]
        for i in range(first + 1, last):
            twins |= time[order[i]] == time[order[i - 1]]
        first = last
    return moved, twins


@compiled
def gather(column: NDArray[Any], order: NDArray[Any], moved: NDArray[Any]) -> None:
    """Write a column with its rows in another order.

    Args:
        column: (N,) numbers.
        order: (N,), the row that comes first, second and so on.
        moved: (N,), written; of the type of `column`.
    """
    for i in range(len(order)):
        moved[i] = column[order[i]]


@compiled
def group_changes_within(
    episode: NDArray[np.int32], group: NDArray[np.int32], of_episode: NDArray[np.int32]
) -> bool:
    """Whether rows of one episode name different groups; negative codes do not count.

    Args:
        episode: int32 (N,), codes of the episodes.
        group: int32 (N,), codes of the groups.
        of_episode: int32 (E,), -1 everywhere; written: the group of each episode.
    """
    for i in range(len(episode)):
        e, g = episode[i], group[i]
        if e >= 0 and g >= 0:
            if of_episode[e] < 0:
                of_episode[e] = g
            elif of_episode[e] != g:
                return True
    return False
