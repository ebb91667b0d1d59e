"""A real browser against a real `dprl review`: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_servers import running

import dprl
from conftest import to_log
from dprl.apps.review.verdicts import Verdicts

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is not installed (apt-get install chromium)", allow_module_level=True)
playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (dprl[dev])"
)

HOSTILE = "<script>document.title='hacked'</script>\"'&\u202e"
COLUMNS = {"episode": "stay", "state": "situation", "action": "drug", "reward": "score"}
MOST = 120_000
"""Milliseconds to wait for anything: it ends when the thing is there."""
SHOTS = os.environ.get("DPRL_SCREENSHOTS")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MOST
        )
        yield browser
        browser.close()


def watched(browser):
    """A new tab that notes whatever it complains of, and whom it asks that is not `mine`."""
    tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    tab.set_default_timeout(MOST)
    tab.complaints, tab.mine = [], lambda url: True
    tab.on("request", lambda r: tab.mine(r.url) or tab.complaints.append(r.url))
    tab.on("console", lambda m: tab.complaints.append(m.text))
    tab.on("pageerror", lambda e: tab.complaints.append(str(e)))
    return tab


@pytest.fixture(scope="module")
def tab(browser):
    return watched(browser)


@pytest.fixture
def page(tab):
    """One tab for all tests, left as empty as a new one, which costs more than most pages."""
    yield tab
    tab.mine = lambda url: True
    tab.goto("about:blank")
    tab.emulate_media(media="null")
    tab.context.clear_cookies()


def written(folder, states=("fever", "cold", "cough")):
    """A log and a policy that changes every one of these states."""
    episodes = [[(s, "b", 1.0)] for s in states for _ in range(8)]
    episodes += [[(s, "a", 0.0)] for s in states for _ in range(12)]
    log = replace(to_log(episodes), columns=COLUMNS)
    dprl.write(log, folder / "log.parquet")
    policy = dprl.DPRLDiscrete(n_min=4, gamma=1.0).fit(log)
    policy.save(folder / "p.dprl")
    return policy


def opened(tab, url, width=1280):
    """The page of a server; from now on the tab notes whom else it asks."""
    origin = url.split("/", 3)[2]
    tab.set_viewport_size({"width": width, "height": 900})
    tab.complaints, tab.mine = [], lambda asked: origin in asked
    tab.goto(url)
    return tab


def review(folder, *more):
    return running("review", "p.dprl", "--log", "log.parquet", *more, cwd=folder)


def follow(page, what):
    """Click, and wait until the next page is there."""
    with page.expect_navigation():
        what.click()


def judge(page, word, name=None, comment=""):
    if name is not None:
        page.get_by_label("Your name").fill(name)
    if comment:
        page.get_by_label("Comment").fill(comment)
    mark = {"Agree": "✓", "Disagree": "✗", "Unsure": "?"}[word]
    follow(page, page.get_by_role("button", name=f"{mark} {word}", exact=True))


@pytest.mark.slow
def test_a_whole_review_from_opening_to_export(page, tmp_path):
    policy = written(tmp_path)
    with review(tmp_path) as (_, facts):
        opened(page, facts["url"])
        assert page.title() == "Changes · dprl review"
        assert page.get_by_role("heading", level=1).inner_text() == "3 changes to review"
        for landmark in ("banner", "main", "contentinfo", "search"):
            assert page.get_by_role(landmark).count() == 1
        follow(page, page.get_by_role("link", name="Begin with the next change"))
        first = page.get_by_role("heading", level=1).inner_text()
        assert page.get_by_role("heading", name="Similar past cases").is_visible()
        judge(page, "Agree", "Dr Ann Lee", "as we discussed")
        assert "Verdict 1 is recorded." in page.get_by_role("status").inner_text()
        assert page.get_by_label("Your name").input_value() == "Dr Ann Lee"
        second = page.get_by_role("heading", level=1).inner_text()
        judge(page, "Disagree")
        judge(page, "Unsure", comment="ask Bo")
        assert page.get_by_text("you have judged 3 of 3").is_visible()
        page.get_by_label("Status").select_option("approved")
        follow(page, page.get_by_role("button", name="Show"))
        assert page.locator("tbody tr").count() == 1
        assert page.locator("tbody th").inner_text() == first
        follow(page, page.get_by_role("button", name="Write approved.dprl with 1 approved change"))
        assert page.get_by_text("1 of 3 changes, from 3 verdicts").is_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="approved.dprl").click()
        got = Path(download.value.path()).read_bytes()
        assert page.complaints == []
    assert got == (tmp_path / "approved.dprl").read_bytes()
    approved = dprl.load(tmp_path / "approved.dprl")
    state = first.removeprefix("situation = ")
    assert {s: approved.act(s) for s in policy.states} == {
        s: "b" if s == state else dprl.DEFER for s in policy.states
    }
    trail = (tmp_path / "approved-audit.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(trail.splitlines()))
    assert [r["verdict"] for r in rows] == ["agree", "disagree", "unsure"]
    assert rows[1]["situation"] == second
    assert {r["reviewer"] for r in rows} == {"Dr Ann Lee"}


@pytest.mark.slow
def test_by_keyboard_alone(page, tmp_path):
    written(tmp_path, ("fever",))
    with review(tmp_path) as (_, facts):
        opened(page, facts["url"])
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to content"

        def tab_to(what):
            for _ in range(40):
                page.keyboard.press("Tab")
                seen = (
                    page.evaluate(  # a table that scrolls is a stop too: what it holds comes later
                        "document.activeElement.matches('.scroll') ? ''"
                        " : document.activeElement.textContent + '|' + document.activeElement.id"
                    )
                )
                if what in seen:
                    ring = "getComputedStyle(document.activeElement).outlineStyle"
                    assert page.evaluate(ring) == "solid"
                    return
            raise AssertionError(f"{what} cannot be reached")

        tab_to("situation = fever")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        tab_to("|reviewer")
        page.keyboard.type("Ann")
        tab_to("|comment")
        page.keyboard.type("typed")
        tab_to("Disagree")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert page.get_by_text("refused: 1").is_visible()
        assert page.complaints == []


@pytest.mark.slow
def test_a_wrong_token_and_the_root_show_nothing(page, tmp_path):
    written(tmp_path)
    with review(tmp_path) as (_, facts):
        origin = facts["url"].rsplit("/", 2)[0]
        for path, status in (
            ("/", 404),
            ("/wrong/", 403),
            (facts["url"][len(origin) : -2] + "/", 403),
        ):
            answer = page.goto(origin + path)
            assert answer.status == status
            assert "fever" not in page.content()
            assert "Use the whole address" in page.inner_text("body")


@pytest.mark.slow
def test_two_reviewers_at_once(browser, page, tmp_path):
    written(tmp_path)
    with review(tmp_path, "--needs", "2") as (_, facts):
        ann, bo = opened(page, facts["url"]), opened(watched(browser), facts["url"])
        for one in (ann, bo):
            follow(one, one.get_by_role("link", name="Begin with"))
        judge(ann, "Agree", "Ann")
        judge(bo, "Agree", "Bo")
        judge(ann, "Agree")
        judge(bo, "Disagree", comment="not in children")
        judge(ann, "Agree")
        ann.goto(facts["url"])
        text = ann.inner_text("main")
        assert "Approved: 1" in text
        assert "reviewers disagree: 1" in text
        assert "waiting for a second reviewer: 1" in text
        ann.get_by_label("Status").select_option("conflict")
        follow(ann, ann.get_by_role("button", name="Show"))
        follow(ann, ann.locator("tbody a"))
        assert ann.get_by_text("Reviewers disagree.").is_visible()
        assert ann.get_by_text("not in children").is_visible()
        assert ann.complaints == bo.complaints == []


@pytest.mark.slow
def test_killed_in_the_middle_and_nothing_is_lost(page, tmp_path):
    policy = written(tmp_path, tuple(f"s{i}" for i in range(6)))
    with review(tmp_path) as (process, facts):
        opened(page, facts["url"])
        follow(page, page.get_by_role("link", name="Begin with"))
        for i in range(4):
            judge(page, "Agree", "Ann", f"comment {i}")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with review(tmp_path) as (_, facts):
        opened(page, facts["url"])
        assert "Approved: 4" in page.inner_text("main")
        follow(page, page.get_by_role("button", name="Write approved.dprl with 4"))
        keys = page.locator("tbody a").evaluate_all("x => x.map(a => a.href.split('/').pop())")
    with sqlite3.connect(tmp_path / "p.review.sqlite") as db:
        log = db.execute("SELECT value FROM facts WHERE name = 'log'").fetchone()[0]
    said = Verdicts(tmp_path / "p.review.sqlite", policy.digest(), keys, log).all()
    assert [v.comment for v in said] == [f"comment {i}" for i in range(4)]
    assert dprl.load(tmp_path / "approved.dprl").summary()["changes"] == 4


@pytest.mark.slow
def test_a_form_from_before_a_restart_is_refused_not_lost_in_silence(page, tmp_path):
    written(tmp_path)
    with review(tmp_path) as (_, facts):
        opened(page, facts["url"])
        follow(page, page.get_by_role("link", name="Begin with"))
        page.evaluate("document.querySelector('input[name=csrf]').value = 'old'")
        judge(page, "Agree", "Ann")
        assert "open it again" in page.inner_text("body")


@pytest.mark.slow
def test_hostile_labels_show_as_text(page, tmp_path):
    written(tmp_path, (HOSTILE, "'; DROP TABLE verdicts; --"))
    with review(tmp_path) as (_, facts):
        opened(page, facts["url"])
        for _ in range(2):
            begin = page.get_by_role("link", name="the next change you have not judged")
            follow(page, begin)
            assert "dprl review" in page.title()
            judge(page, "Agree", "<img src=x onerror=alert(1)>", HOSTILE)
            page.goto(facts["url"])
        assert "<script>document.title='hacked'</script>\"'&⟨U+202E⟩" in page.inner_text("tbody")
        assert page.locator("script, img, iframe").count() == 0
        assert page.title() == "Changes · dprl review"
        assert "Approved: 2" in page.inner_text("main")
        assert page.complaints == []


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    """A policy over features and a log, in a folder."""
    folder, world = tmp_path_factory.mktemp("regions"), dprl.envs.PointMass()
    named = {k: v for k, v in COLUMNS.items() if k != "state"}
    log = replace(world.sample(200, seed=1), columns={**named, "time": "hour", "ended": "end"})
    learner = dprl.DPRLContinuous(
        n_min=10, radius=0.08, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    learner.fit(log).save(folder / "p.dprl")
    dprl.write(replace(world.sample(150, seed=2), columns=log.columns), folder / "log.parquet")
    return folder


@pytest.mark.slow
def test_regions_are_reviewed_like_states(page, regions):
    whole = dprl.load(regions / "p.dprl")
    with review(regions, "--cases") as (_, facts):
        opened(page, facts["url"])
        follow(page, page.get_by_role("link", name="Begin with"))
        assert " to under " in page.get_by_role("heading", level=1).inner_text()
        assert page.get_by_role("heading", name="Nearest training episodes").is_visible()
        judge(page, "Agree", "Ann")
        page.goto(facts["url"])
        follow(page, page.get_by_role("button", name="Write approved.dprl with 1"))
        assert page.complaints == []
    part, x = (
        dprl.load(regions / "approved.dprl"),
        dprl.envs.PointMass().sample(50, seed=3).features,
    )
    one, two = whole.at(x).choice, part.at(x).choice
    assert 0 < (two >= 0).sum() < (one >= 0).sum()
    assert (two[two >= 0] == one[two >= 0]).all()


@pytest.fixture(scope="module")
def sure(tmp_path_factory):
    """A policy that says how sure it is, of states that are not enough; and a log, in a folder."""
    folder, world = tmp_path_factory.mktemp("sure"), dprl.envs.delayed()
    log = replace(world.sample(200, seed=0), columns={**COLUMNS, "time": "day"})
    with pytest.warns(dprl.StateWarning):
        dprl.Confident(gamma=1.0, promise=False).fit(log).save(folder / "p.dprl")
    dprl.write(replace(world.sample(150, seed=2), columns=log.columns), folder / "log.parquet")
    return folder


CONTRAST = """() => {
  const lum = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
      .map(x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2] };
  const ground = e => { for (; e; e = e.parentElement) { const b = getComputedStyle(e).backgroundColor;
      if (!b.endsWith(', 0)')) return b } return 'rgb(255, 255, 255)' };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('svg, option')) continue;
    const a = lum(getComputedStyle(e).color), b = lum(ground(e));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) low.push([e.tagName, e.textContent.trim().slice(0, 30), ratio]);
  }
  return low }"""


@pytest.fixture(scope="module", params=["regions", "sure"])
def served(request, tmp_path_factory):
    """The kind of a policy, and the address at which it is reviewed; only to look at."""
    folder, verdicts = request.getfixturevalue(request.param), tmp_path_factory.mktemp("verdicts")
    with review(folder, "--verdicts", verdicts / "v.sqlite") as (_, facts):
        yield request.param, facts["url"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 768, 400])
def test_pages_fit_read_well_and_name_everything(page, served, width):
    kind, url = served
    opened(page, url, width)
    for name in ("list", "change"):
        if name == "change":
            follow(page, page.locator("tbody a").first)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        unnamed = (
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(e => !e.labels.length).length"
        )
        assert page.evaluate(unnamed) == 0
        assert page.locator("svg:not([aria-label])").count() == 0
        assert page.locator("h1").count() == 1
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(set(ids)) == len(ids)
        if SHOTS:
            page.screenshot(path=Path(SHOTS) / f"review-{kind}-{name}-{width}.png", full_page=True)
    assert page.complaints == []


@pytest.mark.slow
def test_a_rule_is_narrowed_by_keyboard(page, tmp_path):
    rng = np.random.default_rng(0)
    pressure, drug = rng.normal(70, 10, 300).round(1), rng.random(300) < 0.5
    table = pd.DataFrame({
        "stay": range(300), "pressure": pressure, "drug": np.where(drug, "drug", "wait"),
        "score": drug * np.where(pressure > 70, 2.0, -2.0) + rng.normal(size=300),
    })  # fmt: skip
    table.to_csv(tmp_path / "log.csv", index=False)
    columns = {**COLUMNS, "state": ["pressure"]}
    log = dprl.read(tmp_path / "log.csv", **columns)
    policy = dprl.Rules(gamma=1.0, depth=1, splits=1, lam=1.0).fit(log)
    policy.save(tmp_path / "p.dprl")
    with running("review", "p.dprl", "--log", "log.csv", cwd=tmp_path) as (_, facts):
        opened(page, facts["url"])
        assert page.get_by_role("img", name="pressure at most").is_visible()  # the tree
        (rule,) = [r for r in policy.rules if r.suggested == "drug"]
        follow(page, page.get_by_role("link", name=rule.words))
        cut = rule.conditions[0].value
        assert page.get_by_label("above").input_value() == f"{cut:g}"
        page.get_by_label("above").focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("72")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        seen = page.get_by_role("heading", name="The narrower rule: pressure above 72")
        assert seen.is_visible()
        half = dprl.learners.HeldOut.of(policy, log)
        number = policy.rules.index(rule) + 1
        narrow = half.facts(number, [{"feature": "pressure", "kind": "above", "value": 72.0}])
        assert narrow["groups"] < rule.facts["groups"]
        for of in (rule.facts, narrow):
            behind = f"{of['groups']} episodes came here, {of['groups_took']} of which took it"
            assert page.get_by_text(behind).is_visible()
        assert page.get_by_text("No longer simultaneous: chosen after looking.").is_visible()
        judge(page, "Agree", "Dr Ann Lee")
        page.goto(facts["url"])
        assert page.get_by_text("narrowed to pressure above 72").is_visible()
        follow(page, page.get_by_role("button", name="Write approved.dprl with 1 approved change"))
        assert page.complaints == []
    approved = dprl.load(tmp_path / "approved.dprl")
    assert approved.act([[71.9], [72.1]]) == [dprl.DEFER, "drug"]
    assert approved.rules[number - 1].facts["advantage"] == pytest.approx(narrow["advantage"])
