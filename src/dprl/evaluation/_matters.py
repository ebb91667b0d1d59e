r"""Where a policy matters: at which steps it differs from practice, who reaches one, who follows.

A policy **differs** from practice at a step where it speaks and its action probabilities are not
practice's there,

    ½ ∑_a | π(a|s) - practice(a|s) |  >  TOLERANCE

or, where π puts everything on one action, where practice does not always take that one. So a
confirmation differs too, wherever practice does the usual thing often but not always: to do it
always is a change of what is done. Practice is the behaviour where it is given; else, for labels,
the shares of actions in the state in this log, and for features what the trees say.

A **change** is a step whose most probable action under π is not the usual one. It is counted apart.

A **follower** reached a step at which the policy differs, and did nothing at any of them that the
policy never does: took every suggestion, where it names one action.

    ESS = (∑_g w_g)² / ∑_g w_g²      over all groups, and over those that reach such a step

w_g is the weight of a group's trajectories together (in the second, of those that reach one).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.evaluation._behavior import Behavior
from dprl.evaluation._decisions import AT_ONCE, Spoken
from dprl.evaluation._estimators import Weighted
from dprl.evaluation._result import TOLERANCE
from dprl.logs.log import Log

__all__ = ["differs", "practice", "reached", "sample_size"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

ROUNDING = 1e-9
"""What TOLERANCE is where π puts everything on one action."""


def practice(known: Behavior, log: Log) -> tuple[Floats, Ints]:
    """Practice in `log`: distributions (M, A), and the row of them that each step has.

    An estimate for labels is smoothed and never 1; here the shares themselves are wanted.
    """
    if not known.estimated or log.state is None:
        return known.table, known.row
    S, A, codes = log.n_states, log.n_actions, log.codes().astype(np.int64)
    taken = np.bincount(codes * A + log.action, minlength=S * A).reshape(S, A)
    return taken / np.maximum(taken.sum(axis=1, keepdims=True), 1), codes


def differs(said: Spoken, table: Floats, row: Ints) -> Bools:
    """bool (N,): steps at which the policy differs from practice: table (M, A), row (N,)."""
    wide = np.zeros((len(table), len(said.actions)))
    wide[:, : table.shape[1]] = table
    tolerance = np.where(said.pi.max(axis=1, initial=0.0) < 1, TOLERANCE, ROUNDING)
    found = np.zeros(len(row), bool)
    spoken = np.flatnonzero(said.speaks[said.row])
    for first in range(0, len(spoken), AT_ONCE):
        at = spoken[first : first + AT_ONCE]
        moved = np.abs(said.pi[said.row[at]] - wide[row[at]]).sum(axis=1) / 2
        found[at] = moved > tolerance[said.row[at]]
    return found


def reached(weighted: Weighted, log: Log, steps: Bools, never: Bools) -> tuple[int, int, float]:
    """Groups that reach one of `steps` (N,), followers among them, and their effective sample size.

    never (N,): steps at which what was done is something the policy never does.
    """
    G = len(log.groups)
    reaches = np.logical_or.reduceat(steps, log.starts[:-1])
    follows = reaches & ~np.logical_or.reduceat(steps & never, log.starts[:-1])

    def groups(episodes: Bools) -> Bools:
        return np.bincount(log.group[episodes], minlength=G) > 0

    followers = groups(follows) & ~groups(reaches & ~follows)
    return int(groups(reaches).sum()), int(followers.sum()), sample_size(weighted, log, reaches)


def sample_size(weighted: Weighted, log: Log, episodes: Bools) -> float:
    """The effective sample size of these episodes (E,), by group."""
    final: Any = weighted.final
    total = np.bincount(log.group[episodes], weights=final[episodes], minlength=len(log.groups))
    w = total / max(float(total.max()), np.finfo(float).tiny)
    square = float((w * w).sum())
    return float(w.sum()) ** 2 / square if square > 0 else 0.0
