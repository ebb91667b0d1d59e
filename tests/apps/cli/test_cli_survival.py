"""A time to event on the command line: from a table to a check, a policy and its evaluation."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

TOML = """
[log]
files = ["trial.csv"]
episode = "id"
state = ["age", "sex"]
action = "arm"
also = []

[survival]
time = "days"
status = "cens"
horizon = 730
target = "event-free"
"""


@pytest.fixture
def trial(tmp_path):
    """Four arms, of which one is worse than all others at two years."""
    rng, n = np.random.default_rng(0), 800
    arm = rng.integers(0, 4, n)
    T = rng.exponential(730 / -np.log(np.array([0.6, 0.86, 0.86, 0.87])[arm]))
    C = rng.uniform(300, 1500, n)
    table = pd.DataFrame(
        {"id": range(n), "age": rng.integers(20, 80, n), "sex": rng.choice(["f", "m"], n),
         "arm": np.array(["old", "new", "both", "other"])[arm],
         "days": np.minimum(T, C).round(), "cens": (T <= C).astype(int)}
    )  # fmt: skip
    table.to_csv(tmp_path / "trial.csv", index=False)
    table.assign(id=table["id"] + n)[::2].to_csv(tmp_path / "later.csv", index=False)
    return tmp_path


WORDS = ("--survival", "days,cens", "--horizon", "730")
LOG = ("trial.csv", "--episode", "id", "--state", "age", "--state", "sex", "--action", "arm")


def test_check_says_who_was_censored_by_arm(run, trial):
    pytest.importorskip("matplotlib")
    code, out, _ = run("check", *LOG, *WORDS, "--details", "--figure", "curves.svg")
    assert code == 0
    assert "censored before 730 days: both " in out
    assert "event-free at 730 days by Kaplan-Meier" in out
    assert "episodes ended" not in out  # who was censored had no event
    assert "rewards run from" not in out  # single completed outcomes lie outside of 0 to 1
    assert sum(line.startswith("old ") for line in out.splitlines()) == 12
    assert (trial / "curves.svg").stat().st_size > 5_000
    assert len(pd.read_parquet(trial / "curves.parquet")) == 4 * 101
    code, out, _ = run("check", *LOG, *WORDS, "--json")
    assert len(json.loads(out)["curves"]) == 4 * 12
    code, _, err = run("check", *LOG, "--reward", "days", "--figure", "none.svg")
    assert code != 0
    assert "no time to event" in err


def test_a_reward_is_needed_where_no_time_is_named(run, trial):
    code, _, err = run("check", *LOG)
    assert code != 0
    assert "--reward is missing" in err
    assert "--survival" in err
    code, _, err = run("check", *LOG, "--reward", "days", "--ended", "cens", "--follow-up", "1")
    assert code != 0
    assert "--survival" in err
    code, _, err = run("check", *LOG, "--reward", "days", "--follow-up", "730 days")
    assert code != 0
    assert "--survival" in err


def test_from_the_settings_to_a_policy_and_its_evaluation(run, trial):
    (trial / "dprl.toml").write_text(TOML)
    code, _, err = run(
        "fit", "--learner", "rules", "--splits", "1", "--gamma", "1", "--out", "p.dprl"
    )
    assert code == 0, err
    code, out, err = run(
        "evaluate", "p.dprl", "later.csv", "--no-values", "--draws", "100", "--details"
    )
    assert code == 0, err
    assert "outcomes were not seen" in out
    (trial / "dprl.toml").write_text(TOML + "unit = 3\n")
    code, _, err = run("fit")
    assert code != 0
    assert "survival.unit" in err


def test_what_tells_the_time_or_the_status_is_in_no_proposed_state(run, trial, monkeypatch):
    from dprl.apps.cli.options import ProposedColumns
    from dprl.apps.cli.studying import _completed

    monkeypatch.chdir(trial)
    table = pd.read_csv("trial.csv")
    cause = np.where(table["id"] % 2, "infection", "relapse")
    table["why"] = np.where(table["cens"] == 1, cause, None)
    table["contacts"] = table["days"] // 60
    table.to_csv("told.csv", index=False)
    columns = ProposedColumns(survival="days,cens", horizon=730)
    assert _completed(["told.csv"], columns, ask=False)
    assert columns.state == ["age", "sex"]
    code, out, err = run("init", "told.csv", "--reward", "days", "--ended", "cens", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["columns"]["state"] == ["age", "sex"]
    assert "it tells 'cens': known afterwards?" in facts["left_out"]["why"]
    assert "it tells 'days': known afterwards?" in facts["left_out"]["contacts"]


@pytest.mark.slow
def test_a_study_says_which_arm_not_to_give(run, trial):
    code, out, err = run(
        "study", "trial.csv", "--out", "s", *WORDS, "--design", "randomised", "--draws", "100"
    )
    assert code == 0, err
    assert out.startswith("Not old: share event-free at 730 days lower by ")  # as all judged it
    assert out.count("lower by") == 1
    assert "censored before 730 days" in err
    settings = (trial / "s" / "dprl.toml").read_text()
    assert 'survival = "days,cens"' in settings
    assert "reward" not in settings
