"""The labels of a log in parts: found by SQL, checked, and turned into codes.

The distinct values of states, actions, menus and endings are few, and are held; those of episodes
and groups are not.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dprl.errors import LabelWarning
from dprl.logs._columns import Coded, encode_menus
from dprl.logs._ending_rules import meanings
from dprl.logs._follow_up import Window
from dprl.logs._gaps import Missing, missing_words
from dprl.logs._label_rules import spelled_twice
from dprl.logs._parts_rules import check_values
from dprl.logs._parts_store import Layout
from dprl.logs._parts_table import SHORT, Table
from dprl.logs._sources import in_words_of, quoted
from dprl.logs.log import Label

__all__ = ["Asked", "Labels"]

NEAR = 1 << 20
"""Whole numbers within a range of this size are looked up in a table."""


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked of `scan` beside the columns."""

    states: Sequence[Label] | None
    actions: Sequence[Label] | None
    bounds: tuple[float, float] | None
    events: tuple[str, ...]
    window: Window | None
    rows: int
    missing: Missing = "error"


@dataclass(eq=False)
class Labels:
    """The labels of a table, and how its values become codes.

    Attributes:
        table: The rows.
        asked: What was asked of `scan`.
        n: The number of rows.
        codes: Role → the values of a column of whole numbers, ascending (None where SQL gives the
            number of a value), and the code of each value.
        endings: Value of the column of endings → its meaning.
    """

    table: Table
    asked: Asked
    n: int
    codes: dict[str, tuple[NDArray[np.int64] | None, NDArray[np.int32]]] = field(
        default_factory=dict
    )
    endings: dict[Any, int] = field(default_factory=dict)
    _near: dict[str, NDArray[np.int32]] = field(default_factory=dict)

    def layout(self) -> Layout:
        """The labels of the log, once values were checked against each other."""
        table, asked = self.table, self.asked
        occur = {role: self._values(role) for role in ("state", "action")}
        menus, values = None, list[Any]()
        if table.has("available"):
            values = table.labels("available")
            as_list = table.files.types[table.names["available"]].endswith("]")
            raw = [json.loads(v) for v in values] if as_list else values
            coded = encode_menus(raw, table.names["available"])
            menus = in_words_of(Coded(np.empty(0, np.int32), tuple(occur["action"])), coded)
        if table.has("ended"):
            column = table.columns["ended"]
            words = table.labels("ended")
            meaning = meanings([column.label(w) for w in words], asked.events)
            self.endings = dict(zip(words, meaning, strict=True))
        offers = {} if menus is None else {
            v: menus.labels[code] for v, code in zip(values, menus.codes.tolist(), strict=True)
        }  # fmt: skip
        check_values(
            table, self.n, offers, self.endings,
            {"state": (occur["state"], asked.states), "action": (occur["action"], asked.actions)},
            asked.bounds, asked.events,
        )  # fmt: skip
        states = occur["state"] if asked.states is None else list(asked.states)
        actions = occur["action"] if asked.actions is None else list(asked.actions)
        rows = None
        if menus is not None:
            if asked.actions is None:
                actions = sorted({x for menu in menus.labels for x in menu}.union(actions))
            rows = np.array([[a in menu for a in actions] for menu in menus.labels], bool)
            rows = rows.reshape(len(menus.labels), len(actions))
            self._enumerate("available", values, menus.codes)
        for role, labels in (("state", states), ("action", actions)):
            place = {label: i for i, label in enumerate(labels)}
            self._enumerate(role, occur[role], [place[label] for label in occur[role]])
        named: dict[str, Any] = {"events": list(asked.events)} if asked.events else {}
        if gaps := missing_words(asked.missing, table.names):
            named["missing"] = gaps
        if asked.window is not None:
            named["follow_up"] = str(asked.window)
        time = table.columns["time"].kind if table.has("time") else ""
        return Layout(
            folder="",
            states=tuple(states),
            actions=tuple(actions),
            columns={**table.names, **named},
            menus=rows,
            events=asked.events,
            kinds={r: table.columns[r].kind for r in ("episode", "group") if table.has(r)},
            time={"int": "i8", "number": "f8", "date": "i8"}[time]
            if time and table.has("group") else "",
            propensity=table.has("propensity"),
        )  # fmt: skip

    def _values(self, role: str) -> list[Any]:
        column = self.table.columns[role]
        return [column.label(v) for v in self.table.labels(role)]

    def _enumerate(self, role: str, values: Sequence[Any], codes: Any) -> None:
        """Let SQL turn text into codes; whole numbers are looked up once they are read."""
        table, short = np.asarray(codes, np.int32), SHORT[role]
        if self.table.columns[role].kind in ("int", "bool"):
            self.codes[role] = (np.array([int(v) for v in values], np.int64), table)
            return
        self.table.files.run(
            f"CREATE TEMP TABLE words_{short} AS SELECT unnest(?::VARCHAR[]) AS v", [list(values)]
        )
        self.table.files.run(
            f"CREATE TYPE code_{short} AS ENUM (SELECT v FROM words_{short} ORDER BY v)"
        )
        self.codes[role] = (None, table)

    def coded(self) -> str:
        """SQL expressions of the stored columns, over the names of `SHORT`."""
        listed = ["ep"]
        for role in ("time", "state", "action", "reward", "available", "propensity"):
            if not self.table.has(role):
                continue
            short = SHORT[role]
            if role in self.codes and self.codes[role][0] is None:
                listed.append(f"enum_code(CAST({short} AS code_{short}))::INTEGER AS {short}")
            else:
                listed.append(short)
        if self.table.has("ended"):
            cases = " ".join(
                f"WHEN en = {quoted(w, chr(39)) if isinstance(w, str) else w} THEN {code}"
                for w, code in self.endings.items()
            )
            listed.append(f"CAST({f'CASE {cases} ELSE 0 END' if cases else '0'} AS UTINYINT) AS en")
        return ", ".join(listed)

    def warn_of_spellings(self) -> None:
        """Warn of labels that only Unicode spelling tells apart, as `dprl.read` does."""
        vocabularies = {"action": self._values("action"), "state": self._values("state")}
        for role in ("episode", "group", "action", "state"):
            if not self.table.has(role) or self.table.columns[role].kind != "text":
                continue
            labels = vocabularies.get(role)
            twins = spelled_twice(self._twins(role) if labels is None else labels)
            if twins is not None:
                n, example = twins
                warnings.warn(
                    f"{self.table.names[role]!r} has {n:,} label{'s' * (n != 1)} that only Unicode "
                    f"spelling tells from another. First: {example}.",
                    LabelWarning,
                    stacklevel=4,
                )
                return

    def _twins(self, role: str) -> list[str]:
        """The labels of a large column that have the same normal form as another."""
        word, scan = SHORT[role], self.table.select()
        if (
            self.table.one(f"SELECT 1 FROM ({scan}) WHERE strlen({word}) <> length({word}) LIMIT 1")
            is None
        ):
            return []
        rows = self.table.all(
            f"SELECT list(DISTINCT v) FROM (SELECT {word} AS v FROM ({scan})) "
            "GROUP BY nfc_normalize(v) HAVING count(DISTINCT v) > 1"
        )
        return sorted(label for row in rows for label in row[0])

    def coded_values(self, role: str, values: NDArray[Any]) -> NDArray[np.int32]:
        """The codes of values of a column."""
        numbers, table = self.codes[role]
        if numbers is None:
            return np.asarray(table[values])
        low, high = int(numbers[0]), int(numbers[-1])
        if high - low > NEAR:
            return np.asarray(table[np.searchsorted(numbers, values)])
        if role not in self._near:
            self._near[role] = np.zeros(high - low + 1, np.int32)
            self._near[role][numbers - low] = table
        return np.asarray(self._near[role][values - low])
