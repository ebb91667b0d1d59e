"""From a folder of MIMIC tables to stays.parquet: one hourly treatment decision per row.

The work is SQL, one concept per file (`sql/`), run in this order by DuckDB on a database in a
temporary folder. Tables are scanned with filters on items and stays, never loaded as a whole; what
does not fit into the memory limit goes to disk.

    stays → charted → cohort → labs, urine → infusions, fluids → vasopressors, boluses → events
    → features → actions → reward

What an hour knows of the events, what is given in it and how the next one goes is made by the
builder of `dprl.logs.events`, as `dprl_studies.icu.stays` says.

No number here comes from several patients: no median, scale or bin is estimated (`Preparation`
does that).
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from dprl._core.checks import check_number, check_whole, wrong
from dprl._core.disk import check_target, replacing, said_if_short, together
from dprl._core.table import Table
from dprl.errors import LogError, ParameterError
from dprl.logs.events.moments import database, text
from dprl.logs.events.spec import HOUR, Clock, Feature, Source
from dprl.logs.events.spec_rules import Use
from dprl.logs.events.windows import make_decisions, make_state
from dprl.logs.reading.files import Progress
from dprl.logs.reading.frames import quoted
from dprl.logs.reading.paths import literal, scan_table
from dprl_studies.icu.dictionary import COLUMNS, dictionary

# --- Find the tables in a user's folder, and make DuckDB views of them
#
# MIMIC-IV has the folders `icu/` and `hosp/`; MIMIC-III has all files in one folder. Names may be
# in upper or lower case, and files may be `.csv.gz`, `.csv` or `.parquet`. Each table becomes a
# view of only the columns that the study needs, under MIMIC-IV's names. The rows are read when a
# query uses the view.

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


# --- What the study knows of its events, told to the builder of events (`dprl.logs.events`)
#
# The tables of MIMIC become events (`sql/events.sql`): which items count, in which unit and range,
# is SQL of the study. What an hour knows of them is said here feature by feature, and made by the
# builder, which deals to an hour nothing of that hour or later. What was given in an hour, and how
# the next one went, is what later hours know (`sql/features.sql`). Three things are more than a
# spec can say, and are SQL of the study: which stays are in the cohort (it counts their low
# pressures), the levels of doses (whose edges may come from the training split) and the reward (it
# bends, takes two conditions together, and its missing pressures come from the training split).

LAST = (
    "fio2", "lactate", "urine", "map", "gcs_eye", "gcs_verbal", "gcs_motor", "alt", "ast", "sbp",
    "dbp", "creatinine", "po2",
)  # fmt: skip
EVER = ("fio2", "lactate", "alt", "ast", "creatinine", "po2")
GCS = ("gcs_eye", "gcs_verbal", "gcs_motor")


def _given(name: str, last: str, places: int) -> list[Feature]:
    """What was given of a treatment before the decision: in all, in 8 hours, in the last one."""
    return [
        Feature(name=f"total_{name}", take="sum", codes=name, within="history", places=places),
        Feature(name=f"total_{name}_8h", take="sum", codes=name, within="8 h", places=places),
        Feature(name=last, take="sum", codes=name, within="1 h", places=places),
    ]


@dataclass(frozen=True)
class StudyState:
    """The part of a spec that makes a state."""

    features: tuple[Feature, ...]
    clock: Clock
    source: Source
    lines: Any = None


STATE = StudyState(
    features=(
        *(Feature(name=name, take="last", codes=name, within="history") for name in LAST),
        *(Feature(name=f"{x}_ever", take="ever", codes=x, within="history") for x in EVER),
        Feature(name="urine_since", take="ever", codes="urine", within="1 h"),
        Feature(name="gcs_since", take="ever", codes=GCS, within="1 h"),
        Feature(name="urine_in_hour", take="last", codes="urine", within="1 h"),
        *_given("vasopressor", "last_vasopressor_dose", 9),
        *_given("bolus", "last_bolus_ml", 1),
    ),
    clock=Clock(every="1 h"),
    source=Source(),
)
"""The features of an hourly decision; those of the look-back before the stay count as known."""


def make_hours(con: Any) -> None:
    """Make the table `state_of_hour`: stay_id, hour, the features of `STATE`, and ended.

    It has two hours more than there are decisions: what they know is the outcome of the last ones.

    Args:
        con: A DuckDB connection to the database of `build`, after the step `events`.
    """
    uses = [Use(f"f{i}", ("feature", i), f.codes) for i, f in enumerate(STATE.features)]
    rows = ", ".join(f"({text(use.role)}, {text(code)})" for use in uses for code in use.codes)
    con.execute(
        f"""
        CREATE TEMP TABLE codes AS SELECT code, rank,
            CAST(row_number() OVER (ORDER BY code, rank) AS INTEGER) AS id
        FROM (SELECT DISTINCT code, rank FROM events);
        CREATE TEMP TABLE roles AS SELECT role, id, rank
        FROM (VALUES {rows}) AS v(role, code) JOIN codes USING (code);
        CREATE TEMP TABLE ev AS SELECT stay_id AS subject, t, CAST(NULL AS BIGINT) AS u, t AS k, id,
            value AS v FROM events JOIN codes USING (code, rank);
        CREATE TEMP TABLE spans AS SELECT CAST(stay_id AS VARCHAR) AS episode, stay_id AS subject,
            epoch_us(intime) AS start, epoch_us(intime) + (n_hours + 1) * {HOUR} AS finish,
            true AS closed,
            CASE WHEN n_hours >= getvariable('horizon') THEN 'cut' ELSE 'terminal' END AS ended
        FROM cohort
        """
    )
    make_decisions(con, STATE)
    make_state(con, STATE)
    con.execute(
        "CREATE TABLE state_of_hour AS SELECT e.subject AS stay_id, CAST(s.k AS INTEGER) AS hour, "
        "s.* EXCLUDE (episode, k), e.ended FROM state AS s JOIN episodes AS e USING (episode)"
    )
    for name in ("codes", "roles", "ev", "spans", "episodes", "decisions", "state", "state_rows",
                 "carried", "dealt", "doses", "static"):  # fmt: skip
        con.execute(f"DROP TABLE IF EXISTS temp.{name}")


# --- Describe a cohort: stays left after each condition, counts and shares, and notes in words
#
# All functions read tables of the DuckDB database in which `dprl_studies.icu.stays.build` works.


def count(con: Any, sql: str) -> tuple[int, int]:
    """Number of stays and of patients in the table `stays`.

    Args:
        con: A DuckDB connection to the database of `build`.
        sql: What follows `FROM stays`, such as a WHERE clause; may be empty.

    Returns:
        (stays, patients).

    Example:
        >>> import duckdb
        >>> con = duckdb.connect()
        >>> made = con.execute("CREATE TABLE stays AS SELECT 7 AS subject_id FROM range(2)")
        >>> count(con, "")
        (2, 1)
        >>> con.close()
    """
    stays, patients = con.execute(
        f"SELECT count(*), count(DISTINCT subject_id) FROM stays {sql}"
    ).fetchone()
    return int(stays), int(patients)


def flow(con: Any, rules: Cohort) -> Table:
    """The number of stays, patients and decisions left after each condition of the cohort.

    Args:
        con: A DuckDB connection to the database of `build`, after its last step.
        rules: The conditions of the cohort.

    Returns:
        A table with one row per condition; decisions are None where they are not counted.

    Example:
        >>> import duckdb
        >>> from dprl_studies.icu.stays import Cohort
        >>> con = duckdb.connect()
        >>> made = con.execute(
        ...     "CREATE TABLE icustays AS SELECT i AS stay_id, i AS subject_id FROM range(3) t(i);"
        ...     "CREATE TABLE stays AS SELECT *, 5 AS hours_in_unit, 5 AS n_hours FROM icustays;"
        ...     "CREATE TABLE pressures AS SELECT stay_id, 8 * stay_id AS low FROM stays;"
        ...     "CREATE TABLE decisions AS SELECT 1 AS stay_id FROM range(8)"
        ... )
        >>> counts = flow(con, Cohort(low_n=7))
        >>> list(counts["stays"]), list(counts["decisions"])
        ([3, 3, 3, 2, 2], [None, None, None, 8, 8])
        >>> con.close()
    """
    all_stays = con.execute("SELECT count(*), count(DISTINCT subject_id) FROM icustays").fetchone()
    low = f"stay_id IN (SELECT stay_id FROM pressures WHERE low >= {rules.low_n})"
    rows = [
        ("ICU stays", *all_stays, None),
        ("with a beginning and an end", *count(con, ""), None),
        (
            f"with a valid mean pressure charted in the first {rules.horizon} h",
            *count(con, "WHERE stay_id IN (SELECT stay_id FROM pressures)"), None,
        ),
        (
            f"with {rules.low_n} or more below {rules.low_map:g} mmHg",
            *count(con, f"WHERE {low}"),
            total(con, f"SELECT sum(greatest(0, hours_in_unit - 1)) FROM stays WHERE {low}"),
        ),
        (
            "alive for two whole hours: the cohort, hours before death",
            *count(con, f"WHERE {low} AND n_hours >= 2"),
            total(con, "SELECT count(*) FROM decisions"),
        ),
    ]  # fmt: skip
    names = ("step", "stays", "patients", "decisions")
    return Table(
        dict(zip(names, (list(c) for c in zip(*rows, strict=True)), strict=True)),
        "From ICU stays to the cohort",
        "A decision is a whole hour of a stay that has a whole hour after it.",
    )


def total(con: Any, sql: str) -> int:
    """The one number that a query returns; 0 if it is NULL."""
    return int(con.execute(sql).fetchone()[0] or 0)


def summary(con: Any) -> dict[str, Any]:
    """Counts and shares that describe the decisions of the cohort.

    Args:
        con: A DuckDB connection to the database of `build`, after its last step.

    Returns:
        n_stays, patients and decisions (counts); bolus_hours and vasopressor_hours (shares of the
        decisions with that treatment); mean_reward; rewards_missing (decisions); died and cut
        (stays that end with death within the horizon, and that are cut at the horizon).

    Example:
        >>> import duckdb
        >>> con = duckdb.connect()
        >>> made = con.execute(
        ...     "SET VARIABLE horizon = 72;"
        ...     "CREATE TABLE cohort AS SELECT 1 AS stay_id, true AS died, 3 AS n_hours;"
        ...     "CREATE TABLE decisions AS SELECT 1 AS stay_id, 'death' AS ended FROM range(2);"
        ...     "CREATE TABLE rewarded AS SELECT 1 AS stay_id, 7 AS subject_id, i AS bolus, "
        ...     "0 AS vasopressor, 0.5 * i AS reward FROM range(2) t(i)"
        ... )
        >>> facts = summary(con)
        >>> facts["decisions"], facts["bolus_hours"], facts["mean_reward"], facts["died"]
        (2, 0.5, 0.25, 1)
        >>> con.close()
    """
    numbers = con.execute(
        "SELECT count(DISTINCT stay_id), count(DISTINCT subject_id), count(*), "
        "avg(CAST(bolus > 0 AS INTEGER)), avg(CAST(vasopressor > 0 AS INTEGER)), "
        "coalesce(CAST(sum(CAST(reward AS DECIMAL(18, 12))) AS DOUBLE) / count(reward), 'nan'), "
        "count(*) - count(reward) FROM rewarded"
    ).fetchone()
    names = (
        "n_stays", "patients", "decisions", "bolus_hours", "vasopressor_hours", "mean_reward",
        "rewards_missing",
    )  # fmt: skip
    facts = dict(zip(names, numbers, strict=True))
    facts["died"] = total(
        con, "SELECT count(*) FROM cohort WHERE died AND n_hours < getvariable('horizon')"
    )
    facts["cut"] = total(con, "SELECT count(DISTINCT stay_id) FROM decisions WHERE ended = 'cut'")
    return facts


def notes(con: Any) -> tuple[str, ...]:
    """What is unusual in the tables and how it was treated, in sentences.

    Args:
        con: A DuckDB connection to the database of `build`, after its last step.

    Returns:
        The sentences; empty if nothing is unusual.

    Example:
        >>> import duckdb
        >>> con = duckdb.connect()
        >>> made = con.execute(
        ...     "SET VARIABLE rate_cap = 3;"
        ...     "CREATE TABLE pressor_rates AS SELECT 'dopamine' AS concept, 'mL' AS unit, "
        ...     "1.0 AS rate, NULL::DOUBLE AS unit_factor, 0.01 AS equivalent;"
        ...     "CREATE TABLE rewarded AS SELECT 1.0 AS reward"
        ... )
        >>> notes(con)
        ("1 rows of dopamine have the unit 'mL', which is unknown: left out.",)
        >>> con.close()
    """
    sentences = []
    for concept, unit, n in con.execute(
        "SELECT concept, unit, count(*) FROM pressor_rates WHERE unit_factor IS NULL AND rate > 0 "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        sentences.append(
            f"{n:,} rows of {concept} have the unit {unit!r}, which is unknown: left out."
        )
    capped = total(
        con,
        "SELECT count(*) FROM pressor_rates WHERE rate * unit_factor * equivalent > "
        "getvariable('rate_cap')",
    )
    if capped:
        sentences.append(f"{capped:,} vasopressor rates are outliers and count as the cap.")
    blank = total(con, "SELECT count(*) FROM rewarded WHERE reward IS NULL")
    if blank:
        sentences.append(
            f"{blank:,} decisions have no mean pressure charted up to the end of the next hour: "
            "their reward is missing until the training median fills it."
        )
    return tuple(sentences)


# --- From a folder of MIMIC tables to stays.parquet: one hourly treatment decision per row

STEPS = (
    "stays", "charted", "cohort", "labs", "urine", "LAYOUT", "vasopressors", "boluses", "events",
    "features", "actions", "reward",
)  # fmt: skip
"""The SQL files in the order they are run; LAYOUT stands for the file of the tables' layout."""

CONCEPTS = {
    "chart": ("map", "sbp", "dbp", "fio2", "gcs_eye", "gcs_verbal", "gcs_motor", "weight"),
    "lab": ("lactate", "creatinine", "alt", "ast", "po2", "fio2"),
    "output": ("urine", "irrigant"),
    "input": ("norepinephrine", "epinephrine", "phenylephrine", "dopamine", "vasopressin", "fluid"),
}  # fmt: skip
"""Source of an item → what its items may measure or give (the column `concept` of a list)."""


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Which stays are included, and the numbers in the rules of the study.

    Attributes:
        horizon: Hours of each stay that are used, from its beginning, at least 2. Default 72.
        low_map: A mean arterial pressure below this is low, mmHg. Default 65.
        low_n: Number of low pressures that a stay must have within the horizon. Default 7.
        look_back: Hours before the stay whose values count as known. Default 6.
        bolus_ml: Smallest volume that counts as a bolus, mL. Default 200.
        bolus_edges: Upper edges of bolus levels 1 and 2, mL. Default (500, 1000).
        vasopressor_edges: Upper edges of vasopressor levels 1 and 2, mcg/kg per hour. Default
            (8.1, 21.58).
        rate_cap: Largest rate of an infusion, norepinephrine-equivalent mcg/kg/min; faster ones
            count as this. Default 3.
        usual_weight: Weight of a patient whose weight is not known, kg. Default 80.
        hold: For CareVue (MIMIC-III): largest number of hours that a charted rate holds. Default 2.

    Raises:
        ParameterError: A number is outside its range.

    Example:
        >>> Cohort(horizon=48).low_map
        65.0
    """

    horizon: int = 72
    low_map: float = 65.0
    low_n: int = 7
    look_back: int = 6
    bolus_ml: float = 200.0
    bolus_edges: tuple[float, float] = (500.0, 1000.0)
    vasopressor_edges: tuple[float, float] = (8.1, 21.58)
    rate_cap: float = 3.0
    usual_weight: float = 80.0
    hold: int = 2

    def __post_init__(self) -> None:
        for name, least in (("horizon", 2), ("low_n", 1), ("look_back", 1), ("hold", 1)):
            check_whole(name, getattr(self, name), least)
        for name in ("low_map", "bolus_ml", "rate_cap", "usual_weight"):
            check_number(name, getattr(self, name), "(0, infinity)")
        for name in ("bolus_edges", "vasopressor_edges"):
            check_edges(name, getattr(self, name))


def check_edges(name: str, edges: Any) -> None:
    """Refuse edges that are not two rising numbers above 0; `name` is used in the message."""
    if len(edges) != 2 or not 0 < edges[0] < edges[1] < float("inf"):
        raise wrong(name, "two rising numbers above 0", edges)


@dataclass(frozen=True)
class Built:
    """What `build` made.

    Attributes:
        path: The Parquet file of decisions.
        flow: Number of stays and patients left after each condition.
        summary: Counts and shares that describe the decisions.
        notes: What was unusual and how it was treated, in sentences.
        layout: "MIMIC-IV" or "MIMIC-III".

    Example:
        >>> flow = Table({"condition": ["all stays"], "stays": [12], "patients": [11]})
        >>> Built(Path("stays.parquet"), flow, {"decisions": 675}, (), "MIMIC-IV").layout
        'MIMIC-IV'
    """

    path: Path
    flow: Table
    summary: dict[str, Any]
    notes: tuple[str, ...]
    layout: str

    def to_dict(self) -> dict[str, Any]:
        """All attributes and the data dictionary, as values that JSON can carry.

        Returns:
            The keys stays (the file), layout, flow, notes, dictionary, and those of `summary`.

        Example:
            >>> flow = Table({"condition": ["all stays"], "stays": [12], "patients": [11]})
            >>> built = Built(Path("stays.parquet"), flow, {"decisions": 675}, (), "MIMIC-IV")
            >>> built.to_dict()["decisions"]
            675
        """
        return {
            "stays": str(self.path), "layout": self.layout, "flow": self.flow.to_dicts(),
            **self.summary, "notes": list(self.notes), "dictionary": dictionary().to_dicts(),
        }  # fmt: skip

    def __str__(self) -> str:
        s = self.summary
        shares = (
            f"A bolus in {100 * s['bolus_hours']:.1f} % of the hours, a vasopressor in "
            f"{100 * s['vasopressor_hours']:.1f} %; mean reward {s['mean_reward']:.3f}; "
            f"{s['died']:,} stays end with death, {s['cut']:,} are cut at the horizon."
        )
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([str(self.flow), "", shares, *notes])


def build(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    cohort: Cohort | None = None,
    items: str | os.PathLike[str] | None = None,
    memory: str = "4GB",
    threads: int | None = None,
    temp: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Built:
    """Build the hypotension cohort from a folder of MIMIC tables, and write its decisions.

    The data dictionary and the flow of counts are written beside `out`, as `OUT.dictionary.md` and
    `OUT.flow.md`.

    Args:
        folder: MIMIC-IV (with `icu/` and `hosp/`) or MIMIC-III (flat): csv.gz, csv or parquet.
        out: The `.parquet` file to write.
        cohort: Which stays are included, and the numbers in the rules. Default None: `Cohort()`.
        items: A CSV file of item codes to use instead of the packaged list, with the same columns.
            Default None.
        memory: Memory limit of DuckDB; what does not fit goes to disk. Default "4GB".
        threads: Number of threads; the result does not depend on it. Default None: DuckDB's own.
        temp: A folder with room for temporary files. Default None: the system's.
        progress: Called with the name of the stage and the share of it that is done. Default None.

    Returns:
        The file, the flow of counts and a summary.

    Raises:
        LogError: Tables or columns are missing, or no stay is in the cohort.
        ParameterError: An argument is outside its range.

    Example:
        >>> import tempfile
        >>> import dprl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = dprl.icu.simulate(Path(folder) / "tables", stays=12, seed=0)
        ...     built = build(Path(folder) / "tables", Path(folder) / "stays.parquet")
        >>> built.layout, built.summary["decisions"]
        ('MIMIC-IV', 675)
    """
    target = Path(out)
    if target.suffix.lower() != ".parquet":
        raise ParameterError(f"{str(target)!r} must end in .parquet.")
    if not target.parent.is_dir():
        raise LogError(f"the folder of {str(target)!r} does not exist.", do="Make it first.")
    beside = {kind: target.with_name(f"{target.stem}.{kind}.md") for kind in ("dictionary", "flow")}
    check_target(target, *beside.values())
    rules = cohort or Cohort()
    tables = find_tables(Path(folder))
    report = progress or (lambda stage, share: None)
    room = str(temp or tempfile.gettempdir())
    read: list[str | Path] = [*tables.files.values(), _items_file(items)]
    with (
        said_if_short("building the cohort", room),
        database(memory, threads, temp, "icu", read, [target.parent]) as con,
    ):
        tables.open(con)
        load_items(con, items)
        set_variables(con, **asdict(rules), usual_map=None)
        for i, step in enumerate(STEPS):
            report(f"{tables.layout.name}: {step.lower()}", i / len(STEPS))
            if step == "features":
                make_hours(con)
            run_sql(con, tables.layout.sql if step == "LAYOUT" else step, tables)
            if step == "cohort":
                _refuse_empty(con, tables, rules)
        built = Built(target, flow(con, rules), summary(con), notes(con), tables.layout.name)
        _write(con, built, target)
    report(f"{tables.layout.name}: done", 1.0)
    return built


def run_sql(con: Any, name: str, tables: Tables | None = None) -> None:
    """Run one of the packaged SQL files.

    Args:
        con: A DuckDB connection to the database of `build`, or of `Stays.open`.
        name: Name of the file in `sql/`, without its ending.
        tables: The user's tables, named in an error about a wrong value. Default None.

    Raises:
        LogError: A value of a table has the wrong type, or the memory limit is too small.

    Example:
        >>> import dprl
        >>> tables = dprl.icu.simulate("tables", stays=12, seed=0)
        >>> built = build("tables", "stays.parquet")
        >>> with dprl.icu.read_stays("stays.parquet").open() as con:
        ...     set_variables(con, bolus_edges=(500, 1000), vasopressor_edges=(8.1, 21.58))
        ...     run_sql(con, "actions")
        ...     con.execute("SELECT max(bolus) FROM acted").fetchone()
        (3,)
    """
    import duckdb

    text = (
        resources.files("dprl_studies.icu")
        .joinpath("sql", f"{name}.sql")
        .read_text(encoding="utf-8")
    )
    try:
        con.execute(text)
    except duckdb.ConversionException as error:
        raise LogError(
            "a table holds a value that is not what its column must be.",
            f"{name}.sql: {str(error).splitlines()[0]}",
            f"Mend it in {tables.folder if tables else 'the table'}.",
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise LogError(
            f"the memory limit is too small for the step {name!r}.",
            str(error).splitlines()[0],
            "Give it more (memory='8GB'), or fewer threads.",
        ) from error


def set_variables(con: Any, **values: Any) -> None:
    """Set the variables that the SQL files use.

    Args:
        con: A DuckDB connection.
        values: Name of a variable → a number, a tuple of numbers, or None for NULL.

    Example:
        >>> import duckdb
        >>> with duckdb.connect() as con:
        ...     set_variables(con, low_n=7, usual_map=None)
        ...     con.execute("SELECT getvariable('low_n')").fetchone()
        (7,)
    """
    for name, value in values.items():
        text = "NULL::DOUBLE" if value is None else str(value)
        if isinstance(value, tuple):
            text = f"[{', '.join(map(repr, value))}]::DOUBLE[]"
        con.execute(f"SET VARIABLE {name} = {text}")


def _items_file(items: str | os.PathLike[str] | None) -> str:
    """The file of item codes: the one that is named, or the packaged list."""
    packaged = resources.files("dprl_studies.icu").joinpath("items.csv")
    return str(packaged) if items is None else os.fspath(items)


def load_items(con: Any, items: str | os.PathLike[str] | None) -> None:
    """Make the table `items`: what each item code measures or gives, and its valid range.

    It is read from the CSV file `items`, or from the packaged list if that is None.
    """
    import duckdb

    path = _items_file(items)
    if not Path(path).is_file():
        raise LogError(f"there is no file {path!r}.", do="Name a CSV file of item codes.")
    types = (
        "{'concept': 'VARCHAR', 'source': 'VARCHAR', 'itemid': 'BIGINT', 'rank': 'INTEGER', "
        "'low': 'DOUBLE', 'high': 'DOUBLE', 'label': 'VARCHAR'}"
    )
    try:
        con.execute(
            f"CREATE TABLE items AS SELECT * FROM read_csv({quoted(literal(path), chr(39))}, "
            f"header = true, hive_partitioning = false, columns = {types})"
        )
    except duckdb.Error as error:
        raise LogError(
            "the list of items cannot be read.",
            f"{path}: {str(error).splitlines()[0]}",
            "Its columns are concept, source, itemid, rank, low, high, label.",
        ) from error
    pairs = con.execute("SELECT DISTINCT source, concept FROM items ORDER BY ALL").fetchall()
    for source, concept in pairs:
        if concept not in CONCEPTS.get(source, ()):
            raise LogError(
                f"the list of items has a concept {concept!r} of source {source!r}.",
                path,
                "; ".join(f"{s}: {', '.join(c)}" for s, c in CONCEPTS.items()) + ".",
            )
    double = con.execute(
        "SELECT itemid FROM items GROUP BY source, itemid HAVING count(*) > 1 ORDER BY 1"
    ).fetchone()
    if double:
        raise LogError("an item is listed twice.", f"{path}: itemid {double[0]}")


# -- messages and files ----------------------------------------------------------------------------


def _refuse_empty(con: Any, tables: Tables, rules: Cohort) -> None:
    """Raise an error that explains why no stay is in the cohort, if none is."""
    if con.execute("SELECT count(*) FROM cohort").fetchone()[0]:
        return
    stays = con.execute("SELECT count(*) FROM icustays").fetchone()[0]
    charted, most = con.execute("SELECT count(*), coalesce(max(low), 0) FROM pressures").fetchone()
    raise LogError(
        f"none of {stays:,} stays is in the cohort: {charted:,} have a mean pressure charted, and "
        f"the most below {rules.low_map:g} mmHg in one stay are {most:,} of {rules.low_n} asked "
        "for.",
        f"{tables.files['chartevents']}",
        "Are the items of mean pressure those of this hospital? See the how-to, items=.",
    )


def _write(con: Any, built: Built, target: Path) -> None:
    """Write the decisions to `target`, and the dictionary and the flow of counts beside it."""
    columns = ", ".join(COLUMNS)
    con.execute("SET preserve_insertion_order = true")  # else row groups may change places
    with together():
        with replacing(target) as part:
            con.execute(
                f"COPY (SELECT {columns} FROM rewarded ORDER BY stay_id, hour) TO "
                f"{quoted(str(part), chr(39))} (FORMAT parquet, COMPRESSION zstd, "
                "USE_TMP_FILE false)"
            )
        for kind, table in (("dictionary", dictionary()), ("flow", built.flow)):
            with replacing(target.with_name(f"{target.stem}.{kind}.md")) as part:
                part.write_text(table.to_markdown(), encoding="utf-8")
