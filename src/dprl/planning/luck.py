r"""How many changes of a policy luck alone would make, and how many of its own survive that doubt.

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

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import in_parts, parts
from dprl._core.exact import COUNT
from dprl._core.practice import unusual as unusual_pairs
from dprl.errors import PlanError
from dprl.evidence._evidence import FIRST
from dprl.evidence.decision_points import TOLERANCE, best_choice
from dprl.evidence.tabular import Occurrences
from dprl.planning._luck_loops import (
    chance_at_most,
    changes_by_luck,
    deal_actions,
    list_returns,
)
from dprl.planning.policy_iteration import policy_iteration
from dprl.planning.semi_mdp import elevate

if TYPE_CHECKING:
    from dprl.evidence._evidence import Evidence
    from dprl.logs.log import Log

__all__ = ["luck_of", "survivors"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]

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
    log: Log,
    evidence: Evidence,
    occurrences: Occurrences,
    eligible: Bools,
    choice: Codes,
    *,
    plan: bool,
    seed: int = 0,
) -> dict[str, Any]:
    """How many changes luck would make, and how many of a policy's own changes survive.

    Args:
        log: A gathered log without cut episodes, with S states and A actions.
        evidence: Its evidence, from `dprl.evidence.tabular.count`.
        occurrences: The rows that were counted, from the same call.
        eligible: bool (S, A), pairs that have enough episodes to be allowed, whatever they brought.
        choice: int32 (S,), the chosen action of each state, -1 for DEFER.
        plan: Whether the choice was made by a plan.
        seed: Seed of the shuffles. Default 0.

    Returns:
        "changes" of the policy; "expected" by luck, the mean over "draws" shuffles; how many of the
        changes "survive" the false-discovery "rate"; and "states", where a change was possible.
        Or only "skipped", which says why nothing was counted.

    Example:
        >>> import numpy as np
        >>> from dprl.envs import risky_arms
        >>> from dprl.evidence import tabular
        >>> log = risky_arms().sample(1_000, seed=0)
        >>> evidence, occurrences = tabular.count(log, gamma=1.0)
        >>> choice = np.where(np.arange(len(log.states)) == 0, 0, -1).astype(np.int32)
        >>> facts = luck_of(log, evidence, occurrences, evidence.n_pair >= 92, choice, plan=False)
        >>> facts["changes"], facts["survive"]
        (1, 1)
    """
    if evidence.visits != "first":
        return {"skipped": "visits of one episode depend on each other"}
    unusual = unusual_pairs(evidence.words[FIRST, ..., COUNT])
    states = np.flatnonzero((eligible & unusual).any(axis=1))
    chosen = choice[states]
    changed = (chosen >= 0) & unusual[states, chosen]
    facts = {"changes": int(changed.sum()), "states": len(states), "rate": RATE}
    n_returns = int(evidence.n_pair[eligible.any(axis=1)].sum())
    if n_returns > LARGEST:
        return {"skipped": f"{n_returns:,} returns are too many to shuffle"}
    if not len(states):
        return {**facts, "expected": 0.0, "draws": 0, "survive": 0}

    # A state where only the usual action has enough episodes cannot change, but plans pass there.
    sorted_returns = _Returns.of(
        log, evidence, occurrences, np.flatnonzero(eligible.any(axis=1)), eligible, unusual
    )
    asked = np.full(log.n_states, -1, np.int32)
    asked[states[changed]] = chosen[changed]
    candidates = (eligible & unusual)[states].sum(axis=1)
    start, other = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    chance = np.minimum(sorted_returns.chances(asked, other)[states] * candidates, 1.0)

    draws = int(np.clip(SHUFFLED // n_returns, *DRAWS))
    expected = float(sorted_returns.by_best_value(start, draws).mean())
    if plan:
        plans = int(np.clip(PLANNED // len(sorted_returns.states), *PLANS))
        more = [sorted_returns.more_by_plan(log, evidence, occurrences, start, draw)
                for draw in range(plans)]  # fmt: skip
        expected = max(expected + float(np.mean(more)), 0.0)
    survive = int(survivors(chance, RATE).sum())
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


@dataclass(frozen=True, eq=False)
class _Returns:
    """The returns of k states, of each its first visits and then its later rows that count.

    Attributes:
        states: int64 (k,), the codes of the states.
        begin: int64 (2·k + 1,), where the first visits of each state begin, and its later rows.
        x: float64 (rows,), the returns, divided by the largest of their state: sums stay finite.
        label: int32 (rows,), the codes of their actions.
        row: int64 (rows,), their rows in the log.
        n: int64 (k, A), n(s,a).
        m: int64 (k, A), first visits that took a.
        eligible: bool (k, A), pairs that may be allowed.
        unusual: bool (k, A), pairs that are a change if they are chosen.
        V: float64 (k,), the mean of the first visits, in the scale of x.
        slack: float64 (k,), the difference to V that counts as a rounding error.
    """

    states: Ints
    begin: Ints
    x: Floats
    label: Codes
    row: Ints
    n: Ints
    m: Ints
    eligible: Bools
    unusual: Bools
    V: Floats
    slack: Floats

    @classmethod
    def of(
        cls,
        log: Log,
        evidence: Evidence,
        occurrences: Occurrences,
        states: Ints,
        eligible: Bools,
        unusual: Bools,
    ) -> _Returns:
        m = evidence.words[FIRST, ..., COUNT][states]
        first = m.sum(axis=1)
        both = evidence.n_pair[states].sum(axis=1)
        begin = np.concatenate(([0], np.cumsum(np.stack([first, both - first], axis=1).ravel())))
        place = np.full((log.n_states, 2), -1, np.int64)
        place[states] = begin[:-1].reshape(-1, 2)
        n_rows = int(begin[-1])
        x, label, row = np.empty(n_rows), np.empty(n_rows, np.int32), np.empty(n_rows, np.int64)
        list_returns(
            log.starts, log.group, log.codes(), log.action, log.reward, occurrences.counted,
            evidence.gamma, np.full(log.n_states, -1, np.int32), place.ravel(), x, label, row,
        )  # fmt: skip
        size = np.maximum.reduceat(np.abs(x), begin[:-1:2])
        x /= np.repeat(np.where(size == 0, 1.0, size), both)
        # A state without later rows leaves an empty part; what reduceat writes for it is not read.
        ended = np.append(x, 0.0)
        V = np.add.reduceat(ended, begin[:-1])[::2] / first
        square = np.add.reduceat(ended**2, begin[:-1])[::2] / first
        return cls(
            states, begin, x, label, row, evidence.n_pair[states], m, eligible[states],
            unusual[states], V, TOLERANCE * np.sqrt(square),
        )  # fmt: skip

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of states with about equal numbers of returns, one per thread."""
        return parts(self.begin[::2].copy())

    def chances(self, asked: Codes, start: np.uint64) -> Floats:
        """For each state of the log (S,) the chance above; asked (S,): the action, -1 for none."""
        codes, divided = asked[self.states], self.x.copy()
        chance = np.ones(len(self.states))
        some = np.flatnonzero(codes >= 0)
        first = (self.begin[1::2] - self.begin[:-1:2])[some]
        took = self.m[some, codes[some]]
        smaller = int(np.minimum(took, first - took).sum())
        draws = min(DIVIDED // max(smaller, 1), DIVISIONS)

        def ask(a: int, b: int) -> None:
            chance_at_most(
                self.begin[2 * a : 2 * b + 1], divided, self.label, codes[a:b], start, a,
                draws if draws >= 99 else 0, chance[a:b],
            )  # fmt: skip

        in_parts(ask, self.ranges)
        chances = np.ones(len(asked))
        chances[self.states] = chance
        return chances

    def by_best_value(self, start: np.uint64, draws: int) -> Ints:
        """The number of changes by best Q̂ after each of some shuffles, (draws,)."""
        shuffled = self.x.copy()

        def shuffle(a: int, b: int) -> Ints:
            changes = np.zeros(draws, np.int64)
            changes_by_luck(
                self.begin[2 * a : 2 * b + 1], shuffled, self.label, self.n[a:b],
                self.eligible[a:b], self.unusual[a:b], self.V[a:b], self.slack[a:b], start, a,
                changes,
            )  # fmt: skip
            return changes

        return np.asarray(np.sum(in_parts(shuffle, self.ranges), axis=0))

    def more_by_plan(
        self, log: Log, evidence: Evidence, occurrences: Occurrences, start: np.uint64, draw: int
    ) -> int:
        """How many changes more a plan makes than best Q̂, in a log with shuffled actions."""
        k, A = self.n.shape
        label = self.label.copy()
        deal_actions(self.begin, label, start, draw)
        pair = np.repeat(np.arange(k) * A, np.diff(self.begin[::2])) + label
        with np.errstate(divide="ignore", invalid="ignore"):
            Q = np.bincount(pair, self.x, k * A).reshape(k, A) / self.n
            own = self.eligible & (self.V[:, None] - self.slack[:, None] <= Q)
        if (own.sum(axis=1) <= 1).all():  # there is nothing to choose from
            return 0
        choice = best_choice(Q, own)
        speaks = np.flatnonzero(choice >= 0)
        by_value = int(self.unusual[speaks, choice[speaks]].sum())

        action = log.action.copy()
        action[self.row] = label
        moved = replace(log, action=action, available=None, menus=None, propensity=None)
        pairs = np.zeros(evidence.n_pair.shape, np.bool_)
        pairs[self.states] = own
        # Each part of a state keeps its actions, so every pair is counted as often as before.
        whole = ((0, log.n_episodes),)
        semi = elevate(
            moved, evidence, Occurrences(occurrences.counted, whole, (evidence.n_pair,)), pairs
        )
        try:
            rows = policy_iteration(semi, Q[own]).rows
        except PlanError:  # no plan ends in the shuffled log; the true one did
            return 0
        planned = semi.action[rows]
        return int(self.unusual[speaks, planned].sum()) - by_value
