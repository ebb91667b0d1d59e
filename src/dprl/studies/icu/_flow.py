"""What a cohort holds: its flow of counts, a summary, and notes in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dprl._core.table import Table

if TYPE_CHECKING:
    from dprl.studies.icu.stays import Cohort

__all__ = ["count", "flow", "notes", "summary"]


def count(con: Any, sql: str) -> tuple[int, int]:
    """Stays and patients of a query over `stays`."""
    found = con.execute(f"SELECT count(*), count(DISTINCT subject_id) FROM stays {sql}").fetchone()
    return int(found[0]), int(found[1])


def flow(con: Any, rules: Cohort) -> Table:
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
    return int(con.execute(sql).fetchone()[0] or 0)


def summary(con: Any) -> dict[str, Any]:
    found = con.execute(
        "SELECT count(DISTINCT stay_id), count(DISTINCT subject_id), count(*), "
        "avg(CAST(bolus > 0 AS INTEGER)), avg(CAST(vasopressor > 0 AS INTEGER)), "
        "coalesce(CAST(sum(CAST(reward AS DECIMAL(18, 12))) AS DOUBLE) / count(reward), 'nan'), "
        "count(*) - count(reward) FROM rewarded"
    ).fetchone()
    names = (
        "n_stays", "patients", "decisions", "bolus_hours", "vasopressor_hours", "mean_reward",
        "rewards_missing",
    )  # fmt: skip
    facts = dict(zip(names, found, strict=True))
    facts["died"] = total(
        con, "SELECT count(*) FROM cohort WHERE died AND n_hours < getvariable('horizon')"
    )
    facts["cut"] = total(con, "SELECT count(DISTINCT stay_id) FROM decisions WHERE ended = 'cut'")
    return facts


def notes(con: Any) -> tuple[str, ...]:
    notes = []
    for concept, unit, n in con.execute(
        "SELECT concept, unit, count(*) FROM pressor_rates WHERE unit_factor IS NULL AND rate > 0 "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall():
        notes.append(f"{n:,} rows of {concept} have the unit {unit!r}, which is unknown: left out.")
    capped = total(
        con,
        "SELECT count(*) FROM pressor_rates WHERE rate * unit_factor * equivalent > "
        "getvariable('rate_cap')",
    )
    if capped:
        notes.append(f"{capped:,} vasopressor rates are outliers and count as the cap.")
    blank = total(con, "SELECT count(*) FROM rewarded WHERE reward IS NULL")
    if blank:
        notes.append(
            f"{blank:,} decisions have no mean pressure charted up to the end of the next hour: "
            "their reward is missing until the training median fills it."
        )
    return tuple(notes)
