r"""Lower bounds on ρ(π) - ρ(b) from the literature, for comparison, and a sound Theorem 1.

    DPRL Theorem 1        -V/(1-γ) · √( ln(C/δ) / n_min )
    DPRL Theorem 2        -V/(1-γ) · √( ln(M/δ) / (2 n_min) ) - 3 ε_r
    SPIBB Theorem 2       -4V/(1-γ) · √( (2/n_min) (ln(2|S||A|/δ) + |S| ln 2) ) + ρ(π,M̂) - ρ(b,M̂)
    PQI Corollary 2       -V/(b (1-γ)³) · ( |S||A|/n + √(|S||A|/n) )
    Count-MORL Theorem 2  -γV/(1-γ)² · E_η̂ min(1, √( (2/n(s,a)) ln(|S||A|/δ) ))
    sound Theorem 1       -W D √( 2 ln(2C̄/δ) / n_min ),  with contrast  -W D √( ln(C̄/δ) / n_min )

C is the number of pairs with n(s,a) >= n_min (by trajectory), M the number of centres of an r-net
over the core points, n the number of transitions, n(s,a) visits of a pair, and M̂ the
maximum-likelihood MDP. V is the largest size of a return, max(|v_min|, |v_max|), D = v_max - v_min,
C̄ = min(|S||A|, ⌊N H / n_min⌋), W = 1 + γ + … + γ^(H-1).

Everything stays in logarithms (|S| ln 2, never 2^|S|). C = 0 gives 0: a policy that changes nothing
is the behaviour. At γ = 1 a bound with 1/(1-γ) is minus infinity: nothing is claimed.

Most of these numbers say less than "no policy is worse than another by more than v_max - v_min".
Such a bound is called vacuous, and says so wherever it is printed.

Each rival's theorem is about the policy its own learner returns; here its formula is evaluated for
the policy at hand. Sources: Sharma, Benac, Parbhoo, Doshi-Velez, AISTATS 2025 (DPRL); Laroche,
Trichelair, Tachet des Combes, ICML 2019 (SPIBB); Liu, Swaminathan, Agarwal, Brunskill, NeurIPS 2020
(PQI); Kim, Oh, ICML 2023 (Count-MORL).

Departures from the papers:

* Theorem 1 of DPRL is taken from its statement. The last line of its proof has 1/(2 n_min), which
  is false for this estimator.
* PQI leaves constants and logarithms open: here they are 1, and the iterations are infinitely many.
* η̂ = (1-γ) ∑ γ^t P(s_t, a_t) of π in M̂, a distribution over pairs and the time after an episode's
  end, which counts as exactly known. Normalised over the pairs alone Count-MORL's bound would be
  larger in size by the factor 1 / (1 - E γ^T), T the length of an episode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.checks import (
    check_delta,
    check_gamma,
    check_n_min,
    check_number,
    check_whole,
    is_number,
)
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
]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bound:
    """A lower bound on ρ(π) - ρ(b), beside the one that needs no data.

    Attributes:
        name: Whose it is.
        value: The bound; minus infinity where nothing is claimed.
        trivial: -(v_max - v_min), which holds for any two policies.
        delta: It may fail with at most this probability.
        note: Where it was published, and what it leaves open.
    """

    name: str
    value: float
    trivial: float
    delta: float
    note: str

    @property
    def vacuous(self) -> bool:
        """Whether it says no more than the trivial bound."""
        return not self.value > self.trivial

    def __str__(self) -> str:
        word = "VACUOUS: " if self.vacuous else ""
        return (
            f"{self.name}: ρ(π) - ρ(b) >= {self.value:.4g} with probability "
            f"{1 - self.delta:.6g} ({word}the trivial bound is {self.trivial:.4g})\n  {self.note}"
        )


def dprl_theorem_1(
    pairs: int, n_min: float, *, gamma: float, v_max: float, delta: float, v_min: float = 0.0
) -> Bound:
    """DPRL Theorem 1, of C = `pairs` pairs with n(s,a) >= n_min."""
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

    Its 1/(2 n_min) is the constant of one mean against a known number, while the rule compares two
    estimates. It is here to be compared with, not to be relied on.

    Args:
        centres: M(r, n_min), centres of a greedy r-net over the core points.
        n_min: Trajectories an action needs behind it.
        eps_r: ε_r, how much values may vary within a ball of radius r.
        gamma: Discount.
        v_max: Largest return, known beforehand.
        delta: Probability of failure.
        v_min: Smallest return, known beforehand.
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
    """SPIBB Theorem 2; gain = ρ(π, M̂) - ρ(b, M̂) in the maximum-likelihood MDP."""
    S, A = check_whole("states", states, 1), check_whole("actions", actions, 1)
    n_min = check_n_min(n_min)
    V, D = _range(v_min, v_max, gamma)
    check_number("gain", gain, "(-infinity, infinity)")
    root = math.sqrt(2 / n_min * (_log(2 * S * A, delta) + S * math.log(2)))
    value = gain - _over(gamma, 4 * V * root)
    return _bound("SPIBB Theorem 2", value, D, delta, "Laroche et al. 2019.")


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
    """PQI Corollary 2, with constants 1; b is the filter's threshold on n(s,a)/n.

    delta does not enter: ln(1/δ) is among the factors the corollary leaves open.
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
    """Count-MORL Theorem 2; error = E_η̂ of `count_errors` at the same delta, in [0, 1]."""
    V, D = _range(v_min, v_max, gamma)
    check_number("error", error, "[0, 1]")
    value = -_over(gamma, gamma * V * error, 2)
    return _bound("Count-MORL Theorem 2", value, D, delta, "Kim and Oh 2023.")


def count_errors(visits: Any, states: int, actions: int, delta: float) -> Floats:
    """``min(1, √((2/n) ln(|S||A|/δ)))`` of each n = n(s,a) in `visits`; n = 0 gives 1."""
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
        states: How many states there are.
        actions: How many actions there are.
        episodes: N, independent trajectories in the log.
        horizon: H, no trajectory is longer; may be infinite where gamma < 1.
        n_min: Trajectories an action needs behind it.
        gamma: Discount; 1 is fine here, W is then H.
        v_max: Largest return, known beforehand (never the sample's own).
        delta: Probability of failure.
        v_min: Smallest return, known beforehand.
        contrast: For a rule with `contrast`, comparing first-visit-action groups: the better form.
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
    """V, the largest size of a return, and D, the width of their range; gamma is checked too."""
    check_gamma(gamma)
    if not (is_number(v_min) and is_number(v_max) and -math.inf < v_min < v_max < math.inf):
        raise ParameterError(
            f"v_min must be below v_max, both finite; got {v_min!r} and {v_max!r}."
        )
    return float(max(abs(v_min), abs(v_max))), float(v_max - v_min)
