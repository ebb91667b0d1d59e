"""Describe a cohort: stays left after each condition, counts and shares, and notes in words.

All functions read tables of the DuckDB database in which `dprl_studies.icu.stays.build` works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dprl._core.table import Table

if TYPE_CHECKING:
    from dprl_studies.icu.stays import Cohort

__all__ = ["count", "flow", "notes", "summary"]


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
