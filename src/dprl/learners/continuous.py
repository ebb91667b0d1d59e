"""DPRL for continuous states (the paper's Algorithm 3), and planning beyond it.

What lies within `radius` of a place takes the role of a state: n(s,a), Q̂(s,a), n(s) and V̂(s) are
computed over this ball, by trajectory (`visits="first"`: the first neighbour of each trajectory)
or by neighbour (`"all"`: what the paper did in practice; lower variance, no certificate). The rule
is that of labelled states (Eq. 1 = Eq. 6).

Departures from the paper: the test is n(s,a) >= n_min for some action (its `<=` on n(s) is a slip);
neighbours have exactly the same action, so the action needs no weight of 10,000; training points
leave out their own trajectory (otherwise a point would count as evidence for itself); `contrast`,
as for labels; `plan=True` plans over many decisions (see `dprl.planning.neighbor_semi_mdp`), which
the paper does not do; `lam` compares credit in place of returns.

**Credit** (`lam`, see `dprl.evidence.excursions`). A return carries the luck of everything until
the end of the episode, and neighbours differ in how well they were to begin with. With a model of
the value of usual practice, fitted on other groups, each step counts with its credit e_t(λ) in
place of G_t, in the rule and in the choice alike:

    Q̂(s,a) = mean of e over neighbours that took a        V̂(s) = mean of e over all neighbours

e_t is centred at what was to be expected in the neighbour's *own* state, so the means of different
actions can be compared though their neighbours are not in the same places; nothing is added back
for the state asked about, since it would be the same for every action. These values are advantages
over usual practice, near 0 where all is as usual, and not returns; differences are in the unit of
returns. λ = 1 assumes no more than returns do. λ < 1 has less noise, and assumes that the model is
right and that the features tell all that matters for what comes next.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, Ints, unusual
from dprl._core.checks import (
    Cut,
    Visits,
    check_cut,
    check_flag,
    check_gamma,
    check_grid,
    check_n_min,
    check_number,
    check_radius,
    check_seed,
    check_visits,
    check_weights,
    check_whole,
    renamed,
    wrong,
)
from dprl._core.cluster import Cluster, connect
from dprl._core.disk import need_for_neighbors
from dprl._core.words import say, worded
from dprl.errors import ParameterError
from dprl.evidence.decision_points import allowed, best_choice
from dprl.evidence.excursions import credit
from dprl.evidence.neighbors.device import open_device
from dprl.evidence.neighbors.engine import Points, Remembering, SpreadEngine, near
from dprl.evidence.neighbors.metric import Metric
from dprl.evidence.nuisances import usual_values
from dprl.learners.registry import Settings
from dprl.logs.censoring import treat_cut
from dprl.logs.encoding.categories import TRUTH
from dprl.logs.encoding.encoder import with_indicators
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Log, check_log
from dprl.planning.iteration import policy_iteration
from dprl.planning.neighbor_semi_mdp import elevate_neighbors, segments
from dprl.policies.base import provenance_of
from dprl.policies.neighbors import NeighborPolicy
from dprl.policies.points import Engines
from dprl.policies.protocol import Kind

if TYPE_CHECKING:
    from dprl.evidence.counts import Evidence


# --- How many changes of a policy over features luck alone would make, and how many survive
#
# Neighbourhoods overlap, so one piece of luck makes many changes at once, and a shuffle must keep
# what belongs together. With V̂ the mean return around each training point (its own trajectory
# left
# out),
#
#     G*_i = V̂_i + (G_j - V̂_j)
#
# where the trajectory of i takes over the differences of another trajectory, step by step from
# the
# end (a point that the other one is too short for takes a third one's). So places keep their mean
# returns, and trajectories keep their shape; only what was done no longer matters. At some
# training
# points, drawn at random, the rule is applied to G* in place of G (best Q̂; a plan chooses among
# the
# same allowed actions). The mean number of changes over SHUFFLES such logs is what luck would
# make.
#
# The changes that survive are the k largest t values of the contrasts (first neighbours that took
# the
# action against the others), with k as large as possible so that in *each* shuffled log at most
# 10 %
# of k changes have a t value as large. Thresholds come from shuffled logs and not from a t
# distribution, and the same choice of the best action was made in them.
#
# Both are approximations: V̂ is itself an estimate, over a ball. What happens where no action
# matters
# was measured (docs/ideas.md).

RATE = 0.1
"""The false-discovery rate that changes must survive."""
SHUFFLES, LOOKED_AT = 19, 400
"""Shuffled logs, and the most training points that are looked at."""
LARGEST = 20_000
"""The most training points for which luck is counted: it asks about every one of them once."""


def neighbor_luck(policy: NeighborPolicy, seed: int = 0) -> dict[str, Any]:
    """How many changes luck would make at some training points, and how many of its own survive.

    Args:
        policy: A policy as it was learned.
        seed: Seed of the points and of the shuffles. Default 0.

    Returns:
        "changes" of the policy at "states" of its "points"; "expected" by luck, the mean over
        "draws" shuffled logs; how many "survive" the false-discovery "rate". Or only "skipped",
        which says why nothing was counted.
    """
    n_points = len(policy.z)
    if n_points > LARGEST:
        return {"skipped": say("{n:,} training points are too many to shuffle", n=n_points)}
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(n_points, min(n_points, LOOKED_AT), replace=False))
    here = policy.at_points(rows)
    changed = here.kind == Kind.CHANGE
    if not changed.any():
        return {"skipped": say("it makes none at the {n:,} training points looked at", n=len(rows))}
    radius, engine = float(policy.parameters["radius"]), policy.returns_engine
    contrast, offered = bool(policy.parameters["contrast"]), policy.available(policy.z[rows])

    def ask(engine: Any, some: Ints) -> Evidence:
        evidence: Evidence = engine.evidence(
            policy.z[some], radius, visits=policy.visits, leave_out=policy.episode[some]
        )
        return evidence

    V = ask(engine, np.arange(n_points)).state.mean
    V = np.where(np.isnan(V), policy.G, V)  # nobody else is near: nothing to shuffle
    own = _t_values(ask(engine, rows), here.choice)[changed]
    by_luck = []
    for _ in range(SHUFFLES):
        G = V + _dealt(policy.G - V, policy.episode, random)
        evidence = ask(engine.with_values(G), rows)
        pairs = allowed(evidence, policy.n_min, contrast=contrast, available=offered)
        choice = best_choice(evidence.pair.mean, pairs)
        made = (choice >= 0) & unusual(evidence.took.n)[np.arange(len(choice)), choice]
        by_luck.append(np.sort(_t_values(evidence, choice)[made]))
    return {
        "changes": int(changed.sum()),
        "expected": float(np.mean([len(t) for t in by_luck])),
        "survive": _survive(own, by_luck),
        "rate": RATE,
        "draws": SHUFFLES,
        "states": len(rows),
        "points": n_points,
    }


def _dealt(differences: Floats, episode: Ints, random: np.random.Generator) -> Floats:
    """The differences (N,) after trajectories exchanged theirs, step by step from the end."""
    n = np.bincount(episode)
    n = n[n > 0]
    whose = np.repeat(np.arange(len(n)), n)
    to_go = np.repeat(np.cumsum(n), n) - 1 - np.arange(len(episode))
    other = random.permutation(len(n))[whose]
    short = np.flatnonzero(to_go >= n[other])
    long_enough = len(n) - np.searchsorted(np.sort(n), to_go[short], side="right")
    pick = (random.random(len(short)) * long_enough).astype(np.int64)
    other[short] = np.argsort(-n, kind="stable")[pick]
    return np.asarray(differences[(np.cumsum(n) - 1)[other] - to_go])


def _t_values(evidence: Evidence, choice: NDArray[np.int32]) -> Floats:
    """Welch's t of the chosen action against doing otherwise, (k,); -inf where there is none."""
    at = np.arange(len(choice)), np.maximum(choice, 0)
    took, others = evidence.took, evidence.others
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        error = np.hypot(took.sd[at] / np.sqrt(took.n[at]), others.sd[at] / np.sqrt(others.n[at]))
        t = (took.mean[at] - others.mean[at]) / error
    return np.where(np.isnan(t), -np.inf, t)


def _survive(own: Floats, by_luck: list[Floats]) -> int:
    """How many of the largest t values stand: luck makes at most RATE of them, each time."""
    survive = 0
    for k, limit in enumerate(np.sort(own)[::-1], start=1):
        if not limit > -np.inf:
            break
        worst = max(len(t) - int(np.searchsorted(t, limit)) for t in by_luck)
        survive = k if worst <= RATE * k else survive
    return survive


# --- DPRL for continuous states (the paper's Algorithm 3), and planning beyond it


@renamed("neighbors", "visits")
@dataclass(frozen=True, kw_only=True)
class DPRLContinuous(Settings):
    """DPRL for states of numeric features.

    Attributes:
        n_min: The number of trajectories an action needs near a state before it may be suggested: a
            whole number >= 1 (in Python also infinity: always defer).
        radius: The largest distance of similar states, after scaling (in the metric); at least 0.
        gamma: Discount in (0, 1].
        metric: How the distance between two states is measured. Default `Metric()`.
        visits: "first" (the default) counts trajectories; "all" counts neighbours and carries no
            certificate.
        contrast: Whether `n_min` trajectories must also have done something else near the state.
            Default True; `contrast=False` is the paper's rule.
        plan: Whether to plan over many decisions. Default True; `plan=False` takes the best
            single one.
        cut: What to do with cut episodes: "drop" (nothing can be claimed), "drop-unrelated" (which
            declares that whether an episode was cut depends neither on its length nor on its
            outcome), "bootstrap", "terminal", or, with `plan=False` and no `lam` below 1, "ipcw"
            (weights by the chance to be followed so far). Default None: as "terminal", with a
            CutWarning.
        lam: λ of the credit that is compared in place of returns, in [0, 1]: 1 takes the value of
            usual practice off each return and assumes no more than returns do; below 1 a model of
            that value is trusted, and the features must tell all that matters for what comes next.
            Default None: plain returns, as in the paper.
        folds: With `lam`, folds of groups of the model, at least 2. Default 4.
        seed: With `lam`, seed of the folds and of the model. Default 0.
        device: The torch device that counts neighbours: "cuda", "cuda:N", or "cpu" (torch on the
            processor). It pays for large logs; the policy is the same to the last bit. Needs
            dprl[deep]. Default None: no torch.

    Raises:
        ParameterError: If a setting is outside its range, or there is no such device.
        PackageError: If a device is asked for and torch is not installed.

    Example:
        >>> import dprl
        >>> from dprl.envs import PointMass
        >>> log = PointMass().sample(200, seed=0)
        >>> policy = dprl.DPRLContinuous(n_min=20, radius=0.5, gamma=0.97, cut="drop").fit(log)
        >>> policy.act([[0.35, 0.5], [0.99, 0.99]])
        ['down', DEFER]
    """

    SHARED: ClassVar[tuple[str, ...]] = ("n_min", "radius")

    n_min: float
    radius: float
    gamma: float
    metric: Metric = field(default_factory=Metric)
    visits: Visits = "first"
    contrast: bool = True
    plan: bool = True
    cut: Cut | None = None
    lam: float | None = None
    folds: int = 4
    seed: int = 0
    device: str | None = None

    def __post_init__(self) -> None:
        check_n_min(self.n_min)
        check_gamma(self.gamma)
        check_cut(self.cut)
        check_radius(self.radius)
        check_visits(self.visits)
        if not isinstance(self.metric, Metric):
            raise wrong("metric", "a dprl.Metric", self.metric)
        check_flag("contrast", self.contrast)
        check_flag("plan", self.plan)
        if self.lam is not None:
            check_number("lam", self.lam, "[0, 1]")
        check_weights(self.cut, self.plan, self.lam)
        check_whole("folds", self.folds, 2)
        check_seed(self.seed)
        if self.device is not None:
            open_device(self.device)

    def fit(self, log: Log, *, value_model: Any = None, cluster: Any = None) -> NeighborPolicy:
        """The policy that a log supports.

        Args:
            log: The training log; its states are features.
            value_model: With `lam`, a scikit-learn regressor of returns to use instead of ours. Its
                inputs are the features and the number of the step. Default None.
            cluster: Where neighbours are counted: a `distributed.Client`, the address of a Dask
                scheduler, "local" or "local:2"; each worker holds some of the trajectories. The
                policy is the same, byte for byte. Default None: this process.

        Returns:
            The policy: it acts where there is enough evidence nearby, and defers elsewhere.

        Raises:
            LogError: If the log is empty, has labels as states, or (with `lam`) fewer groups than
                folds.
            ParameterError: If `value_model` comes without `lam`, or cannot be fitted.
            ClusterError: If the cluster cannot do the work.

        Example:
            >>> import dprl
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=0.97, cut="drop").fit(log)
            >>> policy.feature_names
            ('x', 'y')
        """
        if cluster is None:
            return next(self.fit_each(log, [{}], value_model=value_model))
        check_log(log)
        with connect(cluster) as there:
            return next(self.fit_each(log, [{}], value_model=value_model, cluster=there))

    def fit_each(
        self,
        log: Log,
        settings: Sequence[Mapping[str, Any]],
        *,
        value_model: Any = None,
        cluster: Cluster | None = None,
    ) -> Iterator[NeighborPolicy]:
        """The policy of each setting of n_min and radius, over one set of points.

        Counts around a place are kept in memory while settings of one radius follow each other.

        Args:
            log: The training log; its states are features.
            settings: Settings to try; each is a mapping that may set "n_min" and "radius".
            value_model: With `lam`, a regressor as in `fit`. Default None.
            cluster: A cluster that counts neighbours, for as long as policies are asked for.
                Default None: this process.

        Yields:
            The policy of each setting, in their order.

        Raises:
            ParameterError: If a setting sets anything else, or as in `fit`.

        Example:
            >>> import dprl
            >>> from dprl.envs import PointMass
            >>> log = PointMass().sample(30, seed=0)
            >>> learner = dprl.DPRLContinuous(n_min=5, radius=0.5, gamma=0.97, cut="drop")
            >>> settings = [{"n_min": 2}, {"n_min": 9}]
            >>> [policy.parameters["n_min"] for policy in learner.fit_each(log, settings)]
            [2, 9]
        """
        learners = [replace(self, **setting) for setting in check_grid(settings, self.SHARED)]
        check_log(log)
        log = with_indicators(log)
        if value_model is not None and self.lam is None:
            raise ParameterError(
                "value_model is a model for credit, and lam is not given.",
                f"a {type(value_model).__name__}",
                worded("Say {lam=1} (or less) to compare credit, or leave value_model out."),
            )
        tailed = self.cut == "bootstrap" and len(log.cut_episodes)  # by what is within the radius
        for _, some in itertools.groupby(learners, lambda one: one.radius if tailed else None):
            yield from self._fit_each(log, list(some), value_model, cluster)

    def _fit_each(
        self,
        log: Log,
        learners: Sequence[DPRLContinuous],
        value_model: Any,
        cluster: Cluster | None,
    ) -> Iterator[NeighborPolicy]:
        metric = self.metric.fit(log)
        tails = near(metric, learners[0].radius, first=self.visits == "first")
        settled = treat_cut(log, self.gamma, self.cut, tails, reads="returns").gathered()
        used = int((metric.weight > 0).sum())
        need_for_neighbors(settled.n_steps, used, log.n_actions, self.plan)
        points = Points.of(settled, metric, self.gamma)
        surprise, notes = None, metric.notes
        if self.lam is not None:
            V, more = usual_values(
                settled, self.gamma, folds=self.folds, seed=self.seed, value_model=value_model
            )
            points = replace(points, G=credit(settled, self.gamma, self.lam, V))
            surprise, notes = credit(settled, self.gamma, 0.0, V), (*notes, *more)
        menu, menus = settled.available, settled.menus
        if menu is None or menus is None:  # everything was always on offer
            menu, menus = np.zeros(len(points), np.int32), np.ones((1, log.n_actions), bool)
        base = NeighborPolicy(
            states=(),
            actions=log.actions,
            parameters=self.settings(),
            provenance=provenance_of(
                log,
                settled,
                notes=list(notes),
                ranges=feature_ranges(settled),
                quantiles=feature_quantiles(settled),
            ),
            feature_names=log.feature_names,
            episodes=tuple(settled.groups),
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
        own = Engines.of(base, self.device)
        engines, remembering = own, []
        if cluster is not None:
            menus_there = None if own.menus is None else SpreadEngine.of(own.menus, cluster)
            engines = Engines(SpreadEngine.of(own.returns, cluster), menus_there)
        elif len(learners) > 1:
            remembering = [Remembering.like(e) for e in (own.returns, own.menus) if e]
            engines = Engines(*remembering, *[None] * (2 - len(remembering)))
        try:
            for learner in learners:
                policy = replace(base, parameters=learner.settings(), engines=engines)
                if self.plan:
                    worth = learner._planned(settled, policy, points, surprise)
                    policy = replace(policy, worth=worth, engines=engines)
                asking = own if cluster is None else engines  # what luck asks is asked once
                luck = neighbor_luck(replace(policy, engines=asking))
                provenance = {**policy.provenance, "luck": luck}
                lasting = engines if cluster is None else own
                yield replace(policy, provenance=provenance, engines=lasting)
        finally:
            for engine in remembering:
                engine.forget()

    def _planned(
        self, log: Log, policy: NeighborPolicy, points: Points, surprise: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """float64 (N,): the value of each training point in a plan over many decisions.

        surprise: float64 (N,), with credit the surprise of each step; None where returns count.
        """
        evidence, pairs = policy.allowed_at(points.z, points.episode)
        lam = 1.0 if self.lam is None else float(self.lam)
        at = np.flatnonzero(pairs.any(axis=1))
        ahead = segments(log, self.gamma, at, surprise, lam)
        if (ahead.next < 0).all():  # no decision leads to another: there is nothing to plan
            return ahead.planned(np.zeros(len(ahead.points)))
        semi = elevate_neighbors(
            policy.returns_engine, points, ahead, pairs, self.radius, self.visits == "first"
        )
        return ahead.planned(policy_iteration(semi, evidence.pair.mean[pairs]).V)

    def settings(self) -> dict[str, Any]:
        """The learner as values JSON can hold, for the parameters of a policy.

        Returns:
            The name of the learner and its settings; n_min is None where it is infinite.

        Example:
            >>> import dprl
            >>> dprl.DPRLContinuous(n_min=20, radius=1, gamma=0.99).settings()["radius"]
            1.0
        """
        settings = asdict(self)
        del settings["device"]  # it does not show in the policy
        settings["metric"] = self.metric.words()
        settings["n_min"] = None if math.isinf(self.n_min) else int(self.n_min)
        settings |= {"radius": float(self.radius), "gamma": float(self.gamma)}
        if self.lam is None:  # what a policy of plain returns says of itself is as it always was
            settings = {k: v for k, v in settings.items() if k not in ("lam", "folds", "seed")}
        else:
            settings["lam"] = float(self.lam)
        return {"learner": type(self).__name__, **settings}


def feature_ranges(log: Log) -> list[list[float]]:
    """The smallest and the largest value of each feature."""
    x = plain_features(log)
    ranges: list[list[float]] = np.stack([x.min(axis=0), x.max(axis=0)], axis=1).tolist()
    return ranges


def feature_quantiles(log: Log) -> list[dict[str, Any]]:
    """The parts that deciles cut each feature's values into, and the share of steps in each part.

    A value lies in part i if i edges are smaller than it. Deciles that coincide are one edge. Each
    label of a category is a part. Where values are missing, "missing" is their share. At most
    20,000 steps are looked at, evenly spread over the log.
    """
    x = np.asarray(log.features)
    x = x[:: max(1, -(-len(x) // 20_000))]
    levels = log.levels or (None,) * x.shape[1]
    result = []
    for column, labels in zip(x.T, levels, strict=True):
        values = column[~np.isnan(column)]
        if labels is not None and labels != TRUTH:
            edges = np.arange(len(labels) - 1) + 0.5
        elif len(values):
            edges = np.unique(np.quantile(values, np.arange(1, 10) / 10, method="inverted_cdf"))
        else:
            edges = np.empty(0)
        counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
        gaps = len(column) - len(values)
        result.append({
            "edges": edges.tolist(), "shares": np.round(counts / len(column), 6).tolist(),
            **({"missing": round(gaps / len(column), 6)} if gaps else {}),
        })  # fmt: skip
    return result
