"""The pages in the eyes of axe-core, of a keyboard, and on paper."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest
from test_browser import SHOTS, browser, follow, page, regions, review, tab, written  # noqa: F401
from test_browser_report import KINDS, WORLD, opened, reports, table  # noqa: F401

import dprl

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
USE = {"question": "Should antibiotics be given at the first fever?", "users": "Physicians"}


def axe_file():
    """axe.min.js: named by DPRL_AXE, or of the package axe-playwright-python, or of npm's folder."""
    spec = importlib.util.find_spec("axe_playwright_python")
    places = [
        Path(os.environ["DPRL_AXE"]) if "DPRL_AXE" in os.environ else None,
        Path(spec.origin).with_name("axe.min.js") if spec is not None and spec.origin else None,
        ROOT / "node_modules" / "axe-core" / "axe.min.js",
    ]
    return next((place for place in places if place is not None and place.is_file()), None)


AXE = axe_file()
needs_axe = pytest.mark.skipif(
    AXE is None, reason="axe-core is not installed (axe-playwright-python of dprl[dev])"
)


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    """A report to the standard in both languages: language → file."""
    folder = tmp_path_factory.mktemp("standard")
    for lang in ("en", "de"):
        dprl.report(
            table(), WORLD.sample(400, seed=2), folder / f"{lang}.html", values=False, draws=50,
            cases=2, standard="target", use=USE, card=folder / f"{lang}.json", lang=lang,
        )  # fmt: skip
    return folder


def violations(tab):  # noqa: F811
    """What axe-core finds wrong on the page: rule, how many times, the first place."""
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    result = tab.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")
    return [(v["id"], len(v["nodes"]), v["nodes"][0]["html"][:200]) for v in result["violations"]]


@needs_axe
@pytest.mark.parametrize(
    ("lang", "width"),
    [("en", 1280), *[pytest.param(*case, marks=pytest.mark.slow)
                     for case in (("en", 375), ("de", 1280), ("de", 375))]],
)  # fmt: skip
def test_axe_finds_nothing_on_a_report_to_a_standard(page, standard, lang, width):  # noqa: F811
    opened(page, standard / f"{lang}.html", width)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.lang") == lang
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"standard-{lang}-{width}.png", full_page=True)


@needs_axe
@pytest.mark.parametrize("name", KINDS)
def test_axe_finds_nothing_on_a_report(page, reports, name):  # noqa: F811
    opened(page, reports(name), 375)
    assert violations(page) == []


@needs_axe
@pytest.mark.parametrize("kind", ["labels", "regions"])
def test_axe_finds_nothing_on_the_review(page, kind, request, tmp_path):  # noqa: F811
    folder = tmp_path
    if kind == "labels":
        written(tmp_path)
    else:
        folder = request.getfixturevalue("regions")
    with review(folder, "--verdicts", tmp_path / "v.sqlite") as (_, facts):
        page.set_viewport_size({"width": 375, "height": 900})
        page.goto(facts["url"])
        assert violations(page) == []
        follow(page, page.locator("tbody a").first)
        page.get_by_label("Your name").fill("Ann")
        with page.expect_navigation():
            page.get_by_role("button", name="Unsure").click()
        assert violations(page) == []


def test_tables_have_headers_and_names_and_can_be_scrolled_by_keyboard(page, standard):  # noqa: F811
    opened(page, standard / "en.html", 375)
    unnamed = "[...document.querySelectorAll('table')].filter(e => !e.caption && !e.closest('[aria-labelledby^=standard-]')).length"
    assert page.evaluate(unnamed) == 0
    assert page.locator("th:not([scope])").count() == 0
    assert page.locator(".scroll:not([tabindex='0'][role=group])").count() == 0
    page.locator(".scroll").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "scroll"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert page.complaints == []


@pytest.mark.parametrize("lang", ["en", "de"])
def test_on_paper_tables_and_figures_are_whole(page, standard, lang):  # noqa: F811
    opened(page, standard / f"{lang}.html")
    pdf = page.pdf(prefer_css_page_size=True)
    assert 4 <= len(re.findall(rb"/MediaBox", pdf)) <= 14
    if SHOTS:
        (Path(SHOTS) / f"standard-{lang}.pdf").write_bytes(pdf)
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 680, "height": 990})  # 180 mm of A4
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    parts = page.evaluate(
        "[...document.querySelectorAll('table:not(.long), svg')].map(e =>"
        " [e.tagName, e.getBoundingClientRect().height, getComputedStyle(e).breakInside])"
    )
    assert {inside for _, _, inside in parts} == {"avoid"}
    assert max(height for _, height, _ in parts) < 990  # so each fits on a page
    clipped = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter(e =>"
        " getComputedStyle(e).overflowX !== 'visible' || e.scrollWidth > 681).length"
    )
    assert clipped == 0
