"""What DPRL is compared with: each learner in one file, `fit(log)` → a policy.

Those with a method in their name (Fitted, Forest, Deep) are for states of numeric features. They
are imported on first use, for they need scikit-learn or torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dprl.baselines.bc import BC
from dprl.baselines.cql import CQL
from dprl.baselines.pqi import PQI
from dprl.baselines.rl import RL
from dprl.baselines.soft_spibb import SoftSPIBB
from dprl.baselines.spibb import SPIBB

if TYPE_CHECKING:
    from dprl.baselines.deep_cql import DeepCQL
    from dprl.baselines.fitted import FittedPQI, FittedSPIBB, ForestBC

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
        raise AttributeError(f"module 'dprl.baselines' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dprl.baselines.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
