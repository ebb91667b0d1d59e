"""Files, dataframes, arrays and episodes of other libraries come in; a Log goes out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core.database import connect
from dprl._core.disk import replacing, said_if_short
from dprl.errors import LogError, ParameterError
from dprl.logs.checking.findings import CheckResult, sorted_findings
from dprl.logs.checking.whole_log import log_findings
from dprl.logs.encoding.categories import row_labels
from dprl.logs.encoding.doses import several_actions
from dprl.logs.encoding.gaps import Missing
from dprl.logs.log import Label, Log
from dprl.logs.reading.also import AlsoNames
from dprl.logs.reading.assemble import build, examine
from dprl.logs.reading.columns import MISSING_WORDS, tidy_labels
from dprl.logs.reading.dates import times_on
from dprl.logs.reading.files import Progress, read_columns
from dprl.logs.reading.frames import columns_of, frame_columns, quoted
from dprl.logs.reading.options import OPTIONS, Reading, documented, documented_arrays
from dprl.logs.reading.sums import COST, OF
from dprl.logs.reading.times import written
from dprl.logs.roles import NAMES, by_role
from dprl.logs.source import LogInParts
from dprl.logs.unseen import SEEN

# --- What a log holds, as a file can hold it: labels that would change in a CSV file are refused


def further(log: Log, kind: str) -> dict[str, Any]:
    """The columns in `also`, as they are written to a file of this kind."""
    assert log.also is not None
    columns: dict[str, Any] = {}
    for j, (name, labels) in enumerate(zip(log.also.names, log.also.levels, strict=True)):
        if labels is None:
            columns[name] = log.also.values[j]
            continue
        if kind == ".csv":
            refuse_missing_words(labels)
        columns[name] = row_labels(labels, log.also.numbers(j))
    return columns


def survives_csv(labels: Sequence[Label]) -> None:
    """Refuse labels that would come back from a CSV file as other labels: CSV has no types."""
    words = [str(label) for label in labels]
    back = tidy_labels(words)
    refuse_missing_words(labels)
    for label, word in zip(labels, words, strict=True):
        if type(back[word]) is not type(label):
            raise _lost_in_csv(label)


def refuse_missing_words(labels: Sequence[Label]) -> None:
    """Refuse labels that a CSV file takes for a missing value."""
    for label in labels:
        if str(label) in MISSING_WORDS:
            raise _lost_in_csv(label)


def _lost_in_csv(label: Label) -> LogError:
    return LogError(
        f"the label {label!r} would not come back from a CSV file as it is.",
        do="Write a .parquet file: it keeps types.",
    )


# --- Files, dataframes, arrays and episodes of other libraries come in; a Log goes out

SCANNING = ("memory", "rows", "folder")
"""Options of `scan` alone."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@documented
def read(  # noqa: D417  (see `documented`)
    paths: Paths,
    *,
    episode: str,
    state: str | Sequence[str],
    action: str | Sequence[str],
    reward: str | None = None,
    time: str | None = None,
    group: str | None = None,
    available: str | None = None,
    ended: str | None = None,
    propensity: str | None = None,
    missing: Missing = "error",
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    reward_range: tuple[float, float] | None = None,
    events: Sequence[str] | None = None,
    follow_up: Any = None,
    categorical: Sequence[str] | None = None,
    action_bins: Any = None,
    also: str | Sequence[str] | None = None,
    partitions: bool = False,
    decimal: str = ".",
    encoding: str = "utf-8",
    dates: str = "iso",
    labels: str = "",
    outcome: str = "",
    unit: str = "",
    better: str = "",
    called: Any = None,
    design: str = "",
    versus: str = "",
    chances: Any = None,
    strata: str = "",
    survival: Any = None,
    horizon: float | None = None,
    target: str = "",
    guard: Sequence[str] | None = None,
    costs: Any = None,
    progress: Progress | None = None,
) -> Log:
    r"""Read logged decisions from CSV or Parquet files.

    Args:
        paths: A file, a pattern such as ``'logs/*.parquet'``, or several of either. A path that
            exists is taken as that file, even if its name contains stars or brackets.
        progress: Called with the name of a stage and the share of it that is done, 0 to 1. Default
            None.

    Returns:
        The log.

    Raises:
        LogError: If the data cannot be used: three lines say what is wrong, where it was seen
            first, and what to do.

    Example:
        >>> from pathlib import Path
        >>> import dprl
        >>> text = "patient,day,stage,drug,score\n1,1,ill,a,0\n1,2,well,b,1\n2,1,ill,b,0\n"
        >>> _ = Path("visits.csv").write_text(text)
        >>> dprl.read("visits.csv", episode="patient", time="day", state="stage", action="drug",
        ...           reward="score")
        Log: 2 episodes · 3 steps · 2 states · 2 actions
    """
    reading = Reading.of(locals())
    columns = read_columns(paths, reading, progress)
    with said_if_short("the log's rows"):
        return build(columns, reading)


@documented
def from_frame(  # noqa: D417  (see `documented`)
    frame: Any,
    *,
    episode: str,
    state: str | Sequence[str],
    action: str | Sequence[str],
    reward: str | None = None,
    time: str | None = None,
    group: str | None = None,
    available: str | None = None,
    ended: str | None = None,
    propensity: str | None = None,
    missing: Missing = "error",
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    reward_range: tuple[float, float] | None = None,
    events: Sequence[str] | None = None,
    follow_up: Any = None,
    categorical: Sequence[str] | None = None,
    action_bins: Any = None,
    also: str | Sequence[str] | None = None,
    dates: str = "iso",
    labels: str = "",
    outcome: str = "",
    unit: str = "",
    better: str = "",
    called: Any = None,
    design: str = "",
    versus: str = "",
    chances: Any = None,
    strata: str = "",
    survival: Any = None,
    horizon: float | None = None,
    target: str = "",
    guard: Sequence[str] | None = None,
    costs: Any = None,
) -> Log:
    """A log from a pandas, polars, Arrow or DuckDB table.

    Args:
        frame: The table.

    Returns:
        The log.

    Raises:
        LogError: If the data cannot be used: three lines say what is wrong, where it was seen
            first, and what to do.

    Example:
        >>> import duckdb
        >>> import dprl
        >>> table = duckdb.sql("SELECT 1 AS id, 'ill' AS stage, 'a' AS drug, 0.5 AS score")
        >>> dprl.from_frame(table, episode="id", state="stage", action="drug", reward="score")
        Log: 1 episode · 1 step · 1 state · 1 action
    """
    reading = Reading.of(locals())
    return build(frame_columns(frame, reading), reading)


@documented_arrays
def from_arrays(  # noqa: D417  (see `documented`)
    *,
    episode: Any,
    state: Any,
    action: Any,
    reward: Any,
    time: Any = None,
    group: Any = None,
    available: Any = None,
    ended: Any = None,
    propensity: Any = None,
    feature_names: Sequence[str] | None = None,
    missing: Missing = "error",
    states: Sequence[Label] | None = None,
    actions: Sequence[Label] | None = None,
    reward_range: tuple[float, float] | None = None,
    events: Sequence[str] | None = None,
    follow_up: Any = None,
    categorical: Sequence[str] | None = None,
    action_bins: Any = None,
    also: Mapping[str, Any] | None = None,
    dates: str = "iso",
    labels: str = "",
    outcome: str = "",
    unit: str = "",
    better: str = "",
    called: Any = None,
    design: str = "",
    versus: str = "",
    chances: Any = None,
    strata: str = "",
) -> Log:
    """A log from arrays or lists of equal length N, one entry per row.

    Args:
        state: (N,) state labels; or features (N, d), one column each: numbers, or labels of a
            category. NaN or None where a feature is missing.
        action: (N,), action labels; or a mapping from names to such columns, which together are the
            action: each combination is one, called "bolus=yes · pressor=no".
        feature_names: The d names of the features. Default None: x0, x1, ….
        also: Name → (N,) values of further columns that are not in the state: numbers, labels or
            dates. They are compared between those who took a suggestion and others, and can be
            given to `evaluate(by=...)`; no learner sees them. Default None: none.

    Returns:
        The log.

    Raises:
        LogError: If the data cannot be used: three lines say what is wrong, where it was seen
            first, and what to do.

    Example:
        >>> import dprl
        >>> dprl.from_arrays(
        ...     episode=[1, 1, 2], state=[[7.4, 90], [7.3, 85], [7.4, 100]], action=["a", "b", "b"],
        ...     reward=[0, 1, 0], feature_names=["ph", "pressure"],
        ... )
        Log: 2 episodes · 3 steps · 2 features · 2 actions
    """
    reading = replace(Reading.of({**locals(), "also": None}), columns={})
    data = {part: values for part, values in by_role(locals()).items() if values is not None}
    names: dict[str, Any] = {part: part for part in data}
    if isinstance(action, Mapping):
        names["action"] = several_actions(data, action)
    if np.ndim(state) == 2:
        table = _table(state)
        named = list(feature_names or [f"x{j}" for j in range(table.shape[1])])
        if len(named) != table.shape[1]:
            raise LogError(f"{len(named)} feature names for {table.shape[1]} features.")
        for name in named:
            if named.count(name) > 1 or (name in data and name != "state"):
                raise LogError(
                    f"the feature {name!r} is not the only column of that name.",
                    do="Give every feature a name of its own, and none of episode, action, …",
                )
        names["state"] = named
        data.update({name: table[:, j] for j, name in enumerate(named)})

    further = AlsoNames(tuple(map(str, also or ())), asked=True) if also is not None else None
    for name, values in (also or {}).items():
        if str(name) in data:
            raise LogError(
                f"{name!r} is in also and a column of the log already.",
                do="Give the columns in also names of their own.",
            )
        data[str(name)] = values

    def get(name: str) -> Any:
        values = data[name]
        if isinstance(values, np.ma.MaskedArray):
            return values.data, np.ma.getmaskarray(values)
        if name == "available" or isinstance(values, np.ndarray):
            return values, None
        values = list(values)
        array = np.empty(len(values), object)
        array[:] = values
        return array, None

    return build(columns_of(names, get, reading, further), reading)


def _table(state: Any) -> Any:
    """Features as a table (N, d): numbers stay numbers beside text, and masks are kept."""
    if isinstance(state, np.ndarray):  # masked arrays too
        return state
    table = np.asarray(state)
    if table.dtype.kind not in "USO":
        return table
    return np.array([[*row] for row in state], object)


def check(source: Any, **options: Any) -> CheckResult:
    """Everything worth knowing about a log before it is used; changes nothing.

    Args:
        source: Files as for `read`, a dataframe as for `from_frame`, a Log, or a log in parts.
        **options: Column names and options as for `read`; `partitions` for files only. With
            `memory`, `rows` or `folder`, as for `scan`, Parquet files are checked in parts: all
            rules about rows and labels are asked, and those about the whole log that need no more
            than sums over its parts.

    Returns:
        A `CheckResult`: its `findings` (errors first), `ok`, and the `log` where one could be made.

    Raises:
        LogError: Only where there is nothing to check: no such file, no such column, or a column
            that cannot be read as labels or numbers.
        ParameterError: If an option is none of these, or `partitions` is asked for a dataframe.

    Example:
        >>> import dprl
        >>> from dprl.envs import risky_arms
        >>> report = dprl.check(risky_arms().sample(50, seed=0))
        >>> report.ok
        True
        >>> print(report.findings[-1])
        note: rewards run from 0 to 0.769919.
    """
    if isinstance(source, Log | LogInParts):
        return CheckResult(sorted_findings(log_findings(source)), source)
    own = {name: options.pop(name) for name in SCANNING if name in options}
    progress = options.pop("progress", None)
    other = [name for name in options if name not in (*NAMES, *OPTIONS)]
    if other:
        near = difflib.get_close_matches(other[0], (*NAMES, *OPTIONS, *SCANNING), n=1)
        raise ParameterError(
            f"check takes no argument {other[0]!r}.",
            do=f"Did you mean {near[0]!r}?" if near else "Options are those of dprl.read.",
        )
    reading = Reading.of(options)
    if own:
        from dprl.logs.reading.scan import scanned

        return scanned(source, reading, progress=progress, **own)
    if isinstance(source, str | os.PathLike | list | tuple):
        return examine(read_columns(source, reading, progress), reading)
    if reading.partitions:
        raise ParameterError(
            "partitions exist only for files, not for a dataframe.", do="Leave it out."
        )
    return examine(frame_columns(source, reading), reading)


# -- out ------------------------------------------------------------------------------------------


def write(log: Log, path: str | os.PathLike[str]) -> None:
    """Write a log as Parquet or CSV, in the columns it was read from.

    Times with a zone are written as text, with the zone they were recorded in. Categories are
    written as their labels: where these look like numbers, name the column in `categorical` when
    reading. Competing events are written by name: name them in `events` when reading. Of a log that
    is followed for a fixed time the rows within it are written, and the file does not say so.

    Args:
        log: The log.
        path: The file to write; its ending, .parquet or .csv, says which kind.

    Raises:
        LogError: If the path has another ending, or a CSV file would change a label (the text '1'
            would come back as the number 1).

    Example:
        >>> import dprl
        >>> from dprl.envs import risky_arms
        >>> log = risky_arms().sample(5, seed=0)
        >>> dprl.write(log, "arms.parquet")
        >>> dprl.read("arms.parquet", episode="episode", time="time", state="state",
        ...           action="action", reward="reward", ended="ended")
        Log: 5 episodes · 10 steps · ...
    """
    kind = Path(path).suffix.lower()
    if kind not in (".parquet", ".csv"):
        raise LogError(f"{os.fspath(path)!r} must end in .parquet or .csv.")
    if kind == ".csv":
        for labels in (log.states, log.actions, log.episodes, log.groups):
            survives_csv(labels)
        for labels in log.categories.values():
            refuse_missing_words(labels)
    data = written_columns(log, kind)
    style = "FORMAT parquet, COMPRESSION zstd" if kind == ".parquet" else "FORMAT csv, HEADER"
    with replacing(path) as part, connect(folders=[part.parent]) as con:
        con.register("rows", data)
        con.execute(f"COPY (SELECT * FROM rows) TO {quoted(str(part), chr(39))} ({style})")


def written_columns(log: Log, kind: str = ".parquet") -> dict[str, Any]:
    """A log as the columns it was read from, for a file of a kind."""

    def words(labels: Sequence[Any], codes: Any) -> Any:
        text = bool(labels) and isinstance(labels[0], str)
        return np.array(labels, dtype=object if text else None)[codes]

    which = np.repeat(np.arange(log.n_episodes), log.lengths)
    data: dict[str, Any] = {column_of(log, "episode"): words(log.episodes, which)}
    if log.groups != log.episodes:
        data[column_of(log, "group")] = words(log.groups, log.group[which])
    step = np.arange(log.n_steps) - log.starts[which]
    data[column_of(log, "time")] = step if log.time is None else log.time
    if log.time is not None and log.offset is not None:  # no type of either file keeps a zone
        data[column_of(log, "time")] = written(log.time, log.offset)
    if log.features is not None:
        own, days = log.categories, log.columns.get("days", {})
        data |= {
            name: row_labels(own[name], column)
            if name in own
            else times_on(column)
            if name in days
            else column
            for name, column in zip(log.feature_names, log.features.T, strict=True)
        }
    else:
        data[column_of(log, "state")] = words(log.states, log.codes())
    data[column_of(log, "action")] = words(log.actions, log.action)
    timed = "duration" in log.more
    further_numbers = {"propensity": log.propensity, **({} if timed else log.more)}
    data[column_of(log, "reward")] = log.outcome.shown(log.reward)
    if timed:  # as they were read, not the outcome that was made of them
        data[column_of(log, "reward")] = log.more["duration"]
        how = ["cut", "terminal", *log.events]
        data[column_of(log, "ended")] = words(how, log.more["status"].astype(int))
    if SEEN in further_numbers:
        data[column_of(log, "reward")] = further_numbers.pop(SEEN)
    if any(name.startswith(OF) for name in further_numbers):
        _write_parts(log, data, further_numbers)
    if log.available is not None and log.menus is not None:
        offers = ["|".join(str(log.actions[a]) for a in np.flatnonzero(m)) for m in log.menus]
        data[column_of(log, "available")] = words(offers, log.available)
    if log.ended.any() and not timed:
        how = ["", "terminal", "cut", *log.events]
        data[column_of(log, "ended")] = words(how, log.ended[which])
    data |= {column_of(log, k): v for k, v in further_numbers.items() if v is not None}
    if log.also is not None:
        data |= further(log, kind)
    return data


def _write_parts(log: Log, data: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Write what a reward was made of in place of it, under its own names."""
    costs, reward = log.columns.get("costs"), data.pop(column_of(log, "reward"))
    for name in [name for name in numbers if name.startswith(OF)]:
        own = numbers.pop(name)
        if name != OF + COST:
            data[name.removeprefix(OF)] = own
        elif isinstance(costs, str):
            data[costs] = own
    if "parts" not in log.columns and not costs:  # guards alone
        data[column_of(log, "reward")] = reward


def column_of(log: Log, part: str) -> str:
    """The name of the source column that played a part; the name of the part without one."""
    name = log.columns.get(part, part)
    return name if isinstance(name, str) else part
