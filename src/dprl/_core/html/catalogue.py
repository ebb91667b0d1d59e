"""The words of pages in one catalogue: a file per language, and numbers by the same language.

`words/en.toml` and `words/de.toml` have the same keys. A message has places such as {n}; whatever
is put there is escaped, and a whole number gets the language's thousands. A key that ends in .one
or .other is one of two forms, for one and for any other number.
"""

from __future__ import annotations

import datetime
import difflib
import functools
import math
import re
import tomllib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from markupsafe import Markup

from dprl._core.html.situations import NUMBER, QUOTED, conditions, situation
from dprl._core.practice import DIVIDED
from dprl._core.table import Table
from dprl.errors import ParameterError

__all__ = ["LANGUAGES", "Words", "known", "short", "speak", "visible"]

LANGUAGES = ("en", "de")
"""The languages that pages can speak."""

LONGEST = 160
"""Largest number of characters of a label or a situation; a longer text is cut and marked."""
SWAPPED = str.maketrans(",.", ".,")
SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-ZΓ(])")
"""Where one sentence ends and the next begins."""
MORE = re.compile(r"\b([\d,]+) more (\d+ %)$")
"""The last of the shares of actions where practice is divided, where some are not named."""
LISTS = {"List": r"; (?![^()]*\))", "Names": r", (?![^()]*\))"}
"""Places that hold a list of words of ours, and what stands between two of them."""


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


@dataclass(frozen=True, eq=False)
class Words:
    """The words and numbers of one language.

    Attributes:
        lang: The language, as HTML names it: "en".
        messages: Key → message with places in braces.
        sentences: (pattern of an English sentence, how this language says it); empty for English.
    """

    lang: str
    messages: Mapping[str, str]
    sentences: tuple[tuple[re.Pattern[str], str], ...] = ()

    def __call__(self, key: str, /, **values: Any) -> Markup:
        """The message of this key with its places filled in; values are escaped."""
        shown = {name: self._shown(value) for name, value in values.items()}
        return Markup(self.messages[key]).format(**shown)

    def many(self, key: str, n: int, /, **values: Any) -> Markup:
        """The form of a message for n things; {n} in it is the number."""
        return self(f"{key}.{'one' if n == 1 else 'other'}", n=n, **values)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, Markup):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return self.count(value)
        return visible(str(value))

    def _local(self, text: str) -> str:
        """A number written as in English, as this language writes it."""
        return text if self.lang == "en" else text.translate(SWAPPED)

    def count(self, value: int) -> str:
        """A whole number with thousands."""
        return self._local(f"{value:,}")

    def fixed(self, value: float, places: int) -> str:
        """A number with so many digits after the point."""
        return self._local(f"{value:,.{places}f}")

    def general(self, value: float, digits: int = 6) -> str:
        """A number with at most so many digits, and no more than it has."""
        return self._local(f"{value:.{digits}g}")

    def number(self, value: float | str | None, sign: bool = False) -> str:
        """A number as tables show it; – if it is missing. Text (a label) is shown as it is."""
        if isinstance(value, str):
            return value
        if value is None or known(value) is None:
            return "–"
        text = self._local(Table({"": [value]}).cells()[0][0])
        return f"+{text}" if sign and value > 0 else text.replace("-", "−")

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
        return str(
            self("date", day=str(day.day), month=self(f"month.{day.month}"), year=str(day.year))
        )

    def column(self, name: str) -> str:
        """What people call a column of a table of ours."""
        return self.messages.get(f"column.{name}", name)

    def cell(self, name: str, text: str, numeric: bool, features: Sequence[str]) -> Any:
        """A cell of such a table: numbers as this language writes them, labels as they are."""
        if numeric:
            return self._local(text)
        if name == "kind":
            return self.messages.get(f"cell.{text}", text)
        if name == "why":
            return self.quote(text)
        return self.situation(text, features) if name in ("where", "state") else text

    def usual(self, label: Any, actions: Sequence[Any] = ()) -> str:
        """The usual action, or two with half of the share each; or that practice is divided.

        Args:
            label: The action; "a or b" where two have half of the share each.
            actions: All actions, by which two are told from one.
        """
        if label == DIVIDED:
            return self.messages["changes.divided"]
        text, names = str(label), {str(action) for action in actions}
        for hit in re.finditer(" or ", text):
            both = text[: hit.start()], text[hit.end() :]
            if text not in names and names.issuperset(both):
                return self.messages["where.or"].join(both)
        return text

    def ahead(self, words: str) -> str:
        """What came next in a case, with its last words in this language."""
        if words == "end":
            return str(self("case.end"))
        hit = re.search(r"… ([\d,]+) more$", words)
        if hit is None:
            return words
        return words[: hit.start()] + str(self("case.more", n=self.digits(hit[1])))

    def digits(self, text: str) -> str:
        """A text such as "99.9 %" with its digits as this language writes them."""
        return self._local(text)

    def begin(self, sentence: Any) -> Any:
        """A sentence with a capital letter at its beginning."""
        if isinstance(sentence, Markup) and sentence.startswith("<span"):
            return sentence  # a quotation
        return sentence[:1].upper() + sentence[1:]

    def quote(self, text: Any) -> Any:
        """What the library wrote, in this language; or all of it as it is, marked as English.

        A text is said in one language: if one of its sentences has no translation, none is used.
        """
        if self.lang == "en" or isinstance(text, Markup) or not isinstance(text, str) or not text:
            return text
        parts = self._whole(text)
        if parts is None:
            return Markup('<span lang="en">{}</span>').format(visible(text))
        return parts

    def situation(
        self, words: str, features: Sequence[str], cut: Callable[[str], str] = str
    ) -> Any:
        """Where a change is made, such as "age 60 to under 70"; a label of a state as it is.

        Args:
            words: The words of the library.
            features: Names of the features; () where states are labels.
            cut: Makes long words short.
        """
        if self.lang == "en" or not features:
            return cut(words)
        own = situation(words, features, self.messages, self._local)
        if own is None:
            return Markup('<span lang="en">{}</span>').format(visible(cut(words)))
        return cut(own)

    def plain(self, key: str, **values: str) -> str:
        """A message as text, without escaping: for words that are escaped later."""
        return self.messages[key].format(**values)

    def condition(self, words: str, features: Sequence[str]) -> str:
        """A condition of a rule as plain text in this language; as it is where it is none."""
        own = None
        if self.lang != "en":
            own = conditions(words, features, self.messages, self._local)
        return words if own is None else own

    def part(self, part: str) -> Any:
        """What stands in a place of a sentence: a number, words of ours, or a label."""
        if NUMBER.fullmatch(part):
            return self._local(part)
        translated = self._one(part)
        return visible(part) if translated is None else translated

    def _whole(self, text: str) -> Markup | None:
        """A text sentence by sentence, else at once; None where neither has a translation."""
        one_by_one = [self._one(sentence) for sentence in SENTENCES.split(text)]
        if None not in one_by_one:
            return Markup(" ").join(one for one in one_by_one if one is not None)
        return self._one(text)

    def _one(self, sentence: str) -> Markup | None:
        """A sentence of the library in this language; None where there is no translation."""
        for pattern, message in self.sentences:
            if hit := pattern.fullmatch(sentence):
                parts = {name: self._place(name, text) for name, text in hit.groupdict().items()}
                if None not in parts.values():
                    return Markup(message).format(**{n.rstrip("_"): p for n, p in parts.items()})
        return None

    def _place(self, name: str, text: str) -> Any:
        """What stands in a place: a number, a list, words of ours, or a label; None if unknown."""
        if name.endswith("_"):
            return self._local(text)
        if not name[0].isupper():
            return visible(text)
        if name == "Rule":
            return conditions(text, None, self.messages, self._local)
        if name == "Shares":  # labels, each with its share
            return visible(MORE.sub(lambda hit: self.messages["fig.more-shares"].format(
                n=self._local(hit[1]), share=hit[2]), text))  # fmt: skip
        parts = [self._one(part) for part in re.split(LISTS[name], text)] if name in LISTS else []
        if parts:
            joined = "; " if name == "List" else ", "
            return None if None in parts else Markup(joined).join(p for p in parts if p is not None)
        return self._one(text)


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, str]:
    keys: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            keys |= _flat(value, f"{before}{name}.")
        else:
            keys[before + name] = value
    return keys


def _pattern(sentence: str) -> re.Pattern[str]:
    """A regular expression for an English sentence with places; see words/de.sentences.toml."""
    parts = re.split(r"\{(\w+#?)\}", sentence)
    text = ""
    for i, part in enumerate(parts):
        if i % 2 == 0:
            text += re.escape(part)
        elif part.endswith("#"):
            text += f"(?P<{part[:-1]}_>{NUMBER.pattern})"
        elif part == "Rule":
            text += rf'(?P<Rule>(?:{QUOTED}|[^"])+?)'
        elif part[0].isupper():
            text += f"(?P<{part}>.+?)"
        else:  # a label; one that looks like the end of a sentence or of a list has no translation
            text += rf"(?P<{part}>(?:(?![.!?;]\s|[()]).)+?)"
    return re.compile(text, re.DOTALL)


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
    sentences = {} if lang == "en" else _table(f"{lang}.sentences")
    pairs = tuple((_pattern(english), own) for english, own in sentences.items())
    return Words(lang, _flat(_table(lang)), pairs)


def _table(name: str) -> dict[str, Any]:
    source = resources.files("dprl._core.html").joinpath(f"words/{name}.toml")
    return tomllib.loads(source.read_text(encoding="utf-8"))
