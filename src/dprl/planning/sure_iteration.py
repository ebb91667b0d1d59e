r"""Policy iteration among actions that are surely better, and the policy that is surest as a whole.

For one doubt ε: start from usual practice; in every state switch to the action with the largest

    Δ(s,a) - t_{1 - ε/K(s), m - 1} · se(s,a)

where that is above 0 (Δ and se against the policy so far, `dprl.planning.advantages`; m the
trajectories that contain the pair, K(s) the eligible actions less one); repeat until nothing moves.
Every switch has Δ > 0 in the model, so values only rise and it ends.

For ε in `DOUBTS` this is a family from daring to timid. Chosen is the member with the largest lower
end of *its own gain*; none above 0 means DEFER everywhere. (With `keep` below 1: the most timid
member that keeps this share of the largest lower end, which makes fewer changes.)

**A bound that pays for the choice.** That lower end does not know that the policy was chosen
because it looks good. So the groups are divided in two halves, the whole choice is made on one, and
its estimate there is compared with what the other half says of the same policy:

    t = (estimate of the choosing half - estimate of the other half) / se of the choosing half

The mean of t over `splits` divisions (both ways) is how many standard errors an estimate of this
learner is too high on this log; where it is positive it is taken off, and the level is shared by
the seven members of the family:

    bound = estimate - max(mean t, 0) · se - t_{1 - risk/7, df} · se_g

se_g has groups in it: se_g² = se² + max(0, G/(G - 1) ∑_g (∑_{i in g} IF_i)² - ∑_i IF_i²), IF_i what
a visit i adds to the estimate to first order. Episodes of one patient are one group, not many.

A half must choose as daringly as the whole log does, or it finds too little optimism. So a half
counts each trajectory twice where it asks how many stand behind a pair (degrees of freedom, and
n_min / 2 of its own are enough), compares lower ends at the level of the whole, and chooses the
largest although it is not above 0.

**What has not happened yet.** A catastrophe with chance q at a suggestion is unseen in its m cases
with chance (1 - q)^m. If it was seen at none, ∑ m q <= ln(1/α) but for chance α, and it costs at
most

    ln(1/α) · max_s w(s) (1 - b(a|s)) (Q^b(s,a) - worst) / m(s,a)

`worst` being the lowest return there can be (w(s): how often s is met). With
`worst` half of the risk is α and this is taken off; without it nothing can be said.

An action that the other half never saw counts there as usual practice, not as worth nothing.
Without discount a policy may circle for ever in a model. Where its own choice does, a state defers;
a half in which the other's choice circles at a profit is not asked: it would cancel everything that
the others say.
Large-sample, and measured (`dprl reproduce confident`), not proved.
"""

from __future__ import annotations

# Apart: an algorithm of its own.
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import stdtrit

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.linear import leaks, solve
from dprl.errors import PlanError
from dprl.planning.advantages import (
    DENSE,
    Advantages,
    Gain,
    Noise,
    gain,
    moves,
    policy_matrix,
    unseen,
)
from dprl.planning.iteration import BETTER, iterate
from dprl.planning.model import Transitions

DOUBTS = (0.5, 0.35, 0.25, 0.16, 0.1, 0.05, 0.01)
"""ε of the members of the family, the most daring first."""


@dataclass(frozen=True, eq=False)
class Sure:
    """The policy that was chosen from the family.

    Attributes:
        policy: The policy, evaluated; it defers everywhere if none was sure.
        usual: Usual practice, evaluated in the same model.
        gain: Its estimated gain; None where it defers everywhere.
        doubt: ε of the chosen member; None where it defers everywhere.
        rounds: Rounds of policy iteration of all members together.
        solved: Standard errors that were computed, of all that were asked for.
        asked: The number that were asked for.
    """

    policy: Advantages
    usual: Advantages
    gain: Gain | None
    doubt: float | None
    rounds: int
    solved: int
    asked: int


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
    ) -> None:
        self.table, self.groups, self.gamma, self.eligible = table, groups, gamma, eligible
        self.skip = skip
        S, A = table.n.shape
        self._P, self._R = table.P(), table.R()
        self.noise = None if dense >= S else noise or Noise.draw(S, A, seed)
        self.usual = self.evaluate(np.full(S, -1, np.int64))
        self.circling = np.zeros(S, bool)  # states whose suggestion never came to an end

    def evaluate(self, choice: Ints, before: Advantages | None = None) -> Advantages:
        """The policy of a choice (S,), evaluated; `before` is one that differs little."""
        return Advantages.of(self.table, self._P, self._R, self.gamma, choice, self.noise, before)

    def kappa(self, doubt: float) -> Floats:
        """float64 (S, A): how many standard errors a pair must be above 0; infinite if barred."""
        K = np.maximum(self.eligible.sum(axis=1, keepdims=True) - 1, 1)
        df = np.maximum(self.groups - 1, 1)
        return np.where(self.eligible, np.maximum(stdtrit(df, 1 - doubt / K), 0.0), np.inf)

    def iterate(self, doubt: float) -> tuple[Advantages, int, int, int]:
        """The settled policy of one doubt; rounds, errors computed and errors asked for.

        Where without discount a policy circles for ever, its states are barred (`circling`) and it
        is begun again: usual practice comes to an end.
        """
        kappa = self.kappa(doubt)
        while True:
            try:
                return self._settled(kappa)
            except PlanError as error:
                if not error.stuck:
                    raise
                self.circling[error.stuck] = True
                kappa[error.stuck] = np.inf

    def _settled(self, kappa: Floats) -> tuple[Advantages, int, int, int]:
        """The policy at which iteration settles, with bars (S, A); and the rest of `iterate`."""
        here = self.usual
        states = np.arange(len(here.V))
        solved = asked = 0

        def evaluate(choice: Ints) -> Advantages:
            nonlocal here
            if choice is not here.choice:
                here = self.evaluate(choice, here)
            return here

        def lower_ends(here: Advantages) -> Floats:
            nonlocal solved, asked
            bars = kappa.copy()
            speaks = np.flatnonzero(here.choice >= 0)
            bars[speaks, here.choice[speaks]] = np.inf
            se, computed = here.errors(bars, skip=self.skip)
            solved, asked = solved + computed, asked + int(np.isfinite(bars).sum())
            with np.errstate(invalid="ignore"):
                return np.where(np.isnan(se), -np.inf, here.delta - bars * se)

        def surest(choice: Ints, here: Advantages, low: Floats) -> tuple[Ints, Bools]:
            best = low.argmax(axis=1)
            size = np.abs(here.V) + np.abs(here.Q[states, best])
            return best, low[states, best] > BETTER * size

        settled = iterate(here.choice, evaluate, lower_ends, surest, "Use a smaller gamma.")
        return settled[1], settled[3], solved, asked

    def choose(
        self,
        risk: float,
        keep: float = 1.0,
        progress: Callable[[str, float], None] | None = None,
        *,
        less: tuple[float, float] | None = None,
        always: bool = False,
    ) -> Sure:
        """The member of the family with the largest lower end of its own gain.

        Args:
            risk: The lower ends are at level 1 - risk.
            keep: Below 1 the most timid member whose lower end is at least that share of the
                largest. Default 1.
            progress: Called with the name of the stage and the share of it that is done.
            less: ln(1/α) and the lowest return there can be, where lower ends allow for what has
                not happened yet. Default None: they do not.
            always: Whether a member is chosen although no lower end is above 0. Default False.
        """
        members: list[tuple[float, Advantages, Gain, float]] = []
        seen = set()
        rounds = solved = asked = 0
        for i, doubt in enumerate(DOUBTS):
            if progress is not None:
                progress("asking how sure", i / len(DOUBTS))
            here, *used = self.iterate(doubt)
            rounds, solved, asked = rounds + used[0], solved + used[1], asked + used[2]
            key = here.choice.tobytes()
            if key in seen or not (here.choice >= 0).any():
                continue
            seen.add(key)
            estimate = gain(here, self.usual, self.groups)
            low = estimate.low(risk)
            if less is not None:
                low -= less[0] * unseen(here, self.usual, self.groups, less[1])
            members.append((low, here, estimate, doubt))
        best = max((low for low, *_ in members), default=0.0)
        if not members or not (best > 0 or always):
            return Sure(self.usual, self.usual, None, None, rounds, solved, asked)
        enough = [member for member in members if member[0] >= min(keep * best, best)]
        _, policy, estimate, doubt = enough[0] if keep == 1 else enough[-1]
        return Sure(policy, self.usual, estimate, doubt, rounds, solved, asked)

    def value(self, choice: Ints) -> float:
        """ρ of a choice in this model; circling for ever is worth what it earns before."""
        A, R = self._chain(choice, 1 - 1e-9)
        dense = self.noise is None
        V = np.linalg.solve(np.eye(len(R)) - A.toarray(), R) if dense else solve(A, R)
        return float(self.table.start @ V) / float(self.table.start.sum())

    def brings(self, choice: Ints) -> float | None:
        """What a choice brings over usual practice in this model.

        An action that was never seen in a state counts as usual practice there: this log says
        nothing about it. None where the choice circles at a profit: that has no value.
        """
        seen = self.table.n[np.arange(len(choice)), np.maximum(choice, 0)] > 0
        choice = np.where(seen, choice, -1)
        difference = self.value(choice) - self.value(np.full(len(choice), -1, np.int64))
        A, R = self._chain(choice)
        circles = bool(R[~leaks(A)].any())
        return None if circles and difference > 0 else difference

    def _chain(self, choice: Ints, share: float = 1.0) -> tuple[sparse.csr_array, Floats]:
        """What follows what under a choice, CSR (S, S) discounted by γ · share; rewards (S,)."""
        pi = policy_matrix(self.table.b, choice)
        R = (pi * self._R.reshape(pi.shape)).sum(axis=1)
        return moves(self._P, pi, self.gamma * share), R


def optimism(
    halves: Iterator[tuple[PlanModel, PlanModel]],
    risk: float,
    keep: float = 1.0,
    less: tuple[float, float] | None = None,
) -> tuple[float | None, int]:
    """How many standard errors an estimate of the chosen policy is too high, and from how many.

    Args:
        halves: The two halves of each division of the groups.
        risk: At which level lower ends are compared, as on the whole log.
        keep: The learner's share of the largest lower end.
        less: As in `PlanModel.choose`.

    Returns:
        The mean of t; None where no half chose anything that the other could judge. And the number
        of halves that did.
    """
    t = []
    for one, other in halves:
        for chooser, judge in ((one, other), (other, one)):
            sure = chooser.choose(risk, keep, less=less, always=True)
            if sure.gain is None or not sure.gain.se > 0:
                continue
            judged = judge.brings(sure.policy.choice)
            if judged is not None:
                t.append((sure.gain.estimate - judged) / sure.gain.se)
    return (float(np.mean(t)) if t else None), len(t)
