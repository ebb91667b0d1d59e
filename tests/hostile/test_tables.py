"""Tables that are odd in size or in shape: read, or refused in three lines, and soon."""

from __future__ import annotations

import gzip
import time

import duckdb
import pytest

import dprl
from dprl._core.database import connect
from dprl.logs.reading import paths as _scans
from dprl.logs.reading.paths import scan_table

C = {"episode": "e", "state": "s", "action": "a", "reward": "r"}


def test_quoted_commas_late_in_a_large_table(tmp_path):
    rows = "".join(f"{i},plain\n" for i in range(25_000)) + '7,"a, ""b"""\n'
    (tmp_path / "t.csv").write_text("id,word\n" + rows)
    (tmp_path / "t.csv.gz").write_bytes(
        gzip.compress(("id,word\n" + rows).replace("\n", "\r\n").encode(), 1)
    )
    (tmp_path / "s.csv").write_text("id;word\n1;x\n")
    with connect() as con:
        for name in ("t.csv", "t.csv.gz"):
            scan = scan_table(tmp_path / name, con.execute)
            assert con.execute(f"SELECT id, word FROM {scan} WHERE word <> 'plain'").fetchall() == [
                ("7", 'a, "b"')
            ]
            assert con.execute(f"SELECT count(*) FROM {scan}").fetchone() == (25_001,)
        scan = scan_table(tmp_path / "s.csv", con.execute)
        assert con.execute(f"SELECT * FROM {scan}").fetchall() == [("1", "x")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_hundred_thousand_columns_are_refused_soon(tmp_path, kind, monkeypatch):
    n = 100_000
    if kind == "parquet":
        monkeypatch.setattr(_scans, "MOST_COLUMNS", n := 200)
        columns = ", ".join(f"{i} AS c{i}" for i in range(300))
        duckdb.sql(f"COPY (SELECT {columns}) TO '{tmp_path / 't.parquet'}'")
    else:
        names = ["e", "s", "a", "r", *(f"c{i}" for i in range(n))]
        (tmp_path / "t.csv").write_text(
            ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"
        )
    start = time.process_time()
    with pytest.raises(dprl.LogError, match=r"has .* columns; at most .* can be read") as caught:
        dprl.read(tmp_path / f"t.{kind}", **C)
    assert len(str(caught.value).splitlines()) == 3
    assert time.process_time() - start < 60  # all columns would take minutes


@pytest.mark.parametrize("length", [1000, 200_000, 3_000_000])
def test_long_names_of_columns(tmp_path, length):
    (tmp_path / "t.csv").write_text(f"e,s,a,r,{'x' * length}\n1,x,0,0,9\n")
    if length == 1000:
        assert dprl.read(tmp_path / "t.csv", **C).n_steps == 1
        return
    with pytest.raises(dprl.LogError) as caught:
        dprl.read(tmp_path / "t.csv", **C)
    assert len(str(caught.value).splitlines()) == 3
    assert len(str(caught.value)) < 1000
