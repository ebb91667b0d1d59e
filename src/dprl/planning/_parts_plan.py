"""Plans and luck of a log in parts: segments, and returns by state, gathered part by part.

The returns of a state come from many parts. Parts are told apart by their first group label, whose
order is that of the parts, so what they hand in can be put in the order of the log, whatever the
order in which it comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, Visits
from dprl.evidence._evidence import Evidence
from dprl.evidence.tabular import Occurrences, occurrences_of
from dprl.logs._parts_cut import settled_part
from dprl.logs.log import Label, Log
from dprl.logs.parts import Applied, LogInParts, Share
from dprl.planning.luck import returns_of
from dprl.planning.semi_mdp import Segments, SemiMDP, count_segments, discounts

__all__ = ["PartReturns", "elevate_parts"]

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]
Bools: TypeAlias = NDArray[np.bool_]
Listed: TypeAlias = dict[Label, tuple[Ints, Floats, NDArray[Any]]]
"""First group of a part → how many returns each state has (2·k,), the returns, their actions."""


@dataclass(frozen=True, eq=False)
class Dealt:
    """Shuffled actions of the counted rows of some states.

    Attributes:
        states: int64 (k,), the codes of the states.
        begin: int64 (2·k + 1,), where the first visits of each state begin, and its later rows.
        label: The codes of the actions of all these rows.
        before: First group of a part → int64 (2·k,), how many of these rows are in parts before.
    """

    states: Ints
    begin: Ints
    label: NDArray[Any]
    before: Mapping[Label, Ints]

    def of_part(
        self, key: Label, log: Log, gamma: float, occurrences: Occurrences, first: Ints
    ) -> Log:
        """A part with the shuffled actions; `key` is its first group."""
        counts = _counts(occurrences, first, self.states)
        own = np.concatenate(([0], np.cumsum(counts)))
        row = returns_of(log, gamma, occurrences, self.states, own)[2]
        action = log.action.copy()
        shift = self.begin[:-1] + self.before[key] - own[:-1]
        action[row] = self.label[np.repeat(shift, counts) + np.arange(len(row))]
        return replace(log, action=action, available=None, menus=None, propensity=None)


def _counts(occurrences: Occurrences, first: Ints, states: Ints) -> Ints:
    """int64 (2·k,): first visits, and later rows that count, of each of k states of a part."""
    both = np.asarray(sum(occurrences.n)).sum(axis=1)
    return np.stack([first[states], (both - first)[states]], axis=1).ravel()


def segments_of_part(
    log: Log,
    gamma: float,
    visits: Visits,
    cut: Cut | None,
    allowed: Bools,
    fixed: Ints,
    dealt: Dealt | None,
) -> Segments | None:
    """The segments of one part, once its cut episodes are treated, and its actions are shuffled."""
    settled = settled_part(log, cut)
    if settled is None:
        return None
    occurrences, first = occurrences_of(settled, gamma, visits)
    if dealt is not None:
        settled = dealt.of_part(log.groups[0], settled, gamma, occurrences, first)
        counted = occurrences.counted
        pair = settled.codes()[counted].astype(np.int64) * log.n_actions + settled.action[counted]
        n = np.bincount(pair, minlength=allowed.size).reshape(allowed.shape)
        occurrences = Occurrences(counted, ((0, settled.n_episodes),), (n,))
    return count_segments(settled, gamma, occurrences, allowed, fixed)


def elevate_parts(
    parts: LogInParts,
    evidence: Evidence,
    cut: Cut | None,
    allowed: Bools,
    longest: int,
    dealt: Dealt | None = None,
    progress: Share | None = None,
) -> SemiMDP:
    """Alg. 2 over parts: the semi-MDP that `elevate` makes of the whole log.

    Args:
        parts: The log in parts.
        evidence: Its evidence.
        cut: What to do with cut episodes.
        allowed: bool (S, A), the pairs that may be chosen.
        longest: Rows of the longest episode that is left.
        dealt: Shuffled actions; None for those of the log. Default None.
        progress: Called with the share that is done. Default None.
    """
    fixed, bits = discounts(evidence.gamma, longest, evidence.n_pair[allowed])
    segments = parts.reduce(
        Applied(segments_of_part, Segments.merge, (evidence.gamma, evidence.visits, cut, allowed,
        fixed, dealt)), progress,
    )  # fmt: skip
    result: SemiMDP = segments.semi_mdp(parts.states, allowed, bits)
    return result


def list_part(log: Log, gamma: float, cut: Cut | None, states: Ints, dtype: Any) -> Listed | None:
    """The returns and actions of the counted rows of some states in one part."""
    settled = settled_part(log, cut)
    if settled is None:
        return None
    occurrences, first = occurrences_of(settled, gamma, "first")
    counts = _counts(occurrences, first, states)
    begin = np.concatenate(([0], np.cumsum(counts)))
    x, label, _ = returns_of(settled, gamma, occurrences, states, begin)
    return {log.groups[0]: (counts, x, label.astype(dtype))}


def join(one: Listed, other: Listed) -> Listed:
    """What two parts handed in, together."""
    return one | other


@dataclass(eq=False)
class PartReturns:
    """The returns of a log in parts, some states at a time; as `dprl.planning.luck` needs them."""

    parts: LogInParts
    evidence: Evidence
    cut: Cut | None
    longest: int
    progress: Share | None = None
    counts: dict[Label, list[Ints]] = field(default_factory=dict)

    @property
    def room(self) -> int:
        """The most returns that are held at once, of more than one state."""
        return self.parts.rows

    def returns(self, states: Ints, begin: Ints) -> tuple[Floats, Codes]:
        dtype = np.min_scalar_type(-self.parts.n_actions)
        listed: Listed = self.parts.reduce(
            Applied(list_part, join, (self.evidence.gamma, self.cut, states, dtype)), self.progress
        )
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
        total, before = np.zeros(len(begin) - 1, np.int64), {}
        for key in sorted(self.counts):
            before[key] = total.copy()
            total += np.concatenate(self.counts[key])
        moved = Dealt(states, begin, dealt, before)
        return elevate_parts(
            self.parts, self.evidence, self.cut, pairs, self.longest, moved, self.progress
        )
