"""Rows as they come: what a state is made of, and how rows in JSON become what a policy takes.

A row holds numbers, labels, truth values and dates, as the log had them, and null where a value is
missing. Where a policy says nothing about a missing value, null is refused. A label that training
did not have is no error: it becomes what `policy.act` makes of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.errors import DprlError, LogError, PolicyError
from dprl.logs._categories import TRUTH, Levels
from dprl.logs._encoding import Encoding
from dprl.logs._gaps import GONE
from dprl.policies._protocol import DeferringPolicy

__all__ = ["Column", "Rows", "StateError", "columns_of", "short_of"]

Kind: TypeAlias = Literal["number", "label", "truth", "date"]
DATE = "Write it as 2024-02-01."
LARGE = 10**30
"""No label that is a number is as large as this."""


class StateError(PolicyError):
    """A state that cannot be asked about.

    Attributes:
        index: Place of the state in the request, from 0.
        feature: Name of the feature that is wrong, or None.
    """

    def __init__(self, what: str, index: int, feature: str | None = None, do: str = "") -> None:
        at = f"states[{index}]" + ("" if feature is None else f".{feature}")
        super().__init__(what, at, do)
        self.index, self.feature = index, feature

    def __reduce__(self) -> Any:
        return type(self), (self.what, self.index, self.feature, self.do)


@dataclass(frozen=True)
class Column:
    """One column of a row.

    Attributes:
        name: Its name.
        kind: What it holds: numbers, labels, truth values or dates.
        labels: The labels that training had; () for numbers and dates.
        nullable: Whether null is answered.
        features: The features that it becomes.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    nullable: bool
    features: tuple[str, ...]


def columns_of(policy: DeferringPolicy) -> tuple[Column, ...]:
    """The columns that a state of this policy is made of; () where it is one label."""
    space = policy.space
    encoding: Encoding | None = getattr(space, "encoding", None)
    levels: Levels | None = getattr(space, "levels", None)
    takes_gaps = levels is not None
    if encoding is None:
        own = levels or (None,) * len(space.feature_names)
        return tuple(
            Column(name, _kind(labels), labels or (), takes_gaps, (name,))
            for name, labels in zip(space.feature_names, own, strict=True)
        )
    columns = []
    for name, labels in encoding.columns.items():
        if labels is None:
            nullable = takes_gaps or encoding.filling(name) is not None
        else:
            nullable = encoding.flagged(name) or (takes_gaps and encoding.how == "plain")
        kind = "date" if name in encoding.days else _kind(labels)
        shown = tuple(label for label in labels or () if label != GONE or not nullable)
        made = () if encoding.how == "joined" else tuple(encoding.indicators(name))
        columns.append(Column(name, kind, shown, nullable, made))
    return tuple(columns)


def _kind(labels: tuple[str, ...] | None) -> Kind:
    if labels is None:
        return "number"
    return "truth" if set(TRUTH) <= set(labels) <= {*TRUTH, GONE} else "label"


class Rows:
    """The rows that a policy takes.

    Args:
        policy: The policy.

    Attributes:
        columns: Name → column; {} where a state is one label.
        features: The features that the columns become; () where they become one label.
    """

    def __init__(self, policy: DeferringPolicy) -> None:
        self.space: Any = policy.space
        self.columns = {column.name: column for column in columns_of(policy)}
        self.features: tuple[str, ...] = tuple(self.space.feature_names)
        self.encoding: Encoding | None = getattr(self.space, "encoding", None)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether a row is numbers alone, none of which may be missing."""
        return self.encoding is None and getattr(self.space, "levels", None) is None

    def labels(self, states: Sequence[Any]) -> list[Any]:
        """States of a policy over labels: labels stay, and rows of columns become labels."""
        made = list(states)
        for i, state in enumerate(states):
            if self.columns and isinstance(state, Mapping):
                self._check_columns(state, i)
                made[i] = self.encoding.states(state)  # type: ignore[union-attr]
        return made

    def read(self, states: Sequence[Any]) -> NDArray[np.float64]:
        """The features, float64 (k, d); a StateError names the first state that is wrong.

        A missing value that the policy takes as such is NaN; a label that a policy over rules does
        not have is infinite.
        """
        raw = [self._is_raw(state, i) for i, state in enumerate(states)]
        for i, state in enumerate(states):
            if raw[i]:
                self._check_columns(state, i)
            else:
                self._check_features(state, i)
        if self.plain:
            names = self.features
            return np.array([[float(s[n]) for n in names] for s in states], np.float64)
        try:
            if len(set(raw)) == 1:
                return self._made(states, raw[0])
        except (PolicyError, LogError) as error:
            if len(states) == 1:
                raise StateError(error.what, 0, _named(error, self.columns), error.do) from error
        return self._one_by_one(states, raw)

    def _one_by_one(self, states: Sequence[Any], raw: Sequence[bool]) -> NDArray[np.float64]:
        rows = []
        for i, state in enumerate(states):
            try:
                rows.append(self._made([state], raw[i]))
            except (PolicyError, LogError) as error:
                raise StateError(error.what, i, _named(error, self.columns), error.do) from error
        made: NDArray[np.float64] = np.concatenate(rows).view(type(rows[0]))
        return made

    def _made(self, states: Sequence[Any], raw: bool) -> NDArray[np.float64]:
        """States that are checked, as features."""
        names = self.columns if raw else self.features
        x: NDArray[np.float64] = self.space.read({n: [s[n] for s in states] for n in names})[0]
        return x

    # -- checking --------------------------------------------------------------------------------

    def _is_raw(self, state: Any, index: int) -> bool:
        """Whether a state is made of columns as they come, not of features that are ready."""
        if not isinstance(state, Mapping):
            kind = "features" if self.encoding is None else "its columns"
            raise StateError(
                f"a state is an object of {kind}; got {short_of(state)}.", index, do=self._hint
            )
        return set(self.features) == set(self.columns) or set(state) != set(self.features)

    @property
    def _hint(self) -> str:
        head = "Features" if self.encoding is None else "Columns"
        return f"{head}: {', '.join(self.columns)}."

    def _check_columns(self, state: Mapping[str, Any], index: int) -> None:
        """Refuse a state that is not made of exactly these columns, each with a value."""
        ours, one = (
            ("no feature of this policy", "feature")
            if self.encoding is None
            else ("no column of a state", "column")
        )
        for name in state:
            if name not in self.columns:
                raise StateError(f"{name!r:.80} is {ours}.", index, name, self._hint)
        for name, column in self.columns.items():
            if name not in state:
                raise StateError(f"a state needs the {one} {name!r}.", index, name, self._hint)
            value = state[name]
            if value is None or (value == "" and not self.plain):
                if not column.nullable:
                    needed = "must be a number; it is" if column.kind == "number" else "is"
                    raise StateError(
                        f"{name!r} {needed} missing, and the policy says nothing about that.",
                        index, name,
                        f"Give its value, or ask nothing about this state. {self._hint}",
                    )  # fmt: skip
            elif column.kind == "number":
                _check_number(value, index, name)
            elif column.kind == "date":
                self._check_day(value, index, name)
            else:
                _check_label(value, index, column)

    def _check_features(self, state: Mapping[str, Any], index: int) -> None:
        """Refuse features that are ready (indicators, say) and are no numbers."""
        for name in self.features:
            _check_number(state[name], index, name)

    def _check_day(self, value: Any, index: int, name: str) -> None:
        """Refuse what is no date; dates are text, as in the log or ISO."""
        if not isinstance(value, str):
            raise StateError(
                f"{name!r} must be a date, as text; got {short_of(value)}.", index, name, DATE
            )
        try:
            self.encoding.day(value, name)  # type: ignore[union-attr]
        except LogError as error:
            raise StateError(error.what, index, name, DATE) from None


def _check_number(value: Any, index: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise StateError(f"{name!r} must be a number; got {short_of(value)}.", index, name)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise StateError(f"{name!r} must be a finite number; got {short_of(value)}.", index, name)


def _check_label(value: Any, index: int, column: Column) -> None:
    number = isinstance(value, int | float) and abs(value) < LARGE
    if not isinstance(value, str) and not (number and value == int(value)):
        seen = ", ".join(map(repr, column.labels[:5]))
        raise StateError(
            f"{column.name!r} must be a label; got {short_of(value)}.", index, column.name,
            f"Its labels in training: {seen}{', …' * (len(column.labels) > 5)}.",
        )  # fmt: skip


def _named(error: DprlError, names: Mapping[str, Any]) -> str | None:
    """The column that an error is about, where its text names one."""
    return next((name for name in names if repr(name) in error.what), None)


def short_of(value: Any) -> str:
    """A value as text for an error message, cut where it is long."""
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else "an array"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGE:
        return "a number of very many digits"
    return repr(value)[:60]
