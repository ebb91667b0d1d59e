"""The command line as its users meet it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import dprl
import dprl.apps.cli.main
from conftest import options


@pytest.fixture
def fitted(run, visits):
    path, columns = visits
    code, _, _ = run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9)
    assert code == 0
    return path, columns


def test_check(run, visits):
    path, columns = visits
    code, out, err = run("check", path, *options(columns))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == (
        "Outcome: score; larger is assumed to be better (say --better lower if not)."
    )
    assert "\nLog: 300 episodes · 900 steps · 2 states · 2 actions\n0 errors" in out
    code, out, _ = run("check", path, *options(columns), "--json")
    assert json.loads(out)["ok"] is True


def test_check_of_a_bad_log(run, visits):
    path, columns = visits
    path.write_text(path.read_text().replace("\n1,1,", "\n1,,"))
    code, out, _ = run("check", path, *options(columns))
    assert code == 1
    assert "error: 'day' is missing on 1 of 900 rows.\n  first: row 5 (patient=1)" in out
    code, out, _ = run("check", path, *options(columns), "--json")
    assert (code, json.loads(out)["ok"]) == (1, False)
    code, out, _ = run("check", path, *options(columns), "--missing", "drop-episodes")
    assert code == 0
    assert "1 of 300 episodes were dropped" in out


def test_fit_changes_explain(run, fitted, tmp_path):
    path, columns = fitted
    code, out, _ = run(
        "fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9, "--out", "p.dprl"
    )
    assert code == 0
    assert "2 states · 2 decision points · 1 change" in out
    assert "Saved as p.dprl." in out
    policy = dprl.load(tmp_path / "p.dprl")
    log = dprl.read(path, **columns)
    assert policy.digest() == dprl.DPRLDiscrete(n_min=20, gamma=0.9).fit(log).digest()

    code, out, _ = run("changes", "p.dprl")
    assert code == 0
    assert "mild" in out
    code, out, _ = run("changes", "p.dprl", "--json")
    assert json.loads(out)["rows"][0]["suggested"] == "new"
    code, out, _ = run("changes", "p.dprl", "--confirmations", "--json")
    assert json.loads(out)["rows"][0]["suggested"] == "old"

    code, out, _ = run("explain", "p.dprl", "mild")
    assert code == 0
    assert out.startswith("mild: suggests new (change)")
    code, out, _ = run("explain", "p.dprl", "nowhere", "--json")
    assert json.loads(out)["kind"] == "defer"


def test_fit_in_json(run, visits):
    path, columns = visits
    code, out, _ = run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9, "--json")
    result = json.loads(out)
    assert (code, result["changes"], result["policy"]) == (0, 1, "policy.dprl")
    assert result["digest"] == dprl.load("policy.dprl").digest()


def test_fit_settings_reach_the_learner(run, visits):
    path, columns = visits
    flags = ["--no-contrast", "--no-plan", "--visits", "all", "--cut", "drop"]
    run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9, *flags)
    settings = dprl.load("policy.dprl").parameters
    assert settings["contrast"] is False
    assert settings["plan"] is False
    assert settings["visits"] == "all"
    assert settings["cut"] == "drop"


def test_cut_episodes_are_warned_about(run, visits):
    path, columns = visits
    frame = pd.read_csv(path).assign(done=0)
    frame.to_csv(path, index=False)
    arguments = [path, *options(columns), "--n-min", 20, "--gamma", 0.9, "--ended", "done"]
    code, _, err = run("fit", *arguments)
    assert code == 0
    assert err.startswith("warning: 300 of 300 episodes (900 of 900 steps) were cut")
    code, out, err = run("fit", *arguments, "--json")
    assert json.loads(out)["warnings"][0].startswith("300 of 300")
    assert err == ""
    code, _, err = run("fit", *arguments, "--cut", "terminal")
    assert (code, err) == (0, "")


def test_act_keeps_the_table_and_its_order(run, fitted):
    states = 'id,stage,note\n7,mild,"a, b"\n8,unknown,\n9,severe,x\n10,,\n'
    code, out, err = run("act", "policy.dprl", stdin=states)
    assert code == 0
    assert out.splitlines() == [
        "id,stage,note,suggested", '7,mild,"a, b",new', "8,unknown,,DEFER", "9,severe,x,old",
        "10,,,DEFER",
    ]  # fmt: skip
    assert "2 of 4 rows hold a state the policy never saw: deferred." in err


def test_no_action_can_be_taken_for_a_deferral(run, fitted):
    for word in ("old", "not old"):
        code, _, err = run("act", "policy.dprl", "--defer", word, stdin="stage\nmild\n")
        assert (code, f"--defer {word!r} names an action of the policy" in err) == (1, True)
    given = {"episode": [1, 2], "state": [0, 0], "reward": [0.0, 1.0]}
    for name in ("DEFER", " DEFER"):
        with pytest.raises(
            dprl.LogError, match="which is what a policy says where it names no action"
        ):
            dprl.from_arrays(**given, action=["wait", name])
    for more in ({"available": [["a", "b", "DEFER"]] * 2}, {"actions": ["a", "b", "DEFER"]}):
        with pytest.raises(dprl.LogError, match="where it names no action"):
            dprl.from_arrays(**given, action=["a", "b"], **more)
    with pytest.raises(dprl.LogError, match="what not to do"):
        dprl.from_arrays(**given, action=["a", "b"], actions=["a", "b", "not a"])
    with pytest.raises(dprl.PolicyError, match="none of them 'DEFER'"):
        dprl.CallablePolicy(lambda x: ["wait"] * len(x), actions=["wait", "DEFER"])
    with pytest.raises(dprl.ParameterError, match="no action can be called 'DEFER'"):
        dprl.SiteSchema(states=[1], actions=["DEFER", "wait"], gamma=1.0)
    assert dprl.from_arrays(**given, action=["wait", "defer"]).n_actions == 2


def test_act_from_file_to_file(run, fitted, tmp_path):
    pd.DataFrame({"s": ["mild", "else"], "k": [1, 2]}).to_parquet("in.parquet")
    code, out, err = run(
        "act", "policy.dprl", "in.parquet", "--state", "s", "--out", "out.parquet",
        "--column", "do", "--defer", "",
    )  # fmt: skip
    assert (code, out) == (0, "")
    assert "2 rows, 1 deferred. Saved as out.parquet." in err
    assert pd.read_parquet("out.parquet").to_dict("list") == {
        "s": ["mild", "else"], "k": [1, 2], "do": ["new", ""],
    }  # fmt: skip
    code, out, _ = run("act", "policy.dprl", "in.parquet", "--state", "s", "--json")
    assert json.loads(out)["rows_out"] == [
        {"state": "mild", "suggested": "new"}, {"state": "else", "suggested": None},
    ]  # fmt: skip
    assert json.loads(out)["deferred"] == 1


def test_act_finds_a_lone_column_by_itself_and_says_so(run, fitted):
    code, out, err = run("act", "policy.dprl", stdin="whatever\nmild\n")
    assert (code, out) == (0, "whatever,suggested\nmild,new\n")
    assert err == "the only column, 'whatever', is taken for the states.\n"
    assert run("act", "policy.dprl", stdin="stage\nmild\n")[2] == ""
    code, out, err = run("act", "policy.dprl", "--state", "stge", stdin="stage\nmild\n")
    assert (code, out) == (1, "")  # a name that was given is never guessed around
    assert "there is no column 'stge' for state" in err
    assert "'standard input.csv' is empty" in run("act", "policy.dprl", stdin="")[2]


def policy_of(states, path):
    done = [i // 3 % 2 for i in range(40)]
    log = dprl.from_arrays(
        episode=range(40), state=[states[i % 2] for i in range(40)],
        action=["ab"[a] for a in done], reward=[float(a) for a in done],
    )  # fmt: skip
    dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log).save(path)


def test_states_that_are_true_or_false(run, tmp_path):
    policy_of([False, True], tmp_path / "p.dprl")
    for word in ("true", "True"):
        code, out, _ = run("explain", "p.dprl", word)
        assert code == 0
        assert out.startswith("True: suggests b")
    assert "states are true or false; got 'x'" in run("explain", "p.dprl", "x")[2]
    code, out, _ = run("act", "p.dprl", stdin="state,k\ntrue,1\n,2\nFalse,3\n")
    assert (code, out) == (0, "state,k,suggested\ntrue,1,b\n,2,DEFER\nFalse,3,b\n")
    code, out, err = run("act", "p.dprl", stdin="state\ntrue\n1\n")
    assert (code, out) == (1, "")
    assert "must hold true or false, as the policy's states do.\n  first: row 2: '1'" in err


def test_the_first_state_that_is_no_number_is_shown(run, tmp_path):
    policy_of([7, 8], tmp_path / "p.dprl")
    code, out, _ = run("act", "p.dprl", stdin="state,k\n7,1\n,2\n9,3\n")
    assert (code, out) == (0, "state,k,suggested\n7,1,b\n,2,DEFER\n9,3,DEFER\n")
    code, out, _ = run("act", "p.dprl", stdin="state\n7\nNA\n")  # missing, as in a log
    assert (code, out) == (0, "state,suggested\n7,b\nNA,DEFER\n")
    code, _, err = run("act", "p.dprl", stdin="state\n7\n8\nseven\n7\n")
    assert code == 1
    assert "must hold whole numbers, as the policy's states do.\n  first: row 3: 'seven'" in err


def test_what_is_read_is_never_written_over(run, fitted, tmp_path):
    path, columns = fitted
    made = [*options(columns), "--gamma", 0.9, "--n-min", 20]
    attempts = [
        ["fit", path, *made, "--out", path],
        ["fit", "v*.csv", *made, "--out", "visits.csv"],
        ["gate", "policy.dprl", path, "--lowest", 0, "--highest", 3, "--out", "policy.dprl"],
        ["gate", "policy.dprl", path, "--lowest", 0, "--highest", 3, "--out", path],
        ["sweep", path, *made, "--rule", "bold", "--out", path],
        ["sweep", "v.parquet", *made, "--figure", "v.png"],  # whose rows go into v.parquet
        ["report", "policy.dprl", "v*.csv", "--out", "visits.csv"],
        ["review", "policy.dprl", "--log", "v*.csv", "--export", "--out", "visits.csv"],
        ["act", "policy.dprl", path, "--out", path],
        ["act", "policy.dprl", path, "--out", "policy.dprl"],
    ]
    pd.read_csv(path).to_parquet("v.parquet")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for attempt in attempts:
        code, _, err = run(*attempt)
        assert code == 1, attempt
        assert "would be overwritten" in err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("number", ["20.5", "2.5", "1e2", "many"])
def test_whole_numbers_are_not_rounded(run, visits, tmp_path, number):
    path, columns = visits
    flags = [*options(columns), "--gamma", 0.9]
    for command in (["fit", path, "--n-min", number], ["sweep", path, "--n-min", 10, number]):
        code, out, err = run(*command, *flags)
        assert (code, out) == (2, "")
        assert f"{number!r} is not a whole number" in err
    (tmp_path / "dprl.toml").write_text("[fit]\nn_min = 2.5\n")
    assert run("fit", path, *flags)[0] == 2
    assert not (tmp_path / "policy.dprl").exists()
    assert run("fit", path, *flags, "--n-min", "20.0")[0] == 0
    assert dprl.load("policy.dprl").parameters["n_min"] == 20


@pytest.mark.slow
def test_dropped_episodes_are_told(run, fitted, tmp_path):
    path, columns = fitted
    held = pd.read_csv(path).assign(patient=lambda t: t.patient + 1000, score=lambda t: 1 - t.score)
    held.loc[4, "score"] = None
    held.to_csv("held.csv", index=False)
    drop = ["held.csv", "--missing", "drop-episodes"]
    words = "1 of 300 episodes were dropped for missing values in 'score'."
    for command in (
        ["fit", *drop, *options(columns), "--n-min", 20, "--gamma", 0.9, "--out", "q.dprl"],
        ["evaluate", "policy.dprl", *drop, "--draws", 20],
        ["report", "policy.dprl", *drop, "--draws", 20],
        ["sensitivity", "policy.dprl", *drop, "--draws", 20, "--no-yardstick"],
        ["gate", "policy.dprl", *drop, "--lowest", 0, "--highest", 3],
    ):
        code, _, err = run(*command)
        assert (code, err) == (0, f"warning: {words}\n"), command
        code, out, err = run(*command, "--json")
        assert (code, err) == (0, "")
        assert json.loads(out)["warnings"][0] == words


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "dprl", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"dprl {dprl.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        (["act", "none.dprl"], "s\n", "PolicyError: there is no policy file 'none.dprl'"),
        (["act", "policy.dprl"], "a,b\n1,2\n", "there is no column 'stage' for state"),
        (
            ["act", "policy.dprl", "--column", "stage"],
            "stage\nmild\n",
            "has a column 'stage' already",
        ),
        (["act", "policy.dprl", "--out", "x.txt"], "stage\nmild\n", "Use .csv or .parquet"),
        (["act", "policy.dprl", "--out", "no/x.csv"], "stage\nmild\n", "the folder of 'no/x.csv'"),
        (["changes", "visits.csv"], None, "PolicyError: 'visits.csv' is not a usable policy file"),
    ],
)
def test_refusals(run, fitted, arguments, stdin, message, tmp_path):
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = run(*arguments, stdin=stdin)
    assert code == 1
    assert message in err
    assert out == ""
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    code, out, _ = run(*arguments, "--json", stdin=stdin)
    assert code == 1
    assert message.rpartition("Error: ")[2] in json.dumps(json.loads(out), ensure_ascii=False)


def test_a_failed_fit_leaves_the_old_policy(run, fitted, tmp_path):
    path, columns = fitted
    before = (tmp_path / "policy.dprl").read_bytes()
    path.write_text(path.read_text().replace(",mild,", ",,", 1))
    code, _, err = run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9)
    assert code == 1
    assert err.startswith("LogError: 'stage' is missing on 1 of 900 rows.")
    assert (tmp_path / "policy.dprl").read_bytes() == before


def test_whole_number_states(run, tmp_path):
    rows = {"p": range(40), "s": [3] * 40, "a": [0, 1] * 20, "r": [1, 0] * 20}
    pd.DataFrame(rows).to_csv("n.csv", index=False)
    columns = {"episode": "p", "state": "s", "action": "a", "reward": "r"}
    run("fit", "n.csv", *options(columns), "--n-min", 5, "--gamma", 1)
    code, out, _ = run("explain", "policy.dprl", 3)
    assert (code, out.startswith("3: suggests 0")) == (0, True)
    code, _, err = run("explain", "policy.dprl", "three")
    assert (code, "whole numbers; got 'three'" in err) == (1, True)
    code, out, _ = run("act", "policy.dprl", stdin="s\n3\n4\n")
    assert out == "s,suggested\n3,0\n4,DEFER\n"
    code, _, err = run("act", "policy.dprl", stdin="s\nthree\n")
    assert (code, "must hold whole numbers" in err) == (1, True)


def test_defaults_from_dprl_toml(run, visits, tmp_path):
    path, columns = visits
    lines = "\n".join(
        f'{k} = ["{v}"]' if k == "state" else f'{k} = "{v}"' for k, v in columns.items()
    )
    settings = tmp_path / "dprl.toml"
    settings.write_text(f"[log]\n{lines}\n[fit]\nn_min = 20\ngamma = 0.9\nout = 'toml.dprl'\n")
    assert run("check", path)[0] == 0
    code, out, _ = run("fit", path)
    assert (code, "Saved as toml.dprl." in out) == (0, True)
    code, out, _ = run("fit", path, "--n-min", 10**6)
    assert "0 decision points" in out
    settings.write_text("[log]\nepisod = 'x'\n")
    assert run("check", path)[0] == 2
    settings.write_text("[fitt]\n")
    code, _, err = run("check", path)
    assert (code, "dprl.toml has 'fitt', which is no table dprl knows" in err) == (1, True)
    settings.write_text("[log")
    code, _, err = run("check", path)
    assert (code, "dprl.toml is not TOML" in err) == (1, True)


def tables_of(app, name=""):
    """Every command of the command line with its table in dprl.toml: 'fit', 'icu.build'."""
    for word in app:
        if not word.startswith("-"):
            yield f"{name}{word}"
            yield from tables_of(app[word], f"{name}{word}.")


TABLES = sorted(tables_of(dprl.apps.cli.main.app))


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_command_has_its_table_in_dprl_toml(run, table, tmp_path):
    """It may stand in the file, and what it says reaches the command: a wrong name is told."""
    (tmp_path / "dprl.toml").write_text(f"[{table}]\n")
    code, _, err = run("demo", "--json")
    assert (code, err) == (0, "")
    (tmp_path / "dprl.toml").write_text(f"[{table}]\nno_such_option = 1\n")
    code, out, err = run(*table.split("."))
    if table == "icu":  # holds the tables of its own commands, and nothing else
        assert (code, "has 'icu.no_such_option', which is no table" in err) == (1, True)
        return
    assert (code, "no-such-option" in (out + err).replace("_", "-")) == (2, True)
    (tmp_path / "dprl.toml").write_text(f"[{table}]\njson = true\n")
    assert json.loads(run(*table.split("."), "--no-such-option")[1])["ok"] is False


def test_split_takes_its_settings_from_dprl_toml(run, visits, tmp_path):
    path, _ = visits
    (tmp_path / "dprl.toml").write_text("[split]\nby = 'patient'\nout = 'halves'\nfraction = 0.7\n")
    code, _, err = run("split", path)
    assert (code, err) == (0, "dprl.toml in this folder sets --out: halves\n")
    assert (tmp_path / "halves" / "train.csv").is_file()


def test_columns_reach_every_command_that_names_columns(run, tmp_path):
    """[log] is for all commands with options that say which column is what, and no others."""
    (tmp_path / "dprl.toml").write_text("[log]\nepisode = 'patient'\n")
    told = dprl.apps.cli.options.settings(dprl.apps.cli.main.app).data
    assert sorted(told) == [
        "check", "evaluate", "evidence", "fit", "gate", "monitor", "report", "review",
        "sensitivity", "study", "sweep",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "tokens", [["fit"], ["fly"], ["check", "x.csv"], ["fit", "x.csv", "--n-min", "many"]]
)
def test_not_understood(run, tokens):
    assert run(*tokens)[0] == 2


@pytest.mark.parametrize("command", ["", "check", "fit", "changes", "explain", "act", "demo"])
def test_help_teaches(run, command):
    code, out, _ = run(*([command] if command else []), "--help")
    assert code == 0
    assert "Usage" in out
    assert len(out) > 300


def test_version(run):
    assert run("--version")[1].strip() == f"dprl {dprl.__version__}"


def test_demo_is_a_study_beside_the_truth(run, tmp_path):
    code, out, _ = run("demo", "--folder", tmp_path / "demo", "--json")
    result = json.loads(out)
    assert code == 0
    assert "situation = fever: antibiotics, not watch" in result["answer"][0]
    assert result["value_policy"] > result["value_behavior"]
    assert "<html" in Path(result["report"]).read_text()
    assert sorted(p.name for p in (tmp_path / "demo").rglob("*.*")) == [
        "dprl.toml", "policy.dprl", "report.html", "rows.parquet", "visits.parquet",
    ]  # fmt: skip


def test_an_unwritable_folder_is_said_plainly(run, visits):
    path, columns = visits
    arguments = ["fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9]
    code, _, err = run(*arguments, "--out", "/proc/policy.dprl")
    assert code == 1
    assert len(err.splitlines()) <= 3
    code, _, err = run(*arguments, "--out", "no/such/policy.dprl")
    assert (code, "its folder does not exist" in err) == (1, True)


def test_as_a_process_with_a_reader_that_leaves(fitted, tmp_path):
    dprl_command = os.path.join(os.path.dirname(sys.executable), "dprl")
    rows = "stage\n" + "mild\n" * 200_000
    done = subprocess.run(
        f"'{dprl_command}' act policy.dprl - | head -n 2", shell=True, cwd=tmp_path,
        input=rows, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "stage,suggested\nmild,new\n"
    assert done.stderr == ""


def test_progress_is_shown_on_a_terminal(run, visits, monkeypatch):
    path, columns = visits

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9)
    assert "fitting" in screen.getvalue()
