r"""Conservative Q-learning, on tables, to its exact fixed point.

Kumar, Zhou, Tucker, Levine: *Conservative Q-Learning for Offline Reinforcement Learning*, NeurIPS
2020, CQL(H) of their Eq. 4. In every state Q(s,·) over the actions seen there minimises

    ∑_a π̂_b(a) (Q_a - y_a)²/2 + α ( log ∑_a exp Q_a - ∑_a π̂_b(a) Q_a ),     y = R̂ + γ P̂ max_a Q

and π(s) = argmax Q over seen actions (the others count as -∞), the lowest of equals; uniform in
states that were never visited.

One state. With p = softmax Q and Z = log ∑ exp Q the gradient vanishes where

    Q_a = y_a + α - (α/π̂_b(a)) exp(Q_a - Z) = y_a + α - ω_a,    ω_a = ω(ln(α/π̂_b(a)) + y_a + α -
    Z)

ω being Wright's: ω + ln ω = x. What is left is one equation, ∑_a π̂_b(a) ω_a = α. Its left side
falls in Z and is convex, and at Z = max_a (y_a + α - α/π̂_b(a)) it is at least α (one of its terms
is α), so Newton from there never overshoots.

All states. V → max_a Q(y(V)) is monotone and moves with constants, since

    J = ∂Q/∂y = (diag π̂_b + α (diag p - p pᵀ))⁻¹ diag π̂_b

is a matrix of distributions: a contraction by γ. Plain sweeps would need thousands at γ = .99.
Newton's step is the exact evaluation of the "policy" J_{argmax Q}; with α = 0 it is policy
iteration, and the learner is `RL`. Newton on a maximum may fail to settle: then sweeps finish.

Departures from the paper: no network, no gradient steps, no double Q. With γ = 1 there need be no
fixed point: α raises the value of usual actions, and circling among them may pay. That raises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.special import wrightomega

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import Cut, check_number
from dprl._core.linear import solve
from dprl.errors import PlanError
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import best_choices, known_mdp, lowest_best, margin, one_hot
from dprl.planning.model import Model

NEWTON = 50
SWEEPS = 20_000
SWEEPS_UNDISCOUNTED = 1_000
"""With γ = 1, what Newton does not find most likely does not exist: give up early."""


@dataclass(frozen=True, kw_only=True)
class CQL(TabularBaseline):
    """CQL for labelled states.

    Attributes:
        alpha: Weight of the conservative term, at least 0; with 0 it is `RL`.
        gamma: Discount in (0, 1].
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import CQL
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = CQL(alpha=0.1, gamma=1.0).fit(problem.sample(1_000, seed=0))
        >>> round(problem.value(policy), 3)
        0.693
    """

    alpha: float
    gamma: float
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, "[0, infinity)")

    def _plan(self, model: Model) -> Floats:
        """Greedy on the conservative values."""
        if self.alpha == 0:
            choice, _, _ = best_choices(known_mdp(model, self.gamma), model.seen)
        else:
            known_mdp(model, self.gamma)
            Q = conservative_values(model, float(self.alpha))
            V = np.where(model.visited, Q.max(axis=1), 0.0)
            choice = lowest_best(Q, model.seen, margin(V))
        return one_hot(choice, model.visited, model.n.shape[1])


def conservative_values(model: Model, alpha: float) -> Floats:
    """The fixed point Q (S, A) for α > 0, -∞ on pairs never seen.

    Rows are the seen pairs, by state: rows first[k]:first[k + 1] belong to the k-th visited state.
    """
    mdp = model.mdp
    S = len(mdp.states)
    rows, visited = np.flatnonzero(model.seen), model.visited
    P, R, pi_b = mdp.P[rows], mdp.R.ravel()[rows], mdp.behavior.ravel()[rows]
    per_state = model.seen.sum(axis=1)
    indptr = np.concatenate(([0], np.cumsum(per_state)))
    first = indptr[:-1][visited]

    def sweep(V: Floats) -> tuple[Floats, Floats, Floats]:
        """Q (rows,), p (rows,) and the new V (S,)."""
        Q, p = conservative(R + mdp.gamma * (P @ V), pi_b, alpha, first)
        new = np.zeros(S)
        new[visited] = np.maximum.reduceat(Q, first)
        return Q, p, new

    V = mdp.state_values()  # the values of π̂_b, which are finite also with γ = 1
    for _ in range(NEWTON):
        Q, p, new = sweep(V)
        if np.abs(new - V).max() <= margin(V):
            return _spread(Q, rows, model)
        weights = _jacobian(Q, p, pi_b, alpha, first)
        moves = sparse.csr_array((weights, np.arange(len(rows)), indptr), shape=(S, len(rows)))
        M = (mdp.gamma * (moves @ P)).tocsr()
        try:
            V = solve(M, new - M @ V)
        except PlanError:  # with γ = 1: the greedy pairs of this round never end
            V = new
    sweeps = SWEEPS if mdp.gamma < 1 else SWEEPS_UNDISCOUNTED
    for _ in range(sweeps):
        Q, p, new = sweep(V)
        if np.abs(new - V).max() <= margin(V):
            return _spread(Q, rows, model)
        V = new
    raise PlanError(
        f"conservative values did not settle in {sweeps:,} sweeps over {S:,} states.",
        do="With gamma = 1 there may be none: use one below 1 (0.999, say), or a smaller alpha.",
    )


def _spread(Q: Floats, rows: Ints, model: Model) -> Floats:
    """Q (S, A) of the seen rows, -∞ elsewhere."""
    table = np.full(model.n.size, -np.inf)
    table[rows] = Q
    return table.reshape(model.n.shape)


def conservative(y: Floats, pi_b: Floats, alpha: float, first: Ints) -> tuple[Floats, Floats]:
    """Q and p = softmax Q of every state at once: the minimiser of the objective above.

    y, pi_b: (rows,); rows first[k]:first[k + 1] are the seen actions of one state.
    """
    sizes = np.diff(np.append(first, len(y)))
    k = np.log(alpha / pi_b) + y + alpha
    Z = np.maximum.reduceat(y + alpha - alpha / pi_b, first)
    w = np.empty(0)
    for _ in range(100):
        w = wrightomega(k - np.repeat(Z, sizes))
        mass = pi_b * w
        total = np.add.reduceat(mass, first)
        move = (total - alpha) / np.add.reduceat(mass / (1 + w), first)
        if (move <= 1e-14 * np.maximum(1.0, np.abs(Z))).all():  # below 0 only by rounding
            break
        Z = Z + move
    return np.asarray(y + alpha - w), np.asarray(mass / np.repeat(total, sizes))


def _jacobian(Q: Floats, p: Floats, pi_b: Floats, alpha: float, first: Ints) -> Floats:
    """Row argmax Q of J in every state, (rows,): the weights that make up its best value.

    By Sherman and Morrison, with d = π̂_b + α p:  J_ab = π̂_b(b) ( 1{a=b}/d_a + α
    (p_a/d_a)(p_b/d_b) / ∑_c p_c π̂_b(c)/d_c ).
    """
    sizes = np.diff(np.append(first, len(Q)))
    top = np.repeat(np.maximum.reduceat(Q, first), sizes)
    place = np.where(top == Q, np.arange(len(Q)), len(Q))
    best = np.minimum.reduceat(place, first)
    d = pi_b + alpha * p
    u = p / d
    share = alpha * u[best] / np.add.reduceat(u * pi_b, first)
    J = np.repeat(share, sizes) * u * pi_b
    J[best] += pi_b[best] / d[best]
    return np.asarray(J)
