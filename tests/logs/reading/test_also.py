"""Columns that are not in the state: what is taken, how it is kept, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

import dprl
from dprl.logs.censoring import treat_cut
from dprl.logs.reading import also as _also

COLUMNS = {"episode": "patient", "time": "day", "state": "stage", "action": "drug",
           "reward": "score"}  # fmt: skip
ROWS = {
    "patient": ["b", "b", "a", "a", "c"], "day": [2, 1, 1, 2, 1],
    "stage": ["ill", "well", "ill", "well", "ill"], "drug": ["x", "y", "x", "x", "y"],
    "score": [0.0, 1.0, 0.5, 0.0, 1.0],
    "age": [61.5, 61.5, 47.0, 47.0, None], "sex": ["f", "f", "m", "m", None],
    "smoker": [True, True, False, False, True],
}  # fmt: skip
AGES = [47.0, 47.0, 61.5, 61.5, np.nan]
"""The column in the order of the log: a, a, b, b, c."""


def log_of(rows=None, **more):
    return dprl.from_frame(pd.DataFrame(rows or ROWS), **COLUMNS, **more)


def test_all_further_columns_are_taken_by_every_door(tmp_path):
    frame = pd.DataFrame(ROWS)
    frame.to_csv(tmp_path / "v.csv", index=False)
    frame.to_parquet(tmp_path / "v.parquet")
    named = {role: ROWS[name] for role, name in COLUMNS.items()}
    logs = [
        log_of(),
        dprl.from_frame(pl.DataFrame(ROWS), **COLUMNS),
        dprl.from_frame(duckdb.from_df(frame), **COLUMNS),
        dprl.read(tmp_path / "v.csv", **COLUMNS),
        dprl.read(tmp_path / "v.parquet", **COLUMNS),
        dprl.from_arrays(**named, also={name: ROWS[name] for name in ("age", "sex", "smoker")}),
    ]
    for log in logs:
        assert log.also.names == ("age", "sex", "smoker")
        assert log.also.levels == (None, ("f", "m"), ("false", "true"))
        assert [column.dtype for column in log.also.values] == [np.float32, np.int16, np.int16]
        np.testing.assert_array_equal(log.also.numbers(0), AGES)
        np.testing.assert_array_equal(log.also.values[1], [1, 1, 0, 0, -1])
        assert not log.also.values[0].flags.writeable
    assert len({log.also.digest() for log in logs}) == 1
    assert "3 further columns read beside the state: age, sex, smoker." in logs[0].also.words


def test_they_change_nothing_that_is_learned():
    assert log_of().digest() == log_of(also=()).digest() == replace(log_of(), also=None).digest()
    assert log_of().also.digest() != log_of(also=["age"]).also.digest()
    assert "also" not in log_of().columns
    fitted = [dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(log) for log in (log_of(), log_of(also=()))]
    assert fitted[0].digest() == fitted[1].digest()


def test_names_patterns_and_none(tmp_path):
    assert log_of(also=["sex"]).also.names == ("sex",)
    assert log_of(also="s*").also.names == ("sex", "smoker")
    assert log_of(also=()).also.names == log_of(also="none").also.names == ()
    pd.DataFrame(ROWS).to_csv(tmp_path / "v.csv", index=False)
    assert dprl.read(tmp_path / "v.csv", **COLUMNS, also="age").also.names == ("age",)
    for also, words in (("weight", "no column 'weight' for also"), ("stage", "another role")):
        with pytest.raises(dprl.LogError, match=words) as refused:
            log_of(also=also)
        assert refused.value.do
    with pytest.raises(dprl.LogError, match="a column of the log already"):
        dprl.from_arrays(episode=[1], state=["s"], action=["a"], reward=[1], also={"reward": [1]})
    with pytest.raises(dprl.LogError, match="different lengths"):
        dprl.from_arrays(episode=[1], state=["s"], action=["a"], reward=[1], also={"x": [1, 2]})


def test_they_follow_their_rows(tmp_path):
    log = log_of()
    np.testing.assert_array_equal(log.take([2, 0]).also.numbers(0), [47.0, 47.0, np.nan])
    grouped = {**ROWS, "ward": ["v", "v", "w", "w", "u"]}
    moved = log_of(grouped, group="ward").gathered()
    assert moved.episodes == ("c", "b", "a")
    np.testing.assert_array_equal(moved.also.numbers(0), [np.nan, 61.5, 61.5, 47.0, 47.0])
    one, other = log.split(0.5, seed=0)
    assert len(one.also) + len(other.also) == 5
    for name in ("back.csv", "back.parquet"):
        dprl.write(log, tmp_path / name)
        assert dprl.read(tmp_path / name, **COLUMNS).also.digest() == log.also.digest()


def test_they_survive_cut_episodes_and_dropped_ones():
    log = log_of({**ROWS, "end": ["cut", "cut", *["terminal"] * 3]}, ended="end")
    assert treat_cut(log, 1.0, "drop").also.numbers(0).tolist()[:2] == [47.0, 47.0]
    assert len(treat_cut(log, 0.9, "bootstrap").also) == 4
    with pytest.warns(dprl.MissingWarning):
        log = log_of({**ROWS, "score": [0.0, None, 0.5, 0.0, 1.0]}, missing="drop-episodes")
    np.testing.assert_array_equal(log.also.numbers(0), [47.0, 47.0, np.nan])
    assert log_of(missing="drop-episodes").n_episodes == 3, "a missing age drops nobody"


def many(n=200, **more):
    rows = {"patient": range(n), "day": 1, "stage": "ill", "drug": ["x", "y"] * (n // 2),
            "score": 1.0}  # fmt: skip
    return pd.DataFrame({**rows, **more})


def both(frame, folder, **more):
    """The log of a frame, and of the same rows in a CSV file."""
    frame.to_csv(folder / "many.csv", index=False)
    return (
        dprl.from_frame(frame, **COLUMNS, **more),
        dprl.read(folder / "many.csv", **COLUMNS, **more),
    )


def test_identifiers_and_free_text_are_left_out_and_said(tmp_path):
    frame = many(number=range(1_000, 1_200), name=[f"p{i}" for i in range(200)],
                 mixed=["high", *["1"] * 199], empty=None, age=[40 + i % 50 for i in range(200)],
                 dose=np.linspace(0.001, 2.003, 200))  # fmt: skip
    for log in both(frame, tmp_path):
        assert log.also.names == ("age", "dose")
        assert set(log.also.left_out) == {"number", "name", "mixed", "empty"}
        assert "number (an identifier)" in log.also.words
        notes = [f for f in dprl.check(log).findings if f.rule == "further_columns"]
        assert notes[0].level == "note"
        assert "age, dose" in notes[0].what
    log, _ = both(frame, tmp_path, also=["number", "name"])
    assert log.also.names == ("number", "name"), "who names a column gets it"
    with pytest.raises(dprl.LogError, match="'mixed' must be numbers"):
        both(frame, tmp_path, also=["mixed"])


def test_too_many_columns_or_values_are_not_read_unasked(tmp_path, monkeypatch):
    frame = many(**{f"x{j}": range(200) for j in range(_also.FEW + 1)})
    for log in both(frame, tmp_path):
        assert log.also.names == ()
        assert len(log.also.left_out) == _also.FEW + 1
        assert "name those to compare" in log.also.left_out["x0"]
    assert len(both(frame, tmp_path, also="x*")[1].also.names) == _also.FEW + 1
    monkeypatch.setattr(_also, "MOST_VALUES", 100)
    for log in both(many(age=50), tmp_path):
        assert log.also.names == ()
        assert "rows: name those to compare" in log.also.left_out["age"]


def test_dates_are_days_and_odd_types_are_left_out(tmp_path):
    day = pd.Timestamp("2020-01-01")
    frame = many(n=4, seen=[day, day + pd.Timedelta(hours=12), None, day], tags=[["a"]] * 4)
    frame.to_parquet(tmp_path / "d.parquet")
    logs = [dprl.from_frame(frame, **COLUMNS), dprl.read(tmp_path / "d.parquet", **COLUMNS),
            dprl.from_frame(pl.from_pandas(frame), **COLUMNS)]  # fmt: skip
    for log in logs:
        assert log.also.names == ("seen",)
        np.testing.assert_allclose(log.also.numbers(0), [18262, 18262.5, np.nan, 18262])
        assert "tags" in log.also.left_out


def test_a_category_can_be_declared_and_infinite_numbers_are_refused(tmp_path):
    for log in both(many(ward=[1, 2] * 100), tmp_path, categorical=["ward"]):
        assert log.also.levels == (("1", "2"),)
    with pytest.raises(dprl.LogError, match="no feature of this log"):
        both(many(ward=1), tmp_path, categorical=["warp"])
    odd = many(dose=[np.inf] + [1.0] * 199)
    assert "infinite" in dprl.from_frame(odd, **COLUMNS).also.left_out["dose"]
    with pytest.raises(dprl.LogError, match="infinite"):
        dprl.from_frame(odd, **COLUMNS, also=["dose"])


def test_only_what_every_file_has_is_taken(tmp_path):
    many(age=50).iloc[:100].to_csv(tmp_path / "a.csv", index=False)
    many(age=50, sex="f").iloc[100:].to_csv(tmp_path / "b.csv", index=False)
    log = dprl.read(str(tmp_path / "?.csv"), **COLUMNS)
    assert log.also.names == ("age",)
    assert log.also.left_out.get("sex") in (None, "not in every file")
    with pytest.raises(dprl.LogError, match="sex"):
        dprl.read(str(tmp_path / "?.csv"), **COLUMNS, also=["sex"])
