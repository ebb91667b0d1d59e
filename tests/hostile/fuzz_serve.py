"""The service fuzzed: half of the requests within the process, half as bytes over sockets.

`python tests/hostile/fuzz_serve.py 50000` asks so many; a seed makes them the same again. Whatever
is sent, there may be no status 500 (nor any other of 5xx but 503), nothing on the error log, and
afterwards the service must answer as before.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import random
import select
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

import dprl

TOKEN = "a-token-nobody-guesses"
CARD = "4e0a3a1e-3283-4575-ab82-028d55fe2719"
PATHS = ("/act", "/explain", "/policy", "/healthz", "/livez", "/readyz", "/metrics",
         "/openapi.json", "/cds-services", "/cds-services/f", "/cds-services/f/feedback")  # fmt: skip
ODD_PATHS = ("/", "//", "/act/", "/act?x=%ff", "/%", "/%2e%2e/act", "*", "http://[", "http://x/act",
             "/act#x", "/\u00e9", "/act;x", "/" + "a" * 3000, "/cds-services/../act", "")  # fmt: skip
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "X")
ODD = (
    "", "http://[", "http://[::1", "null", "//]", "http://127.0.0.1:9", "\u00e9", "x" * 5000, "*",
    "a, b", "0", "-1", "1e9", "chunked", "gzip", "identity, chunked", "application/json; charset=x",
    "text/plain", "Bearer", f"Bearer {TOKEN}", f"bearer  {TOKEN} ", "Basic eDp5", "100-continue",
    "keep-alive", "close", "upgrade", "websocket", "127.0.0.1", "evil.example", "[::1]", "[", ":",
    "localhost:99999", "q=;;,", "application/openmetrics-text; version=9", "\u00b2", "9" * 30,
)  # fmt: skip
HEADERS = ("Host", "Origin", "Authorization", "Content-Type", "Content-Length", "Transfer-Encoding",
           "Sec-Fetch-Site", "X-Request-ID", "Accept", "Expect", "Connection", "Upgrade", "Cookie",
           "X-Forwarded-For", "Range")  # fmt: skip


def observation(code: str, value: float) -> dict:
    return {
        "resourceType": "Observation", "status": "final",
        "code": {"coding": [{"system": "s", "code": code}]},
        "subject": {"reference": "Patient/1"}, "effectiveDateTime": "2026-01-01T00:00:00Z",
        "valueQuantity": {"value": value, "code": "u", "system": "http://unitsofmeasure.org"},
    }  # fmt: skip


BODIES = (
    {"states": [{"x": 0.5, "y": 0.5}]}, {"state": {"x": 0.5, "y": 0.5}},
    {"states": [{"x": 0.1, "y": 0.2}] * 20},
    {
        "hook": "patient-view", "hookInstance": CARD,
        "context": {"userId": "Practitioner/1", "patientId": "1"},
        "prefetch": {
            "x": {"resourceType": "Bundle", "entry": [{"resource": observation("x", 0.5)}]},
            "y": observation("y", 0.5),
        },
    },
    {"feedback": [
        {"card": CARD, "outcome": "accepted", "acceptedSuggestions": [{"id": CARD}],
         "outcomeTimestamp": "2021-12-11T10:05:31Z"},
        {"card": CARD, "outcome": "overridden", "outcomeTimestamp": "2021-12-11T10:05:31Z",
         "overrideReason": {"reason": {"code": "c", "system": "s"}, "userComment": "u"}},
    ]},
)  # fmt: skip
VALUES = (
    None, True, False, 0, -1, 1e308, -1e308, 10**400, 0.1, "", "x", "\ud800", "\x00", "é" * 300, [],
    {}, [None], {"x": None}, [[[[]]]], {"": 1}, "9" * 500, 2**63, -0.0, 5e-324, "2021-13-99T99:99Z",
    {"resourceType": "Bundle"}, ["x"] * 50, {"x": {"x": {"x": 1}}}, "\u202e", "<b>",
)  # fmt: skip
RAW = (b"", b"{", b"[" * 3000, b"\xff\xfe", b"NaN", b'{"states":[NaN]}', b'{"a":1,"a":2}', b"null",
       b'{"states":[{"x":1e999,"y":0}]}', b'"' + b"\\u0000" * 50 + b'"')  # fmt: skip


def mutated(rng: random.Random, value: object) -> object:
    """The value with a part of it replaced, removed or repeated."""
    if rng.random() < 0.15 or not isinstance(value, dict | list) or not value:
        return rng.choice(VALUES)
    if isinstance(value, dict):
        name = rng.choice(list(value))
        kept = dict(value)
        kind = rng.random()
        if kind < 0.1:
            del kept[name]
        elif kind < 0.2:
            kept[rng.choice(("more", "", "x", "\u00e9"))] = rng.choice(VALUES)
        else:
            kept[name] = mutated(rng, value[name])
        return kept
    place = rng.randrange(len(value))
    return [*value[:place], mutated(rng, value[place]), *value[place + 1 :]]


def body(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return rng.choice((*RAW, rng.randbytes(rng.randrange(200))))
    value: object = rng.choice(BODIES)
    for _ in range(rng.randrange(4)):
        value = mutated(rng, value)
    try:
        return json.dumps(value).encode()
    except ValueError:
        return b"{}"


def request(rng: random.Random) -> tuple[str, str, list[tuple[str, str]], bytes]:
    """Method, path, headers and body."""
    path = rng.choice(PATHS if rng.random() < 0.85 else ODD_PATHS)
    posts = path in ("/act", "/explain", "/cds-services/f", "/cds-services/f/feedback")
    method = ("POST" if posts else "GET") if rng.random() < 0.85 else rng.choice(METHODS)
    headers = [("Host", "127.0.0.1"), ("Content-Type", "application/json")]
    if rng.random() < 0.9:
        headers.append(("Authorization", f"Bearer {TOKEN}"))
    more = rng.choice((0, 0, 0, 1, 2))
    headers += [(rng.choice(HEADERS), rng.choice(ODD)) for _ in range(more)]
    return method, path, headers, body(rng) if posts or rng.random() < 0.2 else b""


def raw(rng: random.Random) -> bytes:
    """A request as bytes; sometimes no request at all."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(1, 300))
    method, path, headers, data = request(rng)
    if data and rng.random() < 0.9:
        headers.append(("Content-Length", str(len(data))))
    elif data:
        headers.append(("Transfer-Encoding", "chunked"))
        data = b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"
    lines = [f"{method} {path} HTTP/1.{rng.choice('1110')}", *(f"{k}: {v}" for k, v in headers)]
    whole = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + data
    kind = rng.random()
    if kind < 0.1:  # a few bytes are others
        changed = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    if kind < 0.15:
        return whole[: rng.randrange(len(whole))]
    return whole + whole if kind < 0.2 else whole


@contextlib.contextmanager
def service(folder: Path):
    """The application with everything switched on, a port that it listens on, and its server."""
    import uvicorn

    from dprl.apps.serve.app import serve_app
    from dprl.apps.serve.audit import Audit, Journal, Records
    from dprl.apps.serve.hooks import Hooks
    from dprl.apps.web import open_socket, run

    rng = np.random.default_rng(0)
    log = dprl.from_arrays(
        episode=np.arange(200), state=rng.uniform(size=(200, 2)), reward=rng.uniform(size=200),
        action=np.where(rng.uniform(size=200) < 0.3, "a", "b"), feature_names=["x", "y"],
    )  # fmt: skip
    policy = dprl.DPRLContinuous(n_min=3, radius=0.2, gamma=1.0).fit(log)
    hooks = Hooks.of({
        "id": "f", "title": "t", "description": "d",
        "features": {
            name: {"code": f"s|{name}", "unit": "u", "max_age": "any"} for name in ("x", "y")
        },
    })  # fmt: skip
    records = Records(Journal(str(folder / "log")), Audit(folder / "audit"))
    app = serve_app(policy, token=TOKEN, records=records, hooks=hooks)
    sock = open_socket("127.0.0.1", 0)
    port, servers, real = sock.getsockname()[1], [], uvicorn.Server
    uvicorn.Server = lambda config: servers.append(real(config)) or servers[0]
    thread = threading.Thread(target=run, args=(app, sock), daemon=True)
    try:
        thread.start()
        while not app.state.metrics.ready:
            time.sleep(0.01)
        yield app, port
    finally:
        uvicorn.Server = real
        servers[0].should_exit = True
        thread.join(20)


class Errors(logging.Handler):
    """Keeps what is written to the error log."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def by_sockets(port: int, rng: random.Random, requests: int) -> Counter:
    """Send so many requests as bytes, 32 connections at a time; the statuses that came back."""
    codes: Counter = Counter()
    for begin in range(0, requests, 32):
        links = []
        for _ in range(min(32, requests - begin)):
            link = socket.create_connection(("127.0.0.1", port), timeout=5)
            with contextlib.suppress(OSError):
                link.sendall(raw(rng))
            links.append(link)
        waiting = set(links)
        while waiting and (ready := select.select(list(waiting), [], [], 0.2)[0]):
            for link in ready:
                waiting.discard(link)
                with contextlib.suppress(OSError):
                    start = link.recv(65536)[:12]
                    codes[start[9:12].decode("latin-1") if start else "closed"] += 1
        codes["no answer"] += len(waiting)
        for link in links:
            link.close()
    return codes


def in_process(app: object, rng: random.Random, requests: int) -> Counter:
    """Send so many requests to the application itself, without a parser of HTTP in between."""
    from starlette.testclient import TestClient

    codes: Counter = Counter()
    client = TestClient(app, base_url="http://127.0.0.1:9")  # the server runs already
    for _ in range(requests):
        method, path, headers, data = request(rng)
        sent = [(k, v.encode("utf-8", "surrogatepass")) for k, v in headers]
        path = path if path.startswith("/") else "/" + path
        try:
            answer = client.request(method, path, headers=sent, content=data)
        except (UnicodeError, ValueError) as error:  # the client itself refuses to send it
            if "invalid" not in type(error).__name__.lower():
                raise
            codes["not sent"] += 1
            continue
        codes[str(answer.status_code)] += 1
    return codes


def main(requests: int = 50_000, seed: int = 0) -> dict[str, int]:
    """Ask so many times; an AssertionError says what went wrong.

    Args:
        requests: Number of requests.
        seed: Seed of what is asked.

    Returns:
        The number of answers by status.
    """
    rng, errors = random.Random(seed), Errors()
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    for logger in loggers:
        logger.addHandler(errors)
    try:
        with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as (app, port):
            codes = in_process(app, rng, requests // 2)
            codes += by_sockets(port, rng, requests - requests // 2)
            metrics = app.state.metrics
            wrong = {k: n for k, n in metrics.mine.counts.items()
                     if k[0] == "dprl_requests" and k[2] >= "500" and k[2] != "503"}  # fmt: skip
            assert not wrong, wrong
            # By the server itself: another event loop beside it would wait for it in vain.
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            bearer = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request("POST", "/act", json.dumps(BODIES[0]), bearer)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            connection.close()
            from dprl.apps.serve.audit import check_audit

            assert check_audit(Path(folder) / "audit")["torn"] == 0
    finally:
        for logger in loggers:
            logger.removeHandler(errors)
    assert not errors.lines, f"{len(errors.lines)} errors, the first: {errors.lines[0][:3000]}"
    assert not any(code.startswith("5") and code != "503" for code in codes), codes
    return dict(sorted(codes.items()))


if __name__ == "__main__":
    begun = time.monotonic()
    print(main(*map(int, sys.argv[1:3])), f"{time.monotonic() - begun:.0f} s")
