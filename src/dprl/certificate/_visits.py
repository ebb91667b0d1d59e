r"""What every counted visit of a state led to: all that the e-processes of the gate need to keep.

Returns are put on the scale [0, 1] by their range (g_lo, g_hi), which is known beforehand. A visit
of s at step t, with the same state visited next at step t + k of the episode, leads to

    R = G_t - γ^k G_{t+k}        D = γ^k             (R = G_t and D = 0 if s is not visited again)

so that R + D v is what the visit brings if coming back is worth v. There are two ways to count:

* ``markov=True``: all visits of s in the *first episode of a group that visits s*. Later episodes
  of the group do not count for s: what is claimed of the state is claimed within an episode, and a
  patient who comes a hundred times has one vote.
* ``markov=False``: the first visit of s by a group, with R = G and D = 0.

`Visits` holds whole numbers only: for every pair (state, action), how often a way back of k steps
came with an R in a certain bin. R is either a whole number i of units of 1/4000 or lies between i
and i + 1, and each case has a bin,

    bin 2i      R = i/4000                    rounded down i      rounded up i
    bin 2i + 1  i/4000 < R < (i+1)/4000       rounded down i      rounded up i + 1

so R can be rounded against either hypothesis. A difference of less than 1e-9 to a whole number of
units is rounding of the computer, and the e-process leaves room for it. Visits of disjoint groups
are put together with `merge`: the counts add up to those of the whole, bit for bit, in any order.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_gamma, check_range
from dprl._core.compiled import compiled
from dprl._core.words import argument, worded
from dprl.certificate._histograms import checked_returns
from dprl.errors import LogError
from dprl.evidence._site_bins import SLACK, UNITS, unit_bins
from dprl.logs.log import Label, Log
from dprl.logs.returns import outside_error, outside_range, powers, returns
from dprl.logs.source import Chunk, Source
from dprl.logs.treated import OfTreated, in_order

__all__ = ["SLACK", "UNITS", "Visits", "counted", "counted_rows",
           "refuse_outside_range", "visits_in", "visits_of"]  # fmt: skip

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
                        "Read the parts with the same states, actions, gamma and {value_range}.",
                        value_range=argument("value_range"),
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
    starts: Ints, state: NDArray[np.int32], group: NDArray[np.int32], every: bool, S: int,
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
    starts: Ints, state: NDArray[np.int32], G: Floats, power: Floats, S: int, gap: Ints, R: Floats
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
        raise outside_error(n, rows, value_range, where)


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
