"""Which codes of the data a spec means: exact words, or patterns with `*`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dprl.errors import LogError
from dprl.logs._text import fold
from dprl.logs.events._fields import Path, place

if TYPE_CHECKING:
    from dprl.logs.events.spec import Spec

__all__ = ["Use", "fold_codes", "matches", "may_overlap", "resolve", "uses"]


@dataclass(frozen=True)
class Use:
    """One place of a spec that names codes.

    Attributes:
        role: Short name of the place: "f0" is the first feature.
        path: The key in the spec.
        codes: The codes and patterns.
        may_be_absent: Whether it may be that none of them is in the data.
    """

    role: str
    path: Path
    codes: tuple[str, ...]
    may_be_absent: bool = False


def uses(spec: Spec) -> Iterator[Use]:
    """Every place of a spec that names codes."""
    if spec.episodes.by == "code":
        yield Use("start", ("episodes", "start"), spec.episodes.start)
    if spec.episodes.by == "gap":
        yield Use("gap", ("episodes", "codes"), spec.episodes.codes)
    if spec.clock.on:
        yield Use("on", ("clock", "on"), spec.clock.on)
    for i, end in enumerate(spec.ends):
        yield Use(f"e{i}", ("end", i, "codes"), end.codes, end.may_be_absent)
    for i, feature in enumerate(spec.features):
        if feature.codes:
            yield Use(f"f{i}", ("feature", i, "codes"), feature.codes, feature.may_be_absent)
    for i, part in enumerate(spec.action.parts):
        path = ("action", "part", i)
        if part.codes:
            yield Use(f"a{i}", (*path, "codes"), part.codes, part.may_be_absent)
        for j, choice in enumerate(part.choices):
            yield Use(f"a{i}c{j}", (*path, "choices"), choice.codes, part.may_be_absent)
    for i, reward in enumerate(spec.rewards):
        if reward.codes:
            yield Use(f"r{i}", ("reward", i, "codes"), reward.codes, reward.may_be_absent)
    for i, interval in enumerate(spec.intervals):
        yield Use(f"i{i}start", ("interval", i, "start"), interval.start, interval.may_be_absent)
        yield Use(f"i{i}stop", ("interval", i, "stop"), interval.stop, interval.may_be_absent)


def fold_codes(spec: Spec) -> None:
    """Trim the codes of a spec, or write them small, as its source asks for."""
    how = spec.source.labels
    if not how:
        return

    def folded(table: Any, *keys: str) -> Any:
        words = {key: getattr(table, key) for key in keys}
        return replace(
            table,
            **{
                key: fold(word, how)
                if isinstance(word, str)
                else tuple(fold(each, how) for each in word)
                for key, word in words.items()
            },
        )

    def set_to(key: str, value: Any) -> None:
        object.__setattr__(spec, key, value)

    set_to("episodes", folded(spec.episodes, "start", "codes"))
    set_to("clock", folded(spec.clock, "on"))
    for key in ("features", "rewards", "ends"):
        set_to(key, tuple(folded(table, "codes") for table in getattr(spec, key)))
    set_to("intervals", tuple(folded(x, "name", "start", "stop") for x in spec.intervals))
    parts = tuple(
        replace(
            folded(part, "codes"), choices=tuple(folded(choice, "codes") for choice in part.choices)
        )
        for part in spec.action.parts
    )
    set_to("action", replace(spec.action, parts=parts))


def _regular(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))


def matches(pattern: str, code: str) -> bool:
    """Whether a code is meant by a pattern."""
    return re.fullmatch(_regular(pattern), code, re.DOTALL) is not None


def may_overlap(one: Sequence[str], other: Sequence[str]) -> tuple[str, str] | None:
    """Two patterns, one of each list, that a single code could match; None if there are none."""
    for a in one:
        for b in other:
            if _meet(a, b):
                return a, b
    return None


def _meet(a: str, b: str) -> bool:
    """Whether some text matches both patterns."""
    # row[j]: some text matches the letters of a so far and the first j letters of b
    row = [True] + [False] * len(b)
    for j, letter in enumerate(b):
        row[j + 1] = row[j] and letter == "*"
    for x in a:
        new = [row[0] and x == "*"] + [False] * len(b)
        for j, y in enumerate(b):
            if "*" in (x, y):  # a star stands for nothing, or for one letter more
                new[j + 1] = new[j] or row[j + 1]
            else:
                new[j + 1] = row[j] and x == y
        row = new
    return row[-1]


def _closest(pattern: str, codes: Sequence[str]) -> list[str]:
    """The code that is most like another: one that differs in case and blanks alone comes first."""
    plain = " ".join(pattern.split()).casefold()
    for code in codes:
        if " ".join(code.split()).casefold() == plain:
            return [code]
    return difflib.get_close_matches(pattern, codes[:20_000], n=1, cutoff=0.5)


def resolve(spec: Spec, codes: Sequence[str]) -> list[tuple[str, str, int]]:
    """Rows (role, code, rank): the codes of the data that each place means.

    The rank is the place in the list of the first pattern that the code matches.

    Raises:
        LogError: No code of the data is meant, and none of them may be absent.
    """
    made = tuple(interval.name for interval in spec.intervals)
    for i, name in enumerate(made):
        if name in codes:
            raise LogError(
                f"the data have the code {name!r} already.",
                place(spec.lines, ("interval", i, "name")),
                "Give the interval another name.",
            )
    every = [*codes, *made]
    in_data = set(every)
    rows: list[tuple[str, str, int]] = []
    for use in uses(spec):
        ranks: dict[str, int] = {}
        for rank, pattern in enumerate(use.codes):
            if "*" in pattern:
                regular = re.compile(_regular(pattern), re.DOTALL)
                hits: Any = [code for code in every if regular.fullmatch(code)]
            else:
                hits = [pattern] if pattern in in_data else []
            if not hits and not use.may_be_absent:
                near = _closest(pattern, every)
                needed = use.path[0] in ("episodes", "clock")  # without it there is no decision
                raise LogError(
                    f"no event has the code {pattern!r}.",
                    place(spec.lines, use.path),
                    (f"Did you mean {near[0]!r}? " if near else "")
                    + (
                        "Name one that the events have."
                        if needed
                        else "Where a code may be absent, write may_be_absent = true."
                    ),
                )
            for code in hits:
                ranks.setdefault(code, rank)
        rows += [(use.role, code, rank) for code, rank in ranks.items()]
    return rows
