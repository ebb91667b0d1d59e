"""Is the state enough? Given state and action, does the past still tell what comes next?

A method that plans in a model of the log needs the Markov property: given state s and action a, the
reward and the next state have one law, whatever happened before. Where a cost comes later through
something the state does not show, planning charges it to whatever was done when it came.

**What is compared.** The outcome of a visit is y = r + γ V(s'), V the value of usual practice in
the maximum-likelihood model (`dprl.planning.estimate`; the end of an episode is worth 0), so that
only what matters for values counts; the reward r alone, where it varies and is not the same
thing; and what comes later, ∑_{k>=1} γ^k (y - Q(s, a)) of the k-th step after, the surprises of the
model from the next step to the end, so that a cost shows however long after the action it comes.
What may tell: action, state and reward of the steps before, and the number of the step. In
each cell (s, a) the first visit of each group counts, outcomes are shuffled among these visits, and

    T = ∑_cells ∑_categories n_k (mean_k - mean)² / (variance of the cell)

is compared with T of the shuffles. Cells count that have at least two visits and two categories,
fewer categories than visits (else there is nothing to compare), and outcomes that differ.

**Why shuffling is right in one cell.** Let τ be a group's first visit of (s, a), and F its past up
to s_τ and a_τ. Whether a visit is the first is known from F. Under the Markov property (r, s')
given F has the law of (s, a), so y is independent of everything in F, in particular of its
category; groups are independent of each other. Given which groups visit the cell and their
categories, the outcomes are therefore independent draws of one law, and every order of them is
equally likely. A second visit of the same group may not be used: that it took place may depend on
the first outcome.
V is estimated from the same log; where people act by the state alone this changes nothing. Swap
everything after the visit between two groups: the log is as likely as before, the counts of the
model are the same, so V is the same, and the two outcomes have changed places. The same holds for
bins, which are made of the whole log. (Where people act by more than the state, or with
cut="drop", V is as good as fixed in large logs only.) So in one cell p-values are exact.

**Why cells may be added.** An outcome of an earlier cell may decide the category in a later one, so
cells are not independent, and shuffling each on its own is not exact for the sum. But let
M_c = ∑_groups (y - μ_c) w(category) with any weights w. For one group and two cells with τ_c before
τ_c' the product of the two terms has mean zero: given F of the later visit the first factor and
both weights are known, and the second has mean zero (a martingale difference). So sums of different
cells are uncorrelated, and in large logs, where they are jointly normal, independent, as in
the shuffles; T is a sum of squares of such sums. The tests hold p-values of small logs to their
level by simulation.

*What comes later* is another matter: the surprises after an early visit are also those after the
next, so that cells of one group vary together, and where episodes are long a test that shuffles
each cell on its own is false three times as often as it says. There the mean of T is that of the
shuffles all the same, and how far it varies is also asked with one random sign for all that is of
one group: T* = ∑_cells (∑_k A_k² / n_k - B² / n), A_k and B the sums of the signed outcomes of a
category and of its cell, brought to the mean of the shuffles. The larger p-value of the two counts.

**Cut episodes.** The last visit of a cut episode has no known outcome: observation stopped before
it was seen. It is left out here whatever `cut` says; `cut` only says how V is estimated. That is
right where observation does not stop because of what was about to come.
"""

from __future__ import annotations

import itertools
import math
import os
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from scipy import sparse

from dprl._core.arrays import Codes, Floats, Ints
from dprl._core.checks import Cut, check_cut, check_gamma, check_level, check_seed, check_whole
from dprl._core.compiled import compiled, in_parts
from dprl._core.table import Result, Table, many, to_json_value
from dprl._core.words import N_, joined, say, say_many, word, worded
from dprl.errors import ParameterError
from dprl.logs.log import CUT, Label, Log, check_log
from dprl.logs.outcome import UNDECLARED, Outcome
from dprl.logs.returns import first_of, returns
from dprl.planning.finite_mdp import FiniteMDP
from dprl.planning.model import estimate

# --- MarkovCheck: what the past tells beyond state and action, for people and for machines


@dataclass(frozen=True)
class Comparison:
    """One thing in the past, and whether it tells what comes next.

    Attributes:
        past: What may tell: "action 1 before", say, or "step number".
        outcome: What it may tell: "what comes" (the reward plus the discounted value of the next
            state), "the reward" alone, or "what comes later" (all that comes after the next state,
            beyond what the states and actions on the way let expect).
        p: The p-value of this comparison alone; NaN where nothing could be compared.
        adjusted: The p-value adjusted for the number of comparisons (Holm); NaN as above.
        share: The share of the outcome's variance within cells that it explains beyond chance, from
            0 to 1; NaN as above.
        cells: How many cells (state and action) were compared.
        visits: How many visits stand behind it; one per group and cell.
        state: The state of the cell in which it tells most; None where nothing was compared.
        action: The action of that cell.
        sentence: What it tells there, in words.
    """

    past: str
    outcome: str
    p: float
    adjusted: float
    share: float
    cells: int
    visits: int
    state: Label | None
    action: Label | None
    sentence: str


@dataclass(frozen=True)
class MarkovCheck(Result):
    """The result of `dprl.markov_check`.

    Attributes:
        gamma: Discount of the values that were used.
        level: A finding needs an adjusted p-value of at most this.
        lags: How many steps back was looked; fewer than asked for where episodes are shorter.
        seed: Seed of the shuffles.
        permutations: How many shuffles were made.
        asked: How many were asked for.
        groups: How many groups the log holds.
        cells: How many cells (state and action) were compared in any way.
        visits: How many visits lie in these cells; one per group and cell.
        unknown: How many last visits of cut episodes have no known outcome and were left out.
        comparisons: One for each thing in the past and each outcome; what tells most comes first.

    Example:
        >>> import dprl
        >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
        >>> print(str(result).splitlines()[0])
        The state does not seem to be enough: in this log, given state and action, the past still...
    """

    HEAD: ClassVar[str] = "Is the state enough?"

    gamma: float
    level: float
    lags: int
    seed: int
    permutations: int
    asked: int
    groups: int
    cells: int
    visits: int
    unknown: int
    comparisons: tuple[Comparison, ...]

    @property
    def findings(self) -> tuple[Comparison, ...]:
        """The comparisons whose adjusted p-value is at most `level`, in their order."""
        return tuple(c for c in self.comparisons if c.adjusted <= self.level)

    @property
    def ok(self) -> bool:
        """Whether nothing was found. This proves nothing where little could be compared."""
        return not self.findings

    @property
    def lines(self) -> list[str]:
        """What was found, what it means and what to do, one sentence or two per line."""
        seen = (
            f"Compared: {many(self.visits, 'visit')} in {many(self.cells, 'cell')} (state and "
            f"action) of {many(self.groups, 'group')}, looking {many(self.lags, 'step')} back; "
            f"{self.permutations:,} shuffles."
        )
        if self.permutations < self.asked:
            seen += (
                f" ({self.asked:,} were asked for; fewer are taken in large logs, and by a "
                "curtailed check.)"
            )
        if self.unknown:
            seen += (
                f" The last visits of {many(self.unknown, 'cut episode')} have no known outcome "
                "and were left out."
            )
        if not self.ok:
            names = list(dict.fromkeys(c.past for c in self.findings))
            return [
                say(
                    "The state does not seem to be enough: in this log, given state and action, "
                    "the past still tells what comes next. A test says so, as of up to {p:g} % of "
                    "the logs in which it is enough.",
                    p=100 * self.level,
                ),
                *(c.sentence for c in self.findings[:3]),
                say(
                    "If it is not, a policy that was planned in a model of these states may do "
                    "harm: what an action costs later is charged to whatever was done when the "
                    "cost came."
                ),
                worded(
                    "Add what tells to the state ({join}) and check again, or use evidence that "
                    "does not need this: {dprl.DPRLDiscrete} compares whole returns.",
                    join=", ".join(names),
                ),
                seen,
            ]
        if not self.cells:
            return [
                say("Nothing could be compared: this does not say whether the state is enough."),
                "A cell (state and action) needs visits of several groups with different pasts "
                "and different outcomes.",
                seen,
            ]
        return [
            say("No sign that the past tells more than state and action do."),
            say(
                "This is no proof: a weak effect, one in states with few visits, one from further "
                "back or one that no recorded column tells of would not show."
            ),
            seen,
        ]

    def table(self) -> Table:
        """The comparisons as a table.

        Returns:
            One row per comparison; what tells most comes first.

        Example:
            >>> import dprl
            >>> log = dprl.envs.delayed().sample(200, seed=0)
            >>> dprl.markov_check(log, 1.0).table()["past"][0]
            'action 2 before'
        """
        rows = self.comparisons
        return Table(
            {
                "past": [c.past for c in rows],
                "may tell": [c.outcome for c in rows],
                "p": [c.p for c in rows],
                "adjusted p": [c.adjusted for c in rows],
                "share": [c.share for c in rows],
                "cells": [c.cells for c in rows],
                "visits": [c.visits for c in rows],
                "most in": [
                    "" if c.state is None else f"{c.state!r} with {c.action!r}" for c in rows
                ],
            },
            caption="What the past tells, given state and action",
            note="share: of the variance within state and action, beyond chance. Adjusted p: "
            "for the number of comparisons (Holm).",
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything, in values that JSON can hold.

        Returns:
            All attributes, "ok" and "text" (the sentences); NaN becomes None.

        Example:
            >>> import dprl
            >>> log = dprl.envs.delayed().sample(200, seed=0)
            >>> dprl.markov_check(log, 1.0).to_dict()["ok"]
            False
        """
        return {"ok": self.ok, "text": self.lines, **to_json_value(asdict(self))}

    def brief(self) -> list[str]:
        """What is printed of it: the sentences, then the comparisons.

        Returns:
            The lines.

        Example:
            >>> import dprl
            >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
            >>> result.brief()[0][:28]
            'The state does not seem to b'
        """
        return joined("\n", [*self.lines, "", str(self.table())]).splitlines()


# --- Shuffles within cells: how unequal the means of some categories would be by chance alone
#
# Visits are sorted by cell; cell c owns rows first[c]:first[c + 1]. For standardized outcomes x of
# a cell (mean 0, variance 1 with divisor n - 1) and a division of its visits into categories k,
#
#     T = ∑_k (∑_{i in k} x_i)² / n_k
#
# is the sum of squares between categories in units of the cell's variance; its mean over all
# shuffles is the number of categories less one. Every number of a shuffle follows from the seed,
# the number of the shuffle and the number of the cell, and cells are added in their order, so
# threads cannot change a result.

STEP, LEFT, RIGHT = (
    np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
)  # fmt: skip
S30, S27, S31, S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
UNIT = 1.0 / (1 << 53)


@compiled
def _mixed(word: np.uint64) -> np.uint64:  # pragma: no cover - compiled
    """A word in which every bit depends on every bit of the given one."""
    word = (word ^ (word >> S30)) * LEFT
    word = (word ^ (word >> S27)) * RIGHT
    return word ^ (word >> S31)


@compiled
def _shuffle(x: Floats, word: np.uint64) -> None:  # pragma: no cover - compiled
    """Shuffle the columns of x (outcomes, n) in place; the order follows from the word alone."""
    for i in range(x.shape[1] - 1, 0, -1):
        word = word + STEP
        j = int(float(_mixed(word) >> S11) * UNIT * (i + 1))
        for k in range(x.shape[0]):
            kept = x[k, i]
            x[k, i] = x[k, j]
            x[k, j] = kept


@compiled
def _between(
    x: Floats, label: Codes, size: Floats, sums: Floats
) -> float:  # pragma: no cover - compiled
    """∑_k (sum of x in category k)² / (its size); `sums` is room to work in."""
    for k in range(len(size)):
        sums[k] = 0.0
    for i in range(len(x)):
        sums[label[i]] += x[i]
    total = 0.0
    for k in range(len(size)):
        total += sums[k] * sums[k] / size[k]
    return total


@compiled
def _statistics(
    x: Floats,
    label: Codes,
    size: Floats,
    room: Ints,
    first: Ints,
    start: np.uint64,
    shuffles: Ints,
    total: Floats,
    cells: Floats,
) -> None:  # pragma: no cover - compiled
    """T of every outcome and candidate, for each of some shuffles; number -1 shuffles nothing.

    Args:
        x: (outcomes, M), standardized; 0 throughout a cell in which an outcome does not count.
        label: (candidates, M), categories numbered from 0 within each cell; all 0 in a cell in
            which the candidate does not count.
        size: The number of visits of each category: cell by cell, candidate by candidate.
        room: (cells · candidates + 1,), where the categories of each of these begin in `size`.
        first: (cells + 1,), the first row of each cell.
        start: The seed, mixed.
        shuffles: (B,), the numbers of the shuffles.
        total: (B, outcomes, candidates), to which the sum over cells is added.
        cells: (outcomes, candidates, cells): T of each cell, of the last of the shuffles.
    """
    n_candidates = label.shape[0]
    sums = np.empty(np.max(np.diff(room)))
    for c in range(len(first) - 1):
        if room[c * n_candidates] == room[(c + 1) * n_candidates]:
            continue
        low, high = first[c], first[c + 1]
        seed = _mixed(start + STEP * np.uint64(c + 1))
        for b in range(len(shuffles)):
            shuffled = x[:, low:high].copy()
            if shuffles[b] >= 0:
                _shuffle(shuffled, _mixed(seed ^ (STEP * np.uint64(shuffles[b] + 1))))
            for q in range(n_candidates):
                at = c * n_candidates + q
                if room[at + 1] - room[at] < 2:
                    continue
                for o in range(x.shape[0]):
                    value = _between(
                        shuffled[o], label[q, low:high], size[room[at] : room[at + 1]], sums
                    )
                    total[b, o, q] += value
                    cells[o, q, c] = value


def _run(
    x: Floats, label: Codes, size: Floats, room: Ints, first: Ints, seed: int, shuffles: Ints
) -> tuple[Floats, Floats]:
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
    total = np.zeros((len(shuffles), len(x), len(label)))
    cells = np.zeros((len(x), len(label), len(first) - 1))
    _statistics(x, label, size, room, first, start, shuffles, total, cells)
    return total, cells


def in_cells(x: Floats, label: Codes, size: Floats, room: Ints, first: Ints) -> Floats:
    """T as observed: (outcomes, candidates, cells). Arguments as in `_statistics`."""
    return _run(x, label, size, room, first, 0, np.array([-1]))[1]


def by_chance(
    x: Floats,
    label: Codes,
    size: Floats,
    room: Ints,
    first: Ints,
    *,
    seed: int,
    permutations: int,
    threads: int,
    done: int = 0,
) -> tuple[Floats, Floats]:
    """T as observed (outcomes, candidates), and of every shuffle (B, outcomes, candidates).

    Shuffles are numbered; those before `done` are left out.
    """
    observed = _run(x, label, size, room, first, seed, np.array([-1]))[0][0]
    edges = np.linspace(done, permutations, threads + 1).astype(np.int64).tolist()
    ranges = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
    shuffled = in_parts(
        lambda a, b: _run(x, label, size, room, first, seed, np.arange(a, b))[0], ranges
    )
    return observed, np.concatenate(shuffled)


# --- What the past of a visit may tell: earlier actions, states and rewards, and the step's
# number
#
# Each candidate divides visits into categories; category 0 is "none", where the episode had not
# begun. Numbers are binned by quantiles of the whole log.

Kind: TypeAlias = Literal["action", "state", "reward", "step"]

MOST_BINS = 5
NUMBERS = (
    N_("no"), N_("one"), N_("two"), N_("three"), N_("four"), N_("five"), N_("six"), N_("seven"),
    N_("eight"), N_("nine"),
)  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """One thing in the past that may tell what comes next.

    Attributes:
        kind: What it is.
        lag: How many steps before; 0 for the number of the step.
        code: int32 (M,), the category of each visit.
        words: What people call each category.
    """

    kind: Kind
    lag: int
    code: Codes
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """A short name for tables."""
        return "step number" if self.kind == "step" else f"{self.kind} {self.lag} before"

    @property
    def phrase(self) -> str:
        """What it is, within a sentence."""
        if self.kind == "step":
            return say("the number of the step in its episode")
        count = word(NUMBERS[self.lag]) if self.lag < len(NUMBERS) else str(self.lag)
        what = {
            "action": say("the action"),
            "state": say("the state"),
            "reward": say("the reward"),
        }[self.kind]
        return say_many(
            "{what} {count} step before",
            "{what} {count} steps before",
            self.lag,
            what=what,
            count=count,
        )


def bins(values: Floats, outcome: Outcome = UNDECLARED) -> tuple[Codes, tuple[str, ...]]:
    """At most five bins of about equal shares, and a text for each; equal values share a bin."""
    distinct = np.unique(values)
    if len(distinct) <= MOST_BINS:
        code = np.searchsorted(distinct, values)
    else:
        shares = np.arange(1, MOST_BINS) / MOST_BINS
        edges = np.unique(np.quantile(values, shares, method="inverted_cdf"))
        ways = [np.searchsorted(edges, values, side=side) for side in ("left", "right")]
        code = max(ways, key=lambda way: len(np.unique(way)))  # the first of equals
        code = np.unique(code, return_inverse=True)[1]
    n = int(code.max()) + 1 if len(code) else 0
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, code, values)
    np.maximum.at(high, code, values)
    low, high = outcome.ends(low, high)
    words = tuple(
        f"{a:.4g}" if a == b else f"{a:.4g} to {b:.4g}"
        for a, b in zip(low.tolist(), high.tolist(), strict=True)
    )
    return code.astype(np.int32), words


def candidates(log: Log, rows: Ints, lags: int) -> list[Candidate]:
    """The candidates at some rows of a log whose states are labels."""
    begin = np.repeat(log.starts[:-1], log.lengths)
    step = np.arange(log.n_steps) - begin
    reward, reward_words = bins(log.reward, log.outcome)
    number, number_words = bins((step + 1).astype(np.float64))
    columns: list[tuple[Kind, Codes, tuple[str, ...]]] = [
        ("action", log.action, tuple(repr(label) for label in log.actions)),
        ("state", log.codes(), tuple(repr(label) for label in log.states)),
        ("reward", reward, tuple(f"a reward of {word}" for word in reward_words)),
    ]
    made: list[Candidate] = []
    for lag in range(1, lags + 1):
        inside = step[rows] >= lag
        for kind, column, words in columns:
            code = np.zeros(len(rows), np.int32)
            code[inside] = column[rows[inside] - lag] + 1
            made.append(Candidate(kind, lag, code, ("none (the episode had not begun)", *words)))
    steps = tuple(f"step {word}" for word in number_words)
    return [*made, Candidate("step", 0, number[rows], steps)]


def within_cells(cell: Ints, code: Codes, n_categories: int) -> tuple[Codes, Ints, Ints, Ints]:
    """Categories numbered from 0 within each cell.

    Args:
        cell: int64 (M,), sorted numbers of cells, each of 0..C-1 at least once.
        code: int32 (M,), the category of each visit.
        n_categories: The number of categories.

    Returns:
        The number of each visit's category within its cell (M,); and for all categories of all
        cells, one after another: where each cell's begin (C + 1,), their code, their size.
    """
    key = cell * n_categories + code
    keys, inverse, size = np.unique(key, return_inverse=True, return_counts=True)
    begin = np.searchsorted(keys // n_categories, np.arange(cell[-1] + 2))
    return (inverse - begin[cell]).astype(np.int32), begin, keys % n_categories, size


# --- Is the state enough? Given state and action, does the past still tell what comes next?

MOST_SHUFFLED = 200_000_000
"""With more visits times permutations than this, fewer permutations are taken."""

FIRST = 63
"""Permutations after which a curtailed check looks for the first time whether to go on."""

FEWEST = 199
"""Never fewer permutations than this, nor than a finding at the level needs."""

WORTH_A_THREAD = 5_000_000
"""With fewer shuffled visits than this, a second thread costs more time than it saves."""

OUTCOMES = (say("what comes"), say("the reward"), say("what comes later"))


LATER = 2
"""The number of "what comes later", of which the visits of a group have much in common."""


def markov_check(
    log: Log,
    gamma: float,
    *,
    lags: int = 2,
    permutations: int = 999,
    seed: int = 0,
    level: float = 0.05,
    cut: Cut | None = None,
    curtailed: bool = False,
) -> MarkovCheck:
    """Whether, given state and action, the steps before still tell what comes next.

    Args:
        log: The log; its states are labels.
        gamma: Discount in (0, 1].
        lags: How many steps back to look, at least 1. Default 2.
        permutations: How many times outcomes are shuffled. Default 999. Where visits times
            permutations exceed 200 million, fewer are taken, but never fewer than 199, and
            the result says so.
        seed: Seed of the shuffles. Default 0.
        level: A finding needs an adjusted p-value of at most this, between 0 and 1. Default 0.05.
        cut: How V is estimated where episodes were cut: "drop", "bootstrap" or "terminal". Default
            None: as "terminal", with a CutWarning. The last visit of a cut episode is left out in
            any case: what came after it is not known.
        curtailed: Whether to stop shuffling as soon as nothing can be found any more, whatever the
            other shuffles say. What is found is the same and comes sooner; the p-values of what is
            not found are rough. Default False.

    Returns:
        The result: `ok`, one line for each thing that may tell, and what to do.

    Raises:
        LogError: If states are features, or the log is empty.
        ParameterError: If a setting is outside its range, or so few permutations are asked for
            that nothing could be found at this level.

    Example:
        >>> import dprl
        >>> result = dprl.markov_check(dprl.envs.delayed().sample(200, seed=0), 1.0)
        >>> result.ok, result.findings[0].past
        (False, 'action 2 before')
        >>> dprl.markov_check(dprl.envs.care_pathway().sample(200, seed=0), 1.0).ok
        True
    """
    gamma, level = check_gamma(gamma), check_level(level)
    lags, seed = check_whole("lags", lags, 1), check_seed(seed)
    permutations = check_whole("permutations", permutations, 1)
    check_cut(cut)
    check_log(log)
    log.codes()
    log = replace(log, available=None, menus=None).gathered()
    lags = min(lags, max(int(log.lengths.max()) - 1, 1))
    rows, cell, unknown = _visits(log)
    y = _outcomes(log, gamma, estimate(log, gamma, cut).mdp)
    cells = _Cells(log, rows, cell, y[:, rows], candidates(log, rows, lags))
    tests = int((cells.n_compared > 0).sum())
    visits = int(cells.size[cells.counted.any(axis=(0, 1))].sum())
    most = _how_many(permutations, tests, visits, level)
    comparisons, taken = cells.compare(most, seed, level, curtailed)
    return MarkovCheck(
        gamma=gamma,
        level=level,
        lags=lags,
        seed=seed,
        permutations=taken,
        asked=permutations,
        groups=len(log.groups),
        cells=int(cells.counted.any(axis=(0, 1)).sum()),
        visits=visits,
        unknown=unknown,
        comparisons=comparisons,
    )


def _how_many(asked: int, tests: int, visits: int, level: float) -> int:
    """The number of permutations; an error where so few are asked for that all must pass."""
    needed = math.ceil(tests / level - 1e-9) - 1
    if asked < needed:
        raise ParameterError(
            f"{asked} permutations find nothing at level {level:g}: with {tests} comparisons "
            f"the smallest adjusted p-value there can be is {tests / (asked + 1):.3g}.",
            do=f"Take at least permutations={needed}, or fewer lags.",
        )
    affordable = MOST_SHUFFLED // max(visits, 1)
    return min(asked, max(affordable, FEWEST, needed))


def _visits(log: Log) -> tuple[Ints, Ints, int]:
    """Rows of first visits by cell, their cells (s · A + a, sorted), and how many were cut off.

    A group whose first visit of a pair has no known outcome is left out of that pair: whether a
    later one counts must not depend on what came.
    """
    pair = log.codes().astype(np.int64) * log.n_actions + log.action
    has_outcome = np.ones(log.n_steps, bool)
    has_outcome[log.starts[1:][log.ended == CUT] - 1] = False
    rows = np.flatnonzero(first_of(log, pair, log.n_states * log.n_actions) & has_outcome)
    rows = rows[np.argsort(pair[rows], kind="stable")]
    return rows, pair[rows], int((~has_outcome).sum())


def _outcomes(log: Log, gamma: float, mdp: FiniteMDP) -> Floats:
    """(3, N): r + γ V(s'), r, and the surprises of all later steps, of every step.

    A step whose outcome is not known surprises nobody: that keeps the mean of what is left at 0.
    """
    V = mdp.state_values()
    after = np.zeros(log.n_steps)
    after[:-1] = V[log.codes()[1:]]
    after[log.starts[1:] - 1] = 0.0
    y = log.reward + gamma * after
    surprise = y - mdp.action_values(V)[log.codes(), log.action]
    surprise[log.starts[1:][log.ended == CUT] - 1] = 0.0
    later = returns(replace(log, reward=surprise), gamma) - surprise
    return np.stack((y, log.reward, later))


class _Cells:
    """Visits by cell, in which candidates are compared.

    Below, M is the number of visits, C of cells, Q of candidates, O of outcomes.

    Attributes:
        pair: int64 (C,), s · A + a of each cell.
        cell: int64 (M,), the cell of each visit, from 0.
        group: int32 (M,), the group of each visit.
        size: int64 (C,), the number of visits.
        y: float64 (O, M), outcomes.
        x: float64 (O, M), outcomes standardized within cells; 0 where they do not differ.
        kept: The numbers in `OUTCOMES` of the outcomes that are compared.
        counted: bool (O, Q, C), the cells in which an outcome and a candidate are compared.
    """

    def __init__(self, log: Log, rows: Ints, pair: Ints, y: Floats, past: list[Candidate]) -> None:
        self.log, self.past = log, past
        self.group = log.group[np.searchsorted(log.starts, rows, "right") - 1]
        self.pair, self.cell, self.size = np.unique(pair, return_inverse=True, return_counts=True)
        self.first = np.concatenate(([0], np.cumsum(self.size)))
        self.scale = float(np.abs(y).max(initial=0.0))
        self._divide()
        x = np.stack([self._standardized(row) for row in y])
        useful = np.flatnonzero((self.categories.sum(axis=1) > 0)[self.cell])
        at = x[:, useful]
        same = np.allclose(at[0], at[1], rtol=0, atol=1e-9)
        self.kept = [o for o in range(len(y)) if o == 0 or (at[o].any() and not (o == 1 and same))]
        self.y, self.x = y[self.kept], x[self.kept]
        varies = np.stack([self._sum(row * row) > 0 for row in self.x])
        self.counted = varies[:, None, :] & (self.categories.T > 0)[None]
        self.n_compared = self.counted.sum(axis=2)

    def _sum(self, values: Floats) -> Floats:
        """The sum of each cell, (C,)."""
        return np.bincount(self.cell, values, len(self.pair)).astype(np.float64)  # int if empty

    def _standardized(self, y: Floats) -> Floats:
        """Outcomes with mean 0 and variance 1 in each cell; 0 where they differ by rounding."""
        n = np.maximum(self.size, 1)
        x = y - (self._sum(y) / n)[self.cell]
        x -= (self._sum(x) / n)[self.cell]
        sd = np.sqrt(self._sum(x * x) / np.maximum(n - 1, 1))
        largest = np.zeros(len(self.pair))
        np.maximum.at(largest, self.cell, np.abs(y))
        differ = sd > 1e-10 * largest + 1e-13 * self.scale
        return np.asarray(x * np.where(differ, 1 / np.where(differ, sd, 1.0), 0.0)[self.cell])

    def _divide(self) -> None:
        """Number the categories of each candidate within the cells where it has some to compare."""
        C, Q = len(self.pair), len(self.past)
        self.label = np.zeros((Q, len(self.cell)), np.int32)
        self.categories = np.zeros((C, Q), np.int64)
        pieces = []
        for q, candidate in enumerate(self.past if C else []):
            label, begin, code, size = within_cells(self.cell, candidate.code, len(candidate.words))
            k = np.diff(begin)
            useful = (k >= 2) & (k < self.size)
            self.categories[:, q] = np.where(useful, k, 0)
            self.label[q] = np.where(useful[self.cell], label, 0)
            pieces.append((begin, code, size, useful))
        self.room = np.concatenate(([0], np.cumsum(self.categories.ravel())))
        self.sizes = np.empty(self.room[-1])
        self.codes = np.empty(self.room[-1], np.int64)
        for q, (begin, code, size, useful) in enumerate(pieces):
            cell = np.repeat(np.arange(C), np.diff(begin))
            to = self.room[cell * Q + q] + np.arange(len(code)) - begin[cell]
            self.sizes[to[useful[cell]]] = size[useful[cell]]
            self.codes[to[useful[cell]]] = code[useful[cell]]

    def compare(
        self, permutations: int, seed: int, level: float, curtailed: bool
    ) -> tuple[tuple[Comparison, ...], int]:
        """All comparisons, those that tell most first, those without any cell last; and shuffles.

        Of B shuffles r reach what was observed, so the p-value (1 + r)/(1 + B) only grows while
        they are made: where it is too large in all comparisons already, nothing will be found.
        """
        if not self.n_compared.any():
            return tuple(self._nothing(q) for q in range(len(self.past))), permutations
        given = (self.x, self.label, self.sizes, self.room, self.first)
        work = len(self.cell) * permutations // WORTH_A_THREAD
        threads = max(1, min(os.cpu_count() or 1, work))
        tests = np.argwhere(self.n_compared > 0)
        done, reached = 0, np.zeros(self.n_compared.shape, np.int64)
        few = level * (1 + permutations) / len(tests) - 1 if curtailed else math.inf
        while done < permutations and not reached[tests[:, 0], tests[:, 1]].min() > few:
            upto = min(max(FIRST, 2 * done), permutations) if curtailed else permutations
            observed, chance = by_chance(
                *given, seed=seed, permutations=upto, threads=threads, done=done
            )
            reached += (chance >= observed - 1e-9 * (1 + observed)).sum(axis=0)
            done = upto
        p = (1 + reached) / (1 + done)
        for o, q in tests:
            if self.kept[o] == LATER:
                p[o, q] = max(p[o, q], self._by_groups(o, q, seed, done))
        adjusted = _holm(p[tests[:, 0], tests[:, 1]])
        each = in_cells(*given)
        made = [
            self._comparison(int(o), int(q), float(p[o, q]), float(a), each[o, q], level)
            for (o, q), a in zip(tests, adjusted, strict=True)
        ]
        made.sort(key=lambda c: (c.p, -c.share))
        empty = np.flatnonzero(~(self.n_compared > 0).any(axis=0))
        return (*made, *(self._nothing(int(q)) for q in empty)), done

    def _by_groups(self, o: int, q: int, seed: int, draws: int) -> float:
        """The p-value where all that is of one group has one random sign; see the module."""
        on = np.flatnonzero(self.counted[o, q][self.cell])
        cell, group = self.cell[on], self.group[on]
        category = self.room[cell * len(self.past) + q] + self.label[q, on]
        sums = sparse.csr_array((self.x[o, on], (category, group)))
        of_cells = sparse.csr_array((self.x[o, on], (cell, group)), (len(self.size), sums.shape[1]))
        own, whole = np.unique(category), np.unique(cell)
        sums, of_cells = sums[own], of_cells[whole]
        observed = float(((sums.sum(axis=1)) ** 2 / self.sizes[own]).sum())
        random, found = np.random.default_rng((seed, q)), []
        for first in range(0, draws, 64):
            some = (sums.shape[1], min(64, draws - first))
            signs = random.integers(0, 2, some) * 2.0 - 1.0
            found.append(
                ((sums @ signs) ** 2 / self.sizes[own, None]).sum(axis=0)
                - ((of_cells @ signs) ** 2 / self.size[whole, None]).sum(axis=0)
            )
        T = np.concatenate(found)
        mean = float((self.categories[:, q] - 1)[self.counted[o, q]].sum())
        return float(1 + (T * (mean / T.mean()) >= observed).sum()) / (1 + draws)

    def _nothing(self, q: int) -> Comparison:
        """A candidate for which no cell has anything to compare."""
        return Comparison(
            past=self.past[q].name, outcome=OUTCOMES[0], p=math.nan, adjusted=math.nan,
            share=math.nan, cells=0, visits=0, state=None, action=None,
            sentence=f"Nothing could be compared for {self.past[q].phrase}.",
        )  # fmt: skip

    def _comparison(
        self, o: int, q: int, p: float, adjusted: float, T: Floats, level: float
    ) -> Comparison:
        """One outcome and one candidate, with the cell in which it tells most."""
        on = self.counted[o, q]
        expected = np.where(on, self.categories[:, q] - 1, 0)
        room_above = float((self.size - 1)[on].sum() - expected.sum())
        excess = (T - expected) / np.sqrt(2 * np.maximum(expected, 1))
        most = int(np.where(on, excess, -np.inf).argmax())
        s, a = divmod(int(self.pair[most]), self.log.n_actions)
        state, action = self.log.states[s], self.log.actions[a]
        between = self._means(o, q, most)
        if adjusted <= level:
            sentence = say(
                "In {state} with {action}, {past} tells {what}: {between}.",
                state=repr(state),
                action=repr(action),
                past=self.past[q].phrase,
                what=OUTCOMES[self.kept[o]],
                between=between,
            )
        else:
            sentence = say(
                "In {state} with {action} is the largest difference by {past}: {between}.",
                state=repr(state),
                action=repr(action),
                past=self.past[q].phrase,
                between=between,
            )
        return Comparison(
            past=self.past[q].name, outcome=OUTCOMES[self.kept[o]], p=p, adjusted=adjusted,
            share=max(float(T[on].sum() - expected.sum()) / room_above, 0.0),
            cells=int(on.sum()), visits=int(self.size[on].sum()),
            state=state, action=action, sentence=sentence,
        )  # fmt: skip

    def _means(self, o: int, q: int, c: int) -> str:
        """The means of the two categories of a cell that stand out most, in words."""
        visits = slice(int(self.first[c]), int(self.first[c + 1]))
        label, at = self.label[q, visits], c * len(self.past) + q
        code = self.codes[self.room[at] : self.room[at + 1]]
        size = np.bincount(label)
        score = np.bincount(label, self.x[o, visits]) / np.sqrt(size)
        mean = np.bincount(label, self.y[o, visits]) / size
        word = say("at") if self.past[q].kind == "step" else say("after")
        return joined(
            ", ",
            (
                say_many(
                    "mean {mean:.3g} {at} {what} ({n:,} group)",
                    "mean {mean:.3g} {at} {what} ({n:,} groups)",
                    int(size[k]),
                    mean=self.log.outcome.shown(mean[k]),
                    at=word,
                    what=self.past[q].words[code[k]],
                )
                for k in (int(score.argmin()), int(score.argmax()))
            ),
        )


def _holm(p: Floats) -> Floats:
    """p-values adjusted for their number by Holm's steps."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
