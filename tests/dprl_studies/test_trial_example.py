"""The example of a trial: on a small table of its shape, and on the trial itself where it is."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("DPRL_DATA", ROOT.parent / "shared" / "data"))


def check_figure(tmp_path, file):
    main = runpy.run_path(str(ROOT / "examples" / "plot_trial.py"))["main"]
    lot, seen, hidden = main(str(tmp_path / "trial.png"), file).values()
    assert abs(lot["difference"]) < 0.02
    assert (lot["certified"], seen["certified"], hidden["certified"]) == (0, 0, 1)
    assert seen["low"] < lot["high"]
    assert lot["low"] < seen["high"]
    assert hidden["low"] > lot["high"]  # a log without age is wrong, and says how easily
    assert hidden["gamma_star"] < 1.5
    assert (tmp_path / "trial.png").stat().st_size > 5_000


@pytest.mark.slow
def test_a_made_trial(tmp_path):
    check_figure(tmp_path, None)


@pytest.mark.slow
def test_the_stroke_trial(tmp_path):
    file = DATA / "trials" / "ist.parquet"
    if not file.is_file():
        pytest.skip(f"{file} is absent: the trial is not part of the project (see DPRL_DATA)")
    check_figure(tmp_path, str(file))
