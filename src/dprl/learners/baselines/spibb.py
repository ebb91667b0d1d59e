r"""Safe policy improvement with baseline bootstrapping.

Laroche, Trichelair, Tachet des Combes: *Safe Policy Improvement with Baseline Bootstrapping*,
ICML 2019. Pairs with n(s,a) >= n_min are free; all others are *bootstrapped*: the new policy leans
on the behaviour π_b there. The best policy of the maximum-likelihood MDP among

    Π_b   :  π(a|s) = π_b(a|s)   on bootstrapped pairs          (variant "b", Algorithm 1)
    Π_≤b  :  π(a|s) <= π_b(a|s)  on bootstrapped pairs          (variant "leq", Algorithm 2)

by exact policy iteration, whose greedy step is

    Π_b   :  the behaviour's whole mass on free actions goes to the best of them;
    Π_≤b  :  actions from the best down, a free one takes all that is left, a bootstrapped one up to
             π_b(a|s). Without a free action that is π_b again: the masses must sum to 1.

n(s,a) counts every visit. Pairs never seen are bootstrapped and worth 0. How large n_min must be
for a promise, by the paper's bound, that of two-successor MDPs and that of beta quantiles (Wienhöft
et al., IJCAI 2023), is `dprl.certificate.visits_needed`.

Departures from the paper:

* Policy iteration starts at π_b and moves only where that is strictly better, so among policies of
  equal value it stays near the behaviour.
* The authors' code frees pairs with n > n_min; here as in the paper n >= n_min does.
* States that were never visited keep a behaviour that is given; π̂_b is uniform there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.checks import Cut, check_choice, check_n_min
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import improve, known_mdp, lowest_best
from dprl.planning.model import Model, behavior_of


@dataclass(frozen=True, kw_only=True, eq=False)
class SPIBB(TabularBaseline):
    """SPIBB for labelled states.

    Attributes:
        n_min: The number of visits a pair needs before the policy may choose its probability
            freely: a whole number >= 1, or infinity.
        gamma: Discount in (0, 1].
        variant: "b" (the default) keeps the behaviour's probability of rare pairs, "leq" does not
            exceed it.
        behavior: float64 (S, A), π_b if it is known, in the order of log.states and log.actions.
            Default None: it is estimated from the log.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import SPIBB
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = SPIBB(n_min=50, gamma=1.0).fit(problem.sample(1_000, seed=0))
        >>> round(problem.value(policy), 3)
        0.673
    """

    n_min: float
    gamma: float
    variant: Literal["b", "leq"] = "b"
    behavior: Floats | None = None
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_n_min(self.n_min)
        check_choice(
            "variant", self.variant, ("b", "leq"),
            do="'b' keeps the behaviour on rare pairs, 'leq' does not exceed it.",
        )  # fmt: skip

    def _plan(self, model: Model) -> Floats:
        """The best policy of the model within Π_b or Π_≤b."""
        mdp = known_mdp(model, self.gamma)
        pi_b = behavior_of(model, self.behavior)
        free = model.n >= self.n_min
        if self.variant == "b":
            return improve(mdp, pi_b, lambda Q: keep_rare(Q, free, pi_b, 0.0))
        return improve(mdp, pi_b, _cap(pi_b, free))


def keep_rare(Q: Floats, free: Bools, pi_b: Floats, slack: float) -> Floats:
    """The greedy step of Π_b, (k, A): the probability of free actions goes to the best of them."""
    pi = np.where(free, 0.0, pi_b)
    spare = np.where(free, pi_b, 0.0).sum(axis=1)
    pi[np.arange(len(pi)), lowest_best(Q, free, slack)] += spare  # no free action: 0 is added
    return pi


def _cap(pi_b: Floats, free: Bools) -> Callable[[Floats], Floats]:
    """The greedy step of Π_≤b: from the best action down, each takes as much as it may."""
    most = np.where(free, 1.0, pi_b)
    bound = ~free.any(axis=1, keepdims=True)

    def step(Q: Floats) -> Floats:
        order = np.argsort(-Q, axis=1, kind="stable")
        room = np.take_along_axis(most, order, axis=1)
        left = 1 - (np.cumsum(room, axis=1) - room)
        pi = np.empty_like(pi_b)
        np.put_along_axis(pi, order, np.clip(left, 0.0, room), axis=1)
        return np.where(bound, pi_b, pi)

    return step
