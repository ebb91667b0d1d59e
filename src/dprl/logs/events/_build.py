"""`build` and `from_events`: from files of events and a spec to a log."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.disk import check_target, prefix_in, refuse_overwrite, replacing, together
from dprl._core.table import Table, first_few
from dprl.errors import CutWarning, LabelWarning, LogError, ParameterError
from dprl.logs.checking.findings import Finding
from dprl.logs.events.findings import open_findings, open_stays
from dprl.logs.events.moments import database, moment, text, written_of
from dprl.logs.events.running import (
    begin,
    finish_rewards,
    make_part,
    row_columns,
    speaking,
    time_of,
)
from dprl.logs.events.spec import Spec, read_spec
from dprl.logs.events.windows import labels
from dprl.logs.reading.frames import quoted

if TYPE_CHECKING:
    from dprl.logs.events.spec import Feature, Reward
    from dprl.logs.log import Log
    from dprl.logs.reading.files import Progress

# --- What a build says in words: the dictionary, the flow of counts, and what is missing


def _feature(feature: Feature) -> str:
    """What a feature is, in a sentence."""
    if feature.take == "elapsed":
        return "Hours since the episode began."
    if feature.take == "step":
        return "Number of decisions before this one."
    what = {
        "last": "Last value", "mean": "Mean", "min": "Lowest value", "max": "Highest value",
        "count": "Number of rows", "sum": "Sum", "slope": "Slope per hour",
        "age": "Hours since the last row", "ever": "Whether there was a row (1) or none (0)",
        "dose": "Value times hours",
    }[feature.take]  # fmt: skip
    codes = f"{what} of {first_few(feature.codes, 4)}"
    if feature.static:
        rows = "rows without a time"
    else:
        close = "]" if feature.until == "at" else ")"
        begin = {"episode": "[beginning of the episode", "history": "(all history"}.get(
            feature.within, f"[t − {feature.within}"
        )
        rows = f"{begin}, t{close}"
    extra = [f"known {feature.known_after} after its time"] if feature.known_after else []
    if feature.valid:
        extra.append(f"values from {feature.valid[0]:g} to {feature.valid[1]:g}")
    if feature.times != 1:
        extra.append(f"times {feature.times:g}")
    if feature.fill is not None:
        extra.append(f"{feature.fill:g} where there is none")
    elif feature.take in ("last", "mean", "min", "max", "slope", "age"):
        extra.append("missing where there is none")
    return "; ".join([f"{codes} in {rows}", *extra]) + "."


def _reward(reward: Reward) -> str:
    """What a term of the reward is, in words."""
    window = (
        "until the end"
        if reward.at == "end"
        else "before t'"
        if reward.side == "start"
        else "up to t'"
    )
    since = "after t" if reward.side == "finish" else "from t"
    of = f"{reward.take} of {first_few(reward.codes, 4)} {since} {window}" if reward.codes else "1"
    where = f", if it ended with {' or '.join(reward.ended)}" if reward.ended else ""
    last = "at the last decision: " if reward.at == "end" else ""
    plus = f" + {reward.plus:g}" if reward.plus else ""
    gone = f" ({reward.missing:g} where there is none)" if reward.missing is not None else ""
    return f"{last}{reward.times:g} × {of}{plus}{where}{gone}"


def dictionary(spec: Spec, findings: Sequence[Finding] = ()) -> Table:
    """The meaning of each column of the log, and what to know about its codes."""
    clock = f"every {spec.clock.every}" if spec.clock.every else f"on {first_few(spec.clock.on, 4)}"
    parts = "; ".join(
        f"{part.name}: {part.take} of "
        + first_few(part.codes or [code for choice in part.choices for code in choice.codes], 4)
        + (
            f", levels up to {', '.join(f'{x:g}' for x in part.edges)} {part.unit}".rstrip()
            if part.edges
            else ""
        )
        for part in spec.action.parts
    )
    how = "the first that applies" if spec.action.combine == "first" else "all together"
    time = "UTC where it had a time zone" if not spec.source.time_unit else spec.source.time_unit
    rows = [
        ("episode", "episode", "", f"The episode, by {spec.episodes.by}."),
        ("subject", "", "", "Who it is about."),
        ("group", "group", "", f"What stays together in splits: the {spec.episodes.group}."),
        ("step", "", "", "Number of the decision in its episode, from 0."),
        ("time", "time", "", f"The moment t of the decision ({clock}); {time}."),
        *((f.name, "feature", f.unit, _feature(f)) for f in spec.features),
        (
            "action",
            "action",
            "",
            f"What was done from t until before the next t' ({how}): {parts}.",
        ),
        ("reward", "reward", "", f"Sum of: {'; '.join(map(_reward, spec.rewards))}."),
        ("ended", "end", "", "How the episode ended."),
    ]
    names, roles, units, words = (list(column) for column in zip(*rows, strict=True))
    return Table(
        {"column": names, "part": roles, "unit": units, "meaning": words},
        "Columns of the log, one decision a row",
        " ".join(
            [
                "A feature holds only what was known before the decision (at the decision, where "
                "its bracket is closed).",
                *map(_sentence, findings),
            ]
        ),
    )


def flow(
    counts: Mapping[str, int],
    ended: Mapping[str, int],
    open_counts: Mapping[str, Mapping[str, Any]],
    findings: Sequence[Finding],
) -> Table:
    """The number of subjects, episodes, decisions and rows after each step, and what to look at."""
    open_words = {
        "next": "no end event, until the next begins",
        "last": "no end event, to the last row",
        "horizon": "no end event, to the horizon",
    }
    steps = [
        ("rows of events", None, None, None, counts["events"]),
        ("without a time (static)", None, None, None, counts["static"]),
        ("of codes that the spec names", None, None, None, counts["used"]),
        ("subjects with a row", counts["subjects"], None, None, None),
        ("with an episode", counts["with_episode"], counts["spans"], None, None),
        ("with a decision", counts["with_decision"], counts["episodes"], counts["decisions"], None),
        *((f"ended: {word}", None, n, None, None) for word, n in sorted(ended.items())),
        *(
            (words, sums["subjects"], sums["episodes"], sums["decisions"], None)
            for why, words in open_words.items()
            if (sums := open_counts.get(why))
        ),
    ]
    names = ("step", "subjects", "episodes", "decisions", "rows")
    columns: dict[str, list[Any]] = {
        name: list(column) for name, column in zip(names, zip(*steps, strict=True), strict=True)
    }
    return Table(
        columns,
        "From all subjects to decisions",
        " ".join(["An episode without a decision ended when it began.", *map(_sentence, findings)]),
    )


def _sentence(finding: Finding) -> str:
    """A finding on one line."""
    first = f" First: {finding.where}." if finding.where else ""
    return f"{finding.level.capitalize()}: {finding.what}{first} {finding.do}"


def missing(features: Sequence[str], gone: Sequence[int], n: int) -> Table:
    """How often each feature is missing."""
    return Table(
        {"feature": list(features), "missing": list(gone), "share": [x / n for x in gone]},
        f"Missing values at {n:,} decisions",
    )


# --- `build` and `from_events`: from files of events and a spec to a log

BESIDE = ("dictionary", "flow", "missing")
"""What is written beside a log: LOG.dictionary.md and so on."""
MEMORY = "3GB"
Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None


@dataclass(frozen=True)
class Built:
    """What `build` made.

    Attributes:
        path: The Parquet file of decisions.
        spec: The spec it was made by.
        flow: Subjects, episodes and decisions after each step.
        missing: How often each feature is missing.
        dictionary: The meaning of each column.
        counts: Number of rows, subjects, episodes and decisions.
        findings: What to look at: codes of the data that look like one of the spec and are not
            used, codes of the spec that never occur, episodes without an end event.

    Example:
        >>> import dprl
        >>> from dprl.logs.events import read_spec
        >>> Built.__name__
        'Built'
    """

    path: Path
    spec: Spec
    flow: Table
    missing: Table
    dictionary: Table
    counts: dict[str, int]
    findings: tuple[Finding, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the log, as `dprl.read` takes them."""
        own = {"terminal", "cut"}
        events = sorted({end.ended for end in self.spec.ends} - own)
        return {
            "episode": "episode", "group": "group", "time": "time",
            "state": [feature.name for feature in self.spec.features],
            "action": "action", "reward": "reward", "ended": "ended",
            **({"events": events} if events else {}),
            **self.spec.outcome.declared,
        }  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """All of it as values that JSON can carry.

        Returns:
            The keys log (the file), columns, counts, flow, missing, dictionary, actions and
            findings.

        Example:
            >>> "flow" in Built.to_dict.__doc__
            True
        """
        return {
            "log": str(self.path), "columns": self.columns, "counts": self.counts,
            "actions": labels(self.spec), "flow": self.flow.to_dicts(),
            "missing": self.missing.to_dicts(), "dictionary": self.dictionary.to_dicts(),
            "findings": [vars(finding) for finding in self.findings],
        }  # fmt: skip

    def __str__(self) -> str:
        flow_alone = replace(self.flow, note="An episode without a decision ended when it began.")
        return "\n\n".join(map(str, (flow_alone, self.missing, *self.findings)))


def build(
    files: Files,
    spec: Spec | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    memory: str = MEMORY,
    threads: int | None = None,
    temp: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Built:
    """Make a log of decisions from events, and write it.

    The dictionary, the flow of counts and the missing values are written beside the log, as
    `LOG.dictionary.md`, `LOG.flow.md` and `LOG.missing.md`. After an error nothing is written.

    Args:
        files: Files or patterns of events; for OMOP a folder or a DuckDB file. None: those that
            the spec names.
        spec: The spec, or its TOML file.
        out: The `.parquet` file to write.
        memory: Memory limit of DuckDB; what does not fit goes to disk. Default "3GB".
        threads: Number of threads; the result does not depend on it. Default None: DuckDB's own.
        temp: A folder with room for temporary files. Default None: the system's.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The file, the flow of counts, what is missing, and the dictionary.

    Raises:
        LogError: The events cannot be used, or there is no decision.
        ParameterError: An argument is outside its range.
        SpecError: The spec cannot be used; the line is named.

    Example:
        >>> from pathlib import Path
        >>> from dprl.logs.events import build
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
        >>> build(None, "spec.toml", "log.parquet").counts["decisions"]
        3
    """
    rules = spec if isinstance(spec, Spec) else read_spec(spec)
    target = Path(out)
    if target.suffix.lower() != ".parquet":
        raise ParameterError(f"{str(target)!r} must end in .parquet.")
    if not target.parent.is_dir():
        raise LogError(f"the folder of {str(target)!r} does not exist.", do="Make it first.")
    names = event_files(files, rules)
    beside = {kind: target.with_name(f"{target.stem}.{kind}.md") for kind in BESIDE}
    refuse_overwrite(target, *read_by(rules, names))
    check_target(*beside.values())
    report = progress or (lambda stage, share: None)
    room = str(temp or tempfile.gettempdir())
    with (
        speaking("building the log", room),
        database(memory, threads, temp, "events", read_by(rules, names), [target.parent]) as con,
    ):
        report("reading events", 0.0)
        loaded = begin(con, rules, names)
        built = _run_parts(con, rules, loaded, target, report)
        report("writing", 0.0)
        _write(con, built, beside)
    report("writing", 1.0)
    return built


def event_files(files: Files, spec: Spec) -> list[str]:
    """The files of events: those given, or those of the spec."""
    if files is None:
        return list(spec.source.files)
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    return [os.fspath(name) for name in given]


def read_by(spec: Spec, files: list[str]) -> list[str]:
    """What is read to make the log: the files of events, and a table of episodes."""
    return [*files, *([spec.episodes.table] if spec.episodes.table else [])]


def _run_parts(con: Any, spec: Spec, loaded: Any, target: Path, report: Any) -> Built:
    """Work through the parts; the rows of all are in the table `log` afterwards."""
    counts = {**loaded.counts, "with_episode": 0, "spans": 0, "with_decision": 0, "episodes": 0}
    ended: dict[str, int] = {}
    open_counts: dict[str, dict[str, Any]] = {}
    n_parts = len(loaded.parts)
    for i in range(n_parts):
        report("making decisions", i / n_parts)
        make_part(con, spec, loaded, i)
        how = "CREATE TABLE log AS" if i == 0 else "INSERT INTO log"
        con.execute(f"{how} {row_columns(spec)}")
        for names, sql in (
            (("with_episode", "spans"), "count(DISTINCT subject), count(*) FROM spans"),
            (("with_decision", "episodes"), "count(DISTINCT subject), count(*) FROM episodes"),
        ):
            for name, n in zip(names, con.execute(f"SELECT {sql}").fetchone(), strict=True):
                counts[name] += int(n)
        for word, n in con.execute("SELECT ended, count(*) FROM episodes GROUP BY 1").fetchall():
            ended[word] = ended.get(word, 0) + int(n)
        open_stays(con, open_counts)
    n = int(con.execute("SELECT count(*) FROM log").fetchone()[0])
    counts["decisions"] = n
    if not n:
        raise LogError(
            f"there is no decision in {counts['spans']:,} episodes of {counts['subjects']:,} "
            "subjects.",
            f"{counts['used']:,} of {counts['events']:,} rows have a code that the spec names",
            "Does an episode last longer than an instant? Look at [episodes], [[end]] and [clock].",
        )
    finish_rewards(con, spec, "log", n)
    features = [feature.name for feature in spec.features]
    gone = con.execute(
        f"SELECT {', '.join(f'count(*) - count({quoted(name)})' for name in features)} FROM log"
    ).fetchone()
    findings = (*loaded.findings, *open_findings(spec, open_counts, counts["episodes"], n))
    return Built(
        target,
        spec,
        flow(counts, ended, open_counts, findings),
        missing(features, [int(x) for x in gone], n),
        dictionary(spec, loaded.findings),
        counts,
        findings,
    )


def _write(con: Any, built: Built, beside: dict[str, Path]) -> None:
    """Write the log and what is beside it: all of them, or none."""
    spec = built.spec
    names = ["episode", "subject", "group", "step", "time", *(f.name for f in spec.features),
             "action", "reward", "ended"]  # fmt: skip
    con.execute("SET preserve_insertion_order = true")  # else row groups may change places
    with together(), contextlib.ExitStack() as stack:
        part = stack.enter_context(replacing(built.path))
        con.execute(
            f"COPY (SELECT {', '.join(map(quoted, names))} FROM log ORDER BY key, start, episode, "
            f"step) TO {text(str(part))} (FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false)"
        )
        for kind, path in beside.items():
            table = {"dictionary": built.dictionary, "flow": built.flow, "missing": built.missing}[
                kind
            ]
            stack.enter_context(replacing(path)).write_text(table.to_markdown(), encoding="utf-8")


def from_events(
    files: Files,
    spec: Spec | str | os.PathLike[str],
    *,
    memory: str = MEMORY,
    threads: int | None = None,
    temp: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Log:
    """A log of decisions from a table of events: who, when, what, how much.

    Args:
        files: Files or patterns of events; for OMOP a folder or a DuckDB file. None: those that
            the spec names.
        spec: A `dprl.events.Spec`, or a TOML file of one.
        memory: Memory limit of DuckDB; what does not fit goes to disk. Default "3GB".
        threads: Number of threads; the result does not depend on it. Default None: DuckDB's own.
        temp: A folder with room for temporary files. Default None: the system's.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The log; a feature that is missing is NaN.

    Raises:
        LogError: The events cannot be used, or there is no decision.
        ParameterError: An argument is outside its range.
        SpecError: The spec cannot be used; the line is named.

    Example:
        >>> from pathlib import Path
        >>> import dprl
        >>> from dprl.events import Action, Clock, End, Episodes, Feature, Part, Reward, Spec
        >>> _ = Path("events.csv").write_text('''subject_id,time,code,numeric_value
        ... 1,2024-03-01 08:00,ADMISSION,
        ... 1,2024-03-01 09:00,MAP,58
        ... 1,2024-03-01 13:00,DRUG,1
        ... 1,2024-03-01 17:00,DISCHARGE,
        ... ''')
        >>> spec = Spec(
        ...     episodes=Episodes(by="code", start="ADMISSION"),
        ...     ends=[End(codes="DISCHARGE")],
        ...     clock=Clock(every="4 h"),
        ...     features=[Feature(name="map", take="last", codes="MAP", within="24 h")],
        ...     action=Action(parts=[Part(name="drug", codes="DRUG")]),
        ...     rewards=[Reward(at="end", codes="DISCHARGE")],
        ... )
        >>> dprl.from_events("events.csv", spec)
        Log: 1 episode · 1 group · 3 steps · 1 feature · 1 value missing · 2 actions
    """
    from dprl.logs._io import read

    with tempfile.TemporaryDirectory(prefix=prefix_in(temp, "events"), dir=temp) as folder:
        built = build(
            files,
            spec,
            Path(folder) / "log.parquet",
            memory=memory,
            threads=threads,
            temp=temp,
            progress=progress,
        )
        for finding in built.findings:
            if finding.level == "warning":
                kind = LabelWarning if finding.rule == "near_codes" else CutWarning
                warnings.warn(f"{finding.what} {finding.do}", kind, stacklevel=2)
        return read(built.path, **built.columns, also=())


# --- `explain`: which rows of the data made the state, the action and the reward of one decision


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
