"""The gate over labelled states for large samples: halves propose, and max-t tests certify.

The level δ has four parts (`dprl.certificate._gate_steps`): to issue pairs, for lower ends, for p,
and for how often suggestions are met. First visits count. Each half of the groups proposes, and the
other half tests what it proposed, at half of the level (`dprl.certificate._large_sample`). Where
the Markov property is claimed the gain of what is issued is bounded (`dprl.certificate._reach`);
where it is not, the claim is about first visits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.certificate._assumptions import Counting
from dprl.certificate._gate_steps import (
    REACH,
    Asked,
    best_low,
    certify,
    finish,
    half_of,
    propose,
)
from dprl.certificate._reach import certified_gain, nats_of_sets
from dprl.errors import LogError
from dprl.evidence._lots import Chances
from dprl.evidence.counts import Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.evidence.tabular import availability, evidence
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._censoring import settle
from dprl.logs.log import Log
from dprl.logs.source import as_source
from dprl.policies._base import provenance_of
from dprl.policies.table import TablePolicy

__all__ = ["gate_large"]

Bools = NDArray[np.bool_]


def gate_large(
    learner: DPRLDiscrete,
    log: Log,
    asked: Asked,
    *,
    markov: bool,
    sides: Bools,
    permitted: Bools | None,
    origin: dict[str, Any],
    notes: tuple[str, ...],
) -> TablePolicy:
    """The policy of a learner over labelled states that is certified for large samples.

    Args:
        learner: The learner whose rule proposes and chooses.
        log: The log, with labelled states.
        asked: delta, margin, and value_range where it was stated.
        markov: Whether the Markov property is claimed.
        sides: bool (groups,), true for the groups of one half.
        permitted: bool (S, A), the pairs of a policy that is gated; None for a learner.
        origin: Further provenance of the policy.
        notes: Sentences for the certificate.
    """
    settled = settle(log, learner.gamma, learner.cut).gathered()
    source = as_source(settled)
    summed = count_source(source, Counts(learner.gamma))
    whole = summed.evidence
    pairs = allowed(whole, learner.n_min, contrast=learner.contrast, available=availability(log))
    if permitted is not None:
        pairs &= permitted
    chances = Chances.of(settled)
    halves = [half_of(settled, log, sides, side) for side in (True, False)]
    if not all(half.n_episodes for half in halves):
        raise LogError(
            "no episode is left on one side of the split.", do="Read more, or drop fewer."
        )
    counted = [evidence(half, learner.gamma) for half in halves]
    proofs = []
    for one, other in ((0, 1), (1, 0)):
        wanted = propose(counted[one], learner, availability(halves[one]))
        half, own = halves[other], counted[other]
        tested = int(wanted.sum())
        proofs.append(
            certify(half, own, wanted, learner.gamma, asked, tested, 0.5, chances=chances)
        )
    pairs &= np.logical_or.reduce([proof.pairs for proof in proofs])
    choice, planned = learner.choose(source, summed, pairs)
    policy = TablePolicy.of(
        whole,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=np.bincount(settled.codes(), minlength=log.n_states),
        parameters=learner.settings(),
        provenance={**provenance_of(log, settled), **origin},
    )
    gain = None
    if markov:
        speaks = int((choice >= 0).sum())
        nats = nats_of_sets(log.n_states, speaks, log.n_actions, REACH * asked.delta)
        gain = certified_gain(settled, choice, best_low(proofs, choice), learner.gamma, nats)
    return finish(
        policy, proofs, learner, log, settled, asked, "swap-split", gain, notes,
        counting=Counting(markov, None),
    )  # fmt: skip
