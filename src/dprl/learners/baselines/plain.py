"""Behaviour cloning: do what was done, in the proportions it was done.

    π(a|s) = π̂_b(a|s) = n(s,a) / n(s)

Pomerleau: *Efficient training of artificial neural networks for autonomous navigation*, Neural
Computation 3(1), 1991. Uniform in states that were never visited.
"""

from __future__ import annotations

from dataclasses import dataclass

from dprl._core.arrays import Floats
from dprl._core.checks import Cut
from dprl.learners.baselines.base import TabularBaseline
from dprl.planning.iteration import best_choices, known_mdp, one_hot
from dprl.planning.model import Model

# --- Plain model-based RL: the best policy of the maximum-likelihood MDP, as if it were the truth
#
#     Q*(s,a) = R̂(s,a) + γ ∑_{s'} P̂(s'|s,a) max_{a' seen} Q*(s',a')        π(s) = argmax_{a
#     seen} Q*
#
# Sutton and Barto: *Reinforcement Learning*, 2nd edition, 2018, section 4.3, on
# certainty-equivalence
# estimates. It ignores uncertainty: one lucky visit counts as much as a thousand. Only actions
# seen
# in a state may be chosen there; the lowest of equals; uniform in states that were never visited.


@dataclass(frozen=True, kw_only=True)
class RL(TabularBaseline):
    """Greedy on the maximum-likelihood MDP, for labelled states.

    Attributes:
        gamma: Discount in (0, 1].
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import RL
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = RL(gamma=1.0).fit(problem.sample(1_000, seed=0))
        >>> round(problem.value(policy), 3)
        0.495
    """

    gamma: float
    cut: Cut | None = None

    def _plan(self, model: Model) -> Floats:
        """The best action, among those seen, in every state of the model."""
        choice, _, _ = best_choices(known_mdp(model, self.gamma), model.seen)
        return one_hot(choice, model.visited, model.n.shape[1])


# --- Behaviour cloning: do what was done, in the proportions it was done


@dataclass(frozen=True, kw_only=True)
class BC(TabularBaseline):
    """Behaviour cloning for labelled states; it has no settings.

    Example:
        >>> from dprl.baselines import BC
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = BC().fit(problem.sample(1_000, seed=0))
        >>> round(problem.value(policy), 3)
        0.554
    """

    def _plan(self, model: Model) -> Floats:
        """The behaviour in the model."""
        return model.mdp.behavior


# --- The usual action: do always what is done most often


@dataclass(frozen=True, kw_only=True)
class Mode(TabularBaseline):
    """Always the usual action of a state, the first of equals; it has no settings.

    Where people are mostly right and now and then not, it leaves out what they do now and then; it
    asks no outcome. Uniform in states that were never visited.

    Example:
        >>> from dprl.baselines import Mode
        >>> from dprl.envs import random_mdp
        >>> problem = random_mdp(0)
        >>> policy = Mode().fit(problem.sample(100, seed=0))
        >>> round(problem.value(policy), 2)  # usual practice: 3.0
        4.71
    """

    def _plan(self, model: Model) -> Floats:
        """The usual action in every state of the model."""
        return one_hot(model.n.argmax(axis=1), model.visited, model.n.shape[1])
