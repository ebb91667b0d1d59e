"""NeighborPolicy: DPRL for states of numeric features. It looks around, and speaks where it may.

It keeps the training points; at a state it asks what happened within `radius` of it, applies the
same rule as for labelled states (`dprl.evidence.decision_points`), and answers as a `Policy` over
the states asked about would: `at(states)` is that policy.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.errors import PolicyError
from dprl.evidence.decision_points import allowed, best_choice
from dprl.logs._feature_input import features_of
from dprl.logs.log import Label
from dprl.policies._base import Stored
from dprl.policies._explain import NONE, Explanation, apart, change_rows, change_words, unit
from dprl.policies._region_search import group
from dprl.policies._regions import Region, range_words, read_layers
from dprl.policies.table import Policy, in_a_line, steps_of

if TYPE_CHECKING:
    from dprl.evidence._evidence import Evidence
    from dprl.evidence.neighbors.engine import Engine
    from dprl.evidence.neighbors.metric import FittedMetric
    from dprl.logs._censoring import Near

__all__ = ["NeighborPolicy"]

SIMILAR = 8
"""Similar episodes named in an explanation."""


@dataclass(frozen=True, eq=False)
class NeighborPolicy(Stored):
    """A deferring policy over numeric features; immutable.

    Attributes:
        states: Empty: states are features here.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        feature_names: The d features a state needs, in order.
        episodes: Labels of the training episodes.
        scale: float64 (d,), what each feature is divided by.
        weight: float64 (d,), what each squared difference is multiplied by.
        z: float64 (N, d'), the training points in coordinates where distance is Euclidean.
        action: int32 (N,), what was done there.
        G: float64 (N,), the return that followed.
        worth: float64 (N,), what the point counts for a plan; G where the learner did not plan.
        episode: int64 (N,), whose point it is.
        menu: int32 (N,), what was on offer there: a row of `menus`.
        menus: bool (M, A), the different sets of available actions.
    """

    KIND: ClassVar[str] = "neighbors"

    feature_names: tuple[str, ...]
    episodes: tuple[Label, ...]
    scale: NDArray[np.float64]
    weight: NDArray[np.float64]
    z: NDArray[np.float64]
    action: NDArray[np.int32]
    G: NDArray[np.float64]
    worth: NDArray[np.float64]
    episode: NDArray[np.int64]
    menu: NDArray[np.int32]
    menus: NDArray[np.bool_]

    def __post_init__(self) -> None:
        super().__post_init__()
        N, d = len(self.z), len(self.feature_names)
        self._check_arrays({"scale": "float64", "weight": "float64"}, (d,))
        self._check_arrays({"z": "float64"}, (N, int((self.weight > 0).sum())))
        rows = {"action": "int32", "G": "float64", "worth": "float64", "episode": "int64",
                "menu": "int32"}  # fmt: skip
        self._check_arrays(rows, (N,))
        self._check_arrays({"menus": "bool"}, (len(self.menus), len(self.actions)))
        ok = (
            N > 0
            and d > 0
            and bool(np.isfinite(self.z).all() and np.isfinite(self.G).all())
            and bool(np.isfinite(self.worth).all() and np.isfinite(self.weight).all())
            and bool((self.scale > 0).all() and np.isfinite(self.scale).all())
            and bool((self.weight >= 0).all() and (np.diff(self.episode) >= 0).all())
            and 0 <= self.action.min() <= self.action.max() < len(self.actions)
            and 0 <= self.episode[0] <= self.episode[-1] < len(self.episodes)
            and 0 <= self.menu.min() <= self.menu.max() < len(self.menus)
        )
        if not ok:
            self._refuse("its training points are not points")
        names = self.feature_names
        if len(set(names)) != len(names) or not all(isinstance(n, str) for n in names):
            self._refuse("its features have no names of their own")
        ask: dict[str, Any] = {k: self.parameters.get(k) for k in ("radius", "gamma", "contrast")}
        ask["visits"] = self.visits
        numbers = [ask["radius"], ask["gamma"]]
        ok = all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers)
        ok = ok and 0 <= ask["radius"] < math.inf and 0 < ask["gamma"] <= 1
        if not ok or ask["visits"] not in ("first", "all") or type(ask["contrast"]) is not bool:
            self._refuse(f"its settings are {ask}")
        _ = self._layers  # a region that is none is refused now

    @property
    def visits(self) -> Any:
        """What it counts near a place: "first" (trajectories) or "all" (every neighbour).

        Files written before `visits` was the only name say `neighbors`; a file that says both, and
        not the same, is refused with the settings shown.
        """
        named = [self.parameters[k] for k in ("visits", "neighbors") if k in self.parameters]
        return named[0] if named and named[0] == named[-1] else named

    @functools.cached_property
    def _layers(self) -> tuple[tuple[Region, ...], ...]:
        """The regions it is limited to, if it is (see `dprl.policies._restrict`)."""
        names = [n for n, w in zip(self.feature_names, self.weight, strict=True) if w > 0]
        return read_layers(self.parameters.get("approved"), names, self.actions)

    # -- what it answers ---------------------------------------------------------------------

    @functools.cached_property
    def _metric(self) -> FittedMetric:
        from dprl.evidence.neighbors.metric import FittedMetric

        return FittedMetric(self.feature_names, self.scale, self.weight)

    def near(self) -> Near:
        """What counts near a place, as it looks (see `dprl.logs._censoring`)."""
        from dprl.evidence.neighbors._bootstrap_neighbors import near

        return near(self._metric, float(self.parameters["radius"]), first=self.visits == "first")

    @functools.cached_property
    def _offers(self) -> Engine:
        """What was on offer around here: menus in place of actions."""
        from dprl.evidence.neighbors.engine import Engine
        from dprl.evidence.neighbors.samples import Points

        return Engine.build(Points(self.z, self.menu, self.G, self.episode), len(self.menus))

    def available(self, z: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """bool (k, A): actions on offer at all neighbours of z (k, d'); None if all always were."""
        if self.menus.all():
            return None
        radius = float(self.parameters["radius"])
        seen = self._offers.evidence(z, radius, visits="all").n_pair > 0
        refused = seen.astype(np.float32) @ (~self.menus).astype(np.float32)
        return np.asarray(refused == 0)

    def allowed_at(
        self, z: NDArray[np.float64], leave_out: NDArray[np.int64] | None
    ) -> tuple[Evidence, NDArray[np.bool_]]:
        """The evidence at coordinates z (k, d'), and the pairs that pass the rule, (k, A)."""
        radius = float(self.parameters["radius"])
        known = self._looks.evidence(z, radius, visits=self.visits, leave_out=leave_out)
        contrast = bool(self.parameters["contrast"])
        return known, allowed(known, self.n_min, contrast=contrast, available=self.available(z))

    @functools.cached_property
    def _looks(self) -> Engine:
        """What came of actions around here."""
        from dprl.evidence.neighbors.engine import Engine
        from dprl.evidence.neighbors.samples import Points

        gamma = float(self.parameters["gamma"])
        points = Points(self.z, self.action, self.G, self.episode, gamma, self.actions)
        return Engine.build(points, len(self.actions))

    def asking(self, looks: Engine, offers: Engine | None) -> NeighborPolicy:
        """This policy with engines over its points that are at hand already."""
        self.__dict__["_looks"] = looks
        if offers is not None:
            self.__dict__["_offers"] = offers
        return self

    @functools.cached_property
    def _plans(self) -> Engine:
        """What they are worth if the plan follows."""
        same = np.array_equal(self.G, self.worth)
        return self._looks if same else self._looks.with_values(self.worth)

    def at(self, states: Any) -> Policy:
        """The policy over just these states: labelled 0, 1, ... in their order.

        Args:
            states: (k, d) numbers in the order of `feature_names`, or a table with these columns,
                or one state as a sequence or a mapping.
        """
        x, _ = features_of(states, self.feature_names)
        return self._decide(self._metric.transform(x), None, x)

    def _decide(
        self,
        z: NDArray[np.float64],
        leave_out: NDArray[np.int64] | None,
        x: NDArray[np.float64] | None = None,
    ) -> Policy:
        """The answers at coordinates z (k, d') of features x (k, d), as a policy over 0..k-1."""
        known, pairs = self.allowed_at(z, leave_out)
        planned = known
        if self._plans is not self._looks:
            radius = float(self.parameters["radius"])
            planned = self._plans.evidence(z, radius, visits=self.visits, leave_out=leave_out)
        q = planned.pair.mean
        here = Policy.of(
            known,
            choice=best_choice(q, pairs),
            allowed=pairs,
            planned=np.where(pairs, q, np.nan),
            steps=np.ones(len(z), np.int64),
            parameters=self.parameters,
            provenance=self.provenance,
        )
        if not self._layers:
            return here
        return self._limited(here, self._features(z) if x is None else x)

    def _limited(self, here: Policy, x: NDArray[np.float64]) -> Policy:
        """`here`, silent but for changes that lie in a region of every layer."""
        made, keep = change_words(here), np.ones(len(x), bool)
        for layer in self._layers:
            inside = np.zeros(len(x), bool)
            for region in layer:
                same = np.array([c == (region.usual, region.suggested) for c in made], bool)
                inside |= same & region.holds(x, self.feature_names)
            keep &= inside
        return replace(
            here,
            choice=np.where(keep, here.choice, np.int32(-1)),
            planned=np.where(here.allowed, here.Q, np.nan),  # a part of the plan is not the plan
        )

    def _features(self, z: NDArray[np.float64]) -> NDArray[np.float64]:
        """Features (k, d) of coordinates z (k, d'); NaN where a feature has no weight."""
        x, used = np.full((len(z), len(self.weight)), np.nan), np.flatnonzero(self.weight)
        x[:, used] = z / (np.sqrt(self.weight[used]) / self.scale[used])
        return x

    def act(self, states: Any) -> Any:
        """The action for each state, or DEFER; states as in `at`."""
        _, single = features_of(states, self.feature_names)
        here = self.at(states)
        answers = here.act(here.states)
        return answers[0] if single else answers

    def probabilities(
        self, states: Any, *, behavior: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """π(a|s), float64 (k, A): 1 at the chosen action, the behaviour's where it defers.

        Without `behavior` (k, A): the share of neighbouring trajectories that took each action
        first; NaN where there are none.
        """
        return self.at(states).probabilities(behavior=behavior)

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does at one state.

        Args:
            state: As in `at`.
            cases: Name the most similar training episodes too. Their labels may be patients'.
        """
        x, single = features_of(state, self.feature_names)
        if not single and len(x) != 1:
            raise PolicyError(f"one state is explained at a time; got {len(x)}.")
        here = self._decide(self._metric.transform(x), None, x).explain(0)
        words = ", ".join(f"{n} = {v:g}" for n, v in zip(self.feature_names, x[0], strict=True))
        reason = here.reason
        if here.episodes == 0:
            reason = f"Nothing in the training log lies within {self.parameters['radius']:g} of it."
        return replace(
            here, state=words, reason=reason, similar=self._similar(x) if cases else NONE
        )

    def _similar(self, x: NDArray[np.float64]) -> Table:
        z = self._metric.transform(x)
        rows = self._looks.nearest_rows(z[0], float(self.parameters["radius"]), len(self.z))
        _, first = np.unique(self.episode[rows], return_index=True)
        rows = rows[np.sort(first)][:SIMILAR]
        return Table(
            {
                unit(self): [self.episodes[self.episode[r]] for r in rows],
                "distance": np.sqrt(((self.z[rows] - z) ** 2).sum(axis=1)).tolist(),
                "action": [self.actions[self.action[r]] for r in rows],
                "return": self.G[rows].tolist(),
            },
            f"The most similar {unit(self)}s",
            identifiers=frozenset({unit(self), "action"}),
        )

    # -- what it would change ----------------------------------------------------------------

    @functools.cached_property
    def training(self) -> Policy:
        """The policy at its own training points, each left out of its own neighbourhood."""
        return self._decide(self.z, self.episode)

    def changes(self, *, cases: bool = False) -> Table:
        """The training points where its suggestion is not the usual action, largest first.

        `cases` names the episode (or group) of each; labels may be patients'.
        """
        return self._listed(self.training.changes(), cases)

    def confirmations(self, *, cases: bool = False) -> Table:
        """The training points where its suggestion is the usual action already."""
        return self._listed(self.training.confirmations(), cases)

    def _listed(self, table: Table, cases: bool) -> Table:
        """A table by training point, with features (and the episode) in place of a number."""
        rows = np.array(table["state"], np.int64)
        x = self._features(self.z[rows])
        columns: dict[str, Any] = {}
        if cases:
            columns[unit(self)] = [self.episodes[e] for e in self.episode[rows]]
        taken = {unit(self), *table.columns}
        for i in np.flatnonzero(self.weight):
            columns[apart(self.feature_names[i], taken)] = x[:, i].tolist()
        columns |= {n: v for n, v in table.columns.items() if n != "state"}
        return replace(
            table,
            columns=columns,
            caption=table.caption.replace("changes", "training points would change").replace(
                "confirmations", "training points are confirmed"
            ),
            identifiers=table.identifiers | {unit(self)},
        )

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, over its training points."""
        s = self.training.summary()
        s["points"] = s.pop("states")
        return {**s, "features": len(self.feature_names)}

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        return pages.snippet(
            "policy",
            text=str(self),
            steps=steps_of(self.summary()),
            changes=self._changed(),
            certificate=self.certificate,
        )

    def _changed(self) -> list[dict[str, Any]]:
        """The changes at training points by region, each with the numbers of a typical point."""
        here, used = self.training, np.flatnonzero(self.weight).tolist()
        x, found = self._features(self.z), []
        whole = {self.feature_names[j]: bool((x[:, j] % 1 == 0).all()) for j in used}
        for one in group(x, self.feature_names, change_words(here), used):
            z = self.z[one.rows]
            typical = one.rows[((z - np.median(z, axis=0)) ** 2).sum(axis=1).argmin()]
            row = next(iter(change_rows(here, np.array([typical]), "")))
            where = range_words(one.region.ranges, whole)
            found.append({**row, "where": where, "steps": len(one.rows)})
        return found

    def __str__(self) -> str:
        return in_a_line(self.summary(), "point")

    def __repr__(self) -> str:
        return f"<NeighborPolicy: {len(self.z):,} points, {len(self.feature_names)} features>"
