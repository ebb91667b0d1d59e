"""Readings of Algorithm 2, where endings depend on actions and where they do not.

    python benchmarks/segments.py [LOGS [SEED [WORLD ...]]]

One problem and one log each, with seeds from SEED (70000); exact values. Written is the share of
the way from usual practice to the best policy, mean / CVaR 5 %, and the mean difference to *end*
with two standard errors, and that of the CVaR with a bootstrap interval over pairs; and how far the
values are from the truth that the plan states, in the mean square over its decision points and
logs, in units of that way.

* random: `dprl.envs.random_mdp`; every step ends the episode with probability .05.
* deaths: the same, but .15 of the pairs end it with probability .5, and pay nothing.
* last states: the same, but in .2 of the states every action ends it, and each pays its own.
* likely goals, goals: the same, but .1 of the pairs end it with probability .8 or 1, and pay 5.
* mixed: 5 to 60 states, 2 to 6 actions, practice of any quality, and pairs that end it with
  probabilities of their own, up to .2.
* care pathway, rooms, open, soft, forest, risky arms: one problem each, where goals end episodes.

end, pooled, text, printed: as `DPRLDiscrete` has them. onward: *end* without the segments that
reach no further decision point.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product

import numpy as np
from scipy import sparse

from dprl.envs import care_pathway, forest, open_grid, random_mdp, risky_arms, rooms, soft
from dprl.evaluation.stats import cvar
from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.logs.source import as_source
from dprl.planning.iteration import policy_iteration
from dprl.planning.semi_mdp import build_semi_mdp

READINGS = ("end", "onward", "text", "printed", "pooled")
DRAWN = {
    "random": (0.0, 0.0, 0.0),
    "deaths": (0.15, 0.5, 0.0),
    "last states": (0.2, 1.0, None),
    "likely goals": (0.1, 0.8, 5.0),
    "goals": (0.1, 1.0, 5.0),
}
"""World → the share of pairs that end the episode, with which probability, and what they pay; None:
the share of states, whose pairs pay each their own."""
FIXED = {
    "care pathway": lambda: replace(care_pathway(), gamma=0.999),
    "rooms": rooms,
    "open": open_grid,
    "soft": soft,
    "forest": forest,
    "risky arms": risky_arms,
}
WORLDS = (*DRAWN, "mixed", *FIXED)
SIZES = {"rooms": (25, 100), "open": (25, 100), "soft": (25, 100)}
N_MIN = (5, 20)


def world(name, seed):
    """The problem of a world with this number."""
    if name in FIXED:
        return FIXED[name]()
    if name == "mixed":
        rng = np.random.default_rng(seed)
        return random_mdp(
            seed, states=int(rng.integers(5, 61)), actions=int(rng.integers(2, 7)),
            practice=rng.uniform(0.1, 0.9), endings=True,
        )  # fmt: skip
    return ended(random_mdp(seed), seed, *DRAWN[name])


def ended(mdp, seed, share, ends, pays):
    """The random problem with some pairs that end the episode; its expert is half-way to best."""
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


def shares(mdp, n, seed):
    """(contrast, n_min, reading) → the share of the way from practice to best, from one log.

    And the mean square of the errors of what the plan states, in units of that way.
    """
    source = as_source(mdp.sample(n, seed=seed))
    counted = count_source(source, Counts(mdp.gamma, cut="terminal"))
    one = np.eye(len(mdp.actions))
    usual, best = mdp.value(), mdp.value(one[mdp.optimal[1]])
    states = [mdp.states.index(s) for s in source.facts.states]
    actions = [mdp.actions.index(a) for a in source.facts.actions]
    if best - usual < 1e-6:  # of the mixed: nothing pays
        return None
    result = {}
    for contrast, n_min, rule in product((False, True), N_MIN, READINGS):
        pairs = allowed(counted.evidence, n_min, contrast=contrast)
        plan = build_semi_mdp(source, counted, pairs, segments=rule)
        pi = mdp.behavior.copy()
        found = policy_iteration(plan, counted.evidence.pair.mean[pairs])
        places = [states[p] for p in plan.points]
        pi[places] = one[[actions[a] for a in plan.action[found.rows]]]
        V = mdp.state_values(pi)
        off = (found.V - V[places]) / (best - usual)
        share = (float(mdp.start @ V) - usual) / (best - usual)
        result[contrast, n_min, rule] = share, np.mean(off**2) if len(off) else np.nan
    return result


def main(logs=400, seed=70_000, *names):
    rng = np.random.default_rng(0)
    for name in names or WORLDS:
        problems = [world(name, seed + i) for i in range(logs)]
        for n in SIZES.get(name, (100, 200)):
            rows = [shares(mdp, n, seed + i) for i, mdp in enumerate(problems)]
            rows = [row for row in rows if row]
            draws = rng.integers(0, len(rows), (500, len(rows)))
            for contrast, n_min in product((False, True), N_MIN):
                cells = []
                end = np.array([row[contrast, n_min, "end"][0] for row in rows])
                for rule in READINGS:
                    found, off = np.array([row[contrast, n_min, rule] for row in rows]).T
                    error = (found - end).std(ddof=1) / np.sqrt(len(rows))
                    tails = [float(cvar(found[d]) - cvar(end[d])) for d in draws]
                    low, high = np.percentile(tails, (2.5, 97.5))
                    cells.append(
                        f"{rule} {found.mean():.3f}/{float(cvar(found)):.3f}"
                        f" ({(found - end).mean():+.3f} ± {2 * error:.3f};"
                        f" CVaR {low:+.3f} to {high:+.3f}; off {np.nanmean(off) ** 0.5:.2f})"
                    )
                kind = "contrast" if contrast else "paper"
                print(
                    f"{name}, {n} episodes, {kind}, n_min {n_min}: {' · '.join(cells)}", flush=True
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
