r"""The gate: issue a suggestion only where the log proves that it improves on usual practice.

A pair (s, a) is issued where the log proves that its advantage A(s, a) = Q(s, a) - V(s) over usual
practice is above 0: where the e-value of "no benefit" reaches 1/α, with α small enough for all
pairs at once. Then, with probability 1 - δ, *every issued suggestion is a true improvement*, so by
the performance difference lemma ρ(π) >= ρ(b): no horizon factor, no model, no behaviour policy.

* ``markov=True`` (default) claims that what follows a visit of a state depends on the past through
  the state alone. The evidence is then an e-process over all visits of a state
  (`dprl.certificate.eprocesses`), and the gain of exactly what is issued is bounded
  (`dprl.certificate.gain`). ``markov=False`` counts first visits and claims less.
* ``mode="swap-split"`` (default). Groups are split in two; one half proposes K pairs (the learner's
  rule at half of n_min, and an advantage that is surely above 0), the other half certifies them;
  then the reverse.
* ``mode="in-sample"``. All of the log certifies, at a level that is divided among C̄ pairs: all
  pairs of the states that were declared, or ⌊N H/n_min⌋ where a horizon H is known (pairs then need
  n_min first visits that took them). Valid only if these states, γ, n_min and the range were fixed
  without looking at returns: the user must name the states.

* Where the log records with which probabilities actions were taken, nothing is issued where they
  differ within a state, and p is known where they do not (`dprl.evidence.propensity`).
* ``mode="policy"``. One bound for a policy as a whole (`dprl.certificate.whole_policy`).
* ``grade="large-sample"``. Tests that are right for large samples, in place of e-values
  (`dprl.certificate.pair_tests`), by first visits.

Labelled states are in `dprl.certificate.states`, wherever the rows are. Over features the gate
decides per cell (`dprl.certificate.cells`), and over the rules of `dprl.Rules` per proposed rule
(`dprl.certificate.rules`). Each mode is a kind of certificate: `register` adds one.

The issued pairs must also pass the learner's own rule on the whole log, so of actions to take a
gated policy names a part of what the policy before the gate did, and no others. Over labelled
states it may also say what to avoid (`dprl.certificate.states`).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from dprl._core.arrays import Bools, Ints
from dprl._core.checks import check_choice
from dprl._core.words import say, sentences, worded
from dprl.certificate.assumptions import LogRecord
from dprl.certificate.cells import gate_cells
from dprl.certificate.pair_tests import Learner
from dprl.certificate.rules import gate_rules
from dprl.certificate.settings import (
    GateSettings,
    check_cut,
    in_memory,
    refuse_own_medians,
)
from dprl.certificate.states import OTHERS_N_MIN, Proposer, check_sites, gate_states, universe
from dprl.certificate.whole_policy import gate_policy
from dprl.errors import BalanceWarning, ParameterError
from dprl.evidence.balance import Balance, Compared, balance, changes_in
from dprl.evidence.neighbors.metric import Metric
from dprl.evidence.sites.evidence import SiteEvidence
from dprl.evidence.yardstick import hidden_columns, yardstick_words
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.discrete import DPRLDiscrete
from dprl.learners.rules.learner import Rules
from dprl.logs.censoring import outside
from dprl.logs.encoding.encoder import labelled, with_indicators
from dprl.logs.log import Label, Log, check_log
from dprl.logs.outcome import UNDECLARED
from dprl.logs.overlap import sealed_origin
from dprl.logs.source import LogInParts, Source, as_source, on_cluster, refuse_completed
from dprl.policies.cells import CellPolicy
from dprl.policies.certificate import IN_SAMPLE, KINDS, SWAP_SPLIT, WHOLE_POLICY, CertificateKind
from dprl.policies.familiar import like_policy
from dprl.policies.protocol import Policy
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.table import TablePolicy

Grade = Literal["proved", "large-sample"]
Gate: TypeAlias = Callable[[Any, Any, GateSettings], Any]
"""How a kind of certificate proposes and certifies: (proposal, log, settings) → the policy, with
its certificate."""

GATES: dict[str, Gate] = {}
"""Mode → how it proposes and certifies."""


def register(kind: CertificateKind, how: Gate) -> None:
    """Add a kind of certificate: `gate` makes it, and files, reports and the command line know it.

    Args:
        kind: Its name, its rows, its claim and what would contradict it.
        how: Called with the proposal, the log and the settings of a gate; returns the policy that
            is issued, with its certificate, whose mode is the name of the kind.

    Example:
        >>> register(CertificateKind(name="mine"), lambda proposal, log, settings: proposal)
        >>> import dprl
        >>> log = dprl.envs.risky_arms().sample(10, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=2, gamma=1.0)
        >>> dprl.gate(learner.fit(log), log, mode="mine", value_range=(0, 1)).may_change
        True
        >>> del KINDS["mine"], GATES["mine"]
    """
    KINDS[kind.name], GATES[kind.name] = kind, how


def warn_of_differences(gate: Callable[..., Any]) -> Any:
    """A gate that also warns of differences between those who took what it issues and others.

    A certificate is about the returns of those who took a suggestion and of those who did not. It
    cannot see that they differ in a column that is not in the state, so the gate says it, and the
    notes of the certificate keep it. They also keep what hiding a recorded column would be, to
    compare Γ* with.
    """

    @functools.wraps(gate)
    def gate_and_warn(*given: Any, **named: Any) -> Any:
        gated = gate(*given, **named)
        log: Any = named.get("log", given[1] if len(given) > 1 else None)
        compared = differences_where_it_speaks(gated, log)
        cautions = [] if compared is None else compared.warnings()
        for sentence in cautions:
            warnings.warn(sentence, BalanceWarning, stacklevel=outside())
        if gated.certificate is None:
            return gated
        notes = [sentences(say("Be wary:"), sentence) for sentence in cautions]
        notes += filter(None, [_to_compare(gated, log)])
        if not notes:
            return gated
        certificate = replace(gated.certificate, notes=(*gated.certificate.notes, *notes))
        return replace(gated, certificate=certificate)

    return gate_and_warn


@warn_of_differences
def gate(
    proposal: Any,
    log: Log | SiteEvidence | LogInParts,
    *,
    delta: float = 0.05,
    value_range: tuple[float, float] | None = None,
    margin: float = 0.0,
    mode: str = "swap-split",
    grade: Grade = "proved",
    states: Sequence[Label] | None = None,
    markov: bool = True,
    split: Sequence[bool] | Bools | None = None,
    horizon: int | None = None,
    seed: int = 0,
    confounding: float = 1.0,
    avoid: bool = True,
    cluster: Any = None,
    gamma: float | None = None,
) -> TablePolicy | CellPolicy | RulePolicy:
    """The part of a policy that this log proves to improve on usual practice.

    Args:
        proposal: `dprl.DPRLDiscrete`, `dprl.DPRLContinuous` or `dprl.Rules`, or a policy that one
            of them has fitted. For labelled states the gated policy keeps some of its suggestions.
            For `dprl.DPRLContinuous` only its settings are used: the features are grouped into
            cells, and each cell is decided anew. Of `dprl.Rules` all rules that one half proposed
            are tested, on the other half. For labelled states it may also be any other learner,
            `dprl.Confident`, `dprl.baselines.SPIBB` or one of your own: an object whose fit(log)
            returns a policy; or a policy that one has fitted. What it suggests in a state is the
            action whose probability it raises most over practice. Its n_min counts, if it has
            one, else 20. (What `dprl.Confident` states of its gain is a bound of its own kind.)
        log: The log to certify with; for a policy, usually the log it was fitted to. The part of
            the log that proposes a suggestion and the part that certifies it are kept apart. For
            rules it is exactly the log they were fitted to, or groups they have never seen, all of
            which then certify. Or a log in parts (`dprl.scan`): over labelled states its
            certificate is that of the same log in memory (only, takers and others are not compared
            in columns beside the state, which needs all rows at once). Or what sites counted of
            their logs (`dprl.site_evidence`), with mode="in-sample" and markov=False: states and
            range are those of their schema.
        delta: Probability with which the claim may fail, in (0, 1). Default 0.05.
        value_range: (lowest, highest) return there can be, from what is known about rewards, never
            taken from the log. Required for the grade "proved".
        margin: The advantage that a suggestion must exceed, in units of returns, at least 0; in
            mode "policy", what the gain of the whole policy must exceed. Default 0.
        mode: "swap-split" (default): each half of the groups proposes, and the other half
            certifies. "in-sample": the whole log does both, which needs `states`. "policy":
            one bound for the policy as a whole, on groups it was not learned from; all of it is
            issued or nothing. A learner is fitted to half of the groups for that, and a policy
            needs a log that it has never seen. Rules keep the halves they were made in, so
            `mode`, `states`, `markov`, `split`, `horizon` and `seed` are not for them.
        grade: "proved" (default): exact for samples of any size. "large-sample": a studentised
            test, by step-down max-t for all suggestions at once. It counts first visits and has
            more power than a proof from first visits; it is an approximation, and the certificate
            says so. In mode "policy", "proved" needs the probabilities of actions (the log's
            `propensity`), "large-sample" estimates them.
        states: For "in-sample": the list of all states that a suggestion could be made in. Naming
            them declares that this list, gamma, n_min and value_range were fixed without looking
            at returns. States that are not named get no suggestion; named states that do not
            occur in the log count all the same. Default None.
        markov: For labelled states: True (default) claims that whenever a state is visited, what
            is done and what comes next depend on the past through the state alone. All visits of
            an episode then count (of a large-sample test, first visits), and the gain is bounded.
            The log is asked first, as `dprl.markov_check` does; where it refutes the claim, the
            certificate says so and is the one of False, which claims nothing of the kind: a group's
            first visit of a state counts, the claim is about first visits, and no gain is stated.
        split: bool (episodes,), true for the episodes of the half that proposes first. Default
            None: half of the groups, drawn with `seed`.
        horizon: The largest number of steps a group can have, known beforehand; it makes
            "in-sample" sharper. Default None: not known.
        seed: Seed of the split, a whole number from 0. Default 0.
        confounding: Γ, from 1 to 20: only suggestions are issued that remain proved although an
            unrecorded cause moved the odds of treatment, the state being equal, by up to this
            factor. Default 1: the state is taken to hold all that decisions were based on.
        avoid: For labelled states with three actions or more: whether the gate may also say what
            *not* to do, where one action is surely worse than the others together and no single
            one of them is surely better. Such a suggestion need not be in a policy that is gated;
            it shares δ with the others. Only where DPRL proposes. Default True.
        cluster: For labelled states: where to count, as in `dprl.DPRLDiscrete.fit`. The
            certificate is the same, to the last digit. Default None: this process.
        gamma: Discount in (0, 1], for a proposal that has none of its own. Default None: its own.

    Returns:
        The gated policy, with its `Certificate` in `.certificate`. For labelled states a `Policy`,
        for features a `CellPolicy`, for rules a `RulePolicy`.

    Raises:
        ParameterError: An argument is outside its range, the proposal is neither a learner nor a
            policy, or it counts a trajectory more than once.
        PolicyError: The log shares groups with the log that rules were learned from and is not the
            same log, or the halves in which they were made cannot be made again.
        LogError: The log has cut episodes and the learner does not say how to treat them, a return
            lies outside value_range, or one half of the log is empty.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(4000, seed=0)
        >>> learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
        >>> gated = gate(learner, log, delta=0.05, value_range=(0, 1))
        >>> gated.certificate
        <Certificate: 2 suggestions, δ = 0.05>
        >>> gated.act(["fever", "stable"])
        ['antibiotics', DEFER]
    """
    check_choice("mode", mode, tuple(GATES))
    given, proposal = proposal, _proposing(proposal, gamma)
    if isinstance(log, SiteEvidence) and value_range is None:
        value_range = log.schema.value_range
    outcome = log.facts.outcome if hasattr(log, "facts") else UNDECLARED
    settings = GateSettings(
        delta, outcome.inside(value_range), margin, horizon, confounding, grade, mode, states,
        markov, split, seed, avoid,
    )  # fmt: skip
    if isinstance(log, SiteEvidence):
        settings = check_sites(log, learner_of(proposal), settings)
    else:
        log = _encoded(given, log)
        if grade == "proved":
            refuse_own_medians(given, log)
            refuse_completed(log)
    gated: TablePolicy | CellPolicy | RulePolicy
    if cluster is None or isinstance(log, SiteEvidence):  # counted already
        gated = GATES[mode](proposal, log, settings)
    else:
        with on_cluster(log, cluster) as parts:
            gated = GATES[mode](proposal, parts, settings)
    return gated


def gate_suggestions(
    proposal: Any, log: Log | LogInParts | SiteEvidence, settings: GateSettings
) -> TablePolicy | CellPolicy | RulePolicy:
    """The certified part of a proposal, each suggestion by itself: of states, cells or rules."""
    if isinstance(proposal, Rules) or getattr(proposal, "changes_by", "") == "rule":
        settings.check_rules()
        return _gate_rules(proposal, in_memory(log, "a gate over rules"), settings)
    if isinstance(proposal, Proposer):
        log = in_memory(log, "a gate of another learner than DPRL")
        if log.state is None:
            raise ParameterError(
                f"{proposal.name} is certified over labelled states, and these are features.",
                do=worded("Label the states, or use {dprl.DPRLContinuous}."),
            )
    learner = learner_of(proposal)
    if learner.visits != "first":
        raise ParameterError(
            "counting every visit carries no certificate: visits of one trajectory are not "
            "independent.",
            do=worded("Fit with {visits='first'}."),
        )
    if not isinstance(log, LogInParts | SiteEvidence):
        check_log(log)
    if not isinstance(log, SiteEvidence):
        check_cut(learner.cut, log)
    settings.check_states()
    if isinstance(learner, DPRLContinuous):
        settings.check_cells()
        return _gate_cells(learner, in_memory(log, "a gate over features"), settings)
    source: Source = as_source(log)
    if isinstance(proposal, Proposer):
        policy = None if hasattr(proposal.given, "fit") else proposal.given
        origin = _origin(policy, source)
        return gate_states(learner, source, settings, policy, origin, proposal)
    policy = None if isinstance(proposal, DPRLDiscrete) else cast("Policy", proposal)
    return gate_states(learner, source, settings, policy, _origin(proposal, source))


def _gate_cells(learner: DPRLContinuous, log: Log, settings: GateSettings) -> CellPolicy:
    """The certified policy over cells of features."""
    note = settings.split_note
    if learner.lam is not None:
        note = sentences(
            note,
            say(
                "The certificate compares whole returns: the credit of the proposal (λ = "
                "{lam:g}) is not used.",
                lam=learner.lam,
            ),
        )
        learner = replace(learner, lam=None)
    record = LogRecord.of(log, learner.cut)
    universe(record, log.n_states, learner.n_min, settings.horizon)  # the horizon is checked
    return gate_cells(learner, log, settings, record, note)


def _gate_rules(proposal: Any, log: Log, settings: GateSettings) -> RulePolicy:
    """The certified part of rules, which are fitted first where a learner is given."""
    own = proposal.settings() if isinstance(proposal, Rules) else proposal.parameters
    check_cut(own.get("cut"), log)
    policy = proposal.fit(log) if isinstance(proposal, Rules) else proposal
    return gate_rules(policy, log, settings, _origin(policy, log))


register(SWAP_SPLIT, gate_suggestions)
register(IN_SAMPLE, gate_suggestions)
register(WHOLE_POLICY, gate_policy)


def _origin(proposal: Any, log: Source | Log) -> dict[str, Any]:
    """Where the proposal came from, if that was another log: the gated policy has seen both."""
    facts = getattr(proposal, "provenance", {})
    if not facts or isinstance(log, SiteEvidence) or facts.get("log") == log.digest():
        return {}
    origin = {k: facts.get(k) for k in ("log", "sample", "sweep", "proposed")}
    origin |= {name: facts[name] for name in ("public", "n_sites") if facts.get(name)}
    return {"proposed": sealed_origin(origin)}


OWN = ("DPRLDiscrete", "DPRLContinuous", "Rules")
"""Learners whose own rule proposes."""


def _proposing(proposal: Any, gamma: float | None) -> Any:
    """The proposal; another learner's, or its policy, with the rule that suggestions must pass."""
    settings = dict(getattr(proposal, "parameters", {}))
    name = str(settings.get("learner", type(proposal).__name__))
    learns, acts = hasattr(proposal, "fit"), hasattr(proposal, "at") and hasattr(proposal, "space")
    if not learns and not acts:
        raise ParameterError(
            f"a gate certifies what a learner or a policy suggests; a {name} is neither.",
            do="A learner has fit(log), which returns a policy.",
        )
    own = getattr(proposal, "gamma", settings.get("gamma"))
    if own is not None and gamma not in (None, own):
        raise ParameterError(
            f"gamma = {gamma!r}, and that of {name} is {own!r}.", do="Leave it out."
        )
    of_features = getattr(proposal, "changes_by", "state") != "state"
    if of_features or (name in OWN and (name == type(proposal).__name__ or acts)):
        return proposal
    gamma = gamma if own is None else own
    if gamma is None:
        raise ParameterError(
            f"{name} has no discount, and returns need one.",
            do=worded("Say {gamma=1.0}."),
        )
    n_min = getattr(proposal, "n_min", settings.get("n_min"))
    rule = DPRLDiscrete(
        n_min=OTHERS_N_MIN if n_min is None else n_min,
        gamma=float(gamma),
        cut=getattr(proposal, "cut", settings.get("cut")),
    )
    return Proposer(proposal, rule, name)


def learner_of(proposal: Any) -> Learner:
    """The learner whose rule a proposal has: itself, or one with the settings of the policy."""
    if isinstance(proposal, DPRLDiscrete | DPRLContinuous):
        return proposal
    if isinstance(proposal, Proposer):
        return proposal.rule
    settings = dict(proposal.parameters)
    name = settings.pop("learner", None)
    if name not in OWN:
        raise ParameterError(
            f"over features a gate is for DPRL's learners and policies; got one of {name!r}.",
            do=worded("Other policies can be judged with {dprl.evaluate}."),
        )
    settings["n_min"] = math.inf if settings["n_min"] is None else settings["n_min"]
    settings.setdefault("segments", "end")  # what policies of 0.2.0 do not say
    kind: type[Learner] = DPRLDiscrete
    if name == "DPRLContinuous":
        kind = DPRLContinuous
        metric = dict(settings["metric"])
        if metric["scale"] == "given":
            metric["scale"] = proposal.scale.tolist()
        settings["metric"] = Metric(**metric)
        settings["visits"] = proposal.visits
    own = {field.name for field in fields(kind)}
    return kind(**{k: v for k, v in settings.items() if k in own})


def _encoded(proposal: Any, log: Any) -> Any:
    """The log with states as the learner takes them, or as the policy was fitted to."""
    if not isinstance(log, Log):
        return log  # which is refused in a moment
    if isinstance(proposal, DPRLContinuous):
        return with_indicators(log)
    if hasattr(proposal, "fit") and not isinstance(proposal, Rules):
        return labelled(log)
    # Of rules the labels are the policy's; what is made of states and cells has those of the log.
    of_rules = getattr(proposal, "changes_by", "") == "rule"
    return like_policy(proposal, log, mixed=of_rules)


def differences_where_it_speaks(policy: Any, log: Log) -> Balance | None:
    """Compare those who took the suggestions of a policy with the others, at all its suggestions.

    In labelled states a confirmation of usual practice counts as a suggestion: a gate claims that
    it improves.

    Args:
        policy: A policy that can defer.
        log: The log that certified it.
    """
    if getattr(log, "also", None) is None:  # logs that are not in memory have no other columns
        return None
    log = like_policy(policy, log).gathered()
    place = {label: code for code, label in enumerate(log.actions)}
    code = np.array([*(place.get(label, -1) for label in policy.actions), -1])
    if policy.changes_by != "state":
        situations = [(one, int(code[one.here.choice[one.s]])) for one in policy.situations(log)]
        return balance(
            log,
            [
                Compared(f"{one.words}: {log.actions[a]}", one.rows, a)
                for one, a in situations
                if a >= 0
            ],
        )
    suggested = suggested_at(policy, log)
    return balance(log, changes_in(log, np.flatnonzero(suggested >= 0), suggested, log.actions))


def _to_compare(policy: Any, log: Any) -> str:
    """What hiding a recorded column would be, beside Γ*; "" where there is no Γ* or no column."""
    rows = policy.certificate.rows
    if not isinstance(log, Log) or not rows or "gamma_star" not in rows[0]:
        return ""
    log = like_policy(policy, log).gathered()
    suggested = suggested_at(policy, log)
    at = np.flatnonzero(suggested >= 0)
    measured = hidden_columns(log, at, suggested[at], seed=0)
    return yardstick_words(
        [m for m in measured if log.features is not None or m["where"] == "table"]
    )


def suggested_at(policy: Any, log: Log) -> Ints:
    """int64 (N,): the code, among the log's actions, of what a policy suggests; -1: nothing."""
    place = {label: code for code, label in enumerate(log.actions)}
    code = np.array([*(place.get(label, -1) for label in policy.actions), -1])
    states, row = policy.space.of_log(log)
    return np.asarray(code[policy.at(states).named][row])
