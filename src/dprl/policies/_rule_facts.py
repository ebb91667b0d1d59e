"""What is on record about a rule: checked numbers, and how they are said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dprl._core.confounding import gamma_words
from dprl._core.table import to_json_value
from dprl._core.words import joined, say, sentences, word
from dprl.errors import PolicyError

__all__ = [
    "checked_facts",
    "evidence_words",
    "groups_by",
    "hidden_words",
    "imbalance_words",
    "interval_words",
    "labels_in",
    "usual_of",
]

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
        raise _odd("facts", given)
    facts: dict[str, Any] = to_json_value(given)
    checks: dict[str, Callable[[Any], bool]] = {
        **dict.fromkeys(COUNTS, _is_count),
        **dict.fromkeys(SHARES, _is_share),
        **dict.fromkeys(NUMBERS, _is_number),
        "share_usual": lambda value: _is_pairs(value, _is_share),
        "groups_by_action": lambda value: _is_pairs(value, _is_count),
        "se": lambda value: _is_number(value) and value >= 0,
        **dict.fromkeys(GAMMAS, lambda value: _is_number(value) and value >= 1),
        "balance": _is_balance,
        "returns": _is_whole,
        "narrowed": lambda value: isinstance(value, bool),
        "narrowed_from": lambda value: isinstance(value, str),
        "grade": _is_grade,
    }
    for name, is_good in checks.items():
        if facts.get(name) is not None and not is_good(facts[name]):
            raise _odd(name, facts[name])
    low, high = facts.get("low"), facts.get("high")
    if low is not None and high is not None and low > high:
        raise _odd("low and high", [low, high])
    balance = facts.get("balance")
    if isinstance(balance, list):  # either order was written; one is kept
        facts["balance"] = sorted(balance, key=lambda part: not isinstance(part, str))
    shares = facts.get("share_usual")
    if shares and not sum(share for _, share in shares) <= 1 + 1e-6:
        raise _odd("share_usual", shares)
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
        parts.append(
            say(
                "{groups:,} {unit} of the half that certified came here{did}",
                groups=groups,
                unit=word(unit),
                did=did,
            )
        )
    if proposed is not None:
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1 + 1e-9


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
    return len(names) == 1 and all(_is_number(part) for part in value if part is not names[0])


def _is_whole(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(number is None or _is_number(number) for number in value)
    )


def _odd(name: str, value: Any) -> PolicyError:
    return PolicyError(
        f"what is on record about a rule is not what it should be: {name}.",
        repr(value)[:200],
        "Fit the policy again, or mend its rules.",
    )


def labels_in(facts: Mapping[str, Any]) -> Sequence[Any]:
    """The actions that the facts name."""
    return [label for name in PAIRED for label, _ in facts.get(name) or ()]
