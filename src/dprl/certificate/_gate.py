r"""The gate: issue a suggestion only where the log proves that it improves on usual practice.

    x = returns of first visits of s where a was taken      y = where it was not
    A(s,a) = Q(s,a) - V(s) = (1 - p)(E x - E y),  p = π_b(a|s)

so the sign of the advantage is the sign of E x - E y. A pair is issued when the e-value of "no
benefit" (`dprl.certificate._evalue`) reaches 1/α, with α small enough for all pairs at once.
Then, with probability 1 - δ, *every issued suggestion is a true improvement*, so by the performance
difference lemma ρ(π) >= ρ(b): no horizon factor, no model, no behaviour policy. Any choice among
issued pairs keeps that, so the learner plans again inside the gated set.

The level δ has three parts: .9 δ for the differences, .05 δ for p (for bounds on the advantage
itself) and .05 δ for how often suggestions are met (`dprl.certificate._reach`).

* ``mode="swap-split"`` (default). Groups are split in two; one half proposes K pairs (the learner's
  rule at half of n_min, and an uncorrected Welch bound above 0), the other certifies them at
  α = .9 δ/2/K; then the reverse; the union is issued.
* ``mode="in-sample"``. All of the log at α = .9 δ/C̄, C̄ = |S||A|, or ⌊N H/n_min⌋ where a horizon
  H is known (pairs then need n_min first visits that took them). Valid only if
  states, γ, n_min and the range were fixed without looking at returns: the user must say so.

Over features the gate decides per cell (`dprl.certificate._cells`), and over the rules of
`dprl.Rules` per proposed rule (`dprl.certificate._rules`).

The issued pairs must also pass the learner's own rule on the whole log, so a gated policy makes a
part of the suggestions of the policy before the gate, and no others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_choice, check_flag, check_range, check_seed
from dprl.certificate._cells import gate_cells
from dprl.certificate._differences import warn_of_differences
from dprl.certificate._gate_steps import (
    REACH,
    Asked,
    Learner,
    best_low,
    certify,
    finish,
    half_of,
    propose,
)
from dprl.certificate._reach import certified_gain, nats_of_sets
from dprl.certificate._rules import gate_rules
from dprl.errors import LogError, ParameterError
from dprl.evidence.decision_points import allowed
from dprl.evidence.neighbors.metric import Metric
from dprl.evidence.tabular import availability, count, evidence
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.discrete import DPRLDiscrete
from dprl.learners.rules import Rules
from dprl.logs._censoring import check_claim, settle
from dprl.logs._overlap import sealed_origin
from dprl.logs.log import Log, check_log
from dprl.policies._base import provenance_of
from dprl.policies._familiar import check_familiar
from dprl.policies._protocol import Policy
from dprl.policies.cells import CellPolicy
from dprl.policies.rules import RulePolicy
from dprl.policies.table import TablePolicy

__all__ = ["gate"]

HONEST = (
    "Follow every episode for a fixed time, before which none was cut (follow_up=, --follow-up), "
    "or say cut='terminal' or cut='drop-unrelated' (--cut) when learning; the certificate says "
    "which, and what it assumes."
)
"""What to do about cut episodes where something is to be proved."""

Bools = NDArray[np.bool_]
Mode = Literal["swap-split", "in-sample"]


@warn_of_differences
def gate(
    proposal: Policy | DPRLDiscrete | DPRLContinuous | Rules,
    log: Log,
    *,
    delta: float = 0.05,
    value_range: tuple[float, float] | None = None,
    margin: float = 0.0,
    mode: Mode = "swap-split",
    states_fixed: bool = False,
    split: Sequence[bool] | Bools | None = None,
    horizon: int | None = None,
    seed: int = 0,
    confounding: float = 1.0,
) -> TablePolicy | CellPolicy | RulePolicy:
    """The part of a policy that this log proves to improve on usual practice.

    Args:
        proposal: `dprl.DPRLDiscrete`, `dprl.DPRLContinuous` or `dprl.Rules`, or a policy that one
            of them has fitted. (`dprl.Confident` states a bound of its own.) For labelled states
            the gated policy keeps some of its suggestions. For `dprl.DPRLContinuous` only its
            settings are used: the features are grouped into cells, and each cell is decided anew.
            Of `dprl.Rules` all rules that one half proposed are tested, on the other half.
        log: The log to certify with; for a policy, usually the log it was fitted to. The part of
            the log that proposes a suggestion and the part that certifies it are kept apart. For
            rules it is exactly the log they were fitted to, or groups they have never seen, all of
            which then certify.
        delta: Probability with which the claim may fail, in (0, 1). Default 0.05.
        value_range: (lowest, highest) return there can be, from what is known about rewards, never
            taken from the log. Required.
        margin: The advantage that a suggestion must exceed, in units of returns, at least 0.
            Default 0.
        mode: "swap-split" (default): each half of the groups proposes, and the other half
            certifies. "in-sample": the whole log does both, which needs `states_fixed`. Rules
            keep the halves they were made in, so `mode`, `split`, `horizon` and `seed` are not for
            them.
        states_fixed: True declares that states, gamma, n_min and value_range were fixed without
            looking at returns. Default False.
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
    asked = Asked(delta, check_range(value_range), margin, horizon, confounding)
    seed = check_seed(seed)
    if isinstance(proposal, Rules) or getattr(proposal, "changes_by", "") == "rule":
        _check_for_rules(mode, states_fixed, split, horizon)
        return _gate_rules(proposal, log, asked)
    learner = _learner(proposal)
    _check_counting(learner)
    check_log(log)
    _check_cut(learner.cut, log)
    check_choice("mode", mode, ("swap-split", "in-sample"))
    check_flag("states_fixed", states_fixed)
    if mode == "in-sample" and not states_fixed:
        raise ParameterError(
            "mode='in-sample' certifies with the returns that proposed.",
            do="Only if states, gamma, n_min and value_range were fixed without looking at "
            "returns: say states_fixed=True. Otherwise use mode='swap-split'.",
        )
    if mode == "in-sample" and split is not None:
        raise ParameterError("mode='in-sample' has no split.", do="Leave split out.")
    tested = _universe(log, learner.n_min, asked.horizon)
    split_note = (
        "The split of the groups was given."
        if split is not None
        else f"Groups were split in two with seed {seed}."
    )
    if isinstance(learner, DPRLContinuous):
        if mode == "in-sample":
            raise ParameterError(
                "cells of features are made from the data: there is no in-sample certificate.",
                do="Use mode='swap-split'.",
            )
        if learner.lam is not None:
            split_note += (
                f" The certificate compares whole returns: the credit of the proposal (λ = "
                f"{learner.lam:g}) is not used."
            )
            learner = replace(learner, lam=None)
        return gate_cells(learner, log, asked, _sides(log, split, seed), split_note)
    settled = settle(log, learner.gamma, learner.cut).gathered()
    available = availability(log)
    whole, occurrences = count(settled, learner.gamma)
    pairs = allowed(whole, learner.n_min, contrast=learner.contrast, available=available)
    if not isinstance(proposal, DPRLDiscrete | DPRLContinuous):
        pairs &= _same_pairs(proposal, log)
        check_familiar(proposal, log)
    if mode == "in-sample":
        wanted = pairs
        if asked.horizon is not None:  # C̄ counts first visits, which returns cannot have moved
            wanted = pairs & (whole.took.n >= learner.n_min)
        proofs = [certify(settled, whole, wanted, learner.gamma, asked, tested, 1.0)]
    else:
        sides = _sides(log, split, seed)
        halves = [half_of(settled, log, sides, side) for side in (True, False)]
        if not all(half.n_episodes for half in halves):
            raise LogError(
                "no episode is left on one side of the split.", do="Read more, or drop fewer."
            )
        seen = [evidence(half, learner.gamma) for half in halves]
        proofs = []
        for one, other in ((0, 1), (1, 0)):
            wanted = propose(seen[one], learner, availability(halves[one]))
            tested = int(wanted.sum())
            proofs.append(
                certify(
                    halves[other],
                    seen[other],
                    wanted,
                    learner.gamma,
                    asked,
                    tested,
                    0.5,
                    halves[one],
                )
            )
    pairs &= np.logical_or.reduce([proof.pairs for proof in proofs])
    choice, planned = learner.choose(settled, whole, occurrences, pairs)
    policy = TablePolicy.of(
        whole,
        choice=choice,
        allowed=pairs,
        planned=planned,
        steps=np.bincount(settled.codes(), minlength=log.n_states),
        parameters=learner.settings(),
        provenance={**provenance_of(log, settled), **_origin(proposal, log)},
    )
    level = REACH * delta
    nats = nats_of_sets(log.n_states, int((choice >= 0).sum()), log.n_actions, level)
    gain = certified_gain(settled, choice, best_low(proofs, choice), learner.gamma, nats)
    notes = () if mode == "in-sample" else (split_note,)
    return finish(policy, proofs, learner, log, settled, asked, mode, gain, notes)


def _gate_rules(proposal: Any, log: Log, asked: Asked) -> RulePolicy:
    """The certified part of rules, which are fitted first where a learner is given."""
    check_log(log)
    settings = proposal.settings() if isinstance(proposal, Rules) else proposal.parameters
    _check_cut(settings.get("cut"), log)
    policy = proposal.fit(log) if isinstance(proposal, Rules) else proposal
    return gate_rules(policy, log, asked, _origin(policy, log))


def _check_for_rules(mode: str, states_fixed: bool, split: Any, horizon: int | None) -> None:
    """Refuse settings that rules have no use for."""
    check_choice("mode", mode, ("swap-split", "in-sample"))
    if mode == "in-sample" or states_fixed:
        raise ParameterError(
            "rules are made from the data: there is no in-sample certificate.",
            do="Leave out mode and states_fixed.",
        )
    if split is not None or horizon is not None:
        raise ParameterError(
            f"a gate over rules takes no {'split' if split is not None else 'horizon'}.",
            do="Rules keep the halves they were made in; leave it out.",
        )


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


def _universe(log: Log, n_min: float, horizon: int | None) -> int:
    """C̄: no more pairs than this can have n_min trajectories behind them."""
    pairs = log.n_states * log.n_actions
    if horizon is None or math.isinf(n_min):
        return pairs
    if int(np.bincount(log.group, weights=log.lengths).max()) > horizon:
        raise ParameterError(
            f"a group of this log has more than horizon = {horizon:,} steps.",
            do="horizon must hold for every group there can be.",
        )
    return max(1, min(pairs, len(log.groups) * horizon // int(n_min)))


def _same_pairs(policy: Policy, log: Log) -> Bools:
    """bool (S, A): the policy's allowed pairs, in the order of the log's states and actions."""
    both = {
        "states": (policy.space.states, log.states), "actions": (policy.actions, log.actions),
    }  # fmt: skip
    for name, (ours, theirs) in both.items():
        if set(ours).isdisjoint(theirs):
            raise LogError(
                f"the log and the policy have no {name} in common.",
                f"{ours[0]!r} and {theirs[0]!r}",
                "Read the log as the training log was read.",
            )
    column = {label: i for i, label in enumerate(policy.actions)}
    shared = [j for j, label in enumerate(log.actions) if label in column]
    result = np.zeros((log.n_states, log.n_actions), bool)
    result[:, shared] = policy.at(log.states).allowed[:, [column[log.actions[j]] for j in shared]]
    return result


def _origin(proposal: Any, log: Log) -> dict[str, Any]:
    """Where the proposal came from, if that was another log: the gated policy has seen both."""
    facts = getattr(proposal, "provenance", {})
    if not facts or facts.get("log") == log.digest():
        return {}
    origin = {k: facts.get(k) for k in ("log", "sample", "sweep", "proposed")}
    if facts.get("public"):
        origin["public"] = True
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
            "For a certificate fit DPRLDiscrete (--learner dprl) and gate that; judge this policy "
            "with dprl.evaluate.",
        )
    if name not in ("DPRLDiscrete", "DPRLContinuous"):
        raise ParameterError(
            f"a gate is for DPRL's learners and policies; got {name or type(proposal).__name__}.",
            do="Rivals' policies can be judged with dprl.evaluate.",
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
            do="Fit with visits='first'.",
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
