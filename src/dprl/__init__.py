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

from dprl._core import __version__ as __version__
from dprl._core.lazy import alias, attach

if TYPE_CHECKING:
    from dprl import atari as atari
    from dprl import baselines as baselines
    from dprl import certificate as certificate
    from dprl import envs as envs
    from dprl import events as events
    from dprl import figures as figures
    from dprl import icu as icu
    from dprl import stats as stats
    from dprl import testing as testing
    from dprl._core.table import Table as Table
    from dprl.apps.contest import Contest as Contest
    from dprl.apps.contest import contest as contest
    from dprl.apps.reports._report import report as report
    from dprl.apps.study import Study as Study
    from dprl.apps.study import study as study
    from dprl.certificate._gate import gate as gate
    from dprl.certificate.monitor import Monitor as Monitor
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
    from dprl.evaluation._compare import Comparison as Comparison
    from dprl.evaluation._compare import compare as compare
    from dprl.evaluation._effects import effects as effects
    from dprl.evaluation._evaluate import evaluate as evaluate
    from dprl.evaluation._sensitivity import Sensitivity as Sensitivity
    from dprl.evaluation._sensitivity import sensitivity as sensitivity
    from dprl.evaluation._sweep import Sweep as Sweep
    from dprl.evaluation._sweep import sweep as sweep
    from dprl.evaluation.result import Evaluation as Evaluation
    from dprl.evidence.behavior import Behavior as Behavior
    from dprl.evidence.neighbors.metric import Metric as Metric
    from dprl.evidence.sites.cells import site_evidence as site_evidence
    from dprl.evidence.sites.evidence import SiteEvidence as SiteEvidence
    from dprl.evidence.sites.evidence import SiteSchema as SiteSchema
    from dprl.evidence.sites.evidence import merge_evidence as merge_evidence
    from dprl.learners.confident import Confident as Confident
    from dprl.learners.continuous import DPRLContinuous as DPRLContinuous
    from dprl.learners.discrete import DPRLDiscrete as DPRLDiscrete
    from dprl.learners.rules.held_out import narrow as narrow
    from dprl.learners.rules.learner import Rules as Rules
    from dprl.logs._io import check as check
    from dprl.logs._io import from_arrays as from_arrays
    from dprl.logs._io import from_frame as from_frame
    from dprl.logs._io import read as read
    from dprl.logs._io import write as write
    from dprl.logs.checking.findings import CheckResult as CheckResult
    from dprl.logs.events._build import from_events as from_events
    from dprl.logs.log import Log as Log
    from dprl.logs.reading.episode_sets import from_d3rlpy as from_d3rlpy
    from dprl.logs.reading.episode_sets import from_minari as from_minari
    from dprl.logs.reading.scan import scan as scan
    from dprl.logs.source import LogInParts as LogInParts
    from dprl.planning.markov import MarkovCheck as MarkovCheck
    from dprl.planning.markov import markov_check as markov_check
    from dprl.planning.sites import SitePlan as SitePlan
    from dprl.planning.sites import site_plan as site_plan
    from dprl.policies.base import public_copy as public_copy
    from dprl.policies.callable import CallablePolicy as CallablePolicy
    from dprl.policies.cells import CellPolicy as CellPolicy
    from dprl.policies.certificate import Certificate as Certificate
    from dprl.policies.confident import ConfidentPolicy as ConfidentPolicy
    from dprl.policies.loading import load as load
    from dprl.policies.neighbors import NeighborPolicy as NeighborPolicy
    from dprl.policies.points import compress as compress
    from dprl.policies.points import prune as prune
    from dprl.policies.protocol import DEFER as DEFER
    from dprl.policies.protocol import Avoid as Avoid
    from dprl.policies.protocol import Decisions as Decisions
    from dprl.policies.protocol import Kind as Kind
    from dprl.policies.protocol import Policy as Policy
    from dprl.policies.rules.policy import RulePolicy as RulePolicy
    from dprl.policies.stochastic import StochasticPolicy as StochasticPolicy
    from dprl.policies.table import TablePolicy as TablePolicy

_OTHER_NAMES = {
    "dprl.atari": "dprl_studies.atari",
    "dprl.baselines": "dprl.learners.baselines",
    "dprl.events": "dprl.logs.events",
    "dprl.figures": "dprl.apps.figures",
    "dprl.icu": "dprl_studies.icu",
    "dprl.stats": "dprl.evaluation.stats",
    "dprl.testing": "dprl.apps.testing",
}
alias(_OTHER_NAMES)
_OLD_NAMES = {
    "dprl.evidence.credit": "dprl.evidence.excursions",
    "dprl.evidence.neighbors.net": "dprl.evidence.neighbors.engine",
    "dprl.evidence.neighbors.samples": "dprl.evidence.neighbors.engine",
    "dprl.evidence.tabular": "dprl.evidence.counts",
    "dprl.learners.baselines.bc": "dprl.learners.baselines.plain",
    "dprl.learners.baselines.rl": "dprl.learners.baselines.plain",
    "dprl.learners.held_out": "dprl.learners.rules.held_out",
    "dprl.logs.columns": "dprl.logs.roles",
    "dprl.logs.parts": "dprl.logs.source",
    "dprl.planning.gain": "dprl.planning.advantages",
    "dprl.planning.policy_iteration": "dprl.planning.iteration",
    "dprl.planning.policy_tree": "dprl.planning.tree",
    "dprl.planning.transitions": "dprl.planning.model",
    "dprl.policies.fitted": "dprl.policies.stochastic",
    "dprl.studies": "dprl_studies",
}
"""Where modules of 0.2.0 are now; their old names work with a warning."""
alias(_OLD_NAMES, old=True)

__getattr__, __dir__, __all__ = attach(
    __name__, modules=(*_OTHER_NAMES.values(), "dprl.certificate", "dprl.envs")
)
