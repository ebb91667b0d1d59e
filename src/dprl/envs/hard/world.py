"""What a world that punishes is: who is met, what people do there, and what it brings, all known.

Causes X come from outside: the features of a patient at every step, and what nobody records. What
was done before is kept in a memory m of a few values. Given X, an episode is a small Markov chain,
so expectations over actions are sums, not simulations:

    ρ(π) = E_X ∑_t γ^t ∑_m P_π(m at t | X) ∑_a π(a | what is recorded) R_t(X, m, a)

Only the mean over X is left: exact where X has a few values (`atlas`), otherwise over a fixed deck
of patients, the same for every policy, with the error that is stated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import check_seed, check_whole
from dprl.envs.delayed import PartlyObserved
from dprl.errors import ParameterError
from dprl.logs.log import TERMINAL, Label, Log
from dprl.planning.finite_mdp import FiniteMDP
from dprl.policies.protocol import Avoid

DECK = 40_000
"""Steps of the patients over whom truths are averaged where X cannot be listed."""


class Truth(NamedTuple):
    """A true number, and its standard error where it is a mean over a deck of patients.

    Attributes:
        value: The number, in units of returns.
        error: Its standard error; 0 where it is exact.

    Example:
        >>> Truth(0.25, 0.0).value
        0.25
    """

    value: float
    error: float

    @property
    def turned(self) -> Truth:
        """That of the opposite."""
        return Truth(-self.value, self.error)


Drawn: TypeAlias = Callable[[np.random.Generator, int], Floats]
Table: TypeAlias = Callable[[Floats, int, int], Floats]
Rewards: TypeAlias = Callable[[np.random.Generator, Floats], Floats]


def standard(rng: np.random.Generator, mean: Floats) -> Floats:
    """Rewards that are normal about their means, with standard deviation 1."""
    return mean + rng.normal(size=mean.shape)


@dataclass(frozen=True, eq=False)
class World:
    """A problem whose causes come from outside, and whose truth is known for every policy.

    Below, n is the number of patients (episodes), T of steps, k of causes, M of memories, A of
    actions and d of recorded features.

    Attributes:
        name: Its name.
        actions: The A action labels, sorted.
        draw: (generator, groups) → float64 (n, T, k), the causes; n is groups times `episodes`,
            the episodes of a group one after the other.
        practice: (causes (n, k), step, memory) → float64 (n, A): what people do.
        pay: (causes (n, k), step, memory) → float64 (n, A): the mean reward of each action.
        show: (causes (n, k), step, memory) → float64 (n, d), what is recorded; for labelled states
            (n,), their codes.
        feature_names: Names of the d features; empty where states are labels.
        states: The state labels; empty where states are features.
        levels: For each feature its labels where it is a category, as in a log. Default (): all
            are numbers.
        remember: int (M, A), the memory after each action. Default: there is none, M = 1.
        reward: (generator, means) → rewards. Default: normal with standard deviation 1.
        atlas: () → (causes (n, T, k), weights (n,)), where all causes can be listed. Default None.
        deck: As `draw`, for truths: hidden causes of which rewards are linear may be at their
            means there. Default None: as `draw`.
        episodes: Episodes a group has. Default 1.
        recorded: Whether the log says with which probability each action was taken. Default False.
        gamma: Discount in (0, 1]. Default 1.
        value_range: (lowest, highest) return there can be; None where there is none.
        breaks: Assumptions that do not hold here, such as "hidden cause". Default none.

    Example:
        >>> from dprl.envs.hard import null
        >>> world = null("product")
        >>> world.sample(100, seed=0)
        Log: 100 episodes · 100 steps · 4 features · 2 actions
    """

    name: str
    actions: tuple[Label, ...]
    draw: Drawn
    practice: Table
    pay: Table
    show: Table
    feature_names: tuple[str, ...] = ()
    states: tuple[Label, ...] = ()
    levels: tuple[tuple[str, ...] | None, ...] = ()
    remember: Ints | None = None
    reward: Rewards = standard
    atlas: Callable[[], tuple[Floats, Floats]] | None = None
    deck: Drawn | None = None
    episodes: int = 1
    recorded: bool = False
    gamma: float = 1.0
    value_range: tuple[float, float] | None = None
    breaks: tuple[str, ...] = ()

    @functools.cached_property
    def _memory(self) -> Ints:
        """int (M, A): the memory after each action."""
        if self.remember is None:
            return np.zeros((1, len(self.actions)), np.int64)
        return self.remember

    def sample(self, n: int, *, seed: int) -> Log:
        """Draw groups as they are recorded. The same seed gives the same log.

        Args:
            n: The number of groups, at least 1.
            seed: Seed of the random draws.

        Returns:
            The log, with features or labels as states.

        Raises:
            ParameterError: If `n` is less than 1, or the seed is no whole number from 0.

        Example:
            >>> from dprl.envs.hard import patients
            >>> patients().sample(60, seed=0)
            Log: 1,200 episodes · 60 groups · 1,200 steps · 3 states · 2 actions
        """
        n = check_whole("n", n, 1)
        rng = np.random.default_rng(check_seed(seed))
        X = self.draw(rng, n)
        E, T, _ = X.shape
        memory, rows = np.zeros(E, np.int64), np.arange(E)
        shown, taken, paid, chance = [], [], [], []
        for t in range(T):
            b, R, seen = (self._met(f, X[:, t], t, memory) for f in self._tables)
            a = (rng.random((E, 1)) > np.cumsum(b, axis=1)).sum(axis=1).clip(0, b.shape[1] - 1)
            shown.append(seen)
            taken.append(a)
            paid.append(self.reward(rng, R[rows, a]))
            chance.append(b[rows, a])
            memory = self._memory[memory, a]

        def by_row(columns: list[NDArray[Any]]) -> NDArray[Any]:
            return np.stack(columns, axis=1).reshape(E * T, *columns[0].shape[1:])

        own: dict[str, Any] = (
            {"state": by_row(shown).astype(np.int32), "states": self.states}
            if self.states
            else {"features": by_row(shown), "feature_names": self.feature_names,
                  "levels": self.levels}
        )  # fmt: skip
        if self.episodes > 1:
            own |= {"group": np.repeat(np.arange(n), self.episodes), "groups": tuple(range(n))}
        return Log(
            starts=np.arange(0, E * T + 1, T),
            action=by_row(taken).astype(np.int32),
            reward=by_row(paid),
            actions=self.actions,
            ended=np.full(E, TERMINAL),
            propensity=by_row(chance) if self.recorded else None,
            **own,
        )

    @property
    def _tables(self) -> tuple[Table, Table, Table]:
        return self.practice, self.pay, self.show

    def _met(self, table: Table, x: Floats, t: int, memory: Ints) -> Floats:
        """The rows of a table where each episode has a memory of its own."""
        if len(self._memory) == 1:
            return table(x, t, 0)
        every = np.stack([table(x, t, m) for m in range(len(self._memory))])
        picked: Floats = every[memory, np.arange(len(x))]
        return picked

    @functools.cached_property
    def _deck(self) -> tuple[Floats, Floats]:
        """Causes (n, T, k) over which truths are averaged, and their weights (n,)."""
        if self.atlas is not None:
            return self.atlas()
        draw = self.deck or self.draw
        T = draw(np.random.default_rng(0), 1).shape[1]
        X = draw(np.random.default_rng(2**31), max(DECK // T // self.episodes, 1))
        return X, np.full(len(X), 1 / len(X))

    @functools.cached_property
    def _usual(self) -> tuple[Floats, Floats, list[list[Floats]], Floats, Floats]:
        """Practice b, mean rewards R, what is shown, P_b(m at t) and Q_b, over the deck.

        b, R and Q are (T, M, n, A), P is (T, M, n).
        """
        X, _ = self._deck
        n, T = X.shape[:2]
        M, A = self._memory.shape
        b, R, Q = (np.zeros((T, M, n, A)) for _ in range(3))
        shown = []
        for t in range(T):
            shown.append([self.show(X[:, t], t, m) for m in range(M)])
            for m in range(M):
                b[t, m], R[t, m] = self.practice(X[:, t], t, m), self.pay(X[:, t], t, m)
        for t in range(T)[::-1]:
            Q[t] = R[t]
            if t < T - 1:
                V = (b[t + 1] * Q[t + 1]).sum(axis=2)
                Q[t] += self.gamma * np.moveaxis(V[self._memory], 2, 1)
        return b, R, shown, self._chances(b), Q

    def _chances(self, pi: Floats) -> Floats:
        """P_π(m at t | X), (T, M, n), of action probabilities (T, M, n, A)."""
        T, M, n, A = pi.shape
        P = np.zeros((T, M, n))
        P[0, 0] = 1.0
        for t in range(T - 1):
            for m in range(M):
                for a in range(A):
                    P[t + 1, self._memory[m, a]] += P[t, m] * pi[t, m, :, a]
        return P

    def _probabilities(self, policy: Any, shown: Floats, b: Floats) -> Floats:
        """π(a|x) (n, A) of a policy where it is asked; where it defers, the behaviour acts."""
        if isinstance(policy, np.ndarray):
            if policy.shape != (len(self.states), len(self.actions)):
                raise ParameterError(
                    f"a policy must have shape {(len(self.states), len(self.actions))}; got "
                    f"{policy.shape}.",
                    do="Rows follow the recorded states, columns the actions.",
                )
            drawn: Floats = policy[shown.astype(np.int64)]
            return drawn
        place = {label: i for i, label in enumerate(self.actions)}
        columns = [place[label] for label in policy.actions]
        asked = shown if not self.states else [self.states[i] for i in shown.astype(int).tolist()]
        result = np.zeros_like(b)
        result[:, columns] = policy.probabilities(self._named(asked), behavior=b[:, columns])
        return result

    def _named(self, shown: Any) -> Any:
        """Features with the labels of categories, as a policy is asked for them."""
        if not self.levels:
            return shown
        columns: list[Any] = []
        for own, column in zip(self.levels, shown.T, strict=True):
            columns.append(
                column if own is None else np.array(own, object)[column.astype(np.int64)]
            )
        return dict(zip(self.feature_names, columns, strict=True))

    def gain(self, policy: Any, *, once: bool = False) -> Truth:
        """ρ(π) - ρ(b): what a policy brings over usual practice.

        Args:
            policy: A fitted policy; where it defers, usual practice acts. For labelled states also
                π(a|s) as float64 (S, A).
            once: Whether to follow it only the first time it differs from usual practice in an
                episode, and usual practice from then on. Default False.

        Returns:
            The true gain; its error is that of the deck.

        Raises:
            ParameterError: If an array has another shape.

        Example:
            >>> import numpy as np
            >>> from dprl.envs.hard import one_arm_worse
            >>> trial = one_arm_worse()
            >>> round(trial.gain(np.eye(4)[[1]]).value, 4)
            0.035
        """
        _, w = self._deck
        b, R, shown, P, Q = self._usual
        pi = b.copy()
        T, M = b.shape[:2]
        for t in range(T):
            for m in range(M):
                if (
                    m
                    and np.array_equal(shown[t][m], shown[t][0])
                    and np.array_equal(b[t, m], b[t, 0])
                ):
                    pi[t, m] = pi[t, 0]
                elif P[t, m].any():
                    pi[t, m] = self._probabilities(policy, shown[t][m], b[t, m])
        if once:
            # the first difference is where it pays Q_b, and episodes that had one are left out
            speaks = (pi != b).any(axis=3)
            first = self._chances(np.where(speaks[..., None], 0.0, b))
            worth = _weighed(self.gamma, first * speaks, pi - b, Q)
        else:
            worth = _weighed(self.gamma, self._chances(pi), pi, R)
            worth -= _weighed(self.gamma, P, b, R)
        return _mean(worth, w, exact=self.atlas is not None)

    @functools.cached_property
    def best(self) -> float:
        """What the best policy gains over usual practice; NaN where that needs a memory.

        Returns:
            The gain of taking the best action for every cause, hidden ones too.

        Example:
            >>> from dprl.envs.hard import one_arm_worse
            >>> round(one_arm_worse().best, 4)
            0.035
        """
        if len(self._memory) > 1:
            return float("nan")
        _, w = self._deck
        b, R, _, P, _ = self._usual
        top = np.where(R.max(axis=3, keepdims=True) == R, 1.0, 0.0)
        top /= top.sum(axis=3, keepdims=True)
        return float(w @ _weighed(self.gamma, P, top - b, R))

    def value(self, policy: Any = None) -> float:
        """ρ(π): the expected discounted return of an episode.

        Args:
            policy: As `gain` takes it. Default None: usual practice.

        Returns:
            The value, in units of returns.

        Example:
            >>> from dprl.envs.hard import one_arm_worse
            >>> round(one_arm_worse().value(), 4)
            0.755
        """
        _, w = self._deck
        b, R, _, P, _ = self._usual
        usual = float(w @ _weighed(self.gamma, P, b, R))
        return usual if policy is None else usual + self.gain(policy).value

    def tables(self) -> tuple[Floats, Floats, Floats]:
        """Of one decision over labels: what people do, what it brings, and who is met.

        Returns:
            float64 (S, A), (S, A) and (S,): practice and mean outcome of each action in each state,
            and how often each state is met.

        Raises:
            ParameterError: If states are features, there are several steps, or the causes cannot
                be listed.

        Example:
            >>> from dprl.envs.hard import one_arm_worse
            >>> one_arm_worse().tables()[1].tolist()
            [[0.65, 0.79, 0.79, 0.79]]
        """
        X, w = self._deck
        if not self.states or X.shape[1] > 1 or self.atlas is None:
            raise ParameterError(
                f"{self.name} is no table of one decision.",
                do="Its truths are `gain` and `effect`.",
            )
        code = self.show(X[:, 0], 0, 0).astype(np.int64)
        met = np.bincount(code, w, len(self.states)).astype(np.float64)
        share = w / met[code]
        b, R = self.practice(X[:, 0], 0, 0), self.pay(X[:, 0], 0, 0)
        tables = np.zeros((2, len(self.states), len(self.actions)))
        np.add.at(tables[0], code, b * share[:, None])
        np.add.at(tables[1], code, R * share[:, None])
        return tables[0], tables[1], met

    def effect(self, where: Callable[[Any], Bools], action: Label | Avoid) -> Truth:
        """What one decision brings over doing otherwise, on average over some decisions of today.

        Usual practice acts before and after. "Otherwise" is what people do there when they do not
        take the action.

        Args:
            where: A function of what is recorded (features as a policy is asked for them, or
                labels) to bool, the decisions that are meant.
            action: The action, or `dprl.Avoid` for doing anything else.

        Returns:
            The true contrast; NaN where there is no such decision.

        Example:
            >>> import numpy as np
            >>> from dprl.envs.hard import effect
            >>> truth = effect("plain", size=0.3).effect(lambda x: x[:, 0] > 0, "treat")
            >>> round(truth.value, 6), truth.error < 1e-9
            (0.3, True)
        """
        _, w = self._deck
        b, _, shown, P, Q = self._usual
        T, M = b.shape[:2]
        if isinstance(action, Avoid):
            return self.effect(where, action.action).turned
        a = self.actions.index(action)
        total, count = np.zeros((2, len(w)))
        for t in range(T):
            for m in range(M):
                if not P[t, m].any():
                    continue
                seen = shown[t][m]
                if self.states:
                    seen = np.array([self.states[i] for i in seen.astype(int).tolist()], object)
                inside = P[t, m] * np.asarray(where(self._named(seen)), bool)
                p = b[t, m, :, a]
                rest = (b[t, m] * Q[t, m]).sum(axis=1) - p * Q[t, m, :, a]
                contrast = Q[t, m, :, a] - rest / np.maximum(1 - p, 1e-300)
                total += inside * contrast
                count += inside
        met = float(w @ count)
        if met <= 0:
            return Truth(np.nan, np.nan)
        mean = float(w @ total) / met
        return Truth(mean, _mean((total - mean * count) / met, w, self.atlas is not None).error)


def _weighed(gamma: float, P: Floats, pi: Floats, R: Floats) -> Floats:
    """∑_t γ^t ∑_m P(t, m) ∑_a π(a) R(a) of every cause, (n,)."""
    total: Floats = np.einsum("t,tmn,tmna,tmna->n", gamma ** np.arange(len(P)), P, pi, R)
    return total


def _mean(x: Floats, w: Floats, exact: bool) -> Truth:
    mean = float(w @ x)
    return Truth(mean, 0.0 if exact else float(np.sqrt((w**2) @ (x - mean) ** 2)))


@dataclass(frozen=True, eq=False)
class MarkovWorld:
    """A finite MDP, or one of which a part is recorded, with the same questions as a `World`.

    Attributes:
        name: Its name.
        mdp: The problem.
        value_range: (lowest, highest) return there can be; None where there is none.
        breaks: Assumptions that do not hold here. Default none.

    Example:
        >>> from dprl.envs.hard import wet_chicken
        >>> wet_chicken().sample(10, seed=0).n_states
        25
    """

    name: str
    mdp: FiniteMDP | PartlyObserved
    value_range: tuple[float, float] | None = None
    breaks: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[Label, ...]:
        """The A action labels."""
        return self.mdp.actions

    @property
    def states(self) -> tuple[Label, ...]:
        """The labels of the recorded states."""
        return self.mdp.states

    @property
    def gamma(self) -> float:
        """Discount in (0, 1]."""
        return self.mdp.gamma

    @functools.cached_property
    def best(self) -> float:
        """What the best policy gains over usual practice; NaN where a part is not recorded.

        Returns:
            The gain of the optimal policy.

        Example:
            >>> from dprl.envs.hard import wet_chicken
            >>> round(wet_chicken().best, 3)
            2.108
        """
        if isinstance(self.mdp, PartlyObserved):
            return float("nan")
        return float(self.mdp.start @ self.mdp.optimal[0]) - self.value()

    @property
    def _full(self) -> PartlyObserved:
        if isinstance(self.mdp, PartlyObserved):
            return self.mdp
        return PartlyObserved(self.mdp, self.mdp.states, np.arange(len(self.mdp.states)))

    def sample(self, n: int, *, seed: int) -> Log:
        """Draw episodes as they are recorded. The same seed gives the same log.

        Args:
            n: The number of episodes, at least 1.
            seed: Seed of the random draws.

        Returns:
            The log.

        Example:
            >>> from dprl.envs.hard import wet_chicken
            >>> wet_chicken().sample(2, seed=0).n_actions
            5
        """
        return self.mdp.sample(n, seed=seed)

    def value(self, policy: Any = None) -> float:
        """ρ(π): the expected discounted return of an episode, exactly.

        Args:
            policy: A fitted policy, or π(a|s) as float64 (S, A). Default None: usual practice.

        Returns:
            The value, in units of returns.

        Example:
            >>> from dprl.envs.hard import doses
            >>> round(doses().value(), 4)
            0.8485
        """
        return self._full.value(policy)

    def gain(self, policy: Any) -> Truth:
        """ρ(π) - ρ(b): what a policy brings over usual practice, exactly.

        Args:
            policy: A fitted policy, or π(a|s) as float64 (S, A).

        Returns:
            The true gain; its error is 0.

        Example:
            >>> import numpy as np
            >>> from dprl.envs.hard import doses
            >>> round(doses().gain(np.tile([1.0, 0.0], (4, 1))).value, 4)
            -1.0485
        """
        return Truth(self.value(policy) - self.value(), 0.0)

    def effect(self, where: Callable[[Any], Bools], action: Label | Avoid) -> Truth:
        """What one decision brings over doing otherwise, on average over some visits of today.

        Args:
            where: A function of the labels of states, an array, to bool: the visits that are meant.
            action: The action, or `dprl.Avoid` for doing anything else.

        Returns:
            The true contrast; NaN where there is no such visit.

        Example:
            >>> from dprl.envs.hard import doses
            >>> round(doses().effect(lambda s: s == "day 1", "dose").value, 4)
            0.2062
        """
        full, shown = self._full.full, self._full.shown
        if isinstance(action, Avoid):
            return self.effect(where, action.action).turned
        b, a = full.behavior, full.actions.index(action)
        met = np.asarray(_visits(full))
        labels = np.array([self.states[i] for i in shown.tolist()], object)
        weight = met * np.asarray(where(labels), bool)
        if weight.sum() <= 0:
            return Truth(np.nan, np.nan)
        Q = full.action_values(full.state_values())
        p = b[:, a]
        rest = (b * Q).sum(axis=1) - p * Q[:, a]
        contrast = Q[:, a] - rest / np.maximum(1 - p, 1e-300)
        return Truth(float(weight @ contrast / weight.sum()), 0.0)


def _visits(mdp: FiniteMDP) -> Floats:
    """The expected number of visits of each state in an episode of usual practice."""
    from scipy import sparse
    from scipy.sparse.linalg import spsolve

    moves = replace(mdp, gamma=1.0).moves(mdp.behavior)
    met = spsolve(sparse.csc_array(sparse.eye(len(mdp.states)) - moves.T), mdp.start)
    return np.asarray(met)
