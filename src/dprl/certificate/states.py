"""The gate over labelled states, wherever the rows are: propose, certify, issue.

**Proved.** The level δ has three parts: .7 δ for the e-values of "no benefit" and the lower bounds
of advantages (`dprl.certificate.eprocesses`), .1 δ for p (the bounds of an advantage need it) and
.2 δ for how often the issued states are met (`dprl.certificate.gain`). Where the Markov
property is not claimed, first visits count and no gain is bounded: .9 δ and .1 δ.

* Swap-split: each half of the groups proposes K pairs, the other half tests them at .7 δ/2/K; the
  bets learn from the half that proposed.
* In-sample: all of the log tests, at .7 δ/C̄, the pairs of states that were declared beforehand.

A pair is an action to take in a state, or one to avoid there: "not a" is the policy b/(1 - b_a),
its advantage b_a (E y - E x), and it is tested with the sides exchanged. Both kinds share one
level: K counts both, and C̄ is twice as many where there is more than one other action. A half
proposes one kind in each state: what to avoid where its estimated advantage is surely larger. Where
both are certified, what is certified to bring more is issued.

**The Markov property is asked for** before all visits count (`dprl.planning.markov`), at level .01.
Where it is refuted first visits count, and the certificate says so. In a swap-split the half that
proposes is asked how the *other* half shall test, so that nothing is paid for asking; where only
one of the halves refutes it, what was tested by all visits is not used. In-sample the same rows
answer both, and δ is shared: .75 δ for all visits, .25 δ for first visits where it is refuted. What
all visits certify and the first visits of the whole log contradict is left out: that only takes
away.

Both halves propose T, one action per state; the other half bounds how often T's states are met, at
.1 δ each. A certified part C of T is issued, from the half with the larger bound: the certificate
is about exactly the policy that comes with it.

**For large samples** the level has four parts (`dprl.certificate.pair_tests`): to issue pairs, for
lower ends, for p, and for how often suggestions are met. First visits count. Each half of the
groups tests what the other proposed, at half of the level, by max-t tests
(`dprl.certificate.pair_tests`); in-sample the whole log tests, at once, all pairs of the states
that were declared beforehand that n_min took and n_min did not, whatever their returns: what a
trial was made for, with one correction for their number. Where the Markov property is claimed the
gain of what is issued is bounded (`dprl.certificate.gain`); where it is not, the claim is about
first visits.

**Any learner may propose** (`Proposer`): of what a half proposes by the rule above, that is tested
which the learner suggests when it is fitted to that half; of what is certified, that is issued
which it suggests when it is fitted to the whole log. That only takes away.

What is needed of rows are statistics that merge exactly (`dprl.logs.source`), so a log in memory,
in parts and on a cluster give the same certificate, to the last digit. Sites that share no rows
give what they counted (`dprl.certificate.states`).
"""

from __future__ import annotations

# Apart: one kind of gate; the others are beside it.
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.checks import Cut
from dprl._core.exact import COUNT
from dprl._core.words import joined, say, say_many, sentences, worded
from dprl.certificate.assumptions import LogRecord, of_states
from dprl.certificate.eprocesses import Visits, counted, visits_in
from dprl.certificate.evalues import UnmeasuredCause
from dprl.certificate.gain import Legs, certified_gain, legs_of, meetings, nats_of_sets
from dprl.certificate.pair_tests import (
    DELTA_SHARES,
    REACH,
    PairTests,
    at_gamma,
    avoidable,
    best_low,
    by_returns,
    by_visits,
    contradicted,
    fair_pairs,
    half_n_min,
    issue,
    most_met,
    of_one_kind,
    propose,
)
from dprl.certificate.settings import GateSettings
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import FIRST, Counted, Counts, Evidence, count_source
from dprl.evidence.decision_points import allowed
from dprl.evidence.excursions import excursions_of
from dprl.evidence.sites.evidence import UNITS, SiteEvidence, chances_of
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.censoring import treat_cut
from dprl.logs.log import CUT, Label, Log
from dprl.logs.source import (
    Chunk,
    LogFacts,
    OfTreated,
    Share,
    Source,
    Statistic,
    as_source,
    check_claim,
)
from dprl.planning.markov import markov_check
from dprl.policies.base import provenance_of
from dprl.policies.familiar import called, check_familiar
from dprl.policies.held_out import rows_together
from dprl.policies.protocol import Avoid, Policy, check_learned
from dprl.policies.table import TablePolicy

# --- Tests from what sites counted that share no rows: in-sample, by first visits
#
# The schema fixed states, gamma and the range before anybody counted: it is the declaration that an
# in-sample certificate needs. The e-value of first visits (`dprl.certificate.eprocesses`, with
# markov=False) needs, of each pair, how many groups had a return in which bin, and that is what
# sites count. Where bins are single, the certificate is that of the pooled log. Where k put bins
# together, returns of those who took the action count at the lower end of their bin, returns of the
# others at the upper end: it is valid, and has less power.
#
# Groups in the rest of a state, of which it is not said which action they took, count among y. Let
# the e-value's factors have means X for those known to have taken a, A for those who took it and
# are in the rest, B for others. If a is no improvement, then X <= 1, B <= 1 and pA + (1 - p)B <= 1
# (the mean of the last is V(s)). Who is in the rest depends on actions alone, so the product over
# the n groups of a site has mean at most (p max(A, X) + (1 - p) B)^n <= 1. The bounds of advantages
# need an upper bound of p: for it everybody in the rest counts as having taken a.
#
# Halves of the groups, all visits of an episode and the gain of what is issued need rows, and are
# not offered. Γ* is computed from bins in the same cautious way: at most that of the pooled log.


def check_sites(sites: SiteEvidence, learner: Any, settings: GateSettings) -> GateSettings:
    """Refuse what cannot be certified without rows; the settings, with the states of the schema.

    Args:
        sites: What the sites counted, merged.
        learner: The learner, `dprl.DPRLDiscrete` or another one.
        settings: The settings of the gate.
    """
    if getattr(learner, "radius", None) is not None:
        raise ParameterError(
            "sites count labelled states, and this learner is for features.",
            do=worded("Use {dprl.DPRLDiscrete}."),
        )
    schema = sites.schema
    if schema.value_range is None:
        raise ParameterError(
            "the sites counted without a range of returns: there is nothing to certify with.",
            f"schema {schema.digest()[:12]}",
            worded("State {value_range} in the schema, from what rewards can be, and count again."),
        )
    if settings.value_range != schema.value_range:
        raise ParameterError(
            worded(
                "the sites counted with {value_range} = {value_range2}; got {value_range3}.",
                value_range2=schema.value_range,
                value_range3=settings.value_range,
            ),
            f"schema {schema.digest()[:12]}",
            worded("Leave {value_range} out, or let all sites count again with another schema."),
        )
    if settings.states is not None and set(settings.states) != set(schema.states):
        raise ParameterError(
            "the states that were fixed beforehand are those of the schema; got others.",
            f"{len(schema.states):,} states in the schema",
            "Leave states out.",
        )
    wrong = {
        f"mode={settings.mode!r}": settings.mode != "in-sample",
        f"grade={settings.grade!r}": settings.grade != "proved",
        f"markov={settings.markov!r}": settings.markov is not False,
        "split": settings.split is not None,
        "horizon": settings.horizon is not None,
    }
    for name in (name for name, given in wrong.items() if given):
        raise ParameterError(
            "what sites counted can be certified in one way only: in-sample and by first visits.",
            name,
            worded(
                "Say {mode='in-sample'} and {markov=False}, and leave out grade, split and "
                "horizon; anything else needs rows."
            ),
        )
    sites.check_settings({**learner.settings(), "plan": False})
    _check_cuts(sites)
    if learner.plan:
        raise ParameterError(
            "a certificate from sites without rows is for best single decisions.",
            "plan=True",
            worded("Say {plan=False} when learning."),
        )
    return replace(settings, states=schema.states)


def _check_cuts(sites: SiteEvidence) -> None:
    """Refuse to claim something where cut episodes were treated without a declaration."""
    n = sites.facts.n_cut
    if n and sites.schema.cut is None:
        raise LogError(
            f"{n:,} episodes were cut, and the schema states no treatment.",
            do="State cut in the schema ('terminal' or 'drop-unrelated') and count again; the "
            "certificate says which, and what it assumes.",
        )
    check_claim(sites.schema.cut, sites, "a certificate")


def record_of_sites(sites: SiteEvidence) -> LogRecord:
    """What a certificate says of logs that are not here."""
    timed = all(site["timed"] for site in sites.sites)
    return LogRecord(sites.facts, str(sites.origin()["log"]), timed, chances_of(sites))


def tests_of_sites(
    sites: SiteEvidence, wanted: Bools, settings: GateSettings, tested: int
) -> PairTests:
    """Test the wanted pairs (S, A + 1) by what bins say of first visits, with Γ* of each."""
    alpha = DELTA_SHARES[False][0] * settings.delta / max(tested, 1)
    tests = _certify(sites, wanted, settings, tested)
    return at_gamma(tests, _outcomes(sites, wanted, settings), wanted, settings, alpha)


def _certify(sites: SiteEvidence, wanted: Bools, settings: GateSettings, tested: int) -> PairTests:
    """Test the wanted pairs (S, A + 1) by what bins say of first visits."""
    assert sites.bins is not None  # there is a range
    pair, first, last, count = sites.bins.T
    rest = sites.evidence.words[FIRST, :, -1, COUNT]

    def test(bins: Ints, pairs: Bools) -> PairTests:
        visits = _visits(sites, pair, bins, count)
        return by_visits(
            visits, sites.evidence, pairs, settings, tested, 1.0, unstated=rest
        )  # fmt: skip

    if (first == last).all():
        return test(first, wanted)
    A, tests = len(sites.evidence.actions), None
    for a in np.flatnonzero(wanted.any(axis=0)):
        takes = (pair % A == a % A) != (a >= A)  # those who do anything but a, if that is asked
        ends = np.where(takes, first & ~1, (last + 1) & ~1)
        only = wanted & (np.arange(wanted.shape[1]) == a)
        own = test(ends, only)
        tests = own if tests is None else _joined(tests, own, only)
    if tests is None:
        return test(first, wanted)
    return replace(tests, difference=None)  # that of the exact sums


def _joined(tests: PairTests, own: PairTests, only: Bools) -> PairTests:
    """The tests with what another one says of these pairs."""
    names = ("pairs", "low", "advantage", "log_e", "p_high")
    return replace(
        tests, **{n: np.where(only, getattr(own, n), getattr(tests, n)) for n in names}
    )  # fmt: skip


def _visits(sites: SiteEvidence, pair: Ints, bins: Ints, count: Ints) -> Visits:
    columns = counted(pair, np.zeros(len(pair), np.int64), bins, count)
    ends = sites.schema.value_range
    assert ends is not None
    return Visits(
        *columns, sites.schema.states, sites.evidence.actions, sites.schema.gamma, ends, False,
        sites.groups,
    )  # fmt: skip


def _outcomes(sites: SiteEvidence, wanted: Bools, settings: GateSettings) -> UnmeasuredCause | None:
    """The outcomes of the wanted pairs, rounded against the claim; None where there is none."""
    at = np.nonzero(wanted)
    if not len(at[0]) or sites.bins is None:
        return None
    pair, first, last, count = sites.bins.T
    A = len(sites.evidence.actions)
    begin = np.searchsorted(pair, np.arange(len(wanted) + 1) * A)
    took, others = [], []
    for s, a in zip(*at, strict=True):
        here = slice(begin[s], begin[s + 1])
        own = (pair[here] == s * A + a % A) != (a >= A)
        down, up = (first[here] >> 1) / UNITS, ((last[here] + 1) >> 1) / UNITS
        took.append(np.repeat(down[own], count[here][own]))
        others.append(np.repeat(up[~own], count[here][~own]))
    low, high = settings.known_range
    nothing = tuple(np.empty(0) for _ in took)
    return UnmeasuredCause(tuple(took), tuple(others), nothing, high - low)


# --- The gate over labelled states, wherever the rows are: propose, certify, issue

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
    """One half of a log, and what it proposes from its own data alone.

    Attributes:
        source: The half.
        counted: What was counted of it.
        proposes: bool (S, A or 2A), the pairs that it proposes; "not a" comes after all a.
        refuted: What refutes the Markov property, in words; '' where nothing does.
    """

    source: SomeGroups
    counted: Counted
    proposes: Bools
    refuted: str = ""

    def plan(self, learner: DPRLDiscrete, pairs: Bools) -> Codes:
        """T, one pair (of those that may be proposed) per state, int32 (S,); -1 without one."""
        A = self.source.facts.n_actions
        T = learner.choose(self.source, self.counted, pairs[:, :A])[0].astype(np.int32)
        warned = pairs[:, A:].any(axis=1)
        if warned.any():
            T[warned] = A + pairs[warned, A:].argmax(axis=1)
        return T


def _half(
    learner: DPRLDiscrete,
    source: Source,
    groups: Bools,
    settings: GateSettings,
    proposer: Proposer | None,
) -> _Half:
    """A half of a log, with what it proposes from its own data alone.

    Its pairs pass the learner's rule with half of n_min, and their advantage is surely above 0: by
    the way back to the same state where the Markov property is claimed, else by Welch's bound.
    Where another learner proposes, it suggests them too.
    """
    gamma = learner.gamma
    half = SomeGroups(source, groups, learner.cut, gamma)
    counted = count_source(half, Counts(gamma, cut=learner.cut))
    available = counted.available(half)
    refuted = refutation(source, groups, learner, settings)
    own: Bools | bool = True
    if proposer is not None:
        own = proposer.pairs(rows_together(half), counted.evidence)
    if not settings.markov or settings.grade != "proved" or refuted:
        pairs = propose(counted.evidence, learner, available, settings.avoid) & own
        return _Half(half, counted, pairs, refuted)
    n_min = half_n_min(learner)
    pairs = allowed(counted.evidence, n_min, contrast=learner.contrast, available=available)
    if settings.avoid:
        pairs = np.hstack((pairs, avoidable(counted.evidence, n_min, available)))
    values = excursions_of(half, gamma, learner.cut, np.asarray(pairs.any(axis=1)), counted.steps)
    advantage, error = values.Q - values.V[:, None], SURE * values.se
    low = advantage - error
    if settings.avoid:  # of anything but a: V - Q is (1 - p)/p of its advantage
        visits = np.maximum(values.n.sum(axis=1, keepdims=True), 1)
        others = np.maximum(visits - values.n, 1)
        low = np.hstack((low, values.n / others * (-advantage - error)))
    with np.errstate(invalid="ignore"):
        pairs = np.asarray(pairs & (low > 0))
    return _Half(half, counted, of_one_kind(pairs, low, advantage.shape[1]) & own)


ASKED = 20_000
"""About how many rows are asked whether the Markov property holds, drawn by group."""
ASK_LEVEL, SHUFFLES = 0.01, 2_099
"""The level of that question, and how many shuffles answer it."""
MARKOV_SHARES = {True: 0.75, False: 0.25}
"""Of δ, where the same rows are asked that certify: for all visits, and for first visits."""


def refutation(source: Source, groups: Bools, learner: DPRLDiscrete, settings: GateSettings) -> str:
    """What some groups say against the Markov property, in a sentence; '' where nothing.

    Args:
        source: The log, wherever its rows are.
        groups: bool (groups,), the groups that are asked; some of them, where there are many.
        learner: The learner, for gamma and the treatment of cut episodes.
        settings: The settings of the gate; where the property is not claimed nobody is asked.
    """
    facts, own = source.facts, np.flatnonzero(groups)
    if not settings.markov or facts.longest < 2 or not len(own):
        return ""
    most = math.ceil(ASKED * facts.n_groups / facts.n_steps)
    if len(own) > most:
        own = np.random.default_rng(settings.seed).choice(own, most, replace=False)
    some = np.zeros(len(groups), bool)
    some[own] = True
    log = rows_together(SomeGroups(source, some, learner.cut, learner.gamma))
    check = markov_check(
        log, learner.gamma, permutations=SHUFFLES, seed=settings.seed, level=ASK_LEVEL,
        curtailed=True,
    )  # fmt: skip
    return check.findings[0].sentence if check.findings else ""


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


def same_pairs(policy: Policy, facts: LogFacts, evidence: Evidence | None = None) -> Bools:
    """bool (S, A): the policy's allowed pairs, in the order of the log's states and actions.

    With `evidence` of practice: what a policy of any kind suggests instead, one action per state,
    the one whose probability it raises most. Where it defers, or raises none, it suggests nothing.
    """
    states = called(facts.states, policy.space.states)
    actions = called(facts.actions, policy.actions)
    both = {
        "states": (policy.space.states or states, states),
        "actions": (policy.actions, actions),
    }
    for name, (ours, theirs) in both.items():
        if set(ours).isdisjoint(theirs):
            raise LogError(
                f"the log and the policy have no {name} in common.",
                f"{ours[0]!r} and {theirs[0]!r}",
                "Read the log as the training log was read.",
            )
    column = {label: i for i, label in enumerate(policy.actions)}
    shared = [j for j, label in enumerate(actions) if label in column]
    result = np.zeros((facts.n_states, facts.n_actions), bool)
    own = [column[actions[j]] for j in shared]
    here = policy.at(states)
    if evidence is None:
        result[:, shared] = here.allowed[:, own]
        return result
    n = evidence.took.n[:, : facts.n_actions]
    raised = np.full(result.shape, -np.inf)
    raised[:, shared] = np.nan_to_num(here.pi, nan=-np.inf)[:, own]
    raised -= n / np.maximum(n.sum(axis=1, keepdims=True), 1)
    best = raised.max(axis=1, keepdims=True)
    first = np.arange(n.shape[1]) == raised.argmax(axis=1)[:, None]
    return np.asarray(first & (best > 1e-9) & (evidence.pair.n[:, : n.shape[1]] > 0))


OTHERS_N_MIN = 20
"""Episodes behind a suggestion of a learner that has no n_min of its own."""


@dataclass(frozen=True, eq=False)
class Proposer:
    """A learner of any kind, or a policy of any kind, whose suggestions the gate certifies.

    Attributes:
        given: It has fit(log), which returns a policy; or it is a policy.
        rule: The rule that its suggestions must pass: DPRL's, with its gamma, n_min and cut.
        name: What it is called.
    """

    given: Any
    rule: DPRLDiscrete
    name: str

    def pairs(self, log: Log, evidence: Evidence) -> Bools:
        """bool (S, A): what it suggests when it is fitted to a log with this evidence."""
        return same_pairs(self.policy(log), log.facts, evidence)

    def policy(self, log: Log) -> Policy:
        """The policy that it learns from a log, cut episodes treated."""
        policy: Policy = check_learned(self.given.fit(log), self.name, ("at", "space"))
        return policy

    def fit(self, log: Log) -> TablePolicy:
        """Its suggestions from a log, as a policy that defers elsewhere."""
        cut, gamma = self.rule.cut, self.rule.gamma
        counted = count_source(as_source(log), Counts(gamma, cut=cut))
        evidence = counted.evidence
        pairs = self.pairs(treat_cut(log, gamma, cut), evidence)
        return TablePolicy.of(
            evidence,
            choice=np.where(pairs.any(axis=1), pairs.argmax(axis=1), -1).astype(np.int32),
            allowed=pairs,
            planned=np.where(pairs, evidence.pair.mean, np.nan),
            steps=counted.steps,
            parameters={"learner": self.name, "n_min": 1, "gamma": gamma, "cut": cut},
            provenance=provenance_of(log, evidence.n_episodes),
        )

    @property
    def note(self) -> str:
        """Who proposed, in a sentence."""
        return say(
            "{name} proposed; what it raises most over practice in a state was tested where "
            "{n:,g} episodes took it and as many did not.",
            name=self.name,
            n=self.rule.n_min,
        )


# -- the gate --------------------------------------------------------------------------------------


def gate_states(
    learner: DPRLDiscrete,
    source: Source,
    settings: GateSettings,
    policy: Policy | None,
    origin: dict[str, Any],
    proposer: Proposer | None = None,
) -> TablePolicy:
    """The certified policy of a learner over labelled states.

    Args:
        learner: The learner whose rule proposes and chooses.
        source: The log, wherever its rows are.
        settings: The settings of the gate.
        policy: The policy that is gated; None for a learner.
        origin: Further provenance of the policy.
        proposer: Another learner, or kind of policy, whose suggestions are certified; `learner` is
            then the rule that they must pass.
    """
    gamma, cut, large = learner.gamma, learner.cut, settings.grade == "large-sample"
    sites = source if isinstance(source, SiteEvidence) else None
    declared = None if settings.states is None else declared_states(settings.states, source.facts)
    record = LogRecord.of(source, cut) if sites is None else record_of_sites(sites)
    n_states = source.facts.n_states if declared is None else declared.n
    tested = universe(record, n_states, learner.n_min, settings.horizon)
    approved = policy is not None and policy.provenance.get("approved")
    if source.facts.n_actions < 3 or approved or proposer is not None:
        settings = replace(settings, avoid=False)  # nothing to tell apart; not what was proposed
    if settings.avoid:
        tested *= 2
    permitted = None if policy is None else same_pairs(policy, source.facts)
    if policy is not None and sites is None:
        check_familiar(policy, source)
    sides = None
    if declared is None or (settings.markov and source.facts.n_groups > 1):
        sides = settings.sides(source)
    counted = count_source(source, Counts(gamma, cut=cut))
    whole = counted.evidence
    if proposer is not None and policy is not None:
        permitted = same_pairs(policy, source.facts, whole)
    elif proposer is not None:
        rows = SomeGroups(source, np.ones(source.facts.n_groups, bool), cut, gamma)
        permitted = proposer.pairs(rows_together(rows), whole)
    pairs = allowed(
        whole, learner.n_min, contrast=learner.contrast, available=counted.available(source)
    )
    if permitted is not None:
        pairs[:, : permitted.shape[1]] &= permitted
    A = pairs.shape[1]
    if settings.avoid:
        pairs = np.hstack((pairs, avoidable(whole, learner.n_min, counted.available(source))))
    pairs = fair_pairs(pairs, record.chances, settings)
    asked, notes = settings, []
    halves: list[_Half] = []
    if sides is not None:
        masks = [sides == side for side in (True, False)]
        if all((counted.left & mask).any() for mask in masks):
            own = proposer if policy is None else None
            halves = [_half(learner, source, mask, settings, own) for mask in masks]
        elif declared is None:
            raise LogError(
                "no episode is left on one side of the split.", do="Read more, or drop fewer."
            )
    if declared is None:
        refuted = next((half.refuted for half in halves if half.refuted), "")
        settings = replace(settings, markov=settings.markov and not refuted)
        tests = _swapped(learner, halves, record, settings)
    else:
        refuted = "" if sites is not None else refutation(source, counted.left, learner, settings)
        if settings.markov and source.facts.longest > 1:
            share = MARKOV_SHARES[not refuted]
            asked = replace(settings, delta=share * settings.delta, markov=not refuted)
            settings = replace(settings, markov=not refuted)
        pairs &= declared.inside[:, None]
        wanted = pairs
        if settings.horizon is not None:  # C̄ counts first visits, which returns cannot have moved
            enough = whole.took.n >= learner.n_min
            wanted = pairs & np.tile(enough, pairs.shape[1] // A)
        if sites is not None:
            tests = [tests_of_sites(sites, wanted, settings, tested)]
        elif large:
            wanted = fair_pairs(_enough(whole, pairs.shape, learner.n_min), record.chances, asked)
            wanted &= declared.inside[:, None]
            tests = [
                by_returns(
                    source, whole, wanted, gamma, asked, int(wanted.sum()), 1.0,
                    chances=record.chances, cut=cut,
                )
            ]  # fmt: skip
        else:
            seen = [visits_in(source, gamma, cut, settings.known_range, settings.markov)]
            tests = [_test(learner, source, counted, seen, wanted, record, asked, tested)]
    pairs &= np.logical_or.reduce([one.pairs for one in tests])
    gain = None
    notes = _split_notes(settings, declared) if sites is None else list(sites.notes())
    if proposer is not None:
        notes.append(proposer.note)
    if refuted:
        notes.append(sentences(REFUTED, refuted))
    if settings.by_all_visits:
        against = pairs & contradicted(whole, pairs.shape[1])
        notes += _struck(source.facts, against)
        pairs &= ~against
    if settings.markov and not large:
        gain, part = _worth(learner, halves, pairs, tests, record, asked)
        if gain > 0:
            notes += _left_out(source.facts, pairs, part)
            pairs = part[:, None] == np.arange(pairs.shape[1])
    choice, planned = learner.choose(source, counted, pairs[:, :A])
    answer = _answers(pairs, choice, np.max([one.advantage for one in tests], axis=0), A)
    choice = np.where(answer < A, answer, -1).astype(np.int32)
    avoid = np.where(answer < A, -1, answer - A).astype(np.int32)
    if settings.markov and large:
        speaks, facts = int((answer >= 0).sum()), source.facts
        nats = nats_of_sets(facts.n_states, speaks, pairs.shape[1], REACH * settings.delta)
        gain = certified_gain(source, answer, best_low(tests, answer), gamma, nats, cut)
    made = {**provenance_of(source, whole.n_episodes), **origin}
    made.pop("luck", None)  # what is certified is not luck
    gated = TablePolicy.of(
        whole,
        choice=choice,
        avoid=avoid if (avoid >= 0).any() else None,
        allowed=np.ascontiguousarray(pairs[:, :A]),
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
        most=lambda: None if sites is not None else most_met(source, answer, cut),
        notes=(*notes, *(() if declared is None else declared.notes)),
    )


REFUTED = say(
    "A test speaks against the Markov property, so a group's first visit of a state counts, "
    "nothing is claimed about later visits, and no gain is stated."
)


def _enough(evidence: Evidence, shape: tuple[int, ...], n_min: float) -> Bools:
    """bool (S, A or 2A): the pairs that n_min took and n_min did not; no return is looked at."""
    took = evidence.took.n
    here = (took >= n_min) & (evidence.n_others >= n_min)
    return np.tile(here, shape[1] // here.shape[1])


def _answers(pairs: Bools, choice: Codes, low: Floats, A: int) -> Codes:
    """int32 (S,): the chosen actions, or A more than one to avoid where that brings surely more.

    Args:
        pairs: bool (S, A or 2A), what is certified.
        choice: int32 (S,), the actions that were chosen among those to take; -1 without one.
        low: float64 (S, A or 2A), lower bounds of advantages.
        A: Number of actions.
    """
    if not pairs[:, A:].any():
        return choice.astype(np.int32)
    low = np.where(pairs, low, -np.inf)
    take = np.where(choice >= 0, low[np.arange(len(pairs)), choice], -np.inf)
    warn = low[:, A:]
    return np.where(warn.max(axis=1) > take, A + warn.argmax(axis=1), choice).astype(np.int32)


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
    refuted = any(half.refuted for half in halves)
    for one, other in ((0, 1), (1, 0)):
        half, wanted = halves[other], halves[one].proposes
        if refuted and not halves[one].refuted and not large:
            wanted = np.zeros_like(wanted)  # it asked for all visits, which the other half refutes
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


def _named(facts: LogFacts, states: Ints, actions: Ints) -> list[str]:
    """The first few of some pairs, in words."""
    A = facts.n_actions
    return [
        f"{facts.states[s]}: {facts.actions[a] if a < A else Avoid(facts.actions[a - A])}"
        for s, a in zip(states[:NAMED], actions[:NAMED], strict=True)
    ]


def _struck(facts: LogFacts, pairs: Bools) -> list[str]:
    """A sentence on pairs that all visits certify and first visits contradict."""
    states, actions = np.nonzero(pairs)
    if not len(states):
        return []
    return [
        say_many(
            "{n:,} more passed by all visits and is left out because first visits say the "
            "opposite, as they cannot where the Markov property holds: {names}.",
            "{n:,} more passed by all visits and are left out because first visits say the "
            "opposite, as they cannot where the Markov property holds: {names}.",
            len(states),
            names=joined(", ", _named(facts, states, actions)),
        )
    ]


def _left_out(facts: LogFacts, pairs: Bools, choice: Codes) -> list[str]:
    """A sentence on certified pairs in states where nothing is issued."""
    states, actions = np.nonzero(pairs & (choice < 0)[:, None])
    if not len(states):
        return []
    names = _named(facts, states, actions)
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
        T = half.plan(learner, proposed)
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
