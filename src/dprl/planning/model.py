"""The maximum-likelihood MDP of a log, in which every model-based baseline plans.

    n(s,a)    visits of (s, a), all of them
    P̂(s'|s,a) = n(s,a,s') / n(s,a); the ends of episodes are missing mass
    R̂(s,a)    mean reward of (s, a)
    π̂_b(a|s)  = n(s,a) / n(s)

A pair that was never seen has R̂ = 0 and ends the episode: value 0. In a state that was never seen
π̂_b is uniform.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import Cut, check_gamma
from dprl._core.compiled import compiled, in_parts, parts
from dprl._core.exact import (
    COUNT,
    NOTHING,
    SQUARES,
    SUMS,
    add_float,
    add_window,
    lowest_bit,
    moments,
    top_of,
)  # fmt: skip
from dprl._core.words import worded
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import LARGEST_TABLE, Counts, refuse_full
from dprl.logs.censoring import treat_cut
from dprl.logs.log import CUT, Log, check_log
from dprl.logs.source import Chunk
from dprl.planning.finite_mdp import FiniteMDP

# --- What a log knows of a Markov decision process: counts of (s, a, s') and moments of rewards
#
# A *cell* is a pair (s, a) together with what followed it: a next state s', or END. For each cell
# the number of visits and the mean, spread and range of the rewards are kept, and nothing of the
# dense (S, A, S) array that most of them would be empty in. This is all that the maximum-likelihood
# model needs, and all that is needed to say how far its values may be wrong: for any V the targets
# y = r + γ V(s') of a pair have
#
#     mean       Q(s,a)  = ∑_cells n (r̄ + γ V(s')) / n(s,a)
#     squares    SS(s,a) = ∑_cells [ss_r + n (r̄ + γ V(s') - Q(s,a))²]
#
# Rewards are added exactly (`dprl._core.exact`), so the numbers depend neither on the order of the
# log nor on how it is divided.

Ints32: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Counts and rewards of every pair and what followed it.

    Attributes:
        first: int64 (S·A + 1,), cells first[k]:first[k + 1] belong to pair k = s·A + a.
        next: int64 (C,), the next state of each cell; S for END.
        count: int64 (C,), visits of each cell.
        mean: float64 (C,), mean reward of each cell.
        spread: float64 (C,), sum of squared deviations of its rewards from their mean.
        lowest: float64 (C,), smallest reward of each cell.
        highest: float64 (C,), largest reward of each cell.
        n: int64 (S, A), visits of each pair.
        start: int64 (S,), episodes that begin in each state.

    Example:
        >>> from dprl.envs import risky_arms
        >>> from dprl.planning.model import count_transitions
        >>> table = count_transitions(risky_arms().sample(100, seed=0))
        >>> int(table.n.sum()), table.b[0].round(2).tolist()[:2]
        (200, [0.07, 0.83])
    """

    first: Ints
    next: Ints
    count: Ints
    mean: Floats
    spread: Floats
    lowest: Floats
    highest: Floats
    n: Ints
    start: Ints

    @functools.cached_property
    def visits(self) -> Ints:
        """int64 (S,): visits of each state."""
        return np.asarray(self.n.sum(axis=1))

    @functools.cached_property
    def b(self) -> Floats:
        """float64 (S, A): the share of visits that took each action; uniform where never seen."""
        total = self.visits[:, None]
        return np.where(total > 0, self.n / np.maximum(total, 1), 1 / self.n.shape[1])

    def R(self) -> Floats:
        """float64 (S·A,): the mean reward of each pair; 0 where it was never seen."""
        return self._over_pairs(self.count * self.mean)

    def P(self) -> sparse.csr_array:
        """CSR (S·A, S): probabilities of the next state; what a row lacks to 1 is the end."""
        S, A = self.n.shape
        pair = np.repeat(np.arange(S * A), np.diff(self.first))
        inside = self.next < S
        share = self.count / np.maximum(self.n.ravel(), 1)[pair]
        return sparse.csr_array(
            (share[inside], (pair[inside], self.next[inside])), shape=(S * A, S)
        )

    def Q(self, V: Floats, gamma: float) -> Floats:
        """float64 (S, A): mean target r + γ V(s') of each pair; 0 where it was never seen."""
        ahead = np.append(V, 0.0)[self.next]
        return self._over_pairs(self.count * (self.mean + gamma * ahead)).reshape(self.n.shape)

    def _over_pairs(self, cells: Floats) -> Floats:
        """The sum of cells (C,) over each pair, divided by its visits, (S·A,)."""
        S, A = self.n.shape
        pair = np.repeat(np.arange(S * A), np.diff(self.first))
        total = np.bincount(pair, weights=cells, minlength=S * A)
        return np.asarray(total / np.maximum(self.n.ravel(), 1))


@compiled
def _by_number(
    rows: Ints32, number: Ints32, offset: Ints, placed: Ints32
) -> None:  # pragma: no cover - compiled
    """Fill placed (M,): rows in the order of number, those of one number as they were.

    offset (numbers,): where the rows of each number begin; changed.
    """
    for i in range(len(rows)):
        k = number[rows[i]]
        placed[offset[k]] = rows[i]
        offset[k] += 1


@compiled
def _cells(order: Ints32, pair: Ints32, following: Ints32, begin: Ints) -> int:  # pragma: no cover
    """Fill begin, where each cell begins in rows ordered by (pair, following); their number."""
    C = 0
    for i in range(len(order)):
        t, before = order[i], order[i - 1] if i else order[i]
        if i == 0 or pair[t] != pair[before] or following[t] != following[before]:
            begin[C] = i
            C += 1
    begin[C] = len(order)
    return C


@compiled
def _add_rewards(
    first: int, last: int, order: Ints32, begin: Ints, bits: Ints, reward: Floats,
    top: NDArray[np.int16], bottom: NDArray[np.int16], words: Ints, span: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Add the rewards of the rows of cells first:last to their accumulators.

    order (M,): rows by cell, those of cell c at begin[c]:begin[c + 1].
    top, bottom (C,): the highest and the lowest bit of the rewards of a cell, found here.
    words (C, 1 + SUMS + SQUARES), span (C, 2): exact sums, smallest and largest reward.
    """
    for c in range(first, last):
        for i in range(begin[c], begin[c + 1]):
            t = order[i]
            highest = top_of(bits[t])
            if highest != NOTHING:
                top[c] = max(top[c], highest)
                bottom[c] = min(bottom[c], lowest_bit(bits[t]))
            if not span[c, 0] <= reward[t]:
                span[c, 0] = reward[t]
            if not span[c, 1] >= reward[t]:
                span[c, 1] = reward[t]
        for i in range(begin[c], begin[c + 1]):
            words[c, COUNT] += 1
            high, sums, squares = np.int64(top[c]), np.int64(SUMS), np.int64(SQUARES)
            add_float(words, c, high, sums, squares, bits[order[i]])


def _ordered(rows: Ints32, number: Ints32, numbers: int) -> Ints32:
    """Rows in the order of their number, from 0 to numbers - 1; a stable counting sort."""
    n = np.bincount(number[rows], minlength=numbers)
    placed = np.empty_like(rows)
    _by_number(rows, number, np.cumsum(n) - n, placed)
    return placed


def _known_outcomes(state: Ints32, following: Ints32, unknown: Ints, S: int) -> Bools:
    """bool (N,): rows of which it is known what followed.

    Not known: the `unknown` rows, and rows that lead to a state of which nothing is known.
    """
    known_outcome = np.ones(len(state), bool)
    known_outcome[unknown] = False
    while len(unknown):
        valued = np.zeros(S + 1, bool)
        valued[S] = True
        valued[state[known_outcome]] = True
        unknown = np.flatnonzero(known_outcome & ~valued[following])
        known_outcome[unknown] = False
    return known_outcome


def count_transitions(log: Log) -> Transitions:
    """Counts and rewards of every pair and what followed it.

    The last row of an episode that was cut says only where it was last seen: the step into it is
    counted, it itself is not, because nobody knows what followed. A step into a state of which
    nothing else is known is not counted either. Episodes that are to be dropped,
    or read as ended, are treated so beforehand (`dprl.logs.censoring.treat_cut`).

    Args:
        log: The log; its states are labels.

    Returns:
        The table of transitions.

    Raises:
        LogError: If states are features, or no step of the log has a known outcome.

    Example:
        >>> from dprl.envs import dense_chain
        >>> from dprl.planning.model import count_transitions
        >>> count_transitions(dense_chain().sample(10, seed=0)).n.sum(axis=1).tolist()
        [10, 10, 10, 10, 10, 10, 10, 10]
    """
    return cells_of(log).table(log.n_states, log.n_actions)


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells with exact sums of their rewards, of a log or of a part of it; they can be merged.

    Attributes:
        key: int64 (C,), rising: pair·(S + 1) + next state, S for END.
        words: int64 (C, 1 + SUMS + SQUARES), exact sums of rewards.
        top: int16 (C,), the highest bit of the rewards of a cell.
        bottom: int16 (C,), the lowest bit of them.
        span: float64 (C, 2), smallest and largest reward.
        start: int64 (S,), episodes that begin in each state.
    """

    key: Ints
    words: Ints
    top: NDArray[np.int16]
    bottom: NDArray[np.int16]
    span: Floats
    start: Ints

    def merge(self, other: Cells) -> Cells:
        """The cells of two parts of a log together; the same bits in any order."""
        key, place = np.unique(np.concatenate([self.key, other.key]), return_inverse=True)
        C = len(key)
        top, bottom = np.full(C, NOTHING, np.int16), np.full(C, 30_000, np.int16)
        span = np.full((C, 2), np.nan)
        sides = (self, place[: len(self.key)]), (other, place[len(self.key) :])
        for cells, at in sides:
            top[at], bottom[at] = (
                np.maximum(top[at], cells.top),
                np.minimum(bottom[at], cells.bottom),
            )
            span[at, 0] = np.fmin(span[at, 0], cells.span[:, 0])
            span[at, 1] = np.fmax(span[at, 1], cells.span[:, 1])
        words = np.zeros((C, self.words.shape[1]), np.int64)
        for cells, at in sides:
            _add_cells(words, top, cells.words, cells.top, at)
        return Cells(key, words, top, bottom, span, self.start + other.start)

    def table(self, S: int, A: int) -> Transitions:
        """Counts and rewards, from the exact sums."""
        C = len(self.key)
        read, lost = np.empty((C, 2)), np.empty(C, bool)
        moments(self.words, self.top, self.bottom, SUMS, read, lost)
        if lost.any():
            raise LogError(
                f"rewards of {int(lost.sum()):,} transitions differ too much in size to be "
                "averaged.",
                do="Rewards that differ by 1e30 and more cannot be read as one scale: mend them.",
            )
        count = self.words[:, COUNT].copy()
        pair, following = np.divmod(self.key, S + 1)
        refuse_full(count[:, None], (pair // A).tolist())
        n = np.zeros(S * A, np.int64)
        np.add.at(n, pair, count)
        return Transitions(
            first=np.searchsorted(pair, np.arange(S * A + 1)),
            next=following,
            count=count,
            mean=read[:, 0].copy(),
            spread=np.nan_to_num(read[:, 1]) ** 2 * (count - 1),
            lowest=self.span[:, 0].copy(),
            highest=self.span[:, 1].copy(),
            n=n.reshape(S, A),
            start=self.start,
        )


@dataclass(frozen=True, eq=False)
class CellsOf:
    """The transitions of a log; a statistic of it.

    Attributes:
        how: How its evidence is counted: the same groups, and cut episodes treated alike. Only
            where an episode was cut and completed by a value ("bootstrap") a model needs none: it
            knows the step into the last state, and reads the episode as it was.
    """

    how: Counts

    def of(self, chunk: Chunk) -> Cells | None:
        """Those of one chunk."""
        log = self.log(chunk)
        return None if log is None else cells_of(log)

    def log(self, chunk: Chunk) -> Log | None:
        """The gathered log of a chunk whose transitions count; None if there is none."""
        log = self.how.log(chunk)
        return _as_read(chunk.log, log) if log is not None and self.how.cut == "bootstrap" else log

    def merge(self, one: Cells, other: Cells) -> Cells:
        """Those of two chunks together."""
        return one.merge(other)


def _as_read(log: Log, treated: Log) -> Log:
    """The episodes of a log, as they were read, that are in the treated one; gathered."""
    if treated.n_episodes == log.n_episodes:
        return log.gathered()
    labels = set(treated.episodes)
    return log.take([e for e, label in enumerate(log.episodes) if label in labels]).gathered()


@compiled
def _add_cells(
    words: Ints, top: NDArray[np.int16], source: Ints, origin: NDArray[np.int16], at: Ints
) -> None:  # pragma: no cover - compiled
    """Add sums source (c, W), with windows `origin`, to words[at], whose windows are top[at]."""
    for i in range(len(at)):
        high, sums = np.int64(top[at[i]]), np.int64(SUMS)
        add_window(words, at[i], high, sums, source, i, origin[i], np.int64(1))


def _followed(log: Log) -> tuple[Ints32, Bools]:
    """What followed each row: int32 (N,), the next state or S for END; and where it is known."""
    state, S = log.codes(), log.n_states
    last = log.starts[1:] - 1
    following = np.empty(log.n_steps, np.int32)
    following[:-1] = state[1:]
    following[last] = S
    return following, _known_outcomes(state, following, last[log.ended == CUT], S)


def cells_of(log: Log) -> Cells:
    """The cells of a log, or of a part of one; see `count_transitions`."""
    state, S, A = log.codes(), log.n_states, log.n_actions
    if S * A > LARGEST_TABLE:
        raise LogError(
            f"{S:,} states x {A:,} actions are too many for one table.",
            do="Merge states that are never told apart in practice.",
        )
    following, known_outcome = _followed(log)
    if not known_outcome.any():
        raise LogError(
            "no step of the log has a known outcome: every episode is a single step that was cut.",
            do="Read episodes to their end, or choose another treatment of cut episodes.",
        )
    pair = state * np.int32(A) + log.action
    order: Any = np.flatnonzero(known_outcome)
    order = order.astype(np.int32) if log.n_steps < 2**31 else order
    order = _ordered(_ordered(order, following, S + 1), pair, S * A)
    begin = np.empty(len(order) + 1, np.int64)
    C = _cells(order, pair, following, begin)
    begin = begin[: C + 1].copy()
    top, bottom = np.full(C, NOTHING, np.int16), np.full(C, 30_000, np.int16)
    words, span = np.zeros((C, 1 + SUMS + SQUARES), np.int64), np.full((C, 2), np.nan)
    reward = np.ascontiguousarray(log.reward, np.float64)
    bits = reward.view(np.int64)

    def add(first: int, last: int) -> None:
        _add_rewards(first, last, order, begin, bits, reward, top, bottom, words, span)

    in_parts(add, parts(begin))
    of_cell = order[begin[:-1]]
    key = pair[of_cell].astype(np.int64) * (S + 1) + following[of_cell]
    begins = state[log.starts[:-1]][np.diff(log.starts) > 0]
    return Cells(key, words, top, bottom, span, np.bincount(begins, minlength=S))


@dataclass(frozen=True, eq=False)
class Influence:
    """How each transition moves a number that is estimated in the model of a log, to first order.

    A visit of pair k that is followed by s' with reward r adds

        one[k] (r + γ V(s')) - other[k] (r + γ U(s')) + own[k]

    and an episode that begins in s adds start[s].

    Attributes:
        one: float64 (S·A,).
        other: float64 (S·A,).
        own: float64 (S·A,).
        V: float64 (S + 1,), γ times the values of the one policy; the last, of END, is 0.
        U: float64 (S + 1,), those of the other.
        start: float64 (S,).
    """

    one: Floats
    other: Floats
    own: Floats
    V: Floats
    U: Floats
    start: Floats


@dataclass(frozen=True, eq=False)
class GroupSums:
    """What each group adds to an estimated number; a statistic of a log.

    Its value is a table by chunk: first group → float64 (its groups that are left,), the sum over a
    group of what its transitions add.

    Attributes:
        cells: The transitions that count.
        number: How the number is moved by a transition.
    """

    cells: CellsOf
    number: Influence

    def of(self, chunk: Chunk) -> dict[int, Floats] | None:
        """Those of one chunk."""
        log = self.cells.log(chunk)
        if log is None:
            return None
        following, known_outcome = _followed(log)
        pair = log.codes() * np.int32(log.n_actions) + log.action
        reward = np.ascontiguousarray(log.reward, np.float64)
        sums, x = np.zeros(len(log.groups)), self.number
        _sum_groups(
            log.starts, log.group, log.codes(), pair, following, known_outcome, reward, x.one,
            x.other, x.own, x.V, x.U, x.start, sums,
        )  # fmt: skip
        return {chunk.first_group: sums}

    def merge(self, one: dict[int, Floats], other: dict[int, Floats]) -> dict[int, Floats]:
        """Those of two chunks together."""
        return one | other


@compiled
def _sum_groups(
    starts: Ints, group: Ints32, state: Ints32, pair: Ints32, following: Ints32,
    known_outcome: Bools, reward: Floats, one: Floats, other: Floats, own: Floats,
    V: Floats, U: Floats, start: Floats, sums: Floats,
) -> None:  # pragma: no cover - compiled  # fmt: skip
    """Fill sums (groups,): of what the transitions of a group add."""
    for e in range(len(starts) - 1):
        if starts[e] == starts[e + 1]:
            continue
        g = group[e]
        sums[g] += start[state[starts[e]]]
        for t in range(starts[e], starts[e + 1]):
            if known_outcome[t]:
                k, f, r = pair[t], following[t], reward[t]
                sums[g] += one[k] * (r + V[f]) - other[k] * (r + U[f]) + own[k]


# --- The maximum-likelihood MDP of a log, in which every model-based baseline plans


@dataclass(frozen=True, eq=False)
class Model:
    """The maximum-likelihood MDP of a log, and the counts behind it.

    Attributes:
        mdp: P̂, R̂ and π̂_b as a FiniteMDP (which gives exact values of any policy in it).
        n: int64 (S, A), the number of visits of each pair.

    Example:
        >>> from dprl.envs import dense_chain
        >>> from dprl.planning import estimate
        >>> model = estimate(dense_chain().sample(100, seed=0), gamma=1.0)
        >>> model.n.shape, int(model.n.sum())
        ((8, 2), 800)
    """

    mdp: FiniteMDP
    n: Ints

    @functools.cached_property
    def usual(self) -> Floats:
        """float64 (S,): values of usual practice."""
        return self.mdp.state_values()

    @property
    def seen(self) -> Bools:
        """bool (S, A): pairs that occur in the log."""
        return np.asarray(self.n > 0)

    @property
    def visited(self) -> Bools:
        """bool (S,): states that occur in the log."""
        return np.asarray(self.seen.any(axis=1))


def refuse_menus(log: Log) -> None:
    """Refuse a log that says which actions were available: the baselines do not look at it."""
    if log.available is not None:
        raise LogError(
            "the baselines do not take into account which actions were available.",
            do=worded(
                "Read the log without {available=}, and see that what they suggest can be done."
            ),
        )


def estimate(log: Log, gamma: float, cut: Cut | None = None) -> Model:
    """The maximum-likelihood MDP of a log.

    Args:
        log: The log; its states are labels, and it does not say which actions were available.
        gamma: Discount in (0, 1].
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Returns:
        The model.

    Raises:
        LogError: If states are features, the log is empty, or it says which actions were available.
        ParameterError: If `gamma` or `cut` is not allowed.

    Example:
        >>> from dprl.envs import dense_chain
        >>> from dprl.planning import estimate
        >>> model = estimate(dense_chain().sample(2_000, seed=0), gamma=1.0)
        >>> round(model.mdp.value(), 1)
        4.0
    """
    gamma = check_gamma(gamma)
    check_log(log)
    log.codes()
    refuse_menus(log)
    log = treat_cut(log, gamma, cut)
    state, S, A = log.codes().astype(np.int64), log.n_states, log.n_actions
    pair = state * A + log.action
    inside = np.ones(log.n_steps, bool)
    inside[log.starts[1:] - 1] = False
    at = np.flatnonzero(inside)
    n = np.bincount(pair, minlength=S * A)
    moves = sparse.csr_array(
        (np.ones(len(at)), (pair[at], state[at + 1])), shape=(S * A, S), dtype=np.float64
    )
    moves.sum_duplicates()
    moves.data /= np.repeat(n, np.diff(moves.indptr))  # whole counts first: 1/n adds up to over 1
    reward = np.bincount(pair, weights=log.reward, minlength=S * A) / np.maximum(n, 1)
    counts = n.reshape(S, A)
    visits = counts.sum(axis=1, keepdims=True)
    mdp = FiniteMDP(
        name="maximum likelihood",
        states=log.states,
        actions=log.actions,
        P=moves,
        low=reward.reshape(S, A),
        high=reward.reshape(S, A),
        start=np.bincount(state[log.starts[:-1]], minlength=S) / log.n_episodes,
        behavior=np.where(visits > 0, counts / np.maximum(visits, 1), 1 / A),
        gamma=gamma,
    )
    return Model(mdp, counts)


def behavior_of(model: Model, given: Floats | None) -> Floats:
    """The behaviour (S, A): `given` if it is known, else π̂_b of the model."""
    if given is None:
        return model.mdp.behavior
    given = np.asarray(given, np.float64)
    good = given.shape == model.n.shape and bool(
        (given >= 0).all() and (np.abs(given.sum(axis=1) - 1) <= 1e-9).all()
    )
    if not good:
        raise ParameterError(
            f"behavior must be {model.n.shape} of distributions, one row per state of the log; "
            f"got {given.shape}.",
            do="Rows follow log.states, columns log.actions.",
        )
    return given
