"""The forest experiment: one choice, then long chains, in which each state is visited rarely.

Claim of the paper: PQI stays at its lowest value for any number n of episodes, since it drops pairs
with a small n(s,a)/|D| all along the chains; DPRL reaches the value .679 once eps·n is well above
n_min, where eps is the probability of the rare first choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core.table import Table
from dprl.envs.forest import forest
from dprl_studies.harness import Experiment, Row, Rows, Setting
from dprl_studies.paper.contest import SURE, blocks, pivot, rows_of, summarise
from dprl_studies.paper.lines import against_n

__all__ = ["CONTESTANTS", "EXPERIMENT", "SIZES"]

SIZES = (50, 100, 200, 500, 1_000, 2_000)
"""Numbers of episodes in a log."""

CONTESTANTS: tuple[Setting, ...] = (
    *SURE,
    *({"learner": "DPRL", "n_min": n, "contrast": c} for c in (True, False) for n in (20, 50)),
    *({"learner": "gate", "n_min": 20, "mode": m} for m in ("swap-split", "in-sample")),
    *({"learner": "SPIBB", "n_min": n} for n in (5, 20)),
    *({"learner": "PQI", "b": b} for b in (0.02, 0.002)),
    *({"learner": "CQL", "alpha": a} for a in (0.01, 0.05, 0.1)),
    {"learner": "BC"},
    {"learner": "RL"},
)
"""The learners that are compared, with their settings; see `dprl_studies.paper.contest`."""


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """One task per log size and block of data sets; `quick` takes fewer sizes and data sets."""
    sizes, datasets = ((50, 200, 1_000), 50) if quick else (SIZES, 500)
    return [task for n in sizes for task in blocks({"n": n}, datasets, seed)]


def run(setting: Setting) -> list[Row]:
    """The rows of one task: every contestant on every data set of the block."""
    return rows_of(forest(), setting, CONTESTANTS)


def summary(rows: Rows) -> Table:
    """One row per log size and contestant: mean and CVaR 5 % of the exact value."""
    return summarise(rows, "Forest (K = 10, depth 3, eps = .1)")


def figure(rows: Rows) -> Any:
    """Two panels, CVaR 5 % and mean of the value, against the number of episodes."""
    return against_n(summary(rows), "Forest")


EXPERIMENT = Experiment(
    "forest", "Who finds the better first choice, and who is misled on the way?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
