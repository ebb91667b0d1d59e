"""How a log shows itself in a notebook: its size, how its episodes ended, what was done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dprl._core.notebook import in_notebook
from dprl._core.table import Table

if TYPE_CHECKING:
    from dprl.logs.log import Log

__all__ = ["log_shown"]

SHOWN = 12
"""Actions and features that are listed at most."""


def log_shown(log: Log) -> str:
    """The log as HTML."""
    counts = np.bincount(log.action, minlength=log.n_actions)
    order = np.argsort(-counts, kind="stable")[:SHOWN]
    steps = max(log.n_steps, 1)
    actions = Table(
        {
            "action": [str(log.actions[a]) for a in order],
            "steps": counts[order].tolist(),
            "share": (counts[order] / steps).tolist(),
        },
        "What was done" + (f" ({SHOWN} of {log.n_actions:,} actions)" * (log.n_actions > SHOWN)),
    )
    lines = []
    if log.n_steps:
        lines.append(f"Rewards from {log.reward.min():g} to {log.reward.max():g}.")
    if log.feature_names:
        named = ", ".join(log.feature_names[:SHOWN])
        more = len(log.feature_names) - SHOWN
        lines.append(f"Features: {named}{f' and {more} more' if more > 0 else ''}.")
    return in_notebook(repr(log), lines, [actions])
