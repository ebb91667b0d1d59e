"""Readings of Algorithm 2, where endings depend on actions and where they do not.

    python benchmarks/segments.py [LOGS [SEED]]

One random problem and one log each, with seeds from SEED (70000); the paper's Eq. 1 (no contrast);
exact values. Written is the share of the way from usual practice to the best policy, mean / CVaR
5 %, and the mean difference to *end* with two standard errors.

* random: `dprl.envs.random_mdp`; every step ends the episode with probability .05.
* deaths: the same, but .15 of the pairs end it with probability .5, and pay nothing.
* last states: the same, but in .2 of the states every action ends it, and each pays its own.
* likely goals, goals: the same, but .1 of the pairs end it with probability .8 or 1, and pay 5.

end, pooled, text, printed: as `DPRLDiscrete` has them. onward: *end* without the segments that
reach no further decision point.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
from scipy import sparse

from dprl.envs import random_mdp
from dprl.evaluation.stats import cvar
from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.logs.source import as_source
from dprl.planning.iteration import policy_iteration
from dprl.planning.semi_mdp import build_semi_mdp

READINGS = ("end", "onward", "text", "printed", "pooled")
SIZES = ((100, 5), (200, 20))
WORLDS = {
    "random": (0.0, 0.0, 0.0),
    "deaths": (0.15, 0.5, 0.0),
    "last states": (0.2, 1.0, None),
    "likely goals": (0.1, 0.8, 5.0),
    "goals": (0.1, 1.0, 5.0),
}
"""World → the share of pairs that end the episode, with which probability, and what they pay; None:
the share of states, whose pairs pay each their own."""


def world(seed, share, ends, pays):
    """The random problem with some pairs that end the episode; its expert is half-way to best."""
    mdp = random_mdp(seed)
    if not share:
        return mdp
    rng = np.random.default_rng(seed)
    some = rng.random(mdp.low.shape) < share
    if pays is None:
        some[:] = rng.random((len(some), 1)) < share
        some[0], pays = False, rng.normal(0, 3, mdp.low.shape)
    P = mdp.P.multiply(np.where(some, (1 - ends) / 0.95, 1.0).reshape(-1, 1))
    pay = np.where(some, pays, mdp.low), np.where(some, pays, mdp.high)
    mdp = replace(mdp, P=sparse.csr_array(P), low=pay[0], high=pay[1])
    best, Q = np.eye(4)[mdp.optimal[1]], mdp.action_values(mdp.optimal[0])
    weights = [np.exp((Q - Q.max(axis=1, keepdims=True)) / T) for T in np.geomspace(0.01, 100, 80)]
    experts = [w / w.sum(axis=1, keepdims=True) for w in weights]
    goal = (mdp.value(np.full_like(Q, 0.25)) + mdp.value(best)) / 2
    return replace(mdp, behavior=min(experts, key=lambda b: abs(mdp.value(b) - goal)))


def shares(mdp, n, n_min, seed):
    """Reading → the share of the way from practice to best, from one log."""
    source = as_source(mdp.sample(n, seed=seed))
    counted = count_source(source, Counts(mdp.gamma))
    pairs = allowed(counted.evidence, n_min, contrast=False)
    semi = {rule: build_semi_mdp(source, counted, pairs, segments=rule) for rule in READINGS}
    usual, best = mdp.value(), mdp.value(np.eye(4)[mdp.optimal[1]])
    result = {}
    states = [mdp.states.index(s) for s in source.facts.states]
    actions = [mdp.actions.index(a) for a in source.facts.actions]
    for rule, plan in semi.items():
        pi = mdp.behavior.copy()
        rows = policy_iteration(plan, counted.evidence.pair.mean[pairs]).rows
        for p, a in zip(plan.points, plan.action[rows], strict=True):
            pi[states[p]] = np.eye(4)[actions[a]]
        result[rule] = (mdp.value(pi) - usual) / (best - usual)
    return result


def main(logs=400, seed=70_000):
    for name, kind in WORLDS.items():
        problems = [world(seed + i, *kind) for i in range(logs)]
        for n, n_min in SIZES:
            rows = [shares(mdp, n, n_min, seed + i) for i, mdp in enumerate(problems)]
            cells = []
            for rule in rows[0]:
                found = np.array([row[rule] for row in rows])
                gap = found - np.array([row["end"] for row in rows])
                error = gap.std(ddof=1) / np.sqrt(logs)
                cells.append(
                    f"{rule} {found.mean():.3f}/{float(cvar(found)):.3f}"
                    f" ({gap.mean():+.3f} ± {2 * error:.3f})"
                )
            print(f"{name}, {n} episodes, n_min {n_min}: " + " · ".join(cells), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
