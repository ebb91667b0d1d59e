"""What both servers share: which requests they accept, and how they run.

A server binds to loopback unless told otherwise, and asks for its token. Besides the token:

* The Host header must name this machine: a loopback name, a bare address, or a name that was given.
  A page elsewhere that points a name of its own at us (DNS rebinding) still sends its own name.
* A request that says it comes from a page (Origin, Sec-Fetch-Site) must come from one of ours.
* The token comes before the body: of a request without it nothing more than the head is read.
* Bodies are limited in size and in the time they may take; so are heads, and connections without a
  token (`dprl.apps.connections`).
* Pages may load nothing from elsewhere, run no script, and not be shown in a frame.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dprl._core.optional import needed
from dprl.errors import ParameterError

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from dprl.apps.connections import Strangers


SECONDS_A_BODY = 20.0
"""Seconds that a request may take to send its body."""
SECONDS_TO_LINGER = 1.0
"""Seconds for which the body of a refused request is read and thrown away. Closing at once would
reset the connection, and the refusal could be lost."""
TRUSTED = "dprl.trusted"
"""Key in an ASGI scope: a function to be called once a request has shown the token."""

CALLER = "dprl.caller"
"""Key in an ASGI scope: the name of whose token the request has, where tokens have names."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not no-referrer: with it browsers send 'Origin: null' even to ourselves.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def new_token() -> str:
    """A random token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal; the time taken does not show where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


class Guard:
    """Wraps an ASGI application and passes on only the requests that are allowed.

    Args:
        app: The application.
        host: The address the server is bound to.
        names: Further host names that the server may be called by.
        limit: Largest size of a body, in bytes.
        refuse: Makes the response to a refused request from its status, what is wrong and what to
            do.
        origin: Whether a POST must state that it comes from one of our own pages.
        enter: Looks for the token, given the path and the headers: True where it is there, or
            the name of whose it is; False where this path needs none (a body is then not read),
            else the refusal.
        streams: Whether the application reads the body of such a request itself, part by part.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        names: Iterable[str],
        limit: int,
        refuse: Callable[[int, str, str], Response],
        origin: bool,
        enter: Callable[[str, Mapping[str, str]], Response | bool | str],
        streams: Callable[[str, Mapping[str, str]], bool] = lambda *_: False,
    ) -> None:
        self.streams = streams
        self.app, self.limit, self.refuse, self.origin = app, limit, refuse, origin
        self.enter = enter
        self.loopback = is_loopback(host)
        self.names = {host.lower(), "localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        coming = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
        send = _adding_headers(send)

        async def refuse(refusal: Response) -> None:
            if coming:
                refusal.headers["Connection"] = "close"
            await refusal(scope, receive, _lingering(send, receive) if coming else send)

        wrong = self._wrong(scope["method"], headers)
        if wrong is not None:
            await refuse(self.refuse(*wrong))
            return
        entered = self.enter(scope["path"], headers)
        if not isinstance(entered, bool | str):
            await refuse(entered)
            return
        if isinstance(entered, str):
            scope[CALLER] = entered
        if entered:
            scope.get(TRUSTED, _nothing)()
        body: bytes | None = b""
        if not entered and coming:
            send = _adding_headers(send, {"Connection": "close"})
        elif self.streams(scope["path"], headers):
            await self.app(scope, receive, _adding_headers(send, {"Connection": "close"}))
            return
        elif entered:
            try:
                async with asyncio.timeout(SECONDS_A_BODY):
                    body = await self._body(headers, receive)
            except ConnectionError:  # broken off midway: half a request is not answered
                return
            except TimeoutError:
                late = self.refuse(
                    408, "the request's body did not arrive in time.", "Send it again."
                )
                late.headers["Connection"] = "close"
                await late(scope, receive, send)
                return
        if body is None:
            do = f"Send at most {self.limit:,} bytes at a time."
            await refuse(self.refuse(413, "the request's body is too large.", do))
            return
        given = False

        async def whole() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, whole, send)

    def _wrong(self, method: str, headers: dict[str, str]) -> tuple[int, str, str] | None:
        host = headers.get("host", "")
        if not self._named(host):
            return (
                421,
                f"this server is not called {host[:100]!r}.",
                "Use the address it printed, or name this one with --allow-host.",
            )
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        try:
            foreign = origin is not None and urlsplit(origin).netloc.lower() != host.lower()
        except ValueError:
            return (
                400,
                f"the header Origin is no address: {str(origin)[:100]!r}.",
                "Send the address of the page, such as http://localhost:8000, or no Origin.",
            )
        if method not in ("GET", "HEAD"):
            foreign = foreign or site not in ("none", "same-origin")
            foreign = foreign or (self.origin and origin is None)
        if foreign:
            return 403, "this request comes from another page.", "Open our own page, and try there."
        return None

    def _named(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        address = _address(name)
        if name in self.names:
            return True
        return address is not None and (address.is_loopback or not self.loopback)

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes | None:
        """The whole body; None where it is larger than the limit."""
        length = headers.get("content-length", "0")
        if length.isascii() and length.isdigit():
            digits = length.lstrip("0") or "0"
            if len(digits) > 18 or int(digits) > self.limit:
                return None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise ConnectionError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limit:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def token_in_path(
    token: str, refuse: Callable[[int, str, str], Response]
) -> Callable[[str, Mapping[str, str]], Response | bool]:
    """A guard's `enter` where the path begins with the token: /TOKEN/page."""

    def enter(path: str, _: Mapping[str, str]) -> Response | bool:
        first, *parts = path.split("/")
        if first or len(parts) < 2:
            return False  # there is no such page, whoever asks
        if same(parts[0], token):
            return True
        do = "Use the whole address that was printed at the start."
        return refuse(403, "403: this address holds no valid token", do)

    return enter


def _nothing() -> None:
    """What is done with trust where the server does not ask for it."""


def _adding_headers(send: Send, headers: Mapping[str, str] = HEADERS) -> Send:
    more = [(k.lower().encode(), v.encode()) for k, v in headers.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return send_with_headers


def _lingering(send: Send, receive: Receive) -> Send:
    """Send an answer whole, then read for a moment what still comes; then the connection closes."""

    async def send_and_linger(message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await send(message)
            return
        await send({**message, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_TO_LINGER):
                while (await receive()).get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_and_linger


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, for asyncio to send small answers at once: else each waits 40 ms for Nagle.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host.strip("[]"), port))
        sock.listen(512)  # whoever reads the address may call at once
    except (OSError, OverflowError) as error:
        sock.close()
        why = getattr(error, "strerror", None) or str(error)
        raise ParameterError(
            f"cannot listen on {host} port {port}: {why}.", do="Choose another with --port."
        ) from error
    return sock


def url_of(sock: socket.socket, host: str) -> str:
    """The URL of this server, without a slash at the end."""
    named = f"[{host.strip('[]')}]" if ":" in host else host
    return f"http://{named}:{sock.getsockname()[1]}"


def run(app: Any, sock: socket.socket, strangers: Strangers | None = None) -> None:
    """Serve until told to stop; requests under way are finished first.

    Connections without the token are counted in `strangers`, where given.
    """
    uvicorn = needed("uvicorn", "a server", "dprl[serve]")
    from dprl.apps.connections import Strangers, protocol_for

    _allow_many_files()
    config = uvicorn.Config(
        app,
        log_level="error",  # what strangers send wrongly is counted, not written down
        access_log=False,
        server_header=False,
        http=protocol_for(Strangers() if strangers is None else strangers),
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=10,
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[sock])


def _allow_many_files() -> None:
    """Let this process have as many connections open as the system allows it, up to 65,536."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
