"""`Confident` over a log in parts: the model and its halves, counted part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.blas import single_thread
from dprl._core.checks import Cut
from dprl._core.words import api, either, option, worded
from dprl.errors import ParameterError
from dprl.evidence._evidence import Evidence
from dprl.evidence._parts_evidence import count_parts
from dprl.evidence.tabular import count
from dprl.learners._parts_discrete import check_table, stage
from dprl.learners.confident import Confident, Gathered
from dprl.logs._parts_cut import check_claim_of_parts, settled_part
from dprl.logs._parts_overlap import sketch_of_parts
from dprl.logs.log import Label, Log
from dprl.logs.parts import LogInParts
from dprl.planning.sure_iteration import Workshop
from dprl.planning.transitions import Cells, cells_of
from dprl.policies._base import provenance_of_parts
from dprl.policies.confident import ConfidentPolicy

__all__ = ["fit_parts"]

Bools: TypeAlias = NDArray[np.bool_]
Half: TypeAlias = tuple[Evidence, Cells]


def fit_parts(
    learners: Sequence[Confident],
    parts: LogInParts,
    progress: Callable[[str, float], None] | None,
) -> Iterator[ConfidentPolicy]:
    """The policy of each learner; they differ in what `Confident.fit_each` may vary.

    Args:
        learners: The learners, at least one.
        parts: The log in parts.
        progress: Called with the name of the stage and the share of it that is done; or None.
    """
    one = learners[0]
    check_table(parts)
    if one.check and one.evidence != "returns":
        raise ParameterError(
            worded(
                "the check whether the state tells enough ({check}) needs the whole log in memory.",
                check=option("check", True),
            ),
            repr(parts),
            worded(
                "Leave it out, {check}, and check a part of the log with {command}.",
                check=option("check", False),
                command=api("dprl.markov_check"),
            ),
        )
    if one.evidence == "excursions":
        raise ParameterError(
            worded(
                "{evidence} needs the whole log in memory.",
                evidence=option("evidence", "excursions"),
            ),
            repr(parts),
            worded(
                "Use {choice}, or {choice2}.",
                choice=either("evidence='model' or 'returns'", "--evidence model or returns"),
                choice2=either("read the log with dprl.read", "leave out --out-of-core"),
            ),
        )
    check_claim_of_parts(one.cut, parts, "the bound of a confident policy")
    counted, evidence, offered = count_parts(
        parts, one.gamma, one.cut, progress=stage(progress, "counting")
    )
    total, before = 0, {}
    for key in sorted(counted.groups):
        before[key] = total
        total += counted.groups[key]
    gathered = _InParts(
        None, None, evidence, offered, one.gamma, one.seed, parts, one.cut, total, before  # type: ignore[arg-type]
    )  # fmt: skip
    sample = sketch_of_parts(parts, stage(progress, "a sample of the groups"))
    for learner in learners:
        with single_thread():
            decided = learner.decide(gathered, progress)
        yield ConfidentPolicy.of(
            evidence,
            steps=counted.steps,
            parameters=learner.settings(),
            provenance=provenance_of_parts(parts, evidence.n_episodes, sample),
            **decided,
        )


@dataclass(frozen=True, eq=False)
class _InParts(Gathered):
    """What is gathered once for all settings, of a log in parts."""

    parts: LogInParts
    cut: Cut | None
    left: int
    before: Mapping[Label, int]

    @property
    def n_groups(self) -> int:
        return self.left

    def whole(self, eligible: Bools) -> Workshop:
        cells: Cells = self.parts.reduce(cells_of_part, Cells.merge, self.cut)
        table = cells.table(self.parts.n_states, self.parts.n_actions)
        return self.shop(table, self.evidence.pair.n, eligible)

    def _half(self, learner: Confident, groups: Bools) -> Workshop:
        evidence, cells = self.parts.reduce(
            half_of_part, merge_halves, self.gamma, self.cut, groups, self.before
        )
        table = cells.table(self.parts.n_states, self.parts.n_actions)
        return self.shop(table, evidence.pair.n, self.eligible(learner, evidence))


def cells_of_part(log: Log, cut: Cut | None) -> Cells | None:
    """The transitions of one part."""
    settled = settled_part(log, cut)
    return None if settled is None else cells_of(settled)


def half_of_part(
    log: Log, gamma: float, cut: Cut | None, groups: Bools, before: Mapping[Label, int]
) -> Half | None:
    """Evidence and transitions of some groups of one part.

    groups: bool, for each group of the whole log that is left; before: first group of a part → how
    many of them are in parts before.
    """
    settled = settled_part(log, cut)
    if settled is None:
        return None
    first = before[log.groups[0]]
    inside = groups[first : first + len(settled.groups)][settled.group]
    if not inside.any():
        return None
    some = settled.take(np.flatnonzero(inside))
    return count(some, gamma)[0], cells_of(some)


def merge_halves(one: Half, other: Half) -> Half:
    """Evidence and transitions of two parts together."""
    return one[0].merge(other[0]), one[1].merge(other[1])
