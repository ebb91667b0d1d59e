"""What cannot be written over, and machines that are too small: said, and nothing is changed."""

from __future__ import annotations

import errno
import os
import stat

import duckdb
import numpy as np
import pandas as pd
import pytest
from ward import Ward

import dprl
from conftest import options
from dprl._core import disk as limits
from dprl._core.disk import check_target, replacing
from dprl.errors import LogError, ParameterError
from dprl.evidence.counts import evidence
from dprl.logs.reading.files import Files
from dprl.logs.reading.tables import TableFile
from dprl_studies import icu

PARTS = {"episode": "e", "state": "s", "action": "a", "reward": "r"}
ROWS = {"e": [1, 1, 2], "s": ["x", "y", "x"], "a": ["u", "v", "u"], "r": [1.0, 2.0, 3.0]}


def three_lines(text):
    """The text of an error of three lines, as the command line shows it."""
    assert len(text.strip().splitlines()) == 3, text
    return text


# -- what is no file ----------------------------------------------------------------------------


def no_file(place, kind, name):
    """Something that is no ordinary file; gives its path and what it must still be."""
    path = place / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        (place / "target").write_text("kept")
        path.symlink_to("target")
    else:
        path.symlink_to("nowhere")
    return path, os.lstat(path)


def unchanged(path, before):
    after = os.lstat(path)
    assert (after.st_ino, stat.S_IFMT(after.st_mode)) == (
        before.st_ino,
        stat.S_IFMT(before.st_mode),
    )
    target = path.parent / "target"
    assert not target.exists() or target.read_text() == "kept"
    assert not list(path.parent.glob(".*.part"))


NO_FILES = pytest.mark.parametrize("kind", ["pipe", "folder", "link", "dangling"])


@NO_FILES
def test_only_ordinary_files_are_replaced(kind, tmp_path):
    path, before = no_file(tmp_path, kind, "out")
    words = {"pipe": "a pipe", "folder": "a folder"}.get(kind, "a link")
    with (
        pytest.raises(ParameterError, match=f"is {words}, and would be replaced") as error,
        replacing(path) as part,
    ):
        part.write_text("new")
    three_lines(str(error.value))
    if kind == "link":
        assert "it leads to 'target'" in str(error.value)
    unchanged(path, before)


def test_a_link_that_comes_in_the_meantime_is_not_replaced(tmp_path):
    with pytest.raises(ParameterError, match="is a link"), replacing(tmp_path / "out"):
        (tmp_path / "out").symlink_to("elsewhere")
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_devices_are_told(monkeypatch, tmp_path):
    seen = os.lstat("/dev/null")
    monkeypatch.setattr(os, "lstat", lambda path: seen)
    with pytest.raises(ParameterError, match="is a device, and would be replaced"):
        check_target(tmp_path / "out")


def test_a_link_to_a_folder_may_hold_files(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with replacing(tmp_path / "link" / "out") as part:
        part.write_text("new")
    assert (tmp_path / "real" / "out").read_text() == "new"


@NO_FILES
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_logs_are_written_over_files_only(kind, name, tmp_path):
    path, before = no_file(tmp_path, kind, name)
    with pytest.raises(ParameterError, match="would be replaced by a file"):
        dprl.write(dprl.from_frame(pd.DataFrame(ROWS), **PARTS), path)
    unchanged(path, before)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_commands_write_over_files_only(kind, run, visits, tmp_path, monkeypatch):
    path, columns = visits
    learn = [*options(columns), "--n-min", 20, "--gamma", 0.9]
    assert run("fit", path, *learn)[0] == 0
    out, before = no_file(tmp_path, kind, "out.csv")
    monkeypatch.setattr(Files, "__init__", lambda *a, **k: pytest.fail("work was begun"))
    commands = [
        ["fit", path, *learn],
        ["sweep", path, *learn, "--rule", "cautious"],
        ["act", "policy.dprl", path],
        ["gate", "policy.dprl", path, "--lowest", 0, "--highest", 9],
        ["report", "policy.dprl", path],
        ["review", "policy.dprl", "--export", "--log", path],
    ]
    for command in commands:
        code, _, err = run(*command, "--out", out)
        assert (code, "and would be replaced by a file" in three_lines(err)) == (1, True)
    unchanged(out, before)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_folders_of_results_hold_files_only(kind, run, visits, tmp_path):
    path, _ = visits
    (tmp_path / "parts").mkdir()
    out, before = no_file(tmp_path / "parts", kind, "test.csv")
    code, _, err = run("split", path, "--by", "patient", "--out", "parts")
    assert (code, "would be replaced" in err) == (1, True)
    assert not (tmp_path / "parts" / "train.csv").exists()
    unchanged(out, before)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_cohorts_are_written_over_files_only(kind, run, tmp_path):
    ward = Ward()
    for stay in range(1, 9):
        ward.stay(stay)
    tables = ward.write(tmp_path / "tables")
    for name in ("stays.parquet", "stays.flow.md"):
        out, before = no_file(tmp_path, kind, name)
        code, _, err = run("icu", "build", tables, "--out", "stays.parquet")
        assert (code, "would be replaced" in three_lines(err)) == (1, True)
        unchanged(out, before)
        out.unlink()
    icu.build(tables, "stays.parquet")
    (tmp_path / "splits").mkdir()
    out, before = no_file(tmp_path / "splits", kind, "dprl.toml")
    code, _, err = run("icu", "split", "stays.parquet", "--out", "splits")
    assert (code, "would be replaced" in three_lines(err)) == (1, True)
    assert not (tmp_path / "splits" / "train.parquet").exists()
    unchanged(out, before)


def test_results_of_experiments_are_written_over_files_only(run, tmp_path):
    (tmp_path / "forest-quick").mkdir()
    out, before = no_file(tmp_path / "forest-quick", "pipe", "summary.md")
    code, _, err = run("reproduce", "forest", "--quick", "--out", ".")
    assert (code, "would be replaced" in three_lines(err)) == (1, True)
    assert [p.name for p in out.parent.iterdir()] == ["summary.md"]
    unchanged(out, before)


# -- memory and disk ----------------------------------------------------------------------------

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
DUCKDB_FULL = duckdb.IOException('IO Error: Could not write file "x": No space left on device')
STARVED = [MemoryError(), duckdb.OutOfMemoryException("Out of Memory Error: failed to allocate")]


class Broken:
    """A connection whose every statement like `when` fails."""

    def __init__(self, con, when, error):
        self.con, self.when, self.error = con, when, error

    def __getattr__(self, name):
        return getattr(self.con, name)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.con.close()

    def execute(self, sql, *values):
        if self.when in sql:
            raise self.error
        return self.con.execute(sql, *values)

    def sql(self, sql):
        if self.when in sql:
            raise self.error
        return self.con.sql(sql)


@pytest.fixture
def broken(monkeypatch):
    """Make DuckDB fail at statements that hold certain words."""
    connect = duckdb.connect

    def breaking(when, error):
        monkeypatch.setattr(
            duckdb, "connect", lambda *a, **k: Broken(connect(*a, **k), when, error)
        )

    return breaking


@pytest.mark.parametrize("when", ["DESCRIBE", "CREATE TEMP", "AS v FROM raw"])
@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
@pytest.mark.parametrize("error", STARVED, ids=["python", "duckdb"])
def test_too_little_memory_to_read_is_told(error, name, when, broken, tmp_path):
    frame = pd.DataFrame(ROWS)
    path = tmp_path / name
    frame.to_csv(path, index=False) if name == "t.csv" else frame.to_parquet(path)
    broken(when, error)
    with pytest.raises(LogError, match=f"not enough memory for reading '{name}'") as caught:
        dprl.read(path, **PARTS)
    three_lines(str(caught.value))


def test_too_little_memory_for_a_command_is_told(run, visits, monkeypatch):
    path, columns = visits

    def fit(self, log):
        raise MemoryError

    monkeypatch.setattr(dprl.DPRLDiscrete, "fit", fit)
    code, _, err = run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9)
    assert code == 1
    assert "there is not enough memory for this command" in three_lines(err)


@pytest.mark.parametrize("error", [FULL, DUCKDB_FULL], ids=["python", "duckdb"])
def test_a_full_disk_is_told_by_every_writer(error, broken, tmp_path):
    table, log = tmp_path / "t.csv", dprl.from_frame(pd.DataFrame(ROWS), **PARTS)
    pd.DataFrame(ROWS).to_csv(table, index=False)
    broken("COPY", error)
    with pytest.raises(ParameterError, match=r"the disk is full: no room for writing 'o.csv'"):
        dprl.write(log, tmp_path / "o.csv")
    read = TableFile(str(table))
    with (
        pytest.raises(LogError, match="the disk is full: no room for writing") as caught,
        replacing(tmp_path / "o.csv") as part,
    ):
        read.write_with("b", ["1", "2", "3"], part, ".csv")
    three_lines(str(caught.value))
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_a_full_disk_while_a_policy_is_saved(run, visits, monkeypatch, tmp_path):
    path, columns = visits

    def fsync(handle):
        raise FULL

    monkeypatch.setattr(os, "fsync", fsync)
    code, _, err = run("fit", path, *options(columns), "--n-min", 20, "--gamma", 0.9)
    assert code == 1
    assert "the disk is full: no room for writing 'policy.dprl'" in three_lines(err)
    assert not list(tmp_path.glob("*policy.dprl*"))


def test_a_full_disk_while_a_cohort_is_built(broken, tmp_path):
    tables = Ward().stay().write(tmp_path / "tables")
    broken("CREATE", DUCKDB_FULL)
    with pytest.raises(LogError, match="the disk is full: no room for building the cohort"):
        icu.build(tables, tmp_path / "stays.parquet")


def test_other_errors_stay_what_they_are():
    assert limits.shortage(OSError(errno.EACCES, "no"), "x") is None
    assert limits.shortage(duckdb.BinderException("Binder Error"), "x") is None
    with pytest.raises(PermissionError), limits.said_if_short("x"):
        raise PermissionError("no")


# -- how much is needed -------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with little memory, and no container."""
    monkeypatch.setattr(limits, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(limits, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(limits, "OWN_GROUP", tmp_path / "own")
    monkeypatch.setattr(limits, "SPARE", 0)

    def free(kilobytes, swap=0):
        (tmp_path / "meminfo").write_text(
            f"MemTotal: 999 kB\nMemAvailable: {kilobytes} kB\nSwapFree: {swap} kB\n"
        )

    return free


def wide(states=200, actions=50):
    rows = np.arange(states)
    return dprl.from_arrays(
        episode=rows, state=rows, action=rows % actions, reward=rows / 1.0, actions=range(actions)
    )


@pytest.mark.filterwarnings("ignore::dprl.errors.LabelWarning")
def test_a_table_that_does_not_fit_is_refused_before_the_work(machine, monkeypatch):
    need = 200 * 50 * limits.PER_PAIR
    learner = dprl.DPRLDiscrete(n_min=1, gamma=0.9)
    machine(need // 1024 + 1)
    learner.fit(wide())
    machine(need // 1024 - 300, swap=301)
    learner.fit(wide())
    machine(need // 1024 - 1)
    monkeypatch.setattr(
        "dprl.learners.discrete.count_source", lambda *a: pytest.fail("work was begun")
    )
    with pytest.raises(LogError, match=r"200 states x 50 actions needs at least 2.3 MB") as error:
        learner.fit(wide())
    assert "2.3 MB are free" in three_lines(str(error.value))


@pytest.mark.filterwarnings("ignore::dprl.errors.LabelWarning")
def test_evidence_alone_asks_too(machine):
    machine(100)
    with pytest.raises(LogError, match=r"200 states x 50 actions needs at least 1.6 MB"):
        evidence(wide(), 0.9)


@pytest.mark.parametrize("plan", [False, True])
def test_points_that_do_not_fit_are_refused(plan, machine):
    log = dprl.from_arrays(
        episode=np.arange(900), state=np.random.default_rng(0).normal(size=(900, 3)),
        action=np.arange(900) % 4, reward=np.ones(900),
    )  # fmt: skip
    learner = dprl.DPRLContinuous(n_min=1, radius=0.5, gamma=0.9, plan=plan)
    need = 900 * (24 + (limits.PER_BALL * 4 if plan else 0))
    machine(need // 1024 + 1)
    learner.fit(log)
    machine(need // 1024 - 1)
    with pytest.raises(LogError, match=r"fitting 900 rows of 3 features.* needs at least"):
        learner.fit(log)


def test_containers_count(machine, tmp_path):
    machine(4000)
    assert limits.available_memory() == 4000 * 1024
    own = tmp_path / "groups" / "a" / "b"
    own.mkdir(parents=True)
    (tmp_path / "own").write_text("0::/a/b\n")
    (own / "memory.max").write_text("max\n")
    (own / "memory.current").write_text("1\n")
    assert limits.available_memory() == 4000 * 1024
    (own.parent / "memory.max").write_text("1000000\n")
    (own.parent / "memory.current").write_text("900000\n")
    (own.parent / "memory.swap.max").write_text("500\n")
    (own.parent / "memory.stat").write_text("anon 5\nfile 7000\n")
    assert limits.available_memory() == 107_500
    old = tmp_path / "groups" / "memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("3000\n")
    (old / "memory.usage_in_bytes").write_text("1000\n")
    assert limits.available_memory() == 2000


def test_a_system_that_does_not_say_is_not_asked(machine, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 1 << 20)
    assert limits.available_memory() == 1 << 40
    monkeypatch.delattr(os, "sysconf")
    assert limits.available_memory() is None
    limits.need_memory(1e18, "this", "", "")


@pytest.mark.filterwarnings("ignore::dprl.errors.LabelWarning")
def test_what_a_fit_needs_is_not_overstated():
    """The estimate is a lower bound: what a fit really takes is more."""
    import tracemalloc

    log, learner = wide(300, 30), dprl.DPRLDiscrete(n_min=1, gamma=0.9, plan=False)
    learner.fit(wide(3, 3))  # what is imported and compiled is no part of it
    tracemalloc.start()
    learner.fit(log)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak > 300 * 30 * limits.PER_PAIR


@pytest.mark.parametrize("copies", [2**29 - 1, 2**29])
def test_a_log_may_be_of_any_size_and_one_state_may_not(copies):
    """Evidence and transitions of very many copies of a log are theirs times the number."""
    from dataclasses import replace

    from dprl.evidence import counts
    from dprl.planning.model import cells_of

    n = 2_000
    log = dprl.from_arrays(
        episode=np.arange(n), state=[f"s{i // 2}" for i in range(n)], action=["x", "y"] * (n // 2),
        reward=np.linspace(-1.0, 1.0, n),
    )  # fmt: skip
    one, cells = counts.evidence(log, 0.9), cells_of(log)
    half = replace(one, words=one.words * (copies // 2), n_episodes=n * (copies // 2))
    rest = replace(one, words=one.words * (copies - copies // 2))
    many = replace(cells, words=cells.words * copies).merge(cells)
    if 2 * copies >= counts.LIMIT:
        with pytest.raises(LogError, match=r"fewer than 2\^30 returns of one state") as error:
            half.merge(rest)
        assert "state 's0' has 1,073,741,824" in str(error.value)
        with pytest.raises(LogError, match=r"fewer than 2\^30"):
            replace(many, words=2 * many.words).table(1000, 2)
        return
    whole = half.merge(rest)
    assert whole.n_pair.sum() > 10**12
    np.testing.assert_array_equal(whole.pair.mean, one.pair.mean)
    np.testing.assert_allclose(whole.state.sd, one.state.sd / np.sqrt(2), rtol=1e-6)
    table = many.table(1000, 2)
    assert table.n.sum() > 10**12
    np.testing.assert_array_equal(table.mean, cells.table(1000, 2).mean)
