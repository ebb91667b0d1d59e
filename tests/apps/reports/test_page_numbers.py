"""Numbers that stand twice on a page, or in a table and on a page, are the same or named apart."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from test_report import flat

import dprl
from conftest import to_log
from dprl.apps.reports._report import report
from dprl.apps.reports.changes import describe_changes
from dprl.errors import ParameterError
from dprl.logs.log import CUT, TERMINAL

WORLD = dprl.envs.care_pathway()


def read(policy, log, folder, **options):
    written = report(policy, log, folder / "r.html", **{"values": False, "draws": 50, **options})
    return flat((folder / "r.html").read_text(encoding="utf-8")), written


# -- cut episodes ---------------------------------------------------------------------------------


def some_cut(log, every):
    ended = np.where(np.arange(log.n_episodes) % every, TERMINAL, CUT)
    return replace(log, ended=ended.astype(np.uint8))


@pytest.mark.parametrize("cut", ["drop-unrelated", "bootstrap", "terminal", None])
def test_a_page_tells_one_number_of_cut_episodes(cut, tmp_path):
    train, log = some_cut(WORLD.sample(2_000, seed=1), 5), some_cut(WORLD.sample(760, seed=2), 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0, cut=cut).fit(train)
        found = describe_changes(policy, log)
        words, written = read(policy, log, tmp_path, cases=2)
    assert found.cut == 76
    assert (
        found.left_out == 760 - found.log.n_episodes == 760 - written.evaluation.facts["episodes"]
    )
    assert "400 training episodes" in words
    assert "and in 76 episodes of this log" in words
    assert "0 of this log" not in words
    if cut == "drop-unrelated":
        assert found.left_out == 76
        left = (
            "76 of 760 episodes were cut and are left out: every number here is of the other 684, "
            "and it is declared that whether an episode was cut depends neither on its length nor "
            "on its outcome."
        )
        assert left in words
        assert left in written.evaluation.warnings
        assert "76 episodes of this log (76 of them left out)" in words
        assert "(400 of them left out)" in words
    elif cut == "bootstrap":
        assert "(cut, the rest estimated)" in words
        assert "1 cut episodes" not in words
    else:
        assert "of them left out" not in words


# -- what the rule looked at, and the advantage -----------------------------------------------------


@pytest.fixture(scope="module")
def two_signs():
    """At first visits b does worse than usual; those who ever did it did better: +.2 and -.05."""
    rows = [[("s", "a", 0.0), ("s", "b", 1.0)]] * 10 + [[("s", "b", 0.4)]] * 4
    rows += [[("s", "a", 0.0)]] * 6 + [[("s", "a", 0.0), ("s", "c", 0.6)]] * 2
    policy = dprl.DPRLDiscrete(n_min=3, gamma=1.0, plan=False).fit(to_log(rows))
    assert policy.act("s") == "b"
    return policy, to_log(rows * 2)


def test_two_quantities_have_two_names(two_signs, tmp_path):
    policy, log = two_signs
    row = next(iter(policy.changes()))
    rule, first = 11.6 / 14 - 12.8 / 22, 0.4 - 12.8 / 22
    assert row["rule_difference"] == pytest.approx(rule)
    assert row["advantage"] == pytest.approx(first)
    assert rule > 0 > first
    assert "difference" not in row
    assert "may differ,\neven in sign" in policy.changes().details()
    assert "difference" not in policy.explain("s").actions.columns
    assert next(r for r in policy.explain("s").actions if r["action"] == "b")[
        "rule_difference"
    ] == pytest.approx(rule)
    change = describe_changes(policy, log).changes[0]
    assert (change.rule_difference, change.rule_episodes) == (
        row["rule_difference"],
        row["episodes"],
    )
    assert change.advantage == row["advantage"]
    assert change.value_first == pytest.approx(0.4)
    words, _ = read(policy, log, tmp_path)
    assert f"What the rule saw{rule:+.3f} over 14 episodes that ever did it here" in words
    assert f"Advantage, training −{-first:.3f}" in words
    assert "Difference, training" not in words
    for shown in (words, flat(policy._repr_html_())):
        assert "dvantage" in shown


# -- planned below usual practice -------------------------------------------------------------------


def test_a_plan_below_usual_practice_is_explained(tmp_path):
    """Those who did a in s did well in t afterwards; all who did b in t did not so well."""
    rows = [[("s", "a", 0.0), ("t", "b", 1.0)]] * 20 + [[("s", "c", 0.6)]] * 30
    rows += [[("t", "b", 0.3)]] * 40 + [[("t", "d", 0.2)]] * 30
    policy = dprl.DPRLDiscrete(n_min=10, gamma=1.0).fit(to_log(rows))
    row = next(r for r in policy.changes() if r["state"] == "s")
    assert (row["suggested"], row["value"]) == ("a", 1.0)
    assert row["planned"] == pytest.approx(32 / 60)
    assert row["value_usual"] == pytest.approx(38 / 50)
    assert "planned may lie below value_usual" in policy.changes().details()
    assert "planned may lie below usual practice" in str(policy.explain("s"))
    words, _ = read(policy, to_log(rows * 2), tmp_path)
    assert (
        words.count("which is worse than usual practice: a plan values what comes next by all") == 1
    )
    plain = dprl.DPRLDiscrete(n_min=10, gamma=1.0, plan=False).fit(to_log(rows))
    assert "planned may lie" not in plain.changes().details()


def test_a_plan_beyond_every_return_is_explained(tmp_path):
    """Episodes of 20 steps that earn 1 a step: a plan that goes on for ever is worth 1 / (1 - γ)."""
    rows = [[(f"s{t % 3}", "a", 0.0) for t in range(20)]] * 20
    rows += [[(f"s{t % 3}", "b", 1.0) for t in range(20)]] * 20
    log = to_log(rows)
    policy = dprl.DPRLDiscrete(n_min=10, gamma=0.99).fit(log)
    most = (1 - 0.99**20) / (1 - 0.99)
    listed = [*policy.changes(), *policy.confirmations()]
    assert [row["planned"] for row in listed] == pytest.approx([100.0] * 3)
    assert max(policy.highest) == pytest.approx(most)
    assert (
        "planned lies beyond every return"
        in policy.changes().details() + policy.confirmations().details()
    )
    assert "planned lies beyond every return that was seen from here" in str(policy.explain("s0"))
    words, _ = read(policy, to_log(rows * 2), tmp_path)
    assert words.count("beyond every return seen from here") == len(policy.changes())
    plain = dprl.DPRLDiscrete(n_min=10, gamma=0.99, plan=False).fit(log)
    assert "beyond" not in f"{plain.changes()}{plain.confirmations()}{plain.explain('s0')}"


# -- estimates that cannot be -----------------------------------------------------------------------


def far(value_range=None):
    """Of 200 with 1 for everybody, 60 take what practice is said to do once in ten: IS says 3."""
    rows = [[("s", "b" if i < 60 else "a", 1.0 if i else 0.0)] for i in range(200)]
    always = dprl.CallablePolicy(lambda s: ["b"] * len(s), actions=("a", "b"))
    return dprl.evaluate(
        always, to_log(rows), gamma=1, draws=50, behavior=np.array([[0.9, 0.1]]),
        value_range=value_range,
    )  # fmt: skip


def test_estimates_outside_the_range_of_returns_are_marked():
    found = far()
    assert found["IS"]["value"] > 2
    assert (found.facts["lowest"], found.facts["highest"], found.facts["range"]) == (0, 1, "log")
    assert found.outside["IS"] == found.outside["PDIS"] == "value"
    assert found.outside["WIS"] == "interval"
    told = {row["estimator"]: row["outside"] for row in found.to_dict()["estimates"]}
    assert told == dict(found.outside)
    assert json.loads(found.to_json())["facts"]["highest"] == 1
    said = next(w for w in found.warnings if "outside the returns" in w)
    assert "IS (2.95), PDIS (2.95)" in said
    assert "0 to 1" in said
    assert "outside" in str(found.table())
    words = flat(found._repr_html_())
    assert "2.950 outside" in words
    assert said in words, words


def test_a_declared_range_is_what_counts():
    assert far((0, 5)).outside["IS"] == ""
    assert far((0, 5)).facts["range"] == "declared"
    assert not any("outside the returns" in w for w in far((0, 5)).warnings)
    low = far((0, 2))
    assert low.outside["IS"] == "value"
    assert any("0 to 2, as declared" in w for w in low.warnings)
    with pytest.raises(ParameterError, match="value_range"):
        far((1, 0))
    train = WORLD.sample(3_000, seed=1)
    gated = dprl.gate(dprl.DPRLDiscrete(n_min=50, gamma=1.0), train, value_range=(-1, 2))
    judged = dprl.evaluate(gated, WORLD.sample(300, seed=2), draws=20, values=False)
    assert (judged.facts["lowest"], judged.facts["highest"]) == (-1, 2)
    assert judged.facts["range"] == "declared"


def test_an_interval_that_leaves_the_range_is_marked_too():
    rows = [[("s", "ab"[i % 2], float(i % 10 > 1))] for i in range(80)]
    always = dprl.CallablePolicy(lambda s: ["b"] * len(s), actions=("a", "b"))
    found = dprl.evaluate(always, to_log(rows), gamma=1, draws=200)
    assert found["IS"]["value"] <= 1 < found["IS"]["value_high"]
    assert found.outside["IS"] == "interval"
    assert not any("outside the returns" in w for w in found.warnings)


def test_a_sweep_marks_them():
    found = dprl.sweep(
        dprl.DPRLDiscrete(n_min=1, gamma=1.0), WORLD.sample(500, seed=1), WORLD.sample(60, seed=2),
        n_min=[5], draws=20, values=False, estimator="IS",
    )  # fmt: skip
    judged = found.evaluations[0]
    assert found.rows[0]["outside"] == judged.outside["IS"]
    assert found.to_dict()["settings"][0]["outside"] == judged.outside["IS"]


# -- what is counted, and of whom -------------------------------------------------------------------


def test_a_line_tells_who_did_it_first_and_who_ever(tmp_path):
    """n_min = 3 beside 'did it: 1' would contradict itself: the rule counts all who ever did it."""
    states = [f"s{i}" for i in range(14)]
    rows = [[(s, "b", 1.0) for s in states]] * 2
    rows += [[step for s in states for step in ((s, "a", 0.0), (s, "b", 1.0))]] * 3
    rows += [[(s, "a", 0.0) for s in states]] * 6
    policy = dprl.DPRLDiscrete(n_min=3, gamma=0.5, plan=False).fit(to_log(rows))
    words, written = read(policy, to_log(rows * 2), tmp_path)
    assert written.listed == 2
    first, ever = policy.m[0, 1], policy.n[0, 1]
    assert (first, ever) == (2, 5)
    assert words.count("2 / 5") == 2
    assert "Did it, first visit / everWhat the rule saw" in words


def test_groups_are_called_groups(tmp_path):
    def grouped(log, name):
        group = np.arange(log.n_episodes, dtype=np.int32) // 2
        return replace(log, group=group, groups=tuple(f"{name}{g}" for g in range(group[-1] + 1)))

    policy = dprl.DPRLDiscrete(n_min=20, gamma=1.0).fit(grouped(WORLD.sample(1_000, seed=1), "p"))
    words, _ = read(policy, grouped(WORLD.sample(400, seed=2), "q"), tmp_path)
    assert "at each group's first decision" in words
    assert "at each episode's first decision" not in words
