"""Events in the schema of MEDS: a sample of invented subjects."""

from __future__ import annotations

import datetime
import importlib.util

import pytest

import dprl
from dprl.logs.events import build

pa = pytest.importorskip("pyarrow", reason="pyarrow writes the sample in the schema of MEDS")
pq = pytest.importorskip(
    "pyarrow.parquet", reason="pyarrow writes the sample in the schema of MEDS"
)

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
