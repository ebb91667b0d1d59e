"""From a folder of MIMIC tables to stays.parquet: one hourly treatment decision per row.

The work is SQL, one concept per file (`sql/`), run in this order by DuckDB on a database in a
temporary folder. Tables are scanned with filters on items and stays, never loaded as a whole; what
does not fit into the memory limit goes to disk.

    stays → charted → cohort → labs, urine → infusions, fluids → vasopressors, boluses → events
    → features → actions → reward

What an hour knows of the events, what is given in it and how the next one goes is made by the
builder of `dprl.logs.events`, as `dprl_studies.icu._state` says.

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
from dprl._core.disk import check_target, replacing, together
from dprl._core.limits import said_if_short
from dprl._core.table import Table
from dprl.errors import LogError, ParameterError
from dprl.logs._files import Progress
from dprl.logs._scans import literal
from dprl.logs._sources import quoted
from dprl.logs.events._database import database
from dprl_studies.icu._flow import flow, notes, summary
from dprl_studies.icu._state import make_hours
from dprl_studies.icu.dictionary import COLUMNS, dictionary
from dprl_studies.icu.tables import Tables, find_tables

__all__ = ["Built", "Cohort", "build", "run_sql", "set_variables"]

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
