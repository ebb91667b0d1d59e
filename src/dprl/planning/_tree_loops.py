"""The loops of `dprl.planning.policy_tree`: histograms of scores, and the best split of each."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled

__all__ = ["best_action", "best_roots", "best_split", "histogram", "pair_histogram"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.uint8]

SUM, SQUARES, TOOK = 0, 1, 2


@compiled
def histogram(
    codes: Codes, psi: Floats, took: NDArray[np.int32], region: Floats, steps: Floats
) -> None:  # pragma: no cover - compiled
    """Add to region (F, B, A, 3) and steps (F, B): of every code of every feature, as one region.

    region[f, i, a]: sum and squares of the scores psi (N, A) of action a, and steps that took it,
    over steps with code i of feature f. steps[f, i]: all steps.
    """
    N, F = codes.shape
    for i in range(N):
        for f in range(F):
            code = codes[i, f]
            for a in range(psi.shape[1]):
                region[f, code, a, SUM] += psi[i, a]
                region[f, code, a, SQUARES] += psi[i, a] ** 2
            region[f, code, took[i], TOOK] += 1
            steps[f, code] += 1


@compiled
def pair_histogram(
    codes: Codes, scores: Floats, took: NDArray[np.int32], f: int, H: Floats, count: Floats,
    sums: Floats, order: Ints,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill H (F, B, B, A, 3) and count (F, B, B) over feature f and every feature.

    H[g, i, j, a]: sum and squares of the scores of action a, and steps that took it, over steps
    with codes i of f and j of g. count[g, i, j]: the steps.

    scores (N, 2A): the scores of all actions, then their squares. Steps are taken by their code of
    f, in their own order within it, so that what is added to stays in the cache and is added in the
    order of the steps. sums (F, B, 2A) and order (N,) are working memory.
    """
    H[:] = 0.0
    count[:] = 0.0
    N, F = codes.shape
    B, A = count.shape[1], scores.shape[1] // 2
    ends = np.zeros(B + 1, np.int64)
    for i in range(N):
        ends[codes[i, f] + 1] += 1
    for at in range(B):
        ends[at + 1] += ends[at]
    for i in range(N):
        order[ends[codes[i, f]]] = i
        ends[codes[i, f]] += 1
    begin = 0
    for at in range(B):
        if ends[at] == begin:
            continue
        sums[:] = 0.0
        for place in range(begin, ends[at]):
            i = order[place]
            for g in range(F):
                code = codes[i, g]
                for k in range(2 * A):
                    sums[g, code, k] += scores[i, k]
                count[g, at, code] += 1
                H[g, at, code, took[i], TOOK] += 1
        for g in range(F):
            for code in range(B):
                for a in range(A):
                    H[g, at, code, a, SUM] = sums[g, code, a]
                    H[g, at, code, a, SQUARES] = sums[g, code, A + a]
        begin = ends[at]


@compiled
def best_action(
    cell: Floats, n: float, kappa: Floats, least: float, margin: float
) -> tuple[float, int]:  # pragma: no cover - compiled
    """The value of a leaf and its action: the largest sum less kappa errors less margin, or 0, -1.

    cell (A, 3) holds the sums of the leaf, n its steps; kappa (A,) includes the design effect.
    """
    best, action = 0.0, -1
    if n <= 0:
        return best, action
    for a in range(len(cell)):
        if cell[a, TOOK] < least or n - cell[a, TOOK] < least:
            continue
        spread = max(cell[a, SQUARES] - cell[a, SUM] * cell[a, SUM] / n, 0.0)
        value = cell[a, SUM] - kappa[a] * np.sqrt(spread) - margin * n
        if value > best:
            best, action = value, a
    return best, action


@compiled
def best_split(
    region: Floats, steps: Floats, bins: Ints, kappa: Floats, least: float, margin: float,
    below: Floats, above: Floats, out: Ints,
) -> float:  # pragma: no cover - compiled  # fmt: skip
    """The best tree of depth 1 over a region; its value.

    region (F, B, A, 3), steps (F, B): the histograms of every feature over the region. bins (F,):
    codes 0..bins[g] - 1 are values, code bins[g] is "missing". below, above (A, 3): working memory.
    out (4,): feature (-1 for no split), last code on the low side (-1 for missing | known), and the
    actions of the two leaves (of the whole region, twice, where there is no split).
    """
    F, A = region.shape[0], region.shape[2]
    whole = 0.0
    for k in range(A):
        for m in range(3):
            below[k, m] = 0.0
            for j in range(bins[0] + 1):
                below[k, m] += region[0, j, k, m]
    for j in range(bins[0] + 1):
        whole += steps[0, j]
    best, action = best_action(below, whole, kappa, least, margin)
    out[0], out[1], out[2], out[3] = -1, -1, action, action
    for g in range(F):
        valued_steps, low_steps = 0.0, 0.0
        for k in range(A):
            for m in range(3):
                above[k, m] = 0.0
                below[k, m] = 0.0
                for j in range(bins[g]):
                    above[k, m] += region[g, j, k, m]
        for j in range(bins[g]):
            valued_steps += steps[g, j]
        missing = steps[g, bins[g]]
        if missing > 0:
            first, one = best_action(region[g, bins[g]], missing, kappa, least, margin)
            second, other = best_action(above, valued_steps, kappa, least, margin)
            if first + second > best * (1 + 1e-12):
                best = first + second
                out[0], out[1], out[2], out[3] = g, -1, one, other
        for j in range(bins[g] - 1):
            low_steps += steps[g, j]
            for k in range(A):
                for m in range(3):
                    below[k, m] += region[g, j, k, m]
                    above[k, m] -= region[g, j, k, m]
            if steps[g, j] == 0:
                continue
            first, one = best_action(below, low_steps, kappa, least, margin)
            second, other = best_action(above, valued_steps - low_steps, kappa, least, margin)
            if first + second > best * (1 + 1e-12):
                best = first + second
                out[0], out[1], out[2], out[3] = g, j, one, other
    return best


@compiled
def best_roots(
    codes: Codes, scores: Floats, took: NDArray[np.int32], bins: Ints, kappa: Floats, least: float,
    margin: float, begin: int, end: int, value: Floats, children: Ints,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """For every split of features begin:end, the best tree of depth 2 below it.

    scores (N, 2A): the scores of all actions, then their squares.
    value (F, B): its value at split j (low side: codes 0..j), and at j = B - 1 of missing | known;
    -1 where there is no such split. children (F, B, 2, 4): as `best_split` writes them.
    """
    F, A = codes.shape[1], scores.shape[1] // 2
    B = value.shape[1]
    sums, order = np.empty((F, B, 2 * A)), np.empty(len(codes), np.int64)
    H, count = np.empty((F, B, B, A, 3)), np.empty((F, B, B))
    low, high = np.empty((F, B, A, 3)), np.empty((F, B, A, 3))
    low_steps, high_steps = np.empty((F, B)), np.empty((F, B))
    below, above = np.empty((A, 3)), np.empty((A, 3))
    for f in range(begin, end):
        pair_histogram(codes, scores, took, f, H, count, sums, order)
        low[:] = 0.0
        high[:] = 0.0
        low_steps[:] = 0.0
        high_steps[:] = 0.0
        missing = 0.0
        for i in range(bins[f]):
            high += H[:, i]
            high_steps += count[:, i]
        for j in range(B):
            missing += count[0, bins[f], j]
        if missing > 0:
            gone, gone_steps = H[:, bins[f]].copy(), count[:, bins[f]].copy()
            one = best_split(gone, gone_steps, bins, kappa, least, margin, below, above,
                             children[f, B - 1, 0])  # fmt: skip
            other = best_split(high, high_steps, bins, kappa, least, margin, below, above,
                               children[f, B - 1, 1])  # fmt: skip
            value[f, B - 1] = one + other
        for j in range(bins[f] - 1):
            low += H[:, j]
            high -= H[:, j]
            low_steps += count[:, j]
            high_steps -= count[:, j]
            one = best_split(low, low_steps, bins, kappa, least, margin, below, above,
                             children[f, j, 0])  # fmt: skip
            other = best_split(high, high_steps, bins, kappa, least, margin, below, above,
                               children[f, j, 1])  # fmt: skip
            value[f, j] = one + other
