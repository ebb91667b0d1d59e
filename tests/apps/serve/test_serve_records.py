"""What the service writes down: request ids, the log, the audit, and a disk that is full."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
from pathlib import Path

import pytest

import dprl
from conftest import to_log
from dprl.apps.cli.main import main

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")

from starlette.testclient import TestClient
from test_serve import numbers, ready

from dprl.apps.serve import audit as recording
from dprl.apps.serve.app import serve_app
from dprl.apps.serve.audit import Audit, Journal, Records, check_audit, input_hash

LOG = to_log([[("s", "b", 1.0)]] * 3 + [[("s", "a", 0.0)]] * 4 + [[("t", "a", 0.0)]])
POLICY = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(LOG)


def client_of(policy=POLICY, **how):
    return TestClient(serve_app(policy, token=None, **how), base_url="http://127.0.0.1:9")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_answer_has_a_request_id(tmp_path):
    with client_of() as client:
        ready(client)
        own = client.get("/policy", headers={"X-Request-ID": "ward-7.4:x"})
        assert own.headers["x-request-id"] == "ward-7.4:x"
        made = [client.get(p).headers["x-request-id"] for p in ("/policy", "/nothing", "/livez")]
        odd = ("", "a b", "x" * 101, "<script>", "\u00e9", "-x")
        made += [
            client.get("/livez", headers={"X-Request-ID": o.encode()}).headers["x-request-id"]
            for o in odd
        ]
        made.append(client.get("/policy", headers={"Host": "evil"}).headers["x-request-id"])
        assert all(len(name) == 32 and name.isalnum() for name in made)
        assert len(set(made)) == len(made)


def test_the_log_has_requests_and_answers_without_states(tmp_path):
    records = Records(Journal(str(tmp_path / "log")), None)
    with client_of(records=records) as client:
        ready(client)
        answer = client.post(
            "/act", json={"states": ["s", "nowhere"]}, headers={"X-Request-ID": "one"}
        ).json()
        client.post("/act", json={"states": [3]}, headers={"X-Request-ID": "two"})
    entries = lines(tmp_path / "log")
    assert entries[0]["event"] == "policy"
    first, second = [e for e in entries if e["event"] == "answer"]
    assert first == {
        "time": first["time"], "event": "answer", "request": "one", "path": "/act",
        "policy": POLICY.digest(), "state": 0, "input": input_hash("s"), "action": "b",
        "defer": False, "kind": "change", "in_range": True, "seconds": first["seconds"],
    }  # fmt: skip
    assert (second["in_range"], second["defer"], second["action"]) == (False, True, None)
    assert answer["answers"][0]["action"] == first["action"]
    assert 0 <= first["seconds"] < 500
    asked = {e["request"]: e for e in entries if e["event"] == "request"}
    assert (asked["one"]["code"], asked["two"]["code"]) == (200, 422)
    assert set(asked["one"]) == {
        "time", "event", "request", "address", "method", "path", "code", "seconds",
    }  # fmt: skip
    assert "nowhere" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize("states", [False, True])
def test_features_are_written_only_where_asked(tmp_path, states):
    log = dprl.from_arrays(
        episode=[0, 1, 2, 3], state=[[0.0, 0.0], [1.0, 1.0], [0.0, 0.1], [0.1, 0.0]],
        action=["a", "b", "a", "b"], reward=[0.0, 1.0, 0.0, 1.0], feature_names=["x", "y"],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=1.0).fit(log)
    records = Records(Journal(str(tmp_path / "log")), Audit(tmp_path / "audit"), states)
    with client_of(policy, records=records) as client:
        ready(client)
        answers = client.post(
            "/act", json={"states": [{"x": 0.777125, "y": 0.5}, {"x": 888125.0, "y": 0.5}]}
        ).json()["answers"]
        client.post("/explain", json={"state": {"x": 0.777125, "y": 0.5}})
    assert "888125" in answers[1]["reason"].replace(",", "")
    text = (tmp_path / "log").read_text() + (tmp_path / "audit").read_text()
    assert ("777125" in text, "888125" in text) == (states, states)
    assert ("888125" in text or "8.88" in text) == states
    check_audit(tmp_path / "audit")


def test_the_hash_is_of_the_values_and_may_have_a_key():
    assert input_hash({"x": 1, "y": 2}) == input_hash({"y": 2, "x": 1})
    assert input_hash({"x": 1, "y": 2}) != input_hash({"x": 2, "y": 1})
    assert input_hash("s", b"key").startswith("hmac-sha256:")
    assert input_hash("s", b"key") != input_hash("s", b"other")


def test_the_audit_holds_every_answer_that_was_given(tmp_path):
    records = Records(None, Audit(tmp_path / "audit"))
    with client_of(records=records) as client:
        ready(client)
        for place in range(5):
            client.post("/act", json={"states": ["s", "t"]}, headers={"X-Request-ID": f"r{place}"})
        assert client.post("/act", json={"states": [3]}).status_code == 422
    entries = lines(tmp_path / "audit")
    assert [e.get("request") for e in entries] == [
        None, "r0", "r0", "r1", "r1", "r2", "r2", "r3", "r3", "r4", "r4",
    ]  # fmt: skip
    assert check_audit(tmp_path / "audit") == {"lines": 11, "torn": 0}
    assert os.stat(tmp_path / "audit").st_mode & 0o777 == 0o600


def test_a_change_of_the_audit_shows(tmp_path):
    path = tmp_path / "audit"
    audit = Audit(path)
    audit.append([{"event": "answer", "request": str(i), "action": "a"} for i in range(4)])
    whole = path.read_bytes()
    rows = whole.splitlines(keepends=True)
    for changed in (
        whole.replace(b'"request":"1","action":"a"', b'"request":"1","action":"b"'),
        b"".join(rows[:1] + rows[2:]), b"".join([rows[1], rows[0], *rows[2:]]), b"".join(rows[1:]),
    ):  # fmt: skip
        path.write_bytes(changed)
        with pytest.raises(dprl.PolicyError, match="changed by other hands"):
            check_audit(path)


def test_the_chain_is_computed_as_documented_and_does_not_show_a_cut_end(tmp_path):
    path = tmp_path / "audit"
    Audit(path).append([{"event": "answer", "request": str(i)} for i in range(3)])
    before = ""
    for line in path.read_text().splitlines():
        text = line[: line.rindex(',"chain"')]
        before, last = hashlib.sha256(f"{before}\n{text}".encode()).hexdigest(), before
        assert json.loads(line)["chain"] == before
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:2]))
    assert check_audit(path) == {"lines": 2, "torn": 0}
    assert lines(path)[-1]["chain"] == last  # who kept the chain of line 3 sees that it is gone


def test_a_line_that_a_crash_cut_short_is_left_and_the_chain_goes_on(tmp_path):
    path = tmp_path / "audit"
    Audit(path).append([{"event": "answer", "request": "1"}])
    with path.open("ab") as file:
        file.write(b'{"time":"2026-01-01","event":"ans')
    Audit(path).append([{"event": "answer", "request": "2"}])
    assert check_audit(path) == {"lines": 2, "torn": 1}
    # A very long line does not hide the chain before it.
    Audit(path).append([{"event": "answer", "features": "x" * 300_000}])
    Audit(path).append([{"event": "answer", "request": "3"}])
    assert check_audit(path) == {"lines": 4, "torn": 1}


def test_several_writers_share_one_chain(tmp_path):
    def write(name):
        audit = Audit(tmp_path / "audit")
        for place in range(20):
            audit.append([{"event": "answer", "request": f"{name}-{place}"}])
        audit.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert check_audit(tmp_path / "audit") == {"lines": 80, "torn": 0}


@pytest.fixture
def full(monkeypatch):
    """A disk that is full as long as the flag is set: half of what is written still fits."""
    flag, write = threading.Event(), os.write

    def short(handle, data):
        if not flag.is_set():
            return write(handle, data)
        if len(data) > 20:
            return write(handle, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording.os, "write", short)
    return flag


@pytest.mark.parametrize("only_grows", [False, True])
def test_what_is_not_stored_is_not_answered(tmp_path, full, monkeypatch, only_grows):
    if only_grows:  # as a file with the attribute 'append only' does

        def refused(*asked):
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(recording.os, "ftruncate", refused)
    monkeypatch.setattr("dprl.apps.serve.app.PROBED_EVERY", 0.0)
    path = tmp_path / "audit"
    with client_of(records=Records(None, Audit(path))) as client:
        ready(client)
        assert client.post("/act", json={"states": ["s"]}).status_code == 200
        before = path.read_bytes()
        full.set()
        answer = client.post("/act", json={"states": ["s"]}, headers={"X-Request-ID": "lost"})
        assert answer.status_code == 503
        error = answer.json()["error"]
        assert error["kind"] == "audit"
        assert "could not be stored" in error["what"]
        assert "No space left" in error["where"]
        assert client.post("/explain", json={"state": "s"}).status_code == 503
        assert client.get("/readyz").status_code == 503
        assert numbers(client)["dprl_ready"] == 0
        assert client.get("/livez").status_code == 200
        assert only_grows or path.read_bytes() == before
        assert numbers(client)["dprl_not_stored_total"] == 2
        assert 'dprl_answers_total{kind="change"}' in numbers(client)
        assert numbers(client)['dprl_answers_total{kind="change"}'] == 1
        full.clear()
        assert client.get("/readyz").status_code == 200
        assert numbers(client)["dprl_ready"] == 1
        assert client.post("/act", json={"states": ["s"]}).status_code == 200
    checked = check_audit(path)
    assert (checked["torn"] > 0) == only_grows
    entries = [json.loads(row) for row in path.read_text().splitlines() if row.endswith('"}')]
    given = [e["request"] for e in entries if e["event"] == "answer"]
    withdrawn = [r for e in entries if e["event"] == "not given" for r in e["requests"]]
    assert ("lost" in withdrawn) == only_grows
    assert "lost" not in given or "lost" in withdrawn


def test_it_is_not_ready_where_the_largest_answer_would_not_fit(tmp_path):
    """Small answers still fit, and are given; who sends more should ask elsewhere by now."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "audit"
    with client_of(records=Records(None, Audit(path))) as client:
        ready(client)
        assert numbers(client)["dprl_audit_room_bytes"] > 2e6
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20_000, limits[1]))
            assert client.post("/act", json={"states": ["s"]}).status_code == 200
            refused = client.get("/readyz")
            assert refused.status_code == 503
            assert "the largest answer may need" in refused.json()["error"]["what"]
            assert client.post("/act", json={"states": ["s"] * 1000}).status_code == 503
            assert client.get("/readyz").status_code == 503
            assert 0 < numbers(client)["dprl_audit_room_bytes"] < 20_000
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert client.get("/readyz").status_code == 200
        # What is said to be enough for the largest answer is.
        before = path.stat().st_size
        long = {"X-Request-ID": "r" * 100}
        assert client.post("/act", json={"states": ["s"] * 1000}, headers=long).status_code == 200
        assert path.stat().st_size - before < 1000 * 1024
    check_audit(path)


@pytest.mark.parametrize("replaced", [False, True])
def test_an_audit_that_was_taken_away_stops_answers_until_it_is_back(
    tmp_path, monkeypatch, replaced
):
    monkeypatch.setattr("dprl.apps.serve.app.PROBED_EVERY", 0.0)
    path, elsewhere = tmp_path / "audit", tmp_path / "audit.1"
    with client_of(records=Records(None, Audit(path))) as client:
        ready(client)
        assert client.post("/act", json={"states": ["s"]}).status_code == 200
        path.rename(elsewhere)
        before = elsewhere.read_bytes()
        if replaced:
            path.touch()
        refused = client.get("/readyz")  # also where nobody has asked for an answer yet
        assert refused.status_code == 503
        assert "moved or removed" in refused.json()["error"]["what"]
        assert client.post("/act", json={"states": ["s"]}).status_code == 503
        assert numbers(client)["dprl_ready"] == 0
        assert elsewhere.read_bytes() == before
        elsewhere.replace(path)
        assert client.get("/readyz").status_code == 200
        assert client.post("/act", json={"states": ["s"]}).status_code == 200
    assert check_audit(path)["torn"] == 0


def test_it_is_not_ready_where_the_disk_has_too_little_room(tmp_path, monkeypatch):
    stat = os.fstatvfs
    with client_of(records=Records(None, Audit(tmp_path / "audit"))) as client:
        ready(client)
        disk = [*stat(0)]
        disk[0:2], disk[2], disk[4] = (4096, 4096), 1000, 3
        monkeypatch.setattr(os, "fstatvfs", lambda handle: os.statvfs_result(disk))
        assert client.get("/readyz").status_code == 503
        assert numbers(client)["dprl_audit_room_bytes"] == 3 * 4096
        assert numbers(client)["dprl_ready"] == 0
        disk[2] = 0  # a disk that does not say how large it is
        assert client.get("/readyz").status_code == 200


def test_a_log_that_cannot_be_written_stops_no_answer(tmp_path):
    journal = Journal(str(tmp_path / "log"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._handle)  # the disk is full from now on
    os.close(full)
    records = Records(journal, None)
    with client_of(records=records) as client:
        ready(client)
        for _ in range(3):
            assert client.post("/act", json={"states": ["s"]}).status_code == 200
        while not records.journal.lost:
            client.get("/livez")
        assert numbers(client)["dprl_log_lost_total"] > 0


def test_a_log_that_nobody_reads_stops_no_answer(monkeypatch, tmp_path):
    monkeypatch.setattr(recording, "ROOM", 3)
    monkeypatch.setattr(Journal, "_write", lambda self: None)
    journal = Journal(str(tmp_path / "log"))
    for _ in range(10):
        journal.put({"event": "x"})
    assert journal.lost == 7
    journal.close()


def test_files_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(dprl.ParameterError, match="the log cannot be written"):
        Journal(str(tmp_path / "no" / "log"))
    with pytest.raises(dprl.ParameterError, match="the audit cannot be kept"):
        Audit(tmp_path / "no" / "audit")
    with pytest.raises(dprl.ParameterError, match="a folder"):
        Audit(tmp_path)


def test_counts_begin_at_zero():
    """What begins with a first count of 1 shows no increase."""
    with client_of() as client:
        ready(client)
        counts = numbers(client)
    for series in (
        'dprl_reloads_total{result="done"}', 'dprl_reloads_total{result="refused"}',
        'dprl_feedback_total{outcome="accepted"}', 'dprl_feedback_total{outcome="overridden"}',
        'dprl_answers_total{kind="change"}', 'dprl_answers_total{kind="confirmation"}',
        'dprl_answers_total{kind="defer"}', 'dprl_answers_total{kind="out_of_range"}',
        "dprl_not_stored_total", "dprl_log_lost_total", "dprl_tokens_refused_total",
    ):  # fmt: skip
        assert counts[series] == 0, series


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes and devices on this system")
@pytest.mark.parametrize("opened", [Journal, Audit, check_audit])
@pytest.mark.parametrize("kind", ["pipe", "device", "link to a device"])
def test_what_is_no_ordinary_file_is_refused(tmp_path, opened, kind):
    target = tmp_path / "target"
    if kind == "pipe":
        os.mkfifo(target)
    else:
        target.symlink_to("/dev/null")
    given = "/dev/null" if kind == "device" else str(target)
    with pytest.raises(dprl.ParameterError, match="must be an ordinary file") as refused:
        opened(given)
    assert len(str(refused.value).splitlines()) == 3


NDJSON = {"Content-Type": "application/x-ndjson"}


def test_lines_are_answered_line_by_line_as_they_would_be_together(monkeypatch, tmp_path):
    """In blocks, whatever parts the body comes in; the audit numbers states through the stream."""
    monkeypatch.setattr("dprl.apps.serve.app.MOST", 5)
    states = ["s", "t", "nowhere", "t", "s"] * 4
    body = "".join(f"{json.dumps(state)}\n" for state in states).encode()
    records = Records(None, Audit(tmp_path / "audit"))
    with client_of(records=records) as client:
        ready(client)
        whole = client.post("/act", json={"states": states[:5]}).json()["answers"] * 4
        for size in (1, 7, len(body)):
            parts = (body[i : i + size] for i in range(0, len(body), size))
            streamed = client.post("/act", content=parts, headers=NDJSON)
            *answers, last = map(json.loads, streamed.text.splitlines())
            assert (answers, last) == (whole, {"policy": POLICY.digest(), "answers": 20})
        assert client.post("/act", content=body[:-1], headers=NDJSON).text == streamed.text
        # What is wrong in the first block is refused; later it ends the stream, and says where.
        odd = client.post("/act", content=b'"s"\n{\n', headers=NDJSON)
        assert (odd.status_code, odd.json()["error"]["what"][:6]) == (400, "line 2")
        late = client.post("/act", content=b'"s"\n' * 7 + b"3\n", headers=NDJSON)
        *answers, last = map(json.loads, late.text.splitlines())
        assert (late.status_code, len(answers), last["error"]["where"]) == (200, 5, "states[7]")
        long = client.post("/act", content=b'"' + b"x" * (1 << 20) + b'"', headers=NDJSON)
        assert long.status_code == 413
        assert client.post("/explain", content=b'"s"', headers=NDJSON).status_code == 415
        packed = client.post("/act", content=body, headers={**NDJSON, "Content-Encoding": "gzip"})
        assert packed.status_code == 415
    places = [e["state"] for e in lines(tmp_path / "audit") if e["event"] == "answer"]
    assert places[5:25] == list(range(20))


def test_a_trace_is_passed_on_and_logged(tmp_path):
    records = Records(Journal(str(tmp_path / "log")), Audit(tmp_path / "audit"))
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    good = f"00-{trace}-{parent}-01"
    odd = (good.upper(), f"00-{'0' * 32}-{parent}-01", f"00-{trace}-{'0' * 16}-01", good + "-x", "")
    with client_of(records=records) as client:
        ready(client)
        for header in (good, *odd):
            answer = client.post("/act", json={"states": ["s"]}, headers={"traceparent": header})
            assert answer.headers.get("traceparent") == (good if header == good else None)
    for name, number in (("log", 2), ("audit", 1)):
        traced = [e for e in lines(tmp_path / name) if "trace" in e]
        assert [(e["trace"], e["parent"]) for e in traced] == [(trace, parent)] * number


def test_what_the_shadow_recorded_is_monitored(tmp_path, monkeypatch, capsys):
    """The query and the command of the page, on an audit in several files."""
    duckdb = pytest.importorskip("duckdb")
    page = (Path(dprl.__file__).parents[2] / "docs" / "serving.md").read_text()
    query = re.search(r"```text\n(COPY.*?)```", page, re.DOTALL)[1]
    (command,) = re.findall(r"^\$ (dprl monitor .*)$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(recording, "SEGMENT", 20_000)
    world = dprl.envs.care_pathway()
    learner = dprl.DPRLDiscrete(n_min=20, gamma=1.0)
    policy = dprl.gate(learner, world.sample(2000, seed=0), value_range=(0, 1))
    policy.save("policy.dprl")
    fresh = world.sample(60, seed=1)
    rows = fresh.to_frame("pandas").to_dict("records")
    app = serve_app(policy, token=None, records=Records(None, Audit("audit.jsonl"), True))
    done = ["request,episode,step,action,reward"]
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        for i, row in enumerate(rows):
            client.post("/act", json={"states": [row["state"]]}, headers={"X-Request-ID": f"r{i}"})
            done.append(f"r{i},{row['episode']},{i},{row['action']},{row['reward']}")
    assert len(recording.segments("audit.jsonl")) > 1
    Path("done.csv").write_text("\n".join(done))
    duckdb.execute(query)
    asked = duckdb.execute("SELECT state, said FROM 'shadow.parquet' ORDER BY step").fetchall()
    right = [None if a is dprl.DEFER else a for a in policy.act([row["state"] for row in rows])]
    assert asked == [(row["state"], a) for row, a in zip(rows, right, strict=True)]
    with pytest.raises(SystemExit) as ended:
        main([*command.split()[1:], "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (ended.value.code, said["groups"], said["status"]) == (0, 60, "still certified")
