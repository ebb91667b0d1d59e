"""What is deployed: policies that name an action or say DEFER, and their files.

Choices and the evidence behind them come in; immutable policies go out, over labels, over features,
over cells, made of rules, stochastic ones, and anything that predicts. All have one interface,
`Policy`, and answer with `Decisions`. They act, explain, list what they would change, are saved and
loaded without running code, and can be restricted, compressed and published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.policies.callable import CallablePolicy as CallablePolicy
    from dprl.policies.cells import CellPolicy as CellPolicy
    from dprl.policies.certificate import Certificate as Certificate
    from dprl.policies.loading import load as load
    from dprl.policies.neighbors import NeighborPolicy as NeighborPolicy
    from dprl.policies.protocol import DEFER as DEFER
    from dprl.policies.protocol import Avoid as Avoid
    from dprl.policies.protocol import Decisions as Decisions
    from dprl.policies.protocol import Kind as Kind
    from dprl.policies.protocol import Policy as Policy
    from dprl.policies.stochastic import StochasticPolicy as StochasticPolicy
    from dprl.policies.table import TablePolicy as TablePolicy

__getattr__, __dir__, __all__ = attach(__name__)
