"""Connections that never finish keep nobody out, and the token comes before the body."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import resource
import socket
import threading
import time

import pytest

import dprl
from conftest import to_log

pytest.importorskip("starlette", reason="starlette is not installed (dprl[serve])")
pytest.importorskip("uvicorn", reason="uvicorn is not installed (dprl[serve])")

import uvicorn

from dprl.apps import connections, web
from dprl.apps.serve.app import serve_app

TOKEN = "a-token-nobody-guesses"
HEAD = b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
NEVER = (
    b"",
    b"GET /healthz HT",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n",
    HEAD + b"Content-Length: 1000000\r\n\r\n{",
    HEAD + b"Authorization: Bearer wrong\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
)
"""Requests that begin and do not end."""


@contextlib.contextmanager
def serving(strangers):
    """A service in a thread of this process, and its port."""
    policy = dprl.DPRLDiscrete(n_min=1, gamma=1.0).fit(to_log([[("s", "a", 0.0)]] * 2))
    sock = web.open_socket("127.0.0.1", 0)
    port, servers = sock.getsockname()[1], []
    real = uvicorn.Server
    with pytest.MonkeyPatch.context() as noting:
        noting.setattr(uvicorn, "Server", lambda c: servers.append(real(c)) or servers[0])
        thread = threading.Thread(
            target=web.run, args=(serve_app(policy, token=TOKEN), sock, strangers), daemon=True
        )
        thread.start()
        while ask(port, "GET", "/healthz")[0] != 200:
            time.sleep(0.01)
    yield port
    servers[0].should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def strangers():
    return connections.Strangers()


@pytest.fixture(scope="module")
def service(strangers):
    with serving(strangers) as port:
        yield port


def ask(port, method, path, body=None, **headers):
    """Status and body of one request on a connection of its own."""
    link = http.client.HTTPConnection("127.0.0.1", port)
    link.request(method, path, body, headers)
    answer = link.getresponse()
    text = answer.read()
    link.close()
    return answer.status, text


def act(port, **headers):
    body = b'{"states": ["s"]}'
    return ask(port, "POST", "/act", body, **{"Content-Type": "application/json"}, **headers)


def begun(port, data):
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(data)
    return link


def all_that_comes(link):
    """What arrives until the other side closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := link.recv(65536):
            parts.append(part)
    link.close()
    return b"".join(parts)


def test_six_hundred_that_never_finish_keep_nobody_out(service, strangers):
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft >= 2048, "the server allows itself more open files, and this is its process"
    before = strangers.cut + len(strangers)
    held = [begun(service, NEVER[i % len(NEVER)]) for i in range(600)]
    try:
        while strangers.cut + len(strangers) - before < 600 - connections.MOST_OF_ONE:
            time.sleep(0.01)
        begin = time.monotonic()
        for _ in range(20):
            assert ask(service, "GET", "/healthz")[0] == 200
            code, text = act(service, Authorization=f"Bearer {TOKEN}")
            assert code == 200
            assert json.loads(text)["answers"]
        # None of the forty waited until a stranger's time was over, however busy the machine is.
        assert time.monotonic() - begin < 20 * connections.SECONDS_A_HEAD
        assert len(strangers) <= connections.MOST_OF_ONE
        assert strangers.cut > 0
    finally:
        for link in held:
            link.close()


def test_who_has_shown_the_token_is_not_cut_off(service, strangers, monkeypatch):
    monkeypatch.setattr(connections, "MOST_OF_ONE", 4)
    kept = http.client.HTTPConnection("127.0.0.1", service)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    kept.request("GET", "/policy", headers=bearer)
    assert kept.getresponse().read()
    first, before = kept.sock, strangers.cut
    held = [begun(service, b"GET /heal") for _ in range(20)]
    while len(strangers) > 4 or strangers.cut < before + 16:
        time.sleep(0.01)
    kept.request("GET", "/policy", headers=bearer)
    assert kept.getresponse().status == 200
    assert kept.sock is first  # the same connection, not a new one
    for link in (*held, kept):
        link.close()


def test_in_all_there_are_no_more_than_so_many():
    class Link:
        def __init__(self, address):
            self.address, self.transport, self.gone = address, self, False

        def abort(self):
            self.gone = True

    book = connections.Strangers()
    links = [Link(f"10.0.{i // 256}.{i % 256}") for i in range(connections.MOST_STRANGERS + 3)]
    for link in links:
        book.come(link)
    assert [link.gone for link in links] == [True] * 3 + [False] * connections.MOST_STRANGERS
    for link in links:
        book.go(link)
    assert len(book) == 0
    assert not book._of


@pytest.mark.slow
def test_a_head_and_a_stranger_have_limited_time(monkeypatch):
    monkeypatch.setattr(connections, "SECONDS_A_HEAD", 0.5)
    monkeypatch.setattr(connections, "SECONDS_A_STRANGER", 1.0)
    with serving(connections.Strangers()) as port:
        for data in (b"", b"GET /healthz HT"):
            assert all_that_comes(begun(port, data)) == b""  # it is closed, and this ends
        # A drop now and then does not help, neither before an answer nor after one.
        for start in (
            b"GET / HTTP/1.1\r\nX: ",
            b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        ):
            link = begun(port, start)
            with contextlib.suppress(ConnectionError):  # until it is closed
                while True:
                    link.sendall(b"x")
                    time.sleep(0.05)
            link.close()
        # With the token a slow body has its own, longer time.
        body = b'{"states": ["s"]}'
        link = begun(port, HEAD + BEARER + b"Content-Length: %d\r\n\r\n" % len(body))
        time.sleep(1.3)
        link.sendall(body)
        assert link.recv(65536).startswith(b"HTTP/1.1 200")
        link.close()


@pytest.mark.parametrize(
    "length", [b"Content-Length: 900000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"]
)
def test_the_token_comes_before_the_body(service, length, monkeypatch):
    monkeypatch.setattr(web, "SECONDS_TO_LINGER", 0.1)
    answer = all_that_comes(begun(service, HEAD + length))  # which ends when it is closed
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer.lower()


def test_a_refusal_is_read_even_if_the_body_is_still_on_its_way(service):
    body = b"x" * 800_000
    status, text = ask(service, "POST", "/act", body, **{"Content-Type": "application/json"})
    assert status == 401
    assert b"no token" in text


def test_no_more_than_the_head_is_read_without_a_token():
    """Within the guard: a body is not asked for before the token was there."""
    asked, sent = [], []

    async def app(scope, receive, send):
        raise AssertionError("reached")

    class Refusal:
        headers = {}  # noqa: RUF012

        async def __call__(self, scope, receive, send):
            sent.append(len(asked))
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no"})

    async def receive():
        asked.append(1)
        return {"type": "http.request", "body": b"x" * 10, "more_body": len(asked) < 3}

    async def send(message):
        sent.append(message["type"])

    guard = web.Guard(
        app, "127.0.0.1", (), 1_000, None, origin=False, enter=lambda *given: Refusal()
    )
    scope = {"type": "http", "method": "POST", "path": "/act",
             "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"30")]}  # fmt: skip
    asyncio.run(guard(scope, receive, send))
    start, body = "http.response.start", "http.response.body"
    assert sent == [0, start, body, body]  # the whole answer, then the rest of the body, then end
    assert len(asked) == 3


def test_a_path_with_another_token_is_refused_by_its_head():
    enter = web.token_in_path("right", lambda *why: why)
    assert enter("/right/", {}) is True
    assert enter("/right/change/x", {}) is True
    for path in ("/wrong/", "//", "/right%2f/", "/righ/verdict", "/\udc80/verdict"):
        assert enter(path, {})[0] == 403
    for path in ("/", "", "right", "*", "/right", "http://x/right/"):
        assert enter(path, {}) is False  # no page is there; a body is not read


@pytest.mark.parametrize("path", ["/healthz", "/policy"])
@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//]", "http://[x]"])
def test_an_origin_that_is_no_address_is_a_400(service, path, origin):
    status, text = ask(
        service, "GET", path, Origin=origin, Host="127.0.0.1", Authorization=f"Bearer {TOKEN}"
    )
    assert status == 400
    assert b"Origin is no address" in text


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: \xb2\r\n\r\n",
        HEAD + BEARER + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_not_http_is_a_400(service, raw, capfd):
    answer = all_that_comes(begun(service, raw))
    assert answer.startswith(b"HTTP/1.1 400")
    assert ask(service, "GET", "/healthz")[0] == 200
    assert capfd.readouterr().err == ""
