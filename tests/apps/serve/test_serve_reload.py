"""A new policy takes over while the old one answers; drift of what is asked; several processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from waiting import until

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from starlette.testclient import TestClient
from test_serve import numbers, ready
from test_servers import get, running, until_ready

from dprl.apps.serve import lifecycle as run_of
from dprl.apps.serve import served as serving
from dprl.apps.serve.app import serve_app
from dprl.apps.serve.audit import Audit, Journal, Records, check_audit
from dprl.apps.serve.metrics import Metrics
from dprl.apps.serve.served import Kept
from dprl.learners.continuous import feature_quantiles


def policy_for(better, n=4):
    """A policy that suggests `better` at the state 's'."""
    usual = "a" if better == "b" else "b"
    log = to_log([[("s", better, 1.0)]] * 3 + [[("s", usual, 0.0)]] * n)
    return dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(log)


@pytest.fixture
def site(tmp_path):
    """A service over a file, and the file."""
    path = tmp_path / "p.dprl"
    policy = policy_for("b")
    policy.save(path)
    records = Records(Journal(str(tmp_path / "log")), Audit(tmp_path / "audit"))
    app = serve_app(policy, token=None, path=str(path), records=records)
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        yield client, path, app.state.life


def reload(client, life):
    return client.portal.call(life.reload)


def action(client):
    answer = client.post("/act", json={"states": ["s"]}).json()
    return answer["answers"][0]["action"], answer["policy"]


def test_a_new_file_takes_over(site):
    client, path, life = site
    old, new = policy_for("b"), policy_for("a")
    assert action(client) == ("b", old.digest())
    assert reload(client, life) == ""  # the same file: nothing happens
    new.save(path)
    assert action(client) == ("b", old.digest())
    assert reload(client, life) == ""
    assert action(client) == ("a", new.digest())
    assert client.get("/policy").json()["digest"] == new.digest()
    assert numbers(client)[f'dprl_policy_info{{digest="{new.digest()}"}}'] == 1
    assert numbers(client)['dprl_reloads_total{result="done"}'] == 1
    audit = [json.loads(line) for line in (path.parent / "audit").read_text().splitlines()]
    taken = [(e["policy"], e.get("before")) for e in audit if e["event"] == "policy"]
    assert taken == [(old.digest(), None), (new.digest(), old.digest())]


def other_states():
    return dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(to_log([[(3, "a", 0.0)]] * 2))


def test_a_file_that_cannot_be_served_changes_nothing(site, capsys):
    client, path, life = site
    whole = path.read_bytes()
    log = dprl.from_arrays(
        episode=[0, 1], state=np.eye(2), action=["a", "b"], reward=[0.0, 1.0],
        feature_names=["x", "y"],
    )  # fmt: skip
    features = dprl.DPRLContinuous(n_min=1, radius=1.0, gamma=1.0).fit(log)
    features.save(path.parent / "features.dprl")
    other_states().save(path.parent / "numbers.dprl")
    wrong = {
        whole[: len(whole) // 2]: "", b"": "", b"no policy": "",
        (path.parent / "features.dprl").read_bytes(): "other states",
        (path.parent / "numbers.dprl").read_bytes(): "other states",
    }  # fmt: skip
    for place, (data, why) in enumerate(wrong.items(), 1):
        path.write_bytes(data)
        refusal = reload(client, life)
        assert refusal
        assert why in refusal
        assert action(client) == ("b", policy_for("b").digest())
        assert client.get("/readyz").status_code == 200
        assert numbers(client)['dprl_reloads_total{result="refused"}'] == place
        assert "is not taken over" in capsys.readouterr().err
    path.unlink()
    assert "there is no policy file" in reload(client, life)
    path.write_bytes(whole)
    assert reload(client, life) == ""


def test_the_old_policy_answers_until_the_new_one_is_ready(site, monkeypatch):
    client, path, life = site
    go, warming = threading.Event(), threading.Event()
    warm = serving.Answers.warm

    def slowly(self):
        warming.set()
        go.wait(500)
        warm(self)

    monkeypatch.setattr(serving.Answers, "warm", slowly)
    policy_for("a").save(path)
    pending = client.portal.start_task_soon(life.reload)
    assert warming.wait(500)
    assert action(client)[0] == "b"
    assert client.get("/readyz").status_code == 200
    go.set()
    assert pending.result() == ""
    assert action(client)[0] == "a"


def test_a_request_is_answered_by_one_policy(site):
    """The digest in an answer is that of the policy that gave it, while policies change."""
    client, path, life = site
    by_digest = {policy_for(x).digest(): x for x in "ab"}
    done = threading.Event()

    def change():
        while not done.is_set():
            for x in "ab":
                policy_for(x).save(path)
                reload(client, life)

    thread = threading.Thread(target=change)
    thread.start()
    seen = []
    try:
        while len(seen) < 40 or len(set(seen)) < 2:
            given, digest = action(client)
            assert by_digest[digest] == given
            seen.append(given)
    finally:
        done.set()
        thread.join()


def test_a_policy_that_cannot_be_recorded_does_not_take_over(site, monkeypatch):
    client, path, life = site
    policy_for("a").save(path)

    async def fails(entries):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(life.records.audit, "store", fails)
    assert "No space left" in reload(client, life)
    assert client.get("/policy").json()["digest"] == policy_for("b").digest()


def test_the_file_is_watched(tmp_path):
    path = tmp_path / "p.dprl"
    policy_for("b").save(path)
    app = serve_app(policy_for("b"), token=None, path=str(path), reload=0.02)
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        time.sleep(0.05)
        path.unlink()
        time.sleep(0.05)
        policy_for("a").save(path)
        until(lambda: action(client)[0] == "a")


SIGNING = Path(__file__).parents[2] / "policies" / "signing"


@pytest.fixture
def signed(monkeypatch):
    """Every policy must be signed; gives what signs a file."""
    pytest.importorskip("cryptography", reason="cryptography is not installed (dprl[sign])")
    from dprl.policies.base import REQUIRED_KEYS as REQUIRED
    from dprl.policies.signature import SecretKey, require, sign

    monkeypatch.setenv(REQUIRED, "")
    require(str(SIGNING / "test-only.pub"))
    key = SecretKey.read(SIGNING / "test-only.key", str)
    return lambda path: sign(path, key)


def test_a_new_policy_must_be_signed_and_its_signature_may_come_later(tmp_path, signed, capsys):
    path = tmp_path / "p.dprl"
    policy_for("b").save(path)
    signed(path)
    kept = Kept(tmp_path / "kept")
    kept.folder.mkdir()
    kept.take(kept.copy(path))
    app = serve_app(policy_for("b"), token=None, path=str(path), reload=0.02, kept=kept)
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        policy_for("a").save(path)
        until(lambda: numbers(client)['dprl_reloads_total{result="refused"}'])
        assert action(client)[0] == "b"
        assert f"'{path}' has no signature that holds" in capsys.readouterr().err  # not the copy
        assert dprl.load(kept.current()).digest() == policy_for("b").digest()
        signed(path)
        until(lambda: action(client)[0] == "a")
    assert dprl.load(kept.current()).digest() == policy_for("a").digest()  # with its signature
    assert len(list(kept.folder.glob("policy-*"))) == 2  # those not taken are gone


def test_of_the_policies_that_were_kept_the_last_few_stay(tmp_path):
    policy_for("b").save(tmp_path / "p.dprl")
    kept = Kept(tmp_path / "kept")
    kept.folder.mkdir()
    for _ in range(15):
        kept.take(kept.copy(tmp_path / "p.dprl"))
    assert kept.current().is_file()
    assert len(list(kept.folder.glob("policy-*"))) == 10
    with pytest.raises(OSError, match="none"):
        kept.copy(tmp_path / "none.dprl")
    assert len(list(kept.folder.iterdir())) == 11


@pytest.fixture
def later(tmp_path):
    """Makes a service as a process that starts later does, while the file holds another policy."""
    path, kept = tmp_path / "p.dprl", Kept(tmp_path / "kept")
    kept.folder.mkdir()
    kept.count()
    policy_for("b").save(path)
    kept.take(kept.copy(path))
    policy_for("a").save(path)

    def started(begun):
        mine = Kept(kept.folder, begun)
        return serve_app(dprl.load(kept.current()), token=None, path=str(path), kept=mine)

    return kept, started


def test_who_starts_later_leaves_a_file_alone_that_nobody_asked_for(later):
    kept, started = later
    with TestClient(started(kept.done), base_url="http://127.0.0.1:9") as client:
        ready(client)
        time.sleep(0.1)
        assert action(client)[0] == "b"
        assert numbers(client)['dprl_reloads_total{result="done"}'] == 0


def test_who_was_too_late_to_hear_the_signal_follows_it(later):
    kept, started = later
    begun = kept.done
    kept.ask()
    with TestClient(started(begun), base_url="http://127.0.0.1:9") as client:
        ready(client)
        until(lambda: action(client)[0] == "a" and kept.done)  # kept a moment after it answers
    assert (kept.asked, kept.done) == (1, 1)
    assert dprl.load(kept.current()).digest() == policy_for("a").digest()


def test_what_could_not_be_kept_is_not_called_done(later, monkeypatch):
    kept, started = later
    app = started(kept.done)

    def full(*_):
        raise OSError("no space left")

    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        monkeypatch.setattr(Kept, "copy", full)
        kept.ask()
        client.portal.call(app.state.life._hang_up)
        assert action(client)[0] == "a"
        assert (kept.asked, kept.done) == (1, 0)  # who starts now looks at the file
        monkeypatch.undo()


# -- drift ----------------------------------------------------------------------------------------


def test_parts_of_training_add_up():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=500), rng.integers(0, 2, 500), np.full(500, 3.0)])
    log = dprl.from_arrays(
        episode=np.arange(500), state=x, action=["a"] * 500, reward=np.zeros(500),
        feature_names=["level", "flag", "constant"],
    )  # fmt: skip
    level, flag, constant = feature_quantiles(log)
    assert len(level["edges"]) == 9
    assert np.allclose(level["shares"], 0.1, atol=0.01)
    assert flag["edges"] == [0.0, 1.0]
    assert flag["shares"] == [pytest.approx((x[:, 1] == 0).mean(), abs=1e-6),
                              pytest.approx((x[:, 1] == 1).mean(), abs=1e-6), 0.0]  # fmt: skip
    assert (constant["edges"], constant["shares"]) == ([3.0], [1.0, 0.0])


def test_drift_is_counted_against_training():
    log = dprl.from_arrays(
        episode=np.arange(100), state=np.arange(100.0)[:, None], action=["a", "b"] * 50,
        reward=np.zeros(100), feature_names=["x"],
    )  # fmt: skip
    learner = dprl.DPRLContinuous(n_min=1, radius=5.0, gamma=1.0, metric=dprl.Metric(scale="none"))
    policy = learner.fit(log)
    with TestClient(serve_app(policy, token=None), base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.post("/act", json={"states": [{"x": float(v)} for v in (0, 9, 10, 95, 96, 97, 500)]})
        client.post("/explain", json={"state": {"x": 98.0}})
        lines = numbers(client)
    short = policy.digest()[:12]

    def part(number, name="dprl_feature_states_total"):
        return lines.get(f'{name}{{feature="x",part="{number}",policy="{short}"}}', 0)

    assert [part(i) for i in range(1, 11)] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 4]
    assert [part(i, "dprl_feature_training_share") for i in range(1, 11)] == [0.1] * 10
    assert lines['dprl_answers_total{kind="out_of_range"}'] == 1


@pytest.mark.parametrize("given", [None, 3, [], [{}], [{"edges": [1, 0], "shares": [0, 0, 1]}],
                                   [{"edges": ["a"], "shares": [0, 1]}], [{"edges": [1.0], "shares": [1]}]])  # fmt: skip
def test_a_policy_without_parts_is_served_all_the_same(given):
    from dataclasses import replace

    log = dprl.from_arrays(
        episode=np.arange(4), state=np.arange(4.0)[:, None], action=["a", "b"] * 2,
        reward=np.zeros(4), feature_names=["x"],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=1, radius=5.0, gamma=1.0).fit(log)
    policy = replace(policy, provenance={**policy.provenance, "quantiles": given})
    served = serving.Served.of(policy, False, False)
    assert served.parts(np.ones((1, 1)), [{"in_range": True}]) == []


def test_counts_of_several_processes_add_up(tmp_path):
    one, two = (Metrics(["/act"], "d", str(tmp_path)) for _ in range(2))
    for metrics, times in ((one, 2), (two, 3)):
        for _ in range(times):
            metrics.asked("/act", 200, 0.002)
        metrics.answered([{"kind": "defer", "in_range": True}] * times)
        metrics.share()
    (tmp_path / "odd.counts").write_text("{")  # half a line is passed over

    def total(name, **labels):
        return [
            value
            for family in one.families()
            for sample, own, value in family.samples
            if sample == name and labels.items() <= own.items()
        ]

    assert total("dprl_requests_total") == [5.0]
    assert total("dprl_answers_total", kind="defer") == [5.0]
    assert total("dprl_request_seconds_bucket", le="+Inf") == [5.0]
    assert total("dprl_request_seconds_sum") == [pytest.approx(0.01)]


def answered_in(metrics):
    return next(
        value
        for family in metrics.families()
        for sample, own, value in family.samples
        if sample == "dprl_answers_total" and own["kind"] == "defer"
    )


def test_what_was_counted_is_seen_at_once_and_survives_its_process(tmp_path):
    """Nothing waits for a later request, and nothing is lost with a process that is killed."""
    one, two = (Metrics(["/act"], "d", str(tmp_path)) for _ in range(2))
    for count in range(1, 6):
        two.answered([{"kind": "defer", "in_range": True}])
        two.asked("/act", 200, 0.002)
        assert answered_in(one) == count
    del two  # its file stays
    assert answered_in(one) == 5
    assert answered_in(Metrics(["/act"], "d", str(tmp_path))) == 5


def test_a_long_file_of_counts_is_replaced_and_counts_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("dprl.apps.serve.metrics.LONG", 2000)
    one, two = (Metrics(["/act"], "d", str(tmp_path)) for _ in range(2))
    for count in range(1, 201):
        two.answered([{"kind": "defer", "in_range": True}])
        two.share()
        assert answered_in(one) == count
    assert len(list(tmp_path.iterdir())) == 1
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3000


def test_counts_that_could_not_be_written_come_with_the_next_ones(tmp_path, monkeypatch):
    one, two = (Metrics(["/act"], "d", str(tmp_path)) for _ in range(2))
    write = os.write

    def once():
        two.answered([{"kind": "defer", "in_range": True}])
        two.share()

    once()
    monkeypatch.setattr("os.write", lambda handle, data: write(handle, data[: len(data) // 2]))
    once()
    once()
    monkeypatch.undo()
    once()
    assert answered_in(one) == 4


# -- as it is run ---------------------------------------------------------------------------------


def ask(url):
    request = urllib.request.Request(
        f"{url}/act", b'{"states": ["s"]}', {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_workers_share_a_port_a_log_an_audit_and_their_counts(tmp_path):
    policy_for("b").save(tmp_path / "p.dprl")
    extra = ("--no-token", "--workers", 2, "--audit", "audit", "--log", "log")
    with running("serve", "p.dprl", *extra, cwd=tmp_path) as (process, facts):
        url = facts["url"]
        until_started(tmp_path / "audit", 2)
        until_answered(url)
        for _ in range(40):
            assert ask(url)["answers"][0]["action"] == "b"
        assert {changes_counted(url) for _ in range(10)} == {41.0}  # one to see that it answers
        # What processes that were killed had counted stays.
        killed = workers_of(process)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(workers_of(process) - killed) >= 2)
        until_started(tmp_path / "audit", 4)
        until_answered(url)
        assert changes_counted(url) == 42.0
        assert changes_counted(url, "dprl_worker_restarts_total") == 2.0
        # A new policy reaches all of them.
        policy_for("a").save(tmp_path / "p.dprl")
        process.send_signal(signal.SIGHUP)
        until(lambda: {ask(url)["answers"][0]["action"] for _ in range(20)} == {"a"})
        # One that ends is replaced, and starts with the policy taken over last, not with the file.
        (tmp_path / "p.dprl").write_bytes(b"no policy")
        first, _ = workers_of(process)
        os.kill(first, signal.SIGKILL)
        until(lambda: len(workers_of(process) - {first}) >= 2)
        until_started(tmp_path / "audit", 7)  # two of the lines are about the new policy
        until_answered(url)
        assert ask(url)["answers"][0]["action"] == "a"
        # Nor with a policy that lies there already, until somebody asks for it.
        policy_for("b").save(tmp_path / "p.dprl")
        first, _ = workers_of(process)
        os.kill(first, signal.SIGKILL)
        until_started(tmp_path / "audit", 8)
        until_answered(url)
        assert {ask(url)["answers"][0]["action"] for _ in range(40)} == {"a"}
        process.terminate()
        process.communicate()
        assert process.returncode == 0
    assert check_audit(tmp_path / "audit")["torn"] == 0
    answers = [line for line in (tmp_path / "audit").read_text().splitlines() if '"answer"' in line]
    assert len(answers) >= 41


def changes_counted(url, name='dprl_answers_total{kind="change"}'):
    """A count of all processes, as one of them gives it."""
    rows = get(f"{url}/metrics")[1].splitlines()
    return next(float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith(name))


def workers_of(process):
    """Ids of the processes that answer."""
    listed = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "spawn_main"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return {int(word) for word in listed.stdout.split()}


def until_started(audit, number):
    """Wait until so many processes have written to the audit that they begin to answer."""
    until(lambda: audit.exists() and audit.read_text().count('"event":"policy"') >= number)
    time.sleep(0.3)  # they answer a moment later


def until_answered(url):
    def answered():
        with contextlib.suppress(OSError):
            until_ready(url)
            return ask(url)

    until(answered)


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(tmp_path):
    policy_for("b").save(tmp_path / "p.dprl")
    with running("serve", "p.dprl", "--no-token", "--workers", 2, cwd=tmp_path) as (process, facts):
        until_answered(facts["url"])
        workers = workers_of(process)
        process.kill()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))


@pytest.mark.slow
def test_a_real_server_takes_a_new_policy_on_sighup(tmp_path):
    policy_for("b").save(tmp_path / "p.dprl")
    with running("serve", "p.dprl", "--no-token", cwd=tmp_path) as (process, facts):
        url = facts["url"]
        until_ready(url)
        assert ask(url)["answers"][0]["action"] == "b"
        (tmp_path / "p.dprl").write_bytes(b"half a file")
        process.send_signal(signal.SIGHUP)
        while "the policy in the file is not taken over" not in process.stderr.readline():
            assert process.poll() is None
        assert ask(url)["answers"][0]["action"] == "b"
        policy_for("a").save(tmp_path / "p.dprl")
        process.send_signal(signal.SIGHUP)
        until(lambda: ask(url)["answers"][0]["action"] == "a")


def test_workers_that_do_not_stay_end_the_server(monkeypatch, capsys):
    class Dead:
        pid, exitcode = 1, 1

        def start(self):
            pass

        def is_alive(self):
            return False

        def terminate(self):
            pass

        def join(self, seconds):
            pass

    group = run_of._Workers(run_of.Settings("p", None, "127.0.0.1"), None, 2)
    monkeypatch.setattr(group, "spawn", type("S", (), {"Process": lambda self, **how: Dead()})())
    monkeypatch.setattr(run_of.signal, "signal", lambda *given: None)
    monkeypatch.setattr(run_of.time, "sleep", lambda seconds: None)
    assert group.run() == 1
    assert "giving up" in capsys.readouterr().err


def test_a_loop_of_its_own_is_not_needed_before_the_start():
    """An application can be made where no loop runs, and run in another one."""
    app = serve_app(policy_for("b"), token=None)
    assert asyncio.run(app.state.life.reload())  # there is no file: said, not raised


def test_a_process_that_is_starting_does_not_end_by_a_signal(monkeypatch):
    """It inherits that SIGHUP waits; ended so, five in a row would end the service."""
    from dprl.apps.serve import lifecycle

    seen = []

    class Started:
        def __init__(self, **_):
            pass

        def start(self):
            seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    class Ways:
        Process = Started

    workers = lifecycle._Workers(lifecycle.Settings("p", None, "127.0.0.1"), None, 1)
    monkeypatch.setattr(workers, "spawn", Ways)
    workers._start()
    assert signal.SIGHUP in seen[0]
    assert signal.SIGHUP not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
