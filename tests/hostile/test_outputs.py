"""What comes out: harmless in a terminal and in a spreadsheet, and never said to be stored if not."""

from __future__ import annotations

import collections
import csv
import json
import sqlite3

import pytest

import dprl
from conftest import to_log
from dprl.apps.cli.main import _run

EVIL = "a\x1b[31m\nstate b: all is well\x9b2J\u202e"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A policy with labels that nobody would choose."""
    episodes = [[(EVIL, "=1+1", 1.0)]] * 20 + [[(EVIL, "-9", 0.0)]] * 20
    episodes += [[("=HYPERLINK(1)", "-9", 1.0)]] * 20 + [[("=HYPERLINK(1)", "=1+1", 0.0)]] * 20
    folder = tmp_path_factory.mktemp("evil")
    dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(to_log(episodes)).save(folder / "p.dprl")
    return folder


def test_labels_are_printed_harmlessly(folder, capsys):
    policy = dprl.load(folder / "p.dprl")
    for tokens in (["changes"], ["explain"], ["changes", "--json"]):
        state = [EVIL] if tokens == ["explain"] else []
        assert _run([tokens[0], str(folder / "p.dprl"), *state, *tokens[1:]]) == 0
        out = capsys.readouterr().out
        assert not set("\x1b\x9b\u202e") & set(out), tokens
        assert "\nstate b" not in out, tokens
    assert EVIL in [row["state"] for row in json.loads(out)["rows"]]
    for text in (str(policy.changes()), str(policy.explain(EVIL)), str(policy)):
        assert "\nstate b" not in text


def test_errors_are_printed_harmlessly(folder, capsys):
    assert _run(["changes", "no\x1b[31m\nfile"]) == 1
    assert "\x1b" not in capsys.readouterr().err


def test_act_guards_formulas_in_a_file(folder, tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_text('state,note,x\n=HYPERLINK(1),"@SUM(1)",-1.5\n=HYPERLINK(1), =2,+3e5\n')
    out = tmp_path / "o.csv"
    assert (
        _run(["act", str(folder / "p.dprl"), str(table), "--state", "state", "--out", str(out)])
        == 0
    )
    lines = out.read_text().splitlines()
    assert lines == ["state,note,x,suggested", "'=HYPERLINK(1),'@SUM(1),-1.5,-9",
                     "'=HYPERLINK(1),' =2,+3e5,-9"]  # fmt: skip
    assert _run(["act", str(folder / "p.dprl"), str(table), "--state", "state"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "=HYPERLINK(1),@SUM(1),-1.5,-9"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("-0,5", "-0,5"), ("+1.234,50", "+1.234,50"), ("-,5", "-,5"), (" -2,5e3", " -2,5e3"),
        ("-1,5+A1", "'-1,5+A1"), ("-A1,5", "'-A1,5"), ("=1,5", "'=1,5"), ("-1,", "'-1,"),
    ],
)  # fmt: skip
def test_act_keeps_numbers_with_a_decimal_comma(folder, tmp_path, cell, written):
    table, out = tmp_path / "t.csv", tmp_path / "o.csv"
    table.write_text(f"state;x\n=HYPERLINK(1);{cell}\n")
    command = ["act", str(folder / "p.dprl"), str(table), "--state", "state", "--decimal", ","]
    assert _run([*command, "--out", str(out)]) == 0
    with out.open(newline="") as lines:
        assert next(csv.DictReader(lines))["x"] == written


def test_settings_found_in_a_folder_are_said(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("state\n=HYPERLINK(1)\n")
    (tmp_path / "dprl.toml").write_text('[act]\nout = "elsewhere.csv"\n[serve]\nhost = "0.0.0.0"\n')
    command = ["act", str(folder / "p.dprl"), "t.csv", "--state", "state"]
    assert _run(command) == 0
    assert "dprl.toml in this folder sets --out: elsewhere.csv" in capsys.readouterr().err
    assert _run([*command, "--out", "here.csv"]) == 0
    assert "dprl.toml" not in capsys.readouterr().err
    assert _run(["serve", "nowhere.dprl"]) == 1
    assert "dprl.toml in this folder sets --host: 0.0.0.0" in capsys.readouterr().err


def test_a_verdict_that_was_not_stored_is_said_not_to_be(tmp_path, monkeypatch):
    from dprl.apps.review.verdicts import NotStoredError, Verdicts

    verdicts = Verdicts(tmp_path / "v.sqlite", "p", ["c"])
    verdicts.add("c", "Ada", "agree")
    connect = sqlite3.connect

    def full(*args, **kwargs):
        db = connect(*args, **kwargs)
        db.execute("PRAGMA max_page_count = 1")  # SQLite raises it to the pages that are there
        return db

    monkeypatch.setattr(sqlite3, "connect", full)
    with pytest.raises(NotStoredError, match=r"NOT stored.*full"):
        collections.deque((verdicts.add("c", "Ada", "agree", "x" * 4000) for _ in range(30)), 0)
    monkeypatch.undo()
    stored = verdicts.all()
    assert len(stored) < 30
    assert verdicts.add("c", "Ada", "unsure").id == len(stored) + 1


def test_a_message_has_three_lines_whatever_it_quotes():
    error = dprl.LogError("'a\nb' is missing.", "row 1 (who=\x1b[0m\u202e)", "x" * 5000)
    lines = str(error).splitlines()
    assert lines[:2] == ["'a\\nb' is missing.", "  first: row 1 (who=\\x1b[0m\\u202e)"]
    assert len(lines) == 3
    assert len(lines[2]) < 1100
    assert error.what == "'a\nb' is missing."
