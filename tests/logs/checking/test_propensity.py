"""The chance with which the action taken was taken: a column of a log."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dprl
from dprl.logs.censoring import treat_cut

COLUMNS = {"episode": "patient", "time": "day", "state": "stage", "action": "drug",
           "reward": "score"}  # fmt: skip
ROWS = {
    "patient": ["b", "b", "a", "a", "c"], "day": [2, 1, 1, 2, 1],
    "stage": ["ill", "well", "ill", "well", "ill"], "drug": ["x", "y", "x", "x", "y"],
    "score": [0.0, 1.0, 0.5, 0.0, 1.0], "p": [0.25, 1.0, None, 0.5, None],
}  # fmt: skip
SORTED = [np.nan, 0.5, 1.0, 0.25, np.nan]
"""The column in the order of the log: a, a, b, b, c."""


def log_of(rows=None, **more):
    return dprl.from_frame(pd.DataFrame(rows or ROWS), **COLUMNS, propensity="p", **more)


def test_every_door_reads_it_with_its_rows(tmp_path):
    frame = pd.DataFrame(ROWS)
    frame.to_csv(tmp_path / "v.csv", index=False)
    frame.to_parquet(tmp_path / "v.parquet")
    named = {role: ROWS[name] for role, name in COLUMNS.items()}
    logs = [
        log_of(),
        dprl.from_frame(pl.DataFrame(ROWS), **COLUMNS, propensity="p"),
        dprl.read(tmp_path / "v.csv", **COLUMNS, propensity="p"),
        dprl.read(tmp_path / "v.parquet", **COLUMNS, propensity="p"),
        dprl.from_arrays(**named, propensity=ROWS["p"]),
        dprl.from_arrays(**named, propensity=np.array(ROWS["p"], float)),
    ]
    for log in logs:
        assert log.propensity.dtype == np.float64
        np.testing.assert_array_equal(log.propensity, SORTED)
        assert not log.propensity.flags.writeable
    assert len({log.digest() for log in logs}) == 1
    assert logs[0].columns["propensity"] == "p"


def test_a_log_without_it_is_as_before():
    log = dprl.from_frame(pd.DataFrame(ROWS), **COLUMNS)
    assert log.propensity is None
    assert log.digest() == replace(log_of(), propensity=None).digest()
    assert log.digest() != log_of().digest()


def test_it_follows_its_rows(tmp_path):
    log = log_of()
    np.testing.assert_array_equal(log.take([2, 0]).propensity, [np.nan, 0.5, np.nan])
    grouped = {**ROWS, "ward": ["v", "v", "w", "w", "u"]}
    moved = dprl.from_frame(pd.DataFrame(grouped), **COLUMNS, propensity="p", group="ward")
    assert moved.gathered().episodes == ("c", "b", "a")
    np.testing.assert_array_equal(moved.gathered().propensity, [np.nan, 1.0, 0.25, np.nan, 0.5])
    one, other = log.split(0.5, seed=0)
    both = np.concatenate((one.propensity, other.propensity))
    assert sorted(both[~np.isnan(both)]) == [0.25, 0.5, 1.0]
    for name in ("back.csv", "back.parquet"):
        dprl.write(log, tmp_path / name)
        back = dprl.read(tmp_path / name, **COLUMNS, propensity="p")
        assert back.digest() == log.digest()


def test_it_survives_cut_episodes_and_dropped_ones():
    ended = {**ROWS, "end": ["cut", "cut", "terminal", "terminal", "terminal"]}
    log = log_of(ended, ended="end")
    with pytest.warns(dprl.CutWarning):
        short = treat_cut(log, 1.0, None)
    np.testing.assert_array_equal(short.propensity, SORTED)
    np.testing.assert_array_equal(treat_cut(log, 1.0, "drop").propensity, [np.nan, 0.5, np.nan])
    np.testing.assert_array_equal(
        treat_cut(log, 0.9, "bootstrap").propensity, [np.nan, 0.5, 1.0, np.nan]
    )
    gone = {**ROWS, "score": [0.0, None, 0.5, 0.0, 1.0]}
    with pytest.warns(dprl.MissingWarning):
        log = log_of(gone, missing="drop-episodes")
    np.testing.assert_array_equal(log.propensity, [np.nan, 0.5, np.nan])


def test_an_unknown_chance_is_no_missing_value():
    log = log_of(missing="drop-episodes")
    assert log.n_episodes == 3
    assert log_of({**ROWS, "p": [None] * 5}).propensity is not None


@pytest.mark.parametrize("bad", [0.0, -0.25, 1.5, np.inf, -np.inf])
def test_what_is_no_chance_is_refused(tmp_path, bad):
    rows = {**ROWS, "p": [0.25, bad, None, bad, 1.0]}
    pd.DataFrame(rows).to_csv(tmp_path / "v.csv", index=False)
    for read in (
        lambda: log_of(rows),
        lambda: dprl.read(tmp_path / "v.csv", **COLUMNS, propensity="p"),
    ):
        with pytest.raises(dprl.LogError) as refused:
            read()
        error = refused.value
        assert "'p' is not above 0 and at most 1 on 2 of 5 rows" in error.what
        assert error.where == f"row 2 (patient=b, day=1): {bad:g}"
        assert "leave it empty where it is unknown" in error.do


def test_text_is_refused(tmp_path):
    pd.DataFrame({**ROWS, "p": ["0.5", "half", "", "1", "1"]}).to_csv(
        tmp_path / "v.csv", index=False
    )
    with pytest.raises(dprl.LogError, match="'p' must be numbers; it holds 'half'") as refused:
        dprl.read(tmp_path / "v.csv", **COLUMNS, propensity="p")
    assert (refused.value.where, bool(refused.value.do)) == ("row 2", True)
    with pytest.raises(dprl.LogError, match="'p'"):
        log_of({**ROWS, "p": ["half"] * 5})


def test_the_only_action_available_has_chance_1():
    offers = {**ROWS, "menu": ["x", "y", "x|y", "x|y", "y"], "p": [0.25, 1.0, None, 0.5, None]}
    with pytest.raises(dprl.LogError, match="'p' is below 1 where only one action is in 'menu'"):
        log_of(offers, available="menu")
    assert log_of({**offers, "p": [1.0, 1.0, 0.5, 0.5, None]}, available="menu").n_steps == 5


def test_other_lengths_and_other_logs_are_refused():
    named = {role: ROWS[name] for role, name in COLUMNS.items()}
    with pytest.raises(dprl.LogError, match="different lengths"):
        dprl.from_arrays(**named, propensity=[0.5, 0.5])
    for column in (np.full(4, 0.5), np.zeros(5), np.full((5, 1), 0.5)):
        with pytest.raises(dprl.LogError, match="propensity"):
            replace(log_of(), propensity=column)
    with pytest.raises(dprl.LogError, match="no column 'q' for propensity"):
        dprl.from_frame(pd.DataFrame(ROWS), **COLUMNS, propensity="q")


def test_a_check_says_on_how_many_rows_it_is_known():
    report = dprl.check(pd.DataFrame(ROWS), **COLUMNS, propensity="p")
    assert report.ok
    assert "'p' is known on 3 of 5 rows, from 0.25 to 1." in report.details()
    assert "dprl.Rules, evaluation and the gate use it; other learners do not." in report.details()
    empty = pd.DataFrame({**ROWS, "p": [None] * 5})
    assert "'p' is known on 0 of 5 rows." in dprl.check(empty, **COLUMNS, propensity="p").details()
    bad = dprl.check(pd.DataFrame({**ROWS, "p": [2.0] * 5}), **COLUMNS, propensity="p")
    assert not bad.ok
    assert "propensity" not in dprl.check(dprl.from_frame(pd.DataFrame(ROWS), **COLUMNS)).details()


def test_evaluation_and_the_gate_take_such_logs():
    rng = np.random.default_rng(0)
    log = dprl.envs.care_pathway().sample(400, seed=0)
    p = np.where(rng.random(log.n_steps) < 0.5, 0.5, np.nan)
    train, test = replace(log, propensity=p).split(0.5, seed=0)
    bare, held = log.split(0.5, seed=0)
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policy = learner.fit(train)
    with_p = dprl.evaluate(policy, test, draws=50)
    without = dprl.evaluate(learner.fit(bare), held, draws=50)
    assert with_p.facts["recorded"] == pytest.approx(0.5, abs=0.1)  # and test_known_chances.py
    assert without.facts["recorded"] == 0
    gated = dprl.gate(learner, train, value_range=(0, 1))
    assert gated.act(list(train.states)) == dprl.gate(learner, bare, value_range=(0, 1)).act(
        list(train.states)
    )
