"""The best shallow tree of suggestions over features, by search.

Every step has a score ψ_a for each action: what doing a there brings over doing otherwise, with
noise (`dprl.learners.rules.learner`). A tree divides the steps into regions by cuts of single
features; each leaf suggests one action or defers. Its value is

    ∑_leaves max(0, max_a [ ∑ ψ_a - κ_a √(spread of ψ_a) - margin · steps ])

over the steps of the leaf: the gain a leaf is likely to bring at least, less what a change must be
worth. κ_a holds the design effect: steps of one group belong together, and √(∑_groups / ∑_steps) of
the whole half is how much larger the error by groups is. An action needs `least` steps in a leaf
that took it and as many that did not.

**Depth 2 is exact** over the given cuts: for each feature f one pass over the steps makes the
histograms of f with every feature; running sums over the bins of f give the histograms on both
sides of each cut of f, and in these the best second cut is read off. The work is N·F²·A for the
passes and F²·B²·A for the cuts, instead of the N² of a search that sorts (Sverdrup, Kanodia, Zhou,
Athey, Wager: *policytree*, 2020).

**Deeper trees by lookahead**: the roots whose best tree of depth 2 is worth most are kept, each is
tried with the best trees of the remaining depth below it, and the best is taken.

Values that are missing (NaN) are on neither side of a cut; a cut may also divide missing | known.

A category is cut into a set of labels and the others (`dprl.planning.tree`): it has several
columns of codes, one for every order of its labels that is worth trying.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints, roundest
from dprl._core.compiled import compiled, in_parts
from dprl.errors import ParameterError
from dprl.logs.encoding.categories import Levels

# --- Cuts of a category for the search of trees: which sets of its labels are tried
#
# A category of L labels has 2^L sets; the search wants a few ordered cuts. For one action a, the
# set with the largest sum of scores is a beginning of the labels ordered by their mean score of a
# (Fisher 1958; Breiman et al. 1984): all labels above 0 on one side. So for every action the labels
# are ordered by mean score, and the beginnings of that order are the cuts of one column. This is
# exact for one suggestion against deferring where no error is taken off (κ = 0) and the region is
# the whole; otherwise it is a good choice of sets, among which the search is exact. Single labels
# against all others are tried too, in columns of their own.
#
# An order with more than `most` cuts is made coarser: cuts stay where they divide the steps
# evenly.

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


# --- The loops of `dprl.planning.tree`: histograms of scores, and the best split of each

Codes: TypeAlias = NDArray[np.uint8]

SUM, SQUARES, TOOK = 0, 1, 2


@compiled
def histogram(
    codes: Codes, psi: Floats, took: NDArray[np.int32], region: Floats, steps: Floats
) -> None:  # pragma: no cover - compiled
    """Add to region (F, B, A, 3) and steps (F, B): of every code of every feature, as one region.

    region[f, i, a]: sum and squares of the scores psi (N, A) of action a, and steps that took it,
    over steps with code i of feature f. steps[f, i]: all steps.
    """
    N, F = codes.shape
    for i in range(N):
        for f in range(F):
            code = codes[i, f]
            for a in range(psi.shape[1]):
                region[f, code, a, SUM] += psi[i, a]
                region[f, code, a, SQUARES] += psi[i, a] ** 2
            region[f, code, took[i], TOOK] += 1
            steps[f, code] += 1


@compiled
def pair_histogram(
    codes: Codes, scores: Floats, took: NDArray[np.int32], f: int, H: Floats, count: Floats,
    sums: Floats, order: Ints,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill H (F, B, B, A, 3) and count (F, B, B) over feature f and every feature.

    H[g, i, j, a]: sum and squares of the scores of action a, and steps that took it, over steps
    with codes i of f and j of g. count[g, i, j]: the steps.

    scores (N, 2A): the scores of all actions, then their squares. Steps are taken by their code of
    f, in their own order within it, so that what is added to stays in the cache and is added in the
    order of the steps. sums (F, B, 2A) and order (N,) are working memory.
    """
    H[:] = 0.0
    count[:] = 0.0
    N, F = codes.shape
    B, A = count.shape[1], scores.shape[1] // 2
    ends = np.zeros(B + 1, np.int64)
    for i in range(N):
        ends[codes[i, f] + 1] += 1
    for at in range(B):
        ends[at + 1] += ends[at]
    for i in range(N):
        order[ends[codes[i, f]]] = i
        ends[codes[i, f]] += 1
    begin = 0
    for at in range(B):
        if ends[at] == begin:
            continue
        sums[:] = 0.0
        for place in range(begin, ends[at]):
            i = order[place]
            for g in range(F):
                code = codes[i, g]
                for k in range(2 * A):
                    sums[g, code, k] += scores[i, k]
                count[g, at, code] += 1
                H[g, at, code, took[i], TOOK] += 1
        for g in range(F):
            for code in range(B):
                for a in range(A):
                    H[g, at, code, a, SUM] = sums[g, code, a]
                    H[g, at, code, a, SQUARES] = sums[g, code, A + a]
        begin = ends[at]


@compiled
def best_action(
    cell: Floats, n: float, kappa: Floats, least: float, margin: float
) -> tuple[float, int]:  # pragma: no cover - compiled
    """The value of a leaf and its action: the largest sum less kappa errors less margin, or 0, -1.

    cell (A, 3) holds the sums of the leaf, n its steps; kappa (A,) includes the design effect.
    """
    best, action = 0.0, -1
    if n <= 0:
        return best, action
    for a in range(len(cell)):
        if cell[a, TOOK] < least or n - cell[a, TOOK] < least:
            continue
        spread = max(cell[a, SQUARES] - cell[a, SUM] * cell[a, SUM] / n, 0.0)
        value = cell[a, SUM] - kappa[a] * np.sqrt(spread) - margin * n
        if value > best:
            best, action = value, a
    return best, action


@compiled
def best_split(
    region: Floats, steps: Floats, bins: Ints, kappa: Floats, least: float, margin: float,
    below: Floats, above: Floats, out: Ints,
) -> float:  # pragma: no cover - compiled  # fmt: skip
    """The best tree of depth 1 over a region; its value.

    region (F, B, A, 3), steps (F, B): the histograms of every feature over the region. bins (F,):
    codes 0..bins[g] - 1 are values, code bins[g] is "missing". below, above (A, 3): working memory.
    out (4,): feature (-1 for no split), last code on the low side (-1 for missing | known), and the
    actions of the two leaves (of the whole region, twice, where there is no split).
    """
    F, A = region.shape[0], region.shape[2]
    whole = 0.0
    for k in range(A):
        for m in range(3):
            below[k, m] = 0.0
            for j in range(bins[0] + 1):
                below[k, m] += region[0, j, k, m]
    for j in range(bins[0] + 1):
        whole += steps[0, j]
    best, action = best_action(below, whole, kappa, least, margin)
    out[0], out[1], out[2], out[3] = -1, -1, action, action
    for g in range(F):
        valued_steps, low_steps = 0.0, 0.0
        for k in range(A):
            for m in range(3):
                above[k, m] = 0.0
                below[k, m] = 0.0
                for j in range(bins[g]):
                    above[k, m] += region[g, j, k, m]
        for j in range(bins[g]):
            valued_steps += steps[g, j]
        missing = steps[g, bins[g]]
        if missing > 0:
            first, one = best_action(region[g, bins[g]], missing, kappa, least, margin)
            second, other = best_action(above, valued_steps, kappa, least, margin)
            if first + second > best * (1 + 1e-12):
                best = first + second
                out[0], out[1], out[2], out[3] = g, -1, one, other
        for j in range(bins[g] - 1):
            low_steps += steps[g, j]
            for k in range(A):
                for m in range(3):
                    below[k, m] += region[g, j, k, m]
                    above[k, m] -= region[g, j, k, m]
            if steps[g, j] == 0:
                continue
            first, one = best_action(below, low_steps, kappa, least, margin)
            second, other = best_action(above, valued_steps - low_steps, kappa, least, margin)
            if first + second > best * (1 + 1e-12):
                best = first + second
                out[0], out[1], out[2], out[3] = g, j, one, other
    return best


@compiled
def best_roots(
    codes: Codes, scores: Floats, took: NDArray[np.int32], bins: Ints, kappa: Floats, least: float,
    margin: float, begin: int, end: int, value: Floats, children: Ints,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """For every split of features begin:end, the best tree of depth 2 below it.

    scores (N, 2A): the scores of all actions, then their squares.
    value (F, B): its value at split j (low side: codes 0..j), and at j = B - 1 of missing | known;
    -1 where there is no such split. children (F, B, 2, 4): as `best_split` writes them.
    """
    F, A = codes.shape[1], scores.shape[1] // 2
    B = value.shape[1]
    sums, order = np.empty((F, B, 2 * A)), np.empty(len(codes), np.int64)
    H, count = np.empty((F, B, B, A, 3)), np.empty((F, B, B))
    low, high = np.empty((F, B, A, 3)), np.empty((F, B, A, 3))
    low_steps, high_steps = np.empty((F, B)), np.empty((F, B))
    below, above = np.empty((A, 3)), np.empty((A, 3))
    for f in range(begin, end):
        pair_histogram(codes, scores, took, f, H, count, sums, order)
        low[:] = 0.0
        high[:] = 0.0
        low_steps[:] = 0.0
        high_steps[:] = 0.0
        missing = 0.0
        for i in range(bins[f]):
            high += H[:, i]
            high_steps += count[:, i]
        for j in range(B):
            missing += count[0, bins[f], j]
        if missing > 0:
            gone, gone_steps = H[:, bins[f]].copy(), count[:, bins[f]].copy()
            one = best_split(gone, gone_steps, bins, kappa, least, margin, below, above,
                             children[f, B - 1, 0])  # fmt: skip
            other = best_split(high, high_steps, bins, kappa, least, margin, below, above,
                               children[f, B - 1, 1])  # fmt: skip
            value[f, B - 1] = one + other
        for j in range(bins[f] - 1):
            low += H[:, j]
            high -= H[:, j]
            low_steps += count[:, j]
            high_steps -= count[:, j]
            one = best_split(low, low_steps, bins, kappa, least, margin, below, above,
                             children[f, j, 0])  # fmt: skip
            other = best_split(high, high_steps, bins, kappa, least, margin, below, above,
                               children[f, j, 1])  # fmt: skip
            value[f, j] = one + other


# --- The best shallow tree of suggestions over features, by search

A_THREAD = 2_000_000
"""Steps x features² x actions that are worth a thread of their own: some milliseconds."""
BEAM = (1, 1, 1, 6, 4)
"""How many roots are kept for a tree of each depth."""


@dataclass(frozen=True)
class Leaf:
    """A region: the action it suggests, -1 to defer."""

    action: int


@dataclass(frozen=True)
class Split:
    """A cut: steps with feature <= cut go to `low`, others to `high`; missing ones to neither.

    A cut that is NaN divides missing (`low`) from known (`high`). Of a category, the cut is a tuple
    of codes of labels: steps with one of them go to `low`, those with another label to `high`.
    """

    feature: int
    cut: float | LabelSet
    low: TreeNode
    high: TreeNode


TreeNode: TypeAlias = Leaf | Split


@dataclass(frozen=True, eq=False)
class Bins:
    """Features cut at quantiles, and categories cut into sets of labels.

    Attributes:
        cuts: For each of F columns, float64, the increasing cuts; code j means
            cuts[j-1] < x <= cuts[j]. Of a category, the number of each of its sets.
        codes: uint8 (N, F), the code of each value; len(cuts) + 1 where it is missing.
        source: The feature of each column. Default (): column f is feature f.
        sets: For each column of a category the labels on the low side of every cut, None for
            numbers. Default (): all are numbers.
    """

    cuts: tuple[Floats, ...]
    codes: NDArray[np.uint8]
    source: tuple[int, ...] = ()
    sets: tuple[tuple[LabelSet, ...] | None, ...] = ()

    @classmethod
    def of(
        cls, X: Floats, most: int = 16, *, levels: Levels = (), psi: Floats | None = None
    ) -> Bins:
        """At most `most` cuts for each feature of X (N, d), at quantiles of its known values.

        Args:
            X: float64 (N, d), the features; NaN where one is missing.
            most: The most cuts of a column. Default 16.
            levels: For each feature the labels where it is a category (X holds codes), None where
                it is a number. Default (): all are numbers.
            psi: float64 (N, A), the scores that order the labels. Needed with categories.
        """
        numeric = [f for f in range(X.shape[1]) if not levels or levels[f] is None]
        plain = cls._of_numbers(X if len(numeric) == X.shape[1] else X[:, numeric], most)
        if len(numeric) == X.shape[1]:
            return plain
        if psi is None:
            raise ParameterError("categories need scores that order their labels: psi.")
        columns: list[tuple[int, Floats, NDArray[np.uint8], tuple[LabelSet, ...] | None]] = [
            (f, plain.cuts[i], plain.codes[:, i], None) for i, f in enumerate(numeric)
        ]
        for f in sorted(set(range(X.shape[1])) - set(numeric)):
            columns += [
                (f, np.arange(len(sets), dtype=np.float64), codes, sets)
                for sets, codes in label_columns(X[:, f], psi, most)
            ]
        columns.sort(key=lambda one: one[0])
        return cls(
            tuple(one[1] for one in columns), np.column_stack([one[2] for one in columns]),
            tuple(one[0] for one in columns), tuple(one[3] for one in columns),
        )  # fmt: skip

    @classmethod
    def _of_numbers(cls, X: Floats, most: int) -> Bins:
        cuts, codes = [], np.empty(X.shape, np.uint8)
        for f in range(X.shape[1]):
            x = X[:, f]
            known_values = x[~np.isnan(x)]
            at = np.zeros(0)
            if len(known_values):
                shares = np.arange(1, most + 1) / (most + 1)
                at = np.unique(np.quantile(known_values, shares, method="inverted_cdf"))
                levels = np.unique(known_values)
                at = at[at < levels[-1]]
                above = levels[np.searchsorted(levels, at, "right")]
                at = np.array([roundest(a, b) for a, b in zip(at, above, strict=True)])
            cuts.append(at)
            codes[:, f] = np.where(np.isnan(x), len(at) + 1, np.searchsorted(at, x, "left"))
        return cls(tuple(cuts), codes)


def best_tree(
    bins: Bins,
    psi: Floats,
    took: NDArray[np.int32],
    *,
    depth: int,
    kappa: Floats,
    least: float,
    margin: float = 0.0,
    threads: int | None = None,
) -> TreeNode:
    """The best tree of at most this depth.

    Args:
        bins: The features of N steps, cut.
        psi: float64 (N, A), the score of every action at every step.
        took: int32 (N,), the action that was taken.
        depth: 0 to 4.
        kappa: float64 (A,), errors to take off, the design effect included.
        least: Steps with and without an action that a leaf needs before it may suggest it.
        margin: What a suggestion must bring per step to be worth a change.
        threads: Number of threads. Default None: one per core. The result does not depend on it.

    Returns:
        The tree; a leaf alone where no cut is worth more than none.
    """
    search = _Search(
        bins, np.ascontiguousarray(psi, np.float64), np.ascontiguousarray(took, np.int32),
        np.asarray(kappa, np.float64), float(least), float(margin), threads or os.cpu_count() or 1,
    )  # fmt: skip
    return search.tree(np.arange(len(took)), depth)[1]


@dataclass(frozen=True, eq=False)
class _Search:
    bins: Bins
    psi: Floats
    took: NDArray[np.int32]
    kappa: Floats
    least: float
    margin: float
    threads: int

    @property
    def sizes(self) -> Ints:
        """int64 (F,): codes of values of each feature; the next one is "missing"."""
        return np.array([len(cuts) + 1 for cuts in self.bins.cuts], np.int64)

    def tree(self, rows: Ints, depth: int) -> tuple[float, TreeNode]:
        """The value of the best tree over some steps, and the tree."""
        if depth <= 1 or not len(rows):
            return self._shallow(rows, depth)
        value, children = self._roots(rows)
        best, tree = self._shallow(rows, 1)
        order = np.lexsort((np.arange(value.size), -value.ravel()))
        for k in order[: BEAM[depth]]:
            f, j = divmod(int(k), value.shape[1])
            if value[f, j] < 0:
                break
            if depth == 2:
                total = float(value[f, j])
                low, high = (self._node(children[f, j, side]) for side in (0, 1))
            else:
                (one, low), (two, high) = (
                    self.tree(part, depth - 1) for part in self._parts(rows, f, j)
                )
                total = one + two
            if total > best * (1 + 1e-12):
                best, tree = total, Split(self._feature(f), self._cut(f, j), low, high)
        return best, tree

    def _feature(self, f: int) -> int:
        """The feature of column f."""
        return self.bins.source[f] if self.bins.source else f

    def _cut(self, f: int, j: int) -> float | LabelSet:
        """Where split j of column f cuts; NaN for missing | known."""
        sets = self.bins.sets[f] if self.bins.sets else None
        if sets is not None and 0 <= j < len(sets):
            return sets[j]
        return float(self.bins.cuts[f][j]) if 0 <= j < len(self.bins.cuts[f]) else float("nan")

    def _parts(self, rows: Ints, f: int, j: int) -> tuple[Ints, Ints]:
        """The steps on the two sides of a split."""
        code, size = self.bins.codes[rows, f], len(self.bins.cuts[f]) + 1
        if j >= size - 1:
            return rows[code == size], rows[code < size]
        return rows[code <= j], rows[(code > j) & (code < size)]

    def _node(self, written: Ints) -> TreeNode:
        """A tree of depth 1 as `best_split` wrote it."""
        f, j, one, other = (int(v) for v in written)
        if f < 0 or one == other:
            return Leaf(one)
        return Split(self._feature(f), self._cut(f, j), Leaf(one), Leaf(other))

    def _width(self) -> int:
        return int(self.sizes.max(initial=1)) + 2

    def _shallow(self, rows: Ints, depth: int) -> tuple[float, TreeNode]:
        """The best tree of depth 0 or 1."""
        F, A, B = len(self.bins.cuts), self.psi.shape[1], self._width()
        region, steps = np.zeros((max(F, 1), B, A, 3)), np.zeros((max(F, 1), B))
        codes = self.bins.codes[rows, : F if depth else 1]
        histogram(codes, self.psi[rows], self.took[rows], region, steps)
        out, room = np.empty(4, np.int64), np.empty((2, A, 3))
        sizes = self.sizes if depth else self.sizes[:1]
        if not depth:
            region, steps = region[:1], steps[:1]
        value = best_split(
            region, steps, sizes, self.kappa, self.least, self.margin, room[0], room[1], out
        )
        node = self._node(out)
        if not depth and isinstance(node, Split):  # depth 0: the region as one leaf
            region = region.sum(axis=1, keepdims=True)
            steps = steps.sum(axis=1, keepdims=True)
            wide = np.concatenate((region, np.zeros_like(region)), axis=1)
            more = np.concatenate((steps, np.zeros_like(steps)), axis=1)
            value = best_split(
                wide, more, np.ones(1, np.int64), self.kappa, self.least, self.margin, room[0],
                room[1], out,
            )  # fmt: skip
            node = self._node(out)
        return float(value), node

    def _roots(self, rows: Ints) -> tuple[Floats, Ints]:
        """The value of the best tree of depth 2 below every split, and its children."""
        F, B = len(self.bins.cuts), self._width()
        value, children = np.full((F, B), -1.0), np.full((F, B, 2, 4), -1, np.int64)
        codes = np.ascontiguousarray(self.bins.codes[rows])
        psi, took = self.psi[rows], self.took[rows]
        scores = np.concatenate((psi, psi * psi), axis=1)
        sizes = self.sizes
        worthwhile = max(len(rows) * F * F * psi.shape[1] // A_THREAD, 1)
        threads = min(self.threads, F, worthwhile)
        edges = np.unique(np.linspace(0, F, threads + 1).astype(int))

        def part(begin: int, end: int) -> None:
            best_roots(
                codes, scores, took, sizes, self.kappa, self.least, self.margin, begin, end, value,
                children,
            )  # fmt: skip

        in_parts(part, list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)))
        return value, children


Step: TypeAlias = tuple[int, Any, bool]
"""A feature, a cut of it (a number, NaN, or codes of labels), whether on its low side."""


def leaves(tree: TreeNode, path: tuple[Step, ...] = ()) -> list[tuple[tuple[Step, ...], int]]:
    """The leaves of a tree from the low side up: the cuts that lead there, and the action.

    A step of the way is (feature, cut, whether on its low side). The cut is a number: at most it,
    or above it; NaN: missing, or known; or a tuple of codes of labels: one of them, or another.
    """
    if isinstance(tree, Leaf):
        return [(path, tree.action)]
    low = leaves(tree.low, (*path, (tree.feature, tree.cut, True)))
    return low + leaves(tree.high, (*path, (tree.feature, tree.cut, False)))
