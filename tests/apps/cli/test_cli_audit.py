"""`dprl audit`: what an audit holds, where its chain breaks, and what a crash leaves."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time

import pytest

from dprl._core.disk import locked
from dprl.apps.serve import audit as recording
from dprl.apps.serve.audit import Audit, check_audit
from dprl.errors import PolicyError

OLD, NEW = "a" * 64, "b" * 64


def answer(name, policy=OLD):
    return {"event": "answer", "request": name, "policy": policy, "action": "drug"}


@pytest.fixture
def path(tmp_path):
    """An audit of six lines, with the answers of two policies."""
    audit = Audit(tmp_path / "audit.jsonl")
    audit.append([{"event": "policy", "policy": OLD}, answer("1"), answer("2")])
    audit.append([{"event": "policy", "policy": NEW, "before": OLD}, answer("3", NEW)])
    audit.append([{"event": "check"}])
    audit.close()
    return tmp_path / "audit.jsonl"


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_says_what_the_audit_holds(run, path):
    first, *_, last = entries(path)
    code, out, err = run("audit", path)
    assert (code, err) == (0, "")
    assert f"3 answers in 6 lines, {first['time']} to {last['time']}" in out
    assert f"policy {OLD}: 2 answers" in out
    assert f"policy {NEW}: 1 answer, " in out
    assert f"The chain holds. Last chain: {last['chain']}" in out
    code, out, _ = run("audit", path, "--json")
    facts = json.loads(out)
    assert (code, facts["ok"], facts["answers"], facts["lines"], facts["torn"]) == (
        0,
        True,
        3,
        6,
        0,
    )
    assert (facts["first"], facts["last"], facts["chain"]) == (
        first["time"], last["time"], last["chain"],
    )  # fmt: skip
    assert {digest: p["answers"] for digest, p in facts["policies"].items()} == {OLD: 2, NEW: 1}
    assert facts["events"] == {"policy": 2, "answer": 3, "check": 1}
    assert facts["broken"] is None


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda rows: [rows[0], rows[1].replace(b"drug", b"none"), *rows[2:]], 2),
        (lambda rows: [*rows[:2], *rows[3:]], 3),
        (lambda rows: rows[1:], 1),
        (lambda rows: [*rows[:4], rows[5], rows[4]], 5),
        # A line that was put in, whole but without a chain, is no line that a crash cut short.
        (lambda rows: [*rows, b'{"time":"2026-01-01","event":"answer"}\n'], 7),
        (lambda rows: [rows[0], b"# a note\n", *rows[1:]], 2),
        # The end of a line taken off: the next one does not follow.
        (lambda rows: [rows[0], rows[1][:40] + b"\n", *rows[2:]], 3),
    ],
)
def test_a_broken_chain_is_an_error_with_its_line(run, path, change, line):
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    code, _, err = run("audit", path)
    assert code == 1
    assert "is broken: a line was changed, put in or taken out." in err
    assert f"first: line {line}: " in err
    assert len(err.splitlines()) == 3
    assert re.search(r" (1 line before it holds|[02-9] lines before it hold)\. ", err)
    code, out, _ = run("audit", path, "--json")
    facts = json.loads(out)
    assert (code, facts["ok"], facts["broken"]) == (1, False, line)
    assert facts["error"]["kind"] == "PolicyError"


def test_a_line_that_a_crash_cut_short_is_told_apart(run, path):
    whole = path.read_bytes()
    for cut in (1, 30, 100):  # within the last line, wherever it ends
        path.write_bytes(whole[:-cut])
        code, out, err = run("audit", path)
        assert (code, err) == (0, "")
        assert ("cut short by a crash" in out) == (cut > 1)
    path.write_bytes(whole + b'{"time":"2026-\0\0\0')
    code, out, _ = run("audit", path)
    assert code == 0
    assert "1 line cut short by a crash (line 7, the last of the file among them)" in out
    Audit(path).append([answer("4")])
    code, out, _ = run("audit", path, "--json")
    facts = json.loads(out)
    assert (code, facts["torn"], facts["torn_at"], facts["ends_torn"]) == (0, 1, [7], False)
    assert facts["lines"] == 7


def test_a_crash_that_took_only_the_newline_breaks_no_chain(path):
    path.write_bytes(path.read_bytes()[:-1])
    Audit(path).append([answer("4")])
    assert check_audit(path) == {"lines": 7, "torn": 0}


def test_lines_cut_off_the_end_show_by_a_chain_that_was_kept(run, path):
    kept = entries(path)[-1]["chain"]
    assert run("audit", path, "--chain", kept)[0] == 0
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert run("audit", path)[0] == 0
    code, _, err = run("audit", path, "--chain", kept)
    assert code == 1
    assert "cut off the end" in err
    code, _, err = run("audit", path, "--chain", "xyz")
    assert code == 1
    assert "must be the 64 characters" in err


def test_what_is_no_audit_is_refused(run, tmp_path):
    code, _, err = run("audit", tmp_path / "nowhere")
    assert (code, "cannot be read" in err) == (1, True)
    code, _, err = run("audit", tmp_path)
    assert (code, len(err.splitlines()) <= 3) == (1, True)
    with sqlite3.connect(tmp_path / "v.sqlite") as db:
        db.execute("CREATE TABLE t (a)")
    db.close()
    code, _, err = run("audit", tmp_path / "v.sqlite")
    assert (code, "dprl review --verdicts" in err) == (1, True)
    (tmp_path / "empty").write_bytes(b"")
    assert run("audit", tmp_path / "empty")[0] == 0
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        code, _, err = run("audit", tmp_path / "pipe")
        assert (code, "must be an ordinary file" in err) == (1, True)


def test_a_line_that_is_being_written_is_waited_for(path):
    whole = path.read_bytes()
    begun = threading.Event()
    path.write_bytes(whole[:-50])

    def write():
        audit = Audit(path)
        with locked(audit._handle):
            begun.set()
            time.sleep(0.1)
            os.write(audit._handle, whole[-50:])
        audit.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert begun.wait(60)
    assert check_audit(path) == {"lines": 6, "torn": 0}
    writer.join()


@pytest.fixture
def small(monkeypatch):
    """An audit goes on in a new file after some 500 bytes."""
    monkeypatch.setattr(recording, "SEGMENT", 500)


def test_an_audit_goes_on_in_new_files_under_one_chain(run, tmp_path, small, monkeypatch):
    """By size and by day, by several writers; each file says what it follows from."""
    path = tmp_path / "audit.jsonl"
    one, other = Audit(path), Audit(path)
    for i in range(10):
        (one, other)[i % 2].append([answer(str(i))])
    files = [*recording.segments(path), path]
    assert len(files) > 3
    assert max(file.stat().st_size for file in files) < 1000
    assert not path.with_name("audit.jsonl.new").exists()
    code, out, err = run("audit", path, "--json")
    facts = json.loads(out)
    assert (code, err, facts["answers"], facts["files"]) == (0, "", 10, len(files))
    assert facts["events"] == {"answer": 10, "segment": len(files) - 1}
    assert facts["chain"] == entries(path)[-1]["chain"]
    # A later file alone holds too; what follows a file that is gone, or was changed, does not.
    monkeypatch.setattr(recording, "SEGMENT", 1 << 20)
    before = len(recording.segments(path))
    monkeypatch.setattr(recording, "now", lambda: "2999-01-01T00:00:00.000000+00:00")
    other.append([answer("tomorrow")])
    one.append([answer("tomorrow, too")])
    assert len(recording.segments(path)) == before + 1
    assert check_audit(path)["lines"] == 12 + before + 1
    files[0].rename(tmp_path / "elsewhere")
    assert run("audit", path)[0] == 0
    gone = files[2].read_bytes()
    files[2].unlink()
    code, _, err = run("audit", path)
    assert (code, f"first: {files[3].name}, line 1: " in err) == (1, True)
    files[2].write_bytes(gone.replace(b"drug", b"none", 1))
    code, _, err = run("audit", path)
    assert (code, f"first: {files[2].name}, line 2: " in err) == (1, True)


def test_only_the_end_is_checked_when_a_service_starts(path):
    rows = path.read_bytes().splitlines(keepends=True)
    whole = path.stat().st_size
    path.write_bytes(b"".join([rows[0].replace(b"policy", b"polizy", 1), *rows[1:]]))
    assert check_audit(path, len(rows[-1]) + len(rows[-2]) + 5) == {"lines": 2, "torn": 0}
    with pytest.raises(PolicyError, match="changed by other hands"):
        check_audit(path, whole)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_lines_cut_off_while_it_is_written_to_show_at_once(path, left):
    audit = Audit(path)
    audit.append([answer("5")])
    assert audit.lost == ""
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(len(b"".join(whole.splitlines(keepends=True)[:left])))
    assert audit.lost == recording.CUT
    with pytest.raises(OSError, match="cut off"):
        audit.append([answer("6")])
    with path.open("r+b") as file:  # as long as before, but not the same
        file.write(b" " * len(whole))
    assert audit.lost == recording.CUT
    path.write_bytes(whole)
    audit.append([answer("6")])
    assert check_audit(path)["lines"] == 8


def test_a_crash_between_two_files_and_a_disk_without_room_lose_nothing(tmp_path, small):
    path = tmp_path / "audit.jsonl"
    audit = Audit(path)
    audit.append([answer(str(i)) for i in range(4)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording.Path, "replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):  # the file has its second name by now
            audit.append([answer("4")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording.os, "fsync", _no_room_for(path))
        other = Audit(path)
        other.append([answer("4")])  # it goes on where it is
    assert len(recording.segments(path)) == 1
    other.append([answer("5")])
    assert len(recording.segments(path)) == 1
    assert check_audit(path) == {"lines": 7, "torn": 0}
    path.unlink()  # what was stopped, and its last file put elsewhere, goes on from the others
    Audit(path).append([answer("6")])
    assert check_audit(path) == {"lines": 7, "torn": 0}


def _no_room_for(path):
    sync = os.fsync

    def synced(handle):
        if not os.path.samestat(os.fstat(handle), os.stat(path)):
            raise OSError(28, "No space left on device")
        sync(handle)

    return synced
