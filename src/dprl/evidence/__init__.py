"""What a log says about every state and action, in exact sums.

A `Log` comes in; `Evidence` goes out: counts by trajectory, means and standard deviations of
returns for each state and each pair of state and action. Labelled states are counted in one pass
(`tabular`); for features, what lies within a radius is counted (`neighbors`). `decision_points`
says which pairs may be chosen (the paper's Eq. 1 = 6). Where rows must stay where they are, sites
and partitions are counted apart and added up (`count_batches`, and `dprl.site_evidence`). For
comparisons over regions of features, `nuisances` fits what usual practice does and brings, each
group from the others, and `credit` says how much better than that things went from a step on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dprl._core.lazy import attach

if TYPE_CHECKING:
    from dprl.evidence.counts import Evidence as Evidence
    from dprl.evidence.counts import Moments as Moments
    from dprl.evidence.decision_points import allowed as allowed
    from dprl.evidence.sites.folder import EvidenceFolder as EvidenceFolder
    from dprl.evidence.sites.warehouse import count_batches as count_batches
    from dprl.evidence.sites.warehouse import from_batches as from_batches
    from dprl.evidence.sites.warehouse import from_query as from_query
    from dprl.evidence.sites.warehouse import sql_query as sql_query

__getattr__, __dir__, __all__ = attach(__name__)
