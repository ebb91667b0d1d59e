r"""The values of a policy over labels: the empirical chain over the pairs seen, solved exactly.

    Q(s, a) = mean of r_t + γ ∑_b π(b|s_{t+1}) Q(s_{t+1}, b)   over the steps with s_t = s, a_t = a

with the observed next action where π defers, and where it names a pair that was never seen. The
entries of a pair lie together: one pass over the steps counts them, a second one writes them down.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.compiled import compiled
from dprl._core.linear import solve
from dprl.logs.log import Log
from dprl.policies.held_out import PolicyAtSteps

__all__ = ["LabelValues", "label_values"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelValues:
    """Q̂ of every pair; that of usual practice where a pair was never seen.

    Attributes:
        Q: float64 (S, A'), the values.
        seen: bool (S, A'), true for pairs that were seen.
    """

    Q: Floats
    seen: Bools

    def at(
        self, log: Log, decisions: PolicyAtSteps, rows: Ints, Q: Floats, V: Floats, guessed: Bools
    ) -> None:
        """Fill Q, V and guessed (N,) at these rows of the log."""
        _look_up(
            self.Q, self.seen, log.codes(), log.action, decisions.row, decisions.pi,
            decisions.acts, rows, Q, V, guessed,
        )  # fmt: skip


def label_values(log: Log, decisions: PolicyAtSteps, gamma: float, use: Bools) -> LabelValues:
    """The values learned from the steps `use` (N,) of whole episodes."""
    S, A = log.n_states, len(decisions.actions)
    n, total = np.zeros(S * A, np.int64), np.zeros(S * A)
    _tally(log.codes(), log.action, log.reward, use, A, n, total)
    pairs = np.flatnonzero(n)
    place = np.full(S * A, -1, np.int64)
    place[pairs] = np.arange(len(pairs))
    n, total = n[pairs], total[pairs]

    begins = np.zeros(len(pairs) + 1, np.int64)
    steps = (log.starts, log.codes(), log.action, use)
    policy = (decisions.row, decisions.pi, decisions.acts)
    to, weight = np.empty(0, np.int32), np.empty(0)
    _next_pairs(*steps, *policy, place, begins[1:], to, weight)
    begins = np.cumsum(begins)
    to, weight = np.empty(begins[-1], np.int32), np.empty(begins[-1])
    _next_pairs(*steps, *policy, place, begins[:-1].copy(), to, weight)
    P = sparse.csr_array((weight, to, begins), shape=(len(pairs), len(pairs)))
    P.sum_duplicates()
    Q = solve((gamma * sparse.diags_array(1 / n) @ P).tocsr(), total / n)

    visits, practised = np.zeros(S, np.int64), np.zeros(S)
    np.add.at(visits, pairs // A, n)
    np.add.at(practised, pairs // A, n * Q)
    usual = practised / np.maximum(visits, 1)
    usual[visits == 0] = practised.sum() / visits.sum()
    table = np.repeat(usual, A)
    table[pairs] = Q
    return LabelValues(table.reshape(S, A), (place >= 0).reshape(S, A))


@compiled
def _tally(
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    reward: Floats,
    use: Bools,
    A: int,
    n: Ints,
    total: Floats,
) -> None:  # pragma: no cover - compiled
    """Add to n and total (S·A',): the steps of each pair and their rewards."""
    for i in range(len(use)):
        if use[i]:
            pair = np.int64(state[i]) * A + action[i]
            n[pair] += 1
            total[pair] += reward[i]


@compiled
def _next_pairs(
    starts: Ints,
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    use: Bools,
    row: Ints,
    pi: Floats,
    acts: Bools,
    place: Ints,
    where: Ints,
    to: NDArray[np.int32],
    weight: Floats,
) -> None:  # pragma: no cover - compiled
    """Write the next pairs of each pair and their weights, or count them where there is no room.

    where (pairs,) is the next free place of each pair, and one more with every next pair.
    """
    A, write = pi.shape[1], len(to) > 0
    for e in range(len(starts) - 1):
        if not use[starts[e]]:
            continue
        for i in range(starts[e], starts[e + 1] - 1):
            source, m = place[np.int64(state[i]) * A + action[i]], row[i + 1]
            ahead = np.int64(state[i + 1]) * A
            observed = place[ahead + action[i + 1]]
            if not acts[m]:
                if write:
                    to[where[source]], weight[where[source]] = observed, 1.0
                where[source] += 1
                continue
            for b in range(A):
                if pi[m, b] != 0.0:
                    if write:
                        named = place[ahead + b]
                        to[where[source]] = named if named >= 0 else observed
                        weight[where[source]] = pi[m, b]
                    where[source] += 1


@compiled
def _look_up(
    table: Floats,
    seen: Bools,
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    row: Ints,
    pi: Floats,
    acts: Bools,
    rows: Ints,
    Q: Floats,
    V: Floats,
    guessed: Bools,
) -> None:  # pragma: no cover - compiled
    """Fill Q, V and guessed (N,) at these rows."""
    for i in rows:
        s, m = state[i], row[i]
        Q[i] = table[s, action[i]]
        V[i], guessed[i] = Q[i], False
        if acts[m]:
            value = 0.0
            for b in range(pi.shape[1]):
                if pi[m, b] != 0.0:
                    value += pi[m, b] * table[s, b]
                    guessed[i] |= not seen[s, b]
            V[i] = value
