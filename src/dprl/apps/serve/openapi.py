"""The service described to machines: OpenAPI 3.1, made for the policy that is served."""

from __future__ import annotations

from typing import Any

from dprl._core.version import __version__
from dprl.apps.serve.cds_shapes import CALL, CARDS, FEEDBACK, UUID
from dprl.apps.serve.rows import Column, columns_of
from dprl.logs._dates import on_day
from dprl.policies._protocol import DeferringPolicy

__all__ = ["MOST", "description"]

MOST = 1000
"""Largest number of states in one request."""
OTHER = "a label that training did not have: the answer says so, and that it is not in range"


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), **more}


def _answer(policy: DeferringPolicy) -> dict[str, Any]:
    return _object(
        {
            "action": {"enum": [None, *policy.actions], "description": "null where it defers"},
            "defer": {"type": "boolean", "description": "do what you would have done"},
            "kind": {
                "enum": ["change", "confirmation", "defer", "unknown"],
                "description": "unknown: an action is named where usual practice is not on record",
            },
            "in_range": {"type": "boolean", "description": "false: outside the training log"},
            "reason": {"type": "string"},
        }
    )


def _row(policy: DeferringPolicy) -> dict[str, Any]:
    """What is said about one action in one state."""
    if not policy.terms.sure:
        return {"type": "object"}
    where = policy.terms.sure
    meant = {
        "sure_advantage": f"what the action brings over usual practice here, in {where}",
        "sure_se": "standard error of sure_advantage",
        "sure_low": "lower end of its 95 % interval, of this row alone",
    }
    return {
        "type": "object",
        "properties": {
            name: {"type": ["number", "null"], "description": words}
            for name, words in meant.items()
        },
    }


def _about(policy: DeferringPolicy) -> dict[str, Any]:
    """What is said about the policy."""
    review = {
        "type": ["object", "null"],
        "description": "the review that the policy comes from: digest of the policy that was "
        "reviewed, changes approved, of how many, reviewers needed, and SHA-256 of the "
        "verdicts; null where nobody reviewed it",
    }
    if not policy.stated:
        return {"type": "object", "properties": {"review": review}}
    return {
        "type": "object",
        "properties": {
            "review": review,
            "gain": {
                "type": ["object", "null"],
                "description": "what the whole policy brings over usual practice: estimate, se, "
                "and low, the bound at level 1 - risk (null: none); null where none is stated",
            },
            "stated": {
                "type": "array",
                "items": {"type": "string"},
                "description": "what its learner states: the gain, what it assumes, and whether "
                "the state was enough",
            },
        },
    }


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
    error = {"$ref": "#/components/schemas/Error"}

    def says(what: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"description": what, "content": {"application/json": {"schema": schema}}}

    shared = {
        "400": says("a header, or the body, cannot be read", error),
        "403": says("the request comes from another page", error),
        "408": says("the body did not arrive in time", error),
        "413": says("the body is too large", error),
        "421": says("the Host header names another server", error),
        "503": says("not ready yet, or what was asked could not be stored", error),
    }
    if token:
        shared["401"] = says("no token, or not this server's", error)

    def get(summary: str, good: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"get": {"summary": summary, "responses": {"200": good, **shared}, **more}}

    def post(summary: str, asked: dict[str, Any], good: dict[str, Any]) -> dict[str, Any]:
        wrong = {
            "400": says("the body is not JSON", error),
            "415": says("the body is not called application/json, or is compressed", error),
            "422": says("a state cannot be asked about; says which, and which feature", error),
        }
        body = {"required": True, "content": {"application/json": {"schema": asked}}}
        answers = {"200": says("answered", good), **wrong, **shared}
        return {"post": {"summary": summary, "requestBody": body, "responses": answers}}

    anything = {"type": "object"}
    status = _object({"status": {"type": "string"}})
    explanation = _answer(policy)
    more: dict[str, Any] = {
        "state": True,
        "episodes": {"type": "integer"},
        "value": {"type": ["number", "null"]},
        "actions": {
            "type": "array",
            "items": _row(policy),
            "description": "one row for each action that was seen in the state",
        },
        "similar": {
            "type": "array",
            "items": anything,
            "description": "training episodes; empty unless served with --cases",
        },
    }
    explanation["properties"] = {**explanation["properties"], **more}
    explanation["required"] = list(explanation["properties"])
    asked = {"type": "array", "items": _state(policy), "minItems": 1, "maxItems": MOST}
    answers = _object(
        {"policy": {"type": "string"}, "answers": {"type": "array", "items": _answer(policy)}}
    )
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "dprl",
            "version": __version__,
            "description": "A policy that names an action where its training log can speak for it,"
            " and defers everywhere else.",
        },
        "paths": {
            "/act": post(
                "The action for each state, or to defer",
                _object({"states": asked}, additionalProperties=False),
                answers,
            ),
            "/explain": post(
                "Why the policy answers as it does in one state",
                _object({"state": _state(policy)}, additionalProperties=False),
                explanation,
            ),
            "/policy": get(
                "What the policy is and where it comes from", says("described", _about(policy))
            ),
            "/livez": get("Whether the service runs", says("it does", status), security=[]),
            "/readyz": get("Whether answers are given", says("ready", status), security=[]),
            "/healthz": get("The same as /readyz", says("ready", status), security=[]),
            "/metrics": get(
                "Metrics for Prometheus",
                {"description": "text", "content": {"text/plain": {"schema": {"type": "string"}}}},
            ),
            "/openapi.json": get("This description", says("described", anything)),
        },
        "components": {
            "schemas": {
                "Error": _object(
                    {
                        "error": _object(
                            {
                                "kind": {"type": "string"},
                                "what": {"type": "string"},
                                "where": {"type": "string"},
                                "do": {"type": "string"},
                                "state": {"type": ["integer", "null"]},
                                "feature": {"type": ["string", "null"]},
                            }
                        )
                    }
                )
            }
        },
    }
    if cds:
        document["paths"]["/cds-services"] = get(
            "The service of CDS Hooks 2.0 that is offered here; it says how it is called",
            says("described", _object({"services": {"type": "array", "items": anything}})),
        )
        call = post("The cards for one call of the hook", CALL, _object({"cards": CARDS}))
        call["post"]["responses"]["412"] = says("prefetched data are missing", error)
        stored = _object({"stored": {"type": "integer"}})
        stored["properties"]["unknown_cards"] = {
            "type": "array", "items": UUID,
            "description": "cards that were not given here, or not with these suggestions; the "
            "feedback on them is stored, and marked",
        }  # fmt: skip
        feedback = post("What became of cards", FEEDBACK, stored)
        feedback["post"]["responses"]["400"] = says("this is no JSON, or no feedback", error)
        del feedback["post"]["responses"]["422"]
        document["paths"][f"/cds-services/{cds}"] = call
        document["paths"][f"/cds-services/{cds}/feedback"] = feedback
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document
