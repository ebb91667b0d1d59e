"""The spec: what is an episode, when is decided, what is known, done and gained; in data classes.

Each class is one table of the TOML file and takes the same keys (`read_spec`). Durations are text:
"90 s", "30 min", "4 h", "2 days", "1 week". Codes are text, matched letter by letter; a `*` stands
for any text. Below, t is the moment of a decision and t' that of the next one.
"""

# ruff: noqa: RUF009  (a field is described by a call)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dprl.logs.events._fields import option, tidy

__all__ = [
    "Action", "Choice", "Clock", "End", "Episodes", "Feature", "Interval", "Part", "Reward",
    "Source", "Spec",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Source:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Interval:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Episodes:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Clock:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Feature:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Choice:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One treatment: what was given of it from t until before t'.

    Attributes:
        name: Name of the treatment.
        codes: Codes of its events.
        take: "any" (default): a row begins in the window, or one with an end runs in it; "count",
            "sum", "mean", "max", "last" of rows that begin in it; "dose": value times hours in it;
            "amount": the share of the value that the hours in it are of all hours of the row.
        edges: Rising numbers: level 0 is up to the first, level 1 above it up to the second, and
            so on. Without them there are two levels: nothing, and something.
        levels: Names of the levels, one more than edges. Default "0", "1", ….
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
    absent: str = option("text or nothing", "")
    choices: tuple[Choice, ...] = option("parts", ())
    valid: Any = option("pair", None)
    may_be_absent: bool = option("flag", False)

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Action:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Reward:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class End:
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

    def __post_init__(self) -> None:
        tidy(self)


@dataclass(frozen=True, kw_only=True)
class Spec:
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
    lines: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        from dprl.logs.events._leaks import refuse_leaks
        from dprl.logs.events._rules import check_spec

        tidy(self)
        check_spec(self)
        refuse_leaks(self)
