"""CellPolicy: a policy over cells of numeric features, small enough to certify cell by cell.

A state belongs to the cell of its nearest centre, if that is within `radius`; farther from every
centre the policy defers. Over its cells it is an ordinary `Policy`, labelled 0, 1, ....
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
from dprl.logs._feature_input import features_of
from dprl.policies._explain import Explanation, apart
from dprl.policies.table import PAIRS, STATES, Policy, in_a_line

if TYPE_CHECKING:
    from dprl.evidence.neighbors.engine import Engine
    from dprl.evidence.neighbors.metric import FittedMetric

__all__ = ["CellPolicy"]


@dataclass(frozen=True, eq=False)
class CellPolicy(Policy):
    """A deferring policy over cells; immutable. A `Policy` over cells, with their places.

    Attributes:
        feature_names: The d features a state needs, in order.
        scale: float64 (d,), what each feature is divided by.
        weight: float64 (d,), what each squared difference is multiplied by.
        z: float64 (S, d'), the cells' centres in coordinates where distance is Euclidean.
    """

    KIND: ClassVar[str] = "cells"

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
    def _metric(self) -> FittedMetric:
        from dprl.evidence.neighbors.metric import FittedMetric

        return FittedMetric(self.feature_names, self.scale, self.weight)

    @functools.cached_property
    def _centres(self) -> Engine:
        return centres_of(self.z)

    def cells_of(self, states: Any) -> NDArray[np.int64]:
        """The cell of each state, int64 (k,); -1 where it is in none."""
        from dprl.evidence.neighbors._net import nearest_centres

        x, _ = features_of(states, self.feature_names)
        if not len(self.states):
            return np.full(len(x), -1, np.int64)
        radius = float(self.parameters["radius"])
        return nearest_centres(self._centres, self._metric.transform(x), radius)

    def at(self, states: Any) -> Policy:
        """The policy over just these states: labelled 0, 1, ... in their order.

        Args:
            states: (k, d) numbers in the order of `feature_names`, or a table with these columns,
                or one state as a sequence or a mapping.
        """
        cell = self.cells_of(states)
        inside = cell >= 0

        def rows(name: str, dtype: str) -> NDArray[Any]:
            array = getattr(self, name)
            fill: Any = {"choice": -1, "allowed": False}.get(name, 0)
            fill = np.nan if dtype == "float64" else fill
            result = np.full((len(cell), *array.shape[1:]), fill, array.dtype)
            result[inside] = array[cell[inside]]
            return result

        parts: dict[str, Any] = {
            name: rows(name, dtype) for name, dtype in {**STATES, **PAIRS}.items()
        }
        parts["steps"] = np.ones(len(cell), np.int64)
        return Policy(
            states=tuple(range(len(cell))), actions=self.actions, parameters=self.parameters,
            provenance=self.provenance, **parts,
        )  # fmt: skip

    def act(self, states: Any) -> Any:
        """The action for each state, or DEFER; states as in `at`."""
        _, single = features_of(states, self.feature_names)
        here = self.at(states)
        answers = here.act(here.states)
        return answers[0] if single else answers

    def probabilities(
        self, states: Any = None, *, behavior: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """π(a|s), float64 (k, A): 1 at the chosen action, the behaviour's where it defers."""
        if states is None:
            raise PolicyError("states of features must be named.", do="Pass their features.")
        return self.at(states).probabilities(behavior=behavior)

    def explain(self, state: Any, *, cases: bool = False) -> Explanation:
        """Why the policy answers as it does at one state; it knows no past cases by name."""
        x, single = features_of(state, self.feature_names)
        if not single and len(x) != 1:
            raise PolicyError(f"one state is explained at a time; got {len(x)}.")
        cell = int(self.cells_of(x)[0])
        words = ", ".join(f"{n} = {v:g}" for n, v in zip(self.feature_names, x[0], strict=True))
        if cell < 0:
            far = f"It is farther than {self.parameters['radius']:g} from every cell."
            return Explanation(words, "defer", None, far, 0, None, Table({}))
        here = super().explain(cell)
        return replace(here, state=words, reason=f"Cell {cell}: {here.reason}")

    def changes(self, *, cases: bool = False) -> Table:
        """The cells whose suggestion differs from the usual action, largest first."""
        return self._listed(super().changes())

    def confirmations(self, *, cases: bool = False) -> Table:
        """The cells whose suggestion is the usual action already, largest first."""
        return self._listed(super().confirmations())

    def _listed(self, table: Table) -> Table:
        """A table by cell, with the features of its centre."""
        rows = np.array(table["state"], np.int64)
        kept = np.flatnonzero(self.weight)
        x = self.z[rows] / (np.sqrt(self.weight[kept]) / self.scale[kept])
        columns: dict[str, Any] = {"state": table["state"]}
        for k, i in enumerate(kept):
            columns[apart(self.feature_names[i], table.columns)] = x[:, k].tolist()
        columns |= {n: v for n, v in table.columns.items() if n != "state"}
        return replace(table, columns=columns)

    def _changed(self) -> list[dict[str, Any]]:
        def words(row: dict[str, Any]) -> str:
            names = [self.feature_names[i] for i in np.flatnonzero(self.weight)]
            near = [f"{n} = {row[apart(n, ours)]:.4g}" for n in names]
            more = f" and {len(near) - 4} more" if len(near) > 4 else ""
            return f"cell {row['state']}: around {', '.join(near[:4])}{more}"

        ours = super().changes().columns
        return [{**row, "where": words(row)} for row in super()._changed()]

    def __str__(self) -> str:
        s = self.summary()
        return in_a_line({**s, "cells": s["states"]}, "cell")


def centres_of(z: NDArray[np.float64]) -> Engine:
    """An engine that finds centres z (S, d')."""
    from dprl.evidence.neighbors.engine import Engine
    from dprl.evidence.neighbors.samples import Points

    n = len(z)
    points = Points(z, np.zeros(n, np.int32), np.zeros(n), np.arange(n))
    return Engine.build(points, 1)
