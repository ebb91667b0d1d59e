"""The service: JSON over HTTP.

Requests are strict: a body that is not JSON, has a name twice, has a feature that the policy does
not know or lacks one, is refused, and the error names it. Small requests are answered at once;
larger ones on a thread, so that other requests need not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import traceback
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from dprl._core.table import to_json_value
from dprl.apps._web import Guard, same
from dprl.apps.serve.answers import Answers, StateError
from dprl.apps.serve.metrics import Counting, Metrics
from dprl.apps.serve.openapi import MOST, description
from dprl.errors import DprlError
from dprl.policies._protocol import DeferringPolicy

__all__ = ["serve_app"]

AT_ONCE = 16
"""Largest number of states that are answered without a thread."""
OPEN = frozenset({"/healthz"})
"""Paths that need no token."""


class Json(Response):
    """JSON in ASCII: a label may hold what UTF-8 cannot."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return json.dumps(to_json_value(content), allow_nan=False, separators=(",", ":")).encode()


def _error(status: int, kind: str, error: DprlError, headers: dict[str, str] | None = None) -> Json:
    facts = {
        "kind": kind,
        "what": error.what,
        "where": error.where,
        "do": error.do,
        "state": getattr(error, "index", None),
        "feature": getattr(error, "feature", None),
    }
    return Json({"error": facts}, status, headers)


class _RefusedError(Exception):
    """A request that is refused."""

    def __init__(
        self, status: int, kind: str, error: DprlError, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(str(error))
        self.response = _error(status, kind, error, headers)


def serve_app(
    policy: DeferringPolicy,
    *,
    token: str | None,
    host: str = "127.0.0.1",
    names: tuple[str, ...] = (),
    limit: int = 1 << 20,
    cases: bool = False,
) -> Starlette:
    """The service as an ASGI application.

    With `token=None` it asks for no token. With `cases`, /explain names training episodes; no other
    answer names any.
    """
    service = _Service(Answers(policy, cases), token)
    routes = [
        Route("/act", service.act, methods=["POST"]),
        Route("/explain", service.explain, methods=["POST"]),
        Route("/policy", service.policy),
        Route("/healthz", service.healthz),
        Route("/metrics", service.text),
        Route("/openapi.json", service.openapi),
    ]
    service.metrics = Metrics(tuple(r.path for r in routes), service.answers.digest)

    def refuse(status: int, what: str, do: str) -> Response:
        return _error(status, "refused", DprlError(what, do=do))

    def wrong(request: Request, error: Exception) -> Response:
        if isinstance(error, _RefusedError):
            return error.response
        if isinstance(error, HTTPException):
            refusal = DprlError(
                f"{error.detail}.", request.scope["path"][:200], "See GET /openapi.json."
            )
            return _error(error.status_code, "refused", refusal, dict(error.headers or {}))
        return _error(500, "internal", DprlError("something went wrong here."))

    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Counting, metrics=service.metrics),
            Middleware(
                Guard,
                host=host,
                names=names,
                limit=limit,
                refuse=refuse,
                origin=False,
                enter=service.enter,
            ),
        ],
        exception_handlers={_RefusedError: wrong, HTTPException: wrong, 500: wrong},
        lifespan=service.lifespan,
    )


class _Service:
    metrics: Metrics

    def __init__(self, answers: Answers, token: str | None) -> None:
        self.answers, self.token = answers, token
        self.document = description(answers.policy, token is not None)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        """Compile and build; /healthz says meanwhile that it is starting."""
        warming = asyncio.create_task(self._warm())
        yield
        await warming

    async def _warm(self) -> None:
        try:
            await run_in_threadpool(self.answers.warm)
        except Exception:
            traceback.print_exc()
            os.kill(os.getpid(), signal.SIGTERM)  # better to stop than never to be ready
            return
        gc.freeze()  # these objects stay for good: garbage collection can skip them
        self.metrics.ready = True

    # -- questions -------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        states = await self._asked(request, "states")
        if not isinstance(states, list) or not 1 <= len(states) <= MOST:
            raise _odd(f"'states' must be an array of 1 to {MOST:,} states.", "states")
        try:
            if len(states) <= AT_ONCE:
                answers = self.answers.act(states)
            else:
                answers = await run_in_threadpool(self.answers.act, states)
        except StateError as error:
            raise _RefusedError(422, "state", error) from error
        self.metrics.answered(answers)
        return Json({"policy": self.answers.digest, "answers": answers})

    async def explain(self, request: Request) -> Response:
        state = await self._asked(request, "state")
        try:
            explanation = await run_in_threadpool(self.answers.explain, state)
        except StateError as error:
            raise _RefusedError(422, "state", error) from error
        self.metrics.answered([explanation])
        return Json(explanation)

    async def policy(self, request: Request) -> Response:
        return Json(self.answers.about())

    async def healthz(self, request: Request) -> Response:
        if not self.metrics.ready:
            raise _RefusedError(
                503, "starting", DprlError("not ready yet.", do="Ask again in a moment.")
            )
        return Json({"status": "ok"})

    async def text(self, request: Request) -> Response:
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return Json(self.document)

    # -- around them -----------------------------------------------------------------------------

    def enter(self, path: str, headers: Mapping[str, str]) -> Response | bool:
        """Whether a request has the token; the refusal where it needs one and has none."""
        if path in OPEN:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if self.token is None or (scheme.lower() == "bearer" and same(given.strip(), self.token)):
            return True
        error = DprlError(
            "this request has no token, or not this server's.",
            do="Send the header 'Authorization: Bearer TOKEN'.",
        )
        return _error(401, "token", error, {"WWW-Authenticate": "Bearer"})

    async def _asked(self, request: Request, name: str) -> Any:
        """The value of the only member that a request's body may have."""
        if not self.metrics.ready:
            raise _RefusedError(
                503, "starting", DprlError("not ready yet.", do="Ask again in a moment.")
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            error = DprlError("the body must be application/json.", f"content-type {kind[:60]!r}")
            raise _RefusedError(415, "body", error)
        body = _parsed(await request.body())
        if not isinstance(body, dict):
            raise _odd("the body must be an object.", "body")
        for other in body:
            if other != name:
                raise _odd(f"the body has {other!r:.60}, which means nothing here.", "body")
        if name not in body:
            raise _odd(f"the body has no {name!r}.", "body")
        return body[name]


def _odd(what: str, where: str) -> _RefusedError:
    return _RefusedError(422, "body", DprlError(what, where, "See GET /openapi.json."))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r:.60} is said twice")
    return members


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        refusal = DprlError("the body is not JSON that can be read.", str(error)[:200])
        raise _RefusedError(400, "json", refusal) from error
