"""StochasticPolicy: a distribution over actions in every state. It never defers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dprl.logs.log import Label
from dprl.policies._base import Stored, is_one

__all__ = ["StochasticPolicy"]


@dataclass(frozen=True, eq=False)
class StochasticPolicy(Stored):
    """What the rivals of DPRL return: π(a|s) for labelled states; immutable.

    Attributes:
        states: State labels, S of them.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        pi: float64 (S, A), π(a|s).
    """

    KIND: ClassVar[str] = "stochastic"

    pi: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_arrays({"pi": "float64"}, (len(self.states), len(self.actions)))
        if not ((self.pi >= 0).all() and (np.abs(self.pi.sum(axis=1) - 1) <= 1e-9).all()):
            self._refuse("a row of 'pi' is not a distribution")

    def act(self, states: Label | Iterable[Label | None] | None) -> Any:
        """The most probable action of each state, the first of equals.

        A sequence gives a list; a single label gives a single answer. In a state that was never
        seen the policy is uniform, so this is the first action.
        """
        column: Any = [states] if is_one(states) else states
        answers = [self.actions[a] for a in self.probabilities(column).argmax(axis=1)]
        return answers[0] if is_one(states) else answers

    def probabilities(
        self,
        states: Iterable[Label] | None = None,
        *,
        behavior: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """π(a|s), float64 (k, A); uniform in states that were never seen.

        `behavior` is what a deferring policy would need; this one does not.
        """
        codes = range(len(self.states)) if states is None else self._codes(states)
        uniform = np.full((1, len(self.actions)), 1 / max(len(self.actions), 1))
        return np.concatenate([self.pi, uniform])[np.array(codes, dtype=np.int64)]

    def __repr__(self) -> str:
        name = self.parameters.get("learner", "stochastic")
        return f"<StochasticPolicy: {name} · {len(self.states):,} states>"
