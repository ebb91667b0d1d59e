r"""FiniteMDP: a Markov decision process small enough to know the truth about.

    Q^π(s,a) = R(s,a) + γ ∑_{s'} P(s'|s,a) V^π(s')      V^π(s) = ∑_a π(a|s) Q^π(s,a)

P may lose mass: what is missing from a row ends the episode. Rewards are drawn uniformly from
[low, high] of their pair on every visit; R is their middle.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.compiled import compiled
from dprl._core.linear import solve
from dprl._core.optional import needed
from dprl.errors import ParameterError, PlanError
from dprl.logs.log import CUT, TERMINAL, Label, Log

__all__ = ["FiniteMDP"]

Floats: TypeAlias = NDArray[np.float64]


class _Policy(Protocol):
    def probabilities(self, states: Any, *, behavior: Any = ...) -> Floats: ...


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite MDP with a behaviour: how people act in it today.

    Attributes:
        name: What it is called.
        states: State labels, S of them.
        actions: Action labels, A of them.
        P: CSR (S·A, S), row s·A + a: where (s, a) leads; missing mass ends the episode.
        low: float64 (S, A), smallest reward of a visit.
        high: float64 (S, A), largest reward of a visit.
        start: float64 (S,), where episodes begin.
        behavior: float64 (S, A), π_b(a|s).
        gamma: Discount.
        max_steps: Sampled episodes are cut after so many steps.
        notes: Facts about the problem (the careless cells of a grid, for instance).
    """

    name: str
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    P: sparse.csr_array
    low: Floats
    high: Floats
    start: Floats
    behavior: Floats
    gamma: float
    max_steps: int = 1_000
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        S, A = len(self.states), len(self.actions)
        mass = self.P.sum(axis=1)
        problems = [
            (self.P.shape != (S * A, S), f"P must have shape {(S * A, S)}; got {self.P.shape}"),
            (
                not ((mass <= 1 + 1e-12).all() and (self.P.data >= 0).all()),
                "P has rows of no chance",
            ),
            (not 0 < self.gamma <= 1, f"gamma must lie in (0, 1]; got {self.gamma!r}"),
            (not np.isfinite(self.low + self.high).all(), "rewards must be finite"),
            (self.low.shape != (S, A) or self.high.shape != (S, A), f"rewards must be {(S, A)}"),
            (bool((self.low > self.high).any()), "a smallest reward exceeds its largest"),
            (self.start.shape != (S,) or not _chances(self.start), "start must sum to 1"),
            (
                self.behavior.shape != (S, A) or not _chances(self.behavior),
                "every row of behavior must sum to 1",
            ),
        ]
        for wrong, what in problems:
            if wrong:
                raise ParameterError(f"{self.name}: {what}.")

    @property
    def R(self) -> Floats:
        """Expected reward, float64 (S, A)."""
        return (self.low + self.high) / 2

    def _matrix(self, policy: Floats | _Policy | None) -> Floats:
        """π(a|s) (S, A) of an array, or of a policy whose deferrals mean this behaviour."""
        if policy is None:
            return self.behavior
        if isinstance(policy, np.ndarray):
            if policy.shape != self.behavior.shape:
                raise ParameterError(
                    f"a policy here has shape {self.behavior.shape}; got {policy.shape}."
                )
            return policy
        return self._from_labels(policy)

    def _from_labels(self, policy: Any) -> Floats:
        """A fitted policy's probabilities, its actions put in this problem's order."""
        place = {label: i for i, label in enumerate(self.actions)}
        if any(label not in place for label in policy.actions):
            raise ParameterError(f"the policy knows actions that {self.name} does not have.")
        columns = [place[label] for label in policy.actions]
        given = self.behavior[:, columns]
        answer = policy.probabilities(self.states, behavior=given)
        moved = (answer != given).any(axis=1)
        result = self.behavior.copy()
        result[moved] = 0.0
        result[np.ix_(moved, columns)] = answer[moved]
        return result

    def state_values(self, policy: Floats | _Policy | None = None) -> Floats:
        """V^π(s), exactly, float64 (S,); the behaviour's where no policy is given."""
        pi = self._matrix(policy)
        S, A = pi.shape
        choose = sparse.csr_array(
            (pi.ravel(), np.arange(S * A), np.arange(0, S * A + 1, A)), shape=(S, S * A)
        )
        return solve((self.gamma * (choose @ self.P)).tocsr(), (pi * self.R).sum(axis=1))

    def value(self, policy: Floats | _Policy | None = None) -> float:
        """ρ(π): the expected return from the start; the behaviour's where no policy is given."""
        return float(self.start @ self.state_values(policy))

    def action_values(self, V: Floats) -> Floats:
        """Q(s,a) = R + γ P V, float64 (S, A)."""
        return np.asarray(self.R + self.gamma * (self.P @ V).reshape(self.R.shape))

    @functools.cached_property
    def optimal(self) -> tuple[Floats, NDArray[np.int64]]:
        """V* (S,) and an optimal action in each state (S,), by exact policy iteration."""
        choice = self.R.argmax(axis=1)
        if self.gamma == 1:
            choice = self.behavior.argmax(axis=1)
        for _ in range(1_000):
            V = self.state_values(np.eye(len(self.actions))[choice])
            Q = self.action_values(V)
            best = Q.argmax(axis=1)
            rows = np.arange(len(choice))
            better = Q[rows, best] > Q[rows, choice] + 1e-12 * float(np.abs(V).max())
            if not better.any():  # with γ = 1 the first of equals might circle for ever
                return V, choice if self.gamma == 1 else _first_best(Q)
            choice = np.where(better, best, choice)
        raise PlanError(f"{self.name}: policy iteration did not settle.")

    def sample(self, n: int, *, seed: int, policy: Floats | _Policy | None = None) -> Log:
        """Draw n episodes of the behaviour (or of `policy`). Same seed, same log."""
        if n < 1:
            raise ParameterError(f"n must be at least 1 episode; got {n!r}.")
        pi = np.cumsum(self._matrix(policy), axis=1)
        total = np.cumsum(self.P.data)
        before = np.concatenate(([0.0], total))[self.P.indptr]
        rng = np.random.default_rng(seed)
        starts, state, action, reward, ended = _roll_out(
            rng, n, np.cumsum(self.start), pi, self.P.indptr.astype(np.int64),
            self.P.indices.astype(np.int32), total, before, self.low, self.high, self.max_steps,
        )  # fmt: skip
        return Log(
            starts=starts,
            state=state,
            action=action,
            reward=reward,
            states=self.states,
            actions=self.actions,
            ended=ended,
        )

    def to_gym(self, seed: int | None = None) -> Any:
        """The same problem as a gymnasium environment (extra `gym`)."""
        needed("gymnasium", "to_gym()", "dprl[gym]")
        from dprl.planning._gym import make

        return make(self, seed)


def _chances(rows: Floats) -> bool:
    """Whether each row is a distribution."""
    return bool((rows >= 0).all() and (np.abs(rows.sum(axis=-1) - 1) <= 1e-12).all())


def _first_best(Q: Floats) -> NDArray[np.int64]:
    """The lowest action of those within rounding of the best."""
    near = Q.max(axis=1, keepdims=True) - 1e-10 * np.abs(Q).max() <= Q
    return np.asarray(near.argmax(axis=1))


@compiled
def _pick(rising: Floats, u: float) -> int:  # pragma: no cover - compiled
    """The first place whose cumulative weight exceeds u (the last with any weight, at the edge)."""
    last = len(rising) - 1
    i = min(int(np.searchsorted(rising, u, side="right")), last)
    while i > 0 and rising[i] == rising[i - 1]:
        i -= 1
    return i


@compiled
def _roll_out(
    rng: np.random.Generator,
    n: int,
    start: Floats,
    pi: Floats,
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    total: Floats,
    before: Floats,
    low: Floats,
    high: Floats,
    max_steps: int,
) -> tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], Floats, NDArray[np.uint8]
]:  # pragma: no cover - compiled
    """Play n episodes. start (S,), pi (S, A): cumulative; total (nnz,): running sum of all of P."""
    n_actions = pi.shape[1]
    room = 64 * n
    state, action = np.empty(room, np.int32), np.empty(room, np.int32)
    reward = np.empty(room)
    starts = np.zeros(n + 1, np.int64)
    ended = np.empty(n, np.uint8)
    rows = 0
    for e in range(n):
        s = _pick(start, rng.random())
        ended[e] = CUT
        for _ in range(max_steps):
            if rows == room:
                room *= 2
                state = np.concatenate((state, np.empty(rows, np.int32)))
                action = np.concatenate((action, np.empty(rows, np.int32)))
                reward = np.concatenate((reward, np.empty(rows)))
            a = _pick(pi[s], rng.random())
            state[rows], action[rows] = s, a
            reward[rows] = low[s, a] + (high[s, a] - low[s, a]) * rng.random()
            rows += 1
            r = s * n_actions + a
            u = before[r] + rng.random()
            first, after = indptr[r], indptr[r + 1]
            if first == after or u >= total[after - 1]:
                ended[e] = TERMINAL
                break
            s = indices[first + np.searchsorted(total[first:after], u, side="right")]
        starts[e + 1] = rows
    return starts, state[:rows].copy(), action[:rows].copy(), reward[:rows].copy(), ended
