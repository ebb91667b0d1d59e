"""What the published bounds say about a policy and its log, in one table.

Each formula of `dprl.certificate.bounds`, with its numbers taken from a log: C(n_min) from the
evidence (by trajectory), ρ(π, M̂) - ρ(b, M̂) and η̂ from the maximum-likelihood MDP M̂ (by visit),
where b is the estimated behaviour π̂_b. DPRL's Theorem 2 is about continuous states and is not
among them.

E_η̂ f can be computed without η̂ itself: where f is paid as a reward, the value of π is
∑ γ^t E f(s_t, a_t), so

    E_η̂ f = (1-γ) ρ(π, M̂ with R = f)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import Cut, check_gamma, check_n_min
from dprl._core.table import Table
from dprl.certificate.bounds import (
    count_errors,
    count_morl_theorem_2,
    dprl_theorem_1,
    pqi_corollary_2,
    spibb_theorem_2,
    spibb_two_successors,
)
from dprl.errors import ParameterError
from dprl.evidence.tabular import evidence
from dprl.logs._censoring import check_claim, settle
from dprl.logs.log import Log
from dprl.logs.returns import span
from dprl.planning.model import Model, estimate

__all__ = ["published"]

Floats = NDArray[np.float64]


def published(
    log: Log,
    policy: Any,
    *,
    n_min: float,
    gamma: float,
    v_max: float,
    delta: float,
    b: float,
    v_min: float = 0.0,
    cut: Cut | None = None,
) -> Table:
    """What the published bounds say about a policy: one row per bound, with the trivial bound.

    Args:
        log: The log the policy was learned from; its labels are the states and actions counted.
        policy: A policy over labels (where it defers, the behaviour π̂_b estimated from the log is
            used), or an array (S, A) of probabilities.
        n_min: Threshold of DPRL and SPIBB, at least 1.
        gamma: Discount per step, in (0, 1].
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which a bound may fail, in (0, 1).
        b: Threshold of PQI on the share n(s,a)/n, in (0, 1].
        v_min: Smallest return there can be, known beforehand. Default 0.
        cut: How cut episodes are treated, as for learners: "drop-unrelated", "terminal" or
            "bootstrap".
            Default None: they count as ended, with a warning.

    Returns:
        A table with the columns bound, value, trivial and vacuous, one row per bound.

    Raises:
        ParameterError: An argument is outside its range, or the policy does not fit the log.

    Example:
        >>> import dprl
        >>> log = dprl.envs.care_pathway().sample(500, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=0.9).fit(log)
        >>> table = published(log, policy, n_min=20, gamma=0.9, v_max=1.0, delta=0.05, b=0.01)
        >>> table["bound"][:3]
        ['DPRL Theorem 1', 'SPIBB Theorem 2', 'SPIBB, two successors']
        >>> table["vacuous"]
        [True, True, True, True, True, True]
    """
    check_n_min(n_min)
    gamma = check_gamma(gamma)
    check_claim(cut, log, "a bound")
    log = settle(log, gamma, cut)
    model = estimate(log, gamma)
    S, A = model.n.shape
    _check(model, policy)
    gain, error = 0.0, 1.0  # at γ = 1 no bound depends on them, and values may not exist
    if gamma < 1:
        gain = model.mdp.value(policy) - model.mdp.value()
        error = _expected(model, count_errors(model.n, S, A, delta), policy)
    pairs = int((evidence(log, gamma).n_pair >= n_min).sum())
    given: dict[str, Any] = {"gamma": gamma, "v_max": v_max, "delta": delta, "v_min": v_min}
    bounds = (
        dprl_theorem_1(pairs, n_min, **given),
        spibb_theorem_2(S, A, n_min, gain, **given),
        spibb_two_successors(S, A, n_min, gain, **given),
        spibb_two_successors(S, A, n_min, gain, **given, beta=True),
        pqi_corollary_2(S, A, log.n_steps, b=b, **given),
        count_morl_theorem_2(error, **given),
    )
    note = f"{pairs:,} pairs have n(s,a) >= n_min = {n_min:g}."
    if gamma < 1:
        note += f" ρ(π) - ρ(b) in the maximum-likelihood MDP: {gain:+.4f}."
    else:
        note += " – is minus infinity: at γ = 1 these bounds claim nothing."
    low, high = span(log, gamma)
    slack = 1e-9 * (v_max - v_min)
    if low < v_min - slack or high > v_max + slack:
        note += (
            f" NOT VALID as asked: returns of this log run from {low:g} to {high:g}, beyond "
            f"{v_min:g}..{v_max:g}."
        )
    return Table(
        {
            "bound": [bound.name for bound in bounds],
            "value": [bound.value for bound in bounds],
            "trivial": [bound.trivial for bound in bounds],
            "vacuous": [bound.vacuous for bound in bounds],
        },
        caption=f"Published lower bounds on ρ(π) - ρ(b), δ = {delta:g}",
        note=note,
    )


def _check(model: Model, policy: Any) -> None:
    """Refuse an array that is not a policy for this log."""
    if hasattr(policy, "probabilities"):
        return
    good = isinstance(policy, np.ndarray) and policy.shape == model.n.shape
    if not (good and (policy >= 0).all() and (np.abs(policy.sum(axis=1) - 1) <= 1e-9).all()):
        raise ParameterError(
            f"a policy here is one of dprl's, or an array {model.n.shape} of distributions.",
            do="Rows follow log.states, columns log.actions.",
        )


def _expected(model: Model, f: Floats, policy: Any) -> float:
    """E_η̂ f for f (S, A) with values in [0, 1], computed by paying f as a reward."""
    return min(1.0, (1 - model.mdp.gamma) * replace(model.mdp, low=f, high=f).value(policy))
