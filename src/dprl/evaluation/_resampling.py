r"""Bootstrap draws of the seven estimates, many at a time.

A draw gives every group g a count c_g. Everything a draw needs is a sum over groups of c_g times a
number of the group, so these numbers are added up once, before the first draw:

    W_gt = ∑_e w_t              weights at step t; a finished trajectory keeps its last one
    A_gt = γ^t ∑_e w_t r_t
    B_gt = γ^t ∑_e w_t (r_t - Q̂_t)
    C_gt = γ^t ∑_e w_{t-1} V̂_t

(e: the trajectories of g). With N = ∑_g c_g (trajectories of g) and W_t = ∑_g c_g W_gt, A_t alike,

    WPDIS = ∑_t A_t / W_t
    WDR   = C_0 / N + ∑_t B_t / W_t + ∑_{t>0} C_t / W_{t-1}

All sums of `LANES` draws are a product of matrices, counts times numbers, and BLAS computes it.
Groups of about the same length lie in one table, filled up to its longest: with the last weight in
W, and with zeros elsewhere. A trajectory whose weight has become 0 stays at 0, and is as long as
that: most are, where a policy speaks at many steps. A draw is always one of `LANES` rows and BLAS
is kept to one thread, so the answer does not depend on threads, nor on what shares the product. How
BLAS adds up is its own: other machines may differ in the last bits of a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled

__all__ = ["LANES", "Sums", "sums_by_group"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LANES = 32
"""Draws that share one product of matrices."""
OWN = np.array([0, 2, 4, 5, 7])
"""The columns of `Weighted.single` that are estimates of their own: IS, PDIS, DM, DR, return."""
WIDER = 1.2
"""Groups share a table if the longest has at most so many times the steps of the shortest."""
ROOM = 1 << 17
"""Numbers in a table, unless a single group has more."""


class Block(NamedTuple):
    """The numbers of some groups of about the same length.

    Attributes:
        groups: The groups, as codes (k,) or a range of them.
        steps: T, the steps of the longest.
        table: float64 (k, T·columns + 6), the columns of every step, then the sums of the
            estimates from single trajectories (`OWN`), and the number of trajectories.
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
        like_return: Which of the estimates from single trajectories (`OWN`) are the return, for
            every trajectory: their sums are that of the return, to the last bit.
    """

    blocks: tuple[Block, ...]
    columns: int
    longest: int
    same: bool
    like_return: NDArray[np.bool_]

    def estimates(self, counts: NDArray[Any]) -> Floats:
        """float64 (B, 8), the estimates under counts (B, G) of the groups, B at most `LANES`.

        The columns are those of `ESTIMATORS` and the mean return.
        """
        WIS, WPDIS, WDR = 1, 3, 6
        steps, alone = self._products(counts)
        n, total = alone[:, -1], steps[:, -1, 0]
        W, A = steps[..., 0], steps[..., 1]
        out = np.empty((len(counts), 8))
        with np.errstate(divide="ignore", invalid="ignore"):
            out[:, OWN] = alone[:, :-1] / n[:, None]
            out[:, WIS] = alone[:, 0] / total
            out[:, WPDIS] = np.where(W > 0, A / W, 0.0).sum(axis=1)
            out[:, WDR] = out[:, WPDIS]
            if self.columns == 4:
                B, C = steps[..., 2], steps[..., 3]
                before = np.column_stack([n, W[:, :-1]])
                terms = np.where(before > 0, C / before, 0.0) + np.where(W > 0, B / W, 0.0)
                out[:, WDR] = terms.sum(axis=1)
        out[total == 0, WIS] = np.nan  # all weights are 0: there is nothing to average
        out[total == 0, WPDIS] = np.nan
        out[total == 0, WDR] = np.nan
        return out

    def _products(self, counts: NDArray[Any]) -> tuple[Floats, Floats]:
        """Sums over the groups: by step (B, T, columns), and of the trajectories alone (B, 6)."""
        steps = np.zeros((LANES, self.longest, self.columns))
        alone = np.zeros((LANES, len(OWN) + 1))
        room = np.empty(LANES * max(len(block.table) for block in self.blocks))
        for block in self.blocks:
            c = room[: LANES * len(block.table)].reshape(LANES, -1)
            if isinstance(block.groups, slice):
                c[: len(counts)] = counts[:, block.groups]
            else:
                _gather(counts, block.groups, c)
            c[len(counts) :] = 0.0
            sums, width = c @ block.table, block.steps * self.columns
            steps[:, : block.steps] += sums[:, :width].reshape(LANES, block.steps, self.columns)
            steps[:, block.steps :, 0] += sums[:, [width - self.columns]]  # they keep their weight
            alone += sums[:, width:]
        alone[:, :-1][:, self.like_return] = alone[:, [-2]]
        return steps[: len(counts)], alone[: len(counts)]


def sums_by_group(
    starts: Ints,
    group: NDArray[np.int32],
    n_groups: int,
    reward: Floats,
    gamma: float,
    Q: Floats,
    V: Floats,
    w: Floats,
    single: Floats,
) -> Sums:
    """Add up what the draws need, by group.

    Args:
        starts: int64 (E + 1,), the first row of each trajectory, and N at the end.
        group: int32 (E,), group of each trajectory, codes 0..G-1.
        n_groups: G, the number of groups.
        reward: float64 (N,), reward of each step.
        gamma: Discount per step.
        Q: float64 (N,), Q̂(s_t, a_t).
        V: float64 (N,), V̂(s_t).
        w: float64 (N,), cumulative weights w_t.
        single: float64 (E, 8), the estimates from each trajectory alone.

    Returns:
        The sums.
    """
    longest = np.zeros(n_groups, np.int64)
    _steps_that_count(starts, group, w, longest)
    columns = 4 if Q.any() or V.any() else 2
    order = np.argsort(longest, kind="stable")
    padded, place = np.empty_like(longest), np.empty_like(longest)
    where, end = [], 0
    for first, last in _alike(longest[order]):
        steps = int(longest[order[last - 1]])
        width = steps * columns + len(OWN) + 1
        padded[order[first:last]] = steps
        place[order[first:last]] = end + width * np.arange(last - first)
        where.append((first, last, steps, end, width))
        end += width * (last - first)
    numbers = np.zeros(end)
    _add_up(starts, group, reward, gamma, Q, V, w, single, padded, place, columns, numbers)
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
    like_return = np.array([np.array_equal(single[:, k], single[:, OWN[-1]]) for k in OWN])
    return Sums(tuple(blocks), columns, int(longest.max()), same, like_return)


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
    single: Floats,
    padded: Ints,
    place: Ints,
    columns: int,
    numbers: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill `numbers`, which are zero: those of group g begin at place[g], for padded[g] steps."""
    for e in range(len(starts) - 1):
        g, begin, end = group[e], starts[e], starts[e + 1]
        alone = place[g] + padded[g] * columns
        for k in range(len(OWN)):
            numbers[alone + k] += single[e, OWN[k]]
        numbers[alone + len(OWN)] += 1.0
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
