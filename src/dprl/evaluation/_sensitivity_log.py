"""From a log and a policy to the bounds of `dprl.evaluation._sensitivity_bounds`."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from dprl.evaluation._sensitivity_bounds import OneDecision, Several
from dprl.evidence._cross_fit import Fit, in_threads
from dprl.evidence._nuisance_models import Inputs, predicted, usual_value_model
from dprl.logs.log import Log
from dprl.policies.held_out import PolicyAtSteps

__all__ = ["one_decision", "several_decisions"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST = 40
"""With fewer followers no model of their returns is fitted."""


def one_decision(
    log: Log, decisions: PolicyAtSteps, apart: Bools, G: Floats, discount: float, b: Floats,
    ends: tuple[float, float], seed: int, *, by_state: bool,
) -> OneDecision:  # fmt: skip
    """The bounds where no episode has more than one differing step.

    `b` (N,) is the probability of the action taken. `by_state` compares within each labelled state,
    where all have the same chance, and needs no `b`.
    """
    at = np.flatnonzero(apart)
    episode = np.searchsorted(log.starts, at, "right") - 1
    factor = discount ** (at - log.starts[episode])
    Y, pi = factor * G[at], decisions.pi[decisions.row[at]]
    share = pi[np.arange(len(at)), log.action[at]]
    lost = np.zeros(log.n_episodes)
    lost[episode] = (1 - share) * Y
    took = np.flatnonzero(share > 0)
    guess: Floats | None = None
    if log.state is not None and by_state:
        place, A = log.codes()[at].astype(np.int64), pi.shape[1]
        where, action = np.nonzero(pi > 0)
        otherwise = action != log.action[at][where]
        where, action = where[otherwise], action[otherwise]
        mass = episode[where], place[where] * A + action, pi[where, action]
        weight = np.ones(len(took))
        both = np.concatenate((place[took] * A + log.action[at][took], mass[1]))
        codes, own = np.unique(both, return_inverse=True)
        pair, n_pairs = own[: len(took)], max(len(codes), 1)
        mass = mass[0], own[len(took) :], mass[2]
    else:
        chance = b[at[took]]
        mass = episode, np.zeros(len(at), np.int64), 1 - share
        pair, n_pairs = np.zeros(len(took), np.int64), 1
        weight = share[took] * (1 - chance) / chance
        guess = _guess(log, at[took], Y[took], seed)
    shortest = float(factor.min(initial=1.0))
    low, high = min(ends[0], ends[0] * shortest), max(ends[1], ends[1] * shortest)
    return OneDecision(
        group=log.group.astype(np.int64), n_groups=len(log.groups), returns=G[log.starts[:-1]],
        lost=lost, Y=Y[took], took=episode[took], pair=pair.astype(np.int64), weight=weight,
        mass=(mass[0], mass[1].astype(np.int64), np.asarray(mass[2], np.float64)),
        n_pairs=n_pairs, guess=guess, ends=(low, high),
    )  # fmt: skip


def _guess(log: Log, at: Ints, Y: Floats, seed: int) -> Floats | None:
    """float64 (n,): a model of Y at these steps, each half from the other half of the groups."""
    group = np.repeat(log.group, log.lengths)[at].astype(np.int64)
    codes, own = np.unique(group, return_inverse=True)
    if log.features is None or len(at) < LEAST or len(codes) < LEAST:
        return None
    order = np.random.default_rng(seed).permutation(len(codes))
    halves = order[: len(codes) // 2], order[len(codes) // 2 :]
    x = np.asarray(log.features)[at]
    labels = tuple(0 if level is None else len(level) for level in log.levels)
    kinds = Inputs(bool(np.isnan(x).any()), labels or (0,) * x.shape[1])
    value, result = usual_value_model(kinds), np.empty(len(at))
    fits = [Fit(np.flatnonzero(np.isin(own, one)), other, own.astype(np.int64), seed)
            for one, other in (halves, halves[::-1])]  # fmt: skip
    answers = in_threads([partial(predicted, value, x, Y, fit) for fit in fits])
    for fit, answer in zip(fits, answers, strict=True):
        result[fit.held] = answer
    return result


def several_decisions(
    log: Log, decisions: PolicyAtSteps, apart: Bools, G: Floats, b: Floats
) -> Several:
    """The bounds where an episode has several differing steps; `b` (N,) is of the action taken."""
    at = np.flatnonzero(apart)
    share = decisions.pi[decisions.row[at], log.action[at]]
    chance = b[at]
    starts = np.concatenate(([0], np.cumsum(np.add.reduceat(
        apart.astype(np.int64), log.starts[:-1]))))  # fmt: skip
    return Several(
        group=log.group.astype(np.int64), n_groups=len(log.groups), returns=G[log.starts[:-1]],
        starts=starts, share=share, odds=(1 - chance) / chance,
    )  # fmt: skip
