"""Tests of pairs (state, action), whatever counts as a state, and the certificate of those passed.

A part of a log proposes pairs (`propose`); another part, or all of it, tests them, and what it
shows is a `PairTests`: by e-processes of counted visits (`by_visits`: labelled states), or by
returns at first visits (`by_returns`: cells, rules, and whatever is tested for large samples).
`issue` writes the certificate of the pairs that a policy suggests. `dprl.certificate._gate`
explains what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.special import ndtri

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import Cut
from dprl._core.inference import welch
from dprl._core.words import N_, say
from dprl.certificate.assumptions import LogRecord
from dprl.certificate.bounds import dprl_theorem_1, sound_theorem_1
from dprl.certificate.eprocesses import Visits, advantages, refuse_outside_range
from dprl.certificate.evalues import (
    FirstReturns,
    UnmeasuredCause,
    differences,
    first_returns,
    histograms,
    kl_upper,
)
from dprl.certificate.settings import GateSettings
from dprl.evidence.counts import Evidence
from dprl.evidence.decision_points import allowed
from dprl.evidence.propensity import RecordedPropensity
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.log import Label, Log
from dprl.logs.source import Chunk, OfTreated, Source, needs_rows, unseen_words
from dprl.planning.advantages import RARE
from dprl.policies.certificate import Certificate, several_words
from dprl.policies.explain import usual_words
from dprl.policies.protocol import Avoid, Decisions, Kind
from dprl.policies.table import Tabled

# --- Many differences of two means at once, for large samples: step-down max-t over groups
#
# For comparison k let x be the values on one side (returns where the action was taken), y those on
# the other, one value per group, n_x and n_y of them, s_x² and s_y² their variances. With
#
#     v_x = s_x²/n_x      v_y = s_y²/n_y      s² = ((n_x - 1) s_x² + (n_y - 1) s_y²) / (n_x + n_y
#     - 2)
#
#     T_k = (mean x - mean y) / se      se² = max( v_x + v_y,  s² (1/n_x + 1/n_y) )
#
# The second number under the maximum is the variance of the difference where both sides vary alike,
# as they do where there is no difference. It protects against a side that happened not to vary: 100
# successes out of 100 tell little if one in fifty fails elsewhere, although s_x = 0.
#
# Under "no difference" T is nearly normal, with the correlations that groups with a part in several
# comparisons make. They are drawn by giving every group a random sign ξ_g. With m_x and m_y the
# sums of the signed deviations from the means, divided by n_x and n_y,
#
#     T*_k = (m_x - m_y) / √( v_x - m_x²/n_x + v_y - m_y²/n_y )
#
# (each side is divided by the error that its own signed values show, so that a side of ten has the
# tails of a sample of ten). So that the heavy tails of a small comparison do not make the others
# pay, T and T* are put on one scale, that of a normal variable: with df the degrees of freedom of
# Satterthwaite (Wallace, 1959)
#
#     z(t) = sign(t) (8 df + 1)/(8 df + 3) √( df ln(1 + t²/df) )
#
# The adjusted p-value of the largest z compares it with the maximum of all z*, that of the next
# with the maximum of the remaining ones, and so on, never smaller than the one before (Romano and
# Wolf, 2005). Lower ends use the maximum of all z*. Comparisons with fewer than 10 values on a side
# are left out beforehand; how many there are says nothing about their values.
#
# Rare losses that an action had in other states only (one in seventy loses 10) leave both the mean
# and the spread of a comparison too good. Over all states that the log has, d the deviations from
# the mean of the side of their state, N of them,
#
#     D = max(0, -∑ d³ / ∑ d²)      q = ∑ d² / N / D²      D_r = D √max(0, 1 - q/`RARE`)
#
# are the size of the losses of those who took a, their share, and the size as far as they are rare;
# on the other side the same of gains. One more of them counts on each side, o² = max(0, D_r²/n² -
# v): v grows by o², and (1 + 2 z²)/6 · o is taken off the difference, z the normal quantile at the
# level of the ends (Johnson, 1978: the term of a mean whose distribution leans to one side).
#
# Nothing here needs the range of the values. All of it is an approximation that gets better with
# more values on either side: never *proved*.

LEAST = 20
"""Values on either side from which on the error of the approximation was measured."""

FEWEST = 10
"""Values that either side must have to be compared at all."""

DRAWS, MOST_DRAWS = 4_999, 199_999
"""Draws of signs: so many, and more where the level is small, up to the second number."""

AT_ONCE = 1 << 22
"""Number of signs that are kept in memory at once."""


@dataclass(frozen=True, eq=False)
class Comparisons:
    """K differences of means, mean x - mean y, judged together.

    Attributes:
        difference: float64 (K,), NaN where a side is empty.
        p: float64 (K,), adjusted for all K; 1 where a side has fewer than 10 values or nothing
            varies.
        low: float64 (K,), lower ends that hold for all K at once; -inf where p is 1 for the reasons
            above.
    """

    difference: Floats
    p: Floats
    low: Floats


def compare(
    which: Ints, is_x: Bools, value: Floats, group: Ints, count: int, *, level: float, ends: float,
    seed: int = 0, rare: Floats | None = None,
) -> Comparisons:  # fmt: skip
    """Compare two sides, in `count` comparisons at once.

    Args:
        which: int64 (n,), the comparison that each value belongs to, 0..count-1.
        is_x: bool (n,), true for values of side x, false for side y.
        value: float64 (n,), the values; at most one per group in each comparison.
        group: int64 (n,), the group of each value, codes from 0.
        count: K, the number of comparisons.
        level: Level of the p-values, which says how many draws are needed.
        ends: Level of the lower ends, all K together.
        seed: Seed of the signs. Default 0.
        rare: float64 (2K,), D_r of side x, then of side y. Default None: nothing is known of them.
    """
    side = which + count * ~is_x  # x of all comparisons, then y of all
    n = np.bincount(side, minlength=2 * count)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(side, weights=value, minlength=2 * count) / n
        squares = np.bincount(side, weights=(value - mean[side]) ** 2, minlength=2 * count)
        variance = squares / (n - 1) / n
        (n_x, n_y), (v_x, v_y) = n.reshape(2, -1), variance.reshape(2, -1)
        alike = squares.reshape(2, -1).sum(axis=0) / (n_x + n_y - 2) * (1 / n_x + 1 / n_y)
        more = np.maximum((0.0 if rare is None else rare / n) ** 2 - variance, 0.0).reshape(2, -1)
        se = np.sqrt(np.maximum(v_x + v_y + more.sum(axis=0), alike))
        off = (1 + 2 * ndtri(1 - ends) ** 2) / 6 * np.sqrt(more).sum(axis=0)
        difference = mean[:count] - mean[count:]
        t = (difference - off) / se
        df = (v_x + v_y) ** 2 / (v_x**2 / (n_x - 1) + v_y**2 / (n_y - 1))
        df = np.where(np.isfinite(df), df, n_x + n_y - 2)
    fine = (np.minimum(n_x, n_y) >= FEWEST) & (se > 0) & np.isfinite(t)
    p, low = np.ones(count), np.full(count, -np.inf)
    if fine.any():
        z = np.full(count, -np.inf)
        z[fine] = normal_scale(t[fine], df[fine])
        order = np.flatnonzero(fine)[np.argsort(-z[fine], kind="stable")]
        parts = _parts(side, group, (value - mean[side]), n, order, count)
        draws = int(min(max(DRAWS, math.ceil(40 / min(level, ends))), MOST_DRAWS))
        beyond, top = _draw(parts, n, variance, z[order], df[order], order, count, draws, seed)
        p[order] = np.maximum.accumulate((1 + beyond) / (draws + 1))
        critical = float(np.quantile(top, 1 - ends, method="higher"))
        low[order] = (difference - off)[order] - student_scale(critical, df[order]) * se[order]
    return Comparisons(difference, p, low)


def compare_pairs(
    source: Source | Log,
    gamma: float,
    wanted: Bools,
    *,
    level: float,
    ends: float,
    seed: int = 0,
    cut: Cut | None = None,
) -> Comparisons:
    """Returns of first visits that took an action against those that did not, for wanted pairs.

    Args:
        source: A log with labelled states.
        gamma: Discount per step, in (0, 1].
        wanted: bool (S, A), or (S, 2A) with "not a" after all a: what is compared; the result has
            it in this order.
        level: Level of the p-values.
        ends: Level of the lower ends, all pairs together.
        seed: Seed of the signs. Default 0.
        cut: What is done with cut episodes. Default None: there are none.
    """
    visits = first_returns(source, np.ones(len(wanted), bool), gamma, cut)
    pairs = np.argwhere(wanted)
    members = [np.arange(len(visits.G))[visits.of_state(s)] for s, _ in pairs]
    which = np.repeat(np.arange(len(pairs)), [len(m) for m in members])
    at = np.concatenate(members) if members else np.empty(0, np.int64)
    took = np.empty(0, bool)
    if len(at):
        action, avoid = np.divmod(pairs[which, 1], source.facts.n_actions)[::-1]
        took = (visits.action[at] == action) != (avoid > 0)
    rare = np.zeros((2, wanted.shape[1]))
    for column in np.flatnonzero(wanted.any(axis=0)):
        avoid, action = divmod(int(column), source.facts.n_actions)
        rare[:, column] = _rare(visits, (visits.action == action) != (avoid > 0))
    return compare(
        which, took, visits.G[at], visits.group[at], len(pairs), level=level, ends=ends, seed=seed,
        rare=rare[:, pairs[:, 1]].ravel(),
    )  # fmt: skip


def _rare(visits: FirstReturns, took: Bools) -> tuple[float, float]:
    """The size of rare losses of those who took an action, and of rare gains of the others."""
    side = 2 * visits.state.astype(np.int64) + took
    n = np.maximum(np.bincount(side), 1)
    d = visits.G - (np.bincount(side, weights=visits.G) / n)[side]
    sizes = []
    for here, sign in ((took, -1.0), (~took, 1.0)):
        squares = float((d[here] ** 2).sum())
        size = sign * float((d[here] ** 3).sum()) / squares if squares else 0.0
        share = squares / here.sum() / size**2 if size > 0 else 1.0
        sizes.append(max(size, 0.0) * math.sqrt(max(1 - share / RARE, 0.0)))
    return sizes[0], sizes[1]


def normal_scale(t: Floats, df: Floats) -> Floats:
    """A value of Student's t as one of a normal variable that is exceeded as often (Wallace)."""
    return np.asarray(np.sign(t) * (8 * df + 1) / (8 * df + 3) * np.sqrt(df * np.log1p(t * t / df)))


def student_scale(z: float, df: Floats) -> Floats:
    """The inverse of `normal_scale`."""
    scaled = z * (8 * df + 3) / (8 * df + 1)
    with np.errstate(over="ignore"):
        return np.asarray(np.sign(z) * np.sqrt(df * np.expm1(scaled * scaled / df)))


def _parts(side: Ints, group: Ints, deviation: Floats, n: Ints, order: Ints, count: int) -> Any:
    """Sparse (2k, groups): what each group adds to the error of x, then of y, in this order."""
    from scipy.sparse import csr_array

    place = np.full(2 * count, -1, np.int64)
    place[order] = np.arange(len(order))
    place[order + count] = len(order) + np.arange(len(order))
    used = np.flatnonzero((place[side] >= 0) & (deviation != 0))
    size = n[side[used]].astype(np.float64)
    sign = np.where(side[used] < count, 1.0, -1.0)
    column = np.unique(group[used], return_inverse=True)[1].reshape(-1)
    share = sign * deviation[used] / np.sqrt(size * (size - 1))
    groups = int(column.max()) + 1 if len(column) else 1
    return csr_array((share, (place[side[used]], column)), shape=(2 * len(order), groups))


def _draw(
    parts: Any, n: Ints, variance: Floats, z: Floats, df: Floats, order: Ints, count: int,
    draws: int, seed: int,
) -> tuple[Ints, Floats]:  # fmt: skip
    """How many draws reach each z in the step-down order (k,), and the largest z* of each draw."""
    rng, k = np.random.default_rng(seed), len(order)
    both = np.concatenate((order, order + count))
    v, size = variance[both][:, None], n[both][:, None]
    groups = parts.shape[1]
    width = -(-groups // 8)
    several = int(min(1_024, max(16, AT_ONCE // groups)))
    beyond, tops = np.zeros(k, np.int64), []
    for begin in range(0, draws, several):
        now = min(several, draws - begin)
        bits = np.frombuffer(rng.bytes(now * width), np.uint8).reshape(now, width)
        signs = 2.0 * np.unpackbits(bits, axis=1, count=groups) - 1.0
        moved = parts @ signs.T
        left = np.maximum(v - moved**2 / size, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            T = (moved[:k] + moved[k:]) / np.sqrt(left[:k] + left[k:])
        T[np.isnan(T)] = np.inf
        highest = np.maximum.accumulate(normal_scale(T, df[:, None])[::-1], axis=0)[::-1]
        beyond += (highest >= z[:, None]).sum(axis=1)
        tops.append(highest[0])
    return beyond, np.concatenate(tops)


# --- Tests of pairs (state, action), whatever counts as a state, and the certificate of those
# passed

Learner: TypeAlias = DPRLDiscrete | DPRLContinuous
P = TypeVar("P", bound=Tabled)

DELTA_SHARES = {True: (0.7, 0.1, 0.2), False: (0.9, 0.1, 0.0)}
"""Markov claimed → the shares of δ for e-values of visits, for p, and for how often states are met.
"""

DIFFERENCES, SHARES, REACH = 0.9, 0.05, 0.05
"""Of tests of returns, the shares of δ for differences, for p, and for how often states are met."""

ISSUE, ENDS = 0.6, 0.3
"""For large samples the differences need two parts: one to issue pairs, one for lower ends."""


@dataclass(frozen=True, eq=False)
class PairTests:
    """What one part of a log certifies. Arrays are (S, A); only tested pairs hold a bound.

    Where a part also says what to avoid they are (S, 2A): "not a" comes after all a. Whoever does
    anything but a has then taken the action, as it were, and whoever takes a has not.

    Attributes:
        pairs: bool, whether the pair is certified.
        low: Lower bound of E x - E y in units of returns, -inf where not tested; never below 0
            where a large-sample test has passed.
        advantage: Lower bound of the advantage in units of returns, -inf where not tested.
        log_e: Natural logarithm of the e-value of "no benefit", 0 where not tested.
        p_high: Upper bound of p, the probability of the action, 1 where not tested.
        evidence: Evidence of the part of the log that certifies.
        tested: Number of pairs that the level was divided among.
        difference: Estimate of E x - E y in units of returns; None where it is that of the
            evidence.
        gamma_star: Γ* of each certified pair, NaN where not certified; None before `at_gamma`, and
            for large samples.
        gamma_point: Γ* as estimated, without allowance for chance; NaN where not tested, None
            where gamma_star is None.
        p: p-value of "no benefit" for large samples, adjusted so that δ is what it is compared
            with; None where e-values were used.
    """

    pairs: Bools
    low: Floats
    advantage: Floats
    log_e: Floats
    p_high: Floats
    evidence: Evidence
    tested: int
    difference: Floats | None = None
    gamma_star: Floats | None = None
    gamma_point: Floats | None = None
    p: Floats | None = None

    @classmethod
    def empty(cls, evidence: Evidence, shape: tuple[int, ...], tested: int) -> PairTests:
        """Nothing is tested yet."""
        low = np.full(shape, -np.inf)
        return cls(
            np.zeros(shape, bool), low, low.copy(), np.zeros(shape), np.ones(shape), evidence,
            tested,
        )  # fmt: skip


# -- propose ---------------------------------------------------------------------------------------


def half_n_min(learner: Learner) -> float:
    """How many trajectories an action needs in the half that proposes: half of n_min."""
    return learner.n_min if math.isinf(learner.n_min) else max(1.0, math.ceil(learner.n_min / 2))


def propose(
    evidence: Evidence, learner: Learner, available: Bools | None, avoid: bool = False
) -> Bools:
    """bool (S, A), or (S, 2A) with `avoid`: what one half of the log proposes.

    It passes the learner's rule with half of n_min, and its uncorrected Welch bound is above 0.
    """
    n_min = half_n_min(learner)
    pairs = allowed(evidence, n_min, contrast=learner.contrast, available=available)
    took, others = evidence.took, evidence.others
    one, other = (took.n, took.mean, took.sd), (others.n, others.mean, others.sd)
    low = welch(*one, *other)[0]
    if avoid:
        pairs = np.hstack((pairs, avoidable(evidence, n_min, available)))
        low = np.hstack((others.n * low, took.n * welch(*other, *one)[0]))
    return of_one_kind(np.asarray(pairs & (low > 0)), low, took.n.shape[1])


def of_one_kind(pairs: Bools, low: Floats, A: int) -> Bools:
    """The proposed pairs (S, A or 2A), in each state actions to take or one to avoid, not both.

    One to avoid is proposed where the lower end `low` of its estimated advantage is above those of
    all actions to take: then none of them stands out, and fewer pairs share the level.
    """
    if pairs.shape[1] == A:
        return pairs
    low = np.where(pairs, low, -np.inf)
    take, warn = low[:, :A].max(axis=1), low[:, A:]
    warns = warn.max(axis=1) > take
    best = warn.argmax(axis=1)[:, None] == np.arange(A)
    return np.asarray(pairs & np.hstack((np.tile(~warns[:, None], A), best & warns[:, None])))


def contradicted(evidence: Evidence, width: int) -> Bools:
    """bool (S, width): pairs whose first visits say the opposite, each by Welch's 95 % interval."""
    took, others = evidence.took, evidence.others
    low, high = welch(took.n, took.mean, took.sd, others.n, others.mean, others.sd)
    with np.errstate(invalid="ignore"):
        return np.hstack((high < 0, low > 0))[:, :width]


ONE_OTHER = 0.8
"""Where one action has more than this share of all others, "not a" would be that action."""


def avoidable(evidence: Evidence, n_min: float, available: Bools | None) -> Bools:
    """bool (S, A): what may be avoided, as far as counts say and the mean return does.

    n_min trajectories took it at their first visit and n_min did otherwise; these did better; and
    several actions are left, of which none alone is nearly all that is left. Where the log says
    what was available, the action always was, and so was another one.
    """
    took, others = evidence.took, evidence.others
    stated = took.n.copy()
    if evidence.rest:
        stated[:, -1] = 0  # it is not said what they did
    if stated.shape[1] < 3:
        return np.zeros(stated.shape, bool)
    second, first = np.sort(stated, axis=1)[:, -2:, None].transpose(1, 0, 2)
    most = np.where(stated == first, second, first)  # the most that one of the others has
    left = evidence.n_others
    with np.errstate(invalid="ignore"):
        worse = took.mean < others.mean
    pairs = worse & (stated >= n_min) & (left >= n_min) & (most <= ONE_OTHER * left)
    if available is not None:
        own = available.shape[1]
        pairs[:, :own] &= available & (available.sum(axis=1, keepdims=True) > 1)
    return np.asarray(pairs)


def fair_pairs(wanted: Bools, chances: RecordedPropensity | None, settings: GateSettings) -> Bools:
    """The pairs (S, A) where takers may be compared with others, as far as the log records it."""
    return wanted if chances is None else wanted & chances.fair(settings.confounding)[:, None]


def some_of(log: Log, groups: Bools, cut: Cut | None, gamma: float) -> Log:
    """The episodes of some groups, bool (groups,), cut ones treated; it may have none."""
    treated = Chunk(log).some(groups, cut, gamma, "transitions")
    return log.take([]) if treated is None else treated


# -- certify ---------------------------------------------------------------------------------------


def by_visits(
    visits: Visits,
    evidence: Evidence,
    wanted: Bools,
    settings: GateSettings,
    tested: int,
    share: float,
    learned_from: Visits | None = None,
    unstated: Ints | None = None,
    chances: RecordedPropensity | None = None,
) -> PairTests:
    """Test the wanted pairs (S, A or 2A) by e-processes, at level δ·share divided among `tested`.

    `unstated` (S,): visits among the others of which nobody says what they did (`advantages`).
    `chances` are the recorded probabilities of actions: p is taken from them where they say it.
    """
    tests = replace(
        PairTests.empty(evidence, wanted.shape, tested), difference=np.full(wanted.shape, np.nan)
    )
    A = len(visits.actions)
    assert tests.difference is not None  # it was made above
    for begin in range(0, wanted.shape[1], A):  # what to take, then what to avoid
        state, action = np.nonzero(wanted[:, begin : begin + A])
        if not len(state):
            continue
        at = state, begin + action
        each, (of_e, of_p, _) = settings.delta * share / tested, DELTA_SHARES[visits.markov]
        nats = -math.log(of_e * each) - 1e-12
        result = advantages(
            visits,
            state * A + action,
            nats,
            -math.log(of_p * each / 2),
            learned_from=learned_from,
            unstated=unstated,
            p=None if chances is None else chances.p[state, action],
            avoid=begin > 0,
        )
        tests.log_e[at], tests.advantage[at] = result.log_e, result.low
        tests.p_high[at] = result.p_high
        tests.difference[at] = result.difference
        tests.low[at] = result.low / (1 - result.p_low)  # E x - E y is A/(1 - p)
        # Later visits alone may prove it; a row says how many took it at their first one.
        taken = (evidence.others if begin else evidence.took).n[state, action] > 0
        tests.pairs[at] = (result.log_e >= nats) & taken
        if settings.margin > 0:
            tests.pairs[at] &= result.low > settings.margin
    return tests


def by_returns(
    source: Source | Log,
    evidence: Evidence,
    wanted: Bools,
    gamma: float,
    settings: GateSettings,
    tested: int,
    share: float,
    proposed_by: Log | None = None,
    chances: RecordedPropensity | None = None,
    cut: Cut | None = None,
) -> PairTests:
    """Test the wanted pairs by returns at first visits, at level δ·share divided among `tested`.

    `proposed_by` is the part of the log that proposed them, for Γ*; None where the whole log did
    both. For large samples there is no Γ*. `chances` are the recorded probabilities of actions:
    pairs are not tested where they differ from row to row.
    """
    large = settings.grade == "large-sample"
    wanted = fair_pairs(wanted, chances, settings)
    estimated = large and unseen_words(source.facts.columns)  # single ones may leave the range
    if settings.value_range is not None and not estimated:
        refuse_outside_range(source, gamma, cut, settings.value_range)
    tests = PairTests.empty(evidence, wanted.shape, tested)
    passed, low, p_value = tests.pairs, tests.low, np.ones(wanted.shape)
    at = np.nonzero(wanted)
    each = settings.delta * share / max(tested, 1)
    if len(at[0]):
        if large:
            family = settings.delta * share
            together = compare_pairs(
                source, gamma, wanted, level=ISSUE * family, ends=ENDS * family, cut=cut
            )
            p_value[at] = np.minimum(together.p / (ISSUE * share), 1.0)
            passed[at] = p_value[at] <= settings.delta
            low[at] = np.where(passed[at], np.maximum(together.low, 0.0), together.low)
        else:
            A = len(evidence.actions)
            counts = histograms(needs_rows(source, "this test"), gamma, settings.known_range)
            for begin, own in ((0, counts), (A, counts.mirrored())):  # E y - E x, of the mirrored
                columns = np.zeros(wanted.shape, bool)
                columns[:, begin : begin + A] = wanted[:, begin : begin + A]
                mine = np.nonzero(columns)
                result = differences(own, mine[0] * A + mine[1] - begin, DIFFERENCES * each)
                low[mine], tests.log_e[mine] = result.low, result.log_e
            passed[at] = tests.log_e[at] >= -math.log(DIFFERENCES * each) - 1e-12
        (action, avoid), total = as_answers(at[1], evidence), evidence.state.n[at[0]]
        took = evidence.took.n[at[0], action]
        took = np.where(avoid, total - took, took)
        with np.errstate(invalid="ignore"):
            p = np.where(total > 0, took / np.maximum(total, 1), 1.0)
        p_high = kl_upper(p, total, -math.log(SHARES * each))
        if chances is not None:
            known = chances.p[at[0], action]
            p_high = np.where(np.isnan(known), p_high, np.where(avoid, 1 - known, known))
        tests.p_high[at] = p_high
        above = (1 - p_high) * np.maximum(low[at], 0.0)
        tests.advantage[at] = np.where(low[at] > 0, above, low[at])
        if settings.margin > 0:
            passed[at] &= tests.advantage[at] > settings.margin
    if large:
        return replace(tests, p=p_value)
    hidden = None
    if len(at[0]):
        hidden = UnmeasuredCause.of(source, at, gamma, settings.known_range, proposed_by, cut)
    return at_gamma(tests, hidden, wanted, settings, DIFFERENCES * each)


def at_gamma(
    tests: PairTests,
    hidden: UnmeasuredCause | None,
    wanted: Bools,
    settings: GateSettings,
    alpha: float,
) -> PairTests:
    """The same tests with Γ* of each certified pair, by the returns of first visits.

    Where `settings.confounding` is above 1, bounds and what is certified are those at this Γ.

    Args:
        tests: What was proved without an unrecorded cause, by whatever e-value.
        hidden: The outcomes of the wanted pairs; None where no pair is wanted.
        wanted: bool (S, A), the pairs that were tested.
        settings: The settings of the gate.
        alpha: Level of the e-value of each pair.
    """
    at = np.nonzero(wanted)
    star, point = np.full(wanted.shape, np.nan), np.full(wanted.shape, np.nan)
    if hidden is None:
        return replace(tests, gamma_star=star, gamma_point=point)
    rest = 1 - tests.p_high[at]
    if settings.confounding > 1:
        low, log_e, advantage = (x.copy() for x in (tests.low, tests.log_e, tests.advantage))
        low[at], log_e[at] = hidden.at(settings.confounding, alpha, np.arange(len(at[0])))
        advantage[at] = np.where(low[at] > 0, rest * low[at], low[at])
        passed = np.zeros(wanted.shape, bool)
        passed[at] = tests.pairs[at] & (log_e[at] >= -math.log(alpha) - 1e-12)
        if settings.margin > 0:
            passed[at] &= advantage[at] > settings.margin
        tests = replace(tests, pairs=passed, low=low, log_e=log_e, advantage=advantage)
    star[at] = hidden.strongest(
        tests.pairs[at], alpha, settings.confounding, settings.margin, rest
    )  # fmt: skip
    point[at] = hidden.points()
    return replace(tests, gamma_star=star, gamma_point=point)


def as_answers(codes: Any, evidence: Evidence) -> tuple[Any, Any]:
    """Columns of tests as codes of actions, and whether they are to be avoided."""
    avoid, action = np.divmod(codes, len(evidence.actions))
    return action, avoid > 0


def best_low(tests: Sequence[PairTests], choice: Codes) -> Floats:
    """The best certified lower bound of E x - E y at each choice, (S,); 0 where it defers."""
    rows = np.flatnonzero(choice >= 0)
    result = np.zeros(len(choice))
    for one in tests:
        at = (rows, choice[rows])
        result[rows] = np.maximum(result[rows], np.where(one.pairs[at], one.low[at], 0.0))
    return result


# -- issue -----------------------------------------------------------------------------------------


def _most_met(log: Log, choice: Codes) -> int:
    speaks = (choice[log.codes()] >= 0).astype(np.int64)
    return int(np.add.reduceat(speaks, log.starts[:-1]).max())


def most_met(source: Source, choice: Codes, cut: Cut | None = None) -> int:
    """The most suggestions that one episode meets, of a policy with these choices (S,)."""
    return source.reduce(OfTreated(_most_met, (choice,), max, cut))


def strength(tests: PairTests, s: int, a: int) -> dict[str, float]:
    """How strong the evidence for a pair is: its e-value, or its p-value for large samples."""
    if tests.p is not None:
        return {"p": float(tests.p[s, a])}
    return {"log10_e": float(tests.log_e[s, a] / math.log(10))}


def row_of(
    tests: Sequence[PairTests], s: int, a: int, label: Label, suggested: Label,
    decisions: Decisions, place: int,
) -> dict[str, Any]:  # fmt: skip
    """The row of a certificate for the pair (s, a), from the part that showed most.

    Args:
        tests: What each part of the log certifies; one of them at least certified this pair.
        s: The state, as tests number it.
        a: The action to take or to avoid, as tests number it.
        label: What the row calls the state.
        suggested: What it calls the action.
        decisions: The decisions of the policy.
        place: The place of the state among them.
    """
    passed = [one for one in tests if one.pairs[s, a]]
    best = max(passed, key=lambda one: (one.low[s, a], one.log_e[s, a]))
    counted, estimates = best.evidence, best.difference
    action, avoid = as_answers(a, counted)
    took, others = (counted.others, counted.took) if avoid else (counted.took, counted.others)
    if estimates is None:
        difference = took.mean[s, action] - others.mean[s, action]
    else:
        difference = estimates[s, a]
    row = {
        "state": label,
        "kind": Kind(decisions.kind[place]).word,
        "usual": usual_words(decisions, place),
        "suggested": str(Avoid(suggested)) if avoid else suggested,
        **({"avoid": suggested} if avoid else {}),
        "n": int(took.n[s, action]),
        "others": int(others.n[s, action]),
        "difference": float(difference),
        "low": float(best.low[s, a]),
        "advantage_low": float(best.advantage[s, a]),
        **strength(best, s, a),
    }
    stars = [float(one.gamma_star[s, a]) for one in passed if one.gamma_star is not None]
    if best.gamma_point is not None and stars:
        row |= {"gamma_star": max(stars), "gamma_point": float(best.gamma_point[s, a])}
    return row


def certificate_of(
    rows: Sequence[Mapping[str, Any]],
    tests: Sequence[PairTests],
    record: LogRecord,
    settings: GateSettings,
    **more: Any,
) -> Certificate:
    """The certificate of rows that were tested one by one; `more` are its further attributes."""
    approximation = {}
    if settings.grade != "proved":
        smallest = min((min(row["n"], row["others"]) for row in rows), default=0)
        approximation = {"measured_from": LEAST, "smallest": int(smallest)}
    return Certificate(
        delta=settings.delta,
        margin=settings.margin,
        value_range=settings.value_range,
        tested=tuple(one.tested for one in tests),
        rows=tuple(rows),
        log=record.log,
        confounding=settings.confounding,
        grade=settings.grade,
        approximation=approximation,
        outcome=record.facts.outcome,
        **more,
    )


def issue(
    policy: P,
    tests: Sequence[PairTests],
    learner: Learner,
    record: LogRecord,
    settings: GateSettings,
    *,
    mode: str,
    groups: int,
    gain: float | None,
    assumptions: Sequence[str],
    most: Callable[[], int | None],
    notes: Sequence[str] = (),
    cells: Mapping[str, Any] | None = None,
) -> P:
    """The policy with its certificate attached.

    Args:
        policy: The policy; it suggests only what was certified.
        tests: What each part of the log certifies.
        learner: The learner whose rule proposed.
        record: What is known of the log.
        settings: The settings of the gate.
        mode: The kind of certificate.
        groups: Groups that are left once cut episodes are treated.
        gain: The certified gain; None where it is not bounded.
        assumptions: What it rests on, one sentence each.
        most: Gives the most suggestions that one episode meets; None where nobody knows.
        notes: Sentences for the reader.
        cells: Facts about cells of features; None for labelled states.
    """
    here, A = policy.decisions, len(tests[0].evidence.actions)
    rows = [
        row_of(
            tests, int(s), int(here.named[s] + A * (here.choice[s] < 0)), policy.states[s],
            policy.actions[here.named[s]], here, int(s),
        )
        for s in np.flatnonzero(here.speaks)
    ]  # fmt: skip
    values = {} if settings.value_range is None else _theorems(policy, learner, settings, groups)
    certificate = certificate_of(
        rows,
        tests,
        record,
        settings,
        mode=mode,
        gamma=float(learner.gamma),
        groups=groups,
        gain=gain if rows else None,
        bounds={k: v if math.isfinite(v) else None for k, v in values.items()},
        assumptions=tuple(assumptions),
        notes=(*notes, *_several(rows, most)),
        cells=cells or {},
        visits="all" if cells is None and settings.by_all_visits else "first",
        markov=cells is not None or settings.markov,
    )
    return replace(policy, certificate=certificate)


def _theorems(
    policy: Tabled, learner: Learner, settings: GateSettings, groups: int
) -> dict[str, float]:
    """What Theorem 1 would say of the policy, as published and as it can be proved."""
    low, high = settings.known_range
    facts: dict[str, Any] = {"gamma": learner.gamma, "v_min": low, "v_max": high,
                             "delta": settings.delta}  # fmt: skip
    enough = int((policy.n >= learner.n_min).sum())
    published = dprl_theorem_1(enough, learner.n_min, **facts)
    sound = sound_theorem_1(
        max(len(policy.states), 1),
        len(policy.actions),
        groups,
        settings.horizon or math.inf,
        learner.n_min,
        contrast=learner.contrast,
        **facts,
    )
    return {
        N_("Theorem 1, as published"): published.value,
        N_("Theorem 1, sound"): sound.value,
    }


def _several(rows: Sequence[Mapping[str, Any]], count: Callable[[], int | None]) -> list[str]:
    """What Γ* says of all suggestions together, where an episode meets several of them."""
    if not rows or not all("gamma_star" in row for row in rows):
        return []
    most = count()
    if most is None:
        return [
            say("How many suggestions one episode meets is not known without rows: Γ* is of each.")
        ]
    return [several_words(min(r["gamma_star"] for r in rows), most)] if most > 1 else []
