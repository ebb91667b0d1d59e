"""The open demos of MIMIC-IV and MIMIC-III, where they are at hand. They are not part of this project.

The cohort and its hours are those expected to the last one. Our decisions are fewer by the hours
after death (1 in MIMIC-IV, 55 in MIMIC-III): nothing is decided for the dead.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dprl_studies import icu

DATA = Path(os.environ.get("DPRL_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("demo", "layout", "stays", "patients", "to_discharge", "decisions", "bolus", "vasopressor"),
    [
        ("mimic-iv-demo", "MIMIC-IV", 61, 48, 3550, 3549, 0.072, 0.362),
        ("mimic-iii-demo", "MIMIC-III", 64, 53, 3622, 3567, 0.080, 0.298),
    ],
)
def test_demo(tmp_path, demo, layout, stays, patients, to_discharge, decisions, bolus, vasopressor):
    if not (DATA / demo).is_dir():
        pytest.skip(f"{DATA / demo} is absent: the demo is not part of the project (see DPRL_DATA)")
    built = icu.build(DATA / demo, tmp_path / "stays.parquet")
    assert built.layout == layout
    assert built.flow["stays"][-2:] == [stays, stays]
    assert built.flow["patients"][-2:] == [patients, patients]
    assert built.flow["decisions"][-2:] == [to_discharge, decisions]
    assert built.summary["bolus_hours"] == pytest.approx(bolus, abs=0.001)
    assert built.summary["vasopressor_hours"] == pytest.approx(vasopressor, abs=0.001)
    data = icu.prepare(icu.read_stays(tmp_path / "stays.parquet"), seed=0)
    assert data.train.n_steps + data.valid.n_steps + data.test.n_steps == decisions
