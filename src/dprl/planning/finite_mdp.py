"""FiniteMDP: a Markov decision process small enough to compute exact values.

    Q^π(s,a) = R(s,a) + γ ∑_{s'} P(s'|s,a) V^π(s')      V^π(s) = ∑_a π(a|s) Q^π(s,a)

A row of P may sum to less than 1: the missing probability ends the episode. Rewards are drawn
uniformly from [low, high] of their pair on every visit; R is the middle.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.arrays import Codes, Floats, Ints
from dprl._core.checks import check_whole
from dprl._core.compiled import compiled
from dprl._core.linear import solve
from dprl._core.optional import needed
from dprl._core.table import many
from dprl._core.words import worded
from dprl.errors import ParameterError
from dprl.logs.log import CUT, TERMINAL, Label, Log
from dprl.planning.iteration import best_choices


class _Policy(Protocol):
    def probabilities(self, states: Any, *, behavior: Any = ...) -> Floats: ...


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite MDP together with a behaviour: how people act in it today.

    Attributes:
        name: The name of the problem.
        states: The S state labels.
        actions: The A action labels.
        P: CSR (S·A, S), row s·A + a: the probabilities of the next state after (s, a). What a row
            lacks to 1 is the probability that the episode ends.
        low: float64 (S, A), the smallest reward of a visit.
        high: float64 (S, A), the largest reward of a visit.
        start: float64 (S,), the probability that an episode begins in each state.
        behavior: float64 (S, A), π_b(a|s).
        gamma: Discount in (0, 1].
        max_steps: Sampled episodes are cut after this many steps. Default 1,000.
        notes: Facts about the problem (the careless cells of a grid, for instance). Default empty.

    Raises:
        ParameterError: If shapes do not fit, or probabilities are not probabilities.

    Example:
        >>> import numpy as np
        >>> from scipy import sparse
        >>> from dprl.envs import FiniteMDP
        >>> coin = FiniteMDP(
        ...     name="coin", states=("toss",), actions=("left", "right"),
        ...     P=sparse.csr_array((2, 1)), low=np.array([[0.0, 0.2]]), high=np.array([[1.0, 0.4]]),
        ...     start=np.array([1.0]), behavior=np.array([[0.5, 0.5]]), gamma=1.0,
        ... )
        >>> round(coin.value(), 3)
        0.4
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

    def __repr__(self) -> str:
        states, actions = many(len(self.states), "state"), many(len(self.actions), "action")
        return f"<{type(self).__name__}: {self.name} · {states} · {actions} · γ = {self.gamma:g}>"

    def __post_init__(self) -> None:
        S, A = len(self.states), len(self.actions)
        mass = self.P.sum(axis=1)
        problems = [
            (self.P.shape != (S * A, S), f"P must have shape {(S * A, S)}; got {self.P.shape}"),
            (
                not ((mass <= 1 + 1e-12).all() and (self.P.data >= 0).all()),
                "P has rows that are no probabilities",
            ),
            (
                not 0 < self.gamma <= 1,
                worded("{gamma} must lie in (0, 1]; got {gamma2}", gamma2=repr(self.gamma)),
            ),
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
        """Expected reward of each pair, float64 (S, A)."""
        return (self.low + self.high) / 2

    def _matrix(self, policy: Floats | _Policy | None) -> Floats:
        """π(a|s) (S, A) of an array, or of a policy; where it defers, the behaviour acts."""
        if policy is None:
            return self.behavior
        if isinstance(policy, np.ndarray):
            if policy.shape != self.behavior.shape:
                raise ParameterError(
                    f"a policy must have shape {self.behavior.shape}; got {policy.shape}."
                )
            return policy
        return self._from_labels(policy)

    def _from_labels(self, policy: Any) -> Floats:
        """The probabilities of a fitted policy, with its actions in the order of this problem."""
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
        """V^π(s), computed exactly.

        Args:
            policy: π(a|s) as float64 (S, A), or a fitted policy; where it defers, the behaviour
                acts. Default None: the behaviour.

        Returns:
            float64 (S,), in the unit of the rewards.

        Example:
            >>> from dprl.envs import dense_chain
            >>> chain = dense_chain()
            >>> chain.state_values().round(2).tolist()
            [4.0, 3.44, 3.0, 2.44, 2.0, 1.44, 1.0, 0.44]
        """
        pi = self._matrix(policy)
        return solve(self.moves(pi), (pi * self.R).sum(axis=1))

    def moves(self, pi: Floats) -> sparse.csr_array:
        """The discounted moves of a policy, γ P_π.

        Args:
            pi: float64 (S, A), the probability of each action in each state.

        Returns:
            CSR (S, S): the discounted chance to go from one state to the next.

        Example:
            >>> from dprl.envs import dense_chain
            >>> chain = dense_chain()
            >>> chain.moves(chain.behavior).shape
            (8, 8)
        """
        S, A = pi.shape
        choose = sparse.csr_array(
            (pi.ravel(), np.arange(S * A), np.arange(0, S * A + 1, A)), shape=(S, S * A)
        )
        return (self.gamma * (choose @ self.P)).tocsr()

    def value(self, policy: Floats | _Policy | None = None) -> float:
        """ρ(π): the expected discounted return of an episode, computed exactly.

        Args:
            policy: π(a|s) as float64 (S, A), or a fitted policy; where it defers, the behaviour
                acts. Default None: the behaviour.

        Returns:
            The value, in the unit of the rewards.

        Example:
            >>> from dprl.envs import dense_chain
            >>> chain = dense_chain()
            >>> round(chain.value(), 6)
            4.0
        """
        return float(self.start @ self.state_values(policy))

    def action_values(self, V: Floats) -> Floats:
        """Q(s,a) = R + γ P V: the value of each action if V is collected afterwards.

        Args:
            V: float64 (S,), the value of each state.

        Returns:
            float64 (S, A), in the unit of the rewards.

        Example:
            >>> from dprl.envs import dense_chain
            >>> chain = dense_chain()
            >>> chain.action_values(chain.state_values())[0].round(2).tolist()
            [3.94, 4.14]
        """
        return np.asarray(self.R + self.gamma * (self.P @ V).reshape(self.R.shape))

    @functools.cached_property
    def optimal(self) -> tuple[Floats, Ints]:
        """V* (S,) and an optimal action in each state (S,), by exact policy iteration."""
        choice, V, _ = best_choices(self, np.ones(self.behavior.shape, bool))
        return V, choice

    def sample(self, n: int, *, seed: int, policy: Floats | _Policy | None = None) -> Log:
        """Draw episodes. The same seed gives the same log.

        Args:
            n: The number of episodes, at least 1.
            seed: Seed of the random draws.
            policy: Who acts: π(a|s) as float64 (S, A), or a fitted policy. Default None: the
                behaviour.

        Returns:
            The log; episodes that reach `max_steps` are marked as cut.

        Raises:
            ParameterError: If `n` is less than 1.

        Example:
            >>> from dprl.envs import dense_chain
            >>> chain = dense_chain()
            >>> chain.sample(10, seed=0)
            Log: 10 episodes · 80 steps · 8 states · 2 actions
        """
        n = check_whole("n", n, 1)
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
        """The same problem as a gymnasium environment (needs the extra `gym`).

        Args:
            seed: Seed of the environment. Default None: a random one.

        Returns:
            A `gymnasium.Env` whose observations and actions are the codes of states and actions.

        Raises:
            PackageError: If gymnasium is not installed.

        Example:
            >>> from dprl.envs import dense_chain
            >>> chain = dense_chain()
            >>> env = chain.to_gym(seed=0)
            >>> env.reset()
            (0, {'label': 'step 0'})
        """
        needed("gymnasium", "to_gym()", "dprl[gym]")
        env = _environment(self)
        if seed is not None:
            env.reset(seed=seed)
        return env


def _environment(mdp: FiniteMDP) -> Any:
    """A gymnasium environment whose states and actions are codes."""
    import gymnasium

    class FiniteMDPEnv(gymnasium.Env[Any, Any]):
        """Discrete observations and actions, rewards drawn on every visit."""

        metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own name

        def __init__(self) -> None:
            self.observation_space = gymnasium.spaces.Discrete(len(mdp.states))
            self.action_space = gymnasium.spaces.Discrete(len(mdp.actions))
            self._state, self._steps = 0, 0

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[int, dict[str, Any]]:
            """Begin an episode."""
            super().reset(seed=seed, options=options)
            self._state = int(self.np_random.choice(len(mdp.states), p=mdp.start))
            self._steps = 0
            return self._state, {"label": mdp.states[self._state]}

        def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
            """Take an action; `terminated` if the process ends, `truncated` after max_steps."""
            s, a = self._state, int(action)
            reward = float(self.np_random.uniform(mdp.low[s, a], mdp.high[s, a]))
            row = slice(*mdp.P.indptr[[s * len(mdp.actions) + a, s * len(mdp.actions) + a + 1]])
            rising = np.cumsum(mdp.P.data[row])
            place = int(np.searchsorted(rising, self.np_random.random(), side="right"))
            self._steps += 1
            terminated = place == len(rising)
            if not terminated:
                self._state = int(mdp.P.indices[row][place])
            truncated = not terminated and self._steps >= mdp.max_steps
            return self._state, reward, terminated, truncated, {"label": mdp.states[self._state]}

    return FiniteMDPEnv()


def _chances(rows: Floats) -> bool:
    """Whether each row is a probability distribution."""
    return bool((rows >= 0).all() and (np.abs(rows.sum(axis=-1) - 1) <= 1e-12).all())


@compiled
def _pick(rising: Floats, u: float) -> int:  # pragma: no cover - compiled
    """The first place whose cumulative weight exceeds u.

    At the upper edge, where rounding may leave none, the last place that has any weight.
    """
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
    indptr: Ints,
    indices: Codes,
    total: Floats,
    before: Floats,
    low: Floats,
    high: Floats,
    max_steps: int,
) -> tuple[Ints, Codes, Codes, Floats, NDArray[np.uint8]]:  # pragma: no cover - compiled
    """Play n episodes.

    start (S,) and pi (S, A) are cumulative probabilities; total (nnz,) is the running sum over all
    of P.
    """
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
