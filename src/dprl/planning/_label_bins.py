r"""Cuts of a category for the search of trees: which sets of its labels are tried.

A category of L labels has 2^L sets; the search wants a few ordered cuts. For one action a, the set
with the largest sum of scores is a beginning of the labels ordered by their mean score of a
(Fisher 1958; Breiman et al. 1984): all labels above 0 on one side. So for every action the labels
are ordered by mean score, and the beginnings of that order are the cuts of one column. This is
exact for one suggestion against deferring where no error is taken off (κ = 0) and the region is the
whole; otherwise it is a good choice of sets, among which the search is exact. Single labels against
all others are tried too, in columns of their own.

An order with more than `most` cuts is made coarser: cuts stay where they divide the steps evenly.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["LabelSet", "label_columns"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
LabelSet: TypeAlias = tuple[int, ...]
"""Codes of labels, increasing."""


def label_columns(
    column: Floats, psi: Floats, most: int
) -> list[tuple[tuple[LabelSet, ...], NDArray[np.uint8]]]:
    """Columns of ordered codes for one category, each with the labels below every cut.

    Args:
        column: float64 (N,), codes of labels; NaN where it is missing.
        psi: float64 (N, A), the scores.
        most: The most cuts of a column, and the most columns of a single label.

    Returns:
        For each column the low side of its cuts (cut j: the labels with codes 0..j), and its codes,
        uint8 (N,); the code of missing is one above the codes of labels.
    """
    gone = np.isnan(column)
    label = np.where(gone, 0, column).astype(np.int64)
    size = int(label.max(initial=0)) + 1
    steps = np.bincount(label[~gone], minlength=size)
    present = np.flatnonzero(steps)
    orders = [_by_mean(label[~gone], psi[~gone, a], steps, present) for a in range(psi.shape[1])]
    columns, tried = [], set[LabelSet]()
    for order in orders:
        ends = _ends(steps[order], most)
        sets = tuple(tuple(sorted(order[: end + 1].tolist())) for end in ends)
        if not sets or all(_halves(one, present) & tried for one in sets):
            continue
        tried.update(sets)
        rank = np.zeros(size, np.int64)
        rank[order] = np.searchsorted(ends, np.arange(len(order)), "left")
        columns.append((sets, _codes(rank[label], gone, len(sets))))
    frequent = present[np.argsort(-steps[present], kind="stable")][:most]
    columns += [
        (((one,),), _codes((label != one).astype(np.int64), gone, 1))
        for one in (np.sort(frequent).tolist() if len(present) > 2 else ())
        if not _halves((one,), present) & tried
    ]
    if not columns:  # one label alone: it can still be missing or known
        columns.append(((), _codes(np.zeros(len(column), np.int64), gone, 0)))
    return columns


def _by_mean(label: Ints, score: Floats, steps: Ints, present: Ints) -> Ints:
    """The labels that occur, from the largest mean score down."""
    sums = np.bincount(label, weights=score, minlength=len(steps))[present]
    return np.asarray(present[np.argsort(-(sums / steps[present]), kind="stable")])


def _ends(steps: Ints, most: int) -> Ints:
    """The last place on the low side of each cut of an order of labels, at most `most` of them."""
    ends = np.arange(len(steps) - 1)
    if len(ends) <= most:
        return ends
    total = np.cumsum(steps)
    wanted = total[-1] * np.arange(1, most + 1) / (most + 1)
    return np.unique(np.minimum(np.searchsorted(total, wanted, "left"), len(ends) - 1))


def _halves(one: LabelSet, present: Ints) -> set[LabelSet]:
    """A set of labels, and the others: both are the same cut."""
    return {one, tuple(x for x in present.tolist() if x not in one)}


def _codes(rank: Ints, gone: NDArray[np.bool_], cuts: int) -> NDArray[np.uint8]:
    return np.where(gone, cuts + 1, rank).astype(np.uint8)
