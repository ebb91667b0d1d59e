"""Situation: where a policy makes one change, and the steps of a log that lie there.

Labels, cells and rules give one situation per state, cell or rule. Other features give regions:
ranges of features in which the change is made at most of the log's steps
(`dprl.policies._region_search`). Changes at other steps are in no situation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.logs.log import Label
from dprl.policies._decisions import Decisions, Kind
from dprl.policies._explain import change_words, surest_first
from dprl.policies._region_search import group
from dprl.policies._regions import Region, range_words
from dprl.policies._spaces import FeatureSpace

__all__ = ["Situation", "at_states", "in_regions", "whole_numbers"]

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Situation:
    """One change of a policy and the steps of a log it is about.

    Attributes:
        words: Where, in words.
        state: The state's label, the cell's number, or the words of a rule; None where it is a
            region.
        region: The region; None where it is a state.
        typical: (name, value) of a typical state; empty for labels.
        rows: int64, the log's steps in the situation.
        made: int64, those at which the policy makes the change.
        purity: Share of `rows` at which it does.
        here: Decisions, of which number `s` tells the numbers of the change.
        s: That number.
        confirmed: Share of `rows` at which it confirms the usual action.
        deferred: Share of `rows` at which it is silent.
    """

    words: str
    state: Label | None
    region: Region | None
    typical: tuple[tuple[str, float | str], ...]
    rows: Ints
    made: Ints
    purity: float
    here: Decisions
    s: int
    confirmed: float = 0.0
    deferred: float = 0.0


def at_states(
    here: Decisions,
    codes: Ints,
    words: Callable[[int, Ints], str],
    typical: Callable[[int], tuple[tuple[str, float | str], ...]] = lambda s: (),
) -> list[Situation]:
    """One situation per changed state, the surest first; codes (N,): the state of each step."""
    situations = []
    for s in surest_first(here, np.flatnonzero(here.kind == Kind.CHANGE)).tolist():
        rows = np.flatnonzero(codes == s)
        situations.append(
            Situation(words(s, rows), here.states[s], None, typical(s), rows, rows, 1.0, here, s)
        )
    return situations


def in_regions(
    here: Decisions, space: FeatureSpace, x: Floats, z: Floats | None = None
) -> list[Situation]:
    """One situation per region of the changes `here` made at states x (N, d), at coordinates z.

    The numbers of a region are those of the step nearest to the median of its steps.
    """
    z = space.coordinates(x) if z is None else z
    names, whole, situations = space.feature_names, whole_numbers(space, x), []
    for one in group(x, names, change_words(here), space.used):
        typical = int(one.rows[_from_median(z[one.rows]).argmin()])
        state = space.shown(x[typical], range(len(names)))
        kinds = here.kind[one.inside]
        situations.append(
            Situation(
                range_words(one.region.ranges, whole, space.encoding), None, one.region, state,
                one.inside,
                one.rows, one.purity, here, typical,
                confirmed=float((kinds == Kind.CONFIRM).mean()),
                deferred=float((kinds == Kind.DEFER).mean()),
            )
        )  # fmt: skip
    return situations


def whole_numbers(space: FeatureSpace, x: Floats) -> dict[str, bool]:
    """Which of the features that count are whole numbers at all states x (N, d)."""
    return {space.feature_names[j]: bool((x[:, j] == np.floor(x[:, j])).all()) for j in space.used}


def _from_median(z: Floats) -> Floats:
    """float64 (k,): squared distances of coordinates z (k, d') from their median."""
    return np.asarray(((z - np.median(z, axis=0)) ** 2).sum(axis=1))
