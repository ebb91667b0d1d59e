"""The service described to machines: OpenAPI 3.1, made for the policy that is served.

The shapes and words of `openapi.json` are filled with what depends on the policy: `@name` stands
for a value that is known here.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

from dprl._core import __version__
from dprl.apps.serve.answers import Column, columns_of
from dprl.apps.serve.hooks import COMMENT, MOST_FEEDBACK, OUTCOMES
from dprl.logs.reading.dates import on_day
from dprl.policies.protocol import DeferringPolicy

MOST = 1000
"""Largest number of states in one request."""
OTHER = "a label that training did not have: the answer says so, and that it is not in range"
ANYTHING = {"type": "object"}


@functools.cache
def _shapes() -> dict[str, Any]:
    """What does not depend on the policy."""
    text = files("dprl.apps.serve").joinpath("openapi.json").read_text(encoding="utf-8")
    shapes: dict[str, Any] = json.loads(text)
    return shapes


def _filled(shape: Any, values: dict[str, Any]) -> Any:
    """A shape with these values in place of the words `@name`."""
    if isinstance(shape, dict):
        return {name: _filled(part, values) for name, part in shape.items()}
    if isinstance(shape, list):
        return [_filled(part, values) for part in shape]
    return values[shape] if isinstance(shape, str) and shape.startswith("@") else shape


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    needed = [name for name in properties if name != "avoid"]  # which few answers have
    return {"type": "object", "properties": properties, "required": needed, **more}


def _says(what: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _row(policy: DeferringPolicy) -> dict[str, Any]:
    """What is said about one action in one state."""
    sure = policy.terms.sure
    if not sure:
        return ANYTHING
    number = {"type": ["number", "null"]}
    words = _shapes()["row of a sure policy"].items()
    meant = {name: {**number, "description": text.replace("@sure", sure)} for name, text in words}
    return {"type": "object", "properties": meant}


def _state(policy: DeferringPolicy) -> dict[str, Any]:
    """A state as it may be asked about: an object of its columns, or a label."""
    space = policy.space
    columns = columns_of(policy)
    if columns:
        ranges = dict(zip(space.feature_names, policy.provenance.get("ranges") or (), strict=False))
        shown = {column.name: _column(column, ranges.get(column.name)) for column in columns}
        return _object(shown, additionalProperties=False)
    kind = type(space.states[0]) if space.states else str
    word = {str: "string", int: "integer", bool: "boolean"}[kind]
    return {"type": word if getattr(space, "gone", None) is None else [word, "null"]}


def _column(column: Column, ends: Any) -> dict[str, Any]:
    """One column of a state: its type, the labels that training had, and whether it may be null."""
    null, nothing = (["null"], [None]) if column.nullable else ([], [])
    words = []
    if column.kind == "truth":
        shape: dict[str, Any] = {
            "enum": [True, False, "true", "false", 0, 1, *([None] * len(null))]
        }
    elif column.kind == "label":
        other = {"type": ["string", "integer", "boolean"], "description": OTHER}
        shape = {"anyOf": [{"enum": [*column.labels, *nothing]}, other]}
    else:
        word = "string" if column.kind == "date" else "number"
        shape = {"type": [word, *null] if null else word}
        if ends and None not in ends:
            low, high = (on_day(e) if column.kind == "date" else f"{e:g}" for e in ends)
            words.append(f"in training {low} to {high}")
        if column.kind == "date":
            shape["examples"] = ["2024-02-01"]
    if null:
        words.append("null where it is missing: treated as in training")
    return {**shape, **({"description": "; ".join(words)} if words else {})}


def description(policy: DeferringPolicy, token: bool, cds: str = "") -> dict[str, Any]:
    """The OpenAPI document; `cds` is the id of the service of CDS Hooks, '' without one."""
    values = {
        "@actions": [None, *policy.actions], "@row": _row(policy),
        "@uuid": {"type": "string", "format": "uuid"}, "@outcomes": list(OUTCOMES),
        "@most_feedback": MOST_FEEDBACK, "@comment": COMMENT,
    }  # fmt: skip
    shapes = _filled({k: v for k, v in _shapes().items() if k != "row of a sure policy"}, values)
    error = {"$ref": "#/components/schemas/Error"}
    refusals = {**shapes["refusals"], **({"401": shapes["no token"]} if token else {})}

    def of(path: str, method: str, good: dict[str, Any], **more: Any) -> dict[str, Any]:
        wrong = {**(shapes["refusals of a body"] if method == "post" else {}), **refusals}
        wrong |= more.pop("also", {})
        responses = {"200": good, **{k: _says(v, error) for k, v in wrong.items() if v}}
        return {method: {"summary": shapes["summaries"][path], **more, "responses": responses}}

    def get(path: str, what: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
        return of(path, "get", _says(what, schema), **more)

    def post(path: str, asked: Any, good: dict[str, Any], **also: str) -> dict[str, Any]:
        body = {"required": True, "content": {"application/json": {"schema": asked}}}
        return of(path, "post", _says("answered", good), requestBody=body, also=also)

    status = _object({"status": {"type": "string"}})
    answer = shapes["answer"]
    asked = {"type": "array", "items": _state(policy), "minItems": 1, "maxItems": MOST}
    answers = {"policy": {"type": "string"}, "answers": {"type": "array", "items": _object(answer)}}
    about = {**shapes["about"], **(shapes["about what is stated"] if policy.stated else {})}
    text = {"description": "text", "content": {"text/plain": {"schema": {"type": "string"}}}}
    state = _object({"state": _state(policy)}, additionalProperties=False)
    paths = {
        "/act": post(
            "/act", _object({"states": asked}, additionalProperties=False), _object(answers)
        ),
        "/explain": post("/explain", state, _object({**answer, **shapes["explanation"]})),
        "/policy": get("/policy", "described", {"type": "object", "properties": about}),
        "/livez": get("/livez", "it does", status, security=[]),
        "/readyz": get("/readyz", "ready", status, security=[]),
        "/healthz": get("/healthz", "ready", status, security=[]),
        "/metrics": of("/metrics", "get", text),
        "/openapi.json": get("/openapi.json", "described", ANYTHING),
    }
    if cds:
        services = _object({"services": {"type": "array", "items": ANYTHING}})
        lacking = {"412": "prefetched data are missing"}
        odd = {"400": "this is no JSON, or no feedback", "422": ""}
        own, back = "/cds-services/@cds", "/cds-services/@cds/feedback"
        paths["/cds-services"] = get("/cds-services", "described", services)
        paths[own.replace("@cds", cds)] = post(
            own, shapes["call"], _object({"cards": shapes["cards"]}), **lacking
        )
        paths[back.replace("@cds", cds)] = post(back, shapes["feedback"], shapes["stored"], **odd)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "dprl", "version": __version__, "description": shapes["info"]},
        "paths": paths,
        "components": {"schemas": {"Error": _object({"error": _object(shapes["error"])})}},
    }
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document
