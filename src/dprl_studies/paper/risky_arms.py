"""The risky-arms experiment: K rare arms can look good by luck, and one rare arm is good.

Claim of the paper: in the worst 5 % of the logs (CVaR), CQL and methods with a small n_min choose
policies worse than usual practice; DPRL does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core.table import Table
from dprl.envs.risky_arms import risky_arms
from dprl_studies.harness import Experiment, Row, Rows, Setting
from dprl_studies.paper.contest import blocks, pivot, rows_of, summarise
from dprl_studies.paper.forest import CONTESTANTS, SIZES
from dprl_studies.paper.lines import against_n

__all__ = ["EXPERIMENT"]

SMALL: tuple[Setting, ...] = tuple(
    {"learner": "DPRL", "n_min": n, "contrast": True} for n in (1, 5)
)
"""DPRL with thresholds that are too small, beside the contestants of the forest experiment."""


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per log size and block of data sets; `quick` takes fewer sizes and data sets."""
    sizes, datasets = ((50, 200, 1_000), 50) if quick else (SIZES, 500)
    return [task for n in sizes for task in blocks({"n": n}, datasets, seed)]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: every contestant on every data set of the block."""
    return rows_of(risky_arms(), setting, (*CONTESTANTS, *SMALL))


def summary(rows: Rows) -> Table:
    """One row per log size and contestant: mean and CVaR 5 % of the exact value."""
    return summarise(rows, "Risky arms (K = 8, eps = .1)")


def figure(rows: Rows) -> Any:
    """Two panels, CVaR 5 % and mean of the value, against the number of episodes."""
    return against_n(summary(rows), "Risky arms")


EXPERIMENT = Experiment(
    "risky-arms", "Who is fooled by arms that only look good by luck?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
