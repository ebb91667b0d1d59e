r"""The steps of a gate: propose pairs, certify them, and write the certificate.

`dprl.certificate._gate` explains what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import check_delta, check_number, check_whole
from dprl._core.confounding import MOST
from dprl._core.intervals import welch
from dprl._core.words import N_, say
from dprl.certificate._assumptions import Counting, assumptions
from dprl.certificate._confounding import Hidden
from dprl.certificate._evalue import differences, kl_upper
from dprl.certificate._histograms import histograms
from dprl.certificate._large_sample import LEAST, compare_pairs
from dprl.certificate.bounds import dprl_theorem_1, sound_theorem_1
from dprl.evidence._evidence import Evidence
from dprl.evidence._lots import Chances
from dprl.evidence.decision_points import allowed
from dprl.learners.continuous import DPRLContinuous
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.log import Log
from dprl.policies._certificate_parts import several_words
from dprl.policies._decisions import Kind
from dprl.policies._explain import usual_words
from dprl.policies._tabled import Tabled
from dprl.policies.certificate import Certificate

__all__ = ["REACH", "Asked", "Learner", "Proven", "approximation", "at_gamma", "at_gamma_of",
           "best_low",
           "certify", "fair_pairs", "finish", "half_of", "propose", "strength"]  # fmt: skip

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Learner: TypeAlias = DPRLDiscrete | DPRLContinuous
P = TypeVar("P", bound=Tabled)


DIFFERENCES, SHARES, REACH = 0.9, 0.05, 0.05
"""The parts of δ that go to the differences, to p, and to how often suggestions are met."""

ISSUE, ENDS = 0.6, 0.3
"""For large samples the differences need two parts: one to issue pairs, one for lower ends."""


@dataclass(frozen=True)
class Asked:
    """The settings of one call of `gate`.

    Attributes:
        delta: Probability with which the claim may fail.
        value_range: (lowest, highest) return there can be, known beforehand; None where the grade
            does not need it and nobody stated it.
        margin: The advantage that a suggestion must exceed, in units of returns.
        horizon: The largest number of steps a group can have; None where that is not known.
        confounding: Γ, at least 1: by how much an unrecorded cause may move the odds of treatment.
        grade: "proved" or "large-sample".
    """

    delta: float
    value_range: tuple[float, float] | None
    margin: float
    horizon: int | None
    confounding: float = 1.0
    grade: str = "proved"

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_number("margin", self.margin, "[0, infinity)")
        check_number("confounding", self.confounding, f"[1, {MOST:g}]")
        if self.horizon is not None:
            check_whole("horizon", self.horizon, 1)
        for name in ("delta", "margin", "confounding"):
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def known_range(self) -> tuple[float, float]:
        """The range of returns, where a grade needs it, so that it was stated."""
        assert self.value_range is not None  # `gate` has asked for it
        return self.value_range


@dataclass(frozen=True, eq=False)
class Proven:
    """What one part of a log certifies. Arrays are (S, A); only tested pairs hold a bound.

    Attributes:
        pairs: bool, whether the pair is certified.
        low: Lower bound of E x - E y in units of returns, -inf where not tested; never below 0
            where a large-sample test has passed.
        advantage: Lower bound of the advantage in units of returns, -inf where not tested.
        log_e: Natural logarithm of the e-value of "no benefit", 0 where not tested.
        p_high: Upper bound of p, the probability of the action, 1 where not tested.
        evidence: Evidence of the part of the log that certifies.
        tested: Number of pairs that the level was divided among.
        difference: Estimate of E x - E y in units of returns; None where it is that of the
            evidence.
        gamma_star: Γ* of each certified pair, NaN where not certified; None before `at_gamma`, and
            for large samples.
        gamma_point: Γ* as estimated, without allowance for chance; NaN where not tested, None
            where gamma_star is None.
        p: p-value of "no benefit" for large samples, adjusted so that δ is what it is compared
            with; None where e-values were used.
        chances: The recorded probabilities of actions; None where there are none.
    """

    pairs: Bools
    low: Floats
    advantage: Floats
    log_e: Floats
    p_high: Floats
    evidence: Evidence
    tested: int
    difference: Floats | None = None
    gamma_star: Floats | None = None
    gamma_point: Floats | None = None
    p: Floats | None = None
    chances: Chances | None = None


def propose(evidence: Evidence, learner: Learner, available: Bools | None) -> Bools:
    """bool (S, A): the pairs that one half of the log proposes.

    They pass the learner's rule with half of n_min, and their uncorrected Welch bound is above 0.
    """
    half = learner.n_min if math.isinf(learner.n_min) else max(1.0, math.ceil(learner.n_min / 2))
    pairs = allowed(evidence, half, contrast=learner.contrast, available=available)
    took, others = evidence.took, evidence.others
    low, _ = welch(took.n, took.mean, took.sd, others.n, others.mean, others.sd)
    return np.asarray(pairs & (low > 0))


def certify(
    log: Log,
    evidence: Evidence,
    wanted: Bools,
    gamma: float,
    asked: Asked,
    tested: int,
    share: float,
    proposed_by: Log | None = None,
    chances: Chances | None = None,
) -> Proven:
    """Test the wanted pairs (S, A) on a settled log, at level δ·share divided among `tested`.

    `proposed_by` is the settled part of the log that proposed them, for Γ*; None where the whole
    log did both. For large samples there is no Γ*. `chances` are the recorded probabilities of
    actions: pairs are not tested where they differ from row to row.
    """
    large = asked.grade == "large-sample"
    wanted = fair_pairs(wanted, chances, asked)
    counts = None if asked.value_range is None else histograms(log, gamma, asked.value_range)
    low = np.full(wanted.shape, -np.inf)
    advantage, log_e, p_high = low.copy(), np.zeros(wanted.shape), np.ones(wanted.shape)
    passed, p_value = np.zeros(wanted.shape, bool), np.ones(wanted.shape)
    at = np.nonzero(wanted)
    each = asked.delta * share / max(tested, 1)
    if len(at[0]):
        if large:
            family = asked.delta * share
            together = compare_pairs(log, gamma, wanted, level=ISSUE * family, ends=ENDS * family)
            p_value[at] = np.minimum(together.p / (ISSUE * share), 1.0)
            passed[at] = p_value[at] <= asked.delta
            low[at] = np.where(passed[at], np.maximum(together.low, 0.0), together.low)
        else:
            assert counts is not None  # a proof has a range
            result = differences(counts, np.flatnonzero(wanted), DIFFERENCES * each)
            low[at], log_e[at] = result.low, result.log_e
            passed[at] = log_e[at] >= -math.log(DIFFERENCES * each) - 1e-12
        took, total = evidence.took.n[at], evidence.state.n[at[0]]
        with np.errstate(invalid="ignore"):
            p = np.where(total > 0, took / np.maximum(total, 1), 1.0)
        p_high[at] = kl_upper(p, total, -math.log(SHARES * each))
        if chances is not None:
            p_high[at] = np.where(np.isnan(chances.p[at]), p_high[at], chances.p[at])
        advantage[at] = np.where(low[at] > 0, (1 - p_high[at]) * np.maximum(low[at], 0.0), low[at])
        if asked.margin > 0:
            passed[at] &= advantage[at] > asked.margin
    proof = Proven(passed, low, advantage, log_e, p_high, evidence, tested, chances=chances)
    if large:
        return replace(proof, p=p_value)
    return at_gamma(proof, log, wanted, gamma, asked, DIFFERENCES * each, proposed_by)


def fair_pairs(wanted: Bools, chances: Chances | None, asked: Asked) -> Bools:
    """The pairs (S, A) where takers may be compared with others, as far as the log records it."""
    return wanted if chances is None else wanted & chances.fair(asked.confounding)[:, None]


def at_gamma(
    proof: Proven,
    log: Log,
    wanted: Bools,
    gamma: float,
    asked: Asked,
    alpha: float,
    proposed_by: Log | None = None,
) -> Proven:
    """The same proof with Γ* of each certified pair, tested by the returns of first visits.

    Where `asked.confounding` is above 1, bounds and what is certified are those at this Γ.

    Args:
        proof: What was proved without an unrecorded cause, by whatever e-value.
        log: The settled part of the log that certifies.
        wanted: bool (S, A), the pairs that were tested.
        gamma: Discount per step.
        asked: The settings of the gate.
        alpha: Level of the e-value of each pair.
        proposed_by: The settled part of the log that proposed; None where there is none.
    """
    at = np.nonzero(wanted)
    hidden = Hidden.of(log, at, gamma, asked.known_range, proposed_by) if len(at[0]) else None
    return at_gamma_of(proof, hidden, wanted, asked, alpha)


def at_gamma_of(
    proof: Proven, hidden: Hidden | None, wanted: Bools, asked: Asked, alpha: float
) -> Proven:
    """As `at_gamma`, of outcomes that are there already; None where no pair is wanted."""
    at = np.nonzero(wanted)
    star, point = np.full(wanted.shape, np.nan), np.full(wanted.shape, np.nan)
    if hidden is None:
        return replace(proof, gamma_star=star, gamma_point=point)
    rest = 1 - proof.p_high[at]
    if asked.confounding > 1:
        low, log_e, advantage = (x.copy() for x in (proof.low, proof.log_e, proof.advantage))
        low[at], log_e[at] = hidden.at(asked.confounding, alpha, np.arange(len(at[0])))
        advantage[at] = np.where(low[at] > 0, rest * low[at], low[at])
        passed = np.zeros(wanted.shape, bool)
        passed[at] = log_e[at] >= -math.log(alpha) - 1e-12
        if asked.margin > 0:
            passed[at] &= advantage[at] > asked.margin
        proof = replace(proof, pairs=passed, low=low, log_e=log_e, advantage=advantage)
    star[at] = hidden.strongest(
        proof.pairs[at], alpha, asked.confounding, asked.margin, rest
    )  # fmt: skip
    point[at] = hidden.points()
    return replace(proof, gamma_star=star, gamma_point=point)


def half_of(settled: Log, log: Log, sides: Bools, side: bool) -> Log:
    """The episodes of a settled log whose group is on this side; sides (groups of `log`,)."""
    side_of = dict(zip(log.groups, sides.tolist(), strict=True))
    episode_side = np.array([side_of[g] for g in settled.groups])[settled.group]
    return settled.take(np.flatnonzero(episode_side == side))


def best_low(proofs: Sequence[Proven], choice: NDArray[np.int32]) -> Floats:
    """The best certified lower bound of E x - E y at each choice, (S,); 0 where it defers."""
    rows = np.flatnonzero(choice >= 0)
    result = np.zeros(len(choice))
    for proof in proofs:
        at = (rows, choice[rows])
        result[rows] = np.maximum(result[rows], np.where(proof.pairs[at], proof.low[at], 0.0))
    return result


def finish(
    policy: P,
    proofs: Sequence[Proven],
    learner: Learner,
    log: Log,
    settled: Log,
    asked: Asked,
    mode: str,
    gain: float | None,
    notes: Sequence[str] = (),
    cells: Mapping[str, Any] | None = None,
    counting: Counting | None = None,
) -> P:
    """The policy with its certificate attached; without `counting` first visits of cells count."""
    rows = []
    for s in np.flatnonzero(policy.choice >= 0):
        a = policy.choice[s]
        proof = max(
            (p for p in proofs if p.pairs[s, a]), key=lambda p: (p.low[s, a], p.log_e[s, a])
        )
        evidence = proof.evidence
        estimates = proof.difference
        if estimates is None:
            estimates = evidence.took.mean - evidence.others.mean
        rows.append({
            "state": policy.states[s],
            "kind": Kind(policy.kind[s]).word,
            "usual": usual_words(policy.decisions, int(s)),
            "suggested": policy.actions[a],
            "n": int(evidence.took.n[s, a]),
            "others": int(evidence.others.n[s, a]),
            "difference": float(estimates[s, a]),
            "low": float(proof.low[s, a]),
            "advantage_low": float(proof.advantage[s, a]),
            **strength(proof, int(s), int(a)),
            **_strengths([p for p in proofs if p.pairs[s, a]], proof, (s, a)),
        })  # fmt: skip
    N = len(settled.groups)
    values = {} if asked.value_range is None else _theorems(policy, learner, asked, N)
    certificate = Certificate(
        mode=mode,
        delta=float(asked.delta),
        margin=float(asked.margin),
        value_range=asked.value_range,
        gamma=float(learner.gamma),
        groups=N,
        tested=tuple(proof.tested for proof in proofs),
        rows=tuple(rows),
        gain=gain if rows else None,
        bounds={k: v if math.isfinite(v) else None for k, v in values.items()},
        assumptions=assumptions(learner, log, asked, counting, proofs[0].chances),
        log=log.digest(),
        notes=(*notes, *_several(rows, policy, settled)),
        cells=cells or {},
        visits="all" if counting is not None and counting.by_all_visits(asked) else "first",
        markov=counting is None or counting.markov,
        confounding=asked.confounding,
        grade=asked.grade,
        approximation=approximation(asked, rows),
    )
    return replace(policy, certificate=certificate)


def strength(proof: Proven, s: int, a: int) -> dict[str, float]:
    """How strong the evidence for a pair is: its e-value, or its p-value for large samples."""
    if proof.p is not None:
        return {"p": float(proof.p[s, a])}
    return {"log10_e": float(proof.log_e[s, a] / math.log(10))}


def approximation(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a large-sample claim rests on, beside what it was measured with; empty for a proof."""
    if asked.grade == "proved":
        return {}
    smallest = min((min(row["n"], row["others"]) for row in rows), default=0)
    return {"measured_from": LEAST, "smallest": int(smallest)}


def _theorems(policy: Tabled, learner: Learner, asked: Asked, groups: int) -> dict[str, float]:
    """What Theorem 1 would say of the policy, as published and as it can be proved."""
    low, high = asked.known_range
    facts: dict[str, Any] = {"gamma": learner.gamma, "v_min": low, "v_max": high,
                             "delta": asked.delta}  # fmt: skip
    enough = int((policy.n >= learner.n_min).sum())
    published = dprl_theorem_1(enough, learner.n_min, **facts)
    sound = sound_theorem_1(
        max(len(policy.states), 1),
        len(policy.actions),
        groups,
        asked.horizon or math.inf,
        learner.n_min,
        contrast=learner.contrast,
        **facts,
    )
    return {
        N_("Theorem 1, as published"): published.value,
        N_("Theorem 1, sound"): sound.value,
    }


def _strengths(passed: Sequence[Proven], proof: Proven, pair: tuple[Any, Any]) -> dict[str, float]:
    """Γ* of a row, the largest of the parts that certified it, and the estimate of one of them."""
    stars = [float(p.gamma_star[pair]) for p in passed if p.gamma_star is not None]
    if proof.gamma_point is None or not stars:
        return {}
    return {"gamma_star": max(stars), "gamma_point": float(proof.gamma_point[pair])}


def _several(rows: Sequence[Mapping[str, Any]], policy: Any, settled: Log) -> list[str]:
    """What Γ* says of all suggestions together, where an episode meets several of them."""
    if not rows or not all("gamma_star" in row for row in rows):
        return []
    if hasattr(settled, "most_met"):  # a log in parts
        most = settled.most_met(policy)
        return [several_words(min(r["gamma_star"] for r in rows), most)] if most > 1 else []
    if not hasattr(settled, "starts"):  # sites that share no rows: nobody knows which meet
        return [
            say("How many suggestions one episode meets is not known without rows: Γ* is of each.")
        ]
    states, row = policy.space.of_log(settled)
    speaks = (policy.at(states).choice >= 0)[row]
    most = int(np.add.reduceat(speaks.astype(np.int64), settled.starts[:-1]).max())
    return [several_words(min(r["gamma_star"] for r in rows), most)] if most > 1 else []
