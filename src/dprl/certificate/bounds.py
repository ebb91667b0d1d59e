r"""Lower bounds on ρ(π) - ρ(b) from the literature, for comparison, and a sound Theorem 1.

    DPRL Theorem 1        -V/(1-γ) · √( ln(C/δ) / n_min )
    DPRL Theorem 2        -V/(1-γ) · √( ln(M/δ) / (2 n_min) ) - 3 ε_r
    SPIBB Theorem 2       -4V/(1-γ) · √( (2/n_min) (ln(2|S||A|/δ) + |S| ln 2) ) + ρ(π,M̂) - ρ(b,M̂)
    … two successors      -4V/(1-γ) · √( (2/n_min) ln(8|S|²|A|²/δ) ) + ρ(π,M̂) - ρ(b,M̂)
    … and beta            -4V/(1-γ) · (1 - 2 I⁻¹(δ/(2|S|²|A|²); n_min/2+1, n_min/2+1)) + the same
    PQI Corollary 2       -V/(b (1-γ)³) · ( |S||A|/n + √(|S||A|/n) )
    Count-MORL Theorem 2  -γV/(1-γ)² · E_η̂ min(1, √( (2/n(s,a)) ln(|S||A|/δ) ))
    sound Theorem 1       -W D √( 2 ln(2C̄/δ) / n_min ),  with contrast  -W D √( ln(C̄/δ) / n_min )

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
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import (
    check_choice,
    check_delta,
    check_flag,
    check_gamma,
    check_n_min,
    check_number,
    check_whole,
    is_number,
)
from dprl.certificate._bound import Bound
from dprl.errors import ParameterError

__all__ = [
    "Bound",
    "count_errors",
    "count_morl_theorem_2",
    "dprl_theorem_1",
    "dprl_theorem_2",
    "pqi_corollary_2",
    "sound_theorem_1",
    "spibb_theorem_2",
    "spibb_two_successors",
    "visits_needed",
]

Floats = NDArray[np.float64]


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

    The constant 1/(2 n_min) belongs to the comparison of one mean with a known number, but the
    rule compares two estimates. The formula is here for comparison only: do not rely on it.

    Args:
        centres: M(r, n_min), the number of centres of a greedy r-net over the core points.
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
        W = H if gamma == 1 else _over(gamma, -math.expm1(H * math.log(gamma)))
        log = _log(pairs, delta) if contrast else 2 * _log(2 * pairs, delta)
        loss = W * D * math.sqrt(log / n_min)
    name = f"sound Theorem 1{' (contrast)' if contrast else ''}"
    return _bound(name, -loss, D, delta, "Theorem 1 with a constant that can be proved.")


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
