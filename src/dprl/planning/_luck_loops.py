"""The loops of `dprl.planning.luck`: returns by state, shuffles, and chances of contrasts."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.planning._shuffles import S11, STEP, UNIT, _mixed

__all__ = ["chance_at_most", "changes_by_luck", "deal_actions", "list_returns"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]

ROUNDS = 40
"""Most steps of Newton's method for one contrast. Any number of them gives a valid bound."""
ENOUGH = 20
"""Random divisions that do as well, after which no more of them are drawn."""
CROWD = 0.4689
"""A sum of independent 0s and 1s with variance v takes no value with a chance above CROWD/√v."""


@compiled
def list_returns(
    starts: Ints,
    state: Codes,
    action: Codes,
    reward: Floats,
    first: Bools,
    counted: Bools,
    gamma: float,
    place: Ints,
    G: Floats,
    label: Codes,
    row: Ints,
) -> None:  # pragma: no cover - compiled
    """Write the return and the action of every counted row to where its state keeps them.

    first, counted (N,): whether a row is a first visit of its state, and whether it counts.
    place (2·S,): for each state the next free place of a first visit, and of a later row that
        counts; -1 for states that are not wanted.
    G, label, row (rows,): the returns, the codes of the actions and the rows of the log, by state.
    """
    for e in range(len(starts) - 1):
        tail = 0.0
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            tail = reward[t] + gamma * tail
            which = 2 * np.int64(state[t]) + (0 if first[t] else 1)
            if counted[t] and place[which] >= 0:
                G[place[which]] = tail
                label[place[which]] = action[t]
                row[place[which]] = t
                place[which] += 1


@compiled
def _deal(
    x: Floats, label: Codes, low: int, high: int, word: np.uint64, sums: Floats
) -> np.uint64:  # pragma: no cover - compiled
    """Shuffle x[low:high] in place and add each value to the sum of the action it now meets."""
    for i in range(high - 1, low - 1, -1):
        word = word + STEP
        j = low + int(float(_mixed(word) >> S11) * UNIT * (i - low + 1))
        kept = x[j]
        x[j] = x[i]
        x[i] = kept
        sums[label[i]] += kept
    return word


@compiled
def changes_by_luck(
    begin: Ints,
    x: Floats,
    label: Codes,
    n: Ints,
    eligible: Bools,
    unusual: Bools,
    V: Floats,
    slack: Floats,
    start: np.uint64,
    offset: int,
    changes: Ints,
) -> None:  # pragma: no cover - compiled
    """Count the changes that the rule makes when returns are shuffled within each of k states.

    begin (2·k + 1,): where the first visits of each state begin in x, and its later rows.
    x, label (rows,): the returns of each state, in one scale per state, and their actions.
    n (k, A): n(s,a). eligible (k, A): pairs with enough episodes on both sides.
    unusual (k, A): pairs that are a change if they are chosen.
    V, slack (k,): the mean of first visits, and how far below it counts as equal, in the scale.
    start, offset: the seed, mixed, and the number of the first of these states among all.
    changes (draws,): to which the number of changes of each shuffle is added.
    """
    A = n.shape[1]
    sums = np.empty(A)
    for s in range(len(V)):
        seed = _mixed(start + STEP * np.uint64(offset + s + 1))
        for draw in range(len(changes)):
            sums[:] = 0.0
            word = _mixed(seed ^ (STEP * np.uint64(draw + 1)))
            word = _deal(x, label, begin[2 * s], begin[2 * s + 1], word, sums)
            _deal(x, label, begin[2 * s + 1], begin[2 * s + 2], word, sums)
            best, top = -1, 0.0
            for a in range(A):
                if not eligible[s, a]:
                    continue
                q = sums[a] / n[s, a]
                if q >= V[s] - slack[s] and (best < 0 or q > top + 1e-14 * abs(top)):
                    best, top = a, q
            if best >= 0 and unusual[s, best]:
                changes[draw] += 1


@compiled
def deal_actions(
    begin: Ints, label: Codes, start: np.uint64, offset: int, draw: int
) -> None:  # pragma: no cover - compiled
    """Shuffle the actions of each state in place: those of first visits, and those of later rows.

    begin (2·k + 1,), label (rows,), start, offset: as in `changes_by_luck`. draw: number of the
        shuffle.
    """
    for part in range(len(begin) - 1):
        seed = _mixed(start + STEP * np.uint64(2 * offset + part + 1))
        word = _mixed(seed ^ (STEP * np.uint64(draw + 1)))
        for i in range(begin[part + 1] - 1, begin[part], -1):
            word = word + STEP
            j = begin[part] + int(float(_mixed(word) >> S11) * UNIT * (i - begin[part] + 1))
            kept = label[j]
            label[j] = label[i]
            label[i] = kept


@compiled
def _log_chance(
    x: Floats, label: Codes, low: int, high: int, a: int
) -> float:  # pragma: no cover - compiled
    """The logarithm of the bound for first visits x[low:high] of one state; 0: it says nothing."""
    n, m, total, took = high - low, 0, 0.0, 0.0
    for i in range(low, high):
        total += x[i]
        if label[i] == a:
            m += 1
            took += x[i]
    if m in (0, n):
        return 0.0
    mean, square = total / n, 0.0
    for i in range(low, high):
        square += (x[i] - mean) ** 2
    sd = math.sqrt(square / n)
    if sd == 0 or took / m <= mean:
        return 0.0
    took = (took - m * mean) / sd
    ways = math.lgamma(n + 1.0) - math.lgamma(m + 1.0) - math.lgamma(n - m + 1.0)
    alpha, theta, step = math.log(m / (n - m)), 0.0, 1.0
    to_alpha, to_theta = 0.0, 0.0
    likelihood, log_p = -np.inf, 0.0
    for _ in range(ROUNDS):
        try_alpha, try_theta = alpha + step * to_alpha, theta + step * to_theta
        value = try_alpha * m + try_theta * took
        w0, w1, w2, off0, off1 = 0.0, 0.0, 0.0, float(m), took
        for i in range(low, high):
            z = (x[i] - mean) / sd
            eta = try_alpha + try_theta * z
            small = math.exp(-abs(eta))
            value -= max(eta, 0.0) + math.log1p(small)
            p = (1.0 if eta >= 0 else small) / (1.0 + small)
            w = small / (1.0 + small) ** 2
            off0 -= p
            off1 -= p * z
            w0 += w
            w1 += w * z
            w2 += w * z * z
        if try_theta < 0 or value < likelihood:
            step /= 2
            continue
        gained = value - likelihood
        alpha, theta, likelihood, step = try_alpha, try_theta, value, 1.0
        crowded = min(0.0, math.log(CROWD) - 0.5 * math.log(w0)) if w0 > 0 else 0.0
        log_p = min(log_p, crowded - value - ways)
        determinant = w0 * w2 - w1 * w1
        if gained < 1e-9 or not determinant > 1e-12 * w0 * w2:
            break
        to_alpha = (w2 * off0 - w1 * off1) / determinant
        to_theta = (w0 * off1 - w1 * off0) / determinant
    return log_p


@compiled
def _share_as_good(
    x: Floats, label: Codes, low: int, high: int, a: int, word: np.uint64, draws: int
) -> float:  # pragma: no cover - compiled
    """The share of random divisions that do as well for action a; it stops after ENOUGH of them.

    The division as it was counts as one. x[low:high] is left in another order, and label is not.
    """
    n, m, took, total, size = high - low, 0, 0.0, 0.0, 0.0
    for i in range(low, high):
        total += x[i]
        size += abs(x[i])
        if label[i] == a:
            m += 1
            took += x[i]
    few = min(m, n - m)  # those who took it, or else the others: their sum must be as small
    aim = took - 1e-12 * size if few == m else total - took + 1e-12 * size
    as_good = 0
    for draw in range(draws):
        drawn = 0.0
        for i in range(few):
            word = word + STEP
            j = low + i + int(float(_mixed(word) >> S11) * UNIT * (n - i))
            kept = x[j]
            x[j] = x[low + i]
            x[low + i] = kept
            drawn += kept
        as_good += drawn >= aim if few == m else drawn <= aim
        if as_good == ENOUGH:
            return as_good / (draw + 1)
    return (as_good + 1) / (draws + 1)


@compiled
def chance_at_most(
    begin: Ints,
    x: Floats,
    label: Codes,
    chosen: Codes,
    start: np.uint64,
    offset: int,
    draws: int,
    chance: Floats,
) -> None:  # pragma: no cover - compiled
    """For each of k states, how likely a shuffle does as well for the chosen action, at most.

    begin, x, label, start, offset: As in `changes_by_luck`; only first visits are looked at, and
        x is left in another order.
    chosen (k,): the code of the action; -1 where there is nothing to ask.
    draws: The most random divisions of a state; 0 for none.
    chance (k,): the share of random divisions if any did as well, else the bound if that is less.
    """
    for s in range(len(chosen)):
        if chosen[s] < 0:
            continue
        low, high = begin[2 * s], begin[2 * s + 1]
        bound = math.exp(_log_chance(x, label, low, high, chosen[s]))
        chance[s] = bound
        if draws > 0 and bound < 1:
            word = _mixed(start + STEP * np.uint64(offset + s + 1))
            share = _share_as_good(x, label, low, high, chosen[s], word, draws)
            nobody = share <= 1.0 / (draws + 1)
            chance[s] = min(share, bound) if nobody else share
