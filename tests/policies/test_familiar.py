"""A policy is judged by its own columns, and never by a log of something else."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from judging import judge_first
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import options, to_log
from dprl.apps.cli.options import _same
from dprl.apps.reports.changes import describe_changes
from dprl.errors import LogError

NAMES = {"episode": "episode", "time": "time", "state": "state", "action": "action",
         "reward": "reward", "ended": "ended"}  # fmt: skip
FOREIGN = '[log]\nepisode = "episode"\nstate = ["bed"]\naction = "action"\nreward = "reward"\n'


@pytest.fixture
def files(run, tmp_path):
    """Train and test with a second column that looks like states, and a policy of the first."""
    log = dprl.envs.care_pathway().sample(1_500, seed=0)
    for name, part in zip(("train", "test"), log.split(0.5, seed=0), strict=True):
        dprl.write(part, tmp_path / "plain.csv")
        rows = list(csv.DictReader((tmp_path / "plain.csv").read_text().splitlines()))
        with (tmp_path / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [*rows[0], "bed"])
            writer.writeheader()
            writer.writerows({**row, "bed": f"bed-{i % 7}"} for i, row in enumerate(rows))
    (tmp_path / "plain.csv").unlink()
    assert run("fit", "train.csv", *options(NAMES), "--n-min", 20, "--gamma", 1)[0] == 0
    return tmp_path


def lines(err):
    return [line for line in err.splitlines() if "dprl.toml" in line]


@pytest.mark.slow
def test_the_policy_s_columns_beat_a_settings_file(run, files):
    """It once said difference 0.000 with exit code 0: every state was unknown."""
    asked = ("evaluate", "policy.dprl", "test.csv", "--draws", 20, "--no-values", "--json")
    code, good, _ = run(*asked)
    assert (code, json.loads(good)["facts"]["spoken"] > 0.1) == (0, True)
    (files / "dprl.toml").write_text(FOREIGN)
    code, out, err = run(*asked)
    assert (code, out) == (0, good)
    (line,) = lines(err)
    assert "state = 'bed', used is 'state' (--state overrides)" in line
    assert "episode" not in line  # which agrees
    (files / "dprl.toml").write_text(FOREIGN + '[evaluate]\nreward = "bed"\ndraws = 20\n')
    code, out, err = run("evaluate", "policy.dprl", "test.csv", "--no-values", "--json")
    assert (code, out) == (0, good)  # what is no column is still taken from it
    assert "reward = 'bed', used is 'reward' (--reward overrides)" in lines(err)[0]


@pytest.mark.slow
def test_every_command_with_a_policy_reads_the_policy_s_columns(run, files):
    range_ = ("--lowest", 0, "--highest", 1)
    judge_first("policy.dprl", "test.csv")
    for command in (
        ("report", "policy.dprl", "test.csv", "--draws", 10, "--no-values"),
        ("gate", "policy.dprl", "train.csv", *range_),
        ("review", "policy.dprl", "--log", "test.csv", "--export"),
        ("act", "policy.dprl", "test.csv"),
    ):
        (files / "dprl.toml").unlink(missing_ok=True)
        code, out, err = run(*command)
        assert (code, lines(err)) == (0, []), err
        (files / "dprl.toml").write_text(FOREIGN)
        again, told, err = run(*command)
        assert (again, told) == (code, out)
        assert "state = 'bed', used is 'state'" in lines(err)[0]


def test_options_beat_both(run, files):
    (files / "dprl.toml").write_text('[log]\nstate = ["state"]\n')
    for command in (
        ("evaluate", "policy.dprl", "test.csv"),
        ("report", "policy.dprl", "test.csv"),
        ("review", "policy.dprl", "--log", "test.csv", "--export"),
    ):
        code, out, err = run(*command, "--state", "bed")
        assert (code, out) == (1, "")
        assert "only 0 of" in err
        assert "states the policy knows" in err
        assert not lines(err)
    assert not (files / "review.html").exists()
    assert not (files / "approved.dprl").exists()
    assert not (files / "policy.review.sqlite").exists()
    code, out, _ = run("act", "policy.dprl", "test.csv", "--state", "bed", "--json")
    assert json.loads(out)["unknown"] == json.loads(out)["rows"]


def test_a_policy_without_columns_gets_those_of_the_settings_file(run, files):
    fitted = dprl.load("policy.dprl")
    bare = replace(fitted, provenance={**fitted.provenance, "columns": {}})
    bare.save("bare.dprl")
    assert run("evaluate", "bare.dprl", "test.csv")[0] == 1
    text = "\n".join(f'{k} = ["{v}"]' if k == "state" else f'{k} = "{v}"' for k, v in NAMES.items())
    (files / "dprl.toml").write_text(f"[log]\n{text}\n")
    code, out, err = run("evaluate", "bare.dprl", "test.csv", "--draws", 20, "--no-values")
    assert (code, lines(err)) == (0, [])
    code, out, _ = run("act", "bare.dprl", "test.csv", "--json")
    assert (code, json.loads(out)["unknown"]) == (0, 0)


def test_a_column_the_policy_was_fitted_without_is_named(run, files):
    (files / "dprl.toml").write_text('[log]\ngroup = "bed"\n')
    code, _, err = run("evaluate", "policy.dprl", "test.csv", "--draws", 20, "--no-values")
    assert code == 0
    assert "group = 'bed', used is none (--group overrides)" in lines(err)[0]


def test_patterns_stand_for_columns():
    assert _same(["x_a", "x_b"], ["x_*"])
    assert _same("stage", ["stage"])
    assert not _same(["x_a", "y"], ["x_*"])
    assert not _same(["x_a"], ["x_*", "y"])
    assert not _same(None, "group")


# -- a log of something else --------------------------------------------------------------------


def mixed(known, strange):
    """A log with this many steps in known and in strange states."""
    return to_log([[("fever", "watch", 1.0)]] * known + [[("ward 7", "watch", 0.0)]] * strange)


def judged(policy, log, tmp_path):
    """Every way to judge a policy by a log."""
    page = tmp_path / "page.html"
    return {
        "evaluate": lambda: dprl.evaluate(policy, log, draws=10, values=False).warnings,
        "describe": lambda: describe_changes(policy, log).notes,
        "report": lambda: dprl.report(policy, log, page, draws=10, values=False).evaluation.warnings,
    }  # fmt: skip


def test_a_log_of_other_labels_is_refused(care, tmp_path):
    policy = care[1]
    for ask in judged(policy, mixed(9, 91), tmp_path).values():
        with pytest.raises(LogError) as caught:
            ask()
        text = str(caught.value)
        assert len(text.splitlines()) == 3
        assert "only 9 of 100 steps" in text
        assert "state 'ward 7' is unknown; the policy's states look like '" in text
        assert "state=" in text
    assert not (tmp_path / "page.html").exists()
    for share in (10, 49):
        for ask in judged(policy, mixed(share, 100 - share), tmp_path).values():
            said = [w for w in ask() if "of steps are in states the policy never saw" in w]
            assert said == [
                f"{100 - share}.0 % of steps are in states the policy never saw; it defers there."
            ]
    found = dprl.evaluate(policy, mixed(60, 40), draws=10, values=False)
    assert "40.0 % of steps" in found.warnings[0]
    assert not [n for n in describe_changes(policy, mixed(60, 40)).notes if "never saw" in n]


def test_a_gate_refuses_it_too(care):
    with pytest.raises(LogError, match="only 1 of 100 steps"):
        dprl.gate(care[1], mixed(1, 99), value_range=(0, 1))


def test_rivals_are_not_judged_by_it_either(care):
    rival = dprl.learners.baselines.BC().fit(dprl.envs.care_pathway().sample(200, seed=3))
    with pytest.raises(LogError, match="only 0 of 50 steps"):
        dprl.evaluate(rival, mixed(0, 50), gamma=1.0)


WALK = dprl.envs.PointMass()


@pytest.fixture(scope="module")
def walker():
    return dprl.DPRLContinuous(
        n_min=8, radius=0.08, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    ).fit(WALK.sample(100, seed=1))


@pytest.fixture(scope="module")
def cells():
    return dprl.gate(LEARNER, ward(1_500, 0), **UNIT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["walker", "cells"])
def test_features_in_other_units_are_refused(kind, request, tmp_path):
    policy = request.getfixturevalue(kind)
    log = WALK.sample(30, seed=2) if kind == "walker" else ward(200, 9)
    assert not describe_changes(policy, log).notes
    moved = replace(log, features=log.features * 1_000.0 + 500.0)
    for ask in judged(policy, moved, tmp_path).values():
        with pytest.raises(LogError) as caught:
            ask()
        text = str(caught.value)
        assert f"only 0 of {log.n_steps:,} steps" in text
        assert "x = " in text
        assert "in training" in text
        assert "same unit" in text
    assert not (tmp_path / "page.html").exists()
    some = np.where(np.arange(log.n_steps)[:, None] % 10 < 7, moved.features, log.features)
    for ask in judged(policy, replace(log, features=some), tmp_path).values():
        assert sum("lie outside the ranges of the training log" in w for w in ask()) == 1


@pytest.mark.slow
def test_within_the_radius_of_a_range_is_near(walker):
    """There the policy may still have neighbours: it is not for a range to say that it has none."""
    _, high = walker.provenance["ranges"][0]
    log = WALK.sample(30, seed=2)
    beside = log.features.copy()
    beside[:, 0] = high + 0.07
    dprl.evaluate(walker, replace(log, features=beside), draws=10, values=False)
    beside[:, 0] = high + 0.09
    with pytest.raises(LogError, match=r"lie within 0\.08 of the ranges"):
        dprl.evaluate(walker, replace(log, features=beside), draws=10, values=False)


@pytest.mark.slow
def test_features_without_weight_do_not_count(walker):
    rng = np.random.default_rng(0)
    x, action = rng.random((300, 2)), rng.choice(["a", "b"], 300)
    log = dprl.from_arrays(
        episode=np.arange(300), state=x, action=action, reward=x[:, 0] * (action == "a"),
        feature_names=["x", "year"],
    )  # fmt: skip
    metric = dprl.Metric(weights={"year": 0.0})
    policy = dprl.DPRLContinuous(n_min=5, radius=1.0, gamma=1.0, metric=metric).fit(log)
    later = replace(log, features=log.features + np.array([0.0, 2_000.0]), reward=log.reward + 1e-9)
    assert dprl.evaluate(policy, later, draws=10, values=False, allow_seen=True).facts["spoken"] > 0
