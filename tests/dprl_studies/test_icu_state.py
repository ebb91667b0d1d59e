"""States, doses and outcomes that the builder of events makes are those of window functions over a grid."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from dprl.logs.events.moments import database
from dprl_studies import icu
from dprl_studies.icu.stays import (
    STATE,
    STEPS,
    Cohort,
    _items_file,
    find_tables,
    load_items,
    make_hours,
    run_sql,
    set_variables,
)

HELPERS = Path(__file__).parents[1] / "helpers"
DATA = Path(os.environ.get("DPRL_DATA", Path(__file__).parents[3] / "shared" / "data"))


def both(folder):
    """The decisions as the study makes them, and as the grid does; column → values, sorted."""
    tables = find_tables(folder)
    read = [*tables.files.values(), _items_file(None)]
    with database("2GB", 1, None, "icu", read) as con:
        tables.open(con)
        load_items(con, None)
        set_variables(con, **asdict(Cohort()), usual_map=None)
        for step in STEPS[: STEPS.index("features")]:
            run_sql(con, tables.layout.sql if step == "LAYOUT" else step, tables)
        con.execute((HELPERS / "icu_grid.sql").read_text())
        con.execute((HELPERS / "icu_features.sql").read_text())
        con.execute("ALTER TABLE decisions RENAME TO from_grid")
        make_hours(con)
        run_sql(con, "features")
        names = sorted(row[0] for row in con.execute("DESCRIBE from_grid").fetchall())
        assert sorted(con.execute("DESCRIBE decisions").fetchall()) == sorted(
            con.execute("DESCRIBE from_grid").fetchall()
        )
        sql = f"SELECT {', '.join(names)} FROM {{}} ORDER BY stay_id, hour"
        return [con.execute(sql.format(table)).fetchnumpy() for table in ("decisions", "from_grid")]


def assert_same_bits(made, expected):
    for name, values in expected.items():
        one, other = np.ma.asarray(made[name]), np.ma.asarray(values)
        assert np.array_equal(np.ma.getmaskarray(one), np.ma.getmaskarray(other)), name
        one, other = one.compressed(), other.compressed()
        if one.dtype.kind == "f":
            one, other = one.view(np.int64), other.view(np.int64)
        assert np.array_equal(one, other), name


def test_simulated_tables(tmp_path):
    icu.simulate(tmp_path, stays=40, seed=5)
    made, expected = both(tmp_path)
    assert len(expected["hour"]) > 1000
    assert_same_bits(made, expected)


@pytest.mark.parametrize("demo", ["mimic-iv-demo", "mimic-iii-demo"])
def test_demos(demo):
    if not (DATA / demo).is_dir():
        pytest.skip(f"{DATA / demo} is absent: the demo is not part of the project (see DPRL_DATA)")
    made, expected = both(DATA / demo)
    assert len(expected["hour"]) > 3000
    assert_same_bits(made, expected)


def test_later_hours_know_what_was_given_and_how_it_went(tmp_path):
    """An hour's treatment and outcome are dealt by the builder; its last hour has them too."""
    icu.simulate(tmp_path, stays=12, seed=2)
    made, expected = both(tmp_path)
    for name in ("vasopressor_dose", "bolus_ml", "next_map", "next_urine", "ended"):
        assert len(set(np.ma.asarray(expected[name]).compressed().tolist())) > 1, name
        assert_same_bits({name: made[name]}, {name: expected[name]})
    last = np.append(np.flatnonzero(np.diff(expected["stay_id"])), len(expected["hour"]) - 1)
    assert not np.ma.getmaskarray(np.ma.asarray(made["next_map"]))[last].all()


def test_no_feature_looks_at_its_own_hour():
    assert {feature.until for feature in STATE.features} == {"before"}
