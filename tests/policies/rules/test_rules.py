"""Rules: what they hold in, what they say, what is refused."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sys
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dprl
from dprl.policies import base as archive
from dprl.policies.rules.rule import Condition, Rule, groups_by

NAMES = ("pressure", "lactate", "age")
ACTIONS = ("bolus 1", "none", "two")
FACTS = {
    "steps": 120, "groups": 118, "groups_took": 40, "groups_proposed": 110, "advantage": 0.31,
    "se": 0.05, "low": 0.1, "high": 0.52, "p": 0.003, "share_usual": [["none", 0.71], ["bolus 1", 0.29]],
    "overlap": 0.98, "balance": ["lactate", 0.04],
}  # fmt: skip
LOW = (Condition("pressure", "at most", 62.0), Condition("lactate", "above", 2.1))


def made(rules, **more):
    parts = {
        "states": (), "actions": ACTIONS, "parameters": {"delta": 0.05, "gamma": 1.0, "learner": "Rules"},
        "provenance": {"steps": 600, "groups": 300, "episodes": 400}, "feature_names": NAMES,
    }  # fmt: skip
    return dprl.RulePolicy(**{**parts, "rules": tuple(rules), **more})


def policy():
    return made([
        Rule(LOW, "bolus 1", FACTS),
        Rule((Condition("lactate", "missing"),), "none", FACTS),
        Rule((Condition("age", "above", 70.0), Condition("age", "at most", 80.5)), "bolus 1", FACTS),
    ])  # fmt: skip


EDGE = [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, math.nan, math.inf, -math.inf, 62.0, 2.1]
NUMBERS = st.one_of(st.sampled_from(EDGE), st.floats(width=64))
THRESHOLDS = st.one_of(
    st.sampled_from([v for v in EDGE if math.isfinite(v)]),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def rule_lists(draw):
    """Rules that hold somewhere, no two about the same states."""
    rules, words = [], set()
    for _ in range(draw(st.integers(0, 4))):
        conditions = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["at most", "above", "missing", "known"]))
            value = draw(THRESHOLDS) if kind in ("at most", "above") else math.nan
            conditions.append(Condition(draw(st.sampled_from(NAMES)), kind, value))
        try:
            rule = Rule(
                tuple(conditions), draw(st.sampled_from(ACTIONS)), silent=draw(st.booleans())
            )
        except dprl.PolicyError:
            continue
        if rule.words not in words:
            rules.append(rule)
            words.add(rule.words)
    return rules


def by_hand(rules, row):
    """The answer in one state, from the definition alone."""
    for rule in rules:
        for c in rule.conditions:
            x = row[NAMES.index(c.feature)]
            asked = {
                "missing": lambda x, v: math.isnan(x),
                "known": lambda x, v: math.isfinite(x),
                "at most": lambda x, v: math.isfinite(x) and x <= v,
                "above": lambda x, v: math.isfinite(x) and x > v,
            }
            if not asked[c.kind](x, c.value):
                break
        else:
            return dprl.DEFER if rule.silent else rule.suggested
    return dprl.DEFER


@given(rule_lists(), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_the_first_rule_that_holds_speaks(rules, rows):
    ruled, x = made(rules), np.array(rows, np.float64)
    answers = [by_hand(rules, row) for row in rows]
    assert ruled.act(x) == answers
    assert ruled.at(x).answers() == answers
    assert [ruled.act(row) for row in rows] == answers
    assert [ruled.act(dict(zip(NAMES, row, strict=True))) for row in rows] == answers
    first = ruled.rule_of(x)
    for r, rule in enumerate(rules):
        holds = rule.matches(x, NAMES)
        assert holds[first == r].all()
        assert not holds[(first == -1) | (first > r)].any()
    again = made([Rule.from_dict(json.loads(json.dumps(rule.to_dict()))) for rule in rules])
    assert again.digest() == ruled.digest()


@given(rule_lists(), st.tuples(NUMBERS, NUMBERS, NUMBERS))
def test_rules_that_cannot_meet_never_hold_together(rules, row):
    x = np.array([row])
    for one in rules:
        for two in rules:
            if one.matches(x, NAMES)[0] and two.matches(x, NAMES)[0]:
                assert one.meets(two)


def test_missing_satisfies_only_missing():
    ruled = policy()
    assert ruled.act([60.0, 3.0, 1.0]) == "bolus 1"
    assert ruled.act([np.nan, 3.0, 1.0]) is dprl.DEFER
    assert ruled.act([np.nan, np.nan, np.nan]) == "none"
    assert ruled.act({"pressure": 60, "lactate": None, "age": 1}) == "none"
    assert ruled.act([-np.inf, np.inf, np.inf]) is dprl.DEFER
    assert ruled.act([62.0, 2.1, 70.0]) is dprl.DEFER
    assert ruled.act([62.0, np.nextafter(2.1, 3), 70.0]) == "bolus 1"


def test_it_speaks_in_sentences():
    assert str(policy()).splitlines() == [
        "1. If pressure is at most 62 and lactate above 2.1: bolus 1 (usually none, 71 %); it "
        "brought +0.31 over doing otherwise (+0.1 to +0.52, each end with confidence 95 % for all rules at once; "
        "adjusted p 0.003).",
        "2. If lactate is missing: none (usually none, 71 %); it brought +0.31 over doing otherwise "
        "(+0.1 to +0.52, each end with confidence 95 % for all rules at once; adjusted p 0.003).",
        "3. Otherwise, if age is above 70 and at most 80.5: bolus 1 (usually none, 71 %); it brought "
        "+0.31 over doing otherwise (+0.1 to +0.52, each end with confidence 95 % for all rules at once; adjusted p "
        "0.003).",
        "Elsewhere: DEFER.",
        "Large-sample, not proved: with confidence about 95 %, the suggestion of every rule brought "
        "more than doing otherwise did, on average over the decisions where the rule holds (one "
        "decision, usual practice otherwise). It holds unless something that has not happened in 40 cases happens. It "
        "assumes that the features tell all that decided who got what, and that models of it come closer as they see more.",
    ]
    assert repr(policy()) == "<RulePolicy: 3 rules, 3 features>"
    assert str(made([])) == "Elsewhere: DEFER."


def test_thresholds_are_said_with_all_of_their_digits():
    value = 62.300000000000004
    assert Condition("pressure", "at most", value).words == "pressure at most 62.300000000000004"
    assert Condition("pressure", "above", -0.0).words == "pressure above 0"


def test_nothing_is_claimed_that_the_record_does_not_carry():
    bare = made([Rule(LOW, "bolus 1", {"share_usual": [["none", 1.0]], "groups": 9})])
    assert bare.stated == ()
    assert str(bare).splitlines()[0].endswith(": bolus 1 (usually none, 100 %).")
    doubtful = {**FACTS, "low": -0.1, "p": 0.2}
    assert made([Rule(LOW, "bolus 1", doubtful)]).stated == ()
    assert made([Rule(LOW, "bolus 1", FACTS)], parameters={}).stated == ()
    small = made([Rule(LOW, "bolus 1", FACTS)], parameters={"delta": 0.05, "margin": 0.2})
    assert "brought 0.2 more than doing otherwise" in small.stated[0]


def test_an_explanation_says_what_is_on_record():
    why = policy().explain({"pressure": 60, "lactate": 3, "age": 40})
    assert (why.kind, why.suggested, why.episodes) == ("change", "bolus 1", 118)
    for words in (
        "Rule 1: pressure at most 62 and lactate above 2.1.", "Usually done there is none (71 %)",
        "118 groups of the half that certified came here, 40 of which took it",
        "110 groups of the half that proposed", "98 % of steps", "0.04 standard deviations (lactate)",
        "+0.31 over doing otherwise (+0.1 to +0.52, each end with confidence 95 % for all rules",
    ):  # fmt: skip
        assert words in why.reason
    assert why.actions["share"] == [0.71, 0.29]
    everyone = made([Rule((), "bolus 1", {**FACTS, "groups_proposed": 0})])  # all certified it
    assert "half" not in everyone.explain([60.0, 3.0, 1.0]).reason
    assert "groups" not in why.actions.columns  # they were not counted by action
    counted = {**FACTS, "groups_by_action": [["bolus 1", 30], ["none", 88]]}
    why = made([Rule(LOW, "bolus 1", counted)]).explain([60.0, 3.0, 1.0])
    assert why.actions["groups"] == [88, 30]
    assert policy().explain([60.0, np.nan, 1.0]).kind == "confirmation"
    assert policy().explain([70.0, 1.0, 1.0]).reason == "No rule holds in this state."


def test_every_way_of_asking_why_gives_the_same_words():
    """The service and the pages ask the decisions, not the policy."""
    from dprl.apps.serve.answers import Answers
    from dprl.policies.explain import reason

    limited = policy().limited_to(policy().situations(log())[:1])
    rows = np.array([[60.0, 3.0, 50.0], [70.0, 3.0, 75.0], [70.0, 3.0, 50.0], [60.0, np.nan, 50.0]])
    for ruled in (policy(), limited, made([])):
        here = ruled.at(rows)
        assert [reason(here, s) for s in range(4)] == [ruled.explain(row).reason for row in rows]
    ranged = made(
        policy().rules,
        provenance={"steps": 600, "ranges": [[50.0, 90.0], [0.0, 4.0], [40.0, 90.0]]},
    )
    served = Answers(ranged)
    served.warm()
    answer = served.act([{"pressure": 60.0, "lactate": 3.0, "age": 50.0}])[0]
    assert (answer["action"], answer["kind"]) == ("bolus 1", "change")
    assert answer["reason"] == ranged.explain(rows[0]).reason
    assert "nan" not in answer["reason"]


def test_changes_have_a_line_a_rule():
    table = policy().changes()
    assert table["rule"] == [1, 3]
    assert table["where"][1] == "age above 70 and at most 80.5, where no earlier rule holds"
    assert (table["usual"][0], table["usual_share"][0]) == ("none", 0.71)
    assert (table["low"][0], table["high"][0], table["groups_proposed"][0]) == (0.1, 0.52, 110)
    assert policy().confirmations()["rule"] == [2]
    summary = policy().summary()
    assert (summary["rules"], summary["changes"], summary["confirmations"]) == (3, 2, 1)
    assert math.isclose(summary["steps_changed"], 0.4)
    assert math.isclose(summary["steps_deferred"], 0.4)


def log():
    rng = np.random.default_rng(0)
    x = np.round(
        np.stack((rng.uniform(50, 90, 300), rng.uniform(0, 4, 300), rng.uniform(60, 90, 300)), 1), 2
    )
    return dprl.from_arrays(
        episode=np.arange(300), state=x, action=rng.choice(ACTIONS, 300), reward=rng.random(300),
        feature_names=list(NAMES),
    )  # fmt: skip


def test_a_limited_policy_says_only_what_the_whole_one_says():
    whole, seen = policy(), log()
    situations = whole.situations(seen)
    assert [one.state for one in situations] == [whole.rules[0].words, whole.rules[2].words]
    x = np.asarray(seen.features)
    first = whole.rule_of(x)
    assert [one.rows.tolist() for one in situations] == [
        np.flatnonzero(first == r).tolist() for r in (0, 2)
    ]
    limited = whole.limited_to(situations[1:], by="a physician")
    answers = list(zip(whole.act(x), limited.act(x), first.tolist(), strict=True))
    assert all((b == a) if r == 2 else b is dprl.DEFER for a, b, r in answers)
    assert {r for _, _, r in answers} == {-1, 0, 2}
    assert limited.provenance["approved"] == {"policy": whole.digest(), "by": "a physician"}
    why = limited.explain([60.0, 3.0, 75.0])  # rule 3 holds too, and may not step in
    assert why.suggested is None
    assert "not among those that were approved" in why.reason
    assert "1. If pressure is at most 62 and lactate above 2.1: DEFER" in str(limited)
    assert len(limited.changes()) == 1
    assert whole.limited_to([]).act(x) == [dprl.DEFER] * 300
    with pytest.raises(dprl.ParameterError, match="changes nothing in 'lactate missing'"):
        whole.limited_to([SimpleNamespace(state="lactate missing", region=None)])


@pytest.mark.slow
def test_reports_and_reviews_tell_its_changes(tmp_path):
    from dprl.apps.reports.changes import describe_changes

    seen = log()
    described = describe_changes(policy(), seen)
    assert {c.state for c in described.changes} == {one.state for one in policy().situations(seen)}
    assert all(c.usual == "none" and c.low is None for c in described.changes)
    assert len({c.key for c in described.changes}) == 2
    assert described.silent[0][0] == "No rule holds there."
    page = tmp_path / "report.html"
    dprl.report(policy(), seen, page, draws=20)
    text = page.read_text()
    assert "pressure at most 62 and lactate above 2.1" in text
    assert "decides by rule" in text
    assert "nearest to one centre" not in text
    assert "118 groups came here, 40 of which took it" in text
    assert "did it at their first visit" not in text


def test_counts_follow_the_shares():
    assert groups_by({"groups": 10, "share_usual": [["none", 0.71], ["two", 0.29]]}, ACTIONS) == [
        0,
        7,
        3,
    ]
    exact = {"groups_by_action": [["two", 3], ["none", 1]], "share_usual": [["none", 0.9]]}
    assert groups_by(exact, ACTIONS) == [0, 1, 3]
    thirds = {"groups": 3, "share_usual": [["two", 0.34], ["none", 0.33], ["bolus 1", 0.33]]}
    assert groups_by(thirds, ACTIONS)[2] == 2  # the usual action stays the usual one
    assert groups_by({"share_usual": [["none", 1.0]]}, ACTIONS) == [0, 0, 0]
    unknown = made([Rule(LOW, "bolus 1")])
    assert unknown.at([60.0, 3.0, 1.0]).kind.tolist() == [dprl.Kind.UNKNOWN]


@given(st.lists(st.floats(0.001, 1), min_size=3, max_size=3), st.integers(1, 10_000))
def test_counts_add_up_and_keep_the_usual_action(weights, groups):
    shares = [w / sum(weights) for w in weights]
    counts = groups_by(
        {"groups": groups, "share_usual": [[a, s] for a, s in zip(ACTIONS, shares, strict=True)]},
        ACTIONS,
    )
    assert sum(counts) == groups
    assert min(counts) >= 0
    assert counts[int(np.argmax(shares))] == max(counts)
    assert all(abs(c - groups * s) <= 2 for c, s in zip(counts, shares, strict=True))


def rule(**changed):
    return {
        "conditions": [{"feature": "pressure", "kind": "at most", "value": 62.0}], "suggested": "none",
        "facts": {}, "silent": False, **changed,
    }  # fmt: skip


def one_condition(**given):
    return rule(conditions=[given])


BAD = [
    None, 3, "a rule", {}, rule(code="import os"), rule(conditions=None), rule(conditions=[3]),
    rule(suggested=None), rule(suggested=True), rule(suggested=1.0), rule(suggested="unheard of"),
    rule(silent=1), rule(facts=[]), rule(facts={"groups": -1}), rule(facts={"groups": 1.5}),
    rule(facts={"overlap": 1.5}), rule(facts={"p": "small"}), rule(facts={"low": 2, "high": 1}),
    rule(facts={"se": -1.0}), rule(facts={"share_usual": [["none", 0.7], ["none", 0.3]]}),
    rule(facts={"share_usual": [["none", 0.7], ["two", 0.7]]}), rule(facts={"share_usual": 1}),
    rule(facts={"share_usual": [["unheard of", 1.0]]}), rule(facts={"balance": [1, 2]}),
    rule(facts={"balance": "lactate"}), rule(facts={"groups_by_action": [["none", 0.5]]}),
    one_condition(feature="unheard of", kind="missing"), one_condition(feature=3, kind="missing"),
    one_condition(feature="", kind="missing"), one_condition(kind="missing"),
    one_condition(feature="age", kind="below", value=1.0), one_condition(feature="age", kind=["above"]),
    one_condition(feature="age", kind="above"), one_condition(feature="age", kind="above", value=None),
    one_condition(feature="age", kind="above", value="70"), one_condition(feature="age", kind="above", value=True),
    one_condition(feature="age", kind="above", value=math.inf), one_condition(feature="age", kind="above", value=10**400),
    one_condition(feature="age", kind="above", value=math.nan), one_condition(feature="age", kind="missing", value=1.0),
    one_condition(feature="age", kind="missing", unit="years"),
    rule(conditions=[{"feature": "age", "kind": "missing"}, {"feature": "age", "kind": "known"}]),
    rule(conditions=[{"feature": "age", "kind": "above", "value": 3}, {"feature": "age", "kind": "at most", "value": 3}]),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: json.dumps(bad)[:60])
def test_what_is_no_rule_is_refused(bad, tmp_path):
    with pytest.raises(dprl.PolicyError):
        made([bad])
    words, arrays = policy()._parts()
    path = tmp_path / "policy.dprl"
    archive.pack(path, "rules", {**words, "rules": [bad]}, arrays)
    with pytest.raises(dprl.PolicyError):
        dprl.load(path)


@pytest.mark.parametrize("more", [
    {"rules": 3}, {"rules": "abc"}, {"rules": {}}, {"rules": None}, {"feature_names": []},
    {"feature_names": ["pressure", "pressure"]}, {"feature_names": [1, 2, 3]}, {"states": ["ill"]},
    {"rules": [rule(), rule(suggested="two")]}, {"actions": []},
])  # fmt: skip
def test_a_file_with_odd_parts_is_refused(more, tmp_path):
    words, arrays = policy()._parts()
    path = tmp_path / "policy.dprl"
    archive.pack(path, "rules", {**words, **more}, arrays)
    with pytest.raises(dprl.PolicyError):
        dprl.load(path)


def test_a_file_gives_all_of_it_back(tmp_path):
    ruled = policy().limited_to([])
    ruled.save(tmp_path / "policy.dprl")
    again = dprl.load(tmp_path / "policy.dprl")
    assert again.digest() == ruled.digest()
    assert str(again) == str(ruled)
    assert [r.to_dict() for r in again.rules] == [r.to_dict() for r in ruled.rules]
    assert again.changes().to_dicts() == ruled.changes().to_dicts()
    with zipfile.ZipFile(tmp_path / "policy.dprl") as z:
        assert z.namelist() == ["policy.json"]
    for other in (copy.deepcopy(ruled), pickle.loads(pickle.dumps(ruled))):
        assert other.digest() == ruled.digest()


def test_facts_are_what_json_holds():
    facts = Rule(
        (), "none", {**FACTS, "groups": np.int64(118), "high": np.inf, "balance": (0.04, "lactate")}
    ).facts
    assert (type(facts["groups"]), facts["high"], facts["balance"]) == (
        int,
        None,
        ["lactate", 0.04],
    )
    with pytest.raises(TypeError):
        facts["groups"] = 3


@pytest.mark.parametrize("states", [[[1.0, 2.0]], np.zeros((2, 4)), [1.0], np.zeros((2, 3, 3)), []])
def test_another_number_of_features_is_refused(states):
    with pytest.raises(dprl.ParameterError, match="a state has 3 features"):
        policy().act(states)


@pytest.mark.parametrize(
    "states",
    [
        {"pressure": 1.0},
        [["a", 2, 3]],
        [10**400, 1, 1],
        {"pressure": 10**400, "lactate": 1, "age": 1},
    ],
)
def test_what_is_no_state_is_refused(states):
    with pytest.raises(dprl.PolicyError):
        policy().act(states)


def test_one_state_is_answered_in_few_calls():
    """Which is some microseconds, on any machine."""
    ruled, calls = policy(), []
    for state in (
        np.array([60.0, 3.0, 1.0]),
        [60.0, 3.0, 1.0],
        dict(zip(NAMES, (60.0, 3.0, 1.0), strict=True)),
    ):
        ruled.act(state)
        calls.clear()
        sys.setprofile(lambda frame, event, _: calls.append(event))
        ruled.act(state)
        sys.setprofile(None)
        assert sum(event in ("call", "c_call") for event in calls) < 100  # there are about 50


def test_a_notebook_shows_rules_and_no_markup_of_theirs():
    evil = made(
        [Rule((Condition("<b>x", "missing"),), "<script>", {**FACTS, "share_usual": None, "balance": None})],
        feature_names=("<b>x",), actions=("<script>",),
    )  # fmt: skip
    page = evil._repr_html_()
    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert "<b>x" not in page
    assert "<svg" in policy()._repr_html_()
    assert "not on record" in made([Rule(LOW, "none")])._repr_html_()


def test_the_picture_has_a_band_a_rule():
    pytest.importorskip("matplotlib")
    one_sided = Rule((Condition("age", "known"),), "two", {**FACTS, "high": None})
    odd = made([*policy().limited_to([]).rules, one_sided], feature_names=(*NAMES, "$x_{"))
    axis = odd.draw()
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert len(labels) == 5
    assert labels[0].startswith("1. If pressure is at most 62")
    assert labels[-1] == "Elsewhere: DEFER"
    assert odd.draw(axis) is axis
    dollars = made(
        [Rule((Condition("$x_{", "missing"),), "$")], feature_names=("$x_{",), actions=("$",)
    )
    dollars.draw().figure.canvas.draw()
    made([]).draw().figure.canvas.draw()
