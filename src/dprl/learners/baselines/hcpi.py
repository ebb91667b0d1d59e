r"""High-confidence policy improvement: a candidate from one part, a safety test on the other.

Thomas, Theocharous, Ghavamzadeh: *High Confidence Policy Improvement*, ICML 2015. One fifth of the
groups, as there, chooses a candidate: of the mixtures (1-α) b + α π with π the best policy of its
maximum-likelihood MDP and α in 1, .5, .25, .1, the one whose bound on the other groups is expected
to be highest, with b̂ of the whole log unless b is given. The others test it: where the lower bound
of its value by importance sampling is above the mean return of the log, it is returned; else b.

With X_i = w_i G_i of the n test episodes (their groups' means), G scaled to [0, 1] by a range:

    t              mean X - t_{n-1, 1-δ} sd(X) / sqrt(n)
    concentration  mean Y - 7 c ln(2/δ) / (3 (n - 1)) - sqrt( 2 ln(2/δ) var(Y) / n ),  Y = min(X, c)

The second is theirs (2015b, Theorem 1) with one threshold c: the larger of 1 and the largest Y that
costs nothing, chosen on the part of the candidate. It holds for samples of any size if b is given.

Departures: one threshold, where the paper optimises it; mixtures of a fixed grid. A bound for the
value alone is compared with the mean return, whose own error is not paid for: that is the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from dprl._core.arrays import Floats
from dprl._core.checks import Cut, check_choice, check_delta, check_number, check_range, check_seed
from dprl.errors import ParameterError
from dprl.learners.baselines.base import TabularBaseline, parameters_of
from dprl.learners.baselines.plain import RL
from dprl.logs.censoring import treat_cut
from dprl.logs.log import Log, check_log
from dprl.logs.returns import returns
from dprl.planning.model import Model, behavior_of, estimate
from dprl.policies.base import provenance_of
from dprl.policies.stochastic import StochasticPolicy

MIXTURES = (1.0, 0.5, 0.25, 0.1)


@dataclass(frozen=True, kw_only=True, eq=False)
class HCPI(TabularBaseline):
    """High-confidence policy improvement for labelled states.

    Attributes:
        gamma: Discount in (0, 1].
        delta: The chance with which the safety test may fail, in (0, 1). Default 0.05.
        bound: "t" (the default) is Student's, right for large samples; "concentration" holds for
            samples of any size, and needs `value_range` and, to be a proof, `behavior`.
        value_range: (lowest, highest) return there can be. Default None: not known.
        train: Share of the groups that choose the candidate, in (0, 1). Default 0.2.
        behavior: float64 (S, A), π_b if it is known, in the order of log.states and log.actions.
            Default None: it is estimated from the log.
        seed: Seed of the division. Default 0.
        cut: What to do with cut episodes: "drop", "bootstrap" or "terminal". Default None: as
            "terminal", with a CutWarning.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> from dprl.baselines import HCPI
        >>> from dprl.envs import risky_arms
        >>> problem = risky_arms()
        >>> policy = HCPI(gamma=1.0).fit(problem.sample(5_000, seed=0))
        >>> problem.value(policy) >= problem.value()
        True
    """

    gamma: float
    delta: float = 0.05
    bound: Literal["t", "concentration"] = "t"
    value_range: tuple[float, float] | None = None
    train: float = 0.2
    behavior: Floats | None = None
    seed: int = 0
    cut: Cut | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_delta(self.delta)
        check_choice("bound", self.bound, ("t", "concentration"))
        if self.bound == "concentration":
            check_range(self.value_range)
        check_number("train", self.train, "(0, 1)")
        check_seed(self.seed)

    def _plan(self, model: Model) -> Floats:
        raise ParameterError("HCPI needs the episodes of a log, not their model.", do="Use fit.")

    def fit(self, log: Log) -> StochasticPolicy:
        """The candidate, where it passes the safety test, else the behaviour.

        Args:
            log: The training log; its states are labels.

        Returns:
            The policy.

        Raises:
            LogError: If the log is empty, has features as states, or says which actions were
                available.

        Example:
            >>> from dprl.baselines import HCPI
            >>> from dprl.envs import care_pathway
            >>> log = care_pathway().sample(2_000, seed=0)
            >>> HCPI(gamma=1.0).fit(log).actions
            ('antibiotics', 'discharge', 'fluids', 'watch')
        """
        check_log(log)
        whole = estimate(log, self.gamma, self.cut)
        b = behavior_of(whole, self.behavior)
        log = treat_cut(log, self.gamma, self.cut).gathered()
        order = np.random.default_rng(self.seed).permutation(len(log.groups))
        chooses = np.zeros(len(order), bool)
        chooses[order[: max(1, round(self.train * len(order)))]] = True
        parts = [log.take(np.flatnonzero(chooses[log.group] == side)) for side in (True, False)]
        pi = b
        if all(part.n_episodes for part in parts):
            pi = self._improved(
                parts[0], parts[1], b, float(returns(log, self.gamma)[log.starts[:-1]].mean())
            )
        return StochasticPolicy(
            states=log.states,
            actions=log.actions,
            parameters=parameters_of(self),
            provenance=provenance_of(log),
            pi=pi,
        )

    def _improved(self, train: Log, test: Log, b: Floats, usual: float) -> Floats:
        """The candidate that `train` chooses if `test` finds it safe, else b."""
        model = estimate(train, self.gamma)
        best = np.where(model.visited[:, None], RL(gamma=self.gamma).plan(model), b)
        n, found = len(test.groups), []
        for share in MIXTURES:
            pi = (1 - share) * b + share * best
            X = self._weighed(train, pi, b)
            c = max(1.0, float(X.max()))
            found.append((self._low(X, n, c), -share, pi, c))
        _, _, pi, c = max(found, key=lambda one: one[:2])
        low = self._low(self._weighed(test, pi, b), n, c)
        if self.value_range is not None:
            low = self.value_range[0] + low * (self.value_range[1] - self.value_range[0])
        return pi if low > usual else b

    def _weighed(self, log: Log, pi: Floats, b: Floats) -> Floats:
        """w G of every group, (groups,): the mean over its episodes; G is scaled by the range."""
        state = log.codes()
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(pi[state, log.action] / b[state, log.action], posinf=0.0)
        G = returns(log, self.gamma)[log.starts[:-1]]
        if self.value_range is not None:
            G = (G - self.value_range[0]) / (self.value_range[1] - self.value_range[0])
        X = np.multiply.reduceat(ratio, log.starts[:-1]) * G
        return np.bincount(log.group, X) / np.maximum(np.bincount(log.group), 1)

    def _low(self, X: Floats, n: int, c: float) -> float:
        """The lower bound of the mean of n numbers as X are."""
        if len(X) < 2 or n < 2:
            return -np.inf
        if self.bound == "t":
            t = float(stdtrit(n - 1, 1 - self.delta))
            return float(X.mean() - t * X.std(ddof=1) / np.sqrt(n))
        Y, nats = np.minimum(X, c), np.log(2 / self.delta)
        return float(
            Y.mean() - 7 * c * nats / (3 * (n - 1)) - np.sqrt(2 * nats * Y.var(ddof=1) / n)
        )
