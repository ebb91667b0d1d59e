"""Events from a small OMOP database, in files and in DuckDB."""

from __future__ import annotations

import duckdb
import pytest

import dprl
from dprl.errors import LogError
from dprl.logs.events import build

TABLES = {
    "person": "SELECT 1 AS person_id, 8532 AS gender_concept_id, TIMESTAMP '1950-05-05 00:00:00' AS birth_datetime "
    "UNION ALL SELECT 2, 8507, NULL",
    "visit_occurrence": "SELECT * FROM (VALUES (1, 9201, DATE '2024-03-01', TIMESTAMP '2024-03-01 08:00:00', "
    "DATE '2024-03-02', TIMESTAMP '2024-03-02 08:00:00'), (2, 9201, DATE '2024-03-05', NULL, DATE '2024-03-06', NULL)) "
    "AS t(person_id, visit_concept_id, visit_start_date, visit_start_datetime, visit_end_date, visit_end_datetime)",
    "measurement": "SELECT * FROM (VALUES (1, 3027598, DATE '2024-03-01', TIMESTAMP '2024-03-01 09:00:00', 61.5), "
    "(1, 3027598, DATE '2024-03-01', NULL, 70.0), (1, 3027598, DATE '2024-03-01', TIMESTAMP '2024-03-01 00:00:00', 71.0), "
    "(2, 3027598, DATE '2024-03-05', TIMESTAMP '2024-03-05 03:00:00', 80.0), "
    "(2, 999, DATE '2024-03-05', TIMESTAMP '2024-03-05 03:00:00', NULL)) "
    "AS t(person_id, measurement_concept_id, measurement_date, measurement_datetime, value_as_number)",
    "drug_exposure": "SELECT 1 AS person_id, 1321341 AS drug_concept_id, DATE '2024-03-01' AS drug_exposure_start_date, "
    "TIMESTAMP '2024-03-01 10:00:00' AS drug_exposure_start_datetime, DATE '2024-03-01' AS drug_exposure_end_date, "
    "TIMESTAMP '2024-03-01 18:00:00' AS drug_exposure_end_datetime, 80.0 AS quantity",
    "condition_occurrence": "SELECT 1 AS person_id, 132797 AS condition_concept_id, DATE '2024-02-01' AS condition_start_date, "
    "NULL::TIMESTAMP AS condition_start_datetime",
    "death": "SELECT 2 AS person_id, DATE '2024-03-06' AS death_date, NULL::TIMESTAMP AS death_datetime",
}  # fmt: skip
SPEC = """
[source]
preset = "omop"
files = "omop"
[episodes]
by = "code"
start = "visit/9201"
[[end]]
codes = "death"
ended = "died"
[[end]]
codes = "visit_end/9201"
[clock]
every = "8 h"
[[feature]]
name = "map"
take = "last"
codes = "measurement/3027598"
within = "48 h"
[[feature]]
name = "sepsis"
take = "ever"
codes = "condition/132797"
within = "history"
[[feature]]
name = "female"
take = "ever"
codes = "gender/8532"
static = true
[[action.part]]
name = "norepinephrine"
codes = "drug/1321341"
take = "amount"
edges = [0, 40]
[[reward]]
at = "end"
ended = "died"
times = -1
"""


def write(folder, ending="parquet", without=()):
    folder.mkdir(exist_ok=True)
    with duckdb.connect() as con:
        for name, sql in TABLES.items():
            if name not in without:
                con.execute(f"COPY ({sql}) TO '{folder}/{name}.{ending}'")


@pytest.mark.parametrize("kind", ["parquet", "csv", "duckdb"])
def test_omop_tables_make_a_log(tmp_path, kind):
    spec = SPEC
    if kind == "duckdb":
        with duckdb.connect(str(tmp_path / "omop.duckdb")) as con:
            con.execute("CREATE SCHEMA cdm")
            for name, sql in TABLES.items():
                con.execute(f"CREATE TABLE cdm.{name} AS {sql}")
        spec = SPEC.replace('"omop"\n[epi', '"omop.duckdb"\n[epi')
    else:
        write(tmp_path / "omop", kind)
    (tmp_path / "spec.toml").write_text(spec)
    log = dprl.from_events(None, tmp_path / "spec.toml")
    # 08:00, 16:00, 24:00 of person 1: rows of a day without an hour are known when it is over, and
    # of rows at one time (midnight) the lowest counts less than the later one of 09:00
    assert log.features[:3, 0].tolist()[1:] == [61.5, 61.5]
    assert log.features[:3, 1].tolist() == [1.0, 1.0, 1.0]
    assert log.features[:, 2].tolist() == [1.0] * 3 + [0.0] * 3
    assert [log.actions[a] for a in log.action] == [
        "norepinephrine 2",
        "norepinephrine 1",
        "none",
    ] + ["none"] * 3
    assert log.reward.tolist() == [0.0] * 5 + [-1.0]
    assert log.features[3:, 0].tolist()[1:] == [80.0, 80.0]


def test_omop_tables_that_cannot_be_used(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "omop").mkdir()

    def refused():
        with pytest.raises(LogError) as error:
            build(None, tmp_path / "spec.toml", tmp_path / "log.parquet")
        assert not (tmp_path / "log.parquet").exists()
        return error.value

    assert refused().what == "there is no table of OMOP."
    write(tmp_path / "omop", without=("death",))
    assert refused().what == "no event has the code 'death'."
    write(tmp_path / "omop", "csv")
    assert "is there 2 times" in refused().what
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT 1 AS person_id) TO '{tmp_path}/omop/measurement.parquet'")
        (tmp_path / "omop" / "measurement.csv").unlink()
    for name in TABLES:
        (tmp_path / "omop" / f"{name}.csv").unlink(missing_ok=True)
    assert refused().what == "the table measurement has no column 'measurement_date'."
    (tmp_path / "spec.toml").write_text(SPEC.replace('files = "omop"', 'files = "none"'))
    assert "there is no folder or file" in refused().what
