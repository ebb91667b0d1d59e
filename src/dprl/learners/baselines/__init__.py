"""The methods DPRL is compared with: one learner per file, `fit(log)` returns a policy.

Those with a method in their name (Fitted, Forest, Deep) are for states of numeric features. They
are imported on first use, because they need scikit-learn or torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dprl.learners.baselines.bc import BC
from dprl.learners.baselines.cql import CQL
from dprl.learners.baselines.pqi import PQI
from dprl.learners.baselines.rl import RL
from dprl.learners.baselines.soft_spibb import SoftSPIBB
from dprl.learners.baselines.spibb import SPIBB

if TYPE_CHECKING:
    from dprl.learners.baselines.deep_cql import DeepCQL
    from dprl.learners.baselines.fitted import FittedPQI, FittedSPIBB, ForestBC

__all__ = [
    "BC",
    "CQL",
    "PQI",
    "RL",
    "SPIBB",
    "DeepCQL",
    "FittedPQI",
    "FittedSPIBB",
    "ForestBC",
    "SoftSPIBB",
]

_WHERE = {
    "DeepCQL": "deep_cql",
    "FittedPQI": "fitted",
    "FittedSPIBB": "fitted",
    "ForestBC": "fitted",
}


def __getattr__(name: str) -> Any:
    """Import on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'dprl.learners.baselines' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dprl.learners.baselines.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
