"""The first rule that holds in each state: a compiled loop over flat arrays."""

from __future__ import annotations

# Apart: a kernel kept from "import dprl".
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.compiled import compiled
from dprl.logs.encoding.categories import Levels
from dprl.policies.rules.rule import KINDS, WITH_LABELS, Rule

AT_MOST, ABOVE, MISSING, IN, NOT_IN = (
    KINDS.index(kind) for kind in ("at most", "above", "missing", "in", "not in")
)


class FlatRules(NamedTuple):
    """Rules as arrays, for a loop without objects.

    Attributes:
        starts: int64 (R + 1,), the first condition of each rule, and their number.
        feature: int64 (C,), the place of the feature that each condition asks.
        kind: int64 (C,), what it asks: a place in `KINDS`.
        value: float64 (C,), its number; NaN where it has none.
        places: int64 (C + 1,), the first entry of `accepted` of each condition, and their number.
        accepted: bool, for each condition on labels and each label of its category, whether the
            label satisfies it.
    """

    starts: NDArray[np.int64]
    feature: NDArray[np.int64]
    kind: NDArray[np.int64]
    value: NDArray[np.float64]
    places: NDArray[np.int64]
    accepted: NDArray[np.bool_]

    @classmethod
    def of(
        cls, rules: Sequence[Rule], feature_names: Sequence[str], levels: Levels = ()
    ) -> FlatRules:
        """The arrays of these rules over these features, categories with their labels."""
        asked: list[Any] = [c for rule in rules for c in rule.conditions]
        places = list(feature_names)
        accepted: list[list[bool]] = []
        for c in asked:
            own = (levels[places.index(c.feature)] if levels else None) or ()
            labelled = c.kind in WITH_LABELS
            accepted.append([(x in c.labels) == (c.kind == "in") for x in own] if labelled else [])
        return cls(
            np.cumsum([0, *(len(rule.conditions) for rule in rules)], dtype=np.int64),
            np.array([places.index(c.feature) for c in asked], np.int64),
            np.array([KINDS.index(c.kind) for c in asked], np.int64),
            np.array([c.value for c in asked], np.float64),
            np.cumsum([0, *map(len, accepted)], dtype=np.int64),
            np.array([good for line in accepted for good in line], bool),
        )


@compiled
def first_rule(
    x: NDArray[np.float64],
    starts: NDArray[np.int64],
    feature: NDArray[np.int64],
    kind: NDArray[np.int64],
    value: NDArray[np.float64],
    places: NDArray[np.int64],
    accepted: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """int64 (k,): the number of the first rule that holds in each state x (k, d); -1 if none."""
    first = np.full(len(x), -1, np.int64)
    for i in range(len(x)):
        for rule in range(len(starts) - 1):
            holds = True
            for c in range(starts[rule], starts[rule + 1]):
                measured = x[i, feature[c]]
                if kind[c] == MISSING:
                    holds = math.isnan(measured)
                elif not math.isfinite(measured):
                    holds = False
                elif kind[c] == AT_MOST:
                    holds = measured <= value[c]
                elif kind[c] == ABOVE:
                    holds = measured > value[c]
                elif kind[c] == IN or kind[c] == NOT_IN:
                    code = int(measured)
                    size = places[c + 1] - places[c]
                    holds = 0 <= code < size and accepted[places[c] + code]
                if not holds:
                    break
            if holds:
                first[i] = rule
                break
    return first
