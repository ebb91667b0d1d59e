"""Run a spec: part after part of the subjects, from events to rows of the log."""

from __future__ import annotations

# Apart: the SQL of a spec; what a build writes and says is beside it.
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dprl._core.disk import said_if_short
from dprl._core.words import worded
from dprl.errors import LogError, interruptible
from dprl.logs.checking.findings import Finding
from dprl.logs.events.findings import code_findings
from dprl.logs.events.moments import (
    DAY,
    SAY_IN_SOURCE,
    Moment,
    decimal_number,
    event_rows,
    how_to_write,
    label_number,
    moment,
    text,
    unsigned_zero,
    whole_label,
)
from dprl.logs.events.spec import UNITS, microseconds, place
from dprl.logs.events.spec_rules import NEED_ROW, resolve
from dprl.logs.events.windows import (
    load_table,
    make_action,
    make_decisions,
    make_reward,
    make_spans,
    make_state,
)
from dprl.logs.reading.columns import too_large
from dprl.logs.reading.frames import quoted
from dprl.logs.reading.paths import scan_table
from dprl.logs.reading.text import fold

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec


# --- Events from the tables of an OMOP database, CDM 5.4: files in a folder, or a DuckDB file
#
# Code of an event: the table's word and the concept, such as `measurement/3027598`, `drug/1321341`,
# `condition/132797`, `procedure/…`, `observation/…`, `visit/9201` (its beginning),
# `visit_end/9201`, `death`, `birth`, and without a time `gender/8507`. Drugs have an end. A moment
# is the column of date and time; where it is empty, or midnight, only the day is known: the row can
# be read when the day is over, and an end is the end of that day.

ENDINGS = (".csv.gz", ".csv", ".parquet")


@dataclass(frozen=True)
class Omop:
    """How rows of one table become events.

    Attributes:
        word: First part of the code.
        concept: Column of the second part; "" if there is none.
        time: Beginning of the names of the columns of its time: "x" stands for x_date and
            x_datetime; "" for rows without a time.
        value: Column of the value; "" if there is none.
        end: Beginning of the names of the columns of its end; "" if there is none.
    """

    word: str
    concept: str
    time: str
    value: str = ""
    end: str = ""


TABLES: dict[str, tuple[Omop, ...]] = {
    "person": (Omop("gender", "gender_concept_id", ""), Omop("birth", "", "birth")),
    "visit_occurrence": (
        Omop("visit", "visit_concept_id", "visit_start"),
        Omop("visit_end", "visit_concept_id", "visit_end"),
    ),
    "measurement": (
        Omop("measurement", "measurement_concept_id", "measurement", "value_as_number"),
    ),
    "drug_exposure": (
        Omop("drug", "drug_concept_id", "drug_exposure_start", "quantity", "drug_exposure_end"),
    ),
    "condition_occurrence": (Omop("condition", "condition_concept_id", "condition_start"),),
    "procedure_occurrence": (Omop("procedure", "procedure_concept_id", "procedure"),),
    "observation": (
        Omop("observation", "observation_concept_id", "observation", "value_as_number"),
    ),
    "death": (Omop("death", "", "death"),),
}
"""Table of the CDM → the events that its rows become."""


def omop_rows(con: Any, files: Sequence[str]) -> str:
    """SQL of all events of an OMOP database, in the form of `dprl.logs.events.moments`.

    Args:
        con: A DuckDB connection; a DuckDB file is attached to it, to be read only.
        files: One folder with files called like the tables, or one DuckDB file.

    Raises:
        LogError: There is no such folder or file, it has no table of the CDM, or a table lacks a
            column.
    """
    import duckdb

    if len(files) != 1:
        raise LogError(
            f"OMOP tables are in one folder or one DuckDB file; {len(files)} were named.",
            do='Write files = "omop" in [source].',
        )
    place = Path(files[0])
    try:
        scans = _of_folder(con, place) if place.is_dir() else _of_file(con, place)
    except duckdb.Error as error:
        raise LogError(
            "the OMOP tables could not be read.", f"{place}: {str(error).splitlines()[0][:200]}"
        ) from error
    if not scans:
        raise LogError(
            "there is no table of OMOP.",
            str(place),
            f"Tables are called {', '.join(TABLES)}; files end in {', '.join(ENDINGS)}.",
        )
    rows = [
        _events(con, name, scan, table) for name, scan in scans.items() for table in TABLES[name]
    ]
    return " UNION ALL ".join(row for row in rows if row)


def _of_folder(con: Any, folder: Path) -> dict[str, str]:
    """Table → SQL that reads its file."""
    files: dict[str, list[Path]] = {}
    for file in sorted(folder.iterdir()):
        ending = next((e for e in ENDINGS if file.name.lower().endswith(e)), None)
        if ending and file.is_file():
            files.setdefault(file.name.lower().removesuffix(ending), []).append(file)
    for name, several in files.items():
        if name in TABLES and len(several) > 1:
            raise LogError(
                f"the table {name} is there {len(several)} times.",
                ", ".join(map(str, several)),
                "Leave one of them: which is meant cannot be guessed.",
            )
    return {name: scan_table(files[name][0], con.execute) for name in TABLES if name in files}


def _of_file(con: Any, file: Path) -> dict[str, str]:
    """Table → its name in an attached DuckDB file."""
    if not file.is_file():
        raise LogError(f"there is no folder or file {str(file)!r}.", do="Check the path.")
    con.execute(f"ATTACH {text(str(file.absolute()))} AS omop (READ_ONLY)")
    there = con.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'omop' "
        "ORDER BY schema_name, table_name"
    ).fetchall()
    tables: dict[str, str] = {}
    for schema, name in there:
        if name.lower() in TABLES:
            if name.lower() in tables:
                raise LogError(
                    f"the table {name} is in two schemas.", str(file), "Leave one of them."
                )
            tables[name.lower()] = f"omop.{quoted(schema)}.{quoted(name)}"
    return {name: tables[name] for name in TABLES if name in tables}


def _events(con: Any, name: str, scan: str, table: Omop) -> str:
    """SQL of the events of one table; "" where an optional column is not there."""
    described = con.execute(f"DESCRIBE SELECT * FROM {scan}").fetchall()
    kinds = {row[0].lower(): (quoted(row[0]), str(row[1])) for row in described}

    def column(wanted: str) -> str:
        if wanted not in kinds:
            raise LogError(
                f"the table {name} has no column {wanted!r}.",
                f"its columns are {', '.join(list(kinds)[:12])}",
                "Tables are those of the OMOP CDM 5.4.",
            )
        return kinds[wanted][0]

    if table.word == "birth" and "birth_datetime" not in kinds:
        return ""
    nothing = Moment("CAST(NULL AS BIGINT)")
    time = _moment(kinds, table.time, column) if table.time else nothing
    end = _moment(kinds, table.end, column) if table.end else nothing
    code = text(table.word)
    if table.concept:
        concept = whole_label(column(table.concept), kinds[table.concept][1])
        code = f"{text(table.word + '/')} || CAST({concept} AS VARCHAR)"
    value = "CAST(NULL AS DOUBLE)"
    if table.value:
        value = decimal_number(column(table.value), kinds[table.value][1], ".")
    known_at = f"{time.micros} + CASE WHEN {time.day} THEN {DAY} ELSE 0 END"
    lasts = f"{end.micros} + CASE WHEN {end.day} THEN {DAY} ELSE 0 END"
    there = f"WHERE {time.micros} IS NOT NULL OR {time.bad}" if table.time else ""
    return (
        f"SELECT CAST({column('person_id')} AS BIGINT) AS subject, {time.micros} AS t, "
        f"{lasts} AS u, {known_at} AS k, {code} AS code, "
        f"CASE WHEN isnan({value}) THEN NULL ELSE {unsigned_zero(value)} END AS v, "
        f"({time.bad} OR {end.bad}) AS bad_time, false AS bad_value, {time.zoned} AS zoned, "
        f"false AS mixed, CAST(NULL AS VARCHAR) AS odd_time, CAST(NULL AS VARCHAR) AS odd_value "
        f"FROM {scan} {there}"
    )


def _moment(kinds: dict[str, tuple[str, str]], name: str, column: Any) -> Moment:
    """A moment from a column of date and time, or of the date where that is empty."""
    exact, date = f"{name}_datetime", f"{name}_date"
    if exact not in kinds:
        column(date)
        only = moment(*kinds[date], "", date)
        return Moment(only.micros, "true", f"coalesce({only.bad}, false)")
    fine = moment(*kinds[exact], "", exact)
    midnight = f"coalesce({fine.micros} % {DAY} = 0, true)"
    if date not in kinds:
        return Moment(fine.micros, midnight, f"coalesce({fine.bad}, false)")
    coarse = moment(*kinds[date], "", date)
    return Moment(
        f"coalesce({fine.micros}, {coarse.micros})",
        midnight,
        f"(coalesce({fine.bad}, false) OR coalesce({coarse.bad}, false))",
    )


# --- From the user's files to tables of DuckDB: codes, roles, subjects, and events in parts
#
# Tables: `codes` (id, code, n), `roles` (role, id, rank: which codes each place of the spec means),
# `subjects` (subject, last: the time of the last row of any code), and the events that some place
# means, dealt by subject into parts that fit into memory, each a table or a Parquet file.

PER_PART = 4_000_000
"""Events of one part: what is worked on at once. Results do not depend on it."""
PLACES = 12
"""Decimal places of values that are added, where the spec does not say: exact in any order."""


@dataclass(frozen=True)
class Loaded:
    """What was read.

    Attributes:
        parts: SQL of the events of each part: subject, t, u, k, id, v. A subject is in the part
            of number hash(subject) % len(parts).
        counts: Name of a count → rows or subjects, for the flow.
        dates: Whether times are dates, and not numbers.
        findings: What is to be said about the codes of the spec and of the data.
    """

    parts: tuple[str, ...]
    counts: dict[str, int]
    dates: bool
    findings: tuple[Finding, ...]


def _subjects_twice(con: Any) -> list[Finding]:
    """Subjects of the events that are one whole number in two forms, such as 7 and 007."""
    one = label_number("subject")
    n, first, second = con.execute(
        f"SELECT count(*), arg_min(a, a), arg_min(b, a) FROM (SELECT min(CAST(subject AS VARCHAR)) "
        f"AS a, max(CAST(subject AS VARCHAR)) AS b FROM subjects GROUP BY {one} "
        "HAVING count(*) > 1)"
    ).fetchone()
    if not n:
        return []
    return [
        Finding(
            "warning",
            "numbers_twice",
            f"{n:,} subjects of the events are written in two ways and counted apart: what was "
            "given under one of them is not seen under the other.",
            f"{first!r} and {second!r}",
            "If they are the same, write them alike.",
        )
    ]


def load(con: Any, spec: Spec, files: Sequence[str], folder: Path, only: Any = None) -> Loaded:
    """Read the events that a spec needs.

    Args:
        con: A DuckDB connection.
        spec: The spec.
        files: The files of events; for OMOP the folder or the DuckDB file.
        folder: A folder for parts on disk.
        only: One subject, if only its events are wanted. Default None: all.

    Raises:
        LogError: A row cannot be understood, or a code is in no row.
    """
    with _rows_of(con, spec, files) as rows:
        con.execute(f"CREATE VIEW {'raw_rows' if spec.source.labels else 'rows'} AS {rows}")
        if spec.source.labels:
            _fold_codes(con, spec.source.labels)
        return _load_rows(con, spec, folder, only)


@contextmanager
def _rows_of(con: Any, spec: Spec, files: Sequence[str]) -> Iterator[str]:
    """Give SQL of the events, in the form of `dprl.logs.events.moments`."""
    if spec.source.preset == "omop":
        yield omop_rows(con, files)
    else:
        with event_rows(con, spec, files) as rows:
            yield rows


def _fold_codes(con: Any, labels: str) -> None:
    """Make the view `rows`, in which codes are trimmed or written small, as was asked."""
    codes = [row[0] for row in con.execute("SELECT DISTINCT code FROM raw_rows").fetchall()]
    con.execute("CREATE TEMP TABLE folds (code VARCHAR, plain VARCHAR)")
    _insert(con, "folds", [(code, fold(code, labels)) for code in codes if code is not None])
    con.execute(
        "CREATE VIEW rows AS SELECT r.* REPLACE (f.plain AS code) FROM raw_rows AS r "
        "LEFT JOIN folds AS f ON r.code = f.code"
    )


def _insert(con: Any, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows into a table, many at once."""
    for start in range(0, len(rows), 1000):
        some = rows[start : start + 1000]
        marks = ", ".join([f"({', '.join('?' * len(some[0]))})"] * len(some))
        con.execute(f"INSERT INTO {table} VALUES {marks}", [x for row in some for x in row])


def _load_rows(con: Any, spec: Spec, folder: Path, only: Any) -> Loaded:
    """Make the tables of this module from the view `rows`."""
    _read_codes(con, spec)
    rows_of = dict(con.execute("SELECT code, n FROM codes WHERE id > 0 ORDER BY id").fetchall())
    con.execute("CREATE TABLE roles (role VARCHAR, id INTEGER, rank INTEGER)")
    named = resolve(spec, list(rows_of))
    findings = code_findings(spec, rows_of, [code for _, code, _ in named])
    _read_roles(con, named, spec)
    con.execute(
        "CREATE TABLE subjects AS SELECT subject, max(t) AS last FROM rows GROUP BY subject"
    )
    rounded = con.execute(
        "SELECT min(CAST(subject AS VARCHAR)) FROM subjects WHERE regexp_full_match("
        "CAST(subject AS VARCHAR), '-?([0-9]{16,}\\.0+|[1-9](\\.[0-9]+)?e\\+[0-9]{2})')"
    ).fetchone()[0]
    if rounded is not None:
        raise too_large(rounded, spec.source.subject)
    counts = {
        "events": _one(con, "SELECT sum(n)::BIGINT FROM codes"),
        "static": _one(con, "SELECT sum(n_static)::BIGINT FROM codes"),
        "subjects": _one(con, "SELECT count(*) FROM subjects"),
        "used": _one(con, "SELECT sum(n)::BIGINT FROM codes WHERE id IN (SELECT id FROM roles)"),
    }
    distinct = "DISTINCT " if spec.source.duplicates == "drop" else ""
    mine = ""
    if only is not None:
        con.execute("SET VARIABLE only_subject = ?", [str(only)])
        mine = " AND CAST(subject AS VARCHAR) = getvariable('only_subject')"
    used = (
        f"SELECT {distinct}subject, t, u, k, c.id, v FROM rows JOIN codes AS c USING (code) "
        f"WHERE c.id IN (SELECT id FROM roles){mine}"
    )
    n_parts = 1 if only is not None else -(-counts["used"] // PER_PART) or 1
    parts: tuple[str, ...]
    if n_parts == 1:
        con.execute(f"CREATE TABLE events AS {used}")
        parts = ("SELECT * FROM events",)
    else:
        con.execute(
            f"COPY (SELECT *, CAST(hash(subject) % {n_parts} AS INTEGER) AS part FROM ({used})) "
            f"TO {text(str(folder))} (FORMAT parquet, PARTITION_BY (part), COMPRESSION lz4)"
        )
        con.execute(f"CREATE TABLE events AS SELECT * FROM ({used}) LIMIT 0")
        parts = tuple(
            f"SELECT subject, t, u, k, id, v FROM read_parquet("
            f"{text(str(folder / f'part={i}' / '*.parquet'))}, hive_partitioning = false)"
            if (folder / f"part={i}").is_dir()
            else "SELECT * FROM events"
            for i in range(n_parts)
        )
    _check_values(con, spec, parts)
    findings += _subjects_twice(con)
    return Loaded(parts, counts, spec.source.time_unit == "", tuple(findings))


def _one(con: Any, sql: str) -> int:
    return int(con.execute(sql).fetchone()[0] or 0)


def _read_codes(con: Any, spec: Spec) -> None:
    """Make the table `codes`, and refuse rows that cannot be understood."""
    import duckdb

    try:
        con.execute(
            "CREATE TABLE codes AS SELECT CAST(row_number() OVER (ORDER BY code NULLS FIRST) AS "
            "INTEGER) AS id, * FROM (SELECT code, count(*) AS n, count(*) - count(t) AS n_static, "
            "count(*) FILTER (WHERE subject IS NULL) AS n_nobody, "
            "count(*) FILTER (WHERE bad_time) AS n_bad_time, "
            "count(*) FILTER (WHERE zoned) AS n_zoned, count(*) FILTER (WHERE bad_value) AS n_bad, "
            "count(*) FILTER (WHERE u < t) AS n_backward, "
            "count(*) FILTER (WHERE mixed) AS n_mixed, min(odd_value) AS odd_value "
            "FROM rows GROUP BY code)"
        )
    except duckdb.Error as error:
        raise LogError(
            "the events could not be read.",
            str(error).splitlines()[0][:200],
            f"Open the file and look at the place named. {SAY_IN_SOURCE}",
        ) from error
    total, static, nobody, bad, zoned, backward, mixed = con.execute(
        "SELECT coalesce(sum(n), 0)::BIGINT, sum(n_static)::BIGINT, sum(n_nobody)::BIGINT, "
        "sum(n_bad_time)::BIGINT, sum(n_zoned)::BIGINT, sum(n_backward)::BIGINT, "
        "sum(n_mixed)::BIGINT FROM codes"
    ).fetchone()
    if not total:
        raise LogError("there are no events.", do="The files have columns and no rows.")
    no_code = _one(con, "SELECT sum(n) FROM codes WHERE code IS NULL")
    con.execute("INSERT INTO codes (id, code, n, n_static, n_bad) VALUES (0, '', 0, 0, 0)")
    source = spec.source
    if nobody:
        raise LogError(
            f"{source.subject!r} is missing on {nobody:,} of {total:,} rows.",
            _first(con, "subject IS NULL"),
            "Every event is about somebody.",
        )
    if no_code:
        raise LogError(
            f"{source.code!r} is missing on {no_code:,} of {total:,} rows.",
            _first(con, "code IS NULL"),
            "Every event needs a code.",
        )
    if bad:
        odd = con.execute(
            "SELECT odd_time FROM rows WHERE bad_time ORDER BY subject, t, code LIMIT 1"
        ).fetchone()[0]
        raise LogError(
            f"{bad:,} of {total:,} rows have a time that cannot be read.",
            _first(con, "bad_time") + (f": {odd[:40]!r}" if odd else ""),
            how_to_write(odd or "", spec),
        )
    if zoned and zoned < total - static:
        raise LogError(
            f"{source.time!r} has a time zone on {zoned:,} of {total - static:,} rows.",
            _first(con, "NOT zoned AND t IS NOT NULL"),
            "Write all of them the same way: which is meant cannot be guessed.",
        )
    if mixed:
        raise LogError(
            f"{mixed:,} of {total:,} rows have a time zone in one of their times and none in "
            "another.",
            _first(con, "mixed"),
            "Write all of them the same way: which is meant cannot be guessed.",
        )
    if backward:
        raise LogError(
            f"{backward:,} of {total:,} rows end before they begin.",
            _first(con, "u < t"),
            "Mend them, or leave their end empty.",
        )


def _first(con: Any, where: str) -> str:
    """The first of the rows for which a condition holds, in words."""
    row = con.execute(
        f"SELECT CAST(subject AS VARCHAR), CAST(make_timestamp(t) AS VARCHAR), code FROM rows "
        f"WHERE {where} ORDER BY subject, t, code LIMIT 1"
    ).fetchone()
    return f"subject {row[0] or '?'}, time {row[1] or '?'}, code {row[2] or '?'}"


def _read_roles(con: Any, rows: Sequence[tuple[str, str, int]], spec: Spec) -> None:
    """Fill the table `roles`; codes of intervals that are made get ids below 0."""
    made = {interval.name: -i - 1 for i, interval in enumerate(spec.intervals)}
    if made:
        con.executemany(
            "INSERT INTO codes (id, code, n, n_static, n_bad) VALUES (?, ?, 0, 0, 0)",
            [[number, name] for name, number in made.items()],
        )
    con.execute("CREATE TEMP TABLE named (role VARCHAR, code VARCHAR, rank INTEGER)")
    _insert(con, "named", rows)
    con.execute("INSERT INTO roles SELECT role, id, rank FROM named JOIN codes USING (code)")


VALUED = ("last", "mean", "min", "max", "sum", "slope", "dose", "amount")
ADDED = ("mean", "sum", "dose", "amount")


def _check_values(con: Any, spec: Spec, parts: Sequence[str]) -> None:
    """Refuse values that are no numbers, infinite, or of a size that cannot be added exactly."""
    takes = [(f"f{i}", ("feature", i), f) for i, f in enumerate(spec.features)]
    takes += [(f"a{i}", ("action", "part", i), p) for i, p in enumerate(spec.action.parts)]  # type: ignore[misc]
    takes += [(f"r{i}", ("reward", i), r) for i, r in enumerate(spec.rewards)]  # type: ignore[misc]
    sizes: dict[str, tuple[Any, ...]] | None = None
    for role, path, table in takes:
        if table.take not in VALUED or not table.codes:
            continue
        bad = con.execute(
            "SELECT code, n_bad, n, odd_value FROM codes JOIN roles USING (id) WHERE role = ? "
            "AND n_bad > 0 ORDER BY code LIMIT 1",
            [role],
        ).fetchone()
        where = place(spec.lines, (*path, "codes"))
        if bad is not None:
            odd = str(bad[3] or "")
            comma = spec.source.decimal == "." and re.fullmatch(r"\s*[+-]?\d+,\d+\s*", odd)
            raise LogError(
                f"{bad[1]:,} of {bad[2]:,} rows of {bad[0]!r} have a value that is no number.",
                f"{where}; such as {odd[:40]!r}" if odd else where,
                'Say decimal = "," in [source] if the comma is before the fraction.'
                if comma
                else "Take 'count', 'any' or 'ever' of it, or mend the values.",
            )
        if sizes is None:
            sizes = _sizes(con, parts)
        low, high = table.valid or (float("-inf"), float("inf"))
        for code, infinite, largest, smallest in sizes.get(role, ()):
            if infinite and table.valid is None:
                raise LogError(
                    f"{infinite:,} rows of {code!r} have an infinite value.",
                    where,
                    "Say which values count: valid = [0, 500].",
                )
            places = getattr(table, "places", PLACES)
            least, most = 10.0 ** (6 - places), 10.0 ** (32 - places)
            if table.take in ADDED and (
                ((largest or 0) >= most and max(abs(low), abs(high)) >= most)
                or ((smallest or most) < least and low < least and high > -least)
            ):
                size = largest if (largest or 0) >= most else smallest
                raise LogError(
                    f"{code!r} has a value of size {size:g}, too far from 1 to be added exactly.",
                    where,
                    f"Values that are added lie between {least:g} and {most:g}: change the "
                    "unit, or say which values count with valid = [low, high].",
                )


def _sizes(con: Any, parts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Role → (code, infinite rows, largest size, smallest size above 0) of each of its codes."""
    every = " UNION ALL ".join(f"SELECT id, v FROM ({part})" for part in parts)
    rows = con.execute(
        "SELECT role, code, infinite, largest, smallest FROM roles JOIN codes USING (id) JOIN "
        "(SELECT id, count(*) FILTER (WHERE isinf(v)) AS infinite, "
        "max(abs(v)) FILTER (WHERE isfinite(v)) AS largest, "
        f"min(abs(v)) FILTER (WHERE v <> 0) AS smallest FROM ({every}) GROUP BY id) USING (id) "
        "ORDER BY role, code"
    ).fetchall()
    by_role: dict[str, tuple[Any, ...]] = {}
    for role, *facts in rows:
        by_role[role] = (*by_role.get(role, ()), tuple(facts))
    return by_role


# --- Run a spec: part after part of the subjects, from events to rows of the log

NEVER = -(1 << 62)
"""Stands for the time at which a row is known that never is, where times are compared."""


@contextmanager
def speaking(doing: str, where: str) -> Iterator[None]:
    """Turn DuckDB's errors inside into errors of three lines."""
    import duckdb

    try:
        with interruptible(), said_if_short(doing, where):
            yield
    except duckdb.OutOfMemoryException as error:
        raise LogError(
            f"the memory limit is too small for {doing}.",
            str(error).splitlines()[0],
            worded("Give it more ({memory='8GB'}), or fewer threads."),
        ) from error
    except duckdb.OutOfRangeException as error:
        raise LogError(
            "values are too large to be added.",
            str(error).splitlines()[0][:200],
            "Change their unit, or say which values count with valid = [low, high].",
        ) from error
    except duckdb.ConversionException as error:
        raise LogError("a value is not what its column must be.", str(error).splitlines()[0][:200],
                       "Mend it in the file.") from error  # fmt: skip
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise LogError("the events could not be read.", str(error).splitlines()[0][:200],
                       "Are the files whole?") from error  # fmt: skip


def begin(con: Any, spec: Spec, files: Sequence[str], only: Any = None) -> Loaded:
    """Load the events, and the table of episodes if there is one."""
    spill = Path(con.execute("SELECT current_setting('temp_directory')").fetchone()[0])
    loaded = load(con, spec, files, spill.with_name("parts"), only)
    if spec.episodes.by == "table":
        loaded = replace(loaded, findings=(*loaded.findings, *load_table(con, spec)))
    _refuse_points(con, spec, loaded.parts)
    return loaded


def make_part(con: Any, spec: Spec, loaded: Loaded, i: int) -> None:
    """Make the tables of one part: ev, spans, episodes, decisions, state, acted and gained."""
    con.execute(f"CREATE OR REPLACE TEMP TABLE ev AS {loaded.parts[i]}")
    _make_intervals(con, spec)
    make_spans(con, spec, f"hash(subject) % {len(loaded.parts)} = {i}")
    make_decisions(con, spec)
    make_state(con, spec)
    make_action(con, spec)
    make_reward(con, spec)


def _make_intervals(con: Any, spec: Spec) -> None:
    """Add to `ev` the rows that start and stop rows make.

    Of several starts at one time one with a value counts, then the one known last, then the code
    named first, then the lowest value.
    """
    for i, interval in enumerate(spec.intervals):
        longest = microseconds(interval.longest)
        both = f"role IN ('i{i}start', 'i{i}stop') AND t IS NOT NULL"
        con.execute(
            "INSERT INTO ev SELECT s.subject, s.t, "
            f"least(coalesce(b.t, s.t + {longest}), s.t + {longest}) AS u, "
            f"nullif(s.x.k, {NEVER}), {-i - 1} AS id, CASE WHEN s.x.h THEN -s.x.v END FROM ("
            "SELECT subject, t, max({'h': v IS NOT NULL, "
            f"'k': coalesce(k, {NEVER}), 'r': -rank, 'v': coalesce(-v, 0)}}) AS x FROM ev "
            f"JOIN roles USING (id) WHERE role = 'i{i}start' AND t IS NOT NULL GROUP BY "
            "subject, t) AS s "
            "ASOF LEFT JOIN (SELECT DISTINCT subject, t FROM ev JOIN roles USING (id) WHERE "
            f"{both}) AS b "
            "ON s.subject = b.subject AND s.t < b.t"
        )


def _refuse_points(con: Any, spec: Spec, parts: Sequence[str]) -> None:
    """Refuse a dose of rows that have no end."""
    tables = [(f"f{i}", ("feature", i), f) for i, f in enumerate(spec.features)]
    tables += [(f"a{i}", ("action", "part", i), p) for i, p in enumerate(spec.action.parts)]  # type: ignore[misc]
    for role, path, table in tables:
        if table.take != "dose":
            continue
        every = " UNION ALL ".join(
            f"SELECT id FROM ({part}) WHERE u IS NULL AND t IS NOT NULL" for part in parts
        )
        row = con.execute(
            f"SELECT code, count(*) FROM ({every}) JOIN roles USING (id) JOIN codes USING (id) "
            "WHERE role = ? GROUP BY code ORDER BY code LIMIT 1",
            [role],
        ).fetchone()
        if row is not None:
            raise LogError(
                f"{row[1]:,} rows of {row[0]!r} have no end, and a dose needs one.",
                place(spec.lines, (*path, "take")),
                "Take 'sum' or 'amount' of it, or leave these rows out.",
            )


def time_of(column: str, spec: Spec) -> str:
    """SQL of a moment as the user wrote it: a date, or a number in its unit."""
    if not spec.source.time_unit:
        return f"make_timestamp({column})"
    return f"({column} / {UNITS[spec.source.time_unit]}.0)"


def finish_rewards(con: Any, spec: Spec, table: str, n: int) -> None:
    """Refuse decisions without a reward, with the term that is missing."""
    for i, reward in enumerate(spec.rewards):
        if reward.take not in NEED_ROW or reward.missing is not None:
            continue
        count, first = con.execute(
            f"SELECT count(*), min({{'e': episode, 't': time}}) FROM {table} WHERE r{i} IS NULL"
        ).fetchone()
        if count:
            raise LogError(
                f"the reward is missing at {count:,} of {n:,} decisions: there is no row to take "
                f"{reward.take!r} of.",
                f"episode {first['e']}, time {first['t']}; {place(spec.lines, ('reward', i))}",
                "Say what it is there: missing = 0.0.",
            )


def row_columns(spec: Spec) -> str:
    """SQL of one row of the log, from the tables of a part."""
    features = "".join(f", s.{quoted(f.name)}" for f in spec.features)
    terms = [f"r{i}" for i in range(len(spec.rewards))]
    return (
        f'SELECT e.episode, CAST(e.subject AS VARCHAR) AS subject, e.grp AS "group", d.k AS step, '
        f"{time_of('d.t', spec)} AS time{features}, a.action, "
        f"{' + '.join(f'g.{t}' for t in terms)} "
        f"AS reward, e.ended, {', '.join(f'g.{t}' for t in terms)}, e.subject AS key, e.start "
        "FROM decisions AS d JOIN episodes AS e ON d.episode = e.episode "
        "JOIN state AS s ON d.episode = s.episode AND d.k = s.k "
        "JOIN acted AS a ON d.episode = a.episode AND d.k = a.k "
        "JOIN gained AS g ON d.episode = g.episode AND d.k = g.k"
    )
