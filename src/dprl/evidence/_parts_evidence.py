"""Evidence of a log in parts: counted part by part, merged exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, Visits
from dprl.evidence._evidence import Evidence, check_summands
from dprl.evidence.tabular import always_available, count, menus_seen
from dprl.logs._parts_cut import check_treatment, refuse_if_none, settled_part
from dprl.logs.log import Label, Log
from dprl.logs.parts import Applied, LogInParts, Share

__all__ = ["Counted", "count_parts"]


@dataclass(frozen=True, eq=False)
class Counted:
    """What is counted of a log, or of a part of it, in one pass.

    Attributes:
        evidence: The evidence, once cut episodes are treated; None if no episode was left.
        steps: int64 (S,), the rows of each state that are left.
        longest: Rows of the longest episode that is left.
        groups: First group of a part → the number of its groups that are left.
        menus: bool (S, M), the menus that were seen in each state, cut episodes included; None if
            the log does not say.
    """

    evidence: Evidence | None
    steps: NDArray[np.int64]
    longest: int
    groups: dict[Label, int]
    menus: NDArray[np.bool_] | None

    def merge(self, other: Counted) -> Counted:
        """What is counted of two parts together; the same bits in any order."""
        both = [x for x in (self.evidence, other.evidence) if x is not None]
        evidence = both[0].merge(both[1]) if len(both) == 2 else next(iter(both), None)
        menus = None
        if self.menus is not None and other.menus is not None:
            menus = self.menus | other.menus
        return Counted(
            evidence,
            self.steps + other.steps,
            max(self.longest, other.longest),
            self.groups | other.groups,
            menus,
        )


def count_part(log: Log, gamma: float, visits: Visits, cut: Cut | None) -> Counted:
    """What is counted of one part."""
    menus, settled = menus_seen(log), settled_part(log, cut)
    if settled is None:
        return Counted(None, np.zeros(log.n_states, np.int64), 0, {}, menus)
    return Counted(
        count(settled, gamma, visits=visits)[0],
        np.bincount(settled.codes(), minlength=log.n_states),
        int(settled.lengths.max(initial=0)),
        {log.groups[0]: len(settled.groups)},
        menus,
    )


def count_parts(
    parts: LogInParts,
    gamma: float,
    cut: Cut | None,
    *,
    visits: Visits = "first",
    progress: Share | None = None,
) -> tuple[Counted, Evidence, NDArray[np.bool_] | None]:
    """What is counted of a log in parts, its evidence, and the pairs that are always available.

    Args:
        parts: The log in parts.
        gamma: Discount in (0, 1].
        cut: What to do with cut episodes.
        visits: "first" counts trajectories, "all" visits. Default "first".
        progress: Called with the share that is done. Default None.

    Raises:
        ParameterError: If the treatment of cut episodes needs the whole log at once.
        LogError: If no episode is left, or a return is not finite.
    """
    check_treatment(parts, cut)
    check_summands(parts.n_episodes if visits == "first" else parts.n_steps)
    counted = parts.reduce(Applied(count_part, Counted.merge, (gamma, visits, cut)), progress)
    refuse_if_none(parts, counted.evidence)
    offered = None
    if counted.menus is not None and parts.menus is not None:
        offered = always_available(counted.menus, parts.menus)
    return counted, counted.evidence, offered
