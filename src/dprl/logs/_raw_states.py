"""Encoding: how the columns of a state became what a policy takes, for rows as they come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from dprl.errors import PolicyError
from dprl.logs._categories import TRUTH, TRUTH_WORDS, Levels, label_text
from dprl.logs._dates import SINCE, check_dates, day_of, on_day
from dprl.logs._doses import BETWEEN
from dprl.logs._gaps import GONE, Fill, is_gone
from dprl.logs._text import check_labels, fold
from dprl.logs.log import Label

__all__ = ["FAR", "NEVER", "Encoding", "How", "encoding_of", "flag_of", "raw_value"]

Columns: TypeAlias = dict[str, list[Any]]
How: TypeAlias = Literal["joined", "indicators", "plain"]

FAR = 1e9
"""What the indicators of a label are that the training log did not have."""
NEVER = "a label never seen"
"""How a label is told that a policy does not have."""


@dataclass(frozen=True)
class Encoding:
    """How columns became a state.

    Attributes:
        how: "joined" (one label), "indicators" (numbers) or "plain" (features as they are; only
            numbers are filled).
        columns: Each column of the source → its labels, None where it holds numbers.
        fills: Column → what stands for its missing values. Default: nothing does.
        days: Column of dates → how they were written ("iso", "day-first", …); it became days since
            `dprl.logs._dates.SINCE`. Default: there are none.
        fold: What is done to labels first ("trim,casefold"). Default "": nothing.
    """

    how: How
    columns: Mapping[str, tuple[str, ...] | None]
    fills: Mapping[str, Fill] = field(default_factory=dict)
    days: Mapping[str, str] = field(default_factory=dict)
    fold: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON can carry."""
        named = {name: None if own is None else list(own) for name, own in self.columns.items()}
        facts: dict[str, Any] = {"how": self.how, "columns": named}
        if self.fills:
            facts["fills"] = {name: fill.to_dict() for name, fill in self.fills.items()}
        if self.days:
            facts["days"] = {name: {"since": SINCE, "written": w} for name, w in self.days.items()}
        if self.fold:
            facts["labels"] = self.fold
        return facts

    @property
    def levels(self) -> Levels:
        """The labels of each column, None for numbers."""
        return tuple(self.columns.values())

    def indicators(self, name: str) -> list[str]:
        """The names of the features a column becomes: its indicators, or itself and its flag."""
        own = self.columns[name]
        if own is None and name in self.fills and self.fills[name].marks and self.how != "plain":
            return [name, flag_of(name)]
        if own is None or own == TRUTH or self.how == "plain":
            return [name]
        return [f"{name}={label}" for label in own]

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that the columns become."""
        return tuple(one for name in self.columns for one in self.indicators(name))

    def flagged(self, name: str) -> bool:
        """Whether a missing value of a category counts as a label."""
        return name in self.fills and self.fills[name].how == "flag"

    def filling(self, name: str) -> float | None:
        """The number that stands for a missing one; None where there is none.

        A gap where the training log had none is FAR away from everything, unless the median was
        asked for.
        """
        fill = self.fills.get(name)
        if fill is None or (self.how == "plain" and fill.how == "flag"):
            return None
        return FAR if fill.how == "flag" and not fill.marks else fill.value

    def day(self, value: Any, name: str) -> Any:
        """One value of a column of dates as days; a number, and a gap, stay as they are."""
        return day_of(value, self.days[name], name)

    def states(self, given: Any) -> Any:
        """States as they come, made ready: labels, or a mapping of features.

        What is not made of these columns is handed back as it is: it may be ready already.
        """
        if isinstance(given, np.ndarray) and given.dtype.kind in "fiu" and self.how != "joined":
            return self._numbers(given)
        if self.how != "joined" and _is_row(given, len(self.columns)):
            given = dict(zip(self.columns, given, strict=True))  # one state, in their order
        rows = _as_columns(given, list(self.columns), self._ready(given))
        if rows is None:
            return given
        columns, single = rows
        if self.how == "joined":
            labels = self._joined(columns)
            return labels[0] if single else labels
        ready = self._expanded(columns)
        return {name: column[0] for name, column in ready.items()} if single else ready

    def _numbers(self, given: Any) -> Any:
        """An array of numbers: features that are ready, or columns of numbers alone."""
        width = given.shape[-1] if given.ndim else 0
        names = list(self.columns)
        if width != len(names) or any(own is not None for own in self.levels):
            return given
        if len(self.features) == width:
            ready = given.astype(np.float64)
            for j, name in enumerate(names):
                value, gone = self.filling(name), np.isnan(ready[..., j])
                if value is not None and gone.any():
                    ready[..., j] = np.where(gone, value, ready[..., j])
            return ready
        columns = {name: np.atleast_2d(given)[:, j].tolist() for j, name in enumerate(names)}
        expanded = self._expanded(columns)
        if given.ndim == 1:
            return {name: column[0] for name, column in expanded.items()}
        return expanded

    def _ready(self, given: Any) -> bool:
        """Whether a mapping or a table has the features that the columns become."""
        names = self.features
        have = given if isinstance(given, Mapping) else getattr(given, "columns", ())
        if self.how == "joined" or names == tuple(self.columns):
            return False
        return bool(len(have)) and all(n in have for n in names)

    def _joined(self, columns: Columns) -> list[Label | None]:
        labels: list[Label | None] = []
        for row in zip(*columns.values(), strict=True):
            words = [self._word(value, name) for value, name in zip(row, columns, strict=True)]
            labels.append(None if None in words else self.label(words))
        return labels

    def _word(self, value: Any, name: str) -> str | None:
        """The label a value stands for; None where it is missing and that is no label."""
        word = _text(fold(value, self.fold), self.columns[name])
        return GONE if word is None and self.flagged(name) else word

    def label(self, words: Sequence[str | None]) -> str:
        """The label of one combination."""
        return BETWEEN.join(
            f"{name}={word}" for name, word in zip(self.columns, words, strict=True)
        )

    def _expanded(self, columns: Columns) -> Columns:
        ready: Columns = {}
        for name, values in columns.items():
            own = self.columns[name]
            if own is None:
                ready |= self._filled(name, values)
                continue
            if self.how == "plain":
                ready[name] = [fold(value, self.fold) for value in values]
                continue
            words = [self._word(value, name) for value in values]
            if own == TRUTH and None not in words and GONE not in words:
                ready[name] = [_truth(value, name) for value in values]
                continue
            if None in words:
                raise PolicyError(
                    f"the feature {name!r} is missing in {words.count(None):,} of {len(words):,} "
                    "states.",
                    f"state {words.index(None)}",
                    "A distance needs every feature. Fill it, or leave such states out.",
                )
            if own == TRUTH:  # no gap in training: nothing is near one
                ready[name] = [
                    FAR if word == GONE else _truth(value, name)
                    for value, word in zip(values, words, strict=True)
                ]
                continue
            strange = [FAR if word not in own else 0.0 for word in words]
            for label, feature in zip(own, self.indicators(name), strict=True):
                ready[feature] = [
                    1.0 if word == label else far for word, far in zip(words, strange, strict=True)
                ]
        return ready

    def _filled(self, name: str, values: list[Any]) -> Columns:
        """A column of numbers with its gaps filled, and its flag where it has one."""
        value = self.filling(name)
        if name in self.days:
            values = [self.day(one, name) for one in values]
        if value is None:
            return {name: values}
        gone = [is_gone(one) for one in values]
        filled = [value if empty else one for one, empty in zip(values, gone, strict=True)]
        if len(self.indicators(name)) == 1:
            return {name: filled}
        return {name: filled, flag_of(name): [float(empty) for empty in gone]}


def flag_of(name: str) -> str:
    """The name of the feature that is 1 where a number was missing."""
    return f"{name} {GONE}"


def raw_value(encoding: Encoding, name: str, features: Mapping[str, float]) -> float | str:
    """What the log had in a column, from the features that it became.

    Args:
        encoding: How the columns became features.
        name: The column.
        features: Its features, all or some of them → value.

    Returns:
        A number, or words: a label, a date, "missing".
    """
    own = encoding.columns[name]
    value = features.get(name, math.nan)
    if own is None:
        if _is_one(features.get(flag_of(name), 0.0)) or value > FAR / 2 or value != value:
            return GONE
        return on_day(value) if name in encoding.days else value
    if own == TRUTH:
        return GONE if value > FAR / 2 or value != value else TRUTH[_is_one(value)]
    labels = [label for label in own if _is_one(features.get(f"{name}={label}", 0.0))]
    if labels:
        return labels[0]
    return NEVER if any(one > FAR / 2 for one in features.values()) else "another label"


def _is_one(value: float) -> bool:
    """Whether an indicator is set, but for rounding."""
    return abs(value - 1.0) < 1e-6


def encoding_of(columns: Mapping[str, Any]) -> Encoding | None:
    """The encoding on record among the columns of a log or of a policy; None without one."""
    given = columns.get("encoding")
    if not isinstance(given, Mapping):
        return None
    named = {
        str(name): None if own is None else tuple(map(str, own))
        for name, own in given["columns"].items()
    }
    how: How = given["how"] if given["how"] in ("joined", "plain") else "indicators"
    days = given.get("days", {})
    if not isinstance(days, Mapping) or not all(
        isinstance(own, Mapping) and own.get("since") == SINCE and name in named
        for name, own in days.items()
    ):
        raise PolicyError(
            "how dates became numbers is on record, and damaged.",
            str(days)[:80],
            "Fit the policy again.",
        )
    written = {str(name): check_dates(own.get("written")) for name, own in days.items()}
    folds = check_labels(given.get("labels", ""))
    return Encoding(how, named, _fills_in(given, named), written, folds)


def _finite(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and bool(np.isfinite(value))


def _fills_in(given: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Fill]:
    """The fills on record; refused where they are damaged, so that none is lost without a word."""
    fills: dict[str, Fill] = {}
    recorded = given.get("fills", {})
    for name, facts in recorded.items() if isinstance(recorded, Mapping) else [("", {})]:
        own = facts if isinstance(facts, Mapping) and name in columns else {}
        how, value, share = own.get("how"), own.get("value"), own.get("share")
        numeric = columns.get(name, ()) is None
        good = how in ("flag", "median") and _finite(share)
        if not good or (not _finite(value) if numeric else value is not None):
            raise PolicyError(
                "how missing values are filled is on record, and damaged.",
                f"{name!r}: {str(facts)[:80]}",
                "Fit the policy again.",
            )
        word: Literal["flag", "median"] = "flag" if how == "flag" else "median"
        fills[str(name)] = Fill(word, None if value is None else float(value), float(share or 0))
    return fills


# -- single states -------------------------------------------------------------------------------


def _is_row(given: Any, width: int) -> bool:
    """Whether this is a single state: its values, in the order of the columns."""
    if not isinstance(given, list | tuple) or len(given) != width:
        return False
    return all(np.ndim(one) == 0 and not isinstance(one, Mapping) for one in given)


def _as_columns(given: Any, names: Sequence[str], ready: bool) -> tuple[Columns, bool] | None:
    """The columns of states as they come, and whether it was one state; None if they are ready."""
    if ready or given is None or isinstance(given, str):
        return None
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        _refuse_gone(list(given if isinstance(given, Mapping) else given.columns), names)
        values = {name: given[name] for name in names}
        single = all(np.ndim(value) == 0 for value in values.values())
        if single:
            return {name: [value] for name, value in values.items()}, True
        return {name: list(column) for name, column in values.items()}, False
    rows = list(given) if isinstance(given, Sequence | np.ndarray) else []
    if rows and all(isinstance(row, Mapping) for row in rows):
        for row in rows:
            _refuse_gone(list(row), names)
        return {name: [row[name] for row in rows] for name in names}, False
    lists = rows and all(isinstance(row, list | tuple | np.ndarray) for row in rows)
    if lists and all(len(row) == len(names) for row in rows):
        return {name: [row[j] for row in rows] for j, name in enumerate(names)}, False
    return None


def _refuse_gone(have: Sequence[Any], names: Sequence[str]) -> None:
    gone = [name for name in names if name not in have]
    if gone:
        raise PolicyError(
            f"a state needs the column {gone[0]!r}.",
            f"given: {', '.join(map(str, have[:8]))}",
            f"Columns: {', '.join(names)}.",
        )


def _text(value: Any, own: tuple[str, ...] | None) -> str | None:
    """A value as the label it stands for; None where it is missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if is_gone(value):
        return None
    if own is not None and set(TRUTH) <= set(own) <= {*TRUTH, GONE} and not isinstance(value, bool):
        code = TRUTH_WORDS.get(str(value).lower())
        return str(value) if code is None else TRUTH[int(code)]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return label_text(value)


def _truth(value: Any, name: str) -> float:
    """A truth value as 0 or 1."""
    word = _text(value, TRUTH)
    if word not in TRUTH:
        raise PolicyError(f"{name!r} must be true or false; got {value!r}.")
    return float(TRUTH.index(word))
