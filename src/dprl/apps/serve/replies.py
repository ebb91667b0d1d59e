"""Answers and refusals as JSON, and the bodies of requests read strictly."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dprl._core.table import compact
from dprl.apps.web import SECONDS_A_BODY, SECONDS_TO_LINGER
from dprl.errors import DprlError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send


class Json(Response):
    """JSON in ASCII: a label may hold what UTF-8 cannot."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return compact(content).encode()


def error_reply(
    status: int, kind: str, error: DprlError, headers: dict[str, str] | None = None
) -> Json:
    """The three lines of an error as JSON."""
    facts = {
        "kind": kind,
        "what": error.what,
        "where": error.where,
        "do": error.do,
        "state": getattr(error, "index", None),
        "feature": getattr(error, "feature", None),
    }
    return Json({"error": facts}, status, headers)


class RefusedError(Exception):
    """A request that is refused."""

    def __init__(
        self, status: int, kind: str, error: DprlError, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(str(error))
        self.response = error_reply(status, kind, error, headers)


def odd(what: str, where: str) -> RefusedError:
    """The refusal of a body that is JSON, but not what was asked for."""
    return RefusedError(422, "body", DprlError(what, where, "See GET /openapi.json."))


async def read_body(request: Request) -> dict[str, Any]:
    """The object that a request's body holds.

    A compressed body is refused: a small one can unpack to more than any limit.
    """
    _refuse_coding(request)
    kind = media_of(request.headers)
    if kind != "application/json":
        error = DprlError("the body must be application/json.", f"content-type {kind[:60]!r}")
        raise RefusedError(415, "body", error)
    body = _parsed(await request.body())
    if not isinstance(body, dict):
        raise odd("the body must be an object.", "body")
    return body


def media_of(headers: Mapping[str, str]) -> str:
    """The media type of a request's body."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


LINES = "application/x-ndjson"
"""The media type of one value of JSON per line."""


async def lines_of(request: Request, limit: int, most: int) -> AsyncIterator[list[Any]]:
    """The values of a body of lines as they come, at most `most` at once, each of `limit` bytes.

    What comes together is given together, so memory holds a part of the body only.
    """
    _refuse_coding(request)
    parts, rest, number = aiter(request.stream()), b"", 0
    while parts is not None:
        try:
            async with asyncio.timeout(SECONDS_A_BODY):
                part = await anext(parts, None)
        except TimeoutError:
            late = DprlError("the next line did not arrive in time.", f"line {number + 1}")
            raise RefusedError(408, "body", late) from None
        *lines, rest = (rest + (part or b"")).split(b"\n")
        if part is None:
            lines, rest, parts = [rest] if rest else [], b"", None  # type: ignore[assignment]
        if max(map(len, (rest, *lines))) > limit:
            long = DprlError(f"a line is larger than {limit:,} bytes.", f"line {number + 1}")
            raise RefusedError(413, "body", long)
        for first in range(0, len(lines), most):
            block = lines[first : first + most]
            yield [_parsed(line, f"line {number + i}") for i, line in enumerate(block, 1)]
            number += len(block)


class Streamed(Response):
    """An answer of many parts, each sent as soon as it is made; who does not read it is cut off."""

    media_type = LINES

    def __init__(self, first: str, rest: AsyncIterator[str]) -> None:
        super().__init__()
        del self.headers["content-length"]
        self.first, self.rest = first, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        text: str | None = self.first
        while text is not None:
            body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
            try:
                async with asyncio.timeout(SECONDS_A_BODY):
                    await send(body)
            except TimeoutError:  # without its end the server closes the connection
                return
            text = await anext(self.rest, None)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def read_away(request: Request) -> None:
    """Read for a moment what still comes: closing at once could lose the refusal on its way."""
    with contextlib.suppress(TimeoutError, ClientDisconnect, RuntimeError):
        async with asyncio.timeout(SECONDS_TO_LINGER):
            async for _ in request.stream():
                pass


def _refuse_coding(request: Request) -> None:
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        error = DprlError(
            "the body is compressed, and is not unpacked here.",
            f"content-encoding {coding[:60]!r}",
            "Send the body as it is, without the header Content-Encoding.",
        )
        raise RefusedError(415, "body", error, {"Accept-Encoding": "identity"})


def members(body: dict[str, Any], name: str) -> Any:
    """The value of the only member that a body may have."""
    for other in body:
        if other != name:
            what = f"the body has {other!r:.60}, which means nothing here; it takes {name!r} alone."
            raise odd(what, "body")
    if name not in body:
        raise odd(f"the body has no {name!r}.", "body")
    return body[name]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]
        raise ValueError(f"{twice!r:.60} is said twice")
    return members


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")


def _parsed(body: bytes, line: str = "") -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        what = f"{line or 'the body'} is not JSON that can be read."
        refusal = DprlError(what, str(error)[:200])
        raise RefusedError(400, "json", refusal) from error
