"""Which rules one half of the groups proposes, and with which settings (for `dprl.Rules`).

The tree with the largest lower ends (`dprl.planning.tree`) divides the steps; in each leaf
the action with the largest mean - κ·se by groups is proposed, among those that n_min groups took
and n_min did not.

**λ, depth and the size of leaves are chosen inside the proposing half.** Its groups are dealt in
two; each part proposes, and the other says what following the proposals would bring a group over
usual practice, one change at a time (`whole_gain`). The setting with the largest lower end, mean -
se over both parts, is taken: first λ, then depth, then the size of leaves. Where two are equal the
one that assumes less is taken (larger λ, fewer questions, larger leaves).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.inference import GAMMAS, cluster_parts, max_t, threshold, worst_case
from dprl.evidence.excursions import credit
from dprl.evidence.nuisances import OVERLAP
from dprl.logs.log import Log, deal
from dprl.planning.tree import Bins, best_tree, leaves
from dprl.policies.rules.rule import Condition, Rule

# --- Scores of actions at every step, and what they say about a region (for `dprl.Rules`)
#
# With b̂ the probabilities of usual practice and e_t the credit, both from other groups
# (`dprl.evidence`), the score of action a at step t is
#
#     ψ_a = (1{a_t = a} - b̂_a) / (b̂_a (1 - b̂_a)) · e_t
#
# Its mean over a region is what doing a there brings over doing otherwise; the mean of
# (1 - b̂_a) ψ_a is what it brings over usual practice, which does a now and then already. Where
# b̂_a or
# 1 - b̂_a is below `OVERLAP` there is nothing to compare: the score is 0.

Proposal: TypeAlias = tuple[tuple[Condition, ...], int]
"""A region and the code of the action that is suggested there."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Some steps of a log with the scores of all actions.

    Attributes:
        log: The log; its states are features.
        rows: int64 (n,), the steps, in increasing order.
        b: float64 (n, A), probabilities of usual practice at these steps.
        psi: float64 (n, A), the scores.
        group: int64 (n,), the group of each step.
        e: float64 (n,), the credit of what was done.
        V: float64 (n,), values of usual practice.
    """

    log: Log
    rows: Ints
    b: Floats
    psi: Floats
    group: Ints
    e: Floats
    V: Floats

    @classmethod
    def of(cls, log: Log, V: Floats, b: Floats, gamma: float, lam: float) -> Scores:
        """The scores of all steps of a log.

        Args:
            log: The log, with N rows and A actions, without cut episodes.
            V: float64 (N,), values of usual practice, from other groups.
            b: float64 (N, A), probabilities of usual practice, from other groups.
            gamma: Discount in (0, 1].
            lam: λ of the credit, in [0, 1].
        """
        e = credit(log, gamma, lam, V)
        taken = np.zeros(b.shape)
        taken[np.arange(log.n_steps), log.action] = 1.0
        group = _group(log)
        fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
        psi = np.where(fine, (taken - b) / np.where(fine, b * (1 - b), 1.0) * e[:, None], 0.0)
        return cls(log, np.arange(log.n_steps), b, psi, group, e, np.asarray(V, np.float64))

    @property
    def X(self) -> Floats:
        """float64 (n, d), the features of the steps."""
        return np.asarray(self.log.features)[self.rows]

    @property
    def took(self) -> NDArray[np.int32]:
        """int32 (n,), the actions that were taken."""
        return np.asarray(self.log.action[self.rows])

    def of_groups(self, chosen: Bools) -> Scores:
        """The same of the steps of some groups; `chosen` is bool (G,)."""
        return self.at(np.flatnonzero(chosen[self.group]))

    def at(self, places: Ints) -> Scores:
        """The same at some of its steps, by their place among them."""
        return replace(
            self, rows=self.rows[places], b=self.b[places], psi=self.psi[places],
            group=self.group[places], e=self.e[places], V=self.V[places],
        )  # fmt: skip

    def inside(self, conditions: tuple[Condition, ...]) -> Scores:
        """The same of the steps in a region."""
        features, names = np.asarray(self.log.features), self.log.feature_names
        at = np.ones(len(self.rows), bool)
        for c in conditions:
            f = names.index(c.feature)
            at &= c.holds(features[self.rows, f], self.log.levels[f] if self.log.levels else None)
        return self.at(np.flatnonzero(at))

    def groups_with(self, a: int) -> tuple[int, int]:
        """How many groups took an action at these steps, and how many did otherwise."""
        took = self.took == a
        return _different(self.group[took]), _different(self.group[~took])

    def contrast(self, a: int) -> tuple[float, Floats]:
        """What doing a brings over doing otherwise here, and what each group adds to its error."""
        return cluster_parts(self.psi[:, a], self.group, len(self.log.groups))

    def gains(self, a: int) -> Floats:
        """float64 (n,), what doing a brings over usual practice; its mean is what counts."""
        return np.asarray((1 - self.b[:, a]) * self.psi[:, a])

    def balance(self, a: int) -> tuple[str, float]:
        """What differs most between takers of a and others, and by how much.

        The difference of their means, weighted by 1 / b̂ of what they did, in standard deviations of
        the feature at all these steps.
        """
        took = self.took == a
        b = np.clip(self.b[:, a], OVERLAP, 1 - OVERLAP)
        weight = np.where(took, 1 / b, 1 / (1 - b))
        worst, name = 0.0, ""
        for feature, x in self._columns():
            measured = ~np.isnan(x)
            sides = [measured & took, measured & ~took]
            spread = float(x[measured].std()) if measured.any() else 0.0
            if not spread or not all(side.any() for side in sides):
                continue
            one, other = (float(np.average(x[s], weights=weight[s])) for s in sides)
            if abs(one - other) / spread > worst:
                worst, name = abs(one - other) / spread, feature
        return name, worst

    def _columns(self) -> Iterator[tuple[str, Floats]]:
        """Columns to compare: numbers; a label of a category is one of 0 and 1, as is missing."""
        X, categories = self.X, self.log.categories
        for f, feature in enumerate(self.log.feature_names):
            gone = np.isnan(X[:, f])
            if gone.any():
                yield f"{feature} missing", gone.astype(np.float64)
            if feature not in categories:
                yield feature, X[:, f]
                continue
            for code, label in enumerate(categories[feature]):
                yield f"{feature} {label}", np.where(gone, np.nan, X[:, f] == code)

    def overlap(self, a: int) -> float:
        """The share of these steps at which a and its alternatives are likely enough to compare."""
        b = self.b[:, a]
        return float(((b >= OVERLAP) & (b <= 1 - OVERLAP)).mean()) if len(b) else 0.0


def _different(group: Ints) -> int:
    """How many groups there are among these."""
    return int((np.bincount(group) > 0).sum())


def _group(log: Log) -> Ints:
    """int64 (N,), the group of each step."""
    return np.repeat(log.group, log.lengths).astype(np.int64)


def _most_first(log: Log, rows: Ints) -> list[tuple[int, int]]:
    """(action, how many of these steps took it), most first."""
    counts = np.bincount(log.action[rows], minlength=len(log.actions))
    return [(int(a), int(counts[a])) for a in np.argsort(-counts, kind="stable") if counts[a]]


def shares(log: Log, rows: Ints) -> list[list[Any]]:
    """[action, share of these steps that took it], most first."""
    return [[log.actions[a], n / len(rows)] for a, n in _most_first(log, rows)]


def first_actions(log: Log, rows: Ints) -> list[list[Any]]:
    """[action, groups that took it at their first of these steps], most first."""
    first = rows[np.unique(_group(log)[rows], return_index=True)[1]]
    return [[log.actions[a], n] for a, n in _most_first(log, first)]


# --- Which rules one half of the groups proposes, and with which settings (for `dprl.Rules`)

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


# --- What the other half says of proposed rules (for `dprl.Rules`): tests, and the record of a
# rule
#
# The studentised mean of ψ by group in each proposed region, all at once by step-down max-t
# (`dprl._core.inference`). Beside each rule: balance, overlap, who is behind it, what it brings
# over
# usual practice, and the same contrast from whole returns (λ = 1), which needs no model of values
# and
# is wider.

CONTRAST = ("advantage", "se", "low", "high")


@dataclass(frozen=True, eq=False)
class Claims:
    """What one half says of the rules that the other proposed.

    Attributes:
        tested: All proposals as rules, with what is on record about them; most per decision first.
        issued: Those that passed, in the same order.
        worth: What the issued rules bring an episode over usual practice, added up one change at a
            time, less a standard error by groups; divisions are compared by it. 0 for no rules.
        whole: What the issued rules bring an episode over usual practice: gain, low and high where
            only the first suggestion of an episode is followed; "sum", what all would bring if each
            were the only one; "changed", the share of steps that would change; and, of the episodes
            of this half, "met", how many come to a suggestion, and "followed", how many of these
            took every suggestion they came to.
    """

    tested: list[Rule]
    issued: list[Rule]
    worth: float
    whole: dict[str, float]


def certify(
    proposals: Sequence[Proposal], proposed_by: Scores, other: Scores, returns: Scores, *,
    delta: float, splits: int, margin: float, n_min: float, gamma: float, seed: int,
) -> Claims:  # fmt: skip
    """Test proposals on the half that did not make them.

    Args:
        proposals: Regions that do not overlap, with their actions.
        proposed_by: Scores of the half that proposed.
        other: Scores of the half that certifies.
        returns: The same steps with scores of whole returns (λ = 1).
        delta: Level of all tests of all divisions together.
        splits: Number of divisions that share the level.
        margin: What a contrast must exceed.
        n_min: Groups with and without the action that the certifying half must have.
        gamma: Discount per step.
        seed: Seed of the multipliers.
    """
    level = delta / splits
    places = [other.inside(conditions) for conditions, _ in proposals]
    if not proposals:
        return Claims([], [], 0.0, _whole(other, [], gamma, level))
    means, parts = zip(
        *(here.contrast(a) for here, (_, a) in zip(places, proposals, strict=True)), strict=True
    )
    test = max_t(np.array(means), np.stack(parts, axis=1), level=level, null=margin, seed=seed)
    adjusted = np.minimum(test.p * splits, 1.0)
    rules, passed = [], []
    for k, ((conditions, a), here) in enumerate(zip(proposals, places, strict=True)):
        whole = returns.inside(conditions)
        contrast = tuple(float(x[k]) for x in (test.mean, test.se, test.low, test.high))
        facts = region_facts(
            here, proposed_by.inside(conditions), whole, a, contrast, level=level,
            steps=len(other.rows), margin=margin,
        )  # fmt: skip
        rules.append(Rule(conditions, other.log.actions[a], facts | {"p": float(adjusted[k])}))
        passed.append(adjusted[k] <= delta and min(here.groups_with(a)) >= n_min)
    order = sorted(range(len(rules)), key=lambda k: (-float(np.nan_to_num(test.low[k])), k))
    issued = [k for k in order if passed[k]]
    return Claims(
        [rules[k] for k in order],
        [rules[k] for k in issued],
        _worth(other, [proposals[k] for k in issued], gamma),
        _whole(other, [proposals[k] for k in issued], gamma, level),
    )


def _worth(other: Scores, proposals: Sequence[Proposal], gamma: float) -> float:
    mean, parts = whole_gain(other, proposals, gamma)
    return mean - KAPPA * float(np.sqrt((parts**2).sum())) if proposals else 0.0


def _whole(
    other: Scores, proposals: Sequence[Proposal], gamma: float, level: float
) -> dict[str, float]:
    gain, parts = whole_gain(other, proposals, gamma, once=True)
    inside = [(other.inside(conditions), a) for conditions, a in proposals]
    changed = sum(int((here.took != a).sum()) for here, a in inside)
    met, followed = _followers(other, inside)
    ends = _ends(gain, float(np.sqrt((parts**2).sum())), len(np.unique(other.group)), level)
    steps = max(len(other.rows), 1)
    total = whole_gain(other, proposals, gamma)[0]
    return {
        "gain": gain, "low": ends[0], "high": ends[1], "sum": total, "changed": changed / steps,
        "met": met, "followed": followed,
    }  # fmt: skip


def _followers(other: Scores, inside: Sequence[tuple[Scores, int]]) -> tuple[int, int]:
    """How many episodes come to a suggestion, and how many of them took it every time."""
    log = other.log
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    met, strayed = np.zeros(log.n_episodes, bool), np.zeros(log.n_episodes, bool)
    for here, a in inside:
        met[episode[here.rows]] = True
        strayed[episode[here.rows[here.took != a]]] = True
    return int(met.sum()), int((met & ~strayed).sum())


def region_facts(
    here: Scores, there: Scores, whole: Scores, a: int, contrast: Sequence[float], *,
    level: float, steps: int, margin: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """What is on record about a rule, but for its p-value.

    Args:
        here: Scores in its region, of the half that certifies.
        there: The steps in its region of the half that proposed.
        whole: As `here`, with scores of whole returns (λ = 1).
        a: The code of the suggestion.
        contrast: What the suggestion brought over doing otherwise here: mean, standard error,
            lower and upper end.
        level: Level of each end of the contrast of whole returns.
        steps: Number of all steps of the half that certifies.
        margin: What the contrast must exceed.
    """
    rows = np.sort(np.concatenate((here.rows, there.rows)))
    took, others = here.groups_with(a)
    feature, difference = here.balance(a)
    mean, parts = whole.contrast(a)
    groups = len(np.unique(here.group))
    gamma_star, gamma_point = rule_breakdown(
        here, there, a, width=_width(contrast), margin=margin
    )  # fmt: skip
    returns = (mean, *_ends(mean, float(np.sqrt((parts**2).sum())), groups, level))
    return {
        "steps": len(rows),
        "groups": groups,
        "groups_took": took,
        "groups_others": others,
        "groups_by_action": first_actions(here.log, rows),
        "groups_proposed": len(np.unique(there.group)),
        **{name: _finite(x) for name, x in zip(CONTRAST, contrast, strict=True)},
        "gain": _finite(here.gains(a).mean()) if len(here.rows) else None,
        "returns": [_finite(number) for number in returns],
        "gamma_star": gamma_star,
        "gamma_point": gamma_point,
        "share_usual": shares(here.log, rows) if len(rows) else [],
        "overlap": here.overlap(a),
        "balance": [feature, difference],
        "share": len(here.rows) / max(steps, 1),
        "changed": int((here.took != a).sum()) / max(steps, 1),
        **_doses(here, rows, a),
    }


def _width(contrast: Sequence[float]) -> float:
    """How many standard errors lie between a contrast and its lower end; NaN if it has none."""
    mean, se, low, _ = contrast
    return (mean - low) / se if np.isfinite(low) and se > 0 else np.nan


def _doses(here: Scores, rows: NDArray[np.int64], a: int) -> dict[str, float]:
    """Where actions are numbers (doses): the shares of steps that gave less, and that gave more."""
    doses = here.log.actions
    if any(isinstance(dose, str | bool) for dose in doses) or not len(rows):
        return {}
    given = np.array(doses, np.float64)[here.log.action[rows]]
    suggested = float(doses[a])
    return {
        "raises": float((given < suggested).mean()), "lowers": float((given > suggested).mean()),
    }  # fmt: skip


def _ends(mean: float, se: float, groups: int, level: float) -> tuple[float, float]:
    """One-sided ends at this level on either side, for large samples of groups."""
    if groups < 2:
        return -np.inf, np.inf
    from scipy.special import stdtrit

    width = float(stdtrit(groups - 1, 1 - level)) * se
    return mean - width, mean + width


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


# -- how strong an unrecorded cause must be to undo a rule (for `dprl.Rules`): Γ*, for large… ------
#
# `dprl._core.inference` explains Γ and φ. The mean of ψ_a over a region is that of
#
# 1{a_t = a} e / b̂_a - 1{a_t ≠ a} e / (1 - b̂_a)
#
# At Γ the credit e of those who took a is replaced by φ(e); θ may be any function of the state
# that the certifying half has not chosen. Two are looked at, with q the 1/(1 + Γ) quantile of the
# half that proposed: θ = q for the credit itself, and θ = q - V̂ (q for what followed, e + V̂;
# sharp where outcomes have two values). The half that proposed chooses between them. Γ* is the
# largest Γ up to which the lower end of the mean stays above the margin: the same t, the same
# number of standard errors.


def rule_breakdown(
    here: Scores, there: Scores, a: int, *, width: float, margin: float
) -> tuple[float | None, float | None]:
    """Γ* of one rule: with its allowance for chance, and as estimated.

    Args:
        here: Scores in its region, of the half that certifies.
        there: Scores in its region, of the half that proposed.
        a: The code of the suggestion.
        width: How many standard errors lie between the contrast and its lower end.
        margin: What the contrast must exceed.

    Returns:
        (Γ*, Γ* as estimated), each from 1 to 20, which means "or more"; None where the claim does
        not even hold without an unrecorded cause, or nothing can be told.
    """
    return (
        _largest(here, there, a, width, margin) if np.isfinite(width) else None,
        _largest(here, there, a, 0.0, margin),
    )


def _largest(here: Scores, there: Scores, a: int, width: float, margin: float) -> float | None:
    """The largest of the fixed Γ up to which the lower end stays above the margin, without gap."""
    result = None
    if not len(here.rows):
        return None
    for gamma in GAMMAS:
        scores = _worst(here, a, float(gamma), _theta(there, a, float(gamma)))
        mean, parts = cluster_parts(scores, here.group, len(here.log.groups))
        if not mean - width * float(np.sqrt((parts**2).sum())) > margin:
            break
        result = float(gamma)
    return result


def _worst(scores: Scores, a: int, gamma: float, theta: tuple[float, float]) -> Floats:
    """float64 (n,), the scores of a at Γ; θ is theta[0] + theta[1]·V̂ at each step."""
    b, took = scores.b[:, a], scores.took == a
    fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
    safe = np.where(fine, b, 0.5)
    worst = worst_case(scores.e, theta[0] + theta[1] * scores.V, gamma)
    return np.asarray(np.where(fine, np.where(took, worst / safe, -scores.e / (1 - safe)), 0.0))


def _theta(there: Scores, a: int, gamma: float) -> tuple[float, float]:
    """The better of the two θ on the half that proposed: θ = first + second · V̂."""
    b, took = there.b[:, a], there.took == a
    use = took & (b >= OVERLAP) & (b <= 1 - OVERLAP)
    if not use.any():
        return 0.0, 0.0
    e, V, weight = there.e[use], there.V[use], 1 / b[use]
    both = (threshold(e, gamma, weight), 0.0), (threshold(e + V, gamma, weight), -1.0)
    means = [
        np.average(worst_case(e, first + second * V, gamma), weights=weight)
        for first, second in both
    ]
    return both[int(np.argmax(means))]
