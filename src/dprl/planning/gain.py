r"""What a policy brings over usual practice in the model of a log, and how far that may be wrong.

    gain = ρ(π) - ρ(b̂),      ρ(π) = ∑_s start(s) V^π(s)

By the delta method. A visit of (s, a) has a target under both policies, and they are correlated:

    z = c_π (r + γ V^π(s')) - c_b (r + γ V^b(s')),   c_π(s,a) = (start M_π)(s) π(a|s)

so each pair adds the variance of its mean z (shrunk as in `dprl.planning.advantages`). The error of
b̂ itself adds Var_b(h)/n(s), h = w_π Q^π - w_b Q^b where the policy defers and -w_b Q^b where it
does not; the start distribution adds Var(V^π - V^b)/episodes. Degrees of freedom by Satterthwaite,
at most those of the pair among the changes that most trajectories stand behind.

It pays nothing for having chosen the policy: see `dprl.planning.sure_iteration`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dprl._core.compiled import compiled
from dprl._core.linear import solve_left
from dprl.planning.advantages import OWN, Advantages

__all__ = ["Gain", "gain"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Gain:
    """An estimated gain over usual practice.

    Attributes:
        estimate: ρ(π) - ρ(b̂) in the model, in units of returns.
        se: Its standard error.
        df: Degrees of freedom of the standard error, at least 1.
    """

    estimate: float
    se: float
    df: float

    def low(self, risk: float, more: float = 0.0) -> float:
        """The lower end at level 1 - risk, after taking off `more` standard errors."""
        return self.estimate - (more + float(stdtrit(self.df, 1 - risk))) * self.se


@compiled
def _target_variances(
    first: Ints, following: Ints, count: Ints, mean: Floats, spread: Floats, n: Ints,
    V: Floats, U: Floats, c: Floats, d: Floats, gamma: float, own: float, prior: Floats,
    e: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill e (S, A), the variance of each pair's mean z = c (r + γ V(s')) - d (r + γ U(s')).

    V, U (S + 1,) end with the 0 of END; prior (S,) is σ0² of the targets under V.
    """
    S, A = n.shape
    for s in range(S):
        for a in range(A):
            if n[s, a] == 0:
                continue
            one, other, total = c[s, a], d[s, a], 0.0
            for j in range(first[s * A + a], first[s * A + a + 1]):
                y, x = mean[j] + gamma * V[following[j]], mean[j] + gamma * U[following[j]]
                total += count[j] * (one * y - other * x)
            middle, squares = total / n[s, a], 0.0
            for j in range(first[s * A + a], first[s * A + a + 1]):
                y, x = mean[j] + gamma * V[following[j]], mean[j] + gamma * U[following[j]]
                squares += spread[j] * (one - other) ** 2
                squares += count[j] * (one * y - other * x - middle) ** 2
            squares += own * prior[s] * (one - other) ** 2
            e[s, a] = squares / max(n[s, a] + own - 1, 1.0) / n[s, a]


def _occupancy(here: Advantages, start: Floats) -> Floats:
    """start M (S,): discounted visits of each state."""
    return start @ here.M if here.M is not None else solve_left(here.A, start)


def gain(policy: Advantages, usual: Advantages, groups: Ints) -> Gain:
    """The gain of a policy over usual practice.

    Args:
        policy: The policy, evaluated.
        usual: The policy that defers everywhere, evaluated in the same model.
        groups: int64 (S, A), trajectories that contain each pair.
    """
    t, gamma = policy.table, policy.gamma
    episodes = int(t.start.sum())
    start = t.start / episodes
    w, x = _occupancy(policy, start), _occupancy(usual, start)
    e = np.zeros(policy.pi.shape)
    _target_variances(
        t.first, t.next, t.count, t.mean, t.spread, t.n, np.append(policy.V, 0.0),
        np.append(usual.V, 0.0), w[:, None] * policy.pi, x[:, None] * usual.pi, gamma, OWN,
        policy.prior, e,
    )  # fmt: skip
    speaks = policy.choice >= 0
    h = np.where(speaks[:, None], 0.0, w[:, None] * policy.Q) - x[:, None] * usual.Q
    middle = (usual.pi * h).sum(axis=1, keepdims=True)
    of_b = (usual.pi * (h - middle) ** 2).sum(axis=1) / np.maximum(t.visits, 1)
    difference = policy.V - usual.V
    estimate = float(start @ difference)
    of_start = float(start @ (difference - estimate) ** 2) / episodes
    variance = float(e.sum() + of_b.sum()) + of_start
    share = float((e**2 / np.maximum(groups - 1, 1)).sum())
    share += float((of_b**2 / np.maximum(t.visits, 1)).sum())
    df = variance**2 / share if share > 0 else 1e6
    at = np.flatnonzero(speaks)
    most = int(groups[at, policy.choice[at]].max(initial=0)) - 1
    return Gain(estimate, float(np.sqrt(variance)), max(min(df, most, 1e6), 1.0))
