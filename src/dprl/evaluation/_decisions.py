"""Spoken: what a policy says at every step of a log, and where it says nothing.

Any of dprl's policies, and any model through `dprl.CallablePolicy`. Labels are matched by name: a
state the policy never saw is deferred by a policy that defers, and an action it does not know has
probability 0 where it speaks. A policy's action that the log does not know gets a column of its
own, behind the log's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import PolicyError
from dprl.logs.log import Label, Log
from dprl.policies._decisions import Kind
from dprl.policies._protocol import Policy

__all__ = ["Spoken", "spoken"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AT_ONCE = 1 << 16
"""Steps asked about at a time."""


@dataclass(frozen=True, eq=False)
class Spoken:
    """Distributions over actions, and which steps they belong to.

    Attributes:
        pi: float64 (M, A'), π(a|s) where the policy speaks, zeros where it defers; the log's
            actions first, then those only the policy knows.
        speaks: bool (M,).
        changed: bool (M,), where the policy itself says that it changes usual practice; None for
            a policy that knows no usual practice.
        row: int64 (N,), the row of the above that each step has.
        actions: The A' action labels.
    """

    pi: Floats
    speaks: Bools
    changed: Bools | None
    row: NDArray[np.int64]
    actions: tuple[Label, ...]

    @property
    def suggested(self) -> NDArray[np.int64]:
        """int64 (M,): the most probable action, the first of equals; -1 where it defers."""
        return np.where(self.speaks, self.pi.argmax(axis=1), -1)

    def changes(self, usual: NDArray[np.int64]) -> Bools:
        """bool (N,): steps at which it changes usual practice; usual (N,) where it knows none."""
        if self.changed is not None:
            return np.asarray(self.changed[self.row])
        suggested = self.suggested[self.row]
        return np.asarray((suggested >= 0) & (suggested != usual))


def spoken(policy: Policy, log: Log) -> Spoken:
    """What `policy` says at the steps of `log`."""
    _check(policy, log)
    actions = (*log.actions, *(a for a in policy.actions if a not in set(log.actions)))
    place = {label: i for i, label in enumerate(actions)}
    columns = [place[label] for label in policy.actions]
    states, row = policy.space.of_log(log)
    parts = [_said(policy, states[i : i + AT_ONCE]) for i in range(0, len(states), AT_ONCE)]
    pi, speaks, changed = (np.concatenate(part) for part in zip(*parts, strict=True))
    wide = np.zeros((len(pi), len(actions)))
    wide[:, columns] = np.where(speaks[:, None], pi, 0.0)
    return Spoken(wide, speaks, changed if policy.knows_practice else None, row, actions)


def _said(policy: Policy, states: Any) -> tuple[Floats, Bools, Bools]:
    """π (k, A) in the policy's order, where it speaks (k,), where it changes practice (k,)."""
    here = policy.at(states)
    return here.pi, here.choice >= 0, here.kind == Kind.CHANGE


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
