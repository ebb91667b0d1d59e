"""The folder a user has: which tables lie where, under which names, in which layout.

MIMIC-IV keeps `icu/` and `hosp/`; MIMIC-III is flat. Names may be upper or lower case, files
`.csv.gz`, `.csv` or `.parquet`. Each table becomes a DuckDB view of the columns we need with the
types we need, under MIMIC-IV's names: nothing is read until a query asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dprl.errors import LogError
from dprl.logs._scans import scan_table
from dprl.logs._sources import quoted

__all__ = ["LAYOUTS", "Layout", "Tables", "find_tables"]

ENDINGS = (".csv.gz", ".csv", ".parquet")


@dataclass(frozen=True)
class Layout:
    """Tables, and their columns as `name type`; a `?` marks one that may be missing.

    Attributes:
        name: What people call it.
        stay: Its column that names a stay.
        tables: Table → columns.
        sql: The file that makes `infusions` and `fluids` of it.
    """

    name: str
    stay: str
    tables: dict[str, str]
    sql: str


_SHARED = {
    "icustays": "subject_id BIGINT, hadm_id BIGINT, stay_id BIGINT, intime TIMESTAMP, "
    "outtime TIMESTAMP",
    "admissions": "hadm_id BIGINT, deathtime TIMESTAMP",
    "chartevents": "stay_id BIGINT, charttime TIMESTAMP, itemid BIGINT, valuenum DOUBLE, "
    "error? VARCHAR",
    "outputevents": "stay_id BIGINT, charttime TIMESTAMP, itemid BIGINT, value DOUBLE, "
    "iserror? VARCHAR",
    "labevents": "subject_id BIGINT, charttime TIMESTAMP, itemid BIGINT, valuenum DOUBLE",
}
_INFUSED = (
    "stay_id BIGINT, starttime TIMESTAMP, endtime TIMESTAMP, itemid BIGINT, amount DOUBLE, "
    "amountuom? VARCHAR, rate DOUBLE, rateuom? VARCHAR, patientweight? DOUBLE, "
    "statusdescription? VARCHAR"
)
LAYOUTS = (
    Layout("MIMIC-IV", "stay_id", {**_SHARED, "inputevents": _INFUSED}, "mimic_iv"),
    Layout(
        "MIMIC-III",
        "icustay_id",
        {
            **_SHARED,
            "inputevents_mv": _INFUSED,
            "inputevents_cv": "stay_id BIGINT, charttime TIMESTAMP, itemid BIGINT, amount DOUBLE, "
            "amountuom? VARCHAR, rate DOUBLE, rateuom? VARCHAR, stopped? VARCHAR",
        },
        "mimic_iii",
    ),
)
ERRORS = {"chartevents": "error", "outputevents": "iserror"}
"""Columns that mark a row as an error: what is neither empty nor 0 is left out."""


@dataclass(frozen=True)
class Tables:
    """Where the tables of a folder are.

    Attributes:
        folder: The folder.
        layout: What it looks like.
        files: Table → file.
    """

    folder: Path
    layout: Layout
    files: dict[str, Path]

    def open(self, con: Any) -> None:
        """Make a view of each table; refuse one that lacks a column."""
        for name, columns in self.layout.tables.items():
            self._view(con, name, [tuple(c.split()) for c in columns.split(", ")])

    def _view(self, con: Any, name: str, columns: list[Any]) -> None:
        file = self.files[name]
        import duckdb

        try:
            scan = scan_table(file, con.execute)
            there = {row[0].lower(): row[0] for row in con.sql(f"SELECT * FROM {scan}").description}
        except duckdb.Error as error:
            raise LogError(
                f"the table {name} cannot be read.", f"{file}: {str(error).splitlines()[0]}"
            ) from error
        parts, missing = [], []
        for column, kind in columns:
            ours = column.removesuffix("?")
            theirs = self.layout.stay if ours == "stay_id" else ours
            if theirs in there:
                parts.append(f"CAST({quoted(there[theirs])} AS {kind}) AS {ours}")
            elif column.endswith("?"):
                parts.append(f"CAST(NULL AS {kind}) AS {ours}")
            else:
                missing.append(theirs)
        if missing:
            raise LogError(
                f"the table {name} lacks {len(missing)} of the columns it must have: "
                f"{', '.join(missing)}.",
                f"{file} has {', '.join(list(there.values())[:12])}",
                f"{self.layout.name} is expected; see the how-to for other hospitals' data.",
            )
        flag = ERRORS.get(name)
        keep = f" WHERE coalesce({flag}, '') IN ('', '0', '0.0')" if flag else ""
        con.execute(
            f"CREATE VIEW {name} AS SELECT * FROM (SELECT {', '.join(parts)} FROM {scan}){keep}"
        )


def find_tables(folder: Path) -> Tables:
    """The tables in this folder, or a refusal that names what is missing."""
    if not folder.is_dir():
        raise LogError(
            f"there is no folder {str(folder)!r}.",
            do="Name the folder that holds the MIMIC tables (with icu/ and hosp/, or flat).",
        )
    found: dict[str, list[Path]] = {}
    for place in (folder, folder / "icu", folder / "hosp"):
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            ending = next((e for e in ENDINGS if file.name.lower().endswith(e)), None)
            if ending and file.is_file():
                found.setdefault(file.name.lower().removesuffix(ending), []).append(file)
    layout = LAYOUTS[1] if "inputevents_mv" in found or "inputevents_cv" in found else LAYOUTS[0]
    missing = [name for name in layout.tables if name not in found]
    if missing:
        raise LogError(
            f"{len(missing)} of the {len(layout.tables)} tables of {layout.name} are missing: "
            f"{', '.join(missing)}.",
            f"{folder} holds {', '.join(sorted(found)) or 'no tables'}",
            "Files are called like chartevents.csv.gz, .csv or .parquet, in the folder itself, "
            "icu/ or hosp/.",
        )
    for name in layout.tables:
        if len(found[name]) > 1:
            raise LogError(
                f"the table {name} is there {len(found[name])} times.",
                ", ".join(map(str, found[name])),
                "Leave one of them: which is meant cannot be guessed.",
            )
    return Tables(folder, layout, {name: found[name][0] for name in layout.tables})
