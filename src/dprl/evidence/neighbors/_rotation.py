r"""Coordinates to search in: the same distances, the most informative dimensions first.

The features of real data are correlated. In coordinates along their principal axes,

    w = (z - m) R,    R orthogonal,    ||w - w'|| = ||z - z'||,

the first few carry most of every distance: boxes become tight, and a sum of squares exceeds r²
after a few terms. Features of few values (flags, levels, scores) stay as they are: one cut between
two values separates them completely. Where features are not correlated, R only sorts them by
variance.

**The error.** These coordinates only *find* candidates. For points near the boundary the rule
decides, in the original coordinates, so only a bound is needed. Let u = 2^-53 and ε = 2u.

1. v = z - m is one rounding per coordinate: off by at most u ||v||, however far from the origin z
   lies. m may be any place; it does not matter that it is a rounded mean: it is the same for all.
2. A coordinate of w = v R is a sum of d products, in any order, fused or not: off by at most
   d u / (1 - d u) · ||v|| ||R_j||, all d of them together by sqrt(d) times that.
3. So w is the exact (z - m) R to within (sqrt(d) d + 1) u (1 + o) ||v||, where o bounds
   ||R'R - I||, which is below half of what we allow: sqrt(d) (d + 2) ε ||v||.
4. The exact images of two points differ by (z - z') R; m has dropped out. Its squared length is
   ||z - z'||² to a factor within 1 ± o, as R R' - I has the eigenvalues of R'R - I (R is square).
5. o is computed: from d² sums of d products, each off by about d u, so the Frobenius norm is off by
   at most d² u; we add twice that.

Hence, with κ := o + d² ε and E := sqrt(d) (d + 2) ε (||v|| + ||v'||),

    | ||w - w'|| - ||z - z'|| |  <=  κ ||z - z'|| + E.

For a query ||w|| stands for ||v||, and the farthest point's for the other: they differ by less than
the half we have to spare. Two further roundings are far inside the κ of float32 below: the rule's
own (its sum is right to d + 2 units u) and that of r · r.

**Boxes** are kept in float32, rounded outward, so they hold their points. A query rounded to
float32 moves by at most 2^-24 ||w||, and the D squares, D differences and D sums of a corner's
distance are right to (D + 3) 2^-24; we allow 2^-23 ||w|| and 2 (D + 8) 2^-24, on the radius,
which is twice that on its square. What float32 loses below 1e-30 can only make a box look nearer,
and is added to r²; at the other end, a ball that small holds no box, and none of more than 1e19.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["STEP", "U2", "Asked", "Sketch", "ask", "padded"]

Floats: TypeAlias = NDArray[np.float64]

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
