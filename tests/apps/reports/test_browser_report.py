"""The report in a real browser, on screen and on paper."""

from __future__ import annotations

import functools
import itertools
import re
from pathlib import Path

import pytest
from test_browser import CONTRAST, SHOTS, browser, page, tab  # noqa: F401 - fixtures
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import to_log

HOSTILE = "<script>document.title='hacked'</script>\"'&\u202e"
WORLD = dprl.envs.care_pathway()


@functools.cache
def table():
    return dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(WORLD.sample(8000, seed=1))


@functools.cache
def cells():
    return dprl.gate(LEARNER, ward(1_500, 0), **UNIT)


@functools.cache
def walker():
    learner = dprl.DPRLContinuous(
        n_min=10, radius=0.08, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    return learner.fit(dprl.envs.PointMass().sample(200, seed=1))


@functools.cache
def sure():
    return dprl.Confident(gamma=1.0).fit(WORLD.sample(500, seed=0))


def write_trained(path):
    dprl.report(table(), WORLD.sample(8000, seed=1), path, cases=2)


def write_gated(path):
    gated = dprl.gate(table(), WORLD.sample(8000, seed=1), value_range=(0, 1))
    dprl.report(gated, WORLD.sample(800, seed=2), path)


def write_cells(path):
    dprl.report(cells(), ward(500, 9), path, values=False)


def write_regions(path):
    walks = dprl.envs.PointMass().sample(100, seed=2)
    dprl.report(walker(), walks, path, values=False, cases=2)


def write_hostile(path):
    log = to_log([[(HOSTILE, HOSTILE, 1.0)]] * 6 + [[(HOSTILE, "a", 0.0)]] * 9)
    silly = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(log)
    dprl.report(silly, log.take(range(12)), path, title=HOSTILE, cases=2)


def write_confident(path):
    dprl.report(sure(), WORLD.sample(800, seed=2), path, values=False, cases=2)


def write_not_enough(path):
    hidden = dprl.envs.delayed()
    with pytest.warns(dprl.StateWarning):
        harmful = dprl.Confident(gamma=1.0).fit(hidden.sample(200, seed=0))
    dprl.report(harmful, hidden.sample(200, seed=1), path, values=False)


def write_notebook(path):
    shown = (walker(), cells(), cells().certificate, table(), sure())
    path.write_text(
        "<!doctype html><meta charset=utf-8><table id=outer><tr><td>outside</td></tr></table>"
        + "".join(x._repr_html_() for x in shown),
        encoding="utf-8",
    )


WRITE = {
    "trained": write_trained, "gated": write_gated, "cells": write_cells, "regions": write_regions,
    "hostile": write_hostile, "confident": write_confident, "not_enough": write_not_enough,
    "notebook": write_notebook,
}  # fmt: skip


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Where the report of a kind is; it is written when it is first asked for."""
    folder = tmp_path_factory.mktemp("reports")

    @functools.cache
    def report_of(name):
        WRITE[name](folder / f"{name}.html")
        return folder / f"{name}.html"

    return report_of


def opened(tab, path, width=1280):  # noqa: F811
    """A report; from now on the tab notes whatever else it asks for."""
    own = (path.as_uri(), "data:,")
    tab.set_viewport_size({"width": width, "height": 900})
    tab.complaints, tab.mine = [], lambda asked: asked.startswith(own)
    tab.goto(path.as_uri())
    return tab


KINDS = [name for name in WRITE if name != "notebook"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 768, 400])
@pytest.mark.parametrize("name", KINDS)
def test_on_screen(page, reports, name, width):  # noqa: F811
    opened(page, reports(name), width)
    names = ["The finding", "What would change", "Where it stays silent, and why", "How sure",
             "What it cannot know", "Where it comes from"]  # fmt: skip
    assert page.get_by_role("heading", level=2).all_inner_texts() == names
    for landmark in ("banner", "main", "contentinfo", "navigation"):
        assert page.get_by_role(landmark).count() == 1
    assert page.get_by_role("region").count() == len(names)  # each section is named
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CONTRAST) == []
    assert page.locator("svg:not([aria-label])").count() == 0
    assert page.locator("script, img, iframe, form").count() == 0
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(set(ids)) == len(ids)
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(e => +e.tagName[1])")
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"  # the style is let in
    assert page.complaints == []
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"report-{name}-{width}.png", full_page=True)


def test_hostile_labels_show_as_text(page, reports):  # noqa: F811
    opened(page, reports("hostile"))
    shown = "<script>document.title='hacked'</script>\"'&⟨U+202E⟩"
    assert page.title() == f"{shown} · dprl report"
    assert page.get_by_role("heading", level=1).inner_text() == shown
    assert shown in page.locator("article h3").first.inner_text()
    assert page.complaints == []


def test_by_keyboard(page, reports):  # noqa: F811
    opened(page, reports("gated"))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "How sure"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**#sure")  # the key is obeyed a moment later


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_on_paper(page, reports, name, tmp_path):  # noqa: F811
    opened(page, reports(name))
    pdf = page.pdf(prefer_css_page_size=True)
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert 2 <= len(boxes) <= 12
    for width, height in boxes:  # A4 in points
        assert (float(width), float(height)) == pytest.approx((595.28, 841.89), abs=1)
    if SHOTS:
        (Path(SHOTS) / f"report-{name}.pdf").write_bytes(pdf)
    # On paper nothing is cut off at the side, and no card is torn that would fit on a page.
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 680, "height": 990})  # 180 mm of A4
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    assert page.locator("nav").is_hidden()
    cards = page.evaluate(
        "[...document.querySelectorAll('.card')].map(e => [e.offsetHeight,"
        " getComputedStyle(e).breakInside])"
    )
    assert all(height < 990 and inside == "avoid" for height, inside in cards)


@pytest.mark.slow
def test_in_a_notebook_nothing_else_is_restyled(page, reports):  # noqa: F811
    opened(page, reports("notebook"))
    outer, inner = (
        page.evaluate(f"getComputedStyle(document.querySelector('{where}')).padding")
        for where in ("#outer td", ".dprl td")
    )
    assert outer == "1px"
    assert inner not in ("", "1px")
    assert page.evaluate(CONTRAST) == []
    assert page.complaints == []
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / "notebook.png", full_page=True)


SLOW = ("regions", "cells")
"""Of features, which take seconds to be judged."""


@pytest.mark.parametrize("width", [1280, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in KINDS]
)
def test_no_label_is_cut_off(page, reports, name, width):  # noqa: F811
    opened(page, reports(name), width)
    cut = page.evaluate(
        """() => {
          const out = (e, frame) => {
            const a = e.getBoundingClientRect(), b = frame.getBoundingClientRect();
            return a.right > b.right + 0.5 || a.left < b.left - 0.5 || a.bottom > b.bottom + 1;
          };
          const texts = [...document.querySelectorAll('svg text')];
          const bars = [...document.querySelectorAll('ul.bars li > span')];
          return [
            ...texts.filter(e => out(e, e.ownerSVGElement)),
            ...bars.filter(e => out(e, e.closest('ul')) || e.scrollWidth > e.clientWidth + 1),
          ].map(e => e.textContent);
        }"""
    )
    assert cut == []
    if name == "regions":
        assert page.locator("ul.bars li").count() > 0
        assert page.locator("svg text").count() > 0
