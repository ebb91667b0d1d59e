"""The confident learner and the check of the state, from the command line."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import dprl
from conftest import options

pytestmark = pytest.mark.slow  # whole commands, whole studies

COLUMNS = {
    "episode": "patient", "time": "day", "state": "situation", "action": "treatment",
    "reward": "outcome",
}  # fmt: skip
SURE = ("--learner", "confident", "--gamma", 1)


def written(log, path):
    """The log as a Parquet file with the columns of COLUMNS."""
    dprl.write(log, path)
    frame = pd.read_parquet(path)
    names = {name: COLUMNS[name] for name in COLUMNS if name in frame}
    frame.rename(columns=names).to_parquet(path)
    return path


@pytest.fixture
def care(tmp_path):
    """A log whose states are enough."""
    return written(dprl.envs.care_pathway().sample(500, seed=0), tmp_path / "care.parquet")


@pytest.fixture
def hidden(tmp_path):
    """A log in which an action harms two days later, and the state does not show it."""
    return written(dprl.envs.delayed().sample(200, seed=0), tmp_path / "hidden.parquet")


def own(path):
    """How the command line reads the columns of a file of `written`."""
    return [path, *options({k: v for k, v in COLUMNS.items() if v in pd.read_parquet(path)})]


def log_of(path):
    return dprl.read(path, **{k: v for k, v in COLUMNS.items() if v in pd.read_parquet(path)})


def test_fit_states_what_it_is_sure_of(run, care):
    code, out, err = run("fit", *own(care), *SURE)
    policy = dprl.load("policy.dprl")
    assert (code, err) == (0, "")
    assert policy.digest() == dprl.Confident(gamma=1.0).fit(log_of(care)).digest()
    assert policy.parameters["n_min"] == 3
    for sentence in policy.stated:
        assert sentence in out
    assert "at least +" in policy.stated[0]
    code, out, _ = run("fit", *own(care), *SURE, "--json")
    facts = json.loads(out)
    assert facts["gain"] == {**policy.gain}
    assert facts["stated"] == list(policy.stated)
    assert facts["warnings"] == []
    first = policy.changes().to_dicts()[0]
    assert facts["changed"][0]["sure_low"] == first["sure_low"]


def test_a_state_that_is_not_enough_is_warned_of(run, hidden):
    code, out, err = run("fit", *own(hidden), *SURE)
    assert code == 0
    assert err.startswith("warning: The state does not seem to be enough")
    assert "--evidence returns" in err
    assert "If the state is enough (a test speaks against it, see below)" in out
    code, out, _ = run("fit", *own(hidden), *SURE, "--json")
    facts = json.loads(out)
    assert len(facts["warnings"]) == 1
    assert facts["warnings"][0].startswith("The state does not seem to be enough")
    assert facts["stated"][-1].startswith("The state does not seem to be enough")
    code, _, err = run("fit", *own(hidden), *SURE, "--no-check")
    assert (code, err) == (0, "")
    code, _, err = run("fit", *own(hidden), *SURE, "--evidence", "returns")
    assert (code, err) == (0, "")


def test_settings_reach_the_learner(run, care, tmp_path):
    flags = ["--no-promise", "--worst", -2, "--risk", 0.05, "--evidence", "excursions", "--veto", "--splits", 0, "--no-check",
             "--seed", 4, "--n-min", 5, "--cut", "terminal"]  # fmt: skip
    expected = {
        "learner": "Confident", "risk": 0.05, "evidence": "excursions", "veto": True, "splits": 0,
        "check": False, "seed": 4, "n_min": 5, "cut": "terminal", "gamma": 1.0, "promise": False,
        "worst": -2.0,
    }  # fmt: skip
    assert run("fit", *own(care), *SURE, *flags)[0] == 0
    assert {**dprl.load("policy.dprl").parameters}.items() >= expected.items()
    (tmp_path / "dprl.toml").write_text(
        "[fit]\nlearner = 'confident'\ngamma = 1.0\nrisk = 0.05\nevidence = 'excursions'\n"
        "promise = false\nworst = -2.0\nveto = true\nsplits = 0\ncheck = false\nseed = 4\nn_min = 5\ncut = 'terminal'\n"
        "out = 'toml.dprl'\n"
    )
    assert run("fit", *own(care))[0] == 0
    assert {**dprl.load("toml.dprl").parameters}.items() >= expected.items()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gamma", 1], "the learner dprl needs --n-min"),
        (["--gamma", 1, "--n-min", 20, "--risk", 0.1], "--risk: not for the learner dprl"),
        (["--gamma", 1, "--n-min", 20, "--seed", 0], "--seed: not for the learner dprl"),
        (["--gamma", 1, "--n-min", 20, "--no-check"], "--check: not for the learner dprl"),
        (["--gamma", 1, "--n-min", 20, "--no-veto", "--splits", 3], "--veto, --splits: not for"),
        (["--gamma", 1, "--n-min", 20, "--evidence", "model"], "--evidence: not for the learner"),
        ([*SURE, "--contrast"], "--contrast: not for the learner confident, only for dprl."),
        ([*SURE, "--no-plan"], "--plan: not for the learner confident"),
        ([*SURE, "--visits", "first"], "--visits: not for the learner confident"),
        ([*SURE, "--scale", "std"], "--scale: not for the learner confident"),
        ([*SURE, "--weight", "a=1"], "--weight: not for the learner confident"),
        ([*SURE, "--radius", 1], "the learner confident takes labels"),
        ([*SURE, "--state", "pulse"], "states are 2 features, and the learner confident takes labels"),
        ([*SURE, "--risk", 0.7], "risk must be a number in (0, 0.5]; got 0.7"),
        ([*SURE, "--n-min", 1], "--n-min must be"),
        ([*SURE, "--splits", -1], "splits must be"),
    ],
)  # fmt: skip
def test_what_does_not_belong_is_refused(run, care, tmp_path, flags, message):
    if "--state" in flags:
        pd.read_parquet(care).assign(situation=1.5, pulse=60.0).to_parquet(care)
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = run("fit", *own(care), *flags)
    assert (code, out) == (1, "")
    assert err.startswith("ParameterError: ")
    assert message in err
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    code, out, _ = run("fit", *own(care), *flags, "--json")
    assert (code, message in json.loads(out)["error"]["what"]) == (1, True)


def test_a_setting_of_the_other_learner_in_the_file_is_refused_too(run, care, tmp_path):
    (tmp_path / "dprl.toml").write_text("[fit]\nplan = false\n")
    code, _, err = run("fit", *own(care), *SURE)
    assert (code, "first: --plan False" in err, "(in dprl.toml too)" in err) == (1, True, True)


def test_changes_say_that_returns_are_another_look(run, care):
    run("fit", *own(care), *SURE)
    code, out, _ = run("changes", "policy.dprl", "--details")
    assert code == 0
    assert "what the rule looked at" not in out
    assert "here it decided nothing" in out
    code, out, _ = run("changes", "policy.dprl", "--json")
    assert json.loads(out)["stated"] == list(dprl.load("policy.dprl").stated)


def test_a_gate_certifies_a_part_of_it(run, care, tmp_path):
    run("fit", *own(care), *SURE)
    code, _, err = run("gate", "policy.dprl", care, "--lowest", 0, "--highest", 1)
    assert code == 0, err
    gated = dprl.load(tmp_path / "gated.dprl")
    fitted = dprl.load(tmp_path / "policy.dprl")
    named = dict(zip(fitted.states, fitted.at(fitted.states).answers(), strict=True))
    assert gated.certificate.issued.items() <= named.items()
    assert gated.certificate.markov


def test_a_sweep_varies_its_n_min(run, care, tmp_path):
    some = ["--n-min", 3, 30, "--draws", 50, "--no-values", "--json"]
    code, out, _ = run("sweep", *own(care), *SURE, *some, "--risk", 0.1, "--seed", 2)
    assert code == 0
    rows = json.loads(out)["settings"]
    train, valid = log_of(care).split(0.5, seed=2)
    policies = [dprl.Confident(gamma=1.0, risk=0.1, n_min=n, seed=2).fit(train) for n in (3, 30)]
    assert [row["n_min"] for row in rows] == [3, 30]
    assert [row["changes"] for row in rows] == [p.summary()["changes"] for p in policies]
    assert valid.n_episodes == 250
    code, out, err = run("sweep", *own(care), *SURE, *some, "--delta", 0.05)
    assert (code, "--delta certifies policies of the learner dprl" in err) == (1, True)


def test_check_asks_whether_the_state_is_enough(run, care, hidden):
    code, out, err = run("check", *own(hidden), "--markov", "--gamma", 1)
    plain = run("check", *own(hidden))[1]
    result = dprl.markov_check(log_of(hidden), 1.0)
    assert (code, err) == (0, "")
    assert out == f"{plain}\n{result}\n"
    assert not result.ok
    code, out, _ = run("check", *own(hidden), "--markov", "--gamma", 1, "--lags", 3, "--json")
    facts = json.loads(out)
    assert (code, facts["ok"], facts["markov"]["ok"], facts["markov"]["lags"]) == (
        0,
        True,
        False,
        3,
    )
    code, out, _ = run("check", *own(care), "--markov", "--gamma", 1)
    assert "No sign that the past tells more than state and action do." in out


def test_check_of_the_state_by_settings(run, hidden, tmp_path):
    (tmp_path / "dprl.toml").write_text("[check]\nmarkov = true\ngamma = 1.0\nlags = 3\n")
    code, out, _ = run("check", *own(hidden), "--json")
    assert (code, json.loads(out)["markov"]["lags"]) == (0, 3)


def test_check_of_the_state_with_cut_episodes(run, hidden):
    frame = pd.read_parquet(hidden)
    frame["ended"] = ["cut" if p % 9 == 0 else "terminal" for p in frame["patient"]]
    frame.to_parquet(hidden)
    flags = [*own(hidden), "--ended", "ended", "--markov", "--gamma", 1]
    code, out, err = run("check", *flags)
    assert (code, err.startswith("warning: ")) == (0, True)
    assert "have no known outcome and were left out" in out
    code, out, err = run("check", *flags, "--cut", "drop", "--json")
    assert (code, err, json.loads(out)["warnings"]) == (0, "", [])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--markov"], "--markov needs --gamma"),
        (["--gamma", 1], "--gamma: only for the check of the state."),
        (["--lags", 2, "--cut", "drop"], "--lags, --cut: only for the check of the state."),
        (["--markov", "--gamma", 2], "gamma must be"),
        (["--markov", "--gamma", 1, "--lags", 0], "--lags must be a whole number, at least 1"),
        (["--markov", "--gamma", 1, "--state", "pulse"], "features"),
    ],
)
def test_check_of_the_state_refused(run, care, flags, message):
    if "--state" in flags:
        pd.read_parquet(care).assign(situation=1.5, pulse=60.0).to_parquet(care)
    code, out, err = run("check", *own(care), *flags)
    assert (code, out) == (1, "")
    assert message in err


def test_a_log_with_errors_is_mended_first(run, care):
    frame = pd.read_parquet(care)
    frame.loc[3, "outcome"] = None
    frame.to_parquet(care)
    code, out, _ = run("check", *own(care), "--markov", "--gamma", 1)
    assert (code, "The state was not checked: the log has errors." in out) == (1, True)
    code, out, _ = run("check", *own(care), "--markov", "--gamma", 1, "--json")
    assert (code, json.loads(out)["markov"]) == (1, None)


def test_progress_is_told(run, care, monkeypatch):
    stages = []
    fit = dprl.Confident.fit

    def noted(self, log, *, progress):
        return fit(self, log, progress=lambda stage, share: stages.append(stage))

    monkeypatch.setattr(dprl.Confident, "fit", noted)
    assert run("fit", *own(care), *SURE)[0] == 0
    assert "choosing and judging on different halves" in stages
