"""Slow, literal DPRL for discrete states: the oracle of the test-suite.

An episode is a list of (state, action, reward); a log is a list of episodes.
States and actions are hashable, sortable labels. Nothing here is meant to be fast.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np
from scipy import stats

Label = Any
Pair = tuple[Label, Label]
Row = tuple[Label, Label, float]
Episode = list[Row]
Allowed = dict[Label, list[Label]]
NextWeights = dict[Label, float]

TOLERANCE_ALLOWED = 1e-9
TOLERANCE_IMPROVE = 1e-10
MAX_ROUNDS = 1000


# ---------------------------------------------------------------- evidence


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of a non-empty list, summed without rounding error."""
    return fsum(values) / len(values)


def discounted_sum(rewards: Sequence[float], gamma: float) -> float:
    """r_0 + gamma r_1 + gamma^2 r_2 + ..."""
    return fsum(gamma**k * reward for k, reward in enumerate(rewards))


def returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_t = sum over k >= t of gamma^(k-t) r_k, for every t."""
    return [discounted_sum(rewards[t:], gamma) for t in range(len(rewards))]


def counted(keys: Sequence[Label], visits: str) -> list[int]:
    """Times that count: the first occurrence of each key, or every time."""
    if visits == "all":
        return list(range(len(keys)))
    if visits == "first":
        return [t for t, key in enumerate(keys) if key not in keys[:t]]
    raise ValueError(f"visits must be 'first' or 'all', not {visits!r}")


@dataclass
class Evidence:
    """Counts, means and the returns behind them.

    n_state and V have a key for every state visited; n_pair, Q, m and q for every pair that
    occurs (m may be 0); x and y for every visited state and every action seen in the log.
    """

    n_state: dict[Label, int]
    V: dict[Label, float]
    n_pair: dict[Pair, int]
    Q: dict[Pair, float]
    m: dict[Pair, int]
    x: dict[Pair, list[float]]
    y: dict[Pair, list[float]]
    q: dict[Pair, list[float]]


def evidence(episodes: Sequence[Episode], gamma: float, visits: str = "first") -> Evidence:
    """Evidence, from the lists of returns at the visits that count."""
    at_state: dict[Label, list[tuple[Label, float]]] = {}  # (action taken, G) per counted visit
    q: dict[Pair, list[float]] = {}
    for episode in episodes:
        states = [s for s, _, _ in episode]
        actions = [a for _, a, _ in episode]
        pairs = [(s, a) for s, a, _ in episode]
        to_go = returns([r for _, _, r in episode], gamma)
        for t in counted(states, visits):
            at_state.setdefault(states[t], []).append((actions[t], to_go[t]))
        for t in counted(pairs, visits):
            q.setdefault(pairs[t], []).append(to_go[t])

    every_action = sorted({a for episode in episodes for _, a, _ in episode})
    x = {(s, a): [g for b, g in at_state[s] if b == a] for s in at_state for a in every_action}
    y = {(s, a): [g for b, g in at_state[s] if b != a] for s in at_state for a in every_action}
    return Evidence(
        n_state={s: len(seen) for s, seen in at_state.items()},
        V={s: mean([g for _, g in seen]) for s, seen in at_state.items()},
        n_pair={pair: len(gs) for pair, gs in q.items()},
        Q={pair: mean(gs) for pair, gs in q.items()},
        m={pair: len(x[pair]) for pair in q},
        x=x,
        y=y,
        q=q,
    )


# ---------------------------------------------------------------- decision points


def is_allowed(ev: Evidence, s: Label, a: Label, n_min: int, contrast: bool) -> bool:
    """The rule for a pair that occurs in the log."""
    enough = ev.n_pair[s, a] >= n_min
    returns = [g for b in {b for t, b in ev.q if t == s} for g in ev.x[s, b]]
    size = math.sqrt(mean([g * g for g in returns]))
    no_worse = ev.Q[s, a] >= ev.V[s] - TOLERANCE_ALLOWED * size
    contrasted = ev.n_state[s] - ev.m[s, a] >= n_min
    return enough and no_worse and (contrasted or not contrast)


def allowed(
    ev: Evidence, n_min: int, contrast: bool = True, unavailable: Set[Pair] = frozenset()
) -> Allowed:
    """Decision points, each with its sorted allowed actions."""
    result: Allowed = {}
    for s, a in sorted(ev.n_pair):
        if (s, a) not in unavailable and is_allowed(ev, s, a, n_min, contrast):
            result.setdefault(s, []).append(a)
    return result


# ---------------------------------------------------------------- semi-MDP, planning


def semi_mdp(
    episodes: Sequence[Episode], gamma: float, allowed: Allowed, visits: str = "first"
) -> tuple[dict[Pair, float], dict[Pair, NextWeights]]:
    """R(s,a) and D(s,a,.) of the allowed pairs: means over their segments, END included."""
    segments: dict[Pair, list[tuple[float, int, Label, bool]]] = {
        (s, a): [] for s in allowed for a in allowed[s]
    }
    for episode in episodes:
        pairs = [(s, a) for s, a, _ in episode]
        rewards = [r for _, _, r in episode]
        for t in counted(pairs, visits):
            if pairs[t] not in segments:
                continue
            later = [i for i in range(t + 1, len(episode)) if episode[i][0] in allowed]
            ends = not later
            stop = len(episode) if ends else later[0]
            reward = discounted_sum(rewards[t:stop], gamma)
            target = None if ends else episode[stop][0]
            segments[pairs[t]].append((reward, stop - t, target, ends))

    R: dict[Pair, float] = {}
    D: dict[Pair, NextWeights] = {}
    for pair, found in segments.items():
        R[pair] = mean([reward for reward, _, _, _ in found])
        targets = sorted({target for _, _, target, ends in found if not ends})
        D[pair] = {
            s: fsum(gamma**k for _, k, target, ends in found if not ends and target == s)
            / len(found)
            for s in targets
        }
    return R, D


def pooled_semi_mdp(
    episodes: Sequence[Episode], gamma: float, allowed: Allowed, visits: str = "first"
) -> tuple[dict[Pair, float], dict[Pair, NextWeights]]:
    """R and D with the share of segments that reach END moved towards that of the state."""
    last: dict[Pair, list[float]] = {(s, a): [] for s in allowed for a in allowed[s]}
    on: dict[Pair, list[tuple[float, int, Label]]] = {pair: [] for pair in last}
    for episode in episodes:
        for t in counted([(s, a) for s, a, _ in episode], visits):
            pair = episode[t][:2]
            if pair not in last:
                continue
            later = [i for i in range(t + 1, len(episode)) if episode[i][0] in allowed]
            stop = later[0] if later else len(episode)
            earned = discounted_sum([r for _, _, r in episode[t:stop]], gamma)
            if later:
                on[pair].append((earned, stop - t, episode[stop][0]))
            else:
                last[pair].append(earned)

    n = {pair: len(last[pair]) + len(on[pair]) for pair in last}
    N = {s: sum(n[s, a] for a in allowed[s]) for s in allowed}
    share = {s: sum(len(last[s, a]) for a in allowed[s]) / N[s] for s in allowed}
    own = {pair: len(last[pair]) / n[pair] for pair in last}
    noise = {(s, a): share[s] * (1 - share[s]) * (1 / n[s, a] - 1 / N[s]) for s, a in last}
    between = sum((own[pair] - share[pair[0]]) ** 2 - noise[pair] for pair in last)
    k = sum(share[s] * (1 - share[s]) for s, _ in last) / max(between, 1e-9)

    R, D = {}, {}
    for (s, a), ends in last.items():
        goes, p = on[s, a], own[s, a]
        if goes and (p - share[s]) ** 2 <= 4 * noise[s, a]:
            p = (len(ends) + k * share[s]) / (n[s, a] + k)
        known = ends or [earned for b in allowed[s] for earned in last[s, b]] or [0.0]
        m = max(len(goes), 1)
        R[s, a] = (1 - p) * fsum(w[0] for w in goes) / m + p * mean(known)
        D[s, a] = {}
        for _, steps, target in goes:
            D[s, a][target] = D[s, a].get(target, 0.0) + (1 - p) * gamma**steps / m
    return R, D


def semi_mdp_of_first_visits(
    episodes: Sequence[Episode], gamma: float, allowed: Allowed, beyond: int = 0
) -> tuple[dict[Pair, float], dict[Pair, NextWeights], dict[Pair, int]]:
    """R, D and the number of segments, as Section 4 says it: from one first visit to the next.

    With beyond=1 the reward at the end is part of a segment, too, as the pseudocode has it.
    """
    ways: dict[Pair, list[tuple[float, int, Label]]] = {
        (s, a): [] for s in allowed for a in allowed[s]
    }
    for episode in episodes:
        met: list[int] = []  # when each decision point was met for the first time
        for t, (s, _, _) in enumerate(episode):
            if s in allowed and all(episode[u][0] != s for u in met):
                met.append(t)
        for t, stop in itertools.pairwise(met):
            s, a, _ = episode[t]
            if a in allowed[s]:
                earned = sum(gamma ** (u - t) * episode[u][2] for u in range(t, stop + beyond))
                ways[s, a].append((earned, stop - t, episode[stop][0]))
    R = {pair: sum(w[0] for w in found) / max(len(found), 1) for pair, found in ways.items()}
    D: dict[Pair, NextWeights] = {pair: {} for pair in ways}
    for pair, found in ways.items():
        for _, k, s in found:
            D[pair][s] = D[pair].get(s, 0.0) + gamma**k / len(found)
    return R, D, {pair: len(found) for pair, found in ways.items()}


def greedy(Q: dict[Pair, float], allowed: Allowed) -> dict[Label, Label]:
    """The allowed action with the largest Q, the lowest one on ties."""
    return {s: max(sorted(allowed[s]), key=lambda a: Q[s, a]) for s in sorted(allowed)}


def states_that_can_end(D: dict[Pair, NextWeights], choice: dict[Label, Label]) -> set[Label]:
    """States from which the policy loses some weight (to END or to discounting) sooner or later."""
    good: set[Label] = set()
    while True:
        more = {
            s
            for s, a in choice.items()
            if fsum(D[s, a].values()) < 1 - 1e-12 or any(target in good for target in D[s, a])
        }
        if more == good:
            return good
        good = more


def evaluate(
    R: dict[Pair, float], D: dict[Pair, NextWeights], choice: dict[Label, Label]
) -> dict[Label, float]:
    """Solve V = R_pi + D_pi V."""
    stuck = sorted(set(choice) - states_that_can_end(D, choice))
    if stuck:
        raise ValueError(f"under this policy the semi-MDP never ends from {stuck}")
    states = sorted(choice)
    matrix = np.eye(len(states))
    for i, s in enumerate(states):
        for j, target in enumerate(states):
            matrix[i, j] -= D[s, choice[s]].get(target, 0.0)
    values = np.linalg.solve(matrix, np.array([R[s, choice[s]] for s in states]))
    return {s: float(v) for s, v in zip(states, values, strict=True)}


def policy_iteration(
    R: dict[Pair, float], D: dict[Pair, NextWeights], allowed: Allowed, Q: dict[Pair, float]
) -> tuple[dict[Label, Label], dict[Label, float]]:
    """Exact policy iteration from argmax Q; returns the stable policy and its semi-MDP value."""
    choice = greedy(Q, allowed)
    for _ in range(MAX_ROUNDS):
        V = evaluate(R, D, choice)
        ahead = {
            (s, a): R[s, a] + fsum(weight * V[target] for target, weight in D[s, a].items())
            for s in allowed
            for a in allowed[s]
        }
        best = greedy(ahead, allowed)
        improved = {
            s: best[s] if ahead[s, best[s]] > ahead[s, choice[s]] + TOLERANCE_IMPROVE else choice[s]
            for s in choice
        }
        if improved == choice:
            return choice, V
        choice = improved
    raise RuntimeError("policy iteration did not settle")


plan = policy_iteration  # `fit` has a flag of this name


def fit(
    episodes: Sequence[Episode],
    n_min: int,
    gamma: float,
    contrast: bool = True,
    plan: bool = True,
    *,
    visits: str = "first",
    unavailable: Set[Pair] = frozenset(),
    segments: str = "pooled",
) -> tuple[dict[Label, Label], dict[Label, float]]:
    """Action and value at each decision point; without planning the value is Q of the action."""
    ev = evidence(episodes, gamma, visits)
    may = allowed(ev, n_min, contrast, unavailable)
    if plan:
        if segments == "end":
            R, D = semi_mdp(episodes, gamma, may, visits)
        elif segments == "pooled":
            R, D = pooled_semi_mdp(episodes, gamma, may, visits)
        else:
            R, D, _ = semi_mdp_of_first_visits(episodes, gamma, may, int(segments == "printed"))
        return policy_iteration(R, D, may, ev.Q)
    choice = greedy(ev.Q, may)
    return choice, {s: ev.Q[s, a] for s, a in choice.items()}


# ---------------------------------------------------------------- cut episodes


@dataclass
class Shortened:
    """An episode as we may use it; `last_seen` is meaningful only when it was cut."""

    rows: Episode
    cut: bool
    last_seen: Label = None


def shorten(episodes: Sequence[Episode], cut: Sequence[bool]) -> list[Shortened]:
    """Cut episodes lose their last row, which only says where they were last seen."""
    log = []
    for rows, was_cut in zip(episodes, cut, strict=True):
        if not was_cut:
            log.append(Shortened(list(rows), False))
        elif len(rows) > 1:
            log.append(Shortened(list(rows[:-1]), True, rows[-1][0]))
    return log


def grounded_states(log: Sequence[Shortened], gamma: float) -> set[Label]:
    """States whose V the log determines."""
    if gamma < 1:
        return {s for e in log for s, _, _ in e.rows}
    good: set[Label] = set()
    while True:
        more = {s for e in log if not e.cut or e.last_seen in good for s, _, _ in e.rows}
        if more == good:
            return good
        good = more


def remove_ungrounded(log: list[Shortened], gamma: float) -> list[Shortened]:
    """Remove cut episodes last seen in a state without grounded V, until none is left."""
    while True:
        good = grounded_states(log, gamma)
        kept = [e for e in log if not e.cut or e.last_seen in good]
        if len(kept) == len(log):
            return log
        log = kept


def self_consistent_values(log: Sequence[Shortened], gamma: float) -> dict[Label, float]:
    """V(s) = mean over first visits of s of G_t + [cut] gamma^(length - t) V(last seen)."""
    states = sorted({s for e in log for s, _, _ in e.rows})
    index = {s: i for i, s in enumerate(states)}
    constants: list[list[float]] = [[] for _ in states]
    tails: list[list[tuple[int, float]]] = [[] for _ in states]  # (last seen, weight) of the cut
    for e in log:
        to_go = returns([r for _, _, r in e.rows], gamma)
        for t in counted([s for s, _, _ in e.rows], "first"):
            i = index[e.rows[t][0]]
            constants[i].append(to_go[t])
            if e.cut:
                tails[i].append((index[e.last_seen], gamma ** (len(e.rows) - t)))
    matrix = np.eye(len(states))
    for i, found in enumerate(tails):
        for j in {j for j, _ in found}:
            matrix[i, j] -= fsum(w for k, w in found if k == j) / len(constants[i])
    values = np.linalg.solve(matrix, np.array([mean(gs) for gs in constants]))
    return {s: float(v) for s, v in zip(states, values, strict=True)}


def add_tail(e: Shortened, gamma: float, V: dict[Label, float]) -> Episode:
    """The rows, with gamma V(last seen) added to the last reward if the episode was cut."""
    if not e.cut:
        return e.rows
    s, a, r = e.rows[-1]
    return [*e.rows[:-1], (s, a, r + gamma * V[e.last_seen])]


def treat_cut(
    episodes: Sequence[Episode], cut: Sequence[bool], gamma: float, treatment: str
) -> list[Episode]:
    """The log after "terminal", "drop" or "bootstrap" treatment of its cut episodes."""
    if treatment == "terminal":
        return [list(rows) for rows in episodes]
    if treatment == "drop":
        return [list(rows) for rows, was_cut in zip(episodes, cut, strict=True) if not was_cut]
    if treatment == "bootstrap":
        log = remove_ungrounded(shorten(episodes, cut), gamma)
        V = self_consistent_values(log, gamma)
        return [add_tail(e, gamma, V) for e in log]
    raise ValueError(f"treatment must be 'terminal', 'drop' or 'bootstrap', not {treatment!r}")


# ---------------------------------------------------------------- intervals


def contrast(x: Sequence[float], y: Sequence[float]) -> tuple[float | None, float | None]:
    """95 % interval of E x - E y, from the lists themselves; None where there is none.

    Two values: Newcombe's, from score intervals with the continuity correction: the shares t that a
    corrected score test of |p - t| does not reject, found by bisection. Else Welch's, where either list gets the smallest and the
    largest of both as two more entries, and counts and degrees of freedom stay as they were.
    """
    every = [*x, *y]
    low, high = min(every), max(every)
    if low == high:
        return None, None
    if set(every) == {low, high}:
        (p, below_p, above_p), (q, below_q, above_q) = (
            _shares(sum(v == high for v in values), len(values)) for values in (x, y)
        )
        down, up = math.hypot(p - below_p, above_q - q), math.hypot(above_p - p, q - below_q)
        return (high - low) * (p - q - down), (high - low) * (p - q + up)
    if min(len(x), len(y)) < 2:
        return None, None
    (a, u, n), (b, v, m) = (
        (statistics.fmean(z), statistics.variance(z), len(values))
        for values in (x, y)
        for z in [[*values, low, high]]
    )
    error = u / n + v / m
    freedom = error**2 / ((u / n) ** 2 / (n - 1) + (v / m) ** 2 / (m - 1))
    half = stats.t.ppf(0.975, freedom) * math.sqrt(error)
    return a - b - half, a - b + half


def near(x: Sequence[float], y: Sequence[float]) -> tuple[float | None, float | None]:
    """`contrast`, and no further out than t intervals with and without a correction for skewness.

    The difference d is asked of z = (d - truth) / error + ..., Hall's transformation: the ends are
    where it reaches the quantiles of t, found by bisection.
    """
    low, high = contrast(x, y)
    means = [statistics.fmean(values) for values in (x, y)]
    far = [[v - mean for v in values] for values, mean in zip((x, y), means, strict=True)]
    every = {*x, *y}
    if low is None or every == {min(every), max(every)} or not all(map(any, far)):
        return low, high
    n, m = len(x), len(y)
    second, third, fourth = ([sum(v**k for v in values) for values in far] for k in (2, 3, 4))
    both = (sum(fourth) / (n + m)) / (sum(second) / (n + m)) ** 2
    pooled = sum(second) / (n + m - 2)
    own = [q / (k - 1) for q, k in zip(second, (n, m), strict=True)]
    wider = [
        max(v, (q + both * pooled) / (k - 1 + both))
        for v, q, k in zip(own, second, (n, m), strict=True)
    ]
    error = math.sqrt(wider[0] / n + wider[1] / m)
    u, v = own[0] / n, own[1] / m
    t = stats.t.ppf(0.975, (u + v) ** 2 / (u**2 / (n - 1) + v**2 / (m - 1)))
    reach = [-t, t]
    for learn in (0.0, both):
        a, b = (
            (c + learn * sum(third) / (n + m)) / (k + learn)
            for c, k in zip(third, (n, m), strict=True)
        )
        skew = max(-3.0, min(3.0, (a / n**2 - b / m**2) / error**3))
        for quantile in (-t, t) if abs(skew) > 1e-6 else ():
            down, up = -1e6, 1e6
            for _ in range(200):  # z rises with what is asked
                z = (down + up) / 2
                if z + skew * z**2 / 3 + skew**2 * z**3 / 27 + skew / 6 < quantile:
                    down = z
                else:
                    up = z
            reach.append(z)
    d = means[0] - means[1]
    return max(low, d - error * max(reach)), min(high, d - error * min(reach))


def _shares(k: int, n: int) -> tuple[float, float, float]:
    """k / n, and the ends of the corrected score interval around it."""
    p, z = k / n, stats.norm.ppf(0.975)

    def kept(t: float) -> bool:
        return max(abs(p - t) - 1 / (2 * n), 0.0) <= z * math.sqrt(t * (1 - t) / n)

    ends = []
    for edge in (0.0, 1.0):
        inside, outside = p, edge
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if kept(middle) else (inside, middle)
        ends.append(edge if p == edge else inside)
    return p, ends[0], ends[1]
