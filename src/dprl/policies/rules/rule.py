"""Rule: a region of features that people can read, and one suggestion for all states in it.

A condition asks one feature: at most a number, above a number, in some labels, not in them,
missing, known. A missing feature (NaN) satisfies "missing" and nothing else. An infinite number is
no measurement, and a label that the policy does not have is none of its labels: both satisfy
nothing, not even "not in". A rule holds in a state that satisfies all of its conditions
and lies in none of its exceptions: regions in which the record shows that hardly anybody was given
what it suggests (`dprl.evidence.support`). There the policy defers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np

from dprl._core.arrays import Bools, Floats
from dprl._core.inference import gamma_words
from dprl._core.table import to_json_value
from dprl._core.words import joined, say, sentences, word
from dprl.errors import ParameterError, PolicyError
from dprl.logs.encoding.categories import Levels
from dprl.logs.log import Facts, Label
from dprl.logs.reading.dates import days_of, on_day
from dprl.policies.protocol import Avoid

if TYPE_CHECKING:
    from dprl.policies.rules.policy import RulePolicy


# --- What is on record about a rule: checked numbers, and how they are said

COUNTS = ("steps", "groups", "groups_took", "groups_others", "groups_proposed")
SHARES = ("p", "overlap", "share", "changed", "raises", "lowers", "gate_p")
NUMBERS = ("advantage", "se", "low", "high", "gain", "proved_low", "log10_e", "gate_low")
GAMMAS = ("gamma_star", "gamma_point")
GRADES = ("proved", "large-sample")
PAIRED = ("share_usual", "groups_by_action")
LARGE = 0.1
"""A difference between takers and others, in standard deviations, that is worth a warning."""


def checked_facts(given: Any) -> dict[str, Any]:
    """The facts as JSON values; a PolicyError where one is not what its name says."""
    if not isinstance(given, Mapping):
        raise _odd_fact("facts", given)
    facts: dict[str, Any] = to_json_value(given)
    checks: dict[str, Callable[[Any], bool]] = {
        **dict.fromkeys(COUNTS, _is_count),
        **dict.fromkeys(SHARES, _is_share),
        **dict.fromkeys(NUMBERS, _is_fact_number),
        "share_usual": lambda value: _is_pairs(value, _is_share),
        "groups_by_action": lambda value: _is_pairs(value, _is_count),
        "se": lambda value: _is_fact_number(value) and value >= 0,
        **dict.fromkeys(GAMMAS, lambda value: _is_fact_number(value) and value >= 1),
        "balance": _is_balance,
        "returns": _is_whole,
        "narrowed": lambda value: isinstance(value, bool),
        "narrowed_from": lambda value: isinstance(value, str),
        "grade": _is_grade,
    }
    for name, is_good in checks.items():
        if facts.get(name) is not None and not is_good(facts[name]):
            raise _odd_fact(name, facts[name])
    low, high = facts.get("low"), facts.get("high")
    if low is not None and high is not None and low > high:
        raise _odd_fact("low and high", [low, high])
    balance = facts.get("balance")
    if isinstance(balance, list):  # either order was written; one is kept
        facts["balance"] = sorted(balance, key=lambda part: not isinstance(part, str))
    shares = facts.get("share_usual")
    if shares and not sum(share for _, share in shares) <= 1 + 1e-6:
        raise _odd_fact("share_usual", shares)
    return facts


def usual_of(facts: Mapping[str, Any]) -> list[tuple[Any, float]]:
    """(action, share) of usual practice where a rule holds, the largest share first."""
    counts = facts.get("groups_by_action") or []
    total = sum(count for _, count in counts)
    pairs = [(action, count / total) for action, count in counts] if total else []
    pairs = pairs or [(action, float(share)) for action, share in facts.get("share_usual") or []]
    return sorted((pair for pair in pairs if pair[1] > 0), key=lambda pair: -pair[1])


def groups_by(facts: Mapping[str, Any], actions: Sequence[Any]) -> list[int]:
    """How many groups took each action where a rule holds, all of them together `groups`.

    Where only shares are on record the counts are the shares of `groups`, rounded so that they add
    up and the usual action stays the usual one; without `groups`, nothing is counted.
    """
    counts = dict.fromkeys(actions, 0)
    if facts.get("groups_by_action"):
        return list((counts | dict(facts["groups_by_action"])).values())
    shares, total = usual_of(facts), facts.get("groups") or 0
    whole = sum(share for _, share in shares)
    if not shares or not total:
        return list(counts.values())
    exact = {action: total * share / whole for action, share in shares}
    counts |= {action: math.floor(number + 1e-9) for action, number in exact.items()}
    most_lost = sorted(exact, key=lambda action: counts[action] - exact[action])
    for action in most_lost[: total - sum(counts.values())]:
        counts[action] += 1
    (first, largest), *others = shares
    for action, share in others:
        if share < largest and 0 < counts[action] == counts[first]:
            counts[action] -= 1
            counts[first] += 1
    return list(counts.values())


def interval_words(facts: Mapping[str, Any], delta: float | None) -> str:
    """What the suggestion brought over doing otherwise, with its interval; '' if not on record."""
    advantage = facts.get("advantage")
    if advantage is None:
        return ""
    words = say("it brought {a:+.3g} over doing otherwise", a=advantage)
    low, high, p = (facts.get(name) for name in ("low", "high", "p"))
    alone = bool(facts.get("narrowed"))
    if low is None and high is None:
        se = facts.get("se")
        inside = [] if se is None else [say("standard error {se:.2g}", se=se)]
    else:
        if low is not None and high is not None:
            ends = say("{low:+.3g} to {high:+.3g}, each end", low=low, high=high)
        elif low is not None:
            ends = say("from {low:+.3g} on, the end", low=low)
        else:
            ends = say("up to {high:+.3g}, the end", high=high)
        level = "" if delta is None else say("with confidence {p:g} %", p=100 * (1 - delta))
        scope = (
            say("for this rule alone, narrowed after looking")
            if alone
            else say("for all rules at once")
        )
        inside = [sentences(ends, level, scope)]
    if p is not None:
        inside.append(
            say("p, not adjusted, {p:.2g}", p=p) if alone else say("adjusted p {p:.2g}", p=p)
        )
    return joined("", (words, " (", joined("; ", inside), ")")) if inside else words


def hidden_words(facts: Mapping[str, Any]) -> str:
    """How strong an unrecorded cause must be to undo a rule; '' where it is not on record."""
    star, point = (facts.get(name) for name in GAMMAS)
    if star is None:
        return ""
    estimated = (
        ""
        if point is None
        else say(" ({gamma} as estimated, without chance)", gamma=gamma_words(point))
    )
    return say(
        "an unrecorded cause could undo it if it moved the odds of the suggestion by a larger "
        "factor than Γ* = {gamma_words}{estimated}, the features being equal",
        gamma_words=gamma_words(star),
        estimated=estimated,
    )


def evidence_words(facts: Mapping[str, Any], unit: str) -> list[str]:
    """Who is behind a rule on both halves, the overlap and the balance, as far as on record."""
    parts = [hidden_words(facts)] if hidden_words(facts) else []
    groups, took, proposed = (
        facts.get(name) for name in ("groups", "groups_took", "groups_proposed")
    )
    if groups is not None:
        did = "" if took is None else say(", {n:,} of which took it", n=took)
        who = {"groups": groups, "unit": word(unit), "did": did}
        parts.append(
            say("{groups:,} {unit} came here{did}", **who)
            if not proposed  # all of them certified it
            else say("{groups:,} {unit} of the half that certified came here{did}", **who)
        )
    if proposed:
        parts.append(f"{proposed:,} {unit} of the half that proposed came here")
    raises, lowers = facts.get("raises"), facts.get("lowers")
    if raises is not None and lowers is not None:
        parts.append(
            f"more than was given at {100 * raises:.0f} % of steps, less at {100 * lowers:.0f} %"
        )
    if facts.get("overlap") is not None:
        parts.append(
            f"it was likely enough to be judged at {100 * facts['overlap']:.0f} % of steps"
        )
    if imbalance_words(facts):
        parts.append(imbalance_words(facts))
    elif facts.get("balance") is not None and facts["balance"][0]:
        feature, difference = facts["balance"]
        parts.append(f"largest imbalance {difference:.2g} standard deviations ({feature})")
    if facts.get("returns") is not None and facts["returns"][0] is not None:
        mean, low, high = facts["returns"]
        ends = "" if low is None or high is None else f" ({low:+.3g} to {high:+.3g}, it alone)"
        parts.append(f"from whole returns, without a model of values, {mean:+.3g}{ends}")
    return parts


def imbalance_words(facts: Mapping[str, Any]) -> str:
    """A large difference between takers and others, as a warning; '' where there is none."""
    feature, difference = facts.get("balance") or ("", 0.0)
    if not feature or difference <= LARGE:
        return ""
    return say(
        "takers still differ from others in {column} by {size:.2g} standard deviations after "
        "weighting: some of the difference in outcome may come from that",
        column=feature,
        size=difference,
    )


def _is_fact_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: Any) -> bool:
    return _is_fact_number(value) and 0 <= value <= 1 + 1e-9


def _is_grade(value: Any) -> bool:
    return value in GRADES


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _is_pairs(value: Any, is_good: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
        and all(_is_label(label) and is_good(number) for label, number in value)
        and len({label for label, _ in value}) == len(value)
    )


def _is_balance(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    names = [part for part in value if isinstance(part, str)]
    return len(names) == 1 and all(_is_fact_number(part) for part in value if part is not names[0])


def _is_whole(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(number is None or _is_fact_number(number) for number in value)
    )


def _odd_fact(name: str, value: Any) -> PolicyError:
    return PolicyError(
        f"what is on record about a rule is not what it should be: {name}.",
        repr(value)[:200],
        "Fit the policy again, or mend its rules.",
    )


def labels_in(facts: Mapping[str, Any]) -> Sequence[Any]:
    """The actions that the facts name."""
    return [label for name in PAIRED for label, _ in facts.get(name) or ()]


# --- Rule: a region of features that people can read, and one suggestion for all states in it

ConditionKind: TypeAlias = Literal["at most", "above", "missing", "known", "in", "not in"]
KINDS: tuple[ConditionKind, ...] = get_args(ConditionKind)
"""What a condition may ask; their places are the codes of the compiled loop."""
WITH_NUMBER = ("at most", "above")
WITH_LABELS = ("in", "not in")
HUGE = 1e100
"""The largest number that is added up."""
PLAIN = re.compile(r"[^\W_][\w.+/-]*")
"""Labels that are read without quotation marks."""
OWN_WORDS = {"and", "or", "nor", "neither", "not", "is", "at", "above", "after", "missing", "known"}
LAST_DAY = 2_932_896
"""The last day of the year 9999: beyond, days are told as numbers."""


def number_words(value: float) -> str:
    """A number as people write it, with all of its digits: read again, it is the same number."""
    return repr(float(value)).removesuffix(".0")


def short_number(value: float) -> float:
    """The number, as an int where that is how people write it; its text is `number_words`."""
    text = repr(float(value))
    return int(text[:-2]) if text.endswith(".0") else float(value)


def day_words(value: float) -> str:
    """Days since 1970-01-01 as a date; with the number of days where the date does not tell all."""
    if abs(value) > LAST_DAY:
        return f"day {number_words(value)}"
    date = on_day(value)
    same = float(days_of([np.datetime64(date)])[0]) == value
    return date if same else f"{date} (day {number_words(value)})"


def label_words(label: str) -> str:
    """A label as sentences write it: in quotation marks unless it is one plain word."""
    if PLAIN.fullmatch(label) and label.lower() not in OWN_WORDS:
        return label
    return json.dumps(label, ensure_ascii=False)


@dataclass(frozen=True)
class Condition:
    """What one feature must satisfy.

    Attributes:
        feature: The name of the feature.
        kind: "at most" or "above" a number, "in" or "not in" some labels, "missing", or "known"
            (any finite number, or any label that the policy has).
        value: The number; NaN where the kind needs none.
        labels: The labels; empty where the kind needs none. They are kept sorted.
        day: Whether the number is of days since 1970-01-01, so that words tell a date. It is no
            part of the condition: a policy knows which of its features are dates.

    Example:
        >>> Condition("admitted", "above", 19811.0, day=True).words
        'admitted after 2024-03-29'
        >>> Condition("pressure", "at most", 62.0).words
        'pressure at most 62'
        >>> Condition("ward", "in", labels=("ICU", "HDU")).words
        'ward is HDU or ICU'
    """

    feature: str
    kind: ConditionKind
    value: float = math.nan
    labels: tuple[str, ...] = ()
    day: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.feature, str) or not self.feature:
            raise _odd("a condition names no feature", self)
        if self.kind not in KINDS:
            raise _odd(f"a condition may ask {', '.join(map(repr, KINDS))}", self)
        value = math.nan
        if self.kind in WITH_NUMBER:
            value = _finite(self.value, self) + 0.0  # one zero, whatever its sign
        elif _is_number(self.value) and not math.isnan(self.value):
            raise _odd(f"{self.kind!r} takes no number", self)
        object.__setattr__(self, "value", value)
        texts = isinstance(self.labels, list | tuple) and all(
            isinstance(label, str) and label for label in self.labels
        )
        if not texts or bool(self.labels) != (self.kind in WITH_LABELS):
            raise _odd("'in' and 'not in' have a list of labels, and nothing else has", self)
        if len(set(self.labels)) < len(self.labels):
            raise _odd("a condition names a label twice", self)
        object.__setattr__(self, "labels", tuple(sorted(map(str, self.labels))))

    @property
    def words(self) -> str:
        """The condition as people say it."""
        if self.kind in WITH_LABELS:
            return say("{feature} is {labels}", feature=self.feature, labels=self.demand)
        return joined(" ", (self.feature, self.demand))

    @property
    def demand(self) -> str:
        """What is asked of the feature, without its name."""
        names = [label_words(label) for label in self.labels]
        if self.kind == "in":
            return names[0] if len(names) == 1 else joined(say(" or "), names)
        if self.kind == "not in":
            if len(names) == 1:
                return say("not {label}", label=names[0])
            listed = joined(say(" nor "), names)
            return say("neither {labels}", labels=listed)
        if self.kind not in WITH_NUMBER:
            return say("missing") if self.kind == "missing" else say("known")
        if self.day:
            date = day_words(self.value)
            if self.kind == "at most":
                return say("not after {date}", date=date)
            return say("after {date}", date=date)
        number = short_number(self.value)
        if self.kind == "at most":
            return say("at most {x}", x=number)
        return say("above {x}", x=number)

    def holds(self, column: Floats, levels: Sequence[str] | None = None) -> Bools:
        """Which values satisfy it.

        Args:
            column: float64 (k,), values of the feature; NaN where it is missing. Of a category,
                codes into `levels`.
            levels: The labels of a category. Default None: the feature is a number.

        Returns:
            bool (k,), true where the condition is satisfied.

        Raises:
            PolicyError: It asks for a label of a number, or for a number of a category.

        Example:
            >>> Condition("pressure", "above", 62.0).holds(np.array([62.0, 63.0, np.nan])).tolist()
            [False, True, False]
        """
        if self.kind in (WITH_NUMBER if levels is not None else WITH_LABELS):
            raise _odd("numbers are asked of numbers, and labels of categories", self)
        if self.kind == "missing":
            return np.isnan(column)
        measured = np.isfinite(column)
        if levels is not None and self.kind in WITH_LABELS:
            good = self.accepted(levels)
            wanted = np.array([label in good for label in levels], bool)
            inside = np.zeros(len(column), bool)
            inside[measured] = wanted[column[measured].astype(np.int64)]
            return inside
        if self.kind == "at most":
            return np.asarray(measured & (column <= self.value))
        return np.asarray(measured & (column > self.value)) if self.kind == "above" else measured

    def accepted(self, levels: Iterable[str]) -> list[str]:
        """The labels of a category that satisfy it, as long as it does not ask for a missing one.

        Args:
            levels: The labels of the category.

        Returns:
            Those of them that do, in their order.

        Example:
            >>> Condition("ward", "not in", labels=("ICU",)).accepted(["ICU", "HDU"])
            ['HDU']
        """
        if self.kind not in WITH_LABELS:
            return list(levels)
        return [label for label in levels if (label in self.labels) == (self.kind == "in")]

    def to_dict(self) -> dict[str, Any]:
        """The condition as a policy file keeps it.

        Returns:
            The feature, the kind, and the number or the labels where there are some.

        Example:
            >>> Condition("pressure", "missing").to_dict()
            {'feature': 'pressure', 'kind': 'missing'}
        """
        asked: dict[str, Any] = {"value": self.value} if self.kind in WITH_NUMBER else {}
        if self.kind in WITH_LABELS:
            asked = {"labels": list(self.labels)}
        return {"feature": self.feature, "kind": self.kind, **asked}

    @classmethod
    def from_dict(cls, given: Any) -> Condition:
        """The condition that a policy file holds.

        Args:
            given: What `to_dict` made.

        Returns:
            The condition.

        Raises:
            PolicyError: It is no condition.

        Example:
            >>> Condition.from_dict({"feature": "age", "kind": "above", "value": 70}).words
            'age above 70'
        """
        names = {"feature", "kind", "value", "labels"}
        if not isinstance(given, Mapping) or not set(given) <= names:
            raise _odd("a condition has a feature, a kind and a value or labels", given)
        if ("value" in given) != (given.get("kind") in WITH_NUMBER):
            raise _odd("a number belongs to 'at most' and 'above', and to nothing else", given)
        return cls(
            cast(str, given.get("feature")),
            cast(ConditionKind, given.get("kind")),
            given.get("value", math.nan),
            given.get("labels", ()),
        )


@dataclass(frozen=True)
class Sum:
    """What a weighted sum of features must satisfy.

    Attributes:
        terms: For each feature its name, its weight, and the number that stands for it where it is
            missing, infinite, or beyond `HUGE`, so that no sum is infinite. They are added in this
            order.
        kind: "at most" or "above".
        value: The number that the sum is compared with.

    Example:
        >>> border = Sum((("lactate", 1.0, 2.0), ("age", 0.05, 60.0)), "above", 7.5)
        >>> border.words
        'lactate + 0.05·age above 7.5'
        >>> border.holds(np.array([[70.0, 5.0], [np.nan, 5.0]]), ["age", "lactate"]).tolist()
        [True, True]
    """

    terms: tuple[tuple[str, float, float], ...]
    kind: Literal["at most", "above"]
    value: float

    def __post_init__(self) -> None:
        terms = self.terms
        good = isinstance(terms, list | tuple) and all(
            isinstance(t, list | tuple) and len(t) == 3 and isinstance(t[0], str) for t in terms
        )
        if not good or not terms or self.kind not in WITH_NUMBER:
            raise _odd("a sum has features with weights, and is at most or above a number", terms)
        if len({name for name, _, _ in terms}) < len(terms):
            raise _odd("a sum names a feature twice", terms)
        numbers = tuple((name, _finite(w, terms), _finite(x, terms)) for name, w, x in terms)
        if any(max(abs(w), abs(x)) > HUGE for _, w, x in numbers):
            raise _odd(f"the numbers of a sum are at most {HUGE:g}", terms)
        object.__setattr__(self, "terms", numbers)
        object.__setattr__(self, "value", _finite(self.value, terms) + 0.0)

    @property
    def words(self) -> str:
        """The sum as people write it, and what is asked of it."""
        parts: list[str] = []
        for name, weight, _ in self.terms:
            times = "" if abs(weight) == 1 else f"{number_words(abs(weight))}·"
            sign = (" - " if weight < 0 else " + ") if parts else ("-" if weight < 0 else "")
            parts.append(f"{sign}{times}{name}")
        x = short_number(self.value)
        limit = say("at most {x}", x=x) if self.kind == "at most" else say("above {x}", x=x)
        return joined(" ", ("".join(parts), limit))

    def total(self, x: Floats, feature_names: Sequence[str]) -> Floats:
        """The sum in each state.

        Args:
            x: float64 (k, d), the states.
            feature_names: The names of the d features.

        Returns:
            float64 (k,).
        """
        total, places = np.zeros(len(x)), list(feature_names)
        for name, weight, middle in self.terms:
            column = x[:, places.index(name)]
            total = total + weight * np.where(np.abs(column) <= HUGE, column, middle)
        return total

    def holds(self, x: Floats, feature_names: Sequence[str]) -> Bools:
        """Which states satisfy it.

        Args:
            x: float64 (k, d), the states.
            feature_names: The names of the d features.

        Returns:
            bool (k,).
        """
        above = self.total(x, feature_names) > self.value
        return above if self.kind == "above" else ~above

    def to_dict(self) -> dict[str, Any]:
        """The condition as a policy file keeps it: "sum", "kind" and "value"."""
        return {"sum": [list(term) for term in self.terms], "kind": self.kind, "value": self.value}


Region: TypeAlias = "tuple[Condition | Sum, ...]"
"""What a state must satisfy, all of it."""


def inside(region: Region, x: Floats, feature_names: Sequence[str], levels: Levels = ()) -> Bools:
    """bool (k,), which of the states x (k, d) satisfy all of a region; levels as in a log."""
    at, places = np.ones(len(x), bool), list(feature_names)
    for condition in region:
        if isinstance(condition, Sum):
            at &= condition.holds(x, places)
        else:
            f = places.index(condition.feature)
            at &= condition.holds(x[:, f], levels[f] if levels else None)
    return at


def features_of(region: Region) -> list[str]:
    """The features that a region asks, in their order."""
    return [
        name for c in region
        for name in ([t[0] for t in c.terms] if isinstance(c, Sum) else [c.feature])
    ]  # fmt: skip


def _read_region(given: Any) -> Region:
    if not isinstance(given, list | tuple) or not given:
        raise _odd("an exception is a list of conditions", given)
    return tuple(
        c if isinstance(c, Condition | Sum)
        else Sum(c.get("sum", ()), c.get("kind", ""), c.get("value", math.nan))
        if isinstance(c, Mapping) and set(c) == {"sum", "kind", "value"}
        else Condition.from_dict(c)
        for c in given
    )  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """One region of features, and what is suggested in it.

    Attributes:
        conditions: What a state must satisfy, all of it; empty: every state.
        suggested: The action suggested there, or `dprl.Avoid` where it says what not to do.
        facts: What is on record about it, as JSON values, each of which may be left out or None:
            "steps" of the training log in the region; "groups" of the half that certified which
            came there, "groups_took" (those that took the suggestion there) and "groups_proposed"
            (groups of the half that proposed); "groups_by_action" ([[action, number of groups that
            took it at their first step there], ...]); "share_usual" ([[action, share of steps],
            ...]); "advantage" (what the suggestion brought over doing otherwise), "se", "low" and
            "high" (its simultaneous interval), "p" (adjusted); "gamma_star" (Γ*: the factor by
            which an unrecorded cause may move the odds of the suggestion while "low" stays above
            the margin) and "gamma_point" (as estimated); "overlap" (share of steps at which
            the suggestion was likely enough to be judged); "balance" ([feature, largest
            standardised difference]); "returns" ([contrast of whole returns, its lower end, its
            upper end]); "narrowed" (true where the rule was narrowed after looking) and
            "narrowed_from" (where it held before); "grade" ("proved" or "large-sample"), and of
            what `dprl.gate` proved "proved_low" (lower bound of what the suggestion brings over
            doing otherwise at first decisions there) and "log10_e", or of what it certified for
            large samples "gate_low" and "gate_p". Other names are kept and not
            used.
        silent: True where the rule may not speak: it was not approved, and the policy defers where
            it holds. Default False.
        unless: Exceptions: regions (each a list of conditions, sums among them) in which the rule
            does not hold and the policy defers. Default none.

    Example:
        >>> rule = Rule((Condition("pressure", "at most", 62.0),), "fluids")
        >>> rule.words
        'pressure at most 62'
    """

    conditions: tuple[Condition, ...]
    suggested: Label | Avoid
    facts: Mapping[str, Any] = field(default_factory=lambda: Facts({}))
    silent: bool = False
    unless: tuple[Region, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.unless, tuple | list):
            raise _odd("a rule has a list of exceptions", self.unless)
        object.__setattr__(self, "unless", tuple(_read_region(region) for region in self.unless))
        if not isinstance(self.conditions, tuple | list) or not all(
            isinstance(c, Condition) for c in self.conditions
        ):
            raise _odd("a rule has a list of conditions", self.conditions)
        named = self.action
        if isinstance(named, bool) or not isinstance(named, str | int):
            raise _odd("a rule suggests an action, text or a whole number", self.suggested)
        if not isinstance(self.silent, bool):
            raise _odd("a rule is silent or not", self.silent)
        label = str(named) if isinstance(named, str) else int(named)
        object.__setattr__(self, "suggested", Avoid(label) if self.avoids else label)
        object.__setattr__(self, "conditions", tuple(self.conditions))
        object.__setattr__(self, "facts", Facts(checked_facts(self.facts)))
        impossible = [name for name, demands in _demands(self.conditions).items() if not demands]
        if impossible:
            asked = joined(" and ", (c.words for c in self.conditions))
            raise _odd(f"no state can satisfy what it asks of {impossible[0]!r}", asked)

    @property
    def avoids(self) -> bool:
        """Whether it says what not to do."""
        return isinstance(self.suggested, Avoid)

    @property
    def action(self) -> Label:
        """The label of the action that it names, to take or to avoid."""
        return self.suggested.action if isinstance(self.suggested, Avoid) else self.suggested

    @property
    def says(self) -> Label:
        """What it suggests: the label of an action, or "not" such a label."""
        return str(self.suggested) if isinstance(self.suggested, Avoid) else self.suggested

    @property
    def narrowed(self) -> bool:
        """Whether it was narrowed after looking, so that it is no longer certified with others."""
        return bool(self.facts.get("narrowed"))

    @property
    def words(self) -> str:
        """Where the rule holds, in the fewest words: "pressure above 50 and at most 62"."""
        return self._but(self._where() or say("everywhere"))

    def _but(self, where: str) -> str:
        """Where the rule holds, and where not."""
        if not self.unless:
            return where
        regions = [joined(say(" and "), (c.words for c in region)) for region in self.unless]
        what = joined(say(", nor where "), regions)
        return say("{where}, but not where {what}", where=where, what=what)

    def _where(self, begins: bool = False) -> str:
        """The conditions in a row, each feature named once; '' where there are none.

        Args:
            begins: Whether they begin a sentence, so that the first one has a verb.
        """
        parts: list[str] = []
        for demands in _demands(self.conditions).values():
            head = demands[0].words
            if begins and not parts and demands[0].kind not in WITH_LABELS:
                head = say(
                    "{feature} is {limit}", feature=demands[0].feature, limit=demands[0].demand
                )
            parts.append(joined(say(" and "), (head, *(c.demand for c in demands[1:]))))
        return joined(say(" and "), parts)

    @property
    def sentence(self) -> str:
        """Where the rule holds, as the beginning of a sentence: "If pressure is at most 62"."""
        if not self.conditions:
            return self._but(say("Everywhere"))
        return say("If {where}", where=self._but(self._where(begins=True)))

    @property
    def next_sentence(self) -> str:
        """The same after another rule that may hold there too: "Otherwise, if pressure is …"."""
        if not self.conditions:
            return self._but(say("Otherwise, everywhere"))
        return say("Otherwise, if {where}", where=self._but(self._where(begins=True)))

    def matches(self, x: Floats, feature_names: Sequence[str], levels: Levels = ()) -> Bools:
        """Which states the rule holds in.

        Args:
            x: float64 (k, d), the states; of categories, codes into their labels.
            feature_names: The names of the d features.
            levels: The labels of each feature that is a category, None for numbers. Default (): all
                are numbers.

        Returns:
            bool (k,), true where the rule holds.

        Example:
            >>> rule = Rule((Condition("pressure", "at most", 62.0),), "fluids")
            >>> rule.matches(np.array([[60.0], [70.0]]), ["pressure"]).tolist()
            [True, False]
        """
        at = inside(self.conditions, x, feature_names, levels)
        for region in self.unless:
            at &= ~inside(region, x, feature_names, levels)
        return at

    def meets(self, other: Rule) -> bool:
        """Whether some state may satisfy both rules.

        Args:
            other: Another rule.

        Returns:
            False where a feature would have to be two things at once.

        Example:
            >>> low = Rule((Condition("pressure", "at most", 62.0),), "fluids")
            >>> low.meets(Rule((Condition("pressure", "above", 62.0),), "wait"))
            False
        """
        return all(_demands((*self.conditions, *other.conditions)).values())

    def to_dict(self) -> dict[str, Any]:
        """The rule as a policy file keeps it.

        Returns:
            Conditions, suggestion, facts, and whether it is silent, as JSON values; "avoid" is true
            where the suggestion is what not to do, and "unless" holds its exceptions if it has any.

        Example:
            >>> Rule((), "fluids").to_dict()
            {'conditions': [], 'suggested': 'fluids', 'facts': {}, 'silent': False}
        """
        return {
            "conditions": [c.to_dict() for c in self.conditions],
            "suggested": self.action,
            **({"avoid": True} if self.avoids else {}),
            "facts": dict(self.facts),
            "silent": self.silent,
            **({"unless": [[c.to_dict() for c in r] for r in self.unless]} if self.unless else {}),
        }

    @classmethod
    def from_dict(cls, given: Any) -> Rule:
        """The rule that a policy file holds.

        Args:
            given: What `to_dict` made; "facts", "silent" and "unless" may be left out.

        Returns:
            The rule.

        Raises:
            PolicyError: It is no rule.

        Example:
            >>> Rule.from_dict({"conditions": [], "suggested": "fluids"}).sentence
            'Everywhere'
        """
        names = {"conditions", "suggested", "avoid", "facts", "silent", "unless"}
        if not isinstance(given, Mapping) or not set(given) <= names:
            raise _odd("a rule has conditions, a suggestion and facts", given)
        conditions = given.get("conditions")
        if not isinstance(conditions, list | tuple):
            raise _odd("a rule has a list of conditions", given)
        named, avoid = cast(Label, given.get("suggested")), given.get("avoid", False)
        if not isinstance(avoid, bool):
            raise _odd("a rule says what to take, or what to avoid", avoid)
        return cls(
            tuple(Condition.from_dict(c) for c in conditions),
            Avoid(named) if avoid else named,
            given.get("facts", {}),
            given.get("silent", False),
            given.get("unless", ()),
        )


def read_rules(given: Any) -> tuple[Rule, ...]:
    """Rules from what a policy is made of: a list of rules, or of what `Rule.to_dict` makes."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise _odd("a policy of rules has a list of rules", given)
    return tuple(r if isinstance(r, Rule) else Rule.from_dict(r) for r in given)


def _demands(conditions: Iterable[Condition]) -> dict[str, tuple[Condition, ...]]:
    """Feature → the fewest conditions that say the same; none where nothing can satisfy them."""
    result: dict[str, tuple[Condition, ...]] = {}
    asked = tuple(conditions)
    for feature in dict.fromkeys(c.feature for c in asked):
        own = [c for c in asked if c.feature == feature]
        kinds = {c.kind for c in own}
        low = max((c for c in own if c.kind == "above"), key=lambda c: c.value, default=None)
        high = min((c for c in own if c.kind == "at most"), key=lambda c: c.value, default=None)
        if "missing" in kinds:
            result[feature] = (own[0],) if kinds == {"missing"} else ()
        elif kinds & {*WITH_LABELS}:
            result[feature] = _labels_demanded(feature, own)
        elif low is not None and high is not None and low.value >= high.value:
            result[feature] = ()
        else:
            result[feature] = tuple(c for c in (low, high) if c is not None) or (own[0],)
    return result


def _labels_demanded(feature: str, own: Sequence[Condition]) -> tuple[Condition, ...]:
    """The one condition that says what these say about labels; none where no label is left."""
    if {c.kind for c in own} & {*WITH_NUMBER}:
        return ()
    refused = {label for c in own if c.kind == "not in" for label in c.labels}
    wanted = [set(c.labels) for c in own if c.kind == "in"]
    if not wanted:
        return (Condition(feature, "not in", labels=tuple(refused)),)
    left = set.intersection(*wanted) - refused
    return (Condition(feature, "in", labels=tuple(left)),) if left else ()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _finite(value: Any, given: Any) -> float:
    try:
        number = float(value) if _is_number(value) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _odd("'at most' and 'above' need a finite number", given)
    return number


def _odd(what: str, given: Any) -> PolicyError:
    if isinstance(given, Condition):  # which cannot be shown by its own words yet
        given = {
            "feature": given.feature, "kind": given.kind, "value": given.value,
            "labels": given.labels,
        }  # fmt: skip
    return PolicyError(
        f"this is no rule: {what}.", repr(given)[:200], "Fit the policy again, or mend its rules."
    )


# -- rules over dates: a feature that is days since 1970-01-01 is told as a date -------------------
#
# The number of a condition stays what it is. Which features are dates is known to the policy
# alone, from how the columns of its log became features.


def dated(rule: Rule, days: Collection[str]) -> Rule:
    """The rule whose words tell dates of these features; all else is the same."""
    if not any(isinstance(c, Condition) and c.day != (c.feature in days)
               for region in (rule.conditions, *rule.unless) for c in region):  # fmt: skip
        return rule

    def told(region: Region) -> Any:
        return tuple(
            replace(c, day=c.feature in days) if isinstance(c, Condition) else c for c in region
        )

    return replace(
        rule, conditions=told(rule.conditions), unless=tuple(told(r) for r in rule.unless)
    )


def days_told(policy: RulePolicy) -> tuple[str, ...]:
    """The features that the words of a policy tell as dates.

    None where its certificate names them by the number of days. A certificate is about rules by
    their words; such a one was made before words told dates.
    """
    return _told(policy, policy.rules)


def with_dates(policy: RulePolicy, rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The rules of a policy, whose words tell dates where `days_told` says so."""
    days = _told(policy, rules)
    return tuple(dated(rule, days) for rule in rules)


def _told(policy: RulePolicy, rules: Sequence[Rule]) -> tuple[str, ...]:
    days = () if policy.encoding is None else tuple(policy.encoding.days)
    issued = {} if policy.certificate is None else policy.certificate.issued
    by_number = [dated(rule, ()).words for rule in rules]
    by_date = [dated(rule, days).words for rule in rules]
    old = any(a in issued and b not in issued for a, b in zip(by_number, by_date, strict=True))
    return () if old else days


# -- a narrower rule: it holds in a part of the states where the rule held, and nowhere else -------


def place_of(policy: RulePolicy, number: Any) -> int:
    """The place of a rule, from 0, by its number, from 1; a ParameterError if there is none."""
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 1 <= number <= len(policy.rules):
        raise ParameterError(
            f"there is no rule {str(number)[:40]!r}; the policy has {len(policy.rules)}.",
            do="Name a rule by its number, as sentences count: the first is 1.",
        )
    return int(number) - 1


def narrower(policy: RulePolicy, number: int, conditions: Iterable[Any]) -> Rule:
    """The rule with these conditions, without facts; a ParameterError if it is not narrower.

    Args:
        policy: The policy.
        number: The number of the rule, from 1.
        conditions: All that the narrower rule asks, as conditions or what their `to_dict` gives.

    Returns:
        The rule. It keeps the conditions of the old one, and adds those that are new: so the
        questions of a tree stay what they were.
    """
    old = policy.rules[place_of(policy, number)]
    if isinstance(conditions, str | bytes | Mapping) or not isinstance(conditions, Iterable):
        raise ParameterError(
            f"a narrower rule has a list of conditions; got {str(conditions)[:60]!r}.",
            do="Give what Rule.to_dict()['conditions'] looks like.",
        )
    asked = tuple(c if isinstance(c, Condition) else Condition.from_dict(c) for c in conditions)
    dates = days_told(policy)
    asked = tuple(replace(c, day=c.feature in dates) for c in asked)
    for condition in asked:
        policy.check_condition(condition)
    for condition in old.conditions:
        if not follows(condition, asked, policy.levels_of(condition.feature)):
            words = " and ".join(c.words for c in asked) or "everywhere"
            raise ParameterError(
                f"this is not narrower: rule {number} holds only where {condition.words}.",
                words,
                "Raise or lower a threshold inwards, leave out labels, or add a condition.",
            )
    new = Rule((*old.conditions, *(c for c in asked if c not in old.conditions)), old.suggested,
               silent=old.silent, unless=old.unless)  # fmt: skip
    if all(follows(c, old.conditions, policy.levels_of(c.feature)) for c in asked):
        raise ParameterError(
            f"this is not narrower: rule {number} already asks all of it.",
            old.words,
            "Raise or lower a threshold inwards, leave out labels, or add a condition.",
        )
    for later, other in enumerate(policy.rules[number:], number + 1):
        if old.meets(other):
            raise ParameterError(
                f"rule {number} cannot be narrowed: rule {later} would speak where it did.",
                other.words,
                "Narrow the later rule first, so that the two have no state in common.",
            )
    return new


def with_facts(old: Rule, new: Rule, facts: Mapping[str, Any]) -> Rule:
    """The narrower rule with what is on record about it, marked as narrowed after looking."""
    before = old.facts.get("narrowed_from") or old.words
    own = {**dict(facts), "narrowed": True, "narrowed_from": before}
    return Rule(new.conditions, new.suggested, own, new.silent, new.unless)


def follows(condition: Condition, asked: Sequence[Condition], levels: Sequence[str] | None) -> bool:
    """Whether whatever satisfies all of `asked` satisfies a condition too."""
    own = [c for c in asked if c.feature == condition.feature]
    kinds = {c.kind for c in own}
    if condition.kind == "missing" or "missing" in kinds:
        return condition.kind == "missing" and "missing" in kinds
    if condition.kind == "known" or not own:
        return bool(own)
    if condition.kind in WITH_LABELS:
        left = levels or ()
        for c in own:
            left = c.accepted(left)
        return set(left) <= set(condition.accepted(left))
    ends = [c.value for c in own if c.kind == condition.kind]
    if condition.kind == "at most":
        return any(end <= condition.value for end in ends)
    return any(end >= condition.value for end in ends)
