"""`dprl reproduce`: what is skipped is said at the end, and Ctrl-C is heard at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_experiments import TOY, running
from waiting import until

import dprl_studies.commands
import dprl_studies.paper
from dprl.errors import PackageError
from dprl.logs.reading.tables import read_rows
from dprl_studies.paper import Entry

PROGRAM = """
import sys, time
import dprl_studies.paper
from dprl.apps.cli.main import main
from dprl_studies.harness import Experiment
from dprl._core.table import Table

def settings(quick, seed):
    return [{"k": k} for k in range(12)]

def run(setting):
    if setting["k"] >= 2:
        time.sleep(1000)
    return [{"k": setting["k"]}]

SLOW = Experiment("slow", "Does it stop?", settings, run, Table, None)
if __name__ == "__main__":
    dprl_studies.paper.EXPERIMENTS["slow"] = dprl_studies.paper.Entry("slow", "It stops.")
    dprl_studies.paper.experiment = lambda name, **options: SLOW
    main(["reproduce", "slow", "--workers", sys.argv[1], "--out", "out"])
"""


def lacking(setting):
    raise PackageError("the toy needs no-such, which is not installed.", "import", "pip install it")


@pytest.fixture
def toys(monkeypatch):
    """Three experiments, of which the second needs a package that is not there."""
    toys = {
        "first": replace(TOY, name="first"),
        "lacking": replace(TOY, name="lacking", run=lacking),
        "last": replace(TOY, name="last"),
    }
    monkeypatch.setattr(
        dprl_studies.paper, "EXPERIMENTS", dict.fromkeys(toys, Entry("toy", "Toys."))
    )
    monkeypatch.setattr(dprl_studies.paper, "experiment", lambda name, **options: toys[name])


def test_all_goes_on_without_what_is_missing(run, toys, tmp_path):
    code, out, err = run("reproduce", "all", "--workers", 1)
    assert code == 1
    assert "first: " in out
    assert "last: " in out
    assert err.splitlines() == [
        "1 of 3 experiments were skipped:",
        "lacking: the toy needs no-such, which is not installed.",
        "  first: import",
        "  pip install it",
    ]
    for name in ("first", "last"):
        assert (tmp_path / "out" / name / "figure.png").is_file()


def test_machines_are_told_what_was_skipped_too(run, toys):
    code, out, _ = run("reproduce", "first", "lacking", "--workers", 1, "--json")
    done, skipped = json.loads(out)
    assert (code, done["name"], skipped["name"]) == (1, "first", "lacking")
    assert skipped["skipped"]["do"] == "pip install it"


def test_one_experiment_alone_is_refused_as_ever(run, toys):
    code, out, _ = run("reproduce", "lacking", "--workers", 1, "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (1, "PackageError")


@pytest.mark.slow
def test_a_missing_package_is_told_from_the_workers_too(run, toys):
    code, _, err = run("reproduce", "lacking", "last", "--workers", 2)
    assert (code, "lacking: the toy needs no-such" in err) == (1, True)


def test_without_matplotlib_there_are_rows_and_tables_and_a_line_about_the_figure(
    run, toys, monkeypatch, tmp_path
):
    run("reproduce", "first", "--workers", 1, "--quick")
    whole = {path.name for path in (tmp_path / "out" / "first-quick").iterdir()}
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run("reproduce", "first", "--workers", 1, "--quick")
    assert (code, "rows and table in" in out) == (0, True)
    assert "first has no figure: a figure needs matplotlib, which is not installed." in err
    left = {path.name for path in (tmp_path / "out" / "first-quick").iterdir()}
    assert whole - left == {"figure.png", "figure.svg"}  # an older figure would be of other rows


def words_of_help(out):
    """The text of a help page, without its frame and its line breaks."""
    return " ".join(out.replace("│", " ").split())


def test_help_says_what_every_experiment_shows(run):
    _, out, _ = run("reproduce", "--help")
    words = words_of_help(out)
    for name, entry in dprl_studies.paper.EXPERIMENTS.items():
        assert f"• {name}: {entry.shows}" in words
    assert "Needs --tables." in words
    assert "Needs --experts, unless --quick." in words


def test_help_follows_the_table(monkeypatch):
    monkeypatch.setitem(
        dprl_studies.paper.EXPERIMENTS, "new", Entry("new", "Something new.", needs="--luck")
    )
    assert "- **new**: Something new. Needs --luck." in dprl_studies.commands._listed()


def test_an_unknown_experiment_is_told_the_whole_table(run, tmp_path):
    """And before anything is prepared, wherever it stands."""
    for names in (["fourest"], ["all", "fourest"], ["hypotension", "fourest"]):
        code, _, err = run("reproduce", *names)
        assert (code, "there is no experiment 'fourest'." in err) == (1, True)
        for name in (*dprl_studies.paper.EXPERIMENTS, "all"):
            assert name in err.split("Experiments: ")[1]
    assert not (tmp_path / "out").exists()


def test_an_experiment_without_its_folder_is_refused_before_others_run(run, tmp_path):
    code, _, err = run("reproduce", "hypotension", "forest", "--quick")
    assert (code, "needs a folder of MIMIC tables" in err) == (1, True)
    assert not (tmp_path / "out").exists()


def test_experiments_get_the_options_of_their_entry(run, monkeypatch, tmp_path):
    """And those that need options run last, as they stand in the table."""
    from types import SimpleNamespace

    import dprl_studies.harness

    received, ran = {}, []

    def maker(name):
        def make(**options):
            received[name] = options
            return replace(TOY, name=name)

        return make

    def harness(experiment, folder, **options):
        ran.append((experiment.name, folder))
        raise PackageError("not today.")

    for name, module in {
        "forest": SimpleNamespace(EXPERIMENT=replace(TOY, name="forest")),
        "hypotension": SimpleNamespace(on_tables=maker("hypotension")),
        "atari": SimpleNamespace(on_games=maker("atari")),
    }.items():
        monkeypatch.setitem(sys.modules, f"dprl_studies.paper.{name}", module)
    monkeypatch.setattr(dprl_studies.harness, "reproduce", harness)
    run("reproduce", "atari", "hypotension", "forest", "--tables", "t", "--out", "o", "--quick")
    assert ran == [
        (name, Path("o") / f"{name}-quick") for name in ("forest", "hypotension", "atari")
    ]
    assert set(received["hypotension"]) == {"tables", "folder", "progress"}
    assert received["hypotension"]["tables"] == Path("t")
    assert set(received["atari"]) == {"games", "experts", "folder", "quick", "seed", "progress"}
    assert received["atari"]["folder"] == Path("o") / "atari-quick"


def test_all_leaves_out_what_needs_an_option():
    alone = dprl_studies.paper.names()
    assert set(dprl_studies.paper.EXPERIMENTS) - set(alone) == {"hypotension", "atari"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize("workers", ["1", "3"])
def test_ctrl_c_is_heard_at_once(tmp_path, to_all, workers):
    """From a terminal it goes to every process, from elsewhere to one; rows that are done stay."""
    (tmp_path / "program.py").write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, "program.py", workers], cwd=tmp_path, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    parts = tmp_path / "out" / "slow" / "parts"
    while len(list(parts.glob("*.parquet"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    children = {pid for pid, parent in running().items() if parent == process.pid}
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGINT)
    _, err = process.communicate()  # which ends long before a task does
    assert (process.returncode, err) == (130, "stopped.\n")
    until(lambda: not children & set(running()))
    assert sorted(read_rows(sorted(parts.glob("*.parquet")))["k"]) == [0, 1]
