"""What the study knows of its events, told to the builder of events (`dprl.logs.events`).

The tables of MIMIC become events (`sql/events.sql`): which items count, in which unit and range, is
SQL of the study. What an hour knows of them is said here feature by feature, and made by the
builder, which deals to an hour nothing of that hour or later. What was given in an hour, and how
the next one went, is what later hours know (`sql/features.sql`). Three things are more than a
spec can say, and are SQL of the study: which stays are in the cohort (it counts their low
pressures), the levels of doses (whose edges may come from the training split) and the reward (it
bends, takes two conditions together, and its missing pressures come from the training split).
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
        con.execute(f"DROP TABLE temp.{name}")
