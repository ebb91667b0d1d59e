r"""The gate: issue a suggestion only where the log proves that it improves on usual practice.

A pair (s, a) is issued where the log proves that its advantage A(s, a) = Q(s, a) - V(s) over usual
practice is above 0: where the e-value of "no benefit" reaches 1/α, with α small enough for all
pairs at once. Then, with probability 1 - δ, *every issued suggestion is a true improvement*, so by
the performance difference lemma ρ(π) >= ρ(b): no horizon factor, no model, no behaviour policy.

* ``markov=True`` (default) claims that what follows a visit of a state depends on the past through
  the state alone. The evidence is then an e-process over all visits of a state
  (`dprl.certificate._eprocess`), and the gain of exactly what is issued is bounded
  (`dprl.certificate._issued_gain`). ``markov=False`` counts first visits and claims less.
* ``mode="swap-split"`` (default). Groups are split in two; one half proposes K pairs (the learner's
  rule at half of n_min, and an advantage that is surely above 0), the other half certifies them;
  then the reverse.
* ``mode="in-sample"``. All of the log certifies, at a level that is divided among C̄ pairs: all
  pairs of the states that were declared, or ⌊N H/n_min⌋ where a horizon H is known (pairs then need
  n_min first visits that took them). Valid only if these states, γ, n_min and the range were fixed
  without looking at returns: the user must name the states.

* Where the log records with which probabilities actions were taken, nothing is issued where they
  differ within a state, and p is known where they do not (`dprl.evidence._lots`).
* ``mode="policy"``. One bound for a policy as a whole (`dprl.certificate._whole_policy`).
* ``grade="large-sample"``. Tests that are right for large samples, in place of e-values
  (`dprl.certificate._large_sample`), by first visits.

Labelled states are in `dprl.certificate._gate_labels` (proved) and `dprl.certificate._gate_large`.
Over features the gate decides per cell (`dprl.certificate._cells`), and over the rules of
`dprl.Rules` per proposed rule (`dprl.certificate._rules`).

The issued pairs must also pass the learner's own rule on the whole log, so a gated policy makes a
part of the suggestions of the policy before the gate, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_choice, check_flag, check_range, check_seed
from dprl._core.words import api, argument, either, option, say, sentences, worded
from dprl.certificate._cells import gate_cells
from dprl.certificate._differences import warn_of_differences
from dprl.certificate._gate_checks import (
    check_confounding,
    check_for_policy,
    check_for_rules,
    refuse_own_medians,
    same_pairs,
)
from dprl.certificate._gate_labels import declared_states, gate_labels
from dprl.certificate._gate_large import gate_large
from dprl.certificate._gate_parts import PartsAsLog, check_gate_of_parts, gate_parts
from dprl.certificate._gate_sites import gate_sites
from dprl.certificate._gate_steps import Asked, Learner
from dprl.certificate._rules import gate_rules
from dprl.certificate._whole_policy import gate_policy
from dprl.errors import LogError, ParameterError
from dprl.evidence._site_evidence import SiteEvidence
from dprl.evidence.neighbors.metric import Metric
from dprl.learners.confident import Confident
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.discrete import DPRLDiscrete
from dprl.learners.rules import Rules
from dprl.logs._censoring import check_claim
from dprl.logs._encoding import encoded_like, labelled, with_indicators
from dprl.logs._overlap import sealed_origin
from dprl.logs.log import Label, Log, check_log
from dprl.logs.parts import LogInParts
from dprl.policies._familiar import check_familiar
from dprl.policies._protocol import Policy
from dprl.policies.cells import CellPolicy
from dprl.policies.rules import RulePolicy
from dprl.policies.table import TablePolicy

__all__ = ["gate"]

HONEST = worded(
    "Follow every episode for a fixed time, before which none was cut ({follow_up}), or say {cut} "
    "or {cut2} when learning; the certificate says which, and what it assumes.",
    follow_up=option("follow_up"),
    cut=option("cut", "terminal"),
    cut2=option("cut", "drop-unrelated"),
)
"""What to do about cut episodes where something is to be proved."""

Bools = NDArray[np.bool_]
Mode = Literal["swap-split", "in-sample", "policy"]
Grade = Literal["proved", "large-sample"]


@warn_of_differences
def gate(
    proposal: Policy | DPRLDiscrete | DPRLContinuous | Confident | Rules,
    log: Log | SiteEvidence | LogInParts,
    *,
    delta: float = 0.05,
    value_range: tuple[float, float] | None = None,
    margin: float = 0.0,
    mode: Mode = "swap-split",
    grade: Grade = "proved",
    states: Sequence[Label] | None = None,
    markov: bool = True,
    split: Sequence[bool] | Bools | None = None,
    horizon: int | None = None,
    seed: int = 0,
    confounding: float = 1.0,
) -> TablePolicy | CellPolicy | RulePolicy:
    """The part of a policy that this log proves to improve on usual practice.

    Args:
        proposal: `dprl.DPRLDiscrete`, `dprl.DPRLContinuous` or `dprl.Rules`, or a policy that one
            of them has fitted. (`dprl.Confident` states a bound of its own; it and its policies
            are for mode "policy" only.) For labelled states
            the gated policy keeps some of its suggestions. For `dprl.DPRLContinuous` only its
            settings are used: the features are grouped into cells, and each cell is decided anew.
            Of `dprl.Rules` all rules that one half proposed are tested, on the other half.
        log: The log to certify with; for a policy, usually the log it was fitted to. The part of
            the log that proposes a suggestion and the part that certifies it are kept apart. For
            rules it is exactly the log they were fitted to, or groups they have never seen, all of
            which then certify. Or a log in parts (`dprl.scan`), with markov=False. Or what sites
            counted of their logs (`dprl.site_evidence`), with
            mode="in-sample" and markov=False: states and range are those of their schema.
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
            `dprl.markov_check` can refute it. False claims nothing of the kind: a group's first
            visit of a state counts, the claim is about first visits, and no gain is stated.
        split: bool (episodes,), true for the episodes of the half that proposes first. Default
            None: half of the groups, drawn with `seed`.
        horizon: The largest number of steps a group can have, known beforehand; it makes
            "in-sample" sharper. Default None: not known.
        seed: Seed of the split, a whole number from 0. Default 0.
        confounding: Γ, from 1 to 20: only suggestions are issued that remain proved although an
            unrecorded cause moved the odds of treatment, the state being equal, by up to this
            factor. Default 1: the state is taken to hold all that decisions were based on.

    Returns:
        The gated policy, with its `Certificate` in `.certificate`. For labelled states a `Policy`,
        for features a `CellPolicy`, for rules a `RulePolicy`.

    Raises:
        ParameterError: An argument is outside its range, or the proposal is not from a learner of
            dprl that counts each trajectory once.
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
    if isinstance(log, SiteEvidence):
        return gate_sites(
            _learner(proposal), proposal, log, mode=mode, grade=grade, states=states, markov=markov,
            split=split, asked=Asked(
                delta, log.schema.value_range if value_range is None else check_range(value_range),
                margin, horizon, confounding, grade,
            ),
        )  # fmt: skip
    check_choice("mode", mode, ("swap-split", "in-sample", "policy"))
    check_choice("grade", grade, ("proved", "large-sample"))
    check_flag("markov", markov)
    ends = None if value_range is None and grade != "proved" else check_range(value_range)
    asked = Asked(delta, ends, margin, horizon, confounding, grade)
    check_confounding(mode, asked)
    seed = check_seed(seed)
    if isinstance(log, LogInParts):
        own = check_gate_of_parts(proposal, mode=mode, grade=grade, markov=markov, split=split)
        _check_counting(own)
        as_log = cast("Log", PartsAsLog(log, own.cut, log.n_groups))
        _check_cut(own.cut, as_log)
        return gate_parts(own, log, asked, _sides(as_log, None, seed), (_split_note(None, seed),))
    log = _encoded(proposal, log)
    if grade == "proved":
        refuse_own_medians(proposal, log)
    if mode == "policy":
        check_log(log)
        check_for_policy(proposal, states, markov, split, horizon)
        settings = getattr(proposal, "parameters", {})
        _check_cut(getattr(proposal, "cut", settings.get("cut")), log)
        return gate_policy(
            proposal, log, asked, lambda: _sides(log, split, seed), _split_note(split, seed)
        )
    if isinstance(proposal, Rules) or getattr(proposal, "changes_by", "") == "rule":
        check_for_rules(mode, states, markov, split, horizon)
        return _gate_rules(proposal, log, asked)
    learner = _learner(proposal)
    _check_counting(learner)
    check_log(log)
    _check_cut(learner.cut, log)
    if mode == "in-sample" and states is None:
        raise ParameterError(
            worded(
                "{mode} certifies with the returns that proposed.", mode=option("mode", "in-sample")
            ),
            do=worded(
                "Only if the list of states, gamma, {n_min} and {value_range} were fixed without "
                "looking at returns: name the states, {choice}. Otherwise use {mode}.",
                n_min=argument("n_min"),
                value_range=argument("value_range"),
                choice=either("states=[...]", "--states"),
                mode=option("mode", "swap-split"),
            ),
        )
    if mode == "swap-split" and states is not None:
        raise ParameterError(
            worded("{mode} takes no list of states.", mode=option("mode", "swap-split")),
            do=worded(
                "Leave states out, or choose {mode} if they were fixed beforehand.",
                mode=option("mode", "in-sample"),
            ),
        )
    if mode == "in-sample" and grade != "proved":
        raise ParameterError(
            "a large-sample test of suggestions that the same returns proposed is worth nothing.",
            worded(
                "{mode}, {grade}",
                mode=option("mode", "in-sample"),
                grade=option("grade", "large-sample"),
            ),
            worded("Use {mode}.", mode=option("mode", "swap-split")),
        )
    if mode == "in-sample" and split is not None:
        raise ParameterError(
            worded("{mode} has no split.", mode=option("mode", "in-sample")), do="Leave split out."
        )
    split_note = _split_note(split, seed)
    if isinstance(learner, DPRLContinuous):
        if mode == "in-sample":
            raise ParameterError(
                "cells of features are made from the data: there is no in-sample certificate.",
                do=worded("Use {mode}.", mode=option("mode", "swap-split")),
            )
        if not markov:
            raise ParameterError(
                "a gate over features claims the Markov property for its cells.",
                do="Leave markov out; for first visits alone use labelled states.",
            )
        if learner.lam is not None:
            split_note = sentences(
                split_note,
                say(
                    "The certificate compares whole returns: the credit of the proposal (λ = "
                    "{lam:g}) is not used.",
                    lam=learner.lam,
                ),
            )
            learner = replace(learner, lam=None)
        _universe(log, log.n_states, learner.n_min, asked.horizon)  # the horizon is checked
        return gate_cells(learner, log, asked, _sides(log, split, seed), split_note)
    declared = None if states is None else declared_states(states, log)
    tested = _universe(
        log, log.n_states if declared is None else declared.n, learner.n_min, asked.horizon
    )
    permitted = None
    if not isinstance(proposal, DPRLDiscrete | DPRLContinuous | Confident):
        permitted = same_pairs(proposal, log)
        check_familiar(proposal, log)
    if grade == "large-sample":
        return gate_large(
            learner, log, asked, markov=markov, sides=_sides(log, split, seed),
            permitted=permitted, origin=_origin(proposal, log), notes=(split_note,),
        )  # fmt: skip
    sides = None if declared is not None and len(log.groups) < 2 else _sides(log, split, seed)
    if declared is not None:
        split_note = say(
            "Which states are met was bounded by halves of the groups, split with seed {n}.", n=seed
        )
    return gate_labels(
        learner,
        log,
        asked,
        markov=markov,
        sides=sides,
        declared=declared,
        tested=tested,
        permitted=permitted,
        origin=_origin(proposal, log),
        notes=(split_note,) if markov or declared is None else (),
    )


def _gate_rules(proposal: Any, log: Log, asked: Asked) -> RulePolicy:
    """The certified part of rules, which are fitted first where a learner is given."""
    check_log(log)
    settings = proposal.settings() if isinstance(proposal, Rules) else proposal.parameters
    _check_cut(settings.get("cut"), log)
    policy = proposal.fit(log) if isinstance(proposal, Rules) else proposal
    return gate_rules(policy, log, asked, _origin(policy, log))


def _split_note(split: Any, seed: int) -> str:
    if split is not None:
        return say("The split of the groups was given.")
    return say("Groups were split in two with seed {n}.", n=seed)


def _sides(log: Log, split: Sequence[bool] | Bools | None, seed: int) -> Bools:
    """bool (groups,): true for the groups of the half that proposes first."""
    n = len(log.groups)
    if split is None:
        if n < 2:
            raise LogError(
                f"a log of {n} group cannot propose with one half and certify with the other.",
                do="Read more of them.",
            )
        sides = np.zeros(n, bool)
        sides[np.random.default_rng(seed).permutation(n)[: n // 2]] = True
        return sides
    given = np.asarray(split)
    if given.dtype != bool or given.shape != (log.n_episodes,):
        raise ParameterError(
            f"split needs true or false for each of {log.n_episodes:,} episodes; "
            f"got {given.dtype}{given.shape}."
        )
    halves = np.zeros((n, 2), np.int64)
    np.add.at(halves, (log.group, given.astype(np.int64)), 1)
    torn = np.flatnonzero((halves > 0).all(axis=1))
    if len(torn):
        raise ParameterError(
            f"{len(torn):,} of {n:,} groups straddle the split.",
            f"group {log.groups[torn[0]]!r}",
            "What proposes and what certifies must be independent: keep groups whole.",
        )
    if given.all() or not given.any():
        raise ParameterError("split puts every episode on one side.")
    return np.asarray(halves[:, 1] > 0)


def _universe(log: Log, states: int, n_min: float, horizon: int | None) -> int:
    """C̄: no more pairs than this can have n_min trajectories behind them."""
    pairs = states * log.n_actions
    if horizon is None or math.isinf(n_min):
        return pairs
    if int(np.bincount(log.group, weights=log.lengths).max()) > horizon:
        raise ParameterError(
            f"a group of this log has more than horizon = {horizon:,} steps.",
            do="horizon must hold for every group there can be.",
        )
    return max(1, min(pairs, len(log.groups) * horizon // int(n_min)))


def _origin(proposal: Any, log: Log) -> dict[str, Any]:
    """Where the proposal came from, if that was another log: the gated policy has seen both."""
    facts = getattr(proposal, "provenance", {})
    if not facts or facts.get("log") == log.digest():
        return {}
    origin = {k: facts.get(k) for k in ("log", "sample", "sweep", "proposed")}
    origin |= {name: facts[name] for name in ("public", "n_sites") if facts.get(name)}
    return {"proposed": sealed_origin(origin)}


def _learner(proposal: Any) -> Learner:
    """The proposal, if it is a learner; else a learner with the settings of the policy."""
    if isinstance(proposal, DPRLDiscrete | DPRLContinuous):
        return proposal
    settings = dict(getattr(proposal, "parameters", {}))
    name = settings.pop("learner", None)
    if name == "Confident" or type(proposal).__name__ == "Confident":
        raise ParameterError(
            "a gate proves what whole returns show; Confident chooses in a model, and its policy "
            "states its own bound (policy.stated).",
            f"a {type(proposal).__name__}",
            worded(
                "For a certificate fit {learner} and gate that; judge this policy with {command}.",
                learner=api("DPRLDiscrete"),
                command=api("dprl.evaluate"),
            ),
        )
    if name not in ("DPRLDiscrete", "DPRLContinuous"):
        raise ParameterError(
            f"a gate is for DPRL's learners and policies; got {name or type(proposal).__name__}.",
            do=worded(
                "Rivals' policies can be judged with {command}.", command=api("dprl.evaluate")
            ),
        )
    settings["n_min"] = math.inf if settings["n_min"] is None else settings["n_min"]
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


def _check_counting(learner: Learner) -> None:
    counting = learner.visits
    if counting != "first":
        raise ParameterError(
            "counting every visit carries no certificate: visits of one trajectory are not "
            "independent.",
            do=worded("Fit with {visits}.", visits=option("visits", "first")),
        )


def _check_cut(treatment: str | None, log: Log) -> None:
    cut = len(log.cut_episodes)
    if cut and treatment is None:
        raise LogError(
            f"{cut:,} of {log.n_episodes:,} episodes were cut, and no treatment is stated.",
            f"episode {log.episodes[log.cut_episodes[0]]!r}",
            HONEST,
        )
    if cut and treatment in ("bootstrap", "ipcw"):
        how = {"bootstrap": "bootstrapped: their returns share estimates and are not independent.",
               "ipcw": "weighted: weights are estimates, and no range of weighted returns is known "
               "beforehand, so nothing can be proved from them."}  # fmt: skip
        raise LogError(
            f"{cut:,} of {log.n_episodes:,} episodes were cut and {how[treatment]}",
            f"episode {log.episodes[log.cut_episodes[0]]!r}",
            HONEST,
        )
    check_claim(treatment, log, "a certificate")


def _encoded(proposal: Any, log: Log) -> Log:
    """The log with states as the learner takes them, or as the policy was fitted to."""
    if not isinstance(log, Log):
        return log  # which is refused in a moment
    if isinstance(proposal, DPRLContinuous):
        return with_indicators(log)
    if isinstance(proposal, DPRLDiscrete | Confident):
        return labelled(log)
    return encoded_like(log, getattr(proposal, "provenance", {}).get("columns", {}))
