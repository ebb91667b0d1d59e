r"""The gate over labelled states: e-processes of pairs, and the gain of exactly what is issued.

The level δ has three parts: .7 δ for the e-values of "no benefit" and the lower bounds of
advantages (`dprl.certificate._eprocess`), .1 δ for p (the bounds of an advantage need it) and .2 δ
for how often the issued states are met (`dprl.certificate._issued_gain`). Where the Markov property
is not claimed, first visits count and no gain is bounded: .9 δ and .1 δ.

* Swap-split: each half of the groups proposes K pairs, the other half tests them at .7 δ/2/K; the
  bets learn from the half that proposed.
* In-sample: all of the log tests, at .7 δ/C̄, the pairs of states that were declared beforehand.

Both halves propose T, one action per state; the other half bounds how often T's states are met, at
.1 δ each. A certified part C of T is issued, from the half with the larger bound: the certificate
is about exactly the policy that comes with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.words import joined, say
from dprl.certificate._assumptions import Counting
from dprl.certificate._eprocess import advantages
from dprl.certificate._gate_steps import (
    Asked,
    Proven,
    at_gamma,
    fair_pairs,
    finish,
    half_of,
    propose,
)
from dprl.certificate._issued_gain import legs_of, meetings
from dprl.certificate._visits import Visits, visits_of
from dprl.errors import LogError, ParameterError
from dprl.evidence._evidence import Evidence
from dprl.evidence._lots import Chances
from dprl.evidence.decision_points import allowed
from dprl.evidence.excursions import excursions
from dprl.evidence.tabular import availability, count, evidence
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs._censoring import settle
from dprl.logs.log import Label, Log
from dprl.policies._base import provenance_of
from dprl.policies.table import TablePolicy

__all__ = ["PARTS", "Declared", "certify_visits", "declared_states", "gate_labels"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Codes = NDArray[np.int32]

PARTS = {True: (0.7, 0.1, 0.2), False: (0.9, 0.1, 0.0)}
"""Markov claimed → the parts of δ for e-values, for p, and for how often states are met."""

NAMED = 5
"""How many certified pairs that are left out are named."""

SURE = 1.645
"""A pair is proposed where its advantage is this many standard errors above 0."""


@dataclass(frozen=True, eq=False)
class Declared:
    """The states that were fixed beforehand.

    Attributes:
        n: How many were declared, whether they occur in the log or not.
        inside: bool (S,), the states of the log that are among them.
        notes: Sentences on states that are only in the log, or only in the list.
    """

    n: int
    inside: Bools
    notes: tuple[str, ...]


def declared_states(states: Sequence[Label], log: Log) -> Declared:
    """The states of an in-sample gate, as the user declares them.

    Raises:
        ParameterError: It is not a list of different labels.
        LogError: None of them is a state of the log.
    """
    log.codes()
    given = list(states) if not isinstance(states, str) and hasattr(states, "__iter__") else None
    if not given or not all(isinstance(label, str | int) for label in given):
        raise ParameterError(
            "states must be a list of state labels, fixed without looking at returns.",
            f"got {states!r}"[:80],
            "Name them all, also those that may not occur in this log.",
        )
    names = set(given)
    if len(names) < len(given):
        twice = next(label for i, label in enumerate(given) if label in given[:i])
        raise ParameterError(
            f"{len(given) - len(names):,} of {len(given):,} states are named more than once.",
            repr(twice),
            "Name each state once.",
        )
    inside = np.array([label in names for label in log.states], bool)
    if not inside.any():
        raise LogError(
            f"none of the {len(names):,} declared states is a state of the log.",
            f"{given[0]!r} and {log.states[0]!r}",
            "Name states as the log does (numbers are not text).",
        )
    notes, missing = [], len(names) - int(inside.sum())
    if missing:
        notes.append(
            say("{k:,} of {n:,} declared states do not occur in this log.", k=missing, n=len(names))
        )
    if not inside.all():
        notes.append(
            say(
                "{k:,} of {n:,} states of this log were not declared: no suggestion is made there.",
                k=int((~inside).sum()),
                n=log.n_states,
            )
        )
    return Declared(len(names), inside, tuple(notes))


def gate_labels(
    learner: DPRLDiscrete,
    log: Log,
    asked: Asked,
    *,
    markov: bool,
    sides: Bools | None,
    declared: Declared | None,
    tested: int,
    permitted: Bools | None,
    origin: dict[str, Any],
    notes: tuple[str, ...],
) -> TablePolicy:
    """The certified policy of a learner over labelled states.

    Args:
        learner: The learner whose rule proposes and chooses.
        log: The log, with labelled states.
        asked: delta, value_range, margin and horizon.
        markov: Whether the Markov property is claimed.
        sides: bool (groups,), true for the groups of one half; None where there is one group.
        declared: The states of an in-sample gate; None to propose and certify by halves.
        tested: C̄, the number of pairs that the level of an in-sample gate is divided among.
        permitted: bool (S, A), the pairs of a policy that is gated; None for a learner.
        origin: Further provenance of the policy.
        notes: Sentences for the certificate.
    """
    settled = settle(log, learner.gamma, learner.cut).gathered()
    whole, occurrences = count(settled, learner.gamma)
    pairs = allowed(whole, learner.n_min, contrast=learner.contrast, available=availability(log))
    if permitted is not None:
        pairs &= permitted
    chances = Chances.of(settled)
    pairs = fair_pairs(pairs, chances, asked)
    halves = [] if sides is None else [half_of(settled, log, sides, side) for side in (True, False)]
    if not all(half.n_episodes for half in halves):
        if declared is None:
            raise LogError(
                "no episode is left on one side of the split.", do="Read more, or drop fewer."
            )
        halves = []
    proposals = [
        fair_pairs(_proposed(half, learner, markov), chances, asked) for half in halves
    ]  # fmt: skip
    if declared is not None:
        pairs &= declared.inside[:, None]
        wanted = pairs
        if asked.horizon is not None:  # C̄ counts first visits, which returns cannot have moved
            wanted = pairs & (whole.took.n >= learner.n_min)
        visits = visits_of(settled, learner.gamma, asked.known_range, markov=markov)
        proof = certify_visits(visits, whole, wanted, asked, tested, 1.0, chances=chances)
        proofs = [_at_gamma(proof, settled, wanted, learner, asked, 1.0, markov, None)]
    else:
        seen = [visits_of(h, learner.gamma, asked.known_range, markov=markov) for h in halves]
        proofs = []
        for one, other in ((0, 1), (1, 0)):
            wanted, counted = proposals[one], evidence(halves[other], learner.gamma)
            proof = certify_visits(
                seen[other], counted, wanted, asked, int(wanted.sum()), 0.5, seen[one],
                chances=chances,
            )  # fmt: skip
            proofs.append(
                _at_gamma(proof, halves[other], wanted, learner, asked, 0.5, markov, halves[one])
            )
    pairs &= np.logical_or.reduce([proof.pairs for proof in proofs])
    gain = None
    if markov:
        gain, choice = _worth(learner, halves, proposals, pairs, proofs, asked)
        if gain > 0:
            notes = (*notes, *_left_out(log, pairs, choice))
            pairs = choice[:, None] == np.arange(log.n_actions)
    choice, planned = learner.choose(settled, whole, occurrences, pairs)
    policy = TablePolicy.of(
        whole,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=np.bincount(settled.codes(), minlength=log.n_states),
        parameters=learner.settings(),
        provenance={**provenance_of(log, settled), **origin},
    )
    mode = "swap-split" if declared is None else "in-sample"
    counting = Counting(markov, None if declared is None else declared.n)
    notes = (*notes, *(declared.notes if declared is not None else ()))
    return finish(
        policy, proofs, learner, log, settled, asked, mode, gain, notes, counting=counting
    )


def _left_out(log: Log, pairs: Bools, choice: Codes) -> list[str]:
    """A sentence on certified pairs in states where nothing is issued."""
    states, actions = np.nonzero(pairs & (choice < 0)[:, None])
    if not len(states):
        return []
    names = [
        f"{log.states[s]}: {log.actions[a]}"
        for s, a in zip(states[:NAMED], actions[:NAMED], strict=True)
    ]
    return [
        (
            say(
                "{states:,} more passed, and are left out because less gain could be proved with "
                "them: {join}, ….",
                states=len(states),
                join=joined(", ", names),
            )
            if len(states) > NAMED
            else say(
                "{n:,} more passed, and are left out because less gain could be proved with them: "
                "{names}.",
                n=len(states),
                names=joined(", ", names),
            )
        )
    ]


def _proposed(half: Log, learner: DPRLDiscrete, markov: bool) -> Bools:
    """bool (S, A): the pairs that one half of the log proposes, from its own data alone.

    They pass the learner's rule with half of n_min, and their advantage is surely above 0: by the
    way back to the same state where the Markov property is claimed, else by Welch's bound.
    """
    counted, available = evidence(half, learner.gamma), availability(half)
    if not markov:
        return propose(counted, learner, available)
    n_min = learner.n_min if math.isinf(learner.n_min) else max(1.0, math.ceil(learner.n_min / 2))
    pairs = allowed(counted, n_min, contrast=learner.contrast, available=available)
    values = excursions(half, learner.gamma)
    with np.errstate(invalid="ignore"):
        return np.asarray(pairs & (values.Q - values.V[:, None] > SURE * values.se))


def certify_visits(
    visits: Visits,
    counted: Evidence,
    wanted: Bools,
    asked: Asked,
    tested: int,
    share: float,
    learned_from: Visits | None = None,
    unstated: NDArray[np.int64] | None = None,
    chances: Chances | None = None,
) -> Proven:
    """Test the wanted pairs (S, A), at level δ·share divided among `tested`.

    `unstated` (S,): visits among the others of which nobody says what they did (`advantages`).
    `chances` are the recorded probabilities of actions: p is taken from them where they say it.
    """
    low = np.full(wanted.shape, -np.inf)
    advantage, log_e, p_high = low.copy(), np.zeros(wanted.shape), np.ones(wanted.shape)
    difference, passed = np.full(wanted.shape, np.nan), np.zeros(wanted.shape, bool)
    at = np.nonzero(wanted)
    if len(at[0]):
        each, (of_e, of_p, _) = asked.delta * share / tested, PARTS[visits.markov]
        nats = -math.log(of_e * each) - 1e-12
        result = advantages(
            visits,
            np.flatnonzero(wanted),
            nats,
            -math.log(of_p * each / 2),
            learned_from=learned_from,
            unstated=unstated,
            p=None if chances is None else chances.p[at],
        )
        log_e[at], advantage[at], p_high[at] = result.log_e, result.low, result.p_high
        difference[at] = result.difference
        low[at] = result.low / (1 - result.p_low)  # E x - E y is A/(1 - p)
        passed[at] = log_e[at] >= nats
        if asked.margin > 0:
            passed[at] &= advantage[at] > asked.margin
    return Proven(
        passed, low, advantage, log_e, p_high, counted, tested, difference, chances=chances
    )  # fmt: skip


def _at_gamma(
    proof: Proven,
    log: Log,
    wanted: Bools,
    learner: DPRLDiscrete,
    asked: Asked,
    share: float,
    markov: bool,
    proposed_by: Log | None,
) -> Proven:
    """The same proof with Γ* of each certified pair, or at the Γ that was asked for."""
    alpha = PARTS[markov][0] * asked.delta * share / max(proof.tested, 1)
    return at_gamma(proof, log, wanted, learner.gamma, asked, alpha, proposed_by)


def _worth(
    learner: DPRLDiscrete,
    halves: Sequence[Log],
    proposals: Sequence[Bools],
    pairs: Bools,
    proofs: Sequence[Proven],
    asked: Asked,
) -> tuple[float, Codes]:
    """The certified gain and the part C that has it, int32 (S,), -1 where it defers.

    Each half proposes T from its own data; the other half bounds how often its states are met. An
    unrecorded cause that moves odds by Γ makes what follows the action at most Γ times less likely.
    """
    best = 0.0, np.full(len(pairs), -1, np.int32)
    if not pairs.any():
        return best
    low = np.max([np.where(p.pairs & pairs, p.advantage, -np.inf) for p in proofs], axis=0)
    level = PARTS[True][2] * asked.delta / 2
    for one, other in ((0, 1), (1, 0)) if halves else ():
        T, _ = learner.choose(
            halves[one], *count(halves[one], learner.gamma), proposals[one]
        )  # fmt: skip
        T = T.astype(np.int32)
        states = np.flatnonzero(T >= 0)
        certified = low[states, T[states]]
        if not (certified >= 0).any():
            continue
        legs = tuple(legs_of(halves[part], T, learner.gamma) for part in (one, other))
        met = meetings(legs[0], legs[1], level)
        met = replace(met, followed=met.followed / asked.confounding)
        inside, gain = met.best_part(certified)
        if gain > best[0]:
            C = np.full(len(T), -1, np.int32)
            C[states[inside]] = T[states[inside]]
            best = gain, C
    width = asked.known_range[1] - asked.known_range[0]
    return min(best[0], width), best[1]
