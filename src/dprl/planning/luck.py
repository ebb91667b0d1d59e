"""How many changes of a policy luck alone would make, and how many of its own survive that doubt.

A rule that looks in thousands of states and takes the best action of each finds changes also where
no action matters. Two numbers tell how far that explains a policy (labelled states):

**Expected by luck.** Within every state the returns of first visits are shuffled among the groups
that made them, and so are those of later first occurrences of an action. Then the rule (Eq. 1, best
Q̂) is applied again. The mean number of changes over some shuffles is what the rule makes where no
action matters. A learner that plans chooses among allowed actions by other values. There the
actions are shuffled in the log itself, a few times, so that every row keeps what came after it; the
plan is made again, and the mean of (changes of the plan - changes by best Q̂) is added.

**Surviving.** For each change the returns of the m of n first visits that took the action are held
against the others. If no action matters, every division of the n returns is equally likely, and

    P(the sum of m returns is as large) <= min(1, .4689/√v) · exp(-ℓ) / C(n, m)

Here ℓ is the log-likelihood of a logistic regression of "took it" on the return, slope >= 0, and v
the sum of p(1-p) of its probabilities. (Tilt n independent 0s and 1s to that regression, as
Chernoff does, and condition on their sum being m. Before the tilt every set of m is equally likely;
after it the sum is m with a chance of at most .4689/√v: Baillon, Cominetti, Vaisman, *A sharp
uniform bound for the distribution of sums of Bernoulli trials*, 2016.) This holds for every n and
every distribution of returns, also for rare outcomes, where a t test goes wrong. It is exact where
all who took the action did better than all others, and otherwise too large by a factor of some
5 to 10. So where the log is small, up to 999 random divisions are drawn as well: if some did as
well, their share is taken (a valid p-value: Besag and Clifford, *Sequential Monte Carlo p-values*,
1991), and the bound only if none did. The action was picked from those of its state that had enough
episodes, so the chance is multiplied by their number (Bonferroni). The step-up rule of Benjamini
and Hochberg at 10 % is then applied to *all* states where a change was possible; one without a
change counts as a chance of 1.

That rule is proved for independent states and for positive dependence. Episodes that visit many
states may depend on each other otherwise; what happens on pure noise was measured (docs/ideas.md).
"""

from __future__ import annotations

# Apart: a question of its own about any plan.
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.arrays import unusual as unusual_pairs
from dprl._core.checks import SegmentRule
from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.exact import COUNT
from dprl._core.words import say
from dprl.errors import PlanError
from dprl.evidence.counts import FIRST, Counted, Counts, Occurrences
from dprl.evidence.decision_points import TOLERANCE, best_choice
from dprl.logs.source import Chunk, Share, Source
from dprl.planning.iteration import policy_iteration
from dprl.planning.markov import S11, STEP, UNIT, _mixed
from dprl.planning.semi_mdp import SemiMDP, build_semi_mdp

if TYPE_CHECKING:
    from dprl.evidence.counts import Evidence
    from dprl.logs.log import Log


# --- The loops of `dprl.planning.luck`: returns by state, shuffles, and chances of contrasts

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
            for a in range(A):
                sums[a] = 0.0
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


# --- How many changes of a policy luck alone would make, and how many of its own survive that
# doubt

RATE = 0.1
"""The false-discovery rate that changes must survive."""
DRAWS, SHUFFLED = (3, 100), 500_000
"""Fewest and most shuffles; in between, as many as shuffle this many returns."""
PLANS, PLANNED = (1, 4), 100
"""Fewest and most plans from shuffled actions; in between, as many as cover this many states."""
DIVISIONS, DIVIDED = 999, 1_000_000
"""Most random divisions of a state, and of how many returns in all; fewer than 99 are not made."""
LARGEST = 100_000_000
"""The most returns that are shuffled; with more of them luck is not counted."""


def luck_of(
    source: Source,
    counted: Counted,
    eligible: Bools,
    choice: Codes,
    *,
    plan: bool,
    segments: SegmentRule = "end",
    seed: int = 0,
    progress: Share | None = None,
) -> dict[str, Any]:
    """How many changes luck would make, and how many of a policy's own changes survive.

    Args:
        source: The log, wherever its rows are, with S states and A actions.
        counted: What was counted of it.
        eligible: bool (S, A), pairs that have enough episodes to be allowed, whatever they brought.
        choice: int32 (S,), the chosen action of each state, -1 for DEFER.
        plan: Whether the choice was made by a plan.
        segments: How it planned: "end", "pooled", "text" or "printed". Default "end".
        seed: Seed of the shuffles. Default 0.
        progress: Called with the share of a pass over the log that is done. Default None.

    Returns:
        "changes" of the policy; "expected" by luck, the mean over "draws" shuffles; how many of the
        changes "survive" the false-discovery "rate"; and "states", where a change was possible.
        Or only "skipped", which says why nothing was counted.

    Example:
        >>> import numpy as np
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence.counts import Counts, count_source
        >>> from dprl.logs.source import as_source
        >>> source = as_source(risky_arms().sample(1_000, seed=0))
        >>> counted = count_source(source, Counts(gamma=1.0))
        >>> choice = np.where(np.arange(source.facts.n_states) == 0, 0, -1).astype(np.int32)
        >>> facts = luck_of(source, counted, counted.evidence.n_pair >= 92, choice, plan=False)
        >>> facts["changes"], facts["survive"]
        (1, 1)
    """
    evidence = counted.evidence
    if source.sealed:
        return {"skipped": source.sealed}
    if evidence.visits != "first":
        return {"skipped": say("visits of one episode depend on each other")}
    unusual = unusual_pairs(evidence.words[FIRST, ..., COUNT])
    states = np.flatnonzero((eligible & unusual).any(axis=1))
    chosen = choice[states]
    changed = (chosen >= 0) & unusual[states, chosen]
    facts = {"changes": int(changed.sum()), "states": len(states), "rate": RATE}
    n_returns = int(evidence.n_pair[eligible.any(axis=1)].sum())
    if n_returns > LARGEST:
        return {"skipped": say("{n:,} returns are too many to shuffle", n=n_returns)}
    if not len(states):
        return {**facts, "expected": 0.0, "draws": 0, "survive": 0}

    # A state where only the usual action has enough episodes cannot change, but plans pass there.
    wanted = np.flatnonzero(eligible.any(axis=1))
    k, A = len(wanted), len(evidence.actions)
    asked = np.full(len(choice), -1, np.int32)
    asked[states[changed]] = chosen[changed]
    start, other = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    draws = int(np.clip(SHUFFLED // n_returns, *DRAWS))
    plans = int(np.clip(PLANNED // k, *PLANS)) if plan else 0
    divisions = _divisions(evidence, wanted, asked)
    begin = _places(evidence, wanted)
    dealt = [np.empty(n_returns, np.min_scalar_type(-A)) for _ in range(plans)]
    Q, V, slack = np.empty((plans, k, A)), np.empty(k), np.empty(k)
    chance, changes = np.ones(len(choice)), np.zeros(draws, np.int64)
    supply = _Supply(source, counted, progress, segments)
    for a, b in _ranges(begin, source.room):
        some = _Returns.of(supply, evidence, wanted[a:b], eligible, unusual, a)
        V[a:b], slack[a:b] = some.V, some.slack
        chance[wanted[a:b]] = some.chances(asked[wanted[a:b]], other, divisions)
        changes += some.by_best_value(start, draws)
        for draw in range(plans):
            label = some.dealt(start, draw)
            Q[draw, a:b] = some.values(label)
            dealt[draw][begin[2 * a] : begin[2 * b]] = label

    candidates = (eligible & unusual)[states].sum(axis=1)
    survive = int(survivors(np.minimum(chance[states] * candidates, 1.0), RATE).sum())
    expected = float(changes.mean())
    if plan:
        limit = (V - slack)[:, None]
        more = [
            _more_by_plan(supply, wanted, begin, label, Q[draw], limit, eligible, unusual)
            for draw, label in enumerate(dealt)
        ]
        expected = max(expected + float(np.mean(more)), 0.0)
    return {**facts, "expected": expected, "draws": draws, "survive": survive}


def survivors(chance: Floats, rate: float) -> Bools:
    """Benjamini and Hochberg's step-up rule: which of k hypotheses are rejected at this rate.

    Args:
        chance: float64 (k,), the p-value of each.
        rate: The false-discovery rate, between 0 and 1.

    Returns:
        bool (k,).

    Example:
        >>> import numpy as np
        >>> survivors(np.array([0.04, 0.9, 0.01, 0.2]), 0.1).tolist()
        [True, False, True, False]
    """
    ascending = np.sort(chance)
    limits = rate * np.arange(1, len(chance) + 1) / max(len(chance), 1)
    passed = np.flatnonzero(ascending <= limits)
    return np.asarray(chance <= (ascending[passed[-1]] if len(passed) else -1.0))


def _places(evidence: Evidence, states: Ints) -> Ints:
    """int64 (2·k + 1,): where the first visits of each of k states begin, and its later rows."""
    first = evidence.words[FIRST, ..., COUNT][states].sum(axis=1)
    both = evidence.n_pair[states].sum(axis=1)
    return np.concatenate(([0], np.cumsum(np.stack([first, both - first], axis=1).ravel())))


def _ranges(begin: Ints, room: int | None) -> list[tuple[int, int]]:
    """Ranges of states with at most `room` returns, but at least one state each."""
    first = begin[::2]
    k = len(first) - 1
    if room is None:
        return [(0, k)]
    ranges, a = [], 0
    while a < k:
        b = max(int(np.searchsorted(first, first[a] + room, "right")) - 1, a + 1)
        ranges.append((a, min(b, k)))
        a = min(b, k)
    return ranges


def _divisions(evidence: Evidence, states: Ints, asked: Codes) -> int:
    """How many random divisions each state gets; 0 if they would be too few."""
    codes, m = asked[states], evidence.words[FIRST, ..., COUNT][states]
    some = np.flatnonzero(codes >= 0)
    took = m[some, codes[some]]
    smaller = int(np.minimum(took, m[some].sum(axis=1) - took).sum())
    draws = min(DIVIDED // max(smaller, 1), DIVISIONS)
    return draws if draws >= 99 else 0


def _more_by_plan(
    supply: _Supply,
    states: Ints,
    begin: Ints,
    dealt: NDArray[Any],
    Q: Floats,
    limit: Floats,
    eligible: Bools,
    unusual: Bools,
) -> int:
    """How many changes more a plan makes than best Q̂, in a log with shuffled actions.

    dealt: the shuffled actions; Q (k, A): the values of the k states after it; limit (k, 1): the
    least value of a pair that is allowed.
    """
    own, changes = eligible[states] & (limit <= Q), unusual[states]
    if (own.sum(axis=1) <= 1).all():  # there is nothing to choose from
        return 0
    choice = best_choice(Q, own)
    speaks = np.flatnonzero(choice >= 0)
    by_value = int(changes[speaks, choice[speaks]].sum())
    pairs = np.zeros(eligible.shape, np.bool_)
    pairs[states] = own
    semi = supply.semi_mdp(states, begin, dealt, pairs)
    try:
        rows = policy_iteration(semi, Q[own]).rows
    except PlanError:  # no plan ends in the shuffled log; the true one did
        return 0
    planned = semi.action[rows]
    return int(changes[speaks, planned].sum()) - by_value


Listed: TypeAlias = dict[int, tuple[Ints, Floats, NDArray[Any]]]
"""First group of a chunk → how many returns each state has (2·k,), the returns, their actions."""


@dataclass(frozen=True, eq=False)
class ReturnsOf:
    """The returns and actions of the counted rows of some states; a statistic of a log.

    Attributes:
        how: How evidence was counted.
        states: int64 (k,), the codes of the states.
        dtype: That of the codes of actions: small where they travel.
    """

    how: Counts
    states: Ints
    dtype: Any

    def of(self, chunk: Chunk) -> Listed | None:
        """Those of one chunk."""
        log = self.how.log(chunk)
        if log is None:
            return None
        occurrences, first = self.how.occurrences(chunk, log)
        counts = _counts(occurrences, first, self.states)
        begin = np.concatenate(([0], np.cumsum(counts)))
        x, label, row = returns_of(log, self.how.gamma, occurrences, self.states, begin)
        chunk.once(lambda: row, "rows", self.states.tobytes())
        return {chunk.first_group: (counts, x, label.astype(self.dtype, copy=False))}

    def merge(self, one: Listed, other: Listed) -> Listed:
        """Those of two chunks together."""
        return one | other


@dataclass(frozen=True, eq=False)
class Dealt:
    """Shuffled actions of the counted rows of some states.

    Attributes:
        states: int64 (k,), the codes of the states.
        begin: int64 (2·k + 1,), where the first visits of each state begin, and its later rows.
        label: The codes of the actions of all these rows.
        before: First group of a chunk → int64 (2·k,), how many of these rows are in chunks before.
    """

    states: Ints
    begin: Ints
    label: NDArray[Any]
    before: Mapping[int, Ints]

    def of(
        self, chunk: Chunk, log: Log, how: Counts, occurrences: Occurrences, first: Ints
    ) -> tuple[Log, Occurrences]:
        """The log of a chunk with the shuffled actions, and the rows that count then."""
        counts = _counts(occurrences, first, self.states)
        own = np.concatenate(([0], np.cumsum(counts)))
        row = chunk.once(
            lambda: returns_of(log, how.gamma, occurrences, self.states, own)[2],
            "rows",
            self.states.tobytes(),
        )
        action = log.action.copy()
        shift = self.begin[:-1] + self.before[chunk.first_group] - own[:-1]
        action[row] = self.label[np.repeat(shift, counts) + np.arange(len(row))]
        moved = replace(log, action=action, available=None, menus=None, propensity=None)
        n = np.asarray(sum(occurrences.n))
        if len(self.before) > 1:  # else each state keeps its actions, and so does every pair
            rows = occurrences.counted
            pair = log.codes()[rows].astype(np.int64) * log.n_actions + action[rows]
            n = np.bincount(pair, minlength=n.size).reshape(n.shape)
        return moved, replace(occurrences, ranges=((0, log.n_episodes),), n=(n,))


def _counts(occurrences: Occurrences, first: Ints, states: Ints) -> Ints:
    """int64 (2·k,): first visits, and later rows that count, of each of k states of a chunk."""
    both = np.asarray(sum(occurrences.n)).sum(axis=1)
    return np.stack([first[states], (both - first)[states]], axis=1).ravel()


@dataclass(eq=False)
class _Supply:
    """The returns of a log, some states at a time, in the order of the log."""

    source: Source
    counted: Counted
    progress: Share | None = None
    segments: SegmentRule = "end"
    counts: dict[int, list[Ints]] = field(default_factory=dict)

    def returns(self, states: Ints, begin: Ints) -> tuple[Floats, Codes]:
        """The returns and actions of the counted rows of some states, as `_Returns` keeps them."""
        few = np.min_scalar_type(-self.source.facts.n_actions)
        dtype = np.int32 if self.source.room is None else few
        listed = self.source.reduce(ReturnsOf(self.counted.how, states, dtype), self.progress)
        if len(listed) == 1:
            ((key, (counts, x, label)),) = listed.items()
            self.counts.setdefault(key, []).append(counts)
            return x, label.astype(np.int32, copy=False)
        x, label = np.empty(begin[-1]), np.empty(begin[-1], np.int32)
        free = begin[:-1].copy()
        for key in sorted(listed):
            counts, some, own = listed.pop(key)
            self.counts.setdefault(key, []).append(counts)
            start = np.concatenate(([0], np.cumsum(counts)))[:-1]
            to = np.repeat(free - start, counts) + np.arange(len(some))
            x[to], label[to] = some, own
            free += counts
        return x, label

    def semi_mdp(self, states: Ints, begin: Ints, dealt: NDArray[Any], pairs: Bools) -> SemiMDP:
        """The semi-MDP over the pairs (S, A) if the counted rows of these states took `dealt`.

        dealt: codes of actions, in the order of the returns of all these states.
        """
        total, before = np.zeros(len(begin) - 1, np.int64), {}
        for key in sorted(self.counts):
            before[key] = total.copy()
            total += np.concatenate(self.counts[key])
        moved = Dealt(states, begin, dealt, before)
        return build_semi_mdp(self.source, self.counted, pairs, self.progress, moved, self.segments)


def returns_of(
    log: Log, gamma: float, occurrences: Occurrences, states: Ints, begin: Ints
) -> tuple[Floats, Codes, Ints]:
    """The returns, the actions and the rows of all counted rows of some states, state by state.

    begin (2·k + 1,): where the first visits of each state begin in the result, and its later rows.
    """
    place = np.full((log.n_states, 2), -1, np.int64)
    place[states] = begin[:-1].reshape(-1, 2)
    n_rows = int(begin[-1])
    x, label, row = np.empty(n_rows), np.empty(n_rows, np.int32), np.empty(n_rows, np.int64)
    list_returns(
        log.starts, log.codes(), log.action, log.reward, occurrences.first, occurrences.counted,
        gamma, place.ravel(), x, label, row,
    )  # fmt: skip
    return x, label, row


@dataclass(frozen=True, eq=False)
class _Returns:
    """The returns of k states, of each its first visits and then its later rows that count.

    Attributes:
        offset: The number of the first of these states among all.
        begin: int64 (2·k + 1,), where the first visits of each state begin, and its later rows.
        x: float64 (rows,), the returns, divided by the largest of their state: sums stay finite.
        label: int32 (rows,), the codes of their actions.
        n: int64 (k, A), n(s,a).
        eligible: bool (k, A), pairs that may be allowed.
        unusual: bool (k, A), pairs that are a change if they are chosen.
        V: float64 (k,), the mean of the first visits, in the scale of x.
        slack: float64 (k,), the difference to V that counts as a rounding error.
    """

    offset: int
    begin: Ints
    x: Floats
    label: Codes
    n: Ints
    eligible: Bools
    unusual: Bools
    V: Floats
    slack: Floats

    @classmethod
    def of(
        cls,
        supply: _Supply,
        evidence: Evidence,
        states: Ints,
        eligible: Bools,
        unusual: Bools,
        offset: int,
    ) -> _Returns:
        begin = _places(evidence, states)
        x, label = supply.returns(states, begin)
        size = np.maximum.reduceat(np.abs(x), begin[:-1:2])
        x /= np.repeat(np.where(size == 0, 1.0, size), np.diff(begin[::2]))
        first = np.diff(begin)[::2]
        # A state without later rows leaves an empty part; what reduceat writes for it is not read.
        ended = np.append(x, 0.0)
        V = np.add.reduceat(ended, begin[:-1])[::2] / first
        ended **= 2
        square = np.add.reduceat(ended, begin[:-1])[::2] / first
        return cls(
            offset, begin, x, label, evidence.n_pair[states], eligible[states], unusual[states],
            V, TOLERANCE * np.sqrt(square),
        )  # fmt: skip

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of states with about equal numbers of returns, one per thread."""
        return parts(self.begin[::2].copy())

    def chances(self, asked: Codes, start: np.uint64, divisions: int) -> Floats:
        """For each state (k,) the chance above; asked (k,): the action, -1 for none."""
        divided, chance = self.x.copy(), np.ones(len(asked))

        def ask(a: int, b: int) -> None:
            chance_at_most(
                self.begin[2 * a : 2 * b + 1], divided, self.label, asked[a:b], start,
                self.offset + a, divisions, chance[a:b],
            )  # fmt: skip

        in_parts(ask, self.ranges)
        return chance

    def by_best_value(self, start: np.uint64, draws: int) -> Ints:
        """The number of changes by best Q̂ after each of some shuffles, (draws,)."""
        shuffled = self.x.copy()

        def shuffle(a: int, b: int) -> Ints:
            changes = np.zeros(draws, np.int64)
            changes_by_luck(
                self.begin[2 * a : 2 * b + 1], shuffled, self.label, self.n[a:b],
                self.eligible[a:b], self.unusual[a:b], self.V[a:b], self.slack[a:b], start,
                self.offset + a, changes,
            )  # fmt: skip
            return changes

        return np.asarray(np.sum(in_parts(shuffle, self.ranges), axis=0))

    def dealt(self, start: np.uint64, draw: int) -> Codes:
        """The actions, shuffled within each state: those of first visits, and those of later rows.

        int32 (rows,); `draw` is the number of the shuffle.
        """
        label = self.label.copy()
        deal_actions(self.begin, label, start, self.offset, draw)
        return label

    def values(self, label: Codes) -> Floats:
        """float64 (k, A): the mean return of each pair if the rows had taken these actions."""
        k, A = self.n.shape
        pair = np.repeat(np.arange(k) * A, np.diff(self.begin[::2])) + label
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.bincount(pair, self.x, k * A).reshape(k, A) / self.n)
