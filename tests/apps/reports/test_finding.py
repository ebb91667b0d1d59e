"""The first screen of a report: the finding in few words, each once; situations tested together."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import numpy as np
import pytest

import dprl
from conftest import to_log
from dprl._core.inference import contrast_of
from dprl.apps.reports.changes import as_called, describe_changes, pooled_check
from dprl.apps.reports.finding import title_of

WORLD = dprl.envs.care_pathway()


def read(text, whole=True):
    """What is read of a page; not `whole`: with what is folded away closed, appendices apart."""
    body = re.sub(r"<style>.*?</style>|<title>.*?</title>|<svg.*?</svg>", " ", text, flags=re.S)
    if not whole:
        inner = r"(<summary>(?:(?!<details>).)*?</summary>)(?:(?!<details>).)*?</details>"
        while "<details>" in body:
            body = re.sub(f"<details>{inner}", r"\1", body, flags=re.S)
        body = re.sub(r'<section aria-labelledby="standard">.*?</section>', " ", body, flags=re.S)
    body = re.sub(r"</(?:p|li|h\d|td|th|dt|dd|caption|summary|a)>|<br>", "\n", body)
    return re.sub(r"[ \xa0]+", " ", re.sub(r"<[^>]*>", "", body))


def written(policy, log, tmp_path, **options):
    dprl.report(policy, log, tmp_path / "r.html", draws=100, **options)
    return (tmp_path / "r.html").read_text(encoding="utf-8")


def wards(seed=0, n=150):
    """Three wards with a best drug each, which a third of patients get."""
    rng = np.random.default_rng(seed)
    episodes = []
    for ward, best in zip("xyz", ("red", "green", "blue"), strict=True):
        for _ in range(n):
            drug = best if rng.random() < 0.35 else "none"
            episodes.append([(ward, drug, 0.4 * (drug == best) + rng.normal(0, 0.4))])
    return to_log(episodes)


def lottery(n=1500, seed=0):
    """A trial of two arms in which the drug helps where the pressure is high."""
    rng = np.random.default_rng(seed)
    x, drug = rng.normal(size=n), rng.random(n) < 0.5
    gain = np.where(x > 0, 0.6, -0.6) * drug
    return dprl.from_arrays(
        episode=np.arange(n) + 10_000 * seed, state=x[:, None], reward=gain + rng.normal(size=n),
        action=np.where(drug, "drug", "none"), propensity=np.full(n, 0.5),
        feature_names=["pressure"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def ruled():
    return dprl.Rules(gamma=1.0, splits=1).fit(lottery()), lottery(seed=1)


def test_three_changes_in_under_700_words(tmp_path):
    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(wards())
    text = written(policy, wards(seed=1), tmp_path)
    assert text.count("<article") == 3
    words = read(text, whole=False)
    assert 200 < len(words.split()) < 700
    (title,) = re.findall("<h1>(.*?)</h1>", text)
    for place in ("x: red", "y: green", "z: blue"):
        assert f"When state = {place}, not none." in title
    assert text.index("<h1>") < text.index('<table class="claims">')
    before = text[: text.index('id="changes"')]
    assert before.count("<table") == before.count("<svg") - 3 == 1  # one table, one picture
    shown = re.sub(r"<details>.*?</details>", "", before, flags=re.S)
    assert 1 <= shown.count("notice warning") <= 3
    assert re.search(
        "450 episodes (it has not seen|that judge it) agree: the return higher by", words
    )


@pytest.mark.parametrize("kind", ["table", "rules", "sure", "seen", "gated"])
def test_no_sentence_stands_twice_on_a_page(kind, ruled, tmp_path):
    train, test = WORLD.sample(1000, seed=0).split(0.5, seed=0)
    if kind == "rules":
        policy, test = ruled
    elif kind == "sure":
        policy = dprl.Confident(gamma=1.0).fit(train)
    else:
        policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(train)
    if kind == "gated":
        policy = dprl.gate(policy, train, value_range=(0, 1))
    text = read(written(policy, train if kind == "seen" else test, tmp_path))
    sentences = Counter(
        s.strip()
        for s in re.split(r"(?<=[.!?])\s|\n+", text)
        if len(s.split()) > 6 and s[-1] in ".!"
    )
    assert {s: n for s, n in sentences.items() if n > 1} == {}


@pytest.mark.slow
def test_where_lots_were_drawn_nothing_is_said_of_choice_and_of_later_states(ruled, tmp_path):
    policy, test = ruled
    text = read(written(policy, test, tmp_path))
    assert "Γ" not in text
    for word in ("misplaced", "not recorded cannot be seen", "which states are met", "an episode"):
        assert word not in text
    assert "Γ" not in " ".join([*policy.sentences(), *policy.stated])
    hidden = dprl.Rules(gamma=1.0, splits=1).fit(
        dprl.from_arrays(
            episode=test.episodes, state=test.features, reward=test.reward,
            action=[test.actions[a] for a in test.action], feature_names=["pressure"],
        )
    )  # fmt: skip
    assert "Γ*" in " ".join([*hidden.sentences(), *hidden.stated])


def test_situations_of_one_action_are_one_claim(tmp_path):
    def log(seed):
        rng = np.random.default_rng(seed)
        ward, drug = rng.integers(9, size=1200), rng.random(1200) < 0.5
        y = rng.random(1200) < 0.4 + 0.15 * drug + 0.02 * ward
        return dprl.from_arrays(
            episode=np.arange(1200) + 10_000 * seed, state=ward,
            action=np.where(drug, "drug", "none"), reward=y.astype(float),
        )  # fmt: skip

    policy, test = dprl.DPRLDiscrete(n_min=10, gamma=1.0).fit(log(1)), log(2)
    described = describe_changes(policy, test)
    several = [c for c in described.claims if len(c.situations) > 3]
    assert several
    claim = several[0]
    assert title_of(described).startswith(f"In {len(claim.situations)} of 9 situations: ")
    alone = [described[key].check for key in claim.changes] or [claim.check]
    width = claim.check.high - claim.check.low
    assert all(width < check.high - check.low for check in alone)
    assert sum(c.took + c.others for c in alone) == claim.check.took + claim.check.others


def test_together_they_are_compared_situation_by_situation():
    """The sick get the drug and fare worse; in each ward it helps: pooled the sign would change."""
    rows = [("sick", "drug", 0.3, 800), ("sick", "none", 0.2, 200),
            ("fit", "drug", 0.9, 200), ("fit", "none", 0.8, 800)]  # fmt: skip
    log = to_log(
        [[(ward, drug, float(i < round(p * n)))] for ward, drug, p, n in rows for i in range(n)]
    )
    stratum, G = log.state.astype(np.int64), log.reward
    check, k = pooled_check(log, stratum, "drug", G)
    assert k == 2
    assert check.advantage == pytest.approx(0.5 * 0.2 * 0.1 + 0.5 * 0.8 * 0.1)
    plain = G[log.action == log.actions.index("drug")].mean() - G.mean()
    assert plain < 0 < check.low < check.advantage < check.high
    one = pooled_check(log, np.where(stratum == stratum[0], 0, -1), "drug", G)[0]
    x, y = G[:800], G[800:1000]
    assert (one.low, one.high) == pytest.approx([0.2 * end for end in contrast_of(x, y)])


def test_what_nobody_took_is_told_where_chances_are_on_record():
    log = to_log([[("sick", "none", 1.0)]] * 4 + [[("fit", "drug", 0.0)]] * 2, propensity=[0.5] * 6)
    sick = np.where(log.state == log.states.index("sick"), 0, -1)
    check, compared = pooled_check(log, sick, "drug", log.reward)
    assert (compared, check.advantage) == (0, None)


@pytest.mark.slow
def test_the_interval_of_several_situations_covers():
    """300 logs of eight wards; the drug brings .1 in each, and more patients of some get it."""
    rng, inside = np.random.default_rng(5), 0
    for _ in range(300):
        ward = rng.integers(8, size=400)
        drug = rng.random(400) < 0.3 + 0.05 * ward
        y = (rng.random(400) < 0.2 + 0.05 * ward + 0.1 * drug).astype(float)
        log = dprl.from_arrays(
            episode=np.arange(400), state=ward, action=np.where(drug, "d", "n"), reward=y
        )
        check, _ = pooled_check(log, log.state.astype(np.int64), "d", y)
        truth = float(np.mean([(0.7 - 0.05 * w) * 0.1 for w in ward]))
        inside += check.low <= truth <= check.high
    assert 0.93 <= inside / 300 <= 1.0


def test_exceptions_of_a_rule_are_on_its_card_and_not_in_the_title():
    rule = {
        "conditions": [{"feature": "pressure", "kind": "above", "value": 0.0}], "suggested": "drug",
        "unless": [[{"feature": "pressure", "kind": "above", "value": 2.5}]],
        "facts": {"share_usual": [["none", 0.6], ["drug", 0.4]], "groups": 90, "groups_took": 40},
    }  # fmt: skip
    policy = dprl.RulePolicy(
        states=(), actions=("drug", "none"), parameters={"gamma": 1.0}, provenance={"log": None},
        feature_names=("pressure",), rules=(rule,),
    )  # fmt: skip
    described = describe_changes(policy, lottery(n=300))
    assert title_of(described) == "When pressure above 0 (with exceptions): drug, not none."
    assert described.changes[0].situation == "pressure above 0, but not where pressure above 2.5"


def test_what_is_suggested_is_never_what_it_replaces():
    """Where two actions have half each, and one of them is suggested."""
    n = 400
    action = np.where(np.arange(n) % 2, "new", "old")
    log = dprl.from_arrays(
        episode=np.arange(n), state=np.full(n, "severe"), action=action,
        reward=(action == "new") + 0.01 * (np.arange(n) % 7), called={"action": {"new": "Fancy"}},
    )  # fmt: skip
    described = describe_changes(dprl.DPRLDiscrete(n_min=10, gamma=1.0).fit(log), log)
    (change,) = as_called(described).changes
    assert (change.usual, change.suggested, change.instead) == ("Fancy or old", "Fancy", "old")
    assert title_of(as_called(described)).endswith("Fancy, not old.")
    assert dataclasses.replace(change, suggested="not old", avoid="old").instead == "old"


def test_over_features_what_a_rule_brings_is_weighed_as_the_whole_is():
    """The fit get the drug more often: plain means say it helps, and it does nothing."""
    rng, n = np.random.default_rng(3), 3_000
    x = rng.normal(size=(n, 2))
    chance = 1 / (1 + np.exp(-1.5 * x[:, 1]))
    drug = rng.random(n) < chance
    log = dprl.from_arrays(
        episode=range(n), state=x, action=np.where(drug, "drug", "none"),
        reward=2 * x[:, 1] + rng.normal(size=n), feature_names=["pressure", "fitness"],
    )  # fmt: skip
    rule = {"conditions": [{"feature": "pressure", "kind": "above", "value": 0.0}],
            "suggested": "drug", "facts": {"share_usual": [["none", 0.6], ["drug", 0.4]],
                                             "groups": 900, "groups_took": 400}}  # fmt: skip
    policy = dprl.RulePolicy(
        states=(), actions=log.actions, parameters={"gamma": 1.0}, provenance={"log": None},
        feature_names=log.feature_names, rules=(rule,),
    )  # fmt: skip
    known = np.stack([chance if action == "drug" else 1 - chance for action in log.actions], 1)
    judged = dprl.evaluate(policy, log, behavior=known, draws=200, values=False)
    plain = describe_changes(policy, log)
    weighed = plain.judged(judged.rules)
    assert plain.changes[0].check.low > 0.5
    for check in (weighed.changes[0].check, weighed.claims[0].check):
        assert check.low < 0 < check.high < 0.5
        assert (check.took, check.others) == (
            plain.changes[0].check.took,
            plain.changes[0].check.others,
        )
    rule_one, drug_all = judged.rules.rows
    assert (rule_one.column, rule_one.value, drug_all.value) == ("rule", "1", "drug")
    whole = judged.rows[judged.headline]["difference"]
    assert rule_one.difference * rule_one.episodes / n == pytest.approx(whole, abs=0.02)


def test_what_those_who_judge_lean_against_is_told_last_and_says_so():
    rules = tuple(
        {
            "conditions": [{"feature": "pressure", "kind": "above", "value": above}],
            "suggested": action,
            "facts": {"share_usual": [[usual, 0.6], [action, 0.4]], "steps": 90, "groups": 90},
        }
        for above, action, usual in ((1.4, "none", "drug"), (0.0, "drug", "none"))  # harms, helps
    )  # fmt: skip
    policy = dprl.RulePolicy(
        states=(), actions=("drug", "none"), parameters={"gamma": 1.0}, provenance={"log": None},
        feature_names=("pressure",), rules=rules,
    )  # fmt: skip
    log = lottery()
    judged = dprl.evaluate(policy, log, draws=100)
    described = describe_changes(policy, log).judged(judged.rules)
    assert described.weighed
    title = title_of(described, judged)
    assert title.startswith("When pressure above 0")
    assert " Not confirmed: When pressure above 1.4: none, not drug." in title
