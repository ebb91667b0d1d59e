"""The service as CDS Hooks 2.0 has it: discovery and cards (feedback: `dprl.apps.serve.feedback`).

One service is offered. Its state is made from the observations that the caller fetched beforehand,
or from the context of the call (`dprl.apps.serve.fhir`). Where the policy defers there is no card:
that is how a service says that it has nothing to say. A card carries one suggestion, without
actions to carry out: a person decides.

Reference: https://cds-hooks.hl7.org/2.0/
"""

from __future__ import annotations

import re
import tomllib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dprl._core.words import either, worded
from dprl.apps.serve.answers import Answers
from dprl.apps.serve.feedback import identifier
from dprl.apps.serve.fhir import ONE, LackingError, Source
from dprl.apps.serve.replies import RefusedError, odd
from dprl.errors import DprlError, ParameterError
from dprl.logs._categories import TRUTH
from dprl.logs._gaps import GONE

__all__ = ["Call", "Hooks"]

SUMMARY = 139
"""Largest number of characters of a card's summary: fewer than 140."""
VALUES = 2000
"""Largest number of characters of the values that a card names."""
SYSTEM = "urn:dprl:override-reasons"
REASONS = (
    ("contraindicated", "Not suitable for this patient"),
    ("patient-declined", "The patient does not want it"),
    ("done", "Already done, or under way"),
    ("wrong-data", "The data behind it are wrong or out of date"),
    ("disagree", "I disagree with it"),
    ("other", "Another reason"),
)
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TEXTS = ("id", "title", "description", "hook", "usage")


@dataclass(frozen=True)
class Call:
    """A call of the service.

    Attributes:
        instance: Id of this call of the hook.
        state: The state.
        lacks: Why there is no state; '' where there is one.
        card: Id of the card, should there be one.
        suggestion: Id of its suggestion.
        values: The values of the state in words, with their units.
    """

    instance: str
    state: Any
    lacks: str
    card: str
    suggestion: str
    values: str = ""


@dataclass(frozen=True)
class Hooks:
    """The service, as a file describes it.

    Attributes:
        id: The last part of its address.
        title: Its name for people.
        description: What it does.
        hook: The moment at which it is called.
        usage: What must hold for it to be used; may be empty.
        source: Who stands behind the cards: `label`, and perhaps `url`.
        reasons: Reasons that may be given for not following a card.
        values: Where each value of a state comes from.
    """

    id: str
    title: str
    description: str
    hook: str
    usage: str
    source: Mapping[str, str]
    reasons: tuple[Mapping[str, str], ...]
    values: tuple[Source, ...]

    @classmethod
    def read(cls, path: str | Path) -> Hooks:
        """The service that a TOML file describes; a ParameterError says what is wrong with it."""
        try:
            given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ParameterError(f"cannot read {str(path)!r}: {error.strerror}.") from error
        except ValueError as error:
            raise ParameterError(f"{str(path)!r} is no TOML: {error}.") from error
        return cls.of(given)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Hooks:
        """The service that a table describes."""
        allowed = {*TEXTS, "source", "reasons", "features", "state"}
        for name in given:
            if name not in allowed:
                raise ParameterError(
                    f"{name!r} means nothing here.", do=f"Names: {', '.join(sorted(allowed))}."
                )
        texts = {name: given.get(name, "") for name in TEXTS}
        texts["hook"] = texts["hook"] or "patient-view"
        for name, text in texts.items():
            if not isinstance(text, str) or (name != "usage" and not text.strip()):
                raise ParameterError(f"the description of the service needs {name!r}, as text.")
        for name in ("id", "hook"):
            if not IDENTIFIER.fullmatch(texts[name]):
                raise ParameterError(f"{name!r} may have letters, digits, '.', '_' and '-' only.")
        features = given.get("features", {})
        if not isinstance(features, Mapping) or bool(features) == ("state" in given):
            raise ParameterError(
                "the description of the service needs one table per feature, or [state].",
                do="Write [features.NAME] for each feature of the policy; [state] for a label.",
            )
        values = [Source.of(name, table) for name, table in features.items()]
        values += [Source.of("", given["state"])] if "state" in given else []
        source = given.get("source", {"label": texts["title"]})
        reasons = given.get(
            "reasons", [{"code": c, "system": SYSTEM, "display": d} for c, d in REASONS]
        )
        _check_texts(source, "source", ("label",), ("url", "icon"))
        if not isinstance(reasons, list) or not reasons:
            raise ParameterError("'reasons' must be a list of tables.")
        for reason in reasons:
            _check_texts(reason, "reasons", ("code", "system", "display"), ())
        return cls(**texts, source=source, reasons=tuple(reasons), values=tuple(values))

    def check(self, answers: Answers) -> None:
        """Refuse a description that does not fit the policy."""
        needed = tuple(answers.columns or answers.features) or ("",)
        given = tuple(value.name for value in self.values)
        if set(needed) != set(given):
            lacking = sorted(set(needed) - set(given)) + sorted(set(given) - set(needed))
            raise ParameterError(
                "the values that the service is described with are not those of the policy.",
                f"{lacking[0] or 'a label, [state]'!r}",
                f"The policy's states are made of: {', '.join(needed) or 'one label'}.",
            )
        for value in self.values:
            takes = (
                answers.columns[value.name].nullable
                if value.name
                else getattr(answers.policy.space, "gone", None) is not None
            )
            if value.gaps and not takes:
                raise ParameterError(
                    f"{value.key!r} may be missing, says the description, and the policy says "
                    "nothing about a missing one.",
                    do=worded(
                        "Leave 'gaps' out, or fit a policy that takes gaps ({choice}, or rules).",
                        choice=either('missing="flag" or "median"', "--missing flag or median"),
                    ),
                )

    # -- discovery and calls -----------------------------------------------------------------------

    def discovery(self) -> dict[str, Any]:
        """What the service is, for those who want to call it."""
        prefetch = {value.key: value.query for value in self.values if value.code}
        service = {
            "hook": self.hook, "title": self.title, "description": self.description, "id": self.id,
            **({"prefetch": prefetch} if prefetch else {}),
            **({"usageRequirements": self.usage} if self.usage else {}),
        }  # fmt: skip
        return {"services": [service]}

    def call(self, body: Mapping[str, Any]) -> Call:
        """A call, with the state that it is about; RefusedError where it is no such call."""
        if body.get("hook") != self.hook:
            raise odd(f"this service is for the hook {self.hook!r}.", "hook")
        instance = _identifier(body.get("hookInstance"), "hookInstance")
        context, data = body.get("context"), body.get("prefetch", {})
        if not isinstance(context, Mapping):
            raise odd("'context' must be an object.", "context")
        for name in ("patientId", "userId") if self.hook == "patient-view" else ():
            if not isinstance(context.get(name), str) or not context[name]:
                raise odd(f"the context needs {name!r}, as text.", f"context.{name}")
        data = {} if data is None else data
        if not isinstance(data, Mapping):
            raise odd("'prefetch' must be an object.", "prefetch")
        absent = [
            v.key for v in self.values
            if v.code and data.get(v.key) is None and not (v.gaps and v.key in data)
        ]  # fmt: skip
        if absent:
            raise RefusedError(412, "prefetch", DprlError(
                f"the prefetched data lack {absent[0]!r:.60}.", "prefetch",
                "Fetch beforehand what GET /cds-services names; this service fetches nothing.",
            ))  # fmt: skip
        values, lacks = {}, ""
        try:
            now = datetime.now(UTC)
            values = {v.name: v.value(context, data.get(v.key), now) for v in self.values}
        except LackingError as error:
            lacks = str(error)
        return Call(
            instance, values.get("", values), lacks, str(uuid.uuid4()), str(uuid.uuid4()),
            "" if lacks else self._values(values),
        )  # fmt: skip

    def _values(self, values: Mapping[str, Any]) -> str:
        """The values of a state in words, with their units."""
        parts = []
        for source in self.values:
            value = values[source.name]
            word = TRUTH[value] if isinstance(value, bool) else value
            unit = "" if source.unit == ONE or value is None else f" {source.unit}"
            parts.append(f"{source.key} {GONE if value is None else word}{unit}")
        return ", ".join(parts)

    # -- cards -------------------------------------------------------------------------------------

    def lacking(self, call: Call) -> list[dict[str, Any]]:
        """The card that says why there is no suggestion."""
        return [{
            "uuid": call.card, "summary": _cut(f"No suggestion: {call.lacks}."),
            "indicator": "info", "source": dict(self.source),
        }]  # fmt: skip

    def cards(self, call: Call, answer: Mapping[str, Any], digest: str) -> list[dict[str, Any]]:
        """The card for an answer; none where the policy defers."""
        if answer["defer"]:
            return []
        action = str(answer["action"])
        usual = answer["kind"] == "confirmation"
        words = f"Usual practice is supported here: {action}" if usual else f"Consider: {action}"
        detail = (
            f"{_plain(answer['reason'])}\n\nValues used: {_plain(_cut(call.values, VALUES))}\n\n"
            f"Policy `{digest[:12]}`."
        )
        return [{
            "uuid": call.card,
            "summary": _cut(words),
            "indicator": "info",
            "detail": detail,
            "source": dict(self.source),
            "suggestions": [{"label": _cut(action), "uuid": call.suggestion}],
            "selectionBehavior": "at-most-one",
            "overrideReasons": [dict(reason) for reason in self.reasons],
        }]  # fmt: skip


def _identifier(given: Any, where: str) -> str:
    try:
        return identifier(given)
    except ValueError:
        raise odd("an id must be a UUID.", where) from None


def _check_texts(given: Any, name: str, needed: tuple[str, ...], possible: tuple[str, ...]) -> None:
    good = isinstance(given, Mapping) and all(
        isinstance(v, str) and v and k in (*needed, *possible) for k, v in given.items()
    )
    if not good or any(k not in given for k in needed):
        raise ParameterError(f"{name!r} needs {' and '.join(needed)}, as text.")


def _cut(text: str, most: int = SUMMARY) -> str:
    """At most so many characters, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _plain(text: str) -> str:
    """Text in which nothing is markup in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!])", r"\\\1", text)
