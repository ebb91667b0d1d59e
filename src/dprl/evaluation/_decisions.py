"""Spoken: the decision of a policy at every step of a log, and where it defers.

This works for any policy of dprl, and for any model through `dprl.CallablePolicy`. Labels are
matched by name. In a state that it never saw, a policy that can defer defers. An action that the
policy does not know has probability 0 where the policy speaks. An action of the policy that is not
in the log gets a column of its own, after the log's actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError
from dprl.logs._feature_input import columns_in
from dprl.logs.log import Label, Log
from dprl.policies.callable import CallablePolicy
from dprl.policies.cells import CellPolicy
from dprl.policies.neighbors import NeighborPolicy
from dprl.policies.table import Policy

__all__ = ["Spoken", "spoken"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AT_ONCE = 1 << 16
"""Number of steps that a policy is asked about at a time."""


@dataclass(frozen=True, eq=False)
class Spoken:
    """Distributions over actions, and which steps they belong to.

    Attributes:
        pi: float64 (M, A'), π(a|s) where the policy speaks, zeros where it defers; the log's
            actions come first, then the actions that only the policy knows.
        speaks: bool (M,), false where the policy defers.
        changed: bool (M,), true where the policy itself records a change of usual practice; None
            for a policy that does not know usual practice.
        row: int64 (N,), the row of `pi`, `speaks` and `changed` that belongs to each step.
        actions: The A' action labels.
    """

    pi: Floats
    speaks: Bools
    changed: Bools | None
    row: NDArray[np.int64]
    actions: tuple[Label, ...]

    @property
    def suggested(self) -> NDArray[np.int64]:
        """int64 (M,): the most probable action (the first, if several are); -1 where it defers."""
        return np.where(self.speaks, self.pi.argmax(axis=1), -1)

    def changes(self, usual: NDArray[np.int64]) -> Bools:
        """bool (N,): the steps at which the policy changes usual practice.

        `usual` (N,) is the usual action at each step, for a policy that does not know it.
        """
        if self.changed is not None:
            return np.asarray(self.changed[self.row])
        suggested = self.suggested[self.row]
        return np.asarray((suggested >= 0) & (suggested != usual))


def spoken(policy: Any, log: Log) -> Spoken:
    """The decisions of `policy` at the steps of `log`."""
    _check(policy, log)
    actions = (*log.actions, *(a for a in policy.actions if a not in set(log.actions)))
    place = {label: i for i, label in enumerate(actions)}
    columns = [place[label] for label in policy.actions]
    if log.state is not None:
        row = log.codes().astype(np.int64)
        pi, speaks, changed = _said(policy, list(log.states))
    else:
        row = np.arange(log.n_steps)
        x = _features(policy, log)
        parts = [_said(policy, x[i : i + AT_ONCE]) for i in range(0, len(x), AT_ONCE)]
        pi = np.concatenate([p for p, _, _ in parts])
        speaks = np.concatenate([s for _, s, _ in parts])
        told = [c for _, _, c in parts if c is not None]
        changed = np.concatenate(told) if told else None
    wide = np.zeros((len(pi), len(actions)))
    wide[:, columns] = np.where(speaks[:, None], pi, 0.0)
    return Spoken(wide, speaks, changed, row, actions)


def _said(policy: Any, states: Any) -> tuple[Floats, Bools, Bools | None]:
    """π (k, A) in the policy's order of actions, where it speaks (k,), where it changes (k,).

    The last is None for a policy that does not know usual practice.
    """
    if isinstance(policy, CallablePolicy):
        choice = policy.choice(states)
        return np.eye(len(policy.actions))[choice], choice >= 0, None
    if isinstance(policy, NeighborPolicy | CellPolicy):
        policy = policy.at(states)
        states = policy.states
    if isinstance(policy, Policy):
        codes = np.array(policy._codes(states), np.int64)
        choice = np.where(codes >= 0, policy.choice[codes], -1)
        changed = (choice >= 0) & (policy.kind[codes] == 2)
        return np.eye(len(policy.actions))[choice], choice >= 0, changed
    pi = policy.probabilities(states)
    return pi, np.ones(len(pi), bool), None


def _check(policy: Any, log: Log) -> None:
    if not (hasattr(policy, "probabilities") and hasattr(policy, "actions")):
        raise PolicyError(
            f"a {type(policy).__name__} is no policy of dprl's.",
            do="Wrap what predicts: dprl.CallablePolicy(model, actions=log.actions).",
        )
    kinds = [{isinstance(a, str) for a in x} for x in (policy.actions, log.actions)]
    if kinds[0].isdisjoint(kinds[1]):
        words = ["text" if True in kind else "numbers" for kind in kinds]
        raise PolicyError(
            f"the policy's actions are {words[0]}, the log's {words[1]}.",
            f"{policy.actions[0]!r} and {log.actions[0]!r}",
            "Name actions in the log as they were named when the policy was made.",
        )
    if set(policy.actions).isdisjoint(log.actions):
        raise PolicyError(
            "the policy and the log have no action in common.",
            f"{policy.actions[0]!r} is none of {', '.join(map(repr, log.actions[:4]))}",
        )
    features = bool(getattr(policy, "feature_names", ()))
    open_to_both = isinstance(policy, CallablePolicy) and not features
    if features != (log.state is None) and not open_to_both:
        said, have = ("features", "labels") if features else ("labels", "features")
        raise PolicyError(
            f"the policy's states are {said}, the log's are {have}.",
            do="Read the log as the training log was read.",
        )


def _features(policy: Any, log: Log) -> Floats:
    """The log's features in the policy's order."""
    columns = columns_in(log.feature_names, policy.feature_names or log.feature_names)
    return np.ascontiguousarray(np.asarray(log.features)[:, columns])
