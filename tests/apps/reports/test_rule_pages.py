"""Report and review page of rules: every number on record, and no word that is not true of them."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import numpy as np
import pytest

import dprl
from dprl._core import html as pages
from dprl.apps.reports.changes import describe_changes
from dprl.policies.rules.rule import Condition, Rule

pytestmark = pytest.mark.slow  # whole commands, whole studies

FACTS = {
    "steps": 120, "groups": 118, "groups_took": 40, "groups_others": 78, "groups_proposed": 110,
    "advantage": 0.31, "se": 0.05, "low": 0.1, "high": 0.52, "p": 0.003, "gain": 0.2, "share": 0.4,
    "changed": 0.3, "share_usual": [["none", 0.71], ["bolus", 0.29]], "overlap": 0.98,
    "balance": ["age", 0.23], "returns": [0.28, -0.05, 0.61],
}  # fmt: skip
WHOLE = "Where only the first suggestion of an episode is followed, they bring +1 an episode."
LUCK = ("owe their place to luck", "are luck", "through the gate", "dprl gate", "filter, not")


def made(*facts, **more):
    kinds = ("at most", "above")
    rules = [
        Rule((Condition("pressure", kind, 62.0),), action, {**FACTS, **own})
        for kind, action, own in zip(kinds, ("bolus", "two"), facts or ({}, {}), strict=True)
    ]
    parts = {
        "parameters": {"delta": 0.05, "gamma": 1.0, "n_min": 20, "learner": "Rules"},
        "provenance": {"steps": 600, "groups": 300, "episodes": 400, "made_by": "dprl",
                       "notes": [WHOLE, "A note."], "rules": {"secret": "search"}},
    }  # fmt: skip
    return dprl.RulePolicy(
        states=(), actions=("bolus", "none", "two"), feature_names=("pressure", "age"),
        rules=tuple(rules), **{**parts, **more},
    )  # fmt: skip


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(0)
    return dprl.from_arrays(
        episode=range(80), state=rng.normal(62, 5, (80, 2)), reward=rng.normal(size=80),
        action=rng.choice(["bolus", "none", "two"], 80), feature_names=["pressure", "age"],
    )  # fmt: skip


def words(page):
    return " ".join(
        unescape(
            re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page, flags=re.S))
        ).split()
    )


def report(policy, log, folder):
    dprl.report(policy, log, folder / "r.html", draws=20, values=False)
    return (folder / "r.html").read_text()


def index(described):
    """The first page of a review, without its server."""
    from dprl.apps.review.app import WORDS
    from dprl.apps.review.verdicts import statuses

    keys = [c.key for c in described.changes]
    return pages.render(
        "review.html", changes=described.changes, shown=described.changes, described=described,
        status=statuses([], keys), counts={**dict.fromkeys(WORDS, 0), "judged": 0}, mine=0,
        following=None, reviewer="", chosen={"status": "", "suggested": "", "text": ""},
        suggestions=[], needs=1, out="a", exported=None, since=0, digest="d", message="", root="/",
        csrf="", certificate=None, extent=1.0, words=WORDS, narrowed_words=lambda text: "",
    )  # fmt: skip


def test_a_report_tells_every_number_on_record(log, tmp_path):
    policy = made()
    page = report(policy, log, tmp_path)
    text = words(page)
    for sentence in (*policy.sentences(), *policy.stated):
        assert sentence in text
    for fact in (
        "+0.310 (+0.100 to +0.520)", "each end with confidence 95 %, all rules at once",
        "adjusted p 0.003", "+0.280 (−0.050 to +0.610)", "of this rule alone",
        "118 groups came here, 40 of which took it; 78 did otherwise", "110 groups came here",
        "judged at 98 % of steps", "71 % none", "29 % bolus ← suggested",
        "Be wary: takers still differ from others in age by 0.23 standard deviations",
        "Certified for large samples, not proved", "in the order the rules are asked",
    ):  # fmt: skip
        assert fact in text, fact
    assert "What the rules bring, one change at a time" in text
    assert 'aria-label="pressure at most 62? Yes: 1. bolus' in page
    assert "secret" not in text  # the search is not told digit by digit
    for wrong in LUCK:
        assert wrong not in text


def test_a_review_tells_the_same(log):
    described = describe_changes(made(), log)
    text = words(index(described))
    assert [c.rule.number for c in described.changes] == [1, 2]
    for sentence in (*made().sentences(), *made().stated):
        assert sentence in text
    assert "+0.310 (+0.100 to +0.520)" in text
    assert "in the order the rules are asked" in text
    for wrong in (*LUCK, "Intervals are for each change alone", "no certificate", "not on record"):
        assert wrong not in text


def test_rules_without_a_claim_may_be_luck(log, tmp_path):
    bare = made(parameters={"gamma": 1.0, "n_min": 20})
    assert bare.claim == ""
    assert "may owe their place to luck" in words(report(bare, log, tmp_path))
    assert "may owe their place to luck" in words(index(describe_changes(bare, log)))


def test_no_rule_is_no_luck(log, tmp_path):
    for none in (made().limited_to([]), dataclasses.replace(made(), rules=())):
        for text in (words(report(none, log, tmp_path)), words(index(describe_changes(none, log)))):
            assert "No rule of this policy speaks" in text
            for wrong in LUCK:
                assert wrong not in text


def test_a_small_imbalance_is_no_warning(log, tmp_path):
    small = made({"balance": ["age", 0.09]}, {"balance": ["", 0.0]})
    text = words(report(small, log, tmp_path))
    assert "takers still differ" not in text
    assert "0.090 standard deviations ( age )" in text
    assert "takers still differ from others in age by 0.23" in str(made().explain([60.0, 1.0]))


def test_a_part_of_the_rules_says_nothing_of_all(log, tmp_path):
    """What the learner noted of all rules together is no longer true of some of them."""
    policy = made()
    part = policy.limited_to(policy.situations(log)[:1])
    assert WHOLE in policy.stated
    assert WHOLE not in part.stated
    assert any("bring together is not stated" in sentence for sentence in part.stated)
    assert "A note." in part.stated
    assert WHOLE not in words(report(part, log, tmp_path))
    assert "2. DEFER (not approved)" in words(report(part, log, tmp_path))


def test_one_end_alone_is_told(log, tmp_path):
    text = words(report(made({"high": None}, {"low": None, "p": 0.01}), log, tmp_path))
    assert "from +0.100 on" in text
    assert "up to +0.520" in text


def test_odd_facts_are_refused():
    for odd in ({"returns": [1.0, 2.0]}, {"returns": "x"}, {"narrowed": 1}, {"narrowed_from": 3},
                {"groups_others": -1}):  # fmt: skip
        with pytest.raises(dprl.PolicyError, match="not what it should be"):
            made(odd, {})


def test_many_rules_fit_in_lines(log, tmp_path, monkeypatch):
    monkeypatch.setattr("dprl.apps.reports._report.WHOLE", 1)
    text = words(report(made(), log, tmp_path))
    assert "Took it / did otherwise" in text
    assert "40 / 78" in text


def test_what_is_proved_is_not_said_to_be_unproved(tmp_path):
    rng = np.random.default_rng(1)
    x, drug = rng.normal(size=(1_200, 2)), rng.random(1_200) < 0.5
    score = (rng.random(1_200) < np.where(drug == (x[:, 0] > 0), 0.9, 0.1)).astype(float)
    world = dprl.from_arrays(
        episode=range(1_200), state=x, action=np.where(drug, "drug", "wait"), reward=score,
        feature_names=["pressure", "age"],
    )  # fmt: skip
    train, test = world.split(0.5, seed=0)
    rules = dprl.Rules(gamma=1.0, depth=1, splits=1).fit(train)
    gated = dprl.gate(rules, test, value_range=(0.0, 1.0))
    assert gated.certificate.rows
    page = words(report(gated, test, tmp_path))
    assert "Nothing is proved" not in page
    assert "Grade: proved" in page
    assert "Nothing is proved" in words(report(rules, test, tmp_path))
