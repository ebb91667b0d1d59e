"""The two open demos of MIMIC, converted to MEDS: the builder against a slow reading in plain Python.

The demos are not part of this project. Where they are absent the tests skip.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import duckdb
import numpy as np
import pytest
from mimic_as_meds import convert
from random_events import rows_of
from slow_events import Event, assert_same_rows, rank_of, slow_log

from dprl.logs.events import build, read_spec

DATA = Path(os.environ.get("DPRL_DATA", Path(__file__).parents[4] / "shared" / "data"))
MAP = {
    "iv": ("220052//mmHg", "220181//mmHg"),
    "iii": ("52//mmHg", "220052//mmHg", "456//mmHg", "220181//mmHg"),
}
URINE = {"iv": ("226559//mL",), "iii": ("226559//mL", "40055//ml")}
PRESSOR = {"iv": ("221906",), "iii": ("221906", "30120")}
SPEC = """
[source]
preset = "meds"
files = "data/*/*.parquet"
[episodes]
by = "code"
start = "ICU_ADMISSION//*"
[[end]]
codes = "MEDS_DEATH"
ended = "died"
[[end]]
codes = "ICU_DISCHARGE//*"
[clock]
every = "4 h"
horizon = "72 h"
[[feature]]
name = "map"
take = "last"
codes = {map}
within = "24 h"
valid = [10, 200]
[[feature]]
name = "lowest"
take = "min"
codes = {map}
within = "4 h"
valid = [10, 200]
[[feature]]
name = "mean"
take = "mean"
codes = {map}
within = "episode"
valid = [10, 200]
[[feature]]
name = "slope"
take = "slope"
codes = {map}
within = "8 h"
valid = [10, 200]
[[feature]]
name = "urine"
take = "sum"
codes = {urine}
within = "6 h"
[[feature]]
name = "charted"
take = "count"
codes = {map}
within = "4 h"
known_after = "30 min"
[[feature]]
name = "lactate"
take = "last"
codes = "LAB//50813//mmol/L"
within = "history"
known_after = "1 h"
[[feature]]
name = "lactate_age"
take = "age"
codes = "LAB//50813//mmol/L"
within = "history"
fill = 99
[[feature]]
name = "pressor_before"
take = "dose"
codes = "pressor"
within = "8 h"
[[feature]]
name = "age"
take = "age"
codes = "MEDS_BIRTH"
within = "history"
[[feature]]
name = "female"
take = "ever"
codes = "GENDER//F"
static = true
[[feature]]
name = "hours"
take = "elapsed"
[[interval]]
name = "pressor"
start = {start}
stop = {stop}
longest = "12 h"
[action]
combine = "joint"
[[action.part]]
name = "pressor"
codes = "pressor"
take = "dose"
edges = [0, 0.2, 1]
[[action.part]]
name = "saline"
codes = ["BOLUS//225158", "INFUSION_START//225158"]
take = "any"
[[reward]]
take = "min"
codes = {map}
side = "finish"
times = 0.01
valid = [10, 200]
missing = 0.6
[[reward]]
at = "end"
ended = "died"
times = -1
"""  # fmt: skip


def listed(words):
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


def prepared(demo, out):
    """The events of a demo and the text of a spec, in a folder; the file of events."""
    folder = DATA / f"mimic-{demo}-demo"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: the demo is not part of the project (see DPRL_DATA)")
    (out / "spec.toml").write_text(
        SPEC.format(
            map=listed(f"LAB//{x}" for x in MAP[demo]),
            urine=listed(f"LAB//{x}" for x in URINE[demo]),
            start=listed(f"INFUSION_START//{x}" for x in PRESSOR[demo]),
            stop=listed(f"INFUSION_END//{x}" for x in PRESSOR[demo]),
        )
    )
    return convert(folder, out)


def events_of(file, spec, subjects):
    """Rows of these subjects as the slow reading takes them: those the spec names, and the last.

    Rows of other codes matter only for the moment of the subject's last row.
    """
    used = [*spec.episodes.start, *(code for part in (*spec.ends, *spec.features, *spec.rewards)
            for code in part.codes), *(code for part in spec.action.parts for code in part.codes)]  # fmt: skip
    used += [code for interval in spec.intervals for code in (*interval.start, *interval.stop)]
    chosen = ", ".join(map(str, subjects))
    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT CAST(subject_id AS VARCHAR), epoch_us(time), code, CAST(numeric_value AS DOUBLE), "
            "time = max(time) OVER (PARTITION BY subject_id) "
            f"FROM '{file}' WHERE subject_id IN ({chosen}) ORDER BY ALL"
        ).fetchall()
    return [
        Event(who, time, code, as_written(value))
        for who, time, code, value, is_last in rows
        if is_last or rank_of(code, used) is not None
    ]


def as_written(value):
    """The decimal that a number of 32 bits stands for: of six digits, else of seven."""
    for digits in (6, 7):
        plain = value if value is None else float(f"{value:.{digits}g}")
        if value is None or np.float32(plain) == np.float32(value):
            return plain
    return value


@pytest.mark.slow
@pytest.mark.parametrize("demo", ["iv", "iii"])
def test_a_sample_of_patients_read_slowly(tmp_path, demo):
    file = prepared(demo, tmp_path)
    spec = read_spec(tmp_path / "spec.toml")
    made = build(None, spec, tmp_path / "log.parquet", threads=1)
    names, rows = rows_of(made.path)
    with duckdb.connect() as con:
        stays, subjects = con.execute(
            "SELECT count(*), count(DISTINCT subject_id) FROM "
            f"'{file}' WHERE code LIKE 'ICU_ADMISSION//%'"
        ).fetchone()
        treated = f"code IN ({', '.join(repr(code) for code in spec.intervals[0].start)})"
        # treated patients first, some who died, then any: the sample sees every part of the spec
        sample = [row[0] for row in con.execute(
            f"SELECT subject_id FROM '{file}' GROUP BY 1 ORDER BY bool_or({treated}) DESC, "
            "bool_or(code = 'MEDS_DEATH') DESC, hash(subject_id)").fetchall()]  # fmt: skip
    assert (made.counts["spans"], made.counts["with_episode"]) == (stays, subjects)
    sample = [*sample[:7], *sample[-3:]]
    where, n = names.index("subject"), 0
    for subject in sample:
        expected = slow_log(events_of(file, spec, [subject]), spec)
        mine = [row for row in rows if row[where] == str(subject)]
        n += assert_same_rows(
            names, mine, sorted(expected, key=lambda row: (row[0], row[2])), spec,
            lambda t: datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=t), subject,
        )  # fmt: skip
    taken = {row[names.index("action")] for row in rows if int(row[where]) in sample}
    assert n > 100
    assert len(taken) >= 6  # every level of both treatments
    assert {row[names.index("ended")] for row in rows} == {"died", "terminal", "cut"}
