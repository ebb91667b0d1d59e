"""`explain`: which rows of the data made the state, the action and the reward of one decision."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

from dprl._core.table import Table
from dprl.errors import LogError
from dprl.logs.events._build import MEMORY, Files, event_files, read_by
from dprl.logs.events.moments import database, moment, written_of
from dprl.logs.events.running import begin, make_part, row_columns, speaking, time_of
from dprl.logs.events.spec import Spec, read_spec

if TYPE_CHECKING:
    from dprl.logs.reading.files import Progress


def explain(
    files: Files,
    spec: Spec | str | os.PathLike[str],
    subject: str,
    time: str,
    *,
    memory: str = MEMORY,
    progress: Progress | None = None,
) -> Table:
    """The rows of the data that made the state, the action and the reward of one decision.

    Args:
        files: Files or patterns of events; None: those that the spec names.
        spec: The spec, or its TOML file.
        subject: The subject, as text.
        time: A moment, as text; the last decision of the subject up to it is explained.
        memory: Memory limit of DuckDB. Default "3GB".
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        One line per row of the data and per use of it: the use ("state", "action", "reward"), the
        column or part, its result at this decision, and the row's time, end, code and value. A
        feature without a row has one line without a code.

    Raises:
        LogError: The subject has no decision up to that time, or the events cannot be used.
        SpecError: The spec cannot be used; the line is named.

    Example:
        >>> from pathlib import Path
        >>> from dprl.logs.events import explain
        >>> _ = Path("events.csv").write_text('''subject_id,time,code,numeric_value
        ... 1,2024-03-01 08:00,ADMISSION,
        ... 1,2024-03-01 09:00,MAP,58
        ... 1,2024-03-01 13:00,DRUG,1
        ... 1,2024-03-01 17:00,DISCHARGE,
        ... ''')
        >>> _ = Path("spec.toml").write_text('''
        ... source = {files = "events.csv"}
        ... episodes = {by = "code", start = "ADMISSION"}
        ... end = [{codes = "DISCHARGE"}]
        ... clock = {every = "4 h"}
        ... feature = [{name = "map", take = "last", codes = "MAP", within = "24 h"}]
        ... action = {part = [{name = "drug", codes = "DRUG"}]}
        ... reward = [{at = "end", codes = "DISCHARGE"}]
        ... ''')
        >>> rows = explain(None, "spec.toml", "1", "2024-03-01 12:30")
        >>> list(zip(rows["use"], rows["of"], rows["code"]))
        [('state', 'map', 'MAP'), ('action', 'drug', 'DRUG'), ('reward', 'term 1', None)]
    """
    rules = spec if isinstance(spec, Spec) else read_spec(spec)
    names = event_files(files, rules)
    report = progress or (lambda stage, share: None)
    with (
        speaking("explaining the decision", tempfile.gettempdir()),
        database(memory, None, None, "explain", read_by(rules, names)) as con,
    ):
        report("reading events", 0.0)
        loaded = begin(con, rules, names, only=subject)
        make_part(con, rules, loaded, 0)
        if rules.episodes.by == "table":
            _keep_subject(con, subject)
        row = _decision(con, rules, subject, time)
        return _table(con, rules, row)


def _keep_subject(con: Any, subject: str) -> None:
    """Leave only the decisions of one subject: a table of episodes has those of all."""
    con.execute("DELETE FROM episodes WHERE CAST(subject AS VARCHAR) <> ?", [subject])
    con.execute("DELETE FROM decisions WHERE episode NOT IN (SELECT episode FROM episodes)")


def _decision(con: Any, spec: Spec, subject: str, time: str) -> dict[str, Any]:
    """The row of the log of the last decision up to a moment."""
    unit = spec.source.time_unit
    asked = moment("$1", "VARCHAR", unit, "", written_of(spec.source)).micros
    micros = con.execute(f"SELECT {asked}", [time]).fetchone()[0]
    if micros is None:
        do = f"Write a number ({unit})." if unit else "Write it like 2024-03-01 07:30:00."
        raise LogError(f"{time!r} is no time.", do=do)
    if not con.execute(
        "SELECT count(*) FROM subjects WHERE CAST(subject AS VARCHAR) = ?", [subject]
    ).fetchone()[0]:
        raise LogError(f"there is no subject {subject!r}.", do="Write it as the events do.")
    result = con.execute(
        f"SELECT *, {micros} - t AS since FROM (SELECT x.*, d.t FROM ({row_columns(spec)}) AS x "
        "JOIN decisions AS d ON x.episode = d.episode AND x.step = d.k) "
        f"WHERE t <= {micros} ORDER BY t DESC, episode LIMIT 1"
    )
    columns = [column[0] for column in result.description]
    row = result.fetchone()
    if row is None:
        first = con.execute(
            f"SELECT CAST(min({time_of('t', spec)}) AS VARCHAR), count(*) FROM decisions"
        ).fetchone()
        raise LogError(
            f"subject {subject!r} has no decision up to {time}.",
            f"{first[1]:,} decisions, the first at {first[0]}"
            if first[1]
            else "no decision at all",
            "Name a time at or after a decision.",
        )
    return dict(zip(columns, row, strict=True))


def _table(con: Any, spec: Spec, row: dict[str, Any]) -> Table:
    """The rows of the data behind one decision."""
    here = [row["episode"], row["step"]]
    lines: list[tuple[Any, ...]] = []
    when = f"CAST({time_of('t', spec)} AS VARCHAR), CAST({time_of('u', spec)} AS VARCHAR)"

    def add(use: str, name: str, result: Any, sql: str, values: list[Any]) -> None:
        rows = con.execute(
            f"SELECT {when}, code, v FROM ({sql}) JOIN codes USING (id) ORDER BY t, code, v", values
        ).fetchall()
        lines.extend((use, name, result, *each) for each in rows or [(None, None, None, None)])

    for i, feature in enumerate(spec.features):
        result = row[feature.name]
        role = f"f{i}"
        sql = "SELECT * FROM state_rows WHERE episode = ? AND ? BETWEEN k1 AND k2 AND role = ?"
        values = [*here, role]
        if feature.static:
            sql, values = (
                "SELECT * FROM ev JOIN roles USING (id) WHERE t IS NULL AND role = ?",
                [role],
            )
        elif feature.take in ("last", "age", "ever"):
            sql = f"{sql} AND {_fresh(con, feature, here)} QUALIFY t = max(t) OVER ()"
            if feature.take == "last":
                sql += " AND row_number() OVER (ORDER BY t DESC, known DESC, rank, v) = 1"
        add("state", feature.name, result, sql, values)
    for i, part in enumerate(spec.action.parts):
        sql = "SELECT * FROM action_rows WHERE episode = ? AND k = ? AND (role = ? OR role LIKE ?)"
        add("action", part.name, row["action"], sql, [*here, f"a{i}", f"a{i}c%"])
    for i in range(len(spec.rewards)):
        sql = "SELECT * FROM reward_rows WHERE episode = ? AND k = ? AND role = ?"
        add("reward", f"term {i + 1}", row[f"r{i}"], sql, [*here, f"r{i}"])
    names = ("use", "of", "result", "time", "end", "code", "value")
    columns = dict(zip(names, (list(column) for column in zip(*lines, strict=True)), strict=True))
    time = row["time"] if not spec.source.time_unit else f"{row['time']:g} {spec.source.time_unit}"
    return Table(
        columns,
        f"Subject {row['subject']}, episode {row['episode']}, decision {row['step'] + 1} at "
        f"{time}: "
        f"action {row['action']!r}, reward {row['reward']:g}, episode ended {row['ended']!r}",
        "Each line is a row of the data and what it was used for; a line without a code had none.",
    )


def _fresh(con: Any, feature: Any, here: list[Any]) -> str:
    """SQL of whether a row is young enough for a feature at this decision."""
    from dprl.logs.events.spec import microseconds

    if feature.within in ("episode", "history"):
        return "true"
    t = con.execute("SELECT t FROM decisions WHERE episode = ? AND k = ?", here).fetchone()[0]
    return f"{t} - t <= {microseconds(feature.within)}"
