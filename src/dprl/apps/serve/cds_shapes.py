"""What is sent to and fro by CDS Hooks 2.0, as JSON Schema, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from dprl.apps.serve.given import COMMENT, MOST_FEEDBACK, OUTCOMES

__all__ = ["CALL", "CARDS", "FEEDBACK", "UUID"]

UUID: dict[str, Any] = {"type": "string", "format": "uuid"}
TEXT: dict[str, Any] = {"type": "string"}
REASON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {
            "type": "object",
            "properties": {"code": TEXT, "system": TEXT, "display": TEXT},
        },
        "userComment": {"type": "string", "maxLength": COMMENT},
    },
}
ENTRY: dict[str, Any] = {
    "type": "object",
    "required": ["card", "outcome", "outcomeTimestamp"],
    "properties": {
        "card": UUID,
        "outcome": {"enum": list(OUTCOMES)},
        "acceptedSuggestions": {
            "type": "array",
            "maxItems": MOST_FEEDBACK,
            "items": {"type": "object", "required": ["id"], "properties": {"id": UUID}},
            "description": "needed where the outcome is accepted",
        },
        "overrideReason": REASON,
        "outcomeTimestamp": {"type": "string", "format": "date-time"},
    },
}
FEEDBACK: dict[str, Any] = {
    "type": "object",
    "required": ["feedback"],
    "properties": {
        "feedback": {"type": "array", "items": ENTRY, "minItems": 1, "maxItems": MOST_FEEDBACK}
    },
}
"""What is said about cards."""
CALL: dict[str, Any] = {
    "type": "object",
    "required": ["hook", "hookInstance", "context"],
    "properties": {
        "hook": TEXT,
        "hookInstance": UUID,
        "context": {"type": "object"},
        "prefetch": {"type": "object", "description": "what GET /cds-services asks for"},
    },
}
"""A call of the service."""
CARDS: dict[str, Any] = {
    "type": "array",
    "description": "empty where the policy defers",
    "items": {
        "type": "object",
        "required": ["uuid", "summary", "indicator", "source"],
        "properties": {
            "uuid": UUID,
            "summary": {"type": "string", "maxLength": 139},
            "detail": {"type": "string", "description": "Markdown: why, and from which values"},
            "indicator": {"enum": ["info"]},
            "source": {"type": "object"},
            "suggestions": {
                "type": "array",
                "items": {"type": "object", "properties": {"label": TEXT, "uuid": UUID}},
            },
            "selectionBehavior": {"enum": ["at-most-one"]},
            "overrideReasons": {"type": "array", "items": {"type": "object"}},
        },
    },
}
"""The cards of an answer."""
