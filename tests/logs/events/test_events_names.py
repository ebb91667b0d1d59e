"""Subjects in one form: 1, 1.0 and 01 are one subject, in the events and in a table of stays."""

from __future__ import annotations

import duckdb
import pytest
from test_events import SPEC, STAY, built, column

import dprl
from dprl.logs.events import build

TABLE = SPEC.replace(
    'by = "code"\nstart = "IN"',
    'by = "table"\ntable = "stays.csv"\nid = "stay"\nsubject = "who"\nbegins = "from"\nfinishes = "to"',
)
DAY = "2024-03-01 "
EVENTS = "1,08:15,DRUG,\n1,08:30,A,5\n1,08:40,R,1\n2,08:15,R,0\n"


def stays(tmp_path, *rows):
    lines = [
        f"{stay},{who},{DAY}{start},{DAY + end if end else ''}" for stay, who, start, end in rows
    ]
    (tmp_path / "stays.csv").write_text("stay,who,from,to\n" + "\n".join(lines) + "\n")


def test_a_subject_with_and_without_a_point_is_one(tmp_path):
    """pandas writes 1.0 in the file that has a gap: the drug was lost."""
    (tmp_path / "a.csv").write_text(
        f"subject_id,time,code,value\n1,{DAY}08:00,IN,\n1,{DAY}10:00,OUT,\n1,{DAY}08:30,A,5\n"
    )
    (tmp_path / "b.csv").write_text(
        f"subject_id,time,code,value\n1.0,{DAY}08:15,DRUG,\n1.0,{DAY}09:10,R,1\n"
    )
    (tmp_path / "spec.toml").write_text(SPEC)
    made = build(
        [tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "spec.toml", tmp_path / "log.parquet"
    )
    with duckdb.connect() as con:
        rows = con.execute(
            f"SELECT episode, action, reward, a FROM '{made.path}' ORDER BY step"
        ).fetchall()
    assert rows == [("1#1", "drug", 0.0, None), ("1#1", "none", 1.0, 5.0)]


def test_large_subjects_are_one_as_r_writes_them_and_refused_once_they_are_rounded(tmp_path):
    """R writes 100000 as 1e+05; from 2**53 on, doubles are not the number that they were."""
    header = "subject_id,time,code,value\n"
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    for number, other in (("100000", "1e+05"), ("9007199254740993", "9007199254740992.0")):
        (tmp_path / "a.csv").write_text(
            f"{header}{number},{DAY}08:00,IN,\n{number},{DAY}10:00,OUT,\n{number},{DAY}08:30,A,5\n"
        )
        (tmp_path / "b.csv").write_text(
            f"{header}{other},{DAY}08:15,DRUG,\n{other},{DAY}09:10,R,1\n"
        )
        files = [tmp_path / "a.csv", tmp_path / "b.csv"]
        if other.endswith(".0"):
            with pytest.raises(dprl.LogError, match="too large to be told from its neighbours"):
                dprl.from_events(files, spec)
        else:
            log = dprl.from_events(files, spec)
            assert list(log.groups) == ["100000"]
            assert [log.actions[i] for i in log.action] == ["drug", "none"]


@pytest.mark.parametrize("name", ["1", "1.0", "01", " 1"])
def test_a_table_of_stays_finds_its_events_however_numbers_are_written(tmp_path, name):
    stays(tmp_path, ("s1", name, "08:00", "10:00"))
    rows = built(tmp_path, EVENTS, TABLE)
    assert column(rows, "action") == ["drug", "none"]
    assert column(rows, "reward") == [1.0, 0.0]
    assert column(rows, "a") == [None, 5.0]
    assert column(rows, "subject") == ["1", "1"]


def test_names_that_the_events_tell_apart_stay_apart(tmp_path):
    stays(tmp_path, ("s1", "1", "08:00", "09:00"), ("s2", "01", "08:00", "09:00"))
    rows = built(tmp_path, EVENTS + "01,08:20,A,7\n", TABLE)
    assert {row["episode"]: row["action"] for row in rows} == {"s1": "drug", "s2": "none"}


def test_a_table_of_strangers_is_refused_and_a_few_are_said(tmp_path):
    stays(tmp_path, ("s1", "x1", "08:00", "10:00"), ("s2", "x2", "08:00", "10:00"))
    with pytest.raises(
        dprl.LogError, match="2 of 2 rows of the table of episodes have a subject without"
    ):
        built(tmp_path, EVENTS, TABLE)
    stays(tmp_path, ("s1", "1", "08:00", "10:00"), ("s2", "x2", "08:00", "10:00"))
    built(tmp_path, EVENTS, TABLE)
    made = build(tmp_path / "events.csv", tmp_path / "spec.toml", tmp_path / "log.parquet")
    (found,) = [f for f in made.findings if f.rule == "no_events"]
    assert found.what.startswith("1 of 2 rows")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("08:00", "10:00"), ("09:00", "11:00")),
        (("08:00", "12:00"), ("09:00", "10:00")),
        (("08:00", ""), ("08:10", "09:00")),  # open: to the last row of the subject
    ],
)
def test_stays_that_overlap_would_count_events_twice(tmp_path, first, second):
    stays(tmp_path, ("s1", "1", *first), ("s2", "1.0", *second), ("s3", "2", "08:00", "12:00"))
    with pytest.raises(
        dprl.LogError, match="1 rows of the table of episodes begin before another"
    ) as caught:
        built(tmp_path, EVENTS, TABLE)
    assert "episodes s1 and s2" in caught.value.where


def test_stays_that_follow_each_other_are_fine(tmp_path):
    stays(tmp_path, ("s1", "1", "08:00", "09:00"), ("s2", "1", "09:00", "10:00"))
    rows = built(tmp_path, EVENTS + "1,09:00,R,4\n", TABLE)
    assert column(rows, "reward") == [1.0, 4.0]  # what happens at the border counts once


def test_what_happens_where_one_stay_ends_and_the_next_begins_counts_once(tmp_path):
    rows = built(tmp_path, "p,08:00,IN,\np,09:00,OUT,\np,09:00,IN,\np,10:00,OUT,\np,09:00,R,4\n")
    assert column(rows, "reward") == [0.0, 4.0]


@pytest.mark.parametrize("odd", ["2024-03-01 08:30:00 BST", "epoch", "infinity"])
def test_events_at_no_moment_for_certain_are_refused(tmp_path, odd):
    with pytest.raises(
        dprl.LogError, match="1 of 5 rows have a time that cannot be read"
    ) as caught:
        built(tmp_path, STAY + f"p,{odd},A,5\n")
    assert "BST and CET have several meanings" in caught.value.do
