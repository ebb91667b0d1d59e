"""Rules about the chance with which the action taken was taken; each rule is one small function."""

from __future__ import annotations

import numpy as np

from dprl.logs._columns import Columns
from dprl.logs._findings import Finding

__all__ = ["propensity_alone", "propensity_outside"]


def propensity_outside(c: Columns) -> Finding | None:
    """A chance of what was done that is no chance: 0 or less, or above 1."""
    if c.propensity is None:
        return None
    with np.errstate(invalid="ignore"):
        rows = ~np.isnan(c.propensity) & ~((c.propensity > 0) & (c.propensity <= 1))
    if not rows.any():
        return None
    row = int(np.argmax(rows))
    return Finding(
        "error",
        "propensity_outside",
        f"{c.names['propensity']!r} is not above 0 and at most 1 on {rows.sum():,} of {c.n:,} "
        "rows.",
        f"{c.place(row)}: {c.propensity[row]:g}",
        "It is the chance with which the action taken was taken; leave it empty where it is "
        "unknown.",
    )


def propensity_alone(c: Columns) -> Finding | None:
    """A chance below 1 of the only action that was available."""
    if c.propensity is None or c.available is None:
        return None
    alone = np.array([len(menu) == 1 for menu in c.available.labels] + [False], bool)
    with np.errstate(invalid="ignore"):
        rows = alone[c.available.codes] & (c.propensity < 1)
    if not rows.any():
        return None
    row = int(np.argmax(rows))
    return Finding(
        "error",
        "propensity_alone",
        f"{c.names['propensity']!r} is below 1 where only one action is in "
        f"{c.names['available']!r}, on {rows.sum():,} of {c.n:,} rows.",
        f"{c.place(row)}: {c.propensity[row]:g}",
        "What nothing else could replace was done with chance 1: mend one of the two columns.",
    )
