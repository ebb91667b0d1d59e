"""Where hardly anybody was given an action: regions of features without takers.

What an action brings where nobody was given it is in no row of the log. A model of practice is too
smooth to say so: where 70 of 1,000 patients were never treated and half of the others were, it
still gives them a chance of .05 to .2. So regions are searched, by a tree that cuts single features
and *sums* of features, w·x, so that a border like a + b + c > 2.2 is found as well as one that is
along a feature. Only features and what was done are looked at, never an outcome.

Of k takers among n steps, and with p the share of takers among all steps, there were **hardly any**
where

    P(at most k of n | chance η) <= `CHANCE`     η = min(`ETA`, p / `RARER`)     n p >= `EXPECTED`

the upper Clopper-Pearson end (at confidence 1 - `CHANCE`) is not above η, and there would have been
takers if the action were as frequent there as elsewhere. A tree of depth `DEPTH` is grown by the
likelihood of who took the action, once with sums and once without; a node with hardly any takers
may be a region: sides that it does not need are dropped, the weights of sums are turned, and sides
are moved to where they fit best. The region that tells most of who took the action is taken out of
the log, and so on. What it tells is beyond what `LINES`, a logistic model of all columns, expects:
where few are treated because treatment goes with one feature, ends of that feature would otherwise
be taken for the region of those who must not have it. Each number in a border costs half the
logarithm of the rows (BIC), or the search would find regions of many borders that are empty by
chance. At every node the direction w of the sum is the least-squares one of the node's rows, and
again that of the half of them where takers are fewer (`ZOOMS` times): the border of the region is
what counts, not what moves practice elsewhere. Few features are in it (`TERMS`), with few digits,
because people read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints, roundest
from dprl.logs.encoding.categories import Levels

ETA = 0.05
"""The least share of takers in a place of which anything is claimed."""
RARER = 4.0
"""An action that is rare everywhere may be so many times rarer in a place, and no more."""
SURE = 0.95
"""How sure the border of a region of which nothing is claimed is not further out."""
CHANCE = 0.5
"""One less the confidence of the upper end of the share of takers."""
EXPECTED = 10.0
"""Takers that a region would have if the action were as frequent there as elsewhere."""
LEAST = 10
"""The fewest steps of a region."""
DEPTH = 4
CUTS = 63
"""The most cuts of a column, at quantiles."""
ZOOMS = 3
TURNS = (0.0, 0.6, 1.7)
"""What a weight is multiplied with to see whether that fits better."""
FEW = 3
"""The most columns of a sum that is tried without asking whether it tells most."""
MANY = 8
"""How many columns are looked at for a group without takers, those that go with who took first."""
SMALL_LOG = 4_000
"""The most steps of which as many are looked at for an end; else one more than `FEW`."""
LINES = {"C": 1.0, "max_iter": 200, "solver": "newton-cholesky"}
"""The model of who takes the action against which a region is a surprise."""
TERMS, SMALL = 6, 0.25
"""The most features of a sum, and the least weight beside the largest, per standard deviation."""
REGIONS = 4
"""The most regions of an action."""
MOST = 20_000
"""The most steps that a tree is grown with."""


NUMBER, GONE = -2, -1
"""What a column is of a feature, where it is no label of it."""


@dataclass(frozen=True)
class Side:
    """A side of a cut: a sum of columns is above a number, or at most that.

    Attributes:
        terms: (column, weight) of each; one column of weight 1 is that column itself.
        value: The number.
        above: Whether the sum is above it.
    """

    terms: tuple[tuple[int, float], ...]
    value: float
    above: bool

    def holds(self, Z: Floats) -> Bools:
        """bool (n,), the rows of Z (n, p) on this side."""
        return np.asarray((self.of(Z) > self.value) == self.above)

    def of(self, Z: Floats) -> Floats:
        """float64 (n,), the sum at rows of Z (n, p)."""
        total = np.zeros(len(Z))
        for j, weight in self.terms:
            total = total + weight * Z[:, j]
        return total


def columns(X: Floats, levels: Levels = ()) -> tuple[Floats, list[tuple[int, int]]]:
    """Features as columns of numbers without gaps.

    Args:
        X: float64 (n, d), the features; NaN where one is missing, codes of categories.
        levels: The labels of categories, None for numbers. Default (): all are numbers.

    Returns:
        float64 (n, p), and of each column the feature and what of it: `NUMBER` the number itself
        (the median where it is missing), `GONE` whether it is missing, else whether it has the
        label of that code.
    """
    parts: list[Floats] = []
    of: list[tuple[int, int]] = []
    for f in range(X.shape[1]):
        x, own = X[:, f], levels[f] if levels else None
        gone = ~np.isfinite(x)
        if own is None:
            middle = float(np.median(x[~gone])) if not gone.all() else 0.0
            parts.append(np.where(gone, middle, x))
            of.append((f, NUMBER))
        else:
            codes = np.unique(x[~gone]).astype(np.int64).tolist()
            parts += [(x == code).astype(np.float64) for code in codes]
            of += [(f, code) for code in codes]
        if gone.any():
            parts.append(gone.astype(np.float64))
            of.append((f, GONE))
    return np.column_stack(parts) if parts else np.empty((len(X), 0)), of


def without(Z: Floats, sums: Ints, taken: Bools, share: float, seed: int) -> list[tuple[Side, ...]]:
    """The regions in which hardly anybody took an action.

    Args:
        Z: float64 (n, p), columns without gaps.
        sums: The columns that may be in a sum.
        taken: bool (n,), who took the action.
        share: The share of takers in the whole log.
        seed: Seed of the steps that are looked at, where there are very many.

    Returns:
        Each region as the sides that a step is on, all of them; () is everywhere.
    """
    rows = np.arange(len(Z))
    if len(rows) > MOST:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST, replace=False))
    if not taken[rows].any():
        return [()] if len(rows) else []
    found: list[tuple[Side, ...]] = []
    while len(rows) and len(found) < REGIONS:
        z, took = Z[rows], taken[rows]
        expected = _expected(z, took, share)
        regions = [
            _settled(z, took, share, region)
            for region in (
                *(one for tried in (sums, sums[:0]) for one in _grown(z, tried, took, share)),
                *_ends(z, sums, took, share, expected),
            )
        ]
        if not regions:
            break
        apart = [inside(region, z) for region in regions]
        numbers = [sum(len(side.terms) for side in region) for region in regions]
        told = [
            _surprise(took[at], expected[at]) - k * np.log(len(z)) / 2
            for at, k in zip(apart, numbers, strict=True)
        ]
        best = int(np.argmax(told))
        found.append(regions[best])
        rows = rows[~apart[best]]
    return found


def inside(region: tuple[Side, ...], Z: Floats) -> Bools:
    """bool (n,), the rows of Z (n, p) on all of these sides."""
    at = np.ones(len(Z), bool)
    for side in region:
        at &= side.holds(Z)
    return at


def _expected(Z: Floats, taken: Bools, share: float) -> Floats:
    """float64 (n,), the chance of each row that the action was taken, as lines tell it."""
    from sklearn.linear_model import LogisticRegression

    if taken.all() or not taken.any():
        return np.full(len(Z), float(taken.mean()))
    spread = Z.std(axis=0)
    x = (Z - Z.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    said = LogisticRegression(**LINES).fit(x, taken).predict_proba(x)[:, 1]
    return np.asarray(np.clip(said, min(2 * min(ETA, share / RARER), 0.5), 0.95))


def _surprise(taken: Bools, expected: Floats) -> float:
    """How much likelier it is who took the action at some rows if all had one chance there."""
    from scipy.special import xlogy

    n, k = len(taken), int(taken.sum())
    usual = np.log(np.where(taken, expected, 1 - expected)).sum()
    return float(xlogy(k, k / n) + xlogy(n - k, 1 - k / n) - usual) if n else 0.0


def largest_empty(Z: Floats, taken: Bools) -> tuple[Bools, float]:
    """The largest group among whom nobody took an action, of those that a search finds.

    That nobody of few took it does not surprise, and does not say that anybody would be given it:
    what the action brings there is in no row. The ends of sums of up to `FEW` columns are looked
    at, all of the same weight per standard deviation, and corners, where all are beyond a number.

    Args:
        Z: float64 (n, p), columns without gaps.
        taken: bool (n,), who took the action.

    Returns:
        bool (n,), the members of the group, and how many such groups chance would make, if it were
        as `LINES` expects.
    """
    best = np.zeros(len(Z), bool)
    if not taken.any():
        return ~best, 0.0
    z = Z[:, np.ptp(Z, axis=0) > 0]
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    related = np.abs((taken - taken.mean()) @ z)
    z = z[:, np.argsort(-related, kind="stable")[:MANY]]
    looked = 0
    for size in range(1, FEW + 1):
        for some in combinations(range(z.shape[1]), size):
            for signs in product((1.0, -1.0), repeat=size):
                own = z[:, some] * signs
                for total in (own.sum(axis=1), own.min(axis=1))[: min(size, 2)]:
                    at = total > total[taken].max()
                    looked += 1
                    best = at if at.sum() > best.sum() else best
    expected = _expected(Z, taken, float(taken.mean()))
    return best, looked * float(np.prod(1 - expected[best]))


def hardly(took: int, steps: int, share: float) -> bool:
    """Whether so many takers among so many steps are hardly any; `share` is that of all steps."""
    return bool(_few(np.array([took]), np.array([steps]), share)[0])


def _few(took: Ints, steps: Ints, share: float) -> Bools:
    from scipy.special import bdtr

    eta = min(ETA, share / RARER)
    few = (took <= eta * steps + 1) & (steps >= LEAST) & (steps * share >= EXPECTED)
    few[few] = bdtr(took[few], steps[few], eta) <= CHANCE
    return np.asarray(few)


def _coded(Z: Floats) -> tuple[Ints, list[Floats]]:
    """int64 (n, p), which cut each number is above, and the cuts of each column."""
    cuts = [
        np.unique(np.quantile(z, np.arange(1, CUTS + 1) / (CUTS + 1), method="inverted_cdf"))
        for z in Z.T
    ]
    cuts = [at[at < z.max()] for at, z in zip(cuts, Z.T, strict=True)]
    codes = [np.searchsorted(at, z, "left") for at, z in zip(cuts, Z.T, strict=True)]
    return np.column_stack(codes), cuts


def _settled(Z: Floats, taken: Bools, share: float, region: tuple[Side, ...]) -> tuple[Side, ...]:
    """The region with as few sides as leave hardly any takers in it, and each where it fits best.

    Moving a side outwards is likelier to be right by log((1 - η) / (1 - q)) for every step without
    the action that comes in, and by log(η / q) for every taker, with q the share of takers outside.
    """
    for side in region:
        rest = tuple(other for other in region if other is not side)
        within = inside(rest, Z)
        if hardly(int(taken[within].sum()), int(within.sum()), share):
            region = rest
            continue
        q = _beyond(side, within, Z, taken, share)
        best, new = _moved(side, Z[within], taken[within], q, share)
        for turned in range(2 * len(side.terms) if len(side.terms) > 1 else 0):
            t = turned % len(side.terms)
            for times in TURNS:
                terms = tuple(
                    (j, float(f"{w * times:.2g}") if i == t else w)
                    for i, (j, w) in enumerate(new.terms)
                )
                turn = Side(terms, new.value, new.above)
                likely, other = _moved(turn, Z[within], taken[within], q, share)
                best, new = (likely, other) if likely > best else (best, new)
        terms = tuple((j, w) for j, w in new.terms if w)
        if len(terms) == 1:
            (j, w), at = terms[0], new.value / terms[0][1]
            new = Side(((j, 1.0),), at, new.above == (w > 0))
        else:
            new = Side(terms, new.value, new.above)
        region = (*rest, new)
    return region


def _beyond(side: Side, within: Bools, Z: Floats, taken: Bools, share: float) -> float:
    """The share of takers among the rows within that are not on this side."""
    eta, outside = min(ETA, share / RARER), within & ~side.holds(Z)
    q = float(taken[outside].mean()) if outside.any() else share
    return min(max(q, 2 * eta), 1 - eta)


def _moved(
    side: Side, Z: Floats, taken: Bools, q: float | Floats, share: float, less: float = 0.0
) -> tuple[float, Side]:
    """The side where it fits best, and how likely it is; with `less` as far out as that allows."""
    eta = min(ETA, share / RARER)
    q = np.clip(q, 1e-9, 1 - 1e-9)  # what a model is sure of is not infinitely unlikely
    total = side.of(Z) * (1 if side.above else -1)
    order = np.argsort(-total, kind="stable")
    n, k = np.arange(1, len(total) + 1), np.cumsum(taken[order], dtype=np.int64)
    told = np.where(taken, np.log(eta / q), np.log((1 - eta) / (1 - np.asarray(q))))
    likelier = np.cumsum(told[order])
    apart = np.append(np.diff(total[order]) < 0, False)
    fine = apart & _few(k, n, share)
    if not fine.any():
        return -np.inf, side
    best = int(np.argmax(np.where(fine, likelier, -np.inf)))
    if less:
        each = (1 - q) * np.log((1 - q) / (1 - eta)) + q * np.log(q / eta)
        near = apart & (n <= n[best] + 2 * less / each) & (likelier >= likelier[best] - less)
        best = int(np.flatnonzero(near)[-1])
    at, beyond = float(total[order][best]), float(total[order][best + 1])
    at = roundest(beyond, at) if side.above else roundest(-at, -beyond)
    return float(likelier[best]), Side(side.terms, at, side.above)


def wider(region: tuple[Side, ...], Z: Floats, taken: Bools, share: float) -> tuple[Side, ...]:
    """A region with each of its sides as far out as may be.

    Where a border is, is known up to chance: it may as well be anywhere where its likelihood is not
    less than the best by half the `SURE` quantile of chi-square, with a degree of freedom for each
    term and one for the number, and not further than twice the rows that tell so much. Where takers
    are few beyond a border as well, it says nothing of where they begin, and stays.

    Args:
        region: A region that `without` found in these rows.
        Z: float64 (n, p), columns without gaps.
        taken: bool (n,), who took the action.
        share: The share of takers in the whole log.
    """
    from scipy.special import chdtri

    out: list[Side] = []
    for side in region:
        within = inside(tuple(other for other in region if other is not side), Z)
        less = float(chdtri(len(side.terms) + 1, 1 - SURE)) / 2
        q = _beyond(side, within, Z, taken, share)
        moved = _moved(side, Z[within], taken[within], q, share, less)[1]
        further = (moved.value < side.value) == side.above
        out.append(moved if further and q > share / 2 else side)
    return tuple(out)


def _ends(
    Z: Floats, sums: Ints, taken: Bools, share: float, expected: Floats
) -> Iterator[tuple[Side, ...]]:
    """The end of a sum of few columns, all of the same weight, that hardly any takers are in.

    A tree cuts where that tells most, which is not where a small region is. So the sums of `FEW`
    of the columns that go with who took the action are looked at, whether or not they tell most.
    """
    own = np.asarray([j for j in sums if np.ptp(Z[:, j]) > 0], np.int64)
    spread = Z[:, own].std(axis=0)
    related = (taken - taken.mean()) @ (Z[:, own] - Z[:, own].mean(axis=0)) / spread
    order = np.argsort(-np.abs(related), kind="stable")[: MANY if len(Z) <= SMALL_LOG else FEW + 1]
    own, spread = own[order], spread[order]
    found = []
    for size in range(1, FEW + 1):
        for some in combinations(range(len(own)), size):
            for signs in product((1.0, -1.0), repeat=size - 1):
                scale = [s * spread[some[0]] for s in (1.0, *signs)]
                terms = tuple(
                    (int(own[i]), float(f"{w / spread[i]:.2g}"))
                    for i, w in zip(some, scale, strict=True)
                )
                found += [
                    _moved(Side(terms, 0.0, above), Z, taken, expected, share)
                    for above in (True, False)
                ]
    likely, best = max(found, key=lambda one: one[0], default=(-np.inf, None))
    if best is not None and np.isfinite(likely):
        yield (best,)


def _grown(Z: Floats, sums: Ints, taken: Bools, share: float) -> Iterator[tuple[Side, ...]]:
    """The nodes of a tree with hardly any takers: the sides on the way there."""
    codes, cuts = _coded(Z)
    least = max(LEAST, EXPECTED / share)
    others = (1 - min(ETA, share / RARER)) * least - 1
    nodes: list[tuple[tuple[Side, ...], Ints]] = [((), np.arange(len(Z)))]
    while nodes:
        path, rows = nodes.pop()
        took = int(taken[rows].sum())
        if len(rows) < least or len(rows) - took < others:
            continue  # no part of it can be a region
        if hardly(took, len(rows), share):
            yield path
        elif len(path) < DEPTH and len(rows) >= 2 * LEAST and took < len(rows):
            side = _cut(Z[rows], codes[rows], cuts, sums, taken[rows])
            if side is not None:
                on = side.holds(Z[rows])
                other = Side(side.terms, side.value, not side.above)
                nodes += [((*path, other), rows[~on]), ((*path, side), rows[on])]


def _cut(Z: Floats, codes: Ints, cuts: list[Floats], sums: Ints, taken: Bools) -> Side | None:
    """The cut that tells most of who took the action; None where none may be made."""
    found: list[tuple[float, Side]] = []
    size = CUTS + 1
    flat = (codes + size * np.arange(codes.shape[1])).ravel()
    every = np.bincount(flat, minlength=size * codes.shape[1]).reshape(-1, size)
    who = np.repeat(taken, codes.shape[1]).astype(np.float64)
    took = np.bincount(flat, weights=who, minlength=size * codes.shape[1]).reshape(-1, size)
    told = _told(np.cumsum(took, axis=1), np.cumsum(every, axis=1), int(taken.sum()), len(Z))
    j, place = np.unravel_index(int(np.argmax(told)), told.shape)
    if told[j, place] > 0 and place < len(cuts[j]):
        at = float(cuts[j][place])
        column = Z[:, j]
        found.append((float(told[j, place]), Side(((int(j), 1.0),), _between(column, at), True)))
    for terms in _directions(Z, sums, taken):
        total = np.asarray(sum(weight * Z[:, j] for j, weight in terms))
        order = np.argsort(total, kind="stable")
        last = np.append(np.diff(total[order]) > 0, False)
        n, k = np.arange(1, len(total) + 1), np.cumsum(taken[order], dtype=np.int64)
        told = np.where(last, _told(k, n, int(k[-1]), len(total)), 0.0)
        best = int(np.argmax(told))
        if told[best] > 0:
            at = float(total[order][best])
            found.append((float(told[best]), Side(terms, _between(total, at), True)))
    return max(found, key=lambda one: one[0])[1] if found else None


def _told(k: Any, n: Any, K: int, N: int) -> Floats:
    """How much a cut tells of the takers: the gain in log-likelihood; 0 where a side is small."""
    from scipy.special import xlogy

    def of(took: Any, steps: Any) -> Any:
        rate = took / np.maximum(steps, 1)
        return xlogy(took, rate) + xlogy(steps - took, 1 - rate)

    gain = of(k, n) + of(K - k, N - n) - of(K, N)
    return np.where((n >= LEAST) & (N - n >= LEAST), gain, 0.0)


def _between(column: Floats, at: float) -> float:
    """A number with few digits that divides a column as `at` does."""
    above = column[column > at]
    below = float(column[column <= at].max())
    return roundest(below, float(above.min())) if len(above) else at


def _directions(Z: Floats, sums: Ints, taken: Bools) -> Iterator[tuple[tuple[int, float], ...]]:
    """Sums of columns that tell who took the action, from all rows and nearer to its border."""
    own = np.asarray([j for j in sums if np.ptp(Z[:, j]) > 0], np.int64)
    if len(own) < 2:
        return
    spread = Z[:, own].std(axis=0)
    x, some = (Z[:, own] - Z[:, own].mean(axis=0)) / spread, taken
    for _ in range(1 + ZOOMS):
        if len(x) < 2 * LEAST or some.all() or not some.any():
            return
        gram, right = _moments(x, some)
        weight = np.linalg.solve(gram, right)
        big = np.argsort(-np.abs(weight), kind="stable")[:TERMS]
        big = big[np.abs(weight[big]) >= SMALL * np.abs(weight[big[0]])]
        if len(big) < len(own):
            weight = np.zeros(len(own))
            weight[big] = np.linalg.solve(gram[np.ix_(big, big)], right[big])
        if len(big) > 1:
            raw = weight[big] / spread[big]
            raw = raw / raw[0]
            yield tuple((int(own[j]), float(f"{w:.2g}")) for j, w in zip(big, raw, strict=True))
        low = x @ weight
        near = low <= np.median(low)
        x, some = x[near], some[near]


def _moments(x: Floats, taken: Bools) -> tuple[Floats, Floats]:
    """What the least-squares direction of who took the action solves, a little shrunk."""
    mean = x.mean(axis=0)
    gram = x.T @ x - len(x) * np.outer(mean, mean)
    gram[np.diag_indices_from(gram)] += 1e-3 * len(x) + 1.0
    return gram, np.asarray(x.T @ (taken - taken.mean()))
