"""The intensive-care study: from MIMIC tables to logs of hourly treatment decisions.

A folder of MIMIC-IV or MIMIC-III tables comes in. `build` writes a file of decisions, one per hour
of a stay; `prepare` splits the patients and makes a `Log` of each part, with 29 features, 16
actions and the reward of the study. `simulate` writes tables of invented patients in the same
layout, and `true_value` finds the true value of a policy for them. Treatment costs what `Costs`
say, in the logs and in the true value, where they are given::

    dprl.icu.build("mimic-iv", "stays.parquet")
    data = dprl.icu.prepare(dprl.icu.read_stays("stays.parquet"), seed=0)
    learner = dprl.DPRLContinuous(
        n_min=10, radius=10, gamma=0.99, metric=dprl.icu.metric(), cut="terminal"
    )
    policy = learner.fit(data.train)
"""

from __future__ import annotations

from dprl_studies.icu.dictionary import FEATURES, WEIGHTS, Costs, dictionary, metric
from dprl_studies.icu.preparation import ACTIONS, Preparation, Prepared, Stays, prepare, read_stays
from dprl_studies.icu.simulation import best_treatment, frugal_treatment, simulate, true_value
from dprl_studies.icu.stays import Built, Cohort, build

__all__ = [
    "ACTIONS",
    "FEATURES",
    "WEIGHTS",
    "Built",
    "Cohort",
    "Costs",
    "Preparation",
    "Prepared",
    "Stays",
    "best_treatment",
    "build",
    "dictionary",
    "frugal_treatment",
    "metric",
    "prepare",
    "read_stays",
    "simulate",
    "true_value",
]
