"""Files, dataframes, arrays and episodes of other libraries come in; a Log goes out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dprl._core.database import connect
from dprl._core.disk import replacing
from dprl._core.limits import said_if_short
from dprl._core.zones import written
from dprl.errors import LogError, ParameterError
from dprl.logs._also import AlsoNames
from dprl.logs._assemble import build, examine
from dprl.logs._categories import row_labels
from dprl.logs._csv_labels import further, refuse_missing_words, survives_csv
from dprl.logs._dates import times_on
from dprl.logs._doses import checked_bins, several_actions
from dprl.logs._files import Progress, read_columns
from dprl.logs._findings import CheckResult
from dprl.logs._gaps import Missing
from dprl.logs._sources import columns_of, frame_columns, quoted
from dprl.logs._text import Text
from dprl.logs.columns import by_role
from dprl.logs.log import Label, Log

__all__ = ["check", "from_arrays", "from_frame", "read", "write"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def read(
    paths: Paths,
    *,
    episode: str,
    state: str | Sequence[str],
    action: str | Sequence[str],
    reward: str,
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
    progress: Progress | None = None,
) -> Log:
    r"""Read logged decisions from CSV or Parquet files.

    Args:
        paths: A file, a pattern such as ``'logs/*.parquet'``, or several of either. A path that
            exists is taken as that file, even if its name contains stars or brackets.
        episode: Column that holds the trajectory each row belongs to.
        state: Column of state labels; or a list of columns, or a pattern such as ``'x_*'``, whose
            columns together are the state: features. Columns of text or truth values are
            categories there.
        action: Column that holds action labels; or a list of columns that together are the action:
            each combination is one, called "bolus=yes · pressor=no".
        reward: Column that holds the reward of the row's state and action, in any unit.
        time: Column that holds what orders the rows of an episode: numbers or dates. Default None:
            the rows are in order already.
        group: Column that holds what must stay together in splits and counts as one trajectory,
            such as the patient of several stays. Default None: every episode is its own group.
        available: Column that holds the actions that were available: lists, or text such as
            'a|b|c'. Default None: not recorded.
        ended: Column that holds how the episode ended, read from its last row: terminal (true),
            cut or censored (false), or one of `events`. Default None: not recorded, treated as
            terminal.
        propensity: Column that holds the chance with which the action taken was taken, above 0 and
            at most 1, empty where it is unknown: a trial, or a rule with a lottery. `dprl.Rules`
            uses it. Default None: not recorded.
        missing: What to do about missing values: "error" refuses them, except in features, which
            stay NaN; "drop-episodes" leaves out the episodes that have one, features included;
            "median" fills numbers of the state by the median of the training log; "flag" does so
            too and adds a feature that is 1 there ("lactate missing"), and gives labels one more,
            "missing"; "zero" makes a missing reward 0, where outcomes are recorded at the end
            alone. Or a mapping from columns or patterns to these words, as in
            {"*": "median", "ward": "flag", "score": "zero"}. Gaps are filled when a learner takes
            the log, and its policy fills all later rows by the same numbers; `dprl.Rules` gives
            what is flagged a side of its own. Default "error".
        states: The state labels that may occur; any other is an error. Default None: all that
            occur.
        actions: The action labels that may occur; any other is an error. Default None: all that
            occur.
        reward_range: Smallest and largest possible reward; a reward outside is an error. Default
            None: any finite reward.
        events: Words in the column of endings that name a competing event (death in another arm of
            the pathway, say). Such an episode ended, with what its rewards say; it was not cut.
            Default None: there are none.
        follow_up: For how long every episode is followed from its first row on: a number of steps,
            or text such as "10 steps", "72 units" (of a time column of numbers) or "30 days" (of
            dates). Later rows are left out, returns are of what remains, and an episode that was
            cut later is not cut any more. Default None: to its end.
        categorical: Features whose values are labels though they look like numbers (codes of wards,
            say). Default None: features of text or truth values are categories, others numbers.
        action_bins: Cuts doses into ranges: a number of ranges with about as many rows each, or the
            edges between them (a dose on an edge is in the lower range); a mapping from action
            columns to either, where there are several. The edges are in
            `log.columns["action_bins"]`, which later logs can be given, and a policy keeps them.
            Default None: every value is an action of its own.
        also: Further columns that are not in the state, by name or pattern. They are compared
            between those who took a suggestion and others, and can be given to
            `evaluate(by=...)`; no learner sees them. Default None: all columns without a role if
            there are at most 30, without identifiers and free text (`log.also.words` says which).
            (): none.
        partitions: Whether folders named NAME=VALUE in the paths become columns, as text like that
            of a CSV file. Default False: folder names mean nothing.
        decimal: The mark before the fraction of a number in CSV files, "." or ",". Default ".".
        encoding: How the letters of CSV files are written: "utf-8", "latin-1", "utf-16", "cp1252"
            (Windows), or another encoding of text that Python has. Default "utf-8".
        dates: How dates are written as text: "iso" (2024-02-01), "day-first" (1.2.2024),
            "month-first" (2/1/2024), or a format of strptime ("%d %b %Y"). ISO dates are always
            understood. Dates in the state become days since 1970-01-01. Default "iso".
        labels: What is done to the labels of states, actions and categories: "trim" (no spaces
            around them), "casefold" (small letters) or "trim,casefold"; a policy does the same.
            Default "": nothing.
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
    parts = by_role(locals())
    columns = read_columns(
        paths, parts, progress, partitions, categorical or (), also, action_bins,
        Text(decimal, encoding, dates, labels),
    )  # fmt: skip
    with said_if_short("the log's rows"):
        return build(
            columns,
            missing=missing,
            states=states,
            actions=actions,
            reward_range=reward_range,
            events=events,
            follow_up=follow_up,
        )


def from_frame(
    frame: Any,
    *,
    episode: str,
    state: str | Sequence[str],
    action: str | Sequence[str],
    reward: str,
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
) -> Log:
    """A log from a pandas, polars, Arrow or DuckDB table.

    Args:
        frame: The table.
        episode: Column that holds the trajectory each row belongs to.
        state: Column of state labels; or a list of columns, or a pattern such as ``'x_*'``, whose
            columns together are the state: features. Columns of text or truth values are
            categories there.
        action: Column that holds action labels; or a list of columns that together are the action:
            each combination is one, called "bolus=yes · pressor=no".
        reward: Column that holds the reward of the row's state and action, in any unit.
        time: Column that holds what orders the rows of an episode: numbers or dates. Default None:
            the rows are in order already.
        group: Column that holds what must stay together in splits and counts as one trajectory,
            such as the patient of several stays. Default None: every episode is its own group.
        available: Column that holds the actions that were available: lists, or text such as
            'a|b|c'. Default None: not recorded.
        ended: Column that holds how the episode ended, read from its last row: terminal (true),
            cut or censored (false), or one of `events`. Default None: not recorded, treated as
            terminal.
        propensity: Column that holds the chance with which the action taken was taken, above 0 and
            at most 1, empty where it is unknown: a trial, or a rule with a lottery. `dprl.Rules`
            uses it. Default None: not recorded.
        missing: What to do about missing values: "error" refuses them, except in features, which
            stay NaN; "drop-episodes" leaves out the episodes that have one, features included;
            "median" fills numbers of the state by the median of the training log; "flag" does so
            too and adds a feature that is 1 there ("lactate missing"), and gives labels one more,
            "missing"; "zero" makes a missing reward 0, where outcomes are recorded at the end
            alone. Or a mapping from columns or patterns to these words, as in
            {"*": "median", "ward": "flag", "score": "zero"}. Gaps are filled when a learner takes
            the log, and its policy fills all later rows by the same numbers; `dprl.Rules` gives
            what is flagged a side of its own. Default "error".
        states: The state labels that may occur; any other is an error. Default None: all that
            occur.
        actions: The action labels that may occur; any other is an error. Default None: all that
            occur.
        reward_range: Smallest and largest possible reward; a reward outside is an error. Default
            None: any finite reward.
        events: Words in the column of endings that name a competing event (death in another arm of
            the pathway, say). Such an episode ended, with what its rewards say; it was not cut.
            Default None: there are none.
        follow_up: For how long every episode is followed from its first row on: a number of steps,
            or text such as "10 steps", "72 units" (of a time column of numbers) or "30 days" (of
            dates). Later rows are left out, returns are of what remains, and an episode that was
            cut later is not cut any more. Default None: to its end.
        categorical: Features whose values are labels though they look like numbers (codes of wards,
            say). Default None: features of text or truth values are categories, others numbers.
        action_bins: Cuts doses into ranges: a number of ranges with about as many rows each, or the
            edges between them (a dose on an edge is in the lower range); a mapping from action
            columns to either, where there are several. The edges are in
            `log.columns["action_bins"]`, which later logs can be given, and a policy keeps them.
            Default None: every value is an action of its own.
        also: Further columns that are not in the state, by name or pattern. They are compared
            between those who took a suggestion and others, and can be given to
            `evaluate(by=...)`; no learner sees them. Default None: all columns without a role if
            there are at most 30, without identifiers and free text (`log.also.words` says which).
            (): none.
        dates: How dates are written as text: "iso" (2024-02-01), "day-first" (1.2.2024),
            "month-first" (2/1/2024), or a format of strptime ("%d %b %Y"). ISO dates are always
            understood. Dates in the state become days since 1970-01-01. Default "iso".
        labels: What is done to the labels of states, actions and categories: "trim" (no spaces
            around them), "casefold" (small letters) or "trim,casefold"; a policy does the same.
            Default "": nothing.

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
    parts = by_role(locals())
    return build(
        frame_columns(
            frame, parts, categorical or (), also, action_bins, Text(dates=dates, labels=labels)
        ),
        missing=missing,
        states=states,
        actions=actions,
        reward_range=reward_range,
        events=events,
        follow_up=follow_up,
    )


def from_arrays(
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
) -> Log:
    """A log from arrays or lists of equal length N, one entry per row.

    Args:
        episode: (N,), the trajectory each row belongs to.
        state: (N,) state labels; or features (N, d), one column each: numbers, or labels of a
            category. NaN or None where a feature is missing.
        action: (N,), action labels; or a mapping from names to such columns, which together are the
            action: each combination is one, called "bolus=yes · pressor=no".
        reward: (N,), the reward of the row's state and action, in any unit.
        time: (N,), what orders the rows of an episode: numbers or dates. Default None: the rows are
            in order already.
        group: (N,), what must stay together in splits and counts as one trajectory, such as the
            patient of several stays. Default None: every episode is its own group.
        available: (N,), the actions that were available: lists, or text such as 'a|b|c'. Default
            None: not recorded.
        ended: (N,), how the episode ended, read from its last row: terminal (true), cut or censored
            (false), or one of `events`. Default None: not recorded, treated as terminal.
        propensity: (N,), the chance with which the action taken was taken, above 0 and at most 1,
            NaN or None where it is unknown: a trial, or a rule with a lottery. `dprl.Rules`,
            `dprl.evaluate` and `dprl.gate` use it. Default None: not recorded.
        feature_names: The d names of the features. Default None: x0, x1, ….
        missing: What to do about missing values: "error" refuses them, except in features, which
            stay NaN; "drop-episodes" leaves out the episodes that have one, features included;
            "median" fills numbers of the state by the median of the training log; "flag" does so
            too and adds a feature that is 1 there ("lactate missing"), and gives labels one more,
            "missing"; "zero" makes a missing reward 0, where outcomes are recorded at the end
            alone. Or a mapping from columns or patterns to these words, as in
            {"*": "median", "ward": "flag", "score": "zero"}. Gaps are filled when a learner takes
            the log, and its policy fills all later rows by the same numbers; `dprl.Rules` gives
            what is flagged a side of its own. Default "error".
        states: The state labels that may occur; any other is an error. Default None: all that
            occur.
        actions: The action labels that may occur; any other is an error. Default None: all that
            occur.
        reward_range: Smallest and largest possible reward; a reward outside is an error. Default
            None: any finite reward.
        events: Words in the column of endings that name a competing event (death in another arm of
            the pathway, say). Such an episode ended, with what its rewards say; it was not cut.
            Default None: there are none.
        follow_up: For how long every episode is followed from its first row on: a number of steps,
            or text such as "10 steps", "72 units" (of a time column of numbers) or "30 days" (of
            dates). Later rows are left out, returns are of what remains, and an episode that was
            cut later is not cut any more. Default None: to its end.
        categorical: Features whose values are labels though they look like numbers (codes of wards,
            say). Default None: features of text or truth values are categories, others numbers.
        action_bins: Cuts doses into ranges: a number of ranges with about as many rows each, or the
            edges between them (a dose on an edge is in the lower range); a mapping from action
            columns to either, where there are several. The edges are in
            `log.columns["action_bins"]`, which later logs can be given, and a policy keeps them.
            Default None: every value is an action of its own.
        also: Name → (N,) values of further columns that are not in the state: numbers, labels or
            dates. They are compared between those who took a suggestion and others, and can be
            given to `evaluate(by=...)`; no learner sees them. Default None: none.
        dates: How dates are written as text: "iso" (2024-02-01), "day-first" (1.2.2024),
            "month-first" (2/1/2024), or a format of strptime ("%d %b %Y"). ISO dates are always
            understood. Dates in the state become days since 1970-01-01. Default "iso".
        labels: What is done to the labels of states, actions and categories: "trim" (no spaces
            around them), "casefold" (small letters) or "trim,casefold"; a policy does the same.
            Default "": nothing.

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
    given = by_role(locals())
    data = {part: values for part, values in given.items() if values is not None}
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

    cuts = checked_bins(action_bins, names["action"])

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

    return build(
        columns_of(
            names, get, categorical or (), further, cuts=cuts, text=Text(dates=dates, labels=labels)
        ),
        missing=missing,
        states=states,
        actions=actions,
        reward_range=reward_range,
        events=events,
        follow_up=follow_up,
    )


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
        source: Files as for `read`, a dataframe as for `from_frame`, or a Log.
        **options: Column names and options as for `read`; `partitions` for files only.

    Returns:
        A `CheckResult`: its `findings` (errors first), `ok`, and the `log` where one could be made.

    Raises:
        LogError: Only where there is nothing to check: no such file, no such column, or a column
            that cannot be read as labels or numbers.
        ParameterError: If `partitions` is asked for a dataframe.

    Example:
        >>> import dprl
        >>> from dprl.envs import risky_arms
        >>> report = dprl.check(risky_arms().sample(50, seed=0))
        >>> report.ok
        True
        >>> print(report.findings[-1])
        note: rewards run from 0 to 0.769919.
    """
    from dprl.logs._log_rules import LOG_RULES

    if isinstance(source, Log):
        findings = [f for rule in LOG_RULES if (f := rule(source)) is not None]
        return CheckResult(tuple(sorted(findings, key=lambda f: f.level != "warning")), source)
    rules = ("missing", "states", "actions", "reward_range", "events", "follow_up")
    rules_given = {k: options.pop(k) for k in rules if k in options}
    progress = options.pop("progress", None)
    partitions = options.pop("partitions", False)
    labelled = options.pop("categorical", None) or ()
    also = options.pop("also", None)
    bins = options.pop("action_bins", None)
    usual = {"decimal": ".", "encoding": "utf-8", "dates": "iso", "labels": ""}
    text = Text(**{name: options.pop(name, value) for name, value in usual.items()})
    if isinstance(source, str | os.PathLike | list | tuple):
        columns = read_columns(source, options, progress, partitions, labelled, also, bins, text)
        return examine(columns, **rules_given)
    if partitions:
        raise ParameterError(
            "partitions exist only for files, not for a dataframe.", do="Leave it out."
        )
    return examine(frame_columns(source, options, labelled, also, bins, text), **rules_given)


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

    def words(labels: Sequence[Any], codes: Any) -> Any:
        text = bool(labels) and isinstance(labels[0], str)
        return np.array(labels, dtype=object if text else None)[codes]

    which = np.repeat(np.arange(log.n_episodes), log.lengths)
    data: dict[str, Any] = {_called(log, "episode"): words(log.episodes, which)}
    if log.groups != log.episodes:
        data[_called(log, "group")] = words(log.groups, log.group[which])
    step = np.arange(log.n_steps) - log.starts[which]
    data[_called(log, "time")] = step if log.time is None else log.time
    if log.time is not None and log.offset is not None:  # no type of either file keeps a zone
        data[_called(log, "time")] = written(log.time, log.offset)
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
        data[_called(log, "state")] = words(log.states, log.codes())
    data[_called(log, "action")] = words(log.actions, log.action)
    data[_called(log, "reward")] = log.reward
    if log.available is not None and log.menus is not None:
        offers = ["|".join(str(log.actions[a]) for a in np.flatnonzero(m)) for m in log.menus]
        data[_called(log, "available")] = words(offers, log.available)
    if log.ended.any():
        how = ["", "terminal", "cut", *log.events]
        data[_called(log, "ended")] = words(how, log.ended[which])
    if log.propensity is not None:
        data[_called(log, "propensity")] = log.propensity
    if log.also is not None:
        data |= further(log, kind)
    style = "FORMAT parquet, COMPRESSION zstd" if kind == ".parquet" else "FORMAT csv, HEADER"
    with replacing(path) as part, connect(folders=[part.parent]) as con:
        con.register("rows", data)
        con.execute(f"COPY (SELECT * FROM rows) TO {quoted(str(part), chr(39))} ({style})")


def _called(log: Log, part: str) -> str:
    """The name of the source column that played a part; the name of the part without one."""
    name = log.columns.get(part, part)
    return name if isinstance(name, str) else part
