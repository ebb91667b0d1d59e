"""How the columns of a state become what a learner takes; kept with the log and with its policy.

A state may be made of numbers and categories. Learners over labels take one label, so categories
are *joined*: "sex=f · ward=a". Learners over distances take numbers, so a category becomes
*indicators*, one column of 0 and 1 per label ("ward=a", "ward=b"). How it was done is kept in
`log.columns["encoding"]`, and from there in the policy, so that later logs and single states, as
they come (`{"sex": "f", "ward": "a"}`), are treated in the same way.

A label that the training log did not have has no indicator of its own. Its indicators are set FAR
away, so that nothing is near such a state and a policy over distances defers there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LogError, PolicyError
from dprl.logs._categories import TRUTH, TRUTH_WORDS, Levels, label_text
from dprl.logs._doses import BETWEEN
from dprl.logs._feature_input import place_of
from dprl.logs.log import Label, Log

__all__ = [
    "FAR", "Encoding", "encoded_by", "encoded_like", "encoding_of", "joined", "labelled",
    "with_indicators",
]  # fmt: skip

Columns: TypeAlias = dict[str, list[Any]]

FAR = 1e9
"""What the indicators of a label are that the training log did not have."""


@dataclass(frozen=True)
class Encoding:
    """How columns became a state.

    Attributes:
        how: "joined" (one label) or "indicators" (numbers).
        columns: Each column of the source → its labels, None where it holds numbers.
    """

    how: Literal["joined", "indicators"]
    columns: Mapping[str, tuple[str, ...] | None]

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON can carry."""
        named = {name: None if own is None else list(own) for name, own in self.columns.items()}
        return {"how": self.how, "columns": named}

    @property
    def levels(self) -> Levels:
        """The labels of each column, None for numbers."""
        return tuple(self.columns.values())

    def indicators(self, name: str) -> list[str]:
        """The names of the indicators of a column; the column itself where it stays as it is."""
        own = self.columns[name]
        if own is None or own == TRUTH:
            return [name]
        return [f"{name}={label}" for label in own]

    def states(self, given: Any) -> Any:
        """States as they come, made ready: labels, or a mapping of features.

        What is not made of these columns is handed back as it is: it may be ready already.
        """
        rows = _as_columns(given, list(self.columns), self._ready(given))
        if rows is None:
            return given
        columns, single = rows
        if self.how == "joined":
            labels = self._joined(columns)
            return labels[0] if single else labels
        ready = self._expanded(columns)
        return {name: column[0] for name, column in ready.items()} if single else ready

    def _ready(self, given: Any) -> bool:
        """Whether a mapping or a table has the features that the columns become."""
        names = [one for name in self.columns for one in self.indicators(name)]
        have = given if isinstance(given, Mapping) else getattr(given, "columns", ())
        return self.how == "indicators" and bool(len(have)) and all(n in have for n in names)

    def _joined(self, columns: Columns) -> list[Label | None]:
        labels: list[Label | None] = []
        for row in zip(*columns.values(), strict=True):
            words = [_text(value, own) for value, own in zip(row, self.levels, strict=True)]
            labels.append(None if None in words else self.label(words))
        return labels

    def label(self, words: Sequence[str | None]) -> str:
        """The label of one combination."""
        return BETWEEN.join(
            f"{name}={word}" for name, word in zip(self.columns, words, strict=True)
        )

    def _expanded(self, columns: Columns) -> Columns:
        ready: Columns = {}
        for name, values in columns.items():
            own = self.columns[name]
            if own is None or own == TRUTH:
                ready[name] = values if own is None else [_truth(value, name) for value in values]
                continue
            words = [_text(value, own) for value in values]
            if None in words:
                raise PolicyError(
                    f"the feature {name!r} is missing in {words.count(None):,} of {len(words):,} "
                    "states.",
                    f"state {words.index(None)}",
                    "A distance needs every feature. Fill it, or leave such states out.",
                )
            strange = [FAR if word not in own else 0.0 for word in words]
            for label, feature in zip(own, self.indicators(name), strict=True):
                ready[feature] = [
                    1.0 if word == label else far for word, far in zip(words, strange, strict=True)
                ]
        return ready


def encoding_of(columns: Mapping[str, Any]) -> Encoding | None:
    """The encoding on record among the columns of a log or of a policy; None without one."""
    given = columns.get("encoding")
    if not isinstance(given, Mapping):
        return None
    named = {
        str(name): None if own is None else tuple(map(str, own))
        for name, own in given["columns"].items()
    }
    return Encoding("joined" if given["how"] == "joined" else "indicators", named)


def encoded_like(log: Log, columns: Mapping[str, Any]) -> Log:
    """A log in which the state is made as the `columns` of another log, or of a policy, say."""
    return encoded_by(log, encoding_of(columns))


def encoded_by(log: Log, wanted: Encoding | None) -> Log:
    """A log in which the state is made as `wanted`; the log itself where it is so already."""
    if wanted is None or encoding_of(log.columns) is not None or log.features is None:
        return log
    if log.feature_names == tuple(n for name in wanted.columns for n in wanted.indicators(name)):
        return log  # of indicators that were written to a file
    if wanted.how == "joined":
        return joined(log, wanted)
    return with_indicators(log, wanted)


def joined(log: Log, wanted: Encoding | None = None) -> Log:
    """The log whose states are labels, one for each combination of its categories that occurs."""
    if log.features is None:
        return log
    own = _columns(log, wanted)
    for name, labels in zip(log.feature_names, own.levels, strict=True):
        if labels is None:
            raise LogError(
                f"{name!r} holds numbers, and only categories can be joined into one label.",
                f"features: {', '.join(log.feature_names[:8])}",
                "Cut it into named ranges, say that its numbers are labels "
                f"(categorical=[{name!r}], --categorical {name}), leave it out, or use "
                "dprl.Rules or a radius, which take numbers.",
            )
    for j, name in enumerate(log.feature_names):
        if log.missing[j]:
            raise LogError(
                f"feature {name!r} is missing on {log.missing[j]:,} of {log.n_steps:,} rows.",
                place_of(log, int(np.argmax(np.isnan(log.features[:, j])))),
                'Fill it first, or leave such episodes out (missing="drop-episodes").',
            )
    rows, codes = np.unique(log.features.astype(np.int64), axis=0, return_inverse=True)
    texts = [
        own.label([levels[code] for levels, code in zip(_levels(log), row, strict=True)])
        for row in rows.tolist()
    ]
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise LogError(
            "two combinations of labels would get the same name.",
            repr(twice),
            f"Rename a label that holds {BETWEEN!r} or '='.",
        )
    order = np.argsort(np.array(texts, object), kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return replace(
        log,
        state=place[codes.reshape(-1)],
        states=tuple(texts[i] for i in order.tolist()),
        features=None,
        feature_names=(),
        levels=(),
        columns={**log.columns, "state": list(own.columns), "encoding": own.to_dict()},
    )


def labelled(log: Log) -> Log:
    """The log with joined labels where its features are categories, all of them; else the log."""
    numeric = log.features is None or not log.levels or any(own is None for own in log.levels)
    return log if numeric else joined(log)


def _levels(log: Log) -> tuple[tuple[str, ...], ...]:
    """The labels of every feature of a log in which all are categories."""
    return tuple(own or () for own in log.levels)


def with_indicators(log: Log, wanted: Encoding | None = None) -> Log:
    """The log in which every category is a column of 0 and 1 per label; truth values stay."""
    if log.features is None or (wanted is None and not _has_labels(log.levels)):
        return log
    own = _columns(log, wanted, "indicators")
    columns: list[NDArray[np.float64]] = []
    names: list[str] = []
    levels: list[tuple[str, ...] | None] = []
    theirs = log.levels or (None,) * len(log.feature_names)
    for j, (name, labels) in enumerate(own.columns.items()):
        x = log.features[:, j]
        names += own.indicators(name)
        if labels is None or labels == TRUTH:
            columns.append(x)
            levels.append(labels)
            continue
        if log.missing[j]:
            raise LogError(
                f"feature {name!r} is missing on {log.missing[j]:,} of {log.n_steps:,} rows.",
                place_of(log, int(np.argmax(np.isnan(x)))),
                'Fill it first, leave such episodes out (missing="drop-episodes"), or use '
                "dprl.Rules, which gives missing values a side of their own.",
            )
        place = {label: code for code, label in enumerate(labels)}
        code_of = np.array([place.get(label, -1) for label in theirs[j] or ()], np.int64)
        codes = code_of[x.astype(np.int64)]
        strange = np.where(codes < 0, FAR, 0.0)
        columns += [np.where(codes == code, 1.0, strange) for code in range(len(labels))]
        levels += [None] * len(labels)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise LogError(
            f"two features would be called {twice[0]!r}.", do="Rename one of the columns."
        )
    return replace(
        log,
        features=np.column_stack(columns),
        feature_names=tuple(names),
        levels=tuple(levels),
        columns={**log.columns, "state": list(own.columns), "encoding": own.to_dict()},
    )


def _has_labels(levels: Levels) -> bool:
    return any(own is not None and own != TRUTH for own in levels)


def _columns(
    log: Log, wanted: Encoding | None, how: Literal["joined", "indicators"] = "joined"
) -> Encoding:
    """How this log is encoded; refused where it has other columns than are `wanted`."""
    theirs = log.levels or (None,) * len(log.feature_names)
    if wanted is None:
        return Encoding(how, dict(zip(log.feature_names, theirs, strict=True)))
    if tuple(wanted.columns) != log.feature_names:
        raise LogError(
            "this log has other states than the policy was fitted to.",
            f"{', '.join(log.feature_names[:4])} and not {', '.join(list(wanted.columns)[:4])}",
            "Read the columns that the training log had, in the same order.",
        )
    for name, own, other in zip(log.feature_names, wanted.levels, theirs, strict=True):
        if (own is None) != (other is None):
            words = ["numbers" if labels is None else "labels" for labels in (own, other)]
            raise LogError(
                f"{name!r} holds {words[1]} here, and held {words[0]} in the training log.",
                do=f"Where its numbers are labels, say so: categorical=[{name!r}] (--categorical).",
            )
    return wanted


# -- single states -------------------------------------------------------------------------------


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
    if value is None or value == "" or value != value or type(value).__name__ == "NAType":
        return None
    if own == TRUTH and not isinstance(value, bool):
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
