"""Evidence of a log wherever its rows are: counted chunk by chunk, merged exactly.

`Counts` is the statistic (see `dprl.logs.source`), `Counted` its value, and `count_source` asks for
it after refusing what cannot be counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, Visits
from dprl._core.limits import need_for_pairs
from dprl.evidence._evidence import Evidence, check_summands
from dprl.evidence.tabular import (
    LARGEST_TABLE,
    Occurrences,
    always_available,
    count,
    menus_seen,
    occurrences_of,
)
from dprl.logs._censoring import Reads, none_is_left
from dprl.logs.log import Log
from dprl.logs.source import Chunk, Share, Source, check_treatment

__all__ = ["Counted", "Counts", "check_table", "count_source"]

Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counts:
    """The evidence of a log, and what else one pass over it can count.

    Attributes:
        gamma: Discount in (0, 1].
        visits: "first" counts trajectories, "all" visits. Default "first".
        cut: What is done with cut episodes. Default None: as "terminal".
        reads: What is read of the treated log, as in `dprl.logs._censoring.treat_cut`. Default
            "returns".
        groups: bool (groups of the whole log,), the groups that count. Default None: all.
    """

    gamma: float
    visits: Visits = "first"
    cut: Cut | None = None
    reads: Reads = "returns"
    groups: Bools | None = None

    def log(self, chunk: Chunk) -> Log | None:
        """The gathered log of a chunk whose rows count; None if there is none."""
        if self.groups is None:
            return chunk.treated(self.cut, self.gamma, self.reads)
        return chunk.some(self.groups, self.cut, self.gamma, self.reads)

    def counted(self, chunk: Chunk, log: Log) -> tuple[Evidence, Occurrences]:
        """Evidence of the log of a chunk, and the rows that were counted."""
        if self.groups is not None:
            return count(log, self.gamma, visits=self.visits)
        return chunk.once(lambda: count(log, self.gamma, visits=self.visits), "counted", *self._key)

    def occurrences(self, chunk: Chunk, log: Log) -> tuple[Occurrences, Ints]:
        """The rows that count, and first visits (S,) of each state; without their returns."""
        if self.groups is None and ("counted", *self._key) in chunk._made:
            evidence, rows = self.counted(chunk, log)
            return rows, evidence.n_first
        return occurrences_of(log, self.gamma, self.visits)

    @property
    def _key(self) -> tuple[object, ...]:
        return self.gamma, self.visits, self.cut, self.reads

    def of(self, chunk: Chunk) -> Counted:
        """What is counted of one chunk."""
        menus, log = menus_seen(chunk.log), self.log(chunk)
        how = replace(self, groups=None)
        left = np.zeros(len(chunk.log.groups), bool)
        if log is None:
            steps = np.zeros(chunk.log.n_states, np.int64)
            return Counted(how, None, steps, 0, {chunk.first_group: left}, menus)
        left[chunk.left(log) - chunk.first_group] = True
        return Counted(
            how,
            self.counted(chunk, log)[0],
            np.bincount(log.codes(), minlength=log.n_states),
            int(log.lengths.max(initial=0)),
            {chunk.first_group: left},
            menus,
        )

    def merge(self, one: Counted, other: Counted) -> Counted:
        """What is counted of two chunks together."""
        return one.merge(other)


@dataclass(frozen=True, eq=False)
class Counted:
    """What is counted of a log, or of a part of it, in one pass.

    Attributes:
        how: How it was counted; without the groups that were asked for.
        sums: The evidence, once cut episodes are treated; None if no episode was left.
        steps: int64 (S,), the rows of each state that are left.
        longest: Rows of the longest episode that is left.
        groups: First group of a chunk → bool (its groups,), those that are left.
        menus: bool (S, M), the menus that were seen in each state, cut episodes included; None if
            the log does not say.
        offered: bool (S, A), pairs that were available on every visit, where that was counted in
            place of menus. Default None.
    """

    how: Counts
    sums: Evidence | None
    steps: Ints
    longest: int
    groups: dict[int, Bools]
    menus: Bools | None
    offered: Bools | None = None

    @property
    def evidence(self) -> Evidence:
        """The evidence; there is some."""
        assert self.sums is not None
        return self.sums

    @property
    def left(self) -> Bools:
        """bool (groups of the whole log,): those that are left once cut episodes are treated."""
        return np.concatenate([self.groups[first] for first in sorted(self.groups)])

    def available(self, source: Source) -> Bools | None:
        """bool (S, A): pairs that are always available; None if the log does not say."""
        if self.menus is None or source.facts.menus is None:
            return self.offered
        return always_available(self.menus, source.facts.menus)

    def merge(self, other: Counted) -> Counted:
        """What is counted of two chunks together; the same bits in any order."""
        both = [x for x in (self.sums, other.sums) if x is not None]
        evidence = both[0].merge(both[1]) if len(both) == 2 else next(iter(both), None)
        menus = None
        if self.menus is not None and other.menus is not None:
            menus = self.menus | other.menus
        return Counted(
            self.how,
            evidence,
            self.steps + other.steps,
            max(self.longest, other.longest),
            self.groups | other.groups,
            menus,
        )


def check_table(source: Source) -> None:
    """Refuse a log with too many pairs of states and actions for the memory of this machine."""
    facts = source.facts
    if facts.n_states * facts.n_actions <= LARGEST_TABLE:  # else refused for that
        need_for_pairs(facts.n_states, facts.n_actions)


def count_source(source: Source, how: Counts, progress: Share | None = None) -> Counted:
    """What is counted of a log, wherever its rows are.

    Args:
        source: The log.
        how: How to count.
        progress: Called with the share that is done. Default None.

    Raises:
        ParameterError: If the treatment of cut episodes needs the whole log at once.
        LogError: If no episode is left, or a return is not finite.
    """
    check_treatment(source, how.cut)
    check_summands(source.facts.n_episodes if how.visits == "first" else source.facts.n_steps)
    counted = source.reduce(how, progress)
    if counted.sums is None:
        raise none_is_left(source.facts.n_episodes)
    return counted
