r"""How much better an action is than the policy so far, and how sure that is (labelled states).

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

z need not be exact (`dprl._core.blocks`, single precision). With x in its place, what is left of
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
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.blocks import WIDTH, each_block, solve_blocks
from dprl._core.compiled import in_parts
from dprl._core.linear import leaks, solve, solve_above, solve_many
from dprl.errors import PlanError
from dprl.planning._advantage_loops import (
    drawn_errors,
    drawn_usual_errors,
    exact_errors,
    mixed_noise,
    usual_errors,
    variances,
)
from dprl.planning.transitions import Transitions

__all__ = ["DENSE", "Advantages", "Noise", "moves", "over_usual", "policy_matrix"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Singles: TypeAlias = NDArray[np.float32]

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


def _rows(weights: Floats) -> sparse.csr_array:
    """CSR (S, S·A) whose row s holds weights[s] (S, A) at the pairs of s."""
    S, A = weights.shape
    state, action = np.nonzero(weights)
    return sparse.csr_array((weights[state, action], (state, state * A + action)), shape=(S, S * A))


def moves(P: sparse.csr_array, pi: Floats, gamma: float) -> sparse.csr_array:
    """γ P_π, CSR (S, S)."""
    mixed = sparse.csr_array(_rows(pi) @ P)
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
        A: CSR (S, S), γ P_π.
        M: float64 (S, S), (I - γ P_π)^-1; None where there are more than `DENSE` states.
        drawn: Draws of the errors of V; None otherwise.
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
    A: sparse.csr_array
    M: Floats | None
    drawn: Drawn | None

    @classmethod
    def of(
        cls,
        table: Transitions,
        P: sparse.csr_array,
        R: Floats,
        gamma: float,
        choice: Ints,
        noise: Noise | None = None,
        before: Advantages | None = None,
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
        """
        b = table.b
        pi = policy_matrix(b, choice)
        A = moves(P, pi, gamma)
        Rpi = (pi * R.reshape(pi.shape)).sum(axis=1)
        M = None
        check_ending(A)
        if noise is None:
            M = _inverse(A, before)
            V = M @ Rpi
            V = V + M @ (Rpi + A @ V - V)
        else:
            V = solve(A, Rpi)
        Q = table.Q(V, gamma)
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
        if noise is not None:
            like = None if before is None else before.drawn
            drawn = Drawn.of(noise, A, pi, e, of_b, v, like)
        return cls(table, gamma, choice, pi, V, Q, e, v, prior, A, M, drawn)

    @property
    def delta(self) -> Floats:
        """float64 (S, A): Δ = Q - V."""
        return self.Q - self.V[:, None]

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


def _inverse(A: sparse.csr_array, before: Advantages | None) -> Floats:
    """(I - A)^-1 (S, S); from that of a policy that differs in few rows, where there is one.

    With D the rows that differ and U their columns of the old inverse M (Woodbury):
    M' = M + U (1 - D U)^-1 D M.
    """
    S = A.shape[0]
    if before is not None and before.M is not None:
        D = sparse.csr_array(A - before.A)
        D.eliminate_zeros()
        rows = np.flatnonzero(np.diff(D.indptr))
        if len(rows) <= S // FEW:
            change = D[rows] @ before.M
            core = np.eye(len(rows)) - change[:, rows]
            return np.asarray(before.M + before.M[:, rows] @ np.linalg.solve(core, change))
    return np.asarray(np.linalg.inv(np.eye(S) - A.toarray()))


def check_ending(A: sparse.csr_array) -> None:
    """Refuse a policy that in the model never ends, without discount."""
    stuck = np.flatnonzero(~leaks(A))
    if len(stuck):
        raise PlanError(
            f"a value is not defined for {len(stuck):,} of {A.shape[0]:,} states: nothing ever "
            "ends.",
            f"state number {stuck[0]}",
            "With gamma = 1 every choice must lead to an end; use a gamma below 1 (0.999, say).",
        )
