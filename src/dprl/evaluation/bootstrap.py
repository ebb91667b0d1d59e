r"""The estimates in bootstrap draws of whole groups, many draws at a time, and their intervals.

A draw gives every group g a count c_g. Everything a draw needs is a sum over groups of c_g times a
number of the group, so these numbers are added up once, before the first draw:

    W_gt = ∑_e w_t              weights at step t; a finished trajectory keeps its last one
    A_gt = γ^t ∑_e w_t r_t
    B_gt = γ^t ∑_e w_t (r_t - Q̂_t)
    C_gt = γ^t ∑_e w_{t-1} V̂_t

(e: the trajectories of g). With N = ∑_g c_g (trajectories of g) and W_t = ∑_g c_g W_gt, A_t alike,

    WPDIS = ∑_t A_t / W_t
    WDR   = C_0 / N + ∑_t B_t / W_t + ∑_{t>0} C_t / W_{t-1}

**Intervals** are the estimate ± t · sd · √(n / (n - 1)), sd over the draws, t the quantile of
Student's distribution with n - 1 degrees of freedom, n the effective sample size where the policy
differs from practice: a few heavy trajectories show as few, however many the log has. Percentiles
of the draws were too short there (`dprl reproduce intervals` has the coverage of these).

All sums of `LANES` draws are a product of matrices, counts times numbers, and BLAS computes it.
Groups of about the same length lie in one table, filled up to its longest: with the last weight in
W, and with zeros elsewhere. A trajectory whose weight has become 0 stays at 0, and is as long as
that: most are, where a policy acts at many steps. A draw is always one of `LANES` rows and BLAS
is kept to one thread, so the answer does not depend on threads, nor on what shares the product. How
BLAS adds up is its own: other machines may differ in the last bits of a number. What an estimator
from elsewhere adds up is a product of its own, so that it moves no digit of the others.

On a cluster blocks of draws are tasks. A block depends on the seed and on its place alone, so the
numbers are those of one process, to the last bit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dprl._core.arrays import Floats, Ints
from dprl._core.bootstrap import counts
from dprl._core.cluster import connect
from dprl._core.compiled import compiled, in_parts
from dprl._core.optional import single_thread
from dprl.evaluation.estimators import ESTIMATORS, RETURN, Estimator, Totals, Weighted

Progress = Callable[[str, float], None]

LANES = 32
"""Draws that share one product of matrices."""
WIDER = 1.2
"""Groups share a table if the longest has at most so many times the steps of the shortest."""
ROOM = 1 << 17
"""Numbers in a table, unless a single group has more."""
TASKS = 4
"""Blocks of draws per worker of a cluster: a slow worker then delays little."""


class Block(NamedTuple):
    """The numbers of some groups of about the same length.

    Attributes:
        groups: The groups, as codes (k,) or a range of them.
        steps: T, the steps of the longest.
        table: float64 (k, T·columns + K + 1), the columns of every step, then the sums of the K
            numbers that trajectories have alone, and the number of trajectories.
    """

    groups: Any
    steps: int
    table: Floats


@dataclass(frozen=True, eq=False)
class Sums:
    """What the draws need of G groups; made by `sums_by_group`.

    Attributes:
        blocks: The numbers of all groups.
        columns: Of each step: 4 for W, A, B and C; 2 where there is no model: then B is A, and C
            is 0.
        longest: Steps of the longest group, as far as its weights are not 0.
        same: Whether the policy does what was done at all steps, with ratio 1 and V̂ = Q̂: then the
            estimates are the mean return, to the last bit.
        names: The numbers that trajectories have alone; the last one is the return.
        like_return: bool (K,), which of them are the return, for every trajectory: their sums are
            that of the return, to the last bit.
    """

    blocks: tuple[Block, ...]
    columns: int
    longest: int
    same: bool
    names: tuple[str, ...]
    like_return: NDArray[np.bool_]

    def totals(self, counts: NDArray[Any]) -> Totals:
        """The sums under counts (B, G) of the groups, B at most `LANES`."""
        draws = len(counts)
        steps = np.zeros((LANES, self.longest, self.columns))
        alone = np.zeros((LANES, len(self.names) + 1))
        room = np.empty(LANES * max(len(block.table) for block in self.blocks))
        for block in self.blocks:
            c = room[: LANES * len(block.table)].reshape(LANES, -1)
            if isinstance(block.groups, slice):
                c[:draws] = counts[:, block.groups]
            else:
                _gather(counts, block.groups, c)
            c[draws:] = 0.0
            sums, width = c @ block.table, block.steps * self.columns
            steps[:, : block.steps] += sums[:, :width].reshape(LANES, block.steps, self.columns)
            steps[:, block.steps :, 0] += sums[:, [width - self.columns]]  # they keep their weight
            alone += sums[:, width:]
        alone[:, :-1][:, self.like_return] = alone[:, [-2]]
        steps, alone = steps[:draws], alone[:draws]
        B, C = (steps[..., 2], steps[..., 3]) if self.columns == 4 else (None, None)
        named = {name: alone[:, k] for k, name in enumerate(self.names)}
        return Totals(alone[:, -1], steps[..., 0], steps[..., 1], B, C, named)


class Estimates(NamedTuple):
    """Numbers with a name: the estimates, and the mean return, in each of B draws.

    Attributes:
        names: The estimators, then `RETURN`.
        numbers: float64 (B, K), a column for each name.
    """

    names: tuple[str, ...]
    numbers: Floats

    def of(self, name: str) -> Floats:
        """float64 (B,), the column of this name."""
        return self.numbers[:, self.names.index(name)]

    def gain(self, name: str) -> Floats:
        """float64 (B,), the difference to the mean return."""
        return np.asarray(self.of(name) - self.of(RETURN))


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Trajectories, and the estimators that are asked of every draw of their groups.

    Attributes:
        weighted: The trajectories with their weights.
        estimators: The estimators. Default: all that are registered.
    """

    weighted: Weighted
    estimators: tuple[Estimator, ...] = field(default_factory=lambda: (*ESTIMATORS.values(),))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns: the estimators, then the mean return."""
        return (*(one.name for one in self.estimators), RETURN)

    @functools.cached_property
    def _sums(self) -> Sums:
        """What every draw needs of the groups."""
        return sums_by_group(self.weighted)

    @functools.cached_property
    def _elsewhere(self) -> tuple[tuple[str, ...], Floats]:
        """Names and sums by group (G, K) of numbers that estimators from elsewhere add up."""
        alone = {e.name: e.alone(self.weighted) for e in self.estimators if e.alone is not None}
        groups, n = self.weighted.group, self.weighted.n_groups
        sums = [np.bincount(groups, weights=x, minlength=n) for x in alone.values()]
        return tuple(alone), np.column_stack(sums) if sums else np.zeros((n, 0))

    def estimates(self, weights: NDArray[Any] | None = None) -> Estimates:
        """The estimates and the mean return in B draws.

        Args:
            weights: (B, G), how often each group counts in each of B draws. Default None:
                one draw (B = 1) in which every group counts once.
        """
        weights = np.ones((1, self.weighted.n_groups)) if weights is None else weights
        out = np.empty((len(weights), len(self.names)))

        def part(first: int, last: int) -> None:
            for row in range(first, last, LANES):
                lanes = slice(row, min(row + LANES, last))
                out[lanes] = self._together(weights[lanes])

        _ = self._sums, self._elsewhere  # before threads ask for them
        blocks = -(-len(weights) // LANES)
        edges = np.linspace(0, blocks, min(8, blocks) + 1).astype(int) * LANES
        with single_thread():
            in_parts(part, list(itertools.pairwise(np.minimum(edges, len(weights)).tolist())))
        return Estimates(self.names, out)

    def _together(self, counts: NDArray[Any]) -> Floats:
        """float64 (B, K), the columns under counts (B, G), B at most `LANES`."""
        totals = self._sums.totals(counts)
        names, table = self._elsewhere
        if names:
            beside = counts.astype(np.float64) @ table
            totals = totals._replace(
                alone={**totals.alone, **{name: beside[:, k] for k, name in enumerate(names)}}
            )
        mean = totals.alone[RETURN] / totals.n
        columns = []
        with np.errstate(divide="ignore", invalid="ignore"):
            for one in self.estimators:
                column = mean if one.normalised and self._sums.same else one(totals)
                # all weights are 0: there is nothing to average
                columns.append(np.where(totals.final == 0, np.nan, column) if one.normalised
                               else column)  # fmt: skip
        return np.column_stack([*columns, mean])

    def draws(self, n: int, seed: int, after: int = 0) -> Iterator[Estimates]:
        """n bootstrap draws of the estimates, by group, in parts of some draws.

        The first `after` draws of this seed are left out.
        """
        drawn = counts(self.weighted.n_groups, n, seed, after, kind=np.uint16, together=2 * LANES)
        return map(self.estimates, drawn)

    def drawn(self, n: int, seed: int, cluster: Any, tell: Progress) -> Estimates:
        """All n draws, made here or on a cluster."""
        numbers, done = np.empty((n, len(self.names))), 0
        _ = self._sums, self._elsewhere  # once, and not once more on each worker
        tell("bootstrap", 0.0)
        if cluster is None:
            for part in self.draws(n, seed):
                numbers[done : done + len(part.numbers)] = part.numbers
                done += len(part.numbers)
                tell("bootstrap", done / n)
            return Estimates(self.names, numbers)
        with connect(cluster) as workers:
            blocks = min(n, TASKS * workers.workers())
            edges = np.linspace(0, n, blocks + 1).astype(int).tolist()
            places = list(itertools.pairwise(edges))
            for i, block in workers.map(_block, places, (self, seed)):
                numbers[slice(*places[i])] = block
                done += len(block)
                tell("bootstrap", done / n)
        return Estimates(self.names, numbers)


def _block(place: tuple[int, int], bootstrap: Bootstrap, seed: int) -> Floats:
    """The draws of a block, from the first to before the last: float64 (k, K)."""
    first, last = place
    parts = bootstrap.draws(last - first, seed, after=first)
    return np.concatenate([part.numbers for part in parts])


def estimated(
    bootstrap: Bootstrap, drawn: Estimates, level: float, ess: float, *, model: bool, acts: bool
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Estimates, by estimator, and the value of usual practice, with their intervals.

    Args:
        bootstrap: The trajectories.
        drawn: The bootstrap draws.
        level: Coverage of the intervals.
        ess: The effective sample size where the policy differs from practice.
        model: Whether there is a model of values, or none is needed.
        acts: Whether the policy acts anywhere.
    """
    point = bootstrap.estimates()
    usual, drawn_usual = point.of(RETURN)[0], drawn.of(RETURN)
    rows = {}
    for one in bootstrap.estimators:
        row: dict[str, float] = {}
        for what, off in (("difference", 1.0), ("value", 0.0)):
            numbers = (np.nan, np.nan, np.nan)
            if model or not one.values:
                middle, ends = float(point.of(one.name)[0] - off * usual), (np.nan, np.nan)
                if not (one.model_alone and acts):
                    ends = ends_of(middle, drawn.of(one.name) - off * drawn_usual, level, ess)
                numbers = (middle, *ends)
            row |= dict(zip((what, f"{what}_low", f"{what}_high"), numbers, strict=True))
        rows[one.name] = row
    low, high = ends_of(float(usual), drawn_usual, level, bootstrap.weighted.n_groups)
    return rows, {"value": float(usual), "low": low, "high": high}


def ends_of(middle: float, draws: Floats, level: float, ess: float) -> tuple[float, float]:
    """The interval of an estimate; NaN where too many draws of it do not exist.

    Args:
        middle: The estimate.
        draws: float64 (B,), the estimate in each draw.
        level: Coverage of the interval.
        ess: The effective sample size behind it; below 2 there is no interval.
    """
    good = draws[~np.isnan(draws)]
    if len(draws) - len(good) > (1 - level) / 2 * len(draws) or len(good) < 2 or ess < 2:
        return np.nan, np.nan
    half = good.std() * float(stdtrit(ess - 1, (1 + level) / 2)) * np.sqrt(ess / (ess - 1))
    return float(middle - half), float(middle + half)


# -- sums by group ---------------------------------------------------------------------------------


def sums_by_group(weighted: Weighted) -> Sums:
    """Add up what the draws need, by group."""
    starts, group, reward, gamma, Q, V, w, named = (
        getattr(weighted, name)
        for name in ("starts", "group", "reward", "gamma", "Q", "V", "w", "alone")
    )
    alone = np.array(list(named.values()))
    longest = np.zeros(weighted.n_groups, np.int64)
    _steps_that_count(starts, group, w, longest)
    columns = 4 if Q.any() or V.any() else 2
    order = np.argsort(longest, kind="stable")
    padded, place = np.empty_like(longest), np.empty_like(longest)
    where, end = [], 0
    for first, last in _alike(longest[order]):
        steps = int(longest[order[last - 1]])
        width = steps * columns + len(alone) + 1
        padded[order[first:last]] = steps
        place[order[first:last]] = end + width * np.arange(last - first)
        where.append((first, last, steps, end, width))
        end += width * (last - first)
    numbers = np.zeros(end)
    _add_up(starts, group, reward, gamma, Q, V, w, alone, padded, place, columns, numbers)
    in_order = bool((order[1:] > order[:-1]).all())
    blocks = [
        Block(
            slice(first, last) if in_order else order[first:last],
            steps,
            numbers[begin : begin + width * (last - first)].reshape(-1, width),
        )
        for first, last, steps, begin, width in where
        for first, last, begin in _pieces(first, last, begin, width)
    ]
    same = bool((w == 1).all() and (V == Q).all())
    like_return = np.array([np.array_equal(numbers, named[RETURN]) for numbers in alone])
    return Sums(tuple(blocks), columns, int(longest.max()), same, tuple(named), like_return)


def _alike(longest: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of groups, sorted by their steps, that share a table."""
    first = 0
    while first < len(longest):
        most = max(longest[first], int(longest[first] * WIDER))
        last = int(np.searchsorted(longest, most, "right"))
        yield first, last
        first = last


def _pieces(first: int, last: int, begin: int, width: int) -> Iterator[tuple[int, int, int]]:
    """Parts of a range of groups, and where each begins, small enough to stay in the cache."""
    rows = max(1, ROOM // width)
    for a in range(first, last, rows):
        yield a, min(a + rows, last), begin + (a - first) * width


@compiled
def _gather(counts: NDArray[Any], groups: Ints, c: Floats) -> None:  # pragma: no cover - compiled
    """Fill the first rows of c (LANES, k) with the counts (B, G) of these k groups."""
    for row in range(len(counts)):
        for k in range(len(groups)):
            c[row, k] = counts[row, groups[k]]


@compiled
def _steps_that_count(
    starts: Ints, group: NDArray[np.int32], w: Floats, longest: Ints
) -> None:  # pragma: no cover - compiled
    """Fill longest (G,), which are 0: steps of a group up to its end, or its first weight 0."""
    for e in range(len(starts) - 1):
        end = starts[e] + 1
        while end < starts[e + 1] and w[end - 1] != 0.0:
            end += 1
        longest[group[e]] = max(longest[group[e]], end - starts[e])


@compiled
def _add_up(
    starts: Ints,
    group: NDArray[np.int32],
    reward: Floats,
    gamma: float,
    Q: Floats,
    V: Floats,
    w: Floats,
    alone: Floats,
    padded: Ints,
    place: Ints,
    columns: int,
    numbers: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill `numbers`, which are zero: those of group g begin at place[g], for padded[g] steps."""
    for e in range(len(starts) - 1):
        g, begin, end = group[e], starts[e], starts[e + 1]
        beside = place[g] + padded[g] * columns
        for k in range(len(alone)):
            numbers[beside + k] += alone[k, e]
        numbers[beside + len(alone)] += 1.0
        discount, before = 1.0, 1.0
        for t in range(padded[g]):
            i, at = begin + t, place[g] + t * columns
            if i >= end:
                numbers[at] += w[end - 1]
                continue
            numbers[at] += w[i]
            numbers[at + 1] += discount * (w[i] * reward[i])
            if columns == 4:
                numbers[at + 2] += discount * (w[i] * (reward[i] - Q[i]))
                numbers[at + 3] += discount * (before * V[i])
            discount, before = discount * gamma, w[i]
