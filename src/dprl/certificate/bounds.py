"""Lower bounds on ρ(π) - ρ(b) from the literature, for comparison, and sound Theorems 1 and 2.

    DPRL Theorem 1        -V/(1-γ) · √( ln(C/δ) / n_min )
    DPRL Theorem 2        -V/(1-γ) · √( ln(M/δ) / (2 n_min) ) - 3 ε_r
    SPIBB Theorem 2       -4V/(1-γ) · √( (2/n_min) (ln(2|S||A|/δ) + |S| ln 2) ) + ρ(π,M̂) - ρ(b,M̂)
    … two successors      -4V/(1-γ) · √( (2/n_min) ln(8|S|²|A|²/δ) ) + ρ(π,M̂) - ρ(b,M̂)
    … and beta            -4V/(1-γ) · (1 - 2 I⁻¹(δ/(2|S|²|A|²); n_min/2+1, n_min/2+1)) + the same
    PQI Corollary 2       -V/(b (1-γ)³) · ( |S||A|/n + √(|S||A|/n) )
    Count-MORL Theorem 2  -γV/(1-γ)² · E_η̂ min(1, √( (2/n(s,a)) ln(|S||A|/δ) ))
    sound Theorem 1       -W D √( 2 ln(2C̄/δ) / n_min ),  with contrast  -W D √( ln(C̄/δ) / n_min )
    sound Theorem 2       -W ( D √( 2 ln(2M/δ) / n_min ) + 3 ε_r )

C is the number of pairs with n(s,a) >= n_min (by trajectory), M the number of centres of an r-net
over the core points, n the number of transitions, n(s,a) visits of a pair, and M̂ the
maximum-likelihood MDP. V is the largest absolute return, max(|v_min|, |v_max|), D = v_max - v_min,
C̄ = min(|S||A|, ⌊N H / n_min⌋), W = 1 + γ + … + γ^(H-1). I⁻¹(p; α, β) is the p-quantile of a beta
distribution.

Everything stays in logarithms (|S| ln 2, never 2^|S|). C = 0 gives 0: a policy that changes nothing
is the behaviour. At γ = 1 a bound with 1/(1-γ) is minus infinity: nothing is claimed.

Most of these numbers say less than "no policy is worse than another by more than v_max - v_min".
Such a bound is called vacuous, and it is marked as such wherever it is printed.

The theorem of each rival is about the policy that the rival's own learner returns; here its formula
is evaluated for the given policy. Sources: Sharma, Benac, Parbhoo, Doshi-Velez, AISTATS 2025
(DPRL); Laroche, Trichelair, Tachet des Combes, ICML 2019 (SPIBB); Wienhöft, Suilen, Simão,
Dubslaff, Baier, Jansen, IJCAI 2023 (two successors); Liu, Swaminathan, Agarwal, Brunskill, NeurIPS
2020 (PQI); Kim, Oh, ICML 2023 (Count-MORL).

Departures from the papers:

* Theorem 1 of DPRL is taken from its statement. The last line of its proof has 1/(2 n_min), which
  is false for this estimator.
* The beta interval of two-successor MDPs is that of a posterior for a share of 1/2, put around the
  share that was seen. At a level of .05 it misses the true share in up to 13 % of logs with 11
  visits, 7 % with 60 and 5.4 % with 1,000; at smaller levels by larger factors.
* PQI leaves constants and logarithms open: here they are 1, and the iterations are infinitely many.
* η̂ = (1-γ) ∑ γ^t P(s_t, a_t) of π in M̂, a distribution over pairs and the time after an episode's
  end, which counts as exactly known. Normalised over the pairs alone Count-MORL's bound would be
  larger in size by the factor 1 / (1 - E γ^T), T the length of an episode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from dprl._core.arrays import Floats
from dprl._core.checks import (
    Cut,
    check_choice,
    check_delta,
    check_flag,
    check_gamma,
    check_n_min,
    check_number,
    check_whole,
    is_number,
)
from dprl._core.table import Table
from dprl.errors import ParameterError
from dprl.evidence.counts import evidence
from dprl.logs.censoring import treat_cut
from dprl.logs.log import Log
from dprl.logs.returns import span
from dprl.logs.source import check_claim
from dprl.planning.model import Model, estimate

# --- Bound: a lower bound on what a policy gains, beside the bound that needs no data


@dataclass(frozen=True)
class Bound:
    """A lower bound on ρ(π) - ρ(b), with the bound that needs no data beside it.

    ρ(π) is the value of the policy and ρ(b) the value of usual practice (the behaviour), both in
    units of returns.

    Attributes:
        name: Name of the theorem, for example "DPRL Theorem 1".
        value: The bound, in units of returns; minus infinity where nothing is claimed.
        trivial: -(v_max - v_min), the bound that holds for any two policies.
        delta: Probability with which the bound may fail.
        note: Where the bound was published, and what it leaves open.

    Example:
        >>> bound = Bound("an example", -0.2, -1.0, 0.05, "made by hand")
        >>> bound.vacuous
        False
        >>> print(bound)
        an example: ρ(π) - ρ(b) >= -0.2 with probability 0.95 (the trivial bound is -1)
          made by hand
    """

    name: str
    value: float
    trivial: float
    delta: float
    note: str

    @property
    def vacuous(self) -> bool:
        """Whether the bound says no more than the trivial bound.

        Returns:
            True where `value` is not above `trivial`.

        Example:
            >>> Bound("an example", -1.5, -1.0, 0.05, "made by hand").vacuous
            True
        """
        return not self.value > self.trivial

    def __str__(self) -> str:
        word = "VACUOUS: " if self.vacuous else ""
        return (
            f"{self.name}: ρ(π) - ρ(b) >= {self.value:.4g} with probability "
            f"{1 - self.delta:.6g} ({word}the trivial bound is {self.trivial:.4g})\n  {self.note}"
        )


# --- Lower bounds on ρ(π) - ρ(b) from the literature, for comparison, and sound Theorems 1 and 2


def dprl_theorem_1(
    pairs: int, n_min: float, *, gamma: float, v_max: float, delta: float, v_min: float = 0.0
) -> Bound:
    """DPRL Theorem 1, as stated in the paper.

    Args:
        pairs: C, the number of pairs (state, action) with n(s,a) >= n_min.
        n_min: Trajectories that an action needs behind it, at least 1.
        gamma: Discount per step, in (0, 1]. At 1 the bound is minus infinity.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> bound = dprl_theorem_1(100, 50, gamma=0.9, v_max=1.0, delta=0.05)
        >>> round(bound.value, 3), bound.trivial, bound.vacuous
        (-3.899, -1.0, True)
    """
    pairs, n_min = check_whole("pairs", pairs, 0), check_n_min(n_min)
    V, D = _range(v_min, v_max, gamma)
    loss = _over(gamma, V * math.sqrt(_log(pairs, delta) / n_min)) if pairs else 0.0
    return _bound("DPRL Theorem 1", -loss, D, delta, "Sharma et al. 2025, as stated.")


def dprl_theorem_2(
    centres: int,
    n_min: float,
    eps_r: float,
    *,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
) -> Bound:
    """DPRL Theorem 2 (continuous states) as printed; it is not valid as stated.

    The policy may lose 3 ε_r at every step, so that term lacks the factor 1/(1-γ) of the other; and
    the constant 1/(2 n_min) belongs to the comparison of one mean with a known number, but the rule
    compares two estimates. The formula is here for comparison only: `sound_theorem_2` can be
    proved.

    Args:
        centres: M(r, n_min), the number of centres of greedy r-nets over the core pairs of state
            and action (`dprl.evidence.neighbors.engine.net_size`).
        n_min: Trajectories that an action needs behind it, at least 1.
        eps_r: ε_r, how much values may vary within a ball of radius r, in units of returns.
        gamma: Discount per step, in (0, 1]. At 1 the bound is minus infinity.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> bound = dprl_theorem_2(100, 50, 0.01, gamma=0.9, v_max=1.0, delta=0.05)
        >>> round(bound.value, 3), bound.note
        (-2.787, 'Sharma et al. 2025, as printed; NOT VALID as stated.')
    """
    centres, n_min = check_whole("centres", centres, 0), check_n_min(n_min)
    V, D = _range(v_min, v_max, gamma)
    check_number("eps_r", eps_r, "[0, infinity)")
    loss = 0.0
    if centres:
        loss = _over(gamma, V * math.sqrt(_log(centres, delta) / (2 * n_min))) + 3 * eps_r
    note = "Sharma et al. 2025, as printed; NOT VALID as stated."
    return _bound("DPRL Theorem 2", -loss, D, delta, note)


def spibb_theorem_2(
    states: int,
    actions: int,
    n_min: float,
    gain: float,
    *,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
) -> Bound:
    """SPIBB Theorem 2 (Laroche et al. 2019).

    Args:
        states: S, the number of states.
        actions: A, the number of actions.
        n_min: Visits that SPIBB asks for before a pair may be changed, at least 1.
        gain: ρ(π, M̂) - ρ(b, M̂), the gain in the maximum-likelihood MDP, in units of returns.
        gamma: Discount per step, in (0, 1]. At 1 the bound is minus infinity.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> bound = spibb_theorem_2(8, 4, 50, 0.1, gamma=0.9, v_max=1.0, delta=0.05)
        >>> round(bound.value, 2)
        -28.41
    """
    n_min = check_n_min(n_min)
    V, D = _range(v_min, v_max, gamma)
    check_number("gain", gain, "(-infinity, infinity)")
    error = _error(states, actions, n_min, delta, "weissman")
    value = gain - _over(gamma, 4 * V * error)
    return _bound("SPIBB Theorem 2", value, D, delta, "Laroche et al. 2019.")


Interval = Literal["weissman", "two successors", "beta"]


def spibb_two_successors(
    states: int,
    actions: int,
    n_min: float,
    gain: float,
    *,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
    beta: bool = False,
) -> Bound:
    """SPIBB with the guarantee of two-successor MDPs (Wienhöft et al. 2023).

    Every transition is thought of as a few transitions with two successors each. A distribution
    over two outcomes is learned from far fewer visits than one over all states: a term in S becomes
    a logarithm. The policy is that of SPIBB; only what is promised of it differs.

    Args:
        states: S, the number of states.
        actions: A, the number of actions.
        n_min: Visits that SPIBB asks for before a pair may be changed, at least 1.
        gain: ρ(π, M̂) - ρ(b, M̂), the gain in the maximum-likelihood MDP, in units of returns.
        gamma: Discount per step, in (0, 1]. At 1 the bound is minus infinity.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.
        beta: Whether to use quantiles of the beta distribution instead of Weissman's inequality;
            they are sharper, but of a posterior, and may fail more often than `delta` with few
            visits. Default False.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> given = {"gamma": 0.9, "v_max": 1.0, "delta": 0.05}
        >>> round(spibb_two_successors(8, 4, 50, 0.1, **given).value, 2)
        -27.62
        >>> round(spibb_two_successors(8, 4, 50, 0.1, beta=True, **given).value, 2)
        -20.84
    """
    n_min = check_n_min(n_min)
    V, D = _range(v_min, v_max, gamma)
    check_number("gain", gain, "(-infinity, infinity)")
    check_flag("beta", beta)
    error = _error(states, actions, n_min, delta, "beta" if beta else "two successors")
    name = "SPIBB, two successors" + ", beta" * beta
    note = "Wienhöft et al. 2023" + "; NOT VALID for few visits" * beta + "."
    return _bound(name, gain - _over(gamma, 4 * V * error), D, delta, note)


def visits_needed(
    loss: float,
    states: int,
    actions: int,
    *,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
    interval: Interval = "weissman",
) -> int:
    """The n_min with which SPIBB loses no more than so much, whatever the maximum-likelihood MDP.

    Args:
        loss: What may be lost beside usual practice, in units of returns, above 0.
        states: S, the number of states.
        actions: A, the number of actions.
        gamma: Discount per step, in (0, 1).
        v_max: Largest return there can be, known beforehand.
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.
        interval: What the guarantee rests on: "weissman" (SPIBB's Theorem 2), "two successors" or
            "beta" (`spibb_two_successors`). Default "weissman".

    Returns:
        The smallest such n_min.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> given = {"gamma": 0.95, "v_max": 1.0, "delta": 0.1}
        >>> [visits_needed(0.5, 376, 4, interval=i, **given)
        ...  for i in ("weissman", "two successors", "beta")]
        [13871870, 973507, 766844]
    """
    check_number("loss", loss, "(0, infinity)")
    check_number("gamma", gamma, "(0, 1)")
    check_choice("interval", interval, ("weissman", "two successors", "beta"))
    V, _ = _range(v_min, v_max, gamma)
    wanted = loss * (1 - gamma) / (4 * V)

    def enough(n: int) -> bool:
        return _error(states, actions, n, delta, interval) <= wanted

    high = 1
    while not enough(high):
        high *= 2
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _error(states: int, actions: int, n: float, delta: float, interval: Interval) -> float:
    """How far a distribution learned from n visits may be from the true one, over all states."""
    S, A = check_whole("states", states, 1), check_whole("actions", actions, 1)
    if interval == "weissman":
        return math.sqrt(2 / n * (_log(2 * S * A, delta) + S * math.log(2)))
    if interval == "two successors":
        return math.sqrt(2 / n * _log(8 * S**2 * A**2, delta))
    if math.isinf(n):
        return 0.0
    from scipy.special import betaincinv

    level = math.exp(-_log(2 * S**2 * A**2, delta))
    low = float(betaincinv(n / 2 + 1, n / 2 + 1, level)) if level > 0 else 0.0
    return 1 - 2 * low if math.isfinite(low) else 1.0


def pqi_corollary_2(
    states: int,
    actions: int,
    transitions: int,
    *,
    b: float,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
) -> Bound:
    """PQI Corollary 2 (Liu et al. 2020), with its open constants and logarithms set to 1.

    delta does not change the value: ln(1/δ) is among the factors that the corollary leaves open.

    Args:
        states: S, the number of states.
        actions: A, the number of actions.
        transitions: n, the number of steps in the log.
        b: The threshold of PQI's filter on the share n(s,a)/n, in (0, 1].
        gamma: Discount per step, in (0, 1]. At 1 the bound is minus infinity.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> bound = pqi_corollary_2(8, 4, 10_000, b=0.01, gamma=0.9, v_max=1.0, delta=0.05)
        >>> round(bound.value)
        -5977
    """
    S, A = check_whole("states", states, 1), check_whole("actions", actions, 1)
    n = check_whole("transitions", transitions, 1)
    V, D = _range(v_min, v_max, gamma)
    check_number("b", b, "(0, 1]")
    share = S * A / n
    loss = _over(gamma, V / b * (share + math.sqrt(share)), 3)
    note = "Liu et al. 2020; constants and logarithms taken as 1, so δ does not enter."
    return _bound("PQI Corollary 2", -loss, D, delta, note)


def count_morl_theorem_2(
    error: float, *, gamma: float, v_max: float, delta: float, v_min: float = 0.0
) -> Bound:
    """Count-MORL Theorem 2 (Kim and Oh 2023).

    Args:
        error: The expected model error, in [0, 1]: the mean of `count_errors` over the pairs that
            the policy visits (η̂ in the module's formulas), computed with the same delta.
        gamma: Discount per step, in (0, 1]. At 1 the bound is minus infinity.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> round(count_morl_theorem_2(0.2, gamma=0.9, v_max=1.0, delta=0.05).value, 6)
        -18.0
    """
    V, D = _range(v_min, v_max, gamma)
    check_number("error", error, "[0, 1]")
    value = -_over(gamma, gamma * V * error, 2)
    return _bound("Count-MORL Theorem 2", value, D, delta, "Kim and Oh 2023.")


def count_errors(visits: Any, states: int, actions: int, delta: float) -> Floats:
    """The model error that Count-MORL allows for each pair: ``min(1, √((2/n) ln(|S||A|/δ)))``.

    Args:
        visits: Visits n(s,a) of each pair, an array of any shape; 0 visits give the error 1.
        states: S, the number of states.
        actions: A, the number of actions.
        delta: Probability of failure, in (0, 1).

    Returns:
        float64, the shape of `visits`, each in [0, 1].

    Raises:
        ParameterError: A count is below 0 or missing, or another argument is outside its range.

    Example:
        >>> count_errors([0, 10, 1000], 8, 4, 0.05).round(3).tolist()
        [1.0, 1.0, 0.114]
    """
    n = np.asarray(visits, np.float64)
    if not (n >= 0).all():
        raise ParameterError("visits must be counts; some are below 0 or missing.")
    pairs = check_whole("states", states, 1) * check_whole("actions", actions, 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.minimum(1.0, np.sqrt(2 * _log(pairs, delta) / n)))


def sound_theorem_1(
    states: int,
    actions: int,
    episodes: int,
    horizon: float,
    n_min: float,
    *,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
    contrast: bool = False,
) -> Bound:
    """Theorem 1 with a constant that can be proved.

    Args:
        states: S, the number of states.
        actions: A, the number of actions.
        episodes: N, the number of independent trajectories in the log.
        horizon: H, the largest number of steps a trajectory can have; it may be infinite where
            gamma < 1.
        n_min: Trajectories that an action needs behind it, at least 1.
        gamma: Discount per step, in (0, 1]; 1 is fine here, W is then H.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.
        contrast: True for a rule that compares the two groups at first visits (the learner's
            `contrast`): the bound is then sharper. Default False.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> bound = sound_theorem_1(8, 4, 4000, 2, 2000, gamma=1.0, v_max=1.0, delta=0.05)
        >>> round(bound.value, 4), bound.vacuous
        (-0.1425, False)
    """
    S, A = check_whole("states", states, 1), check_whole("actions", actions, 1)
    N, n_min = check_whole("episodes", episodes, 1), check_n_min(n_min)
    H = horizon if horizon == math.inf else check_whole("horizon", horizon, 1)
    D = _range(v_min, v_max, gamma)[1]
    pairs = 0
    if n_min < math.inf:
        pairs = S * A if math.isinf(H) else min(S * A, N * int(H) // int(n_min))
    loss = 0.0
    if pairs:
        log = _log(pairs, delta) if contrast else 2 * _log(2 * pairs, delta)
        loss = _steps(gamma, H) * D * math.sqrt(log / n_min)
    name = f"sound Theorem 1{' (contrast)' if contrast else ''}"
    return _bound(name, -loss, D, delta, "Theorem 1 with a constant that can be proved.")


def sound_theorem_2(
    pairs: int,
    n_min: float,
    eps_r: float,
    horizon: float = math.inf,
    *,
    gamma: float,
    v_max: float,
    delta: float,
    v_min: float = 0.0,
) -> Bound:
    """Theorem 2 as it can be proved: the loss within a ball counts at every step.

    It is about a policy that decides at finitely many places, each by the ball of radius r around
    it, and acts in every state as the place whose ball the state lies in (or defers).

    Args:
        pairs: The number of pairs of a place and an action among which it chooses, fixed without
            the returns: places times actions, or centres of nets (`net_size`).
        n_min: Trajectories that an action needs behind it in the ball, at least 1.
        eps_r: ε_r, how much V of usual practice, and Q of each action, may differ between two
            states of one ball, in units of returns.
        horizon: H, the largest number of steps a trajectory can have. Default infinity.
        gamma: Discount per step, in (0, 1]; at 1 the horizon must be finite to say anything.
        v_max: Largest return there can be, known beforehand (never the largest of the sample).
        delta: Probability with which the bound may fail, in (0, 1).
        v_min: Smallest return there can be, known beforehand. Default 0.

    Returns:
        The bound, in units of returns, with the trivial bound beside it.

    Raises:
        ParameterError: An argument is outside its range.

    Example:
        >>> bound = sound_theorem_2(100, 5_000, 0.01, 5, gamma=1.0, v_max=1.0, delta=0.05)
        >>> round(bound.value, 3), bound.vacuous
        (-0.438, False)
    """
    pairs, n_min = check_whole("pairs", pairs, 0), check_n_min(n_min)
    H = horizon if horizon == math.inf else check_whole("horizon", horizon, 1)
    D = _range(v_min, v_max, gamma)[1]
    check_number("eps_r", eps_r, "[0, infinity)")
    loss = 0.0
    if pairs and n_min < math.inf:
        chance = D * math.sqrt(2 * _log(2 * pairs, delta) / n_min)
        loss = _steps(gamma, H) * (chance + 3 * eps_r)
    note = "Theorem 2 with the factor and the constant that can be proved."
    return _bound("sound Theorem 2", -loss, D, delta, note)


def _steps(gamma: float, H: float) -> float:
    """W, the discounted number of steps of a trajectory of at most H."""
    return H if gamma == 1 else _over(gamma, -math.expm1(H * math.log(gamma)))


def _bound(name: str, value: float, D: float, delta: float, note: str) -> Bound:
    return Bound(name, value + 0.0, -D, check_delta(delta), note)


def _over(gamma: float, x: float, power: int = 1) -> float:
    """x / (1-γ)^power, infinite at γ = 1 whatever x."""
    return math.inf if gamma == 1 else x / (1 - gamma) ** power


def _log(count: int, delta: float) -> float:
    """ln(count/δ), for counts of any size."""
    return math.log(count) - math.log(check_delta(delta))


def _range(v_min: float, v_max: float, gamma: float) -> tuple[float, float]:
    """V, the largest absolute return, and D, the width of the range; gamma is checked too."""
    check_gamma(gamma)
    if not (is_number(v_min) and is_number(v_max) and -math.inf < v_min < v_max < math.inf):
        raise ParameterError(
            f"v_min must be below v_max, both finite; got {v_min!r} and {v_max!r}."
        )
    return float(max(abs(v_min), abs(v_max))), float(v_max - v_min)


# --- What the published bounds say about a policy and its log, in one table
#
# Each formula of `dprl.certificate.bounds`, with its numbers taken from a log: C(n_min) from the
# evidence (by trajectory), ρ(π, M̂) - ρ(b, M̂) and η̂ from the maximum-likelihood MDP M̂ (by
# visit), where b is the estimated behaviour π̂_b. DPRL's Theorem 2 is about continuous states and
# is not among them.
#
# E_η̂ f can be computed without η̂ itself: where f is paid as a reward, the value of π is
# ∑ γ^t E f(s_t, a_t), so
#
#     E_η̂ f = (1-γ) ρ(π, M̂ with R = f)


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
    log = treat_cut(log, gamma, cut)
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
