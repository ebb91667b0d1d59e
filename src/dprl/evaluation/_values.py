r"""Fitted Q evaluation: a model of the policy's values, learned from steps of usual practice.

    Q(s_t, a_t) = r_t + γ Q(s_{t+1}, a'),   a' = π(s_{t+1}), or what was done where π defers

and 0 after an end. Where a policy defers it does what the log did, so the observed next action is a
draw from the policy itself: no behaviour policy is needed.

* Labels: the empirical semi-chain over the pairs that were seen, solved exactly (sparse). Where π
  names a pair that was never seen, the observed next action is used instead, and the pair gets the
  value of usual practice in its state (for a state never seen, of the whole log). Such guesses are
  counted.
* Features: fitted Q-iteration on extremely randomised trees (see `dprl.learners.baselines.fitted`).

Values are cross-fitted: the values at a step come from the groups of the other folds, so that a
step's own luck is in its reward and not in its Q̂ as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.linear import solve
from dprl.evaluation._behavior import folds_of
from dprl.evaluation._decisions import Spoken
from dprl.evidence.neighbors.metric import Metric
from dprl.evidence.neighbors.samples import Points
from dprl.learners.baselines._transitions import Transitions
from dprl.learners.baselines.fitted import FittedQ, fitted_q
from dprl.logs._feature_input import EVALUATED, plain_features
from dprl.logs.log import Log

__all__ = ["Values", "evaluate_q"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

BACKUPS = 50
"""Least number of iterations; as many as the longest episode has steps where that is more."""


@dataclass(frozen=True, eq=False)
class Values:
    """The model's values at every step.

    Attributes:
        Q: float64 (N,), Q̂ of the state and the action that was taken.
        V: float64 (N,), V̂ of the state; equal to Q where the policy defers.
        guessed: bool (N,), true where the policy names an action that the other folds never took
            in that state (for features: never took at all).
    """

    Q: Floats
    V: Floats
    guessed: Bools


def evaluate_q(
    log: Log,
    decisions: Spoken,
    gamma: float,
    *,
    folds: int | None = None,
    seed: int = 0,
    trees: int = 20,
    progress: Callable[[str, float], None] | None = None,
) -> Values:
    """Cross-fitted values of a policy at the steps of a settled log.

    Args:
        log: A settled log.
        decisions: The policy's decisions at the steps of the log.
        gamma: Discount per step, in (0, 1].
        folds: Number of folds. Default: 5 for labels, 2 for features (where a fold takes some
            seconds).
        seed: Seed of the folds and the trees. Default 0.
        trees: Number of trees in each forest; for features only. Default 20.
        progress: Called with "values" and the share of the folds that is done. Default None.

    Returns:
        The values at every step.
    """
    fold = folds_of(log, folds or (2 if log.state is None else 5), seed)
    rows = np.repeat(fold, log.lengths)
    N = log.n_steps
    values = Values(np.zeros(N), np.zeros(N), np.zeros(N, bool))
    K = int(fold.max()) + 1
    for k in range(K):
        if progress is not None:
            progress("values", k / K)
        if log.state is not None:
            others = tables(log, decisions, gamma, rows != k)
        else:
            others = forests(log, decisions, gamma, fold != k, trees=trees, seed=seed)
        mine = rows == k
        values.Q[mine], values.V[mine] = others.Q[mine], others.V[mine]
        values.guessed[mine] = others.guessed[mine]
    return values


# -- labels -----------------------------------------------------------------------------------


def tables(log: Log, decisions: Spoken, gamma: float, use: Bools) -> Values:
    """Values at every step, learned from the steps `use` (N,) of whole episodes."""
    state, A = log.codes().astype(np.int64), len(decisions.actions)
    pair = state * A + log.action
    seen, n = np.unique(pair[use], return_counts=True)
    place = np.full(log.n_states * A, -1, np.int64)
    place[seen] = np.arange(len(seen))
    R = np.bincount(place[pair[use]], weights=log.reward[use], minlength=len(seen)) / n

    last = np.zeros(log.n_steps, bool)
    last[log.starts[1:] - 1] = True
    before = np.flatnonzero(use & ~last)
    after, action = _ahead(decisions, before + 1)
    to = place[state[before + 1][after] * A + action]
    weight = decisions.pi[decisions.row[before + 1][after], action]
    observed = place[pair[before + 1]]
    to = np.where(to >= 0, to, observed[after])  # never seen: what was done is used instead
    silent = np.flatnonzero(~decisions.speaks[decisions.row[before + 1]])
    source = place[pair[before]]
    P = sparse.csr_array(
        (
            np.concatenate([weight, np.ones(len(silent))]),
            (
                np.concatenate([source[after], source[silent]]),
                np.concatenate([to, observed[silent]]),
            ),
        ),
        shape=(len(seen), len(seen)),
    )
    Q = solve((gamma * sparse.diags_array(1 / n) @ P).tocsr(), R)
    return _spread(log, decisions, use, pair, place, Q)


def _ahead(
    decisions: Spoken, rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The actions that the policy may take at these steps: (place in `rows`, action) pairs."""
    which, action = np.nonzero(decisions.pi[decisions.row[rows]])
    return which, action


def _spread(
    log: Log,
    decisions: Spoken,
    use: Bools,
    pair: NDArray[np.int64],
    place: NDArray[np.int64],
    Q: Floats,
) -> Values:
    """Q̂ and V̂ at every step from Q of the pairs seen; usual practice for a pair never seen."""
    state, A = log.codes(), len(decisions.actions)
    practised = Q[place[pair[use]]]
    visits = np.bincount(state[use], minlength=log.n_states)
    usual = np.bincount(state[use], weights=practised, minlength=log.n_states)
    usual = np.where(visits > 0, usual / np.maximum(visits, 1), practised.mean())
    table = np.where(place >= 0, Q[place], np.repeat(usual, A)).reshape(-1, A)
    took = table[state, pair - state * A]
    pi = decisions.pi[decisions.row]
    V = np.where(decisions.speaks[decisions.row], (pi * table[state]).sum(axis=1), took)
    unseen = (place < 0).reshape(-1, A)
    return Values(took, V, np.any((pi > 0) & unseen[state], axis=1))


# -- features ---------------------------------------------------------------------------------


def forests(
    log: Log, decisions: Spoken, gamma: float, use: Bools, *, trees: int, seed: int
) -> Values:
    """Values at every step, learned from the episodes `use` (E,)."""
    A, rows = len(decisions.actions), np.repeat(use, log.lengths)
    x = plain_features(log, do=EVALUATED)
    part = log.take(np.flatnonzero(use))
    metric = Metric(scale="none").fit(log)
    points = Points.of(part, metric, gamma)
    last = np.zeros(part.n_steps, bool)
    last[part.starts[1:] - 1] = True
    centre = points.z.mean(axis=0)
    data = Transitions(points, part.reward, last, gamma, A, metric, centre)
    pi = _followed(log, decisions)
    mine = pi[rows]

    def value(Q: Floats) -> Floats:
        return np.asarray(np.where(mine > 0, mine * Q, 0.0).sum(axis=1))

    backups = max(BACKUPS, int(log.lengths.max()))
    fitted: FittedQ = fitted_q(data, mine > 0, value, iterations=backups, trees=trees, seed=seed)
    z, step = metric.transform(x), np.arange(log.n_steps)
    asked = pi > 0
    asked[step, log.action] = True
    Q = fitted.values(z, asked)
    took = Q[step, log.action]
    V = np.where(pi > 0, pi * Q, 0.0).sum(axis=1)
    taken = np.bincount(part.action, minlength=A) > 0
    return Values(took, V, np.any((pi > 0) & ~taken, axis=1))


def _followed(log: Log, decisions: Spoken) -> Floats:
    """π (N, A), with all probability on what was done where the policy defers."""
    pi = decisions.pi[decisions.row]
    silent = np.flatnonzero(~decisions.speaks[decisions.row])
    pi[silent, log.action[silent]] = 1.0
    return pi
