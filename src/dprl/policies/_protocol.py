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

from dprl.errors import PolicyError
from dprl.logs.log import Label, Log
from dprl.policies._decisions import Decisions, Terms
from dprl.policies._spaces import FeatureSpace, LabelSpace, Space

if TYPE_CHECKING:
    from dprl._core.table import Table
    from dprl.logs._censoring import Near
    from dprl.policies._explain import Explanation
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
        """What it answers at these states, and everything it knows about them."""

    def act(self, states: Any) -> Any:
        """The action for each state, or DEFER; a single state gives a single answer."""

    def probabilities(self, states: Any, *, behavior: Floats | None = None) -> Floats:
        """π(a|s), float64 (k, A); where it defers, what usual practice does."""

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why it answers as it does in one state."""

    def changes(self, *, cases: bool = False) -> Table:
        """Where its suggestion is not what is usually done."""

    def bootstrap_neighbors(self) -> Near | None:
        """What counts near a place, for returns that were cut short; None over labels."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy file."""

    def digest(self) -> str:
        """SHA-256 of everything it holds."""


@runtime_checkable
class DeferringPolicy(Policy, Protocol):
    """A policy that knows usual practice: it can be reported, reviewed and served.

    Attributes:
        KIND: What its file calls this kind of policy.
        changes_by: What one change is about.
    """

    KIND: ClassVar[str]
    changes_by: ClassVar[Literal["state", "cell", "region"]]

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
            do="Wrap what predicts: dprl.CallablePolicy(model, actions=log.actions).",
        )
    return _Asked(given)


def is_drawn(policy: Any) -> bool:
    """Whether play draws its actions from `probabilities`; else it takes `at(states).choice`."""
    return not getattr(policy, "knows_practice", hasattr(policy, "at"))
