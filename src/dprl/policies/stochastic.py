"""StochasticPolicy: a distribution over actions in every state. It never defers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.logs.log import Label
from dprl.policies._base import Stored
from dprl.policies._decisions import Decisions, Terms
from dprl.policies._explain import Explanation, explain_without_evidence, no_record
from dprl.policies._spaces import LabelSpace

__all__ = ["StochasticPolicy"]


@dataclass(frozen=True, eq=False, repr=False)
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

    @functools.cached_property
    def space(self) -> LabelSpace:
        """The labels it knows."""
        return LabelSpace(self.states)

    def at(self, states: Label | Iterable[Label | None] | None) -> Decisions:
        """What it answers at these states: the most probable action, the first of equals.

        Args:
            states: A list or a column of labels, or a single one. In a state that was never seen
                the policy is uniform, so the first action is named.
        """
        column, _ = self.space.read(states)
        return Decisions.without_evidence(column, self.actions, self._pi(column), Terms())

    def _pi(self, column: Iterable[Any]) -> NDArray[np.float64]:
        uniform = np.full((1, len(self.actions)), 1 / max(len(self.actions), 1))
        return np.concatenate([self.pi, uniform])[self.space.codes(column)]

    def act(self, states: Label | Iterable[Label | None] | None) -> Any:
        """The most probable action of each state, the first of equals; states as in `at`.

        A sequence gives a list; a single label gives a single answer.
        """
        column, single = self.space.read(states)
        answers = self.at(column).answers()
        return answers[0] if single else answers

    def probabilities(
        self,
        states: Iterable[Label] | None = None,
        *,
        behavior: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """π(a|s), float64 (k, A); uniform in states that were never seen.

        `behavior` is what a deferring policy would need; this one does not.
        """
        return self._pi(self.states if states is None else self.space.column(states))

    def explain(self, state: Label, *, cases: bool = False) -> Explanation:
        """How likely each action is in one state; there is no evidence to explain it by."""
        return explain_without_evidence(self.at([state]), 0, state, self._learner)

    def changes(self, *, cases: bool = False) -> Table:
        """Refused: it does not know what is usually done."""
        raise no_record(self._learner)

    @property
    def _learner(self) -> str:
        return str(self.parameters.get("learner", "another learner"))

    def __repr__(self) -> str:
        name = self.parameters.get("learner", "stochastic")
        return f"<StochasticPolicy: {name} · {len(self.states):,} states>"
