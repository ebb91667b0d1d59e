"""The intensive-care study: from MIMIC tables to logs of hourly treatment decisions.

dprl.icu.build("mimic-iv", "stays.parquet")
data = dprl.icu.prepare(dprl.icu.read_stays("stays.parquet"), seed=0)
policy = dprl.DPRLContinuous(n_min=10, radius=10, gamma=0.99, metric=dprl.icu.metric(),
cut="terminal").fit(data.train)
"""

from __future__ import annotations

from dprl.icu.dictionary import FEATURES, WEIGHTS, dictionary, metric
from dprl.icu.preparation import ACTIONS, Preparation, Prepared, Stays, prepare, read_stays
from dprl.icu.simulation import best_treatment, simulate, true_value
from dprl.icu.stays import Built, Cohort, build

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
