"""Pages for people: templates with every value escaped, one style sheet, figures as inline SVG.

No page loads anything from another server, and no page needs a script. Values are shown as they
are, but characters that cannot be seen (control characters, marks that change the direction of
writing) are spelt out, so that a label cannot pretend to be another one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from dprl._core.html.catalogue import known, speak, visible

__all__ = ["known", "percent", "render", "scale", "snippet", "style", "visible"]

SHOWN, ROOM = 0.8, 2.0
"""Share of the ends of intervals that a scale shows at least, and how many times as far it reaches
to show them all."""


def _read(name: str) -> str:
    return resources.files("dprl._core.html").joinpath(name).read_text(encoding="utf-8")


def number(value: float | str | None, sign: bool = False) -> str:
    """A number as tables show it, in English; – if it is missing. Text is shown as it is."""
    return speak("en").number(value, sign)


def percent(share: float) -> str:
    """A share in per cent, in English; '<1 %' and '>99 %' where it is not quite none or all."""
    return speak("en").percent(share)


def scale(values: Iterable[float | None]) -> float:
    """How far to either side of 0 a figure of these numbers reaches: a round number.

    As far as the largest of them; but where that is more than ROOM times as far as the smallest
    SHOWN of them need, only so far. One wide interval must not make dots of all others: what lies
    beyond the scale is drawn as an arrow.
    """
    sizes = sorted(abs(v) for v in values if v is not None and math.isfinite(v))
    if not sizes or not sizes[-1]:
        return 1.0
    usual = sizes[math.ceil(SHOWN * len(sizes)) - 1]
    reach = sizes[-1] if not usual or sizes[-1] <= ROOM * usual else usual
    digits = 1 - math.floor(math.log10(reach))
    rounded = math.ceil(round(reach * 10.0**digits, 6)) / 10.0**digits if abs(digits) < 300 else 0.0
    return rounded if rounded >= reach and math.isfinite(rounded) else reach


@functools.cache
def _environment(lang: str = "en") -> Environment:
    words = speak(lang)
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(lambda name: _read(f"templates/{name}")),
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    # The callables fill in places themselves: in braces, as sentences of the library have them.
    made.install_gettext_callables(words, words.ngettext, newstyle=False)  # type: ignore[attr-defined]
    made.globals.update(t=words)
    made.filters.update(
        known=known, number=words.number, percent=words.percent, scale=scale, count=words.count,
        fixed=words.fixed, general=words.general, quote=words.quote, rounded=words.rounded,
    )  # fmt: skip
    return made


def render(name: str, lang: str = "en", /, **values: Any) -> str:
    """The page made from template `name` and these values, in a language."""
    return _environment(lang).get_template(name).render(**values)


@functools.cache
def style() -> str:
    """The style sheet all pages share."""
    return "".join(_read(name) for name in ("tokens.css", "pieces.css", "style.css"))


def snippet(piece: str, **values: Any) -> str:
    """One piece of a page for a notebook, with a style that affects nothing else there."""
    scoped = Markup(_read("tokens.css") + ".dprl {\n" + _read("pieces.css") + "}\n")
    return render("notebook.html", piece=piece, scoped=scoped, **values)
