r"""The gate over labelled states, wherever the rows are: propose, certify, issue.

**Proved.** The level δ has three parts: .7 δ for the e-values of "no benefit" and the lower bounds
of advantages (`dprl.certificate._eprocess`), .1 δ for p (the bounds of an advantage need it) and
.2 δ for how often the issued states are met (`dprl.certificate._issued_gain`). Where the Markov
property is not claimed, first visits count and no gain is bounded: .9 δ and .1 δ.

* Swap-split: each half of the groups proposes K pairs, the other half tests them at .7 δ/2/K; the
  bets learn from the half that proposed.
* In-sample: all of the log tests, at .7 δ/C̄, the pairs of states that were declared beforehand.

Both halves propose T, one action per state; the other half bounds how often T's states are met, at
.1 δ each. A certified part C of T is issued, from the half with the larger bound: the certificate
is about exactly the policy that comes with it.

**For large samples** the level has four parts (`dprl.certificate._pair_tests`): to issue pairs, for
lower ends, for p, and for how often suggestions are met. First visits count. Each half of the
groups tests what the other proposed, at half of the level, by max-t tests
(`dprl.certificate._large_sample`). Where the Markov property is claimed the gain of what is issued
is bounded (`dprl.certificate._reach`); where it is not, the claim is about first visits.

What is needed of rows are statistics that merge exactly (`dprl.logs.source`), so a log in memory,
in parts and on a cluster give the same certificate, to the last digit. Sites that share no rows
give what they counted (`dprl.certificate._sites`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut
from dprl._core.words import joined, say
from dprl.certificate._assumptions import LogRecord, of_states
from dprl.certificate._confounding import UnmeasuredCause
from dprl.certificate._issued_gain import Legs, legs_of, meetings
from dprl.certificate._pair_tests import (
    DELTA_SHARES,
    REACH,
    PairTests,
    at_gamma,
    best_low,
    by_returns,
    by_visits,
    fair_pairs,
    half_n_min,
    issue,
    most_met,
    propose,
)
from dprl.certificate._reach import certified_gain, nats_of_sets
from dprl.certificate._settings import GateSettings
from dprl.certificate._sites import record_of_sites, tests_of_sites
from dprl.certificate._visits import Visits, visits_in
from dprl.errors import LogError, ParameterError
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence.counts import Counted, Counts, count_source
from dprl.evidence.decision_points import allowed
from dprl.evidence.excursions import excursions_of
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.log import CUT, Label
from dprl.logs.source import Chunk, LogFacts, Share, Source, Statistic
from dprl.logs.treated import OfTreated
from dprl.policies._base import provenance_of
from dprl.policies._familiar import check_familiar
from dprl.policies._protocol import Policy
from dprl.policies.table import TablePolicy

__all__ = ["SomeGroups", "gate_states", "same_pairs", "universe"]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Codes = NDArray[np.int32]
T = TypeVar("T")

NAMED = 5
"""How many certified pairs that are left out are named."""

SURE = 1.645
"""A pair is proposed where its advantage is this many standard errors above 0."""


# -- halves ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _OfGroups:
    """A statistic of some groups of a log, bool (groups of the whole log,), cut ones treated."""

    statistic: Statistic[Any]
    groups: Bools
    cut: Cut | None
    gamma: float

    def of(self, chunk: Chunk) -> Any:
        own = chunk.once(
            lambda: self._chunk(chunk), "of groups", self.groups.tobytes(), self.cut, self.gamma
        )
        return None if own is None else self.statistic.of(own)

    def _chunk(self, chunk: Chunk) -> Chunk | None:
        log = chunk.some(self.groups, self.cut, self.gamma)
        before = int(self.groups[: chunk.first_group].sum())
        return None if log is None else Chunk(log, before, chunk.first_row)

    def merge(self, one: Any, other: Any) -> Any:
        return self.statistic.merge(one, other)


@dataclass(frozen=True, eq=False)
class SomeGroups:
    """Some groups of a log, cut episodes treated: a source as the log is one.

    Attributes:
        source: The log.
        groups: bool (groups of the log,), those that are in it.
        cut: What is done with cut episodes.
        gamma: Discount per step.
    """

    source: Source
    groups: Bools
    cut: Cut | None
    gamma: float

    @property
    def facts(self) -> LogFacts:
        """Those of the log, without cut episodes; sizes are at most so large."""
        facts = self.source.facts
        ended = np.where(np.arange(len(facts.ended)) == CUT, 0, facts.ended)
        return replace(facts, ended=ended, cut_steps=0, first_cut=None)

    @property
    def room(self) -> int | None:
        """That of the log."""
        return self.source.room

    @property
    def sealed(self) -> str:
        """That of the log."""
        return self.source.sealed

    def digest(self) -> str:
        """That of the log."""
        return self.source.digest()

    def reduce(self, statistic: Statistic[T], progress: Share | None = None) -> T:
        """The statistic of these groups."""
        own: T = self.source.reduce(
            _OfGroups(statistic, self.groups, self.cut, self.gamma), progress
        )
        return own


@dataclass(frozen=True, eq=False)
class _Half:
    """One half of a log, what was counted of it, and the pairs that it proposes, bool (S, A)."""

    source: SomeGroups
    counted: Counted
    proposes: Bools


def _half(learner: DPRLDiscrete, source: Source, groups: Bools, settings: GateSettings) -> _Half:
    """A half of a log, with what it proposes from its own data alone.

    Its pairs pass the learner's rule with half of n_min, and their advantage is surely above 0: by
    the way back to the same state where the Markov property is claimed, else by Welch's bound.
    """
    gamma = learner.gamma
    half = SomeGroups(source, groups, learner.cut, gamma)
    counted = count_source(half, Counts(gamma, cut=learner.cut))
    available = counted.available(half)
    if not settings.markov or settings.grade != "proved":
        return _Half(half, counted, propose(counted.evidence, learner, available))
    pairs = allowed(
        counted.evidence, half_n_min(learner), contrast=learner.contrast, available=available
    )
    values = excursions_of(half, gamma, learner.cut, np.asarray(pairs.any(axis=1)), counted.steps)
    with np.errstate(invalid="ignore"):
        pairs &= values.Q - values.V[:, None] > SURE * values.se
    return _Half(half, counted, np.asarray(pairs))


# -- what was fixed beforehand ---------------------------------------------------------------------


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


def declared_states(states: Sequence[Label], facts: LogFacts) -> Declared:
    """The states of an in-sample gate, as the user declares them.

    Raises:
        ParameterError: It is not a list of different labels.
        LogError: None of them is a state of the log.
    """
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
    inside = np.array([label in names for label in facts.states], bool)
    if not inside.any():
        raise LogError(
            f"none of the {len(names):,} declared states is a state of the log.",
            f"{given[0]!r} and {facts.states[0]!r}",
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
                n=facts.n_states,
            )
        )
    return Declared(len(names), inside, tuple(notes))


def universe(record: LogRecord, states: int, n_min: float, horizon: int | None) -> int:
    """C̄: no more pairs than this can have n_min trajectories behind them."""
    pairs = states * record.facts.n_actions
    if horizon is None or math.isinf(n_min):
        return pairs
    if record.group_steps > horizon:
        raise ParameterError(
            f"a group of this log has more than horizon = {horizon:,} steps.",
            do="horizon must hold for every group there can be.",
        )
    return max(1, min(pairs, record.facts.n_groups * horizon // int(n_min)))


def same_pairs(policy: Policy, facts: LogFacts) -> Bools:
    """bool (S, A): the policy's allowed pairs, in the order of the log's states and actions."""
    both = {
        "states": (policy.space.states, facts.states), "actions": (policy.actions, facts.actions),
    }  # fmt: skip
    for name, (ours, theirs) in both.items():
        if set(ours).isdisjoint(theirs):
            raise LogError(
                f"the log and the policy have no {name} in common.",
                f"{ours[0]!r} and {theirs[0]!r}",
                "Read the log as the training log was read.",
            )
    column = {label: i for i, label in enumerate(policy.actions)}
    shared = [j for j, label in enumerate(facts.actions) if label in column]
    result = np.zeros((facts.n_states, facts.n_actions), bool)
    own = [column[facts.actions[j]] for j in shared]
    result[:, shared] = policy.at(facts.states).allowed[:, own]
    return result


# -- the gate --------------------------------------------------------------------------------------


def gate_states(
    learner: DPRLDiscrete,
    source: Source,
    settings: GateSettings,
    policy: Policy | None,
    origin: dict[str, Any],
) -> TablePolicy:
    """The certified policy of a learner over labelled states.

    Args:
        learner: The learner whose rule proposes and chooses.
        source: The log, wherever its rows are.
        settings: The settings of the gate.
        policy: The policy that is gated; None for a learner.
        origin: Further provenance of the policy.
    """
    gamma, cut, large = learner.gamma, learner.cut, settings.grade == "large-sample"
    sites = source if isinstance(source, SiteEvidence) else None
    declared = None if settings.states is None else declared_states(settings.states, source.facts)
    record = LogRecord.of(source, cut) if sites is None else record_of_sites(sites)
    n_states = source.facts.n_states if declared is None else declared.n
    tested = universe(record, n_states, learner.n_min, settings.horizon)
    permitted = None if policy is None else same_pairs(policy, source.facts)
    if policy is not None and sites is None:
        check_familiar(policy, source)
    sides = None
    if declared is None or (settings.markov and source.facts.n_groups > 1):
        sides = settings.sides(source)
    counted = count_source(source, Counts(gamma, cut=cut))
    whole = counted.evidence
    pairs = allowed(
        whole, learner.n_min, contrast=learner.contrast, available=counted.available(source)
    )
    if permitted is not None:
        pairs[:, : permitted.shape[1]] &= permitted
    pairs = fair_pairs(pairs, record.chances, settings)
    halves: list[_Half] = []
    if sides is not None:
        masks = [sides == side for side in (True, False)]
        if all((counted.left & mask).any() for mask in masks):
            halves = [_half(learner, source, mask, settings) for mask in masks]
        elif declared is None:
            raise LogError(
                "no episode is left on one side of the split.", do="Read more, or drop fewer."
            )
    if declared is None:
        tests = _swapped(learner, halves, record, settings)
    else:
        pairs &= declared.inside[:, None]
        wanted = pairs
        if settings.horizon is not None:  # C̄ counts first visits, which returns cannot have moved
            wanted = pairs & (whole.took.n >= learner.n_min)
        if sites is not None:
            tests = [tests_of_sites(sites, wanted, settings, tested)]
        else:
            seen = [visits_in(source, gamma, cut, settings.known_range, settings.markov)]
            tests = [_test(learner, source, counted, seen, wanted, record, settings, tested)]
    pairs &= np.logical_or.reduce([one.pairs for one in tests])
    gain = None
    notes = _split_notes(settings, declared) if sites is None else list(sites.notes())
    if settings.markov and not large:
        gain, part = _worth(learner, halves, pairs, tests, record, settings)
        if gain > 0:
            notes += _left_out(source.facts, pairs, part)
            pairs = part[:, None] == np.arange(pairs.shape[1])
    choice, planned = learner.choose(source, counted, pairs)
    if settings.markov and large:
        speaks, facts = int((choice >= 0).sum()), source.facts
        nats = nats_of_sets(facts.n_states, speaks, facts.n_actions, REACH * settings.delta)
        gain = certified_gain(source, choice, best_low(tests, choice), gamma, nats, cut)
    made = {**provenance_of(source, whole.n_episodes), **origin}
    made.pop("luck", None)  # what is certified is not luck
    gated = TablePolicy.of(
        whole,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=counted.steps,
        parameters=learner.settings(),
        provenance=made,
    )
    return issue(
        gated,
        tests,
        learner,
        record,
        settings,
        mode=settings.mode,
        groups=source.facts.n_groups if sites is not None else int(counted.left.sum()),
        gain=gain,
        assumptions=of_states(
            record, cut, settings, declared=None if declared is None else declared.n
        ),
        most=lambda: None if sites is not None else most_met(source, choice, cut),
        notes=(*notes, *(() if declared is None else declared.notes)),
    )


def _split_notes(settings: GateSettings, declared: Declared | None) -> list[str]:
    """How the groups were split, where it matters."""
    if declared is None:
        return [settings.split_note]
    if not settings.markov:
        return []
    return [
        say(
            "Which states are met was bounded by halves of the groups, split with seed {n}.",
            n=settings.seed,
        )
    ]


def _test(
    learner: DPRLDiscrete,
    source: Source,
    counted: Counted,
    visits: Sequence[Visits],
    wanted: Bools,
    record: LogRecord,
    settings: GateSettings,
    tested: int,
    proposed_by: Source | None = None,
) -> PairTests:
    """Prove the wanted pairs by counted visits, with Γ* of each.

    `visits` are those of the part that certifies, and then those of the part that proposed.
    """
    share = 1.0 if proposed_by is None else 0.5
    tests = by_visits(
        visits[0], counted.evidence, wanted, settings, tested, share,
        None if proposed_by is None else visits[1], chances=record.chances,
    )  # fmt: skip
    hidden = None
    if wanted.any():
        hidden = UnmeasuredCause.of(
            source, np.nonzero(wanted), learner.gamma, settings.known_range, proposed_by,
            learner.cut,
        )  # fmt: skip
    alpha = DELTA_SHARES[settings.markov][0] * settings.delta * share / max(tested, 1)
    return at_gamma(tests, hidden, wanted, settings, alpha)


def _swapped(
    learner: DPRLDiscrete,
    halves: Sequence[_Half],
    record: LogRecord,
    settings: GateSettings,
) -> list[PairTests]:
    """What each half certifies of what the other proposed."""
    gamma, cut, large = learner.gamma, learner.cut, settings.grade == "large-sample"
    seen, tests = [], []
    if not large:
        seen = [
            visits_in(half.source, gamma, cut, settings.known_range, settings.markov)
            for half in halves
        ]
    for one, other in ((0, 1), (1, 0)):
        half, wanted = halves[other], halves[one].proposes
        if large:
            tests.append(
                by_returns(
                    half.source, half.counted.evidence, wanted, gamma, settings,
                    int(wanted.sum()), 0.5, chances=record.chances, cut=cut,
                )
            )  # fmt: skip
            continue
        wanted = fair_pairs(wanted, record.chances, settings)
        tests.append(
            _test(
                learner, half.source, half.counted, (seen[other], seen[one]), wanted, record,
                settings, int(wanted.sum()), halves[one].source,
            )
        )  # fmt: skip
    return tests


def _left_out(facts: LogFacts, pairs: Bools, choice: Codes) -> list[str]:
    """A sentence on certified pairs in states where nothing is issued."""
    states, actions = np.nonzero(pairs & (choice < 0)[:, None])
    if not len(states):
        return []
    names = [
        f"{facts.states[s]}: {facts.actions[a]}"
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


def _worth(
    learner: DPRLDiscrete,
    halves: Sequence[_Half],
    pairs: Bools,
    tests: Sequence[PairTests],
    record: LogRecord,
    settings: GateSettings,
) -> tuple[float, Codes]:
    """The certified gain and the part C that has it, int32 (S,), -1 where it defers.

    Each half proposes T from its own data; the other half bounds how often its states are met. An
    unrecorded cause that moves odds by Γ makes what follows the action at most Γ times less likely.
    """
    best = 0.0, np.full(len(pairs), -1, np.int32)
    if not pairs.any() or not halves:
        return best
    low = np.max([np.where(t.pairs & pairs, t.advantage, -np.inf) for t in tests], axis=0)
    level = DELTA_SHARES[True][2] * settings.delta / 2
    for one, other in ((0, 1), (1, 0)):
        half = halves[one]
        proposed = fair_pairs(half.proposes, record.chances, settings)
        T = learner.choose(half.source, half.counted, proposed)[0].astype(np.int32)
        states = np.flatnonzero(T >= 0)
        certified = low[states, T[states]]
        if not (certified >= 0).any():
            continue
        legs = OfTreated(legs_of, (T, learner.gamma), Legs.merge, learner.cut, learner.gamma)
        met = meetings(half.source.reduce(legs), halves[other].source.reduce(legs), level)
        met = replace(met, followed=met.followed / settings.confounding)
        inside, gain = met.best_part(certified)
        if gain > best[0]:
            C = np.full(len(T), -1, np.int32)
            C[states[inside]] = T[states[inside]]
            best = gain, C
    width = settings.known_range[1] - settings.known_range[0]
    return min(best[0], width), best[1]
