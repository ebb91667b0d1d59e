"""PQI and SPIBB where states are features: fitted Q-iteration on forests, counts from balls.

Ernst, Geurts, Wehenkel: *Tree-Based Batch Mode Reinforcement Learning*, JMLR 6, 2005. Backup k fits
extremely randomised trees to the N steps of the log,

    (s_i, one-hot a_i)  →  y_i = r_i + γ V_{k-1}(s_{i+1}),     V = 0 after the end of an episode,

and n(s,a) is the number of logged steps within `radius` of s with action a (all neighbours; a
training point leaves its own trajectory out). What differs is the value:

    PQI     V(s) = max over a with n(s,a)/|D| >= b of Q(s,a);  r_min/(1-γ) where there is none
    SPIBB   V(s) = ∑_a π(a|s) Q(s,a),  π in Π_b: π̂_b's mass stays where n(s,a) < n_min, all of the
            rest goes to the best action with n(s,a) >= n_min

with π̂_b from a random forest (out of bag at training points). See `dprl.learners.baselines.pqi`
and `.spibb` for the learners themselves; where states are few and repeated these are the same,
since trees grown to the end average equal inputs. PQI is uniform where nothing is supported; the
lowest of equals.

Departures from the paper (Ernst et al.):

* V_0 is not 0 but the return that followed (what the behaviour is worth): fewer backups do.
* Trees are grown anew every 5 backups up to the 25th, and then kept (as they do, to converge: while
  trees are kept only the means in their leaves move, and a backup is a contraction by γ; trees
  grown for ever would jitter for ever). `iterations` counts backups. It stops before where one with
  trees just grown, or kept for good, changes nothing beyond 1e-9.
* Only the pairs that V needs get a value.
* Trees see the coordinates of the metric (features of weight 0 are left out) less their mean, in
  scikit-learn's float32. Coordinates that float32 cannot tell apart are one state to them.
* Out of bag leaves out the step itself, not its whole trajectory, as counts do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints, Singles
from dprl._core.checks import Cut
from dprl.evidence.neighbors.engine import Engine
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.baselines.base import Facts, FeatureBaseline, Parts, Transitions
from dprl.learners.baselines.pqi import PQI
from dprl.learners.baselines.spibb import keep_rare
from dprl.planning.iteration import lowest_best, margin, one_hot
from dprl.policies.stochastic import ForestPolicy

# --- Forests whose answers depend on the data and the seed alone
#
# scikit-learn grows the trees. It would add up their answers in the order in which its threads
# finish, so only the *leaves* come from it, and the means in them are computed here, in the order
# of
# the trees. This also makes new targets cheap while the trees stay: only the means of leaves
# change.
#
# * `Regression`: ExtraTrees (Geurts, Ernst, Wehenkel 2006), no bootstrap, grown to the end; the
# mean
#   of the targets in a leaf. Equal inputs share every leaf, so they are averaged.
# * `Behavior`: a random forest (Breiman 2001); the shares of the actions in a leaf. At a training
#   point only the trees that did not see this point are used (out of bag).

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


# --- PQI and SPIBB where states are features: fitted Q-iteration on forests, counts from balls

KEPT, GROWN = 5, 5
"""Backups that share the same trees, and how often trees are grown; the last ones are kept."""

SETTLED = 1e-9
"""A change of the targets, relative to their size, that counts as no change."""


# -- fitted Q ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FittedQ:
    """Q(s, a) for any state s.

    Attributes:
        trees: The fitted trees.
        centre: float64 (d',), what is subtracted from the coordinates.
        n_actions: A, the number of actions.
        slack: Values that differ by less than this are equal.
        backups: The number of backups that were made.
        change: By how much the last backup changed a target, at most.
    """

    trees: Regression
    centre: Floats
    n_actions: int
    slack: float
    backups: int
    change: float

    def values(self, z: Floats, asked: Bools) -> Floats:
        """Q (k, A) of the requested pairs, NaN elsewhere."""
        Q = np.full(asked.shape, np.nan)
        rows, action = np.nonzero(asked)
        for i in range(0, len(rows), 1 << 16):
            r, a = rows[i : i + (1 << 16)], action[i : i + (1 << 16)]
            x = pairs_of(z, self.centre, r, a, self.n_actions)
            Q[r, a] = self.trees.at(self.trees.leaves(x))
        return Q


def fitted_q(
    data: Transitions,
    asked: Bools,
    value: Callable[[Floats], Floats],
    *,
    iterations: int,
    trees: int,
    seed: int,
    grown: int = GROWN,
    tried: float = 1.0,
) -> FittedQ:
    """Fitted Q-iteration.

    Args:
        data: The steps of a log.
        asked: bool (N, A), the pairs whose values V needs, at the states of the steps.
        value: A function from Q (N, A), NaN where not asked for, to V (N,).
        iterations: The most backups.
        trees: The number of trees in the forest.
        seed: Seed of the forest.
        grown: How often trees are grown; the last ones are kept. Default `GROWN`.
        tried: Share of the inputs that a split tries, in (0, 1]. Default 1.
    """
    points, A = data.points, data.n_actions
    rows, action = np.nonzero(asked & ~_first(data)[:, None])  # nothing leads to a first step
    x = pairs_of(points.z, data.centre, np.arange(len(data)), points.action, A)
    x_ahead = pairs_of(points.z, data.centre, rows, action, A)
    y, change, k = points.G, math.inf, 0
    for k in range(iterations):
        grows = k % KEPT == 0 and k < KEPT * grown
        if grows:
            forest = Regression.grow(x, y, trees, seed, tried=tried)
            ahead = forest.leaves(x_ahead)
        Q = np.full(asked.shape, np.nan)
        Q[rows, action] = forest.with_targets(y).at(ahead)
        new = data.targets(value(Q))
        change, y = float(np.abs(new - y).max()), new
        still = change <= SETTLED * float(np.abs(y).max())
        if still and (grows or k >= KEPT * (grown - 1)):
            break
    return FittedQ(forest.with_targets(y), data.centre, A, margin(y), k + 1, change)


def _first(data: Transitions) -> Bools:
    """bool (N,): the steps that begin an episode."""
    return np.concatenate(([True], data.last[:-1]))


@dataclass(frozen=True, eq=False)
class Counts:
    """n(s, a): the number of steps of the log within a radius.

    Attributes:
        engine: The neighbour engine over the steps of the log.
        radius: Radius of the closed ball.
    """

    engine: Engine
    radius: float

    @classmethod
    def of(cls, data: Transitions, radius: float) -> Counts:
        """The counts of a log, ready to be asked."""
        return cls(Engine.build(data.points, data.n_actions), radius)

    def at(self, z: Floats) -> Ints:
        """n (k, A) at any coordinates z (k, d)."""
        return self.engine.evidence(z, self.radius, visits="all").pair.n

    def share(self, n: Ints) -> Floats:
        """n(s,a) / |D|."""
        return np.asarray(n / len(self.engine.points))

    def training(self) -> Ints:
        """n (N, A) at the steps of the log, each without its own trajectory."""
        points = self.engine.points
        return self.engine.evidence(
            points.z, self.radius, visits="all", leave_out=points.episode
        ).pair.n


# -- PQI --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FittedPQI(FeatureBaseline[ForestPolicy]):
    """PQI for states of numeric features.

    Attributes:
        b: The share of all steps an action needs near a state to be supported there, in (0, 1].
        radius: The largest distance of a neighbour, in the metric; at least 0.
        gamma: Discount in (0, 1].
        metric: How the distance between two states is measured. Default `Metric()`.
        iterations: The most backups. Default 50; `provenance["backups"]` says how many were needed.
        trees: The number of trees in the forest. Default 100.
        seed: Seed of the forest. Default 0.
        r_min: The smallest possible reward; a state without supported actions is worth r_min/(1-γ).
            Default 0.
        cut: What to do with cut episodes: "drop" or "terminal". Default None: as "terminal", with a
            CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import FittedPQI
        >>> from dprl.envs import PointMass
        >>> log = PointMass().sample(30, seed=0)
        >>> learner = FittedPQI(
        ...     b=0.05, radius=0.5, gamma=0.97, trees=5, iterations=5, cut="drop"
        ... )
        >>> policy = learner.fit(log)
        >>> policy.probabilities([[0.3, 0.5]]).shape
        (1, 4)
    """

    b: float
    radius: float
    gamma: float
    metric: Metric = field(default_factory=Metric)
    iterations: int = 50
    trees: int = 100
    seed: int = 0
    r_min: float = 0.0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        PQI(b=self.b, gamma=self.gamma, r_min=self.r_min)  # the same checks as PQI

    @property
    def floor(self) -> float:
        """The value of a state in which no action is supported."""
        return PQI(b=self.b, gamma=self.gamma, r_min=self.r_min).floor

    def learned(self, data: Transitions) -> tuple[type[ForestPolicy], Parts, Facts]:
        """The policy that is best if everything rare is as bad as possible.

        Args:
            data: The steps of a log.

        Returns:
            The kind of policy, the rule that decides, and how many backups it took.

        Example:
            >>> from dprl.baselines import FittedPQI
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> learner = FittedPQI(
            ...     b=0.05, radius=0.5, gamma=0.97, trees=5, iterations=5, cut="drop"
            ... )
            >>> policy = learner.fit(log)
            >>> policy.actions
            ('up', 'right', 'down', 'left')
        """
        counts = Counts.of(data, self.radius)
        supported = counts.share(counts.training()) >= self.b

        def value(Q: Floats) -> Floats:
            best = np.where(supported, Q, -np.inf).max(axis=1)
            return np.where(supported.any(axis=1), best, self.floor)

        Q = fitted_q(
            data, supported, value, iterations=self.iterations, trees=self.trees, seed=self.seed
        )
        facts = {"backups": Q.backups, "last_change": Q.change}
        return ForestPolicy, {"rule": Pessimistic(Q, counts, self.b)}, facts


@dataclass(frozen=True, eq=False)
class Pessimistic:
    """The best supported action; uniform where no action is supported.

    Attributes:
        Q: The fitted values.
        counts: The numbers of neighbours.
        b: The share of the steps an action needs nearby.
    """

    Q: FittedQ
    counts: Counts
    b: float

    def probabilities(self, z: Floats) -> Floats:
        """π (k, A) at coordinates z (k, d)."""
        supported = self.counts.share(self.counts.at(z)) >= self.b
        best = lowest_best(self.Q.values(z, supported), supported, self.Q.slack)
        return one_hot(best, np.any(supported, axis=1), self.Q.n_actions)


# -- SPIBB ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FittedSPIBB(FeatureBaseline[ForestPolicy]):
    """SPIBB (Π_b) for states of numeric features.

    Attributes:
        n_min: The number of neighbours an action needs before the policy may choose its probability
            freely: a whole number >= 1, or infinity.
        radius: The largest distance of a neighbour, in the metric; at least 0.
        gamma: Discount in (0, 1].
        metric: How the distance between two states is measured. Default `Metric()`.
        iterations: The most backups. Default 50; `provenance["backups"]` says how many were needed.
        trees: The number of trees in each forest. Default 100.
        seed: Seed of the forests. Default 0.
        cut: What to do with cut episodes: "drop" or "terminal". Default None: as "terminal", with a
            CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import FittedSPIBB
        >>> from dprl.envs import PointMass
        >>> log = PointMass().sample(30, seed=0)
        >>> learner = FittedSPIBB(
        ...     n_min=5, radius=0.5, gamma=0.97, trees=5, iterations=5, cut="drop"
        ... )
        >>> policy = learner.fit(log)
        >>> policy.probabilities([[0.3, 0.5]]).shape
        (1, 4)
    """

    n_min: float
    radius: float
    gamma: float
    metric: Metric = field(default_factory=Metric)
    iterations: int = 50
    trees: int = 100
    seed: int = 0
    cut: Cut | None = None

    def learned(self, data: Transitions) -> tuple[type[ForestPolicy], Parts, Facts]:
        """The improvement on the behaviour that a log supports.

        Args:
            data: The steps of a log.

        Returns:
            The kind of policy, the rule that decides, and how many backups it took.

        Example:
            >>> from dprl.baselines import FittedSPIBB
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> learner = FittedSPIBB(
            ...     n_min=5, radius=0.5, gamma=0.97, trees=5, iterations=5, cut="drop"
            ... )
            >>> policy = learner.fit(log)
            >>> policy.actions
            ('up', 'right', 'down', 'left')
        """
        counts = Counts.of(data, self.radius)
        pi_b = _behavior(data, self.trees, self.seed)
        Q = self._improved(data, counts.training() >= self.n_min, pi_b.out_of_bag(data.points.z))
        facts = {"backups": Q.backups, "last_change": Q.change}
        return ForestPolicy, {"rule": Bootstrapped(Q, counts, pi_b, self.n_min)}, facts

    def _improved(self, data: Transitions, free: Bools, pi_b: Floats) -> FittedQ:
        """Q of the best policy in Π_b; free (N, A), π̂_b (N, A)."""

        def value(Q: Floats) -> Floats:
            pi = keep_rare(Q, free, pi_b, 0.0)
            return np.asarray(np.where(pi > 0, pi * Q, 0.0).sum(axis=1))

        return fitted_q(
            data,
            free | (pi_b > 0),
            value,
            iterations=self.iterations,
            trees=self.trees,
            seed=self.seed,
        )


@dataclass(frozen=True, eq=False)
class Bootstrapped:
    """The behaviour on rare actions, the best free action for the rest.

    Attributes:
        Q: The fitted values.
        counts: The numbers of neighbours.
        behavior: π̂_b.
        n_min: The number of neighbours that makes an action free.
    """

    Q: FittedQ
    counts: Counts
    behavior: Behavior
    n_min: float

    def probabilities(self, z: Floats) -> Floats:
        """π (k, A) at coordinates z (k, d)."""
        free = self.counts.at(z) >= self.n_min
        return keep_rare(self.Q.values(z, free), free, self.behavior.probabilities(z), self.Q.slack)


# -- behaviour --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ForestBC(FeatureBaseline[ForestPolicy]):
    """Behaviour cloning for states of numeric features, by a random forest.

    Attributes:
        trees: The number of trees in the forest. Default 100.
        seed: Seed of the forest. Default 0.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import ForestBC
        >>> from dprl.envs import PointMass
        >>> log = PointMass().sample(30, seed=0)
        >>> policy = ForestBC(trees=5).fit(log)
        >>> policy.probabilities([[0.3, 0.5]]).shape
        (1, 4)
    """

    trees: int = 100
    seed: int = 0

    def learned(self, data: Transitions) -> tuple[type[ForestPolicy], Parts, Facts]:
        """The behaviour that a log shows.

        Args:
            data: The steps of a log.

        Returns:
            The kind of policy, the forest that decides, and no facts.

        Example:
            >>> from dprl.baselines import ForestBC
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> policy = ForestBC(trees=5).fit(log)
            >>> policy.actions
            ('up', 'right', 'down', 'left')
        """
        return ForestPolicy, {"rule": _behavior(data, self.trees, self.seed)}, {}


def _behavior(data: Transitions, trees: int, seed: int) -> Behavior:
    """π̂_b of the steps of a log."""
    points = data.points
    return Behavior.grow(points.z, points.action, data.centre, data.n_actions, trees, seed)
