"""Columns of a table that are not in the state: kept beside the log to look for confounding.

A learner never sees them. They say whether those who took a suggestion differ from the others in
something that the state does not hold (`dprl.evidence.balance`), and whether a policy is good for
everybody (`dprl.evaluate`, `by=`). Numbers are kept in 4 bytes each and labels in 2.

Without a word about them, all columns that have no other role are taken if there are at most `FEW`
of them, except those that look like identifiers or free text. What was left out is on record with
the reason. Dates become days since 1970.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Floats, doubles
from dprl._core.table import first_few, many
from dprl._core.words import say, worded
from dprl.errors import LogError
from dprl.logs.encoding.categories import feature_columns
from dprl.logs.reading.columns import Coded
from dprl.logs.reading.dates import Days, text_days
from dprl.logs.reading.text import Text, is_unnamed

FEW = 30
"""With more columns than this that have no role, none is taken unless it is named."""
LABELS = 50
"""A column of text with more labels is an identifier or free text, unless it is named."""
PEEK = 2_000
"""Rows that are looked at before a column of text is read as a whole."""
MOST_VALUES = 60_000_000
"""With more values (rows times columns) none is taken unless it is named: 240 MB."""
REPEATS = 100
"""Whole numbers that never repeat are an identifier where there are at least so many of them."""
FIRST = 20_000
"""Values of a column of text in which an order is looked for."""
BACKWARDS = 0.6
"""A column that falls at a larger share of its changes within episodes runs backwards."""
NONE = "none"
"""The word that asks for no column at all."""


@dataclass(frozen=True, eq=False)
class Also:
    """Further columns of N rows.

    `also[rows]` is the same for some of the rows.

    Attributes:
        n: N, the number of rows.
        names: The names of the columns.
        values: One array (N,) per column: float32 for numbers, NaN where missing; int16 for
            labels, codes into them, -1 where missing.
        levels: For each column its sorted labels, or None where it holds numbers.
        left_out: Name of each column that was not taken → why, in words.
        asked: Whether the user named the columns.
        falling: Name of each column that runs backwards within episodes, taken or not → the share
            of rows at which it falls.
    """

    n: int
    names: tuple[str, ...] = ()
    values: tuple[NDArray[Any], ...] = ()
    levels: tuple[tuple[str, ...] | None, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    asked: bool = False
    falling: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frozen = []
        for column in self.values:
            view = column.view()
            view.setflags(write=False)
            frozen.append(view)
        object.__setattr__(self, "values", tuple(frozen))
        wrong = any(len(column) != self.n for column in self.values)
        if wrong or not len(self.names) == len(self.values) == len(self.levels):
            raise LogError("the columns in `also` have different lengths.")

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, rows: Any) -> Also:
        values = tuple(column[rows] for column in self.values)
        n = len(values[0]) if values else len(np.empty(self.n, np.bool_)[rows])
        return Also(n, self.names, values, self.levels, self.left_out, self.asked, self.falling)

    def numbers(self, j: int, rows: Any = slice(None)) -> Floats:
        """float64: column j at these rows, of labels their codes; NaN where missing."""
        column = self.values[j][rows]
        numbers = doubles(column)
        if self.levels[j] is not None:
            numbers[column < 0] = np.nan
        return numbers

    def digest(self) -> str:
        """SHA-256 of names, labels and values."""
        total = hashlib.sha256(b"dprl-also-1")
        total.update(json.dumps([self.names, self.levels]).encode())
        for column in self.values:
            total.update(column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes())
        return total.hexdigest()

    @property
    def words(self) -> str:
        """What was taken and what was left out, in a sentence or two."""
        parts = []
        if self.names:
            columns = many(self.names, "further column")
            parts.append(f"{columns} read beside the state: {first_few(self.names, 8)}.")
        if self.left_out:
            why = [f"{name} ({reason})" for name, reason in self.left_out.items()]
            parts.append(f"Left out: {first_few(why, 4)}.")
        return " ".join(parts)


@dataclass(frozen=True)
class AlsoNames:
    """Which columns to take.

    Attributes:
        names: Their names.
        asked: Whether the user named them: then a column that cannot be read is an error.
        left_out: Name → why it is not taken.
    """

    names: tuple[str, ...] = ()
    asked: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)


class FreeTextError(LogError):
    """Text of too many labels, with its first values: they may still be dates, and have an order.

    Attributes:
        first: The first values of the column, at most `FIRST`.
    """

    def __init__(self, first: Sequence[Any]) -> None:
        super().__init__("free text or an identifier.")
        self.first = first

    def days(self, text: Text | None) -> Iterator[Floats]:
        """The values as days, in each way to read them as dates; none where they are no dates."""
        given = [value if isinstance(value, str) else "" for value in self.first]
        words = [word for word in dict.fromkeys(given) if word]
        declared = text.dates if text is not None else "iso"
        for dates in ("iso", "day-first", "month-first") if declared == "iso" else (declared,):
            with suppress(LogError):
                days = text_days(words, dates, "")
                if days is not None:
                    of = dict(zip(words, days.tolist(), strict=True))
                    yield np.array([of.get(word, np.nan) for word in given])
                    if dates == "iso":  # it says itself which is the day
                        return


def falls_in(column: Floats, episode: NDArray[np.int32]) -> float:
    """Share of rows after the first of an episode at which a column falls.

    0 where it does not run backwards: at `BACKWARDS` of its changes it falls, not by chance alone.

    Args:
        column: (k,), in the order of the file; NaN where missing.
        episode: Codes of the episodes, of these rows or more.
    """
    order = np.argsort(episode[: len(column)], kind="stable")
    codes, values = episode[order], column[order]
    steps = np.diff(values)[codes[1:] == codes[:-1]]
    falls, rises = int((steps < 0).sum()), int((steps > 0).sum())
    surely = not rises or falls - rises > 3 * (falls + rises) ** 0.5
    return falls / len(steps) if falls > BACKWARDS * (falls + rises) and surely else 0.0


def also_names(
    also: str | Sequence[str] | None,
    columns: Sequence[str],
    used: Collection[str],
    rows: Callable[[], int],
) -> AlsoNames:
    """The columns that `also` stands for, among those of a table.

    Args:
        also: Names or patterns; None for all that have no role; () or "none" for none.
        columns: All columns of the table.
        used: Those that have a role already.
        rows: Says about how many rows there are; asked only if it matters.
    """
    rest = [name for name in columns if name not in set(used)]
    if also is None:
        unnamed = dict.fromkeys(filter(is_unnamed, rest), "it has no name: an index, most likely")
        rest = [name for name in rest if name not in unnamed]
        reason = f"one of {len(rest)} columns without a role: name those to compare"
        if len(rest) <= FEW:
            n = rows() if rest else 0
            if n * len(rest) <= MOST_VALUES:
                return AlsoNames(tuple(rest), left_out=unnamed)
            reason = f"the log has about {n:,} rows: name those to compare"
        return AlsoNames(left_out={**unnamed, **dict.fromkeys(rest, reason)})
    wanted = [also] if isinstance(also, str) else list(also)
    if wanted == [NONE] and NONE not in columns:
        wanted = []
    names: list[str] = []
    for word in wanted:
        if word in set(used):
            raise LogError(
                f"column {word!r} is named in also and has another role already.",
                do="Leave it out of also (--also): what is in the state is compared anyway.",
            )
        pattern = any(mark in word for mark in "*?[")
        matches = [word] if word in rest else fnmatch.filter(rest, word) if pattern else []
        if not matches:
            raise LogError(
                f"there is no column {word!r} for also.",
                f"the columns without a role are {', '.join(map(repr, rest[:12])) or 'none'}",
                worded("Name the right one: {also=}."),
            )
        names += matches
    return AlsoNames(tuple(dict.fromkeys(names)), asked=True)


def collect(
    chosen: AlsoNames,
    get: Callable[[str], tuple[Any, NDArray[np.bool_] | None]],
    declared: Collection[str],
    units: Sequence[NDArray[np.int32]],
    n: int,
    text: Text | None = None,
) -> Also:
    """Read the columns; without a word from the user, what cannot be read is left out.

    Args:
        chosen: Which columns to take.
        get: Gives the values of a column and where it is missing.
        declared: Columns whose values are labels, whatever they look like.
        units: The codes (N,) of episodes and groups, to tell identifiers from measurements.
        n: N, the number of rows.
        text: How dates are written. Default None: as usual.
    """
    names: list[str] = []
    values: list[NDArray[Any]] = []
    levels: list[tuple[str, ...] | None] = []
    left_out = dict(chosen.left_out)
    falling: dict[str, float] = {}
    for name in chosen.names:
        try:
            column, labels = _column(name, get, declared, chosen.asked, text)
        except LogError as error:
            if chosen.asked:
                raise
            left_out[name] = error.what.rstrip(".")
            if isinstance(error, FreeTextError) and units:
                falls = min((falls_in(x, units[0]) for x in error.days(text)), default=0.0)
                falling.update({name: falls} if falls else {})
            continue
        if labels is None and units and (falls := falls_in(column, units[0])):
            falling[name] = falls
        why = "" if chosen.asked else _identifier(column, labels, units)
        if why:
            left_out[name] = why
            continue
        names.append(name)
        values.append(_compact(column, labels))
        levels.append(labels)
    return Also(n if not values else len(values[0]), tuple(names), tuple(values), tuple(levels),
                left_out, chosen.asked, falling)  # fmt: skip


def _column(
    name: str,
    get: Callable[[str], tuple[Any, NDArray[np.bool_] | None]],
    declared: Collection[str],
    asked: bool,
    text: Text | None,
) -> tuple[Floats, tuple[str, ...] | None]:
    """A column as float64 with NaN where missing, and its labels where it has some."""
    values, gone = get(name)
    if isinstance(values, np.ma.MaskedArray):
        values, gone = values.data, np.ma.getmaskarray(values)
    if isinstance(values, Days):
        values, gone = values.values, None
    if not isinstance(values, Coded):
        array = np.asarray(values)
        if array.dtype.kind == "M":
            absent = np.isnat(array) if gone is None else gone | np.isnat(array)
            days = array.astype("datetime64[us]").astype(np.int64) / 86_400e6
            values, gone = np.where(absent, np.nan, days), None
        elif not asked and name not in declared and looks_like_text(array[:PEEK]):
            raise FreeTextError(array[:FIRST].tolist())
    matrix, own, _ = feature_columns([(name, values, gone)], declared, text)
    column = matrix[:, 0]
    if np.isinf(column).any():
        raise LogError(
            f"{name!r} holds a number that is infinite.",
            f"row {int(np.argmax(np.isinf(column))) + 1:,}",
            "Leave the cell empty where it is not known.",
        )
    return column, own[0] if own else None


def looks_like_text(values: NDArray[Any]) -> bool:
    """Whether the first values of a column are text with too many different labels."""
    if values.dtype.kind not in "OUT" or values.ndim != 1:
        return False
    texts = {value for value in values.tolist() if isinstance(value, str)}
    return len(texts) > LABELS


def _identifier(
    column: Floats, labels: tuple[str, ...] | None, units: Sequence[NDArray[np.int32]]
) -> str:
    """Why a column is no measurement; '' where it may be one."""
    present = ~np.isnan(column)
    if not present.any():
        return say("always missing")
    if labels is not None:
        if len(labels) > LABELS:
            return say("free text or an identifier")
        return say("an identifier") if 10 <= len(labels) == len(column) else ""
    first = column[:PEEK]
    kinds: list[NDArray[Any]] = [np.arange(len(column)), *units]
    for codes in kinds:  # as many numbers as rows, episodes or groups?
        if len(np.unique(first[~np.isnan(first)])) < len(np.unique(codes[:PEEK])):
            continue
        numbers = column[present]
        distinct = len(np.unique(numbers)) if (numbers == np.rint(numbers)).all() else 0
        if REPEATS <= distinct == len(np.unique(codes)):
            return say("an identifier")
    return ""


def _compact(column: Floats, labels: tuple[str, ...] | None) -> NDArray[Any]:
    """A column in few bytes: float32 numbers, or int16 codes of labels, -1 where missing."""
    if labels is not None:
        return np.where(np.isnan(column), -1, np.nan_to_num(column)).astype(np.int16)
    with np.errstate(over="ignore"):
        numbers = (column + 0.0).astype(np.float32)
    if np.isinf(numbers).any():
        raise LogError("a column in `also` holds a number beyond 3e38.", do="Leave it out.")
    numbers[np.isnan(numbers)] = np.nan
    return numbers
