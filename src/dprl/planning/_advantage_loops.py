"""The loops of `dprl.planning.advantages`, over the cells of `dprl.planning.transitions`."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled

__all__ = [
    "drawn_errors", "drawn_usual_errors", "exact_errors", "mixed_noise", "own_part", "usual_errors",
    "variances",
]  # fmt: skip

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Singles: TypeAlias = NDArray[np.float32]


@compiled
def variances(
    first: Ints, following: Ints, count: Ints, mean: Floats, spread: Floats, n: Ints, b: Floats,
    V: Floats, Q: Floats, gamma: float, own: float, pooled: float, e: Floats, prior: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill e (S, A), the variance of each pair's mean target, and prior (S,), σ0².

    V (S + 1,) ends with the 0 of END; Q (S, A) are the mean targets under V.
    """
    S, A = n.shape
    within, freedom = 0.0, 0.0
    for s in range(S):
        usual, visits, about = 0.0, 0, 0.0
        for a in range(A):
            usual += b[s, a] * Q[s, a]
            visits += n[s, a]
        for a in range(A):
            squares = 0.0
            for j in range(first[s * A + a], first[s * A + a + 1]):
                y = mean[j] + gamma * V[following[j]]
                squares += spread[j] + count[j] * (y - Q[s, a]) ** 2
                about += spread[j] + count[j] * (y - usual) ** 2
            e[s, a] = squares
            if n[s, a] > 0:
                within += squares
                freedom += n[s, a] - 1
        prior[s] = about
    within /= max(freedom, 1.0)
    for s in range(S):
        visits = 0
        for a in range(A):
            visits += n[s, a]
        shrunk = (prior[s] + pooled * within) / max(visits - 1 + pooled, 1.0)
        prior[s] = max(prior[s] / max(visits - 1, 1), shrunk) if visits else 0.0
        for a in range(A):
            if n[s, a] > 0:
                e[s, a] = (e[s, a] + own * prior[s]) / max(n[s, a] + own - 1, 1.0) / n[s, a]


@compiled
def own_part(e: float, v: float, pi: float) -> float:  # pragma: no cover - compiled
    """The least that the terms of the own state can add to Var Δ."""
    if pi == 0 or v <= 0:
        return e
    return max(e * ((v - pi * pi * e) / v), 0.0)


@compiled
def exact_errors(
    begin: int, end: int, first: Ints, following: Ints, count: Ints, n: Ints, pi: Floats,
    M: Floats, gamma: float, delta: Floats, e: Floats, v: Floats, kappa: Floats, skip: bool,
    se: Floats,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Fill se (S, A) of the pairs of states begin:end with a finite kappa; returns their number.

    skip: leave out (NaN) pairs that cannot be above 0 at kappa standard errors.
    """
    S, A = n.shape
    w, solved = np.empty(S), 0
    for s in range(begin, end):
        for a in range(A):
            if not kappa[s, a] < np.inf:
                continue
            if skip:
                least = own_part(e[s, a], v[s], pi[s, a])
                if delta[s, a] <= 0 or delta[s, a] < kappa[s, a] * np.sqrt(least) * (1 - 1e-9):
                    continue
            solved += 1
            for t in range(S):
                w[t] = -M[s, t]
            for j in range(first[s * A + a], first[s * A + a + 1]):
                u = following[j]
                if u < S:
                    share = gamma * count[j] / n[s, a]
                    for t in range(S):
                        w[t] += share * M[u, t]
            total = e[s, a] * (1 + 2 * w[s] * pi[s, a])
            for t in range(S):
                total += w[t] * w[t] * v[t]
            se[s, a] = np.sqrt(max(total, 0.0))
    return solved


@compiled
def mixed_noise(
    pi: Floats, e: Floats, of_b: Floats, noise: Singles, own: Singles, unit: float, u: Singles
) -> None:  # pragma: no cover - compiled
    """Fill u (S, K), draws of the errors of V's equation over `unit`; one block of columns."""
    S, A = pi.shape
    K = u.shape[1]
    row = np.empty(K)
    for s in range(S):
        size = np.sqrt(of_b[s]) / unit
        for k in range(K):
            row[k] = size * own[s, k]
        for a in range(A):
            size = pi[s, a] * (np.sqrt(e[s, a]) / unit)
            if size > 0:
                for k in range(K):
                    row[k] += size * noise[s * A + a, k]
        for k in range(K):
            u[s, k] = np.float32(row[k])


@compiled
def drawn_errors(
    begin: int, end: int, first: Ints, following: Ints, count: Ints, n: Ints, pi: Floats,
    noise: Singles, z: Singles, missing: Floats, unit: float, gamma: float, delta: Floats,
    e: Floats, v: Floats, kappa: Floats, skip: bool, shrink: float, se: Floats,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Fill se (S, A) as `exact_errors` does, from draws z (blocks, S, K) of the errors of V.

    z is in multiples of `unit`, and so is missing (S,), how far a row of z may be wrong (rms).
    """
    S, A = n.shape
    blocks, K = len(z), z.shape[2]
    draw, solved = np.empty(K), 0
    for s in range(begin, end):
        for a in range(A):
            if not kappa[s, a] < np.inf:
                continue
            if skip:
                least = own_part(e[s, a], v[s], pi[s, a])
                if delta[s, a] <= 0 or delta[s, a] < kappa[s, a] * np.sqrt(least) * (1 - 1e-9):
                    continue
            solved += 1
            se[s, a] = 0.0
    for block in range(blocks):
        for s in range(begin, end):
            for a in range(A):
                if not (kappa[s, a] < np.inf and se[s, a] >= 0):
                    continue
                size = np.sqrt(e[s, a]) / unit
                for k in range(K):
                    draw[k] = size * noise[block, s * A + a, k] - z[block, s, k]
                for j in range(first[s * A + a], first[s * A + a + 1]):
                    if following[j] < S:
                        share, row = gamma * count[j] / n[s, a], z[block, following[j]]
                        for k in range(K):
                            draw[k] += share * row[k]
                for k in range(K):
                    se[s, a] += draw[k] * draw[k]
    for s in range(begin, end):
        for a in range(A):
            if kappa[s, a] < np.inf and se[s, a] >= 0:
                more = missing[s]
                for j in range(first[s * A + a], first[s * A + a + 1]):
                    if following[j] < S:
                        more += gamma * count[j] / n[s, a] * missing[following[j]]
                size = (np.sqrt(se[s, a] / (blocks * K)) + more) * unit / np.sqrt(shrink)
                se[s, a] = max(size, np.sqrt(own_part(e[s, a], v[s], pi[s, a])))
    return solved


@compiled
def usual_errors(
    begin: int, end: int, first: Ints, following: Ints, count: Ints, n: Ints, b: Floats,
    choice: Ints, M: Floats, gamma: float, e: Floats, v: Floats, of_b: Floats, se: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill se (S, A) of what each pair brings over *usual practice* in its state.

    Only in states begin:end that are not deferred; of_b (S,) is the variance of the error of b̂.
    """
    S, A = n.shape
    usual, w = np.empty(S), np.empty(S)
    for s in range(begin, end):
        if choice[s] < 0:
            continue
        usual[:] = 0.0
        for a in range(A):
            for j in range(first[s * A + a], first[s * A + a + 1]):
                if following[j] < S:
                    share = gamma * b[s, a] * count[j] / n[s, a]
                    for t in range(S):
                        usual[t] += share * M[following[j], t]
        for a in range(A):
            if n[s, a] == 0:
                continue
            for t in range(S):
                w[t] = -usual[t]
            for j in range(first[s * A + a], first[s * A + a + 1]):
                if following[j] < S:
                    share = gamma * count[j] / n[s, a]
                    for t in range(S):
                        w[t] += share * M[following[j], t]
            total = of_b[s] - w[s] * w[s] * v[s]
            for t in range(S):
                total += w[t] * w[t] * v[t]
            for o in range(A):
                weight = (w[s] if o == choice[s] else 0.0) + (1.0 if o == a else 0.0) - b[s, o]
                total += weight * weight * e[s, o]
            se[s, a] = np.sqrt(max(total, 0.0))


@compiled
def drawn_usual_errors(
    begin: int, end: int, first: Ints, following: Ints, count: Ints, n: Ints, b: Floats,
    choice: Ints, noise: Singles, own: Singles, z: Singles, missing: Floats, unit: float,
    gamma: float, e: Floats, of_b: Floats, shrink: float, se: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill se (S, A) as `usual_errors` does, from draws z (blocks, S, K) of the errors of V.

    z and missing as in `drawn_errors`.
    """
    S, A = n.shape
    blocks, K = len(z), z.shape[2]
    draw, usual, more = np.empty((A, K)), np.empty(K), np.empty(A)
    for s in range(begin, end):
        if choice[s] < 0:
            continue
        for a in range(A):
            if n[s, a] > 0:
                se[s, a] = 0.0
        for block in range(blocks):
            size = np.sqrt(of_b[s]) / unit
            for k in range(K):
                usual[k] = size * own[block, s, k]
            for a in range(A):
                size = np.sqrt(e[s, a]) / unit
                for k in range(K):
                    draw[a, k] = size * noise[block, s * A + a, k]
                for j in range(first[s * A + a], first[s * A + a + 1]):
                    if following[j] < S:
                        share, row = gamma * count[j] / n[s, a], z[block, following[j]]
                        for k in range(K):
                            draw[a, k] += share * row[k]
                for k in range(K):
                    usual[k] += b[s, a] * draw[a, k]
            for a in range(A):
                if n[s, a] > 0:
                    for k in range(K):
                        se[s, a] += (draw[a, k] - usual[k]) ** 2
        together = 0.0
        for a in range(A):
            more[a] = 0.0
            for j in range(first[s * A + a], first[s * A + a + 1]):
                if following[j] < S:
                    more[a] += gamma * count[j] / n[s, a] * missing[following[j]]
            together += b[s, a] * more[a]
        for a in range(A):
            if n[s, a] > 0:
                size = np.sqrt(se[s, a] / (blocks * K)) + more[a] + together
                se[s, a] = size * unit / np.sqrt(shrink)
