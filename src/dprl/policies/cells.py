"""CellPolicy: a policy over cells of numeric features, small enough to certify cell by cell.

A state belongs to the cell of its nearest centre, if that is within `radius`; farther from every
centre the policy defers. Cells are numbered 0, 1, ....
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from dprl._core.arrays import Floats, Ints
from dprl._core.table import Table, first_few
from dprl._core.words import joined, say
from dprl.logs.encoding.encoder import encoded_by
from dprl.logs.encoding.features import plain_features
from dprl.logs.log import Log
from dprl.policies.base import METRIC
from dprl.policies.explain import Explanation, apart, explain_at
from dprl.policies.protocol import Decisions, Terms
from dprl.policies.regions import Situation, at_states, range_words, ranges_of, whole_numbers
from dprl.policies.spaces import FeatureSpace, single_state
from dprl.policies.table import Tabled, changes_of, first_line, in_a_line, texts_in

if TYPE_CHECKING:
    from dprl.evidence.neighbors.engine import Engine


@dataclass(frozen=True, eq=False, repr=False)
class CellPolicy(Tabled):
    """A deferring policy over cells; immutable.

    What is known of each cell is kept as a `TablePolicy` keeps it for each state, in the same
    attributes; S is the number of cells.

    Attributes:
        states: The numbers 0 to S - 1 of the cells.
        feature_names: The d features a state needs, in order.
        scale: float64 (d,), what each feature is divided by.
        weight: float64 (d,), what each squared difference is multiplied by.
        z: float64 (S, d'), the cells' centres in coordinates where distance is Euclidean.
        actions: Action labels, A of them.
        parameters: The learner and its settings.
        provenance: Digest and size of the training log, version of dprl.
        choice: int32 (S,), the chosen action's code, -1 for DEFER.
        allowed: bool (S, A), the pairs that passed the rule (Eq. 1).
        steps: int64 (S,), rows of the training log in each cell.
        n: int64 (S, A), trajectories that contain the pair.
        m: int64 (S, A), trajectories that took the action at their first visit of the cell.
        Q: float64 (S, A), Q̂(s,a); NaN where n = 0.
        V: float64 (S,), V̂(s); NaN where the cell was never visited.
        took_mean: float64 (S, A), mean return of first visits that took the action.
        took_sd: float64 (S, A), sample standard deviation of these returns.
        others_mean: float64 (S, A), mean return of first visits that did otherwise.
        others_sd: float64 (S, A), sample standard deviation of these returns.
        lowest: float64 (S,), smallest return at a first visit; NaN where never visited.
        highest: float64 (S,), largest return at a first visit; NaN where never visited.
        planned: float64 (S, A), value of taking the action now and following the plan after; NaN
            where it is not allowed.
        avoid: None: it says what to take, never what to avoid. Default None.
        certificate: What is proved about it, where it went through `dprl.gate`. Default None.

    Example:
        >>> import dprl
        >>> log = dprl.from_arrays(
        ...     episode=range(600), state=[[0.0], [0.5]] * 300,
        ...     action=["drug", "wait", "wait"] * 200, reward=[1, 0, 0] * 200,
        ... )
        >>> learner = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0)
        >>> policy = dprl.gate(learner, log, value_range=(0, 1))
        >>> policy.act([[0.0], [9.0]])
        ['drug', DEFER]
    """

    KIND: ClassVar[str] = "cells"
    ARRAYS: ClassVar[Mapping[str, str]] = {**Tabled.ARRAYS, **METRIC, "z": "float64 Sw"}
    changes_by: ClassVar[Literal["state", "cell", "region", "rule"]] = "cell"

    feature_names: tuple[str, ...]
    scale: Floats
    weight: Floats
    z: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        d = len(self.feature_names)
        radius = self.parameters.get("radius")
        ok = (
            len(set(self.feature_names)) == d > 0
            and all(isinstance(name, str) for name in self.feature_names)
            and bool((np.abs(self.z) <= 1e18).all())
            and isinstance(radius, int | float)
            and not isinstance(radius, bool)
            and 0 <= radius < math.inf
            and self.states == tuple(range(len(self.states)))
        )
        if not ok:
            self._refuse("its cells are not cells")

    @functools.cached_property
    def space(self) -> FeatureSpace:
        """The features a state needs, and how distance is measured."""
        return FeatureSpace(self.feature_names, self.scale, self.weight, encoding=self.encoding)

    @property
    def terms(self) -> Terms:
        """On which terms it decides."""
        far = f"arther than {self.parameters['radius']:g} from every cell."
        return Terms.of(
            self.parameters, self.provenance, self.certificate, unseen=f"It is f{far}",
            elsewhere=f"F{far}",
        )  # fmt: skip

    @property
    def single_states(self) -> str:
        """Which states of single people it answers from."""
        return f"{len(self.z):,} cell centres: states of single people as they were measured"

    @functools.cached_property
    def _centres(self) -> Engine:
        return centres_of(self.z)

    # -- what it answers ---------------------------------------------------------------------

    def cells_of(self, states: Any) -> Ints:
        """The cell of each state.

        Args:
            states: (k, d) numbers in the order and the units of `feature_names`, or a table with
                these columns; or one state, as a sequence of d numbers or a mapping from name to
                number.

        Returns:
            int64 (k,), the number of the cell; -1 where the state is in none.

        Raises:
            ParameterError: The states have another number of features.
            PolicyError: A feature is not named, or a state is not numbers.
            LogError: A feature is not finite.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(600), state=[[0.0], [0.5]] * 300,
            ...     action=["drug", "wait", "wait"] * 200, reward=[1, 0, 0] * 200,
            ... )
            >>> learner = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0)
            >>> policy = dprl.gate(learner, log, value_range=(0, 1))
            >>> policy.cells_of([[0.0], [9.0]]).tolist()
            [0, -1]
        """
        from dprl.evidence.neighbors.engine import nearest_centres

        x, _ = self.space.read(states)
        if not len(self.states):
            return np.full(len(x), -1, np.int64)
        radius = float(self.parameters["radius"])
        return nearest_centres(self._centres, self.space.coordinates(x), radius)

    def at(self, states: Any) -> Decisions:
        """What it answers at these states, and everything it knows about their cells.

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
            ...     episode=range(600), state=[[0.0], [0.5]] * 300,
            ...     action=["drug", "wait", "wait"] * 200, reward=[1, 0, 0] * 200,
            ... )
            >>> learner = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0)
            >>> policy = dprl.gate(learner, log, value_range=(0, 1))
            >>> policy.at([[0.0], [9.0]]).answers()
            ['drug', DEFER]
        """
        cell = self.cells_of(states)
        return self.decisions.at(cell, range(len(cell)))

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does at one state.

        Args:
            state: One state, as a sequence of d numbers or a mapping from name to number.
            cases: Has no effect, because this policy keeps no episode labels. Default False.

        Returns:
            The answer, the reason for it in a sentence, and a table of the actions seen there.

        Raises:
            PolicyError: More than one state is given, or a feature is not named.
            LogError: A feature is not finite.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(600), state=[[0.0], [0.5]] * 300,
            ...     action=["drug", "wait", "wait"] * 200, reward=[1, 0, 0] * 200,
            ... )
            >>> learner = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0)
            >>> policy = dprl.gate(learner, log, value_range=(0, 1))
            >>> policy.explain([0.0]).kind
            'change'
        """
        x = single_state(self.space, state)
        cell = self.cells_of(x)
        why = explain_at(self.decisions.at(cell, range(1)), 0, self.space.words(x[0]))
        return why if cell[0] < 0 else replace(why, reason=f"Cell {cell[0]}: {why.reason}")

    # -- what it would change ----------------------------------------------------------------

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, one per cell, and the steps of a log in each.

        Args:
            log: A log with the features of this policy, in the same order.

        Returns:
            One situation for each cell that changes, with the rows of the log in it.

        Example:
            >>> import dprl
            >>> log = dprl.from_arrays(
            ...     episode=range(600), state=[[0.0], [0.5]] * 300,
            ...     action=["drug", "wait", "wait"] * 200, reward=[1, 0, 0] * 200,
            ... )
            >>> learner = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0)
            >>> policy = dprl.gate(learner, log, value_range=(0, 1))
            >>> len(policy.situations(log))
            2
        """
        x = plain_features(encoded_by(log, self.encoding))
        centres, names, used = self.space.features(self.z), self.feature_names, self.space.used

        def centre(s: int) -> tuple[tuple[str, float | str], ...]:
            return self.space.shown(centres[s], used)

        def words(s: int, rows: Ints) -> str:
            near = joined(
                ", ",
                (
                    joined(" = ", (name, value))
                    if isinstance(value, str)
                    else say("{feature} = {x:.4g}", feature=name, x=value)
                    for name, value in centre(s)
                ),
            )
            if not len(rows):
                return say("cell {n}: all states nearest to {near}", n=s, near=near)
            ranges = range_words(
                ranges_of(x, names, rows, used), whole_numbers(self.space, x), self.encoding
            )
            return say(
                "cell {n}: all states nearest to {near}; in this log {here}",
                n=s,
                near=near,
                here=ranges,
            )

        return at_states(self.decisions, self.cells_of(x), words, centre)

    def _listed(self, table: Table) -> Table:
        """A table by cell, with the features of its centre."""
        x = self.space.features(self.z[np.array(table["state"], np.int64)])
        columns: dict[str, Any] = {"state": table["state"]}
        named = {apart(n, table.columns): own for n, own in self.space.shown_columns(x).items()}
        columns |= named
        columns |= {n: v for n, v in table.columns.items() if n != "state"}
        return replace(table, columns=columns, identifiers=table.identifiers | texts_in(named))

    def _changed(self) -> list[dict[str, Any]]:
        ours = changes_of(self.decisions).columns
        names = {n: apart(n, ours) for n in self.space.shown_columns(self.z[:0])}

        def words(row: dict[str, Any]) -> str:
            near = [
                f"{name} = {row[own] if isinstance(row[own], str) else f'{row[own]:.4g}'}"
                for name, own in names.items()
            ]
            return f"cell {row['state']} (around {first_few(near, 4)})"

        steps = self.steps.tolist()
        return [{**r, "where": words(r), "steps": steps[r["state"]]} for r in self.changes()]

    def __str__(self) -> str:
        s = self.summary()
        line = in_a_line({**s, "cells": s["states"]}, "cell")
        return "\n".join(
            (first_line(self, self.decisions, self._changed()), line, *self.conditions)
        )

    def __repr__(self) -> str:
        s = self.summary()
        return f"<CellPolicy: {in_a_line({**s, 'cells': s['states']}, 'cell')}>"


def centres_of(z: Floats) -> Engine:
    """An engine that finds centres z (S, d')."""
    from dprl.evidence.neighbors.engine import Engine, Points

    n = len(z)
    points = Points(z, np.zeros(n, np.int32), np.zeros(n), np.arange(n))
    return Engine.build(points, 1)
