r"""How much certified changes are worth together: a lower bound on ρ(π) - ρ(b).

A trajectory of the behaviour b parts from π at time σ, the first step at a state where π speaks and
something else was done. The log tells how often that happens at a state s:

    u(s) = E_b γ^σ 1{they part at s}

By the performance difference lemma ρ(π) - ρ(b) = E_π ∑_t γ^t A(s_t, π(s_t)), and every A is >= 0.
A history up to t in which b did what π says wherever π speaks is at least as likely under π as
under b (π does it with probability 1), so counting only such histories, with b's weight, is a lower
bound: E_b ∑_{t <= σ} γ^t A(s_t, π(s_t)) over the states where π speaks. A = (1 - p)(E x - E y)
there, and 1 - p is the chance of parting then and there; with lower bounds d(s) >= 0 of E x - E y

    ρ(π) - ρ(b)  >=  ∑_s u(s) d(s)

The states were *chosen by the same data* that bound u. So the bound must hold at once for every set
of pairs that π might have issued, and for every part T of it. A set of k states out of S, with one
action each, gets the share 1 / ((S+1) · C(S,k) · A^k) of the level β; each of its 2^k parts gets an
equal share of that; and

    U_lo(T) = the smallest q with N · kl(Û(T), q) <= ln( (S+1) C(S,k) (2A)^k / β )

(Chernoff; where other data proposed K pairs, sets are drawn from those: ln((K+1) C(K,k) 2^k / β)),
Û(T) the mean over groups of γ^σ 1{they part in T}, in a group's first episode (how many follow may
depend on what happened in it; ρ is then the value of first episodes). Then, with the states sorted
by d and T_j the first j of them, both of these are lower bounds, and the larger is taken:

    ∑_j (d_j - d_{j+1}) U_lo(T_j)          ∑_s d(s) U_lo({s})
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl._core.compiled import compiled
from dprl.certificate._evalue import kl_lower
from dprl.logs.log import Log
from dprl.logs.source import Chunk, Source
from dprl.logs.treated import columns_in_order

__all__ = ["certified_gain", "nats_of_sets", "partings"]

Floats = NDArray[np.float64]


@compiled
def _part(
    starts: NDArray[np.int64],
    state: NDArray[np.int32],
    action: NDArray[np.int32],
    choice: NDArray[np.int32],
    gamma: float,
    where: NDArray[np.int64],
    weight: Floats,
) -> None:  # pragma: no cover - compiled
    for e in range(len(starts) - 1):
        where[e] = -1
        weight[e] = 0.0
        discount = 1.0
        for t in range(starts[e], starts[e + 1]):
            s = state[t]
            if choice[s] >= 0 and action[t] != choice[s]:
                where[e] = s
                weight[e] = discount
                break
            discount *= gamma


def partings(log: Log, choice: NDArray[np.int32], gamma: float) -> tuple[NDArray[np.int64], Floats]:
    """The state where each episode first does otherwise than `choice` says, and γ^σ there.

    Args:
        log: A gathered log.
        choice: int32 (S,), the action the policy takes in each state, -1 where it defers.
        gamma: Discount per step, in (0, 1].

    Returns:
        The state codes, int64 (E,), -1 where an episode never does otherwise; and γ^σ, float64
        (E,), 0 there.
    """
    where, weight = np.empty(log.n_episodes, np.int64), np.empty(log.n_episodes)
    _part(log.starts, log.codes(), log.action, choice, gamma, where, weight)
    return where, weight


def nats_of_sets(items: int, chosen: int, kinds: int, level: float) -> float:
    """ln( (n+1) C(n,k) (2·kinds)^k / β ): the price of a bound that holds for every set of pairs.

    Args:
        items: n, the number of states (or proposed pairs) that a set could be chosen from.
        chosen: k, the number of states in the set.
        kinds: Number of actions that each of them could have.
        level: β, the level of the bound, in (0, 1).
    """
    n, k = items, chosen
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.log(n + 1) + choose + k * math.log(2 * kinds) - math.log(level)


def _of_first_episodes(
    chunk: Chunk, log: Log, choice: NDArray[np.int32], gamma: float
) -> tuple[NDArray[np.int64], Floats]:
    """Where the first episode of each group of a chunk parts, and γ^σ there."""
    where, weight = partings(log, choice, gamma)
    # How often a group returns may depend on what happened, so only its first episode counts.
    first = np.unique(log.group, return_index=True)[1]
    return where[first], weight[first]


def certified_gain(
    source: Source | Log,
    choice: NDArray[np.int32],
    lower: Floats,
    gamma: float,
    nats: float,
    cut: Cut | None = None,
) -> float:
    """Lower bound on ρ(π) - ρ(b), never below 0.

    Args:
        source: A log of the behaviour; it may be the log that chose the actions.
        choice: int32 (S,), the action issued in each state, -1 where the policy defers.
        lower: float64 (S,), lower bound of E x - E y at the issued pairs (where choice >= 0).
        gamma: Discount per step, in (0, 1].
        nats: The result of `nats_of_sets`, which says how many sets the bound must hold for.
        cut: What is done with cut episodes. Default None: there are none.

    Returns:
        The bound, in units of returns; 0 for a policy that never speaks.
    """
    speaks = np.flatnonzero(choice >= 0)
    if not len(speaks):
        return 0.0
    where, weight = columns_in_order(
        source, _of_first_episodes, choice, gamma, cut=cut, gamma=gamma
    )
    N = len(where)
    U = np.bincount(where[where >= 0], weight[where >= 0], minlength=len(choice))[speaks] / N
    d = np.maximum(lower[speaks], 0.0)
    order = np.lexsort((speaks, -d))
    steps = -np.diff(np.append(d[order], 0.0))
    layered = steps @ kl_lower(np.minimum(np.cumsum(U[order]), 1.0), N, nats)
    single = d @ kl_lower(np.minimum(U, 1.0), N, nats)
    return float(max(layered, single))
