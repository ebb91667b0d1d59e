r"""What a policy without a certificate seems to gain, estimated on groups it never saw.

The number is approximate, and it is printed as approximate. It is the value in the elevated
semi-MDP of a held-out log, with the policy's own choice at every decision point,

    V = R̃_π + D_π V            ρ̂(π) = mean over episodes of (reward before the first decision
                                point + γ^k V there, or the whole return where none is met)
    gain = ρ̂(π) - mean G_0

with percentile intervals from a bootstrap over whole groups. Where nobody followed a suggestion in
the held-out log, that decision point counts as usual practice, and it is counted as such.

No bound is proved here. The interval must never be computed on the log that chose the policy: there
it covered the truth in .55 to .73 of the datasets instead of .95.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dprl._core.bootstrap import counts, percentiles
from dprl._core.checks import Cut, check_draws, check_gamma, check_level, check_seed
from dprl._core.linear import solve
from dprl.errors import ParameterError
from dprl.evidence.tabular import count
from dprl.logs._censoring import check_claim, settle
from dprl.logs._overlap import refuse_seen
from dprl.logs.log import Log
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
        gain: The estimate, in units of returns.
        low: Lower end of the interval, in units of returns.
        high: Upper end of the interval, in units of returns.
        level: Nominal coverage of the interval, between 0 and 1.
        groups: Number of groups (episodes, where no group was given) in the held-out log.
        points: Number of decision points whose suggestion somebody followed in the held-out log.
        unfollowed: Number of decision points met there whose suggestion nobody followed.

    Example:
        >>> estimate = ApproximateGain(0.08, 0.06, 0.10, 0.95, 2000, 2, 0)
        >>> print(estimate)  # doctest: +ELLIPSIS
        APPROXIMATE: ρ(π) - ρ(b) is +0.08, 95 % bootstrap interval +0.06..+0.1, over 2,000 ...
    """

    gain: float
    low: float
    high: float
    level: float
    groups: int
    points: int
    unfollowed: int

    def to_dict(self) -> Mapping[str, Any]:
        """All attributes as plain values.

        Returns:
            Attribute name → number.

        Example:
            >>> ApproximateGain(0.08, 0.06, 0.10, 0.95, 2000, 2, 0).to_dict()["groups"]
            2000
        """
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
        log: A log of held-out groups; the log that the policy was made from is refused.
        level: Nominal coverage of the interval, in (0, 1). Default 0.95.
        draws: Number of bootstrap resamples of the groups, at least 2. Default 1,000.
        seed: Seed of the resamples. Default 0.
        cut: How cut episodes are treated, as for learners: "drop-unrelated", "terminal" or
            "bootstrap".
            Default None: they count as ended, with a warning.

    Returns:
        The estimate and its interval, in units of returns.

    Raises:
        ParameterError: The policy is not over labelled states, or level or draws is outside its
            range.
        PolicyError: The policy was made from this log.

    Example:
        >>> import dprl
        >>> train, test = dprl.envs.care_pathway().sample(1000, seed=0).split(0.5, seed=0)
        >>> policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
        >>> estimate = approximate_gain(policy, test, draws=100)
        >>> estimate.low < estimate.gain < estimate.high, estimate.groups
        (True, 500)
    """
    if policy.space.feature_names or not policy.knows_practice:
        raise ParameterError(
            f"this estimate is for policies over labelled states; got a {type(policy).__name__}.",
        )
    level, draws, seed = check_level(level), check_draws(draws, 2), check_seed(seed)
    refuse_seen(policy, log)
    return estimate(policy, log, level=level, draws=draws, seed=seed, cut=cut)


def estimate(
    policy: Policy, log: Log, *, level: float, draws: int, seed: int, cut: Cut | None
) -> ApproximateGain:
    """`approximate_gain` without its checks, on any log.

    It is also used to measure how much the estimate flatters a policy on the log that chose it.
    """
    gamma = check_gamma(policy.parameters["gamma"])
    check_claim(cut, log, "an interval")
    log = settle(log, gamma, cut).gathered()
    choice = _choices(policy, log)
    state, action, group = log.codes(), log.action, np.repeat(log.group, log.lengths)
    counted = count(log, gamma)[1].counted & (action == choice[state])
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
    start_point = number[state[first]]  # the point where an episode begins, -1 where at none
    begin = _Start(
        np.where(start_point >= 0, 0.0, ahead.reward[first]),
        np.where(start_point >= 0, 1.0, ahead.discount[first]),
        np.where(start_point >= 0, start_point, to[first]),
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
    drawn = [
        begin.gain(weight[log.group], parts.solve(weight[group[source]], whole)[0])
        for some in counts(n, draws, seed)
        for weight in some
    ]
    low, high = percentiles(np.array(drawn), level)
    return ApproximateGain(gain, low, high, level, n, len(points), unfollowed)


def _choices(policy: Policy, log: Log) -> NDArray[np.int64]:
    """The policy's choice in each state of the log, int64 (S,), as codes of the log's actions.

    -1 where the policy defers; A, one more than the last code, for an action not in the log.
    """
    columns: dict[Any, int] = {label: i for i, label in enumerate(log.actions)}
    columns[DEFER] = -1
    answers = policy.act(list(log.states))
    return np.array([columns.get(a, log.n_actions) for a in answers], np.int64)


@dataclass(frozen=True, eq=False)
class _Start:
    """How each episode begins.

    `reward` is collected before the first decision point, `discount` is the discount there, `point`
    its number (-1 where none is met), and `G` the return of the whole episode.
    """

    reward: Floats
    discount: Floats
    point: NDArray[np.int64]
    G: Floats

    def gain(self, weight: Floats, V: Floats) -> float:
        ahead = self.reward + self.discount * np.append(V, 0.0)[self.point]
        return float(weight @ (ahead - self.G) / weight.sum())


@dataclass(frozen=True, eq=False)
class _Segments:
    """The segments that follow suggestions: source and target point, reward and discount."""

    source: NDArray[np.int64]
    to: NDArray[np.int64]
    reward: Floats
    discount: Floats
    n: int

    def solve(
        self, weight: Floats, whole: tuple[Floats, Floats, sparse.csr_array] | None
    ) -> tuple[Floats, Floats, sparse.csr_array]:
        """V, R̃ and D of the weighted segments.

        A point whose segments all have weight 0 keeps the R̃ and D of the `whole` log.
        """
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
