"""The ICU-Sepsis experiment: 716 states, 25 actions, and an expert who is hard to beat.

Needs the package `icu-sepsis` (extra `bench`), which knows the exact value of every policy. Without
discount the value is the probability to survive. CQL plans with γ = .99, since without discount its
values need not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core.table import Table
from dprl.envs.icu_sepsis import icu_sepsis
from dprl_studies.harness import Experiment, Row, Rows, Setting
from dprl_studies.paper.contest import SURE, pivot, rows_of, summarise
from dprl_studies.paper.lines import against_n

__all__ = ["EXPERIMENT"]

SIZES = (1_000, 5_000, 20_000)
CONTESTANTS: tuple[Setting, ...] = (
    *SURE,
    *({"learner": "DPRL", "n_min": n, "contrast": c} for c in (True, False) for n in (20, 100)),
    *({"learner": "SPIBB", "n_min": n} for n in (20, 100)),
    *({"learner": "PQI", "b": b} for b in (0.001, 0.0001)),
    *({"learner": "CQL", "alpha": a, "gamma": 0.99} for a in (0.01, 0.1)),
    {"learner": "BC"},
    {"learner": "RL"},
)


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per log size and data set; `quick` takes one size and 4 data sets."""
    sizes, datasets = ((1_000,), 4) if quick else (SIZES, 20)
    return [
        {"n": n, "seed": seed, "first": i, "last": i + 1} for n in sizes for i in range(datasets)
    ]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: every contestant on one data set."""
    return rows_of(icu_sepsis(), setting, CONTESTANTS)


def summary(rows: Rows) -> Table:
    """One row per log size and contestant: mean and CVaR 5 % of the exact value."""
    return summarise(rows, "ICU-Sepsis: chance to survive")


def figure(rows: Rows) -> Any:
    """Two panels, CVaR 5 % and mean of the value, against the number of episodes."""
    return against_n(summary(rows), "ICU-Sepsis")


EXPERIMENT = Experiment(
    "icu-sepsis", "Can anybody beat an expert who is nearly as good as the data allow?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
