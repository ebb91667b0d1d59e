"""Is the model of what people do refuted? Its errors against functions of the features, by group.

With b̂ from other groups than a row's own, the errors 1{a_t = a} - b̂_a(x_t) have mean 0 wherever one
looks, if b̂ is right. For a function h of the features

    u_g = ∑_{t in g} (1{a_t = a} - b̂_a(x_t)) h(x_t)        z_h = ∑_g u_g / s_h

    s_h² = max(∑_g u_g², ∑_t b̂_a (1 - b̂_a) h²)

and the largest |z_h| over all functions and actions is compared with the 1 - `LEVEL` quantile of
max_h |∑_g ξ_g u_g| / s_h with random signs ξ_g. (The second term of s_h is what the variance is if
b̂ is right: where b̂ is .85 and all of thirty took the action, the first is far too small.) Beyond
it b̂ is *refuted*: who was treated depends on more than the model of it, and a contrast of actions
there may be due to that. These functions see no outcome, so no claim about outcomes is spoilt.

**What outcomes go with.** A contrast is false only where the errors of b̂ go with what outcomes go
with, so one more test, of few functions and hence sharp, asks just that: `aimed`, values at a row
that models of outcomes foretell from other groups. Where practice and outcomes share a shape that
no model has found whole (a checkerboard, a product of four signs), what was found of it is enough
to see that something is left. It can only take claims away, so it spoils none.

The functions (`Shapes`): every feature, squares and products of two, steps (a feature is above a
quantile), corners (two features are) and crosses (one of two is), waves of one feature and of two,
and b̂ itself. A model that passes may still be wrong in ways that none of them sees: triple
products, say. The same functions are what models are made of (`pursued`); where b̂ is refuted all
the same, `dprl.evidence.nuisances` puts the refuting ones into the models and fits them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints

Key: TypeAlias = tuple[str, tuple[int, ...], tuple[float, ...]]
"""A function of the features: its kind, the columns it is of, and its numbers."""

LEVEL = 0.05
"""The chance that a sound model is refuted, for large samples."""
DRAWS = 400
"""Draws of the random signs."""
LEAST = 10
"""Groups that took an action, and groups that did not, before its errors are tested."""
MOST = 20_000
"""The most rows of a test, in whole groups."""
AT_ONCE = 128
"""How many functions are computed at a time."""
STEPS = 15
"""Quantiles at which steps of one feature are."""
CORNERS = ((7, 6), (5, 15), (3, 130), (1, np.inf))
"""Quantiles of each of two numbers at which corners are, and for how many pairs at most."""
FEW = 15
"""Pairs of numbers up to which there are waves of two."""
FINER = 21
"""Cuts that are tried between two quantiles."""
WAVES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
"""Frequencies of waves of one feature, per standard deviation."""
TURNS = tuple((v, s * w) for v in (1.0, 2.0, 3.0) for w in (1.0, 2.0, 3.0) for s in (1.0, -1.0))
"""Frequencies of waves of two features."""
ADDED = 8
"""How many refuting functions are named at most."""
ALIKE = 0.7
"""Correlation from which on two refuting functions are one."""


class Shapes:
    """Functions of the columns of a log's rows: what a model may be wrong about.

    Attributes:
        keys: The functions: each column, products of two, steps (a number above a quantile),
            corners (two numbers, both) and crosses (just one of the two), waves of one number and
            of two.
        apart: How far apart cuts of corners and crosses are, in quantiles.

    Args:
        base: float64 (n, B), columns without gaps, standardised; numbers first.
        numbers: How many of them are numbers; the others are 0 and 1.
    """

    def __init__(self, base: Floats, numbers: int) -> None:
        own = [j for j in range(numbers) if np.ptp(base[:, j]) > 0]
        pairs = [(i, j) for i in own for j in own if i < j]
        each = next(count for count, most in CORNERS if len(pairs) <= most)
        self.apart = 1 / (each + 1)
        cuts = {(j, n): _cuts(base[:, j], n) for j in own for n in (STEPS, each)}
        B = base.shape[1]
        self.keys: list[Key] = [("line", (j,), ()) for j in range(B)]
        self.keys += [
            ("product", (i, j), ())
            for i in range(B) for j in range(i, B) if i != j or i in own
        ]  # fmt: skip
        self.keys += [("above", (j,), (c,)) for j in own for c in cuts[j, STEPS]]
        self.keys += [
            (kind, (i, j), (c, d)) for kind in ("corner", "cross")
            for i, j in pairs for c in cuts[i, each] for d in cuts[j, each]
        ]  # fmt: skip
        self.keys += [("wave", (j,), (w, s)) for j in own for w in WAVES for s in (0.0, 1.0)]
        turns = TURNS if len(pairs) <= FEW else ()
        self.keys += [
            ("wave", (i, j), (*w, s)) for i, j in pairs for w in turns for s in (0.0, 1.0)
        ]


def _cuts(column: Floats, count: int) -> list[float]:
    """Quantiles of a number, each once, with rows on both sides."""
    cuts = np.unique(np.quantile(column, np.linspace(0, 1, count + 2)[1:-1]))
    return [float(c) for c in cuts if column.min() <= c < column.max()]


def values_of(keys: Sequence[Key], base: Floats) -> Floats:
    """float64 (n, keys), what functions are at rows with these columns."""
    out = np.empty((len(base), len(keys)), order="F")
    for k, (kind, places, numbers) in enumerate(keys):
        first = base[:, places[0]]
        if kind == "line":
            out[:, k] = first
        elif kind == "product":
            out[:, k] = first * base[:, places[1]]
        elif kind == "above":
            out[:, k] = first > numbers[0]
        elif kind == "corner":
            out[:, k] = (first > numbers[0]) & (base[:, places[1]] > numbers[1])
        elif kind == "cross":
            out[:, k] = (first > numbers[0]) != (base[:, places[1]] > numbers[1])
        else:
            angle = first * numbers[0]
            if len(places) == 2:
                angle = angle + base[:, places[1]] * numbers[1]
            out[:, k] = np.cos(angle) if numbers[-1] else np.sin(angle)
    return out


def pursued(base: Floats, numbers: int, targets: Floats, most: int) -> list[Key]:
    """The functions that tell most of what lines leave open, one after the other.

    Each is the one with the largest correlation with what is left, after the lines and those before
    it; none is taken that chance among so many would explain.

    Args:
        base: float64 (n, B), the columns, as `Shapes` takes them.
        numbers: How many of them are numbers.
        targets: float64 (n, k), what is foretold.
        most: The most functions.
    """
    from scipy.special import chdtri

    shapes = Shapes(base, numbers)
    keys = shapes.keys
    known, _ = np.linalg.qr(np.column_stack([np.ones(len(base)), base]))
    h = values_of(keys, base)
    size = (h**2).sum(axis=0)
    h -= known @ (known.T @ h)
    left = targets - known @ (known.T @ targets)
    chosen: list[Key] = []
    freedom = max(targets.shape[1] - 1, 1)
    enough = float(chdtri(freedom, 1 / (2 * len(keys)))) * targets.shape[1] / freedom
    for _ in range(most):
        said = _said(h, size, left)
        best = int(np.argmax(said))
        if not said[best] > enough:
            break
        key = _sharper(keys[best], shapes.apart, base, known, left)
        chosen.append(key)
        q = values_of([key], base)[:, 0]
        q -= known @ (known.T @ q)
        q /= np.sqrt(q @ q)
        known = np.column_stack([known, q])
        left = left - np.outer(q, q @ left)
        h -= np.outer(q, q @ h)
    return chosen


def _said(h: Floats, size: Floats, left: Floats) -> Floats:
    """How much each function tells of what is left; 0 where lines and others say the same."""
    own = (h**2).sum(axis=0)
    spread = np.maximum((left**2).mean(axis=0), 1e-12)
    said = ((h.T @ left) ** 2 / spread).sum(axis=1)
    return np.where(own > 1e-6 * size, said / np.maximum(own, 1e-12), 0.0)


def _sharper(key: Key, apart: float, base: Floats, known: Floats, left: Floats) -> Key:
    """A step, a corner or a cross with its cuts where they tell most, between the quantiles.

    Where practice changes at a cut, a cut beside it makes the same rows wrong in models of practice
    and of values: that is what a false claim is made of.
    """
    kind, places, cuts = key
    if kind not in ("above", "corner", "cross"):
        return key
    for width in (apart, apart / 4):
        for k, place in enumerate(places):
            column = base[:, place]
            at = float((column <= cuts[k]).mean()) + width * np.linspace(-1, 1, FINER)
            tried = np.unique(np.quantile(column, np.clip(at, 0.01, 0.99)))
            keys: list[Key] = [
                (kind, places, (*cuts[:k], float(c), *cuts[k + 1 :])) for c in (cuts[k], *tried)
            ]
            h = values_of(keys, base)
            size = (h**2).sum(axis=0)
            cuts = keys[int(np.argmax(_said(h - known @ (known.T @ h), size, left)))][2]
    return kind, places, cuts


@dataclass(frozen=True, eq=False)
class ScoreTest:
    """What the errors of a model say of it.

    Attributes:
        statistic: The largest |z| over all functions and actions; 0 where nothing can be tested.
        quantile: What it is compared with.
        worst: Actions and functions that refute the model, the worst first, those alike but once.
        of: The columns that the worst function is of.
        action: The code of the action whose errors are worst; -1 where nothing is tested.
    """

    statistic: float
    quantile: float
    worst: tuple[tuple[int, Key], ...]
    of: tuple[int, ...]
    action: int

    @property
    def refuted(self) -> bool:
        """Whether the model is refuted."""
        return self.statistic > self.quantile


def score_test(
    shapes: Shapes, base: Floats, b: Floats, action: NDArray[Any], group: Ints, *,
    rows: Ints | None = None, actions: Sequence[int] | None = None, level: float = LEVEL,
    aimed: Floats | None = None, aimed_level: float = LEVEL, seed: int = 0,
) -> ScoreTest:  # fmt: skip
    """Test probabilities of actions by their errors at some rows.

    Args:
        shapes: Functions of the features.
        base: float64 (N, B), the columns they are of, at all N rows.
        b: float64 (N, A), the probabilities, from other groups than a row's own.
        action: (N,), the actions taken.
        group: int64 (N,), the group of each row.
        rows: int64, the rows to test at. Default None: all.
        actions: The codes of actions whose errors are tested. Default None: all that enough groups
            took.
        level: The chance that a sound model is refuted. Default `LEVEL`.
        aimed: float64 (N, k), values of outcomes from other groups than a row's own; a test of
            their own. Default None: there is none.
        aimed_level: The chance that this test refutes a sound model. Default `LEVEL`.
        seed: Seed of the signs.

    Returns:
        The largest |z|, its quantile, and the functions beyond it; of the aimed test where that
        refutes the model and the other does not.
    """
    rows = np.arange(len(action)) if rows is None else rows
    rows = _part(rows, group)
    order = rows[np.argsort(group[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    tested = [
        a for a in (range(b.shape[1]) if actions is None else actions)
        if min(_groups(action[order] == a, starts)) >= LEAST
    ]  # fmt: skip
    if actions is None and b.shape[1] == 2:
        tested = tested[:1]  # the errors of the other are the same with the other sign
    if not tested:
        return ScoreTest(0.0, np.inf, (), (), -1)
    signs = np.random.default_rng(seed).integers(0, 2, (DRAWS, len(starts))) * 2.0 - 1
    found: list[tuple[float, int, Key, Floats]] = []
    most = np.zeros(DRAWS)

    def look(a: int, keys: Sequence[Key], h: Floats) -> None:
        error = (action[order] == a) - b[order, a]
        u = np.add.reduceat(error[:, None] * h, starts, axis=0)
        expected = (b[order, a] * (1 - b[order, a])) @ h**2
        size = np.sqrt(np.maximum((u**2).sum(axis=0), expected))
        u = u / np.where(size > 1e-12, size, np.inf)
        z = np.abs(u.sum(axis=0))
        np.maximum(most, np.abs(signs @ u).max(axis=1), out=most)
        best = np.argsort(-z, kind="stable")[: 4 * ADDED]
        found.extend((float(z[k]), a, keys[k], u[:, k]) for k in best)

    for a in tested:
        look(a, [("practice", (), ())], b[order, a][:, None])
    for at in range(0, len(shapes.keys), AT_ONCE):
        keys = shapes.keys[at : at + AT_ONCE]
        h = values_of(keys, base[order])
        for a in tested:
            look(a, keys, h)
    quantile = float(np.quantile(most, 1 - level, method="higher"))
    found.sort(key=lambda one: -one[0])
    kept: list[tuple[float, int, Key, Floats]] = []
    for one in found:
        if one[0] <= quantile or len(kept) == ADDED:
            break
        if all(abs(float(one[3] @ other[3])) < ALIKE for other in kept):
            kept.append(one)
    z, refuting, key, _ = found[0]
    if aimed is not None and z <= quantile:
        found, most = [], np.zeros(DRAWS)
        h = aimed[order] - aimed[order].mean(axis=0)
        for a in tested:
            look(a, [("values", (), (float(k),)) for k in range(h.shape[1])], h)
        sharp = float(np.quantile(most, 1 - aimed_level, method="higher"))
        best = max(found, key=lambda one: one[0])
        if best[0] > sharp:
            return ScoreTest(best[0], sharp, ((best[1], best[2]),), (), best[1])
    return ScoreTest(z, quantile, tuple((x[1], x[2]) for x in kept), key[1], refuting)


def _part(rows: Ints, group: Ints) -> Ints:
    """The rows of as many groups, evenly chosen, as have about `MOST` of these rows."""
    if len(rows) <= MOST:
        return rows
    groups = np.unique(group[rows])
    share = MOST / len(rows)
    kept = groups[np.floor(np.arange(len(groups)) * share) != np.floor(
        (np.arange(len(groups)) - 1) * share)]  # fmt: skip
    return rows[np.isin(group[rows], kept)]


def _groups(took: Bools, starts: Ints) -> tuple[int, int]:
    """How many groups have a true row, and how many a false one."""
    return (
        int(np.logical_or.reduceat(took, starts).sum()),
        int(np.logical_or.reduceat(~took, starts).sum()),
    )
