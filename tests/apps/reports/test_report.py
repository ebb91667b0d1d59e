"""The report: one file, everything escaped, nothing flattered, and what is left out is said."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_describe import scattered_world
from test_gate_cells import LEARNER, UNIT, ward

import dprl
from conftest import to_log
from dprl._core.html import _environment, scale
from dprl._core.html.catalogue import speak
from dprl.apps.reports import _report as reporting
from dprl.apps.reports._report import LIMIT, LISTED, WHOLE, report, verdict
from dprl.apps.reports.changes import Check, describe_changes
from dprl.policies.certificate import down

HOSTILE = "<script>alert(1)</script>\"'&\u202e"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&amp;⟨U+202E⟩"
DAY = datetime.date(2026, 1, 31)
WORLD = dprl.envs.care_pathway()
PARTS = ["finding", "changes", "silent", "sure", "unknown", "origin"]


@pytest.fixture(scope="module")
def care():
    log = WORLD.sample(8000, seed=1)
    return dprl.DPRLDiscrete(n_min=50, gamma=1.0).fit(log), log


@pytest.fixture(scope="module")
def held():
    return WORLD.sample(600, seed=2)


@pytest.fixture(scope="module")
def gated(care):
    policy, log = care
    return dprl.gate(policy, log, delta=0.05, value_range=(0, 1))


@pytest.fixture(scope="module")
def walker():
    world = dprl.envs.PointMass()
    learner = dprl.DPRLContinuous(
        n_min=8, radius=0.08, gamma=0.97, metric=dprl.Metric(scale="none"), cut="terminal"
    )
    return learner.fit(world.sample(150, seed=1)), world.sample(60, seed=2)


def page(policy, log, folder, **options):
    options = {"values": False, "draws": 200, "date": DAY, **options}
    written = report(policy, log, folder / "r.html", **options)
    text = (folder / "r.html").read_text(encoding="utf-8")
    assert written.bytes == len(text.encode()) < LIMIT
    return text, written


def flat(text):
    """What is read: no tags, no pictures, one space between words."""
    body = re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", body)).replace("\u00a0", " ")


def many(n, label="s{}"):
    """A log in which every one of n states has a change."""
    states = [label.format(i) for i in range(n)]
    return to_log([[(s, "b", 1.0) for s in states]] * 3 + [[(s, "a", 0.0) for s in states]] * 4)


# -- the file -------------------------------------------------------------------------------------


def test_one_file_that_asks_nothing_of_anybody(care, held, tmp_path):
    text, _ = page(care[0], held, tmp_path)
    assert re.findall(r'<h2 id="(\w+)"', text) == PARTS
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert text.count("<h1>") == text.count("<main ") == text.count("<title>") == 1
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    links = re.findall(r'(?:href|src|action|data)="([^"]*)"', text)
    assert all(link.startswith("#") or link == "data:," for link in links)
    for word in ("http:", "https:", "<script", "@import", "url(h", " style=", " onclick"):
        assert word not in text
    assert all("scope=" in th for th in re.findall(r"<th\b[^>]*>", text))


def test_the_same_again_gives_the_same_bytes(care, held, tmp_path):
    one, _ = page(care[0], held, tmp_path)
    assert page(care[0], held, tmp_path)[0] == one
    assert page(care[0], held, tmp_path, date=datetime.date(2026, 2, 1))[0] != one
    assert "31 January 2026" in one


def test_what_is_hostile_is_text(tmp_path):
    episodes = [[(HOSTILE, HOSTILE, 1.0)]] * 6 + [[(HOSTILE, "a", 0.0)]] * 9
    log = to_log(episodes)
    log = replace(
        log, episodes=tuple(f"{HOSTILE}{i}" for i in range(15)), columns={"state": HOSTILE}
    )
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(log)
    other = to_log(episodes * 2)
    other = replace(other, episodes=tuple(f"{HOSTILE}{i}" for i in range(100, 130)))
    text, _ = page(policy, other, tmp_path, title=HOSTILE, cases=2)
    assert "<script" not in text
    assert "\u202e" not in text
    assert f"<h1>{SHOWN}</h1>" in text
    assert f"<bdi>{SHOWN} = {SHOWN}</bdi>" in text
    assert f"<bdi>{SHOWN}1" in text  # an episode
    for piece in (policy, dprl.evaluate(policy, other, values=False, draws=50)):
        assert "<script" not in piece._repr_html_()
        assert "\u202e" not in piece._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "label"), [(1500, "s{}"), (300, "{}" + "long " * 1000), (300, "{}" + "\u202e" * 400)]
)
def test_hundreds_of_changes_stay_small_and_what_is_left_out_is_said(n, label, tmp_path):
    log = many(n, label)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9, plan=False).fit(log)
    text, written = page(policy, log, tmp_path)
    assert written.changes == n
    assert 0 < written.whole <= WHOLE
    gave_way = written.whole + written.listed < min(n, WHOLE + LISTED)
    assert gave_way == ("\u202e" in label)  # spelt out, it is long
    assert text.count("<article") == written.whole
    left = n - written.whole - written.listed
    assert (f"<strong>{left:,} left out</strong>" in text) == (left > 0)
    assert f"the first {written.whole} in full, {written.listed:,} more in a line each" in text


def test_a_long_certificate_gives_way_too(tmp_path, monkeypatch):
    log = many(60, "{}" + "x" * 200)
    found = dprl.DPRLDiscrete(n_min=2, gamma=1.0, plan=False).fit(log)
    row = {"kind": "change", "n": 1, "others": 4, "difference": 1.0, "low": 0.1,
           "advantage_low": 0.1, "log10_e": 4.0}  # fmt: skip
    rows = tuple(
        {**row, **{k: r[k] for k in ("state", "usual", "suggested")}} for r in found.changes()
    )
    said = dprl.Certificate(
        mode="split", delta=0.05, margin=0.0, value_range=(0.0, 1.0), gamma=1.0, groups=7,
        tested=(60,), rows=rows, gain=0.1, bounds={}, assumptions=("none",), log=log.digest(),
    )  # fmt: skip
    policy = replace(found, certificate=said)
    assert "60 certified suggestions; the first 40" in page(policy, log, tmp_path)[0]
    monkeypatch.setattr(reporting, "LIMIT", 60_000)
    assert report(policy, log, tmp_path / "r.html").bytes < 60_000
    assert "60 certified suggestions; the first" in (tmp_path / "r.html").read_text()


def test_all_fit_and_nothing_is_left_out(tmp_path):
    log = many(30)
    policy = dprl.DPRLDiscrete(n_min=2, gamma=0.9, plan=False).fit(log)
    text, written = page(policy, log, tmp_path)
    assert (written.whole, written.listed) == (WHOLE, 30 - WHOLE)
    assert "left out" not in text


# -- what it says ---------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_parts(gated, held, tmp_path):
    text, written = page(gated, held, tmp_path, values=True)
    words, found = flat(text), describe_changes(gated, held)
    judged = dprl.evaluate(gated, held, draws=200)
    assert f"{round(100 * found.steps['changed'])} %: suggests a change" in words
    assert written.evaluation["WDR"] == judged["WDR"]
    row = judged["WDR"]
    ends = [f"{row['difference_' + end]:.3f}" for end in ("low", "high")]
    said = f"the return higher by {row['difference']:.3f} ({ends[0]} to {ends[1]})"
    assert f"{judged.facts['episodes']} episodes it has not seen agree: {said}." in words
    assert f"{judged.facts['ess_change']:.1f} of" in words  # the effective sample
    assert "This log cannot tell" not in words
    for change in found.changes:
        wide = change.check.high - change.check.low
        sides = (change.check.got, change.check.got_others)
        got, others = (speak("en").rounded(side, wide, False) for side in sides)
        assert f"{change.check.took} followers got {got}" in words
        assert f"did otherwise and got {others}" in words
        assert f"{change.advantage:+.3f} ({change.low:+.3f} to {change.high:+.3f})" in words
        assert (
            f"{change.episodes:,} episodes did it at their first visit, {change.others:,} did otherwise"
            in words
        )
        proof = next(r for r in gated.certificate.rows if r["state"] == change.state)
        assert f"better than doing otherwise by at least {down(proof['low']):+.3f}" in words
    for why, share in found.silent:
        assert f"{why}{round(100 * share)} %" in words.replace("'", "&#39;")
    assert gated.certificate.claim in words
    assert "VACUOUS: no better than what needs no data" in words  # Theorem 1, at gamma = 1
    for line in (
        *gated.certificate.assumptions,
        gated.digest(),
        held.digest(),
        gated.provenance["log"],
    ):
        assert line in words
    assert f"this report by dprl {dprl.__version__}" in words
    assert "n_min = 50" in words


def test_on_the_training_log_there_is_no_held_out_check_and_no_estimate(care, tmp_path):
    policy, log = care
    text, written = page(policy, log, tmp_path)
    words = flat(text)
    assert written.evaluation is None
    assert "No held-out check: this is the log the policy was learned from." in str(written)
    assert "There is no held-out check: this is the log the policy was learned from." in words
    assert "The log that made the policy, each change alone: agrees with 2, leans with 0," in words
    assert "flatters" in words
    assert "DR" not in words
    assert "Held-out check" not in words
    assert "it has not seen" not in words


def test_a_log_seen_in_part_is_no_held_out_check(tmp_path):
    log = WORLD.sample(600, seed=4)
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(log.split(0.5, seed=0)[0])
    text, written = page(policy, log, tmp_path)
    assert "% of a sample of groups is also in the log" in written.seen
    assert "There is no held-out check:" in flat(text)
    assert written.evaluation is None


@pytest.mark.slow
def test_where_too_few_follow_the_first_words_are_that_it_cannot_tell(walker, tmp_path):
    policy, log = walker
    text, written = page(policy, log, tmp_path)
    assert written.evaluation.facts["ess_change"] < 30
    words = flat(text)
    assert words.index("This log cannot tell: ") < words.index("Estimated difference the policy")
    assert written.evaluation.facts["ess_differs"] == 0
    assert "This log cannot tell: there is no estimate." in words


def test_a_vacuous_certificate_is_called_so(tmp_path):
    log = many(3)
    policy = dprl.gate(dprl.DPRLDiscrete(n_min=2, gamma=1.0), log, value_range=(-99, 99))
    text, written = page(policy, many(4), tmp_path)
    assert policy.certificate.vacuous
    assert written.changes == 0
    words = flat(text)
    assert words.count("VACUOUS: no suggestion is certified") == 1
    assert words.count("Nothing to change is sure: usual practice stays") == 2  # title and heading
    assert "The gate could prove nothing" in words
    assert "✓" not in text


def test_without_a_certificate_it_says_so(care, held, tmp_path):
    words = flat(page(care[0], held, tmp_path)[0])
    assert "Nothing here is proved: the policy has not been through the gate" in words
    assert "Nothing is proved." in words
    assert "Certificatenone" in words


@pytest.mark.slow
def test_regions_are_told_by_ranges_with_cases_not_point_by_point(walker, tmp_path):
    policy, log = walker
    found = describe_changes(policy, log)
    text, written = page(policy, log, tmp_path, cases=2)
    assert written.changes == len(found.changes) <= WHOLE
    assert written.scattered == found.uncovered > 0
    words = flat(text)
    covered = sum(c.steps for c in found.changes)
    assert f"simple regions hold {covered:,} of them" in words
    assert f"{found.uncovered:,} of the {found.changed:,} changed decisions are scattered" in words
    assert f"{written.scattered:,} further decisions change in no simple region" in str(written)
    for change in found.changes[:WHOLE]:
        assert change.situation in words
        assert f"{round(100 * change.purity)} % of its decisions" in words or change.purity > 0.99
    assert "Past cases in this log, the most typical" in words
    assert "Typical state:" in words


@pytest.mark.slow
def test_where_no_region_is_true_no_change_is_shown(tmp_path):
    log = scattered_world()
    learner = dprl.DPRLContinuous(n_min=2, radius=0.5, gamma=1.0, metric=dprl.Metric(scale="none"))
    policy, held = learner.fit(log), scattered_world(seed=1)
    described = describe_changes(policy, held)
    text, written = page(policy, held, tmp_path)
    words = flat(text)
    assert (written.changes, written.scattered) == (0, described.changed)
    assert "<article" not in text
    assert f"All {described.changed:,} changed decisions are scattered" in words
    assert "No simple region describes them." in words
    assert "never suggests another action" not in words
    for usual, suggested, steps in described.scattered:
        assert f"{usual} → {suggested}{steps:,}" in words
    assert "that no simple region describes" in policy._repr_html_()
    assert "no other action than the usual" not in policy._repr_html_()


@pytest.mark.parametrize(
    ("values", "reach"),
    [
        ([], 1.0),
        ([0.0, None, math.nan, -math.inf], 1.0),
        ([0.5, -0.731], 0.74),
        ([1.0] * 8 + [-1.9], 1.9),
        ([1.0] * 9 + [-159.0], 1.0),  # one wide interval does not make dots of the others
        ([0.0] * 9 + [7.0], 7.0),
        ([8.528], 8.6),
        ([1e300, 2e-300], 1e300),
        ([3e-320], 3e-320),
        ([-1234.0], 1300.0),
    ],
)
def test_a_scale_shows_most_of_what_it_is_for(values, reach):
    assert scale(values) == pytest.approx(reach)
    assert all(scale([v]) >= abs(v) for v in values if v is not None and math.isfinite(v))


def test_what_lies_beyond_the_scale_is_an_arrow_and_the_axis_has_numbers():
    draw = _environment().get_template("figures.html").module.interval
    inside = str(draw(-0.5, 0.25, 1.0, 1.0, "advantage"))
    assert inside.count("<circle") == 1
    assert "<path" not in inside
    for label in ("−1", "0", "+1"):
        assert re.search(rf"<text [^>]*>{re.escape(label)}(\.0+)?</text>", inside)
    half = str(draw(-0.5, 0.25, 7.0, 1.0, "advantage"))
    assert (half.count("<circle"), half.count("<path")) == (1, 1)
    beyond = str(draw(2.0, 3.0, 7.0, 1.0, "advantage"))
    assert "<circle" not in beyond
    assert beyond.count("<path") == 3


def test_labels_of_bars_are_text_and_not_cut():
    draw = _environment().get_template("figures.html").module.practice
    label = "norepinephrine at most 21.58 mcg/kg with a bolus of 500 mL"
    drawn = str(draw(((label, 0.5), ("none", 0.5)), label))
    assert f"<bdi>{label}</bdi>" in drawn
    assert "← suggested" in drawn
    assert "<text" not in drawn


@pytest.mark.slow
def test_cells_are_told_whole(tmp_path):
    policy = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    words = flat(page(policy, ward(500, 9), tmp_path)[0])
    assert "x -0.4 to under 0.4" in words
    assert "the policy decides by cell" in words
    assert "better than doing otherwise by at least" in words
    assert "eps* =" in words


def test_no_row_of_the_log_where_none_is_wanted(care, held, tmp_path):
    marked = replace(held, episodes=tuple(f"PATIENT-{e}" for e in held.episodes))
    assert "PATIENT-" in page(care[0], marked, tmp_path, cases=1)[0]
    text, _ = page(care[0], marked, tmp_path)
    assert "PATIENT-" not in text
    assert "names episodes" not in text


def test_cut_episodes_are_told(tmp_path):
    episodes = [[("s", "b", 1.0)]] * 6 + [[("s", "a", 0.0)]] * 9
    log = to_log(episodes, cut=[True] * 2 + [False] * 13)
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0, cut="terminal").fit(log)
    words = flat(page(policy, to_log(episodes, cut=[True] * 3 + [False] * 12), tmp_path)[0])
    assert "cut before the end in 2 training episodes and in 3 episodes of this log" in words
    assert "cut = terminal" in words
    plain = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(to_log(episodes))
    words = flat(page(plain, to_log(episodes, cut=[True] * 3 + [False] * 12), tmp_path)[0])
    assert "none stated, so they count as ended" in words
    assert "3 of 15 episodes" in words  # and the warning stands at the top
    assert "No episode is marked as cut" in flat(page(plain, to_log(episodes * 2), tmp_path)[0])


@pytest.mark.parametrize(
    ("low", "middle", "high", "word"),
    [(0.1, 0.2, 0.3, "agrees"), (-0.1, 0.1, 0.3, "leans with it"), (-0.3, 0.0, 0.1, "leans against it"),
     (-0.3, -0.2, -0.1, "contradicts"), (None, 0.2, None, "cannot say"), (None, None, None, "cannot say"),
     (0.0, 0.1, 0.2, "leans with it"), (-0.2, -0.1, 0.0, "leans against it")],
)  # fmt: skip
def test_what_a_check_says(low, middle, high, word):
    assert verdict(Check(10, 14, 1.0, 0.5, middle, low, high)) == word
    for few in (
        Check(9, 14, 1.0, 0.5, middle, low, high),
        Check(14, 9, 1.0, 0.5, middle, low, high),
    ):
        assert verdict(few) == "cannot say"


# -- refusals and the command ---------------------------------------------------------------------


def test_refusals_change_nothing(care, held, tmp_path):
    old = tmp_path / "r.html"
    old.write_text("old")
    policy, _ = care
    rival = dprl.learners.baselines.BC().fit(held)
    empty = held.take(np.arange(0))
    for bad, log, path, options, error in (
        (policy, held, tmp_path / "none" / "r.html", {}, "cannot be written"),
        (policy, held, tmp_path, {}, "cannot be written"),
        (rival, held, old, {}, "got a StochasticPolicy"),
        (policy, empty, old, {}, "holds no episodes"),
        (policy, held, old, {"cases": -1}, "cases must be"),
        (policy, ward(50, 1), old, {}, "numeric features"),
        (policy, held, old, {"draws": 0}, "draws must be"),
    ):
        with pytest.raises(dprl.DprlError, match=error):
            report(bad, log, path, **options)
    assert old.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_the_command(run, visits, tmp_path):
    path, columns = visits
    log = dprl.read(path, **columns)
    train, test = log.split(0.5, seed=0)
    dprl.write(test, tmp_path / "test.parquet")
    dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train).save(tmp_path / "p.dprl")
    out = tmp_path / "out.html"
    asked = ("report", str(tmp_path / "p.dprl"), str(tmp_path / "test.parquet"), "--out", str(out))
    code, said, _ = run(*asked, "--title", "Ward 7")
    assert code == 0
    assert f"→ {out}" in said
    assert "<h1>Ward 7</h1>" in out.read_text()
    code, said, _ = run(*asked, "--json", "--cases", "0")
    facts = json.loads(said)
    assert (facts["path"], facts["seen"]) == (str(out), "")
    assert facts["evaluation"]["facts"]["episodes"] == test.n_episodes
    code, _, said = run("report", str(tmp_path / "p.dprl"), str(tmp_path / "nothing.csv"))
    assert code == 1


def test_progress_is_told(care, held, tmp_path):
    stages = []
    page(care[0], held, tmp_path, progress=lambda stage, share: stages.append(stage))
    assert stages[0] == "describing the changes"
    assert "bootstrap" in stages
    assert stages[-1] == "writing"


# -- notebooks ------------------------------------------------------------------------------------


def test_notebooks_show_the_same_pieces(care, gated, held, walker):
    for policy, count in ((care[0], 2), (gated, 2), (walker[0], len(walker[0]._changed()))):
        text = policy._repr_html_()
        assert text.count("<svg") == 1 + count
        assert all(line in text for line in str(policy).splitlines())
        assert ("With probability at least" in text) == (policy is gated)
    cells = dprl.gate(LEARNER, ward(1_500, 0), **UNIT)
    assert "around x = " in cells._repr_html_()
    assert re.match(r"cell \d+ \(around x = [^)]*\): \w+, not \w+", str(cells))  # the verdict
    judged = dprl.evaluate(gated, held, values=False, draws=50)
    text = judged._repr_html_()
    assert text.count("<svg") == 5  # the one to read, and all four that exist
    assert text.count("not computed") == 3
    assert "Effective sample size" in text
    text = gated.certificate._repr_html_()
    assert "<strong>VACUOUS</strong>" in text
    assert gated.certificate.assumptions[0] in text
    silent = dprl.DPRLDiscrete(n_min=2, gamma=1.0).fit(to_log([[("s", "a", 1.0)]]))
    assert "It changes nothing." in silent._repr_html_()


@pytest.mark.filterwarnings("ignore:.*dropped for missing values")
def test_episodes_dropped_for_missing_values_are_in_the_flow(tmp_path):
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(
        to_log([[("s", "b", 1.0)]] * 6 + [[("s", "a", 0.0)]] * 8)
    )
    rewards = [1.0] * 8 + [0.0] * 9 + [None] * 3
    rows = {"e": [*range(20)], "s": ["s"] * 20, "a": ["b"] * 8 + ["a"] * 12, "r": rewards}
    judged = dprl.from_frame(
        pd.DataFrame(rows), episode="e", state="s", action="a", reward="r", missing="drop-episodes"
    )
    assert judged.dropped == 3
    assert judged.take([0, 1]).dropped == 0
    assert dict(describe_changes(policy, judged).flow) == {
        "source": 20, "dropped": 3, "given": 17, "analysed": 17,
    }  # fmt: skip
    text, written = page(policy, judged, tmp_path, standard="target", lang="de", values=False)
    assert flat(text).count("davon: weggelassen, weil ein Wert fehlt") == 2
    card = json.loads(written.card.read_text(encoding="utf-8"))
    assert card["evaluation_data"]["flow"]["dropped"] == 3


def test_a_log_with_cut_episodes_has_one_population(tmp_path):
    """What is left out is told once, with its reason, and every number is of the same episodes."""
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0, cut="drop-unrelated").fit(
        to_log([[("s", "b", 1.0)]] * 6 + [[("s", "a", 0.0)]] * 8)
    )
    episodes = [[("s", "b", 1.0)]] * 8 + [[("s", "a", 0.0)]] * 12
    cut = [False] * 3 + [True] * 4 + [False] * 13  # of patients 3 to 6, who came back later
    patients = [*range(16), 4, 5, 3, 6]
    judged = to_log(episodes, cut=cut, group=patients)
    text, written = page(policy, judged, tmp_path, standard="target")
    assert written.evaluation.facts["episodes"] == 16
    words = flat(text)
    assert "judged by 16 decisions of 16 episodes" in words
    assert (
        "4 of 20 episodes were cut and are left out: every number here is of the other 16" in words
    )
    assert "4 of these 16 came after a cut one of their group: they are left out of comp" in words
    assert not re.search(r"\b12 episodes\b|other 12\b|analysed ?12\b", words)
    flows = re.findall(r"Episodes in the log ?20.*?Episodes analysed ?(\d+)", words)
    assert flows == ["16", "16"]  # in the finding, and in the standard's own table
    described = describe_changes(policy, judged)
    check = described.changes[0].check
    assert check.took + check.others == 12  # of first decisions, those alone that are surely first
    assert dict(described.flow) == {
        "given": 20, "cut": 4, "left-out": 4, "analysed": 16, "after-cut": 4,
    }  # fmt: skip
    card = json.loads(written.card.read_text(encoding="utf-8"))
    assert card["evaluation_data"]["episodes"] == 16
    assert card["evaluation_data"]["flow"]["always"] <= card["evaluation_data"]["flow"]["reached"]


def test_the_first_decision_of_a_patient_is_the_first_in_time():
    """Labels of episodes say nothing of their order: here the later ones come first."""
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(
        to_log([[("s", "b", 1.0)]] * 6 + [[("s", "a", 0.0)]] * 8)
    )
    n = 12  # in time every patient gets b once, and then a
    log = dprl.from_arrays(
        episode=[f"{when}{i}" for when in ("z", "a") for i in range(n)],
        time=[0] * n + [1] * n, group=[*range(n)] * 2, state=["s"] * 2 * n,
        action=["b"] * n + ["a"] * n, reward=[1.0] * n + [0.0] * n,
    )  # fmt: skip
    (change,) = describe_changes(policy, log).changes
    assert (change.check.took, change.check.others, change.met) == (n, 0, n)


def test_the_terminal_says_where_the_estimate_rests_on_few(tmp_path):
    world = dprl.envs.care_pathway()
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(world.sample(1_000, seed=0))
    few = dprl.report(policy, world.sample(150, seed=1), tmp_path / "r.html", draws=20)
    assert few.evaluation.facts["ess_differs"] < 30
    size = f"{few.evaluation.facts['ess_differs']:.1f} of {few.evaluation.facts['reached']:,}"
    assert f"the effective sample size where it matters is {size} episodes, below 30" in str(few)
    many = dprl.report(policy, world.sample(3_000, seed=2), tmp_path / "r.html", draws=20)
    assert many.evaluation.facts["ess_differs"] >= 30
    assert "rests on few" not in str(many)
