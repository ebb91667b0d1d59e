"""The service as CDS Hooks 2.0 has it: discovery and cards (feedback: `dprl.apps.serve.hooks`).

One service is offered. Its state is made from the observations that the caller fetched beforehand,
or from the context of the call (`dprl.apps.serve.hooks`). Where the policy defers there is no card:
that is how a service says that it has nothing to say. A card carries one suggestion, without
actions to carry out: a person decides.

Reference: https://cds-hooks.hl7.org/2.0/
"""

from __future__ import annotations

import json
import os
import re
import tomllib
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from dprl._core.words import either, worded
from dprl.apps.serve.answers import Answers
from dprl.apps.serve.audit import segments
from dprl.apps.serve.replies import RefusedError, odd
from dprl.errors import DprlError, ParameterError
from dprl.logs.encoding.categories import TRUTH
from dprl.logs.encoding.gaps import GONE
from dprl.policies.protocol import Avoid

# --- Feedback on cards: read as CDS Hooks 2.0 has it, and compared with the cards that were given
#
# Which cards were given is in the audit, whatever process gave them. Feedback on another card is
# stored all the same (an older audit may hold the card), and marked.

MOST_FEEDBACK, COMMENT = 100, 4000
BLOCK, FAR_BACK = 1 << 20, 1 << 28
"""Bytes of the audit that are read at once, and that are looked through at most, from its end."""
OUTCOMES = ("accepted", "overridden")
SHAPE = "See 'Feedback' in CDS Hooks 2.0, and GET /openapi.json."


def read_feedback(body: Mapping[str, Any], service: str) -> list[dict[str, Any]]:
    """What is to be stored of feedback; a RefusedError (400) where it has another shape.

    Args:
        body: The body of the request.
        service: The id of the service.
    """
    given = body.get("feedback")
    if not isinstance(given, list) or not 1 <= len(given) <= MOST_FEEDBACK:
        raise _odd(f"'feedback' must be an array of 1 to {MOST_FEEDBACK} entries.", "feedback")
    return [{"service": service, **_entry(one, f"feedback[{i}]")} for i, one in enumerate(given)]


def _entry(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _odd("feedback must be an object.", where)
    entry: dict[str, Any] = {"card": _own_id(given.get("card"), f"{where}.card")}
    entry["outcome"] = given.get("outcome")
    if entry["outcome"] not in OUTCOMES:
        raise _odd("the outcome must be 'accepted' or 'overridden'.", f"{where}.outcome")
    entry["outcome_time"] = _moment(given.get("outcomeTimestamp"), f"{where}.outcomeTimestamp")
    accepted, place = given.get("acceptedSuggestions"), f"{where}.acceptedSuggestions"
    if entry["outcome"] == "accepted":
        if not isinstance(accepted, list) or not 1 <= len(accepted) <= MOST_FEEDBACK:
            raise _odd("an accepted card needs the suggestions that were accepted.", place)
        entry["suggestions"] = [
            _own_id(one.get("id") if isinstance(one, Mapping) else None, f"{place}[{i}].id")
            for i, one in enumerate(accepted)
        ]
        if given.get("overrideReason") is not None:
            raise _odd("an accepted card has no reason for not following it.",
                       f"{where}.overrideReason")  # fmt: skip
        return entry
    if accepted:
        raise _odd("an overridden card has no accepted suggestions.", place)
    if given.get("overrideReason") is not None:
        entry["override"] = _override(given["overrideReason"], f"{where}.overrideReason")
    return entry


def _override(given: Any, where: str) -> dict[str, str]:
    reason = given.get("reason", {}) if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(reason, Mapping):
        raise _odd("an override reason must be an object with 'reason' or 'userComment'.", where)
    texts = {
        **{k: reason[k] for k in ("code", "system", "display") if k in reason},
        **({"comment": given["userComment"]} if "userComment" in given else {}),
    }
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > COMMENT:
            raise _odd(f"{name!r} must be text of at most {COMMENT:,} characters.", where)
    if "code" not in texts and not texts.get("comment"):
        raise _odd("an override reason needs the code of a reason, or a comment.", where)
    return texts


def _odd(what: str, where: str) -> RefusedError:
    """The refusal of feedback that has another shape than the specification's."""
    return RefusedError(400, "feedback", DprlError(what, where, SHAPE))


def identifier(given: Any) -> str:
    """An id as UUIDs are written; a ValueError for anything else: ids must be found again."""
    if not isinstance(given, str) or len(given) > 45:
        raise ValueError
    return str(uuid.UUID(given))


def _own_id(given: Any, where: str) -> str:
    try:
        return identifier(given)
    except ValueError:
        raise _odd("an id must be a UUID.", where) from None


def _moment(given: Any, where: str) -> str:
    try:
        if not isinstance(given, str) or "T" not in given or len(given) > 40:
            raise ValueError
        time = datetime.fromisoformat(given)
        if time.tzinfo is None:
            raise ValueError
        return time.astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise _odd("a time must be written as 2021-12-11T10:05:31Z.", where) from None


# -- the cards that were given ---------------------------------------------------------------------


def cards_given(
    path: str | os.PathLike[str], asked: Collection[str]
) -> tuple[dict[str, str], bool]:
    """Card → its suggestion ('' where it had none), for those of the ids `asked` that were given.

    The audit is read from its end, at most FAR_BACK bytes of it, until all of them are there.

    Returns:
        The cards, and whether any other was certainly not given: the whole audit was read.
    """
    cards: dict[str, str] = {}
    left, whole = FAR_BACK, True
    wanted = re.compile(b"|".join(re.escape(f'"card":"{card}"'.encode()) for card in asked))
    for part in reversed([*segments(path), Path(path)]):
        with part.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            first, rest = max(0, end - left), b""
            left, whole = left - (end - first), first == 0
            while end > first and len(cards) < len(asked):
                begin = max(first, end - BLOCK)
                file.seek(begin)
                block = file.read(end - begin) + rest
                head, _, lines = block.partition(b"\n") if begin else (b"", b"", block)
                rest, end = head, begin
                if wanted.search(lines):
                    for line in lines.split(b"\n"):
                        if wanted.search(line):
                            _add_card(line, cards)
            file.seek(0)
            whole = whole and b'"event":"segment"' not in file.read(100)  # then there is more
    return cards, whole


def _add_card(line: bytes, cards: dict[str, str]) -> None:
    """Note the card that a line of the audit says was given."""
    try:
        entry = json.loads(line)
    except ValueError:  # a line that a crash cut short
        return
    if isinstance(entry, dict) and entry.get("event") in ("answer", "no answer"):
        cards[str(entry["card"])] = str(entry.get("suggestion", ""))


def marked(
    entries: list[dict[str, Any]], cards: Mapping[str, str], whole: bool
) -> list[dict[str, Any]]:
    """Entries of feedback with "given": whether their card, and its suggestion, was given here.

    Args:
        entries: What `read_feedback` returned.
        cards: The cards that were given, each with its suggestion.
        whole: Whether any other card was certainly not given; else "given" is None.
    """
    result = []
    for entry in entries:
        given: bool | None = None
        if entry["card"] in cards:
            own = cards[entry["card"]]
            given = all(one == own for one in entry.get("suggestions", ()))
        elif whole:
            given = False
        result.append({**entry, "given": given})
    return result


# --- One value of a state, taken from what a hospital's system sends: an observation, or the
# context
#
# Nothing is guessed. An observation counts only if it is final (or amended, corrected), has the
# code that was asked for (itself, or in one of its components), belongs to the patient whom the
# call is about, says its time with a zone, and has the unit that was asked for, of UCUM, or one
# that is the same quantity by the table below. Of several the latest is taken; where two are the
# latest and differ, none is.

FINAL = ("final", "amended", "corrected")
PLAIN = ("valueString", "valueInteger", "valueBoolean", "valueDateTime")
UCUM = "http://unitsofmeasure.org"
ONE, ANY = "1", "any"
"""How a file says that values have no unit, and that they never are too old."""
PATIENT = re.compile(r"(?:https?://[^\s?#]+/)?Patient/([^/\s]+)(?:/_history/[^/\s]+)?")
"""A reference to a patient: relative or an address, with or without a version."""
HARMLESS = ("warning", "information")
"""How severe an issue may be that a system reports beside what it found."""
AHEAD = timedelta(minutes=5)
"""How far the clock of the caller may be ahead of ours."""

PREFIXES = {"": 0, "f": -15, "p": -12, "n": -9, "u": -6, "m": -3, "c": -2, "d": -1, "h": 2, "k": 3}
METRIC = {
    "g": ("mass", "1"), "mol": ("amount", "1"), "eq": ("charge", "1"), "L": ("volume", "1"),
    "l": ("volume", "1"), "m": ("length", "1"), "s": ("time", "1"), "Pa": ("pressure", "1"),
    "bar": ("pressure", "1e5"), "m[Hg]": ("pressure", "133322"), "m[H2O]": ("pressure", "9806.65"),
    "U": ("U", "1"), "[iU]": ("[iU]", "1"), "[IU]": ("[iU]", "1"),
}  # fmt: skip
UNITS = {
    **{prefix + unit: (kind, Fraction(size) * Fraction(10) ** power)
       for prefix, power in PREFIXES.items() for unit, (kind, size) in METRIC.items()},
    "min": ("time", Fraction(60)), "h": ("time", Fraction(3600)), "d": ("time", Fraction(86_400)),
    "[lb_av]": ("mass", Fraction("453.59237")), "[oz_av]": ("mass", Fraction("28.349523125")),
    "[in_i]": ("length", Fraction("0.0254")), "[ft_i]": ("length", Fraction("0.3048")),
    **{count: ("count", Fraction(1)) for count in ("", "1", "{beats}", "{breaths}")},
    **{f"10{sign}{n}": ("count", Fraction(10) ** n) for sign in "*^" for n in (3, 6, 9, 12)},
}  # fmt: skip
"""Unit, as UCUM writes it: its quantity, and how much of it. Others are the same as themselves."""
DEGREES = {
    "K": (Fraction(1), Fraction(0)), "Cel": (Fraction(1), Fraction("273.15")),
    "[degF]": (Fraction(5, 9), Fraction("459.67")),
}  # fmt: skip
"""Unit of temperature: kelvins for a degree, and the degrees by which its zero lies above 0 K."""


def _quantity(unit: str) -> tuple[str, list[str], Fraction] | None:
    """What is counted, per what (mg/kg does not cancel), and its size; None if not in UNITS."""
    parts = [UNITS.get(part) for part in unit.split("/")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or "".join(kind for kind, _ in known) == "count":
        return None  # a number without a unit is what it says: % is no number
    (kind, size), *per = known
    for _, one in per:
        size /= one
    return kind, sorted(kind for kind, _ in per), size


def _converted(value: float, unit: str, wanted: str, molar_mass: float | None) -> float | None:
    """A value in another unit of the same quantity; None where it is not known to be the same."""
    exact = Fraction(str(value))
    if unit in DEGREES and wanted in DEGREES:
        (size, zero), (other, below) = DEGREES[unit], DEGREES[wanted]
        return float((exact + zero) * size / other - below)
    have, want = _quantity(unit), _quantity(wanted)
    if have is None or want is None or have[1] != want[1]:
        return None
    exact *= have[2] / want[2]
    if have[0] == want[0]:
        return float(exact)
    if molar_mass is None or {have[0], want[0]} != {"mass", "amount"}:
        return None
    grams = Fraction(str(molar_mass))
    return float(exact / grams if want[0] == "amount" else exact * grams)


class LackingError(Exception):
    """There is no value that may be used; the text says why, and holds no value."""


class AbsentError(LackingError):
    """Nothing was measured, or too long ago: in a log this is a gap."""


@dataclass(frozen=True)
class Source:
    """Where one value of a state comes from.

    Attributes:
        name: The feature or column; '' where the state is one label.
        code: Code of the observation, `system|code`; '' where the value is in the context.
        unit: Unit that the value must have, as UCUM writes it; '1' for values without a unit.
        context: Name of the member of the call's context; '' where it is an observation.
        max_age: Hours after which a value is too old; None where it never is.
        gaps: Whether a value that is absent, or too old, is a gap, as in the log; else there is no
            suggestion.
        molar_mass: Grams of one mole, for values that come as a mass or as an amount; None where
            they are not converted.
        labels: System of the code that is taken of a coded value; '' where it must be the only one.
    """

    name: str
    code: str = ""
    unit: str = ONE
    context: str = ""
    max_age: float | None = None
    gaps: bool = False
    molar_mass: float | None = None
    labels: str = ""

    @classmethod
    def of(cls, name: str, given: Any) -> Source:
        """A source as a file describes it; a ParameterError says what is wrong with it."""
        where = f"[features.{name}]" if name else "[state]"
        if not isinstance(given, Mapping):
            raise ParameterError(f"{where} must be a table.", do=_HOW)
        texts = {k: given.get(k, "") for k in ("code", "unit", "context", "labels")}
        odd = [k for k in given if k not in (*texts, "max_age", "gaps", "molar_mass")]
        odd += [k for k, v in texts.items() if not isinstance(v, str)]
        age = given.get("max_age")
        if age not in (None, ANY) and (type(age) not in (int, float) or not 0 < age < 1e6):
            odd.append("max_age")
        if not isinstance(given.get("gaps", False), bool):
            odd.append("gaps")
        mass, kind = given.get("molar_mass"), _quantity(texts["unit"]) if not odd else None
        if mass is not None and (
            type(mass) not in (int, float) or not 0 < mass < 1e9
            or kind is None or kind[0] not in ("mass", "amount")
        ):  # fmt: skip
            odd.append("molar_mass")
        if odd:
            raise ParameterError(f"{where} has an odd {odd[0]!r}.", do=_HOW)
        if bool(texts["code"]) == bool(texts["context"]):
            raise ParameterError(f"{where} needs either 'code' or 'context'.", do=_HOW)
        system, bar, code = texts["code"].partition("|")
        if texts["code"] and not (system and bar and code and "&" not in code):
            raise ParameterError(
                f"{where} needs a code with its system; got {texts['code'][:60]!r}.",
                do="Write it as http://loinc.org|8480-6.",
            )
        for key, given_so, way_out in (
            ("unit", texts["unit"], ONE), ("max_age", age, ANY), ("labels", ANY, ""),
        ):  # fmt: skip
            if texts["context"] and key in given:
                raise ParameterError(f"{where}: {key!r} means nothing with 'context'.", do=_HOW)
            if texts["code"] and given_so in (None, ""):
                raise ParameterError(
                    f"{where} needs {key!r}: without it any value would do.",
                    do=f'Write {key} = "{way_out}" if that is meant.',
                )
        limit = None if age in (None, ANY) else float(age)
        gaps = given.get("gaps", False)
        unit = texts["unit"] or ONE
        return cls(name, texts["code"], unit, texts["context"], limit, gaps, mass, texts["labels"])

    @property
    def key(self) -> str:
        """Key of the prefetched data."""
        return self.name or "state"

    @property
    def query(self) -> str:
        """The query that the caller is asked to run beforehand."""
        patient = "{{context.patientId}}"
        status = ",".join(FINAL)
        return (
            f"Observation?patient={patient}&combo-code={self.code}&status={status}"
            "&_sort=-date&_count=1"
        )

    def value(self, context: Mapping[str, Any], data: Any, now: datetime) -> Any:
        """The value, None for a gap; a LackingError where there is none that may be used."""
        try:
            return self._value(context, data, now)
        except AbsentError:
            if self.gaps:
                return None
            raise

    def _value(self, context: Mapping[str, Any], data: Any, now: datetime) -> Any:
        if self.context:
            if context.get(self.context) is None:
                raise AbsentError(f"the context has no {self.context}")
            return context[self.context]
        observations = _observations(data, self.key)
        patient, other = context.get("patientId"), bool(observations)
        time, latest = None, []
        for observation in observations:
            parts = self._parts(observation)
            other = other and not parts
            if parts and self._usable(observation, patient):
                observed = self._time(observation)
                if time is None or observed > time:
                    time, latest = observed, parts
                elif observed == time:
                    latest += parts
        if other:  # a system that does not know the query may answer another one: this is no gap
            raise LackingError(f"there is no final value of {self.key} in what was sent for it")
        if time is None:
            raise AbsentError(f"there is no final value of {self.key}")
        if time - now > AHEAD:
            raise LackingError(f"the value of {self.key} lies in the future")
        if self.max_age is not None and now - time > timedelta(hours=self.max_age):
            raise AbsentError(f"the value of {self.key} is older than {self.max_age:g} hours")
        value, *others = [self._read(part) for part in latest]
        if any(other != value for other in others):
            raise LackingError(f"the latest values of {self.key} are of the same time and differ")
        return value

    def _parts(self, observation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What holds a value of the code that was asked for: components, or the observation."""
        system, _, code = self.code.partition("|")
        inside = observation.get("component")
        parts: list[Mapping[str, Any]] = [
            part for part in (inside if isinstance(inside, list) else ())
            if isinstance(part, dict) and _coded(part, system, code)
        ]  # fmt: skip
        if _coded(observation, system, code) and (not parts or _valued(observation)):
            parts.append(observation)
        return parts

    def _usable(self, observation: Mapping[str, Any], patient: Any) -> bool:
        """Whether it is final; a LackingError where it is not this patient's."""
        if observation.get("status") not in FINAL:
            return False
        subject = _part(observation, "subject").get("reference")
        if not isinstance(subject, str):
            raise LackingError(f"the value of {self.key} does not say whose it is")
        match = PATIENT.fullmatch(subject)
        if match is None or match[1] != patient:
            raise LackingError(f"the value of {self.key} belongs to another patient")
        return True

    def _time(self, observation: Mapping[str, Any]) -> datetime:
        """When it was observed; without a time it might be the latest, so none is skipped."""
        time = _time(observation)
        if time is None:
            raise LackingError(f"a value of {self.key} does not come with its time")
        if time.tzinfo is None:
            raise LackingError(f"the time of a value of {self.key} has no time zone")
        return time

    def _read(self, observation: Mapping[str, Any]) -> Any:
        if "valueQuantity" in observation:
            quantity = _part(observation, "valueQuantity")
            value, unit = quantity.get("value"), quantity.get("code", "")
            bare = not any(quantity.get(k) for k in ("code", "unit", "system"))
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise LackingError(f"the value of {self.key} is no number")
            if quantity.get("comparator"):
                raise LackingError(f"the value of {self.key} is only a bound")
            if bare and self.unit == ONE:
                return value
            if unit != self.unit and quantity.get("system") == UCUM and isinstance(unit, str):
                try:
                    value = _converted(value, unit, self.unit, self.molar_mass)
                except (ValueError, OverflowError):  # not a number, or too large a one
                    raise LackingError(f"the value of {self.key} is no number") from None
                unit = unit if value is None else self.unit
            if unit != self.unit:
                raise LackingError(f"the value of {self.key} has another unit than {self.unit!r}")
            if quantity.get("system") != UCUM:
                raise LackingError(f"the unit of the value of {self.key} is not one of UCUM")
            return value
        if self.unit != ONE and _valued(observation):
            raise LackingError(f"the value of {self.key} has no unit")
        for name in PLAIN:
            if name in observation:
                return observation[name]
        codings = _part(observation, "valueCodeableConcept").get("coding")
        codes = [
            c.get("code") if isinstance(c, Mapping) else None
            for c in (codings if isinstance(codings, list) else ())
            if not self.labels or (isinstance(c, Mapping) and c.get("system") == self.labels)
        ]
        if len(codes) == 1 and isinstance(codes[0], str):
            return codes[0]
        raise LackingError(f"the observation of {self.key} has no value that can be read")


_HOW = "See 'Answer a hospital's system' in the documentation."


def _part(resource: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = resource.get(name)
    return part if isinstance(part, dict) else {}  # JSON has no other; asking for Mapping is slow


def _coded(part: Mapping[str, Any], system: str, code: str) -> bool:
    codings = _part(part, "code").get("coding")
    for one in codings if isinstance(codings, list) else ():
        if isinstance(one, dict) and one.get("code") == code and one.get("system") == system:
            return True
    return False


def _valued(part: Mapping[str, Any]) -> bool:
    return any(name.startswith("value") for name in part)


def _observations(data: Any, key: str) -> list[Mapping[str, Any]]:
    """The observations in prefetched data; a LackingError where these are no answer to a query.

    What was not looked up is no gap: it may have been measured. Null and a bundle without entries
    are an answer: nothing is there. A report of the caller's own system that the query failed is
    not, nor is anything else than observations.
    """
    if data is None:
        return []
    kind = data.get("resourceType") if isinstance(data, Mapping) else None
    if kind == "Observation":
        return [data]
    if kind not in ("Bundle", "OperationOutcome"):
        raise LackingError(f"what was fetched beforehand is no observation of {key}")
    failed, found = kind == "OperationOutcome", []
    entries = data.get("entry")
    for entry in entries if isinstance(entries, list) else ():
        resource = _part(entry, "resource") if isinstance(entry, dict) else {}
        kind = resource.get("resourceType")
        if kind == "Observation":
            found.append(resource)
        elif kind == "OperationOutcome":
            issues = resource.get("issue")
            failed |= not isinstance(issues, list) or not all(
                isinstance(issue, Mapping) and issue.get("severity") in HARMLESS for issue in issues
            )
    if failed:
        raise LackingError(f"the caller's system could not look up the value of {key}")
    if not entries and data.get("total", 0) not in (None, 0):
        raise LackingError(f"the bundle counts observations and has none of {key}")
    return found


def _time(observation: Mapping[str, Any]) -> datetime | None:
    """When the observation was made; None where it does not say.

    A period counts from its end, one without an end from its start; when a result was issued only
    where nothing else is said, for a sample may have been taken a day before.
    """
    given = observation.get("effectiveDateTime")
    if given is None:
        period = _part(observation, "effectivePeriod")
        given = next((time for time in (
            observation.get("effectiveInstant"), period.get("end"), period.get("start"),
            observation.get("effectiveTiming"), observation.get("issued"),
        ) if time is not None), None)  # fmt: skip
    try:
        return datetime.fromisoformat(given) if isinstance(given, str) else None
    except ValueError:
        return None


# --- The service as CDS Hooks 2.0 has it: discovery and cards (feedback: `dprl.apps.serve.hooks`)

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
            word = float(f"{word:.9g}") if isinstance(word, float) else word
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
        warned = answer["kind"] == "avoid"
        action = str(Avoid(answer["avoid"]) if warned else answer["action"])
        action = answer.get("called", action)
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
