"""Which column of a table is what: a proposal, with reasons, for a person to read and mend.

Roles that decide what is learned (the action, the reward) are proposed by name alone, never from
numbers: what looks like a reward may be anything. Where no name says it, the proposal leaves the
role open and lists the columns that could have it. The rest goes by names and by what the rows
show: an episode's rows lie together, times rise within it, a group holds whole episodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dprl.logs._files import Files
from dprl.logs._sources import quoted
from dprl.logs._text import is_unnamed

__all__ = ["ColumnFacts", "Proposal", "TableFacts", "look", "propose"]

SAMPLE = 200_000
"""Rows that are looked at, from the first on: an episode's rows tend to lie together."""
FEW_ACTIONS = 60
"""Most labels of a column that can be the action."""
FEW_STATES = 200
"""Most labels of a column that can be a state by itself."""
ALONE = 0.5
"""A column of text with more labels than this share of the rows names rows; it describes none."""

WORDS = {
    "episode": ("episode", "trajectory", "traj", "stay", "encounter", "admission", "hadm", "visit",
                "icustay", "csn", "case", "game", "run", "session"),
    "group": ("patient", "subject", "person", "pid", "mrn", "hospital", "site", "centre", "center",
              "user", "customer", "family"),
    "time": ("time", "timestamp", "datetime", "date", "day", "hour", "week", "month", "step", "t",
             "charttime", "minute", "period", "seq", "order", "index"),
    "action": ("action", "treatment", "treat", "drug", "dose", "arm", "intervention", "therapy",
               "decision", "rx", "assigned", "allocation", "item"),
    "reward": ("reward", "return", "utility", "payoff", "outcome", "score", "result", "click",
               "benefit"),
    "ended": ("ended", "end", "done", "terminal", "terminated", "censored", "finished", "ending"),
    "propensity": ("propensity", "pscore", "probability", "prob", "pi"),
    "state": ("state", "stage", "situation", "phase", "condition"),
}  # fmt: skip
PLACES = ("hospital", "site", "centre", "center", "family")
"""Words of groups that are no single person: their rows are not one trajectory."""
LATER = ("outcome", "death", "died", "dead", "mortality", "survived", "survival", "discharge",
         "los", "readmission", "followup", "alive", "reward", "return")  # fmt: skip
"""Words of columns that are often known only afterwards: never proposed as a part of the state."""
BESIDES = ("id", "num", "no", "nr", "number", "key", "code")
"""Words that say that a column names something, not what."""
NUMBERS = r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL.*)$"
TIMES = r"(DATE|TIMESTAMP.*)$"


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
        spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", self.name)
        return re.findall(r"[a-z]+|[0-9]+", spaced.lower())

    def named(self, role: str) -> int:
        """How well its name fits a role: 3 it is the role's own word, 2 another, 0 none."""
        parts = {*self.words, "".join(self.words)}
        if role in ("episode", "group"):  # a name of something: its last word, besides "id"
            last = [word for word in self.words if word not in BESIDES]
            parts = {"".join(self.words), "".join(last), *last[-1:]}
        if role == "action" and self.words[:1] and self.words[0].startswith("rx"):
            parts.add("rx")
        places = [i for i, word in enumerate(WORDS[role]) if word in parts]
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
    """

    rows: int
    columns: tuple[ColumnFacts, ...]
    within: Mapping[tuple[str, str], float] = field(default_factory=dict)
    nested: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Proposal:
    """Which column is what.

    Attributes:
        columns: Role → column, or columns for a state of features.
        reasons: Role → why, in a few words.
        open: Required roles that no column has → the columns that could have it.
        left_out: Column → why it is in no role.
        rows: How many rows were looked at.
        single: Whether every episode has one row.
    """

    columns: dict[str, str | list[str]]
    reasons: dict[str, str]
    open: dict[str, list[str]]
    left_out: dict[str, str]
    rows: int
    single: bool


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
    ids = [c.name for c in columns if _may_name(c, rows)]
    times = [c.name for c in columns if c.kind in ("number", "whole", "time") and c.values > 1]
    kinds = {c.name: c.kind for c in columns}
    within = {(t, e): _rises(files, t, kinds[t], e) for e in ids for t in times if t != e}
    nested = frozenset((a, b) for a in ids for b in ids if a != b and _is_nested(files, a, b))
    return TableFacts(rows, columns, within, nested)


def _may_name(column: ColumnFacts, rows: int) -> bool:
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


def propose(table: TableFacts, given: Mapping[str, Any] | None = None) -> Proposal:
    """Propose which column is what.

    Args:
        table: What is to be seen of the table.
        given: Role → column (or columns), as far as the user has said it; taken as it is.
    """
    work = _Work(table, dict(given or {}))
    work.identify()
    work.by_name("ended", lambda c: c.kind in ("flag", "text", "whole") and c.values <= 10)
    work.by_name("propensity", lambda c: c.low is not None and c.low > 0 and (c.high or 2.0) <= 1)
    work.by_name("action", lambda c: 1 < c.values <= FEW_ACTIONS and c.kind != "time", least=True)
    work.by_name("reward", lambda c: c.kind in ("number", "whole") and c.missing == 0)
    work.describe()
    return Proposal(work.columns, work.reasons, work.open, work.left_out, table.rows, work.single())


class _Work:
    """A proposal in the making."""

    def __init__(self, table: TableFacts, given: dict[str, Any]) -> None:
        self.table = table
        self.facts = {c.name: c for c in table.columns}
        self.columns: dict[str, Any] = given
        self.reasons = dict.fromkeys(given, "as you said")
        self.open: dict[str, list[str]] = {}
        self.left_out: dict[str, str] = {}

    def free(self) -> list[ColumnFacts]:
        """The columns without a role so far."""
        taken = set()
        for value in self.columns.values():
            taken |= {value} if isinstance(value, str) else set(value)
        return [c for c in self.table.columns if c.name not in taken]

    def single(self) -> bool:
        """Whether every episode has one row."""
        episode = self.facts.get(str(self.columns.get("episode")))
        return episode is not None and episode.values == self.table.rows

    def put(self, role: str, column: str, why: str) -> None:
        self.columns[role], self.reasons[role] = column, why

    def identify(self) -> None:
        """Episode, group and time: what names rows, and what orders them."""
        if "episode" not in self.columns:
            names = [c for c in self.free() if _may_name(c, self.table.rows)]
            names = [c for c in names if not set(c.words) & set(PLACES)]
            if not names:
                self.open["episode"] = [
                    c.name for c in self.free() if c.kind in ("whole", "text") and not c.missing
                ]
            else:
                # rows that lie together, then the word for it, then the finest
                best = max(names, key=lambda c: (
                    c.turns == c.values < self.table.rows, c.named("episode"), c.values,
                ))  # fmt: skip
                self.put("episode", best.name, self._of_episode(best))
        episode = self.columns.get("episode")
        if isinstance(episode, str):
            if "group" not in self.columns:
                around = [
                    c for c in self.free()
                    if (episode, c.name) in self.table.nested
                    and (c.named("group") or c.words[-1:] == ["id"])
                ]  # fmt: skip
                if around:
                    best = max(around, key=lambda c: c.values)
                    why = f"each {episode} belongs to one; what it holds stays together"
                    self.put("group", best.name, why)
            self._order(episode)

    def _of_episode(self, column: ColumnFacts) -> str:
        each = self.table.rows / max(column.values, 1)
        if column.values == self.table.rows:
            return "a value of its own in every row: one decision each"
        together = ", its rows lie together" if column.turns == column.values else ""
        return f"{column.values:,} values, {each:.1f} rows each{together}"

    def _order(self, episode: str) -> None:
        if "time" in self.columns or self.single():
            return
        rising = [
            (c.named("time"), self.table.within.get((c.name, episode), 0.0), c) for c in self.free()
        ]
        good = [one for one in rising if one[0] and one[1] == 1.0]
        if good:
            best = max(good, key=lambda one: (one[0], one[1]))[2]
            self.put("time", best.name, f"rises from row to row within every {episode}")
            return
        dates = [c.name for score, share, c in rising if score and share > 0 and c.kind == "time"]
        if len(dates) == 1:
            self.put("time", dates[0], "by its name; the rows are not in its order")

    def by_name(self, role: str, fits: Any, least: bool = False) -> None:
        """The column whose name is the role's; left open, with candidates, if it is required."""
        if role in self.columns:
            return
        able = [c for c in self.free() if fits(c)]
        named = [c for c in able if c.named(role)]
        if named:
            order = sorted(named, key=lambda c: (-c.named(role), c.values if least else 0))
            best = order[0]
            if len(order) > 1 and order[1].named(role) == best.named(role) and role in (
                "action", "reward",
            ):  # fmt: skip
                self.open[role] = [c.name for c in order]
                return
            self.put(role, best.name, f"by its name; {self._range(best)}")
        elif role in ("action", "reward"):
            self.open[role] = [c.name for c in able]

    @staticmethod
    def _range(column: ColumnFacts) -> str:
        if column.kind == "number" and column.low is not None:
            return f"from {column.low:g} to {column.high:g}"
        return f"{column.values:,} values"

    def describe(self) -> None:
        """The state: a column that is one by name, or all that describe a row beforehand."""
        free = self.free()
        if "state" in self.columns or self.open:  # what is asked for first is no part of a state
            return
        labels = [
            c for c in free
            if c.named("state") and c.kind in ("text", "whole", "flag") and c.values <= FEW_STATES
            and not c.missing
        ]  # fmt: skip
        if labels:
            best = max(labels, key=lambda c: c.named("state"))
            self.put("state", best.name, f"by its name; {best.values:,} labels")
            for c in free:
                if c is not best:
                    self.left_out[c.name] = "not needed beside a state by name; it is compared"
            return
        features = []
        for c in free:
            why = self._unfit(c)
            if why:
                self.left_out[c.name] = why
            else:
                features.append(c.name)
        if features:
            self.columns["state"] = features
            self.reasons["state"] = "all others: take out what is known only after the decision"
        else:
            self.open["state"] = [c.name for c in free]

    def _unfit(self, c: ColumnFacts) -> str:
        """Why a column is no part of a state; '' if it is one."""
        if is_unnamed(c.name):
            return "it has no name: often the number of the row"
        if set(c.words) & set(LATER):
            return "its name is one of what is known afterwards"
        if c.values <= 1:
            return "it has one value only" if c.values else "it is empty"
        if c.kind == "other":
            return "neither numbers nor labels"
        if c.kind == "time":
            return "a date"
        if c.kind == "text" and c.values > min(FEW_STATES, ALONE * self.table.rows):
            return "free text or an identifier"
        if c.words[-1:] == ["id"] or c.named("group"):
            return "by its name an identifier"
        return ""
