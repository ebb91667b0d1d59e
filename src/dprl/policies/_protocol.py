"""Policy: the one interface that evaluation, the gate, reports, reviews and the service use.

Whatever has these members is a policy; there is no class to inherit from. Over labels and over
features it is the same interface: what a state is, is told by the `space` that a policy holds.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import either, worded
from dprl.errors import PolicyError
from dprl.logs.log import Label, Log
from dprl.policies._decisions import Decisions, Terms
from dprl.policies._spaces import FeatureSpace, LabelSpace, Space

if TYPE_CHECKING:
    from dprl._core.table import Table
    from dprl.logs._censoring import Near
    from dprl.policies._explain import Explanation, Luck
    from dprl.policies._restrict import Approved
    from dprl.policies._situations import Situation
    from dprl.policies.certificate import Certificate

__all__ = ["DeferringPolicy", "Policy", "as_policy", "is_drawn"]

Floats = NDArray[np.float64]


@runtime_checkable
class Policy(Protocol):
    """What names an action in a state, or says DEFER.

    Attributes:
        space: What a state is, and how raw input and logs become states.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Where it comes from: digest and size of the training log, version of dprl.
        certificate: What is proved about it, where it went through `dprl.gate`; else None.
        knows_practice: Whether it keeps what was usually done in its states. Only then can it say
            what it changes.
        may_change: Whether it may change usual practice somewhere, and knows it.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
        >>> isinstance(policy, dprl.Policy)
        True
    """

    @property
    def space(self) -> Space: ...
    @property
    def actions(self) -> tuple[Label, ...]: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...
    @property
    def provenance(self) -> Mapping[str, Any]: ...
    @property
    def certificate(self) -> Certificate | None: ...
    @property
    def knows_practice(self) -> bool: ...
    @property
    def may_change(self) -> bool: ...

    def at(self, states: Any) -> Decisions:
        """What it answers at these states, and everything it knows about them.

        Args:
            states: The states, as the policy's `space` takes them: k labels, or (k, d) features; or
                a single one.

        Returns:
            The k decisions, with the evidence behind them.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.at(["fever", "stable"]).answers()
            ['antibiotics', DEFER]
        """

    def act(self, states: Any) -> Any:
        """The action for each state, or DEFER.

        Args:
            states: The states, as the policy's `space` takes them: k labels, or (k, d) features; or
                a single one.

        Returns:
            A list of k action labels or DEFER; for a single state, a single answer.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.act("fever")
            'antibiotics'
        """

    def probabilities(self, states: Any, *, behavior: Floats | None = None) -> Floats:
        """The probability π(a|s) of each action; where it defers, what usual practice does.

        Args:
            states: The states, as the policy's `space` takes them: k labels, or (k, d) features; or
                a single one.
            behavior: float64 (k, A), the probabilities of usual practice at these states, used
                where the policy defers. Default None: what the policy knows of usual practice, NaN
                where it knows nothing.

        Returns:
            float64 (k, A), the probability of each action in the order of `actions`.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.probabilities(["fever"]).tolist()
            [[1.0, 0.0, 0.0, 0.0]]
        """

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why it answers as it does in one state.

        Args:
            state: A single state, as the policy's `space` takes it.
            cases: Name similar training episodes too, where the policy knows them. Their labels may
                be patients'. Default False.

        Returns:
            The answer, the reason for it in a sentence, and a table of the actions seen there.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.explain("fever").kind
            'change'
        """

    def changes(self, *, cases: bool = False) -> Table:
        """Where its suggestion is not what is usually done.

        Args:
            cases: Name the training episodes too, where the policy knows them. Default False.

        Returns:
            A table of the changes: the state, the usual and the suggested action, and counts.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.changes()["state"]
            ['fever', 'worse']
        """

    def bootstrap_neighbors(self) -> Near | None:
        """What counts near a place, for returns that were cut short.

        Returns:
            A function that finds the rows near a place; None over labels.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.bootstrap_neighbors() is None
            True
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy file.

        Args:
            path: Where to write it; a file that is there is replaced.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder, "care.policy")
            ...     policy.save(path)
            ...     dprl.load(path).act("fever")
            'antibiotics'
        """

    def digest(self) -> str:
        """SHA-256 of everything it holds.

        Returns:
            The digest as hexadecimal text.

        Example:
            >>> import dprl
            >>> log = dprl.envs.care_pathway().sample(500, seed=0)
            >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
            >>> policy.digest() == policy.digest()
            True
        """


@runtime_checkable
class DeferringPolicy(Policy, Protocol):
    """A policy that knows usual practice: it can be reported, reviewed and served.

    Attributes:
        KIND: What its file calls this kind of policy.
        changes_by: What one change is about.
        terms: On which terms it decides.
        stated: What its learner states about the whole policy, in sentences; empty for most.
        conditions: What its values are of: the time that counts, and how cut episodes were treated.
        gain: The gain over usual practice that it states, in numbers; None for most.
        luck: How far luck explains its changes, in words; None where that is not recorded.
    """

    KIND: ClassVar[str]
    changes_by: ClassVar[Literal["state", "cell", "region", "rule"]]

    @property
    def terms(self) -> Terms: ...
    @property
    def stated(self) -> tuple[str, ...]: ...
    @property
    def conditions(self) -> tuple[str, ...]: ...
    @property
    def gain(self) -> Mapping[str, Any] | None: ...
    @property
    def luck(self) -> Luck | None: ...

    def confirmations(self, *, cases: bool = False) -> Table:
        """Where its suggestion is what is usually done already."""

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, as plain numbers."""

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, and the steps of a log that each is about."""

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> DeferringPolicy:
        """The policy with these of its changes alone; `noted` goes into its provenance."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """Something of a user's own that has `actions` and `probabilities`, asked as a policy."""

    own: Any

    certificate = None
    knows_practice = may_change = False

    @functools.cached_property
    def space(self) -> Space:
        names = tuple(getattr(self.own, "feature_names", ()))
        even = np.ones(len(names))
        return FeatureSpace(names, even, even) if names else LabelSpace(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return getattr(self.own, "parameters", {})

    @property
    def provenance(self) -> Mapping[str, Any]:
        return getattr(self.own, "provenance", {})

    def at(self, states: Any) -> Decisions:
        pi = np.asarray(self.own.probabilities(states), np.float64)
        return Decisions.without_evidence(range(len(pi)), tuple(self.own.actions), pi, Terms())

    def bootstrap_neighbors(self) -> None:
        return None


def as_policy(given: Any) -> Policy:
    """`given` itself where it is a policy; an object with `actions` and `probabilities` as one."""
    if isinstance(given, Policy):
        return given
    if not (hasattr(given, "probabilities") and hasattr(given, "actions")):
        raise PolicyError(
            f"a {type(given).__name__} is no policy of dprl's.",
            do=worded(
                "Wrap what predicts: dprl.CallablePolicy(model, {choice}).",
                choice=either("actions=log.actions", "--actions log.actions"),
            ),
        )
    return _Asked(given)


def is_drawn(policy: Any) -> bool:
    """Whether play draws its actions from `probabilities`; else it takes `at(states).choice`."""
    return not getattr(policy, "knows_practice", hasattr(policy, "at"))
