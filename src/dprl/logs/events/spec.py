"""The spec: what is an episode, when is decided, what is known, done and gained; in data classes.

Each class is one table of the TOML file and takes the same keys (`read_spec`). Durations are text:
"90 s", "30 min", "4 h", "2 days", "1 week". Codes are text, matched letter by letter; a `*` stands
for any text. Below, t is the moment of a decision and t' that of the next one.
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path as File
from typing import Any

from dprl._core.checks import is_number
from dprl.errors import LogError, ParameterError
from dprl.logs.outcome import Outcome

# --- Kinds of values in a spec: what each key may hold, and errors that name the line of the TOML

Path = tuple[str | int, ...]
"""Where a key stands in a spec: ("feature", 2, "within") is that key of the third feature."""

HOUR = 3_600_000_000
"""Microseconds of an hour."""
UNITS = {
    "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000, "seconds": 1_000_000,
    "min": 60_000_000, "minute": 60_000_000, "minutes": 60_000_000,
    "h": HOUR, "hour": HOUR, "hours": HOUR,
    "d": 24 * HOUR, "day": 24 * HOUR, "days": 24 * HOUR,
    "week": 168 * HOUR, "weeks": 168 * HOUR,
}  # fmt: skip
LONGEST = 200 * 366 * 24 * HOUR
"""The longest duration, about 200 years."""


class SpecError(ParameterError):
    """A spec of events cannot be used as it is."""


def option(kind: str, *default: Any) -> Any:
    """A field of a spec: its kind (see `check_fields`), and its default if it has one."""
    return field(default=default[0] if default else MISSING, metadata={"kind": kind})


class Keys:
    """A table of a spec: its lists are tuples, and so is one text where several may stand."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            kind = each.metadata.get("kind", "")
            value = getattr(self, each.name)
            if kind == "texts" and isinstance(value, str):
                object.__setattr__(self, each.name, (value,))
            elif isinstance(value, list):
                object.__setattr__(self, each.name, tuple(value))


def microseconds(text: str) -> int:
    """A duration such as "4 h" in microseconds; a ValueError if it is none."""
    match = re.fullmatch(
        r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-z]+)\s*", text if isinstance(text, str) else ""
    )
    if match is None or match[2] not in UNITS:
        raise ValueError(text)
    return round(float(match[1]) * UNITS[match[2]])


def place(spec_lines: Mapping[Path, tuple[int, str]] | None, path: Path) -> str:
    """Where a key is: the line of the TOML file if there is one, else its path in words."""
    for length in range(len(path), 0, -1):
        if spec_lines and path[:length] in spec_lines:
            number, text = spec_lines[path[:length]]
            return f"line {number}: {text.strip()}"
    words = [f"number {part + 1}" if isinstance(part, int) else part for part in path]
    return ", ".join(map(str, words))


@dataclass(frozen=True)
class At:
    """One key of a spec, for errors that say where it stands."""

    lines: Any
    path: Path

    def key(self, *names: str | int) -> At:
        """A key below this one."""
        return At(self.lines, (*self.path, *names))

    def refuse(self, what: str, do: str = "") -> SpecError:
        """The error for this key."""
        return SpecError(what, place(self.lines, self.path), do)


def check_fields(table: Any, at: At) -> None:
    """Refuse values that are not of the kind of their field."""
    for each in fields(table):
        kind = each.metadata.get("kind")
        if kind is None or kind in ("table", "parts"):
            continue
        value = getattr(table, each.name)
        problem = _problem(kind, value)
        if problem:
            what = f"{each.name} must be {problem}; got {value!r}."
            raise at.key(each.name).refuse(what, _advice(kind, value))


def _advice(kind: str, value: Any) -> str:
    if kind.startswith(("duration", "reach")) and (is_number(value) or isinstance(value, str)):
        return 'Write a number and a unit: "30 min", "4 h", "2 days".'
    return ""


def _problem(kind: str, value: Any) -> str:
    """What the value must be, if it is not that; else an empty text."""
    if kind.endswith(" or nothing"):
        if value is None or value == "":
            return ""
        kind = kind.removesuffix(" or nothing")
    if " | " in kind:
        words = kind.split(" | ")
        *first, last = map(repr, words)
        fine = isinstance(value, str) and value in words
        return "" if fine else f"{', '.join(first)} or {last}"
    test, words_for = KINDS[kind]
    return "" if test(value) else words_for


def _is_duration(value: Any) -> bool:
    try:
        return 0 <= microseconds(value) <= LONGEST
    except ValueError:
        return False


def _numbers(value: Any) -> bool:
    return isinstance(value, tuple) and all(is_number(x) and math.isfinite(x) for x in value)


KINDS: Mapping[str, tuple[Any, str]] = {
    "text": (lambda v: isinstance(v, str) and v.strip() != "", "text, not empty"),
    "any text": (lambda v: isinstance(v, str), "text"),
    "texts": (
        lambda v: isinstance(v, tuple) and all(isinstance(x, str) and x.strip() for x in v),
        "text, or a list of texts",
    ),
    "duration": (_is_duration, "a duration, not negative, such as '4 h'"),
    "reach": (
        lambda v: v in ("episode", "history") or _is_duration(v),
        "a duration such as '24 h', 'episode' or 'history'",
    ),
    "number": (lambda v: is_number(v) and math.isfinite(v), "a number"),
    "places": (
        lambda v: is_number(v) and v == int(v) and 0 <= v <= 18,
        "a whole number from 0 to 18",
    ),
    "flag": (lambda v: isinstance(v, bool), "true or false"),
    "pair": (
        lambda v: v is None or (_numbers(v) and len(v) == 2 and v[0] <= v[1]),
        "two numbers, the smaller first",
    ),
    "rising": (
        lambda v: _numbers(v) and all(a < b for a, b in itertools.pairwise(v)),
        "a list of rising numbers",
    ),
}  # fmt: skip
"""Kind of a value → (whether a value is of it, what it must be)."""


# --- The spec: what is an episode, when is decided, what is known, done and gained; in data
# classes

# ruff: noqa: RUF009  (a field is described by a call)


@dataclass(frozen=True, kw_only=True)
class Source(Keys):
    """Where the events are, and which column is what.

    Attributes:
        preset: "events" (default): one row per event, columns as named below; "meds": the same with
            the names of MEDS; "omop": a folder, or a DuckDB file, with tables of OMOP CDM 5.4.
        files: Files or patterns, or for OMOP the folder or DuckDB file; relative to the TOML file.
            Default none: they are given to `build` or `from_events`.
        subject: Column of who the event is about. Default "subject_id".
        time: Column of the time of the event; rows without one are static. Default "time".
        code: Column of what the event is. Default "code".
        value: Column of its number. Default "numeric_value"; "" if there is none.
        end: Column of the time at which the event ended, empty where it did not last. Default "".
        known: Column of the time at which the row could be read, if that is later than `time`
            (a laboratory result). A row where it is empty enters no state. Default "".
        time_unit: Unit of times that are numbers, such as "h"; dates need none. Default "".
        duplicates: "keep" (default) counts equal rows as often as they are there; "drop" once.
        decimal: The mark before the fraction of a number in CSV files, "." or ",". Default ".".
        encoding: How the letters of CSV files are written: "utf-8", "latin-1", "utf-16", "cp1252"
            (Windows), or another encoding of text that Python has. Default "utf-8".
        dates: How dates are written as text: "iso" (2024-02-01), "day-first" (1.2.2024),
            "month-first" (2/1/2024), or a format of strptime ("%d %b %Y"). ISO dates are always
            understood. Default "iso".
        time_zone: The zone of times that have none of their own, such as "Europe/Berlin"; the log
            has them in UTC. An hour that comes twice, when clocks are set back, is taken as the
            later one. Default "": times without a zone are taken as they are.
        delimiter: The character between two cells of CSV files. Default "": that of , ; | and tab
            which the first line has most often.
        labels: What is done to the codes, of the events and of the spec: "trim" (no spaces around
            them), "casefold" (small letters) or "trim,casefold". Default "": nothing.

    Example:
        >>> Source(preset="meds", files="data/*.parquet").time
        'time'
    """

    preset: str = option("events | meds | omop", "events")
    files: Any = option("texts", ())
    subject: str = option("text", "subject_id")
    time: str = option("text", "time")
    code: str = option("text", "code")
    value: str = option("text or nothing", "numeric_value")
    end: str = option("text or nothing", "")
    known: str = option("text or nothing", "")
    time_unit: str = option("text or nothing", "")
    duplicates: str = option("keep | drop", "keep")
    decimal: str = option("text", ".")
    encoding: str = option("text", "utf-8")
    dates: str = option("text", "iso")
    time_zone: str = option("text or nothing", "")
    delimiter: str = option("any text", "")
    labels: Any = option("any text", "")


@dataclass(frozen=True, kw_only=True)
class Interval(Keys):
    """Rows that start and stop something, made into one row with a beginning and an end.

    Each start row becomes a row of code `name` with the value of that start, which ends at the next
    start or stop row of the same subject.

    Attributes:
        name: The code of the new rows.
        start: Codes of the rows that start it, or change its value.
        stop: Codes of the rows that stop it; one at the time of a start comes before it.
        longest: The longest time that one start counts for. Default "24 h".
        may_be_absent: Whether it may be that no row has such a code. Default False.

    Example:
        >>> Interval(name="norepinephrine", start="INFUSION_START//221906",
        ...          stop="INFUSION_END//221906").longest
        '24 h'
    """

    name: str = option("text")
    start: Any = option("texts")
    stop: Any = option("texts")
    longest: str = option("duration", "24 h")
    may_be_absent: bool = option("flag", False)


@dataclass(frozen=True, kw_only=True)
class Episodes(Keys):
    """What one episode is.

    Attributes:
        by: "code": an episode begins with an event of `start` and ends with one of `Spec.ends`;
            "table": a table says who, from when and until when; "gap": events of a subject that
            are at most `gap` apart.
        start: by="code": codes that begin an episode.
        table: by="table": a CSV or Parquet file, relative to the TOML file.
        id: by="table": its column of episode names. Default "episode".
        subject: by="table": its column of subjects. Default "subject_id".
        begins: by="table": its column of beginnings. Default "start".
        finishes: by="table": its column of ends; empty: cut at the subject's last row. Default
            "end".
        gap: by="gap": the longest time between two events of one episode.
        codes: by="gap": the codes that count. Default "*", all.
        ended: Word for an episode that reaches the end of its table row or its last event before a
            gap: "terminal" or "cut". by="gap" needs it; by="table" takes "terminal" by default.
        group: What must stay together in splits: "subject" (default), "episode", or a column of
            the table.

    Example:
        >>> Episodes(by="gap", gap="24 h", ended="terminal").codes
        ('*',)
    """

    by: str = option("code | table | gap")
    start: Any = option("texts", ())
    table: str = option("text or nothing", "")
    id: str = option("text", "episode")
    subject: str = option("text", "subject_id")
    begins: str = option("text", "start")
    finishes: str = option("text", "end")
    gap: str = option("duration or nothing", "")
    codes: Any = option("texts", ("*",))
    ended: str = option("text or nothing", "")
    group: str = option("text", "subject")


@dataclass(frozen=True, kw_only=True)
class Clock(Keys):
    """When decisions are taken.

    Attributes:
        every: Time between two decisions, from the beginning of the episode on.
        on: In place of `every`: codes; each time at which an event of them happens is a decision.
        horizon: Longest part of an episode that is used; what is longer is cut. Default "": all.
        partial: "keep" (default) or "drop" a last window that the end of the episode cuts short.

    Example:
        >>> Clock(every="4 h", horizon="72 h").every
        '4 h'
    """

    every: str = option("duration or nothing", "")
    on: Any = option("texts", ())
    horizon: str = option("duration or nothing", "")
    partial: str = option("keep | drop", "keep")


@dataclass(frozen=True, kw_only=True)
class Feature(Keys):
    """One number of the state, from what was known before the decision.

    Attributes:
        name: Name of the column.
        take: "last", "mean", "min", "max", "count", "sum", "slope" (per hour), "age" (hours since
            the last value), "ever" (1 or 0), "dose" (value times hours, of rows with an end);
            without codes: "elapsed" (hours since the beginning), "step" (decisions before).
        codes: Codes of the events; of values at one time the code named first counts.
        within: Look-back: a duration, "episode" (since its beginning) or "history" (all there is).
            For "last" it is the greatest age. All but "elapsed", "step" and static ones need it.
        until: "before" (default): rows known before t; "at": also those known at t itself.
        known_after: How long after its time a row can be read. Default "": at once.
        valid: Smallest and largest value that counts; other rows are left out. Default None: any.
        static: Whether rows without a time are meant ("last", "count" and "ever"). Default False.
        times: The result is multiplied by this. Default 1.
        fill: The number in place of a missing result. Default None: it stays missing.
        places: Decimal places to which values are rounded before they are added ("sum", "mean" and
            "dose"), so that sums are exact in any order. Default 12.
        unit: The unit, for the dictionary. Default "".
        may_be_absent: Whether it may be that no row has such a code. Default False.

    Example:
        >>> Feature(name="map", take="last", codes="MAP", within="24 h").codes
        ('MAP',)
    """

    name: str = option("text")
    take: str = option(
        "last | mean | min | max | count | sum | slope | age | ever | dose | elapsed | step"
    )
    codes: Any = option("texts", ())
    within: str = option("reach or nothing", "")
    until: str = option("before | at", "before")
    known_after: str = option("duration or nothing", "")
    valid: Any = option("pair", None)
    static: bool = option("flag", False)
    times: float = option("number", 1.0)
    fill: Any = option("number or nothing", None)
    places: int = option("places", 12)
    unit: str = option("text or nothing", "")
    may_be_absent: bool = option("flag", False)


@dataclass(frozen=True, kw_only=True)
class Choice(Keys):
    """One of several named levels of a part of the action.

    Attributes:
        name: Name of the level.
        codes: Codes of its events.

    Example:
        >>> Choice(name="high flow", codes=["HFNC", "CPAP"]).codes
        ('HFNC', 'CPAP')
    """

    name: str = option("text")
    codes: Any = option("texts")


@dataclass(frozen=True, kw_only=True)
class Part(Keys):
    """One treatment: what was given of it from t until before t'.

    Attributes:
        name: Name of the treatment.
        codes: Codes of its events.
        take: "any" (default): a row begins in the window, or one with an end runs in it; "count",
            "sum", "mean", "max", "last" of rows that begin in it; "dose": value times hours in it;
            "amount": the share of the value that the hours in it are of all hours of the row.
        edges: Rising numbers: level 0 is up to the first, level 1 above it up to the second, and
            so on. Without them there are two levels: nothing, and something.
        levels: Names of the levels, one more than edges. Default "0", "1", …; with a unit their
            ranges in words.
        unit: The unit of edges, for names of levels and the dictionary: "above 0 to 400 mg".
        absent: Name of the level where there is no row. "mean", "max" and "last" need it; for
            others it is level 0.
        choices: In place of codes: named levels; where several happen the first of the list counts.
        valid: Smallest and largest value that counts; other rows are left out. Default None: any.
        may_be_absent: Whether it may be that no row has such a code. Default False.

    Example:
        >>> Part(name="fluid", codes="SALINE", take="sum", edges=[0, 500]).edges
        (0, 500)
    """

    name: str = option("text")
    codes: Any = option("texts", ())
    take: str = option("any | count | sum | mean | max | last | dose | amount", "any")
    edges: Any = option("rising", ())
    levels: Any = option("texts", ())
    unit: str = option("text or nothing", "")
    absent: str = option("text or nothing", "")
    choices: tuple[Choice, ...] = option("parts", ())
    valid: Any = option("pair", None)
    may_be_absent: bool = option("flag", False)


@dataclass(frozen=True, kw_only=True)
class Action(Keys):
    """What was done in a window, as one label.

    Attributes:
        parts: The treatments.
        combine: "first" (default): the first part of the list that is above its level 0 names the
            action; "joint": the levels of all parts together do.
        none: combine="first": label where no part is above level 0. Default "none".

    Example:
        >>> Action(parts=[Part(name="drug", codes="DRUG//*")]).none
        'none'
    """

    parts: tuple[Part, ...] = option("parts")
    combine: str = option("first | joint", "first")
    none: str = option("text", "none")


@dataclass(frozen=True, kw_only=True)
class Reward(Keys):
    """One term of the reward; the terms are added.

    The term is times x + plus, where x is taken from rows of the window.

    Attributes:
        take: "sum", "count", "any" (1 or 0), "last", "mean", "min" or "max". Default "any".
        codes: Codes of the events; none with `ended`: x is 1.
        at: "window" (default): of every decision, rows from t until before t'; "end": of the last
            decision alone, rows from t until the end of the episode.
        side: "start" (default): a row at t counts and one at t' does not; "finish": the other way.
        times: Factor. Default 1.
        plus: Summand. Default 0.
        missing: The term where x is missing ("last", "mean", "min", "max" without a row). Default
            None: such a decision is an error.
        ended: at="end": only for episodes that ended with one of these words. Default: all.
        valid: Smallest and largest value that counts; other rows are left out. Default None: any.
        may_be_absent: Whether it may be that no row has such a code. Default False.

    Example:
        >>> Reward(at="end", ended="died", times=-1).take
        'any'
    """

    take: str = option("sum | count | any | last | mean | min | max", "any")
    codes: Any = option("texts", ())
    at: str = option("window | end", "window")
    side: str = option("start | finish", "start")
    times: float = option("number", 1.0)
    plus: float = option("number", 0.0)
    missing: Any = option("number or nothing", None)
    ended: Any = option("texts", ())
    valid: Any = option("pair", None)
    may_be_absent: bool = option("flag", False)


@dataclass(frozen=True, kw_only=True)
class End(Keys):
    """Events that end an episode.

    Attributes:
        codes: Codes of the events. The first one after the beginning ends the episode; of several
            at one time the end named first in the spec.
        ended: "terminal", "cut", or a word of its own for a competing event. Default "terminal".
        may_be_absent: Whether it may be that no row has such a code. Default False.

    Example:
        >>> End(codes="MEDS_DEATH", ended="died").ended
        'died'
    """

    codes: Any = option("texts")
    ended: str = option("text", "terminal")
    may_be_absent: bool = option("flag", False)


@dataclass(frozen=True, kw_only=True)
class Spec(Keys):
    """How a table of events becomes a log of decisions.

    Attributes:
        episodes: What one episode is.
        clock: When decisions are taken.
        features: The numbers of the state.
        action: What was done in a window.
        rewards: The terms of the reward.
        ends: Events that end an episode. Default none.
        intervals: Start and stop rows that become rows with an end. Default none.
        source: Where the events are. Default `Source()`.
        outcome: What the rewards add up to, its unit, and which way is better. Default: not said.
        lines: Where each key stands in a TOML file, for messages; `read_spec` sets it.

    Raises:
        SpecError: A key has no such value, or a feature would see what comes after the decision.

    Example:
        >>> spec = Spec(
        ...     episodes=Episodes(by="code", start="ADMISSION"),
        ...     ends=[End(codes="DISCHARGE")],
        ...     clock=Clock(every="4 h"),
        ...     features=[Feature(name="map", take="last", codes="MAP", within="24 h")],
        ...     action=Action(parts=[Part(name="drug", codes="DRUG")]),
        ...     rewards=[Reward(at="end", codes="DISCHARGE")],
        ... )
        >>> spec.features[0].name
        'map'
    """

    episodes: Episodes = option("table")
    clock: Clock = option("table")
    features: tuple[Feature, ...] = option("parts")
    action: Action = option("table")
    rewards: tuple[Reward, ...] = option("parts")
    ends: tuple[End, ...] = option("parts", ())
    intervals: tuple[Interval, ...] = option("parts", ())
    source: Source = field(default_factory=Source)
    outcome: Outcome = field(default_factory=Outcome)
    lines: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        from dprl.logs.events.spec_rules import check_spec, refuse_leaks

        super().__post_init__()
        check_spec(self)
        refuse_leaks(self)


# --- `read_spec`: a spec from a TOML file; every error names the line

TABLES = {
    "source": Source, "outcome": Outcome, "episodes": Episodes, "clock": Clock, "action": Action,
}  # fmt: skip
LISTS = {"feature": Feature, "reward": Reward, "end": End, "interval": Interval}
NESTED = {(Action, "part"): ("parts", Part), (Part, "choices"): ("choices", Choice)}
"""(class, key of the TOML) → (its field, the class of each item)."""


def read_spec(path: str | os.PathLike[str]) -> Spec:
    r"""Read a spec from a TOML file.

    The tables are [source], [outcome] (with name, unit and better), [episodes], [clock], [action]
    and, as often as needed, [[feature]], [[action.part]], [[reward]], [[end]] and [[interval]].
    Files that it names are relative to it.

    Args:
        path: The TOML file.

    Returns:
        The spec.

    Raises:
        SpecError: It is no TOML, or a key or value is not what it must be; the line is named.
        LogError: There is no such file.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("spec.toml").write_text('''
        ... [episodes]
        ... by = "code"
        ... start = "ADMISSION"
        ... [clock]
        ... every = "4 h"
        ... [[feature]]
        ... name = "map"
        ... take = "last"
        ... codes = "MAP"
        ... within = "24 h"
        ... [[action.part]]
        ... name = "drug"
        ... codes = "DRUG"
        ... [[reward]]
        ... codes = "DEATH"
        ... times = -1
        ... ''')
        >>> read_spec("spec.toml").features[0].within
        '24 h'
    """
    import tomllib

    file = File(path)
    if not file.is_file():
        raise LogError(f"there is no file {str(file)!r}.", do="Name the TOML file of the spec.")
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{file.name!r} is not TOML.", str(error), "Mend that line.") from error
    lines = find_lines(text)
    parts: dict[str, Any] = {}
    for name, table in content.items():
        if name in TABLES:
            parts[name] = _make(TABLES[name], table, At(lines, (name,)))
        elif name in LISTS:
            if not isinstance(table, list):
                raise At(lines, (name,)).refuse(
                    f"{name!r} must be a list of tables.", f"Write [[{name}]], with two brackets."
                )
            made = [_make(LISTS[name], t, At(lines, (name, i))) for i, t in enumerate(table)]
            parts[f"{name}s"] = tuple(made)
        else:
            raise _unknown(name, [*TABLES, *LISTS], At(lines, (name,)), "table")
    for name in ("episodes", "clock", "action"):
        if name not in parts:
            raise At(lines, (name,)).refuse(f"{file.name!r} has no table [{name}].", "Add it.")
    parts.setdefault("features", ())
    parts.setdefault("rewards", ())
    spec = Spec(**parts, lines=lines)
    return _beside(spec, file.parent)


def _unknown(name: str, names: list[str], at: At, what: str) -> SpecError:
    near = difflib.get_close_matches(name, names, n=1)
    do = f"Did you mean {near[0]!r}? " if near else ""
    return at.refuse(
        f"there is no {what} {name!r} in a spec.", f"{do}It may have {', '.join(names)}."
    )


def _make(kind: Any, table: Any, at: At) -> Any:
    """One table of the file as an object of its class."""
    if not isinstance(table, Mapping):
        what = f"{at.path[0]!r} must be a table; got {table!r}."
        raise at.refuse(what, f"Write [{at.path[0]}] above its keys.")
    own = {each.name: each for each in fields(kind)}
    nested = {key: target for (owner, key), target in NESTED.items() if owner is kind}
    keys = [name for name in own if name not in {field for field, _ in nested.values()}]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in nested:
            name, inner = nested[key]
            items = value if isinstance(value, list) else [value]
            values[name] = tuple(_make(inner, item, at.key(key, i)) for i, item in enumerate(items))
        elif key in keys:
            values[key] = value
        else:
            raise _unknown(key, [*keys, *nested], at.key(key), "key")
    for name, each in own.items():
        if name not in values and each.default is MISSING and each.default_factory is MISSING:
            asked = next((key for key, (field, _) in nested.items() if field == name), name)
            raise at.refuse(
                f"[{'.'.join(str(p) for p in at.path if isinstance(p, str))}] "
                f"lacks the key {asked!r}.",
                "Add it.",
            )
    return kind(**values)


def _beside(spec: Spec, folder: File) -> Spec:
    """The spec with its files relative to the folder of the TOML file."""
    from dataclasses import replace

    files = tuple(str(folder / name) for name in spec.source.files)
    table = str(folder / spec.episodes.table) if spec.episodes.table else ""
    return replace(
        spec,
        source=replace(spec.source, files=files),
        episodes=replace(spec.episodes, table=table),
    )


# -- where each key stands -------------------------------------------------------------------------

HEADER = re.compile(r"\s*(\[\[?)([^\[\]]+)\]\]?\s*(?:#.*)?$")
KEY = re.compile(
    r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)


def find_lines(text: str) -> dict[Path, tuple[int, str]]:
    """Path of each table and key → the number of its line, and the line.

    The text must be valid TOML. Keys inside inline tables have the line of the outer key.
    """
    places: dict[Path, tuple[int, str]] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    depth, closing = 0, ""  # open brackets of a list; the end of a text over several lines
    for number, line in enumerate(text.splitlines(), 1):
        if depth == 0 and not closing:
            if header := HEADER.match(line):
                names = _names(header[2])
                table = _inside(names, counts, new=header[1] == "[[")
                for length in range(1, len(table) + 1):
                    places.setdefault(table[:length], (number, line))
                continue
            if key := KEY.match(line):
                for length in range(1, len(names := _names(key[1])) + 1):
                    places.setdefault((*table, *names[:length]), (number, line))
        depth, closing = _left_open(line, depth, closing)
    return places


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _inside(names: tuple[str, ...], counts: dict[Path, int], new: bool) -> Path:
    """The path of a table: each list of tables on the way stands for its last item."""
    path: Path = ()
    for i, name in enumerate(names):
        path = (*path, name)
        if new and i == len(names) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _left_open(line: str, depth: int, closing: str) -> tuple[int, str]:
    """Open brackets, and the mark that ends an open text, after a line."""
    i = 0
    while i < len(line):
        if closing:
            if closing == '"""' and line[i] == "\\":
                i += 2
            elif line.startswith(closing, i):
                i, closing = i + 3, ""
            else:
                i += 1
            continue
        mark = line[i]
        if mark == "#":
            break
        if line.startswith(('"""', "'''"), i):
            closing, i = line[i : i + 3], i + 3
        elif mark in "\"'":
            i += 1
            while i < len(line) and line[i] != mark:
                i += 2 if mark == '"' and line[i] == "\\" else 1
            i += 1
        else:
            depth += (mark in "[{") - (mark in "]}")
            i += 1
    return depth, closing
