"""What a state is to a policy: a label, or a row of features.

A space knows how what users hand over (a label, a column, a table, a mapping) and the steps of a
log become states, whether a log fits, and how a state is said in words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from dprl._core.arrays import Floats, Ints
from dprl._core.words import joined, say
from dprl.errors import PolicyError
from dprl.logs.encoding.categories import CodedFeatures, Levels, codes_for, mixed_features_of
from dprl.logs.encoding.encoder import FAR, NEVER, Encoding, encoded_by, raw_value
from dprl.logs.encoding.features import columns_in, features_of, plain_features
from dprl.logs.encoding.gaps import GONE, is_gone
from dprl.logs.log import Label, Log
from dprl.logs.reading.columns import known_as
from dprl.logs.reading.dates import on_day
from dprl.logs.reading.text import fold

if TYPE_CHECKING:
    from dprl.evidence.neighbors.metric import FittedMetric


@dataclass(frozen=True, eq=False)
class LabelSpace:
    """States are labels.

    Attributes:
        states: The labels a policy knows, S of them.
        encoding: How several columns became one label. Default None: it was one column.
        gone: The label of a missing state. Default None: it has none, and is like one never seen.
        fold: What is done to labels first ("trim,casefold"). Default "": nothing.
    """

    states: tuple[Label, ...]
    encoding: Encoding | None = None
    gone: str | None = None
    fold: str = ""
    feature_names: ClassVar[tuple[str, ...]] = ()
    said: ClassVar[tuple[str, ...]] = ()

    @functools.cached_property
    def _codes(self) -> dict[Label, int]:
        return {label: i for i, label in enumerate(self.states)}

    def __contains__(self, label: object) -> bool:
        label = fold(label, self.fold) if self.encoding is None else label
        return known_as(label, self._codes) in self._codes

    def read(self, states: Any) -> tuple[list[Any], bool]:
        """The labels that were handed over, and whether it was a single one."""
        states = states if self.encoding is None else self.encoding.states(states)
        return ([states], True) if is_one(states) else (self.column(states), False)

    def column(self, states: Any) -> list[Any]:
        """Several labels that were handed over; a single one, or a table, is refused."""
        states = states if self.encoding is None else self.encoding.states(states)
        if isinstance(states, str | Mapping) or hasattr(states, "columns"):
            raise PolicyError(
                f"states must be a list or a column of labels; got a {type(states).__name__}.",
                do="Pass one column: table['stage'], not the table.",
            )
        return list(states)

    def codes(self, states: Iterable[Any]) -> Ints:
        """int64 (k,): places of labels in `states`; -1 where one was never seen.

        A missing one is -1 too, unless it has a label of its own.

        Labels of another type than the training labels are refused if none is known: they would be
        unknown for ever, without a word.
        """
        given = list(states)
        codes = np.array([self._code(state) for state in given], np.int64)
        if not (codes >= 0).any():
            for state in given:
                self._refuse_other_type(state)
        return codes

    def _code(self, state: Any) -> int:
        if self.fold and self.encoding is None:
            state = fold(state, self.fold)
        if self.gone is not None and is_gone(state):
            return self._codes.get(self.gone, -1)
        if _missing(state):
            return -1
        if not isinstance(state, str) and not _is_whole(state):
            self._refuse_other_type(state)
        return self._codes.get(known_as(state, self._codes), -1)

    def _refuse_other_type(self, state: Any) -> None:
        """Refuse a label of another type than the training labels."""
        text = bool(self.states) and isinstance(self.states[0], str)
        right = isinstance(state, str) if text else _is_whole(state)
        if self.states and not right and not _missing(state):
            raise PolicyError(
                f"this policy's states are {'text' if text else 'whole numbers'}; got {state!r}.",
                f"its states look like {', '.join(map(repr, self.states[:3]))}",
                "Give one label a state, in the type it had when the policy was fitted.",
            )

    def of_log(self, log: Log) -> tuple[Sequence[Any], Ints]:
        """The different states of a log, and which of them each step is in, int64 (N,)."""
        log = encoded_by(log, self.encoding)
        if log.state is None:
            raise _another("labels", "features")
        return list(log.states), log.codes().astype(np.int64)

    def words(self, state: Label) -> Label:
        """A state as explanations name it."""
        return state


def _is_whole(state: Any) -> bool:
    if isinstance(state, float | np.floating):
        return float(state).is_integer()
    if isinstance(state, Decimal):
        return state.is_finite() and state == int(state)
    return isinstance(state, int | np.integer | np.bool_)


@dataclass(frozen=True, eq=False)
class FeatureSpace:
    """States are features: numbers, and for some policies categories and missing values.

    Attributes:
        feature_names: The d features a state needs, in order.
        scale: float64 (d,), what each feature is divided by.
        weight: float64 (d,), what each squared difference is multiplied by.
        levels: For each feature the labels of a category, None for a number; () where all are
            numbers. Default None: the same, and no feature may be missing.
        encoding: How categories became indicators, and what fills gaps. Default None: nothing was
            encoded.
    """

    feature_names: tuple[str, ...]
    scale: Floats = field(repr=False)
    weight: Floats = field(repr=False)
    levels: Levels | None = None
    encoding: Encoding | None = None
    states: ClassVar[tuple[Label, ...]] = ()

    @functools.cached_property
    def metric(self) -> FittedMetric:
        """Distances as the policy measures them."""
        from dprl.evidence.neighbors.metric import FittedMetric

        return FittedMetric(self.feature_names, self.scale, self.weight)

    @functools.cached_property
    def used(self) -> list[int]:
        """Places of the features that count."""
        return [int(i) for i in np.flatnonzero(self.weight)]

    def read(self, states: Any) -> tuple[Floats, bool]:
        """The features (k, d) of what was handed over, and whether it was a single state."""
        states = states if self.encoding is None else self.encoding.states(states)
        if self.levels:
            x, single = mixed_features_of(states, self.feature_names, self.levels)
        else:
            x, single = features_of(states, self.feature_names)
        return self._apart(x), single

    def _apart(self, x: Floats) -> Floats:
        """Features (k, d) in which what is FAR is infinite, for a policy that asks no distance.

        So it satisfies no condition of a rule: it is neither high nor low.
        """
        if self.levels is None or self.encoding is None:
            return x
        far = np.asarray(x) == FAR
        if far.any():
            x = x.copy()
            x[far] = np.inf
        return x

    def coordinates(self, x: Floats) -> Floats:
        """float64 (k, d'): features (k, d) in coordinates where distance is Euclidean."""
        return self.metric.transform(x)

    def features(self, z: Floats) -> Floats:
        """float64 (k, d): features of coordinates (k, d'); NaN where a feature has no weight."""
        x, used = np.full((len(z), len(self.weight)), np.nan), self.used
        x[:, used] = z / (np.sqrt(self.weight[used]) / self.scale[used])
        return x

    def from_median(self, among: Floats, x: Floats) -> Floats:
        """float64 (k,): squared distances of x (k, d) from the median of `among` (j, d)."""
        if self.levels is not None:
            return self._mixed_from_median(among, x)
        middle = np.median(self.coordinates(among), axis=0)
        return np.asarray(((self.coordinates(x) - middle) ** 2).sum(axis=1))

    def _mixed_from_median(self, among: Floats, x: Floats) -> Floats:
        """As `from_median`; another label than the most frequent, or a missing number, counts 1."""
        total = np.zeros(len(x))
        for j in self.used:
            there, here = np.asarray(among)[:, j], np.asarray(x)[:, j]
            present = there[np.isfinite(there)]
            if not len(present):
                continue
            if self.levels and self.levels[j] is not None:
                middle = float(np.bincount(present.astype(np.int64)).argmax())
                total += here != middle
            else:
                squares = ((here - np.median(present)) / self.scale[j]) ** 2
                total += np.where(np.isfinite(squares), squares, 1.0)
        return total

    def of_log(self, log: Log) -> tuple[Floats, Ints]:
        """The features (N, d) at the steps of a log, and the number of each step."""
        log = encoded_by(log, self.encoding)
        if log.features is None:
            raise _another("features", "labels")
        if self.levels is None:
            x = np.ascontiguousarray(plain_features(log, self.feature_names))
            return x, np.arange(log.n_steps)
        columns = columns_in(log.feature_names, self.feature_names)
        x = np.ascontiguousarray(log.features[:, columns])
        if self.levels or log.levels:
            for j, (name, source) in enumerate(zip(self.feature_names, columns, strict=True)):
                own = self.levels[j] if self.levels else None
                theirs = log.levels[source] if log.levels else None
                x[:, j] = codes_for(name, own, theirs, x[:, j])
            x = x.view(CodedFeatures)
        return self._apart(x), np.arange(log.n_steps)

    @functools.cached_property
    def said(self) -> tuple[str, ...]:
        """The names that words about states use: features, and the columns that they come from."""
        columns = () if self.encoding is None else tuple(self.encoding.columns)
        return tuple(dict.fromkeys((*columns, *self.feature_names)))

    def words(self, state: Floats) -> str:
        """One state (d,) as explanations name it."""
        return joined(
            ", ",
            (
                joined(" = ", (name, value))
                if isinstance(value, str)
                else say("{feature} = {x:g}", feature=name, x=value)
                for name, value in self.shown(state, range(len(self.feature_names)))
            ),
        )

    def shown(self, state: Floats, places: Iterable[int]) -> tuple[tuple[str, float | str], ...]:
        """Name and value of some features of one state (d,), as the log had them.

        Labels, dates and "missing" are words. Indicators are the label that they stand for.
        """
        wanted, row = [*places], np.asarray(state, np.float64)
        if self.encoding is None or self.levels is not None:
            return tuple((self.feature_names[j], self._shown(float(row[j]), j)) for j in wanted)
        at = {self.feature_names[j]: float(row[j]) for j in wanted}
        values = []
        for name in self.encoding.columns:
            own = {n: at[n] for n in self.encoding.indicators(name) if n in at}
            if own:
                values.append((name, raw_value(self.encoding, name, own)))
        return tuple(values)

    def shown_columns(self, x: Floats) -> dict[str, list[Any]]:
        """The features that count of states x (k, d), column by column, as the log had them."""
        if self.encoding is None:
            return {self.feature_names[j]: x[:, j].tolist() for j in self.used}
        counting = {self.feature_names[j] for j in self.used}
        names = [n for n in self.encoding.columns if counting & {*self.encoding.indicators(n)}]
        rows = [dict(self.shown(row, self.used)) for row in x]
        return {name: [row[name] for row in rows] for name in names}

    def _shown(self, value: float, j: int) -> float | str:
        if self.levels is None:
            return value
        if np.isnan(value):
            return GONE
        labels = self.levels[j] if self.levels else None
        if labels is None:
            dates = () if self.encoding is None else self.encoding.days
            dated = self.feature_names[j] in dates and np.isfinite(value)
            return on_day(value) if dated else value
        return labels[int(value)] if np.isfinite(value) else NEVER


@dataclass(frozen=True)
class OpenSpace:
    """States are whatever a log holds: its labels, or its features in their order."""

    feature_names: ClassVar[tuple[str, ...]] = ()
    said: ClassVar[tuple[str, ...]] = ()
    states: ClassVar[tuple[Label, ...]] = ()

    def read(self, states: Any) -> tuple[Any, bool]:
        """An array of what was handed over, and whether it was a single label."""
        return (np.asarray([states]), True) if is_one(states) else (np.asarray(states), False)

    def of_log(self, log: Log) -> tuple[Any, Ints]:
        """The states of a log, and which of them each step is in, int64 (N,)."""
        if log.state is not None:
            return list(log.states), log.codes().astype(np.int64)
        return np.ascontiguousarray(plain_features(log)), np.arange(log.n_steps)

    def words(self, state: Any) -> str:
        """A state as explanations name it."""
        return str(state)


Space: TypeAlias = LabelSpace | FeatureSpace | OpenSpace


def is_one(states: Any) -> bool:
    """Whether this is a single label rather than a column of them."""
    return states is None or isinstance(states, str | int | float | Decimal | np.generic)


def _missing(state: Any) -> bool:
    """None, NaN, NaT and pandas' NA."""
    if state is None or type(state).__name__ == "NAType":
        return True
    return isinstance(state, float | np.floating | np.datetime64) and bool(state != state)


def _another(ours: str, theirs: str) -> PolicyError:
    return PolicyError(
        f"the policy's states are {ours}, the log's are {theirs}.",
        do="Read the log as the training log was read.",
    )


def single_state(space: Space, state: Any) -> Any:
    """The one row that a state to be explained is; refused are several."""
    rows, single = space.read(state)
    if not single and len(rows) != 1:
        raise PolicyError(f"one state is explained at a time; got {len(rows)}.")
    return rows
