"""The service: JSON over HTTP.

Requests are strict: a body that is not JSON, has a name twice, has a feature that the policy does
not know or lacks one, is refused, and the error names it. Small requests are answered at once;
larger ones on a thread, so that other requests need not wait.
"""

from __future__ import annotations

# Apart: what is answered, apart from how the process lives.
import asyncio
import contextlib
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dprl._core.table import compact
from dprl.apps.serve.answers import StateError
from dprl.apps.serve.audit import Journal, Records
from dprl.apps.serve.hooks import Hooks, cards_given, marked, read_feedback
from dprl.apps.serve.lifecycle import Lifecycle
from dprl.apps.serve.metrics import Metrics
from dprl.apps.serve.replies import (
    LINES,
    Json,
    RefusedError,
    Streamed,
    error_reply,
    lines_of,
    media_of,
    members,
    odd,
    read_away,
    read_body,
)
from dprl.apps.serve.served import MOST, Kept, Served
from dprl.apps.serve.tokens import Tokens
from dprl.apps.web import CALLER, Guard
from dprl.errors import DprlError
from dprl.policies.protocol import DeferringPolicy

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


# --- Around every request: its id, its line in the log, and its count

REQUEST, TRACE = "dprl.request", "dprl.trace"
"""Keys in an ASGI scope: the id of the request, and the trace that it is a part of."""
TRACEPARENT = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")
"""The header of W3C Trace Context: the ids of the trace and of the caller's part of it."""
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
        part = next((v for k, v in scope["headers"] if k == b"traceparent"), b"")
        ids = TRACEPARENT.fullmatch(part)
        more = [(b"traceparent", part)] if ids else []
        scope[TRACE] = {"trace": ids[1].decode(), "parent": ids[2].decode()} if ids else {}

        async def send_noting_status(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", name), *more]
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
                    "event": "request", "request": name.decode(), **scope[TRACE],
                    **({"caller": caller} if caller else {}), "address": client[0],
                    "method": scope["method"][:20], "path": scope["path"][:200], "code": code,
                    "seconds": round(seconds, 6),
                })  # fmt: skip


# --- The service: JSON over HTTP

AT_ONCE = 16
"""Largest number of states that are answered without a thread."""
OPEN = frozenset({"/healthz", "/livez", "/readyz"})
"""Paths that need no token."""
LINE = 1024
"""Bytes of a line of the audit, without the action's label and without the state."""
WRITTEN_OUT = 6
"""Most characters of a line for one byte of a request's body: \\uXXXX."""
PROBED_EVERY = 1.0
"""Seconds between two attempts to write to an audit that could not be written."""


def serve_app(
    policy: DeferringPolicy,
    *,
    token: str | Tokens | None,
    host: str = "127.0.0.1",
    names: tuple[str, ...] = (),
    limit: int = 1 << 20,
    cases: bool = False,
    path: str | None = None,
    reload: float | None = None,
    records: Records | None = None,
    hooks: Hooks | None = None,
    shared: str | None = None,
    kept: Kept | None = None,
    approved: str = "",
) -> Starlette:
    """The service as an ASGI application.

    With `token=None` it asks for no token; `Tokens` are several, with names. With `cases`, /explain
    names training episodes; no other answer names any. `path` is the file that a new policy is
    taken from on SIGHUP, and, with `reload`, whenever the file has changed (looked at every so many
    seconds). `records` says what is written down, `hooks` describes the service of CDS Hooks,
    `shared` is the folder in which several processes add up their counts, and `kept` is where they
    find the policy that was taken over last. `approved` is the audit trail of a review that a new
    policy must come from.
    """
    records = Records() if records is None else records
    served = Served.of(policy, cases, token is not None, "" if hooks is None else hooks.id)
    tokens = Tokens({"": token}) if isinstance(token, str) else token
    service = _Service(tokens, records, hooks, limit)
    routes = [
        Route("/act", service.act, methods=["POST"]),
        Route("/explain", service.explain, methods=["POST"]),
        Route("/policy", service.policy),
        Route("/livez", service.livez),
        Route("/readyz", service.readyz),
        Route("/healthz", service.readyz),
        Route("/metrics", service.text),
        Route("/openapi.json", service.openapi),
    ]
    if hooks is not None:
        hooks.check(served.answers)
        routes += [
            Route("/cds-services", service.discover),
            Route(f"/cds-services/{hooks.id}", service.cards, methods=["POST"]),
            Route(f"/cds-services/{hooks.id}/feedback", service.feedback, methods=["POST"]),
        ]
    service.metrics = Metrics([r.path for r in routes], served.digest, shared)
    service.life = Lifecycle(
        served, service.metrics, records, path=path, every=reload,
        kept=kept, check=None if hooks is None else hooks.check, tokens=tokens, approved=approved,
    )  # fmt: skip
    if records.journal is not None:
        service.metrics.lost = lambda: records.journal.lost
    if records.audit is not None:
        service.metrics.room = records.audit.room

    def refuse(status: int, what: str, do: str) -> Response:
        return error_reply(status, "refused", DprlError(what, do=do))

    def wrong(request: Request, error: Exception) -> Response:
        if isinstance(error, RefusedError):
            return error.response
        if isinstance(error, HTTPException):
            refusal = DprlError(
                f"{error.detail}.", request.scope["path"][:200], "See GET /openapi.json."
            )
            return error_reply(error.status_code, "refused", refusal, dict(error.headers or {}))
        return error_reply(500, "internal", DprlError("something went wrong here."))

    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(RequestLog, metrics=service.metrics, journal=records.journal),
            Middleware(
                Guard, host=host, names=names, limit=limit, refuse=refuse, origin=False,
                enter=service.enter,
                streams=lambda path, head: path == "/act" and media_of(head) == LINES,
            ),
        ],
        exception_handlers={RefusedError: wrong, HTTPException: wrong, 500: wrong},
        lifespan=service.life.lifespan,
    )  # fmt: skip
    app.router.redirect_slashes = False
    app.state.metrics, app.state.life = service.metrics, service.life
    return app


class _Service:
    metrics: Metrics
    life: Lifecycle

    def __init__(
        self, tokens: Tokens | None, records: Records, hooks: Hooks | None, limit: int
    ) -> None:
        self.tokens, self.records, self.hooks, self.limit = tokens, records, hooks, limit
        self._probed = 0.0

    # -- questions -------------------------------------------------------------------------------

    async def act(self, request: Request) -> Response:
        served = self._begun()
        if media_of(request.headers) == LINES:
            parts = self._by_lines(request, served)
            try:  # a refusal of the first states is a refusal of the request
                return Streamed(await anext(parts), parts)
            except RefusedError:
                await read_away(request)
                raise
        states = members(await read_body(request), "states")
        if not isinstance(states, list) or not 1 <= len(states) <= MOST:
            raise odd(f"'states' must be an array of 1 to {MOST:,} states.", "states")
        answers = await self._answers(request, served, states, len(states) > AT_ONCE)
        return Json({"policy": served.digest, "answers": answers})

    async def _by_lines(self, request: Request, served: Served) -> AsyncIterator[str]:
        """A line per answer, in the order of the states; then how many there are, or an error."""
        n = 0
        try:
            async for states in lines_of(request, self.limit, MOST):
                answers = await self._answers(request, served, states, True, first=n)
                n += len(states)
                texts = {id(answer): compact(answer) for answer in answers}  # many are one
                yield "".join(f"{texts[id(answer)]}\n" for answer in answers)
        except RefusedError as error:
            if n == 0:
                raise
            yield f"{error.response.body.decode()}\n"  # type: ignore[union-attr]
            await read_away(request)
            return
        yield compact({"policy": served.digest, "answers": n}) + "\n"

    async def explain(self, request: Request) -> Response:
        served = self._begun()
        state = members(await read_body(request), "state")

        def explain(states: list[Any]) -> tuple[list[dict[str, Any]], Any]:
            explanation, x = served.answers.ask_why(states[0])
            return [explanation], x

        (explanation,) = await self._answers(request, served, [state], True, explain)
        return Json(explanation)

    async def _answers(
        self,
        request: Request,
        served: Served,
        states: list[Any],
        thread: bool,
        ask: Callable[[list[Any]], Any] | None = None,
        about: Mapping[str, Any] | None = None,
        first: int = 0,
    ) -> list[dict[str, Any]]:
        """Answers that are counted and written down; an answer that is not stored is not given."""
        begin = time.perf_counter()
        ask = served.answers.ask if ask is None else ask
        try:
            answers, x = await run_in_threadpool(ask, states) if thread else ask(states)
        except StateError as error:
            error = StateError(error.what, error.index + first, error.feature, error.do)
            raise RefusedError(422, "state", error) from error
        facts = {
            **_asked(request), "path": request.scope["path"], "policy": served.digest,
            **(about or {}),
        }  # fmt: skip
        seconds = time.perf_counter() - begin
        await self._store(self.records.of_answers(facts, states, answers, seconds, first))
        self.metrics.answered(answers)
        for feature, part, count in served.parts(x, answers):
            self.metrics.add("dprl_feature_states", feature, part, served.digest[:12], by=count)
        self.metrics.share()  # before the answer is given: whoever has it finds it counted
        return answers

    async def _store(self, entries: list[dict[str, Any]]) -> None:
        if not entries:
            return
        try:
            await self.records.put(entries)
        except OSError as error:
            self.metrics.add("dprl_not_stored")
            refusal = DprlError(
                "this could not be stored in the audit, so it is not answered.", str(error)[:200],
                "Nothing was recorded. Make room for the audit (or put it back), then ask again.",
            )  # fmt: skip
            raise RefusedError(503, "audit", refusal) from error

    # -- CDS Hooks -------------------------------------------------------------------------------

    async def discover(self, request: Request) -> Response:
        assert self.hooks is not None
        return Json(self.hooks.discovery())

    async def cards(self, request: Request) -> Response:
        assert self.hooks is not None
        served, hooks = self._begun(), self.hooks
        call = hooks.call(await read_body(request))
        about = {"hook_instance": call.instance, "card": call.card}
        if call.lacks:
            facts = {**_asked(request), "policy": served.digest, "why": call.lacks}
            await self._store([{"event": "no answer", **facts, **about}])
            return Json({"cards": hooks.lacking(call)})
        about["suggestion"] = call.suggestion
        (answer,) = await self._answers(request, served, [call.state], False, about=about)
        return Json({"cards": hooks.cards(call, answer, served.digest)})

    async def feedback(self, request: Request) -> Response:
        assert self.hooks is not None
        entries = read_feedback(await read_body(request), self.hooks.id)
        if self.records.audit is not None:
            asked = {entry["card"] for entry in entries}
            with contextlib.suppress(OSError):  # what cannot be read is not compared
                given = await run_in_threadpool(cards_given, self.records.audit.path, asked)
                entries = marked(entries, *given)
        await self._store([{"event": "feedback", **_asked(request), **e} for e in entries])
        strange = [entry["card"] for entry in entries if entry.get("given") is False]
        for entry in entries:
            unknown = entry.get("given") is False
            self.metrics.add("dprl_feedback", "unknown_card" if unknown else entry["outcome"])
        self.metrics.share()
        return Json({"stored": len(entries), **({"unknown_cards": strange} if strange else {})})

    # -- about it --------------------------------------------------------------------------------

    async def policy(self, request: Request) -> Response:
        served = self.life.served
        return Json({**served.answers.about(), "review": served.review})

    async def livez(self, request: Request) -> Response:
        return Json({"status": "ok"})

    async def readyz(self, request: Request) -> Response:
        await self._check_answering()
        return Json({"status": "ok"})

    async def _check_answering(self) -> None:
        """Refuse while it starts, while the audit cannot be written, and while that has no room."""
        audit = self.records.audit
        if audit is not None and self.metrics.ready and (audit.failing or audit.lost):
            if time.monotonic() >= self._probed:
                self._probed = time.monotonic() + PROBED_EVERY
                with contextlib.suppress(OSError):
                    await audit.store(['{"event":"check"}'])
            if lost := audit.lost:
                error = DprlError(f"{lost}.", do="Put it back, or start again.")
                raise RefusedError(503, "audit", error)
            if audit.failing:
                error = DprlError(
                    "the audit cannot be written.", audit.failing, "Make room for it."
                )
                raise RefusedError(503, "audit", error)
        self._check_ready()
        if audit is not None:
            room, needed = await asyncio.to_thread(audit.room), self._largest()
            if room < needed:
                error = DprlError(
                    f"the audit has room for {room:,.0f} bytes, and the largest answer may need "
                    f"{needed:,}.", do="Make room for it.",
                )  # fmt: skip
                raise RefusedError(503, "audit", error)

    def _largest(self) -> int:
        """Bytes that the lines of one request may take in the audit."""
        actions = self.life.served.answers.policy.actions
        longest = max((len(compact({"": action})) for action in actions), default=0)
        of_body = self.records.states or self.hooks is not None  # then parts of it are written
        return MOST * (LINE + longest) + (WRITTEN_OUT * self.limit if of_body else 0)

    async def text(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")[:1000]
        try:
            await self._check_answering()
            self.metrics.answering = True
        except RefusedError:
            self.metrics.answering = False
        body, media = await run_in_threadpool(self.metrics.text, accept)
        return Response(body, headers={"Content-Type": media})

    async def openapi(self, request: Request) -> Response:
        return Json(self.life.served.document)

    # -- around them -----------------------------------------------------------------------------

    def enter(self, path: str, headers: Mapping[str, str]) -> Response | bool | str:
        """Whether a request has a token, or whose; the refusal where it needs one and has none."""
        if path in OPEN:
            return False
        if self.tokens is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        caller = self.tokens.caller(given.strip()) if scheme.lower() == "bearer" else None
        if caller is not None:
            return caller or True
        error = DprlError(
            "this request has no token, or not this server's.",
            do="Send the header 'Authorization: Bearer TOKEN'.",
        )
        return error_reply(401, "token", error, {"WWW-Authenticate": "Bearer"})

    def _check_ready(self) -> None:
        if not self.metrics.ready:
            raise RefusedError(
                503, "starting", DprlError("not ready yet.", do="Ask again in a moment.")
            )

    def _begun(self) -> Served:
        """The policy that answers this request from its beginning to its end."""
        self._check_ready()
        return self.life.served


def _asked(request: Request) -> dict[str, Any]:
    """The ids of a request and of its trace, and who asks, where tokens have names."""
    scope = request.scope
    caller = {"caller": scope[CALLER]} if scope.get(CALLER) else {}
    return {"request": scope[REQUEST], **scope[TRACE], **caller}
