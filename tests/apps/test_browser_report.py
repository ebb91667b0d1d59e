"""The report in a real browser, on screen and on paper."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from test_browser import CONTRAST, SHOTS, browser  # noqa: F401 - a fixture
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import to_log

HOSTILE = "<script>document.title='hacked'</script>\"'&\u202e"
WORLD = dprl.envs.care_pathway()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of every kind, in a folder."""
    folder = tmp_path_factory.mktemp("reports")
    log, held = WORLD.sample(8000, seed=1), WORLD.sample(800, seed=2)
    policy = dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log)
    dprl.report(policy, log, folder / "trained.html", cases=2)
    dprl.report(dprl.gate(policy, log, value_range=(0, 1)), held, folder / "gated.html")
    cells = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    dprl.report(cells, ward(500, 9), folder / "cells.html", values=False)
    world = dprl.envs.PointMass()
    learner = dprl.DPRLContinuous(
        n_min=10, radius=0.08, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    walker, walks = learner.fit(world.sample(200, seed=1)), world.sample(100, seed=2)
    dprl.report(walker, walks, folder / "regions.html", values=False, cases=2)
    sure = dprl.Confident(gamma=1.0).fit(WORLD.sample(500, seed=0))
    dprl.report(sure, held, folder / "confident.html", values=False, cases=2)
    hidden = dprl.envs.delayed()
    with pytest.warns(dprl.StateWarning):
        harmful = dprl.Confident(gamma=1.0).fit(hidden.sample(200, seed=0))
    dprl.report(harmful, hidden.sample(200, seed=1), folder / "not_enough.html", values=False)
    hostile = to_log([[(HOSTILE, HOSTILE, 1.0)]] * 6 + [[(HOSTILE, "a", 0.0)]] * 9)
    silly = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(hostile)
    dprl.report(silly, hostile.take(range(12)), folder / "hostile.html", title=HOSTILE, cases=2)
    (folder / "notebook.html").write_text(
        "<!doctype html><meta charset=utf-8><table id=outer><tr><td>outside</td></tr></table>"
        + "".join(x._repr_html_() for x in (walker, cells, cells.certificate, policy, sure)),
        encoding="utf-8",
    )
    return folder


def opened(browser, path, width=1280):  # noqa: F811
    """A page that notes whatever it asks for, and whatever it complains of."""
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.complaints = []
    own = (path.as_uri(), "data:,")
    page.on("request", lambda r: r.url.startswith(own) or page.complaints.append(r.url))
    page.on("console", lambda m: page.complaints.append(m.text))
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.goto(path.as_uri())
    return page


KINDS = ["trained", "gated", "cells", "regions", "hostile", "confident", "not_enough"]


@pytest.mark.parametrize("width", [1280, 768, 400])
@pytest.mark.parametrize("name", KINDS)
def test_on_screen(browser, reports, name, width):  # noqa: F811
    page = opened(browser, reports / f"{name}.html", width)
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


def test_hostile_labels_show_as_text(browser, reports):  # noqa: F811
    page = opened(browser, reports / "hostile.html")
    shown = "<script>document.title='hacked'</script>\"'&⟨U+202E⟩"
    assert page.title() == f"{shown} · dprl report"
    assert page.get_by_role("heading", level=1).inner_text() == shown
    assert shown in page.locator("article h3").first.inner_text()
    assert page.complaints == []


def test_by_keyboard(browser, reports):  # noqa: F811
    page = opened(browser, reports / "gated.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "How sure"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.url.endswith("#sure")


@pytest.mark.parametrize("name", KINDS)
def test_on_paper(browser, reports, name, tmp_path):  # noqa: F811
    page = opened(browser, reports / f"{name}.html")
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


def test_in_a_notebook_nothing_else_is_restyled(browser, reports):  # noqa: F811
    page = opened(browser, reports / "notebook.html")
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


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", KINDS)
def test_no_label_is_cut_off(browser, reports, name, width):  # noqa: F811
    page = opened(browser, reports / f"{name}.html", width)
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
