r"""The best shallow tree of suggestions over features, by search.

Every step has a score ψ_a for each action: what doing a there brings over doing otherwise, with
noise (`dprl.learners.rules`). A tree divides the steps into regions by cuts of single features;
each leaf suggests one action or defers. Its value is

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

A category is cut into a set of labels and the others (`dprl.planning._label_bins`): it has several
columns of codes, one for every order of its labels that is worth trying.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import in_parts
from dprl.errors import ParameterError
from dprl.logs._categories import Levels
from dprl.planning._label_bins import LabelSet, label_columns
from dprl.planning._tree_loops import best_roots, best_split, histogram

__all__ = ["Bins", "Leaf", "Split", "TreeNode", "best_tree", "leaves"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

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
                at = np.array([_roundest(a, b) for a, b in zip(at, above, strict=True)])
            cuts.append(at)
            codes[:, f] = np.where(np.isnan(x), len(at) + 1, np.searchsorted(at, x, "left"))
        return cls(tuple(cuts), codes)


def _roundest(low: float, high: float) -> float:
    """The number with the fewest digits in [low, high), which a reader need not read twice."""
    for digits in range(1, 17):
        for at in (low, (low + high) / 2):
            rounded = float(f"{at:.{digits}g}")
            if low <= rounded < high:
                return rounded
    return float(low)


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
