"""The first rule that holds in each state: a compiled loop over flat arrays."""

from __future__ import annotations

# Apart: a kernel kept from "import dprl".
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dprl._core.arrays import Bools, Floats, Ints
from dprl._core.compiled import compiled
from dprl.logs.encoding.categories import Levels
from dprl.policies.rules.rule import KINDS, WITH_LABELS, Rule, Sum

AT_MOST, ABOVE, MISSING, IN, NOT_IN = (
    KINDS.index(kind) for kind in ("at most", "above", "missing", "in", "not in")
)


class FlatRules(NamedTuple):
    """Rules as arrays, for a loop without objects.

    An exception of a rule is a line of its own before it, with the conditions of both: where it
    holds no rule speaks. A sum of features is a column of its own, after those of the features.

    Attributes:
        starts: int64 (L + 1,), the first condition of each line, and their number.
        feature: int64 (C,), the place of the feature that each condition asks.
        kind: int64 (C,), what it asks: a place in `KINDS`.
        value: float64 (C,), its number; NaN where it has none.
        places: int64 (C + 1,), the first entry of `accepted` of each condition, and their number.
        accepted: bool, for each condition on labels and each label of its category, whether the
            label satisfies it.
        answer: int64 (L + 1,), the rule of each line, -1 for exceptions; -1 at the end.
        sums: The sums of the columns after the features.
        names: The names of the features.
    """

    starts: Ints
    feature: Ints
    kind: Ints
    value: Floats
    places: Ints
    accepted: Bools
    answer: Ints
    sums: tuple[Sum, ...]
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, rules: Sequence[Rule], feature_names: Sequence[str], levels: Levels = ()
    ) -> FlatRules:
        """The arrays of these rules over these features, categories with their labels."""
        lines, answer = [], []
        for r, rule in enumerate(rules):
            lines += [(*rule.conditions, *region) for region in rule.unless] + [rule.conditions]
            answer += [-1] * len(rule.unless) + [r]
        asked: list[Any] = [c for line in lines for c in line]
        sums = tuple(dict.fromkeys(c for c in asked if isinstance(c, Sum)))
        places, d = list(feature_names), len(feature_names)
        accepted: list[list[bool]] = []
        at = [d + sums.index(c) if isinstance(c, Sum) else places.index(c.feature) for c in asked]
        for c, f in zip(asked, at, strict=True):
            own = (levels[f] if levels and f < d else None) or ()
            labelled = c.kind in WITH_LABELS
            accepted.append([(x in c.labels) == (c.kind == "in") for x in own] if labelled else [])
        return cls(
            np.cumsum([0, *map(len, lines)], dtype=np.int64),
            np.array(at, np.int64),
            np.array([KINDS.index(c.kind) for c in asked], np.int64),
            np.array([c.value for c in asked], np.float64),
            np.cumsum([0, *map(len, accepted)], dtype=np.int64),
            np.array([good for line in accepted for good in line], bool),
            np.array([*answer, -1], np.int64), sums, tuple(feature_names),
        )  # fmt: skip

    def first(self, x: Floats) -> Ints:
        """int64 (k,): the number of the first rule that holds in each state x (k, d); -1 if none.

        An exception of a rule silences the rules after it, too: there the policy defers.
        """
        if self.sums:
            x = np.column_stack([x, *(one.total(x, self.names) for one in self.sums)])
        line = first_line(np.ascontiguousarray(x), *self[:6])
        return np.asarray(self.answer[line])


@compiled
def first_line(
    x: Floats,
    starts: Ints,
    feature: Ints,
    kind: Ints,
    value: Floats,
    places: Ints,
    accepted: Bools,
) -> Ints:
    """int64 (k,): the first line that holds in each state x (k, d); -1 if none does."""
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
