"""Connections to DuckDB fetch nothing, and read no files that are not theirs."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dprl
from conftest import to_log
from dprl._core.database import connect
from dprl.logs._parquet import read_rows, write_rows
from dprl.logs._table_file import TableFile

SRC = Path(dprl.__file__).parent


def setting(con, name):
    return con.execute(f"SELECT current_setting('{name}')").fetchone()[0]


def test_every_connection_is_made_in_one_place():
    made = [p.name for p in SRC.rglob("*.py") if re.search(r"duckdb\.(connect|sql|query)\(", re.sub(r">>> .*", "", p.read_text()))]  # fmt: skip
    assert made == ["database.py"]


def test_no_extension_is_installed_or_loaded(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    for con in (connect(), connect(folders=()), TableFile(str(tmp_path / "t.csv")).con):
        for name in ("autoinstall_known_extensions", "autoload_known_extensions"):
            assert setting(con, name) is False
        with pytest.raises(duckdb.Error, match=r"extension httpfs to be loaded|disabled by"):
            con.execute("SELECT * FROM read_text('https://example.com/x')")
        con.close()


def test_a_connection_reads_its_folders_alone(tmp_path, monkeypatch):
    mine, other = tmp_path / "it's mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
        (folder / "t.csv").write_text("a\n1\n")
    monkeypatch.chdir(mine)
    with connect(folders=[""]) as con:
        own = str(mine / "t.csv")
        assert con.execute("SELECT a FROM read_csv(?)", [own]).fetchall() == [(1,)]
        for name in (str(other / "t.csv"), "../other/t.csv"):
            with pytest.raises(duckdb.Error, match="disabled by"):
                con.execute("SELECT a FROM read_csv(?)", [name])
        with pytest.raises(duckdb.Error, match="Cannot"):
            con.execute("SET enable_external_access = true")


def test_folders_with_brackets_in_their_names(tmp_path):
    path = tmp_path / "a[1]*" / "x[2].parquet"
    path.parent.mkdir()
    write_rows([{"a": 1}], path)
    assert read_rows([path])["a"].tolist() == [1]


def test_logs_are_written_by_relative_names_and_through_links(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    log = to_log([[("s", "a", 1.0)]])
    for name in ("x.parquet", "link/x.csv", "./real/../link/y.parquet"):
        dprl.write(log, name)
        columns = {p: p for p in ("episode", "state", "action", "reward")}
        assert np.array_equal(dprl.read(name, **columns, time="time").reward, log.reward)
