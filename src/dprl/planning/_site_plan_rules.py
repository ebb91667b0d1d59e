"""What the parts of a second count must be to belong together; a file may hold anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dprl._core.exact import COUNT
from dprl.evidence._evidence import FIRST
from dprl.evidence._site_rules import check_sums, refuse_parts

if TYPE_CHECKING:
    from dprl.planning._site_plan import SitePlan

__all__ = ["check_plan"]


def check_plan(plan: SitePlan) -> None:
    """Refuse parts that contradict each other."""
    S, A = plan.pairs.shape
    words = plan.rewards.words
    check_sums(words, plan.rewards.top, plan.rewards.bottom)
    n = words[FIRST, ..., COUNT]
    if (n > plan.evidence.evidence.n_pair[:, :-1]).any() or n[~plan.pairs].any():
        refuse_parts("segments of pairs that have none")
    ends = plan.ends
    if ends.ndim != 2 or ends.shape[1] != 4 or ends.dtype != np.int64:
        refuse_parts(f"'ends' is {ends.dtype}{ends.shape}")
    points = np.asarray(plan.pairs.any(axis=1))
    pair, end, count, total = ends.T
    if not ((pair >= 0) & (pair < S * A) & (end >= 0) & (end < S)).all() or not (
        points[end].all() and plan.pairs.ravel()[pair].all()
    ):
        refuse_parts("segments between states that are no decision points")
    most = np.zeros(S * A, np.int64)
    if not ((count > 0) & (count < 1 << 31)).all():
        refuse_parts("an end without segments")
    np.add.at(most, pair, count)
    if (most > n.ravel()).any() or not ((total >= 0) & (total <= count << plan.bits)).all():
        refuse_parts("more ends than segments, or a discount above 1")
    if len(set(plan.parts)) < len(plan.parts) or not set(plan.parts) <= {
        site["part"] for site in plan.evidence.sites
    }:
        refuse_parts("a site twice, or one that did not count the first time")
    first = plan.evidence.evidence.n_pair[:, :-1]
    if plan.complete and (n[plan.pairs] != first[plan.pairs]).any():
        refuse_parts("fewer segments than the first count has episodes")
