r"""How many changes of a policy over features luck alone would make, and how many survive.

Neighbourhoods overlap, so one piece of luck makes many changes at once, and a shuffle must keep
what belongs together. With V̂ the mean return around each training point (its own trajectory left
out),

    G*_i = V̂_i + (G_j - V̂_j)

where the trajectory of i takes over the differences of another trajectory, step by step from the
end (a point that the other one is too short for takes a third one's). So places keep their mean
returns, and trajectories keep their shape; only what was done no longer matters. At some training
points, drawn at random, the rule is applied to G* in place of G (best Q̂; a plan chooses among the
same allowed actions). The mean number of changes over SHUFFLES such logs is what luck would make.

The changes that survive are the k largest t values of the contrasts (first neighbours that took the
action against the others), with k as large as possible so that in *each* shuffled log at most 10 %
of k changes have a t value as large. Thresholds come from shuffled logs and not from a t
distribution, and the same choice of the best action was made in them.

Both are approximations: V̂ is itself an estimate, over a ball. What happens where no action matters
was measured (docs/ideas.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.practice import unusual
from dprl._core.words import say
from dprl.evidence.decision_points import allowed, best_choice
from dprl.policies._decisions import Kind

if TYPE_CHECKING:
    from dprl.evidence._evidence import Evidence
    from dprl.policies.neighbors import NeighborPolicy

__all__ = ["LARGEST", "neighbor_luck"]

RATE = 0.1
"""The false-discovery rate that changes must survive."""
SHUFFLES, LOOKED_AT = 19, 400
"""Shuffled logs, and the most training points that are looked at."""
LARGEST = 20_000
"""The most training points for which luck is counted: it asks about every one of them once."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def neighbor_luck(policy: NeighborPolicy, seed: int = 0) -> dict[str, Any]:
    """How many changes luck would make at some training points, and how many of its own survive.

    Args:
        policy: A policy as it was learned.
        seed: Seed of the points and of the shuffles. Default 0.

    Returns:
        "changes" of the policy at "states" of its "points"; "expected" by luck, the mean over
        "draws" shuffled logs; how many "survive" the false-discovery "rate". Or only "skipped",
        which says why nothing was counted.
    """
    n_points = len(policy.z)
    if n_points > LARGEST:
        return {"skipped": say("{n:,} training points are too many to shuffle", n=n_points)}
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(n_points, min(n_points, LOOKED_AT), replace=False))
    here = policy.at_points(rows)
    changed = here.kind == Kind.CHANGE
    if not changed.any():
        return {"skipped": say("it makes none at the {n:,} training points looked at", n=len(rows))}
    radius, engine = float(policy.parameters["radius"]), policy.returns_engine
    contrast, offered = bool(policy.parameters["contrast"]), policy.available(policy.z[rows])

    def ask(engine: Any, some: Ints) -> Evidence:
        evidence: Evidence = engine.evidence(
            policy.z[some], radius, visits=policy.visits, leave_out=policy.episode[some]
        )
        return evidence

    V = ask(engine, np.arange(n_points)).state.mean
    V = np.where(np.isnan(V), policy.G, V)  # nobody else is near: nothing to shuffle
    own = _t_values(ask(engine, rows), here.choice)[changed]
    by_luck = []
    for _ in range(SHUFFLES):
        G = V + _dealt(policy.G - V, policy.episode, random)
        evidence = ask(engine.with_values(G), rows)
        pairs = allowed(evidence, policy.n_min, contrast=contrast, available=offered)
        choice = best_choice(evidence.pair.mean, pairs)
        made = (choice >= 0) & unusual(evidence.took.n)[np.arange(len(choice)), choice]
        by_luck.append(np.sort(_t_values(evidence, choice)[made]))
    return {
        "changes": int(changed.sum()),
        "expected": float(np.mean([len(t) for t in by_luck])),
        "survive": _survive(own, by_luck),
        "rate": RATE,
        "draws": SHUFFLES,
        "states": len(rows),
        "points": n_points,
    }


def _dealt(differences: Floats, episode: Ints, random: np.random.Generator) -> Floats:
    """The differences (N,) after trajectories exchanged theirs, step by step from the end."""
    n = np.bincount(episode)
    n = n[n > 0]
    whose = np.repeat(np.arange(len(n)), n)
    to_go = np.repeat(np.cumsum(n), n) - 1 - np.arange(len(episode))
    other = random.permutation(len(n))[whose]
    short = np.flatnonzero(to_go >= n[other])
    long_enough = len(n) - np.searchsorted(np.sort(n), to_go[short], side="right")
    pick = (random.random(len(short)) * long_enough).astype(np.int64)
    other[short] = np.argsort(-n, kind="stable")[pick]
    return np.asarray(differences[(np.cumsum(n) - 1)[other] - to_go])


def _t_values(evidence: Evidence, choice: NDArray[np.int32]) -> Floats:
    """Welch's t of the chosen action against doing otherwise, (k,); -inf where there is none."""
    at = np.arange(len(choice)), np.maximum(choice, 0)
    took, others = evidence.took, evidence.others
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.hypot(took.sd[at] / np.sqrt(took.n[at]), others.sd[at] / np.sqrt(others.n[at]))
        t = (took.mean[at] - others.mean[at]) / error
    return np.where(np.isnan(t), -np.inf, t)


def _survive(own: Floats, by_luck: list[Floats]) -> int:
    """How many of the largest t values stand: luck makes at most RATE of them, each time."""
    survive = 0
    for k, limit in enumerate(np.sort(own)[::-1], start=1):
        if not limit > -np.inf:
            break
        worst = max(len(t) - int(np.searchsorted(t, limit)) for t in by_luck)
        survive = k if worst <= RATE * k else survive
    return survive
