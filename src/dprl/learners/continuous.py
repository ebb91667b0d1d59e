r"""DPRL for continuous states (the paper's Algorithm 3), and planning beyond it.

The state is what lies within `radius`: n(s,a), Q̂(s,a), n(s), V̂(s) over the ball, by trajectory
(`neighbors="first"`: the first neighbour of each) or by neighbour (`"all"`: what the paper did in
practice; lower variance, no certificate). The rule is the one of labelled states (Eq. 1 = Eq. 6).

Departures from the paper: the test is n(s,a) >= n_min for some action (its `<=` on n(s) is a slip);
neighbours share the action exactly, so there is no weight of 10,000 on it; training points leave
their own trajectory out (a point that may vote for itself leaks); `contrast`, as for labels;
`plan=True` plans over many decisions (see `dprl.planning._neighbor_semi_mdp`), which the paper
leaves to others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.limits import need_for_neighbors
from dprl.errors import ParameterError
from dprl.evidence.decision_points import check_n_min, vary
from dprl.evidence.neighbors._bootstrap_neighbors import near
from dprl.evidence.neighbors._cached_engine import Remembering
from dprl.evidence.neighbors.metric import Metric
from dprl.evidence.neighbors.samples import Points
from dprl.evidence.tabular import check_gamma
from dprl.logs._censoring import check_cut, settle
from dprl.logs.log import Cut, Log, check_log
from dprl.planning._neighbor_semi_mdp import elevate_neighbors, segments
from dprl.planning.semi_policy_iteration import policy_iteration
from dprl.policies._base import provenance_of
from dprl.policies._engines import Engines
from dprl.policies.neighbors import NeighborPolicy

__all__ = ["DPRLContinuous"]


@dataclass(frozen=True, kw_only=True)
class DPRLContinuous:
    """DPRL for states of numeric features.

    Attributes:
        n_min: Trajectories an action needs near a state before it may be suggested.
        radius: How far neighbours may be, in the metric.
        gamma: Discount in (0, 1].
        metric: How far apart two states are.
        neighbors: "first" counts trajectories; "all" counts neighbours (no certificate).
        contrast: Also require n_min that did otherwise; False is the paper's rule.
        plan: Plan over many decisions; False takes the best single one.
        cut: What to do with cut episodes: "drop", "bootstrap", "terminal", or None to be warned.
    """

    n_min: float
    radius: float
    gamma: float
    metric: Metric = field(default_factory=Metric)
    neighbors: Literal["first", "all"] = "first"
    contrast: bool = True
    plan: bool = False
    cut: Cut | None = None

    def __post_init__(self) -> None:
        check_n_min(self.n_min)
        check_gamma(self.gamma)
        check_cut(self.cut)
        number = isinstance(self.radius, int | float | np.number)
        if not number or isinstance(self.radius, bool) or not 0 <= self.radius < math.inf:
            raise ParameterError(f"radius must be a number >= 0; got {self.radius!r}.")
        if self.neighbors not in ("first", "all"):
            raise ParameterError(f"neighbors must be 'first' or 'all'; got {self.neighbors!r}.")
        if not isinstance(self.metric, Metric):
            raise ParameterError(f"metric must be a dprl.Metric; got {self.metric!r}.")
        for name in ("contrast", "plan"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} must be true or false; got {getattr(self, name)!r}.")

    def fit(self, log: Log) -> NeighborPolicy:
        """The policy this log supports."""
        return next(self.fit_each(log, [{}]))

    def fit_each(self, log: Log, settings: Sequence[Mapping[str, Any]]) -> Iterator[NeighborPolicy]:
        """The policy for each setting of n_min and radius, over one set of points.

        What was found around a place is remembered while settings of one radius follow each other.
        """
        learners = [replace(self, **setting) for setting in vary(settings, ("n_min", "radius"))]
        check_log(log)
        tailed = self.cut == "bootstrap" and len(log.cut_episodes)  # by what is within the radius
        for _, some in itertools.groupby(learners, lambda one: one.radius if tailed else None):
            yield from self._fit_each(log, list(some))

    def _fit_each(self, log: Log, learners: Sequence[DPRLContinuous]) -> Iterator[NeighborPolicy]:
        metric = self.metric.fit(log)
        tails = near(metric, learners[0].radius, first=self.neighbors == "first")
        settled = settle(log, self.gamma, self.cut, tails).gathered()
        used = int((metric.weight > 0).sum())
        need_for_neighbors(settled.n_steps, used, log.n_actions, self.plan)
        points = Points.of(settled, metric, self.gamma)
        menu, menus = settled.available, settled.menus
        if menu is None or menus is None:  # everything was always on offer
            menu, menus = np.zeros(len(points), np.int32), np.ones((1, log.n_actions), bool)
        base = NeighborPolicy(
            states=(),
            actions=log.actions,
            parameters=self.settings(),
            provenance=provenance_of(
                log, settled, notes=list(metric.notes), ranges=feature_ranges(settled)
            ),
            feature_names=log.feature_names,
            episodes=settled.groups,
            scale=metric.scale,
            weight=metric.weight,
            z=points.z,
            action=points.action,
            G=points.G,
            worth=points.G,
            episode=points.episode,
            menu=menu,
            menus=menus,
        )
        engines, remembering = None, []
        if len(learners) > 1 or self.plan:
            engines = Engines.of(base)
        if len(learners) > 1 and engines is not None:
            remembering = [Remembering.of(e) for e in (engines.returns, engines.menus) if e]
            engines = Engines(*remembering, *[None] * (2 - len(remembering)))
        try:
            for learner in learners:
                policy = replace(base, parameters=learner.settings(), engines=engines)
                if self.plan:
                    worth = learner._planned(settled, policy, points)
                    policy = replace(policy, worth=worth, engines=engines)
                yield policy
        finally:
            for engine in remembering:
                engine.forget()

    def _planned(self, log: Log, policy: NeighborPolicy, points: Points) -> NDArray[np.float64]:
        """What each training point counts for a plan, (N,)."""
        known, pairs = policy.allowed_at(points.z, points.episode)
        ahead = segments(log, self.gamma, np.flatnonzero(pairs.any(axis=1)))
        semi = elevate_neighbors(
            policy.returns_engine, points, ahead, pairs, self.radius, self.neighbors == "first"
        )
        return ahead.planned(policy_iteration(semi, known.pair.mean[pairs]).V)

    def settings(self) -> dict[str, Any]:
        """The learner as it goes into a policy's parameters."""
        settings = asdict(self)
        settings["metric"] = self.metric.words()
        settings["n_min"] = None if math.isinf(self.n_min) else int(self.n_min)
        settings |= {"radius": float(self.radius), "gamma": float(self.gamma)}
        settings["visits"] = self.neighbors
        return {"learner": type(self).__name__, **settings}


def feature_ranges(log: Log) -> list[list[float]]:
    """The smallest and the largest value of each feature."""
    x = log.features
    return [] if x is None else np.stack([x.min(axis=0), x.max(axis=0)], axis=1).tolist()
