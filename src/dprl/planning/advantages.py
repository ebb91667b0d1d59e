"""How much better an action is than the policy so far, and how sure that is (labelled states).

In the maximum-likelihood model, with π the policy so far (the behaviour b̂ where it defers) and
M = (I - γ P_π)^-1,

    Δ(s,a) = Q^π(s,a) - V^π(s)

Its error, to first order (delta method), is a sum over the errors of the model. ε(s,a) is the error
of a pair's mean target y = r + γ V^π(s'), with variance e(s,a); u(s) = ∑_a π(a|s) ε(s,a) that of
V's equation at s, to which the error of b̂ itself is added where the policy defers:

    error of Δ(s,a) = ε(s,a) + w·u,     w = γ P(s,a,·) M - M(s,·)
    Var Δ(s,a)      = e (1 + 2 w(s) π(a|s)) + ∑_s' w(s')² v(s'),       v(s) = Var u(s)

(w is the effect on Δ of an error in V's equation at each state.) A few lucky draws must not look
sure, so variances are shrunk towards what is seen elsewhere:

    e(s,a) = (SS + 2 σ0²) / (n + 1) / n
    σ0²(s) = max(T / (n(s) - 1), (T + 20 σ²) / (n(s) - 1 + 20))

T is the sum of squares of the targets at s about the behaviour's mean, σ² the variance of targets
within pairs over the whole log. (A floor of a twelfth of the squared range of the targets at s was
tried instead. It never fades, and where targets are mostly alike and rarely far apart it costs most
of the gain.)

**Pairs that cannot pass are not solved for.** With A = v(s) - π² e >= 0 the terms of the own state
are c² A + (1 + c π)² e for some real c = w(s), the others are >= 0, and the least over c is
e A / v(s). So a pair with Δ <= κ √(e A / v(s)) cannot have Δ - κ se > 0, whatever M is.

**Many states.** Up to `DENSE` states M is computed. Beyond, K draws of all ε at once,
ε ~ N(0, e), give with one solution z = M u a draw ε(s,a) + γ P(s,a)·z - z(s) of *every* error; the
mean of their squares is Var Δ times χ²_K / K. It is divided by the 1e-6 quantile of that, so except
with that probability the standard error is only ever overstated.

z need not be exact (`dprl._core.linear`, single precision). With x in its place, what is left of
the equations, ρ(s) = rms over draws of (u + γ P_π x - x)(s), bounds the error of each row, because
M >= 0: rms (x - z)(s) <= d(s), d = M ρ. A draw of Δ's error is then wrong by γ P(s,a)·(x - z) -
(x - z)(s), and by the triangle inequality

    rms of the true draws  <=  rms of those made with x  +  d(s) + γ P(s,a)·d

The right side is what is used (with a d that is a little larger still), and never less than the
least of the own state above. So a coarse z can only make the standard error larger; z is refined
until d is about `COARSE` of √v(s) on average, where it no longer matters.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtrit

from dprl._core.arrays import Bools, Floats, Ints, Singles
from dprl._core.compiled import compiled, in_parts
from dprl._core.linear import (
    WIDTH,
    Matrix,
    each_block,
    leaks,
    solve,
    solve_above,
    solve_blocks,
    solve_left,
    solve_many,
)
from dprl.errors import PlanError
from dprl.planning.model import Influence, Transitions

# --- The loops of `dprl.planning.advantages`, over the cells of `dprl.planning.model`


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


# --- How much better an action is than the policy so far, and how sure that is (labelled states)

DENSE = 3_000
"""The most states for which the inverse (S, S) is computed; 72 MB."""
DRAWS, DOUBT = 128, 1e-6
"""Draws of the errors beyond that, and the chance that a standard error is understated."""
COARSE = 0.02
"""How far the draws may be wrong, on average over states, relative to √v; it is added to them."""
FINEST = 1e-6
"""The smallest residual that is tried for that in single precision."""
FEW = 8
"""An inverse is updated, not computed anew, where at most 1 / FEW of its rows differ."""
OWN, POOLED = 2.0, 20.0
"""How many visits the variance of a state, and of the whole log, count for."""


@dataclass(frozen=True, eq=False)
class Noise:
    """Standard normal draws for the errors of many states, the same in every round.

    K draws lie in blocks of `WIDTH` columns (K itself where that is smaller).

    Attributes:
        pair: float32 (blocks, S·A, WIDTH), one row for each pair.
        state: float32 (blocks, S, WIDTH), one row for each state's estimate of the behaviour.
        shrink: What a mean of K squares is divided by, to be too small with probability `DOUBT`.
    """

    pair: Singles
    state: Singles
    shrink: float

    @classmethod
    def draw(cls, S: int, A: int, seed: int = 0, draws: int = DRAWS) -> Noise:
        """Draws for S states and A actions; their number is rounded up to whole blocks."""
        from scipy.stats import chi2

        rng = np.random.default_rng([seed, S, A])
        width = min(WIDTH, draws)
        blocks = -(-draws // width)
        return cls(
            pair=rng.standard_normal((blocks, S * A, width), np.float32),
            state=rng.standard_normal((blocks, S, width), np.float32),
            shrink=float(chi2.ppf(DOUBT, blocks * width) / (blocks * width)),
        )


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of the errors of V.

    Attributes:
        noise: The standard normal draws behind them.
        z: float32 (blocks, S, WIDTH), the draws in multiples of `unit`.
        missing: float64 (S,), how far a row of z may be wrong (rms over draws, same multiples).
        unit: A power of two.
    """

    noise: Noise
    z: Singles
    missing: Floats
    unit: float

    @classmethod
    def of(
        cls, noise: Noise, A: sparse.csr_array, pi: Floats, e: Floats, of_b: Floats, v: Floats,
        before: Drawn | None,
    ) -> Drawn:  # fmt: skip
        """The draws of a policy; `before` are those of one that differs little."""
        unit = float(2.0 ** np.frexp(np.sqrt(v.max(initial=0.0)))[1])
        u = np.empty_like(noise.state)

        def mix(begin: int, end: int) -> None:
            for block in range(begin, end):
                mixed_noise(pi, e, of_b, noise.pair[block], noise.state[block], unit, u[block])

        in_parts(mix, each_block(len(u)))
        if not v.any():
            return cls(noise, u, np.zeros(len(v)), unit)
        z = None
        if before is not None and 1e-9 < before.unit / unit < 1e9:
            z = before.z * np.float32(before.unit / unit)
        size = np.sqrt(v) / unit
        there = v > 0
        tolerance = 0.8 * COARSE * float(size.sum() / solve_above(A, size).sum())
        while tolerance > FINEST:
            z, left = solve_blocks(A, u, z, tolerance)
            missing = solve_above(A, left)
            share = float(np.minimum(missing[there] / size[there], 1.0).mean())
            if share <= COARSE:
                return cls(noise, z, missing, unit)
            tolerance *= 0.6 * COARSE / share
        return cls._finely(noise, A, u, z, unit)

    @classmethod
    def _finely(
        cls, noise: Noise, A: sparse.csr_array, u: Singles, z: Singles | None, unit: float
    ) -> Drawn:
        """The draws in double precision, kept in single precision."""
        blocks, S, width = u.shape

        def columns(X: Singles) -> Floats:
            return X.transpose(1, 0, 2).reshape(S, blocks * width).astype(np.float64)

        B = columns(u)
        X = solve_many(A, B, None if z is None else columns(z))

        def rms(Y: Floats) -> Floats:
            return np.asarray(np.sqrt((Y**2).mean(axis=1)))

        size = rms(X)
        left = rms(B + A @ X - X) + 1e-7 * rms(B) + 1e-13 * (size + A @ size) + 1e-40
        z = X.reshape(S, blocks, width).transpose(1, 0, 2).astype(np.float32)
        return cls(noise, np.ascontiguousarray(z), solve_above(A, left) + 1e-7 * size, unit)


def policy_matrix(b: Floats, choice: NDArray[Any]) -> Floats:
    """π(a|s) (S, A) of a choice (S,): 1 at the chosen action, b where it is -1."""
    pi = b.copy()
    speaks = np.flatnonzero(choice >= 0)
    pi[speaks] = 0.0
    pi[speaks, choice[speaks]] = 1.0
    return pi


def moves(P: Matrix, pi: Floats, gamma: float) -> Matrix:
    """γ P_π, (S, S), dense where P (S·A, S) is; pi (S, A)."""
    S, A = pi.shape
    if isinstance(P, np.ndarray):
        return np.asarray(gamma * np.einsum("sa,sat->st", pi, P.reshape(S, A, -1)))
    state, action = np.nonzero(pi)
    pair = state * A + action
    mixed = sparse.csr_array((pi[state, action], (state, pair)), shape=(S, S * A)) @ P
    mixed.sum_duplicates()
    mixed.data *= gamma
    return mixed


@dataclass(frozen=True, eq=False)
class Advantages:
    """A policy evaluated in the model of a log, and the errors of what it brings.

    Attributes:
        table: The transitions of the log.
        gamma: Discount in (0, 1].
        choice: int64 (S,), the chosen action, -1 where the policy defers.
        pi: float64 (S, A), the policy: b̂ where it defers.
        V: float64 (S,), its values.
        Q: float64 (S, A), the values of every pair, the policy followed after; 0 where never seen.
        e: float64 (S, A), the variance of each pair's mean target.
        v: float64 (S,), the variance of V's equation at each state.
        prior: float64 (S,), σ0².
        A: γ P_π (S, S), dense where the model is.
        M: float64 (S, S), (I - γ P_π)^-1; None where there are more than `DENSE` states.
        drawn: Draws of the errors of V; None otherwise. Both None: no errors can be asked for.
    """

    table: Transitions
    gamma: float
    choice: Ints
    pi: Floats
    V: Floats
    Q: Floats
    e: Floats
    v: Floats
    prior: Floats
    A: Matrix
    M: Floats | None
    drawn: Drawn | None

    @classmethod
    def of(
        cls,
        table: Transitions,
        P: Matrix,
        R: Floats,
        gamma: float,
        choice: Ints,
        noise: Noise | None = None,
        before: Advantages | None = None,
        *,
        errors: bool = True,
    ) -> Advantages:
        """Evaluate a choice.

        Args:
            table: The transitions of the log, S states and A actions.
            P: table.P().
            R: table.R().
            gamma: Discount in (0, 1].
            choice: int64 (S,), the chosen action, -1 where the policy defers.
            noise: The draws to use; None computes the inverse.
            before: A policy that may differ little: its inverse is updated, or its draws begun
                from. Default None.
            errors: Whether `errors` will be asked: else neither inverse nor draws are made. Default
                True.
        """
        b = table.b
        pi = policy_matrix(b, choice)
        A = moves(P, pi, gamma)
        Rpi = (pi * R.reshape(pi.shape)).sum(axis=1)
        M = None
        if gamma > 1 - 1e-9:  # else every step loses mass
            check_ending(A)
        if noise is None and errors:
            M = _inverse(A, before)
            V = M @ Rpi
            V = V + M @ (Rpi + A @ V - V)
        else:
            V = solve(A, Rpi, quick=True)
        dense = isinstance(P, np.ndarray)
        Q = (R + gamma * (P @ V)).reshape(pi.shape) if dense else table.Q(V, gamma)
        e, prior = np.zeros(pi.shape), np.zeros(len(V))
        variances(
            table.first, table.next, table.count, table.mean, table.spread, table.n, b,
            np.append(V, 0.0), Q, gamma, OWN, POOLED, e, prior,
        )  # fmt: skip
        usual = (b * Q).sum(axis=1, keepdims=True)
        of_b = (b * (Q - usual) ** 2).sum(axis=1) / np.maximum(table.visits, 1)
        of_b[choice >= 0] = 0.0
        v = (pi**2 * e).sum(axis=1) + of_b
        drawn = None
        if noise is not None and errors:
            like = None if before is None else before.drawn
            drawn = Drawn.of(noise, A, pi, e, of_b, v, like)
        return cls(table, gamma, choice, pi, V, Q, e, v, prior, A, M, drawn)

    @property
    def delta(self) -> Floats:
        """float64 (S, A): Δ = Q - V."""
        return self.Q - self.V[:, None]

    def may_pass(self, kappa: Floats) -> Bools:
        """bool (S, A): pairs whose Δ may be kappa (S, A) standard errors above 0, whatever M is."""
        e, v = self.e, self.v[:, None]
        own = np.where((self.pi == 0) | (v <= 0), 1.0, 1 - self.pi**2 * e / np.where(v > 0, v, 1.0))
        least = np.sqrt(np.maximum(e * own, 0.0))
        with np.errstate(invalid="ignore"):
            bar = np.where(np.isfinite(kappa), kappa * least, np.inf)
        return np.asarray((self.delta > 0) & (self.delta >= bar * (1 - 1e-9)))

    def errors(self, kappa: Floats, *, skip: bool = True) -> tuple[Floats, int]:
        """Standard errors of Δ.

        Args:
            kappa: float64 (S, A), the number of standard errors Δ must be above 0; infinite where
                the error is not asked for.
            skip: Whether to leave out pairs that cannot be above 0. Default True.

        Returns:
            float64 (S, A), NaN where left out; and how many were computed.
        """
        t, se = self.table, np.full(self.pi.shape, np.nan)
        delta = self.delta
        edges = [0, len(self.V)] if se.size < 50_000 else [0, len(self.V) // 2, len(self.V)]
        ranges = list(itertools.pairwise(edges))

        def exact(begin: int, end: int) -> int:
            assert self.M is not None
            return exact_errors(
                begin, end, t.first, t.next, t.count, t.n, self.pi, self.M, self.gamma, delta,
                self.e, self.v, kappa, skip, se,
            )  # fmt: skip

        def sketched(begin: int, end: int) -> int:
            d = self.drawn
            assert d is not None
            return drawn_errors(
                begin, end, t.first, t.next, t.count, t.n, self.pi, d.noise.pair, d.z, d.missing,
                d.unit, self.gamma, delta, self.e, self.v, kappa, skip, d.noise.shrink, se,
            )  # fmt: skip

        return se, sum(in_parts(sketched if self.M is None else exact, ranges))


def over_usual(here: Advantages) -> tuple[Floats, Floats]:
    """What each pair brings over usual practice in its state, the policy being followed elsewhere.

        Q^π(s,a) - ∑_a' b̂(a'|s) Q^π(s,a')

    Where the policy defers this is Δ; where it names an action Δ of that is 0 by definition, and
    this is what would be lost by going back to usual practice there.

    Args:
        here: A policy, evaluated.

    Returns:
        float64 (S, A), twice: the difference and its standard error; NaN where never seen.
    """
    t = here.table
    b, seen = t.b, t.n > 0
    usual = (b * here.Q).sum(axis=1, keepdims=True)
    deferred = (here.choice < 0)[:, None]
    se, _ = here.errors(np.where(seen & deferred, 0.0, np.inf), skip=False)
    of_b = (b * (here.Q - usual) ** 2).sum(axis=1) / np.maximum(t.visits, 1)
    S = len(here.V)
    if here.M is not None:
        usual_errors(
            0, S, t.first, t.next, t.count, t.n, b, here.choice, here.M, here.gamma, here.e, here.v,
            of_b, se,
        )  # fmt: skip
    else:
        d = here.drawn
        assert d is not None
        drawn_usual_errors(
            0, S, t.first, t.next, t.count, t.n, b, here.choice, d.noise.pair, d.noise.state, d.z,
            d.missing, d.unit, here.gamma, here.e, of_b, d.noise.shrink, se,
        )  # fmt: skip
    return np.where(seen, here.Q - usual, np.nan), np.where(seen, se, np.nan)


def _inverse(A: Matrix, before: Advantages | None) -> Floats:
    """(I - A)^-1 (S, S); from that of a policy that differs in few rows, where there is one.

    With D the rows that differ and U their columns of the old inverse M (Woodbury):
    M' = M + U (1 - D U)^-1 D M.
    """
    S = A.shape[0]
    if isinstance(A, np.ndarray):
        return np.asarray(np.linalg.inv(np.eye(S) - A), np.float64)
    if before is not None and before.M is not None:
        D = sparse.csr_array(A - before.A)
        D.eliminate_zeros()
        rows = np.flatnonzero(np.diff(D.indptr))
        if len(rows) <= S // FEW:
            change = D[rows] @ before.M
            core = np.eye(len(rows)) - change[:, rows]
            return np.asarray(before.M + before.M[:, rows] @ np.linalg.solve(core, change))
    return np.asarray(np.linalg.inv(np.eye(S) - A.toarray()))


def check_ending(A: Matrix) -> None:
    """Refuse a policy that in the model never ends, without discount."""
    stuck = np.flatnonzero(~leaks(A))
    if len(stuck):
        raise PlanError(
            f"a value is not defined for {len(stuck):,} of {A.shape[0]:,} states: nothing ever "
            "ends.",
            f"state number {stuck[0]}",
            "With gamma = 1 every choice must lead to an end; use a gamma below 1 (0.999, say).",
        ).at(stuck.tolist())


# --- What a policy brings over usual practice in the model of a log, and how far that may be
# wrong
#
#     gain = ρ(π) - ρ(b̂),      ρ(π) = ∑_s start(s) V^π(s)
#
# By the delta method. A visit of (s, a) has a target under both policies, and they are
# correlated:
#
#     z = c_π (r + γ V^π(s')) - c_b (r + γ V^b(s')),   c_π(s,a) = (start M_π)(s) π(a|s)
#
# so each pair adds the variance of its mean z (shrunk as in `dprl.planning.advantages`). The error
# of b̂ itself adds Var_b(h)/n(s), h = w_π Q^π - w_b Q^b where the policy defers and -w_b Q^b where
# it does not; the start distribution adds Var(V^π - V^b)/episodes. Degrees of freedom by
# Satterthwaite, at most those of the pair among the changes that most trajectories stand behind.
#
# It pays nothing for having chosen the policy: see `dprl.learners.family`.


@dataclass(frozen=True)
class Gain:
    """An estimated gain over usual practice.

    Attributes:
        estimate: ρ(π) - ρ(b̂) in the model, in units of returns.
        se: Its standard error, as if visits were independent.
        df: Degrees of freedom of the standard error, at least 1.
        alone: ∑_i IF_i², what the visits add to se² before anything is shrunk.
    """

    estimate: float
    se: float
    df: float
    alone: float = 0.0

    def se_in_groups(self, sums: Floats) -> float:
        """Its standard error with groups in it, from what each group adds (groups,).

        se² = by visits + max(0, G/(G - 1) ∑_g (∑_{i in g} IF_i)² - ∑_i IF_i²)
        """
        G = len(sums)
        more = float((sums**2).sum()) * G / (G - 1) - self.alone if G > 1 else 0.0
        return float(np.sqrt(self.se**2 + max(more, 0.0)))

    def low(self, risk: float, more: float = 0.0, se: float | None = None) -> float:
        """The lower end at level 1 - risk, after taking off `more` standard errors.

        se: The standard error of the quantile, where it is another one.
        """
        quantile = float(stdtrit(self.df, 1 - risk))
        return self.estimate - more * self.se - quantile * (self.se if se is None else se)


@compiled
def _target_variances(
    first: Ints, following: Ints, count: Ints, mean: Floats, spread: Floats, n: Ints,
    V: Floats, U: Floats, c: Floats, d: Floats, gamma: float, own: float, prior: Floats,
    e: Floats,
) -> float:  # pragma: no cover - compiled  # fmt: skip
    """Fill e (S, A), the variance of each pair's mean z = c (r + γ V(s')) - d (r + γ U(s')).

    Returns the sum over all visits of the squares of what they add to these means.

    V, U (S + 1,) end with the 0 of END; prior (S,) is σ0² of the targets under V.
    """
    S, A = n.shape
    alone = 0.0
    for s in range(S):
        for a in range(A):
            if n[s, a] == 0:
                continue
            one, other, total = c[s, a], d[s, a], 0.0
            for j in range(first[s * A + a], first[s * A + a + 1]):
                y, x = mean[j] + gamma * V[following[j]], mean[j] + gamma * U[following[j]]
                total += count[j] * (one * y - other * x)
            middle, squares = total / n[s, a], 0.0
            for j in range(first[s * A + a], first[s * A + a + 1]):
                y, x = mean[j] + gamma * V[following[j]], mean[j] + gamma * U[following[j]]
                squares += spread[j] * (one - other) ** 2
                squares += count[j] * (one * y - other * x - middle) ** 2
            alone += squares / n[s, a] ** 2
            squares += own * prior[s] * (one - other) ** 2
            e[s, a] = squares / max(n[s, a] + own - 1, 1.0) / n[s, a]
    return alone


def _occupancy(here: Advantages, start: Floats) -> Floats:
    """start M (S,): discounted visits of each state."""
    return start @ here.M if here.M is not None else solve_left(here.A, start)


def gain(policy: Advantages, usual: Advantages, groups: Ints) -> Gain:
    """The gain of a policy over usual practice.

    Args:
        policy: The policy, evaluated.
        usual: The policy that defers everywhere, evaluated in the same model.
        groups: int64 (S, A), trajectories that contain each pair.
    """
    t, gamma = policy.table, policy.gamma
    episodes = int(t.start.sum())
    start = t.start / episodes
    w, x, middle = _weights(policy, usual)
    e = np.zeros(policy.pi.shape)
    alone = _target_variances(
        t.first, t.next, t.count, t.mean, t.spread, t.n, np.append(policy.V, 0.0),
        np.append(usual.V, 0.0), w[:, None] * policy.pi, x[:, None] * usual.pi, gamma, OWN,
        policy.prior, e,
    )  # fmt: skip
    of_b = (usual.pi * middle**2).sum(axis=1) / np.maximum(t.visits, 1)
    difference = policy.V - usual.V
    estimate = float(start @ difference)
    of_start = float(start @ (difference - estimate) ** 2) / episodes
    variance = float(e.sum() + of_b.sum()) + of_start
    alone += float(of_b.sum()) + of_start
    share = float((e**2 / np.maximum(groups - 1, 1)).sum())
    share += float((of_b**2 / np.maximum(t.visits, 1)).sum())
    df = variance**2 / share if share > 0 else 1e6
    at = np.flatnonzero(policy.choice >= 0)
    most = int(groups[at, policy.choice[at]].max(initial=0)) - 1
    return Gain(estimate, float(np.sqrt(variance)), max(min(df, most, 1e6), 1.0), alone)


def _weights(policy: Advantages, usual: Advantages) -> tuple[Floats, Floats, Floats]:
    """Occupancies (S,) of both policies, and h (S, A) about its mean at each state."""
    start = policy.table.start / int(policy.table.start.sum())
    w, x = _occupancy(policy, start), _occupancy(usual, start)
    deferred = (policy.choice < 0)[:, None]
    h = np.where(deferred, w[:, None] * policy.Q, 0.0) - x[:, None] * usual.Q
    return w, x, h - (usual.pi * h).sum(axis=1, keepdims=True)


def influence(policy: Advantages, usual: Advantages) -> Influence:
    """How each transition of the log moves the gain of a policy, to first order (`gain`)."""
    t, gamma = policy.table, policy.gamma
    w, x, middle = _weights(policy, usual)
    n = np.maximum(t.n, 1)
    one, other = w[:, None] * policy.pi / n, x[:, None] * usual.pi / n
    own = other * usual.Q - one * policy.Q + middle / np.maximum(t.visits, 1)[:, None]
    difference, episodes = policy.V - usual.V, int(t.start.sum())
    return Influence(
        one=one.ravel(),
        other=other.ravel(),
        own=own.ravel(),
        V=gamma * np.append(policy.V, 0.0),
        U=gamma * np.append(usual.V, 0.0),
        start=(difference - t.start @ difference / episodes) / episodes,
    )


def unseen(policy: Advantages, usual: Advantages, groups: Ints, worst: float) -> float:
    """What one return of `worst` that has not been seen yet would cost, at the dearest suggestion.

        max over suggestions of w(s) (1 - b(a|s)) (Q^b(s,a) - worst) / m(s,a)

    Args:
        policy: The policy, evaluated.
        usual: The policy that defers everywhere, evaluated in the same model.
        groups: int64 (S, A), trajectories m that contain each pair.
        worst: The lowest return there can be.
    """
    at, w = _changed(policy, usual)
    return float((w * np.maximum(usual.Q[at] - worst, 0.0) / groups[at]).max(initial=0.0))


def _changed(policy: Advantages, usual: Advantages) -> tuple[tuple[Ints, Ints], Floats]:
    """The suggested pairs, and w(s) (1 - b(a|s)) of each: how much oftener it is taken."""
    speaks = np.flatnonzero(policy.choice >= 0)
    at = speaks, policy.choice[speaks]
    return at, _weights(policy, usual)[0][speaks] * (1 - usual.pi[at])


RARE = 0.1
"""A loss that fewer of the cases of an action have is rare: a sample may well not have met it."""


def rare_losses(here: Advantages) -> Floats:
    """How large the rare losses of each action are, wherever in the log it was taken.

    A pair whose targets y lie between l and h with mean Q, and are one or the other, has
    E (y - Q)³ = -(2Q - l - h) Var y: the smaller side is the farther one. So over the pairs of an
    action, weighted by their sums of squares,

        D(a) = ∑_s SS (2Q - l - h) / ∑_s SS,      q(a) = ∑_s SS / ∑_s n / D²,

    are the size and the share of such losses. What is returned is D √max(0, 1 - q/`RARE`), and 0
    where targets lie about their means evenly.

    Args:
        here: Usual practice, evaluated.

    Returns:
        float64 (A,).
    """
    t = here.table
    S, A = t.n.shape
    ahead = here.gamma * np.append(here.V, 0.0)[t.next]
    pair, Q = np.repeat(np.arange(S * A), np.diff(t.first)), here.Q.ravel()
    squares = t.spread + t.count * (t.mean + ahead - Q[pair]) ** 2
    seen = np.flatnonzero(np.diff(t.first))
    ends = np.minimum.reduceat(t.lowest + ahead, t.first[seen])
    ends += np.maximum.reduceat(t.highest + ahead, t.first[seen])
    action, SS = seen % A, np.bincount(pair, squares, S * A)[seen]
    total = np.bincount(action, SS, A)
    with np.errstate(divide="ignore", invalid="ignore"):
        D = np.bincount(action, SS * (2 * Q[seen] - ends), A) / total
        rare = np.maximum(1 - total / t.n.sum(axis=0) / D**2 / RARE, 0.0)
        return np.where(D > 0, D * np.sqrt(rare), 0.0)


def borrowed(policy: Advantages, usual: Advantages, groups: Ints, losses: Floats) -> float:
    """What one more such loss would cost, at the suggestion where its own record allows it least.

        max over suggestions of w(s) (1 - b(a|s)) √max(0, D(a)²/m(s,a)² - e(s,a))

    Args:
        policy: The policy, evaluated.
        usual: The policy that defers everywhere, evaluated in the same model.
        groups: int64 (S, A), trajectories m that contain each pair.
        losses: float64 (A,), the rare losses D of each action.
    """
    at, w = _changed(policy, usual)
    more = np.maximum((losses[at[1]] / groups[at]) ** 2 - policy.e[at], 0.0)
    return float((w * np.sqrt(more)).max(initial=0.0))
