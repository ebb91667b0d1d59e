"""The gate by first visits alone, as it was before all visits counted: for comparison only.

E-values of returns at first visits on a grid of 1/400 (`dprl.certificate._evalue`), and a gain from
how often episodes part from the policy, paid for every set that could have been chosen
(`dprl.certificate._reach`). The gate over cells of features still works like this.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl.certificate._pair_tests import REACH, best_low, by_returns, propose, some_of
from dprl.certificate._reach import certified_gain, nats_of_sets
from dprl.certificate._settings import GateSettings
from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.evidence.tabular import evidence
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.log import Log
from dprl.logs.source import as_source

__all__ = ["by_first_visits"]


def by_first_visits(
    learner: DPRLDiscrete, log: Log, asked: GateSettings, sides: NDArray[np.bool_] | None
) -> tuple[NDArray[np.int32], float]:
    """What first visits alone certify, int32 (S,), -1 where nothing; and its certified gain.

    Args:
        learner: The learner whose rule proposes and chooses.
        log: A settled log with labelled states, one episode per group.
        asked: delta, value_range, margin and horizon.
        sides: bool (groups,), true for one half; None to certify with all of the log.
    """
    log = log.gathered()
    source = as_source(log)
    counted = count_source(source, Counts(learner.gamma))
    whole = counted.evidence
    pairs = allowed(whole, learner.n_min, contrast=learner.contrast)
    if sides is None:
        tested = log.n_states * log.n_actions
        tests = [by_returns(log, whole, pairs, learner.gamma, asked, tested, 1.0)]
    else:
        halves = [some_of(log, sides == side, None, learner.gamma) for side in (True, False)]
        seen = [evidence(half, learner.gamma) for half in halves]
        tests = []
        for one, other in ((0, 1), (1, 0)):
            wanted = propose(seen[one], learner, None)
            n = max(1, int(wanted.sum()))
            half = halves[other]
            tests.append(by_returns(half, seen[other], wanted, learner.gamma, asked, n, 0.5))
    pairs &= np.logical_or.reduce([one.pairs for one in tests])
    choice, _ = learner.choose(source, counted, pairs)
    k = int((choice >= 0).sum())
    nats = nats_of_sets(log.n_states, k, log.n_actions, REACH * asked.delta)
    return choice, certified_gain(log, choice, best_low(tests, choice), learner.gamma, nats)
