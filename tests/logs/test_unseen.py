"""Rewards that nobody measured are completed by weights; which, by arm, is said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.errors import LogError, ParameterError
from dprl.evaluation import by_part

COLUMNS = {"episode": "id", "state": ["x"], "action": "arm", "reward": "score", "also": ()}


def made(n=1500, seed=0):
    """Who is ill is measured less often, and with arm b less often still; ill are worse off."""
    rng = np.random.default_rng(seed)
    x, arm = rng.normal(size=n), rng.integers(0, 2, n)
    score = 10 + 3 * x + arm * (x > 0) + rng.normal(size=n)
    seen = rng.random(n) < 1 / (1 + np.exp(-(0.5 + x - 0.8 * arm)))
    return pd.DataFrame(
        {"id": range(n), "x": x, "arm": np.array(["a", "b"])[arm], "full": score,
         "score": np.where(seen, score, np.nan)}
    )  # fmt: skip


def test_means_are_those_of_all_and_not_of_who_was_measured():
    apart = {"weights": [], "complete": []}
    for seed in range(3):
        frame = made(seed=seed)
        log = dprl.from_frame(frame, missing={"score": "weights"}, **COLUMNS)
        for row, arm in enumerate(("a", "b")):
            own = frame[frame["arm"] == arm]
            apart["weights"].append(log.reward[log.action == row].mean() - own["full"].mean())
            apart["complete"].append(own["score"].mean() - own["full"].mean())
    assert np.abs(np.mean(apart["weights"])) < 0.1
    assert np.mean(apart["complete"]) > 0.7


def test_it_is_said_by_arm_with_the_balance_and_nothing_is_proved():
    frame = made()
    found = dprl.check(frame, missing={"score": "weights"}, **COLUMNS)
    (words,) = [f for f in found.findings if f.rule == "unmeasured"]
    gone = frame["score"].isna()
    for arm in ("a", "b"):
        own = frame["arm"] == arm
        assert f"{arm} {(gone & own).sum()} of {own.sum()}" in words.what
    facts = found.log.columns["unseen"]
    assert facts["column"] == "x"
    assert abs(facts["after"]) < 0.1 < facts["before"]
    with pytest.raises(LogError, match="nothing can be proved"):
        dprl.gate(dprl.Rules(gamma=1.0), found.log, delta=0.1, value_range=(0, 20), seed=0)


def test_without_the_word_a_missing_outcome_is_refused_and_all_or_none_as_ever():
    frame = made(100)
    with pytest.raises(LogError, match="'score' is missing"):
        dprl.from_frame(frame, **COLUMNS)
    whole = frame.assign(score=frame["full"])
    log = dprl.from_frame(whole, missing={"score": "weights"}, **COLUMNS)
    assert np.array_equal(log.reward, whole["full"])
    assert "unseen" not in log.columns
    with pytest.raises(LogError, match="missing on every row"):
        dprl.from_frame(frame.assign(score=np.nan), missing={"score": "weights"}, **COLUMNS)
    with pytest.raises(ParameterError, match="only a missing reward can be weighted for"):
        dprl.from_frame(frame, missing={"x": "weights"}, **COLUMNS)


def test_an_action_that_nobody_measured_is_refused():
    """Overall, in a state, and where features foresee it; few rows, and enough of many, pass."""
    frame = made(900)
    frame["s"] = np.where(frame["x"] > 0, "well", "ill")
    asked, b = {**COLUMNS, "missing": {"score": "weights"}}, frame["arm"].eq("b")
    ill = b & frame["s"].eq("ill")
    frame["score"] = frame["full"].where(frame.index % 5 > 0)
    for state, gone, words in (
        (["x"], b, "0 of 4.. rows with 'b'"),
        ("s", ill, "0 of 2.. rows with 'b' in state 'ill'"),
        ("s", ill & (np.cumsum(ill) > 4), "of 2.. rows with 'b' in state 'ill'"),
        (["x"], ill, "with a chance below 0.05"),
    ):
        less = frame.assign(score=frame["score"].where(~gone))
        with pytest.raises(LogError, match=words):
            dprl.from_frame(less, **{**asked, "state": state})
        found = dprl.check(less, **{**asked, "state": state})
        assert [f.rule for f in found.findings if f.level == "error"] == ["unseen"]
        assert found.log is None
    few = frame.assign(score=frame["score"].where(~ill))[~ill | (np.cumsum(ill) < 10)]
    assert dprl.from_frame(few, **{**asked, "state": "s"}).columns["unseen"]["rows"] > 0


def test_on_several_rows_the_outcome_of_last_rows_is_completed():
    frame = made(200)
    first = frame.assign(k=0, score=np.nan)
    log = dprl.from_frame(
        pd.concat([first, frame.assign(k=1)]), missing={"score": "weights"}, time="k", **COLUMNS
    )
    last = log.starts[1:] - 1
    before = np.ones(log.n_steps, bool)
    before[last] = False
    assert not log.reward[before].any()
    assert log.columns["unseen"]["rows"] == int(frame["score"].isna().sum())


def test_parts_of_a_sum_are_completed_and_a_log_is_written_as_it_was_measured(tmp_path):
    frame = made(900).assign(harm=1.0)
    frame["s"] = np.where(frame["x"] > 0, "well", "ill")
    asked = {**COLUMNS, "state": "s"}
    for name in ("score", "score - 2*harm"):
        options = {**asked, "reward": name, "missing": {"score": "weights"}}  # the column's name
        log = dprl.from_frame(frame, **options)
        dprl.write(log, tmp_path / "log.parquet")
        again = dprl.read(tmp_path / "log.parquet", time="time", **options)
        assert again.digest() == log.digest()
        assert again.columns["unseen"] == log.columns["unseen"]
    facts = log.columns["unseen"]
    assert facts["column"].startswith("s=")
    assert abs(facts["after"]) < 0.1 < abs(facts["before"])
    train, test = log.split(0.5, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    parts = {row["part"]: row for row in by_part(policy, test, draws=50).to_dicts()}
    assert np.isfinite(parts["score"]["difference"])
    assert parts["harm"]["difference"] == pytest.approx(0.0, abs=1e-9)
