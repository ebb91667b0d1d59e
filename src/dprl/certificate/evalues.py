"""E-values for means and differences of bounded returns, and the lower bounds they give.

An e-value of a hypothesis is a number >= 0 whose mean is at most 1 where the hypothesis holds, so
it exceeds 1/α with probability at most α. For x_1..x_n independent in [0, 1], each of mean at
most u, and any f in [0, 1]

    ∏_i (1 + f (x_i/u - 1))

is one (each factor is >= 0 and has mean <= 1). The mean over several f is one too, so no f has to
be guessed (Waudby-Smith and Ramdas, JRSS-B 2024, bet like this over time; here the order of the
data does not matter). Let x be returns where the action was taken, y returns where it was not, and
f_j J = 12 fractions, geometric from .01 to .95:

    X_j(u) = ∏_i (1 + f_j (x_i/u - 1))               against "E x <= u"
    Y_j(m) = ∏_i (1 + f_j ((1-y_i)/(1-m) - 1))       against "E y >= m"
    K(u,m) = ½ (mean_j X_j(u)) (mean_j Y_j(m))  +  ½ mean_j X_j(u) Y_{j+s(m)}(m)
    E(d)   = min over m = 0, h, 2h, .., 1-h of  K(m + h + d, m)

is an e-value for "E x <= E y + d" (h = 1/400): E y lies in some [m, m + h]; there both hypotheses
hold and x and y are independent, so each product's mean is at most 1, and the minimum is below it.
Above u = 1 the hypothesis "E x <= 1" always holds and X_j(1) is used. The first half of K bets on x
and on y apart, with all 144 pairs of fractions. The second bets in proportion: s(m) is the whole
number of fractions that comes nearest to n_x f/m = n_y g/(1-m), the best pair of bets where it is
hardest to tell whether x or y is off. Leaving out the other 132 pairs makes the e-value up to 6
times larger.

The lower bound at level α is the largest d on the grid with E(d) >= 1/α (E falls with d); E(0) is
the e-value of "no benefit".

x and 1 - y come from histograms in which they are rounded down to 1/400 of the range; all
arithmetic is in logarithms. For comparison there are Hoeffding's and Chernoff's (KL) bounds, which
use the means alone.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import Cut, check_gamma, check_number, check_range
from dprl._core.compiled import compiled, in_parts
from dprl._core.inference import GAMMAS, breakdown, threshold, worst_case
from dprl._core.words import worded
from dprl.errors import LogError, ParameterError
from dprl.logs.log import Label, Log
from dprl.logs.returns import first_visits, refuse_outside, returns
from dprl.logs.source import Chunk, Source, columns_in_order

# --- Returns at first visits of some states, one by one, wherever the rows are
#
# What cannot be told from sums (signs drawn for each group, outcomes at their worst) needs the
# outcomes themselves. They are gathered for the states that are asked for, chunk by chunk, and put
# in the order of the log: 24 bytes for each of these visits.


@dataclass(frozen=True, eq=False)
class FirstReturns:
    """First visits of some states, by state and then in the order of the log.

    Attributes:
        state: int32 (n,), rising.
        action: int32 (n,), what was done.
        G: float64 (n,), the return from there on.
        group: int64 (n,), the number of the group.
    """

    state: Codes
    action: Codes
    G: Floats
    group: Ints

    def of_state(self, s: int) -> slice:
        """The visits of one state."""
        begin, end = np.searchsorted(self.state, (s, s + 1))
        return slice(int(begin), int(end))


def _listed(chunk: Chunk, log: Log, states: Bools, gamma: float) -> tuple[NDArray[Any], ...]:
    """State, action, return and group of the first visits of some states in one chunk."""
    rows = np.flatnonzero(first_visits(log) & states[log.codes()])
    group = np.repeat(chunk.left(log)[log.group], log.lengths)[rows]
    return log.codes()[rows], log.action[rows], returns(log, gamma)[rows], group


def first_returns(
    source: Source | Log, states: Bools, gamma: float, cut: Cut | None = None
) -> FirstReturns:
    """The first visits of some states, bool (S,), in a log with labelled states."""
    columns = columns_in_order(source, _listed, states, gamma, cut=cut, gamma=gamma)
    order = np.argsort(columns[0], kind="stable")
    return FirstReturns(*(column[order] for column in columns))


# --- Histograms of the returns at first visits: all that the gate's e-values need
#
# For every state s and action a there is a histogram of the returns of the trajectories that took a
# at their first visit of s. It covers the range [g_lo, g_hi] of returns, which is known beforehand,
# in units of 1/400 of that range. A return x is either a whole number k of units or lies between k
# and k + 1, and each of these cases has a bin:
#
#     bin 2k      x = k/400               as x: k/400     as 1 - y: 1 - k/400
#     bin 2k + 1  k/400 < x < (k+1)/400   as x: k/400     as 1 - y: 1 - (k+1)/400
#
# so both x and 1 - y can be rounded *down* from one histogram, which keeps an e-value valid.
# Counts are whole numbers: histograms of parts of a log (split between groups) add up to the
# histograms of the whole, bit for bit.

UNITS = 400
BINS = 2 * UNITS + 1


@dataclass(frozen=True, eq=False)
class Histograms:
    """Returns at first visits by state, action and bin; immutable.

    Attributes:
        keys: int64 (n,), rising: (s·A + a)·BINS + bin, for the bins that are not empty.
        counts: int64 (n,), number of groups in the bin.
        states: The state labels, in the order of s.
        actions: The action labels, in the order of a.
        gamma: Discount of the returns.
        value_range: (g_lo, g_hi), the lowest and highest return, known beforehand.
        n_groups: Number of groups (episodes, where no group was given) in the log.
    """

    keys: Ints
    counts: Ints
    states: tuple[Label, ...]
    actions: tuple[Label, ...]
    gamma: float
    value_range: tuple[float, float]
    n_groups: int

    def merge(self, other: Histograms) -> Histograms:
        """The histograms of two parts of a log together, where no group is in both parts."""
        for name in ("states", "actions", "gamma", "value_range"):
            if getattr(self, name) != getattr(other, name):
                raise LogError(
                    f"histograms with different {name} cannot be merged.",
                    do=worded(
                        "Read or split the parts from one log; use one gamma and one {value_range}."
                    ),
                )
        keys, place = np.unique(np.concatenate((self.keys, other.keys)), return_inverse=True)
        counts = np.zeros(len(keys), np.int64)
        np.add.at(counts, place, np.concatenate((self.counts, other.counts)))
        return replace(self, keys=keys, counts=counts, n_groups=self.n_groups + other.n_groups)

    def mirrored(self) -> Histograms:
        """Those of lowest + highest less the returns: what is high becomes low."""
        pair, code = np.divmod(self.keys, BINS)
        keys = pair * BINS + (BINS - 1 - code)
        order = np.argsort(keys)
        return replace(self, keys=keys[order], counts=self.counts[order])


def checked_returns(log: Log, gamma: float, value_range: tuple[float, float]) -> Floats:
    """The return to go of every row, float64 (N,).

    Raises:
        LogError: A return lies outside value_range.
    """
    G = returns(log, gamma)
    refuse_outside(log, G, value_range)
    return G


def histograms(log: Log, gamma: float, value_range: tuple[float, float]) -> Histograms:
    """Histograms of a settled log with discrete states.

    Args:
        log: The log; where it has groups, a group counts once per state.
        gamma: Discount per step, in (0, 1].
        value_range: (lowest, highest) return there can be, known beforehand.

    Raises:
        LogError: A return lies outside value_range.
    """
    gamma, (low, high) = check_gamma(gamma), check_range(value_range)
    log = log.gathered()
    G = checked_returns(log, gamma, (low, high))
    rows = np.flatnonzero(first_visits(log))
    pair = log.codes()[rows].astype(np.int64) * log.n_actions + log.action[rows]
    n = len(np.unique(log.group))
    return binned(pair, G[rows], (low, high), gamma, log.states, log.actions, n)


def binned(
    pair: Ints,
    values: Floats,
    value_range: tuple[float, float],
    gamma: float,
    states: tuple[Label, ...],
    actions: tuple[Label, ...],
    n_groups: int,
) -> Histograms:
    """Histograms of values (n,), each of the pair s·A + a in `pair` (n,)."""
    low, high = value_range
    z = np.clip((values - low) * (UNITS / (high - low)), 0, UNITS)
    unit = np.floor(z).astype(np.int64)
    keys, counts = np.unique(pair * BINS + 2 * unit + (z > unit), return_counts=True)
    return Histograms(keys, counts, states, actions, gamma, (low, high), n_groups)


# --- E-values for means and differences of bounded returns, and the lower bounds they give

GRID = 400
"""Number of steps of the fine grid on [0, 1]."""

COARSE = 100
"""Number of steps of the coarse grid, which decides which pairs need the fine one."""

FRACTIONS = np.geomspace(0.01, 0.95, 12)
RATIO = float(np.log(FRACTIONS[1] / FRACTIONS[0]))

WORTH_A_THREAD = 64
"""With fewer pairs than this, a second thread costs more time than it saves."""


@functools.cache
def _table(steps: int) -> Floats:
    """log(1 + f_j (x/u - 1)), float64 (UNITS + 1, J·steps): x = i/UNITS, u = 1/steps..1."""
    x = np.arange(UNITS + 1)[:, None, None] / UNITS
    u = np.arange(1, steps + 1) / steps
    table = np.log1p(FRACTIONS[:, None] * (x / u - 1)).reshape(UNITS + 1, -1)
    table.setflags(write=False)
    return table


@compiled
def _log_mean(total: Floats, out: Floats) -> None:  # pragma: no cover - compiled
    """log of the mean over j of exp(total[j·GRID + t]), into out[t + 1]; out (GRID + 1,)."""
    n_grid = len(out) - 1
    J = len(total) // n_grid
    for t in range(n_grid):
        top = total[t]
        for j in range(1, J):
            top = max(top, total[j * n_grid + t])
        mass = 0.0
        for j in range(J):
            mass += math.exp(total[j * n_grid + t] - top)
        out[t + 1] = top + math.log(mass / J)


@compiled
def _add_bin(total: Floats, row: Floats, count: float) -> None:  # pragma: no cover - compiled
    for i in range(len(total)):
        total[i] += count * row[i]


@compiled
def _shifts(n_x: float, n_y: float, ratio: float, shift: Ints) -> None:  # pragma: no cover
    """For each m = i/n: how many fractions above x's bet is y's, from n_x f/m = n_y g/(1-m)."""
    n = len(shift)
    for i in range(n):
        m = max(i, 1) / n
        shift[i] = 0
        if n_x > 0 and n_y > 0:
            shift[i] = round(math.log(n_x / n_y * (1 - i / n) / m) / ratio)


@compiled
def _against(
    x: Floats,
    others: Floats,
    above: Floats,
    below: Floats,
    shift: Ints,
    any_positive: bool,
    k: int,
    slack: int,
) -> float:  # pragma: no cover - compiled
    """log E(k/n) on a grid of n steps.

    x, others (J·n,): for each fraction, log of the product for "E x <= t/n" and "E (1-y) <= t/n",
        t = 1..n; above, below (n + 1,): log of their means over the fractions, at t.
    any_positive: whether any x, rounded down, is above 0 ("E x <= 0" is then impossible).
    """
    n = len(shift)
    J = len(x) // n
    least = np.inf
    terms = np.empty(J)
    for i in range(n):
        t = min(i + slack + k, n)
        if t < 0 or (t == 0 and any_positive):
            continue
        apart = (above[t] if t > 0 else 0.0) + below[n - i]
        if apart - math.log(2.0) >= least:
            continue
        top = apart
        for j in range(J):
            g = min(max(j + shift[i], 0), J - 1)
            terms[j] = (x[j * n + t - 1] if t > 0 else 0.0) + others[g * n + n - i - 1]
            top = max(top, terms[j])
        mass = 0.0
        for j in range(J):
            mass += math.exp(terms[j] - top)
        least = min(least, top + math.log((math.exp(apart - top) + mass / J) / 2))
    return least


@compiled
def _fill(
    table: Floats,
    keys: Ints,
    counts: Ints,
    bins: int,
    n_actions: int,
    pairs: Ints,
    steps: int,
    nats: float,
    ratio: float,
    result: Floats,
) -> None:  # pragma: no cover - compiled
    """Fill result (pairs, 3) for each pair s·A + a.

    The columns: the lower bound in steps of the grid, log E(0), and log E(0) without the slack of
    the grid, which no finer grid can exceed.
    """
    width, units = table.shape[1], table.shape[0] - 1
    x = np.empty(width)
    others = np.empty(width)
    above, below = np.empty(steps + 1), np.empty(steps + 1)
    shift = np.empty(steps, np.int64)
    for p in range(len(pairs)):
        s, a = pairs[p] // n_actions, pairs[p] % n_actions
        x[:] = 0.0
        others[:] = 0.0
        n_x, n_y = 0.0, 0.0
        any_positive = False
        begin = np.searchsorted(keys, s * n_actions * bins)
        end = np.searchsorted(keys, (s + 1) * n_actions * bins)
        for i in range(begin, end):
            taken, code = keys[i] // bins - s * n_actions, keys[i] % bins
            if taken == a:
                _add_bin(x, table[code >> 1], counts[i])
                n_x += counts[i]
                any_positive |= code > 1
            else:
                _add_bin(others, table[units - ((code + 1) >> 1)], counts[i])
                n_y += counts[i]
        _log_mean(x, above)
        _log_mean(others, below)
        _shifts(n_x, n_y, ratio, shift)
        low, high = -steps, steps  # E falls with d: the last step that still reaches 1/α
        while low < high:
            middle = (low + high + 1) >> 1
            if _against(x, others, above, below, shift, any_positive, middle, 1) >= nats:
                low = middle
            else:
                high = middle - 1
        result[p, 0] = low
        result[p, 1] = _against(x, others, above, below, shift, any_positive, 0, 1)
        result[p, 2] = _against(x, others, above, below, shift, any_positive, 0, 0)


@dataclass(frozen=True, eq=False)
class Differences:
    """Bounds on E x - E y for some pairs: x took the action, y did otherwise.

    Attributes:
        pairs: int64 (P,), s·A + a, rising.
        low: float64 (P,), lower bound of E x - E y at level α, in units of returns.
        log_e: float64 (P,), natural logarithm of the e-value of "no benefit".
    """

    pairs: Ints
    low: Floats
    log_e: Floats


def differences(histograms: Histograms, pairs: ArrayLike, alpha: float) -> Differences:
    """Lower bounds at level α and e-values for pairs s·A + a.

    The coarse grid finds the pairs whose e-value cannot reach 1/α even without the grid's slack.
    These keep the bound of the coarse grid; the others get the bound of the fine grid.

    Args:
        histograms: Histograms of the returns.
        pairs: Codes s·A + a, in any order; the result has them sorted.
        alpha: Level of each bound, in (0, 1).

    Raises:
        ParameterError: alpha is outside its range, or a pair does not exist.
    """
    check_number("alpha", alpha, "(0, 1)")
    chosen = np.unique(np.asarray(pairs, np.int64))
    A = len(histograms.actions)
    size = len(histograms.states) * A
    if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < size:
        raise ParameterError(f"pairs run from 0 to {size - 1}; got {chosen[0]}..{chosen[-1]}.")
    nats = -math.log(alpha) - 1e-12
    width = histograms.value_range[1] - histograms.value_range[0]

    def on_grid(asked: Ints, steps: int) -> Floats:
        table, result = _table(steps), np.empty((len(asked), 3))

        def part(first: int, last: int) -> None:
            _fill(
                table, histograms.keys, histograms.counts, BINS, A, asked[first:last], steps, nats,
                RATIO, result[first:last],
            )  # fmt: skip

        half = len(asked) // 2 if len(asked) >= WORTH_A_THREAD else 0
        in_parts(part, [(0, half), (half, len(asked))] if half else [(0, len(asked))])
        result[:, 0] *= width / steps
        return result

    bounds = on_grid(chosen, COARSE)
    again = np.flatnonzero(bounds[:, 2] >= nats)
    bounds[again] = on_grid(chosen[again], GRID)
    return Differences(chosen, bounds[:, 0], bounds[:, 1])


def means(values: ArrayLike, alpha: float, value_range: tuple[float, float]) -> float:
    """Lower bound at level α on the mean of independent values (n,), from the e-value mean_j X_j.

    Args:
        values: Values (n,), each within value_range.
        alpha: Level of the bound, in (0, 1).
        value_range: (lowest, highest) value there can be, known beforehand.

    Raises:
        ParameterError: A value lies outside value_range.
    """
    low, high = value_range
    x = (np.asarray(values, np.float64) - low) / (high - low)
    if x.ndim != 1 or not ((x >= 0) & (x <= 1)).all():
        raise ParameterError(f"values must be one row of numbers within {value_range!r}.")
    total = _table(GRID)[np.floor(x * UNITS).astype(np.int64)].sum(axis=0)
    log_k = np.empty(GRID + 1)
    _log_mean(total, log_k)
    passed = int((log_k[1:] >= -math.log(alpha) - 1e-12).sum())
    return float(low + (high - low) * passed / GRID)


# -- bounds that use the means alone ---------------------------------------------------------------


def _kl(p: Any, q: Any) -> Any:
    """Relative entropy of a coin p to a coin q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.where(p > 0, p * np.log(p / q), 0.0)
        right = np.where(p < 1, (1 - p) * np.log((1 - p) / (1 - q)), 0.0)
    return left + right


def kl_lower(mean: ArrayLike, n: ArrayLike, nats: ArrayLike) -> Floats:
    """Chernoff's lower bound: the smallest q with n · kl(mean, q) <= nats, for means in [0, 1].

    At level α nats is ln(1/α). Holds for the mean of n independent values in [0, 1].
    """
    p, n, nats = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (mean, n, nats)))
    low, high = np.zeros(p.shape), p.copy()
    for _ in range(60):
        middle = (low + high) / 2
        too_far = n * _kl(p, middle) > nats
        low, high = np.where(too_far, middle, low), np.where(too_far, high, middle)
    return np.asarray(low)


def kl_upper(mean: ArrayLike, n: ArrayLike, nats: ArrayLike) -> Floats:
    """Chernoff's upper bound: the largest q with n · kl(mean, q) <= nats."""
    return np.asarray(1 - kl_lower(1 - np.asarray(mean, np.float64), n, nats))


def kl_difference(
    mean_x: ArrayLike, n_x: ArrayLike, mean_y: ArrayLike, n_y: ArrayLike, alpha: ArrayLike
) -> Floats:
    """Lower bound of E x - E y for values in [0, 1] from two Chernoff bounds at level α/2 each."""
    nats = np.log(2) - np.log(np.asarray(alpha, np.float64))
    return np.asarray(kl_lower(mean_x, n_x, nats) - kl_upper(mean_y, n_y, nats))


def hoeffding_difference(
    mean_x: ArrayLike, n_x: ArrayLike, mean_y: ArrayLike, n_y: ArrayLike, alpha: ArrayLike
) -> Floats:
    """Hoeffding's lower bound of E x - E y for values in [0, 1]."""
    with np.errstate(divide="ignore"):
        spread = 1 / np.asarray(n_x, np.float64) + 1 / np.asarray(n_y, np.float64)
    half = np.sqrt(spread * -np.log(np.asarray(alpha, np.float64)) / 2)
    return np.asarray(np.asarray(mean_x) - np.asarray(mean_y) - half)


# --- The gate under an unrecorded cause: a claim is tested again with its outcomes at their worst
#
# `dprl._core.inference` explains Γ and φ. Let x be the returns of those who took an action, y
# those of the others, both in unit range. If the action is no improvement although odds of
# treatment are moved by no more than Γ, then E φ(x) <= E y, for every θ. So an e-value of "E φ(x)
# <= E y" is one of "no improvement, at Γ". φ(x) lies in [-c, 1] with c = θ (Γ - 1): both φ(x) and
# y are moved to (v + c) / (1 + c), which is in [0, 1] again. Any e-value of "E x <= E y" can then
# be used; here it is the one of first visits (`dprl.certificate.evalues`).
#
# θ comes from the part of the log that proposed: the 1/(1 + Γ) quantile of its x. Where no such
# part is at hand, `THETAS` are tried, each with its share of the level.
#
# **Γ* of a certified pair** is the largest of the fixed values Γ_1 < Γ_2 < .. up to which it
# passes without a gap. Say that the pair is no improvement and odds are moved by up to Γ'. Then
# it is no improvement at every Γ_k >= Γ'. To state Γ* >= Γ' it must pass at the first of these,
# which is one test, fixed beforehand: the chance is at most its level. So nothing is paid for
# looking at many Γ.

THETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""θ that are tried where no other part of the log can choose one."""


@dataclass(frozen=True, eq=False)
class UnmeasuredCause:
    """The outcomes of some pairs, ready to be tested at any Γ.

    Attributes:
        took: For each pair, float64: outcomes in unit range of those who took the action.
        others: For each pair, float64: outcomes of those who did otherwise.
        proposed: For each pair, the outcomes of those who took it in the part that proposed; empty
            where there is no such part.
        width: The width of the range of returns.
    """

    took: tuple[Floats, ...]
    others: tuple[Floats, ...]
    proposed: tuple[Floats, ...]
    width: float

    @classmethod
    def of(
        cls,
        source: Source | Log,
        pairs: tuple[NDArray[Any], ...],
        gamma: float,
        value_range: tuple[float, float],
        proposed_by: Source | Log | None,
        cut: Cut | None = None,
    ) -> UnmeasuredCause:
        """The outcomes at first visits.

        Args:
            source: The log that certifies; its states are labels.
            pairs: States and actions of the pairs, as codes; "not a" comes after all a.
            gamma: Discount per step.
            value_range: (lowest, highest) return there can be.
            proposed_by: The part of the log that proposed, with the same states and actions; None
                where there is none.
            cut: What is done with cut episodes, of both. Default None: they have none.
        """
        wanted = np.zeros(source.facts.n_states, bool)
        wanted[pairs[0]] = True
        visits = first_returns(source, wanted, gamma, cut)
        A = source.facts.n_actions
        took, others = _divided(visits, pairs, value_range, A)
        proposed = [np.empty(0)] * len(took)
        if proposed_by is not None:
            before = first_returns(proposed_by, wanted, gamma, cut)
            proposed = _divided(before, pairs, value_range, A)[0]
        width = value_range[1] - value_range[0]
        return cls(tuple(took), tuple(others), tuple(proposed), width)

    def at(self, gamma: float, alpha: float, pairs: Ints) -> tuple[Floats, Floats]:
        """Lower bounds of E[r x] - E y in units of returns, and log e-values, for some pairs.

        Args:
            gamma: Γ, at least 1.
            alpha: Level of each pair, in (0, 1).
            pairs: The places (k,) of the pairs.
        """
        low, log_e = np.full(len(pairs), -np.inf), np.full(len(pairs), -np.inf)
        alone = np.array([len(self.proposed[i]) == 0 for i in pairs], bool)
        for places in (np.flatnonzero(alone), np.flatnonzero(~alone)):
            if not len(places):
                continue
            tried = THETAS if alone[places[0]] else (None,)
            for theta in tried:
                bounds, e = self._with(theta, gamma, alpha / len(tried), pairs[places])
                low[places] = np.maximum(low[places], bounds)
                log_e[places] = np.maximum(log_e[places], e - math.log(len(tried)))
        return low, log_e

    def strongest(
        self, passed: Bools, alpha: float, start: float, margin: float, weight: Floats
    ) -> Floats:
        """Γ* of the pairs that passed at `start`; NaN for others.

        Args:
            passed: bool (P,), the pairs that passed.
            alpha: Level of each pair.
            start: Γ at which they passed.
            margin: The advantage that a pair must exceed.
            weight: float64 (P,), the least share of those who did otherwise: advantages are at
                least the lower bound times this.
        """
        result = np.full(len(passed), np.nan)
        result[passed] = start
        left = np.flatnonzero(passed)
        nats = -math.log(alpha) - 1e-12
        for gamma in GAMMAS[start < GAMMAS]:
            if not len(left):
                break
            low, log_e = self.at(float(gamma), alpha, left)
            good = log_e >= nats
            if margin > 0:
                good &= weight[left] * low > margin
            left = left[good]
            result[left] = gamma
        return result

    def points(self) -> Floats:
        """float64 (P,): Γ* as estimated from all outcomes, without allowance for chance."""
        return np.array([
            breakdown(x, float(y.mean())) if len(x) and len(y) else 1.0
            for x, y in zip(self.took, self.others, strict=True)
        ])  # fmt: skip

    def _with(
        self, theta: float | None, gamma: float, alpha: float, pairs: Ints
    ) -> tuple[Floats, Floats]:
        """As `at`, with one θ for all pairs, or with the one that the proposing part chooses."""
        code, values, scale = [np.empty(0, np.int64)], [np.empty(0)], np.ones(len(pairs))
        for k, i in enumerate(pairs):
            own = threshold(self.proposed[i], gamma) if theta is None else theta
            below = own * (gamma - 1)
            # A whole number of units from 0 to the top: outcomes at the ends are not rounded.
            scale[k] = UNITS / max(math.floor(UNITS / (1 + below) + 1e-9), 1)
            worst = worst_case(self.took[i], own, gamma)
            for side, outcomes in enumerate((worst, self.others[i])):
                code.append(np.full(len(outcomes), 2 * k + side))
                values.append(1 - (1 - outcomes) / scale[k])
        counts = binned(
            np.concatenate(code), np.concatenate(values), (0.0, 1.0), 1.0,
            tuple(range(len(pairs))), (0, 1), 0,
        )  # fmt: skip
        result = differences(counts, 2 * np.arange(len(pairs)), alpha)
        return np.asarray(result.low * scale * self.width), result.log_e


def _divided(
    visits: FirstReturns, pairs: tuple[NDArray[Any], ...], value_range: tuple[float, float], A: int
) -> tuple[list[Floats], list[Floats]]:
    """Outcomes in unit range at first visits: of those who took the action, and of the others."""
    low, high = value_range
    values = np.clip((visits.G - low) / (high - low), 0.0, 1.0)
    took, others = [], []
    for s, a in zip(*pairs, strict=True):
        own = visits.of_state(s)
        here = (visits.action[own] == a % A) != (a >= A)
        took.append(values[own][here])
        others.append(values[own][~here])
    return took, others
