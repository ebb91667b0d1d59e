r"""Episodes we stopped looking at: dropped, bootstrapped, or (said aloud) taken as ended.

A cut episode is never silently treated as terminal. `settle` returns a log in which every episode
may be read as finished, so nothing below has to know about cuts:

* ``"drop"``: cut episodes are left out. Biased where long or severe cases are the ones cut.
* ``"bootstrap"``: the last row of a cut episode is only *where it was last seen*; it is taken off
  and γ V̂(s_last) is added to the reward before it, so that G_t gets its γ^k V̂ of the last state.
  V̂ is the self-consistent one: it solves V(s) = mean over first visits of s of the returns with
  these tails inside, a sparse linear system. An episode whose last state has no such value (nothing
  finished ever follows from it) is dropped.
* ``"terminal"``: taken as ended with nothing to come. Biased towards zero.
* ``None`` (the default of every learner): as "terminal", with a CutWarning that says how many.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl.compiled import compiled
from dprl.errors import CutWarning, LogError, ParameterError
from dprl.linear import solve
from dprl.log import CUT, TERMINAL, Cut, Log
from dprl.returns import fill_returns, powers

__all__ = ["check_cut", "settle"]


def check_cut(cut: Cut | None) -> None:
    """Refuse a treatment that does not exist."""
    if cut not in (None, "drop", "bootstrap", "terminal"):
        raise ParameterError(
            f"cut must be 'drop', 'bootstrap', 'terminal' or None; got {cut!r}.",
            do="None treats cut episodes as terminal and warns.",
        )


def settle(log: Log, gamma: float, cut: Cut | None) -> Log:
    """The log with its cut episodes treated as asked; the log itself where none was cut."""
    check_cut(cut)
    episodes = log.cut_episodes
    if not len(episodes):
        return log
    if cut == "drop":
        return _without(log, episodes)
    if cut == "bootstrap":
        return _bootstrapped(log, gamma)
    if cut is None:
        steps = int(log.lengths[episodes].sum())
        warnings.warn(
            f"{len(episodes):,} of {log.n_episodes:,} episodes ({steps:,} of {log.n_steps:,} steps)"
            " were cut, and are treated as if nothing came after: their returns are too small "
            "in size. Choose cut='drop', 'bootstrap' or 'terminal'.",
            CutWarning,
            stacklevel=_outside(),
        )
    return replace(log, ended=np.where(log.ended == CUT, TERMINAL, log.ended))


def _outside() -> int:
    """How far up the stack the user's own line is, as `warnings.warn` counts from our caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dprl."):
        level, frame = level + 1, frame.f_back
    return level


def _without(log: Log, episodes: NDArray[np.int64]) -> Log:
    keep = np.setdiff1d(np.arange(log.n_episodes), episodes)
    if not len(keep):
        raise LogError(
            f"all {log.n_episodes:,} episodes were cut: none is left.",
            do="Choose another treatment of cut episodes, or read episodes to their end.",
        )
    return log.take(keep)


def _shortened(log: Log) -> tuple[Log, NDArray[np.int64]]:
    """The log with each cut episode's last row off, and the state that row held (-1 if not cut)."""
    is_cut = log.ended == CUT
    ends = log.starts[1:] - 1
    last = np.where(is_cut, log.codes()[ends], -1).astype(np.int64)
    keep = np.ones(log.n_steps, bool)
    keep[ends[is_cut]] = False
    short = replace(
        log,
        starts=np.concatenate(([0], np.cumsum(log.lengths - is_cut))),
        action=log.action[keep],
        reward=log.reward[keep],
        state=log.codes()[keep],
        time=None if log.time is None else log.time[keep],
        available=None if log.available is None else log.available[keep],
    )
    return short, last


@compiled
def _first_visits(
    starts: NDArray[np.int64],
    state: NDArray[np.int32],
    reward: NDArray[np.float64],
    gamma: float,
    n_states: int,
    rows: NDArray[np.int32],
    episode: NDArray[np.int64],
    ahead: NDArray[np.int64],
    G: NDArray[np.float64],
) -> int:  # pragma: no cover - compiled
    """List first visits: their state, episode, steps to the episode's end, and return."""
    seen = np.full(n_states, -1, np.int64)
    n = 0
    for e in range(len(starts) - 1):
        begin, length = starts[e], starts[e + 1] - starts[e]
        tail = np.empty(length)
        fill_returns(reward[begin : begin + length], gamma, tail)
        for t in range(length):
            s = state[begin + t]
            if seen[s] != e:
                seen[s] = e
                rows[n], episode[n], ahead[n], G[n] = s, e, length - t, tail[t]
                n += 1
    return n


def _grounded(
    rows: NDArray[np.int32], tail: NDArray[np.int64], n_states: int, gamma: float
) -> NDArray[np.bool_]:
    """States with a value: visited and, where nothing is discounted, followed by a finished end.

    rows, tail: state of each first visit, and last state of its episode (-1 if it finished).
    """
    grounded = np.zeros(n_states, bool)
    if gamma < 1:
        grounded[rows] = True
        return grounded
    grounded[rows[tail < 0]] = True
    while True:
        more = rows[(tail >= 0) & grounded[tail]]
        if grounded[more].all():
            return grounded
        grounded[more] = True


def _bootstrapped(log: Log, gamma: float) -> Log:
    before = log.n_episodes
    lost = np.flatnonzero((log.ended == CUT) & (log.lengths == 1))
    while True:
        if len(lost):
            log = _without(log, lost)
        short, last = _shortened(log)
        n_states, N = short.n_states, short.n_steps
        rows, episode, ahead = np.empty(N, np.int32), np.empty(N, np.int64), np.empty(N, np.int64)
        G = np.empty(N)
        n = _first_visits(
            short.starts, short.codes(), short.reward, gamma, n_states, rows, episode, ahead, G
        )
        rows, tail, ahead, G = rows[:n], last[episode[:n]], ahead[:n], G[:n]
        grounded = _grounded(rows, tail, n_states, gamma)
        lost = np.flatnonzero((last >= 0) & ~grounded[last])
        if not len(lost):
            break
    if log.n_episodes < before:
        warnings.warn(
            f"{before - log.n_episodes:,} cut episodes could not be bootstrapped and were dropped: "
            "one row only, or a last state that no other episode says anything about.",
            CutWarning,
            stacklevel=_outside(),
        )
    visits = np.maximum(np.bincount(rows, minlength=n_states), 1)
    weight = powers(gamma, int(short.lengths.max()))[ahead] / visits[rows]
    tailed = tail >= 0
    B = sparse.csr_array((weight[tailed], (rows[tailed], tail[tailed])), shape=(n_states, n_states))
    V = solve(B, np.bincount(rows, weights=G, minlength=n_states) / visits)
    reward = short.reward.copy()
    was_cut = last >= 0
    reward[short.starts[1:][was_cut] - 1] += gamma * V[last[was_cut]]
    return replace(short, reward=reward, ended=np.where(was_cut, TERMINAL, short.ended))
