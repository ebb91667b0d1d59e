"""Risky arms: K rare arms that look good by luck, one rare arm that is good.

Claim of the paper: CQL and small thresholds fall below the behaviour in CVaR; DPRL does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core.table import Table
from dprl.envs.risky_arms import risky_arms
from dprl.studies.harness import Experiment, Row, Rows, Setting
from dprl.studies.paper.contest import blocks, pivot, rows_of, summarise
from dprl.studies.paper.forest import CONTESTANTS, SIZES
from dprl.studies.paper.lines import against_n

__all__ = ["EXPERIMENT"]

SMALL: tuple[Setting, ...] = tuple(
    {"learner": "DPRL", "n_min": n, "contrast": True} for n in (1, 5)
)


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """Tasks: sizes x blocks of datasets."""
    sizes, datasets = ((50, 200, 1_000), 50) if quick else (SIZES, 500)
    return [task for n in sizes for task in blocks({"n": n}, datasets, seed)]


def run(setting: Setting) -> list[Row]:
    """One block of datasets."""
    return rows_of(risky_arms(), setting, (*CONTESTANTS, *SMALL))


def summary(rows: Rows) -> Table:
    """Mean and CVaR against n."""
    return summarise(rows, "Risky arms (K = 8, eps = .1)")


def figure(rows: Rows) -> Any:
    """CVaR and mean against n."""
    return against_n(summary(rows), "Risky arms")


EXPERIMENT = Experiment(
    "risky-arms", "Who is fooled by arms that only look good by luck?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
