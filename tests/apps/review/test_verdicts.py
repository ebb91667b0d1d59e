"""Verdicts: never changed, never lost, and what they add up to."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from dprl.apps.review.verdicts import Verdict, Verdicts, _chain, statuses

KEYS = ["one", "two", "three"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "v.sqlite"


def test_added_in_order_with_time_and_kept(path):
    verdicts = Verdicts(path, "p", KEYS)
    verdicts.add("one", "  Ann \t Lee ", "agree", " why \r\n not ")
    verdicts.add("two", "Bo", "unsure")
    said = Verdicts(path, "p", list(reversed(KEYS))).all()
    assert [(v.id, v.reviewer, v.change, v.verdict, v.comment) for v in said] == [
        (1, "Ann Lee", "one", "agree", "why \n not"),
        (2, "Bo", "two", "unsure", ""),
    ]
    assert all(v.time.endswith("+00:00") for v in said)
    assert said[0].time <= said[1].time


@pytest.mark.parametrize(
    "statement",
    ["UPDATE verdicts SET verdict = 'agree'", "DELETE FROM verdicts", "DELETE FROM facts",
     "UPDATE facts SET value = 'q'"],
)  # fmt: skip
def test_rows_cannot_be_changed(path, statement):
    verdicts = Verdicts(path, "p", KEYS)
    verdicts.add("one", "Ann", "disagree")
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        db.execute(statement)
    db.close()


def test_whoever_goes_round_the_triggers_is_found_out(path):
    verdicts = Verdicts(path, "p", KEYS)
    for word in ("disagree", "agree", "agree"):
        verdicts.add("one", "Ann", word)
    db = sqlite3.connect(path)
    db.execute("DROP TRIGGER no_UPDATE_of_verdicts")
    db.execute("UPDATE verdicts SET verdict = 'agree' WHERE id = 1")
    db.commit()
    db.close()
    with pytest.raises(dprl.PolicyError, match="other hands"):
        Verdicts(path, "p", KEYS)


def test_a_row_taken_away_is_found_out(path):
    verdicts = Verdicts(path, "p", KEYS)
    for _ in range(3):
        verdicts.add("one", "Ann", "agree")
    db = sqlite3.connect(path)
    db.execute("DROP TRIGGER no_DELETE_of_verdicts")
    db.execute("DELETE FROM verdicts WHERE id = 2")
    db.commit()
    db.close()
    with pytest.raises(dprl.PolicyError, match="other hands"):
        verdicts.all()


def forged(path, row, statements=()):
    """A file whose chain fits, with one more row and other tables, as somebody could make it."""
    verdicts = Verdicts(path, "p", KEYS)
    first = verdicts.add("one", "Ann", "agree")
    db = sqlite3.connect(path)
    shown = (2, "2026-01-01T00:00:00+00:00", *row[:4])
    told = (row[4],) if row[4] else ()
    chain = _chain(first.chain, (*shown, *told)) if all(isinstance(x, str) for x in row) else "x"
    db.execute("INSERT INTO verdicts (id, time, reviewer, change, verdict, comment, chain, narrowed) "
               "VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*shown, chain, row[4]))  # fmt: skip
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "row",
    [
        (b"Ann", "one", "agree", "", ""),
        ("Ann", "nothing", "agree", "", ""),
        ("Ann", "one", "perhaps", "", ""),
        ("", "one", "agree", "", ""),
        ("Ann", "one", "agree", "x" * 4_001, ""),
        ("Ann", "one", "agree", "", "{"),
        ("Ann", "one", "agree", "", "[]"),
        ("Ann", "one", "agree", "", '{"conditions": 3, "facts": {}}'),
        ("Ann", "one", "agree", "", '{"conditions": [{"feature": 7}], "facts": {}}'),
        ("Ann", "one", "agree", "", "[" * 100_000),
    ],
    ids=range(10),
)
def test_a_forged_row_is_found_out_though_its_chain_fits(path, row):
    forged(path, row)
    with pytest.raises(dprl.PolicyError, match="other hands") as error:
        Verdicts(path, "p", KEYS)
    assert error.value.where.startswith("verdict 2: ")


@pytest.mark.parametrize(
    "statements",
    [
        ["DROP TABLE verdicts", "CREATE VIEW verdicts AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
         "SELECT i + 1 FROM n) SELECT i AS id, '' AS time, '' AS reviewer, '' AS change, '' AS "
         "verdict, '' AS comment, '' AS chain, '' AS narrowed FROM n"],
        ["CREATE TRIGGER more AFTER INSERT ON verdicts BEGIN SELECT 1; END"],
        ["DROP TRIGGER no_DELETE_of_facts"],
        ["ALTER TABLE verdicts ADD COLUMN more AS (id + 1)"],
        ["CREATE TABLE other (x)"],
    ],
    ids=range(5),
)  # fmt: skip
def test_other_tables_views_and_triggers_are_found_out_at_once(path, statements):
    forged(path, ("Ann", "one", "agree", "", ""), statements)
    with pytest.raises(dprl.PolicyError, match="other hands") as error:
        Verdicts(path, "p", KEYS)
    assert error.value.where == "its tables and triggers are not those of verdicts"


def test_a_damaged_file_is_refused_whatever_bytes_its_message_quotes(path):
    Verdicts(path, "p", KEYS).add("one", "Ann", "agree")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE facts", b"CREATE \xbbABLE facts"))
    with pytest.raises(dprl.PolicyError, match="cannot hold verdicts"):
        Verdicts(path, "p", KEYS)


def test_a_file_of_an_earlier_version_opens_and_gets_its_column(path):
    """Without the column of narrowings; and once more, when it was added."""
    Verdicts(path, "p", KEYS).add("one", "Ann", "agree")
    db = sqlite3.connect(path)
    db.execute("ALTER TABLE verdicts DROP COLUMN narrowed")
    db.commit()
    db.close()
    for _ in range(2):
        assert [v.narrowed for v in Verdicts(path, "p", KEYS).all()] == [""]


def test_another_policy_or_list_of_changes_is_refused(path):
    Verdicts(path, "p", KEYS).add("one", "Ann", "agree")
    with pytest.raises(dprl.PolicyError, match="another policy"):
        Verdicts(path, "q", KEYS)
    with pytest.raises(dprl.PolicyError, match="another log"):
        Verdicts(path, "p", KEYS, "elsewhere")
    with pytest.raises(dprl.PolicyError, match="another log"):
        Verdicts(path, "p", KEYS[:2])
    assert len(Verdicts(path, "p", KEYS).all()) == 1


def test_a_file_of_something_else_is_left_alone(tmp_path):
    other = tmp_path / "other.sqlite"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE mine (x)")
    db.commit()
    db.close()
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, but long enough to be read as one" * 20)
    for file in (other, text, tmp_path / "no" / "folder.sqlite"):
        before = file.read_bytes() if file.exists() else None
        with pytest.raises(dprl.PolicyError, match="cannot hold verdicts"):
            Verdicts(file, "p", KEYS)
        assert (file.read_bytes() if file.exists() else None) == before


@pytest.mark.parametrize(
    "given",
    [("four", "Ann", "agree", ""), ("one", " ", "agree", ""), ("one", "A" * 101, "agree", ""),
     ("one", "A\x00n", "agree", ""), ("one", "A\u202en", "agree", ""), ("one", "Ann", "yes", ""),
     ("one", "Ann", "agree", "x" * 4001), ("one", "Ann", "agree", "\x00"),
     ("one", "Ann", "agree", "\ud800")],
)  # fmt: skip
def test_odd_verdicts_are_refused_and_nothing_is_written(path, given):
    verdicts = Verdicts(path, "p", KEYS)
    with pytest.raises(dprl.ParameterError):
        verdicts.add(*given)
    assert verdicts.all() == []


def test_many_threads_lose_nothing(path):
    verdicts = Verdicts(path, "p", KEYS)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: verdicts.add("one", f"R{i % 4}", "agree", str(i)), range(80)))
    said = verdicts.all()
    assert [v.id for v in said] == list(range(1, 81))
    assert {v.comment for v in said} == {str(i) for i in range(80)}


WRITER = """
import sys, time
from dprl.apps.review.verdicts import Verdicts
verdicts = Verdicts(sys.argv[1], "p", ["one", "two", "three"])
n = 0
while True:
    said = verdicts.add("one", sys.argv[2], "agree", f"{sys.argv[2]} {n}")
    print(said.comment, flush=True)  # the answer: from here on it must not be lost
    n += 1
    time.sleep(.003)  # or one keeps the other out, for a lock is not fair
"""


@pytest.mark.slow
def test_killed_in_the_middle_nothing_answered_is_lost(path):
    """Two writers at once, killed without warning, three times over."""
    answered, rng = set(), random.Random(3)
    for turn in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path), f"{name}{turn}"],
                stdout=subprocess.PIPE, text=True,
            )
            for name in "AB"
        ]  # fmt: skip
        first = ["".join(w.stdout.readline() for _ in range(3)) for w in writers]
        time.sleep(rng.uniform(0.05, 0.3))
        for writer in writers:
            os.kill(writer.pid, signal.SIGKILL)
        for writer, line in zip(writers, first, strict=True):
            rest, _ = writer.communicate()
            answered |= {x for x in (line + rest).split("\n")[:-1] if x}
    said = Verdicts(path, "p", KEYS).all()
    assert len(answered) >= 3 * 2 * 3
    assert answered <= {v.comment for v in said}
    assert len(said) <= len(answered) + 10  # at most one each was written and not yet answered


def slow_status(words, needs):
    """The rule, read aloud: words is the latest verdict of each reviewer."""
    if not words:
        return "open"
    if all(w == "agree" for w in words):
        return "approved" if len(words) >= needs else "waiting"
    if any(w == "agree" for w in words):
        return "conflict"
    return "refused" if any(w == "disagree" for w in words) else "unsure"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS), st.sampled_from(["Ann", "ANN", "Bo", "Cy"]),
            st.sampled_from(["agree", "disagree", "unsure"]),
        )
    ),
    st.integers(1, 3),
)  # fmt: skip
def test_the_rule_of_approval(said, needs):
    rows = [Verdict(i, "", who, key, word, "", "") for i, (key, who, word) in enumerate(said, 1)]
    found = statuses(rows, KEYS, needs)
    for key in KEYS:
        latest = {who.casefold(): word for k, who, word in said if k == key}
        assert found[key].word == slow_status(list(latest.values()), needs)
        assert found[key].approved == (
            len(latest) >= needs and all(w == "agree" for w in latest.values())
        )
        assert len(found[key].latest) == len(latest)


def test_verdicts_come_without_a_browser(tmp_path, run, monkeypatch):
    """From a filled sheet, all or none, and from the terminal; two must agree."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{'st'[i % 2]},{'ab'[i % 3 == 0]},{int(i % 3 == 0)}" for i in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["episode,state,action,reward", *rows]))
    columns = ("--episode", "episode", "--state", "state", "--action", "action")
    run("fit", "log.csv", *columns, "--reward", "reward", "--n-min", 5, "--gamma", 1)
    base = (
        "review",
        "policy.dprl",
        "--log",
        "log.csv",
        *columns,
        "--reward",
        "reward",
        "--needs",
        2,
    )
    assert run(*base, "--blank", "sheet.csv")[0] == 0
    code, _, err = run(*base, "--blank", "sheet.csv")
    assert (code, "would be lost" in err) == (1, True)
    code, out, _ = run(*base, "--filled", "sheet.csv", "--json")
    assert (code, json.loads(out)["recorded"]) == (0, 0)
    with open("sheet.csv", newline="", encoding="utf-8-sig") as file:
        head, *changes = csv.reader(file)
    assert len(changes) == 2

    def fill(verdicts, delimiter):
        with open("sheet.csv", "w", newline="", encoding="utf-8-sig") as file:
            sheet = csv.writer(file, delimiter=delimiter)
            sheet.writerow(head)
            for row, said in zip(changes, verdicts, strict=True):
                sheet.writerow([*row[:4], *said])

    fill([("Ann", "Agree", "good"), ("Ann", "perhaps", "")], ",")
    code, _, err = run(*base, "--filled", "sheet.csv")
    assert (code, "got 'perhaps'" in err, "sheet.csv, row 3" in err) == (1, True, True)
    fill([("Ann", "Agree", "good"), ("Ann", "agree", "")], ";")  # as a German spreadsheet saves it
    for new in (2, 0):
        code, out, _ = run(*base, "--filled", "sheet.csv", "--json")
        assert (code, json.loads(out)["recorded"]) == (0, new)
    replies = iter(["Ben", "x", "a", "fine", "d", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(replies))
    code, out, _ = run(*base, "--terminal")
    assert (code, "2 verdicts recorded" in out, "1 of 2: " in out) == (0, True, True)
    (tmp_path / "approved.dprl").unlink(missing_ok=True)
    (tmp_path / "approved-audit.csv").unlink(missing_ok=True)
    assert run(*base, "--export")[0] == 0
    assert len(dprl.load("approved.dprl").changes()) == 1
    trail = (tmp_path / "approved-audit.csv").read_text()
    assert [trail.count(word) for word in ('"Ann"', '"Ben"', '"good"', '"fine"')] == [2, 2, 1, 1]
    assert run(*base, "--export", "--terminal")[0] == 1
    assert "nowhere" in run(*base, "--blank", "nowhere/sheet.csv")[2]
