"""Forest: one choice, then long chains over which counts by state spread thin.

Claim of the paper: PQI stays at its floor at any n, since its filter looks at n(s,a)/|D| all along
the chains; DPRL reaches .679 once eps·n is well above n_min.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dprl._core.table import Table
from dprl.envs.forest import forest
from dprl.studies.harness import Experiment, Row, Rows, Setting
from dprl.studies.paper.contest import blocks, pivot, rows_of, summarise
from dprl.studies.paper.lines import against_n

__all__ = ["CONTESTANTS", "EXPERIMENT", "SIZES"]

SIZES = (50, 100, 200, 500, 1_000, 2_000)
CONTESTANTS: tuple[Setting, ...] = (
    *({"learner": "DPRL", "n_min": n, "contrast": c} for c in (True, False) for n in (20, 50)),
    *({"learner": "gate", "n_min": 20, "mode": m} for m in ("swap-split", "in-sample")),
    *({"learner": "SPIBB", "n_min": n} for n in (5, 20)),
    *({"learner": "PQI", "b": b} for b in (0.02, 0.002)),
    *({"learner": "CQL", "alpha": a} for a in (0.01, 0.05, 0.1)),
    {"learner": "BC"},
    {"learner": "RL"},
)


def settings(quick: bool, seed: int) -> Sequence[Setting]:
    """Tasks: sizes x blocks of datasets."""
    sizes, datasets = ((50, 200, 1_000), 50) if quick else (SIZES, 500)
    return [task for n in sizes for task in blocks({"n": n}, datasets, seed)]


def run(setting: Setting) -> list[Row]:
    """One block of datasets."""
    return rows_of(forest(), setting, CONTESTANTS)


def summary(rows: Rows) -> Table:
    """Mean and CVaR against n."""
    return summarise(rows, "Forest (K = 10, depth 3, eps = .1)")


def figure(rows: Rows) -> Any:
    """CVaR and mean against n."""
    return against_n(summary(rows), "Forest")


EXPERIMENT = Experiment(
    "forest", "Who finds the better first choice, and who is misled on the way?",
    settings, run, summary, figure, pivot,
)  # fmt: skip
