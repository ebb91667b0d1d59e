"""The figures that people ask for, each with the rows it is drawn from.

Policies, evaluations, sweeps and logs come in; a `Figure` goes out. It shows itself in a notebook,
`save` writes it as a picture with its rows beside it, and `to_frame` gives the rows to whoever
wants to draw them in another way. Reached as `dprl.figures`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.apps.figures.drawn import Figure as Figure
    from dprl.apps.figures.drawn import balance as balance
    from dprl.apps.figures.drawn import calibration as calibration
    from dprl.apps.figures.drawn import curves as curves
    from dprl.apps.figures.drawn import forest as forest
    from dprl.apps.figures.drawn import policy_map as policy_map
    from dprl.apps.figures.drawn import rule_tree as rule_tree
    from dprl.apps.figures.drawn import sensitivity as sensitivity
    from dprl.apps.figures.drawn import sweep as sweep
    from dprl.apps.figures.drawn import tradeoff as tradeoff
    from dprl.apps.figures.drawn import value_by_size as value_by_size

__getattr__, __dir__, __all__ = attach(__name__)
