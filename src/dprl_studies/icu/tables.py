"""Find the tables in a user's folder, and make DuckDB views of them.

MIMIC-IV has the folders `icu/` and `hosp/`; MIMIC-III has all files in one folder. Names may be in
upper or lower case, and files may be `.csv.gz`, `.csv` or `.parquet`. Each table becomes a view of
only the columns that the study needs, under MIMIC-IV's names. The rows are read when a query uses
the view.
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
    """A version of MIMIC: which tables it has, with which columns.

    Attributes:
        name: "MIMIC-IV" or "MIMIC-III".
        stay: Name of the column that identifies a stay.
        tables: Name of a table → its columns, as "name type, name type, ...". A `?` after a name
            means that the column may be missing.
        sql: Name of the SQL file that makes the tables `infusions` and `fluids`.

    Example:
        >>> [(layout.name, layout.stay) for layout in LAYOUTS]
        [('MIMIC-IV', 'stay_id'), ('MIMIC-III', 'icustay_id')]
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
"""Table → column that marks a row as an error; rows where it is neither empty nor 0 are dropped."""


@dataclass(frozen=True)
class Tables:
    """The tables that a folder holds.

    Attributes:
        folder: The folder that the user named.
        layout: The version of MIMIC, with the tables and columns that it must have.
        files: Name of a table → its file.

    Example:
        >>> files = {"icustays": Path("mimic/icu/icustays.csv")}
        >>> Tables(Path("mimic"), LAYOUTS[0], files).layout.name
        'MIMIC-IV'
    """

    folder: Path
    layout: Layout
    files: dict[str, Path]

    def open(self, con: Any) -> None:
        """Make a view of each table.

        Args:
            con: A DuckDB connection; it gets one view per table of the layout.

        Raises:
            LogError: A file cannot be read, or lacks a column.

        Example:
            >>> import duckdb, dprl
            >>> made = dprl.icu.simulate("tables", stays=12, seed=0)
            >>> with duckdb.connect() as con:
            ...     find_tables(Path("tables")).open(con)
            ...     con.execute("SELECT count(*) FROM icustays").fetchone()
            (13,)
        """
        for name, columns in self.layout.tables.items():
            self._view(con, name, [tuple(c.split()) for c in columns.split(", ")])

    def _view(self, con: Any, name: str, columns: list[Any]) -> None:
        """Make the view of one table; `columns` holds pairs (name, SQL type)."""
        file = self.files[name]
        import duckdb

        try:
            scan = scan_table(file, con.execute)
            header = con.sql(f"SELECT * FROM {scan}").description
            in_file = {row[0].lower(): row[0] for row in header}
        except duckdb.Error as error:
            raise LogError(
                f"the table {name} cannot be read.", f"{file}: {str(error).splitlines()[0]}"
            ) from error
        parts, missing = [], []
        for column, kind in columns:
            ours = column.removesuffix("?")
            theirs = self.layout.stay if ours == "stay_id" else ours
            if theirs in in_file:
                parts.append(f"CAST({quoted(in_file[theirs])} AS {kind}) AS {ours}")
            elif column.endswith("?"):
                parts.append(f"CAST(NULL AS {kind}) AS {ours}")
            else:
                missing.append(theirs)
        if missing:
            raise LogError(
                f"the table {name} lacks {len(missing)} of the columns it must have: "
                f"{', '.join(missing)}.",
                f"{file} has {', '.join(list(in_file.values())[:12])}",
                f"{self.layout.name} is expected; see the how-to for other hospitals' data.",
            )
        flag = ERRORS.get(name)
        keep = f" WHERE coalesce({flag}, '') IN ('', '0', '0.0')" if flag else ""
        con.execute(
            f"CREATE VIEW {name} AS SELECT * FROM (SELECT {', '.join(parts)} FROM {scan}){keep}"
        )


def find_tables(folder: Path) -> Tables:
    """Find the tables of MIMIC-IV or MIMIC-III in a folder.

    Args:
        folder: The folder, with `icu/` and `hosp/` or with all files in itself.

    Returns:
        The layout, and the file of each table.

    Raises:
        LogError: There is no such folder, a table is missing, or a table is there more than once.

    Example:
        >>> import dprl
        >>> made = dprl.icu.simulate("tables", stays=12, seed=0)
        >>> tables = find_tables(Path("tables"))
        >>> tables.layout.name, tables.files["icustays"].name
        ('MIMIC-IV', 'icustays.csv')
    """
    if not folder.is_dir():
        raise LogError(
            f"there is no folder {str(folder)!r}.",
            do="Name the folder that holds the MIMIC tables (with icu/ and hosp/, or flat).",
        )
    files: dict[str, list[Path]] = {}
    for place in (folder, folder / "icu", folder / "hosp"):
        for file in sorted(place.iterdir()) if place.is_dir() else ():
            ending = next((e for e in ENDINGS if file.name.lower().endswith(e)), None)
            if ending and file.is_file():
                files.setdefault(file.name.lower().removesuffix(ending), []).append(file)
    layout = LAYOUTS[1] if "inputevents_mv" in files or "inputevents_cv" in files else LAYOUTS[0]
    missing = [name for name in layout.tables if name not in files]
    if missing:
        raise LogError(
            f"{len(missing)} of the {len(layout.tables)} tables of {layout.name} are missing: "
            f"{', '.join(missing)}.",
            f"{folder} holds {', '.join(sorted(files)) or 'no tables'}",
            "Files are called like chartevents.csv.gz, .csv or .parquet, in the folder itself, "
            "icu/ or hosp/.",
        )
    for name in layout.tables:
        if len(files[name]) > 1:
            raise LogError(
                f"the table {name} is there {len(files[name])} times.",
                ", ".join(map(str, files[name])),
                "Leave one of them: which is meant cannot be guessed.",
            )
    return Tables(folder, layout, {name: files[name][0] for name in layout.tables})
