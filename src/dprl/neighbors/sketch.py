r"""Coordinates to search in: the same distances, the telling dimensions first.

The features of real data move together. In coordinates along their principal axes,

    w = (z - m) R,    R orthogonal,    ||w - w'|| = ||z - z'||,

the first few carry most of every distance: boxes become tight, and a sum of squares exceeds r²
after a few terms. These coordinates only *find* candidates. Whoever is near the boundary is asked
by the rule, in the original coordinates, so what matters is a bound of their error. With v = z - m,
d dimensions, ε = 2^-52 and o = ||R'R - I||, computed products and sums give

    | ||w - w'|| - ||z - z'|| |  <=  (o + ε d) ||z - z'|| + sqrt(d) (d + 2) ε (||v|| + ||v'||)
                                 =:  κ ||z - z'|| + E

of which half would do. Where features do not move together, R only sorts them by variance.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["STEP", "U2", "Asked", "Sketch", "ask", "padded"]

Floats: TypeAlias = NDArray[np.float64]

STEP = 4
"""Kernels take so many dimensions at a time; coordinates are padded with zeros."""

EPS, U2 = 2.0**-52, 2.0**-23
SAMPLE = 20_000
WORTH = 1.2
"""Rotate where the first quarter of the dimensions gains this factor in variance."""
FEW = 16
"""Features with no more values (flags, levels, scores) are parted best as they are."""
TINY, HUGE = 1e-30, 1e38
"""Squares that float32 holds with all its digits."""


class Sketch(NamedTuple):
    """An orthogonal change of coordinates.

    Attributes:
        mean: float64 (d,).
        R: float64 (d, d), orthogonal.
        kappa: Relative error of distances.
        reach: The largest ||v|| of the points.
    """

    mean: Floats
    R: Floats
    kappa: float
    reach: float

    @classmethod
    def of(cls, z: Floats) -> Sketch:
        """Principal axes of points (N, d), the widest first."""
        some = z[:: -(-len(z) // SAMPLE)]
        mean, d = some.mean(axis=0), z.shape[1]
        v = some - mean
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
        """w (N, D) of z (N, d), D = d rounded up to whole steps."""
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
        z: float64 (Q, d), for the rule.
        w: float64 (Q, D), for the search.
        p: float32 (Q, D), the same for boxes.
        slack: float64 (Q,), the bound E of the error of distances in w.
        skip: float32 (Q,), boxes with near² above it hold no neighbour.
        whole: float32 (Q,), boxes with far² up to it hold nothing else; -1: cannot be told.
        radius: Of all balls.
    """

    z: Floats
    w: Floats
    p: NDArray[np.float32]
    slack: Floats
    skip: NDArray[np.float32]
    whole: NDArray[np.float32]
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
        return Asked(z, w, w.astype(np.float32), slack, skip.astype(np.float32), whole, radius)
