"""CellPolicy: a policy over cells of numeric features, small enough to certify cell by cell.

A state belongs to the cell of its nearest centre, if that is within `radius`; farther from every
centre the policy defers. Cells are numbered 0, 1, ....
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dprl._core.table import Table
from dprl.errors import PolicyError
from dprl.logs.log import Log
from dprl.policies._decisions import Decisions, Terms
from dprl.policies._explain import Explanation, apart, explain_at
from dprl.policies._region_search import ranges_of
from dprl.policies._regions import range_words
from dprl.policies._restrict import Approved, limit_states
from dprl.policies._situations import Situation, at_states, whole_numbers
from dprl.policies._spaces import FeatureSpace
from dprl.policies._tabled import Tabled, in_a_line
from dprl.policies.table import changes_of, confirmations_of

if TYPE_CHECKING:
    from dprl.evidence.neighbors.engine import Engine

__all__ = ["CellPolicy"]


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
    """

    KIND: ClassVar[str] = "cells"
    changes_by: ClassVar[Literal["state", "cell", "region"]] = "cell"

    feature_names: tuple[str, ...]
    scale: NDArray[np.float64]
    weight: NDArray[np.float64]
    z: NDArray[np.float64]

    def __post_init__(self) -> None:
        super().__post_init__()
        d = len(self.feature_names)
        self._check_arrays({"scale": "float64", "weight": "float64"}, (d,))
        self._check_arrays({"z": "float64"}, (len(self.states), int((self.weight > 0).sum())))
        radius = self.parameters.get("radius")
        ok = (
            len(set(self.feature_names)) == d > 0
            and all(isinstance(name, str) for name in self.feature_names)
            and bool(np.isfinite(self.z).all() and np.isfinite(self.weight).all())
            and bool((self.weight >= 0).all() and (self.scale > 0).all())
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
        return FeatureSpace(self.feature_names, self.scale, self.weight)

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

    def cells_of(self, states: Any) -> NDArray[np.int64]:
        """The cell of each state, int64 (k,); -1 where it is in none."""
        from dprl.evidence.neighbors._net import nearest_centres

        x, _ = self.space.read(states)
        if not len(self.states):
            return np.full(len(x), -1, np.int64)
        radius = float(self.parameters["radius"])
        return nearest_centres(self._centres, self.space.coordinates(x), radius)

    def at(self, states: Any) -> Decisions:
        """What it answers at these states, and everything it knows about their cells.

        Args:
            states: (k, d) numbers in the order of `feature_names`, or a table with these columns,
                or one state as a sequence or a mapping.
        """
        cell = self.cells_of(states)
        return self.decisions.at(cell, range(len(cell)))

    def act(self, states: Any) -> Any:
        """The action for each state, or DEFER; states as in `at`."""
        x, single = self.space.read(states)
        answers = self.at(x).answers()
        return answers[0] if single else answers

    def probabilities(
        self, states: Any, *, behavior: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """π(a|s), float64 (k, A): 1 at the chosen action, the behaviour's where it defers."""
        return self.at(states).probabilities(behavior=behavior)

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does at one state; it knows no past cases by name."""
        x, single = self.space.read(state)
        if not single and len(x) != 1:
            raise PolicyError(f"one state is explained at a time; got {len(x)}.")
        cell = self.cells_of(x)
        why = explain_at(self.decisions.at(cell, range(1)), 0, self.space.words(x[0]))
        return why if cell[0] < 0 else replace(why, reason=f"Cell {cell[0]}: {why.reason}")

    # -- what it would change ----------------------------------------------------------------

    def changes(self, *, cases: bool = False) -> Table:
        """The cells whose suggestion differs from the usual action, largest first."""
        return self._listed(changes_of(self.decisions))

    def confirmations(self, *, cases: bool = False) -> Table:
        """The cells whose suggestion is the usual action already, largest first."""
        return self._listed(confirmations_of(self.decisions))

    def situations(self, log: Log) -> list[Situation]:
        """Its changes, one per cell, and the steps of a log in each.

        Args:
            log: A log with the features of this policy, in the same order.
        """
        x = np.asarray(log.features)
        centres, names, used = self.space.features(self.z), self.feature_names, self.space.used

        def centre(s: int) -> tuple[tuple[str, float], ...]:
            return tuple((names[j], float(centres[s, j])) for j in used)

        def words(s: int, rows: NDArray[np.int64]) -> str:
            near = ", ".join(f"{name} = {value:.4g}" for name, value in centre(s))
            said = f"cell {s}: all states nearest to {near}"
            if not len(rows):
                return said
            ranges = range_words(ranges_of(x, names, rows, used), whole_numbers(self.space, x))
            return f"{said}; in this log {ranges}"

        return at_states(self.decisions, self.cells_of(x), words, centre)

    def limited_to(self, approved: Sequence[Approved], **noted: Any) -> CellPolicy:
        """The policy with these of its changes alone; `noted` goes into its provenance."""
        return limit_states(self, [c.state for c in approved if c.state is not None], **noted)

    def _listed(self, table: Table) -> Table:
        """A table by cell, with the features of its centre."""
        x = self.space.features(self.z[np.array(table["state"], np.int64)])
        columns: dict[str, Any] = {"state": table["state"]}
        for i in self.space.used:
            columns[apart(self.feature_names[i], table.columns)] = x[:, i].tolist()
        columns |= {n: v for n, v in table.columns.items() if n != "state"}
        return replace(table, columns=columns)

    def _changed(self) -> list[dict[str, Any]]:
        ours = changes_of(self.decisions).columns
        names = [apart(self.feature_names[i], ours) for i in self.space.used]

        def words(row: dict[str, Any]) -> str:
            near = [
                f"{self.feature_names[i]} = {row[name]:.4g}"
                for i, name in zip(self.space.used, names, strict=True)
            ]
            more = f" and {len(near) - 4} more" if len(near) > 4 else ""
            return f"cell {row['state']}: around {', '.join(near[:4])}{more}"

        steps = self.steps.tolist()
        return [{**r, "where": words(r), "steps": steps[r["state"]]} for r in self.changes()]

    def __str__(self) -> str:
        s = self.summary()
        return in_a_line({**s, "cells": s["states"]}, "cell")

    def __repr__(self) -> str:
        return f"<CellPolicy: {self}>"


def centres_of(z: NDArray[np.float64]) -> Engine:
    """An engine that finds centres z (S, d')."""
    from dprl.evidence.neighbors.engine import Engine
    from dprl.evidence.neighbors.samples import Points

    n = len(z)
    points = Points(z, np.zeros(n, np.int32), np.zeros(n), np.arange(n))
    return Engine.build(points, 1)
