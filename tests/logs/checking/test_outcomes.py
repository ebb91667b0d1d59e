"""Outcomes at the end of an episode, and columns that tell the action: said by name, with counts."""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import pytest

import dprl
from dprl.logs.checking.whole_log import telling

ROLES = {"episode": "id", "time": "t", "state": "s", "action": "a", "reward": "score"}


def stays(n=120, unknown=0, seed=0):
    """Episodes of three rows with an outcome on the last; of some it is not recorded."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "id": np.repeat(np.arange(n), 3),
            "t": np.tile([1, 2, 3], n),
            "s": rng.choice(["ill", "well"], 3 * n),
            "a": rng.choice(["x", "y"], 3 * n),
            "score": np.where(np.tile([0, 0, 1], n) > 0, rng.integers(0, 2, 3 * n), np.nan),
        }
    )
    table.loc[table["id"] < unknown, "score"] = np.nan
    return table


def finding(report, rule):
    return next((one for one in report.findings if one.rule == rule), None)


def test_an_outcome_at_the_end_is_seen_and_the_rest_is_checked():
    report = dprl.check(stays().sample(frac=1.0, random_state=0), **ROLES)
    one = finding(report, "missing")
    assert one.level == "error"
    assert "'score' is missing on 240 of 360 rows." in one.what
    assert "on the last row of 120 of 120 episodes, and on 0 of 240 other rows" in one.do
    assert 'missing={"score": "zero"}' in one.do
    assert "drop" not in one.do
    assert report.log.n_episodes == 120  # the other rules looked at all of them


def test_unknown_outcomes_are_counted():
    one = finding(dprl.check(stays(unknown=2), **ROLES), "missing")
    assert "on the last row of 118 of 120 episodes" in one.do
    assert "2 episodes without an outcome: leave them out" in one.do


def test_rewards_that_are_missing_here_and_there_are_no_outcome():
    table = stays().assign(score=1.0)
    table.loc[[4, 9], "score"] = np.nan
    assert "drop-episodes" in finding(dprl.check(table, **ROLES), "missing").do


def test_zero_is_the_reward_where_none_is_recorded():
    table = stays()
    log = dprl.from_frame(table, **ROLES, missing={"score": "zero"})
    plain = dprl.from_frame(table.assign(score=table["score"].fillna(0.0)), **ROLES)
    assert np.array_equal(log.reward, plain.reward)
    assert log.digest() == plain.digest()
    assert log.columns["missing"] == {"score": "zero"}
    everywhere = dprl.from_frame(table, **ROLES, missing="zero")
    assert everywhere.digest() == plain.digest()
    assert dprl.check(table, **ROLES, missing="zero").ok


def test_an_unknown_outcome_is_not_zero():
    with pytest.raises(dprl.LogError) as error:
        dprl.from_frame(stays(unknown=2), **ROLES, missing={"score": "zero"})
    assert "'score' is missing on every row of 2 of 120 episodes" in error.value.what
    assert "row 1 (id=0, t=1)" in error.value.where
    assert "Unknown is not 0" in error.value.do


def test_zero_is_for_the_reward_alone():
    with pytest.raises(dprl.ParameterError, match="only a missing reward can be 0"):
        dprl.from_frame(stays(), **ROLES, missing={"s": "zero"})


@pytest.mark.parametrize("unknown", [0, 2])
def test_a_log_in_parts_does_the_same(tmp_path, unknown):
    rows = stays(unknown=unknown).sample(frac=1.0, random_state=0)  # noqa: F841
    file = tmp_path / "stays.parquet"
    duckdb.sql(
        "SELECT * REPLACE (CASE WHEN NOT isnan(score) THEN score END AS score) FROM rows"
    ).write_parquet(str(file))
    for missing in ("error", {"score": "zero"}):
        results = []
        for reader, more in ((dprl.read, {"also": ()}), (dprl.scan, {"folder": tmp_path})):
            try:
                log = reader(str(file), **ROLES, missing=missing, **more)
                results.append((log.digest(), dict(log.columns)))
            except dprl.LogError as error:
                results.append(str(error))
        assert results[0] == results[1]
    assert isinstance(results[0], str) == bool(unknown)


def doses(n=600, seed=0):
    """Decisions whose action is the dose in ranges; the pressure goes with it, and does not fix it."""
    rng = np.random.default_rng(seed)
    dose = np.where(rng.random(n) < 0.4, 0.0, rng.gamma(2.0, 1.0, n))
    action = np.select([dose == 0, dose < 2], ["none", "low"], "high")
    pressure = 90 - 10 * (dose > 0) + rng.normal(0, 8, n)
    return pd.DataFrame(
        {
            "id": np.arange(n), "pressure": pressure, "dose": dose, "lactate": rng.gamma(2.0, 1.0, n),
            "ward": rng.choice(["a", "b"], n), "given": action != "none", "action": action, "r": rng.random(n),
        }
    )  # fmt: skip


NAMES = {"episode": "id", "action": "action", "reward": "r"}


def test_a_dose_among_the_features_is_named():
    table = doses()
    features = ["pressure", "dose", "lactate", "ward"]
    one = finding(dprl.check(table, **NAMES, state=features, also=()), "fixed_actions")
    assert one.level == "warning"
    assert "a column fixes the action 'action': 'dose'" in one.what
    assert "take 'dose' out of the state" in one.do
    assert "'pressure'" not in one.what
    fine = dprl.check(table, **NAMES, state=["pressure", "lactate", "ward"], also=())
    assert finding(fine, "fixed_actions") is None


def test_a_dose_beside_the_state_is_no_confounder():
    one = finding(
        dprl.check(doses(), **NAMES, state=["pressure", "lactate"], also=["dose", "ward"]),
        "fixed_actions",
    )
    assert "Leave 'dose' out of what is compared (also=)" in one.do
    assert "out of the state" not in one.do


def test_a_label_that_is_the_action_is_named():
    table = doses().assign(s=lambda t: t["action"].str.upper())
    one = finding(dprl.check(table, **NAMES, state="s", also=()), "fixed_actions")
    assert "'s' (100.0% of rows)" in one.what


def test_what_tells_the_action_nearly_counts_and_what_goes_with_it_does_not():
    rng = np.random.default_rng(0)
    action = rng.integers(0, 3, 5000).astype(np.int32)
    noisy = np.where(rng.random(5000) < 0.02, rng.integers(0, 3, 5000), action)
    assert telling(noisy.astype(float), action).fixes
    noisy = np.where(rng.random(5000) < 0.2, rng.integers(0, 3, 5000), action)
    assert not telling(noisy.astype(float), action).fixes
    assert not telling(rng.normal(size=5000), action).fixes
    assert telling(np.arange(10.0), action[:10]) is None
    assert telling(action.astype(float), np.zeros(5000, np.int32)).fixes is False
    rare = (rng.random(5000) < 0.03).astype(np.int32)  # the usual action alone is right on 97 %
    assert not telling(rng.normal(size=5000), rare).fixes
    assert telling(np.where(rare, np.nan, 1.0), rare).fixes
