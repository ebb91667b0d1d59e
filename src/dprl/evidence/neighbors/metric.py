r"""How far apart two states are: scaled and weighted Euclidean distance.

    d(s, s')^2 = \sum_i w_i ((s_i - s'_i) / scale_i)^2

Weights act on the *squared* difference, after scaling. A fitted metric moves features into
coordinates where that is plain Euclidean distance, z_i = s_i · sqrt(w_i) / scale_i, so no other
module needs scales or weights. Features of weight 0 are dropped.

A category is a column of 0 and 1 per label (`dprl.logs.encoding.encoder`). Its columns are divided
by √2, whatever the scale of numbers, so that two different labels are sqrt(w) apart: at weight 1
as far as one standard deviation of a number. A weight is given by the name of the category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Singles, frozen
from dprl._core.words import either, option, worded
from dprl.errors import LogError, ParameterError
from dprl.evidence.neighbors.scales import SCALES
from dprl.logs.encoding.encoder import encoding_of
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Facts, Log

# --- Coordinates to search in: the same distances, the most informative dimensions first
#
# The features of real data are correlated. In coordinates along their principal axes,
#
#     w = (z - m) R,    R orthogonal,    ||w - w'|| = ||z - z'||,
#
# the first few carry most of every distance: boxes become tight, and a sum of squares exceeds r²
# after a few terms. Features of few values (flags, levels, scores) stay as they are: one cut
# between two values separates them completely. Where features are not correlated, R only sorts them
# by variance.
#
# **The error.** These coordinates only *find* candidates. For points near the boundary the rule
# decides, in the original coordinates, so only a bound is needed. Let u = 2^-53 and ε = 2u.
#
# 1. v = z - m is one rounding per coordinate: off by at most u ||v||, however far from the origin z
#    lies. m may be any place; it does not matter that it is a rounded mean: it is the same for all.
# 2. A coordinate of w = v R is a sum of d products, in any order, fused or not: off by at most
#    d u / (1 - d u) · ||v|| ||R_j||, all d of them together by sqrt(d) times that.
# 3. So w is the exact (z - m) R to within (sqrt(d) d + 1) u (1 + o) ||v||, where o bounds
#    ||R'R - I||, which is below half of what we allow: sqrt(d) (d + 2) ε ||v||.
# 4. The exact images of two points differ by (z - z') R; m has dropped out. Its squared length is
#    ||z - z'||² to a factor within 1 ± o, as R R' - I has the eigenvalues of R'R - I (R is
#    square).
# 5. o is computed: from d² sums of d products, each off by about d u, so the Frobenius norm is off
#    by at most d² u; we add twice that.
#
# Hence, with κ := o + d² ε and E := sqrt(d) (d + 2) ε (||v|| + ||v'||),
#
#     | ||w - w'|| - ||z - z'|| |  <=  κ ||z - z'|| + E.
#
# For a query ||w|| stands for ||v||, and the farthest point's for the other: they differ by less
# than the half we have to spare. Two further roundings are far inside the κ of float32 below: the
# rule's own (its sum is right to d + 2 units u) and that of r · r.
#
# **Boxes** are kept in float32, rounded outward, so they hold their points. A query rounded to
# float32 moves by at most 2^-24 ||w||, and the D squares, D differences and D sums of a corner's
# distance are right to (D + 3) 2^-24; we allow 2^-23 ||w|| and 2 (D + 8) 2^-24, on the radius,
# which is twice that on its square. What float32 loses below 1e-30 can only make a box look nearer,
# and is added to r²; at the other end, a ball that small holds no box, and none of more than 1e19.

STEP = 4
"""The number of dimensions a kernel handles at a time; coordinates are padded with zeros."""

EPS, U2 = 2.0**-52, 2.0**-23
SAMPLE = 20_000
WORTH = 1.2
"""Rotate if this multiplies the variance of the first quarter of the dimensions by this factor."""
FEW = 16
"""Features with at most this many values (flags, levels, scores) are not rotated."""
TINY, HUGE = 1e-30, 1e38
"""The range of squares that float32 holds with all its digits."""


class Sketch(NamedTuple):
    """An orthogonal change of coordinates.

    Attributes:
        mean: float64 (d,), the origin of the new coordinates.
        R: float64 (d, d), the orthogonal matrix.
        kappa: The relative error of distances.
        reach: The largest distance of a point from `mean`, ||v||.
    """

    mean: Floats
    R: Floats
    kappa: float
    reach: float

    @classmethod
    def of(cls, z: Floats) -> Sketch:
        """The principal axes of points (N, d), the widest first."""
        sample = z[:: -(-len(z) // SAMPLE)]
        mean, d = sample.mean(axis=0), z.shape[1]
        v = sample - mean
        many = np.array([len(np.unique(x)) > FEW for x in v[:: -(-len(v) // 1000)].T])
        R, variance = np.eye(d), np.square(v).sum(axis=0)
        if many.any():
            size, axes = np.linalg.eigh(v[:, many].T @ v[:, many])
            first = -(-d // 4)
            after = variance.copy()
            after[many] = size
            if np.sort(after)[-first:].sum() > WORTH * np.sort(variance)[-first:].sum():
                R[np.ix_(many, many)] = axes
                variance = after
        R = np.ascontiguousarray(R[:, np.argsort(-variance, kind="stable")])
        kappa = float(np.linalg.norm(R.T @ R - np.eye(d))) + EPS * d * d
        reach = max(float(np.linalg.norm(z[i : i + 8192] - mean, axis=1).max())
                    for i in range(0, len(z), 8192))  # fmt: skip
        return cls(mean, R, kappa, reach)

    def transform(self, z: Floats) -> Floats:
        """w (N, D) of z (N, d); D is d rounded up to whole steps."""
        w = np.zeros((len(z), padded(len(self.mean))))
        for i in range(0, len(z), 8192):  # no second copy of all points
            w[i : i + 8192, : len(self.mean)] = (z[i : i + 8192] - self.mean) @ self.R
        return w


def padded(d: int) -> int:
    """d, rounded up to whole steps."""
    return -(-d // STEP) * STEP


class Asked(NamedTuple):
    """Q queries, ready for the kernels.

    Attributes:
        z: float64 (Q, d), the original coordinates, for the rule.
        w: float64 (Q, D), the search coordinates.
        p: float32 (Q, D), the search coordinates for comparing with boxes.
        slack: float64 (Q,), the bound E of the error of distances in w.
        skip: float32 (Q,), boxes with a larger near² hold no neighbour.
        whole: float32 (Q,), boxes with far² up to this hold only neighbours; -1 if that is never
            sure.
        radius: The radius of all balls.
    """

    z: Floats
    w: Floats
    p: Singles
    slack: Floats
    skip: Singles
    whole: Singles
    radius: float


def ask(sketch: Sketch, z: Floats, radius: float) -> Asked:
    """Queries z (Q, d) in both coordinates, with thresholds on the safe side."""
    d, w = z.shape[1], sketch.transform(z)
    length = np.linalg.norm(w, axis=1)
    slack = np.sqrt(d) * (d + 2) * EPS * (sketch.reach + length)
    kappa, E = 2 * sketch.kappa + U2 * (w.shape[1] + 8), slack + U2 * length
    with np.errstate(over="ignore"):
        skip = ((radius + E) * (1 + kappa)) ** 2 + TINY
        whole = np.minimum((np.maximum(radius - E, 0.0) * (1 - kappa)) ** 2, HUGE)
        whole = np.where(whole > TINY, whole, -1.0).astype(np.float32)
        return Asked(
            frozen(z), w, w.astype(np.float32), slack, skip.astype(np.float32), whole, radius
        )


# --- How far apart two states are: scaled and weighted Euclidean distance

Scale: TypeAlias = str | Mapping[str, float] | Sequence[float]

LARGEST = 1e18
"""Larger coordinates are refused: their squares would leave the range of the float32 filter."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How the distance between two states of numeric features is measured.

    Attributes:
        scale: What each feature is divided by: "std" (its standard deviation in the training log),
            "robust" (its interquartile range / 1.349), "none", another that has a name
            (`dprl.evidence.neighbors.scales`), or the scales themselves, one number per feature, by
            name or in the order of the features. Default "std".
        weights: Feature name → weight >= 0 of its squared difference. Features that are not named
            have weight 1. Default None: all weights are 1.

    Raises:
        ParameterError: If `scale` or a weight is not allowed.

    Example:
        >>> import dprl
        >>> dprl.Metric(scale="robust", weights={"age": 0.5})
        Metric(scale='robust', weights={'age': 0.5})
    """

    scale: Scale = "std"
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.scale, str) and SCALES.find(self.scale) is None:
            names = ", ".join(map(repr, SCALES))
            raise ParameterError(f"scale must be {names} or the scales; got {self.scale!r}.")
        if not isinstance(self.scale, str | Mapping | Sequence | np.ndarray):
            raise ParameterError(
                f"scale must be a word or one number per feature; got {self.scale!r}."
            )
        if self.weights is not None and not isinstance(self.weights, Mapping):
            raise ParameterError(f"weights go by feature name: {{'x': 2.0}}; got {self.weights!r}.")
        if isinstance(self.scale, Mapping):
            object.__setattr__(self, "scale", Facts(self.scale))
        if self.weights is not None:
            for name, weight in self.weights.items():
                if not (_is_number(weight) and 0 <= weight < np.inf):
                    raise ParameterError(
                        f"a weight must be a number >= 0; feature {name!r} has {weight!r}."
                    )
            object.__setattr__(self, "weights", Facts(self.weights))

    def words(self) -> dict[str, Any]:
        """The metric as values JSON can hold, for the parameters of a policy.

        Returns:
            "scale" (a word; "given" for numbers) and "weights".

        Example:
            >>> import dprl
            >>> dprl.Metric(scale={"x": 2.0}).words()
            {'scale': 'given', 'weights': {}}
        """
        scale = self.scale if isinstance(self.scale, str) else "given"
        return {"scale": scale, "weights": dict(self.weights or {})}

    def fit(self, log: Log) -> FittedMetric:
        """The metric with the scales of a log.

        Args:
            log: A log whose states are features.

        Returns:
            The metric with its numbers, which can transform states.

        Raises:
            LogError: If the states of the log are labels.
            ParameterError: If a weight or scale names no feature of the log, or all weights are 0.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 1, 2], state=[[0.0, 10.0], [4.0, 10.0], [2.0, 40.0]],
            ...     action=["a", "b", "b"], reward=[0, 1, 0], feature_names=["x", "y"],
            ... )
            >>> dprl.Metric().fit(log).scale.round(3).tolist()
            [1.633, 14.142]
        """
        if log.features is None:
            raise LogError(
                f"this log's states are {log.n_states} labels, not numeric features.",
                do=worded(
                    "Distances need features: pass {choice} when reading.",
                    choice=either("state=['name', ...] or 'x_*'", "--state name"),
                ),
            )
        names, x = log.feature_names, plain_features(log)
        weight, categories, flags = np.ones(len(names)), _categories(log), _flags(log)
        for name, value in (self.weights or {}).items():
            if name in categories:
                weight[[names.index(one) for one in categories[name]]] = value
                continue
            if name in flags and flags[name] not in (self.weights or {}):
                weight[names.index(flags[name])] = value
            if name not in names:
                raise ParameterError(
                    f"a weight is given for {name!r}, which is no feature of this log.",
                    do=f"Features: {', '.join(names)}.",
                )
            weight[names.index(name)] = value
        if not weight.any():
            raise ParameterError("no feature has a weight above 0: all states would be the same.")
        alone = {flag: [flag] for flag in flags.values()}  # not scaled by how often it is 1
        scale, notes = self._scales(x, names, {**categories, **alone})
        scale[[names.index(flag) for flag in flags.values()]] = 1.0
        notes += tuple(
            f"{name!r} is a category of {len(own):,} labels: two different ones are "
            f"{np.sqrt(weight[names.index(own[0])]):g} apart (its weight is "
            f"{weight[names.index(own[0])]:g})."
            for name, own in categories.items()
        )
        notes += tuple(
            f"{name!r} is filled where it is missing, and {flag!r} is 1 there: a missing one is "
            f"{np.sqrt(weight[names.index(flag)]):g} apart from a known one at the median (its "
            f"weight is {weight[names.index(flag)]:g})."
            for name, flag in flags.items()
        )
        with np.errstate(over="ignore"):
            factor = np.sqrt(weight) / scale
        if not np.isfinite(factor).all():
            name = names[int(np.argmin(np.isfinite(factor)))]
            raise ParameterError(f"the scale of {name!r} is too close to 0 to divide by.")
        return FittedMetric(names, scale, weight, notes)

    def _scales(
        self, x: Floats, names: tuple[str, ...], categories: Mapping[str, Sequence[str]]
    ) -> tuple[Floats, tuple[str, ...]]:
        """The scales (d,), and notes for the user about them."""
        if categories:
            places = [names.index(one) for own in categories.values() for one in own]
            others = np.setdiff1d(np.arange(len(names)), places)
            mixed, words = np.full(len(names), np.sqrt(2.0)), tuple[str, ...]()
            if len(others):
                mixed[others], words = self._scales(
                    x[:, others], tuple(names[i] for i in others), {}
                )
            return mixed, words
        if not isinstance(self.scale, str):
            return self._given(names), ()
        named = SCALES[self.scale]
        if named.of is None:
            return np.ones(len(names)), ()
        if not len(x):
            raise LogError(
                worded("{scale} needs at least one step.", scale=option("scale", self.scale))
            )
        spread = named.of(x)
        lacking = np.flatnonzero((spread == 0) & (np.ptp(x, axis=0) > 0)) if named.lacks else ()
        notes = [f"{names[i]!r} {named.lacks}: scaled by its std." for i in lacking]
        scale = np.where(spread > 0, spread, np.std(x, axis=0))
        for i in np.flatnonzero((np.ptp(x, axis=0) == 0) | (scale == 0)):
            notes.append(f"{names[i]!r} is constant in this log: left unscaled.")
            scale[i] = 1.0
        return np.asarray(scale), tuple(notes)

    def _given(self, names: tuple[str, ...]) -> Floats:
        """The scales the user gave, in the order of the features."""
        given: Any = self.scale
        if isinstance(given, Mapping):
            missing = [name for name in names if name not in given]
            unknown = [name for name in given if name not in names]
            if missing or unknown:
                what = f"no scale is given for {missing[0]!r}" if missing else (
                    f"a scale is given for {unknown[0]!r}, which is no feature of this log"
                )  # fmt: skip
                raise ParameterError(f"{what}.", do=f"Features: {', '.join(names)}.")
            given = [given[name] for name in names]
        if len(given) != len(names):
            raise ParameterError(f"{len(given)} scales are given for {len(names)} features.")
        for name, value in zip(names, given, strict=True):
            if not (_is_number(value) and 0 < value < np.inf):
                raise ParameterError(f"the scale of {name!r} must be above 0; got {value!r}.")
        return np.array(given, np.float64)


@dataclass(frozen=True, eq=False)
class FittedMetric:
    """A metric with the scales of a log.

    Attributes:
        names: The names of the d features.
        scale: float64 (d,), what each feature is divided by.
        weight: float64 (d,), the weight of each squared difference.
        notes: What is unusual about the scales, in words.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=[1, 1, 2], state=[[0.0, 10.0], [4.0, 10.0], [2.0, 40.0]],
        ...     action=["a", "b", "b"], reward=[0, 1, 0], feature_names=["x", "y"],
        ... )
        >>> dprl.Metric(scale="none", weights={"y": 0}).fit(log).weight.tolist()
        [1.0, 0.0]
    """

    names: tuple[str, ...]
    scale: Floats
    weight: Floats
    notes: tuple[str, ...] = ()

    def transform(self, features: NDArray[Any]) -> Floats:
        """Coordinates in which the distance is plain Euclidean distance.

        Args:
            features: Numbers (N, d), in the order of `names`.

        Returns:
            float64 (N, d'), without the features of weight 0.

        Raises:
            ParameterError: If `features` has another number of columns.
            LogError: If a feature is not finite, or is beyond 1e18 after scaling.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=[1, 1, 2], state=[[0.0, 10.0], [4.0, 10.0], [2.0, 40.0]],
            ...     action=["a", "b", "b"], reward=[0, 1, 0], feature_names=["x", "y"],
            ... )
            >>> metric = dprl.Metric(scale=[2.0, 10.0], weights={"y": 4.0}).fit(log)
            >>> metric.transform([[4.0, 10.0]]).tolist()
            [[2.0, 2.0]]
        """
        x = np.asarray(features, np.float64)
        if x.ndim != 2 or x.shape[1] != len(self.names):
            raise ParameterError(
                f"states need {len(self.names)} features in columns; got shape {x.shape}.",
                do=f"Features: {', '.join(self.names)}.",
            )
        weighted = np.flatnonzero(self.weight)
        finite = np.isfinite(x)
        if not finite.all():
            row, i = np.argwhere(~finite)[0]
            raise LogError(
                f"feature {self.names[i]!r} is not a finite number in "
                f"{np.count_nonzero(~finite[:, i]):,} of {len(x):,} states.",
                f"state {row}: {x[row, i]}",
                "A distance needs every feature. Fill it, or leave the feature out.",
            )
        with np.errstate(over="ignore"):
            z = x[:, weighted] * (np.sqrt(self.weight) / self.scale)[weighted]
        large = np.abs(z) > LARGEST
        if large.any():
            row, i = np.argwhere(large)[0]
            raise LogError(
                f"feature {self.names[weighted[i]]!r} is beyond 1e18 after scaling.",
                f"state {row}: {x[row, weighted[i]]:g}",
                "Is it a code for 'missing', or in the wrong unit?",
            )
        return z


def _categories(log: Log) -> dict[str, list[str]]:
    """Each category of a log that is encoded by indicators → their names."""
    encoding = encoding_of(log.columns)
    if encoding is None or encoding.how != "indicators":
        return {}
    every = {name: encoding.indicators(name) for name in encoding.columns}
    return {name: own for name, own in every.items() if encoding.columns[name] and own != [name]}


def _flags(log: Log) -> dict[str, str]:
    """Each number whose gaps are flagged → the name of its flag."""
    encoding = encoding_of(log.columns)
    if encoding is None or encoding.how != "indicators":
        return {}
    every = {name: encoding.indicators(name) for name in encoding.columns}
    return {n: own[1] for n, own in every.items() if not encoding.columns[n] and len(own) == 2}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
