"""How to read the tables of changes: notes that stand below them."""

from __future__ import annotations

from dprl._core.intervals import LEVEL

__all__ = ["BELOW", "LOOK", "NOTE"]

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
