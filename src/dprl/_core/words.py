"""Sentences that are data: English for everybody, and translatable because they know their parts.

A `Said` is a text like any other: it is printed, compared and kept in files as its English words.
It also carries its message ("{k:,} of {n:,} episodes were cut.") and the values in it, so that a
page in another language translates the message and writes the numbers its own way.
Values that are themselves `Said` are translated; any other text is a label from data and stays as
it is. `babel.cfg` and ``make words`` collect the messages from the calls of the functions here.
"""

from __future__ import annotations

import re
import string
import warnings
from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

FORMAT = re.compile(r"\+?,?(?:\.\d{1,2})?[defg%]?")
"""How a number may be written: the part of a place after its colon."""
LONGEST = 4_000
"""Largest number of characters of a message that a file may hold."""


class Said(str):
    """A text that knows the message it was made of.

    Attributes:
        message: The English message with places in braces; '' where this is a row of texts.
        other: The message for another number than one; '' where there is no plural.
        values: Name of a place → a number, a label, or another `Said`. "n" decides on the plural.
        parts: Of a row of texts, the texts; else ().
        between: What stands between two of them.
    """

    message: str
    other: str
    values: Mapping[str, Any]
    parts: tuple[str, ...]
    between: str

    def __new__(
        cls,
        message: str,
        other: str = "",
        values: Mapping[str, Any] | None = None,
        parts: Sequence[str] = (),
        between: str = "",
    ) -> Said:
        """A text made of a message and values, or of other texts in a row."""
        values = {name: _plain(value) for name, value in (values or {}).items()}
        if parts:
            text = between.join(parts)
        else:
            chosen = other if other and values.get("n") != 1 else message
            text = chosen.format(**values) if values else chosen
        made = super().__new__(cls, text)
        made.message, made.other, made.values = message, other, values
        made.parts, made.between = tuple(parts), between
        return made

    def __add__(self, other: str) -> str:
        """Both in a row, each with what it knows."""
        return joined("", (self, _message(other))) if other else self

    def __radd__(self, other: str) -> str:
        """Both in a row, each with what it knows."""
        return joined("", (_message(other), self)) if other else self

    def __reduce__(self) -> tuple[Any, ...]:
        return Said, (self.message, self.other, dict(self.values), self.parts, self.between)


def _message(text: str) -> str:
    """A text beside a sentence: words of ours, and no label that every language leaves as it is."""
    if isinstance(text, Said | Named) or not any(letter.isalpha() for letter in text):
        return text
    return Said(text)


class Named(str):
    """A name in a message that Python and the command line write differently.

    It is Python's text for everybody; commands render it anew (`dprl.apps.cli.console`).

    Attributes:
        kind: "option" (an argument with or without its value), "argument" (its name alone),
            "called" (a learner or a function), or "either" (anything else; `value` is the other).
        name: The argument, or what Python calls it.
        value: The value of the argument; None where there is none.
    """

    kind: str
    name: str
    value: Any

    def __new__(cls, text: str, kind: str, name: str, value: Any = None) -> Named:
        """A text of Python's, and what it names."""
        made = super().__new__(cls, text)
        made.kind, made.name, made.value = kind, name, value
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Named, (str(self), self.kind, self.name, self.value)


def option(name: str, value: Any = None) -> str:
    """An argument in a message: cut= or cut='drop' in Python, --cut or --cut drop for commands."""
    return Named(f"{name}={'' if value is None else repr(value)}", "option", name, value)


def argument(name: str) -> str:
    """The name of an argument: n_min in Python, --n-min for commands."""
    return Named(name, "argument", name)


def api(name: str) -> str:
    """A learner or a function: dprl.Rules in Python, --learner rules for commands."""
    return Named(name, "called", name)


def either(python: str, command: str) -> str:
    """What Python's readers need, or those of the command line."""
    return Named(python, "either", python, command)


def _plain(value: Any) -> Any:
    """A value that files can hold: a number of Python's, or a text."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    return value if isinstance(value, int | float | str) else str(value)


def N_(message: str) -> str:
    """The text itself, which `make words` collects: it is translated where it is shown."""
    return message


def NN_(one: str, other: str) -> tuple[str, str]:
    """A message for one thing and for any other number, which `make words` collects."""
    return one, other


def say(message: str, /, **values: Any) -> str:
    """A sentence.

    Args:
        message: English words with places: "{k:,} of {n:,} episodes were cut."
        **values: What stands in the places.

    Example:
        >>> sentence = say("{k:,} of {n:,} episodes were cut.", k=3, n=1200)
        >>> print(sentence)
        3 of 1,200 episodes were cut.
        >>> sentence.values["n"]
        1200
    """
    return Said(message, "", values)


def say_many(one: str, other: str, n: int | Sized, /, **values: Any) -> str:
    """A sentence about one thing, or about another number of them.

    Args:
        one: The words for one; {n:,} is the number.
        other: The words for any other number.
        n: The number, or the things themselves.
        **values: What else stands in the places.

    Example:
        >>> print(say_many("{n:,} episode was cut.", "{n:,} episodes were cut.", 2000))
        2,000 episodes were cut.
    """
    return Said(one, other, {"n": len(n) if isinstance(n, Sized) else n, **values})


NAMED = re.compile(r"{(?:(\w+)(=[^{}]*)?|dprl\.([\w.]+))}")
"""A place of `worded` that may stand for a name: {n_min}, {cut='drop'}, {cut=}, {dprl.evaluate}."""


def worded(message: str, /, **values: Any) -> str:
    """As `say`, for messages of errors and warnings, which stay English: they are not collected.

    A place without a value is a name that Python and the command line write differently, as Python
    writes it: ``{n_min}`` is an argument, ``{cut='drop'}`` an argument with its value, ``{cut=}``
    one with any value, and ``{dprl.evaluate}`` a learner or a function.

    Example:
        >>> print(worded("Say {cut='drop'} for {n} episodes.", n=3))
        Say cut='drop' for 3 episodes.
    """

    def place(found: re.Match[str]) -> str:
        name, value, function = found.groups()
        if name in values and value is None:
            return found[0]
        if function:
            name, made = function.rpartition(".")[2], api(f"dprl.{function}")
        elif value is None:
            made = argument(name)
        else:
            made = option(name, literal_eval(value[1:] or "None"))
        while values.setdefault(name, made) != made:
            name += "2"
        return f"{{{name}}}"

    return Said(NAMED.sub(place, message), "", values)


def word(text: str) -> str:
    """A word of ours that is chosen elsewhere ("episodes"), as a part of a sentence."""
    return text if isinstance(text, Said) else Said(text)


def said_by(warning: warnings.WarningMessage) -> str:
    """The sentence of a warning that was caught, with what it knows."""
    given = warning.message
    return str(given) if isinstance(given, str) or not given.args else word(given.args[0])


def joined(between: str, parts: Iterable[Any]) -> str:
    """Texts in a row, with something between two of them; each keeps what it knows.

    Example:
        >>> print(joined("; ", [say("{n} rows", n=3), "a label"]))
        3 rows; a label
    """
    texts = [part if isinstance(part, str) else str(part) for part in parts]
    return Said("", "", None, texts, between) if texts else ""


def sentences(*parts: str) -> str:
    """Sentences one after the other; those that are empty are left out."""
    kept = [part for part in parts if part]
    return kept[0] if len(kept) == 1 else joined(" ", kept)


WORDS = (
    N_("episode"), N_("group"), N_("state"), N_("cell"), N_("region of a rule"), N_("given"),
    N_("known"), N_("estimated"), N_("mixed"), N_("proved"), N_("large-sample"),
)  # fmt: skip
"""Words that facts and files hold, and that `word` makes parts of sentences."""

UNITS: Mapping[str, tuple[str, str]] = {
    "step": NN_("{n:,} step", "{n:,} steps"),
    "unit": NN_("{n:,} unit", "{n:,} units"),
    "second": NN_("{n:,} second", "{n:,} seconds"),
    "minute": NN_("{n:,} minute", "{n:,} minutes"),
    "hour": NN_("{n:,} hour", "{n:,} hours"),
    "day": NN_("{n:,} day", "{n:,} days"),
    "week": NN_("{n:,} week", "{n:,} weeks"),
    "month": NN_("{n:,} month", "{n:,} months"),
    "year": NN_("{n:,} year", "{n:,} years"),
}
"""Units of time → a number of them."""


def duration(text: str) -> str:
    """A time that is kept as text, such as "30 days", as a part of a sentence."""
    number, _, unit = str(text).partition(" ")
    forms = UNITS.get(unit.removesuffix("s"))
    try:
        n = float(number.replace(",", ""))
    except ValueError:
        return text
    said = Said(*forms, {"n": int(n) if n.is_integer() else n}) if forms else text
    return said if said == text else text


# -- in files ------------------------------------------------------------------------------------


def pieces(message: str) -> Iterator[tuple[str, str | None, str]]:
    """A message as (words, name of the place after them or None, how it is written)."""
    for words, name, how, _ in string.Formatter().parse(message):
        yield words, name, how or ""


def said_in(document: Any) -> list[Any]:
    """What the sentences in a document know, for a file: each once, in the order of their texts."""
    found: dict[str, Said] = {}
    rows = [document]
    while rows:
        value = rows.pop()
        if isinstance(value, Said):
            found[str(value)] = value
        elif isinstance(value, Mapping):
            rows.extend(value.values())
        elif isinstance(value, list | tuple):
            rows.extend(value)
    return [_data(found[text]) for text in sorted(found)]


def _data(said: str) -> Any:
    """A sentence as values that JSON can hold; a label as it is."""
    if not isinstance(said, Said):
        return str(said)
    if said.parts:
        return {"between": _data(said.between), "parts": [_data(part) for part in said.parts]}
    values = {n: _data(v) if isinstance(v, str) else v for n, v in said.values.items()}
    kept = {"message": said.message, "values": values}
    return {**kept, "other": said.other} if said.other else kept


def with_said(document: Any, kept: Any) -> Any:
    """A document with the sentences that a file knows more of; the others stay plain texts.

    What is kept for a text must make this very text: a file cannot say one thing in English and
    another in German.
    """
    known: dict[str, Said] = {}
    for data in kept if isinstance(kept, list) else ():
        try:
            said = _made(data)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            continue
        if isinstance(said, Said):
            known[str(said)] = said
    return _restored(document, known) if known else document


def _restored(value: Any, known: Mapping[str, Said]) -> Any:
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, dict):
        return {name: _restored(one, known) for name, one in value.items()}
    return [_restored(one, known) for one in value] if isinstance(value, list) else value


def _made(data: Any) -> str:
    """The sentence that a file describes; anything odd about it is a ValueError or the like."""
    if isinstance(data, str):
        return data
    if "parts" in data:
        return Said("", "", None, [_made(part) for part in data["parts"]], _made(data["between"]))
    message, other, values = data["message"], data.get("other", ""), data["values"]
    for text in (message, other):
        for _, name, how in pieces(text[:LONGEST]):
            if name is not None and not (name.isidentifier() and FORMAT.fullmatch(how)):
                raise ValueError(name)
    made = {n: v if isinstance(v, int | float) else _made(v) for n, v in values.items()}
    return Said(message[:LONGEST], other[:LONGEST], made)
