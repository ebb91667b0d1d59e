r"""Decision-Point RL (Sharma, Benac, Parbhoo, Doshi-Velez, AISTATS 2025).

Algorithm 1, discrete states: evidence → allowed pairs (Eq. 1) → elevated semi-MDP (Alg. 2) →
policy iteration over it → a policy that acts at decision points and defers everywhere else.

Departures from the paper: `contrast` (see `dprl.evidence.decision_points`), the repaired segments
with pooled endings (`segments="text"` and `"printed"` are the paper's; see
`dprl.planning.semi_mdp`), and a stated treatment of cut episodes (see `dprl.logs.censoring`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Bools
from dprl._core.checks import (
    Cut,
    SegmentRule,
    Visits,
    check_cut,
    check_flag,
    check_gamma,
    check_grid,
    check_n_min,
    check_segments,
    check_visits,
    check_weights,
)
from dprl.errors import PlanError
from dprl.evidence.counts import Counted, Counts, check_table, count_source
from dprl.evidence.decision_points import allowed, best_choice, enough
from dprl.evidence.propensity import warn_of_choosing
from dprl.evidence.sites.evidence import SiteEvidence
from dprl.learners.registry import Settings
from dprl.logs.log import Log
from dprl.logs.source import LogInParts, Share, Source, as_source, check_settings, on_cluster, stage
from dprl.planning.iteration import Plan, policy_iteration
from dprl.planning.luck import luck_of
from dprl.planning.semi_mdp import DROPPED, SemiMDP, build_semi_mdp
from dprl.planning.sites import SitePlan
from dprl.policies.base import provenance_of
from dprl.policies.table import TablePolicy


@dataclass(frozen=True, kw_only=True)
class DPRLDiscrete(Settings):
    """DPRL for labelled states.

    Attributes:
        n_min: The number of trajectories an action needs before it may be suggested: a whole number
            >= 1 (in Python also infinity: always defer).
        gamma: Discount in (0, 1].
        contrast: Whether `n_min` trajectories must also have done something else in the state.
            Default True; `contrast=False` is the paper's rule.
        plan: Whether to plan over many decisions. Default True; `plan=False` takes the best single
            decision (argmax Q̂). Where without discount a plan never ends the policy defers, and
            says so.
        visits: "first" (the default) counts trajectories; "all" counts visits, for comparison, and
            carries no certificate.
        cut: What to do with cut episodes: "drop" (nothing can be claimed), "drop-unrelated" (which
            declares that whether an episode was cut depends neither on its length nor on its
            outcome), "bootstrap", "terminal", or, with `plan=False`, "ipcw" (weights by the chance
            to be followed so far). Default None: as "terminal", with a CutWarning.
        segments: How the plan reads Algorithm 2. "end" (the default until 0.2.0): what follows the
            last decision point counts, and ends in a state of value 0. "pooled" (the default): the
            same, with the share that ends so of each action moved towards that of all actions of
            the state, as far as the log does not tell them apart. "text" (the paper's Section 4):
            only between first visits of states; what follows the last decision point is dropped.
            "printed" (the pseudocode of the appendix, for comparison only): as "text", and the
            reward at the next decision point counts twice. The values of these two only rank
            actions; the values that the policy states are then mean returns.

    Raises:
        ParameterError: If a setting is outside its range.

    Example:
        >>> import dprl
        >>> from dprl.envs import risky_arms
        >>> policy = dprl.DPRLDiscrete(n_min=92, gamma=1.0).fit(risky_arms().sample(1_000, seed=0))
        >>> policy.act(["s0", "s-b1"])
        ['b1', DEFER]
    """

    SHARED: ClassVar[tuple[str, ...]] = ("n_min",)

    n_min: float
    gamma: float
    contrast: bool = True
    plan: bool = True
    visits: Visits = "first"
    cut: Cut | None = None
    segments: SegmentRule = "pooled"

    def __post_init__(self) -> None:
        check_n_min(self.n_min)
        check_gamma(self.gamma)
        check_visits(self.visits)
        check_segments(self.segments, self.visits)
        check_cut(self.cut)
        check_flag("contrast", self.contrast)
        check_flag("plan", self.plan)
        check_weights(self.cut, self.plan, None)

    def fit(
        self,
        log: Log | LogInParts | SiteEvidence | SitePlan,
        *,
        cluster: Any = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> TablePolicy:
        """The policy that a log supports.

        Args:
            log: The training log; its states are labels. A log in parts (`dprl.scan`) gives the
                same policy, byte for byte, as the same log in memory. Or what sites counted of
                their logs (`dprl.site_evidence`): then gamma and cut are those of their schema.
            cluster: Where to count and to find segments: a `distributed.Client`, the address of a
                Dask scheduler ("tcp://10.0.0.1:8786"), "local" or "local:2" (processes on this
                machine). The policy is the same, byte for byte. Default None: this process.
            progress: Called with the name of the stage and the share of it that is done, for a log
                in parts or on a cluster. Default None.

        Returns:
            The policy: it acts at decision points and defers everywhere else.

        Raises:
            LogError: If the log is empty or has features as states.
            ParameterError: If the log is in parts or on a cluster, and has cut episodes whose
                treatment needs all of it at once (cut="bootstrap" or "ipcw").
            ClusterError: If the cluster cannot do the work.

        Example:
            >>> import dprl
            >>> from dprl.envs import risky_arms
            >>> log = risky_arms().sample(1_000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=92, gamma=1.0)
            >>> learner.fit(log).act(["s0"])
            ['b1']
        """
        if cluster is None or isinstance(log, SiteEvidence | SitePlan):  # counted already
            return next(self.fit_each(log, [{}], progress=progress))
        with on_cluster(log, cluster) as parts:
            return next(self.fit_each(parts, [{}], progress=progress))

    def fit_each(
        self,
        log: Log | LogInParts | SiteEvidence | SitePlan,
        settings: Sequence[Mapping[str, Any]],
        *,
        progress: Callable[[str, float], None] | None = None,
    ) -> Iterator[TablePolicy]:
        """The policy of each setting of n_min, from evidence that is gathered once.

        Args:
            log: The training log, in memory or in parts; its states are labels. Or what sites
                counted of their logs.
            settings: Settings to try; each is a mapping that may only set "n_min".
            progress: Called with the name of the stage and the share of it that is done, for a log
                in parts. Default None.

        Yields:
            The policy of each setting, in their order.

        Raises:
            ParameterError: If a setting sets anything else.

        Example:
            >>> import dprl
            >>> from dprl.envs import risky_arms
            >>> log = risky_arms().sample(1_000, seed=0)
            >>> learner = dprl.DPRLDiscrete(n_min=10, gamma=1.0)
            >>> policies = learner.fit_each(log, [{"n_min": 92}, {"n_min": 200}])
            >>> [policy.act(["s0"]) for policy in policies]
            [['b1'], [DEFER]]
        """
        learners = [replace(self, **setting) for setting in check_grid(settings, self.SHARED)]
        source = as_source(log)
        for learner in learners:
            check_settings(source, learner.settings())
        check_table(source)
        warn_of_choosing(source)
        how = Counts(self.gamma, self.visits, self.cut)
        counted = count_source(source, how, stage(progress, "counting"))
        evidence, offered = counted.evidence, counted.available(source)
        origin = provenance_of(source, evidence.n_episodes, progress=progress)
        for learner in learners:
            rule: dict[str, Any] = {"contrast": self.contrast, "available": offered}
            pairs = allowed(evidence, learner.n_min, **rule)
            choice, planned = self.choose(source, counted, pairs, stage(progress, "planning"))
            circling = pairs.any(axis=1) & (choice < 0)
            pairs &= ~circling[:, None]
            noted = {"circles": int(circling.sum())} if circling.any() else {}
            luck = luck_of(
                source,
                counted,
                enough(evidence, learner.n_min, **rule),
                choice,
                plan=self.plan,
                segments=self.segments,
                progress=stage(progress, "what luck would do"),
            )
            yield TablePolicy.of(
                evidence,
                choice=choice,
                allowed=pairs,
                planned=planned,
                steps=counted.steps,
                parameters=learner.settings(),
                provenance={**origin, "luck": luck, **noted},
            )

    def settings(self) -> dict[str, Any]:
        """The learner as values JSON can hold, for the parameters of a policy.

        Returns:
            The name of the learner and its settings; n_min is None where it is infinite.

        Example:
            >>> import dprl
            >>> dprl.DPRLDiscrete(n_min=20, gamma=0.99).settings()["n_min"]
            20
        """
        n_min = None if math.isinf(self.n_min) else int(self.n_min)
        settings = {**asdict(self), "n_min": n_min, "gamma": float(self.gamma)}
        return {"learner": type(self).__name__, **settings}

    def choose(
        self,
        source: Source,
        counted: Counted,
        pairs: NDArray[np.bool_],
        progress: Share | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The chosen action of each state, from evidence that learners with one gamma can share.

        Args:
            source: The log, wherever its rows are, with S states and A actions.
            counted: What was counted of it.
            pairs: bool (S, A), the pairs that may be chosen.
            progress: Called with the share that is done. Default None.

        Returns:
            int32 (S,), the code of the chosen action, -1 for DEFER; and float64 (S, A), the planned
            values, NaN for pairs that may not be chosen. They are mean returns where the plan's
            own are no values: without a plan, and where segments that reach END are dropped.

        Example:
            >>> import dprl
            >>> from dprl.envs import risky_arms
            >>> from dprl.evidence import allowed
            >>> from dprl.evidence.counts import Counts, count_source
            >>> from dprl.logs.source import as_source
            >>> source = as_source(risky_arms().sample(1_000, seed=0))
            >>> counted = count_source(source, Counts(gamma=1.0))
            >>> learner = dprl.DPRLDiscrete(n_min=92, gamma=1.0)
            >>> pairs = allowed(counted.evidence, n_min=92)
            >>> choice, planned = learner.choose(source, counted, pairs)
            >>> choice[:3].tolist()
            [0, -1, -1]
        """
        Q = counted.evidence.pair.mean
        choice, planned = best_choice(Q, pairs), np.where(pairs, Q, np.nan)
        if self.plan:
            pairs, semi, result = _plan(source, counted, pairs, progress, self.segments)
            choice[:], planned[:] = -1, np.nan
            choice[semi.points] = semi.action[result.rows]
            planned[pairs] = Q[pairs] if self.segments in DROPPED else result.q
        return choice, planned


def _plan(
    source: Source, counted: Counted, pairs: Bools, progress: Share | None, segments: SegmentRule
) -> tuple[Bools, SemiMDP, Plan]:
    """The best plan over pairs; without discount, over those whose plan has a value.

    Where no choice ever leads to an end, or going round in a circle pays, a decision point is taken
    away: the policy defers there, and usual practice comes to an end.
    """
    Q = counted.evidence.pair.mean
    while True:
        semi = build_semi_mdp(source, counted, pairs, progress, segments=segments)
        try:
            return pairs, semi, policy_iteration(semi, Q[pairs])
        except PlanError as error:
            # What sites counted between decision points is for these points alone.
            if not error.stuck or isinstance(source, SitePlan):
                raise
            pairs = pairs.copy()
            pairs[semi.points[error.stuck]] = False
