"""The gate for a policy as a whole: all of it is issued, or nothing.

`dprl.certificate.whole_policy` has the bounds, for what is proved and for large samples. Here the
policy and the groups that certify it are kept apart, and the certificate is written.
"""

from __future__ import annotations

# Apart: one kind of gate; the others are beside it.
import functools
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.words import N_, say, say_many, sentences, worded
from dprl.certificate.assumptions import LogRecord, as_in_the_state, resting_on
from dprl.certificate.settings import GateSettings, check_cut, in_memory
from dprl.certificate.states import Proposer
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import evidence
from dprl.learners.confident import Confident
from dprl.learners.discrete import DPRLDiscrete
from dprl.logs.log import Log
from dprl.logs.overlap import sketch
from dprl.logs.returns import refuse_outside, returns
from dprl.logs.source import unseen_words
from dprl.policies.certificate import WHOLE_POLICY, Certificate
from dprl.policies.explain import usual_words
from dprl.policies.held_out import HeldOut
from dprl.policies.protocol import Kind
from dprl.policies.table import TablePolicy

# --- One bound for a policy as a whole, on groups that the policy was not learned from
#
# Where states are many and each is small, no suggestion can be certified by itself, although all of
# them together gain a lot. Here one number is bounded, ρ(π) - ρ(b), and the whole policy is issued
# or nothing. Nothing follows for any one suggestion. The policy was chosen without these groups, so
# one bound at level δ is all that is paid.
#
# Let an episode meet suggestions at the rows t_1 < t_2 < ... (everywhere else π defers and does
# what was done), let G be its return, b(a|s) the probability of the action taken, and
#
#     w = ∏_i 1{a = π(s)} / b(a|s)       over the rows t_i;  w = 1 where it meets none
#
# Only the first episode of a group counts (how many follow may depend on what happened in it), so ρ
# is the value of first episodes.
#
# **Proved** (b is known). Scale returns to [0, 1] by the range that was stated beforehand. Then
#
#     Z = 1 + w G - G >= 0      E Z = 1 + ρ(π) - ρ(b)
#
# whatever w is, since w G >= 0 and G <= 1: no bound on w is needed. (Where π suggests what is never
# done, E w G only misses something that is not negative, and the bound is on the safe side.) So
#
#     E(d) = mean_j ∏_groups (1 + f_j (Z / (1 + d) - 1))
#
# is an e-value of "ρ(π) - ρ(b) <= d" (`dprl.certificate.evalues`), and the largest d with
# E(d) >= 1/δ is a lower bound.
#
# **Large-sample** (b is known or estimated). Backwards over the rows t_i of an episode
#
#     v_i = (1 - ρ_i) V̂(s_i) + ρ_i (R_i + γ^k_i v_{i+1})      ρ_i = 1{a = π(s)} / b̂(a|s)
#
# with R_i the discounted rewards from row t_i until the next such row, k_i steps later (until the
# end, for the last), is the doubly robust recursion (Jiang and Li 2016) of a deterministic policy
# that defers. Its difference to usual practice is D = γ^{t_1} (v_1 - G_{t_1}), and 0 for an episode
# that meets no suggestion. b̂ and V̂ of a group come from groups in other folds: b̂ from counts,
# drawn towards the shares of all states; V̂ = R̂_π + P̂_π V̂ from the rows that followed. Then
#
#     low = mean D - t_{1-δ} · se       se² = max( variance of the mean of D,  s² ∑ (w - 1)² / N²
#     )
#
# with s² the variance of G about the mean of the state in which an episode meets its first
# suggestion. The second number is the variance where π makes no difference; it protects against
# followers who happened not to vary. t has as many degrees of freedom as there are followers, or
# others who met a suggestion if they are fewer, less one. Where D leans to the side of losses (few
# have lost much), mean and se are too good together, and (Johnson, 1978)
#
#     (1 + 2 z²) / 6 · max(0, -∑ (D - mean D)³ / ∑ (D - mean D)²) / N
#
# is taken off, z the normal quantile at 1 - δ.

FRACTIONS = np.geomspace(0.002, 0.95, 16)
"""The bets f_j."""

FOLDS, FLOOR, LARGEST = 5, 0.01, 1e100
"""Folds of groups; least estimated probability; largest weight, whose square must be finite."""

PART_IN_CHOOSING = (
    "a bound for the whole policy needs groups that had no part in choosing it.",
    "Give a log of other groups (keep some aside before learning: log.split, or dprl split); or "
    "give the learner, which is then fitted to half of the groups.",
)
"""Why a log that the policy has seen is refused, and what to do."""

WHOLE_LEAST = 40
"""Followers, and others who met a suggestion, from which on the error was measured."""


@dataclass(frozen=True, eq=False)
class Met:
    """The rows of a log at which a policy makes a suggestion.

    Attributes:
        log: The settled, gathered log that certifies.
        row: int64 (m,), the rows, in their order.
        episode: int64 (m,), the episode of each.
        state: int64 (m,), codes of the states.
        follows: bool (m,), whether the action taken is the suggestion.
        G: float64 (N,), the return from every row of the log on.
        gamma: Discount per step.
    """

    log: Log
    row: Ints
    episode: Ints
    state: Ints
    follows: Bools
    G: Floats
    gamma: float

    @classmethod
    def of(cls, log: Log, choice: Ints, gamma: float) -> Met:
        """The rows at which `choice` (S,), action codes, -1 to defer, makes a suggestion."""
        row = np.flatnonzero(choice[log.codes()] != -1)
        state = log.codes()[row].astype(np.int64)
        episode = np.repeat(np.arange(log.n_episodes), log.lengths)[row]
        follows = log.action[row] == choice[state]
        return cls(log, row, episode, state, follows, returns(log, gamma), gamma)

    @functools.cached_property
    def following(self) -> Ints:
        """int64 (m,): the place of the next such row of the episode, -1 where there is none."""
        place = np.arange(1, len(self.row) + 1)
        last = np.append(self.episode[1:] != self.episode[:-1], True)[: len(self.row)]
        return np.where(last, -1, place)

    @functools.cached_property
    def discount(self) -> Floats:
        """float64 (m,): γ^k until the next such row, 0 where there is none."""
        steps = self.row[self.following] - self.row
        return np.where(self.following >= 0, self.gamma ** np.maximum(steps, 0), 0.0)

    @functools.cached_property
    def reward(self) -> Floats:
        """float64 (m,): the discounted rewards until the next such row."""
        G = self.G[self.row]
        return G - self.discount * G[self.following] if len(G) else G

    @functools.cached_property
    def begins(self) -> Ints:
        """int64 (episodes that meet one,): the place of the first such row of each."""
        return np.flatnonzero(
            np.append(True, self.episode[1:] != self.episode[:-1])[: len(self.row)]
        )

    def weights(self, chance: Floats) -> Floats:
        """float64 (episodes,): w, given the probability of the action taken at each such row."""
        result = np.ones(self.log.n_episodes)
        ratio = np.where(self.follows, 1 / np.maximum(chance, 1e-300), 0.0)
        if len(self.row):
            with np.errstate(over="ignore"):
                product = np.multiply.reduceat(ratio, self.begins)
            result[self.episode[self.begins]] = np.minimum(product, LARGEST)
        return result


def _first(log: Log) -> Ints:
    """int64 (groups,): the first episode of each group of a gathered log."""
    return np.unique(log.group, return_index=True)[1]


def _facts(met: Met, estimator: str, probabilities: str, difference: float) -> dict[str, Any]:
    """What is on record of the bound."""
    first = _first(met.log)
    reached, followed = np.zeros(met.log.n_episodes, bool), np.ones(met.log.n_episodes, bool)
    reached[met.episode] = True
    followed[met.episode[~met.follows]] = False
    return {
        "estimator": estimator,
        "probabilities": probabilities,
        "difference": float(difference),
        "groups": len(first),
        "reached": int(reached[first].sum()),
        "followers": int((reached & followed)[first].sum()),
    }


# -- proved ----------------------------------------------------------------------------------------


def bound_proved(met: Met, settings: GateSettings) -> tuple[float, dict[str, Any]]:
    """The exact lower bound in units of returns, and what is on record of it."""
    assert settings.value_range is not None  # a proof has a range
    low, high = settings.value_range
    chance = np.ones(len(met.row)) if met.log.propensity is None else met.log.propensity[met.row]
    lacking = met.follows & (np.isnan(chance) if met.log.propensity is not None else True)
    if lacking.any():
        at = int(np.flatnonzero(lacking)[0])
        e = int(met.episode[at])
        raise LogError(
            f"{int(lacking.sum()):,} of {int(met.follows.sum()):,} steps that follow the policy "
            "do not say with which probability their action was taken.",
            f"episode {met.log.episodes[e]!r}, step {met.row[at] - met.log.starts[e]}",
            worded(
                "A proof for the whole policy needs known probabilities ({propensity=}); or choose "
                "{grade='large-sample'}, which estimates them."
            ),
        )
    weight, first = met.weights(chance), _first(met.log)
    G = np.clip((met.G[met.log.starts[:-1]] - low) / (high - low), 0.0, 1.0)
    Z = (1 + weight * G - G)[first]
    bound = (high - low) * lower_end(Z, settings.delta)
    difference = (high - low) * float((Z - 1).mean())
    return bound, _facts(met, N_("importance weighting"), "known", difference)


def lower_end(Z: Floats, alpha: float) -> float:
    """The largest d with E(d) >= 1/α, for Z (n,) from 0 on; -1 where there is none above."""
    values, counts = np.unique(Z, return_counts=True)
    need = -np.log(alpha)

    def log_e(d: float) -> float:
        with np.errstate(divide="ignore"):
            total = np.log1p(FRACTIONS[:, None] * (values / (1 + d) - 1)) @ counts
        top = float(total.max())
        return top + float(np.log(np.exp(total - top).mean()))

    low, high = -1.0, max(float(Z.mean()) - 1.0, -1.0)  # no bound is above the mean
    for _ in range(60):
        middle = (low + high) / 2
        if middle > -1 and log_e(middle) >= need:
            low = middle
        else:
            high = middle
    return low


# -- large-sample ----------------------------------------------------------------------------------


def bound_large_sample(met: Met, settings: GateSettings) -> tuple[float, dict[str, Any]]:
    """The lower end in units of returns, for large samples, and what is on record of it."""
    from scipy.special import ndtri, stdtrit

    chance, V, source = _nuisances(met)
    ratio = np.where(met.follows, 1 / chance, 0.0)
    v = np.zeros(len(met.row))
    turn = _from_the_end(met)
    for i in range(int(turn.max(initial=-1)) + 1):
        at = np.flatnonzero(turn == i)
        ahead = np.where(met.following[at] >= 0, v[met.following[at]], 0.0)
        target = met.reward[at] + met.discount[at] * ahead
        v[at] = np.clip((1 - ratio[at]) * V[at] + ratio[at] * target, -LARGEST, LARGEST)
    D, weight = np.zeros(met.log.n_episodes), met.weights(chance)
    at = met.begins
    before = met.row[at] - met.log.starts[met.episode[at]]
    D[met.episode[at]] = met.gamma**before * (v[at] - met.G[met.row[at]])
    first = _first(met.log)
    facts = _facts(met, N_("the doubly robust estimate"), source, float(D[first].mean()))
    fewer = min(facts["followers"], facts["reached"] - facts["followers"])
    if fewer < 2:
        return -np.inf, facts
    N = len(first)
    spread = np.zeros(met.log.n_episodes)
    spread[met.episode[at]] = met.gamma ** (2 * before) * _spread(met)
    alike = float((spread[first] * (weight[first] - 1) ** 2).sum()) / N**2
    mean, quantile = float(D[first].mean()), float(stdtrit(fewer - 1, 1 - settings.delta))
    squares, cubes = (float(((D[first] - mean) ** power).sum()) for power in (2, 3))
    se = np.sqrt(max(squares / (N - 1) / N, alike))
    leans = max(-cubes / squares, 0.0) / N if squares > 0 else 0.0
    low = mean - quantile * se - (1 + 2 * float(ndtri(1 - settings.delta)) ** 2) / 6 * leans
    return (low if se > 0 else -np.inf), facts


def _from_the_end(met: Met) -> Ints:
    """int64 (m,): how many such rows of its episode come after each."""
    ends = np.append(met.begins, len(met.row))[1:]  # none where nothing is met
    return np.repeat(ends, ends - met.begins) - 1 - np.arange(len(met.row))


def _spread(met: Met) -> float:
    """s²: the variance of returns about the mean of the state of a first suggestion."""
    G, state = met.G[met.row[met.begins]], met.state[met.begins]
    n = np.bincount(state)
    mean = np.bincount(state, weights=G) / np.maximum(n, 1)
    free = len(G) - int((n > 0).sum())
    return float(((G - mean[state]) ** 2).sum() / free) if free else 0.0


def _nuisances(met: Met) -> tuple[Floats, Floats, str]:
    """b̂ of the action taken (m,), V̂ of the policy (m,), and where b̂ comes from.

    Both come from groups in other folds; probabilities that the log knows are used as they are.
    """
    log, S, A = met.log, met.log.n_states, met.log.n_actions
    groups = len(log.groups)
    fold_of = np.empty(groups, np.int64)
    fold_of[np.random.default_rng(0).permutation(groups)] = np.arange(groups) % FOLDS
    fold = fold_of[log.group][met.episode]
    action = log.action[met.row].astype(np.int64)
    chance, V = np.ones(len(met.row)), np.zeros(len(met.row))
    lowest, highest = float(met.G.min()), float(met.G.max())
    for k in range(FOLDS):
        here, there = fold == k, fold != k
        counts = np.bincount(met.state[there] * A + action[there], minlength=S * A).reshape(S, A)
        overall = (counts.sum(axis=0) + 1 / A) / (counts.sum() + 1)
        pi = (counts + overall) / (counts.sum(axis=1, keepdims=True) + 1)
        chance[here] = np.maximum(pi[met.state[here], action[here]], FLOOR)
        values = np.clip(_values(met, there & met.follows, lowest), lowest, highest)
        V[here] = values[met.state[here]]
    if log.propensity is None:
        return chance, V, "estimated"
    p = log.propensity[met.row]
    given = ~np.isnan(p)
    return np.where(given, p, chance), V, "known" if given[met.follows].all() else "partly known"


def _values(met: Met, used: Bools, lowest: float) -> Floats:
    """V̂ (S,) of the policy from rows that followed; `lowest` where no row did."""
    from scipy.sparse import csc_array, eye_array
    from scipy.sparse.linalg import spsolve

    S = met.log.n_states
    n = np.bincount(met.state[used], minlength=S)
    R = np.bincount(met.state[used], weights=met.reward[used], minlength=S) / np.maximum(n, 1)
    R[n == 0] = lowest
    goes = used & (met.following >= 0)
    share = met.discount[goes] / n[met.state[goes]] * (1 - 1e-9)  # what never ends is not infinite
    cells = (met.state[goes], met.state[met.following[goes]])
    P = csc_array((share, cells), shape=(S, S))
    return np.asarray(np.nan_to_num(spsolve(csc_array(eye_array(S) - P), R), nan=lowest))


# --- The gate for a policy as a whole: all of it is issued, or nothing


def gate_policy(proposal: Any, log: Any, settings: GateSettings) -> TablePolicy:
    """The whole policy with its certificate, or usual practice where the bound is not above margin.

    Args:
        proposal: A learner of labelled states, which is fitted to one half of the groups, or a
            policy that one has fitted to other groups.
        log: The log; where a policy is given, all of it certifies.
        settings: The settings of the gate.
    """
    log = in_memory(log, "mode='policy'")
    if isinstance(proposal, Proposer) and (
        isinstance(proposal.given, Confident) or not hasattr(proposal.given, "fit")
    ):
        proposal = proposal.given  # it names actions itself
    settings.check_policy(hasattr(proposal, "fit"))
    rule = getattr(proposal, "rule", proposal)
    own = getattr(proposal, "parameters", {})
    check_cut(getattr(rule, "cut", own.get("cut")), log)
    _check_proposal(proposal, log)
    if hasattr(proposal, "fit"):
        inside = settings.sides(log)[log.group]
        fitted, half = (
            proposal.fit(log.take(np.flatnonzero(inside))),
            log.take(np.flatnonzero(~inside)),
        )
        cut = fitted.parameters.get("cut")
        held = HeldOut(fitted, half, half, rule.gamma, cut, None, reads="transitions")
        learned = say("The policy was learned from one half of the groups.")
        notes = [sentences(learned, settings.split_note)]
    else:
        held = HeldOut.meet(
            proposal, log, claim="a certificate", reads="transitions", refusal=PART_IN_CHOOSING
        )
        notes = [*held.strange, *held.untold(say("If it has, nothing here holds."))]
    policy: TablePolicy = replace(cast("TablePolicy", held.policy), certificate=None)
    gamma, cut, certifying, treated = float(held.gamma), held.cut, held.log, held.treated
    if not treated.n_episodes:
        raise LogError("no episode is left to certify with.", do="Read more, or drop fewer.")
    met = Met.of(treated, _choice(policy, treated), gamma)
    estimated = settings.grade != "proved" and unseen_words(log.columns)  # single ones may leave it
    if settings.value_range is not None and not estimated:
        refuse_outside(treated, met.G, settings.value_range)
    how = bound_proved if settings.grade == "proved" else bound_large_sample
    bound, facts = how(met, settings)
    issued = bool(len(met.row)) and bound > settings.margin
    origin = {
        **policy.provenance,
        "certified": {
            "log": certifying.digest(), "groups": len(certifying.groups),
            "sample": sketch(certifying),
        },
    }  # fmt: skip
    if not issued:
        notes.append(_why_not(met, bound, settings))
    gated = policy if issued else policy.limited_to([])
    gated = replace(gated, provenance=origin)
    rows = _rows(gated, treated, gamma) if issued else []
    unseen = sum(row["n"] == 0 for row in rows)
    if unseen:
        notes.append(
            say_many(
                "{n:,} suggestion was followed by none of the groups that certify; where they met "
                "it, the bound of the whole policy counts it as the worst return.",
                "{n:,} suggestions were followed by none of the groups that certify; where they "
                "met them, the bound of the whole policy counts them as the worst return.",
                unseen,
            )
        )
    others = facts["reached"] - facts["followers"]
    smallest = {"measured_from": WHOLE_LEAST, "smallest": min(facts["followers"], others)}
    return replace(
        gated,
        certificate=Certificate(
            mode=WHOLE_POLICY.name,
            delta=settings.delta,
            margin=settings.margin,
            value_range=settings.value_range,
            gamma=gamma,
            groups=len(treated.groups),
            tested=(1,),
            rows=tuple(rows),
            gain=float(bound) if issued else None,
            bounds={},
            assumptions=_assumptions(certifying, cut, settings, facts["probabilities"]),
            log=certifying.digest(),
            notes=tuple(notes),
            grade=settings.grade,
            approximation={} if settings.grade == "proved" else smallest,
            whole=facts,
            markov=False,  # whole episodes are weighed
            outcome=certifying.outcome,
        ),
    )


def _check_proposal(proposal: Any, log: Log) -> None:
    labelled = isinstance(proposal, DPRLDiscrete | Confident | Proposer)
    labelled |= getattr(proposal, "changes_by", "") == "state"
    if not labelled or log.state is None:
        raise ParameterError(
            "a gate for the whole policy is for labelled states, and for learners or policies that "
            "defer.",
            f"got {type(proposal).__name__}" + ("" if labelled else " and no learner of labels"),
            worded("Judge other policies with {dprl.evaluate}, on groups they have never seen."),
        )


def _choice(policy: TablePolicy, log: Log) -> Ints:
    """int64 (S,): the suggestion in each of the log's states as a code of the log.

    -1 where it defers, -2 where the log has no such action.
    """
    code = {label: i for i, label in enumerate(log.actions)}
    codes = np.array([code.get(label, -2) for label in policy.actions] or [-1], np.int64)
    here = policy.at(log.states)
    if (here.avoid >= 0).any():
        raise ParameterError(
            "a bound for a policy as a whole is for actions to take; this policy also says what to "
            "avoid.",
            f"state {log.states[int((here.avoid >= 0).argmax())]!r}",
            worded("Gate it with {avoid=False}, then as a whole."),
        )
    choice = here.choice
    return np.where(choice >= 0, codes[choice], -1)


# -- words -----------------------------------------------------------------------------------------


def _rows(policy: TablePolicy, log: Log, gamma: float) -> list[dict[str, Any]]:
    """One row per suggestion: what the log that certifies shows there, without a bound."""
    counted, here = evidence(log, gamma), policy.decisions
    state = {label: i for i, label in enumerate(log.states)}
    action = {label: i for i, label in enumerate(log.actions)}
    rows = []
    for s in np.flatnonzero(here.choice >= 0).tolist():
        suggested = policy.actions[here.choice[s]]
        i, a = state.get(policy.states[s], -1), action.get(suggested, -1)
        n = int(counted.took.n[i, a]) if min(i, a) >= 0 else 0
        others = int(counted.state.n[i]) - n if i >= 0 else 0
        apart = None
        if n and others:
            apart = float(counted.took.mean[i, a] - counted.others.mean[i, a])
        rows.append({
            "state": policy.states[s], "kind": Kind(here.kind[s]).word,
            "usual": usual_words(here, s), "suggested": suggested, "n": n, "others": others,
            "difference": apart,
        })  # fmt: skip
    return rows


def _why_not(met: Met, bound: float, settings: GateSettings) -> str:
    if not len(met.row):
        return say("The policy makes no suggestion in the groups that certify.")
    what = "0" if settings.margin == 0 else say("the margin of {margin:g}", margin=settings.margin)
    shown = "minus infinity" if np.isinf(bound) else f"{bound:.4g}"
    return say(
        "Not issued: the lower bound of the gain of the whole policy is {b}, not above {m}.",
        b=shown,
        m=what,
    )


def _assumptions(log: Log, cut: Any, settings: GateSettings, source: str) -> tuple[str, ...]:
    """The assumptions of a certificate of a whole policy, one sentence each."""
    record = LogRecord.of(log, cut)
    drawn = say("The probabilities of actions on record are those with which they were taken.")
    seen = say("In each state of a suggestion practice takes the suggestion now and then.")
    return resting_on(
        record,
        cut,
        settings,
        decisions=[
            *([record.recorded] if record.recorded else []),
            *([drawn] if source != "estimated" else []),
            *([as_in_the_state(settings.confounding)] if source != "known" else []),
        ],
        practice=say("Practice was the same throughout, and stays so wherever the policy defers."),
        chosen=[
            *([seen] if settings.grade == "large-sample" else []),
            say("The policy and its settings were chosen without the groups that certified."),
        ],
        ordered=say("a state counts, and the gain is that of first episodes."),
    )
