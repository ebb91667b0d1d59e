"""What a policy answers, explains and lists."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
import reference

import dprl
from conftest import to_log
from dprl._core.inference import welch


@pytest.fixture(scope="module")
def policy():
    episodes = (
        [[("sick", "new", 1.0)]] * 30
        + [[("sick", "new", 0.5)]] * 10
        + [[("sick", "old", 0.0)]] * 40
        + [[("sick", "old", 0.5)]] * 20
        + [[("sick", "odd", 0.0)]] * 3
        + [[("well", "old", 1.0)]] * 50
        + [[("rare", "new", 1.0)]] * 2
        + [[("even", "new", 0.0)]] * 15
        + [[("even", "old", 1.0)]] * 15
    )
    return dprl.DPRLDiscrete(n_min=10, gamma=0.9).fit(to_log(episodes))


def test_it_acts_where_it_may_and_defers_elsewhere(policy):
    assert policy.act(["sick", "well", "rare", "unheard of", None, float("nan")]) == [
        "new", dprl.DEFER, dprl.DEFER, dprl.DEFER, dprl.DEFER, dprl.DEFER,
    ]  # fmt: skip
    assert policy.act("sick") == "new"
    assert policy.act(np.array(["sick"])) == ["new"]
    assert policy.act([]) == []


def test_labels_of_another_type_are_refused_not_deferred(policy):
    with pytest.raises(dprl.PolicyError, match="states are text; got 3"):
        policy.act([3])
    numbers = dprl.DPRLDiscrete(n_min=1, gamma=0.9).fit(to_log([[(1, 0, 1.0)], [(1, 1, 0.0)]]))
    assert numbers.act([1, 1.0, np.int64(1)]) == [0, 0, 0]
    with pytest.raises(dprl.PolicyError, match="states are whole numbers; got '1'"):
        numbers.act(["1"])
    with pytest.raises(dprl.PolicyError, match="one label"):
        numbers.act([[1]])


def test_defer_is_one_thing():
    assert repr(dprl.DEFER) == str(dprl.DEFER) == "DEFER"
    assert copy.deepcopy(dprl.DEFER) is dprl.DEFER
    assert pickle.loads(pickle.dumps(dprl.DEFER)) is dprl.DEFER


def test_probabilities(policy):
    pi = policy.probabilities(["sick", "well", "unheard of"])
    assert policy.actions == ("new", "odd", "old")
    assert pi[0].tolist() == [1, 0, 0]
    assert pi[1].tolist() == [0, 0, 1]
    assert np.isnan(pi[2]).all()
    behavior = np.full((2, 3), 1 / 3)
    given = policy.probabilities(["sick", "well"], behavior=behavior)
    assert given.tolist() == [[1, 0, 0], [1 / 3] * 3]
    assert behavior[0, 0] == 1 / 3
    assert policy.probabilities().shape == (4, 3)
    with pytest.raises(dprl.PolicyError, match=r"shape \(1, 3\)"):
        policy.probabilities(["sick"], behavior=behavior)


def test_changes_and_their_interval(policy):
    table = policy.changes()
    assert [row["state"] for row in table] == ["sick", "even"]
    row = table.to_dicts()[0]
    x, y = [1.0] * 30 + [0.5] * 10, [0.0] * 43 + [0.5] * 20
    assert row["usual"] == "old"
    assert row["usual_share"] == pytest.approx(60 / 103)
    assert row["suggested"] == "new"
    assert (row["episodes"], row["others"]) == (40, 63)
    assert row["value"] == pytest.approx(np.mean(x))
    assert row["value_usual"] == pytest.approx(np.mean(x + y))
    assert row["rule_difference"] == pytest.approx(np.mean(x) - np.mean(x + y))
    share = 63 / 103
    assert (row["low"], row["high"]) == pytest.approx(
        tuple(share * end for end in reference.contrast(x, y))
    )
    assert "not corrected" in table.details()
    assert "corrected for having picked it" in str(table)
    assert json.loads(table.to_json())[0]["suggested"] == "new"
    for backend in ("pandas", "polars", "pyarrow"):
        assert len(table.to_frame(backend)) == 2


def test_welch_where_a_group_is_too_small_or_does_not_vary():
    one = np.array([1.0])
    low, high = welch(one, one, np.array([np.nan]), 5 * one, one, one)
    assert np.isnan(low[0])
    assert np.isnan(high[0])
    low, high = welch(5 * one, 2 * one, 0 * one, 5 * one, one, 0 * one)
    assert (low[0], high[0]) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("state", "kind", "reason"),
    [
        ("sick", "change", "usually done is old (58 %)"),
        ("well", "defer", "nothing to compare with"),
        ("rare", "defer", "No action was taken here in at least n_min = 10 episodes"),
        ("unheard of", "defer", "never seen in the training log"),
    ],
)
def test_explanations(policy, state, kind, reason):
    explanation = policy.explain(state)
    assert explanation.kind == kind
    assert reason in explanation.reason
    assert reason in str(explanation)
    assert json.loads(json.dumps(explanation.to_dict()))["kind"] == kind


def test_explanation_says_why_each_action_is_not_allowed(policy):
    verdicts = {row["action"]: row["verdict"] for row in policy.explain("sick").actions}
    assert verdicts == {
        "new": "suggested",
        "odd": "taken in 3, fewer than n_min = 10",
        "old": "worse than usual practice here",
    }


def test_no_better_action_is_a_reason_too():
    episodes = [[("s", "a", 0.0), ("s", "b", 1.0)]] * 20 + [[("s", "b", 0.6)]] * 20
    policy = dprl.DPRLDiscrete(n_min=10, gamma=0.5, contrast=True).fit(to_log(episodes))
    assert policy.act("s") == "b"
    worse = [[("s", "a", 1.0), ("s", "b", 0.0)]] * 20 + [[("s", "c", 0.0)]] * 5
    policy = dprl.DPRLDiscrete(n_min=10, gamma=0.5, contrast=True).fit(to_log(worse))
    assert policy.act("s") is dprl.DEFER
    assert policy.explain("s").reason.startswith("No action with enough evidence did better")


def test_summary_in_one_line(policy):
    verdict, line, by_luck = str(policy).splitlines()
    changes = policy.changes().to_dicts()
    assert len(changes) == 2
    for row in changes:
        assert f"state = {row['state']}: {row['suggested']}, not {row['usual']}" in verdict
    assert line == (
        "4 states · 2 decision points · 2 changes · 0 confirmations · "
        "acts on 71.9 % of steps, differs from practice on 71.9 %"
    )
    assert by_luck.startswith("2 changes; if no action mattered, luck alone would make about ")
    assert repr(policy) == f"<Policy: {line}>"
    s = policy.summary()
    assert s["steps_deferred"] + s["steps_confirmed"] + s["steps_changed"] == pytest.approx(1)


def test_a_policy_cannot_be_changed(policy):
    with pytest.raises(ValueError, match="read-only"):
        policy.choice[0] = 1
    with pytest.raises(AttributeError):
        policy.choice = None
    with pytest.raises(TypeError):
        policy.parameters["n_min"] = 1


def test_provenance(policy):
    assert policy.parameters["learner"] == "DPRLDiscrete"
    assert policy.parameters["n_min"] == 10
    assert policy.provenance["made_by"] == f"dprl {dprl.__version__}"
    assert policy.provenance["episodes"] == 185


def test_infinite_n_min_survives_the_file(tmp_path):
    policy = dprl.DPRLDiscrete(n_min=math.inf, gamma=0.9).fit(to_log([[("s", "a", 1.0)]] * 3))
    policy.save(tmp_path / "p.dprl")
    again = dprl.load(tmp_path / "p.dprl")
    assert again.n_min == policy.n_min == math.inf
    assert "fewer than n_min = inf" in str(again.explain("s"))


def test_hostile_labels_show_as_text():
    bad = "<script>alert(1)</script>"
    episodes = [[(bad, "x", 1.0)]] * 5 + [[(bad, "y", 0.0)]] * 5
    html = dprl.DPRLDiscrete(n_min=2, gamma=0.9).fit(to_log(episodes)).changes()._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choice": np.array([0, 5, -1, 0], np.int32)}, "actions that do not exist"),
        ({"choice": np.array([1, 1, 1, 1], np.int32)}, "an action that is not allowed"),
        ({"choice": np.zeros(3, np.int32)}, r"'choice' is int32\(3,\), not int32\(4,\)"),
        ({"n": np.zeros((4, 2), np.int64)}, "'n' is int64"),
        ({"states": ("a", "a", "b", "c")}, "repeats a label"),
        ({"states": ("a", 1, "b", "c")}, "mixes text and numbers"),
    ],
)
def test_a_policy_that_contradicts_itself(policy, changes, message):
    from dataclasses import replace

    with pytest.raises(dprl.PolicyError, match=message):
        replace(policy, **changes)


def test_both_counts_of_a_reason_are_of_the_same_visits():
    both = [("s", "a", 0.0), ("s", "b", 1.0)]  # b only at the second visit
    log = to_log([both] * 5 + [[("s", "b", 1.0)]] * 3 + [[("s", "a", 0.0)]] * 9)
    first = dprl.DPRLDiscrete(n_min=3, gamma=1.0).fit(log).explain("s").reason
    assert "b was taken in 8 episodes that came here and ended +0.529" in first
    assert "(at their first visit 3 took it and 14 did otherwise)" in first
    every = dprl.DPRLDiscrete(n_min=3, gamma=1.0, visits="all").fit(log).explain("s").reason
    assert "b was taken in 8 visits" in every
    assert "(of all visits 8 took it and 14 did otherwise)" in every
    few = dprl.DPRLDiscrete(n_min=4, gamma=1.0, contrast=True).fit(log).explain("s").actions
    assert few["verdict"][0] == "only 3 did otherwise at their first visit, fewer than n_min = 4"


def test_no_policy_has_an_action_that_reads_as_a_deferral():
    with pytest.raises(dprl.PolicyError, match="called 'DEFER'"):
        dprl.StochasticPolicy(("s",), ("DEFER", "wait"), {}, {}, np.array([[0.5, 0.5]]))
