"""`dprl fit` over logs that do not fit into memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

import dprl
from dprl.apps.cli import options as out_of_core
from dprl.apps.cli.main import main

COLUMNS = ["--episode", "episode", "--time", "time", "--state", "state", "--action", "action",
           "--reward", "reward"]  # fmt: skip


@pytest.fixture
def arms(tmp_path):
    dprl.write(dprl.envs.risky_arms().sample(400, seed=0), tmp_path / "arms.parquet")
    return tmp_path / "arms.parquet"


def fit(arms, out, *more):
    with pytest.raises(SystemExit) as left:
        main(["fit", str(arms), *COLUMNS, "--gamma", "1.0", "--n-min", "20", "--out", str(out),
              *more])  # fmt: skip
    return left.value.code


def test_the_policy_is_the_same_file(arms, tmp_path, capsys):
    one, two = tmp_path / "one.dprl", tmp_path / "two.dprl"
    assert fit(arms, one) == 0
    assert "note:" not in capsys.readouterr().err
    folder = tmp_path / "temporary"
    folder.mkdir()
    assert fit(arms, two, "--out-of-core", "--temp-folder", str(folder)) == 0
    assert "Log in parts: 400 episodes" in capsys.readouterr().out
    assert one.read_bytes() == two.read_bytes()
    assert not list(folder.iterdir())


def test_it_is_chosen_where_the_log_would_not_fit(arms, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("dprl._core.disk.available_memory", lambda: 60_000.0)
    monkeypatch.setattr("dprl.logs.reading.scan.available_memory", lambda: 4e9)
    assert fit(arms, tmp_path / "policy.dprl", "--json") == 0
    said_by = capsys.readouterr()
    assert said_by.err == (
        "note: 800 rows need about 120.0 kB of memory, and 60.0 kB is free: the log is read in "
        "parts (--out-of-core).\n"
    )
    assert json.loads(said_by.out)["policy"].endswith("policy.dprl")


def test_what_cannot_be_done_in_parts_is_refused(arms, tmp_path, capsys):
    out = tmp_path / "policy.dprl"
    assert fit(arms, out, "--out-of-core", "--learner", "rules") == 1
    assert "only the learners dprl and confident" in capsys.readouterr().err
    assert fit(arms, out, "--out-of-core", "--partitions") == 1
    assert "folders were to become columns" in capsys.readouterr().err
    assert fit(arms, out, "--out-of-core", "--memory-limit", "2 apples") == 1
    assert "such as '2GB'; got '2 apples'" in capsys.readouterr().err
    assert not out.exists()


def test_other_files_have_no_rows_to_count(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n")
    assert out_of_core.rows_in([str(tmp_path / "a.csv")]) == 0
    assert out_of_core.rows_in([str(tmp_path / "none.parquet")]) == 0


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_files(arms, tmp_path, kind):
    folder = tmp_path / "temporary"
    folder.mkdir()
    code = (
        "import sys, time; import dprl; from dprl.logs.reading import scan\n"
        "def slow(*_): print('here', flush=True); time.sleep(1000)\n"
        "scan.digest_of = slow\n"
        "from dprl.apps.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, "fit", str(arms), *COLUMNS, "--gamma", "1.0", "--n-min", "20",
         "--out", str(tmp_path / "p.dprl"), "--out-of-core", "--temp-folder", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline().strip() == b"here"
    assert list(folder.iterdir())
    child.send_signal(kind)
    child.communicate()
    assert child.returncode
    assert not list(folder.iterdir())
    assert not (tmp_path / "p.dprl").exists()
