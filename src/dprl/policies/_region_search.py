r"""Regions: many changed states told as a few ranges of features.

The rule, for the steps of a log at which a policy makes one and the same change (from this usual
action to that suggestion), among all steps of the log:

1. *Describe* them by ranges. Take the feature whose range over these steps shuts out the most other
   steps, then the next, until nine in ten steps inside make the change, no feature shuts out a
   tenth of what is left, or FEATURES are named. Every one of the steps stays inside.
2. If fewer than nine in ten steps inside make the change, *split* in two at the one threshold of
   one feature that lowers the Gini impurity of the steps inside the most, with at least LEAST steps
   of the change and a tenth of all of its steps on either side; round the threshold; describe both
   parts, each with its own side of it. At most DEPTH times in a row.

So every step is in exactly one region of its change, regions of one change are disjoint, and the
number of regions of a change is at most 2^DEPTH. *Purity* is the share of the log's steps inside
that make the change: the policy is silent, or says something else, at the rest. Ties go to the
first feature and the lowest threshold: equal input, equal regions.

Ranges are rounded outwards, and thresholds to the nearest, in units of about a hundredth of the
feature's spread from the 5th to the 95th percentile (in whole numbers where it has no others).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.logs.log import Label
from dprl.policies._regions import Range, Region

__all__ = ["Group", "group", "ranges_of"]

PURE, DEPTH, LEAST, FEATURES = 0.9, 3, 10, 4
WORTH = 0.1
"""Share of the steps still inside that a further feature must shut out."""
MOST = 20_000
"""Other steps looked at while choosing ranges; purity counts all of them."""

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bounds: TypeAlias = dict[int, tuple[float, float]]


class Group(NamedTuple):
    """A region and the log's steps behind it.

    Attributes:
        region: Where, from what, to what.
        rows: The steps inside that make the change, ascending.
        purity: Their share of all steps inside.
    """

    region: Region
    rows: Ints
    purity: float


def group(
    x: Floats,
    names: Sequence[str],
    changes: Sequence[tuple[Label, Label] | None],
    usable: Sequence[int] | None = None,
) -> list[Group]:
    """The regions of all changes, those with the most steps first.

    Args:
        x: float64 (N, d), the steps' features.
        names: The d features.
        changes: (usual, suggested) at each step, None where nothing changes.
        usable: Which features may describe a region; all by default.
    """
    usable = range(x.shape[1]) if usable is None else usable
    grids = {j: _Grid.of(x[:, j]) for j in usable}
    groups = []
    kinds = dict.fromkeys(c for c in changes if c is not None)
    for change in sorted(kinds, key=lambda c: (str(c[0]), str(c[1]))):
        mine = np.array([c == change for c in changes])
        rows, others = np.flatnonzero(mine), np.flatnonzero(~mine)
        if len(others) > MOST:
            others = others[np.linspace(0, len(others) - 1, MOST).astype(np.int64)]
        least = max(LEAST, len(rows) // 10)
        for bounds in _divide(x, grids, rows, others, {}, DEPTH, least):
            ranges = tuple(Range(names[j], *bounds[j]) for j in bounds)
            region = Region(change[0], change[1], ranges)
            inside = region.holds(x, names)
            held = np.flatnonzero(inside & mine)
            groups.append(Group(region, held, len(held) / int(inside.sum())))
    groups.sort(key=lambda g: -len(g.rows))
    return groups


def ranges_of(
    x: Floats, names: Sequence[str], rows: Ints, usable: Sequence[int]
) -> tuple[Range, ...]:
    """Ranges that hold the steps `rows` (ascending) and shut out others, by the first rule above.

    They tell where these steps are; other steps may lie inside too.
    """
    others = np.delete(np.arange(len(x)), rows)
    if len(others) > MOST:
        others = others[np.linspace(0, len(others) - 1, MOST).astype(np.int64)]
    bounds, _ = _describe(x, {j: _Grid.of(x[:, j]) for j in usable}, rows, others, {})
    return tuple(Range(names[j], *bounds[j]) for j in bounds)


def _divide(
    x: Floats,
    grids: dict[int, _Grid],
    rows: Ints,
    others: Ints,
    path: Bounds,
    depth: int,
    least: int,
) -> list[Bounds]:
    """Ranges that together hold `rows`, all within `path`."""
    bounds, inside = _describe(x, grids, rows, others, path)
    if len(rows) >= PURE * (len(rows) + len(inside)) or depth == 0 or len(rows) < 2 * least:
        return [bounds]
    cut = _split(x, grids, rows, inside, least)
    if cut is None:
        return [bounds]
    j, t = cut
    low, high = path.get(j, (-math.inf, math.inf))
    left = x[rows, j] < t
    return [
        *_divide(x, grids, rows[left], others, {**path, j: (low, t)}, depth - 1, least),
        *_divide(x, grids, rows[~left], others, {**path, j: (t, high)}, depth - 1, least),
    ]


def _describe(
    x: Floats, grids: dict[int, _Grid], rows: Ints, others: Ints, path: Bounds
) -> tuple[Bounds, Ints]:
    """The ranges of step 1, and the other steps that lie inside."""

    def tight(j: int) -> tuple[float, float]:
        low, high = path.get(j, (-math.inf, math.inf))
        down, up = grids[j].around(float(x[rows, j].min()), float(x[rows, j].max()))
        return max(low, down), min(high, up)

    def outside(j: int, inside: Ints) -> NDArray[np.bool_]:
        low, high = tight(j)
        return np.asarray((x[inside, j] < low) | (x[inside, j] >= high))

    bounds: Bounds = {}
    inside = others
    for j in path:
        bounds[j], inside = tight(j), inside[~outside(j, inside)]
    while len(rows) < PURE * (len(rows) + len(inside)) and len(bounds) < FEATURES:
        lost = {j: int(outside(j, inside).sum()) for j in grids if j not in bounds}
        best = max(lost, key=lambda j: lost[j], default=-1)  # the first of equals
        if best < 0 or lost[best] < max(1.0, WORTH * len(inside)):
            break
        bounds[best], inside = tight(best), inside[~outside(best, inside)]
    return bounds, inside


def _split(
    x: Floats, grids: dict[int, _Grid], rows: Ints, inside: Ints, least: int
) -> tuple[int, float] | None:
    """The feature and threshold of step 2; None where none helps."""
    both = np.concatenate((rows, inside))
    mine = np.arange(len(both)) < len(rows)
    p, n = len(rows), len(both)
    best, best_cut = p * (n - p) / n * (1 - 1e-12), None
    for j, grid in grids.items():
        order = np.argsort(x[both, j], kind="stable")
        v = x[both[order], j]
        left = np.cumsum(mine[order])[:-1].astype(np.float64)
        size = np.arange(1, n, dtype=np.float64)
        ok = (v[1:] > v[:-1]) & (left >= least) & (p - left >= least)
        if not ok.any():
            continue
        right = p - left
        gini = left * (size - left) / size + right * (n - size - right) / (n - size)
        gini[~ok] = math.inf
        i = int(gini.argmin())
        if gini[i] < best:
            t = grid.between(float(v[i]), float(v[i + 1]), x[rows, j])
            best, best_cut = float(gini[i]), (j, t)
    return best_cut


class _Grid(NamedTuple):
    """The round numbers of a feature: multiples of 10^-digits."""

    digits: int
    whole: bool

    @classmethod
    def of(cls, column: Floats) -> _Grid:
        whole = bool((column == np.floor(column)).all()) and bool((np.abs(column) < 1e15).all())
        low, high = np.quantile(column, [0.05, 0.95])  # a few far out must not make it coarse
        spread = float(high - low) or float(np.ptp(column)) or float(np.abs(column).max()) or 1.0
        return cls(0 if whole else 2 - math.floor(math.log10(spread)), whole)

    def around(self, low: float, high: float) -> tuple[float, float]:
        """Round numbers with down <= low and high < up."""
        for digits in range(self.digits, self.digits + 20):
            unit = 10.0**-digits
            down = round(math.floor(low / unit) * unit, digits)
            up = round((math.floor(high / unit) + 1) * unit, digits)
            if down <= low and high < up:
                return down, up
        return low, math.nextafter(high, math.inf)

    def between(self, a: float, b: float, column: Floats) -> float:
        """A round threshold near the gap a..b that leaves some of `column` on either side."""
        for digits in range(self.digits, self.digits + 20):
            t = math.ceil((a + b) / 2) if self.whole else round((a + b) / 2, digits)
            if column.min() < t <= column.max():
                return float(t)
        return b
