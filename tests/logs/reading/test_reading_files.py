"""The file that is named is read, with the columns it holds, and no other."""

from __future__ import annotations

import functools
import json
import os
import warnings
import zlib

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ward import Ward

import dprl
from dprl.errors import LogError, ParameterError
from dprl.logs.reading.tables import TableFile, read_rows, write_rows
from dprl_studies import icu

PARTS = {"episode": "e", "state": "s", "action": "a", "reward": "r"}
FLAGS = [word for part, name in PARTS.items() for word in (f"--{part}", name)]
ROWS = {"e": [1, 1, 2], "s": ["x", "y", "x"], "a": ["u", "v", "u"], "r": [1.0, 2.0, 3.0]}


def put(path, rows=ROWS, **changes):
    """Write rows as CSV or Parquet, by the path's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({**rows, **changes})
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


# -- folders ------------------------------------------------------------------------------------

KINDS = pytest.mark.parametrize("kind", ["csv", "parquet"])


@KINDS
@pytest.mark.parametrize("folder", ["r=99", "R=99", "r=99/deep/er", "s=q/a=z/e=1"])
def test_folder_names_are_no_data(kind, folder, tmp_path):
    path = put(tmp_path / folder / f"t.{kind}")
    log = dprl.read(path, **PARTS)
    assert log.reward.tolist() == ROWS["r"]
    assert (log.episodes, log.states, log.actions) == ((1, 2), ("x", "y"), ("u", "v"))
    assert dprl.check(path, **PARTS).log.digest() == log.digest()
    assert TableFile(str(path)).number("r").tolist() == ROWS["r"]


@KINDS
def test_the_folder_one_stands_in_is_no_data(kind, tmp_path, monkeypatch):
    put(tmp_path / "r=99" / f"t.{kind}")
    monkeypatch.chdir(tmp_path / "r=99")
    assert dprl.read(f"t.{kind}", **PARTS).reward.tolist() == ROWS["r"]


@KINDS
def test_folders_are_columns_where_that_is_asked_for(kind, tmp_path):
    for ward in ("north", "south%20east"):
        for year in (2023, 2024):
            rows = {k: v for k, v in ROWS.items() if k != "s"}
            put(tmp_path / f"ward={ward}" / f"year={year}" / f"t.{kind}",
                rows, e=[f"{ward}{year}{e}" for e in rows["e"]])  # fmt: skip
    paths = str(tmp_path / "*" / "*" / f"t.{kind}")
    parts = {**PARTS, "state": "year", "group": "ward"}
    log = dprl.read(paths, **parts, partitions=True)
    assert (log.states, log.groups) == ((2023, 2024), ("north", "south east"))
    assert np.bincount(log.codes()).tolist() == [6, 6]
    assert dprl.check(paths, **parts, partitions=True).log.digest() == log.digest()
    features = dprl.read(paths, **{**PARTS, "state": ["year"]}, partitions=True)
    assert sorted(set(features.features[:, 0].tolist())) == [2023.0, 2024.0]
    times = dprl.read(paths, **{**PARTS, "state": "ward", "reward": "year"}, partitions=True)
    assert set(times.reward.tolist()) == {2023.0, 2024.0}
    with pytest.raises(LogError, match="there is no column 'year' for state"):
        dprl.read(paths, **parts)


@KINDS
def test_a_folder_without_a_value_is_a_missing_value(kind, tmp_path):
    rows = {k: v for k, v in ROWS.items() if k != "s"}
    put(tmp_path / "s=__HIVE_DEFAULT_PARTITION__" / f"t.{kind}", rows)
    with pytest.raises(LogError, match="'s' is missing on 3 of 3 rows"):
        dprl.read(tmp_path / "s=__HIVE_DEFAULT_PARTITION__" / f"t.{kind}", **PARTS, partitions=True)


@KINDS
@pytest.mark.parametrize("folder", ["r=99", "R=99"])
def test_a_folder_that_clashes_with_a_column_is_refused(kind, folder, tmp_path):
    path = put(tmp_path / folder / f"t.{kind}")
    with pytest.raises(LogError, match=r"the folders give a column '[rR]'") as error:
        dprl.read(path, **PARTS, partitions=True)
    assert len(str(error.value).splitlines()) == 3


@KINDS
def test_folders_that_say_different_things_are_refused(kind, tmp_path, monkeypatch):
    paths = [put(tmp_path / f / f"t.{kind}") for f in ("k=1", "l=1", "k=1/k=2")]
    with pytest.raises(LogError, match="do not name the same columns"):
        dprl.read(paths[:2], **PARTS, partitions=True)
    with pytest.raises(LogError, match="two folders of one path are called 'k'"):
        dprl.read(paths[2], **PARTS, partitions=True)
    monkeypatch.chdir(tmp_path / "k=1")
    with pytest.raises(LogError, match="no folder is called NAME=VALUE"):
        dprl.read(f"t.{kind}", **PARTS, partitions=True)
    with pytest.raises(ParameterError, match="not for a dataframe"):
        dprl.check(pd.DataFrame(ROWS), **PARTS, partitions=True)


@KINDS
def test_folders_on_the_command_line(kind, run, tmp_path):
    rows = {k: v for k, v in ROWS.items() if k != "s"}
    for s in ("x", "y"):
        put(tmp_path / f"s={s}" / f"t.{kind}", rows, e=[f"{s}{e}" for e in rows["e"]])
    paths = f"s=*/t.{kind}"
    code, _, err = run("check", paths, *FLAGS)
    assert (code, "there is no column 's'" in err) == (1, True)
    code, out, _ = run("check", paths, *FLAGS, "--partitions", "--json")
    assert (code, json.loads(out)["log"]["states"]) == (0, 2)
    fit = ["fit", paths, *FLAGS, "--n-min", 1, "--gamma", 0.9, "--partitions"]
    assert run(*fit)[0] == 0
    assert dprl.load("policy.dprl").states == ("x", "y")
    code, _, err = run("act", "policy.dprl", paths, "--partitions", "--out", f"out.{kind}",
                       "--defer", "none")  # fmt: skip
    assert code == 0, err
    assert dprl.read(f"out.{kind}", **{**PARTS, "action": "suggested"}).states == ("x", "y")
    code, _, err = run("split", paths, "--by", "s", "--out", "parts", "--partitions")
    assert code == 0, err
    assert len(dprl.read(f"parts/train.{kind}", **PARTS).states) == 1
    code, _, err = run("gate", "policy.dprl", paths, "--lowest", 0, "--highest", 9, "--partitions")
    assert code == 0, err
    review = ["review", "policy.dprl", "--log", paths, "--export", "--partitions"]
    code, _, err = run(*review)  # read like the others; but nobody has judged a change
    assert (code, "nobody has judged a change" in err) == (1, True)


@pytest.mark.parametrize("text", [True, False])
def test_patients_are_not_their_folder(text, tmp_path):
    """Tables, and what is built from them, in folders called like their columns."""
    ward = Ward()
    for stay in (1, 2, 3):
        ward.stay(stay, subject=10 + stay)
    ward.write(tmp_path / "tables", kind=".csv" if text else ".parquet")
    tables = tmp_path / "subject_id=99" / "stay_id=7"
    tables.parent.mkdir()
    (tmp_path / "tables").rename(tables)
    out = tmp_path / "subject_id=98" / "stays.parquet"
    out.parent.mkdir()
    icu.build(tables, out)
    assert icu.read_stays(out).subjects == (11, 12, 13)
    assert icu.read_stays(out).n_stays == 3


def test_rows_of_experiments_are_not_their_folder(tmp_path):
    place = tmp_path / "seed=99"
    place.mkdir()
    for name in ("part[1].parquet", "part1.parquet"):
        write_rows([{"seed": len(name)}], place / name)
    assert read_rows([place / "part[1].parquet"])["seed"].tolist() == [15]


# -- names --------------------------------------------------------------------------------------

ODD = ["st[1]", "a*b", "a?b", "[!x]", "~", "~root", "x]", "**", "{a,b}", "a[[]b", "%41", "http:"]


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("name", ODD)
def test_a_name_that_exists_is_that_name(kind, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for other in ("st1", "axb", "x", "ab", "b", "home", "home/~", "A"):
        put(tmp_path / other / f"{name}.{kind}", r=[-1.0, -1.0, -1.0])
        put(tmp_path / f"{other}.{kind}", r=[-1.0, -1.0, -1.0])
        put(tmp_path / other / f"t.{kind}", r=[-1.0, -1.0, -1.0])
    put(tmp_path / name / f"t.{kind}")
    put(tmp_path / f"{name}.{kind}")
    for path in (f"{name}/t.{kind}", f"{name}.{kind}", str(tmp_path / name / f"t.{kind}")):
        assert dprl.read(path, **PARTS).reward.tolist() == ROWS["r"]
        assert TableFile(path).number("r").tolist() == ROWS["r"]


def test_names_that_duckdb_cannot_take_literally_are_refused(tmp_path):
    path = put(tmp_path / "a\\[1].csv")
    with pytest.raises(LogError, match="has a backslash and one of"):
        dprl.read(path, **PARTS)
    assert dprl.read(put(tmp_path / "a\\b.csv"), **PARTS).n_steps == 3


def test_what_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    os.symlink(tmp_path / "gone", tmp_path / "link.csv")
    (tmp_path / "f" / "folder.csv").mkdir(parents=True)
    for path in ("pipe.csv", "link.csv", "f/*"):
        with pytest.raises(LogError, match="is not a file with content of its own"):
            dprl.read(tmp_path / path, **PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("text", [True, False])
@pytest.mark.parametrize("name", ["tab[12]", "~"])
def test_tables_of_the_folder_that_is_named(name, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for folder, subject in ((name, 5), ("tab1", 6), ("home", 7)):
        ward = Ward()
        ward.stay(1, subject=subject)
        ward.write(tmp_path / folder, kind=".csv" if text else ".parquet")
    for out in ("st[1].parquet", "st1.parquet"):
        icu.build(name if out == "st[1].parquet" else "tab1", out)
    assert icu.read_stays("st[1].parquet").subjects == (5,)
    assert icu.read_stays("st1.parquet").subjects == (6,)


def test_items_of_the_file_that_is_named(tmp_path):
    listed = "concept,source,itemid,rank,low,high,label\nmap,chart,{},1,10,250,x\n"
    (tmp_path / "items[1].csv").write_text(listed.format(1))
    (tmp_path / "items1.csv").write_text(listed.format(2))
    (tmp_path / "itemid=7").mkdir()
    (tmp_path / "itemid=7" / "items.csv").write_text(listed.format(3))
    from dprl_studies.icu.stays import load_items

    for name, code in (("items[1].csv", 1), ("itemid=7/items.csv", 3)):
        with duckdb.connect() as con:
            load_items(con, tmp_path / name)
            assert con.execute("SELECT itemid FROM items").fetchall() == [(code,)]


# -- columns ------------------------------------------------------------------------------------


@KINDS
def test_a_column_with_brackets_is_that_column(kind, run, tmp_path):
    rows = {
        "e": [1, 1, 2],
        "x[1]": ["p", "q", "p"],
        "x1": [1, 2, 3],
        "a": [0, 1, 0],
        "r": [1, 2, 3],
    }
    path = put(tmp_path / f"t.{kind}", rows)
    log = dprl.read(path, **{**PARTS, "state": "x[1]"})
    assert log.states == ("p", "q")
    flags = ["--episode", "e", "--action", "a", "--reward", "r", "--state", "x[1]"]
    code, _, err = run("fit", path, *flags, "--n-min", 1, "--gamma", 0.9)
    assert code == 0, err
    assert dprl.load("policy.dprl").states == ("p", "q")
    code, _, err = run("act", "policy.dprl", path, "--out", f"out.{kind}")
    assert code == 0, err
    code, out, _ = run("check", path, *flags[:-1], "x[0-9]", "--json")
    assert (code, json.loads(out)["log"]["features"]) == (0, 1)


def test_a_pattern_of_several_columns_is_not_one(tmp_path, run):
    rows = {**ROWS, "a2": ["u", "u", "u"]}
    path = put(tmp_path / "t.csv", rows)
    assert dprl.read(path, **{**PARTS, "episode": "[e]"}).episodes == (1, 2)
    with pytest.raises(LogError, match="'a\\*' stands for 2 columns, and action must be one"):
        dprl.read(path, **{**PARTS, "action": "a*"})
    with pytest.raises(LogError, match="stands for 2 columns"):
        TableFile(str(path)).states("a*", str)


def test_features_are_found_by_their_very_names(tmp_path):
    path = put(tmp_path / "t.csv", {"x1": [1.0]})
    with pytest.raises(LogError, match=r"there is no column 'x\[1\]'"):
        TableFile(str(path)).features(["x[1]"])


@pytest.mark.parametrize("names", [("r", "r", "r_1"), ("r", "R", "r_1")])
def test_two_parquet_columns_of_one_name_are_refused(names, tmp_path):
    arrays = [[1, 1], ["x", "y"], ["u", "v"], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(arrays, names=["e", "s", "a", *names]), path)
    for wanted in ("r", "r_1"):
        with pytest.raises(LogError, match=r"'t.parquet' has (two )?columns 'r'"):
            dprl.read(path, **{**PARTS, "reward": wanted})
    with pytest.raises(LogError, match=r"has (two )?columns 'r'"):
        TableFile(str(path))


def test_inner_names_of_a_parquet_column_are_no_columns(tmp_path):
    path, other = tmp_path / "t.parquet", tmp_path / "u.parquet"
    menus = pa.array([["u", "v"]] * 3)
    pq.write_table(pa.table({**ROWS, "on": menus, "st": [{"r": 1, "on": [2]}] * 3}), path)
    assert dprl.read(path, **PARTS, available="on").reward.tolist() == ROWS["r"]
    pq.write_table(pa.table({**ROWS, "e": [3, 3, 4], "element": ["x"] * 3}), other)
    with pytest.raises(LogError, match=r"'t.parquet' has no column 'element', which others have"):
        dprl.read([path, other], **{**PARTS, "state": "element"})


def test_two_columns_of_one_name_in_other_doors():
    relation = duckdb.sql("SELECT 1 AS e, 'x' AS s, 'u' AS a, 1.0 AS r, 2.0 AS r, 3.0 AS r_1")
    with pytest.raises(LogError, match="two columns 'r'"):
        dprl.from_frame(relation, **PARTS)
    arrays = {"episode": [1, 1], "action": [0, 1], "reward": [1.0, 2.0]}
    state = np.array([[1.0, 2.0], [3.0, 4.0]])
    for names in (["x", "x"], ["x", "reward"]):
        with pytest.raises(LogError, match="is not the only column of that name"):
            dprl.from_arrays(**arrays, state=state, feature_names=names)


@pytest.mark.parametrize("text", [True, False])
def test_tables_with_a_column_twice_are_refused(text, tmp_path):
    ward = Ward()
    ward.stay(1, subject=5)
    tables = ward.write(tmp_path / "tables", kind=".csv" if text else ".parquet")
    file = next((tables / "icu").glob("icustays.*"))
    frame = pd.read_csv(file) if text else pd.read_parquet(file)
    frame = frame.assign(more=frame["subject_id"] + 1)
    if text:
        frame.rename(columns={"more": "subject_id"}).to_csv(file, index=False)
    else:
        table = pa.Table.from_pandas(frame)
        names = [n if n != "more" else "subject_id" for n in table.column_names]
        pq.write_table(table.rename_columns(names), file)
    with pytest.raises(LogError, match="two columns 'subject_id'"):
        icu.build(tables, tmp_path / "stays.parquet")


# -- rows ---------------------------------------------------------------------------------------


@functools.cache
def packing(size):
    """A file with a last line of this many letters, packed so far, and what packs its end."""
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(b"e,s,a,r,note\n1,x,u,1,\n1,y,v,2," + b"n" * size), packer


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\n"])
def test_a_very_long_last_line_is_not_left_out(packed, end, tmp_path):
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    for size in (2 << 20, 33 << 20, 70 << 20):
        if packed:
            begin, packer = packing(size)
            last = packer.copy()
            path.write_bytes(begin + last.compress(end) + last.flush())
        else:
            path.write_bytes(b"e,s,a,r,note\n1,x,u,1,\n1,y,v,2," + b"n" * size + end)
        with pytest.raises(LogError, match=r"the last line of .* is longer than 2,000,000 bytes"):
            dprl.read(path, **PARTS)


def test_long_lines_within_the_limit_are_read(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("e,s,a,r,note\n1,x,u,1,\n1,y,v,2," + "n" * 1_500_000)
    assert dprl.read(path, **PARTS).reward.tolist() == [1.0, 2.0]
    path.write_text("e,s,a,r,note\n" + f"1,x,u,1,{'n' * 500_000}\n" * 9 + "1,y,v,2,\n" * 9)
    assert dprl.read(path, **PARTS).n_steps == 18


# -- labels -------------------------------------------------------------------------------------


def test_wide_digits_are_no_digits(run, tmp_path):
    path = put(tmp_path / "t.csv", s=["12", "1２", "12"])
    log = dprl.read(path, **PARTS)
    assert log.states == ("12", "1２")
    report = dprl.check(path, **PARTS)
    found = next(f for f in report.findings if f.rule == "look_alikes")
    assert found.where == "'12' and '1２'"
    path = put(tmp_path / "t.csv", s=[12, 13, 12])
    assert run("fit", path, *FLAGS, "--n-min", 1, "--gamma", 0.9)[0] == 0
    code, _, err = run("explain", "policy.dprl", "1２")
    assert (code, "whole numbers" in err) == (1, True)
    for word in ("１", "1_0"):
        assert run("fit", path, *FLAGS, "--n-min", word, "--gamma", 0.9)[0] == 2


@KINDS
@pytest.mark.parametrize("part", ["episode", "group", "action", "state"])
def test_two_spellings_of_one_word_are_told(kind, part, run, tmp_path):
    two = ["caf\u00e9", "caf\u00e9", "cafe\u0301"]
    rows = {**ROWS, "g": ["p", "p", "q"]}
    column = {**PARTS, "group": "g"}[part]
    path = put(tmp_path / f"t.{kind}", {**rows, column: two})
    with pytest.warns(
        dprl.LabelWarning, match=rf"'{column}' has 1 label .*e\\u0301' and as 'caf\\xe9"
    ):
        log = dprl.read(path, **PARTS, group="g")
    assert set(two) <= set(getattr(log, part + "s"))
    finding = next(
        f for f in dprl.check(path, **PARTS, group="g").findings if f.rule == "spellings"
    )
    assert (finding.level, "caf\\xe9" in finding.where) == ("warning", True)
    _, _, err = run("split", path, "--by", column, "--out", "parts")
    assert "Unicode spelling" in err


def test_words_spelled_one_way_are_not_warned_about(tmp_path):
    path = put(tmp_path / "t.csv", s=["caf\u00e9", "cafe", "caf\u00e9"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dprl.read(path, **PARTS)


@KINDS
@pytest.mark.parametrize("part", ["a", "s"])
def test_fractional_doses_are_refused_from_any_file(kind, part, tmp_path):
    path = put(tmp_path / f"t.{kind}", **{part: [0.5, 1.25, 2.0]})
    with pytest.raises(LogError, match=f"'{part}' holds fractional numbers") as error:
        dprl.read(path, **PARTS)
    assert (error.value.where, len(str(error.value).splitlines())) == ("0.5", 3)


def test_fractional_decimals_are_refused_and_whole_ones_are_numbers(tmp_path):
    path = str(tmp_path / "t.parquet")
    sql = "SELECT 1 AS e, 'x' AS s, CAST({} AS DECIMAL(9, 2)) AS a, 1.0 AS r"
    duckdb.sql(sql.format("0.5")).write_parquet(path)
    with pytest.raises(LogError, match="'a' holds fractional numbers"):
        dprl.read(path, **PARTS)
    duckdb.sql(sql.format("12")).write_parquet(path)
    assert dprl.read(path, **PARTS).actions == (12,)


def test_text_among_numbers_is_text(tmp_path):
    path = put(tmp_path / "t.csv", a=["0.5", "none", "1.5"])
    assert dprl.read(path, **PARTS).actions == ("0.5", "1.5", "none")
    path = put(tmp_path / "t.csv", e=["1.1", "1.1", "1.2"])  # visits of a patient, say
    assert dprl.read(path, **PARTS).episodes == ("1.1", "1.2")
