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
from dprl._core.disk import replacing
from dprl.logs.events.moments import database
from dprl.logs.reading.files import Files
from dprl.logs.reading.scan import Table
from dprl.logs.reading.tables import TableFile, read_rows, write_rows

SRC = Path(dprl.__file__).parents[1]


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


# -- every connection is confined ------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path):
    """A file that was named to nobody, in the same folder as those that were."""
    path = tmp_path / "secret.csv"
    path.write_text("a\ntop secret\n")
    return path


def refuses(con, path, own):
    """Whether a connection reaches what it was given, and nothing else."""
    assert con.execute("SELECT count(*) FROM glob(?)", [str(own)]).fetchone() == (1,)
    folder = path.parent
    for sql in (
        f"SELECT * FROM read_text('{path}')", f"SELECT * FROM read_csv('{folder}/s*.csv')",
        f"SELECT * FROM '{path}'", f"CREATE TABLE stolen AS SELECT * FROM read_csv('{path}')",
        f"CREATE VIEW v AS SELECT * FROM read_csv('{path}'); SELECT * FROM v",
        f"COPY (SELECT 1) TO '{folder}/new.csv'", f"ATTACH '{folder}/new.duckdb' AS other",
        f"SELECT * FROM read_text('{folder}/../{folder.name}/{path.name}')",
        "SELECT * FROM read_text('/etc/passwd')", "SET enable_external_access = true",
        f"SET allowed_paths = ['{path}']", "INSTALL httpfs", "LOAD httpfs",
    ):  # fmt: skip
        with pytest.raises(duckdb.Error):
            con.execute(sql)
    assert not (folder / "new.csv").exists()
    return True


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_log_s_files_are_all_that_is_read(tmp_path, secret, kind):
    log = to_log([[("s", "a", 1.0)]])
    path = tmp_path / f"log.{kind}"
    dprl.write(log, path)
    assert refuses(Files(str(path), None).con, secret, path)
    for out in (None, tmp_path / "out"):
        table = TableFile(str(path), out=out)
        assert refuses(table.con, secret, path)
        table.con.execute(f"COPY (SELECT 1 AS a) TO '{table.room}/own.csv'")
    (tmp_path / "out").mkdir()
    table.con.execute(f"COPY (SELECT 1 AS a) TO '{tmp_path}/out/own.csv'")


def test_a_log_in_parts_reads_its_files_and_its_folder(tmp_path, secret):
    log = to_log([[("s", "a", 1.0)]])
    dprl.write(log, tmp_path / "log.parquet")
    (tmp_path / "own").mkdir()
    roles = {p: p for p in ("episode", "state", "action", "reward", "time")}
    given = (str(tmp_path / "log.parquet"), roles, {"temp_directory": tmp_path / "own" / "spill"})
    table = Table(*given, tmp_path / "own")
    assert refuses(table.files.con, secret, tmp_path / "log.parquet")
    table.close()


def test_a_database_of_events_reads_its_files_and_its_folder(tmp_path, secret):
    own = tmp_path / "events.csv"
    own.write_text("a\n1\n")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "person.csv").write_text("a\n1\n")
    for reads in (
        [own],
        [str(tmp_path / "e*.csv")],
        [own, tmp_path / "tables"],
        [own, "none*.csv"],
    ):
        with database("500MB", 1, tmp_path, "events", reads) as con:
            assert refuses(con, secret, own)
            con.execute("CREATE TABLE t AS SELECT 1 AS a")
            folder = Path(con.execute("SELECT current_setting('temp_directory')").fetchone()[0])
            con.execute(f"COPY t TO '{folder.with_name('own.parquet')}'")
    with (
        database("500MB", 1, tmp_path, "events", [tmp_path / "tables"], [tmp_path]) as con,
        replacing(tmp_path / "log.parquet") as part,  # where the log is written
    ):
        con.execute(f"COPY (SELECT 1) TO '{part}' (USE_TMP_FILE false)")


def test_the_decisions_of_stays_are_one_file(tmp_path, secret):
    write_rows([{"subject_id": 1, "a": 1}], tmp_path / "stays.parquet")
    con = connect(files=[tmp_path / "stays.parquet"])
    assert refuses(con, secret, tmp_path / "stays.parquet")


def test_names_of_files_are_no_sql_and_no_patterns(tmp_path, secret):
    """Names that would end a text of SQL, or stand for other files."""
    log = to_log([[("s", "a", 1.0)]])
    columns = {p: p for p in ("episode", "state", "action", "reward", "time")}
    for name in (
        "x'] ); SELECT 1; --.csv", "s*.csv", "[s]ecret.csv", "~secret.csv",
    ):  # fmt: skip
        path = tmp_path / name
        path = path if path.suffix == ".csv" else path.with_name(f"{name}.csv")
        dprl.write(log, path)
        assert len(dprl.read(str(path), **columns).reward) == 1


def test_a_view_in_a_database_of_others_reads_nothing(tmp_path, secret):
    """A DuckDB file may hold views; attached, they could read whatever its reader may."""
    hostile = tmp_path / "omop.duckdb"
    with duckdb.connect(str(hostile)) as con:
        con.execute(f"CREATE VIEW measurement AS SELECT a AS value FROM read_csv('{secret}')")
        con.execute(f"CREATE MACRO person() AS TABLE SELECT * FROM read_csv('{secret}')")
    with database("500MB", 1, tmp_path, "events", [hostile]) as con:
        con.execute(f"ATTACH '{hostile}' AS omop (READ_ONLY)")
        for sql in ("SELECT * FROM omop.measurement", "SELECT * FROM omop.person()"):
            with pytest.raises(duckdb.Error, match="disabled by"):
                con.execute(sql)
