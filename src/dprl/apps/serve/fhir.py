"""One value of a state, taken from what a hospital's system sends: an observation, or the context.

Nothing is guessed. An observation counts only if it is final (or amended, corrected), has the code
that was asked for, belongs to the patient whom the call is about, says its time with a zone, and
has the unit that was asked for, of UCUM. Of several the latest is taken; where two are the latest
and differ, none is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dprl.errors import ParameterError

__all__ = ["LackingError", "Source"]

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
    """

    name: str
    code: str = ""
    unit: str = ONE
    context: str = ""
    max_age: float | None = None
    gaps: bool = False

    @classmethod
    def of(cls, name: str, given: Any) -> Source:
        """A source as a file describes it; a ParameterError says what is wrong with it."""
        where = f"[features.{name}]" if name else "[state]"
        if not isinstance(given, Mapping):
            raise ParameterError(f"{where} must be a table.", do=_HOW)
        texts = {k: given.get(k, "") for k in ("code", "unit", "context")}
        odd = [k for k in given if k not in (*texts, "max_age", "gaps")]
        odd += [k for k, v in texts.items() if not isinstance(v, str)]
        age = given.get("max_age")
        if age not in (None, ANY) and (type(age) not in (int, float) or not 0 < age < 1e6):
            odd.append("max_age")
        if not isinstance(given.get("gaps", False), bool):
            odd.append("gaps")
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
        for key, given_so, way_out in (("unit", texts["unit"], ONE), ("max_age", age, ANY)):
            if texts["context"] and key in given:
                raise ParameterError(f"{where}: {key!r} means nothing with 'context'.", do=_HOW)
            if texts["code"] and given_so in (None, ""):
                raise ParameterError(
                    f"{where} needs {key!r}: without it any value would do.",
                    do=f'Write {key} = "{way_out}" if that is meant.',
                )
        limit = None if age in (None, ANY) else float(age)
        gaps = given.get("gaps", False)
        return cls(name, texts["code"], texts["unit"] or ONE, texts["context"], limit, gaps)

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
            f"Observation?patient={patient}&code={self.code}&status={status}&_sort=-date&_count=1"
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
        why = _unanswered(data)
        if why:  # what was not looked up is no gap: it may have been measured
            raise LackingError(f"{why} {self.key}")
        patient = context.get("patientId")
        usable = [(self._time(o), o) for o in _observations(data) if self._usable(o, patient)]
        if not usable:
            raise AbsentError(f"there is no final value of {self.key}")
        time = max(time for time, _ in usable)
        if time - now > AHEAD:
            raise LackingError(f"the value of {self.key} lies in the future")
        if self.max_age is not None and now - time > timedelta(hours=self.max_age):
            raise AbsentError(f"the value of {self.key} is older than {self.max_age:g} hours")
        value, *others = [self._read(o) for observed, o in usable if observed == time]
        if any(other != value for other in others):
            raise LackingError(f"the latest values of {self.key} are of the same time and differ")
        return value

    def _usable(self, observation: Mapping[str, Any], patient: Any) -> bool:
        """Whether it is what was asked for; a LackingError where it is not this patient's."""
        system, _, code = self.code.partition("|")
        codings = _part(observation, "code").get("coding")
        matches = isinstance(codings, list) and any(
            isinstance(c, Mapping) and c.get("system") == system and c.get("code") == code
            for c in codings
        )
        if observation.get("status") not in FINAL or not matches:
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
            if unit != self.unit:
                raise LackingError(f"the value of {self.key} has another unit than {self.unit!r}")
            if quantity.get("system") != UCUM:
                raise LackingError(f"the unit of the value of {self.key} is not one of UCUM")
            return value
        if self.unit != ONE:
            raise LackingError(f"the value of {self.key} has no unit")
        for name in PLAIN:
            if name in observation:
                return observation[name]
        codings = _part(observation, "valueCodeableConcept").get("coding")
        if isinstance(codings, list) and len(codings) == 1 and isinstance(codings[0], Mapping):
            code = codings[0].get("code")
            if isinstance(code, str):
                return code
        raise LackingError(f"the observation of {self.key} has no value that can be read")


_HOW = "See 'Answer a hospital's system' in the documentation."


def _part(resource: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = resource.get(name)
    return part if isinstance(part, Mapping) else {}


def _unanswered(data: Any) -> str:
    """Why prefetched data are no answer to a query, up to the name of the value; '' where they are.

    Null and a bundle without entries are an answer: nothing is there. A report of the caller's own
    system that the query failed is not, nor is anything else than observations.
    """
    if data is None:
        return ""
    kind = data.get("resourceType") if isinstance(data, Mapping) else None
    if kind == "OperationOutcome":
        return "the caller's system could not look up the value of"
    if kind not in ("Observation", "Bundle"):
        return "what was fetched beforehand is no observation of"
    entries = data.get("entry")
    for entry in entries if isinstance(entries, list) else ():
        resource = entry.get("resource") if isinstance(entry, Mapping) else None
        if isinstance(resource, Mapping) and resource.get("resourceType") == "OperationOutcome":
            issues = resource.get("issue")
            if not isinstance(issues, list) or not all(
                isinstance(issue, Mapping) and issue.get("severity") in HARMLESS for issue in issues
            ):
                return "the caller's system could not look up the value of"
    if not entries and data.get("total", 0) not in (None, 0):
        return "the bundle counts observations and has none of"
    return ""


def _observations(data: Any) -> Iterator[Mapping[str, Any]]:
    """The observations in prefetched data: one resource, or a bundle of them."""
    if not isinstance(data, Mapping):
        return
    if data.get("resourceType") == "Observation":
        yield data
    entries = data.get("entry")
    if data.get("resourceType") == "Bundle" and isinstance(entries, list):
        for entry in entries:
            resource = entry.get("resource") if isinstance(entry, Mapping) else None
            if isinstance(resource, Mapping) and resource.get("resourceType") == "Observation":
                yield resource


def _time(observation: Mapping[str, Any]) -> datetime | None:
    """When the observation was made; None where it does not say."""
    period = _part(observation, "effectivePeriod")
    for given in (
        observation.get("effectiveDateTime"), observation.get("effectiveInstant"),
        period.get("end"), observation.get("issued"),
    ):  # fmt: skip
        if isinstance(given, str):
            try:
                return datetime.fromisoformat(given)
            except ValueError:
                return None
    return None
