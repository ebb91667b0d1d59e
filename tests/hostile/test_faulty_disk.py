"""Every step of writing fails or stops once: files are whole, sets never mix two runs, nothing is left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time

import pytest
from faulty_disk import Stopped, every_point, faults, next_run

import dprl
from dprl._core import disk
from dprl._core.disk import append, replacing, together

ALONE = {"one.txt": "new one"}
SET = {"one.txt": "new one", "two.txt": "new two"}


def put(folder, content):
    for path in list(folder.iterdir()):
        path.unlink()
    for name, text in content.items():
        (folder / name).write_text(text)
    disk.CLEANED.clear()


def held(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def write(folder, content):
    with together():
        for name, text in content.items():
            with replacing(folder / name) as part:
                part.write_text(text)


@pytest.mark.parametrize("new", [ALONE, SET], ids=["a file", "a set"])
@pytest.mark.parametrize("old", [{}, {"one.txt": "old one"}], ids=["new", "old"])
def test_files_appear_together_or_not_at_all(tmp_path, monkeypatch, old, new):
    points = 0
    for point, error in every_point(lambda: put(tmp_path, old), lambda: write(tmp_path, new)):
        points += 1
        if isinstance(error, Stopped):
            next_run(tmp_path, monkeypatch)
        elif error is not None:
            assert isinstance(error, dprl.DprlError | OSError), point
            unconfirmed = "did not confirm" in str(error)
            left = [name for name in held(tmp_path) if name.startswith(".")]
            assert not left or "remove" in point or unconfirmed, point
            next_run(tmp_path, monkeypatch)
        there = held(tmp_path)
        assert there in (old, old | new) or there.items() <= new.items(), point  # never of two runs
        if not isinstance(error, Stopped) and "remove" not in point:
            assert there in (old, old | new, {}), point
        write(tmp_path, new)
        assert held(tmp_path) == old | new, point
    assert points > 30


def test_what_a_monitor_adds_is_there_or_is_not(tmp_path):
    path = tmp_path / "record"

    def start():
        path.write_bytes(b"first\n")

    for point, error in every_point(start, lambda: append(path, b"second\n")):
        if isinstance(error, Stopped):
            assert path.read_bytes()[:6] == b"first\n", point  # a line torn by a stop is left out
        else:
            assert isinstance(error, dprl.DprlError | OSError)
            assert path.read_bytes() == b"first\n", point


@pytest.mark.slow
def test_a_policy_and_its_audit_come_together(tmp_path, monkeypatch):
    from dprl.apps.reports.changes import describe_changes
    from dprl.apps.review.verdicts import Verdicts, write_approved

    log = dprl.envs.care_pathway().sample(500, seed=0)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log)
    described = describe_changes(policy, log)
    keys = [change.key for change in described.changes]
    verdicts = Verdicts(tmp_path / "v.db", policy.digest(), keys)
    verdicts.add(keys[0], "Ada", "agree", "=1+1")
    out = tmp_path / "out"
    out.mkdir()
    for point, error in every_point(
        lambda: put(out, {}), lambda: write_approved(described, verdicts, out / "a.dprl")
    ):
        if error is not None:
            next_run(out, monkeypatch)
        there = {path.name for path in out.iterdir()}
        assert there in (set(), {"a.dprl", "a-audit.csv"}) or "stops" in point, point
        assert there != {"a.dprl"}, point  # no policy whose trail is missing
    write_approved(described, verdicts, out / "a.dprl")
    assert stat.S_IMODE((out / "a-audit.csv").stat().st_mode) == 0o600
    (out / "a-audit.csv").chmod(0o644)  # as earlier versions left it
    write_approved(described, verdicts, out / "a.dprl")
    assert stat.S_IMODE((out / "a-audit.csv").stat().st_mode) == 0o600


def test_the_folder_is_synced_after_the_rename(tmp_path):
    with faults() as faulty, replacing(tmp_path / "x") as part:
        part.write_text("x")
    assert faulty.taken == ["create", "written", "sync", "mode", "rename", "sync_folder"]


def test_litter_of_a_killed_run_is_removed_by_the_next(tmp_path):
    code = (
        "import os, signal, pathlib\n"
        "from dprl._core.disk import replacing\n"
        "with replacing('a.csv') as part:\n"
        "    part.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert len(list(tmp_path.iterdir())) == 1
    mine = disk.beside(tmp_path / "mine")  # another thread writes it
    mine.touch()
    foreign = tmp_path / ".b.csv.00000000-1-00000000.part"  # another machine does
    foreign.touch()
    forgotten = tmp_path / "tmp_.b.csv.00000000-1-00000001.part"  # did, days ago
    forgotten.touch()
    os.utime(forgotten, (time.time() - 9e4,) * 2)
    others = [
        tmp_path / name for name in (".notes.part", ".film.download.part", ".x.abc_1234.part")
    ]
    for other in others:  # not ours, however old they are
        other.write_text("mine")
        os.utime(other, (time.time() - 9e5,) * 2)
    planted = tmp_path / ".c.csv.00000000-1-00000002.set"  # of an earlier version, or made by hand
    planted.write_text(json.dumps([[".notes.part", "b.csv"]]))
    link = tmp_path / f".d.{mine.name.split('.')[-2].split('-')[0]}-999999999-00000003.part"
    link.symlink_to(others[0])
    with replacing(tmp_path / "b.csv") as part:
        part.write_text("whole")
    assert set(tmp_path.iterdir()) == {tmp_path / "b.csv", mine, foreign, planted, link, *others}
    assert [other.read_text() for other in others] == ["mine"] * 3
    assert (tmp_path / "b.csv").read_text() == "whole"


def test_rows_of_a_killed_run_do_not_stay_in_the_place_for_temporary_files(tmp_path):
    """Identifiers are in them: the next run removes them, and nothing else."""
    (tmp_path / "log.csv").write_text("e,t,s,a,r\nAnn,0,x,y,1\nBen,0,x,y,0\n")
    code = (
        "import duckdb, os, signal, dprl\n"
        "duckdb.sql(\"COPY (FROM 'log.csv') TO 'log.parquet' (FORMAT parquet)\")\n"
        "dprl.check('log.csv', **dict(episode='e', time='t', state='s', action='a', reward='r'))\n"
        "parts = dprl.scan('log.parquet', episode='e', time='t', state='s', action='a', reward='r',\n"
        "                  folder='room')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    room = tmp_path / "room"
    room.mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    (left,) = room.iterdir()
    host = left.name.split("-")[2]
    kept = [room / name for name in (
        f"dprl-parts-{host}-{os.getpid()}-abc", "dprl-parts-00000000-999999999-abc", "dprl-parts-old",
        f"my-dprl-parts-{host}-999999999-abc",
    )]  # fmt: skip
    for folder in kept:
        folder.mkdir()
    columns = {"episode": "e", "time": "t", "state": "s", "action": "a", "reward": "r"}
    with dprl.scan(tmp_path / "log.parquet", **columns, folder=room) as parts:
        assert parts.facts.n_episodes == 2
        assert not left.exists()
    assert set(room.iterdir()) == set(kept)


def test_long_names_can_be_written(tmp_path):
    path = tmp_path / ("ä" * 120 + ".csv")
    with replacing(path) as part:
        part.write_text("x")
    assert held(tmp_path) == {path.name: "x"}
