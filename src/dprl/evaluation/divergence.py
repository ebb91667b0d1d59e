r"""Where a policy matters: the steps at which it differs from practice, who reaches and follows.

A policy **differs** from practice at a step where it acts and its action probabilities are not
practice's there,

    ½ ∑_a | π(a|s) - practice(a|s) |  >  TOLERANCE

If π puts all probability on one action, it differs where practice does not always take that action.
So a confirmation differs too where practice takes the usual action often but not always: taking it
always changes what is done. Practice is the given behaviour; where none is given, it is for labels
the share of each action in the state in this log, and for features the estimate.

A **change** is a step at which the most probable action under π is not the usual one. Changes are
also counted on their own.

A **follower** reached a step at which the policy differs, and at no such step did anything that the
policy never does. For a policy that names one action, a follower took every suggestion.

    ESS = (∑_g w_g)² / ∑_g w_g²      over all groups, and over those that reach such a step

w_g is the sum of the weights of a group's trajectories (in the second case, of those trajectories
that reach such a step).

**Support.** Which of the actions a policy names did nobody take, at steps like these?

What follows an action that nobody took is in no row of the log: weights leave it out, and a model
guesses it. So it is measured how often whoever follows the policy meets one (`unsupported`). What
"nobody took it there" means depends on what is known of practice:

    behaviour given     the chance given for the action is exactly 0
    labels              no step of this log in this state took the action
    features            hardly any step of this log *like this one* took it, as follows

Over features no two steps are alike, and a model of practice is too smooth to say 0. So regions of
features, of sums of features, of the number of the step and of π(a|s) are searched, among the steps
at which the policy names a, in which hardly anybody took it (`dprl.evidence.support`); all of these
steps are one where none of them took a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.compiled import compiled
from dprl.evaluation.estimators import Weighted
from dprl.evaluation.result import TOLERANCE
from dprl.evidence.balance import Balance, Compared, balance, changes_in, comparable
from dprl.evidence.behavior import Behavior
from dprl.evidence.support import NUMBER, columns, inside, without
from dprl.logs.log import Log
from dprl.policies.held_out import PolicyAtSteps, Rows

ROUNDING = 1e-9
"""The tolerance, instead of TOLERANCE, where π puts all probability on one action."""


def practice(behavior: Behavior, log: Log) -> tuple[Floats, Ints]:
    """Practice in `log`: distributions (M, A), and the row of them for each step (N,).

    For labels these are the plain shares of actions; the estimated behaviour is smoothed and never
    exactly 1.
    """
    if not behavior.estimated or log.state is None:
        return behavior.table, behavior.row
    S, A, codes = log.n_states, log.n_actions, log.codes().astype(np.int64)
    taken = np.bincount(codes * A + log.action, minlength=S * A).reshape(S, A)
    return taken / np.maximum(taken.sum(axis=1, keepdims=True), 1), codes


def differs(decisions: PolicyAtSteps, table: Floats, row: Ints) -> Bools:
    """bool (N,): the steps at which the policy differs from practice.

    `table` (M, A) and `row` (N,) describe practice, as `practice` returns it.
    """
    wide = np.zeros((len(table), len(decisions.actions)))
    wide[:, : table.shape[1]] = table
    tolerance = np.where(decisions.pi.max(axis=1, initial=0.0) < 1, TOLERANCE, ROUNDING)
    differing = np.zeros(len(row), bool)
    _differ(decisions.pi, decisions.acts, tolerance, decisions.row, wide, row, differing)
    return differing


@compiled
def _differ(
    pi: Floats,
    acts: Bools,
    tolerance: Floats,
    decision: Ints,
    table: Floats,
    practised: Ints,
    differing: Bools,
) -> None:  # pragma: no cover - compiled
    """Fill differing (N,): where π (M, A) of the row `decision` is not practice (M', A)."""
    for i in range(len(decision)):
        m = decision[i]
        if acts[m]:
            moved = 0.0
            for a in range(pi.shape[1]):
                moved += abs(pi[m, a] - table[practised[i], a])
            differing[i] = moved / 2 > tolerance[m]


def unsupported(decisions: PolicyAtSteps, table: Floats, row: Ints, starts: Ints) -> float:
    """The chance to meet an action that nobody took in its state, following the policy.

    Mean over the episodes of the log of the chance that the policy, asked at each of their steps,
    names such an action at least once. What follows it is in no row: weights leave it out.
    `table` (M, A) is 0 for such actions, and `row` (N,) its row at each step: practice in this log,
    as `practice` returns it for labels; for features see `supported`.
    """
    never = np.ones((len(table), len(decisions.actions)), bool)
    never[:, : table.shape[1]] = table == 0
    escapes = np.ones(len(starts) - 1)
    _escape(decisions.pi, decisions.acts, decisions.row, never, row, starts, escapes)
    return float(1 - escapes.mean()) if len(escapes) else 0.0


@compiled
def _escape(
    pi: Floats,
    acts: Bools,
    decision: Ints,
    never: Bools,
    practised: Ints,
    starts: Ints,
    escapes: Floats,
) -> None:  # pragma: no cover - compiled
    """Multiply escapes (E,), which are 1, by the chance of an action that was taken there."""
    for e in range(len(starts) - 1):
        for i in range(starts[e], starts[e + 1]):
            m = decision[i]
            if acts[m]:
                lost = 0.0
                for a in range(pi.shape[1]):
                    if never[practised[i], a]:
                        lost += pi[m, a]
                escapes[e] *= max(1.0 - lost, 0.0)


def reached(weighted: Weighted, log: Log, steps: Bools, never: Bools) -> tuple[int, int, float]:
    """Number of groups that reach one of `steps`, number of followers, effective sample size.

    Args:
        weighted: The trajectories with their weights.
        log: The log they come from.
        steps: bool (N,), the steps that matter.
        never: bool (N,), steps at which something was done that the policy never does.
    """
    G = len(log.groups)
    reaches = np.logical_or.reduceat(steps, log.starts[:-1])
    follows = reaches & ~np.logical_or.reduceat(steps & never, log.starts[:-1])

    def groups(episodes: Bools) -> Bools:
        return np.bincount(log.group[episodes], minlength=G) > 0

    followers = groups(follows) & ~groups(reaches & ~follows)
    return int(groups(reaches).sum()), int(followers.sum()), sample_size(weighted, log, reaches)


def only_return(
    weighted: Weighted, log: Log, steps: Bools, never: Bools
) -> tuple[int, float] | None:
    """The return of all who followed and their number, if it is one and others had other returns.

    Resampling them shows no spread then, and an interval that rests on them has no width.
    """
    reaches = np.logical_or.reduceat(steps, log.starts[:-1])
    follows = reaches & ~np.logical_or.reduceat(steps & never, log.starts[:-1])
    G = weighted.returns
    own = G[follows]
    if len(own) == 0 or own.min() < own.max() or G.min() == G.max():
        return None
    return len(own), float(own[0])


def sample_size(weighted: Weighted, log: Log, episodes: Bools) -> float:
    """The effective sample size, by group, of the episodes where `episodes` (E,) is true."""
    final: Any = weighted.final
    total = np.bincount(log.group[episodes], weights=final[episodes], minlength=len(log.groups))
    w = total / max(float(total.max()), np.finfo(float).tiny)
    square = float((w * w).sum())
    return float(w.sum()) ** 2 / square if square > 0 else 0.0


# -- support --------------------------------------------------------------------------------------


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
        table: Practice in the log, as `practice` returns it.
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
        seed: Seed of the steps that are looked at, where there are very many.
    """
    supported_here = np.ones((log.n_steps, len(decisions.actions)))
    Z, of = columns(np.asarray(log.features), log.levels)
    sums = np.array([j for j, (_, what) in enumerate(of) if what == NUMBER], np.int64)
    step = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    for a in range(len(decisions.actions)):
        chance = np.where(decisions.acts, decisions.pi[:, a], 0.0)[decisions.row]
        named = np.flatnonzero(chance > 0)
        taken = log.action[named] == a
        share = float((log.action == a).mean()) if taken.any() else 0.0
        everywhere = np.column_stack([Z, step])
        x = np.column_stack([everywhere[named], chance[named]])
        for region in without(x, sums, taken, share, seed):
            supported_here[named[inside(region, x)], a] = 0.0
        if taken.any() and len(named) < log.n_steps:  # more steps show more
            for region in without(everywhere, sums, log.action == a, share, seed):
                supported_here[named[inside(region, x)], a] = 0.0
    return supported_here


# -- what becomes of suggestions ------------------------------------------------------------------


def not_offered(decisions: PolicyAtSteps, log: Log, acts: Bools) -> float:
    """Share of the steps at which the policy acts and its suggestion was not on offer."""
    if log.available is None or log.menus is None or not acts.any():
        return 0.0
    acts = acts & ~decisions.warned  # something else always was
    if not acts.any():
        return 0.0
    suggested = decisions.suggested[decisions.row[acts]]
    in_log = suggested < log.n_actions
    offered = log.menus[log.available[acts], np.where(in_log, suggested, 0)]
    return float((~(in_log & offered)).mean())


def suggested(
    behavior: Behavior, decisions: PolicyAtSteps, rows: Rows, log: Log
) -> tuple[Floats, Bools]:
    """float64 (N,) the chance of the action that is named, 0 without one; bool (N,) if taken."""
    chance, done = np.zeros(log.n_steps), np.zeros(log.n_steps, bool)
    _chances(
        behavior.table, behavior.row[rows], decisions.suggested, decisions.row, log.action, chance,
        done,
    )  # fmt: skip
    return chance, done


@compiled
def _chances(
    table: Floats,
    behaved: NDArray[np.int64],
    suggested: NDArray[np.int64],
    decision: NDArray[np.int64],
    action: NDArray[np.int32],
    chance: Floats,
    done: Bools,
) -> None:  # pragma: no cover - compiled
    """Fill chance and done (N,), which are 0: of the suggestion, and whether it was taken."""
    for i in range(len(decision)):
        a = suggested[decision[i]]
        if a >= 0:
            done[i] = a == action[i]
            if a < table.shape[1]:
                chance[i] = table[behaved[i], a]


def compared(
    decisions: PolicyAtSteps, log: Log, chance: Floats, changed: Bools, recorded: Bools
) -> Balance | None:
    """Those who took the suggestions beside the others; None where nothing can be compared.

    `chance` (N,) is that of the suggestion, or of the action to avoid: those who take it are then
    compared with all others just the same. `recorded` (N,): see `weighed`.
    """
    if not comparable(log):
        return None
    suggested = decisions.suggested[decisions.row]
    changes = changes_in(log, np.flatnonzero(changed), suggested, decisions.actions)
    return weighed(log, changes, suggested, chance, changed, recorded)


def weighed(
    log: Log,
    changes: Sequence[Compared],
    suggested: Ints,
    chance: Floats,
    changed: Bools,
    recorded: Bools,
    together: Sequence[Compared] | None = None,
) -> Balance | None:
    """Those who took the suggestions beside the others, weighed as in the estimates.

    `changes` are compared one by one, and all `together` (default: the same).

    Where the chance of what was done is on record (`recorded`, (N,)) at all steps that
    change, it makes the weights here as it does in the estimates. On part of them it cannot: among
    several other actions, one over the chance of each and one over that of all of them together are
    not on one scale.
    """
    chance = np.where(changed, chance, 0.0)
    if not (recorded.any() and recorded[changed].all()):
        return balance(log, changes, chance, together=together)
    done: Floats = np.asarray(log.propensity)
    took = log.action == suggested
    if log.n_actions == 2:
        chance = np.where(took, done, 1 - done)
    else:
        chance = np.where(took, done, np.minimum(chance, 1 - done))
    return balance(log, changes, chance, done, together)
