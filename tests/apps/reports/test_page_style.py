"""Colours of pages: text can be read on every ground, in light and in dark, and prints light."""

from __future__ import annotations

import re

import pytest

import dprl
from conftest import to_log
from dprl._core import html as pages

TEXT = ("ink", "soft", "accent", "change", "good", "bad")
TOKEN = re.compile(r"--(\w+): (#[0-9a-f]{6})")


def tokens(scheme):
    """The colours of a scheme: those of light, and what dark puts in their place."""
    style = pages.style()
    dark = re.search(r"@media screen and \(prefers-color-scheme: dark\) \{(.*?)\n\}\n", style, re.S)
    assert dark is not None
    light = dict(TOKEN.findall(style.replace(dark[0], "")))
    return light if scheme == "light" else light | dict(TOKEN.findall(dark[1]))


def contrast(one, other):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    a, b = sorted((light(one), light(other)))
    return (b + 0.05) / (a + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme):
    colour = tokens(scheme)
    for ground in ("ground", "panel"):
        for text in TEXT:
            least = 4.5 if text == "change" else 7  # "change" is of badges, whose words are bold
            assert contrast(colour[text], colour[ground]) >= least, (text, ground)
    for leaf in (*(f"leaf{i}" for i in range(6)), "defer"):
        assert contrast(colour["ink"], colour[leaf]) >= 7, leaf
    assert contrast(colour["line"], colour["ground"]) >= 3  # bars and lines


def test_every_colour_has_a_dark_one():
    light, dark = tokens("light"), tokens("dark")
    assert {name for name in light if light[name] == dark[name]} == set()


def test_what_the_keyboard_comes_to_has_names_of_its_own(tmp_path):
    rows = [[(f"s{i}", "b", 1.0) for i in range(3)]] * 6 + [
        [(f"s{i}", "a", 0.0) for i in range(3)]
    ] * 8
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(to_log(rows))
    dprl.report(
        policy, to_log(rows * 2), tmp_path / "r.html", values=False, draws=20, cases=1,
        standard="target",
    )  # fmt: skip
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    names = re.findall(r'class="scroll" role="group" tabindex="0" aria-label="([^"]*)"', page)
    assert len(names) > 5
    assert len(set(names)) == len(names)
    assert "Table; scrolls sideways where it is wide" not in names
    assert not re.search(r'aria-label="[^"]*&lt;', page)
