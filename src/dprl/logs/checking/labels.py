"""Labels that look the same to a person but differ for a computer: reported, never merged.

These rules look at the set of labels of a column, and at how many rows have each: a log in parts
has that too, so the same functions judge it. For a new rule: one function with `label_rule` above
it.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl._core.arrays import Ints
from dprl._core.labels import Labels
from dprl._core.table import many
from dprl._core.words import worded
from dprl.logs.checking.findings import Finding
from dprl.logs.encoding.doses import column_label
from dprl.logs.log import DEFERRAL, label_key
from dprl.logs.reading.columns import Columns
from dprl.logs.reading.text import fold

MOST = 200
"""Columns with more labels are not compared pair by pair."""
SHORT = 5
"""Words with fewer letters may well differ by one letter and mean different things."""
SHOWN = 3


@dataclass(frozen=True)
class LabelSet:
    """The labels of one column of text.

    Attributes:
        part: Its role: "episode", "group", "action" or "state" (also of a category of the state).
        name: The column's name.
        labels: The labels that occur, sorted.
        counts: Gives the number of rows that have each label.
    """

    part: str
    name: str
    labels: Sequence[Any]
    counts: Callable[[], Ints]


@dataclass(frozen=True)
class Vocabulary:
    """The labels of all columns of text of a source.

    Attributes:
        sets: The labels by column: of episodes, groups, actions and states, then of categories.
        merged: Columns whose labels became one, as `Columns` has them.
    """

    sets: Sequence[LabelSet]
    merged: Sequence[tuple[str, int, int, str]] = ()

    @classmethod
    def of(cls, c: Columns) -> Vocabulary:
        """The labels of some columns."""
        return cls(list(_sets(c)), c.merged)

    def decided(self) -> Iterator[LabelSet]:
        """The labels of actions and states."""
        return (own for own in self.sets if own.part in ("action", "state"))


def is_text(labels: Sequence[Any]) -> bool:
    """Whether labels are text."""
    return len(labels) > 0 and isinstance(labels[0], str)


def _sets(c: Columns) -> Iterator[LabelSet]:
    def counted(codes: NDArray[Any], size: int) -> Callable[[], Ints]:
        return lambda: np.bincount(codes[codes >= 0].astype(np.int64), minlength=size)

    for part in ("episode", "group", "action", "state"):
        column = getattr(c, part)
        if column is not None and is_text(column.labels):
            name, labels = column_label(c.names[part]), column.labels
            yield LabelSet(part, name, labels, counted(column.codes, len(labels)))
    for i, (name, levels) in enumerate(zip(c.feature_names, c.levels, strict=False)):
        if levels and is_text(levels) and c.features is not None:
            yield LabelSet("state", name, levels, counted(c.features[:, i], len(levels)))


LABEL_RULES: list[Callable[[Vocabulary], Finding | None]] = []
"""All rules about labels."""


def label_rule(ask: Callable[[Vocabulary], Finding | None]) -> Any:
    """Register the function below as a rule about labels."""
    LABEL_RULES.append(ask)
    return ask


def spelled_twice(labels: Sequence[Any]) -> tuple[int, str] | None:
    """How many labels are another label in different code points, and the first two; None for none.

    'é' can be one code point, or an 'e' and an accent (Unicode calls the two forms NFC and NFD).
    """
    if not is_text(labels):
        return None
    if labels.ascii if isinstance(labels, Labels) else all(map(str.isascii, labels)):
        return None
    seen: dict[str, str] = {}
    twins = []
    for label in labels:
        first = seen.setdefault(unicodedata.normalize("NFC", label), label)
        if first != label:
            twins.append((first, label))
    if not twins:
        return None
    first, second = twins[0]
    return len(twins), f"{first!r}, written as {first!a} and as {second!a}"


@label_rule
def called_defer(words: Vocabulary) -> Finding | None:
    """An action that cannot be told from a deferral."""
    acts = (called_as_answers(own.name, own.labels) for own in words.sets if own.part == "action")
    return next(filter(None, acts), None)


def called_as_answers(name: str, labels: Sequence[Any]) -> Finding | None:
    """Actions whose names are what a policy says where it names none, or one to avoid."""
    known = set(labels) if any(isinstance(label, str) for label in labels) else set()
    if DEFERRAL in (str(label).strip() for label in known):
        return Finding(
            "error",
            "called_defer",
            f"{name!r} has an action called {DEFERRAL!r}, which is what a policy says where it "
            "names no action.",
            do="Give the action another name, such as 'wait'.",
        )
    both = next((x for x in labels if f"not {x}" in known), None)
    if both is not None:
        return Finding(
            "error",
            "called_defer",
            f"{name!r} has the actions {both!r} and {f'not {both}'!r}: the second is what a policy "
            "says where it only says what not to do.",
            do="Give one of them another name.",
        )
    return None


def one_number(labels: Sequence[Any]) -> tuple[int, str] | None:
    """How many labels are the whole number of another label, and the first two; None for none."""
    arrays = Labels.of(labels) if is_text(labels) else None
    if not is_text(labels) or (arrays is not None and arrays.numbers_differ):
        return None
    seen: dict[int | str, str] = {}
    first = ((seen.setdefault(label_key(label), label), label) for label in labels)
    twins = [(one, two) for one, two in first if one != two and isinstance(label_key(two), int)]
    return (len(twins), f"{twins[0][0]!r} and {twins[0][1]!r}") if twins else None


@label_rule
def numbers_twice(words: Vocabulary) -> Finding | None:
    """One whole number in two forms, such as '7' and '007': two patients where there is one."""
    twins = {own.name: found for own in words.sets if (found := one_number(own.labels))}
    if not twins:
        return None
    each = [f"{name!r} has {many(n, 'label')}" for name, (n, _) in twins.items()]
    verb = "is" if [n for n, _ in twins.values()] == [1] else "are"
    return Finding(
        "warning",
        "numbers_twice",
        f"{' and '.join(each)} that {verb} the number of another label.",
        next(iter(twins.values()))[1],
        "They are counted apart; if they mean the same, write both in one form.",
    )


@label_rule
def spellings(words: Vocabulary) -> Finding | None:
    """One word in two Unicode spellings: two patients or actions where there is only one."""
    for own in words.sets:
        twins = spelled_twice(own.labels)
        if twins is not None:
            n, example = twins
            labels = f"{n:,} label{'s' * (n != 1)}"
            return Finding(
                "warning",
                "spellings",
                f"{own.name!r} has {labels} that only Unicode spelling tells from another.",
                example,
                "They are counted apart; if they mean the same, write both in one form (NFC).",
            )
    return None


@label_rule
def look_alikes(words: Vocabulary) -> Finding | None:
    """Labels that differ only in case, surrounding space or the form of their characters."""
    pairs = {}
    for own in words.decided():
        seen: dict[str, str] = {}
        for label in own.labels:
            normal_form = unicodedata.normalize("NFKC", label)
            twin = seen.setdefault(" ".join(normal_form.split()).casefold(), label)
            if twin != label and not spelled_twice((twin, label)):
                pairs[own.name] = (twin, label)
                break
    if not pairs:
        return None
    names = list(map(repr, pairs))
    listed = (
        f"{', '.join(names[:-1])} and {names[-1]} have" if len(names) > 1 else f"{names[0]} has"
    )
    twin, label = next(iter(pairs.values()))
    folded = all(
        fold(one, "trim,casefold") == fold(other, "trim,casefold") for one, other in pairs.values()
    )
    return Finding(
        "warning",
        "look_alikes",
        f"{listed} labels that differ only in case, spaces or the form of characters.",
        f"{twin!r} and {label!r}",
        "They are counted apart; if they mean the same, make them the same"
        + (worded(": {labels='trim,casefold'} does so.") if folded else "."),
    )


@label_rule
def merged_labels(words: Vocabulary) -> Finding | None:
    """Labels that became one because they were to be trimmed or written small."""
    if not words.merged:
        return None
    each = [
        f"{before:,} labels of {name!r} became {after:,}" for name, before, after, _ in words.merged
    ]
    return Finding(
        "note",
        "merged_labels",
        f"labels were written alike, as was asked: {', '.join(each)}.",
        words.merged[0][3],
        "Look whether they mean the same. A policy writes labels alike too.",
    )


@label_rule
def near_labels(words: Vocabulary) -> Finding | None:
    """Labels that differ in one letter too many, or in two that changed places, with counts."""
    for own in words.decided():
        if not 1 < len(own.labels) <= MOST:
            continue
        plain = [" ".join(str(label).split()).casefold() for label in own.labels]
        pairs = [
            (i, j)
            for (i, a), (j, b) in itertools.combinations(enumerate(plain), 2)
            if near_words(a, b)
        ]
        if not pairs:
            continue
        rows = own.counts()
        listed = [
            f"{own.labels[i]!r} ({rows[i]:,} rows) and {own.labels[j]!r} ({rows[j]:,})"
            for i, j in pairs[:SHOWN]
        ]
        more = f", {len(pairs) - SHOWN:,} more pairs" if len(pairs) > SHOWN else ""
        return Finding(
            "note",
            "near_labels",
            f"{own.name!r} has labels that may be one word written twice: "
            f"{'; '.join(listed)}{more}.",
            do="They are counted apart; if they mean the same, make them the same.",
        )
    return None


def near_words(a: str, b: str) -> bool:
    """Whether one letter was left out, or two neighbours changed places."""
    if len(a) > len(b):
        a, b = b, a
    if len(a) < SHORT or len(b) - len(a) > 1 or a == b:
        return False
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
    if len(a) < len(b):
        return b[at].isalpha() and a[at:] == b[at + 1 :]
    swapped = a[:at] + a[at + 1 : at + 2] + a[at] + a[at + 2 :]
    return swapped == b and a[at : at + 2].isalpha()
