"""Columns: the rows of a source in their own order, labels coded, before any rule is checked."""

from __future__ import annotations

import datetime
import functools
import re
import uuid
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import doubles, one_double
from dprl._core.labels import Labels, few_as_tuple
from dprl._core.words import either, worded
from dprl.errors import LogError
from dprl.logs.checking.findings import Found
from dprl.logs.log import Label, rising
from dprl.logs.reading.times import charted

if TYPE_CHECKING:
    from dprl.logs.reading.also import Also


# --- What the checks of a log ask of its rows, each computed once: by no more passes than needed

LARGE = 100_000
"""From so many rows on, compiled loops pay for the time it takes to load them."""

BLOCK = 1 << 16
"""Rows that are looked at together."""


def blocks(n: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows, few enough of them at a time that all steps of a check stay in the cache."""
    for first in range(0, n, BLOCK):
        yield first, min(first + BLOCK, n)


def some_missing(column: Coded) -> bool:
    """Whether a label is missing."""
    return bool(len(column.codes)) and bool(column.codes.min() < 0)


def is_large(rows: int) -> bool:
    """Whether a column of so many rows is worth compiled loops."""
    return rows >= LARGE


@dataclass(frozen=True)
class Coded:
    """A column of labels: codes (N,) into `labels`, -1 where missing.

    Very many labels of episodes or groups are arrays (`Labels`), a sequence like the tuple.
    """

    codes: NDArray[np.int32]
    labels: tuple[Any, ...]

    def at(self, row: int) -> Any:
        """The label of a row, which is not missing."""
        return self.labels[self.codes[row]]


class ByTime(NamedTuple):
    """Rows in the order of their episode and time.

    Attributes:
        order: (N,), the row that comes first, second and so on.
        moved: Whether rows of an episode do not follow each other in time.
        twins: Whether two rows of an episode have the same time.
    """

    order: NDArray[Any]
    moved: bool
    twins: bool


class RowFacts:
    """Facts about the rows of a source, computed when they are asked for first."""

    episode: Coded
    reward: NDArray[np.float64]
    time: NDArray[Any] | None
    time_missing: NDArray[np.bool_] | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.reward)

    @functools.cached_property
    def reward_span(self) -> tuple[float, float]:
        """The smallest and the largest reward; NaN where one is missing, 0 without rows."""
        if not self.n:
            return 0.0, 0.0
        return float(self.reward.min()), float(self.reward.max())

    @functools.cached_property
    def _incomplete(self) -> bool:
        """Whether an episode or a time is missing somewhere, or it is not known."""
        if self.time is not None and (self.time_missing is None or self.time_missing.any()):
            return True
        return some_missing(self.episode)

    @functools.cached_property
    def in_order(self) -> bool:
        """Whether no episode or time is missing, and rows stand by episode and rising time."""
        if self._incomplete:
            return False
        e, t = self.episode.codes, self.time
        for a, b in blocks(self.n):
            before, here = slice(max(a, 1) - 1, b - 1), slice(max(a, 1), b)
            right = e[here] > e[before]
            right |= (e[here] == e[before]) if t is None else (
                (e[here] == e[before]) & (t[here] > t[before])
            )  # fmt: skip
            if not right.all():
                return False
        return True

    @property
    def _loops_apply(self) -> bool:
        """Whether compiled loops sort these rows: many rows, nothing missing, plain times."""
        too_fine = self.time is not None and self.time.dtype.itemsize > 8
        return is_large(self.n) and not self._incomplete and not too_fine

    def _sort_episodes(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The order of `by_episode`, and where each episode ends in it."""
        from dprl.logs.reading.loops import by_episode

        order = np.empty(self.n, np.int32 if self.n < 2**31 else np.int64)
        ends = np.zeros(len(self.episode.labels) + 1, np.int64)
        by_episode(self.episode.codes, ends, order)
        return order, ends

    @property
    def by_episode(self) -> NDArray[Any] | None:
        """The order that brings the rows of an episode together, as they follow each other.

        None for few rows, and where an episode or a time is missing. Not kept: it is large.
        """
        return self._sort_episodes()[0] if self._loops_apply else None

    @functools.cached_property
    def by_time(self) -> ByTime | None:
        """The order that sorts rows by episode and time; None where `by_episode` is, or no time."""
        if not self._loops_apply or self.time is None:
            return None
        from dprl.logs.reading.loops import sort_within

        order, ends = self._sort_episodes()
        time = self.time
        if time.dtype.kind in "mM":
            time = time.view(np.int64)
        elif time.dtype not in (np.float64, np.uint64):
            time = time.astype(np.float64 if time.dtype.kind == "f" else np.int64, copy=False)
        return ByTime(order, *sort_within(time, ends, order))


# --- Columns: the rows of a source in their own order, labels coded, before any rule is checked

WHOLE = (2**63 - 1, 2**53)
"""The largest whole number a label may be, as an integer and as a float."""
MISSING_WORDS = ("", "NA", "NULL", "null", "NaN", "nan")
"""Text that stands for a missing value in a CSV file."""

TIDY = re.compile(r"(0|-?[1-9][0-9]{0,17})|(0|-?[1-9][0-9]{0,14})\.0+")
"""A whole number as programs write it."""
SCIENTIFIC = re.compile(r"-?[1-9](\.[0-9]+)?e\+[0-9]{2}")
"""A large number as R writes 100000, and pandas what has 17 digits."""
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
"""The forms in which files write a number."""


@dataclass(frozen=True)
class Columns(RowFacts):
    """The rows of a source in their own order. Missing: code -1, NaN, or `time_missing`.

    Attributes:
        names: Part → name of the source's column ("episode" → "patient"); features → a list.
        episode: Coded (N,), the episode of each row.
        action: Coded (N,), the action of each row.
        reward: float64 (N,), the reward of each row.
        state: Coded (N,), or None where states are features.
        features: float64 (N, d), or None where states are labels.
        time: (N,) numbers or datetime64, those with a zone in UTC; None without a time column.
        time_missing: bool (N,), where the time is missing; None without a time column.
        offset: int32 (N,), seconds by which the local clock was ahead of UTC; None without zones.
        group: Coded (N,), the group of each row; None without a group column.
        available: Coded (N,) whose labels are tuples of action labels; None without that column.
        ended: Coded (N,), labels as the source wrote them; None without that column.
        propensity: float64 (N,), NaN where unknown; None without that column.
        more: Further role → float64 (N,), NaN where missing.
        feature_names: The d names of the features; empty where states are labels.
        levels: The sorted labels of each feature that is a category (its column of `features`
            holds codes), None for numbers; () where all are numbers.
        also: Further columns; None where the source cannot have any.
        events: The words of `ended` that were declared to be competing events.
        declared: "state" and "action" → the labels that may occur, where that was declared.
        bounds: Smallest and largest possible reward; None for any.
        no_outcome: bool (N,), rows of episodes whose outcome is unknown though missing rewards are
            to be 0; None where none is.
        number: int64 (N,), the numbers that rows have in the source, from 0, where they are of a
            chunk or in another order; None where row i is row i.
        merged: Columns whose labels became one where they differed in spaces or letters alone, as
            was asked: (name, labels before, labels after, an example).
        fresh: Whether nobody else holds these arrays, so that a log may take them as they are.
    """

    names: Mapping[str, Any]
    episode: Coded
    action: Coded
    reward: NDArray[np.float64]
    state: Coded | None = None
    features: NDArray[np.float64] | None = None
    time: NDArray[Any] | None = None
    time_missing: NDArray[np.bool_] | None = None
    offset: NDArray[np.int32] | None = None
    group: Coded | None = None
    available: Coded | None = None
    ended: Coded | None = None
    propensity: NDArray[np.float64] | None = None
    more: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    feature_names: tuple[str, ...] = field(default=())
    levels: tuple[tuple[str, ...] | None, ...] = field(default=())
    also: Also | None = None
    events: tuple[str, ...] = field(default=())
    declared: Mapping[str, Sequence[Label]] = field(default_factory=dict)
    bounds: tuple[float, float] | None = None
    no_outcome: NDArray[np.bool_] | None = None
    number: NDArray[np.int64] | None = None
    merged: tuple[tuple[str, int, int, str], ...] = field(default=())
    fresh: bool = False

    def place(self, row: int) -> str:
        """The place of a row, for messages: its number from 1, its episode and its time."""
        code = self.episode.codes[row]
        parts = [f"{self.names['episode']}={self.episode.labels[code] if code >= 0 else '?'}"]
        if self.time is not None and self.time_missing is not None and not self.time_missing[row]:
            ahead = None if self.offset is None else int(self.offset[row])
            parts.append(f"{self.names['time']}={charted(self.time[row], ahead)}")
        return f"row {row + 1:,} ({', '.join(parts)})"

    def first(self, rows: NDArray[np.bool_]) -> int:
        """Of some rows, the place here of the one that comes first in the source."""
        if self.number is None:
            return int(np.argmax(rows))
        at = np.flatnonzero(rows)
        return int(at[np.argmin(self.number[at])])

    def found(
        self,
        rows: NDArray[np.bool_],
        what: str,
        where: str = "{place}",
        do: str = "",
        **values: Any,
    ) -> Found | None:
        """What a rule found on these rows; None where there are none.

        Words and values are as `Found` has them. A value that is a function is asked for the value
        of a row: it gets the place here of the first of them.
        """
        if not rows.any():
            return None
        first = self.first(rows)
        return Found(
            int(rows.sum()),
            first if self.number is None else int(self.number[first]),
            what,
            where,
            do,
            len(np.unique(self.episode.codes[rows])) if "{touched" in what + where else 0,
            {name: value(first) if callable(value) else value for name, value in values.items()},
        )


# -- labels ------------------------------------------------------------------------------------


def one_label(value: Any, name: str) -> Label:
    """The label one Python object stands for; a LogError if it is not a label."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        value = int(value) if value == int(value) else float(value)
    if isinstance(value, int | float) and abs(value) > WHOLE[isinstance(value, float)]:
        raise too_large(repr(value), name)
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return value if isinstance(value, bool) else int(value)
    if isinstance(value, datetime.date | datetime.timedelta | uuid.UUID):
        return str(value)
    if isinstance(value, float):
        raise _fraction(repr(value), name)
    raise LogError(
        f"{name!r} holds a {type(value).__name__}, which is not a label.",
        f"{str(value)[:60]!r}",
        "Labels are text, whole numbers, or true and false.",
    )


def too_large(value: str, name: str) -> LogError:
    """The error that a label is a number that others were rounded to, or may be."""
    return LogError(
        f"{name!r} holds a number too large to be told from its neighbours.",
        value,
        "Make such labels text.",
    )


def _fraction(value: str, name: str) -> LogError:
    """The error that labels are fractional numbers."""
    return LogError(
        f"{name!r} holds fractional numbers, which are not labels.",
        value,
        worded(
            "Cut doses into ranges ({action_bins=4}), or give numeric states as features: "
            "{choice}. Where they are codes, put a letter in front of them.",
            choice=either("state=['x', 'y']", "--state x --state y"),
        ),
    )


def refuse_fractions(words: Iterable[str], name: str) -> None:
    """Refuse labels read as text if all are numbers and some are not whole (doses, say)."""
    words = list(words)
    if all(NUMBER.fullmatch(word) for word in words):
        fractions = [word for word in words if not float(word).is_integer()]
        if fractions:
            raise _fraction(min(fractions, key=float), name)


def _sorted(labels: Iterable[Label], name: str) -> list[Label]:
    labels = list(labels)
    kinds = {isinstance(label, str) for label in labels}
    if len(kinds) > 1:
        text = next(x for x in labels if isinstance(x, str))
        number = next(x for x in labels if not isinstance(x, str))
        raise LogError(
            f"{name!r} mixes text and numbers.",
            f"{text!r} and {number!r}",
            "Make all of them text, or all of them whole numbers.",
        )
    return sorted(labels)


def refuse_rounded(words: Iterable[str], name: str) -> None:
    """Refuse labels read as text if all are numbers and one was rounded: several were one, then."""
    words = list(words)
    floats = [word for word in words if "." in word or "e" in word]
    if floats and all(NUMBER.fullmatch(word) for word in words):
        large = max((float(word) for word in floats), key=abs)
        if abs(large) >= WHOLE[1]:
            raise too_large(repr(large), name)


def _tidy(word: str) -> str | None:
    """The digits of a whole number as programs write it; None of anything else."""
    if TIDY.fullmatch(word):
        return word.partition(".")[0]
    whole = SCIENTIFIC.fullmatch(word) and float(word).is_integer() and abs(float(word)) < WHOLE[1]
    return str(int(float(word))) if whole else None


def tidy_labels(labels: Iterable[str]) -> dict[str, Label]:
    """What labels read as text stand for: whole numbers if all are written as whole numbers.

    '1.0' is 1, also where only some files write it so (pandas does, beside a gap) and where other
    labels are text; '1e+05' is 100000, as R writes it. '007' is a name, not 7: without its
    leading zeros two different labels could become one. Digits of other scripts (full-width digits,
    say) do not make a number either.
    """
    tidy = {x: _tidy(x) for x in labels}
    if tidy and None not in tidy.values():
        return {x: int(str(whole)) for x, whole in tidy.items()}
    return {x: whole if whole is not None and whole in tidy else x for x, whole in tidy.items()}


def known_as(label: Any, labels: Container[Any]) -> Any:
    """A label as those who have `labels` call it: "1.0" is "1" where that is one of them."""
    if not isinstance(label, str) or label in labels or not TIDY.fullmatch(label):
        return label
    whole = label.split(".")[0]
    return whole if whole in labels else label


def recode(codes: NDArray[Any], labels: list[Label], name: str) -> Coded:
    """Codes into sorted labels, from codes into labels in any order (possibly repeated)."""
    if rising(labels):
        return Coded(codes.astype(np.int32, copy=False), tuple(labels))
    order = _sorted(dict.fromkeys(labels), name)
    place = {label: i for i, label in enumerate(order)}
    table = np.array([*(place[label] for label in labels), -1], np.int32)
    return Coded(table[codes], tuple(order))


def sorted_labels(codes: NDArray[np.int32], labels: Labels, many: bool) -> Coded:
    """Codes into sorted labels, from codes into labels in any order, each there once.

    The codes are written to. Labels stay arrays where there may be `many`.
    """
    if not labels.rising:
        from dprl.logs.reading.loops import replace_codes

        order = labels.order()
        table = np.full(len(order) + 1, -1, np.int32)
        table[order] = np.arange(len(order), dtype=np.int32)
        replace_codes(codes, table)
        labels = labels.at(order)
    return Coded(codes, few_as_tuple(labels, many))


def encode(values: Any, name: str, missing: NDArray[np.bool_] | None = None) -> Coded:
    """Code a column of labels: labels sorted, code -1 where missing."""
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
        values = values.data
    array = np.asarray(values)
    if array.ndim != 1:
        raise LogError(f"{name!r} must be one column; got shape {array.shape}.")
    if array.dtype.kind == "f":
        gone = np.isnan(array) if missing is None else missing | np.isnan(array)
        present = array[~gone]
        odd = np.flatnonzero((present != np.rint(present)) | (np.abs(present) > WHOLE[1]))
        if len(odd):
            one_label(float(present[odd[0]]), name)
        whole = np.zeros(len(array), np.int64)
        whole[~gone] = present.astype(np.int64)
        return encode(whole, name, gone)
    if array.dtype == np.uint64 and len(array) and array.max() > WHOLE[0]:
        array = array.astype(object)
    if array.dtype.kind in "iu":
        return _encode_integers(array.astype(np.int64, copy=False), missing)
    if array.dtype.kind == "b":
        return _encode_integers(array, missing)
    if array.dtype.kind in "mM":
        gone = np.isnat(array) if missing is None else missing | np.isnat(array)
        finest = f"{'datetime64' if array.dtype.kind == 'M' else 'timedelta64'}[us]"
        return encode(array.astype(finest).astype(object), name, gone)
    hidden = np.zeros(len(array), bool) if missing is None else missing
    index: dict[Any, int] = {}
    codes = np.full(len(array), -1, np.int64)
    for i, (value, gone) in enumerate(zip(array.tolist(), hidden.tolist(), strict=True)):
        if gone or value is None or value == "" or value != value:
            continue
        try:
            codes[i] = index.setdefault(value, len(index))
        except TypeError:
            one_label(value, name)
    return recode(codes, [one_label(value, name) for value in index], name)


def _encode_integers(array: NDArray[Any], missing: NDArray[np.bool_] | None) -> Coded:
    """Code whole numbers or booleans: by a table if their range is small, else by sorting."""
    gone = np.zeros(len(array), bool) if missing is None else missing
    present = array if missing is None else array[~gone]
    codes = np.full(len(array), -1, np.int32)
    if not len(present):
        return Coded(codes, ())
    if array.dtype.kind == "b":
        values, inverse = np.unique(present, return_inverse=True)
    else:
        low, high = int(present.min()), int(present.max())
        if high - low < max(4 * len(present), 1 << 20):
            offset = present - low
            seen = np.zeros(high - low + 1, bool)
            seen[offset] = True
            places = np.flatnonzero(seen)
            table = np.zeros(high - low + 1, np.int32)
            table[places] = np.arange(len(places))
            values, inverse = np.array([low + p for p in places.tolist()], object), table[offset]
        else:
            values, inverse = np.unique(present, return_inverse=True)
    codes[~gone] = inverse
    return Coded(codes, tuple(values.tolist()))


def encode_menus(values: Any, name: str, missing: NDArray[np.bool_] | None = None) -> Coded:
    """Code a column of sets of available actions: lists, or text such as 'a|b|c'."""
    hidden = np.zeros(len(values), bool) if missing is None else missing
    codes = np.full(len(values), -1, np.int32)
    index: dict[tuple[Any, ...], int] = {}
    for i, (value, gone) in enumerate(zip(list(values), hidden.tolist(), strict=True)):
        if gone or value is None:
            continue
        codes[i] = index.setdefault(_menu(value, name), len(index))
    return Coded(codes, tuple(index))


def _menu(value: Any, name: str) -> tuple[Any, ...]:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        sep = "|" if "|" in value else ";"
        return tuple(sorted({part.strip() for part in value.split(sep) if part.strip()}))
    if isinstance(value, list | tuple | set | frozenset | np.ndarray) or hasattr(value, "to_list"):
        labels = {one_label(v, name) for v in value}
        if len(labels) < len(value) or any(isinstance(v, bool) for v in labels):
            raise LogError(
                f"{name!r} must list the labels of available actions, each once.",
                f"{list(value)!r}"[:80],
                "A list of true and false does not name them.",
            )
        return tuple(_sorted(labels, name))
    raise LogError(f"{name!r} must hold lists of actions, or text such as 'a|b|c'; got {value!r}.")


# -- numbers -----------------------------------------------------------------------------------


def no_number(name: str, where: str) -> LogError:
    """The error that a column holds durations."""
    return LogError(
        f"{name!r} holds durations, and no unit says how long 1 is.",
        where,
        "Write numbers of one unit, for example of days.",
    )


def numbers(
    values: Any, name: str, missing: NDArray[np.bool_] | None = None, *, copy: bool = True
) -> NDArray[np.float64]:
    """A numeric column as float64, NaN where missing; text is refused.

    Without `copy` the array itself may be the result, and may be written to.
    """
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
        values = values.data
    array = np.asarray(values)
    if array.ndim != 1:
        raise LogError(f"{name!r} must be one column of numbers; got shape {array.shape}.")
    if array.dtype.kind == "m":
        first = array[:1].astype("timedelta64[s]").tolist()
        raise no_number(name, f"row 1: {first[0]}" if first else "")
    if array.dtype.kind not in "iubf":
        objects = array.tolist() if array.dtype.kind != "U" else list(map(str, array))
        result = np.full(len(array), np.nan)
        for i, value in enumerate(objects):
            if value is None or (missing is not None and missing[i]):
                continue
            try:
                if isinstance(value, str | datetime.date | datetime.timedelta):
                    raise TypeError
                result[i] = float(one_double(value))
            except (TypeError, ValueError):
                raise LogError(
                    f"{name!r} must be numbers; it holds {str(value)[:40]!r}.",
                    f"row {i + 1:,}",
                    "Convert it to numbers; a missing value is an empty cell.",
                ) from None
        return result
    result = doubles(array, copy=copy)
    if missing is not None:
        result[missing] = np.nan
    return result
