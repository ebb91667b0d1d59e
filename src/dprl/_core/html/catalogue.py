"""The words of pages: a gettext catalogue per language, and numbers by the same language.

English is what templates and sentences say; `locale/de/LC_MESSAGES/dprl.po` has the German for each
message, with the same places in braces. What is put into a place of a page is escaped, and a whole
number gets the language's thousands. Sentences of the library carry their message and values
(`dprl._core.words`); a text that does not is shown in English, marked as English.
"""

from __future__ import annotations

import ast
import datetime
import difflib
import functools
import gettext
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup

from dprl._core.table import Table
from dprl._core.words import N_, Said, pieces
from dprl.errors import ParameterError

# --- What pages call months, and the columns of tables of ours

MONTHS = (
    N_("January"), N_("February"), N_("March"), N_("April"), N_("May"), N_("June"), N_("July"),
    N_("August"), N_("September"), N_("October"), N_("November"), N_("December"),
)  # fmt: skip
COLUMNS: Mapping[str, str] = {
    "n": N_("took it"),
    "others": N_("did otherwise"),
    "difference": N_("difference to doing otherwise"),
    "advantage_low": N_("advantage, at least"),
    "advantage_high": N_("advantage, at most"),
    "log10_e": N_("e-value, log 10"),
    "gamma_star": N_("Γ*"),
    "gamma_point": N_("Γ* as estimated"),
    "advantage": N_("as estimated"),
    "groups_took": N_("took it there"),
    "why": N_("why not"),
} | {
    name: name
    for name in (
        N_("state"), N_("kind"), N_("usual"), N_("suggested"), N_("low"), N_("p"), N_("rule"),
        N_("where"), N_("share"), N_("changes"), N_("per change"), N_("changes in all"),
        N_("brings in all"), N_("high"), N_("groups"),
    )
}  # fmt: skip
"""Column of a table of ours → what people call it."""
CELLS = (N_("change"), N_("confirmation"), N_("avoid"))
"""What the column "kind" of such a table holds."""


# --- The words of pages: a gettext catalogue per language, and numbers by the same language

LANGUAGES = ("en", "de")
"""The languages that pages can speak."""

LONGEST = 160
"""Largest number of characters of a label or a situation; a longer text is cut and marked."""
SWAPPED = str.maketrans(",.", ".,")


def visible(value: Any) -> Any:
    """Text with invisible characters spelt out as ⟨U+202E⟩; any other value unchanged."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "".join(
        f"⟨U+{ord(ch):04X}⟩" if unicodedata.category(ch) in ("Cc", "Cf") and ch != "\n" else ch
        for ch in value
    )


def short(value: Any) -> str:
    """The text, cut to at most LONGEST characters."""
    text = str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def known(value: float | None) -> float | None:
    """The number; None if it is missing, NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def read_po(source: str) -> dict[str, tuple[str, ...]]:
    """The messages of a .po file → their forms, one or one for each plural; "" is the header.

    Entries marked as fuzzy, and those without a translation, are left out.
    """
    found: dict[str, tuple[str, ...]] = {}
    for entry in source.split("\n\n"):
        said: dict[str, str] = {}
        word = ""
        lines = [line for line in entry.splitlines() if not line.startswith("#")]
        for line in lines:
            if not line.startswith('"'):
                word = line.partition(" ")[0]
            text = line if line.startswith('"') else line.partition(" ")[2]
            said[word] = said.get(word, "") + ast.literal_eval(text)
        forms = tuple(own for word, own in said.items() if word.startswith("msgstr"))
        if "msgid" in said and all(forms) and "\n#, fuzzy" not in f"\n{entry}":
            found[said["msgid"]] = forms
    return found


def _has_words(message: str) -> bool:
    """Whether a message says anything besides the numbers and texts in its places."""
    return any(letter.isalpha() for words, _, _ in pieces(message) for letter in words)


class UntranslatedError(LookupError):
    """A message has no translation."""


@dataclass(frozen=True, eq=False)
class Words:
    """The words and numbers of one language.

    Attributes:
        lang: The language, as HTML names it: "en".
        messages: English message → how this language says it, a form for each plural.
        plural: Which of the forms a number asks for.
    """

    lang: str
    messages: Mapping[str, tuple[str, ...]]
    plural: Callable[[int], int]

    def __call__(self, message: str, /, **values: Any) -> Markup:
        """The message in this language with its places filled in; values are escaped."""
        shown = {name: self._shown(value) for name, value in values.items()}
        return Markup(self.messages.get(message, (message,))[0]).format(**shown)

    def ngettext(self, one: str, other: str, n: int, /, **values: Any) -> Markup:
        """The form of a message for n things; {n} in it is the number."""
        shown = {name: self._shown(value) for name, value in {"n": n, **values}.items()}
        forms = self.messages.get(one, (one, other))
        return Markup(forms[self.plural(n)]).format(**shown)

    def plain(self, message: str, /, **values: str) -> str:
        """A message as text, without escaping: for words that are escaped later."""
        return self.messages.get(message, (message,))[0].format(**values)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Markup):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return self.count(value)
        return visible(str(value))

    # -- numbers -----------------------------------------------------------------------------------

    def write(self, value: float, how: str) -> str:
        """A number written as a format says, the way of this language."""
        text = format(value, how)
        return text if self.lang == "en" else text.translate(SWAPPED)

    def count(self, value: int) -> str:
        """A whole number with thousands."""
        return self.write(value, ",")

    def fixed(self, value: float, places: int) -> str:
        """A number with so many digits after the point."""
        return self.write(value, f",.{places}f")

    def general(self, value: float, digits: int = 6) -> str:
        """A number with at most so many digits, and no more than it has."""
        return self.write(value, f".{digits}g")

    def number(self, value: float | str | None, sign: bool = False) -> str:
        """A number as tables show it; – if it is missing. Text (a label) is shown as it is."""
        if isinstance(value, str):
            return value
        if value is None or known(value) is None:
            return "–"
        text = self.digits(Table({"": [value]}).cells()[0][0])
        return f"+{text}" if sign and value > 0 else text.replace("-", "−")

    def rounded(self, value: float, width: float | None, sign: bool = True) -> str:
        """A number in as many digits as an interval so wide tells, a difference with its sign."""
        if width is None or not width > 0:
            return self.number(value, sign)
        digits = min(max(1 - math.floor(math.log10(width)), 0), 6)
        text = self.fixed(value, digits)
        if value and not float(format(value, f".{digits}f")):
            text = self.general(value, 2)
        return f"+{text}" if sign and value > 0 else text.replace("-", "−")

    def digits(self, text: str) -> str:
        """A number written as in English, as this language writes it."""
        return text if self.lang == "en" else text.translate(SWAPPED)

    def percent(self, share: float) -> str:
        """A share in per cent; '<1 %' instead of 0, '>99 %' instead of 100 where it is neither."""
        whole = round(100 * share)
        if whole == 0 and share > 0:
            return "<1\u00a0%"
        if whole == 100 and share < 1:
            return ">99\u00a0%"
        return f"{whole}\u00a0%"

    def date(self, day: datetime.date) -> str:
        """A date in words."""
        month = self(MONTHS[day.month - 1])
        message = N_("{day} {month} {year}")
        return str(self(message, day=str(day.day), month=month, year=str(day.year)))

    # -- tables ------------------------------------------------------------------------------------

    def column(self, name: str) -> str:
        """What people call a column of a table of ours."""
        return str(self(COLUMNS[name])) if name in COLUMNS else name

    def cell(
        self, name: str, text: str, numeric: bool, features: Sequence[str], value: Any = None
    ) -> Any:
        """A cell of such a table: numbers as this language writes them, labels as they are.

        Args:
            name: Its column.
            text: The value as the table prints it.
            numeric: Whether it is a number.
            features: Names of the features; () where states are labels.
            value: The value itself. Default None: it is a label.
        """
        if numeric:
            return self.digits(text)
        if name == "kind":
            return self(text) if text in CELLS else text
        if isinstance(value, Said):
            return self.situation(value, features, short)
        if name == "why":
            return self.quote(text)
        return self.situation(text, features) if name in ("where", "state") else text

    # -- sentences of the library ------------------------------------------------------------------

    def text(self, text: str) -> str:
        """A sentence of the library in this language, as plain text.

        Raises:
            UntranslatedError: A message in it has no translation.
        """
        if not isinstance(text, Said):
            return str(visible(text))
        if text.parts:
            return self.text(text.between).join(self.text(part) for part in text.parts)
        own: tuple[str, ...] = (text.message, text.other) if text.other else (text.message,)
        if self.lang != "en" and (text.other or _has_words(text.message)):
            if text.message not in self.messages:
                raise UntranslatedError(text.message)
            own = self.messages[text.message]
        chosen = own[self.plural(text.values.get("n", 1))] if text.other else own[0]
        if not text.values:
            return chosen
        line = ""
        for words, name, how in pieces(chosen):
            line += words
            if name is not None:
                value = text.values[name]
                line += self.text(value) if isinstance(value, str) else self.write(value, how)
        return line

    def quote(self, text: Any) -> Any:
        """What the library wrote, in this language; or all of it as it is, marked as English.

        A text is said in one language: if one of its sentences has no translation, none is used.
        """
        if self.lang == "en" or isinstance(text, Markup) or not isinstance(text, str) or not text:
            return text
        own = self._own(text)
        return self._english(text) if own is None else Markup("{}").format(own)

    def _own(self, text: str) -> str | None:
        """A sentence in this language; None where it cannot be said in it."""
        if not isinstance(text, Said):
            return None
        try:
            return self.text(text)
        except UntranslatedError:
            return None

    def _english(self, text: str) -> Markup:
        return Markup('<span lang="en">{}</span>').format(visible(text))

    def begin(self, sentence: Any) -> Any:
        """A sentence with a capital letter at its beginning."""
        if isinstance(sentence, Markup) and sentence.startswith("<span"):
            return sentence  # a quotation
        if not re.match("[a-zäöü]", sentence):
            return sentence  # a symbol, such as λ
        return sentence[:1].upper() + sentence[1:]

    def situation(
        self, words: str, features: Sequence[str], cut: Callable[[str], str] = str
    ) -> Any:
        """Where a change is made, such as "age 60 to under 70"; a label of a state as it is.

        Args:
            words: The words of the library.
            features: Names of the features; () where states are labels.
            cut: Makes long words short.
        """
        if self.lang == "en" or (not features and not isinstance(words, Said)):
            return cut(words)
        own = self._own(words)
        return self._english(cut(words)) if own is None else cut(own)

    def part(self, words: Any) -> str:
        """Words of ours or a label, in this language where they are ours."""
        own = self._own(words) if self.lang != "en" else None
        return str(visible(words)) if own is None else own


@functools.cache
def speak(lang: str) -> Words:
    """The words of a language.

    Args:
        lang: One of LANGUAGES.

    Raises:
        ParameterError: There is no such language.
    """
    if lang not in LANGUAGES:
        near = difflib.get_close_matches(str(lang).lower()[:2], LANGUAGES, 1)
        raise ParameterError(
            f"there is no language {lang!r}.",
            f"languages are {', '.join(LANGUAGES)}",
            f"Say {near[0] if near else LANGUAGES[0]!r}, or another one of them.",
        )
    if lang == "en":
        return Words(lang, {}, lambda n: int(n != 1))
    source = resources.files("dprl._core.html").joinpath(f"locale/{lang}/LC_MESSAGES/dprl.po")
    messages = read_po(source.read_text(encoding="utf-8"))
    formula = messages.pop("")[0].split("plural=")[1].split(";")[0]
    return Words(lang, messages, gettext.c2py(formula))
