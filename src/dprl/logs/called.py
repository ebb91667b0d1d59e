"""Called: what people call the columns of a table and the values in them.

A table says ``arm = 1`` and people say *ZDV with ddI*. What they say is kept beside the names of a
log's columns (`called`, ``[labels]`` in dprl.toml) and is used where something is shown: prints,
pages, pictures. Nothing is computed with it. Labels stay what the table holds, files for machines
hold them, and the digest of a policy does not count it.

Sentences know their parts (`dprl._core.words`), so a column or a label in a sentence is found by
the place it stands in, not by its letters: an action 1 and a stage 1 have names of their own.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dprl._core.words import Said, either, joined, say
from dprl.errors import ParameterError

KEY: Final = "called"
"""What it is called among the columns of a log."""
ACTION, COLUMN, STATE = "action", "column", "state"
PLACES: Final[Mapping[str, str]] = {
    "action": ACTION, "suggested": ACTION, "usual": ACTION, "arm": ACTION, "reference": ACTION,
    "feature": COLUMN, "column": COLUMN,
}  # fmt: skip
"""Places of sentences, and columns of tables of ours → what stands there."""
SIDES: Final = {"at most {x}": -1, "above {x}": 1}
"""What is asked of a number → on which side of it the values lie."""
IS: Final = "{feature} = {x:g}"
"""What says which number a feature is."""


@dataclass(frozen=True)
class Called:
    """What columns and values are called.

    Attributes:
        columns: Column → its name for people.
        values: Column → value, as text → its name for people.
        action: The column of actions; "" where there are several.
        state: The column of states that are labels; "" where states are features.

    Example:
        >>> called = Called.of({"action": "arm", "called": {"arm": {"1": "ZDV with ddI"}}})
        >>> called.act(1), called.act(2)
        ('ZDV with ddI', 2)
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    action: str = ""
    state: str = ""

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Called:
        """What is kept with the columns of a log."""
        kept = columns.get(KEY)
        if not isinstance(kept, Mapping):
            return NOBODY
        action, state = (columns.get(name) for name in (ACTION, STATE))
        named = {name: said[""] for name, said in kept.items() if said.get("")}
        return cls(
            named, kept, action if isinstance(action, str) else "",
            state if isinstance(state, str) else "",
        )  # fmt: skip

    @classmethod
    def learned(cls, policy: Any) -> Called:
        """What is kept with the log that a policy was learned from."""
        return cls.of((getattr(policy, "provenance", None) or {}).get("columns") or {})

    def __bool__(self) -> bool:
        return bool(self.columns or self.values)

    def column(self, name: Any) -> str:
        """A column, as people call it."""
        return self.columns.get(str(name), str(name))

    def value(self, column: str, label: Any) -> Any:
        """A value of a column, as people call it; itself where they have no name for it."""
        own = self.values.get(column)
        if own is None or isinstance(label, Said | bool):
            return label
        text = f"{label:g}" if isinstance(label, float) else str(label)
        if text.startswith('"'):  # a label of several words, as rules write it
            with contextlib.suppress(ValueError):
                text = str(json.loads(text))
        return own.get(text, label) if text else label

    def act(self, label: Any) -> Any:
        """An action, or what to avoid ("not" an action), as people call it."""
        inner = getattr(label, "action", None)  # `Avoid`
        if inner is not None:
            return say("not {action}", action=self.act(inner))
        if isinstance(label, Said):
            return self.said(label, ACTION)
        return self.value(self.action, label)

    def said(self, text: Any, of: str = "") -> Any:
        """A sentence with columns and labels as people call them.

        Args:
            text: The sentence; what is none comes back as it is.
            of: What a label in it is: "action", "column", "state" or the name of a column.
        """
        if not self:
            return text
        if not isinstance(text, Said):
            return self._plain(text, of)
        if text.parts:
            head, *rest = text.parts
            if not isinstance(head, Said) and len(rest) == 1 and (of or head) not in PLACES:
                asked = (self.column(head), self.said(rest[0], head))
                return self._on_side(head, rest[0]) or joined(text.between, asked)
            parts = [self.said(part, of) for part in text.parts]
            return joined(text.between, parts)
        column = text.values.get("feature", of if of not in PLACES.values() else "")
        told = self._on_side(column, text.values.get("limit"))
        if told:
            return told
        if text.message == IS and f"{text.values['x']:g}" in self.values.get(column, {}):
            return joined(" = ", (self.column(column), self.value(column, text.values["x"])))
        shown = {
            name: self.said(value, PLACES.get(name, column if name.startswith("label") else ""))
            for name, value in text.values.items()
        }
        return Said(text.message, text.other, shown)

    def _plain(self, text: Any, of: str) -> Any:
        if of == ACTION:
            return self.act(text)
        if of == COLUMN:
            return self.column(text)
        own = self.state if of == STATE else of
        return self.value(own, text) if own and isinstance(text, str | int) else text

    def _on_side(self, name: str, asked: Any) -> str:
        """Which values with names are meant by "at most 0" or "above 0"; "" where none have any."""
        side = SIDES.get(getattr(asked, "message", ""))
        if side is None:
            return ""
        found = []
        for text, said in self.values.get(name, {}).items():
            try:
                if text and (float(text) > asked.values["x"]) == (side > 0):
                    found.append(said)
            except ValueError:
                return ""
        labels = joined(say(" or "), found)
        return (
            say("{feature} is {labels}", feature=self.column(name), labels=labels) if found else ""
        )

    def cell(self, column: str, value: Any) -> Any:
        """What stands in a cell of a table of ours."""
        if isinstance(value, Said):
            return self.said(value, PLACES.get(column, ""))
        if column in PLACES and isinstance(value, str | int) and not isinstance(value, bool):
            return self._plain(value, PLACES[column])
        return self.value(self.state, value) if column == STATE and self.state else value


NOBODY: Final = Called()


def check_apart(kept: Mapping[str, Any], column: Any) -> None:
    """Refuse two actions that people would call the same: nobody could tell them apart."""
    first: dict[str, str] = {}
    own = kept.get(column, {}) if isinstance(column, str) else {}
    for value, name in own.items():
        if value and first.setdefault(name, value) != value:
            raise ParameterError(
                f"two actions are called {name!r}: nobody could tell them apart.",
                f"{first[name]!r} and {value!r} of {column!r}",
                "Give each a name of its own.",
                argument=KEY,
            )


def called_of(given: Any) -> dict[str, Any]:
    """What columns and values are called, as a log keeps it.

    Args:
        given: Column → its name, or → value → name (the name of the column itself under ""); or
            words: "cd40=CD4 count", "arm:1=ZDV with ddI".
    """
    if not given:
        return {}
    if isinstance(given, Mapping):
        kept: dict[str, Any] = {}
        for column, said in given.items():
            own = said if isinstance(said, Mapping) else {"": said}
            for value, name in own.items():
                _keep(kept, str(column), str(value), name)
        return kept
    words = [given] if isinstance(given, str) else given
    kept = {}
    for one in words:
        place, sign, name = str(one).partition("=")
        column, colon, value = place.partition(":")
        if not sign or not column or bool(colon) != bool(value):
            raise _odd(one)
        _keep(kept, column, value, name)
    return kept


def _keep(kept: dict[str, Any], column: str, value: str, name: Any) -> None:
    from dprl.logs.log import DEFERRAL  # the help of commands needs no numpy

    if not isinstance(name, str) or not 0 < len(name) <= LONGEST:
        raise _odd(name)
    if name.strip() == DEFERRAL:
        raise ParameterError(
            f"nothing can be called {DEFERRAL!r}: a policy says so where it names no action.",
            f"{column}, {value}" if value else column,
            "Give it another name, such as 'wait'.",
            argument=KEY,
        )
    kept.setdefault(column, {})[value] = name


LONGEST = 200
"""Largest number of characters of a name."""


def _odd(given: Any) -> ParameterError:
    return ParameterError(
        f"what a column or a value is called must be text of at most {LONGEST} characters; got "
        f"{given!r}.",
        do=either(
            "For example: called={'arm': {0: 'ZDV alone'}, 'cd40': 'CD4 count at the start'}",
            "For example: --called 'arm:0=ZDV alone' --called 'cd40=CD4 count at the start'",
        ),
        argument=KEY,
    )
