"""A drug that helps today and harms later, through a memory that the record does not show.

On each of `days` days a person waits (probability .7) or gives the drug. Both pay U[0, 1]; the drug
pays `gain` more at once, and costs `cost` exactly `delay` days later, whatever is done then. The
record shows the day and nothing of what was given before: given day and action, what comes next
still depends on the past, so the recorded states are not Markov. `delay` days of watching follow,
on which the drug does nothing, so that every cost is collected within the episode:

    ρ(π) = (days + delay)/2 + (gain - cost) ∑_day π(drug | day)

A method that plans in a model of the recorded states sees the gain and not the cost: the cost
falls on both actions of a later day alike. Returns of whole episodes hold both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from dprl._core.arrays import Floats, Ints
from dprl._core.checks import check_number, check_whole
from dprl.errors import ParameterError
from dprl.logs.log import Label, Log
from dprl.planning.finite_mdp import FiniteMDP

USUAL = 0.7
ACTIONS = ("drug", "wait")


@dataclass(frozen=True, eq=False)
class PartlyObserved:
    """A finite MDP of whose states only a part is recorded.

    Below, S is the number of recorded states, F of full states and A of actions.

    Attributes:
        full: The MDP over the full states (F of them), in which values are computed.
        states: The S labels of the recorded states.
        shown: int64 (F,), index into `states`: what the record shows of each full state.
        notes: Facts about the problem. Default empty.

    Example:
        >>> from dprl.envs import delayed
        >>> world = delayed()
        >>> world.sample(100, seed=0)
        Log: 100 episodes · 800 steps · 8 states · 2 actions
    """

    full: FiniteMDP
    states: tuple[Label, ...]
    shown: Ints
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the problem."""
        return self.full.name

    @property
    def actions(self) -> tuple[Label, ...]:
        """The A action labels."""
        return self.full.actions

    @property
    def gamma(self) -> float:
        """Discount in (0, 1]."""
        return self.full.gamma

    def _full_policy(self, policy: Any) -> Floats | None:
        """π(a|full state) (F, A) of a policy over recorded states; None for the behaviour."""
        if policy is None:
            return None
        if isinstance(policy, np.ndarray):
            shape = (len(self.states), len(self.actions))
            if policy.shape != shape:
                raise ParameterError(
                    f"a policy must have shape {shape}; got {policy.shape}.",
                    do="Rows follow the recorded states, columns the actions.",
                )
            return policy[self.shown]
        labels = tuple(self.states[i] for i in self.shown)
        return replace(self.full, states=labels)._matrix(policy)

    def value(self, policy: Any = None) -> float:
        """ρ(π): the expected discounted return of an episode, computed exactly in the full MDP.

        Args:
            policy: Who acts: π(a|s) over recorded states as float64 (S, A), or a fitted policy;
                where it defers, the behaviour acts. Default None: the behaviour.

        Returns:
            The value, in the unit of the rewards.

        Raises:
            ParameterError: If the policy does not fit the recorded states and the actions.

        Example:
            >>> from dprl.envs import delayed
            >>> round(delayed().value(), 6)
            2.65
        """
        return self.full.value(self._full_policy(policy))

    def sample(self, n: int, *, seed: int, policy: Any = None) -> Log:
        """Draw episodes as they are recorded. The same seed gives the same log.

        Args:
            n: The number of episodes, at least 1.
            seed: Seed of the random draws.
            policy: Who acts: π(a|s) over recorded states as float64 (S, A), or a fitted policy.
                Default None: the behaviour.

        Returns:
            The log; its states are the recorded ones.

        Raises:
            ParameterError: If `n` is less than 1, or the policy does not fit.

        Example:
            >>> from dprl.envs import delayed
            >>> delayed().sample(2, seed=0).states[:2]
            ('day 1', 'day 2')
        """
        log = self.full.sample(n, seed=seed, policy=self._full_policy(policy))
        return replace(log, state=self.shown[log.codes()].astype(np.int32), states=self.states)


def delayed(
    *, days: int = 6, delay: int = 2, gain: float = 0.25, cost: float = 1.0
) -> PartlyObserved:
    """The drug that helps today and harms later, γ = 1.

    Args:
        days: The number of days on which the drug does something, at least 1. Default 6.
        delay: After how many days the cost comes, from 1 to 8. Default 2.
        gain: What the drug pays at once, in the unit of the rewards, at least 0. Default 0.25.
        cost: What it costs later, in the same unit, at least 0. Default 1.

    Returns:
        The problem, with days + delay recorded states and 2 actions; `notes["harmful"]` names the
        action and `notes["days"]` the states in which it costs more than it gains (none where
        `cost` is not above `gain`).

    Raises:
        ParameterError: If a number is outside what it may be.

    Example:
        >>> import numpy as np
        >>> from dprl.envs import delayed
        >>> world = delayed()
        >>> never, always = np.tile([0.0, 1.0], (8, 1)), np.tile([1.0, 0.0], (8, 1))
        >>> round(world.value(never), 6), round(world.value(always), 6)
        (4.0, -0.5)
    """
    days = check_whole("days", days, 1)
    delay = check_whole("delay", delay, 1, 8)
    gain = check_number("gain", gain, "[0, inf)")
    cost = check_number("cost", cost, "[0, inf)")
    length, memories = days + delay, 1 << delay
    # full state day · memories + memory; bit k of the memory: the drug was given k + 1 days before
    day, memory = np.divmod(np.arange(length * memories), memories)
    drug = np.tile([1, 0], (len(day), 1)) * (day < days)[:, None]
    low = gain * drug - cost * (memory >> (delay - 1))[:, None]
    later = ((memory << 1) % memories)[:, None] + drug
    target = (day[:, None] + 1) * memories + later
    goes_on = np.flatnonzero(np.repeat(day < length - 1, 2))
    P = sparse.csr_array(
        (np.ones(len(goes_on)), (goes_on, target.ravel()[goes_on])),
        shape=(2 * len(day), len(day)),
    )
    treated = np.where(day < days, 1 - USUAL, 0.0)
    labels = tuple(f"day {i + 1}" for i in range(length))
    given = [[f"{k + 1}" for k in range(delay) if m >> k & 1] for m in range(memories)]
    full = FiniteMDP(
        name="delayed harm",
        states=tuple(
            f"{labels[d]}, drug {' and '.join(given[m])} days before" if m else f"{labels[d]}, none"
            for d, m in zip(day.tolist(), memory.tolist(), strict=True)
        ),
        actions=ACTIONS,
        P=P,
        low=low,
        high=low + 1,
        start=np.eye(len(day))[0],
        behavior=np.stack((treated, 1 - treated), axis=1),
        gamma=1.0,
        max_steps=length + 1,
    )
    harmful = labels[:days] if cost > gain else ()
    return PartlyObserved(full, labels, day, notes={"harmful": "drug", "days": harmful})
