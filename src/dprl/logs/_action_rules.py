"""Rules about the actions of a finished log: too many to compare, and doses that were cut."""

from __future__ import annotations

import numpy as np

from dprl._core.words import either, option, worded
from dprl.logs._doses import called
from dprl.logs._findings import Finding
from dprl.logs.log import Log

__all__ = ["MANY", "doses", "many_actions"]

MANY = 30
"""The most actions that anyone could compare; more look like doses, or like free text."""
FEW = 10
"""Rows below which hardly anything is known of an action."""


def many_actions(log: Log) -> Finding | None:
    """More actions than anyone could compare: doses, or labels that nobody put in order."""
    if log.n_actions <= MANY:
        return None
    rows = np.bincount(log.action, minlength=log.n_actions)
    rare = int((rows < FEW).sum())
    name = called(log.columns.get("action", "action"))
    numbers = all(not isinstance(label, str) for label in log.actions)
    shown = ", ".join(map(repr, log.actions[:4]))
    what = (
        f"{name!r} holds {log.n_actions:,} different {'numbers' if numbers else 'labels'}, each of "
        f"them an action; {rare:,} were taken on fewer than {FEW} rows."
    )
    if numbers:
        do = worded(
            "These look like doses: cut them into ranges ({action_bins}), or say where "
            "({choice}). Numbers that are names, of items say, can stay as they are.",
            action_bins=option("action_bins", 4),
            choice=either("action_bins=[0, 10, 50]", "--action-bins 0,10,50"),
        )
    else:
        do = f"Nobody can compare so many: put them into fewer groups, at most about {MANY}."
    return Finding("warning", "many_actions", what, f"{shown}, …", do)


def doses(log: Log) -> Finding | None:
    """Doses that were cut into ranges, with the rows in each."""
    edges = log.columns.get("action_bins")
    if not edges:
        return None
    rows = np.bincount(log.action, minlength=log.n_actions)
    listed = [f"{log.actions[a]} ({rows[a]:,} rows)" for a in range(min(log.n_actions, 8))]
    more = f", {log.n_actions - 8:,} more" if log.n_actions > 8 else ""
    at = {name: ", ".join(f"{edge:g}" for edge in own) for name, own in edges.items()}
    cut = " and ".join(f"{name!r} at {where}" for name, where in at.items())
    return Finding(
        "note",
        "doses",
        f"doses are cut into ranges, {cut}: {', '.join(listed)}{more}.",
        do="A policy keeps these edges, and later logs are cut at the same places.",
    )
