"""What an action brings, from the way back to the same state (labelled states).

For every visit of a state s let R be the discounted reward until s is next visited in the episode,
and D = γ^k, k the steps until then; 0 if it is not visited again. If what comes next depends on
the past through s alone *whenever s is visited*, then

    V(s) = E[R] + E[D] V(s)          Q(s,a) = E[R | a] + E[D | a] V(s)          Δ = Q - V

Nothing is assumed of other states, and nothing of the time in between: R is what was earned. So
this needs less than a model of all states, and it uses every visit, where returns of first visits
use one per trajectory and carry the luck of everything until the end.

The error of Δ by the delta method, with Z = R + D V, variances e(s,a) of a pair's mean Z shrunk as
in `dprl.planning.advantages`, and c = (D̄_a - 1) / (1 - D̄):

    Var Δ(s,a) = (1 + c p_a)² e(s,a) + c² ∑_{o≠a} p_o² e(s,o) + c² ∑_o p_o (Q_o - V)² / n(s)

p the shares of visits; the last term is the error of b̂.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import Cut, check_gamma, check_number
from dprl._core.compiled import compiled
from dprl.errors import LogError, ParameterError
from dprl.logs.log import Log, check_log
from dprl.logs.returns import refuse_overflow
from dprl.logs.source import Chunk, Source, columns_in_order

# --- Credit: how much better than usual things went from a step on
#
# A return carries the luck of everything until the end of the episode. With values V of the states,
# fitted on *other* groups, the surprise of a step and the credit of a step are
#
#     δ_t = r_t + γ V(s_{t+1}) - V(s_t)                 V after the last row of an episode is 0
#     e_t(λ) = ∑_{k >= 0} (γλ)^k δ_{t+k}                computed backwards: e_t = δ_t + γλ e_{t+1}
#
# λ says how far the values are trusted:
#
# * λ = 1: the sum telescopes, e_t = G_t - V(s_t), the return less a baseline. Comparisons of
#   actions stay unbiased *whatever V is*, if V never saw the group and the probabilities of the
#   actions are right: a baseline that does not depend on the action cancels. The variance is that
#   of returns.
# * λ = 0: e_t = δ_t. One reward is looked at, and the model is trusted for everything afterwards:
#   if V is wrong at the next state, or the features do not tell all that matters for what comes
#   next, the comparison is wrong too, however long the log is. The variance is smallest.
# * Between: surprises k steps ahead count (γλ)^k / γ^k = λ^k of what they would in the return. An
#   effect that shows within about 1 / (1 - λ) steps is seen in what happened; one that shows later
#   is seen only if V sees it coming.
#
# So λ < 1 adds an assumption, and a claim made with it has to say so. Cut episodes (observation
# stopped early) must be settled before: the 0 after the last row means that nothing follows.


@compiled
def _fill_credit(
    starts: Ints, reward: Floats, V: Floats, gamma: float, decay: float, e: Floats
) -> None:  # pragma: no cover - compiled
    """Fill e (N,) with the credit of every row; decay = γλ."""
    for episode in range(len(starts) - 1):
        following, tail = 0.0, 0.0
        for t in range(starts[episode + 1] - 1, starts[episode] - 1, -1):
            tail = reward[t] + gamma * following - V[t] + decay * tail
            e[t] = tail
            following = V[t]


def check_settled(log: Log) -> None:
    """Refuse a log with cut episodes: the value after their last row is not 0."""
    cut = log.cut_episodes
    if len(cut):
        raise LogError(
            f"{len(cut):,} of {log.n_episodes:,} episodes were cut: what came after their last row "
            "is not in the log.",
            f"episode {log.episodes[cut[0]]!r}",
            "Settle them first: drop them, treat them as ended, or add an estimate of the rest.",
        )


def credit(log: Log, gamma: float, lam: float, V: Any) -> Floats:
    """How much better than usual things went from every row on, e_t(λ).

    Args:
        log: The log, with N rows and without cut episodes (treat them first).
        gamma: Discount in (0, 1].
        lam: λ in [0, 1], how far into the episode surprises are counted. 1 gives the return less V
            and is unbiased whatever V is; 0 gives the surprise of one step and trusts V.
        V: float64 (N,), the value of the state of each row, in the unit of the rewards, fitted on
            other groups than the row's own (see `dprl.evidence.nuisances`).

    Returns:
        float64 (N,), in the unit of the rewards.

    Raises:
        ParameterError: If `gamma` or `lam` is out of range, or `V` is not N finite numbers.
        LogError: If episodes were cut, or rewards are so large that a credit is not finite.

    Example:
        >>> import dprl
        >>> from dprl.evidence.excursions import credit
        >>> log = dprl.from_arrays(episode=[1, 1], state=[0, 1], action=[0, 0], reward=[1, 2])
        >>> credit(log, gamma=0.5, lam=1.0, V=[1.5, 1.0]).tolist()  # returns 2, 2 less V
        [0.5, 1.0]
        >>> credit(log, gamma=0.5, lam=0.0, V=[1.5, 1.0]).tolist()
        [0.0, 1.0]
    """
    check_log(log)
    check_settled(log)
    gamma, lam = check_gamma(gamma), check_number("lam", lam, "[0, 1]")
    values = _values_by_row(V, log.n_steps)
    e = np.empty(log.n_steps)
    _fill_credit(log.starts, log.reward, values, gamma, gamma * lam, e)
    if not np.isfinite(e).all():
        refuse_overflow(log, int(np.flatnonzero(~np.isfinite(e))[-1]))
    return e


def _values_by_row(V: Any, n: int) -> Floats:
    """V as float64 (n,), or an error that says what is wrong with it."""
    try:
        values = np.ascontiguousarray(V, np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (n,):
        raise ParameterError(
            f"V must be {n:,} numbers, one per row of the log; got an array of {np.shape(V)}.",
            do="Pass the values of the rows in the order of the log.",
        )
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ParameterError(
            f"V is not a finite number on {len(bad):,} of {n:,} rows.",
            f"row {bad[0]}, V = {values[bad[0]]}",
            "Every row needs a value; a constant such as 0 will do where none was fitted.",
        )
    return values


# --- What an action brings, from the way back to the same state (labelled states)

OWN = 2.0
"""How many visits the variance of the state counts for in the variance of a pair."""


@dataclass(frozen=True, eq=False)
class Excursions:
    """Advantages from the way back to the same state.

    Attributes:
        n: int64 (S, A), visits of each pair.
        V: float64 (S,), value of each state; 0 where never visited.
        Q: float64 (S, A), value of each pair; 0 where never seen.
        se: float64 (S, A), standard error of Q - V; NaN where never seen.
    """

    n: Ints
    V: Floats
    Q: Floats
    se: Floats


@compiled
def _ways_back(
    starts: Ints, state: Codes, reward: Floats, gamma: float, S: int, R: Floats,
    D: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill R, D (N,): reward until the next visit of the same state, and the discount then."""
    at, returned = np.full(S, -1, np.int64), np.zeros(S)
    for e in range(len(starts) - 1):
        tail = 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            tail = reward[t] + gamma * tail
            s = state[t]
            D[t] = gamma ** (at[s] - t) if at[s] >= 0 else 0.0
            R[t] = tail - D[t] * returned[s]
            at[s] = t
            returned[s] = tail
        for t in range(starts[e], starts[e + 1]):
            at[state[t]] = -1
            returned[state[t]] = 0.0


def excursions(log: Log, gamma: float) -> Excursions:
    """Advantages of every pair from the way back to the same state.

    Args:
        log: A log with labelled states and without cut episodes, S states and A actions.
        gamma: Discount in (0, 1].

    Returns:
        Values and standard errors.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence.excursions import excursions
        >>> values = excursions(risky_arms().sample(1_000, seed=0), gamma=1.0)
        >>> bool(values.Q[0, 0] > values.V[0])
        True
    """
    R, D = _rows(log, gamma)
    pair = log.codes().astype(np.int64) * log.n_actions + log.action
    return _values(pair, R, D, log.n_states, log.n_actions)


def _rows(log: Log, gamma: float) -> tuple[Floats, Floats]:
    """R and D of every row of a log."""
    R, D = np.empty(log.n_steps), np.empty(log.n_steps)
    _ways_back(log.starts, log.codes(), log.reward, gamma, log.n_states, R, D)
    return R, D


def _values(pair: Ints, R: Floats, D: Floats, S: int, A: int) -> Excursions:
    """Values of S states from their visits: pairs s·A + a, R and D, in the order of the log."""
    state = pair // A
    n = np.bincount(pair, minlength=S * A).reshape(S, A)
    visits = n.sum(axis=1)

    def mean(x: Floats) -> tuple[Floats, Floats]:
        total = np.bincount(pair, weights=x, minlength=S * A).reshape(S, A)
        return total / np.maximum(n, 1), total.sum(axis=1) / np.maximum(visits, 1)

    (R_pair, R_state), (D_pair, D_state) = mean(R), mean(D)
    V = R_state / (1 - D_state)
    Q = R_pair + D_pair * V[:, None]
    Z = R + D * V[state]
    squares = np.bincount(pair, weights=(Z - Q.ravel()[pair]) ** 2, minlength=S * A)
    about = np.bincount(state, weights=(Z - V[state]) ** 2, minlength=S)
    prior = (about / np.maximum(visits - 1, 1))[:, None]
    e = (squares.reshape(S, A) + OWN * prior) / np.maximum(n + OWN - 1, 1) / np.maximum(n, 1)
    e[n == 0] = 0.0
    p = n / np.maximum(visits, 1)[:, None]
    c = (D_pair - 1) / (1 - D_state)[:, None]
    of_b = (p * (Q - V[:, None]) ** 2).sum(axis=1) / np.maximum(visits, 1)
    total = (p**2 * e).sum(axis=1, keepdims=True)
    variance = (1 + c * p) ** 2 * e + c**2 * (total - p**2 * e) + c**2 * of_b[:, None]
    se = np.sqrt(np.maximum(variance, 0.0))
    return Excursions(n, V, np.where(n > 0, Q, 0.0), np.where(n > 0, se, np.nan))


def _of_some(chunk: Chunk, log: Log, states: Bools, gamma: float) -> tuple[Ints, Floats, Floats]:
    """Pairs, R and D of the visits of some states, bool (S,), in one chunk."""
    keep = np.flatnonzero(states[log.codes()])
    number = np.cumsum(states) - 1
    R, D = _rows(log, gamma)
    pair = number[log.codes()[keep]] * log.n_actions + log.action[keep]
    return pair, R[keep], D[keep]


def excursions_of(
    source: Source, gamma: float, cut: Cut | None, states: Bools, visits: Ints
) -> Excursions:
    """`excursions` of some states of a log, wherever its rows are; the same to the last bit.

    Visits are gathered for as many states at a time as there is room for.

    Args:
        source: The log.
        gamma: Discount in (0, 1].
        cut: What is done with cut episodes.
        states: bool (S,), the states that are asked for; the others have no values.
        visits: int64 (S,), how often each state is visited.
    """
    S, A = source.facts.n_states, source.facts.n_actions
    result = Excursions(
        np.zeros((S, A), np.int64), np.zeros(S), np.zeros((S, A)), np.full((S, A), np.nan)
    )
    asked = np.flatnonzero(states)
    turn = np.zeros(len(asked), np.int64)
    if source.room is not None:
        turn = np.cumsum(visits[asked]) // max(source.room, 1)
    for some in (asked[turn == i] for i in np.unique(turn)):
        mask = np.zeros(S, bool)
        mask[some] = True
        pair, R, D = columns_in_order(source, _of_some, mask, gamma, cut=cut, gamma=gamma)
        own = _values(pair, R, D, len(some), A)
        for name in ("n", "V", "Q", "se"):
            getattr(result, name)[some] = getattr(own, name)
    return result
