"""NeighborPolicy: DPRL for states of numeric features. It looks around, and speaks where it may.

It keeps the training points; at a state it asks what happened within `radius` of it, applies the
same rule as for labelled states (`dprl.evidence.decision_points`), and answers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from dprl._core.arrays import Bools, Codes, Floats, Ints
from dprl._core.table import Table, form, many
from dprl._core.words import say
from dprl.evidence.decision_points import allowed, best_choice
from dprl.logs.encoding.encoder import encoded_by
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Label, Log
from dprl.policies.base import METRIC, Stored
from dprl.policies.explain import (
    Explanation,
    apart,
    change_rows,
    change_words,
    credit_stated,
    explain_at,
)
from dprl.policies.protocol import Decisions, Kind, Terms, pi_of, unit_of
from dprl.policies.regions import Region, Situation, in_regions, read_layers
from dprl.policies.spaces import FeatureSpace, single_state
from dprl.policies.table import (
    FIRST,
    Approved,
    changes_of,
    confirmations_of,
    first_line,
    in_a_line,
    limit_regions,
    steps_of,
    summary_of,
    texts_in,
)

if TYPE_CHECKING:
    from dprl.evidence.counts import Evidence
    from dprl.evidence.neighbors.engine import Engine
    from dprl.logs.censoring import Near
    from dprl.policies.points import Engines


SIMILAR = 8
"""Similar episodes named in an explanation."""


@dataclass(frozen=True, eq=False, repr=False)
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
        G: float64 (N,), the return that followed; the credit e(λ) where the parameters name a λ
            ("lam"): how much better things went than usual practice foretold.
        worth: float64 (N,), what the point counts for a plan; G where the learner did not plan.
        episode: int64 (N,), whose point it is.
        menu: int32 (N,), what was on offer there: a row of `menus`.
        menus: bool (M, A), the different sets of available actions.
        certificate: What is proved about it, where it went through `dprl.gate`. Default None.

    Engines over its points that were built already can be handed over as `engines` when one is
    made; by default they are built on first use. They are no part of its file, and
    `dataclasses.replace` does not keep them.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=range(60), state=[[0.0], [0.5]] * 30,
        ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
        ... )
        >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
        >>> policy.act([[0.0], [9.0]])
        ['drug', DEFER]
    """

    KIND: ClassVar[str] = "neighbors"
    ARRAYS: ClassVar[Mapping[str, str]] = {
        **METRIC, "z": "float64 Nw", "action": "int32 N", "G": "float64 N", "worth": "float64 N",
        "episode": "int64 N", "menu": "int32 N", "menus": "bool MA",
    }  # fmt: skip
    changes_by: ClassVar[Literal["state", "cell", "region", "rule"]] = "region"
    knows_practice: ClassVar[bool] = True
    may_change: ClassVar[bool] = True

    feature_names: tuple[str, ...]
    episodes: tuple[Label, ...]
    scale: Floats
    weight: Floats
    z: Floats
    action: Codes
    G: Floats
    worth: Floats
    episode: Ints
    menu: Codes
    menus: Bools
    engines: InitVar[Any] = field(default=None, kw_only=True)

    def __post_init__(self, engines: Engines | None) -> None:
        super().__post_init__()
        N, d = len(self.z), len(self.feature_names)
        ok = (
            N > 0
            and d > 0
            and bool((np.abs(self.z) <= 1e18).all() and np.isfinite(self.G).all())
            and bool(np.isfinite(self.worth).all() and (np.diff(self.episode) >= 0).all())
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
        lam = self.parameters.get("lam")
        number = isinstance(lam, int | float) and not isinstance(lam, bool)
        if lam is not None and not (number and 0 <= lam <= 1):
            self._refuse(f"its λ is {lam!r}, not a number from 0 to 1")
        _ = self.layers  # a region that is none is refused now
        if engines is not None and not engines.over(self.z):
            self._refuse("its engines are over other points")
        object.__setattr__(self, "_handed_over", engines)

    @property
    def visits(self) -> Any:
        """What it counts near a place: "first" (trajectories) or "all" (every neighbour).

        Files written before `visits` was the only name say `neighbors`; a file that says both, and
        not the same, is refused with the settings shown.
        """
        named = [self.parameters[k] for k in ("visits", "neighbors") if k in self.parameters]
        return named[0] if named and named[0] == named[-1] else named

    @functools.cached_property
    def layers(self) -> tuple[tuple[Region, ...], ...]:
        """The regions it is limited to, if it is (see `dprl.policies.table`)."""
        names = [n for n, w in zip(self.feature_names, self.weight, strict=True) if w > 0]
        return read_layers(self.parameters.get("approved"), names, self.actions)

    # -- what it answers ---------------------------------------------------------------------

    @functools.cached_property
    def space(self) -> FeatureSpace:
        """The features a state needs, and how distance is measured."""
        return FeatureSpace(self.feature_names, self.scale, self.weight, encoding=self.encoding)

    @functools.cached_property
    def terms(self) -> Terms:
        """On which terms it decides."""
        nothing = say(
            "Nothing in the training log lies within {radius:g}", radius=self.parameters["radius"]
        )
        return Terms.of(
            self.parameters, self.provenance, unseen=f"{nothing} of it.", elsewhere=f"{nothing}.",
            credit=self.lam,
        )  # fmt: skip

    @property
    def lam(self) -> float | None:
        """λ of the credit that it compares in place of returns; None where it compares returns."""
        lam = self.parameters.get("lam")
        return None if lam is None else float(lam)

    @property
    def stated(self) -> tuple[str, ...]:
        """With credit, what its values are and what they assume; nothing where returns count."""
        return () if self.lam is None else credit_stated(self.lam)

    def bootstrap_neighbors(self) -> Near | None:
        """What counts near a place, for returns that were cut short (see `dprl.logs.censoring`).

        Returns:
            A function that finds the rows near a place, within the policy's radius.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> callable(policy.bootstrap_neighbors())
            True
        """
        from dprl.evidence.neighbors.engine import near

        first = self.visits == "first"
        return near(self.space.metric, float(self.parameters["radius"]), first=first)

    @functools.cached_property
    def _engines(self) -> Engines:
        from dprl.policies.points import Engines

        given: Engines | None = self._handed_over  # type: ignore[attr-defined]
        return Engines.of(self) if given is None else given

    @property
    def returns_engine(self) -> Engine:
        """Finds what came of actions around a place."""
        return self._engines.returns

    @functools.cached_property
    def _plan_engine(self) -> Engine:
        """Finds what actions around a place are worth if the plan follows."""
        same = np.array_equal(self.G, self.worth)
        return self.returns_engine if same else self.returns_engine.with_values(self.worth)

    def available(self, z: Floats) -> Bools | None:
        """The actions that were on offer at all neighbours of a place.

        Args:
            z: float64 (k, d'), places in the coordinates of the policy's own `z`.

        Returns:
            bool (k, A); None if all actions were always on offer.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.available(policy.z[:1]) is None
            True
        """
        from dprl.evidence.counts import always_available

        engine = self._engines.menus
        if engine is None:
            return None
        radius = float(self.parameters["radius"])
        seen = engine.evidence(z, radius, visits="all").n_pair > 0
        return always_available(seen, self.menus)

    def allowed_at(self, z: Floats, leave_out: Ints | None) -> tuple[Evidence, Bools]:
        """The evidence around some places, and the actions that pass the rule there.

        Args:
            z: float64 (k, d'), places in the coordinates of the policy's own `z`.
            leave_out: int64 (k,), the number of the episode that does not count at each place; None
                if all count.

        Returns:
            The evidence at the k places, and bool (k, A), true for actions that pass.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> known, pairs = policy.allowed_at(policy.z[:1], None)
            >>> pairs.tolist()
            [[True, False]]
        """
        radius = float(self.parameters["radius"])
        evidence = self.returns_engine.evidence(z, radius, visits=self.visits, leave_out=leave_out)
        contrast = bool(self.parameters["contrast"])
        return evidence, allowed(
            evidence, self.n_min, contrast=contrast, available=self.available(z)
        )

    def at(self, states: Any) -> Decisions:
        """What it answers at these states, and everything it knows about them.

        Args:
            states: (k, d) numbers in the order and the units of `feature_names`, or a table with
                these columns; or one state, as a sequence of d numbers or a mapping from name to
                number.

        Returns:
            The k decisions, with the evidence behind them.

        Raises:
            ParameterError: The states have another number of features.
            PolicyError: A feature is not named, or a state is not numbers.
            LogError: A feature is not finite.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.at([[0.0], [9.0]]).answers()
            ['drug', DEFER]
        """
        x, _ = self.space.read(states)
        return self._decide(self.space.coordinates(x), None, x)

    def _decide(
        self,
        z: Floats,
        leave_out: Ints | None,
        x: Floats | None = None,
    ) -> Decisions:
        """The answers at coordinates z (k, d') of features x (k, d)."""
        evidence, pairs = self.allowed_at(z, leave_out)
        planned = evidence
        if self._plan_engine is not self.returns_engine:
            radius = float(self.parameters["radius"])
            planned = self._plan_engine.evidence(z, radius, visits=self.visits, leave_out=leave_out)
        q = planned.pair.mean
        here = Decisions.of(
            evidence,
            choice=best_choice(q, pairs),
            allowed=pairs,
            planned=np.where(pairs, q, np.nan),
            terms=self.terms,
        )
        if not self.layers:
            return here
        return self._limited(here, self.space.features(z) if x is None else x)

    def _limited(self, here: Decisions, x: Floats) -> Decisions:
        """`here`, silent but for changes that lie in a region of every layer."""
        made, keep = change_words(here), np.ones(len(x), bool)
        for layer in self.layers:
            inside = np.zeros(len(x), bool)
            for region in layer:
                same = np.array([c == (region.usual, region.suggested) for c in made], bool)
                inside |= same & region.holds(x, self.feature_names)
            keep &= inside
        choice = np.where(keep, here.choice, np.int32(-1))
        return replace(
            here,
            choice=choice,
            pi=pi_of(choice, len(self.actions)),
            planned=np.where(here.allowed, here.Q, np.nan),  # a part of the plan is not the plan
        )

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does at one state.

        Args:
            state: One state, as a sequence of d numbers or a mapping from name to number.
            cases: Name the most similar training episodes too. Their labels may be patients'.
                Default False.

        Returns:
            The answer, the reason for it in a sentence, and a table of the actions seen there.

        Raises:
            PolicyError: More than one state is given, or a feature is not named.
            LogError: A feature is not finite.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.explain([0.0]).kind
            'change'
        """
        x = single_state(self.space, state)
        why = explain_at(self.at(x), 0, self.space.words(x[0]))
        return replace(why, similar=self._similar(x)) if cases else why

    def _similar(self, x: Floats) -> Table:
        z = self.space.coordinates(x)
        rows = self.returns_engine.nearest_rows(z[0], float(self.parameters["radius"]), len(self.z))
        _, first = np.unique(self.episode[rows], return_index=True)
        rows = rows[np.sort(first)][:SIMILAR]
        unit = unit_of(self.provenance)
        return Table(
            {
                unit: [self.episodes[self.episode[r]] for r in rows],
                "distance": np.sqrt(((self.z[rows] - z) ** 2).sum(axis=1)).tolist(),
                "action": [self.actions[self.action[r]] for r in rows],
                self.terms.outcome: self.terms.measured.shown(self.G[rows]).tolist(),
            },
            f"The most similar {unit}s",
            identifiers=frozenset({unit, "action"}),
        )

    # -- what it would change ----------------------------------------------------------------

    def at_points(self, rows: Ints) -> Decisions:
        """What it answers at some of its training points, their own trajectories left out.

        Args:
            rows: int64 (k,), which of the N points.

        Returns:
            The k decisions.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.at_points([0, 7]).answers()
            ['drug', 'drug']
        """
        return self._decide(self.z[rows], self.episode[rows])

    @functools.cached_property
    def training(self) -> Decisions:
        """Its decisions at its own training points, each left out of its own neighbourhood."""
        return self._decide(self.z, self.episode)

    def changes(self, *, cases: bool = False) -> Table:
        """The training points whose suggestion differs from the usual action, surest first.

        Args:
            cases: Name the episode (or group) of each point. Labels may be patients'. Default
                False.

        Returns:
            A table with one line for each of these training points: its features, the usual and the
            suggested action, the counts of episodes, the estimated values and their intervals.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.changes()["suggested"][0]
            'drug'
        """
        return self._listed(changes_of(self.training), cases)

    def confirmations(self, *, cases: bool = False) -> Table:
        """The training points whose suggestion is the usual action already, surest first.

        Args:
            cases: Name the episode (or group) of each point. Labels may be patients'. Default
                False.

        Returns:
            A table with the columns of `changes`.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> len(policy.confirmations())
            0
        """
        return self._listed(confirmations_of(self.training), cases)

    def _listed(self, table: Table, cases: bool) -> Table:
        """A table by training point, with features (and the episode) in place of a number."""
        rows = np.array(table["state"], np.int64)
        confirmed = form(rows, "is confirmed", "are confirmed")
        happens = confirmed if "confirmation" in table.caption else "would change"
        x, unit = self.space.features(self.z[rows]), unit_of(self.provenance)
        columns: dict[str, Any] = {}
        if cases:
            columns[unit] = [self.episodes[e] for e in self.episode[rows]]
        taken = {unit, *table.columns}
        named = {apart(n, taken): own for n, own in self.space.shown_columns(x).items()}
        columns |= named | {n: v for n, v in table.columns.items() if n != "state"}
        return replace(
            table,
            columns=columns,
            caption=f"{many(rows, 'training point')} {happens}",
            identifiers=table.identifiers | {unit} | texts_in(named),
            first=(*([unit] * cases), *list(named)[:2], *table.first),
        )

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, one per region, and the steps of a log in each.

        Args:
            log: A log with the features of this policy, in the same order.

        Returns:
            One situation for each region that changes, with the rows of the log in it.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> len(policy.situations(log))
            1
        """
        x = plain_features(encoded_by(log, self.encoding))
        return in_regions(self.at(x), self.space, x)

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> NeighborPolicy:
        """The policy with these of its changes alone; elsewhere it defers.

        Args:
            approved: The changes to keep, each with a `state` or a `region`, such as what
                `situations` returns. An empty list leaves a policy that makes no change.
            noted: Facts to add to the provenance, such as who approved.

        Returns:
            The limited policy.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.limited_to([]).act([0.0])
            DEFER
        """
        return limit_regions(self, [c.region for c in approved if c.region is not None], **noted)

    @property
    def single_states(self) -> str:
        """Which states of single people it answers from."""
        return (
            f"{len(self.z):,} training points: states of single people as they were measured, with "
            f"what was done and the {self.terms.outcome}"
        )

    def unnamed(self) -> dict[str, Any]:
        """Its points with episodes numbered by what they hold, whatever order they came in.

        Returns:
            Attribute name → new value, for `dataclasses.replace`.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> sorted(policy.unnamed())
            ['G', 'action', 'episode', 'episodes', 'menu', 'worth', 'z']
        """
        from dprl.policies.points import unnamed_points

        return unnamed_points(self)

    def summary(self) -> dict[str, Any]:
        """The counts that describe it, over its training points.

        Returns:
            Name → number of points, features, actions and changes, and shares of steps from 0 to 1.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(60), state=[[0.0], [0.5]] * 30,
            ...     action=["drug", "wait", "wait"] * 20, reward=[1, 0, 0] * 20,
            ... )
            >>> policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0).fit(log)
            >>> policy.summary()["points"]
            60
        """
        s = summary_of(self.training, np.ones(len(self.z), np.int64))
        s["points"] = s.pop("states")
        return {**s, "features": len(self.feature_names)}

    def _repr_html_(self) -> str:
        from dprl._core import html as pages

        changes = self._changed()
        changed = int((self.training.kind == Kind.CHANGE).sum())
        return pages.snippet(
            "policy",
            text="\n".join(str(self).splitlines()[:2]),
            stated=self.stated,
            luck=self.luck if changed else None,
            steps=steps_of(self.summary()),
            changes=changes,
            certificate=self.certificate,
            scattered=changed - sum(row["steps"] for row in changes),
        )

    def _regions(self) -> list[Situation]:
        return in_regions(self.training, self.space, self.space.features(self.z), self.z)

    def _changed(self) -> list[dict[str, Any]]:
        """The changes at training points by region, each with the numbers of a typical point."""
        rows = []
        for one in self._regions():
            row = next(iter(change_rows(one.here, np.array([one.s]), "")))
            rows.append({**row, "where": one.words, "steps": len(one.made)})
        return rows

    def __str__(self) -> str:
        luck = (self.luck.words,) if self.luck and self.summary()["changes"] else ()
        told = [place for one in self._regions()[:FIRST] for place in one.made.tolist()]
        left = int(self.training.changes.sum()) - len(set(told))
        first = first_line(self, self.training, self._changed(), left)
        return "\n".join((first, in_a_line(self.summary(), "point"), *luck, *self.statements))

    def __repr__(self) -> str:
        return f"<NeighborPolicy: {len(self.z):,} points, {len(self.feature_names)} features>"
