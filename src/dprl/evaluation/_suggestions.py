"""What becomes of suggestions: how often they were expected, on offer and taken, and by whom."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.evidence.balance import Balance, balance, changes_in, comparable
from dprl.evidence.behavior import Behavior
from dprl.logs.log import Log
from dprl.policies.held_out import PolicyAtSteps, Rows

__all__ = ["compared", "not_offered", "suggested"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def not_offered(decisions: PolicyAtSteps, log: Log, acts: Bools) -> float:
    """Share of the steps at which the policy acts and its suggestion was not on offer."""
    if log.available is None or log.menus is None or not acts.any():
        return 0.0
    suggested = decisions.suggested[decisions.row[acts]]
    in_log = suggested < log.n_actions
    offered = log.menus[log.available[acts], np.where(in_log, suggested, 0)]
    return float((~(in_log & offered)).mean())


def suggested(
    behavior: Behavior, decisions: PolicyAtSteps, rows: Rows, log: Log, acts: Bools
) -> dict[str, float | None]:
    """How often the suggested action was expected from the behaviour, and how often taken."""
    if not acts.any():
        return {"suggested_expected": None, "suggested_done": None}
    suggested = decisions.suggested
    chance, done = np.zeros(log.n_steps), np.zeros(log.n_steps, bool)
    _chances(behavior.table, behavior.row[rows], suggested, decisions.row, log.action, chance, done)
    steps = int(acts.sum())
    return {
        "suggested_expected": float(chance.sum() / steps),
        "suggested_done": float(done.sum() / steps),
    }


@compiled
def _chances(
    table: Floats,
    behaved: NDArray[np.int64],
    suggested: NDArray[np.int64],
    decision: NDArray[np.int64],
    action: NDArray[np.int32],
    chance: Floats,
    done: Bools,
) -> None:  # pragma: no cover - compiled
    """Fill chance and done (N,), which are 0: of the suggestion, and whether it was taken."""
    for i in range(len(decision)):
        a = suggested[decision[i]]
        if a >= 0:
            done[i] = a == action[i]
            if a < table.shape[1]:
                chance[i] = table[behaved[i], a]


def compared(
    behavior: Behavior,
    decisions: PolicyAtSteps,
    rows: Rows,
    log: Log,
    changed: Bools,
    recorded: Bools,
) -> Balance | None:
    """Those who took the suggestions beside the others; None where nothing can be compared.

    Where the chance of what was done is on record (`recorded`, (N,)) at all steps that
    change, it makes the weights here as it does in the estimates. On part of them it cannot: among
    several other actions, one over the chance of each and one over that of all of them together are
    not on one scale.
    """
    if not comparable(log):
        return None
    suggested = decisions.suggested[decisions.row]
    changes = changes_in(log, np.flatnonzero(changed), suggested, decisions.actions)
    chance = _chance_of_suggested(behavior, decisions, rows, log, changed)
    if not (recorded.any() and recorded[changed].all()):
        return balance(log, changes, chance)
    done: Floats = np.asarray(log.propensity)
    took = log.action == suggested
    if log.n_actions == 2:
        chance = np.where(took, done, 1 - done)
    else:
        chance = np.where(took, done, np.minimum(chance, 1 - done))
    return balance(log, changes, chance, done)


def _chance_of_suggested(
    behavior: Behavior, decisions: PolicyAtSteps, rows: Rows, log: Log, changed: Bools
) -> Floats:
    """float64 (N,): the chance of the suggestion at the steps that change, 0 elsewhere."""
    chance, done = np.zeros(log.n_steps), np.zeros(log.n_steps, bool)
    _chances(
        behavior.table,
        behavior.row[rows],
        decisions.suggested,
        decisions.row,
        log.action,
        chance,
        done,
    )
    chance[~changed] = 0.0
    return chance
