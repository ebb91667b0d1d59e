"""Which rules one half of the groups proposes, and with which settings (for `dprl.Rules`).

The tree with the largest lower ends (`dprl.planning.tree`) divides the steps; in each leaf
the action with the largest mean - κ·se by groups is proposed, among those that n_min groups took
and n_min did not.

**λ is chosen inside the proposing half**, by its error and not by what it claims. The groups are
dealt in two, each part proposes, and the other judges: the least variance of what the proposals
bring one change at a time (`sum_of_gains`), among those that differ from λ = 1 by no more than
chance; where two are equal the larger, which assumes less. Depth and the size of leaves are not
chosen there, for a quarter of the groups is too few to tell: the few `searches` that are tried are
all certified, and share the level.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.inference import GAMMAS, MaxT, cluster_parts, max_t, threshold, worst_case
from dprl.evidence.excursions import credit
from dprl.evidence.models import in_threads
from dprl.evidence.nuisances import OVERLAP
from dprl.evidence.support import GONE, NUMBER, Side, columns, largest_empty, wider, without
from dprl.learners.rules.whole import Judged, Steps, chance_seen, folds_of
from dprl.logs.log import Label, Log, deal
from dprl.planning.tree import Bins, best_tree, leaves
from dprl.policies.protocol import Avoid
from dprl.policies.rules.rule import Condition, Region, Rule, Sum, follows, inside

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
#
# Where there are three actions or more, "not a" comes after all a: its code is A + a, its score
# -ψ_a, and the probability that practice does as it says is 1 - b̂_a.
#
# Steps in a region in which hardly anybody took a, or hardly anybody did otherwise
# (`bare_regions`), are in no score and no mean of a: nothing is claimed of them.


class Place(NamedTuple):
    """Where a rule holds: all of its conditions do, and no exception."""

    conditions: tuple[Condition, ...]
    unless: tuple[Region, ...] = ()


Proposal: TypeAlias = tuple[Place, int]
"""A place and the code of the action that is suggested there; A more where it is to be avoided."""


def bare_regions(log: Log, seed: int) -> tuple[tuple[Region, ...], ...]:
    """For every action, the regions in which hardly anybody took it, or did otherwise.

    Args:
        log: A log over features.
        seed: Seed of the steps that are looked at, where there are very many.

    Returns:
        For each of the A actions its regions (`dprl.evidence.support`). Outcomes are not looked at.
    """
    X, actions = np.asarray(log.features), log.n_actions
    Z, of = columns(X, log.levels)
    sums = np.array([j for j, (_, what) in enumerate(of) if what == NUMBER], np.int64)
    known = [x[np.isfinite(x)] for x in X.T]
    middle = [float(f"{np.median(x):.3g}") if len(x) else 0.0 for x in known]
    n_tested = 1 if actions == 2 else actions  # of two, whom one was not given got the other

    def regions(a: int) -> tuple[Region, ...]:
        took = log.action == a
        return tuple(
            tuple(_asked(log, side, of, middle) for side in wider(region, Z, taken, taken.mean()))
            for taken in (took, ~took)
            for region in without(Z, sums, taken, float(taken.mean()), seed)
        )

    found = in_threads([functools.partial(regions, a) for a in range(n_tested)])
    return tuple(found) * (actions // n_tested)


def _asked(
    log: Log, side: Side, of: Sequence[tuple[int, int]], middle: Sequence[float]
) -> Condition | Sum:
    """A side of a cut as a condition over features."""
    names, above = log.feature_names, side.above
    if len(side.terms) > 1:
        terms = tuple((names[of[j][0]], weight, middle[of[j][0]]) for j, weight in side.terms)
        return Sum(terms, "above" if above else "at most", side.value)
    f, what = of[side.terms[0][0]]
    if what == NUMBER:
        return Condition(names[f], "above" if above else "at most", side.value)
    if what == GONE:
        return Condition(names[f], "missing" if above else "known")
    return Condition(
        names[f], "in" if above else "not in", labels=(log.categories[names[f]][what],)
    )


@dataclass(frozen=True, eq=False)
class Scores:
    """Some steps of a log with the scores of all actions.

    Attributes:
        log: The log; its states are features.
        rows: int64 (n,), the steps, in increasing order.
        b: float64 (n, A or 2A), probabilities of usual practice at these steps.
        psi: float64 (n, A or 2A), the scores.
        group: int64 (n,), the group of each step.
        e: float64 (n,), the credit of what was done.
        V: float64 (n,), values of usual practice.
        bare: For every action the regions of which nothing is claimed. Default (): none.
    """

    log: Log
    rows: Ints
    b: Floats
    psi: Floats
    group: Ints
    e: Floats
    V: Floats
    bare: tuple[tuple[Region, ...], ...] = ()

    @classmethod
    def of(
        cls, log: Log, V: Floats, b: Floats, gamma: float, lam: float,
        bare: tuple[tuple[Region, ...], ...] = (),
    ) -> Scores:  # fmt: skip
        """The scores of all steps of a log.

        Args:
            log: The log, with N rows and A actions, without cut episodes.
            V: float64 (N,), values of usual practice, from other groups.
            b: float64 (N, A), probabilities of usual practice, from other groups.
            gamma: Discount in (0, 1].
            lam: λ of the credit, in [0, 1].
            bare: For every action the regions of which nothing is claimed. Default (): none.
        """
        e = credit(log, gamma, lam, V)
        taken = np.zeros(b.shape)
        taken[np.arange(log.n_steps), log.action] = 1.0
        group = _group(log)
        fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
        for a, regions in enumerate(bare):
            fine[:, a] &= _holds(log, Place((), regions))
        psi = np.where(fine, (taken - b) / np.where(fine, b * (1 - b), 1.0) * e[:, None], 0.0)
        if b.shape[1] > 2:
            psi, b = np.hstack((psi, -psi)), np.hstack((b, 1 - b))
        return cls(log, np.arange(log.n_steps), b, psi, group, e, np.asarray(V, np.float64), bare)

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

    def inside(self, *places: Place) -> Scores:
        """The same of the steps in a place, or in several."""
        at = np.zeros(len(self.rows), bool)
        for place in places:
            at |= _holds(self.log, place)[self.rows]
        return self.at(np.flatnonzero(at))

    def place(self, conditions: tuple[Condition, ...], a: int) -> Place:
        """Where code a may be suggested among the steps that satisfy conditions.

        Exceptions without any step of the log there, and what they ask beyond the conditions in
        vain, are left out.
        """
        log = self.log
        within = _holds(log, Place(conditions))
        unless: list[Region] = []
        for region in self.bare[a % log.n_actions] if self.bare else ():
            if not (within & ~_holds(log, Place((), (region,)))).any():
                continue
            unless.append(tuple(
                c for c in region
                if isinstance(c, Sum) or not follows(c, conditions, log.categories.get(c.feature))
            ))  # fmt: skip
        return Place(conditions, tuple(unless))

    def follows(self, a: int) -> Bools:
        """bool (n,), the steps that did as code a says."""
        avoid, action = divmod(a, len(self.log.actions))
        return np.asarray((self.took == action) != bool(avoid))

    def groups_with(self, a: int) -> tuple[int, int]:
        """How many groups took an action at these steps, and how many did otherwise."""
        took = self.follows(a)
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
        took = self.follows(a)
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


def _holds(log: Log, place: Place) -> Bools:
    """bool (N,), the steps of a log in a place."""
    x = np.asarray(log.features)
    at = inside(place.conditions, x, log.feature_names, log.levels)
    for region in place.unless:
        at &= ~inside(region, x, log.feature_names, log.levels)
    return at


def answer_of(log: Log, a: int) -> Label | Avoid:
    """What code a says: the label of an action, or what to avoid."""
    avoid, action = divmod(a, len(log.actions))
    return Avoid(log.actions[action]) if avoid else log.actions[action]


def rule_of(log: Log, proposal: Proposal, facts: Mapping[str, Any]) -> Rule:
    """A proposal as a rule, with what is on record about it."""
    (conditions, unless), a = proposal
    return Rule(conditions, answer_of(log, a), facts, unless=unless)


def proposal_of(log: Log, rule: Rule) -> Proposal:
    """A rule as a proposal."""
    return Place(rule.conditions, rule.unless), code_of(log, rule)


def code_of(log: Log, rule: Rule) -> int:
    """The code of what a rule suggests."""
    return log.actions.index(rule.action) + len(log.actions) * rule.avoids


def suggestions(log: Log, proposals: Sequence[Proposal]) -> Ints:
    """int64 (N,), what proposals suggest at every step of a log; -1 where they do not speak."""
    suggested = np.full(log.n_steps, -1, np.int64)
    for place, a in proposals:
        suggested[_holds(log, place)] = a
    return suggested


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

ONE_OTHER = 0.8
"""Where one action has more than this share of all others, "not a" would be that action."""
KAPPA = 1.0
"""Standard errors by groups that a proposal must be above 0 on the proposing half."""
LAMBDAS = (1.0, 0.95, 0.9, 0.8)
"""The λ of the credit that are tried where none is given."""
REFUTED = 2.0
"""Standard errors from λ = 1 on the proposing half, beyond which a smaller λ is not taken."""
LARGER = 2
"""How many times n_min groups the leaves of one more search have on either side."""
MOST_STEPS = 15_000
"""λ is chosen on at most so many steps, in whole groups."""


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

    def searches(self) -> list[Search]:
        """What is tried of one half: each depth up to this, and the deepest with larger leaves."""
        depths = [replace(self, depth=depth) for depth in range(1, self.depth + 1)]
        return [*depths, replace(self, n_min=LARGER * self.n_min)]


def propose(scores: Scores, search: Search) -> list[Proposal]:
    """Regions and actions that look better at these steps."""
    psi, group = scores.psi[:, : len(scores.log.actions)], scores.group
    if not len(group):
        return []
    kappa = np.array([KAPPA * _design(psi[:, a], group) for a in range(psi.shape[1])])
    bins = Bins.of(scores.X, search.cuts, levels=scores.log.levels, psi=psi)
    tree = best_tree(
        bins, psi, scores.took, depth=search.depth, kappa=kappa, least=search.n_min,
        margin=search.margin,
    )  # fmt: skip
    proposed = []
    for path, _ in leaves(tree):
        conditions = tuple(_condition(scores.log, *cut) for cut in path)
        action = _best(scores, conditions, search)
        if action >= 0:
            proposed.append((scores.place(conditions, action), action))
    return proposed


def sum_of_gains(
    scores: Scores, proposals: Sequence[Proposal], gamma: float = 1.0
) -> tuple[float, Floats]:
    """What proposals bring an episode over usual practice if each change were the only one.

    Several changes that do the same good are counted several times: what following all of them
    brings is another question (`dprl.learners.rules.whole`).

    Args:
        scores: The steps to judge on.
        proposals: Regions that do not overlap, with their actions.
        gamma: Discount per step from the beginning of the episode. Default 1.

    Returns:
        The mean over episodes, and float64 (G,), what each group adds to its error.
    """
    log = scores.log
    number = np.arange(log.n_steps) - np.repeat(log.starts[:-1], log.lengths)
    gains, discount = np.zeros(log.n_steps), gamma**number / chance_seen(log)
    for place, a in proposals:
        here = scores.inside(place)
        gains[here.rows] = here.gains(a) * discount[here.rows]
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    totals = np.bincount(episode, weights=gains, minlength=log.n_episodes).astype(np.float64)
    return _by_group(log, totals, np.unique(episode[scores.rows]))


def _by_group(log: Log, values: Floats, episodes: Ints) -> tuple[float, Floats]:
    """The mean of values (E,) over some episodes, and what each group adds to its error."""
    group = log.group[episodes].astype(np.int64)
    return cluster_parts(values[episodes], group, len(log.groups))


def choose_lam(
    scored: Mapping[float, Scores], first: Search, *, seed: int
) -> tuple[float, list[dict[str, float]]]:
    """The λ of least variance inside the proposing half.

    Args:
        scored: λ → scores of the proposing half.
        first: The settings of the search.
        seed: Seed of the two parts.

    Returns:
        λ, and what was tried: λ, gain, standard error, and errors away from λ = 1.
    """
    any_scores = next(iter(scored.values()))
    groups = np.unique(any_scores.group)
    if len(scored) == 1 or len(groups) < 4:
        return next(iter(scored)), []
    parts = _parts(any_scores, groups, seed)
    least = scored[min(scored)]
    proposed = [propose(least.of_groups(part), first) for part in parts]
    tried = _errors(scored, proposed, parts)
    likely = [one for one in tried if abs(one["away"]) <= REFUTED]
    return min(likely, key=lambda one: (one["se"], -one["lam"]))["lam"], tried


def _errors(
    scored: Mapping[float, Scores], proposals: Sequence[list[Proposal]], parts: Sequence[Bools]
) -> list[dict[str, float]]:
    """Every λ: what the proposals bring, its error, and how many errors it is away from λ = 1."""
    sums = {}
    for lam, scores in scored.items():
        sides = [sum_of_gains(scores.of_groups(parts[1 - i]), p) for i, p in enumerate(proposals)]
        sums[lam] = sum(m for m, _ in sides) / 2, (sides[0][1] + sides[1][1]) / 2
    whole, its_parts = sums.get(1.0, next(iter(sums.values())))
    tried = []
    for lam, (gain, own) in sums.items():
        apart = float(np.sqrt(((own - its_parts) ** 2).sum()))
        away = (gain - whole) / apart if apart > 0 else 0.0
        se = float(np.sqrt((own**2).sum()))
        tried.append({"lam": lam, "gain": float(gain), "se": se, "away": float(away)})
    return tried


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


def _best(scores: Scores, conditions: tuple[Condition, ...], search: Search) -> int:
    """The action of a leaf with the largest lower end by groups; -1 where none is above.

    One to avoid, where what that brings over usual practice is surely more.
    """
    A, groups = len(scores.log.actions), len(scores.log.groups)
    leaf = scores.inside(Place(conditions))
    bare = scores.bare or ((),) * A
    places = {a: leaf if not bare[a % A] else leaf.inside(Place((), bare[a % A]))
              for a in range(leaf.psi.shape[1])}  # fmt: skip

    def low(a: int, values: Floats) -> float:
        mean, parts = cluster_parts(values, places[a].group, groups)
        return mean - KAPPA * float(np.sqrt((parts**2).sum()))

    def gain(a: int) -> float:
        """The lower end of what all steps of the leaf get from it, over usual practice."""
        return low(a, places[a].gains(a)) * len(places[a].rows)

    looked = [a for a, here in places.items() if min(here.groups_with(a)) >= search.n_min]
    lows = {a: low(a, places[a].psi[:, a]) - search.margin for a in looked}
    take = [a for a in looked if a < A and lows[a] > 0]
    warn = [a for a in looked if a >= A and lows[a] > 0 and several_left(places[a], a)]
    best = max(take, key=lambda a: lows[a] * len(places[a].rows), default=-1)
    if not warn:
        return best
    most = max(warn, key=gain)
    return most if best < 0 or gain(most) > gain(best) else best


def several_left(here: Scores, a: int) -> bool:
    """Whether no action alone is nearly all that is done where code a, to avoid, is followed."""
    n = np.bincount(here.took[here.follows(a)], minlength=len(here.log.actions))
    return bool(n.max() <= ONE_OTHER * n.sum())


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
LEARNING = 1 / (np.sqrt(2) - 1)
"""What is deducted of a lower end for each unit by which a contrast surely falls where models of
practice see twice as many groups: a bias that falls as 1/√n is so many times what it fell by."""
BY_CHANCE = 0.05
"""The most groups without takers of that size that chance makes where one says something."""
WORSE = 2.0
"""How many times the range of outcomes each of such a group may lose, where it surprises."""
MOST_JUDGED = 200_000
"""The whole is judged on at most so many steps, in whole groups."""


@dataclass(frozen=True, eq=False)
class Claims:
    """What one half says of the rules that the other proposed.

    Attributes:
        tested: All proposals as rules, with what is on record about them; most per decision first.
        issued: Those that are issued, in the same order.
        worth: What following the issued rules at every step brings an episode over usual practice,
            less a standard error where they are for some; searches are compared by it. 0 for no
            rules.
        whole: What following the issued rules at every step (or, where none is issued, those that
            passed their own tests, or all) brings an episode over usual practice: gain, low and
            high; "exact", whether that supposes nothing of what follows; "sound", whether it could
            be judged; "effective", the groups behind it; "untreated", what the lower end allows for
            groups among whom nobody did as suggested; "learning", what it allows for what models of
            practice still learn; "sum", what the rules would bring if each
            change were the only one; "changed", the share of steps that would change; and, of the
            episodes of this half, "met", how many come to a suggestion, and "followed", how many of
            these took every suggestion they came to.
        passed: How many rules passed their own tests.
    """

    tested: list[Rule]
    issued: list[Rule]
    worth: float
    whole: dict[str, Any]
    passed: int


def certify(
    proposals: Sequence[Proposal], proposed_by: Scores, other: Scores, returns: Scores,
    steps: Steps, *, delta: float, splits: int, margin: float, n_min: float, gamma: float,
    seed: int, one_of: bool = False, weaker: Callable[[], Scores] | None = None,
) -> Claims:  # fmt: skip
    """Test proposals on the half that did not make them.

    Proposals that name the same action are one claim, "this action in all of these situations", and
    then one each. A set of such claims is issued where each of them passes and following all of it
    at every step brings more than usual practice: each claim alone, the first k in the order of the
    half that proposed, and all but one are looked at. All of these means are tested at once.

    Where λ < 1 and whole returns say less than the credit does, a rule is not claimed by itself:
    its contrast is that of whole returns, without ends. It may still be part of a whole, whose gain
    does not rest on λ.

    Args:
        proposals: Regions that do not overlap, with their actions.
        proposed_by: Scores of the half that proposed.
        other: Scores of the half that certifies.
        returns: The same steps with scores of whole returns (λ = 1).
        steps: All steps of both halves.
        delta: Level of all tests of all divisions together.
        splits: Into how many equal parts the level is divided, of which this search has one.
        margin: What a contrast must exceed.
        n_min: Groups with and without the action that the certifying half must have.
        gamma: Discount per step.
        seed: Seed of the multipliers.
        one_of: Whether proposals are alternatives, of which one is issued at most. Default False.
        weaker: Makes `other` with models of half as many groups; asked where something would be
            issued. Default None: practice is known, and nothing is deducted.
    """
    level = delta / splits
    if not proposals:
        nothing = {"gain": 0.0, "low": 0.0, "high": 0.0, "exact": True, "sound": True}
        return Claims([], [], 0.0, {**nothing, **_about(other, [], gamma)}, 0)
    claims = [[k] for k in range(len(proposals))] if one_of else _by_action(proposals, proposed_by)
    sets: list[tuple[int, ...]] = (
        [(u,) for u in range(len(claims))] if one_of else _sets(len(claims))
    )
    wholes = [whole(steps, other, [proposals[k] for u in s for k in claims[u]], seed) for s in sets]
    places = [other.inside(place) for place, _ in proposals]
    united = [other.inside(*(proposals[k][0] for k in own)) for own in claims]
    contrasts = [
        *(here.contrast(a) for here, (_, a) in zip(places, proposals, strict=True)),
        *(here.contrast(proposals[own[0]][1]) for here, own in zip(united, claims, strict=True)),
        *((mean + margin, parts) for _, mean, parts in wholes),
    ]
    first, one = len(proposals) + len(claims), len(proposals)
    spared = [proposed_by.inside(place) for place, _ in proposals]
    costs = [untreated(other, proposed_by, place, a) for place, a in proposals]
    sizes = [len(one.rows) + len(two.rows) for one, two in zip(places, spared, strict=True)]
    every = len(other.rows) + len(proposed_by.rows)

    def cost(own: Sequence[int], steps: int) -> float:
        """What several proposals may cost for each of so many steps."""
        return sum(costs[k] * sizes[k] for k in own) / max(steps, 1)

    allowed = np.array([
        *costs,
        *(cost(own, sum(sizes[k] for k in own)) for own in claims),
        *(cost([k for u in s for k in claims[u]], every) for s in sets),
    ])  # fmt: skip
    means, parts = zip(*contrasts, strict=True)

    def tested() -> MaxT:
        return max_t(
            np.array(means) - allowed - more, np.stack(parts, axis=1), level=level, null=margin,
            seed=seed,
        )  # fmt: skip

    more = np.zeros(len(means))
    test = tested()
    if weaker is not None and (test.low[first:] > margin).any():
        full, half = (
            _changes(scores, proposals, claims, sets, gamma) for scores in (other, weaker())
        )
        more = np.array([learning(*both) for both in zip(full, half, strict=True)])
        test = tested()
    mean, high = (x + allowed + more for x in (test.mean, test.high))
    adjusted = np.minimum(test.p * splits, 1.0)
    late = _late(returns, united, proposals, claims, delta, seed) <= delta
    passed = [
        bool(adjusted[one + u] <= delta)
        and min(united[u].groups_with(proposals[own[0]][1])) >= n_min
        for u, own in enumerate(claims)
    ]
    rules = []
    for k, ((place, a), here) in enumerate(zip(proposals, places, strict=True)):
        u = next(u for u, own in enumerate(claims) if k in own)
        by_returns = returns.inside(place)
        contrast = tuple(float(x[k]) for x in (mean, test.se, test.low, high))
        if late[u]:
            told, error = by_returns.contrast(a)
            contrast = (told, float(np.sqrt((error**2).sum())), np.nan, np.nan)
        facts = region_facts(
            here, spared[k], by_returns, a, contrast, level=level,
            steps=len(other.rows), margin=margin,
        )  # fmt: skip
        facts |= {"late": True} if late[u] else {"p": float(adjusted[k])}
        facts |= {"passed": True} if passed[u] else {}
        facts |= {"learning": float(more[k])} if more[k] > 0 else {}
        if len(claims[u]) > 1 and not late[u]:
            numbers = (mean, test.low, high, adjusted)
            facts["together"] = [_finite(x[one + u]) for x in numbers]
        rules.append(rule_of(other.log, (place, a), facts))
    # Stepping down rejects more than ends above 0 show; what is issued has both.
    fine = [
        i for i, s in enumerate(sets)
        if all(passed[u] for u in s) and adjusted[first + i] <= delta
        and test.low[first + i] > margin
    ]  # fmt: skip
    less = 0.0 if one_of else KAPPA  # to leave some out must be earned
    alone = tuple(u for u in range(len(claims)) if passed[u]) or tuple(range(len(claims)))
    shown = sets.index(alone) if alone in sets else len(sets) - 1
    if one_of:
        shown = int(np.argmax(test.t[one : one + len(claims)]))
    if fine:
        ends_of = test.low if one_of else test.mean - KAPPA * test.se
        shown = max(fine, key=lambda i: ends_of[first + i])
    found, spoken = wholes[shown][0], [k for u in sets[shown] for k in claims[u]]
    ends = [float(x[first + shown]) - margin for x in (mean, test.low, high)]
    facts_of_whole = {
        **dict(zip(("gain", "low", "high"), map(_finite, ends), strict=True)),
        "exact": found.exact, "sound": found.sound, "effective": found.effective,
        "untreated": float(allowed[first + shown]), "learning": float(more[first + shown]),
        **_about(other, [proposals[k] for k in spoken], gamma),
    }  # fmt: skip
    order = sorted(
        spoken if one_of else range(len(rules)),
        key=lambda k: (-float(np.nan_to_num(test.low[k])), k),
    )
    return Claims(
        [rules[k] for k in order],
        [rules[k] for k in order if fine and k in spoken],
        float(test.mean[first + shown] - less * test.se[first + shown]) - margin if fine else 0.0,
        facts_of_whole,
        sum(len(own) for u, own in enumerate(claims) if passed[u] and (not one_of or u == shown)),
    )


def _changes(
    scores: Scores, proposals: Sequence[Proposal], claims: Sequence[list[int]],
    sets: Sequence[tuple[int, ...]], gamma: float,
) -> list[tuple[float, Floats]]:  # fmt: skip
    """What each proposal and each claim brings, and each set an episode, one change at a time."""
    return [
        *(scores.inside(place).contrast(a) for place, a in proposals),
        *(scores.inside(*(proposals[k][0] for k in own)).contrast(proposals[own[0]][1])
          for own in claims),
        *(sum_of_gains(scores, [proposals[k] for u in s for k in claims[u]], gamma)
          for s in sets),
    ]  # fmt: skip


def learning(full: tuple[float, Floats], half: tuple[float, Floats]) -> float:
    """What a lower end allows for what models of practice still learn.

    Args:
        full: What a suggestion brings, with models of practice from all other groups, and what each
            group adds to its error.
        half: The same with models from half of them; what it is more by counts less its error.
    """
    error = float(np.sqrt(((half[1] - full[1]) ** 2).sum()))
    return float(LEARNING * max(half[0] - full[0] - error, 0.0))


def untreated(here: Scores, there: Scores, place: Place, a: int) -> float:
    """What code a may cost in a place where it holds, by the largest group of whom nobody did so.

    As if each of the group lost twice the range of what is on record (whom nobody treats may fare
    worse than anybody), where it is larger than chance makes it; and, whatever its size, as if each
    fared as the worst on record where others were left out of the place as places without takers:
    their border may be further out. Where episodes have several decisions it is 0: those who ever
    come to such a group are so many that nothing could be claimed.

    Args:
        here: Scores of the half that certifies.
        there: Scores of the half that proposed.
        place: The place.
        a: The code of the suggestion.

    Returns:
        The mean cost of a step of the place.
    """
    log = here.log
    both = [half for half in (here.inside(place), there.inside(place)) if len(half.rows)]
    if log.n_steps > log.n_episodes or not both:
        return 0.0
    X = np.concatenate([np.column_stack((half.X, half.b[:, a])) for half in both])
    Z, _ = columns(X, (*log.levels, None) if log.levels else ())
    empty, chance = largest_empty(Z, np.concatenate([half.follows(a) for half in both]))
    if chance > BY_CHANCE and not place.unless:
        return 0.0
    worst = np.concatenate([half.V for half in both]) - log.reward.min()
    loss = worst if chance > BY_CHANCE else WORSE * np.ptp(log.reward)
    return float(np.where(empty, loss, 0.0).mean())


def _sets(claims: int) -> list[tuple[int, ...]]:
    """The sets of claims that may be issued: each alone, the first k, all but one, all."""
    every = range(claims)
    sets = [*((u,) for u in every), *(tuple(every[: k + 1]) for k in every),
            *(tuple(v for v in every if v != u) for u in every), tuple(every)]  # fmt: skip
    return [s for s in dict.fromkeys(sets) if s]


def _by_action(proposals: Sequence[Proposal], proposed_by: Scores) -> list[list[int]]:
    """The proposals that name one action, by place; the surest of the half that proposed first."""
    claims: dict[int, list[int]] = {}
    for k, (_, a) in enumerate(proposals):
        claims.setdefault(a, []).append(k)

    def sure(a: int) -> float:
        mean, parts = proposed_by.inside(*(proposals[k][0] for k in claims[a])).contrast(a)
        return -mean / max(float(np.sqrt((parts**2).sum())), 1e-300)

    return [claims[a] for a in sorted(claims, key=sure)]


def whole(
    steps: Steps, other: Scores, proposals: Sequence[Proposal], seed: int
) -> tuple[Judged, float, Floats]:
    """What following proposals brings on the certifying half: the mean, and parts of its error."""
    certifies = np.bincount(other.group, minlength=len(other.log.groups)) > 0
    size = np.bincount(steps.log.group, weights=steps.log.lengths, minlength=len(certifies))
    chosen = np.ones(len(certifies), bool)
    if steps.log.n_steps > MOST_JUDGED:
        order = np.random.default_rng(seed).permutation(len(certifies))
        chosen[order] = np.cumsum(size[order]) <= MOST_JUDGED
        steps = steps.of_groups(chosen)
    log = steps.log
    found = steps.judged(
        suggestions(log, proposals), folds_of(len(log.groups), ~certifies[chosen], seed)
    )
    mean, own = _by_group(log, found.score, np.flatnonzero(~np.isnan(found.score)))
    parts = np.zeros(len(certifies))
    parts[chosen] = own
    return found, mean if found.sound else np.nan, parts


def _late(
    returns: Scores, united: Sequence[Scores], proposals: Sequence[Proposal],
    claims: Sequence[list[int]], delta: float, seed: int,
) -> Floats:  # fmt: skip
    """For every claim, p of "whole returns say less than the credit does"; 1 where λ is 1."""
    differences = []
    for here, own in zip(united, claims, strict=True):
        a = proposals[own[0]][1]
        whole = returns.inside(*(proposals[k][0] for k in own))
        differences.append(
            cluster_parts(here.psi[:, a] - whole.psi[:, a], here.group, len(here.log.groups))
        )
    means, parts = zip(*differences, strict=True)
    return max_t(np.array(means), np.stack(parts, axis=1), level=delta, seed=seed).p


def _about(other: Scores, proposals: Sequence[Proposal], gamma: float) -> dict[str, Any]:
    """What else is on record of all proposals together."""
    spoken = [(other.inside(place), a) for place, a in proposals]
    changed = sum(int((~here.follows(a)).sum()) for here, a in spoken)
    met, followed = _followers(other, spoken)
    total, _ = sum_of_gains(other, proposals, gamma)
    share = changed / max(len(other.rows), 1)
    return {"sum": total, "changed": share, "met": met, "followed": followed}


def _followers(other: Scores, spoken: Sequence[tuple[Scores, int]]) -> tuple[int, int]:
    """How many episodes come to a suggestion, and how many of them took it every time."""
    log = other.log
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    met, strayed = np.zeros(log.n_episodes, bool), np.zeros(log.n_episodes, bool)
    for here, a in spoken:
        met[episode[here.rows]] = True
        strayed[episode[here.rows[~here.follows(a)]]] = True
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
        "changed": int((~here.follows(a)).sum()) / max(steps, 1),
        **_doses(here, rows, a),
    }


def _width(contrast: Sequence[float]) -> float:
    """How many standard errors lie between a contrast and its lower end; NaN if it has none."""
    mean, se, low, _ = contrast
    return (mean - low) / se if np.isfinite(low) and se > 0 else np.nan


def _doses(here: Scores, rows: NDArray[np.int64], a: int) -> dict[str, float]:
    """Where actions are numbers (doses): the shares of steps that gave less, and that gave more."""
    doses = here.log.actions
    if any(isinstance(dose, str | bool) for dose in doses) or not len(rows) or a >= len(doses):
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
    b, took = scores.b[:, a], scores.follows(a)
    fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
    safe = np.where(fine, b, 0.5)
    worst = worst_case(scores.e, theta[0] + theta[1] * scores.V, gamma)
    return np.asarray(np.where(fine, np.where(took, worst / safe, -scores.e / (1 - safe)), 0.0))


def _theta(there: Scores, a: int, gamma: float) -> tuple[float, float]:
    """The better of the two θ on the half that proposed: θ = first + second · V̂."""
    b, took = there.b[:, a], there.follows(a)
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
