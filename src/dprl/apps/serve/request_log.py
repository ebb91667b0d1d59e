"""Around every request: its id, its line in the log, and its count."""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING

from dprl.apps._web import CALLER
from dprl.apps.serve.metrics import Metrics
from dprl.apps.serve.records import Journal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["REQUEST", "RequestLog"]

REQUEST = "dprl.request"
"""Key in an ASGI scope: the id of the request."""
BROKEN_OFF = 499
"""What is noted as the status of a request that was broken off before it was answered."""
ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


class RequestLog:
    """Passes requests on, gives each an id, counts it and writes it to the log; refused ones too.

    Args:
        app: The application.
        metrics: Where requests are counted.
        journal: The log; None where there is none.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, journal: Journal | None) -> None:
        self.app, self.metrics, self.journal = app, metrics, journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and note what became of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, code = time.perf_counter(), BROKEN_OFF
        given = next((v for k, v in scope["headers"] if k == b"x-request-id"), b"")
        name = given if ID.fullmatch(given) else uuid.uuid4().hex.encode()
        scope[REQUEST] = name.decode()

        async def send_noting_status(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", name)]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, receive, send_noting_status)
        except Exception:
            code = 500
            raise
        finally:
            seconds = time.perf_counter() - begin
            self.metrics.asked(scope["path"], code, seconds)
            if self.journal is not None:
                client, caller = scope.get("client") or ("", 0), scope.get(CALLER)
                self.journal.put({
                    "event": "request", "request": name.decode(),
                    **({"caller": caller} if caller else {}), "address": client[0],
                    "method": scope["method"][:20], "path": scope["path"][:200], "code": code,
                    "seconds": round(seconds, 6),
                })  # fmt: skip
