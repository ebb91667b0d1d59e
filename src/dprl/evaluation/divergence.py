r"""Where a policy matters: the steps at which it differs from practice, who reaches and follows.

A policy **differs** from practice at a step where it acts and its action probabilities are not
practice's there,

    ½ ∑_a | π(a|s) - practice(a|s) |  >  TOLERANCE

If π puts all probability on one action, it differs where practice does not always take that action.
So a confirmation differs too where practice takes the usual action often but not always: taking it
always changes what is done. Practice is the given behaviour; where none is given, it is for labels
the share of each action in the state in this log, and for features the estimate.

A **change** is a step at which the most probable action under π is not the usual one. Changes are
also counted on their own.

A **follower** reached a step at which the policy differs, and at no such step did anything that the
policy never does. For a policy that names one action, a follower took every suggestion.

    ESS = (∑_g w_g)² / ∑_g w_g²      over all groups, and over those that reach such a step

w_g is the sum of the weights of a group's trajectories (in the second case, of those trajectories
that reach such a step).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.evaluation._result import TOLERANCE
from dprl.evaluation.estimators import Weighted
from dprl.evidence.behavior import Behavior
from dprl.logs.log import Log
from dprl.policies.held_out import PolicyAtSteps

__all__ = ["differs", "only_return", "practice", "reached", "sample_size", "unsupported"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

ROUNDING = 1e-9
"""The tolerance, instead of TOLERANCE, where π puts all probability on one action."""


def practice(behavior: Behavior, log: Log) -> tuple[Floats, Ints]:
    """Practice in `log`: distributions (M, A), and the row of them for each step (N,).

    For labels these are the plain shares of actions; the estimated behaviour is smoothed and never
    exactly 1.
    """
    if not behavior.estimated or log.state is None:
        return behavior.table, behavior.row
    S, A, codes = log.n_states, log.n_actions, log.codes().astype(np.int64)
    taken = np.bincount(codes * A + log.action, minlength=S * A).reshape(S, A)
    return taken / np.maximum(taken.sum(axis=1, keepdims=True), 1), codes


def differs(decisions: PolicyAtSteps, table: Floats, row: Ints) -> Bools:
    """bool (N,): the steps at which the policy differs from practice.

    `table` (M, A) and `row` (N,) describe practice, as `practice` returns it.
    """
    wide = np.zeros((len(table), len(decisions.actions)))
    wide[:, : table.shape[1]] = table
    tolerance = np.where(decisions.pi.max(axis=1, initial=0.0) < 1, TOLERANCE, ROUNDING)
    differing = np.zeros(len(row), bool)
    _differ(decisions.pi, decisions.acts, tolerance, decisions.row, wide, row, differing)
    return differing


@compiled
def _differ(
    pi: Floats,
    acts: Bools,
    tolerance: Floats,
    decision: Ints,
    table: Floats,
    practised: Ints,
    differing: Bools,
) -> None:  # pragma: no cover - compiled
    """Fill differing (N,): where π (M, A) of the row `decision` is not practice (M', A)."""
    for i in range(len(decision)):
        m = decision[i]
        if acts[m]:
            moved = 0.0
            for a in range(pi.shape[1]):
                moved += abs(pi[m, a] - table[practised[i], a])
            differing[i] = moved / 2 > tolerance[m]


def unsupported(decisions: PolicyAtSteps, table: Floats, row: Ints, starts: Ints) -> float:
    """The chance to meet an action that nobody took in its state, following the policy.

    Mean over the episodes of the log of the chance that the policy, asked at each of their steps,
    names such an action at least once. What follows it is in no row: weights leave it out.
    `table` (M, A) is 0 for such actions, and `row` (N,) its row at each step: practice in this log,
    as `practice` returns it for labels; for features see `dprl.evaluation._support`.
    """
    never = np.ones((len(table), len(decisions.actions)), bool)
    never[:, : table.shape[1]] = table == 0
    escapes = np.ones(len(starts) - 1)
    _escape(decisions.pi, decisions.acts, decisions.row, never, row, starts, escapes)
    return float(1 - escapes.mean()) if len(escapes) else 0.0


@compiled
def _escape(
    pi: Floats,
    acts: Bools,
    decision: Ints,
    never: Bools,
    practised: Ints,
    starts: Ints,
    escapes: Floats,
) -> None:  # pragma: no cover - compiled
    """Multiply escapes (E,), which are 1, by the chance of an action that was taken there."""
    for e in range(len(starts) - 1):
        for i in range(starts[e], starts[e + 1]):
            m = decision[i]
            if acts[m]:
                lost = 0.0
                for a in range(pi.shape[1]):
                    if never[practised[i], a]:
                        lost += pi[m, a]
                escapes[e] *= max(1.0 - lost, 0.0)


def reached(weighted: Weighted, log: Log, steps: Bools, never: Bools) -> tuple[int, int, float]:
    """Number of groups that reach one of `steps`, number of followers, effective sample size.

    Args:
        weighted: The trajectories with their weights.
        log: The log they come from.
        steps: bool (N,), the steps that matter.
        never: bool (N,), steps at which something was done that the policy never does.
    """
    G = len(log.groups)
    reaches = np.logical_or.reduceat(steps, log.starts[:-1])
    follows = reaches & ~np.logical_or.reduceat(steps & never, log.starts[:-1])

    def groups(episodes: Bools) -> Bools:
        return np.bincount(log.group[episodes], minlength=G) > 0

    followers = groups(follows) & ~groups(reaches & ~follows)
    return int(groups(reaches).sum()), int(followers.sum()), sample_size(weighted, log, reaches)


def only_return(
    weighted: Weighted, log: Log, steps: Bools, never: Bools
) -> tuple[int, float] | None:
    """The return of all who followed and their number, if it is one and others had other returns.

    Resampling them shows no spread then, and an interval that rests on them has no width.
    """
    reaches = np.logical_or.reduceat(steps, log.starts[:-1])
    follows = reaches & ~np.logical_or.reduceat(steps & never, log.starts[:-1])
    G = weighted.returns
    own = G[follows]
    if len(own) == 0 or own.min() < own.max() or G.min() == G.max():
        return None
    return len(own), float(own[0])


def sample_size(weighted: Weighted, log: Log, episodes: Bools) -> float:
    """The effective sample size, by group, of the episodes where `episodes` (E,) is true."""
    final: Any = weighted.final
    total = np.bincount(log.group[episodes], weights=final[episodes], minlength=len(log.groups))
    w = total / max(float(total.max()), np.finfo(float).tiny)
    square = float((w * w).sum())
    return float(w.sum()) ** 2 / square if square > 0 else 0.0
