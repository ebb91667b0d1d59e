"""What the first rows of a table show of its columns: kinds, values, order, what goes with what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.logs._files import Files
from dprl.logs._fixed_actions import telling
from dprl.logs._proposal_words import BESIDES, WORDS, fits, words_in
from dprl.logs._sources import quoted

__all__ = ["ColumnFacts", "TableFacts", "look", "may_name"]

SAMPLE = 200_000
"""Rows that are looked at, from the first on: an episode's rows tend to lie together."""
NUMBERS = r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*)$"
TIMES = r"(DATE|TIMESTAMP.*)$"
MANY_TO_COUNT = 400
"""Of more columns of numbers it is not asked where their values are not 0."""


@dataclass(frozen=True)
class ColumnFacts:
    """What the sampled rows show of one column.

    Attributes:
        name: Its name.
        kind: "number", "whole" (numbers without fractions), "time", "text", "flag" or "other".
        values: How many different values it has.
        missing: Share of rows without a value.
        low: Smallest number; None for others.
        high: Largest number; None for others.
        turns: How often the value differs from that of the row before.
    """

    name: str
    kind: str
    values: int
    missing: float
    low: float | None = None
    high: float | None = None
    turns: int = 0

    @property
    def words(self) -> list[str]:
        """The parts of its name, in small letters: `ICUStay_ID` is icu, stay, id."""
        return words_in(self.name)

    def named(self, role: str) -> int:
        """How well its name fits a role: 3 it is the role's own word, 2 another, 0 none."""
        parts = {*self.words, "".join(self.words)}
        if role in ("episode", "group"):  # a name of something: its last word, besides "id"
            last = [word for word in self.words if word not in BESIDES]
            parts = {"".join(self.words), "".join(last), *last[-1:]}
        if role == "action" and self.words[:1] and self.words[0].startswith("rx"):
            parts.add("rx")
        if role == "episode" and self.values <= 2:
            parts.discard("fall")  # German for a case; English for a patient who fell
        places = [i for i, word in enumerate(WORDS[role]) if fits(word, parts)]
        return 0 if not places else 3 if places[0] == 0 else 2


@dataclass(frozen=True)
class TableFacts:
    """What the sampled rows show of a table.

    Attributes:
        rows: How many rows were looked at.
        columns: The columns, in the file's order.
        within: (column, episode column) → share of an episode's neighbouring rows at which the
            value rises; asked for by `look`.
        nested: (finer, coarser): every value of the first goes with one value of the second.
        at_end: (column of numbers, episode column) → share of its values other than 0 that stand on
            the last row of their episode; without an entry where it has none.
        longest: Episode column → rows of its longest episode.
        files: The files, with the rows that were looked at. Default None: there are none.
    """

    rows: int
    columns: tuple[ColumnFacts, ...]
    within: Mapping[tuple[str, str], float] = field(default_factory=dict)
    nested: frozenset[tuple[str, str]] = frozenset()
    at_end: Mapping[tuple[str, str], float] = field(default_factory=dict)
    longest: Mapping[str, int] = field(default_factory=dict)
    files: Files | None = field(default=None, repr=False, compare=False)

    def fixing(self, columns: list[str], action: str) -> dict[str, float]:
        """Columns that fix the action → the share of rows on which they tell it."""
        if self.files is None:
            return {}
        taken = _codes(self.files, action).astype(np.int32)
        kinds = {column.name: column.kind for column in self.columns}
        shares = {}
        for name in columns:
            number = kinds.get(name) in ("number", "whole")
            values = _numbers(self.files, name) if number else _codes(self.files, name)
            result = telling(values, taken)
            if result is not None and result.fixes:
                shares[name] = result.right
        return shares


def look(paths: Any, **text: Any) -> TableFacts:
    """Look at the first rows of files.

    Args:
        paths: A path, a pattern, or a sequence of them.
        **text: How CSV files are written; see `dprl.logs._files.Files`.
    """
    files = Files(paths, None, **text)
    files.run(
        f"CREATE TEMP TABLE looked AS SELECT * FROM ({files.scan}) LIMIT {SAMPLE}", files.values
    )
    rows = int(files.run("SELECT count(*) FROM looked").fetchall()[0][0])
    columns = tuple(_column(files, name, kind, rows) for name, kind in files.types.items())
    ids = [c.name for c in columns if may_name(c, rows)]
    times = [c.name for c in columns if c.kind in ("number", "whole", "time") and c.values > 1]
    kinds = {c.name: c.kind for c in columns}
    within = {(t, e): _rises(files, t, kinds[t], e) for e in ids for t in times if t != e}
    nested = frozenset((a, b) for a in ids for b in ids if a != b and _is_nested(files, a, b))
    at_end, longest = _ends(files, [c.name for c in columns if c.low is not None], ids)
    return TableFacts(rows, columns, within, nested, at_end, longest, files)


def _codes(files: Files, name: str) -> NDArray[np.float64]:
    """(N,): the number of each value of a column, missing ones among them."""
    rows = files.run(
        f"SELECT dense_rank() OVER (ORDER BY {quoted(name)}) - 1 AS k FROM looked ORDER BY rowid"
    ).fetchnumpy()["k"]
    return np.asarray(np.ma.getdata(rows), np.float64)


def _numbers(files: Files, name: str) -> NDArray[np.float64]:
    """(N,): a column of numbers, NaN where one is missing."""
    c = quoted(name)
    number = files.double(c) if files.types[name] == "VARCHAR" else f"CAST({c} AS DOUBLE)"
    rows = files.run(f"SELECT {number} AS x FROM looked ORDER BY rowid").fetchnumpy()["x"]
    return np.asarray(np.ma.filled(rows, np.nan), np.float64)


def _ends(
    files: Files, numbers: list[str], ids: list[str]
) -> tuple[dict[tuple[str, str], float], dict[str, int]]:
    """Where numbers that are not 0 stand in their episodes, and how long these are."""
    at_end: dict[tuple[str, str], float] = {}
    longest: dict[str, int] = {}
    for episode in ids:
        e = quoted(episode)
        rows = f"SELECT max(n) FROM (SELECT count(*) AS n FROM looked GROUP BY {e})"
        longest[episode] = int(files.run(rows).fetchall()[0][0] or 0)
        names = [name for name in numbers if name != episode]
        if not names or len(names) > MANY_TO_COUNT:
            continue
        counts = []
        for name in names:
            c = quoted(name)
            number = files.double(c) if files.types[name] == "VARCHAR" else f"CAST({c} AS DOUBLE)"
            counts += [f"count(*) FILTER ({number} <> 0)",
                       f"count(*) FILTER ({number} <> 0 AND is_last)"]  # fmt: skip
        marked = f"SELECT *, rowid = max(rowid) OVER (PARTITION BY {e}) AS is_last FROM looked"
        row = files.run(f"SELECT {', '.join(counts)} FROM ({marked})").fetchall()[0]
        for name, every, last in zip(names, row[::2], row[1::2], strict=True):
            if every:
                at_end[name, episode] = last / every
    return at_end, longest


def may_name(column: ColumnFacts, rows: int) -> bool:
    """Whether a column may name episodes or groups."""
    return (
        column.kind in ("whole", "text") and column.missing == 0 and 1 < column.values <= rows
        and bool(column.named("episode") or column.named("group") or column.words[-1:] == ["id"])
        and not (column.named("action") or column.named("time"))
    )  # fmt: skip


def _column(files: Files, name: str, kind: str, rows: int) -> ColumnFacts:
    c = quoted(name)
    number = re.match(NUMBERS, kind) is not None
    as_number = f"CAST({c} AS DOUBLE)" if number else files.double(c)
    text = kind == "VARCHAR"
    sql = (
        f"SELECT count(DISTINCT {c}), count({c}), {f'count({as_number})' if number or text else 0},"
        f"{f'count(*) FILTER ({as_number} = round({as_number}))' if number or text else 0},"
        f"{f'min({as_number})' if number or text else 'NULL'},"
        f"{f'max({as_number})' if number or text else 'NULL'},"
        f"{f'count({_moment(files, c)})' if text else 0} FROM looked"
    )
    values, present, numbers, wholes, low, high, times = files.run(sql).fetchall()[0]
    turns = files.run(
        f"SELECT count(*) FILTER ({c} IS DISTINCT FROM before) FROM "
        f"(SELECT {c}, lag({c}) OVER (ORDER BY rowid) AS before FROM looked)"
    ).fetchall()[0][0]
    word = "other"
    if kind == "BOOLEAN":
        word = "flag"
    elif re.match(TIMES, kind) or (text and present and times == present and numbers < present):
        word = "time"
    elif present and numbers == present and (number or text):
        word = "whole" if wholes == present else "number"
    elif text or kind.startswith("ENUM"):
        word = "text"
    if word not in ("whole", "number"):
        low = high = None
    missing = 1 - present / rows if rows else 0.0
    return ColumnFacts(name, word, int(values), missing, low, high, int(turns))


def _moment(files: Files, c: str) -> str:
    """SQL for the time that text stands for, as dates are declared; NULL where it is none."""
    dates = files.text.dates
    if dates == "iso":
        return f"TRY_CAST({c} AS TIMESTAMP)"
    days = {"day-first": ("%d", "%m"), "month-first": ("%m", "%d")}.get(dates)
    forms = [dates] if days is None else [
        f"{days[0]}{mark}{days[1]}{mark}%Y{hours}"
        for mark in "./-" for hours in ("", " %H:%M", " %H:%M:%S")
    ]  # fmt: skip
    return f"try_strptime({c}, [{', '.join(quoted(form, chr(39)) for form in forms)}])"


def _rises(files: Files, time: str, kind: str, episode: str) -> float:
    """Share of an episode's neighbouring rows at which a number or a time rises."""
    t, e = quoted(time), quoted(episode)
    if files.types[time] == "VARCHAR":
        t = _moment(files, t) if kind == "time" else files.double(t)
    pairs, rising = files.run(
        f"SELECT count(before), count(*) FILTER (now > before) FROM (SELECT {t} AS now, "
        f"lag({t}) OVER (PARTITION BY {e} ORDER BY rowid) AS before FROM looked)"
    ).fetchall()[0]
    return rising / pairs if pairs else 0.0


def _is_nested(files: Files, finer: str, coarser: str) -> bool:
    a, b = quoted(finer), quoted(coarser)
    pairs, fine, coarse = files.run(
        f"SELECT count(DISTINCT ({a}, {b})), count(DISTINCT {a}), count(DISTINCT {b}) FROM looked"
    ).fetchall()[0]
    return bool(pairs == fine and coarse < fine)
