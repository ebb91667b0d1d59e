"""Estimates over simulated wards: what the table says of them, and a small run."""

from __future__ import annotations

import numpy as np
import pytest

from dprl_studies.paper import wards


def rows_of(errors, half):
    """One contestant judged by one estimator, whose estimate is off by each of the errors."""
    n = len(errors)
    truth = np.linspace(1.0, 2.0, n)
    said = truth + np.asarray(errors, np.float64)
    return {
        "ward": np.arange(n),
        "contestant": np.array(["BC"] * n),
        "estimator": np.array(["DR"] * n),
        "truth": truth,
        "difference": said,
        "difference_low": said - half,
        "difference_high": said + half,
        "ess_change": np.full(n, 40.0),
    }


def test_error_bias_and_coverage_by_hand():
    (line,) = wards.summary(rows_of([0.0, 0.5, -1.0, 2.0], half=0.75))
    assert line["error"] == pytest.approx(np.sqrt((0.25 + 1 + 4) / 4))
    assert line["bias"] == pytest.approx(1.5 / 4)
    assert (line["coverage"], line["width"], line["gain"]) == (0.5, 1.5, pytest.approx(1.5))


def test_what_was_not_estimated_is_not_counted():
    rows = rows_of([0.0, 0.5, 3.0], half=0.75)
    rows["difference_low"][2] = np.nan
    rows["difference"][1] = np.nan
    (line,) = wards.summary(rows)
    assert (line["estimates"], line["intervals"], line["coverage"]) == (2, 2, 1.0)


@pytest.mark.slow
def test_a_small_ward():
    task = {**wards.settings(True, 0)[0], "stays": 120, "played": 40}
    rows = wards.run(task)
    assert {r["contestant"] for r in rows} == {"DPRL, n_min 10", "DPRL paper, n_min 30"}
    assert sum(r["headline"] for r in rows) == 2
    columns = {k: np.array([r[k] for r in rows]) for k in rows[0]}
    assert len(wards.summary(columns)) == len(rows)
    assert len(wards.figure(columns).axes) >= 2
