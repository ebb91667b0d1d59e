"""Convert a demo of MIMIC-IV or MIMIC-III to MEDS: one table of events, with DuckDB.

    python tests/helpers/mimic_as_meds.py DEMO OUT

writes OUT/data/demo/0.parquet: subject_id, time, code, numeric_value, sorted by subject and time, with
the rows without a time first. Codes are

    MEDS_BIRTH, MEDS_DEATH, GENDER//F
    ICU_ADMISSION//UNIT, ICU_DISCHARGE//UNIT
    LAB//ITEM//UNIT                  what was charted, measured in a laboratory, or came out
    INFUSION_START//ITEM             with the rate; a rate that changes is a start, too
    INFUSION_END//ITEM
    BOLUS//ITEM                      with the amount, where there is no rate
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

IV = """
    CREATE VIEW stays AS SELECT subject_id, hadm_id, intime, outtime, first_careunit AS unit FROM '{folder}/icu/icustays.csv';
    CREATE VIEW admitted AS FROM '{folder}/hosp/admissions.csv';
    CREATE VIEW people AS SELECT subject_id, gender,
        make_timestamp(CAST(anchor_year - anchor_age AS BIGINT), 1, 1, 0, 0, 0) AS born FROM '{folder}/hosp/patients.csv';
    CREATE VIEW measured AS
        SELECT subject_id, charttime, itemid, valuenum, valueuom FROM '{folder}/icu/chartevents.parquet'
        UNION ALL SELECT subject_id, charttime, itemid, valuenum, valueuom FROM '{folder}/hosp/labevents.parquet'
        UNION ALL SELECT subject_id, charttime, itemid, value, valueuom FROM '{folder}/icu/outputevents.parquet';
    CREATE VIEW infused AS FROM '{folder}/icu/inputevents.parquet';
    CREATE VIEW charted_rates AS SELECT NULL AS subject_id, NULL AS charttime, NULL AS itemid, NULL AS rate, '' AS stopped
        WHERE false;
"""
III = """
    CREATE VIEW stays AS SELECT subject_id, hadm_id, intime, outtime, first_careunit AS unit FROM '{folder}/icustays.parquet';
    CREATE VIEW admitted AS FROM '{folder}/admissions.parquet';
    CREATE VIEW people AS SELECT subject_id, gender, dob AS born FROM '{folder}/patients.parquet';
    CREATE VIEW measured AS
        SELECT subject_id, charttime, itemid, valuenum, valueuom FROM '{folder}/chartevents.parquet' WHERE error IS DISTINCT FROM 1
        UNION ALL SELECT subject_id, charttime, itemid, valuenum, valueuom FROM '{folder}/labevents.parquet'
        UNION ALL SELECT subject_id, charttime, itemid, value, valueuom FROM '{folder}/outputevents.parquet';
    CREATE VIEW infused AS FROM '{folder}/inputevents_mv.parquet' WHERE statusdescription <> 'Rewritten';
    CREATE VIEW charted_rates AS SELECT subject_id, charttime, itemid, rate, coalesce(stopped, '') AS stopped
        FROM '{folder}/inputevents_cv.parquet';
"""
EVENTS = """
    SELECT subject_id, NULL AS time, 'GENDER//' || gender AS code, NULL AS numeric_value FROM people
    UNION ALL SELECT subject_id, born, 'MEDS_BIRTH', NULL FROM people
    UNION ALL SELECT subject_id, min(deathtime), 'MEDS_DEATH', NULL FROM admitted
        WHERE deathtime IS NOT NULL GROUP BY subject_id
    UNION ALL SELECT subject_id, intime, 'ICU_ADMISSION//' || unit, NULL FROM stays WHERE intime IS NOT NULL
    UNION ALL SELECT subject_id, outtime, 'ICU_DISCHARGE//' || unit, NULL FROM stays WHERE outtime IS NOT NULL
    UNION ALL SELECT subject_id, charttime, 'LAB//' || itemid || '//' || coalesce(valueuom, ''), valuenum
        FROM measured WHERE valuenum IS NOT NULL AND charttime IS NOT NULL
    UNION ALL SELECT subject_id, starttime, 'INFUSION_START//' || itemid, rate
        FROM infused WHERE rate IS NOT NULL AND endtime > starttime
    UNION ALL SELECT subject_id, endtime, 'INFUSION_END//' || itemid, NULL
        FROM infused WHERE rate IS NOT NULL AND endtime > starttime
    UNION ALL SELECT subject_id, starttime, 'BOLUS//' || itemid, amount FROM infused WHERE rate IS NULL AND amount > 0
    UNION ALL SELECT subject_id, charttime, 'INFUSION_START//' || itemid, rate FROM charted_rates
        WHERE rate > 0 AND stopped NOT IN ('Stopped', 'D/C''d')
    UNION ALL SELECT subject_id, charttime, 'INFUSION_END//' || itemid, NULL FROM charted_rates
        WHERE rate = 0 OR stopped IN ('Stopped', 'D/C''d')
"""


def convert(demo, out):
    """Write the events of a demo; returns the file."""
    target = Path(out) / "data" / "demo" / "0.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    views = IV if (Path(demo) / "icu").is_dir() else III
    with duckdb.connect() as con:
        con.execute(views.format(folder=demo))
        con.execute(f"""COPY (
            SELECT CAST(subject_id AS BIGINT) AS subject_id, CAST(time AS TIMESTAMP) AS time, code,
                CAST(numeric_value AS FLOAT) AS numeric_value FROM ({EVENTS})
            ORDER BY subject_id, time NULLS FIRST, code, numeric_value
        ) TO '{target}' (FORMAT parquet)""")
    return target


if __name__ == "__main__":
    print(convert(sys.argv[1], sys.argv[2]))
