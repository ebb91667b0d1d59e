r"""Which of the actions a policy names did nobody take, at steps like these?

What follows an action that nobody took is in no row of the log: weights leave it out, and a model
guesses it. So it is measured how often whoever follows the policy meets one (`unsupported` of
`dprl.evaluation.divergence`). What "nobody took it there" means depends on what is known of
practice:

    behaviour given     the chance given for the action is exactly 0
    labels              no step of this log in this state took the action
    features            hardly any step of this log *like this one* took it, as follows

Over features no two steps are alike, and a model of practice is too smooth to say 0: where 200 of
1,000 steps never saw an action that the others take in 3 of 10, it still gives it a chance of .03,
which is what a rare but real action would get. So regions are searched in which nobody took it. For
each action a, take the steps at which the policy names a; p is the share of a among all steps.

1. Where none of these steps took a, all of them are unsupported.
2. Else the groups are dealt into two halves. On each half a small tree over the features, the
   number of the step and π(a|s) looks for regions without takers. Each has at least 30 and 2 % of
   these steps of its half, and at least 5/p: five takers, if a were as frequent there as elsewhere.
3. A step of the *other* half is unsupported where, of all steps of its region in both halves, at
   most 3 took a, less than 2 %, and ten times less often than elsewhere (p/10). Some takers are
   let pass because a cut that is found on one half misses the true border by about one of them.

Measured with 1 and 5 features, 8 logs of each kind: of an empty fifth of 1,000 steps it saw 93 to
98 % where the others take the action in 3 of 10, of an empty corner of two features (a sixth of the
steps) 81 %, and 84 to 99 % of both among 50,000 steps; it took at most 2 % of the other steps for
empty. Of a region in which 1 of 20 takes the action it called up to 16 % empty, with 1 of 10 up to
1 %. Where 1 of 100 takes it, most of the region counts as empty in logs of 500 to 1,000 steps, in
which hardly anybody was there to see, and nothing of it among 50,000. It does not see an empty
region of fewer than about 60 steps, nor one of an action so rare that nobody would be expected
there anyway: few follow then, and the effective sample size says so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dprl.evaluation._in_numbers import in_numbers
from dprl.evaluation.divergence import unsupported
from dprl.evidence.behavior import Behavior, folds_of
from dprl.evidence.nuisances import OVERLAP
from dprl.logs.log import Log
from dprl.policies.held_out import PolicyAtSteps

__all__ = ["LEAF", "supported", "unsupported_chance"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

LEAF = 30
"""The least number of steps, of one half of the groups, in a region that may count as empty."""

EXPECTED = 5.0
"""Takers that such a region would have if the action were as frequent there as elsewhere."""

TAKERS = 3
"""Takers it may have nevertheless: a cut found on one half misses the border by about one taker."""

SHARE = 0.02
"""The least share of the steps at which the policy names the action that such a region has."""

DEPTH = 4
MOST_ROWS = 20_000
"""Depth of the trees, and the most steps that one is fitted to."""


def unsupported_chance(
    decisions: PolicyAtSteps,
    behavior: Behavior,
    table: Floats,
    practised: Ints,
    log: Log,
    seed: int,
) -> float:
    """The chance that whoever follows the policy meets an action that nobody took there.

    Args:
        decisions: What the policy says at the steps of `log`.
        behavior: Practice, given or estimated.
        table: Practice in the log, as `dprl.evaluation.divergence.practice` returns it.
        practised: int64 (N,), the row of `table` of each step of `log`.
        log: The log; settled, so that its rows are those of `decisions`.
        seed: Seed of the halves and the trees.
    """
    if not decisions.acts.any():
        return 0.0
    if behavior.estimated and log.state is None:
        table, practised = supported(decisions, log, seed), np.arange(log.n_steps)
    return unsupported(decisions, table, practised, log.starts)


def supported(decisions: PolicyAtSteps, log: Log, seed: int) -> Floats:
    """float64 (N, A): 0 where the policy names an action that nobody took at such steps, else 1.

    Args:
        decisions: What the policy says at the steps of `log`; A counts its actions.
        log: A log over features.
        seed: Seed of the halves and the trees.
    """
    A = len(decisions.actions)
    supported_here = np.ones((log.n_steps, A))
    half: Bools = np.repeat(folds_of(log, 2, seed), log.lengths) == 0
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    x = np.column_stack([np.asarray(in_numbers(log).features), step]).astype(np.float32)
    for a in range(A):
        chance = np.where(decisions.acts, decisions.pi[:, a], 0.0)[decisions.row]
        named = np.flatnonzero(chance > 0)
        if len(named) == 0:
            continue
        taken = log.action[named] == a
        share = float((log.action == a).mean())
        inputs = np.column_stack([x[named], chance[named].astype(np.float32)])
        supported_here[named[_empty(inputs, taken, half[named], share, seed)], a] = 0.0
    return supported_here


def _empty(x: NDArray[np.float32], taken: Bools, half: Bools, share: float, seed: int) -> Bools:
    """bool (n,): which of n steps lie in a region in which nobody took the action."""
    if not taken.any():
        return np.ones(len(taken), bool)
    from sklearn.tree import DecisionTreeClassifier

    empty = np.zeros(len(taken), bool)
    for part in (half, ~half):
        own = np.flatnonzero(part)
        least = int(np.ceil(max(LEAF, EXPECTED / share, SHARE * len(own))))
        if len(own) < 2 * least:
            continue
        if len(own) > MOST_ROWS:
            own = np.sort(np.random.default_rng(seed).choice(own, MOST_ROWS, replace=False))
            least = int(np.ceil(max(LEAF, EXPECTED / share, SHARE * len(own))))
        tree = DecisionTreeClassifier(max_depth=DEPTH, min_samples_leaf=least, random_state=seed)
        leaf = tree.fit(x[own], taken[own]).apply(x)
        takers = np.bincount(leaf, weights=taken)
        rate = takers / np.maximum(np.bincount(leaf), 1)
        hardly = (takers <= TAKERS) & (rate < min(OVERLAP, share / 10))
        empty |= ~part & hardly[leaf]
    return empty
