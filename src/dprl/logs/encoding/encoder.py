"""How the columns of a state become what a learner takes; kept with the log and with its policy.

A state may be made of numbers and categories. Learners over labels take one label, so categories
are *joined*: "sex=f · ward=a". Learners over distances take numbers, so a category becomes
*indicators*, one column of 0 and 1 per label ("ward=a", "ward=b"). Gaps are filled as was declared
when the log was read (`dprl.logs.encoding.gaps`): the learner's log says by what, and later logs
are filled by the same. How it was done is kept in `log.columns["encoding"]`, and from there in the
policy, so that later logs and single states, as they come (`{"sex": "f", "ward": "a"}`), are
treated in the same way.

A label that the training log did not have has no indicator of its own. Its indicators are set FAR
away, so that nothing is near such a state and a policy over distances defers there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from dprl._core.arrays import Floats, Ints, doubles, is_short, one_double
from dprl._core.words import either, worded
from dprl.errors import LogError, PolicyError
from dprl.logs.encoding.categories import TRUTH, TRUTH_WORDS, Levels, label_text
from dprl.logs.encoding.doses import BETWEEN
from dprl.logs.encoding.features import place_of
from dprl.logs.encoding.gaps import GONE, Fill, fitted_fills, gap_counts, is_gone
from dprl.logs.log import Label, Log
from dprl.logs.reading.dates import SINCE, check_dates, day_of, on_day
from dprl.logs.reading.text import check_labels, fold

# --- Encoding: how the columns of a state became what a policy takes, for rows as they come

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
            `dprl.logs.reading.dates.SINCE`. Default: there are none.
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
            return self._numbers(doubles(given) if is_short(given) else given)
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
            return {name: [one_double(value)] for name, value in values.items()}, True
        return {name: _listed(column) for name, column in values.items()}, False
    rows = list(given) if isinstance(given, Sequence | np.ndarray) else []
    if rows and all(isinstance(row, Mapping) for row in rows):
        for row in rows:
            _refuse_gone(list(row), names)
        return {name: [one_double(row[name]) for row in rows] for name in names}, False
    lists = rows and all(isinstance(row, list | tuple | np.ndarray) for row in rows)
    if lists and all(len(row) == len(names) for row in rows):
        return {name: [one_double(row[j]) for row in rows] for j, name in enumerate(names)}, False
    return None


def _listed(column: Any) -> list[Any]:
    """A column as a list, floats shorter than a double as they were written."""
    array = None if isinstance(column, list | tuple) else np.asarray(column)
    return doubles(array).tolist() if is_short(array) else [*map(one_double, column)]


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


# --- How the columns of a state become what a learner takes; kept with the log and with its
# policy


def encoded_like(log: Log, columns: Mapping[str, Any]) -> Log:
    """A log in which the state is made as the `columns` of another log, or of a policy, say."""
    wanted = encoding_of(columns)
    return log if wanted is None else encoded_by(log, wanted)


def encoded_by(log: Log, wanted: Encoding | None) -> Log:
    """A log in which the state is made as `wanted`; the log itself where it is so already."""
    if wanted is None or log.features is None or encoding_of(log.columns) is not None:
        _refuse_own_fills(log, wanted)
        _refuse_other_days(log, {} if wanted is None else wanted.days)
        return log
    if log.feature_names == wanted.features != tuple(wanted.columns):
        return log  # of indicators that were written to a file
    log = _folded(log, wanted.fold)
    if wanted.how == "joined":
        return joined(log, wanted)
    return filled(log, wanted) if wanted.how == "plain" else with_indicators(log, wanted)


def _refuse_own_fills(log: Log, wanted: Encoding | None) -> None:
    """Refuse a log whose gaps were filled by other numbers than the policy's."""
    own = encoding_of(log.columns)
    theirs = {} if wanted is None else dict(wanted.fills)
    if own is None or own.fills == theirs:
        return
    name = next(n for n in (*own.fills, *theirs) if own.fills.get(n) != theirs.get(n))
    values = [f.value if f else None for f in (own.fills.get(name), theirs.get(name))]
    raise LogError(
        "the gaps of this log are filled by its own numbers, not by those of the policy.",
        f"{name!r}: {values[0]} here, {values[1]} in the policy",
        worded(
            "Hand over the log as it was read{choice}: the policy fills it.",
            choice=either(" (before log.indicators() or log.joined())", ""),
        ),
    )


def _folded(log: Log, how: str) -> Log:
    """The log with the labels of its categories written alike, where a policy writes them so."""
    if not how or not log.levels or log.columns.get("labels") == how:
        return log
    features, levels = np.array(log.features), list(log.levels)
    for j, own in enumerate(levels):
        words = [fold(label, how) for label in own or ()]
        if own is None or words == list(own):
            continue
        merged = tuple(sorted({word for word in words if word}))
        table = np.array([*(merged.index(w) if w else np.nan for w in words), np.nan])
        gone = np.isnan(features[:, j])
        places = np.where(gone, len(words), np.nan_to_num(features[:, j])).astype(np.int64)
        features[:, j], levels[j] = table[places], merged
    return replace(log, features=features, levels=tuple(levels))


def _refuse_other_days(log: Log, days: Mapping[str, str]) -> None:
    """Refuse a log in which a feature is a date and is none to the policy, or the other way."""
    here = _dated(log)
    for j, name in enumerate(log.feature_names):
        if (name in here) != (name in days) and log.missing[j] < log.n_steps:
            kinds = ("dates", "numbers") if name in here else ("numbers", "dates")
            raise LogError(
                f"{name!r} holds {kinds[0]} here, and held {kinds[1]} in the training log.",
                do=worded("Read the log as the training log was read ({dates=})."),
            )


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
                worded(
                    "Cut it into named ranges, say that its numbers are labels ({choice}), leave "
                    "it out, or use {dprl.Rules} or a radius, which take numbers.",
                    choice=either(f"categorical=[{name!r}]", f"--categorical {name}"),
                ),
            )
    codes_of = np.empty((log.n_steps, len(own.columns)), np.int64)
    texts_of: list[tuple[str, ...]] = []
    for j, name in enumerate(log.feature_names):
        if log.missing[j] and not own.flagged(name):
            raise _gap(
                log,
                j,
                worded(
                    "Fill it first, give it a label of its own ({missing='flag'}), or leave such "
                    "episodes out ({missing='drop-episodes'})."
                ),
            )
        codes_of[:, j], labels = _with_gone(log, j)
        texts_of.append(labels)
    rows, codes = np.unique(codes_of, axis=0, return_inverse=True)
    texts = [
        own.label([labels[code] for labels, code in zip(texts_of, row, strict=True)])
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
        columns=_on_record(log, own),
    )


def _on_record(log: Log, own: Encoding) -> dict[str, Any]:
    """The columns of a log with its encoding, and where it had gaps before they were filled."""
    gaps = gap_counts(log)
    more = {"gaps": gaps} if gaps is not None and own.fills else {}
    return {**log.columns, "state": list(own.columns), "encoding": own.to_dict(), **more}


def _gap(log: Log, j: int, do: str) -> LogError:
    """The error that a feature is missing somewhere."""
    gone = np.isnan(np.asarray(log.features)[:, j])
    return LogError(
        f"feature {log.feature_names[j]!r} is missing on {log.missing[j]:,} of {log.n_steps:,} "
        "rows.",
        place_of(log, int(np.argmax(gone))),
        do,
    )


def _with_gone(log: Log, j: int) -> tuple[Ints, tuple[str, ...]]:
    """The codes (N,) of a category, and its labels, of which the last stands for missing ones."""
    labels = log.levels[j] if log.levels else None
    column = np.asarray(log.features)[:, j]
    texts = (*(labels or ()), GONE)
    return np.where(np.isnan(column), len(texts) - 1, np.nan_to_num(column)).astype(np.int64), texts


def labelled(log: Log) -> Log:
    """The log with joined labels where its features are categories, all of them; else the log."""
    numeric = log.features is None or not log.levels or any(own is None for own in log.levels)
    return log if numeric else joined(log)


def with_indicators(log: Log, wanted: Encoding | None = None) -> Log:
    """The log of numbers alone, without the gaps that are declared to be filled.

    Every category is a column of 0 and 1 per label; truth values stay.

    Args:
        log: The log.
        wanted: How it is to be done. Default None: as its own labels and gaps need it.
    """
    if log.features is None or encoding_of(log.columns) is not None:
        return log
    if wanted is None and not _has_labels(log.levels) and not _declared(log) and not _dated(log):
        return log
    own = _columns(log, wanted, "indicators")
    columns: list[Floats] = []
    names: list[str] = []
    levels: list[tuple[str, ...] | None] = []
    for j, (name, labels) in enumerate(own.columns.items()):
        x = log.features[:, j]
        names += own.indicators(name)
        if labels is None:
            columns += _filled(x, own, name)
            levels += [None] * len(own.indicators(name))
            continue
        if labels == TRUTH:
            strange = np.isnan(x) if own.flagged(name) else np.zeros(len(x), bool)
            columns.append(np.where(strange, FAR, x))
            levels.append(None if strange.any() else labels)  # FAR is neither true nor false
            continue
        if log.missing[j] and not own.flagged(name):
            raise _gap(
                log,
                j,
                worded(
                    "Fill it first ({missing='flag'}), leave such episodes out "
                    "({missing='drop-episodes'}), or use {dprl.Rules}, which gives missing values "
                    "a side of their own."
                ),
            )
        place = {label: code for code, label in enumerate(labels)}
        codes, texts = _with_gone(log, j)
        code_of = np.array([place.get(label, -1) for label in texts], np.int64)
        codes = code_of[codes]
        other = np.where(codes < 0, FAR, 0.0)
        columns += [np.where(codes == code, 1.0, other) for code in range(len(labels))]
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
        columns=_on_record(log, own),
    )


def _filled(x: Floats, own: Encoding, name: str) -> list[Floats]:
    """A column of numbers with its gaps filled, and its flag where it has one."""
    value, gone = own.filling(name), np.isnan(x)
    if value is None:
        return [x]
    full = np.where(gone, value, x) if gone.any() else x
    return [full] if len(own.indicators(name)) == 1 else [full, gone.astype(np.float64)]


def filled(log: Log, wanted: Encoding | None = None) -> Log:
    """The log with its numbers filled where the median was asked for, and otherwise as it is.

    A gap that is flagged stays a gap: this is for learners that give gaps a side of their own.
    """
    if log.features is None or encoding_of(log.columns) is not None:
        return log
    needed = "median" in _declared(log).values() or bool(_dated(log))
    if wanted is None and not needed and not (log.levels and log.columns.get("labels")):
        return log
    own = _columns(log, wanted, "plain")
    columns = [_filled(log.features[:, j], own, name)[0] for j, name in enumerate(own.columns)]
    return replace(log, features=np.column_stack(columns), columns=_on_record(log, own))


def _declared(log: Log) -> dict[str, str]:
    """The features whose gaps are to be filled or flagged."""
    words: Mapping[str, str] = log.columns.get("missing", {})
    return {n: words[n] for n in log.feature_names if words.get(n) in ("flag", "median")}


def _dated(log: Log) -> dict[str, str]:
    """The features that are dates → how they were written."""
    return {n: own for n, own in log.columns.get("days", {}).items() if n in log.feature_names}


def _has_labels(levels: Levels) -> bool:
    return any(own is not None and own != TRUTH for own in levels)


def _columns(log: Log, wanted: Encoding | None, how: How = "joined") -> Encoding:
    """How this log is encoded; refused where it has other columns than are `wanted`."""
    theirs = log.levels or (None,) * len(log.feature_names)
    if wanted is None:
        return _own_encoding(log, how)
    if tuple(wanted.columns) != log.feature_names:
        raise LogError(
            "this log has other states than the policy was fitted to.",
            f"{', '.join(log.feature_names[:4])} and not {', '.join(list(wanted.columns)[:4])}",
            "Read the columns that the training log had, in the same order.",
        )
    _refuse_other_days(log, wanted.days)
    for j, (name, own, other) in enumerate(
        zip(log.feature_names, wanted.levels, theirs, strict=True)
    ):
        if (own is None) != (other is None) and log.missing[j] < log.n_steps:
            words = ["numbers" if labels is None else "labels" for labels in (own, other)]
            raise LogError(
                f"{name!r} holds {words[1]} here, and held {words[0]} in the training log.",
                do=worded(
                    "Where its numbers are labels, say so: {choice}.",
                    choice=either(f"categorical=[{name!r}]", "--categorical"),
                ),
            )
    return wanted


def _own_encoding(log: Log, how: How) -> Encoding:
    """How this log is encoded by itself: its own labels, and what fills its own gaps."""
    theirs = log.levels or (None,) * len(log.feature_names)
    fills = fitted_fills(log)
    levels = dict(zip(log.feature_names, theirs, strict=True))
    for j, (name, labels) in enumerate(levels.items()):
        if labels is None or name not in fills or not log.missing[j] or how == "plain":
            continue
        if GONE in labels:
            raise LogError(
                f"{name!r} has a label {GONE!r} and gaps, which would get the same label.",
                place_of(log, int(np.argmax(np.isnan(np.asarray(log.features)[:, j])))),
                "Rename the label, or leave its cells empty.",
            )
        levels[name] = (*labels, GONE)
    for name, fill in fills.items():
        if fill.marks and how == "indicators" and flag_of(name) in log.feature_names:
            raise LogError(
                f"{name!r} is flagged by a feature {flag_of(name)!r}, and the log has one already.",
                do="Rename it, or leave it out: the flag says the same.",
            )
    return Encoding(how, levels, fills, _dated(log), str(log.columns.get("labels", "")))
