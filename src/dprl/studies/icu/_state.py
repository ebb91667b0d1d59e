"""The state of the study, told to the builder of events (`dprl.logs.events`).

The tables of MIMIC become events of one row per stay, hour and concept (`sql/grid.sql`). What a
decision knows of them is said here feature by feature, and made by the builder, which proves that
nothing of the decision's own hour or later is in it. Doses of treatments, their levels (whose
edges may come from the training split) and the reward (which looks one hour further, bends, and
takes two conditions together) are more than a spec can say; they are SQL of the study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dprl.logs.events._codes import Use
from dprl.logs.events._database import text
from dprl.logs.events._episodes import make_decisions
from dprl.logs.events._fields import HOUR
from dprl.logs.events._state import make_state
from dprl.logs.events.spec import Clock, Feature, Source

__all__ = ["STATE", "StudyState", "make_hours"]

LAST = (
    "fio2", "lactate", "urine", "map", "gcs_eye", "gcs_verbal", "gcs_motor", "alt", "ast", "sbp",
    "dbp", "creatinine", "po2",
)  # fmt: skip
EVER = ("fio2", "lactate", "alt", "ast", "creatinine", "po2")
GCS = ("gcs_eye", "gcs_verbal", "gcs_motor")


def _given(name: str, codes: str, places: int) -> list[Feature]:
    """What was given of a treatment before the decision: in all, in 8 hours, in the last one."""
    return [
        Feature(name=f"total_{name}", take="sum", codes=codes, within="history", places=places),
        Feature(name=f"total_{name}_8h", take="sum", codes=codes, within="8 h", places=places),
        Feature(name=f"last_{codes}", take="last", codes=codes, within="1 h", fill=0.0),
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
        *_given("vasopressor", "vasopressor_dose", 9),
        *_given("bolus", "bolus_ml", 1),
    ),
    clock=Clock(every="1 h"),
    source=Source(),
)
"""The features of an hourly decision; those of the look-back before the stay count as known."""


def make_hours(con: Any) -> None:
    """Make the table `state_of_hour`: stay_id, hour, and the features of `STATE`.

    Args:
        con: A DuckDB connection to the database of `build`, after the step `grid`.
    """
    uses = [Use(f"f{i}", ("feature", i), f.codes) for i, f in enumerate(STATE.features)]
    rows = ", ".join(
        f"({text(use.role)}, {text(code)}, {rank})"
        for use in uses
        for rank, code in enumerate(use.codes)
    )
    con.execute(
        f"""
        CREATE TEMP TABLE codes AS SELECT concept AS code,
            CAST(row_number() OVER (ORDER BY concept) AS INTEGER) AS id
        FROM (SELECT DISTINCT code AS concept FROM (VALUES {rows}) AS v(role, code, rank));
        CREATE TEMP TABLE roles AS SELECT role, id, rank
        FROM (VALUES {rows}) AS v(role, code, rank) JOIN codes USING (code);
        CREATE TEMP TABLE ev AS SELECT h.stay_id AS subject,
            epoch_us(c.intime) + h.hour * {HOUR} AS t, CAST(NULL AS BIGINT) AS u, t AS k, id,
            h.value AS v
        FROM hourly AS h JOIN cohort AS c USING (stay_id) JOIN codes ON h.concept = codes.code;
        CREATE TEMP TABLE spans AS SELECT CAST(stay_id AS VARCHAR) AS episode, stay_id AS subject,
            epoch_us(intime) AS start, epoch_us(intime) + (n_hours - 1) * {HOUR} AS finish,
            true AS closed, '' AS ended FROM cohort
        """
    )
    make_decisions(con, STATE)
    make_state(con, STATE)
    con.execute(
        "CREATE TABLE state_of_hour AS SELECT e.subject AS stay_id, CAST(s.k AS INTEGER) AS hour, "
        "s.* EXCLUDE (episode, k) FROM state AS s JOIN episodes AS e USING (episode)"
    )
    for name in ("codes", "roles", "ev", "spans", "episodes", "decisions", "state", "state_rows",
                 "carried", "dealt", "doses", "static"):  # fmt: skip
        con.execute(f"DROP TABLE temp.{name}")
