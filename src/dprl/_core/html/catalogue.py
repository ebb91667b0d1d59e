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
from dprl._core.words import N_, NN_, Said, pieces
from dprl.errors import ParameterError

# --- What pages call things that a program chooses: sections, columns, verdicts, items
#
# English names by kind and key, collected for translation by `N_`. A name has one form, or two: for
# one thing, and for any other number.

NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "month": {
        "1": (N_("January"),),
        "2": (N_("February"),),
        "3": (N_("March"),),
        "4": (N_("April"),),
        "5": (N_("May"),),
        "6": (N_("June"),),
        "7": (N_("July"),),
        "8": (N_("August"),),
        "9": (N_("September"),),
        "10": (N_("October"),),
        "11": (N_("November"),),
        "12": (N_("December"),),
    },
    "target.section": {
        "use": (N_("Intended use"),),
        "abstract": (N_("Abstract"),),
        "introduction": (N_("Introduction"),),
        "methods": (N_("Methods: the target trial, and how it was emulated"),),
        "results": (N_("Results"),),
        "discussion": (N_("Discussion"),),
        "other": (N_("Other information"),),
    },
    "target.item": {
        "setting": (N_("Where it is to be used"),),
        "users": (N_("Who is to use it"),),
        "not-for": (N_("What it must not be used for"),),
        "contact": (N_("Whom to ask"),),
        "identification": (N_("Identification and finding"),),
        "background": (N_("Background"),),
        "question": (N_("Causal question"),),
        "rationale": (N_("Why a trial is emulated"),),
        "data-sources": (N_("Data sources"),),
        "eligibility": (N_("Eligibility"),),
        "strategies": (N_("Strategies that are compared"),),
        "assignment": (N_("Assignment"),),
        "time-zero": (N_("Time zero and follow-up"),),
        "outcome": (N_("Outcome"),),
        "estimand": (N_("Estimand (causal contrast)"),),
        "assumptions": (N_("Assumptions"),),
        "analysis": (N_("Analysis"),),
        "flow": (N_("Selection and flow"),),
        "baseline": (N_("Baseline"),),
        "follow-up": (N_("Follow-up"),),
        "missing-data": (N_("Missing values"),),
        "outcomes": (N_("Outcome under usual practice"),),
        "effect": (N_("Estimated effect"),),
        "balance": (N_("Balance"),),
        "sensitivity": (N_("Sensitivity and further analyses"),),
        "interpretation": (N_("Interpretation"),),
        "limitations": (N_("Limitations"),),
        "ethics": (N_("Ethics"),),
        "registration": (N_("Registration and protocol"),),
        "data-access": (N_("Access to data and code"),),
        "funding": (N_("Funding"),),
        "conflicts": (N_("Conflicts of interest"),),
    },
    "target.flow": {
        "source": (N_("Episodes in the data"),),
        "dropped": (N_("of these: left out, because a value is missing"),),
        "given": (N_("Episodes in the log"),),
        "cut": (N_("of these: observation was cut before the end"),),
        "left-out": (N_("of these: left out, because what came after the cut is not known"),),
        "analysed": (N_("Episodes analysed"),),
        "after-cut": (
            N_(
                "of these: came after a cut one of their group; left out of comparisons of first "
                "decisions alone"
            ),
        ),
        "groups": (N_("Groups of these episodes, such as patients, which count as one"),),
        "reached": (N_("Reach a decision that the policy would change"),),
        "followed": (N_("Followed it at their first such decision"),),
        "otherwise": (N_("Did otherwise there"),),
        "always": (
            N_("Took the suggestion at every decision at which the policy differs from practice"),
        ),
    },
    "sure.in": {
        "training": (N_("training"),),
        "the model": (N_("the model"),),
        "returns to the same state": (N_("returns to the same state"),),
        "returns of first visits": (N_("returns of first visits"),),
    },
    "finding.estimated": {
        "usual": (
            N_(
                "Estimated difference to usual practice ({name}): {difference}, {level} % "
                "interval {low} to {high}"
            ),
        ),
        "mixture": (
            N_(
                "Estimated difference to what is done now, all actions together ({name}): "
                "{difference}, {level} % interval {low} to {high}"
            ),
        ),
    },
    "finding.estimated-alone": {
        "usual": (
            N_(
                "Estimated difference to usual practice ({name}): {difference}, without an interval"
            ),
        ),
        "mixture": (
            N_(
                "Estimated difference to what is done now, all actions together ({name}): "
                "{difference}, without an interval"
            ),
        ),
    },
    "nav": {
        "finding": (N_("The finding"),),
        "changes": (N_("What would change"),),
        "silent": (N_("Where it stays silent"),),
        "sure": (N_("How sure"),),
        "unknown": (N_("What it cannot know"),),
        "standard": (N_("After TARGET"),),
        "origin": (N_("Where it comes from"),),
    },
    "count": {
        "episode": NN_("{n} episode", "{n} episodes"),
        "group": NN_("{n} group", "{n} groups"),
        "region": NN_("{n} region", "{n} regions"),
        "rule": NN_("{n} rule", "{n} rules"),
        "cell": NN_("{n} cell", "{n} cells"),
        "situation": NN_("{n} situation", "{n} situations"),
    },
    "unit": {
        "episodes": (N_("episodes"),),
        "groups": (N_("groups"),),
        "visits": (N_("visits"),),
    },
    "unit.each": {
        "episode": (N_("each episode's"),),
        "group": (N_("each group's"),),
    },
    "changes.mean": {
        "return": (N_("Mean return after first visits"),),
        "credit": (N_("Mean credit after first visits"),),
    },
    "verdict.long": {
        "agrees": (N_("agrees: the interval lies on the better side of 0"),),
        "leans with it": (N_("leans with it: better here too, but not surely"),),
        "leans against it": (N_("leans against it: not better here, but not surely worse"),),
        "contradicts": (N_("contradicts it: the interval lies on the worse side of 0"),),
        "cannot say": (N_("cannot say: too few cases on one side"),),
        "cannot compare": (N_("cannot say: recorded chances differ, and not all are on record"),),
    },
    "rest": {
        "region": (N_("Region"),),
        "rule": (N_("Rule"),),
        "cell": (N_("Cell"),),
        "situation": (N_("Situation"),),
    },
    "verdict": {
        "agrees": (N_("agrees"),),
        "leans with it": (N_("leans with it"),),
        "leans against it": (N_("leans against it"),),
        "contradicts": (N_("contradicts"),),
        "cannot say": (N_("cannot say"),),
        "cannot compare": (N_("cannot say"),),
    },
    "kinds": {
        "region": (N_("regions"),),
        "rule": (N_("rules"),),
        "cell": (N_("cells"),),
        "situation": (N_("situations"),),
    },
    "origin": {
        "policy": (N_("Policy"),),
        "judged": (N_("Judged by log"),),
        "trained": (N_("Trained on log"),),
        "made": (N_("Made by"),),
        "parameters": (N_("Parameters"),),
        "training": (N_("Training"),),
        "picked": (N_("Picked"),),
        "approved": (N_("Approved"),),
        "evaluation": (N_("Evaluation"),),
        "seed": (N_("Seed"),),
    },
    "eval.how": {
        "IS": (N_("importance weights"),),
        "WIS": (N_("importance weights, normalised"),),
        "PDIS": (N_("weights decision by decision"),),
        "WPDIS": (N_("weights decision by decision, normalised"),),
        "DM": (N_("a model of values alone"),),
        "DR": (N_("the model, corrected by weights"),),
        "WDR": (N_("the model, corrected by normalised weights"),),
    },
    "whom": {
        "gains": (N_("gains"),),
        "leans up": (N_("leans up"),),
        "leans down": (N_("leans down"),),
        "not changed": (N_("not changed"),),
    },
    "proof": {
        "proved": (N_("Proved, for all certified changes at once."),),
        "large-sample": (N_("Certified for large samples, not proved."),),
        "vacuous": (N_("The gate could prove nothing: no suggestion is certified."),),
        "assumed": (N_("Not proved: sure for large samples, if what it assumes is true."),),
        "none": (N_("Nothing is proved."),),
    },
    "grade": {
        "proved": (N_("proved"),),
        "large-sample": (N_("large-sample"),),
        "assumed": (N_("if its model is right"),),
    },
    "proof.grade": {
        "proved": (N_("Grade: proved."),),
        "large-sample": (N_("Grade: large-sample."),),
    },
    "column": {
        "state": (N_("state"),),
        "kind": (N_("kind"),),
        "usual": (N_("usual"),),
        "suggested": (N_("suggested"),),
        "n": (N_("took it"),),
        "others": (N_("did otherwise"),),
        "difference": (N_("difference to doing otherwise"),),
        "low": (N_("low"),),
        "advantage_low": (N_("advantage, at least"),),
        "advantage_high": (N_("advantage, at most"),),
        "log10_e": (N_("e-value, log 10"),),
        "p": (N_("p"),),
        "gamma_star": (N_("Γ*"),),
        "gamma_point": (N_("Γ* as estimated"),),
        "rule": (N_("rule"),),
        "where": (N_("where"),),
        "share": (N_("share"),),
        "changes": (N_("changes"),),
        "per change": (N_("per change"),),
        "changes in all": (N_("changes in all"),),
        "brings in all": (N_("brings in all"),),
        "advantage": (N_("as estimated"),),
        "high": (N_("high"),),
        "groups": (N_("groups"),),
        "groups_took": (N_("took it there"),),
        "why": (N_("why not"),),
    },
    "cell": {
        "change": (N_("change"),),
        "confirmation": (N_("confirmation"),),
        "avoid": (N_("avoid"),),
    },
}
"""Kind → key → its name."""


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

    def of(self, kind: str, name: str, /, **values: Any) -> Markup:
        """What one of several things is called; `dprl._core.html.catalogue` has the kinds."""
        return self(NAMES[kind][name][0], **values)

    def many_of(self, kind: str, name: str, n: int, /, **values: Any) -> Markup:
        """A number of one of several things."""
        one, other = NAMES[kind][name]
        return self.ngettext(one, other, n, **values)

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

    def rounded(self, value: float, width: float) -> str:
        """A difference with its sign, in as many digits as an interval so wide tells."""
        digits = min(max(1 - math.floor(math.log10(width)), 0), 6) if width > 0 else 3
        text = self.fixed(value, digits)
        if value and not float(format(value, f".{digits}f")):
            text = self.general(value, 2)
        return f"+{text}" if value > 0 else text.replace("-", "−")

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
        month = self.of("month", str(day.month))
        message = N_("{day} {month} {year}")
        return str(self(message, day=str(day.day), month=month, year=str(day.year)))

    # -- tables ------------------------------------------------------------------------------------

    def column(self, name: str) -> str:
        """What people call a column of a table of ours."""
        return str(self.of("column", name)) if name in NAMES["column"] else name

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
            return self.of("cell", text) if text in NAMES["cell"] else text
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
