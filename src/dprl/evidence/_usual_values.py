"""Values of usual practice at every row, from other groups than the row's own.

They are what `dprl.evidence.credit` takes off. Groups are dealt into K folds; the rows of a fold
get a model of returns that was fitted on the other folds. `dprl.evidence.nuisances` fits the same
model beside probabilities of actions. The number of the step is a feature of the model, after those
of the log.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from dprl._core.checks import check_gamma, check_seed, check_threads, check_whole
from dprl._core.words import either, worded
from dprl.errors import LogError
from dprl.evidence._cross_fit import gathered, in_threads, plan_fits
from dprl.evidence._nuisance_input import check_folds, check_regressor, columns_of, inputs
from dprl.evidence._nuisance_models import Floats, predicted, usual_value_model
from dprl.evidence._nuisance_notes import fit_notes
from dprl.evidence.credit import check_settled
from dprl.logs.log import Log, check_log
from dprl.logs.returns import returns

__all__ = ["usual_values"]


def usual_values(
    log: Log,
    gamma: float,
    *,
    folds: int = 4,
    seed: int = 0,
    value_model: Any = None,
    threads: int | None = None,
) -> tuple[Floats, tuple[str, ...]]:
    """The value of usual practice at every row, cross-fitted by group.

    Args:
        log: A log whose states are features, with N rows, without cut episodes (settle them first).
        gamma: Discount of the returns, in (0, 1].
        folds: Number of folds of groups, at least 2. Default 4.
        seed: Seed of folds and models; it decides everything. Default 0.
        value_model: A regressor with the methods of scikit-learn, instead of extra trees.
        threads: How many fits run at a time; the answer does not depend on it. Default None: as
            many as there are cores.

    Returns:
        float64 (N,), the values in the unit of the rewards, and notes in sentences.

    Raises:
        LogError: If states are labels, episodes were cut, or there are fewer groups than folds.
        ParameterError: If a parameter is out of range, or the model cannot be fitted.
    """
    check_log(log)
    if log.features is None:
        raise LogError(
            f"this log's states are {log.n_states:,} labels, not numeric features.",
            do=worded(
                "A model of values needs numbers: pass {choice} when reading.",
                choice=either("state=['age', 'pressure', …]", "--state age --state pressure"),
            ),
        )
    check_settled(log)
    gamma, seed, threads = check_gamma(gamma), check_seed(seed), check_threads(threads)
    folds = check_whole("folds", folds, 2)
    groups = check_folds(log, folds, " Or leave lam out: plain returns need no model of values.")
    x, G = inputs(log, step=True), returns(log, gamma)
    columns = columns_of(log, step=True)
    regressor = check_regressor(value_model, usual_value_model(columns), columns)
    group = np.repeat(log.group, log.lengths).astype(np.int64)
    fits = plan_fits(group, groups, folds, seed)
    answers = in_threads([partial(predicted, regressor, x, G, fit) for fit in fits], threads)
    return gathered(fits, answers), tuple(fit_notes(log, fits, [regressor]))
