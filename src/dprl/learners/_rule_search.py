r"""Which rules one half of the groups proposes, and with which settings (for `dprl.Rules`).

The tree with the largest lower ends (`dprl.planning.policy_tree`) divides the steps; in each leaf
the action with the largest mean - κ·se by groups is proposed, among those that n_min groups took
and n_min did not.

**λ, depth and the size of leaves are chosen inside the proposing half.** Its groups are dealt in
two; each part proposes, and the other says what following the proposals would bring a group over
usual practice, one change at a time (`whole_gain`). The setting with the largest lower end, mean -
se over both parts, is taken: first λ, then depth, then the size of leaves. Where two are equal the
one that assumes less is taken (larger λ, fewer questions, larger leaves).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.max_t import cluster_parts
from dprl.learners._rule_scores import Proposal, Scores
from dprl.logs.log import Log, deal
from dprl.planning.policy_tree import Bins, best_tree, leaves
from dprl.policies._rule import Condition

__all__ = ["KAPPA", "LAMBDAS", "Search", "choose", "propose", "whole_gain"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

KAPPA = 1.0
"""Standard errors by groups that a proposal must be above 0 on the proposing half."""
LAMBDAS = (1.0, 0.95, 0.9, 0.8)
"""The λ of the credit that are tried where none is given."""
LEAVES = (4, 2, 1)
"""Sizes of leaves that are tried, in multiples of n_min."""
MOST_STEPS = 15_000
"""Settings are chosen on at most so many steps, in whole groups."""


@dataclass(frozen=True)
class Search:
    """The settings of one search.

    Attributes:
        lam: λ of the credit.
        depth: The most questions on the way to a rule.
        n_min: Groups with and without an action that a leaf needs.
        margin: What a rule must bring, in units of returns.
        cuts: The most cuts of a feature.
    """

    lam: float
    depth: int
    n_min: float
    margin: float
    cuts: int


def propose(scores: Scores, search: Search, bins: Bins | None = None) -> list[Proposal]:
    """Regions and actions that look better at these steps; `bins` where they are made already."""
    psi, group = scores.psi, scores.group
    if not len(group):
        return []
    kappa = np.array([KAPPA * _design(psi[:, a], group) for a in range(psi.shape[1])])
    if bins is None:
        bins = Bins.of(scores.X, search.cuts, levels=scores.log.levels, psi=psi)
    tree = best_tree(
        bins, psi, scores.took, depth=search.depth, kappa=kappa, least=search.n_min,
        margin=search.margin,
    )  # fmt: skip
    proposed = []
    for path, _ in leaves(tree):
        conditions = tuple(_condition(scores.log, *cut) for cut in path)
        action = _best(scores.inside(conditions), search)
        if action >= 0:
            proposed.append((conditions, action))
    return proposed


def whole_gain(
    scores: Scores, proposals: Sequence[Proposal], gamma: float = 1.0, once: bool = False
) -> tuple[float, Floats]:
    """What following proposals brings an episode over usual practice, one change at a time.

    Args:
        scores: The steps to judge on.
        proposals: Regions that do not overlap, with their actions.
        gamma: Discount per step from the beginning of the episode. Default 1.
        once: Whether to follow only the first suggestion that an episode comes to, and usual
            practice from then on. That is a policy, and this is its gain. Otherwise (default) the
            gains of all steps are added up as if each were the only one: several changes that do
            the same good are counted several times.

    Returns:
        The mean over episodes, and float64 (G,), what each group adds to its error.
    """
    log = scores.log
    number = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    gains, places = np.zeros(log.n_steps), []
    for conditions, a in proposals:
        here = scores.inside(conditions)
        gains[here.rows] = here.gains(a) * gamma ** number[here.rows]
        places.append(here.rows)
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    if once:
        spoken = np.sort(np.concatenate([np.zeros(0, np.int64), *places]))
        later = np.ones(log.n_steps, bool)
        later[spoken[np.unique(episode[spoken], return_index=True)[1]]] = False
        gains[later] = 0.0
    present = np.unique(episode[scores.rows])
    totals = np.bincount(episode, weights=gains, minlength=log.n_episodes)[present]
    group = log.group[present].astype(np.int64)
    return cluster_parts(totals.astype(np.float64), group, len(log.groups))


def choose(
    scored: Mapping[float, Scores], first: Search, *, seed: int
) -> tuple[Search, list[dict[str, float]]]:
    """The settings that promise most inside the proposing half.

    Args:
        scored: λ → scores of the proposing half.
        first: The settings as asked for; its depth is the largest, its n_min the smallest tried.
        seed: Seed of the two parts.

    Returns:
        The settings to search with, and what was tried: λ, depth, n_min, gain, standard error.
    """
    any_scores = next(iter(scored.values()))
    groups = np.unique(any_scores.group)
    if len(groups) < 4:
        return replace(first, lam=next(iter(scored))), []
    parts = _parts(any_scores, groups, seed)
    tried: list[dict[str, float]] = []
    bins: list[Bins | None] = [None, None]
    if not any_scores.log.levels:  # cuts of numbers do not depend on the scores
        bins = [Bins.of(any_scores.of_groups(part).X, first.cuts) for part in parts]
    judgements: dict[Search, dict[str, float]] = {}

    def judged(search: Search) -> float:
        if search not in judgements:
            judgements[search] = judge(search)
        tried.append(dict(judgements[search]))
        return tried[-1]["gain"] - KAPPA * tried[-1]["se"]

    def judge(search: Search) -> dict[str, float]:
        scores, total, parts_of_error = scored[search.lam], 0.0, []
        for side in (0, 1):
            proposals = propose(scores.of_groups(parts[side]), search, bins[side])
            mean, error = whole_gain(scores.of_groups(parts[1 - side]), proposals)
            total += mean / 2
            parts_of_error.append(error / 2)
        se = float(np.sqrt((np.concatenate(parts_of_error) ** 2).sum()))
        return {"lam": search.lam, "depth": search.depth, "n_min": search.n_min,
                "gain": total, "se": se}  # fmt: skip

    best = replace(first, lam=next(iter(scored)))
    for options in (
        [replace(best, lam=lam) for lam in scored],
        [{"depth": depth} for depth in range(1, first.depth + 1)],
        [{"n_min": first.n_min * times} for times in LEAVES],
    ):
        searches = [o if isinstance(o, Search) else replace(best, **o) for o in options]
        if len(searches) > 1:
            worth = [judged(search) for search in searches]
            best = searches[int(np.argmax(worth))]
    return best, tried


def _parts(scores: Scores, groups: Ints, seed: int) -> list[NDArray[np.bool_]]:
    """Two parts of the groups, bool (G,) each, of at most `MOST_STEPS` steps together."""
    sizes = np.bincount(scores.group, minlength=len(scores.log.groups))
    order = np.random.default_rng(seed).permutation(groups)
    kept = order[np.cumsum(sizes[order]) <= MOST_STEPS]
    kept = kept if len(kept) >= 4 else order[:4]
    side = deal(len(kept), 0.5, seed)
    parts = []
    for mine in (side, ~side):
        chosen = np.zeros(len(sizes), bool)
        chosen[kept[mine]] = True
        parts.append(chosen)
    return parts


def _condition(log: Log, feature: int, cut: float | tuple[int, ...], low: bool) -> Condition:
    names = log.feature_names
    if isinstance(cut, tuple):
        labels = tuple(log.categories[names[feature]][code] for code in cut)
        return Condition(names[feature], "in" if low else "not in", labels=labels)
    if np.isnan(cut):
        return Condition(names[feature], "missing" if low else "known")
    return Condition(names[feature], "at most" if low else "above", cut)


def _best(here: Scores, search: Search) -> int:
    """The action of a leaf with the largest lower end by groups; -1 where none is above."""
    best, action = 0.0, -1
    for a in range(here.psi.shape[1]):
        if min(here.groups_with(a)) < search.n_min:
            continue
        mean, parts = here.contrast(a)
        low = mean - KAPPA * float(np.sqrt((parts**2).sum())) - search.margin
        if low > best:
            best, action = low, a
    return action


def _design(scores: Floats, group: Ints) -> float:
    """How much larger the error of a mean is by groups than by steps; at least 1."""
    mean, parts = cluster_parts(scores, group, int(group.max(initial=0)) + 1)
    by_steps = float(np.sqrt(((scores - mean) ** 2).sum())) / max(len(scores), 1)
    return max(float(np.sqrt((parts**2).sum())) / by_steps, 1.0) if by_steps > 0 else 1.0
