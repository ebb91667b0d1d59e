"""E-processes of "this action is no better than usual", from all visits of a state.

For one state s and action a let V, Q and E y be the values of usual practice at s, of taking a
there, and of doing otherwise; p = b(a|s), and everything on the scale [0, 1]. A visit with R and D
(`dprl.certificate.eprocesses`) brings Z_v = R + D v if coming back is worth v. At v = V its mean
is Q where a was taken and E y where it was not, whatever happened before. "A(s,a) <= c" with c >=
0 implies

    Q <= V + c        E y >= V - c o        o = p/(1-p), or more

V is unknown. For the cells [v0, v1] of a fixed grid and fractions f_j (12, geometric from .01 to
.95), with u = min(v1 + c, 1) and m = max(v0 - c o, 0), products over visits

    X_j = ∏ over visits that took a      (1 + f_j (max(Z_v0, 0)/u - 1))
    Y_j = ∏ over visits that did not     (1 + f_j ((1 - min(Z_v1, 1))/(1 - m) - 1))
    K   = ∑ over pairs (i, j) of w_ij X_i Y_j        w_ij >= 0, adding up to 1
    E(c) = min over cells of K

In the cell that holds V every factor has mean at most 1 given all visits before, so K is a
nonnegative supermartingale that begins at 1, and so P(E(c) ever reaches 1/α) <= α (Ville). This is
an e-process: one may look at it after every group. The weights are fixed before the first visit.
Half of w is on all pairs of fractions (in proportion to √(f_i f_j)), half on pairs in proportion:
f_j/f_i nearest to r (1-m)/m, the best pair of bets where r = n_x/n_y, for r = 1/9, 1/3, 1, 3, 9.
They depend on the cell alone, never on how many visits there were in the end.

Where other groups were seen before (the half that proposed), weights may depend on them: three
quarters of w_ij are then in proportion to w_ij X_i Y_j as those groups would have it. Bets that
won there are made again, and less is lost on others.

The grid has 4,000 cells. Only those that could hold the minimum are looked at: a coarse cell (400
of them) and a block (40) bound their fine cells from below, since Z_v0 and Z_v1 are monotone and
the weights are the same in all fine cells of a coarse one. The result is the minimum over all of
them.

A lower bound of the advantage at level α is the largest c with E(c) >= 1/α: E falls with c and with
o, so only the true c and p matter, and nothing is paid for the search.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import Cut, check_gamma, check_range
from dprl._core.compiled import compiled, in_parts
from dprl._core.words import worded
from dprl.certificate.evalues import FRACTIONS, RATIO, WORTH_A_THREAD, checked_returns
from dprl.errors import LogError, ParameterError
from dprl.evidence.sites.evidence import SLACK, UNITS, unit_bins
from dprl.logs.log import Label, Log
from dprl.logs.returns import outside_error, outside_range, powers, returns
from dprl.logs.source import Chunk, OfTreated, Source, in_order

# --- What every counted visit of a state led to: all that the e-processes of the gate need to
# keep
#
# Returns are put on the scale [0, 1] by their range (g_lo, g_hi), which is known beforehand. A
# visit of s at step t, with the same state visited next at step t + k of the episode, leads to
#
#     R = G_t - γ^k G_{t+k}        D = γ^k             (R = G_t and D = 0 if s is not visited
#     again)
#
# so that R + D v is what the visit brings if coming back is worth v. There are two ways to count:
#
# * ``markov=True``: all visits of s in the *first episode of a group that visits s*. Later episodes
#   of the group do not count for s: what is claimed of the state is claimed within an episode, and
#   a patient who comes a hundred times has one vote.
# * ``markov=False``: the first visit of s by a group, with R = G and D = 0.
#
# `Visits` holds whole numbers only: for every pair (state, action), how often a way back of k steps
# came with an R in a certain bin. R is either a whole number i of units of 1/4000 or lies between i
# and i + 1, and each case has a bin,
#
#     bin 2i      R = i/4000                    rounded down i      rounded up i
#     bin 2i + 1  i/4000 < R < (i+1)/4000       rounded down i      rounded up i + 1
#
# so R can be rounded against either hypothesis. A difference of less than 1e-9 to a whole number of
# units is rounding of the computer, and the e-process leaves room for it. Visits of disjoint groups
# are put together with `merge`: the counts add up to those of the whole, bit for bit, in any order.

COLUMNS = ("pair", "gap", "bin", "count")


@dataclass(frozen=True, eq=False)
class Visits:
    """What counted visits led to; immutable.

    Attributes:
        pair: int64 (n,), rising: s·A + a.
        gap: int64 (n,), the steps k until the state was visited again; 0 where it was not.
        bin: int64 (n,), the bin of R; it may be below 0.
        count: int64 (n,), number of visits, at least 1.
        states: The state labels, in the order of s.
        actions: The action labels, in the order of a.
        gamma: Discount per step.
        value_range: (g_lo, g_hi), the lowest and highest return, known beforehand.
        markov: Whether all visits of an episode count, or first visits alone.
        n_groups: Number of groups (episodes, where no group was given).
    """

    pair: Ints
    gap: Ints
    bin: Ints
    count: Ints
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    value_range: tuple[float, float]
    markov: bool
    n_groups: int

    def merge(self, later: Visits) -> Visits:
        """The visits of two parts of a log together, where no group is in both parts."""
        for name in ("states", "actions", "gamma", "value_range", "markov"):
            if getattr(self, name) != getattr(later, name):
                raise LogError(
                    f"visits with different {name} cannot be merged.",
                    do=worded(
                        "Read the parts with the same states, actions, gamma and {value_range}."
                    ),
                )
        pair, gap, bins, count = counted(
            *(np.concatenate((getattr(self, c), getattr(later, c))) for c in COLUMNS)
        )
        n = self.n_groups + later.n_groups
        return replace(self, pair=pair, gap=gap, bin=bins, count=count, n_groups=n)

    def of_state(self, state: int) -> slice:
        """The entries of a state, whatever the action."""
        A = len(self.actions)
        first, last = np.searchsorted(self.pair, (state * A, (state + 1) * A))
        return slice(int(first), int(last))


def counted(pair: Ints, gap: Ints, bins: Ints, count: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The same columns, sorted, with equal entries added up."""
    order = np.lexsort((bins, gap, pair))
    pair, gap, bins, count = pair[order], gap[order], bins[order], count[order]
    new = np.ones(len(pair), bool)
    new[1:] = (np.diff(pair) != 0) | (np.diff(gap) != 0) | (np.diff(bins) != 0)
    at = np.flatnonzero(new)
    total = np.add.reduceat(count, at) if len(at) else count
    return pair[at], gap[at], bins[at], total


@compiled
def _count_rows(
    starts: Ints, state: Codes, group: Codes, every: bool, S: int,
    counted: Bools,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Mark the rows that count, of a gathered log; `every` visit of an episode or the first."""
    last_group, home = np.full(S, -1, np.int64), np.full(S, -1, np.int64)
    for e in range(len(starts) - 1):
        for t in range(starts[e], starts[e + 1]):
            s = state[t]
            new = last_group[s] != group[e]
            if new:
                last_group[s] = group[e]
                home[s] = e
            counted[t] = new or (every and home[s] == e)


@compiled
def _ways_back(
    starts: Ints, state: Codes, G: Floats, power: Floats, S: int, gap: Ints, R: Floats
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill gap and R (N,) in one backward pass over each episode."""
    ahead, episode = np.zeros(S, np.int64), np.full(S, -1, np.int64)
    for e in range(len(starts) - 1):
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            s = state[t]
            gap[t], R[t] = 0, G[t]
            if episode[s] == e:
                gap[t] = ahead[s] - t
                R[t] = G[t] - power[gap[t]] * G[ahead[s]]
            episode[s], ahead[s] = e, t


def counted_rows(log: Log, markov: bool) -> Bools:
    """bool (N,): the rows of a gathered log that count as visits of their state."""
    counted = np.empty(log.n_steps, np.bool_)
    _count_rows(log.starts, log.codes(), log.group, markov, log.n_states, counted)
    return counted


def visits_of(log: Log, gamma: float, value_range: tuple[float, float], *, markov: bool) -> Visits:
    """The counted visits of a settled log with labelled states.

    Args:
        log: The log; a group counts once per state, with all visits of one episode or with one.
        gamma: Discount per step, in (0, 1].
        value_range: (lowest, highest) return there can be, known beforehand.
        markov: Whether all visits of an episode count, or first visits alone.

    Raises:
        LogError: A return lies outside value_range.
    """
    gamma, (low, high) = check_gamma(gamma), check_range(value_range)
    log = log.gathered()
    R = (checked_returns(log, gamma, (low, high)) - low) / (high - low)
    gap = np.zeros(log.n_steps, np.int64)
    if markov and log.n_steps:
        G, power = R, powers(gamma, int(log.lengths.max()))
        R = np.empty(log.n_steps)
        _ways_back(log.starts, log.codes(), G, power, log.n_states, gap, R)
    rows = np.flatnonzero(counted_rows(log, markov))
    pair = log.codes()[rows].astype(np.int64) * log.n_actions + log.action[rows]
    bins = unit_bins(R[rows])
    columns = counted(pair, gap[rows], bins, np.ones(len(rows), np.int64))
    n = len(np.unique(log.group))
    return Visits(*columns, log.states, log.actions, gamma, (low, high), bool(markov), n)


# -- wherever the rows are -------------------------------------------------------------------------


def _outside(
    chunk: Chunk, log: Log, gamma: float, value_range: tuple[float, float]
) -> tuple[int, int, str]:
    """How many returns of a chunk lie outside a range, of how many, and where the first is."""
    n, where = outside_range(log, returns(log, gamma), value_range)
    return n, log.n_steps, where


def refuse_outside_range(
    source: Source | Log, gamma: float, cut: Cut | None, value_range: tuple[float, float]
) -> None:
    """Refuse a log, wherever its rows are, with a return outside the range."""
    parts = in_order(source, _outside, gamma, value_range, cut=cut, gamma=gamma)
    n, rows = sum(outside for outside, _, _ in parts), sum(steps for _, steps, _ in parts)
    if n:
        where = next(place for outside, _, place in parts if outside)
        raise outside_error(n, rows, source.facts.outcome.ends(*value_range), where)


def visits_in(
    source: Source | Log,
    gamma: float,
    cut: Cut | None,
    value_range: tuple[float, float],
    markov: bool,
) -> Visits:
    """The counted visits of a log, wherever its rows are; arguments are those of `visits_of`.

    Raises:
        LogError: A return lies outside the range; how many do in the whole log is said.
    """
    count = functools.partial(visits_of, markov=markov)
    try:
        return source.reduce(OfTreated(count, (gamma, value_range), Visits.merge, cut, gamma))
    except LogError:
        refuse_outside_range(source, gamma, cut, value_range)
        raise


# --- E-processes of "this action is no better than usual", from all visits of a state

Items: TypeAlias = tuple[Floats, Floats, Ints]

KEPT = 0.25
"""Share of the weight that bets keep whatever they won on other visits."""

COARSE, BLOCKS = 400, 40
"""Numbers of coarse cells and of blocks; each block has 10 coarse cells, each of them 10 fine."""

ROOM = 4 * SLACK
"""What hypotheses give way by, so that no rounding of the computer counts as evidence."""

RATIOS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0)
"""The n_x/n_y for which bets on x and on 1 - y are made in proportion."""

STEPS = 16
"""Halvings in the search for a bound: to 1/65536 of the range."""

FLUSH, REPEAT = 16, 3
"""Factors are multiplied up, and a logarithm is taken after 16; up to 3 equal ones count singly."""


BETS = np.sqrt(FRACTIONS) / np.sqrt(FRACTIONS).sum()
"""The weight of each fraction where one bet is made: large ones are of use more often."""


def _prior() -> Floats:
    """float64 (COARSE, J, J): the weight of each pair of bets, on x and on 1 - y, in each cell."""
    J = len(FRACTIONS)
    m = np.clip(np.arange(COARSE) / COARSE, 1e-3, 1 - 1e-3)
    weight = np.tile(np.outer(BETS, BETS) / 2, (COARSE, 1, 1))
    for ratio in RATIOS:
        shift = np.rint(np.log(ratio * (1 - m) / m) / RATIO).astype(np.int64)
        other = np.clip(np.arange(J) + shift[:, None], 0, J - 1)
        both = np.sqrt(BETS * BETS[other])
        both /= 2 * len(RATIOS) * both.sum(axis=1, keepdims=True)
        for j in range(J):
            weight[np.arange(COARSE), j, other[:, j]] += both[:, j]
    return weight


PRIOR = _prior()


@compiled
def log_products(
    base: Floats, slope: Floats, count: Ints, v: float, scale: float, fractions: Floats, out: Floats
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """out[j] = log ∏_i (1 + f_j (max(base_i + slope_i v, 0)/scale - 1))^count_i."""
    J = len(fractions)
    product = np.ones(J)
    out[:] = 0.0
    pending = 0
    for i in range(len(base)):
        z = max(base[i] + slope[i] * v, 0.0) / scale - 1.0
        if count[i] <= REPEAT:
            for _ in range(count[i]):
                for j in range(J):
                    product[j] *= 1.0 + fractions[j] * z
            pending += 1
            if pending == FLUSH:
                for j in range(J):
                    out[j] += math.log(product[j])
                    product[j] = 1.0
                pending = 0
        else:
            for j in range(J):
                out[j] += count[i] * math.log1p(fractions[j] * z)
    for j in range(J):
        out[j] += math.log(product[j])


@compiled
def _cell(
    x: Items, y: Items, v0: float, v1: float, c: float, odds: float, fractions: Floats,
    log_x: Floats, log_y: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """log X_j and log Y_j of the cell [v0, v1]."""
    u = max(min(v1 + c, 1.0), 0.0) + ROOM  # c is below 0 where a promise is doubted
    rest = 1.0 - min(max(v0 - c * odds, 0.0), 1.0) + ROOM
    log_products(x[0], x[1], x[2], v0, u, fractions, log_x)
    log_products(y[0], y[1], y[2], v1, rest, fractions, log_y)


@compiled
def _log_k(
    x: Items, y: Items, v0: float, v1: float, c: float, odds: float, fractions: Floats,
    weight: Floats, log_x: Floats, log_y: Floats,
) -> float:  # pragma: no cover - compiled  # fmt: skip
    """log K of the cell [v0, v1]: the weighted mean of X_i Y_j."""
    _cell(x, y, v0, v1, c, odds, fractions, log_x, log_y)
    top_x, top_y = log_x.max(), log_y.max()
    J = len(fractions)
    mass = 0.0
    for j in range(J):
        log_y[j] = math.exp(log_y[j] - top_y)
    for i in range(J):
        row = 0.0
        for j in range(J):
            row += weight[i, j] * log_y[j]
        mass += math.exp(log_x[i] - top_x) * row
    return float(top_x + top_y + math.log(mass))


@compiled
def _learned(
    x: Items, y: Items, fractions: Floats, prior: Floats, weight: Floats
) -> None:  # pragma: no cover - compiled
    """Weights of the bets in each coarse cell, in proportion to what they won on other visits."""
    cells, J = prior.shape[0], len(fractions)
    log_x, log_y = np.empty(J), np.empty(J)
    for cell in range(cells):
        _cell(x, y, cell / cells, (cell + 1) / cells, 0.0, 0.0, fractions, log_x, log_y)
        top = log_x.max() + log_y.max()
        mass = 0.0
        for i in range(J):
            for j in range(J):
                weight[cell, i, j] = prior[cell, i, j] * math.exp(log_x[i] + log_y[j] - top)
                mass += weight[cell, i, j]
        for i in range(J):
            for j in range(J):
                weight[cell, i, j] = (
                    KEPT * prior[cell, i, j] + (1 - KEPT) * weight[cell, i, j] / mass
                )


@compiled
def _log_e(
    x: Items, y: Items, c: float, odds: float, enough: float, fractions: Floats, weight: Floats,
    least_weight: Floats,
) -> float:  # pragma: no cover - compiled  # fmt: skip
    """log E(c), or something below `enough` where it is below that."""
    J = len(fractions)
    log_x, log_y = np.empty(J), np.empty(J)
    cells, blocks = len(weight), len(least_weight)
    inside, fine = cells // blocks, UNITS // cells
    bound, coarse = np.empty(blocks), np.empty(inside)
    for b in range(blocks):
        bound[b] = _log_k(x, y, b / blocks, (b + 1) / blocks, c, odds, fractions, least_weight[b],
                          log_x, log_y)  # fmt: skip
    least = np.inf
    for b in np.argsort(bound):
        if bound[b] >= least or least < enough:
            break
        for i in range(inside):
            cell = b * inside + i
            coarse[i] = _log_k(x, y, cell / cells, (cell + 1) / cells, c, odds, fractions,
                               weight[cell], log_x, log_y)  # fmt: skip
        for i in np.argsort(coarse):
            if coarse[i] >= least or least < enough:
                break
            cell = b * inside + i
            for k in range(cell * fine, (cell + 1) * fine):
                least = min(least, _log_k(x, y, k / UNITS, (k + 1) / UNITS, c, odds, fractions,
                                          weight[cell], log_x, log_y))  # fmt: skip
                if least < enough:
                    break
    return least


@compiled
def _largest(
    x: Items,
    y: Items,
    odds: float,
    nats: float,
    fractions: Floats,
    weight: Floats,
    least_weight: Floats,
) -> float:  # pragma: no cover - compiled
    """The largest c with log E(c) >= nats, to 2^-STEPS below; E(0) must reach it."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if _log_e(x, y, middle, odds, nats, fractions, weight, least_weight) >= nats:
            low = middle
        else:
            high = middle
    return low


@compiled
def _lower_mean(
    values: Floats, count: Ints, nats: float, fractions: Floats, weight: Floats
) -> float:  # pragma: no cover - compiled
    """The largest u whose e-process of "the mean is at most u" reaches exp(nats), from below."""
    J = len(fractions)
    logs, still = np.empty(J), np.zeros(len(values))
    low, high = 0.0, 1.0
    for _ in range(2 * STEPS):
        middle = (low + high) / 2
        log_products(values, still, count, 0.0, middle + ROOM, fractions, logs)
        top = logs.max()
        mass = 0.0
        for j in range(J):
            mass += weight[j] * math.exp(logs[j] - top)
        if top + math.log(mass) >= nats:
            low = middle
        else:
            high = middle
    return low


def lower_mean(values: ArrayLike, count: ArrayLike, nats: float) -> float:
    """Lower bound of the mean of numbers in [0, 1], seen one after the other; stop at any time.

    Each number must have the same mean given those before. The e-process ∑_j w_j ∏(1 + f_j (z/u -
    1)) of "the mean is at most u" falls with u; the bound is the largest u where it reaches
    exp(nats).

    Args:
        values: The distinct numbers, (n,), zeros included.
        count: How often each was seen, whole numbers (n,).
        nats: ln(1/α), α the level of the bound.
    """
    z, n = np.asarray(values, np.float64), np.asarray(count, np.int64)
    return float(_lower_mean(z, n, float(nats), FRACTIONS, BETS)) if (z * n).any() else 0.0


@dataclass(frozen=True, eq=False)
class Advantages:
    """What visits prove about some pairs, or about anything but their actions.

    Attributes:
        pairs: int64 (P,), s·A + a, rising.
        log_e: float64 (P,), natural logarithm of the e-value of "no benefit", E(0); where it is
            below what was asked for, something between E(0) and that.
        low: float64 (P,), lower bound of the advantage in units of returns, at least 0; -inf
            where E(0) is below what was asked for.
        p_low: float64 (P,), lower bound of p, the probability of the action (or of all others).
        p_high: float64 (P,), upper bound of p.
        difference: float64 (P,), estimate of Q - E y in units of returns; NaN where one was never
            seen.
    """

    pairs: Ints
    log_e: Floats
    low: Floats
    p_low: Floats
    p_high: Floats
    difference: Floats


def advantages(
    visits: Visits,
    pairs: ArrayLike,
    nats: float,
    nats_of_p: float,
    *,
    exact: bool = False,
    learned_from: Visits | None = None,
    unstated: Ints | None = None,
    p: Floats | None = None,
    avoid: bool = False,
) -> Advantages:
    """E-values of "no benefit" and lower bounds of the advantage for pairs s·A + a.

    With `avoid` they are about doing anything but a: those who took a and the others change sides,
    and so do p and 1 - p.

    Args:
        visits: What counted visits led to.
        pairs: Codes s·A + a, in any order; the result has them sorted.
        nats: ln(1/α), α the level of each e-value and bound.
        nats_of_p: ln(1/α'), α' the level of each of the two bounds of p.
        exact: Whether e-values that do not reach 1/α are computed to the end too. Default False.
        learned_from: Visits of other groups, from which the bets learn. Default None: they are
            fixed.
        unstated: int64 (S,), visits of each state, among those that did otherwise, of which it is
            not stated what they did: some may have taken the action, and p may be so much larger.
            Default None: there are none.
        p: float64 (P,), the probability of the action of each pair, in rising order of their codes,
            NaN where it is not known and is bounded from the visits. Default None: nowhere.
        avoid: Whether it is about anything but the action. Default False.

    Raises:
        ParameterError: A pair does not exist.
    """
    chosen = np.unique(np.asarray(pairs, np.int64))
    A = len(visits.actions)
    size = len(visits.states) * A
    if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < size:
        raise ParameterError(f"pairs run from 0 to {size - 1}; got {chosen[0]}..{chosen[-1]}.")
    width = visits.value_range[1] - visits.value_range[0]
    result = np.empty((len(chosen), 5))
    least = -np.inf if exact else nats

    def part(first: int, last: int) -> None:
        for row in range(first, last):
            x, y, seen, difference = _items(visits, int(chosen[row]), avoid)
            weight = PRIOR
            if learned_from is not None:
                weight = np.empty_like(PRIOR)
                before = _items(learned_from, int(chosen[row]), avoid)
                _learned(*before[:2], FRACTIONS, PRIOR, weight)
            bets = weight, weight.reshape(BLOCKS, -1, *weight.shape[1:]).min(axis=1)
            log_e = _log_e(x, y, 0.0, 0.0, least, FRACTIONS, *bets)
            p_low = lower_mean([1.0, 0.0], seen, nats_of_p)
            if unstated is not None:
                seen = seen + np.array([1, -1]) * unstated[chosen[row] // A]
            p_high = 1 - lower_mean([0.0, 1.0], seen, nats_of_p)
            if p is not None and not math.isnan(p[row]):
                p_low = p_high = p[row]
            if avoid:
                p_low, p_high, difference = 1 - p_high, 1 - p_low, -difference
            low = -np.inf
            if log_e >= nats:
                odds = p_high / max(1 - p_high, 1e-12)
                low = _largest(x, y, odds, nats, FRACTIONS, *bets)
            result[row] = log_e, low * width, p_low, p_high, width * difference

    half = len(chosen) // 2 if len(chosen) >= WORTH_A_THREAD else 0
    in_parts(part, [(0, half), (half, len(chosen))] if half else [(0, len(chosen))])
    return Advantages(chosen, *result.T)


def against(visits: Visits, pair: int, c: float, odds: float, avoid: bool = False) -> float:
    """Natural logarithm of the e-value of "the advantage is at least c", for c >= 0.

    With visits that took the action and others exchanged: if A(s,a) >= c, then Q >= V + c and
    E y <= V - c o, for o = p/(1-p) or less.

    Args:
        visits: What counted visits led to.
        pair: s·A + a.
        c: The advantage that is doubted, in parts of the range of returns.
        odds: A lower bound of p/(1-p), p the probability of the action.
        avoid: Whether it is the advantage of anything but the action, and p is the probability of
            that. Default False.
    """
    others, takers, _, _ = _items(visits, pair, exchanged=not avoid)
    least = PRIOR.reshape(BLOCKS, -1, *PRIOR.shape[1:]).min(axis=1)
    back = 1 / odds if c > 0 and odds > 0 else 0.0
    return float(_log_e(others, takers, -c * odds, back, -np.inf, FRACTIONS, PRIOR, least))


def below(visits: Visits, pair: int, level: float, avoid: bool = False) -> float:
    """Natural logarithm of the e-value of "the action brings at least `level`, and V <= Q".

    From those who took it alone: Z_level has at least the mean `level` then, because E Z_level =
    Q - E D (V - level). For first visits D is 0, and V does not matter.

    Args:
        visits: What counted visits led to.
        pair: s·A + a.
        level: The value that is doubted, on the scale of the range of returns, in [0, 1].
        avoid: Whether it is what anything but the action brings. Default False.
    """
    followers = _items(visits, pair, exchanged=not avoid)[1]
    logs = np.empty(len(FRACTIONS))
    log_products(*followers, float(level), 1 - float(level) + ROOM, FRACTIONS, logs)
    return float(logs.max() + np.log(BETS @ np.exp(logs - logs.max())))


def seen_of(visits: Visits, pair: int) -> tuple[Ints, float]:
    """Visits that took an action and others, (2,), and Q - E y as estimated, in parts of the range.

    Args:
        visits: What counted visits led to.
        pair: s·A + a.
    """
    return _items(visits, pair)[2:]


def moments_of(visits: Visits, pair: int) -> tuple[int, float, float]:
    """How many visits of the state there are, and mean and mean square of R, in parts of the range.

    Args:
        visits: What counted visits led to.
        pair: s·A + a; visits of all actions of s count.
    """
    here = visits.of_state(pair // len(visits.actions))
    n, R = visits.count[here], visits.bin[here] / (2 * UNITS)
    total = max(int(n.sum()), 1)
    return int(n.sum()), float(n @ R / total), float(n @ R**2 / total)


def _items(visits: Visits, pair: int, exchanged: bool = False) -> tuple[Items, Items, Ints, float]:
    """R, D and counts of visits that took the action and of others; how many; Q - E y estimated.

    The ones are rounded down and the others up, against "no benefit". `exchanged`: the others come
    first and are rounded down; how many, and Q - E y, stay as they are.
    """
    here = visits.of_state(pair // len(visits.actions))
    took = visits.pair[here] == pair
    n, gap = visits.count[here], visits.gap[here]
    D = np.where(gap > 0, visits.gamma ** gap.astype(np.float64), 0.0)
    down, up = (visits.bin[here] >> 1) / UNITS, ((visits.bin[here] + 1) >> 1) / UNITS
    low, high = (~took, took) if exchanged else (took, ~took)
    x, y = (down[low], D[low], n[low]), (1 - up[high], -D[high], n[high])
    seen = np.array([n[took].sum(), n[~took].sum()])
    if not seen.all():
        return x, y, seen, math.nan
    R = (down + up) / 2
    V = (n @ R) / max(float(n.sum() - n @ D), 1e-12)
    Z = n * (R + D * V)
    return x, y, seen, float(Z[took].sum() / seen[0] - Z[~took].sum() / seen[1])
