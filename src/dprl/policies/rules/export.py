"""Rules, and policies over labels as rules, in other languages: SQL, JSON, Python.

Each says of every state what the policy says. That is delicate where a value is missing, infinite
or exactly on a threshold: NULL compares with nothing, DuckDB puts NaN above every number, and a
decimal literal is no double. So every condition asks for a finite number explicitly (a number
between the smallest and the largest double), columns are read as doubles, and numbers are written
with all of their digits. Names and labels are quoted, never pasted. A condition on a category lists
the labels that satisfy it, "not in" and "known" too: a label that the policy does not have
satisfies none.
"""

from __future__ import annotations

# Apart: other languages, needed on request alone.
import functools
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dprl._core.arrays import doubles
from dprl.errors import PolicyError
from dprl.logs.encoding.categories import TRUTH, TRUTH_WORDS
from dprl.logs.encoding.encoder import FAR, Encoding
from dprl.logs.encoding.gaps import GONE
from dprl.logs.log import Label
from dprl.logs.reading.dates import SINCE
from dprl.policies.protocol import DEFER, Avoid
from dprl.policies.rules.rule import HUGE, Condition, Region, Rule, Sum, features_of

LARGEST = repr(sys.float_info.max).replace("e+", "e")
"""The largest double, as SQL and Python write it."""
SEMANTICS = (
    "Rules are asked in their order; the first whose conditions all hold gives the answer; null, "
    "and no rule, stand for DEFER. A missing feature satisfies 'missing' and nothing else; an "
    "infinite number satisfies nothing. 'known' is any finite number, 'at most' is <=, 'above' is "
    "greater than. Of a category, 'in' is one of the labels, 'not in' is another of its levels, "
    "'known' is any of its levels; a label that is not among its levels satisfies nothing. The "
    "levels false and true are also written 0 and 1, and with capitals."
)

EXCEPTED = (
    " Where all conditions of a rule hold and all of one of its 'unless', the answer is null. A "
    "'sum' adds weight times number of each feature, in this order from 0; the last number of each "
    f"stands for a feature that is no number from -{HUGE!r} to {HUGE!r}."
)
"""How exceptions are read, after SEMANTICS."""
FILLED = "First, a missing feature that is named in 'fills' takes the number given there. "
"""How fills are read, before SEMANTICS."""
DATED = "A feature that is named in 'days' is a date: its number is the days since the day there. "
"""How dates are read, before all else."""
DAYS = (
    "",
    "",
    "def days(value, fill=None):",
    '    """A date, or its ISO text, in days since 1970-01-01 (UTC)."""',
    "    if isinstance(value, str) and value:",
    '        value = datetime.datetime.fromisoformat(value.strip().replace("/", "-"))',
    "    if isinstance(value, datetime.date):",
    "        if not isinstance(value, datetime.datetime):",
    "            value = datetime.datetime(value.year, value.month, value.day)",
    "        if value.tzinfo is None:",
    "            value = value.replace(tzinfo=datetime.timezone.utc)",
    "        since = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)",
    "        value = (value - since) // datetime.timedelta(microseconds=1) / 86400e6",
    '    return number(None if value == "" else value, fill)',
)
"""The part of a Python export that reads a date."""

FOLDED = "Labels are folded first, as 'labels' says: trimmed of white space, and casefolded. "
"""How labels are read that were folded, before SEMANTICS."""

Fills: TypeAlias = Mapping[str, float]
"""The number that stands for a missing feature, where there is one."""
Categories: TypeAlias = Mapping[str, tuple[str, ...]]
"""Every feature that is a category, and its labels."""


def _days(encoding: Encoding | None) -> tuple[str, ...]:
    """The features that are dates."""
    return () if encoding is None else tuple(encoding.days)


def _fills(encoding: Encoding | None) -> Fills:
    """The number that stands for a missing feature, where there is one."""
    values = {} if encoding is None else {n: encoding.filling(n) for n in encoding.columns}
    return {name: value for name, value in values.items() if value is not None and value != FAR}


def _fold(encoding: Encoding | None) -> str:
    """What is done to labels first; '' where nothing is."""
    return "" if encoding is None else encoding.fold


def _accepted(condition: Condition, labels: Sequence[str]) -> list[str]:
    """The labels of a category that satisfy a condition."""
    good = condition.accepted(labels)
    if labels != TRUTH:
        return good
    return [word for word, code in TRUTH_WORDS.items() if TRUTH[int(code)] in good]


LABEL = (
    "",
    "",
    "def label(value):",
    '    """A label as text; None where it is missing."""',
    "    if isinstance(value, str):",
    "        value = value{fold}",
    '        whole, _, zeros = value.partition(".")',
    '        if zeros and not zeros.strip("0") and whole in WHOLE:  # as beside a gap',
    "            value = whole",
    '    if value is None or value == "" or value != value:',
    "        return None",
    "    if isinstance(value, bool):",
    '        return "true" if value else "false"',
    '    whole = getattr(value, "is_integer", bool)()',  # short floats of NumPy too
    "    return str(int(value) if whole else value)",
)
"""The part of a Python export that reads a category."""


# -- policies over labels ----------------------------------------------------------------------

STATE = "state"
"""What the column of a policy over one label is called."""
MOST = 1_000_000
"""Largest number of combinations of labels that are looked through."""


@dataclass(frozen=True)
class LabelRules:
    """A policy over labels as rules over categories, one for all labels with the same answer.

    Attributes:
        policy: The policy; its states are labels, of one column or of several.
    """

    policy: Any

    @property
    def exports(self) -> dict[str, Callable[..., str]]:
        """Language → what writes it."""
        rules, categories = self.rules
        actions, digest = self.policy.actions, self.policy.digest()
        folded = Encoding("plain", {}, fold=self.policy.fold)

        def sql(
            table: str = "stays", column: str = "suggested", dialect: Dialect = "duckdb"
        ) -> str:
            for name in categories:
                apart([name, column])
            return f"{to_sql(rules, actions, table, column, digest, categories, folded, dialect)}\n"

        return {
            "sql": sql,
            "json": lambda: (
                f"{to_json(rules, actions, tuple(categories), digest, categories, folded)}\n"
            ),
            "python": lambda: to_python(rules, actions, digest, categories, folded),
        }

    @functools.cached_property
    def rules(self) -> tuple[list[Rule], dict[str, tuple[str, ...]]]:
        """The rules, and the labels of each category."""
        states, encoding = list(self.policy.states), self.policy.encoding
        strange = 2**62 if states and not isinstance(states[0], str) else "\0"
        *said, elsewhere = _said(self.policy, [*states, strange])
        (gone,) = _said(self.policy, [None])
        if encoding is None:
            regions: dict[Label | Avoid | None, list[str]] = {}
            for state, answer in zip(states, said, strict=True):
                regions.setdefault(answer, []).append(str(state))
            categories = {STATE: tuple(map(str, states))}
            rules = [Rule((Condition(STATE, "in", labels=tuple(labels)),), answer)
                     for answer, labels in regions.items() if answer is not None]  # fmt: skip
            if gone is not None:
                rules.append(Rule((Condition(STATE, "missing"),), gone))
        else:
            categories = {name: tuple(own or ()) for name, own in encoding.columns.items()}
            if math.prod(map(len, categories.values())) > MOST:
                raise PolicyError("its columns have too many combinations of labels to be listed.")
            known = dict(zip(states, said, strict=True))
            rules = [
                Rule(tuple(_is(n, word) for n, word in zip(categories, words, strict=True)), answer)
                for words in itertools.product(*categories.values())
                if (answer := known.get(encoding.label(words))) is not None
            ]
        if elsewhere is not None:  # it never defers
            rules.append(Rule((), elsewhere))
        return rules, {n: tuple(v for v in own if v != GONE) for n, own in categories.items()}


def _said(policy: Any, states: list[Any]) -> list[Label | Avoid | None]:
    """What a policy says in some states; None where it defers."""
    answers = policy.at(states).answers()
    return [None if answer is DEFER else answer for answer in answers]


def _is(name: str, word: str) -> Condition:
    return Condition(name, "missing") if word == GONE else Condition(name, "in", labels=(word,))


# -- SQL ---------------------------------------------------------------------------------------

Dialect: TypeAlias = Literal["duckdb", "standard"]


def to_sql(
    rules: Sequence[Rule],
    actions: Sequence[Label],
    table: str | Sequence[str],
    column: str,
    digest: str,
    categories: Categories,
    encoding: Encoding | None,
    dialect: Dialect = "duckdb",
) -> str:
    """A SELECT with one column more: the suggestion, NULL for DEFER.

    The standard one is for columns of double precision and of text (or whole numbers as labels).
    """
    if dialect == "standard":
        _refuse_other_than_standard(rules, categories, encoding)
    fills, days = _fills(encoding), _days(encoding)
    asked = _asked(rules)
    apart([*asked, column])
    parts = [table] if isinstance(table, str) else list(table)
    source = ".".join(map(identifier, parts)) or identifier("")
    text = isinstance(actions[0], str) or any(rule.avoids for rule in rules)
    kind = "VARCHAR" if text else "BIGINT"
    null = f"CAST(NULL AS {TEXT if text and dialect == 'standard' else kind})"
    read = {name: sql_reader(name, labels, _fold(encoding)) for name, labels in categories.items()}
    lines = [
        f"    WHEN {_standard_region(region, categories, fills)} THEN {then}"
        if dialect == "standard"
        else f"    WHEN {_sql_region(region, categories, fills, days, read)} THEN {then}"
        for rule in rules
        for region, then in (
            *(((*rule.conditions, *one), null) for one in rule.unless),
            (rule.conditions, null if rule.silent else _sql_label(rule, kind)),
        )
    ]
    cases = "\n".join(["CASE", *lines, "    ELSE NULL", "END"])
    answer = cases if lines else null
    said = "Standard SQL" if dialect == "standard" else "SQL of DuckDB"
    return (
        f"-- Rules of the policy {digest[:12]}; NULL stands for DEFER. {said}.\n"
        f"SELECT *, {answer} AS {identifier(column)}\nFROM {source}"
    )


TEXT = "VARCHAR(4000)"


def _refuse_other_than_standard(
    rules: Sequence[Rule], categories: Categories, encoding: Encoding | None
) -> None:
    asked = _asked(rules)
    dated = [name for name in _days(encoding) if name in asked]
    folded = [name for name in asked if name in categories and _fold(encoding)]
    if dated or folded:
        raise PolicyError(
            "the policy reads dates or folded labels, which standard SQL does not do alike.",
            repr((dated or folded)[0]),
            "Leave the dialect out for DuckDB's, or export to Python.",
        )


def _standard_region(region: Region, categories: Categories, fills: Fills) -> str:
    tests = []
    for c in region:
        if isinstance(c, Sum):
            total = "0e0"
            for feature, weight, middle in c.terms:
                x = _standard_number(feature, fills)
                x = f"CASE WHEN {x} BETWEEN -{_double(HUGE)} AND {_double(HUGE)} THEN {x}"
                total = f"({total} + {_double(weight)} * ({x} ELSE {_double(middle)} END))"
            tests.append(f"{total} {'>' if c.kind == 'above' else '<='} {_double(c.value)}")
        elif c.feature in categories:
            text = f"CAST({identifier(c.feature)} AS {TEXT})"
            tests.append(_sql_labels(c, categories[c.feature], text))
        elif c.kind == "missing":
            tests.append("1 = 0" if c.feature in fills else _standard_missing(c.feature))
        else:
            low, high = (c.value, LARGEST) if c.kind == "above" else (-math.inf, LARGEST)
            high = _double(c.value) if c.kind == "at most" else high
            x = _standard_number(c.feature, fills)
            start = f"{x} > {_double(low)}" if low > -math.inf else f"{x} >= -{LARGEST}"
            tests.append(f"({start} AND {x} <= {high})")
    return " AND ".join(tests) or "1 = 1"


def _standard_missing(feature: str) -> str:
    name = identifier(feature)
    return f"({name} IS NULL OR lower(CAST({name} AS {TEXT})) = 'nan')"


def _standard_number(feature: str, fills: Fills) -> str:
    number = f"CAST({identifier(feature)} AS DOUBLE PRECISION)"
    if feature not in fills:
        return number
    fill = _double(fills[feature])
    return f"CASE WHEN {_standard_missing(feature)} THEN {fill} ELSE {number} END"


def _asked(rules: Sequence[Rule]) -> list[str]:
    """The features that rules and their exceptions ask, each once."""
    regions = (region for rule in rules for region in (rule.conditions, *rule.unless))
    return list(dict.fromkeys(name for region in regions for name in features_of(region)))


def apart(names: Sequence[str]) -> None:
    """Refuse names that are one name to DuckDB, which does not tell capitals apart."""
    for i, name in enumerate(names):
        same = [other for other in names[:i] if other.lower() == name.lower()]
        if same:
            raise PolicyError(
                "two columns of the query have one name; DuckDB does not tell capitals apart.",
                f"{same[0]!r} and {name!r}",
                "Name another column, or rename the features and fit the policy again.",
            )


def _sql_region(
    region: Region,
    categories: Categories,
    fills: Fills,
    days: Collection[str],
    read: Mapping[str, str],
) -> str:
    tests = [
        _sql_sum(c, fills, days)
        if isinstance(c, Sum)
        else _sql_labels(c, categories[c.feature], read[c.feature])
        if c.feature in categories
        else _sql_condition(c, fills.get(c.feature), c.feature in days)
        for c in region
    ]
    return " AND ".join(tests) or "TRUE"


def _sql_labels(condition: Condition, labels: Sequence[str], name: str) -> str:
    """A condition on a category, of which `name` is the expression that reads its label."""
    if labels == TRUTH:
        name = f"lower({name})"
    if condition.kind == "missing":
        return f"({name} IS NULL OR {name} = '')"
    return f"{name} IN ({', '.join(map(sql_text, _accepted(condition, labels)))})"


def _sql_days(column: str) -> str:
    """The number of a date; a moment with a zone is one, whatever the zone of the session."""
    micros = [f"epoch_us(CAST({column} AS {kind}))" for kind in ("TIMESTAMPTZ", "TIMESTAMP")]
    offset = (
        f"regexp_matches(CAST({column} AS VARCHAR), ':[0-9.]+ *[+-][0-9:]+ *$')"  # dropped else
    )
    zoned = f"(typeof({column}) LIKE '%ZONE' OR typeof({column}) = 'VARCHAR' AND {offset})"
    return f"if({zoned}, {micros[0]}, {micros[1]}) / 86400e6"


def _sql_filled(name: str, fill: float | None) -> str:
    """The number, and the fill where it is missing."""
    return name if fill is None else f"coalesce(nullif({name}, 'NaN'::DOUBLE), {_double(fill)})"


def _sql_sum(condition: Sum, fills: Fills, days: Collection[str]) -> str:
    total = "0e0"
    for feature, weight, middle in condition.terms:
        column = identifier(feature)
        own = [f"CAST(CAST({column} AS VARCHAR) AS DOUBLE)", f"CAST({column} AS DOUBLE)"]
        plain = f"if(typeof({column}) = 'FLOAT', {own[0]}, {own[1]})"  # a FLOAT as it is written
        x = _sql_filled(_sql_days(column) if feature in days else plain, fills.get(feature))
        x = f"if({x} BETWEEN -{_double(HUGE)} AND {_double(HUGE)}, {x}, {_double(middle)})"
        total = f"({total} + {_double(weight)} * {x})"
    return f"{total} {'>' if condition.kind == 'above' else '<='} {_double(condition.value)}"


def _sql_condition(condition: Condition, fill: float | None, days: bool) -> str:
    column = identifier(condition.feature)
    name = _sql_filled(_sql_days(column) if days else f"CAST({column} AS DOUBLE)", fill)
    if condition.kind == "missing":
        return f"({name} IS NULL OR isnan({name}))"
    if condition.kind == "at most":
        return f"{name} BETWEEN -{LARGEST} AND {_limit(condition.value, column)}"
    if condition.kind == "above":
        return f"({name} > {_limit(condition.value, column)} AND {name} <= {LARGEST})"
    return f"{name} BETWEEN -{LARGEST} AND {LARGEST}"


def _limit(value: float, column: str) -> str:
    """A limit; where the column is FLOAT, the largest such number that stands for no more."""
    up = np.float32(np.inf)
    with np.errstate(over="ignore"):
        near = np.float32(value)
        beside = (np.nextafter(near, -up), near, np.nextafter(near, up))
        most = max(x for x in beside if doubles(x) <= value)
        above = np.nextafter(most, up)
    if float(most) <= value < float(above):
        return _double(value)
    return f"if(typeof({column}) = 'FLOAT', {_double(float(most))}, {_double(value)})"


def _double(value: float) -> str:
    """A number that DuckDB reads as a double: with an exponent it is never a decimal."""
    text = repr(value).replace("e+", "e")
    return text if "e" in text else f"{text.removesuffix('.0')}e0"


def _sql_label(rule: Rule, kind: str) -> str:
    return str(rule.says) if kind != "VARCHAR" else sql_text(str(rule.says))


# -- JSON --------------------------------------------------------------------------------------


def to_json(
    rules: Sequence[Rule],
    actions: Sequence[Label],
    feature_names: Sequence[str],
    digest: str,
    categories: Categories,
    encoding: Encoding | None,
) -> str:
    """The rules as JSON text.

    Version 2 where values are filled, counted or folded first, 3 where rules have exceptions.
    """
    fills, days = _fills(encoding), _days(encoding)
    folds = _fold(encoding) if categories else ""
    excepted = any(rule.unless for rule in rules)
    content = {
        "format": "dprl-rules",
        "version": 3 if excepted else 2 if fills or days or folds else 1,
        "policy": digest,
        "read_as": f"{DATED * bool(days)}{FILLED * bool(fills)}{FOLDED * bool(folds)}{SEMANTICS}"
        + EXCEPTED * excepted,
        **({"labels": folds} if folds else {}),
        **({"days": dict.fromkeys(days, SINCE)} if days else {}),
        **({"fills": dict(fills)} if fills else {}),
        "features": list(feature_names),
        "levels": {name: list(labels) for name, labels in categories.items()},
        "actions": list(actions),
        "rules": [
            {
                "if": [c.to_dict() for c in rule.conditions],
                **({"unless": rule.to_dict()["unless"]} if rule.unless else {}),
                "then": None if rule.silent or rule.avoids else rule.action,
                **({"avoid": rule.action} if rule.avoids and not rule.silent else {}),
                "words": rule.words,
                "facts": dict(rule.facts),
            }
            for rule in rules
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False)


# -- Python ------------------------------------------------------------------------------------


def to_python(
    rules: Sequence[Rule],
    actions: Sequence[Label],
    digest: str,
    categories: Categories,
    encoding: Encoding | None,
) -> str:
    """The source of `suggest(row)`."""
    fills, dated = _fills(encoding), _days(encoding)
    asked = _asked(rules)
    readers = {name: "label" if name in categories else "number" for name in asked}
    readers |= {name: "days" for name in dated if name in asked}
    levels = [level for name in asked for level in categories.get(name, ())]
    whole = sorted(level for level in set(levels) if WHOLE.fullmatch(level))
    kind = "str" if isinstance(actions[0], str) else "int"
    kind += " | str" * (kind == "int" and any(rule.avoids for rule in rules))
    lines = [
        f'"""Rules of the policy {digest[:12]}. Needs nothing but Python 3.10 or later."""',
        "",
        *(("import datetime", "") if "days" in readers.values() else ()),
        f"LARGEST = {LARGEST}",
        *((f"WHOLE = {whole!r}",) if any(name in categories for name in asked) else ()),
        "",
        "",
        "def number(value, fill=None):",
        '    """A number; the fill where it is missing, and NaN without one."""',
        '    x = float("nan") if value is None else float(value)',
        '    if value.__class__.__name__ == "float32" and x % 1:  # of NumPy, as written',
        '        short = [s for s in (f"{x:.6g}", f"{x:.7g}") if value.__class__(s) == value]',
        "        x = float(short[0]) if short else x",
        "    return fill if fill is not None and x != x else x",
        *(
            line.replace("{fold}", _python_fold(encoding))
            for line in (LABEL if any(name in categories for name in asked) else ())
        ),
        *(DAYS if "days" in readers.values() else ()),
        "",
        "",
        f"def suggest(row: dict) -> {kind} | None:",
        '    """The suggestion for one state, a mapping from feature to value; None is DEFER."""',
    ]
    lines += [
        f"    x{i} = {readers[name]}"
        f"(row[{_literal(name)}]{f', {fills[name]!r}' if name in fills else ''})"
        for i, name in enumerate(asked)
    ]
    for rule in rules:
        answer = "None" if rule.silent else _literal(rule.says)
        for region, then in (
            *(((*rule.conditions, *one), "None") for one in rule.unless),
            (rule.conditions, answer),
        ):
            tests = [
                _python_sum(c, asked)
                if isinstance(c, Sum)
                else _python_labels(c, f"x{asked.index(c.feature)}", categories[c.feature])
                if c.feature in categories
                else _python_condition(c, f"x{asked.index(c.feature)}")
                for c in region
            ]
            lines += [f"    if {' and '.join(tests) or 'True'}:", f"        return {then}"]
    return "\n".join([*lines, "    return None", ""])


def _python_fold(encoding: Encoding | None) -> str:
    """The calls that fold a text, in Python."""
    folds = _fold(encoding)
    return ".strip()" * ("trim" in folds) + ".casefold()" * ("casefold" in folds)


def _literal(label: Label) -> str:
    """A label or a name as a literal of Python, in ASCII."""
    return ascii(str(label)) if isinstance(label, str) else repr(int(label))


def _python_labels(condition: Condition, x: str, labels: Sequence[str]) -> str:
    if condition.kind == "missing":
        return f"{x} is None"
    small = f"{x} is not None and {x}.lower()" if labels == TRUTH else x
    return f"{small} in ({', '.join(map(_literal, _accepted(condition, labels)))},)"


def _python_sum(condition: Sum, asked: Sequence[str]) -> str:
    total = "0.0"
    for feature, weight, middle in condition.terms:
        x = f"x{asked.index(feature)}"
        total += f" + {weight!r} * ({x} if -{HUGE!r} <= {x} <= {HUGE!r} else {middle!r})"
    return f"{total} {'>' if condition.kind == 'above' else '<='} {condition.value!r}"


def _python_condition(condition: Condition, x: str) -> str:
    if condition.kind == "missing":
        return f"{x} != {x}"
    if condition.kind == "at most":
        return f"-LARGEST <= {x} <= {condition.value!r}"
    if condition.kind == "above":
        return f"{condition.value!r} < {x} <= LARGEST"
    return f"-LARGEST <= {x} <= LARGEST"


# -- labels in SQL: names and texts quoted, and labels read as the policy reads them ---------------
#
# A policy that folds labels (`labels="trim,casefold"`) folds every row that it is asked about.
# SQL has no casefold. So each character that folds to a part of some label is replaced by what it
# folds to; a text with any other character that would be folded equals no label in any case.

WHOLE = re.compile(r"-?[0-9]+")


def identifier(name: str) -> str:
    """The name of a table or a column, quoted."""
    if not isinstance(name, str) or not name:
        raise PolicyError("a table or a column needs a name.", repr(name), "Name it.")
    return '"' + _writable(name).replace('"', '""') + '"'


def sql_text(text: str) -> str:
    """A text, quoted."""
    return "'" + _writable(text).replace("'", "''") + "'"


def _writable(text: str) -> str:
    """The text; refused where it holds what no query can: NUL, or half a character."""
    if "\0" in text or any("\ud800" <= ch <= "\udfff" for ch in text):
        raise PolicyError(
            "a name or a label cannot be written in SQL.",
            ascii(text)[:200],
            "Rename it and fit the policy again.",
        )
    return text


@functools.cache
def _folding() -> tuple[tuple[str, str], ...]:
    """Every character that casefold changes, and what it becomes."""
    every = (chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i <= 0xDFFF)
    return tuple((ch, ch.casefold()) for ch in every if ch.casefold() != ch)


@functools.cache
def _spaces() -> str:
    """An expression of every character that Python takes for white space."""
    codes = [i for i in range(sys.maxunicode + 1) if chr(i).isspace()]
    return " || ".join(f"chr({code})" for code in codes)


def sql_reader(name: str, labels: Sequence[str], fold: str) -> str:
    """An expression of DuckDB for the label in a column: text, folded as `fold` says.

    Args:
        name: The column.
        labels: The labels of the policy.
        fold: What is done to labels first: "trim", "casefold", both, or "".
    """
    column = identifier(name)
    text = f"CAST({column} AS VARCHAR)"
    # whole numbers beside gaps are doubles, and so is a column of gaps alone
    number = f"nullif(regexp_replace({text}, '\\.0+$', ''), 'nan')"
    if labels == TRUTH or any(WHOLE.fullmatch(label) for label in labels):
        number = f"regexp_replace({number}, '^-0$', '0')"  # -0.0 is 0
    numeric = f"typeof({column}) IN ('DOUBLE', 'FLOAT') OR typeof({column}) LIKE 'DECIMAL%'"
    if any(WHOLE.fullmatch(label) for label in labels):
        listed = ", ".join(sql_text(label) for label in labels if WHOLE.fullmatch(label))
        plain = f"regexp_replace({text}, '\\.0+$', '')"
        text = f"if({plain} IN ({listed}), {plain}, {text})"
    text = f"CASE WHEN {numeric} THEN {number} ELSE {text} END"
    if "trim" in fold:
        text = f"trim({text}, {_spaces()})"
    if "casefold" in fold:
        folds = [(ch, to) for ch, to in _folding() if any(to in label for label in labels)]
        single = [(ch, to) for ch, to in folds if len(to) == 1]
        for ch, to in folds:
            if len(to) > 1:
                text = f"replace({text}, {sql_text(ch)}, {sql_text(to)})"
        if single:
            ends = (sql_text("".join(part)) for part in zip(*single, strict=True))
            text = f"translate({text}, {', '.join(ends)})"
    return text
