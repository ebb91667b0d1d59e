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

from dprl._core.practice import is_divided
from dprl.errors import PolicyError
from dprl.logs.log import Label, Log
from dprl.policies._decisions import Kind
from dprl.policies._protocol import Policy

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
        row: int64 (N,), the row of `pi`, `speaks`, `changed` and `divided` that belongs to each
            step.
        actions: The A' action labels.
        divided: bool (M,), true where the policy itself records that practice is divided. Default
            None: it does not know usual practice.
    """

    pi: Floats
    speaks: Bools
    changed: Bools | None
    row: NDArray[np.int64]
    actions: tuple[Label, ...]
    divided: Bools | None = None

    @property
    def suggested(self) -> NDArray[np.int64]:
        """int64 (M,): the most probable action (the first, if several are); -1 where it defers."""
        return np.where(self.speaks, self.pi.argmax(axis=1), -1)

    def changes(self, practice: Floats, row: NDArray[np.int64]) -> tuple[Bools, Bools]:
        """bool (N,), twice: where the policy changes usual practice, and where that is divided.

        For a policy that does not know usual practice, `practice` (M', A') holds the chance of each
        action, and `row` (N,) its row at each step.
        """
        if self.changed is not None and self.divided is not None:
            return np.asarray(self.changed[self.row]), np.asarray(self.divided[self.row])
        suggested = self.suggested[self.row]
        usual, divided = practice.argmax(axis=1)[row], is_divided(practice)[row]
        return np.asarray((suggested >= 0) & ((suggested != usual) | divided)), divided


def spoken(policy: Policy, log: Log) -> Spoken:
    """The decisions of `policy` at the steps of `log`."""
    _check(policy, log)
    actions = (*log.actions, *(a for a in policy.actions if a not in set(log.actions)))
    place = {label: i for i, label in enumerate(actions)}
    columns = [place[label] for label in policy.actions]
    states, row = policy.space.of_log(log)
    parts = [_said(policy, states[i : i + AT_ONCE]) for i in range(0, len(states), AT_ONCE)]
    pi, speaks, changed, divided = (np.concatenate(part) for part in zip(*parts, strict=True))
    wide = np.zeros((len(pi), len(actions)))
    wide[:, columns] = np.where(speaks[:, None], pi, 0.0)
    if not policy.knows_practice:
        return Spoken(wide, speaks, None, row, actions)
    return Spoken(wide, speaks, changed, row, actions, divided)


def _said(policy: Policy, states: Any) -> tuple[Floats, Bools, Bools, Bools]:
    """π (k, A) in the policy's order; where it speaks, changes practice, finds it divided, (k,)."""
    here = policy.at(states)
    return here.pi, here.choice >= 0, here.kind == Kind.CHANGE, here.divided


def _check(policy: Policy, log: Log) -> None:
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
