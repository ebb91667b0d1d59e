"""Answers and refusals as JSON, and the bodies of requests read strictly."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from dprl._core.table import to_json_value
from dprl.errors import DprlError


class Json(Response):
    """JSON in ASCII: a label may hold what UTF-8 cannot."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return json.dumps(to_json_value(content), allow_nan=False, separators=(",", ":")).encode()


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
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity"):
        error = DprlError(
            "the body is compressed, and is not unpacked here.",
            f"content-encoding {coding[:60]!r}",
            "Send the body as it is, without the header Content-Encoding.",
        )
        raise RefusedError(415, "body", error, {"Accept-Encoding": "identity"})
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        error = DprlError("the body must be application/json.", f"content-type {kind[:60]!r}")
        raise RefusedError(415, "body", error)
    body = _parsed(await request.body())
    if not isinstance(body, dict):
        raise odd("the body must be an object.", "body")
    return body


def members(body: dict[str, Any], name: str) -> Any:
    """The value of the only member that a body may have."""
    for other in body:
        if other != name:
            raise odd(f"the body has {other!r:.60}, which means nothing here.", "body")
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


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        refusal = DprlError("the body is not JSON that can be read.", str(error)[:200])
        raise RefusedError(400, "json", refusal) from error
