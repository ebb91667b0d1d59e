"""Events in the schema of MEDS; and the MIMIC-IV demo, converted to it."""

from __future__ import annotations

import datetime
import importlib.util
import os
from pathlib import Path

import duckdb
import pytest

import dprl
from dprl.logs.events import build

pa = pytest.importorskip("pyarrow", reason="pyarrow writes the sample in the schema of MEDS")
pq = pytest.importorskip(
    "pyarrow.parquet", reason="pyarrow writes the sample in the schema of MEDS"
)

DATA = Path(os.environ.get("DPRL_DATA", Path(__file__).parents[4] / "shared" / "data"))
SCHEMA = pa.schema([
    ("subject_id", pa.int64()), ("time", pa.timestamp("us")), ("code", pa.string()),
    ("numeric_value", pa.float32()),
])  # fmt: skip
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
codes = ["LAB//220052//mmHg", "LAB//220181//mmHg"]
within = "24 h"
valid = [10, 200]
[[feature]]
name = "age"
take = "age"
codes = "MEDS_BIRTH"
within = "history"
times = 0.000114
unit = "years"
[[feature]]
name = "female"
take = "ever"
codes = "GENDER//F"
static = true
[[action.part]]
name = "norepinephrine"
codes = "INFUSION_START//221906"
[[reward]]
at = "end"
ended = "died"
times = -1
"""


def sample(folder):
    """Two shards of invented subjects: one row per event, sorted by subject, static rows first."""

    def row(who, time, code, value=None):
        return {"subject_id": who, "time": time, "code": code, "numeric_value": value}

    for shard, subjects in (("train", (1, 2)), ("held_out", (3,))):
        rows = []
        for who in subjects:
            start = datetime.datetime(2150, 1, who, 8)
            hours = [start + datetime.timedelta(hours=h) for h in range(30)]
            rows += [
                row(who, None, "GENDER//F" if who == 2 else "GENDER//M"),
                row(who, datetime.datetime(2100, 1, 1), "MEDS_BIRTH"),
                row(who, start, "ICU_ADMISSION//MICU"),
                row(who, hours[1], "LAB//220181//mmHg", 55.0),
                row(who, hours[1], "LAB//220052//mmHg", 58.5),
                row(who, hours[5], "INFUSION_START//221906", 0.1),
                row(who, hours[6], "LAB//220181//mmHg", 900.0),
                row(who, hours[10], "MEDS_DEATH" if who == 3 else "ICU_DISCHARGE//MICU"),
            ]
        path = folder / "data" / shard / "0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
        yield path


def test_a_sample_in_the_schema_of_meds(tmp_path):
    list(sample(tmp_path))
    (tmp_path / "spec.toml").write_text(SPEC)
    made = build(None, tmp_path / "spec.toml", tmp_path / "log.parquet")
    assert (made.counts["subjects"], made.counts["static"], made.counts["decisions"]) == (3, 3, 9)
    log = dprl.from_events(None, tmp_path / "spec.toml")
    assert log.features[:3, 0].tolist()[1:] == [
        58.5,
        58.5,
    ]  # the line before the cuff; 900 is no pressure
    assert log.features[:, 2].tolist() == [0.0] * 3 + [1.0] * 3 + [0.0] * 3
    assert log.features[0, 1] == pytest.approx(50, abs=0.1)
    assert [log.actions[a] for a in log.action[:3]] == ["none", "norepinephrine", "none"]
    assert log.reward.tolist() == [0.0] * 8 + [-1.0]
    assert log.events == ("died",)


def test_the_sample_is_meds_as_its_own_package_says(tmp_path):
    if importlib.util.find_spec("meds") is None:
        pytest.skip("the package meds, which has the schema, is not installed")
    import meds

    if not hasattr(meds, "DataSchema"):
        pytest.skip("the package meds is older than 0.4 and has no schema of its own to check by")
    for path in sample(tmp_path):
        table = pq.read_table(path)
        meds.DataSchema.validate(table)
    assert (meds.birth_code, meds.death_code) == ("MEDS_BIRTH", "MEDS_DEATH")


def as_meds(folder, out):
    """The demo of MIMIC-IV as one table of events; infusions as rows that start and stop them."""
    (out / "data" / "demo").mkdir(parents=True)
    with duckdb.connect() as con:
        con.execute(f"""
            CREATE VIEW stays AS FROM '{folder}/icu/icustays.csv';
            COPY (
                SELECT CAST(subject_id AS BIGINT) AS subject_id, CAST(time AS TIMESTAMP) AS time, code,
                    CAST(numeric_value AS FLOAT) AS numeric_value
                FROM (
                    SELECT subject_id, intime AS time, 'ICU_ADMISSION//' || stay_id AS code, NULL AS numeric_value FROM stays
                    UNION ALL SELECT subject_id, outtime, 'ICU_DISCHARGE//' || stay_id, NULL FROM stays
                    UNION ALL SELECT DISTINCT subject_id, CAST(deathtime AS TIMESTAMP), 'MEDS_DEATH', NULL
                        FROM '{folder}/hosp/admissions.csv' WHERE deathtime IS NOT NULL
                    UNION ALL SELECT subject_id, NULL, 'GENDER//' || gender, NULL FROM '{folder}/hosp/patients.csv'
                    UNION ALL SELECT s.subject_id, charttime, 'LAB//' || itemid || '//mmHg', valuenum
                        FROM '{folder}/icu/chartevents.parquet' JOIN stays AS s USING (stay_id)
                        WHERE itemid IN (220052, 220181) AND valuenum IS NOT NULL
                    UNION ALL SELECT s.subject_id, starttime, 'INFUSION_START//' || itemid, rate
                        FROM '{folder}/icu/inputevents.parquet' JOIN stays AS s USING (stay_id)
                        WHERE itemid = 221906 AND rate IS NOT NULL AND endtime > starttime
                    UNION ALL SELECT s.subject_id, endtime, 'INFUSION_END//' || itemid, NULL
                        FROM '{folder}/icu/inputevents.parquet' JOIN stays AS s USING (stay_id)
                        WHERE itemid = 221906 AND rate IS NOT NULL AND endtime > starttime)
            ) TO '{out}/data/demo/0.parquet' (FORMAT parquet)""")


def test_the_demo_of_mimic_iv_as_meds(tmp_path):
    demo = DATA / "mimic-iv-demo"
    if not demo.is_dir():
        pytest.skip(f"{demo} is absent: the demo is not part of the project (see DPRL_DATA)")
    as_meds(demo, tmp_path)
    spec = SPEC.replace('every = "4 h"', 'every = "1 h"').replace(
        'name = "age"\ntake = "age"\ncodes = "MEDS_BIRTH"\nwithin = "history"\ntimes = 0.000114\nunit = "years"',
        'name = "low"\ntake = "min"\ncodes = ["LAB//220052//mmHg", "LAB//220181//mmHg"]\nwithin = "1 h"\nvalid = [10, 200]',
    ).replace(
        'codes = "INFUSION_START//221906"', 'codes = "ON"\ntake = "dose"\nedges = [0]'
    ) + '[[interval]]\nname = "ON"\nstart = "INFUSION_START//221906"\nstop = "INFUSION_END//221906"\nlongest = "48 h"\n'  # fmt: skip
    (tmp_path / "spec.toml").write_text(spec)
    made = build(None, tmp_path / "spec.toml", tmp_path / "log.parquet")
    with duckdb.connect() as con:
        stays, subjects = con.execute(
            f"SELECT count(*), count(DISTINCT subject_id) FROM '{demo}/icu/icustays.csv'"
        ).fetchone()
        # every pressure in the hour before is in the lowest of it: counted here in another way
        lowest = con.execute(f"""
            SELECT count(*) FROM '{made.path}' AS d WHERE d.low IS DISTINCT FROM (
                SELECT CAST(min(numeric_value) AS DOUBLE) FROM '{tmp_path}/data/demo/0.parquet' AS e
                WHERE CAST(e.subject_id AS VARCHAR) = d.subject AND e.code LIKE 'LAB//%'
                AND e.numeric_value BETWEEN 10 AND 200 AND e.time < d.time
                AND e.time >= d.time - INTERVAL 1 HOUR)""").fetchone()
    assert lowest == (0,)
    assert (made.counts["spans"], made.counts["with_episode"]) == (stays, subjects)
    assert made.counts["decisions"] > 5000
