"""dprl's own way, through the functions `fit` calls."""

from __future__ import annotations

import numpy as np
from synthetic import Result

from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.logs.log import Log
from dprl.logs.source import as_source
from dprl.planning.semi_mdp import build_semi_mdp


def prepare(data: dict) -> Log:
    return Log(
        starts=data["starts"],
        state=data["state"],
        action=data["action"],
        reward=data["reward"],
        states=tuple(range(data["n_states"])),
        actions=tuple(range(data["n_actions"])),
    )


def run(log: Log, gamma: float, n_min: int) -> Result:
    source = as_source(log)
    counted = count_source(source, Counts(gamma))
    known = counted.evidence
    pairs = allowed(known, n_min)
    semi = build_semi_mdp(source, counted, pairs)

    def sums(m):  # the others keep plain sums; ours are read as exact means and deviations
        n, mean, sd = m.n, np.nan_to_num(m.mean), np.nan_to_num(m.sd)
        return n * mean, n * mean**2 + np.maximum(n - 1, 0) * sd**2

    pair, took = known.pair, known.took
    return Result(pair.n, took.n, *sums(pair), *sums(took), semi.R, semi.D)
