"""What the other half says of proposed rules (for `dprl.Rules`): tests, and the record of a rule.

The studentised mean of ψ by group in each proposed region, all at once by step-down max-t
(`dprl._core.max_t`). Beside each rule: balance, overlap, who is behind it, what it brings over
usual practice, and the same contrast from whole returns (λ = 1), which needs no model of values and
is wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl._core.confounding import GAMMAS, threshold, worst_case
from dprl._core.max_t import cluster_parts, max_t
from dprl.evidence.nuisances import OVERLAP
from dprl.learners._rule_scores import Proposal, Scores, first_actions, shares
from dprl.learners._rule_search import KAPPA, whole_gain
from dprl.policies._rule import Rule

__all__ = ["Claims", "certify", "region_facts", "rule_breakdown"]

CONTRAST = ("advantage", "se", "low", "high")


@dataclass(frozen=True, eq=False)
class Claims:
    """What one half says of the rules that the other proposed.

    Attributes:
        tested: All proposals as rules, with what is on record about them; most per decision first.
        issued: Those that passed, in the same order.
        worth: What the issued rules bring an episode over usual practice, added up one change at a
            time, less a standard error by groups; divisions are compared by it. 0 for no rules.
        whole: What the issued rules bring an episode over usual practice: gain, low and high where
            only the first suggestion of an episode is followed; "sum", what all would bring if each
            were the only one; "changed", the share of steps that would change; and, of the episodes
            of this half, "met", how many come to a suggestion, and "followed", how many of these
            took every suggestion they came to.
    """

    tested: list[Rule]
    issued: list[Rule]
    worth: float
    whole: dict[str, float]


def certify(
    proposals: Sequence[Proposal], proposed_by: Scores, other: Scores, returns: Scores, *,
    delta: float, splits: int, margin: float, n_min: float, gamma: float, seed: int,
) -> Claims:  # fmt: skip
    """Test proposals on the half that did not make them.

    Args:
        proposals: Regions that do not overlap, with their actions.
        proposed_by: Scores of the half that proposed.
        other: Scores of the half that certifies.
        returns: The same steps with scores of whole returns (λ = 1).
        delta: Level of all tests of all divisions together.
        splits: Number of divisions that share the level.
        margin: What a contrast must exceed.
        n_min: Groups with and without the action that the certifying half must have.
        gamma: Discount per step.
        seed: Seed of the multipliers.
    """
    level = delta / splits
    places = [other.inside(conditions) for conditions, _ in proposals]
    if not proposals:
        return Claims([], [], 0.0, _whole(other, [], gamma, level))
    means, parts = zip(
        *(here.contrast(a) for here, (_, a) in zip(places, proposals, strict=True)), strict=True
    )
    test = max_t(np.array(means), np.stack(parts, axis=1), level=level, null=margin, seed=seed)
    adjusted = np.minimum(test.p * splits, 1.0)
    rules, passed = [], []
    for k, ((conditions, a), here) in enumerate(zip(proposals, places, strict=True)):
        whole = returns.inside(conditions)
        contrast = tuple(float(x[k]) for x in (test.mean, test.se, test.low, test.high))
        facts = region_facts(
            here, proposed_by.inside(conditions), whole, a, contrast, level=level,
            steps=len(other.rows), margin=margin,
        )  # fmt: skip
        rules.append(Rule(conditions, other.log.actions[a], facts | {"p": float(adjusted[k])}))
        passed.append(adjusted[k] <= delta and min(here.groups_with(a)) >= n_min)
    order = sorted(range(len(rules)), key=lambda k: (-float(np.nan_to_num(test.low[k])), k))
    issued = [k for k in order if passed[k]]
    return Claims(
        [rules[k] for k in order],
        [rules[k] for k in issued],
        _worth(other, [proposals[k] for k in issued], gamma),
        _whole(other, [proposals[k] for k in issued], gamma, level),
    )


def _worth(other: Scores, proposals: Sequence[Proposal], gamma: float) -> float:
    mean, parts = whole_gain(other, proposals, gamma)
    return mean - KAPPA * float(np.sqrt((parts**2).sum())) if proposals else 0.0


def _whole(
    other: Scores, proposals: Sequence[Proposal], gamma: float, level: float
) -> dict[str, float]:
    gain, parts = whole_gain(other, proposals, gamma, once=True)
    inside = [(other.inside(conditions), a) for conditions, a in proposals]
    changed = sum(int((here.took != a).sum()) for here, a in inside)
    met, followed = _followers(other, inside)
    ends = _ends(gain, float(np.sqrt((parts**2).sum())), len(np.unique(other.group)), level)
    steps = max(len(other.rows), 1)
    total = whole_gain(other, proposals, gamma)[0]
    return {
        "gain": gain, "low": ends[0], "high": ends[1], "sum": total, "changed": changed / steps,
        "met": met, "followed": followed,
    }  # fmt: skip


def _followers(other: Scores, inside: Sequence[tuple[Scores, int]]) -> tuple[int, int]:
    """How many episodes come to a suggestion, and how many of them took it every time."""
    log = other.log
    episode = np.repeat(np.arange(log.n_episodes), log.lengths)
    met, strayed = np.zeros(log.n_episodes, bool), np.zeros(log.n_episodes, bool)
    for here, a in inside:
        met[episode[here.rows]] = True
        strayed[episode[here.rows[here.took != a]]] = True
    return int(met.sum()), int((met & ~strayed).sum())


def region_facts(
    here: Scores, there: Scores, whole: Scores, a: int, contrast: Sequence[float], *,
    level: float, steps: int, margin: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """What is on record about a rule, but for its p-value.

    Args:
        here: Scores in its region, of the half that certifies.
        there: The steps in its region of the half that proposed.
        whole: As `here`, with scores of whole returns (λ = 1).
        a: The code of the suggestion.
        contrast: What the suggestion brought over doing otherwise here: mean, standard error,
            lower and upper end.
        level: Level of each end of the contrast of whole returns.
        steps: Number of all steps of the half that certifies.
        margin: What the contrast must exceed.
    """
    rows = np.sort(np.concatenate((here.rows, there.rows)))
    took, others = here.groups_with(a)
    feature, difference = here.balance(a)
    mean, parts = whole.contrast(a)
    groups = len(np.unique(here.group))
    gamma_star, gamma_point = rule_breakdown(
        here, there, a, width=_width(contrast), margin=margin
    )  # fmt: skip
    returns = (mean, *_ends(mean, float(np.sqrt((parts**2).sum())), groups, level))
    return {
        "steps": len(rows),
        "groups": groups,
        "groups_took": took,
        "groups_others": others,
        "groups_by_action": first_actions(here.log, rows),
        "groups_proposed": len(np.unique(there.group)),
        **{name: _finite(x) for name, x in zip(CONTRAST, contrast, strict=True)},
        "gain": _finite(here.gains(a).mean()) if len(here.rows) else None,
        "returns": [_finite(number) for number in returns],
        "gamma_star": gamma_star,
        "gamma_point": gamma_point,
        "share_usual": shares(here.log, rows) if len(rows) else [],
        "overlap": here.overlap(a),
        "balance": [feature, difference],
        "share": len(here.rows) / max(steps, 1),
        "changed": int((here.took != a).sum()) / max(steps, 1),
        **_doses(here, rows, a),
    }


def _width(contrast: Sequence[float]) -> float:
    """How many standard errors lie between a contrast and its lower end; NaN if it has none."""
    mean, se, low, _ = contrast
    return (mean - low) / se if np.isfinite(low) and se > 0 else np.nan


def _doses(here: Scores, rows: NDArray[np.int64], a: int) -> dict[str, float]:
    """Where actions are numbers (doses): the shares of steps that gave less, and that gave more."""
    doses = here.log.actions
    if any(isinstance(dose, str | bool) for dose in doses) or not len(rows):
        return {}
    given = np.array(doses, np.float64)[here.log.action[rows]]
    suggested = float(doses[a])
    return {
        "raises": float((given < suggested).mean()), "lowers": float((given > suggested).mean()),
    }  # fmt: skip


def _ends(mean: float, se: float, groups: int, level: float) -> tuple[float, float]:
    """One-sided ends at this level on either side, for large samples of groups."""
    if groups < 2:
        return -np.inf, np.inf
    from scipy.special import stdtrit

    width = float(stdtrit(groups - 1, 1 - level)) * se
    return mean - width, mean + width


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


# -- how strong an unrecorded cause must be to undo a rule (for `dprl.Rules`): Γ*, for large… ------
#
# `dprl._core.confounding` explains Γ and φ. The mean of ψ_a over a region is that of
#
# 1{a_t = a} e / b̂_a - 1{a_t ≠ a} e / (1 - b̂_a)
#
# At Γ the credit e of those who took a is replaced by φ(e); θ may be any function of the state
# that the certifying half has not chosen. Two are looked at, with q the 1/(1 + Γ) quantile of the
# half that proposed: θ = q for the credit itself, and θ = q - V̂ (q for what followed, e + V̂;
# sharp where outcomes have two values). The half that proposed chooses between them. Γ* is the
# largest Γ up to which the lower end of the mean stays above the margin: the same t, the same
# number of standard errors.

Floats: TypeAlias = NDArray[np.float64]


def rule_breakdown(
    here: Scores, there: Scores, a: int, *, width: float, margin: float
) -> tuple[float | None, float | None]:
    """Γ* of one rule: with its allowance for chance, and as estimated.

    Args:
        here: Scores in its region, of the half that certifies.
        there: Scores in its region, of the half that proposed.
        a: The code of the suggestion.
        width: How many standard errors lie between the contrast and its lower end.
        margin: What the contrast must exceed.

    Returns:
        (Γ*, Γ* as estimated), each from 1 to 20, which means "or more"; None where the claim does
        not even hold without an unrecorded cause, or nothing can be told.
    """
    return (
        _largest(here, there, a, width, margin) if np.isfinite(width) else None,
        _largest(here, there, a, 0.0, margin),
    )


def _largest(here: Scores, there: Scores, a: int, width: float, margin: float) -> float | None:
    """The largest of the fixed Γ up to which the lower end stays above the margin, without gap."""
    result = None
    if not len(here.rows):
        return None
    for gamma in GAMMAS:
        scores = _worst(here, a, float(gamma), _theta(there, a, float(gamma)))
        mean, parts = cluster_parts(scores, here.group, len(here.log.groups))
        if not mean - width * float(np.sqrt((parts**2).sum())) > margin:
            break
        result = float(gamma)
    return result


def _worst(scores: Scores, a: int, gamma: float, theta: tuple[float, float]) -> Floats:
    """float64 (n,), the scores of a at Γ; θ is theta[0] + theta[1]·V̂ at each step."""
    b, took = scores.b[:, a], scores.took == a
    fine = (b >= OVERLAP) & (b <= 1 - OVERLAP)
    safe = np.where(fine, b, 0.5)
    worst = worst_case(scores.e, theta[0] + theta[1] * scores.V, gamma)
    return np.asarray(np.where(fine, np.where(took, worst / safe, -scores.e / (1 - safe)), 0.0))


def _theta(there: Scores, a: int, gamma: float) -> tuple[float, float]:
    """The better of the two θ on the half that proposed: θ = first + second · V̂."""
    b, took = there.b[:, a], there.took == a
    use = took & (b >= OVERLAP) & (b <= 1 - OVERLAP)
    if not use.any():
        return 0.0, 0.0
    e, V, weight = there.e[use], there.V[use], 1 / b[use]
    both = (threshold(e, gamma, weight), 0.0), (threshold(e + V, gamma, weight), -1.0)
    means = [
        np.average(worst_case(e, first + second * V, gamma), weights=weight)
        for first, second in both
    ]
    return both[int(np.argmax(means))]
