r"""What an ungated policy seems to gain, from groups it never saw: approximate, and says so.

The elevated semi-MDP of a held-out log, with the policy's own choice at every decision point,

    V = R̃_π + D_π V            ρ̂(π) = mean over episodes of (reward before the first decision
                                point + γ^k V there, or the whole return where none is met)
    gain = ρ̂(π) - mean G_0

bootstrapped over whole groups (percentiles). A decision point whose suggestion nobody followed in
the held-out log is left to usual practice, and counted.

No bound is proved here: the interval is approximate, and it must never be computed on the log that
chose the policy, where it covered the truth in .55 to .73 of datasets in place of .95.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.linear import solve
from dprl.errors import ParameterError
from dprl.evidence.tabular import check_gamma, tally
from dprl.logs._censoring import settle
from dprl.logs._overlap import refuse_seen
from dprl.logs.log import Cut, Log
from dprl.logs.returns import returns
from dprl.planning._neighbor_semi_mdp import segments
from dprl.policies._decisions import DEFER
from dprl.policies._protocol import Policy

__all__ = ["ApproximateGain", "approximate_gain", "estimate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ApproximateGain:
    """A bootstrap estimate of ρ(π) - ρ(b) on held-out groups; approximate.

    Attributes:
        gain: The estimate.
        low: Lower end of the interval.
        high: Upper end.
        level: Nominal coverage.
        groups: Held-out groups.
        points: Decision points whose suggestion somebody followed there.
        unfollowed: Decision points met there whose suggestion nobody followed.
    """

    gain: float
    low: float
    high: float
    level: float
    groups: int
    points: int
    unfollowed: int

    def to_dict(self) -> Mapping[str, Any]:
        """Everything, as plain values."""
        return dict(vars(self))

    def __str__(self) -> str:
        lines = (
            f"APPROXIMATE: ρ(π) - ρ(b) is {self.gain:+.4g}, {100 * self.level:g} % bootstrap "
            f"interval {self.low:+.4g}..{self.high:+.4g}, over {self.groups:,} held-out groups."
        )
        if self.unfollowed:
            lines += (
                f"\nNobody followed the suggestion at {self.unfollowed:,} of "
                f"{self.points + self.unfollowed:,} decision points met: they count as usual "
                "practice."
            )
        return lines


def approximate_gain(
    policy: Policy,
    log: Log,
    *,
    level: float = 0.95,
    draws: int = 1_000,
    seed: int = 0,
    cut: Cut | None = None,
) -> ApproximateGain:
    """What the policy gains over usual practice, estimated on a log it never saw.

    Args:
        policy: A policy over labelled states.
        log: Held-out groups; the policy's own training log is refused.
        level: Nominal coverage of the interval.
        draws: Bootstrap resamples of groups.
        seed: Of the resamples.
        cut: What to do with cut episodes, as for learners.
    """
    if policy.space.feature_names or not policy.knows_practice:
        raise ParameterError(
            f"this estimate is for policies over labelled states; got a {type(policy).__name__}.",
        )
    if not (0 < level < 1 and draws >= 2):
        raise ParameterError(f"level must lie in (0, 1) and draws be >= 2; got {level!r}, {draws}.")
    refuse_seen(policy, log)
    return estimate(policy, log, level=level, draws=draws, seed=seed, cut=cut)


def estimate(
    policy: Policy, log: Log, *, level: float, draws: int, seed: int, cut: Cut | None
) -> ApproximateGain:
    """The same on any log: for measuring how it flatters a policy on the log that chose it."""
    gamma = check_gamma(policy.parameters["gamma"])
    log = settle(log, gamma, cut).gathered()
    choice = _choices(policy, log)
    state, action, group = log.codes(), log.action, np.repeat(log.group, log.lengths)
    counted = tally(log, gamma)[1].counted & (action == choice[state])
    followed = np.bincount(state[counted], minlength=log.n_states) > 0
    met = np.bincount(state, minlength=log.n_states) > 0
    unfollowed = int(((choice >= 0) & met & ~followed).sum())
    choice = np.where(followed, choice, -1)
    points = np.flatnonzero(choice >= 0)
    number = np.full(log.n_states + 1, -1)
    number[points] = np.arange(len(points))

    rows = np.flatnonzero(choice[state] >= 0)
    ahead = segments(log, gamma, rows)
    to = np.append(number[state[rows]], -1)[ahead.next]  # the point each row's segment leads to
    source = np.flatnonzero(counted & (choice[state] >= 0))
    first = log.starts[:-1]
    here = number[state[first]]  # episodes that begin at a decision point
    begin = _Start(
        np.where(here >= 0, 0.0, ahead.reward[first]),
        np.where(here >= 0, 1.0, ahead.discount[first]),
        np.where(here >= 0, here, to[first]),
        returns(log, gamma)[first],
    )
    parts = _Segments(
        number[state[source]], to[source], ahead.reward[source], ahead.discount[source],
        len(points),
    )  # fmt: skip
    n = len(log.groups)
    one = np.ones(n)
    whole = parts.solve(one[group[source]], None)
    gain = begin.gain(one[log.group], whole[0])
    rng = np.random.default_rng(seed)
    found = np.empty(draws)
    for i in range(draws):
        weight = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        found[i] = begin.gain(weight[log.group], parts.solve(weight[group[source]], whole)[0])
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return ApproximateGain(gain, float(low), float(high), level, n, len(points), unfollowed)


def _choices(policy: Policy, log: Log) -> NDArray[np.int64]:
    """The policy's choice in this log's codes, int64 (S,); -1 where it defers, A if never done."""
    columns: dict[Any, int] = {label: i for i, label in enumerate(log.actions)}
    columns[DEFER] = -1
    answers = policy.act(list(log.states))
    return np.array([columns.get(a, log.n_actions) for a in answers], np.int64)


@dataclass(frozen=True, eq=False)
class _Start:
    """How episodes begin: reward before the first decision point, its discount and number."""

    reward: Floats
    discount: Floats
    point: NDArray[np.int64]
    G: Floats

    def gain(self, weight: Floats, V: Floats) -> float:
        ahead = self.reward + self.discount * np.append(V, 0.0)[self.point]
        return float(weight @ (ahead - self.G) / weight.sum())


@dataclass(frozen=True, eq=False)
class _Segments:
    """Segments from followed suggestions: from which point, to which, reward and discount."""

    source: NDArray[np.int64]
    to: NDArray[np.int64]
    reward: Floats
    discount: Floats
    n: int

    def solve(
        self, weight: Floats, whole: tuple[Floats, Floats, sparse.csr_array] | None
    ) -> tuple[Floats, Floats, sparse.csr_array]:
        """V, R̃ and D of the segments so weighted; points that lost all theirs keep the whole's."""
        P = self.n
        total = np.bincount(self.source, weight, minlength=P)
        safe = np.maximum(total, 1e-300)
        R = np.bincount(self.source, weight * self.reward, minlength=P) / safe
        on = self.to >= 0
        share = (weight * self.discount)[on] / safe[self.source[on]]
        D = sparse.csr_array((share, (self.source[on], self.to[on])), shape=(P, P))
        if whole is not None and (lost := total == 0).any():
            R[lost] = whole[1][lost]
            D = (D + sparse.diags_array(lost.astype(np.float64)) @ whole[2]).tocsr()
        return (solve(D, R) if P else np.zeros(0)), R, D
