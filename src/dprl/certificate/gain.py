"""How much a policy gains that issues exactly what is certified, by how often it meets its states.

T is a set of states, each with one action to take or to avoid, that *other groups proposed*: given
those it is fixed.
Let b be usual practice and π_C the policy that does what T says in the states of C ⊆ T and as usual
everywhere else. Three things say how often π_C comes to a state of T, and the log of b tells all:

    h(s)      = E_b γ^τ 1{the first state of T that is met is s, after τ steps}
    K^π(t, s) = E_b γ^k 1{the next state of T after t is s, after k steps}, as T says at t
    K^b(t, s) = the same after any action at t

Between states of T and before the first of them π_C does as b does. So d(s), the discounted number
of visits of s under π_C, solves d = h + Kᵀ d, the rows of K from K^π in C and from K^b outside C,
where what follows a visit of a state of T depends on the past through that state alone. The
solution rises with h and K: lower bounds of those give a lower bound of d, and

    ρ(π_C) - ρ(b) = ∑_{s in C} d(s) A(s, T(s))  >=  ∑_{s in C} d_lo(s) A_lo(s)

All bounds hold at once, for every C ⊆ T: C may be chosen by the same data. Each entry is the mean
of numbers in [0, 1] that are seen one after the other (`lower_mean`); entries that were 0 among the
groups that proposed are bounded by 0, and cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.bootstrap import counts, percentiles
from dprl._core.checks import Cut, check_draws, check_level, check_seed
from dprl._core.compiled import compiled
from dprl._core.linear import solve
from dprl._core.table import Result
from dprl._core.words import worded
from dprl.certificate.eprocesses import counted_rows, lower_mean
from dprl.certificate.evalues import kl_lower
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import count
from dprl.evidence.propensity import RecordedPropensity
from dprl.logs.log import Log
from dprl.logs.returns import first_visits, returns
from dprl.logs.source import Chunk, Source, columns_in_order
from dprl.planning.neighbor_semi_mdp import segments
from dprl.policies.held_out import HeldOut
from dprl.policies.protocol import DEFER, Avoid, Policy

# --- What a policy without a certificate seems to gain, estimated on groups it never saw
#
# The number is approximate, and it is printed as approximate. It is the value in the elevated
# semi-MDP of a held-out log, with the policy's own choice at every decision point,
#
#     V = R̃_π + D_π V            ρ̂(π) = mean over episodes of (reward before the first decision
#                                 point + γ^k V there, or the whole return where none is met)
#     gain = ρ̂(π) - mean G_0
#
# with percentile intervals from a bootstrap over whole groups. Where nobody followed a suggestion
# in the held-out log, that decision point counts as usual practice, and it is counted as such.
#
# No bound is proved here. The interval must never be computed on the log that chose the policy:
# there it covered the truth in .55 to .73 of the datasets instead of .95.


@dataclass(frozen=True)
class ApproximateGain(Result):
    """A bootstrap estimate of ρ(π) - ρ(b) on held-out groups; approximate.

    Attributes:
        gain: The estimate, in units of returns.
        low: Lower end of the interval, in units of returns.
        high: Upper end of the interval, in units of returns.
        level: Nominal coverage of the interval, between 0 and 1.
        groups: Number of groups (episodes, where no group was given) in the held-out log.
        points: Number of decision points whose suggestion somebody followed in the held-out log.
        unfollowed: Number of decision points met there whose suggestion nobody followed.

    Example:
        >>> estimate = ApproximateGain(0.08, 0.06, 0.10, 0.95, 2000, 2, 0)
        >>> print(estimate)  # doctest: +ELLIPSIS
        APPROXIMATE: ρ(π) - ρ(b) is +0.08, 95 % bootstrap interval +0.06..+0.1, over 2,000 ...
    """

    gain: float
    low: float
    high: float
    level: float
    groups: int
    points: int
    unfollowed: int

    def to_dict(self) -> dict[str, Any]:
        """All attributes as plain values.

        Returns:
            Attribute name → number.

        Example:
            >>> ApproximateGain(0.08, 0.06, 0.10, 0.95, 2000, 2, 0).to_dict()["groups"]
            2000
        """
        return dict(vars(self))

    def details(self) -> str:
        """The estimate and its interval, as text.

        Returns:
            One line, and one more where suggestions were followed by nobody.

        Example:
            >>> len(ApproximateGain(0.08, 0.06, 0.10, 0.95, 2000, 2, 1).details().splitlines())
            2
        """
        lines = (
            f"APPROXIMATE: ρ(π) - ρ(b) is {self.gain:+.4g}, {100 * self.level:g} % bootstrap "
            f"interval {self.low:+.4g}..{self.high:+.4g}, over {self.groups:,} held-out groups."
        )
        if self.unfollowed:
            lines += (
                f"\nNobody followed the suggestion at {self.unfollowed:,} of "
                f"{self.points + self.unfollowed:,} decision points met: they count as usual "
                "practice."
            )
        return lines


def approximate_gain(
    policy: Policy,
    log: Log,
    *,
    level: float = 0.95,
    draws: int = 1_000,
    seed: int = 0,
    cut: Cut | None = None,
) -> ApproximateGain:
    """What the policy gains over usual practice, estimated on a log it never saw.

    Where the log records with which chance actions were taken, those who followed are weighed by
    one over it.

    Args:
        policy: A policy over labelled states.
        log: A log of held-out groups; the log that the policy was made from is refused.
        level: Nominal coverage of the interval, in (0, 1). Default 0.95.
        draws: Number of bootstrap resamples of the groups, at least 2. Default 1,000.
        seed: Seed of the resamples. Default 0.
        cut: How cut episodes are treated, as for learners: "drop-unrelated", "terminal" or
            "bootstrap". Default None: as when the policy was learned.

    Returns:
        The estimate and its interval, in units of returns.

    Raises:
        ParameterError: The policy is not over labelled states, or level or draws is outside its
            range.
        PolicyError: The policy was made from this log.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> estimate = approximate_gain(policy, test, draws=100)
        >>> estimate.low < estimate.gain < estimate.high, estimate.groups
        (True, 500)
    """
    if policy.space.feature_names or not policy.knows_practice:
        raise ParameterError(
            f"this estimate is for policies over labelled states; got a {type(policy).__name__}.",
        )
    level, draws, seed = check_level(level), check_draws(draws, 2), check_seed(seed)
    held = HeldOut.meet(policy, log, cut=cut, reads="transitions")
    return estimate(held, level=level, draws=draws, seed=seed)


def estimate(held: HeldOut, *, level: float, draws: int, seed: int) -> ApproximateGain:
    """`approximate_gain` once policy and log have met.

    It is also used to measure how much the estimate flatters a policy on the log that chose it.
    """
    policy, log, gamma = held.policy, held.treated, held.gamma
    choice = _choices(policy, log)
    state, action, group = log.codes(), log.action, np.repeat(log.group, log.lengths)
    base = log.n_actions + 1
    took, avoids = action == choice[state] % base, choice[state] >= base
    counted = np.where(avoids, first_visits(log) & ~took, count(log, gamma)[1].counted & took)
    followed = np.bincount(state[counted], minlength=log.n_states) > 0
    met = np.bincount(state, minlength=log.n_states) > 0
    unfollowed = int(((choice >= 0) & met & ~followed).sum())
    choice = np.where(followed, choice, -1)
    points = np.flatnonzero(choice >= 0)
    number = np.full(log.n_states + 1, -1)
    number[points] = np.arange(len(points))

    rows = np.flatnonzero(choice[state] >= 0)
    ahead = segments(log, gamma, rows)
    to = np.append(number[state[rows]], -1)[ahead.next]  # the point each row's segment leads to
    source = np.flatnonzero(counted & (choice[state] >= 0))
    first = log.starts[:-1]
    start_point = number[state[first]]  # the point where an episode begins, -1 where at none
    begin = _Start(
        np.where(start_point >= 0, 0.0, ahead.reward[first]),
        np.where(start_point >= 0, 1.0, ahead.discount[first]),
        np.where(start_point >= 0, start_point, to[first]),
        returns(log, gamma)[first],
    )
    parts = _Segments(
        number[state[source]], to[source], ahead.reward[source], ahead.discount[source],
        len(points),
    )  # fmt: skip
    n = len(log.groups)
    one = np.ones(n)
    stands_for = _stand_for(log, source, avoids[source])
    whole = parts.solve(one[group[source]] * stands_for, None)
    gain = begin.gain(one[log.group], whole[0])
    drawn = [
        begin.gain(weight[log.group], parts.solve(weight[group[source]] * stands_for, whole)[0])
        for some in counts(n, draws, seed)
        for weight in some
    ]
    low, high = percentiles(np.array(drawn), level)
    ends = log.outcome.ends(low, high)
    return ApproximateGain(log.outcome.shown(gain), *ends, level, n, len(points), unfollowed)


def _stand_for(log: Log, followed: Ints, avoids: Bools) -> Floats:
    """float64 (n,): how many each that followed stands for, one over its chance; else 1.

    Where chances on record are the same within a state all stand for as many. Where they differ,
    and one is missing, or something is merely avoided among three actions or more, nobody knows.
    """
    p = np.full(len(followed), np.nan) if log.propensity is None else log.propensity[followed]
    if not np.isnan(p).any() and not (avoids.any() and log.n_actions > 2):
        return np.asarray(1 / p)
    state, chances = log.codes()[followed], RecordedPropensity.of(log)
    if chances is not None and not chances.same[state].all():
        unequal = state[~chances.same[state]][0]
        raise LogError(
            "the recorded chances differ within a state, and those who followed cannot be weighed "
            f"by them: {int(np.isnan(p).sum()):,} of {len(p):,} have none, "
            f"{int(avoids.sum()):,} merely avoid an action.",
            f"state {log.states[unequal]!r}",
            worded(
                "Record the chance of every action that was taken, or judge the policy with "
                "{dprl.evaluate}."
            ),
        )  # fmt: skip
    return np.ones(len(followed))


def _choices(policy: Policy, log: Log) -> Ints:
    """The policy's choice in each state of the log, int64 (S,), as codes of the log's actions.

    -1 where the policy defers; A, one more than the last code, for an action not in the log; and
    A + 1 more than the code of an action to avoid.
    """
    columns: dict[Any, int] = {label: i for i, label in enumerate(log.actions)}
    columns |= {Avoid(label): log.n_actions + 1 + i for label, i in columns.items()}
    columns[DEFER] = -1
    answers = policy.act(list(log.states))
    return np.array([columns.get(a, log.n_actions) for a in answers], np.int64)


@dataclass(frozen=True, eq=False)
class _Start:
    """How each episode begins.

    `reward` is collected before the first decision point, `discount` is the discount there, `point`
    its number (-1 where none is met), and `G` the return of the whole episode.
    """

    reward: Floats
    discount: Floats
    point: Ints
    G: Floats

    def gain(self, weight: Floats, V: Floats) -> float:
        ahead = self.reward + self.discount * np.append(V, 0.0)[self.point]
        return float(weight @ (ahead - self.G) / weight.sum())


@dataclass(frozen=True, eq=False)
class _Segments:
    """The segments that follow suggestions: source and target point, reward and discount."""

    source: Ints
    to: Ints
    reward: Floats
    discount: Floats
    n: int

    def solve(
        self, weight: Floats, whole: tuple[Floats, Floats, sparse.csr_array] | None
    ) -> tuple[Floats, Floats, sparse.csr_array]:
        """V, R̃ and D of the weighted segments.

        A point whose segments all have weight 0 keeps the R̃ and D of the `whole` log.
        """
        P = self.n
        total = np.bincount(self.source, weight, minlength=P)
        safe = np.maximum(total, 1e-300)
        R = np.bincount(self.source, weight * self.reward, minlength=P) / safe
        on = self.to >= 0
        share = (weight * self.discount)[on] / safe[self.source[on]]
        D = sparse.csr_array((share, (self.source[on], self.to[on])), shape=(P, P))
        if whole is not None and (lost := total == 0).any():
            R[lost] = whole[1][lost]
            D = (D + sparse.diags_array(lost.astype(np.float64)) @ whole[2]).tocsr()
        return (solve(D, R) if P else np.zeros(0)), R, D


# --- How much certified changes are worth together: a lower bound on ρ(π) - ρ(b)
#
# A trajectory of the behaviour b parts from π at time σ, the first step at a state where π speaks
# and something else was done. The log tells how often that happens at a state s:
#
#     u(s) = E_b γ^σ 1{they part at s}
#
# By the performance difference lemma ρ(π) - ρ(b) = E_π ∑_t γ^t A(s_t, π(s_t)), and every A is >= 0.
# A history up to t in which b did what π says wherever π speaks is at least as likely under π as
# under b (π does it with probability 1), so counting only such histories, with b's weight, is a
# lower bound: E_b ∑_{t <= σ} γ^t A(s_t, π(s_t)) over the states where π speaks. A = (1 - p)(E x - E
# y) there, and 1 - p is the chance of parting then and there; with lower bounds d(s) >= 0 of E x -
# E y
#
#     ρ(π) - ρ(b)  >=  ∑_s u(s) d(s)
#
# The states were *chosen by the same data* that bound u. So the bound must hold at once for every
# set of pairs that π might have issued, and for every part T of it. A set of k states out of S,
# with one action each, gets the share 1 / ((S+1) · C(S,k) · A^k) of the level β; each of its 2^k
# parts gets an equal share of that; and
#
#     U_lo(T) = the smallest q with N · kl(Û(T), q) <= ln( (S+1) C(S,k) (2A)^k / β )
#
# (Chernoff; where other data proposed K pairs, sets are drawn from those: ln((K+1) C(K,k) 2^k /
# β)), Û(T) the mean over groups of γ^σ 1{they part in T}, in a group's first episode (how many
# follow may depend on what happened in it; ρ is then the value of first episodes). Then, with the
# states sorted by d and T_j the first j of them, both of these are lower bounds, and the larger is
# taken:
#
#     ∑_j (d_j - d_{j+1}) U_lo(T_j)          ∑_s d(s) U_lo({s})


@compiled
def _part(
    starts: Ints,
    state: Codes,
    action: Codes,
    choice: Codes,
    A: int,
    gamma: float,
    where: Ints,
    weight: Floats,
) -> None:  # pragma: no cover - compiled
    for e in range(len(starts) - 1):
        where[e] = -1
        weight[e] = 0.0
        discount = 1.0
        for t in range(starts[e], starts[e + 1]):
            s = state[t]
            if choice[s] >= 0 and (action[t] == choice[s] % A) == (choice[s] >= A):
                where[e] = s
                weight[e] = discount
                break
            discount *= gamma


def partings(log: Log, choice: Codes, gamma: float) -> tuple[Ints, Floats]:
    """The state where each episode first does otherwise than `choice` says, and γ^σ there.

    Args:
        log: A gathered log.
        choice: int32 (S,), the action the policy takes in each state, A more than the action it
            avoids there, -1 where it defers.
        gamma: Discount per step, in (0, 1].

    Returns:
        The state codes, int64 (E,), -1 where an episode never does otherwise; and γ^σ, float64
        (E,), 0 there.
    """
    where, weight = np.empty(log.n_episodes, np.int64), np.empty(log.n_episodes)
    A = log.n_actions
    _part(log.starts, log.codes(), log.action, choice, A, gamma, where, weight)
    return where, weight


def nats_of_sets(items: int, chosen: int, kinds: int, level: float) -> float:
    """ln( (n+1) C(n,k) (2·kinds)^k / β ): the price of a bound that holds for every set of pairs.

    Args:
        items: n, the number of states (or proposed pairs) that a set could be chosen from.
        chosen: k, the number of states in the set.
        kinds: Number of actions that each of them could have.
        level: β, the level of the bound, in (0, 1).
    """
    n, k = items, chosen
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.log(n + 1) + choose + k * math.log(2 * kinds) - math.log(level)


def _of_first_episodes(chunk: Chunk, log: Log, choice: Codes, gamma: float) -> tuple[Ints, Floats]:
    """Where the first episode of each group of a chunk parts, and γ^σ there."""
    where, weight = partings(log, choice, gamma)
    # How often a group returns may depend on what happened, so only its first episode counts.
    first = np.unique(log.group, return_index=True)[1]
    return where[first], weight[first]


def certified_gain(
    source: Source | Log,
    choice: Codes,
    lower: Floats,
    gamma: float,
    nats: float,
    cut: Cut | None = None,
) -> float:
    """Lower bound on ρ(π) - ρ(b), never below 0.

    Args:
        source: A log of the behaviour; it may be the log that chose the actions.
        choice: int32 (S,), the action issued in each state, A more than one to be avoided, -1 where
            the policy defers.
        lower: float64 (S,), lower bound of E x - E y at the issued pairs (where choice >= 0).
        gamma: Discount per step, in (0, 1].
        nats: The result of `nats_of_sets`, which says how many sets the bound must hold for.
        cut: What is done with cut episodes. Default None: there are none.

    Returns:
        The bound, in units of returns; 0 for a policy that never speaks.
    """
    speaks = np.flatnonzero(choice >= 0)
    if not len(speaks):
        return 0.0
    where, weight = columns_in_order(
        source, _of_first_episodes, choice, gamma, cut=cut, gamma=gamma
    )
    N = len(where)
    U = np.bincount(where[where >= 0], weight[where >= 0], minlength=len(choice))[speaks] / N
    d = np.maximum(lower[speaks], 0.0)
    order = np.lexsort((speaks, -d))
    steps = -np.diff(np.append(d[order], 0.0))
    layered = steps @ kl_lower(np.minimum(np.cumsum(U[order]), 1.0), N, nats)
    single = d @ kl_lower(np.minimum(U, 1.0), N, nats)
    return float(max(layered, single))


# --- How much a policy gains that issues exactly what is certified, by how often it meets its
# states

KEEP = 0.95
"""A certified state joins C while the bound stays above this share of the largest."""

TIE, MOST = 1e-12, 200
"""Differences below TIE are rounding; policy iteration ends after MOST steps at the latest."""


@dataclass(frozen=True, eq=False)
class Legs:
    """How often a leg led from one state of T to the next, in so many steps.

    The states of T have numbers 0..k-1. A row of `table` is (kind, source, to, gap, count); kind 0
    are ways to the first state of T (source is 0), 1 are legs that did as T says at the source, 2
    are other legs; `to` is k where no further state of T was met (gap is then 0).
    """

    k: int
    table: Ints
    gamma: float

    def seen(self, kinds: tuple[int, ...], source: int) -> tuple[Ints, Ints, Ints]:
        """(to, gap, count) of the legs of these kinds from a source."""
        rows = self.table[np.isin(self.table[:, 0], kinds) & (self.table[:, 1] == source)]
        return rows[:, 2], rows[:, 3], rows[:, 4]

    def merge(self, other: Legs) -> Legs:
        """The legs of two parts of a log together, where no group is in both parts."""
        both = np.concatenate((self.table, other.table))
        rows, place = np.unique(both[:, :4], axis=0, return_inverse=True)
        count = np.zeros(len(rows), np.int64)
        np.add.at(count, place.reshape(-1), both[:, 4])
        return Legs(self.k, np.column_stack((rows, count)), self.gamma)


@compiled
def _legs(
    starts: Ints, state: Codes, action: Codes, choice: Codes,
    A: int, number: Ints, counted: Bools, first: Bools, k: int, out: Ints,
) -> int:  # pragma: no cover - compiled  # fmt: skip
    """Fill out (rows, 4) with (kind, source, to, gap) in one backward pass; returns how many."""
    n = 0
    for e in range(len(starts) - 1):
        to, at = k, -1
        for t in range(starts[e + 1] - 1, starts[e] - 1, -1):
            s = state[t]
            if number[s] < 0:
                continue
            if counted[t]:
                out[n, 0] = 1 if (action[t] == choice[s] % A) != (choice[s] >= A) else 2
                out[n, 1], out[n, 2], out[n, 3] = number[s], to, at - t if to < k else 0
                n += 1
            to, at = number[s], t
        if first[e]:
            out[n, 0], out[n, 1], out[n, 2] = 0, 0, to
            out[n, 3] = at - starts[e] if to < k else 0
            n += 1
    return n


def legs_of(log: Log, choice: Codes, gamma: float) -> Legs:
    """The legs between states of T in a settled, gathered log.

    Args:
        log: The log. A group begins with its first episode, and the legs from a state are those of
            its first episode that visits the state.
        choice: int32 (S,), T: the action of each of its states, A more where it is to be avoided,
            -1 elsewhere.
        gamma: Discount per step, in (0, 1].
    """
    speaks = np.flatnonzero(choice >= 0)
    number = np.full(log.n_states, -1, np.int64)
    number[speaks] = np.arange(len(speaks))
    first = np.zeros(log.n_episodes, bool)
    first[np.unique(log.group, return_index=True)[1]] = True
    out = np.empty((log.n_steps + log.n_episodes, 4), np.int64)
    n = _legs(
        log.starts, log.codes(), log.action, choice, log.n_actions, number,
        counted_rows(log, True), first, len(speaks), out,
    )  # fmt: skip
    rows, count = np.unique(out[:n], axis=0, return_counts=True)
    return Legs(len(speaks), np.column_stack((rows, count)), gamma)


@dataclass(frozen=True, eq=False)
class Meetings:
    """Lower bounds of h (k,), K^π and K^b (k, k), all at once.

    Attributes:
        h: How often a state of T is the first that is met, discounted.
        followed: K^π, after what T says.
        usual: K^b, after any action.
    """

    h: Floats
    followed: Floats
    usual: Floats

    def often(self, inside: Bools) -> Floats:
        """d_lo (k,): how often each state of T is met by the policy that speaks in C ⊆ T."""
        K = np.where(inside[:, None], self.followed, self.usual)
        return np.asarray(np.linalg.solve(np.eye(len(self.h)) - K.T, self.h))

    def best_part(self, low: Floats) -> tuple[Bools, float]:
        """The part C of T to issue, bool (k,), and its certified gain.

        To speak in a state is worth A_lo and leads on by K^π, to be silent is worth 0 and leads on
        by K^b: the C with the largest bound is found by policy iteration. Then further states speak
        while the bound stays above KEEP of the largest: what is certified of them is an
        improvement, and where they are silent only because of the errors of K, that is lost.

        Args:
            low: float64 (k,), A_lo in units of returns; below 0 where nothing is certified.
        """
        may = low >= 0
        gain = np.where(may, low, 0.0)
        inside, step = may.copy(), 0
        while True:
            K = np.where(inside[:, None], self.followed, self.usual)
            ahead = np.linalg.solve(np.eye(len(low)) - K, np.where(inside, gain, 0.0))
            speak, silent = gain + self.followed @ ahead, self.usual @ ahead
            better = np.where(inside, speak >= silent - TIE, speak > silent + TIE) & may
            if (better == inside).all() or step == MOST:
                break
            inside, step = better, step + 1
        worth = self.bound(inside, gain)
        least = KEEP * worth
        while (left := np.flatnonzero(may & ~inside)).size:
            more = worth + self._changes(inside, gain)[left]
            if more.max() < least:
                break
            inside[left[int(more.argmax())]] = True
            worth = self.bound(inside, gain)
        return inside, worth

    def _changes(self, inside: Bools, low: Floats) -> Floats:
        """(k,), how the bound changes if one more state speaks (the inverse of a changed row)."""
        K = np.where(inside[:, None], self.followed, self.usual)
        inverse = np.linalg.inv(np.eye(len(low)) - K)
        row = self.followed - self.usual
        ahead = inverse @ np.where(inside, low, 0.0)
        back = 1 - np.einsum("ij,ji->i", row, inverse)
        return np.asarray((self.h @ inverse) * (low + row @ ahead) / back)

    def bound(self, inside: Bools, low: Floats) -> float:
        """∑ d_lo A_lo over C."""
        return float((self.often(inside) * np.where(inside, low, 0.0)).sum())


def meetings(proposed: Legs, legs: Legs, level: float) -> Meetings:
    """Lower bounds of how often states of T are met.

    Args:
        proposed: The legs of the groups that proposed T; they say which entries are bounded.
        legs: The legs of other groups.
        level: Probability with which any of the bounds may fail.
    """
    k = legs.k
    kinds = {"h": ((0,), 1), "followed": ((1,), k), "usual": ((1, 2), k)}
    wanted = [
        (name, source, targets)
        for name, (kind, sources) in kinds.items()
        for source in range(sources)
        if len(targets := np.unique(proposed.seen(kind, source)[0])) and targets[0] < k
    ]
    bounds = {name: np.zeros((sources, k)) for name, (_, sources) in kinds.items()}
    n = sum(int((targets < k).sum()) for _, _, targets in wanted)
    nats = math.log(max(n, 1)) - math.log(level)
    for name, source, targets in wanted:
        ends, gap, count = legs.seen(kinds[name][0], source)
        discount = legs.gamma ** gap.astype(np.float64)
        for to in targets[targets < k]:
            bounds[name][source, to] = lower_mean(np.where(ends == to, discount, 0.0), count, nats)
    return Meetings(bounds["h"][0], bounds["followed"], bounds["usual"])
