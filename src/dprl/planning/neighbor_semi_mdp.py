"""The semi-MDP of a log with continuous states: its decision points are training points.

A row is a pair of a training point i and an action a allowed there. It gives equal weight 1/n to
the neighbours j from which Q̂(i, a) was averaged: those with action a, of other trajectories. Each
neighbour has its segment: to the next decision point of its own trajectory, k >= 1 steps later, or
to END,

    Rseg_j = G_j - γ^k G_next        disc_j = γ^k  (0 at END)

    R̃(i,a) = mean_j Rseg_j          D(i,a,i') = mean_j disc_j · 1{j's segment ends in i'}

so q = R̃ + D v with v = max over allowed actions is an averager and a contraction by γ (Gordon,
ICML 1995), and the planner of the discrete case solves it exactly. A policy that takes only allowed
actions and defers elsewhere keeps the guarantee of one step, so the planner may choose among them.

Planned values reach a new state in the same way: a neighbour then counts with
Rseg_j + disc_j v(next_j) in place of its return.

**With credit** (`dprl.evidence.excursions`) everything is told relative to V, the value of usual
practice, fitted on other groups: u = v - V is what the plan adds to usual practice. The rewards on
the way become surprises δ_t = r_t + γ V(s_{t+1}) - V(s_t), with V = 0 at END, and

    Rseg_j = ∑_{i < k} (γλ)^i δ_{j+i}        disc_j = γ^k        q = R̃ + D u

* λ = 1: the sum telescopes to (the rewards on the way) + γ^k V(next) - V(j), so q is the plan of
  returns less V: rewards are shaped by a potential (Ng, Harada, Russell, ICML 1999), which changes
  no optimal plan, whatever V is. What changes is the noise: neighbours differ in their states, and
  each is compared with what was to be expected in its own. With V = 0 it is the plan above.
* λ < 1: after the first step people go on as usual until the next decision point. If V is right and
  the features tell all that matters, a surprise on this way is 0 on average, whatever happened
  before, and "no decision point so far" is settled before the step is taken; so counting less of it
  moves no mean and saves its variance. If V is wrong, the plan is wrong by what is left out.
* The plan's own part, γ^k u(next), is *not* weighed by λ^k: it is not 0 on average, it is what
  planning is for. With λ = 0 a neighbour counts with δ_j + γ^k u(next_j).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.compiled import compiled
from dprl.evidence.neighbors.engine import Engine, Points
from dprl.logs.log import Log
from dprl.logs.returns import powers
from dprl.planning.semi_mdp import SemiMDP

CHUNK = 2_048
"""The number of decision points whose neighbours are in memory at a time."""


@dataclass(frozen=True, eq=False)
class Segments:
    """The way from every training point to the next decision point of its trajectory.

    Attributes:
        points: int64 (P,), rows that are decision points, ascending.
        reward: float64 (N,), the discounted rewards (with credit: surprises) on the way.
        discount: float64 (N,), γ^k; 0 at END.
        next: int32 (N,), the number of the decision point it leads to, -1 for END.
    """

    points: Ints
    reward: Floats
    discount: Floats
    next: Codes

    def planned(self, V: Floats) -> Floats:
        """float64 (N,): the value of each point as a neighbour, given planned values V (P,)."""
        ahead = np.append(V, 0.0)[self.next]
        return np.asarray(self.reward + self.discount * ahead)


@compiled
def _look_back(
    starts: Ints,
    reward: Floats,
    decay: float,
    power: Floats,
    number: Codes,
    total: Floats,
    discount: Floats,
    ahead: Codes,
) -> None:  # pragma: no cover - compiled
    """Fill total, discount and ahead (N,); number (N,) is that of the decision point, or -1.

    decay: what a reward one step later counts, γλ; power: γ^0, γ^1, ….
    """
    for e in range(len(starts) - 1):
        end, at, so_far = np.int32(-1), starts[e + 1], 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            so_far = reward[t] + decay * so_far
            total[t] = so_far
            ahead[t] = end
            discount[t] = power[at - t] if end >= 0 else 0.0
            if number[t] >= 0:
                end, at, so_far = number[t], t, 0.0


def segments(
    log: Log,
    gamma: float,
    points: Ints,
    surprise: Floats | None = None,
    lam: float = 1.0,
) -> Segments:
    """The segments of a log without cut episodes.

    Args:
        log: The log, with N rows.
        gamma: Discount in (0, 1].
        points: int64 (P,), rows that are decision points, ascending.
        surprise: float64 (N,), the surprise δ of each row, to plan with credit. Default None: the
            rewards of the log.
        lam: λ of the credit, in [0, 1]. Default 1.
    """
    N = log.n_steps
    number = np.full(N, -1, np.int32)
    number[points] = np.arange(len(points))
    total, discount, ahead = np.empty(N), np.empty(N), np.empty(N, np.int32)
    power = powers(gamma, int(log.lengths.max(initial=0)))
    reward = log.reward if surprise is None else surprise
    _look_back(log.starts, reward, gamma * lam, power, number, total, discount, ahead)
    return Segments(points, total, discount, ahead)


@compiled
def _keep(
    own: Ints,
    indptr: Ints,
    rows: Codes,
    action: Codes,
    episode: Ints,
    allowed: Bools,
    first_only: bool,
    order: Ints,
    begin: Ints,
) -> None:  # pragma: no cover - compiled
    """Sort the neighbours that count by action: order (len(rows),), begin (Q, A + 1).

    The neighbours of query i are rows[indptr[i]:indptr[i + 1]], ascending; own (Q,) is its
    trajectory.
    """
    n_actions = allowed.shape[1]
    seen = np.full(n_actions, -1, np.int64)
    counts = np.empty(n_actions + 1, np.int64)
    for i in range(len(own)):
        for fill in range(2):
            if fill == 0:
                for a in range(n_actions + 1):
                    counts[a] = 0
            else:
                begin[i, 0] = indptr[i]
                for a in range(n_actions):
                    begin[i, a + 1] = begin[i, a] + counts[a]
                    counts[a] = begin[i, a]
            for a in range(n_actions):
                seen[a] = -1
            for p in range(indptr[i], indptr[i + 1]):
                j = rows[p]
                a, e = action[j], episode[j]
                if e == own[i] or not allowed[i, a] or (first_only and seen[a] == e):
                    continue
                seen[a] = e
                if fill == 1:
                    order[counts[a]] = j
                counts[a] += 1


def elevate_neighbors(
    engine: Engine,
    points: Points,
    ahead: Segments,
    allowed: Bools,
    radius: float,
    first_only: bool,
) -> SemiMDP:
    """The semi-MDP over the decision points of `ahead`; allowed (N, A) at training points."""
    at = ahead.points
    R, columns, values, sizes, counts = [], [], [], [], []
    for start in range(0, len(at), CHUNK):
        chunk = at[start : start + CHUNK]
        indptr, rows = engine.neighbors(points.z[chunk], radius)
        order = np.empty(len(rows), np.int64)
        begin = np.empty((len(chunk), allowed.shape[1] + 1), np.int64)
        _keep(
            points.episode[chunk], indptr, rows, points.action, points.episode, allowed[chunk],
            first_only, order, begin,
        )  # fmt: skip
        pairs = np.nonzero(allowed[chunk])
        low, high = begin[pairs[0], pairs[1]], begin[pairs[0], pairs[1] + 1]
        n = high - low
        place = np.repeat(low - np.concatenate(([0], np.cumsum(n)[:-1])), n) + np.arange(n.sum())
        j = order[place]
        row = np.repeat(np.arange(len(n)), n)
        R.append(np.bincount(row, ahead.reward[j], minlength=len(n)) / n)
        on = ahead.next[j] >= 0
        part = sparse.csr_array(
            (ahead.discount[j[on]] / n[row[on]], (row[on], ahead.next[j[on]])),
            shape=(len(n), len(at)),
        )
        columns.append(part.indices)
        values.append(part.data)
        sizes.append(np.diff(part.indptr))
        counts.append(n)

    def joined(parts: list[NDArray[np.generic]], dtype: type) -> NDArray[np.generic]:
        return np.concatenate(parts) if parts else np.empty(0, dtype)

    indptr = np.concatenate(([0], np.cumsum(joined(sizes, np.int64))))
    per_point = allowed[at].sum(axis=1)
    D = sparse.csr_array(
        (joined(values, np.float64), joined(columns, np.int32), indptr),
        shape=(int(per_point.sum()), len(at)),
    )
    return SemiMDP(
        points=at,
        labels=tuple(at.tolist()),
        first=np.concatenate(([0], np.cumsum(per_point))),
        action=np.nonzero(allowed[at])[1],
        R=np.asarray(joined(R, np.float64), np.float64),
        D=D,
        n=np.asarray(joined(counts, np.int64), np.int64),
    )
