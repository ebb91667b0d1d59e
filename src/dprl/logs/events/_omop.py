"""Events from the tables of an OMOP database, CDM 5.4: files in a folder, or a DuckDB file.

Code of an event: the table's word and the concept, such as `measurement/3027598`, `drug/1321341`,
`condition/132797`, `procedure/…`, `observation/…`, `visit/9201` (its beginning), `visit_end/9201`,
`death`, `birth`, and without a time `gender/8507`. Drugs have an end. A moment is the column of
date and time; where it is empty, or midnight, only the day is known: the row can be read when the
day is over, and an end is the end of that day.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl.errors import LogError
from dprl.logs._scans import scan_table
from dprl.logs._sources import quoted
from dprl.logs.events._database import text, unsigned_zero
from dprl.logs.events._moments import DAY, Moment, moment

__all__ = ["TABLES", "omop_rows"]

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
    """SQL of all events of an OMOP database, in the form of `dprl.logs.events._source`.

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
        code = f"{text(table.word + '/')} || CAST({column(table.concept)} AS VARCHAR)"
    value = f"TRY_CAST({column(table.value)} AS DOUBLE)" if table.value else "CAST(NULL AS DOUBLE)"
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
