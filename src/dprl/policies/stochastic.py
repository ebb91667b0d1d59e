"""StochasticPolicy: a distribution over actions in every state. It never defers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
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
        certificate: What is proved about it, where it went through `dprl.gate`. Default None.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.baselines.BC().fit(log)
        >>> policy.act(["fever"])
        ['watch']
    """

    KIND: ClassVar[str] = "stochastic"
    ARRAYS: ClassVar[Mapping[str, str]] = {"pi": "float64 SA"}

    pi: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        inside = ((self.pi >= 0) & (self.pi <= 1 + 1e-9)).all()
        if not (inside and (np.abs(self.pi.sum(axis=1) - 1) <= 1e-9).all()):
            self._refuse("a row of 'pi' is not a distribution")

    @functools.cached_property
    def space(self) -> LabelSpace:
        """The labels it knows."""
        return LabelSpace(self.states, self.encoding, self.gone, self.fold)

    def at(self, states: Label | Iterable[Label | None] | None) -> Decisions:
        """What it answers at these states: the most probable action, the first of equals.

        Args:
            states: A label, or a list or column of k labels. A state that is missing (None), or was
                never seen in training, is answered uniformly: the first action is named.

        Returns:
            The k decisions; they carry no evidence.

        Raises:
            PolicyError: A label is of another type (text or number) than the training labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.baselines.BC().fit(log)
            >>> policy.at(["fever"]).answers()
            ['watch']
        """
        column, _ = self.space.read(states)
        return Decisions.without_evidence(column, self.actions, self._pi(column), Terms())

    def _pi(self, column: Iterable[Any]) -> NDArray[np.float64]:
        uniform = np.full((1, len(self.actions)), 1 / max(len(self.actions), 1))
        return np.concatenate([self.pi, uniform])[self.space.codes(column)]

    def act(self, states: Label | Iterable[Label | None] | None) -> Any:
        """The most probable action of each state, the first of equals.

        Args:
            states: A label, or a list or column of k labels. A state that is missing (None), or was
                never seen in training, is answered uniformly: the first action is named.

        Returns:
            A list of k action labels; for a single label, a single one.

        Raises:
            PolicyError: A label is of another type (text or number) than the training labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.baselines.BC().fit(log)
            >>> policy.act("fever")
            'watch'
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
        """The probability π(a|s) of each action; uniform in states that were never seen.

        Args:
            states: A list or column of k labels. Default None: all of the policy's states, in their
                order.
            behavior: Has no effect, because this policy never defers. Default None.

        Returns:
            float64 (k, A), the probability of each action in the order of `actions`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.baselines.BC().fit(log)
            >>> policy.probabilities(["fever"]).round(2).tolist()
            [[0.22, 0.0, 0.01, 0.78]]
        """
        return self._pi(self.states if states is None else self.space.column(states))

    def explain(self, state: Label, *, cases: bool = False) -> Explanation:
        """How likely each action is in one state; there is no evidence to explain it by.

        Args:
            state: The label of the state.
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            The answer and the probabilities.

        Raises:
            PolicyError: A label is of another type (text or number) than the training labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.baselines.BC().fit(log)
            >>> policy.explain("fever").suggested
            'watch'
        """
        return explain_without_evidence(self.at([state]), 0, state, self._learner)

    def changes(self, *, cases: bool = False) -> Table:
        """Refused: it does not know what is usually done.

        Args:
            cases: Has no effect. Default False.

        Returns:
            Nothing: it always raises.

        Raises:
            PolicyError: Always.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.baselines.BC().fit(log)
            >>> policy.changes()  # doctest: +IGNORE_EXCEPTION_DETAIL
            Traceback (most recent call last):
            dprl.errors.PolicyError: ...
        """
        raise no_record(self._learner)

    @property
    def _learner(self) -> str:
        return str(self.parameters.get("learner", "another learner"))

    def __repr__(self) -> str:
        name = self.parameters.get("learner", "stochastic")
        return f"<StochasticPolicy: {name} · {len(self.states):,} states>"
