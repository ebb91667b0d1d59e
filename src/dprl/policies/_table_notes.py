"""How to read the tables of changes: notes that stand below them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.intervals import LEVEL
from dprl.evidence.decision_points import TOLERANCE
from dprl.policies._decisions import Decisions

__all__ = ["BELOW", "BEYOND", "LOOK", "NOTE", "plan_beyond"]

NOTE = (
    "rule_difference = value - value_usual: what the rule looked at, over all that ever did it "
    "there (the first\ncolumn of counts). advantage: the same comparison at first visits of the "
    "state only, so the two may differ,\neven in sign; with an approximate "
    f"{100 * LEVEL:.0f} % interval low..high of each row alone, not corrected for having\n"
    "picked these rows. The highest lower end comes first."
)
LOOK = (
    "The other columns are another look, at returns. rule_difference = value - value_usual: over "
    "all that ever did\nit there; a rule of DPRL would look at this, here it decided nothing. "
    "advantage: the same comparison at first\nvisits of the state only; with an approximate "
    f"{100 * LEVEL:.0f} % interval low..high of each row alone, not corrected for\nhaving picked "
    "these rows."
)
BELOW = (
    "planned may lie below value_usual: a plan values what comes next by all that followed it "
    "there, not only by\nthose that did this here. If these did better later than the others, the "
    "plan does not count on it."
)
BEYOND = (
    "planned lies beyond every return that was seen from there: a plan joins parts of several "
    "episodes, and goes on\nwhere they ended, since it does not know how long an episode may last. "
    "It ranks actions; do not read it as a forecast."
)


def plan_beyond(here: Decisions, rows: Any, chosen: Any) -> NDArray[np.bool_]:
    """bool (k,): whether `planned` of these pairs lies beyond all returns seen from their state.

    A plan joins parts of several episodes. Where a state comes again and again it also goes on
    longer than any episode did: with episodes of 20 steps that earn 1 a step and gamma .99, a plan
    that stays in one state is worth 100, and no return is above 18.2.
    """
    planned, low, high = here.planned[rows, chosen], here.lowest[rows], here.highest[rows]
    by_plan = planned != here.Q[rows, chosen]  # without a plan it is the mean return
    with np.errstate(invalid="ignore"):  # a range without an end: nothing lies beyond it
        slack = TOLERANCE * np.maximum(np.abs(low), np.abs(high))
        return np.asarray(by_plan & ((planned > high + slack) | (planned < low - slack)))
