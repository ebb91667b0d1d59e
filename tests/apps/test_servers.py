"""dprl review and dprl serve as they are run: processes, ports, signals, files."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from judging import judge_first

import dprl
from dprl.apps.cli.main import _run
from dprl.apps.review.verdicts import Verdicts

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from dprl.apps.web import open_socket

MAIN = "from dprl.apps.cli.main import main; main()"


@contextmanager
def running(command, *arguments, cwd, **env):
    """A command as a process, and what it announced."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, command, *map(str, arguments), "--port", "0", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, "XDG_RUNTIME_DIR": str(cwd), **env},
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        facts = json.loads(line)
        if facts.get("token_file"):  # standard output is no terminal here
            facts["token"] = Path(facts["token_file"]).read_text()
        yield process, facts
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def demo(tmp_path, visits):
    """A policy file with changes and the log it is looked at by."""
    path, columns = visits
    dprl.DPRLDiscrete(n_min=20, gamma=0.5).fit(dprl.read(path, **columns)).save(tmp_path / "p.dprl")
    return tmp_path, path


def get(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def until_ready(url):
    while get(f"{url}/healthz")[0] != 200:
        time.sleep(0.02)


def test_serve_answers_and_stops_when_told(demo):
    folder, _ = demo
    with running("serve", "p.dprl", cwd=folder) as (process, facts):
        url, token = facts["url"], facts["token"]
        # Standard output may be kept as a log: the token is in a private file while it serves.
        path = Path(facts["token_file"])
        assert path.parent.parent == folder
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert len(token) >= 32
        assert urlsplit(url).hostname == "127.0.0.1"
        until_ready(url)
        bearer = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{url}/act", b'{"states": ["mild"]}', bearer)
        with urllib.request.urlopen(asked) as answer:
            assert json.load(answer)["answers"][0]["kind"] in ("change", "confirmation", "defer")
        process.terminate()
        out, err = process.communicate()
        assert process.returncode in (0, -signal.SIGTERM)
        assert token not in out
        assert err == "warning: nobody has reviewed this policy; `dprl review` is for that.\n"
        assert not path.parent.exists()


def test_requests_under_way_are_finished_before_it_stops(demo):
    folder, _ = demo
    with running("serve", "p.dprl", "--no-token", cwd=folder) as (process, facts):
        until_ready(facts["url"])
        body = b'{"states": ["mild"]}'
        slow = http.client.HTTPConnection(urlsplit(facts["url"]).netloc)
        slow.putrequest("POST", "/act")
        slow.putheader("Content-Type", "application/json")
        slow.putheader("Content-Length", str(len(body)))
        slow.putheader("Expect", "100-continue")
        slow.endheaders()
        assert slow.sock.recv(4096).startswith(b"HTTP/1.1 100")  # it waits for the body
        slow.send(body[:5])
        process.terminate()
        time.sleep(0.3)
        slow.send(body[5:])
        assert json.load(slow.getresponse())["answers"]
        slow.close()
        process.communicate()


def test_small_answers_do_not_wait_for_nagle():
    """A listening socket that is not named as TCP gives connections that wait 40 ms."""
    found = []

    async def look():
        def met(reader, writer):
            sock = writer.get_extra_info("socket")
            found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = open_socket("127.0.0.1", 0)
        async with await asyncio.start_server(met, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            await reader.read()
            writer.close()
            await writer.wait_closed()

    asyncio.run(look())
    assert found == [1]


def test_the_token_may_come_from_the_environment_and_is_then_not_printed(demo):
    folder, _ = demo
    with running("serve", "p.dprl", cwd=folder, DPRL_TOKEN="t" * 20) as (_, facts):
        assert facts["token"] is None
        until_ready(facts["url"])
        assert get(f"{facts['url']}/policy", Authorization="Bearer " + "t" * 20)[0] == 200
        assert get(f"{facts['url']}/policy")[0] == 401


def test_a_new_token_that_no_file_can_hold_is_refused(demo, capsys, monkeypatch):
    folder, _ = demo
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))

    def full(**how):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dprl.apps.serve.tokens.tempfile.mkdtemp", full)
    assert _run(["serve", "p.dprl", "--port", "0", "--audit", "a"]) == 1
    err = capsys.readouterr().err
    assert "DPRL_TOKEN, or name a file with --tokens" in err
    assert len(err.splitlines()) == 3
    assert sorted(os.listdir(folder)) == before


@pytest.mark.slow
def test_other_addresses_than_loopback_are_warned_of(demo):
    folder, _ = demo
    with running("serve", "p.dprl", "--host", "0.0.0.0", cwd=folder) as (process, _):
        process.terminate()
        assert "not on loopback" in process.communicate()[1]


def test_settings_that_are_refused(demo, capsys, monkeypatch):
    folder, log = demo
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = str(taken.getsockname()[1])
    review = ["review", "p.dprl", "--log", str(log)]
    for tokens, said in [
        (["serve", "p.dprl", "--no-token", "--host", "0.0.0.0"], "--no-token is for loopback"),
        (["serve", "p.dprl", "--port", port], "cannot listen on 127.0.0.1"),
        (["serve", "p.dprl", "--port", "99999"], "cannot listen on 127.0.0.1"),
        (
            ["serve", "p.dprl", "--body-limit", "0"],
            "--body-limit must be a whole number, at least 1",
        ),
        (["serve", "none.dprl"], "there is no policy file"),
        (["serve", "p.dprl", "--workers", "0"], "--workers must be a whole number, from 1 to 256"),
        (["serve", "p.dprl", "--reload", "0"], "--reload must be 0.1 to 86,400 seconds; got 0"),
        (["serve", "p.dprl", "--reload", "nan"], "--reload must be 0.1 to 86,400 seconds"),
        (["serve", "p.dprl", "--audit", "p.dprl"], "'p.dprl' would be overwritten"),
        (["serve", "p.dprl", "--log", "p.dprl"], "'p.dprl' would be overwritten"),
        (["serve", "p.dprl", "--log", "x", "--audit", "./x"], "name the same file"),
        (["serve", "p.dprl", "--log", "no/log"], "the log cannot be written to 'no/log'"),
        (["serve", "p.dprl", "--audit", "no/audit"], "the audit cannot be kept in 'no/audit'"),
        (["serve", "p.dprl", "--log", "x", "--audit", "no/audit"], "the audit cannot be kept"),
        (["serve", "p.dprl", "--cds", "x.toml"], "--cds needs --audit"),
        (["serve", "p.dprl", "--tokens", "x", "--no-token"], "--tokens and --no-token are both"),
        (["serve", "p.dprl", "--tokens", "x"], "the tokens in 'x' cannot be read"),
        (["serve", "p.dprl", "--tokens", "p.dprl", "--log", "p.dprl"], "would be overwritten"),
        (["serve", "p.dprl", "--cds", "x.toml", "--audit", "x"], "cannot read 'x.toml'"),
        ([*review, "--needs", "0"], "--needs must be a whole number, at least 1"),
        ([*review, "--out", "p.dprl"], "cannot be written to 'p.dprl'"),
        ([*review, "--out", "no/where.dprl"], "cannot be written to"),
        (["review", "p.dprl", "--log", "none.csv"], "none.csv"),
        ([*review, "--verdicts", str(log)], "would be overwritten"),
    ]:
        assert _run(tokens) == 1
        assert said in capsys.readouterr().err
    assert sorted(os.listdir(folder)) == before
    Path("edited").write_text('{"event":"answer","chain":"' + "0" * 64 + '"}\n')
    assert _run(["serve", "p.dprl", "--audit", "edited"]) == 1
    assert "'edited' was changed by other hands" in capsys.readouterr().err
    monkeypatch.setenv("DPRL_TOKEN", "short")
    assert _run(["serve", "p.dprl"]) == 1
    assert "at least 16 characters" in capsys.readouterr().err
    assert _run(["serve", "p.dprl", "--tokens", "x"]) == 1
    assert "--tokens and the environment variable DPRL_TOKEN are both" in capsys.readouterr().err
    taken.close()


def test_what_a_settings_file_has_written_down_is_said(demo, capsys, monkeypatch):
    folder, _ = demo
    monkeypatch.chdir(folder)
    Path("dprl.toml").write_text(
        '[serve]\nlog = "no/log"\nlog-states = true\naudit = "no/audit"\ncds = "c.toml"\n'
    )
    assert _run(["serve", "p.dprl"]) == 1
    err = capsys.readouterr().err
    for line in ("--log: no/log", "--log-states: True", "--audit: no/audit", "--cds: c.toml"):
        assert f"dprl.toml in this folder sets {line}" in err


def test_without_the_extra_it_says_what_to_install(demo, capsys, monkeypatch):
    folder, log = demo
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for tokens in (["serve", "p.dprl"], ["review", "p.dprl", "--log", str(log)]):
        assert _run(tokens) == 1
        assert "pip install 'dprl[serve]'" in capsys.readouterr().err


def test_export_without_a_page(demo, capsys, monkeypatch):
    folder, log = demo
    monkeypatch.chdir(folder)
    export = ["review", "p.dprl", "--log", str(log), "--export"]
    before = sorted(os.listdir(folder))
    assert _run(export) == 1
    err = capsys.readouterr().err
    assert "nobody has judged a change of this policy" in err
    assert len(err.splitlines()) == 3
    assert sorted(os.listdir(folder)) == before
    with monkeypatch.context() as nobody:
        nobody.setattr(Verdicts, "add", lambda *given: None)
        judge_first("p.dprl", log)
    assert Path("p.review.sqlite").exists()
    assert _run(export) == 1  # a file without verdicts is no review, either
    assert "no verdict in 'p.review.sqlite'" in capsys.readouterr().err
    assert not Path("approved.dprl").exists()
    judge_first("p.dprl", log, "disagree")
    assert _run([*export, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["approved"], said["verdicts"]) == ([], 1)
    limited = dprl.load("approved.dprl")
    assert limited.summary()["decision_points"] == 0
    assert Path("approved-audit.csv").read_text().startswith('"id","time_utc","reviewer"')
    assert _run(export) == 0
    assert "0 of 1 change approved → approved.dprl" in capsys.readouterr().out
    # What no reviewer agreed with is not served where an approval is required, nor what is newer.
    serve = ["serve", "approved.dprl", "--port", "0", "--require-approved", "approved-audit.csv"]
    assert _run(serve) == 1
    assert "the review approved no change" in capsys.readouterr().err
    assert _run(["serve", "p.dprl", *serve[2:]]) == 1
    assert "nobody has approved this policy" in capsys.readouterr().err


@pytest.mark.slow
def test_features_are_reviewed_by_the_columns_the_policy_knows(tmp_path, capsys, monkeypatch):
    from dataclasses import replace

    monkeypatch.chdir(tmp_path)
    world, columns = dprl.envs.PointMass(), {"episode": "stay", "action": "drug", "reward": "score",
                                             "time": "hour", "ended": "end"}  # fmt: skip
    for name, seed in (("train", 1), ("test", 2)):
        dprl.write(replace(world.sample(80, seed=seed), columns=columns), f"{name}.parquet")
    tokens = ["fit", "train.parquet", "--state", "x", "--state", "y", "--radius", "0.1", "--scale",
              "none", "--n-min", "5", "--gamma", "0.97", "--cut", "terminal", "--out", "p.dprl"]  # fmt: skip
    tokens += [t for k, v in columns.items() for t in (f"--{k}", v)]
    assert _run(tokens) == 0
    capsys.readouterr()
    judge_first("p.dprl", "test.parquet")
    assert _run(["review", "p.dprl", "--log", "test.parquet", "--export", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] > 0
    # Regions come from the log: verdicts on another log's are refused.
    assert _run(["review", "p.dprl", "--log", "train.parquet", "--export"]) == 1
    assert "verdicts on another log" in capsys.readouterr().err


def test_a_policy_that_knows_no_columns_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = dprl.envs.care_pathway().sample(100, seed=1)
    dprl.DPRLDiscrete(n_min=5, gamma=1.0).fit(log).save("p.dprl")
    assert _run(["review", "p.dprl", "--log", "x.csv"]) == 1
    assert "does not say which columns" in capsys.readouterr().err
