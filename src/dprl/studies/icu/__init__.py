"""The intensive-care study: from MIMIC tables to logs of hourly treatment decisions.

The whole way, in short::

dprl.icu.build("mimic-iv", "stays.parquet")
data = dprl.icu.prepare(dprl.icu.read_stays("stays.parquet"), seed=0)
learner = dprl.DPRLContinuous(
    n_min=10, radius=10, gamma=0.99, metric=dprl.icu.metric(), cut="terminal"
)
policy = learner.fit(data.train)
"""

from __future__ import annotations

from dprl.studies.icu.decisions import Stays, read_stays
from dprl.studies.icu.dictionary import FEATURES, WEIGHTS, dictionary, metric
from dprl.studies.icu.preparation import ACTIONS, Preparation, Prepared, prepare
from dprl.studies.icu.simulation import best_treatment, simulate, true_value
from dprl.studies.icu.stays import Built, Cohort, build

__all__ = [
    "ACTIONS",
    "FEATURES",
    "WEIGHTS",
    "Built",
    "Cohort",
    "Preparation",
    "Prepared",
    "Stays",
    "best_treatment",
    "build",
    "dictionary",
    "metric",
    "prepare",
    "read_stays",
    "simulate",
    "true_value",
]
