"""Tokens with names: who asked is written down, and a token never is."""

from __future__ import annotations

import json
import os
import signal

import pytest
from waiting import until

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

from starlette.testclient import TestClient
from test_serve import ready
from test_servers import get, running, until_ready

from dprl.apps.serve import tokens as who
from dprl.apps.serve.app import serve_app
from dprl.apps.serve.audit import Audit, Journal, Records
from dprl.apps.serve.tokens import Tokens

WARD, LAB, NEW = "w" * 20, "l" * 20, "n" * 20
POLICY = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(
    to_log([[("s", "b", 1.0)]] * 3 + [[("s", "a", 0.0)]] * 4)
)


def written(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def path(tmp_path):
    return written(tmp_path / "tokens.toml", f'ward-7 = "{WARD}"\n"lab.x" = "{LAB}"\n')


@pytest.fixture
def client(tmp_path, path):
    records = Records(Journal(str(tmp_path / "log")), Audit(tmp_path / "audit"))
    POLICY.save(tmp_path / "p.dprl")
    app = serve_app(POLICY, token=Tokens.read(path), records=records, path=str(tmp_path / "p.dprl"))
    with TestClient(app, base_url="http://127.0.0.1:9") as client:
        ready(client)
        client.life = app.state.life
        yield client


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def ask(client, token, name="r"):
    bearer = {"Authorization": f"Bearer {token}", "X-Request-ID": name}
    return client.post("/act", json={"states": ["s"]}, headers=bearer).status_code


def test_log_and_audit_say_who_asked_and_never_the_token(client, tmp_path):
    assert ask(client, WARD, "one") == 200
    assert ask(client, LAB, "two") == 200
    assert ask(client, "x" * 20, "three") == 401
    client.__exit__(None, None, None)
    audit, log = entries(tmp_path / "audit"), entries(tmp_path / "log")
    for lines in (audit, log):
        callers = {e["request"]: e["caller"] for e in lines if e["event"] == "answer"}
        assert callers == {"one": "ward-7", "two": "lab.x"}
    asked = {e["request"]: e for e in log if e["event"] == "request"}
    assert (asked["one"]["caller"], asked["two"]["caller"]) == ("ward-7", "lab.x")
    assert "caller" not in asked["three"]
    assert next(e for e in audit if e["event"] == "callers")["callers"] == ["lab.x", "ward-7"]
    text = (tmp_path / "audit").read_text() + (tmp_path / "log").read_text()
    assert not any(token in text for token in (WARD, LAB, "x" * 20))


def test_every_token_is_compared_whole(path, monkeypatch):
    """Not until the first that fits: the time would show which one is nearly right."""
    compared = []
    monkeypatch.setattr(who, "same", lambda given, own: compared.append(own) or given == own)
    tokens = Tokens.read(path)
    assert tokens.caller(WARD) == "ward-7"
    assert tokens.caller("nobody's") is None
    assert compared == [WARD, LAB] * 2
    assert WARD not in repr(tokens)


def test_tokens_are_read_again_and_a_bad_file_changes_nothing(client, path, tmp_path, capsys):
    written(path, f'lab = "{LAB}"\nnew = "{NEW}"\n')
    assert client.portal.call(client.life.reload_tokens) == ""
    assert (ask(client, WARD), ask(client, LAB), ask(client, NEW)) == (401, 200, 200)
    for text, mode in ((f'new = "{WARD}"', 0o644), ('new = "short"', 0o600), ("new =", 0o600)):
        written(path, text, mode)
        assert client.portal.call(client.life.reload_tokens)
        assert "the tokens in the file are not taken over" in capsys.readouterr().err
        assert (ask(client, WARD), ask(client, LAB), ask(client, NEW)) == (401, 200, 200)
    counted = client.get("/metrics", headers={"Authorization": f"Bearer {LAB}"}).text
    assert "dprl_tokens_refused_total 3.0" in counted
    changed = [e["callers"] for e in entries(tmp_path / "audit") if e["event"] == "callers"]
    assert changed == [["lab.x", "ward-7"], ["lab", "new"]]


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (f'a = "{WARD}"', 0o640, "can be read or changed by others"),
        (f'a = "{WARD}"', 0o606, "can be read or changed by others"),
        ("", 0o600, "names 0 callers"),
        (f"a = {WARD}", 0o600, "are no TOML"),
        ('a = "short"', 0o600, "the token of 'a' must have at least 16"),
        (f'a = "{WARD} x"', 0o600, "the token of 'a' must have"),
        ("a = 1234567890123456789", 0o600, "the token of 'a' must have"),
        (f'"a b" = "{WARD}"', 0o600, "the name of a caller has"),
        (f'"" = "{WARD}"', 0o600, "the name of a caller has"),
        (f'a = "{WARD}"\nb = "{WARD}"', 0o600, "'a' and 'b' have the same token"),
        (f'[a]\nb = "{WARD}"', 0o600, "the token of 'a' must have"),
        (f'a = "{WARD}"\na = "{LAB}"', 0o600, "are no TOML"),
        ("x = 1 #" + "x" * (1 << 20), 0o600, "is too large"),
        ("a = " + "[" * 100_000, 0o600, "are no TOML"),
    ],
)  # fmt: skip
def test_files_that_are_refused(tmp_path, text, mode, why, monkeypatch):
    path = written(tmp_path / "t", text, mode)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)  # also where the tests are run by root
    monkeypatch.setattr(os, "fstat", belonging_to(4711))
    with pytest.raises(dprl.ParameterError, match=why) as refused:
        Tokens.read(path)
    assert WARD not in str(refused.value)
    assert LAB not in str(refused.value)


def belonging_to(user):
    """`os.fstat`, as if the file belonged to somebody."""
    fstat = os.fstat

    def stat(handle):
        facts = list(fstat(handle))
        facts[4] = user
        return os.stat_result(facts)

    return stat


def test_whose_the_file_is(tmp_path, monkeypatch):
    path = written(tmp_path / "t", f'a = "{WARD}"', 0o440)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with monkeypatch.context() as of_root:  # root may hand a secret to the service's group
        of_root.setattr(os, "fstat", belonging_to(0))
        assert Tokens.read(path).names == ["a"]
    path.chmod(0o600)
    monkeypatch.setattr(os, "fstat", belonging_to(4712))
    with pytest.raises(dprl.ParameterError, match="belongs to another user"):
        Tokens.read(path)


def test_a_process_that_starts_later_has_the_tokens_that_were_read_last(path, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    first = Tokens.read(path, str(shared))
    written(path, f'new = "{NEW[:-2]}\\\\x"')
    first.reload()
    written(path, "broken")
    later = Tokens.read(path, str(shared))
    assert (later.caller(WARD), later.caller(NEW[:-2] + "\\x")) == (None, "new")
    assert (shared / "tokens.toml").stat().st_mode & 0o777 == 0o600
    with pytest.raises(dprl.ParameterError):
        later.reload()
    with pytest.raises(dprl.ParameterError):
        Tokens.read(path)
    written(path, f'staged = "{WARD}"')  # nobody has asked for it yet
    assert Tokens.read(path, str(shared)).names == ["new"]


def test_tokens_that_cannot_be_kept_leave_no_older_ones_behind(path, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    first = Tokens.read(path, str(shared))
    written(path, f'new = "{NEW}"')

    def full(*_, **__):
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("dprl.apps.serve.tokens.tempfile.mkstemp", full)
        first.reload()
    assert list(shared.iterdir()) == []
    later = Tokens.read(path, str(shared))
    assert (later.caller(WARD), later.caller(NEW)) == (None, "new")


@pytest.mark.slow
def test_tokens_change_on_sighup(tmp_path, path):
    POLICY.save(tmp_path / "p.dprl")
    extra = ("--tokens", "tokens.toml", "--workers", 2)
    with running("serve", "p.dprl", *extra, cwd=tmp_path) as (process, facts):
        assert facts["token"] is None
        until_ready(facts["url"])

        def code(token):
            return get(f"{facts['url']}/policy", Authorization=f"Bearer {token}")[0]

        assert (code(WARD), code(LAB), code(NEW)) == (200, 200, 401)
        written(path, f'new = "{NEW}"\n')
        process.send_signal(signal.SIGHUP)
        until(lambda: {(code(WARD), code(NEW)) for _ in range(10)} == {(401, 200)})
