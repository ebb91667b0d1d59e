"""Narrowing a rule on the review page: the form, what the held-out half says, and what is kept.

A reviewer changes thresholds, leaves out labels or asks one more feature, and sees what the half
that certified says of the narrower rule (`dprl.learners.rules.held_out`). A verdict on it carries
its conditions and the facts that were seen, so that the approved policy can be written without the
training log, and says what the reviewer saw.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dprl._core.table import to_json_value
from dprl.errors import DprlError, LogError, ParameterError
from dprl.learners.rules.held_out import HeldOut
from dprl.logs.reading.dates import day_of, on_day
from dprl.policies.rules.policy import RulePolicy
from dprl.policies.rules.rule import (  # fmt: skip
    WITH_LABELS,
    WITH_NUMBER,
    Condition,
    Rule,
    dated,
    day_words,
    days_told,
    number_words,
)
from dprl.policies.rules.text import RuleRecord, record_of


@dataclass(frozen=True)
class Narrowing:
    """A narrower rule and what the half that certified says of it.

    Attributes:
        conditions: All that it asks, as a policy file keeps them.
        facts: What is on record about it.
    """

    conditions: tuple[dict[str, Any], ...]
    facts: Mapping[str, Any]

    def text(self) -> str:
        """The narrowing as a verdict keeps it: JSON, the same for the same narrowing."""
        return json.dumps(
            to_json_value({"conditions": list(self.conditions), "facts": dict(self.facts)}),
            sort_keys=True,
        )


def read_kept(text: str) -> Narrowing | None:
    """The narrowing that a verdict keeps; None where its rule was judged as it stands."""
    if not text:
        return None
    kept = json.loads(text)
    return Narrowing(tuple(kept["conditions"]), kept["facts"])


def kept_words(text: str, dates: Collection[str] = ()) -> str:
    """Where a narrower rule that a verdict keeps holds, in words; '' where there is none.

    Args:
        text: What the verdict keeps.
        dates: The features that are dates. Default (): none.
    """
    kept = read_kept(text)
    if kept is None:
        return ""
    return dated(Rule(tuple(Condition.from_dict(c) for c in kept.conditions), ""), dates).words


@dataclass(frozen=True)
class Shown:
    """A narrower rule as the page shows it before somebody judges it.

    Attributes:
        words: Where it holds.
        record: What is on record about it.
        narrowing: What a verdict on it keeps.
        few: Why it cannot be approved; '' where it can.
    """

    words: str
    record: RuleRecord
    narrowing: Narrowing
    few: str

    @property
    def drawn(self) -> tuple[float | None, ...]:
        """The differences that the page draws of it."""
        rule = self.record
        return (rule.advantage, rule.low, rule.high, *(rule.returns or ()))

    @property
    def asked(self) -> str:
        """Its conditions as JSON, for the form of the verdict."""
        return json.dumps(list(self.narrowing.conditions))


def look(half: HeldOut, number: int, form: Mapping[str, str]) -> Shown:
    """What the half that certified says of a narrower rule.

    Args:
        half: The half that certified.
        number: The number of the rule, from 1.
        form: What was sent: "conditions" as JSON, or the fields of the form.

    Returns:
        The narrower rule as the page shows it.

    Raises:
        DprlError: It cannot be read, or it is not narrower.
    """
    asked = _listed(form["conditions"]) if "conditions" in form else _asked_in(half, number, form)
    facts = half.facts(number, asked)
    few = ""
    try:
        policy = half.narrow(number, asked)
    except ParameterError as error:
        few, policy = error.what, half.policy.narrowed(number, asked, facts)
    rule = policy.rules[number - 1]
    kept = tuple(c.to_dict() for c in asked)
    return Shown(rule.words, record_of(policy, number - 1), Narrowing(kept, rule.facts), few)


def fields_of(policy: RulePolicy, number: int, given: Any = None) -> list[dict[str, Any]]:
    """The form: one entry for each feature, those of the rule first.

    Args:
        policy: The policy.
        number: The number of the rule, from 1.
        given: What was sent with the form, to show it again. Default None: the rule as it stands.

    Returns:
        For each feature its place, name, labels (None for a number), what is asked of it now, the
        texts of both ends, the labels that are left, its range in training, and whether the rule
        asks it.
    """
    rule = policy.rules[number - 1]
    ranges = policy.provenance.get("ranges") or [None] * len(policy.feature_names)
    fields, dates = [], days_told(policy)
    for place, name in enumerate(policy.feature_names):
        own = [c for c in rule.conditions if c.feature == name]
        levels, ends, day = policy.levels_of(name), ranges[place], name in dates
        lows = [c.value for c in own if c.kind == "above"]
        highs = [c.value for c in own if c.kind == "at most"]
        left = [x for x in levels or () if all(_accepts(c, x) for c in own)]
        field = {
            "place": place, "name": name, "levels": levels, "asked": bool(own),
            "fixed": " and ".join(c.demand for c in own if c.kind in ("missing", "known")),
            "closed": any(c.kind == "missing" for c in own),
            "above": _end_words(max(lows), day) if lows else "",
            "most": _end_words(min(highs), day) if highs else "",
            "left": left if own else [], "day": day,
            "range": _shown_range(ends, day) if levels is None else None,
        }  # fmt: skip
        if given is not None:
            field["above"] = given.get(f"above-{place}", "")[:40]
            field["most"] = given.get(f"most-{place}", "")[:40]
            field["left"] = [x for x in levels or () if x in given.getlist(f"label-{place}")]
        fields.append(field)
    return sorted(fields, key=lambda field: not field["asked"])


def _listed(text: str) -> tuple[Condition, ...]:
    """The conditions that are written as JSON."""
    try:
        conditions = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError("these conditions cannot be read.") from error
    if not isinstance(conditions, list):
        raise ParameterError("these conditions cannot be read.")
    return tuple(Condition.from_dict(c) for c in conditions)


def _asked_in(half: HeldOut, number: int, given: Any) -> tuple[Condition, ...]:
    """The conditions that a form asks for; a ParameterError where it cannot be read."""
    policy = half.policy
    kept = [c for c in policy.rules[number - 1].conditions if c.kind in ("missing", "known")]
    conditions = [*kept]
    for field in fields_of(policy, number, given):
        name, levels = field["name"], field["levels"]
        if field["closed"]:
            continue
        if levels is None:
            for kind, text in (("above", field["above"]), ("at most", field["most"])):
                if text.strip():
                    end = _end(policy, name, text)
                    conditions.append(Condition(name, kind, end))  # type: ignore[arg-type]
        elif field["left"] and (field["asked"] or len(field["left"]) < len(levels)):
            conditions.append(Condition(name, "in", labels=tuple(field["left"])))
        elif field["asked"] and any(
            c.feature == name and c.kind in WITH_LABELS for c in policy.rules[number - 1].conditions
        ):
            raise ParameterError(f"no label of {name} is left.", do="Leave at least one label.")
    return tuple(conditions)


def _end_words(value: float, day: bool) -> str:
    """An end of a rule as the form shows it: a date, or a number."""
    return day_words(value) if day else number_words(value)


def _shown_range(ends: Any, day: bool) -> Any:
    """The smallest and the largest value in training, as the form shows them."""
    return [on_day(end) for end in ends] if day and ends and None not in ends else ends


def _end(policy: RulePolicy, name: str, text: str) -> float:
    """The number that a text in the form stands for; of a date its days.

    The text of an end that was not touched is the number that the rule has, to its last digit.
    """
    if name not in days_told(policy):
        return _number(name, text)
    own = [c.value for r in policy.rules for c in r.conditions if c.feature == name]
    same = [value for value in own if day_words(value) == text.strip()]
    if same:
        return same[0]
    written = {} if policy.encoding is None else policy.encoding.days
    try:
        return float(day_of(text.strip(), written.get(name, "iso"), name))
    except LogError as error:
        raise ParameterError(
            f"{name}: {text.strip()[:40]!r} is no date.", do="Write it as 2024-02-01."
        ) from error


def _number(name: str, text: str) -> float:
    try:
        number = float(text.strip().replace("−", "-"))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ParameterError(
            f"{name}: {text.strip()[:40]!r} is no number.", do="Write it as 62.5, with a point."
        )
    return number


def _accepts(condition: Condition, label: str) -> bool:
    if condition.kind in WITH_LABELS:
        return (label in condition.labels) == (condition.kind == "in")
    return condition.kind not in (*WITH_NUMBER, "missing")


def words_of(error: DprlError) -> str:
    """An error in one line."""
    return " ".join(part for part in (error.what, error.do) if part)
