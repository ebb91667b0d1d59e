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

from typing import TYPE_CHECKING

from dprl._core.lazy import alias, attach
from dprl._core.version import __version__ as __version__

if TYPE_CHECKING:
    from types import ModuleType

    from dprl import certificate as certificate
    from dprl import envs as envs
    from dprl._core.table import Table as Table
    from dprl.apps import figures as figures
    from dprl.apps._report import report as report
    from dprl.certificate._gate import gate as gate
    from dprl.certificate._monitor import Monitor as Monitor
    from dprl.errors import BalanceWarning as BalanceWarning
    from dprl.errors import ClusterError as ClusterError
    from dprl.errors import CutWarning as CutWarning
    from dprl.errors import DprlError as DprlError
    from dprl.errors import EvidenceError as EvidenceError
    from dprl.errors import LabelWarning as LabelWarning
    from dprl.errors import LogError as LogError
    from dprl.errors import MissingWarning as MissingWarning
    from dprl.errors import PackageError as PackageError
    from dprl.errors import ParameterError as ParameterError
    from dprl.errors import PlanError as PlanError
    from dprl.errors import PolicyError as PolicyError
    from dprl.errors import PrecisionWarning as PrecisionWarning
    from dprl.errors import StateWarning as StateWarning
    from dprl.evaluation import stats as stats
    from dprl.evaluation._compare import Comparison as Comparison
    from dprl.evaluation._compare import compare as compare
    from dprl.evaluation._evaluate import evaluate as evaluate
    from dprl.evaluation._result import Evaluation as Evaluation
    from dprl.evaluation._sensitivity import sensitivity as sensitivity
    from dprl.evaluation._sensitivity_result import Sensitivity as Sensitivity
    from dprl.evaluation._sweep import Sweep as Sweep
    from dprl.evaluation._sweep import sweep as sweep
    from dprl.evidence._site_cells import site_evidence as site_evidence
    from dprl.evidence._site_evidence import SiteEvidence as SiteEvidence
    from dprl.evidence._site_evidence import merge_evidence as merge_evidence
    from dprl.evidence._site_schema import SiteSchema as SiteSchema
    from dprl.evidence.behavior import Behavior as Behavior
    from dprl.evidence.neighbors.metric import Metric as Metric
    from dprl.learners import baselines as baselines
    from dprl.learners.confident import Confident as Confident
    from dprl.learners.continuous import DPRLContinuous as DPRLContinuous
    from dprl.learners.discrete import DPRLDiscrete as DPRLDiscrete
    from dprl.learners.held_out import narrow as narrow
    from dprl.learners.rules import Rules as Rules
    from dprl.logs import events as events
    from dprl.logs._episode_sets import from_d3rlpy as from_d3rlpy
    from dprl.logs._episode_sets import from_minari as from_minari
    from dprl.logs._findings import CheckResult as CheckResult
    from dprl.logs._io import check as check
    from dprl.logs._io import from_arrays as from_arrays
    from dprl.logs._io import from_frame as from_frame
    from dprl.logs._io import read as read
    from dprl.logs._io import write as write
    from dprl.logs._scan import scan as scan
    from dprl.logs.events._build import from_events as from_events
    from dprl.logs.log import Log as Log
    from dprl.logs.parts import LogInParts as LogInParts
    from dprl.planning._markov_result import MarkovCheck as MarkovCheck
    from dprl.planning._site_plan import SitePlan as SitePlan
    from dprl.planning._site_plan import site_plan as site_plan
    from dprl.planning.markov import markov_check as markov_check
    from dprl.policies._compress import compress as compress
    from dprl.policies._compress import prune as prune
    from dprl.policies._decisions import DEFER as DEFER
    from dprl.policies._decisions import Decisions as Decisions
    from dprl.policies._decisions import Kind as Kind
    from dprl.policies._load import load as load
    from dprl.policies._protocol import Policy as Policy
    from dprl.policies._public import public_copy as public_copy
    from dprl.policies.callable import CallablePolicy as CallablePolicy
    from dprl.policies.cells import CellPolicy as CellPolicy
    from dprl.policies.certificate import Certificate as Certificate
    from dprl.policies.confident import ConfidentPolicy as ConfidentPolicy
    from dprl.policies.neighbors import NeighborPolicy as NeighborPolicy
    from dprl.policies.rules import RulePolicy as RulePolicy
    from dprl.policies.stochastic import StochasticPolicy as StochasticPolicy
    from dprl.policies.table import TablePolicy as TablePolicy

    atari: ModuleType
    icu: ModuleType

_OTHER_NAMES = {
    "dprl.atari": "dprl_studies.atari",
    "dprl.baselines": "dprl.learners.baselines",
    "dprl.events": "dprl.logs.events",
    "dprl.figures": "dprl.apps.figures",
    "dprl.icu": "dprl_studies.icu",
    "dprl.stats": "dprl.evaluation.stats",
}
alias(_OTHER_NAMES)
alias({"dprl.studies": "dprl_studies"}, old=True)

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "_core.table": ("Table",),
        "apps._report": ("report",),
        "certificate._gate": ("gate",),
        "certificate._monitor": ("Monitor",),
        "errors": ("BalanceWarning", "ClusterError", "CutWarning", "DprlError", "EvidenceError",
                   "LabelWarning",
                   "LogError", "MissingWarning",
                   "PackageError", "ParameterError", "PlanError", "PolicyError",
                   "PrecisionWarning", "StateWarning"),
        "evidence.behavior": ("Behavior",),
        "evaluation._compare": ("Comparison", "compare"),
        "evaluation._evaluate": ("evaluate",),
        "evaluation._result": ("Evaluation",),
        "evaluation._sensitivity": ("sensitivity",),
        "evaluation._sensitivity_result": ("Sensitivity",),
        "evaluation._sweep": ("Sweep", "sweep"),
        "evidence._site_cells": ("site_evidence",),
        "evidence._site_evidence": ("SiteEvidence", "merge_evidence"),
        "evidence._site_schema": ("SiteSchema",),
        "evidence.neighbors.metric": ("Metric",),
        "learners.confident": ("Confident",),
        "learners.continuous": ("DPRLContinuous",),
        "learners.discrete": ("DPRLDiscrete",),
        "learners.held_out": ("narrow",),
        "learners.rules": ("Rules",),
        "logs._findings": ("CheckResult",),
        "logs._episode_sets": ("from_d3rlpy", "from_minari"),
        "logs._io": ("check", "from_arrays", "from_frame", "read",
                     "write"),
        "logs._scan": ("scan",),
        "logs.events._build": ("from_events",),
        "logs.log": ("Log",),
        "logs.parts": ("LogInParts",),
        "planning._markov_result": ("MarkovCheck",),
        "planning._site_plan": ("SitePlan", "site_plan"),
        "planning.markov": ("markov_check",),
        "policies._compress": ("compress", "prune"),
        "policies._decisions": ("DEFER", "Decisions", "Kind"),
        "policies._load": ("load",),
        "policies._protocol": ("Policy",),
        "policies._public": ("public_copy",),
        "policies.callable": ("CallablePolicy",),
        "policies.cells": ("CellPolicy",),
        "policies.certificate": ("Certificate",),
        "policies.confident": ("ConfidentPolicy",),
        "policies.neighbors": ("NeighborPolicy",),
        "policies.rules": ("RulePolicy",),
        "policies.stochastic": ("StochasticPolicy",),
        "policies.table": ("TablePolicy",),
    },
    modules=(*_OTHER_NAMES.values(), "dprl.certificate", "dprl.envs"),
)  # fmt: skip
