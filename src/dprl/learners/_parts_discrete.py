"""`DPRLDiscrete` over a log in parts: the same steps as in memory, each a pass over the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl._core.limits import need_for_pairs
from dprl.errors import LogError
from dprl.evidence._evidence import Evidence
from dprl.evidence._parts_evidence import count_parts
from dprl.evidence.decision_points import allowed, best_choice, enough
from dprl.evidence.tabular import LARGEST_TABLE
from dprl.logs._parts_overlap import sketch_of_parts
from dprl.logs.parts import LogInParts, Share
from dprl.planning._parts_plan import PartReturns, elevate_parts
from dprl.planning.luck import count_luck
from dprl.planning.policy_iteration import policy_iteration
from dprl.policies._base import provenance_of_parts
from dprl.policies.table import TablePolicy

if TYPE_CHECKING:
    from dprl.learners.discrete import DPRLDiscrete

__all__ = ["check_table", "choose_parts", "fit_parts", "stage"]

Progress = Callable[[str, float], None]


def stage(progress: Progress | None, name: str) -> Share | None:
    """The progress of one pass over the parts, under a name."""
    if progress is None:
        return None
    return lambda share: progress(name, share)


def check_table(parts: LogInParts) -> None:
    """Refuse a log without episodes, and one with too many pairs of states and actions."""
    if not parts.n_episodes:
        raise LogError("the log holds no episodes.", do="Read a log with at least one.")
    if parts.n_states * parts.n_actions <= LARGEST_TABLE:  # else refused for that
        need_for_pairs(parts.n_states, parts.n_actions)


def fit_parts(
    learners: Sequence[DPRLDiscrete], parts: LogInParts, progress: Progress | None
) -> Iterator[TablePolicy]:
    """The policy of each learner; they differ in n_min alone.

    Args:
        learners: The learners, at least one.
        parts: The log in parts.
        progress: Called with the name of the stage and the share of it that is done; or None.
    """
    check_table(parts)
    gamma, cut, plan = learners[0].gamma, learners[0].cut, learners[0].plan
    contrast, visits = learners[0].contrast, learners[0].visits
    counted, evidence, offered = count_parts(
        parts, gamma, cut, visits=visits, progress=stage(progress, "counting")
    )
    sample = sketch_of_parts(parts, stage(progress, "a sample of the groups"))
    for learner in learners:
        pairs = allowed(evidence, learner.n_min, contrast=contrast, available=offered)
        choice, planned = choose_parts(
            parts, evidence, cut, pairs, counted.longest, plan, stage(progress, "planning")
        )
        eligible = enough(evidence, learner.n_min, contrast=contrast, available=offered)
        supply = PartReturns(
            parts, evidence, cut, counted.longest, stage(progress, "what luck would do")
        )
        luck = count_luck(supply, evidence, eligible, choice, plan=plan)
        yield TablePolicy.of(
            evidence,
            choice=choice,
            allowed=pairs,
            planned=planned,
            steps=counted.steps,
            parameters=learner.settings(),
            provenance=provenance_of_parts(parts, evidence.n_episodes, sample, luck=luck),
        )


def choose_parts(
    parts: LogInParts,
    evidence: Evidence,
    cut: Cut | None,
    pairs: NDArray[np.bool_],
    longest: int,
    plan: bool,
    progress: Share | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """What `DPRLDiscrete.choose` makes of the whole log: choices (S,) and planned values (S, A).

    Args:
        parts: The log in parts.
        evidence: Its evidence.
        cut: What to do with cut episodes.
        pairs: bool (S, A), the pairs that may be chosen.
        longest: Rows of the longest episode that is left.
        plan: Whether to plan over many decisions.
        progress: Called with the share that is done. Default None.
    """
    choice = best_choice(evidence.pair.mean, pairs)
    planned = np.where(pairs, evidence.pair.mean, np.nan)
    if plan:
        semi = elevate_parts(parts, evidence, cut, pairs, longest, progress=progress)
        result = policy_iteration(semi, evidence.pair.mean[pairs])
        choice[semi.points] = semi.action[result.rows]
        planned[pairs] = result.q
    return choice, planned
