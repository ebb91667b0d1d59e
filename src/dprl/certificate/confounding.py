r"""The gate under an unrecorded cause: a claim is tested again with its outcomes at their worst.

`dprl._core.inference` explains Γ and φ. Let x be the returns of those who took an action, y those
of the others, both in unit range. If the action is no improvement although odds of treatment are
moved by no more than Γ, then E φ(x) <= E y, for every θ. So an e-value of "E φ(x) <= E y" is one of
"no improvement, at Γ". φ(x) lies in [-c, 1] with c = θ (Γ - 1): both φ(x) and y are moved to
(v + c) / (1 + c), which is in [0, 1] again. Any e-value of "E x <= E y" can then be used; here it
is the one of first visits (`dprl.certificate.evalues`).

θ comes from the part of the log that proposed: the 1/(1 + Γ) quantile of its x. Where no such part
is at hand, `THETAS` are tried, each with its share of the level.

**Γ* of a certified pair** is the largest of the fixed values Γ_1 < Γ_2 < .. up to which it passes
without a gap. Say that the pair is no improvement and odds are moved by up to Γ'. Then it is no
improvement at every Γ_k >= Γ'. To state Γ* >= Γ' it must pass at the first of these, which is one
test, fixed beforehand: the chance is at most its level. So nothing is paid for looking at many Γ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.checks import Cut
from dprl._core.inference import GAMMAS, breakdown, threshold, worst_case
from dprl.certificate.evalues import UNITS, FirstReturns, binned, differences, first_returns
from dprl.logs.log import Log
from dprl.logs.source import Source

THETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""θ that are tried where no other part of the log can choose one."""


@dataclass(frozen=True, eq=False)
class UnmeasuredCause:
    """The outcomes of some pairs, ready to be tested at any Γ.

    Attributes:
        took: For each pair, float64: outcomes in unit range of those who took the action.
        others: For each pair, float64: outcomes of those who did otherwise.
        proposed: For each pair, the outcomes of those who took it in the part that proposed; empty
            where there is no such part.
        width: The width of the range of returns.
    """

    took: tuple[Floats, ...]
    others: tuple[Floats, ...]
    proposed: tuple[Floats, ...]
    width: float

    @classmethod
    def of(
        cls,
        source: Source | Log,
        pairs: tuple[NDArray[Any], ...],
        gamma: float,
        value_range: tuple[float, float],
        proposed_by: Source | Log | None,
        cut: Cut | None = None,
    ) -> UnmeasuredCause:
        """The outcomes at first visits.

        Args:
            source: The log that certifies; its states are labels.
            pairs: States and actions of the pairs, as codes; "not a" comes after all a.
            gamma: Discount per step.
            value_range: (lowest, highest) return there can be.
            proposed_by: The part of the log that proposed, with the same states and actions; None
                where there is none.
            cut: What is done with cut episodes, of both. Default None: they have none.
        """
        wanted = np.zeros(source.facts.n_states, bool)
        wanted[pairs[0]] = True
        visits = first_returns(source, wanted, gamma, cut)
        A = source.facts.n_actions
        took, others = _divided(visits, pairs, value_range, A)
        proposed = [np.empty(0)] * len(took)
        if proposed_by is not None:
            before = first_returns(proposed_by, wanted, gamma, cut)
            proposed = _divided(before, pairs, value_range, A)[0]
        width = value_range[1] - value_range[0]
        return cls(tuple(took), tuple(others), tuple(proposed), width)

    def at(self, gamma: float, alpha: float, pairs: Ints) -> tuple[Floats, Floats]:
        """Lower bounds of E[r x] - E y in units of returns, and log e-values, for some pairs.

        Args:
            gamma: Γ, at least 1.
            alpha: Level of each pair, in (0, 1).
            pairs: The places (k,) of the pairs.
        """
        low, log_e = np.full(len(pairs), -np.inf), np.full(len(pairs), -np.inf)
        alone = np.array([len(self.proposed[i]) == 0 for i in pairs], bool)
        for places in (np.flatnonzero(alone), np.flatnonzero(~alone)):
            if not len(places):
                continue
            tried = THETAS if alone[places[0]] else (None,)
            for theta in tried:
                bounds, e = self._with(theta, gamma, alpha / len(tried), pairs[places])
                low[places] = np.maximum(low[places], bounds)
                log_e[places] = np.maximum(log_e[places], e - math.log(len(tried)))
        return low, log_e

    def strongest(
        self, passed: Bools, alpha: float, start: float, margin: float, weight: Floats
    ) -> Floats:
        """Γ* of the pairs that passed at `start`; NaN for others.

        Args:
            passed: bool (P,), the pairs that passed.
            alpha: Level of each pair.
            start: Γ at which they passed.
            margin: The advantage that a pair must exceed.
            weight: float64 (P,), the least share of those who did otherwise: advantages are at
                least the lower bound times this.
        """
        result = np.full(len(passed), np.nan)
        result[passed] = start
        left = np.flatnonzero(passed)
        nats = -math.log(alpha) - 1e-12
        for gamma in GAMMAS[start < GAMMAS]:
            if not len(left):
                break
            low, log_e = self.at(float(gamma), alpha, left)
            good = log_e >= nats
            if margin > 0:
                good &= weight[left] * low > margin
            left = left[good]
            result[left] = gamma
        return result

    def points(self) -> Floats:
        """float64 (P,): Γ* as estimated from all outcomes, without allowance for chance."""
        return np.array([
            breakdown(x, float(y.mean())) if len(x) and len(y) else 1.0
            for x, y in zip(self.took, self.others, strict=True)
        ])  # fmt: skip

    def _with(
        self, theta: float | None, gamma: float, alpha: float, pairs: Ints
    ) -> tuple[Floats, Floats]:
        """As `at`, with one θ for all pairs, or with the one that the proposing part chooses."""
        code, values, scale = [np.empty(0, np.int64)], [np.empty(0)], np.ones(len(pairs))
        for k, i in enumerate(pairs):
            own = threshold(self.proposed[i], gamma) if theta is None else theta
            below = own * (gamma - 1)
            # A whole number of units from 0 to the top: outcomes at the ends are not rounded.
            scale[k] = UNITS / max(math.floor(UNITS / (1 + below) + 1e-9), 1)
            worst = worst_case(self.took[i], own, gamma)
            for side, outcomes in enumerate((worst, self.others[i])):
                code.append(np.full(len(outcomes), 2 * k + side))
                values.append(1 - (1 - outcomes) / scale[k])
        counts = binned(
            np.concatenate(code), np.concatenate(values), (0.0, 1.0), 1.0,
            tuple(range(len(pairs))), (0, 1), 0,
        )  # fmt: skip
        result = differences(counts, 2 * np.arange(len(pairs)), alpha)
        return np.asarray(result.low * scale * self.width), result.log_e


def _divided(
    visits: FirstReturns, pairs: tuple[NDArray[Any], ...], value_range: tuple[float, float], A: int
) -> tuple[list[Floats], list[Floats]]:
    """Outcomes in unit range at first visits: of those who took the action, and of the others."""
    low, high = value_range
    values = np.clip((visits.G - low) / (high - low), 0.0, 1.0)
    took, others = [], []
    for s, a in zip(*pairs, strict=True):
        own = visits.of_state(s)
        here = (visits.action[own] == a % A) != (a >= A)
        took.append(values[own][here])
        others.append(values[own][~here])
    return took, others
