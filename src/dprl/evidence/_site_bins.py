r"""Returns at first visits in bins of a fixed grid, none with fewer than k groups in it.

The range (g_lo, g_hi) of returns, known beforehand, has 4000 units. A return is either a whole
number i of units or lies between i and i + 1, and each of these cases has a bin, as in
`dprl.certificate._visits`:

    bin 2i      x = i units                    bin 2i + 1  i < x < i + 1 units

so that it can be rounded down or up. Where k is above 1, bins are put together in pairs, pairs in
fours and so on, along a tree that is the same for every site and every log. A part of the tree is
divided if each half of it holds no group, or at least k groups. If one half holds fewer, so many
groups of the other half join them that they are k, and are said to lie somewhere in the part; the
other half goes on without these, if it still has k. So what is given away is how many groups, at
least k, fell in an interval that was fixed beforehand. Rounding down or up to the ends of a wider
interval costs a certificate power and keeps it valid.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["LAST", "SLACK", "UNITS", "add_up", "coarse", "unit_bins"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

UNITS = 4_000
"""Number of units in the range of returns."""
SLACK = 1e-9
"""How far, in parts of the range, a value may be from a whole number of units and count as one."""
LAST = 2 * UNITS
"""The number of the last bin."""
ROOT = 1 << LAST.bit_length()
"""The width of the whole tree, in bins."""


def unit_bins(values: Floats) -> Ints:
    """int64 (n,): the bin of each value (n,), where the range is 0 to 1."""
    z = values * UNITS
    whole = np.rint(z)
    exact = np.abs(z - whole) <= SLACK * UNITS
    return np.asarray(np.where(exact, 2 * whole, 2 * np.floor(z) + 1).astype(np.int64))


def coarse(rows: Ints, k: int) -> Ints:
    """Bins of which none has fewer than k groups, in place of single ones.

    Args:
        rows: int64 (n, 4): pair, bin, bin again, number of groups.
        k: The fewest groups of a bin; no pair may have fewer.

    Returns:
        int64 (rows, 4), sorted: pair, first bin, last bin (with it), number of groups.
    """
    of_pair, leaf, _, count = add_up(rows).T
    small = np.isin(of_pair, of_pair[count < k])
    parts = [np.stack([of_pair, leaf, leaf, count], axis=1)[~small]]
    for one in np.unique(of_pair[small]):
        here = of_pair == one
        own: list[tuple[int, int, int]] = []
        _divide(leaf[here], count[here], 0, ROOT, k, own)
        parts.append(np.array([(one, *row) for row in own], np.int64))
    return add_up(np.concatenate(parts))


def _divide(
    leaf: Ints, count: Ints, begin: int, width: int, k: int, rows: list[tuple[int, int, int]]
) -> None:
    """Append the bins (first, last, count) of one part of the tree, which has at least k groups."""
    whole = (begin, min(begin + width - 1, LAST), int(count.sum()))
    if width == 1:
        rows.append(whole)
        return
    half = width // 2
    sides = leaf < begin + half, leaf >= begin + half
    n = [int(count[side].sum()) for side in sides]
    if 0 in n or min(n) >= k:
        for i, side in enumerate(sides):
            if n[i]:
                _divide(leaf[side], count[side], begin + i * half, half, k, rows)
        return
    larger = int(n[1] > n[0])
    need = k - n[1 - larger]
    if n[larger] - need < k:
        rows.append(whole)
        return
    left = count[sides[larger]].copy()
    for at in np.argsort(-left, kind="stable"):
        taken = min(need, int(left[at]))
        left[at] -= taken
        need -= taken
    rows.append((*whole[:2], k))
    _divide(leaf[sides[larger]], left, begin + larger * half, half, k, rows)


def add_up(rows: Ints) -> Ints:
    """The rows (n, 4) sorted, with the counts of equal bins of a pair added up."""
    order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (np.diff(rows[:, :3], axis=0) != 0).any(axis=1)
    at = np.flatnonzero(new)
    if not len(at):
        return np.empty((0, 4), np.int64)
    total = np.add.reduceat(rows[:, 3], at)
    return np.column_stack([rows[at, :3], total])
