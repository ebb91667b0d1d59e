r"""Behaviour cloning: do what was done, in the proportions it was done.

    π(a|s) = π̂_b(a|s) = n(s,a) / n(s)

Pomerleau: *Efficient training of artificial neural networks for autonomous navigation*, Neural
Computation 3(1), 1991. Uniform in states that were never visited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl.learners.baselines._tabular import TabularBaseline
from dprl.planning.model import Model

__all__ = ["BC"]


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

    def plan(self, model: Model) -> NDArray[np.float64]:
        """The behaviour in the model.

        Args:
            model: The maximum-likelihood model of a log with S states and A actions.

        Returns:
            π(a|s), float64 (S, A).

        Example:
            >>> from dprl.baselines import BC
            >>> from dprl.envs import risky_arms
            >>> from dprl.planning import estimate
            >>> model = estimate(risky_arms().sample(1_000, seed=0), gamma=1.0)
            >>> BC().plan(model).shape
            (11, 10)
        """
        return model.mdp.behavior
