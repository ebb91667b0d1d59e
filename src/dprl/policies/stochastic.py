"""StochasticPolicy: a distribution over actions in every state. It never defers."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from typing import Any, ClassVar, NoReturn, Protocol

import numpy as np

from dprl._core.arrays import Floats
from dprl.errors import PolicyError
from dprl.logs.log import Label, Log
from dprl.policies.base import METRIC, PolicyFields, Stored, Unrecorded, origin_of_training
from dprl.policies.explain import Explanation, explain_without_evidence
from dprl.policies.protocol import Decisions, Terms
from dprl.policies.spaces import FeatureSpace, LabelSpace

# --- Policies over numeric features that never defer: what the rivals of DPRL return there
#
# `FeaturePolicy` has the verbs; a `ForestPolicy` asks fitted forests and lives in memory only, a
# `NetworkPolicy` is four arrays, needs no torch to answer, and is kept in a policy file.


class Rule(Protocol):
    """What decides."""

    def probabilities(self, z: Floats) -> Floats:
        """π (k, A) at coordinates z (k, d')."""


@dataclass(frozen=True, eq=False, repr=False)
class FeaturePolicy(Unrecorded, PolicyFields, ABC):
    """A distribution over actions for any numeric features; immutable.

    Attributes:
        states: Empty: states are features here.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        feature_names: The d features a state needs, in order.
        scale: float64 (d,), what each feature is divided by.
        weight: float64 (d,), what each squared difference is multiplied by.
    """

    ARRAYS: ClassVar[Mapping[str, str]] = METRIC

    feature_names: tuple[str, ...]
    scale: Floats
    weight: Floats

    @functools.cached_property
    def space(self) -> FeatureSpace:
        """The features a state needs, and how distance is measured."""
        return FeatureSpace(self.feature_names, self.scale, self.weight, encoding=self.encoding)

    @abstractmethod
    def _pi(self, z: Floats) -> Floats:
        """π (k, A) at coordinates z (k, d')."""

    def at(self, states: Any) -> Decisions:
        """What it answers at these states: the most probable action, the first of equals.

        Args:
            states: (k, d) numbers in the order of `feature_names`, or a table with these columns,
                or one state as a sequence or a mapping.
        """
        pi = self.probabilities(states)
        return Decisions.without_evidence(range(len(pi)), self.actions, pi, Terms())

    def probabilities(self, states: Any, *, behavior: Floats | None = None) -> Floats:
        """π(a|s), float64 (k, A); states as in `at`.

        `behavior` is what a deferring policy would need; this one does not.
        """
        x, _ = self.space.read(states)
        return self._pi(self.space.coordinates(x))

    def __repr__(self) -> str:
        name = self.parameters.get("learner", "features")
        return f"<{type(self).__name__}: {name} · {len(self.feature_names)} features>"


@dataclass(frozen=True, eq=False, repr=False)
class ForestPolicy(FeaturePolicy):
    """A policy that asks scikit-learn's forests, in memory.

    Attributes:
        rule: What decides.
    """

    rule: Rule

    def _pi(self, z: Floats) -> Floats:
        return self.rule.probabilities(z)

    def save(self, path: str | os.PathLike[str]) -> NoReturn:
        """Refused: scikit-learn's forests are saved by pickle, and a policy file holds no code."""
        raise PolicyError(
            f"a {self.parameters.get('learner')} policy holds scikit-learn forests, which cannot "
            "be saved without pickle.",
            do="Fit it again from its log: the same seed gives the same answers.",
        )

    def digest(self) -> NoReturn:
        """Refused, as saving is."""
        self.save("")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NoReturn:
        """Refused: no file holds one."""
        raise PolicyError(
            f"{os.fspath(path)!r} holds no forest policy: they are not saved.",
            do="Read other policies with dprl.load.",
        )


@dataclass(frozen=True, eq=False, repr=False)
class NetworkPolicy(FeaturePolicy, Stored):
    """Greedy in the Q of a network with one hidden layer: relu((z - centre) W1 + b1) W2 + b2.

    Attributes:
        centre: float64 (d',), what is taken off the d' coordinates of a state.
        W1: float64 (d', H).
        b1: float64 (H,).
        W2: float64 (H, A).
        b2: float64 (A,).
    """

    KIND: ClassVar[str] = "network"
    ARRAYS: ClassVar[Mapping[str, str]] = {
        **METRIC, "centre": "float64 w", "W1": "float64 wH", "b1": "float64 H",
        "W2": "float64 HA", "b2": "float64 A",
    }  # fmt: skip

    centre: Floats
    W1: Floats
    b1: Floats
    W2: Floats
    b2: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.ARRAYS.keys() - METRIC.keys():
            if not (np.abs(getattr(self, name)) <= 1e60).all():
                self._refuse(f"{name!r} holds a number that is not finite, or is beyond 1e60")

    def values(self, states: Any) -> Floats:
        """Q(s, a), float64 (k, A); states as in `act`."""
        x, _ = self.space.read(states)
        return self._Q(self.space.coordinates(x))

    def _Q(self, z: Floats) -> Floats:
        hidden = np.maximum(_affine(z - self.centre, self.W1, self.b1), 0.0)
        return _affine(hidden, self.W2, self.b2)

    def _pi(self, z: Floats) -> Floats:
        return np.asarray(np.eye(len(self.actions))[self._Q(z).argmax(axis=1)])


def _affine(x: Floats, W: Floats, b: Floats) -> Floats:
    """x W + b, added up in one order: an answer must not depend on its company in a batch."""
    out = np.tile(b, (len(x), 1))
    for i in range(len(W)):
        out += x[:, i, None] * W[i]
    return out


# --- StochasticPolicy: a distribution over actions in every state. It never defers


@dataclass(frozen=True, eq=False, repr=False)
class StochasticPolicy(Unrecorded, Stored):
    """What the rivals of DPRL return: π(a|s) for labelled states; immutable.

    Attributes:
        states: State labels, S of them.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        pi: float64 (S, A), π(a|s).
        certificate: What is proved about it, where it went through `dprl.gate`. Default None.
        trained_on: Given when it is made, and kept in `provenance`: the log, or a list of all logs,
            by which it was fitted or chosen; [] where none was. Default None: nothing is known.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.baselines.BC().fit(log)
        >>> policy.act(["fever"])
        ['watch']
    """

    KIND: ClassVar[str] = "stochastic"
    ARRAYS: ClassVar[Mapping[str, str]] = {"pi": "float64 SA"}

    pi: Floats
    trained_on: InitVar[Log | Sequence[Log] | None] = None

    def __post_init__(self, trained_on: Log | Sequence[Log] | None) -> None:
        if trained_on is not None:
            origin = {**origin_of_training(trained_on), **self.provenance}
            object.__setattr__(self, "provenance", origin)
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

    def _pi(self, column: Iterable[Any]) -> Floats:
        uniform = np.full((1, len(self.actions)), 1 / max(len(self.actions), 1))
        return np.concatenate([self.pi, uniform])[self.space.codes(column)]

    def probabilities(
        self,
        states: Iterable[Label] | None = None,
        *,
        behavior: Floats | None = None,
    ) -> Floats:
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

    def __repr__(self) -> str:
        name = self.parameters.get("learner", "stochastic")
        return f"<StochasticPolicy: {name} · {len(self.states):,} states>"
