"""Forests whose answers depend on the data and the seed alone.

scikit-learn grows the trees. It would add up their answers in the order in which its threads
finish, so only the *leaves* come from it, and the means in them are computed here, in the order of
the trees. This also makes new targets cheap while the trees stay: only the means of leaves change.

* `Regression`: ExtraTrees (Geurts, Ernst, Wehenkel 2006), no bootstrap, grown to the end; the mean
  of the targets in a leaf. Equal inputs share every leaf, so they are averaged.
* `Behavior`: a random forest (Breiman 2001); the shares of the actions in a leaf. At a training
  point only the trees that did not see this point are used (out of bag).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Behavior", "Regression", "pairs_of"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Nodes = NDArray[np.int32]

JOBS = 1
"""Threads of scikit-learn. The answers do not depend on it, but with several each one sets and
resets the process's warning filters (scikit-learn 1.9), and now and then leaves them emptied."""

CHUNK = 1 << 16
"""The number of rows that are evaluated at a time."""


def pairs_of(
    z: Floats, centre: Floats, rows: NDArray[Any], action: NDArray[Any], A: int
) -> Singles:
    """(features, one-hot action) of the pairs (z[rows], action), float32 (n, d' + A)."""
    x = np.zeros((len(rows), z.shape[1] + A), np.float32)
    x[:, : z.shape[1]] = (z - centre)[rows]
    x[np.arange(len(rows)), z.shape[1] + action] = 1
    return x


def _leaves(forest: Any, x: Singles) -> Nodes:
    """int32 (T, n): the leaf of every row in every tree."""
    leaves = np.empty((len(forest.estimators_), len(x)), np.int32)
    for i in range(0, len(x), CHUNK):
        leaves[:, i : i + CHUNK] = forest.apply(x[i : i + CHUNK]).T
    return leaves


@dataclass(frozen=True, eq=False)
class Regression:
    """Grown trees, and the means in their leaves.

    Attributes:
        forest: The trees of scikit-learn.
        home: int32 (T, N), the leaf of every training row in every tree.
        mean: For each tree float64 (nodes,), the mean target of its leaves.
    """

    forest: Any
    home: Nodes
    mean: tuple[Floats, ...]

    @classmethod
    def grow(
        cls, x: Singles, y: Floats, trees: int, seed: int, *, tried: float = 1.0
    ) -> Regression:
        """Trees fitted to inputs x and targets y (N,); a split tries a share of the inputs."""
        from sklearn.ensemble import ExtraTreesRegressor

        forest = ExtraTreesRegressor(
            n_estimators=trees,
            max_features=tried,
            random_state=seed,
            n_jobs=JOBS,
        )
        forest.fit(x, y)
        return cls(forest, _leaves(forest, x), ()).with_targets(y)

    def with_targets(self, y: Floats) -> Regression:
        """The same trees with other targets (N,) of the training rows."""
        mean = []
        for home in self.home:
            total = np.bincount(home, weights=y)
            mean.append(total / np.maximum(np.bincount(home), 1))
        return replace(self, mean=tuple(mean))

    def leaves(self, x: Singles) -> Nodes:
        """int32 (T, n): the leaf of every row in every tree, for `at`."""
        return _leaves(self.forest, x)

    def at(self, leaves: Nodes) -> Floats:
        """The mean of the trees' answers, (n,)."""
        total = np.zeros(leaves.shape[1])
        for mean, leaf in zip(self.mean, leaves, strict=True):
            total += mean[leaf]
        return total / max(len(self.mean), 1)


@dataclass(frozen=True, eq=False)
class Behavior:
    """π̂_b(a|s) from a random forest.

    Attributes:
        forest: The trees of scikit-learn.
        centre: float64 (d',), what is subtracted from the coordinates.
        n_actions: A, the number of actions; those never seen have probability 0.
    """

    forest: Any
    centre: Floats
    n_actions: int

    @classmethod
    def grow(
        cls, z: Floats, action: NDArray[Any], centre: Floats, n_actions: int, trees: int, seed: int
    ) -> Behavior:
        """A forest fitted to the actions taken at coordinates z (N, d')."""
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(n_estimators=trees, random_state=seed, n_jobs=JOBS)
        forest.fit(np.asarray(z - centre, np.float32), action)
        return cls(forest, centre, n_actions)

    def probabilities(self, z: Floats) -> Floats:
        """π̂_b (k, A) at any coordinates z (k, d')."""
        total = np.zeros((len(z), len(self.forest.classes_)))
        for share, leaf in self._shares(z):
            total += share[leaf]
        return self._distributions(total)

    def out_of_bag(self, z: Floats) -> Floats:
        """π̂_b (N, A) at the training points, from trees that did not see the point.

        A point that every tree saw (this happens with few trees) gets the answer of all trees.
        """
        total = np.zeros((len(z), len(self.forest.classes_)))
        for (share, leaf), seen in zip(
            self._shares(z), self.forest.estimators_samples_, strict=True
        ):
            unseen = np.ones(len(z), bool)
            unseen[seen] = False
            total[unseen] += share[leaf[unseen]]
        has_answer = total.sum(axis=1, keepdims=True) > 0
        return np.where(has_answer, self._distributions(total), self.probabilities(z))

    def _shares(self, z: Floats) -> list[tuple[Floats, Nodes]]:
        """For each tree the shares of actions in its nodes, and the leaf of every row."""
        leaves = _leaves(self.forest, np.asarray(z - self.centre, np.float32))
        trees = [tree.tree_.value[:, 0, :] for tree in self.forest.estimators_]
        shares = [value / value.sum(axis=1, keepdims=True) for value in trees]
        return list(zip(shares, leaves, strict=True))

    def _distributions(self, total: Floats) -> Floats:
        pi = np.zeros((len(total), self.n_actions))
        pi[:, self.forest.classes_] = total
        return np.asarray(pi / np.maximum(pi.sum(axis=1, keepdims=True), np.finfo(float).tiny))
