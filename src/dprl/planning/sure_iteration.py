r"""Policy iteration among actions that are surely better, and what a policy is worth in a model.

For one doubt ε: start from a policy (usual practice, or always the usual action); in every state
switch to the action with the largest

    Δ(s,a) - t_{1 - ε/K(s), m - 1} · se(s,a)

where that is above 0 (Δ and se against the policy so far, `dprl.planning.advantages`; m the
trajectories that contain the pair, K(s) the eligible actions less one); repeat until nothing moves.
Every switch has Δ > 0 in the model, so values only rise and it ends. For ε in `DOUBTS` this is a
family from daring to timid (`dprl.learners.family` has it among its members).

**Judging a policy that another log chose.** An action that this log never saw counts as usual
practice, not as worth nothing. With `kappa` visits' worth of doubt every suggestion counts so in
part: its pair's model is moved towards what usual practice meets in the state,

    P_κ(s,a) = w P̂(s,a) + (1 - w) P̂_b(s),     w = n(s,a) / (n(s,a) + κ),     R_κ alike

which is the policy that follows a suggestion with probability w. A few visits that happened to go
well, or not to end, then do not decide.

Without discount a policy may circle for ever in a model. Where its own choice does, a state defers;
where another's choice circles at a profit there is no judgement.
"""

from __future__ import annotations

# Apart: an algorithm of its own.
import functools
from collections.abc import Callable

import numpy as np
from scipy.special import stdtrit

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.linear import Matrix, compact, leaks, solve
from dprl.errors import PlanError
from dprl.logs.log import Log
from dprl.planning.advantages import DENSE, Advantages, Noise, moves, policy_matrix
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.iteration import BETTER, iterate
from dprl.planning.model import Model, Transitions

DOUBTS = (0.5, 0.35, 0.25, 0.16, 0.1, 0.05, 0.01)
"""ε of the members of the family, the most daring first."""

SMALL = 250_000
"""The largest table (S, A, S) that is kept as it is, to evaluate many policies in."""


class PlanModel:
    """The model of one log, in which policies are evaluated.

    Args:
        table: The transitions of the log.
        groups: int64 (S, A), trajectories that contain each pair.
        gamma: Discount in (0, 1].
        eligible: bool (S, A), the pairs that may be chosen.
        seed: Seed of the draws that stand for the inverse where there are many states.
        skip: Whether pairs that cannot pass are left out; the answer is the same.
        dense: The most states for which the inverse is computed.
        noise: The draws; models of the same states may share them. Default None: drawn if needed.
        rows: The log behind it, for learners that ask for rows. Default None: there is none.
    """

    def __init__(
        self,
        table: Transitions,
        groups: Ints,
        gamma: float,
        eligible: Bools,
        *,
        seed: int = 0,
        skip: bool = True,
        dense: int = DENSE,
        noise: Noise | None = None,
        rows: Callable[[], Log] | None = None,
    ) -> None:
        self.rows = rows
        self.table, self.groups, self.gamma, self.eligible = table, groups, gamma, eligible
        self.skip = skip
        S, A = table.n.shape
        self.noise = None if dense >= S else noise or Noise.draw(S, A, seed)
        self._sparse, self._R = table.P(), table.R()
        few = self.noise is None and S * A * S <= SMALL
        self._P: Matrix = compact(self._sparse, S if few else 0)
        self._known: dict[bytes, Advantages] | None = {} if few else None
        self.usual = self.evaluate(np.full(S, -1, np.int64))
        self.circling = np.zeros(S, bool)  # states whose suggestion never came to an end

    @functools.cached_property
    def mdp(self) -> Model:
        """The same as an MDP with numbers for names, in which every baseline plans."""
        S, A = self.table.n.shape
        R = self._R.reshape(S, A)
        start = self.table.start / self.table.start.sum()
        mdp = FiniteMDP(
            "maximum likelihood", tuple(range(S)), tuple(range(A)), self._sparse, R, R, start,
            self.table.b, self.gamma,
        )  # fmt: skip
        return Model(mdp, self.table.n)

    def evaluate(
        self, choice: Ints, before: Advantages | None = None, *, errors: bool = True
    ) -> Advantages:
        """The policy of a choice (S,), evaluated; `before` is one that differs little.

        errors: Whether the errors of its advantages will be asked for; without them it costs less.
        With few states every policy is evaluated once, with its errors.
        """
        known, key = self._known, choice.tobytes()
        if known is not None and key in known:
            return known[key]
        made = Advantages.of(
            self.table, self._P, self._R, self.gamma, choice, self.noise, before,
            errors=errors or known is not None,
        )  # fmt: skip
        if known is not None:
            known[key] = made
        return made

    def admitted(self, choice: Ints) -> Ints:
        """A choice that somebody made, as a policy may issue it; where it may not, it defers.

        An action must be eligible, and not the only one there is; and (without discount) the policy
        must come to an end.
        """
        n, at = self.table.n, np.arange(len(choice))
        taken = np.maximum(choice, 0)
        may = self.eligible[at, taken] & (n[at, taken] < n.sum(axis=1))
        choice = np.where((choice >= 0) & may, choice, -1).astype(np.int64)
        while self.gamma == 1 and (stuck := ~leaks(self._moves(self._mixed(choice)))).any():
            choice[stuck] = -1
        return choice

    @functools.cached_property
    def habit(self) -> Advantages:
        """Always the usual action, the first of equals, where it may be suggested; evaluated."""
        return self.evaluate(self.admitted(self.table.n.argmax(axis=1)))

    def kappa(self, doubt: float) -> Floats:
        """float64 (S, A): how many standard errors a pair must be above 0; infinite if barred."""
        quantiles, place = self._quantiles
        at = np.maximum(stdtrit(quantiles[0], 1 - doubt / quantiles[1]), 0.0)
        return np.where(self.eligible, at[place], np.inf)

    @functools.cached_property
    def _quantiles(self) -> tuple[Floats, Ints]:
        """The different (degrees of freedom, K), float64 (2, k); which a pair has, (S, A)."""
        K = np.maximum(self.eligible.sum(axis=1, keepdims=True) - 1, 1)
        df = np.maximum(self.groups - 1, 1)
        A = df.shape[1] + 1
        both, place = np.unique(df * A + K, return_inverse=True)
        return np.stack(np.divmod(both, A)).astype(np.float64), place.reshape(df.shape)

    def iterate(
        self, doubt: float, start: Advantages | None = None
    ) -> tuple[Advantages, int, int, int]:
        """The settled policy of one doubt; rounds, errors computed and errors asked for.

        start: Where it begins. Default None: usual practice.

        Where without discount a policy circles for ever, its states are barred (`circling`) and it
        is begun again: usual practice comes to an end.
        """
        kappa = self.kappa(doubt)
        while True:
            try:
                return self._settled(kappa, self.usual if start is None else start)
            except PlanError as error:
                if not error.stuck:
                    raise
                self.circling[error.stuck] = True
                kappa[error.stuck] = np.inf

    def _settled(self, kappa: Floats, here: Advantages) -> tuple[Advantages, int, int, int]:
        """The policy at which iteration settles, with bars (S, A); and the rest of `iterate`.

        Draws cost more than values: with them errors are held until nothing moves, and asked again.
        """
        states = np.arange(len(here.V))
        rounds = solved = asked = 0
        held = np.empty(kappa.shape)

        def evaluate(choice: Ints) -> Advantages:
            nonlocal here
            if choice is here.choice:
                return here
            if self.noise is not None:
                return self.evaluate(choice, errors=False)
            here = self.evaluate(choice, here)
            return here

        def lower_ends(here: Advantages) -> Floats:
            nonlocal solved, asked, held
            bars = kappa.copy()
            speaks = np.flatnonzero(here.choice >= 0)
            bars[speaks, here.choice[speaks]] = np.inf
            new = here.M is not None or here.drawn is not None
            if new:
                held, computed = here.errors(bars, skip=self.skip)
                solved, asked = solved + computed, asked + int(np.isfinite(bars).sum())
            with np.errstate(invalid="ignore"):
                low = here.delta - bars * held
            low[np.isnan(low)] = -np.inf
            if new and self.noise is not None:  # the same with and without `skip`
                held[~here.may_pass(bars)] = np.nan
            return low

        def surest(choice: Ints, here: Advantages, low: Floats) -> tuple[Ints, Bools]:
            best = low.argmax(axis=1)
            size = np.abs(here.V) + np.abs(here.Q[states, best])
            return best, low[states, best] > BETTER * size

        while True:
            choice, last, _, more = iterate(
                here.choice, evaluate, lower_ends, surest, "Use a smaller gamma."
            )
            rounds += more
            if last is here:
                return here, rounds, solved, asked
            here = self.evaluate(choice, here)

    def value(self, choice: Ints, kappa: float = 0.0) -> float:
        """ρ of a choice in this model; circling for ever is worth what it earns before."""
        pi = self._mixed(choice, kappa)
        R = (pi * self._R.reshape(pi.shape)).sum(axis=1)
        less = 1 - 1e-9
        A = self._moves(pi, less)
        V = (
            np.linalg.solve(np.eye(len(R)) - A, R)
            if isinstance(A, np.ndarray)
            else solve(A, R, quick=True)
        )
        return float(self.table.start @ V) / float(self.table.start.sum())

    def brings(self, choice: Ints, kappa: float = 0.0) -> float | None:
        """What a choice brings over usual practice in this model.

        An action that was never seen in a state counts as usual practice there: this log says
        nothing about it. None where the choice circles at a profit: that has no value.

        kappa: With how many visits' worth of usual practice every suggestion is mixed.
        """
        seen = self.table.n[np.arange(len(choice)), np.maximum(choice, 0)] > 0
        choice = np.where(seen, choice, -1)
        difference = self.value(choice, kappa) - self._practice
        if self.gamma < 1 or difference <= 0:
            return difference
        pi = self._mixed(choice, kappa)
        R = (pi * self._R.reshape(pi.shape)).sum(axis=1)
        return None if R[~leaks(self._moves(pi))].any() else difference

    @functools.cached_property
    def _practice(self) -> float:
        """ρ of usual practice."""
        return self.value(np.full(len(self.usual.V), -1, np.int64))

    def _mixed(self, choice: Ints, kappa: float = 0.0) -> Floats:
        """π (S, A) of a choice, its suggestions followed with probability n / (n + kappa)."""
        pi = policy_matrix(self.table.b, choice)
        if not kappa:
            return pi
        n = self.table.n[np.arange(len(choice)), np.maximum(choice, 0)]
        w = np.where(choice >= 0, n / (n + kappa), 1.0)[:, None]
        return w * pi + (1 - w) * self.table.b

    def _moves(self, pi: Floats, share: float = 1.0) -> Matrix:
        """What follows what under π, (S, S), discounted by γ · share."""
        return moves(self._P, pi, self.gamma * share)
