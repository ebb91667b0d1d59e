"""Files of many rows are read as small ones are: the same log, the same findings, bit for bit.

Large files go through batches, hashes and compiled loops. Here small files are sent that way too,
and what comes out is compared with a reference of a few slow lines, and with the way of small ones.
"""

from __future__ import annotations

import os

import duckdb
import numpy as np
import pytest

import dprl
from dprl._core import labels
from dprl.errors import LogError
from dprl.logs.reading import columns as _row_facts
from dprl.logs.reading import files as _fetch
from dprl.logs.reading import files as _stream
from dprl.logs.reading.files import Files
from dprl.logs.reading.tables import TableFile, split_table

ROLES = {"episode": "e", "time": "t", "state": "s", "action": "a", "reward": "r", "group": "g"}
EPISODES = {
    "BIGINT": [3, 4, 5, 9, -7, 0],
    "UBIGINT": [2**63 - 2, 5, 17, 2**62, 0, 1],
    "TINYINT": [-128, 127, 0, 1, 2, 3],
    "DOUBLE": [3.0, -0.0, 2.0, 1e15, -5.0, 7.0],
    "VARCHAR": ["p-10", "p-2", "é", "日本", "P-2", " p-2"],
    "DATE": ["2024-02-29", "1999-12-31", "2024-03-01", "2000-01-01", "2024-01-01", "2023-01-01"],
    "DECIMAL(9,1)": ["1.0", "2.0", "30.0", "4.0", "5.0", "6.0"],
    "BOOLEAN": [True, False, True, False, True, False],
}
TIMES = {
    "BIGINT": lambda i: i,
    "INTEGER": lambda i: -i,
    "DOUBLE": lambda i: i / 3,
    "FLOAT": lambda i: i / 4,
    "DATE": lambda i: f"{1970 + i}-05-01",
    "TIMESTAMP": lambda i: f"2024-01-{i % 28 + 1:02} {i % 24:02}:00:00",
}


def messy(seed, tmp_path, mess=True):
    """A file of random types and few rows; with mess, values are missing or wrong here and there."""
    rng = np.random.default_rng(seed)
    kinds = {"e": rng.choice([*EPISODES]), "t": rng.choice([*TIMES])}
    n = int(rng.integers(1, 60))
    e = np.sort(rng.integers(0, 6, n))
    t = np.arange(n)
    if rng.random() < 0.5:
        order = rng.permutation(n)
        e, t = e[order], t[order]
    rows = {
        "e": [EPISODES[kinds["e"]][i] for i in e],
        "t": [TIMES[kinds["t"]](int(i)) for i in t],
        "s": [["x", "X", "y", "z" * 20, "0"][i] for i in rng.integers(0, 5, n)],
        "a": [[7, 100, -3][i] for i in rng.integers(0, 3, n)],
        "r": [[-0.0, 1.5, -2.25, 3.0][i] for i in rng.integers(0, 4, n)],
        "g": [f"g{i // 2}" for i in e],
    }
    if mess and rng.random() < 0.8:
        for _ in range(int(rng.integers(1, 4))):
            name = rng.choice([*rows])
            wrong = [None, *({"r": [np.inf, -1e200, np.nan], "s": [""], "g": ["g0"]}.get(name, []))]
            rows[name][int(rng.integers(n))] = wrong[int(rng.integers(len(wrong)))]
            if rng.random() < 0.3:
                rows["t"][int(rng.integers(n))] = rows["t"][0]
    types = kinds | {"s": "VARCHAR", "a": "SMALLINT", "r": "DOUBLE", "g": "VARCHAR"}
    columns = ", ".join(f"{name} {kind}" for name, kind in types.items())
    path = tmp_path / f"rows-{seed}.parquet"
    with duckdb.connect() as con:
        con.execute(f"CREATE TABLE rows ({columns})")
        flat = [v for row in zip(*rows.values(), strict=True) for v in row]
        one = f"({', '.join('?' * len(rows))})"
        con.execute(
            f"INSERT INTO rows VALUES {', '.join([one] * n)}",
            [v.item() if isinstance(v, np.generic) else v for v in flat],
        )
        con.execute(f"COPY rows TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return str(path)


def outcome(monkeypatch, large, path, **options):
    """Everything that checking and reading a file shows."""
    monkeypatch.setattr(_row_facts, "LARGE", large)
    monkeypatch.setattr(labels, "MANY", large)
    monkeypatch.setattr(_fetch, "STREAMED", large)
    try:
        report = dprl.check(path, **ROLES, **options)
    except LogError as error:
        return str(error), None
    return [str(finding) for finding in report.findings], report.log


def same_log(one, two):
    assert (one is None) == (two is None)
    if one is None:
        return
    for name in ("starts", "action", "reward", "state", "group", "time", "ended"):
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype, name
        assert a.tobytes() == b.tobytes(), name
    for name in ("episodes", "groups", "states", "actions"):
        a, b = getattr(one, name), getattr(two, name)
        assert (a, [*map(type, a)]) == (b, [*map(type, b)])
    assert one.digest() == two.digest()


@pytest.mark.parametrize(
    "seeds",
    [range(2), pytest.param(range(2, 20), marks=pytest.mark.slow)],
)
def test_large_files_are_read_as_small_ones(seeds, monkeypatch, tmp_path):
    logs = 0
    for seed in seeds:
        path = messy(seed, tmp_path)
        for options in ({}, {"missing": "drop-episodes"}):
            words, log = outcome(monkeypatch, 10**9, path, **options)
            quick_words, quick_log = outcome(monkeypatch, 0, path, **options)
            assert quick_words == words
            same_log(quick_log, log)
            logs += log is not None
    assert logs > len(seeds) // 5


@pytest.mark.slow
def test_a_large_file_is_what_a_few_slow_lines_make_of_it(monkeypatch, tmp_path):
    monkeypatch.setattr(_row_facts, "LARGE", 0)
    made = 0
    for seed in range(1000, 1015):
        path = messy(seed, tmp_path, mess=False)
        with duckdb.connect() as con:
            rows = con.execute(f"SELECT e, t, s, a, r, g FROM '{path}'").fetchall()
        report = dprl.check(path, **ROLES)
        if report.log is None:
            continue
        made += 1
        log = report.log

        def label(value):
            kinds = (int, float, str, bool)
            value = value if isinstance(value, kinds) else str(value)
            value = int(float(value)) if isinstance(value, str) and value.endswith(".0") else value
            return int(value) if isinstance(value, float) else value

        rows = sorted(((label(e), t, *rest) for e, t, *rest in rows), key=lambda row: row[:2])
        spread = np.repeat(np.arange(log.n_episodes), log.lengths)
        assert [log.episodes[i] for i in spread] == [row[0] for row in rows]
        assert [log.states[i] for i in log.state] == [row[2] for row in rows]
        assert [log.actions[i] for i in log.action] == [row[3] for row in rows]
        assert log.reward.tolist() == [row[4] for row in rows]
        assert not np.signbit(log.reward[log.reward == 0]).any()
        assert [log.groups[log.group[i]] for i in spread] == [row[5] for row in rows]
        assert log.states == tuple(sorted({row[2] for row in rows}))
    assert made > 5


def test_episodes_that_are_all_missing_are_reported_beside_groups():
    rows = {"episode": [None, None], "group": ["g", "g"], "state": ["x", "y"]}
    with pytest.raises(LogError, match="'episode' is missing on 2 of 2 rows"):
        dprl.from_arrays(**rows, action=["u", "v"], reward=[0, 1])


@pytest.mark.slow
def test_csv_files_of_many_rows_are_read_as_small_ones(monkeypatch, tmp_path):
    for seed in range(10):
        path = messy(seed, tmp_path)
        table = path.replace(".parquet", ".csv")
        with duckdb.connect() as con:
            con.execute(f"COPY (SELECT * FROM '{path}') TO '{table}' (FORMAT csv, HEADER)")
        words, log = outcome(monkeypatch, 10**9, table)
        quick_words, quick_log = outcome(monkeypatch, 0, table)
        assert quick_words == words
        same_log(quick_log, log)


PLAIN = "g,e,t,s,a,r\ng1,p2,1,x,u,1.5\ng1,p2,2,y,v,-0.0\ng0,p10,3,x,u,7\n"


@pytest.mark.parametrize(
    ("change", "in_one_pass"),
    [
        (("", ""), True), (("7", "NA"), True), (("p10", "p2"), True), (("y", ""), True),
        (("7", "much"), False), (("1.5", "NAN"), True), (("3", "3.5"), False), (("3,", "NA,"), False),
        (("3,", "2024-01-01,"), False),
    ],
)  # fmt: skip
def test_plain_csv_files_are_taken_in_one_pass(change, in_one_pass, monkeypatch, tmp_path):
    path, took = tmp_path / "rows.csv", []
    path.write_text(PLAIN.replace(*change))
    slow = outcome(monkeypatch, 10**9, str(path))
    take = Files._take

    def told(self, plain):
        took.append(take(self, plain) >= 0)
        return 3 if took[-1] else -1

    monkeypatch.setattr(Files, "_take", told)
    quick = outcome(monkeypatch, 0, str(path))
    assert took == [in_one_pass]
    assert quick[0] == slow[0]
    same_log(quick[1], slow[1])


def test_a_file_that_changes_while_it_is_read_is_refused(monkeypatch, tmp_path):
    path = messy(1000, tmp_path, mess=False)
    fetch = Files.fetch

    def touched(self, expression):
        os.utime(path, ns=(1, 1))
        return fetch(self, expression)

    monkeypatch.setattr(Files, "fetch", touched)
    with pytest.raises(LogError, match="was changed while it was read"):
        dprl.read(path, **ROLES)


def test_batches_that_are_not_all_rows_are_refused(monkeypatch, tmp_path):
    path = messy(1000, tmp_path, mess=False)
    monkeypatch.setattr(_fetch, "batches", lambda *asked: iter(()))
    with pytest.raises(LogError, match="rows, and 0 in one column"):
        dprl.read(path, **ROLES)


def test_a_file_that_breaks_off_in_the_middle_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT i // 9 AS e, i AS t, 'x' AS s, i % 2 AS a, random() AS r, 'g' AS g "
            f"FROM range(300000) rows(i)) TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
        )
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 5000] = bytes(5000)
    path.write_bytes(content)
    with pytest.raises(LogError, match=r"'rows.parquet' could not be read as PARQUET"):
        dprl.read(path, **ROLES | {"group": None})


def test_too_little_memory_in_the_middle_of_a_column_is_told(monkeypatch, tmp_path):
    class Stream:
        get_last_error = staticmethod(lambda stream: b"Out of Memory Error: failed to allocate")

    monkeypatch.setattr(_stream.ctypes, "byref", lambda stream: stream)
    assert isinstance(_stream._failure(Stream()), MemoryError)
    monkeypatch.undo()
    path = messy(1000, tmp_path, mess=False)

    def breaking(relation, text):
        raise MemoryError("Out of Memory Error")
        yield

    monkeypatch.setattr(_fetch, "batches", breaking)
    with pytest.raises(LogError, match=r"not enough memory for reading 'rows-1000.parquet'"):
        dprl.read(path, **ROLES)


def test_both_sides_of_a_large_split_keep_the_order_of_the_rows(tmp_path):
    files = [str(tmp_path / f"{part}.parquet") for part in "ab"]
    with duckdb.connect() as con:
        for first, file in zip((0, 150_000), files, strict=True):
            con.execute(
                "COPY (SELECT hash(i // 7) % 5000 AS e, i AS number, 'x' || i % 9 AS word FROM "
                f"range({first}, {first + 150_000}) rows(i)) TO '{file}' (FORMAT parquet)"
            )
    sides = split_table(files, "e", tmp_path / "parts", fraction=0.3, seed=1)
    written = {}
    with duckdb.connect() as con:
        for side in ("train", "test"):
            path = sides[side]["file"]
            rows = con.execute(f"SELECT e, number, word FROM '{path}'").fetchnumpy()
            assert (np.diff(rows["number"]) > 0).all()
            assert rows["word"][:3].tolist() == [f"x{i % 9}" for i in rows["number"][:3]]
            assert sides[side]["rows"] == len(rows["e"])
            written[side] = rows
    assert not set(written["train"]["e"].tolist()) & set(written["test"]["e"].tolist())
    numbers = np.concatenate([written[side]["number"] for side in ("train", "test")])
    assert np.array_equal(np.sort(numbers), np.arange(300_000))


def test_a_table_that_changes_before_it_is_written_is_refused(tmp_path):
    path = messy(1000, tmp_path, mess=False)
    table = TableFile(path, out=tmp_path)
    chosen = np.ones(table.rows, bool)
    os.utime(path, ns=(1, 1))
    with pytest.raises(LogError, match="was changed while it was read"):
        table.write_rows(chosen, tmp_path / "out.parquet", ".parquet")


def test_a_log_of_arrays_does_not_share_them():
    rows = {"episode": [1, 1, 2], "state": ["x", "y", "x"], "action": ["u", "u", "v"]}
    time, reward = np.arange(3), np.ones(3)
    log = dprl.from_arrays(**rows, time=time, reward=reward)
    time[0], reward[0] = 9, 9
    assert (log.time.tolist(), log.reward.tolist()) == ([0, 1, 2], [1, 1, 1])


def test_reading_reports_its_progress_once_through(tmp_path):
    shares = []
    path = messy(1000, tmp_path, mess=False)
    dprl.read(path, **ROLES, progress=lambda stage, share: shares.append((stage, share)))
    assert shares[-1] == ("reading", 1.0)
    assert [share for _, share in shares] == sorted(share for _, share in shares)
