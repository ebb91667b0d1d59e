"""Safe policy improvement from logged decisions.

Reads what people decided and what came of it, finds the few decisions worth changing, says DEFER
everywhere else, and states how sure it is. Implements Decision-Point RL (AISTATS 2025)::

    import dprl
    log = dprl.read("visits.parquet", episode="patient", time="day",
                    state="stage", action="treatment", reward="score")
    policy = dprl.DPRLDiscrete(n_min=20, gamma=0.99).fit(log)
    print(policy.changes())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dprl.version import __version__

if TYPE_CHECKING:
    from dprl import baselines, certificate, envs, icu, stats
    from dprl.behavior import Behavior
    from dprl.callable_policy import CallablePolicy
    from dprl.cell_policy import CellPolicy
    from dprl.certificate.gating import gate
    from dprl.claim import Certificate
    from dprl.compression import compress, prune
    from dprl.continuous import DPRLContinuous
    from dprl.errors import (
        CutWarning,
        DprlError,
        LabelWarning,
        LogError,
        MissingWarning,
        PackageError,
        ParameterError,
        PlanError,
        PolicyError,
        PrecisionWarning,
    )
    from dprl.evaluation import Evaluation
    from dprl.io import check, from_arrays, from_d3rlpy, from_frame, from_minari, read, write
    from dprl.learn import DPRLDiscrete
    from dprl.loading import load
    from dprl.log import Log
    from dprl.neighbor_policy import NeighborPolicy
    from dprl.neighbors.metric import Metric
    from dprl.ope import evaluate
    from dprl.policy import DEFER, Policy
    from dprl.public import public_copy
    from dprl.reporting import report
    from dprl.stochastic import StochasticPolicy
    from dprl.sweeping import Sweep, sweep
    from dprl.table import Table

__all__ = [
    "DEFER",
    "Behavior",
    "CallablePolicy",
    "CellPolicy",
    "Certificate",
    "CutWarning",
    "DPRLContinuous",
    "DPRLDiscrete",
    "DprlError",
    "Evaluation",
    "LabelWarning",
    "Log",
    "LogError",
    "Metric",
    "MissingWarning",
    "NeighborPolicy",
    "PackageError",
    "ParameterError",
    "PlanError",
    "Policy",
    "PolicyError",
    "PrecisionWarning",
    "StochasticPolicy",
    "Sweep",
    "Table",
    "__version__",
    "baselines",
    "certificate",
    "check",
    "compress",
    "envs",
    "evaluate",
    "from_arrays",
    "from_d3rlpy",
    "from_frame",
    "from_minari",
    "gate",
    "icu",
    "load",
    "prune",
    "public_copy",
    "read",
    "report",
    "stats",
    "sweep",
    "write",
]

_HOME = {
    "dprl.behavior": ("Behavior",),
    "dprl.callable_policy": ("CallablePolicy",),
    "dprl.cell_policy": ("CellPolicy",),
    "dprl.certificate.gating": ("gate",),
    "dprl.claim": ("Certificate",),
    "dprl.compression": ("compress", "prune"),
    "dprl.continuous": ("DPRLContinuous",),
    "dprl.errors": ("CutWarning", "DprlError", "LabelWarning", "LogError", "MissingWarning",
                    "PackageError", "ParameterError", "PlanError", "PolicyError",
                    "PrecisionWarning"),
    "dprl.evaluation": ("Evaluation",),
    "dprl.io": ("check", "from_arrays", "from_d3rlpy", "from_frame", "from_minari", "read",
                "write"),
    "dprl.learn": ("DPRLDiscrete",),
    "dprl.log": ("Log",),
    "dprl.loading": ("load",),
    "dprl.neighbor_policy": ("NeighborPolicy",),
    "dprl.neighbors.metric": ("Metric",),
    "dprl.ope": ("evaluate",),
    "dprl.policy": ("DEFER", "Policy"),
    "dprl.public": ("public_copy",),
    "dprl.reporting": ("report",),
    "dprl.stochastic": ("StochasticPolicy",),
    "dprl.sweeping": ("Sweep", "sweep"),
    "dprl.table": ("Table",),
}  # fmt: skip
_PACKAGES = ("baselines", "certificate", "envs", "icu", "stats")
_WHERE = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import on first use: `import dprl` itself loads nothing heavy."""
    if name in _PACKAGES:
        return importlib.import_module(f"dprl.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'dprl' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
